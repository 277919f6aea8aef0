"""Where the rows of a group went, and which were deleted when it was read: kept beside its result, for its commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.encoding.transport import from_ipc, to_ipc
from iceberg_cli.errors import CorruptFile
from iceberg_cli.layout.moved_positions import MovedDeletes, ReadPositions, by_group, since
from iceberg_cli.layout.position_map import PositionMap, Positions
from iceberg_cli.layout.row_origins import RowOrigins
from iceberg_cli.operation.groups.creator import Creator
from iceberg_cli.operation.groups.results import GroupResult
from iceberg_cli.storage import Storage

MOVES_FILE: Final = "positions.arrow"  # where rows went
READ_FILE: Final = "deleted.arrow"  # the positions that were deleted of inputs


def keep_positions(
    creator: Creator, moves: PositionMap | RowOrigins, deleted: Mapping[int, Positions]
) -> None:
    """Keep them.

    Args:
        creator: of the try.
        moves: where rows went; files go by their places among inputs and outputs.
        deleted: the positions that were deleted of inputs, by their places; ascending.
    """
    creator.keep(MOVES_FILE, to_ipc(moves.to_table()))
    creator.keep(READ_FILE, to_ipc(ReadPositions(deleted).to_table()))


def kept_positions(storage: Storage, result: GroupResult) -> tuple[PositionMap | RowOrigins, ReadPositions]:
    """What was kept of a group.

    Raises:
        CorruptFile: it is not there, or cannot be read.
    """
    moves, then = (_table(storage, result.kept(name)) for name in (MOVES_FILE, READ_FILE))
    kind: type[PositionMap | RowOrigins] = RowOrigins if RowOrigins.is_in(moves) else PositionMap
    return (
        kind.from_table(moves, result.kept(MOVES_FILE)),
        ReadPositions.from_table(then, result.kept(READ_FILE)),
    )


class Looked(NamedTuple):
    """Where rows went that are deleted by now.

    Args:
        positions: that are deleted of new files, by group and place of the file among its outputs; ascending.
        dropped: groups that cannot be committed: why it is not known where rows went, or the input of which a row that
            was deleted is not deleted any more.
    """

    positions: dict[tuple[int, int], Positions]
    dropped: dict[int, str | int]


def moved_positions(
    storage: Storage,
    results: Sequence[GroupResult],
    numbers: Positions,
    mask: npt.NDArray[np.bool_],
    deleted: Callable[[int], Positions],
) -> Looked:
    """Look up where rows went that are deleted of inputs since these were read.

    Args:
        storage: of the table.
        results: of groups.
        numbers: of the groups of n inputs; those of a group in the order in which they were read.
        mask: of which of them other rows may be deleted by now.
        deleted: the positions that are deleted of one, ascending, by its place among the n.
    """
    found = Looked({}, {})
    places = by_group(numbers)
    for result in results:
        if result.number not in places or not mask[rows := places[result.number]].any():
            continue
        try:
            moves, then = kept_positions(storage, result)
        except CorruptFile as error:
            found.dropped[result.number] = error.message
            continue
        own = MovedDeletes()
        for place in np.flatnonzero(mask[rows]).tolist():
            new = since(deleted(int(rows[place])), then.of(place))
            if new is None:
                found.dropped[result.number] = int(rows[place])
                break
            own.add(moves, place, new)
        else:
            found.positions.update({(result.number, output): own.of(output) for output in own.by_output})
    return found


def _table(storage: Storage, path: str) -> pa.Table:
    try:
        return from_ipc(storage.read(path))
    except FileNotFoundError:
        raise CorruptFile(path, None, "a group that is finished kept it, and it is not there") from None
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(path, None, f"no readable Arrow file: {str(error)[:200]}") from error
