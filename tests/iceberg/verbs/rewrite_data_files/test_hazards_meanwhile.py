"""Other writers commit while files are rewritten: what they did stays done, and what they did not touch is committed.

Numbers are those of hazards (H) and incidents (I) of other engines, which each of these tables would meet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import CommitConflict
from iceberg_cli.iceberg.verbs.rewrite_data_files.plan import VERB
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.operation.apply import apply
from iceberg_cli.testing.crash.world import World
from iceberg_cli.testing.iceberg_files import Entry
from iceberg_cli.testing.iceberg_reader import vector_of
from iceberg_cli.testing.iceberg_writer import is_vector
from iceberg_cli.testing.memory_storage import MemoryStorage
from tests.delete_tables import puffin
from tests.iceberg.verbs.rewrite_data_files.tables import NK, K, N, RowsTable, column, of, schema
from tests.iceberg.verbs.rewrite_data_files.test_hazards import by_position, field
from tests.iceberg.verbs.rewrite_data_files.whole_runs import Run, in_spec, numbers, rewrite, rows_of
from tests.iceberg.verbs.rewrite_data_files.writers import runtime
from tests.manifest_tables import NOW_MS, opened

VERSIONS = pytest.mark.parametrize("version", [2, 3])
WHEN = pytest.mark.parametrize("when", ["after_plan", "meanwhile"])
CONFLICTED = "conflicted_groups_count"


def two_partitions(version: int, **others: Any) -> RowsTable:
    """Two files in each of two partitions, so that there are two groups."""
    table = RowsTable(format_version=version, **others)
    numbers(table, "a", list(range(10)), k="x")
    numbers(table, "b", [10, 11], k="x")
    numbers(table, "c", [20, 21], k="y")
    numbers(table, "d", [22], k="y")
    table.commit(1)
    return table


X = [(n, "x") for n in range(12)]
Y = [(20, "y"), (21, "y"), (22, "y")]


def without(rows: list[tuple[Any, ...]], *gone: int) -> list[tuple[Any, ...]]:
    return sorted([row for row in rows if row[0] not in gone], key=repr)


X_AND_Y = without(X + Y)


def check_only_y(run: Run) -> None:
    """The group that others changed is left out and told, the other one is committed."""
    assert [each["partition"] for each in run.outputs] == [{"k": "y"}]
    assert run.report is not None
    assert (run.report.status, run.report.counts[CONFLICTED]) == ("partial", 1)
    again = rewrite(run.table)
    assert "x" in [each["partition"]["k"] for each in again.outputs]
    assert again.rows == run.rows


def check_moved(run: Run, positions: dict[str, list[int]]) -> None:
    """Both groups are committed, and these positions are deleted of the new files of partitions by new deletes."""
    assert run.report is not None
    assert (run.report.status, run.report.counts[CONFLICTED]) == ("done", 0)
    own = {each["snapshot-id"] for each in run.own}
    new = [each for each in run.deletes if each["snapshot_id"] in own]
    assert {each["partition"]["k"]: deleted_of(run, each) for each in new} == positions
    paths = {each["partition"]["k"]: each["file_path"] for each in run.outputs}
    assert all(each["referenced_data_file"] == paths[each["partition"]["k"]] for each in new)


def deleted_of(run: Run, delete: Entry) -> list[int]:
    if is_vector(delete):
        return [*vector_of(run.table.storage, delete)]
    rows = pq.read_table(pa.BufferReader(run.table.storage.read(delete["file_path"]))).to_pylist()
    assert {row["file_path"] for row in rows} == {delete["referenced_data_file"]}
    # A reader that looks at bounds alone finds the one file, too.
    for name in ("lower_bounds", "upper_bounds"):
        bounds = {each["key"]: each["value"] for each in delete[name]}
        assert bounds[2147483546] == delete["referenced_data_file"].encode()
    return [row["pos"] for row in rows]


# -- rows are deleted -------------------------------------------------------------------------------------------------


@pytest.mark.pairs
@WHEN
@VERSIONS
@pytest.mark.parametrize("scope", ["file", "partition"])
def test_rows_that_are_deleted_by_their_positions_in_the_run_are_deleted_of_the_new_file(
    version: int, when: str, scope: str
) -> None:
    """H6, I6, I19: position 7 of `a`, of which 3 was deleted before, is 6 of the new file."""
    table = two_partitions(version)
    by_position(table, "before", {"a": [3]}, k="x")
    table.commit(2)

    def delete(table: RowsTable) -> None:
        by_position(table, "p", {"a": [3, 7] if version > 2 else [7]}, k="x")
        if scope == "file":
            table.added[-1]["referenced_data_file"] = table.path("a")
        table.commit(3)

    run = rewrite(table, **{when: delete})
    assert run.rows == without(X + Y, 3, 7)
    check_moved(run, {"x": [6]})
    # What names `a` alone goes with it; what may name others, too, stays.
    stays = version == 2 and scope == "partition"
    assert ("p-deletes.parquet" in run.delete_names) == stays
    again = rewrite(table)
    assert again.rows == run.rows
    assert again.deletes == []


@VERSIONS
def test_deletes_of_the_run_that_cannot_be_read_leave_out_their_group_and_no_other_one(version: int) -> None:
    """C8: where the rows that they delete went cannot be told."""
    table = two_partitions(version)

    def delete(table: RowsTable) -> None:
        by_position(table, "p", {"a": [7]}, k="x")
        path = table.added[-1]["file_path"]
        table.storage.replace(path, bytes(len(table.storage.read(path))))
        table.commit(2)

    run = rewrite(table, meanwhile=delete, check=False)
    assert sorted(run.left) == ["a", "b"]
    assert run.report is not None
    assert (run.report.status, run.report.exit_code) == ("partial", 15)
    assert [each["partition"] for each in run.report.failed_groups] == ["k=x"]
    assert len(run.deletes) == 1


@VERSIONS
def test_a_position_that_was_deleted_and_is_deleted_again_in_the_run_is_not_looked_for(version: int) -> None:
    """H7"""
    table = two_partitions(version)
    by_position(table, "before", {"a": [3]}, k="x")
    table.commit(2)

    def delete(table: RowsTable) -> None:
        by_position(table, "p", {"a": [3]}, k="x")
        table.commit(3)

    run = rewrite(table, meanwhile=delete)
    assert run.rows == without(X + Y, 3)
    check_moved(run, {})


def test_position_deletes_of_an_input_and_of_another_file_keep_both_deleted() -> None:
    """H7, H8: where only `a` and `b` are rewritten."""
    table = two_partitions(2)
    numbers(table, "large", list(range(100, 500)), k="x")
    table.commit(2)

    def delete(table: RowsTable) -> None:
        table.positions("p", {"a": [3], "b": [0, 1], "large": [0]}, k="x")
        table.commit(3)

    options = {"rewrite_all": False, "min_input_files": 2, "target_size": 4096, "min_size": 2000}
    run = rewrite(table, meanwhile=delete, max_size=1 << 20, **options)
    assert len(run.plan.groups or ()) == 2
    assert run.rows == without(X + Y + [(n, "x") for n in range(100, 500)], 3, 10, 11, 100)
    assert run.left == ["large"]
    assert "p-deletes.parquet" in run.delete_names
    check_moved(run, {"x": [3, 10, 11]})


@VERSIONS
def test_a_delete_that_is_taken_back_in_the_run_leaves_its_group_out(version: int) -> None:
    """H43: new files lack row 3, which lives again."""
    table = two_partitions(version)
    by_position(table, "before", {"a": [3]}, k="x")
    table.commit(2)

    def take_back(table: RowsTable) -> None:
        table._drop(lambda entry: entry["content"] == 1)
        table.commit(3)

    run = rewrite(table, meanwhile=take_back)
    assert run.rows == X_AND_Y
    check_only_y(run)


def test_position_deletes_that_name_no_input_are_no_obstacle() -> None:
    """H8, I20: a file of rows of the same partition, that names another data file of it."""
    table = two_partitions(2)
    numbers(table, "large", list(range(100, 500)), k="x")
    table.commit(2)

    def delete(table: RowsTable) -> None:
        table.positions("p", {"large": [0, 1]}, k="x")
        table.commit(3)

    options = {"rewrite_all": False, "min_input_files": 2, "target_size": 4096, "min_size": 2000}
    run = rewrite(table, meanwhile=delete, max_size=1 << 20, **options)
    assert run.rows == without(X + Y + [(n, "x") for n in range(100, 500)], 100, 101)
    assert run.left == ["large"]
    assert run.delete_names == ["p-deletes.parquet"]


@WHEN
@VERSIONS
def test_rows_that_are_deleted_by_value_in_the_run_stay_deleted_and_no_group_is_left_out(
    version: int, when: str
) -> None:
    """H13, I1: groups keep their spec, and new files the sequence number of what was read."""
    table = two_partitions(version)
    table.document["partition-specs"] += [{"spec-id": 4, "fields": [field(1, "n", 1001, "identity")]}]
    table.document["default-spec-id"] = 4

    def upsert(table: RowsTable) -> None:
        table.equality_rows("e", [(N, [4, 20])], k="x")
        table.equality_rows("g", [(N, [11, 22])])
        in_spec(table, "new", [(N, [4]), (K, ["x"])], spec_id=4, partition={"n": 4})
        table.commit(2)

    run = rewrite(table, **{when: upsert})
    assert run.rows == without([*X, *Y], 11, 22)
    assert run.left == ["new"]
    assert run.delete_names == ["e-eq-deletes.parquet", "g-eq-deletes.parquet"]
    assert run.report is not None
    assert run.report.status == "done"
    again = rewrite(table)
    assert again.rows == run.rows
    assert again.delete_names == []


@pytest.mark.pairs
@WHEN
@VERSIONS
@pytest.mark.parametrize("how", ["removed", "overwritten"])
def test_rows_of_files_that_others_remove_or_overwrite_in_the_run_do_not_come_back(
    version: int, when: str, how: str
) -> None:
    """H41, I5, I6: copy-on-write takes a row out of an input."""
    table = two_partitions(version)

    def act(table: RowsTable) -> None:
        table.remove("b")
        if how == "overwritten":
            numbers(table, "b2", [10], k="x")
        table.commit(2)

    run = rewrite(table, **{when: act})
    assert run.rows == without(X + Y, *((11,) if how == "overwritten" else (10, 11)))
    check_only_y(run)


@VERSIONS
def test_a_run_whose_groups_are_all_overwritten_commits_nothing_and_leaves_no_file(version: int) -> None:
    """I6, I16, I22"""
    table = two_partitions(version)
    data = {each.path for each in table.storage.list(f"{table.location}/data")}

    def act(table: RowsTable) -> None:
        table.remove("a", "c")
        table.commit(2)

    run = rewrite(table, meanwhile=act)
    assert isinstance(run.error, CommitConflict)
    assert run.own == []
    assert run.rows == [(10, "x"), (11, "x"), (22, "y")]
    assert {each.path for each in table.storage.list(f"{table.location}/data")} == data


def test_appends_in_the_run_are_no_obstacle() -> None:
    """I19, I21"""
    table = two_partitions(3)

    def act(table: RowsTable) -> None:
        numbers(table, "new", [30, 31], k="x")
        table.commit(2)

    run = rewrite(table, meanwhile=act)
    assert run.rows_with_ids == sorted(
        [*((n, "x", n, 1) for n in range(12)), *((n, "y", n - 8, 1) for n in (20, 21, 22)),
         (30, "x", 15, 2), (31, "x", 16, 2)], key=repr,
    )  # fmt: skip
    assert run.left == ["new"]


# -- branches, expiry and rollback ------------------------------------------------------------------------------------


def branch(table: RowsTable, name: str) -> None:
    """A branch at the head of main."""
    table.set_ref(name, {"type": "branch", "snapshot-id": table.document["current-snapshot-id"]})


def fast_forward(table: RowsTable, name: str) -> None:
    table.set_ref(
        "main", {**table.document["refs"]["main"], "snapshot-id": table.document["refs"][name]["snapshot-id"]}
    )


def delete_on_branch(table: RowsTable, name: str, *, snapshot_id: int) -> None:
    """Rows 1 and 20 go, by their values, on a branch."""
    table.equality_rows("e", [(N, [1])], k="x")
    table.equality_rows("g", [(N, [20])])
    table.commit_files("delete", table.added, ref=name, snapshot_id=snapshot_id)
    table.added = []


@VERSIONS
def test_deletes_of_a_branch_reach_new_files_when_main_is_fast_forwarded_to_it(version: int) -> None:
    """H4: main is at 1, and the table's last sequence number is 2: with that one new files would miss the deletes."""
    table = two_partitions(version)
    branch(table, "b")
    delete_on_branch(table, "b", snapshot_id=2)
    options = {"unsafe_strand_branches": True}
    run = rewrite(table, meanwhile=lambda table: fast_forward(table, "b"), **options)
    assert run.rows == without(X + Y, 1, 20)
    assert {each["sequence_number"] for each in run.outputs} == {1}
    assert len(run.outputs) == 2


