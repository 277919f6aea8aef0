"""Tables of a SQL catalog, in the schemas V0 and V1 of Java's JdbcCatalog; PyIceberg's SqlCatalog has V1.

The commit is one `UPDATE` that names the base and must match one row.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from iceberg_cli.errors import BackendUnavailable, TableNotFound, UsageError, how_to_install
from iceberg_cli.iceberg.catalogs.compare_and_swap import SwapCommitter
from iceberg_cli.operation.outcomes import Attempt, Unknown
from iceberg_cli.plan.text import did_you_mean
from iceberg_cli.storage import Storage
from iceberg_cli.storage.redaction import redact

_TABLES = "iceberg_tables"

_catalog_name = sa.column("catalog_name", sa.String)
_namespace = sa.column("table_namespace", sa.String)
_name = sa.column("table_name", sa.String)
_location = sa.column("metadata_location", sa.String)
_previous = sa.column("previous_metadata_location", sa.String)
_type = sa.column("iceberg_type", sa.String)
_MOST_NAMES = 10_000  # that are looked through for one written nearly alike
_rows = sa.table(_TABLES, _catalog_name, _namespace, _name, _location, _previous, _type)


class SqlCommitter(SwapCommitter):
    """One row of `iceberg_tables`.

    Args:
        uri: SQLAlchemy's database URL.
        catalog_name: first part of the row's key.
        namespace: second part, levels joined by dots.
        table: third part.
        storage: where the metadata files are.
        wait_s: how long to wait for a connection or for another writer's lock.

    Raises:
        UsageError: the URL cannot be used, or its driver is not installed.
    """

    def __init__(
        self,
        uri: str,
        *,
        catalog_name: str,
        namespace: str,
        table: str,
        storage: Storage,
        wait_s: int = 30,
    ) -> None:
        super().__init__(storage)
        self._name = f"{catalog_name}.{namespace}.{table}"
        self._beside = (_catalog_name == catalog_name) & (_namespace == namespace)
        self._table, self._key = table, self._beside & (_name == table)
        self._wait_s = wait_s
        self._engine, self._secrets = _open_engine(uri, wait_s)
        self._typed: bool | None = None

    def current(self) -> str:
        """The row's metadata location, as it is spelled there."""
        try:
            with self._engine.connect() as connection:
                where = self._key & self._of_tables(connection)
                location = connection.execute(sa.select(_location).where(where)).scalar_one_or_none()
                near = "" if location is not None else self._near(connection)
        except (sa.exc.SQLAlchemyError, OSError) as error:
            raise BackendUnavailable(
                f"Cannot ask the catalog for {self._name}: {self._reason(error)}"
            ) from error
        if location is None:
            raise TableNotFound(f"Cannot find the table {self._name} in its catalog.{near}")
        return str(location)

    def _near(self, connection: sa.Connection) -> str:
        """The tables of the namespace that are named nearly like this one, in words."""
        beside = self._beside & self._of_tables(connection)
        names = connection.execute(sa.select(_name).where(beside).limit(_MOST_NAMES)).scalars()
        return did_you_mean(self._table, map(str, names))

    def _swap(self, attempt: Attempt) -> bool | Unknown:
        """One transaction. Before its COMMIT is sent an error changes nothing; after that, nobody can tell."""
        values = {_location: attempt.file, _previous: attempt.base}
        try:
            with self._engine.connect() as connection:
                where = self._key & self._of_tables(connection) & (_location == attempt.base)
                # What the inspection began must not hold an old view of the row.
                connection.rollback()
                self._begin(connection)
                matched = connection.execute(sa.update(_rows).where(where).values(values)).rowcount
                if matched != 1:
                    connection.rollback()
                    return False
                return self._confirmed(connection)
        except (sa.exc.SQLAlchemyError, OSError) as error:
            raise BackendUnavailable(f"Cannot commit to {self._name}: {self._reason(error)}") from error

    def _begin(self, connection: sa.Connection) -> None:
        """Say how to wait for other writers."""
        match self._engine.dialect.name:
            case "sqlite":
                # Two writers that both read first would be told at once that the database is locked.
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            case "postgresql":
                # By default the wait for a row that a dead client's transaction holds has no end.
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{max(self._wait_s, 1)}s'")

    def _confirmed(self, connection: sa.Connection) -> bool | Unknown:
        try:
            connection.commit()
        except (sa.exc.SQLAlchemyError, OSError) as error:
            return Unknown(
                cause=f"the catalog did not confirm the commit to {self._name}: {self._reason(error)}"
            )
        return True

    def _of_tables(self, connection: sa.Connection) -> sa.ColumnElement[bool]:
        """The condition that a row is a table's: V0 of the schema has no views and no column for it."""
        if self._typed is None:
            inspector = sa.inspect(connection)
            if not inspector.has_table(_TABLES):
                raise TableNotFound(f"Cannot find {self._name}: its database holds no Iceberg catalog.")
            self._typed = any(column["name"] == _type.name for column in inspector.get_columns(_TABLES))
        return (_type == "TABLE") | _type.is_(None) if self._typed else sa.true()

    def _reason(self, error: Exception) -> str:
        cause = getattr(error, "orig", None) or error
        return redact(" ".join(str(cause).split()), self._secrets)


def _open_engine(uri: str, wait_s: int) -> tuple[sa.Engine, list[str]]:
    """An engine without a pool, so that every question gets a connection of its own, and its secrets."""
    try:
        url = sa.make_url(uri)
        backend = url.get_backend_name()
        if backend == "postgresql" and "psycopg2" in (url.drivername, url.get_driver_name()):
            driver = "psycopg2" if find_spec("psycopg2") else "psycopg"
            url = url.set(drivername=f"postgresql+{driver}")
        arguments: dict[str, Any] = {}
        if backend == "sqlite":
            arguments = {"timeout": wait_s}
            _check_file(url)
        elif backend == "postgresql":
            arguments = {"connect_timeout": wait_s}
        secrets = [url.password] if isinstance(url.password, str) else []
        return sa.create_engine(url, poolclass=NullPool, connect_args=arguments), secrets
    except ImportError as error:
        raise UsageError(
            f"Cannot open the catalog's database: {redact(str(error))}", next_step=how_to_install(error)
        ) from error
    except (sa.exc.ArgumentError, ValueError) as error:
        raise UsageError(f"Cannot open the catalog's database: {redact(str(error))}") from error


def _check_file(url: sa.URL) -> None:
    """SQLite would make an empty database of a mistyped name."""
    name = url.database or ""
    if name and not name.startswith(("file:", ":")) and not os.path.exists(name):
        raise BackendUnavailable(f"Cannot open the catalog: there is no database file {name}.")
