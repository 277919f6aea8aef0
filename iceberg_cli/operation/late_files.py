"""The end of an operation, which waits for files that Spark's workers may still write."""

from __future__ import annotations

from typing import Final

from iceberg_cli.operation.journal import Journal
from iceberg_cli.operation.operation_state import Operation
from iceberg_cli.operation.ports import Table
from iceberg_cli.operation.records import LookAgain, Resume
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.plan.report import Report
from iceberg_cli.plan.text import iso

_LATE_MS: Final = 86_400_000


def take_over(journal: Journal, runtime: Runtime) -> None:
    """Record that this process resumes: no other one can append any more, nor have an effect after an append."""
    journal.append(Resume(at_ms=runtime.now_ms(), **runtime.process()))


def close(journal: Journal, status: str, runtime: Runtime) -> None:
    """Record that nothing is left to do, and delete the journal.

    Where the driver of workers died while they wrote, the journal stays for a day: one of them that stood still may put
    a file after all of theirs were deleted, and only the journal has its name.
    """
    operation = journal.operation()
    if operation is None or not operation.late:
        journal.close(status)
    else:
        journal.append(LookAgain(status=status, at_ms=runtime.now_ms() + _LATE_MS))


def look_again(table: Table, journal: Journal, operation: Operation, runtime: Runtime) -> Report:
    """Delete files that workers wrote late, and close the operation if its day is over."""
    assert operation.look_again is not None
    table.workspace.discard(operation.late, marks=[operation.operation_id])
    at_ms = operation.look_again.at_ms
    if runtime.now_ms() >= at_ms:
        journal.close(operation.look_again.status)
        note = "What Spark's executors wrote after it had ended is deleted, if there was any."
    else:
        note = (
            "It has ended. What Spark's executors wrote for it since is deleted, if there was any; the first run after "
            f"{iso(at_ms)} looks for the last time."
        )
    return Report(
        verb=operation.verb,
        operation_id=operation.operation_id,
        status="nothing_to_do",
        notes=(note,),
    )
