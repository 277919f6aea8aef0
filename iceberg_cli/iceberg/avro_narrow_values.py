"""Reading one value after the other: the scalar steps under `avro_narrow`.

A position may leave its block: the caller notices at the end of the record. Lengths and counts are checked here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from iceberg_cli.iceberg.avro_plan import MAX_ITEMS, Malformed, Node

Step = Callable[[int, int], int]  # (position, end of the block) -> position after the value
_MAX_PATTERN = 1_000
_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


class Sink:
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

    def kept_value(self, node: Node, sink: Sink) -> Step:
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

    def _kept_bytes(self, sink: Sink) -> Step:
        starts, lengths = sink.values.append, sink.lengths.append

        def run(position: int, end: int) -> int:
            length, position = self.read_long(position, end)
            if not 0 <= length <= end - position:
                raise Malformed(end, f"length {length} with {end - position} bytes left")
            starts(position)
            lengths(length)
            return position + length

        return run

    def _kept_number(self, node: Node, sink: Sink) -> Step:
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

    def _kept_boolean(self, sink: Sink) -> Step:
        def run(position: int, end: int) -> int:
            value = self.buffer[position]
            if value > 1:
                raise Malformed(end, f"{value} is no boolean")
            sink.values.append(value)
            return position + 1

        return run

    def _kept_float(self, form: struct.Struct, sink: Sink) -> Step:
        def run(position: int, _end: int) -> int:
            sink.values.append(form.unpack_from(self.buffer, position)[0])
            return position + form.size

        return run

    def _kept_fixed(self, size_bytes: int, sink: Sink) -> Step:
        def run(position: int, end: int) -> int:
            if size_bytes > end - position:
                raise Malformed(end, "a fixed value reaches beyond its block")
            sink.size += 1
            sink.values.append(position)
            return position + size_bytes

        return run
