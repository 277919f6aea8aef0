"""Us and the peers: where they are, their versions, and how they are asked.

`python -m benchmarks.peers FORMAT WAREHOUSE MASTER JARS` is a session of Spark, asked line by line what to run: a line
of standard input is a JSON object, `{"sql": ...}` a statement, `{"checkpoint": ...}` the folder of a Delta table, which
no SQL writes a checkpoint of, `{"arguments": [...]}` one of our command lines, which finds the session. Each is
answered by a line `ANSWER {"seconds": ..., "failed": ...}`.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import iceberg_cli
from benchmarks.measure import OURS, PYTHON, Run, descendants, peak_mb_of, run
from tests.spark_jars import AWS, DELTA, ICEBERG, spark_jars

ICEBERG_GO = "github.com/apache/iceberg-go/cmd/iceberg@v0.7.0"
ICEBERG_COMPACTION = "iceberg-compaction==202604.9.0rc0"
SPARK_MASTER = "local[2]"
JARS = {"iceberg": (ICEBERG,), "rest": (ICEBERG, AWS), "delta": DELTA}
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "iceberg-cli"
)  # before a run has its own
_PACKAGES = ("pyiceberg", "deltalake", "pyspark", "pyarrow", "numpy")


def ours(*arguments: str) -> Callable[[], Run]:
    return functools.partial(run, [*OURS, *arguments])


def python(program: str, *arguments: str) -> Callable[[], Run]:
    return functools.partial(run, [PYTHON, "-c", program, *arguments])


def iceberg_go(location: str, verb: str, *options: str) -> Callable[[], Run] | None:
    """iceberg-go on the Hadoop catalog that holds `location`; None where it is not here."""
    go = find_iceberg_go()
    path = Path(location)
    catalog = ["--catalog", "hadoop", "--warehouse", str(path.parents[1])]
    return functools.partial(run, [go, *catalog, verb, *options, f"db.{path.name}"]) if go else None


@functools.cache
def find_iceberg_go() -> str | None:
    """iceberg-go's command line: on the PATH, or installed where Go is there."""
    found = shutil.which("iceberg")
    if found or not shutil.which("go"):
        return found
    target = CACHE / "go"
    if not (target / "iceberg").exists():
        print(f"installing {ICEBERG_GO}", file=sys.stderr)
        command, env = ["go", "install", ICEBERG_GO], {**os.environ, "GOBIN": str(target)}
        if subprocess.run(command, env=env, check=False, capture_output=True).returncode:
            print("iceberg-go cannot be installed here; its rows are left out", file=sys.stderr)
            return None
    return str(target / "iceberg")


@functools.cache
def find_iceberg_compaction() -> str | None:
    """The Python of an environment that has iceberg-compaction, which is made where that can be installed."""
    target = CACHE / ICEBERG_COMPACTION
    found = target / "bin" / "python"
    if not found.exists():
        print(f"installing {ICEBERG_COMPACTION}", file=sys.stderr)
        making = [
            [PYTHON, "-m", "venv", str(target)],
            [str(found), "-m", "pip", "install", "-q", ICEBERG_COMPACTION],
        ]
        if any(subprocess.run(each, check=False, capture_output=True).returncode for each in making):
            shutil.rmtree(target, ignore_errors=True)
            print("iceberg-compaction cannot be installed here; its rows are left out", file=sys.stderr)
            return None
    return str(found)


def missing_package(benchmark: str) -> str:
    """The package without which nothing of a benchmark can be measured, where it is not here."""
    package = {"delta": "deltalake", "rest": "pyspark", "spark": "pyspark", "driver": "pyspark"}.get(
        benchmark, ""
    )
    return package if package and find_spec(package) is None else ""


@functools.cache
def versions(*, spark: bool) -> dict[str, str]:
    """Us, the peers, and the libraries that decide how fast we are."""
    found = {"iceberg-cli": iceberg_cli.__version__}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    go = find_iceberg_go()
    if go:
        found["iceberg-go"] = _stated(go, "--version").split()[-1]
    if (CACHE / ICEBERG_COMPACTION).exists():
        peer, _, version = ICEBERG_COMPACTION.partition("==")
        found[peer] = version
    if spark:
        found["Iceberg for Spark"] = ICEBERG.version
        java = re.search(r'"(.+?)"', _stated("java", "-version"))
        if java:
            found["Java"] = java[1]
    return found


