"""Scalar decoder: record after record. The faster one for a few blocks, and the second opinion for many.

It runs the same plan as `vectorized.py` and makes the same checks. A cursor that leaves its block is noticed at the
end of the record at the latest: cursors only move forward, and lengths are checked where they are read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from iceberg_cli.iceberg.avro.projection import (
    MAX_ITEMS,
    DecodePlan,
    Malformed,
    Node,
    Raw,
    leading_bytes,
    least_item_bytes,
    varints_in,
    varints_then_bytes,
)

Step = Callable[[int, int], int]  # (position, end of the block) -> position after the value
_MAX_PATTERN = 1_000
_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


class ScalarSink:
    """Growing lists behind one Raw."""

    __slots__ = ("lengths", "size", "valid", "values")

    def __init__(self) -> None:
        self.size = 0
        self.values: list[Any] = []
        self.lengths: list[int] = []
        self.valid: list[bool] = []


@lru_cache(maxsize=512)
def _numbers(count: int) -> re.Pattern[bytes]:
    return re.compile(rb"(?:[\x80-\xff]{0,9}+[\x00-\x7f]){%d}+" % count)


class Reader:
    """Readers over one buffer."""

    def __init__(self, buffer: bytes | memoryview) -> None:
        self.buffer = buffer

    def read_long(self, position: int, end: int) -> tuple[int, int]:
        """A zigzag number, and the position after it."""
        byte = self.buffer[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        value, shift = byte & 0x7F, 7
        for index in range(position + 1, min(position + 10, end)):
            byte = self.buffer[index]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return (value >> 1) ^ -(value & 1), index + 1
            shift += 7
        raise Malformed(end, "a number does not end, or is wider than 64 bits")

    def skip_numbers(self, position: int, end: int, count: int) -> int:
        """The position after `count` numbers."""
        while count:
            now = min(count, _MAX_PATTERN)
            found = _numbers(now).match(self.buffer, position, end)
            if found is None:
                raise Malformed(end, "a number does not end, or takes more than 10 bytes")
            position = found.end()
            count -= now
        return position

    def skip_bytes(self, position: int, end: int) -> int:
        """The position after a string or bytes value."""
        length, position = self.read_long(position, end)
        if not 0 <= length <= end - position:
            raise Malformed(end, f"length {length} with {end - position} bytes left")
        return position + length

    def block_header(self, position: int, end: int, least: int) -> tuple[int, int | None, int]:
        """Number of items, the block's size in bytes if it is given, and the position after the header."""
        count, position = self.read_long(position, end)
        size = None
        if count < 0:
            count = -count
            size, position = self.read_long(position, end)
            if not 0 <= size <= end - position:
                raise Malformed(end, f"array block of {size} bytes with {end - position} bytes left")
        if count > (min((end - position) // least, MAX_ITEMS) if least else 0):
            raise Malformed(end, f"array of {count} items with {end - position} bytes left")
        return count, size, position

    def skip_pairs(self, position: int, end: int, count: int, leading: int) -> int:
        """Items of `leading` numbers and one string; one number of one byte and a short string are common."""
        buffer = self.buffer
        for _ in range(count):
            length = buffer[position + 1]
            if leading == 1 and not (length & 0x81 or buffer[position] & 0x80):
                position += 2 + (length >> 1)
            else:
                position = self.skip_bytes(self.skip_numbers(position, end, leading), end)
            if position > end:
                break
        return position

    def kept_value(self, node: Node, sink: ScalarSink) -> Step:
        """The closure that reads a value into `sink`."""
        match node.kind:
            case "string" | "bytes":
                return self._kept_bytes(sink)
            case "int" | "long" | "enum":
                return self._kept_number(node, sink)
            case "boolean":
                return self._kept_boolean(sink)
            case "float" | "double":
                return self._kept_float(_FLOAT if node.kind == "float" else _DOUBLE, sink)
            case _:  # null, fixed
                return self._kept_fixed(node.type.size_bytes, sink)

    def _kept_bytes(self, sink: ScalarSink) -> Step:
        starts, lengths = sink.values.append, sink.lengths.append

        def run(position: int, end: int) -> int:
            length, position = self.read_long(position, end)
            if not 0 <= length <= end - position:
                raise Malformed(end, f"length {length} with {end - position} bytes left")
            starts(position)
            lengths(length)
            return position + length

        return run

    def _kept_number(self, node: Node, sink: ScalarSink) -> Step:
        low, high = -(1 << 31), 1 << 31
        if node.kind == "enum":
            low, high = 0, len(node.type.symbols)
        elif node.kind == "long":
            low, high = -(1 << 63), 1 << 63
        append = sink.values.append

        def run(position: int, end: int) -> int:
            value, position = self.read_long(position, end)
            if not low <= value < high:
                raise Malformed(end, f"{value} is no {node.kind}")
            append(value)
            return position

        return run

    def _kept_boolean(self, sink: ScalarSink) -> Step:
        def run(position: int, end: int) -> int:
            value = self.buffer[position]
            if value > 1:
                raise Malformed(end, f"{value} is no boolean")
            sink.values.append(value)
            return position + 1

        return run

    def _kept_float(self, form: struct.Struct, sink: ScalarSink) -> Step:
        def run(position: int, _end: int) -> int:
            sink.values.append(form.unpack_from(self.buffer, position)[0])
            return position + form.size

        return run

    def _kept_fixed(self, size_bytes: int, sink: ScalarSink) -> Step:
        def run(position: int, end: int) -> int:
            if size_bytes > end - position:
                raise Malformed(end, "a fixed value reaches beyond its block")
            sink.size += 1
            sink.values.append(position)
            return position + size_bytes

        return run


def decode_narrow(plan: DecodePlan, buffer: bytes, blocks: Sequence[tuple[int, int, int]]) -> list[Raw]:
    """Decode blocks one record after the other.

    Args:
        plan: what to keep.
        buffer: inflated blocks one after the other, and padding.
        blocks: per block: start, end, number of records.

    Raises:
        Malformed: the bytes are no records of the schema.
    """
    compiler = _Compiler(buffer, plan.outs)
    step = compiler.step(plan.root)
    for block in blocks:
        try:
            _decode_block(step, *block)
        except (IndexError, struct.error):
            raise Malformed(block[1], "a record reaches beyond its block") from None
    raws = [Raw() for _ in range(plan.outs)]
    _collect(plan.root, compiler.sinks, raws)
    return raws


def stepper(buffer: memoryview, nodes: Sequence[Node]) -> Step:
    """A step over neighbouring values that nobody wants: (position, block end) -> position after them.

    Raises:
        Malformed: from the step; see `decode_narrow`.
    """
    compiler = _Compiler(buffer, 0)
    steps = [compiler.skip(node) for node in nodes]

    def run(position: int, end: int) -> int:
        try:
            for step in steps:
                position = step(position, end)
        except (IndexError, struct.error):
            raise Malformed(end, "a record reaches beyond its block") from None
        return position

    return run


def _decode_block(step: Step, start: int, end: int, count: int) -> None:
    position = start
    for _ in range(count):
        position = step(position, end)
        if position > end:
            raise Malformed(end, "a record reaches beyond its block")
    if position != end:
        raise Malformed(end, f"{end - position} bytes after the last record of a block")


def _collect(node: Node, sinks: list[ScalarSink], raws: list[Raw]) -> None:
    if node.out is not None:
        raws[node.out] = _raw(node, sinks[node.out])
    for out in node.edges.values():
        raws[out] = Raw(len(sinks[out].values), np.array(sinks[out].values, np.int64))
    for child in node.children:
        _collect(child, sinks, raws)


def _raw(node: Node, sink: ScalarSink) -> Raw:
    dtype: Any = {"boolean": np.bool_, "float": np.float32, "double": np.float64}.get(node.kind, np.int64)
    values = np.array(sink.values, dtype)
    lengths = np.array(sink.lengths, np.int64)
    match node.kind:
        case "union" if node.null_index is not None:
            return Raw(len(sink.valid), valid=np.array(sink.valid, np.bool_))
        case "record" | "null" | "union":
            return Raw(sink.size)
        case "array" | "map":
            return Raw(len(lengths), lengths=lengths)
        case "string" | "bytes":
            return Raw(len(values), values, lengths)
        case _:
            return Raw(len(values), values)


class _Compiler:
    """Turns nodes into closures over one buffer."""

    def __init__(self, buffer: bytes | memoryview, outs: int) -> None:
        self.reader = Reader(buffer)
        self.sinks = [ScalarSink() for _ in range(outs)]

    def step(self, node: Node) -> Step:
        """The closure that decodes or steps over one value of `node`."""
        if not node.keeps:
            return self.skip(node)
        match node.kind:
            case "record":
                return self._record(node)
            case "union":
                return self._union(node)
            case "array" | "map":
                return self._list(node)
            case _:
                assert node.out is not None
                return self.reader.kept_value(node, self.sinks[node.out])

    def skip(self, node: Node) -> Step:
        """The closure that steps over one value of `node`."""
        size = leading_bytes(node.type)
        if size is not None:
            return lambda position, _end: position + size
        numbers = varints_in(node.type)
        if numbers is not None:
            return lambda position, end: self.reader.skip_numbers(position, end, numbers)
        match node.kind:
            case "string" | "bytes":
                return self.reader.skip_bytes
            case "record":
                return self._record(node)
            case "union":
                return self._union(node)
            case _:
                return self._skip_list(node)

    def _record(self, node: Node) -> Step:
        steps = _merged(self, node)
        sink = None if node.out is None else self.sinks[node.out]

        def run(position: int, end: int) -> int:
            if sink is not None:
                sink.size += 1
            for step in steps:
                position = step(position, end)
            return position

        return run

    def _union(self, node: Node) -> Step:
        steps = [self.step(child) for child in node.children]
        sink = None if node.out is None or node.null_index is None else self.sinks[node.out]
        null_index = node.null_index
        fill = self._filler(node.value) if null_index is not None and node.keeps else None

        def run(position: int, end: int) -> int:
            index, position = self.reader.read_long(position, end)
            if not 0 <= index < len(steps):
                raise Malformed(end, f"union index {index} of {len(steps)}")
            if sink is not None:
                sink.valid.append(index != null_index)
            if fill is not None and index == null_index:
                fill()
                return position
            return steps[index](position, end)

        return run

    def _filler(self, node: Node) -> Callable[[], None]:
        """Appends a value that nobody sees, so that the slots of children of a null stay in step."""
        below = [] if node.kind in {"array", "map"} else [self._filler(c) for c in node.children if c.keeps]
        sink = None if node.out is None else self.sinks[node.out]

        def run() -> None:
            if sink is not None:
                sink.size += 1
                sink.values.append(0)
                sink.lengths.append(0)
                sink.valid.append(False)
            for fill in below:
                fill()

        return run

    def _list(self, node: Node) -> Step:
        assert node.out is not None
        items = [self.step(child) for child in node.children]
        least = least_item_bytes(node)
        sink = self.sinks[node.out]

        def run(position: int, end: int) -> int:
            total = 0
            while True:
                count, size, position = self.reader.block_header(position, end, least)
                if not count:
                    sink.lengths.append(total)
                    return position
                total += count
                stop = None if size is None else position + size
                for _ in range(count):
                    for item in items:
                        position = item(position, end)
                if position > end or (stop is not None and position != stop):
                    raise Malformed(end, "an array's block is not as long as it says")

        return run

    def _skip_list(self, node: Node) -> Step:
        least = least_item_bytes(node)
        items = self._items(node)

        def run(position: int, end: int) -> int:
            while True:
                count, size, position = self.reader.block_header(position, end, least)
                if not count:
                    return position
                stop = None if size is None else position + size
                position = items(position, end, count)
                if position > end or (stop is not None and position != stop):
                    raise Malformed(end, "an array's block is not as long as it says")

        return run

    def _items(self, node: Node) -> Callable[[int, int, int], int]:
        """Steps over `count` items of an array or map."""
        if node.kind == "array":
            item = node.children[0].type
            if (numbers := varints_in(item)) is not None:
                return lambda position, end, count: self.reader.skip_numbers(position, end, numbers * count)
            if (leading := varints_then_bytes(item)) is not None:
                return lambda position, end, count: self.reader.skip_pairs(position, end, count, leading)
        steps = [self.skip(child) for child in node.children]

        def run(position: int, end: int, count: int) -> int:
            for _ in range(count):
                for step in steps:
                    position = step(position, end)
                if position > end:
                    break
            return position

        return run


def _merged(compiler: _Compiler, node: Node) -> list[Step]:
    """One step per field; neighbouring numbers that nobody wants are stepped over together."""
    steps: list[Step] = []
    numbers = 0

    def flush() -> None:
        nonlocal numbers
        if count := numbers:
            steps.append(lambda position, end: compiler.reader.skip_numbers(position, end, count))
        numbers = 0

    def edge(index: int) -> None:
        if index in node.edges:
            flush()
            append = compiler.sinks[node.edges[index]].values.append

            def run(position: int, _end: int) -> int:
                append(position)
                return position

            steps.append(run)

    for index, child in enumerate(node.children):
        edge(index)
        count = None if child.keeps else varints_in(child.type)
        if count is not None:
            numbers += count
            continue
        flush()
        steps.append(compiler.step(child))
    flush()
    edge(len(node.children))
    return steps
