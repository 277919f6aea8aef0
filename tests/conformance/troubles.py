"""A commit whose answer gets lost, on every committer: through Toxiproxy, or a front, before the real server."""

from __future__ import annotations

import dataclasses
import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa

from iceberg_cli.delta.log_commit import DeltaLogCommitter
from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.iceberg.catalogs.folders import open_folder
from iceberg_cli.iceberg.catalogs.glue import connection as glue_connection
from iceberg_cli.iceberg.catalogs.rest import connection as rest_connection
from iceberg_cli.iceberg.catalogs.rest.committer import RestCommitter
from iceberg_cli.iceberg.catalogs.sql.committer import SqlCommitter
from iceberg_cli.operation.outcomes import Attempt, Outcome
from iceberg_cli.storage import Storage, backoff
from iceberg_cli.storage.router import open_storage
from iceberg_cli.storage.s3 import objects as s3
from iceberg_cli.storage.s3.objects import S3Storage
from iceberg_cli.testing.conformance import commits, delta_logs
from iceberg_cli.testing.conformance.faults import FaultyStorage
from tests.conformance.catalogs import VOUCHED, Catalog, execute, make_table
from tests.database_proxy import ERRORS, Proxy, at_port, through
from tests.emulators import Azurite, FakeGcs
from tests.glue_front import GlueFront
from tests.hive_server import HiveMetastore
from tests.iceberg.catalogs.test_rest import Lake, shows
from tests.s3_front import PassingOn, Request, Response, serving
from tests.servers import Versitygw
from tests.toxiproxy import Toxiproxy, TroubledPort

Signal = Literal["time-out before", "time-out after", "reset before", "reset after", "error after", "late"]
"""What the sender meets, before the request has its effect or after it.

`error`: a 5xx, or what a database answers when it is shut down. `late`: a cut, and the effect comes after we looked.
"""

_WAIT_S = 2
_NO_CONNECTION = "a call within this machine has no connection that could be cut"
_NO_REQUEST = "a call within this machine is over when it returns"
# Every reason for which a committer cannot meet a signal.
ON_DISK: Mapping[Signal, str] = {
    "time-out after": "a call that fails although it had its effect is an error after",
    "reset before": _NO_CONNECTION,
    "reset after": _NO_CONNECTION,
    "late": _NO_REQUEST,
}


class Committing(Protocol):
    """What committers of both formats have."""

    def commit(self, attempt: Attempt) -> Outcome: ...

    def settle(self, attempt: Attempt) -> Outcome: ...


class Scene(ABC):
    """One table, and one attempt to commit to it.

    Args:
        request: of the test, whose fixtures start the servers.
        folder: of the test.
        stack: of what ends with the test.
        signal: that meets the first swap of `troubled`.
    """

    impossible: ClassVar[Mapping[Signal, str]] = {}
    troubled: Committing
    attempt: Attempt

    def __init__(
        self, request: pytest.FixtureRequest, folder: Path, stack: ExitStack, signal: Signal
    ) -> None:
        self.request, self.folder, self.stack, self.signal = request, folder, stack, signal
        self.patches = stack.enter_context(pytest.MonkeyPatch.context())
        self.make()

    @abstractmethod
    def make(self) -> None:
        """The table, `troubled`, and an `attempt` that is decided before the trouble begins."""

    @abstractmethod
    def direct(self) -> Committing:
        """The table's committer in another process, whose connection is well."""

    @abstractmethod
    def end(self) -> None:
        """The connection is well again; what is late stays so."""

    @abstractmethod
    def arrive(self) -> None:
        """What was late arrives; it has or has not taken effect when this returns."""

    @abstractmethod
    def add(self) -> None:
        """Another writer's commit, on top of what is there."""

    @abstractmethod
    def commits(self) -> list[str]:
        """The commits since the first version as others see them: `ours`, and one `theirs` for each of `add`."""

    def port_before(self, upstream: str) -> TroubledPort:
        """A port of Toxiproxy before another one."""
        toxiproxy: Toxiproxy = self.request.getfixturevalue("toxiproxy")
        return self.stack.enter_context(toxiproxy.before(upstream))

    def send(self) -> Outcome | None:
        """The outcome of the commit that the signal meets; None: an error, which says that nothing was sent."""
        try:
            return self.troubled.commit(self.attempt)
        except BackendUnavailable:
            return None

    @property
    def resumed(self) -> Attempt:
        """The attempt, as another process reads it from the journal."""
        return dataclasses.replace(self.attempt, fresh=False, why_stale=lambda _: None)


