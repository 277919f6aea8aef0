"""Verbs that nobody needs: one of three steps with staged files, one whose last commit follows its sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from iceberg_cli.apply import Verb, apply, resume
from iceberg_cli.committers import Attempt
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.plan import Change, Plan, Step, Task
from iceberg_cli.removals import SCHEMA, Removals
from iceberg_cli.report import Report
from iceberg_cli.table import IcebergTable
from tests.builders import LOCATION, NOW_MS
from tests.crash.simulation import POLICY, Process, unseen

THREE = "three-steps"
SWEEP_FIRST = "sweep-first"
ORPHANS = (f"{LOCATION}/data/orphan-1.parquet", f"{LOCATION}/data/orphan-2.parquet")
NOTES = ("property-note", "property-other")


@dataclass(frozen=True)
class FakeVerb:
    """Makes a note of the lengths of what it is given."""

    operation: str

    def make(self, task: Task, inputs: Sequence[bytes]) -> bytes:
        return f"{task.name}: {[len(data) for data in inputs]}".encode()


VERBS: Mapping[str, Verb] = {name: FakeVerb(name) for name in (THREE, SWEEP_FIRST)}


def setting(name: str, value: str) -> Change:
    return Change(updates=({"action": "set-properties", "updates": {name: value}},))


@dataclass(kw_only=True)
class FakeTable(IcebergTable):
    """A table whose plans are those of the fake verbs. Properties say how far they are."""

    operation: str
    staged: dict[str, str] = field(default_factory=dict)

    def plan_again(self) -> Plan:
        """What is still to do; each step is left out once its effect shows."""
        base = self.load()
        expiry = self.plan_expiry(POLICY, as_of_ms=NOW_MS)
        at = self.metadata.properties.get("at", "")
        if self.operation == THREE:
            steps = self._three_steps(at, expiry)
            assert expiry.removals is not None
            removals = expiry.removals if any(step.name == "expire" for step in steps) else Removals.none()
        else:
            steps, removals = self._sweep_first(at)
        return replace(expiry, operation=self.operation, base=base, steps=steps, removals=removals)

    def _three_steps(self, at: str, expiry: Plan) -> tuple[Step, ...]:
        if at == "end":
            return ()
        note = Task(name="note", kind="note", inputs=(self.metadata_location,))
        other = Task(name="other", kind="note")
        begin = Step(name="begin", tasks=(note, other), change=setting("at", "begin"))
        end = Step(name="end", requires="everything is expired", change=setting("at", "end"))
        return (*(() if at == "begin" else (begin,)), *expiry.steps, end)

    def _sweep_first(self, at: str) -> tuple[tuple[Step, ...], Removals]:
        if at == "end":
            return (), Removals.none()
        rows = [("a sweep", path, path, "data_file", 1, "nothing reaches it") for path in ORPHANS]
        there = [row for row in rows if self._is_there(row[1])]
        table = pa.Table.from_pylist(
            [dict(zip(SCHEMA.names, row, strict=True)) for row in there], schema=SCHEMA
        )
        sweep = (Step(name="a sweep"),) if there else ()
        return (*sweep, Step(name="b end", change=setting("at", "end"))), Removals.of(table)

    def _is_there(self, path: str) -> bool:
        try:
            self.storage.stat(path)
        except FileNotFoundError:
            return False
        return True

    def replan(self, plan: Plan) -> Plan:  # noqa: ARG002 - the port's signature
        return self.plan_again()

    def stage(self, jobs: Sequence[tuple[str, Task]], make: Callable[[Task, Sequence[bytes]], bytes]) -> None:
        super().stage(jobs, make)
        self.staged |= {task.name: path for path, task in jobs}

    def bind(self, step: Step, *, timestamp_ms: int, commit_uuid: str) -> Attempt:
        """The step's change, and properties that name its staged files."""
        assert step.change is not None
        named = {f"property-{task.name}": self.staged[task.name] for task in step.tasks}
        updates: tuple[Mapping[str, Any], ...] = step.change.updates
        if named:
            updates = (*updates, {"action": "set-properties", "updates": named})
        change = Change(updates=updates)
        return super().bind(replace(step, change=change), timestamp_ms=timestamp_ms, commit_uuid=commit_uuid)


@dataclass(kw_only=True)
class FakeProcess(Process):
    """One run of a fake verb."""

    operation: str = THREE

    def open(self) -> FakeTable:
        return FakeTable(
            name="visits",
            storage=self.storage,
            committer=self.committer,
            engine=LocalEngine(self.storage, threads=1),
            on_event=unseen,
            operation=self.operation,
        )

    def run(self) -> Report:
        """Settle, plan and apply."""
        self.resume()
        assert isinstance(self.table, FakeTable)
        self.shown = self.table.plan_again()
        return apply(self.shown, self.table, VERBS[self.operation], self.shell)

    def resume(self) -> list[Report]:
        return [
            resume(self.table, operation_id, self.shell, verbs=VERBS)
            for operation_id in self.table.open_operations()
        ]
