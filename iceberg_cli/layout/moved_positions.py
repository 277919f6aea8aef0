"""Rows that are deleted by their positions while files are rewritten, looked up in the new files by where they went.

What is deleted of an input now is compared with what was deleted of it when it was read: a row that is deleted since is
looked up, and deleted in the new file. A row that was deleted and is not any more cannot be brought back: its group is
not committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from iceberg_cli.errors import CorruptFile
from iceberg_cli.layout.position_map import DROPPED, PositionMap, Positions
from iceberg_cli.layout.row_origins import RowOrigins

_NONE: Positions = np.empty(0, np.int64)
_SCHEMA = pa.schema([pa.field("input", pa.int64()), pa.field("positions", pa.large_list(pa.int64()))])


@dataclass(frozen=True, slots=True)
class ReadPositions:
    """The positions that were deleted of the inputs of a group when these were read, by the place of the input."""

    by_input: Mapping[int, Positions]

    def of(self, place: int) -> Positions:
        """Of one input, ascending."""
        return self.by_input.get(place, _NONE)

    def to_table(self) -> pa.Table:
        """To be kept in a file."""
        arrays = [
            pa.array(list(self.by_input), pa.int64()),
            pa.array(list(self.by_input.values()), _SCHEMA[1].type),
        ]
        return pa.table(arrays, schema=_SCHEMA)

    @classmethod
    def from_table(cls, table: pa.Table, path: str) -> ReadPositions:
        """Inverse of `to_table`.

        Raises:
            CorruptFile: it is another one.
        """
        if table.schema != _SCHEMA:
            raise CorruptFile(path, "schema", "no positions of inputs")
        lists = table["positions"].combine_chunks()
        inputs = table["input"].to_pylist()
        return cls({number: lists[row].values.to_numpy() for row, number in enumerate(inputs)})


@dataclass(slots=True)
class MovedDeletes:
    """The positions that are deleted of new files, by the place of the file among the outputs of its group."""

    by_output: dict[int, list[Positions]] = field(default_factory=dict)

    def add(self, moves: PositionMap | RowOrigins, input_file: int, positions: Positions) -> None:
        """Take rows of an input, wherever they went; those that went nowhere are deleted already."""
        outputs, places = moves.moved(input_file, positions)
        for output in np.unique(outputs[outputs != DROPPED]).tolist():
            self.by_output.setdefault(output, []).append(places[outputs == output])

    def of(self, output: int) -> Positions:
        """Of one output, ascending."""
        parts: Sequence[Positions] = self.by_output.get(output, ())
        return np.sort(np.concatenate(parts)) if parts else _NONE


def since(now: Positions, then: Positions) -> Positions | None:
    """The positions that are deleted since; None where one that was deleted is not deleted any more."""
    if len(np.setdiff1d(then, now, assume_unique=True)):
        return None
    return np.setdiff1d(now, then, assume_unique=True)


def by_group(numbers: Positions) -> dict[int, Positions]:
    """The places of each group's inputs, ascending.

    Args:
        numbers: of the groups of n inputs.
    """
    order = np.argsort(numbers, kind="stable")
    ends = np.flatnonzero(np.diff(numbers[order])) + 1
    return {int(numbers[own[0]]): own for own in np.split(order, ends) if len(own)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What became of deletes that arrived.

    Args:
        positions: that are deleted of new files, by group and place of the file among its outputs.
        dropped: groups of which rows that were deleted are not deleted any more, or of which it cannot be told any
            more where the rows went, each with the reason.
        broken: groups of which deletes cannot be read, each with the reason.
        digests: of the groups with `positions`, of all deletes from which these were read.
    """

    positions: Mapping[tuple[int, int], Positions] = field(default_factory=dict)
    dropped: Mapping[int, str] = field(default_factory=dict)
    broken: Mapping[int, str] = field(default_factory=dict)
    digests: Mapping[int, bytes] = field(default_factory=dict)

    def known(self, digests: Mapping[int, bytes]) -> Moved:
        """What is still so of groups with these digests."""
        same = {number: digest for number, digest in digests.items() if self.digests.get(number) == digest}
        return Moved(
            positions={key: own for key, own in self.positions.items() if key[0] in same}, digests=same
        )
