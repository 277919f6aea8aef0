"""The report of a run, and its `report/1` form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from iceberg_cli.errors import CorruptFile, DeletesFailed
from iceberg_cli.plan.column_reads import ReadsBeforeAndAfter
from iceberg_cli.plan.display import Shown
from iceberg_cli.plan.text import count, end_of, iso, size
from iceberg_cli.plan.way_back import NOTHING_TO_UNDO, UndoState

REPORT_SCHEMA = "iceberg-cli/report/1"
# The result column of files that their storage tags in place of deleting them; there only where it does.
TAGGED_FILES = "tagged_files_count"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFiles:
    """The files that an operation leaves when it is closed without being finished: nothing deletes them any more.

    `files` are the first of them, each with `path`, `kind` and `size_bytes`. `checked`: the table was read and
    references none; where it was not, `note` has the reason.
    """

    count: int = 0
    size_bytes: int = 0  # of those whose size is known
    files: tuple[Mapping[str, Any], ...] = ()
    checked: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonedOperation:
    """An operation that was closed without being finished; `orphans` is None where its leftovers are not known."""

    state: str  # see `recovery.OpenOperation`
    message: str  # the same in words
    started_ms: int | None
    orphans: OrphanFiles | None

    def to_json(self) -> dict[str, Any]:
        """As part of the `report/1` document."""
        left = self.orphans
        return {
            "state": self.state,
            "message": self.message,
            "started_ms": self.started_ms,
            "started": iso(self.started_ms),
            "orphan_files_count": None if left is None else left.count,
            "orphan_bytes": None if left is None else left.size_bytes,
            "orphan_files": [] if left is None else [dict(file) for file in left.files],
            "orphan_files_checked": left is not None and left.checked,
            "note": "" if left is None else left.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredOperation:
    """The outcome of one operation that an earlier run had left open.

    `exit_code` is 0 unless something of it is left to worry about.
    """

    report: Report
    exit_code: int

    def to_json(self) -> dict[str, Any]:
        """As part of the document of the run that went on with it."""
        return {
            "operation_id": self.report.operation_id,
            "verb": self.report.verb,
            "status": self.report.status,
            "failed_deletes": [dict(failure) for failure in self.report.failed_deletes],
            "exit_code": self.exit_code,
            "notes": list(self.report.notes),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report(Shown):
    """The report of a run of one verb.

    `counts` and `reclaimed_bytes` are of the whole operation; `earlier_deleted_files` and `earlier_reclaimed_bytes`
    what runs before this one had deleted of that.
    """

    verb: str  # its name on the command line
    operation_id: str | None
    status: str  # done, nothing_to_do, waiting, partial, conflict, unknown, refused
    waits_until_ms: int | None = None  # of one that is waiting, as far as it waits for a time
    waiting_files: int = 0  # of one that is waiting: files that are to go
    waiting_bytes: int = 0
    metadata_location: str | None = None
    committed_snapshot_id: int | None = None
    committed_version: int | None = None  # of a Delta table
    counts: Mapping[str, int] = field(default_factory=dict)
    reclaimed_bytes: int = 0
    earlier_deleted_files: int = 0
    earlier_reclaimed_bytes: int = 0
    failed_deletes: tuple[Mapping[str, str], ...] = ()
    # Of an operation of many commits: `snapshot_id` or `version`, and `groups` of each; groups whose files are broken.
    commits: tuple[Mapping[str, Any], ...] = ()
    failed_groups: tuple[Mapping[str, str | None], ...] = ()
    verified: bool | None = None  # whether all rows that it wrote were compared; None: it writes none
    reads: tuple[
        ReadsBeforeAndAfter, ...
    ] = ()  # what those of one value open, where it brought rows into an order
    kept_again: int = 0  # removals that are reachable by now, from this table or one in a folder below
    notes: tuple[str, ...] = ()
    not_applicable: str | None = None  # why the verb has nothing to do on such a table at all, in words
    undo: UndoState = NOTHING_TO_UNDO
    undone: Mapping[str, str] | None = None  # what it took back: `operation_id` and `operation`
    abandoned: AbandonedOperation | None = None
    settled: tuple[RecoveredOperation, ...] = ()  # before its own work
    duration_ms: int = 0
    # Its `name`, `location` and `format`, where the report was handed to a program.
    table: Mapping[str, Any] = field(default_factory=dict, compare=False)
    shown_as: ClassVar[str] = "report"

    def __repr__(self) -> str:
        """What came of it, in a line."""
        freed = f", {size(self.reclaimed_bytes)} freed" if self.reclaimed_bytes else ""
        name = f" of {end_of(str(self.table['name']))}" if self.table else ""
        return f"Report({self.verb}{name}: {self.status}{freed})"

    @property
    def exit_code(self) -> int:
        """That of a run that has ended so: files of groups are broken, or files could not be deleted."""
        if self.failed_groups:
            return CorruptFile.exit_code
        return DeletesFailed.exit_code if self.failed_deletes else 0

    @property
    def groups_in_words(self) -> tuple[str, ...]:
        """What came of the groups of an operation of many commits; empty where none is committed or broken."""
        if not self.commits and not self.failed_groups:
            return ()
        done = sum(each["groups"] for each in self.commits)
        snapshots = sum(each["groups"] > 0 for each in self.commits)
        noun = "versions" if any("version" in each for each in self.commits) else "snapshots"
        words = [f"{count(done, 'groups')} committed by {count(snapshots, noun)}"]
        if left := self.counts.get("conflicted_groups_count"):
            words.append(
                f"{count(left, 'groups')} left to the next run, for another writer changed their files"
            )
        if self.failed_groups:
            words.append(f"{count(len(self.failed_groups), 'groups')} broken")
        return tuple(words)

    def _of_groups(self) -> dict[str, Any]:
        """Fields that only operations of many commits have."""
        if self.verified is None:
            return {}
        return {
            "commits": [
                {name: str(value) if name == "snapshot_id" else value for name, value in each.items()}
                for each in self.commits
            ],
            "failed_groups": [dict(each) for each in self.failed_groups],
            "verified": self.verified,
            **({"reads": [each.to_json() for each in self.reads]} if self.reads else {}),
        }

    def to_json(self, table: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The `report/1` document.

        Args:
            table: its `name`, `location` and `format`; None: those that the report has.
        """
        return {
            "schema": REPORT_SCHEMA,
            "table": dict(self.table if table is None else table),
            "operation": self.verb,
            "operation_id": self.operation_id,
            "status": self.status,
            "waits_until_ms": self.waits_until_ms,
            "waits_until": iso(self.waits_until_ms),
            "waiting_files_count": self.waiting_files,
            "waiting_bytes": self.waiting_bytes,
            "metadata_location": self.metadata_location,
            "committed_snapshot_id": None
            if self.committed_snapshot_id is None
            else str(self.committed_snapshot_id),
            "committed_version": self.committed_version,
            **self.counts,
            "reclaimed_bytes": self.reclaimed_bytes,
            "earlier_deleted_files_count": self.earlier_deleted_files,
            "earlier_reclaimed_bytes": self.earlier_reclaimed_bytes,
            "failed_deletes": [dict(failure) for failure in self.failed_deletes],
            **self._of_groups(),
            "kept_again": self.kept_again,
            "notes": list(self.notes),
            "not_applicable": self.not_applicable,
            "undo": self.undo.to_json(),
            "undone": None if self.undone is None else dict(self.undone),
            "abandoned": None if self.abandoned is None else self.abandoned.to_json(),
            "settled": [each.to_json() for each in self.settled],
            "duration_ms": self.duration_ms,
        }
