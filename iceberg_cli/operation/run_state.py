"""What a run of an operation knows: the plan that was shown, how far its journal stands, and what it noticed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from iceberg_cli.errors import CommitStateUnknown
from iceberg_cli.operation.history import DeletionSums
from iceberg_cli.operation.journal import Journal, load_removals
from iceberg_cli.operation.late_files import close
from iceberg_cli.operation.operation_state import Operation, StepState
from iceberg_cli.operation.ports import Table, Verb
from iceberg_cli.operation.records import Begin, Discard, LeaveFiles, SweepOutcome
from iceberg_cli.operation.reporting import report_of
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.operation.undoing import undo_state
from iceberg_cli.plan.events import phase
from iceberg_cli.plan.plan import Plan, Step
from iceberg_cli.plan.removals import Removals
from iceberg_cli.plan.report import Report


@dataclass(kw_only=True)
class RunState:
    """One operation as a run of it sees it. `journal` is the truth; nothing here outlives the process."""

    shown: Plan
    shown_file: str  # its removals in the journal
    table: Table
    verb: Verb
    runtime: Runtime
    journal: Journal
    notes: list[str] = field(default_factory=list)
    kept_again: int = 0
    removals: dict[str, Removals] = field(default_factory=dict)  # by file name in the journal
    _deleted_before: DeletionSums = field(init=False)

    def __post_init__(self) -> None:
        """Take note of what runs before this one deleted."""
        self._deleted_before = DeletionSums.of(self.journal.records(SweepOutcome))

    def _phase(self, name: str) -> AbstractContextManager[None]:
        """A phase of this operation, for whoever listens."""
        return phase(
            name,
            self.runtime.on_event,
            table=self.shown.table["name"],
            operation_id=self.journal.operation_id,
        )

    def _operation(self) -> Operation:
        operation = self.journal.operation()
        assert operation is not None  # its begin was recorded before there was a run of it
        return operation

    def _state(self, step: Step) -> StepState:
        return self._operation().steps.get(step.name, StepState())

    def _report(self, status: str, started_ms: int) -> Report:
        """What the journal tells, and what this process noticed."""
        stated = report_of(
            self.shown,
            self.journal,
            columns=self.verb.result_columns,
            removals=self._removals,
            status=status,
            earlier=self._deleted_before,
        )
        waiting = () if status == "nothing_to_do" else self._operation().uncommitted()
        if waiting:
            self.notes.append(
                f"Still to be committed: {', '.join(waiting)}. `resume` and the next run go on."
            )
        begins = self.journal.records(Begin)
        return replace(
            stated,
            undo=undo_state(self._operation(), self.verb.policy.place.undo),
            undone=begins[0].undoes if begins else None,
            kept_again=self.kept_again,
            notes=(*self.notes, *stated.notes, *map(str, self.table.vouchers())),
            duration_ms=self.runtime.now_ms() - started_ms,
        )

    def _removals(self, name: str) -> Removals:
        if name == self.shown_file:
            assert self.shown.removals is not None
            return self.shown.removals
        if name not in self.removals:
            self.removals[name] = load_removals(self.journal, name)
        return self.removals[name]

    def _state_of_steps(self) -> str:
        """What state the table is in, as far as the journal tells, in words."""
        states = [self._state(step) for step in self.shown.steps]
        if any(state.intent is not None and state.outcome in (None, "unknown") for state in states):
            return CommitStateUnknown.default_state
        done = [step.name for step in self.shown.steps if self._state(step).outcome == "committed"]
        return f"Committed: {', '.join(done)}." if done else "The table was not changed."

    def _close_unsent(self, status: str = "refused") -> None:
        """Close the operation if none of its steps is under way: each is done, or was never committed."""
        states = self._operation().steps.values()
        if all(state.done or state.outcome == "conflict" or state.intent is None for state in states):
            for step in self.shown.steps:
                if not self._state(step).done:
                    self._discard(step, self._state(step).staged)
            close(self.journal, status, self.runtime)

    def _leave(self, step: Step, state: StepState) -> None:
        """Keep what a swap wrote and named for good: it may have come in, and others name it."""
        assert state.intent is not None
        paths = (*state.staged, *state.intent.own_files)
        if paths:
            self.journal.append(LeaveFiles(step=step.name, paths=paths))
            self.notes.append(
                f"It cannot be proved that nothing references {len(paths)} files of its own, such as {paths[0]}; "
                "they stay."
            )

    def _discard(self, step: Step, paths: Sequence[str]) -> None:
        """Delete staged files that nothing references, once it is recorded that nothing ever will."""
        if paths:
            self.journal.append(Discard(step=step.name, paths=tuple(paths)))
            self.table.workspace.discard(paths, marks=[self.journal.operation_id])
