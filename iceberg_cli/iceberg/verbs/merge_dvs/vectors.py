"""Deletion vectors of one snapshot: those that are there, and those that are merged of position deletes.

Position delete files and Puffin files are read, and their positions shuffled to buckets by data file; of each deletion
vector a few numbers come back, or the Puffin file is written where it was made. A data file with most of the deletes is
cut into ranges of positions that are merged by themselves, and a large position delete file is decoded in splits of its
row groups, so neither decides how long all takes. Workers on other machines keep the positions there; on this one,
blobs are kept, and no file is read twice.

Spec: Iceberg v3 "Deletion Vectors".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.encoding.transport import from_ipc
from iceberg_cli.engines import Engine, OnEvent, Scan, ShuffleStage
from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.iceberg.branch.entry_columns import Ints
from iceberg_cli.iceberg.spec.deletes.position_deletes import FileSplit
from iceberg_cli.iceberg.verbs.merge_dvs import tasks
from iceberg_cli.iceberg.verbs.merge_dvs.blobs import BlobSpill
from iceberg_cli.iceberg.verbs.merge_dvs.choice import Puffins
from iceberg_cli.iceberg.verbs.merge_dvs.index import DeleteIndex
from iceberg_cli.iceberg.verbs.merge_dvs.partial_vectors import (
    LIMITS,
    MISSING_SCHEMA,
    NUMBERS_SCHEMA,
    REPORTED_SCHEMA,
    REQUEST_SCHEMA,
    BucketAssignment,
    MergeLimits,
    assign_buckets,
    runs_of,
)
from iceberg_cli.iceberg.verbs.merge_dvs.rules import NEW
from iceberg_cli.iceberg.verbs.merge_dvs.tasks import DeleteFile, Item, KeptRows, PuffinFile

_SPREAD: Final = 16
_LOCAL_LIMITS: Final = replace(
    LIMITS, keeps_blobs=True, most_splits=1, batch_bytes=2 << 20, bucket_bytes=2 << 20
)
_KEPT_SCHEMA: Final = pa.schema([field for field in REPORTED_SCHEMA if field.name != "blob"])


def limits_of(engine: Engine) -> MergeLimits:
    """What fits an engine: workers on other machines keep positions there, and share the decoding of a large file."""
    return LIMITS if engine.is_distributed else _LOCAL_LIMITS


def splits_of(size_bytes: int, limits: MergeLimits) -> Iterable[FileSplit]:
    """The splits in which a position delete file of this size is decoded."""
    count = min(max(1, -(-size_bytes // limits.split_bytes)), limits.most_splits)
    return [FileSplit(number, count) for number in range(count)]


@dataclass(frozen=True, slots=True)
class MergedVectors:
    """Counts of the deletion vectors of n data files; cardinality 0: none is needed. `crc`: the last four bytes."""

    cardinality: Ints
    size: Ints
    sums: npt.NDArray[np.uint64]
    crc: list[bytes]


@dataclass(kw_only=True)
class DeletionVectors:
    """Checks, merges and compares deletion vectors, and writes Puffin files.

    Args:
        engine: that reads.
        index: of the snapshot's deletes.
        on_event: progress.
        limits: of one task.
        kept: the blobs that were read before.
    """

    engine: Engine
    index: DeleteIndex
    on_event: OnEvent
    limits: MergeLimits = LIMITS
    kept: BlobSpill = field(default_factory=BlobSpill)
    out_of_range: set[int] = field(default_factory=set)  # vectors with positions behind the end
    _dead: dict[str, int] = field(default_factory=dict)  # Puffin file -> dead bytes

    @cached_property
    def _crc(self) -> npt.NDArray[np.void]:
        """The last four bytes of the blob of each delete that was checked."""
        return np.zeros(len(self.index.deletes), "V4")

    @cached_property
    def _delete_blobs(self) -> Ints:
        """The id of each delete's blob, or -1."""
        return np.full(len(self.index.deletes), -1)

    @cached_property
    def _data_blobs(self) -> Ints:
        """The id of the blob that was merged for each data file, or -1."""
        return np.full(len(self.index.data), -1)

    # -- those that are there ----------------------------------------------------------------------------------

    def check(self, found: Puffins, puffins: Ints) -> None:
        """Read Puffin files, as far as they were not read before, and check every live deletion vector in them.

        Raises:
            CorruptFile: a file or vector is not sound.
        """
        unread = [file for file in puffins.tolist() if found.paths[file].as_py() not in self._dead]
        rows = np.flatnonzero(np.isin(found.file, unread))
        if not len(rows):
            return
        scan = Scan(
            tasks.source_of,
            lambda _, data: data,
            tasks.VectorChecker(self.limits.keeps_blobs),
            phase="reading Puffin files",
        )
        items = self._puffin_files(rows, {"row": rows})
        for checked, dead in self.engine.scan(scan, items, on_event=self.on_event):
            self._dead |= dead
            mine = checked["row"].to_numpy()
            self.out_of_range |= set(mine[checked["out_of_range"].to_numpy()].tolist())
            self._crc[mine] = np.array(checked["crc"].to_pylist(), "V4")
            self._delete_blobs[mine] = self.kept.add(checked["blob"])

    def dead_bytes(self, found: Puffins) -> Ints:
        """Dead bytes of each Puffin file that was checked; -1 for the others."""
        return np.array([self._dead.get(path, -1) for path in found.paths.to_pylist()], np.int64)

    def crc(self, rows: Ints) -> list[bytes]:
        """The last four bytes of each blob in files that were checked."""
        return [bytes(crc) for crc in self._crc[rows].tolist()]

    def _puffin_files(self, rows: Ints, columns: Mapping[str, Any]) -> list[PuffinFile]:
        """The Puffin files of some deletes, with their deletion vectors and columns of the caller."""
        index = self.index
        # Of a vector of no data file no last row is known.
        records = np.append(index.data["record_count"].to_numpy(), 0)
        deletes = index.deletes.take(pa.array(rows))
        stated = {name: deletes[name] for name in tasks.VECTOR_COLUMNS if name != "last_row"}
        request = pa.table({**stated, "last_row": records[index.vector_data[rows]] - 1, **columns})
        paths = deletes["path"].combine_chunks().dictionary_encode()
        codes = paths.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        request, codes = request.take(pa.array(order)).combine_chunks(), codes[order]
        sizes = request["file_size"].to_numpy()
        return [
            PuffinFile(paths.dictionary[int(codes[a])].as_py(), int(sizes[a]), request.slice(a, b - a))
            for a, b in _bounds(codes)
        ]

    # -- those that are merged ---------------------------------------------------------------------------------

    def merge(self, files: Ints) -> MergedVectors:
        """Counts and checksums of one deletion vector for each data file, of all position deletes that apply to it.

        Args:
            files: n rows of `data`, each with position deletes.

        Raises:
            CorruptFile: a file cannot be read whole. BackendUnavailable: not all positions arrived.
        """
        requests = self._requests(files, np.full(len(files), -1))
        at, keeps = requests.buckets(), self.limits.keeps_blobs
        ranged = np.flatnonzero(at.ranges > 1)
        spread = min(_SPREAD, at.buckets)
        stages = [ShuffleStage(tasks.VectorNumbers(keeps), at.buckets)]
        if len(ranged):
            stages = [
                ShuffleStage(tasks.RangesByVector(ranged, spread, keeps), at.buckets),
                ShuffleStage(tasks.RangedNumbers(keeps), len(ranged) + spread),
            ]
        tables = [NUMBERS_SCHEMA.empty_table().drop(["blob"])]
        for some in map(from_ipc, self._shuffle("joining position deletes", stages, requests, at)):
            self._data_blobs[files[some["place"].to_numpy()]] = self.kept.add(some["blob"])
            tables.append(some.drop(["blob"]))
        numbers = pa.concat_tables(tables)
        numbers = numbers.take(pa.array(np.argsort(numbers["place"].to_numpy()))).combine_chunks()
        _check_arrived(numbers["place"].to_numpy(), numbers["positions"].to_numpy(), requests.positions())
        return MergedVectors(
            numbers["cardinality"].to_numpy(),
            numbers["size"].to_numpy(),
            numbers["sum"].to_numpy(),
            numbers["crc"].to_pylist(),
        )

    def missing(self, files: Ints) -> Ints:
        """The data files, of those given, whose deletion vector lacks an older position delete.

        Args:
            files: rows of `data`, each with a deletion vector and position deletes.

        Raises:
            CorruptFile: a file cannot be read whole. BackendUnavailable: not all positions arrived.
        """
        requests = self._requests(files, self.index.vector[files])
        at = requests.buckets()
        stages = [ShuffleStage(tasks.missing_positions, at.buckets)]
        phase = "comparing deletion vectors with older position deletes"
        found = pa.concat_tables(
            [MISSING_SCHEMA.empty_table(), *map(from_ipc, self._shuffle(phase, stages, requests, at))]
        )
        place, positions = found["place"].to_numpy(), np.zeros(len(files), np.int64)
        np.add.at(positions, place, found["positions"].to_numpy())
        _check_arrived(np.unique(place), positions, requests.positions())
        missing: Ints = files[np.unique(place[found["missing"].to_numpy() > 0])]
        return missing

    def build(self, outputs: pa.Table, files: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        """Write Puffin files, each in one task.

        Args:
            outputs: rows of `OUTPUTS_SCHEMA`.
            files: by path, in the order of the outputs: the first output and the one behind the last.

        Returns:
            Their sizes by path.

        Raises:
            CorruptFile: something cannot be read whole, or is not what was planned. FileExistsError: another's file is
            there. BackendUnavailable: not all was written.
        """
        bounds = tuple(files.values())
        places = np.concatenate([np.empty(0, np.int64), *(np.arange(start, stop) for start, stop in bounds)])
        mine = outputs.take(pa.array(places))
        new, rows = mine["origin"].to_numpy() == NEW, mine["row"].to_numpy()
        blobs = np.full(len(rows), -1)
        blobs[new], blobs[~new] = self._data_blobs[rows[new]], self._delete_blobs[rows[~new]]
        whole = ~new | (blobs >= 0)
        requests = VectorRequests(
            index=self.index, places=places, files=np.where(whole, -1, rows), rows=np.where(new, -1, rows),
            records=mine["last_row"].to_numpy() + 1, kept=self.kept, blobs=blobs,
            sizes=np.where(whole, mine["size"].to_numpy(), 0),
            counts=np.where(whole, mine["cardinality"].to_numpy(), 0), limits=self.limits,
        )  # fmt: skip
        starts = np.array([start for start, _ in bounds], np.int64)
        builder = tasks.PuffinBuilder(outputs.select(tasks.BUILT_COLUMNS), bounds, tuple(files))
        stages = [ShuffleStage(builder, len(bounds))]
        if whole.all():  # nothing is merged: each goes to its Puffin file at once
            at = BucketAssignment.of_whole(np.searchsorted(starts, places, side="right") - 1, len(bounds))
        else:
            at = requests.buckets()
            stages.insert(0, ShuffleStage(tasks.VectorsByPuffin(starts), at.buckets))
        names = list(files)
        found = self._shuffle("writing Puffin files", stages, requests, at)
        sizes = {names[number]: size for number, size in found}
        if len(sizes) != len(files):
            raise BackendUnavailable(f"Cannot go on: {len(sizes)} of {len(files)} Puffin files were written")
        return sizes

    def _requests(self, files: Ints, rows: Ints) -> VectorRequests:
        """Requests for vectors of data files: to merge their position deletes, to read what is there, or both."""
        there, counts, sizes = rows >= 0, np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        counts[there] = self.index.column("record_count")[rows[there]]
        sizes[there] = self.index.column("size")[rows[there]]
        return VectorRequests(
            index=self.index, places=np.arange(len(files)), files=files, rows=rows,
            records=self.index.data["record_count"].to_numpy()[files], kept=self.kept,
            blobs=np.where(there, self._delete_blobs[rows], -1), sizes=sizes, counts=counts, limits=self.limits,
        )  # fmt: skip

    def _shuffle(
        self, phase: str, stages: Sequence[ShuffleStage], requests: VectorRequests, at: BucketAssignment
    ) -> Iterable[Any]:
        if not at.buckets:
            return ()
        scan: Scan[Item, Any, Any] = Scan(
            tasks.source_of, tasks.load, tasks.parse, phase=phase, batch_bytes=self.limits.batch_bytes
        )
        unread = np.flatnonzero((requests.rows >= 0) & (requests.blobs < 0))
        items: list[Item] = [
            *requests.kept_rows(at),
            *requests.delete_files(at),
            *self._puffin_files(requests.rows[unread], requests.columns(at, unread)),
        ]
        return self.engine.shuffle(scan, stages, items, on_event=self.on_event)


def _check_arrived(places: Ints, positions: Ints, expected: Ints) -> None:
    if not np.array_equal(places, np.arange(len(expected))) or not np.array_equal(positions, expected):
        raise BackendUnavailable(
            f"Cannot go on: workers joined {positions.sum()} positions of {len(places)} data files, "
            f"not {expected.sum()} of {len(expected)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRequests:
    """n deletion vectors to merge, move or compare, and what is read for them.

    Args:
        index: of the base.
        places: index of each among those that are made; ascending.
        files: the data file of each whose position deletes are merged, or -1.
        rows: in `deletes`, of each one that is read as it is there, or -1.
        records: numbers of rows of their data files.
        kept: blobs that were read or merged before.
        blobs: the id of each one that is whole there, or -1.
        sizes: bytes of each one that is whole: in the table, or kept.
        counts: positions of these.
        limits: of ranges, buckets and splits.
    """

    index: DeleteIndex
    places: Ints
    files: Ints
    rows: Ints
    records: Ints
    kept: BlobSpill
    blobs: Ints
    sizes: Ints
    counts: Ints
    limits: MergeLimits

    def owners(self) -> tuple[Ints, Ints]:
        """The rows of `parts` to read, by delete file, and for each the index of its vector."""
        owner = np.full(len(self.index.data) + 1, -1, np.int64)  # a part of no data file has the last one
        merged = np.flatnonzero(self.files >= 0)
        owner[self.files[merged]] = merged
        parts = np.flatnonzero(owner[self.index.part_data] >= 0)
        parts = parts[np.argsort(self.index.part_delete[parts], kind="stable")]
        return parts, owner[self.index.part_data[parts]]

    def positions(self) -> Ints:
        """How many positions must arrive for each vector, each as often as a delete file has it."""
        parts, owner = self.owners()
        totals = self.counts.copy()
        np.add.at(totals, owner, self.index.parts["cardinality"].to_numpy()[parts])
        return totals

    def buckets(self) -> BucketAssignment:
        """The buckets in which vectors are merged.

        The ends of a vector are those of its position deletes, so one that is only moved is in one range, and keeps
        its bytes.
        """
        parts, owner = self.owners()
        weights, ends = self.sizes.copy(), np.zeros(len(self.places), np.int64)
        # A position takes its time and memory, however few bytes a run of them has.
        each = np.maximum(self.index.parts["size"].to_numpy(), self.index.parts["cardinality"].to_numpy())
        np.add.at(weights, owner, each[parts])
        np.maximum.at(ends, owner, self.index.parts["last"].to_numpy()[parts] + 1)
        return assign_buckets(weights, np.minimum(ends, self.records), self.limits)

    def columns(self, at: BucketAssignment, numbers: Ints) -> dict[str, Ints]:
        """The buckets of some of the vectors."""
        columns = {
            "place": self.places, "bucket": at.bucket, "width": at.width, "ranges": at.ranges, "records": self.records,
        }  # fmt: skip
        return {name: values[numbers] for name, values in columns.items()}

    def delete_files(self, at: BucketAssignment) -> list[DeleteFile]:
        """The position delete files that are read, with the data files requested of each."""
        parts, owner = self.owners()
        unread = self.index.parts["blob_id"].to_numpy()[parts] < 0
        parts, owner = parts[unread], owner[unread]
        names = self.index.parts["path"].take(pa.array(parts))
        request = pa.table({"path": names, **self.columns(at, owner)}, schema=REQUEST_SCHEMA).combine_chunks()
        deletes = self.index.part_delete[parts]
        bounds = _bounds(deletes)
        files = self.index.deletes.select(["path", "file_size", "record_count"]).take(
            pa.array(deletes[[start for start, _ in bounds]])
        )
        return [
            DeleteFile(path, size, records, split, request.slice(start, stop - start))
            for (start, stop), path, size, records in zip(bounds, *files.to_pydict().values(), strict=True)
            for split in splits_of(size, self.limits)
        ]

    def kept_rows(self, at: BucketAssignment) -> list[KeptRows]:
        """What was read or merged before, block by block."""
        parts, owner = self.owners()
        part_blobs = self.index.parts["blob_id"].to_numpy()[parts]
        known, whole = np.flatnonzero(part_blobs >= 0), np.flatnonzero(self.blobs >= 0)
        numbers = np.concatenate([owner[known], whole])
        ids = np.concatenate([part_blobs[known], self.blobs[whole]])
        cardinalities = self.index.parts["cardinality"].to_numpy()[parts[known]]
        columns = {
            **self.columns(at, numbers),
            "is_vector": np.arange(len(ids)) >= len(known),
            "positions": np.concatenate([cardinalities, self.counts[whole]]),
        }
        order = np.argsort(ids, kind="stable")
        ids, request = ids[order], pa.table(columns, schema=_KEPT_SCHEMA).take(pa.array(order))
        return [
            KeptRows(self.kept, ids[start:stop], request.slice(start, stop - start))
            for start, stop in _bounds(self.kept.block_of(ids))
        ]


def _bounds(sorted_numbers: Ints) -> list[tuple[int, int]]:
    """The first and the one behind the last of each run of equal numbers."""
    starts, _ = runs_of(sorted_numbers)
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(sorted_numbers)], strict=False))
