"""Single values: bounds and partition values, from and to bytes, and as text for people.

Types are the specification's strings ("long", "decimal(9,2)", "fixed[16]"). Values are Python's own,
and numbers of the specification's unit where Python's type could not hold every value:

    boolean bool          string str            decimal Decimal, exponent = -scale
    int, long int         uuid uuid.UUID        date days, time microseconds
    float, double float   fixed, binary bytes   timestamp* microseconds, timestamp*_ns nanoseconds, since 1970
    variant, geometry, geography: bytes as stored

Spec: Iceberg v3, Appendix D "Single-value serialization"; "Schema Evolution" for bounds of promoted types.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from iceberg_cli.errors import CorruptFile, InvalidMetadata

Type = str | Mapping[str, Any]

_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(-?\d{1,3})\s*\)")
_FIXED = re.compile(r"fixed\[\s*(\d{1,9})\s*\]")
_PACKED = {"int": "<i", "date": "<i", "float": "<f", "double": "<d"} | dict.fromkeys(
    ("long", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"), "<q"
)
_DAY_UNITS = {"timestamp": 86_400_000_000, "timestamp_ns": 86_400_000_000_000}
UNITS_PER_SECOND = {"time": 10**6, "timestamp": 10**6, "timestamptz": 10**6} | dict.fromkeys(
    ("timestamp_ns", "timestamptz_ns"), 10**9
)
_POINT_BYTES = (16, 24, 32)  # x, y; x, y, z; x, y, z or NaN, m
_SHOWN_BYTES = 32


def decimal_parts(type_name: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type; None for other types."""
    found = _DECIMAL.fullmatch(type_name)
    return (int(found[1]), int(found[2])) if found else None


def fixed_length(type_name: str) -> int | None:
    """Length in bytes of a fixed type; None for other types."""
    found = _FIXED.fullmatch(type_name)
    return int(found[1]) if found else None


def make_decimal(unscaled: int, scale: int) -> Decimal:
    """`unscaled` * 10 ** -`scale`, exactly, whatever the number of digits."""
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


def unscaled(value: Decimal) -> int:
    """All digits of `value` as one signed integer."""
    sign, digits, _ = value.as_tuple()
    magnitude = int("".join(map(str, digits)))
    return -magnitude if sign else magnitude


def minimal_big_endian(number: int) -> bytes:
    """Two's complement of `number` in as few bytes as can hold it."""
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def from_bytes(type_name: str, data: bytes, *, path: str, field: str) -> Any:
    """Read a bound or another binary single value.

    Args:
        type_name: the column's current type; bounds written before a promotion are understood.
        data: as stored.
        path: the file it comes from, for the message.
        field: what the value is, for the message: "lower_bounds[3]".

    Raises:
        CorruptFile: the length or the content does not fit the type.
    """
    if (fmt := _PACKED.get(type_name)) is not None:
        return _unpack(type_name, fmt, data, path, field)
    match type_name:
        case "boolean" if len(data) == 1:
            return data != b"\x00"
        case "string":
            try:
                return data.decode()
            except UnicodeDecodeError as error:
                raise CorruptFile(path, field, f"{data.hex()} is not UTF-8: {error.reason}") from error
        case "uuid" if len(data) == 16:
            return uuid.UUID(bytes=data)
        case "binary" | "variant":
            return data
    if is_geo(type_name):
        return data
    if (parts := decimal_parts(type_name)) is not None and 1 <= len(data) <= 16:
        value = make_decimal(int.from_bytes(data, "big", signed=True), parts[1])
        return fits(value, type_name, parts, path, field)
    if fixed_length(type_name) == len(data):
        return data
    raise CorruptFile(path, field, f"{len(data)} bytes are no value of type {type_name}")


