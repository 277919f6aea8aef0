"""Deletes when files are rewritten: which apply to new files, which stay listed, and which go with the old files.

Numbers are those of hazards (H) and incidents (I) of other engines, which each of these tables would meet.
"""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.errors import CorruptFile
from tests.delete_tables import puffin
from tests.iceberg.verbs.rewrite_data_files.tables import NK, K, N, RowsTable, column, of, schema
from tests.iceberg.verbs.rewrite_data_files.whole_runs import in_spec, numbers, rewrite, rows_of

VERSIONS = pytest.mark.parametrize("version", [2, 3])


def by_position(table: RowsTable, name: str, positions: dict[str, Any], *, k: Any = None) -> None:
    """Rows are deleted as the table's format version does it."""
    (table.positions if table.format_version < 3 else table.vectors)(name, positions, k=k)


# -- deletes that are listed with others ------------------------------------------------------------------------------


def test_a_vector_leaves_with_its_file_and_the_others_of_its_puffin_stay() -> None:
    """H1"""
    table = RowsTable(format_version=3)
    numbers(table, "a", [1, 2, 3], k="x")
    numbers(table, "b", [4, 5, 6], k="y")
    table.commit(1)
    data, blobs = puffin({table.path("a"): [0], table.path("b"): [0]})
    table.puffin_bytes("both", data, blobs[:1], k="x")
    for entry in table.puffin_file("again.puffin", data, blobs[1:]):
        table.add(entry | {"file_path": table.added[0]["file_path"]}, k="y")
    table.commit(2)
    run = rewrite(table, where="k = 'x'")
    assert run.rows == [(2, "x"), (3, "x"), (5, "y"), (6, "y")]
    (left,) = run.deletes
    assert left["referenced_data_file"] == table.path("b")
    assert (left["content_offset"], left["content_size_in_bytes"]) == blobs[1][1:3]
    assert table.storage.read(left["file_path"]) == data
    assert run.own[0]["summary"]["removed-dvs"] == "1"


@VERSIONS
@pytest.mark.parametrize("late", [False, True], ids=["planned", "I1: while it runs"])
def test_an_equality_delete_older_than_all_other_files_still_applies_to_new_ones(
    version: int, late: bool
) -> None:
    """H2"""
    table = RowsTable(format_version=version)
    numbers(table, "a", [1, 2, 3])
    table.commit(1)

    def others(table: RowsTable) -> None:
        table.equality_rows("e", [(N, [2])])
        table.commit(2)
        numbers(table, "b", [4])
        table.commit(3)

    run = rewrite(table, **{"meanwhile" if late else "after_plan": others})
    assert run.rows == [(1, "t"), (3, "t"), (4, "t")]
    assert [each["sequence_number"] for each in run.outputs] == [1]
    assert run.delete_names == ["e-eq-deletes.parquet"]


@VERSIONS
def test_a_row_that_was_upserted_stays_when_its_old_file_is_rewritten_with_its_new_one(version: int) -> None:
    """H3"""
    table = RowsTable(format_version=version)
    table.rows("x", [(N, [1, 2]), (K, ["old", "other"])])
    table.commit(5)
    table.equality_rows("e", [(N, [1])])
    table.rows("y", [(N, [1]), (K, ["new"])])
    table.commit(6)
    run = rewrite(table)
    assert run.rows == [(1, "new"), (2, "other")]
    assert [each["sequence_number"] for each in run.outputs] == [2]
    assert run.delete_names == []
    assert run.own[0]["summary"]["removed-equality-deletes"] == "1"


