"""`survey`: what is due in many tables, ranked by what it frees. Never writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from iceberg_cli.cli.commands.carry_out import Metrics, measure
from iceberg_cli.cli.commands.many_tables import (
    DEFAULT_JOBS,
    FleetCommand,
    Jobs,
    JsonLines,
    Outcomes,
    Patterns,
    TableOutput,
    fleet_policy,
    leave_with_worst,
    patterns_of,
    policy_json,
)
from iceberg_cli.cli.commands.measures import measures_of
from iceberg_cli.cli.context import Run, command
from iceberg_cli.cli.options.arguments import ReportOption, integer, positive
from iceberg_cli.errors import UsageError
from iceberg_cli.plan.events import FleetCounted

if TYPE_CHECKING:
    from iceberg_cli.fleet.prices import Prices
    from iceberg_cli.fleet.survey import SurveyedTable

FLEET_SCHEMA: Final = "iceberg-cli/fleet/1"
_MOST_BAD: Final = 20  # whose reasons are printed whole, whatever the width
_LINE_SCHEMA: Final = "iceberg-cli/fleet-table/1"
_PHASE: Final = "looking at tables"
_SORTS: Final = ("freed", "grade", "name")
PolicyOption = Annotated[
    str | None,
    typer.Option("--policy", metavar="FILE", help="The verbs and options of this policy file, by table."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "survey", changes=False)
    def survey(
        run: Run,
        patterns: Patterns = None,
        policy: PolicyOption = None,
        prices: Annotated[
            str | None,
            typer.Option(metavar="FILE", help="TOML with prices: shows what is due as money a month."),
        ] = None,
        jobs: Jobs = None,
        sort: Annotated[
            str, typer.Option(metavar="freed|grade|name", help="What the rows are ranked by.")
        ] = _SORTS[0],
        limit: Annotated[
            int | None, typer.Option(metavar="N", parser=integer, help="Show the first N rows only.")
        ] = None,
        quick: Annotated[
            bool,
            typer.Option(
                "--quick",
                help="Read no manifests: tells of expiries alone, and of no bytes that are not known yet.",
            ),
        ] = False,
        exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit 3 if something is due.")] = False,
        metrics: Metrics = None,
        jsonl: JsonLines = False,
        report: ReportOption = None,
    ) -> None:
        """Show what is due in many tables and what it frees, the most first. Never writes.

        Each table has a grade: ok; due; overdue, which is due and far beyond its bounds; broken, where it breaks its
        specification; unreadable. The rule that gave it stands beside it. Without --policy the verbs are
        expire-snapshots, rewrite-manifests and merge-dvs by the tables' own properties and the defaults.
        """
        from iceberg_cli.fleet.survey import Survey

        measure(metrics, looks=True, of_tables=True)
        if sort not in _SORTS:
            raise UsageError(f"--sort must be freed, grade or name, not {sort!r}")
        if jsonl and limit is not None and "--limit" in run.settings.typed:
            raise UsageError("--limit is about ranked rows, and --jsonl prints each as it is known")
        limit = positive(limit, "--limit")
        chosen = fleet_policy(run, policy)
        fleet = FleetCommand(run, patterns_of(patterns, chosen.file))
        totals = _Totals()
        show = partial(_show, run, totals)
        output = TableOutput(run, FLEET_SCHEMA, _LINE_SCHEMA, show, jsonl=jsonl, report=report)
        outcomes = Outcomes(run, _PHASE)
        surveyed: list[SurveyedTable] = []
        for each in outcomes.of(
            Survey(
                tables=fleet.tables,
                opener=fleet.opener(),
                policy=chosen,
                as_of_ms=run.as_of_ms,
                now_ms=run.started_ms,
                facts=fleet.facts(),
                quick=quick,
                # Without manifests most of the time goes into work that threads do one after the other.
                jobs=positive(jobs, "--jobs") or (1 if quick else DEFAULT_JOBS),
                prices=_prices_in(prices),
                is_streamed=jsonl,
            )
        ):
            totals.add(each)
            for measured in measures_of(each):
                run.on_event(measured)
            if jsonl:
                output.row(each.row)
            else:
                surveyed.append(each)
        run.on_event(totals.counted())
        for place, each in enumerate(sorted(surveyed, key=_rank(sort))):
            output.row(each.row, is_printed=limit is None or place < limit)
        failures = fleet.failures()
        head = {"as_of_ms": run.as_of_ms, "policy": policy_json(chosen.file)}
        output.end(totals.to_json(), {"failed": failures.to_json()}, head=head)
        if not (jsonl or run.json or run.quiet):
            _show_totals(run, totals, shown=min(len(surveyed), limit or len(surveyed)), quick=quick)
            fleet.show_left_out()
        fleet.show_failures(failures)
        leave_with_worst([*outcomes.codes, *failures.codes])
        if exit_code and totals.due:
            raise typer.Exit(3)


def _prices_in(path: str | None) -> Prices | None:
    """The prices of a file, where one is named."""
    if path is None:
        return None
    from iceberg_cli.fleet.prices import load_prices

    return load_prices(path)


class _Totals:
    """Sums over the tables of a survey."""

    def __init__(self) -> None:
        self.tables = 0
        self.due = 0
        self.grades: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        self.money: Counter[str] = Counter()

    def add(self, found: SurveyedTable) -> None:
        """Take a table into account."""
        self.tables += 1
        self.due += found.is_due
        self.grades[found.row["grade"]] += 1
        self.sums["freed_bytes"] += found.freed_bytes
        self.sums["freed_files"] += sum(
            each["files"] or 0 for each in found.row["due"] if not each["blocked_by"]
        )
        for name in ("open_operations", "snapshots", "files", "small_files", "data_bytes", "metadata_bytes"):
            self.sums[name] += found.row[name] or 0
        if (cost := found.row["cost"]) is not None:
            self.money[cost["currency"]] += cost["month"]

    def counted(self) -> FleetCounted:
        """The same for listeners."""
        return FleetCounted(
            what="tables",
            label="grade",
            counts=self.to_json()["grades"],
            due=(self.sums["freed_files"], self.sums["freed_bytes"]),
        )

    def to_json(self) -> dict[str, Any]:
        """The field `totals`."""
        from iceberg_cli.fleet.grades import GRADES

        return {
            "tables": self.tables,
            "due": self.due,
            "grades": {grade: self.grades[grade] for grade in GRADES},
            **{
                name: self.sums[name]
                for name in (
                    "open_operations",
                    "freed_bytes",
                    "freed_files",
                    "snapshots",
                    "files",
                    "small_files",
                    "data_bytes",
                    "metadata_bytes",
                )
            },
            "cost": [
                {"currency": name, "month": round(value, 6)} for name, value in sorted(self.money.items())
            ],
        }


def _rank(sort: str) -> Callable[[SurveyedTable], Any]:
    from iceberg_cli.fleet.grades import GRADES

    def grade(each: SurveyedTable) -> int:
        return -GRADES.index(each.row["grade"])

    def name(each: SurveyedTable) -> str:
        return str(each.row["table"]["name"])

    if sort == "name":
        return name
    if sort == "grade":
        return lambda each: (grade(each), -each.freed_bytes, name(each))
    return lambda each: (not _is_bad(each.row), -each.freed_bytes, grade(each), name(each))


def _is_bad(row: Mapping[str, Any]) -> bool:
    from iceberg_cli.fleet.grades import BROKEN, UNREADABLE

    return row["grade"] in (BROKEN, UNREADABLE)


def _show(run: Run, totals: _Totals, rows: Sequence[Mapping[str, Any]]) -> None:
    from iceberg_cli.plan.inspection import ID, NAME, NUMBER, SIZE, STATE, TEXT, TIME, Column

    def freed(row: Mapping[str, Any]) -> int | str:
        sizes = [each["bytes"] for each in row["due"] if not each["blocked_by"]]
        return sum(size or 0 for size in sizes) if sizes else ""

    columns = [
        Column("table", lambda row: row["table"]["name"], NAME),
        Column("grade", "grade", STATE),
        Column("frees", freed, SIZE),
        Column("due", lambda row: _verbs(row["due"], all_of_them=run.verbose), ID),
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
    bad = [row for row in rows if _is_bad(row)]
    for row in bad[:_MOST_BAD]:
        run.out.line(f"{row['table']['name']} is {row['grade']}: {row['rule']}", style="bold red")
    if len(bad) > _MOST_BAD:
        run.out.line(f"({len(bad) - _MOST_BAD:,} more, which --verbose and --jsonl give the reasons of)")
    if bad:
        run.out.gap()
    columns.append(Column("why", "rule", TEXT, leaves=7))
    run.out.grid(columns, rows)


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


def _show_totals(run: Run, totals: _Totals, *, shown: int, quick: bool) -> None:
    from iceberg_cli.fleet.grades import GRADES
    from iceberg_cli.plan.text import count, listed, size

    grades = [f"{totals.grades[grade]:,} {grade}" for grade in GRADES if totals.grades[grade]]
    run.out.gap()
    run.out.line(f"{count(totals.tables, 'tables')}: {listed(grades) if grades else 'none'}", style="bold")
    if shown < totals.tables:
        run.out.line(f"{totals.tables - shown:,} more tables are not shown")
    if quick:
        run.out.line(
            "Not looked at, but for what an earlier survey read: manifests, and so bytes and other verbs"
        )
    if operations := totals.sums["open_operations"]:
        run.out.line(f"{count(operations, 'open operations')}: `resume TABLE --list` shows them")
    if totals.due:
        sums = totals.sums
        money = "".join(f", {value:,.2f} {name} a month" for name, value in sorted(totals.money.items()))
        run.out.line(
            f"What is due in {count(totals.due, 'tables')} frees {size(sums['freed_bytes'])} in"
            f" {count(sums['freed_files'], 'files')}{money}"
        )
