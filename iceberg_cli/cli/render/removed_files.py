"""The files that a plan removes, each with its kind, size and reason: lines of text, or of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.cli.render.kinds import KIND_NAMES
from iceberg_cli.plan.text import size

if TYPE_CHECKING:
    from iceberg_cli.cli.render.screen import Screen
    from iceberg_cli.plan.plan import Plan

REMOVAL_SCHEMA: Final = "iceberg-cli/removal/1"
_ROWS_AT_ONCE: Final = 1_000  # as Python's objects
_UNKNOWN_SIZE: Final = "?"


def show_files(screen: Screen, plan: Plan) -> None:
    """Print a line for each file, under the kind that it is of."""
    kind = None
    for row in _rows(plan):
        if row["kind"] != kind:
            kind = row["kind"]
            screen.gap()
            screen.line(f"{KIND_NAMES[kind]}:", style="bold")
        bytes_ = _UNKNOWN_SIZE if row["size_bytes"] is None else size(row["size_bytes"])
        screen.unwrapped(f"{bytes_:>10}  {row['path']}  {row['reason']}".rstrip())


def print_lines(plan: Plan) -> None:
    """Write a line of JSON for each file on standard output."""
    head = {"schema": REMOVAL_SCHEMA, "table": plan.table["name"], "operation": plan.verb}
    for row in _rows(plan):
        shown = {name: row[name] for name in ("kind", "path", "size_bytes", "reason")}
        sys.stdout.write(json.dumps({**head, **shown}) + "\n")


def _rows(plan: Plan) -> Iterator[dict[str, Any]]:
    """The rows of a plan's removals, in the order of their deletion."""
    if plan.removals is None:
        return
    for start in range(0, plan.removals.count, _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, plan.removals.count)
        yield from plan.removals.read_rows(range(start, stop)).to_pylist()
