"""`python -m benchmarks expire`: inspect and expire-snapshots against PyIceberg, iceberg-go, Spark and the floor."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks import floors
from benchmarks.bench import HEADER, Bench, Cost, Kept, Pair
from benchmarks.measure import OURS, PYTHON, run
from benchmarks.outcomes import files_left
from benchmarks.peers import Session, find_iceberg_go, go_command, knows
from benchmarks.tables import SIZES, Size, make_table
from benchmarks.wide_table import make_wide_table

COSTS = {
    "S": Cost(minutes=1, spark_minutes=5, disk_gb=0.1),
    "M": Cost(minutes=5, spark_minutes=12, disk_gb=0.8),
    "L": Cost(minutes=30, spark_minutes=60, disk_gb=8),
}
DAILY = 24

PYICEBERG_OPEN = (
    "import sys; from pyiceberg.table import StaticTable; t = StaticTable.from_metadata(sys.argv[1]); "
)
PYICEBERG_LOAD = PYICEBERG_OPEN + "t.current_snapshot()"
PYICEBERG_FILES = PYICEBERG_OPEN + "print(t.inspect.files().num_rows)"


def main(bench: Bench) -> None:
    """Run both sides of every row."""
    bench.announce(COSTS)
    compile_all(bench.root)
    print(HEADER)
    size = SIZES[bench.size_name]
    table = bench.kept("t", partial(make_table, size=size))
    bench.measure(
        Pair(
            name="--help",
            peer="import typer",
            ours=partial(run, [*OURS, "--help"]),
            theirs=partial(run, [PYTHON, "-c", "import typer"]),
            bar=2.5,
            bar_sizes="SML",
            pairs=7,
        )
    )
    measure_inspect(bench, table)
    measure_expiry(bench, table, size)
    if bench.spark:
        measure_spark(bench, table, size)
    if bench.size_name != "L":
        measure_wide(bench)


def compile_all(root: str) -> None:
    """Keep the bytecode of every Python program, ours and the peers', as an installed one has it.

    Whether the packages of this environment came with theirs, and whether this source tree may hold any, is chance.
    What we cache of tables is this run's own.
    """
    find_iceberg_go()  # it may be in the cache of the user
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = f"{root}/bytecode"
    os.environ["XDG_CACHE_HOME"] = f"{root}/cache"
    location = f"{root}/wh/db/first"
    shutil.rmtree(location, ignore_errors=True)
    made = make_table(location, Size(2, 10, 1))
    metadata = f"{location}/metadata/v1.metadata.json"
    for command in (
        [PYTHON, "-m", "compileall", "-q", "iceberg_cli"],
        [PYTHON, "-c", floors.MANIFESTS, manifests_of(location)],
        [PYTHON, "-c", PYICEBERG_FILES, metadata],
        [*OURS, "inspect", location],
        [*OURS, "inspect", location, "files", "-o", f"{location}.files.parquet"],
        [*OURS, *expire_arguments(location, made.last_ms, 1), "--yes"],
    ):
        run(command)
    shutil.rmtree(location)


def manifests_of(location: str) -> str:
    """A file that names all manifests of a table."""
    names = Path(f"{location}.manifests")
    names.write_text("\n".join(glob.glob(f"{location}/metadata/m-*.avro")))
    return str(names)


def expire_arguments(location: str, last_ms: int, kept: int) -> list[str]:
    """Our expiry, keeping the newest `kept` snapshots."""
    return [
        "expire-snapshots", location, "-q", "--older-than", str(last_ms), "--retain-last", str(kept),
    ]  # fmt: skip


def measure_inspect(bench: Bench, table: Kept) -> None:
    """Summary and files, read only."""
    metadata = f"{table.location}/metadata/v1.metadata.json"
    summary = partial(run, [*OURS, "inspect", table.location, "--format", "json"])
    load = partial(run, [PYTHON, "-c", PYICEBERG_LOAD, metadata])
    name = "inspect (summary)"
    bench.measure(
        Pair(
            name=name, peer="PyIceberg, load", ours=summary, theirs=load, before=table.untouched,
            bar=1 / 5, bar_sizes="S",
        )
    )  # fmt: skip
    go = find_iceberg_go()
    if go:
        info = partial(run, [*go_command(go, table.location), "info", "db.t"])
        bench.measure(
            Pair(
                name=name, peer="iceberg-go info", ours=summary, theirs=info, before=table.untouched,
                bar=5, bar_sizes="S",
            )
        )  # fmt: skip
    output = f"{table.location}.files.parquet"
    if bench.size_name != "L":  # PyIceberg would need more memory than there is
        bench.measure(
            Pair(
                name="inspect files",
                peer="PyIceberg files()",
                ours=partial(run, [*OURS, "inspect", table.location, "files", "-o", output, "-q"]),
                theirs=partial(run, [PYTHON, "-c", PYICEBERG_FILES, metadata]),
                before=table.untouched,
                results=(lambda _: int(pq.read_metadata(output).num_rows), lambda made: int(made.output)),
                bar=1 / 6,
                most_mb=400,
            )
        )


def measure_expiry(bench: Bench, table: Kept, size: Size) -> None:
    """Plan against the floor; whole expiry and the daily job against iceberg-go."""
    most_mb = 600 if bench.size_name == "L" else 400
    bench.measure(
        Pair(
            name="expiry plan",
            peer="floor: read, inflate",
            ours=partial(
                run, [*OURS, *expire_arguments(table.location, size.last_ms, size.kept), "--dry-run"]
            ),
            theirs=lambda: run([PYTHON, "-c", floors.MANIFESTS, manifests_of(table.location)]),
            before=partial(unlearnt, table.untouched),
            bar=3.5,
            most_mb=most_mb,
        )
    )
    go = find_iceberg_go()
    if not go:
        return
    for name, kept, before, bar in jobs(table, size):
        options = ["--older-than", "1s", "--retain-last", str(kept), "--yes"]
        bench.measure(
            Pair(
                name=name,
                peer="iceberg-go",
                ours=partial(run, [*OURS, *expire_arguments(table.location, size.last_ms, kept), "--yes"]),
                theirs=partial(run, [*go_command(go, table.location), "expire-snapshots", *options, "db.t"]),
                before=before,
                results=(files_left(table.location),) * 2,
                bar=1 / 4 if bar is None else bar,
                most_mb=most_mb,
            )
        )


def jobs(table: Kept, size: Size) -> list[tuple[str, int, partial[None], float | None]]:
    """Name, snapshots to keep, what puts the table in its place, and the bar where it is one for all peers.

    What is learnt on a day is used on the next: on the second day, the first one's work was done untimed.
    """
    first = size.snapshots - DAILY
    found: list[tuple[str, int, partial[None], float | None]] = [
        ("whole expiry with deletes", size.kept, partial(unlearnt, table.fresh), None),
        ("the daily job", first, partial(unlearnt, table.fresh), None),
    ]
    if knows("expire-snapshots", "--no-cache"):
        day = partial(day_one, table, size.last_ms, first)
        found.append(("the daily job, second day", first - DAILY, day, 1 / 20))
    return found


def unlearnt(place: Callable[[], None]) -> None:
    """A table put in its place, of which nothing is cached."""
    shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)
    place()


def day_one(table: Kept, last_ms: int, kept: int) -> None:
    """The table after its first daily job."""
    unlearnt(table.fresh)
    run([*OURS, *expire_arguments(table.location, last_ms, kept), "--yes"])


def measure_spark(bench: Bench, table: Kept, size: Size) -> None:
    """Whole expiry and the daily job against Spark's procedure: a new process, then the second call of a session."""
    cold_bars, warm_bars = {"whole expiry with deletes": 1 / 15}, {"whole expiry with deletes": 1 / 6}
    for name, kept, before, bar in jobs(table, size):
        job = expire_statement("t", size, kept)
        with Session(f"{bench.root}/wh") as session:
            pair = partial(
                Pair,
                name=name,
                ours=partial(run, [*OURS, *expire_arguments(table.location, size.last_ms, kept), "--yes"]),
                before=before,
                results=(files_left(table.location),) * 2,
            )
            bench.measure(
                pair(
                    peer="Spark, new process",
                    theirs=partial(session.call, job, cold=True),
                    bar=cold_bars.get(name),
                    pairs=1,
                )
            )
            bench.measure(
                pair(
                    peer="Spark, warm session",
                    theirs=partial(session.second_call, job, before),
                    bar=bar or warm_bars.get(name, 1 / 5),
                )
            )


def expire_statement(table: str, size: Size, kept: int) -> str:
    """Spark's own expiry, keeping the newest `kept` snapshots."""
    return (
        f"CALL lake.system.expire_snapshots(table => 'lake.db.{table}', older_than => "
        f"TIMESTAMP_MILLIS({size.last_ms}), retain_last => {kept})"
    )


def measure_wide(bench: Bench) -> None:
    """A metadata.json of 16 MB: 10,000 snapshots and 2,000 schemas."""
    go = find_iceberg_go()
    if not go:
        return
    table = bench.kept("wide", make_wide_table)
    bench.measure(
        Pair(
            name="inspect (summary), wide",
            peer="iceberg-go info",
            ours=partial(run, [*OURS, "inspect", table.location, "--format", "json"]),
            theirs=partial(run, [*go_command(go, table.location), "info", "db.wide"]),
            before=table.untouched,
            bar=1,
            most_mb=150,
            bar_sizes="SML",
        )
    )
