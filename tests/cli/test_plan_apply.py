"""`plan -o` saves what would happen; `apply` does that and never more."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from iceberg_cli.formats import maintenance_verbs
from iceberg_cli.operation import removal_files
from iceberg_cli.plan import removal_rows
from iceberg_cli.plan.removals import Removals
from tests.builders import a_tag
from tests.cli.lakes import (
    AS_OF,
    GONE,
    SCHEMA,
    CatalogTable,
    FolderTable,
    catalog_table,
    delta_with_removed_files,
    edited,
    four_snapshots,
    listing,
    unchanged,
)
from tests.cli.running import Ran, expire, going, iceberg_cli

ALL_OLD = ("--older-than", "0s", "--retain-last", "1")


@pytest.fixture
def plan_file(table: FolderTable, tmp_path: Path) -> Path:
    """The plan of expiring 1 to 3."""
    return saved(table, tmp_path / "plans")


def saved(table: FolderTable | CatalogTable | str, folder: Path, *arguments: object) -> Path:
    """The file of a plan of expiring a table's snapshots; without arguments, of expiring 1 to 3."""
    name = table if isinstance(table, str) else table.name
    folder.mkdir(exist_ok=True)
    path = folder / "plan.json"
    ran = iceberg_cli("plan", name, "expire-snapshots", *(arguments or AS_OF), "-o", path)
    assert ran.code == 0, ran.err
    return path


def apply(plan_file: Path, *arguments: object) -> Ran:
    return iceberg_cli("apply", plan_file, "--yes", "--format", "json", *arguments)


# -- saving ----------------------------------------------------------------------------------------------------


def test_planning_writes_the_two_files_and_nothing_to_the_table(table: FolderTable, tmp_path: Path) -> None:
    with unchanged(table.folder):
        path = saved(table, tmp_path / "plans")
    assert set(listing(path.parent)) == {"plan.json", "plan.json.removals.parquet"}
    document = json.loads(path.read_text())
    files = pq.read_table(path.parent / document["removals"]["file"])
    assert {str(Path(each).relative_to(table.folder)) for each in files["path"].to_pylist()} == GONE
    assert all(files["reason"].to_pylist())


def test_the_same_table_and_as_of_give_the_same_bytes(table: FolderTable, tmp_path: Path) -> None:
    first = listing(saved(table, tmp_path / "a").parent)
    second = listing(saved(table, tmp_path / "b").parent)
    assert first == second


def test_plan_prints_what_it_saves(table: FolderTable, tmp_path: Path) -> None:
    arguments = ("plan", table.folder, "expire-snapshots", *AS_OF, "--format", "json", "-o", tmp_path / "p")
    ran = iceberg_cli(*arguments)
    assert ran.json == json.loads((tmp_path / "p").read_text())
    assert going(ran.json) == {"1", "2", "3"}


def test_a_plan_needs_a_verb_to_be_saved(table: FolderTable, tmp_path: Path) -> None:
    ran = iceberg_cli("plan", table.folder, "-o", tmp_path / "p")
    assert ran.code == 2
    assert not (tmp_path / "p").exists()


def test_a_verb_that_does_not_exist_is_named(table: FolderTable) -> None:
    ran = iceberg_cli("plan", table.folder, "vacuum")
    assert ran.code == 2
    assert "'vacuum'" in ran.err


def test_a_plan_that_cannot_be_written_is_a_usage_error(table: FolderTable, tmp_path: Path) -> None:
    ran = iceberg_cli("plan", table.folder, "expire-snapshots", *AS_OF, "-o", tmp_path / "absent" / "p")
    assert ran.code == 2
    assert str(tmp_path / "absent") in ran.err


