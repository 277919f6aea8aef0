"""Inspections and findings as text: rows and summaries by what a format says of them, findings by rule.

What comes from a table passes `printable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
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
_SHOWN: Final = 5  # findings of each rule, unless --verbose
_SEVERITIES: Final = {"blocking": "bold red", "error": "bold red", "warning": "yellow", "info": ""}


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


def show_findings(target: Console, document: Mapping[str, Any], *, deep_reads: str, verbose: bool) -> None:
    """Print by rule what is wrong where, the section of the specification, and what to do.

    Args:
        target: the console.
        document: of the check.
        deep_reads: what --deep does beyond.
        verbose: also print what is left out otherwise.
    """
    for (rule, severity), group in groupby(document["findings"], lambda row: (row["id"], row["severity"])):
        rows = list(group)
        left_out = document["left_out"].get(rule, 0)
        _show_rule(target, f"{severity}: {rule}", rows, left_out=left_out, verbose=verbose)
        target.print(printable(f"  specification: {rows[0]['section']}"))
        target.print(printable(f"  to do: {rows[0]['remedy']}"))
    _show_counts(target, document, deep_reads)


def show_preflight(target: Console, found: Sequence[Mapping[str, str]], *, verbose: bool) -> None:
    """Print by rule what is wrong where, and the commands that remove it or show more of it."""
    for (rule, severity), group in groupby(found, lambda row: (row["id"], row["severity"])):
        rows = list(group)
        _show_rule(target, f"{severity}: {rule}", rows, left_out=0, verbose=verbose)
        for remedy in dict.fromkeys(row["remedy"] for row in rows):
            # Wrapped by the terminal, not by us: what is copied is one line.
            target.print(printable(f"  way out, or more: {remedy}"), soft_wrap=True)


def _show_rule(
    target: Console, heading: str, rows: Sequence[Mapping[str, str]], *, left_out: int, verbose: bool
) -> None:
    severity = rows[0]["severity"]
    target.print(printable(f"{heading} ({len(rows) + left_out:,})"), style=_SEVERITIES[severity])
    shown = rows if verbose else rows[:_SHOWN]
    for row in shown:
        target.print(printable(f"  {row['where']}: {row['message']}"))
    more = left_out + len(rows) - len(shown)
    if more:
        hint = "" if verbose else "; --verbose shows more"
        target.print(f"  and {more:,} more{hint}")


def _show_counts(target: Console, document: Mapping[str, Any], deep_reads: str) -> None:
    checked = document["checked"]
    parts = [count(number, name) for name, number in checked.items()]
    deep = "" if document["deep"] else f"; --deep {deep_reads}"
    target.print(printable(f"{document['table']['name']}: checked {', '.join(parts)}{deep}."))
    counts = document["counts"]
    if not any(counts.values()):
        target.print("Nothing was found.")
    else:
        worse = f"{count(counts['error'], 'errors')}, {count(counts['warning'], 'warnings')}"
        target.print(f"Found {worse}, {counts['info']:,} for information.")
