"""The Glue Data Catalog of an account and region."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from iceberg_cli.errors import TableNotFound
from iceberg_cli.iceberg.catalogs import Catalog, CatalogEntry, Committer, MayMatch
from iceberg_cli.iceberg.catalogs.glue.connection import METADATA, GlueConnection, is_iceberg
from iceberg_cli.names import name_of
from iceberg_cli.storage.router import open_storage
from iceberg_cli.storage.s3.options import with_table_tags


class GlueCatalog(Catalog):
    """Its databases are namespaces of one level."""

    @cached_property
    def _connection(self) -> GlueConnection:
        return GlueConnection(self.name, self.properties)

    def open(
        self, levels: tuple[str, ...], table: str, storage_options: Mapping[str, str]
    ) -> tuple[Committer, Mapping[str, str]]:
        """See `Catalog.open`; what is written gets tags with the table's name where the properties say so."""
        from iceberg_cli.iceberg.catalogs.glue.committer import GlueCommitter  # which no list needs

        if len(levels) > 1:
            name = name_of(self.name, *levels, table)
            raise TableNotFound(f"Cannot find the table {name}: a namespace of Glue has one level.")
        [namespace] = levels
        options = with_table_tags({**self.properties, **storage_options}, namespace=namespace, table=table)
        committer = GlueCommitter(
            self._connection, namespace=namespace, table=table, storage=open_storage(options)
        )
        return committer, options

    def list(self, may_match: MayMatch) -> Iterator[CatalogEntry]:
        """The entries page by page: a page is used up before the next one is asked for.

        Entries that are no Iceberg tables, and links to tables elsewhere, are left out.
        """
        for database in self._connection.pages("get_databases", "DatabaseList"):
            levels = (str(database["Name"]),)
            if may_match(levels):
                for entry in self._connection.tables(levels[0]):
                    if is_iceberg(entry) and (location := entry["Parameters"].get(METADATA)):
                        yield CatalogEntry(levels, str(entry["Name"]), str(location))

    def pointer(self, levels: tuple[str, ...], table: str) -> None:
        """None: the list has it."""

    def place(self) -> Mapping[str, str]:
        """What tells account, region and endpoint."""
        return {key: text for key, text in self.properties.items() if key.startswith(("glue.", "client."))}

    def duplicates(self) -> Mapping[str, Sequence[CatalogEntry]]:
        """None that one question would tell."""
        return {}


CATALOG: Final = GlueCatalog
