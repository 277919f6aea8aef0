"""Verbs on a standalone master with two workers, and on a Spark Connect server, each in processes of their own."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.tables import Size, make_table
from tests.cli.lakes import GONE, four_snapshots
from tests.cli.running import iceberg_cli
from tests.manifest_tables import live_entries, of_folder
from tests.spark_tables.sessions import require_spark

pytestmark = pytest.mark.jvm

ROOT = Path(__file__).parents[1]
WAIT_S = 60
SECRET = "a-secret-that-nobody-may-see"
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.ui.enabled": "false",
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


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def started(folder: Path, name: str, arguments: Sequence[str], port: int | None) -> Iterator[psutil.Process]:
    """A class of Spark in its own process, which listens on `port` when it is given."""
    pyspark = pytest.importorskip("pyspark")
    home = Path(pyspark.__file__).parent
    own = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**os.environ, **own, "SPARK_WORKER_DIR": str(folder)},
        )
    try:
        until = time.monotonic() + WAIT_S
        while port is not None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None
            assert time.monotonic() < until, (folder / f"{name}.log").read_text()
            time.sleep(0.1)
        yield psutil.Process(process.pid)
    finally:
        for child in [*psutil.Process(process.pid).children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A master and two workers of one core each."""
    require_spark()
    folder, port = tmp_path_factory.mktemp("cluster"), free_port()
    url = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    with contextlib.ExitStack() as stack:
        master = [f"{package}.master.Master", *here, "--port", str(port)]
        processes = [stack.enter_context(started(folder, "master", master, port))]
        for number in range(2):
            worker = [f"{package}.worker.Worker", *here, "-c", "1", "-m", "1g", "-d", str(folder), url]
            processes.append(stack.enter_context(started(folder, f"worker-{number}", worker, None)))
        until = time.monotonic() + WAIT_S
        while (folder / "master.log").read_text().count("Registering worker") < 2:
            assert time.monotonic() < until
            time.sleep(0.1)
        yield Running(url, processes, folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A Spark Connect server on two cores."""
    missing = [name for name in ("grpc", "grpc_status", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"Spark Connect needs {', '.join(missing)}: pip install 'pyspark[connect]'")
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    conf = {
        **CONF,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    arguments = [
        "org.apache.spark.deploy.SparkSubmit",
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--master", "local[2]", *words(conf), "spark-internal",
    ]  # fmt: skip
    with started(folder, "server", arguments, port) as process:
        yield Running(f"sc://127.0.0.1:{port}", [process], folder)


def words(conf: Mapping[str, str], option: str = "--conf") -> list[str]:
    return [word for key, value in conf.items() for word in (option, f"{key}={value}")]


def start(*arguments: object) -> subprocess.Popen[str]:
    """`iceberg-cli` in its own process, from a folder in which workers would not find the package."""
    return subprocess.Popen(
        [sys.executable, "-m", "iceberg_cli", *map(str, arguments), "--format", "json", "--no-progress"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
    )


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The document that it printed; nothing else came."""
    try:
        out, err = process.communicate(timeout=180)
    finally:
        process.kill()
    assert process.returncode == 0, out + err
    assert err == ""
    document: dict[str, Any] = json.loads(out)
    return document


def on_cluster(cluster: Running, **conf: str) -> list[str]:
    return ["--engine", "spark", "--spark-master", cluster.url, *words({**CONF, **conf}, "--spark-conf")]


def expiry(folder: object) -> tuple[object, ...]:
    return ("plan", folder, "expire-snapshots", "--older-than", "1s", "--retain-last", "3", "--as-of")


def compared(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plan[name] for name in ("verdicts", "removals", "warnings", "blocked_by")}


def executors(cluster: Running) -> list[psutil.Process]:
    """The processes in which the cluster's tasks run now."""
    found = []
    for child in [child for process in cluster.processes for child in process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                found.append(child)
    return found


def test_a_cluster_plans_as_one_process_does_though_an_executor_is_killed_and_tasks_run_twice(
    cluster: Running, tmp_path: Path
) -> None:
    made = make_table(str(tmp_path / "t"), Size(300, 150, 3))
    command = (*expiry(made.location), made.last_ms + 10_000)
    local = iceberg_cli(*command, "--engine", "local", "--format", "json").json
    process = start(*command, *on_cluster(cluster, **TWICE))
    until = time.monotonic() + WAIT_S
    try:
        while not (busy := [each for each in executors(cluster) if each.children(recursive=True)]):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(3)  # by then it has looked what the workers have, and reads
        assert process.poll() is None
        busy[0].send_signal(signal.SIGKILL)
    except BaseException:
        process.kill()
        raise
    found = finished(process)
    assert compared(found) == compared(local)
    assert found["removals"]["count"] > 0


@pytest.mark.deep
def test_a_verb_is_carried_out_on_a_cluster(cluster: Running, tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t")
    table.publish()
    before = table.files()
    done = finished(
        start(
            "expire-snapshots", tmp_path / "t", "--older-than", "1s", "--retain-last", "1", "--yes",
            *on_cluster(cluster),
        )
    )  # fmt: skip
    assert (done["status"], done["deleted_data_files_count"]) == ("done", 2)
    assert before - table.files() == GONE


@pytest.mark.deep
@pytest.mark.parametrize("where", ["cluster", "server"])
def test_workers_write_new_manifests_of_the_same_entries_though_tasks_run_twice(
    request: pytest.FixtureRequest, tmp_path: Path, where: str
) -> None:
    running: Running = request.getfixturevalue(where)
    spark = ["--engine", "spark", "--spark-remote", running.url]
    made = make_table(str(tmp_path / "t"), Size(60, 40, 3))
    before = live_entries(of_folder(tmp_path / "t"))
    done = finished(
        start(
            "rewrite-manifests", made.location, "--target-size", "16KiB", "--yes",
            *(on_cluster(running, **TWICE) if where == "cluster" else spark),
        )
    )  # fmt: skip
    assert (done["status"], done["added_manifests_count"] > 3) == ("done", True)
    after = of_folder(tmp_path / "t")
    assert len(before) > 1_000
    assert live_entries(after) == before
    new = {path.name for path in (tmp_path / "t/metadata").glob("*-spec0-*.avro")}
    assert new <= {Path(row["manifest_path"]).name for row in after.manifests()}
    assert len(new) == done["added_manifests_count"]


def test_spark_connect_plans_as_one_process_does_and_logs_no_secret(server: Running, tmp_path: Path) -> None:
    made = make_table(str(tmp_path / "t"), Size(60, 40, 3))
    command = (*expiry(made.location), made.last_ms + 10_000)
    local = iceberg_cli(*command, "--engine", "local", "--format", "json").json
    secret = ("--storage-option", f"s3.secret-access-key={SECRET}")
    found = finished(start(*command, *secret, "--engine", "spark", "--spark-remote", server.url))
    assert compared(found) == compared(local)
    assert SECRET not in "".join(path.read_text() for path in server.logs.glob("*.log"))
