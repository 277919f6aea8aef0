"""The maintenance of many tables by one policy file: every verb that it names and that is due, table by table.

Each table is by itself: what fails on one stops none of the others, and none of its own verbs that do not need the one
that failed. All rules that keep data safe are those of a single verb, which each of these runs is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from iceberg_cli.api import DeletionAllowance, Plan, new_runtime
from iceberg_cli.errors import (
    Cancelled,
    CommitConflict,
    CommitStateUnknown,
    CorruptFile,
    IcebergCliError,
    Refused,
)
from iceberg_cli.fleet.deletions import DeletionCounter
from iceberg_cli.fleet.due import FleetPolicy, is_due, names_of, why_not_due
from iceberg_cli.fleet.facts import FactsStore
from iceberg_cli.fleet.listing import key_of_location, list_tables
from iceberg_cli.fleet.memory import MemoryBudget, needed_by
from iceberg_cli.fleet.side_by_side import side_by_side
from iceberg_cli.fleet.survey import Survey
from iceberg_cli.fleet.thresholds import why_resting
from iceberg_cli.fleet.verb_run import (
    BLOCKED,
    BUSY,
    ENDED,
    HELD,
    IN_NO_POLICY,
    LEFT,
    NOT_DUE,
    OUTSIDE_WINDOW,
    SAME_TABLE,
    SKIPPED,
    WOULD_RUN,
    Skip,
    VerbRun,
    of_bug,
    of_error,
    of_settled,
)
from iceberg_cli.formats import place_of
from iceberg_cli.names import levels_of
from iceberg_cli.plan.events import Listener, TableMeasured, unheard
from iceberg_cli.plan.report import TAGGED_FILES
from iceberg_cli.plan.text import count, iso

if TYPE_CHECKING:
    from iceberg_cli.api import Runtime, Table
    from iceberg_cli.fleet.listing import ListedTable
    from iceberg_cli.fleet.opening import TableOpener
    from iceberg_cli.fleet.policy_file import TablePolicy, VerbPolicy
    from iceberg_cli.plan.report import Report


@dataclass(kw_only=True)
class Maintenance:
    """The maintenance of many tables. Iterate over it once.

    Args:
        tables: those that are listed.
        opener: opens them.
        policy: with a policy file.
        as_of_ms: the "now" of every age.
        jobs: how many tables are worked on side by side.
        allowance: of deletions by all of them, which are worked on one after the other then; None: as many as are due.
        deadline_ms: a point in time after which nothing more is begun, or None.
        ranked: begin with the tables of which most is freed, for which all are looked at first: a bound is set.
        dry_run: only plan.
        settle: finish open operations of earlier runs first.
        shown: by name of a table and verb what the operator was shown and agreed to: nothing else is carried out, and
            no more is deleted by that verb. None: he agreed to whatever the policy says.
        stop_requested: whether to stop at the next safe point.
        on_event: gets what happens.
        keeps_plans: runs that came to their end have their plans, which may be large.
        is_measured: it also gets what each table is like once its verbs have run, for which some are read once more.
        facts: what surveys read before.
        memory: of all tables that are worked on side by side.

    Attributes:
        warnings: of entries with `maintain = false` that mean no table, once the first run is known.
    """

    tables: Iterable[ListedTable]
    opener: TableOpener
    policy: FleetPolicy
    as_of_ms: int
    jobs: int = 2
    allowance: DeletionAllowance | None = None
    deadline_ms: int | None = None
    ranked: bool = False
    dry_run: bool = False
    settle: bool = True
    shown: Mapping[tuple[str, str], Plan] | None = None
    stop_requested: Callable[[], bool] = lambda: False
    on_event: Listener = unheard
    is_measured: bool = False
    keeps_plans: bool = False
    facts: FactsStore = field(default_factory=lambda: FactsStore(None))
    memory: MemoryBudget = field(default_factory=MemoryBudget)
    warnings: tuple[str, ...] = ()
    _held: dict[str, str] = field(default_factory=dict)
    _names: dict[tuple[str, str], str] = field(default_factory=dict)  # of tables that were come to
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __iter__(self) -> Iterator[VerbRun]:
        """One for each table and verb, as it is known."""
        self._held = self._find_held()
        self.opener.start_engine()
        tables = self._ranked() if self.ranked else self.tables
        # What may be deleted is spent in the order of the tables only where they come one after the other.
        jobs = self.jobs if self.allowance is None else 1
        # Where a signal asks to stop, the tables that were not come to yet are still told of, one by one.
        yield from side_by_side(self._maintained, tables, jobs=jobs)

    def _find_held(self) -> dict[str, str]:
        """By its folder the reason why nothing runs on a table, whatever other name of it is listed.

        Raises:
            IcebergCliError: a place in which tables are held cannot be listed: nothing runs then.
        """
        assert self.policy.file is not None
        if not self.policy.file.holds:
            return {}
        found = list_tables(
            self.policy.file.holds,
            catalog_config=self.opener.catalog_config,
            storage_options=self.opener.storage_options,
        )
        held: dict[str, str] = {}
        for listed in found:
            if self.stop_requested():
                raise Cancelled("Stopped by a signal", next_step="Run the same command again.")
            own = self.policy.of_table(names_of(listed))
            if own is not None and not own.maintain:
                reason = f": {own.reason}" if own.reason else ""
                location = listed.location or self._location_of_held(listed)
                held[key_of_location(location)] = f"maintain = false for {listed.name}{reason}"
        if found.failed:
            error = found.failed[0].error
            error.message = f"Cannot find out on which tables nothing may run: {error.message}"
            raise error
        self.warnings = tuple(
            f"{each.text} means no table, so that its maintain = false holds none"
            for each in found.unmatched_patterns()
        )
        return held

    def _location_of_held(self, listed: ListedTable) -> str:
        try:
            return self.opener.identity(listed)[1]
        except IcebergCliError as error:
            raise Refused(
                f"Cannot find out where {listed.name} lies, on which nothing may run: {error.message}",
                next_step="Mend it, or leave its name out of the policy file's `match`: until then nothing runs.",
            ) from error

    def _ranked(self) -> list[ListedTable]:
        """The tables, that of which most is freed first; those that cannot be read come last and say why."""
        listed = list(self.tables)
        survey = Survey(
            tables=listed,
            opener=self.opener,
            policy=self.policy,
            as_of_ms=self.as_of_ms,
            now_ms=_now_ms(),
            jobs=self.jobs,
            facts=self.facts,
        )
        freed: dict[str, int] = {}
        # Half of the time is for what is then done.
        started_ms = _now_ms()
        until_ms = None if self.deadline_ms is None else (started_ms + self.deadline_ms) // 2
        for each in survey:
            if self.stop_requested() or (until_ms is not None and _now_ms() >= until_ms):
                break
            freed[each.listed.name] = each.freed_bytes
        return sorted(listed, key=lambda each: -freed.get(each.name, -1))

    # -- one table ---------------------------------------------------------------------------------------------

    def _maintained(self, listed: ListedTable) -> Iterator[VerbRun]:
        if reason := self._why_not_begin():
            yield VerbRun(table=_identity(listed), verb=None, status=LEFT, reason=reason)
            return
        if listed.location is not None and (skip := self._skip(listed, None, now_ms=_now_ms())):
            yield self._skipped(listed, None, skip)
            return
        table: Table | None = None
        try:
            table = self.opener.open(listed)
            with self.memory.room(needed_by(table)):
                yield from self._of_table(listed, table)
        except IcebergCliError as error:
            yield of_error(_identity(listed, table), None, error)
        except Exception as error:  # noqa: BLE001 - a bug met on one table says nothing of the others
            yield of_bug(_identity(listed, table), error)
        finally:
            if table is not None:
                table.save_cache()

    def _of_table(self, listed: ListedTable, table: Table) -> Iterator[VerbRun]:
        if same := self._come_to_before(listed, table):
            yield self._skipped(listed, table, Skip(SAME_TABLE, f"it is the table {same}"))
            return
        now_ms = _now_ms()
        if skip := self._skip(listed, table, now_ms=now_ms):
            yield self._skipped(listed, table, skip)
            return
        own = self._own(listed, table)
        if running := [each for each in table.operations() if each.state == "running"]:
            reason = f"operation {running[0].operation_id} of it is {running[0].message}"
            yield self._skipped(listed, table, Skip(BUSY, reason))
            return
        rival = self._rival(listed, table)
        counted = DeletionCounter(self.on_event)
        runtime = self._runtime(own, counted, now_ms=now_ms)
        unknown: str | None = None
        is_changed = False
        # What is still to be deleted for an earlier run the rival may need as well.
        if self.settle and not self.dry_run and rival is None:
            for done in table.recover(runtime=runtime):
                is_changed = True
                yield of_settled(_identity(listed, table), done, counted.take())
                if done.exit_code == CommitStateUnknown.exit_code:
                    unknown = done.report.operation_id
        failed: set[str] = set()
        for verb in self.policy.verbs(own, table.format):
            if unknown is not None:
                reason = f"what came of operation {unknown} is not known"
                yield VerbRun(table=_identity(listed, table), verb=verb.verb, status=SKIPPED, reason=reason)
                continue
            if (needed := place_of(table.format, verb.verb).after) in failed:
                reason = f"it needs {needed}, which did not come to its end"
                yield VerbRun(table=_identity(listed, table), verb=verb.verb, status=SKIPPED, reason=reason)
                continue
            run = self._run(listed, table, verb, runtime, counted, rival)
            if isinstance(run.error, CorruptFile) and run.exit_code == CommitConflict.exit_code:
                # What is due now is found anew; what it had begun the next run gives up.
                run = self._run(listed, table, verb, runtime, counted, rival)
            is_changed = is_changed or run.report is not None or run.error is not None
            yield run
            if run.exit_code:
                failed.add(verb.verb)
            if run.exit_code == CommitStateUnknown.exit_code:
                operations = [each.operation_id for each in table.operations() if each.state == "asking"]
                unknown = operations[0] if operations else "of this run"
        if self.is_measured:
            self._measure(table, again=is_changed)

    def _measure(self, table: Table, *, again: bool) -> None:
        """Pass on what only an opened table shows; `again`: it may have been changed since."""
        try:
            oldest_ms, open_operations = table.oldest_snapshot_ms(again=again), len(table.operations())
        except IcebergCliError:  # nothing depends on it, and what is wrong the outcomes of its verbs say
            return
        self.on_event(
            TableMeasured(
                table.name, table.format, oldest_snapshot_ms=oldest_ms, open_operations=open_operations
            )
        )

    def _rival(self, listed: ListedTable, table: Table) -> str | None:
        """Another entry of a catalog that names this table: it stays where it points when a commit moves this one."""
        if listed.catalog is None:
            return None
        for name in listed.also:
            if levels_of(name) and not self.opener.is_one_entry(listed.name, name):
                return name
        for other in listed.beside:
            uuid, location = self.opener.identity(other)
            if (uuid, key_of_location(location)) == (table.key[0], key_of_location(table.key[1])):
                return other.name
        return None

    def _run(
        self,
        listed: ListedTable,
        table: Table,
        verb: VerbPolicy,
        runtime: Runtime,
        counted: DeletionCounter,
        rival: str | None,
    ) -> VerbRun:
        """Plan one verb and carry it out.

        Args:
            listed: the table.
            table: the same, opened.
            verb: by the policy file.
            runtime: of the table.
            counted: its listener.
            rival: see `_rival`; no file may be deleted that this one may need.
        """
        about: dict[str, Any] = {"table": _identity(listed, table), "verb": verb.verb}
        if reason := self._why_not_begin(runtime):
            return VerbRun(**about, status=LEFT, reason=reason)
        started_s = time.monotonic()
        version = table.version
        plan: Plan | None = None
        try:
            last_run_ms = partial(table.last_run_ms, verb.verb)
            if reason := why_resting(verb.thresholds, last_run_ms, as_of_ms=self.as_of_ms):
                return VerbRun(**about, status=NOT_DUE, reason=reason, due=(0, 0))
            policy = self.policy.policy(verb, table, as_of_ms=self.as_of_ms)
            plan = table.plan(policy, as_of=self.as_of_ms)
            version = table.version
            planned = {**about, "duration_ms": _since_ms(started_s)}
            if not is_due(plan, verb):
                if not self.dry_run:
                    table.keep_look(plan, runtime=runtime)
                reason = why_not_due(plan, verb) if plan.due else None
                return VerbRun(**planned, status=NOT_DUE, reason=reason or "", due=(0, 0))
            blocked_by = list(plan.blocked_by)
            if rival is not None and plan.removals.count:
                blocked_by.append(f"{rival} names this table, too, and would still need files that go")
            if blocked_by:
                planned |= {"reason": "; ".join(blocked_by), "due": (0, 0)}
                return VerbRun(**planned, status=BLOCKED, exit_code=Refused.exit_code)
            planned["due"] = plan.content.deletes
            if self.dry_run:
                files, size_bytes = plan.content.deletes
                tagged = _tagged(0 if plan.content.tagged is None else plan.content.tagged.count)
                return VerbRun(
                    **planned,
                    status=WOULD_RUN,
                    reason="; ".join(filter(None, (plan.content.reason, tagged))),
                    deleted_files=files,
                    freed_bytes=size_bytes,
                    plan=plan,
                )
            if self.shown is not None and (table.name, plan.verb) not in self.shown:
                return VerbRun(**planned, status=LEFT, reason="it became due after the question was asked")
            if plan.removals.count and self.allowance is not None and self.allowance.is_spent:
                return VerbRun(**planned, status=LEFT, reason="as much is deleted as this run may delete")
            report = self._apply(table, plan, runtime)
        except IcebergCliError as error:
            gone = counted.take()
            return of_error(
                about["table"],
                verb.verb,
                error,
                is_overtaken=isinstance(error, CorruptFile) and table.has_moved_from(version),
                deleted_files=gone.files,
                freed_bytes=gone.size_bytes,
                due=None if plan is None else gone.left_of(plan),
                duration_ms=_since_ms(started_s),
            )
        gone = counted.take()
        return VerbRun(
            **about,
            status=report.status,
            reason="; ".join(
                filter(
                    None,
                    (*report.groups_in_words, *report.notes, _tagged(report.counts.get(TAGGED_FILES, 0))),
                )
            ),
            exit_code=report.exit_code,
            report=report,
            plan=plan if self.keeps_plans else None,
            deleted_files=gone.files,
            freed_bytes=gone.size_bytes,
            due=(0, 0) if report.status in ENDED else gone.left_of(plan),
            duration_ms=_since_ms(started_s),
        )

    def _apply(self, table: Table, plan: Plan, runtime: Runtime) -> Report:
        """Carry a plan out; one that deletes files and was shown, bounded by what was shown of it."""
        if self.shown is not None and plan.removals.count:
            return table.apply(Plan(self.shown[table.name, plan.verb].content), runtime=runtime)
        return table.apply(plan, runtime=runtime)

    # -- whether at all ----------------------------------------------------------------------------------------

    def _why_not_begin(self, runtime: Runtime | None = None) -> str | None:
        """Why nothing more is begun, or None."""
        if self.stop_requested():
            return "a signal asked to stop"
        if self.deadline_ms is not None and _now_ms() >= self.deadline_ms:
            return "the deadline of this run is over"
        if runtime is not None and runtime.out_of_time():
            return "its window is over"
        return None

    def _skip(self, listed: ListedTable, table: Table | None, *, now_ms: int) -> Skip | None:
        """Why nothing runs on a table now by the policy file, or None."""
        location = None if table is None else table.identity["location"]
        if location is not None and (reason := self._held.get(key_of_location(location))):
            return Skip(HELD, reason)
        own = self.policy.of_table(names_of(listed)) if table is None else self._own(listed, table)
        if own is None:
            return Skip(IN_NO_POLICY, "no entry of the policy file matches it")
        if not own.maintain:
            return Skip(HELD, own.why_not_maintained)
        if own.window is not None and not own.window.contains(now_ms):
            start_ms = own.window.next_start_ms(now_ms)
            begins = "never begins" if start_ms is None else f"begins {iso(start_ms)}"
            return Skip(OUTSIDE_WINDOW, f"outside its window ({own.window.text}), which {begins}")
        return None

    def _own(self, listed: ListedTable, table: Table) -> TablePolicy | None:
        """What the policy has for an opened table."""
        names = names_of(listed, table.identity["location"])
        return self.policy.as_narrowed(names, table.properties, as_of_ms=self.as_of_ms)

    def _come_to_before(self, listed: ListedTable, table: Table) -> str | None:
        """The name by which a table was come to before in this run, or None."""
        with self._lock:
            before = self._names.setdefault(table.key, listed.name)
        return None if before == listed.name else before

    def _runtime(self, own: TablePolicy | None, on_event: Listener, *, now_ms: int) -> Runtime:
        ends = [self.deadline_ms]
        if own is not None and own.window is not None:
            ends.append(own.window.end_ms(now_ms))
        return new_runtime(
            on_event=on_event,
            deadline=min((each for each in ends if each is not None), default=None),
            allowance=self.allowance,
            stop_requested=self.stop_requested,
        )

    @staticmethod
    def _skipped(listed: ListedTable, table: Table | None, skip: Skip) -> VerbRun:
        about: dict[str, Any] = {"table": _identity(listed, table), "verb": None, "status": SKIPPED}
        return VerbRun(**about, reason=skip.reason, skipped_for=skip.kind)


def _tagged(files: int) -> str:
    """That files are not deleted, in words; empty: there are none."""
    return f"{count(files, 'files')} tagged, not deleted" if files else ""


def _identity(listed: ListedTable, table: Table | None = None) -> dict[str, Any]:
    return {**(listed if table is None else table).identity, "also": list(listed.also)}


def _since_ms(started_s: float) -> int:
    return round((time.monotonic() - started_s) * 1_000)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000  # noqa: TID251 - windows and deadlines are of the clock
