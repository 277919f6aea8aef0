"""Whether rows are in an order, against each row's own comparison with the next one."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.layout.row_order import OrderCheck, OrderedColumn, is_comparable

NAN = float("nan")


def holds(columns: Sequence[OrderedColumn], *batches: pa.Table) -> bool:
    check = OrderCheck(columns)
    for batch in batches:
        check.see(batch)
    return check.holds


def one(
    values: Sequence[Any], type_: pa.DataType, *, descending: bool = False, nulls_first: bool = True
) -> bool:
    column = OrderedColumn(place=0, descending=descending, nulls_first=nulls_first)
    return holds([column], pa.table({"c": pa.array(values, type_)}))


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([-5, 0, 0, 7], pa.int64()),
        ([-3, 4], pa.int32()),
        ([-math.inf, -1.5, -0.0, 0.0, 5e-324, 2.0, math.inf, NAN], pa.float64()),
        ([-math.inf, -1.5, -0.0, 0.0, 2.0, math.inf, NAN], pa.float32()),
        ([False, True], pa.bool_()),
        (["", "A", "a", "aa", "é", "\uffff", "\U0001f600"], pa.string()),
        ([b"", b"\x00", b"\x7f", b"\x80"], pa.binary()),
        ([Decimal("-1.00"), Decimal("0.00"), Decimal("0.10")], pa.decimal128(9, 2)),
        ([date(1969, 1, 1), date(1970, 1, 1)], pa.date32()),
        ([-1, 0, 1], pa.timestamp("us", "UTC")),
    ],
    ids=str,
)
def test_values_are_in_the_order_of_their_type(values: list[Any], type_: pa.DataType) -> None:
    assert is_comparable(type_)
    assert one(values, type_)
    assert one([None, None, *values], type_)
    assert one([*values, None], type_, nulls_first=False)
    assert not one([*values, None], type_)
    assert not one([None, *values], type_, nulls_first=False)
    assert one([None, *values[::-1]], type_, descending=True)
    assert one([*values[::-1], None], type_, descending=True, nulls_first=False)
    for place in range(1, len(values)):
        if values[place - 1] != values[place] or str(values[place - 1]) != str(values[place]):
            swapped = [*values[: place - 1], values[place], values[place - 1], *values[place + 1 :]]
            assert not one(swapped, type_), swapped


def test_a_negative_nan_comes_first() -> None:
    bits = [0xFFF8000000000000, 0xFFF0000000000000, 0, 0x7FF8000000000000]
    data = pa.py_buffer(struct.pack("<4Q", *bits))
    values = pa.Array.from_buffers(pa.float64(), 4, [None, data])
    column = OrderedColumn(place=0, descending=False, nulls_first=True)
    assert holds([column], pa.table({"c": values}))
    assert not holds([column], pa.table({"c": values.take(pa.array([1, 0, 2, 3]))}))


@pytest.mark.parametrize(
    "kind", [pa.binary(16), pa.list_(pa.int32()), pa.struct([("x", pa.int32())])], ids=str
)
def test_values_that_engines_order_each_in_their_way_are_not_compared(kind: pa.DataType) -> None:
    assert not is_comparable(kind)


VALUES = st.tuples(st.none() | st.integers(0, 2), st.none() | st.sampled_from("ab"))
DIRECTION = st.tuples(st.booleans(), st.booleans())


def precedes(one: Any, other: Any, *, descending: bool, nulls_first: bool) -> bool:
    if one is None or other is None:
        return one is not other and (one is None) == nulls_first
    return bool(one > other if descending else one < other)


def in_order(row: Any, following: Any, directions: Any) -> bool:
    for one, other, (descending, nulls_first) in zip(row, following, directions, strict=True):
        if one != other:
            return precedes(one, other, descending=descending, nulls_first=nulls_first)
    return True


@given(
    st.lists(VALUES, min_size=1, max_size=7),
    st.tuples(DIRECTION, DIRECTION),
    st.lists(st.integers(0, 7), max_size=3),
)
def test_rows_are_compared_by_the_first_column_that_differs_however_they_come(
    rows: Any, directions: Any, cuts: Any
) -> None:
    expected = all(in_order(row, following, directions) for row, following in pairwise(rows))
    columns = [
        OrderedColumn(place=place, descending=descending, nulls_first=nulls_first)
        for place, (descending, nulls_first) in ((2, directions[0]), (0, directions[1]))
    ]
    first, second = zip(*rows, strict=True)
    table = pa.table(
        {"b": pa.array(second, pa.string()), "other": range(len(rows)), "a": pa.array(first, pa.int64())}
    )
    places = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [table.slice(start, end - start) for start, end in pairwise(places)]
    assert holds(columns, *parts) == expected
    assert holds(columns, table) == expected


def test_nothing_is_in_every_order() -> None:
    assert one([], pa.int64())
    assert one([3], pa.int64())
