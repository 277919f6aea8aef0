"""Groups of data files written anew: outputs have the rows that a reader saw, in their order, and nothing else.

`rewritten` compares each output with a literal reader's rows of the inputs, and the table before and after.
"""

from __future__ import annotations

import gc
import io
import struct
import uuid
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from iceberg_cli.storage import Storage
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.iceberg_files import Json
from iceberg_cli.testing.iceberg_rows import LAST_UPDATED, ROW_ID, parquet_rows
from iceberg_cli.testing.memory_storage import MemoryStorage
from tests.duckdb_reading import duckdb_with_iceberg
from tests.iceberg.verbs.rewrite_data_files.tables import (
    NK,
    Columns,
    Files,
    K,
    N,
    RowsTable,
    column,
    commit,
    list_of,
    of,
    parquet,
    planned,
    rewritten,
    schema,
)

ID, UPDATED = of(ROW_ID, "_row_id", pa.int64()), of(LAST_UPDATED, "_last_updated_sequence_number", pa.int64())


def rows_of(table: RowsTable, **options: Any) -> list[tuple[Any, ...]]:
    """The rows of the one output of a table's one group, each as its values."""
    (result,) = rewritten(table, **options)
    (output,) = result.outputs
    return [tuple(row.values()) for row in parquet_rows(table.storage.read(output.path))]


