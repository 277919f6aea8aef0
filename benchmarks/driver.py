"""`python -m benchmarks driver`: what Spark's driver holds while more and more files go, workers in other processes.

The driver is two processes: ours, and the JVM that it starts, which gets a heap of half a gigabyte here, about the
least with which Spark starts, and the collector that needs least memory itself. Their peaks are added up, though they
need not be at the same time. The same plan is made by our local engine, and both plans must be equal.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from benchmarks.bench import Bench, Cost
from benchmarks.expire import compile_all
from benchmarks.measure import OURS, PYTHON, Run, run
from benchmarks.peers import spark_engine_is_there
from benchmarks.replaced_table import make_replaced_table
from benchmarks.spark import plan_of
from benchmarks.tables import Size

COSTS = {
    "S": Cost(minutes=3, spark_minutes=0, disk_gb=0.1),
    "M": Cost(minutes=6, spark_minutes=0, disk_gb=0.3),
    "L": Cost(minutes=20, spark_minutes=0, disk_gb=6),
}
# A hundredth, a tenth, and 20 million files that go; a size takes the first so many.
REPLACED = (Size(21, 10_000, 1), Size(21, 100_000, 1), Size(101, 200_000, 1))
STEPS = {"S": 1, "M": 2, "L": 3}
MOST_MB = 1_000
CONF = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.executor.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.pyspark.python": PYTHON,
}
# Two workers of one core, each with an executor in a process of its own.
ON_CLUSTER = [
    "--engine", "spark", "--spark-master", "local-cluster[2,1,1024]",
    *(word for key, value in CONF.items() for word in ("--spark-conf", f"{key}={value}")),
]  # fmt: skip
HEADER = f"{'work':<24} {'files that go':>13} {'seconds':>8} {'Python MB':>9} {'JVM MB':>7} {'both':>6} bar"


def main(bench: Bench) -> None:
    """The plan, then the whole expiry, on each table."""
    if not spark_engine_is_there():
        print("our Spark engine or pyspark is not here: nothing to measure")
        return
    bench.announce(COSTS)
    compile_all(bench.root)
    print(HEADER)
    for number, size in enumerate(REPLACED[: STEPS[bench.size_name]]):
        table = bench.kept(f"replaced{number}", partial(make_replaced_table, size=size))
        expiry = [
            "--older-than", str(size.last_ms), "--retain-last", str(size.kept), "--as-of", str(size.last_ms + 1),
            "--format", "json", "--no-progress", "--no-cache",
        ]  # fmt: skip
        plan = ["plan", table.location, "expire-snapshots", *expiry]
        if bench.targets("expiry plan"):
            table.untouched()
            found = run([*OURS, *plan, *ON_CLUSTER])
            same = plan_of(found) == plan_of(run([*OURS, *plan, "--engine", "local"]))
            show(bench, "expiry plan", json.loads(found.output)["removals"]["count"], found, same=same)
        if bench.targets("whole expiry"):
            table.fresh()
            found = run([*OURS, "expire-snapshots", table.location, *expiry, "--yes", *ON_CLUSTER])
            done = json.loads(found.output)
            going = sum(
                done[f"deleted_{kind}_count"] for kind in ("data_files", "manifest_files", "manifest_lists")
            )
            show(bench, "whole expiry", going, found, same=None)
        table.remove()


def show(bench: Bench, work: str, removals: int, found: Run, *, same: bool | None) -> None:
    """One line, on the screen and in the report."""
    point: dict[str, Any] = {
        "work": work,
        "removals": removals,
        "seconds": round(found.seconds, 1),
        "python_mb": round(found.driver_mb, 1),
        "jvm_mb": round(found.child_mb, 1),
        "most_mb": MOST_MB,
        "same": same,
    }
    together = found.driver_mb + found.child_mb
    print(
        f"{work:<24} {removals:>13,} {found.seconds:>8.1f} {found.driver_mb:>9.0f} {found.child_mb:>7.0f}"
        f" {together:>6.0f} {MOST_MB} MB {'met' if together <= MOST_MB else 'MISSED'}"
        f"{'' if same is None else '; the local plan is the same' if same else '; THE LOCAL PLAN DIFFERS'}",
        flush=True,
    )
    bench.write("driver", point)
