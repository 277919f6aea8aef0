"""Partition transforms: their names, their results over columns, and the results as text for people.

Spec: Iceberg v3, "Partition Transforms", Appendix B "32-bit Hash Requirements".
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.spec.types.single_value import (
    decimal_parts,
    make_decimal,
    minimal_big_endian,
    show,
    unscaled,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec
    from iceberg_cli.iceberg.spec.types.schema import Type

_PARAMETERISED = re.compile(r"(bucket|truncate)\[(\d{1,10})\]")
_PLAIN = {"identity", "year", "month", "day", "hour", "void"}
_DATE_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_LONG_HASHED = {"int", "long", "time", "date", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"}
_TIMESTAMPS = {"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"}


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform by its name in a partition spec or sort order."""

    text: str  # as written; unknown transforms survive
    kind: str  # "identity", "bucket", "truncate", "year", "month", "day", "hour", "void", "unknown"
    parameter: int = 0  # number of buckets, or width


def parse(text: str) -> Transform:
    """Read a transform's name; one that this program does not know has the kind "unknown"."""
    if text in _PLAIN:
        return Transform(text, text)
    found = _PARAMETERISED.fullmatch(text)
    if found and 0 < int(found[2]) < 1 << 31:
        return Transform(text, found[1], int(found[2]))
    return Transform(text, "unknown")


def result_type(transform: Transform, source_type: Type) -> str:
    """Type of a transformed value.

    A day is a "date", as Java and PyIceberg have it: the specification's int of days, which people can read.
    The type of an unknown transform's result is "unknown", and so is that of a column which has no primitive type.
    """
    if not isinstance(source_type, str):
        return "unknown"
    match transform.kind:
        case "bucket" | "year" | "month" | "hour":
            return "int"
        case "day":
            return "date"
        case "unknown":
            return "unknown"
    return source_type


def result_types(spec: PartitionSpec, types: Mapping[int, Type]) -> list[str]:
    """Types of the values of a partition, in the order of its fields.

    Args:
        spec: of the partition.
        types: of the table's columns, by field id; what a field of a column that is not among them has is "unknown".
    """
    return [
        result_type(parse(field.transform), types.get(field.source_id, "unknown")) for field in spec.fields
    ]


