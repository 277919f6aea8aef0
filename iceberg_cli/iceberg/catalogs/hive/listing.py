"""The tables of a Hive Metastore: the databases, and of each the Iceberg tables, by hundreds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hive_metastore import ttypes as types

from iceberg_cli.errors import AccessDenied
from iceberg_cli.iceberg.catalogs.entries import CatalogEntry, MayMatch, no_answer
from iceberg_cli.iceberg.catalogs.hive.client import FAILURES, HiveConnection, HiveSession, is_denied
from iceberg_cli.iceberg.catalogs.hive.entry import ICEBERG, METADATA_LOCATION

_PAGE_TABLES: Final = 200  # each comes with its columns


def list_hive(connection: HiveConnection, name: str, may_match: MayMatch) -> Iterator[CatalogEntry]:
    """See `list_catalog`. A database or a table that goes meanwhile is left out."""
    with connection.session() as session:
        try:
            for database in session.databases():
                if may_match((database,)):
                    yield from _of_database(session, database)
        except FAILURES as error:
            if is_denied(error):
                raise AccessDenied(f"Cannot list the catalog {name}: {connection.reason(error)}") from None
            raise no_answer(name, connection.reason(error)) from None


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
