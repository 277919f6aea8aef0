"""Delta tables on a disk, opened, their logs, and who carries out verbs on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iceberg_cli.delta.log_reader import DeltaLog
from iceberg_cli.delta.spec.paths import dv_path
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.formats.open import open_table
from iceberg_cli.operation.apply import apply
from iceberg_cli.operation.ports import Planned
from iceberg_cli.operation.runtime import Runtime, system_runtime
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.report import Report
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.delta_vectors import positions_in
from iceberg_cli.testing.delta_writer import NOW_MS, Action, commit_path, write_log
from tests.policies import policy_with


def unseen(_: object) -> None:
    """Progress that nobody looks at."""


def opened(root: Path | str) -> DeltaTable:
    table = open_table(str(root), storage_options={}, on_event=unseen)
    assert isinstance(table, DeltaTable)
    return table


def the_log(root: Path) -> DeltaLog:
    """The log of the table in a folder."""
    storage = open_storage()
    return DeltaLog(storage, LocalEngine(storage), str(root), unseen)


def a_log(root: Path, *commits: Sequence[Action] | bytes, **others: Any) -> DeltaLog:
    """The log of a folder after `write_log`."""
    write_log(root, *commits, **others)
    return the_log(root)


def actions_in(root: Path, version: int, kind: str = "") -> list[Action]:
    """The actions of a commit, or the fields of those of one kind."""
    found = [json.loads(line) for line in commit_path(root, version).read_text().splitlines()]
    return [action[kind] for action in found if kind in action] if kind else found


def deleted(root: Path) -> dict[str, list[int]]:
    """The rows that each data file lacks, read by pyroaring."""
    found = {}
    for add in the_log(root).snapshot().adds.to_pylist():
        vector = add["deletionVector"]
        if vector is not None:
            path = dv_path(vector["storageType"], vector["pathOrInlineDv"], str(root))
            assert path is not None
            found[add["path"]] = positions_in(Path(path).read_bytes(), vector)
    return found


def a_shell(**others: Any) -> Runtime:
    return system_runtime(on_event=unseen, host="here", process_id=1, **others)


@dataclass(frozen=True)
class Operator:
    """Who plans and carries out one verb on tables on a disk."""

    verb: Any
    as_of_ms: int = NOW_MS

    def prepare(
        self, root: Path | str, *, as_of_ms: int | None = None, **policy: Any
    ) -> tuple[DeltaTable, Planned]:
        """The opened table, and its plan."""
        table = opened(root)
        chosen = policy_with(self.verb.policy, policy)
        time_ms = self.as_of_ms if as_of_ms is None else as_of_ms
        return table, self.verb.plan(table, chosen, as_of_ms=time_ms)

    def plan(self, root: Path | str, **policy: Any) -> Plan:
        return self.prepare(root, **policy)[1].plan

    def apply(self, made: Planned, table: DeltaTable, **shell: Any) -> Report:
        return apply(made, table, self.verb, a_shell(**shell))

    def run(self, root: Path | str, **policy: Any) -> Report:
        table, made = self.prepare(root, **policy)
        return self.apply(made, table)
