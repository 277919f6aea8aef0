"""Files that the writer of rows makes: what other readers find in them, and what is said of them."""

from __future__ import annotations

import io
import struct
import uuid
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.iceberg.rows.file_metrics import FileMetrics, SeenValues, file_metrics
from iceberg_cli.iceberg.rows.leaf_columns import arrow_schema, leaf_columns
from iceberg_cli.iceberg.rows.metrics_modes import FULL, metrics_modes
from iceberg_cli.iceberg.rows.parquet_files import ParquetFiles
from iceberg_cli.iceberg.rows.parquet_properties import parquet_properties
from iceberg_cli.iceberg.spec.table_metadata.columns import ROW_LINEAGE
from iceberg_cli.iceberg.spec.types.schema import ListType, MapType, NestedField, StructType, Type
from iceberg_cli.storage.local import LocalStorage
from tests.iceberg.rows.pages import pages_of

MIB = 1 << 20


def field(field_id: int, name: str, type_: Type, *, required: bool = False) -> NestedField:
    return NestedField(field_id=field_id, name=name, required=required, type=type_)


def files_of(fields: Sequence[NestedField], properties: dict[str, str]) -> ParquetFiles:
    return ParquetFiles(
        fields=tuple(fields),
        properties=parquet_properties(leaf_columns(fields), properties),
        modes=metrics_modes(fields, properties)[0],
    )


def write(
    fields: Sequence[NestedField],
    batches: Sequence[pa.Table],
    properties: dict[str, str] | None = None,
    **options: Any,
) -> tuple[bytes, FileMetrics | None]:
    """The file that is made of some rows, and what is said of it."""
    given = {"write.parquet.compression-codec": "zstd", **(properties or {})}
    sink = io.BytesIO()
    writer = files_of(fields, given).writer(sink, "new.parquet", **{"most_held_bytes": 64 * MIB, **options})
    for rows in batches:
        writer.write(rows)
    metrics = writer.close()
    return sink.getvalue(), metrics


def test_the_new_object_of_a_storage_gets_the_same_bytes_and_is_committed_by_whoever_made_it(
    tmp_path: Path,
) -> None:
    fields = [field(1, "id", "long", required=True)]
    rows = pa.table({"id": pa.array(range(100_000), pa.int64())}, schema=arrow_schema(fields))
    expected, _ = write(fields, [rows])
    given = {"write.parquet.compression-codec": "zstd"}
    with LocalStorage().create(f"{tmp_path}/new.parquet") as sink:
        writer = files_of(fields, given).writer(sink, "new.parquet", most_held_bytes=64 * MIB)
        writer.write(rows)
        writer.close()
        assert list(tmp_path.iterdir()) == []
        sink.commit()
    assert (tmp_path / "new.parquet").read_bytes() == expected


def measured(fields: Sequence[NestedField], *batches: pa.Table, **properties: str) -> FileMetrics:
    metrics = write(fields, batches, properties)[1]
    assert metrics is not None
    return metrics


def footer_of(data: bytes) -> Any:
    return pq.read_metadata(pa.BufferReader(data))


DEEP = field(
    1,
    "deep",
    ListType(
        element_id=2,
        element_required=False,
        element=StructType(
            fields=(
                field(3, "x", "int", required=True),
                field(
                    4,
                    "m",
                    MapType(
                        key_id=5,
                        key="string",
                        value_id=6,
                        value_required=False,
                        value=ListType(element_id=7, element_required=False, element="int"),
                    ),
                ),
            )
        ),
    ),
)


