"""A Hive Metastore: its databases, and of each the Iceberg tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from hive_metastore import ttypes as types

from iceberg_cli.errors import AccessDenied
from iceberg_cli.iceberg.catalogs import Catalog, CatalogEntry, Committer, MayMatch
from iceberg_cli.iceberg.catalogs.failures import no_answer
from iceberg_cli.iceberg.catalogs.hive.client import FAILURES, HiveConnection, HiveSession, is_denied
from iceberg_cli.iceberg.catalogs.hive.entry import ICEBERG, METADATA_LOCATION
from iceberg_cli.storage.router import open_storage

_PAGE_TABLES: Final = 200  # each comes with its columns


class HiveCatalog(Catalog):
    """Its databases are namespaces of one level."""

    @cached_property
    def _connection(self) -> HiveConnection:
        self.uri()
        return HiveConnection(self.name, self.properties)

    def open(
        self, levels: tuple[str, ...], table: str, storage_options: Mapping[str, str]
    ) -> tuple[Committer, Mapping[str, str]]:
        """See `Catalog.open`."""
        from iceberg_cli.iceberg.catalogs.hive.committer import HiveCommitter  # which no list needs

        options = {**self.properties, **storage_options}
        committer = HiveCommitter(
            self._connection, database=".".join(levels), table=table, storage=open_storage(options)
        )
        return committer, options

    def list(self, may_match: MayMatch) -> Iterator[CatalogEntry]:
        """The tables by hundreds. A database or a table that goes meanwhile is left out."""
        connection = self._connection
        with connection.session() as session:
            try:
                for database in session.databases():
                    if may_match((database,)):
                        yield from _of_database(session, database)
            except FAILURES as error:
                reason = connection.reason(error)
                if is_denied(error):
                    raise AccessDenied(f"Cannot list the catalog {self.name}: {reason}") from None
                raise no_answer(self.name, reason) from None

    def pointer(self, levels: tuple[str, ...], table: str) -> None:
        """None: the list has it."""

    def place(self) -> None:
        """None: a metastore goes by several addresses."""

    def duplicates(self) -> Mapping[str, Sequence[CatalogEntry]]:
        """None that one question would tell."""
        return {}


def _of_database(session: HiveSession, database: str) -> Iterator[CatalogEntry]:
    try:
        names = sorted(session.tables(database))
        for start in range(0, len(names), _PAGE_TABLES):
            for table in session.entries(database, names[start : start + _PAGE_TABLES]):
                parameters = table.parameters or {}
                is_iceberg = parameters.get("table_type", "").lower() == ICEBERG
                if is_iceberg and table.tableType != "VIRTUAL_VIEW":
                    yield CatalogEntry((database,), table.tableName, parameters.get(METADATA_LOCATION))
    except (types.NoSuchObjectException, types.UnknownDBException):
        return


CATALOG: Final = HiveCatalog
