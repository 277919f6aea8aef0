"""How the tables of a fleet are opened, in whatever threads: each thread has its own connections to catalogs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iceberg_cli.errors import TableNotFound
from iceberg_cli.plan.events import Event, Listener, unheard

if TYPE_CHECKING:
    from iceberg_cli.api import Table
    from iceberg_cli.engines.selection import EngineChoice
    from iceberg_cli.fleet.listing import ListedTable
    from iceberg_cli.plan.events import AnyEvent


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
    on_event: Listener = unheard
    _own: threading.local = field(default_factory=threading.local, repr=False)

    def open(self, listed: ListedTable, *, believe_list: bool = False) -> Table:
        """Open a table.

        Args:
            listed: which one.
            believe_list: whether the catalog's list is believed as to where the table's metadata is, where it told:
                for what only looks.

        Raises:
            As `iceberg_cli.open_table`.
        """
        seen = listed.metadata_location if believe_list else None
        try:
            return self._open(listed.name, seen)
        except TableNotFound:
            if seen is None:
                raise
            # It has moved since, and the file that it pointed to then is gone.
            return self._open(listed.name, None)

    def _open(self, name: str, seen: str | None) -> Table:
        from iceberg_cli.api import open_table
        from iceberg_cli.iceberg.catalogs.configured import Catalogs

        catalogs = getattr(self._own, "catalogs", None)
        if catalogs is None:
            catalogs = self._own.catalogs = Catalogs(self.catalog_config)
        return open_table(
            name,
            storage_options=self.storage_options,
            catalogs=catalogs,
            seen=seen,
            forks=False,
            allow_roots=self.allow_roots,
            trust_lists=self.trust_lists,
            conditional_writes=self.conditional_writes,
            single_writer=self.single_writer,
            engine=self.engine,
            cache_bytes=self.cache_bytes,
            on_event=self._passed_on,
        )

    def _passed_on(self, event: AnyEvent) -> None:
        # Tables that are worked on side by side would show the progress of many phases at once.
        if not isinstance(event, Event):
            self.on_event(event)
