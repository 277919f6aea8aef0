"""The history of a table: a record of each operation that is over, beside the journals of those that are open.

`<table>/_iceberg_cli/history/<started_ms>-<verb>-<operation id>.json`, created if absent once the operation is closed,
before its journal goes, and never changed; of each verb the newest hundred stay. No file is deleted by what they say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any, Final, NamedTuple

from iceberg_cli.encoding.strict_json import loads
from iceberg_cli.errors import AccessDenied, BackendUnavailable, CorruptFile
from iceberg_cli.operation.operation_state import Operation, committed_counts
from iceberg_cli.operation.records import Begin, Record, Resume, SweepOutcome, Wire
from iceberg_cli.operation.undoing import branches_of
from iceberg_cli.paths import HISTORY_FOLDER
from iceberg_cli.plan.alarm import PastDeletion
from iceberg_cli.plan.text import iso
from iceberg_cli.storage import Storage

NOTHING_DONE, NOT_DUE_ANY_MORE = "nothing was done", "nothing to do any more"
_UNRECORDED: Final = frozenset({NOTHING_DONE, NOT_DUE_ANY_MORE})
_KEPT: Final = 100  # of each verb
_REWRITTEN: Final = "rewritten_bytes_count"
_MEASURED: Final = 3  # runs of which the speed is looked at
_SUFFIX: Final = ".json"
_VERSION: Final = 1


class DeletionSums(NamedTuple):
    """Files that an operation has deleted so far, and their bytes."""

    files: int
    size_bytes: int

    @classmethod
    def of(cls, outcomes: Sequence[SweepOutcome]) -> DeletionSums:
        """Those of all outcomes of an operation's sweeps."""
        return cls(
            sum(sum(record.by_kind.values()) for record in outcomes), sum(record.bytes for record in outcomes)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PastOperation(Wire):
    """An operation, as far as it has come.

    Args:
        version: of the record.
        operation_id: its id.
        operation: the verb, by its name on the command line.
        table_uuid: of its table; empty where that had none.
        actor: who ran it; None where a program of before did.
        started_ms: when it began, in ms since the epoch by the clock of its process.
        finished_ms: likewise, when it ended; None: it is open, or a program of before closed it.
        status: how it ended (done, partial, conflict, refused, undone, abandoned), or the state that it is in.
        committed: where its commits are, metadata files or those of a log, oldest first.
        deleted_files_count: files that it deleted.
        reclaimed_bytes: of these.
        counts: sums of the result columns of its commits, as reports have them.
        resumed: whether more than one process worked on it, perhaps with days between them.
        undoes: `operation_id` and `operation` of the one that it takes back; None: it takes none back.
        removals: `count`, `bytes` and `digest` of the files that were shown to go; None: none was, or a program of
            before ran it.
        branches: of an Iceberg table, those that its commits have moved; None: none, or a program of before ran it.
    """

    optional = frozenset({"undoes", "removals", "branches"})
    version: int = _VERSION
    operation_id: str
    operation: str
    table_uuid: str
    actor: str | None
    started_ms: int
    finished_ms: int | None
    status: str
    committed: tuple[str, ...]
    deleted_files_count: int
    reclaimed_bytes: int
    counts: Mapping[str, int]
    resumed: bool
    undoes: Mapping[str, str] | None = None
    removals: Mapping[str, Any] | None = None
    branches: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls, operation: Operation, records: Iterable[Record], *, status: str, finished_ms: int | None
    ) -> PastOperation:
        """An operation by its state and the records of its journal, of which the first is `Begin`."""
        begin, *rest = records
        assert isinstance(begin, Begin)
        deleted = DeletionSums.of([record for record in rest if isinstance(record, SweepOutcome)])
        steps = operation.steps.values()
        return cls(
            operation_id=operation.operation_id,
            operation=operation.verb,
            table_uuid=operation.table_uuid,
            actor=begin.actor,
            started_ms=operation.started_ms,
            finished_ms=finished_ms,
            status=status,
            committed=tuple(
                state.metadata_location for state in steps if state.metadata_location is not None
            ),
            counts=dict(committed_counts(steps)),
            resumed=any(isinstance(record, Resume) for record in rest),
            deleted_files_count=deleted.files,
            reclaimed_bytes=deleted.size_bytes,
            undoes=begin.undoes,
            removals=begin.removals,
            branches=branches_of(operation) or None,
        )

    @property
    def changed_something(self) -> bool:
        """Whether it committed or deleted anything, or closed another one that waited."""
        return bool(self.committed or self.deleted_files_count or (self.undoes and self.is_finished))

    def to_row(self) -> dict[str, Any]:
        """As an element of `history/1`."""
        return {
            "operation_id": self.operation_id,
            "operation": self.operation,
            "actor": self.actor,
            "started_ms": self.started_ms,
            "started": iso(self.started_ms),
            "finished_ms": self.finished_ms,
            "finished": iso(self.finished_ms),
            "status": self.status,
            "committed": list(self.committed),
            "deleted_files_count": self.deleted_files_count,
            "reclaimed_bytes": self.reclaimed_bytes,
            "counts": dict(self.counts),
            "resumed": self.resumed,
            "removals": None if self.removals is None else dict(self.removals),
        }

    @property
    def duration_ms(self) -> int:
        """From its begin to its end; 0 where that is not known."""
        return 0 if self.finished_ms is None else max(0, self.finished_ms - self.started_ms)

    @property
    def is_finished(self) -> bool:
        """Whether it did what it was to do, or as much of it as it was let."""
        return self.status == "done" or (self.status == "partial" and bool(self.committed))


