"""The Thrift connections to a Hive Metastore, by PyIceberg's generated client and the properties of its HiveCatalog."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Final, Self
from urllib.parse import urlsplit

from hive_metastore import ThriftHiveMetastore
from hive_metastore import ttypes as types
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TApplicationException, TException, TMessageType
from thrift.transport import TSocket, TTransport

from iceberg_cli.errors import AccessDenied, BackendUnavailable, TableNotFound, UsageError, how_to_install
from iceberg_cli.iceberg.catalogs.hive.entry import HiveEntry, RawStruct
from iceberg_cli.storage.redaction import redact, secrets_of

CONNECT_S: Final = 10
ANSWER_S: Final = 120  # a metastore tells its listeners of a change before it answers
MODIFIED: Final = "The table has been modified"  # the beginning of two texts, HIVE-26882 and HIVE-28121
Server = tuple[str, int]
"""Host and port."""
_PORT: Final = 9083
_EXPECTED_KEY: Final = "expected_parameter_key"
_EXPECTED_VALUE: Final = "expected_parameter_value"
# Neither may the metastore look into the table's folder for statistics, nor forget those that it has.
_KEEP_STATISTICS: Final = {"DO_NOT_UPDATE_STATS": "true"}
_DENIED: Final = (
    "permission denied", "no privilege", "accesscontrolexception", "authorizationexception", "access denied",
    "does not have privileges", "does not have [", "not authorized", "unauthorized",
)  # fmt: skip
_TRUE: Final = ("true", "1", "yes", "on", "t", "y")


class HiveConnection:
    """A Hive Metastore, for one table or for several; every session is a connection of its own.

    Args:
        name: of the catalog.
        properties: the catalog's, see PyIceberg's HiveCatalog: `uri` with one `thrift://host:port` or several,
            `ugi`, `hive.kerberos-authentication`, `hive.kerberos-service-name`.
        answer_s: how long to wait for an answer.

    Raises:
        UsageError: the uri is none, or what Kerberos needs is not installed.
    """

    def __init__(self, name: str, properties: Mapping[str, Any], *, answer_s: float = ANSWER_S) -> None:
        self.name = name
        self.properties = {key: value for key, value in properties.items() if isinstance(value, str)}
        self.answer_s = answer_s
        # By server and database: why expectations are not known to be held, or None.
        self.unproved: dict[tuple[Server, str], str | None] = {}
        self._secrets = secrets_of(properties)
        self.servers = [
            self._host(each) for each in self.properties.get("uri", "").split(",") if each.strip()
        ]
        self._kerberos = self.flag("hive.kerberos-authentication", default=False)
        user, *groups = self.properties.get("ugi", "").split(":")
        self._ugi = (user, groups) if user else None
        self.without_request = False  # the server knows no `get_table_req`
        if self._kerberos and (missing := [each for each in ("puresasl", "kerberos") if not find_spec(each)]):
            raise UsageError(
                f"Cannot open the catalog {name}: {missing[0]} is not installed.",
                next_step=how_to_install(ImportError(name=missing[0])),
            )

    @property
    def user(self) -> str:
        """Whom the metastore shows as the owner of locks."""
        return self._ugi[0] if self._ugi else getpass.getuser()

    def flag(self, key: str, *, default: bool) -> bool:
        """A property that is true or false."""
        value = self.properties.get(key)
        return default if value is None else value.lower() in _TRUE

    def seconds(self, key: str, default: float, *, unit_s: float = 1) -> float:
        """A property that is a duration.

        Raises:
            UsageError: it is no number.
        """
        value = self.properties.get(key)
        try:
            return default if value is None else float(value) * unit_s
        except ValueError:
            raise UsageError(
                f"Cannot open the catalog {self.name}: {key} is {value}, which is no number."
            ) from None

    def session(self, server: Server | None = None) -> HiveSession:
        """A connection, which ends with the block that it is used in.

        Args:
            server: of the uri; None: the first one that answers.

        Raises:
            BackendUnavailable: no server of the uri answers. AccessDenied: it does not let this user in.
        """
        return self._open(self.servers if server is None else [server])

    def is_proved(self, database: str) -> bool:
        """Whether all servers of the uri are known to hold expectations in a database."""
        return all(self.unproved.get((server, database), "") is None for server in self.servers)

    def reason(self, error: BaseException) -> str:
        """What an error says, in one line and with no secret in it."""
        text = getattr(error, "message", None) or str(error) or type(error).__name__
        if isinstance(error, TTransport.TTransportException) and error.type == error.END_OF_FILE:
            text = "the connection ended without an answer"
        return redact(" ".join(str(text).split()), self._secrets)

    def error(self, message: str, error: BaseException, *, next_step: str = "") -> BackendUnavailable:
        """The error of ours for one of Thrift's, with its reason."""
        kind = AccessDenied if is_denied(error) else BackendUnavailable
        return kind(f"{message}: {self.reason(error)}", next_step=next_step)

    def _host(self, uri: str) -> Server:
        try:
            parts = urlsplit(uri.strip())
            host, port = parts.hostname, parts.port or _PORT
        except ValueError:
            host, port = None, 0
        if not host or parts.scheme != "thrift":
            raise UsageError(
                f"Cannot open the catalog {self.name}: its uri is not of the form thrift://host:port,"
                " or several of these with commas between them."
            )
        return host, port

    def _open(self, servers: Sequence[Server]) -> HiveSession:
        errors: list[Exception] = []
        for host, port in servers:
            socket = TSocket.TSocket(host, port)
            socket.setTimeout(min(CONNECT_S, self.answer_s) * 1000)
            transport: Any = TTransport.TBufferedTransport(socket)
            if self._kerberos:
                service = self.properties.get("hive.kerberos-service-name", "hive")
                transport = TTransport.TSaslClientTransport(socket, host=host, service=service)
            try:
                transport.open()
                socket.setTimeout(self.answer_s * 1000)
                session = HiveSession(self, transport, (host, port))
                if self._ugi is not None:
                    session.client.set_ugi(*self._ugi)
            except Exception as error:  # noqa: BLE001 - the libraries of Kerberos have errors of their own
                transport.close()
                errors.append(error)
                continue
            return session
        if not errors:
            raise UsageError(f"Cannot open the catalog {self.name}: its configuration has no uri.")
        raise self.error(f"Cannot open the catalog {self.name}", errors[-1]) from None


