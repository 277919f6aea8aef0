"""The fixture that the live tests of Delta share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.spark_jars import DELTA
from tests.delta_live.lake import DeltaLake
from tests.delta_spark import DeltaSpark
from tests.spark_settings import settings_of_jvm, starting


@pytest.fixture(scope="session")
def delta_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaLake]:
    """Delta Spark's tables; its process is started once for all tests of a worker."""
    folder = tmp_path_factory.mktemp("delta")
    spark = DeltaSpark(folder / "spark", settings_of_jvm(DELTA, folder))
    with starting("Delta Spark"):
        spark.sql("SELECT 1")
    yield DeltaLake(spark=spark, folder=folder)
    spark.stop()
