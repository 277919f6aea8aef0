"""Columnar decoder: the same field of the next record of every block, at the same time, with numpy.

One cursor per block. Blocks that end drop out, and a branch of a union is taken by those cursors that it concerns. It
runs the same plan as `avro_narrow` and gives the same values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from iceberg_cli.iceberg.avro_lanes import Bytes, Lanes, fail
from iceberg_cli.iceberg.avro_lockstep_lists import kept_list, skipped_list
from iceberg_cli.iceberg.avro_lockstep_values import (
    Put,
    Scope,
    Sink,
    Step,
    ignore,
    item_order,
    jump,
    kept_value,
)
from iceberg_cli.iceberg.avro_narrow import stepper
from iceberg_cli.iceberg.avro_plan import Ints, Node, Plan, Raw, leading_bytes, varints_in
from iceberg_cli.iceberg.avro_shapes import ByShape

_FEW_NUMBERS = 4


def decode_lockstep(plan: Plan, buffer: Bytes, starts: Ints, ends: Ints, counts: Ints) -> list[Raw]:
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
        self.lanes = Lanes(buffer)
        self.sinks: list[dict[str, Sink]] = [{} for _ in range(outs)]
        self.scopes: dict[int, Scope] = {}

    def _sink(self, node: Node, scope: Scope, name: str, dtype: Any) -> Put:
        assert node.out is not None
        sink = self.sinks[node.out][name] = Sink(scope, dtype)
        return sink.put

    def step(self, node: Node, scope: Scope) -> Step:
        """The closure that decodes or steps over one value of `node` in every lane."""
        if node.kind == "record":
            return self._record(node, scope)
        if node.kind == "union":
            return self._union(node, scope)
        if not node.keeps:
            return self._skip(node)
        if node.kind in {"array", "map"}:
            return self._list(node, scope)
        return kept_value(node, self.lanes, lambda name, dtype: self._sink(node, scope, name, dtype))

    def _list(self, node: Node, scope: Scope) -> Step:
        assert node.out is not None
        inner = self.scopes[node.out] = Scope()
        put = self._sink(node, scope, "lengths", np.int64)
        return kept_list(node, self.lanes, inner, put, [self.step(child, inner) for child in node.children])

    def _skip(self, node: Node) -> Step:
        lanes = self.lanes
        size = leading_bytes(node.type)
        if size is not None:
            return jump(size) if size else ignore
        numbers = varints_in(node.type)
        if numbers is not None:
            return self._skip_numbers(numbers)
        if node.kind in {"string", "bytes"}:
            return lambda p, e, _s: lanes.skip_bytes(p, e)
        return skipped_list(node, self.lanes, self.step)

    def _skip_numbers(self, count: int) -> Step:
        lanes = self.lanes
        if count == 1:
            return lambda p, e, _s: lanes.skip(p, e)
        if count <= _FEW_NUMBERS:
            return lambda p, e, _s: lanes.skip_few(p, e, count)
        return lambda p, e, _s: lanes.skip_many(p, e, np.full(len(p), count, np.int64))

    def _record(self, node: Node, scope: Scope) -> Step:
        """One step per wanted field, and one for all neighbouring fields that nobody wants."""
        steps: list[Step] = []
        unwanted: list[Node] = []
        for index, child in enumerate(node.children):
            if index in node.edges or child.keeps:
                steps.append(self._unwanted(unwanted, scope))
                unwanted = []
            if index in node.edges:
                steps.append(self._edge(node.edges[index], scope))
            if child.keeps:
                steps.append(self.step(child, scope))
            else:
                unwanted.append(child)
        steps.append(self._unwanted(unwanted, scope))
        if len(node.children) in node.edges:
            steps.append(self._edge(node.edges[len(node.children)], scope))
        return _in_turn(steps)

    def _unwanted(self, nodes: Sequence[Node], scope: Scope) -> Step:
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
        alone = stepper(self.lanes.bytes.data, nodes)
        return ByShape(self.lanes, nodes, slow or self.step(nodes[0], scope), alone)

    def _edge(self, out: int, scope: Scope) -> Step:
        sink = self.sinks[out]["values"] = Sink(scope, np.int64)
        return lambda p, _e, s: sink.put(s, p)

    def _union(self, node: Node, scope: Scope) -> Step:
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

    def collect(self, node: Node, scope: Scope, order: Ints | None, raws: list[Raw]) -> None:
        """Bring the values of `node` and all below into the order of their slots' final places."""
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
