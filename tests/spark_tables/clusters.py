"""Clusters of processes: a standalone master with two workers, a Spark Connect server, and commands that use them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.spark_settings import HERE_AND_TINY, OPTIONS_OF_JVM, require_spark

ROOT = Path(__file__).parents[2]
WAIT_S = 60
HANGS_S = 600  # a command with Spark on a busy machine has ended by then
CONF = {
    **HERE_AND_TINY,
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": OPTIONS_OF_JVM,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": OPTIONS_OF_JVM,
    "spark.executor.cores": "1",
    # Both executors are there before the first task: otherwise one may get all of them.
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.sql.shuffle.partitions": "4",
    "spark.pyspark.python": sys.executable,
}
TWICE = {
    "spark.speculation": "true",
    "spark.speculation.interval": "10ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "1ms",
}


@dataclass(frozen=True)
class Running:
    """Processes of Spark, where they are reached, and the folder of their logs."""

    url: str
    processes: Sequence[psutil.Process]
    logs: Path


@contextlib.contextmanager
def started(folder: Path, name: str, arguments: Sequence[str]) -> Iterator[psutil.Process]:
    """A class of Spark in its own process."""
    pyspark = pytest.importorskip("pyspark")
    home = Path(pyspark.__file__).parent
    own = {
        "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": OPTIONS_OF_JVM,
    }  # fmt: skip
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**os.environ, **own, "SPARK_WORKER_DIR": str(folder)},
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        for child in [*psutil.Process(process.pid).children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        process.kill()
        process.wait()


def stated(process: psutil.Process, log: Path, pattern: str) -> str:
    """What a process writes into its log where it has got so far: the group of the pattern's last match.

    A process takes a free port itself and says which: one that was free a moment ago may be another's by then.
    """
    until = time.monotonic() + WAIT_S
    while not (found := re.findall(pattern, log.read_text())):
        assert process.status() != psutil.STATUS_ZOMBIE, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)
    return str(found[-1])


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A master and two workers of one core each, on hosts of two names: Spark runs no task twice on one host."""
    require_spark()
    folder = tmp_path_factory.mktemp("cluster")
    package = "org.apache.spark.deploy"
    with contextlib.ExitStack() as stack:
        master = [
            f"{package}.master.Master", "--host", "127.0.0.1", "--webui-port", "0", "--port", "0"
        ]  # fmt: skip
        processes = [stack.enter_context(started(folder, "master", master))]
        url = stated(processes[0], folder / "master.log", r"Starting Spark master at (spark://\S+)")
        for number in range(2):
            worker = [
                f"{package}.worker.Worker", "--host", f"127.0.0.{number + 1}", "--webui-port", "0",
                "-c", "1", "-m", "1g", "-d", str(folder), url,
            ]  # fmt: skip
            processes.append(stack.enter_context(started(folder, f"worker-{number}", worker)))
        until = time.monotonic() + WAIT_S
        while (folder / "master.log").read_text().count("Registering worker") < 2:
            assert time.monotonic() < until
            time.sleep(0.1)
        yield Running(url, processes, folder)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A Spark Connect server on two cores."""
    require_spark()
    missing = [name for name in ("grpc", "grpc_status", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"Spark Connect needs {', '.join(missing)}: pip install 'pyspark[connect]'")
    folder = tmp_path_factory.mktemp("server")
    conf = {
        **CONF,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    arguments = [
        "org.apache.spark.deploy.SparkSubmit",
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--master", "local[2]", *words(conf), "spark-internal",
    ]  # fmt: skip
    with started(folder, "server", arguments) as process:
        port = stated(process, folder / "server.log", r"Spark Connect server started at: 127\.0\.0\.1:(\d+)")
        yield Running(f"sc://127.0.0.1:{port}", [process], folder)


def words(conf: Mapping[str, str], option: str = "--conf") -> list[str]:
    return [word for key, value in conf.items() for word in (option, f"{key}={value}")]


def start(*arguments: object, modules: Sequence[Path] = ()) -> subprocess.Popen[str]:
    """`iceberg-cli` in its own process, from a folder in which workers would not find the package.

    Args:
        arguments: of the command line.
        modules: folders that the command finds modules in, beside the package's.
    """
    path = os.pathsep.join([str(ROOT), *map(str, modules), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "iceberg_cli", *map(str, arguments), "--format", "json", "--no-progress"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": path},
    )


def finished(process: subprocess.Popen[str], *, code: int = 0) -> dict[str, Any]:
    """The document that it printed; nothing else came, and it left with `code`."""
    try:
        out, err = process.communicate(timeout=HANGS_S)
    finally:
        process.kill()
    assert process.returncode == code, out + err
    assert err == ""
    document: dict[str, Any] = json.loads(out)
    return document


def on_cluster(cluster: Running, **conf: str) -> list[str]:
    return ["--engine", "spark", "--spark-master", cluster.url, *words({**CONF, **conf}, "--spark-conf")]


def executors(cluster: Running) -> list[psutil.Process]:
    """The processes in which the cluster's tasks run now."""
    found = []
    for child in [child for process in cluster.processes for child in process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                found.append(child)
    return found
