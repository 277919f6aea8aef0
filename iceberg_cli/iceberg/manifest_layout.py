"""When a branch's manifests are laid out well, and which of them to write anew where they are not.

A reader opens every manifest whose partitions may match. Few manifests of the target size are good, and on a
partitioned table manifests whose partitions do not overlap. What a rewrite leaves is good by these rules, so that a
second one finds nothing: that is why the limits below are wider than what a rewrite aims at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iceberg_cli.iceberg.field_summaries import FieldSummary

SMALL: Final = 0.75  # of the target size: below, a manifest is one of those that are merged
LARGE: Final = 1.8  # above, it is split
MERGED: Final = "small: it is merged"  # how the reason begins
_SLACK: Final = (
    1.5  # merged manifests may turn out smaller than they were together, by the codec or by sorting
)

Key = tuple[tuple[int, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a group of manifests is judged by.

    Args:
        target_bytes: size to aim at.
        header_bytes: what a new manifest takes before its first entry.
        min_manifests: fewer are not merged.
        fields: number of partition fields that entries are sorted by.
    """

    target_bytes: int
    header_bytes: int
    min_manifests: int
    fields: int

    @property
    def body_bytes(self) -> int:
        """Bytes of entries that a manifest aims at. A smaller target than two headers would be mostly headers."""
        return max(self.target_bytes - self.header_bytes, self.header_bytes, 1)

    @property
    def most_overlaps(self) -> int:
        """How many manifests may share a partition before all are sorted anew."""
        return 4 * self.fields

    @property
    def own_overlaps(self) -> int:
        """How many manifests of one rewrite may seem to share a partition, as the bounds of each field are apart."""
        return max(2 * self.fields - 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A manifest. `lower` and `upper` enclose its partitions, by the fields that entries are sorted by."""

    number: int
    body_bytes: int
    live_files: int
    lower: Key = ()
    upper: Key = ()


def chosen(candidates: Sequence[Candidate], layout: Layout) -> dict[int, str]:
    """The manifests of one content and spec that are to be written anew, with the reason; empty: all is well."""
    many = len(candidates) >= layout.min_manifests
    dead = [each for each in candidates if not each.live_files]
    live = [each for each in candidates if each.live_files]
    if many and layout.fields and overlaps(live) > layout.most_overlaps:
        return {each.number: "its partitions overlap with those of too many others" for each in live} | _dead(
            dead
        )
    large = [each for each in live if is_large(each, layout)]
    small = [each for each in live if each.body_bytes < SMALL * layout.body_bytes]
    reasons = {each.number: "far above the target size: it is split" for each in large}
    if many:
        reasons |= _dead(dead)
        size = sum(each.body_bytes for each in small)
        if len(small) > max(1, math.ceil(_SLACK * size / layout.body_bytes)):
            reasons |= {each.number: f"{MERGED} with {len(small) - 1:,} others" for each in small}
    kept = [each for each in live if each.number not in reasons]
    if many and layout.fields and _would_overlap(kept, reasons, live, layout):
        return {each.number: "the merged ones would overlap with it" for each in kept} | reasons
    return reasons


def is_large(candidate: Candidate, layout: Layout) -> bool:
    """Whether a manifest is so far above the target size that it is split."""
    return candidate.live_files > 1 and candidate.body_bytes > LARGE * layout.body_bytes


def _dead(dead: Sequence[Candidate]) -> dict[int, str]:
    return {each.number: "it holds no live file" for each in dead}


def _would_overlap(
    kept: Sequence[Candidate], reasons: Mapping[int, str], live: Sequence[Candidate], layout: Layout
) -> bool:
    """Whether the table would be due again after a rewrite of `reasons` only."""
    rewritten = any(each.number in reasons for each in live)
    return rewritten and overlaps(kept) + layout.own_overlaps > layout.most_overlaps


def outputs(layout: Layout, *, body_bytes: float, live_files: int) -> int:
    """How many manifests hold so many files in so many bytes."""
    return max(min(math.ceil(body_bytes / layout.body_bytes), live_files), 0 if not live_files else 1)


def overlaps(candidates: Sequence[Candidate]) -> int:
    """The most manifests whose partitions lie around one point. A manifest of one partition covers no point."""
    events = []
    for each in candidates:
        if each.lower < each.upper:
            events += [(each.lower, 1), (each.upper, 0)]
    depth = most = 0
    for _, opens in sorted(events):  # where one ends and another begins, the end comes first
        depth += 1 if opens else -1
        most = max(most, depth)
    return most


def enclosed(summaries: Sequence[FieldSummary]) -> tuple[Key, Key]:
    """The smallest and the largest tuple of values that the summaries allow; null is the least, NaN the greatest."""
    return tuple(_lower(each) for each in summaries), tuple(_upper(each) for each in summaries)


def unknown(fields: int) -> tuple[Key, Key]:
    """Around every tuple: for a manifest whose list does not summarise it."""
    return ((-1, None),) * fields, ((3, None),) * fields


def _lower(summary: FieldSummary) -> tuple[int, Any]:
    if summary.contains_null:
        return 0, None
    return (2, None) if summary.lower is None else (1, summary.lower)


def _upper(summary: FieldSummary) -> tuple[int, Any]:
    if summary.contains_nan:
        return 2, None
    return (0, None) if summary.upper is None else (1, summary.upper)
