"""`python -m benchmarks growth`: how time, memory, requests and the journal grow with the table.

Two series of tables. In one, everything grows together: snapshots, files and manifests. In the other the day's work
stays as it is, and only what all snapshots share grows.

`python -m benchmarks.growth LOCATION VERB POLICY CACHE` counts what a verb asks of the storage, in a process of its
own, with one thread and no worker processes, so that every request passes through it. The policy is that of a plan, as
JSON; CACHE is the cache's folder or empty. Prints the requests by kind and the bytes read, as JSON.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks import slopes
from benchmarks.bench import Bench, BenchTable, show
from benchmarks.compaction import make_rows_table
from benchmarks.measure import OURS, PYTHON, run
from benchmarks.rows import DAILY, day_one, expiry, shown_file
from benchmarks.tables import SIZES
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.iceberg.catalogs.folders import open_folder
from iceberg_cli.iceberg.reachability.cache_folder import cache_folder
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
from iceberg_cli.operation.apply import apply
from iceberg_cli.operation.runtime import system_runtime
from iceberg_cli.paths import OPERATIONS_FOLDER
from iceberg_cli.storage.router import open_storage
from tests.large_tables import Size, make_table

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
ROWS = {
    "S": (100_000, 300_000, 1_000_000),
    "M": (1_000_000, 3_000_000, 10_000_000),
    "L": (1_000_000, 3_000_000, 10_000_000, 30_000_000),
}
ROWS_OF_FILE = 10_000
BY_ROWS = "rewrite-data-files, by rows"  # its entries are rows
HEADER = "work | entries | seconds | cpu s | MB | driver | requests | reads | MB read | journal"
WIDTHS = (28, 11, 8, 7, 6, 6, 9, 7, 8, 9)
FIT_WIDTHS = (28, 13, 5, 17, 32, 5, 12, 12)
_ONE = ("read", "stat", "put_if_absent", "list")
_MANY = {"stat_many": 1, "delete": 1_000}  # objects in one request to an object store
_CACHE_BYTES = 1 << 30


@dataclass(frozen=True)
class Job:
    """One kind of run, whose growth is looked at."""

    name: str
    table: BenchTable
    arguments: list[str]
    before: Callable[[], None]
    entries: str = "live_files"  # what it must read at least, or what the table holds: an attribute of `Made`
    policy: ExpireSnapshots | RewriteManifests | None = None  # its requests are counted
    cached: bool = False


def main(bench: Bench) -> None:
    show(HEADER.split(" | "), WIDTHS)
    points: list[dict[str, Any]] = []
    together = TOGETHER[max(0, LAST[bench.size_name] - STEPS) : LAST[bench.size_name]]
    snapshots, files, splits = SHARED[bench.size_name]
    daily = [(Size(snapshots, files, 10, shared), daily_jobs) for shared in splits]
    for rows in ROWS[bench.size_name]:
        made = bench.table(f"rows{rows}", partial(_rows_table, rows=rows))
        rewrite = ["rewrite-data-files", made.location, "-q", "--yes"]
        job = Job(BY_ROWS, made, rewrite, made.fresh, "rows")
        points += [point for point in [measure(bench, job)] if point]
        made.remove()
    for number, (size, jobs) in enumerate([*((size, whole_jobs) for size in together), *daily]):
        table = bench.table(f"step{number}", partial(make_table, size=size))
        points += [point for job in jobs(table, size) if (point := measure(bench, job))]
        table.remove()
    show(slopes.HEADER.split(" | "), FIT_WIDTHS)
    for cells in slopes.cells_of_fits(points):
        show(cells, FIT_WIDTHS)


def _rows_table(location: str, *, rows: int) -> SimpleNamespace:
    files = rows // ROWS_OF_FILE
    make_rows_table(location, files=files, rows=ROWS_OF_FILE, version=2)
    return SimpleNamespace(rows=rows, live_files=files)


def whole_jobs(table: BenchTable, size: Size) -> Iterator[Job]:
    """The verbs whose work grows with the table."""
    policy = ExpireSnapshots(older_than=size.last_ms, retain_last=size.kept)
    plan, untouched = [*expiry(table, size, size.kept), "--dry-run"], partial(table.uncached, changing=False)
    yield Job("expiry plan", table, plan, untouched, "entries", policy)
    files = ["inspect", table.location, "files", "-o", shown_file(table), "-q"]
    yield Job("inspect files", table, files, table.untouched)
    rewrite = ["rewrite-manifests", table.location, "-q", "--yes"]
    yield Job("rewrite-manifests", table, rewrite, table.fresh, policy=RewriteManifests())


def daily_jobs(table: BenchTable, size: Size) -> Iterator[Job]:
    """The daily job, whose work is the same on each table."""
    kept = size.snapshots - 2 * DAILY
    policy, day = ExpireSnapshots(older_than=size.last_ms, retain_last=kept), partial(day_one, table, size)
    job = [*expiry(table, size, kept), "--yes"]
    yield Job("the daily job, no cache", table, [*job, "--no-cache"], day, policy=policy)
    yield Job("the daily job, second day", table, job, day, policy=policy, cached=True)


def measure(bench: Bench, job: Job) -> dict[str, Any] | None:
    """One point: time and memory of the command, then requests and journal of the same work, counted."""
    if not bench.selects(job.name):
        return None
    job.table.untouched()
    entries = int(getattr(job.table.made, job.entries))
    runs = []
    for _ in range(3 if entries <= REPEATED else 1):
        job.before()
        runs.append(run([*OURS, *job.arguments]))
    counts = _count(job)
    middle = sorted(runs, key=lambda each: each.seconds)[len(runs) // 2]
    point = {
        "work": job.name, "entries": entries, "live_files": job.table.made.live_files,
        "seconds": round(middle.seconds, 4), "cpu_seconds": round(middle.cpu_seconds, 3),
        "peak_mb": round(max(each.peak_mb for each in runs), 1),
        "driver_mb": round(max(each.driver_mb for each in runs), 1), **counts,
    }  # fmt: skip
    names = ("entries", "seconds", "cpu_seconds", "peak_mb", "driver_mb", "requests", "reads", "bytes_read")
    numbers = [point.get(name, 0) for name in (*names, "journal_bytes")]
    numbers[-2] /= 1e6
    show([job.name, *(f"{n:,.2f}" if isinstance(n, float) else f"{n:,}" for n in numbers)], WIDTHS)
    bench.write("point", point)
    return point


def _count(job: Job) -> dict[str, Any]:
    """Requests of the plan alone where nothing is carried out, of the whole work otherwise."""
    if job.policy is None:
        return {}
    dry_run = "--dry-run" in job.arguments
    (job.table.fresh if dry_run else job.before)()  # the counted run carries out, too
    verb = job.arguments[0]
    cache = str(cache_folder(os.environ) or "") if job.cached else ""
    policy = json.dumps(job.policy.to_json())
    command = [PYTHON, "-m", "benchmarks.growth", job.table.location, verb, policy, cache]
    counts: dict[str, Any] = json.loads(run(command).output)
    if dry_run:
        counts["requests"] = counts["plan_requests"]
    return counts


class CountingStorage:
    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self.requests: Counter[str] = Counter()
        self.bytes_read = 0
        self.journal_bytes = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if name not in _ONE and name not in _MANY:
            return found

        def counted(first: Any, *others: Any, **named: Any) -> Any:
            self.requests[name] += 1 if name in _ONE else math.ceil(len(first) / _MANY[name])
            answer = found(first, *others, **named)
            if name == "read":
                self.bytes_read += len(answer)
            elif name == "put_if_absent" and f"/{OPERATIONS_FOLDER}/" in first:
                self.journal_bytes += len(others[0])
            return answer

        return counted


def count(location: str, verb_name: str, policy: str, cache: str) -> None:
    """Plan and carry out, and print the counts of both."""
    storage: Any = CountingStorage(open_storage(trusted_folders=(location,)))
    committer, engine = open_folder(location, storage), LocalEngine(storage, threads=1)
    table = IcebergTable(
        name=location, storage=storage, committer=committer, engine=engine, on_event=lambda _: None
    )
    table.load()
    table.look_through_links()
    if cache:
        table.use_cache(Path(cache), limit_bytes=_CACHE_BYTES)
    verb = VERBS[verb_name]
    runtime = system_runtime(on_event=lambda _: None, host="a benchmark", process_id=os.getpid())
    plan = verb.plan(table, verb.policy.from_json(json.loads(policy)), as_of_ms=runtime.now_ms())
    plan_requests = storage.requests.total()
    apply(plan, table, verb, runtime)
    counts = {
        "plan_requests": plan_requests, "requests": storage.requests.total(), "reads": storage.requests["read"],
        "by_kind": storage.requests, "bytes_read": storage.bytes_read, "journal_bytes": storage.journal_bytes,
    }  # fmt: skip
    print(json.dumps(counts))


if __name__ == "__main__":
    count(*sys.argv[1:])
