"""Blobs of position deletes and deletion vectors that this process has read or merged, for the steps that follow."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.external_sort import Span, SpillFile
from iceberg_cli.encoding.transport import from_ipc, to_ipc
from iceberg_cli.iceberg.branch.entry_columns import Ints

_BLOCK_BYTES: Final = 1 << 20
_HELD_BYTES: Final = 8 << 20


class BlobSpill:
    """Blobs in memory while they are few bytes, else in a temporary file; those that came together are in blocks."""

    def __init__(self, held_bytes: int = _HELD_BYTES) -> None:
        self._most_held_bytes = held_bytes
        self._starts: list[int] = []  # the first id of each block
        self._starts_array: Ints | None = None  # the same, made when it is asked for
        self._sizes: list[int] = []
        self._blocks: list[pa.Array | Span] = []
        self._count = self._held_bytes = 0
        self._file: SpillFile | None = None

    def __len__(self) -> int:
        """How many blobs there are."""
        return self._count

    def add(self, blobs: pa.ChunkedArray) -> Ints:
        """Keep n blobs, null for one that is not to be kept.

        Returns:
            The id of each; -1 where it is null.
        """
        known = blobs.is_valid().to_numpy()
        found = blobs.drop_null().combine_chunks()
        ids = np.full(len(known), -1, np.int64)
        ids[known] = np.arange(self._count, self._count + len(found))
        step = max(1, len(found) * _BLOCK_BYTES // max(1, found.nbytes))
        for start in range(0, len(found), step):
            block = found.slice(start, step)
            self._starts.append(self._count)
            self._sizes.append(block.nbytes)
            self._blocks.append(block)
            self._count += len(block)
            self._held_bytes += block.nbytes
        self._starts_array = None
        if self._held_bytes > self._most_held_bytes:
            self._spill()
        return ids

    def block_of(self, ids: Ints) -> Ints:
        """The index of the block of each id."""
        if self._starts_array is None:
            self._starts_array = np.array(self._starts, np.int64)
        blocks: Ints = np.searchsorted(self._starts_array, ids, side="right") - 1
        return blocks

    def size_bytes(self, ids: Ints) -> int:
        """About the size of some blobs of one block."""
        block = int(self.block_of(ids[:1])[0])
        stop = self._starts[block + 1] if block + 1 < len(self._starts) else self._count
        return self._sizes[block] * len(ids) // (stop - self._starts[block])

    def take(self, ids: Ints) -> pa.Array:
        """Some blobs of one block."""
        index = int(self.block_of(ids[:1])[0])
        block = self._blocks[index]
        if isinstance(block, tuple):
            assert self._file is not None
            block = from_ipc(self._file.read(block))["blob"].combine_chunks()
        return pc.take(block, pa.array(ids - self._starts[index]))

    def _spill(self) -> None:
        self._file = self._file or SpillFile()
        for index, block in enumerate(self._blocks):
            if not isinstance(block, tuple):
                self._blocks[index] = self._file.add(to_ipc(pa.table({"blob": block})))
        self._held_bytes = 0
