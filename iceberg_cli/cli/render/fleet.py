"""Many tables as text: those that patterns mean, what is due in them, and what came of their maintenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.fleet.calls.maintenance_result import FAILED, OUTCOMES, SKIPPED
from iceberg_cli.fleet.calls.survey_result import is_bad
from iceberg_cli.fleet.grades import GRADES
from iceberg_cli.fleet.maintenance import SKIPS, STATUSES
from iceberg_cli.plan.inspection import ID, NAME, NUMBER, PATH, SIZE, STATE, TEXT, TIME, Column
from iceberg_cli.plan.text import count, listed, size

if TYPE_CHECKING:
    from iceberg_cli.cli.render.surface import Surface
    from iceberg_cli.fleet.calls.maintenance_result import MaintenanceTotals
    from iceberg_cli.fleet.calls.survey_result import SurveyTotals
    from iceberg_cli.fleet.maintenance import VerbRun

_MOST_BAD: Final = 20  # whose reasons are printed whole, whatever the width
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


def show_tables(screen: Surface, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows of `list/1`."""
    columns = (
        Column("table", "name", NAME),
        Column("format", "format", ID),
        Column(
            "location", lambda row: "" if row["location"] == row["name"] else row["location"], PATH, leaves=1
        ),
        Column("also", lambda row: ", ".join(row["also"]), NAME),
        Column("open", lambda row: row.get("open_operations") or "", NUMBER),
    )
    screen.grid([column for column in columns if any(column.of(row) for row in rows)], rows)


def show_surveyed(screen: Surface, totals: SurveyTotals, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows of `fleet/1`, and first why tables are broken or unreadable."""

    def freed(row: Mapping[str, Any]) -> int | str:
        sizes = [each["bytes"] for each in row["due"] if not each["blocked_by"]]
        return sum(size or 0 for size in sizes) if sizes else ""

    columns = [
        Column("table", lambda row: row["table"]["name"], NAME),
        Column("grade", "grade", STATE),
        Column("frees", freed, SIZE),
        Column("due", lambda row: _verbs(row["due"], all_of_them=screen.layout.verbose), ID),
        Column("snapshots", "snapshots", NUMBER, leaves=6),
        Column("oldest", "oldest_snapshot_ms", TIME, leaves=5),
        Column("files", "files", NUMBER, leaves=4),
        Column("small", "small_files", NUMBER, leaves=3),
        Column("deleted", lambda row: _percent(row["delete_ratio"]), NUMBER, leaves=3),
        Column("manifests", "manifests", NUMBER, leaves=2),
        Column("times needed", "manifest_target_ratio", NUMBER, seldom=True, leaves=1),
        Column("since checkpoint", "log_versions_since_checkpoint", NUMBER, seldom=True, leaves=1),
        Column("metadata", lambda row: row["metadata_bytes"] or "", SIZE, seldom=True, leaves=1),
    ]
    if any(row["open_operations"] for row in rows):
        columns.insert(4, Column("open", lambda row: row["open_operations"] or "", NUMBER, leaves=7))
    if totals.money:
        columns.append(Column("a month", lambda row: _money(row["cost"]), ID, leaves=7))
    bad = [row for row in rows if is_bad(row)]
    for row in bad[:_MOST_BAD]:
        screen.line(f"{row['table']['name']} is {row['grade']}: {row['rule']}", style="bold red")
    if len(bad) > _MOST_BAD:
        screen.line(f"({len(bad) - _MOST_BAD:,} more, which --verbose and --jsonl give the reasons of)")
    if bad:
        screen.gap()
    columns.append(Column("why", "rule", TEXT, leaves=7))
    screen.grid(columns, rows)


def _verbs(due: Sequence[Mapping[str, Any]], *, all_of_them: bool) -> str:
    """The verb that frees most, and how many others are due; or all of them."""
    names = [each["operation"] for each in due]
    if all_of_them or len(names) < 2:
        return ", ".join(names)
    return f"{names[0]} +{len(names) - 1}"


def _percent(ratio: float | None) -> str | None:
    return f"{ratio:.1%}" if ratio else None


def _money(cost: Mapping[str, Any] | None) -> str | None:
    return f"{cost['month']:,.2f} {cost['currency']}" if cost and cost["month"] else None


def show_survey_totals(screen: Surface, totals: SurveyTotals, *, shown: int, quick: bool) -> None:
    """Print sums over the tables of a survey, of which so many are shown."""
    grades = [f"{totals.grades[grade]:,} {grade}" for grade in GRADES if totals.grades[grade]]
    screen.gap()
    screen.line(f"{count(totals.tables, 'tables')}: {listed(grades) if grades else 'none'}", style="bold")
    if shown < totals.tables:
        screen.line(f"{totals.tables - shown:,} more tables are not shown")
    if quick:
        screen.line(
            "Not looked at, but for what an earlier survey read: manifests, and so bytes and other verbs"
        )
    if operations := totals.sums["open_operations"]:
        screen.line(f"{count(operations, 'open operations')}: `resume TABLE --list` shows them")
    if totals.due:
        sums = totals.sums
        money = "".join(f", {value:,.2f} {name} a month" for name, value in sorted(totals.money.items()))
        screen.line(
            f"What is due in {count(totals.due, 'tables')} frees {size(sums['freed_bytes'])} in"
            f" {count(sums['freed_files'], 'files')}{money}"
        )


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
        Column("why", "reason", TEXT, leaves=4),
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


def show_left_out(screen: Surface, views: int) -> None:
    """Print how many views were among the tables, where there are any."""
    if views:
        screen.line(f"{count(views, 'views')} left out")
