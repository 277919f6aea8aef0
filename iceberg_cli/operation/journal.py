"""The journal of an operation: intents and outcomes of its effects, so that a crash loses nothing.

One folder for each operation, `<table>/_iceberg_cli/ops/<operation id>/`: both formats' cleaners skip names that
start with an underscore. A record is a small JSON file, `000000.json` and up, created if absent and never changed;
each has the SHA-256 of the one before and of itself. Of two processes that would write the same record only one can
create it: it goes on, the other stops. Intent is recorded before an effect, the outcome after it; a process that
resumes an operation records that first, so that the one before it can do nothing more.

A closed operation's files are deleted, its last record at the end, once the table's history has a record of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from functools import reduce
from typing import TypeVar

from iceberg_cli.encoding.strict_json import loads
from iceberg_cli.errors import BackendUnavailable, CorruptFile, TakenOver
from iceberg_cli.operation.history import DeletionSums, PastOperation, record_end
from iceberg_cli.operation.operation_state import Operation, after, fold
from iceberg_cli.operation.records import Begin, Close, CommitIntent, Line, Record, SweepOutcome, records_of
from iceberg_cli.paths import OPERATIONS_FOLDER
from iceberg_cli.plan.documents import plan_from_json
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.removals import Removals
from iceberg_cli.storage import Storage

PLAN_FILE = "plan.json"
_SUFFIX = ".json"
Kind = TypeVar("Kind", bound=Record)
_READS = 3  # another process may be deleting a closed journal


class Journal:
    """The records of one operation, read and appended."""

    def __init__(self, storage: Storage, folder: str, operation_id: str) -> None:
        self._storage = storage
        self._lines: list[Line] = []
        self._parsed: list[Record] = []
        self._operation: Operation | None = None
        self._folded = 0  # the records that `_operation` is after
        self._next = 0
        self._digest = ""
        self.folder = folder
        self.operation_id = operation_id

    @classmethod
    def create(cls, storage: Storage, table_location: str, operation_id: str) -> Journal:
        """An empty journal; nothing is written before the first record."""
        return cls(storage, f"{table_location.rstrip('/')}/{OPERATIONS_FOLDER}/{operation_id}", operation_id)

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
                self._forget()
        try:
            return self._read_all()
        except FileNotFoundError as error:
            raise CorruptFile(self.folder, None, f"a record of this journal went away: {error}") from error

    def _forget(self) -> None:
        self._lines, self._parsed, self._next, self._digest = [], [], 0, ""
        self._operation = None

    def _read_all(self) -> Journal:
        names = (path.rsplit("/", 1)[-1] for path in self._storage.paths(self.folder))
        numbers = sorted(
            int(name.removesuffix(_SUFFIX))
            for name in names
            if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX).isdigit()
        )
        if numbers and numbers != list(range(len(numbers))):
            line, _, _ = self._read(numbers[-1])
            if line.kind != Close.kind:
                raise CorruptFile(self.folder, None, "a record of this journal is missing")
            self._forget()
            self._lines = [Line(kind=Begin.kind, body=line.body["begin"]), line]
            self._next = numbers[-1] + 1
            return self
        for number in numbers:
            line, previous, digest = self._read(number)
            if previous != self._digest:
                raise CorruptFile(self._path(number), "previous", "the journal's chain of digests is broken")
            self._lines.append(line)
            self._next, self._digest = number + 1, digest
        return self

    @property
    def probe_path(self) -> str:
        """A place of this process for a file that is deleted at once, or with the journal's other files."""
        return f"{self.folder}/probe-{self._next}"

    def _path(self, number: int) -> str:
        return f"{self.folder}/{number:06d}{_SUFFIX}"

    def _read(self, number: int) -> tuple[Line, str, str]:
        """A record, the digest it names and its own digest."""
        data = self._storage.read(self._path(number))
        try:
            value = json.loads(data)
            line = Line(kind=value["kind"], body=value["body"])
            previous = value["previous"]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFile(self._path(number), None, f"not a journal record: {error}") from error
        if data != _encode(line, previous):
            raise CorruptFile(self._path(number), "digest", "the record is not as it was written")
        return line, previous, hashlib.sha256(data).hexdigest()

    def append(self, record: Record) -> None:
        """Add a record, durable when this returns.

        Raises:
            TakenOver: another process has written this record, or has closed the operation and deleted its journal.
        """
        self._append(Line(kind=record.kind, body=record.to_json()))

    def _append(self, line: Line) -> None:
        data = _encode(line, self._digest)
        try:
            self._storage.put_if_absent(self._path(self._next), data)
        except FileExistsError:
            raise self._taken_over() from None
        if self._next and not self._is_there(0):
            self._delete_all()
            raise self._taken_over()
        self._lines.append(line)
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

    def check_ours(self) -> None:
        """Find out without appending whether this process may still append; delete what it wrote if it is closed.

        Raises:
            TakenOver: see `append`.
        """
        if self._is_there(self._next):
            raise self._taken_over()
        if not self._is_there(0):
            self._delete_all()
            raise self._taken_over()

    def clock_ms(self) -> int:
        """The storage's time of the newest record, in ms since the epoch; 0 where it has none.

        Raises:
            TakenOver: see `append`.
        """
        try:
            return self._storage.stat(self._path(self._next - 1)).modified_ms
        except FileNotFoundError:
            self._check_still_there()
            raise

    def operation(self) -> Operation | None:
        """The state of the operation; None if its begin record was never written.

        Raises:
            CorruptFile, Refused: see `records_of`.
        """
        if not self._lines:
            return None
        records = self._records()
        if self._operation is None:
            self._operation = fold(self.operation_id, records)
        else:
            self._operation = reduce(after, records[self._folded :], self._operation)
        self._folded = len(records)
        return self._operation

    def _records(self) -> Sequence[Record]:
        new = self._lines[len(self._parsed) :]
        if new and self._parsed:
            self._parsed += records_of(self.operation_id, [self._lines[0], *new])[1:]
        elif new:
            self._parsed = [*records_of(self.operation_id, new)]
        return self._parsed

    @property
    def next_number(self) -> int:
        """The index of the record that is appended next. Only one process can append it."""
        return self._next

    def records(self, kind: type[Kind]) -> list[Kind]:
        """All records of a kind, in order."""
        return [record for record in self._records() if isinstance(record, kind)]

    def marks(self) -> list[str]:
        """What is in the names of the operation's files: its id, and the UUIDs of its commits."""
        return [self.operation_id, *(intent.commit_uuid for intent in self.records(CommitIntent))]

    def put(self, name: str, data: bytes) -> None:
        """Write a file beside the records, such as the plan; the same bytes may be there already."""
        try:
            self._storage.put_if_absent(f"{self.folder}/{name}", data)
        except FileExistsError:
            if self._storage.read(f"{self.folder}/{name}") != data:
                raise

    def get(self, name: str) -> bytes:
        """Read a file that `put` wrote.

        Raises:
            TakenOver: see `append`.
        """
        try:
            return self._storage.read(f"{self.folder}/{name}")
        except FileNotFoundError:
            self._check_still_there()
            raise

    def _check_still_there(self) -> None:
        """Raise TakenOver if the first record is gone: another process has closed the operation."""
        if self._next and not self._is_there(0):
            raise self._taken_over() from None

    def close(self, status: str, *, at_ms: int) -> None:
        """Record that nothing is left to do, then delete this operation's files; see `clean_up`.

        Args:
            status: how it ended; see `PastOperation`.
            at_ms: when, by our clock.
        """
        self.append(Close(status=status, begin=self._lines[0].body, at_ms=at_ms))
        self.clean_up()

    def past(self, *, status: str, at_ms: int | None) -> PastOperation:
        """The operation, which has begun, for the table's history."""
        operation = self.operation()
        assert operation is not None
        return PastOperation.of(operation, self._records(), status=status, finished_ms=at_ms)

    def keep(self, *, status: str, at_ms: int | None) -> bool:
        """Have a record of this operation in the table's history; see `record_end`."""
        table_location = self.folder.removesuffix(f"/{OPERATIONS_FOLDER}/{self.operation_id}")
        return record_end(self._storage, table_location, self.past(status=status, at_ms=at_ms))

    def clean_up(self) -> None:
        """Have a record of a closed operation in the history, delete its files, then the folders that are empty.

        The first record goes first: without it no process can append. The closing record goes last: it explains what
        is left. Where the storage fails the rest stays for the next try: the operation itself is done.
        """
        closed = self.records(Close)
        if closed and not self.keep(status=closed[-1].status, at_ms=closed[-1].at_ms):
            return
        first, last = (self._storage.canonical(self._path(number)) for number in (0, self._next - 1))
        with contextlib.suppress(BackendUnavailable):
            others = [path for path in self._storage.paths(self.folder) if path not in (first, last)]
            for paths in ([first], others, [last]):
                if self._storage.erase(paths):
                    return
            self._storage.prune(self.folder.rsplit("/", 2)[0])

    def _delete_all(self) -> None:
        """Delete the files that this process wrote after another one had deleted the journal."""
        self._storage.erase(list(self._storage.paths(self.folder)))
        self._storage.prune(self.folder.rsplit("/", 2)[0])