def test_nulls_and_empties_at_every_level_stay_what_they_are() -> None:
    values = [
        None,
        [],
        [None],
        [{"x": 1, "m": None}],
        [{"x": 2, "m": []}],
        [{"x": 3, "m": [("k", None)]}],
        [{"x": 4, "m": [("k", [])]}, None],
        [{"x": 5, "m": [("k", [None, 7]), ("l", [8])]}],
    ]
    rows = pa.table(
        {
            "deep": pa.array(
                values,
                pa.list_(pa.struct([("x", pa.int32()), ("m", pa.map_(pa.string(), pa.list_(pa.int32())))])),
            )
        }
    )
    data, metrics = write([DEEP], [rows])
    assert pq.read_table(pa.BufferReader(data)).column("deep").to_pylist() == values
    assert metrics is not None
    assert set(metrics.column_sizes) == {3, 5, 7}
    assert (metrics.value_counts, metrics.null_value_counts, metrics.lower_bounds, metrics.upper_bounds) == (
        {},
        {},
        {},
        {},
    )


def test_an_optional_struct_around_a_required_field_may_be_null() -> None:
    fields = [field(1, "st", StructType(fields=(field(2, "p", "long", required=True),)))]
    rows = pa.table({"st": pa.array([{"p": 1}, None], pa.struct([("p", pa.int64())]))})
    data, metrics = write(fields, [rows])
    assert pq.read_table(pa.BufferReader(data)).column("st").to_pylist() == [{"p": 1}, None]
    assert metrics is not None
    assert metrics.null_value_counts == {2: 1}


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"id": pa.array([1, None], pa.int64())}),
        pa.table({"id": pa.array(["a"])}),
        pa.table({"other": pa.array([1], pa.int64())}),
    ],
)
def test_rows_that_do_not_fit_the_schema_are_refused(rows: pa.Table) -> None:
    with pytest.raises(CorruptFile, match=r"new\.parquet.*they do not fit the schema"):
        write([field(1, "id", "long", required=True)], [rows])


def test_without_rows_there_is_no_file() -> None:
    fields = [field(1, "id", "long")]
    assert write(fields, []) == (b"", None)
    assert write(fields, [pa.table({"id": pa.array([], pa.int64())})]) == (b"", None)


@pytest.mark.parametrize(
    "type_", ["variant", "geometry(OGC:CRS84)", "geography", StructType(fields=(field(9, "u", "unknown"),))]
)
def test_types_that_are_not_written_are_refused_by_the_column(type_: Type) -> None:
    with pytest.raises(
        Refused, match=r"Cannot write column outer\.x: values of type .* are not written here"
    ):
        arrow_schema([field(1, "outer", StructType(fields=(field(2, "x", type_),)))])


def test_a_column_of_unknown_type_is_in_no_file() -> None:
    fields = [field(1, "id", "long"), field(2, "u", "unknown")]
    data, metrics = write(fields, [pa.table({"id": pa.array([1], pa.int64())})])
    assert footer_of(data).schema.names == ["id"]
    assert metrics is not None
    assert metrics.value_counts == {1: 1}


def test_bits_of_numbers_are_kept() -> None:
    patterns = [
        0x7FF8000000000000,
        0x7FF8000000000001,
        0xFFF8000000000123,
        0x8000000000000000,
        0,
        0x7FF0000000000000,
    ]
    values = pa.Array.from_buffers(pa.float64(), 6, [None, pa.py_buffer(struct.pack("<6Q", *patterns))])
    data, metrics = write([field(1, "x", "double")], [pa.table({"x": values})])
    read = pq.read_table(pa.BufferReader(data)).column("x").combine_chunks()
    assert read.to_numpy().view(np.uint64).tolist() == patterns
    assert metrics is not None
    assert metrics.nan_value_counts == {1: 3}
    assert metrics.lower_bounds == {1: struct.pack("<d", -0.0)}
    assert metrics.upper_bounds == {1: struct.pack("<d", float("inf"))}


def test_a_column_of_nan_alone_has_no_bounds() -> None:
    nan = pa.table({"x": pa.array([float("nan")] * 3, pa.float32())})
    metrics = measured([field(1, "x", "float")], nan)
    assert (metrics.nan_value_counts, metrics.lower_bounds, metrics.upper_bounds) == ({1: 3}, {}, {})


