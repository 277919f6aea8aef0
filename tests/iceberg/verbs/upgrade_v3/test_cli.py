"""upgrade-v3 as a program: the preflight, the upgrade, and the recipe around it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.testing.iceberg_files import ADDED
from tests.builders import DAY_MS, TABLE_UUID, a_branch, a_tag
from tests.cli.lakes import FolderTable, four_snapshots, listed_of, listing, metadata_of, newest_metadata
from tests.cli.running import Ran, iceberg_cli
from tests.delete_tables import a_table
from tests.files_without_ids import change_folder, written_again
from tests.hazard_tables import Hazard, entry, obstruct_an_upgrade
from tests.paths import besides_history

REPAIR = ("--with", "repair-manifests,assign-row-ids")


def upgrade(table: Path, *arguments: object, code: int = 0) -> Ran:
    ran = iceberg_cli("upgrade-v3", table, "--format", "json", *arguments)
    assert ran.code == code, ran.out + ran.err
    return ran


@pytest.fixture
def table(tmp_path: Path) -> FolderTable:
    made = four_snapshots(tmp_path / "t")
    made.commit(5, age_ms=DAY_MS, add=["five"], ref="b", parent=3)
    made.writer.set_ref("eom", a_tag(2))
    made.publish()
    return made


@pytest.fixture
def old(tmp_path: Path) -> Hazard:
    """Version 1 without UUID, with snapshots that obstruct its upgrade."""
    made = Hazard(location=str(tmp_path / "old"), format_version=1, fields={"snapshot-log": []})
    obstruct_an_upgrade(made)
    made.publish(main=7, b=a_branch(6))
    change_document(made, lambda document: document.pop("table-uuid"))
    return made


def change_document(table: Hazard, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the current metadata file in its place."""
    path = newest_metadata(Path(table.location))
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))


def tag(table: Hazard, name: str, snapshot_id: int) -> None:
    change_document(table, lambda document: document["refs"].update({name: a_tag(snapshot_id)}))


# -- preflight ---------------------------------------------------------------------------------------------------


def test_check_of_a_clear_table_writes_nothing_and_leaves_with_0(table: FolderTable) -> None:
    before = listing(table.folder)
    document = upgrade(table.folder, "--check").json
    assert document["schema"] == "iceberg-cli/preflight/2"
    assert document["blocked"] is False
    assert {finding["id"] for finding in document["findings"]} == {
        "writer-unknown", "rows-without-ids", "snapshots-without-ids",
    }  # fmt: skip
    assert listing(table.folder) == before


def test_check_of_a_table_with_obstacles_leaves_with_11_and_names_the_way_out(old: Hazard) -> None:
    before = listing(Path(old.location))
    document = upgrade(Path(old.location), "--check", code=11).json
    assert document["blocked"] is True
    blocking = {each["id"]: each for each in document["findings"] if each["severity"] == "blocking"}
    assert set(blocking) == {"inline-manifests", "uncounted-manifests"}
    assert blocking["inline-manifests"]["where"] == "branch b"
    assert all(
        each["remedy"] == f"iceberg-cli upgrade-v3 {old.location} --with repair-manifests"
        for each in blocking.values()
    )
    quiet = iceberg_cli("upgrade-v3", old.location, "--check", "--quiet")
    assert (quiet.code, quiet.out) == (11, "")
    assert [line for line in quiet.err.splitlines() if line and not line.startswith(" ")] == [
        f"upgrade-v3 {old.location}: blocked by 2 findings",
        "blocking: inline-manifests (1)",
        "blocking: uncounted-manifests (1)",
    ]
    assert listing(Path(old.location)) == before


def test_check_with_the_repair_is_clear(old: Hazard) -> None:
    assert upgrade(Path(old.location), "--check", *REPAIR).json["blocked"] is False
    tag(old, "eom", 9)
    document = upgrade(Path(old.location), "--check", *REPAIR, code=11).json
    assert [each["id"] for each in document["findings"] if each["severity"] == "blocking"] == [
        "repair-blocked"
    ]


