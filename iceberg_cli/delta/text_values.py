"""Values that the Delta log writes as text: partition values, and dates and times in statistics.

A text that is no value of its type is None: what reads it knows then that it does not know.

Spec: Delta protocol, "Partition Value Serialization".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_DAY: Final = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"
_DATE = re.compile(_DAY)
_TIME = re.compile(
    rf"({_DAY})(?:[ T]([0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}})(?:\.([0-9]{{1,6}})0*)?(Z|[+-][0-9]{{2}}:[0-9]{{2}})?)?"
)
_NOT_FINITE: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def typed(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as values.

    Args:
        texts: n strings.
        kind: one of the primitive types.

    Returns:
        n values of `kind`, null where the text is null, empty, or no such value.
    """
    encoded = texts.dictionary_encode()
    values = pa.array([value_of(text, kind) for text in encoded.dictionary.to_pylist()], kind)
    return values.take(encoded.indices)


def value_of(text: str | None, kind: pa.DataType) -> Any:
    """One text as a value that `pa.array` takes for `kind`, or None."""
    if not text:
        return None
    for applies, convert in _CONVERTERS:
        if applies(kind):
            return convert(text, kind)
    return None


def _string(text: str, _kind: pa.DataType) -> str:
    return text


def _binary(text: str, _kind: pa.DataType) -> bytes:
    return text.encode()


def _boolean(text: str, _kind: pa.DataType) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _integer(text: str, kind: pa.DataType) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    value, bound = int(text), 1 << (kind.bit_width - 1)
    return value if -bound <= value < bound else None


def _floating(text: str, _kind: pa.DataType) -> float | None:
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    return float(text) if _NUMBER.fullmatch(text) else None


def _decimal(text: str, kind: pa.DataType) -> Decimal | None:
    return fitting(Decimal(text), kind) if _NUMBER.fullmatch(text) else None


def fitting(value: Decimal, kind: pa.DataType) -> Decimal | None:
    """The value if the decimal type holds it without rounding."""
    if not value:
        return Decimal(0)
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):  # not a number, or infinite
        return None
    while digits[-1] == 0:
        digits, exponent = digits[:-1], exponent + 1
    if -exponent > kind.scale or len(digits) + exponent > kind.precision - kind.scale:
        return None
    return Decimal((sign, digits, exponent))


def _day(text: str, _kind: pa.DataType) -> date | None:
    if not _DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _moment(text: str, kind: pa.DataType) -> int | None:
    """Microseconds since the epoch. A text without a zone is taken as UTC, as readers do that have no session."""
    found = _TIME.fullmatch(text)
    if found is None or (kind.tz is None and found[4]):
        return None
    fraction = (found[3] or "").ljust(6, "0")
    zone = "+00:00" if found[4] in (None, "Z") else found[4]
    try:
        moment = datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00:00'}.{fraction}{zone}")
        return (moment - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return None


_CONVERTERS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[str, pa.DataType], Any]], ...]] = (
    (pa.types.is_string, _string),
    (pa.types.is_integer, _integer),
    (pa.types.is_date32, _day),
    (pa.types.is_timestamp, _moment),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_floating, _floating),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_binary, _binary),
)


def times(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """As `typed` for dates and timestamps, in one call of Arrow where each text is one."""
    pattern = _DATE if pa.types.is_date32(kind) else _TIME
    # Arrow takes more than these patterns, which would make a value depend on its neighbours.
    if pc.all(pc.match_substring_regex(texts, f"^(?:{pattern.pattern})$")).as_py() is not False:
        try:
            return pc.cast(texts, kind)
        except pa.ArrowInvalid:
            pass
    return typed(texts, kind)
