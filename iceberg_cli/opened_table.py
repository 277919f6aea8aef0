"""What an opened table has whatever its format: its storage and engine, and the journals of its operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.engines import Engine, OnEvent
from iceberg_cli.journal import Journal, open_operations
from iceberg_cli.plan import Plan
from iceberg_cli.removal_parts import collected
from iceberg_cli.storage import Storage

_EXAMPLES = 5


@dataclass(kw_only=True)
class OpenedTable(ABC):
    """One table, opened.

    Args:
        name: as the operator typed it.
        storage: where its files are.
        engine: reads many files.
        on_event: progress.
    """

    send_again_ms: ClassVar[int | None] = None
    workers_write: ClassVar[bool] = False
    name: str
    storage: Storage
    engine: Engine
    on_event: OnEvent

    @property
    @abstractmethod
    def location(self) -> str:
        """The table's base location."""

    @abstractmethod
    def read_only_reason(self) -> str | None:
        """Why this table, as loaded last, cannot be committed to from here, or None."""

    # -- plans -------------------------------------------------------------------------------------------------

    def blocked(self, plan: Plan) -> Plan:
        """The plan, blocked where it would write or delete and the table cannot be committed to from here."""
        reason = self.read_only_reason()
        if reason is None or not plan.due:
            return plan
        return replace(plan, blocked_by=(*plan.blocked_by, reason))

    def with_own_removals(
        self, plan: Plan, tables: Iterable[pa.Table], own: Callable[[pa.Table], pa.Array], *, folders: str
    ) -> Plan:
        """The plan with those rows that are the table's own, and a warning about the others.

        Args:
            plan: without removals.
            tables: see `removal_parts.collected`.
            own: of n rows n booleans: in a folder where this table's files may be deleted.
            folders: these folders, in words.
        """
        count = 0
        examples: list[str] = []

        def mine() -> Iterator[pa.Table]:
            nonlocal count
            for rows in tables:
                is_own = own(rows)
                foreign = rows.filter(pc.invert(is_own))["as_written"]
                count += len(foreign)
                examples.extend(foreign.slice(0, _EXAMPLES - len(examples)).to_pylist())
                yield rows.filter(is_own) if len(foreign) else rows

        removals = collected(mine())
        if not count:
            return plan.with_removals(removals)
        warning = f"{count} files that would go are outside {folders} and stay: {', '.join(examples)}"
        return plan.with_removals(removals, warnings=[warning])

    # -- files and journals ------------------------------------------------------------------------------------

    def put(self, files: Mapping[str, bytes]) -> None:
        """Write new files, put-if-absent."""
        for path, data in files.items():
            self.storage.put_if_absent(path, data)

    def missing(self, paths: Sequence[str]) -> list[str]:
        """Those of some files that are not there."""
        sizes = self.storage.stat_many(paths)
        return [path for path, size in zip(paths, sizes, strict=True) if size is None]

    def journal(self, operation_id: str) -> Journal:
        """The journal of an operation: empty, or as it was left."""
        return Journal.load(self.storage, self.location, operation_id)

    def forget(self, operation_id: str) -> None:
        """Delete the files of a journal that cannot be read."""
        Journal.create(self.storage, self.location, operation_id).clean_up()

    def open_operations(self) -> list[str]:
        """Ids of the operations that were not closed."""
        return open_operations(self.storage, self.location)
