"""An operation of many commits under way: groups are rewritten, recorded and committed, as its journal stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from iceberg_cli.engines.watched import WatchedEngine
from iceberg_cli.errors import (
    BackendUnavailable,
    Cancelled,
    CommitConflict,
    CorruptFile,
    GroupLeftOut,
    IcebergCliError,
    Interrupted,
    TakenOver,
)
from iceberg_cli.operation.committing_run import CommittingRun, paths_of
from iceberg_cli.operation.groups.creator import GroupWork, remove_leftovers
from iceberg_cli.operation.groups.heartbeat import Heartbeat, at_work_here
from iceberg_cli.operation.groups.reporting import report_of_groups
from iceberg_cli.operation.groups.results import GroupResult, groups_folder_of, read_result
from iceberg_cli.operation.groups.states import drop, groups_of
from iceberg_cli.operation.late_files import close
from iceberg_cli.operation.operation_state import FinishedGroup, GroupStates, StepState
from iceberg_cli.operation.outcomes import Committed, Conflict, Unknown
from iceberg_cli.operation.records import Begin, GroupsDone, GroupsSent, StepDone
from iceberg_cli.paths import scheme_of
from iceberg_cli.plan.column_reads import ReadsBeforeAndAfter
from iceberg_cli.plan.events import COMMIT, STAGE, WAIT, Event
from iceberg_cli.plan.groups import Groups
from iceberg_cli.plan.plan import StagedFile, Step, Task
from iceberg_cli.plan.report import Report
from iceberg_cli.plan.text import count

if TYPE_CHECKING:
    from iceberg_cli.engines import TaskEnd
    from iceberg_cli.operation.groups.ports import Batch, CommitPace, GroupVerb

_RECORD_MS: Final = 10_000  # groups that finish within this time share a record
# Of the time that the run has taken, where that is more: so the records of the longest run are few.
_RECORD_SHARE: Final = 20
# After others have committed at each of the tries; twice as long the next time.
_CONFLICT_WAIT_MS: Final = 60_000
# New files that were seen so long ago are looked for again before a commit names them.
_SEEN_MS: Final = 60_000
_PLANNED_ON_IS_GONE: Final = "the snapshot that it was planned on is gone"
_MAY_ARRIVE: Final = (
    " A file that it wrote may still arrive: `resume`, or the first run after a day, deletes it."
)
_LOOKS: Final = 5  # at the table, at most, while a commit is made
_QUICK_MS: Final = 500  # what takes less to be read is new enough to be sent


@dataclass(kw_only=True)
class GroupsRun(CommittingRun):
    """One operation of many commits. `failure` ends the run once the groups that are under way have ended."""

    verb: GroupVerb
    heartbeat: Heartbeat = field(init=False)
    folder: str = field(init=False)
    failure: IcebergCliError | None = None
    _unrecorded: list[FinishedGroup] = field(default_factory=list)
    _unread: dict[int, CorruptFile] = field(default_factory=dict)  # groups that failed, not recorded yet
    _left_out: dict[int, str] = field(default_factory=dict)  # groups, with the reasons, not recorded yet
    _unanswered: list[str] = field(default_factory=list)  # files for which the storage gave no answer
    _lost_deletes: tuple[str, ...] = ()  # as `Batch` has them
    _reads: tuple[ReadsBeforeAndAfter, ...] = ()
    _outputs: tuple[str, ...] = ()  # data files of the commit that is about to be sent
    _outputs_seen_ms: int = 0  # when all of them were seen to be there
    # The mark of this process's tries: the number of the journal's next record, which only it can append.
    _owner: str = field(init=False)
    _recorded_ms: int = field(init=False)
    _begun_ms: int = field(init=False)
    _committed_ms: int = field(init=False)
    _commit_from_ms: int = 0  # while groups are rewritten, nothing is committed before that
    _conflict_wait_ms: int = _CONFLICT_WAIT_MS

    def __post_init__(self) -> None:
        """Give the first sign of life."""
        super().__post_init__()
        storage, now_ms = self.table.workspace.storage, self.runtime.now_ms
        (begin,) = self.journal.records(Begin)
        self.heartbeat = Heartbeat(
            storage=storage,
            folder=self.journal.folder,
            now_ms=now_ms,
            begin=replace(begin, **self.runtime.process()),
        )
        self.folder = groups_folder_of(self.journal)
        self._owner = str(self.journal.next_number)
        self._begun_ms = self._recorded_ms = self._committed_ms = now_ms()
        self._is_certain()

    @property
    def _plan_groups(self) -> Groups:
        assert self.shown.groups is not None
        return self.shown.groups

    def _groups(self) -> GroupStates:
        return groups_of(self.journal)

    def finish(self, started_ms: int, *, rewrites: bool) -> Report:
        """Go on from where the journal stands, then close.

        Args:
            started_ms: of this run.
            rewrites: whether groups that are not finished are rewritten; else they are left to another operation.
        """
        try:
            with at_work_here(self.journal.folder), self._alive_while_reading():
                self._settle_last()
                if rewrites:
                    self._rewrite()
                has_committed = self._commit_finished()
                self._reads = self._reads_now()
        except TakenOver:
            self._remove_own()
            raise
        except (BackendUnavailable, CorruptFile) as error:
            if error.general:
                error.state = self._state_of_groups()
                error.next_step = f"`resume` goes on with operation {self.journal.operation_id}."
            raise
        if not has_committed:
            return self._left_open(started_ms)
        return self._close(started_ms)

    @contextmanager
    def _alive_while_reading(self) -> Iterator[None]:
        """Give signs of life while manifests and delete files are read, too: that may take longer than others wait."""
        engine = self.table.engine
        self.table.use(WatchedEngine(engine, self._is_certain))
        try:
            yield
        finally:
            self.table.use(engine)

    # -- rewriting ---------------------------------------------------------------------------------------------

    def _rewrite(self) -> None:
        """Rewrite the groups that are not finished, and commit as they are."""
        if self.table.base().version != self.shown.base.version:
            # What cannot be committed any more is not rewritten first.
            self._drop(self.verb.changed(self.table, self.shown, self._unfinished()))
        todo = self._unfinished()
        if not todo:
            return
        tasks = self.verb.tasks(self.table, self.shown, todo)
        self._unread.update(tasks.broken)
        gone = [number for number in todo if number not in tasks.groups and number not in tasks.broken]
        self._drop(dict.fromkeys(gone, _PLANNED_ON_IS_GONE))
        work = GroupWork(
            storage=self.table.workspace.storage,
            folder=self.folder,
            operation_id=self.journal.operation_id,
            owner=self._owner,
            suffix=tasks.suffix,
            rewrite=tasks.rewrite,
        )
        todo = [number for number in todo if number in tasks.groups]
        items = [(number, tasks.groups[number]) for number in todo]
        pace = self.verb.pace(self.shown)
        if self.table.workers_write:
            self.journal.append(GroupsSent())
        ends = self.table.engine.run(work, items, may_begin=self._may_begin, processes=tasks.processes)
        with self._phase(STAGE), closing(ends):
            sizes = self._plan_groups.rows["bytes"].take(pa.array(todo, pa.int64())).to_pylist()
            done, total = 0, sum(sizes)
            self._tell(done, total)
            for end in self._ends_of(ends):
                self._is_certain()
                if end is not None:
                    self._ended(todo, end)
                    done += sizes[end.index]
                    self._tell(done, total)
                self._record(at_once=False)
                if self.failure is None and self._is_commit_due(pace):
                    self._commit_finished()
        self._record(at_once=True)

    def _tell(self, done: int, total: int) -> None:
        """Tell how many bytes of the files that are rewritten are in groups that have ended."""
        self.runtime.on_event(Event(phase="rewriting files", done=done, total=total, unit="bytes"))

    def _unfinished(self) -> list[int]:
        """The groups that are to be rewritten still."""
        states = self._groups()
        return [
            number
            for number in range(len(self._plan_groups))
            if number not in states.finished and number not in states.dropped
        ]

    def _ends_of(
        self, ends: Iterator[TaskEnd[FinishedGroup] | None]
    ) -> Iterator[TaskEnd[FinishedGroup] | None]:
        """The ends of tasks; where a bug of one ends all, what others have done is recorded first."""
        try:
            yield from ends
        except Exception:
            self._record(at_once=True)
            raise

    def _is_commit_due(self, pace: CommitPace) -> bool:
        now_ms = self.runtime.now_ms()
        waiting = [*self._groups().uncommitted(), *self._unrecorded]
        return (
            bool(waiting)
            and now_ms >= self._commit_from_ms
            and pace.is_due(
                self._plan_groups.sizes_of([each.number for each in waiting]),
                now_ms - self._committed_ms,
                commits=self._commits(),
                of_bytes=self._plan_groups.size_bytes,
            )
        )

    def _may_begin(self) -> bool:
        runtime = self.runtime
        if self.failure is not None or runtime.stop_requested() or runtime.out_of_time():
            return False
        if not self._is_certain():
            self.failure = _silent()
        return self.failure is None

    def _is_certain(self) -> bool:
        """Give a sign of life where one is due; whether others take this process for alive, without doubt.

        Raises:
            TakenOver: it stood still, and another one goes on with the operation, or has closed it.
        """
        if self.heartbeat.is_due():
            # Before it is given: it would stand in the place of that of who goes on with the operation.
            self.journal.check_ours()
            self.heartbeat.beat()
        return self.heartbeat.is_certain()

    def _ended(self, todo: Sequence[int], end: TaskEnd[FinishedGroup]) -> None:
        """Take note of a group that is finished, or that failed."""
        if end.result is not None:
            self._unrecorded.append(end.result)
        elif isinstance(end.error, CorruptFile):
            self._unread[todo[end.index]] = end.error
        elif isinstance(end.error, GroupLeftOut):
            self._left_out[todo[end.index]] = end.error.message
        elif isinstance(end.error, TakenOver):
            raise end.error
        else:
            if isinstance(end.error, BackendUnavailable) and end.error.unanswered:
                self._unanswered.append(end.error.unanswered)
            self.failure = self.failure or end.error

    def _record(self, *, at_once: bool) -> None:
        """Record the groups that are finished or failed: by few records, however many these are."""
        now_ms = self.runtime.now_ms()
        wait_ms = max(_RECORD_MS, (now_ms - self._begun_ms) // _RECORD_SHARE)
        if not (self._unrecorded or self._unread or self._left_out) or (
            not at_once and now_ms - self._recorded_ms < wait_ms
        ):
            return
        self._recorded_ms = now_ms
        done, self._unrecorded = self._unrecorded, []
        if done:
            self.journal.append(
                GroupsDone(
                    numbers=tuple(each.number for each in done),
                    attempts=tuple(each.attempt for each in done),
                    digests=tuple(each.digest for each in done),
                )
            )
        left_out, self._left_out = self._left_out, {}
        self._drop(left_out, left_out=True)
        if self._unread:
            self._record_unread()

    def _record_unread(self) -> None:
        """Drop groups whose files cannot be read: these are broken, unless the table has others by now."""
        self._load()
        unread, self._unread = self._unread, {}
        changed = self.verb.changed(self.table, self.shown, [*unread])
        self._drop(changed)
        broken = {number: error.message for number, error in unread.items() if number not in changed}
        self._drop(broken, broken=True)

    def _drop(self, reasons: Mapping[int, str], **values: bool) -> None:
        """Record that groups, by number, will not be committed."""
        drop(self.journal, reasons, **values)

    def _drop_uncommitted(self, reason: str) -> None:
        self._drop({each.number: reason for each in self._groups().uncommitted()})

    # -- commits -----------------------------------------------------------------------------------------------

    def _commits(self) -> int:
        return sum(state.outcome == "committed" for state in self._operation().steps.values())

    def _settle_last(self) -> None:
        """Find out what came of a commit that an earlier run sent."""
        for name, state in self._operation().steps.items():
            step = Step(name=name)
            if state.done:
                continue
            if state.intent is None or state.outcome == "conflict":
                self._discard(step, state.staged)
                continue
            if state.outcome != "committed":
                with self._phase(COMMIT):
                    self._settle(step, state)
            if self._state(step).outcome == "committed":
                self.journal.append(StepDone(step=name))
            else:
                self._discard(step, self._state(step).staged)

    def _commit_finished(self) -> bool:
        """Commit the groups that are finished, in one commit, and drop those that cannot be committed any more.

        Returns:
            False if others committed at each of the tries: the groups wait.
        """
        self._record(at_once=True)
        step = Step(name=f"{self.shown.steps[-1].name} {len(self._operation().steps) + 1}")
        retries = self.table.retries()
        waits = retries.waits_ms()
        staged: dict[Task, StagedFile] = {}
        seen: str | None = None
        known: dict[int, GroupResult] = {}
        batch: Batch | None = None
        while waiting := self._groups().uncommitted():
            if not self._is_certain():
                raise _silent()
            gone = self._gone(waiting, known)
            self._drop(gone)
            results = [known[each.number] for each in waiting if each.number not in gone]
            if not results:
                break
            batch = self._newest_batch(results, batch, seen)
            left_out = self._leave_out(batch)
            if batch.step is None:
                break
            named = [each for each in results if each.number not in left_out]
            self._outputs = tuple(path for each in named for path in each.paths)
            now_step = replace(batch.step, name=step.name)
            staged = self._stage(now_step, self._still_there(now_step, staged), batch.build)
            with self._phase(COMMIT):
                outcome = self._attempt(now_step, staged, groups=[each.number for each in named])
            match outcome:
                case Committed():
                    self._committed_ms = self.runtime.now_ms()
                    self.journal.append(StepDone(step=step.name))
                    return True
                case Unknown() as unknown:
                    raise self._unknown(unknown)
                case Conflict() as conflict:
                    staged = {} if conflict.may_arrive else staged
                    if conflict.for_good:
                        self._refused(conflict)
                        continue
                    wait_ms = next(waits, None)
                    if wait_ms is None:
                        self._discard(step, paths_of(staged))
                        self.notes.append(f"Not committed: {conflict.reason}, {retries.attempts} times.")
                        self._commit_from_ms = self.runtime.now_ms() + self._conflict_wait_ms
                        self._conflict_wait_ms *= 2
                        return False
                    with self._phase(WAIT):
                        self.runtime.sleep_ms(wait_ms)
                    seen = conflict.seen
        self._discard(step, paths_of(staged))
        return True

    def _newest_batch(self, results: Sequence[GroupResult], earlier: Batch | None, seen: str | None) -> Batch:
        """The commit of groups on the table as it is: where others commit meanwhile, on what these have committed.

        Where that takes long, others may well have committed; to read what these have changed takes less time than all
        that was read before it, so this comes close to them before a request is wasted.
        """
        committed = self._groups().committed
        base = self._load(seen)
        for looks_left in reversed(range(_LOOKS)):
            begun_ms = self.runtime.now_ms()
            batch = self.verb.batch(self.table, self.shown, results, committed=committed, earlier=earlier)
            is_new = batch.step is None or self.runtime.now_ms() - begun_ms < _QUICK_MS or not looks_left
            if is_new or (newest := self._load()).version == base.version:
                break
            base, earlier = newest, batch
        return batch

    def _leave_out(self, batch: Batch) -> set[int]:
        """Record which groups a commit leaves out; their numbers."""
        self._drop(batch.dropped)
        self._drop(batch.broken, broken=True)
        self._lost_deletes = batch.lost_deletes
        return {*batch.dropped, *batch.broken}

    def _refused(self, conflict: Conflict) -> None:
        """Drop the groups of a commit that would be refused again however often it is tried."""
        self.failure = self.failure or self._refusal(conflict)
        self._drop_uncommitted(conflict.reason)

    def _gone(self, finished: Sequence[FinishedGroup], known: dict[int, GroupResult]) -> Mapping[int, str]:
        """The groups of whose files some are not there any more, each with the reason.

        Args:
            finished: the groups.
            known: results by number; those that it lacks are read into it.
        """
        gone: dict[int, str] = {}
        for each in finished:
            if each.number not in known:
                try:
                    known[each.number] = read_result(self.table.workspace.storage, self.folder, each)
                except CorruptFile as error:
                    gone[each.number] = error.message
        there = [known[each.number] for each in finished if each.number not in gone]
        paths = {path: result.number for result in there for path in result.paths}
        now_ms = self.runtime.now_ms()
        missing = self.table.workspace.missing([*paths])
        self._outputs_seen_ms = now_ms
        return gone | {paths[path]: f"{path}, which it wrote, is not there any more" for path in missing}

    def _why_stale(
        self, names: Sequence[str], decided_ms: int, staged_ms: int, written: Sequence[str]
    ) -> str | None:
        """As of any commit; and files that groups wrote hours ago may be gone, or the operation be another process's.

        Raises:
            TakenOver: it is. BackendUnavailable: it may come to be.
        """
        if not self._is_certain():
            raise _silent()
        now_ms = self.runtime.now_ms()
        if now_ms - self._outputs_seen_ms > _SEEN_MS and (
            missing := self.table.workspace.missing(self._outputs)
        ):
            return f"{missing[0]}, which it names, is not there any more"
        return super()._why_stale(names, decided_ms, staged_ms, written)

    def _leave(self, step: Step, state: StepState) -> None:
        """Keep what a request names that may still arrive; groups in it are not committed a second time."""
        super()._leave(step, state)
        assert state.intent is not None
        still = {each.number for each in self._groups().uncommitted()}
        numbers = [number for number in state.intent.groups or () if number in still]
        self._drop(dict.fromkeys(numbers, "a request to commit it may still arrive"), files_stay=True)

    def _damage(self, step: Step) -> str | None:
        """A batch that was decided long ago is compared with the table as it is."""
        intent = self._state(step).intent
        assert intent is not None
        numbers = frozenset(intent.groups or ())
        known: dict[int, GroupResult] = {}
        sent = [each for each in self._groups().uncommitted() if each.number in numbers]
        if gone := self._gone(sent, known):
            return next(iter(gone.values()))
        self._outputs = tuple(path for each in known.values() for path in each.paths)
        try:
            self.verb.batch(self.table, self.shown, [*known.values()], committed=())
        except CorruptFile as error:
            return f"the table is damaged: {error.message}"
        return None

    # -- the end -----------------------------------------------------------------------------------------------

    def _close_unsent(self, status: str = "refused") -> None:
        """Delete what is not needed and close: the table is another one by now."""
        states = self._operation().steps.items()
        if all(state.done or state.outcome == "conflict" or state.intent is None for _, state in states):
            for name, state in states:
                if not state.done:
                    self._discard(Step(name=name), state.staged)
            self._drop_uncommitted("the table is another one by now")
            self._remove_leftovers()
            close(self.journal, status, self.runtime)

    def _close(self, started_ms: int) -> Report:
        """Delete what is not needed, close, and say how it ended."""
        states = self._groups()
        is_whole = len(states.committed) == len(self._plan_groups)
        report = self._groups_report("done" if is_whole else "partial", started_ms)
        self._remove_leftovers()
        is_over = close(self.journal, report.status, self.runtime, unanswered=self._late_files())
        if self.failure is not None:
            self.failure.state = self._state_of_groups()
            if not is_over:
                self.failure.state += _MAY_ARRIVE
            raise self.failure
        if self.runtime.stop_requested() and not is_whole:
            stop = Interrupted if states.committed else Cancelled
            raise stop(
                "Stopped by a signal",
                state=self._state_of_groups(),
                next_step="Run the same command again: it goes on with what is left.",
            )
        conflicts = states.dropped.keys() - states.broken - states.left_out
        if conflicts and not states.committed and not states.broken:
            raise CommitConflict(
                f"Cannot commit to {self.shown.table['name']}: {states.dropped[min(conflicts)]}",
                state=self._state_of_groups(),
                next_step=f"The operation is over: `{self.shown.verb}` plans on what others have committed.",
            )
        return report

    def _late_files(self) -> list[str] | None:
        """Data files for which there was no answer; None where there was one for all, those beside the journal too."""
        # What is sent to a local disk is done, or never will be.
        found = [path for path in self._unanswered if scheme_of(path) != "file"]
        return [path for path in found if not path.startswith(f"{self.folder}/")] if found else None

    def _remove_own(self) -> None:
        """Delete what this process wrote and no record names: another one has taken the operation over."""
        with suppress(BackendUnavailable):
            self._remove_leftovers(owner=self._owner)

    def _remove_leftovers(self, *, owner: str = "") -> None:
        remove_leftovers(self.table.workspace, self.journal, self._groups(), owner=owner)

    def _left_open(self, started_ms: int) -> Report:
        """Others commit too often: what is finished waits for `resume`."""
        report = self._groups_report("partial", started_ms)
        if self._groups().committed:
            return report
        raise CommitConflict(
            f"Cannot commit to {self.shown.table['name']}: {self.notes[-1]}",
            state=self._state_of_groups(),
            next_step=f"`resume` commits what is finished of operation {self.journal.operation_id}.",
        )

    def _state_of_groups(self) -> str:
        """How many groups are committed, in words."""
        states = self._groups()
        waiting = len(states.uncommitted())
        more = f" {count(waiting, 'groups')} finished and not committed." if waiting else ""
        if not states.committed:
            return f"The table was not changed.{more}"
        return f"Committed: {len(states.committed)} of {count(len(self._plan_groups), 'groups')}.{more}"

    def _reads_now(self) -> tuple[ReadsBeforeAndAfter, ...]:
        """What reads open now that rows are in an order; none where that is not to be told."""
        before = self._plan_groups.reads
        if not before or not self._groups().committed:
            return ()
        try:
            if self.table.load().table_uuid != self.shown.base.table_uuid:
                return ()
            now = self.verb.reads_now(self.table, self.shown)
        except TakenOver:
            raise
        except IcebergCliError as error:
            self.notes.append(f"How many files a read opens now cannot be told: {error.message}")
            return ()
        if [each.column for each in now] != [each.column for each in before]:
            return ()  # it is another order by now
        return tuple(
            each._replace(opened_after=own.opened, files_after=own.files)
            for each, own in zip(before, now, strict=True)
        )

    def _groups_report(self, status: str, started_ms: int) -> Report:
        """What the journal tells, and what this process noticed."""
        return report_of_groups(
            self.shown,
            self.journal,
            self.verb,
            status=status,
            notes=self.notes,
            vouchers=[*map(str, self.table.vouchers())],
            lost_deletes=self._lost_deletes,
            reads=self._reads,
            duration_ms=self.runtime.now_ms() - started_ms,
        )


def _silent() -> BackendUnavailable:
    return BackendUnavailable(
        "Cannot go on: no sign of life could be written for minutes, so another process may take this operation over"
    )
