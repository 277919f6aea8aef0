"""Sets of positions assigned to buckets by their size; large ones are cut into ranges.

A range begins at a multiple of 65,536 positions, so that each container of a Roaring bitmap is in one range.

Spec: RoaringFormatSpec; Puffin "deletion-vector-v1 blob type".
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from pyroaring import BitMap

from iceberg_cli.encoding.deletion_vector import encode
from iceberg_cli.encoding.deletion_vector.framing import framed
from iceberg_cli.encoding.deletion_vector.roaring import Roaring32
from iceberg_cli.engines import BATCH_BYTES
from iceberg_cli.iceberg.spec.dv_blobs import positions_in
from iceberg_cli.iceberg.verbs.merge_dvs.columns import Bools, Ints

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
class Buckets:
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


def assign_buckets(weights: Ints, ends: Ints, limits: MergeLimits) -> Buckets:
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
    return Buckets(bucket=bucket, width=width, ranges=ranges, buckets=first + buckets)


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
