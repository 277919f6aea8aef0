"""`python -m benchmarks spark`: our verbs on Spark against Spark's procedures, and against our local engine.

Ours and theirs run on the same master, each in a session of its own; warm is not the first call of a session.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable
from functools import partial
from itertools import pairwise

from benchmarks.bench import HEADER, Bench, Cost, Kept, Pair, Result
from benchmarks.expire import compile_all, expire_arguments, expire_statement, unlearnt
from benchmarks.measure import OURS, Run, run
from benchmarks.outcomes import deleted_rows, files_left, live_entries
from benchmarks.peers import SPARK_MASTER, Session, spark_engine_is_there
from benchmarks.tables import SIZES, Size, make_table
from benchmarks.v3 import REWRITE_POSITION_DELETES, position_deletes

COSTS = {
    "S": Cost(minutes=9, spark_minutes=0, disk_gb=0.2),
    "M": Cost(minutes=50, spark_minutes=0, disk_gb=3),
    "L": Cost(minutes=120, spark_minutes=0, disk_gb=16),
}
ON_SPARK = ("--engine", "spark", "--spark-master", SPARK_MASTER)
# From smallest to largest; a size takes the first so many.
CROSSOVER = (Size(30, 50, 5), Size(100, 100, 10), Size(400, 250, 10), SIZES["M"], SIZES["L"])
CROSSOVER_STEPS = {"S": 2, "M": 4, "L": 5}


def main(bench: Bench) -> None:
    """Run both sides of every row."""
    if not spark_engine_is_there():
        print("our Spark engine or pyspark is not here: nothing to measure")
        return
    bench.announce(COSTS)
    compile_all(bench.root)
    print(HEADER)
    warehouse = f"{bench.root}/wh"
    with Session(warehouse) as mine, Session(warehouse) as theirs:
        measure_expiry(bench, mine, theirs)
        measure_rewrite_manifests(bench, mine, theirs)
        measure_position_deletes(bench, mine, theirs)
    measure_crossover(bench)


def measure_expiry(bench: Bench, mine: Session, theirs: Session) -> None:
    """The plan alone and the whole expiry, warm, against the procedure; the plan in a new process too."""
    size = SIZES[bench.size_name]
    table = bench.kept("t", partial(make_table, size=size))
    arguments = [*expire_arguments(table.location, size.last_ms, size.kept), "--engine", "spark"]
    job = expire_statement("t", size, size.kept)

    def warm_up() -> None:
        mine.command([*arguments, "--dry-run"])
        theirs.warm_up(job)

    pair = partial(
        Pair,
        peer="Spark, warm session",
        theirs=partial(theirs.call, job),
        before=partial(unlearnt, table.fresh),
        warm_up=warm_up,
    )
    plan = partial(mine.command, [*arguments, "--dry-run"])
    bench.measure(pair(name="expiry plan, warm", ours=plan, bar=1 / 3))
    whole = partial(mine.command, [*arguments, "--yes"])
    left = (files_left(table.location),) * 2
    bench.measure(pair(name="whole expiry with deletes, warm", ours=whole, results=left))
    table.remove()


def measure_rewrite_manifests(bench: Bench, mine: Session, theirs: Session) -> None:
    """The manifests of the current snapshot, warm."""
    table = bench.kept("whole", partial(make_table, size=SIZES[bench.size_name], whole=True))
    arguments = ["rewrite-manifests", table.location, "-q", "--engine", "spark", "--yes"]
    job = "CALL lake.system.rewrite_manifests('lake.db.whole')"
    measure_warm(
        bench, table, "rewrite-manifests", 1 / 3, (mine, arguments), (theirs, job),
        (live_entries(table.location),) * 2,
    )  # fmt: skip
    table.remove()


def measure_position_deletes(bench: Bench, mine: Session, theirs: Session) -> None:
    """Position-delete files to deletion vectors, warm."""
    table, name = position_deletes(bench)
    arguments = ["merge-dvs", table.location, "-q", "--engine", "spark", "--yes"]
    measure_warm(
        bench, table, name, 1 / 2, (mine, arguments), (theirs, REWRITE_POSITION_DELETES),
        (deleted_rows(table.location),) * 2,
    )  # fmt: skip
    table.remove()


def measure_warm(
    bench: Bench,
    table: Kept,
    name: str,
    bar: float,
    ours: tuple[Session, list[str]],
    theirs: tuple[Session, str],
    results: tuple[Result, Result],
) -> None:
    """A verb of ours in a session against a procedure in another, neither for the first time."""

    def warm_up() -> None:
        ours[0].command(ours[1])
        table.fresh()
        theirs[0].call(theirs[1])

    bench.measure(
        Pair(
            name=f"{name}, warm",
            peer="Spark, warm session",
            ours=partial(ours[0].command, ours[1]),
            theirs=partial(theirs[0].call, theirs[1]),
            before=table.fresh,
            warm_up=warm_up,
            results=results,
            bar=bar,
        )
    )


def measure_crossover(bench: Bench) -> None:
    """The expiry plan of larger and larger tables on both engines; where they cross, and what `auto` takes there."""
    points: list[tuple[int, float, float]] = []
    for step, size in enumerate(CROSSOVER[: CROSSOVER_STEPS[bench.size_name]]):
        name = f"expiry plan, {size.snapshots * size.files_per_snapshot:,} files"
        table = bench.kept(f"step{step}", partial(make_table, size=size))
        arguments = [
            "expire-snapshots", table.location, "--older-than", str(size.last_ms), "--retain-last", str(size.kept),
            "--as-of", str(size.last_ms), "--dry-run", "--format", "json", "--no-progress",
        ]  # fmt: skip
        with Session(f"{bench.root}/wh") as session:
            local = partial(run, [*OURS, *arguments, "--engine", "local"])
            cold = bench.measure(
                Pair(
                    name=f"{name}, new process",
                    pairs=1,
                    peer="our local engine",
                    ours=partial(run, [*OURS, *arguments, *ON_SPARK]),
                    theirs=local,
                    before=partial(unlearnt, table.untouched),
                    results=(plan_of, plan_of),
                )
            )
            inside = [*arguments, "--engine", "spark"]
            warm = bench.measure(
                Pair(
                    name=f"{name}, warm",
                    peer="our local engine",
                    ours=partial(session.command, inside),
                    theirs=local,
                    before=partial(unlearnt, table.untouched),
                    warm_up=partial(session.command, inside),
                )
            )
        if cold and warm:
            entries = table.made.entries
            points.append((entries, _middle(cold.ratios), _middle(warm.ratios)))
            auto = run([*OURS, *arguments, "--engine", "auto", "--spark-master", SPARK_MASTER])
            bench.write(
                "crossover",
                {
                    "entries": entries,
                    "metadata_bytes": table.made.metadata_bytes,
                    "cold": _middle(cold.ratios),
                    "warm": _middle(warm.ratios),
                    "auto": _chosen(auto.stated),
                },
            )
            print(
                f"  {entries:,} entries, {table.made.metadata_bytes / 1e6:.0f} MB; auto: {_chosen(auto.stated)}"
            )
        table.remove()
    for column, kind in ((1, "a new process"), (2, "a warm session")):
        print(f"  crossover, {kind}: {crossing([(p[0], p[column]) for p in points])}")


def crossing(points: list[tuple[int, float]]) -> str:
    """Where the ratio falls to 1, on logarithmic axes between two tables that were measured."""
    for (left, before), (right, after) in pairwise(points):
        if before > 1 >= after:
            part = math.log(before) / math.log(before / after)
            return f"about {left * (right / left) ** part:,.0f} entries"
    if not points:
        return "not measured"
    last, ratio = points[-1]
    return (
        f"none up to {last:,} entries (ratio {ratio:.2f} there)" if ratio > 1 else "below the smallest table"
    )


def plan_of(result: Run) -> Hashable:
    """The plan as it was printed: both engines must print the same."""
    return json.dumps(json.loads(result.output), sort_keys=True)


def _chosen(stated: str) -> str:
    """What `--engine auto` says about its choice."""
    lines = [line.strip() for line in stated.splitlines() if re.search(r"\bengine\b", line, re.IGNORECASE)]
    return lines[0] if lines else "says nothing"


def _middle(ratios: list[float]) -> float:
    return ratios[len(ratios) // 2]
