"""The files that a plan removes or rewrites, each with its kind, size and reason: lines of text, or of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.cli.render.kinds import KIND_NAMES
from iceberg_cli.cli.render.rewrite import reason_text
from iceberg_cli.plan.text import size

if TYPE_CHECKING:
    from iceberg_cli.cli.render.screen import Screen
    from iceberg_cli.plan.plan import Plan

REMOVAL_SCHEMA: Final = "iceberg-cli/removal/1"
REWRITTEN_SCHEMA: Final = "iceberg-cli/rewritten-file/1"
_ROWS_AT_ONCE: Final = 1_000  # as Python's objects
_UNKNOWN_SIZE: Final = "?"


def count_of(plan: Plan) -> int:
    """How many files there are to show."""
    removed = 0 if plan.removals is None else plan.removals.count
    return removed + (0 if plan.groups is None else len(plan.groups.inputs))


def show_files(screen: Screen, plan: Plan) -> None:
    """Print a line for each file, under the kind that it is of."""
    kind = None
    for row in _removed(plan):
        if row["kind"] != kind:
            kind = row["kind"]
            screen.gap()
            screen.line(f"{KIND_NAMES[kind]}:", style="bold")
        bytes_ = _UNKNOWN_SIZE if row["size_bytes"] is None else size(row["size_bytes"])
        screen.unwrapped(f"{bytes_:>10}  {row['path']}  {row['reason']}".rstrip())
    group = None
    for row in _rewritten(plan):
        if row["group"] != group:
            group = row["group"]
            screen.gap()
            of = f" of {row['partition']}" if row["partition"] else ""
            screen.line(f"group {group}{of}, rewritten for {row['reason']}:", style="bold")
        screen.unwrapped(f"{size(row['size_bytes']):>10}  {row['path']}")


def print_lines(plan: Plan) -> None:
    """Write a line of JSON for each file on standard output."""
    about = {"table": plan.table["name"], "operation": plan.verb}
    for row in _removed(plan):
        shown = {name: row[name] for name in ("kind", "path", "size_bytes", "reason")}
        _write({"schema": REMOVAL_SCHEMA, **about, **shown})
    for row in _rewritten(plan):
        _write({"schema": REWRITTEN_SCHEMA, **about, **row})


def _write(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")


def _removed(plan: Plan) -> Iterator[dict[str, Any]]:
    """The rows of a plan's removals, in the order of their deletion."""
    if plan.removals is None:
        return
    for start in range(0, plan.removals.count, _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, plan.removals.count)
        yield from plan.removals.read_rows(range(start, stop)).to_pylist()


def _rewritten(plan: Plan) -> Iterator[dict[str, Any]]:
    """The files of a plan's groups, with the partition and the reason of their group, in the order of the groups."""
    if plan.groups is None:
        return
    rows, inputs = plan.groups.rows, plan.groups.inputs.sort_by("group")
    groups = {
        number: {"group": number, "partition": partition, "reason": reason_text(reason)}
        for number, partition, reason in zip(
            *(rows[name].to_pylist() for name in ("number", "partition", "reason")), strict=True
        )
    }
    for batch in inputs.select(["group", "path", "size_bytes"]).to_batches(max_chunksize=_ROWS_AT_ONCE):
        for row in batch.to_pylist():
            yield {**row, **groups[row["group"]]}
