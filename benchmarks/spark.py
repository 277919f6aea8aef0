"""`python -m benchmarks spark`: our verbs on Spark against Spark's procedures, and against our local engine.

Ours and theirs run on the same master, each in a session of its own; warm is not the first call of a session.

`python -m benchmarks driver`: what Spark's driver holds while more and more files go, workers in other processes. The
driver is two processes: ours, and the JVM that it starts, which gets a heap of half a gigabyte here, about the least
with which Spark starts, and the collector that needs least memory itself. Their peaks are added up, though they need
not be at the same time. The same plan is made by our local engine, and both plans must be equal.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import median

from benchmarks import rows
from benchmarks.bench import SAME, Bench, BenchTable, Line, Row, ratios_of, show
from benchmarks.measure import OURS, PYTHON, Run, run
from benchmarks.outcomes import deleted_rows, files_left, live_entries
from benchmarks.peers import SPARK_MASTER, Session, ours
from benchmarks.rows import WARM, expiry
from benchmarks.tables import SIZES, make_replaced_table
from tests.large_tables import Size, make_table

# From smallest to largest; a size takes the first so many.
CROSSOVER = (Size(30, 50, 5), Size(100, 100, 10), Size(400, 250, 10), SIZES["M"], SIZES["L"])
CROSSOVER_STEPS = {"S": 2, "M": 4, "L": 5}
# A hundredth, a tenth, and 20 million files that go; a size takes the first so many.
REPLACED = (Size(21, 10_000, 1), Size(21, 100_000, 1), Size(101, 200_000, 1))
REPLACED_STEPS = {"S": 1, "M": 2, "L": 3}
DRIVER_MOST_MB = 1_000
DRIVER = "work | files that go | s | Python MB | JVM MB | both | bar | same"
DRIVER_WIDTHS = (12, 13, 5, 9, 7, 6, 14, 4)
AS_JSON = ("--format", "json", "--no-progress")
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


def main(bench: Bench) -> None:
    """Run both sides of every row, then look where the engines cross."""
    rows.measure_rows(bench, spark_rows)
    measure_crossover(bench)


def spark_rows(bench: Bench) -> Iterator[Row]:
    """Verbs in a warm session of ours against procedures in one of Spark's."""
    size = SIZES[bench.size_name]
    with Session(f"{bench.root}/wh") as mine, Session(f"{bench.root}/wh") as theirs:
        table = bench.table("t", partial(make_table, size=size))
        arguments = [*expiry(table, size, size.kept), "--engine", "spark"]
        call = rows.expiry_call("t", size, size.kept)
        plan = partial(mine.command, [*arguments, "--dry-run"])

        def warm_up_both() -> None:
            plan()
            theirs.warm_up(call)

        procedure = partial(theirs.call, call)
        row = Row("expiry plan, warm", WARM, plan, procedure, table.uncached, warm_up_both, bar=1 / 3)
        yield row
        whole, left = partial(mine.command, [*arguments, "--yes"]), partial(files_left, table.location)
        yield replace(row, name="whole expiry with deletes, warm", ours=whole, look=left, bar=None)
        table.remove()
        complete = bench.table("whole", partial(make_table, size=size, whole=True))
        (positions, work), rewrite = rows.position_deletes(bench), rows.REWRITE_MANIFESTS.format("whole")
        for table, name, verb, call, look, bar in (
            (complete, "rewrite-manifests", "rewrite-manifests", rewrite, live_entries, 1 / 3),
            (positions, work, "merge-dvs", rows.REWRITE_POSITION_DELETES, deleted_rows, 1 / 2),
        ):  # fmt: skip
            command = partial(mine.command, [verb, table.location, "-q", "--engine", "spark", "--yes"])
            procedure = partial(theirs.call, call)
            warm, seen = partial(_warm_up, command, table, procedure), partial(look, table.location)
            yield Row(f"{name}, warm", WARM, command, procedure, table.fresh, warm, seen, bar=bar)
            table.remove()


def _warm_up(command: partial[Run], table: BenchTable, procedure: partial[Run]) -> None:
    command()
    table.fresh()
    procedure()


