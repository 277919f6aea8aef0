"""`restore` as an operator or a script uses it, on small real tables; rows are those that PyIceberg reads."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import iceberg_cli as ic
from iceberg_cli.errors import CommitConflict
from tests.budget import few_or_many
from tests.builders import DAY_MS, a_branch, a_tag
from tests.cli.lakes import (
    AS_OF,
    AS_OF_MS,
    CatalogTable,
    FolderTable,
    catalog_table,
    four_snapshots,
    listing,
    metadata_of,
)
from tests.cli.running import JSON, Ran, iceberg_cli

BEFORE = f"before-restore-{datetime.fromtimestamp(AS_OF_MS // 1000, UTC):%Y%m%dT%H%M%SZ}"


def restore(*words: object, code: int = 0) -> Ran:
    """`restore ... --yes --format json`, which ends with a code."""
    ran = iceberg_cli("restore", *words, "--yes", *JSON)
    assert ran.code == code, ran.out + ran.err
    return ran


def dry(*words: object) -> dict[str, Any]:
    """The plan of `restore ... --dry-run --format json`."""
    ran = iceberg_cli("restore", *words, "--dry-run", *JSON)
    assert ran.code == 0, ran.out + ran.err
    return ran.json


def heads(folder: Path) -> dict[str, int]:
    return {name: ref["snapshot-id"] for name, ref in metadata_of(folder)["refs"].items()}


# -- tables of file names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_main_goes_back_and_its_old_head_is_held(version: int, tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "events", format_version=version)
    name, before = table.publish(), metadata_of(tmp_path / "events")
    files = table.files()
    report = restore(name, "--to", 2, *AS_OF).json
    assert (report["status"], report["left_snapshots_count"], report["created_tags_count"]) == ("done", 2, 1)
    assert table.files() - files == {"metadata/v2.metadata.json", "metadata/version-hint.text"}
    after = metadata_of(table.folder)
    # The head is six days old, and the specification's default of five days counts from now on.
    assert after["refs"] == {"main": a_branch(2), BEFORE: a_tag(4, max_ref_age_ms=11 * DAY_MS)}
    assert (after["current-snapshot-id"], after["snapshot-log"][-1]["snapshot-id"]) == (2, 2)
    assert after["snapshot-log"][:-1] == before["snapshot-log"]
    for kept in (
        "snapshots",
        "schemas",
        "partition-specs",
        "properties",
        "current-schema-id",
        "default-spec-id",
    ):
        assert after[kept] == before[kept]
    # Version 1 has no sequence numbers, whatever a writer puts there.
    numbers = ("last-sequence-number",) if version > 1 else ()
    for counter in (*numbers, "next-row-id", "last-column-id", "last-partition-id"):
        assert after.get(counter) == before.get(counter)
    (record,) = iceberg_cli("history", name, *JSON).json["operations"]
    assert (record["operation"], record["status"]) == ("restore", "done")


def test_a_version_1_table_without_refs_goes_back(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "events", format_version=1)
    del table.writer.document["refs"]
    table.writer.publish("v1.metadata.json")
    assert "refs" not in metadata_of(table.folder)
    restore(table.folder, "--to", 3, *AS_OF)
    assert heads(table.folder) == {"main": 3, BEFORE: 4}


def test_a_restore_is_taken_back_by_the_command_that_its_plan_names(table: FolderTable) -> None:
    (tag,) = [each for each in dry(table.folder, "--to", 1, *AS_OF)["verdicts"] if each["subject"] == "tag"]
    assert f"`restore TABLE --to {BEFORE} --not-an-ancestor` takes this back" in tag["reason"]
    restore(table.folder, "--to", 1, *AS_OF)
    assert heads(table.folder)["main"] == 1
    refused = restore(table.folder, "--to", BEFORE, *AS_OF, code=11).json
    assert "snapshot 4 is no ancestor of branch main" in refused["message"]
    restore(table.folder, "--to", BEFORE, "--not-an-ancestor", *AS_OF)
    assert heads(table.folder) == {"main": 4, BEFORE: 4}


def test_a_branch_goes_back_and_main_stays(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "events")
    table.commit(5, add=["five"], ref="audit", parent=3)
    table.publish()
    restore(table.folder, "--branch", "audit", "--to", 3, "--keep-as", "bad", *AS_OF)
    assert heads(table.folder) == {"main": 4, "audit": 3, "bad": 5}


def test_a_plan_shows_the_difference_and_the_commits_that_leave(table: FolderTable) -> None:
    plan = dry(table.folder, "--to", 2, *AS_OF)
    found = plan["difference"]
    assert (found["from"]["snapshot_id"], found["to"]["snapshot_id"]) == ("4", "2")
    # 3 added `three`; 4 added `four` and removed `three`: what 2 lacks of 4 is `four`.
    assert (found["files"], found["rows"]["net"]) == ({"added": 0, "removed": 1}, -1)
    assert [(each["id"], each["keep"]) for each in plan["verdicts"] if each["subject"] == "commit"] == [
        ("4", False), ("3", False),
    ]  # fmt: skip
    text = iceberg_cli("restore", table.folder, "--to", 2, *AS_OF, "--dry-run").out
    assert text.startswith(
        "1 branch is moved; 1 tag is made; 2 commits leave the branch; no file is deleted\n"
    )
    assert "0 files added, 1 removed: -1 row" in text
    compared = iceberg_cli("inspect", table.folder, "diff", "4", "2", *JSON).json
    assert found["files"] == compared["files"]
    assert found["rows"] == compared["rows"]


def test_where_the_branch_is_there_already_nothing_is_to_do(table: FolderTable) -> None:
    before = listing(table.folder)
    for state in ("4", "main", "1d"):
        assert restore(table.folder, "--to", state, *AS_OF).json["status"] == "nothing_to_do"
    assert listing(table.folder) == before
    out = iceberg_cli("restore", table.folder, "--to", "4", *AS_OF).out
    assert out.startswith("Nothing to do: branch main is at snapshot 4 already\n")


def test_a_file_of_the_target_that_is_gone_stops_it_and_one_of_the_old_head_does_not(
    table: FolderTable,
) -> None:
    for gone in ("data/two.parquet", "data/keep.parquet"):
        (table.folder / gone).rename(table.folder / f"{gone}.gone")
    before = listing(table.folder)
    refused = restore(table.folder, "--to", 2, *AS_OF, code=11).json
    assert "2 files of snapshot 2 are not there, the first is " in refused["message"]
    assert refused["state"] == "Nothing was changed."
    plan = dry(table.folder, "--to", 2, *AS_OF)
    assert (len(plan["blocked_by"]), plan["due"]) == (1, True)
    assert listing(table.folder) == before
    for gone in ("data/two.parquet", "data/keep.parquet"):
        (table.folder / f"{gone}.gone").rename(table.folder / gone)
    (table.folder / "data/four.parquet").unlink()  # of the head alone
    restore(table.folder, "--to", 2, *AS_OF)


@pytest.mark.parametrize("gone", ["metadata/snap-2.avro", "metadata/1-m0.avro"])
def test_a_list_or_manifest_of_the_target_that_is_gone_stops_it(gone: str, tmp_path: Path) -> None:
    table = FolderTable(folder=tmp_path / "events")
    table.commit(1, age_ms=3 * DAY_MS, add=["one"])
    table.commit(2, age_ms=2 * DAY_MS, add=["two"])
    table.commit(3, age_ms=DAY_MS, add=["three"], remove=["one", "two"])
    table.publish()
    (table.folder / gone).unlink()
    message = restore(table.folder, "--to", 2, *AS_OF, code=11).json["message"]
    assert f"1 file of snapshot 2 is not there, the first is {table.folder}/{gone}" in message


def test_a_damaged_manifest_of_the_target_is_a_corrupt_file(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "events")
    table.publish()
    (table.folder / "metadata" / "1-m0.avro").write_bytes(b"Obj\x01 cut short")
    assert restore(table.folder, "--to", 1, *AS_OF, code=15).json["state"] == "Nothing was changed."


def test_a_head_that_is_damaged_is_left_all_the_same(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "events")
    table.publish()
    (table.folder / "metadata" / "snap-4.avro").unlink()
    plan = dry(table.folder, "--to", 2, *AS_OF)
    assert "difference" not in plan
    assert sum("what it changes is not known" in each for each in plan["warnings"]) == 1
    restore(table.folder, "--to", 2, *AS_OF)
    assert heads(table.folder)["main"] == 2


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (["--to", "9"], 2, "'9' is no snapshot id, branch, tag or time of this table"),
        (["--to", "eon"], 2, "Did you mean 'eom'?"),
        (["--to", "90d"], 2, "branch main has no snapshot of "),
        (["--to", "2", "--branch", "audti"], 2, "Did you mean 'audit'?"),
        (["--to", "2", "--branch", "eom"], 11, "Cannot restore eom: it is a tag"),
        (["--to", "2", "--keep-as", "eom"], 11, "eom is a tag already, at snapshot 3"),
        (["--to", "5"], 11, "snapshot 5 is no ancestor of branch main"),
        ([], 2, "Cannot restore without --to"),
        (["--to", ""], 2, "--to is empty"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_helps(
    words: list[str], code: int, what: str, tmp_path: Path
) -> None:
    table = four_snapshots(tmp_path / "events")
    table.commit(5, add=["five"], ref="audit", parent=3)
    table.writer.document["refs"]["eom"] = a_tag(3)
    table.publish()
    before = listing(table.folder)
    assert what in restore(table.folder, *words, *AS_OF, code=code).json["message"]
    assert listing(table.folder) == before


# -- plans that wait -------------------------------------------------------------------------------------------------


def test_a_saved_plan_is_a_conflict_where_the_branch_has_moved(table: FolderTable, tmp_path: Path) -> None:
    saved = tmp_path / "restore.plan"
    assert iceberg_cli("plan", table.folder, "restore", "--to", 2, *AS_OF, "-o", saved).code == 0
    table.commit(5, add=["five"])
    table.publish()
    before = listing(table.folder)
    ran = iceberg_cli("apply", saved, "--yes", *JSON)
    assert (ran.code, ran.json["state"]) == (12, "The table was not changed.")
    assert "ref main was at snapshot 4 when this was planned, and is at snapshot 5 now" in ran.json["message"]
    assert listing(table.folder) == before
    beyond = iceberg_cli("apply", saved, "--replan")
    assert beyond.code == 0
    assert "beyond the file: commit 5: leaves branch main" in beyond.out
    assert listing(table.folder) == before


def test_a_saved_plan_is_carried_out_where_another_branch_has_moved(
    table: FolderTable, tmp_path: Path
) -> None:
    saved = tmp_path / "restore.plan"
    assert iceberg_cli("plan", table.folder, "restore", "--to", 2, *AS_OF, "-o", saved).code == 0
    table.commit(5, add=["five"], ref="audit")
    table.publish()
    assert iceberg_cli("apply", saved, "--yes").code == 0
    assert heads(table.folder) == {"main": 2, "audit": 5, BEFORE: 4}


def test_a_commit_between_the_plan_and_its_commit_is_a_conflict_and_stands(table: FolderTable) -> None:
    opened = ic.open_table(table.name)
    plan = opened.plan(ic.iceberg.Restore(to="2"), as_of=AS_OF_MS)
    table.commit(5, add=["five"])
    table.publish()
    with pytest.raises(CommitConflict, match="ref main was at snapshot 4 when this was planned") as caught:
        opened.apply(plan)
    assert (caught.value.exit_code, caught.value.state) == (12, "The table was not changed.")
    assert heads(table.folder) == {"main": 5}
    assert opened.operations() == []
    (record,) = iceberg_cli("history", table.folder, *JSON).json["operations"]
    assert (record["operation"], record["status"]) == ("restore", "conflict")


# -- a catalog, and rows as PyIceberg reads them ---------------------------------------------------------------------


def a_drawn_table(draw: random.Random, table: CatalogTable) -> dict[int, list[int]]:
    """Appends and deletes of rows, and the ids of the rows that each snapshot was read to have when it was made."""
    states: dict[int, list[int]] = {}
    number = 0
    for _ in range(draw.randint(2, 6)):
        if states and draw.random() < 0.3:
            table.open().delete(f"id <= {draw.randrange(number)}")
        else:
            count = draw.randint(1, 3)
            table.append(*range(number, number + count))
            number += count
        current = table.open().current_snapshot()
        assert current is not None
        states[current.snapshot_id] = table.ids()
    return states


@few_or_many(4, many=50)
def test_a_drawn_table_has_the_rows_of_its_target_and_then_its_own_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    for seed in range(budget):
        draw = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        table = catalog_table(folder, monkeypatch, **{"format-version": str(draw.choice([1, 2]))})
        states = a_drawn_table(draw, table)
        *_, head = states
        target = draw.choice([*states])
        restore(table.name, "--to", target, "--keep-as", "bad")
        assert table.ids() == states[target], seed
        if target == head:
            continue
        table.append(1_000 + seed)  # writers go on from there
        assert table.ids() == sorted([*states[target], 1_000 + seed])
        restore(table.name, "--to", "bad", "--not-an-ancestor")
        assert table.ids() == states[head], seed


def test_a_time_names_the_state_that_pyiceberg_reads_as_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog_table(tmp_path, monkeypatch, appends=4)
    second = table.open().metadata.snapshots[1]
    theirs = table.open().snapshot_as_of_timestamp(second.timestamp_ms)
    assert theirs is not None
    restore(table.name, "--to", second.timestamp_ms)
    current = table.open().current_snapshot()
    assert current is not None
    assert (current.snapshot_id, theirs.snapshot_id) == (second.snapshot_id,) * 2
    assert table.ids() == [0, 1]
