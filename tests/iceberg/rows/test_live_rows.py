"""Rows of data files for whoever writes them anew: which are live, where they stand, and the ids that they keep."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, time
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import orc

from iceberg_cli.encoding.arrow import leaf_arrays
from iceberg_cli.encoding.deletion_vector import encode
from iceberg_cli.encoding.projection import Field, StructOf
from iceberg_cli.encoding.row_batches import COLUMNS_AT_ONCE, SMALL_BYTES, FileSplit, parquet_batches
from iceberg_cli.engines import FileParts
from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.iceberg.rows.data_files import (
    DataFile,
    EqualityColumns,
    RowReader,
    StoredRows,
    columns_for,
    keys_of,
    together,
)
from iceberg_cli.iceberg.rows.deleted_keys import DeletedKeys

ID = Field(name="id", type=pa.int64(), field_id=1)
ROW_ID, UPDATED = 2147483540, 2147483539
Columns = Mapping[int, Sequence[Any]]


def reader_of(data: bytes) -> FileParts:
    return FileParts("data.parquet", len(data), lambda offset, length: data[offset : offset + length])


def parquet(columns: Columns, *, group_rows: int = 1000) -> tuple[DataFile, FileParts]:
    """A data file of numbers, by their field ids."""
    fields = [
        pa.field(f"c{field_id}", pa.int64(), metadata={"PARQUET:field_id": str(field_id)})
        for field_id in columns
    ]
    arrays = [pa.array(values, pa.int64()) for values in columns.values()]
    sink = io.BytesIO()
    pq.write_table(pa.table(arrays, schema=pa.schema(fields)), sink, row_group_size=group_rows)
    data = sink.getvalue()
    rows = len(next(iter(columns.values())))
    return DataFile(
        path="data.parquet", file_format="parquet", size_bytes=len(data), record_count=rows
    ), reader_of(data)


def read(file: DataFile, parts: FileParts, **options: Any) -> list[tuple[Any, ...]]:
    """The rows of a file, each with its position in front."""
    found = []
    for live in RowReader(fields=(ID,), **options).stream(file, parts):
        assert live.rows.num_rows == len(live.positions)
        found += list(
            zip(live.positions.tolist(), *(column.to_pylist() for column in live.rows.columns), strict=True)
        )
    return found


def test_an_id_of_the_file_comes_before_the_one_that_its_place_gives() -> None:
    """H16: ids of some rows alone; what was written into the file stays."""
    file, parts = parquet({1: [7, 8, 9], ROW_ID: [10, None, 30]})
    file = replace(file, first_row_id=100, sequence_number=4)
    assert read(file, parts, keeps_row_ids=True) == [(0, 7, 10, 4), (1, 8, 101, 4), (2, 9, 30, 4)]


def test_rows_that_deletes_hide_count_for_the_ids_of_others() -> None:
    """H17: ids follow the position in the file."""
    file, parts = parquet({1: [7, 8, 9, 10]})
    file = replace(file, first_row_id=50, sequence_number=2, vectors=(encode([0, 2]),))
    assert read(file, parts, keeps_row_ids=True) == [(1, 8, 51, 2), (3, 10, 53, 2)]


def test_the_last_update_is_what_the_file_says_or_else_its_number() -> None:
    file, parts = parquet({1: [7, 8], UPDATED: [3, None]})
    file = replace(file, first_row_id=0, sequence_number=9)
    assert read(file, parts, keeps_row_ids=True) == [(0, 7, 0, 3), (1, 8, 1, 9)]


def test_rows_of_a_file_without_ids_have_none_whatever_is_in_it() -> None:
    file, parts = parquet({1: [7, 8], ROW_ID: [1, 2], UPDATED: [3, 4]})
    file = replace(file, first_row_id=None, sequence_number=6)
    assert read(file, parts, keeps_row_ids=True) == [(0, 7, None, 6), (1, 8, None, 6)]
    assert read(file, parts) == [(0, 7), (1, 8)]


def stored_rows(reader: RowReader, files: Sequence[tuple[DataFile, FileParts]]) -> list[StoredRows]:
    return [
        each
        for number, (file, parts) in enumerate(files)
        for each in reader.stored(number, replace(file, size_bytes=parts.size_bytes), parts)
    ]


def test_rows_of_several_files_are_those_of_each_with_its_own_deletes_and_ids() -> None:
    """C13, C16: a row's id and number are by its own file, whatever is read with it."""
    compared = EqualityColumns(fields=(ID,), paths=((0,),))
    keys = keys_of(pa.table({"id": pa.array([4, 30], pa.int64())}), compared)
    first, second, third = (
        parquet({1: [1, 2, 3, 4], ROW_ID: [None] * 4}),
        parquet({1: [4, 10, 20], ROW_ID: [7, None, 9]}, group_rows=2),
        parquet({1: [30, 40], ROW_ID: [None] * 2}),
    )
    files = [
        (replace(first[0], first_row_id=100, sequence_number=1, vectors=(encode([0]),)), first[1]),
        (replace(second[0], first_row_id=200, sequence_number=2, vectors=(encode([2]),)), second[1]),
        (
            replace(third[0], first_row_id=None, sequence_number=3, equality_deletes=(((1,), ("e",)),)),
            third[1],
        ),
    ]
    reader = RowReader(
        fields=(ID,), equality={(1,): compared}, deleted=DeletedKeys.of({"e": keys}), keeps_row_ids=True
    )
    (some,) = together(stored_rows(reader, files), most_bytes=1 << 20)
    live = reader.live(some)
    assert live.count == 9
    assert list(
        zip(live.files, live.positions, *(column.to_pylist() for column in live.rows.columns), strict=True)
    ) == [
        (0, 1, 2, 101, 1), (0, 2, 3, 102, 1), (0, 3, 4, 103, 1),
        (1, 0, 4, 7, 2), (1, 1, 10, 201, 2),
        (2, 1, 40, None, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("batch_rows", [1, 3, 4, 7, 100])
def test_very_many_columns_are_read_alike_page_by_page_and_some_at_a_time(batch_rows: int) -> None:
    """Row groups of 7, 7 and 6 rows: of more than twice as many as are read at once a page of each column is read."""
    columns = {field_id: [field_id * row for row in range(20)] for field_id in range(1, 301)}
    _, parts = parquet(columns, group_rows=7)
    found = [*parquet_batches(parts, "f", lambda own: range(1, len(own)), batch_rows=batch_rows)]
    assert all(each.count <= batch_rows for each in found)
    assert [each.first for each in found] == [
        sum(before.count for before in found[:at]) for at in range(len(found))
    ]
    for at, field_id in enumerate(range(2, 301)):
        assert [value for each in found for value in each.columns[at].to_pylist()] == columns[field_id]
        assert {each.fields[at].name for each in found} == {f"c{field_id}"}


def columns_x_x_and_y(kind: str) -> bytes:
    """A data file of one row, in which the columns with the field ids 1, 2 and 3 have these names."""
    names = {1: "x", 2: "x", 3: "y"}
    sink = io.BytesIO()
    if kind == "avro":
        columns = [{"name": name, "type": "long", "field-id": each} for each, name in names.items()]
        fastavro.writer(sink, {"type": "record", "name": "r", "fields": columns}, [{"x": 1, "y": 3}])
        return sink.getvalue()
    key = {"parquet": b"PARQUET:field_id", "orc": b"iceberg.id"}[kind]
    fields = [pa.field(name, pa.int64(), metadata={key: b"%d" % each}) for each, name in names.items()]
    table = pa.Table.from_arrays([pa.array([number]) for number in names], schema=pa.schema(fields))
    (pq if kind == "parquet" else orc).write_table(table, sink)
    return sink.getvalue()


def test_of_a_file_that_has_few_bytes_for_many_rows_few_rows_are_decoded_at_once() -> None:
    """H35: 20,000 lists of a thousand zeros are 10 KB in a file, and 160 MB in memory."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"c1": [7] * 20_000}), sink)
    data = sink.getvalue()
    assert len(data) < 20_000
    found = [*parquet_batches(reader_of(data), "f", lambda _: [0], batch_rows=1 << 16)]
    assert max(each.count for each in found) <= 4_096
    assert [value for each in found for value in each.columns[0].to_pylist()] == [7] * 20_000


@pytest.mark.parametrize("columns", [4, 200])
@pytest.mark.parametrize(("most_page_bytes", "in_one_go"), [(4 << 20, True), (2 << 20, False), (None, False)])
def test_a_row_group_that_fits_as_it_is_stored_is_read_by_one_request(
    columns: int, most_page_bytes: int | None, *, in_one_go: bool
) -> None:
    """Three row groups of 1.6 MB of numbers that do not compress, in a file that is too large to be read whole."""
    drawn = np.random.default_rng(5)
    rows = 600_000 // columns
    values = [drawn.integers(0, 1 << 62, rows) for _ in range(columns)]
    sink = io.BytesIO()
    table = pa.table(values, names=[f"c{place}" for place in range(columns)])
    pq.write_table(table, sink, row_group_size=rows // 3, use_dictionary=False)
    data = sink.getvalue()
    assert len(data) > SMALL_BYTES
    spans: list[tuple[int, int]] = []

    def read(offset: int, length: int) -> bytes:
        spans.append((offset, length))
        return data[offset : offset + length]

    found = parquet_batches(
        FileParts("f", len(data), read), "f", lambda own: range(len(own)), batch_rows=rows // 4,
        most_page_bytes=most_page_bytes,
    )  # fmt: skip
    read_columns = zip(*(batch.columns for batch in found), strict=True)
    for own, expected in zip(read_columns, values, strict=True):
        assert (np.concatenate([each.to_numpy() for each in own]) == expected).all()
    body = [length for offset, length in spans if offset + length < len(data) - (64 << 10)]
    parts = -(-columns // COLUMNS_AT_ONCE)
    assert (len(body) <= 3 * parts) == in_one_go


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_of_several_columns_of_one_name_none_is_taken_for_another(kind: str) -> None:
    """They are read by their names; one that stands once is read all the same."""
    data = columns_x_x_and_y(kind)
    file = DataFile(path="f", file_format=kind, size_bytes=len(data), record_count=1)
    third = RowReader(fields=(replace(ID, field_id=3),))
    assert third(file, reader_of(data)).to_pylist() == [{"id": 3}]
    for field_id in (1, 2):
        with pytest.raises(CorruptFile, match="f, column x: the file has several columns of this name"):
            RowReader(fields=(replace(ID, field_id=field_id),))(file, reader_of(data))


def test_only_rows_of_the_same_columns_and_constants_are_together_and_only_so_many() -> None:
    same = [parquet({1: [1, 2]}), parquet({1: [3]})]
    other_id, other_type = parquet({2: [4]}), one_column(pa.array([5], pa.int32()))
    another = DataFile(path="other", file_format="parquet", size_bytes=len(other_type), record_count=1)
    constant = (replace(same[1][0], constants={9: pa.scalar(1)}), same[1][1])
    equal = (replace(same[1][0], constants={9: pa.scalar(1)}), same[1][1])
    files = [*same, other_id, same[0], (another, reader_of(other_type)), constant, equal]
    reader = RowReader(fields=(ID, replace(ID, name="other", field_id=2)))
    found = [*together(stored_rows(reader, files), most_bytes=1 << 20)]
    assert [[each.number for each in some] for some in found] == [[0, 1], [2], [3], [4], [5, 6]]
    assert [[reader.live([each]).rows.to_pylist() for each in some] for some in found[:2]] == [
        [[{"id": 1, "other": None}, {"id": 2, "other": None}], [{"id": 3, "other": None}]],
        [[{"id": None, "other": 4}]],
    ]
    many = [parquet({1: range(10)})] * 7  # 80 bytes each
    for most, expected in (
        ({"most_bytes": 200}, [3, 3, 1]),
        ({"most_bytes": 1 << 20, "most_rows": 20}, [2, 2, 2, 1]),
    ):
        assert [len(some) for some in together(stored_rows(reader, many), **most)] == expected


def test_a_column_whose_type_cannot_become_the_tables_is_an_error_and_not_null() -> None:
    sink = io.BytesIO()
    field = pa.field("id", pa.string(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([["a"]], schema=pa.schema([field])), sink)
    data = sink.getvalue()
    file = DataFile(path="data.parquet", file_format="parquet", size_bytes=len(data), record_count=1)
    with pytest.raises(
        CorruptFile, match=r"data\.parquet.*field id.*a column of type string where int64 is expected"
    ):
        read(file, reader_of(data))
    assert read(file, reader_of(data), mismatch_is_null=True) == [(0, None)]


@pytest.mark.parametrize("stored", [pa.binary(16), pa.uuid()])
def test_uuids_are_read_whether_the_file_calls_them_so_or_not(stored: pa.DataType) -> None:
    values = [bytes(range(16)), None, b"\xff" * 16]
    data = one_column(pa.array(values, pa.binary(16)).cast(stored))
    file = DataFile(path="data.parquet", file_format="parquet", size_bytes=len(data), record_count=3)
    field = Field(name="u", type=pa.uuid(), field_id=1)
    column = RowReader(fields=(field,))(file, reader_of(data))["u"]
    assert column.type == pa.uuid()
    assert column.combine_chunks().storage.to_pylist() == values
    absent = replace(field, field_id=2, default=pa.scalar(bytes(16), pa.binary(16)))
    rows = RowReader(fields=(absent,))(file, reader_of(data))
    assert rows["u"].combine_chunks().storage.to_pylist() == [bytes(16)] * 3


def test_numbers_are_not_rounded_to_a_narrower_type() -> None:
    data = one_column(pa.array([0.5, 0.1]))
    file = DataFile(path="data.parquet", file_format="parquet", size_bytes=len(data), record_count=2)
    narrow = Field(name="f", type=pa.float32(), field_id=1)
    with pytest.raises(CorruptFile, match=r"a column of type double where float is expected"):
        RowReader(fields=(narrow,))(file, reader_of(data))
    wide = RowReader(fields=(replace(narrow, type=pa.float64()),))(file, reader_of(data))
    assert wide["f"].to_pylist() == [0.5, 0.1]


def one_column(values: pa.Array) -> bytes:
    """A file with a column of id 1."""
    sink = io.BytesIO()
    field = pa.field("c", values.type, metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([values], schema=pa.schema([field])), sink)
    return sink.getvalue()


FAR = 253_402_300_799_000_000  # the last second of the year 9999, which nanoseconds cannot have


@pytest.mark.parametrize(
    ("values", "is_exact"),
    [
        ([0, 1_000, -5_000, None], True),
        ([-1_893_456_000_000_000_000 * 2, 1_000], True),  # before 1900
        ([1_000, 1_500], False),
        ([-1], False),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_h26_nanoseconds_in_96_bits_are_not_cut_off_in_silence(
    values: list[int | None], is_exact: bool, nested: bool
) -> None:
    micros = [None if value is None else value // 1000 for value in values]
    times = pa.array(values, pa.timestamp("ns"))
    column = (
        pa.StructArray.from_arrays([pa.array([1] * len(values)), times], names=["x", "t"])
        if nested
        else times
    )
    file, parts = of_int96(column)
    inner = Field(name="t", type=pa.timestamp("us"), names=("t",))
    field = replace(inner, type=StructOf((inner,))) if nested else inner
    lenient = RowReader(fields=(field,), mismatch_is_null=True)(file, parts)["t"]
    (leaf,) = leaf_arrays(lenient.combine_chunks())
    assert leaf.cast(pa.int64()).to_pylist() == micros
    strict = RowReader(fields=(field,))
    if is_exact:
        assert strict(file, parts)["t"].equals(lenient)
    else:
        with pytest.raises(CorruptFile, match=r"data\.parquet.*column t.*times with nanoseconds in 96 bits"):
            strict(file, parts)


def test_times_in_96_bits_that_nanoseconds_cannot_have_are_read() -> None:
    file, parts = of_int96(pa.array([FAR, 7], pa.timestamp("us")))
    rows = RowReader(fields=(Field(name="t", type=pa.timestamp("us"), names=("t",)),))(file, parts)
    assert rows["t"].cast(pa.int64()).to_pylist() == [FAR, 7]


def of_int96(column: pa.Array) -> tuple[DataFile, FileParts]:
    sink = io.BytesIO()
    pq.write_table(pa.table({"t": column}), sink, use_deprecated_int96_timestamps=True)
    data = sink.getvalue()
    file = DataFile(
        path="data.parquet", file_format="parquet", size_bytes=len(data), record_count=len(column)
    )
    return file, reader_of(data)


@given(
    values=st.lists(st.integers(0, 5), min_size=1, max_size=40),
    gone=st.sets(st.integers(0, 45)),
    deleted=st.sets(st.integers(0, 6)),
    group_rows=st.integers(1, 20),
    of=st.integers(1, 4),
)
def test_parts_have_the_live_rows_of_the_file_with_their_places(
    values: list[int], gone: set[int], deleted: set[int], group_rows: int, of: int
) -> None:
    file, parts = parquet({1: values}, group_rows=group_rows)
    columns = columns_for([1], [[ID]])
    assert columns is not None
    keys = keys_of(pa.table({"id": pa.array(sorted(deleted), pa.int64())}), columns)
    file = replace(
        file,
        first_row_id=1000,
        sequence_number=3,
        vectors=tuple(encode([each]) for each in sorted(gone)),
        equality_deletes=(((1,), ("deletes.parquet",)),),
    )
    found = []
    for number in range(of):
        found += read(
            replace(file, split=FileSplit(number, of)),
            parts,
            keeps_row_ids=True,
            equality={(1,): columns},
            deleted=DeletedKeys.of({"deletes.parquet": keys}),
        )
    assert found == [
        (place, value, 1000 + place, 3)
        for place, value in enumerate(values)
        if place not in gone and value not in deleted
    ]


# -- what equality deletes compare -----------------------------------------------------------------------------------


def key_set(columns: EqualityColumns, rows: pa.Table) -> list[bytes]:
    found: list[bytes] = keys_of(rows, columns).to_pylist()
    return found


def test_a_field_inside_of_structs_is_compared_by_itself() -> None:
    inner = StructOf(
        (Field(name="x", type=pa.int64(), field_id=4), Field(name="y", type=pa.int64(), field_id=5))
    )
    middle = StructOf(
        (Field(name="z", type=pa.int64(), field_id=3), Field(name="in", type=inner, field_id=2))
    )
    columns = columns_for([5, 1], [[ID, Field(name="out", type=middle, field_id=6)]])
    assert columns is not None
    assert columns.paths == ((0, 0, 0), (1,))
    assert [each.name for each in columns.fields] == ["out", "id"]
    rows = pa.table(
        {
            "out": [{"in": {"y": 1}}, {"in": {"y": 2}}, {"in": None}, None, {"in": {"y": 1}}],
            "id": pa.array([1, 1, 1, 1, 1], pa.int64()),
        }
    )
    one, two, none, also_none, again = key_set(columns, rows)
    assert one == again
    assert none == also_none  # null in every way
    assert len({one, two, none}) == 3


def test_a_schema_of_the_past_has_columns_that_were_dropped_and_the_first_that_has_one_counts() -> None:
    dropped, narrow = (
        Field(name="gone", type=pa.int32(), field_id=2),
        Field(name="id", type=pa.int32(), field_id=1),
    )
    columns = columns_for([1, 2], [[ID], [narrow, dropped]])
    assert columns is not None
    assert columns.fields == (ID, dropped)
    assert columns_for([1, 3], [[ID], [narrow, dropped]]) is None


@pytest.mark.parametrize(
    ("type_", "same", "other"),
    [
        (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("1.5")], Decimal("1.51")),
        (pa.string(), ["a", "a"], ""),
        (pa.binary(), [b"\x00", b"\x00"], b""),
        (pa.date32(), [date(2026, 11, 29)] * 2, date(2026, 11, 30)),
        (pa.timestamp("us"), [1_000_000, 1_000_000], 1_000_001),
        (pa.time64("us"), [time(1, 2)] * 2, time(1, 2, 0, 1)),
        (pa.bool_(), [True, True], False),
        (pa.int32(), [-1, -1], 255),
    ],
)
def test_keys_are_equal_where_values_are_and_null_is_equal_to_null(
    type_: pa.DataType, same: list[Any], other: Any
) -> None:
    columns = columns_for([1], [[Field(name="k", type=type_, field_id=1)]])
    assert columns is not None
    one, again, another, null, also_null = key_set(
        columns, pa.table({"k": pa.array([*same, other, None, None], type_)})
    )
    assert one == again
    assert null == also_null
    assert len({one, another, null}) == 3


def test_several_values_are_not_taken_for_others_that_read_the_same_in_a_row() -> None:
    fields = [Field(name=name, type=pa.string(), field_id=number) for number, name in enumerate("ab")]
    columns = columns_for([0, 1], [fields])
    assert columns is not None
    pairs = [
        ("a", "b"),
        ("ab", ""),
        ("", "ab"),
        ("a/", "b"),
        ("a", "/b"),
        (None, "ab"),
        ("ab", None),
        ("a/b", None),
    ]
    keys = key_set(columns, pa.table({"a": [a for a, _ in pairs], "b": [b for _, b in pairs]}))
    assert len(set(keys)) == len(pairs)


def test_a_compared_column_of_another_type_is_an_error_wherever_it_is() -> None:
    file, parts = parquet({1: [1], 2: [5]})
    columns = columns_for([2], [[Field(name="k", type=pa.string(), field_id=2)]])
    assert columns is not None
    file = replace(file, equality_deletes=(((2,), ("deletes.parquet",)),))
    none = DeletedKeys.of({"deletes.parquet": pa.array([], pa.binary())})
    with pytest.raises(
        CorruptFile, match=r"data\.parquet.*field k.*a column of type int64 where string is expected"
    ):
        read(file, parts, equality={(2,): columns}, deleted=none)


def test_columns_of_a_file_without_ids_are_found_by_the_names_that_are_mapped() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"old": pa.array([1, 2], pa.int64()), "id": pa.array([3, 4], pa.int64())}), sink)
    data = sink.getvalue()
    file = DataFile(path="data.parquet", file_format="parquet", size_bytes=len(data), record_count=2)
    mapped, other = replace(ID, names=("first", "old")), replace(ID, name="k", names=("of another file",))
    for fields, values in (((mapped,), [1, 2]), ((ID, other), [None, None])):
        (live,) = RowReader(fields=fields).stream(file, reader_of(data))
        assert live.rows["id"].to_pylist() == values


def test_a_file_without_ids_is_not_read_by_nothing_where_no_names_are_mapped() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([3, 4], pa.int64())}), sink)
    data = sink.getvalue()
    file = DataFile(path="data.parquet", file_format="parquet", size_bytes=len(data), record_count=2)
    with pytest.raises(Refused, match=r"Cannot read data\.parquet: its columns have no field ids") as caught:
        RowReader(fields=(ID,))(file, reader_of(data))
    assert "schema.name-mapping.default" in caught.value.next_step
    shown = RowReader(fields=(ID,), mismatch_is_null=True)(file, reader_of(data))
    assert shown["id"].to_pylist() == [None, None]


def test_a_format_that_is_not_read_is_refused_by_its_name() -> None:
    file, parts = parquet({1: [1]})
    with pytest.raises(
        Refused, match=r"Cannot read data\.parquet: files of the format 'csv' are not read here"
    ):
        read(replace(file, file_format="csv"), parts)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, None])
def test_of_a_limit_that_many_rows_are_read(limit: int | None) -> None:
    file, parts = parquet({1: [0, 1, 2, 3, 4]}, group_rows=2)
    rows = RowReader(fields=(ID,), limit=limit)(replace(file, vectors=(encode([1]),)), parts)
    assert rows["id"].to_pylist() == [0, 2, 3, 4][:limit]
