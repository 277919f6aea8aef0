"""The database of a SQL catalog: connections that wait for nobody for ever, and its table `iceberg_tables`.

The schemas are V0 and V1 of Java's JdbcCatalog.
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

from iceberg_cli.errors import TableNotFound, UsageError, how_to_install
from iceberg_cli.iceberg.catalogs.failures import no_database_file
from iceberg_cli.storage.redaction import redact

TABLES: Final = "iceberg_tables"

catalog_name = sa.column("catalog_name", sa.String)
namespace = sa.column("table_namespace", sa.String)
table_name = sa.column("table_name", sa.String)
location = sa.column("metadata_location", sa.String)
previous = sa.column("previous_metadata_location", sa.String)
_type = sa.column("iceberg_type", sa.String)
rows = sa.table(TABLES, catalog_name, namespace, table_name, location, previous, _type)
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


class SqlDatabase:
    """A catalog's database, for one table or for several.

    Args:
        uri: SQLAlchemy's database URL.
        wait_s: how long to wait for a connection or for another writer's lock; for answers a small multiple of it.

    Attributes:
        engine: without a pool, so that every question gets a connection of its own.
        wait_s: as given.

    Raises:
        UsageError: the URL cannot be used, or its driver is not installed.
        BackendUnavailable: it is a file that is not there.
    """

    def __init__(self, uri: str, wait_s: int = 30) -> None:
        self.wait_s = wait_s
        self.engine, self._secrets = _open_engine(uri, wait_s)
        self._typed: bool | None = None
        self._read_only: str | None = None

    @property
    def was_looked_at(self) -> bool:
        """Whether `of_tables` found out what `read_only` says."""
        return self._typed is not None

    @property
    def read_only(self) -> str | None:
        """Why no row can be changed, or None: of MySQL's MyISAM and MariaDB's Aria none can be rolled back."""
        return self._read_only

    def bound_waits(self, connection: sa.Connection) -> None:
        """Say how long to wait for others' locks: by default for ever, or, of MySQL's tables, for a day."""
        wait_s = max(self.wait_s, 1)
        match self.engine.dialect.name:
            case "postgresql":
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{wait_s}s'")
            case "mysql" | "mariadb":
                connection.exec_driver_sql(
                    f"SET SESSION innodb_lock_wait_timeout = {wait_s}, SESSION lock_wait_timeout = {wait_s}"
                )

    def of_tables(self, connection: sa.Connection, what: str) -> sa.ColumnElement[bool]:
        """The condition that a row is a table's: V0 of the schema has no views and no column for it.

        Args:
            connection: of this database.
            what: what is looked for, in words.

        Raises:
            TableNotFound: the database holds no catalog.
        """
        if self._typed is None:
            inspector = sa.inspect(connection)
            if not inspector.has_table(TABLES):
                raise TableNotFound(f"Cannot find {what}: its database holds no Iceberg catalog.")
            if self.engine.dialect.name in _MYSQL and connection.execute(_TRANSACTIONS).scalar() != "YES":
                self._read_only = (
                    f"its catalog's table {TABLES} is kept without transactions, so that no change of it can be"
                    f" taken back: `ALTER TABLE {TABLES} ENGINE = InnoDB` mends that"
                )
            self._typed = any(column["name"] == _type.name for column in inspector.get_columns(TABLES))
        return (_type == "TABLE") | _type.is_(None) if self._typed else sa.true()

    def reason(self, error: Exception) -> str:
        """What an error of the database says, in one line and with no secret in it."""
        cause = getattr(error, "orig", None) or error
        return redact(" ".join(str(cause).split()), [*self._secrets, *_secrets_of_connection(cause)])


_TRANSACTIONS: Final = sa.text(
    "SELECT e.transactions FROM information_schema.tables t JOIN information_schema.engines e ON e.engine = t.engine"
    " WHERE t.table_schema = DATABASE() AND t.table_name = :name"
).bindparams(name=TABLES)


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
    """Refuse a file that is not there."""
    name = url.database or ""
    if name and not name.startswith(("file:", ":")) and not os.path.exists(name):
        raise no_database_file(name)
