"""Where the location of a table's current metadata is kept, and how it is swapped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from iceberg_cli.operation.outcomes import Attempt, Outcome
from iceberg_cli.storage import StorageCredential

if TYPE_CHECKING:
    from iceberg_cli.iceberg.commit.update import Commit
    from iceberg_cli.iceberg.spec.metadata import TableMetadata
    from iceberg_cli.plan.plan import Voucher


class Committer(ABC):
    """A table's pointer and how it moves.

    What forbids commits or deletions is abstract: an answer that is left out would allow them.

    Attributes:
        credentials: where the catalog gives them for the table's storage for a while, or signs requests to it: for the
            paths under their prefixes; one is for all paths.
        by_file_names: whether file names alone tell which metadata is current.
    """

    credentials: Sequence[StorageCredential] = ()
    by_file_names: ClassVar[bool] = False

    @abstractmethod
    def read_only_reason(self) -> str | None:
        """Why this table cannot be committed to from here, or None."""

    def closing_refusal(self) -> str | None:
        """Why open operations are not closed unfinished, which takes no commit, or None."""
        return self.read_only_reason()

    @abstractmethod
    def takes_late_requests(self) -> bool:
        """Whether a request that is still under way may replace what was committed meanwhile.

        So it is where the catalog may not hold a request against the location that it replaces.
        """

    @abstractmethod
    def hidden_snapshots_reason(self) -> str | None:
        """Why snapshots may be there that the table does not show, or None."""

    @abstractmethod
    def lost_fields_reason(self, metadata: TableMetadata, location: str) -> str | None:
        """Why a commit would lose some of this metadata, which is at a location, or None.

        It may where the catalog writes the metadata, and does not know every field of it.
        """

    @abstractmethod
    def prove(self, path: str, properties: Mapping[str, str]) -> None:
        """Refuse a catalog, or a storage, that is seen by trying not to keep what commits rest on.

        Args:
            path: where nothing is yet; nothing is there afterwards.
            properties: the table's.

        Raises:
            Refused. BackendUnavailable: that cannot be found out now.
        """

    def vouchers(self) -> Sequence[Voucher]:
        """What the operator vouches for, as far as commits to this table rest on it."""
        return ()

    @abstractmethod
    def current(self) -> str:
        """The current metadata location.

        Raises:
            TableNotFound: there is no such table.
            BackendUnavailable: the backend did not answer.
        """

    @abstractmethod
    def prepare(self, commit: Commit, *, base_location: str) -> Attempt:
        """The attempt of a commit: what it writes and where. Writes nothing."""

    @abstractmethod
    def commit(self, attempt: Attempt) -> Outcome:
        """Write the metadata file and swap the pointer. The same attempt can be tried again.

        Raises `BackendUnavailable` or `TableNotFound` only where no try of it has asked for the swap.
        A `BaseException` that is no error (Ctrl-C, a kill) passes through; the journal's intent covers it.
        """

    @abstractmethod
    def settle(self, attempt: Attempt) -> Outcome:
        """Was an earlier try of `attempt` ours? Asks the table; never swaps.

        Committed: its location is current or in the metadata log, or (no own name) the file there has our
        digest, or (the catalog writes the metadata) the commit's own marks are in it, see `effects_visible`.
        Conflict: the base has moved, and ours is in neither. Unknown: the base is still current, or the log was
        trimmed.
        """
