"""Deletion vectors: a 64-bit set of row positions and its framing, the same bytes in Iceberg and Delta.

Layout of a blob, offsets in bytes, n = length of the vector:

    0      4   length of magic and vector (n + 4), big-endian
    4      4   magic D1 D3 39 64
    8      n   vector: count of bitmaps as 8-byte little-endian, then for each bitmap its key as 4-byte
               little-endian (the high half of the positions) and a 32-bit Roaring bitmap in portable format
    8 + n  4   CRC-32 of magic and vector, big-endian

`framing` has the frame, `roaring` checks the bitmaps, `proof` checks many blobs of the usual kind at a time.

Spec: Puffin "deletion-vector-v1 blob type"; Iceberg v3 "Deletion Vectors"; RoaringFormatSpec.
"""

from __future__ import annotations

import struct
from array import array as packed
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, BitMap64

from iceberg_cli.encoding.deletion_vector.framing import framed, unframe
from iceberg_cli.encoding.deletion_vector.proof import unproven
from iceberg_cli.encoding.deletion_vector.roaring import MAX_BITMAPS, MAX_KEY, decode_bitmap64
from iceberg_cli.errors import CorruptFile

__all__ = ["DeletionVector", "Positions", "decode", "decode_bitmap64", "encode", "union", "unproven"]

Positions = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """The deleted positions of one data file, counted from 0; treated as immutable."""

    bitmap: BitMap64

    @classmethod
    def of(cls, positions: Iterable[int] | Positions) -> DeletionVector:
        """The set of `positions`, in any order, repeats allowed.

        Raises:
            ValueError: a position is negative or above the format's limit.
        """
        array = _as_positions(positions)
        return cls(BitMap64(array))

    @property
    def cardinality(self) -> int:
        """Number of deleted positions."""
        return len(self.bitmap)

    def positions(self) -> Positions:
        """The deleted positions, ascending."""
        return np.array(self.bitmap.to_array(), dtype=np.uint64)

    def __contains__(self, position: int) -> bool:
        return position in self.bitmap


def union(vectors: Iterable[DeletionVector]) -> DeletionVector:
    """Every position that at least one of `vectors` has."""
    merged = BitMap64()
    for vector in vectors:
        merged |= vector.bitmap
    return DeletionVector(merged)


def encode(positions: Positions | BitMap64 | DeletionVector) -> bytes:
    """The blob for `positions`, byte for byte what Iceberg's Java library writes for them.

    Keys are dense from 0 to the highest, with empty bitmaps between; containers are run-optimised.

    Args:
        positions: n positions in any order, repeats allowed.

    Raises:
        ValueError: a position is negative or above the format's limit, or the blob is above 256 MiB.
    """
    if isinstance(positions, DeletionVector):
        array = positions.positions()
    elif isinstance(positions, BitMap64):
        array = DeletionVector(positions).positions()
    else:
        array = _as_positions(positions)
        if len(array) > 1 and not bool((array[1:] > array[:-1]).all()):
            array = np.unique(array)
    keys = (array >> np.uint64(32)).astype(np.int64)
    count = int(keys[-1]) + 1 if len(keys) else 0
    if count > MAX_BITMAPS:
        raise ValueError(
            f"Cannot encode position {array[-1]}: it needs {count} bitmaps, the limit is {MAX_BITMAPS}."
        )
    starts = np.searchsorted(keys, np.arange(count + 1))
    low = (array & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    parts = [struct.pack("<q", count)]
    for key in range(count):
        # Built anew from single values, because the containers of a set depend on how it came about
        # (a union may keep runs where Java's writer has an array), and the bytes must not.
        bitmap = BitMap(packed("I", low[starts[key] : starts[key + 1]].tobytes()))
        bitmap.run_optimize()
        parts += [struct.pack("<I", key), bitmap.serialize()]
    return framed(b"".join(parts))


def decode(
    blob: bytes | memoryview, path: str, *, cardinality: int | None = None, max_position: int | None = None
) -> DeletionVector:
    """The deletion vector of a blob, fully checked.

    Args:
        blob: exactly the `content_size_in_bytes` bytes at `content_offset`.
        path: the file it comes from, for the message.
        cardinality: number of positions that the manifest (or footer) records; None if unknown.
        max_position: the last position of the data file (`record_count - 1`); None if unknown.

    Raises:
        CorruptFile: a length, the magic, the CRC-32, the bitmaps, their order, the cardinality or a
            position is wrong. The offset counts from the start of the blob.

    Spec: Iceberg v3 "Deletion Vectors".
    """
    vector = unframe(bytes(blob), path)
    bitmap = decode_bitmap64(vector, path, offset=8)
    _check_content(path, len(bitmap), bitmap.max() if len(bitmap) else -1, cardinality, max_position)
    return DeletionVector(bitmap)


def _check_content(
    path: str, found: int, last: int, cardinality: int | None, max_position: int | None
) -> None:
    if cardinality is not None and found != cardinality:
        raise CorruptFile(path, 0, f"the deletion vector has {found} positions, metadata says {cardinality}")
    if max_position is not None and last > max_position:
        raise CorruptFile(path, 0, f"the deletion vector has position {last}, the last row is {max_position}")


def _as_positions(positions: Iterable[int] | Positions) -> Positions:
    array = positions if isinstance(positions, np.ndarray) else np.array(list(positions), dtype=object)
    if len(array) and not (int(array.min()) >= 0 and int(array.max()) >> 32 <= MAX_KEY):
        raise ValueError(
            f"Cannot hold positions from {array.min()} to {array.max()}: not within 0 and the limit."
        )
    return array.astype(np.uint64)
