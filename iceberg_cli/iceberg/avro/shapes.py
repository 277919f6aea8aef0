"""Stepping over values whose shape was met before, in one look instead of field by field.

The shape of an encoded value is what a walk over it goes by: union branches, lengths and counts, whole; of other
numbers, the bit of each byte that says whether another follows. Where bytes agree with a shape in all of that, a walk
ends where it ended for that shape, and makes the same checks on the way. Columns of one table have few shapes: metrics
of the same columns, bounds of fixed or truncated width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from iceberg_cli.iceberg.avro.projection import VARINTS, Ints, Node, leading_bytes, least_item_bytes
from iceberg_cli.iceberg.avro.varints import Bytes, Cursors
from iceberg_cli.iceberg.avro.vector_values import Step

MAX_SHAPE_BYTES = 8_192
MAX_NUMBER_BYTES = 10
_WORD_BYTES = 8
_LOOKED_AT_BYTES = 64 << 20  # at once: one wide value must not widen the look at all the others
_SHAPES = 4  # known at once
_FEW_CURSORS = 12  # are walked one by one sooner than side by side
_CREDIT = (
    4.0  # of a step: what is remembered in vain costs 1, a step that goes by what is known gives _REWARD back
)
_REWARD = 0.25


class _NoShapeError(Exception):
    """Bytes that end too early, are no value of the type, or take too many bytes to look at."""


class _Shape:
    """The bytes of one walk: their number, which bits of them it went by, and what these were."""

    def __init__(self, cursors: Cursors, walked: Bytes, mask: Bytes) -> None:
        self.size = len(mask)
        self.hits = 1
        whole = -(-self.size // _WORD_BYTES) * _WORD_BYTES
        self._mask = np.concatenate([mask, np.zeros(whole - self.size, np.uint8)]).view(np.uint64)
        padded = np.concatenate([walked, np.zeros(whole - self.size, np.uint8)]).view(np.uint64)
        self._value = padded & self._mask
        self._windows = cursors.windows_of(whole)

    def missed(self, p: Ints) -> Ints:
        """The cursors whose bytes do not agree; a cursor too near to the end of the buffer is one of them."""
        if len(p) * len(self._mask) * _WORD_BYTES > _LOOKED_AT_BYTES:
            return np.arange(len(p))
        try:
            found = self._windows[p]
        except IndexError:
            return np.arange(len(p))
        words: npt.NDArray[Any] = found.view(np.uint64).reshape(len(p), -1)
        words &= self._mask
        differs = words != self._value
        if not np.count_nonzero(differs):
            return np.empty(0, np.int64)
        return np.flatnonzero(differs.any(axis=1))


class ByShape:
    """A step that skips neighbouring fields that are not projected.

    Args:
        cursors: readers over the buffer.
        nodes: the values, in their order; their slots are of no concern.
        slow: the same step, for many cursors whose shape is not known.
        alone: the same step for one cursor: (position, block end) -> position after the values.
    """

    def __init__(
        self, cursors: Cursors, nodes: Sequence[Node], slow: Step, alone: Callable[[int, int], int]
    ) -> None:
        self._cursors = cursors
        self._nodes = nodes
        self._slow = slow
        self._alone = alone
        self._shapes: list[_Shape] = []
        self._credit = _CREDIT

    def __call__(self, p: Ints, e: Ints, s: Ints) -> None:
        """See `Step`."""
        if self._credit <= 0:
            self._slow(p, e, s)
            return
        rows = self._by_known_shapes(p)
        if rows is None:
            self._credit = min(self._credit + _REWARD, _CREDIT)
            return
        if len(rows) <= _FEW_CURSORS < len(p):
            for row in rows.tolist():
                p[row] = self._alone(int(p[row]), int(e[row]))
            return
        self._remember(int(p[rows[0]]), int(e[rows[0]]))
        if len(rows) == len(p):
            self._slow(p, e, s)
            return
        at = p[rows]
        self._slow(at, e[rows], s)
        p[rows] = at

    def _by_known_shapes(self, p: Ints) -> Ints | None:
        """Move the cursors whose shape is known; return the others, or None if there are none."""
        rows: Ints | None = None
        for shape in self._shapes:
            at = p if rows is None else p[rows]
            missed = shape.missed(at)
            if len(missed) == len(at):
                continue
            shape.hits += len(at) - len(missed)
            at += shape.size
            at[missed] -= shape.size
            if rows is not None:
                p[rows] = at
            if not len(missed):
                return None
            rows = missed if rows is None else rows[missed]
        return np.arange(len(p)) if rows is None else rows

    def _remember(self, position: int, end: int) -> None:
        """Remember the shape of the values there, instead of the shape that matched least often."""
        self._credit -= 1
        mask = np.zeros(max(0, min(end - position, MAX_SHAPE_BYTES)), np.uint8)
        data = self._cursors.bytes.data[position : position + len(mask)]
        at = 0
        try:
            for node in self._nodes:
                at = _walk(node, data, at, mask)
        except (_NoShapeError, IndexError):
            return
        if not at:
            return
        if len(self._shapes) == _SHAPES:
            self._shapes.remove(min(self._shapes, key=lambda shape: shape.hits))
            for shape in self._shapes:
                shape.hits >>= 1
        self._shapes.append(_Shape(self._cursors, np.frombuffer(data, np.uint8)[:at], mask[:at]))
        self._shapes.sort(key=lambda shape: -shape.hits)


def _walk(node: Node, data: memoryview, at: int, mask: Bytes) -> int:
    """The position after a value; `mask` gets the bits that lead there.

    Raises:
        _NoShapeError, IndexError: the value does not end within `data`.
    """
    size = leading_bytes(node.type)
    if size is not None:
        return _within(at + size, data)
    if node.kind in VARINTS:
        return _number(data, at, mask, 0x80)[1]
    match node.kind:
        case "string" | "bytes":
            length, at = _number(data, at, mask, 0xFF)
            return _within(at + length, data)
        case "record":
            for child in node.children:
                at = _walk(child, data, at, mask)
            return at
        case "union":
            index, at = _number(data, at, mask, 0xFF)
            if index >= len(node.children):
                raise _NoShapeError
            return _walk(node.children[index], data, at, mask)
        case _:
            return _items(node, data, at, mask)


def _items(node: Node, data: memoryview, at: int, mask: Bytes) -> int:
    """The position after an array or map."""
    least = least_item_bytes(node)
    while True:
        try:
            count, at = _number(data, at, mask, 0xFF)
        except _NegativeError as negative:
            size, at = _number(data, negative.after, mask, 0xFF)
            if negative.magnitude * least > size or not least:
                raise _NoShapeError from None
            stop = _within(at + size, data)
            at = _walk_items(node, data, at, mask, negative.magnitude)
            if at != stop:
                raise _NoShapeError from None
            continue
        if not count:
            return at
        if count > len(data) or not least:
            raise _NoShapeError
        at = _walk_items(node, data, at, mask, count)


def _walk_items(node: Node, data: memoryview, at: int, mask: Bytes, count: int) -> int:
    """The position after so many items of an array or map."""
    for _ in range(count):
        for child in node.children:
            at = _walk(child, data, at, mask)
    return at


class _NegativeError(_NoShapeError):
    """A number below zero, where only the count of an array's items may be."""

    def __init__(self, magnitude: int, after: int) -> None:
        super().__init__()
        self.magnitude = magnitude
        self.after = after


def _number(data: memoryview, at: int, mask: Bytes, bits: int) -> tuple[int, int]:
    """A zigzag number and the position after it; one whose value is of no concern (`bits` 0x80) is 0."""
    value = 0
    for index in range(at, at + MAX_NUMBER_BYTES):
        byte = data[index]
        mask[index] = bits
        value |= (byte & 0x7F) << 7 * (index - at)
        if byte < 0x80:
            if bits == 0xFF and value & 1:
                raise _NegativeError((value >> 1) + 1, index + 1)
            return (value >> 1 if bits == 0xFF else 0), index + 1
    raise _NoShapeError


def _within(at: int, data: memoryview) -> int:
    if at > len(data):
        raise _NoShapeError
    return at
