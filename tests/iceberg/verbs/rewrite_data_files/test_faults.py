"""What is wrong with inputs and outputs of a group is an error that names the file, and no file is half written."""

from __future__ import annotations

import gc
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.encoding.deletion_vector import encode
from iceberg_cli.errors import BackendUnavailable, CorruptFile, Refused
from iceberg_cli.iceberg.verbs.rewrite_data_files.group import RewrittenGroup
from iceberg_cli.storage import FileInfo
from iceberg_cli.testing.memory_storage import MemoryStorage
from tests.iceberg.verbs.rewrite_data_files.tables import (
    NK,
    Created,
    Files,
    K,
    N,
    RowsTable,
    column,
    list_of,
    of,
    parquet,
    planned,
    schema,
)

PLAIN = {
    "write.parquet.compression-codec": "uncompressed",
    "write.parquet.dict-encoding-enabled.column.n": "false",
    "write.parquet.dict-encoding-enabled.column.f": "false",
}
F = of(3, "f", pa.float64())
COUNT = 400
EACH_FILE_ALONE = 48 << 10  # of memory, where the rows of such a file are not held until those of others come


def a_table(version: int = 3) -> RowsTable:
    """Two files of numbers, text with nulls and empties, and zeros of both signs."""
    table = RowsTable(
        format_version=version, schema=schema(*NK["fields"], column(3, "f", "double")), properties=PLAIN
    )
    for name, first in (("a", 0), ("b", COUNT)):
        numbers = range(first, first + COUNT)
        texts = [None if n % 7 == 0 else "" if n % 5 == 0 else f"text {n}" for n in numbers]
        table.rows(
            name, [(N, numbers), (K, texts), (F, [0.0 if n % 2 else -0.0 for n in numbers])], group_rows=1000
        )
    table.commit(1)
    return table


# -- what the storage has is not what was written ---------------------------------------------------------------------


def changed(change: Callable[[pa.Table], pa.Table]) -> Callable[[bytes], bytes]:
    """A file as large as another one, of rows that were changed."""

    def file(data: bytes) -> bytes:
        rows = change(pq.read_table(pa.BufferReader(data)))
        padding = 0
        for _ in range(6):
            sink = io.BytesIO()
            writer = pq.ParquetWriter(sink, rows.schema, compression="zstd", store_schema=False)
            writer.write_table(rows)
            writer.add_key_value_metadata({"padding": "x" * padding})
            writer.close()
            if sink.tell() == len(data):
                return sink.getvalue()
            padding += len(data) - sink.tell()
        raise AssertionError(padding)

    return file


def with_value(rows: pa.Table, name: str, place: int, value: Any) -> pa.Table:
    values = rows[name].to_pylist()
    assert repr(values[place]) != repr(value)
    values[place] = value
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))


def numbered(rows: pa.Table, name: str, field_id: int) -> pa.Table:
    at = rows.schema.get_field_index(name)
    field = rows.schema.field(at).with_metadata({"PARQUET:field_id": str(field_id)})
    return rows.set_column(at, field, rows[name])


ROWS = "read back they are not the 800 rows that were written"
NUMBER = "num_rows: 800 rows were written, and the footer says "
CHANGES: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "a row dropped": (lambda rows: rows.slice(1), f"{NUMBER}799"),
    "a row doubled": (lambda rows: pa.concat_tables([rows, rows.slice(5, 1)]), f"{NUMBER}801"),
    "one dropped, one doubled": (lambda rows: pa.concat_tables([rows.slice(1), rows.slice(5, 1)]), ROWS),
    "two doubled, two dropped": (lambda rows: pa.concat_tables([rows.slice(2), rows.slice(9, 2)]), ROWS),
    "a number": (lambda rows: with_value(rows, "n", 3, 4), ROWS),
    "null to empty": (lambda rows: with_value(rows, "k", 7, ""), ROWS),
    "the sign of zero": (lambda rows: with_value(rows, "f", 0, 0.0), ROWS),
    "a row id": (lambda rows: with_value(rows, "_row_id", 3, 4), ROWS),
    "a last update": (lambda rows: with_value(rows, "_last_updated_sequence_number", 3, None), ROWS),
    "a field id": (lambda rows: numbered(rows, "n", 9), ROWS),
    "a column": (lambda rows: rows.drop_columns(["f"]), ROWS),
}


@pytest.mark.parametrize("case", CHANGES)
def test_rows_that_are_not_those_that_were_read_are_noticed_in_the_stored_file(case: str) -> None:
    change, reason = CHANGES[case]
    table = a_table()
    plan, files = planned(table), Files(table.storage, changed(change))
    with pytest.raises(CorruptFile) as caught:
        plan.rewriter(files, plan.task)
    (created,) = files.created
    assert str(caught.value).startswith(f"Cannot read {created.path}, ")
    assert reason in str(caught.value)
    assert created.state == "committed"  # whoever journals it discards it
    unproved = planned(table, is_proved=False)
    again = Files(Suffixed(table.storage), changed(change))
    if reason == ROWS:
        assert unproved.rewriter(again, unproved.task).proof is None
    else:
        with pytest.raises(CorruptFile, match=reason):
            unproved.rewriter(again, unproved.task)


