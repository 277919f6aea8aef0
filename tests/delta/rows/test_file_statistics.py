"""Bounds of rows as the log has them: no value is outside of them, for any reader; and what is left out."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.delta.rows.file_statistics import StatisticsOfRows
from iceberg_cli.delta.spec.statistics_columns import statistics_type
from iceberg_cli.testing.delta_writer import a_field, a_schema

KINDS = {
    "long": pa.int64(), "byte": pa.int8(), "float": pa.float32(), "double": pa.float64(), "string": pa.string(),
    "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    "decimal(38,2)": pa.decimal128(38, 2), "boolean": pa.bool_(), "binary": pa.binary(),
}  # fmt: skip
U = "\U0010ffff"


def statistics(*batches: list[Any], kind: str = "long", vectors: bool = False) -> str:
    collected = StatisticsOfRows(
        kind=statistics_type(a_schema(a_field("c", kind)), (), {}, deletion_vectors=vectors)
    )
    for values in batches:
        collected.see(pa.table({"c": pa.array(values, KINDS[kind])}))
    return collected.measured(None, "f").json


def bounds(kind: str, *values: Any) -> tuple[Any, Any]:
    found = json.loads(statistics([*values], kind=kind), parse_float=str, parse_int=str)
    return found["minValues"].get("c"), found["maxValues"].get("c")


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("long", [3, None, -(1 << 63)], ("-9223372036854775808", "3")),
        ("byte", [1], ("1", "1")),
        ("double", [1.5, -2.25], ("-2.25", "1.5")),
        ("double", [0.0], ("-0.0", "0.0")),
        ("double", [1.0, float("nan")], (None, None)),
        ("float", [1.0, float("-inf")], (None, None)),
        ("decimal(38,2)", [Decimal("1" * 36 + ".25")], ("1" * 36 + ".25", "1" * 36 + ".25")),
        ("date", [date(1, 1, 1), date(9999, 12, 31)], ("0001-01-01", "9999-12-31")),
        (
            "timestamp",
            [datetime(2026, 1, 1, 12, 0, 0, 123_999, UTC)],
            ("2026-01-01T12:00:00.123Z", "2026-01-01T12:00:00.124Z"),
        ),
        (
            "timestamp",
            [datetime(1899, 12, 31, 23, 59, 59, 999_999, UTC)],
            ("1899-12-31T23:59:59.999Z", "1900-01-01T00:00:00.000Z"),
        ),
        ("timestamp", [datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)], ("9999-12-31T23:59:59.999Z", None)),
        (
            "timestamp_ntz",
            [datetime(2026, 1, 1, 12)],  # noqa: DTZ001 - it has none
            ("2026-01-01T12:00:00.000", "2026-01-01T12:00:00.000"),
        ),
        ("string", ["b", "a" * 32], ("a" * 32, "b")),
        ("string", ["a" * 33], ("a" * 32, "a" * 32 + "\x7f")),
        ("string", ["a" * 32 + "\x7f"], ("a" * 32, "a" * 32 + U)),
        ("string", ["a" * 31 + "\U0001f600z"], ("a" * 31 + "\U0001f600", "a" * 31 + U)),
        ("string", [U * 40], (U * 32, U * 40)),
        ("string", [U * 100], (U * 32, None)),
        ("long", [None], (None, None)),
    ],
)
def test_bounds_are_written_so(kind: str, values: list[Any], expected: tuple[Any, Any]) -> None:
    """D20, D21; hazards 24 to 26."""
    assert bounds(kind, *values) == expected


@given(st.lists(st.text(max_size=80), min_size=1, max_size=4))
def test_no_text_is_outside_of_its_bounds(texts: list[str]) -> None:
    least, greatest = bounds("string", *texts)
    assert least.encode() <= min(text.encode() for text in texts)
    assert greatest is None or greatest.encode() >= max(text.encode() for text in texts)


def test_row_groups_count_together_and_a_nan_in_any_of_them_takes_the_bounds_away() -> None:
    assert json.loads(statistics([1.0], [float("nan"), None], [5.0], kind="double", vectors=True)) == {
        "numRecords": 4, "minValues": {}, "maxValues": {}, "nullCount": {"c": 1}, "tightBounds": True,
    }  # fmt: skip
    assert json.loads(statistics([3, 4], [1], [None, 9])) == {
        "numRecords": 5, "minValues": {"c": 1}, "maxValues": {"c": 9}, "nullCount": {"c": 1},
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), [("boolean", True), ("binary", b"x")])
def test_of_some_types_only_nulls_are_counted(kind: str, value: Any) -> None:
    assert json.loads(statistics([value, None], kind=kind)) == {"numRecords": 2, "nullCount": {"c": 1}}


def test_fields_of_structs_are_nested_and_null_where_the_struct_is() -> None:
    """D19: hazard 27."""
    schema = a_schema(
        a_field("s", a_schema(a_field("a", "long"), a_field("b", "string"))), a_field("n", "long")
    )
    kind = statistics_type(schema, (), {"delta.dataSkippingStatsColumns": "s.a, n"}, deletion_vectors=False)
    collected = StatisticsOfRows(kind=kind)
    rows = [{"s": None, "n": 1}, {"s": {"a": 5, "b": "x"}, "n": None}, {"s": {"a": None, "b": "y"}, "n": 2}]
    arrow = pa.schema([("s", pa.struct([("a", pa.int64()), ("b", pa.string())])), ("n", pa.int64())])
    collected.see(pa.Table.from_pylist(rows, schema=arrow))
    assert json.loads(collected.measured(None, "f").json) == {
        "numRecords": 3, "minValues": {"s": {"a": 5}, "n": 1}, "maxValues": {"s": {"a": 5}, "n": 2},
        "nullCount": {"s": {"a": 2}, "n": 1},
    }  # fmt: skip