@VERSIONS
def test_main_is_set_to_a_branch_whose_deletes_are_older_than_what_was_planned_on(version: int) -> None:
    """H5: the branch's deletes have number 2, main was planned at 3."""
    table = two_partitions(version)
    branch(table, "b")
    delete_on_branch(table, "b", snapshot_id=2)
    numbers(table, "new", [30], k="y")
    table.commit(3)
    run = rewrite(table, meanwhile=lambda table: fast_forward(table, "b"))
    assert isinstance(run.error, CommitConflict)
    assert run.own == []
    assert run.rows == without(X + Y, 1, 20)


@VERSIONS
def test_another_branch_may_move_as_often_as_it_likes(version: int) -> None:
    """I7, I21, I31: it keeps its files, and its rows."""
    table = two_partitions(version)
    branch(table, "b")

    def act(table: RowsTable) -> None:
        delete_on_branch(table, "b", snapshot_id=2)

    run = rewrite(table, meanwhile=act)
    assert run.rows == X_AND_Y
    assert run.document["refs"]["b"]["snapshot-id"] == 2
    fast_forward(table, "b")
    assert rows_of(table) == without(X + Y, 1, 20)
    assert {each["file_path"] for each in table.live("b")} >= {table.path(name) for name in "abcd"}


@VERSIONS
def test_a_branch_is_rewritten_and_main_stays(version: int) -> None:
    """I31"""
    table = two_partitions(version)
    branch(table, "b")
    delete_on_branch(table, "b", snapshot_id=2)
    run = rewrite(table, branch="b", single_commit=True)
    assert len(run.own) == 1
    assert run.own[0]["parent-snapshot-id"] == 2
    assert run.document["refs"]["b"]["snapshot-id"] == run.own[0]["snapshot-id"]
    assert run.document["current-snapshot-id"] == 1
    assert run.rows == X_AND_Y