@pytest.fixture(params=["memory", "disk"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Storage, str]:
    """A storage, and the location of a table in it."""
    if request.param == "memory":
        return MemoryStorage(), "mem://bucket/t"
    return LocalStorage(), str(tmp_path / "t")


def two_files(table: RowsTable, *, k: Any = None) -> RowsTable:
    table.rows("a", [(N, [1, 2, 3, 4, None]), (K, ["x", None, "", "x", "y"])], k=k)
    table.rows("b", [(N, [5, 6]), (K, ["x", "z"])], k=k)
    table.commit(1)
    return table


A_AND_B = [(1, "x"), (2, None), (3, ""), (4, "x"), (None, "y"), (5, "x"), (6, "z")]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_rows_of_several_files_are_in_one_and_only_version_3_has_ids(
    storage: tuple[Storage, str], version: int
) -> None:
    table = two_files(RowsTable(storage=storage[0], location=storage[1], format_version=version))
    ids = [(*row, place, 1) for place, row in enumerate(A_AND_B)]
    assert rows_of(table) == (ids if version == 3 else A_AND_B)


def test_rows_are_in_the_order_of_sequence_numbers_before_paths() -> None:
    table = RowsTable(format_version=2)
    table.rows("z", [(N, [1]), (K, ["x"])])
    table.commit(1)
    table.rows("b", [(N, [2]), (K, ["x"])])
    table.rows("a", [(N, [3]), (K, ["x"])])
    table.commit(2)
    assert rows_of(table) == [(1, "x"), (3, "x"), (2, "x")]


@pytest.mark.parametrize("is_proved", [True, False])
def test_nothing_of_a_group_waits_for_garbage_to_be_collected(*, is_proved: bool) -> None:
    """H35: pyarrow's footers and their schemas keep each other: of a hundred thousand files that was 2 GB."""
    table = two_files(RowsTable(format_version=3))
    plan = planned(table, is_proved=is_proved)
    (task,) = plan.tasks
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        plan.rewriter(Files(table.storage), task)
        gc.collect()
        left = [f"{type(each).__module__}.{type(each).__name__}" for each in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert not [name for name in left if name.startswith(("iceberg_cli.", "pyarrow."))]


# -- deletes ---------------------------------------------------------------------------------------------------------


def test_position_deletes_leave_their_rows_out() -> None:
    table = two_files(RowsTable(format_version=2))
    table.positions("p", {"a": [0, 3], "b": [1]})
    table.commit(2)
    table.positions("q", {"a": [3, 4]})
    table.commit(3)
    assert rows_of(table) == [(2, None), (3, ""), (5, "x")]


def test_deletion_vectors_leave_their_rows_out_and_others_keep_the_ids_of_their_places() -> None:
    table = two_files(RowsTable(format_version=3))
    table.vectors("v", {"a": [0, 2]})
    table.commit(2)
    assert rows_of(table) == [
        (2, None, 1, 1), (4, "x", 3, 1), (None, "y", 4, 1), (5, "x", 5, 1), (6, "z", 6, 1),
    ]  # fmt: skip


def test_equality_deletes_compare_null_with_null_and_leave_later_rows_alone() -> None:
    table = two_files(RowsTable(format_version=2))
    table.equality_rows("e", [(N, [2, None, 6, 5]), (K, [None, "y", "x", "x"])])
    table.rows("c", [(N, [2, 5]), (K, [None, "x"])])  # of the same commit, and so not deleted
    table.commit(2)
    assert rows_of(table) == [(1, "x"), (3, ""), (4, "x"), (6, "z"), (2, None), (5, "x")]


def test_equality_deletes_compare_columns_that_were_dropped_added_and_promoted() -> None:
    old = schema(column(1, "n", "int"), column(2, "k", "string"), column(3, "gone", "string"))
    table = RowsTable(format_version=3, schema=old)
    gone = of(3, "gone", pa.string())
    table.rows("a", [(of(1, "n", pa.int32()), [1, 2, 3, 4]), (K, ["x"] * 4), (gone, ["p", "q", None, "q"])])
    table.commit(1)
    table.equality_rows("dropped", [(gone, ["p", None])])
    table.commit(2)
    table.evolve(
        schema(
            column(1, "n", "long"), column(2, "k", "string"), column(4, "added", "long", **{"initial-default": 7}),
            schema_id=1,
        )
    )  # fmt: skip
    table.rows("b", [(N, [1 << 40, 2]), (K, ["x", "x"]), (of(4, "added", pa.int64()), [7, 8])])
    table.commit(3)
    table.equality_rows("promoted", [(N, [4, 1 << 40]), (of(4, "added", pa.int64()), [7, 7])])
    table.commit(4)
    assert rows_of(table) == [(2, "x", 7, 1, 1), (2, "x", 8, 5, 3)]


@pytest.mark.parametrize("version", [2, 3])
def test_a_group_whose_rows_are_all_deleted_has_no_output(version: int) -> None:
    table = RowsTable(format_version=version)
    table.rows("a", [(N, range(100)), (K, ["x"] * 100)])
    table.commit(1)
    (table.positions if version == 2 else table.vectors)("p", {"a": range(100)})
    table.commit(2)
    (result,) = rewritten(table)
    assert result.outputs == ()
    assert (result.rows_read, result.rows_deleted, result.rows_written, result.output_bytes) == (
        100,
        100,
        0,
        0,
    )
    assert table.rows_now() == []


def test_files_without_rows_have_no_output_and_one_of_no_bytes_is_not_opened() -> None:
    table = RowsTable(format_version=2)
    table.stored("a", parquet([(N, []), (K, [])]), 0)
    table.commit(1)
    plan = planned(table)
    files = Files(table.storage)
    result = plan.rewriter(files, plan.task)
    assert (result.outputs, result.rows_read, files.created) == ((), 0, [])
    table.stored("b", b"", 0)
    table.rows("c", [(N, [1]), (K, ["x"])])
    table.commit(2)
    plan = planned(table)
    result = plan.rewriter(Files(table.storage), plan.task)
    assert [each.metrics.record_count for each in result.outputs] == [1]
    assert result.positions.inputs.tolist() == [2]


# -- row lineage -----------------------------------------------------------------------------------------------------


def test_ids_of_the_file_itself_come_first_and_the_last_update_is_that_of_its_commit() -> None:
    """H16"""
    table = RowsTable(format_version=3)
    table.document["next-row-id"] = 100
    for _ in range(3):
        table.rows(f"old{_}", [(N, [0]), (K, ["x"])])
        table.commit(10 + _)
    table.remove("old0", "old1", "old2")
    table.rows("a", [(N, [1, 2, 3]), (K, ["x", "y", "z"]), (ID, [10, None, 30])])
    table.commit(4)
    assert rows_of(table) == [(1, "x", 10, 4), (2, "y", 104, 4), (3, "z", 30, 4)]


def test_last_updates_of_the_file_itself_come_first_too_and_second_rewrites_change_nothing() -> None:
    table = RowsTable(format_version=3)
    table.rows("a", [(N, [1, 2]), (K, ["x", "y"])])
    table.commit(1)
    table.rows("b", [(N, [3, 4]), (K, ["x", "y"]), (ID, [1_000, None]), (UPDATED, [1, None])])
    table.commit(2)
    expected = [(1, "x", 0, 1), (2, "y", 1, 1), (3, "x", 1_000, 1), (4, "y", 3, 2)]
    assert rows_of(table) == expected
    plan = planned(table)
    result = plan.rewriter(Files(Elsewhere(table.storage)), plan.task)
    assert [
        tuple(row.values()) for row in parquet_rows(table.storage.read(result.outputs[0].path + "2"))
    ] == expected


def test_rows_without_ids_stay_without_and_get_theirs_by_the_commit() -> None:
    """C14: on a table that was upgraded and has no commit since."""
    table = two_files(RowsTable(format_version=2))
    table.positions("p", {"a": [1]})
    table.commit(2)
    table.document |= {"format-version": 3, "next-row-id": 0}
    plan = planned(table)
    result = plan.rewriter(Files(table.storage), plan.task)
    (output,) = result.outputs
    live = [row for row in A_AND_B if row[0] != 2]
    assert [tuple(row.values()) for row in parquet_rows(table.storage.read(output.path))] == [
        (*row, None, 1) for row in live
    ]
    commit(table, plan, [result])
    after = table.rows_now()
    assert [tuple(row.values.values()) for row in after] == live
    assert [row.last_updated for row in after] == [1] * 6
    assert len({row.row_id for row in after}) == 6
    assert None not in {row.row_id for row in after}


class Elsewhere(MemoryStorage):
    """Another storage's objects; what is new there has a 2 behind its name."""

    def __init__(self, other: Storage) -> None:
        super().__init__()
        assert isinstance(other, MemoryStorage)
        self._objects = other._objects
        self._new: set[str] = set()

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._new.add(path)
        super().put_if_absent(path + "2", data)

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        return super().read(path + "2" * (path in self._new), span)

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> Any:
        return super().stat_many([path + "2" * (path in self._new) for path in paths], versions=versions)


# -- columns ---------------------------------------------------------------------------------------------------------


def test_columns_whose_names_were_swapped_or_differ_in_case_alone_are_found_by_their_ids() -> None:
    """H28"""
    table = RowsTable(
        format_version=2,
        schema=schema(column(1, "a", "long"), column(2, "b", "long"), column(3, "A", "long")),
    )
    table.by_k = {"spec-id": 1, "fields": []}
    table.document["partition-specs"] = [table.document["partition-specs"][0]]
    first = [of(1, "a", pa.int64()), of(2, "b", pa.int64()), of(3, "A", pa.int64())]
    second = [of(2, "a", pa.int64()), of(1, "b", pa.int64()), of(3, "A", pa.int64())]
    table.rows("x", list(zip(first, [[1, 2], [10, 20], [100, 200]], strict=True)))
    table.rows("y", list(zip(second, [[30, 40], [3, 4], [300, 400]], strict=True)))
    table.commit(1)
    table.evolve(schema(column(2, "a", "long"), column(1, "b", "long"), column(3, "A", "long"), schema_id=1))
    assert rows_of(table) == [(10, 1, 100), (20, 2, 200), (30, 3, 300), (40, 4, 400)]


def test_a_column_that_was_dropped_and_added_again_under_its_name_has_its_default() -> None:
    """H29"""
    table = RowsTable(format_version=3, schema=schema(*NK["fields"], column(3, "x", "long")))
    table.rows("a", [(N, [1]), (K, ["p"]), (of(3, "x", pa.int64()), [99])])
    table.commit(1)
    added = column(9, "x", "long", **{"initial-default": 5, "write-default": 6})
    table.evolve(schema(*NK["fields"], added, schema_id=1))
    table.rows("b", [(N, [2, 3]), (K, ["p", "p"]), (of(9, "x", pa.int64()), [7, None])])
    table.commit(2)
    assert rows_of(table) == [(1, "p", 5, 0, 1), (2, "p", 7, 1, 2), (3, "p", None, 2, 2)]


def test_promoted_columns_are_written_in_todays_types() -> None:
    """H30"""
    old = schema(
        column(1, "n", "int", required=True), column(2, "k", "string"), column(3, "f", "float"),
        column(4, "d", "decimal(9,2)"), column(5, "t", "date"),
    )  # fmt: skip
    table = RowsTable(format_version=3, schema=old)
    values: Columns = [
        (of(1, "n", pa.int32(), nullable=False), [-1, 2]), (K, ["x", None]), (of(3, "f", pa.float32()), [0.1, None]),
        (of(4, "d", pa.decimal128(9, 2)), [Decimal("-1.25"), None]),
        (of(5, "t", pa.date32()), [date(1969, 12, 31), None]),
    ]  # fmt: skip
    table.rows("a", values)
    table.commit(1)
    table.evolve(
        schema(
            column(1, "n", "long", required=True), column(2, "k", "string"), column(3, "f", "double"),
            column(4, "d", "decimal(20,2)"), column(5, "t", "timestamp"), schema_id=1,
        )
    )  # fmt: skip
    (result,) = rewritten(table)
    footer = pq.read_metadata(pa.BufferReader(table.storage.read(result.outputs[0].path)))
    physical = {footer.schema.column(i).name: footer.schema.column(i).physical_type for i in range(5)}
    assert physical == {
        "n": "INT64",
        "k": "BYTE_ARRAY",
        "f": "DOUBLE",
        "d": "FIXED_LEN_BYTE_ARRAY",
        "t": "INT64",
    }
    assert footer.schema.column(0).max_definition_level == 0
    metrics = result.outputs[0].metrics
    float_ = struct.unpack("<f", struct.pack("<f", 0.1))[0]
    assert metrics.lower_bounds == {
        1: struct.pack("<q", -1), 2: b"x", 3: struct.pack("<d", float_), 4: b"\x83",
        5: struct.pack("<q", -86_400_000_000), ROW_ID: struct.pack("<q", 0), LAST_UPDATED: struct.pack("<q", 1),
    }  # fmt: skip


BITS = [0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000000, 0xFFF0000000000000, 1 << 63, 0]


def test_numbers_keep_their_bits() -> None:
    """H31"""
    table = RowsTable(
        format_version=2, schema=schema(*NK["fields"], column(3, "g", "double"), column(4, "h", "float"))
    )
    doubles = pa.array(np.array(BITS, np.uint64).view(np.float64))
    floats = pa.array(
        np.array([0x7FC00000, 0xFFC00001, 0x80000000, 0, 0x7F800000, 1], np.uint32).view(np.float32)
    )
    nan = pa.array([float("nan")] * 6)
    table.rows(
        "a",
        [
            (N, range(6)),
            (K, ["x"] * 6),
            (of(3, "g", pa.float64()), doubles),
            (of(4, "h", pa.float32()), floats),
        ],
    )
    table.rows(
        "b",
        [(N, range(6)), (K, ["x"] * 6), (of(3, "g", pa.float64()), nan), (of(4, "h", pa.float32()), floats)],
    )
    table.commit(1)
    (result,) = rewritten(table)
    data = pq.read_table(pa.BufferReader(table.storage.read(result.outputs[0].path)))
    assert data["g"].combine_chunks().to_numpy().view(np.uint64).tolist()[:6] == BITS
    assert (
        data["h"].combine_chunks().to_numpy().view(np.uint32).tolist()[:6]
        == floats.to_numpy().view(np.uint32).tolist()
    )
    assert result.outputs[0].metrics.nan_value_counts == {3: 8, 4: 4}


DEEP_TYPE: Json = {
    "type": "list", "element-id": 11, "element-required": False,
    "element": {
        "type": "struct",
        "fields": [
            {"id": 12, "name": "p", "required": True, "type": "long"},
            {
                "id": 13, "name": "m", "required": False,
                "type": {
                    "type": "map", "key-id": 14, "key": "string", "value-id": 15, "value-required": False,
                    "value": {"type": "list", "element-id": 16, "element-required": False, "element": "int"},
                },
            },
        ],
    },
}  # fmt: skip
STRUCT_TYPE: Json = {
    "type": "struct", "fields": [{"id": 21, "name": "q", "required": True, "type": "long"}],
}  # fmt: skip


def deep_types() -> tuple[pa.Field, pa.Field]:
    map_ = pa.map_(of(14, "key", pa.string(), nullable=False), of(15, "value", list_of(16, pa.int32())))
    element = pa.struct([of(12, "p", pa.int64(), nullable=False), of(13, "m", map_)])
    inner = pa.struct([of(21, "q", pa.int64(), nullable=False)])
    return of(10, "deep", list_of(11, element)), of(20, "st", inner)


@pytest.mark.parametrize("version", [2, 3])
def test_nulls_and_empties_at_every_level_stay_what_they_are(version: int) -> None:
    """H33"""
    deep, inner = deep_types()
    values = [
        None,
        [],
        [None],
        [{"p": 1, "m": None}],
        [{"p": 2, "m": []}, None, {"p": 3, "m": [("k", None)]}],
        [{"p": 4, "m": [("k", []), ("l", [None, 7])]}],
        [{"p": 5, "m": [("", [8])]}],
    ]
    structs = [None, {"q": 1}, None, {"q": 2}, {"q": 3}, None, {"q": 4}]
    fields = (*NK["fields"], column(10, "deep", DEEP_TYPE), column(20, "st", STRUCT_TYPE))
    table = RowsTable(format_version=version, schema=schema(*fields))
    for name, order in (("a", values), ("b", values[::-1])):
        table.rows(name, [(N, range(7)), (K, ["x"] * 7), (deep, order), (inner, structs)], group_rows=4)
    table.commit(1)
    (table.positions if version == 2 else table.vectors)("p", {"a": [4, 6], "b": [0, 1]})
    table.commit(2)
    (result,) = rewritten(table)
    read = pq.read_table(pa.BufferReader(table.storage.read(result.outputs[0].path)))
    assert read["deep"].to_pylist() == [values[i] for i in (0, 1, 2, 3, 5)] + values[::-1][2:]
    assert read["st"].to_pylist() == [structs[i] for i in (0, 1, 2, 3, 5, 2, 3, 4, 5, 6)]
    assert not result.outputs[0].metrics.lower_bounds.keys() & {12, 14, 16}


def test_structs_get_fields_that_were_added_to_them_and_lose_those_that_were_dropped() -> None:
    fields = (
        *NK["fields"],
        column(3, "st", {"type": "struct", "fields": [column(4, "p", "int"), column(5, "q", "long")]}),
    )
    table = RowsTable(format_version=3, schema=schema(*fields))
    inner = pa.struct([of(4, "p", pa.int32()), of(5, "q", pa.int64())])
    table.rows("a", [(N, [1, 2]), (K, ["x", "x"]), (of(3, "st", inner), [{"p": 1, "q": 2}, None])])
    table.commit(1)
    added = column(6, "p", "string", **{"initial-default": "new"})
    evolved = column(3, "st", {"type": "struct", "fields": [added, column(4, "r", "long")]})
    table.evolve(schema(*NK["fields"], evolved, schema_id=1))
    assert rows_of(table) == [(1, "x", {6: "new", 4: 1}, 0, 1), (2, "x", None, 1, 1)]


def test_decimals_and_uuids_of_every_physical_type_keep_their_values() -> None:
    """H32"""
    fields = (
        *NK["fields"], column(3, "d", "decimal(9,2)"), column(4, "e", "decimal(38,10)"), column(5, "u", "uuid"),
        column(6, "b", "fixed[3]"),
    )  # fmt: skip
    table = RowsTable(format_version=2, schema=schema(*fields))
    small = [Decimal("-9999999.99"), Decimal("0.01"), None]
    large = [Decimal(-1), Decimal("9" * 28 + "." + "9" * 10), Decimal("0E-10")]
    ids = [uuid.UUID(int=n).bytes for n in (0x7F << 120, 0x80 << 120, 0)]
    columns: Columns = [
        (N, [1, 2, 3]), (K, ["x", "y", "z"]), (of(3, "d", pa.decimal128(9, 2)), small),
        (of(4, "e", pa.decimal128(38, 10)), large), (of(5, "u", pa.binary(16)), ids),
        (of(6, "b", pa.binary(3)), [b"abc", b"\0\0\0", None]),
    ]  # fmt: skip
    table.stored("a", parquet(columns, store_decimal_as_integer=True), 3)
    table.stored("b", parquet(columns), 3)
    table.commit(1)
    (result,) = rewritten(table)
    footer = pq.read_metadata(pa.BufferReader(table.storage.read(result.outputs[0].path)))
    leaves = {footer.schema.column(i).name: footer.schema.column(i) for i in range(6)}
    assert (leaves["d"].physical_type, leaves["e"].length, leaves["u"].length) == ("INT32", 16, 16)
    assert "UUID" in str(leaves["u"].logical_type)


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["x", None, "z"], pa.large_string()),
        pa.array(["x", None, "z"], pa.string_view()),
        pa.array(["x", None, "z"]).dictionary_encode(),
    ],
    ids=lambda array: str(array.type)[:12],
)
def test_text_is_plain_whatever_arrow_type_the_writer_had(values: pa.Array) -> None:
    """H25"""
    table = RowsTable(format_version=2)
    columns: Columns = [(N, [1, 2, 3]), (of(2, "k", values.type), values)]
    table.stored("a", parquet(columns, store_schema=True), 3)
    table.commit(1)
    assert rows_of(table) == [(1, "x"), (2, None), (3, "z")]


