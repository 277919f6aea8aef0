"""Where rows of files went when they were written anew: runs of positions, from input files to output files.

A delete that names a row by its position, and arrives while its file is written anew, is moved by this map. Rows that
were deleted before have no place in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.errors import CorruptFile

Positions = npt.NDArray[np.int64]

DROPPED: Final = -1
_NONE: Final = np.empty(0, np.int64)
_SCHEMA: Final = pa.schema(
    [
        pa.field("input", pa.int64(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("output", pa.int64(), nullable=False),
        pa.field("output_position", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionMap:
    """Runs of rows, ascending by input and position: `length` rows of the one are as many of the other.

    Args:
        inputs: n numbers of input files.
        positions: n first positions in them.
        outputs: n numbers of output files.
        output_positions: n first positions in these.
        lengths: n numbers of rows.
    """

    inputs: Positions
    positions: Positions
    outputs: Positions
    output_positions: Positions
    lengths: Positions

    @property
    def rows(self) -> int:
        """All that were written."""
        return int(self.lengths.sum())

    def moved(self, input_file: int, positions: Positions) -> tuple[Positions, Positions]:
        """Where rows of an input went.

        Args:
            input_file: its number.
            positions: n, in any order.

        Returns:
            n numbers of output files, `DROPPED` for rows that were not written, and n positions in them.
        """
        begin, end = np.searchsorted(self.inputs, (input_file, input_file + 1))
        starts, lengths = self.positions[begin:end], self.lengths[begin:end]
        outputs = np.full(len(positions), DROPPED, np.int64)
        output_positions = np.full(len(positions), DROPPED, np.int64)
        runs = np.searchsorted(starts, positions, side="right") - 1
        inside = runs >= 0
        offsets = np.zeros(len(positions), np.int64)
        offsets[inside] = positions[inside] - starts[runs[inside]]
        inside[inside] = offsets[inside] < lengths[runs[inside]]
        outputs[inside] = self.outputs[begin:end][runs[inside]]
        output_positions[inside] = self.output_positions[begin:end][runs[inside]] + offsets[inside]
        return outputs, output_positions

    def to_table(self) -> pa.Table:
        """The runs, to be kept in a file."""
        columns = (self.inputs, self.positions, self.outputs, self.output_positions, self.lengths)
        return pa.table([array_of(column) for column in columns], schema=_SCHEMA)

    @classmethod
    def from_table(cls, table: pa.Table, path: str) -> PositionMap:
        """The map that is kept in a file.

        Raises:
            CorruptFile: it is none: runs overlap, or two rows went to one place.
        """
        if table.schema != _SCHEMA or any(column.null_count for column in table.columns):
            raise CorruptFile(path, "schema", f"no map of positions: {table.schema.to_string()[:200]}")
        inputs, positions, outputs, output_positions, lengths = (
            column.to_numpy() for column in table.columns
        )
        if any((column < 0).any() for column in (inputs, positions, outputs, output_positions)):
            raise CorruptFile(path, "runs", "a number is negative")
        if (lengths < 1).any():
            raise CorruptFile(path, "length", "a run has no rows")
        if (np.lexsort((positions, inputs)) != np.arange(len(inputs))).any():
            raise CorruptFile(path, "position", "the runs are not ascending")
        for name, files, starts in (("input", inputs, positions), ("output", outputs, output_positions)):
            if _overlap(files, starts, lengths):
                raise CorruptFile(path, name, "runs overlap")
        return cls(
            inputs=inputs,
            positions=positions,
            outputs=outputs,
            output_positions=output_positions,
            lengths=lengths,
        )


def _overlap(files: Positions, starts: Positions, lengths: Positions) -> bool:
    """Whether two of some runs, in any order, have a row of a file in common."""
    order = np.lexsort((starts, files))
    files, starts, lengths = files[order], starts[order], lengths[order]
    return bool(((files[1:] == files[:-1]) & (starts[1:] < starts[:-1] + lengths[:-1])).any())


@dataclass(slots=True)
class PositionMapBuilder:
    """Takes note of rows as they are written."""

    _parts: list[tuple[Positions, ...]] = field(default_factory=lambda: [(_NONE,) * len(_SCHEMA)])

    def add(
        self, input_files: int | Positions, positions: Positions, output_file: int, output_position: int
    ) -> None:
        """Rows of inputs that follow each other in an output.

        Args:
            input_files: the number of the input of each of n rows, or of all.
            positions: of each in its input; ascending in each input.
            output_file: its number.
            output_position: where the first of them is; the others follow.
        """
        if not len(positions):
            return
        files = np.broadcast_to(np.asarray(input_files, np.int64), len(positions))
        breaks = (np.diff(positions) != 1) | (np.diff(files) != 0)
        begins = np.concatenate([[0], np.flatnonzero(breaks) + 1]).astype(np.int64)
        lengths = np.diff(np.append(begins, len(positions)))
        count = len(begins)
        self._parts.append(
            (
                files[begins],
                positions[begins],
                np.full(count, output_file, np.int64),
                begins + output_position,
                lengths,
            )
        )

    def build(self) -> PositionMap:
        """All of them, runs joined where they go on in both files."""
        columns = [np.concatenate(column) for column in zip(*self._parts, strict=True)]
        order = np.lexsort((columns[1], columns[0]))
        inputs, positions, outputs, output_positions, lengths = (column[order] for column in columns)
        goes_on = np.zeros(len(order), np.bool_)
        goes_on[1:] = (
            (inputs[1:] == inputs[:-1])
            & (outputs[1:] == outputs[:-1])
            & (positions[1:] == positions[:-1] + lengths[:-1])
            & (output_positions[1:] == output_positions[:-1] + lengths[:-1])
        )
        begins = np.flatnonzero(~goes_on)
        return PositionMap(
            inputs=inputs[begins],
            positions=positions[begins],
            outputs=outputs[begins],
            output_positions=output_positions[begins],
            lengths=np.add.reduceat(lengths, begins) if len(begins) else _NONE,
        )
