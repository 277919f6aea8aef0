"""`resume`: finish, undo or explain operations that were interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from iceberg_cli.cli.run import Run, TableArgument, command
from iceberg_cli.cli.values import integer
from iceberg_cli.errors import DeletesFailed, Refused, UsageError

if TYPE_CHECKING:
    from iceberg_cli.journal import Operation


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
    ) -> None:
        """Finish, undo or explain an operation that was interrupted.

        A commit without a known outcome is settled by reading the table; the remaining deletions are checked
        against the table as it is now before they are made.
        """
        from iceberg_cli import render
        from iceberg_cli.apply import abandon as abandon_operation
        from iceberg_cli.apply import resume as resume_operation
        from iceberg_cli.settling import explain, is_running, operations
        from iceberg_cli.verbs import VERBS

        opened = run.open(table)
        found = [operation for operation in operations(opened) if op_id in (None, operation.operation_id)]
        if op_id is not None and not found:
            raise UsageError(
                f"{table} has no open operation {op_id}",
                next_step="`resume --list` shows those that are open.",
            )
        if list_only or not found:
            _show_list(run, found)
            return
        shell = run.shell(limit_deletes=limit_deletes, deadline=deadline)
        reports = []
        for operation in found:
            if is_running(operation):
                raise Refused(
                    f"Cannot resume {operation.operation_id}: process {operation.process_id} is still working on it"
                )
            if not run.json and not run.quiet:
                run.out.print(
                    f"{operation.operation_id} ({operation.operation}): {explain(operation, now_ms=run.started_ms)}"
                )
            if abandon:
                abandon_operation(opened, operation.operation_id, shell)
                continue
            with run.stoppable():
                reports.append(resume_operation(opened, operation.operation_id, shell, verbs=VERBS))
        run.progress.close()
        if run.json:
            render.print_json(
                {"schema": "iceberg-cli/reports/1", "reports": [report.to_json() for report in reports]}
            )
        elif not run.quiet:
            for report in reports:
                render.show_report(run.out, report, table)
        if any(report.failed_deletes for report in reports):
            raise typer.Exit(DeletesFailed.exit_code)


def _show_list(run: Run, found: list[Operation]) -> None:
    """Print the open operations and the state that each is in."""
    from iceberg_cli import render
    from iceberg_cli.settling import explain

    document = [
        {
            "operation_id": operation.operation_id,
            "operation": operation.operation,
            "started_ms": operation.started_ms,
            "state": explain(operation, now_ms=run.started_ms),
        }
        for operation in found
    ]
    if run.json:
        render.print_json({"schema": "iceberg-cli/operations/1", "operations": document})
    elif found:
        rows = [
            (op["operation_id"], op["operation"], render.moment(run_ms(op)), op["state"]) for op in document
        ]
        render.table_of(run.out, ("operation", "verb", "started", "state"), rows)
    elif not run.quiet:
        run.out.print("No open operation.")


def run_ms(document: dict[str, object]) -> int:
    """When an operation began, in ms since the epoch."""
    started = document["started_ms"]
    assert isinstance(started, int)
    return started
