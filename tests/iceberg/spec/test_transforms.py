"""Partition transforms against the tables of the specification, mmh3 and PyIceberg."""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from decimal import Decimal
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pyiceberg.transforms as pyiceberg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import (
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
)

from iceberg_cli.iceberg.spec.types.transforms import (
    Transform,
    apply,
    hash32,
    hash_longs,
    human,
    parse,
    result_type,
)

UTC = dt.UTC
AT = dt.datetime(2017, 11, 16, 22, 31, 8)  # noqa: DTZ001 - a timestamp without zone
UUID = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")


@pytest.mark.parametrize(
    ("source_type", "value", "arrow", "expected"),
    [
        ("int", 34, pa.int32(), 2017239379),
        ("long", 34, pa.int64(), 2017239379),
        ("decimal(9,2)", Decimal("14.20"), pa.decimal128(9, 2), -500754589),
        ("date", dt.date(2017, 11, 16), pa.date32(), -653330422),
        ("time", dt.time(22, 31, 8), pa.time64("us"), -662762989),
        ("timestamp", AT, pa.timestamp("us"), -2047944441),
        ("timestamp", AT.replace(microsecond=1), pa.timestamp("us"), -1207196810),
        ("timestamptz", AT.replace(tzinfo=UTC), pa.timestamp("us", "UTC"), -2047944441),
        ("timestamptz", AT.replace(microsecond=1, tzinfo=UTC), pa.timestamp("us", "UTC"), -1207196810),
        ("timestamp_ns", AT, pa.timestamp("ns"), -2047944441),
        ("timestamp_ns", np.datetime64("2017-11-16T22:31:08.000001001"), pa.timestamp("ns"), -1207196810),
        ("timestamptz_ns", AT.replace(tzinfo=UTC), pa.timestamp("ns", "UTC"), -2047944441),
        ("string", "iceberg", pa.string(), 1210000089),
        ("uuid", UUID.bytes, pa.binary(16), 1488055340),
        ("fixed[4]", bytes([0, 1, 2, 3]), pa.binary(4), -188683207),
        ("binary", bytes([0, 1, 2, 3]), pa.binary(), -188683207),
    ],
)
def test_hash_is_the_one_of_appendix_b(
    source_type: str, value: Any, arrow: pa.DataType, expected: int
) -> None:
    assert hash32(source_type, pa.array([value], arrow)).tolist() == [expected]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50))
@settings(max_examples=100)
def test_vectorised_hash_of_longs_equals_mmh3(values: list[int]) -> None:
    assert hash_longs(np.array(values, np.int64)).tolist() == [
        mmh3.hash(struct.pack("<q", v)) for v in values
    ]


@pytest.mark.parametrize("source_type", ["boolean", "float", "double", "variant", "unknown", "geometry"])
def test_type_that_cannot_be_bucketed_is_refused(source_type: str) -> None:
    with pytest.raises(ValueError, match=f"Cannot hash values of type {source_type}"):
        apply(parse("bucket[4]"), source_type, pa.array([None], pa.float64()))


def test_bucket_drops_the_sign_of_the_hash_before_the_remainder() -> None:
    # Appendix B gives the hash of 14.20 as -500754589.
    column = pa.array([Decimal("14.20"), None], pa.decimal128(9, 2))
    expected = (-500754589 & 0x7FFFFFFF) % 10
    assert apply(parse("bucket[10]"), "decimal(9,2)", column).to_pylist() == [expected, None]


@pytest.mark.parametrize(
    ("text", "source_type", "arrow", "value", "expected"),
    [
        ("truncate[10]", "int", pa.int32(), 1, 0),
        ("truncate[10]", "int", pa.int32(), -1, -10),
        ("truncate[10]", "long", pa.int64(), -1, -10),
        ("truncate[10]", "long", pa.int64(), -10, -10),
        ("truncate[50]", "decimal(9,2)", pa.decimal128(9, 2), Decimal("10.65"), Decimal("10.50")),
        ("truncate[50]", "decimal(9,2)", pa.decimal128(9, 2), Decimal("-0.05"), Decimal("-0.50")),
        ("truncate[3]", "string", pa.string(), "iceberg", "ice"),
        ("truncate[2]", "string", pa.string(), "\U0001f92f\u00e9x", "\U0001f92f\u00e9"),
        ("truncate[3]", "binary", pa.binary(), b"\x01\x02\x03\x04\x05", b"\x01\x02\x03"),
        ("year", "date", pa.date32(), dt.date(1970, 1, 1), 0),
        ("year", "date", pa.date32(), dt.date(1969, 12, 31), -1),
        ("month", "date", pa.date32(), dt.date(2017, 11, 16), 574),
        ("month", "date", pa.date32(), dt.date(1969, 12, 31), -1),
        ("month", "date", pa.date32(), dt.date(1968, 12, 31), -13),
        ("day", "date", pa.date32(), dt.date(2017, 11, 16), dt.date(2017, 11, 16)),
        ("year", "timestamp", pa.timestamp("us"), np.datetime64(-1, "us"), -1),
        ("month", "timestamp", pa.timestamp("us"), np.datetime64(-1, "us"), -1),
        ("day", "timestamp", pa.timestamp("us"), np.datetime64(-1, "us"), dt.date(1969, 12, 31)),
        ("hour", "timestamp", pa.timestamp("us"), np.datetime64(-1, "us"), -1),
        ("hour", "timestamp", pa.timestamp("us"), np.datetime64("2017-12-01T10:30:01", "us"), 420034),
        ("hour", "timestamp_ns", pa.timestamp("ns"), np.datetime64("2017-12-01T10:30:01", "ns"), 420034),
        ("hour", "timestamp_ns", pa.timestamp("ns"), np.datetime64(-1, "ns"), -1),
        ("day", "timestamp_ns", pa.timestamp("ns"), np.datetime64(-1, "ns"), dt.date(1969, 12, 31)),
        (
            "year",
            "timestamptz",
            pa.timestamp("us", "Asia/Tokyo"),
            np.datetime64("1999-12-31T20:00", "us"),
            29,
        ),
        ("identity", "string", pa.string(), "a", "a"),
        ("void", "string", pa.string(), "a", None),
    ],
)
def test_value_and_null_are_transformed(
    text: str, source_type: str, arrow: pa.DataType, value: Any, expected: Any
) -> None:
    if isinstance(value, np.datetime64):
        column = pa.array(np.array([value, "NaT"], value.dtype)).cast(arrow)
    else:
        column = pa.array([value, None], arrow)
    assert apply(parse(text), source_type, column).to_pylist() == [expected, None]


