"""Statistics of a new data file, as its add has them: from its rows, while they are written.

Delta Spark's own are wrong where a column has NaN, and where times have more than milliseconds: a bound that is not
sure is left out, one of times is the next millisecond outwards.

Spec: Delta protocol, "Per-file Statistics"; `compaction-delta.md` D19 to D22 name what writers do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.text_values import stats_texts
from iceberg_cli.encoding.arrow import one_array

PREFIX: Final = 32  # characters of text that a bound has
_LAST: Final = "\U0010ffff"
_BELOW_LAST: Final = "\x7f"  # as Delta Spark ends the upper bound of text that is shortened
_BMP: Final = 0x10000
_MS: Final = 1_000  # microseconds
_DAY_MS: Final = 86_400_000
_EPOCH: Final = date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = (date.min - _EPOCH).days, (date.max - _EPOCH).days  # of the years 1 to 9999
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
        values: dict[str, Any] = {"numRecords": self._records, "tightBounds": True}
        for name in ("minValues", "maxValues", "nullCount"):
            values[name] = {}
        for column, kind in self._leaves("minValues"):
            if column in self._bounds and column not in self._unbounded:
                least, greatest = self._bounds[column]
                _put(values["minValues"], column, _bound(least, kind, is_upper=False))
                _put(values["maxValues"], column, _bound(greatest, kind, is_upper=True))
        for column, nulls in self._nulls.items():
            _put(values["nullCount"], column, nulls)
        structs = pa.array([values], self.kind)
        return FileStatistics(record_count=self._records, json=stats_texts(structs)[0].as_py())

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


def _put(members: dict[str, Any], column: Column, value: Any) -> None:
    """Set the value of a column, which may be in structs."""
    for name in column[:-1]:
        members = members.setdefault(name, {})
    members[column[-1]] = value


def _bound(value: Any, kind: pa.DataType, *, is_upper: bool) -> Any:
    """A bound as Arrow takes it for the column, or None where none is one for every reader.

    Args:
        value: the least or greatest value; of dates the day, of times the microsecond from 1970.
        kind: of the column.
        is_upper: whether it is the greatest one.
    """
    if pa.types.is_string(kind):
        return _upper_text(value) if is_upper else value[:PREFIX]
    if pa.types.is_date(kind):
        return value if _is_known_day(value) else None
    if pa.types.is_timestamp(kind):
        ms = -(-value // _MS) if is_upper else value // _MS
        return ms * _MS if _is_known_day(ms // _DAY_MS) else None
    if isinstance(value, float) and not value:
        return 0.0 if is_upper else -0.0  # which are equal, and not to every reader
    return value


def _is_known_day(days: int) -> bool:
    """Whether every reader of text has the year."""
    return _FIRST_DAY <= days <= _LAST_DAY


def _upper_text(text: str) -> str | None:
    """A text that is no less than another one, by bytes of UTF-8, of about 32 characters; None: there is none."""
    if _units(text) <= PREFIX:
        return text
    kept = 0
    units = 0
    for character in text:
        width = 2 if ord(character) >= _BMP else 1
        if units + width > PREFIX:
            break
        kept += 1
        units += width
    while kept < len(text) and text[kept] == _LAST:
        kept += 1
        if kept > 2 * PREFIX:
            return None
    if kept == len(text):
        return text
    return text[:kept] + (_BELOW_LAST if text[kept] < _BELOW_LAST else _LAST)


def _units(text: str) -> int:
    return len(text) + sum(ord(character) >= _BMP for character in text)
