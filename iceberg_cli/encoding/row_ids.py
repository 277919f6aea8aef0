"""Allocation of row ids: disjoint ranges, upward from the first id that is free.

Each format converts its own counter: Iceberg's `next-row-id` is the first free id, Delta's high-water mark the last
used one.
"""

from __future__ import annotations

from collections.abc import Sequence


def allocate(next_id: int, counts: Sequence[int]) -> tuple[list[int], int]:
    """Allocate one range of row ids for each count.

    Args:
        next_id: the first free id.
        counts: n numbers of rows, none negative.

    Returns:
        The first id of each of the n ranges, ascending (an empty range begins where the next one does), and the id
        that is free then.
    """
    firsts = []
    for count in counts:
        firsts.append(next_id)
        next_id += count
    return firsts, next_id
