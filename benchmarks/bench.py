"""Rows that compare two programs at the same work, and the run that measures them one after the other."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import Run, machine
from benchmarks.peers import versions

# What a size takes on two cores, tables included: minutes of all rows, more of them with --spark, GB of disk.
COSTS = {
    "expire": {"S": (1, 5, 0.1), "M": (5, 12, 0.8), "L": (30, 60, 8)},
    "v3": {"S": (1, 4, 0.1), "M": (8, 30, 2), "L": (30, 60, 14)},
    "delta": {"S": (1, 5, 0.1), "M": (5, 20, 1), "L": (45, 180, 8)},
    "spark": {"S": (9, 0, 0.2), "M": (50, 0, 3), "L": (120, 0, 16)},
    "rest": {"S": (2, 4, 0.2), "M": (20, 24, 1), "L": (20, 60, 5)},
    "growth": {"S": (2, 0, 0.3), "M": (12, 0, 2), "L": (60, 0, 14)},
    "fleet": {"S": (3, 0, 0.1), "M": (20, 0, 1), "L": (20, 0, 1)},
    "compaction": {"S": (1, 9, 0.3), "M": (3, 20, 3), "L": (30, 120, 25)},
    "beside": {"S": (1, 0, 0.3), "M": (3, 0, 3), "L": (30, 0, 25)},
    "order": {"S": (2, 6, 0.1), "M": (4, 10, 1), "L": (30, 40, 8)},
    "orphans": {"S": (1, 3, 0.2), "M": (3, 8, 2), "L": (15, 30, 9)},
    "driver": {"S": (3, 0, 0.1), "M": (6, 0, 0.3), "L": (20, 0, 6)},
    "versions": {"S": (5, 0, 0.1), "M": (25, 0, 3), "L": (120, 0, 20)},
}
PAIRS = {"S": 5, "M": 3, "L": 1}
SAME = {None: "-", True: "yes", False: "NO"}
HEADER = "work | peer | pairs | ours s | peer s | ratio | bar | ours MB | peer MB | same"
WIDTHS = (41, 24, 5, 7, 7, 22, 25, 7, 7, 4)

Work = Callable[[], Run]
Look = Callable[[Run], Hashable]
Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """Us and a peer at the same work, to be run alternately."""

    name: str  # the work
    peer: str
    ours: Work  # one run of us
    theirs: Work | None  # one run of the peer; None where it is not here
    before: Callable[[], None] = lambda: None  # untimed, before every run: puts the table in its place
    warm_up: Callable[[], object] = lambda: None  # untimed, once before the first run
    look: Look | None = None  # at what a run gave, by others than us; equal where both did the same
    their_look: Look | None = None  # where it is another one for the peer's runs
    bar: float | None = None  # the ratio that the median may reach at most
    processor_bar: float | None = None  # likewise of processor times, which are then a line of their own
    most_mb: float | None = None  # what all our processes may take together
    most_s: float | None = None  # what we may take at most
    bar_sizes: str = "ML"  # for which the bars hold; on S start-up is most of the time
    pairs: int | None = None  # where it is not for the size to say


def ratios_of(line: Line) -> list[float]:
    """Ours to the peer's of each pair of a measured row, ascending."""
    return sorted(a / b for a, b in zip(line["ours_s"], line["theirs_s"], strict=True))


def cells_of(line: Line, missed: str) -> list[str]:
    """A measured row in the columns of `HEADER`."""
    ratios, bars = ratios_of(line), []
    ratio = median(ratios)
    if line["bar"] is not None:
        bars.append(f"{line['bar']:.2f} {'met' if ratio <= line['bar'] else missed}")
    if line.get("most_s") is not None:
        bars.append(f"{line['most_s']:.0f} s {'met' if median(line['ours_s']) <= line['most_s'] else missed}")
    if line["most_mb"] is not None:
        bars.append(f"{line['most_mb']:.0f} MB {'met' if line['our_peak_mb'] <= line['most_mb'] else missed}")
    return [
        line["name"], line["peer"], str(len(ratios)), f"{median(line['ours_s']):.2f}",
        f"{median(line['theirs_s']):.2f}", f"{ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})", ", ".join(bars),
        f"{line['our_peak_mb']:.0f}", f"{line['their_peak_mb']:.0f}", SAME[line["same"]],
    ]  # fmt: skip


