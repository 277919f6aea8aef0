"""Ranges of the row ids that live files have.

Spec: "Row Lineage", "First Row ID Inheritance".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.reachability.keys import live
from iceberg_cli.iceberg.spec.manifests.manifest import Mask, with_ids

_MOST: Final = (1 << 63) - 1
Numbers = npt.NDArray[np.int64]


def live_rows(rows: pa.Table) -> Numbers:
    """The rows of the live data files of each of n manifests with counts."""
    counts: Numbers = pc.add(rows["added_rows_count"], rows["existing_rows_count"]).to_numpy()
    return counts


def doubtful(rows: pa.Table, next_row_id: int) -> Mask:
    """Which of n manifests with counts may have an id that another one has too, or one of `next_row_id` or above.

    A manifest's range is as long as it has live rows, and is not used where entries have ids of their own, as those
    of a rewrite have: so only the entries of these decide. Manifests whose ranges do not overlap are trusted.
    """
    firsts = pc.fill_null(rows["first_row_id"], 0).to_numpy()
    stops = _stops(firsts, live_rows(rows))
    places = np.flatnonzero(with_ids(rows) & (stops > firsts))
    order = places[np.argsort(firsts[places], kind="stable")]
    starts, ends = firsts[order], stops[order]
    is_doubtful = np.zeros(rows.num_rows, np.bool_)
    is_doubtful[order[1:]] = starts[1:] < np.maximum.accumulate(ends)[:-1]
    is_doubtful[order[:-1]] |= ends[:-1] > starts[1:]
    is_doubtful[order] |= ends > next_row_id
    return is_doubtful


@dataclass(frozen=True, slots=True)
class RowIds:
    """Row ids of live files.

    Args:
        firsts: first id of each of n ranges that do not touch, ascending.
        stops: the id after the last one of each.
        twice: first and last id of one range that two files have, if there is any.
    """

    firsts: Numbers
    stops: Numbers
    twice: tuple[int, int] | None = None

    @property
    def end(self) -> int:
        """The first id above all of them; 0 without ids."""
        return int(self.stops.max(initial=0))

    @classmethod
    def of(cls, entries: pa.Table) -> RowIds:
        """The ids of the live entries among `entries`: columns `status`, `first_row_id`, `record_count`."""
        rows = live(entries)
        rows = rows.filter(rows["first_row_id"].is_valid())
        firsts, counts = rows["first_row_id"].to_numpy(), rows["record_count"].to_numpy()
        return cls._ranges(firsts[counts > 0], _stops(firsts, counts)[counts > 0])

    @classmethod
    def together(cls, parts: Sequence[RowIds]) -> RowIds:
        """The ids of all parts."""
        none = np.empty(0, np.int64)
        ids = cls._ranges(
            np.concatenate([none, *(part.firsts for part in parts)]),
            np.concatenate([none, *(part.stops for part in parts)]),
        )
        twice = next((part.twice for part in parts if part.twice is not None), ids.twice)
        return replace(ids, twice=twice)

    @classmethod
    def _ranges(cls, firsts: Numbers, stops: Numbers) -> RowIds:
        order = np.argsort(firsts, kind="stable")
        firsts, own = firsts[order], stops[order]
        stops = np.maximum.accumulate(own)
        clash = np.flatnonzero(firsts[1:] < stops[:-1])[:1]
        twice = None
        if len(clash):
            at = int(clash[0])
            twice = int(firsts[at + 1]), int(min(stops[at], own[at + 1])) - 1
        gaps = np.flatnonzero(firsts[1:] > stops[:-1])
        begins = np.concatenate([np.arange(min(len(firsts), 1)), gaps + 1])
        ends = np.concatenate([gaps, np.arange(len(firsts))[-1:]])
        return cls(firsts[begins], stops[ends], twice)


def _stops(firsts: Numbers, counts: Numbers) -> Numbers:
    """The id after the last one of each range. Hostile numbers do not wrap around."""
    stops: Numbers = np.minimum(firsts, _MOST - counts) + counts
    return stops
