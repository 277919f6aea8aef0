"""The deletions of a verb on one table, counted as they happen, and what they leave of its plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from iceberg_cli.plan.events import FilesDeleted

if TYPE_CHECKING:
    from iceberg_cli.api import Plan
    from iceberg_cli.plan.events import AnyEvent, Listener


class Deletions(NamedTuple):
    """Files and bytes that are gone, and those that stay because they are needed again."""

    files: int = 0
    size_bytes: int = 0
    kept: int = 0
    kept_bytes: int = 0

    def left_of(self, plan: Plan) -> tuple[int, int]:
        """Files and bytes that a plan deletes and that are still there to be deleted."""
        files, size_bytes = plan.content.deletes
        return max(0, files - self.files - self.kept), max(0, size_bytes - self.size_bytes - self.kept_bytes)


class DeletionCounter:
    """A listener that counts the deletions of one table, and passes all on."""

    def __init__(self, on_event: Listener) -> None:
        self._on_event = on_event
        self._found = Deletions()

    def __call__(self, event: AnyEvent) -> None:
        """Take note of an event."""
        if isinstance(event, FilesDeleted):
            files, size_bytes, kept, kept_bytes = self._found
            self._found = Deletions(
                files + sum(count for count, _ in event.by_kind.values()),
                size_bytes + sum(size for _, size in event.by_kind.values()),
                kept + event.kept,
                kept_bytes + event.kept_bytes,
            )
        self._on_event(event)

    def take(self) -> Deletions:
        """Those since they were taken last."""
        found, self._found = self._found, Deletions()
        return found
