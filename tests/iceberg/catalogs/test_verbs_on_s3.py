"""Tables that Spark keeps on S3 in REST, SQL and Hive catalogs: each verb as operators run it; what others read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.budget import FULL
from tests.spark_tables import COMPACT, UPGRADE, Lake, Shape, in_order, insert, shapes, write
from tests.spark_tables.lake import Rows
from tests.spark_tables.s3_lake import S3Lake

pytestmark = [pytest.mark.jvm, pytest.mark.deep]


@dataclass(frozen=True)
class Case:
    """A verb with its options, and the shape of a table for which it has something to do."""

    name: str
    command: tuple[str, ...]
    shape: Shape
    removes_snapshots: bool = False


EXPIRY = ("expire-snapshots", "--older-than", "0s", "--retain-last", "1")
REPLACED = Shape(version=2, by="k").then(
    insert(0, 9), "ALTER TABLE {t} CREATE TAG first", insert(10, 19), "DELETE FROM {t} WHERE id = 3", COMPACT
)
CASES = [
    Case("expire-snapshots", EXPIRY, REPLACED, removes_snapshots=True),
    Case(
        "expire-snapshots with statistics",
        (*EXPIRY, "--clean-metadata"),
        shapes.STATISTICS_FILES,
        removes_snapshots=True,
    ),
    Case("rewrite-manifests", ("rewrite-manifests",), shapes.V2_MANIFESTS_OF_THREE_SPECS),
    Case("merge-dvs", ("merge-dvs", "--min-files", "2"), shapes.V3_LINEAGE),
    Case("merge-dvs on version 2", ("merge-dvs",), shapes.V2_POSITION_DELETES),
    Case("upgrade-v3", ("upgrade-v3",), shapes.V2_BRANCHES_AND_DELETES),
    Case(
        "upgrade-v3 with what follows",
        ("upgrade-v3", "--with", "merge-dvs,assign-row-ids"),
        shapes.V2_BRANCHES_AND_DELETES,
    ),
    Case("assign-row-ids", ("assign-row-ids",), shapes.V2_POSITION_DELETES.then(UPGRADE)),
]
# For Spark and for PyIceberg; by a partition, and by bounds.
FILTERS = ("k = 'k1'", "id > 12")


@dataclass(frozen=True)
class Seen:
    """What other readers find in a table."""

    rows: Rows
    by_pyiceberg: Rows
    by_filter: Mapping[str, tuple[Rows, Rows]]  # as Spark and PyIceberg read them
    by_snapshot: Mapping[int, Rows]
    history: list[tuple[int, int | None]]  # snapshots that were main's, each with its parent
    refs: Mapping[str, Rows]
    row_ids: Mapping[Any, int] = field(default_factory=dict)


def look(lake: S3Lake, table: str) -> Seen:
    """Spark and PyIceberg agree on all of it; of the filters at least one leaves files out."""
    whole = lake.rows(table)
    by_filter = {}
    for text in FILTERS:
        rows = [tuple(row) for row in lake.sql(table, f"SELECT * FROM {{t}} WHERE {text}")]
        by_filter[text] = (in_order(rows), lake.rows_of_pyiceberg(table, row_filter=text))
    files = lake.files_of_pyiceberg(table)
    assert any(lake.files_of_pyiceberg(table, row_filter=text) < files for text in FILTERS)
    metadata = lake.metadata(table)
    history = lake.sql(table, "SELECT snapshot_id, parent_id FROM {t}.history")
    refs = lake.sql(table, "SELECT name, snapshot_id FROM {t}.refs")
    by_snapshot = {each: lake.rows(table, each) for each in lake.snapshot_ids(table)}
    seen = Seen(
        rows=whole,
        by_pyiceberg=lake.rows_of_pyiceberg(table),
        by_filter=by_filter,
        by_snapshot=by_snapshot,
        history=sorted((row[0], row[1]) for row in history),
        refs={row[0]: by_snapshot[row[1]] for row in refs},
        row_ids=row_ids(lake, table) if metadata["format-version"] > 2 else {},
    )
    assert seen.rows == seen.by_pyiceberg
    for rows, theirs in by_filter.values():
        assert rows
        assert len(rows) < len(whole)
        assert rows == theirs
    return seen


def row_ids(lake: Lake, table: str) -> dict[Any, int]:
    """By the first column, of rows that have one."""
    rows = lake.sql(table, "SELECT id, _row_id FROM {t} WHERE _row_id IS NOT NULL")
    return {row[0]: row[1] for row in rows}


def check(lake: S3Lake, table: str, before: Seen, *, removes_snapshots: bool) -> None:
    """Rows, refs, row ids and the snapshots that stay are as before; no file is too many or missing."""
    after = look(lake, table)
    assert (after.rows, after.by_filter, after.refs) == (before.rows, before.by_filter, before.refs)
    kept = before.by_snapshot.keys() & after.by_snapshot.keys()
    assert {each: after.by_snapshot[each] for each in kept} == {
        each: before.by_snapshot[each] for each in kept
    }
    assert {each: after.row_ids[each] for each in before.row_ids} == before.row_ids
    if removes_snapshots:
        assert len(kept) < len(before.by_snapshot)
    else:
        assert kept == before.by_snapshot.keys()
        assert set(before.history) <= set(after.history)
    reachable = lake.reachable(table)
    statistics = {
        lake.kept_at(each["statistics-path"])
        for kind in ("statistics", "partition-statistics")
        for each in lake.metadata(table).get(kind, ())
    }
    files = {path for path in lake.files(table) if not path.endswith(".metadata.json")}
    assert files == reachable | statistics
    assert not lake.journals(table)
    code, found = lake.cli("inspect", lake.argument(table), "--check", "--deep")
    assert code == 0, found
    code, listed = lake.cli("inspect", lake.argument(table), "files")
    assert code == 0
    assert sorted(row["file_path"] for row in listed["rows"]) == sorted(
        row[0] for row in lake.sql(table, "SELECT file_path FROM {t}.files")
    )


@pytest.fixture
def s3_lake(request: pytest.FixtureRequest) -> S3Lake:
    lake: S3Lake = request.getfixturevalue(f"{request.param}_s3_lake")
    return lake


# A SQL catalog, Glue and Hive have each verb once; with FULL_SUITES=1 all cases.
BOTH = [
    pytest.param(lake, case, id=f"{case.name}, {lake}")
    for lake in ("rest", "sql", "glue", "hive")
    for case in CASES
    if FULL or lake == "rest" or case.command[0] == case.name
]


@pytest.mark.parametrize(("s3_lake", "case"), BOTH, indirect=["s3_lake"])
def test_a_verb_leaves_rows_history_and_files_as_others_need_them(s3_lake: S3Lake, case: Case) -> None:
    lake, table = s3_lake, f"t_{CASES.index(case)}"
    write(lake, table, case.shape)
    before = look(lake, table)
    verb, *options = case.command
    assert lake.verb(verb, table, *options)["status"] == "done"
    check(lake, table, before, removes_snapshots=case.removes_snapshots)
    assert lake.verb(verb, table, *options)["status"] == "nothing_to_do"
    lake.sql(table, "INSERT INTO {t} SELECT * FROM {t} WHERE k = 'k1'")
    assert len(lake.rows(table)) == len(before.rows) + len(before.by_filter["k = 'k1'"][0])


@pytest.mark.parametrize("s3_lake", ["rest", "sql", "glue", "hive"], indirect=True)
def test_what_nothing_names_goes_and_steps_are_taken_back(s3_lake: S3Lake) -> None:
    """Orphans, an expiry that waits, and a bad write that a restore takes back."""
    lake, table = s3_lake, "steps_back"
    write(lake, table, REPLACED)
    folder = lake.folder(table)
    planted = [folder / "data" / "k=k1" / "dead.parquet", folder / "metadata" / "dead-m0.avro"]
    for path in planted:
        path.write_bytes(b"PAR1")
    before, files = look(lake, table), lake.files(table)
    ages = ("--older-than", "0s", "--unsafe-allow-young")
    assert lake.verb("remove-orphan-files", table, *ages)["deleted_orphan_files_count"] == len(planted)
    assert files - lake.files(table) == {str(path) for path in planted}
    check(lake, table, before, removes_snapshots=False)

    expiry, *options = EXPIRY
    assert lake.verb(expiry, table, *options, "--grace", "1h")["status"] == "waiting"
    assert len(lake.snapshot_ids(table)) < len(before.by_snapshot)
    code, undone = lake.cli("undo", lake.argument(table), "--yes")
    if lake.catalog.startswith("rest"):
        assert (code, undone["error"]) == (11, "Refused")
        assert lake.cli("resume", lake.argument(table), "--abandon")[0] == 0
        before = look(lake, table)
    else:
        assert (code, undone["status"]) == (0, "done")
        check(lake, table, before, removes_snapshots=False)

    lake.sql(table, "DELETE FROM {t} WHERE id > 12")
    assert lake.rows(table) != before.rows
    bad = lake.metadata(table)["current-snapshot-id"]
    ((parent,),) = lake.sql(table, f"SELECT parent_id FROM {{t}}.snapshots WHERE snapshot_id = {bad}")
    report = lake.verb("restore", table, "--to", parent, "--keep-as", "bad")
    assert report["status"] == "done"
    after = look(lake, table)
    assert (after.rows, after.row_ids) == (before.rows, before.row_ids)
    assert after.refs["bad"] != after.rows
    lake.verb("tag", table, "bad", "--drop")
    assert look(lake, table).refs == before.refs


@pytest.mark.parametrize("s3_lake", ["rest"], indirect=True)
def test_a_plan_is_carried_out_later_by_apply(s3_lake: S3Lake, tmp_path: Path) -> None:
    lake, table, (verb, *options) = s3_lake, "planned", EXPIRY
    write(lake, table, REPLACED)
    before, files = look(lake, table), lake.files(table)
    plan = tmp_path / "a.plan"
    code, planned = lake.cli("plan", lake.argument(table), verb, *options, "-o", plan)
    assert code == 0
    assert lake.files(table) == files
    code, report = lake.cli("apply", str(plan), "--yes")
    assert (code, report["status"]) == (0, "done"), report
    gone = files - lake.files(table)
    assert len(gone) == planned["removals"]["count"] > 0
    check(lake, table, before, removes_snapshots=True)
