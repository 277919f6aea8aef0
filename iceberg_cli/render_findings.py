"""What `inspect --check` found, as text. What comes from a table passes `printable`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

from iceberg_cli.render import count, printable

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN = 5  # of each rule, unless all are asked for
_STYLES = {"error": "bold red", "warning": "yellow", "info": ""}


def show_findings(target: Console, document: Mapping[str, Any], *, verbose: bool) -> None:
    """Rule by rule: what is wrong where, the section that says so, and what to do."""
    for (rule, severity), group in groupby(document["findings"], lambda row: (row["id"], row["severity"])):
        rows = list(group)
        left_out = document["left_out"].get(rule, 0)
        target.print(printable(f"{severity}: {rule} ({len(rows) + left_out:,})"), style=_STYLES[severity])
        shown = rows if verbose else rows[:_SHOWN]
        for row in shown:
            target.print(printable(f"  {row['where']}: {row['message']}"))
        more = left_out + len(rows) - len(shown)
        if more:
            hint = "" if verbose else "; --verbose shows more"
            target.print(f"  and {more:,} more{hint}")
        target.print(printable(f"  specification: {rows[0]['section']}"))
        target.print(printable(f"  to do: {rows[0]['remedy']}"))
    checked = document["checked"]
    parts = [count(checked[name], name) for name in ("snapshots", "manifests", "files")]
    deep = "" if document["deep"] else "; --deep opens Puffin and Parquet files too"
    target.print(printable(f"{document['table']}: checked {', '.join(parts)}{deep}."))
    counts = document["counts"]
    if not any(counts.values()):
        target.print("Nothing was found.")
    else:
        worse = f"{count(counts['error'], 'errors')}, {count(counts['warning'], 'warnings')}"
        target.print(f"Found {worse}, {counts['info']:,} for information.")
