"""Files that are written here are as Spark writes the same rows under the same properties: footers and entries."""

from __future__ import annotations

import io
import json
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.iceberg.rows.file_metrics import FileMetrics
from iceberg_cli.iceberg.rows.leaf_columns import leaf_columns
from iceberg_cli.iceberg.rows.metrics_modes import metrics_modes
from iceberg_cli.iceberg.rows.parquet_files import ParquetFiles
from iceberg_cli.iceberg.rows.parquet_properties import parquet_properties
from iceberg_cli.iceberg.spec.types.schema import Schema
from iceberg_cli.layout.row_proof import row_proof
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.iceberg_reader import entries_of, manifests_of, snapshot_of
from tests.iceberg.rows.pages import Page, pages_of
from tests.spark_tables import Lake, Shape, Writing, insert

COLUMNS = (
    "id bigint NOT NULL, b boolean, i int, f float, g double, c decimal(9, 2), d decimal(15, 3), e decimal(30, 4),"
    " day date, ts timestamp, n timestamp_ntz, s string, last string, bin binary, ff binary, nothing string,"
    " nan double, zero float, a array<int>, fs array<double>, m map<string, struct<x: int, y: string>>,"
    " st struct<p: int NOT NULL, q: struct<r: double, w: array<string>>>"
)
ROWS = (
    "if(id % 5 = 4, null, id % 2 = 0), cast(id as int) - 5,"
    " if(id = 1, cast('NaN' as float), cast(id / 7 as float)), if(id = 2, null, -id / 3),"
    " cast(id as decimal(9, 2)) / 4 - 1, -cast(id as decimal(15, 3)) * 1000000, cast(id as decimal(30, 4)) * 1e15 - 7,"
    " date_add(DATE '1969-12-30', cast(id as int)), timestamp_micros(id * 1000003 - 5000000),"
    " cast(timestamp_micros(id * 7777777) as timestamp_ntz), concat(repeat('ü', 20), id),"
    " repeat(decode(unhex('F48FBFBF'), 'UTF-8'), 17), cast(concat(repeat('x', 20), id) as binary),"
    " unhex(repeat('FF', 20)), null, cast('NaN' as double), if(id % 2 = 0, cast(0.0 as float), cast('-0.0' as float)),"
    " if(id = 3, null, if(id = 4, array(), array(cast(id as int), null))), array(cast('NaN' as double), id / 2),"
    " if(id = 5, null, if(id = 6, map(), map(concat('k', id), named_struct('x', cast(id as int), 'y', null)))),"
    " if(id = 7, null, named_struct('p', cast(id as int), 'q', if(id = 8, null,"
    " named_struct('r', id / 3, 'w', array('a', concat('b', id))))))"
)
PLAIN = Shape(name="rows_by_default", version=2, columns=COLUMNS).then(insert(0, 29, ROWS))
TUNED = Shape(
    name="rows_by_properties",
    version=2,
    columns=COLUMNS,
    properties={
        "write.parquet.compression-codec": "gzip",
        "write.parquet.compression-level": "BEST_COMPRESSION",
        "write.parquet.page-row-limit": "10",
        "write.parquet.page-version": "v2",
        "write.parquet.dict-encoding-enabled.column.s": "false",
        "write.parquet.stats-enabled.column.i": "false",
        "write.parquet.bloom-filter-enabled.column.id": "true",
        "write.parquet.bloom-filter-enabled.column.st.q.r": "true",
        "write.parquet.bloom-filter-max-bytes": "4096",
        "write.metadata.metrics.default": "counts",
        "write.metadata.metrics.column.id": "full",
        "write.metadata.metrics.column.s": "truncate(3)",
        "write.metadata.metrics.column.bin": "full",
        "write.metadata.metrics.column.i": "full",
        "write.metadata.metrics.column.g": "none",
        "write.metadata.metrics.column.m.value.y": "none",
        "write.metadata.metrics.column.st.p": "full",
        "write.metadata.metrics.column.ff": "truncate(2)",
    },
).then(insert(0, 29, ROWS))


COUNTS = ("value_counts", "null_value_counts", "nan_value_counts")


@dataclass(frozen=True)
class Pair:
    """Two files of the same rows: what Spark's manifest says of one, and we of the other."""

    table: str
    entry: dict[str, Any]
    metrics: FileMetrics
    spark: bytes
    ours: bytes

    @property
    def footers(self) -> tuple[Any, Any]:
        """Spark's and ours."""
        return pq.read_metadata(pa.BufferReader(self.spark)), pq.read_metadata(pa.BufferReader(self.ours))

    def pages(self) -> tuple[dict[str, list[Page]], dict[str, list[Page]]]:
        """By column, the pages of Spark's file and of ours."""
        found = []
        for data, footer in zip((self.spark, self.ours), self.footers, strict=True):
            (group,) = (footer.row_group(index) for index in range(footer.num_row_groups))
            chunks = [group.column(index) for index in range(group.num_columns)]
            found.append({chunk.path_in_schema: pages_of(data, chunk) for chunk in chunks})
        return found[0], found[1]


@pytest.fixture(params=[PLAIN, TUNED], ids=lambda shape: shape.name)
def pair(hadoop: Lake, written: Writing, request: pytest.FixtureRequest) -> Pair:
    table = written(hadoop, request.param)
    storage, document = LocalStorage(), hadoop.metadata(table)
    (manifest,) = manifests_of(storage, snapshot_of(document, document["current-snapshot-id"]))
    (entry,) = entries_of(storage, manifest)
    spark = Path(entry["file_path"].removeprefix("file:")).read_bytes()
    schema = Schema.from_json(document["schemas"][0], path=table)
    return Pair(request.param.name, entry, *rewritten(spark, schema, document["properties"]))