class Rest(Scene):
    """Iceberg's reference server, behind a front, behind Toxiproxy."""

    def make(self) -> None:
        self.lake: Lake = self.request.getfixturevalue("lake")
        front = self.lake.front
        self.port = self.port_before(urlsplit(front.uri).netloc)
        uri = {"uri": f"http://{self.port.address}"}
        self.troubled = RestCommitter("prod", (self.lake.namespace, "inner"), "t", uri, {})
        self.attempt = dataclasses.replace(self.lake.attempt(), why_stale=self.begin)

    def begin(self, _: object) -> None:
        """Right before the request is sent."""
        self.waits = rest_connection._WAITS
        self.patches.setattr(rest_connection, "_WAITS", (5, _WAIT_S))
        match self.signal:
            case "error after":
                self.lake.front.fates.append("500 after")
            case "late":
                self.lake.front.fates.append("late")
            case trouble:
                self.port.begin(trouble)

    def direct(self) -> Committing:
        return self.lake.open()

    def end(self) -> None:
        self.port.end()
        self.patches.setattr(rest_connection, "_WAITS", self.waits)

    def arrive(self) -> None:
        self.lake.front.release()

    def add(self) -> None:
        self.lake.append()

    def commits(self) -> list[str]:
        rows = self.lake.table.scan().to_arrow().num_rows - 3  # those that were there
        return ["theirs"] * rows + (["ours"] if shows(self.lake, self.attempt) else [])


class Glue(Scene):
    """An entry of Glue, which a front keeps as AWS documents it, behind Toxiproxy."""

    def make(self) -> None:
        self.front: GlueFront = self.request.getfixturevalue("glue")
        self.catalog = make_table(Catalog(kind="glue", folder=f"{self.folder}/wh/t", uri=self.front.endpoint))
        self.port = self.port_before(urlsplit(self.front.endpoint).netloc)
        self.patches.setattr(glue_connection, "_WAITS_S", (5, _WAIT_S))
        troubled = dataclasses.replace(self.catalog, uri=f"http://{self.port.address}")
        committer = troubled.open(**{"glue.max-retries": "0"})
        attempt = commits.an_attempt(committer, self.catalog.storage, {"ours": "yes"})
        self.attempt = dataclasses.replace(attempt, why_stale=self.begin)
        self.troubled = committer

    def begin(self, _: object) -> None:
        """Right before the request is sent."""
        match self.signal:
            case "error after":
                self.front.fates.append("500 after")
            case "late":
                self.front.fates.append("late")
            case trouble:
                self.port.begin(trouble)

    def direct(self) -> Committing:
        return self.catalog.open()

    def end(self) -> None:
        self.port.end()

    def arrive(self) -> None:
        self.front.release()

    def add(self) -> None:
        commits.set_property(self.catalog.open(), self.catalog.storage, f"theirs-{uuid.uuid4()}")

    def commits(self) -> list[str]:
        names = commits.properties_of(self.catalog.storage, self.catalog.open())
        return [name.partition("-")[0] for name in names]


