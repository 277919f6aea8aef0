"""Which groups of an operation are to be committed, as its journal stands, and the record that some never are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from iceberg_cli.operation.groups.creator import remove_leftovers
from iceberg_cli.operation.operation_state import GroupStates, Operation
from iceberg_cli.operation.records import GroupsDropped

if TYPE_CHECKING:
    from iceberg_cli.operation.journal import Journal
    from iceberg_cli.operation.ports import Table


def abandon_groups(table: Table, journal: Journal) -> None:
    """Drop the groups of an operation that are not committed, and delete what nothing can reference.

    Args:
        table: as loaded last.
        journal: of the operation, whose commits have known outcomes, or bases that are gone.
    """
    for state in folded(journal).steps.values():
        if state.intent is not None and state.outcome in (None, "unknown"):
            reason = "it was abandoned before it was known whether its commit happened"
            drop(journal, dict.fromkeys(state.intent.groups or (), reason), files_stay=True)
    waiting = groups_of(journal).uncommitted()
    drop(journal, {each.number: "it was abandoned" for each in waiting})
    remove_leftovers(table.workspace, journal, groups_of(journal))


def drop(journal: Journal, reasons: Mapping[int, str], **values: bool) -> None:
    """Record that groups, by number, will not be committed."""
    if reasons:
        numbers = tuple(sorted(reasons))
        journal.append(
            GroupsDropped(numbers=numbers, reasons=tuple(reasons[number] for number in numbers), **values)
        )


def folded(journal: Journal) -> Operation:
    """The state of the operation, which has begun."""
    operation = journal.operation()
    assert operation is not None  # its begin was recorded before there was a run of it
    return operation


def groups_of(journal: Journal) -> GroupStates:
    """The states of its groups."""
    groups = folded(journal).groups
    assert groups is not None
    return groups
