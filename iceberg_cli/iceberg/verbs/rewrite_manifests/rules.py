"""rewrite-manifests: which manifests of main are written anew, into how many, and the summary of the commit.

Data and delete manifests of every partition spec, each kind and spec for itself. Nothing is read for it but the
manifest list, and one manifest of a group that is due, to measure how it compresses.

Spec: "Manifests", "Manifest Lists", "Snapshots" (`replace`), "Row Lineage".
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.iceberg.verbs.rewrite_manifests.groups import Group, candidate
from iceberg_cli.iceberg.verbs.rewrite_manifests.layout import (
    MERGED,
    Layout,
    chosen,
    is_large,
    name_of,
    outputs,
)
from iceberg_cli.iceberg.verbs.rewrite_manifests.placement import Target
from iceberg_cli.plan.plan import Task

COLUMNS: Final = ("rewritten_manifests_count", "added_manifests_count")
_FURTHEST = 6  # numbers of manifests to rehearse above and below the expected one


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rewrite:
    """The manifests of one group that are replaced, and the new ones.

    Args:
        group: whose manifests they are.
        reasons: by row of the manifest list, why it is written anew.
        rows: of the manifests with live files among them.
        tasks: the new manifests, in the order of their partitions.
    """

    group: Group
    reasons: Mapping[int, str]
    rows: pa.Table
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRewrite:
    """The manifests that an earlier plan would have written anew, as far as they are still listed.

    Args:
        reasons: by row of the manifest list.
        complete: all of them are.
    """

    reasons: Mapping[int, str]
    complete: bool


def due(group: Group, *, every: bool = False, shown: EarlierRewrite | None = None) -> dict[int, str]:
    """The manifests of a group that are written anew, by row of the list, with the reason.

    Args:
        group: see `groups`.
        every: whether all of them are, whatever their layout.
        shown: what an earlier plan would have written anew: nothing else is.
    """
    if group.layout is None:
        return {}
    if shown is None and every:
        return dict.fromkeys(group.places, "every manifest is written anew (--all-manifests)")
    if shown is None:
        return chosen(group.candidates(), group.layout)
    reasons = {place: shown.reasons[place] for place in group.places if place in shown.reasons}
    if shown.complete or every:
        return reasons
    rest = [each for each in group.candidates() if each.number in reasons]
    live = [each for each in rest if each.live_files]
    files, size = sum(each.live_files for each in live), sum(each.body_bytes for each in live)
    fewer = outputs(group.layout, body_bytes=size, live_files=files) < len(rest)
    return reasons if fewer or any(is_large(each, group.layout) for each in live) else {}


def rewrite(group: Group, reasons: Mapping[int, str], *, growth: float) -> Rewrite:
    """The rewrite of the chosen manifests of a group.

    Args:
        group: see `groups`.
        reasons: see `due`.
        growth: bytes in new manifests for each stored byte of theirs, as far as is known.
    """
    assert group.layout is not None
    going = [each for each in group.candidates() if each.number in reasons and each.live_files]
    own = {place: index for index, place in enumerate(group.places)}
    rows = group.rows.take(pa.array([own[each.number] for each in going], pa.int64()))
    count = outputs(
        group.layout,
        body_bytes=growth * sum(each.body_bytes for each in going),
        live_files=sum(each.live_files for each in going),
    )
    return into(Rewrite(group=group, reasons=dict(reasons), rows=rows, tasks=()), count)


def into(found: Rewrite, count: int) -> Rewrite:
    """The rewrite into another number of manifests."""
    group = found.group
    assert group.target is not None
    assert group.layout is not None
    digest = _digest(group.target, found.rows, count)
    kind = f"{'deletes' if group.content else 'data'}-spec{group.spec_id}"
    tasks = tuple(
        Task(name=name_of(kind, group.layout, digest, index), kind="manifest") for index in range(count)
    )
    return replace(found, tasks=tasks)


def stored_bytes(found: Rewrite) -> int:
    """Bytes of the manifests that a rewrite reads."""
    return int(found.rows["manifest_length"].to_numpy().sum())


def counts_to_try(found: Rewrite, rehearsed: Sequence[Mapping[str, Any]]) -> list[int]:
    """Other numbers of manifests to rehearse, the likeliest first, by the sizes of those rehearsed."""
    layout = found.group.layout
    assert layout is not None
    files = sum(int(found.rows[f"{name}_files_count"].to_numpy().sum()) for name in ("added", "existing"))
    size = sum(row["manifest_length"] - layout.header_bytes for row in rehearsed)
    likely = outputs(layout, body_bytes=size, live_files=files)
    around = [likely + step for far in range(1, _FURTHEST + 1) for step in (far, -far)]
    return [count for count in (likely, *around) if 0 < count <= files and count != len(rehearsed)]


def due_again(group: Group, rows: Sequence[Mapping[str, Any]]) -> Mapping[int, str]:
    """The new manifests that would be due again, were they alone, by their index, with the reason."""
    assert group.layout is not None
    assert group.target is not None
    named = [{"manifest_path": "", **row} for row in rows]
    made = [candidate(number, row, group.layout, group.target) for number, row in enumerate(named)]
    return chosen(made, replace(group.layout, min_manifests=1))


def pays(found: Rewrite) -> bool:
    """Whether a rewrite improves anything: merging that does not leave fewer manifests does not."""
    return len(found.tasks) < len(found.reasons) or any(
        not reason.startswith(MERGED) for reason in found.reasons.values()
    )


def _digest(target: Target, rows: pa.Table, count: int) -> str:
    """SHA-256 of all that decides the content of the new manifests: equal tasks build equal files."""
    text, header = target.header()
    inputs = rows.drop_columns(["partitions"]).to_pylist()
    parts = (text, header, target.format_version, target.content, target.codec, target.sort_by, inputs, count)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def weights(rows: pa.Table, layout: Layout) -> npt.NDArray[np.float64]:
    """Mean bytes of an entry of each manifest."""
    lengths = rows["manifest_length"].to_numpy() - layout.header_bytes
    entries = sum(rows[f"{name}_files_count"].to_numpy() for name in ("added", "existing", "deleted"))
    found: npt.NDArray[np.float64] = np.maximum(lengths, 1) / np.maximum(entries, 1)
    return found


def summary(rewrites: Sequence[Rewrite], *, listed: int) -> dict[str, str]:
    """The keys of the snapshot's summary that Java writes for this operation, without totals."""
    replaced = sum(len(each.reasons) for each in rewrites)
    entries = sum(
        int(each.rows[f"{name}_files_count"].to_numpy().sum())
        for each in rewrites
        for name in ("added", "existing")
    )
    return {
        "manifests-created": str(sum(len(each.tasks) for each in rewrites)),
        "manifests-kept": str(listed - replaced),
        "manifests-replaced": str(replaced),
        "entries-processed": str(entries),
        "changed-partition-count": "0",
    }
