"""What table properties ask of Parquet files, and which of them are not obeyed."""

from __future__ import annotations

import pytest

from iceberg_cli.iceberg.rows.leaf_columns import LeafColumn
from iceberg_cli.iceberg.rows.parquet_properties import (
    BloomFilter,
    ParquetProperties,
    parquet_properties,
)

PREFIX = "write.parquet."
LEAVES = tuple(
    LeafColumn(field_id=field_id, name=name, path=name, type=type_, is_repeated=False)
    for field_id, name, type_ in ((1, "id", "long"), (2, "st.p", "string"), (3, "b", "boolean"))
)


def read(**values: str) -> ParquetProperties:
    """Properties by their names without the prefix, `_` for `-`."""
    return parquet_properties(
        LEAVES, {PREFIX + name.replace("_", "-"): text for name, text in values.items()} | {"other": "1"}
    )


def test_what_is_not_set_is_as_in_iceberg_java() -> None:
    assert read() == ParquetProperties(
        codec="gzip", level=6, row_group_bytes=134_217_728, page_bytes=1_048_576, page_rows=20_000,
        page_version="1.0", dictionary_bytes=2_097_152, bloom_bytes=1_048_576,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("codec", "level", "expected", "without_effect"),
    [
        ("zstd", None, 3, ()),
        ("ZSTD", "19", 19, ()),
        ("gzip", "1", 1, ()),
        ("gzip", "best_compression", 9, ()),  # as Iceberg Java spells it
        ("snappy", None, None, ()),
        ("snappy", "4", None, ("compression-level",)),
        ("uncompressed", "4", None, ("compression-level",)),
        ("lz4_raw", None, None, ()),
        ("brotli", "5", 5, ()),
    ],
)
def test_a_level_is_that_of_the_codec(
    codec: str, level: str | None, expected: int | None, without_effect: tuple[str, ...]
) -> None:
    found = read(compression_codec=codec, **({} if level is None else {"compression_level": level}))
    assert (found.codec, found.level) == (codec.lower(), expected)
    assert found.without_effect == tuple(PREFIX + name for name in without_effect)
    assert found.refused == {}


def test_columns_are_found_by_their_names() -> None:
    found = parquet_properties(
        LEAVES,
        {
            f"{PREFIX}dict-encoding-enabled.column.st.p": "false",
            f"{PREFIX}dict-encoding-enabled.column.id": "true",
            f"{PREFIX}stats-enabled.column.id": "False",
            f"{PREFIX}bloom-filter-enabled.column.id": "true",
            f"{PREFIX}bloom-filter-enabled.column.st.p": "TRUE",
            f"{PREFIX}bloom-filter-enabled.column.b": "true",
            f"{PREFIX}bloom-filter-enabled.column.dropped": "true",
            f"{PREFIX}bloom-filter-fpp.column.st.p": "0.1",
            f"{PREFIX}bloom-filter-ndv.column.st.p": "700",
        },
    )
    assert found.without_dictionary == {2}
    assert found.without_statistics == {1}
    assert found.bloom_filters == {1: BloomFilter(fpp=0.01, ndv=None), 2: BloomFilter(fpp=0.1, ndv=700)}
    # Parquet has none of booleans, and nobody has one of a column that is not there.
    assert found.without_effect == (
        f"{PREFIX}bloom-filter-enabled.column.b",
        f"{PREFIX}bloom-filter-enabled.column.dropped",
    )
    assert found.refused == {}


@pytest.mark.parametrize("number", [1, 2_147_483_647])
def test_sizes_are_numbers_that_java_holds(number: int) -> None:
    found = read(page_size_bytes=str(number), page_row_limit=f" {number} ", dict_size_bytes=str(number))
    assert (found.page_bytes, found.page_rows, found.dictionary_bytes) == (number, number, number)
    assert found.refused == {}


def test_how_other_writers_find_the_end_of_a_row_group_has_no_effect() -> None:
    found = read(row_group_check_min_record_count="7", bloom_filter_adaptive_enabled="true")
    assert found.without_effect == (
        f"{PREFIX}bloom-filter-adaptive-enabled",
        f"{PREFIX}row-group-check-min-record-count",
    )
    assert found.refused == {}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("compression-codec", "lz4", "'lz4' is Hadoop's framing, which is not written here; lz4_raw is"),
        ("compression-codec", "lzo", "'lzo' is no codec of Parquet files"),
        ("compression-level", "best", "'best' is no level of gzip"),
        ("compression-level", "77", "'77' is no level of gzip"),
        ("row-group-size-bytes", "0", "'0' is no number from 1 to 2147483647"),
        ("page-row-limit", "many", "'many' is no number from 1 to 2147483647"),
        ("page-row-limit", "2147483648", "'2147483648' is no number from 1 to 2147483647"),
        ("bloom-filter-fpp.column.id", "0", "'0' is no rate between 0 and 1"),
        ("bloom-filter-fpp.column.id", "1", "'1' is no rate between 0 and 1"),
        ("page-version", "v3", "'v3' is neither v1 nor v2"),
        ("bloom-filter-fpp.column.id", "1.5", "'1.5' is no rate between 0 and 1"),
        ("bloom-filter-fpp.column.id", "nan", "'nan' is no rate between 0 and 1"),
        ("new-thing", "true", "iceberg-cli does not know it"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_by_its_name(name: str, text: str, reason: str) -> None:
    found = parquet_properties(LEAVES, {PREFIX + name: text})
    assert found.refused == {PREFIX + name: reason}
