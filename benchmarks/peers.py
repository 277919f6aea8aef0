"""The peers: where they are and how they are asked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Self

from benchmarks.measure import PYTHON, Run

ICEBERG_GO = "github.com/apache/iceberg-go/cmd/iceberg@v0.7.0"


def find_iceberg_go() -> str | None:
    """iceberg-go's command line: on the PATH, or installed where Go is there."""
    found = shutil.which("iceberg")
    if found or not shutil.which("go"):
        return found
    target = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "iceberg-cli" / "go"
    if not (target / "iceberg").exists():
        print(f"installing {ICEBERG_GO}")
        env = {**os.environ, "GOBIN": str(target)}
        if subprocess.run(
            ["go", "install", ICEBERG_GO], env=env, check=False, capture_output=True
        ).returncode:
            print("iceberg-go cannot be installed here; its rows are left out")
            return None
    return str(target / "iceberg")


def go_command(go: str, location: str) -> list[str]:
    """iceberg-go on the Hadoop catalog that holds `location`."""
    return [go, "--catalog", "hadoop", "--warehouse", str(Path(location).parents[1])]


class Session:
    """A Spark session in a process of its own."""

    def __init__(self, warehouse: str) -> None:
        self._command = [PYTHON, "-m", "benchmarks.spark_peer", warehouse]
        self._process: subprocess.Popen[str] | None = (
            None  # not before it is asked: its start takes both cores
        )

    def _start(self) -> None:
        self._started = time.perf_counter()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def _stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(60)
            self._process = None

    def call(self, statement: str, *, cold: bool = False) -> Run:
        """Run one SQL statement; `cold` counts from the start of a new process."""
        if cold:
            self._stop()
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"sql": statement}) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("TOOK "):
                seconds = time.perf_counter() - self._started if cold else float(line[5:])
                return Run(seconds, _tree_mb(self._process.pid), b"")
        raise RuntimeError("Spark ended without an answer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()


def _tree_mb(process_id: int) -> float:
    """Peak memory of a process and its children, in MB."""
    import psutil

    process = psutil.Process(process_id)
    total = 0
    for member in [process, *process.children(recursive=True)]:
        for line in Path(f"/proc/{member.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                total += int(line.split()[1])
    return total / 1024
