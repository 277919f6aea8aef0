"""Findings of `inspect --check` and `upgrade-v3 --check` as text. What comes from a table passes `printable`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from iceberg_cli.cli.render import printable
from iceberg_cli.plan.text import count

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN = 5  # of each rule, unless --verbose
_STYLES = {"blocking": "bold red", "error": "bold red", "warning": "yellow", "info": ""}


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
        _show_rows(target, f"{severity}: {rule}", rows, left_out=left_out, verbose=verbose)
        target.print(printable(f"  specification: {rows[0]['section']}"))
        target.print(printable(f"  to do: {rows[0]['remedy']}"))
    _show_counts(target, document, deep_reads)


def show_preflight(target: Console, found: Sequence[Mapping[str, str]], *, verbose: bool) -> None:
    """Print by rule what is wrong where, and the commands that remove it or show more of it."""
    for (rule, severity), group in groupby(found, lambda row: (row["id"], row["severity"])):
        rows = list(group)
        _show_rows(target, f"{severity}: {rule}", rows, left_out=0, verbose=verbose)
        for remedy in dict.fromkeys(row["remedy"] for row in rows):
            # Wrapped by the terminal, not by us: what is copied is one line.
            target.print(printable(f"  way out, or more: {remedy}"), soft_wrap=True)


def _show_rows(
    target: Console, heading: str, rows: Sequence[Mapping[str, str]], *, left_out: int, verbose: bool
) -> None:
    severity = rows[0]["severity"]
    target.print(printable(f"{heading} ({len(rows) + left_out:,})"), style=_STYLES[severity])
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
