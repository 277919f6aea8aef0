"""What came of one verb on one table in a run of maintenance."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from iceberg_cli.errors import (
    Cancelled,
    CommitConflict,
    CommitStateUnknown,
    DeletesFailed,
    IcebergCliError,
    Interrupted,
    Refused,
)
from iceberg_cli.plan.text import end_of, size

if TYPE_CHECKING:
    from iceberg_cli.api import Plan
    from iceberg_cli.fleet.deletions import Deletions
    from iceberg_cli.plan.report import RecoveredOperation, Report

WOULD_RUN, NOT_DUE, SKIPPED, BLOCKED, FAILED, LEFT = (
    "due",
    "not_due",
    "skipped",
    "blocked",
    "failed",
    "left",
)
STATUSES: Final = (
    WOULD_RUN, "done", "nothing_to_do", "waiting", "partial", "conflict", "unknown", "refused", FAILED, BLOCKED, LEFT,
    NOT_DUE, SKIPPED,
)  # fmt: skip
_STATUS_OF: Final[tuple[tuple[type[IcebergCliError], str], ...]] = (
    (CommitStateUnknown, "unknown"),
    (CommitConflict, "conflict"),
    (Interrupted, "partial"),
    (DeletesFailed, "partial"),
    (Refused, "refused"),
)
# Why nothing is done on a table at all.
HELD, OUTSIDE_WINDOW, IN_NO_POLICY, BUSY, SAME_TABLE = (
    "held",
    "outside_window",
    "in_no_policy",
    "busy",
    "same_table",
)
SKIPS: Final = (HELD, OUTSIDE_WINDOW, IN_NO_POLICY, BUSY, SAME_TABLE)
ENDED: Final = ("done", "nothing_to_do")
_BUG: Final = 1  # exit code


class Skip(NamedTuple):
    """Why nothing is done on a table: of `SKIPS`, and in words."""

    kind: str
    reason: str


@dataclass(frozen=True, kw_only=True, repr=False)
class VerbRun:
    """What came of one verb on one table.

    Args:
        table: its `name`, `location`, `format` and `also`.
        verb: its name; None where the table was not come to at all.
        status: of `STATUSES`.
        reason: why, in words.
        exit_code: 0 unless something is left to worry about.
        report: of what was carried out.
        deleted_files: in this run.
        freed_bytes: by deletions in this run; of one that would run, what it would free.
        due: files and bytes that it is to delete and that are still there, none where it is blocked; None: not known.
        duration_ms: of planning and carrying out.
        error: what it ended by.
        traceback: of a bug.
        plan: of one that would run; of one that came to its end, where plans are kept.
        skipped_for: of `SKIPS`, where the whole table is skipped; else "".
    """

    table: Mapping[str, Any]
    verb: str | None
    status: str
    reason: str = ""
    exit_code: int = 0
    report: Report | None = None
    deleted_files: int = 0
    freed_bytes: int = 0
    due: tuple[int, int] | None = None
    duration_ms: int = 0
    error: IcebergCliError | None = None
    traceback: str = ""
    plan: Plan | None = None
    skipped_for: str = ""

    @property
    def name(self) -> str:
        """Of the table."""
        return str(self.table["name"])

    def __repr__(self) -> str:
        """What came of which verb on which table."""
        freed = f", {size(self.freed_bytes)} freed" if self.freed_bytes else ""
        verb = f"{self.verb} of " if self.verb else ""
        return f"VerbRun({verb}{end_of(self.name)}: {self.status}{freed})"

    @property
    def is_left(self) -> bool:
        """Whether a bound left it undone, or some of it."""
        return self.status in (LEFT, "partial")

    def to_json(self) -> dict[str, Any]:
        """As an element of `runs` in `maintenance/1`."""
        report, error = self.report, self.error
        snapshot_id = None if report is None else report.committed_snapshot_id
        return {
            "table": dict(self.table),
            "operation": self.verb,
            "status": self.status,
            "reason": self.reason,
            "skipped_for": self.skipped_for or None,
            "exit_code": self.exit_code,
            "operation_id": None if report is None else report.operation_id,
            "committed_snapshot_id": None if snapshot_id is None else str(snapshot_id),
            "committed_version": None if report is None else report.committed_version,
            "deleted_files_count": self.deleted_files,
            "reclaimed_bytes": self.freed_bytes,
            "duration_ms": self.duration_ms,
            "error": None
            if error is None
            else {
                "error": type(error).__name__,
                "message": error.message,
                "state": error.state,
                "next": error.next_step,
            },
        }


def of_settled(table: Mapping[str, Any], done: RecoveredOperation, deleted: Deletions) -> VerbRun:
    """An operation of an earlier run that was gone on with."""
    return VerbRun(
        table=table,
        verb=done.report.verb,
        status=done.report.status,
        reason="; ".join(done.report.notes),
        exit_code=done.exit_code,
        report=done.report,
        deleted_files=deleted.files,
        freed_bytes=deleted.size_bytes,
        duration_ms=done.report.duration_ms,
    )


def of_error(
    table: Mapping[str, Any],
    verb: str | None,
    error: IcebergCliError,
    *,
    is_overtaken: bool = False,
    **more: Any,
) -> VerbRun:
    """A verb that ended by an error.

    Args:
        table: as `VerbRun` has it.
        verb: its name, or None.
        error: what it ended by.
        is_overtaken: a file was gone that another writer, who made a later version, may have deleted.
        more: of `VerbRun`.
    """
    if isinstance(error, Cancelled):  # before anything was written
        return VerbRun(table=table, verb=verb, status=LEFT, reason="a signal asked to stop", **more)
    status = next((status for kind, status in _STATUS_OF if isinstance(error, kind)), FAILED)
    about = {"table": table, "verb": verb, "error": error, **more}
    if is_overtaken:
        reason = f"another writer made a later version meanwhile: {error.message}"
        return VerbRun(**about, status="conflict", reason=reason, exit_code=CommitConflict.exit_code)
    return VerbRun(**about, status=status, reason=error.message, exit_code=error.exit_code)


def of_bug(table: Mapping[str, Any], error: Exception) -> VerbRun:
    """A table on which a bug of this program was met."""
    return VerbRun(
        table=table,
        verb=None,
        status=FAILED,
        reason=f"a bug of iceberg-cli was met: {error!r}",
        exit_code=_BUG,
        traceback="".join(traceback.format_exception(error)),
    )
