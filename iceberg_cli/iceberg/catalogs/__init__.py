"""Where the location of a table's current metadata is kept, and how it is swapped.

A type of catalogs is one folder here, and in it one object: `CATALOG` of its `catalog.py`, a subclass of `Catalog`.
`registry.py` has their names; packages add types by the entry point group `iceberg_cli.committers`, where an entry's
name is the type and its object such a class. Tables that are opened by their folder are those of `files/` and
`object_store/`, see `folders.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from iceberg_cli.errors import UsageError
from iceberg_cli.operation.outcomes import Attempt, Outcome
from iceberg_cli.storage import StorageCredential

if TYPE_CHECKING:
    from iceberg_cli.iceberg.commit.update import Commit
    from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
    from iceberg_cli.plan.plan import Voucher


class Committer(ABC):
    """A table's pointer and how it moves.

    What forbids commits or deletions is abstract: an answer that is left out would allow them.

    Attributes:
        credentials: where the catalog gives them for the table's storage for a while, or signs requests to it: for the
            paths under their prefixes; one is for all paths.
        by_file_names: whether file names alone tell which metadata is current.
        writes_metadata: whether a commit is a metadata file that is written here, and not a request to the catalog.
    """

    credentials: Sequence[StorageCredential] = ()
    by_file_names: ClassVar[bool] = False
    writes_metadata: ClassVar[bool] = True

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


MayMatch = Callable[[tuple[str, ...]], bool]
"""Whether tables may be meant whose names begin with these levels of a namespace, the catalog not among them."""


class CatalogEntry(NamedTuple):
    """A table as its catalog lists it.

    Args:
        levels: of its namespace, from the outermost.
        table: its name.
        metadata_location: where the catalog's list tells it, or None.
    """

    levels: tuple[str, ...]
    table: str
    metadata_location: str | None = None


class Pointer(NamedTuple):
    """Where a catalog points for a table.

    Args:
        location: of its metadata file.
        document: the metadata as parsed JSON, where the catalog gave that as well.
    """

    location: str
    document: Mapping[str, Any] | None = None


class Catalog(ABC):
    """One catalog that is configured, for several tables of one thread: connections are made when they are needed.

    Args:
        name: as it is configured.
        properties: of the configuration, keys in lower case.
        sections: of the configuration, such as `auth` and `ssl`.
    """

    def __init__(self, name: str, properties: Mapping[str, str], sections: Mapping[str, Any]) -> None:
        self.name = name
        self.properties = properties
        self.sections = sections

    @abstractmethod
    def open(
        self, levels: tuple[str, ...], table: str, storage_options: Mapping[str, str]
    ) -> tuple[Committer, Mapping[str, str]]:
        """The committer of a table, and the options that open its storage.

        Args:
            levels: of its namespace, from the outermost.
            table: its name.
            storage_options: come before the catalog's own.

        Raises:
            UsageError: the configuration is incomplete, or a package is not installed.
            TableNotFound, AccessDenied, BackendUnavailable.
        """

    @abstractmethod
    def list(self, may_match: MayMatch) -> Iterator[CatalogEntry]:
        """The tables, each once: page by page, and none is opened.

        Args:
            may_match: namespaces for which it is false are not looked into.

        Raises:
            UsageError: see `open`; or it cannot be listed. AccessDenied, BackendUnavailable.
        """

    @abstractmethod
    def pointer(self, levels: tuple[str, ...], table: str) -> Pointer | None:
        """Where it points for a table, by one question and without opening it; None where only opening it tells.

        Without the document the file is read by the options of the configuration alone: where the storage needs what
        `open` gives, the answer is None.

        Raises:
            As `open`.
        """

    @abstractmethod
    def place(self) -> Mapping[str, str] | None:
        """The properties that say where its entries are, equal for two names of one catalog; it is not asked.

        None where equal ones may be of two places.
        """

    @abstractmethod
    def duplicates(self) -> Mapping[str, Sequence[CatalogEntry]]:
        """The metadata locations that several tables have, with these tables in their order.

        They are none where that takes more than one question.

        Raises:
            As `list`.
        """

    def uri(self) -> str:
        """The URI of the configuration.

        Raises:
            UsageError: it has none.
        """
        uri = self.properties.get("uri")
        if not uri:
            raise UsageError(f"Cannot open the catalog {self.name}: its configuration has no uri.")
        return uri
