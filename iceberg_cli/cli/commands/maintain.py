"""`maintain`: every due verb of every table that matches, by a policy file."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from iceberg_cli.cli.commands.carry_out import FilesOption, Metrics, measure
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
from iceberg_cli.cli.commands.measures import MaintenanceMeasures
from iceberg_cli.cli.context import DECLINED, Run, command
from iceberg_cli.cli.options.arguments import ReportOption, integer, positive
from iceberg_cli.cli.terminal import stopping
from iceberg_cli.errors import Interrupted, UsageError
from iceberg_cli.plan.events import FleetCounted
from iceberg_cli.plan.text import duration_ms, size_bytes

if TYPE_CHECKING:
    from iceberg_cli.api import DeletionAllowance, Plan
    from iceberg_cli.fleet.due import FleetPolicy
    from iceberg_cli.fleet.maintenance import Maintenance
    from iceberg_cli.fleet.verb_run import VerbRun

_LINE_SCHEMA: Final = "iceberg-cli/maintenance-run/1"
_PHASE: Final = "maintaining tables"
_MANY_FILES: Final = 100_000
_CHANGED: Final = "Tables that were come to are as their reports say; nothing else was changed."


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "maintain")
    def maintain(
        run: Run,
        patterns: Patterns = None,
        policy: Annotated[
            str | None,
            typer.Option(
                "--policy", metavar="FILE", help="Which verbs run on which tables, and how. Required."
            ),
        ] = None,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", "-n", help="Show what would be done, write nothing.")
        ] = False,
        exit_code: Annotated[
            bool, typer.Option("--exit-code", help="With --dry-run: exit 3 if something is due.")
        ] = False,
        files: FilesOption = False,
        yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
        jobs: Jobs = None,
        only: Annotated[
            list[str] | None,
            typer.Option(metavar="VERB,...", help="Only these verbs."),
        ] = None,
        limit_deletes: Annotated[
            int | None,
            typer.Option(metavar="N", parser=integer, help="Delete at most N files, over all tables."),
        ] = None,
        max_bytes: Annotated[
            str | None, typer.Option(metavar="SIZE", help="Delete at most so many bytes, over all tables.")
        ] = None,
        deadline: Annotated[
            str | None, typer.Option(metavar="DURATION", help="Begin nothing more after this time.")
        ] = None,
        memory: Annotated[
            str | None,
            typer.Option(
                metavar="SIZE",
                help="For the rows that are held where data files are rewritten, over all tables; default: 2GiB, or a "
                "quarter of what there is if that is less.",
            ),
        ] = None,
        no_resume: Annotated[
            bool, typer.Option("--no-resume", help="Leave the tables' open operations alone.")
        ] = False,
        metrics: Metrics = None,
        jsonl: JsonLines = False,
        report: ReportOption = None,
    ) -> None:
        """Carry out every due verb of every table that matches, by a policy file.

        Without PATTERN the tables are those that the policy file matches. A verb that the file does not name never
        runs, nor does any on a table with maintain = false or outside its window. What fails on one table stops no
        other. With a bound (--limit-deletes, --max-bytes, --deadline) the tables of which most is freed come first.
        """
        from iceberg_cli.fleet.calls.maintenance_result import MAINTENANCE_SCHEMA, maintenance_head
        from iceberg_cli.fleet.memory import memory_of_rows

        measure(metrics, looks=dry_run, of_tables=True)
        if policy is None:
            raise UsageError(
                "maintain needs a policy file",
                next_step="Add --policy FILE; `iceberg-cli policy check FILE` shows what it means.",
            )
        if files and run.json and not jsonl:
            raise UsageError(
                "--files prints lines, and --format json one document; --jsonl has lines of both"
            )
        jobs = positive(jobs, "--jobs") or DEFAULT_JOBS
        size = None if memory is None else size_bytes(memory, "--memory")
        chosen = fleet_policy(run, policy, only=only or (), memory=memory_of_rows(size, jobs=jobs))
        show = partial(_show, run, dry=dry_run)
        output = TableOutput(
            run, MAINTENANCE_SCHEMA, _LINE_SCHEMA, show, field="runs", jsonl=jsonl, report=report
        )
        if not (yes or dry_run):
            _check_can_ask(run, jsonl=jsonl)
        bounds = _Bounds(run, limit_deletes, max_bytes, deadline)
        work = _Work(run, chosen, patterns, jobs=jobs)
        shown: dict[tuple[str, str], Plan] | None = None
        if not (yes or dry_run):
            shown = work.ask(show=partial(_show, run, dry=True), files=files)
            if shown is None:
                run.out.line("Nothing was changed.")
                raise typer.Exit(DECLINED)
        with stopping.at_safe_points(last=True):
            codes = work.carry_out(
                output,
                bounds,
                dry_run=dry_run,
                settle=not no_resume,
                shown=shown,
                is_measured=metrics is not None,
                files=files,
            )
            failures = work.fleet.failures()
            codes += failures.codes
            totals = work.totals
            worst = totals.to_json(codes)
            assert chosen.file is not None
            head = maintenance_head(work.run_id, run.as_of_ms, chosen.file)
            more = {
                "left": work.left,
                "failed": failures.to_json(),
                "exit_code": worst["exit_code"],
            }
            output.end(worst, more, head=head)
            if not (jsonl or run.json or run.quiet):
                from iceberg_cli.cli.render.maintenance import show_maintenance_totals

                show_maintenance_totals(run.out, totals, work.left, dry=dry_run)
                work.fleet.show_left_out()
            work.fleet.show_failures(failures)
            leave_with_worst(
                [*codes, Interrupted.exit_code] if stopping.heard() and totals.is_any_changed else codes
            )
            if stopping.heard():
                raise typer.Exit(128 + stopping.heard())
            if exit_code and dry_run and totals.statuses["due"]:
                raise typer.Exit(3)


class _Bounds:
    """The bounds of a whole run.

    Raises:
        UsageError: one has no meaning.
    """

    def __init__(
        self, run: Run, limit_deletes: int | None, max_bytes: str | None, deadline: str | None
    ) -> None:
        from iceberg_cli.api import DeletionAllowance

        files = positive(limit_deletes, "--limit-deletes")
        most_bytes = (
            None if max_bytes is None else positive(size_bytes(max_bytes, "--max-bytes"), "--max-bytes")
        )
        self.allowance: DeletionAllowance | None = None
        if files is not None or most_bytes is not None:
            self.allowance = DeletionAllowance(files=files, size_bytes=most_bytes)
        self.deadline_ms = None if deadline is None else run.started_ms + duration_ms(deadline, "--deadline")

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return self.allowance is not None or self.deadline_ms is not None


class _Work:
    """The maintenance of a run, and what came of it."""

    def __init__(self, run: Run, policy: FleetPolicy, patterns: Sequence[str] | None, *, jobs: int) -> None:
        from iceberg_cli.fleet.calls.maintenance_result import MaintenanceTotals

        assert policy.file is not None
        self._run, self._policy, self._jobs = run, policy, jobs
        self._patterns = patterns_of(patterns, policy.file)
        self.run_id = str(uuid.uuid4())
        self.fleet: FleetCommand  # of the last time that the tables were listed
        self.totals = MaintenanceTotals()
        self.left: list[dict[str, Any]] = []

    def _runs(self, **more: Any) -> Maintenance:
        from iceberg_cli.fleet.maintenance import Maintenance

        run = self._run
        self.fleet = FleetCommand(run, self._patterns, compared=True)
        self.fleet.tables.stop_requested = lambda: bool(stopping.heard())
        return Maintenance(
            tables=self.fleet.tables,
            opener=self.fleet.opener(),
            policy=self._policy,
            as_of_ms=run.as_of_ms,
            jobs=self._jobs,
            stop_requested=lambda: bool(stopping.heard()),
            on_event=run.on_event,
            facts=self.fleet.facts(),
            **more,
        )

    def ask(
        self, *, show: Callable[[list[dict[str, Any]]], None], files: bool
    ) -> dict[tuple[str, str], Plan] | None:
        """Show what would be done, and ask; what was agreed to, or None where the answer is no."""
        from iceberg_cli.fleet.calls.maintenance_result import MaintenanceTotals

        run = self._run
        due: list[VerbRun] = []
        others: list[VerbRun] = []
        for each in self._runs(dry_run=True):
            (due if each.status == "due" else others).append(each)
        run.progress.close()
        rows = [each.to_json() for each in (*due, *others) if each.status != "not_due" or run.verbose]
        with run.paging(asks=bool(due)):
            if rows:
                show(rows)
            for each in due if files else ():
                _show_files(run, each)
        if not due:  # what earlier runs left open is finished all the same
            return {}
        totals = MaintenanceTotals()
        for each in due:
            totals.add(each)
        plans = [each.plan for each in due if each.plan is not None]
        run.err.gap()
        run.err.line(f"maintain: {totals.consequence()}", style="bold")
        far = [plan for plan in plans if plan.content.has_no_way_back]
        if far:
            run.err.line(f"With no way back: {', '.join(sorted({plan.verb for plan in far}))}")
        assert self._policy.file is not None
        if far or totals.files > _MANY_FILES:
            agreed = run.confirm_by_name(self._policy.file.path.rpartition("/")[2])
        else:
            agreed = run.confirm("Go on?")
        if not agreed:
            return None
        return {(each.name, plan.verb): plan for each in due if (plan := each.plan) is not None}

    def carry_out(
        self,
        output: TableOutput,
        bounds: _Bounds,
        *,
        dry_run: bool,
        settle: bool,
        shown: Mapping[tuple[str, str], Plan] | None,
        is_measured: bool,
        files: bool,
    ) -> list[int]:
        """Maintain the tables, and print each run of a verb as it is known; their exit codes."""
        from iceberg_cli.cli.render.plan_files import print_lines
        from iceberg_cli.fleet.calls.maintenance_result import CHANGING, left_undone

        run, outcomes, measures = self._run, Outcomes(self._run, _PHASE), MaintenanceMeasures()
        maintenance = self._runs(
            allowance=bounds.allowance,
            deadline_ms=bounds.deadline_ms,
            ranked=bounds.any,
            dry_run=dry_run,
            settle=settle,
            shown=shown,
            is_measured=is_measured,
            keeps_plans=files,
        )
        for each in outcomes.of(maintenance):
            self.totals.add(each)
            for measured in measures.of(each):
                run.on_event(measured)
            if each.status in CHANGING:
                stopping.changed(_CHANGED)
            if each.is_left:
                self.left.append(left_undone(each))
            if files and each.plan is not None:
                if output.is_document:
                    print_lines(each.plan.content)
                else:
                    _show_files(run, each)
            output.row(each.to_json(), is_printed=self._is_shown(each, output))
            if run.quiet and (each.exit_code or each.is_left):
                run.tell(f"{each.verb or 'maintain'} {each.name}: {each.status}: {each.reason}")
        for text in maintenance.warnings:
            run.warn(text)
        run.on_event(
            FleetCounted(
                what="verb_runs",
                label="outcome",
                counts=self.totals.to_json(outcomes.codes)["statuses"],
                due=measures.due,
                is_whole=not self.fleet.tables.failed,
            )
        )
        return outcomes.codes

    def _is_shown(self, each: VerbRun, output: TableOutput) -> bool:
        from iceberg_cli.cli.render.maintenance import is_printed

        return output.is_document or self._run.verbose or is_printed(each)


def _show_files(run: Run, each: VerbRun) -> None:
    """Print the files that a run of a verb deletes or rewrites."""
    from iceberg_cli.cli.render.plan_files import count_of, show_files

    if each.plan is None or not count_of(each.plan.content) or run.quiet:
        return
    run.progress.close()
    run.out.gap()
    run.out.line(f"{each.name}: {each.verb}", style="bold")
    show_files(run.out, each.plan.content)
    run.out.gap()


def _check_can_ask(run: Run, *, jsonl: bool) -> None:
    if (run.json or jsonl) and run.on_terminal:
        raise UsageError(
            "Nobody can be asked: with JSON nothing was shown",
            next_step="Add --yes, or look with --dry-run.",
        )
    run.check_terminal()


def _show(run: Run, rows: Sequence[Mapping[str, Any]], *, dry: bool) -> None:
    from iceberg_cli.cli.render.maintenance import show_runs

    show_runs(run.out, rows, dry=dry)
