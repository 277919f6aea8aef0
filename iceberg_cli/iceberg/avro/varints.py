"""Reading variable-length numbers at many positions at once: the arithmetic under `vectorized.py`.

A lane is one block that is being walked. Positions and block ends are int64 arrays with one value per lane; every
reader moves the positions on in place. A lane may leave its block: the caller notices at the end of the record. What
cannot be gathered any more raises `Malformed` here.

The cost is numpy calls, so a reader looks at 8 bytes (or 64, for runs of numbers) per lane and call. A window of
64 bytes is gathered as one opaque value, which costs no more than gathering one byte-aligned word.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iceberg_cli.iceberg.avro.projection import Ints, Malformed

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

WINDOW_BYTES = 64
_HIGH_BITS = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x0101010101010101)
_PAYLOAD = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE = np.uint64(1)
_SHORT_PAIR = np.uint16(0x8180)  # key and length of one byte each, length not negative


def _select_table() -> Bytes:
    """At [byte * 8 + n - 1]: index of the n-th set bit of the byte."""
    table = np.zeros((256, 8), np.uint8)
    for byte in range(256):
        bits = [bit for bit in range(8) if byte >> bit & 1]
        table[byte, : len(bits)] = bits
    return table.reshape(-1)


_SELECT = _select_table()


class Cursors:
    """Readers over one buffer."""

    def __init__(self, buffer: Bytes) -> None:
        self.bytes = buffer
        self.words = self._every("<u8", 8)
        self.pairs = self._every("<u2", 2)
        self.floats = self._every("<f4", 4)
        self.doubles = self._every("<f8", 8)
        self.windows = self.windows_of(WINDOW_BYTES)

    def windows_of(self, size: int) -> Any:
        """A view with `size` bytes as one opaque element per byte position."""
        return self._every(f"V{size}", size)

    def _every(self, dtype: str, size: int) -> Any:
        """A view with one element per byte position."""
        return np.ndarray((max(0, len(self.bytes) - size + 1),), dtype, buffer=self.bytes, strides=(1,))

    def gather(self, view: Any, p: Ints, e: Ints) -> Any:
        """The elements of a view at the positions."""
        try:
            return view[p]
        except IndexError:
            raise _past_end(p, e) from None

    def byte(self, p: Ints, e: Ints) -> Bytes:
        """The bytes at the positions, which do not move."""
        try:
            return self.bytes.take(p)
        except IndexError:
            raise _past_end(p, e) from None

    def read(self, p: Ints, e: Ints) -> Ints:
        """Read one zigzag number per cursor."""
        first = self.byte(p, e)
        if not np.count_nonzero(first & 0x80):
            p += 1
            small = first.astype(np.int64)
            return (small >> 1) ^ -(small & 1)
        word = self.gather(self.words, p, e)
        stops = ~word & _HIGH_BITS
        covered = stops - _ONE
        covered ^= stops  # up to and with the first stop; all ones where there is none
        payload = word & covered
        payload &= _PAYLOAD
        payload = (payload & 0x007F007F007F007F) | ((payload & 0x7F007F007F007F00) >> 1)
        payload = (payload & 0x00003FFF00003FFF) | ((payload & 0x3FFF00003FFF0000) >> 2)
        payload = (payload & 0x000000000FFFFFFF) | ((payload & 0x0FFFFFFF00000000) >> 4)
        length = np.bitwise_count(covered)
        length >>= 3
        p += length
        if np.count_nonzero(stops) != len(stops):
            self._read_long_ones(np.flatnonzero(stops == 0), payload, p, e)
        number: Ints = (payload >> 1).view(np.int64)
        number ^= -(payload & 1).view(np.int64)
        return number

    def _read_long_ones(self, rows: Ints, payload: Words, p: Ints, e: Ints) -> None:
        """Bytes 9 and 10 of the numbers that have them; their positions are already 8 further."""
        at, ends = p[rows], e[rows]
        ninth = self.byte(at, ends).astype(np.uint64)
        tenth = self.byte(at + 1, ends).astype(np.uint64)
        two = ninth > 0x7F
        fail(two & (tenth > 1), ends, "a number does not end, or is wider than 64 bits")
        payload[rows] |= ((ninth & 0x7F) << 56) | np.where(two, tenth << 63, 0)
        p[rows] += 1 + two

    def skip(self, p: Ints, e: Ints) -> None:
        """Skip one number per cursor."""
        first = self.byte(p, e)
        if not np.count_nonzero(first & 0x80):
            p += 1
            return
        stops = ~self.gather(self.words, p, e)
        stops &= _HIGH_BITS
        self._skip_to_first(stops, p, e)

    def skip_few(self, p: Ints, e: Ints, count: int) -> None:
        """Skip `count` numbers per cursor, which are likely to take no more than 8 bytes together."""
        stops = ~self.gather(self.words, p, e)
        stops &= _HIGH_BITS
        rest = stops
        for _ in range(count - 1):
            rest = rest & (rest - _ONE)
        if np.count_nonzero(rest) == len(rest):
            self._skip_to_first(rest, p, e)
        else:
            self._skip_to_first(stops, p, e)
            for _ in range(count - 1):
                self.skip(p, e)

    def _skip_to_first(self, stops: Words, p: Ints, e: Ints) -> None:
        covered = stops - _ONE
        covered ^= stops
        length = np.bitwise_count(covered)
        length >>= 3
        p += length
        if np.count_nonzero(stops) == len(stops):
            return
        rows = np.flatnonzero(stops == 0)
        at, ends = p[rows], e[rows]
        two = self.byte(at, ends) > 0x7F
        fail(
            two & (self.byte(at + 1, ends) > 0x7F), ends, "a number does not end, or takes more than 10 bytes"
        )
        p[rows] += 1 + two

    def skip_many(self, p: Ints, e: Ints, counts: Ints) -> None:
        """Skip `counts` numbers per cursor, at least one each."""
        origin, rows = p, None
        while True:
            window = self.gather(self.windows, p, e).view(np.uint8)
            stops = np.packbits(window < 0x80, bitorder="little").view("<u8")
            found = np.bitwise_count(stops)
            now = np.minimum(counts, found)
            fail(found == 0, e, "a number does not end, or takes more than 10 bytes")
            advance = _after_nth(stops, now.astype(np.uint64))
            self._refuse_overlong(stops, advance, e)
            p += advance.view(np.int64)
            if np.array_equal(now, counts):
                break
            if rows is not None:
                origin[rows] = p
            counts = counts - now
            alive = np.flatnonzero(counts)
            rows = alive if rows is None else rows[alive]
            p, e, counts = p[alive], e[alive], counts[alive]
        if rows is not None:
            origin[rows] = p

    @staticmethod
    def _refuse_overlong(stops: Words, advance: Words, e: Ints) -> None:
        """Ten bytes without a stop, inside the numbers that were stepped over."""
        runs = ~stops
        runs &= runs >> 1
        runs &= runs >> 2
        runs &= runs >> 4
        runs &= runs >> 2
        if np.count_nonzero(runs):
            inside = (np.uint64(2) << (advance - _ONE)) - _ONE
            fail((runs & inside) != 0, e, "a number does not end, or takes more than 10 bytes")

    def skip_bytes(self, p: Ints, e: Ints) -> None:
        """Skip one string or bytes value per cursor."""
        p += self.length(p, e)

    def length(self, p: Ints, e: Ints) -> Ints:
        """The length of a string or bytes value; the positions move to its first byte."""
        length = self.read(p, e)
        left = e - p
        bad = (length < 0) | (length > left)
        if np.count_nonzero(bad):
            at = int(np.argmax(bad))
            fail(bad, e, f"length {length[at]} with {left[at]} bytes left")
        return length

    def skip_pair(self, p: Ints, e: Ints) -> None:
        """Skip a number and a bytes value, both short for almost every cursor: column id and bound."""
        head = self.gather(self.pairs, p, e)
        bad = head & _SHORT_PAIR
        head >>= 9
        head += 2
        if np.count_nonzero(bad):
            rows = np.flatnonzero(bad)
            at, ends = p[rows], e[rows]
            self.skip(at, ends)
            self.skip_bytes(at, ends)
            p += head
            p[rows] = at
        else:
            p += head


def fail(bad: npt.NDArray[np.bool_], e: Ints, reason: str) -> None:
    """Raise for the first bad cursor, if there is one."""
    if np.count_nonzero(bad):
        raise Malformed(int(e[int(np.argmax(bad))]), reason)


def _past_end(p: Ints, e: Ints) -> Malformed:
    return Malformed(int(e[int(np.argmax(p - e))]), "a record reaches beyond its block")


def _after_nth(stops: Words, n: Words) -> Words:
    """One more than the index of the n-th set bit of each word; n is 1 to 64 and the bit exists."""
    counts = np.bitwise_count(stops.view(np.uint8)).view("<u8")
    prefix = counts * _LOW_BITS  # byte k: set bits in bytes 0 to k
    reached = ((prefix | _HIGH_BITS) - n * _LOW_BITS) & _HIGH_BITS
    byte: Any = np.uint64(8) - np.bitwise_count(reached)
    shift: Words = byte << 3
    before = ((prefix << 8) >> shift) & 0xFF
    bits = (stops >> shift) & 0xFF
    entry: Any = (bits << 3) + (n - before - _ONE)
    index = _SELECT.take(entry)
    shift += index
    shift += _ONE
    return shift
