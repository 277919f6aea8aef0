"""`maintain`: every due verb of every table that matches, by a policy file."""

from __future__ import annotations

import uuid
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
    from iceberg_cli.fleet.maintenance import Maintenance, VerbRun

MAINTENANCE_SCHEMA: Final = "iceberg-cli/maintenance/1"
_LINE_SCHEMA: Final = "iceberg-cli/maintenance-run/1"
_PHASE: Final = "maintaining tables"
_MANY_FILES: Final = 100_000
_CHANGED: Final = "Tables that were come to are as their reports say; nothing else was changed."
_CHANGING: Final = ("done", "waiting", "partial", "unknown")
# What came of a table, the one first that is told where its verbs came to several.
FAILED, SKIPPED = "failed", "skipped"
OUTCOMES: Final = (FAILED, "left", "blocked", "worked_on", "due", "not_due", SKIPPED)
_OUTCOME_OF: Final = {
    **dict.fromkeys(("done", "waiting", "nothing_to_do"), "worked_on"),
    **{status: status for status in ("left", "blocked", "due", "not_due", SKIPPED)},
    "partial": "left",
}
_TEXTS: Final = {
    FAILED: "failed",
    "left": "left undone",
    "blocked": "blocked",
    "worked_on": "worked on",
    "due": "to be worked on",
    "not_due": "with nothing due",
    SKIPPED: "skipped",
    "held": "held",
    "outside_window": "outside their window",
    "in_no_policy": "in no policy",
    "busy": "worked on by somebody else",
    "same_table": "another name of a table",
}


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
        yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
        jobs: Jobs = None,
        only: Annotated[
            list[str] | None,
            typer.Option(metavar="VERB...", help="Only this verb; give it again for others."),
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
        measure(metrics, looks=dry_run, of_tables=True)
        if policy is None:
            raise UsageError(
                "maintain needs a policy file",
                next_step="Add --policy FILE; `iceberg-cli policy check FILE` shows what it means.",
            )
        chosen = fleet_policy(run, policy, only=only or ())
        show = partial(_show, run, dry=dry_run)
        output = TableOutput(
            run, MAINTENANCE_SCHEMA, _LINE_SCHEMA, show, field="runs", jsonl=jsonl, report=report
        )
        if not (yes or dry_run):
            _check_can_ask(run, jsonl=jsonl)
        bounds = _Bounds(run, limit_deletes, max_bytes, deadline)
        work = _Work(run, chosen, patterns, jobs=positive(jobs, "--jobs") or DEFAULT_JOBS)
        shown: dict[tuple[str, str], Plan] | None = None
        if not (yes or dry_run):
            shown = work.ask(show=partial(_show, run, dry=True))
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
            )
            failures = work.fleet.failures()
            codes += failures.codes
            totals = work.totals
            worst = totals.to_json(codes)
            head = {"run_id": work.run_id, "as_of_ms": run.as_of_ms, "policy": policy_json(chosen.file)}
            more = {
                "left": work.left,
                "failed": failures.to_json(),
                "exit_code": worst["exit_code"],
            }
            output.end(worst, more, head=head)
            if not (jsonl or run.json or run.quiet):
                _show_totals(run, totals, work.left, dry=dry_run)
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
        assert policy.file is not None
        self._run, self._policy, self._jobs = run, policy, jobs
        self._patterns = patterns_of(patterns, policy.file)
        self.run_id = str(uuid.uuid4())
        self.fleet: FleetCommand  # of the last time that the tables were listed
        self.totals = _Totals()
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

    def ask(self, *, show: Callable[[list[dict[str, Any]]], None]) -> dict[tuple[str, str], Plan] | None:
        """Show what would be done, and ask; what was agreed to, or None where the answer is no."""
        run = self._run
        due: list[VerbRun] = []
        others: list[VerbRun] = []
        for each in self._runs(dry_run=True):
            (due if each.status == "due" else others).append(each)
        run.progress.close()
        rows = [each.to_json() for each in (*due, *others) if each.status != "not_due" or run.verbose]
        with run.paging():
            if rows:
                show(rows)
        if not due:  # what earlier runs left open is finished all the same
            return {}
        totals = _Totals()
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
    ) -> list[int]:
        """Maintain the tables, and print each run of a verb as it is known; their exit codes."""
        run, outcomes, measures = self._run, Outcomes(self._run, _PHASE), MaintenanceMeasures()
        maintenance = self._runs(
            allowance=bounds.allowance,
            deadline_ms=bounds.deadline_ms,
            ranked=bounds.any,
            dry_run=dry_run,
            settle=settle,
            shown=shown,
            is_measured=is_measured,
        )
        for each in outcomes.of(maintenance):
            self.totals.add(each)
            for measured in measures.of(each):
                run.on_event(measured)
            if each.status in _CHANGING:
                stopping.changed(_CHANGED)
            if each.status in ("left", "partial"):
                self.left.append({"table": dict(each.table), "operation": each.verb, "reason": each.reason})
            output.row(each.to_json(), is_printed=self._is_shown(each, output))
            if run.quiet and (each.exit_code or each.status in ("left", "partial")):
                run.tell(f"{each.verb or 'maintain'} {each.name}: {each.status}: {each.reason}")
        for text in maintenance.unmatched_holds:
            run.warn(f"{text} means no table, so that its maintain = false holds none")
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
        """Text leaves out what is not due and not tended to, unless --verbose: of a fleet that is most."""
        return output.is_document or self._run.verbose or each.status not in ("not_due", "skipped")


