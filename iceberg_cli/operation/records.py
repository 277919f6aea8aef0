"""The records of a journal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Self, TypeAlias

from iceberg_cli.errors import CorruptFile, Refused

VERSION: Final = 1  # of the records; a newer program's journal is left to it
WITH_GROUPS: Final = (
    2  # version of the records of operations of many commits, which older programs leave alone
)


class Wire:
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
class Begin(Wire):
    """An operation begins: the first record.

    `undoes` has `operation_id` and `operation` of the one that it takes back; `removals` count, bytes and digest of the
    files that were shown to go; None: none was.
    """

    kind = "begin"
    optional = frozenset({"actor", "undoes", "removals"})
    version: int
    operation: str  # the verb, by its name on the command line
    table_uuid: str
    at_ms: int
    plan_digest: str  # SHA-256 of the plan's file, hexadecimal
    steps: tuple[str, ...]  # names, in order
    host: str
    process_id: int
    process_started: str
    actor: str | None = None  # who runs it, for people
    undoes: Mapping[str, str] | None = None
    removals: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(Wire):
    """Another process goes on with the operation: the one before it can append nothing more."""

    kind = "resume"
    at_ms: int
    host: str
    process_id: int
    process_started: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(Wire):
    """New files are about to be written; `by_workers`: by other processes too, which may outlive this one."""

    kind = "stage"
    optional = frozenset({"by_workers"})
    step: str
    paths: tuple[str, ...]
    by_workers: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard(Wire):
    """Staged files that nothing references and nothing will are about to be deleted."""

    kind = "discard"
    step: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveFiles(Wire):
    """Files of ours stay for good: a version of the past may name them."""

    kind = "leave"
    step: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitIntent(Wire):
    """A commit is about to be sent; see `Attempt`. `after` are operations before it that wait: see `StepState`.

    `groups` are the numbers of those that it commits, of an operation of many commits.
    """

    kind = "commit-intent"
    optional = frozenset({"after", "groups"})
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
    groups: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome(Wire):
    """The outcome of a commit: committed, conflict or unknown; see `Committed` for `withheld`."""

    kind = "commit-outcome"
    optional = frozenset({"withheld"})
    step: str
    outcome: str
    metadata_location: str | None
    sweep_after_ms: int | None  # the end of the grace, in ms since the epoch
    withheld: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOnly(Wire):
    """A step without a commit is done but for its sweep; `counts` and `notes` are of the files that it wrote.

    `after` as of `CommitIntent`.
    """

    kind = "sweep-only"
    optional = frozenset({"counts", "notes", "after"})
    step: str
    removals_file: str | None
    sweep_after_ms: int | None
    counts: tuple[Mapping[str, int], ...] | None = None
    notes: tuple[str, ...] | None = None
    after: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepIntent(Wire):
    """Files are about to be deleted: rows `[start, stop)` of the step's removals, or `rows`, tried once more."""

    kind = "sweep-intent"
    optional = frozenset({"start", "stop", "rows"})
    step: str
    start: int | None = None
    stop: int | None = None
    rows: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOutcome(Wire):
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
class StepDone(Wire):
    """Nothing of a step is left to do."""

    kind = "step-done"
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSent(Wire):
    """Groups are about to be rewritten by processes on other machines, which may outlive this one."""

    kind = "groups-sent"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsDone(Wire):
    """Groups are finished: what each wrote stands in a file beside the journal, and counts by this record alone.

    Args:
        numbers: of n groups.
        attempts: n marks, each of the one try of its group whose files count.
        digests: n SHA-256 of these files, hexadecimal.
    """

    kind = "groups-done"
    numbers: tuple[int, ...]
    attempts: tuple[str, ...]
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsDropped(Wire):
    """Groups will not be committed.

    Args:
        numbers: of n groups.
        reasons: n sentences.
        broken: whether it is for files of the table that cannot be read; None: it is not.
        files_stay: whether a request that names what they wrote may still arrive; None: none may.
        left_out: whether it is better that their files stay as they are; None: it is for what others did.
    """

    kind = "groups-dropped"
    optional = frozenset({"broken", "files_stay", "left_out"})
    numbers: tuple[int, ...]
    reasons: tuple[str, ...]
    broken: bool | None = None
    files_stay: bool | None = None
    left_out: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain(Wire):
    """All is done, but files may still arrive: at `at_ms` these are deleted, and the operation is closed.

    `paths` are those of groups whose requests had no answer.
    """

    kind = "look-again"
    optional = frozenset({"paths"})
    status: str
    at_ms: int
    paths: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Close(Wire):
    """Nothing is left to do: the last record. `begin` is the body of the first one, which is deleted before it."""

    kind = "close"
    optional = frozenset({"at_ms"})
    status: str
    begin: Mapping[str, Any]
    at_ms: int | None = None


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
GroupRecord: TypeAlias = GroupsSent | GroupsDone | GroupsDropped
Record: TypeAlias = Begin | Resume | StepRecord | GroupRecord | LookAgain | Close
_KINDS: Final[Mapping[str, type[Record]]] = {
    each.kind: each
    for each in (
        Begin, Resume, Stage, Discard, LeaveFiles, CommitIntent, CommitOutcome, SweepOnly, SweepIntent, SweepOutcome,
        StepDone, GroupsSent, GroupsDone, GroupsDropped, LookAgain, Close,
    )
}  # fmt: skip
_OF_GROUPS: Final = frozenset({GroupsSent.kind, GroupsDone.kind, GroupsDropped.kind})


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
    if version not in {VERSION, WITH_GROUPS}:
        raise Refused(
            f"Cannot read the journal of operation {operation_id}: it has version "
            f"{version!r}, and {WITH_GROUPS} is known here",
            next_step="Resume it with the version of iceberg-cli that began it.",
        )
    if any(line.kind == Begin.kind for line in lines[1:]):
        raise CorruptFile(operation_id, None, "the journal has two begin records")
    try:
        return tuple(_record_of(operation_id, line, version) for line in lines)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFile(operation_id, None, f"a record of the journal lacks a field: {error}") from error


def _record_of(operation_id: str, line: Line, version: int) -> Record:
    if line.kind not in _KINDS or (line.kind in _OF_GROUPS and version != WITH_GROUPS):
        raise CorruptFile(operation_id, None, f"the journal has a record of unknown kind {line.kind!r}")
    record = _KINDS[line.kind].from_json(line.body)
    if isinstance(record, GroupsDone) and not len(record.numbers) == len(record.attempts) == len(
        record.digests
    ):
        raise ValueError("numbers, attempts and digests are not as many")
    if isinstance(record, GroupsDropped) and len(record.numbers) != len(record.reasons):
        raise ValueError("numbers and reasons are not as many")
    if isinstance(record, SweepOutcome) and record.rows is None and None in (record.start, record.stop):
        raise KeyError("start" if record.start is None else "stop")
    return record
