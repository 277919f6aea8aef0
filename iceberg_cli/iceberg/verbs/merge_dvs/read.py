"""Position deletes and deletion vectors of one snapshot, read from its manifests, delete files and Puffin files.

Blobs are kept up to a limit and read again beyond it: planning needs them for sizes and checks, building to write. An
engine with workers keeps them there, see `distributed.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.engines import Scan, Source
from iceberg_cli.iceberg.spec.columns import column_types
from iceberg_cli.iceberg.spec.dv_blobs import ExtractedBlobs, merge_vectors, missing_positions, read_vectors
from iceberg_cli.iceberg.spec.manifest import EntryBatch, ManifestSource
from iceberg_cli.iceberg.spec.metadata import TableMetadata
from iceberg_cli.iceberg.spec.position_deletes import PARTS_SCHEMA, read_position_deletes, without_blobs
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.merge_dvs.choice import Puffins
from iceberg_cli.iceberg.verbs.merge_dvs.columns import (
    BOUNDS,
    DATA_COLUMNS,
    DELETE_COLUMNS,
    EQUALITY,
    POSITIONS,
    EntryReader,
    Ints,
    PathKeys,
    all_data,
    all_deletes,
    lowest_of,
)
from iceberg_cli.iceberg.verbs.merge_dvs.distributed import (
    MergedVectors,
    merge_on_workers,
    missing_positions_on_workers,
    partials_on_workers,
)
from iceberg_cli.iceberg.verbs.merge_dvs.index import DeleteIndex, index, target_paths
from iceberg_cli.iceberg.verbs.merge_dvs.splits import LIMITS, MergeLimits
from iceberg_cli.iceberg.verbs.merge_dvs.where import Condition, check_fields
from iceberg_cli.iceberg.verbs.merge_dvs.worker import DeleteFile, load_files, parse_files, source_of
from iceberg_cli.paths import path_key_column

_KEPT_BYTES: Final = 64 << 20
_OBJECT_BYTES: Final = 100  # what Python adds to each blob


@dataclass(slots=True)
class Room:
    """The bytes of memory that are left for blobs."""

    left_bytes: int = _KEPT_BYTES

    def take(self, blob: bytes) -> bool:
        """Take the bytes of a blob if there is room for it; whether there was."""
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
    index: DeleteIndex
    room: Room
    out_of_range: set[int] = field(default_factory=set)  # vectors with positions behind the end
    _moved: dict[int, bytes] = field(default_factory=dict)  # delete -> blob
    _crc: dict[int, bytes] = field(default_factory=dict)  # delete -> last four bytes of its blob
    _dead: dict[str, int] = field(default_factory=dict)  # Puffin file -> dead bytes

    def open(self, found: Puffins, places: Ints) -> None:
        """Read Puffin files, check every live deletion vector in them, and keep those that there is room for.

        Of a blob that a worker reads only the last four bytes arrive.

        Raises:
            CorruptFile: a file or vector is not sound.
        """
        unread = [place for place in places.tolist() if found.paths[place].as_py() not in self._dead]
        on_workers = self.table.engine.is_distributed
        for path, rows, read in self._scan(found, np.array(unread, np.int64), ends=on_workers):
            self._dead[path] = read.dead_bytes
            self.out_of_range |= {rows[place] for place in read.out_of_range}
            for row, blob in zip(rows, read.blobs, strict=True):
                self._crc[row] = blob[-4:]
                if not on_workers and self.room.take(blob):
                    self._moved[row] = blob

    def dead_bytes(self, found: Puffins) -> Ints:
        """Dead bytes of each Puffin file that was opened; -1 for the others."""
        return np.array([self._dead.get(path, -1) for path in found.paths.to_pylist()], np.int64)

    def _scan(
        self, found: Puffins, places: Ints, *, ends: bool = False
    ) -> Iterator[tuple[str, list[int], ExtractedBlobs]]:
        """Path of each Puffin file, rows of its deletion vectors, and their blobs, or the last four bytes (`ends`)."""
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

        def parse(batch: Sequence[tuple[tuple[str, int, int, int], bytes | None]]) -> list[ExtractedBlobs]:
            files = [(path, data or b"", stop - start) for (path, _, start, stop), data in batch]
            first, last = batch[0][0][2], batch[-1][0][3]
            read = read_vectors(files, deletes.slice(first, last - first))
            return (
                [replace(each, blobs=[blob[-4:] for blob in each.blobs]) for each in read] if ends else read
            )

        items = list(zip(paths, sizes, starts.tolist(), stops.tolist(), strict=True))
        batches = self.table.engine.scan(
            Scan(
                lambda item: Source(item[0], item[1]),
                lambda _, data: data,
                parse,
                phase="reading Puffin files",
            ),
            items,
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
            targets = set(missing.tolist())
            for _, mine, read in self._scan(found, np.unique(found.file[missing])):
                blobs |= {row: blob for row, blob in zip(mine, read.blobs, strict=True) if row in targets}
        return blobs

    def crc(self, rows: Ints) -> list[bytes]:
        """The last four bytes of each blob in files that were opened."""
        return [self._crc[row] for row in rows.tolist()]


_KEPT_PARTS_BYTES = 128 << 20
_CHUNK_BYTES = 48 << 20


@dataclass(kw_only=True)
class DeleteReader:
    """Reads the delete entries, position delete files and Puffin files of one snapshot.

    Args:
        table: whose files.
        metadata: of the snapshot.
        rows: of its manifest list.
        conditions: of --where.
        only_names: of position deletes read which data files they name, and no positions.
        known_parts: contents of position delete files that were read before.
        limits: of one task on a worker.
    """

    table: IcebergTable
    metadata: TableMetadata
    rows: pa.Table
    conditions: tuple[Condition, ...]
    only_names: bool = False
    known_parts: pa.Table = field(default_factory=PARTS_SCHEMA.empty_table)
    limits: MergeLimits = LIMITS
    index: DeleteIndex = field(init=False)
    puffins: PuffinReader = field(init=False)
    tuples: dict[bytes, tuple[Any, ...]] = field(default_factory=dict)
    _new: dict[int, bytes] = field(default_factory=dict)  # data file -> blob
    _room: Room = field(default_factory=Room)

    def read(self) -> DeleteIndex:
        """Read manifests and position delete files, but no Puffin files.

        Raises:
            UsageError: --where names no partition field. CorruptFile: something cannot be read whole.
        """
        check_fields(self.conditions, self.metadata.partition_specs)
        paths = self.rows["manifest_path"].to_pylist()
        reading = EntryReader(
            specs={spec.spec_id: spec for spec in self.metadata.partition_specs},
            types=column_types(self.metadata),
            places={path: place for place, path in enumerate(paths)},
            conditions=self.conditions,
            path_keys=self._path_keys,
        )
        tables = []
        # Bounds may be cut short or wrong: where names decide, they are not even read.
        columns = [name for name in DELETE_COLUMNS if not (self.only_names and name in BOUNDS)]
        for table, tuples in self.table.reachability.from_entries(
            self._of_content(1), columns, reading.deletes, phase="reading delete manifests"
        ):
            tables.append(table)
            self.tuples |= tuples
        deletes = all_deletes(tables)
        parts = self._parts(self._may_apply(deletes.filter(pc.equal(deletes["kind"], POSITIONS))))
        data, oldest = self._data(reading, deletes, parts)
        specs = self.metadata.partition_specs
        self.index = index(deletes, parts, data, oldest, specs, self._path_keys)
        self.puffins = PuffinReader(table=self.table, index=self.index, room=self._room)
        return self.index

    @property
    def _path_keys(self) -> PathKeys:
        """Gives paths their keys; for local files it resolves links, which give a file several names."""
        names = self.table.reachability.other_names
        return path_key_column if names is None else names.resolved

    def _of_content(self, content: int) -> pa.Table:
        return self.rows.filter(pc.equal(self.rows["content"], content))

    def _data(
        self, reading: EntryReader, deletes: pa.Table, parts: pa.Table
    ) -> tuple[pa.Table, pa.Table | None]:
        targets = target_paths(deletes, parts, reading.path_keys)
        oldest = bool(pc.any(pc.equal(deletes["kind"], EQUALITY)).as_py()) and not self.only_names
        if not len(targets) and not oldest:
            return all_data([]), None

        def make(sources: Sequence[ManifestSource], batch: EntryBatch) -> tuple[pa.Table, pa.Table]:
            return reading.data(sources, batch, targets, oldest=oldest)

        found = list(
            self.table.reachability.from_entries(
                self._of_content(0), DATA_COLUMNS, make, phase="reading data manifests"
            )
        )
        return all_data([data for data, _ in found]), lowest_of(
            [lowest for _, lowest in found]
        ) if oldest else None

    # -- position delete files ---------------------------------------------------------------------------------

    def _may_apply(self, files: pa.Table) -> pa.Table:
        """Those position delete files that are not older than every live data file: the others apply to none.

        Spec: "Scan Planning": a position delete applies where the data file's data sequence number is not higher than
        its own, whatever paths it names.
        """
        listed = pc.min(self._of_content(0)["min_sequence_number"]).as_py()
        # The manifest list only shows whether it is worth reading every entry.
        if listed is not None and not pc.any(pc.less(files["sequence_number"], listed)).as_py():
            return files
        oldest = self._oldest_data()
        if oldest is None:
            return files.slice(0, 0)
        return files.filter(pc.greater_equal(files["sequence_number"], oldest))

    def _oldest_data(self) -> int | None:
        """The lowest data sequence number of all live data files; None where there is none."""

        def make(_: Sequence[ManifestSource], batch: EntryBatch) -> int | None:
            alive = pc.less(batch.table["status"], 2)
            lowest: int | None = pc.min(batch.table["sequence_number"].filter(alive)).as_py()
            return lowest

        found = self.table.reachability.from_entries(
            self._of_content(0), ("status", "sequence_number"), make, phase="reading data manifests"
        )
        return min((lowest for lowest in found if lowest is not None), default=None)

    def _parts(self, files: pa.Table) -> pa.Table:
        """Rows of `PARTS_SCHEMA` of position delete files. Blobs are kept up to the limit."""
        known = pc.is_in(files["path"], value_set=pc.unique(self.known_parts["source"]))
        now = pc.is_in(self.known_parts["source"], value_set=pc.unique(files["path"]))
        tables = [self.known_parts.filter(now)]
        unknown = files.filter(pc.invert(known))
        if self.only_names:
            return pa.concat_tables([*tables, *self._scan_names(unknown)])
        if self.table.engine.is_distributed:
            tables.append(
                partials_on_workers(
                    self.table.engine, unknown, limits=self.limits, on_event=self.table.on_event
                )
            )
            return pa.concat_tables(tables)
        kept = tables[0].nbytes
        for table in self._scan_parts(unknown):
            kept += table["blob"].nbytes
            tables.append(table if kept <= _KEPT_PARTS_BYTES else without_blobs(table))
        return pa.concat_tables(tables)

    def _scan_names(self, files: pa.Table) -> Iterator[pa.Table]:
        columns = (files[name].to_pylist() for name in ("path", "file_size", "record_count"))
        return self.table.engine.scan(
            Scan(source_of, load_files, parse_files, phase="reading position delete files"),
            [DeleteFile(*values) for values in zip(*columns, strict=True)],
            on_event=self.table.on_event,
        )

    def _scan_parts(self, files: pa.Table, only: frozenset[str] | None = None) -> Iterator[pa.Table]:
        columns = (files[name].to_pylist() for name in ("path", "file_size", "record_count"))

        def load(item: tuple[str, int, int], data: bytes) -> pa.Table:
            return read_position_deletes(data, item[0], record_count=item[2], only=only)

        return self.table.engine.scan(
            Scan(
                lambda item: Source(item[0], item[1]),
                load,
                lambda batch: pa.concat_tables(
                    [table for _, table in batch if table is not None]
                ).combine_chunks(),
                phase="reading position delete files",
            ),
            list(zip(*columns, strict=True)),
            on_event=self.table.on_event,
        )

    def parts_of(self, files: Ints) -> Iterator[tuple[int, list[bytes]]]:
        """The position deletes that apply to data files, as blobs; those that were not kept are read again in chunks.

        Args:
            files: rows of `data`; they may have been read before.

        Yields:
            Each of them with one blob for each position delete file.
        """
        if not len(files):
            return
        owned = np.isin(self.index.part_data, files)
        rows = np.flatnonzero(owned)
        # By delete file: the positions in one are read together.
        order = rows[np.argsort(self.index.part_data[rows], kind="stable")]
        owners = self.index.part_data[order]
        firsts = np.flatnonzero(np.concatenate([[len(owners) > 0], owners[1:] != owners[:-1]]))
        by_file = list(zip(owners[firsts].tolist(), np.split(order, firsts[1:]), strict=True))
        by_file.sort(key=lambda item: int(self.index.part_delete[item[1][0]]))
        sizes = np.where(self._absent, self.index.parts["size"].to_numpy(), 0)
        chunk: list[tuple[int, Ints]] = []
        waiting = 0
        for item in by_file:
            size = int(sizes[item[1]].sum())
            if chunk and waiting + size > _CHUNK_BYTES:
                yield from self._chunk(chunk)
                chunk, waiting = [], 0
            chunk.append(item)
            waiting += size
        yield from self._chunk(chunk)

    @property
    def _absent(self) -> npt.NDArray[np.bool_]:
        """Which parts have no blob here."""
        absent: npt.NDArray[np.bool_] = self.index.parts["blob"].is_null().to_numpy()
        return absent

    def _chunk(self, chunk: Sequence[tuple[int, Ints]]) -> Iterator[tuple[int, list[bytes]]]:
        rows = np.concatenate([np.empty(0, np.int64), *(mine for _, mine in chunk)])
        missing = rows[self._absent[rows]]
        again = self._again(missing) if len(missing) else {}
        kept = self.index.parts["blob"]
        for file, mine in chunk:
            yield file, [again.pop(row) if row in again else kept[row].as_py() for row in mine.tolist()]

    def _again(self, missing: Ints) -> dict[int, bytes]:
        """Blobs that were not kept, by row of `parts`."""
        targets = self.index.parts.select(["source", "path"]).take(pa.array(missing)).to_pydict()
        rows = dict(zip(zip(*targets.values(), strict=True), missing.tolist(), strict=True))
        files = self.index.deletes.take(pa.array(np.unique(self.index.part_delete[missing])))
        found = {}
        for table in self._scan_parts(files, frozenset(targets["path"])):
            for source, path, blob in zip(
                *(table[n].to_pylist() for n in ("source", "path", "blob")), strict=True
            ):
                if (source, path) in rows:
                    found[rows[source, path]] = blob
        return found

    def join(self, files: Ints) -> MergedVectors:
        """One deletion vector for each data file, of all position deletes that apply to it.

        Raises:
            CorruptFile: a file cannot be read whole. BackendUnavailable: workers did not see all of it.
        """
        if self.table.engine.is_distributed:
            return merge_on_workers(
                self.table.engine, self.index, files, limits=self.limits, on_event=self.table.on_event
            )
        count = len(files)
        places = {file: place for place, file in enumerate(files.tolist())}
        # Vectors merged from kept parts need not be kept as well.
        costly = set(self.index.part_data[self._absent].tolist())
        cardinality, size = np.zeros(count, np.int64), np.zeros(count, np.int64)
        sums, crc = np.zeros(count, np.uint64), [b""] * count
        for file, blob, members, total in self._joins(files):
            place = places[file]
            cardinality[place], size[place], sums[place], crc[place] = members, len(blob), total, blob[-4:]
            if file in costly and self._room.take(blob):
                self._new[file] = blob
        return MergedVectors(cardinality, size, sums, crc)

    def _joins(self, files: Ints) -> Iterator[tuple[int, bytes, int, int]]:
        records = self.index.data["record_count"].to_numpy()
        for file, blobs in self.parts_of(files):
            yield file, *merge_vectors(blobs, record_count=int(records[file]))

    def lost(self, found: Puffins, files: Ints) -> Ints:
        """The data files, of those given, whose deletion vector lacks an older position delete.

        Args:
            found: all Puffin files.
            files: rows of `data`, each with a deletion vector in a file that was opened.

        Raises:
            CorruptFile: a file cannot be read whole. BackendUnavailable: workers did not see all of it.
        """
        if self.table.engine.is_distributed:
            return missing_positions_on_workers(
                self.table.engine, self.index, files, limits=self.limits, on_event=self.table.on_event
            )
        records = self.index.data["record_count"].to_numpy()
        lost = []
        for file, blobs in self.parts_of(files):
            row = int(self.index.vector[file])
            vector = self.puffins.vectors(found, np.array([row]))[row]
            if missing_positions(vector, blobs, record_count=int(records[file])):
                lost.append(file)
        return np.array(lost, np.int64)

    def merge_vectors(self, files: Ints) -> Iterator[tuple[int, bytes]]:
        """The deletion vectors that `join` made, once more."""
        missing = np.array([file for file in files.tolist() if file not in self._new], np.int64)
        for file in files.tolist():
            if file in self._new:
                yield file, self._new[file]
        for file, blob, _, _ in self._joins(missing):
            yield file, blob
