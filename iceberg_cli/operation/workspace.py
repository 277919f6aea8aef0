"""The files of one table's operations: those that they write and delete, and their journals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iceberg_cli.errors import BackendUnavailable, CorruptFile, Refused, UsageError
from iceberg_cli.paths import OPERATIONS_FOLDER
from iceberg_cli.plan.plan import Task
from iceberg_cli.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa

    from iceberg_cli.operation.journal import Journal


@dataclass(kw_only=True)
class Workspace(ABC):
    """The files that operations on one table write, look up and delete.

    Args:
        storage: where the table's files are.
    """

    storage: Storage
    # By operation id: the location where an open operation began, where it is the table's no more.
    left_behind: dict[str, str] = field(default_factory=dict, init=False)

    @property
    @abstractmethod
    def location(self) -> str:
        """The table's base location."""

    @property
    @abstractmethod
    def table_uuid(self) -> str:
        """What tells the table from another one at its place; empty where it has none."""

    def earlier_locations(self) -> Sequence[str]:
        """Where the table was, without its location now."""
        return ()

    # -- files -------------------------------------------------------------------------------------------------

    @abstractmethod
    def staging_path(self, prefix: str, task: Task) -> str:
        """Where a task's new file goes; `prefix` names the operation and is used once."""

    @abstractmethod
    def written_folders(self) -> Sequence[str]:
        """The folders in which verbs write new files, but for those of journals."""

    def put(self, files: Mapping[str, bytes]) -> None:
        """Write new files, put-if-absent."""
        for path, data in files.items():
            self.storage.put_if_absent(path, data)

    def missing(self, paths: Sequence[str]) -> list[str]:
        """Those of some files that are not there."""
        infos = self.storage.stat_many(paths)
        return [path for path, info in zip(paths, infos, strict=True) if info is None]

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete files; the ones still there, with the reason. See `tagged_in`."""
        return self.storage.delete(paths)

    def tagged_in(self, paths: pa.ChunkedArray) -> Sequence[str]:
        """The folders of n paths in which `delete` tags files in place of deleting them."""
        from iceberg_cli.operation.deletion_probe import soft_folders

        return [*soft_folders(self.storage, paths)]

    @abstractmethod
    def discard(self, paths: Sequence[str], *, marks: Sequence[str]) -> None:
        """Delete files of this tool's own making, and nothing that could be another's or the table's.

        Args:
            paths: that nothing references.
            marks: operation id or commit UUIDs; one of them is in each file's name.
        """

    # -- journals ----------------------------------------------------------------------------------------------

    def journal(self, operation_id: str) -> Journal:
        """The journal of an operation: empty, or as it was left."""
        return self._journal_at(self._location_of(operation_id), operation_id)

    def empty_journal(self, operation_id: str) -> Journal:
        """The journal of an operation of which nothing is read."""
        from iceberg_cli.operation.journal import Journal

        return Journal.create(self.storage, self._location_of(operation_id), operation_id)

    def forget(self, operation_id: str) -> None:
        """Delete the files of a journal that cannot be read."""
        self.empty_journal(operation_id).clean_up()

    def _journal_at(self, location: str, operation_id: str) -> Journal:
        from iceberg_cli.operation.journal import Journal  # most tables have no open operation

        return Journal.load(self.storage, location, operation_id)

    def _location_of(self, operation_id: str) -> str:
        return self.left_behind.get(operation_id, self.location)

    def open_operations(self) -> list[str]:
        """Ids of the operations that were not closed, those among them that began at an earlier location."""
        here = open_operations(self.storage, self.location)
        self.left_behind = {}
        for location in self.earlier_locations():
            # Another table may be there by now, or nobody may look there any more: that is no matter of this table's.
            with suppress(BackendUnavailable, UsageError):
                for operation_id in open_operations(self.storage, location):
                    if operation_id not in here and self._began(operation_id, location):
                        self.left_behind[operation_id] = location
        return [*here, *self.left_behind]

    def _began(self, operation_id: str, location: str) -> bool:
        """Whether a journal at another location is of an operation on this table."""
        try:
            operation = self._journal_at(location, operation_id).operation()
        except (CorruptFile, Refused):
            return False
        return operation is not None and operation.table_uuid == self.table_uuid


def open_operations(storage: Storage, table_location: str) -> list[str]:
    """The ids of the operations that have a folder under this table, oldest name first."""
    folder = f"{table_location.rstrip('/')}/{OPERATIONS_FOLDER}"
    prefix = storage.canonical(folder) + "/"
    names = {path.removeprefix(prefix).split("/", 1)[0] for path in storage.paths(folder)}
    return sorted(name for name in names if name and not name.startswith("."))
