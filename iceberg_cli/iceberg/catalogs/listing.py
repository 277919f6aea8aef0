"""The tables of catalogs, as catalogs list them: page by page, and no table is opened."""

from __future__ import annotations

from collections.abc import Iterator

from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.catalogs.configured import PYTHON_CLASS, Catalogs, not_installed
from iceberg_cli.iceberg.catalogs.entries import CatalogEntry, MayMatch
from iceberg_cli.iceberg.catalogs.sql.sqlite_listing import duplicates_in_sqlite, list_sqlite, sqlite_file


def list_catalog(catalogs: Catalogs, name: str, may_match: MayMatch) -> Iterator[CatalogEntry]:
    """The tables of a catalog.

    Args:
        catalogs: those that are configured.
        name: of the catalog.
        may_match: namespaces for which it is false are not looked into.

    Raises:
        UsageError: the catalog is not configured, or one of its type cannot be listed.
        AccessDenied, BackendUnavailable: it did not answer, or not to us.
    """
    kind = catalogs.kind(name)
    try:
        if kind == "sql" and (path := sqlite_file(catalogs.uri(name))) is not None:
            return list_sqlite(path, name, may_match)
        if kind == "sql":
            from iceberg_cli.iceberg.catalogs.sql.listing import list_sql

            return list_sql(catalogs.sql(name), name, may_match)
        if kind == "rest":
            from iceberg_cli.iceberg.catalogs.rest.listing import list_rest

            return list_rest(catalogs.rest(name), name, may_match)
        if kind == "glue":
            from iceberg_cli.iceberg.catalogs.glue.listing import list_glue

            return list_glue(catalogs.glue(name), may_match)
        if kind == "hive":
            from iceberg_cli.iceberg.catalogs.hive.listing import list_hive

            return list_hive(catalogs.hive(name), name, may_match)
        if kind == PYTHON_CLASS:
            from iceberg_cli.iceberg.catalogs.python_class.committer import list_python_class

            sections, properties = catalogs.configured(name)
            return list_python_class(name, {**sections, **properties}, may_match)
    except ImportError as error:
        raise not_installed(name, error) from error
    raise UsageError(f"Cannot list the catalog {name}: the catalog type {kind} is not supported yet.")


def duplicates_in(catalogs: Catalogs, name: str) -> dict[str, list[CatalogEntry]]:
    """The metadata locations that several names of a catalog have, with these names in their order.

    Only a database is asked, for which it is one query.

    Raises:
        UsageError, BackendUnavailable: see `list_catalog`.
    """
    if catalogs.kind(name) != "sql":
        return {}
    if (path := sqlite_file(catalogs.uri(name))) is not None:
        return duplicates_in_sqlite(path, name)
    try:
        from iceberg_cli.iceberg.catalogs.sql.listing import duplicates_in_sql
    except ImportError as error:
        raise not_installed(name, error) from error
    return duplicates_in_sql(catalogs.sql(name), name)
