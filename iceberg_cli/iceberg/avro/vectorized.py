"""Columnar decoder: the same field of the next record of every block, at the same time, with numpy.

One cursor per block. Blocks that end drop out, and a branch of a union is taken by those cursors that it concerns. It
runs the same plan as `scalar.py` and gives the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from iceberg_cli.iceberg.avro.projection import (
    MAX_ITEMS,
    DecodePlan,
    Ints,
    Node,
    Raw,
    leading_bytes,
    least_item_bytes,
    varints_in,
    varints_then_bytes,
)
from iceberg_cli.iceberg.avro.scalar import stepper
from iceberg_cli.iceberg.avro.shapes import ByShape
from iceberg_cli.iceberg.avro.varints import Bytes, Cursors, fail
from iceberg_cli.iceberg.avro.vector_values import (
    Put,
    Scope,
    SlotSink,
    Step,
    ignore,
    item_order,
    jump,
    kept_value,
)

Items = Callable[[Ints, Ints, Ints], None]  # (positions, block ends, number of items of each lane)
# (positions, block ends, numbers of items, where the array's blocks say they end, indices of the lanes or None for all)
BlockItems = Callable[[Ints, Ints, Ints, Ints | None, Ints | None], None]


def skipped_list(node: Node, cursors: Cursors, compile_step: Callable[[Node, Scope], Step]) -> Step:
    """Arrays or maps that nobody wants."""
    least = least_item_bytes(node)
    walk = _skipped_items(node, cursors, compile_step)

    def items(p: Ints, e: Ints, count: Ints, stops: Ints | None, _rows: Ints | None) -> None:
        walk(p, e, count)
        if stops is not None:
            fail((stops >= 0) & (p != stops), e, "an array's block is not as long as it says")

    return lambda p, e, _s: _blocks(cursors, p, e, least, items)


def kept_list(node: Node, cursors: Cursors, inner: Scope, put: Put, steps: Sequence[Step]) -> Step:
    """Arrays or maps whose items get slots of `inner`; `put` takes the numbers of items."""
    least = least_item_bytes(node)
    starts = _item_starts(node, cursors)

    def run(p: Ints, e: Ints, s: Ints) -> None:
        done = np.zeros(len(p), np.int64)

        def decode(at: Ints, ends: Ints, parents: Ints, ordinals: Ints) -> None:
            slots = inner.add(s[parents], done[parents] + ordinals)
            for step in steps:
                step(at, ends, slots)

        def items(p: Ints, e: Ints, count: Ints, stops: Ints | None, rows: Ints | None) -> None:
            rows = np.arange(len(p)) if rows is None else rows
            if starts is not None:
                owner = np.repeat(np.arange(len(p)), count)
                ordinals = np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
                decode(starts(p, e, count), e[owner], rows[owner], ordinals)
            else:
                for index, row_cursors, at, ends in _one_by_one(p, e, count):
                    decode(at, ends, rows[row_cursors], np.full(len(row_cursors), index))
            done[rows] += count
            fail(p > e, e, "an array reaches beyond its block")
            if stops is not None:
                fail((stops >= 0) & (p != stops), e, "an array's block is not as long as it says")

        _blocks(cursors, p, e, least, items)
        put(s, done)

    return run


def _one_by_one(p: Ints, e: Ints, count: Ints) -> Iterator[tuple[int, Ints, Ints, Ints]]:
    """The n-th items of all cursors that have one: n, indices of the cursors, positions to be moved, block ends."""
    row_cursors = np.arange(len(p))
    for index in range(int(count.max())):
        if index >= count[row_cursors].min():
            row_cursors = row_cursors[count[row_cursors] > index]
        at, ends = (p, e) if len(row_cursors) == len(p) else (p[row_cursors], e[row_cursors])
        yield index, row_cursors, at, ends
        if at is not p:
            p[row_cursors] = at


def _item_starts(node: Node, cursors: Cursors) -> Callable[[Ints, Ints, Ints], Ints] | None:
    """The start of every item of every cursor, cursor by cursor, for items that are skipped at little cost.

    All of them are then decoded side by side, not one of each lane at a time.
    """
    if node.kind != "array":
        return None
    item = node.children[0].type
    if numbers := varints_in(item):
        return lambda p, e, count: _number_starts(cursors, p, e, count * numbers)[::numbers]
    if varints_then_bytes(item) == 1:
        return lambda p, e, count: _pair_starts(cursors, p, e, count)
    return None


def _number_starts(cursors: Cursors, p: Ints, e: Ints, counts: Ints) -> Ints:
    """The starts of `counts` numbers of each cursor; the positions move behind them."""
    begin = p.copy()
    cursors.skip_many(p, e, counts)
    sizes = p - begin
    places = np.arange(int(sizes.sum())) + np.repeat(begin - (np.cumsum(sizes) - sizes), sizes)
    last = np.flatnonzero(cursors.bytes[places] < 0x80)
    starts: Ints = places[np.append(0, last[:-1] + 1)]
    return starts


def _pair_starts(cursors: Cursors, p: Ints, e: Ints, counts: Ints) -> Ints:
    """The starts of `counts` pairs of a number and a bytes value of each cursor; the positions move behind them."""
    starts = np.empty(int(counts.sum()), np.int64)
    first = np.cumsum(counts) - counts
    for index, row_cursors, at, ends in _one_by_one(p, e, counts):
        starts[first[row_cursors] + index] = at
        cursors.skip_pair(at, ends)
    return starts


def _header(cursors: Cursors, p: Ints, e: Ints, least: int) -> tuple[Ints, Ints | None]:
    """The item count of the next block of every cursor's array, and its end (-1: not given)."""
    count: Any = cursors.byte(p, e)
    stops: Ints | None = None
    if not np.count_nonzero(count & 0x81):
        p += 1
        count = (count >> 1).astype(np.int64)
    else:
        count = cursors.read(p, e)
        negative = np.flatnonzero(count < 0)
        if len(negative):
            at, ends = p[negative], e[negative]
            size = cursors.length(at, ends)
            p[negative] = at
            stops = np.full(len(p), -1)
            stops[negative] = at + size
            count[negative] = -count[negative]
    if np.count_nonzero(count):
        # The smallest long has no positive: it stays negative.
        left = np.minimum((e - p) // least, MAX_ITEMS) if least else 0
        fail((count < 0) | (count > left), e, "an array of more items than its block has bytes for")
    return count, stops


def _blocks(cursors: Cursors, p: Ints, e: Ints, least: int, items: BlockItems) -> None:
    """Walk the blocks of arrays until every cursor has met its empty one."""
    origin, rows = p, None
    while True:
        count, stops = _header(cursors, p, e, least)
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


def _skipped_items(node: Node, cursors: Cursors, compile_step: Callable[[Node, Scope], Step]) -> Items:
    """Skip the items of an array or map, as many as each cursor has."""
    item = node.children[0].type
    if node.kind == "array" and (numbers := varints_in(item)) is not None:
        return lambda p, e, count: cursors.skip_many(p, e, count * numbers)
    if node.kind == "array" and varints_then_bytes(item) == 1:
        return lambda p, e, count: _repeat(cursors.skip_pair, p, e, count)
    steps = [compile_step(child, Scope()) for child in node.children]
    no_slots = np.zeros(0, np.int64)

    def one(p: Ints, e: Ints) -> None:
        for step in steps:
            step(p, e, no_slots)

    return lambda p, e, count: _repeat(one, p, e, count)


def _repeat(step: Callable[[Ints, Ints], None], p: Ints, e: Ints, count: Ints) -> None:
    """Run `step` for each cursor as often as its count, at least once."""
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


_FEW_NUMBERS = 4


def decode_lockstep(plan: DecodePlan, buffer: Bytes, starts: Ints, ends: Ints, counts: Ints) -> list[Raw]:
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
    rows = Scope(int(counts.sum()))
    compiler = _Compiler(buffer, plan.outs)
    step = compiler.step(plan.root, rows)
    # Longest first, so that the blocks still being walked are always a prefix.
    order = np.argsort(-counts, kind="stable")
    p, e = starts[order].copy(), ends[order].copy()
    slots = (np.cumsum(counts) - counts)[order]
    counts = counts[order]
    cursors = len(counts)
    for record in range(int(counts[0]) if cursors else 0):
        step(p[:cursors], e[:cursors], slots[:cursors])
        fail(p[:cursors] > e[:cursors], e, "a record reaches beyond its block")
        left = int(np.searchsorted(-counts[:cursors], -(record + 1), side="left"))
        if left < cursors:
            fail(
                p[left:cursors] != e[left:cursors], e[left:cursors], "bytes after the last record of a block"
            )
            cursors = left
        slots += 1
    raws = [Raw() for _ in range(plan.outs)]
    compiler.collect(plan.root, rows, None, raws)
    return raws


def _in_turn(steps: Sequence[Step]) -> Step:
    steps = [step for step in steps if step is not ignore]
    if len(steps) == 1:
        return steps[0]

    def run(p: Ints, e: Ints, s: Ints) -> None:
        for step in steps:
            step(p, e, s)

    return run if steps else ignore


class _Compiler:
    """Turns nodes into closures over one buffer."""

    def __init__(self, buffer: Bytes, outs: int) -> None:
        self.cursors = Cursors(buffer)
        self.sinks: list[dict[str, SlotSink]] = [{} for _ in range(outs)]
        self.scopes: dict[int, Scope] = {}

    def _sink(self, node: Node, scope: Scope, name: str, dtype: Any) -> Put:
        assert node.out is not None
        sink = self.sinks[node.out][name] = SlotSink(scope, dtype)
        return sink.put

    def step(self, node: Node, scope: Scope) -> Step:
        """The closure that decodes or skips one value of `node` at every cursor."""
        if node.kind == "record":
            return self._record(node, scope)
        if node.kind == "union":
            return self._union(node, scope)
        if not node.keeps:
            return self._skip(node)
        if node.kind in {"array", "map"}:
            return self._list(node, scope)
        return kept_value(node, self.cursors, lambda name, dtype: self._sink(node, scope, name, dtype))

    def _list(self, node: Node, scope: Scope) -> Step:
        assert node.out is not None
        inner = self.scopes[node.out] = Scope()
        put = self._sink(node, scope, "lengths", np.int64)
        return kept_list(node, self.cursors, inner, put, [self.step(child, inner) for child in node.children])

    def _skip(self, node: Node) -> Step:
        cursors = self.cursors
        size = leading_bytes(node.type)
        if size is not None:
            return jump(size) if size else ignore
        numbers = varints_in(node.type)
        if numbers is not None:
            return self._skip_numbers(numbers)
        if node.kind in {"string", "bytes"}:
            return lambda p, e, _s: cursors.skip_bytes(p, e)
        return skipped_list(node, self.cursors, self.step)

    def _skip_numbers(self, count: int) -> Step:
        cursors = self.cursors
        if count == 1:
            return lambda p, e, _s: cursors.skip(p, e)
        if count <= _FEW_NUMBERS:
            return lambda p, e, _s: cursors.skip_few(p, e, count)
        return lambda p, e, _s: cursors.skip_many(p, e, np.full(len(p), count, np.int64))

    def _record(self, node: Node, scope: Scope) -> Step:
        """One step for each projected field, and one for each run of fields that are not."""
        steps: list[Step] = []
        skipped: list[Node] = []
        for index, child in enumerate(node.children):
            if index in node.edges or child.keeps:
                steps.append(self._skipped(skipped, scope))
                skipped = []
            if index in node.edges:
                steps.append(self._edge(node.edges[index], scope))
            if child.keeps:
                steps.append(self.step(child, scope))
            else:
                skipped.append(child)
        steps.append(self._skipped(skipped, scope))
        if len(node.children) in node.edges:
            steps.append(self._edge(node.edges[len(node.children)], scope))
        return _in_turn(steps)

    def _skipped(self, nodes: Sequence[Node], scope: Scope) -> Step:
        """Over neighbouring fields: numbers together, all others by their shape, as one or each for itself."""
        steps: list[Step] = []
        numbers = others = 0
        for node in nodes:
            count = varints_in(node.type)
            if count is not None:
                numbers += count
                continue
            if numbers:
                steps.append(self._skip_numbers(numbers))
                numbers = 0
            size = leading_bytes(node.type)
            others += size is None
            steps.append(self.step(node, scope) if size is not None else self._by_shape([node], scope))
        if numbers:
            steps.append(self._skip_numbers(numbers))
        slow = _in_turn(steps)
        return slow if others < 2 else self._by_shape(nodes, scope, slow)

    def _by_shape(self, nodes: Sequence[Node], scope: Scope, slow: Step | None = None) -> Step:
        alone = stepper(self.cursors.bytes.data, nodes)
        return ByShape(self.cursors, nodes, slow or self.step(nodes[0], scope), alone)

    def _edge(self, out: int, scope: Scope) -> Step:
        sink = self.sinks[out]["values"] = SlotSink(scope, np.int64)
        return lambda p, _e, s: sink.put(s, p)

    def _union(self, node: Node, scope: Scope) -> Step:
        cursors = self.cursors
        steps = [self.step(child, scope) for child in node.children]
        branches = len(steps)
        null = node.null_index
        valid = None if node.out is None or null is None else self._sink(node, scope, "valid", np.bool_)
        keeps = node.keeps

        def index_of(p: Ints, e: Ints) -> npt.NDArray[Any]:
            code = cursors.byte(p, e)
            if not np.count_nonzero(code & 0xFD):  # 0 or 1, zigzag
                p += 1
                code >>= 1
                index: npt.NDArray[Any] = code
            else:
                index = cursors.read(p, e)
            fail((index < 0) | (index >= branches), e, f"union index out of {branches}")
            return index

        def optional(p: Ints, e: Ints, s: Ints) -> None:
            code = cursors.byte(p, e)
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

    def collect(self, node: Node, scope: Scope, order: Ints | None, raws: list[Raw]) -> None:
        """Put the values of `node` and all below it in the order of their rows."""
        if node.out is not None:
            sinks, self.sinks[node.out] = self.sinks[node.out], {}
            found = {name: sink.ordered(order) for name, sink in sinks.items()}
            sinks.clear()
            raws[node.out] = Raw(scope.size, **found)
            if node.out in self.scopes:
                inner = self.scopes[node.out]
                scope, order = inner, item_order(inner, order, found["lengths"])
        for out in node.edges.values():
            raws[out] = Raw(scope.size, self.sinks[out].pop("values").ordered(order))
        for child in node.children:
            if child.keeps:
                self.collect(child, scope, order, raws)
