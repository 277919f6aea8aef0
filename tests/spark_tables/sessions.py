"""The fixtures: catalogs of Iceberg Java in which Spark writes tables, and the session of our own engine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pytest

from iceberg_cli.engines.selection import EngineChoice
from iceberg_cli.engines.spark.session import Session
from iceberg_cli.engines.spark.startup import open_session, prepare
from iceberg_cli.storage.local import LocalStorage
from tests.recording.plugin import Recorder
from tests.spark_jars import AWS, ICEBERG, SQLITE
from tests.spark_settings import FOR_STATEMENTS, HERE_AND_TINY, NotStarted, settings_of_jvm, starting
from tests.spark_tables.lake import Lake
from tests.spark_tables.shape import Writing

FIXED = Path("/tmp/iceberg-cli-recorded")
_LONGEST_RUN_S = 600
_TABLES_OF_JDBC = """
CREATE TABLE iceberg_tables (
    catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,
    metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name)
);
CREATE TABLE iceberg_namespace_properties (
    catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255),
    property_value VARCHAR(1000), PRIMARY KEY (catalog_name, namespace, property_key)
);
INSERT INTO iceberg_namespace_properties VALUES ('jdbc', 'db', 'exists', 'true');
"""
# A process has one Spark, and what is asked for second goes on with it: it must find Iceberg there. Where both are, the
# engine's is to be the first, as in the order of the files: a Spark that runs takes no settings of events any more.
JARS = (ICEBERG, SQLITE, AWS)
SHARED = {
    **HERE_AND_TINY,
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.driver.memory": "2g",
}
FOR_TABLES = {
    **FOR_STATEMENTS,
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
}
FOR_THE_ENGINE = {
    "spark.sql.shuffle.partitions": "2",
    # What others can see of a run: nothing secret may be in it.
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


@pytest.fixture(scope="session")
def lakes(recorder: Recorder, lake_folder: Path, request: pytest.FixtureRequest) -> dict[str, Lake]:
    """The catalogs by kind: `hadoop`, by file names, and `jdbc`, on SQLite."""
    if recorder.live:
        return {
            kind: replace(lake, recorder=recorder)
            for kind, lake in request.getfixturevalue("live_lakes").items()
        }
    with closing(sqlite3.connect(lake_folder / "jdbc.db")) as connection, connection:
        connection.executescript(_TABLES_OF_JDBC)
    return _lakes(lake_folder, None, recorder)


@pytest.fixture(scope="session")
def live_lakes(lake_folder: Path) -> Iterator[dict[str, Lake]]:
    """The same with Spark there, for tests that have no record. Neither catalog caches anything."""
    with starting("Spark with Iceberg"):
        spark = _session_for_tables(lake_folder)
        spark.sql("SHOW NAMESPACES IN jdbc")  # the database has its tables from then on
    yield _lakes(lake_folder, spark, Recorder(live=True))
    spark.stop()


@pytest.fixture(scope="session")
def lake_folder() -> Iterator[Path]:
    """The folder below which all tables on record were written, for this process alone, and empty."""
    FIXED.mkdir(exist_ok=True)
    with (FIXED / "lock").open("w") as lock:
        _wait_for(lock)
        folder = FIXED / "lake"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield folder
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(lock: TextIO) -> None:
    until = time.monotonic() + _LONGEST_RUN_S
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise NotStarted(f"another run of the tests has {FIXED}") from None
            time.sleep(1)


def _lakes(root: Path, spark: Any, recorder: Recorder) -> dict[str, Lake]:
    config = root / "pyiceberg.yaml"
    config.write_text(f"catalog:\n  jdbc:\n    type: sql\n    uri: sqlite:///{root}/jdbc.db\n")
    return {
        kind: Lake(
            spark=spark,
            recorder=recorder,
            catalog=kind,
            warehouse=root / kind,
            database=database,
            config=config,
        )
        for kind, database in (("hadoop", None), ("jdbc", root / "jdbc.db"))
    }


@pytest.fixture
def hadoop(lakes: dict[str, Lake]) -> Lake:
    """Tables by file names."""
    return lakes["hadoop"]


@pytest.fixture(params=["hadoop", pytest.param("jdbc", marks=pytest.mark.deep)])
def lake(lakes: dict[str, Lake], request: pytest.FixtureRequest) -> Lake:
    """Each of the two catalogs."""
    return lakes[request.param]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Writing:
    """Tables of shapes, each written once."""
    return Writing(tmp_path_factory.mktemp("written"))


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session on two cores of this machine; its workers have this package from the archive that is sent to them."""
    logs = tmp_path_factory.mktemp("spark-events")
    jvm = settings_of_jvm(JARS, tmp_path_factory.mktemp("spark-home"))
    conf = SHARED | jvm | FOR_THE_ENGINE | {"spark.eventLog.dir": f"file:{logs}"}
    with (
        starting("Spark for our engine"),
        contextlib.chdir(logs),
    ):  # where workers start, and do not find this package
        session = open_session(EngineChoice(engine="spark", master="local[2]", conf=conf))
    file = logs.parent / "a file"
    file.touch()
    prepare(session, LocalStorage(), str(file))
    _travel_by_value()
    yield session
    session.close()


def _session_for_tables(root: Path) -> Any:
    """A Spark session whose catalogs `hadoop` and `jdbc` keep their tables below `root`."""
    jvm = settings_of_jvm(JARS, root)
    from pyspark.sql import SparkSession

    # A session that `spark_session` opens later shares this one's JVM, and the Python that was chosen for it.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = SHARED | jvm | FOR_TABLES | {"spark.sql.warehouse.dir": str(root / "spark-warehouse")}
    for kind in ("hadoop", "jdbc"):
        settings |= {
            f"spark.sql.catalog.{kind}": "org.apache.iceberg.spark.SparkCatalog",
            f"spark.sql.catalog.{kind}.type": kind,
            f"spark.sql.catalog.{kind}.warehouse": str(root / kind),
            f"spark.sql.catalog.{kind}.cache-enabled": "false",
        }
    settings |= {
        "spark.sql.catalog.jdbc.uri": f"jdbc:sqlite:{root}/jdbc.db",
        "spark.sql.catalog.jdbc.jdbc.schema-version": "V1",
        "spark.sql.catalog.jdbc.jdbc.busy_timeout": "30000",
    }
    builder = SparkSession.builder.master("local[2]").appName("iceberg-cli live tests")
    return builder.config(map=settings).getOrCreate()


def _travel_by_value() -> None:
    """Functions of test modules go to workers as they are: the modules are not there."""
    from pyspark import cloudpickle

    root = str(Path(__file__).parents[1])
    for module in list(sys.modules.values()):
        if str(getattr(module, "__file__", None) or "").startswith(root):
            cloudpickle.register_pickle_by_value(module)
