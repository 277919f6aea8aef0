"""Columnar decoder: the same field of the next record of every block, at the same time, with numpy.

One cursor per block. Blocks that end drop out, and a branch of a union is taken by those cursors that it concerns. It
runs the same plan as `avro_narrow` and gives the same values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from iceberg_cli.iceberg.avro_lanes import Lanes, fail
from iceberg_cli.iceberg.avro_plan import (
    Ints,
    Malformed,
    Node,
    Plan,
    Raw,
    leading_bytes,
    least_item_bytes,
    varints_in,
    varints_then_bytes,
)

# (positions, block ends, slots that the values belong to): moves the positions on in place
Step = Callable[[Ints, Ints, Ints], None]
Items = Callable[[Ints, Ints, Ints], None]  # (positions, block ends, number of items of each lane)

_FEW_NUMBERS = 4


class _Scope:
    """Slots: the rows, or the items of one list in the order in which they are met."""

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self.parents: list[Ints] = []
        self.ordinals: list[Ints] = []

    def add(self, parents: Ints, ordinals: Ints) -> Ints:
        """New slots, one for each parent; `ordinals` are the positions in the parents' lists."""
        slots = np.arange(self.size, self.size + len(parents))
        self.size += len(parents)
        self.parents.append(parents.copy())
        self.ordinals.append(ordinals.copy())
        return slots


class _Sink:
    """Values by slot."""

    def __init__(self, scope: _Scope, dtype: Any) -> None:
        self.scope = scope
        self.values: npt.NDArray[Any] = np.zeros(scope.size, dtype)

    def put(self, slots: Ints, values: Any) -> None:
        if len(self.values) < self.scope.size:
            grown = np.zeros(2 * self.scope.size, self.values.dtype)
            grown[: len(self.values)] = self.values
            self.values = grown
        self.values[slots] = values

    def ordered(self, order: Ints | None) -> npt.NDArray[Any]:
        """All values; `order` says where each slot goes."""
        size = self.scope.size
        values = np.zeros(size, self.values.dtype)
        present = self.values[:size]
        values[: len(present)] = present
        if order is None:
            return values
        out = np.empty_like(values)
        out[order] = values
        return out


def decode_lockstep(plan: Plan, buffer: bytes, starts: Ints, ends: Ints, counts: Ints) -> list[Raw]:
    """Decode all blocks side by side.

    Args:
        plan: what to keep.
        buffer: inflated blocks one after the other, and padding.
        starts: of the blocks, in bytes.
        ends: of the blocks, in bytes.
        counts: records of the blocks, at least one each.

    Raises:
        Malformed: the bytes are no records of the schema.
    """
    rows = _Scope(int(counts.sum()))
    compiler = _Compiler(buffer, plan.outs)
    step = compiler.step(plan.root, rows)
    # Longest first, so that the blocks still being walked are always a prefix.
    order = np.argsort(-counts, kind="stable")
    p, e = starts[order].copy(), ends[order].copy()
    slots = (np.cumsum(counts) - counts)[order]
    counts = counts[order]
    lanes = len(counts)
    for record in range(int(counts[0]) if lanes else 0):
        step(p[:lanes], e[:lanes], slots[:lanes])
        fail(p[:lanes] > e[:lanes], e, "a record reaches beyond its block")
        left = int(np.searchsorted(-counts[:lanes], -(record + 1), side="left"))
        if left < lanes:
            fail(p[left:lanes] != e[left:lanes], e[left:lanes], "bytes after the last record of a block")
            lanes = left
        slots += 1
    raws = [Raw() for _ in range(plan.outs)]
    compiler.collect(plan.root, rows, None, raws)
    return raws


def _ignore(_p: Ints, _e: Ints, _s: Ints) -> None:
    """A value without bytes."""


def _jump(size: int) -> Step:
    def run(p: Ints, _e: Ints, _s: Ints) -> None:
        p += size

    return run


