"""What merge-dvs reads of Puffin files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from iceberg_cli.engines import Exchanging, Source
from iceberg_cli.iceberg.spec.dv_blobs import Found, read_vectors
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.merge_dvs.choice import Puffins
from iceberg_cli.iceberg.verbs.merge_dvs.columns import Ints
from iceberg_cli.iceberg.verbs.merge_dvs.index import Index

_KEPT_BYTES: Final = 64 << 20
_OBJECT_BYTES: Final = 100  # what Python adds to each blob


@dataclass(slots=True)
class Room:
    """For how many bytes of blobs there is room."""

    left_bytes: int = _KEPT_BYTES

    def take(self, blob: bytes) -> bool:
        """Whether there was room for this one; it is taken."""
        size = len(blob) + _OBJECT_BYTES
        fits = size <= self.left_bytes
        if fits:
            self.left_bytes -= size
        return fits


@dataclass(kw_only=True)
class PuffinReader:
    """Reads the deletion vectors of one snapshot. Blobs are kept while there is room, and read again beyond it.

    Args:
        table: whose files.
        index: of its deletes.
        room: for blobs.
    """

    table: IcebergTable
    index: Index
    room: Room
    reaching: set[int] = field(default_factory=set)  # vectors with positions behind the end
    _moved: dict[int, bytes] = field(default_factory=dict)  # delete -> blob
    _crc: dict[int, bytes] = field(default_factory=dict)  # delete -> last four bytes of its blob
    _dead: dict[str, int] = field(default_factory=dict)  # Puffin file -> dead bytes

    def open(self, found: Puffins, places: Ints) -> None:
        """Read Puffin files, check every live deletion vector in them, and keep those that there is room for.

        Where workers read, their ends are all that they send.

        Raises:
            CorruptFile: a file or vector is not sound.
        """
        unread = [place for place in places.tolist() if found.paths[place].as_py() not in self._dead]
        apart = isinstance(self.table.engine, Exchanging)
        for path, rows, read in self._scan(found, np.array(unread, np.int64), ends=apart):
            self._dead[path] = read.dead_bytes
            self.reaching |= {rows[place] for place in read.reaching}
            for row, blob in zip(rows, read.blobs, strict=True):
                self._crc[row] = blob[-4:]
                if not apart and self.room.take(blob):
                    self._moved[row] = blob

    def dead_bytes(self, found: Puffins) -> Ints:
        """Of each Puffin file that was opened; -1 for the others."""
        return np.array([self._dead.get(path, -1) for path in found.paths.to_pylist()], np.int64)

    def _scan(
        self, found: Puffins, places: Ints, *, ends: bool = False
    ) -> Iterator[tuple[str, list[int], Found]]:
        """Of each Puffin file its path, rows of its deletion vectors, and what was found; of blobs only their ends."""
        rows = np.flatnonzero(np.isin(found.file, places))
        rows = rows[np.argsort(found.file[rows], kind="stable")]
        deletes = self.index.deletes.take(pa.array(rows))
        named = self.index.vector_data[rows]
        records = self.index.data["record_count"].to_numpy()
        last = np.where(named >= 0, records[named] - 1, -1) if len(records) else np.full(len(rows), -1)
        deletes = deletes.append_column("last_row", pa.array(last, pa.int64()))
        starts = np.searchsorted(found.file[rows], places)
        stops = np.searchsorted(found.file[rows], places, side="right")
        paths = found.paths.take(pa.array(places)).to_pylist()
        sizes = found.file_bytes[places].tolist()

        def parse(batch: Sequence[tuple[tuple[str, int, int, int], bytes | None]]) -> list[Found]:
            files = [(path, data or b"", stop - start) for (path, _, start, stop), data in batch]
            first, last = batch[0][0][2], batch[-1][0][3]
            read = read_vectors(files, deletes.slice(first, last - first))
            return (
                [replace(each, blobs=[blob[-4:] for blob in each.blobs]) for each in read] if ends else read
            )

        items = list(zip(paths, sizes, starts.tolist(), stops.tolist(), strict=True))
        batches = self.table.engine.scan(
            items,
            lambda item: Source(item[0], item[1]),
            lambda _, data: data,
            parse,
            phase="reading Puffin files",
            on_event=self.table.on_event,
        )
        reads = (read for batch in batches for read in batch)
        for (path, _, start, stop), read in zip(items, reads, strict=True):
            yield path, rows[start:stop].tolist(), read

    def vectors(self, found: Puffins, rows: Ints) -> dict[int, bytes]:
        """Blobs of deletion vectors, checked, by row of `deletes`."""
        blobs = {row: self._moved[row] for row in rows.tolist() if row in self._moved}
        missing = np.array([row for row in rows.tolist() if row not in blobs], np.int64)
        if len(missing):
            wanted = set(missing.tolist())
            for _, mine, read in self._scan(found, np.unique(found.file[missing])):
                blobs |= {row: blob for row, blob in zip(mine, read.blobs, strict=True) if row in wanted}
        return blobs

    def crc(self, rows: Ints) -> list[bytes]:
        """The last four bytes of each blob in files that were opened."""
        return [self._crc[row] for row in rows.tolist()]