def test_rows_that_are_stored_as_they_were_written_are_proved_equal() -> None:
    table = a_table()
    plan = planned(table)
    result = plan.rewriter(Files(table.storage, changed(lambda rows: rows)), plan.task)
    assert result.proof is not None
    assert result.proof.count == 2 * COUNT


class Suffixed(MemoryStorage):
    """Another storage's objects under their names; its own are new."""

    def __init__(self, other: Any) -> None:
        super().__init__()
        self._objects = {path: each for path, each in other._objects.items() if "-operation-" not in path}


@pytest.mark.parametrize("place", [0, 100, 3000, 6100])
def test_a_bit_that_flipped_is_noticed(place: int) -> None:
    table = a_table(2)

    def flipped(data: bytes) -> bytes:
        begin = data.index(np.arange(300, 310).tobytes())  # inside of a page of numbers
        at = begin + place % 80
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    plan, files = planned(table), Files(table.storage, flipped)
    with pytest.raises(CorruptFile, match=ROWS) as caught:
        plan.rewriter(files, plan.task)
    assert caught.value.path == files.created[0].path


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-1], r"\d+ bytes were written, and the storage has \d+"),
        (lambda data: data + b"PAR1", r"\d+ bytes were written, and the storage has \d+"),
        (lambda data: b"x" * len(data), "no readable Parquet file"),
    ],
)
@pytest.mark.parametrize("is_proved", [True, False])
def test_a_file_that_is_not_whole_is_noticed(
    change: Callable[[bytes], bytes], reason: str, is_proved: bool
) -> None:
    table = a_table(2)
    plan, files = planned(table, is_proved=is_proved), Files(table.storage, change)
    with pytest.raises(CorruptFile, match=reason) as caught:
        plan.rewriter(files, plan.task)
    assert caught.value.path == files.created[0].path


def test_a_file_that_is_gone_once_it_was_committed_is_an_error() -> None:
    class Forgetful(Files):
        def create(self, place: Callable[[str], str]) -> Created:
            created = super().create(place)
            created.storage = MemoryStorage()
            return created

    table = a_table(2)
    plan = planned(table)
    with pytest.raises(FileNotFoundError, match=r"00000-operation-1-1\.parquet"):
        plan.rewriter(Forgetful(table.storage), plan.task)


# -- outputs that cannot be written -----------------------------------------------------------------------------------


@dataclass
class Full(Files):
    """Files of a storage that takes so many bytes of them all."""

    left: int = 0

    def create(self, place: Callable[[str], str]) -> Created:
        files = self

        class Bounded(Created):
            def write(self, data: bytes) -> int:
                files.left -= len(data)
                self.late += self.state != "open"
                if files.left < 0:
                    raise BackendUnavailable("Cannot write: no more fits")
                return super().write(data)

        created = super().create(place)
        self.created[-1] = Bounded(created.storage, created.path, created.change)
        return self.created[-1]


@pytest.mark.parametrize("more", [0, 4, 1000])
@pytest.mark.parametrize("whole", [0, 1, 2])
def test_an_output_that_cannot_be_written_is_aborted_and_those_before_it_stay(whole: int, more: int) -> None:
    table = a_table()
    plan = planned(table, target_bytes=6000)
    outputs = plan.rewriter(Files(Suffixed(table.storage)), plan.task).outputs
    assert len(outputs) > 3
    files = Full(table.storage, left=sum(each.size_bytes for each in outputs[:whole]) + more)
    with pytest.raises(BackendUnavailable, match="no more fits"):
        plan.rewriter(files, plan.task)
    assert [each.state for each in files.created] == ["committed"] * whole + ["aborted"]
    gc.collect()
    assert [each.late for each in files.created] == [0] * (whole + 1)


def test_an_output_that_cannot_be_committed_is_aborted() -> None:
    def fail(_: bytes) -> bytes:
        raise BackendUnavailable("Cannot write: the storage does not answer")

    table = a_table()
    plan, files = planned(table), Files(table.storage, fail)
    with pytest.raises(BackendUnavailable, match="does not answer"):
        plan.rewriter(files, plan.task)
    assert [each.state for each in files.created] == ["aborted"]


# -- inputs that are not what their entries say ------------------------------------------------------------------------