def test_a_column_of_unknown_type_is_in_no_output_and_is_null_all_the_same() -> None:
    inner = {"type": "struct", "fields": [column(4, "v", "unknown"), column(5, "w", "long")]}
    deep = {"type": "list", "element-id": 7, "element-required": False, "element": inner}
    fields = (*NK["fields"], column(3, "u", "unknown"), column(6, "l", deep))
    table = RowsTable(format_version=3, schema=schema(*fields))
    element = pa.struct([of(5, "w", pa.int64())])
    table.rows("a", [(N, [1]), (K, ["x"]), (of(6, "l", list_of(7, element)), [[{"w": 1}, None]])])
    table.commit(1)
    plan = planned(table)
    result = plan.rewriter(Files(table.storage), plan.task)
    read = pq.read_table(pa.BufferReader(table.storage.read(result.outputs[0].path)))
    assert read.column_names == ["n", "k", "l", "_row_id", "_last_updated_sequence_number"]
    assert read["l"].to_pylist() == [[{"w": 1}, None]]


def test_a_file_without_field_ids_is_read_by_the_name_mapping() -> None:
    """H27"""
    mapping = '[{"field-id": 1, "names": ["n", "num"]}, {"field-id": 2, "names": ["k"]}]'
    table = RowsTable(format_version=2, properties={"schema.name-mapping.default": mapping})
    table.rows("a", [(pa.field("k", pa.string()), ["x", "y"]), (pa.field("num", pa.int64()), [1, 2])])
    table.rows(
        "b", [(of(2, "num", pa.string()), ["z"]), (pa.field("n", pa.int64()), [9])]
    )  # ids of some: they alone
    table.commit(1)
    assert rows_of(table) == [(1, "x"), (2, "y"), (None, "z")]


