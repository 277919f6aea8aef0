"""What is due in many tables, as text."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.fleet.calls.survey_result import is_bad
from iceberg_cli.fleet.grades import GRADES
from iceberg_cli.plan.inspection import GIST, ID, NAME, NUMBER, SIZE, STATE, TIME, Column
from iceberg_cli.plan.text import count, listed, size

if TYPE_CHECKING:
    from iceberg_cli.cli.render.surface import Surface
    from iceberg_cli.fleet.calls.survey_result import SurveyTotals

_MOST_BAD: Final = 20  # whose reasons are printed whole, whatever the width


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
    columns.append(Column("why", "rule", GIST, leaves=7))
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


def show_verdict(screen: Surface, totals: SurveyTotals) -> None:
    """Print how many tables have which grade, and what carrying out what is due would free."""
    grades = [f"{totals.grades[grade]:,} {grade}" for grade in GRADES if totals.grades[grade]]
    screen.line(f"{count(totals.tables, 'tables')}: {listed(grades) if grades else 'none'}", style="bold")
    if totals.due:
        sums = totals.sums
        money = "".join(f", {value:,.2f} {name} a month" for name, value in sorted(totals.money.items()))
        screen.line(
            f"What is due in {count(totals.due, 'tables')} frees {size(sums['freed_bytes'])} in"
            f" {count(sums['freed_files'], 'files')}{money}"
        )
    screen.gap()


def show_rest(screen: Surface, totals: SurveyTotals, *, shown: int, quick: bool) -> None:
    """Print what a survey did not show or look at, and which commands show more.

    Args:
        screen: where to.
        totals: of all tables.
        shown: how many tables are.
        quick: see `Survey`.
    """
    screen.gap()
    if shown < totals.tables:
        screen.line(f"{totals.tables - shown:,} more tables are not shown")
    if quick:
        screen.line(
            "Not looked at, but for what an earlier survey read: manifests, and so bytes and other verbs"
        )
    for verb, tables in sorted(totals.offers.items()):
        screen.line(
            f"{verb} has something to do in {count(tables, 'tables')}, which makes nothing due:"
            f" `plan TABLE {verb}` shows it"
        )
    if operations := totals.sums["open_operations"]:
        screen.line(f"{count(operations, 'open operations')}: `resume PATTERN --list` shows them")
    if totals.bad:
        screen.line("What is wrong with a broken or unreadable one, and what to do:")
        screen.command(shlex.join(["iceberg-cli", "inspect", totals.bad, "--check"]))