def show(cells: Iterable[str], widths: Iterable[int] = WIDTHS) -> None:
    print(
        " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip(), flush=True
    )


@dataclass(kw_only=True)
class Bench:
    """One call of `python -m benchmarks NAME`."""

    name: str
    size_name: str
    minutes: float
    root: str
    spark: bool = False
    only: str = ""
    pairs: int | None = None
    report: str | None = None
    before: str = ""  # of `versions` alone: a checkout of our program
    bar: float = 1.1  # likewise: the ratio that a median may reach
    started: float = field(default_factory=time.monotonic)
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    left_out: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def announce(self) -> None:
        minutes, spark_minutes, disk_gb = COSTS[self.name][self.size_name]
        print(
            f"{self.name}, size {self.size_name}: about {minutes + spark_minutes * self.spark:g} minutes for all rows "
            f"and {disk_gb:g} GB of disk in {self.root}; no new row after {self.minutes:g} minutes",
            flush=True,
        )

    @property
    def in_time(self) -> bool:
        return time.monotonic() < self.started + self.minutes * 60

    def selects(self, name: str, peer: str = "") -> bool:
        """Whether a row is to be measured; one for which no time is left is noted."""
        label = f"{name}, {peer}" if peer else name
        if self.only.lower() not in label.lower():
            return False
        if not self.in_time:
            self.left_out.append(label)
        return self.in_time

    def run_pairs(self, row: Row, *, alternating: bool = False) -> tuple[list[Run], list[Run], bool | None]:
        """The runs of both sides, and whether each pair's results are the same; `alternating` who goes first."""
        assert row.theirs is not None
        sides = ((row.ours, row.look), (row.theirs, row.their_look or row.look))
        runs: tuple[list[Run], list[Run]] = ([], [])
        same = None if row.look is None else True
        row.before()
        row.warm_up()
        for number in range(self.pairs or row.pairs or PAIRS[self.size_name]):
            if number and not self.in_time:
                break
            found: list[Hashable] = []
            for side in (1, 0) if alternating and number % 2 else (0, 1):
                row.before()
                work, look = sides[side]
                runs[side].append(work())
                found += [look(runs[side][-1])] if look else []
            same = None if same is None else same and found[0] == found[1]
        return *runs, same

    def measure(self, row: Row) -> Line | None:
        """Run both sides, print the row and write it to the report; None where it is not wanted or has no peer here."""
        if row.theirs is None or not self.selects(row.name, row.peer):
            return None
        ours, theirs, same = self.run_pairs(row)
        holds = self.size_name in row.bar_sizes
        line = {
            "name": row.name, "peer": row.peer,
            "ours_s": [round(run.seconds, 4) for run in ours], "theirs_s": [round(run.seconds, 4) for run in theirs],
            "ours_cpu_s": [round(run.cpu_seconds, 3) for run in ours],
            "theirs_cpu_s": [round(run.cpu_seconds, 3) for run in theirs],
            "our_peak_mb": round(max(run.peak_mb for run in ours), 1),
            "their_peak_mb": round(max(run.peak_mb for run in theirs), 1),
            "same": same, "bar": row.bar if holds else None,
            "most_s": row.most_s if holds else None, "most_mb": row.most_mb if holds else None,
        }  # fmt: skip
        lines = [line]
        if row.processor_bar is not None:
            seconds = {f"{side}_s": line[f"{side}_cpu_s"] for side in ("ours", "theirs")}
            bars = {"bar": row.processor_bar if holds else None, "most_s": None}
            lines.append({**line, **seconds, **bars, "name": f"{row.name}: processor"})
        for each in lines:
            show(cells_of(each, "MISSED"))
            self.write("pair", each)
        self.check_same(f"{row.name}, {row.peer}", same)
        return line

    def check_same(self, label: str, same: bool | None) -> None:
        """Have the run fail where results differ: such a ratio compares nothing."""
        if same is False:
            self.failures.append(f"{label}: the results differ")

    def write(self, kind: str, values: Mapping[str, Any]) -> None:
        """Append one line to the report: the values, and what they were measured with and on."""
        if self.report is None:
            return
        line = {
            "kind": kind, "benchmark": self.name, "size": self.size_name, **values, "command": self.command,
            "load_before": round(self.load, 2), "measured_at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "machine": machine(), "versions": versions(spark=self.spark or self.name == "spark"),
        }  # fmt: skip
        with open(self.report, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    @property
    def command(self) -> str:
        only = f" --only {shlex.quote(self.only)}" if self.only else ""
        pairs = f" --pairs {self.pairs}" if self.pairs else ""
        before = f" --before DIR --bar {self.bar:g}" if self.name == "versions" else ""
        options = f"--minutes {self.minutes:g}{' --spark' if self.spark else ''}{only}{pairs}{before}"
        return f"python -m benchmarks {self.name} --size {self.size_name} {options}"

    def table(self, name: str, make: Callable[[str], object]) -> BenchTable:
        """A table of the warehouse, which is not made before it is needed."""
        return BenchTable(f"{self.root}/wh/db/{name}", f"{self.root}/pristine/{name}", make)


@contextlib.contextmanager
def open_bench(folder: str | None, **values: Any) -> Iterator[Bench]:
    """A run with its folder; a temporary one goes at the end. Says what was left out, and fails where a row did."""
    root = os.path.abspath(folder) if folder else tempfile.mkdtemp(prefix="iceberg-cli-bench-")
    bench = Bench(root=root, **values)
    try:
        yield bench
        for name in bench.left_out:
            print(f"left out, the {bench.minutes:g} minutes are over: {name}")
        if bench.failures:
            raise SystemExit("\n".join(bench.failures))
    finally:
        if folder is None:
            shutil.rmtree(root)


@dataclass
class BenchTable:
    """A table and a pristine copy of it made of hard links."""

    location: str  # where runs see it
    copy: str  # where it stays as it was made
    make: Callable[[str], object]  # makes it at a location
    made: Any = None  # what `make` returned
    _state: str = "absent"  # or "fresh", or "given": some run may have changed it

    def fresh(self) -> None:
        """Have it as it was made, for a run that changes it."""
        self.untouched()
        self._state = "given"

    def untouched(self) -> None:
        """Have it as it was made, for runs that only read."""
        if self._state == "absent":
            for folder in (self.location, self.copy):
                shutil.rmtree(folder, ignore_errors=True)
                os.makedirs(os.path.dirname(folder), exist_ok=True)
            self.made = self.make(self.location)
            subprocess.run(["cp", "-al", self.location, self.copy], check=True)
        elif self._state == "given":
            shutil.rmtree(self.location)
            subprocess.run(["cp", "-al", self.copy, self.location], check=True)
        # The files that a writer may change in place, which would change the copy too.
        for name in ("metadata/version-hint.text", "_delta_log/_last_checkpoint"):
            pristine, given = Path(f"{self.copy}/{name}"), Path(f"{self.location}/{name}")
            if pristine.exists():
                text = pristine.read_bytes()
                given.unlink()
                given.write_bytes(text)
        self._state = "fresh"

    def uncached(self, *, changing: bool = True) -> None:
        """Have it as it was made, for a run that changes it or not, with nothing cached of any table."""
        shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)
        (self.fresh if changing else self.untouched)()

    def remove(self) -> None:
        shutil.rmtree(self.location, ignore_errors=True)
        shutil.rmtree(self.copy, ignore_errors=True)
        self._state = "absent"
