"""Delta Spark on the machine of a newcomer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.delta_spark import DeltaSpark
from tests.spark_jars import DELTA
from tests.spark_settings import has_only_descriptions

pytestmark = [pytest.mark.jvm, pytest.mark.deep]


def test_delta_spark_runs_with_a_home_folder_of_descriptions_without_jars(delta_spark: DeltaSpark) -> None:
    (_, options), *_ = delta_spark.sql("SET spark.driver.extraJavaOptions")
    home = re.search(r"-Duser\.home=(\S+)", options)
    assert home is not None
    assert has_only_descriptions(Path(home[1]), DELTA)
