"""A REST catalog for tests: Iceberg's reference implementation, and a front before it whose answers can get lost."""

from __future__ import annotations

import http.client
import json
import os
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from tests.servers import BY_FSSPEC, S3Server, Versitygw
from tests.spark_jars import SQLITE, Jar, NoJar, spark_jars
from tests.spark_settings import Missing

SOURCE: Final = Path(__file__).parent / "iceberg" / "catalogs" / "RestServer.java"
# What Spark's own jars lack of what the server needs.
JARS: Final = (
    Jar("com.github.ben-manes.caffeine", "caffeine", "2.9.3",
        "1e0a7bbef1dd791653143f3f05d0e489934bf5481e58a87c9e619cd46b68729b"),
    Jar("org.apache.httpcomponents.client5", "httpclient5", "5.6.1",
        "1e3d8444c3c27772e4b9d42a790f06b3345a8ece4fd16d00981f2f2460e1e772"),
    Jar("org.apache.httpcomponents.core5", "httpcore5", "5.4",
        "cec2981fa7f520efb63f0787c24f10af2679e31f9f75c448c4dde40a3ae8100d"),
    Jar("org.apache.httpcomponents.core5", "httpcore5-h2", "5.4",
        "2e0f4ace15db2d1609c2b06eca6012e7582afe4a99ad8d15073f62dd8edb3460"),
    Jar("org.apache.iceberg", "iceberg-api", "1.11.0",
        "f00675a12ceb6d833bb9c22024823a3e7afdedf7abcefe34719f45b0d211995a"),
    Jar("org.apache.iceberg", "iceberg-bundled-guava", "1.11.0",
        "396d48d93ef5735f2ddef0cf9b3d6968ebd67b64b5cfe753d41c429d3f46a2a1"),
    Jar("org.apache.iceberg", "iceberg-common", "1.11.0",
        "b2835d00db7c92bdfa728123ad7cdcb488e2f2805c1c51fb9ae94e8bd203bd7d"),
    Jar("org.apache.iceberg", "iceberg-core", "1.11.0",
        "4284719a5f0eb7db01e9f784a0ed4ca8bacf7d6f9951924143afc083428d8be3", classifier="tests"),
    Jar("org.apache.iceberg", "iceberg-core", "1.11.0",
        "53b9eb7a8c34fb9958ea7d9a4d19ba5bc96f592d0f05e8625b0778c70b1f0090"),
    Jar("jakarta.servlet", "jakarta.servlet-api", "6.0.0",
        "c034eb1afb158987dbb53a5fea0cadf611c8dae8daadd59c44d9d5ab70129cef"),
    Jar("org.eclipse.jetty.compression", "jetty-compression-common", "12.1.8",
        "46f12d348115f310130c7df6e736017c6e7dc032f19b96a0dc2658f56ec43bf1"),
    Jar("org.eclipse.jetty.compression", "jetty-compression-gzip", "12.1.8",
        "482455c2e4b243913354dfd52cf2a68becfb9a7479c1deb385019f97925f0ae0"),
    Jar("org.eclipse.jetty.compression", "jetty-compression-server", "12.1.8",
        "fab794df5609bbe97e7ff04d8d5ff3446048dc7af7ca64ce52bbe19d31c420a5"),
    Jar("org.eclipse.jetty.ee10", "jetty-ee10-servlet", "12.1.8",
        "c6251faae241b2b6879ce8fb9177366ca4793ff9356f60793b8d10a1f1fef404"),
    Jar("org.eclipse.jetty", "jetty-http", "12.1.8",
        "32c351984fd74e7db9b3120f7aa43c034a9d7fe290386747ff318f4c4221d94b"),
    Jar("org.eclipse.jetty", "jetty-io", "12.1.8",
        "c45a68ceed3526f5ca0974768caa61f6683c3d5591a819fbcf3c0480a64ab245"),
    Jar("org.eclipse.jetty", "jetty-security", "12.1.8",
        "44add9ee95b955d96979cc74e32ec751ea807ebc0f5139eb13adcfc23712c58f"),
    Jar("org.eclipse.jetty", "jetty-server", "12.1.8",
        "71b8862a72305aebb65909b8b9f3c9a0c790ef3245c6056e56b48117aec238fe"),
    Jar("org.eclipse.jetty", "jetty-session", "12.1.8",
        "ebe84dd41942d7adda5f7d1304095d274e7915999451d848e887cbd409f947ea"),
    Jar("org.eclipse.jetty", "jetty-util", "12.1.8",
        "00432715f20c3ddc8d4fe3b01974253a7772f1830f7712da71af30348b01c822"),
    SQLITE,
)  # fmt: skip
# What it needs besides for a warehouse on S3.
S3_JARS: Final = (
    Jar("dev.failsafe", "failsafe", "3.3.2",
        "2c5dc879a6dac7ea3a7b29d795e27bd49b8e7908b05c2f3e56053c19d79850f5"),
    Jar("org.apache.iceberg", "iceberg-aws", "1.11.0",
        "4cfe4a7ba3a4fb247a29e60c614678c3b7a1e9b4b91f54e0ca3406419c9338f0"),
    Jar("org.apache.iceberg", "iceberg-aws-bundle", "1.11.0",
        "38f01da7e96850cdd05e6616d758b77b43314b712a8808e3f9a824d56976162f"),
)  # fmt: skip