def _encode(line: Line, previous: str) -> bytes:
    """A record's file: one line of JSON that ends with the SHA-256 of what stands before."""
    text = json.dumps({"kind": line.kind, "previous": previous, "body": line.body})[:-1]
    return f'{text}, "digest": "{hashlib.sha256(text.encode()).hexdigest()}"}}\n'.encode()


def prune_folders(storage: Storage, table_location: str) -> None:
    """Remove empty folders of a process that died before its first record or after its last deletion."""
    storage.prune(f"{table_location.rstrip('/')}/{OPERATIONS_FOLDER.partition('/')[0]}")


def load_plan(journal: Journal) -> tuple[Plan, str] | None:
    """The plan that an operation was started with and its removals' name; None if it died before they were written.

    Raises:
        CorruptFile: the plan or its removals cannot be read whole.
    """
    path = f"{journal.folder}/{PLAN_FILE}"
    operation = journal.operation()
    try:
        data = journal.get(PLAN_FILE)
    except FileNotFoundError:
        if operation is not None and operation.steps:
            raise CorruptFile(path, None, "the journal has steps of this plan and it is not there") from None
        return None
    if operation is None or operation.plan_digest != hashlib.sha256(data).hexdigest():
        raise CorruptFile(path, None, "it is not the plan that the journal began with")
    document = loads(data, path)
    name = document["removals"]["file"]
    removals = load_removals(journal, name)
    return plan_from_json(document, removals=removals, path=path, read=journal.get), name


def files_left(count: int, size_bytes: int, journal: Journal) -> DeletionSums:
    """Files of an operation's plan that it has not deleted, and their bytes; those that it kept are among them.

    Args:
        count: files that the plan deletes.
        size_bytes: of these.
        journal: of the operation.
    """
    gone = DeletionSums.of(journal.records(SweepOutcome))
    return DeletionSums(max(0, count - gone.files), max(0, size_bytes - gone.size_bytes))


def waiting_sums(journal: Journal) -> DeletionSums | None:
    """The same by the plan of an open operation, whose list of files is not read; None where it cannot be read."""
    try:
        removals = loads(journal.get(PLAN_FILE), f"{journal.folder}/{PLAN_FILE}")["removals"]
        return files_left(int(removals["count"]), int(removals["bytes"]), journal)
    except (CorruptFile, FileNotFoundError, KeyError, TypeError, ValueError):
        return None


def load_removals(journal: Journal, name: str) -> Removals:
    """The removals of an operation, by the name of their file, or of the index of their parts.

    Raises:
        CorruptFile: they do not have the digest in their name.
    """
    return Removals.load(name, journal.get, journal.folder)
