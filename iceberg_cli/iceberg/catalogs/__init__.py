"""Where the location of a table's current metadata is kept, and how it is swapped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from iceberg_cli.operation.outcomes import Attempt, Outcome
from iceberg_cli.storage import StorageCredential

if TYPE_CHECKING:
    from iceberg_cli.iceberg.commit.update import Commit
    from iceberg_cli.iceberg.spec.metadata import TableMetadata


class Committer(Protocol):
    """A table's pointer and how it moves."""

    def read_only_reason(self) -> str | None:
        """Why this table cannot be committed to from here, or None."""
        ...

    def current(self) -> str:
        """The current metadata location.

        Raises:
            TableNotFound: there is no such table.
            BackendUnavailable: the backend did not answer.
        """
        ...

    def prepare(self, commit: Commit, *, base_location: str) -> Attempt:
        """The attempt of a commit: what it writes and where. Writes nothing."""
        ...

    def commit(self, attempt: Attempt) -> Outcome:
        """Write the metadata file and swap the pointer. The same attempt can be tried again.

        Raises `BackendUnavailable` or `TableNotFound` only where no try of it has asked for the swap.
        A `BaseException` that is no error (Ctrl-C, a kill) passes through; the journal's intent covers it.
        """
        ...

    def settle(self, attempt: Attempt) -> Outcome:
        """Was an earlier try of `attempt` ours? Asks the table; never swaps.

        Committed: its location is current or in the metadata log, or (no own name) the file there has our
        digest, or (the catalog writes the metadata) the commit's own marks are in it, see `effects_visible`.
        Conflict: the base has moved, and ours is in neither. Unknown: the base is still current, or the log was
        trimmed.
        """
        ...


@runtime_checkable
class VendsCredentials(Protocol):
    """A committer whose catalog gives the credentials of the table's storage for a while, or signs requests to it."""

    @property
    def credentials(self) -> Sequence[StorageCredential]:
        """For the paths under their prefixes; one is for all paths."""
        ...


@runtime_checkable
class LosesFields(Protocol):
    """A committer whose catalog writes the metadata, and may not know every field of it."""

    def lost_fields_reason(self, metadata: TableMetadata, location: str) -> str | None:
        """Why a commit would lose some of this metadata, which is at a location, or None."""
        ...


@runtime_checkable
class ProvesCatalog(Protocol):
    """A committer that finds out by trying whether its catalog keeps what commits rest on."""

    def unproved_reason(self, properties: Mapping[str, str]) -> str | None:
        """Why it does not, for a table with these properties, or None.

        Raises:
            BackendUnavailable: that cannot be found out now.
        """
        ...


@runtime_checkable
class TakesLateRequests(Protocol):
    """A committer whose catalog may not hold a request against the location that it replaces."""

    def takes_late_requests(self) -> bool:
        """Whether one that is still under way may replace what was committed meanwhile."""
        ...


@runtime_checkable
class HidesSnapshots(Protocol):
    """A committer whose catalog may show less of a table than there is."""

    def hidden_snapshots_reason(self) -> str | None:
        """Why snapshots may be there that the table does not show, or None."""
        ...