def test_position_deletes_of_several_files_stay_while_one_of_these_is_live() -> None:
    """H8, I10, I20: files of one partition, of which the large one is left alone."""
    table = RowsTable(format_version=2)
    numbers(table, "a", [1, 2])
    numbers(table, "b", [3, 4])
    numbers(table, "c", list(range(10, 500)))
    table.commit(1)
    table.positions("p", {"a": [0], "b": [1], "c": [0, 5]})
    table.commit(2)
    run = rewrite(
        table, rewrite_all=False, min_input_files=2, target_size=4096, min_size=2000, max_size=1 << 20
    )
    assert run.left == ["c"]
    assert run.rows == sorted([(n, "t") for n in (2, 3, *range(11, 15), *range(16, 500))], key=repr)
    assert run.delete_names == ["p-deletes.parquet"]
    assert "removed-delete-files" not in run.own[0]["summary"]


def test_position_deletes_of_a_file_of_their_own_commit_stay_with_it() -> None:
    """H8: the large file and the deletes have one sequence number, and these apply all the same."""
    table = RowsTable(format_version=2)
    numbers(table, "a", [1, 2])
    numbers(table, "b", [3, 4])
    table.commit(1)
    numbers(table, "c", list(range(10, 500)))
    table.positions("p", {"a": [0], "c": [0]})
    table.commit(2)
    options = {"rewrite_all": False, "min_input_files": 2, "target_size": 4096, "min_size": 2000}
    run = rewrite(table, max_size=1 << 20, **options)
    assert run.left == ["c"]
    assert run.rows == sorted([(n, "t") for n in (2, 3, 4, *range(11, 500))], key=repr)
    assert run.delete_names == ["p-deletes.parquet"]


def test_position_deletes_of_several_files_go_when_the_last_of_these_goes() -> None:
    table = RowsTable(format_version=2)
    numbers(table, "a", [1, 2])
    numbers(table, "b", [3, 4])
    table.commit(1)
    table.positions("p", {"a": [0], "b": [1]})
    table.commit(2)
    numbers(table, "c", [5])
    table.commit(3)
    run = rewrite(table)
    assert run.rows == [(2, "t"), (3, "t"), (5, "t")]
    assert run.delete_names == []


@VERSIONS
def test_a_group_whose_rows_are_all_deleted_leaves_an_empty_table(version: int) -> None:
    """H9"""
    table = RowsTable(format_version=version)
    numbers(table, "a", list(range(50)))
    numbers(table, "b", list(range(50, 100)))
    table.commit(1)
    by_position(table, "p", {"a": range(50), "b": range(50)})
    table.commit(2)
    run = rewrite(table)
    assert (run.rows, run.data) == ([], [])
    summary = run.own[0]["summary"]
    assert not [key for key in summary if key.startswith("added-")]
    assert (summary["deleted-records"], summary["deleted-data-files"], summary["total-records"]) == (
        "100", "2", "0",
    )  # fmt: skip
    assert run.delete_names == []
    assert run.report is not None
    assert run.report.counts["added_data_files_count"] == 0


def test_a_vector_counts_alone_and_rows_of_position_deletes_count_once_and_by_their_exact_path() -> None:
    """H10"""
    table = RowsTable(format_version=2, location="mem://bucket/t")
    numbers(table, "a", [1, 2, 3, 4])
    numbers(table, "b", [5, 6, 7, 8])
    numbers(table, "c", [9, 10])
    table.commit(1)
    table.positions("p", {"a": [0, 1, 2]})
    path = table.path("b")
    twice = position_delete_rows([path, path, path], [1, 1, 2])
    table.position_bytes("q", twice, 3)
    other_scheme = table.path("c").replace("mem://", "other://")
    table.position_bytes("r", position_delete_rows([other_scheme], [0]), 1)
    table.commit(2)
    table.document |= {"format-version": 3, "next-row-id": 0}
    table.format_version = 3
    table.vectors("v", {"a": [1]})
    table.commit(3)
    run = rewrite(table)
    assert run.rows == [(1, "t"), (10, "t"), (3, "t"), (4, "t"), (5, "t"), (8, "t"), (9, "t")]


