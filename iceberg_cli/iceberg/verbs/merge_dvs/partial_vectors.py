"""Partial deletion vectors on their way between the stages of a shuffle, merged by data file.

`partials_of` makes them of one batch of files, by bucket; `merge_partials` or `missing_in_partials` takes one bucket;
`merge_ranges` merges what was cut into ranges; `numbers_of` has what planning needs. No result depends on the order of
its inputs.

`place` is the index of a vector among those that are made. Vectors are assigned to buckets by their size. A range of
a large one begins at a multiple of 65,536 positions, so that each container of a Roaring bitmap is in one range.

Spec: Iceberg v3 "Deletion Vectors"; "Scan Planning"; RoaringFormatSpec; Puffin "deletion-vector-v1 blob type".
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from iceberg_cli.encoding.deletion_vector import encode, union
from iceberg_cli.encoding.deletion_vector.framing import framed
from iceberg_cli.encoding.deletion_vector.roaring import Roaring32
from iceberg_cli.engines import BATCH_BYTES
from iceberg_cli.iceberg.branch.entry_columns import Bools, Ints
from iceberg_cli.iceberg.spec.deletes.dv_blobs import (
    merge_vectors,
    missing_positions,
    positions_in,
    vector_of,
)

CONTAINER: Final = 1 << 16
_EMPTY: Final = BitMap().serialize()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """Sizes of ranges, buckets and splits: bytes of encoded positions, and of files.

    Args:
        batch_bytes: about so much of files, or of blobs that were kept, is read and assigned to buckets at once.
        range_bytes: a set of more is cut into ranges of about so much each.
        bucket_bytes: about so much is in a bucket; merging less takes no longer than starting a task.
        split_bytes: a position delete file of more is decoded in splits,
        most_splits: of which there are not more: for each of them the file is read whole.
        keeps_blobs: this process keeps what was read and merged, so that no file is read again.
    """

    batch_bytes: int = BATCH_BYTES
    range_bytes: int = 64 << 20
    bucket_bytes: int = 8 << 20
    split_bytes: int = 32 << 20
    most_splits: int = 8
    keeps_blobs: bool = False


LIMITS: Final = MergeLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAssignment:
    """The buckets in which n sets of positions are merged.

    Args:
        bucket: of its first range; the ranges of a set are in buckets that follow each other.
        width: positions of each range.
        ranges: of each set, at least 1.
        buckets: how many there are.
    """

    bucket: Ints
    width: Ints
    ranges: Ints
    buckets: int

    @classmethod
    def of_whole(cls, bucket: Ints, buckets: int) -> BucketAssignment:
        """Sets that are whole, each in a bucket that is given."""
        ones = np.ones(len(bucket), np.int64)
        return cls(bucket=bucket, width=ones * CONTAINER, ranges=ones, buckets=buckets)


def assign_buckets(weights: Ints, ends: Ints, limits: MergeLimits) -> BucketAssignment:
    """Assign n sets to buckets of about even weight; each range of a large set has a bucket of its own.

    Args:
        weights: about the bytes of each.
        ends: of each a position behind its last one.
        limits: of ranges and buckets.
    """
    large = weights > limits.range_bytes
    parts = np.where(large, -(-weights // limits.range_bytes), 1)
    containers = np.maximum(-(-ends // CONTAINER), 1)
    width = -(-containers // parts) * CONTAINER
    ranges = np.where(large, -(-containers * CONTAINER // width), 1)
    large = ranges > 1
    bucket = np.zeros(len(weights), np.int64)
    range_counts = np.where(large, ranges, 0)
    bucket[large] = (np.cumsum(range_counts) - range_counts)[large]
    first = int(range_counts.sum())
    rest = weights[~large]
    buckets = min(max(1, -(-int(rest.sum()) // limits.bucket_bytes)), len(rest))
    bucket[~large] = first + _shared_out(rest, buckets)
    return BucketAssignment(bucket=bucket, width=width, ranges=ranges, buckets=first + buckets)


def _shared_out(weights: Ints, buckets: int) -> Ints:
    """A bucket for each weight: heavy ones one by one to the lightest bucket, the others so that they fill the rest."""
    found = np.zeros(len(weights), np.int64)
    if buckets < 2:
        return found
    even = -(-int(weights.sum()) // buckets)
    heavy = np.flatnonzero(weights > even // 4)
    heap = [(0, bucket) for bucket in range(buckets)]
    for place in heavy[np.argsort(-weights[heavy], kind="stable")].tolist():
        weight, bucket = heap[0]
        heapq.heapreplace(heap, (weight + int(weights[place]), bucket))
        found[place] = bucket
    loads = np.array([weight for weight, _ in sorted(heap, key=lambda each: each[1])], np.int64)
    light = np.flatnonzero(weights <= even // 4)
    ends = np.cumsum(np.maximum(even - loads, 0))
    before = np.cumsum(weights[light]) - weights[light]
    found[light] = np.minimum(np.searchsorted(ends, before, side="right"), buckets - 1)
    return found


def cut(blob: bytes, width: int, ranges: int) -> list[tuple[int, bytes]]:
    """Cut a set of positions into ranges.

    Args:
        blob: checked or encoded here before.
        width: positions of a range, a multiple of 65,536.
        ranges: how many there are; the last one has all that follows.

    Returns:
        Of each range that has any: its index, and a blob.
    """
    positions = positions_in(blob)
    starts = np.arange(1, ranges, dtype=np.uint64) * np.uint64(width)
    parts = np.split(positions, np.searchsorted(positions, starts))
    return [(number, encode(part)) for number, part in enumerate(parts) if len(part)]


def whole_of(blobs: Sequence[bytes]) -> bytes:
    """Merge the ranges that `cut` makes of a set, byte for byte as `encode` writes the whole.

    No position is unfolded, so this takes about as much memory as the blobs.

    Raises:
        ValueError: the blob is above 256 MiB.
    """
    bitmaps: list[BitMap] = []
    for blob in blobs:
        for key, bitmap in enumerate(_bitmaps(blob)):
            if key == len(bitmaps):
                bitmaps.append(BitMap())
            # Containers of different ranges are different ones, so each stays of the kind that it is.
            bitmaps[key] |= bitmap
    parts = [struct.pack("<q", len(bitmaps))]
    for key, bitmap in enumerate(bitmaps):
        parts += [struct.pack("<I", key), bitmap.serialize()]
    return framed(b"".join(parts))


def _bitmaps(blob: bytes) -> Iterator[BitMap]:
    """The 32-bit bitmaps of a blob that was encoded here, whose keys are dense."""
    vector = blob[8:-4]
    data = np.frombuffer(vector, np.uint8)
    (count,) = struct.unpack_from("<q", vector)
    at = 8
    for _ in range(count):
        at += 4
        if vector.startswith(_EMPTY, at):
            end = at + len(_EMPTY)
        else:
            end, _ = Roaring32(data, at, "a deletion vector", 8).check()
        yield BitMap.deserialize(vector[at:end])
        at = end


def runs_of(*keys: Ints) -> tuple[Ints, Bools]:
    """The start of each run of equal rows in sorted keys; and of each row whether it is one of several."""
    count = len(keys[0])
    first = np.ones(count, np.bool_)
    if count:
        first[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    starts: Ints = np.flatnonzero(first)
    lengths = np.diff(np.append(starts, count))
    return starts, np.repeat(lengths > 1, lengths)


# Requests: what is read of a file.
_BUCKET_COLUMNS: Final = {
    "place": pa.int64(),
    "bucket": pa.int64(),  # of its first range
    "width": pa.int64(),  # positions of a range
    "ranges": pa.int64(),
    "records": pa.int64(),  # rows of its data file: positions from there on are left out
}
REQUEST_SCHEMA: Final = pa.schema(
    {"path": pa.string(), **_BUCKET_COLUMNS}
)  # `path` as position deletes spell it
# Replies: what was read.
_BLOB: Final = {"is_vector": pa.bool_(), "positions": pa.int64(), "blob": pa.large_binary()}
REPORTED_SCHEMA: Final = pa.schema({**_BUCKET_COLUMNS, **_BLOB})
PARTIALS_SCHEMA: Final = pa.schema(
    {
        "bucket": pa.int64(),
        "place": pa.int64(),
        "records": pa.int64(),
        "is_vector": pa.bool_(),  # one that is in the table already
        "positions": pa.int64(),  # that were merged in it, each as often as a delete file has it
        "blob": pa.large_binary(),
    }
)
VECTORS_SCHEMA: Final = pa.schema(
    {
        "place": pa.int64(),
        "positions": pa.int64(),
        "cardinality": pa.int64(),
        "sum": pa.uint64(),  # of the positions, modulo 2^64
        "blob": pa.large_binary(),  # empty where no position is left
    }
)
NUMBERS_SCHEMA: Final = pa.schema(
    {
        "place": pa.int64(),
        "positions": pa.int64(),
        "cardinality": pa.int64(),
        "sum": pa.uint64(),
        "size": pa.int64(),  # of the blob
        "crc": pa.binary(),  # its last four bytes
        "blob": pa.large_binary(),  # null where it is not kept
    }
)
MISSING_SCHEMA: Final = pa.schema({"place": pa.int64(), "positions": pa.int64(), "missing": pa.int64()})


def reported_rows(parts: pa.Table, request: pa.Table) -> pa.Table:
    """Position deletes of the requested data files in one delete file, as rows of `REPORTED_SCHEMA`.

    Args:
        parts: rows of `PARTS_SCHEMA`, with blobs, all of one file.
        request: rows of `REQUEST_SCHEMA`, each path once.
    """
    known = request["path"].combine_chunks()
    rows = pc.index_in(parts["path"], value_set=known)
    parts = parts.filter(rows.is_valid())
    columns: dict[str, Any] = {name: request[name].take(rows.drop_null()) for name in _BUCKET_COLUMNS}
    columns |= {
        "is_vector": pa.array(np.zeros(len(parts), np.bool_)),
        "positions": parts["cardinality"],
        "blob": parts["blob"],
    }
    return pa.table(columns, schema=REPORTED_SCHEMA)


def partials_of(reported: Sequence[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
    """Rows of `PARTIALS_SCHEMA` by bucket; positions that several files have for a vector are merged.

    Args:
        reported: rows of `REPORTED_SCHEMA`.
    """
    whole = pa.concat_tables([REPORTED_SCHEMA.empty_table(), *reported]).combine_chunks()
    places, vectors = whole["place"].to_numpy(), whole["is_vector"].to_numpy()
    order = np.lexsort((vectors, places))
    starts, several = runs_of(places[order], vectors[order])
    unlike = several | (whole["ranges"].to_numpy()[order] > 1)
    made = [
        piece
        for start, rows in zip(starts.tolist(), np.split(order, starts[1:]), strict=False)
        if unlike[start]
        for piece in _united(whole.take(pa.array(rows)))
    ]
    united = pa.Table.from_pylist(made, schema=PARTIALS_SCHEMA)
    # Blobs are copied bucket by bucket, and no other time.
    ready, ready_buckets = _by_bucket(order[~unlike], whole)
    others, other_buckets = _by_bucket(np.arange(len(united)), united)
    for bucket in np.union1d(ready_buckets, other_buckets).tolist():
        mine = ready[slice(*np.searchsorted(ready_buckets, (bucket, bucket + 1)))]
        also = others[slice(*np.searchsorted(other_buckets, (bucket, bucket + 1)))]
        tables = [whole.select(PARTIALS_SCHEMA.names).take(pa.array(mine)), united.take(pa.array(also))]
        yield bucket, pa.concat_tables(tables)


def _by_bucket(rows: Ints, partials: pa.Table) -> tuple[Ints, Ints]:
    """Some rows by their bucket, and the bucket of each."""
    buckets = partials["bucket"].to_numpy()[rows]
    order = np.argsort(buckets, kind="stable")
    return rows[order], buckets[order]


def _united(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """The partial vectors of one vector, one a range; there is one even if there is no position."""
    first = {name: rows[name][0].as_py() for name in (*_BUCKET_COLUMNS, "is_vector")}
    blobs = rows["blob"].to_pylist()
    blob = blobs[0] if len(blobs) == 1 else encode(union(map(vector_of, blobs)))
    ranges = cut(blob, first["width"], first["ranges"]) if first["ranges"] > 1 else []
    positions = int(pc.sum(rows["positions"]).as_py())
    for number, piece in ranges or [(0, blob)]:
        yield {
            "bucket": first["bucket"] + number,
            "place": first["place"],
            "records": first["records"],
            "is_vector": first["is_vector"],
            "positions": positions,
            "blob": piece,
        }
        positions = 0  # counted once


def merge_partials(partials: Sequence[pa.Table]) -> pa.Table:
    """The vectors of a bucket, or their ranges: rows of `VECTORS_SCHEMA`.

    Args:
        partials: rows of `PARTIALS_SCHEMA`, with all that belongs to each; a vector that is in the table already stands
            alone, and is handed on as it is, without sum.
    """
    groups = _groups(partials)
    cardinality, sums, made = groups.positions.copy(), np.zeros(len(groups.places), np.uint64), []
    for row, (blobs, vectors, records) in enumerate(groups.members()):
        if vectors:
            (blob,) = vectors
        else:
            blob, cardinality[row], sums[row] = merge_vectors(blobs, record_count=records)
        made.append(blob)
    columns = [groups.places, groups.positions, cardinality, sums]
    return pa.table([*map(pa.array, columns), pa.array(made, pa.large_binary())], schema=VECTORS_SCHEMA)


def missing_in_partials(partials: Sequence[pa.Table]) -> pa.Table:
    """How many positions of position deletes the vectors of a bucket, or ranges, lack: rows of `MISSING_SCHEMA`.

    Args:
        partials: see `merge_partials`; here a vector stands beside the position deletes that are older.
    """
    groups = _groups(partials)
    missing = np.zeros(len(groups.places), np.int64)
    for row, (blobs, vectors, records) in enumerate(groups.members()):
        # A range in which the vector has no position has no partial vector of it.
        held = vectors[0] if vectors else encode(np.empty(0, np.uint64))
        missing[row] = missing_positions(held, blobs, record_count=records)
    columns = [groups.places, groups.positions, missing]
    return pa.table(list(map(pa.array, columns)), schema=MISSING_SCHEMA)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Partial vectors by `place`: n vectors, or ranges of them; two ranges of one are never in one bucket."""

    partials: pa.Table
    starts: Ints
    places: Ints
    positions: Ints

    def members(self) -> Iterator[tuple[list[bytes], list[bytes], int]]:
        """Of each group the blobs of position deletes, those of vectors, and the rows of the data file."""
        blobs, vectors = self.partials["blob"].to_pylist(), self.partials["is_vector"].to_pylist()
        records = self.partials["records"].to_numpy()[self.starts].tolist()
        starts = self.starts.tolist()
        for start, stop, count in zip(starts, [*starts[1:], len(blobs)], records, strict=False):
            kinds = list(zip(blobs[start:stop], vectors[start:stop], strict=True))
            yield [blob for blob, own in kinds if not own], [blob for blob, own in kinds if own], count


