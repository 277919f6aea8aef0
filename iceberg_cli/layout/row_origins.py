"""Where the rows of new files are from, where they were brought into another order: a number for each row.

As `PositionMap`, for rows that follow each other in new files and did not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.errors import CorruptFile
from iceberg_cli.layout.position_map import DROPPED, Positions

Origins = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]

_MOST_SMALL: Final = 1 << 32
_COUNTS: Final = pa.list_(pa.int64())
_SCHEMAS: Final = tuple(
    pa.schema([("input_rows", _COUNTS), ("output_rows", _COUNTS), ("origins", pa.large_list(kind))])
    for kind in (pa.uint32(), pa.uint64())
)


@dataclass(frozen=True)
class RowOrigins:
    """The rows of outputs, one output after the other.

    Args:
        input_rows: of each input, with the rows that are in no output.
        output_rows: of each output.
        origins: of n rows the number among those of all inputs.
    """

    input_rows: Positions
    output_rows: Positions
    origins: Origins

    @property
    def rows(self) -> int:
        """All that were written."""
        return len(self.origins)

    def moved(self, input_file: int, positions: Positions) -> tuple[Positions, Positions]:
        """As `PositionMap.moved`."""
        starts, ends = _starts(self.input_rows), np.cumsum(self.output_rows)
        rows, sorted_origins = self._sorted
        targets = np.asarray(positions + starts[input_file], self.origins.dtype)
        places = np.searchsorted(sorted_origins, targets)
        places[places == len(rows)] = 0
        outputs = np.full(len(positions), DROPPED, np.int64)
        output_positions = np.full(len(positions), DROPPED, np.int64)
        if len(rows):
            found = (sorted_origins[places] == targets) & (positions < self.input_rows[input_file])
            own = rows[places[found]]
            outputs[found] = np.searchsorted(ends, own, side="right")
            output_positions[found] = own - (ends - self.output_rows)[outputs[found]]
        return outputs, output_positions

    @cached_property
    def _sorted(self) -> tuple[Positions, Origins]:
        """The rows by their origins, and these."""
        rows = np.argsort(self.origins)
        return rows, self.origins[rows]

    def to_table(self) -> pa.Table:
        """To be kept in a file."""
        schema = _SCHEMAS[self.origins.dtype == np.uint64]
        lists = zip(schema, (self.input_rows, self.output_rows, self.origins), strict=True)
        return pa.table([_one_list(values, own.type) for own, values in lists], schema=schema)

    @classmethod
    def is_in(cls, table: pa.Table) -> bool:
        """Whether a file has these."""
        return table.schema in _SCHEMAS

    @classmethod
    def from_table(cls, table: pa.Table, path: str) -> RowOrigins:
        """Inverse of `to_table`.

        Raises:
            CorruptFile: rows are from nowhere, or two are from one place.
        """
        if len(table) != 1:
            raise CorruptFile(path, "rows", f"{len(table)} rows of origins, not 1")
        found = cls(*(column.combine_chunks()[0].values.to_numpy() for column in table.columns))
        if (found.input_rows < 0).any() or (found.output_rows < 0).any():
            raise CorruptFile(path, "rows", "a number is negative")
        if found.output_rows.sum() != found.rows:
            raise CorruptFile(path, "output_rows", f"they are not the {found.rows} rows that have origins")
        own = found._sorted[1]
        if (own[1:] == own[:-1]).any() or (len(own) and own[-1] >= found.input_rows.sum()):
            raise CorruptFile(path, "origins", "two rows are from one place, or one is from no input")
        return found


def _one_list(values: Positions | Origins, kind: pa.DataType) -> pa.Array:
    ends = pa.array([0, len(values)], pa.int64() if pa.types.is_large_list(kind) else pa.int32())
    make = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return make.from_arrays(ends, pa.array(values))


def _starts(counts: Positions) -> Positions:
    return np.cumsum(counts) - counts


@dataclass(slots=True)
class RowOriginsBuilder:
    """Takes note of rows as they are written, once all inputs are read.

    Args:
        input_rows: of each input that was read, with deleted ones.
    """

    input_rows: Sequence[int]
    _starts: Positions | None = None
    _parts: dict[int, list[Origins]] = field(default_factory=dict)

    def add(
        self,
        input_files: Positions,
        positions: Positions,
        output_file: int,
        output_position: int,  # noqa: ARG002 - rows of an output come in their order
    ) -> None:
        """As `PositionMapBuilder.add`, in any order of inputs."""
        if self._starts is None:
            self._starts = _starts(np.asarray(self.input_rows, np.int64))
        numbers = self._starts[input_files] + positions
        is_small = self._starts[-1] + self.input_rows[-1] < _MOST_SMALL
        origins: Origins = numbers.astype(np.uint32) if is_small else numbers.astype(np.uint64)
        self._parts.setdefault(output_file, []).append(origins)

    def build(self) -> RowOrigins:
        """All of them."""
        outputs = range(max(self._parts, default=-1) + 1)
        parts = [self._parts.get(each, []) for each in outputs]
        return RowOrigins(
            np.asarray(self.input_rows, np.int64),
            np.array([sum(map(len, own)) for own in parts], np.int64),
            np.concatenate([part for own in parts for part in own]) if parts else np.empty(0, np.uint32),
        )
