"""The records of a journal, and the state of an operation after them, which decides what is safe to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final, Self, TypeAlias, assert_never

from iceberg_cli.errors import CorruptFile, Refused

VERSION = 1  # of the records; a newer program's journal is left to it


class _Wire:
    """A record whose JSON object has its fields by name and in order; those of `optional` are left out where None."""

    __slots__ = ()
    kind: ClassVar[str]
    optional: ClassVar[frozenset[str]] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """The body of the record."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value is not None or name not in self.optional
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; fields that are not known are left out.

        Raises:
            KeyError, TypeError, ValueError: a field is missing or of another type.
        """
        values = {}
        for each in fields(cls):  # type: ignore[arg-type]
            value = body.get(each.name) if each.name in cls.optional else body[each.name]
            values[each.name] = _of_type(value, str(each.type), each.name)
        return cls(**values)


def _of_type(value: Any, type_: str, name: str) -> Any:
    """A JSON value in the type of its field; `type_` is the field's annotation."""
    if value is None and type_.endswith("| None"):
        return None
    if type_.startswith("tuple["):
        if not isinstance(value, list):
            raise TypeError(f"{name} is {value!r:.40}")
        return tuple(
            _of_type(item, type_.removeprefix("tuple[").removesuffix(" | None"), name) for item in value
        )
    kind = next(kind for prefix, kind in _JSON_TYPES.items() if type_.startswith(prefix))
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{name} is {value!r:.40}")
    return value