def _check_can_ask(run: Run, *, jsonl: bool) -> None:
    if (run.json or jsonl) and run.on_terminal:
        raise UsageError(
            "Nobody can be asked: with JSON nothing was shown",
            next_step="Add --yes, or look with --dry-run.",
        )
    run.check_terminal()


class _Totals:
    """Sums over the runs of verbs."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.tables: dict[str, str] = {}  # the worst of `OUTCOMES` by table
        self.skips: Counter[str] = Counter()
        self.files = self.size_bytes = 0

    @property
    def is_any_changed(self) -> bool:
        """Whether something was written."""
        return any(self.statuses[status] for status in _CHANGING)

    def add(self, each: VerbRun) -> None:
        """Take a run into account."""
        self.statuses[each.status] += 1
        self.skips[each.skipped_for] += bool(each.skipped_for)
        before, outcome = self.tables.get(each.name, SKIPPED), _OUTCOME_OF.get(each.status, FAILED)
        self.tables[each.name] = min(before, outcome, key=OUTCOMES.index)
        self.files += each.deleted_files
        self.size_bytes += each.freed_bytes

    @property
    def outcomes(self) -> Counter[str]:
        """The number of tables by what came of them."""
        return Counter(self.tables.values())

    def consequence(self) -> str:
        """What would be done, in words."""
        from iceberg_cli.plan.text import count, size

        return (
            f"{count(self.statuses['due'], 'verbs')} on {count(len(self.tables), 'tables')}; "
            f"{count(self.files, 'files')} of {size(self.size_bytes)} are deleted for good"
        )

    def to_json(self, codes: Sequence[int]) -> dict[str, Any]:
        """The field `totals`, and the exit code."""
        from iceberg_cli.cli.commands.many_tables import worst_of
        from iceberg_cli.fleet.maintenance import SKIPS, STATUSES

        return {
            "tables": len(self.tables),
            "outcomes": {outcome: self.outcomes[outcome] for outcome in OUTCOMES},
            "skipped_for": {kind: self.skips[kind] for kind in SKIPS},
            "statuses": {status: self.statuses[status] for status in STATUSES},
            "deleted_files_count": self.files,
            "reclaimed_bytes": self.size_bytes,
            "exit_code": worst_of(codes),
        }


def _show(run: Run, rows: Sequence[Mapping[str, Any]], *, dry: bool) -> None:
    from iceberg_cli.plan.inspection import ID, NAME, NUMBER, SIZE, STATE, TEXT, Column

    columns = (
        Column("table", lambda row: row["table"]["name"], NAME),
        Column("verb", lambda row: row["operation"] or "", ID),
        Column("status", "status", STATE),
        Column("files", lambda row: row["deleted_files_count"] or "", NUMBER, leaves=2),
        Column("frees" if dry else "freed", lambda row: row["reclaimed_bytes"] or "", SIZE, leaves=3),
        Column("why", "reason", TEXT, leaves=4),
        Column("operation", lambda row: row["operation_id"] or "", ID, seldom=True, leaves=1),
    )
    # Tables come as they are ready; those that are worked on side by side would stand in another order each day.
    run.out.grid(columns, sorted(rows, key=lambda row: str(row["table"]["name"])))


def _show_totals(run: Run, totals: _Totals, left: Sequence[Mapping[str, Any]], *, dry: bool) -> None:
    from iceberg_cli.fleet.maintenance import SKIPS, STATUSES
    from iceberg_cli.plan.text import count, listed, size

    words = [f"{number:,} {_TEXTS[name]}" for name in OUTCOMES if (number := totals.outcomes[name])]
    if skips := [f"{number:,} {_TEXTS[kind]}" for kind in SKIPS if (number := totals.skips[kind])]:
        words[-1] += f" ({', '.join(skips)})"
    run.out.gap()
    run.out.line(
        f"{count(len(totals.tables), 'tables')}: {', '.join(words) if words else 'none'}", style="bold"
    )
    verbs = [
        f"{number:,} {status.replace('_', ' ')}"
        for status in STATUSES
        if (number := totals.statuses[status] - (totals.skips.total() if status == SKIPPED else 0))
    ]
    if verbs:
        run.out.line(f"Verbs: {listed(verbs)}")
    if totals.files:
        verb = "would be deleted" if dry else "deleted"
        run.out.line(f"{count(totals.files, 'files')} of {size(totals.size_bytes)} {verb}")
    if left:
        run.out.line(f"{count(len(left), 'verbs')} left undone: the next run goes on")
