"""The rows that other writers deleted of the inputs of finished groups, looked up in the new files.

A deletion vector that grew says which rows those are. Of an input that is gone they are all: whoever removed it has
what became of its rows, and of these none is live in the new file. That is so too where another compaction removed it.

See `moved_positions.py`; `compaction-delta.md` E3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.delta.spec.columns import dv_ids
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.rewrite_data_files.group import RewrittenGroup
from iceberg_cli.delta.verbs.rewrite_data_files.tasks import read_frames
from iceberg_cli.encoding.deletion_vector import decode
from iceberg_cli.layout.files.kept_positions import moved_positions
from iceberg_cli.layout.moved_positions import Moved, by_group
from iceberg_cli.layout.position_map import Positions
from iceberg_cli.operation.groups.results import GroupResult

MOST_GONE: Final = 0.2  # of the rows of a group: a file with more of them deleted is soon rewritten again
_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveInputs:
    """What a table has of n inputs of groups.

    Args:
        places: of their adds in the snapshot, -1 where one is gone.
        is_deleted_from: whether each has another deletion vector than when it was read, or is gone.
    """

    places: npt.NDArray[np.int64]
    is_deleted_from: npt.NDArray[np.bool_]

    @property
    def is_gone(self) -> npt.NDArray[np.bool_]:
        """Whether each is not live any more."""
        return self.places < 0


def moved_deletes(
    table: DeltaTable,
    inputs: pa.Table,
    live: LiveInputs,
    groups: Mapping[int, RewrittenGroup],
    results: Sequence[GroupResult],
    *,
    earlier: Moved,
) -> Moved:
    """Look up where the rows went that are deleted of inputs since they were read.

    Args:
        table: as loaded.
        inputs: n files of groups, those of a group in the order in which they were read: `INPUTS_SCHEMA`.
        live: what the table has of them.
        groups: that may be committed.
        results: of these.
        earlier: found before, for a commit that lost against another one.
    """
    snapshot = table.snapshot
    numbers = inputs["group"].to_numpy()
    mask = live.is_deleted_from & np.isin(numbers, [*groups])
    if not mask.any():
        return Moved()
    paths = inputs["path"].to_pylist()
    members = by_group(numbers)
    dropped = {
        number: f"{paths[places[live.is_gone[places]][0]]} is not live any more"
        for number, places in members.items()
        if number in groups and _most_are_gone(groups[number], live.is_gone[places])
    }
    ids = _vectors_now(snapshot, live)
    digests = {number: repr([ids[place] for place in members[number]]).encode() for number in groups}
    known = earlier.known(digests)
    mask &= ~np.isin(numbers, [*known.digests, *dropped])
    frames, broken = _frames_now(table, inputs, live, mask)
    mask &= ~np.isin(numbers, [*broken])

    def deleted(row: int) -> Positions:
        if live.is_gone[row]:
            place = int(np.searchsorted(members[int(numbers[row])], row))
            return np.arange(groups[int(numbers[row])].input_rows[place], dtype=np.int64)
        return decode(frames[row], paths[row]).positions().astype(np.int64) if frames[row] else _NONE

    found = moved_positions(table.storage, results, numbers, mask, deleted)
    dropped |= {
        number: why if isinstance(why, str) else f"{paths[why]} has rows again that were deleted"
        for number, why in found.dropped.items()
    }
    return Moved(
        positions={**known.positions, **found.positions},
        dropped=dropped,
        broken=broken,
        digests={number: own for number, own in digests.items() if number not in {**dropped, **broken}},
    )


def _most_are_gone(group: RewrittenGroup, is_gone: npt.NDArray[np.bool_]) -> bool:
    rows = np.array(group.input_rows, np.int64)
    return bool(is_gone.any() and rows[is_gone].sum() >= MOST_GONE * rows.sum())


def _vectors_now(snapshot: Snapshot, live: LiveInputs) -> list[str | None]:
    """The ids of the deletion vectors of inputs, as the table has them; "gone" of those that are."""
    there = ~live.is_gone
    own = dv_ids(snapshot.adds.take(pa.array(live.places[there]))).to_pylist()
    found: list[str | None] = ["gone"] * len(live.places)
    for row, each in zip(np.flatnonzero(there).tolist(), own, strict=True):
        found[row] = each
    return found


def _frames_now(
    table: DeltaTable, inputs: pa.Table, live: LiveInputs, mask: npt.NDArray[np.bool_]
) -> tuple[list[bytes], dict[int, str]]:
    """The frames of the deletion vectors that some inputs have now, and groups of which one cannot be read."""
    rows = np.flatnonzero(mask & ~live.is_gone)
    adds = table.snapshot.adds.take(pa.array(live.places[rows]))
    own, broken = read_frames(
        table,
        inputs["group"].to_numpy()[rows].tolist(),
        adds["path"].to_pylist(),
        adds["deletionVector"].to_pylist(),
    )
    frames = [b""] * len(mask)
    for row, frame in zip(rows.tolist(), own, strict=True):
        frames[row] = frame
    return frames, {number: error.message for number, error in broken.items()}