def test_plan_without_a_verb_surveys_all_and_says_what_is_due(table: FolderTable) -> None:
    ran = iceberg_cli("plan", table.folder, *AS_OF, "--format", "json", "--exit-code")
    assert ran.code == 3
    survey = ran.json
    assert survey["due"] is True
    operations = [each["operation"] for each in survey["plans"]]
    assert operations[0] == "expire-snapshots"
    assert set(operations) == set(maintenance_verbs()) - {"remove-orphan-files"}
    assert (
        iceberg_cli(
            "plan", table.folder, *AS_OF, "--older-than", "30d", "--min-manifests", 100, "--exit-code"
        ).code
        == 0
    )


def test_an_option_that_means_something_else_in_one_verb_is_for_it_only_by_its_name(
    table: FolderTable,
) -> None:
    words = ("plan", table.folder, *AS_OF, "--target-size", "9MiB", "--format", "json")
    plans = {each["operation"]: each["options"]["target_size_bytes"] for each in iceberg_cli(*words).json["plans"]
             if "target_size_bytes" in each["options"]}  # fmt: skip
    assert plans["rewrite-manifests"] == {"value": 9 << 20, "source": "--target-size"}
    assert plans["rewrite-data-files"]["value"] == 512 << 20
    named = iceberg_cli("plan", table.folder, "rewrite-data-files", *words[2:]).json["options"]
    assert named["target_size_bytes"] == {"value": 9 << 20, "source": "--target-size"}


def test_the_age_of_snapshots_is_none_of_a_delta_table_s_files(tmp_path: Path) -> None:
    root = delta_with_removed_files(tmp_path)
    ran = iceberg_cli("plan", root, "--older-than", "7d")
    assert ran.code == 2
    assert "--older-than is an option of Iceberg tables" in ran.err
    assert "Use --retention." in ran.err
    assert iceberg_cli("plan", root, "rewrite-data-files", "--older-than", "7d").code == 0


# -- carrying out ----------------------------------------------------------------------------------------------


def test_apply_does_what_the_file_lists(table: FolderTable, plan_file: Path) -> None:
    with table.loses(GONE):
        ran = apply(plan_file)
        assert (ran.code, ran.json["status"]) == (0, "done")


def test_apply_works_from_any_folder(
    table: FolderTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table.folder.parent)
    path = saved("events", tmp_path / "plans")
    monkeypatch.chdir(tmp_path)
    with table.loses(GONE):
        assert apply(path).code == 0


@pytest.mark.parametrize("flag", ["--dry-run", "--replan"])
def test_apply_can_be_looked_at_first(table: FolderTable, plan_file: Path, flag: str) -> None:
    with unchanged(table.folder):
        ran = iceberg_cli("apply", plan_file, flag)
        assert ran.code == 0
        assert "nothing would go that the file does not list" in ran.out


def test_looking_at_a_file_shows_what_would_be_done_now_and_whether_it_is_due(
    table: FolderTable, plan_file: Path
) -> None:
    expire(str(table.folder), *AS_OF, "--snapshot-id", "1")
    ran = iceberg_cli("apply", plan_file, "--dry-run", "--exit-code", "--format", "json")
    assert ran.code == 3
    assert going(ran.json["plan"]) == {"2", "3"}
    quiet = iceberg_cli("apply", plan_file, "--dry-run", "--exit-code", "--quiet")
    assert (quiet.code, quiet.out) == (3, "")
    assert apply(plan_file).code == 0
    ran = iceberg_cli("apply", plan_file, "--dry-run", "--exit-code")
    assert ran.code == 0
    assert "Nothing of what the file lists is left to do." in ran.out


def test_looking_at_a_stale_file_is_one_document_and_11(table: FolderTable, tmp_path: Path) -> None:
    path = saved_with_a_tag_that_moves(table, tmp_path)
    ran = iceberg_cli("apply", path, "--dry-run", "--format", "json")
    assert ran.code == 11
    assert ran.json["beyond"] == ["tag rel, which points to another snapshot now"]


def test_applying_twice_finds_nothing_to_do(table: FolderTable, plan_file: Path) -> None:
    apply(plan_file)
    with unchanged(table.folder):
        ran = apply(plan_file)
        assert (ran.code, ran.json["status"]) == (0, "nothing_to_do")


