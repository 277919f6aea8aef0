"""Inspections and findings as text: rows and summaries by what a format says of them, findings by rule."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from iceberg_cli.cli.render.layout import GAP
from iceberg_cli.plan.column_reads import share_opened
from iceberg_cli.plan.inspection import HEADLINE, NAME, NUMBER, Column, Lines, Part, Row
from iceberg_cli.plan.text import count, listed

if TYPE_CHECKING:
    from iceberg_cli.cli.render.surface import Surface
    from iceberg_cli.formats import Inspector

_SHOWN_ROWS: Final = 50
_ABOUT_ALL: Final = ("reads", "reads_note")  # fields of a document that are about all rows
_SHOWN: Final = 5  # findings of each rule, unless --verbose
_SEVERITIES: Final = {"blocking": "bold red", "error": "bold red", "warning": "yellow", "info": ""}


def show_summary(screen: Surface, parts: Iterable[Part], *, folder: str) -> None:
    """Print the parts of a summary, a blank line between them; `folder`: paths below it are seen from there."""
    for part in parts:
        if not any(part):
            continue
        if not (isinstance(part, Lines) and part.about == HEADLINE):
            screen.gap()
        screen.part(part, folder=folder)


class ReadRows(NamedTuple):
    """Rows as text.

    Args:
        columns: of the lines.
        lines: of the rows that are shown.
        total: how many rows these are.
        more: whether there are others that nobody has set a limit for.
        head: the fields of the document beside them.
    """

    columns: Sequence[Column]
    lines: Sequence[Row]
    total: int
    more: bool
    head: Mapping[str, Any]


def read_rows(inspector: Inspector, what: str, *, limit: int | None, verbose: bool = False) -> ReadRows:
    """Read rows to show them; without a limit, and unless `verbose`, not more than fit a few screens."""
    most_rows = limit if limit is not None or verbose else _SHOWN_ROWS
    more = False
    head: Mapping[str, Any] = {}
    if inspector.streams(what):
        head = inspector.head(what)
        beside = {name: value for name, value in head.items() if name not in _ABOUT_ALL}
        parts = inspector.lines(what, limit=None if most_rows is None else most_rows + 1)
        rows = [beside | json.loads(line) for part in parts for line in part.to_pylist()]
    else:
        rows = inspector.rows(what, limit=None if most_rows is None else most_rows + 1)
    if most_rows is not None and len(rows) > most_rows:
        more = limit is None
        rows = rows[-most_rows:] if inspector.newest_last(what) else rows[:most_rows]
    columns, lines = inspector.text_of(what, rows)
    return ReadRows(columns, lines, len(rows), more, head)


def show_rows(screen: Surface, rows: ReadRows, *, location: str) -> None:
    """Print rows as one table, and what reads open of the files where these are the rows.

    Args:
        screen: where to.
        rows: as `read_rows` gives them.
        location: of the table; paths below it are shown relative to it.
    """
    if rows.lines:
        screen.grid(rows.columns, rows.lines, folder=location.rstrip("/") + "/")
        screen.gap()
    hint = "; there are more: --limit N, --verbose or --output FILE" if rows.more else ""
    screen.line(f"({count(rows.total, 'rows')}{hint})")
    if rows.head.get("reads"):
        screen.gap()
        screen.line("A read of one value opens, of the files of its partition:")
        screen.grid(_READS, rows.head["reads"])
    if rows.head.get("reads_note"):
        screen.line(f"Files that reads of one value open: {rows.head['reads_note']}.")


def _opened(row: Row) -> str:
    """Of the files those that a read opens, as a bar."""
    filled = round(_BAR * share_opened(row))
    return f"{'#' * filled}{'.' * (_BAR - filled)}"


_BAR: Final = 20
_READS: Final = (
    Column("column", "column", NAME),
    Column("opened", lambda row: f"{row['opened']:,.1f}", NUMBER),
    Column("of files", lambda row: f"{row['files']:,.1f}", NUMBER),
    Column("", _opened),
)


def show_findings(screen: Surface, document: Mapping[str, Any], *, deep_reads: str) -> None:
    """Print how many findings there are, then by rule what is wrong where, the specification's section, and what to do.

    Args:
        screen: where to; whether it is verbose decides how many are shown of each rule.
        document: of the check.
        deep_reads: what --deep does beyond.
    """
    screen.line(_counts(document), style="bold")
    for (rule, severity), group in groupby(document["findings"], lambda row: (row["id"], row["severity"])):
        rows = list(group)
        _show_rule(screen, f"{severity}: {rule}", rows, left_out=document["left_out"].get(rule, 0))
        screen.line(f"specification: {rows[0]['section']}", indent=GAP)
        screen.line(f"to do: {rows[0]['remedy']}", indent=GAP)
    checked = [count(number, name) for name, number in document["checked"].items()]
    deep = "" if document["deep"] else f"; --deep {deep_reads}"
    screen.gap()
    screen.line(f"{document['table']['name']}: checked {', '.join(checked)}{deep}.")
    compactions = document.get("compactions")
    if compactions and compactions["found"]:
        _show_compactions(screen, compactions)


def _show_compactions(screen: Surface, compactions: Mapping[str, Any]) -> None:
    """Print how many snapshots that say they changed no row were compared with their parents, and why others not."""
    found, left_out, others = compactions["found"], compactions["left_out"], compactions["not_compared"]
    older = f"; {count(left_out, 'older ones')} not looked at: --snapshots N" if left_out else ""
    screen.line(
        "Snapshots that say they changed no row, compared with their parents:"
        f" {compactions['compared']:,} of {found:,}{older}."
    )
    shown = others if screen.layout.verbose else others[:_SHOWN]
    for each in shown:
        screen.line(f"not compared: snapshot {each['snapshot_id']}: {each['reason']}", indent=GAP)
    if len(others) > len(shown):
        screen.line(f"and {len(others) - len(shown):,} more; --verbose shows more", indent=GAP)


def show_preflight(screen: Surface, found: Sequence[Mapping[str, str]]) -> None:
    """Print by rule what is wrong where, and the commands that remove it or show more of it."""
    for (rule, severity), group in groupby(found, lambda row: (row["id"], row["severity"])):
        rows = list(group)
        _show_rule(screen, f"{severity}: {rule}", rows, left_out=0)
        for remedy in dict.fromkeys(row["remedy"] for row in rows):
            screen.command(f"way out, or more: {remedy}")


def _show_rule(screen: Surface, heading: str, rows: Sequence[Mapping[str, str]], *, left_out: int) -> None:
    screen.gap()
    screen.line(f"{heading} ({len(rows) + left_out:,})", style=_SEVERITIES[rows[0]["severity"]])
    shown = rows if screen.layout.verbose else rows[:_SHOWN]
    for row in shown:
        screen.line(f"{row['where']}: {row['message']}", indent=GAP)
    more = left_out + len(rows) - len(shown)
    if more:
        hint = "" if screen.layout.verbose else "; --verbose shows more"
        screen.line(f"and {more:,} more{hint}", indent=GAP)


def _counts(document: Mapping[str, Any]) -> str:
    counts = document["counts"]
    found = [count(counts[name], f"{name}s") for name in ("error", "warning") if counts[name]]
    if counts["info"]:
        found.append(f"{counts['info']:,} for information")
    return f"{listed(found)} found" if found else "No fault was found"