@pytest.mark.parametrize(
    ("precision", "physical"),
    [(9, "INT32"), (10, "INT64"), (18, "INT64"), (19, "FIXED_LEN_BYTE_ARRAY"), (38, "FIXED_LEN_BYTE_ARRAY")],
)
def test_decimals_are_stored_as_small_as_the_specification_says(precision: int, physical: str) -> None:
    values = [Decimal("-1.29"), Decimal("1.28"), Decimal("0.00"), None]
    type_ = pa.decimal128(precision, 2)
    data, metrics = write(
        [field(1, "d", f"decimal({precision}, 2)")], [pa.table({"d": pa.array(values, type_)})]
    )
    assert footer_of(data).row_group(0).column(0).physical_type == physical
    assert pq.read_table(pa.BufferReader(data)).column("d").to_pylist() == values
    assert metrics is not None
    assert (metrics.lower_bounds[1].hex(), metrics.upper_bounds[1].hex()) == ("ff7f", "0080")


@pytest.mark.parametrize(
    ("values", "has_bounds"),
    [
        # Halves of one sign each: their order by bytes is Java's.
        (["00000000-0000-4000-8000-000000000000", "7fffffff-0000-4000-bfff-ffffffffffff"], True),
        (["00000000-0000-4000-8000-000000000000", "80000000-0000-4000-8000-000000000000"], False),
        (["00000000-0000-4000-0000-000000000000", "00000000-0000-4000-8000-000000000000"], False),
    ],
)
def test_uuids_have_bounds_where_every_reader_orders_them_alike(values: list[str], has_bounds: bool) -> None:
    raw = [uuid.UUID(value).bytes for value in values]
    other = uuid.UUID("ffffffff-ffff-ffff-ffff-ffffffffffff").bytes
    column = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([other, *raw, None], pa.binary(16)))
    data, metrics = write([field(1, "u", "uuid")], [pa.table({"u": column}).slice(1)])
    assert "UUID" in str(footer_of(data).schema.column(0).logical_type)
    assert metrics is not None
    expected = ({1: raw[0]}, {1: raw[1]}) if has_bounds else ({}, {})
    assert (metrics.lower_bounds, metrics.upper_bounds) == expected


def test_values_that_are_too_long_for_footers_have_bounds_all_the_same() -> None:
    fields = [field(1, "s", "string"), field(2, "b", "binary")]
    groups = [["b" * 4096, "c"], ["a" * 4097, "d"], ["bb", "e" * 4097], [None, None]]
    batches = [pa.table({"s": each, "b": pa.array(each).cast(pa.binary())}) for each in groups]
    data, metrics = write(fields, batches, most_held_bytes=1)
    assert footer_of(data).num_row_groups == 4
    assert metrics is not None
    assert metrics.lower_bounds == {1: b"a" * 16, 2: b"a" * 16}
    assert metrics.upper_bounds == {1: b"e" * 15 + b"f", 2: b"e" * 15 + b"f"}


def test_a_row_group_of_nan_alone_does_not_hide_the_bounds_of_others() -> None:
    batches = [pa.table({"x": [value]}) for value in (float("nan"), 1.0)]
    data, metrics = write([field(1, "x", "double")], batches, most_held_bytes=1)
    assert footer_of(data).num_row_groups == 2
    assert metrics is not None
    assert metrics.lower_bounds == metrics.upper_bounds == {1: struct.pack("<d", 1.0)}


def test_a_footer_of_other_columns_is_no_footer_of_ours() -> None:
    data, _ = write([field(1, "x", "double")], [pa.table({"x": [1.0]})])
    seen = SeenValues(leaves=leaf_columns([field(1, "y", "double")]), modes={1: FULL})
    with pytest.raises(CorruptFile, match=r"new\.parquet.*the footer has the columns x"):
        file_metrics(footer_of(data), seen, "new.parquet")


