"""A session of Delta Spark in its own process, asked as `benchmarks.spark_peer` is.

`CHECKPOINT /folder`, which no SQL has, writes a checkpoint of the table's newest version.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmarks.peers import Session
from benchmarks.spark_jars import DELTA, Jar
from benchmarks.spark_peer import answer

_CHECKPOINT = "CHECKPOINT "


class DeltaSession(Session):
    """A session of Delta Spark, started when it is asked first."""

    module = "benchmarks.delta_peer"
    jars: Sequence[Jar] = DELTA


def main(_warehouse: str, master: str, jars: str) -> None:
    """Start a session and answer until standard input ends."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(master)
        .config("spark.jars", jars)
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        # Made for clusters, 50, 200 and 10,000 would slow down two cores; VACUUM lists folders in so many tasks.
        .config("spark.databricks.delta.snapshotPartitions", "4")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.sources.parallelPartitionDiscovery.parallelism", "4")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        answer(partial(carry_out, spark, json.loads(line)["sql"]))
    spark.stop()


def carry_out(spark: Any, statement: str) -> None:
    """Run a statement to its end."""
    if statement.startswith(_CHECKPOINT):
        log = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # noqa: SLF001 - PySpark has no other way to Delta's classes
        log.clearCache()
        log.forTable(spark._jsparkSession, statement.removeprefix(_CHECKPOINT)).checkpoint()  # noqa: SLF001
    else:
        spark.sql(statement).collect()


if __name__ == "__main__":
    main(*sys.argv[1:])