def _groups(partials: Sequence[pa.Table]) -> _Groups:
    whole = pa.concat_tables([PARTIALS_SCHEMA.empty_table(), *partials]).combine_chunks()
    order = np.argsort(whole["place"].to_numpy(), kind="stable")
    whole = whole.take(pa.array(order))
    places = whole["place"].to_numpy()
    starts, _ = runs_of(places)
    positions = whole["positions"].to_numpy()
    totals = np.add.reduceat(positions, starts) if len(starts) else positions
    return _Groups(whole, starts, places[starts], totals)


def merge_ranges(vectors: Sequence[pa.Table]) -> pa.Table:
    """Whole vectors, by `place`: rows of `VECTORS_SCHEMA`.

    Args:
        vectors: rows of `VECTORS_SCHEMA`, every range of each.
    """
    whole = pa.concat_tables([VECTORS_SCHEMA.empty_table(), *vectors]).combine_chunks()
    order = np.argsort(whole["place"].to_numpy(), kind="stable")
    whole = whole.take(pa.array(order))
    starts, several = runs_of(whole["place"].to_numpy())
    made = [
        _merge_rows(whole.slice(int(rows[0]), len(rows)))
        for rows in np.split(np.arange(len(whole)), starts[1:])
        if len(rows) > 1
    ]
    found = pa.concat_tables(
        [whole.filter(pa.array(~several)), pa.Table.from_pylist(made, schema=VECTORS_SCHEMA)]
    )
    return found.combine_chunks().take(pa.array(np.argsort(found["place"].to_numpy())))


