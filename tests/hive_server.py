"""Hive Metastore 4.0.1, 4.0.0 and 3.1.3 on a MariaDB: `python -m tests.hive_server` downloads them, 190 MB.

Maven Central has them as archives with Hive's own schema scripts, those of the tables of locks too, which a metastore
does not make by itself. Hadoop is that of Spark. They are kept in the user's cache folder, outside the checkout.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.sax.saxutils import escape

import pytest

from iceberg_cli.errors import BackendUnavailable
from tests.go_servers import CACHE
from tests.servers import S3Server, free_port, running
from tests.spark_jars import S3A, Jar, spark_jars
from tests.spark_settings import Missing, NotStarted, starting

if TYPE_CHECKING:  # most tests need none of it, and it takes half a second to load
    from iceberg_cli.iceberg.catalogs.hive.client import HiveConnection
    from iceberg_cli.iceberg.catalogs.hive.entry import HiveEntry

FOLDER: Final = CACHE.parent / "hive-metastore"


@dataclass(frozen=True)
class Release:
    """A version of the metastore.

    Args:
        archive: with its jars and scripts.
        schema: the script that makes the tables of a MySQL database.
    """

    archive: Jar
    schema: str

    @property
    def home(self) -> Path:
        """Where it is unpacked."""
        return FOLDER / f"apache-hive-metastore-{self.archive.version}-bin"

    @property
    def script(self) -> Path:
        """The file of `schema`."""
        return self.home / "scripts" / "metastore" / "upgrade" / "mysql" / self.schema


HIVE_4: Final = Release(
    Jar("org.apache.hive", "hive-standalone-metastore-server", "4.0.1",
        "ed96f577df0a4dc800648a7f941d832f42409f89fa4af10c9d7540c8a1f8e24b", classifier="bin", ending="tar.gz"),
    "hive-schema-4.0.0.mysql.sql",
)  # fmt: skip
# On MariaDB two writers with the same expectation may both be first (HIVE-28121).
HIVE_4_0_0: Final = Release(
    Jar("org.apache.hive", "hive-standalone-metastore-server", "4.0.0",
        "98691daba012f576755e406c4ca0a3777254f7e60a85a956ed7a3ed60e71db78", classifier="bin", ending="tar.gz"),
    "hive-schema-4.0.0.mysql.sql",
)  # fmt: skip
# It knows nothing of expectations, and less of the newer methods.
HIVE_3: Final = Release(
    Jar("org.apache.hive", "hive-standalone-metastore", "3.1.3",
        "83ddf76717eeb789091d845c069a631c25cad561c3d31ec0843a1ddf21f29409", classifier="bin", ending="tar.gz"),
    "hive-schema-3.1.0.mysql.sql",
)  # fmt: skip
RELEASES: Final = (HIVE_4, HIVE_4_0_0, HIVE_3)
# What the archives and the clients of Hadoop that come in one jar lack.
BESIDE: Final = (
    Jar("org.apache.hadoop", "hadoop-hdfs", "3.4.2",
        "8b4121fa56c67fd66204c6b72e92fc4a3aa93981424b4db610c7a5a112d8066e"),
    Jar("org.slf4j", "slf4j-api", "1.7.36",
        "d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0"),
    Jar("commons-collections", "commons-collections", "3.2.2",
        "eeeae917917144a68a741d4c0dff66aa5c5c5fd85593ff217bced3fc8ca783b8"),
    Jar("javax.servlet", "javax.servlet-api", "3.1.0",
        "af456b2dd41c4e82cf54f3e743bc678973d9fe35bd4d3071fa05c7e5333b8482"),
)  # fmt: skip
# Java's HiveCatalog, of the version of the REST server's other jars.
OF_ICEBERG: Final = Jar("org.apache.iceberg", "iceberg-hive-metastore", "1.11.0",
        "8d9f8e25083b75006557660c71a619352d910e1ace2c46cef8df1c93141679ba")  # fmt: skip
_STARTS_S: Final = 180


def install() -> None:
    """Download what is missing; each part appears whole or not at all.

    Raises:
        NoJar: it cannot be downloaded.
    """
    spark_jars((*(each.archive for each in RELEASES), *BESIDE, OF_ICEBERG), folder=FOLDER)
    for release in RELEASES:
        if release.home.is_dir():
            continue
        with tempfile.TemporaryDirectory(dir=FOLDER, prefix=".new-") as new:
            with tarfile.open(FOLDER / release.archive.name) as archive:
                archive.extractall(new, filter="data")
            Path(new, release.home.name).replace(release.home)


@dataclass(frozen=True)
class HiveMetastore:
    """A server, and the folder of its warehouse."""

    uri: str
    folder: Path

    def connection(self, **properties: str) -> HiveConnection:
        """A connection as the catalog `cat` is configured."""
        from iceberg_cli.iceberg.catalogs.hive.client import HiveConnection

        return HiveConnection("cat", {"uri": self.uri, **properties})

    def database(self) -> str:
        """The name of a new and empty one."""
        from hive_metastore.ttypes import Database

        name = f"d_{uuid.uuid4().hex}"
        with self.connection().session() as session:
            session.client.create_database(Database(name=name, locationUri=f"file:{self.folder}/{name}.db"))
        return name


@contextmanager
def running_hive(
    database_uri: str,
    release: Release = HIVE_4,
    *,
    without: Sequence[str] = (),
    s3: S3Server | None = None,
) -> Iterator[HiveMetastore]:
    """A server on a new database of a MariaDB or MySQL server.

    Args:
        database_uri: SQLAlchemy's, without a database.
        release: of the metastore.
        without: tables that the database lacks.
        s3: where `s3://` is: the metastore makes folders of databases and tables.
    """
    if not release.home.is_dir():
        version = release.archive.version
        raise Missing(f"Hive {version} is not here: `python -m tests.hive_server` downloads it")
    client = shutil.which("mariadb") or shutil.which("mysql")
    if client is None:
        raise Missing("no client of MariaDB on the path: apt-get install mariadb-server")
    host, _, database_port = database_uri.partition("@")[2].partition(":")
    name = f"hive_{uuid.uuid4().hex}"
    to_database = [client, "--no-defaults", f"--host={host}", f"--port={database_port}", "--user=root"]
    with starting("Hive's database"):
        # Where it has no password a metastore tries one of its own.
        statements = [
            f"CREATE DATABASE {name}",
            "CREATE USER IF NOT EXISTS hive IDENTIFIED BY 'hive'",
            f"GRANT ALL ON {name}.* TO hive",
        ]
        subprocess.run([*to_database, "-e", "; ".join(statements)], check=True, capture_output=True)
        with release.script.open("rb") as script:
            folder = release.script.parent  # of scripts that it reads in
            subprocess.run([*to_database, name], stdin=script, cwd=folder, check=True, capture_output=True)
        for table in without:
            subprocess.run([*to_database, name, "-e", f"DROP TABLE {table}"], check=True, capture_output=True)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ice-hive-") as folder:
        properties = {
            "metastore.thrift.uris": f"thrift://127.0.0.1:{port}",
            "metastore.thrift.bind.host": "127.0.0.1",
            "metastore.thrift.port": f"{port}",
            "metastore.warehouse.dir": f"{folder}/managed",
            "metastore.warehouse.external.dir": f"{folder}/external",
            "javax.jdo.option.ConnectionURL": f"jdbc:mysql://{host}:{database_port}/{name}?useSSL=false",
            "javax.jdo.option.ConnectionDriverName": "com.mysql.cj.jdbc.Driver",
            "javax.jdo.option.ConnectionUserName": "hive",
            "javax.jdo.option.ConnectionPassword": "hive",
            "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
            "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
            "metastore.compactor.initiator.on": "false",
            "metastore.housekeeping.threads.on": "false",
            **(_of_hadoop(s3) if s3 else {}),
        }
        Path(folder, "conf").mkdir()
        Path(folder, "conf", "metastore-site.xml").write_text(_configuration(properties))
        command = [
            "java", "-Xmx700m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={folder}",
            "-cp", ":".join([f"{folder}/conf", f"{release.home}/lib/*", *_drivers(), *_hadoop(s3)]),
            "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", f"{port}",
        ]  # fmt: skip
        found = HiveMetastore(f"thrift://127.0.0.1:{port}", Path(folder))
        with running(command, port):
            _wait_for_an_answer(found)
            yield found


def _drivers() -> list[str]:
    """MySQL's, and what else only the newer archive has."""
    names = ("mysql-connector-j", "commons-cli", "commons-logging")
    return [str(path) for name in names for path in (HIVE_4.home / "lib").glob(f"{name}-*.jar")]


