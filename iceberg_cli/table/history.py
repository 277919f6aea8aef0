"""The operations of this program on a table, those that are open before those that are over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from iceberg_cli.operation.history import PastOperation, past_operations
from iceberg_cli.plan.verb_place import UNDO
from iceberg_cli.table.recovery import operations

if TYPE_CHECKING:
    from iceberg_cli.errors import IcebergCliError
    from iceberg_cli.table.table import OpenTable


@dataclass(frozen=True, kw_only=True)
class OperationHistory:
    """Operations on a table, newest first.

    Args:
        operations: those that are open, then those that are over.
        undone_by: of each that was taken back the id of the one that did it.
        unreadable: the errors of journals and records that cannot be read, which are not among them.
    """

    operations: tuple[PastOperation, ...]
    undone_by: Mapping[str, str]
    unreadable: tuple[IcebergCliError, ...]


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
    for listed in reversed(operations(table, now_ms=now_ms)):
        if listed.operation is None:
            unreadable += [] if listed.problem is None else [listed.problem]
        elif verb in (None, listed.operation.verb):
            journal = table.workspace.journal(listed.operation_id)
            operation = journal.operation()
            if (
                operation is not None and operation.closed is None
            ):  # else it has ended meanwhile, and has a record
                found.append(journal.past(status=listed.state, at_ms=None))
    found.sort(key=lambda each: -each.started_ms)
    is_open = {each.operation_id for each in found}
    past = past_operations(
        table.storage, table.location, table.base().table_uuid, verb=verb, on_damage=unreadable.append
    )
    over = (each for each in past if each.operation_id not in is_open)
    found += islice(over, None if limit is None else max(0, limit - len(found)))
    undos = past_operations(
        table.storage, table.location, table.base().table_uuid, verb=UNDO, on_damage=lambda _: None
    )
    return OperationHistory(
        operations=tuple(found[:limit]),
        undone_by={each.undoes: each.operation_id for each in undos if each.undoes and each.is_finished},
        unreadable=tuple(unreadable),
    )