class Sql(Scene):
    """The row of a SQL catalog."""

    database: ClassVar[str] = ""  # the fixture that gives its URI

    def make(self) -> None:
        uri = self.uri()
        self.catalog = make_table(Catalog(kind="sql", folder=f"{self.folder}/wh/t", uri=uri))
        committer = dataclasses.replace(self.catalog, uri=self.troubled_uri(uri)).open(wait_s=_WAIT_S)
        assert isinstance(committer, SqlCommitter)
        self.attempt = commits.an_attempt(committer, self.catalog.storage, {"ours": "yes"})
        sa.event.listen(committer._database.engine, "commit", self.begin)
        self.troubled = committer

    def uri(self) -> str:
        found: str = self.request.getfixturevalue(self.database)
        return found

    def troubled_uri(self, uri: str) -> str:
        """By a proxy that ends with the test."""
        if self.signal == "error after":
            proxy = Proxy(uri, deliver=True, error=ERRORS[sa.make_url(uri).get_backend_name()])
            self.stack.callback(proxy.close)
            return through(proxy, uri)
        bridge = Proxy(uri)  # PostgreSQL listens at a UNIX socket
        self.stack.callback(bridge.close)
        self.port = self.port_before(f"127.0.0.1:{bridge.port}")
        return at_port(int(self.port.address.rpartition(":")[2]), uri)

    def begin(self, _: sa.Connection) -> None:
        """Right before COMMIT is sent."""
        if self.signal != "error after":
            self.port.begin(self.signal)

    def direct(self) -> Committing:
        return self.catalog.open()

    def end(self) -> None:
        if self.signal not in ("error after", "late"):
            self.port.end()

    def arrive(self) -> None:
        self.port.end()
        execute(
            self.catalog.uri, "SELECT * FROM iceberg_tables FOR UPDATE"
        )  # the row is locked until the COMMIT is done

    def add(self) -> None:
        if self.signal == "late":
            # Its lock lets nobody else commit, until the database ends a session that stands still.
            execute(self.catalog.uri, *self.ends_sessions())
        commits.set_property(self.catalog.open(), self.catalog.storage, f"theirs-{uuid.uuid4()}")

    def ends_sessions(self) -> list[str]:
        """The statements that end every other session of this database."""
        if sa.make_url(self.catalog.uri).get_backend_name() == "postgresql":
            others = "datname = current_database() AND pid <> pg_backend_pid()"
            return [f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"]
        others = "db = DATABASE() AND id <> CONNECTION_ID()"
        ids = execute(self.catalog.uri, f"SELECT id FROM information_schema.processlist WHERE {others}")
        return [f"KILL {number}" for (number,) in ids] or ["SELECT 1"]

    def commits(self) -> list[str]:
        names = commits.properties_of(self.catalog.storage, self.catalog.open())
        return [name.partition("-")[0] for name in names]


class PostgreSql(Sql):
    """PostgreSQL by TCP."""

    database = "postgres_database"


class MariaDb(Sql):
    """MariaDB by TCP."""

    database = "mariadb_database"


class Sqlite(Sql):
    """A database in a file, which somebody reads while we commit, or whose disk fails after the commit."""

    impossible: ClassVar[Mapping[Signal, str]] = {
        **ON_DISK,
        "time-out after": "it waits for locks alone, and has all of them before its effect",
    }

    def uri(self) -> str:
        self.file = self.folder / "catalog.db"
        self.file.touch()
        return f"sqlite:///{self.file}"

    def troubled_uri(self, uri: str) -> str:
        return uri

    def begin(self, connection: sa.Connection) -> None:
        """A reader's lock lets no COMMIT through, and ours gives up; or the driver tells of an error after it."""
        self.reader = sqlite3.connect(self.file, isolation_level=None, check_same_thread=False)
        if self.signal == "time-out before":
            self.reader.execute("BEGIN")
            self.reader.execute("SELECT * FROM iceberg_tables").fetchall()
            return
        dialect = connection.engine.dialect
        done = dialect.do_commit

        def fail(driver: sa.PoolProxiedConnection) -> None:
            done(driver)
            raise sqlite3.OperationalError("disk I/O error")

        self.patches.setattr(dialect, "do_commit", fail)

    def end(self) -> None:
        self.reader.close()

    def arrive(self) -> None:
        raise AssertionError(_NO_REQUEST)


class Hive(Scene):
    """The entry of a Hive Metastore, locked as long as the request is under way."""

    def make(self) -> None:
        from iceberg_cli.iceberg.catalogs.hive.client import HiveConnection, HiveSession
        from iceberg_cli.iceberg.catalogs.hive.committer import HiveCommitter

        hive: HiveMetastore = self.request.getfixturevalue("hive")
        self.catalog = make_table(
            Catalog(kind="hive", folder=f"{self.folder}/wh/t", uri=hive.uri, database=hive.database())
        )
        self.port = self.port_before(urlsplit(hive.uri).netloc)
        connection = HiveConnection("cat", {"uri": f"thrift://{self.port.address}"}, answer_s=_WAIT_S)
        storage, database = self.catalog.storage, self.catalog.database
        self.troubled = HiveCommitter(connection, database=database, table="t", storage=storage)
        self.attempt = commits.an_attempt(self.troubled, storage, {"ours": "yes"})
        self.late: list[Callable[[], None]] = []
        self.signals = [self.signal]
        alter = HiveSession.alter

        def troubled_alter(session: HiveSession, entry: Any, **expected: Any) -> None:
            self.begin(lambda to: alter(to, entry, **expected), session)

        self.patches.setattr(HiveSession, "alter", troubled_alter)

    def begin(self, alter: Callable[[Any], None], session: Any) -> None:
        """Right before the request is sent; only the first one is met."""
        from hive_metastore.ttypes import MetaException
        from thrift.transport.TTransport import TTransportException

        match self.signals.pop() if self.signals else None:
            case None:
                alter(session)
            case "error after":
                alter(session)
                raise MetaException("a listener of the metastore failed")
            case "late":
                self.late.append(lambda: self._send(alter))
                raise TTransportException(TTransportException.TIMED_OUT, "read timed out")
            case trouble:
                self.port.begin(trouble)
                alter(session)

    def direct(self) -> Committing:
        return self.catalog.open()

    def end(self) -> None:
        """The connection is well again, and the metastore has let go of locks whose heartbeats are missing."""
        from hive_metastore import ttypes as types

        self.port.end()
        with self._metastore().connection().session() as session:
            of_table = types.ShowLocksRequest(dbname=self.catalog.database, tablename="t")
            for lock in session.client.show_locks(of_table).locks:
                session.client.unlock(types.UnlockRequest(lockid=lock.lockid))

    def arrive(self) -> None:
        for send in self.late:
            send()

    def add(self) -> None:
        commits.set_property(self.catalog.open(), self.catalog.storage, f"theirs-{uuid.uuid4()}")

    def commits(self) -> list[str]:
        names = commits.properties_of(self.catalog.storage, self.catalog.open())
        return [name.partition("-")[0] for name in names]

    def _metastore(self) -> HiveMetastore:
        return HiveMetastore(self.catalog.uri, self.folder)

    def _send(self, alter: Callable[[Any], None]) -> None:
        from thrift.Thrift import TException

        with self._metastore().connection().session() as session, suppress(TException):  # nobody hears it
            alter(session)


class FileNames(Scene):
    """An Iceberg table by file names."""

    def open(self, storage: Storage) -> Committing:
        return open_folder(self.root, storage, VOUCHED)

    def make(self) -> None:
        self.make_storages()
        first = commits.first_metadata(self.root)
        self.storage.put_if_absent(f"{self.root}/metadata/v1.metadata.json", first)
        committer = open_folder(self.root, self.troubled_storage, VOUCHED)
        self.attempt = commits.an_attempt(committer, self.storage, {"ours": "yes"})
        self.troubled = committer

    def direct(self) -> Committing:
        return open_folder(self.root, self.storage, VOUCHED)

    def add(self) -> None:
        committer = open_folder(self.root, self.storage, VOUCHED)
        commits.set_property(committer, self.storage, f"theirs-{uuid.uuid4()}")

    def commits(self) -> list[str]:
        committer = open_folder(self.root, self.storage, VOUCHED)
        return [name.partition("-")[0] for name in commits.properties_of(self.storage, committer)]

    @abstractmethod
    def make_storages(self) -> None:
        """Set `root`, `storage`, and `troubled_storage`, whose next put the signal meets."""

    root: str
    storage: Storage
    troubled_storage: Storage


class DeltaLog(Scene):
    """A Delta table."""

    def make(self) -> None:
        self.make_storages()
        delta_logs.make_log(self.root, self.storage)
        committer = DeltaLogCommitter(self.root, self.troubled_storage)
        self.attempt = delta_logs.an_attempt(committer, "ours")
        self.troubled = committer

    def direct(self) -> Committing:
        return DeltaLogCommitter(self.root, self.storage)

    def add(self) -> None:
        delta_logs.add_version(DeltaLogCommitter(self.root, self.storage), "theirs")

    def commits(self) -> list[str]:
        return delta_logs.names_of(self.root, self.storage)

    @abstractmethod
    def make_storages(self) -> None:
        """Set `root`, `storage`, and `troubled_storage`, whose next put the signal meets."""

    root: str
    storage: Storage
    troubled_storage: Storage


class OnDisk:
    """A folder, whose file system fails before or after it made a link."""

    impossible: ClassVar[Mapping[Signal, str]] = ON_DISK
    folder: Path
    signal: Signal
    root: str
    storage: Storage
    troubled_storage: Storage

    def make_storages(self) -> None:
        self.root, self.storage = f"{self.folder}/t", open_storage()
        put: Literal["failed before", "failed after"] = (
            "failed after" if self.signal == "error after" else "failed before"
        )
        self.troubled_storage = FaultyStorage(self.storage, put=put)

    def end(self) -> None:
        """A call that failed is over."""

    def arrive(self) -> None:
        raise AssertionError(_NO_REQUEST)


class InObjectStore:
    """An object store, behind a front, behind Toxiproxy. We look back by another way than that of the upload."""

    request: pytest.FixtureRequest
    signal: Signal
    stack: ExitStack
    patches: pytest.MonkeyPatch
    port_before: Callable[[str], TroubledPort]
    root: str
    storage: Storage
    troubled_storage: Storage

    def make_storages(self) -> None:
        endpoint = self.make_storage()
        self.front = self.stack.enter_context(TroubledUploads.before(endpoint, self.is_upload))
        self.port = self.port_before(urlsplit(self.front.endpoint).netloc)
        self.patches.setattr(backoff, "_TRIES", 2)
        uploads = self.uploads_to(f"http://{self.port.address}")
        self.troubled_storage = Uploads(self.storage, uploads, self.begin)

    def make_storage(self) -> str:
        """Set `root` and `storage`; the endpoint of the service."""
        raise NotImplementedError

    def uploads_to(self, endpoint: str) -> Storage:
        """A storage at this endpoint, which waits no longer than `_WAIT_S` for an answer."""
        raise NotImplementedError

    @staticmethod
    def is_upload(request: Request) -> bool:
        """Whether a request creates an object."""
        return request.method == "PUT"

    def begin(self) -> None:
        """Right before the upload."""
        match self.signal:
            case "error after" | "late":
                self.front.fate = self.signal
            case "time-out after" | "reset after" as trouble:
                # Not before: a server answers a PUT twice, and the first time lets the client send its body.
                self.front.meanwhile = lambda: self.port.begin(trouble)
            case trouble:
                self.port.begin(trouble)

    def end(self) -> None:
        self.port.end()
        self.front.fate, self.front.meanwhile = "", None

    def arrive(self) -> None:
        self.front.release()


class OnS3(InObjectStore):
    """versitygw."""

    def make_storage(self) -> str:
        server: Versitygw = self.request.getfixturevalue("versitygw")
        self.root, self.storage = f"s3://{server.bucket}/{uuid.uuid4()}", server.storage
        self.options = server.options
        return server.endpoint

    def uploads_to(self, endpoint: str) -> Storage:
        uploads = S3Storage({**self.options, "endpoint_url": endpoint})
        uploads._files.read_timeout = _WAIT_S
        self.patches.setattr(s3, "_ANSWER_S", _WAIT_S)
        return uploads


class OnGcs(InObjectStore):
    """fake-gcs-server."""

    def make_storage(self) -> str:
        self.store: FakeGcs = self.request.getfixturevalue("fake_gcs")
        self.root, self.storage = self.store.new_folder(), self.store.storage
        return self.store.endpoint

    def uploads_to(self, endpoint: str) -> Storage:
        from iceberg_cli.storage.gcs import objects as gcs

        self.patches.setattr(gcs, "_ANSWER_S", _WAIT_S)
        return gcs.GcsStorage(self.store.options_at(endpoint))

    @staticmethod
    def is_upload(request: Request) -> bool:
        return request.path.startswith("/upload/")


class OnAzure(InObjectStore):
    """Azurite."""

    def make_storage(self) -> str:
        self.store: Azurite = self.request.getfixturevalue("azurite")
        self.root, self.storage = self.store.new_folder(), self.store.storage
        return self.store.endpoint

    def uploads_to(self, endpoint: str) -> Storage:
        from iceberg_cli.storage.azure import blobs as azure

        self.patches.setattr(azure, "_ANSWER_S", _WAIT_S)
        self.patches.setattr(azure, "_RETRIES", 1)
        self.patches.setattr(azure, "_WAITS", dict.fromkeys(azure._WAITS, 0))
        found = azure.AzureStorage(self.store.options_at(endpoint))
        found.endpoint(self.root)  # makes its client, with these settings
        return found


class Uploads(FaultyStorage):
    """Puts by another way than it reads, and tells when the first one begins."""

    def __init__(self, inside: Storage, uploads: Storage, begin: Callable[[], None]) -> None:
        super().__init__(inside, put="failed before")
        self.uploads = uploads
        self.begin: Callable[[], None] | None = begin

    def put_if_absent(self, path: str, data: bytes) -> None:
        if self.begin is not None:
            self.begin()
            self.begin = None
        self.uploads.put_if_absent(path, data)


class FileNamesOnDisk(OnDisk, FileNames):
    """Iceberg by file names on a file system."""


class FileNamesOnS3(OnS3, FileNames):
    """Iceberg by file names on S3, by the operator's word."""


class DeltaLogOnDisk(OnDisk, DeltaLog):
    """Delta's log on a file system."""


class DeltaLogOnS3(OnS3, DeltaLog):
    """Delta's log on S3, by the operator's word."""


class FileNamesOnGcs(OnGcs, FileNames):
    """Iceberg by file names on Google Cloud Storage, by the operator's word."""


class DeltaLogOnGcs(OnGcs, DeltaLog):
    """Delta's log on Google Cloud Storage."""


class FileNamesOnAzure(OnAzure, FileNames):
    """Iceberg by file names on Azure, by the operator's word."""


class DeltaLogOnAzure(OnAzure, DeltaLog):
    """Delta's log on Azure."""


@dataclasses.dataclass
class TroubledUploads:
    """A server before an object store that passes everything on; uploads have a fate: `error after`, `late`, none.

    `meanwhile` is done once, after an upload took effect or was held, and before it is answered. `is_upload` tells
    which requests these are, and `met` by the path of one whether any of this is for it.
    """

    behind: str
    is_upload: Callable[[Request], bool] = InObjectStore.is_upload
    fate: str = ""
    meanwhile: Callable[[], object] | None = None
    met: Callable[[str], bool] = lambda _: True
    late: list[Request] = dataclasses.field(default_factory=list)
    endpoint: str = ""

    @classmethod
    @contextmanager
    def before(
        cls, endpoint: str, is_upload: Callable[[Request], bool] = InObjectStore.is_upload
    ) -> Iterator[TroubledUploads]:
        front = cls(endpoint, is_upload)
        with serving(_Handler, front=front) as front.endpoint:
            yield front

    def release(self) -> None:
        """Forward what is late."""
        late, self.late = self.late, []
        for request in late:
            request.forward(self.behind)


class _Handler(PassingOn):
    front: ClassVar[TroubledUploads]

    def response(self, request: Request) -> Response | None:
        self.close_connection = True
        front = self.front
        is_met = front.is_upload(request) and front.met(request.path)
        fate = front.fate if is_met else ""
        if fate == "late":  # and the connection ends without an answer
            front.late.append(request)
            response = None
        else:
            response = request.forward(front.behind)
        if is_met and front.meanwhile is not None:
            meanwhile, front.meanwhile = front.meanwhile, None
            meanwhile()
        if fate == "error after":
            return Response(500, [], b"<Error><Code>InternalError</Code></Error>")
        return response
