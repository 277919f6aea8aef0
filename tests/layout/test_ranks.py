"""Ranks of values: in the order of these, null apart, the same however rows come."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from iceberg_cli.layout.curves import rank_bits
from iceberg_cli.layout.ranks import RankScale, SampleBuilder, comparable, ranks_of

_DAY = dt.date(2026, 11, 30)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [-(1 << 63), -1, 0, 1, (1 << 63) - 1]),
    "double": (pa.float64(), [-math.inf, -1.5, -5e-324, 0.0, 5e-324, 1e300, math.inf, math.nan]),
    "float": (pa.float32(), [-math.inf, -1.5, 0.0, 1.5, math.inf, math.nan]),
    "boolean": (pa.bool_(), [False, True]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), _DAY]),
    "time": (pa.time64("us"), [dt.time(0), dt.time(23, 59, 59, 999_999)]),
    "timestamp": (pa.timestamp("us"), [each.astype(object) for each in np.array(["0001", "1970", "2026"], "M8[us]")]),
    "string": (pa.string(), ["", "A", "a", "aa", "b", "\x7f", "é", "\uffff", "\U0001f600"]),
    "binary": (pa.binary(), [b"", b"\x01", b"\x7f", b"\x80", b"\xff\x01"]),
    "decimal(9,2)": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("-0.01"), Decimal(0), Decimal("1.10")]),
    "decimal(38,0)": (pa.decimal128(38, 0), [Decimal(-(10**37)), Decimal(-1), Decimal(0), Decimal(10**37)]),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_values_are_compared_in_their_order(name: str) -> None:
    kind, ascending = VALUES[name]
    shuffled = [*enumerate(ascending)]
    random.Random(name).shuffle(shuffled)
    own = comparable(pa.array([value for _, value in shuffled], kind))
    order = np.argsort(own, kind="stable")
    assert [shuffled[place][0] for place in order] == list(range(len(ascending)))
    assert len(np.unique(own)) == len(ascending)


def test_zeros_are_equal_and_so_is_each_nan() -> None:
    negative = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    values = comparable(pa.array([-0.0, 0.0, math.nan, negative]))
    assert values[0] == values[1]
    assert values[2] == values[3]


def test_a_slice_of_decimals_is_read_where_it_begins() -> None:
    numbers = [Decimal(n) for n in range(-5, 20)]
    whole = pa.array(numbers, pa.decimal128(9, 0))
    assert comparable(whole.slice(7, 4)).tolist() == [2, 3, 4, 5]
    assert comparable(pa.array(numbers, pa.decimal128(30, 0)).slice(7, 4)).tolist() == [2.0, 3.0, 4.0, 5.0]


def test_few_values_have_ranks_as_far_apart_as_many() -> None:
    """Else a column of few values, or of small numbers, would decide nothing beside one of many (Z2)."""
    bits = rank_bits(2)
    few, many = np.repeat([0, 1, 2], 100), np.arange(300)
    ranks = ranks_of(few, few, bits)
    assert np.unique(ranks / (1 << bits)).tolist() == pytest.approx([1 / 6, 1 / 2, 5 / 6], abs=1e-4)
    spread = ranks_of(many, many, bits)
    assert (int(spread.min()) < (1 << bits) // 100, int(spread.max()) > (1 << bits) * 99 // 100) == (
        True,
        True,
    )
    assert (np.diff(spread.astype(np.int64)) > 0).all()


def test_null_has_a_rank_below_all_values() -> None:
    scale = RankScale("z-order", (np.arange(10), np.arange(10)))
    columns = [pa.chunked_array([[None, 0, -5]], pa.int64()), pa.chunked_array([[0, 0, None]], pa.int64())]
    places = scale.places(columns).tolist()
    assert places[0] < places[1]
    assert places[2] < places[1]
    only_null = RankScale("z-order", (np.empty(0, np.int64), np.arange(10)))
    assert len(set(only_null.places(columns).tolist())) == 3


def test_a_sample_is_the_same_however_rows_come() -> None:
    rows = pa.table({"a": np.random.default_rng(1).permutation(100_000)})
    whole, parts = (SampleBuilder(columns=1, rows=100_000, size=1_000) for _ in range(2))
    numbers, places = np.repeat([0, 1], 50_000), np.tile(np.arange(50_000), 2)
    whole.add(numbers, places, rows)
    for begin in (60_000, 0, 30_000):
        own = slice(begin, begin + (40_000 if begin else 30_000) - (10_000 if begin == 30_000 else 0))
        parts.add(numbers[own], places[own], rows.slice(own.start, own.stop - own.start))
    [found] = whole.scale("hilbert").samples
    assert found.tolist() == parts.scale("hilbert").samples[0].tolist()
    assert 800 < len(found) < 1_200
    # As many of each fifth of the values, and so of each fifth of the rows.
    assert np.abs(np.histogram(found, 5, (0, 100_000))[0] - len(found) / 5).max() < 60


def test_of_no_rows_there_is_a_scale_all_the_same() -> None:
    """As of files of which nearly all rows are deleted."""
    scale = SampleBuilder(columns=2, rows=1_000_000).scale("hilbert")
    assert scale.places([pa.chunked_array([[1, 2]]), pa.chunked_array([["a", None]])]).shape == (2,)


def test_a_sample_keeps_which_values_are_of_one_row_for_the_choice_of_a_curve() -> None:
    """Where each 20th value of one column is null, and the sample comes in two parts."""
    numbers = np.random.default_rng(7).permutation(8_000)
    nulls = np.arange(8_000) % 20 == 0
    follows, drawn = numbers + 1, np.random.default_rng(8).permutation(8_000)
    curves = []
    for other in (follows, drawn):
        sample = SampleBuilder(columns=2, rows=8_000)
        rows = pa.table({"a": pa.array(numbers, mask=nulls), "b": other})
        for begin in (0, 4_000):
            sample.add(np.zeros(4_000, np.int64), np.arange(begin, begin + 4_000), rows.slice(begin, 4_000))
        scale = sample.scale("hilbert")
        assert [len(each) for each in scale.samples] == [8_000 - int(nulls.sum()), 8_000]
        curves.append(scale.curve)
    assert curves == ["z-order", "hilbert"]


def test_of_few_rows_all_are_the_sample() -> None:
    sample = SampleBuilder(columns=1, rows=3)
    sample.add(np.zeros(3, np.int64), np.arange(3), pa.table({"a": [3, None, 1]}))
    assert sample.scale("z-order").samples[0].tolist() == [1, 3]


def test_ranks_are_the_middle_of_equal_values() -> None:
    """Of bits 4 there are 1 to 15: 1 + 14 * (rows before + rows up to here) / (2 * 4), cut down."""
    sample = np.array([10, 20, 20, 30])
    assert ranks_of(np.array([5, 10, 15, 20, 30, 40]), sample, 4).tolist() == [1, 2, 4, 8, 13, 15]
    assert ranks_of(np.array([5, 6]), np.empty(0, np.int64), 4).tolist() == [1, 1]


@pytest.mark.parametrize("number", [0, 1, -1, 10**17, -(10**18), 2**64, -(2**64), 3 * 2**70, -(10**37)])
def test_decimals_of_many_digits_are_as_doubles(number: int) -> None:
    (found,) = comparable(pa.array([Decimal(number)], pa.decimal128(38, 0))).tolist()
    assert found == pytest.approx(float(number), rel=1e-12)


def test_decimals_of_eighteen_digits_are_exact() -> None:
    values = [Decimal(10**18 - 1), Decimal(10**18 - 2), Decimal(-(10**18) + 1)]
    found = comparable(pa.array(values, pa.decimal128(18, 0)))
    assert found.tolist() == [int(value) for value in values]
    (more,) = comparable(pa.array([Decimal(10**19 - 1)], pa.decimal128(19, 0))).tolist()
    assert more == pytest.approx(1e19, rel=1e-12)
