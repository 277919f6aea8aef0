"""External merge sort of rows that do not fit in memory: sorted runs go to a local file and are merged."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator

import pyarrow as pa

from iceberg_cli.encoding.transport import from_ipc, to_ipc
from iceberg_cli.errors import unavailable

Span = tuple[int, int]  # [start, stop)


class SpillFile:
    """A temporary file of blocks of bytes. It is not mapped: what was mapped counts as this process's memory."""

    def __init__(self) -> None:
        import tempfile  # with what it imports it takes longer than most commands have for it

        self._file = tempfile.TemporaryFile(prefix="iceberg-cli-", buffering=0)  # noqa: SIM115 - it lives as this does
        self._size_bytes = 0

    def add(self, data: bytes) -> Span:
        """Write a block, and return its byte range.

        Raises:
            BackendUnavailable: the disk is full, for example.
        """
        start = self._size_bytes
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise unavailable(
                f"Cannot go on: the folder for temporary files takes no more than {start} bytes: {error.strerror}",
                error,
                next_step="Free space there, or name another one by TMPDIR.",
            ) from error
        self._size_bytes += len(data)
        return start, self._size_bytes

    def read(self, span: Span) -> bytes:
        """The block at a byte range."""
        start, stop = span
        return os.pread(self._file.fileno(), stop - start, start)


Key = tuple[int, str]


class SortedRuns:
    """An external sort of rows by sorted runs, each of which is written in blocks.

    Memory has one run while it is made; then, of each run, up to a block, and the keys of the first rows of all blocks.

    Args:
        keys: two columns, one of integers and one of strings, by which rows are sorted ascending.
        rows: about how many come out at a time; a run has twice as many, a block a 128th.
    """

    def __init__(self, keys: tuple[str, str], *, rows: int) -> None:
        self._keys = keys
        self._rows = rows
        self._run_rows = 2 * rows
        self._block_rows = max(1, rows >> 7)
        self._file = SpillFile()
        self._waiting: list[pa.Table] = []  # for a run
        # Of each run, a row for each block: the keys of its first row, and its byte range.
        self._blocks: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Add rows in any order."""
        self._waiting.append(rows)
        if sum(map(len, self._waiting)) >= self._run_rows:
            self._write_run()

    def merged(self) -> Iterator[pa.Table]:
        """All rows in order, about `rows` at a time."""
        self._write_run()
        if not self._blocks:
            return
        blocks = self._sorted(self._blocks)
        self._blocks.clear()
        spans = zip(*(blocks[end].to_pylist() for end in ("start", "stop")), strict=True)
        waiting: list[pa.Table] = []
        new = 0  # rows read since the last output
        for index, span in enumerate(spans):
            waiting.append(from_ipc(self._file.read(span)))
            new += len(waiting[-1])
            if index + 1 == len(blocks):
                yield self._sorted(waiting)
            elif new >= self._rows:
                found = self._sorted(waiting)
                # Nothing that was not read yet is before the first row of the next block.
                stop = self._rows_before(found, self._key(blocks, index + 1))
                waiting, new = [found.slice(stop)], 0
                if stop:
                    yield found.slice(0, stop)

    def _write_run(self) -> None:
        if not any(map(len, self._waiting)):
            return
        run = self._sorted(self._waiting).combine_chunks()
        self._waiting.clear()
        firsts = range(0, len(run), self._block_rows)
        spans = [self._file.add(to_ipc(run.slice(first, self._block_rows))) for first in firsts]
        starts, stops = (pa.array(ends, pa.int64()) for ends in zip(*spans, strict=True))
        keys = run.select(self._keys).take(pa.array(firsts, pa.int64()))
        self._blocks.append(keys.append_column("start", starts).append_column("stop", stops))

    def _sorted(self, tables: list[pa.Table]) -> pa.Table:
        return pa.concat_tables(tables).sort_by([(key, "ascending") for key in self._keys])

    def _key(self, rows: pa.Table, row: int) -> Key:
        first, second = (rows[key][row].as_py() for key in self._keys)
        return first, second

    def _rows_before(self, rows: pa.Table, key: Key) -> int:
        """The number of rows before a key."""
        return bisect_left(range(len(rows)), key, key=lambda row: self._key(rows, row))
