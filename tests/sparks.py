"""The Spark session that all tests of the engine share."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iceberg_cli.engines.choice import EngineChoice
from iceberg_cli.engines.spark_opening import open_session, prepare
from iceberg_cli.engines.spark_session import Session
from iceberg_cli.storage.local import LocalStorage
from tests.live.conftest import _PACKAGES as PACKAGES

CONF = {
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # Hundreds of tiny queries: compiling them costs more than it saves.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # What others can see of a run: nothing secret may be in it.
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
    # A process has one Spark: the live tests may go on with this one, and must find Iceberg in it.
    "spark.jars.packages": PACKAGES,
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session on two cores of this machine; its workers have this package from the archive that is sent to them."""
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("no java on the path, so Spark cannot start")
    logs = tmp_path_factory.mktemp("spark-events")
    conf = CONF | {"spark.eventLog.dir": f"file:{logs}"}
    with contextlib.chdir(logs):  # where workers start, and do not find this package
        session = open_session(EngineChoice(engine="spark", master="local[2]", conf=conf))
    file = logs.parent / "a file"
    file.touch()
    prepare(session, LocalStorage(), str(file))
    travel_by_value()
    yield session
    session.close()


def travel_by_value() -> None:
    """Functions of test modules go to workers as they are: the modules are not there."""
    from pyspark import cloudpickle

    root = str(Path(__file__).parent)
    for module in list(sys.modules.values()):
        if str(getattr(module, "__file__", None) or "").startswith(root):
            cloudpickle.register_pickle_by_value(module)
