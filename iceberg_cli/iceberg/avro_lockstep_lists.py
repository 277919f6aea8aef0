"""Arrays and maps in `avro_lockstep`: their blocks, items that are stepped over, items that are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from iceberg_cli.iceberg.avro_lanes import Lanes, fail
from iceberg_cli.iceberg.avro_lockstep_values import Put, Scope, Step
from iceberg_cli.iceberg.avro_plan import (
    MAX_ITEMS,
    Ints,
    Node,
    least_item_bytes,
    varints_in,
    varints_then_bytes,
)

Items = Callable[[Ints, Ints, Ints], None]  # (positions, block ends, number of items of each lane)
# (positions, block ends, numbers of items, where the array's blocks say they end, indices of the lanes or None for all)
BlockItems = Callable[[Ints, Ints, Ints, Ints | None, Ints | None], None]


def skipped_list(node: Node, lanes: Lanes, compile_step: Callable[[Node, Scope], Step]) -> Step:
    """Arrays or maps that nobody wants."""
    least = least_item_bytes(node)
    walk = _skipped_items(node, lanes, compile_step)

    def items(p: Ints, e: Ints, count: Ints, stops: Ints | None, _rows: Ints | None) -> None:
        walk(p, e, count)
        if stops is not None:
            fail((stops >= 0) & (p != stops), e, "an array's block is not as long as it says")

    return lambda p, e, _s: _blocks(lanes, p, e, least, items)


def kept_list(node: Node, lanes: Lanes, inner: Scope, put: Put, steps: Sequence[Step]) -> Step:
    """Arrays or maps whose items get slots of `inner`; `put` takes the numbers of items."""
    least = least_item_bytes(node)
    starts = _item_starts(node, lanes)

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
                for index, lane, at, ends in _one_by_one(p, e, count):
                    decode(at, ends, rows[lane], np.full(len(lane), index))
            done[rows] += count
            fail(p > e, e, "an array reaches beyond its block")
            if stops is not None:
                fail((stops >= 0) & (p != stops), e, "an array's block is not as long as it says")

        _blocks(lanes, p, e, least, items)
        put(s, done)

    return run


def _one_by_one(p: Ints, e: Ints, count: Ints) -> Iterator[tuple[int, Ints, Ints, Ints]]:
    """The n-th items of all lanes that have one: n, indices of the lanes, positions to be moved on, block ends."""
    lane = np.arange(len(p))
    for index in range(int(count.max())):
        if index >= count[lane].min():
            lane = lane[count[lane] > index]
        at, ends = (p, e) if len(lane) == len(p) else (p[lane], e[lane])
        yield index, lane, at, ends
        if at is not p:
            p[lane] = at


def _item_starts(node: Node, lanes: Lanes) -> Callable[[Ints, Ints, Ints], Ints] | None:
    """Where every item of every lane begins, lane by lane, for items that are stepped over at little cost.

    All of them are then decoded side by side, not one of each lane at a time.
    """
    if node.kind != "array":
        return None
    item = node.children[0].type
    if numbers := varints_in(item):
        return lambda p, e, count: _number_starts(lanes, p, e, count * numbers)[::numbers]
    if varints_then_bytes(item) == 1:
        return lambda p, e, count: _pair_starts(lanes, p, e, count)
    return None


def _number_starts(lanes: Lanes, p: Ints, e: Ints, counts: Ints) -> Ints:
    """Where `counts` numbers of each lane begin; the positions move behind them."""
    begin = p.copy()
    lanes.skip_many(p, e, counts)
    sizes = p - begin
    places = np.arange(int(sizes.sum())) + np.repeat(begin - (np.cumsum(sizes) - sizes), sizes)
    last = np.flatnonzero(lanes.bytes[places] < 0x80)
    starts: Ints = places[np.append(0, last[:-1] + 1)]
    return starts


def _pair_starts(lanes: Lanes, p: Ints, e: Ints, counts: Ints) -> Ints:
    """Where `counts` pairs of a number and a bytes value of each lane begin; the positions move behind them."""
    starts = np.empty(int(counts.sum()), np.int64)
    first = np.cumsum(counts) - counts
    for index, lane, at, ends in _one_by_one(p, e, counts):
        starts[first[lane] + index] = at
        lanes.skip_pair(at, ends)
    return starts


def _header(lanes: Lanes, p: Ints, e: Ints, least: int) -> tuple[Ints, Ints | None]:
    """Items of the next block of every lane's array, and where it must end (-1: it does not say)."""
    count: Any = lanes.byte(p, e)
    stops: Ints | None = None
    if not np.count_nonzero(count & 0x81):
        p += 1
        count = (count >> 1).astype(np.int64)
    else:
        count = lanes.read(p, e)
        negative = np.flatnonzero(count < 0)
        if len(negative):
            at, ends = p[negative], e[negative]
            size = lanes.length(at, ends)
            p[negative] = at
            stops = np.full(len(p), -1)
            stops[negative] = at + size
            count[negative] = -count[negative]
    if np.count_nonzero(count):
        # The smallest long has no positive: it stays negative.
        left = np.minimum((e - p) // least, MAX_ITEMS) if least else 0
        fail((count < 0) | (count > left), e, "an array of more items than its block has bytes for")
    return count, stops


def _blocks(lanes: Lanes, p: Ints, e: Ints, least: int, items: BlockItems) -> None:
    """Walk the blocks of arrays until every lane has met its empty one."""
    origin, rows = p, None
    while True:
        count, stops = _header(lanes, p, e, least)
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


def _skipped_items(node: Node, lanes: Lanes, compile_step: Callable[[Node, Scope], Step]) -> Items:
    """Steps over items of an array or map, as many as each lane has."""
    item = node.children[0].type
    if node.kind == "array" and (numbers := varints_in(item)) is not None:
        return lambda p, e, count: lanes.skip_many(p, e, count * numbers)
    if node.kind == "array" and varints_then_bytes(item) == 1:
        return lambda p, e, count: _repeat(lanes.skip_pair, p, e, count)
    steps = [compile_step(child, Scope()) for child in node.children]
    no_slots = np.zeros(0, np.int64)

    def one(p: Ints, e: Ints) -> None:
        for step in steps:
            step(p, e, no_slots)

    return lambda p, e, count: _repeat(one, p, e, count)


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
