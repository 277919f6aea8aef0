"""Deletion vectors: a 64-bit set of row positions and its framing, the same bytes in Iceberg and Delta.

Layout of a blob, offsets in bytes, n = length of the vector:

    0      4   length of magic and vector (n + 4), big-endian
    4      4   magic D1 D3 39 64
    8      n   vector: count of bitmaps as 8-byte little-endian, then for each bitmap its key as 4-byte
               little-endian (the high half of the positions) and a 32-bit Roaring bitmap in portable format
    8 + n  4   CRC-32 of magic and vector, big-endian

Roaring bytes are checked here in full before pyroaring sees them, because pyroaring takes mutated
container headers for another, valid set.

Spec: Puffin "deletion-vector-v1 blob type"; Iceberg v3 "Deletion Vectors"; RoaringFormatSpec.
"""

from __future__ import annotations

import struct
import zlib
from array import array as packed
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, BitMap64

from iceberg_cli.errors import CorruptFile

Positions = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

MAGIC = b"\xd1\xd3\x39\x64"
MAX_KEY = 2**31 - 2  # Java keeps keys in an array, so a key is below Integer.MAX_VALUE
MAX_BLOB_BYTES = 256 << 20
MAX_BITMAPS = 1 << 17  # 2**49 positions of one data file; a hostile count stops here
FRAME_BYTES = 12  # length, magic, CRC-32

_EMPTY_BITMAP = BitMap().serialize()
_NO_RUNS_COOKIE = 12346
_RUNS_COOKIE = 12347
_OFFSETS_FROM = 4  # with runs, container offsets are written from this many containers on
_ARRAY_LIMIT = 4096  # the largest cardinality of an array container
_BITSET_BYTES = 8192
_CONTAINERS_AT_ONCE = 1024  # bounds the memory of one vectorised check


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
    parts = [MAGIC, struct.pack("<q", count)]
    for key in range(count):
        # Built anew from single values, because the containers of a set depend on how it came about
        # (a union may keep runs where Java's writer has an array), and the bytes must not.
        bitmap = BitMap(packed("I", low[starts[key] : starts[key + 1]].tobytes()))
        bitmap.run_optimize()
        parts += [struct.pack("<I", key), bitmap.serialize()]
    body = b"".join(parts)
    if len(body) + 8 > MAX_BLOB_BYTES:
        raise ValueError(f"Cannot encode {len(array)} positions: the blob would have {len(body) + 8} bytes.")
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def decode(
    blob: bytes | memoryview, path: str, *, cardinality: int | None = None, max_position: int | None = None
) -> DeletionVector:
    """Read a blob and check everything that can be checked about it.

    Args:
        blob: exactly the `content_size_in_bytes` bytes at `content_offset`.
        path: the file it comes from, for the message.
        cardinality: number of positions the manifest (or footer) says it has; None if nothing says.
        max_position: the last position of the data file (`record_count - 1`); None if unknown.

    Raises:
        CorruptFile: a length, the magic, the CRC-32, the bitmaps, their order, the cardinality or a
            position is wrong. The offset counts from the start of the blob.

    Spec: Iceberg v3 "Deletion Vectors".
    """
    vector = _unframe(bytes(blob), path)
    bitmap = decode_bitmap64(vector, path, offset=8)
    _check_content(path, len(bitmap), bitmap.max() if len(bitmap) else -1, cardinality, max_position)
    return DeletionVector(bitmap)


