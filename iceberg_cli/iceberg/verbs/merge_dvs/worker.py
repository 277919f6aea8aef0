"""The tasks of merge-dvs on workers: reading deletes, merging deletion vectors, writing Puffin files.

All of it is plain values, which `distributed.py` sends to the workers.
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
from iceberg_cli.iceberg.spec.dv_blobs import read_vectors
from iceberg_cli.iceberg.spec.position_deletes import (
    PARTS_SCHEMA,
    WHOLE,
    FileSplit,
    named_files,
    read_position_deletes,
    read_split,
    without_blobs,
)
from iceberg_cli.iceberg.verbs.merge_dvs.columns import Ints
from iceberg_cli.iceberg.verbs.merge_dvs.partial_vectors import (
    REPORTED_SCHEMA,
    merge_partials,
    merge_ranges,
    missing_in_partials,
    numbers_of,
    partials_of,
    reported_rows,
)
from iceberg_cli.iceberg.verbs.merge_dvs.puffin_build import puffin_of

VECTOR_COLUMNS: Final = ("file_size", "offset", "size", "ref", "record_count", "last_row")
_BUCKET_COLUMNS: Final = tuple(
    name for name in REPORTED_SCHEMA.names if name not in ("is_vector", "positions", "blob")
)


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A split of a position delete file.

    A split is decoded by itself, but the file is read whole for each of its splits.

    Args:
        path: where it is.
        size_bytes: of the file.
        record_count: of the file.
        split: which row groups.
        request: rows of `REQUEST_SCHEMA`; None: all data files that it names, without positions.
    """

    path: str
    size_bytes: int
    record_count: int
    split: FileSplit = WHOLE
    request: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class PuffinFile:
    """A Puffin file, and the deletion vectors to read of it: rows of `VECTOR_COLUMNS` and of their buckets."""

    path: str
    size_bytes: int
    request: pa.Table


Item = DeleteFile | PuffinFile


def source_of(item: Item) -> Source:
    """The file of an item."""
    return Source(item.path, item.size_bytes)


# -- data files that position delete files name --------------------------------------------------------------------


def load_names(item: DeleteFile, data: bytes) -> tuple[pa.Table, int]:
    """The data files that a split names, without positions, and how many rows it has.

    Raises:
        CorruptFile: see `read_position_deletes`.
    """
    parts, rows = read_split(data, item.path, record_count=item.record_count, only=None, split=item.split)
    return without_blobs(parts), rows


def parse_names(
    batch: Sequence[tuple[DeleteFile, tuple[pa.Table, int] | None]],
) -> tuple[pa.Table, list[int]]:
    """Rows of `PARTS_SCHEMA` without blobs, and the number of rows of each split."""
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


# -- merging deletion vectors --------------------------------------------------------------------------------------


def load(item: Item, data: bytes) -> pa.Table | bytes:
    """The position deletes of the requested data files in a delete file; a Puffin file as it is.

    Raises:
        CorruptFile: see `read_position_deletes`.
    """
    if isinstance(item, PuffinFile):
        return data
    assert item.request is not None
    only = frozenset(item.request["path"].to_pylist())
    return read_position_deletes(data, item.path, record_count=item.record_count, only=only, split=item.split)


def parse(batch: Sequence[tuple[Item, pa.Table | bytes | None]]) -> dict[int, bytes]:
    """Partial vectors by bucket: see `partials_of`.

    Raises:
        CorruptFile: a file is gone, or a deletion vector is not sound.
    """
    gone = [item for item, loaded in batch if loaded is None]
    if gone:
        raise CorruptFile(gone[0].path, None, "the table needs this file and it is not there")
    reported = [
        reported_rows(loaded, item.request)
        for item, loaded in batch
        if isinstance(item, DeleteFile) and isinstance(loaded, pa.Table)
    ]
    puffins = [
        (item, loaded) for item, loaded in batch if isinstance(item, PuffinFile) and isinstance(loaded, bytes)
    ]
    if puffins:
        reported.append(_vectors(puffins))
    return {bucket: to_ipc(partials) for bucket, partials in partials_of(reported).items()}


def _vectors(files: Sequence[tuple[PuffinFile, bytes]]) -> pa.Table:
    """Rows of `REPORTED_SCHEMA`: deletion vectors that exist already, checked."""
    request = pa.concat_tables([item.request for item, _ in files])
    found = read_vectors(
        [(item.path, data, len(item.request)) for item, data in files], request.select(VECTOR_COLUMNS)
    )
    columns: dict[str, Any] = {name: request[name] for name in _BUCKET_COLUMNS}
    columns |= {
        "is_vector": pa.array(np.ones(len(request), np.bool_)),
        "positions": request["record_count"],
        "blob": pa.array(chain.from_iterable(each.blobs for each in found), pa.large_binary()),
    }
    return pa.table(columns, schema=REPORTED_SCHEMA)


def missing_positions(_: int, contents: Sequence[bytes]) -> bytes:
    """How many positions the deletion vectors of a bucket lack: rows of `MISSING_SCHEMA`."""
    return to_ipc(missing_in_partials(list(map(from_ipc, contents))))


def numbers(_: int, contents: Sequence[bytes]) -> bytes:
    """Counts and checksums of a bucket in which every vector is whole: rows of `NUMBERS_SCHEMA`."""
    return to_ipc(numbers_of(merge_partials(list(map(from_ipc, contents)))))


@dataclass(frozen=True, slots=True)
class RangesByVector:
    """Sends the ranges of each vector to one bucket; of whole vectors only rows of `NUMBERS_SCHEMA`.

    Args:
        ranged: vectors that are cut into ranges, ascending: each gets a bucket.
        spread: number of buckets behind those, for whole vectors.
    """

    ranged: Ints
    spread: int

    def __call__(self, bucket: int, contents: Sequence[bytes]) -> Mapping[int, bytes]:
        """See `numbers_together`."""
        vectors = merge_partials(list(map(from_ipc, contents)))
        is_ranged = np.isin(vectors["place"].to_numpy(), self.ranged)
        found = {}
        if not is_ranged.all():
            whole = vectors.filter(pa.array(~is_ranged))
            found[len(self.ranged) + bucket % self.spread] = to_ipc(numbers_of(whole))
        for place in np.unique(vectors["place"].to_numpy()[is_ranged]).tolist():
            mine = vectors.filter(pa.array(vectors["place"].to_numpy() == place))
            found[int(np.searchsorted(self.ranged, place))] = to_ipc(mine)
        return found


def numbers_together(_: int, contents: Sequence[bytes]) -> bytes:
    """Rows of `NUMBERS_SCHEMA` of one bucket of `RangesByVector`."""
    tables = list(map(from_ipc, contents))
    known = [table for table in tables if "blob" not in table.column_names]
    ranges = [table for table in tables if "blob" in table.column_names]
    return to_ipc(pa.concat_tables([*known, numbers_of(merge_ranges(ranges))]))


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
        vectors = merge_ranges(list(map(from_ipc, contents)))
        if vectors["place"].to_pylist() != list(range(start, stop)):
            raise BackendUnavailable(
                f"Cannot write {self.paths[number]}: {len(vectors)} of {stop - start} deletion vectors arrived"
            )
        outputs = self.outputs.slice(start, stop - start)
        data = puffin_of(outputs, vectors["blob"].to_pylist(), self.paths[number])
        return BuiltFile(self.paths[number], data, (number, len(data)))