def test_a_plan_made_under_an_interlock_is_refused(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "events", properties={"gc.enabled": "false"})
    path = saved(table.publish(), tmp_path / "plans")
    with unchanged(table.folder):
        assert apply(path).code == 11


# -- the table moved in between --------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogTable:
    return catalog_table(tmp_path, monkeypatch, appends=4)


def moment(lake: CatalogTable, index: int) -> int:
    """The time of the n-th snapshot, in ms."""
    return int(lake.open().metadata.snapshots[index].timestamp_ms)


def test_an_append_in_between_is_kept_where_nothing_more_goes(lake: CatalogTable, tmp_path: Path) -> None:
    path = saved(lake, tmp_path / "plans", "--older-than", moment(lake, 2))
    lake.append(4)
    ran = apply(path)
    assert (ran.code, ran.json["status"]) == (0, "done")
    assert len(lake.snapshot_ids()) == 3
    assert lake.ids() == [0, 1, 2, 3, 4]


def test_a_snapshot_that_came_due_after_the_plan_is_kept(lake: CatalogTable, tmp_path: Path) -> None:
    # After the append the former head is old enough to go, and the file does not say so.
    path = saved(lake, tmp_path / "plans", *ALL_OLD)
    former_head = lake.snapshot_ids()[-1]
    lake.append(4)
    looked = iceberg_cli("apply", path, "--dry-run", "--format", "json")
    assert (looked.code, looked.json["beyond"]) == (0, [])
    ran = apply(path)
    assert (ran.code, ran.json["status"]) == (0, "done")
    new_head = lake.open().metadata.current_snapshot_id
    assert lake.snapshot_ids() == [former_head, new_head]
    assert (lake.ids(former_head), lake.ids()) == ([0, 1, 2, 3], [0, 1, 2, 3, 4])


def test_replan_prints_what_would_go_beyond_the_file_and_writes_nothing(
    lake: CatalogTable, tmp_path: Path
) -> None:
    path = saved(lake, tmp_path / "plans", *ALL_OLD)
    former_head = lake.snapshot_ids()[-1]
    lake.append(4)
    with unchanged(tmp_path):
        ran = iceberg_cli("apply", path, "--replan", "--format", "json")
        additions_over = ran.json["beyond"]
        assert additions_over[0].startswith(f"snapshot {former_head}: expires: ")
        assert any("/metadata/snap-" in line for line in additions_over[1:])


@pytest.mark.parametrize("flag", ["--dry-run", "--replan", "--yes"])
def test_a_plan_whose_named_snapshots_have_gone_has_nothing_to_do(
    lake: CatalogTable, tmp_path: Path, flag: str
) -> None:
    first, *_ = lake.snapshot_ids()
    path = saved(lake, tmp_path / "plans", "--snapshot-id", first)
    assert apply(path).json["status"] == "done"
    with unchanged(lake.folder):
        ran = iceberg_cli("apply", path, flag)
        assert ran.code == 0, ran.err


def test_a_tag_in_between_keeps_its_snapshot_and_the_rest_goes(lake: CatalogTable, tmp_path: Path) -> None:
    path = saved(lake, tmp_path / "plans", "--older-than", moment(lake, 3))
    tagged, *others = lake.snapshot_ids()
    lake.open().manage_snapshots().create_tag(tagged, "eod").commit()
    ran = apply(path)
    assert ran.code == 0
    assert lake.snapshot_ids() == [tagged, others[-1]]
    assert lake.ids(tagged) == [0]


