"""`resume`: finish or close operations that were interrupted, or say how far they came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from iceberg_cli.cli.commands.carry_out import Metrics, measure
from iceberg_cli.cli.context import Run, TableArgument, command
from iceberg_cli.cli.options.arguments import integer
from iceberg_cli.cli.terminal.stopping import at_safe_points, changed
from iceberg_cli.cli.terminal.streams import after

if TYPE_CHECKING:
    from iceberg_cli.api import OpenOperation, Table
    from iceberg_cli.plan.report import RecoveredOperation, Report


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "resume")
    def resume(
        run: Run,
        table: TableArgument,
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
        against the table as it is now before they are made.
        """
        measure(metrics, looks=list_only)
        opened = run.open(table, even_unreadable=abandon)
        if not list_only:
            _remove_leftovers(run, opened)
        found = opened.operations(op_id)
        if list_only or not found:
            _show_list(run, opened, found)
            return
        runtime = run.runtime(limit_deletes=limit_deletes, deadline=deadline)
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


def _remove_leftovers(run: Run, opened: Table) -> None:
    """Delete the temporary files that killed runs left, and print how many."""
    from iceberg_cli.plan.text import count

    gone = opened.remove_leftovers()
    if gone and not (run.quiet or run.json):
        files = count(len(gone), "temporary files")
        run.out.line(f"Removed {files} that a killed run had left, such as {gone[0]}.")


def _show_settled(run: Run, opened: Table, settled: list[RecoveredOperation]) -> None:
    from iceberg_cli.cli.render import print_json
    from iceberg_cli.cli.render.report import show_report

    if run.json:
        table = opened.identity
        reports = [done.report.to_json(table) for done in settled]
        print_json({"schema": "iceberg-cli/reports/1", "table": table, "reports": reports})
    for done in settled:
        stays = bool(done.exit_code) or (run.quiet and _leaves_files(done.report))
        if stays or not (run.quiet or run.json):
            show_report(run.err if stays else run.out, done.report, opened.name)


def _leaves_files(report: Report) -> bool:
    """Whether files stay, or may, that no operation deletes any more: printed also with --quiet."""
    return report.abandoned is not None and (
        report.abandoned.orphans is None or report.abandoned.orphans.count > 0
    )


def _show_list(run: Run, opened: Table, found: list[OpenOperation]) -> None:
    """Print the open operations and the state that each is in."""
    from iceberg_cli.cli.render import print_json
    from iceberg_cli.plan.inspection import ID, TEXT, TIME, Column
    from iceberg_cli.plan.text import iso

    document = [
        {
            "operation_id": listed.operation_id,
            "operation": listed.operation.verb if listed.operation else None,
            "started_ms": listed.operation.started_ms if listed.operation else None,
            "started": iso(listed.operation.started_ms if listed.operation else None),
            "state": listed.state,
            "message": listed.message,
            "grace_until_ms": listed.until_ms,
            "grace_until": iso(listed.until_ms),
            "waits_for": listed.waits_for,
        }
        for listed in found
    ]
    if run.json:
        head = {"schema": "iceberg-cli/operations/2", "table": opened.identity}
        print_json({**head, "operations": document})
    elif found:
        columns = (
            Column("operation", "operation_id", ID),
            Column("verb", lambda row: row["operation"] or "?", ID),
            Column("started", "started_ms", TIME),
            Column("state", "message", TEXT),
        )
        (run.err if run.quiet else run.out).grid(columns, document)
    elif not run.quiet:
        run.out.line("No open operation.")
