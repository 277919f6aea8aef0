"""One description of a comparison, and the run that measures such descriptions one after the other."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import machine, versions
from benchmarks.measure import Run

PAIRS = {"S": 5, "M": 3, "L": 1}

Work = Callable[[], Run]
Result = Callable[[Run], Hashable]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Us and a peer at the same work, to be run alternately.

    Args:
        name: the work.
        peer: who else does it.
        ours: one run of us.
        theirs: one run of the peer.
        before: untimed, before every run: puts the table in its place.
        warm_up: untimed, once before the first run.
        results: what a run of us and one of the peer gave, read by others than us; equal where both did the same.
        bar: the ratio that the median may reach at most.
        beyond_s: the seconds that our fastest run may take beyond the peer's.
        most_mb: what all our processes may take together.
        bar_sizes: the sizes for which the bars hold; on S start-up is most of the time.
        pairs: how many, where it is not for the size to say.
    """

    name: str
    peer: str
    ours: Work
    theirs: Work
    before: Callable[[], None] = lambda: None
    warm_up: Callable[[], object] = lambda: None
    results: tuple[Result, Result] | None = None
    bar: float | None = None
    beyond_s: float | None = None
    most_mb: float | None = None
    bar_sizes: str = "ML"
    pairs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Pairs of runs, back to back, in seconds and MB. Written as one JSON line."""

    name: str
    peer: str
    ours_s: tuple[float, ...]
    theirs_s: tuple[float, ...]
    ours_cpu_s: tuple[float, ...]
    theirs_cpu_s: tuple[float, ...]
    our_peak_mb: float
    their_peak_mb: float
    same: bool | None  # None: the two cannot be compared
    bar: float | None
    beyond_s: float | None
    most_mb: float | None

    @property
    def ratios(self) -> list[float]:
        """Of each pair, ascending."""
        return sorted(a / b for a, b in zip(self.ours_s, self.theirs_s, strict=True))

    @property
    def bars(self) -> list[tuple[str, bool]]:
        """Each bar that holds, as text, with whether it is met."""
        found: list[tuple[str, bool]] = []
        if self.bar is not None:
            found.append((f"{self.bar:.2f}", statistics.median(self.ratios) <= self.bar))
        if self.beyond_s is not None:
            found.append((f"+{self.beyond_s:g} s", min(self.ours_s) - min(self.theirs_s) <= self.beyond_s))
        if self.most_mb is not None:
            found.append((f"{self.most_mb:.0f} MB", self.our_peak_mb <= self.most_mb))
        return found

    def line(self) -> str:
        """One row of the printed table."""
        ratios = self.ratios
        bars = ", ".join(f"{text} {'met' if met else 'MISSED'}" for text, met in self.bars)
        return (
            f"{self.name:<41} {self.peer:<24} {len(ratios):>2}"
            f" {statistics.median(self.ours_s):>8.2f} {statistics.median(self.theirs_s):>8.2f}"
            f" {statistics.median(ratios):>6.2f} {ratios[0]:>6.2f} {ratios[-1]:>6.2f}"
            f" {self.our_peak_mb:>6.0f} {self.their_peak_mb:>6.0f} {SAME[self.same]:<4} {bars}"
        )


SAME = {None: "-", True: "yes", False: "NO"}
HEADER = (
    f"{'work':<41} {'peer':<24} {'n':>2} {'ours s':>8} {'peer s':>8} {'ratio':>6} {'min':>6} {'max':>6}"
    f" {'MB':>6} {'MB':>6} {'same':<4} bars"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """About what one size takes on two cores, tables included."""

    minutes: float
    spark_minutes: float  # more, with --spark
    disk_gb: float


@dataclass(kw_only=True)
class Bench:
    """One call of `python -m benchmarks NAME`."""

    name: str
    size_name: str
    minutes: float
    root: str
    spark: bool = False
    only: str = ""
    most_pairs: int | None = None
    report: str | None = None
    started: float = field(default_factory=time.monotonic)
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    left_out: list[str] = field(default_factory=list)

    def announce(self, costs: Mapping[str, Cost]) -> None:
        """Say what this will cost."""
        cost = costs[self.size_name]
        minutes = cost.minutes + (cost.spark_minutes if self.spark else 0)
        print(
            f"{self.name}, size {self.size_name}: about {minutes:g} minutes for all rows and {cost.disk_gb:g} GB of "
            f"disk in {self.root}; no new row after {self.minutes:g} minutes",
            flush=True,
        )

    @property
    def in_time(self) -> bool:
        """Whether there are minutes left."""
        return time.monotonic() < self.started + self.minutes * 60

    def targets(self, name: str, peer: str = "") -> bool:
        """Whether a row is to be measured; one for which no time is left is noted."""
        label = f"{name}, {peer}" if peer else name
        if self.only.lower() not in label.lower():
            return False
        if not self.in_time:
            self.left_out.append(label)
        return self.in_time

    def measure(self, pair: Pair) -> Row | None:
        """Run both alternately, print the row and write it to the report; None where it is not wanted."""
        if not self.targets(pair.name, pair.peer):
            return None
        left: list[Run] = []
        right: list[Run] = []
        same: bool | None = None if pair.results is None else True
        pair.before()
        pair.warm_up()
        for number in range(self.most_pairs or pair.pairs or PAIRS[self.size_name]):
            if number and not self.in_time:
                break
            given = []
            for side, (runs, work) in enumerate(((left, pair.ours), (right, pair.theirs))):
                pair.before()
                runs.append(work())
                if pair.results is not None:
                    given.append(pair.results[side](runs[-1]))
            same = None if same is None else same and given[0] == given[1]
        held = self.size_name in pair.bar_sizes
        row = Row(
            name=pair.name,
            peer=pair.peer,
            ours_s=tuple(round(run.seconds, 4) for run in left),
            theirs_s=tuple(round(run.seconds, 4) for run in right),
            ours_cpu_s=tuple(round(run.cpu_seconds, 3) for run in left),
            theirs_cpu_s=tuple(round(run.cpu_seconds, 3) for run in right),
            our_peak_mb=round(max(run.peak_mb for run in left), 1),
            their_peak_mb=round(max(run.peak_mb for run in right), 1),
            same=same,
            bar=pair.bar if held else None,
            beyond_s=pair.beyond_s if held else None,
            most_mb=pair.most_mb if held else None,
        )
        print(row.line(), flush=True)
        self.write("pair", {name: getattr(row, name) for name in row.__slots__})
        return row

    def write(self, kind: str, values: Mapping[str, Any]) -> None:
        """Append one line to the report: the values, and what they were measured with and on."""
        if self.report is None:
            return
        line = {
            "kind": kind,
            "benchmark": self.name,
            "size": self.size_name,
            **values,
            "command": self.command,
            "load_before": round(self.load, 2),
            "measured_at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "machine": machine(),
            "versions": versions(spark=self.spark or self.name == "spark"),
        }
        with open(self.report, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    @property
    def command(self) -> str:
        """What makes these rows again."""
        options = f" --minutes {self.minutes:g}{' --spark' if self.spark else ''}"
        return f"python -m benchmarks {self.name} --size {self.size_name}{options}"

    def kept(self, name: str, make: Callable[[str], object]) -> Kept:
        """A table of the warehouse, which is not made before it is needed."""
        return Kept(f"{self.root}/wh/db/{name}", f"{self.root}/pristine/{name}", make)


@contextlib.contextmanager
def opened(folder: str | None, **values: Any) -> Iterator[Bench]:
    """A run with its folder; a temporary one goes at the end. Says what was left out."""
    root = os.path.abspath(folder) if folder else tempfile.mkdtemp(prefix="iceberg-cli-bench-")
    bench = Bench(root=root, **values)
    try:
        yield bench
        for name in bench.left_out:
            print(f"left out, the {bench.minutes:g} minutes are over: {name}")
    finally:
        if folder is None:
            shutil.rmtree(root)


@dataclass
class Kept:
    """A table and a pristine copy of it made of hard links.

    Args:
        location: where runs see it.
        copy: where it stays as it was made.
        make: makes it at a location.
    """

    location: str
    copy: str
    make: Callable[[str], object]
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
            kept, given = Path(f"{self.copy}/{name}"), Path(f"{self.location}/{name}")
            if kept.exists():
                text = kept.read_bytes()
                given.unlink()
                given.write_bytes(text)
        self._state = "fresh"

    def remove(self) -> None:
        """Free the disk."""
        shutil.rmtree(self.location, ignore_errors=True)
        shutil.rmtree(self.copy, ignore_errors=True)
        self._state = "absent"
