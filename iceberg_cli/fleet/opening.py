"""How the tables of a fleet are opened, in whatever threads: each thread has its own connections to catalogs."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from iceberg_cli.errors import IcebergCliError, TableNotFound
from iceberg_cli.formats import format_of
from iceberg_cli.names import levels_of
from iceberg_cli.operation.history import last_run_ms
from iceberg_cli.operation.workspace import open_operations
from iceberg_cli.paths import scheme_of
from iceberg_cli.plan.events import Event, Listener, unheard

if TYPE_CHECKING:
    from iceberg_cli.api import Table
    from iceberg_cli.engines.selection import EngineChoice
    from iceberg_cli.fleet.listing import ListedTable
    from iceberg_cli.iceberg.catalogs import Pointer
    from iceberg_cli.iceberg.catalogs.registry import Catalogs
    from iceberg_cli.plan.decision import FileGlances
    from iceberg_cli.plan.events import AnyEvent
    from iceberg_cli.storage import Storage


@dataclass(kw_only=True)
class TableOpener:
    """Opens tables by what `open_table` takes, see there.

    Args:
        storage_options: of all tables.
        catalog_config: of all tables.
        allow_roots: of all tables.
        trust_lists: of all tables.
        conditional_writes: of all tables.
        single_writer: of all tables.
        engine: of all tables; Spark has one session for all.
        cache_bytes: for all tables together.
        names_options: of all tables.
        on_event: gets what happens, but for the progress within a table.
    """

    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    catalog_config: str | None = None
    allow_roots: Sequence[str] = ()
    trust_lists: bool = False
    conditional_writes: bool = False
    single_writer: bool = False
    engine: EngineChoice | None = None
    cache_bytes: int | None = None
    names_options: bool = False
    on_event: Listener = unheard
    _own: threading.local = field(default_factory=threading.local, repr=False)

    @property
    def vouched(self) -> list[object]:
        """What the operator vouches for or says of deletions, which may change what a plan takes or what blocks it."""
        of_deletions = sorted(
            each for each in self.storage_options.items() if each[0].startswith("s3.delete")
        )
        return [*sorted(self.allow_roots), self.conditional_writes, self.single_writer, *of_deletions]

    def start_engine(self) -> None:
        """Start Spark where it may be needed, before other threads are there: nothing may be printed while it starts.

        Raises:
            UsageError, BackendUnavailable: see `engines.spark.startup.open_session`.
        """
        if self.engine is not None and self.engine.may_be_spark:
            from iceberg_cli.engines.spark.startup import open_session

            open_session(self.engine)

    def pointer(self, listed: ListedTable) -> Pointer | None:
        """Where a catalog points for a table; None where only opening it tells.

        What the catalog told in its list is believed; else it is asked, once.

        Raises:
            As `Catalog.pointer`.
        """
        from iceberg_cli.iceberg.catalogs import Pointer

        if listed.metadata_location is not None:
            return Pointer(listed.metadata_location)
        if listed.catalog is None:
            return None
        return self._catalogs().catalog(listed.catalog).pointer(*listed.parts)

    def folder_version(self, listed: ListedTable) -> str | None:
        """What one listing tells of the version of a table in a folder; None where it has to be opened for that.

        Raises:
            BackendUnavailable: the folder cannot be listed.
        """
        if listed.catalog is not None or listed.location is None:
            return None
        storage = self._storage(listed)
        folder = storage.canonical(listed.location).rstrip("/")
        if scheme_of(folder) == "file":
            folder = os.path.realpath(folder or "/")
        return format_of(listed.format).surveying.folder_version(storage, folder)

    def identity(self, listed: ListedTable) -> tuple[str, str]:
        """The UUID and the folder of a catalog's table; it is not opened where that can be helped.

        Raises:
            As `open_table`.
        """
        pointer = self.pointer(listed)
        glances = format_of(listed.format).surveying.file_glances
        if pointer is None or glances is None:
            table = self.open(listed)
            return table.key[0], str(table.identity["location"])
        glance = self.glance(listed, pointer, glances)
        return str(glance["table_uuid"] or ""), str(glance["location"])

    def glance(self, listed: ListedTable, pointer: Pointer, glances: FileGlances) -> Mapping[str, Any]:
        """What the metadata file of a catalog's table tells, which is not opened.

        Raises:
            As `read`; CorruptFile: it is no metadata.
        """
        if pointer.document is not None:
            return glances.of_document(pointer.document, pointer.location)
        return glances.read(self.read(listed, pointer.location), pointer.location)

    def open_operations(self, listed: ListedTable, location: str | None) -> int | None:
        """How many operations of a table that is not opened were not closed; None where only opening it tells.

        Args:
            listed: which one.
            location: its folder; None where that is not known.
        """
        if location is None:
            return None
        try:
            return len(open_operations(self._storage(listed), location))
        except IcebergCliError:
            return None

    def last_run_ms(self, listed: ListedTable, location: str, table_uuid: str, verb: str) -> int | None:
        """When a verb last ran on a table that is not opened; see `history.last_run_ms`."""
        return last_run_ms(self._storage(listed), location, table_uuid, verb)

    def is_one_entry(self, name: str, other: str) -> bool:
        """Whether two names in catalogs are of one entry, which a commit by either moves: a server configured twice."""
        (catalog, *levels), (other_catalog, *other_levels) = levels_of(name), levels_of(other)
        if levels != other_levels:
            return False
        first, second = (self._catalogs().catalog(each) for each in (catalog, other_catalog))
        place = first.place()
        return type(first) is type(second) and place is not None and place == second.place()

    def read(self, listed: ListedTable, path: str) -> bytes:
        """A file of a catalog's table that is not opened.

        Raises:
            TableNotFound: it is not there. BackendUnavailable: it cannot be read.
        """
        try:
            return self._storage(listed).read(path)
        except FileNotFoundError:
            raise TableNotFound(f"Cannot open {listed.name}: its metadata file {path} is not there") from None

    def open(self, listed: ListedTable, *, seen: str | None = None) -> Table:
        """Open a table.

        Args:
            listed: which one.
            seen: where its catalog was just seen to point, which is believed: for what only looks.

        Raises:
            As `iceberg_cli.open_table`.
        """
        try:
            return self._open(listed.name, seen)
        except TableNotFound:
            if seen is None:
                raise
            # It has moved since, and the file that it pointed to then is gone.
            return self._open(listed.name, None)

    def _catalogs(self) -> Catalogs:
        """Those of this thread."""
        from iceberg_cli.iceberg.catalogs.registry import Catalogs

        if not hasattr(self._own, "catalogs"):
            self._own.catalogs = Catalogs(self.catalog_config)
        found: Catalogs = self._own.catalogs
        return found

    def _storage(self, listed: ListedTable) -> Storage:
        """What reads the files of a table that is not opened."""
        storage = self._storages().get(listed.catalog)
        if storage is None:
            from iceberg_cli.storage.router import open_storage

            own = {} if listed.catalog is None else self._catalogs().configured(listed.catalog)[1]
            storage = self._storages()[listed.catalog] = open_storage({**own, **self.storage_options})
        return storage

    def _storages(self) -> dict[str | None, Storage]:
        """Those of this thread, by catalog."""
        if not hasattr(self._own, "storages"):
            self._own.storages = {}
        found: dict[str | None, Storage] = self._own.storages
        return found

    def _open(self, name: str, seen: str | None) -> Table:
        from iceberg_cli.api import open_table

        return open_table(
            name,
            storage_options=self.storage_options,
            catalogs=self._catalogs(),
            seen=seen,
            forks=False,
            allow_roots=self.allow_roots,
            trust_lists=self.trust_lists,
            conditional_writes=self.conditional_writes,
            single_writer=self.single_writer,
            engine=self.engine,
            cache_bytes=self.cache_bytes,
            names_options=self.names_options,
            on_event=self._passed_on,
        )

    def _passed_on(self, event: AnyEvent) -> None:
        # Tables that are worked on side by side would show the progress of many phases at once.
        if not isinstance(event, Event):
            self.on_event(event)
