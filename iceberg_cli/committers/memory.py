"""A catalog in memory: the shortest correct committer, and the one that tests of other parts use."""

from __future__ import annotations

import threading

from iceberg_cli.committers import Attempt, Outcome
from iceberg_cli.committers.pointer import prepare_named
from iceberg_cli.committers.readback import settle_pointer
from iceberg_cli.committers.swap import Sent, commit_by_swap
from iceberg_cli.errors import TableNotFound
from iceberg_cli.iceberg.update import Commit
from iceberg_cli.storage import Storage


class MemoryCatalog:
    """Table names and their metadata locations, shared by the committers that are given it."""

    def __init__(self) -> None:
        self.locations: dict[str, str] = {}
        self.lock = threading.Lock()


class MemoryCommitter:
    """One table of a `MemoryCatalog`; its metadata files are in `storage`."""

    def __init__(self, catalog: MemoryCatalog, name: str, storage: Storage) -> None:
        self._catalog = catalog
        self._name = name
        self._storage = storage
        self._sent = Sent()

    def read_only_reason(self) -> str | None:
        """None."""
        return None

    def current(self) -> str:
        """The current metadata location."""
        with self._catalog.lock:
            if (location := self._catalog.locations.get(self._name)) is None:
                raise TableNotFound(f"Cannot find the table {self._name} in memory.")
            return location

    def prepare(self, commit: Commit, *, base_location: str) -> Attempt:
        """The attempt under a name of its own."""
        return prepare_named(commit, base_location=base_location)

    def commit(self, attempt: Attempt) -> Outcome:
        """Write the file, then exchange the location under the lock."""
        return commit_by_swap(
            attempt,
            first=self._sent.first(attempt),
            current=self.current,
            swap=self._swap,
            storage=self._storage,
        )

    def settle(self, attempt: Attempt) -> Outcome:
        """Look into the current metadata's log."""
        return settle_pointer(attempt, self.current, self._storage)

    def _swap(self, attempt: Attempt) -> bool:
        with self._catalog.lock:
            if self._catalog.locations.get(self._name) != attempt.base_location:
                return False
            self._catalog.locations[self._name] = attempt.metadata_location
            return True
