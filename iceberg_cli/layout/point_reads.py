"""How many files a point read opens: a read of one value of a column, which bounds of files may rule out.

The points are drawn from the files' own rows, as if these lay evenly between the bounds of their file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.layout.ranks import comparable
from iceberg_cli.layout.rolling import Bools, Ints
from iceberg_cli.plan.column_reads import ColumnReads, TableReads

Floats = npt.NDArray[np.float64]

_POINTS: Final = 1 << 10
_MOST_COLUMNS: Final = 32  # of a table of which all are looked at
_MOST_BOUNDS: Final = 200_000  # likewise, of all columns
MOST_FILES: Final = 100_000  # likewise
TOO_MANY_FILES: Final = (
    f"not told of more than {MOST_FILES:,} files; `rewrite-data-files --curve-by` plans for any number"
)
_MOST_PARTITIONS: Final = 200  # of a table of which all columns are looked at
_GOLDEN: Final = (5**0.5 - 1) / 2  # multiples of it lie evenly between whole numbers
_BYTES: Final = 8  # of text, after what all of it begins with
_SURROGATES: Final = range(0xD800, 0xE000)
_LARGEST: Final = 1e300  # infinity, between which and a number lies none


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRanges:
    """The bounds of a column in n files, as numbers of the same order.

    Args:
        lower: n numbers.
        upper: n numbers.
        is_known: whether bounds are known; a file without may have any value.
        is_null: whether a file has no value but null.
        is_boundless: whether a file has values of which no bounds are kept, however it is written.
        is_cut: whether values may differ of which bounds are equal.
    """

    lower: Floats
    upper: Floats
    is_known: Bools
    is_null: Bools
    is_boundless: Bools
    is_cut: bool

    def take(self, places: Ints) -> ColumnRanges:
        """Of some files."""
        return ColumnRanges(
            lower=self.lower[places],
            upper=self.upper[places],
            is_known=self.is_known[places],
            is_null=self.is_null[places],
            is_boundless=self.is_boundless[places],
            is_cut=self.is_cut,
        )


def cut_alike(lower: pa.Array, upper: pa.Array, length: int, *, is_raised: bool) -> tuple[pa.Array, pa.Array]:
    """Bounds of text or bytes as the beginnings of the least and the greatest value that they are of.

    So values that begin alike are known to be told apart by no bound.

    Args:
        lower: n bounds.
        upper: n bounds, null where none is above the values.
        length: of what bounds say, in characters or bytes.
        is_raised: whether an upper bound of this length has its last one raised.
    """
    least, most = ([_begins(each, length) for each in bounds.to_pylist()] for bounds in (lower, upper))
    if is_raised:
        most = [_lowered(each) if each and len(each) == length else each for each in most]
    greatest = max((each for each in (*least, *most) if each is not None), default=None)
    most = [
        None if low is None else max(low, greatest if high is None else high)
        for low, high in zip(least, most, strict=True)
    ]
    return pa.array(least, lower.type), pa.array(most, lower.type)


def has_length(bounds: pa.Array, length: int) -> bool:
    """Whether some bound of text or bytes is as long as bounds may be, so that values may go on behind it."""
    lengths = pc.binary_length(bounds) if pa.types.is_binary(bounds.type) else pc.utf8_length(bounds)
    return (pc.max(lengths).as_py() or 0) >= length


def _begins(value: Any, length: int) -> Any:
    return None if value is None else value[:length]


def _lowered(value: Any) -> Any:
    """The text or bytes whose last place is one less."""
    if isinstance(value, bytes):
        return value[:-1] + bytes([max(0, value[-1] - 1)])
    before = max(0, ord(value[-1]) - 1)
    return value[:-1] + chr(before if before not in _SURROGATES else _SURROGATES.start - 1)


def column_ranges(
    lower: pa.Array,
    upper: pa.Array,
    is_null: Bools,
    *,
    is_boundless: Bools | None = None,
    is_cut: bool = False,
) -> ColumnRanges:
    """Bounds of a column of n files.

    Args:
        lower: n values, null where it is not known.
        upper: n values, likewise.
        is_null: see `ColumnRanges`.
        is_boundless: likewise; None: no file is.
        is_cut: likewise.
    """
    is_known = pc.and_(lower.is_valid(), upper.is_valid()).to_numpy(zero_copy_only=False)
    numbers = _numbers(pa.concat_arrays([lower, upper]), np.concatenate([is_known, is_known]))
    least, most = numbers[: len(lower)], numbers[len(lower) :]
    return ColumnRanges(
        lower=least,
        upper=most,
        is_known=is_known & ~is_null & (least <= most),
        is_null=is_null,
        is_boundless=np.zeros(len(lower), np.bool_) if is_boundless is None else is_boundless,
        is_cut=is_cut,
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


def column_reads(
    names: Sequence[str], ranges: Sequence[ColumnRanges], rows: Ints, partition: Ints
) -> tuple[ColumnReads, ...]:
    """What reads of one value of columns open, each of the files of one partition.

    Args:
        names: of the columns.
        ranges: of each of them, of n files.
        rows: n numbers of rows.
        partition: n codes.
    """
    opened, files, whole = np.zeros(len(names)), 0.0, 0
    for own in places_by_partition(partition):
        weight = int(rows[own].sum())
        opened += weight * np.array([files_opened(each.take(own), rows[own]) for each in ranges])
        files += weight * len(own)
        whole += weight
    means = np.round(opened / max(1, whole), 2).tolist()
    number = round(files / max(1, whole), 2)
    return tuple(ColumnReads(name, mean, number) for name, mean in zip(names, means, strict=True))


def most_columns(files: int) -> int:
    """How many columns of a table of so many files are looked at, that it takes seconds at most."""
    return max(1, min(_MOST_COLUMNS, _MOST_BOUNDS // max(1, files)))


def table_reads(
    columns: Mapping[str, ColumnRanges], rows: Ints, partition: Ints, *, left_out: int = 0
) -> TableReads:
    """What reads of one value open of a table's n files, as far as bounds tell, and of its larger partitions alone.

    Args:
        columns: of each its ranges; those without any are left out.
        rows: n numbers of rows.
        partition: n codes.
        left_out: columns that are not looked at, of so many files.
    """
    found = {name: own for name, own in columns.items() if own.is_known.any()}
    codes, places = np.unique(partition, return_inverse=True)
    notes = [f"{left_out:,} more columns are left out, of so many files"] if left_out else []
    if len(codes) > _MOST_PARTITIONS:
        sums = np.bincount(places, rows, len(codes))
        largest = np.argsort(-sums, kind="stable")[:_MOST_PARTITIONS]
        own = np.flatnonzero(np.isin(places, largest))
        found = {name: each.take(own) for name, each in found.items()}
        rows, places = rows[own], places[own]
        notes.insert(0, f"of the {_MOST_PARTITIONS:,} partitions with most rows, of {len(codes):,}")
    return TableReads(column_reads([*found], [*found.values()], rows, places), "; ".join(notes))


def places_by_partition(partition: Ints) -> Iterator[Ints]:
    """The places of the files of each partition, by n codes of these."""
    places = np.argsort(partition, kind="stable")
    ends = np.flatnonzero(np.diff(partition[places])) + 1
    yield from np.split(places, ends) if len(places) else ()