class HiveSession:
    """One connection to a metastore.

    Args:
        connection: whose it is.
        transport: open.
        server: that it is to.

    Attributes:
        client: the generated one.
    """

    def __init__(self, connection: HiveConnection, transport: Any, server: Server) -> None:
        self._connection, self._transport, self.server = connection, transport, server
        self._protocol = TBinaryProtocol(transport)
        self.client = ThriftHiveMetastore.Client(self._protocol)

    def __enter__(self) -> Self:
        """The session. No generator takes the place of this: what the server raises cannot be changed, as it would."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        with suppress(OSError, TException):  # what was to be said is said
            self._transport.close()

    def entry(self, database: str, table: str, what: str) -> HiveEntry:
        """The entry of a table or view.

        Args:
            database: its database, in any case.
            table: its name, in any case.
            what: both with the catalog's name.

        Raises:
            TableNotFound: there is none.
            BackendUnavailable, AccessDenied: the server did not answer, or not to us.
        """
        try:
            return self._entry(database, table)
        except types.NoSuchObjectException:
            raise TableNotFound(f"Cannot find the table {what} in its catalog.") from None
        except FAILURES as error:
            raise self._connection.error(f"Cannot ask the catalog for {what}", error) from None

    def alter(self, entry: HiveEntry, *, expected: Mapping[str, str]) -> None:
        """Put an entry in place of that with its name.

        Args:
            entry: all of it.
            expected: one parameter and the value that it must have before; old servers do not look at it.

        Raises:
            NotKnown: the server has no method that carries an expectation; nothing was sent.
        """
        ((key, value),) = expected.items()
        properties = {**_KEEP_STATISTICS, _EXPECTED_KEY: key, _EXPECTED_VALUE: value}
        context = types.EnvironmentContext(properties=properties)
        database, table, raw = entry.database, entry.table, entry.raw
        request = types.AlterTableRequest(
            dbName=database, tableName=table, table=raw, environmentContext=context
        )
        self.first_known(
            lambda: self.client.alter_table_with_environment_context(database, table, raw, context),
            lambda: self.client.alter_table_req(request),
        )

    def first_known(self, *calls: Callable[[], Any]) -> Any:
        """The answer to the first call whose method the server has.

        Raises:
            NotKnown: it has none of them.
        """
        for call in calls:
            try:
                return call()
            except TApplicationException as error:
                if error.type != TApplicationException.UNKNOWN_METHOD:
                    raise
                unknown = error
        raise NotKnown(self._connection.reason(unknown))

    def databases(self) -> Sequence[str]:
        """The names of all databases."""
        found: Sequence[str] = self.client.get_all_databases()
        return found

    def tables(self, database: str) -> Sequence[str]:
        """The names of all tables and views of a database."""
        found: Sequence[str] = self.client.get_all_tables(database)
        return found

    def entries(self, database: str, names: Sequence[str]) -> Sequence[Any]:
        """Hive's tables with these names, as the generated classes have them; those that are gone are left out."""
        request = types.GetTablesRequest(dbName=database, tblNames=list(names))
        answer = self.first_known(
            lambda: self.client.get_table_objects_by_name_req(request).tables,
            lambda: self.client.get_table_objects_by_name(database, list(names)),
        )
        return answer or ()

    def _entry(self, database: str, table: str) -> HiveEntry:
        if not self._connection.without_request:
            try:
                self.client.send_get_table_req(types.GetTableRequest(dbName=database, tblName=table))
                return HiveEntry(self._answer(ThriftHiveMetastore.get_table_req_result).get(1))
            except TApplicationException as error:
                if error.type != TApplicationException.UNKNOWN_METHOD:
                    raise
                self._connection.without_request = True
        self.client.send_get_table(database, table)
        return HiveEntry(self._answer(ThriftHiveMetastore.get_table_result))

    def _answer(self, kind: Any) -> RawStruct:
        """The success of the answer that comes next, as it came.

        Args:
            kind: the generated class of the whole answer, which knows the exceptions in it.
        """
        _, message, _ = self._protocol.readMessageBegin()
        if message == TMessageType.EXCEPTION:
            error = TApplicationException()
            error.read(self._protocol)
            self._protocol.readMessageEnd()
            raise error
        raw = RawStruct.read(self._protocol)
        self._protocol.readMessageEnd()
        success = raw.get(0)
        if isinstance(success, RawStruct):
            return success
        memory = TTransport.TMemoryBuffer()
        raw.write(TBinaryProtocol(memory))
        answer = kind()
        answer.read(TBinaryProtocol(TTransport.TMemoryBuffer(memory.getvalue())))
        for name in ("o1", "o2"):
            if (found := getattr(answer, name, None)) is not None:
                raise found
        raise TApplicationException(TApplicationException.MISSING_RESULT, "the answer has no result")


class NotKnown(Exception):
    """The server is too old, or too new, for a method."""


# What a call raises: Thrift's, the server's own, the socket's, and those of an answer that is none.
FAILURES: Final = (TException, OSError, EOFError, ValueError, NotKnown)


def is_answer(error: BaseException) -> bool:
    """Whether an error is what the server says, with which its work on the request is over."""
    return isinstance(error, TException) and not isinstance(
        error, (TTransport.TTransportException, TProtocolException)
    )


def is_denied(error: BaseException) -> bool:
    """Whether the server says that this user may not."""
    text = str(getattr(error, "message", None) or error).lower()
    return (is_answer(error) or "sasl" in text or "gss" in text) and any(word in text for word in _DENIED)