_JSON_TYPES: Final[Mapping[str, type]] = {
    "Mapping": dict,
    "int": int,
    "str": str,
    "bool": bool,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin(_Wire):
    """An operation begins: the first record."""

    kind = "begin"
    version: int
    operation: str  # the verb, by its name on the command line
    table_uuid: str
    at_ms: int
    plan_digest: str  # SHA-256 of the plan's file, hexadecimal
    steps: tuple[str, ...]  # names, in order
    host: str
    process_id: int
    process_started: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(_Wire):
    """Another process goes on with the operation: the one before it can append nothing more."""

    kind = "resume"
    at_ms: int
    host: str
    process_id: int
    process_started: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(_Wire):
    """New files are about to be written; `by_workers`: by other processes too, which may outlive this one."""

    kind = "stage"
    optional = frozenset({"by_workers"})
    step: str
    paths: tuple[str, ...]
    by_workers: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard(_Wire):
    """Staged files that nothing references and nothing will are about to be deleted."""

    kind = "discard"
    step: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveFiles(_Wire):
    """Files of ours stay for good: a version of the past may name them."""

    kind = "leave"
    step: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitIntent(_Wire):
    """A commit is about to be sent; see `Attempt`. `after` are operations before it that wait: see `StepState`."""

    kind = "commit-intent"
    optional = frozenset({"after"})
    step: str
    base_location: str
    metadata_location: str | None  # None where the catalog writes the metadata itself
    digest: str
    timestamp_ms: int
    commit_uuid: str
    updates: tuple[Mapping[str, Any], ...]  # in the format's wire form
    counts: Mapping[str, int]  # result columns
    removals_file: str | None
    grace_ms: int
    scratch: tuple[str, ...]  # temporary files of the commit
    own_files: tuple[str, ...]  # the metadata file, where nobody else can have written it
    after: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome(_Wire):
    """The outcome of a commit: committed, conflict or unknown; see `Committed` for `withheld`."""

    kind = "commit-outcome"
    optional = frozenset({"withheld"})
    step: str
    outcome: str
    metadata_location: str | None
    sweep_after_ms: int | None  # the end of the grace, in ms since the epoch
    withheld: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOnly(_Wire):
    """A step without a commit is done but for its sweep; `counts` and `notes` are of the files that it wrote."""

    kind = "sweep-only"
    optional = frozenset({"counts", "notes"})
    step: str
    removals_file: str | None
    sweep_after_ms: int | None
    counts: tuple[Mapping[str, int], ...] | None = None
    notes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepIntent(_Wire):
    """Files are about to be deleted: rows `[start, stop)` of the step's removals, or `rows`, tried once more."""

    kind = "sweep-intent"
    optional = frozenset({"start", "stop", "rows"})
    step: str
    start: int | None = None
    stop: int | None = None
    rows: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOutcome(_Wire):
    """The outcome of a `SweepIntent`; `failed` are the rows whose files are still there, and `reasons` why.

    `tagged` is how many files their storage tagged in place of deleting them; None: none.
    """

    kind = "sweep-outcome"
    optional = frozenset({"start", "stop", "rows", "tagged"})
    step: str
    start: int | None = None
    stop: int | None = None
    rows: tuple[int, ...] | None = None
    by_kind: Mapping[str, int]  # files that were deleted
    bytes: int
    failed: tuple[int, ...]
    reasons: tuple[str, ...]  # each once
    tagged: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone(_Wire):
    """Nothing of a step is left to do."""

    kind = "step-done"
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain(_Wire):
    """All is done, but workers may still write: at `at_ms` their files are deleted, and the operation is closed."""

    kind = "look-again"
    status: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Close(_Wire):
    """Nothing is left to do: the last record. `begin` is the body of the first one, which is deleted before it."""

    kind = "close"
    status: str
    begin: Mapping[str, Any]


StepRecord: TypeAlias = (
    Stage
    | Discard
    | LeaveFiles
    | CommitIntent
    | CommitOutcome
    | SweepOnly
    | SweepIntent
    | SweepOutcome
    | StepDone
)
Record: TypeAlias = Begin | Resume | StepRecord | LookAgain | Close
_KINDS: Final[Mapping[str, type[Record]]] = {
    each.kind: each
    for each in (
        Begin, Resume, Stage, Discard, LeaveFiles, CommitIntent, CommitOutcome, SweepOnly, SweepIntent, SweepOutcome,
        StepDone, LookAgain, Close,
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A record as a journal has it: its kind, and its body, perhaps of a newer program."""

    kind: str
    body: Mapping[str, Any]


def records_of(operation_id: str, lines: Iterable[Line]) -> tuple[Record, ...]:
    """The records of a journal, each by its kind.

    Raises:
        CorruptFile: they do not start with `begin`, one lacks a field, or one is of no known kind.
        Refused: a newer version of this program wrote them.
    """
    lines = tuple(lines)
    if not lines or lines[0].kind != Begin.kind:
        raise CorruptFile(operation_id, None, "the journal does not start with a begin record")
    version = lines[0].body.get("version")
    if version != VERSION:
        raise Refused(
            f"Cannot read the journal of operation {operation_id}: it has version "
            f"{version!r}, and {VERSION} is known here",
            next_step="Resume it with the version of iceberg-cli that began it.",
        )
    if any(line.kind == Begin.kind for line in lines[1:]):
        raise CorruptFile(operation_id, None, "the journal has two begin records")
    try:
        return tuple(_record_of(operation_id, line) for line in lines)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFile(operation_id, None, f"a record of the journal lacks a field: {error}") from error


def _record_of(operation_id: str, line: Line) -> Record:
    if line.kind not in _KINDS:
        raise CorruptFile(operation_id, None, f"the journal has a record of unknown kind {line.kind!r}")
    record = _KINDS[line.kind].from_json(line.body)
    if isinstance(record, SweepOutcome) and record.rows is None and None in (record.start, record.stop):
        raise KeyError("start" if record.start is None else "stop")
    return record


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The state of an operation after the records of its journal.

    `late` are files that workers may still write for a process from which another one took over, and that nothing will
    ever reference. `look_again` is set where all is done but for these.
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
    """The state of an operation after its records. Pure.

    Args:
        operation_id: its id.
        records: see `records_of`; the first one is `Begin`.
    """
    begin, *rest = records
    assert isinstance(begin, Begin)
    owner: Begin | Resume = begin
    steps: dict[str, StepState] = {}
    late: dict[str, None] = {}
    look_again: LookAgain | None = None
    closed: str | None = None
    for record in rest:
        match record:
            case Begin():
                pass
            case Close(status=closed):
                pass
            case Resume():
                owner = record
                late |= dict.fromkeys(path for state in steps.values() for path in state.orphaned())
            case LookAgain():
                look_again = record
            case _:
                steps[record.step] = _after(steps.get(record.step, StepState()), record)
    return Operation(
        operation_id=operation_id,
        verb=begin.operation,
        table_uuid=begin.table_uuid,
        started_ms=begin.at_ms,
        plan_digest=begin.plan_digest,
        step_names=begin.steps,
        host=owner.host,
        process_id=owner.process_id,
        process_started=owner.process_started,
        steps=steps,
        late=tuple(late),
        look_again=look_again,
        closed=closed,
    )


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