def failure(table: RowsTable, kind: type[Exception] = CorruptFile) -> str:
    """The message of the error; nothing was committed."""
    plan, files = planned(table), Files(table.storage)
    with pytest.raises(kind) as caught:
        plan.rewriter(files, plan.task)
    assert {each.state for each in files.created} <= {"aborted"}
    return str(caught.value)


@pytest.mark.parametrize("records", [0, 1, 3])
def test_another_number_of_rows_than_the_entry_says_is_an_error(records: int) -> None:
    table = RowsTable(format_version=2)
    table.rows("a", [(N, [1]), (K, ["x"])])
    table.stored("b", parquet([(N, [1, 2]), (K, ["x", "y"])]), records)
    table.commit(1)
    assert failure(table) == (
        f"Cannot read mem://bucket/t/data/b.parquet, record_count: it has 2 rows, its entry says {records}"
    )


def test_rows_are_counted_also_where_all_of_them_are_deleted() -> None:
    table = RowsTable(format_version=2)
    table.stored("b", parquet([(N, [1, 2]), (K, ["x", "y"])]), 3)
    table.commit(1)
    table.positions("p", {"b": [0, 1, 2]})
    table.commit(2)
    assert "b.parquet, record_count: it has 2 rows, its entry says 3" in failure(table)


@pytest.mark.parametrize("rows", [2, 0])
def test_a_deleted_position_that_the_file_does_not_have_is_an_error(rows: int) -> None:
    table = RowsTable(format_version=2)
    table.rows("a", [(N, range(rows)), (K, ["x"] * rows)])
    table.commit(1)
    plan = planned(table)
    (file,) = plan.task.inputs
    for blobs, is_fit in (((encode([0]), encode([rows])), False), ((encode(range(rows)),), True)):
        task = replace(plan.task, inputs=(replace(file, vectors=blobs),))
        files = Files(table.storage)
        if is_fit:
            assert plan.rewriter(files, task).rows_deleted == rows
        else:
            with pytest.raises(
                CorruptFile, match=rf"a\.parquet.*of its {rows} rows the one at position {rows} is"
            ):
                plan.rewriter(files, task)


@pytest.mark.parametrize("recorded", [0, 1, 1 << 40])
def test_a_file_is_as_large_as_the_storage_says_whatever_its_entry_does(recorded: int) -> None:
    """H24"""
    table = RowsTable(format_version=2)
    table.rows("a", [(N, [1, 2]), (K, ["x", "y"])], file_size_in_bytes=recorded)
    table.commit(1)
    plan = planned(table)
    task = replace(plan.task, inputs=tuple(replace(each, size_bytes=recorded) for each in plan.task.inputs))
    result = plan.rewriter(Files(table.storage), task)
    assert result.rows_written == 2
    assert result.input_bytes == len(table.storage.read(table.path("a")))


def test_a_file_of_no_bytes_with_rows_is_an_error() -> None:
    """H34"""
    table = RowsTable(format_version=2)
    table.stored("a", b"", 5)
    table.commit(1)
    assert "a.parquet" in failure(table)


def test_a_file_that_is_gone_is_told_so_that_the_head_is_asked_for_it() -> None:
    table = a_table(2)
    plan = planned(table, memory_bytes=EACH_FILE_ALONE)
    table.storage.delete([table.path("b")])
    files = Files(table.storage)
    with pytest.raises(FileNotFoundError, match=r"data/b\.parquet"):
        plan.rewriter(files, plan.task)
    assert [each.state for each in files.created] == ["aborted"]


@pytest.mark.parametrize("values", [[1, None], None])
def test_a_required_column_that_is_null_or_absent_is_an_error(values: list[int | None] | None) -> None:
    table = RowsTable(
        format_version=2, schema=schema(column(1, "n", "long", required=True), column(2, "k", "string"))
    )
    columns = [(K, ["x", "y"])] if values is None else [(N, values), (K, ["x", "y"])]
    table.rows("a", columns)
    table.commit(1)
    assert failure(table) == (
        "Cannot read mem://bucket/t/data/a.parquet, rows: n is required, and a value is null or absent"
    )


@pytest.mark.parametrize("files", [2, 3])
def test_of_several_files_that_are_read_together_the_one_is_named_whose_row_is_wrong(files: int) -> None:
    table = RowsTable(
        format_version=2, schema=schema(column(1, "n", "long", required=True), column(2, "k", "string"))
    )
    for name, values in (("a", [1]), ("b", [2, None]), ("c", [3]))[:files]:
        table.rows(name, [(N, values), (K, ["x"] * len(values))])
    table.commit(1)
    assert failure(table) == (
        "Cannot read mem://bucket/t/data/b.parquet, rows: n is required, and a value is null or absent"
    )


