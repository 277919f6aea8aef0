"""The journal: what an operation is about to do and what came of it, so that a crash loses nothing.

One folder for each operation, `<table>/_iceberg_cli/ops/<operation id>/`: both formats' cleaners skip names that
start with an underscore. A record is a small JSON file, `000000.json` and up, created if absent and never changed;
each carries the SHA-256 of the one before and of itself. Two processes that would write the same record are told
apart by the create: one goes on, the other stops. Intent is recorded before an effect, the outcome after it; a
process that resumes an operation records that first, so that the one before it can do nothing more.

A closed operation's files are deleted, its last record at the end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iceberg_cli.errors import CorruptFile, Refused, TakenOver
from iceberg_cli.storage import Storage

FOLDER = "_iceberg_cli/ops"
PLAN_FILE = "plan.json"
VERSION = 1
_SUFFIX = ".json"
_READS = 3  # another process may be deleting a closed journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of an operation's life."""

    kind: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """What is known of one step.

    `swept` are row ranges `[start, stop)` of the step's removals whose deletion was tried and recorded;
    `failed` the rows among them that are still there. `litter` are files of ours that may be there and that nothing
    will ever reference: their names are not used again.
    """

    staged: tuple[str, ...] = ()
    litter: tuple[str, ...] = ()
    intent: Mapping[str, Any] | None = None
    outcome: str | None = None  # committed, conflict, unknown; None while the intent has no answer
    metadata_location: str | None = None
    removals_file: str | None = None
    sweep_after_ms: int | None = None
    swept: tuple[tuple[int, int], ...] = ()
    failed: tuple[int, ...] = ()
    deleted_bytes: int = 0
    done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation as its journal tells it: the answer to "what is safe now?"."""

    operation_id: str
    operation: str
    table_uuid: str
    started_ms: int
    plan_digest: str
    host: str  # of the process that began it or took it over last, as are the next two
    process_id: int
    process_started: str  # tells a process from a later one with the same id; empty where it is not known
    steps: Mapping[str, StepState] = field(default_factory=dict)
    closed: str | None = None

    def next_action(self) -> str:
        """What to do first: `clean-up`, `ask-the-catalog`, `wait`, `sweep`, `discard` or `go-on`."""
        if self.closed is not None:
            return "clean-up"
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
    """An operation from its records. Pure.

    Raises:
        CorruptFile: the records do not start with `begin`, or one lacks a field.
        Refused: a newer version of this program wrote them.
    """
    if not records or records[0].kind != "begin":
        raise CorruptFile(operation_id, None, "the journal does not start with a begin record")
    if records[0].body.get("version") != VERSION:
        raise Refused(
            f"Cannot read the journal of operation {operation_id}: it has version "
            f"{records[0].body.get('version')!r}, and {VERSION} is known here",
            next_step="Resume it with the version of iceberg-cli that began it.",
        )
    try:
        return _fold(operation_id, records)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFile(operation_id, None, f"a record of the journal lacks a field: {error}") from error


def _fold(operation_id: str, records: Sequence[Record]) -> Operation:
    begin = owner = records[0].body
    steps: dict[str, StepState] = {}
    closed = None
    for record in records[1:]:
        body = record.body
        match record.kind:
            case "close":
                closed = body["status"]
            case "resume":
                owner = body
            case _:
                known = steps.get(body["step"], StepState())
                steps[body["step"]] = _fold_step(known, record.kind, body)
    return Operation(
        operation_id=operation_id,
        operation=begin["operation"],
        table_uuid=begin["table_uuid"],
        started_ms=begin["at_ms"],
        plan_digest=begin["plan_digest"],
        host=owner["host"],
        process_id=int(owner["process_id"]),
        process_started=str(owner["process_started"]),
        steps=steps,
        closed=closed,
    )


def _fold_step(state: StepState, kind: str, body: Mapping[str, Any]) -> StepState:
    values = {name: getattr(state, name) for name in StepState.__dataclass_fields__}
    match kind:
        case "stage":
            values["staged"] = (*state.staged, *body["paths"])
        case "discard":
            gone = set(body["paths"])
            values["staged"] = tuple(path for path in state.staged if path not in gone)
            values["litter"] = (*state.litter, *body["paths"])
        case "commit-intent":
            values.update(intent=body, outcome=None, removals_file=body["removals_file"])
        case "commit-outcome":
            values.update(
                outcome=body["outcome"],
                metadata_location=body["metadata_location"],
                sweep_after_ms=body["sweep_after_ms"],
                litter=(*state.litter, *_litter_of(state.intent, body["outcome"])),
            )
        case "sweep-only":
            values.update(
                outcome="committed",
                removals_file=body["removals_file"],
                sweep_after_ms=body["sweep_after_ms"],
            )
        case "sweep-intent":
            values["sweep_after_ms"] = None
        case "sweep-outcome":
            if "rows" in body:
                retried = set(body["rows"])
            else:
                retried = set(range(body["start"], body["stop"]))
                values["swept"] = (*state.swept, (body["start"], body["stop"]))
            values["failed"] = (*(row for row in state.failed if row not in retried), *body["failed"])
            values["deleted_bytes"] = state.deleted_bytes + body["bytes"]
        case "step-done":
            values["done"] = True
        case other:
            raise CorruptFile(body["step"], None, f"the journal has a record of unknown kind {other!r}")
    return StepState(**values)


def _litter_of(intent: Mapping[str, Any] | None, outcome: str) -> Sequence[str]:
    """What a swap leaves behind: its scratch files, and its own new files once it is refused."""
    match outcome:
        case "conflict" if intent is not None:
            return [*intent["scratch"], *intent["own_files"]]
        case "committed" if intent is not None:
            return list(intent["scratch"])
        case _:
            return []


class Journal:
    """The records of one operation, read and appended."""

    def __init__(self, storage: Storage, folder: str, operation_id: str) -> None:
        self._storage = storage
        self._records: list[Record] = []
        self._next = 0
        self._digest = ""
        self.folder = folder
        self.operation_id = operation_id

    @classmethod
    def create(cls, storage: Storage, table_location: str, operation_id: str) -> Journal:
        """An empty journal; nothing is written before the first record."""
        return cls(storage, f"{table_location.rstrip('/')}/{FOLDER}/{operation_id}", operation_id)

    @classmethod
    def load(cls, storage: Storage, table_location: str, operation_id: str) -> Journal:
        """Read a journal; one that is half deleted reads as its closing record.

        Raises:
            CorruptFile: a record is missing, damaged or does not follow from the one before.
        """
        return cls.create(storage, table_location, operation_id).read_back()

    def read_back(self) -> Journal:
        """This journal with the records that are stored; see `load`."""
        for _ in range(_READS - 1):
            try:
                return self._read_all()
            except (FileNotFoundError, CorruptFile):
                self._records, self._next, self._digest = [], 0, ""
        try:
            return self._read_all()
        except FileNotFoundError as error:
            raise CorruptFile(self.folder, None, f"a record of this journal went away: {error}") from error

    def _read_all(self) -> Journal:
        names = (info.path.rsplit("/", 1)[-1] for info in self._storage.list(self.folder))
        numbers = sorted(
            int(name.removesuffix(_SUFFIX)) for name in names if name[:6].isdigit() and name[6:] == _SUFFIX
        )
        if numbers and numbers != list(range(len(numbers))):
            record, _, _ = self._read(numbers[-1])
            if record.kind != "close":
                raise CorruptFile(self.folder, None, "a record of this journal is missing")
            self._records = [Record(kind="begin", body=record.body["begin"]), record]
            self._next = numbers[-1] + 1
            return self
        for number in numbers:
            record, previous, digest = self._read(number)
            if previous != self._digest:
                raise CorruptFile(self._path(number), "previous", "the journal's chain of digests is broken")
            self._records.append(record)
            self._next, self._digest = number + 1, digest
        return self

    def _path(self, number: int) -> str:
        return f"{self.folder}/{number:06d}{_SUFFIX}"

    def _read(self, number: int) -> tuple[Record, str, str]:
        """A record, the digest it names and its own digest."""
        data = self._storage.read(self._path(number))
        try:
            value = json.loads(data)
            record = Record(kind=value["kind"], body=value["body"])
            previous = value["previous"]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFile(self._path(number), None, f"not a journal record: {error}") from error
        if data != _encode(record.kind, record.body, previous):
            raise CorruptFile(self._path(number), "digest", "the record is not as it was written")
        return record, previous, hashlib.sha256(data).hexdigest()

    def append(self, kind: str, body: Mapping[str, Any]) -> None:
        """Record `kind`, durable when this returns.

        Raises:
            TakenOver: another process has written this record, or has closed the operation and deleted its journal.
        """
        data = _encode(kind, body, self._digest)
        try:
            self._storage.put_if_absent(self._path(self._next), data)
        except FileExistsError:
            raise self._taken_over() from None
        if self._next and not self._is_there(0):
            self._delete_all()
            raise self._taken_over()
        self._records.append(Record(kind=kind, body=dict(body)))
        self._next += 1
        self._digest = hashlib.sha256(data).hexdigest()

    def _taken_over(self) -> TakenOver:
        return TakenOver(
            f"Cannot go on with operation {self.operation_id}: another process has taken it over",
            next_step="`resume --list` shows its state.",
        )

    def _is_there(self, number: int) -> bool:
        try:
            self._storage.stat(self._path(number))
        except FileNotFoundError:
            return False
        return True

    def operation(self) -> Operation | None:
        """The state of the operation; None if its begin record was never written."""
        return fold(self.operation_id, self._records) if self._records else None

    @property
    def next_number(self) -> int:
        """The number of the record that is appended next. Only one process can append it."""
        return self._next

    def bodies(self, kind: str) -> list[Mapping[str, Any]]:
        """The bodies of all records of a kind, in order."""
        return [record.body for record in self._records if record.kind == kind]

    def put(self, name: str, data: bytes) -> None:
        """A file beside the records, such as the plan; the same bytes may be there already."""
        try:
            self._storage.put_if_absent(f"{self.folder}/{name}", data)
        except FileExistsError:
            if self._storage.read(f"{self.folder}/{name}") != data:
                raise

    def get(self, name: str) -> bytes:
        """Read a file that `put` wrote."""
        return self._storage.read(f"{self.folder}/{name}")

    def close(self, status: str) -> None:
        """Record that nothing is left to do, then delete this operation's files."""
        self.append("close", {"status": status, "begin": dict(self._records[0].body)})
        self.clean_up()

    def clean_up(self) -> None:
        """Delete a closed operation's files, then the folders that are empty.

        The first record goes first: without it no process can append. The closing record goes last: it explains what
        is left. Where a deletion fails the rest stays for the next try.
        """
        first, last = (self._storage.canonical(self._path(number)) for number in (0, self._next - 1))
        others = [info.path for info in self._storage.list(self.folder) if info.path not in (first, last)]
        for paths in ([first], others, [last]):
            if self._storage.delete(paths):
                return
        self._storage.prune(self.folder.rsplit("/", 2)[0])

    def _delete_all(self) -> None:
        """Delete what this process wrote after another one had deleted the journal."""
        self._storage.delete([info.path for info in self._storage.list(self.folder)])
        self._storage.prune(self.folder.rsplit("/", 2)[0])


def _encode(kind: str, body: Mapping[str, Any], previous: str) -> bytes:
    """A record's file: one line of JSON that ends with the SHA-256 of what stands before."""
    text = json.dumps({"kind": kind, "previous": previous, "body": body})[:-1]
    return f'{text}, "digest": "{hashlib.sha256(text.encode()).hexdigest()}"}}\n'.encode()


def prune_folders(storage: Storage, table_location: str) -> None:
    """Remove the empty folders that a process left which died before its first record or after its last deletion."""
    storage.prune(f"{table_location.rstrip('/')}/{FOLDER.partition('/')[0]}")


def open_operations(storage: Storage, table_location: str) -> list[str]:
    """The ids of the operations that have a folder under this table, oldest name first."""
    folder = f"{table_location.rstrip('/')}/{FOLDER}"
    prefix = storage.canonical(folder) + "/"
    names = {info.path.removeprefix(prefix).split("/", 1)[0] for info in storage.list(folder)}
    return sorted(name for name in names if name and not name.startswith("."))
