"""The fixture that the live tests of Delta share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.delta_live.lake import DeltaLake
from tests.delta_spark import DeltaSpark, require_spark


@pytest.fixture(scope="session")
def delta_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaLake]:
    """Delta Spark's tables; its process is started once for all tests of a worker."""
    require_spark()
    folder = tmp_path_factory.mktemp("delta")
    spark = DeltaSpark(folder / "spark")
    yield DeltaLake(spark=spark, folder=folder)
    spark.stop()
