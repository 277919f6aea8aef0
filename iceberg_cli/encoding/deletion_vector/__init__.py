"""Deletion vectors: a 64-bit set of row positions and its framing, the same bytes in Iceberg and Delta.

Layout of a blob, offsets in bytes, n = length of the vector:

    0      4   length of magic and vector (n + 4), big-endian
    4      4   magic D1 D3 39 64
    8      n   vector: count of bitmaps as 8-byte little-endian, then for each bitmap its key as 4-byte
               little-endian (the high half of the positions) and a 32-bit Roaring bitmap in portable format
    8 + n  4   CRC-32 of magic and vector, big-endian

`framing` has the frame, `roaring` checks the bitmaps.

Spec: Puffin "deletion-vector-v1 blob type"; Iceberg v3 "Deletion Vectors"; RoaringFormatSpec.
"""

from __future__ import annotations

import struct
from array import array as packed
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from isal import isal_zlib
from pyroaring import BitMap, BitMap64

from iceberg_cli.encoding.deletion_vector.framing import MAGIC, MAX_BLOB_BYTES, framed, unframe
from iceberg_cli.encoding.deletion_vector.roaring import (
    ARRAY_LIMIT,
    MAX_BITMAPS,
    MAX_KEY,
    NO_RUNS_COOKIE,
    decode_bitmap64,
)
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


def unproven(blobs: Sequence[bytes], cardinalities: Sequence[int], max_positions: Sequence[int]) -> list[int]:
    """Indices of those of n blobs that must still be decoded; all others are sound, in all that `decode` checks.

    Only what most vectors are is checked here: one 32-bit bitmap of array containers.

    Args:
        blobs: n blobs.
        cardinalities: n cardinalities that metadata records.
        max_positions: n last positions of data files; -1 where it is not known.
    """
    chosen = [i for i, blob in enumerate(blobs) if _is_plain(blob, cardinalities[i])]
    if not chosen:
        return list(range(len(blobs)))
    containers = np.array([int.from_bytes(blobs[i][24:28], "little") for i in chosen])
    totals = np.array([cardinalities[i] for i in chosen])
    heads = b"".join([blobs[i][28 : 28 + 4 * n] for i, n in zip(chosen, containers.tolist(), strict=True)])
    starts = b"".join(
        [blobs[i][28 + 4 * n : 28 + 8 * n] for i, n in zip(chosen, containers.tolist(), strict=True)]
    )
    values = np.frombuffer(b"".join([blobs[i][-4 - 2 * cardinalities[i] : -4] for i in chosen]), "<u2")
    keys, members = np.frombuffer(heads, "<u2").reshape(-1, 2).T.astype(np.int64)
    members = members + 1
    firsts = np.cumsum(containers) - containers  # of each blob, among all containers
    ends = np.cumsum(members)
    before = np.repeat(ends[firsts] - members[firsts], containers)
    expected = np.repeat(8 + 8 * containers, containers) + 2 * (ends - members - before)
    rising_keys, rising = keys[1:] > keys[:-1], values[1:] > values[:-1]
    rising_keys[firsts[1:] - 1] = True  # the first of a blob follows the last of the blob before
    last = (
        keys[firsts + containers - 1] << 16 | values[np.cumsum(totals) - 1]
        if ends[-1] == len(values)
        else None
    )
    limits = np.array([max_positions[i] for i in chosen])
    if (
        last is None
        or (np.add.reduceat(members, firsts) != totals).any()
        or int(members.max()) > ARRAY_LIMIT
        or not rising_keys.all()
        or (np.frombuffer(starts, "<u4") != expected).any()
        or ((last > limits) & (limits >= 0)).any()
    ):
        return list(range(len(blobs)))
    rising[ends[:-1] - 1] = True
    proven = set(chosen) if rising.all() else set()
    return [i for i in range(len(blobs)) if i not in proven]


def _is_plain(blob: bytes, cardinality: int) -> bool:
    """Whether the frame of a blob is right and its length is that of one bitmap of array containers only."""
    size = len(blob)
    if not 34 <= size <= MAX_BLOB_BYTES or blob[:4] != (size - 8).to_bytes(4, "big"):
        return False
    magic, count, key, cookie, n = struct.unpack_from("<4sqIII", blob, 4)
    return bool(
        (magic, count, key, cookie) == (MAGIC, 1, 0, NO_RUNS_COOKIE)
        and 0 < n <= 1 << 16
        and size == 32 + 8 * n + 2 * cardinality
        and isal_zlib.crc32(memoryview(blob)[4:-4]) == int.from_bytes(blob[-4:], "big")
    )