def test_how_strings_lie_in_memory_is_not_the_file_s() -> None:
    fields = [field(1, "s", "string"), field(2, "v", "string"), field(3, "d", "string")]
    rows = pa.table(
        {
            "s": pa.array(["a", None], pa.large_string()),
            "v": pa.array(["a", None], pa.string_view()),
            "d": pa.array(["a", None]).dictionary_encode(),
        }
    )
    data, _ = write(fields, [rows])
    read = pq.read_table(pa.BufferReader(data))
    assert read.schema.types == [pa.string()] * 3
    assert read.to_pylist() == [dict.fromkeys("svd", "a"), dict.fromkeys("svd")]


def test_rows_keep_their_ids_in_columns_with_reserved_ids() -> None:
    fields = [field(1, "id", "long"), *ROW_LINEAGE]
    rows = pa.table(
        {"id": [1, 2], "_row_id": pa.array([7, None], pa.int64()), "_last_updated_sequence_number": [3, 3]}
    )
    data, _ = write(fields, [rows])
    assert [line.strip() for line in str(footer_of(data).schema).splitlines()[3:5]] == [
        "optional int64 field_id=2147483540 _row_id;",
        "optional int64 field_id=2147483539 _last_updated_sequence_number;",
    ]


def test_another_reader_finds_the_same_rows(tmp_path: Any) -> None:
    fields = [
        field(1, "id", "long"),
        field(2, "s", "string"),
        field(3, "d", "decimal(12,2)"),
        field(4, "t", "timestamp"),
    ]
    rows = pa.table(
        {
            "id": pa.array(range(1000), pa.int64()),
            "s": [None if n % 7 == 0 else f"é{n % 13}" for n in range(1000)],
            "d": pa.array([Decimal(n - 500) / 4 for n in range(1000)], pa.decimal128(12, 2)),
            "t": pa.array([n * 1_000_003 for n in range(1000)], pa.timestamp("us")),
        }
    )
    data, _ = write(fields, [rows], {"write.parquet.bloom-filter-enabled.column.id": "true"})
    (tmp_path / "new.parquet").write_bytes(data)
    read = duckdb.sql(f"SELECT * FROM read_parquet('{tmp_path}/new.parquet')").to_arrow_table()
    assert read.to_pylist() == rows.to_pylist()


# -- row groups ------------------------------------------------------------------------------------------------------

WIDE = [field(1, "id", "long"), field(2, "key", "string"), field(3, "noise", "double")]


def many_rows(first: int, count: int) -> pa.Table:
    draw = np.random.default_rng(first)
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "key": pa.array([f"key {n}" for n in draw.integers(0, 500, count)]),
            "noise": pa.array(draw.normal(size=count)),
        }
    )


@pytest.mark.parametrize("bytes_per_row", [None, 13.0])
def test_row_groups_are_about_as_large_as_asked(bytes_per_row: float | None) -> None:
    batches = [many_rows(first, 20_000) for first in range(0, 300_000, 20_000)]
    data, metrics = write(
        WIDE, batches, {"write.parquet.row-group-size-bytes": str(MIB)}, bytes_per_row=bytes_per_row
    )
    footer = footer_of(data)
    sizes = [
        sum(footer.row_group(i).column(j).total_compressed_size for j in range(3))
        for i in range(footer.num_row_groups)
    ]
    assert len(sizes) >= 3
    assert all(0.5 * MIB <= size <= 1.1 * MIB for size in sizes[:-1])
    assert sizes[-1] <= 1.1 * MIB
    assert metrics is not None
    assert list(metrics.split_offsets) == sorted(set(metrics.split_offsets))
    assert len(metrics.split_offsets) == len(sizes)
    assert sum(metrics.column_sizes.values()) == sum(sizes)
    assert pq.read_table(pa.BufferReader(data)).equals(pa.concat_tables(batches).combine_chunks())


