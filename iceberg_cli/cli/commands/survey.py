"""`survey`: what is due in many tables, ranked by what it frees. Never writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
)
from iceberg_cli.cli.commands.measures import measures_of
from iceberg_cli.cli.context import Run, command
from iceberg_cli.cli.options.arguments import ReportOption, integer, positive
from iceberg_cli.errors import UsageError

if TYPE_CHECKING:
    from iceberg_cli.fleet.calls.survey_result import SurveyTotals
    from iceberg_cli.fleet.prices import Prices
    from iceberg_cli.fleet.survey import SurveyedTable

_LINE_SCHEMA: Final = "iceberg-cli/fleet-table/1"
_PHASE: Final = "looking at tables"
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
        ] = "freed",
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
        from iceberg_cli.fleet.calls.survey_result import FLEET_SCHEMA, SORTS, SurveyTotals, rank, survey_head
        from iceberg_cli.fleet.survey import Survey

        measure(metrics, looks=True, of_tables=True)
        if sort not in SORTS:
            raise UsageError(f"--sort must be freed, grade or name, not {sort!r}")
        if jsonl and limit is not None and "--limit" in run.settings.typed:
            raise UsageError("--limit is about ranked rows, and --jsonl prints each as it is known")
        limit = positive(limit, "--limit")
        chosen = fleet_policy(run, policy)
        fleet = FleetCommand(run, patterns_of(patterns, chosen.file))
        totals = SurveyTotals()
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
        is_text = not (jsonl or run.json or run.quiet)
        if is_text:
            from iceberg_cli.cli.render.survey import show_rest, show_verdict

            run.progress.close()
            show_verdict(run.out, totals)
        for place, each in enumerate(sorted(surveyed, key=rank(sort))):
            output.row(each.row, is_printed=limit is None or place < limit)
        failures = fleet.failures()
        head = survey_head(run.as_of_ms, chosen.file)
        output.end(totals.to_json(), {"failed": failures.to_json()}, head=head)
        if is_text:
            shown = min(len(surveyed), limit or len(surveyed))
            show_rest(run.out, totals, shown=shown, quick=quick)
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


def _show(run: Run, totals: SurveyTotals, rows: Sequence[Mapping[str, Any]]) -> None:
    from iceberg_cli.cli.render.survey import show_surveyed

    show_surveyed(run.out, totals, rows)
