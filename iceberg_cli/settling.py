"""Open operations of a table: which there are, and finishing those that can be finished."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace

from iceberg_cli.apply import Shell, resume
from iceberg_cli.errors import StalePlan, TakenOver
from iceberg_cli.journal import Operation, prune_folders
from iceberg_cli.plan import Report
from iceberg_cli.table import IcebergTable
from iceberg_cli.verbs import VERBS


def operations(table: IcebergTable) -> list[Operation]:
    """The state of every operation that has not been closed.

    Raises:
        CorruptFile: a journal cannot be read whole.
    """
    found = [table.journal(operation_id).operation() for operation_id in table.open_operations()]
    return [operation for operation in found if operation is not None]


def is_running(operation: Operation) -> bool:
    """Whether the process that began an operation still runs on this machine."""
    if operation.host != socket.gethostname() or operation.process_id == os.getpid():
        return False
    try:
        os.kill(operation.process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def explain(operation: Operation, *, now_ms: int) -> str:
    """What state an operation is in, in words."""
    if is_running(operation):
        return f"still running in process {operation.process_id}"
    sweeps = [state.sweep_after_ms for state in operation.steps.values() if state.sweep_after_ms is not None]
    match operation.next_action():
        case "clean-up":
            return "finished; its journal is not deleted yet"
        case "discard":
            return "stopped before its commit; nothing was changed"
        case "ask-the-catalog":
            return "stopped inside its commit; resume finds out whether it happened"
        case "wait" if max(sweeps) > now_ms:
            return "committed; its files wait for their grace"
        case "wait" | "sweep":
            return "committed; some files that may go are still there"
        case _:
            return "stopped between two steps"


def settle_all(table: IcebergTable, shell: Shell) -> Iterator[Report]:
    """Finish the operations that nobody is working on and whose grace is over.

    An operation that would now remove more than was shown is closed and told of; it does not stop the caller, nor
    does one that another process takes over at the same time.
    """
    open_ids = table.open_operations()
    if not open_ids:
        prune_folders(table.storage, table.location)
    for operation_id in open_ids:
        operation = table.journal(operation_id).operation()
        if operation is not None and (is_running(operation) or _waits(operation, shell.now_ms())):
            continue
        try:
            report = resume(table, operation_id, shell, verbs=VERBS)
        except (StalePlan, TakenOver) as error:
            report = Report(
                operation=operation.operation if operation else "resume",
                operation_id=operation_id,
                status="refused",
                notes=(error.message,),
            )
        yield replace(report, notes=(f"Settled the open operation {operation_id}.", *report.notes))


def _waits(operation: Operation, now_ms: int) -> bool:
    return any((state.sweep_after_ms or 0) > now_ms for state in operation.steps.values())