def position_delete_rows(paths: list[str], positions: list[int]) -> bytes:
    """A position delete file that has the rows that it deletes, too."""
    row = pa.StructArray.from_arrays(
        [pa.array([7] * len(paths), pa.int64())], fields=[of(1, "n", pa.int64())]
    )
    fields = [
        of(2147483546, "file_path", pa.string(), nullable=False),
        of(2147483545, "pos", pa.int64(), nullable=False),
        of(2147483544, "row", row.type),
    ]
    out = io.BytesIO()
    columns = [pa.array(paths), pa.array(positions, pa.int64()), row]
    pq.write_table(pa.table(columns, schema=pa.schema(fields)), out)
    return out.getvalue()


# -- what equality deletes compare ------------------------------------------------------------------------------------


@VERSIONS
def test_equality_deletes_compare_nulls_and_columns_that_were_dropped_or_added_since(version: int) -> None:
    """H11"""
    old = schema(*NK["fields"], column(3, "gone", "string"))
    table = RowsTable(format_version=version, schema=old)
    gone = of(3, "gone", pa.string())
    table.rows("a", [(N, [1, 1, 2, 3]), (K, [None, "x", None, "x"]), (gone, ["p", "p", "q", "q"])])
    table.commit(1)
    table.equality_rows("both", [(N, [1]), (K, [None])])
    table.equality_rows("dropped", [(N, [3]), (gone, ["q"])])
    table.commit(2)
    default = {"initial-default": 7} if version > 2 else {}
    table.evolve(schema(*NK["fields"], column(4, "added", "long", **default), schema_id=1))
    table.rows("b", [(N, [5]), (K, ["y"]), (of(4, "added", pa.int64()), [8])])
    table.commit(3)
    added = of(4, "added", pa.int64())
    table.equality_rows("older", [(N, [2]), (added, [7 if version > 2 else None])])
    table.commit(4)
    run = rewrite(table)
    assert run.rows == [(1, "x", 7 if version > 2 else None), (5, "y", 8)]
    assert run.delete_names == []


@VERSIONS
def test_an_equality_delete_of_no_partition_stays_while_a_live_file_of_any_spec_is_older(
    version: int,
) -> None:
    """H12: all of spec 0 is rewritten, and spec 1 has the older file."""
    table = RowsTable(format_version=version)
    numbers(table, "a", [1, 2])
    numbers(table, "b", [1, 3], k="x")
    table.commit(1)
    table.equality_rows("e", [(N, [1])])
    table.commit(2)
    run = rewrite(table, max_files=1)
    assert run.left == ["b"]
    assert run.rows == [(2, "t"), (3, "x")]
    assert run.delete_names == ["e-eq-deletes.parquet"]
    again = rewrite(table)
    assert again.left == []
    assert again.rows == [(2, "t"), (3, "x")]
    assert again.delete_names == []


@VERSIONS
def test_an_equality_delete_of_a_partition_goes_with_the_last_older_file_of_its_partition_alone(
    version: int,
) -> None:
    table = RowsTable(format_version=version)
    numbers(table, "a", [1, 2], k="x")
    numbers(table, "b", [1, 3], k="y")
    table.commit(1)
    table.equality_rows("x", [(N, [1])], k="x")
    table.equality_rows("y", [(N, [1])], k="y")
    table.commit(2)
    run = rewrite(table, where="k = 'x'")
    assert run.rows == [(2, "x"), (3, "y")]
    assert run.delete_names == ["y-eq-deletes.parquet"]


def test_a_file_whose_rows_are_deleted_by_floating_point_numbers_is_left_alone_and_named() -> None:
    """C8: whether NaN is equal to NaN, and a zero to a negative one, is not the same for all readers."""
    table = RowsTable(format_version=2, schema=schema(*NK["fields"], column(3, "f", "double")))
    f = of(3, "f", pa.float64())
    for name, place in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "y")):
        table.rows(name, [(N, [1, 2]), (K, [place, place]), (f, [0.0, float("nan")])], k=place)
    table.commit(1)
    table.equality_rows("e", [(N, [1]), (f, [-0.0])], k="x")
    table.commit(2)
    run = rewrite(table)
    assert run.left == ["a", "b"]
    assert run.delete_names == ["e-eq-deletes.parquet"]
    assert [w for w in run.plan.warnings if table.path("a") in w and "floating point" in w]


