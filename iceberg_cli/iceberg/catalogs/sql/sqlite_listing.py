"""The tables of a SQL catalog in a SQLite file, by Python's own library: SQLAlchemy takes longer to load than to list.

Spec: schemas V0 and V1 of Java's JdbcCatalog.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Final
from urllib.parse import quote

from iceberg_cli.iceberg.catalogs import CatalogEntry, MayMatch
from iceberg_cli.iceberg.catalogs.failures import no_answer, no_database_file

_FILE_URI: Final = re.compile(r"sqlite:///(?P<path>[^?#]+)")
_PAGE_ROWS: Final = 1_000  # as the query has it
_WAIT_S: Final = 30


def sqlite_file(uri: str) -> str | None:
    """The file of a SQLAlchemy URI that is nothing but one of SQLite; None for any other."""
    match = _FILE_URI.fullmatch(uri)
    return None if match is None or match["path"].startswith(("file:", ":")) else match["path"]


def list_sqlite(path: str, name: str, may_match: MayMatch) -> Iterator[CatalogEntry]:
    """See `Catalog.list`. Each page is a query of its own that begins after the last row of the one before."""
    after = ("", "")
    while True:
        page = _ask(
            path,
            name,
            "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE catalog_name = ?"
            " AND metadata_location IS NOT NULL AND {tables} AND (table_namespace, table_name) > (?, ?)"
            " ORDER BY table_namespace, table_name LIMIT 1000",
            (name, *after),
        )
        for namespace, table, place in page:
            levels = tuple(namespace.split("."))
            if may_match(levels):
                yield CatalogEntry(levels, table, place)
        if len(page) < _PAGE_ROWS:
            return
        after = page[-1][:2]


def duplicates_in_sqlite(path: str, name: str) -> dict[str, list[CatalogEntry]]:
    """See `Catalog.duplicates`."""
    rows = _ask(
        path,
        name,
        "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE catalog_name = ?"
        " AND {tables} AND metadata_location IN (SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ?"
        " AND {tables} GROUP BY metadata_location HAVING count(*) > 1) ORDER BY table_namespace, table_name",
        (name, name),
    )
    found: dict[str, list[CatalogEntry]] = {}
    for namespace, table, place in rows:
        found.setdefault(place, []).append(CatalogEntry(tuple(namespace.split(".")), table, place))
    return found


def _ask(path: str, name: str, query: str, values: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """The rows of a query; `{tables}` in it is the condition that a row is a table's."""
    if not os.path.exists(path):
        raise no_database_file(path)
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=_WAIT_S)) as database:
            columns = [row[1] for row in database.execute("PRAGMA table_info(iceberg_tables)")]
            if not columns:
                raise no_answer(name, "its database holds no Iceberg catalog")
            tables = "(iceberg_type = 'TABLE' OR iceberg_type IS NULL)" if "iceberg_type" in columns else "1"
            return database.execute(query.replace("{tables}", tables), values).fetchall()
    except sqlite3.Error as error:
        raise no_answer(name, str(error)) from None