# The same for one on Google Cloud Storage.
GCS_JARS: Final = (
    S3_JARS[0],
    Jar("org.apache.iceberg", "iceberg-gcp", "1.11.0",
        "829defc338bde170cc1690b9943a02e04a3abccca0634b936109c2b3e43ce7f1"),
    Jar("org.apache.iceberg", "iceberg-gcp-bundle", "1.11.0",
        "d9248fc76d94d232e153bf760631229cd3b7c6bc3b20f47d4b2caffe011a8a2f"),
)  # fmt: skip


# Drivers of databases besides SQLite.
DRIVERS: Final = (
    Jar("org.postgresql", "postgresql", "42.7.14",
        "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c"),
    Jar("org.mariadb.jdbc", "mariadb-java-client", "3.5.11",
        "42604178b9e57ec08ee0035079961516f086e455d0141f0b22c6eff29fb2fff4"),
)  # fmt: skip


@pytest.fixture(scope="session")
def rest_server() -> Iterator[str]:
    """The URI of a REST catalog over SQLite, which any table location may be given to."""
    with (
        tempfile.TemporaryDirectory(prefix="ice-rest-") as folder,
        rest_server_over(f"jdbc:sqlite:{folder}/catalog.db") as uri,
    ):
        yield uri


@pytest.fixture(scope="session")
def rest_on_s3(versitygw: Versitygw) -> Iterator[str]:
    """The URI of a REST catalog over SQLite whose warehouse is on S3, see `warehouse_on`."""
    with (
        tempfile.TemporaryDirectory(prefix="ice-rest-") as folder,
        rest_server_over(f"jdbc:sqlite:{folder}/catalog.db", s3=versitygw) as uri,
    ):
        yield uri


@contextmanager
def rest_server_over(
    database: str,
    more: Sequence[Jar] = (),
    *,
    s3: S3Server | None = None,
    properties: Mapping[str, str] | None = None,
    class_path: Sequence[str] = (),
) -> Iterator[str]:
    """The URI of a REST catalog over Java's JdbcCatalog `cat`, or another one by its `catalog-impl`.

    Args:
        database: its JDBC URL.
        more: the jars that it needs besides, of drivers of other databases than SQLite.
        s3: where its warehouse is, see `warehouse_on`; None: tables have locations that they are given.
        properties: more of the catalog's.
        class_path: what comes before all others.

    Raises:
        Missing: there is no JDK, or no jar.
    """
    java, javac = shutil.which("java"), shutil.which("javac")
    if java is None or javac is None or find_spec("pyspark") is None:
        raise Missing("Iceberg's REST server needs a JDK, and the jars of pyspark")
    try:
        jars = spark_jars((*JARS, *more, *(S3_JARS if s3 else ()))).split(",")
    except NoJar as error:
        raise Missing(str(error)) from error
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jars.append(f"{Path(spec.origin).parent}/jars/*")
    with tempfile.TemporaryDirectory(prefix="ice-rest-") as folder:
        # Not by its source alone: Iceberg would not find what is in it by name.
        on_path = os.pathsep.join([*class_path, *jars])
        subprocess.run([javac, "-d", folder, "-cp", on_path, str(SOURCE)], check=True, capture_output=True)
        whole_path = os.pathsep.join((folder, on_path))
        command = [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", whole_path, SOURCE.stem]
        port = Path(folder, "port")
        warehouse = warehouse_on(s3) if s3 else f"{folder}/warehouse"
        given = {**(java_options_of(s3) if s3 else {}), **(properties or {})}
        process = subprocess.Popen(
            [*command, database, warehouse, str(port), *(f"{name}={value}" for name, value in given.items())],
            stdout=subprocess.DEVNULL,  # where every refusal leaves a trace
            stderr=subprocess.DEVNULL,
        )
        try:
            while not port.exists():
                assert process.poll() is None, "the server did not start"
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port.read_text()}"
        finally:
            process.kill()
            process.wait()