def test_check_as_text_is_a_table_with_a_verdict(table: FolderTable) -> None:
    ran = iceberg_cli("upgrade-v3", table.folder, "--check")
    assert ran.code == 0
    assert "nothing blocks the upgrade" in ran.out
    assert "--with assign-row-ids" in ran.out


def test_check_of_a_table_of_version_3_counts_what_is_left_and_no_deletion_vectors(tmp_path: Path) -> None:
    made = a_table(tmp_path / "t", {"a": 10})
    made.vectors("dv", {"a": [1, 2]})
    made.commit_and_publish(2)
    ran = iceberg_cli("upgrade-v3", made.location, "--check")
    assert ran.code == 0
    assert f"upgrade-v3 {made.location}: the table has format version 3: nothing to upgrade" in ran.out
    findings = upgrade(Path(made.location), "--check").json["findings"]
    assert [each["id"] for each in findings] == ["already-v3"]
    made.positions("late", {"a": [3, 4, 5]})
    made.commit_and_publish(3)
    (finding,) = [
        each
        for each in upgrade(Path(made.location), "--check").json["findings"]
        if each["severity"] == "warning"
    ]
    assert finding["message"].startswith("1 position delete file of 3 positions: ")
    assert finding["remedy"] == f"iceberg-cli merge-dvs {made.location}"


def test_check_finds_nothing_without_ids_once_they_are_assigned(table: FolderTable) -> None:
    upgrade(table.folder, "--yes", "--with", "assign-row-ids")
    ids = {each["id"] for each in upgrade(table.folder, "--check").json["findings"]}
    assert ids == {"already-v3", "snapshots-without-ids"}


# -- upgrade -----------------------------------------------------------------------------------------------------


def test_upgrade_is_one_commit_that_writes_one_file(table: FolderTable) -> None:
    before = listing(table.folder)
    old_document = metadata_of(table.folder)
    report = upgrade(table.folder, "--yes").json
    assert (report["status"], report["upgraded_tables_count"]) == ("done", 1)
    after = listing(table.folder)
    assert {path: digest for path, digest in after.items() if path in before} == before
    assert besides_history(after) - set(before) - {"metadata/version-hint.text"} == {
        "metadata/v2.metadata.json"
    }
    new = metadata_of(table.folder)
    assert (new["format-version"], new["next-row-id"]) == (3, 0)
    assert new["snapshots"] == old_document["snapshots"]


def test_upgrade_asks_because_it_cannot_be_taken_back(table: FolderTable) -> None:
    before = listing(table.folder)
    ran = upgrade(table.folder, code=2)
    assert "Nobody can be asked" in ran.json["message"]
    assert listing(table.folder) == before


def test_second_upgrade_has_nothing_to_do(table: FolderTable) -> None:
    upgrade(table.folder, "--yes")
    before = listing(table.folder)
    assert upgrade(table.folder).json["status"] == "nothing_to_do"
    assert upgrade(table.folder, "--check").json["blocked"] is False
    assert listing(table.folder) == before


def test_upgrade_with_row_ids_is_three_commits(table: FolderTable) -> None:
    report = upgrade(table.folder, "--yes", "--with", "assign-row-ids").json
    assert report["assigned_rows_count"] == 7
    document = metadata_of(table.folder)
    assert document["next-row-id"] == 7
    assert [row["first_row_id"] for row in listed_of(table.folder)] == [0, 1, 1, 2]
    assert [row["first_row_id"] for row in listed_of(table.folder, "b")] == [3, 4, 5, 6]
    assert len(document["metadata-log"]) == 3
    assert upgrade(table.folder, "--with", "assign-row-ids").json["status"] == "nothing_to_do"


def test_plan_shows_every_step_before_the_first(table: FolderTable) -> None:
    plan = upgrade(table.folder, "--dry-run", "--with", "assign-row-ids").json
    assert [step["name"] for step in plan["steps"]] == ["upgrade", "assign-row-ids main", "assign-row-ids b"]
    assert {v["subject"]: v["keep"] for v in plan["verdicts"]} == {"format-version": False, "head": False}
    assert (
        plan
        == upgrade(table.folder, "--dry-run", "--with", "assign-row-ids", "--as-of", plan["as_of_ms"]).json
    )