def unproven(blobs: Sequence[bytes], cardinalities: Sequence[int], max_positions: Sequence[int]) -> list[int]:
    """Which of n blobs must still be decoded to know that they are sound; all others are, in all that `decode` checks.

    What most vectors are is proved for many at a time: one 32-bit bitmap of array containers.

    Args:
        blobs: n blobs.
        cardinalities: n numbers of positions that metadata says.
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
        or int(members.max()) > _ARRAY_LIMIT
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
        (magic, count, key, cookie) == (MAGIC, 1, 0, _NO_RUNS_COOKIE)
        and 0 < n <= 1 << 16
        and size == 32 + 8 * n + 2 * cardinality
        and zlib.crc32(memoryview(blob)[4:-4]) == int.from_bytes(blob[-4:], "big")
    )


def _check_content(
    path: str, found: int, last: int, cardinality: int | None, max_position: int | None
) -> None:
    if cardinality is not None and found != cardinality:
        raise CorruptFile(path, 0, f"the deletion vector has {found} positions, metadata says {cardinality}")
    if max_position is not None and last > max_position:
        raise CorruptFile(path, 0, f"the deletion vector has position {last}, the last row is {max_position}")


def decode_bitmap64(vector: bytes, path: str, *, offset: int = 0) -> BitMap64:
    """Read a 64-bit bitmap without framing; `offset` is where it starts, for the message.

    Raises:
        CorruptFile: counts, keys or containers are wrong, or bytes are left over.
    """
    if len(vector) < 8:
        raise CorruptFile(path, offset, f"the vector has {len(vector)} bytes, its count alone has 8")
    (count,) = struct.unpack_from("<q", vector)
    if not 0 <= count <= min(MAX_BITMAPS, (len(vector) - 8) // 12):
        raise CorruptFile(path, offset, f"the vector says it has {count} bitmaps in {len(vector)} bytes")
    data = np.frombuffer(vector, np.uint8)
    at, previous, total = 8, -1, 0
    for _ in range(count):
        if len(vector) - at < 12:
            raise CorruptFile(path, offset + at, "the vector ends inside a bitmap")
        (key,) = struct.unpack_from("<I", vector, at)
        if not previous < key <= MAX_KEY:
            raise CorruptFile(path, offset + at, f"bitmap key {key} after key {previous}")
        previous = key
        if vector.startswith(_EMPTY_BITMAP, at + 4):
            at += 4 + len(_EMPTY_BITMAP)
            continue
        end, members = _Roaring32(data, at + 4, path, offset).check()
        at, total = end, total + members
    if at != len(vector):
        raise CorruptFile(path, offset + at, f"{len(vector) - at} bytes after the last bitmap")
    bitmap = BitMap64.deserialize(vector)
    if len(bitmap) != total:
        raise CorruptFile(
            path, offset, f"container headers say {total} positions, their content {len(bitmap)}"
        )
    return bitmap


def _unframe(data: bytes, path: str) -> bytes:
    """The vector inside a blob whose length, magic and CRC-32 are right."""
    if not FRAME_BYTES + 8 <= len(data) <= MAX_BLOB_BYTES:
        raise CorruptFile(path, 0, f"a deletion vector cannot have {len(data)} bytes")
    (length,) = struct.unpack_from(">I", data)
    if length != len(data) - 8:
        raise CorruptFile(path, 0, f"the deletion vector says {length} bytes, {len(data) - 8} are there")
    if data[4:8] != MAGIC:
        raise CorruptFile(path, 4, f"magic {data[4:8].hex()} instead of {MAGIC.hex()}")
    (expected,) = struct.unpack_from(">I", data, len(data) - 4)
    if (found := zlib.crc32(memoryview(data)[4:-4])) != expected:
        raise CorruptFile(
            path, len(data) - 4, f"CRC-32 is {found:08x}, the deletion vector says {expected:08x}"
        )
    return data[8:-4]


def _as_positions(positions: Iterable[int] | Positions) -> Positions:
    array = positions if isinstance(positions, np.ndarray) else np.array(list(positions), dtype=object)
    if len(array) and not (int(array.min()) >= 0 and int(array.max()) >> 32 <= MAX_KEY):
        raise ValueError(
            f"Cannot hold positions from {array.min()} to {array.max()}: not within 0 and the limit."
        )
    return array.astype(np.uint64)


def _ragged(starts: Ints, lengths: Ints) -> Ints:
    """Indices of `lengths[i]` consecutive elements from `starts[i]`, for each i, one after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) + np.repeat(starts - ends + lengths, lengths)


