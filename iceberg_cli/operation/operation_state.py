"""The state of an operation after the records of its journal, which decides what is safe to do. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import NamedTuple, assert_never

from iceberg_cli.operation.records import (
    WITH_GROUPS,
    Begin,
    Close,
    CommitIntent,
    CommitOutcome,
    Discard,
    GroupRecord,
    GroupsDone,
    GroupsDropped,
    GroupsSent,
    LeaveFiles,
    LookAgain,
    Record,
    Resume,
    Stage,
    StepDone,
    StepRecord,
    SweepIntent,
    SweepOnly,
    SweepOutcome,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """The state of one step after the records of it.

    `swept` are row ranges `[start, stop)` of the step's removals whose deletion was tried and recorded;
    `failed` the rows among them that are still there. `leftovers` are files of ours that may be there and that nothing
    will ever reference: their names are not used again. `left` are files of ours that a version of the past may name:
    they stay. `by_workers` are files, staged or not any more, that processes other than the journal's write, which may
    outlive it. `after` are the operations that were committed before this step and whose files waited for a grace then:
    what they took from the table may still come back, and needs files that this step takes.
    """

    staged: tuple[str, ...] = ()
    by_workers: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    intent: CommitIntent | None = None
    outcome: str | None = None  # committed, conflict, unknown; None while the intent has no answer
    metadata_location: str | None = None
    removals_file: str | None = None
    sweep_after_ms: int | None = None
    withheld: str | None = None  # why no file may be deleted any more, though it was committed
    swept: tuple[tuple[int, int], ...] = ()
    failed: tuple[int, ...] = ()
    deleted_bytes: int = 0
    done: bool = False

    def orphaned(self) -> list[str]:
        """Files of workers that no commit names and, once another process has taken over, none ever will."""
        unnamed = self.outcome == "conflict" or (self.intent is None and self.outcome is None)
        by_workers = frozenset(self.by_workers)
        return [path for path in self.staged if path in by_workers] if unnamed else []


def committed_counts(states: Iterable[StepState]) -> Counter[str]:
    """The sums of what the commits of steps count, as columns of a report, of those that came in."""
    sums: Counter[str] = Counter()
    for state in states:
        if state.intent is not None and state.outcome == "committed":
            sums.update(state.intent.counts)
    return sums


class FinishedGroup(NamedTuple):
    """A group whose files count: its number, the mark of the try that wrote them, and the digest of its result."""

    number: int
    attempt: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStates:
    """The groups of an operation of many commits.

    Args:
        finished: those whose files count, by number, whatever became of them then.
        committed: numbers of those that the table has.
        dropped: numbers of those that will not be committed, each with the reason.
        broken: those of them that have files which cannot be read.
        left_out: those of them whose files better stay as they are.
        files_stay: those that a version of the past, or a request that may still arrive, may name.
        sent: whether other machines may be at work on some for the process that goes on with the operation.
        late: whether they may be for one from which another process took over.
    """

    finished: Mapping[int, FinishedGroup] = field(default_factory=dict)
    committed: frozenset[int] = frozenset()
    dropped: Mapping[int, str] = field(default_factory=dict)
    broken: frozenset[int] = frozenset()
    left_out: frozenset[int] = frozenset()
    files_stay: frozenset[int] = frozenset()
    sent: bool = False
    late: bool = False

    def uncommitted(self) -> list[FinishedGroup]:
        """Those that are finished and still to be committed, by number."""
        return [
            self.finished[number]
            for number in sorted(self.finished)
            if number not in self.committed and number not in self.dropped
        ]

    def needed(self) -> frozenset[tuple[int, str]]:
        """Number and attempt of each whose files may not be deleted, once no commit is under way."""
        return frozenset(
            (each.number, each.attempt)
            for each in self.finished.values()
            if each.number not in self.dropped or each.number in self.files_stay
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The state of an operation after the records of its journal.

    `late` are files that workers may still write for a process from which another one took over, and that nothing will
    ever reference. `look_again` is set where all is done but for files that may still arrive. `groups`: of an operation
    of many commits. `undoes`: the id of the operation that it takes back.
    """

    operation_id: str
    verb: str
    table_uuid: str
    started_ms: int
    plan_digest: str
    host: str  # of the process that began it or took it over last, as are the next two
    process_id: int
    process_started: str  # differs from that of a later process with the same id; empty where it is not known
    step_names: tuple[str, ...] = ()  # all of the plan's, in order
    steps: Mapping[str, StepState] = field(default_factory=dict)  # those that have begun
    late: tuple[str, ...] = ()
    look_again: LookAgain | None = None
    closed: str | None = None
    groups: GroupStates | None = None
    undoes: str | None = None

    @property
    def withheld(self) -> str | None:
        """Why no file may be deleted any more, by none of the steps; None: they may."""
        return next((state.withheld for state in self.steps.values() if state.withheld is not None), None)

    def uncommitted(self) -> tuple[str, ...]:
        """The steps whose commit is still to come."""
        return tuple(
            name for name in self.step_names if self.steps.get(name, StepState()).outcome != "committed"
        )

    def grace_until_ms(self) -> int | None:
        """When the grace of its last files is over, in ms since the epoch; None where it waits for none."""
        ends_ms = [state.sweep_after_ms for state in self.steps.values() if not state.done]
        return max((each for each in ends_ms if each is not None), default=None)

    def may_come_to_wait(self) -> bool:
        """Whether a commit after which files wait for a grace has no known outcome yet."""
        return any(
            state.intent is not None and state.intent.grace_ms > 0 and state.outcome in (None, "unknown")
            for state in self.steps.values()
        )

    def next_action(self) -> str:
        """The next action.

        `clean-up`, `abandon`, `look-again`, `ask-the-catalog`, `wait`, `sweep`, `discard` or `go-on`.
        """
        if self.closed is not None:
            return "clean-up"
        if self.withheld is not None:
            return "abandon"
        if self.look_again is not None:
            return "look-again"
        if not self.steps:
            return "discard"
        last = list(self.steps.values())[-1]
        if last.done:
            return "go-on"
        if last.intent is not None and last.outcome in (None, "unknown"):
            return "ask-the-catalog"
        if last.outcome == "committed":
            return "wait" if last.sweep_after_ms is not None and not last.swept else "sweep"
        return "go-on" if len(self.steps) > 1 else "discard"


