"""The files of operations on an Iceberg table: where new ones go, and which may be discarded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from iceberg_cli.errors import BackendUnavailable, CorruptFile, Refused, TableNotFound, UsageError
from iceberg_cli.iceberg import ownership
from iceberg_cli.iceberg.catalogs.metadata_swap import metadata_folder
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.operation.workspace import Workspace
from iceberg_cli.paths import canonical
from iceberg_cli.plan.plan import Task


@dataclass(kw_only=True)
class IcebergWorkspace(Workspace):
    """The files that operations on one Iceberg table write, look up and delete.

    Args:
        storage: see `Workspace`.
        loaded: the metadata as loaded last.
        newest: the location of the metadata file that the pointer names now, and its content.
        read_metadata: the content of any metadata file of the table.
    """

    loaded: Callable[[], TableMetadata]
    newest: Callable[[], tuple[str, TableMetadata]]
    read_metadata: Callable[[str], TableMetadata]

    @property
    def location(self) -> str:
        """The table's base location."""
        return self.loaded().location

    @property
    def table_uuid(self) -> str:
        """The UUID in the metadata, empty where a version 1 table has none."""
        return self.loaded().table_uuid or ""

    def earlier_locations(self) -> list[str]:
        """Where the table was by its metadata log, without its location now.

        The folder of metadata files lies in the location of its time, unless `write.metadata.path` puts it elsewhere:
        then the oldest and the newest file in it that the log names are read for theirs.
        """
        found: dict[str, None] = {}
        metadata = self.loaded()
        elsewhere = "write.metadata.path" in metadata.properties
        for folder, files in ownership.earlier_folders(metadata).items():
            location, _, name = folder.rpartition("/")
            if name == "metadata" and not elsewhere:
                found[location] = None
                continue
            for path in dict.fromkeys((files[0], files[-1])):
                with suppress(TableNotFound, Refused, CorruptFile, BackendUnavailable, UsageError):
                    found[canonical(self.read_metadata(path).location.rstrip("/"))] = None
        found.pop(canonical(metadata.location.rstrip("/")), None)
        return [*found]

    def staging_path(self, prefix: str, task: Task) -> str:
        """Where a task's new file goes: Puffin files among the data, the rest among the metadata."""
        folder = self._data_folder() if task.kind == "puffin" else metadata_folder(self.loaded())
        return f"{folder}/{prefix}-{task.name}"

    def written_folders(self) -> list[str]:
        """The folders of metadata and of data, and the table's own."""
        return [metadata_folder(self.loaded()), self._data_folder(), self.location]

    def _data_folder(self) -> str:
        """Where new data and delete files go."""
        own = self.loaded().properties.get("write.data.path")
        return (own or f"{self.location.rstrip('/')}/data").rstrip("/")

    def discard(self, paths: Sequence[str], *, marks: Sequence[str]) -> None:
        """Delete files that an operation wrote and that no version names; see `ownership.discardable`."""
        if not paths:
            return
        location, metadata = self.newest()  # not loaded: a plan was made of the table as it is loaded
        self.storage.delete(
            ownership.discardable(
                paths,
                metadata=metadata,
                location=location,
                marks=marks,
                canonical=self.storage.canonical,
                earlier=self.left_behind.values(),
            )
        )
