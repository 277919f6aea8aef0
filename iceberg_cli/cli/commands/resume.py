"""`resume`: finish or close operations that were interrupted, or say how far they came."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from iceberg_cli.cli.commands.carry_out import Metrics, measure
from iceberg_cli.cli.commands.many_tables import FleetCommand, leave_with_worst, patterns_of
from iceberg_cli.cli.context import Run, command
from iceberg_cli.cli.options.arguments import integer
from iceberg_cli.cli.terminal import stopping
from iceberg_cli.cli.terminal.stopping import at_safe_points, changed
from iceberg_cli.cli.terminal.streams import after
from iceberg_cli.errors import TableNotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iceberg_cli.api import OpenOperation, Runtime, Table
    from iceberg_cli.plan.inspection import Column
    from iceberg_cli.plan.report import RecoveredOperation, Report


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "resume")
    def resume(
        run: Run,
        table: Annotated[
            str,
            typer.Argument(
                metavar="TABLE|PATTERN",
                help="A table's folder or URI, or CATALOG.NAMESPACE.TABLE; or all tables of a pattern, as of survey.",
            ),
        ],
        op_id: Annotated[
            str | None, typer.Argument(metavar="[OP_ID]", help="One operation; without it, all.")
        ] = None,
        list_only: Annotated[
            bool, typer.Option("--list", help="Show the open operations, change nothing.")
        ] = False,
        abandon: Annotated[
            bool, typer.Option("--abandon", help="Close the operation without finishing it; its files stay.")
        ] = False,
        limit_deletes: Annotated[
            int | None, typer.Option(metavar="N", parser=integer, help="Stop cleanly after N deletions.")
        ] = None,
        deadline: Annotated[
            str | None, typer.Option(metavar="DURATION", help="Stop cleanly after this time.")
        ] = None,
        metrics: Metrics = None,
    ) -> None:
        """Finish or close an operation that was interrupted, or say how far it came.

        A commit without a known outcome is settled by reading the table; the remaining deletions are checked
        against the table as it is now before they are made. With a pattern, what cannot be settled on one table stops
        no other.
        """
        measure(metrics, looks=list_only)
        runtime = run.runtime(limit_deletes=limit_deletes, deadline=deadline)
        opened = _open_one(run, table, even_unreadable=abandon)
        if isinstance(opened, FleetCommand):
            if op_id or abandon:
                raise UsageError(
                    f"{'OP_ID' if op_id else '--abandon'} is about operations of one table, and {table} means many",
                    next_step="`resume --list` with the pattern shows which table has which operation.",
                )
            if list_only:
                _list_of_many(run, opened)
            else:
                _resume_many(run, opened, runtime)
            return
        if not list_only:
            _remove_leftovers(run, opened)
        found = opened.operations(op_id)
        if list_only or not found:
            _show_list(run, opened, found)
            return
        with at_safe_points(last=True):
            settled = opened.resume(
                op_id,
                abandon=abandon,
                runtime=runtime,
                on_settled=lambda _: changed("Other operations were gone on with; this one changed nothing."),
            )
            run.progress.close()
            with after(settled[-1].report):
                _show_settled(run, opened, settled)
        code = next((done.exit_code for done in settled if done.exit_code), 0)
        if code:
            raise typer.Exit(code)


def _open_one(run: Run, name: str, *, even_unreadable: bool) -> Table | FleetCommand:
    """The table of a name, or the tables of a pattern.

    Raises:
        As `Run.open`, where no table is below either.
    """
    if "*" in name:
        return FleetCommand(run, patterns_of([name]))
    try:
        return run.open(name, even_unreadable=even_unreadable)
    except TableNotFound:
        with suppress(UsageError):
            patterns = patterns_of([name])
            if any(True for _ in FleetCommand(run, patterns).tables):
                return FleetCommand(run, patterns)
        raise


def _list_of_many(run: Run, many: FleetCommand) -> None:
    """Print the open operations of many tables, and the state that each is in."""
    from iceberg_cli.cli.render import print_json
    from iceberg_cli.fleet.listing import Failures
    from iceberg_cli.fleet.open_operations import operations_of
    from iceberg_cli.plan.inspection import NAME, Column

    failures = Failures()
    rows = []
    for each in operations_of(many.tables, many.opener()):
        if each.error is not None:
            failures.append((each.table["name"], each.error))
        rows += [{"table": dict(each.table), **listed.to_json()} for listed in each.found]
    failures += many.failures()
    run.progress.close()
    if run.json:
        print_json(
            {"schema": "iceberg-cli/fleet-operations/1", "operations": rows, "failed": failures.to_json()}
        )
    elif rows:
        table = Column("table", lambda row: row["table"]["name"], NAME)
        (run.err if run.quiet else run.out).grid((table, *_operation_columns()), rows)
    elif not run.quiet:
        run.out.line("No open operation.")
    many.show_failures(failures)
    leave_with_worst(failures.codes)


def _operation_columns() -> Sequence[Column]:
    """The columns of elements of `operations/2`."""
    from iceberg_cli.plan.inspection import ID, TEXT, TIME, Column, state_text

    return (
        Column("operation", "operation_id", ID),
        Column("verb", lambda row: row["operation"] or "?", ID, leaves=2),
        Column("started", "started_ms", TIME, leaves=1),
        Column("state", state_text, TEXT),
    )


def _resume_many(run: Run, many: FleetCommand, runtime: Runtime) -> None:
    """Go on with the open operations of many tables, and print what came of each."""
    from iceberg_cli.cli.render import print_json
    from iceberg_cli.fleet.listing import Failures
    from iceberg_cli.fleet.open_operations import operations_of

    failures, reports, codes = Failures(), [], []
    many.tables.stop_requested = lambda: bool(stopping.heard())
    with at_safe_points(last=True):
        for each in operations_of(many.tables, many.opener(), runtime=runtime):
            run.progress.close()
            if each.error is not None:
                failures.append((each.table["name"], each.error))
            if each.settled:
                changed("Operations of other tables were gone on with; no more was changed.")
            codes += [done.exit_code for done in each.settled]
            reports += [done.report.to_json(each.table) for done in each.settled]
            _show_reports(run, each.settled, each.table["name"])
        failures += many.failures()
        run.progress.close()
        if run.json:
            document = {"schema": "iceberg-cli/fleet-reports/1", "reports": reports}
            print_json({**document, "failed": failures.to_json()})
        elif not (codes or run.quiet):
            run.out.line("No open operation.")
        many.show_failures(failures)
        leave_with_worst([*codes, *failures.codes])


def _remove_leftovers(run: Run, opened: Table) -> None:
    """Delete the temporary files that killed runs left, and print how many."""
    from iceberg_cli.plan.text import count

    gone = opened.remove_leftovers()
    if gone and not (run.quiet or run.json):
        files = count(len(gone), "temporary files")
        run.out.line(f"Removed {files} that a killed run had left, such as {gone[0]}.")


def _show_settled(run: Run, opened: Table, settled: list[RecoveredOperation]) -> None:
    from iceberg_cli.cli.render import print_json

    if run.json:
        table = opened.identity
        reports = [done.report.to_json(table) for done in settled]
        print_json({"schema": "iceberg-cli/reports/1", "table": table, "reports": reports})
    _show_reports(run, settled, opened.name)


def _show_reports(run: Run, settled: Sequence[RecoveredOperation], name: str) -> None:
    from iceberg_cli.cli.render.report import show_report

    for done in settled:
        stays = bool(done.exit_code) or (run.quiet and _leaves_files(done.report))
        if stays or not (run.quiet or run.json):
            show_report(run.err if stays else run.out, done.report, name)


def _leaves_files(report: Report) -> bool:
    """Whether files stay, or may, that no operation deletes any more: printed also with --quiet."""
    return report.abandoned is not None and (
        report.abandoned.orphans is None or report.abandoned.orphans.count > 0
    )


def _show_list(run: Run, opened: Table, found: list[OpenOperation]) -> None:
    """Print the open operations and the state that each is in."""
    from iceberg_cli.cli.render import print_json

    document = [listed.to_json() for listed in found]
    if run.json:
        head = {"schema": "iceberg-cli/operations/2", "table": opened.identity}
        print_json({**head, "operations": document})
    elif found:
        (run.err if run.quiet else run.out).grid(_operation_columns(), document)
    elif not run.quiet:
        run.out.line("No open operation.")