def _stated(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or done.stderr.strip() or "unknown"


class Session:
    """A Spark session in a process of its own, which runs Spark's statements or our command lines.

    It starts when it is asked first: its start takes both cores.
    """

    def __init__(self, warehouse: str, table_format: str = "iceberg") -> None:
        """A session on a warehouse, or, of the format `rest`, on a catalog of these options of Spark, in JSON."""
        self._arguments = [table_format, warehouse, SPARK_MASTER]
        self._process: subprocess.Popen[str] | None = None
        self._calls = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def call(self, statement: str, *, cold: bool = False) -> Run:
        """Run one SQL statement; `cold` counts from the start of a new process."""
        return self._ask({"sql": statement}, cold=cold)

    def second_call(self, job: dict[str, Any], between: Callable[[], None]) -> Run:
        """Run a job as the second one of a new session; `between` puts back what it changed as the first one."""
        self._stop()
        self._ask(job)
        between()
        return self._ask(job)

    def command(self, arguments: Sequence[str]) -> Run:
        """Run one of our command lines inside the session."""
        return self._ask({"arguments": list(arguments)})

    def warm_up(self, statement: str) -> None:
        """Run a statement, unless this session has run something already."""
        if not self._calls:
            self.call(statement)

    def _start(self) -> subprocess.Popen[str]:
        jars = spark_jars(JARS[self._arguments[0]])
        self._started = time.perf_counter()
        command = [PYTHON, "-m", "benchmarks.peers", *self._arguments, jars]
        env = {**os.environ, "PYSPARK_PYTHON": PYTHON}  # Spark's workers: this one, not the PATH's
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, text=True, env=env)

    def _stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(60)
            self._process = None
            self._calls = 0

    def _ask(self, job: dict[str, Any], *, cold: bool = False) -> Run:
        if cold:
            self._stop()
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        cpu_before = 0.0 if cold else _cpu_seconds(process.pid)
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith("ANSWER "):
                answer = json.loads(line.removeprefix("ANSWER "))
                if answer["failed"]:
                    raise RuntimeError(f"{job} failed in Spark's session: {answer['failed']}")
                self._calls += 1
                members = descendants(process.pid)
                return Run(
                    seconds=time.perf_counter() - self._started if cold else answer["seconds"],
                    cpu_seconds=_cpu_seconds(process.pid) - cpu_before,
                    peak_mb=peak_mb_of(members),
                    driver_mb=peak_mb_of(members[:1]),
                )
        raise RuntimeError("Spark ended without an answer")


def _cpu_seconds(process_id: int) -> float:
    """Of a process, the children it has and had, since their start."""
    import psutil

    return sum(sum(psutil.Process(member).cpu_times()[:4]) for member in descendants(process_id))


def serve(table_format: str, warehouse: str, master: str, jars: str) -> None:
    """Start a session and answer until standard input ends."""
    from pyspark.sql import SparkSession

    iceberg = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.cache-enabled": "false",
    }
    catalog = json.loads(warehouse) if table_format == "rest" else {"type": "hadoop", "warehouse": warehouse}
    iceberg |= {f"spark.sql.catalog.lake.{name}": value for name, value in catalog.items()}
    formats = {
        "iceberg": iceberg,
        "rest": iceberg,
        "delta": {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # Made for clusters, 50, 200 and 10,000 would slow down two cores; VACUUM lists folders in so many tasks.
            "spark.databricks.delta.snapshotPartitions": "4",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
        },
    }
    settings: dict[str, Any] = {
        "spark.jars": jars, "spark.driver.memory": "4g", "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC", **formats[table_format],
    }  # fmt: skip
    spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        started = time.perf_counter()
        failed = ""
        try:
            _carry_out(spark, json.loads(line))
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the other side of the pipe raises it
            failed = str(error)[:2_000] or type(error).__name__
        seconds = time.perf_counter() - started
        print("ANSWER " + json.dumps({"seconds": seconds, "failed": failed}), flush=True)
    spark.stop()


def _carry_out(spark: Any, job: dict[str, Any]) -> None:
    """Run a job to its end.

    Raises:
        RuntimeError: a command line of ours did not leave with 0.
    """
    if "sql" in job:
        spark.sql(job["sql"]).collect()
    elif "checkpoint" in job:
        log = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # noqa: SLF001 - PySpark has no other way to Delta's classes
        log.clearCache()
        log.forTable(spark._jsparkSession, job["checkpoint"]).checkpoint()  # noqa: SLF001
    else:
        from iceberg_cli.cli import app as cli

        stated = io.StringIO()
        with contextlib.redirect_stderr(stated), contextlib.redirect_stdout(io.StringIO()):
            code = cli.run(job["arguments"])
        if code:
            raise RuntimeError(f"iceberg-cli left with {code}: {stated.getvalue()}")


if __name__ == "__main__":
    serve(*sys.argv[1:])
