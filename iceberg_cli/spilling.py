"""Rows that are too many for memory, put in order through files of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# What is left of expired manifests: `as_written` is null where it is `path`, `content` as the specification numbers
# it, `owner` the place of the manifest that listed it last.
LEFT = pa.schema(
    [
        pa.field("path", pa.large_string()),
        pa.field("as_written", pa.large_string()),
        pa.field("content", pa.int32()),
        pa.field("size_bytes", pa.int64()),
        pa.field("owner", pa.int32()),
    ]
)
_SLICE_ROWS = 1 << 18


def _taken(
    batches: Sequence[pa.RecordBatch], starts: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]
) -> pa.Table:
    """Rows by their numbers. Arrow's own `take` would first copy all batches into one."""
    owners = np.searchsorted(starts, wanted, side="right") - 1
    order = np.argsort(owners, kind="stable")
    edges = np.searchsorted(owners[order], np.arange(len(batches) + 1))
    parts = [
        batch.take(pa.array(wanted[order[first:stop]] - at))
        for batch, at, first, stop in zip(batches, starts, edges, edges[1:], strict=False)
        if first < stop
    ]
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return pa.Table.from_batches(parts).combine_chunks().take(pa.array(back))


class Spill:
    """Rows on their way through files of this machine. They are mapped, so the system may drop them from memory.

    Args:
        folder: empty; may be removed when the rows are not added any more: what is mapped stays.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = pa.OSFile(str(folder / "rows"), "wb")
        self._writer = pa.ipc.new_file(self._file, LEFT)

    def add(self, rows: bytes) -> None:
        """Add a bucket's rows."""
        for batch in pa.ipc.open_stream(rows):
            self._writer.write_batch(batch)

    def in_order(self) -> pa.Table:
        """All rows, by content and path."""
        rows = self._closed("rows")
        order = pc.sort_indices(rows, sort_keys=[("content", "ascending"), ("path", "ascending")])
        self._file = pa.OSFile(str(self._folder / "ordered"), "wb")
        self._writer = pa.ipc.new_file(self._file, LEFT)
        batches = rows.to_batches()
        starts = np.cumsum([0, *(len(batch) for batch in batches)])
        for start in range(0, len(order), _SLICE_ROWS):
            wanted = order.slice(start, _SLICE_ROWS).to_numpy().astype(np.int64)
            self._writer.write_table(_taken(batches, starts, wanted))
        return self._closed("ordered")

    def _closed(self, name: str) -> pa.Table:
        self._writer.close()
        self._file.close()
        return pa.ipc.open_file(pa.memory_map(str(self._folder / name))).read_all()
