"""Values that the Delta log writes as text: partition values, and dates and times in statistics.

A text that is no value of its type is None: what reads it knows then that it does not know.

Spec: Delta protocol, "Partition Value Serialization".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_DAY: Final = r"(?P<year>[+-]?[0-9]{4,6})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
_CLOCK: Final = (
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2}):(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{1,6})0*)?"
)
_ZONE: Final = r"(?P<zone>[Zz]|(?P<sign>[+-])(?P<away_hours>[0-9]{2}):?(?P<away_minutes>[0-9]{2}))"
_DATE = re.compile(_DAY)
_TIME = re.compile(f"{_DAY}(?:[ Tt]{_CLOCK}{_ZONE}?)?")
_OFFSET: Final = r"[+-][0-9]{2}:?[0-9]{2}$"
_NO_OFFSET: Final = r"[+-]00:?00$"
# What Arrow reads as it is read here. It takes other texts as well, which would make a value depend on its neighbours.
_PLAIN_DAY: Final = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"
_PLAIN_CLOCK: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|[+-][0-9]{2}:[0-9]{2})?"
_PLAIN_TIME: Final = f"{_PLAIN_DAY}(?:[ T]{_PLAIN_CLOCK})?"
_NOT_FINITE: Final = re.compile(r"nan|([+-]?)inf(?:inity)?", re.IGNORECASE)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097  # after which the calendar repeats itself
_SECOND: Final = 1_000_000  # in microseconds
_MICROS: Final = 1 << 63  # beyond what a column of them holds


def partition_values(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Texts of a partition column as values.

    Args:
        texts: n strings.
        kind: one of the primitive types.

    Returns:
        n values of `kind`, and n booleans: whether there is a text of which readers make different values, or none.
        The value is null then, as it is where the text is null or empty. An empty string or binary is such a text: by
        the specification it is null, and readers take it for what it is.
    """
    empty = pc.fill_null(pc.equal(texts, ""), fill_value=True)
    if pa.types.is_temporal(kind):
        encoded = texts.dictionary_encode()
        values = times(encoded.dictionary, kind).take(encoded.indices)
    else:
        values = typed(texts, kind)
    if pa.types.is_timestamp(kind):
        # Delta Kernel read the local time of such a text as UTC before it knew better.
        offset = pc.match_substring_regex(texts, _OFFSET)
        shifted = pc.and_not(offset, pc.match_substring_regex(texts, _NO_OFFSET))
        values = pc.if_else(pc.fill_null(shifted, fill_value=False), pa.scalar(None, kind), values)
    unknown = values.is_null()
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return values, pc.and_(unknown, texts.is_valid())
    return values, pc.and_(unknown, pc.invert(empty))


def typed(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as values.

    Args:
        texts: n strings.
        kind: one of the primitive types.

    Returns:
        n values of `kind`, null where the text is null, empty, or no such value.
    """
    if pa.types.is_string(kind):
        return pc.if_else(pc.equal(texts, ""), pa.scalar(None, kind), texts)
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


def _floating(text: str, kind: pa.DataType) -> float | None:
    if found := _NOT_FINITE.fullmatch(text):
        return float("nan") if found[1] is None else float(f"{found[1]}inf")
    # Arrow rounds once, to the type at hand; Python would round to a double first.
    return pa.scalar(text.removeprefix("+")).cast(kind).as_py() if _NUMBER.fullmatch(text) else None


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


def _day(text: str, _kind: pa.DataType) -> int | None:
    found = _DATE.fullmatch(text)
    return None if found is None else _days(*found.groups())


def _days(year: str, month: str, day: str) -> int | None:
    """Days since the epoch, in the Gregorian calendar also before it was in use and after the year 9999."""
    number = int(year)
    known = number % _CYCLE_YEARS + _CYCLE_YEARS
    try:
        days = date(known, int(month), int(day)).toordinal()
    except ValueError:
        return None
    return days - _EPOCH_DAY + (number - known) // _CYCLE_YEARS * _CYCLE_DAYS


def _moment(text: str, kind: pa.DataType) -> int | None:
    """Microseconds since the epoch. A text without a zone is taken as UTC, as readers do that have no session."""
    found = _TIME.fullmatch(text)
    if found is None or (kind.tz is None and found["zone"]):
        return None
    days = _days(found["year"], found["month"], found["day"])
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    away_hours, away_minutes = int(found["away_hours"] or 0), int(found["away_minutes"] or 0)
    if days is None or max(hour, away_hours) > 23 or max(minute, second, away_minutes) > 59:
        return None
    away = (away_hours * 60 + away_minutes) * (-1 if found["sign"] == "-" else 1)
    seconds = ((days * 24 + hour) * 60 + minute - away) * 60 + second
    micros = seconds * _SECOND + int((found["fraction"] or "").ljust(6, "0"))
    return micros if -_MICROS <= micros < _MICROS else None


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
    plain = _PLAIN_DAY if pa.types.is_date32(kind) else _PLAIN_TIME
    if pc.all(pc.match_substring_regex(texts, f"^(?:{plain})$")).as_py() is not False:
        # Arrow wants a zone in all texts of a zoned type, or in none of a local one.
        for read_as in (kind,) if pa.types.is_date32(kind) else (kind, pa.timestamp("us")):
            try:
                return pc.cast(pc.cast(texts, read_as), kind)
            except pa.ArrowInvalid:
                pass
    return typed(texts, kind)
