"""What carrying a plan out needs of a table and of a verb, whatever the format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from iceberg_cli.committers import Attempt, Committed, Conflict, Unknown
from iceberg_cli.committers.retries import Retries
from iceberg_cli.journal import Journal
from iceberg_cli.plan import Base, Plan, Step, Task
from iceberg_cli.removals import Removals


class Verb(Protocol):
    """What `apply` needs of a verb besides its plan."""

    @property
    def operation(self) -> str:
        """Its name on the command line."""
        ...

    def make(self, task: Task, inputs: Sequence[bytes]) -> bytes:
        """The content of a task's new file. Pure."""
        ...


class Table(Protocol):
    """What `apply` needs of a table, whatever its format."""

    @property
    def location(self) -> str:
        """The table's base location."""
        ...

    def load(self) -> Base:
        """Look at the pointer and read what it points to."""
        ...

    def replan(self, plan: Plan) -> Plan:
        """The same question asked of the table as loaded last, with its removals."""
        ...

    def retries(self) -> Retries:
        """`commit.retry.*` of the table as loaded last."""
        ...

    def bind(self, step: Step, *, timestamp_ms: int, commit_uuid: str) -> Attempt:
        """This attempt's commit on the table as loaded last."""
        ...

    def commit(self, attempt: Attempt) -> Committed | Conflict | Unknown:
        """One swap."""
        ...

    def settle(self, attempt: Attempt) -> Committed | Conflict | Unknown:
        """What came of an earlier swap."""
        ...

    def effects_visible(self, step: Step) -> bool:
        """Whether the table as loaded last already is as the step would leave it."""
        ...

    def rebind(self, step: Step, intent: Mapping[str, Any]) -> Attempt | None:
        """The attempt that an intent of the journal describes, byte for byte; None if its base is gone."""
        ...

    def not_live(self, removals: Removals, rows: Sequence[int]) -> list[int]:
        """Those of `rows` that the table does not reach now.

        Raises:
            Refused: deletions are forbidden by now.
        """
        ...

    def staging_path(self, prefix: str, task: Task) -> str:
        """Where a task's new file goes; `prefix` names the operation and is used once."""
        ...

    def stage(self, jobs: Sequence[tuple[str, Task]], make: Callable[[Task, Sequence[bytes]], bytes]) -> None:
        """Build new files from old ones, put-if-absent."""
        ...

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete files; the ones still there, with the reason."""
        ...

    def discard(self, paths: Sequence[str], *, marks: Sequence[str]) -> None:
        """Delete files of this tool's own making: a mark in the name, inside the table, named by no metadata."""
        ...

    def journal(self, operation_id: str) -> Journal:
        """The journal of an operation: empty, or as it was left."""
        ...