def test_a_warning_says_where_it_was_found(table: FolderTable) -> None:
    warnings = upgrade(table.folder, "--dry-run").json["warnings"]
    assert any(each.startswith("branches: 7 rows of 2 branches, counted once") for each in warnings)
    assert any(each.startswith("snapshots: 5 snapshots and 1 tag (eom) from before") for each in warnings)
    assert any(each.startswith("an unnamed writer made 1 snapshot") for each in warnings)


def test_a_recipe_offers_main_s_ids_by_a_command_that_there_is(tmp_path: Path) -> None:
    made = four_snapshots(tmp_path / "t 1")
    made.writer.set_ref("b", a_branch(4))
    made.publish()
    (warning,) = [
        each
        for each in upgrade(made.folder, "--dry-run", "--with", "assign-row-ids").json["warnings"]
        if "of their own here" in each
    ]
    assert "leave assign-row-ids out" in warning
    assert f"`iceberg-cli assign-row-ids '{made.folder}' --share-ids` afterwards" in warning


@pytest.fixture
def deleting(tmp_path: Path) -> Path:
    """Version 2; main and the branch b have the same position delete file."""
    made = a_table(tmp_path / "d", {"a": 10}, format_version=2)
    made.positions("first", {"a": [1, 2]})
    made.commit(2)
    made.document["refs"]["b"] = a_branch(2)
    made.publish()
    return Path(made.location)


def test_position_deletes_of_other_branches_are_warned_of_with_merge_dvs_too(deleting: Path) -> None:
    warnings = upgrade(deleting, "--dry-run", "--with", "merge-dvs").json["warnings"]
    (warning,) = [each for each in warnings if "merge-dvs does main only" in each]
    assert warning.startswith("branch b: 1 delete file of 2 positions: ")
    assert not any(each.startswith("branch main: 1 delete file") for each in warnings)


def test_a_merge_on_main_is_said_to_reserve_mains_ids(deleting: Path) -> None:
    recipe = ("--with", "merge-dvs,assign-row-ids")
    plan = upgrade(deleting, "--dry-run", *recipe).json
    steps = {step["name"]: step["requires"] for step in plan["steps"]}
    assert list(steps) == ["upgrade", "merge-dvs main", "assign-row-ids main", "assign-row-ids b"]
    assert steps["assign-row-ids main"] == "main still lacks ids after merge-dvs main"
    reasons = {v["id"]: v["reason"] for v in plan["verdicts"] if v["subject"] == "head"}
    assert reasons["main"].endswith("; merge-dvs main commits before, and reserves them")
    assert "merge-dvs" not in reasons["b"]
    upgrade(deleting, "--yes", *recipe)
    document = metadata_of(deleting)
    assert (document["next-row-id"], len(document["snapshots"])) == (20, 4)
    assert upgrade(deleting, *recipe).json["status"] == "nothing_to_do"


