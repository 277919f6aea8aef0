"""Which operation `undo` is about, and whether it can be taken back as the table stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iceberg_cli.errors import CorruptFile, UsageError
from iceberg_cli.operation.history import PastOperation, past_operations
from iceberg_cli.operation.undoing import UNDONE, undo_state, waiting_obstacle
from iceberg_cli.plan.undo_policy import UNDO
from iceberg_cli.plan.way_back import NOTHING_TO_UNDO, UndoState

if TYPE_CHECKING:
    from iceberg_cli.operation.journal import Journal
    from iceberg_cli.operation.operation_state import Operation
    from iceberg_cli.table.table import OpenTable


@dataclass(frozen=True, kw_only=True)
class FoundOperation:
    """An operation on a table.

    Args:
        past: as far as it has come.
        journal: of one that is open; None: it is over.
    """

    past: PastOperation
    journal: Journal | None = None

    @property
    def operation(self) -> Operation | None:
        """The state of one that is open."""
        return None if self.journal is None else self.journal.operation()

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left to do, but perhaps to wait for files of its own that may still arrive."""
        operation = self.operation
        return operation is None or operation.look_again is not None

    def state(self, table: OpenTable, *, undone_by: str | None = None) -> UndoState:
        """Whether it can be taken back, as far as the metadata of the table as loaded last tells.

        Args:
            table: that it is on.
            undone_by: the operation that took it back already, or None.
        """
        operation = self.operation
        if not self.is_over and operation is not None:
            return open_state(table, operation)
        return past_state(table, self.past, undone_by=undone_by)


def find_operation(table: OpenTable, operation_id: str) -> FoundOperation:
    """The operation of an id, open or over.

    Raises:
        UsageError: there is none on this table. CorruptFile: its journal or record cannot be read.
        BackendUnavailable: the storage failed.
    """
    is_open = operation_id in table.workspace.open_operations()
    if is_open and (found := _open(table, operation_id)) is not None:
        return found
    damage: list[CorruptFile] = []
    past = past_operations(
        table.storage,
        table.location,
        table.base().table_uuid,
        operation_id=operation_id,
        on_damage=damage.append,
    )
    for each in past:
        return FoundOperation(past=each)
    if damage:
        raise damage[0]
    raise UsageError(
        f"{table.name} has no operation {operation_id}: it is another table's, or older than the history",
        next_step="`resume TABLE --list` shows what is open, `history TABLE` what was done.",
    )


def newest_operation(table: OpenTable) -> FoundOperation | None:
    """The newest operation that changed something, open or over; None: there is none.

    Raises:
        CorruptFile: a journal or record cannot be read: it may be of the newest one. BackendUnavailable.
    """
    found: list[FoundOperation] = []
    for operation_id in table.workspace.open_operations():
        opened = _open(table, operation_id)
        if opened is not None and opened.operation is not None and opened.operation.steps:
            found.append(opened)
    damage: list[CorruptFile] = []
    past = past_operations(table.storage, table.location, table.base().table_uuid, on_damage=damage.append)
    for each in past:
        if found and each.started_ms < max(other.past.started_ms for other in found):
            break
        found += [FoundOperation(past=each)] if each.changed_something else []
    if damage:
        raise damage[0]
    # What takes another one back is newer than that by any clock.
    return max(found, key=lambda each: (each.past.started_ms, each.past.undoes is not None), default=None)


def _open(table: OpenTable, operation_id: str) -> FoundOperation | None:
    """The operation of a journal; None: it has ended."""
    journal = table.workspace.journal(operation_id)
    operation = journal.operation()
    if operation is None or operation.closed is not None:
        return None
    return FoundOperation(past=journal.past(status="open", at_ms=None), journal=journal)


def open_state(table: OpenTable, operation: Operation) -> UndoState:
    """Whether an operation that is open can be taken back.

    Args:
        table: that it is on.
        operation: its state.
    """
    way = table.way_back(operation.verb)
    if way.while_waiting and waiting_obstacle(operation) is None:
        return undo_state(operation, way)
    if way.while_at_head:
        reason = f"it is open; `resume TABLE {operation.operation_id}` ends it first"
        return UndoState(possible=False, reason=reason)
    return undo_state(operation, way)


def past_state(table: OpenTable, past: PastOperation, *, undone_by: str | None = None) -> UndoState:
    """Whether an operation that is over can be taken back.

    Args:
        table: that it was on, as loaded last.
        past: the operation.
        undone_by: the one that took it back already, or None.
    """
    way = table.way_back(past.operation)
    reason = way.why_not
    if undone_by is not None or past.status == UNDONE:
        by = "" if undone_by is None else f" by operation {undone_by}"
        reason = f"it is taken back already{by}"
    elif not past.changed_something and (way.while_at_head or way.while_waiting):
        return NOTHING_TO_UNDO
    elif way.while_at_head:
        return table.head_state(past)
    elif way.while_waiting:
        reason = (
            "its files are deleted: --grace has them wait"
            if past.deleted_files_count
            else "none of its files waits any more"
        )
    return UndoState(possible=False, reason=reason)


def undone_by(table: OpenTable) -> Mapping[str, str]:
    """By the id of an operation that was taken back that of the one that did it, as far as the history goes.

    Raises:
        BackendUnavailable: the storage failed.
    """
    past = past_operations(
        table.storage, table.location, table.base().table_uuid, verb=UNDO, on_damage=lambda _: None
    )
    done = (each for each in past if each.is_finished and each.undoes is not None)
    return {each.undoes["operation_id"]: each.operation_id for each in done if each.undoes is not None}
