"""Distributions of sizes: how many files, and how many bytes, between one power of two and the next.

What is kept does not grow with the files: sizes come as Arrow columns, some thousand at a time, and leave a count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

_BINS: Final = 64  # of sizes that are whole numbers of 63 bits; bin 0: no bytes
_MOST_BARS: Final = 24
_LEAST_BARS: Final = 8  # fewer would show nothing but their edges


class Bar(NamedTuple):
    """Files whose size is at least `low` and less than `high` bytes."""

    low: int
    high: int
    files: int
    size_bytes: int


@dataclass(kw_only=True)
class SizeDistribution:
    """Counts and bytes of files by size.

    Args:
        counts: by bin: the files whose size has so many binary digits.
        high: by bin: the sum of the upper 31 bits of their sizes, so that no sum of sizes, however wrong, runs over.
        low: by bin: that of the lower 32 bits.
        left_out: how many files were not looked at.
    """

    counts: np.ndarray[tuple[int], np.dtype[np.int64]] = field(
        default_factory=lambda: np.zeros(_BINS, np.int64)
    )
    high: np.ndarray[tuple[int], np.dtype[np.int64]] = field(
        default_factory=lambda: np.zeros(_BINS, np.int64)
    )
    low: np.ndarray[tuple[int], np.dtype[np.int64]] = field(default_factory=lambda: np.zeros(_BINS, np.int64))
    left_out: int = 0

    def add(self, sizes: pa.Array | pa.ChunkedArray) -> None:
        """Take files into account.

        Args:
            sizes: of n files, in bytes; null where one is not known, negative where a writer got it wrong.
        """
        values = np.asarray(sizes.drop_null().cast(pa.int64()))
        self.left_out += len(sizes) - len(values) + int((values < 0).sum())
        values = values[values >= 0]
        bins = digits_of(values)
        self.counts += np.bincount(bins, minlength=_BINS)
        np.add.at(self.high, bins, values >> 32)
        np.add.at(self.low, bins, values & 0xFFFF_FFFF)

    @property
    def files(self) -> int:
        """How many were taken into account."""
        return int(self.counts.sum())

    @property
    def size_bytes(self) -> int:
        """Their bytes."""
        return self._sum(0, _BINS)

    def _sum(self, start: int, stop: int) -> int:
        return (int(self.high[start:stop].sum()) << 32) + int(self.low[start:stop].sum())

    def bars(self) -> Sequence[Bar]:
        """A bar for each bin from the first to the last one that has files; of neighbours one where they are many.

        Where they are few there are empty ones beside them.
        """
        (filled,) = np.nonzero(self.counts)
        if not len(filled):
            return []
        first, last = int(filled[0]), int(filled[-1])
        spare = max(0, _LEAST_BARS - (last - first + 1))
        first = max(0, first - spare // 2)
        last = min(_BINS - 1, max(last, first + _LEAST_BARS - 1))
        step = -(-(last - first + 1) // _MOST_BARS)
        return [
            Bar(
                _low(start),
                1 << min(start + step - 1, _BINS - 1),
                int(self.counts[start : start + step].sum()),
                self._sum(start, start + step),
            )
            for start in range(first, last + 1, step)
        ]


def _low(digits: int) -> int:
    return 1 << (digits - 1) if digits else 0


def digits_of(
    values: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """How many binary digits each of n whole numbers has, 0 for zero; exact for all of 63 bits."""
    digits = np.zeros(len(values), np.int64)
    rest = values.copy()
    for bits in (32, 16, 8, 4, 2, 1):
        is_longer = rest >= (1 << bits)
        digits += np.where(is_longer, bits, 0)
        rest = np.where(is_longer, rest >> bits, rest)
    return digits + (rest > 0)
