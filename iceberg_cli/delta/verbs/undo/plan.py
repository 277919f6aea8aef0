"""undo on a Delta table: a VACUUM whose files wait ends as one that failed, and a log cleanup is closed.

The journal is taken over first, so that nobody else deletes by it; then VACUUM END is committed where VACUUM START was,
and the operation is closed. No file goes at any point. Source: `VacuumCommand.logVacuumEnd` of Delta Spark, whose
VACUUM that fails leaves the status FAILED. `_last_vacuum_info` stays as it is: nothing was deleted up to its version.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.delta.verbs.expire_snapshots.vacuum_commits import vacuum_failed
from iceberg_cli.delta.verbs.undo.policy import Undo
from iceberg_cli.operation.operation_state import Operation
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.plan.plan import UNDONE_OPERATION, Change, Option, Plan, Step
from iceberg_cli.plan.removals import Removals
from iceberg_cli.plan.verb_place import UNDO
from iceberg_cli.table.undoing import (
    close,
    newest_operation,
    obstacle,
    open_operation,
    past_operation,
    take,
    why_it_stays,
)


class UndoVerb(Verb):
    """Takes back an operation whose files still wait."""

    name: Final = UNDO
    policy: Final = Undo
    result_columns: Final[tuple[str, ...]] = ()

    def plan(
        self,
        table: DeltaTable,
        policy: Undo,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,  # noqa: ARG002 - nothing is remembered
    ) -> Planned:
        """The plan.

        Raises:
            UsageError: no operation of that id is known.
            CorruptFile: the journal cannot be read whole.
        """
        named = policy.operation if within is None else within.undoes
        found = newest_operation(table) if named is None else named
        plan = Plan(
            verb=UNDO,
            table=table.describe(),
            base=table.base(),
            as_of_ms=as_of_ms,
            options={UNDONE_OPERATION: Option(value=found, source=policy.source_of(UNDONE_OPERATION))},
            policy=policy.to_json(),
            removals=Removals.none(),
        )
        if found is None:
            reason = "no operation of this program is open here, or on record"
            return Planned(plan=replace(plan, blocked_by=(reason,)))
        opened = open_operation(table, found)
        if opened is None:
            past, by = past_operation(table, found)
            verb = past.operation
            place = VERBS.policy(verb).place if verb in VERBS else None
            stays: str | None = why_it_stays(past, place, by=by)
            changes: tuple[dict[str, Any], ...] = ()
        else:
            _, operation = opened
            verb, stays = operation.verb, obstacle(operation)
            changes = (vacuum_failed(),) if _has_begun(operation) else ()
        plan = replace(
            plan,
            reason=f"operation {found}, {verb}",
            steps=(Step(name=f"undo {verb}", change=Change(updates=changes) if changes else None),),
        )
        if stays is not None:
            return Planned(
                plan=replace(plan, blocked_by=(f"operation {found}, {verb}, cannot be taken back: {stays}",))
            )
        return Planned(plan=table.blocked(plan))

    def begin(self, table: DeltaTable, plan: Plan, runtime: Runtime) -> None:
        """See `Verb`: nobody else deletes files of the operation from here on."""
        take(table, plan, runtime)

    def end(self, table: DeltaTable, plan: Plan, runtime: Runtime) -> None:
        """See `Verb`: the operation is closed, its files stay."""
        close(table, plan, runtime)


def _has_begun(operation: Operation) -> bool:
    """Whether VACUUM START is in the log, and no VACUUM END."""
    states = operation.steps
    return any(
        state.outcome == "committed" and state.intent is not None and state.sweep_after_ms is not None
        for state in states.values()
    )


VERB: Final = UndoVerb()