class _Compiler:
    """Turns nodes into closures over one buffer."""

    def __init__(self, buffer: bytes, outs: int) -> None:
        self.lanes = Lanes(buffer)
        self.sinks: list[dict[str, _Sink]] = [{} for _ in range(outs)]
        self.scopes: dict[int, _Scope] = {}

    def _sink(
        self, node: Node, scope: _Scope, name: str, dtype: Any = np.int64
    ) -> Callable[[Ints, Any], None]:
        assert node.out is not None
        sink = self.sinks[node.out][name] = _Sink(scope, dtype)
        return sink.put

    def step(self, node: Node, scope: _Scope) -> Step:
        """The closure that decodes or steps over one value of `node` in every lane."""
        match node.kind:
            case "record":
                return self._record(node, scope)
            case "union":
                return self._union(node, scope)
            case _ if not node.keeps:
                return self._skip(node)
            case "array" | "map":
                return self._list(node, scope)
            case "string" | "bytes":
                return self._bytes(node, scope)
            case "int" | "long" | "enum":
                return self._number(node, scope)
            case "boolean":
                return self._boolean(node, scope)
            case "float" | "double":
                return self._float(node, scope)
            case "fixed":
                return self._fixed(node, scope)
            case _:
                return _ignore

    def _skip(self, node: Node) -> Step:
        lanes = self.lanes
        size = leading_bytes(node.type)
        if size == 0:
            return _ignore
        if size is not None:
            return _jump(size)
        numbers = varints_in(node.type)
        if numbers is not None:
            return self._skip_numbers(numbers)
        if node.kind in {"string", "bytes"}:
            return lambda p, e, _s: lanes.skip_bytes(p, e)
        return self._skip_list(node)

    def _skip_numbers(self, count: int) -> Step:
        lanes = self.lanes
        if count == 1:
            return lambda p, e, _s: lanes.skip(p, e)
        if count <= _FEW_NUMBERS:
            return lambda p, e, _s: lanes.skip_few(p, e, count)
        return lambda p, e, _s: lanes.skip_many(p, e, np.full(len(p), count, np.int64))

    def _record(self, node: Node, scope: _Scope) -> Step:
        """One step per field; neighbouring numbers and sizes that nobody wants are stepped over together."""
        steps: list[Step] = []
        numbers = 0
        for child in node.children:
            count = None if child.keeps else varints_in(child.type)
            if count is not None:
                numbers += count
                continue
            if numbers:
                steps.append(self._skip_numbers(numbers))
                numbers = 0
            steps.append(self.step(child, scope))
        if numbers:
            steps.append(self._skip_numbers(numbers))
        steps = [step for step in steps if step is not _ignore]
        if len(steps) == 1:
            return steps[0]

        def run(p: Ints, e: Ints, s: Ints) -> None:
            for step in steps:
                step(p, e, s)

        return run if steps else _ignore

    def _union(self, node: Node, scope: _Scope) -> Step:
        lanes = self.lanes
        steps = [self.step(child, scope) for child in node.children]
        branches = len(steps)
        null = node.null_index
        valid = None if node.out is None or null is None else self._sink(node, scope, "valid", np.bool_)
        keeps = node.keeps

        def index_of(p: Ints, e: Ints) -> npt.NDArray[Any]:
            code = lanes.byte(p, e)
            if not np.count_nonzero(code & 0xFD):  # 0 or 1, zigzag
                p += 1
                code >>= 1
                index: npt.NDArray[Any] = code
            else:
                index = lanes.read(p, e)
            fail((index < 0) | (index >= branches), e, f"union index out of {branches}")
            return index

        def optional(p: Ints, e: Ints, s: Ints) -> None:
            code = lanes.byte(p, e)
            if np.count_nonzero(code & 0xFD):
                code = index_of(p, e)
            else:
                p += 1
                code >>= 1
            present = code != null
            if valid is not None:
                valid(s, present)
            some = np.count_nonzero(present)
            if some == len(p):
                value(p, e, s)
            elif some:
                rows = np.flatnonzero(present)
                at = p[rows]
                value(at, e[rows], s[rows] if keeps else s)
                p[rows] = at

        def general(p: Ints, e: Ints, s: Ints) -> None:
            index = index_of(p, e)
            for branch, step in enumerate(steps):
                rows = np.flatnonzero(index == branch)
                if len(rows):
                    at = p[rows]
                    step(at, e[rows], s[rows] if keeps else s)
                    p[rows] = at

        if null is None:
            return general
        value = steps[1 - null]
        return optional

    def _header(self, p: Ints, e: Ints, least: int) -> tuple[Ints, Ints | None]:
        """Items of the next block of every lane's array, and where it must end (-1: it does not say)."""
        count: Any = self.lanes.byte(p, e)
        stops: Ints | None = None
        if not np.count_nonzero(count & 0x81):
            p += 1
            count = (count >> 1).astype(np.int64)
        else:
            count = self.lanes.read(p, e)
            negative = np.flatnonzero(count < 0)
            if len(negative):
                at, ends = p[negative], e[negative]
                size = self.lanes.length(at, ends)
                p[negative] = at
                stops = np.full(len(p), -1)
                stops[negative] = at + size
                count[negative] = -count[negative]
        if np.count_nonzero(count):
            # The smallest long has no positive: it stays negative.
            bad = (count < 0) | (count > (e - p) // least) if least else count != 0
            fail(bad, e, "an array of more items than its block has bytes for")
        return count, stops

    def _blocks(self, p: Ints, e: Ints, least: int, items: Callable[..., None]) -> None:
        """Walk the blocks of arrays until every lane has met its empty one.

        `items` gets positions, ends, counts, the ends that the blocks claim, and the lanes' indices (None: all).
        """
        origin, rows = p, None
        while True:
            count, stops = self._header(p, e, least)
            some = np.count_nonzero(count)
            if some < len(count):
                if rows is not None:
                    origin[rows] = p
                if not some:
                    return
                alive = np.flatnonzero(count)
                rows = alive if rows is None else rows[alive]
                p, e, count = p[alive], e[alive], count[alive]
                stops = None if stops is None else stops[alive]
            items(p, e, count, stops, rows)

    def _skip_list(self, node: Node) -> Step:
        least = least_item_bytes(node)
        walk = self._items(node)

        def items(p: Ints, e: Ints, count: Ints, stops: Ints | None, _rows: Ints | None) -> None:
            if stops is None:
                walk(p, e, count)
                return
            sized = stops >= 0
            p[sized] = stops[sized]
            rows = np.flatnonzero(~sized)
            if len(rows):
                at = p[rows]
                walk(at, e[rows], count[rows])
                p[rows] = at

        return lambda p, e, _s: self._blocks(p, e, least, items)

    def _items(self, node: Node) -> Items:
        """Steps over items of an array or map, as many as each lane has."""
        lanes = self.lanes
        item = node.children[0].type
        step: Callable[[Ints, Ints], None]
        if node.kind == "array" and (numbers := varints_in(item)) is not None:
            return lambda p, e, count: lanes.skip_many(p, e, count * numbers)
        if node.kind == "array" and varints_then_bytes(item) == 1:
            step = lanes.skip_pair
        else:
            unused = np.zeros(0, np.int64)
            steps = [self.step(child, _Scope()) for child in node.children]

            def step(p: Ints, e: Ints) -> None:
                for one in steps:
                    one(p, e, unused)

        return lambda p, e, count: _repeat(step, p, e, count)

    def _list(self, node: Node, scope: _Scope) -> Step:
        assert node.out is not None
        inner = self.scopes[node.out] = _Scope()
        put = self._sink(node, scope, "lengths")
        steps = [self.step(child, inner) for child in node.children]
        least = least_item_bytes(node)

        def run(p: Ints, e: Ints, s: Ints) -> None:
            done = np.zeros(len(p), np.int64)

            def items(p: Ints, e: Ints, count: Ints, stops: Ints | None, rows: Ints | None) -> None:
                rows = np.arange(len(p)) if rows is None else rows
                lane = np.arange(len(p))
                for index in range(int(count.max())):
                    if index >= count[lane].min():
                        lane = lane[count[lane] > index]
                    at, ends = (p, e) if len(lane) == len(p) else (p[lane], e[lane])
                    slots = inner.add(s[rows[lane]], done[rows[lane]] + index)
                    for step in steps:
                        step(at, ends, slots)
                    if at is not p:
                        p[lane] = at
                done[rows] += count
                fail(p > e, e, "an array reaches beyond its block")
                if stops is not None:
                    fail((stops >= 0) & (p != stops), e, "an array's block is not as long as it says")

            self._blocks(p, e, least, items)
            put(s, done)

        return run

    def _bytes(self, node: Node, scope: _Scope) -> Step:
        starts, lengths = self._sink(node, scope, "values"), self._sink(node, scope, "lengths")

        def run(p: Ints, e: Ints, s: Ints) -> None:
            length = self.lanes.length(p, e)
            starts(s, p)
            lengths(s, length)
            p += length

        return run

    def _number(self, node: Node, scope: _Scope) -> Step:
        put = self._sink(node, scope, "values")
        low, high = (0, len(node.type.symbols)) if node.kind == "enum" else (-(1 << 31), 1 << 31)
        bounded = node.kind != "long"

        def run(p: Ints, e: Ints, s: Ints) -> None:
            value = self.lanes.read(p, e)
            if bounded:
                fail((value < low) | (value >= high), e, f"a number is no {node.kind}")
            put(s, value)

        return run

    def _boolean(self, node: Node, scope: _Scope) -> Step:
        put = self._sink(node, scope, "values", np.bool_)

        def run(p: Ints, e: Ints, s: Ints) -> None:
            value = self.lanes.byte(p, e)
            fail(value > 1, e, "a byte is no boolean")
            put(s, value)
            p += 1

        return run

    def _float(self, node: Node, scope: _Scope) -> Step:
        single = node.kind == "float"
        put = self._sink(node, scope, "values", np.float32 if single else np.float64)
        view, size = (self.lanes.floats, 4) if single else (self.lanes.doubles, 8)

        def run(p: Ints, e: Ints, s: Ints) -> None:
            put(s, self.lanes.gather(view, p, e))
            p += size

        return run

    def _fixed(self, node: Node, scope: _Scope) -> Step:
        put = self._sink(node, scope, "values")
        size = node.type.size_bytes

        def run(p: Ints, e: Ints, s: Ints) -> None:
            fail(e - p < size, e, "a fixed value reaches beyond its block")
            put(s, p)
            p += size

        return run

    def collect(self, node: Node, scope: _Scope, order: Ints | None, raws: list[Raw]) -> None:
        """Bring the values of `node` and all below into the order of their slots' final places."""
        if node.out is not None:
            found = {name: sink.ordered(order) for name, sink in self.sinks[node.out].items()}
            raws[node.out] = Raw(scope.size, **found)
            if node.out in self.scopes:
                inner = self.scopes[node.out]
                scope, order = inner, _item_order(inner, order, found["lengths"])
        for child in node.children:
            if child.keeps:
                self.collect(child, scope, order, raws)


def _item_order(inner: _Scope, order: Ints | None, lengths: Ints) -> Ints:
    """Where each item goes: after the items of all lists before its own."""
    if not inner.parents:
        return np.zeros(0, np.int64)
    parents, ordinals = np.concatenate(inner.parents), np.concatenate(inner.ordinals)
    if order is not None:
        parents = order[parents]
    return (np.cumsum(lengths) - lengths)[parents] + ordinals


def _repeat(step: Callable[[Ints, Ints], None], p: Ints, e: Ints, count: Ints) -> None:
    """Run `step` as often as each lane says, at least once."""
    origin, rows = p, None
    while True:
        least = int(count.min())
        for _ in range(least):
            step(p, e)
        if rows is not None:
            origin[rows] = p
        alive = np.flatnonzero(count > least)
        if not len(alive):
            return
        rows = alive if rows is None else rows[alive]
        p, e, count = p[alive], e[alive], count[alive] - least
