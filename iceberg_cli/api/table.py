"""One table: looked at, planned for, changed, and its open operations."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from iceberg_cli.api.arguments import now_ms
from iceberg_cli.api.plan import Plan, refuse_additions
from iceberg_cli.api.runtime import new_runtime
from iceberg_cli.api.settling import end_of
from iceberg_cli.api.table_operations import TableOperations
from iceberg_cli.errors import CorruptFile, Refused, UsageError
from iceberg_cli.formats import format_of, policy_for
from iceberg_cli.formats.inspection import (
    SAMPLE_ROWS,
    CheckedTable,
    Inspection,
    checked,
    difference_of,
    inspector_of,
    sample_of,
    with_difference,
)
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.paths import canonical
from iceberg_cli.plan.events import (
    CHECK,
    INSPECT,
    PLAN,
    Listener,
    PlanMade,
    phase,
    unheard,
)
from iceberg_cli.plan.inspection import StateSelector
from iceberg_cli.plan.text import iso
from iceberg_cli.plan.times import Time
from iceberg_cli.table.alarm import with_alarm

if TYPE_CHECKING:
    from iceberg_cli.operation.ports import Planned
    from iceberg_cli.plan.decision import Decision
    from iceberg_cli.plan.findings import CheckResult
    from iceberg_cli.plan.plan import Option
    from iceberg_cli.plan.plan import Plan as PlanContent
    from iceberg_cli.plan.policy import Policy
    from iceberg_cli.plan.preflight import Preflight
    from iceberg_cli.plan.report import Report
    from iceberg_cli.table.table import OpenTable

    _Read = TypeVar("_Read")

_MOVES: Final = 3  # commits of others during one look, after each of which it is taken again


class Table(TableOperations):
    """One table, opened."""

    def __repr__(self) -> str:
        """Its name and format."""
        return f"Table({self.name!r}, {self.format})"

    @property
    def key(self) -> tuple[str, str]:
        """What it has in common with itself under other names: its UUID, and its folder in one spelling."""
        # A copy is another table: its storage reads the folder of the original from the place of the copy.
        folder = self._opened.storage.canonical(self._opened.location)
        return self._opened.base().table_uuid, canonical(folder).rstrip("/")

    @property
    def properties(self) -> Mapping[str, str]:
        """Its properties; of a Delta table its configuration."""
        return self._opened.properties()

    @property
    def live_files(self) -> int:
        """About how many data files it has; 0: not known."""
        return self._opened.live_files()

    def oldest_snapshot_ms(self, *, again: bool = False) -> int | None:
        """The time of its oldest snapshot, or of a Delta table's oldest version in the log; None: there is none.

        Args:
            again: look at the table again first.

        Raises:
            TableNotFound: it is gone.
            CorruptFile: its metadata cannot be read.
            BackendUnavailable: storage or catalog did not answer.
        """
        if again:
            self._opened.load()
        return self._opened.oldest_state_ms()

    # -- look --------------------------------------------------------------------------------------------------

    def inspect(
        self,
        what: str = "summary",
        *,
        snapshot_id: int | None = None,
        ref: str | None = None,
        at: Time | None = None,
        version: int | None = None,
        limit: int | None = None,
        recount: bool = False,
        as_of: Time | None = None,
    ) -> Inspection:
        """What the table is made of, in one of its states.

        Args:
            what: `summary`, `snapshots`, `files` and so on, as of `iceberg-cli inspect`.
            snapshot_id: this snapshot (Iceberg).
            ref: the head of this branch or tag (Iceberg).
            at: what was current then.
            version: this version (Delta).
            limit: at most this many rows.
            recount: count rows and bytes in all manifests, however large (summary, Iceberg).
            as_of: the "now" of every age; None: now.

        Raises:
            UsageError: an argument has no meaning for the table, or it has no such state.
        """
        with self._arguments.naming(), phase(INSPECT, self._opened.on_event, table=self.name):
            state = self._arguments.state(snapshot_id, ref, at, version)
            inspector = inspector_of(
                self._opened, what, state, recount=recount, as_of_ms=self._arguments.as_of_ms(as_of)
            )
        return Inspection(what, inspector, limit, recount)

    def diff(
        self,
        before: str,
        after: str | None = None,
        *,
        by_partition: bool = False,
        limit: int | None = None,
        as_of: Time | None = None,
    ) -> Inspection:
        """What two states of the table differ in: files, rows, bytes, deletes, schema, properties, partitions.

        Args:
            before: the first state: a ref, else a snapshot id (Iceberg) or a version (Delta), else a time as of
                `--at`.
            after: the second one; None: the current state.
            by_partition: have the document a row for each partition in which files differ; `to_arrow` always has.
            limit: the first so many of these.
            as_of: the "now" of the document; None: now.

        Raises:
            UsageError: the table has no such state.
            CorruptFile: a file that it needs is gone or damaged.
        """
        with self._arguments.naming():
            return difference_of(
                self._opened,
                before,
                after,
                by_partition=by_partition,
                limit=limit,
                as_of_ms=self._arguments.as_of_ms(as_of),
                now_ms=now_ms(),
            )

    def sample(
        self,
        limit: int | None = SAMPLE_ROWS,
        columns: Sequence[str] = (),
        *,
        snapshot_id: int | None = None,
        ref: str | None = None,
        at: Time | None = None,
        version: int | None = None,
        as_of: Time | None = None,
    ) -> Inspection:
        """Rows of the table in one of its states, without those that deletes hide, in no promised order.

        Args:
            limit: at most so many; None: all.
            columns: names of the top-level columns to show; none: all.
            snapshot_id: of this snapshot (Iceberg).
            ref: of the head of this branch or tag (Iceberg).
            at: of what was current then.
            version: of this version (Delta).
            as_of: the "now" of the document; None: now.

        Raises:
            UsageError: an argument has no meaning for the table, or it has no such state or column.
        """
        with self._arguments.naming():
            state = self._arguments.state(snapshot_id, ref, at, version)
            return sample_of(
                self._opened, state, columns, limit=limit, as_of_ms=self._arguments.as_of_ms(as_of)
            )

    def check(
        self,
        *,
        snapshot_id: int | None = None,
        ref: str | None = None,
        at: Time | None = None,
        version: int | None = None,
        deep: bool = False,
        snapshots: int | None = None,
        as_of: Time | None = None,
    ) -> CheckedTable:
        """Hold the table against its specification; arguments are those of `inspect`.

        Args:
            snapshot_id: this snapshot alone (Iceberg).
            ref: the head of this branch or tag alone (Iceberg).
            at: what was current then.
            version: this version (Delta).
            deep: look into Puffin and Parquet files too; Delta: hold every checkpoint against the log.
            snapshots: compare the newest so many snapshots that say they changed no row (`replace`) with their
                parents; None: 20 (Iceberg).
            as_of: the "now" of every age; None: now.

        Raises:
            UsageError: see `inspect`.
            CorruptFile: the metadata itself cannot be read.
        """
        with self._arguments.naming(), phase(CHECK, self._opened.on_event, table=self.name):
            state = self._arguments.state(snapshot_id, ref, at, version)
            return checked(
                self._opened,
                state,
                deep=deep,
                as_of_ms=self._arguments.as_of_ms(as_of),
                now_ms=now_ms(),
                compared=snapshots,
            )

    def fleet_columns(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """What a survey of many tables shows of its size and shape, from the document of its summary."""
        return format_of(self.format).surveying.fleet_columns(summary)

    def glance(self) -> dict[str, Any] | None:
        """What a survey keeps of its version; None: nothing."""
        return format_of(self.format).surveying.glance(self._opened)

    def lasts(self, plan: Plan, decision: Decision) -> bool:
        """Whether what a plan frees is the same as long as its version and the decision are."""
        return format_of(self.format).surveying.lasts(self._opened, plan.content, decision)

    def quick_check(self, *, as_of: Time | None = None) -> CheckResult:
        """The rules of its specification that need no file beside what was read to open it.

        Args:
            as_of: the "now" of every age; None: now.
        """
        inspector = inspector_of(
            self._opened, "summary", StateSelector(), recount=False, as_of_ms=self._arguments.as_of_ms(as_of)
        )
        return format_of(self.format).looking.quick_check(inspector)

    def notices(self) -> list[str]:
        """What was noticed in reading and is in no plan, each once."""
        return self._opened.notices()

    def save_cache(self) -> str | None:
        """Keep what was read of immutable files for later runs; why that failed, or None."""
        return self._opened.save_cache()

    # -- plan --------------------------------------------------------------------------------------------------

    def plan(self, policy: Policy, *, as_of: Time | None = None) -> Plan:
        """What a verb would do.

        Args:
            policy: of a verb and of the table's format, such as `ic.iceberg.ExpireSnapshots`.
            as_of: the "now" of every age; None: now.

        Raises:
            UsageError: the policy is of the other format, or makes no sense for the table.
            Refused: what it reads is newer than this tool, or encrypted.
            CorruptFile: a file that it reads is gone, damaged or breaks the specification.
            BackendUnavailable: storage or catalog did not answer.
        """
        self._check_format(policy)
        verb = format_of(self.format).verbs[policy.verb]
        with self._arguments.naming(policy), phase(PLAN, self._opened.on_event, table=self.name):
            as_of_ms = self._arguments.as_of_ms(as_of)
            planned = self._on_newest(
                lambda table: verb.plan(table, policy.at(as_of_ms).within(table), as_of_ms=as_of_ms)
            )
            made = with_alarm(self._opened, planned.plan, policy)
            content = with_difference(self._opened, made, now_ms=now_ms())
        return self._made(Plan(content, planned.build))

    @property
    def version(self) -> str:
        """What its pointer named when it was looked at last: a metadata file, or a version of a log."""
        return self._opened.base().version

    def has_moved_from(self, version: str) -> bool:
        """Whether its pointer, looked at now, names another version than this one; that is what is read from now on.

        Raises:
            TableNotFound: it is gone.
            CorruptFile: its metadata cannot be read.
            BackendUnavailable: storage or catalog did not answer.
        """
        self._opened.load()
        return self.version != version

    def options(self, policy: Policy, *, as_of: Time | None = None) -> Mapping[str, Option]:
        """What a verb would go by on the table as it was opened: the value and the source of every option.

        Args:
            policy: of a verb and of the table's format.
            as_of: the "now" of every age; None: now.

        Raises:
            UsageError: the policy is of the other format, or makes no sense for the table.
            CorruptFile: a property of the table cannot be read.
        """
        self._check_format(policy)
        verb = format_of(self.format).verbs[policy.verb]
        with self._arguments.naming(policy):
            as_of_ms = self._arguments.as_of_ms(as_of)
            own = policy.at(as_of_ms).within(self._opened)
            return verb.options(self._opened, own, as_of_ms=as_of_ms)

    def _made(self, plan: Plan) -> Plan:
        """The plan, of which whoever listens is told."""
        removals = plan.removals
        self._opened.on_event(
            PlanMade(
                table=self.name,
                verb=plan.verb,
                due=plan.due,
                files=removals.count,
                size_bytes=removals.size_bytes,
                warnings=tuple(plan.warnings),
                blocked_by=tuple(plan.blocked_by),
            )
        )
        return plan

    def preflight(self, policy: Policy, *, as_of: Time | None = None) -> Preflight:
        """What stands in the way of a verb: of `upgrade-v3`.

        Args:
            policy: of the verb and of the table's format.
            as_of: the "now" of every age; None: now.

        Raises:
            UsageError: the policy is of the other format, or its verb has no preflight.
            CorruptFile: the table cannot be read.
        """
        self._check_format(policy)
        verb = format_of(self.format).verbs[policy.verb]
        with self._arguments.naming(policy):
            as_of_ms = self._arguments.as_of_ms(as_of)
            return self._on_newest(
                lambda table: verb.preflight(table, policy.at(as_of_ms), as_of_ms=as_of_ms)
            )

    def _on_newest(self, read: Callable[[OpenTable], _Read]) -> _Read:
        """What is read of the table as it is now, and anew where another commit came and the files before it went."""
        table = self._newest()
        for _ in range(_MOVES):
            base = table.base()
            try:
                return read(table)
            except CorruptFile:
                if table.load() == base:
                    raise
        return read(table)

    def _newest(self) -> OpenTable:
        """The table as it is now: as it was opened, where that was a moment ago and nothing was done since."""
        if time.monotonic() > self._fresh_until:
            self._opened.load()
        self._fresh_until = 0.0
        return self._opened

    def _check_format(self, policy: Policy) -> None:
        own = policy_for(self.format, policy.verb)
        if not isinstance(policy, own):
            kind = f"{type(policy).__module__.split('.')[1]}.{type(policy).__name__}"
            raise UsageError(
                f"{kind} is no policy for {self.name}, which is a table of format {self.format}",
                next_step=f"Use iceberg_cli.{self.format}.{own.__name__}.",
            )

    def replan(self, shown: Plan, *, beyond: bool = False) -> Plan:
        """A plan made anew on the table as it is now, by the policy and time of one that was shown or loaded.

        Args:
            shown: the other one. What it does not list is kept where that can be; else `additions_over` tells of it.
            beyond: let it do what the other does not list too, for `additions_over` to tell all of it.

        Raises:
            Refused: the other was made for another table, or by a clock that is wrong.
            CorruptFile: a file that it reads is gone, damaged or breaks the specification.
            BackendUnavailable: storage or catalog did not answer.
        """
        self.check_made_for(shown)
        content = shown.content
        verb = format_of(self.format).verbs[content.verb]
        policy = verb.policy.of_plan(content)
        as_of_ms = content.as_of_ms
        with self._arguments.naming(), phase(PLAN, self._opened.on_event, table=self.name):

            def plan_within(within: PlanContent | None) -> Planned:
                return self._on_newest(
                    lambda table: verb.plan(table, policy, as_of_ms=as_of_ms, within=within)
                )

            try:
                planned = plan_within(None if beyond else content)
            except UsageError:  # snapshots that the policy names may have gone meanwhile
                if not beyond:
                    raise
                planned = plan_within(content)
            made = with_alarm(self._opened, planned.plan, policy)
            fresh = with_difference(self._opened, made, now_ms=now_ms())
        found, expected = planned.plan.base.table_uuid, content.base.table_uuid
        if found != expected:
            raise Refused(
                f"Cannot apply this plan: it was made for table {expected}, and {self.name} is {found}"
            )
        return self._made(Plan(fresh, planned.build))

    def check_made_for(self, shown: Plan) -> None:
        """Refuse a plan that was made for a table of the other format, or by a clock that is wrong.

        Args:
            shown: the plan.

        Raises:
            Refused: it was.
        """
        from iceberg_cli.operation.runtime import MAX_AHEAD_MS

        content = shown.content
        if self.format != content.table["format"]:
            raise Refused(
                f"Cannot apply this plan: it was made for a table of format {content.table['format']}"
            )
        here_ms = now_ms()
        if content.as_of_ms - here_ms > MAX_AHEAD_MS:
            raise Refused(
                f"Cannot apply this plan: it counts ages from {iso(content.as_of_ms)}, and this machine's clock shows "
                f"{iso(here_ms)}",
                next_step="Set the clock that is wrong, and plan again.",
            )

    # -- change ------------------------------------------------------------------------------------------------

    def keep_look(self, plan: Plan, *, runtime: Runtime) -> None:
        """Keep in the history that a plan of this table was made and is not carried out, if such looks count as runs.

        Args:
            plan: of this table.
            runtime: has the time.
        """
        from iceberg_cli.operation.looks import keep_look

        keep_look(plan.content, self._opened, format_of(self.format).verbs[plan.verb], runtime)

    def apply(self, plan: Plan, *, runtime: Runtime | None = None, on_event: Listener = unheard) -> Report:
        """Carry out a plan; one that was loaded is planned again first, and may only do what it lists.

        Args:
            plan: of this table.
            runtime: limits; None: none.
            on_event: see `open_table`; where there is no runtime.

        Raises:
            Refused: an interlock forbids it.
            StalePlan: the table moved, and more would go.
            CommitConflict: others were faster each time; nothing was changed.
            CommitStateUnknown: nobody knows yet whether it was committed; nothing was deleted.
            DeletesFailed: committed, and some files are still there.
            CorruptFile: a file that it reads is gone, damaged or breaks the specification.
            BackendUnavailable: storage or catalog did not answer.
            Interrupted: stopped at a safe point; `resume` goes on.
        """
        from iceberg_cli.operation.parts import apply
        from iceberg_cli.operation.ports import Planned

        runtime = runtime or new_runtime(on_event=on_event)
        with self._arguments.naming():
            if plan.build is None:
                shown, plan = plan, self.replan(plan)
                refuse_additions(plan.additions_over(shown))
            else:
                self.check_made_for(plan)
            assert plan.build is not None
            planned = Planned(plan=plan.content, build=plan.build)
            verb = format_of(self.format).verbs[plan.verb]
            self._fresh_until = 0.0
            report = replace(apply(planned, self._opened, verb, runtime), table=self.identity)
        runtime.on_event(end_of(self.name, report, exit_code=report.exit_code, earlier=False))
        return report