def fold(operation_id: str, records: Sequence[Record]) -> Operation:
    """The state of an operation after its records.

    Args:
        operation_id: its id.
        records: see `records_of`; the first one is `Begin`.
    """
    begin, *rest = records
    assert isinstance(begin, Begin)
    return reduce(after, rest, begun(operation_id, begin))


def begun(operation_id: str, begin: Begin) -> Operation:
    """The state of an operation of which nothing is recorded but its begin."""
    return Operation(
        operation_id=operation_id,
        verb=begin.operation,
        table_uuid=begin.table_uuid,
        started_ms=begin.at_ms,
        plan_digest=begin.plan_digest,
        step_names=begin.steps,
        host=begin.host,
        process_id=begin.process_id,
        process_started=begin.process_started,
        groups=GroupStates() if begin.version == WITH_GROUPS else None,
        undoes=None if begin.undoes is None else begin.undoes.get("operation_id"),
    )


def after(operation: Operation, record: Record) -> Operation:
    """The state of an operation after one more record."""
    match record:
        case Begin():
            return operation
        case Close(status=status):
            return replace(operation, closed=status)
        case Resume():
            late = dict.fromkeys(operation.late)
            late |= dict.fromkeys(path for state in operation.steps.values() for path in state.orphaned())
            return replace(
                operation,
                host=record.host,
                process_id=record.process_id,
                process_started=record.process_started,
                late=tuple(late),
                groups=_taken_over(operation.groups),
            )
        case LookAgain():
            return replace(operation, look_again=record)
        case GroupsSent() | GroupsDone() | GroupsDropped():
            return replace(operation, groups=_groups_after(operation.groups or GroupStates(), record))
        case _:
            state = _after(operation.steps.get(record.step, StepState()), record)
            found = replace(operation, steps={**operation.steps, record.step: state})
            if operation.groups is None or state.intent is None or state.intent.groups is None:
                return found
            numbers = frozenset(state.intent.groups)
            if isinstance(record, CommitOutcome) and record.outcome == "committed":
                groups = replace(operation.groups, committed=operation.groups.committed | numbers)
            elif isinstance(record, LeaveFiles):
                groups = replace(operation.groups, files_stay=operation.groups.files_stay | numbers)
            else:
                return found
            return replace(found, groups=groups)


