"""The run of every verb that writes: recover, plan, show, confirm, apply, report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from iceberg_cli.cli import subject
from iceberg_cli.cli.context import DECLINED, Run
from iceberg_cli.cli.options.arguments import VerbOptions, integer
from iceberg_cli.cli.terminal.stopping import at_safe_points, changed
from iceberg_cli.cli.terminal.streams import after
from iceberg_cli.errors import CommitStateUnknown, Refused, UsageError

if TYPE_CHECKING:
    from iceberg_cli.api import Runtime, Table
    from iceberg_cli.plan.plan import Plan
    from iceberg_cli.plan.report import RecoveredOperation, Report


_MANY_FILES: Final = 100_000
_MOST_PAGED_FILES: Final = 10_000  # a pager gets all at once
Metrics = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Write what the run did to FILE, for Prometheus, also where it fails; the textfile collector wants names "
        "that end in .prom. FILE is replaced whole: give each command in cron one of its own.",
    ),
]


def measure(path: str | None, *, looks: bool, of_tables: bool = False) -> None:
    """Have a metrics file written at the end of the run, where one is named.

    Args:
        path: of the file.
        looks: nothing is to be done: a dry run or a list.
        of_tables: the run is about many tables.

    Raises:
        UsageError: no file can be written there.
    """
    if path is not None:
        from iceberg_cli.cli.listening import metrics

        metrics.listen(path, looks=looks, of_tables=of_tables)


FilesOption = Annotated[
    bool,
    typer.Option(
        "--files",
        help="Show each file that goes or is rewritten, with its size and the reason; as JSON, a line for each before "
        "the document's.",
    ),
]


# Nobody compares or prints these, and making the methods for that takes time at every start.
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ApplyOptions:
    """The options of commands that carry out a plan."""

    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Show the plan, write nothing.")] = False
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="With --dry-run: exit 3 if something is due.")
    ] = False
    files: FilesOption = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    no_resume: Annotated[
        bool, typer.Option("--no-resume", help="Leave the table's open operations alone.")
    ] = False
    limit_deletes: Annotated[
        int | None, typer.Option(metavar="N", parser=integer, help="Stop cleanly after N deletions.")
    ] = None
    deadline: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Stop cleanly after this time.")
    ] = None
    metrics: Metrics = None

    def __post_init__(self) -> None:
        """Have the metrics file written, however the run ends from here on."""
        measure(self.metrics, looks=self.dry_run)


def carry_out(run: Run, carry: ApplyOptions, name: str, options: VerbOptions) -> None:
    """Recover open operations, then plan, show, confirm, apply and report one verb.

    Args:
        run: the options of all commands.
        carry: the options of all verbs.
        name: the table as it was typed.
        options: the verb's own.

    Raises:
        UsageError: an option has no meaning, or none for the table's format.
        typer.Exit: 3 with --exit-code and something due; 14 where deletions failed.
    """
    table = run.open(name)
    policy = options.policy(table, now_ms=run.as_of_ms)
    runtime = run.runtime(limit_deletes=carry.limit_deletes, deadline=carry.deadline)
    recovered = [] if carry.dry_run or carry.no_resume else recover_open(run, table, runtime)
    plan = table.plan(policy, as_of=run.as_of_ms)
    run.progress.close()
    if carry.dry_run:
        show_dry_run(run, plan.content, exit_code=carry.exit_code, files=carry.files)
        return
    show_before(run, plan.content, table.name, yes=carry.yes, files=carry.files)
    with at_safe_points(last=True):
        report = table.apply(plan, runtime=runtime)
        finish(run, report, table, recovered, as_line=carry.files)


def show_plan(run: Run, plan: Plan, *, files: bool, refused: bool = False, asks: bool = False) -> None:
    """Print a plan as text.

    Args:
        run: the options of all commands.
        plan: what to print.
        files: with each file that goes or is rewritten.
        refused: see `render.plan.show_plan`.
        asks: see `Run.paging`.
    """
    from iceberg_cli.cli.render import plan as render_plan
    from iceberg_cli.cli.render.plan_files import count_of, show_files

    is_paged = count_of(plan) <= _MOST_PAGED_FILES
    with run.paging(asks=asks):
        render_plan.show_plan(run.out, plan, refused=refused)
        if files and is_paged:
            show_files(run.out, plan)
    if files and not is_paged:
        show_files(run.out, plan)


def print_files(run: Run, plan: Plan, *, files: bool) -> None:
    """Print a line of JSON for each file that goes or is rewritten, where these are the output."""
    if files and run.json:
        from iceberg_cli.cli.render.plan_files import print_lines

        print_lines(plan)


def show_before(run: Run, plan: Plan, name: str, *, yes: bool, files: bool) -> None:
    """Show a plan that is about to be carried out, and ask for confirmation.

    Raises:
        Refused: it is blocked. UsageError: see `agreed`. typer.Exit: 4 where the answer is no.
    """
    print_files(run, plan, files=files)
    if not run.json and not run.quiet:
        show_plan(run, plan, files=files, refused=True, asks=plan.due and not yes)
        # A plan that cannot be shown is not carried out.
        sys.stdout.flush()
    elif not plan.blocked_by:
        tell_what_stays(run, plan)
    if plan.blocked_by:
        raise Refused(
            f"Cannot {plan.verb} {name}: " + "; ".join(plan.blocked_by),
            next_step="--dry-run shows what would be done.",
        )
    if plan.due and not agreed(run, plan, name, yes=yes):
        run.out.line("Nothing was changed.")
        raise typer.Exit(DECLINED)


def tell_what_stays(run: Run, plan: Plan) -> None:
    """Print on standard error what a plan that is not shown would leave behind for ever, or why it does nothing."""
    for warning in plan.lasting:
        run.tell(f"warning: {warning}")
    for reason in plan.blocked_by:
        run.tell(f"blocked by: {reason}")


def agreed(run: Run, plan: Plan, name: str, *, yes: bool) -> bool:
    """Ask whether to carry out a plan that was shown; where it goes far, for the table's name.

    Raises:
        UsageError: there is no --yes, and nobody can be asked or nothing was shown.
    """
    if yes:
        return True
    if run.json and run.on_terminal:
        raise UsageError(
            "Nobody can be asked: with --format json nothing was shown",
            next_step="Add --yes, or look with --dry-run.",
        )
    run.check_terminal()
    from iceberg_cli.cli.render.plan import consequence

    run.err.gap()
    run.err.line(f"{plan.verb} {name}: {consequence(plan)}", style="bold")
    files = plan.removals.count if plan.removals is not None else 0
    if plan.has_no_way_back or files > _MANY_FILES:
        return run.confirm_by_name(name.rstrip("/").rpartition("/")[2] or name)
    return run.confirm("Go on?")


def show_dry_run(run: Run, plan: Plan, *, exit_code: bool, files: bool) -> None:
    """Print a plan that is not carried out.

    Raises:
        typer.Exit: 3 where `exit_code` is set and something is due.
    """
    from iceberg_cli.cli import render

    print_files(run, plan, files=files)
    if run.json:
        render.print_json(plan.to_json(), as_line=files)
    elif run.quiet:
        tell_what_stays(run, plan)
    else:
        show_plan(run, plan, files=files)
    leave_if_due(plan, exit_code=exit_code)


def leave_if_due(plan: Plan, *, exit_code: bool) -> None:
    """Leave with 3 where `exit_code` is set and the plan is due; one that is blocked would be due run after run.

    Raises:
        typer.Exit: 3.
    """
    if exit_code and plan.due and not plan.blocked_by:
        raise typer.Exit(3)


def finish(
    run: Run, report: Report, table: Table, recovered: Sequence[RecoveredOperation], *, as_line: bool
) -> None:
    """Print the report; leave with 14 where a deletion failed, or with what an earlier operation left.

    Args:
        run: the options of all commands.
        report: of the plan that was carried out.
        table: of both.
        recovered: earlier operations that were finished or closed before.
        as_line: the report as JSON is the last of several lines.

    Raises:
        typer.Exit: 14, or the first exit code among `recovered` that is not 0.
    """
    run.show_report(replace(report, settled=tuple(recovered)), table, as_line=as_line)
    earlier = (done.exit_code for done in recovered if done.exit_code)
    code = report.exit_code or next(earlier, 0)
    if code:
        raise typer.Exit(code)


def recover_open(run: Run, table: Table, runtime: Runtime) -> list[RecoveredOperation]:
    """Finish the table's open operations whose grace is over, so that cron needs no second line.

    Raises:
        CommitStateUnknown: what came of one of them is still not known.
    """
    from iceberg_cli.cli.render.report import show_report

    def show(done: RecoveredOperation) -> None:
        changed("Earlier operations were gone on with; nothing else was changed.")
        subject.settled(done)
        run.progress.close()
        if done.exit_code or not run.quiet:
            target = run.err if done.exit_code else run.out
            with after(done.report):
                show_report(target, done.report, table.name)

    with at_safe_points(last=False):
        recovered = table.recover(runtime=runtime, on_settled=show)
    for done in recovered:
        if done.exit_code == CommitStateUnknown.exit_code:
            raise CommitStateUnknown(
                f"Cannot go on with {table.name}: what came of operation {done.report.operation_id} is not known",
                state="Its commit may or may not have happened. Nothing new was begun.",
                next_step="`resume TABLE` asks again, and so does the same command.",
            )
    return recovered
