"""A full check of Roaring bitmaps before pyroaring reads them: it takes mutated container headers for another set.

Spec: RoaringFormatSpec; Puffin "deletion-vector-v1 blob type" for the 64-bit layout.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, BitMap64

from iceberg_cli.errors import CorruptFile

Ints = npt.NDArray[np.int64]

MAX_KEY = 2**31 - 2  # Java keeps keys in an array, so a key is below Integer.MAX_VALUE
MAX_BITMAPS = 1 << 17  # 2**49 positions of one data file; a hostile count stops here
NO_RUNS_COOKIE = 12346
ARRAY_LIMIT = 4096  # the largest cardinality of an array container

_EMPTY_BITMAP = BitMap().serialize()
_RUNS_COOKIE = 12347
_OFFSETS_FROM = 4  # with runs, container offsets are written from this many containers on
_BITSET_BYTES = 8192
_CONTAINERS_AT_ONCE = 1024  # bounds the memory of one vectorised check


def decode_bitmap64(vector: bytes, path: str, *, offset: int = 0) -> BitMap64:
    """The 64-bit bitmap of bytes without framing; `offset` is where it starts, for the message.

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
        end, members = Roaring32(data, at + 4, path, offset).check()
        at, total = end, total + members
    if at != len(vector):
        raise CorruptFile(path, offset + at, f"{len(vector) - at} bytes after the last bitmap")
    bitmap = BitMap64.deserialize(vector)
    if len(bitmap) != total:
        raise CorruptFile(
            path, offset, f"container headers say {total} positions, their content {len(bitmap)}"
        )
    return bitmap


def _ragged(starts: Ints, lengths: Ints) -> Ints:
    """Indices of `lengths[i]` consecutive elements from `starts[i]`, for each i, one after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) + np.repeat(starts - ends + lengths, lengths)


class Roaring32:
    """One 32-bit Roaring bitmap in `data` from `start` on; `check` proves that its bytes are in order."""

    def __init__(self, data: npt.NDArray[np.uint8], start: int, path: str, offset: int) -> None:
        self.data, self.start, self.path, self.offset = data, start, path, offset

    def bad(self, at: int, reason: str) -> CorruptFile:
        """The error for the byte `at`."""
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
        """The offset after the bitmap, and its cardinality."""
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
        is_bitset = ~is_run & (members > ARRAY_LIMIT)
        for some in range(0, n, _CONTAINERS_AT_ONCE):
            part = slice(some, some + _CONTAINERS_AT_ONCE)
            self.check_arrays(starts[part], members[part], ~is_run[part] & ~is_bitset[part])
            self.check_bitsets(starts[part], members[part], is_bitset[part])
            self.check_runs(starts[part], members[part], sizes[part], is_run[part])
        return int(starts[-1] + sizes[-1]), int(members.sum())

    def cookie(self) -> tuple[npt.NDArray[np.bool_], int, int, bool]:
        """Which containers are runs, the offset of their headers, their number, and whether there are offsets."""
        at = self.room(self.start, 8) - 4
        word = int.from_bytes(self.data[self.start : at].tobytes(), "little")
        has_runs = word & 0xFFFF == _RUNS_COOKIE
        if has_runs:
            n = (word >> 16) + 1
            end = self.room(at, (n + 7) // 8)
            is_run = np.unpackbits(self.data[at:end], bitorder="little")[:n].astype(np.bool_)
        elif word == NO_RUNS_COOKIE:
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
        """Offset and size in bytes of each container, all inside the data."""
        sizes = np.where(members > ARRAY_LIMIT, _BITSET_BYTES, 2 * members)
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
        """Check that the values of array containers ascend."""
        starts, members = starts[chosen], members[chosen]
        values = self.u16(2 * _ragged(np.zeros_like(starts), members) + np.repeat(starts, members))
        owner = np.repeat(np.arange(len(starts)), members)
        if ((np.diff(values) <= 0) & (np.diff(owner) == 0)).any():
            raise self.bad(int(starts[0]), "values of an array container are not ascending")

    def check_bitsets(self, starts: Ints, members: Ints, chosen: npt.NDArray[np.bool_]) -> None:
        """Check that bitset containers have as many values as their headers state."""
        for start, expected in zip(starts[chosen].tolist(), members[chosen].tolist(), strict=True):
            found = int(np.bitwise_count(self.data[start : start + _BITSET_BYTES]).sum(dtype=np.int64))
            if found != expected:
                raise self.bad(start, f"a bitset container has {found} values, its header says {expected}")

    def check_runs(self, starts: Ints, members: Ints, sizes: Ints, chosen: npt.NDArray[np.bool_]) -> None:
        """Check that runs of a container are disjoint, inside it, and have as many values as its header states."""
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
