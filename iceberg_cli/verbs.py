"""The verbs by name, for plans and journals that name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iceberg_cli.apply import Verb
from iceberg_cli.iceberg import expire_snapshots
from iceberg_cli.plan import Task


@dataclass(frozen=True)
class _BuildsNothing:
    """A verb whose plans have no tasks."""

    operation: str

    def make(self, task: Task, inputs: Sequence[bytes]) -> bytes:  # noqa: ARG002 - the verb's signature
        raise AssertionError(f"{self.operation} has no task {task.name}")


VERBS: Mapping[str, Verb] = {expire_snapshots.OPERATION: _BuildsNothing(expire_snapshots.OPERATION)}