def _taken_over(groups: GroupStates | None) -> GroupStates | None:
    return None if groups is None else replace(groups, late=groups.late or groups.sent, sent=False)


def _groups_after(groups: GroupStates, record: GroupRecord) -> GroupStates:
    match record:
        case GroupsSent():
            return replace(groups, sent=True)
        case GroupsDone():
            found = map(FinishedGroup, record.numbers, record.attempts, record.digests)
            return replace(groups, finished={**groups.finished, **{each.number: each for each in found}})
        case GroupsDropped():
            numbers = frozenset(record.numbers)
            return replace(
                groups,
                dropped={**groups.dropped, **dict(zip(record.numbers, record.reasons, strict=True))},
                broken=groups.broken | numbers if record.broken else groups.broken,
                left_out=groups.left_out | numbers if record.left_out else groups.left_out,
                files_stay=groups.files_stay | numbers if record.files_stay else groups.files_stay,
            )
        case _:
            assert_never(record)


def _after(state: StepState, record: StepRecord) -> StepState:
    """The state of a step after one more record of it."""
    match record:
        case Stage(paths=paths):
            by_workers = paths if record.by_workers else ()
            return replace(state, staged=(*state.staged, *paths), by_workers=(*state.by_workers, *by_workers))
        case Discard(paths=paths):
            return replace(state, staged=_without(state.staged, paths), leftovers=(*state.leftovers, *paths))
        case LeaveFiles(paths=paths):
            return replace(state, staged=_without(state.staged, paths), left=(*state.left, *paths))
        case CommitIntent():
            after = record.after or ()
            return replace(
                state, intent=record, outcome=None, removals_file=record.removals_file, after=after
            )
        case CommitOutcome():
            return replace(
                state,
                outcome=record.outcome,
                metadata_location=record.metadata_location,
                sweep_after_ms=record.sweep_after_ms,
                withheld=record.withheld,
                leftovers=(*state.leftovers, *_leftovers_of(state, record.outcome)),
            )
        case SweepOnly():
            return replace(
                state,
                outcome="committed",
                removals_file=record.removals_file,
                sweep_after_ms=record.sweep_after_ms,
                after=record.after or (),
            )
        case SweepIntent():
            return replace(state, sweep_after_ms=None)
        case SweepOutcome():
            return _swept(state, record)
        case StepDone():
            return replace(state, done=True)
        case _:
            assert_never(record)


def _without(paths: tuple[str, ...], gone: Sequence[str]) -> tuple[str, ...]:
    excluded = frozenset(gone)
    return tuple(path for path in paths if path not in excluded)


def _swept(state: StepState, record: SweepOutcome) -> StepState:
    if record.rows is not None:
        tried, swept = set(record.rows), state.swept
    else:
        assert record.start is not None
        assert record.stop is not None
        tried = set(range(record.start, record.stop))
        swept = (*state.swept, (record.start, record.stop))
    return replace(
        state,
        swept=swept,
        failed=(*(row for row in state.failed if row not in tried), *record.failed),
        deleted_bytes=state.deleted_bytes + record.bytes,
    )


def _leftovers_of(state: StepState, outcome: str) -> Sequence[str]:
    """The files that a commit leaves behind: its temporary files, and its own new files once it is refused."""
    match outcome:
        case "conflict" if state.intent is not None:
            paths = [*state.intent.scratch, *state.intent.own_files]
            return [path for path in paths if path not in state.left]
        case "committed" if state.intent is not None:
            return list(state.intent.scratch)
        case _:
            return []