def _hadoop(s3: S3Server | None) -> list[str]:
    pyspark = pytest.importorskip("pyspark")
    jars = Path(pyspark.__path__[0], "jars")
    found = [
        str(path) for name in ("hadoop-client", "httpclient", "gson") for path in jars.glob(f"{name}-*.jar")
    ]
    return [
        *found,
        *(str(FOLDER / each.name) for each in BESIDE),
        *(spark_jars(S3A).split(",") if s3 else ()),
    ]


def _of_hadoop(s3: S3Server) -> dict[str, str]:
    return {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.endpoint": s3.endpoint,
        "fs.s3a.endpoint.region": s3.options["region"],
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": s3.options["key"],
        "fs.s3a.secret.key": s3.options["secret"],
    }


def _configuration(properties: Mapping[str, str]) -> str:
    lines = [
        f"<property><name>{key}</name><value>{escape(value)}</value></property>"
        for key, value in properties.items()
    ]
    return "\n".join(["<configuration>", *lines, "</configuration>", ""])


def _wait_for_an_answer(metastore: HiveMetastore) -> None:
    """An open port is not readiness: a class that is missing shows as a connection that ends at the first call."""
    from thrift.Thrift import TException

    until, reason = time.monotonic() + _STARTS_S, ""
    while time.monotonic() < until:
        try:
            with metastore.connection().session() as session:
                session.databases()
                return
        except (TException, BackendUnavailable) as error:
            reason = str(error)
            time.sleep(0.1)
    raise NotStarted(f"Hive's metastore gives no answer: {reason}")


