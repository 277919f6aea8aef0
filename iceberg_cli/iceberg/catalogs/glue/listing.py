"""The tables of AWS Glue, page by page: a page is used up before the next one is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from iceberg_cli.iceberg.catalogs.entries import CatalogEntry, MayMatch
from iceberg_cli.iceberg.catalogs.glue.connection import GlueConnection

METADATA: Final = "metadata_location"


def list_glue(connection: GlueConnection, may_match: MayMatch) -> Iterator[CatalogEntry]:
    """See `list_catalog`. Entries that are no Iceberg tables, and links to tables elsewhere, are left out."""
    for database in connection.pages("get_databases", "DatabaseList"):
        levels = (str(database["Name"]),)
        if may_match(levels):
            for entry in tables_of(connection, levels[0]):
                if is_iceberg(entry) and (location := entry["Parameters"].get(METADATA)):
                    yield CatalogEntry(levels, str(entry["Name"]), str(location))


def tables_of(connection: GlueConnection, database: str) -> Iterator[dict[str, Any]]:
    """The entries of a database.

    Raises:
        AccessDenied, BackendUnavailable: see `GlueConnection.pages`.
    """
    return connection.pages("get_tables", "TableList", DatabaseName=database)


def is_iceberg(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is that of an Iceberg table."""
    return str((entry.get("Parameters") or {}).get("table_type", "")).lower() == "iceberg"
