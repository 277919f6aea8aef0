"""Where `vectorized.py` leaves values: slots and sinks, and the steps that read one value at every cursor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from iceberg_cli.iceberg.avro.projection import Ints, Node
from iceberg_cli.iceberg.avro.varints import Cursors, fail

# (positions, block ends, slots that the values belong to): moves the positions on in place
Step = Callable[[Ints, Ints, Ints], None]
Put = Callable[[Ints, Any], None]  # (slots, values)


class Scope:
    """Slots: the rows, or the items of one list in the order in which they are met."""

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self.parents: list[Ints] = []
        self.ordinals: list[Ints] = []

    def add(self, parents: Ints, ordinals: Ints) -> Ints:
        """New slots, one for each parent; `ordinals` are the positions in the parents' lists."""
        slots = np.arange(self.size, self.size + len(parents))
        self.size += len(parents)
        self.parents.append(parents.astype(np.int32))
        self.ordinals.append(ordinals.astype(np.int32))
        return slots


class SlotSink:
    """Values by slot."""

    def __init__(self, scope: Scope, dtype: Any) -> None:
        self.scope = scope
        self.values: npt.NDArray[Any] = np.zeros(scope.size, dtype)

    def put(self, slots: Ints, values: Any) -> None:
        """Set the values of slots; slots that are never set hold zero."""
        if len(self.values) < self.scope.size:
            grown = np.zeros(2 * self.scope.size, self.values.dtype)
            grown[: len(self.values)] = self.values
            self.values = grown
        self.values[slots] = values

    def ordered(self, order: Ints | None) -> npt.NDArray[Any]:
        """All values; `order` says where each slot goes."""
        size = self.scope.size
        values = self.values[:size]
        if len(values) < size:
            values = np.append(values, np.zeros(size - len(values), values.dtype))
        if order is None:
            return values.copy()
        out = np.empty_like(values)
        out[order] = values
        return out


def item_order(inner: Scope, order: Ints | None, lengths: Ints) -> Ints:
    """Where each item goes: after the items of all lists before its own."""
    if not inner.parents:
        return np.zeros(0, np.int64)
    parents, ordinals = np.concatenate(inner.parents), np.concatenate(inner.ordinals)
    inner.parents, inner.ordinals = [], []
    if order is not None:
        parents = order[parents]
    return (np.cumsum(lengths) - lengths)[parents] + ordinals


def ignore(_p: Ints, _e: Ints, _s: Ints) -> None:
    """A value without bytes."""


def jump(size: int) -> Step:
    """Values of one size in bytes that nobody wants."""

    def run(p: Ints, _e: Ints, _s: Ints) -> None:
        p += size

    return run


def kept_value(node: Node, cursors: Cursors, sink: Callable[[str, Any], Put]) -> Step:
    """Values that are kept; `sink` makes a named array of a dtype and gives its put."""
    match node.kind:
        case "string" | "bytes":
            return _bytes(cursors, sink("values", np.int64), sink("lengths", np.int64))
        case "int" | "long" | "enum":
            return _number(node, cursors, sink("values", np.int64))
        case "boolean":
            return _boolean(cursors, sink("values", np.bool_))
        case "float":
            return _float(cursors, cursors.floats, 4, sink("values", np.float32))
        case "double":
            return _float(cursors, cursors.doubles, 8, sink("values", np.float64))
        case "fixed":
            return _fixed(node.type.size_bytes, sink("values", np.int64))
        case _:
            return ignore


def _bytes(cursors: Cursors, starts: Put, lengths: Put) -> Step:
    def run(p: Ints, e: Ints, s: Ints) -> None:
        length = cursors.length(p, e)
        starts(s, p)
        lengths(s, length)
        p += length

    return run


def _number(node: Node, cursors: Cursors, put: Put) -> Step:
    low, high = (0, len(node.type.symbols)) if node.kind == "enum" else (-(1 << 31), 1 << 31)
    bounded = node.kind != "long"

    def run(p: Ints, e: Ints, s: Ints) -> None:
        value = cursors.read(p, e)
        if bounded:
            fail((value < low) | (value >= high), e, f"a number is no {node.kind}")
        put(s, value)

    return run


def _boolean(cursors: Cursors, put: Put) -> Step:
    def run(p: Ints, e: Ints, s: Ints) -> None:
        value = cursors.byte(p, e)
        fail(value > 1, e, "a byte is no boolean")
        put(s, value)
        p += 1

    return run


def _float(cursors: Cursors, view: Any, size: int, put: Put) -> Step:
    def run(p: Ints, e: Ints, s: Ints) -> None:
        put(s, cursors.gather(view, p, e))
        p += size

    return run


def _fixed(size: int, put: Put) -> Step:
    def run(p: Ints, e: Ints, s: Ints) -> None:
        fail(e - p < size, e, "a fixed value reaches beyond its block")
        put(s, p)
        p += size

    return run
