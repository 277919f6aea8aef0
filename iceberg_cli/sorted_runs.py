"""Rows that are too many for memory, put in order: sorted runs of them go to a file of this machine and are merged."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import pyarrow as pa

from iceberg_cli.engines.travelling import from_ipc, to_ipc
from iceberg_cli.spool import Place, Spool

Key = tuple[int, str]


class SortedRuns:
    """Sorted runs of rows, each written in blocks.

    Args:
        keys: two columns, one of integers and one of strings, by which rows are ascending.
        rows: about so many are in memory when they are merged, and as many as one block of each run beside them.
        block_rows: of a block.
    """

    def __init__(self, keys: tuple[str, str], *, rows: int, block_rows: int) -> None:
        self._keys = keys
        self._rows = rows
        self._block_rows = block_rows
        self._spool = Spool()
        self._blocks: list[tuple[Key, int, Place]] = []  # with the key of the first row and their number

    def add(self, run: pa.Table) -> None:
        """Add a run."""
        for start in range(0, len(run), self._block_rows):
            block = run.slice(start, self._block_rows)
            self._blocks.append((self._key(block, 0), len(block), self._spool.add(to_ipc(block))))

    def merged(self) -> Iterator[pa.Table]:
        """All rows in their order, some at a time."""
        self._blocks.sort()
        waiting: list[pa.Table] = []
        rows = 0
        for number, (_, count, place) in enumerate(self._blocks, start=1):
            waiting.append(from_ipc(self._spool.read(place)))
            rows += count
            if number == len(self._blocks):
                yield self._sorted(waiting)
            elif rows >= self._rows:
                found = self._sorted(waiting)
                # Nothing that was not read yet is before the first row of the next block.
                stop = self._place(found, self._blocks[number][0])
                if stop:
                    yield found.slice(0, stop)
                waiting = [found.slice(stop)]
                rows = 0

    def _sorted(self, tables: list[pa.Table]) -> pa.Table:
        return pa.concat_tables(tables).sort_by([(key, "ascending") for key in self._keys])

    def _key(self, rows: pa.Table, number: int) -> Key:
        first, second = (rows[key][number].as_py() for key in self._keys)
        return first, second

    def _place(self, rows: pa.Table, key: Key) -> int:
        """How many rows come before a key."""
        return bisect_left(range(len(rows)), key, key=lambda number: self._key(rows, number))
