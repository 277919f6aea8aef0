"""Spark's own procedures as a peer: one session in its own process, asked line by line what to run.

Standard input holds one JSON object a line, `{"sql": ...}`; each is answered by one line with the seconds that the
statement took. The argument is the warehouse's folder.
"""

from __future__ import annotations

import json
import sys
import time

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def main(warehouse: str) -> None:
    """Start a session and answer until standard input ends."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", PACKAGE)
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", warehouse)
        .config("spark.sql.catalog.lake.cache-enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        job = json.loads(line)
        started = time.perf_counter()
        spark.sql(job["sql"]).collect()
        print(f"TOOK {time.perf_counter() - started}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
