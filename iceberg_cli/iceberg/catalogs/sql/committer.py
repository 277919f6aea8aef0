"""Tables of a SQL catalog, in the schemas V0 and V1 of Java's JdbcCatalog; PyIceberg's SqlCatalog has V1.

The commit is one `UPDATE` that names the base and must match one row. Names and locations are compared here as well,
under the row's lock: by many a database's collation `T` is `t`, or `t` with spaces behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import sqlalchemy as sa

from iceberg_cli.errors import BackendUnavailable, Refused, TableNotFound
from iceberg_cli.iceberg.catalogs.compare_and_swap import SwapCommitter
from iceberg_cli.iceberg.catalogs.sql import database as db
from iceberg_cli.names import name_of
from iceberg_cli.operation.outcomes import Attempt, Unknown
from iceberg_cli.plan.text import did_you_mean
from iceberg_cli.storage import Storage

_MOST_NAMES: Final = 10_000  # that are looked through for one written nearly alike


class SqlCommitter(SwapCommitter):
    """One row of `iceberg_tables`.

    Args:
        database: of the catalog.
        catalog_name: first part of the row's key.
        namespace: second part, levels joined by dots.
        table: third part.
        storage: where the metadata files are.
    """

    def __init__(
        self,
        database: db.SqlDatabase,
        *,
        catalog_name: str,
        namespace: str,
        table: str,
        storage: Storage,
    ) -> None:
        super().__init__(storage)
        self._name = name_of(catalog_name, *namespace.split("."), table)
        self._parts = (catalog_name, namespace, table)
        self._beside = (db.catalog_name == catalog_name) & (db.namespace == namespace)
        self._database = database

    def read_only_reason(self) -> str | None:
        """Rows that cannot be rolled back, as MySQL's MyISAM and MariaDB's Aria keep them."""
        if not self._database.was_looked_at:
            self.current()
        return self._database.read_only

    def takes_late_requests(self) -> bool:
        """Whether one may replace what was committed meanwhile: each names the location that it replaces."""
        return False

    def hidden_snapshots_reason(self) -> str | None:
        """None: the metadata file has all of them."""
        return None

    def prove(self, path: str, properties: Mapping[str, str]) -> None:
        """Nothing: every database keeps what an `UPDATE` says of the row."""

    def current(self) -> str:
        """The row's metadata location, as it is spelled there."""
        try:
            with self._database.engine.connect() as connection:
                self._database.bound_waits(connection)
                row = self._row(connection)
                near = "" if row is not None else self._near(connection)
        except (sa.exc.SQLAlchemyError, OSError) as error:
            raise BackendUnavailable(
                f"Cannot ask the catalog for {self._name}: {self._database.reason(error)}"
            ) from None
        if row is None:
            raise TableNotFound(f"Cannot find the table {self._name} in its catalog.{near}")
        return row[0]

    def _near(self, connection: sa.Connection) -> str:
        """The tables of the namespace that are named nearly like this one, in words."""
        beside = self._beside & self._database.of_tables(connection, self._name)
        names = connection.execute(sa.select(db.table_name).where(beside).limit(_MOST_NAMES)).scalars()
        return did_you_mean(self._parts[-1], map(str, names))

    def _row(self, connection: sa.Connection, *, lock: bool = False) -> tuple[str, str | None] | None:
        """Current and previous metadata location of the row with exactly this name, or None."""
        columns = (db.catalog_name, db.namespace, db.table_name, db.location, db.previous)
        query = sa.select(*columns).where(self._key(connection))
        found = [
            (str(location), previous)
            for *parts, location, previous in connection.execute(query.with_for_update() if lock else query)
            if tuple(parts) == self._parts and location is not None
        ]
        if len(found) > 1:
            raise BackendUnavailable(f"Cannot use {self._name}: its catalog has {len(found)} rows for it.")
        return found[0] if found else None

    def _swap(self, attempt: Attempt) -> bool | Unknown:
        """One transaction. Before its COMMIT is sent an error changes nothing; after that, nobody can tell."""
        try:
            with self._database.engine.connect() as connection:
                key = self._key(connection)
                if self._database.read_only:
                    raise Refused(f"Cannot commit to {self._name}: {self._database.read_only}.")
                # What the inspection began must not hold an old view of the row.
                connection.rollback()
                self._begin(connection)
                row = self._row(connection, lock=True)
                if row is None or row[0] != attempt.base or not self._update(connection, key, attempt):
                    connection.rollback()
                    return False
                return self._confirmed(connection)
        except (sa.exc.SQLAlchemyError, OSError) as error:
            if _is_conflict(error):
                return False
            raise BackendUnavailable(
                f"Cannot commit to {self._name}: {self._database.reason(error)}"
            ) from None

    def _update(self, connection: sa.Connection, key: sa.ColumnElement[bool], attempt: Attempt) -> bool:
        """Whether the row was changed, which is not committed yet.

        Raises:
            BackendUnavailable: a column does not hold what it was given.
        """
        values = {db.location: attempt.file, db.previous: attempt.base}
        changed = sa.update(db.rows).where(key & (db.location == attempt.base)).values(values)
        if connection.execute(changed).rowcount != 1:
            return False
        kept = self._row(connection)
        if kept == (attempt.file, attempt.base):
            return True
        # MySQL cuts off what is too long, unless its mode is strict.
        column, value = (
            (db.previous, attempt.base) if kept and kept[0] == attempt.file else (db.location, attempt.file)
        )
        raise BackendUnavailable(
            f"Cannot commit to {self._name}: the column {column.name} of {db.TABLES} cannot hold {value}.",
            next_step=f"Give it room for {len(value)} characters, and a character set that has those of the path.",
        )

    def _begin(self, connection: sa.Connection) -> None:
        """Begin the transaction that changes the row, and say how to wait for other writers."""
        match self._database.engine.dialect.name:
            case "sqlite":
                # Two writers that both read first would be told at once that the database is locked.
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            case "mysql" | "mariadb":
                # Holds whatever the URI says of autocommit.
                self._database.bound_waits(connection)
                connection.exec_driver_sql("START TRANSACTION")
            case _:
                self._database.bound_waits(connection)

    def _confirmed(self, connection: sa.Connection) -> bool | Unknown:
        try:
            connection.commit()
        except (sa.exc.SQLAlchemyError, OSError) as error:
            return Unknown(
                cause=f"the catalog did not confirm the commit to {self._name}: {self._database.reason(error)}"
            )
        return True

    def _key(self, connection: sa.Connection) -> sa.ColumnElement[bool]:
        """The condition that a row has this name as the database compares names, by its index."""
        return (
            self._beside
            & (db.table_name == self._parts[-1])
            & self._database.of_tables(connection, self._name)
        )


# Another writer was faster, and the transaction is gone: PostgreSQL's serialization failure and deadlock; MySQL's
# deadlock, and MariaDB's record that changed since it was read.
_CONFLICTS: Final = ("40001", "40P01", 1213, 1020)


def _is_conflict(error: Exception) -> bool:
    """Whether a database's error before COMMIT says that the transaction lost against another one."""
    cause = getattr(error, "orig", None)
    codes = (
        getattr(cause, "sqlstate", None),
        getattr(cause, "pgcode", None),
        *getattr(cause, "args", ())[:1],
    )
    return any(code in _CONFLICTS for code in codes)