def warehouse_on(s3: S3Server) -> str:
    """The location of the warehouse in the service's bucket."""
    return f"s3://{s3.bucket}/rest"


def java_options_of(s3: S3Server) -> dict[str, str]:
    """The properties by which a catalog of Iceberg Java keeps its files in a service."""
    return {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": s3.endpoint,
        "s3.path-style-access": "true",
        "s3.access-key-id": s3.options["key"],
        "s3.secret-access-key": s3.options["secret"],
        "client.region": s3.options["region"],
    }


def pyiceberg_options_of(s3: S3Server) -> dict[str, str]:
    """The same for PyIceberg, and so for our own configuration of catalogs."""
    return {
        "s3.endpoint": s3.endpoint,
        "s3.access-key-id": s3.options["key"],
        "s3.secret-access-key": s3.options["secret"],
        "s3.region": s3.options["region"],
    }


def configuration_of(catalog: str, properties: Mapping[str, str]) -> str:
    """PyIceberg's configuration file with one REST catalog."""
    lines = [f"    {name}: {value}\n" for name, value in {"type": "rest", **properties}.items()]
    return f"catalog:\n  {catalog}:\n{''.join(lines)}"


def table_of_integers(
    server: str,
    namespace: tuple[str, ...],
    location: str | None,
    rows: Sequence[int],
    options: Mapping[str, str],
) -> RestCatalog:
    """A table `t` with the column `i` in a new namespace, which PyIceberg makes: a snapshot for each row.

    Args:
        server: its URI.
        namespace: its levels.
        location: of the table, or None: the catalog decides.
        rows: the values of `i`.
        options: of the catalog and the storage.

    Returns:
        The catalog as PyIceberg opens it.
    """
    theirs, table = empty_table_of_integers(server, namespace, location, options, {})
    for row in rows:
        table.append(pa.table({"i": [row]}))
    return theirs


def empty_table_of_integers(
    server: str,
    namespace: tuple[str, ...],
    location: str | None,
    options: Mapping[str, str],
    properties: Mapping[str, str],
) -> tuple[RestCatalog, Table]:
    """The same without rows, and with table properties; the table as PyIceberg opens it."""
    theirs = RestCatalog("theirs", uri=server, **options, **BY_FSSPEC)
    for depth in range(1, len(namespace) + 1):
        theirs.create_namespace(namespace[:depth])
    schema = pa.schema([("i", pa.int64())])
    return theirs, theirs.create_table(
        (*namespace, "t"), schema, location=location, properties={**properties}
    )


Fate = Literal["", "lost before", "lost after", "reset before", "reset after", "500 after", "slow before", "slow after",
               "late"]  # fmt: skip


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # connections that wait to be accepted; with 5, others hang


@dataclass
class Front:
    """A server before another: it forwards, and for each POST has the next of `fates`.

    `lost`: no answer; `reset`: the connection is reset; `slow`: the client gives up waiting; each before the request
    reaches the server behind, or after. `500 after`: another answer than the server's. `late`: forwarded by `release`.
    """

    behind: str
    fates: list[Fate] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    answers: list[int] = field(
        default_factory=list
    )  # of status, by which POSTs are answered instead of by the server
    keys: list[str | None] = field(default_factory=list)  # of POSTs: their `Idempotency-Key`
    retry_after: str | None = None  # beside `answers`
    # The status by which a removal of several snapshots in one update is refused, as servers built on Iceberg 1.8 do.
    one_expected: int | None = None
    answers_to_gets: list[int] = field(default_factory=list)
    contents: dict[str, bytes] = field(
        default_factory=dict
    )  # by path, answered with 200 instead of by the server
    # Status and message by which a request is refused, or None; given its method, path, headers and body.
    refusal: Callable[[str, str, Mapping[str, str], bytes], tuple[int, str] | None] | None = None
    # Credentials of the storage that are given with each table to those who want them, and by their own endpoint.
    vended: Mapping[str, str] | None = None
    # Properties in the server's configuration, by `defaults` and `overrides`, and in each table's, by `table`.
    config: dict[str, Mapping[str, str]] = field(default_factory=dict)
    meanwhile: list[Callable[[], object]] = field(default_factory=list)  # done before a POST is forwarded
    later: Callable[[], object] | None = (
        None  # done after a POST; the answer names the table's location after it
    )
    _late: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"front": self}))
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def release(self) -> list[int]:
        """Forward what is late; the answers' status."""
        late, self._late = self._late, []
        return [self.forward("POST", path, headers, body)[0] for path, headers, body in late]

    def hold(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self._late.append((path, headers, body))

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, str]:
        host = urlsplit(self.behind)
        connection = http.client.HTTPConnection(str(host.hostname), host.port)
        connection.request(method, path, body, {**headers, "Accept-Encoding": "identity"})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content, answer.headers.get("Content-Type", "application/json")


