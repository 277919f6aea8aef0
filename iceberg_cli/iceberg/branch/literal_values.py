"""Literals of `--where` as values of Iceberg's types."""

from __future__ import annotations

import re
import uuid
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np

from iceberg_cli.iceberg.spec.types.single_value import decimal_parts
from iceberg_cli.plan.where import Literal, no_value

_DATE_UNITS: Final = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_WHOLE: Final = ("int", "long")


def value_of(literal: Literal, type_: str, transform: str, field: str) -> Any:
    """A literal as a value of a type, which Python orders as the type does.

    Args:
        literal: of a `Condition`.
        type_: the specification's type of the field, a transform's result or a column.
        transform: the kind of the field's transform; "identity" of a column.
        field: for the message.

    Returns:
        Numbers of dates and times in the type's unit, a Decimal, a UUID's bytes, or the value itself.

    Raises:
        UsageError: it is none.
    """
    try:
        return _typed(literal, type_, transform)
    except (ValueError, InvalidOperation):
        kind = f"{transform} partition" if transform in _DATE_UNITS else type_
        raise no_value(literal, field, kind) from None


def _typed(literal: Literal, type_: str, transform: str) -> Any:
    unit = _DATE_UNITS.get(transform, "D" if type_ == "date" else None)
    if unit is not None:
        # numpy writes the hour after a T, `inspect` after a third hyphen.
        hour = re.fullmatch(r"(\d{4}-\d\d-\d\d)-(\d\d)", str(literal))
        return _moment(f"{hour[1]}T{hour[2]}" if hour else str(literal), unit)
    if type_.startswith("timestamp"):
        return _moment(re.sub(r"(Z|\+00:00)$", "", str(literal)), "ns" if type_.endswith("_ns") else "us")
    if type_ == "time":
        return _moment(f"1970-01-01T{literal}", "us")
    if isinstance(literal, Decimal):
        return _number(literal, type_)
    if type_ == "boolean" and isinstance(literal, bool):
        return literal
    if isinstance(literal, bool):
        raise ValueError(literal)  # noqa: TRY004 - the value is wrong, not the caller's types
    return _text(literal, type_)


def _moment(text: str, unit: str) -> int:
    if not re.match(r"-?\d", text):
        raise ValueError(text)  # numpy would read the clock for "now"
    return int(np.array(text, f"M8[{unit}]").astype(np.int64))


def _number(literal: Decimal, type_: str) -> Any:
    if type_ in _WHOLE and literal == int(literal):
        return int(literal)
    if type_ == "float":
        return float(np.float32(float(literal)))
    if type_ == "double":
        return float(literal)
    if decimal_parts(type_) is not None:
        return literal
    raise ValueError(literal)


def _text(literal: str, type_: str) -> Any:
    if type_ == "string":
        return literal
    if type_ == "uuid":
        return uuid.UUID(literal).bytes
    if type_ == "binary" or type_.startswith("fixed["):
        return bytes.fromhex(literal.removeprefix("0x"))
    raise ValueError(literal)