def test_a_saved_recipe_is_carried_out(table: FolderTable, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    ran = iceberg_cli("plan", table.folder, "upgrade-v3", "--with", "assign-row-ids", "-o", saved)
    assert ran.code == 0, ran.err
    ran = iceberg_cli("apply", saved, "--yes", "--format", "json")
    assert ran.code == 0, ran.out
    assert metadata_of(table.folder)["next-row-id"] == 7


# -- repair ------------------------------------------------------------------------------------------------------


def test_obstacles_block_a_plain_upgrade(old: Hazard) -> None:
    before = listing(Path(old.location))
    message = upgrade(Path(old.location), "--yes", code=11).json["message"]
    assert "1 snapshot without a manifest list: 6" in message
    assert "3 snapshots whose manifest list lacks counts: 9, 8, 7" in message
    assert "--with repair-manifests" in message
    assert listing(Path(old.location)) == before


def test_repair_counts_every_head_expires_the_rest_and_then_upgrades(old: Hazard) -> None:
    folder = Path(old.location)
    before = set(listing(folder))
    plan = upgrade(folder, "--dry-run", *REPAIR).json
    assert [step["name"] for step in plan["steps"]] == [
        "repair-manifests main", "repair-manifests b", "expire", "upgrade", "assign-row-ids main", "assign-row-ids b",
    ]  # fmt: skip
    report = upgrade(folder, "--yes", *REPAIR).json
    gone = before - set(listing(folder))
    assert gone == {
        "data/x", "metadata/m1.avro", "metadata/snap-9.avro", "metadata/snap-8.avro", "metadata/snap-7.avro",
    }  # fmt: skip
    assert plan["removals"]["count"] == len(gone)
    assert (report["repaired_heads_count"], report["deleted_data_files_count"]) == (2, 1)
    names = ("added", "existing", "deleted")
    counts = {
        ref: [tuple(row[f"{name}_rows_count"] for name in names) for row in listed_of(folder, ref)]
        for ref in ("main", "b")
    }
    assert counts == {"main": [(4, 0, 0), (0, 3, 2)], "b": [(5, 0, 0), (0, 3, 2)]}
    assert [row["first_row_id"] for row in listed_of(folder)] == [0, 4]
    assert [row["first_row_id"] for row in listed_of(folder, "b")] == [7, 12]
    assert [(row["manifest_length"], row["added_snapshot_id"]) for row in listed_of(folder, "b")] == [
        (Path(row["manifest_path"]).stat().st_size, snapshot_id)
        for row, snapshot_id in zip(listed_of(folder, "b"), (6, 8), strict=True)
    ]
    document = metadata_of(folder)
    assert (document["format-version"], document["next-row-id"]) == (3, 15)
    assert document["table-uuid"]
    assert all("manifests" not in snapshot for snapshot in document["snapshots"])
    assert upgrade(folder, *REPAIR).json["status"] == "nothing_to_do"


def test_the_preflight_sees_the_table_as_the_repair_leaves_it(old: Hazard) -> None:
    """Of four snapshots the two heads get successors; the other two go, as does the tag."""
    tag(old, "eom", 9)
    repair = ("--with", "repair-manifests", "--unsafe-drop-tags")
    findings = {each["id"]: each for each in upgrade(Path(old.location), "--check", *repair).json["findings"]}
    assert findings["snapshots-without-ids"]["message"].startswith("2 snapshots from before")
    assert findings["rows-without-ids"]["message"].startswith("15 rows of 2 branches")
    warnings = upgrade(Path(old.location), "--dry-run", *repair).json["warnings"]
    assert any(each.startswith("snapshots: 2 snapshots from before") for each in warnings)
    with_ids = ("--with", "repair-manifests,assign-row-ids", "--unsafe-drop-tags")
    warnings = upgrade(Path(old.location), "--dry-run", *with_ids).json["warnings"]
    assert any(each.startswith("2 snapshots from before cannot be changed") for each in warnings)


@pytest.mark.parametrize("whole", [True, False])
def test_a_repair_reads_the_spec_of_a_header_as_a_list_or_as_a_whole(old: Hazard, whole: bool) -> None:
    """Headers without `partition-spec-id`: the fields tell which spec it is."""

    def header(kept: dict[str, str]) -> dict[str, str]:
        spec = json.loads(kept["partition-spec"])
        of_spec = {"spec-id": 0, "fields": spec} if whole else spec
        return {k: v for k, v in kept.items() if k != "partition-spec-id"} | {
            "partition-spec": json.dumps(of_spec)
        }

    def change(data: bytes, lengths: dict[str, int], is_list: bool) -> bytes:
        return written_again(data, lambda schema: schema, dict if is_list else header, lengths)

    change_folder(Path(old.location), change)
    assert upgrade(Path(old.location), "--yes", *REPAIR).json["status"] == "done"
    assert metadata_of(Path(old.location))["format-version"] == 3


def test_tags_on_what_has_to_go_are_refused(old: Hazard) -> None:
    tag(old, "eom", 9)
    before = listing(Path(old.location))
    message = upgrade(Path(old.location), "--yes", *REPAIR, code=11).json["message"]
    assert "tags eom" in message
    assert "--unsafe-drop-tags" in message
    assert listing(Path(old.location)) == before


def test_tags_go_where_told_to(old: Hazard) -> None:
    tag(old, "eom", 9)
    report = upgrade(Path(old.location), "--yes", *REPAIR, "--unsafe-drop-tags").json
    assert report["dropped_tags_count"] == 1
    document = metadata_of(Path(old.location))
    assert set(document["refs"]) == {"main", "b"}
    assert 9 not in {snapshot["snapshot-id"] for snapshot in document["snapshots"]}


def test_tags_stay_where_told_to(old: Hazard) -> None:
    tag(old, "eom", 9)
    plan = upgrade(Path(old.location), "--dry-run", *REPAIR, "--unsafe-keep-tags").json
    assert any("tags eom keep 1 snapshot without counts" in warning for warning in plan["warnings"])
    upgrade(Path(old.location), "--yes", *REPAIR, "--unsafe-keep-tags")
    document = metadata_of(Path(old.location))
    assert document["refs"]["eom"]["snapshot-id"] == 9
    assert Path(old.location, "data/x").exists()
    again = upgrade(Path(old.location), *REPAIR, "--unsafe-keep-tags").json
    assert again["status"] == "nothing_to_do"


def test_nothing_expires_where_files_may_be_anothers(old: Hazard) -> None:
    change_document(old, lambda document: document["properties"].update({"gc.enabled": "false"}))
    assert "gc.enabled=false" in upgrade(Path(old.location), "--yes", *REPAIR, code=11).json["message"]


def test_a_list_that_was_cut_short_is_not_repaired(tmp_path: Path) -> None:
    """A list records no length; the summary says that there was more."""
    made = Hazard(location=str(tmp_path / "cut"), format_version=1)
    (a,) = made.data("a")
    made.manifest("m1", entry(ADDED, a))
    made.forget_counts()
    made.snapshot(9, "m1", summary={"total-data-files": "2", "total-delete-files": "0"})
    made.publish(main=9)
    before = listing(Path(made.location))
    ran = upgrade(Path(made.location), "--yes", *REPAIR, code=15)
    assert "cut short" in ran.json["message"]
    assert listing(Path(made.location)) == before


def test_a_table_that_another_writer_upgraded_too_early_is_repaired_afterwards(old: Hazard) -> None:
    values = {"format-version": 2, "table-uuid": TABLE_UUID, "last-sequence-number": 0}
    change_document(old, lambda document: document.update(values))
    change_document(old, lambda document: [document.pop("schema"), document.pop("partition-spec")])
    report = upgrade(Path(old.location), "--yes", *REPAIR).json
    assert (report["status"], report["repaired_heads_count"]) == ("done", 2)
    assert [row["first_row_id"] for row in listed_of(Path(old.location))] == [0, 4]


# -- options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--with", "everything"), "--with takes"),
        (("--with", ""), "--with takes"),
        (("--with", " , "), "it names none"),
        (("--check", "--yes"), "--check only looks; it excludes --yes"),
        (("--check", "--dry-run"), "it excludes --dry-run"),
        (("--check", "-n", "--exit-code"), "it excludes --dry-run, --exit-code"),
        (("--check", "--limit-deletes", "5"), "it excludes --limit-deletes"),
        (("--unsafe-drop-tags",), "needs --with repair-manifests"),
        (("--with", "repair-manifests", "--unsafe-drop-tags", "--unsafe-keep-tags"), "exclude each other"),
    ],
    ids=str,
)
def test_options_without_meaning_are_usage_errors(
    table: FolderTable, arguments: tuple[str, ...], text: str
) -> None:
    ran = iceberg_cli("upgrade-v3", table.folder, *arguments)
    assert ran.code == 2
    assert text in ran.err
