"""`python -m benchmarks growth`: how time, memory, requests and the journal grow with the table.

Two series of tables. In one, everything grows together: snapshots, files and manifests. In the other the day's work
stays as it is, and only what all snapshots share grows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks import slopes
from benchmarks.bench import Bench, Cost, Kept
from benchmarks.expire import DAILY, compile_all, day_one, expire_arguments, unlearnt
from benchmarks.measure import OURS, PYTHON, run
from benchmarks.peers import knows
from benchmarks.tables import SIZES, Size, make_table
from iceberg_cli.iceberg.reachability.cache_folder import cache_folder
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests

COSTS = {
    "S": Cost(minutes=2, spark_minutes=0, disk_gb=0.3),
    "M": Cost(minutes=12, spark_minutes=0, disk_gb=2),
    "L": Cost(minutes=60, spark_minutes=0, disk_gb=14),
}
# 0.4 thousand to 2.6 million files; a size takes six, the last of which is its own table.
TOGETHER = (
    Size(20, 20, 5), Size(32, 32, 5), Size(50, 60, 5), Size(75, 75, 10), SIZES["S"], Size(200, 150, 10),
    Size(400, 250, 10), SIZES["M"], Size(2_000, 350, 20), SIZES["L"],
)  # fmt: skip
LAST = {"S": 5, "M": 8, "L": 10}
STEPS = 6
# Snapshots and files of each, and what they share: tenfold or more in five steps.
SHARED = {
    "S": (100, 20, (2_000, 5_000, 10_000, 15_000, 20_000)),
    "M": (1_000, 100, (50_000, 100_000, 200_000, 350_000, 500_000)),
    "L": (1_000, 100, (50_000, 200_000, 500_000, 1_000_000, 2_000_000)),
}
REPEATED = 300_000  # entries up to which a point is the median of three runs
HEADER = (
    f"{'work':<28} {'entries':>10} {'seconds':>8} {'cpu s':>7} {'MB':>6} {'driver':>6}"
    f" {'requests':>9} {'reads':>7} {'MB read':>8} {'journal':>9}"
)


@dataclass(frozen=True, kw_only=True)
class Work:
    """One kind of run, whose growth is looked at."""

    name: str
    arguments: list[str]
    before: Callable[[], None]
    entries: Callable[[Kept], int]  # what it must read at least, or what the table holds
    counted: tuple[str, dict[str, Any], bool] | None = None  # verb, policy, with the cache


def main(bench: Bench) -> None:
    """Measure each work on each table, fit the slopes."""
    bench.announce(COSTS)
    compile_all(bench.root)
    print(HEADER)
    points: list[dict[str, Any]] = []
    last = LAST[bench.size_name]
    for number, size in enumerate(TOGETHER[max(0, last - STEPS) : last]):
        table = bench.kept(f"step{number}", partial(make_table, size=size, whole=False))
        points += [point for work in works_on_whole(table, size) if (point := measure(bench, table, work))]
        table.remove()
    snapshots, files, splits = SHARED[bench.size_name]
    for number, shared in enumerate(splits):
        size = Size(snapshots, files, 10, shared)
        table = bench.kept(f"shared{number}", partial(make_table, size=size))
        points += [point for work in works_of_a_day(table, size) if (point := measure(bench, table, work))]
        table.remove()
    for line in slopes.lines(points):
        print(line)


def works_on_whole(table: Kept, size: Size) -> list[Work]:
    """The verbs whose work grows with the table."""
    location = table.location
    expiry = ExpireSnapshots(older_than=size.last_ms, retain_last=size.kept)
    return [
        Work(
            name="expiry plan",
            arguments=[*expire_arguments(location, size.last_ms, size.kept), "--dry-run"],
            before=partial(unlearnt, table.untouched),
            entries=lambda kept: int(kept.made.entries),
            counted=("expire-snapshots", expiry.to_json(), False),
        ),
        Work(
            name="inspect files",
            arguments=["inspect", location, "files", "-o", f"{location}.files.parquet", "-q"],
            before=table.untouched,
            entries=lambda kept: int(kept.made.live_files),
        ),
        Work(
            name="rewrite-manifests",
            arguments=["rewrite-manifests", location, "-q", "--yes"],
            before=table.fresh,
            entries=lambda kept: int(kept.made.live_files),
            counted=("rewrite-manifests", RewriteManifests().to_json(), False),
        ),
    ]


def works_of_a_day(table: Kept, size: Size) -> list[Work]:
    """The daily job, whose work is the same on each table."""
    first = size.snapshots - DAILY
    second = first - DAILY
    day = partial(day_one, table, size.last_ms, first)
    days: list[tuple[str, list[str], bool]] = [("the daily job", [], False)]
    if knows("expire-snapshots", "--no-cache"):
        days = [("the daily job, no cache", ["--no-cache"], False), ("the daily job, second day", [], True)]
    policy = ExpireSnapshots(older_than=size.last_ms, retain_last=second).to_json()
    return [
        Work(
            name=name,
            arguments=[*expire_arguments(table.location, size.last_ms, second), "--yes", *options],
            before=day,
            entries=lambda kept: int(kept.made.live_files),
            counted=("expire-snapshots", policy, cached),
        )
        for name, options, cached in days
    ]


def measure(bench: Bench, table: Kept, work: Work) -> dict[str, Any] | None:
    """One point: time and memory of the command, then requests and journal of the same work, counted."""
    if not bench.targets(work.name):
        return None
    table.untouched()
    entries = work.entries(table)
    runs = []
    for _ in range(3 if entries <= REPEATED else 1):
        work.before()
        runs.append(run([*OURS, *work.arguments]))
    counts = _count(table, work)
    middle = sorted(runs, key=lambda each: each.seconds)[len(runs) // 2]
    point = {
        "work": work.name,
        "entries": entries,
        "live_files": table.made.live_files,
        "seconds": round(middle.seconds, 4),
        "cpu_seconds": round(middle.cpu_seconds, 3),
        "peak_mb": round(max(each.peak_mb for each in runs), 1),
        "driver_mb": round(max(each.driver_mb for each in runs), 1),
        **counts,
    }
    print(
        f"{work.name:<28} {entries:>10,} {middle.seconds:>8.2f} {middle.cpu_seconds:>7.2f} {point['peak_mb']:>6.0f}"
        f" {point['driver_mb']:>6.0f} {counts.get('requests', 0):>9,}"
        f" {counts.get('reads', 0):>7,} {counts.get('bytes_read', 0) / 1e6:>8.1f} {counts.get('journal_bytes', 0):>9,}",
        flush=True,
    )
    bench.write("point", point)
    return point


def _count(table: Kept, work: Work) -> dict[str, Any]:
    """Requests of the plan alone where nothing is carried out, of the whole work otherwise."""
    if work.counted is None:
        return {}
    verb, policy, cached = work.counted
    if "--dry-run" in work.arguments:
        table.fresh()  # the counted run carries out, too
    else:
        work.before()
    cache = str(cache_folder(os.environ) or "") if cached else ""
    command = [PYTHON, "-m", "benchmarks.counted", table.location, verb, json.dumps(policy), cache]
    counts: dict[str, Any] = json.loads(run(command).output)
    if "--dry-run" in work.arguments:
        counts["requests"] = counts["plan_requests"]
    return counts
