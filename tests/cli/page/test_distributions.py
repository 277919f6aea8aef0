"""Distributions of sizes: bins by powers of two, whatever the numbers, in memory that does not grow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.cli.page.distributions import Bar, SizeDistribution, digits_of


@given(st.lists(st.integers(0, (1 << 63) - 1)))
def test_binary_digits_are_those_that_python_counts(values: list[int]) -> None:
    assert digits_of(np.array(values, np.int64)).tolist() == [value.bit_length() for value in values]


def distribution(*batches: list[int | None]) -> SizeDistribution:
    found = SizeDistribution()
    for batch in batches:
        found.add(pa.chunked_array([pa.array(batch, pa.int64())]))
    return found


def test_bars_have_files_of_one_power_of_two_each_and_a_few_empty_ones_beside_them() -> None:
    bars = distribution([1024, 2047], [2048, 1500]).bars()
    assert [bar for bar in bars if bar.files] == [
        Bar(1024, 2048, 3, 1024 + 2047 + 1500),
        Bar(2048, 4096, 1, 2048),
    ]
    assert len(bars) == 8


def test_sizes_that_are_not_known_or_negative_are_counted_apart() -> None:
    found = distribution([None, 5, -1])
    assert (found.files, found.size_bytes, found.left_out) == (1, 5, 2)


@given(st.lists(st.integers(0, 1 << 62), min_size=1), st.integers(1, 7))
def test_bars_have_every_file_once_and_hold_its_size(sizes: list[int], batches: int) -> None:
    found = distribution(*(sizes[place::batches] for place in range(batches)))
    bars = found.bars()
    assert len(bars) <= 24
    assert sum(bar.files for bar in bars) == len(sizes)
    assert sum(bar.size_bytes for bar in bars) == sum(sizes)
    for bar in bars:
        assert bar.files == sum(bar.low <= size < bar.high for size in sizes)
    assert [bar.high for bar in bars[:-1]] == [bar.low for bar in bars[1:]]


def test_no_files_have_no_bars() -> None:
    assert distribution([]).bars() == []
