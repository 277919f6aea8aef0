"""Rows of a table as `inspect` shows them, whatever the format: columns of Arrow, JSON, and text."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from iceberg_cli.encoding.json_values import json_lines
from iceberg_cli.encoding.projection import Field, mismatches
from iceberg_cli.errors import UsageError
from iceberg_cli.plan.inspection import NUMBER, TEXT, Column, Part, Row
from iceberg_cli.plan.text import did_you_mean

_CHUNK_ROWS: Final = 4_096  # as text at once
_SHOWN_LENGTH: Final = 60  # of a value, in text
_MOST_FILES: Final = 512  # data files that are read at once
_ROUND_BYTES: Final = 256 << 20  # of these
Context = TypeVar("Context")


class SampledFiles(NamedTuple, Generic[Context]):
    """Data files whose rows may be shown.

    Args:
        rows: a row for each file.
        size: the column that has the size of a file in bytes.
        records: the column that has the number of its rows; below 1: not known.
        path: the column that has its path.
        context: what else there is to know of them all.
    """

    rows: pa.Table
    size: str
    records: str
    path: str
    context: Context

    def in_order(self) -> pa.Table:
        """The files, the smallest first: fewest bytes are read for a few rows."""
        return self.rows.sort_by([(self.size, "ascending"), (self.path, "ascending")])

    def enough(self, files: pa.Table, rows: int | None) -> int:
        """How many of some files are read at once: as many as have so many rows, and at least one."""
        records = np.cumsum(np.maximum(files[self.records].to_numpy(), 1))
        sizes = np.cumsum(files[self.size].to_numpy())
        most = min(_MOST_FILES, int(np.searchsorted(sizes, _ROUND_BYTES)) + 1)
        return most if rows is None else max(1, min(most, int(np.searchsorted(records, rows)) + 1))


class SampleInspector(ABC, Generic[Context]):
    """Reads rows of one state of a table, deletes applied: the base of those of the formats.

    Args:
        columns: names of the top-level columns to show, in their order; none: all.
    """

    def __init__(self, *, columns: Sequence[str]) -> None:
        self._names = columns
        self._mismatches: dict[str, str] = {}
        self.notes: list[str] = []  # what was noticed in reading the rows

    @property
    @abstractmethod
    def location(self) -> str:
        """The table's folder."""

    @property
    @abstractmethod
    def _state_warnings(self) -> Sequence[str]:
        """What was passed over in reading the state."""

    @abstractmethod
    def header(self, what: str) -> dict[str, Any]:
        """The first fields of the document."""

    @abstractmethod
    def _every_field(self) -> Sequence[tuple[Field, str, str]]:
        """The columns of the state, each with its type in the format's words, and what its values are shown as."""

    @abstractmethod
    def _files(self) -> Iterator[SampledFiles[Context]]:
        """The data files of the state, as they are read."""

    @abstractmethod
    def _of_files(
        self, fields: Sequence[Field], files: pa.Table, context: Context, limit: int | None
    ) -> Iterator[pa.Table]:
        """Rows of data files.

        Args:
            fields: of the rows.
            files: rows of `SampledFiles`.
            context: of these.
            limit: at most about so many rows.
        """

    def _rows(self, fields: Sequence[Field], limit: int | None) -> Iterator[pa.Table]:
        """Rows with these columns, at most about as many as the limit."""
        left = limit
        for found in self._files():
            files, start = found.in_order(), 0
            while start < files.num_rows:
                some = files.slice(start, found.enough(files.slice(start), left)).combine_chunks()
                start += some.num_rows
                for table in self._of_files(fields, some, found.context, left):
                    yield table
                    if left is not None:
                        left -= table.num_rows
                        if left <= 0:
                            return

    @cached_property
    def chosen(self) -> Sequence[tuple[Field, str, str]]:
        """The columns that are shown.

        Raises:
            UsageError: the table has no column of that name.
        """
        every = self._every_field()
        if not self._names:
            return every
        by_name = {field.name: (field, type_, note) for field, type_, note in every}
        for name in self._names:
            if name not in by_name:
                raise UsageError(
                    f"The table has no column {name!r}.{did_you_mean(name, by_name)}",
                    next_step=f"Its columns: {', '.join(by_name) or 'none'}.",
                )
        return [by_name[name] for name in dict.fromkeys(self._names)]

    @property
    def warnings(self) -> Sequence[str]:
        """What was passed over, and the columns whose values are not shown as they are, as far as rows were read."""
        notes = [f"column {field.name} is {type_}: {note}" for field, type_, note in self.chosen if note]
        nulls = [f"some values are shown as null: {reason}" for reason in self._mismatches.values()]
        return (*self._state_warnings, *notes, *nulls, *self.notes)

    def summary(self, *, recount: bool) -> dict[str, Any]:
        """There is none."""
        raise NotImplementedError

    def summary_text(self, document: Row) -> Iterator[Part]:
        """There is none."""
        raise NotImplementedError

    def rows(self, what: str, *, limit: int | None) -> list[dict[str, Any]]:
        """The rows, in memory."""
        return [json.loads(line) for part in self.lines(what, limit=limit) for line in part.to_pylist()]

    def text_of(self, what: str, rows: Sequence[Row]) -> tuple[Sequence[Column], Sequence[Row]]:  # noqa: ARG002
        """The columns as text: long values are cut."""
        kinds = [(field.name, _kind(field.type)) for field, _, _ in self.chosen]
        return [Column(name, _cut(name), kind) for name, kind in kinds], rows

    @staticmethod
    def newest_last(what: str) -> bool:  # noqa: ARG004 - the port's signature
        """Whether a limit keeps the end of the rows: no."""
        return False

    @staticmethod
    def streams(what: str) -> bool:  # noqa: ARG004
        """Whether rows come by `lines` and `tables`: yes."""
        return True

    def head(self, what: str) -> dict[str, Any]:  # noqa: ARG002
        """The columns with their types."""
        return {"columns": [{"name": field.name, "type": type_} for field, type_, _ in self.chosen]}

    def tables(self, what: str, *, limit: int | None) -> Iterator[pa.Table]:  # noqa: ARG002
        """Rows as columns of `schema`.

        Raises:
            CorruptFile: a file is gone or cannot be read. Refused: one is encrypted.
        """
        left = limit
        for table in self._rows([field for field, _, _ in self.chosen], limit):
            part = table if left is None else table.slice(0, left)
            self._mismatches |= mismatches(part)
            if part.num_rows:
                yield part
            if left is not None:
                left -= part.num_rows
                if not left:
                    return

    def lines(self, what: str, *, limit: int | None, before: str = "", after: str = "") -> Iterator[pa.Array]:
        """Rows as JSON objects, one string for each, between `before` and `after`."""
        for table in self.tables(what, limit=limit):
            for start in range(0, table.num_rows, _CHUNK_ROWS):
                yield json_lines(table.slice(start, _CHUNK_ROWS), before=before, after=after)

    def schema(self, what: str) -> pa.Schema:  # noqa: ARG002
        """The columns."""
        return pa.schema([field.arrow() for field, _, _ in self.chosen])


def _kind(type_: Any) -> str:
    if not isinstance(type_, pa.DataType):
        return TEXT
    types = pa.types
    return NUMBER if types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_) else TEXT


def _cut(name: str) -> Callable[[Row], object]:
    def text(row: Row) -> object:
        value = row[name]
        if value is None:
            return "null"
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)  # it may be an id: without commas
        if isinstance(value, (dict, list, bool)):
            value = json.dumps(value, ensure_ascii=False)
        if isinstance(value, str) and len(value) > _SHOWN_LENGTH:
            return f"{value[: _SHOWN_LENGTH - 3]}..."
        return value

    return text
