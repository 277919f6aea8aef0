"""The tables of a SQL catalog, page by page in the order of their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import sqlalchemy as sa

from iceberg_cli.iceberg.catalogs import CatalogEntry, MayMatch
from iceberg_cli.iceberg.catalogs.failures import no_answer
from iceberg_cli.iceberg.catalogs.sql.database import (
    SqlDatabase,
    catalog_name,
    location,
    namespace,
    rows,
    table_name,
)

_PAGE_ROWS: Final = 1_000


def list_sql(catalog: SqlDatabase, name: str, may_match: MayMatch) -> Iterator[CatalogEntry]:
    """See `Catalog.list`. Each page is a query of its own that begins after the last row of the one before."""
    after: tuple[str, str] | None = None
    while True:
        page = _page(catalog, name, after)
        for own, level, table, metadata_location in page:
            # A database may compare names without regard to capitals.
            levels = tuple(level.split("."))
            if own == name and may_match(levels):
                yield CatalogEntry(levels, table, metadata_location)
        if len(page) < _PAGE_ROWS:
            return
        after = (page[-1][1], page[-1][2])


def duplicates_in_sql(catalog: SqlDatabase, name: str) -> dict[str, list[CatalogEntry]]:
    """See `Catalog.duplicates`."""
    try:
        with catalog.engine.connect() as connection:
            catalog.bound_waits(connection)
            mine = (catalog_name == name) & catalog.of_tables(connection, name)
            several = (
                sa.select(location)
                .select_from(rows)
                .where(mine, location.is_not(None))
                .group_by(location)
                .having(sa.func.count() > 1)
            )
            query = (
                sa.select(namespace, table_name, location)
                .where(mine, location.in_(several))
                .order_by(namespace, table_name)
            )
            found: dict[str, list[CatalogEntry]] = {}
            for level, table, place in connection.execute(query):
                entry = CatalogEntry(tuple(level.split(".")), table, place)
                found.setdefault(place, []).append(entry)
            return found
    except (sa.exc.SQLAlchemyError, OSError) as error:
        raise no_answer(name, catalog.reason(error)) from None


def _page(
    catalog: SqlDatabase, name: str, after: tuple[str, str] | None
) -> list[tuple[str, str, str, str | None]]:
    try:
        with catalog.engine.connect() as connection:
            catalog.bound_waits(connection)
            query = (
                sa.select(catalog_name, namespace, table_name, location)
                .where((catalog_name == name) & catalog.of_tables(connection, name), location.is_not(None))
                .order_by(namespace, table_name)
                .limit(_PAGE_ROWS)
            )
            if after is not None:
                level, table = after
                query = query.where((namespace > level) | ((namespace == level) & (table_name > table)))
            return [
                (str(own), str(level), str(table), place)
                for own, level, table, place in connection.execute(query)
            ]
    except (sa.exc.SQLAlchemyError, OSError) as error:
        raise no_answer(name, catalog.reason(error)) from None