class Requests(MemoryStorage):
    """A storage that takes note of what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        self.asked.append(("read", path))
        return super().read(path, span)

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:
        self.asked += [("stat", path) for path in paths]
        return super().stat_many(paths, versions=versions)


def test_a_small_input_is_one_request() -> None:
    storage = Requests()
    table = RowsTable(format_version=2, storage=storage)
    for name in ("a", "b"):
        table.rows(name, [(N, [1, 2]), (K, ["x", "y"])])
    table.commit(1)
    plan = planned(table)
    storage.asked.clear()
    plan.rewriter(Files(storage), plan.task)
    inputs = [table.path("a"), table.path("b")]
    assert [each for each in storage.asked if each[1] in inputs] == [("read", path) for path in inputs]


def test_a_required_element_that_is_null_is_an_error() -> None:
    type_ = {"type": "list", "element-id": 4, "element-required": True, "element": "long"}
    table = RowsTable(format_version=2, schema=schema(*NK["fields"], column(3, "l", type_)))
    table.rows("a", [(N, [1]), (K, ["x"]), (of(3, "l", list_of(4, pa.int64())), [[1, None]])])
    table.commit(1)
    assert "a.parquet, rows: l.element is required" in failure(table)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (of(1, "n", pa.string()), ["1"]),
        (of(1, "n", pa.float64()), [0.5]),
        (of(1, "n", list_of(9, pa.int64())), [[1]]),
    ],
    ids=["string", "double", "list"],
)
def test_a_column_of_another_type_is_an_error(field: pa.Field, values: Sequence[Any]) -> None:
    table = RowsTable(format_version=2)
    table.rows("a", [(field, values), (K, ["x"])])
    table.commit(1)
    assert failure(table).startswith(
        "Cannot read mem://bucket/t/data/a.parquet, field n: n: a column of type"
    )


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_bit_that_flipped_in_a_page_with_a_checksum_is_an_error(codec: str) -> None:
    """C32: what is written anew would have a checksum that is right."""
    sink = io.BytesIO()
    columns = pa.table([pa.array(range(1000)), pa.array(["x"] * 1000)], schema=pa.schema([N, K]))
    pq.write_table(columns, sink, write_page_checksum=True, use_dictionary=False, compression=codec)
    data = bytearray(sink.getvalue())
    start = pq.ParquetFile(pa.BufferReader(bytes(data))).metadata.row_group(0).column(0)
    data[start.data_page_offset + start.total_compressed_size - 9] ^= 0x40
    table = RowsTable(format_version=2)
    table.stored("a", bytes(data), 1000)
    table.commit(1)
    assert "data/a.parquet: no readable Parquet file" in failure(table)


def test_nanoseconds_that_would_be_cut_off_are_an_error() -> None:
    """H26"""
    table = RowsTable(format_version=2, schema=schema(*NK["fields"], column(3, "t", "timestamp")))
    columns = [(N, [1]), (K, ["x"]), (of(3, "t", pa.timestamp("ns")), [1_001])]
    table.stored("a", parquet(columns, use_deprecated_int96_timestamps=True), 1)
    table.commit(1)
    assert "a.parquet, column t: it has times with nanoseconds in 96 bits" in failure(table)


def test_files_that_are_encrypted_or_whose_columns_nothing_names_are_refused() -> None:
    for data, reason in (
        (b"PAR1 nobody can read this PARE", "it is encrypted"),
        (parquet([(pa.field("n", pa.int64()), [1])]), "its columns have no field ids"),
    ):
        table = RowsTable(format_version=2)
        table.stored("a", data, 1)
        table.commit(1)
        assert f"Cannot read mem://bucket/t/data/a.parquet: {reason}" in failure(table, Refused)


def test_types_that_are_not_written_are_refused_before_any_output() -> None:
    table = RowsTable(format_version=3, schema=schema(*NK["fields"], column(3, "v", "variant")))
    table.rows("a", [(N, [1]), (K, ["x"])])
    table.commit(1)
    plan, files = planned(table), Files(table.storage)
    with pytest.raises(Refused, match="Cannot write column v: values of type variant are not written here"):
        plan.rewriter(files, plan.task)
    assert files.created == []


@pytest.mark.parametrize("damaged", ["a", "b"])
def test_a_damaged_input_is_named_and_the_open_output_is_aborted(damaged: str) -> None:
    table = a_table(2)
    plan = planned(table, memory_bytes=EACH_FILE_ALONE)
    path = table.path(damaged)
    data = table.storage.read(path)
    table.storage.replace(path, data[: len(data) // 2] + bytes(64) + data[len(data) // 2 + 64 :])
    files = Files(table.storage)
    result: RewrittenGroup | None = None
    with pytest.raises(CorruptFile) as caught:
        result = plan.rewriter(files, plan.task)
    assert result is None
    assert caught.value.path == path
    assert [each.state for each in files.created] == (["aborted"] if damaged == "b" else [])