@VERSIONS
def test_the_snapshot_that_was_planned_on_may_be_expired_in_the_run(version: int) -> None:
    """H43: others compare histories and end here."""
    table = two_partitions(version)

    def expire(table: RowsTable) -> None:
        numbers(table, "new", [30], k="y")
        table.commit(2)
        document = table.document
        document["snapshots"] = [each for each in document["snapshots"] if each["snapshot-id"] == 2]
        document["snapshot-log"] = [each for each in document["snapshot-log"] if each["snapshot-id"] == 2]

    run = rewrite(table, meanwhile=expire)
    assert run.rows == without([*X, *Y, (30, "y")])
    assert run.left == ["new"]


@VERSIONS
def test_rows_whose_delete_is_rolled_back_in_the_run_are_there_again(version: int) -> None:
    """H43: new files lack row 1, which lives again."""
    table = two_partitions(version)
    table.equality_rows("e", [(N, [1])], k="x")
    table.commit(2)

    def roll_back(table: RowsTable) -> None:
        table.set_ref("main", {**table.document["refs"]["main"], "snapshot-id": 1})

    run = rewrite(table, meanwhile=roll_back)
    assert run.rows == X_AND_Y
    assert run.left == ["a", "b"]
    assert [each["partition"] for each in run.outputs] == [{"k": "y"}]


