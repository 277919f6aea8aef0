"""A catalog in memory, for tests: the shortest correct committer."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from iceberg_cli.errors import TableNotFound
from iceberg_cli.iceberg.catalogs.compare_and_swap import SwapCommitter
from iceberg_cli.operation.outcomes import Attempt
from iceberg_cli.storage import Storage


class MemoryCatalog:
    """Table names and their metadata locations, shared by the committers of one catalog."""

    def __init__(self) -> None:
        self.locations: dict[str, str] = {}
        self.lock = threading.Lock()


class MemoryCommitter(SwapCommitter):
    """The committer of one table of a `MemoryCatalog`; its metadata files are in `storage`."""

    def __init__(self, catalog: MemoryCatalog, name: str, storage: Storage) -> None:
        super().__init__(storage)
        self._catalog = catalog
        self._name = name

    def takes_late_requests(self) -> bool:
        """Whether one may replace what was committed meanwhile: each names the location that it replaces."""
        return False

    def hidden_snapshots_reason(self) -> str | None:
        """None: the metadata file has all of them."""
        return None

    def prove(self, path: str, properties: Mapping[str, str]) -> None:
        """Nothing: a lock is held."""

    def current(self) -> str:
        """The current metadata location."""
        with self._catalog.lock:
            if (location := self._catalog.locations.get(self._name)) is None:
                raise TableNotFound(f"Cannot find the table {self._name} in memory.")
            return location

    def _swap(self, attempt: Attempt) -> bool:
        with self._catalog.lock:
            if self._catalog.locations.get(self._name) != attempt.base:
                return False
            self._catalog.locations[self._name] = attempt.file
            return True