def test_an_append_in_between_does_not_make_a_plan_stale_by_the_metadata_files_it_drops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "2",
    }
    lake = catalog_table(tmp_path, monkeypatch, appends=5, **properties)
    path = saved(lake, tmp_path / "plans", "--older-than", moment(lake, 2))
    shown = pq.read_table(f"{path}.removals.parquet", columns=["path", "kind"])
    dropped = shown.filter(pc.equal(shown["kind"], "metadata_file"))["path"].to_pylist()
    assert len(dropped) == 1
    lake.append(5)
    ran = apply(path)
    assert (ran.code, ran.json["status"]) == (0, "done")
    assert lake.ids() == [0, 1, 2, 3, 4, 5]
    metadata = lake.open().metadata
    named = {lake.open().metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    assert len(named) == 3
    left = (lake.folder / "metadata").glob("*.metadata.json")
    assert {path.name for path in left} == {name.rpartition("/")[2] for name in named}


def saved_with_a_tag_that_moves(table: FolderTable, tmp_path: Path) -> Path:
    """A plan that drops the tag `rel`, which points to another snapshot by now."""
    table.writer.set_ref("rel", a_tag(1, max_ref_age_ms=1_000))
    path = saved(table.publish(), tmp_path / "plans", *AS_OF, "--older-than", "100d")
    assert going(json.loads(path.read_text()), "tag") == {"rel"}
    table.writer.set_ref("rel", a_tag(3, max_ref_age_ms=1_000))
    table.publish()
    return path


def test_a_tag_that_was_pointed_elsewhere_in_between_stays_and_the_plan_is_stale(
    table: FolderTable, tmp_path: Path
) -> None:
    path = saved_with_a_tag_that_moves(table, tmp_path)
    with unchanged(table.folder):
        ran = apply(path)
        assert (ran.code, ran.json["error"]) == (11, "StalePlan")
        assert "tag rel" in ran.json["message"]


def test_the_plan_s_own_time_is_used_and_not_that_of_the_apply(lake: CatalogTable, tmp_path: Path) -> None:
    path = saved(lake, tmp_path / "plans", "--as-of", moment(lake, 3), "--older-than", "0s")
    time.sleep(0.02)
    planned = json.loads(path.read_text())
    assert planned["as_of_ms"] == moment(lake, 3)
    assert apply(path).json["status"] == "done"
    assert len(lake.snapshot_ids()) == 4 - len(going(planned))


def test_another_table_under_the_same_name_is_refused(lake: CatalogTable, tmp_path: Path) -> None:
    path = saved(lake, tmp_path / "plans", *ALL_OLD)
    lake.catalog.drop_table("shop.events")
    lake.catalog.create_table("shop.events", SCHEMA, location=f"file://{tmp_path}/other")
    for number in range(3):
        lake.append(number)
    with unchanged(tmp_path / "other"):
        ran = apply(path)
        assert ran.code == 11
        assert "it was made for table" in ran.json["message"]


def test_expiry_between_plan_and_apply_leaves_less_to_do(table: FolderTable, plan_file: Path) -> None:
    expire(str(table.folder), *AS_OF, "--snapshot-id", "1")
    ran = apply(plan_file)
    assert (ran.code, ran.json["status"]) == (0, "done")
    assert not GONE & table.files()


# -- damaged files ---------------------------------------------------------------------------------------------


def test_a_plan_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    ran = iceberg_cli("apply", tmp_path / "absent.json")
    assert ran.code == 2
    assert "absent.json" in ran.err


def test_a_plan_without_its_removals_is_not_carried_out(table: FolderTable, plan_file: Path) -> None:
    Path(f"{plan_file}.removals.parquet").unlink()
    with unchanged(table.folder):
        assert apply(plan_file).code == 2


def test_a_plan_with_the_removals_of_another_is_corrupt(
    table: FolderTable, plan_file: Path, tmp_path: Path
) -> None:
    other = saved(table, tmp_path / "other", *AS_OF, "--snapshot-id", "1")
    Path(f"{plan_file}.removals.parquet").write_bytes(Path(f"{other}.removals.parquet").read_bytes())
    with unchanged(table.folder):
        assert apply(plan_file).code == 15


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", '"x"', "null", "\x00\x01", '{"schema": "iceberg-cli/plan/1"}', '{"a": 1, "a": 2}'],
)
def test_a_file_that_is_no_plan_is_refused_without_a_traceback(tmp_path: Path, text: str) -> None:
    (tmp_path / "p").write_text(text)
    assert iceberg_cli("apply", tmp_path / "p", "--yes").code in (2, 15)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base", None),
        ("steps", [{"name": "expire"}]),
        ("verdicts", [{}]),
        ("warnings", [7]),
        ("grace_ms", None),
        ("operation", "drop-table"),
        ("as_of_ms", "yesterday"),
        ("table", {}),
        ("removals", {"file": "../../etc/passwd", "count": 0, "digest": ""}),
        ("removals", {"file": 7, "count": 0, "digest": ""}),
        ("removals", {"file": ["p"], "count": 0, "digest": ""}),
        ("removals", [1]),
        ("removals", "x"),
        ("removals", None),
        (
            "base",
            {"table_uuid": 7, "version": "v", "refs": {}, "last_sequence_number": 0, "next_row_id": None},
        ),
        ("table", {"name": "events"}),
        ("verdicts", [{"subject": "tag", "id": "a", "keep": False, "reason": "", "timestamp_ms": "x"}]),
        ("warnings", "x"),
        ("blocked_by", {}),
        ("options", {"retain_last": 1}),
        ("policy", []),
        ("steps", "x"),
        ("steps", [{"name": 7, "requires": None, "tasks": [], "change": None}]),
        ("steps", [{"name": "expire", "requires": None, "tasks": [], "change": {"updates": [7]}}]),
        ("steps", [{"name": "expire", "requires": None, "tasks": [], "change": None}] * 2),
        ("grace_ms", -1),
        ("as_of_ms", True),
    ],
)
def test_a_plan_that_somebody_edited_is_refused_without_a_traceback(
    table: FolderTable, plan_file: Path, field: str, value: Any
) -> None:
    with edited(plan_file) as document:
        document[field] = value
    with unchanged(table.folder):
        for ran in (apply(plan_file), iceberg_cli("apply", plan_file, "--dry-run")):
            assert ran.code in (2, 15), ran.out + ran.err


