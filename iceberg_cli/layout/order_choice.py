"""Which files of a partition are worth being brought into an order together, by their bounds alone.

Rows are drawn that lie evenly between the bounds of their files, and are ordered as the real ones would be: so what new
files would be like is seen before one row is read, and on files that are in order already nothing is gained. Files that
most reads open go first, and as few of them as will do: those of a large table that is in order stay when others come.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from iceberg_cli.layout.curves import CURVES, Curve, Ranks, curve_of, rank_bits
from iceberg_cli.layout.point_reads import ColumnRanges, Floats, files_opened
from iceberg_cli.layout.ranks import ranks_of
from iceberg_cli.layout.rolling import Bools, Ints
from iceberg_cli.layout.row_order import SortKey

_BYTES_WORTH: Final = 0.6  # what a run has to gain that writes all files anew though few reads open each
_MOST_DRAWN: Final = 1 << 15
_DRAWN_OF_FILE: Final = 64
_DRAWN_OF_SMALL_FILE: Final = 16
_LEAST_DRAWN: Final = 4
_SEED: Final = 0x1CEB
_OPENED_AT_LEAST: Final = 0.9  # drawn points are a little off
_DROPS: Final = 4
_WEIGHT: Final = 0.5  # of a column that rows are sorted by, of that of the one before it


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSettings:
    """What files are chosen by.

    Args:
        curve: on which rows are brought into an order; None: they are sorted by the columns, the first one first.
        min_gain: by what part a read has to open fewer files, or a smaller share of them.
        target_bytes: of a new file.
        max_bytes: a larger file is cut; what is between is no reason to expect more files.
        most_bytes: of files that are brought into one order: more are in several, each of files that follow each
            other as they are given.
        whole: whether all files are rewritten where that gains so much, however many bytes it takes.
        keys: by which rows are sorted in the place of values, of each column; without any, by the values.
    """

    curve: Curve | None
    min_gain: float
    target_bytes: int
    max_bytes: int
    most_bytes: int
    whole: bool
    keys: tuple[SortKey | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderForecast:
    """How many files a point read on each column opens, and how many there are.

    Args:
        before: of each column, as files are.
        after: as they are expected to be.
        files_after: how many there are then.
    """

    before: tuple[float, ...]
    after: tuple[float, ...]
    files_after: int


def choose_for_order(
    ranges: Sequence[ColumnRanges], rows: Ints, expected_bytes: Ints, settings: OrderSettings
) -> Bools:
    """Which files of a partition are brought into an order together.

    Args:
        ranges: of each column, of n files.
        rows: n numbers of rows.
        expected_bytes: n sizes, as their rows will take when they are written anew.
        settings: what is chosen by.

    Returns:
        Of n files whether each is.
    """
    if not _may_gain(ranges, rows, expected_bytes, settings):
        return np.zeros(len(rows), np.bool_)
    drawn = _Drawn(ranges, rows, expected_bytes, settings)
    number, now = 0, drawn.opened(drawn.first(0))
    while (further := drawn.further(number, now)) is not None:
        number, now = further
    return drawn.first(number)


def _may_gain(
    ranges: Sequence[ColumnRanges], rows: Ints, expected_bytes: Ints, settings: OrderSettings
) -> bool:
    """Whether reads may open fewer files than they do: not of one, nor where they open hardly more than one.

    Args: see `choose_for_order`.
    """
    if (expected_bytes > settings.max_bytes).any():
        return True
    return len(rows) > 1 and any(
        files_opened(each, rows) * (1 - settings.min_gain) > _OPENED_AT_LEAST for each in ranges
    )


def expected_of(
    ranges: Sequence[ColumnRanges], rows: Ints, expected_bytes: Ints, settings: OrderSettings, chosen: Bools
) -> OrderForecast:
    """What is expected where some files of a partition are brought into an order; see `choose_for_order`."""
    return _Drawn(ranges, rows, expected_bytes, settings).expected(chosen)


class _Drawn:
    """Rows drawn from files of one partition, and what files would be of them."""

    def __init__(
        self, ranges: Sequence[ColumnRanges], rows: Ints, expected_bytes: Ints, settings: OrderSettings
    ) -> None:
        self._settings, self._ranges, self._rows = settings, ranges, rows
        each = min(_DRAWN_OF_FILE, max(_LEAST_DRAWN, _MOST_DRAWN // len(rows)))
        share = rows * (each * len(rows) / max(1, rows.sum()))
        # Of a small file some, too: one row alone would say that the file is of one value.
        counts = np.maximum(min(each, _DRAWN_OF_SMALL_FILE), np.rint(share)).astype(np.int64)
        self._file = np.repeat(np.arange(len(rows)), counts)
        self._row_of_drawn = (rows / counts)[self._file]
        random = np.random.default_rng(_SEED)
        points = []
        for own in ranges:
            known = own.lower[own.is_known], own.upper[own.is_known]
            least, most = (known[0].min(), known[1].max()) if len(known[0]) else (0.0, 1.0)
            lower, upper = np.where(own.is_known, own.lower, least), np.where(own.is_known, own.upper, most)
            points.append(lower[self._file] + (upper - lower)[self._file] * random.random(len(self._file)))
        self._points = np.stack(points, axis=1)
        # Rows are ordered by these: values differ that bounds do not tell apart.
        self._keys = self._points.copy()
        for place, own in enumerate(ranges):
            if own.is_cut:
                by_value = np.lexsort((random.random(len(self._file)), self._points[:, place]))
                self._keys[by_value, place] = np.arange(len(by_value))
        for place, key in enumerate(settings.keys):
            if key is not None:
                self._keys[:, place] = key.of_numbers(self._points[:, place])
        curve = settings.curve
        self._curve = None if curve is None else curve_of(curve, *_ranks(self._keys))
        self._is_boundless = np.stack([own.is_boundless[self._file] for own in ranges], axis=1)
        starts = np.cumsum(counts) - counts
        self._lower = np.minimum.reduceat(self._points, starts)
        self._upper = np.maximum.reduceat(self._points, starts)
        varies = self._points.min(axis=0) < self._points.max(axis=0)
        before = np.cumsum(varies) - varies  # columns of one value decide nothing
        weights = varies * (np.ones(len(ranges)) if settings.curve else _WEIGHT**before)
        self._weights = weights / weights.sum() if varies.any() else np.full(len(ranges), 1 / len(ranges))
        coverage = np.stack([self._coverage(place) for place in range(len(ranges))], axis=1) @ self._weights
        self._by_reads = np.argsort(-coverage, kind="stable")
        drops = -np.diff(coverage[self._by_reads])
        self._before_drops = np.sort(np.argsort(-drops, kind="stable")[:_DROPS] + 1)
        self._bytes = expected_bytes
        is_large = expected_bytes > settings.max_bytes
        own_target = np.where(is_large, 0, expected_bytes)
        self._targets = expected_bytes / np.maximum(own_target, settings.target_bytes)
        self._shares_in_order = expected_bytes * (1 - coverage) / max(1, int(expected_bytes.sum()))

    def _coverage(self, place: int) -> Floats:
        """The share of all rows that lie between the bounds of each file in one column."""
        points = np.sort(self._points[:, place])
        begins = np.searchsorted(points, self._lower[:, place])
        ends = np.searchsorted(points, self._upper[:, place], side="right")
        own = self._ranges[place]
        gains_nothing = own.is_null | own.is_boundless
        return np.where(own.is_known, (ends - begins) / len(points), np.where(gains_nothing, 0.0, 1.0))

    def first(self, number: int) -> Bools:
        """So many files, which most reads open."""
        found = np.zeros(len(self._rows), np.bool_)
        found[self._by_reads[:number]] = True
        return found

    def expected(self, chosen: Bools) -> OrderForecast:
        """What is expected of files."""
        before, after = self.opened(self.first(0)), self.opened(chosen)
        return OrderForecast(
            before=tuple(before.tolist()),
            after=tuple(after.tolist()),
            files_after=self._files(chosen),
        )

    def _files_of(self, chosen: Bools) -> int:
        """How many files those that are chosen become."""
        return sum(self._files_of_group(group) for group in self._groups(chosen))

    def _files_of_group(self, group: Bools) -> int:
        return math.ceil(round(float(self._targets[group].sum()), 6))

    def _groups(self, chosen: Bools) -> list[Bools]:
        """Those that are chosen, as they are brought into one order or several."""
        ends = np.cumsum(np.where(chosen, self._bytes, 0))
        number = -(-int(ends[-1]) // self._settings.most_bytes)
        if number <= 1:
            return [chosen]
        groups = np.minimum(number - 1, (ends - np.where(chosen, self._bytes, 0)) * number // ends[-1])
        return [chosen & (groups == group) for group in range(number)]

    def _files(self, chosen: Bools) -> int:
        """How many files there are then, with the others."""
        return max(1, int(np.count_nonzero(~chosen)) + self._files_of(chosen))

    def opened(self, chosen: Bools) -> Floats:
        """How many files a point read on each column opens once those that are chosen are brought into an order."""
        left = np.flatnonzero(~chosen)
        new_files = [
            self._ordered(group[self._file], self._files_of_group(group)) for group in self._groups(chosen)
        ]
        lower, upper, has_bounds, rows = (np.concatenate(parts) for parts in zip(*new_files, strict=True))
        new_rows = np.concatenate([self._rows[left], rows])
        found = []
        for place, own in enumerate(self._ranges):
            none, no_files = np.zeros(len(rows), np.bool_), np.zeros(len(new_rows), np.bool_)
            whole = ColumnRanges(
                lower=np.concatenate([self._lower[left, place], lower[:, place]]),
                upper=np.concatenate([self._upper[left, place], upper[:, place]]),
                is_known=np.concatenate([own.is_known[left], has_bounds[:, place]]),
                is_null=np.concatenate([own.is_null[left], none]),
                is_boundless=no_files,
                is_cut=own.is_cut,
            )
            found.append(files_opened(whole, new_rows))
        return np.array(found)

    def _ordered(self, mask: Bools, files: int) -> tuple[Floats, Floats, Bools, Ints]:
        """The bounds, whether there are any, and the rows of the files that some of the drawn rows become."""
        points, weights = self._points[mask], self._row_of_drawn[mask]
        if not len(points):
            return points, points, np.empty(points.shape, np.bool_), np.empty(0, np.int64)
        order = self._order(self._keys[mask])
        ends = np.cumsum(weights[order])
        shares = self._shares(self._file[mask][order], files)
        cuts = np.searchsorted(ends, ends[-1] * np.cumsum(shares)[:-1])
        starts = np.unique(np.concatenate([[0], cuts]))
        ordered = points[order]
        return (
            np.minimum.reduceat(ordered, starts),
            np.maximum.reduceat(ordered, starts),
            ~np.logical_or.reduceat(self._is_boundless[mask][order], starts),
            np.rint(np.add.reduceat(weights[order], starts)).astype(np.int64),
        )

    def _shares(self, owners: Ints, files: int) -> Floats:
        """The parts of rows that so many files have.

        They are equal, unless as many files are written anew: then they are those of the files, as these follow each
        other. So files that are in order are what they become.

        Args:
            owners: the file of each row, in order.
            files: that there are of the rows.
        """
        own, counts = np.unique(owners, return_counts=True)
        if len(own) != files:
            return np.full(max(1, files), 1 / max(1, files))
        places = np.bincount(owners, np.arange(len(owners)))[own] / counts
        rows = self._rows[own[np.argsort(places, kind="stable")]]
        return np.asarray(rows / max(1, rows.sum()), np.float64)

    def _order(self, keys: Floats) -> npt.NDArray[np.int64]:
        if self._curve is None:
            return np.lexsort(keys.T[::-1])
        return np.argsort(CURVES[self._curve](*_ranks(keys)), kind="stable")

    def further(self, number: int, now: Floats) -> tuple[int, Floats] | None:
        """So many more files that it is worth it, and what reads open then; None where it never is."""
        best = (0.0, number, now)
        files = self._files(self.first(number))
        for more in self._numbers(number):
            chosen = self.first(more)
            after = self.opened(chosen)
            left = np.divide(after, now, out=np.ones(len(now)), where=now > 0)
            gain = float((1 - left * min(1.0, files / self._files(chosen))) @ self._weights)
            share = float(self._shares_in_order[chosen].sum())
            worth = gain if self._settings.whole else gain - _BYTES_WORTH * share
            if gain >= self._settings.min_gain and worth > best[0]:
                best = (worth, more, after)
        return None if best[1] == number else best[1:]

    def _numbers(self, chosen: int) -> list[int]:
        """Numbers of files that are looked at: each half as many again as the one before it, and where files change.

        Those that came since the others were brought into an order are opened by many more reads than these.
        """
        last = len(self._rows)
        if self._settings.whole:
            return [last] if chosen < last else []
        found, number = [], max(2, chosen + 1)
        while number < last:
            found.append(number)
            number += max(1, number // 2)
        found += [each for each in self._before_drops.tolist() if each >= max(2, chosen + 1)]
        return sorted({*found, last}) if chosen < last and last > 1 else found


def _ranks(keys: Floats) -> tuple[Ranks, int]:
    """The ranks of n rows among each other in k columns, and how many bits these have."""
    bits = rank_bits(keys.shape[1])
    return np.stack([ranks_of(column, np.sort(column), bits) for column in keys.T], axis=1), bits