# -- tables that readers take differently, or not at all --------------------------------------------------------------


@VERSIONS
def test_a_table_that_lists_a_data_file_twice_is_broken_and_not_touched(version: int) -> None:
    """H21, C32"""
    table = RowsTable(format_version=version)
    numbers(table, "a", [1, 2])
    numbers(table, "b", [3])
    table.commit(1)
    table.added.append(entry_of(table, "a"))
    numbers(table, "c", [4])
    table.commit(2)
    by_position(table, "p", {"a": [0]})
    table.added[-1]["referenced_data_file"] = table.path("a")
    table.commit(3)
    with pytest.raises(CorruptFile, match="it is listed twice") as broken:
        rewrite(table, check=False)
    assert (broken.value.path, broken.value.exit_code) == (table.path("a"), 15)


def entry_of(table: RowsTable, name: str) -> dict[str, Any]:
    (entry,) = (each for each in table.live() if each["file_path"] == table.path(name))
    numbers = ("status", "snapshot_id", "sequence_number", "file_sequence_number", "first_row_id")
    return {key: value for key, value in entry.items() if key not in numbers}


def test_a_table_with_two_vectors_of_one_data_file_is_broken_and_not_touched() -> None:
    """H21, K5, C32"""
    table = RowsTable(format_version=3)
    numbers(table, "a", [1, 2])
    numbers(table, "b", [3])
    numbers(table, "c", [4])
    table.commit(1)
    table.vectors("v", {"a": [0]})
    table.commit(2)
    data, blobs = puffin({table.path("a"): [1]})
    table.puffin_bytes("w", data, blobs)
    table.commit(3)
    with pytest.raises(CorruptFile, match="it has more than one deletion vector") as broken:
        rewrite(table, check=False)
    assert broken.value.path == table.path("a")


def test_a_data_file_that_is_newer_than_the_snapshot_that_lists_it_is_broken() -> None:
    """C10: new files would have a lesser sequence number than their rows."""
    table = RowsTable(format_version=2)
    numbers(table, "a", [1])
    numbers(table, "b", [2])
    table.added[-1] |= {"sequence_number": 7, "file_sequence_number": 7}
    table.commit(1)
    with pytest.raises(CorruptFile, match="it is 7, above that of the snapshot that lists it, 1") as broken:
        rewrite(table, check=False)
    assert broken.value.path == table.path("b")


@pytest.mark.parametrize("kind", ["equality", "positions"])
def test_a_delete_file_that_cannot_be_read_leaves_out_what_it_may_be_about_and_nothing_else(
    kind: str,
) -> None:
    """C8: rows may be deleted by it, and the delete file is needed still."""
    table = RowsTable(format_version=2)
    numbers(table, "a", [1, 2], k="x")
    numbers(table, "b", [3], k="x")
    numbers(table, "c", [4, 5], k="y")
    numbers(table, "d", [6], k="y")
    table.commit(1)
    if kind == "equality":
        table.equality_rows("e", [(N, [1])], k="x")
    else:
        table.positions("e", {"a": [0], "b": [0]}, k="x")
    path = table.added[-1]["file_path"]
    table.commit(2)
    table.storage.replace(path, table.storage.read(path)[:-9] + bytes(9))
    run = rewrite(table, check=False)
    assert run.left == ["a", "b"]
    assert [each["file_path"] for each in run.deletes] == [path]
    assert run.report is not None
    assert (run.report.status, run.report.exit_code) == ("partial", 15)
    (failed,) = run.report.failed_groups
    assert (failed["partition"], path in str(failed["reason"])) == ("k=x", True)
    assert run.report.counts["failed_data_files_count"] == 2
    assert [each["groups"] for each in run.report.commits] == [1]


