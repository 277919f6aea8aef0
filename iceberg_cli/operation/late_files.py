"""The end of an operation, which waits for files that may still arrive.

Those are what Spark's workers may still write, and what a storage did not answer for.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def close(
    journal: Journal, status: str, runtime: Runtime, *, unanswered: Sequence[str] | None = None
) -> bool:
    """Record that nothing is left to do, and delete the journal.

    Where the driver of workers died while they wrote, the journal stays for a day: one of them that stood still may put
    a file after all of theirs were deleted, and only the journal has its name. So it does where a storage did not
    answer, which may carry out what it was sent later.

    Args:
        journal: of the operation.
        status: how it ended.
        runtime: has the time.
        unanswered: the paths of data files for which there was no answer; None: all was answered.

    Returns:
        Whether the journal is gone.
    """
    operation = journal.operation()
    groups = None if operation is None else operation.groups
    if unanswered is None and (operation is None or not (operation.late or (groups and groups.late))):
        journal.close(status, at_ms=runtime.now_ms())
        return True
    at_ms = runtime.now_ms() + _LATE_MS
    journal.append(LookAgain(status=status, at_ms=at_ms, paths=tuple(unanswered or ()) or None))
    journal.keep(status=status, at_ms=runtime.now_ms())  # else with its end
    return False


def look_again(table: Table, journal: Journal, operation: Operation, runtime: Runtime) -> Report:
    """Delete files that arrived late, and close the operation if its day is over."""
    record = operation.look_again
    assert record is not None
    late = [*operation.late, *(record.paths or ())]
    table.workspace.discard(late, marks=[operation.operation_id])
    if runtime.now_ms() >= record.at_ms:
        journal.close(record.status, at_ms=runtime.now_ms())
        note = "What arrived for it after it had ended is deleted, if there was any."
    else:
        note = (
            "It has ended. What arrived for it since is deleted, if there was any; the first run after "
            f"{iso(record.at_ms)} looks for the last time."
        )
    return Report(
        verb=operation.verb,
        operation_id=operation.operation_id,
        status="nothing_to_do",
        notes=(note,),
    )