def apply(transform: Transform, source_type: str, column: pa.Array) -> pa.Array:
    """Transform a column.

    Args:
        transform: a known one.
        source_type: the specification's type of the column.
        column: n values in the Arrow type of `source_type`; uuid as 16 bytes.

    Returns:
        n values; null where the source is null. Bucket, year, month and hour as int32, day as date32.

    Raises:
        ValueError: the transform is unknown or does not take this type.

    Spec: "Partition Transforms".
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    match transform.kind:
        case "identity":
            return column
        case "void":
            return pa.nulls(len(column), column.type)
        case "bucket":
            hashes = hash32(source_type, column)
            buckets = (hashes & np.int32(0x7FFFFFFF)) % np.int32(transform.parameter)
            return pa.array(buckets, pa.int32(), mask=_null_mask(column))
        case "truncate":
            return _truncate(transform.parameter, source_type, column)
        case "year" | "month" | "day" | "hour":
            return _date_part(transform.kind, source_type, column)
    raise ValueError(f"Cannot apply transform {transform.text!r}: it is not known.")


def human(transform: Transform, source_type: str, value: Any) -> str:
    """Render a transformed value: year "2023", month "2023-05", day "2023-05-01", hour "2023-05-01-13".

    Args:
        transform: any.
        source_type: the specification's type of the source column.
        value: None or an integer for dates and times (a day may be a date), else as `single_value` has it.
    """
    if value is None:
        return "null"
    if (unit := _DATE_UNITS.get(transform.kind)) is not None:
        return str(np.array(value).astype(f"M8[{unit}]")).replace("T", "-")
    if transform.kind in {"bucket", "unknown"}:
        return str(value)
    return show(source_type, value)


def hash32(source_type: str, column: pa.Array) -> npt.NDArray[np.int32]:
    """The 32-bit hash of each value; of a null it means nothing.

    Raises:
        ValueError: the type has no hash.

    Spec: Appendix B.
    """
    if source_type in _LONG_HASHED:
        values = _integers(source_type, column)
        if source_type.endswith("_ns"):
            # Hashed in microseconds, so that a column can change its precision and keep its buckets.
            values = values // 1000
        return hash_longs(values)
    others = source_type in {"string", "uuid", "binary"} or source_type.startswith(("fixed[", "decimal("))
    if not others:
        raise ValueError(f"Cannot hash values of type {source_type}.")
    hashes = (0 if v is None else mmh3.hash(_hashed_bytes(v)) for v in column.to_pylist())
    return np.fromiter(hashes, np.int32, len(column))


def hash_longs(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Murmur3 x86 32-bit with seed 0 over the 8 little-endian bytes of each value."""
    words = values.astype("<i8").view("<u4").reshape(-1, 2)
    state = np.zeros(len(values), np.uint32)
    for half in range(2):
        mixed = _rotate(words[:, half] * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        state = _rotate(state ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    state ^= np.uint32(8)
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (state ^ (state >> np.uint32(16))).view(np.int32)


def _rotate(words: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


def _null_mask(column: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(column.is_null())


def _integers(source_type: str, column: pa.Array) -> npt.NDArray[np.int64]:
    """Values as 64-bit integers in the unit of the type; a null as 0."""
    if source_type in _TIMESTAMPS:
        unit = "ns" if source_type.endswith("_ns") else "us"
        zone = column.type.tz if pa.types.is_timestamp(column.type) else None
        column = column.cast(pa.timestamp(unit, zone))
    elif source_type == "date" and not pa.types.is_integer(column.type):
        column = column.cast(pa.date32()).cast(pa.int32())
    elif source_type == "time" and not pa.types.is_integer(column.type):
        column = column.cast(pa.time64("us"))
    return np.asarray(pc.fill_null(column.cast(pa.int64()), 0))


def _date_part(kind: str, source_type: str, column: pa.Array) -> pa.Array:
    """Years, months, days or hours from 1970, towards the past for values before it."""
    if source_type == "date" and kind != "hour":
        unit = "D"
    elif source_type in _TIMESTAMPS:
        unit = "ns" if source_type.endswith("_ns") else "us"
    else:
        raise ValueError(f"Cannot apply transform {kind!r} to type {source_type}.")
    moments = _integers(source_type, column).astype(f"M8[{unit}]")
    parts = moments.astype(f"M8[{_DATE_UNITS[kind]}]").astype(np.int64).astype(np.int32)
    result = pa.array(parts, pa.int32(), mask=_null_mask(column))
    return result.cast(pa.date32()) if kind == "day" else result


def _truncate(width: int, source_type: str, column: pa.Array) -> pa.Array:
    if source_type in {"int", "long"}:
        values = np.asarray(pc.fill_null(column, 0))
        remainders = values.astype(np.int64) % width  # positive for negative values too
        return pa.array(values - remainders.astype(values.dtype), column.type, mask=_null_mask(column))
    if (parts := decimal_parts(source_type)) is not None:
        scale = parts[1]
        whole = [None if v is None else unscaled(v) for v in column.to_pylist()]
        return pa.array(
            [None if n is None else make_decimal(n - n % width, scale) for n in whole], column.type
        )
    if source_type == "string":
        return pc.utf8_slice_codeunits(column, 0, width)
    if source_type == "binary":
        return pa.array([None if v is None else v[:width] for v in column.to_pylist()], column.type)
    raise ValueError(f"Cannot apply transform 'truncate[{width}]' to type {source_type}.")


def _hashed_bytes(value: Decimal | str | bytes | uuid.UUID) -> bytes:
    """The bytes that Appendix B hashes for a value that is no integer."""
    match value:
        case Decimal():
            return minimal_big_endian(unscaled(value))
        case str():
            return value.encode()
        case uuid.UUID():
            return value.bytes
    return value