def test_a_row_group_is_closed_before_more_is_held_than_may_be() -> None:
    batches = [many_rows(first, 1000).select(["id", "noise"]) for first in range(0, 10_000, 1000)]
    data, _ = write([WIDE[0], WIDE[2]], batches, most_held_bytes=3 * 16_000)
    footer = footer_of(data)
    assert [footer.row_group(index).num_rows for index in range(footer.num_row_groups)] == [
        3000,
        3000,
        3000,
        1000,
    ]


def test_a_file_may_end_with_a_row_group_and_leave_the_rows_after_it_to_another() -> None:
    sink = io.BytesIO()
    fields = [WIDE[0]]
    writer = files_of(fields, {}).writer(sink, "new.parquet", bytes_per_row=8.0, most_held_bytes=8 * 300)
    rows = many_rows(0, 1000).select(["id"])
    writer.add(rows.slice(0, 299))
    assert (writer.write_group(), writer.written_rows, writer.written_bytes) == (False, 0, 0)
    writer.add(rows.slice(299))
    assert writer.write_group()
    assert writer.written_rows == 1000  # all that were held when these were too many
    writer.add(rows)
    metrics = writer.close_at_group_end()
    assert metrics is not None
    assert metrics.record_count == 1000
    assert pq.read_table(pa.BufferReader(sink.getvalue())).equals(rows)


def test_no_row_group_is_written_of_no_rows_however_little_may_be_held() -> None:
    fields = [field(1, "l", ListType(element_id=2, element_required=False, element="string"))]
    rows = pa.table({"l": pa.array([["a", "b"], ["c"]], pa.list_(pa.string()))})
    data, metrics = write(fields, [rows, rows.slice(0, 0), rows], most_held_bytes=1)
    assert metrics is not None
    assert metrics.record_count == 4
    assert len(pq.read_table(pa.BufferReader(data))) == 4


def test_without_a_row_group_there_is_no_file_that_ends_with_one() -> None:
    sink = io.BytesIO()
    writer = files_of(WIDE, {}).writer(sink, "new.parquet", most_held_bytes=MIB)
    writer.add(many_rows(0, 10))
    assert writer.close_at_group_end() is None
    assert sink.getvalue() == b""


def test_large_values_have_pages_of_their_own() -> None:
    """A page has one value at least; a thousand of these would not fit any page."""
    values = [bytes([n]) * (3 * MIB) for n in range(8)]
    properties = {
        "write.parquet.dict-encoding-enabled.column.b": "false",
        "write.parquet.compression-codec": "snappy",
    }
    data, _ = write([field(1, "b", "binary")], [pa.table({"b": values})], properties)
    pages = pages_of(data, footer_of(data).row_group(0).column(0))
    assert [page.values for page in pages] == [1] * 8


@pytest.mark.parametrize(("fpp", "ndv"), [(0.01, None), (0.3, None), (0.001, 50), (0.01, 10_000_000)])
@pytest.mark.parametrize("most", [32, 1000, 4096, MIB])
def test_bloom_filters_are_no_larger_than_they_may_be(fpp: float, ndv: int | None, most: int) -> None:
    prefix = "write.parquet.bloom-filter"
    properties = {
        f"{prefix}-enabled.column.id": "true",
        f"{prefix}-fpp.column.id": str(fpp),
        f"{prefix}-max-bytes": str(most),
        **({} if ndv is None else {f"{prefix}-ndv.column.id": str(ndv)}),
    }
    data, _ = write(WIDE, [many_rows(0, 5000)], properties)
    chunk = footer_of(data).row_group(0).column(0)
    header = 64  # at most
    assert 32 <= chunk.bloom_filter_length <= most + header
    if most == MIB and ndv is None and fpp == 0.01:
        assert (
            chunk.bloom_filter_length >= 5000
        )  # as many as there are rows take a byte at least at this rate
