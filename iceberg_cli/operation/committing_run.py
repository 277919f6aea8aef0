"""The commits of an operation: each staged, bound to the table as it is, sent once, and recorded around that."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from iceberg_cli.errors import (
    BackendUnavailable,
    CommitConflict,
    CommitStateUnknown,
    IcebergCliError,
    Refused,
    RequestTooLarge,
    TakenOver,
)
from iceberg_cli.operation.late_files import close
from iceberg_cli.operation.operation_state import StepState
from iceberg_cli.operation.outcomes import Committed, Conflict, Unknown
from iceberg_cli.operation.ports import Build
from iceberg_cli.operation.records import CommitIntent, CommitOutcome, Stage
from iceberg_cli.operation.run_state import RunState
from iceberg_cli.plan.events import OPEN, STAGE, CommitEnded
from iceberg_cli.plan.plan import Base, Change, StagedFile, Step, Task
from iceberg_cli.plan.text import age

# No cleanup of unreferenced files takes younger ones. A process that stood still may come back to older ones.
_SAFE_MS: Final = 3_600_000


@dataclass(kw_only=True)
class CommittingRun(RunState):
    """One operation, as far as its commits go."""

    resumed: bool = False
    staged_ms: int = 0  # when the oldest staged file was begun

    @abstractmethod
    def _damage(self, step: Step) -> str | None:
        """What a commit keeps and cannot be read whole any more, or None: it may have been decided days ago."""

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

    def _given_up(
        self, step: Step, staged: Mapping[Task, StagedFile], conflict: Conflict, attempts: int
    ) -> IcebergCliError:
        """Close the operation, whose commit is not tried again; the error that says so."""
        self._discard(step, paths_of(staged))
        close(self.journal, "refused" if conflict.for_good else "conflict", self.runtime)
        if conflict.for_good:
            error: IcebergCliError = self._refusal(conflict)
        else:
            what = f"Cannot commit to {self.shown.table['name']}: {conflict.reason}, {attempts} times"
            error = CommitConflict(what)
        error.state = self._state_of_steps()
        return error

    def _refusal(self, conflict: Conflict) -> Refused:
        """The error of a commit that would be refused again however often it is tried."""
        kind = RequestTooLarge if conflict.too_large else Refused
        return kind(f"Cannot commit to {self.shown.table['name']}: {conflict.reason}")

    def _unknown(self, outcome: Unknown) -> CommitStateUnknown:
        """The error of a commit that may have happened."""
        return CommitStateUnknown(
            f"Cannot tell whether the commit of {self.shown.table['name']} happened: {outcome.cause}",
            next_step=f"`resume` settles operation {self.journal.operation_id}.",
        )

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
        paths = paths_of(staged)
        if self.runtime.now_ms() - self.staged_ms <= _SAFE_MS or not self.table.workspace.missing(paths):
            return staged
        self._discard(step, paths)
        return {}

    def _mark(self) -> str:
        """In the name of every new file: whose it is, and a number that is used once."""
        return f"{self.journal.operation_id}-{self.journal.next_number}"

    def _attempt(
        self,
        step: Step,
        staged: Mapping[Task, StagedFile],
        *,
        removals_file: str | None = None,
        grace_ms: int = 0,
        after: Sequence[str] = (),
        groups: Sequence[int] | None = None,
    ) -> Committed | Conflict | Unknown:
        """One try of a commit; the last four are what its intent records."""
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
            self._why_stale, [*paths_of(staged), *own], attempt.commit.timestamp_ms, self.staged_ms
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
            after=tuple(after) or None,
            groups=None if groups is None else tuple(groups),
        )
        try:
            if own:
                self.journal.append(Stage(step=step.name, paths=own))
                self.table.workspace.put(attempt.files)
            for name, data in self.table.kept_before(attempt).items() if grace_ms else ():
                self.journal.put(name, data)
            self.journal.append(intent)
        except TakenOver:
            # No commit that names them was ever about to be sent.
            self.table.workspace.discard([*paths_of(staged), *own], marks=[self.journal.operation_id])
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
            case Committed(oversight=oversight):
                self.notes += [] if oversight is None else [oversight]
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


def _reason(outcome: Committed | Conflict | Unknown) -> str:
    """Why a commit was refused, or is not known to have happened."""
    match outcome:
        case Committed():
            return ""
        case Conflict(reason=reason):
            return reason
        case Unknown(cause=cause):
            return str(cause)


def paths_of(staged: Mapping[Task, StagedFile]) -> list[str]:
    """The paths of staged files."""
    return [file.path for file in staged.values()]
