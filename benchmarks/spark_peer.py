"""A Spark session in its own process, asked line by line what to run.

Standard input holds one JSON object a line: `{"sql": ...}` is a statement, `{"arguments": [...]}` one of our command
lines, which finds the session. Each is answered by a line `ANSWER {"seconds": ..., "failed": ...}`. The arguments
are the warehouse's folder, the master and the value of `spark.jars`.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable
from functools import partial


def main(warehouse: str, master: str, jars: str) -> None:
    """Start a session and answer until standard input ends."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(master)
        .config("spark.jars", jars)
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
        if "sql" in job:
            answer(partial(spark.sql, job["sql"]))  # procedures run at once
        else:
            answer(partial(command, job["arguments"]))
    spark.stop()


def answer(work: Callable[[], object]) -> None:
    """Run it and say how long it took, or why it failed."""
    started = time.perf_counter()
    failed = ""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - whatever went wrong, the other side of the pipe raises it
        failed = str(error)[:2_000] or type(error).__name__
    seconds = time.perf_counter() - started
    print("ANSWER " + json.dumps({"seconds": seconds, "failed": failed}), flush=True)


def command(arguments: list[str]) -> None:
    """One of our command lines, in this process.

    Raises:
        RuntimeError: it did not leave with 0.
    """
    from iceberg_cli.cli import app as cli

    stated = io.StringIO()
    with contextlib.redirect_stderr(stated), contextlib.redirect_stdout(io.StringIO()):
        code = cli.run(arguments)
    if code:
        raise RuntimeError(f"iceberg-cli left with {code}: {stated.getvalue()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