@pytest.mark.parametrize(
    "change",
    [
        {"unknown": 1},
        {"snapshot_ids": ["abc"]},
        {"snapshot_ids": "12"},
        {"snapshot_ids": {}},
        {"older_than_ms": "abc"},
        {"older_than_ms": True},
        {"retain_last": [1]},
        {"retain_last": "2"},
        {"clean_metadata": 1},
        {"cleanup": "bogus"},
        {"cleanup": None},
        {"grace_ms": None},
        {"grace_ms": -1},
    ],
)
def test_a_policy_that_somebody_edited_cannot_be_planned_from(
    table: FolderTable, plan_file: Path, change: dict[str, Any]
) -> None:
    with edited(plan_file) as document:
        document["policy"] |= change
    with unchanged(table.folder):
        for flag in ("--replan", "--dry-run", "--yes"):
            ran = iceberg_cli("apply", plan_file, flag)
            assert ran.code == 2
            assert "Cannot plan again from this policy" in ran.err


def test_files_added_to_a_plan_by_hand_are_not_deleted_where_the_table_does_not_give_them_up(
    table: FolderTable, plan_file: Path
) -> None:
    # The removals and their digest are changed together; liveness and ownership are asked of the table.
    victim = table.folder.parent / "victim.txt"
    victim.write_text("precious")
    beside = Path(f"{plan_file}.removals.parquet")
    found = pq.read_table(beside).to_pylist()
    forged = [
        {**found[0], "path": str(path), "as_written": str(path)}
        for path in (table.folder / "data/keep.parquet", table.folder / "metadata/v1.metadata.json", victim)
    ]
    changed = Removals.of(pa.Table.from_pylist([*found, *forged], schema=removal_rows.SCHEMA))
    beside.write_bytes(removal_rows.to_parquet(changed.rows))
    with edited(plan_file) as document:
        document["removals"] |= {"count": changed.count, "digest": changed.digest}
    apply(plan_file)
    assert victim.exists()
    assert (table.folder / "data/keep.parquet").exists()
    assert (table.folder / "metadata/v1.metadata.json").exists()


