"""Open operations of a table: which there are, and finishing those that can be finished."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from iceberg_cli.errors import (
    CommitStateUnknown,
    CorruptFile,
    IcebergCliError,
    Interrupted,
    Refused,
    StalePlan,
    TakenOver,
)
from iceberg_cli.operation.apply import abandon, resume
from iceberg_cli.operation.groups.heartbeat import ALIVE_MS, is_at_work_here, sign_of_life, silent_ms
from iceberg_cli.operation.history import DeletionSums
from iceberg_cli.operation.journal import Journal, prune_folders, waiting_sums
from iceberg_cli.operation.operation_state import Operation, begun
from iceberg_cli.operation.ports import Verb
from iceberg_cli.operation.runtime import Runtime, process_space, process_started
from iceberg_cli.operation.withholding import earlier_operation
from iceberg_cli.plan.report import AbandonedOperation, OrphanFiles, RecoveredOperation, Report
from iceberg_cli.plan.text import count, iso
from iceberg_cli.plan.way_back import UndoState
from iceberg_cli.table.table import OpenTable, remove_leftovers
from iceberg_cli.table.undoable import FoundOperation


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOperation:
    """One open operation.

    Args:
        operation_id: its id.
        operation: None where its journal cannot be read.
        state: running, interrupted, asking (stopped inside a commit), waiting (for its grace), sweeping, look_again
            (for files that may still arrive) or unreadable.
        message: the state in words.
        until_ms: when what it waits for is over, in ms since the epoch; None where it waits for no time.
        waits_for: the id of the operation that goes first, or None.
        waiting: files that wait, by what was shown of them and what of it is gone; None where none do, or it is not
            known.
        problem: why its journal cannot be read.
        undo: whether it can be taken back; None where its journal cannot be read.
    """

    operation_id: str
    operation: Operation | None
    state: str
    message: str
    until_ms: int | None = None
    waits_for: str | None = None
    waiting: DeletionSums | None = None
    problem: IcebergCliError | None = None
    undo: UndoState | None = None

    def to_json(self) -> dict[str, Any]:
        """As an element of `operations/2`."""
        started_ms = self.operation.started_ms if self.operation else None
        return {
            "operation_id": self.operation_id,
            "operation": self.operation.verb if self.operation else None,
            "started_ms": started_ms,
            "started": iso(started_ms),
            "state": self.state,
            "message": self.message,
            "grace_until_ms": self.until_ms,
            "grace_until": iso(self.until_ms),
            "waits_for": self.waits_for,
            "waiting_files_count": None if self.waiting is None else self.waiting.files,
            "waiting_bytes": None if self.waiting is None else self.waiting.size_bytes,
            "undo": None if self.undo is None else self.undo.to_json(),
        }


def operations(table: OpenTable, *, now_ms: int, goes_on: bool = False) -> list[OpenOperation]:
    """Every operation that has not been closed; those whose commits have no known outcome first: others wait.

    Then those that take others back, with whose end these are closed.

    Args:
        table: in whose folder they are.
        now_ms: by our clock.
        goes_on: whether something is to be done with them: then it is the storage's clock that says whether the process
            of an operation of many commits is alive. Else, and where the table is read-only, nothing is created, and
            ours says so.
    """
    operation_ids = table.workspace.open_operations()
    creates = goes_on and operation_ids and table.read_only_reason() is None
    return _operations(table, operation_ids, now_ms=now_ms, mark=_new_mark() if creates else "")


def _new_mark() -> str:
    """The mark of one look at the operations that are open."""
    return secrets.token_hex(8)


def _operations(
    table: OpenTable, operation_ids: Sequence[str], *, now_ms: int, mark: str
) -> list[OpenOperation]:
    """See `operations`, and `silent_ms` for the mark."""
    open_operations = []
    for operation_id in operation_ids:
        journal = table.workspace.empty_journal(operation_id)
        if (at_work := _at_work(table, journal, now_ms=now_ms, mark=mark)) is not None:
            open_operations.append(at_work)
            continue
        try:
            operation = journal.read_back().operation()
        except (CorruptFile, Refused) as error:
            if isinstance(error, CorruptFile):
                error.next_step = (
                    "`resume --abandon` closes the operation; the files that it was to delete stay."
                )
            open_operations.append(
                OpenOperation(
                    operation_id=operation_id,
                    operation=None,
                    state="unreadable",
                    message=error.message,
                    problem=error,
                )
            )
            continue
        if operation is None:
            message = "it stopped before it did anything"
            open_operations.append(
                OpenOperation(operation_id=operation_id, operation=None, state="interrupted", message=message)
            )
        else:
            listed = _listed(operation, now_ms=now_ms)
            if before := table.workspace.left_behind.get(operation_id):
                message = f"{listed.message}; the table was at {before} then, and is at {table.location} now"
                listed = replace(listed, message=message)
            if operation.grace_until_ms() is not None or any(each.after for each in operation.steps.values()):
                listed = replace(listed, waiting=waiting_sums(journal))
            found = FoundOperation(past=journal.past(status=listed.state, at_ms=None), journal=journal)
            open_operations.append(replace(listed, undo=found.state(table)))
    by_id = {each.operation_id: each.operation for each in open_operations}
    ordered = [_waiting_for_another(each, by_id, now_ms=now_ms) for each in open_operations]
    ordered = [each if each.state == "waiting" else replace(each, waiting=None) for each in ordered]
    return sorted(ordered, key=_urgency)


def _urgency(listed: OpenOperation) -> tuple[bool, bool]:
    """Sorts operations: commits without a known outcome first, then those by whose end others end, too."""
    operation = listed.operation
    return listed.state != "asking", operation is None or operation.undoes is None


def _at_work(table: OpenTable, journal: Journal, *, now_ms: int, mark: str) -> OpenOperation | None:
    """The operation of a journal, where its process gave a sign of life just now; nothing else of it is read."""
    quiet_ms = silent_ms(table.storage, journal.folder, mark=mark, now_ms=now_ms)
    if quiet_ms is None or quiet_ms >= ALIVE_MS:
        return None
    sign = sign_of_life(table.storage, journal.folder)
    if sign is None:
        return None
    operation = begun(journal.operation_id, sign.begin)
    if (
        operation.host == socket.gethostname()
        and sign.process_space == process_space()
        and not (is_running(operation) or is_at_work_here(journal.folder))
    ):
        return None  # it ended since
    return OpenOperation(
        operation_id=journal.operation_id,
        operation=operation,
        state="running",
        message=f"at work on {operation.host}, process {operation.process_id}; its last sign of life is "
        f"{quiet_ms // 1_000} s old",
    )


def _waiting_for_another(
    listed: OpenOperation, by_id: Mapping[str, Operation | None], *, now_ms: int
) -> OpenOperation:
    """An operation with the one that goes first, where there is one and nothing else is in the way."""
    if listed.operation is None or listed.state not in ("waiting", "sweeping"):
        return listed
    after = (each for state in listed.operation.steps.values() if not state.done for each in state.after)
    earlier = earlier_operation([by_id.get(each) for each in after], now_ms=now_ms)
    if earlier is None or (listed.until_ms or 0) > (earlier.until_ms or now_ms):
        return listed
    return replace(
        listed,
        state="waiting",
        message=f"committed; its files wait for {earlier}",
        until_ms=earlier.until_ms,
        waits_for=earlier.operation_id,
    )


def is_running(operation: Operation) -> bool:
    """Whether the process that began an operation still runs on this machine."""
    if operation.host != socket.gethostname() or operation.process_id == os.getpid():
        return False
    try:
        os.kill(operation.process_id, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return operation.process_started in ("", process_started(operation.process_id))


def _listed(operation: Operation, *, now_ms: int) -> OpenOperation:
    """An operation with its state."""
    if is_running(operation):
        state, message, until_ms = "running", f"still running in process {operation.process_id}", None
    else:
        state, message, until_ms = _state_of(operation, now_ms=now_ms)
        waiting = operation.uncommitted()
        if 0 < len(waiting) < len(operation.step_names):
            rest = f"still to do: {', '.join(waiting)}"
            if state == "waiting":  # how much waits, and until when, is told after that
                message = f"{rest}; {message}"
            else:
                done = len(operation.step_names) - len(waiting)
                message += f"; {done} of {len(operation.step_names)} steps are committed, {rest}"
    return OpenOperation(
        operation_id=operation.operation_id,
        operation=operation,
        state=state,
        message=message,
        until_ms=until_ms,
    )


def _state_of(operation: Operation, *, now_ms: int) -> tuple[str, str, int | None]:
    """The state of an operation that nobody is working on, its message, and when its wait is over."""
    ends_ms = max((state.sweep_after_ms or 0 for state in operation.steps.values()), default=0)
    if operation.groups is not None and (found := _state_of_groups(operation)) is not None:
        return found
    match operation.next_action():
        case "clean-up":
            return "interrupted", "finished; its journal is not deleted yet", None
        case "abandon":
            message = (
                f"committed, but no file may be deleted: {operation.withheld}; `resume --abandon` closes it"
            )
            return "sweeping", message, None
        case "discard":
            return "interrupted", "stopped before its commit; nothing was changed", None
        case "look-again":
            assert operation.look_again is not None
            message = "over; its journal stays for a day, for files that may still arrive"
            return "look_again", message, operation.look_again.at_ms
        case "ask-the-catalog":
            return "asking", "stopped inside its commit; resume finds out whether it happened", None
        case "wait" | "sweep" as action:
            *_, state = operation.steps.values()
            committed = "" if state.intent is None else "committed; "
            if action == "wait" and ends_ms > now_ms:
                return "waiting", f"{committed}its files wait for their grace", ends_ms
            return "sweeping", f"{committed}some files that may go are still there", None
        case _:
            return "interrupted", "stopped between two steps", None


def _state_of_groups(operation: Operation) -> tuple[str, str, None] | None:
    """As `_state_of`, of an operation of many commits; None where it is as that of any other."""
    assert operation.groups is not None
    if operation.closed is not None or operation.next_action() == "ask-the-catalog":
        return None
    waiting = len(operation.groups.uncommitted())
    committed = len(operation.groups.committed)
    done = f"{count(committed, 'groups')} committed, {count(waiting, 'groups')} finished and not committed"
    return "interrupted", f"stopped between two groups: {done}", None


def recover_all(
    table: OpenTable, runtime: Runtime, *, verbs: Mapping[str, Verb]
) -> Iterator[RecoveredOperation]:
    """Finish the operations that nobody is working on and whose grace is over; none where nothing can be committed.

    Before them, temporary files that killed runs left go.

    One that cannot be finished does not stop the caller, nor the others: its result has its error's exit code. Two
    cases are no failure: it would now remove more than was shown, or another process takes it over at the same time.

    Raises:
        Interrupted: a signal asked to stop.
    """
    remove_leftovers(table, now_ms=runtime.now_ms())
    operation_ids = table.workspace.open_operations()
    if not operation_ids:
        prune_folders(table.storage, table.location)
        return
    if table.read_only_reason() is not None:
        return
    for listed in _operations(table, operation_ids, now_ms=runtime.now_ms(), mark=_new_mark()):
        operation = listed.operation
        rests = listed.waits_for is not None or listed.state == "running"
        if not rests and (operation is None or not _waits(operation, runtime.now_ms())):
            yield finish(table, listed, runtime, verbs=verbs, rewrites=False)


def finish(
    table: OpenTable,
    listed: OpenOperation,
    runtime: Runtime,
    *,
    verbs: Mapping[str, Verb],
    rewrites: bool = True,
) -> RecoveredOperation:
    """Resume one operation; an error becomes part of the result.

    Args:
        table: the operation's.
        listed: the operation.
        runtime: clock, ids, limits.
        verbs: by operation name.
        rewrites: see `apply.resume`.

    Raises:
        Interrupted: a signal asked to stop.
    """
    if refusal := _still_running(listed) or _refusal(table, listed):
        return _failed(listed, refusal)
    try:
        report = resume(table, listed.operation_id, runtime, verbs=verbs, rewrites=rewrites)
    except Interrupted:
        raise
    except IcebergCliError as error:
        return _failed(listed, error)
    note = f"Settled the open operation {listed.operation_id}."
    if _is_open(table, listed.operation_id):
        note = f"Operation {listed.operation_id} is still open."
    notes = (note, *report.notes)
    return RecoveredOperation(report=replace(report, notes=notes), exit_code=report.exit_code)


def _is_open(table: OpenTable, operation_id: str) -> bool:
    """Whether something of an operation is left to do; True where its journal cannot be read."""
    try:
        operation = table.workspace.journal(operation_id).operation()
    except IcebergCliError:
        return True
    return operation is not None and operation.closed is None


def close(table: OpenTable, listed: OpenOperation, runtime: Runtime) -> RecoveredOperation:
    """Close one operation without finishing it; a journal that cannot be read is deleted as it is."""
    if refusal := _still_running(listed):
        return _failed(listed, refusal)
    if isinstance(listed.problem, Refused):
        return _failed(listed, listed.problem)
    if refusal := _read_only(table.closing_refusal()):
        return _failed(listed, refusal)
    orphans: OrphanFiles | None = None
    try:
        if listed.operation is None:
            table.workspace.forget(listed.operation_id)
        else:
            orphans = abandon(table, listed.operation_id, runtime)
    except IcebergCliError as error:
        return _failed(listed, error)
    report = Report(
        verb=listed.operation.verb if listed.operation else "resume",
        operation_id=listed.operation_id,
        status="done",
        abandoned=AbandonedOperation(
            state=listed.state,
            message=listed.message,
            started_ms=listed.operation.started_ms if listed.operation else None,
            orphans=orphans,
        ),
    )
    return RecoveredOperation(report=report, exit_code=0)


def _still_running(listed: OpenOperation) -> Refused | None:
    """Why the operation of a process that still works on it is left alone, or None."""
    operation = listed.operation
    if listed.state != "running" or operation is None:
        return None
    return Refused(
        f"Process {operation.process_id} is still working on it",
        state="It was left alone.",
        next_step="Wait until it has ended, or end it, then run `resume`.",
    )


def _refusal(table: OpenTable, listed: OpenOperation) -> Refused | None:
    """Why an operation is not resumed, or None."""
    before = table.workspace.left_behind.get(listed.operation_id)
    if before is None or table.roots().own(f"{before}/data"):
        return _read_only(table.recovery_refusal())
    return Refused(
        f"It began when the table was at {before}, and the table is at {table.location} now: its files in {before} "
        "are deleted only where that is allowed",
        state="Its journal and its files stay as they are.",
        next_step=f"`resume` with --unsafe-allow-root {before} goes on with it; `resume --abandon` closes it, and its "
        "files stay.",
    )


def _read_only(reason: str | None) -> Refused | None:
    """The error for a table whose journals are left alone, or None where there is no reason for that."""
    if reason is None:
        return None
    return Refused(
        f"This table is read-only: {reason}",
        state="The journal of the operation and its files stay as they are.",
    )


def _failed(listed: OpenOperation, error: IcebergCliError) -> RecoveredOperation:
    verb = listed.operation.verb if listed.operation else "resume"
    lines = (
        f"Cannot settle the open operation {listed.operation_id}: {error.message}",
        error.state,
        error.next_step,
    )
    report = Report(
        verb=verb,
        operation_id=listed.operation_id,
        status="unknown" if isinstance(error, CommitStateUnknown) else "refused",
        notes=tuple(line for line in lines if line),
    )
    return RecoveredOperation(
        report=report, exit_code=0 if isinstance(error, StalePlan | TakenOver) else error.exit_code
    )


def _waits(operation: Operation, now_ms: int) -> bool:
    ends_ms = [state.sweep_after_ms or 0 for state in operation.steps.values()]
    if operation.look_again is not None:
        ends_ms.append(operation.look_again.at_ms)
    return any(end_ms > now_ms for end_ms in ends_ms)
