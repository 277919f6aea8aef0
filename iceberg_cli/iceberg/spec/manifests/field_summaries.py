"""Partition field summaries: what a manifest list says of the partition values in a manifest.

Spec: "Manifest Lists", `field_summary`; Appendix D, "Binary single-value serialization".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.iceberg.spec.types.single_value import (
    decimal_parts,
    from_bytes,
    make_decimal,
    to_bytes,
    unscaled,
)

_FLOATS: Mapping[str, tuple[Any, int]] = {"float": (np.int32, 31), "double": (np.int64, 63)}
_DECIMAL_BYTES = 16  # holds 38 digits


@dataclass(frozen=True, slots=True)
class FieldSummary:
    """The values of one partition field. `lower` and `upper` are sort keys (see `sort_key`), None without values."""

    contains_null: bool = False
    contains_nan: bool = False
    lower: Any = None
    upper: Any = None

    def united(self, other: FieldSummary) -> FieldSummary:
        """The summary of both sets of values."""
        lowers = [bound for bound in (self.lower, other.lower) if bound is not None]
        uppers = [bound for bound in (self.upper, other.upper) if bound is not None]
        return FieldSummary(
            self.contains_null or other.contains_null,
            self.contains_nan or other.contains_nan,
            min(lowers, default=None),
            max(uppers, default=None),
        )

    def to_row(self, type_name: str) -> dict[str, Any]:
        """The item of the manifest list's `partitions`."""
        return {
            "contains_null": self.contains_null,
            "contains_nan": self.contains_nan,
            "lower_bound": None if self.lower is None else _to_bytes(type_name, self.lower),
            "upper_bound": None if self.upper is None else _to_bytes(type_name, self.upper),
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any], type_name: str, *, path: str) -> FieldSummary:
        """Inverse of `to_row`.

        Raises:
            CorruptFile: a bound is no value of the type.
        """
        lower, upper = (
            None if row[name] is None else _from_bytes(type_name, row[name], path=path, name=name)
            for name in ("lower_bound", "upper_bound")
        )
        return cls(bool(row["contains_null"]), bool(row["contains_nan"]), lower, upper)


def sort_key(column: pa.Array, type_name: str) -> pa.Array:
    """Partition values as Avro stores them, brought into a form whose own order is the order of the values.

    Floats and doubles become integers in IEEE 754's total order, so that -0.0 is below 0.0 and NaN above all; decimals
    become bytes of one length; integers are long, whatever the writer's type was.

    Args:
        column: n values.
        type_name: the specification's type of the partition field.

    Returns:
        n values; null where the value is null.
    """
    if type_name in _FLOATS:
        dtype, top = _FLOATS[type_name]
        kind = pa.float32() if type_name == "float" else pa.float64()
        return _ordered_bits(column.cast(kind), dtype, top)
    if decimal_parts(type_name) is not None and not pa.types.is_null(column.type):
        return _ordered_decimals(column)
    if pa.types.is_fixed_size_binary(column.type):
        return column.cast(pa.binary())
    return (
        column.cast(pa.int64())
        if pa.types.is_integer(column.type) or pa.types.is_null(column.type)
        else column
    )


def summary_of(keys: pa.Array, type_name: str) -> FieldSummary:
    """The summary of partition values that `sort_key` brought into order."""
    nan = False
    if type_name in _FLOATS:
        nans = pc.greater(keys, _infinity(type_name))
        nan = bool(pc.any(nans).as_py())
        contains_null = bool(keys.null_count)
        keys = keys.filter(pc.invert(nans)) if nan else keys
    else:
        contains_null = bool(keys.null_count)
    found = pc.min_max(keys)
    return FieldSummary(contains_null, nan, found["min"].as_py(), found["max"].as_py())


def _ordered_bits(column: pa.Array, dtype: Any, top: int) -> pa.Array:
    """IEEE 754 numbers as integers of the same order; every NaN above infinity."""
    values: npt.NDArray[Any] = column.fill_null(0).to_numpy(zero_copy_only=False)
    values = np.where(np.isnan(values), np.abs(values), values)
    bits = values.view(dtype)
    bits = np.where(bits < 0, bits ^ dtype((1 << top) - 1), bits)
    return array_of(bits, column.is_valid().to_numpy(zero_copy_only=False))


def _infinity(type_name: str) -> int:
    dtype, _ = _FLOATS[type_name]
    kind = np.float32 if type_name == "float" else np.float64
    return int(np.array([math.inf], kind).view(dtype)[0])


def _ordered_decimals(column: pa.Array) -> pa.Array:
    """Two's complement, big-endian, of any length, as 16 bytes whose sign bit is flipped."""
    return pa.array(
        [
            None if data is None else _flipped(int.from_bytes(data, "big", signed=True))
            for data in column.to_pylist()
        ],
        pa.binary(),
    )


def _flipped(number: int) -> bytes:
    data = number.to_bytes(_DECIMAL_BYTES, "big", signed=True)
    return bytes([data[0] ^ 0x80]) + data[1:]


def _to_bytes(type_name: str, key: Any) -> bytes:
    if type_name in _FLOATS:
        dtype, top = _FLOATS[type_name]
        kind = np.float32 if type_name == "float" else np.float64
        bits = key ^ (1 << top) - 1 if key < 0 else key
        return to_bytes(type_name, float(np.array([bits], dtype).view(kind)[0]))
    if (parts := decimal_parts(type_name)) is not None and isinstance(key, bytes):
        number = int.from_bytes(bytes([key[0] ^ 0x80]) + key[1:], "big", signed=True)
        return to_bytes(type_name, make_decimal(number, parts[1]))
    return key if isinstance(key, bytes) else to_bytes(type_name, key)


def _from_bytes(type_name: str, data: bytes, *, path: str, name: str) -> Any:
    value = from_bytes(type_name, data, path=path, field=name)
    if type_name in _FLOATS:
        column = pa.array([value], pa.float32() if type_name == "float" else pa.float64())
        return sort_key(column, type_name)[0].as_py()
    if decimal_parts(type_name) is not None:
        return _flipped(unscaled(value))
    return data if not isinstance(value, (bool, int, str)) else value
