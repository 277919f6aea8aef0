"""Write our metadata file, then let the catalog exchange one location for another: order and outcomes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from iceberg_cli.errors import BackendUnavailable, TableNotFound
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.catalogs.metadata_swap import prepare_named
from iceberg_cli.iceberg.catalogs.read_back import settle_pointer
from iceberg_cli.operation.outcomes import (
    Attempt,
    Committed,
    Conflict,
    Outcome,
    SentAttempts,
    Unknown,
    digest_of,
)
from iceberg_cli.storage import Storage

if TYPE_CHECKING:
    from iceberg_cli.iceberg.commit.update import Commit
    from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata

Swap = Callable[[Attempt], "bool | Conflict | Unknown"]
"""True: exchanged. False: refused, because the base was not there. Unknown: no answer, or none to rely on. Conflict: it
was not asked for, and will not be however often it is tried.

It raises BackendUnavailable where it is certain that this call changed nothing and never will.
"""


class SwapCommitter(Committer):
    """The committer of a catalog that compares and exchanges.

    What is a catalog's own is `current`, `_swap`, and what it says of late requests, hidden snapshots and proofs.

    Args:
        storage: where the metadata files are.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._sent = SentAttempts()

    def read_only_reason(self) -> str | None:
        """None: whether the catalog lets us write shows when we do."""
        return None

    def lost_fields_reason(self, metadata: TableMetadata, location: str) -> str | None:  # noqa: ARG002 - the port's
        """None: the metadata is written here, whole."""
        return None

    @abstractmethod
    def current(self) -> str:
        """The catalog's metadata location, as it spells it."""

    def prepare(self, commit: Commit, *, base_location: str) -> Attempt:
        """The attempt under a name of its own."""
        return prepare_named(commit, base_location=base_location)

    def commit(self, attempt: Attempt) -> Outcome:
        """Write the file, then exchange the location where it is still the base's."""
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

    @abstractmethod
    def _swap(self, attempt: Attempt) -> bool | Conflict | Unknown:
        """One conditional exchange, see `Swap`."""


def commit_by_swap(
    attempt: Attempt, *, first: bool, current: Callable[[], str], swap: Swap, storage: Storage
) -> Outcome:
    """Commit through a catalog that compares and exchanges.

    Args:
        attempt: its metadata location is its own.
        first: no earlier try can have been sent.
        current: the catalog's metadata location, as it spells it.
        swap: one conditional exchange of `base_location` for `metadata_location`.
        storage: where the metadata file goes.

    Raises:
        BackendUnavailable, TableNotFound: nothing was sent, now or before.
    """
    try:
        now = current()
        if now != attempt.base:
            reason = f"the table has moved from {attempt.base} to {now}"
            return _refused(attempt, reason, first=first, current=current, storage=storage)
        # A file that is there already was written by a process that resumed this one's operation meanwhile; one that
        # is absent says nothing of the process that was resumed: it may be about to write and swap.
        first = _written_now(attempt, storage) and first
        if stale := attempt.why_stale([attempt.file]):
            return Conflict(reason=stale) if first else Unknown(cause=stale)
    except (BackendUnavailable, TableNotFound) as error:
        if first:
            raise
        return Unknown(cause=error.message)
    try:
        swapped = swap(attempt)
    except BackendUnavailable as error:
        if first:
            raise
        swapped = Unknown(cause=error.message)
    match swapped:
        case True:
            return Committed(metadata_location=attempt.file)
        case False:
            reason = f"another writer moved the table from {attempt.base}"
            return _refused(attempt, reason, first=first, current=current, storage=storage)
        case Conflict(reason=reason):
            return swapped if first else Unknown(cause=reason)
        case Unknown(cause=cause):
            settled = settle_pointer(attempt, current, storage)
            return Unknown(cause=f"{cause}; {settled.cause}") if isinstance(settled, Unknown) else settled


def _refused(
    attempt: Attempt, reason: str, *, first: bool, current: Callable[[], str], storage: Storage
) -> Outcome:
    """Read back even where this is the first try: a process that resumed this one's operation may send it as well."""
    settled = settle_pointer(attempt, current, storage)
    return Conflict(reason=reason) if first and isinstance(settled, Unknown) else settled


def _written_now(attempt: Attempt, storage: Storage) -> bool:
    """Write the metadata file; False when an earlier try did.

    Raises:
        BackendUnavailable: the storage said so, or another file has the name.
    """
    try:
        storage.put_if_absent(attempt.file, attempt.data)
    except FileExistsError:
        if digest_of(storage.read(attempt.file)) == attempt.digest:
            return False
        raise BackendUnavailable(f"Cannot write {attempt.file}: another file is there.") from None
    return True