def measure_crossover(bench: Bench) -> None:
    """The expiry plan of larger and larger tables on both engines; where they cross, and what `auto` takes there."""
    points: list[Line] = []
    for step, size in enumerate(CROSSOVER[: CROSSOVER_STEPS[bench.size_name]]):
        name = f"expiry plan, {size.snapshots * size.files_per_snapshot:,} files"
        table = bench.table(f"step{step}", partial(make_table, size=size))
        options = [*rows.retention(size, size.kept), "--as-of", str(size.last_ms), *AS_JSON]
        arguments = ["expire-snapshots", table.location, *options, "--dry-run"]
        on_spark = ours(*arguments, "--engine", "spark", "--spark-master", SPARK_MASTER)
        local = ours(*arguments, "--engine", "local")
        before = partial(table.uncached, changing=False)
        row = Row(f"{name}, new process", "our local engine", on_spark, local, before)
        with Session(f"{bench.root}/wh") as session:
            cold = bench.measure(replace(row, look=plan_of, pairs=1))
            inside = partial(session.command, [*arguments, "--engine", "spark"])
            warm = bench.measure(replace(row, name=f"{name}, warm", ours=inside, warm_up=inside))
        if cold and warm:
            chosen = ours(*arguments, "--engine", "auto", "--spark-master", SPARK_MASTER)()
            auto = _engine_named(chosen.stated)
            line = {
                "entries": table.made.entries, "metadata_bytes": table.made.metadata_bytes,
                "cold": median(ratios_of(cold)), "warm": median(ratios_of(warm)), "auto": auto,
            }  # fmt: skip
            points.append(line)
            bench.write("crossover", line)
            print(f"  {line['entries']:,} entries, {line['metadata_bytes'] / 1e6:.0f} MB; auto: {auto}")
        table.remove()
    for column, kind in (("cold", "a new process"), ("warm", "a warm session")):
        print(f"  crossover, {kind}: {crossing([(line['entries'], line[column]) for line in points])}")


def crossing(points: list[tuple[int, float]]) -> str:
    """Where the ratio falls to 1, on logarithmic axes between two tables that were measured."""
    for (left, before), (right, after) in pairwise(points):
        if before > 1 >= after:
            part = math.log(before) / math.log(before / after)
            return f"about {left * (right / left) ** part:,.0f} entries"
    if not points:
        return "not measured"
    last, ratio = points[-1]
    none = f"none up to {last:,} entries (ratio {ratio:.2f} there)"
    return none if ratio > 1 else "below the smallest table"


def plan_of(result: Run) -> Hashable:
    """The plan as it was printed: both engines must print the same."""
    return json.dumps(json.loads(result.output), sort_keys=True)


def _engine_named(stated: str) -> str:
    lines = [line.strip() for line in stated.splitlines() if re.search(r"\bengine\b", line, re.IGNORECASE)]
    return lines[0] if lines else "says nothing"


def driver(bench: Bench) -> None:
    """The plan, then the whole expiry, on each table."""
    show(DRIVER.split(" | "), DRIVER_WIDTHS)
    for number, size in enumerate(REPLACED[: REPLACED_STEPS[bench.size_name]]):
        table = bench.table(f"replaced{number}", partial(make_replaced_table, size=size))
        as_of = ["--as-of", str(size.last_ms + 1), "--no-cache"]
        options = [*rows.retention(size, size.kept), *as_of, *AS_JSON]
        plan = ["plan", table.location, "expire-snapshots", *options]
        if bench.selects("expiry plan"):
            table.untouched()
            found = run([*OURS, *plan, *ON_CLUSTER])
            same = plan_of(found) == plan_of(run([*OURS, *plan, "--engine", "local"]))
            show_driver(bench, "expiry plan", json.loads(found.output)["removals"]["count"], found, same=same)
        if bench.selects("whole expiry"):
            table.fresh()
            found = run([*OURS, "expire-snapshots", table.location, *options, "--yes", *ON_CLUSTER])
            done = json.loads(found.output)
            kinds = ("data_files", "manifest_files", "manifest_lists")
            removals = sum(done[f"deleted_{kind}_count"] for kind in kinds)
            show_driver(bench, "whole expiry", removals, found, same=None)
        table.remove()


def driver_cells(line: Line, missed: str) -> list[str]:
    """What a driver held, in the columns of `DRIVER`."""
    together, most = line["python_mb"] + line["jvm_mb"], line["most_mb"]
    return [
        line["work"], f"{line['removals']:,}", f"{line['seconds']:.0f}", f"{line['python_mb']:.0f}",
        f"{line['jvm_mb']:.0f}", f"{together:.0f}", f"{most} MB {'met' if together <= most else missed}",
        SAME[line["same"]],
    ]  # fmt: skip


def show_driver(bench: Bench, work: str, removals: int, found: Run, *, same: bool | None) -> None:
    """One line, on the screen and in the report."""
    line = {
        "work": work, "removals": removals, "seconds": round(found.seconds, 1), "python_mb": round(found.driver_mb, 1),
        "jvm_mb": round(found.child_mb, 1), "most_mb": DRIVER_MOST_MB, "same": same,
    }  # fmt: skip
    show(driver_cells(line, "MISSED"), DRIVER_WIDTHS)
    bench.write("driver", line)
    bench.check_same(f"{work}, {removals:,} files", same)