# -- many files ------------------------------------------------------------------------------------------------


def split_by(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if more files than these were too many for one file of removals."""
    for name in ("PART_ROWS", "MEMORY_ROWS"):
        monkeypatch.setattr(removal_files, name, rows)


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    split_by(2, monkeypatch)


def test_many_removals_are_part_files_in_a_folder_that_other_readers_take_for_one(
    table: FolderTable, tmp_path: Path, in_parts: None
) -> None:
    path = saved(table, tmp_path / "plans")
    document = json.loads(path.read_text())
    assert document["removals"]["file"] == "plan.json.removals.parquet"
    beside = path.parent / "plan.json.removals.parquet"
    parts = sorted(beside.glob("removals-*.parquet"))
    assert len(parts) == -(-len(GONE) // 2)
    rows = pq.read_table(beside)
    assert {str(Path(each).relative_to(table.folder)) for each in rows["path"].to_pylist()} == GONE
    with table.loses(GONE):
        assert apply(path).code == 0


def test_a_plan_is_equal_however_its_removals_are_kept(
    table: FolderTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = saved(table, tmp_path / "whole")
    split_by(2, monkeypatch)
    split = saved(table, tmp_path / "split")
    assert whole.read_bytes() == split.read_bytes()


def test_an_earlier_plan_is_replaced_with_all_its_parts_and_nothing_else(
    table: FolderTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "plans"
    beside = folder / "plan.json.removals.parquet"
    saved(table, folder)
    assert beside.is_file()
    with monkeypatch.context() as patched:
        split_by(2, patched)
        saved(table, folder)
        first = set(listing(beside))
        saved(table, folder, *AS_OF, "--snapshot-id", "1")
        assert len(set(listing(beside)) - first) >= 1
        named = {part["file"] for part in json.loads((beside / "_index.json").read_text())["parts"]}
        assert set(listing(beside)) == {"_index.json", *named}
    path = saved(table, folder)
    assert beside.is_file()
    assert apply(path).code == 0


def test_a_folder_that_holds_something_else_is_left_alone(
    table: FolderTable, tmp_path: Path, in_parts: None
) -> None:
    path = saved(table, tmp_path / "plans")
    beside = path.parent / "plan.json.removals.parquet"
    (beside / "notes.txt").write_text("mine")
    with pytest.MonkeyPatch.context() as patched:
        split_by(1_000, patched)
        ran = iceberg_cli("plan", table.folder, "expire-snapshots", *AS_OF, "-o", path)
    assert ran.code == 2
    assert str(beside) in ran.err
    assert (beside / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("damage", ["gone", "cut", "other", "index gone", "index cut", "index of fewer"])
def test_damaged_parts_stop_the_plan_before_anything_happens(
    table: FolderTable, tmp_path: Path, in_parts: None, damage: str
) -> None:
    path = saved(table, tmp_path / "plans")
    beside = path.parent / "plan.json.removals.parquet"
    *_, other, part = sorted(beside.glob("removals-*.parquet"))
    index = beside / "_index.json"
    match damage:
        case "gone":
            part.unlink()
        case "cut":
            part.write_bytes(part.read_bytes()[:-1])
        case "other":
            part.write_bytes(other.read_bytes())
        case "index gone":
            index.unlink()
        case "index cut":
            index.write_bytes(index.read_bytes()[:-9])
        case "index of fewer":
            with edited(index) as document:
                del document["parts"][-1]
    with unchanged(table.folder):
        ran = apply(path)
        assert ran.code == (2 if damage == "index gone" else 15)
        assert "plan.json" in ran.json["message"]