@VERSIONS
def test_rows_whose_delete_in_all_partitions_is_rolled_back_in_the_run_are_there_again(version: int) -> None:
    """H43"""
    table = two_partitions(version)
    table.equality_rows("e", [(N, [1, 20])])
    table.commit(2)

    def roll_back(table: RowsTable) -> None:
        table.set_ref("main", {**table.document["refs"]["main"], "snapshot-id": 1})

    run = rewrite(table, meanwhile=roll_back)
    assert isinstance(run.error, CommitConflict)
    assert run.own == []
    assert run.rows == X_AND_Y


# -- the schema changes -----------------------------------------------------------------------------------------------


@VERSIONS
def test_a_delete_in_the_run_by_a_column_that_new_files_lack_leaves_the_group_out(version: int) -> None:
    """C17: the column was dropped before the run; a job that began before compares it all the same."""
    table = RowsTable(format_version=version, schema=schema(*NK["fields"], column(3, "gone", "string")))
    gone = of(3, "gone", pa.string())
    for name, n, text in (("a", 1, "p"), ("b", 2, "q")):
        table.rows(name, [(N, [n]), (K, ["x"]), (gone, [text])], k="x")
    table.rows("c", [(N, [3]), (K, ["y"]), (gone, ["q"])], k="y")
    table.commit(1)
    table.evolve(schema(*NK["fields"], schema_id=1))

    def delete(table: RowsTable) -> None:
        table.equality_rows("e", [(gone, ["q"])], k="x")
        table.commit(2)

    run = rewrite(table, meanwhile=delete)
    assert run.rows == [(1, "x"), (3, "y")]
    assert run.left == ["a", "b"]


