"""The tasks of merge-dvs: reading deletes, merging deletion vectors, making Puffin files.

All of it is plain values, which an engine may send to its workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from iceberg_cli.encoding.transport import from_ipc, to_ipc
from iceberg_cli.engines import BuiltFile, Source
from iceberg_cli.errors import BackendUnavailable, CorruptFile
from iceberg_cli.iceberg.branch.entry_columns import Ints
from iceberg_cli.iceberg.spec.deletes.dv_blobs import (
    ExtractedBlobs,
    positions_in,
    puffin_file,
    read_vectors,
    vectors_in,
)
from iceberg_cli.iceberg.spec.deletes.position_deletes import (
    PARTS_SCHEMA,
    WHOLE,
    FileSplit,
    named_files,
    read_position_deletes,
    read_split,
    without_blobs,
)
from iceberg_cli.iceberg.spec.deletes.puffin import MAGIC
from iceberg_cli.iceberg.verbs.merge_dvs.blobs import BlobSpill
from iceberg_cli.iceberg.verbs.merge_dvs.partial_vectors import (
    NUMBERS_SCHEMA,
    REPORTED_SCHEMA,
    VECTORS_SCHEMA,
    blobs_by_place,
    merge_partials,
    merge_ranges,
    missing_in_partials,
    numbers_of,
    partials_of,
    reported_rows,
)
from iceberg_cli.iceberg.verbs.merge_dvs.rules import NEW

VECTOR_COLUMNS: Final = ("file_size", "offset", "size", "ref", "record_count", "last_row")
BUILT_COLUMNS: Final = ("origin", "ref", "cardinality", "size", "crc", "sum", "last_row")
_BUCKET_COLUMNS: Final = tuple(name for name in REPORTED_SCHEMA.names if name != "blob")


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A split of a position delete file.

    A split is decoded by itself, but the file is read whole for each of its splits.

    Args:
        path: where it is.
        size_bytes: of the file.
        record_count: of the file.
        split: which row groups.
        request: rows of `REQUEST_SCHEMA`; None: all data files that it names.
    """

    path: str
    size_bytes: int
    record_count: int
    split: FileSplit = WHOLE
    request: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class PuffinFile:
    """A Puffin file, and the deletion vectors to read of it: rows of `VECTOR_COLUMNS` and of who asks for them."""

    path: str
    size_bytes: int
    request: pa.Table


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Blobs that this process has already.

    Args:
        kept: has them.
        ids: of n of them, of one block.
        request: n rows of `REPORTED_SCHEMA` without `blob`.
    """

    kept: BlobSpill
    ids: Ints
    request: pa.Table


Item = DeleteFile | PuffinFile | KeptRows


def source_of(item: Item) -> Source:
    """The file of an item, if it needs one."""
    if isinstance(item, KeptRows):
        return Source(None, item.kept.size_bytes(item.ids))
    return Source(item.path, item.size_bytes)


# -- what delete files and Puffin files have -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartsLoader:
    """Reads the data files that a split of a position delete file names; their positions only if they are kept."""

    keeps_blobs: bool

    def __call__(self, item: DeleteFile, data: bytes) -> tuple[pa.Table, int]:
        """Rows of `PARTS_SCHEMA`, and how many rows the split has.

        Raises:
            CorruptFile: see `read_position_deletes`.
        """
        parts, rows = read_split(data, item.path, record_count=item.record_count, only=None, split=item.split)
        return parts if self.keeps_blobs else without_blobs(parts), rows


def parse_parts(
    batch: Sequence[tuple[DeleteFile, tuple[pa.Table, int] | None]],
) -> tuple[pa.Table, list[int]]:
    """Rows of `PARTS_SCHEMA`, and the number of rows of each split."""
    found = [loaded for _, loaded in batch if loaded is not None]
    return pa.concat_tables([parts for parts, _ in found]).combine_chunks(), [rows for _, rows in found]


def load_files(item: DeleteFile, data: bytes) -> list[str]:
    """The data files that a position delete file names.

    Raises:
        CorruptFile: see `named_files`.
    """
    return named_files(data, item.path, record_count=item.record_count)


def parse_files(batch: Sequence[tuple[DeleteFile, list[str] | None]]) -> pa.Table:
    """Rows of `PARTS_SCHEMA` of which only `source` and `path` are known."""
    found = [(item.path, names) for item, names in batch if names is not None]
    sources = pa.array([path for path, _ in found], pa.string())
    owners = np.repeat(np.arange(len(found)), [len(names) for _, names in found])
    columns = {
        "source": sources.take(pa.array(owners)),
        "path": pa.array(chain.from_iterable(names for _, names in found), pa.string()),
        "cardinality": np.zeros(len(owners), np.int64),
        "last": np.full(len(owners), -1),
        "size": np.zeros(len(owners), np.int64),
        "blob": pa.nulls(len(owners), pa.large_binary()),
    }
    return pa.table(columns, schema=PARTS_SCHEMA)


@dataclass(frozen=True, slots=True)
class VectorChecker:
    """Checks the deletion vectors of Puffin files."""

    keeps_blobs: bool

    def __call__(
        self, batch: Sequence[tuple[PuffinFile, bytes | None]]
    ) -> tuple[pa.Table, list[tuple[str, int]]]:
        """The requested `row`s with the last four bytes of each blob, whether it is out of range, and maybe the blob.

        Also the path of each file, and the bytes of its blobs that were not requested.

        Raises:
            CorruptFile: see `read_vectors`.
        """
        request, found = _vectors_of([(item, data or b"") for item, data in batch])
        blobs = list(chain.from_iterable(each.blobs for each in found))
        starts = np.cumsum([0, *(len(each.blobs) for each in found)])
        out_of_range = np.zeros(len(blobs), np.bool_)
        for start, each in zip(starts.tolist(), found, strict=False):
            out_of_range[start + np.array(each.out_of_range, np.int64)] = True
        columns = {
            "row": request["row"],
            "crc": pa.array([blob[-4:] for blob in blobs], pa.binary(4)),
            "out_of_range": out_of_range,
            "blob": pa.array(blobs if self.keeps_blobs else [None] * len(blobs), pa.large_binary()),
        }
        dead = [(item.path, each.dead_bytes) for (item, _), each in zip(batch, found, strict=True)]
        return pa.table(columns), dead


def _vectors_of(files: Sequence[tuple[PuffinFile, bytes]]) -> tuple[pa.Table, list[ExtractedBlobs]]:
    """All that is requested of some Puffin files, and the vectors."""
    request = pa.concat_tables([item.request for item, _ in files])
    return request, read_vectors(
        [(item.path, data, len(item.request)) for item, data in files], request.select(VECTOR_COLUMNS)
    )


# -- merging deletion vectors --------------------------------------------------------------------------------------


def load(item: Item, data: bytes) -> pa.Table | bytes:
    """The position deletes of the requested data files, rows of `REPORTED_SCHEMA`; all else as it is.

    Raises:
        CorruptFile: see `read_position_deletes`.
    """
    if not isinstance(item, DeleteFile):
        return data
    assert item.request is not None
    only = frozenset(item.request["path"].to_pylist())
    parts = read_position_deletes(
        data, item.path, record_count=item.record_count, only=only, split=item.split
    )
    return reported_rows(parts, item.request)


def parse(batch: Sequence[tuple[Item, pa.Table | bytes | None]]) -> dict[int, bytes]:
    """Partial vectors by bucket: see `partials_of`.

    Raises:
        CorruptFile: a deletion vector is not sound.
    """
    reported = [loaded for _, loaded in batch if isinstance(loaded, pa.Table)]
    reported += [
        item.request.append_column(REPORTED_SCHEMA.field("blob"), item.kept.take(item.ids))
        for item, _ in batch
        if isinstance(item, KeptRows)
    ]
    puffins = [
        (item, loaded) for item, loaded in batch if isinstance(item, PuffinFile) and isinstance(loaded, bytes)
    ]
    if puffins:
        request, found = _vectors_of(puffins)
        columns: dict[str, Any] = {
            name: request[name] for name in _BUCKET_COLUMNS if name not in ("is_vector", "positions")
        }
        columns |= {
            "is_vector": pa.array(np.ones(len(request), np.bool_)),
            "positions": request["record_count"],
            "blob": pa.array(chain.from_iterable(each.blobs for each in found), pa.large_binary()),
        }
        reported.append(pa.table(columns, schema=REPORTED_SCHEMA))
    return {bucket: to_ipc(partials) for bucket, partials in partials_of(reported)}


def missing_positions(_: int, contents: Sequence[bytes]) -> bytes:
    """How many positions the deletion vectors of a bucket lack: rows of `MISSING_SCHEMA`."""
    return to_ipc(missing_in_partials(list(map(from_ipc, contents))))


@dataclass(frozen=True, slots=True)
class VectorNumbers:
    """Counts and checksums of the vectors of a bucket, in which every one is whole: rows of `NUMBERS_SCHEMA`."""

    keeps_blobs: bool

    def __call__(self, _: int, contents: Sequence[bytes]) -> bytes:
        """See `ShuffleStage`."""
        vectors = merge_partials(list(map(from_ipc, contents)))
        return to_ipc(numbers_of(vectors, keeps_blobs=self.keeps_blobs))


@dataclass(frozen=True, slots=True)
class RangesByVector:
    """Sends the ranges of each vector to one bucket; of whole vectors only rows of `NUMBERS_SCHEMA`.

    Args:
        ranged: vectors that are cut into ranges, ascending: each gets a bucket.
        spread: number of buckets behind those, for whole vectors.
        keeps_blobs: see `numbers_of`.
    """

    ranged: Ints
    spread: int
    keeps_blobs: bool

    def __call__(self, bucket: int, contents: Sequence[bytes]) -> Mapping[int, bytes]:
        """See `RangedNumbers`."""
        vectors = merge_partials(list(map(from_ipc, contents)))
        is_ranged = np.isin(vectors["place"].to_numpy(), self.ranged)
        found = {}
        if not is_ranged.all():
            whole = numbers_of(vectors.filter(pa.array(~is_ranged)), keeps_blobs=self.keeps_blobs)
            found[len(self.ranged) + bucket % self.spread] = to_ipc(whole)
        for place in np.unique(vectors["place"].to_numpy()[is_ranged]).tolist():
            mine = vectors.filter(pa.array(vectors["place"].to_numpy() == place))
            found[int(np.searchsorted(self.ranged, place))] = to_ipc(mine)
        return found


@dataclass(frozen=True, slots=True)
class RangedNumbers:
    """Rows of `NUMBERS_SCHEMA` of one bucket of `RangesByVector`."""

    keeps_blobs: bool

    def __call__(self, _: int, contents: Sequence[bytes]) -> bytes:
        """See `ShuffleStage`."""
        tables = list(map(from_ipc, contents))
        known = [table for table in tables if table.schema.equals(NUMBERS_SCHEMA)]
        ranges = [table for table in tables if table.schema.equals(VECTORS_SCHEMA)]
        merged = numbers_of(merge_ranges(ranges), keeps_blobs=self.keeps_blobs)
        return to_ipc(pa.concat_tables([*known, merged]))


# -- new files -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VectorsByPuffin:
    """Sends the vectors of each Puffin file to one bucket.

    Args:
        starts: first vector of each file, ascending.
    """

    starts: Ints

    def __call__(self, _: int, contents: Sequence[bytes]) -> Mapping[int, bytes]:
        """See `PuffinBuilder`."""
        vectors = merge_partials(list(map(from_ipc, contents)))
        outputs = np.searchsorted(self.starts, vectors["place"].to_numpy(), side="right") - 1
        return {
            output: to_ipc(vectors.filter(pa.array(outputs == output)))
            for output in np.unique(outputs).tolist()
        }


@dataclass(frozen=True, slots=True)
class PuffinBuilder:
    """Builds Puffin files of deletion vectors, each in one task.

    Args:
        outputs: rows of `OUTPUTS_SCHEMA`; a vector's `place` is its row.
        bounds: of each file its first row and the one behind its last.
        paths: of each file.
    """

    outputs: pa.Table
    bounds: tuple[tuple[int, int], ...]
    paths: tuple[str, ...]

    def __call__(self, number: int, contents: Sequence[bytes]) -> BuiltFile:
        """A file, with its index and its size as its result.

        Raises:
            CorruptFile: a vector is not the one that was planned. BackendUnavailable: one did not arrive.
        """
        start, stop = self.bounds[number]
        places, blobs = blobs_by_place(list(map(from_ipc, contents)))
        if places != list(range(start, stop)):
            raise BackendUnavailable(
                f"Cannot write {self.paths[number]}: {len(places)} of {stop - start} deletion vectors arrived"
            )
        outputs = self.outputs.slice(start, stop - start)
        # Arrow holds on to what was freed, and the file needs it.
        pa.default_memory_pool().release_unused()
        data = puffin_of(outputs, blobs, self.paths[number])
        return BuiltFile(self.paths[number], data, (number, len(data)))


def puffin_of(outputs: pa.Table, blobs: Sequence[bytes | memoryview], path: str) -> bytes:
    """The file of n deletion vectors.

    Args:
        outputs: n rows of `OUTPUTS_SCHEMA`, of which `BUILT_COLUMNS` are needed.
        blobs: of each its vector.
        path: for messages.

    Raises:
        CorruptFile: a vector that was copied has other bytes than planned, or one that was merged other positions.
    """
    data = puffin_file(outputs["ref"].to_pylist(), outputs["cardinality"].to_pylist(), iter(blobs))
    _check(data, path, outputs)
    return data


def offsets_of(sizes: Ints) -> Ints:
    """Where each blob begins in a file of blobs of these sizes."""
    offsets: Ints = len(MAGIC) + np.cumsum(sizes) - sizes
    return offsets


def _check(data: bytes, path: str, outputs: pa.Table) -> None:
    sizes = outputs["size"].to_numpy()
    offsets = offsets_of(sizes)
    ends = (offsets + sizes).tolist()
    if [data[end - 4 : end] for end in ends] != outputs["crc"].to_pylist():
        raise CorruptFile(path, None, "a deletion vector is not the one that was planned")
    new = outputs["origin"].to_numpy() == NEW
    # Copied vectors were checked when they were read; the footer is checked once.
    places = np.flatnonzero(new) if new.any() else np.zeros(1, np.int64)
    targets = outputs.select(["ref", "size", "last_row"]).append_column(
        "record_count", outputs["cardinality"]
    )
    targets = targets.append_column("file_size", pa.array(np.full(len(outputs), len(data))))
    targets = targets.append_column("offset", pa.array(offsets)).take(pa.array(places))
    sums, cardinalities = outputs["sum"].to_numpy(), outputs["cardinality"].to_numpy()
    for blob, place in zip(vectors_in(data, path, targets), places.tolist(), strict=True):
        if new[place]:
            _check_vector(blob, int(cardinalities[place]), int(sums[place]), path)


def _check_vector(blob: bytes, cardinality: int, total: int, path: str) -> None:
    """Compare a new deletion vector with the planned count and sum of its positions."""
    positions = positions_in(blob)
    found = len(positions), int(positions.sum(dtype=np.uint64))
    if found != (cardinality, total):
        raise CorruptFile(
            path,
            None,
            f"a deletion vector has positions {found} (count and sum) instead of {cardinality, total}",
        )