def rewritten(spark: bytes, schema: Schema, properties: dict[str, str]) -> tuple[FileMetrics, bytes, bytes]:
    """The metrics of what we write of a file of Spark's, that file, and ours."""
    asked = parquet_properties(leaf_columns(schema.fields), properties)
    modes, refused = metrics_modes(schema.fields, properties)
    assert (asked.refused, refused) == ({}, {})
    sink = io.BytesIO()
    files = ParquetFiles(fields=schema.fields, properties=asked, modes=modes)
    writer = files.writer(sink, "ours", bytes_per_row=100, most_held_bytes=1 << 26)
    writer.write(pq.read_table(pa.BufferReader(spark)))
    metrics = writer.close()
    assert metrics is not None
    return metrics, spark, sink.getvalue()


def of_entry(entry: dict[str, Any], name: str) -> dict[int, Any]:
    return {each["key"]: each["value"] for each in entry[name]}


def test_rows_are_the_same(pair: Pair) -> None:
    spark, ours = (pq.read_table(pa.BufferReader(data)) for data in (pair.spark, pair.ours))
    assert str(ours.to_pylist()) == str(spark.to_pylist())  # as text NaN is equal to NaN
    assert row_proof(ours) == row_proof(spark) != row_proof(spark.slice(1))
    assert pair.metrics.record_count == pair.entry["record_count"] == 30


def test_counts_and_bounds_are_those_of_the_entry(pair: Pair) -> None:
    for name in (*COUNTS, "upper_bounds"):
        assert dict(getattr(pair.metrics, name)) == of_entry(pair.entry, name), name
    # A reader that orders zeros by their signs may ask for -0.0, which Spark's bound of 0.0 excludes.
    zeros = {4: struct.pack("<f", -0.0), 18: struct.pack("<f", -0.0), 31: struct.pack("<d", -0.0)}
    lower = of_entry(pair.entry, "lower_bounds")
    assert dict(pair.metrics.lower_bounds) == lower | {key: zeros[key] for key in zeros if key in lower}
    assert {lower.get(key, b"").strip(b"\x00") for key in zeros} == {b""}
    assert pair.metrics.column_sizes.keys() == of_entry(pair.entry, "column_sizes").keys()


def test_sizes_and_offsets_are_those_of_the_footer(pair: Pair) -> None:
    _, footer = pair.footers
    chunks = [footer.row_group(0).column(index) for index in range(footer.num_columns)]
    assert sum(pair.metrics.column_sizes.values()) <= sum(chunk.total_compressed_size for chunk in chunks)
    assert pair.metrics.split_offsets == (4,)
    assert pair.entry["split_offsets"] == [4]


def test_columns_have_the_same_types_ids_and_levels(pair: Pair) -> None:
    spark, ours = (str(footer.schema).splitlines()[2:] for footer in pair.footers)
    assert [optional(line) for line in ours] == [optional(line) for line in spark]
    # Spark says of columns that no row of this query can leave null that none may.
    assert {line.split()[3] for line in ours if line.strip().startswith("required")} == {"id;", "p;", "key"}


def test_the_footer_has_the_schema_as_a_document(pair: Pair) -> None:
    spark, ours = (json.loads(footer.metadata[b"iceberg.schema"]) for footer in pair.footers)
    assert [of_field(each) for each in ours["fields"]] == [of_field(each) for each in spark["fields"]]


def of_field(field: dict[str, Any]) -> tuple[Any, ...]:
    return (
        field["id"],
        field["name"],
        re.sub(r'"(?:element-|value-)?required": \w+', "", json.dumps(field["type"])),
    )


def optional(line: str) -> str:
    return line.replace("required", "optional")


def test_columns_are_encoded_and_described_alike(pair: Pair) -> None:
    spark, ours = (described(footer) for footer in pair.footers)
    assert ours == spark


def test_a_dictionary_is_where_spark_has_one_and_nowhere_where_none_is_asked_for(pair: Pair) -> None:
    """Parquet for Java drops a dictionary that saves nothing; Arrow keeps it."""
    spark, ours = (
        {
            chunk.path_in_schema
            for index in range(footer.num_columns)
            if (chunk := footer.row_group(0).column(index)).has_dictionary_page
        }
        for footer in pair.footers
    )
    assert spark <= ours
    assert ("s" in ours) == (pair.table == "rows_by_default")


def described(footer: Any) -> dict[str, tuple[Any, ...]]:
    """Of each column what properties decide."""
    found = {}
    for index in range(footer.num_columns):
        chunk = footer.row_group(0).column(index)
        found[chunk.path_in_schema] = (
            chunk.compression,
            chunk.bloom_filter_offset is not None,
            chunk.statistics is not None and chunk.statistics.has_null_count,
            chunk.has_offset_index,
        )
    return found


def test_pages_are_of_the_same_kind_and_have_no_more_rows_than_asked(pair: Pair) -> None:
    """Parquet for Java looks only after a hundred rows whether a page has too many."""
    spark, ours = pair.pages()
    kinds = {page.kind for pages in spark.values() for page in pages if page.is_data}
    assert kinds == {page.kind for pages in ours.values() for page in pages if page.is_data}
    rows = {path: [page.values for page in pages if page.is_data] for path, pages in ours.items()}
    assert rows["id"] == rows["nothing"] == ([30] if pair.table == "rows_by_default" else [10, 10, 10])
    assert {path: sum(some) for path, some in rows.items()} == {
        path: sum(page.values for page in pages if page.is_data) for path, pages in spark.items()
    }


def test_bloom_filters_are_not_larger_than_asked(pair: Pair) -> None:
    for footer in pair.footers:
        for index in range(footer.num_columns):
            length = footer.row_group(0).column(index).bloom_filter_length
            assert length is None or length <= 4096 + 64  # with its header
