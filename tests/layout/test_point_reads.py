"""How many files a read of one value opens: counted file by file, and point by point."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from iceberg_cli.layout.point_reads import (
    ColumnRanges,
    column_ranges,
    column_reads,
    cut_alike,
    files_opened,
    most_columns,
    table_reads,
)


def ranges(
    lower: list[Any], upper: list[Any], kind: pa.DataType, null: list[bool] | None = None
) -> ColumnRanges:
    is_null = np.array([False] * len(lower) if null is None else null, np.bool_)
    return column_ranges(pa.array(lower, kind), pa.array(upper, kind), is_null)


def test_files_that_follow_each_other_are_opened_one_at_a_time() -> None:
    found = ranges([0, 10, 20], [9, 19, 29], pa.int64())
    assert files_opened(found, np.array([5, 5, 5])) == 1


def test_files_of_the_same_range_are_all_opened() -> None:
    assert files_opened(ranges([0] * 7, [9] * 7, pa.int32()), np.full(7, 3)) == 7


def test_reads_go_where_the_rows_are() -> None:
    """Three of four rows are in two files that overlap, so three of four reads open two."""
    found = ranges([0, 0, 100], [10, 10, 110], pa.int64())
    assert files_opened(found, np.array([300, 300, 200])) == pytest.approx(1.75, abs=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_they_are_those_that_a_count_of_many_points_says(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    lower = drawn.integers(0, 1000, 30)
    upper = lower + drawn.integers(0, 400, 30)
    rows = drawn.integers(1, 50, 30)
    files = np.repeat(np.arange(30), rows * 40)
    points = lower[files] + (upper - lower)[files] * drawn.random(len(files))
    expected = np.mean([np.count_nonzero((lower <= point) & (point <= upper)) for point in points])
    found = files_opened(ranges(lower.tolist(), upper.tolist(), pa.int64()), rows)
    assert found == pytest.approx(expected, rel=0.03)


def test_a_file_without_bounds_is_opened_by_each_and_one_of_nulls_by_none() -> None:
    lower, upper = [0, None, None, 0], [9, None, None, None]
    found = ranges(lower, upper, pa.int64(), [False, False, True, False])
    assert files_opened(found, np.full(4, 3)) == 3
    assert files_opened(ranges([None], [None], pa.int64(), [True]), np.array([3])) == 0


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["customer-0001", "customer-0100", "customer-0200", "customer-0300"]),
        (pa.binary(), [b"a\x00", b"a\x10", b"a\x20", b"a\xff"]),
        (pa.date32(), [dt.date(2026, 1, day) for day in (1, 8, 15, 22)]),
        (pa.float64(), [float("-inf"), -1.0, 1.0, float("nan")]),
        (pa.string(), ["é", "éa", "éb", "\U0001f600"]),
    ],
)
def test_values_of_each_type_are_told_apart(kind: pa.DataType, values: list[Any]) -> None:
    first, second, third, last = values
    apart = ranges([first, third], [second, last], kind)
    assert files_opened(apart, np.array([5, 5])) == pytest.approx(1, abs=0.01)
    assert files_opened(ranges([first, first], [last, last], kind), np.array([5, 5])) == 2


@pytest.mark.parametrize(
    ("bounds", "length", "is_raised", "expected"),
    [
        # Iceberg: 4 characters, the last one of an upper bound raised.
        ([("abcd", "abce"), ("abcd", "abcf")], 4, True, [("abcd", "abcd"), ("abcd", "abce")]),
        ([("ab", "abc"), (None, None)], 4, True, [("ab", "abc"), (None, None)]),
        ([("abc\ud7ff", "abc\ue000"), ("a", None)], 4, True, [("abc\ud7ff", "abc\ud7ff"), ("a", "abc\ud7ff")]),
        # Delta: 4 characters and one that is greater than all.
        ([("abcd", "abcd\U0010ffff"), ("abcd", "abce\x7f")], 4, False, [("abcd", "abcd"), ("abcd", "abce")]),
        ([(b"ab\x00", b"ab\x01")], 3, True, [(b"ab\x00", b"ab\x00")]),
    ],
)  # fmt: skip
def test_values_that_begin_alike_are_told_apart_by_no_bound(
    bounds: list[tuple[Any, Any]], length: int, expected: list[tuple[Any, Any]], *, is_raised: bool
) -> None:
    kind = pa.binary() if isinstance(bounds[0][0], bytes) else pa.string()
    lower, upper = (pa.array(each, kind) for each in zip(*bounds, strict=True))
    cut = cut_alike(lower, upper, length, is_raised=is_raised)
    assert [*zip(*(each.to_pylist() for each in cut), strict=True)] == expected


def test_one_value_in_all_files_is_in_each() -> None:
    assert files_opened(ranges(["x"] * 3, ["x"] * 3, pa.string()), np.full(3, 9)) == 3


def test_bounds_in_the_wrong_order_are_none() -> None:
    found = ranges([5, 0], [1, 9], pa.int64())
    assert found.is_known.tolist() == [False, True]
    assert files_opened(found, np.array([5, 5])) == 2


def test_reads_are_those_of_their_partition_and_as_many_as_it_has_rows() -> None:
    """60 rows in three files of one range, 20 in two that follow each other: (3 * 60 + 1 * 20) / 80 are opened."""
    found = ranges([0, 0, 0, 0, 10], [9, 9, 9, 9, 19], pa.int64())
    (read,) = column_reads(["n"], [found], np.array([20, 20, 20, 10, 10]), np.array([7, 7, 7, 2, 2]))
    assert (read.column, read.opened, read.files) == ("n", 2.5, 2.75)
    assert column_reads(["n"], [ranges([], [], pa.int64())], np.zeros(0, int), np.zeros(0, int)) == (
        ("n", 0, 0),
    )


def test_of_very_many_partitions_those_with_most_rows_are_looked_at() -> None:
    """300 partitions: of 200 with most rows each read opens both files, of the others one of two."""
    partition = np.repeat(np.arange(300), 2)
    is_large = partition >= 100
    lower = np.where(is_large, 0, np.arange(600) % 2 * 10)
    known = ranges(lower.tolist(), (lower + 9).tolist(), pa.int64())
    unknown = ranges([None] * 600, [None] * 600, pa.int64())
    found = table_reads({"n": known, "k": unknown}, np.where(is_large, 5, 4), partition)
    assert found.columns == (("n", 2, 2),)
    assert found.note == "of the 200 partitions with most rows, of 300"
    more = table_reads({"n": known}, np.full(600, 5), partition, left_out=3).note
    assert more == f"{found.note}; 3 more columns are left out, of so many files"
    assert [most_columns(files) for files in (0, 6_000, 20_000, 1_000_000)] == [32, 32, 10, 1]
    fewer = partition >= 150
    assert table_reads({"n": known.take(np.flatnonzero(fewer))}, np.full(300, 5), partition[fewer]).note == ""