@contextmanager
def java_over(hive: HiveMetastore, s3: S3Server | None = None, **properties: str) -> Iterator[str]:
    """The URI of a REST server over Java's HiveCatalog, with Hive's own client of the server's version.

    Args:
        hive: the metastore.
        s3: where its warehouse is; None: tables have locations that they are given.
        properties: more of the catalog, with two underscores for each dot.
    """
    from tests.rest_servers import rest_server_over

    of_hive = ("hive-standalone-metastore-common", "libthrift", "libfb303", "hive-storage-api")
    jars = [str(path) for name in of_hive for path in (HIVE_4.home / "lib").glob(f"{name}-*.jar")]
    with rest_server_over(
        hive.uri,
        s3=s3,
        properties={
            "catalog-impl": "org.apache.iceberg.hive.HiveCatalog",
            **{key.replace("__", "."): value for key, value in properties.items()},
        },
        class_path=[*jars, str(FOLDER / OF_ICEBERG.name)],
    ) as uri:
        yield uri


@pytest.fixture(scope="session")
def hive(mariadb_server: str) -> Iterator[HiveMetastore]:
    """A server of the session."""
    with running_hive(mariadb_server) as found:
        yield found


def make_entry(metastore: HiveMetastore, database: str, table: str, location: str, **more: Any) -> HiveEntry:
    """An Iceberg table's entry, as Java's HiveCatalog makes it, and other fields beside.

    Args:
        metastore: where.
        database: in it.
        table: its name.
        location: of its metadata.
        more: `parameters` beside the usual, and fields of Hive's struct.
    """
    from hive_metastore import ttypes as types

    parameters = {"EXTERNAL": "TRUE", "table_type": "ICEBERG", "metadata_location": location}
    fields = {
        "tableName": table,
        "dbName": database,
        "owner": "the owner",
        "createTime": 1_700_000_000,
        "lastAccessTime": 1_700_000_001,
        "retention": 2_147_483_647,
        "partitionKeys": [],
        "tableType": "EXTERNAL_TABLE",
        "sd": types.StorageDescriptor(
            cols=[types.FieldSchema(name="i", type="int", comment="of a column")],
            location=f"file:{metastore.folder}/{database}.db/{table}",
            inputFormat="org.apache.hadoop.mapred.FileInputFormat",
            outputFormat="org.apache.hadoop.mapred.FileOutputFormat",
            serdeInfo=types.SerDeInfo(
                serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", parameters={}
            ),
            parameters={},
            bucketCols=[],
            sortCols=[],
        ),
        **more,
        "parameters": {**parameters, **more.get("parameters", {})},
    }
    context = types.EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"})
    with metastore.connection().session() as session:
        session.client.create_table_with_environment_context(types.Table(**fields), context)
        return session.entry(database, table, table)


if __name__ == "__main__":
    install()
