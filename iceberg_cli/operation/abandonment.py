"""The end of an operation that is not finished, and the files that nobody deletes then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow.compute as pc

from iceberg_cli.errors import BackendUnavailable, CorruptFile, Refused
from iceberg_cli.operation.journal import Journal, load_plan, load_removals
from iceberg_cli.operation.late_files import take_over
from iceberg_cli.operation.ports import Table
from iceberg_cli.operation.records import Operation
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.operation.sweep import gaps
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.removals import PART_ROWS, Removals
from iceberg_cli.plan.report import OrphanFiles

_LISTED: Final = 100_000  # files; the others are counted


def abandon(table: Table, operation_id: str, runtime: Runtime) -> OrphanFiles | None:
    """Close an operation without finishing it: the files that it was still to delete stay.

    Returns:
        The orphan files; None if its journal cannot be read.

    Raises:
        Refused: its commit may still happen, so its outcome must be settled first.
    """
    journal = table.workspace.journal(operation_id)
    operation = journal.operation()
    if operation is None or operation.closed is not None:
        journal.clean_up()
        return OrphanFiles()
    base = table.load()
    states = operation.steps.values()
    open_intents = [state.intent for state in states if state.intent and state.outcome in (None, "unknown")]
    if any(intent.base_location == base.version for intent in open_intents):
        raise Refused(
            f"Cannot abandon {operation_id}: its commit has no known outcome yet and can still happen",
            next_step="`resume` settles it first.",
        )
    take_over(journal, runtime)
    orphans = _orphans(table, journal, operation)
    if operation.table_uuid == base.table_uuid:
        marks = journal.marks()
        for state in states:
            unreferenced = state.intent is None or state.outcome == "conflict"
            table.workspace.discard([*state.leftovers, *(state.staged if unreferenced else ())], marks=marks)
    journal.close("abandoned")
    return orphans


@dataclass(kw_only=True)
class _OrphanCount:
    """Orphan files as they are found. `note`: why reachability of some of them was not checked."""

    count: int = 0
    size_bytes: int = 0
    files: list[Mapping[str, Any]] = field(default_factory=list)
    note: str = ""

    def add(self, removals: Removals, rows: Sequence[int]) -> None:
        """Add files of removals, by the indices of their rows."""
        found = removals.read_rows(rows)
        self.count += found.num_rows
        self.size_bytes += int(pc.sum(found["size_bytes"]).as_py() or 0)
        room = _LISTED - len(self.files)
        self.files += found.slice(0, room).select(["path", "kind", "size_bytes"]).to_pylist()

    def add_own(self, paths: Sequence[str]) -> None:
        """Add files that the operation wrote, and that a version of the past may name."""
        self.count += len(paths)
        room = _LISTED - len(self.files)
        self.files += [{"path": path, "kind": "own_file", "size_bytes": None} for path in paths[:room]]


def _orphans(table: Table, journal: Journal, operation: Operation) -> OrphanFiles | None:
    """The files that committed steps did not delete, and those of the operation that may be referenced or not."""
    found = _OrphanCount()
    try:
        loaded = load_plan(journal)
        for removals, rows in _left(journal, operation):
            if loaded is not None:
                found.add(removals, _needed_by_nobody(table, removals, rows, loaded[0], found))
    except (CorruptFile, FileNotFoundError):
        return None
    for state in operation.steps.values():
        unknown = state.intent is not None and state.outcome in (None, "unknown")
        if own := [*state.left, *(state.staged if unknown else ())]:
            found.add_own(own)
            found.note = found.note or "it cannot be proved that nothing references what it wrote itself"
    return OrphanFiles(
        count=found.count,
        size_bytes=found.size_bytes,
        files=tuple(found.files),
        checked=not found.note,
        note=found.note,
    )


def _left(journal: Journal, operation: Operation) -> Iterator[tuple[Removals, Sequence[int]]]:
    """Rows of committed steps that were not deleted, a few at a time."""
    for name, state in operation.steps.items():
        if state.outcome != "committed" or state.done or state.removals_file is None:
            continue
        removals = load_removals(journal, state.removals_file)
        start, stop = removals.of_step(name)
        rest = [state.failed, *(range(first, last) for first, last in gaps(start, stop, state.swept))]
        for rows in rest:
            for first in range(0, len(rows), PART_ROWS):
                yield removals, rows[first : first + PART_ROWS]


def _needed_by_nobody(
    table: Table, removals: Removals, rows: Sequence[int], plan: Plan, found: _OrphanCount
) -> Sequence[int]:
    """The rows whose files are unreachable now; all of them where the table cannot be read."""
    if found.note:
        return rows
    try:
        return table.unreachable(removals, rows, plan=plan)
    except (CorruptFile, BackendUnavailable, Refused) as error:
        found.note = error.message
        return rows