class _Handler(BaseHTTPRequestHandler):
    front: ClassVar[Front]

    def do_GET(self) -> None:
        self._serve("")

    def do_HEAD(self) -> None:
        self._serve("")

    def do_POST(self) -> None:
        self._serve(self.front.fates.pop(0) if self.front.fates else "")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass

    def _serve(self, fate: Fate) -> None:
        self.close_connection = True
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {key: value for key, value in self.headers.items() if key.lower() != "host"}
        self.front.requests.append((self.command, self.path))
        if self._is_answered(body):
            return
        if self.command == "POST":
            self.front.bodies.append(body)
            self.front.keys.append(self.headers.get("Idempotency-Key"))
            if self.front.meanwhile:
                self.front.meanwhile.pop(0)()
            if self.front.one_expected and (ids := _removed_together(body)):
                message = f"Invalid set of snapshot ids to remove. Expected one value but received: {ids}"
                error = {"message": message, "type": "IllegalArgumentException"}
                self._answer(self.front.one_expected, json.dumps({"error": error}).encode())
                return
            if self.front.answers:
                self._answer(self.front.answers.pop(0), b'{"error": {"message": "as the test wants it"}}')
                return
        if fate == "late":  # and the connection ends without an answer
            self.front.hold(self.path, headers, body)
            return
        if fate.endswith("before"):
            self._lose(fate)
            return
        status, content, kind = self.front.forward(self.command, self.path, headers, body)
        if self.command == "POST" and self.front.later:
            self.front.later()
            status, content, kind = self.front.forward("GET", self.path, headers, b"")
        content = _with_properties(content, self.path, status, self.front.config)
        wants = self.headers.get("X-Iceberg-Access-Delegation", "")
        if self.front.vended is not None and "vended-credentials" in wants and _is_table(self.path, status):
            content = json.dumps({**json.loads(content), **_credentials(self.front.vended)}).encode()
        if fate == "500 after":
            self._answer(500, b"<html>an error page</html>")
        elif fate.endswith("after"):
            self._lose(fate)
        else:
            self._answer(status, content, kind)

    def _is_answered(self, body: bytes) -> bool:
        """Answer what the front answers by itself, of whatever method."""
        front, own = self.front, dict(self.headers.items())
        if front.refusal and (refused := front.refusal(self.command, self.path, own, body)):
            status, message = refused
            self._answer(status, json.dumps({"error": {"message": message, "code": status}}).encode())
        elif (content := front.contents.get(self.path)) is not None:
            self._answer(200, content)
        elif self.command == "GET" and front.answers_to_gets:
            self._answer(front.answers_to_gets.pop(0), b"{}")
        elif front.vended is not None and self.path.endswith("/credentials"):
            self._answer(200, json.dumps(_credentials(front.vended)).encode())
        else:
            return False
        return True

    def _lose(self, fate: Fate) -> None:
        if fate.startswith("slow"):
            select.select([self.connection], [], [], 60)  # until the client is gone
        if fate.startswith("reset"):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def _answer(self, status: int, content: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if self.front.retry_after and status != 200:
            self.send_header("Retry-After", self.front.retry_after)
        self.end_headers()
        self.wfile.write(content)


def _is_table(path: str, status: int) -> bool:
    """Whether an answer to a request for this path is a table."""
    return status == 200 and "/tables/" in path


def _with_properties(
    content: bytes, path: str, status: int, config: Mapping[str, Mapping[str, str]]
) -> bytes:
    """An answer with more properties, where it is one that has properties of the catalog or of a table."""
    names = (
        ["table"] if _is_table(path, status) else ["defaults", "overrides"] if "/v1/config" in path else []
    )
    if status != 200 or not config.keys() & set(names):
        return content
    document = json.loads(content)
    for name in config.keys() & set(names):
        place = "config" if name == "table" else name
        document[place] = {**(document.get(place) or {}), **config[name]}
    return json.dumps(document).encode()


def _credentials(vended: Mapping[str, str]) -> dict[str, list[dict[str, object]]]:
    return {"storage-credentials": [{"prefix": "s3://", "config": {**vended}}]}


def _removed_together(body: bytes) -> list[int]:
    """The snapshots of the first update of a request that removes more than one."""
    updates = json.loads(body)["updates"]
    together: list[list[int]] = [
        each["snapshot-ids"] for each in updates if each["action"] == "remove-snapshots"
    ]
    return next((ids for ids in together if len(ids) > 1), [])
