"""One operation under way: each step staged, bound and committed, then swept, as far as its journal stands."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from iceberg_cli.errors import (
    BackendUnavailable,
    CommitConflict,
    CorruptFile,
    DeletesFailed,
    Refused,
    StalePlan,
)
from iceberg_cli.operation.committing_run import CommittingRun, paths_of
from iceberg_cli.operation.history import NOT_DUE_ANY_MORE, NOTHING_DONE
from iceberg_cli.operation.journal import files_left
from iceberg_cli.operation.late_files import close
from iceberg_cli.operation.outcomes import Committed, Conflict, Unknown
from iceberg_cli.operation.ports import Build, Planned
from iceberg_cli.operation.records import StepDone, SweepOnly
from iceberg_cli.operation.removal_files import in_files, write_parts
from iceberg_cli.operation.sweep import Sweep
from iceberg_cli.operation.withholding import EarlierOperation, check_others, earlier_operation
from iceberg_cli.plan.events import COMMIT, PLAN, SWEEP, WAIT
from iceberg_cli.plan.plan import Base, Plan, StagedFile, Step, Task
from iceberg_cli.plan.report import Report

_JUST_NOW_MS: Final = 1_000


@dataclass(kw_only=True)
class OperationRun(CommittingRun):
    """One operation under way: each step is committed, then swept."""

    build: Build  # of `shown`
    # Operations whose files waited for a grace when `shown` was about to be carried out.
    waiting: tuple[str, ...] = ()
    earlier: EarlierOperation | None = None  # for which the files of this one wait

    def finish(self, started_ms: int) -> Report:
        """Every step from where the journal stands, then close."""
        try:
            return self._finish(started_ms)
        except (BackendUnavailable, CorruptFile) as error:
            if self._operation().closed is None and error.general:
                error.state = self._state_of_steps()
                error.next_step = f"`resume` goes on with operation {self.journal.operation_id}."
            raise

    def _finish(self, started_ms: int) -> Report:
        for step in self.shown.steps:
            state = self._state(step)
            if state.done:
                continue
            if step is not self.shown.steps[0] and state.intent is None and self.runtime.out_of_time():
                return self._report("partial", started_ms)
            if state.intent is not None and state.outcome in (None, "unknown"):
                with self._phase(COMMIT):
                    self._settle(step, state)
            state = self._state(step)
            # Not before it is known that no commit of an earlier process came in: then it has begun long since.
            if not any(self._state(each).outcome == "committed" for each in self.shown.steps):
                self._begin()
            if state.outcome != "committed" and not self._commit(step):
                return self._report("nothing_to_do", started_ms)
            self._check_withheld()
            if not self._sweep(step):
                return self._unfinished(self._state(step).sweep_after_ms, started_ms)
            self.journal.append(StepDone(step=step.name))
        report = self._report("done", started_ms)
        self.verb.end(self.table, self.shown, self.runtime)
        close(self.journal, "done", self.runtime)
        return report

    def _unfinished(self, grace_end_ms: int | None, started_ms: int) -> Report:
        """The report where files are left: they wait, or a limit was reached, or a deletion failed.

        Args:
            grace_end_ms: when the grace of the step is over, in ms since the epoch; None: it is.
            started_ms: of this run.
        """
        if self.earlier is None and grace_end_ms is None:
            return self._report("partial", started_ms)
        assert self.shown.removals is not None
        left = files_left(self.shown.removals.count, self.shown.removals.size_bytes, self.journal)
        return replace(
            self._report("waiting", started_ms),
            waits_until_ms=grace_end_ms if self.earlier is None else self.earlier.until_ms,
            waiting_files=left.files,
            waiting_bytes=left.size_bytes,
        )

    def _begin(self) -> None:
        try:
            self.verb.begin(self.table, self.shown, self.runtime)
        except (Refused, CorruptFile):
            self._close_unsent()
            raise

    # -- commit ------------------------------------------------------------------------------------------------

    def _commit(self, step: Step) -> bool:
        """Commit one step, or find that it has nothing left to do.

        Returns:
            False if the operation ended because none of its steps is due any more.
        """
        first = step is self.shown.steps[0]
        if step.unconditional and not self._follows_a_commit(step):
            self.journal.append(_no_sweep(step))
            return True
        # Where the table has moved since it was planned for, a commit is a conflict; nothing else would tell.
        as_planned = first and not self.resumed and step.change is not None
        base = self.table.base() if as_planned else self._load()
        retries = self.table.retries()
        waits = retries.waits_ms()
        # What a run before this one staged goes: its names are its own, and it may still be writing them.
        self._discard(step, self._state(step).staged)
        staged: dict[Task, StagedFile] = {}
        while True:
            if first and self.runtime.stop_requested():
                self._close_unsent(NOTHING_DONE)
                self.runtime.check_cancelled()
            self.runtime.check_stop("Earlier steps are done.")
            try:
                planned = self._replanned(step, base, first=first)
                current = planned.plan
                now_step = step if step.unconditional else current.step(step.name)
                if now_step is not None:
                    staged = self._stage(now_step, self._still_there(step, staged), planned.build)
            except CorruptFile as error:
                # It could never be finished: whatever goes on with it finds the same damage. Only where workers may
                # still write for it, it stays open until they have ended.
                if not self.table.workers_write:
                    self._close_unsent()
                error.state = self._state_of_steps()
                raise
            if now_step is None:
                self._discard(step, paths_of(staged))
                if first and not current.due:
                    looked = self.verb.policy.place.looks_count
                    close(self.journal, "done" if looked else NOT_DUE_ANY_MORE, self.runtime)
                    return False
                self.journal.append(_no_sweep(step))
                return True
            removals_file = self._keep_removals(current)
            if now_step.change is None:
                rows = [file.row for file in staged.values()]
                self.journal.append(
                    SweepOnly(
                        step=step.name,
                        removals_file=removals_file,
                        sweep_after_ms=self._grace_end_ms(now_step, removals_file, current.grace_ms),
                        counts=tuple(row.get("counts", {}) for row in rows),
                        notes=tuple(note for row in rows for note in row.get("notes", ())),
                        after=self._begun_earlier(self._earlier(now_step, removals_file)) or None,
                    )
                )
                return True
            with self._phase(COMMIT):
                outcome = self._attempt(
                    now_step,
                    staged,
                    removals_file=removals_file,
                    grace_ms=current.grace_ms if self._goes(now_step, removals_file) else 0,
                    after=self._earlier(now_step, removals_file),
                )
            match outcome:
                case Committed():
                    return True
                case Unknown() as unknown:
                    raise self._unknown(unknown)
                case Conflict() as conflict:
                    staged = {} if conflict.may_arrive else staged
                    wait_ms = None if conflict.for_good else next(waits, None)
                    if wait_ms is None:
                        raise self._given_up(step, staged, conflict, retries.attempts)
                    with self._phase(WAIT):
                        self.runtime.sleep_ms(wait_ms)
                    base = self._load(conflict.seen if wait_ms < _JUST_NOW_MS else None)

    def _follows_a_commit(self, step: Step) -> bool:
        """Whether the step before this one has committed something."""
        index = [each.name for each in self.shown.steps].index(step.name)
        return index > 0 and self._state(self.shown.steps[index - 1]).metadata_location is not None

    def _replanned(self, step: Step, base: Base, *, first: bool) -> Planned:
        """The plan for the base at hand; the one that was shown where the step is carried out as it was shown."""
        if step.unconditional or (first and base == self.shown.base and not self.resumed):
            return Planned(plan=self.shown, build=self.build)
        try:
            planned = self._plan_again()
        except CommitConflict as error:  # the verb alone can tell that it must not go on
            self._close_unsent("conflict")
            error.state = self._state_of_steps()
            raise
        current = planned.plan
        if current.blocked_by:
            self._close_unsent()
            raise Refused(
                f"Cannot {self.shown.verb} {self.shown.table['name']} any more: "
                + "; ".join(current.blocked_by),
                state=self._state_of_steps(),
            )
        more = current.additions_over(self.shown)
        if more:
            self._close_unsent()
            raise StalePlan(
                f"Cannot go on: the table moved, and {len(more)} things that were not shown would go, "
                f"such as {more[0]}",
                state=self._state_of_steps(),
            )
        return planned

    def _plan_again(self) -> Planned:
        shown = self.shown
        policy = self.verb.policy.of_plan(shown)
        with self._phase(PLAN):
            return self.verb.plan(
                self.table, policy, as_of_ms=shown.as_of_ms, within=shown, earlier=self.build
            )

    def _keep_removals(self, current: Plan) -> str:
        assert current.removals is not None
        if current is self.shown:
            return self.shown_file
        removals = in_files(current.removals)
        write_parts(removals, self.journal.put, self.runtime.on_event)
        # Those of attempts before this one are not held: the journal has them.
        self.removals = {removals.file: removals}
        return removals.file

    def _goes(self, step: Step, removals_file: str) -> bool:
        """Whether a file goes with a step: else there is nothing to wait for."""
        start, stop = self._removals(removals_file).of_step(step.name)
        return start < stop

    def _grace_end_ms(self, step: Step, removals_file: str, grace_ms: int) -> int | None:
        """When the files of a step without a commit go, in ms since the epoch; None: at once.

        No commit of this operation takes them from the table: they were out of use when it began, and its plan was
        shown. So their grace counts from there, and an operation whose first step has waited waits no second time.
        """
        end_ms = self._operation().started_ms + grace_ms
        waits = grace_ms and end_ms > self.runtime.now_ms() and self._goes(step, removals_file)
        return end_ms if waits else None

    def _earlier(self, step: Step, removals_file: str) -> tuple[str, ...]:
        """The operations that wait for their grace and were committed before this commit, if files go after it.

        One that is committed after the plan of this commit was made took nothing that the plan counts as gone. So they
        are looked for once a plan, and again where the table has moved.
        """
        if not self._goes(step, removals_file):
            return ()
        if removals_file == self.shown_file and not self.resumed:
            return self.waiting
        return check_others(self.table, self.shown.table["name"], besides=self.journal.operation_id)

    def _damage(self, step: Step) -> str | None:
        """What a commit keeps and cannot be read whole any more, or None: it may have been decided days ago."""
        if step.unconditional or self.table.send_again_ms is not None:
            return None
        try:
            self._plan_again()
        except CorruptFile as error:
            return f"the table is damaged: {error.message}"
        return None

    # -- sweep -------------------------------------------------------------------------------------------------

    def unchanged(self, started_ms: int) -> Report | None:
        """The report of an operation of which only files are left that fail to go as they did before, else None.

        Nothing is recorded then: such an operation may be resumed by every run for years.

        Raises:
            DeletesFailed: none of its files may be deleted any more.
        """
        self._check_withheld()
        operation = self._operation()
        if operation.next_action() != "sweep":
            return None
        *_, (name, state) = operation.steps.items()
        if state.removals_file is None:
            return None
        if not self._sweep_of(name, state.removals_file).fails_as_before(state):
            return None
        return self._report("partial", started_ms)

    def _check_withheld(self) -> None:
        """Stop where a commit showed that no file may be deleted: not by this step, nor by any other one.

        A catalog that holds no requirement against what it was not told of may have dropped a ref that nobody here had
        seen; its files are needed to get it back.

        Raises:
            DeletesFailed: with the reason, and the way out.
        """
        operation = self._operation()
        if operation.withheld is None:
            return
        waiting = operation.uncommitted()
        not_done = f" Not carried out: {', '.join(waiting)}." if waiting else ""
        raise DeletesFailed(
            f"Cannot delete files of {self.shown.table['name']} after this commit: {operation.withheld}",
            state=f"{self._state_of_steps()} No file was deleted after that, nor will be by this operation.{not_done}",
            next_step="The metadata file of the version before still has what went, and all files of it are there: "
            "save from it what is needed. Then "
            f"`resume TABLE {operation.operation_id} --abandon` closes the operation; all files of the table stay.",
        )

    def _sweep_of(self, step: str, removals_file: str) -> Sweep:
        return Sweep(
            step=step,
            plan=self.shown,
            removals=self._removals(removals_file),
            table=self.table,
            runtime=self.runtime,
            journal=self.journal,
        )

    def _sweep(self, step: Step) -> bool:
        """Delete the files of one step.

        Returns:
            False if something is left: the grace is not over, a limit was reached, or a deletion failed.
        """
        state = self._state(step)
        if state.removals_file is None:
            return True
        if state.sweep_after_ms is not None and self.runtime.now_ms() < state.sweep_after_ms:
            return False
        self.earlier = self._still_waiting(state.after)
        if self.earlier is not None:
            self.notes.append(f"Its files wait for {self.earlier}.")
            return False
        sweep = self._sweep_of(step.name, state.removals_file)
        with self._phase(SWEEP):
            swept = sweep.run(state)
        self.kept_again += sweep.kept_again
        if sweep.note:
            self.notes.append(sweep.note)
        return swept

    def _begun_earlier(self, operation_ids: Sequence[str]) -> tuple[str, ...]:
        """Those of some operations that did not begin after this one, whose files were shown when it began."""
        began_ms = self._operation().started_ms
        found = []
        for operation_id in operation_ids:
            operation = self.table.workspace.journal(operation_id).operation()
            if operation is not None and operation.started_ms <= began_ms:
                found.append(operation_id)
        return tuple(found)

    def _still_waiting(self, operation_ids: Sequence[str]) -> EarlierOperation | None:
        """Which of the operations before this one its deletions wait for, or None."""
        operations = []
        for operation_id in operation_ids:
            # One that cannot be read is refused with its way out, by the sweep.
            with suppress(CorruptFile, Refused):
                operations.append(self.table.workspace.journal(operation_id).operation())
        return earlier_operation(operations, now_ms=self.runtime.now_ms())


def _no_sweep(step: Step) -> SweepOnly:
    return SweepOnly(step=step.name, removals_file=None, sweep_after_ms=None)
