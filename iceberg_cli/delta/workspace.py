"""The files of operations on a Delta table: where new ones go, and which may be discarded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from iceberg_cli.delta.ownership import discardable, remove_empty_folders, staging_path
from iceberg_cli.delta.spec.log import LOG, SIDECARS
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.operation.workspace import Workspace
from iceberg_cli.paths import scheme_of
from iceberg_cli.plan.plan import Task


@dataclass(kw_only=True)
class DeltaWorkspace(Workspace):
    """The files that operations on one Delta table write, look up and delete.

    Args:
        storage: see `Workspace`.
        root: the table's folder in canonical spelling.
        loaded: the snapshot as loaded last.
        newest: the newest snapshot.
    """

    root: str
    loaded: Callable[[], Snapshot]
    newest: Callable[[], Snapshot]

    @property
    def location(self) -> str:
        """The table's folder."""
        return self.root

    @property
    def table_uuid(self) -> str:
        """The id in the table's metadata."""
        return self.loaded().metadata.id

    def staging_path(self, prefix: str, task: Task) -> str:
        """Where a task's new file goes."""
        return staging_path(self.root, prefix, task)

    def written_folders(self) -> list[str]:
        """The table's folder, and those of its log and of sidecars."""
        log = f"{self.root}/{LOG}"
        return [self.root, log, f"{log}/{SIDECARS}"]

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete files, then the folders that they leave empty; the files still there, with the reason."""
        failures = self.storage.delete(paths)
        if scheme_of(self.root) == "file":
            remove_empty_folders(self.storage, self.root, [path for path in paths if path not in failures])
        return failures

    def discard(self, paths: Sequence[str], *, marks: Sequence[str]) -> None:
        """Delete files that an operation wrote and that no version names; see `ownership.discardable`."""
        own = [
            path for path in map(self.storage.canonical, paths) if discardable(path, self.root, marks=marks)
        ]
        if any(path.endswith(".bin") for path in own):
            from iceberg_cli.delta.reachability import named_vectors

            named = named_vectors(
                self.newest(), self.root
            )  # not loaded: a plan was made of the table as it is loaded
            own = [path for path in own if path not in named]
        self.storage.delete(own)
