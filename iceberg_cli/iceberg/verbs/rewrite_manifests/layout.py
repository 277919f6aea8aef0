"""Whether a branch's manifests are laid out well, and which of them to write anew where they are not.

A reader opens every manifest whose partitions may match. Few manifests of the target size are good, and on a
partitioned table manifests whose partitions do not overlap. The limits below are wider than what a rewrite aims at,
so that what it leaves is good as a rule.

How large new manifests turn out is not known before they are made: entries are of all sizes, and compress well or
badly. Yet a second rewrite must find nothing, whatever the first one left, or a nightly one never ends. So the names
of new manifests have the rewrite that wrote them and its rules, and what one rewrite wrote is not written again by the
same rules: not split, and neither merged nor sorted anew for its own sake alone. Where one part of a group is due,
all that is small and all that is dead is written with it, so that no two rewrites leave small manifests side by side.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iceberg_cli.iceberg.spec.manifests.field_summaries import FieldSummary

TARGET_PROPERTY: Final = "commit.manifest.target-size-bytes"
DEFAULT_TARGET_BYTES: Final = 8 << 20
SMALL: Final = 0.75  # of the target size: below, a manifest is one of those that are merged
LARGE: Final = 1.8  # above, it is split
MERGED: Final = "small: it is merged"  # how the reason begins
_SLACK: Final = (
    1.5  # merged manifests may turn out smaller than they were together, by the codec or by sorting
)

_NAME: Final = re.compile(r"-([0-9a-f]{8})-([0-9a-f]{16})-\d{4,}\.avro$")

Key = tuple[tuple[int, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The limits by which a group of manifests is judged.

    Args:
        target_bytes: size to aim at.
        header_bytes: of a new manifest, before its first entry.
        min_manifests: fewer are not merged.
        fields: number of partition fields that entries are sorted by.
        rules: eight hexadecimal digits of all that decides how entries are divided, see `rules_of`; "" where no
            manifest counts as written by them.
    """

    target_bytes: int
    header_bytes: int
    min_manifests: int
    fields: int
    rules: str = ""

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
        """How many manifests of one rewrite may seem to share a partition, as each field has bounds of its own."""
        return max(2 * self.fields - 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A manifest with what decides whether it is written anew.

    Args:
        number: its row in the manifest list.
        body_bytes: of its live entries, as stored.
        live_files: number of these.
        lower: with `upper`, bounds of its partitions, by the fields that entries are sorted by.
        upper: see `lower`.
        rewrite: the rewrite by the same rules that wrote it; "" for none.
    """

    number: int
    body_bytes: int
    live_files: int
    lower: Key = ()
    upper: Key = ()
    rewrite: str = ""


def chosen(candidates: Sequence[Candidate], layout: Layout) -> dict[int, str]:
    """The manifests of one content and spec that are to be written anew, with the reason; empty: all is well."""
    dead = [each for each in candidates if not each.live_files]
    live = [each for each in candidates if each.live_files]
    large = [each for each in live if is_large(each, layout)]
    # Split, they may be enough to be merged.
    many = len(candidates) >= layout.min_manifests or bool(large)
    if many and layout.fields and overlaps(live) > layout.most_overlaps and not _of_one_rewrite(live):
        return {each.number: "its partitions overlap with those of too many others" for each in live} | _dead(
            dead
        )
    reasons = {each.number: "far above the target size: it is split" for each in large}
    if many:
        reasons |= _dead(dead)
        small = [each for each in live if each.body_bytes < SMALL * layout.body_bytes]
        if large or (_too_many(small, layout) and not _of_one_rewrite(small)):
            others = len(small) + len(large) - 1
            reasons |= {each.number: f"{MERGED} with {others:,} others" for each in small}
    kept = [each for each in live if each.number not in reasons]
    if many and layout.fields and _would_overlap(kept, reasons, live, layout):
        return {each.number: "the merged ones would overlap with it" for each in kept} | reasons
    return reasons


def is_large(candidate: Candidate, layout: Layout) -> bool:
    """Whether a manifest is so far above the target size that it is split."""
    too_large = candidate.live_files > 1 and candidate.body_bytes > LARGE * layout.body_bytes
    return too_large and not candidate.rewrite


def _too_many(small: Sequence[Candidate], layout: Layout) -> bool:
    size = sum(each.body_bytes for each in small)
    return len(small) > max(1, math.ceil(_SLACK * size / layout.body_bytes))


def _of_one_rewrite(candidates: Sequence[Candidate]) -> bool:
    """Whether one rewrite by the same rules wrote them all: another one could only write them again."""
    return bool(candidates[0].rewrite) and len({each.rewrite for each in candidates}) == 1


def _dead(dead: Sequence[Candidate]) -> dict[int, str]:
    return {each.number: "it holds no live file" for each in dead}


def _would_overlap(
    kept: Sequence[Candidate], reasons: Mapping[int, str], live: Sequence[Candidate], layout: Layout
) -> bool:
    """Whether the table would be due again after a rewrite of `reasons` only."""
    rewritten = any(each.number in reasons for each in live)
    return rewritten and overlaps(kept) + layout.own_overlaps > layout.most_overlaps


def rules_of(*parts: object) -> str:
    """Eight hexadecimal digits of what decides how entries are divided."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]


def name_of(kind: str, layout: Layout, rewrite: str, index: int) -> str:
    """The name of a new manifest.

    Args:
        kind: begins the name.
        layout: by whose rules it is written.
        rewrite: sixteen hexadecimal digits of the rewrite that writes it.
        index: of the manifest in that rewrite.
    """
    return f"{kind}-{layout.rules}-{rewrite}-{index:04d}.avro"


def rewrite_of(path: str, layout: Layout) -> str:
    """The rewrite by the rules of a layout that wrote a manifest, from its name; "" for none."""
    found = _NAME.search(path)
    return found[2] if found and found[1] == layout.rules else ""


def outputs(layout: Layout, *, body_bytes: float, live_files: int) -> int:
    """The number of manifests for so many files in so many bytes."""
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
    """Bounds around every tuple: of a manifest whose list does not summarise it."""
    return ((-1, None),) * fields, ((3, None),) * fields


def _lower(summary: FieldSummary) -> tuple[int, Any]:
    if summary.contains_null:
        return 0, None
    return (2, None) if summary.lower is None else (1, summary.lower)


def _upper(summary: FieldSummary) -> tuple[int, Any]:
    if summary.contains_nan:
        return 2, None
    return (0, None) if summary.upper is None else (1, summary.upper)