def test_an_identity_partition_gives_the_value_of_a_column_that_the_file_does_not_have() -> None:
    table = RowsTable(format_version=2)
    table.rows("a", [(N, [1, 2])], k="x y")
    table.rows("b", [(N, [3])], k="null")
    table.commit(1)
    results = rewritten(table)
    found = {
        each.path.rsplit("/", 2)[-2]: [
            tuple(row.values()) for row in parquet_rows(table.storage.read(each.path))
        ]
        for result in results
        for each in result.outputs
    }
    assert found == {"k=x+y": [(1, "x y"), (2, "x y")], "k=null": [(3, None)]}


def test_outputs_are_where_the_properties_of_the_table_say() -> None:
    table = RowsTable(
        format_version=2,
        properties={"write.object-storage.enabled": "true", "write.data.path": "mem://other/data"},
    )
    two_files(table, k="x")
    plan = planned(table)
    result = plan.rewriter(Files(table.storage), plan.task)
    (output,) = result.outputs
    assert output.path.startswith("mem://other/data/")
    assert output.path.endswith("/bucket/t/k=x/00000-operation-1-1.parquet")


# -- file formats, and other readers -----------------------------------------------------------------------------------


def test_rows_of_orc_and_avro_files_are_written_to_parquet() -> None:
    table = RowsTable(format_version=2)
    out = io.BytesIO()
    fields = [
        pa.field(name, kind, metadata={"iceberg.id": str(i)})
        for i, name, kind in ((1, "n", pa.int64()), (2, "k", pa.string()))
    ]
    orc.write_table(pa.table([pa.array([1, None]), pa.array(["x", "y"])], schema=pa.schema(fields)), out)
    mapping = '[{"field-id": 1, "names": ["n"]}, {"field-id": 2, "names": ["k"]}]'
    table.document["properties"] = {"schema.name-mapping.default": mapping}
    table.stored("a", out.getvalue(), 2, file_format="ORC")
    out = io.BytesIO()
    record = {
        "type": "record", "name": "r",
        "fields": [{"name": "n", "type": "long", "field-id": 1}, {"name": "k", "type": "string", "field-id": 2}],
    }  # fmt: skip
    fastavro.writer(out, fastavro.parse_schema(record), [{"n": 3, "k": "z"}])
    table.stored("b", out.getvalue(), 1, file_format="AVRO")
    table.commit(1)
    plan = planned(table)
    result = plan.rewriter(Files(table.storage), plan.task)
    (output,) = result.outputs
    rows = [tuple(row.values()) for row in parquet_rows(table.storage.read(output.path))]
    assert rows == [(1, "x"), (None, "y"), (3, "z")]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_duckdb_reads_the_same_rows_before_and_after(tmp_path: Path, version: int) -> None:
    table = two_files(RowsTable(storage=LocalStorage(), location=str(tmp_path / "t"), format_version=version))
    expected = [(*row, place) for place, row in enumerate(A_AND_B)]
    if version > 1:
        (table.positions if version == 2 else table.vectors)("p", {"a": [0], "b": [1]})
        table.commit(2)
        expected = [row for row in expected if row[0] not in (1, 6)]
    expected = expected if version > 2 else [row[:2] for row in expected]
    ids = ", _row_id" if version > 2 else ""
    for _ in range(2):
        query = f"SELECT n, k{ids} FROM iceberg_scan('{table.publish()}') ORDER BY n"
        assert duckdb_with_iceberg().execute(query).fetchall() == sorted(
            expected, key=lambda row: (row[0] is None, row[0])
        )
        if table.document["snapshots"][-1]["snapshot-id"] != 1_000_000:
            rewritten(table)
