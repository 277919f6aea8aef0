"""`tag` as an operator or a script uses it, on small real tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders import a_branch, a_tag
from tests.cli.lakes import AS_OF, FolderTable, catalog_table, four_snapshots, listing, metadata_of
from tests.cli.running import JSON, Ran, expire, iceberg_cli


def tag(*words: object, code: int = 0) -> Ran:
    """`tag ... --yes --format json`, which ends with a code."""
    ran = iceberg_cli("tag", *words, "--yes", *JSON)
    assert ran.code == code, ran.out + ran.err
    return ran


def refs(table: FolderTable) -> dict[str, object]:
    found: dict[str, object] = metadata_of(table.folder)["refs"]
    return found


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_tag_is_made_replaced_and_dropped_and_the_history_has_each(version: int, tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "events", format_version=version)
    name, before = table.publish(), refs(table)
    made = tag(name, "eom", "--snapshot", 2, "--max-age", "30d").json
    assert (made["operation"], made["status"], made["created_tags_count"]) == ("tag", "done", 1)
    assert refs(table) == {**before, "eom": a_tag(2, max_ref_age_ms=2_592_000_000)}
    assert tag(name, "eom", "--ref", "main", "--replace").json["replaced_tags_count"] == 1
    assert refs(table) == {**before, "eom": a_tag(4, max_ref_age_ms=2_592_000_000)}
    assert tag(name, "eom", "--drop").json["dropped_tags_count"] == 1
    assert refs(table) == before
    history = iceberg_cli("history", name, *JSON).json["operations"]
    assert [(each["operation"], each["status"]) for each in history] == [("tag", "done")] * 3


def test_a_tag_holds_its_snapshot_against_an_expiry_until_it_is_dropped(table: FolderTable) -> None:
    tag(table.name, "eom", "--snapshot", 2)
    expire(table.name, *AS_OF)
    assert {each["snapshot-id"] for each in metadata_of(table.folder)["snapshots"]} == {2, 4}
    tag(table.name, "eom", "--drop")
    expire(table.name, *AS_OF)
    assert {each["snapshot-id"] for each in metadata_of(table.folder)["snapshots"]} == {4}


def test_no_file_is_written_but_the_next_metadata(table: FolderTable) -> None:
    before = table.files()
    tag(table.name, "eom")
    assert table.files() - before == {"metadata/v2.metadata.json", "metadata/version-hint.text"}


def test_a_dry_run_shows_the_plan_and_writes_nothing(table: FolderTable) -> None:
    before = listing(table.folder)
    plan = iceberg_cli("tag", table.folder, "eom", "--snapshot", 2, "--dry-run", *JSON).json
    assert listing(table.folder) == before
    (step,) = plan["steps"]
    assert step["change"]["updates"] == [
        {"action": "set-snapshot-ref", "ref-name": "eom", "type": "tag", "snapshot-id": "2"}
    ]
    assert plan["policy"]["name"] == "eom"
    assert plan["options"]["name"] == {"value": "eom", "source": "NAME"}
    lines = iceberg_cli("tag", table.folder, "eom", "--dry-run").out.splitlines()
    assert lines[0] == "1 tag is made; no file is deleted"
    assert iceberg_cli("tag", table.folder, "eom", "--dry-run", "--exit-code").code == 3


def test_a_saved_plan_is_applied_where_the_table_has_moved_and_refused_where_the_tag_has(
    table: FolderTable, tmp_path: Path
) -> None:
    saved = tmp_path / "tag.plan"
    assert iceberg_cli("plan", table.folder, "tag", "eom", "--ref", "main", "-o", saved).code == 0
    document = json.loads(saved.read_text())
    assert document["policy"] == {
        "name": "eom", "snapshot_id": None, "ref": "main", "max_age_ms": None, "replace": False, "drop": False,
    }  # fmt: skip
    table.commit(5, add=["five"])
    table.publish()
    assert iceberg_cli("apply", saved, "--yes").code == 0
    assert refs(table)["eom"] == a_tag(4)  # where main was when it was planned
    assert iceberg_cli("apply", saved, "--yes").code == 0  # nothing is left to do
    tag(table.name, "eom", "--snapshot", 1, "--replace")
    ran = iceberg_cli("apply", saved, "--yes", *JSON)
    assert (ran.code, ran.json["state"]) == (12, "The table was not changed.")
    assert "ref eom was absent when this was planned, and is at snapshot 1 now" in ran.json["message"]
    assert refs(table)["eom"] == a_tag(1)


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (["eom"], 11, "tag eom is there, on snapshot 2; --replace puts it elsewhere"),
        (["audit", "--replace"], 11, "audit is a branch"),
        (["main", "--drop"], 11, "main is a branch"),
        (["eon", "--drop"], 2, "Did you mean 'eom'?"),
        (["new", "--snapshot", "9"], 2, "9 is no snapshot of this table"),
        (["new", "--ref", "eon"], 2, "'eon' is no branch or tag of this table. Did you mean 'eom'?"),
        (["new", "--snapshot", "1", "--ref", "main"], 2, "exclude each other"),
        (["new", "--max-age", "soon"], 2, "--max-age"),
        ([""], 2, "NAME is empty"),
        ([], 2, "Missing argument 'NAME'."),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_helps(
    words: list[str], code: int, what: str, tmp_path: Path
) -> None:
    table = four_snapshots(tmp_path / "events")
    table.writer.document["refs"] |= {"eom": a_tag(2), "audit": a_branch(3)}
    table.publish()
    before = listing(table.folder)
    assert what in tag(table.folder, *words, code=code).json["message"]
    assert listing(table.folder) == before


def test_what_is_there_already_is_nothing_to_do(table: FolderTable) -> None:
    tag(table.name, "eom")
    before = listing(table.folder)
    report = tag(table.name, "eom").json
    assert (report["status"], report["operation_id"]) == ("nothing_to_do", None)
    assert listing(table.folder) == before


def test_in_a_catalog_pyiceberg_reads_the_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = catalog_table(tmp_path, monkeypatch, appends=2)
    first, _ = table.snapshot_ids()
    tag(table.name, "eom", "--snapshot", first, "--max-age", "7d")
    found = table.open().metadata.refs["eom"]
    assert (found.snapshot_id, found.snapshot_ref_type.value, found.max_ref_age_ms) == (
        first,
        "tag",
        604_800_000,
    )
    assert table.open().scan().use_ref("eom").to_arrow()["id"].to_pylist() == [0]


def test_it_is_no_part_of_maintenance(table: FolderTable, tmp_path: Path) -> None:
    everything = iceberg_cli("plan", table.folder, *AS_OF, *JSON).json
    assert not {"tag", "restore"} & {each["operation"] for each in everything["plans"]}
    file = tmp_path / "policy.toml"
    file.write_text(f'version = 1\n[[tables]]\nmatch = ["{table.folder}"]\ntag = {{ name = "x" }}\n')
    ran = iceberg_cli("maintain", "--policy", file, "--dry-run", *JSON)
    assert (ran.code, "tag is not known" in ran.json["message"]) == (2, True)
    only = iceberg_cli("survey", table.folder, "--policy", file)
    assert only.code == 2
    ran = iceberg_cli("plan", table.folder, "--drop", *JSON)
    assert (ran.code, ran.json["message"]) == (2, "--drop is of tag, which is no part of maintenance")
    ran = iceberg_cli("plan", table.folder, "expire-snapshots", "eom", *JSON)
    assert ran.json["message"] == "'eom' is one argument too many: expire-snapshots takes none behind it"
