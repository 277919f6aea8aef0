"""How many files a point read opens: a read of one value of a column, which bounds of files may rule out.

The points are drawn from the files' own rows, as if these lay evenly between the bounds of their file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.layout.ranks import comparable
from iceberg_cli.layout.rolling import Bools, Ints

Floats = npt.NDArray[np.float64]

_POINTS: Final = 1 << 10
_GOLDEN: Final = (5**0.5 - 1) / 2  # multiples of it lie evenly between whole numbers
_BYTES: Final = 8  # of text, after what all of it begins with
_LARGEST: Final = 1e300  # infinity, between which and a number lies none


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRanges:
    """The bounds of a column in n files, as numbers of the same order.

    Args:
        lower: n numbers.
        upper: n numbers.
        is_known: whether bounds are known; a file without may have any value.
        is_null: whether a file has no value but null.
    """

    lower: Floats
    upper: Floats
    is_known: Bools
    is_null: Bools

    def take(self, places: Ints) -> ColumnRanges:
        """Of some files."""
        return ColumnRanges(
            lower=self.lower[places],
            upper=self.upper[places],
            is_known=self.is_known[places],
            is_null=self.is_null[places],
        )


def column_ranges(lower: pa.Array, upper: pa.Array, is_null: Bools) -> ColumnRanges:
    """Bounds of a column of n files.

    Args:
        lower: n values, null where it is not known.
        upper: n values, likewise.
        is_null: see `ColumnRanges`.
    """
    is_known = pc.and_(lower.is_valid(), upper.is_valid()).to_numpy(zero_copy_only=False)
    numbers = _numbers(pa.concat_arrays([lower, upper]), np.concatenate([is_known, is_known]))
    return ColumnRanges(
        lower=numbers[: len(lower)],
        upper=numbers[len(lower) :],
        is_known=is_known & ~is_null,
        is_null=is_null,
    )


def _numbers(values: pa.Array, is_known: Bools) -> Floats:
    """Values as numbers, between which others lie about as the values do."""
    if pa.types.is_floating(values.type):
        numbers = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False).astype(np.float64)
        numbers = np.where(np.isnan(numbers), _LARGEST, numbers)
        return np.asarray(np.clip(numbers, -_LARGEST, _LARGEST), np.float64)
    own = comparable(values)
    if own.dtype.kind != "S":
        return own.astype(np.float64)
    known = np.sort(own[is_known])
    if not len(known):
        return np.zeros(len(own))
    texts = own.view(np.uint8).reshape(len(own), -1)
    least, most = (each.view(np.uint8) for each in (known[:1], known[-1:]))
    shared = int(np.argmax(least != most)) if (least != most).any() else texts.shape[1]
    part = texts[:, shared : shared + _BYTES]
    return np.asarray(part @ (256.0 ** np.arange(-1, -1 - part.shape[1], -1)), np.float64)


def files_opened(ranges: ColumnRanges, rows: Ints) -> float:
    """How many of n files a point read opens, on average.

    Args:
        ranges: of the files.
        rows: n numbers of rows.
    """
    known = np.flatnonzero(ranges.is_known)
    others = len(rows) - len(known) - np.count_nonzero(ranges.is_null)
    ends = np.cumsum(rows[known])
    if not len(known) or not ends[-1]:
        return float(len(known) + others)
    numbers = np.arange(_POINTS)
    files = known[np.searchsorted(ends, (numbers + 0.5) * (ends[-1] / _POINTS))]
    lower, upper = ranges.lower[files], ranges.upper[files]
    points = lower + (upper - lower) * ((numbers * _GOLDEN) % 1)
    begun = np.searchsorted(np.sort(ranges.lower[known]), points, side="right")
    ended = np.searchsorted(np.sort(ranges.upper[known]), points)
    return float(np.mean(begun - ended) + others)
