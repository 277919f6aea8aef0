"""What `undo` does on tables of every format: its plan but for the change, and around its commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.errors import Refused
from iceberg_cli.operation.journal import waiting_sums
from iceberg_cli.operation.late_files import take_over
from iceberg_cli.operation.undoing import UNDONE, waiting_obstacle
from iceberg_cli.plan.plan import Option, Plan, Step
from iceberg_cli.plan.removals import Removals
from iceberg_cli.plan.undo_policy import UNDO, UndoPolicy
from iceberg_cli.table.undoable import FoundOperation, find_operation, newest_operation, undone_by

if TYPE_CHECKING:
    from iceberg_cli.operation.history import PastOperation
    from iceberg_cli.operation.journal import Journal
    from iceberg_cli.operation.operation_state import Operation
    from iceberg_cli.operation.runtime import Runtime
    from iceberg_cli.table.table import OpenTable

_OPERATION: Final = "operation"


def plan_of(
    table: OpenTable,
    policy: UndoPolicy,
    *,
    described: Mapping[str, Any],
    as_of_ms: int,
    within: Plan | None,
) -> tuple[FoundOperation | None, Plan]:
    """The operation that is taken back, and the plan of one step without a change.

    Args:
        table: as loaded last.
        policy: the options.
        described: how plans name the table.
        as_of_ms: the "now" of the plan, in ms since the epoch.
        within: the plan that this one takes the place of: the operation stays what it was.

    Returns:
        The operation, None where there is none; and the plan, blocked where it cannot be taken back.

    Raises:
        UsageError: no operation of that id is there. CorruptFile: a journal or record cannot be read.
        BackendUnavailable: the storage failed.
    """
    named = policy.operation if within is None else str(within.options[_OPERATION].value)
    found = newest_operation(table) if named is None else find_operation(table, named)
    operation_id = None if found is None else found.past.operation_id
    plan = Plan(
        verb=UNDO,
        table=described,
        base=table.base(),
        as_of_ms=as_of_ms,
        options={_OPERATION: Option(value=operation_id, source=policy.source_of(_OPERATION))},
        policy=policy.to_json(),
        removals=Removals.none(),
    )
    if found is None:
        return None, replace(plan, blocked_by=("no operation of this program on this table is known",))
    past = found.past
    plan = replace(
        plan,
        reason=f"operation {past.operation_id}, {past.operation}",
        undoes={"operation_id": past.operation_id, "operation": past.operation},
        steps=(Step(name=f"undo {past.operation}"),),
    )
    reason = _obstacle(table, found)
    if reason is not None:
        others = "" if named is not None else "; `history TABLE` shows whether another one can be"
        plan = replace(plan, steps=(), blocked_by=(f"{not_taken_back(past, reason)}{others}",))
    return found, plan


def named_by(table: OpenTable, plan: Plan) -> FoundOperation:
    """The operation that a plan takes back.

    Raises:
        UsageError, CorruptFile, BackendUnavailable: as `find_operation`.
    """
    return find_operation(table, str(plan.options[_OPERATION].value))


def not_taken_back(past: PastOperation, reason: str) -> str:
    """Why an operation is not taken back, as what blocks a plan."""
    return f"operation {past.operation_id}, {past.operation}, cannot be taken back: {reason}"


def taken_again(journal: Journal) -> Iterator[str]:
    """A warning that the next run deletes the files of an operation that is closed."""
    left = waiting_sums(journal)
    if left is not None and left.files:
        them = "this file" if left.files == 1 else f"these {left.files:,} files"
        yield f"the next run by the same options deletes {them} again, as far as nothing needs them then"


def _obstacle(table: OpenTable, found: FoundOperation) -> str | None:
    """Why an operation cannot be taken back as the table stands, or None."""
    by = undone_by(table).get(found.past.operation_id) if found.is_over else None
    state = found.state(table, undone_by=by)
    return None if state.possible else state.reason


def take_over_waiting(found: FoundOperation, runtime: Runtime) -> tuple[Journal, Operation]:
    """Have nobody else go on with an operation whose files wait.

    Raises:
        Refused: they do not any more.
    """
    journal = found.journal
    if journal is not None:
        take_over(journal, runtime)
        operation = journal.operation()
        assert operation is not None
        reason = waiting_obstacle(operation)
        if reason is None:
            return journal, operation
    else:
        reason = "it has ended since this was planned"
    raise not_any_more(found.past, reason)


def not_any_more(past: PastOperation, reason: str) -> Refused:
    """The error where an operation cannot be taken back that could be when the plan was made."""
    return Refused(f"Cannot undo operation {past.operation_id}, {past.operation}, any more: {reason}")


def close_waiting(table: OpenTable, plan: Plan, runtime: Runtime) -> None:
    """Close the operation of a plan where it is open still: what it was to delete stays."""
    journal = table.workspace.journal(str(plan.options[_OPERATION].value))
    operation = journal.operation()
    if operation is not None and operation.closed is None and operation.look_again is None:
        journal.close(UNDONE, at_ms=runtime.now_ms())
