"""Wall time, processor time and peak memory of one command and all processes that it starts."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LOOK_SECONDS = 0.03
_REST = 10  # times as long as a look took: adding up the sizes of forked processes would slow down them alone

PYTHON = sys.executable
OURS = (PYTHON, "-m", "iceberg_cli")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a command, or one statement of a session."""

    seconds: float
    cpu_seconds: float  # user and system, of all its processes
    peak_mb: float  # of all its processes together
    driver_mb: float  # peak of the first process alone
    child_mb: float = 0  # peak of the process that it started first: a JVM where it is PySpark's
    output: bytes = b""
    stated: str = ""  # on standard error


@functools.cache
def machine() -> dict[str, object]:
    """Cores that may be used, memory in GB, processor, system and Python. No host names and no paths."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "processor": models[0] if models else platform.machine(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] = os.environ,
    folder: str | None = None,
    codes: Container[int] = (0,),
) -> Run:
    """Run a command to its end, in a folder, or in this one.

    Raises:
        RuntimeError: it left with none of these codes; the message holds what it said.
    """
    # Standard error goes to a file: a full pipe that nobody reads would stop the command.
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=dict(env), cwd=folder)
        tree = _Tree(process.pid)
        tree.start()
        assert process.stdout is not None
        with process.stdout as pipe:
            output = pipe.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        stated = errors.read().decode(errors="replace")
    if process.returncode not in codes:
        raise RuntimeError(f"{' '.join(command)} left with {process.returncode}: {stated[-2000:]}")
    own_mb = usage.ru_maxrss / 1024
    return Run(
        seconds=seconds, cpu_seconds=usage.ru_utime + usage.ru_stime, peak_mb=tree.peak_kb / 1024 or own_mb,
        driver_mb=tree.driver_kb / 1024 or own_mb, child_mb=tree.child_kb / 1024, output=output, stated=stated,
    )  # fmt: skip


class _Tree(threading.Thread):
    """Watches a process that may fork: its peak, or the sum of proportional set sizes where it has children.

    Not `ru_maxrss`: that starts with the size of the process that forked it.
    """

    def __init__(self, process_id: int) -> None:
        super().__init__(daemon=True)
        self._process_id = process_id
        self.peak_kb = 0
        self.driver_kb = 0
        self.child_kb = 0

    def run(self) -> None:
        started = time.monotonic()
        while os.path.exists(f"/proc/{self._process_id}/task"):
            look_started = time.monotonic()
            try:
                members = descendants(self._process_id)
                self.driver_kb = max(self.driver_kb, _field_kb(self._process_id, "status", "VmHWM:"))
                for child in members[1:2]:
                    self.child_kb = max(self.child_kb, _field_kb(child, "status", "VmHWM:"))
                forked = members if len(members) > 1 else ()
                together = sum(_field_kb(member, "smaps_rollup", "Pss:") for member in forked)
                self.peak_kb = max(self.peak_kb, together or self.driver_kb)
            except OSError:
                pass  # one has ended meanwhile; the next look tells
            now = time.monotonic()
            # Oftener at first, so that a short one is seen near its end.
            usual = min(_LOOK_SECONDS, 0.002 + (now - started) / 20)
            time.sleep(max(usual, _REST * (now - look_started)))


def peak_mb_of(process_ids: Sequence[int]) -> float:
    return sum(_field_kb(number, "status", "VmHWM:") for number in process_ids) / 1024


def descendants(process_id: int) -> list[int]:
    """A process, and those that it and they have started, which are still there."""
    found = [process_id]
    for member in found:
        text = Path(f"/proc/{member}/task/{member}/children").read_text()
        found += [int(child) for child in text.split()]
    return found


def _field_kb(process_id: int, file: str, field: str) -> int:
    for line in Path(f"/proc/{process_id}/{file}").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    return 0
