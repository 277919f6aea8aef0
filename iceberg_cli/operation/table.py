"""What an open table has whatever its format: storage, engine, and the workspace of its operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from iceberg_cli.engines import Engine, OnEvent
from iceberg_cli.operation.ports import Table
from iceberg_cli.operation.workspace import Workspace
from iceberg_cli.paths import Roots
from iceberg_cli.plan.plan import Plan
from iceberg_cli.storage import Storage


@dataclass(kw_only=True)
class OpenTable(Table, ABC):
    """One table, opened.

    Args:
        name: as the operator typed it.
        storage: where its files are.
        engine: reads many files.
        on_event: progress.
    """

    format: ClassVar[Literal["iceberg", "delta"]]
    send_again_ms: ClassVar[int | None] = None
    workers_write: ClassVar[bool] = False
    name: str
    storage: Storage
    engine: Engine
    on_event: OnEvent

    @property
    @abstractmethod
    def workspace(self) -> Workspace:
        """The files of its operations."""

    @property
    def location(self) -> str:
        """The table's base location."""
        return self.workspace.location

    @property
    def identity(self) -> dict[str, str]:
        """How every document names this table."""
        return {"name": self.name, "location": self.location, "format": self.format}

    @abstractmethod
    def read_only_reason(self) -> str | None:
        """Why this table, as loaded last, cannot be committed to from here, or None."""

    def recovery_refusal(self) -> str | None:
        """Why open operations of this table are not gone on with, or None."""
        return self.read_only_reason()

    @abstractmethod
    def roots(self) -> Roots:
        """The folders in which this table's files may be deleted."""

    def blocked(self, plan: Plan) -> Plan:
        """The plan, blocked where it would write or delete and the table cannot be committed to from here."""
        reason = self.read_only_reason()
        if reason is None or not plan.due:
            return plan
        return replace(plan, blocked_by=(*plan.blocked_by, reason))

    def notices(self) -> list[str]:
        """What was noticed while this table was read and not told yet, for the operator."""
        return []
