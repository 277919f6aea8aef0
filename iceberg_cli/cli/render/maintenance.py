"""What came of the maintenance of many tables, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.cli.render.layout import GAP
from iceberg_cli.fleet.calls.maintenance_result import FAILED, OUTCOMES, SKIPPED
from iceberg_cli.fleet.verb_run import SKIPS, STATUSES
from iceberg_cli.plan.inspection import GIST, ID, NAME, NUMBER, SIZE, STATE, Column
from iceberg_cli.plan.text import count, listed, size

if TYPE_CHECKING:
    from iceberg_cli.cli.render.surface import Surface
    from iceberg_cli.fleet.calls.maintenance_result import MaintenanceTotals
    from iceberg_cli.fleet.verb_run import VerbRun

_TEXTS: Final = {
    FAILED: "failed",
    "left": "left undone",
    "blocked": "blocked",
    "worked_on": "worked on",
    "due": "to be worked on",
    "not_due": "with nothing due",
    SKIPPED: "skipped",
    "held": "held",
    "outside_window": "outside their window",
    "in_no_policy": "in no policy",
    "busy": "worked on by somebody else",
    "same_table": "another name of a table",
}


def is_printed(run: VerbRun) -> bool:
    """Whether text has a run also without --verbose: what is not due and not tended to is most of a fleet."""
    return run.status not in ("not_due", SKIPPED)


def show_runs(screen: Surface, rows: Sequence[Mapping[str, Any]], *, dry: bool) -> None:
    """Print the rows of `maintenance/1`."""
    columns = (
        Column("table", lambda row: row["table"]["name"], NAME),
        Column("verb", lambda row: row["operation"] or "", ID),
        Column("status", "status", STATE),
        Column("files", lambda row: row["deleted_files_count"] or "", NUMBER, leaves=2),
        Column("frees" if dry else "freed", lambda row: row["reclaimed_bytes"] or "", SIZE, leaves=3),
        Column("why", "reason", GIST, leaves=1),
        Column("operation", lambda row: row["operation_id"] or "", ID, seldom=True, leaves=1),
    )
    # Tables come as they are ready; those that are worked on side by side would stand in another order each day.
    screen.grid(columns, sorted(rows, key=lambda row: str(row["table"]["name"])))


def show_maintenance_totals(
    screen: Surface, totals: MaintenanceTotals, left: Sequence[Mapping[str, Any]], *, dry: bool
) -> None:
    """Print sums over the runs of verbs, and how many a bound left undone."""
    words = [f"{number:,} {_TEXTS[name]}" for name in OUTCOMES if (number := totals.outcomes[name])]
    if skips := [f"{number:,} {_TEXTS[kind]}" for kind in SKIPS if (number := totals.skips[kind])]:
        words[-1] += f" ({', '.join(skips)})"
    screen.gap()
    screen.line(
        f"{count(len(totals.tables), 'tables')}: {', '.join(words) if words else 'none'}", style="bold"
    )
    verbs = [
        f"{number:,} {status.replace('_', ' ')}"
        for status in STATUSES
        if (number := totals.statuses[status] - (totals.skips.total() if status == SKIPPED else 0))
    ]
    if verbs:
        screen.line(f"Verbs: {listed(verbs)}")
    if totals.files:
        verb = "would be deleted" if dry else "deleted"
        screen.line(f"{count(totals.files, 'files')} of {size(totals.size_bytes)} {verb}")
    if left:
        screen.line(f"{count(len(left), 'verbs')} left undone: the next run goes on")
    _show_failed(screen, totals)


def _show_failed(screen: Surface, totals: MaintenanceTotals) -> None:
    """Print whole why runs did not end well, each with what to do where that is known."""
    if totals.failed:
        screen.gap()
    for run in sorted(totals.failed, key=lambda run: run.name):
        what = f"{run.name}: {run.verb}" if run.verb else run.name
        screen.line(f"{what}: {run.status.replace('_', ' ')}: {run.reason}", style="bold red")
        if run.error is not None and run.error.next_step:
            screen.line(run.error.next_step, indent=GAP)
    if more := totals.failures - len(totals.failed):
        screen.line(f"and {more:,} more, which --jsonl has the reasons of")
