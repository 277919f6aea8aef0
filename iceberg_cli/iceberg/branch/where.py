"""Conditions as `--where` has them.

    condition [AND condition ...]      a condition is one of
    field = value   != <> < <= > >=    field IN (value, ...)    field IS NULL    field IS NOT NULL

A value is a number, true, false, or 'text': what `inspect partitions` shows, such as '2024-05' for a month. Null fits
no comparison.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np

from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.spec.types.single_value import decimal_parts

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*') | (?P<quoted>"[^"]+"|`[^`]+`) | (?P<sign><=|>=|<>|!=|[=<>(),])
    | (?P<number>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w-]) | (?P<word>[^\W\d][\w.]*))""",
    re.VERBOSE,
)
_COMPARISONS: Final = ("=", "!=", "<>", "<", "<=", ">", ">=")
_DATE_UNITS: Final = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_WHOLE: Final = ("int", "long")
Literal = str | Decimal | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition; `values` are literals: str for text, Decimal for a number, bool."""

    field: str
    operator: str  # of _COMPARISONS, "IN", "NULL" or "NOT NULL"
    values: tuple[Literal, ...] = ()


def parse_where(text: str) -> tuple[Condition, ...]:
    """Parse an expression.

    Raises:
        UsageError: it is none.
    """
    tokens = _tokens(text)
    conditions = []
    while True:
        conditions.append(_condition(tokens, text))
        if not tokens:
            return tuple(conditions)
        if _next(tokens, text) != ("word", "AND"):
            raise _unreadable(text, "conditions are joined by AND")


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
        raise UsageError(
            f"--where: {str(literal)!r} is no value of {field}, which is of type {kind}"
        ) from None


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


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens = []
    position = 0
    while text[position:].strip():
        found = _TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            raise _unreadable(text, f"{text[position:].strip()[:20]!r} makes no sense there")
        kind, token = found.lastgroup, found[found.lastgroup]
        if kind == "word" and token.upper() in {"AND", "IN", "IS", "NOT", "NULL", "TRUE", "FALSE"}:
            token = token.upper()
        tokens.append((kind, token))
        position = found.end()
    return tokens


def _next(tokens: list[tuple[str, str]], text: str) -> tuple[str, str]:
    if not tokens:
        raise _unreadable(text, "it ends too early")
    return tokens.pop(0)


def _condition(tokens: list[tuple[str, str]], text: str) -> Condition:
    kind, name = _next(tokens, text)
    if kind not in ("word", "quoted"):
        raise _unreadable(text, f"{name!r} is no field")
    field = name[1:-1] if kind == "quoted" else name
    kind, sign = _next(tokens, text)
    if kind == "sign" and sign in _COMPARISONS:
        return Condition(field=field, operator=sign, values=(_literal(tokens, text),))
    if (kind, sign) == ("word", "IS"):
        _, word = _next(tokens, text)
        negated = word == "NOT"
        if (_next(tokens, text)[1] if negated else word) != "NULL":
            raise _unreadable(text, "IS is followed by NULL or NOT NULL")
        return Condition(field=field, operator="NOT NULL" if negated else "NULL")
    if (kind, sign) == ("word", "IN") and _next(tokens, text)[1] == "(":
        values = [_literal(tokens, text)]
        while (mark := _next(tokens, text)[1]) == ",":
            values.append(_literal(tokens, text))
        if mark == ")":
            return Condition(field=field, operator="IN", values=tuple(values))
    raise _unreadable(text, f"{sign!r} makes no sense after {field!r}")


def _literal(tokens: list[tuple[str, str]], text: str) -> Literal:
    kind, written = _next(tokens, text)
    if kind == "text":
        return written[1:-1].replace("''", "'")
    if kind == "number":
        return Decimal(written)
    if kind == "word" and written in ("TRUE", "FALSE"):
        return written == "TRUE"
    raise _unreadable(text, f"{written!r} is no value; text is written in single quotes")


def _unreadable(text: str, why: str) -> UsageError:
    return UsageError(
        f"--where: cannot read {text!r}: {why}",
        next_step="Write conditions such as: day = '2024-05-01' AND region IN ('north', 'east')",
    )
