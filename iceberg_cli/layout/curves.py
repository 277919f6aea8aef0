"""Places on curves that fill a space: rows that are near each other on one are near each other in each column.

Sources: G. M. Morton, "A computer oriented geodetic data base" (1966), for the z-order curve; J. Skilling, "Programming
the Hilbert curve" (2004), for that of Hilbert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

Ranks = npt.NDArray[np.uint64]
Curve = Literal["z-order", "hilbert"]

_KEY_BITS: Final = 63  # a signed number of 64 bits has them
_MOST_BITS: Final = 16  # of a rank
_ONE: Final = np.uint64(1)
_GIVES_WAY: Final = 0.9  # samples of the same rows would answer now one, now the other, where less is gained
_COMPARED_FILES: Final = 32  # as the curves compare by them, they do about as well by a few and by hundreds


def rank_bits(columns: int) -> int:
    """How many bits ranks of so many columns have."""
    return min(_MOST_BITS, _KEY_BITS // columns)


def z_order(ranks: Ranks, bits: int) -> Ranks:
    """The bits of the ranks in turn, the highest ones first.

    Args:
        ranks: of n rows in k columns, below 2^bits.
        bits: k times which is at most 63.

    Returns:
        n numbers.
    """
    found = np.zeros(len(ranks), np.uint64)
    for bit in reversed(range(bits)):
        for column in ranks.T:
            found = (found << _ONE) | ((column >> np.uint64(bit)) & _ONE)
    return found


def hilbert(ranks: Ranks, bits: int) -> Ranks:
    """As `z_order`, but that rows next to each other differ by 1 in one column alone."""
    axes = [column.copy() for column in ranks.T]
    first = axes[0]
    for bit in reversed(range(1, bits)):
        mask, below = _ONE << np.uint64(bit), (_ONE << np.uint64(bit)) - _ONE
        for axis in axes:
            is_set = (axis & mask) != 0
            swapped = np.where(is_set, np.uint64(0), (first ^ axis) & below)
            axis ^= swapped  # noqa: PLW2901 - in place
            first ^= np.where(is_set, below, swapped) if axis is not first else np.where(is_set, below, 0)
    for axis, before in zip(axes[1:], axes, strict=False):
        axis ^= before  # noqa: PLW2901 - in place
    turned = np.zeros(len(ranks), np.uint64)
    for bit in reversed(range(1, bits)):
        mask = _ONE << np.uint64(bit)
        turned ^= np.where((axes[-1] & mask) != 0, mask - _ONE, np.uint64(0))
    return z_order(np.stack([axis ^ turned for axis in axes], axis=1), bits)


CURVES: Final[Mapping[Curve, Callable[[Ranks, int], Ranks]]] = {"z-order": z_order, "hilbert": hilbert}


def curve_of(strategy: Curve, ranks: Ranks, bits: int) -> Curve:
    """The curve that rows are laid along: Hilbert's gives way where reads open clearly fewer files of the other one.

    They do where columns grow with each other: rows beside the diagonal are far from it on Hilbert's curve.

    Args:
        strategy: what an operator asked for.
        ranks: see `z_order`; of some of the rows.
        bits: likewise.
    """
    if strategy != "hilbert" or not len(ranks):
        return strategy
    by_hilbert, by_z_order = (
        _files_opened(ranks, CURVES[curve](ranks, bits)) for curve in ("hilbert", "z-order")
    )
    return "z-order" if np.mean(by_z_order / by_hilbert) < _GIVES_WAY else "hilbert"


def _files_opened(ranks: Ranks, places: Ranks) -> npt.NDArray[np.int64]:
    """How many files of each column hold the rank of a row between their bounds, over all rows: at least one each."""
    ordered = ranks[np.argsort(places, kind="stable")]
    starts = np.unique(np.arange(_COMPARED_FILES) * len(ordered) // _COMPARED_FILES)
    lower, upper = (np.sort(bound.reduceat(ordered, starts), axis=0) for bound in (np.minimum, np.maximum))
    return np.array(
        [
            np.sum(np.searchsorted(least, own, side="right") - np.searchsorted(most, own))
            for least, most, own in zip(lower.T, upper.T, ordered.T, strict=True)
        ]
    )