@VERSIONS
def test_columns_that_are_added_and_renamed_in_the_run_are_read_of_new_files_as_of_old_ones(
    version: int,
) -> None:
    """K3, I12"""
    table = two_partitions(version)
    default = {"initial-default": 7} if version > 2 else {}

    def evolve(table: RowsTable) -> None:
        renamed = column(1, "k", "long"), column(2, "n", "string")
        table.evolve(schema(*renamed, column(4, "added", "long", **default), schema_id=1))

    run = rewrite(table, meanwhile=evolve)
    assert run.rows == [(*row, 7 if version > 2 else None) for row in X_AND_Y]
    assert len(run.outputs) == 2


# -- row ids ----------------------------------------------------------------------------------------------------------


def test_a_table_that_is_upgraded_in_the_run_is_left_alone() -> None:
    """H18, H51: ids that the first commit of version 3 gives would be others'."""
    table = two_partitions(2)

    def upgrade(table: RowsTable) -> None:
        table.document |= {"format-version": 3, "next-row-id": 0}
        table.format_version = 3

    run = rewrite(table, meanwhile=upgrade)
    assert isinstance(run.error, CommitConflict)
    assert "format version 3" in str(run.error)
    assert run.own == []
    assert run.left == ["a", "b", "c", "d"]


def upgraded() -> RowsTable:
    """A table of version 3 whose rows have no ids, since nobody has committed to it since its upgrade."""
    table = two_partitions(2)
    table.document |= {"format-version": 3, "next-row-id": 0}
    table.format_version = 3
    return table


def test_main_is_set_to_a_branch_that_has_the_same_manifests_with_other_row_ids() -> None:
    """H51: ids stand in the list, so that one manifest has other ones on each branch."""
    table = upgraded()
    branch(table, "b")
    numbers(table, "new", [30], k="y")
    table.commit(2)
    numbers(table, "other", [31], k="y")
    table.commit_files("append", table.added, ref="b", snapshot_id=3)
    table.added = []
    main = {each["first_row_id"] for each in table.live()}
    assert main.isdisjoint({each["first_row_id"] for each in table.live("b")})
    run = rewrite(table, meanwhile=lambda table: fast_forward(table, "b"))
    assert isinstance(run.error, CommitConflict)
    assert run.own == []
    fast_forward(table, "b")
    ids = [row[2] for row in rows_of(table, with_ids=True)]
    assert len(set(ids)) == len(ids) == 16