def record_end(storage: Storage, table_location: str, ended: PastOperation) -> bool:
    """Keep how an operation ended, once, and drop what is old of its verb. Of those that did nothing none is kept.

    Args:
        storage: of the table.
        table_location: its folder.
        ended: the operation.

    Returns:
        False where the storage failed: it is to be tried again. One that forbids it is not asked again.
    """
    if ended.status in _UNRECORDED:
        return True
    folder = f"{table_location}/{HISTORY_FOLDER}"
    path = f"{folder}/{ended.started_ms}-{ended.operation}-{ended.operation_id}{_SUFFIX}"
    try:
        with suppress(FileExistsError, AccessDenied):
            storage.put_if_absent(path, f"{json.dumps(ended.to_json())}\n".encode())
    except BackendUnavailable:
        return False
    with suppress(BackendUnavailable):  # else the next one drops them
        old = [each.path for each in _found(storage, folder, ended.operation)[_KEPT:]]
        if old:
            storage.erase(old)
    return True


class _Found(NamedTuple):
    started_ms: int
    path: str


def _found(storage: Storage, folder: str, verb: str | None, operation_id: str = "") -> list[_Found]:
    """The records of a verb, or of all, or of one operation, newest first; files of other names are none."""
    found = []
    for path in storage.paths(folder):
        started, _, rest = path.rsplit("/", 1)[-1].partition("-")
        of_verb = verb is None or rest.startswith(f"{verb}-")
        if started.isdecimal() and of_verb and rest.endswith(f"{operation_id}{_SUFFIX}"):
            found.append(_Found(int(started), path))
    return sorted(found, reverse=True)


def past_operations(
    storage: Storage,
    table_location: str,
    table_uuid: str,
    *,
    verb: str | None = None,
    operation_id: str = "",
    on_damage: Callable[[CorruptFile], None],
) -> Iterator[PastOperation]:
    """The operations on a table that are over, newest first; those on another one that was there before are none.

    Args:
        storage: of the table.
        table_location: its folder.
        table_uuid: of the table; empty where it has none.
        verb: only operations of this one.
        operation_id: only the one of this id; "": all.
        on_damage: gets the error of each record that cannot be read, which is left out.

    Raises:
        BackendUnavailable: the folder cannot be listed, or a record not be read.
    """
    for each in _found(storage, f"{table_location.rstrip('/')}/{HISTORY_FOLDER}", verb, operation_id):
        try:
            data = storage.read(each.path)
        except FileNotFoundError:
            continue  # another process has dropped it meanwhile
        try:
            past = _parse(data, each.path)
        except CorruptFile as error:
            on_damage(error)
        else:
            of_table = "" in (past.table_uuid, table_uuid) or past.table_uuid == table_uuid
            if of_table and operation_id in ("", past.operation_id):
                yield past


def last_run_ms(storage: Storage, table_location: str, table_uuid: str, verb: str) -> int | None:
    """When the newest run of a verb began that did what it was to do, in ms since the epoch; None: there was none.

    A record that cannot be read counts for none: nothing worse comes of it than that the verb runs sooner.

    Raises:
        BackendUnavailable: as `past_operations`.
    """
    past = past_operations(storage, table_location, table_uuid, verb=verb, on_damage=lambda _: None)
    return next((each.started_ms for each in past if each.is_finished), None)


def past_deletions(
    storage: Storage, table_location: str, table_uuid: str, *, verb: str, limit: int
) -> list[PastDeletion]:
    """What the last runs of a verb deleted here, newest first; of those that deleted nothing there is none.

    A record that cannot be read, or that a newer program wrote, counts for none; nor does any where the history may
    not be read, for whom no run was recorded.

    Args:
        storage: of the table.
        table_location: its folder.
        table_uuid: of the table; empty where it has none.
        verb: whose runs they are.
        limit: at most so many. The folder is listed, and a small file read for each, and for each run between them that
            deleted nothing.

    Raises:
        BackendUnavailable: as `past_operations`.
    """
    past = past_operations(storage, table_location, table_uuid, verb=verb, on_damage=lambda _: None)
    runs = (
        PastDeletion(each.started_ms, each.deleted_files_count)
        for each in past
        if each.version == _VERSION and each.operation == verb and each.deleted_files_count > 0
    )
    try:
        return [*islice(runs, limit)]
    except AccessDenied:
        return []


def rewritten_bytes_per_s(storage: Storage, table_location: str, table_uuid: str, verb: str) -> float | None:
    """How fast the last runs of a verb rewrote data files here, the median of three; None: none was measured.

    Raises:
        BackendUnavailable: as `past_operations`.
    """
    past = past_operations(storage, table_location, table_uuid, verb=verb, on_damage=lambda _: None)
    rates = (
        each.counts.get(_REWRITTEN, 0) * 1_000 / each.duration_ms
        for each in past
        if each.is_finished and not each.resumed and each.duration_ms
    )
    found = [*islice((rate for rate in rates if rate), _MEASURED)]
    return median(found) if found else None


def _parse(data: bytes, path: str) -> PastOperation:
    """A record by its bytes; fields that are not known are left out."""
    document = loads(data, path)
    try:
        return PastOperation.from_json(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFile(path, None, f"not a record of an operation: {error!r}") from error
