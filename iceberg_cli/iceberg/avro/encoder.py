"""Columns of numbers and strings as Avro bytes, one value for each row.

Spec: Avro 1.12, "Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import Bools
from iceberg_cli.iceberg.avro.projection import Ints
from iceberg_cli.iceberg.avro.schema import AvroType

NULL = b"\x00"  # branch 0 of a union, which is null in every schema of the specification
_VALUE = b"\x02"  # branch 1
_MAX_VARINT_BYTES = 10
_EMPTY = pa.scalar(b"", pa.binary())


def joined(parts: Sequence[pa.Array | bytes], rows: int) -> pa.Array:
    """The parts of each row one after the other.

    Args:
        parts: n binary values each, or bytes that every row has.
        rows: n.
    """
    scalars = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    if not any(isinstance(part, pa.Array) for part in scalars):
        scalars.append(pa.array([b""] * rows, pa.binary()))
    return pc.binary_join_element_wise(*scalars, _EMPTY)


def encoded(avro: AvroType, column: pa.Array) -> pa.Array:
    """The values of a column.

    Args:
        avro: int, long, string or bytes, or an optional one of these.
        column: n values of that type.

    Returns:
        n binary values.

    Raises:
        ValueError: a value is null where it may not be.
    """
    if avro.kind == "union":
        if avro.children[1].kind in {"int", "long"}:
            return optional_longs([column])
        given = joined([_VALUE, _texts(column.fill_null(""))], len(column))
        return pc.if_else(column.is_valid(), given, pa.scalar(NULL, pa.binary()))
    if column.null_count:
        raise ValueError(f"a value does not fit its field: null is no {avro.kind}")
    return _longs(column.to_numpy()) if avro.kind in {"int", "long"} else _texts(column)


def optional_longs(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """For each row the values of all columns, each as a union of null and int or long."""
    width = 1 + _MAX_VARINT_BYTES
    rows = len(columns[0]) if columns else 0
    matrix = np.zeros((rows, width * len(columns)), np.uint8)
    used = np.zeros(matrix.shape, np.bool_)
    for index, column in enumerate(columns):
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        valid = whole.is_valid().to_numpy(zero_copy_only=False)
        at = width * index
        matrix[:, at] = np.where(valid, _VALUE[0], NULL[0])
        used[:, at] = True
        numbers = whole.fill_null(0).to_numpy().astype(np.int64)
        _varints(numbers, valid, matrix[:, at + 1 : at + width], used[:, at + 1 : at + width])
    return _used(matrix, used)


def _longs(values: npt.NDArray[Any]) -> pa.Array:
    matrix = np.zeros((len(values), _MAX_VARINT_BYTES), np.uint8)
    used = np.zeros(matrix.shape, np.bool_)
    _varints(values.astype(np.int64), np.ones(len(values), np.bool_), matrix, used)
    return _used(matrix, used)


def _texts(column: pa.Array) -> pa.Array:
    """Each value's length in bytes, and the value."""
    values = column.cast(pa.binary())
    return joined([_longs(pc.binary_length(values).to_numpy()), values], len(values))


def _used(matrix: npt.NDArray[np.uint8], used: Bools) -> pa.Array:
    """The bytes of each row that are used."""
    offsets = np.zeros(len(matrix) + 1, np.int32)
    np.cumsum(used.sum(axis=1), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(matrix[used])]
    return pa.Array.from_buffers(pa.binary(), len(matrix), buffers)


def _varints(values: Ints, mask: Bools, matrix: npt.NDArray[np.uint8], used: Bools) -> None:
    """Avro's encoding of longs, one in each row, from the left; `used` marks its bytes."""
    rest: npt.NDArray[Any] = ((values << 1) ^ (values >> 63)).view(np.uint64)
    more = mask
    for index in range(_MAX_VARINT_BYTES):
        used[:, index] = more
        matrix[:, index] = rest & 0x7F
        rest = rest >> 7
        more = more & (rest != 0)
        matrix[:, index] |= np.where(rest != 0, 0x80, 0).astype(np.uint8)
        if not more.any():
            break