# -- files go, requests are lost --------------------------------------------------------------------------------------


def test_new_files_that_somebody_takes_for_orphans_are_not_committed() -> None:
    """H45"""
    table = two_partitions(3)
    known = {each.path for each in table.storage.list(f"{table.location}/data")}

    def clean(table: RowsTable) -> None:
        numbers(table, "new", [30], k="y")
        table.commit(2)
        new = [each.path for each in table.storage.list(f"{table.location}/data") if each.path not in known]
        lost = [path for path in new if "/k=x/" in path]
        assert len(lost) == 1
        table.storage.delete(lost)

    run = rewrite(table, meanwhile=clean)
    assert run.rows == without([*X, *Y, (30, "y")])
    assert run.left == ["a", "b", "new"]
    assert run.report is not None
    assert run.report.counts[CONFLICTED] == 1


@pytest.mark.parametrize("version", [2, 3])
def test_a_delete_of_a_file_that_was_replaced_before_stays_listed(version: int) -> None:
    """H52, I17: somebody who does not look commits it; it is all that tells of a lost delete."""
    table = two_partitions(version)
    rewrite(table, where="k = 'x'")
    path = table.path("a")
    if version > 2:
        table.puffin_bytes("late", *puffin({path: [0]}), k="x")
    else:
        table.positions("late", {"a": [0]}, k="x", referenced_data_file=path)
    table.commit(3)
    numbers(table, "more", [12], k="x")
    table.commit(4)
    again = rewrite(table)
    assert again.left == []
    assert again.rows == without([*X, *Y, (12, "x")])
    assert [each["referenced_data_file"] for each in again.deletes] == [path]


def test_a_later_commit_does_not_retire_a_delete_that_came_after_an_earlier_one_replaced_its_file() -> None:
    """H52"""
    table = two_partitions(3)
    path = table.path("a")

    def delete(table: RowsTable) -> None:
        assert path not in {each["file_path"] for each in table.live()}
        table.puffin_bytes("late", *puffin({path: [0]}), k="x")
        table.commit(2)

    run = rewrite(table, between=delete)
    assert len(run.own) == 2
    assert [each["referenced_data_file"] for each in run.deletes] == [path]
    assert run.rows == X_AND_Y
    assert run.report is not None
    assert run.report.counts["lost_deletes_count"] == 1
    (note,) = run.report.notes
    assert f"deletes 1 row of {path}, which had been rewritten" in note


@VERSIONS
def test_a_run_that_reads_for_longer_than_others_wait_is_alive_all_the_while(version: int) -> None:
    """K6: manifests and delete files are read before a group begins, and before each commit."""
    now_ms = NOW_MS
    signs_ms: list[int] = []

    class Signed(MemoryStorage):
        def replace(self, path: str, data: bytes) -> None:
            if path.endswith("/alive"):
                signs_ms.append(now_ms)
            super().replace(path, data)

    class Slow(LocalEngine):
        def scan(self, scan: Any, items: Any, *, on_event: Any) -> Any:
            def slowly(event: Any) -> None:
                nonlocal now_ms
                now_ms += 4 * 60_000
                on_event(event)

            return super().scan(scan, items, on_event=slowly)

    table = two_partitions(version, storage=Signed())
    by_position(table, "before", {"a": [3]}, k="x")
    table.commit(2)
    found = opened(table.storage, table.publish())
    found.table.load()
    planned = VERB.plan(found.table, RewriteDataFiles(rewrite_all=True, processes=1), as_of_ms=NOW_MS)
    found.table.use(Slow(table.storage, threads=1))
    report = apply(planned, found.table, VERB, replace(runtime(World()), now_ms=lambda: now_ms))
    assert report.status == "done"
    assert now_ms - NOW_MS > 20 * 60_000
    # Others wait for 10 minutes.
    pauses_ms = [second - first for first, second in zip(signs_ms, [*signs_ms[1:], now_ms], strict=True)]
    assert max(pauses_ms) < 9 * 60_000