class _Roaring32:
    """One 32-bit Roaring bitmap in `data` from `start` on; `check` proves that its bytes are in order."""

    def __init__(self, data: npt.NDArray[np.uint8], start: int, path: str, offset: int) -> None:
        self.data, self.start, self.path, self.offset = data, start, path, offset

    def bad(self, at: int, reason: str) -> CorruptFile:
        return CorruptFile(self.path, self.offset + at, reason)

    def u16(self, at: Ints) -> Ints:
        """The 2-byte little-endian numbers at byte offsets `at`, which are inside the data."""
        return self.data[at].astype(np.int64) | self.data[at + 1].astype(np.int64) << 8

    def room(self, at: int, size: int) -> int:
        """The offset after `size` bytes from `at`, or CorruptFile."""
        if at + size > len(self.data):
            raise self.bad(at, f"a bitmap of {size} more bytes ends after the vector")
        return at + size

    def check(self) -> tuple[int, int]:
        """The offset after the bitmap, and its number of members."""
        is_run, at, n, has_offsets = self.cookie()
        header = self.u16(at + 2 * np.arange(2 * n, dtype=np.int64))
        keys, members = header[::2], header[1::2] + 1
        if (np.diff(keys) <= 0).any():
            raise self.bad(at, "container keys are not ascending")
        at += 4 * n
        offsets = None
        if has_offsets:
            end = self.room(at, 4 * n)
            offsets = self.data[at:end].copy().view("<u4").astype(np.int64) + self.start
            at = end
        starts, sizes = self.places(is_run, members, at)
        if offsets is not None and (offsets != starts).any():
            raise self.bad(at, "container offsets do not follow from container sizes")
        is_bitset = ~is_run & (members > _ARRAY_LIMIT)
        for some in range(0, n, _CONTAINERS_AT_ONCE):
            part = slice(some, some + _CONTAINERS_AT_ONCE)
            self.check_arrays(starts[part], members[part], ~is_run[part] & ~is_bitset[part])
            self.check_bitsets(starts[part], members[part], is_bitset[part])
            self.check_runs(starts[part], members[part], sizes[part], is_run[part])
        return int(starts[-1] + sizes[-1]), int(members.sum())

    def cookie(self) -> tuple[npt.NDArray[np.bool_], int, int, bool]:
        """Which containers are runs, where their headers start, how many there are, and are there offsets."""
        at = self.room(self.start, 8) - 4
        word = int.from_bytes(self.data[self.start : at].tobytes(), "little")
        has_runs = word & 0xFFFF == _RUNS_COOKIE
        if has_runs:
            n = (word >> 16) + 1
            end = self.room(at, (n + 7) // 8)
            is_run = np.unpackbits(self.data[at:end], bitorder="little")[:n].astype(np.bool_)
        elif word == _NO_RUNS_COOKIE:
            end = at + 4
            n = int.from_bytes(self.data[at:end].tobytes(), "little")
            if not 0 < n <= 1 << 16:
                raise self.bad(at, f"a bitmap of {n} containers")
            is_run = np.zeros(n, np.bool_)
        else:
            raise self.bad(self.start, f"cookie {word:#x} is not one of a Roaring bitmap")
        self.room(end, 4 * n)
        return is_run, end, n, not has_runs or n >= _OFFSETS_FROM

    def places(self, is_run: npt.NDArray[np.bool_], members: Ints, at: int) -> tuple[Ints, Ints]:
        """Start and size in bytes of each container, all inside the data."""
        sizes = np.where(members > _ARRAY_LIMIT, _BITSET_BYTES, 2 * members)
        # The size of a run container stands in its first two bytes, so each start depends on the runs before.
        sizes[is_run] = 0
        others = at + np.cumsum(sizes) - sizes
        runs_bytes = 0
        for i in np.flatnonzero(is_run).tolist():
            start = int(others[i]) + runs_bytes
            self.room(start, 2)
            sizes[i] = 2 + 4 * (int(self.data[start]) | int(self.data[start + 1]) << 8)
            runs_bytes += int(sizes[i])
        ends = at + np.cumsum(sizes)
        self.room(at, int(ends[-1]) - at)
        return ends - sizes, sizes

    def check_arrays(self, starts: Ints, members: Ints, chosen: npt.NDArray[np.bool_]) -> None:
        starts, members = starts[chosen], members[chosen]
        values = self.u16(2 * _ragged(np.zeros_like(starts), members) + np.repeat(starts, members))
        owner = np.repeat(np.arange(len(starts)), members)
        if ((np.diff(values) <= 0) & (np.diff(owner) == 0)).any():
            raise self.bad(int(starts[0]), "values of an array container are not ascending")

    def check_bitsets(self, starts: Ints, members: Ints, chosen: npt.NDArray[np.bool_]) -> None:
        for start, expected in zip(starts[chosen].tolist(), members[chosen].tolist(), strict=True):
            found = int(np.bitwise_count(self.data[start : start + _BITSET_BYTES]).sum(dtype=np.int64))
            if found != expected:
                raise self.bad(start, f"a bitset container has {found} values, its header says {expected}")

    def check_runs(self, starts: Ints, members: Ints, sizes: Ints, chosen: npt.NDArray[np.bool_]) -> None:
        starts, members, runs = starts[chosen], members[chosen], (sizes[chosen] - 2) // 4
        if (runs == 0).any():
            raise self.bad(int(starts[0]), "a run container without runs")
        if not len(starts):
            return
        at = 4 * _ragged(np.zeros_like(starts), runs) + np.repeat(starts + 2, runs)
        first = self.u16(at)
        last = first + self.u16(at + 2)
        owner = np.repeat(np.arange(len(starts)), runs)
        if (last > 0xFFFF).any() or ((first[1:] <= last[:-1]) & (np.diff(owner) == 0)).any():
            raise self.bad(int(starts[0]), "runs of a container overlap or leave it")
        if (np.bincount(owner, last - first + 1).astype(np.int64) != members).any():
            raise self.bad(int(starts[0]), "a run container has another cardinality than its header says")