DATES = st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1))
TIMES = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))  # noqa: DTZ001 - a timestamp without zone
CASES: list[tuple[str, PrimitiveType, pa.DataType, st.SearchStrategy[Any]]] = [
    ("int", IntegerType(), pa.int32(), st.integers(-(2**31) + 100, 2**31 - 1)),
    ("long", LongType(), pa.int64(), st.integers(-(2**63) + 100, 2**63 - 1)),
    ("string", StringType(), pa.string(), st.text()),
    ("decimal(9,2)", DecimalType(9, 2), pa.decimal128(9, 2), st.decimals(-999999, 999999, places=2)),
    ("date", DateType(), pa.date32(), DATES),
    ("timestamp", TimestampType(), pa.timestamp("us"), TIMES),
]
TEXTS = ["bucket[7]", "truncate[10]", "year", "month", "day", "hour", "identity"]


@pytest.mark.parametrize(("text", "case"), [(t, c) for t in TEXTS for c in CASES], ids=lambda x: str(x)[:24])
def test_results_equal_those_of_pyiceberg(
    text: str, case: tuple[str, PrimitiveType, pa.DataType, st.SearchStrategy[Any]]
) -> None:
    source_type, their_type, arrow, values = case
    theirs = pyiceberg.parse_transform(text)
    if not theirs.can_transform(their_type):
        if text != "truncate[10]":
            with pytest.raises(ValueError, match="Cannot"):
                apply(parse(text), source_type, pa.array([None], arrow))
        return
    function = theirs.transform(their_type)

    @given(st.lists(values, min_size=1, max_size=20))
    @settings(max_examples=30)
    def equal(column: list[Any]) -> None:
        ours = apply(parse(text), source_type, pa.array(column, arrow))
        if text == "identity":
            assert ours.to_pylist() == column
            return
        # PyIceberg works on days and microseconds where Arrow has dates and times.
        inner = {"date": pa.int32(), "timestamp": pa.int64()}.get(source_type, arrow)
        plain = ours.cast(pa.int32()) if pa.types.is_date32(ours.type) else ours
        expected = [function(v) for v in pa.array(column, arrow).cast(inner).to_pylist()]
        assert plain.to_pylist() == expected

    equal()


def test_chunked_column_is_transformed_as_one() -> None:
    column = pa.chunked_array([[1, 12], [], [25]], pa.int64())
    assert apply(parse("truncate[10]"), "long", column).to_pylist() == [0, 10, 20]


@pytest.mark.parametrize(
    "text", ["bucket[0]", "bucket[]", "bucket[-1]", "bucket", "truncate[9999999999]", "zorder", "Year"]
)
def test_name_that_is_no_transform_is_kept_as_unknown_and_not_applied(text: str) -> None:
    assert parse(text) == Transform(text, "unknown")
    with pytest.raises(ValueError, match="not known"):
        apply(parse(text), "long", pa.array([1]))


@pytest.mark.parametrize(
    ("text", "source_type", "expected"),
    [
        ("identity", "string", "string"),
        ("void", "uuid", "uuid"),
        ("bucket[16]", "uuid", "int"),
        ("truncate[4]", "decimal(9,2)", "decimal(9,2)"),
        ("year", "date", "int"),
        ("month", "timestamp", "int"),
        ("day", "timestamp", "date"),
        ("hour", "timestamp_ns", "int"),
        ("zorder", "int", "unknown"),
    ],
)
def test_result_type(text: str, source_type: str, expected: str) -> None:
    assert result_type(parse(text), source_type) == expected


@pytest.mark.parametrize(
    ("text", "source_type", "value", "expected"),
    [
        ("year", "date", 53, "2023"),
        ("year", "date", -1, "1969"),
        ("month", "date", 640, "2023-05"),
        ("month", "date", -1, "1969-12"),
        ("day", "timestamp", 19478, "2023-05-01"),
        ("day", "timestamp", dt.date(2023, 5, 1), "2023-05-01"),
        ("day", "timestamp", -1, "1969-12-31"),
        ("hour", "timestamp", 467485, "2023-05-01-13"),
        ("hour", "timestamp", -1, "1969-12-31-23"),
        ("bucket[16]", "string", 3, "3"),
        ("identity", "date", 19478, "2023-05-01"),
        ("truncate[2]", "string", "ab", "ab"),
        ("truncate[2]", "binary", b"\x01\x02", "0x0102"),
        ("identity", "string", None, "null"),
        ("void", "string", None, "null"),
        ("zorder", "string", 7, "7"),
    ],
)
def test_transformed_value_reads_as_people_write_it(
    text: str, source_type: str, value: Any, expected: str
) -> None:
    assert human(parse(text), source_type, value) == expected
