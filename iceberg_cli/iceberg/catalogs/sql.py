"""Tables of a SQL catalog, in the schemas V0 and V1 of Java's JdbcCatalog; PyIceberg's SqlCatalog has V1.

The commit is one `UPDATE` that names the base and must match one row. Names and locations are compared here as well,
under the row's lock: by many a database's collation `T` is `t`, or `t` with spaces behind it.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from iceberg_cli.errors import BackendUnavailable, Refused, TableNotFound, UsageError, how_to_install
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
_MYSQL: Final = ("mysql", "mariadb")
# SQLAlchemy's default, and what is taken where that is not installed.
_DRIVERS: Final = {
    "postgresql": ("psycopg2", "psycopg"),
    "mysql": ("mysqldb", "pymysql"),
    "mariadb": ("mysqldb", "pymysql"),
}
_MODULES: Final = {"mysqldb": "MySQLdb"}
_PASSWORD_VARIABLES: Final = ("PGPASSWORD", "MYSQL_PWD")
# Of an option file of MySQL's clients.
_PASSWORD_LINE: Final = re.compile(r"""^\s*[\w-]*pass[\w-]*\s*=\s*["']?(.+?)["']?\s*$""", re.MULTILINE)


class SqlCommitter(SwapCommitter):
    """One row of `iceberg_tables`.

    Args:
        uri: SQLAlchemy's database URL.
        catalog_name: first part of the row's key.
        namespace: second part, levels joined by dots.
        table: third part.
        storage: where the metadata files are.
        wait_s: how long to wait for a connection or for another writer's lock; for answers a small multiple of it.

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
        self._parts = (catalog_name, namespace, table)
        self._beside = (_catalog_name == catalog_name) & (_namespace == namespace)
        self._wait_s = wait_s
        self._engine, self._secrets = _open_engine(uri, wait_s)
        self._typed: bool | None = None
        self._read_only: str | None = None

    def read_only_reason(self) -> str | None:
        """Rows that cannot be rolled back, as MySQL's MyISAM and MariaDB's Aria keep them."""
        if self._typed is None:
            self.current()
        return self._read_only

    def current(self) -> str:
        """The row's metadata location, as it is spelled there."""
        try:
            with self._engine.connect() as connection:
                self._bound_waits(connection)
                row = self._row(connection)
                near = "" if row is not None else self._near(connection)
        except (sa.exc.SQLAlchemyError, OSError) as error:
            raise BackendUnavailable(
                f"Cannot ask the catalog for {self._name}: {self._reason(error)}"
            ) from None
        if row is None:
            raise TableNotFound(f"Cannot find the table {self._name} in its catalog.{near}")
        return row[0]

    def _near(self, connection: sa.Connection) -> str:
        """The tables of the namespace that are named nearly like this one, in words."""
        beside = self._beside & self._of_tables(connection)
        names = connection.execute(sa.select(_name).where(beside).limit(_MOST_NAMES)).scalars()
        return did_you_mean(self._parts[-1], map(str, names))

    def _row(self, connection: sa.Connection, *, lock: bool = False) -> tuple[str, str | None] | None:
        """Current and previous metadata location of the row with exactly this name, or None."""
        columns = (_catalog_name, _namespace, _name, _location, _previous)
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
            with self._engine.connect() as connection:
                key = self._key(connection)
                if self._read_only:
                    raise Refused(f"Cannot commit to {self._name}: {self._read_only}.")
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
            raise BackendUnavailable(f"Cannot commit to {self._name}: {self._reason(error)}") from None

    def _update(self, connection: sa.Connection, key: sa.ColumnElement[bool], attempt: Attempt) -> bool:
        """Whether the row was changed, which is not committed yet.

        Raises:
            BackendUnavailable: a column does not hold what it was given.
        """
        values = {_location: attempt.file, _previous: attempt.base}
        changed = sa.update(_rows).where(key & (_location == attempt.base)).values(values)
        if connection.execute(changed).rowcount != 1:
            return False
        kept = self._row(connection)
        if kept == (attempt.file, attempt.base):
            return True
        # MySQL cuts off what is too long, unless its mode is strict.
        column, value = (
            (_previous, attempt.base) if kept and kept[0] == attempt.file else (_location, attempt.file)
        )
        raise BackendUnavailable(
            f"Cannot commit to {self._name}: the column {column.name} of {_TABLES} cannot hold {value}.",
            next_step=f"Give it room for {len(value)} characters, and a character set that has those of the path.",
        )

    def _begin(self, connection: sa.Connection) -> None:
        """Begin the transaction that changes the row, and say how to wait for other writers."""
        match self._engine.dialect.name:
            case "sqlite":
                # Two writers that both read first would be told at once that the database is locked.
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            case "mysql" | "mariadb":
                # Holds whatever the URI says of autocommit.
                self._bound_waits(connection)
                connection.exec_driver_sql("START TRANSACTION")
            case _:
                self._bound_waits(connection)

    def _bound_waits(self, connection: sa.Connection) -> None:
        """Say how long to wait for others' locks: by default for ever, or, of MySQL's tables, for a day."""
        wait_s = max(self._wait_s, 1)
        match self._engine.dialect.name:
            case "postgresql":
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{wait_s}s'")
            case "mysql" | "mariadb":
                connection.exec_driver_sql(
                    f"SET SESSION innodb_lock_wait_timeout = {wait_s}, SESSION lock_wait_timeout = {wait_s}"
                )

    def _confirmed(self, connection: sa.Connection) -> bool | Unknown:
        try:
            connection.commit()
        except (sa.exc.SQLAlchemyError, OSError) as error:
            return Unknown(
                cause=f"the catalog did not confirm the commit to {self._name}: {self._reason(error)}"
            )
        return True

    def _key(self, connection: sa.Connection) -> sa.ColumnElement[bool]:
        """The condition that a row has this name as the database compares names, by its index."""
        return self._beside & (_name == self._parts[-1]) & self._of_tables(connection)

    def _of_tables(self, connection: sa.Connection) -> sa.ColumnElement[bool]:
        """The condition that a row is a table's: V0 of the schema has no views and no column for it."""
        if self._typed is None:
            inspector = sa.inspect(connection)
            if not inspector.has_table(_TABLES):
                raise TableNotFound(f"Cannot find {self._name}: its database holds no Iceberg catalog.")
            if self._engine.dialect.name in _MYSQL and connection.execute(_TRANSACTIONS).scalar() != "YES":
                self._read_only = (
                    f"its catalog's table {_TABLES} is kept without transactions, so that no change of it can be"
                    f" taken back: `ALTER TABLE {_TABLES} ENGINE = InnoDB` mends that"
                )
            self._typed = any(column["name"] == _type.name for column in inspector.get_columns(_TABLES))
        return (_type == "TABLE") | _type.is_(None) if self._typed else sa.true()

    def _reason(self, error: Exception) -> str:
        cause = getattr(error, "orig", None) or error
        return redact(" ".join(str(cause).split()), [*self._secrets, *_secrets_of_connection(cause)])


_TRANSACTIONS: Final = sa.text(
    "SELECT e.transactions FROM information_schema.tables t JOIN information_schema.engines e ON e.engine = t.engine"
    " WHERE t.table_schema = DATABASE() AND t.table_name = :name"
).bindparams(name=_TABLES)
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


def _open_engine(uri: str, wait_s: int) -> tuple[sa.Engine, list[str]]:
    """An engine without a pool, so that every question gets a connection of its own, and its secrets."""
    try:
        url = _url_of(uri)
        backend = url.get_backend_name()
        default, other = _DRIVERS.get(backend, ("", ""))
        if default and url.get_driver_name() == default and find_spec(_MODULES.get(default, default)) is None:
            url = url.set(drivername=f"{backend}+{other}")
        arguments: dict[str, Any] = {}
        options: dict[str, Any] = {}
        if backend == "sqlite":
            arguments = {"timeout": wait_s}
            _check_file(url)
        elif backend == "postgresql":
            arguments = {"connect_timeout": wait_s}
            # Whatever the database's default, and no autocommit.
            options = {"isolation_level": "READ COMMITTED"}
        elif url.get_driver_name() in ("pymysql", "mysqldb"):
            answer_s = 2 * max(wait_s, 1)  # longer than the waits for locks
            arguments = {
                "connect_timeout": max(wait_s, 1),
                "read_timeout": answer_s,
                "write_timeout": answer_s,
            }
        secrets = _secrets_of(url)
        engine = sa.create_engine(url, poolclass=NullPool, connect_args=arguments, **options)
    except ImportError as error:
        raise UsageError(
            f"Cannot open the catalog's database: {redact(str(error))}", next_step=how_to_install(error)
        ) from None
    except (sa.exc.ArgumentError, ValueError) as error:
        raise UsageError(f"Cannot open the catalog's database: {redact(str(error))}") from None
    if backend == "postgresql":
        _bound_connections(engine, 3 * max(wait_s, 1))

        def remember(connection: Any, _record: Any) -> None:
            secrets.extend(each for each in _secrets_of_connection(connection) if each not in secrets)

        sa.event.listen(engine, "connect", remember, insert=True)
    return engine, secrets


def _url_of(uri: str) -> sa.URL:
    """The URL, without whose parts an error is told: behind an @ in a password stands the rest of it.

    Raises:
        UsageError: it is none.
    """
    try:
        url = sa.make_url(uri)
    except (sa.exc.ArgumentError, ValueError):
        url = None
    if url is None or "@" in (url.host or ""):
        raise UsageError(
            "Cannot open the catalog's database: its uri is not of the form"
            " dialect+driver://user:password@host:port/database, or its port is no number.",
            next_step="Write user and password percent-encoded where a character has a meaning in a URI: @ as %40.",
        )
    return url


def _secrets_of(url: sa.URL) -> list[str]:
    """The passwords that a URL has or leads to, but for those that only PostgreSQL's own library looks up."""
    secrets = [os.environ.get(name, "") for name in _PASSWORD_VARIABLES]
    for key, value in url.query.items():
        values = [value] if isinstance(value, str) else [*value, str(value)]
        if "pass" in key:
            secrets += values
        elif key == "read_default_file":
            for file in values:
                with suppress(OSError, ValueError):  # the driver will say so
                    text = Path(file).expanduser().read_text(encoding="utf-8")
                    secrets += _PASSWORD_LINE.findall(text)
    if isinstance(url.password, str):
        secrets.append(url.password)
        if "@" in (url.database or ""):
            secrets.append(url.host or "")
    return secrets


def _secrets_of_connection(connection: Any) -> list[str]:
    """What PostgreSQL's library took for a password, be it from a file.

    Args:
        connection: of psycopg, or the error that it raised in place of one.
    """
    pgconn = getattr(connection, "pgconn", None)
    if pgconn is None:
        return []
    options = [option.val for option in pgconn.info if option.dispchar == b"*"]
    return [value.decode(errors="replace") for value in (pgconn.password, *options) if value]


def _bound_connections(engine: sa.Engine, most_s: int) -> None:
    """End each connection after so many seconds: PostgreSQL's drivers wait for an answer for ever.

    A network that drops packets, or a proxy whose server is gone, gives none and does not end the connection either.
    """

    def begin(connection: Any, record: Any) -> None:
        if not hasattr(connection, "fileno"):
            return
        ours = socket.socket(fileno=os.dup(connection.fileno()))
        timer = threading.Timer(most_s, _shut, (ours,))
        timer.daemon = True
        timer.start()
        record.info[_bound_connections] = (timer, ours)

    def end(_connection: Any, record: Any) -> None:
        timer, ours = record.info.pop(_bound_connections, (None, None))
        if timer is not None:
            timer.cancel()
            ours.close()

    # Before SQLAlchemy's own, which asks the server for its version.
    sa.event.listen(engine, "connect", begin, insert=True)
    sa.event.listen(engine, "close", end)


def _shut(connection: socket.socket) -> None:
    """End a connection for whoever reads from it."""
    with suppress(OSError):  # it has ended by now
        connection.shutdown(socket.SHUT_RDWR)


def _check_file(url: sa.URL) -> None:
    """SQLite would make an empty database of a mistyped name."""
    name = url.database or ""
    if name and not name.startswith(("file:", ":")) and not os.path.exists(name):
        raise BackendUnavailable(f"Cannot open the catalog: there is no database file {name}.")
