"""One Spark session for the run, with two catalogs of Iceberg Java: by file names, and JDBC on SQLite."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.lake import Lake, session

_PACKAGES = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.xerial:sqlite-jdbc:3.50.3.0"


@pytest.fixture(scope="session")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Lake]]:
    """The catalogs by kind: `hadoop` and `jdbc`. Spark starts when the first test asks for one."""
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("no java on the path, so Spark cannot start")
    root = tmp_path_factory.mktemp("lake")
    spark = session(root, packages=_PACKAGES)
    config = root / "pyiceberg.yaml"
    config.write_text(f"catalog:\n  jdbc:\n    type: sql\n    uri: sqlite:///{root}/jdbc.db\n")
    yield {
        "hadoop": Lake(
            spark=spark, catalog="hadoop", warehouse=root / "hadoop", database=None, config=config
        ),
        "jdbc": Lake(
            spark=spark, catalog="jdbc", warehouse=root / "jdbc", database=root / "jdbc.db", config=config
        ),
    }
    spark.stop()


@pytest.fixture
def hadoop(lakes: dict[str, Lake]) -> Lake:
    """Tables by file names."""
    return lakes["hadoop"]


@pytest.fixture(params=["hadoop", "jdbc"])
def lake(lakes: dict[str, Lake], request: pytest.FixtureRequest) -> Lake:
    """Each of the two catalogs."""
    return lakes[request.param]


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    """Where a plan is saved."""
    return tmp_path / "plan.json"