def test_a_file_named_by_position_deletes_of_another_partition_is_left_alone_and_named() -> None:
    """H50: Spark applies these by the path alone, and by the specification they do not apply."""
    table = RowsTable(format_version=2)
    numbers(table, "a", [1, 2], k="x")
    numbers(table, "b", [3, 4], k="x")
    numbers(table, "c", [5], k="y")
    table.commit(1)
    table.positions("p", {"a": [0]}, k="y", referenced_data_file=table.path("a"))
    table.commit(2)
    run = rewrite(table, check=False)
    assert run.left == ["a"]
    assert run.delete_names == ["p-deletes.parquet"]
    assert [w for w in run.plan.warnings if table.path("a") in w and "of another partition" in w]
    assert run.report is not None
    assert run.report.exit_code == 15
    assert [(each["group"], each["partition"]) for each in run.report.failed_groups] == [(None, "k=x")]


def test_a_file_with_a_vector_that_is_older_than_it_is_left_alone_and_named() -> None:
    """H50: Java refuses to read such a table."""
    table = RowsTable(format_version=3)
    numbers(table, "b", [3, 4])
    numbers(table, "c", [5])
    table.commit(1)
    data, blobs = puffin({table.path("a"): [0]})
    table.puffin_bytes("early", data, blobs)
    table.commit(2)
    numbers(table, "a", [1, 2])
    table.commit(3)
    run = rewrite(table)
    assert run.left == ["a"]
    assert [w for w in run.plan.warnings if table.path("a") in w and "older than it is" in w]
    assert run.report is not None
    assert run.report.exit_code == 15


def test_position_deletes_of_one_file_that_are_filed_under_another_partition_stay_with_their_file() -> None:
    """H53: A, of the partition where they are filed, is rewritten; B, which they name, is not."""
    table = RowsTable(format_version=2)
    numbers(table, "a", [1, 2], k="x")
    numbers(table, "b", [3, 4], k="y")
    table.commit(1)
    table.positions("p", {"b": [0]}, k="x", referenced_data_file=table.path("b"))
    table.commit(2)
    run = rewrite(table, where="k = 'x'", check=False)
    assert run.left == ["b"]
    assert run.delete_names == ["p-deletes.parquet"]
    assert "removed-delete-files" not in run.own[0]["summary"]


def test_position_deletes_beyond_the_rows_of_a_file_leave_its_group_alone() -> None:
    """C32"""
    table = RowsTable(format_version=2)
    numbers(table, "a", [1, 2], k="x")
    numbers(table, "b", [3], k="y")
    table.commit(1)
    table.positions("p", {"a": [2]}, k="x")
    table.commit(2)
    run = rewrite(table)
    assert run.left == ["a"]
    assert run.report is not None
    (failed,) = run.report.failed_groups
    assert table.path("a") in failed["reason"]


# -- again and again --------------------------------------------------------------------------------------------------


@VERSIONS
def test_deletes_that_were_applied_do_not_bring_the_new_file_up_again(version: int) -> None:
    """H47, I29: inputs at 1, the equality delete at 2; it must not match the new file, or that is chosen for ever."""
    table = RowsTable(format_version=version)
    numbers(table, "a", [1, 2])
    numbers(table, "b", [3, 4])
    table.commit(1)
    table.equality_rows("e", [(N, [2, 3])])
    table.commit(2)
    numbers(table, "c", list(range(10, 500)))
    table.commit(3)
    options = {"rewrite_all": False, "delete_files": 1, "target_size": 1 << 20, "min_size": 1}
    run = rewrite(table, **options)
    assert run.rows[:2] == [(1, "t"), (10, "t")]
    assert run.left == ["c"]
    assert not rewrite(table, **options).plan.due


