"""Delta Spark on the machine of a newcomer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.delta_live.lake import DeltaLake
from tests.spark_jars import DELTA
from tests.spark_settings import has_only_descriptions

pytestmark = pytest.mark.jvm


def test_delta_spark_runs_with_a_home_folder_of_descriptions_without_jars(delta_lake: DeltaLake) -> None:
    (_, options), *_ = delta_lake.spark.sql("SET spark.driver.extraJavaOptions")
    home = re.search(r"-Duser\.home=(\S+)", options)
    assert home is not None
    assert has_only_descriptions(Path(home[1]), DELTA)