def blobs_by_place(vectors: Sequence[pa.Table]) -> tuple[list[int], list[memoryview]]:
    """Whole vectors as `merge_ranges` makes them: their places, ascending, and blobs, copied only where it merges.

    Args:
        vectors: see `merge_ranges`.
    """
    found: dict[int, list[memoryview]] = {}
    for table in vectors:
        for place, blob in zip(table["place"].to_pylist(), table["blob"], strict=True):
            found.setdefault(place, []).append(memoryview(blob.as_buffer()))
    return sorted(found), [
        ranges[0] if len(ranges) == 1 else memoryview(whole_of([bytes(each) for each in ranges if each]))
        for _, ranges in sorted(found.items(), key=lambda item: item[0])
    ]


def _merge_rows(rows: pa.Table) -> dict[str, Any]:
    blobs = [blob for blob in rows["blob"].to_pylist() if blob]
    return {
        "place": rows["place"][0].as_py(),
        "positions": int(pc.sum(rows["positions"]).as_py()),
        "cardinality": int(pc.sum(rows["cardinality"]).as_py()),
        "sum": int(rows["sum"].to_numpy().sum(dtype=np.uint64)),
        "blob": whole_of(blobs) if blobs else b"",
    }


def numbers_of(vectors: pa.Table, *, keeps_blobs: bool = False) -> pa.Table:
    """Counts and checksums of whole vectors, and maybe their blobs: rows of `NUMBERS_SCHEMA`."""
    columns = {
        "place": vectors["place"],
        "positions": vectors["positions"],
        "cardinality": vectors["cardinality"],
        "sum": vectors["sum"],
        "size": pc.binary_length(vectors["blob"]).cast(pa.int64()),
        "crc": pc.binary_slice(vectors["blob"], -4).cast(pa.binary()),
        "blob": vectors["blob"] if keeps_blobs else pa.nulls(len(vectors), pa.large_binary()),
    }
    return pa.table(columns, schema=NUMBERS_SCHEMA)
