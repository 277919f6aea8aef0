"""Whether an operation can be taken back, by the records of its journal. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from iceberg_cli.operation.operation_state import Operation, StepState
from iceberg_cli.operation.records import CommitIntent
from iceberg_cli.plan.way_back import AT_HEAD, NOTHING_TO_UNDO, WAITS, UndoState, WayBack

UNDONE: Final = "undone"  # how an operation ended whose files were still to go when it was taken back
_ASKING: Final = "its commit has no known outcome; `resume` asks first"
GAVE_IDS: Final = (
    "rows of the snapshot before it have no row ids there, and got some since: they would get other ones"
)


def undo_state(operation: Operation, way: WayBack) -> UndoState:
    """Whether an operation can be taken back, as far as its own journal knows.

    Args:
        operation: its state.
        way: of its verb.
    """
    if not any(state.intent is not None or state.removals_file for state in operation.steps.values()):
        return NOTHING_TO_UNDO
    if way.while_waiting:
        reason = waiting_obstacle(operation)
        if reason is None:
            return UndoState(possible=True, until_ms=operation.grace_until_ms(), reason=WAITS)
    elif way.while_at_head:
        reason = _head_obstacle(operation)
        if reason is None:
            return UndoState(possible=True, reason=AT_HEAD) if committed_steps(operation) else NOTHING_TO_UNDO
    else:
        reason = way.why_not
    return UndoState(possible=False, reason=reason)


def _head_obstacle(operation: Operation) -> str | None:
    """Why commits of an operation are not taken from their branch, as far as its journal tells, or None."""
    intents = [state.intent for state in operation.steps.values() if state.intent is not None]
    if _is_asking(operation.steps.values()):
        return _ASKING
    # New data files reserve ids, whether or not their rows have some already.
    writes_rows = operation.groups is not None
    return GAVE_IDS if not writes_rows and any(map(_gave_row_ids, intents)) else None


def waiting_obstacle(operation: Operation) -> str | None:
    """Why an operation is not taken back by which files wait, or None."""
    states = [*operation.steps.values()]
    if _is_asking(states):
        return _ASKING
    if operation.look_again is not None:
        return "it is done"
    if any(state.swept for state in states):
        return "some of its files are deleted already"
    if not any(state.sweep_after_ms is not None and not state.done for state in states):
        return "none of its files waits: --grace has them wait"
    if any(
        state.intent is not None and state.intent.metadata_location is None
        for state in committed_steps(operation)
    ):
        return (
            "the catalog writes the metadata itself, and takes no snapshot back that it has forgotten. Register "
            f"{base_location(operation)} under another name, with gc.enabled=false, while its files wait; that table "
            "can be read"
        )
    return None


def committed_steps(operation: Operation) -> list[StepState]:
    """The steps of an operation that have committed something."""
    return [state for state in operation.steps.values() if state.metadata_location is not None]


def base_location(operation: Operation) -> str:
    """The version of the table before the first commit of an operation, or ""."""
    intents = (state.intent for state in committed_steps(operation))
    return next((intent.base_location for intent in intents if intent is not None), "")


def branches_of(operation: Operation) -> tuple[str, ...]:
    """The branches of an Iceberg table that commits of an operation have moved."""
    found = {
        update["ref-name"]: None
        for state in committed_steps(operation)
        for update in (() if state.intent is None else state.intent.updates)
        if update.get("action") == "set-snapshot-ref" and update.get("type") == "branch"
    }
    return tuple(found)


def _is_asking(states: Iterable[StepState]) -> bool:
    return any(state.intent is not None and state.outcome in (None, "unknown") for state in states)


def _gave_row_ids(intent: CommitIntent) -> bool:
    """Whether a snapshot of a commit gave ids to rows whose manifests had none. Spec: "Row Lineage"."""
    added = (update["snapshot"] for update in intent.updates if update.get("action") == "add-snapshot")
    return any((snapshot.get("added-rows") or 0) > 0 for snapshot in added)