def to_bytes(type_name: str, value: Any) -> bytes:
    """Write a value in binary form.

    Raises:
        ValueError: the value does not fit the type, or the type has no binary form.
    """
    try:
        if (fmt := _PACKED.get(type_name)) is not None:
            return struct.pack(fmt, value)
        if (parts := decimal_parts(type_name)) is not None:
            fits(value, type_name, parts, "value", "value")
            return minimal_big_endian(unscaled(value))
    except (struct.error, OverflowError, CorruptFile) as error:
        raise ValueError(f"Cannot write {value!r} as {type_name}: {error}") from error
    match type_name, value:
        case "boolean", bool():
            return b"\x01" if value else b"\x00"
        case "string", str():
            return value.encode()
        case "uuid", uuid.UUID():
            return value.bytes
        case (("binary" | "variant"), bytes()):
            return value
    if isinstance(value, bytes) and (is_geo(type_name) or fixed_length(type_name) == len(value)):
        return value
    raise ValueError(f"Cannot write {value!r} as {type_name}.")


def show(type_: Type, value: Any) -> str:
    """Render a value for people: dates and times in ISO-8601, bytes in hexadecimal, text made printable."""
    if value is None:
        return "null"
    if isinstance(type_, Mapping):
        return _printable(str(value))
    if isinstance(value, bytes):
        if is_geo(type_) and len(value) in _POINT_BYTES:
            return f"POINT ({' '.join(f'{x:.15g}' for x in struct.unpack(f'<{len(value) // 8}d', value))})"
        more = f"... ({len(value)} bytes)" if len(value) > _SHOWN_BYTES else ""
        return f"0x{value[:_SHOWN_BYTES].hex()}{more}"
    return _printable(plain(type_, value, fraction=False))


def _unpack(type_name: str, fmt: str, data: bytes, path: str, field: str) -> int | float:
    """A number of fixed width, or one from before its column was promoted."""
    if len(data) == 4 and struct.calcsize(fmt) == 8:
        # Promotion does not rewrite bounds; their length tells the type at write time.
        if type_name in _DAY_UNITS:
            return int(struct.unpack("<i", data)[0]) * _DAY_UNITS[type_name]
        fmt = {"long": "<i", "double": "<f"}.get(type_name, fmt)
    if len(data) != struct.calcsize(fmt):
        raise CorruptFile(path, field, f"{len(data)} bytes are no value of type {type_name}")
    value: int | float = struct.unpack(fmt, data)[0]
    return value


def fits(value: Decimal, type_name: str, parts: tuple[int, int], path: str, field: str) -> Decimal:
    """`value` if a decimal of that precision and scale can hold it, or InvalidMetadata."""
    precision, scale = parts
    if not value.is_finite() or value.as_tuple().exponent != -scale or abs(unscaled(value)) >= 10**precision:
        raise InvalidMetadata(path, field, f"{value} is no value of type {type_name}")
    return value


def is_geo(type_name: str) -> bool:
    """Whether a type is a geometry or geography of any parameters."""
    return type_name.startswith(("geometry", "geography"))


def plain(type_: str, value: Any, *, fraction: bool) -> str:
    """Text of a value; a fraction of a second is written if `fraction`, else only if it is not zero."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if type_ == "date":
        return _iso_day(value)
    if type_ in UNITS_PER_SECOND:
        units = UNITS_PER_SECOND[type_]
        seconds, rest = divmod(value, units)
        days, second = divmod(seconds, 86400)
        text = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        if fraction or rest:
            text += f".{rest:0{len(str(units)) - 1}}"
        if type_ == "time":
            return text
        zone = "+00:00" if type_.startswith("timestamptz") else ""
        return f"{_iso_day(days)}T{text}{zone}"
    if isinstance(value, Decimal):
        exponent = int(value.as_tuple().exponent)
        return f"{value:f}" if exponent <= 0 else f"{unscaled(value)}E+{exponent}"
    if type_ == "float" and isinstance(value, float):
        return str(np.float32(value))
    return str(value)


def _iso_day(days: int) -> str:
    """ISO-8601 date; years outside 0 to 9999 with a sign, as Java writes and reads them."""
    text = str(np.datetime64(days, "D"))
    year, month, day = text.rsplit("-", 2)
    return text if 0 <= int(year) <= 9999 else f"{int(year):+05}-{month}-{day}"


def _printable(text: str) -> str:
    """Escape what could move the cursor or hide text on a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
