"""Values that the Delta log writes as text: partition values, and the values in statistics.

A text that is no value of its type is None: what reads it knows then that it does not know. Of statistics that a
checkpoint holds as structs, the text is the JSON that commits have, with the same bounds. A value that JSON cannot say
as Delta writes it is left out: a file without a bound is read, never skipped.

Spec: Delta protocol, "Partition Value Serialization", "Per-file Statistics".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
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


_PLAIN_TEXT = r'^[^"\\\x00-\x1f]*$'  # JSON needs no escapes for it
_WHOLE = r"^-?[0-9]+$"
_FOUR_DIGIT_YEAR = r"^[0-9]{4}-"
_MILLISECONDS = 23  # characters of a time, up to them
_NOT_FINITE_JSON = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def stats_texts(structs: pa.Array | pa.ChunkedArray, *, instants: Collection[str] = ()) -> pa.Array:
    """JSON of n structs of statistics; null stays null, and fields that are null are left out.

    Args:
        structs: as read from `stats_parsed`.
        instants: dotted paths below the structs, of times that are in UTC though their type does not say so, as those
            are that Parquet has as INT96.
    """
    if isinstance(structs, pa.ChunkedArray):
        chunks = [_objects(chunk, "", instants) for chunk in structs.chunks]
        return pa.chunked_array(chunks, pa.string()).combine_chunks()
    return _objects(structs, "", instants)


def _objects(structs: pa.StructArray, path: str, instants: Collection[str]) -> pa.Array:
    members = []
    for field, column in zip(structs.type, structs.flatten(), strict=True):
        text = _texts(column, f"{path}{field.name}", instants)
        name = pa.scalar(f",{json.dumps(field.name, ensure_ascii=False)}:")
        members.append(pc.fill_null(pc.binary_join_element_wise(name, text, ""), ""))
    if not members:
        return pc.if_else(structs.is_valid(), "{}", pa.scalar(None, pa.string()))
    joined = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*members, ""), 1)
    whole = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(structs.is_valid(), whole, pa.scalar(None, pa.string()))


def _texts(column: pa.Array, path: str, instants: Collection[str]) -> pa.Array:
    """JSON of n values, null for those that have none."""
    kind = column.type
    types = pa.types
    if types.is_struct(kind):
        return _objects(column, f"{path}.", instants)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind):
        return pc.cast(column, pa.string())
    if types.is_floating(kind):
        return _numbers(column)
    if types.is_string(kind) or types.is_large_string(kind):
        return _quoted(column.cast(pa.string()))
    if types.is_date(kind):
        return _strings(_of_four_digit_years(pc.cast(column, pa.string())))
    if types.is_timestamp(kind):
        return _times(column, zoned=kind.tz is not None or path in instants)
    return pa.nulls(len(column), pa.string())


def _numbers(column: pa.Array) -> pa.Array:
    """Each in the fewest digits that only it has, with a fraction or an exponent."""
    text = pc.cast(column, pa.string())
    text = pc.if_else(
        pc.match_substring_regex(text, _WHOLE), pc.binary_join_element_wise(text, ".0", ""), text
    )
    for arrow, delta in _NOT_FINITE_JSON.items():
        text = pc.if_else(pc.equal(text, arrow), delta, text)
    return text


def _times(column: pa.Array, *, zoned: bool) -> pa.Array:
    """To the millisecond, or to the microsecond where there is more than milliseconds."""
    micros = column.cast(pa.timestamp("us"))
    text = _of_four_digit_years(pc.strftime(micros, format="%Y-%m-%dT%H:%M:%S"))
    text = pc.if_else(pc.ends_with(text, "000"), pc.utf8_slice_codeunits(text, 0, _MILLISECONDS), text)
    return _strings(pc.binary_join_element_wise(text, "Z", "") if zoned else text)


def _of_four_digit_years(text: pa.Array) -> pa.Array:
    return pc.if_else(pc.match_substring_regex(text, _FOUR_DIGIT_YEAR), text, pa.scalar(None, pa.string()))


def _quoted(column: pa.Array) -> pa.Array:
    if pc.all(pc.match_substring_regex(column, _PLAIN_TEXT)).as_py() is not False:
        return _strings(column)
    encode = json.JSONEncoder(ensure_ascii=False).encode
    return pa.array([None if text is None else encode(text) for text in column.to_pylist()], pa.string())


def _strings(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")
