"""Single values in JSON, such as the defaults of schema fields.

Types are the specification's strings, and its objects for struct, list and map; values as in
`single_value`, a struct as a dict by field id, a map as a list of pairs, a geometry as WKT text.

Spec: Iceberg v3, Appendix D "JSON single-value serialization".
"""

from __future__ import annotations

import binascii
import math
import re
import uuid
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from iceberg_cli.errors import InvalidMetadata
from iceberg_cli.iceberg.spec.types.single_value import (
    UNITS_PER_SECOND,
    Type,
    decimal_parts,
    fits,
    fixed_length,
    is_geo,
    plain,
)

_TIME = re.compile(r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?", re.ASCII)
_DATE = re.compile(r"[+-]?\d{4,6}-\d{2}-\d{2}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,38}(\.\d{0,38})?(E[+-]?\d{1,3})?", re.ASCII)
_INT_BITS = {"int": 32, "long": 64}


def from_json(type_: Type, value: Any, *, path: str, field: str) -> Any:
    """Read a JSON single value, such as a default. Null is None for every type.

    A struct becomes a dict by field id, a map a list of pairs.

    Raises:
        InvalidMetadata: the value is not of the type.
    """
    if value is None:
        return None
    if isinstance(type_, Mapping):
        return _nested_from_json(type_, value, path, field)
    try:
        return _primitive_from_json(type_, value, path, field)
    except (ValueError, TypeError, KeyError, InvalidOperation, OverflowError) as error:
        raise InvalidMetadata(path, field, f"{value!r} is no JSON value of type {type_}") from error


def to_json(type_: Type, value: Any) -> Any:
    """Write a value in JSON form, as the specification spells it. None is null for every type.

    Raises:
        ValueError: JSON cannot express the value (NaN, infinity), or the type has no JSON form.
    """
    if value is None:
        return None
    if isinstance(type_, Mapping):
        return _nested_to_json(type_, value)
    if type_ in {"float", "double"}:
        if not math.isfinite(value):
            raise ValueError(f"Cannot write {value} in JSON.")
        return value
    if type_ in {"boolean", "int", "long", "string"} or (is_geo(type_) and isinstance(value, str)):
        return value
    if type_ in {"binary", "uuid", "date"} or type_ in UNITS_PER_SECOND or fixed_length(type_) is not None:
        return value.hex() if isinstance(value, bytes) else plain(type_, value, fraction=True)
    if decimal_parts(type_) is not None:
        return plain(type_, value, fraction=True)
    raise ValueError(f"Cannot write a value of type {type_} in JSON.")


def _primitive_from_json(type_: str, value: Any, path: str, field: str) -> Any:  # noqa: PLR0911 - one branch per type
    if type_ == "boolean" and isinstance(value, bool):
        return value
    if (bits := _INT_BITS.get(type_)) and type(value) is int and -(1 << bits - 1) <= value < 1 << bits - 1:
        return value
    if type_ in {"float", "double"} and type(value) in {int, float}:
        return float(value)
    if not isinstance(value, str):
        raise TypeError(type_)
    if (parts := decimal_parts(type_)) is not None and _NUMBER.fullmatch(value):
        return fits(Decimal(value), type_, parts, path, field)
    if type_ == "string" or is_geo(type_):
        return value
    if type_ == "uuid" and len(value) == 36:
        return uuid.UUID(value)
    if type_ == "binary" or fixed_length(type_) == len(value) // 2:
        return binascii.unhexlify(value)
    if type_ == "date":
        return _parse_days(value)
    if type_ == "time":
        return _parse_time(value, 6)
    return _parse_timestamp(type_, value)


def _parse_days(text: str) -> int:
    if not _DATE.fullmatch(text):
        raise ValueError(text)
    return int(np.datetime64(text.removeprefix("+"), "D").astype(int))


def _parse_time(text: str, digits: int) -> int:
    """Units since midnight, with `digits` decimal digits of a second in one unit's place."""
    found = _TIME.fullmatch(text)
    fraction = (found[4] or "") if found else ""
    if not found or len(fraction) > digits:
        raise ValueError(text)
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(text)
    units: int = 10**digits
    return (hour * 3600 + minute * 60 + second) * units + int(fraction.ljust(digits, "0"))


def _parse_timestamp(type_: str, text: str) -> int:
    units = UNITS_PER_SECOND[type_]
    if type_.startswith("timestamptz"):
        if not text.endswith(("+00:00", "Z")):
            raise ValueError(text)
        text = text.removesuffix("Z").removesuffix("+00:00")
    day, separator, time = text.partition("T")
    if not separator:
        raise ValueError(text)
    moment = _parse_days(day) * 86400 * units + _parse_time(time, len(str(units)) - 1)
    if not -(1 << 63) <= moment < 1 << 63:
        raise ValueError(text)
    return moment


def _nested_from_json(type_: Mapping[str, Any], value: Any, path: str, field: str) -> Any:
    match type_.get("type"), value:
        case "struct", dict():
            types = {str(f["id"]): f["type"] for f in type_["fields"]}
            if unknown := value.keys() - types.keys():
                raise InvalidMetadata(path, field, f"the struct has no fields with ids {sorted(unknown)}")
            return {int(i): from_json(types[i], v, path=path, field=f"{field}.{i}") for i, v in value.items()}
        case "list", list():
            return [from_json(type_["element"], item, path=path, field=field) for item in value]
        case "map", {"keys": list(keys), "values": list(values)} if len(keys) == len(values):
            return [
                (
                    from_json(type_["key"], k, path=path, field=field),
                    from_json(type_["value"], v, path=path, field=field),
                )
                for k, v in zip(keys, values, strict=True)
            ]
    raise InvalidMetadata(path, field, f"{value!r} is no JSON value of type {type_.get('type')}")


def _nested_to_json(type_: Mapping[str, Any], value: Any) -> Any:
    match type_.get("type"):
        case "struct":
            types = {f["id"]: f["type"] for f in type_["fields"]}
            return {str(i): to_json(types[i], v) for i, v in value.items()}
        case "list":
            return [to_json(type_["element"], item) for item in value]
        case "map":
            return {
                "keys": [to_json(type_["key"], k) for k, _ in value],
                "values": [to_json(type_["value"], v) for _, v in value],
            }
    raise ValueError(f"Cannot write a value of type {type_.get('type')} in JSON.")
