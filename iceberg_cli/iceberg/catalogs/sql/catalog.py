"""A SQL catalog: SQLAlchemy is loaded for what is not the list of a SQLite file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from iceberg_cli.iceberg.catalogs import Catalog, CatalogEntry, Committer, MayMatch
from iceberg_cli.iceberg.catalogs.failures import not_installed
from iceberg_cli.iceberg.catalogs.sql.sqlite_listing import duplicates_in_sqlite, list_sqlite, sqlite_file
from iceberg_cli.storage.router import open_storage

if TYPE_CHECKING:
    from iceberg_cli.iceberg.catalogs.sql.database import SqlDatabase


class SqlCatalog(Catalog):
    """The rows of `iceberg_tables` that have the catalog's name."""

    @cached_property
    def _database(self) -> SqlDatabase:
        try:
            from iceberg_cli.iceberg.catalogs.sql.database import SqlDatabase
        except ImportError as error:
            raise not_installed(self.name, error, extra="sql") from error
        return SqlDatabase(self.uri())

    def open(
        self, levels: tuple[str, ...], table: str, storage_options: Mapping[str, str]
    ) -> tuple[Committer, Mapping[str, str]]:
        """See `Catalog.open`."""
        options = {**self.properties, **storage_options}
        database = self._database
        from iceberg_cli.iceberg.catalogs.sql.committer import SqlCommitter

        committer = SqlCommitter(
            database,
            catalog_name=self.name,
            namespace=".".join(levels),
            table=table,
            storage=open_storage(options),
        )
        return committer, options

    def list(self, may_match: MayMatch) -> Iterator[CatalogEntry]:
        """The rows, in the order of their names."""
        if (path := sqlite_file(self.uri())) is not None:
            return list_sqlite(path, self.name, may_match)
        database = self._database
        from iceberg_cli.iceberg.catalogs.sql.listing import list_sql

        return list_sql(database, self.name, may_match)

    def pointer(self, levels: tuple[str, ...], table: str) -> None:
        """None: the list has it."""

    def place(self) -> None:
        """None: two URIs may be of one database, and one of two, such as a file's in two folders."""

    def duplicates(self) -> Mapping[str, Sequence[CatalogEntry]]:
        """One query."""
        if (path := sqlite_file(self.uri())) is not None:
            return duplicates_in_sqlite(path, self.name)
        database = self._database
        from iceberg_cli.iceberg.catalogs.sql.listing import duplicates_in_sql

        return duplicates_in_sql(database, self.name)


CATALOG: Final = SqlCatalog
