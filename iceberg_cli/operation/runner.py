"""One operation under way: each step staged, bound and committed, then swept, as far as its journal stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from iceberg_cli.errors import (
    BackendUnavailable,
    CommitConflict,
    CommitStateUnknown,
    CorruptFile,
    DeletesFailed,
    IcebergCliError,
    Refused,
    RequestTooLarge,
    StalePlan,
    TakenOver,
)
from iceberg_cli.operation.late_files import close
from iceberg_cli.operation.outcomes import Committed, Conflict, Unknown
from iceberg_cli.operation.ports import Build, Planned
from iceberg_cli.operation.records import (
    CommitIntent,
    CommitOutcome,
    Stage,
    StepDone,
    StepState,
    SweepOnly,
)
from iceberg_cli.operation.removal_files import in_files, write_parts
from iceberg_cli.operation.run_state import RunState
from iceberg_cli.operation.sweep import Sweep
from iceberg_cli.operation.withholding import EarlierOperation, check_others, earlier_operation
from iceberg_cli.plan.events import COMMIT, OPEN, PLAN, STAGE, SWEEP, WAIT, CommitEnded
from iceberg_cli.plan.plan import Base, Change, Plan, StagedFile, Step, Task
from iceberg_cli.plan.report import Report
from iceberg_cli.plan.text import age

# No cleanup of unreferenced files takes younger ones. A process that stood still may come back to older ones.
_SAFE_MS: Final = 3_600_000
_JUST_NOW_MS: Final = 1_000


@dataclass(kw_only=True)
class OperationRun(RunState):
    """One operation under way: each step is committed, then swept."""

    build: Build  # of `shown`
    resumed: bool = False
    # Operations whose files waited for a grace when `shown` was about to be carried out.
    waiting: tuple[str, ...] = ()
    earlier: EarlierOperation | None = None  # for which the files of this one wait
    staged_ms: int = 0  # when the oldest staged file was begun

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
            if state.outcome != "committed" and not self._commit(step):
                return self._report("nothing_to_do", started_ms)
            self._check_withheld()
            if not self._sweep(step):
                own_ms = self._state(step).sweep_after_ms
                waiting = self.earlier is not None or own_ms is not None
                return replace(
                    self._report("waiting" if waiting else "partial", started_ms),
                    waits_until_ms=own_ms if self.earlier is None else self.earlier.until_ms,
                )
            self.journal.append(StepDone(step=step.name))
        report = self._report("done", started_ms)
        close(self.journal, "done", self.runtime)
        return report

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
                self._close_unsent()
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
                self._discard(step, _paths(staged))
                if first and not current.due:
                    close(self.journal, "nothing to do any more", self.runtime)
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
                        sweep_after_ms=None,
                        counts=tuple(row.get("counts", {}) for row in rows),
                        notes=tuple(note for row in rows for note in row.get("notes", ())),
                    )
                )
                return True
            with self._phase(COMMIT):
                outcome = self._attempt(now_step, removals_file, current.grace_ms, staged)
            match outcome:
                case Committed():
                    return True
                case Unknown(cause=cause):
                    raise CommitStateUnknown(
                        f"Cannot tell whether the commit of {self.shown.table['name']} happened: {cause}",
                        next_step=f"`resume` settles operation {self.journal.operation_id}.",
                    )
                case Conflict() as conflict:
                    staged = {} if conflict.may_arrive else staged
                    wait_ms = None if conflict.for_good else next(waits, None)
                    if wait_ms is None:
                        raise self._given_up(step, staged, conflict, retries.attempts)
                    with self._phase(WAIT):
                        self.runtime.sleep_ms(wait_ms)
                    base = self._load(conflict.seen if wait_ms < _JUST_NOW_MS else None)

    def _given_up(
        self, step: Step, staged: Mapping[Task, StagedFile], conflict: Conflict, attempts: int
    ) -> IcebergCliError:
        """Close the operation, whose commit is not tried again; the error that says so."""
        self._discard(step, _paths(staged))
        close(self.journal, "refused" if conflict.for_good else "conflict", self.runtime)
        what = f"Cannot commit to {self.shown.table['name']}: {conflict.reason}"
        if conflict.for_good:
            refusal = RequestTooLarge if conflict.too_large else Refused
            return refusal(what, state=self._state_of_steps())
        return CommitConflict(f"{what}, {attempts} times", state=self._state_of_steps())

    def _load(self, seen: str | None = None) -> Base:
        """Look at the table anew, or where it was seen to be just now.

        Raises:
            Refused: another one has its name by now.
        """
        with self._phase(OPEN):
            base = self.table.load(seen)
        # A version 1 table may have had no UUID when it was planned for; an upgrade gives it one.
        if self.shown.base.table_uuid not in ("", base.table_uuid):
            self._close_unsent()
            raise Refused(
                f"Cannot go on: {self.shown.table['name']} was table {self.shown.base.table_uuid}, and is "
                f"{base.table_uuid} now",
                state=self._state_of_steps(),
            )
        return base

    def _follows_a_commit(self, step: Step) -> bool:
        """Whether the step before this one has committed something."""
        index = [each.name for each in self.shown.steps].index(step.name)
        return index > 0 and self._state(self.shown.steps[index - 1]).metadata_location is not None

    def _replanned(self, step: Step, base: Base, *, first: bool) -> Planned:
        """The plan for the base at hand; the one that was shown where the step is carried out as it was shown."""
        if step.unconditional or (first and base == self.shown.base and not self.resumed):
            return Planned(plan=self.shown, build=self.build)
        planned = self._plan_again()
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

    def _stage(self, step: Step, staged: Mapping[Task, StagedFile], build: Build) -> dict[Task, StagedFile]:
        """Build what this plan still lacks, discard what it no longer needs."""
        self._discard(step, [file.path for task, file in staged.items() if task not in step.tasks])
        files = {task: file for task, file in staged.items() if task in step.tasks}
        missing = [task for task in step.tasks if task not in files]
        if not files:
            self.staged_ms = self.runtime.now_ms()
        if missing:
            paths = {task: self.table.workspace.staging_path(self._mark(), task) for task in missing}
            by_workers = self.table.workers_write
            with self._phase(STAGE):
                self.journal.append(Stage(step=step.name, paths=tuple(paths.values()), by_workers=by_workers))
                files |= build(step, paths)
        return files

    def _still_there(self, step: Step, staged: Mapping[Task, StagedFile]) -> Mapping[Task, StagedFile]:
        """The staged files, or none where they are old and a cleanup has begun to take them."""
        paths = _paths(staged)
        if self.runtime.now_ms() - self.staged_ms <= _SAFE_MS or not self.table.workspace.missing(paths):
            return staged
        self._discard(step, paths)
        return {}

    def _mark(self) -> str:
        """In the name of every new file: whose it is, and a number that is used once."""
        return f"{self.journal.operation_id}-{self.journal.next_number}"

    def _attempt(
        self, step: Step, removals_file: str, grace_ms: int, staged: Mapping[Task, StagedFile]
    ) -> Committed | Conflict | Unknown:
        assert step.change is not None
        attempt = self.table.bind(
            step,
            staged,
            timestamp_ms=self.runtime.now_ms(),
            commit_uuid=self.runtime.new_uuid(),
            operation_id=self.journal.operation_id,
            mark=self._mark(),
        )
        own = tuple(attempt.files)
        why_stale = partial(
            self._why_stale, [*_paths(staged), *own], attempt.commit.timestamp_ms, self.staged_ms
        )
        attempt = replace(attempt, fresh=True, why_stale=why_stale)
        intent = CommitIntent(
            step=step.name,
            base_location=attempt.base,
            metadata_location=attempt.target,
            digest=attempt.digest,
            timestamp_ms=attempt.commit.timestamp_ms,
            commit_uuid=attempt.commit.commit_uuid,
            updates=tuple(update.to_json() for update in attempt.commit.updates),
            counts={**attempt.counts, **step.change.counts},
            removals_file=removals_file,
            grace_ms=grace_ms,
            scratch=attempt.temporary_files,
            own_files=(attempt.file,) if attempt.name_is_unique else (),
            after=self._earlier(step, removals_file) or None,
        )
        try:
            if own:
                self.journal.append(Stage(step=step.name, paths=own))
                self.table.workspace.put(attempt.files)
            self.journal.append(intent)
        except TakenOver:
            # No commit that names them was ever about to be sent.
            self.table.workspace.discard([*_paths(staged), *own], marks=[self.journal.operation_id])
            raise
        stale = why_stale([])
        outcome = self.table.commit(attempt) if stale is None else Conflict(reason=stale)
        may_arrive = isinstance(outcome, Conflict) and outcome.may_arrive
        if may_arrive:
            self._leave(step, self._state(step))
        self._record_outcome(step, intent, outcome)
        if isinstance(outcome, Conflict) and not may_arrive:
            self._discard(step, own)
        return outcome

    def _earlier(self, step: Step, removals_file: str) -> tuple[str, ...]:
        """The operations that wait for their grace and were committed before this commit, if files go after it.

        One that is committed after the plan of this commit was made took nothing that the plan counts as gone. So they
        are looked for once a plan, and again where the table has moved.
        """
        start, stop = self._removals(removals_file).of_step(step.name)
        if start == stop:
            return ()
        if removals_file == self.shown_file and not self.resumed:
            return self.waiting
        return check_others(self.table, self.shown.table["name"], besides=self.journal.operation_id)

    def _record_outcome(
        self, step: Step, intent: CommitIntent, outcome: Committed | Conflict | Unknown
    ) -> None:
        """Record what came of a swap, then delete what it left behind and nobody can reference.

        Raises:
            CommitStateUnknown: it is unknown, and that cannot be recorded. BackendUnavailable: as for any other record.
        """
        committed = outcome if isinstance(outcome, Committed) else None
        withheld = self._withheld(committed) if committed else None
        waits = committed and intent.grace_ms and withheld is None
        record = CommitOutcome(
            step=step.name,
            outcome=type(outcome).__name__.lower(),
            metadata_location=committed.metadata_location if committed else None,
            sweep_after_ms=self.runtime.now_ms() + intent.grace_ms if waits else None,
            withheld=withheld,
        )
        try:
            self.journal.append(record)
        except BackendUnavailable as error:
            if isinstance(outcome, Unknown):
                raise CommitStateUnknown(
                    f"Cannot tell whether the commit of {self.shown.table['name']} happened: {outcome.cause}; nor can "
                    f"that be recorded: {error.message}",
                    next_step=f"`resume` settles operation {self.journal.operation_id}.",
                ) from error
            if committed:
                error.state = (
                    f"The commit is done, by {committed.metadata_location}; nothing was deleted after it."
                )
                error.next_step = f"`resume` goes on with operation {self.journal.operation_id}."
            raise
        finally:
            self.runtime.on_event(
                CommitEnded(
                    table=self.shown.table["name"],
                    verb=self.shown.verb,
                    operation_id=self.journal.operation_id,
                    step=step.name,
                    outcome=record.outcome,
                    reason=_reason(outcome),
                    location=record.metadata_location,
                )
            )
        match outcome:
            case Committed():
                self.table.workspace.discard(intent.scratch, marks=[intent.commit_uuid])
            case Conflict():
                # A request that may still arrive names the metadata file that was written for it.
                own = () if outcome.may_arrive else intent.own_files
                self.table.workspace.discard([*intent.scratch, *own], marks=[intent.commit_uuid])
            case Unknown():
                pass  # whatever it wrote may be the table's

    def _withheld(self, committed: Committed) -> str | None:
        """Why no file may be deleted after a commit. What has what went is copied, for the catalog may delete it."""
        if committed.former is None:
            return committed.withheld
        name = f"version-before-{committed.former.rpartition('/')[2]}"
        try:
            self.journal.put(name, self.table.workspace.storage.read(committed.former))
        except (IcebergCliError, OSError) as error:  # whatever it is, the commit is to be recorded
            return f"{committed.withheld}; {committed.former} could not be copied: {error}"
        return f"{committed.withheld}; a copy of {committed.former} is at {self.journal.folder}/{name}"

    def _settle(self, step: Step, state: StepState) -> None:
        """Find out what came of a swap that was sent, or send the same one again."""
        intent = state.intent
        assert intent is not None
        base = self.table.load()
        attempt = self.table.rebind(step, intent)
        stated, refused = "Its commit had happened.", "Its commit had been refused"
        moved = base.version != intent.base_location
        outcome = (
            Unknown(cause="its base is not there any more") if attempt is None else self.table.settle(attempt)
        )
        if (
            isinstance(outcome, Unknown)
            and not outcome.may_be_replaced
            and moved
            and intent.metadata_location is not None
        ):
            # The base has moved, so the swap cannot happen any more; had it happened, its effects would show. The
            # sweep recomputes what is live in any case. A catalog that writes the metadata itself holds a request
            # against refs and not against a location, so that it may still come in: there the committer's word stands.
            sent = replace(step, change=Change(updates=intent.updates))
            if self.table.effects_visible(sent):
                outcome = Committed(metadata_location=intent.metadata_location)
            elif not self.table.takes_late_requests:
                # Where the log was trimmed it may have come in all the same, and be a version of the past.
                outcome = Conflict(reason="the table has moved, and no effect of this commit shows")
                intent = replace(intent, own_files=())
                self._leave(step, state)
        elif isinstance(outcome, Unknown) and not moved and attempt is not None:
            # The base is still current, so the same swap, with the same content, can be sent again.
            decided_ms = intent.timestamp_ms
            stale = self._why_stale(state.staged, decided_ms, 0, []) or self._damage(step)
            if stale is None:
                why_stale = partial(self._why_stale, state.staged, decided_ms, decided_ms)
                outcome = self.table.commit(replace(attempt, why_stale=why_stale))
                stated = "Its commit was sent again, and happened."
            else:
                # Whatever of it still arrives is refused once the base or its refs have moved. Its files stay.
                outcome, refused = Conflict(reason=stale), f"Its commit was not sent again, for {stale}"
                intent = replace(intent, scratch=(), own_files=())
                self._leave(step, state)
        if isinstance(outcome, Conflict) and outcome.may_arrive:
            self._leave(step, state)
        self._record_outcome(step, intent, outcome)
        match outcome:
            case Committed():
                self.notes.append(stated if self.resumed else "The commit happened.")
            case Conflict():
                self.notes.append(f"{refused}; it was planned again.")
            case Unknown(cause=cause):
                way_out = " `resume --abandon` closes it, and its files stay." if moved else ""
                raise CommitStateUnknown(
                    f"Cannot tell yet whether the commit of {self.shown.table['name']} happened: {cause}",
                    next_step=f"`resume` asks again for operation {self.journal.operation_id}.{way_out}",
                )

    def _why_stale(
        self, names: Sequence[str], decided_ms: int, staged_ms: int, written: Sequence[str]
    ) -> str | None:
        """Why a swap that was decided earlier is not sent any more, or None.

        A cleanup of files that nothing references, by whatever tool, may have taken what it names. And a commit that
        says when it removed files must not say a time that is long gone: they would be deleted at once.

        Args:
            names: new files that the commit references.
            decided_ms: the commit's own time.
            staged_ms: when the oldest of the files was begun; nothing is looked up while they are young.
            written: more files that are needed, such as the metadata file itself.
        """
        now_ms = self.runtime.now_ms()
        limit_ms = self.table.send_again_ms
        if limit_ms is not None and now_ms - decided_ms > limit_ms:
            return f"it was decided {age(now_ms - decided_ms)} ago"
        if now_ms - min(staged_ms, decided_ms) <= _SAFE_MS:
            return None
        missing = self.table.workspace.missing([*names, *written])
        return f"{missing[0]}, which it names, is not there any more" if missing else None

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


def _reason(outcome: Committed | Conflict | Unknown) -> str:
    """Why a commit was refused, or is not known to have happened."""
    match outcome:
        case Committed():
            return ""
        case Conflict(reason=reason):
            return reason
        case Unknown(cause=cause):
            return str(cause)


def _paths(staged: Mapping[Task, StagedFile]) -> list[str]:
    return [file.path for file in staged.values()]
