"""Statistics of a new data file, as its add has them: from its rows, while they are written.

Delta Spark's own are wrong where a column has NaN, and where times have more than milliseconds: a bound that is not
sure is left out, one of times is the next millisecond outwards.

Spec: Delta protocol, "Per-file Statistics"; `compaction-delta.md` D19 to D22 name what writers do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import one_array

_PREFIX: Final = 32  # characters of text that a bound has
_LAST: Final = "\U0010ffff"
_BELOW_LAST: Final = "\x7f"  # as Delta Spark ends the upper bound of text that is shortened
_BMP: Final = 0x10000
_MS: Final = 1_000  # microseconds
_FIRST_YEAR, _LAST_YEAR = 1, 9999  # that every reader of text has
_EPOCH: Final = date(1970, 1, 1).toordinal()
_TIGHT: Final = '"tightBounds":true'
_WIDE: Final = '"tightBounds":false'
Column = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatistics:
    """Of one data file.

    Args:
        record_count: its rows.
        json: the text of an add's `stats`.
    """

    record_count: int
    json: str


def with_wide_bounds(text: str) -> str:
    """`FileStatistics.json` of a file with a deletion vector: its bounds need not be values of rows that are left."""
    members = text.removesuffix("}").removesuffix(_TIGHT).removesuffix(",")
    return f"{members},{_WIDE}}}"


@dataclass(kw_only=True)
class StatisticsOfRows:
    """Collects statistics of rows that are written to one file; a `Measure`.

    Args:
        kind: which columns have which statistics, see `statistics_type`.
    """

    kind: pa.StructType
    _records: int = 0
    _bounds: dict[Column, tuple[Any, Any]] = field(default_factory=dict)
    _unbounded: set[Column] = field(default_factory=set)
    _nulls: dict[Column, int] = field(default_factory=dict)

    def see(self, rows: pa.Table) -> None:
        """Take note of rows, which become one row group."""
        self._records += rows.num_rows
        for column, _ in self._leaves("nullCount"):
            if column[0] in rows.column_names:  # a file has no column of nothing but nulls by its type
                self._nulls[column] = self._nulls.get(column, 0) + _values(rows, column).null_count
        for column, kind in self._leaves("minValues"):
            if column not in self._unbounded:
                self._see_bounds(column, kind, _values(rows, column))

    def _see_bounds(self, column: Column, kind: pa.DataType, values: pa.Array) -> None:
        if pa.types.is_floating(kind) and pc.any(pc.invert(pc.is_finite(pc.drop_null(values)))).as_py():
            self._unbounded.add(column)
            return
        if pa.types.is_temporal(kind):
            values = values.view(pa.int32() if pa.types.is_date(kind) else pa.int64())
        found = pc.min_max(values).as_py()
        if found["min"] is None:
            return
        known = self._bounds.get(column, (found["min"], found["max"]))
        self._bounds[column] = min(known[0], found["min"]), max(known[1], found["max"])

    def measured(self, footer: Any, path: str) -> FileStatistics:  # noqa: ARG002 - a `Measure`
        """The statistics of all rows that were seen."""
        lower, upper = {}, {}
        for column, kind in self._leaves("minValues"):
            if column in self._bounds and column not in self._unbounded:
                least, greatest = (
                    _bound(value, kind, is_upper=is_upper)
                    for is_upper, value in enumerate(self._bounds[column])
                )
                if least is not None:
                    lower[column] = least
                if greatest is not None:
                    upper[column] = greatest
        members = [f'"numRecords":{self._records}']
        if "minValues" in self._names:
            members += [f'"minValues":{_object(lower)}', f'"maxValues":{_object(upper)}']
        if "nullCount" in self._names:
            nulls = {column: str(count) for column, count in self._nulls.items()}
            members.append(f'"nullCount":{_object(nulls)}')
        if "tightBounds" in self._names:
            members.append(_TIGHT)
        return FileStatistics(record_count=self._records, json="{" + ",".join(members) + "}")

    @property
    def _names(self) -> list[str]:
        return [member.name for member in self.kind]

    def _leaves(self, name: str) -> Iterator[tuple[Column, pa.DataType]]:
        if name in self._names:
            yield from _leaves_of(self.kind.field(name).type, ())


def _leaves_of(kind: pa.StructType, above: Column) -> Iterator[tuple[Column, pa.DataType]]:
    for member in kind:
        own = (*above, member.name)
        if pa.types.is_struct(member.type):
            yield from _leaves_of(member.type, own)
        else:
            yield own, member.type


def _values(rows: pa.Table, column: Column) -> pa.Array:
    """The values of a column, null where a struct that it is in is."""
    found = one_array(rows.column(column[0]))
    for name in column[1:]:
        found = pc.struct_field(found, name)
    return found


def _object(values: Mapping[Column, str]) -> str:
    """JSON of values by their columns, those of structs nested; values are JSON already."""
    members: dict[str, Any] = {}
    for column, text in values.items():
        inner = members
        for name in column[:-1]:
            inner = inner.setdefault(name, {})
        inner[column[-1]] = text
    return _encoded(members)


def _encoded(members: Mapping[str, Any]) -> str:
    return (
        "{"
        + ",".join(
            f"{json.dumps(name)}:{each if isinstance(each, str) else _encoded(each)}"
            for name, each in members.items()
        )
        + "}"
    )


def _bound(value: Any, kind: pa.DataType, *, is_upper: int) -> str | None:
    """A bound as JSON, or None where no text is one for every reader.

    Args:
        value: the least or greatest value; of dates the day, of times the microsecond from 1970.
        kind: of the column.
        is_upper: whether it is the greatest one.
    """
    if pa.types.is_string(kind):
        text = _upper_text(value) if is_upper else value[:_PREFIX]
        return None if text is None else json.dumps(text, ensure_ascii=False)
    if pa.types.is_date(kind):
        day = _day(value)
        return None if day is None else json.dumps(day)
    if pa.types.is_timestamp(kind):
        ms = -(-value // _MS) if is_upper else value // _MS
        days, rest = divmod(ms, 86_400_000)
        day = _day(days)
        if day is None:
            return None
        clock = str(np.datetime64(rest, "ms"))[11:]
        return json.dumps(f"{day}T{clock}{'Z' if kind.tz else ''}")
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not value:
        return "0.0" if is_upper else "-0.0"  # which are equal, and not to every reader
    return json.dumps(value)


def _day(days: int) -> str | None:
    ordinal = _EPOCH + days
    if not date(_FIRST_YEAR, 1, 1).toordinal() <= ordinal <= date(_LAST_YEAR, 12, 31).toordinal():
        return None
    return date.fromordinal(ordinal).isoformat()


def _upper_text(text: str) -> str | None:
    """A text that is no less than another one, by bytes of UTF-8, of about 32 characters; None: there is none."""
    if _units(text) <= _PREFIX:
        return text
    kept = 0
    units = 0
    for character in text:
        width = 2 if ord(character) >= _BMP else 1
        if units + width > _PREFIX:
            break
        kept += 1
        units += width
    while kept < len(text) and text[kept] == _LAST:
        kept += 1
        if kept > 2 * _PREFIX:
            return None
    if kept == len(text):
        return text
    return text[:kept] + (_BELOW_LAST if text[kept] < _BELOW_LAST else _LAST)


def _units(text: str) -> int:
    return len(text) + sum(ord(character) >= _BMP for character in text)
