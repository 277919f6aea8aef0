"""The peers: where they are and how they are asked."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from benchmarks.measure import OURS, PYTHON, Run, peak_mb_of, run
from benchmarks.spark_jars import ICEBERG, Jar, spark_jars

ICEBERG_GO = "github.com/apache/iceberg-go/cmd/iceberg@v0.7.0"
SPARK_MASTER = "local[2]"


@functools.cache
def find_iceberg_go() -> str | None:
    """iceberg-go's command line: on the PATH, or installed where Go is there."""
    found = shutil.which("iceberg")
    if found or not shutil.which("go"):
        return found
    target = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "iceberg-cli" / "go"
    if not (target / "iceberg").exists():
        print(f"installing {ICEBERG_GO}", file=sys.stderr)
        env = {**os.environ, "GOBIN": str(target)}
        if subprocess.run(
            ["go", "install", ICEBERG_GO], env=env, check=False, capture_output=True
        ).returncode:
            print("iceberg-go cannot be installed here; its rows are left out", file=sys.stderr)
            return None
    return str(target / "iceberg")


def go_command(go: str, location: str) -> list[str]:
    """iceberg-go on the Hadoop catalog that holds `location`."""
    return [go, "--catalog", "hadoop", "--warehouse", str(Path(location).parents[1])]


@functools.cache
def knows(verb: str, option: str) -> bool:
    """Whether our verb has this option."""
    return option in run([*OURS, verb, "--help"]).output.decode()


def spark_engine_is_there() -> bool:
    """Whether our own verbs can run on Spark here."""
    return find_spec("iceberg_cli.engines.spark.engine") is not None and find_spec("pyspark") is not None


class Session:
    """A Spark session in a process of its own, which runs Spark's statements or our command lines."""

    module = "benchmarks.spark_peer"
    jars: Sequence[Jar] = (ICEBERG,)

    def __init__(self, warehouse: str) -> None:
        self._command = [PYTHON, "-m", self.module, warehouse, SPARK_MASTER]
        self._process: subprocess.Popen[str] | None = (
            None  # not before it is asked: its start takes both cores
        )
        self._calls = 0

    def _start(self) -> None:
        jars = spark_jars(self.jars)
        self._started = time.perf_counter()
        self._process = subprocess.Popen(
            [*self._command, jars],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": PYTHON},  # Spark's workers: this one, not the PATH's
        )

    def _stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(60)
            self._process = None
            self._calls = 0

    def call(self, statement: str, *, cold: bool = False) -> Run:
        """Run one SQL statement; `cold` counts from the start of a new process."""
        return self._ask({"sql": statement}, cold=cold)

    def second_call(self, statement: str, between: Callable[[], None]) -> Run:
        """Run a statement as the second one of a new session.

        Args:
            statement: also the first one, untimed.
            between: puts back what the first one changed.
        """
        self._stop()
        self.call(statement)
        between()
        return self.call(statement)

    def command(self, arguments: Sequence[str]) -> Run:
        """Run one of our command lines inside the session."""
        return self._ask({"arguments": list(arguments)}, cold=False)

    def warm_up(self, statement: str) -> None:
        """Run a statement, unless this session has run something already."""
        if not self._calls:
            self.call(statement)

    def _ask(self, job: dict[str, Any], *, cold: bool) -> Run:
        if cold:
            self._stop()
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None
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
                members = _tree(process.pid)
                return Run(
                    seconds=time.perf_counter() - self._started if cold else answer["seconds"],
                    cpu_seconds=_cpu_seconds(process.pid) - cpu_before,
                    peak_mb=peak_mb_of(members),
                    driver_mb=peak_mb_of(members[:1]),
                )
        raise RuntimeError("Spark ended without an answer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()


def _tree(process_id: int) -> list[int]:
    import psutil

    return [process_id, *(child.pid for child in psutil.Process(process_id).children(recursive=True))]


def _cpu_seconds(process_id: int) -> float:
    """Of a process, the children it has and had, since their start."""
    import psutil

    total = 0.0
    for member in _tree(process_id):
        times = psutil.Process(member).cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total
