"""Verbs that nobody needs: one of three steps with staged files, one whose last commit follows its sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verb_registry import VERBS as REAL_VERBS
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.operation.outcomes import Attempt
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.plan.plan import Change, Plan, StagedFile, Step, Task
from iceberg_cli.plan.removal_rows import SCHEMA
from iceberg_cli.plan.removals import Removals
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import unseen
from tests.builders import LOCATION
from tests.crash.scenes import POLICY

THREE = "three-steps"
SWEEP_FIRST = "sweep-first"
ORPHANS = (f"{LOCATION}/data/orphan-1.parquet", f"{LOCATION}/data/orphan-2.parquet")
NOTES = ("property-note", "property-other")


def setting(name: str, value: str) -> Change:
    return Change(updates=({"action": "set-properties", "updates": {name: value}},))


@dataclass(frozen=True)
class FakeVerb:
    """Properties say how far it is; its staged files are notes of the lengths of what they were made from."""

    name: str
    result_columns: tuple[str, ...] = ()
    policy: type[ExpireSnapshots] = ExpireSnapshots

    def plan(
        self,
        table: FakeTable,
        policy: ExpireSnapshots,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,  # noqa: ARG002 - the port's signature
    ) -> Planned:
        """What is still to do; each step is left out once its effect shows."""
        expiry = REAL_VERBS["expire-snapshots"].plan(table, policy, as_of_ms=as_of_ms, within=within).plan
        at = table.metadata.properties.get("at", "")
        if self.name == THREE:
            steps = _three_steps(at, expiry, table.metadata_location)
            assert expiry.removals is not None
            removals = expiry.removals if any(step.name == "expire" for step in steps) else Removals.none()
        else:
            steps, removals = _sweep_first(at, table)
        plan = replace(expiry, verb=self.name, steps=steps, removals=removals)
        return Planned(plan=plan, build=self.unconditional(table))

    def begin(self, table: Any, plan: Plan, runtime: Any) -> None:
        """Nothing comes first."""

    def end(self, table: Any, plan: Plan, runtime: Any) -> None:
        """Nothing comes last."""

    def unconditional(self, table: FakeTable) -> Build:
        def build(_step: Step, paths: Mapping[Task, str]) -> Mapping[Task, StagedFile]:
            for task, path in paths.items():
                lengths = [len(table.storage.read(source)) for source in task.inputs]
                table.storage.put_if_absent(path, f"{task.name}: {lengths}".encode())
            return {task: StagedFile(path=path) for task, path in paths.items()}

        return build


VERBS: Mapping[str, Verb] = {name: FakeVerb(name) for name in (THREE, SWEEP_FIRST)}


def _three_steps(at: str, expiry: Plan, metadata_location: str) -> tuple[Step, ...]:
    if at == "end":
        return ()
    note = Task(name="note", kind="note", inputs=(metadata_location,))
    other = Task(name="other", kind="note")
    begin = Step(name="begin", tasks=(note, other), change=setting("at", "begin"))
    end = Step(name="end", requires="everything is expired", change=setting("at", "end"))
    return (*(() if at == "begin" else (begin,)), *expiry.steps, end)


def _sweep_first(at: str, table: FakeTable) -> tuple[tuple[Step, ...], Removals]:
    if at == "end":
        return (), Removals.none()
    rows = [("a sweep", path, path, "data_file", 1, "nothing reaches it") for path in ORPHANS]
    there = [row for row in rows if table.is_there(row[1])]
    columns = pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in there], schema=SCHEMA
    )
    sweep = (Step(name="a sweep"),) if there else ()
    return (*sweep, Step(name="b end", change=setting("at", "end"))), Removals.of(columns)


class FakeTable(IcebergTable):
    """A table whose commits name the staged files in its properties."""

    def is_there(self, path: str) -> bool:
        try:
            self.storage.stat(path)
        except FileNotFoundError:
            return False
        return True

    def bind(
        self,
        step: Step,
        staged: Mapping[Task, StagedFile],
        *,
        timestamp_ms: int,
        commit_uuid: str,
        operation_id: str,
        mark: str,
    ) -> Attempt:
        """The step's change, and properties that name its staged files."""
        assert step.change is not None
        named = {f"property-{task.name}": staged[task].path for task in step.tasks}
        updates: tuple[Mapping[str, Any], ...] = step.change.updates
        if named:
            updates = (*updates, {"action": "set-properties", "updates": named})
        return super().bind(
            replace(step, change=Change(updates=updates)),
            staged,
            timestamp_ms=timestamp_ms,
            commit_uuid=commit_uuid,
            operation_id=operation_id,
            mark=mark,
        )


@dataclass(kw_only=True)
class FakeProcess(Process):
    """One run of a fake verb."""

    verb: str = THREE
    policy: ExpireSnapshots = POLICY

    @property
    def verbs(self) -> Mapping[str, Verb]:
        return VERBS

    def open(self) -> FakeTable:
        self.committer = self.open_catalog()
        return FakeTable(
            name="visits",
            storage=self.storage,
            committer=self.committer,
            engine=LocalEngine(self.storage, threads=1),
            on_event=unseen,
        )

    def settle(self) -> None:
        self.resume()
