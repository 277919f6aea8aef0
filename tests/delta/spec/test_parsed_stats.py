"""Statistics that a checkpoint has only as structs, said as commits say them."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.delta.spec.checkpoints.checkpoint import read_part
from iceberg_cli.delta.spec.statistics_columns import stats_parsed
from iceberg_cli.delta.spec.text_values import stats_texts

CHECKPOINT = f"/t/_delta_log/{1:020}.checkpoint.parquet"
INSTANT = pa.timestamp("us", "UTC")
NOON = datetime(2024, 2, 29, 12, 0, 0, 123_000, tzinfo=UTC)


def a_bound(value: Any, kind: pa.DataType) -> pa.StructArray:
    return pa.array([{"numRecords": 1, "minValues": {"c": value}}], a_type(kind))


def a_type(kind: pa.DataType) -> pa.StructType:
    return pa.struct([("numRecords", pa.int64()), ("minValues", pa.struct([("c", kind)]))])


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (2**63 - 1, pa.int64(), "9223372036854775807"),
        (-128, pa.int8(), "-128"),
        (Decimal(f"{'1' * 35}.678"), pa.decimal128(38, 3), f"{'1' * 35}.678"),
        (Decimal("12.30"), pa.decimal128(10, 2), "12.30"),
        (0.1, pa.float32(), "0.1"),
        (16777216.0, pa.float32(), "16777216.0"),
        (1e300, pa.float64(), "1e+300"),
        (0.1 + 0.2, pa.float64(), "0.30000000000000004"),
        (float("nan"), pa.float64(), '"NaN"'),
        (float("-inf"), pa.float32(), '"-Infinity"'),
        (NOON, INSTANT, '"2024-02-29T12:00:00.123Z"'),
        (NOON.replace(microsecond=123_456), INSTANT, '"2024-02-29T12:00:00.123456Z"'),
        (-1, pa.timestamp("us"), '"1969-12-31T23:59:59.999999"'),
        (date(1, 1, 1), pa.date32(), '"0001-01-01"'),
        ('a "quoted" \\ path\n', pa.string(), '"a \\"quoted\\" \\\\ path\\n"'),
        ("one\ntwo", pa.string(), '"one\\ntwo"'),
        ("é\u2028/", pa.string(), '"é\u2028/"'),
    ],
)
def test_a_bound_is_said_exactly_and_read_back_as_the_same(
    value: Any, kind: pa.DataType, expected: str
) -> None:
    structs = a_bound(value, kind)
    (text,) = stats_texts(structs).to_pylist()
    assert text == f'{{"numRecords":1,"minValues":{{"c":{expected}}}}}'
    json.loads(text, parse_constant=pytest.fail)
    again = stats_parsed(pa.array([text]), a_type(kind))
    assert str(again) == str(structs)  # not a number equals itself only as text


@pytest.mark.parametrize(
    ("value", "kind"),
    [(b"\xff", pa.binary()), (2_932_897, pa.date32()), (-62_198_755_200_000_000, pa.timestamp("us"))],
)
def test_a_bound_that_delta_has_no_text_for_is_left_out(value: Any, kind: pa.DataType) -> None:
    assert stats_texts(a_bound(value, kind)).to_pylist() == ['{"numRecords":1,"minValues":{}}']


def test_what_is_null_is_left_out_and_what_is_empty_stays() -> None:
    bounds = pa.struct([("a b", pa.int64())])
    kind = pa.struct([("numRecords", pa.int64()), ("maxValues", bounds), ("none", pa.struct([]))])
    rows = [None, {}, {"maxValues": {}}, {"numRecords": 0, "maxValues": {"a b": 7}}]
    texts = ["{}", '{"maxValues":{}}', '{"numRecords":0,"maxValues":{"a b":7}}']
    assert stats_texts(pa.chunked_array([pa.array(rows, kind), pa.array(rows[2:], kind)])).to_pylist() == [
        None,
        *texts,
        *texts[1:],
    ]
    assert stats_texts(pa.chunked_array([], kind)).to_pylist() == []


def test_times_that_spark_writes_as_int96_are_in_utc_whatever_their_year() -> None:
    moment = 253_402_300_799_999_000
    adds = [
        {
            "path": "a",
            "partitionValues": [],
            "size": 1,
            "modificationTime": 1,
            "dataChange": False,
            "stats_parsed": {"numRecords": 1, "maxValues": {"at": moment}},
        }
    ]
    stats = pa.struct([("numRecords", pa.int64()), ("maxValues", pa.struct([("at", pa.timestamp("us"))]))])
    kind = pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", pa.map_(pa.string(), pa.string())),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("stats_parsed", stats),
        ]
    )
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"add": pa.array(adds, kind)}),
        sink,
        use_deprecated_int96_timestamps=True,
        store_schema=False,
    )
    part = read_part(CHECKPOINT, 1, sink.getvalue())
    assert part.actions.adds["stats"].to_pylist() == [
        '{"numRecords":1,"maxValues":{"at":"9999-12-31T23:59:59.999Z"}}'
    ]
