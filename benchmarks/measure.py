"""Wall time and peak memory of commands, run alternately; ratios with their spread."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_LOOK_SECONDS = 0.03


@dataclass(frozen=True)
class Run:
    """One run of a command."""

    seconds: float
    peak_mb: float
    output: bytes


def run(command: Sequence[str], *, env: dict[str, str] | None = None) -> Run:
    """Run a command to its end.

    Raises:
        RuntimeError: it failed; the message holds what it said.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **(env or {})}
    )
    assert process.stdout is not None
    assert process.stderr is not None
    tree = _Tree(process.pid)
    tree.start()
    output = process.stdout.read()
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} left with {process.returncode}: {said.decode()[-2000:]}")
    return Run(seconds, tree.peak_mb() or usage.ru_maxrss / 1024, output)


class _Tree(threading.Thread):
    """Watches a process that may fork: its peak, or the sum of proportional set sizes where it has children.

    Not `ru_maxrss`: that starts with the size of the process that forked it.
    """

    def __init__(self, process_id: int) -> None:
        super().__init__(daemon=True)
        self._process_id = process_id
        self._peak_kb = 0

    def run(self) -> None:
        """Look until the process is gone."""
        while os.path.exists(f"/proc/{self._process_id}/task"):
            try:
                members = _descendants(self._process_id)
                alone = len(members) == 1
                now_kb = _high_water_kb(self._process_id) if alone else sum(map(_pss_kb, members))
                self._peak_kb = max(self._peak_kb, now_kb)
            except OSError:
                pass  # one has ended meanwhile; the next look tells
            time.sleep(_LOOK_SECONDS)

    def peak_mb(self) -> float:
        """In MB; 0 where it was too short to be seen."""
        return self._peak_kb / 1024


def _descendants(process_id: int) -> list[int]:
    found = [process_id]
    for member in found:
        text = Path(f"/proc/{member}/task/{member}/children").read_text()
        found += [int(child) for child in text.split()]
    return found


def _pss_kb(process_id: int) -> int:
    return _field_kb(process_id, "smaps_rollup", "Pss:")


def _high_water_kb(process_id: int) -> int:
    return _field_kb(process_id, "status", "VmHWM:")


def _field_kb(process_id: int, file: str, field: str) -> int:
    for line in Path(f"/proc/{process_id}/{file}").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    return 0


@dataclass(frozen=True)
class Compared:
    """Pairs of runs of us and of a peer, back to back."""

    name: str
    peer: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    our_peak_mb: float
    their_peak_mb: float
    bar: float | None

    def line(self) -> str:
        """One row of the printed table."""
        ratios = sorted(a / b for a, b in zip(self.ours, self.theirs, strict=True))
        middle = statistics.median(ratios)
        verdict = "" if self.bar is None else ("met" if middle <= self.bar else "MISSED")
        bar = "" if self.bar is None else f"{self.bar:.2f}"
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        return (
            f"{self.name:<34} {self.peer:<22} {ours:>8.2f} {theirs:>8.2f}"
            f" {middle:>7.2f} {ratios[0]:>6.2f} {ratios[-1]:>6.2f} {bar:>6} {verdict:<6}"
            f" {self.our_peak_mb:>6.0f} {self.their_peak_mb:>6.0f}"
        )


HEADER = (
    f"{'work':<34} {'peer':<22} {'ours s':>8} {'peer s':>8} {'ratio':>7} {'min':>6} {'max':>6} {'bar':>6} {'':<6}"
    f" {'MB':>6} {'MB':>6}"
)


def compare(
    name: str,
    peer: str,
    ours: Callable[[], Run],
    theirs: Callable[[], Run],
    *,
    pairs: int,
    bar: float | None,
    prepare: Callable[[], None] = lambda: None,
    until: float,
) -> Compared:
    """Run both alternately, `pairs` times or until the time is over, once at least; `prepare` before each run."""
    left: list[Run] = []
    right: list[Run] = []
    for number in range(pairs):
        if number and time.monotonic() > until:
            break
        for runs, work in ((left, ours), (right, theirs)):
            prepare()
            runs.append(work())
    result = Compared(
        name,
        peer,
        tuple(r.seconds for r in left),
        tuple(r.seconds for r in right),
        max(r.peak_mb for r in left),
        max(r.peak_mb for r in right),
        bar,
    )
    print(result.line(), flush=True)
    return result


PYTHON = sys.executable
OURS = (PYTHON, "-m", "iceberg_cli")
