"""Records of Avro containers as Arrow columns.

Two executors run one plan and give the same columns: `vectorized.py` decodes a field of many blocks at a time with
numpy, `scalar.py` goes record by record. The first wins where many blocks can be walked side by side.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.encoding.arrow import Bools, array_of, bitmap_of
from iceberg_cli.encoding.string_hash import hash_strings
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.container import Container
from iceberg_cli.iceberg.avro.projection import (
    PADDING_BYTES,
    DecodePlan,
    Ints,
    Malformed,
    Node,
    ProjectedColumn,
    Raw,
)
from iceberg_cli.iceberg.avro.scalar import decode_narrow
from iceberg_cli.iceberg.avro.vectorized import decode_lockstep

Executor = Literal["auto", "lockstep", "narrow"]

# Blocks walked side by side, on average over the steps, from which lockstep is the faster one.
LOCKSTEP_CURSORS = 24

_buffers = threading.local()


def decode_records(
    plan: DecodePlan, containers: Sequence[Container], *, executor: Executor = "auto"
) -> pa.Table:
    """Decode all records of containers of one writer schema.

    Args:
        plan: what to decode, compiled for that schema.
        containers: their inflated blocks together stay below 2 GiB.
        executor: `auto`, or one of the two, for tests.

    Returns:
        `file` (int32, index into `containers`) and one column per wanted field that the schema has, in file order,
        block order, record order.

    Raises:
        CorruptFile: the bytes are no records of the schema.
    """
    blocks = [(index, block) for index, container in enumerate(containers) for block in container.blocks]
    sizes = np.array([len(block.payload) for _, block in blocks], np.int64)
    counts = np.array([block.records for _, block in blocks], np.int64)
    files = np.array([index for index, _ in blocks], np.int32)
    ends = np.cumsum(sizes, dtype=np.int64)
    if int(sizes.sum()) + PADDING_BYTES > np.iinfo(np.int32).max:
        msg = "more than 2 GiB of blocks at once"
        raise ValueError(msg)
    payloads = [block.payload for _, block in blocks]
    try:
        if _wide(counts) if executor == "auto" else executor == "lockstep":
            buffer = _side_by_side(payloads, ends)
            raws = decode_lockstep(plan, buffer, ends - sizes, ends, counts)
        else:
            joined = b"".join([*payloads, bytes(PADDING_BYTES)])
            extents = zip((ends - sizes).tolist(), ends.tolist(), counts.tolist(), strict=True)
            raws = decode_narrow(plan, joined, list(extents))
            buffer = np.frombuffer(joined, np.uint8)
        starts = np.repeat(_file_starts(files, ends - sizes), counts)
        arrays = _Assembler(raws, buffer).columns(plan.columns, starts)
    except Malformed as error:
        index, block = blocks[int(np.searchsorted(ends, error.end))]
        raise CorruptFile(containers[index].path, block.offset, error.reason) from None
    names = ["file", *(column.name for column in plan.columns)]
    return pa.table([array_of(np.repeat(files, counts)), *arrays], names=names)


def _side_by_side(payloads: Sequence[bytes | memoryview], ends: Ints) -> npt.NDArray[np.uint8]:
    """The payloads one after the other, and padding, in memory that the thread's next call uses again.

    Fresh memory for each call costs more than the copy. Nothing that is returned to a caller refers to it.
    """
    size = (int(ends[-1]) if len(ends) else 0) + PADDING_BYTES
    whole: npt.NDArray[np.uint8] | None = getattr(_buffers, "buffer", None)
    if whole is None or len(whole) < size:
        whole = _buffers.buffer = np.empty(size + size // 4, np.uint8)
    for payload, end in zip(payloads, ends.tolist(), strict=True):
        whole[end - len(payload) : end] = np.frombuffer(payload, np.uint8)
    whole[size - PADDING_BYTES : size] = 0
    return whole[:size]


def _file_starts(files: npt.NDArray[np.int32], starts: Ints) -> Ints:
    """For each block, where the first block of its file starts."""
    first = np.searchsorted(files, files)
    return starts[first]


def _wide(counts: Ints) -> bool:
    return bool(len(counts)) and int(counts.sum()) >= LOCKSTEP_CURSORS * int(counts.max())


class _Assembler:
    """Raw values to Arrow arrays."""

    def __init__(self, raws: list[Raw], buffer: npt.NDArray[np.uint8]) -> None:
        self.raws = raws
        self.buffer = buffer

    def columns(self, columns: Sequence[ProjectedColumn], starts: Ints) -> list[pa.Array]:
        """One array per column; `starts`: where the blocks of each row's file start."""
        return [
            self._column(column) if column.edge is None else array_of(self._edges(column.edge) - starts)
            for column in columns
        ]

    def _edges(self, out: int) -> Ints:
        values = self.raws[out].values
        assert values is not None
        return values

    def _column(self, column: ProjectedColumn) -> pa.Array:
        valid: Bools | None = None
        for guard in column.guards:
            valid = self._both(valid, self._raw(guard).valid)
        node = column.node
        if not column.hashed:
            return self.array(node, valid)
        if node.null_index is not None:
            valid = self._both(valid, self._raw(node).valid)
            node = node.value
        raw = self._raw(node)
        assert raw.values is not None
        assert raw.lengths is not None
        return array_of(hash_strings(self.buffer, raw.values, raw.lengths), valid)

    def _raw(self, node: Node) -> Raw:
        assert node.out is not None
        return self.raws[node.out]

    @staticmethod
    def _both(one: Bools | None, other: Bools | None) -> Bools | None:
        if one is None or other is None:
            return other if one is None else one
        return one & other

    def array(self, node: Node, valid: Bools | None) -> pa.Array:
        """The node's values; `valid` comes from the optional union around it."""
        if node.kind == "union":
            if node.null_index is None:
                return self.array(node.children[0], valid)
            return self.array(node.value, self._both(valid, self._raw(node).valid))
        raw = self._raw(node)
        match node.kind:
            case "null":
                return pa.nulls(raw.size)
            case "record":
                return self._struct(node, raw.size, valid)
            case "array" | "map":
                return self._list(node, raw, valid)
            case "string" | "bytes":
                return self._text(node, raw, valid)
            case "fixed":
                return self._fixed(node.type.size_bytes, raw, valid)
            case _:
                assert raw.values is not None
                return self._number(node, raw.values, valid)

    @staticmethod
    def _number(node: Node, values: npt.NDArray[Any], valid: Bools | None) -> pa.Array:
        if node.kind == "enum":
            return pa.array(node.type.symbols, pa.string()).take(array_of(values, valid))
        return array_of(values.astype(np.int32) if node.kind == "int" else values, valid)

    def _struct(self, node: Node, size: int, valid: Bools | None) -> pa.Array:
        children = [self.array(child, None) for child in node.children]
        fields = [pa.field(f.name, child.type) for f, child in zip(node.type.fields, children, strict=True)]
        return pa.Array.from_buffers(pa.struct(fields), size, [bitmap_of(valid)], children=children)

    def _list(self, node: Node, raw: Raw, valid: Bools | None) -> pa.Array:
        assert raw.lengths is not None
        offsets = np.zeros(len(raw.lengths) + 1, np.int32)
        np.cumsum(raw.lengths, out=offsets[1:])
        items = [self.array(child, None) for child in node.children]
        if node.type.is_map:
            pair = items if node.kind == "map" else items[0].flatten()
            kind: pa.DataType = pa.map_(pair[0].type, pair[1].type)
            fields = [pa.field("key", pair[0].type, nullable=False), pa.field("value", pair[1].type)]
            child = pa.Array.from_buffers(pa.struct(fields), len(pair[0]), [None], children=pair)
            if pair[0].null_count:
                raise Malformed(len(self.buffer) - PADDING_BYTES, "a map with a null key")
        else:
            child = items[0]
            kind = pa.list_(child.type)
        return pa.Array.from_buffers(
            kind, len(raw.lengths), [bitmap_of(valid), pa.py_buffer(offsets)], children=[child]
        )

    def _text(self, node: Node, raw: Raw, valid: Bools | None) -> pa.Array:
        assert raw.values is not None
        assert raw.lengths is not None
        values = gather(self.buffer, raw.values, raw.lengths, valid)
        if node.kind == "bytes":
            return values
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            raise Malformed(_first_bad_text(values, raw.values), "a string is not UTF-8") from None

    def _fixed(self, size_bytes: int, raw: Raw, valid: Bools | None) -> pa.Array:
        assert raw.values is not None
        starts = raw.values if valid is None else np.where(valid, raw.values, 0)
        data = self.buffer[np.minimum(starts[:, None] + np.arange(size_bytes), len(self.buffer) - 1)]
        buffers = [bitmap_of(valid), pa.py_buffer(np.ascontiguousarray(data))]
        return pa.Array.from_buffers(pa.binary(size_bytes), len(starts), buffers)


def gather(buffer: npt.NDArray[np.uint8], starts: Ints, lengths: Ints, valid: Bools | None) -> pa.Array:
    """Binary values out of a buffer that they lie in, in order.

    The values and the gaps between them are one Arrow array without a copy; taking every other element of it is
    the ragged copy, done by Arrow.
    """
    if not len(starts):
        return pa.array([], pa.binary())
    ends = np.where(lengths > 0, starts + lengths, 0)
    reached = np.maximum.accumulate(ends)
    offsets = np.empty((len(starts), 2), np.int32)
    offsets[:, 0] = np.where(lengths > 0, starts, reached)
    offsets[:, 1] = reached
    tiles = pa.Array.from_buffers(
        pa.binary(), 2 * len(starts) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(buffer)]
    )
    return tiles.take(array_of(np.arange(0, 2 * len(starts), 2), valid))


def _first_bad_text(values: pa.Array, starts: Ints) -> int:
    for index, value in enumerate(values):
        try:
            (value.as_py() or b"").decode()
        except UnicodeDecodeError:
            return int(starts[index]) + 1
    raise AssertionError(values)
