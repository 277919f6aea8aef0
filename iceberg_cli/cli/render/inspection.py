"""Inspections as text, by what a format says of its columns and summaries. What comes from a table is `printable`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.cli.render import printable, table_of
from iceberg_cli.plan.inspection import (
    DUE,
    FINDING,
    NUMBER,
    PATH,
    SIZE,
    TIME,
    Column,
    Grid,
    Lines,
    Row,
)
from iceberg_cli.plan.text import count, moment, size

if TYPE_CHECKING:
    from rich.console import Console

_STYLES: Final = {FINDING: "yellow", DUE: "bold"}


def show_summary(target: Console, parts: Iterable[Lines | Grid]) -> None:
    """Print the parts of a summary."""
    for part in parts:
        match part:
            case Lines(lines, about):
                for line in lines:
                    target.print(printable(line), style=_STYLES.get(about))
            case Grid(titles, rows, right):
                table_of(target, titles, rows, right=right)


def show_rows(
    target: Console,
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    location: str,
    total: int,
    more: bool,
    verbose: bool,
) -> None:
    """Print rows as one table.

    Args:
        target: the console.
        columns: of the rows.
        rows: as in the JSON document.
        location: of the table; paths below it are shown relative to it.
        total: how many rows the JSON document has, of which one may be several here.
        more: whether rows were left out.
        verbose: also show columns that seldom matter.
    """
    folder = location.rstrip("/") + "/"
    columns = [column for column in columns if verbose or not column.seldom]
    shown = [[_text(column.of(row), column.kind, folder) for column in columns] for row in rows]
    right = [column.title for column in columns if column.kind in {NUMBER, SIZE}]
    table_of(target, [column.title for column in columns], shown, right=right)
    hint = "; there are more: --limit N, --verbose or --output FILE" if more else ""
    target.print(f"({count(total, 'rows')}{hint})")


def _text(value: Any, kind: str, folder: str) -> object:
    if kind == SIZE:
        return size(value)
    if value is None:
        return ""
    if kind == TIME:
        return moment(value)
    return value.removeprefix(folder) if kind == PATH else value
