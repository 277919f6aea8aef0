"""`apply`: carry out a saved plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from iceberg_cli.cli.arguments import group_of
from iceberg_cli.cli.commands.carry_out import ApplyOptions, finish, leave_if_due, recover_open, show_before
from iceberg_cli.cli.context import Run, command
from iceberg_cli.cli.stopping import at_safe_points
from iceberg_cli.errors import CorruptFile, Refused, StalePlan, UsageError

if TYPE_CHECKING:
    from iceberg_cli.plan.plan import Plan


_AGAIN = "The file is not as `plan --output` wrote it: plan again."


def load(path: str) -> Plan:
    """A plan that `plan --output` wrote.

    Raises:
        UsageError: no such file, or no verb of ours. CorruptFile: the plan and its removals do not fit.
    """
    from iceberg_cli.encoding.strict_json import loads
    from iceberg_cli.iceberg.verbs import VERBS
    from iceberg_cli.operation.plan_files import load_beside
    from iceberg_cli.plan.documents import plan_from_json

    try:
        with open(path, "rb") as file:
            document = loads(file.read(), path)
        recorded = document.get("removals")
        name = recorded.get("file") if isinstance(recorded, dict) else None
        if not isinstance(name, str) or not name or os.path.basename(name) != name:
            raise UsageError(f"{path} was not written by `plan --output`: it names no removals file")
        removals = load_beside(os.path.join(os.path.dirname(path), name))
    except OSError as error:
        raise UsageError(f"Cannot read the plan: {error.filename}: {error.strerror}") from error
    except CorruptFile as error:
        error.next_step = _AGAIN
        raise
    try:
        plan = plan_from_json(document, removals=removals, path=path)
    except CorruptFile as error:
        error.next_step = _AGAIN
        raise
    if plan.verb not in VERBS:
        raise UsageError(f"{path} is a plan of {plan.verb!r}, which is no verb here")
    return plan


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "apply", groups={"carry": group_of(ApplyOptions)})
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

        If the table has moved it is planned again, with the file's own options and time, and refused (11) if
        anything would go or change that the file does not list.
        """
        from iceberg_cli.formats.open import verbs_of
        from iceberg_cli.operation.apply import apply
        from iceberg_cli.operation.clocks import MAX_AHEAD_MS
        from iceberg_cli.plan.text import iso

        shown = load(plan_file)
        opened = run.open(shown.table["name"])
        if opened.describe()["format"] != shown.table["format"]:
            raise Refused(
                f"Cannot apply this plan: it was made for a table of format {shown.table['format']}"
            )
        if shown.as_of_ms - run.started_ms > MAX_AHEAD_MS:
            raise Refused(
                f"Cannot apply this plan: it counts ages from {iso(shown.as_of_ms)}, and this machine's clock shows "
                f"{iso(run.started_ms)}",
                next_step="Set the clock that is wrong, and plan again.",
            )
        runtime = run.runtime(limit_deletes=carry.limit_deletes, deadline=carry.deadline)
        looking = replan or carry.dry_run
        recovered = [] if looking or carry.no_resume else recover_open(run, opened, runtime)
        # A new plan by the file's policy is carried out: the file limits what may go, and never decides what goes.
        verb = verbs_of(opened)[shown.verb]
        policy = verb.policy.from_json(shown.policy)
        planned = verb.plan(opened, policy, as_of_ms=shown.as_of_ms, within=shown)
        fresh = planned.plan
        if fresh.base.table_uuid != shown.base.table_uuid:
            raise Refused(
                f"Cannot apply this plan: it was made for table {shown.base.table_uuid}, "
                f"and {opened.name} is {fresh.base.table_uuid}"
            )
        run.progress.close()
        more = fresh.additions_over(shown)
        if looking:
            _show_difference(run, opened.identity, more, shown if replan else fresh, only=replan)
        if replan:
            return
        if more and carry.dry_run and run.json:
            raise typer.Exit(StalePlan.exit_code)  # the document has the reason
        _refuse_more(more)
        if carry.dry_run:
            leave_if_due(fresh, exit_code=carry.exit_code)
            return
        show_before(run, fresh, opened.name, yes=carry.yes)
        with at_safe_points(last=True):
            report = apply(planned, opened, verb, runtime)
            finish(run, report, opened, recovered)


def _show_difference(
    run: Run, table: Mapping[str, str], more: Sequence[str], plan: Plan, *, only: bool
) -> None:
    """Print what would go beyond the file, after the plan unless `only` is set."""
    from iceberg_cli.cli import render
    from iceberg_cli.cli.render import plan as render_plan

    if run.json:
        document = {"table": dict(table), "beyond": list(more), "plan": plan.to_json()}
        render.print_json({"schema": "iceberg-cli/replan/1", **document})
        return
    if run.quiet:
        return
    if not only:
        render_plan.show_plan(run.out, plan, verbose=run.verbose)
        if not plan.due:
            run.out.print("Nothing of what the file lists is left to do.")
    for line in more:
        run.out.print(render.printable(f"beyond the file: {line}"))
    if not more:
        run.out.print("Planned now, nothing would go that the file does not list.")


def _refuse_more(more: Sequence[str]) -> None:
    if more:
        raise StalePlan(
            f"Cannot apply this plan: the table moved, and {len(more)} things that the file does not list would go, "
            f"such as {more[0]}",
            next_step="Plan again and look at it.",
        )
