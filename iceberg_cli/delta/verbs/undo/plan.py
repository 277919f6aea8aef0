"""undo on Delta: an operation whose files wait is closed, and the log gets what its verb says of that.

The journal is taken over first: from then on nobody else can delete a file by it. While this operation is open, too,
nobody goes on with that one. So a process that dies at any moment leaves files as they are: before its commit the other
operation waits on, after it whoever resumes closes it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.delta.verbs.undo.policy import Undo
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.undo_policy import UNDO
from iceberg_cli.table.undoing import close_waiting, named_by, plan_of, take_over_waiting, taken_again


class UndoVerb(Verb):
    """Closes an operation whose files still wait."""

    name: Final = UNDO
    policy: Final = Undo
    result_columns: Final = ()

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
            UsageError: no operation of that id is there. CorruptFile: a journal or record cannot be read.
        """
        found, plan = plan_of(table, policy, described=table.describe(), as_of_ms=as_of_ms, within=within)
        if found is None or plan.blocked_by or found.journal is None or found.operation is None:
            return Planned(plan=plan)
        (step,) = plan.steps
        change = VERBS[found.past.operation].undoing(found.operation)
        plan = replace(
            plan,
            steps=(replace(step, change=change),),
            warnings=(*plan.warnings, *taken_again(found.journal)),
        )
        return Planned(plan=table.blocked(plan))

    def begin(self, table: DeltaTable, plan: Plan, runtime: Runtime) -> None:
        """See `Verb`: nobody else deletes files of the operation from here on."""
        take_over_waiting(named_by(table, plan), runtime)

    def end(self, table: DeltaTable, plan: Plan, runtime: Runtime) -> None:
        """See `Verb`: the operation is closed, its files stay."""
        close_waiting(table, plan, runtime)


VERB: Final = UndoVerb()
