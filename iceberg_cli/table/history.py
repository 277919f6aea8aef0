"""The operations of this program on a table, those that are open before those that are over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from iceberg_cli.operation.history import PastOperation, past_operations
from iceberg_cli.plan.way_back import UndoState
from iceberg_cli.table.recovery import operations
from iceberg_cli.table.undoable import FoundOperation, past_state, undone_by

if TYPE_CHECKING:
    from iceberg_cli.errors import IcebergCliError
    from iceberg_cli.table.table import OpenTable


@dataclass(frozen=True, kw_only=True)
class OperationHistory:
    """Operations on a table, newest first.

    Args:
        operations: those that are open, then those that are over.
        unreadable: the errors of journals and records that cannot be read, which are not among them.
        undo: of each operation, by its id, whether it can be taken back as the table stands.
        undone_by: of those that were taken back, by their ids, that of the operation that did it.
    """

    operations: tuple[PastOperation, ...]
    unreadable: tuple[IcebergCliError, ...]
    undo: Mapping[str, UndoState] = field(default_factory=dict)
    undone_by: Mapping[str, str] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """The elements of `history/1`."""
        return [
            {
                **each.to_row(),
                "undo": self.undo[each.operation_id].to_json(),
                "undone_by": self.undone_by.get(each.operation_id),
            }
            for each in self.operations
        ]


def history_of(table: OpenTable, *, verb: str | None, limit: int | None, now_ms: int) -> OperationHistory:
    """The newest operations on a table. Writes nothing.

    Args:
        table: in whose folder they are.
        verb: only operations of this one.
        limit: at most so many; None: all that are kept.
        now_ms: by our clock.

    Raises:
        BackendUnavailable: the storage failed.
    """
    unreadable: list[IcebergCliError] = []
    found: list[PastOperation] = []
    undo: dict[str, UndoState] = {}
    for listed in reversed(operations(table, now_ms=now_ms)):
        if listed.operation is None:
            unreadable += [] if listed.problem is None else [listed.problem]
        elif verb in (None, listed.operation.verb):
            journal = table.workspace.journal(listed.operation_id)
            operation = journal.operation()
            if (
                operation is not None and operation.closed is None
            ):  # else it has ended meanwhile, and has a record
                past = journal.past(status=listed.state, at_ms=None)
                found.append(past)
                undo[past.operation_id] = FoundOperation(past=past, journal=journal).state(table)
    found.sort(key=lambda each: -each.started_ms)
    is_open = {each.operation_id for each in found}
    recorded = past_operations(
        table.storage, table.location, table.base().table_uuid, verb=verb, on_damage=unreadable.append
    )
    over = (each for each in recorded if each.operation_id not in is_open)
    found += islice(over, None if limit is None else max(0, limit - len(found)))
    shown = tuple(found[:limit])
    taken_back = undone_by(table) if shown else {}
    for each in shown:
        if each.operation_id not in undo:
            by = taken_back.get(each.operation_id)
            undo[each.operation_id] = past_state(table, each, undone_by=by)
    return OperationHistory(operations=shown, unreadable=tuple(unreadable), undo=undo, undone_by=taken_back)
