"""Delta Spark in a process of its own: statements go in, rows come out.

A process of tests may hold Spark for Iceberg already, and there is one Spark in a process. Run as
`python -m tests.delta_spark FOLDER SETTINGS`, the latter in JSON, this reads a JSON object a line: `{"sql": [...]}` is
statements that may run at once, `{"conf": {...}}` sets properties of the session or, with null, unsets them,
`{"stream": [TABLE, VERSION]}` asks what a stream gets from a version on, and `{"forget": true}` before the statements
forgets what Delta knows of logs. Each is answered by a line
`ANSWER {"rows": [...], "failed": ...}`, with the rows of each statement. The process ends with its standard input.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tests.spark_settings import FOR_STATEMENTS, HERE_AND_TINY

DELTA = "spark.databricks.delta"
SETTINGS = {
    **HERE_AND_TINY,
    **FOR_STATEMENTS,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    f"{DELTA}.snapshotPartitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # VACUUM lists folders in so many tasks
    # A checkpoint that Delta cannot write, such as one against a checksum file, is an error and no warning.
    f"{DELTA}.checkpoint.exceptionThrowing.enabled": "true",
    # Tests vacuum tables that are seconds old, and read every version whose files are there.
    f"{DELTA}.retentionDurationCheck.enabled": "false",
    f"{DELTA}.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
}


class SparkFailed(Exception):
    """A statement failed in Delta Spark."""


class DeltaSpark:
    """The process, started by the first statement.

    Args:
        folder: where it runs.
        jvm: the settings that its jars and its JVM need.
    """

    def __init__(self, folder: Path, jvm: Mapping[str, str]) -> None:
        self._folder = folder
        self._jvm = jvm
        self._process: subprocess.Popen[str] | None = None
        self._turn = threading.Lock()

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of one statement, with values as `plain` has them.

        Raises:
            SparkFailed: with what Spark says.
        """
        return self.queries([statement])[0]

    def queries(self, statements: Sequence[str], *, forget: bool = False) -> list[list[tuple[Any, ...]]]:
        """The rows of each of some statements, which run at the same time.

        Args:
            statements: of SQL.
            forget: read logs anew: what is known of them would hide that they cannot be read any more.

        Raises:
            SparkFailed: one failed.
        """
        answers = self._ask({"sql": list(statements), "forget": forget})
        return [[tuple(row) for row in rows] for rows in answers]

    def streamed(self, table: Path, version: int) -> list[tuple[Any, ...]]:
        """What a stream that starts at a version has got once it has seen the newest one."""
        return [tuple(row) for row in self._ask({"stream": [str(table), version]})]

    def conf(self, settings: Mapping[str, str | None]) -> None:
        """Set properties of the session; None unsets one."""
        self._ask({"conf": dict(settings)})

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _ask(self, job: Mapping[str, Any]) -> Any:
        with self._turn:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                if line.startswith("ANSWER "):
                    answer = json.loads(line.removeprefix("ANSWER "))
                    if answer["failed"]:
                        raise SparkFailed(f"{job}: {answer['failed']}")
                    return answer["rows"]
        stated = (self._folder / "stderr.txt").read_text()[-2_000:]
        raise RuntimeError(f"Delta Spark ended without an answer to {job}: {stated}")

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            root = str(Path(__file__).resolve().parents[1])
            with (self._folder / "stderr.txt").open("w") as stated:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.delta_spark", str(self._folder), json.dumps(self._jvm)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stated,
                    text=True,
                    cwd=self._folder,  # where Spark leaves what it leaves
                    env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": root},
                )
        return self._process


def plain(value: Any) -> Any:
    """A value as JSON can hold it, the same for every reader that gives Python's types."""
    match value:
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case bytes() | bytearray():
            return value.hex()
        case decimal.Decimal():
            return str(value)
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat()
        case dt.date():
            return value.isoformat()
    return value


def rows_of(spark: Any, statement: str) -> list[Any]:
    """The rows of a statement, as lists."""
    return [plain(tuple(row)) for row in spark.sql(statement).collect()]


def rows_of_stream(spark: Any, table: str, version: int) -> list[Any]:
    """What a stream over a table has got, as lists."""
    read = spark.readStream.format("delta").option("startingVersion", version).load(table)
    query = read.writeStream.format("memory").queryName("streamed").trigger(availableNow=True).start()
    query.awaitTermination()
    return rows_of(spark, "SELECT * FROM streamed")


def main(folder: str, jvm: str) -> None:
    """Answer until standard input ends."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("iceberg-cli Delta tests")
    settings = {**SETTINGS, **json.loads(jvm), "spark.sql.warehouse.dir": f"{folder}/spark"}
    spark = builder.config(map=settings).getOrCreate()
    pool = ThreadPoolExecutor(3)
    for line in sys.stdin:
        job = json.loads(line)
        rows: list[Any] = []
        failed = ""
        try:
            for name, value in job.get("conf", {}).items():
                if value is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, value)
            if job.get("forget"):
                spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
            rows = list(pool.map(partial(rows_of, spark), job.get("sql", ())))
            if "stream" in job:
                rows = rows_of_stream(spark, *job["stream"])
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the other side of the pipe raises it
            failed = str(error)[:4_000] or type(error).__name__
        print("ANSWER " + json.dumps({"rows": rows, "failed": failed}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
