"""Operations that may be taken back: which one is meant, why it cannot be, and how nobody else goes on with it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from iceberg_cli.errors import Refused, UsageError
from iceberg_cli.operation.history import UNDONE, PastOperation, past_operations
from iceberg_cli.operation.late_files import take_over
from iceberg_cli.operation.operation_state import Operation
from iceberg_cli.plan.verb_place import UNDO, VerbPlace

if TYPE_CHECKING:
    from iceberg_cli.operation.journal import Journal
    from iceberg_cli.operation.runtime import Runtime
    from iceberg_cli.plan.plan import Plan
    from iceberg_cli.table.table import OpenTable


def newest_operation(table: OpenTable) -> str | None:
    """The id of the newest operation, open or over, but those of `undo`; None: none is known."""
    over = (each for each in _past_ones(table) if each.operation != UNDO)
    found = [(each.started_ms, each.operation_id) for each in islice(over, 1)]
    for operation_id in table.workspace.open_operations():
        operation = table.workspace.journal(operation_id).operation()
        if operation is not None and operation.closed is None and operation.verb != UNDO:
            found.append((operation.started_ms, operation_id))
    return max(found)[1] if found else None


def open_operation(table: OpenTable, operation_id: str) -> tuple[Journal, Operation] | None:
    """An operation that is not over, and its journal; None: it is over, or nobody knows it.

    Raises:
        CorruptFile: its journal cannot be read whole.
    """
    journal = table.workspace.journal(operation_id)
    operation = journal.operation()
    return None if operation is None or operation.closed is not None else (journal, operation)


def past_operation(table: OpenTable, operation_id: str) -> tuple[PastOperation, str | None]:
    """An operation that is over, and the id of the one that has taken it back, if one has.

    Raises:
        UsageError: none of that id is on record. BackendUnavailable.
    """
    by = None
    for each in _past_ones(table):
        if each.undoes == operation_id and each.is_finished:
            by = each.operation_id
        if each.operation_id == operation_id:
            return each, by
    raise UsageError(
        f"No operation {operation_id} of {table.name} is open or on record: it is another table's, or long over",
        next_step="`resume TABLE --list` shows what is open, `history TABLE` what was done.",
    )


def _past_ones(table: OpenTable) -> Iterator[PastOperation]:
    """Those that are over, newest first; a record that cannot be read is none."""
    uuid = table.base().table_uuid
    return past_operations(table.storage, table.location, uuid, on_damage=lambda _: None)


def obstacle(operation: Operation) -> str | None:
    """Why an open operation cannot be taken back, or None."""
    states = [*operation.steps.values()]
    if operation.groups is not None:
        return f"{operation.verb} commits groups of files one by one; the snapshots before it are there"
    if any(state.intent is not None and state.outcome in (None, "unknown") for state in states):
        return "its commit has no known outcome; `resume` asks first"
    if operation.look_again is not None:
        return "it is done"
    if any(state.swept for state in states):
        return "some of its files are deleted already"
    if not any(state.sweep_after_ms is not None and not state.done for state in states):
        return "none of its files waits: --grace has them wait"
    return None


def why_it_stays(past: PastOperation, place: VerbPlace | None, *, by: str | None) -> str:
    """Why an operation that is over is not taken back, and what does it instead.

    Args:
        past: the operation.
        place: of its verb; None: its format has none of that name any more.
        by: the id of the operation that has taken it back; None: none has.
    """
    if by is not None or past.status == UNDONE:
        return "it was taken back already" + (f", by operation {by}" if by is not None else "")
    return f"it is over{instead_of_undo(place)}"


def instead_of_undo(place: VerbPlace | None) -> str:
    """What does it where an operation cannot be taken back, as the end of a sentence."""
    return "" if place is None else f". What does it instead: {place.instead_of_undo}"


def take(table: OpenTable, plan: Plan, runtime: Runtime) -> tuple[Journal, Operation]:
    """Take over the journal of the operation that a plan takes back: nobody else deletes files by it any more.

    Raises:
        Refused: it cannot be taken back any more. TakenOver.
    """
    found = None if plan.undoes is None else open_operation(table, plan.undoes)
    if found is None:
        raise Refused(f"Cannot undo operation {plan.undoes} any more: it has ended meanwhile")
    journal, operation = found
    take_over(journal, runtime)
    if (reason := obstacle(operation)) is not None:
        raise Refused(f"Cannot undo operation {operation.operation_id} any more: {reason}")
    return found


def close(table: OpenTable, plan: Plan, runtime: Runtime) -> None:
    """Close the operation that a plan takes back, if it is open: its files stay."""
    found = None if plan.undoes is None else open_operation(table, plan.undoes)
    if found is not None:
        found[0].close(UNDONE, at_ms=runtime.now_ms())