def test_a_file_above_the_largest_size_is_split_by_rows_though_it_has_one_row_group() -> None:
    """H47, I2"""
    table = RowsTable(format_version=2, properties={"write.parquet.compression-codec": "uncompressed"})
    table.rows("a", [(N, range(20_000)), (K, [f"text {n}" for n in range(20_000)])], group_rows=20_000)
    table.commit(1)
    options = {"rewrite_all": False, "target_size": 100 << 10}
    run = rewrite(table, **options)
    assert len(run.outputs) > 2
    assert sum(each["record_count"] for each in run.outputs) == 20_000
    assert not rewrite(table, **options).plan.due


# -- other specs ------------------------------------------------------------------------------------------------------


def test_specs_whose_fields_are_void_are_no_partitions_and_each_spec_keeps_its_files() -> None:
    """H14: v1's specs identity(k) -> void -> void, identity(n); the table was upgraded to version 2."""
    table = RowsTable(format_version=2)
    table.document["partition-specs"] += [
        {"spec-id": 2, "fields": [field(2, "k", 1000, "void")]},
        {"spec-id": 3, "fields": [field(2, "k", 1000, "void"), field(1, "n", 1001, "identity")]},
    ]
    numbers(table, "a", [1, 2], k="x")
    numbers(table, "b", [1, 3], k="x")
    in_spec(table, "c", [(N, [1, 4]), (K, ["x", "y"])], spec_id=2, partition={"k": None})
    in_spec(table, "d", [(N, [1, 5]), (K, ["z", "z"])], spec_id=2, partition={"k": None})
    in_spec(table, "e", [(N, [1, 1]), (K, ["p", "q"])], spec_id=3, partition={"k": None, "n": 1})
    in_spec(table, "f", [(N, [1, 1]), (K, ["r", "s"])], spec_id=3, partition={"k": None, "n": 1})
    table.commit(1)
    table.equality_rows("everywhere", [(N, [1]), (K, ["x"])])
    table.added[-1] |= {"spec_id": 2, "partition": {"k": None}}
    table.commit(2)
    run = rewrite(table)
    # (1, x) goes wherever it is, since a spec of voids alone has no partitions.
    assert run.rows == [
        (1, "p"), (1, "q"), (1, "r"), (1, "s"), (1, "z"), (2, "x"), (3, "x"), (4, "y"), (5, "z"),
    ]  # fmt: skip
    assert sorted((each["spec_id"], repr(each["partition"])) for each in run.outputs) == [
        (1, "{'k': 'x'}"), (2, "{'k': None}"), (3, "{'k': None, 'n': 1}"),
    ]  # fmt: skip
    assert run.delete_names == []


def field(source_id: int, name: str, field_id: int, transform: str) -> dict[str, Any]:
    return {"source-id": source_id, "name": name, "field-id": field_id, "transform": transform}


@VERSIONS
def test_files_of_an_old_spec_stay_in_it_and_do_not_become_more(version: int) -> None:
    """I25, H54: an equality delete that a job commits by the old spec afterwards still finds its rows."""
    table = RowsTable(format_version=version)
    for name, value in (("a", 1), ("b", 2), ("c", 3)):
        numbers(table, name, [value], k="eu")
    table.commit(1)
    table.document["partition-specs"] += [{"spec-id": 2, "fields": [field(1, "n", 1001, "identity")]}]
    table.document["default-spec-id"] = 2
    run = rewrite(table)
    assert [(each["spec_id"], each["partition"]) for each in run.outputs] == [(1, {"k": "eu"})]
    table.equality_rows("upsert", [(N, [2])], k="eu")
    in_spec(table, "new", [(N, [2]), (K, ["eu"])], spec_id=2, partition={"n": 2})
    table.commit(3)
    assert rows_of(table) == [(1, "eu"), (2, "eu"), (3, "eu")]
