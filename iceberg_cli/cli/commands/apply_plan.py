"""`apply`: carry out a saved plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from iceberg_cli.cli.commands.carry_out import (
    ApplyOptions,
    finish,
    leave_if_due,
    print_files,
    recover_open,
    show_before,
    show_plan,
)
from iceberg_cli.cli.context import Run, command
from iceberg_cli.cli.options.arguments import group_of
from iceberg_cli.cli.terminal.stopping import at_safe_points
from iceberg_cli.errors import CommitConflict, StalePlan

if TYPE_CHECKING:
    from iceberg_cli.api import Plan


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "apply", groups=lambda: {"carry": group_of(ApplyOptions)})
    def apply_plan(
        run: Run,
        carry: ApplyOptions,
        plan_file: Annotated[str, typer.Argument(metavar="PLAN_FILE", help="What `plan --output` wrote.")],
        replan: Annotated[
            bool,
            typer.Option(
                "--replan", help="Print what would go beyond the file if it were planned now; write nothing."
            ),
        ] = False,
    ) -> None:
        """Carry out a saved plan.

        If the table has moved it is planned again, with the file's own options and time. Snapshots that the file
        does not list are kept; it is refused (11) if anything else would go or change that the file does not list.
        """
        from iceberg_cli.api import Plan, refuse_additions

        shown = Plan.load(plan_file)
        table = run.open(shown.table["name"])
        runtime = run.runtime(limit_deletes=carry.limit_deletes, deadline=carry.deadline)
        looking = replan or carry.dry_run
        table.check_made_for(shown)
        recovered = [] if looking or carry.no_resume else recover_open(run, table, runtime)
        # A new plan by the file's policy is carried out: the file limits what may go, and never decides what goes.
        fresh = table.replan(shown, beyond=replan)
        run.progress.close()
        more = fresh.additions_over(shown)
        if looking:
            _show_difference(
                run, table.identity, more, shown if replan else fresh, only=replan, files=carry.files
            )
        if replan:
            return
        if more and carry.dry_run and run.json:
            raise typer.Exit(StalePlan.exit_code)  # the document has the reason
        refuse_additions(more)
        if carry.dry_run:
            leave_if_due(fresh.content, exit_code=carry.exit_code)
            return
        show_before(run, fresh.content, table.name, yes=carry.yes, files=carry.files)
        with at_safe_points(last=True):
            try:
                report = table.apply(fresh, runtime=runtime)
            except CommitConflict as error:
                if shown.content.groups is not None:  # which are as the file has them, and stay so
                    error.next_step = "Plan again: another writer changed what the file lists."
                raise
            finish(run, report, table, recovered, as_line=carry.files)


def _show_difference(
    run: Run, table: Mapping[str, str], more: Sequence[str], plan: Plan, *, only: bool, files: bool
) -> None:
    """Print what would go beyond the file, after the plan unless `only` is set."""
    from iceberg_cli.cli import render

    print_files(run, plan.content, files=files)
    if run.json:
        document = {"table": dict(table), "beyond": list(more), "plan": plan.to_json()}
        render.print_json({"schema": "iceberg-cli/replan/1", **document}, as_line=files)
        return
    if run.quiet:
        return
    if not only:
        show_plan(run, plan.content, files=files)
        run.out.gap()
        if not plan.due:
            run.out.line("Nothing of what the file lists is left to do.")
    for line in more:
        run.out.line(f"beyond the file: {line}")
    if not more:
        run.out.line("Planned now, nothing would go that the file does not list.")
