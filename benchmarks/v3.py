"""`python -m benchmarks v3`: the verbs of version 3 against iceberg-go, Spark's procedures and physical floors."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from benchmarks import floors
from benchmarks.bench import HEADER, Bench, Cost, Kept, Pair
from benchmarks.delete_tables import make_dangling_table, make_position_delete_table, make_puffin_table
from benchmarks.expire import compile_all, manifests_of, unlearnt
from benchmarks.measure import OURS, PYTHON, Run, run
from benchmarks.outcomes import deleted_rows, live_entries
from benchmarks.peers import Session, find_iceberg_go, go_command
from benchmarks.tables import SIZES, make_table

COSTS = {
    "S": Cost(minutes=1, spark_minutes=4, disk_gb=0.1),
    "M": Cost(minutes=8, spark_minutes=30, disk_gb=2),
    "L": Cost(minutes=30, spark_minutes=60, disk_gb=14),
}
PUFFINS = {"S": (20, 20), "M": (500, 20), "L": (500, 20)}  # files, vectors in each
POSITION_DELETES = {
    "S": (20, 10_000),
    "M": (1_000, 100_000),
    "L": (1_000, 100_000),
}  # files, positions in each
DANGLING = {"S": 1_000, "M": 90_000, "L": 90_000}  # files


def main(bench: Bench) -> None:
    """Run both sides of every row."""
    bench.announce(COSTS)
    compile_all(bench.root)
    print(HEADER)
    table = bench.kept("t", partial(make_table, size=SIZES[bench.size_name], whole=True))
    measure_rewrite_manifests(bench, table)
    measure_metadata_verbs(bench, table)
    measure_check(bench, table)
    measure_puffins(bench)
    measure_position_deletes(bench)
    measure_dangling(bench)


def ours(verb: str, location: str, *options: str) -> partial[Run]:
    """A verb of ours that asks nothing and says nothing."""
    return partial(run, [*OURS, verb, location, "-q", *options])


def measure_rewrite_manifests(bench: Bench, table: Kept) -> None:
    """The manifests of the current snapshot."""
    pair = partial(
        Pair,
        name="rewrite-manifests",
        ours=ours("rewrite-manifests", table.location, "--yes"),
        before=table.fresh,
        results=(live_entries(table.location),) * 2,
    )
    go = find_iceberg_go()
    if go:
        theirs = partial(run, [*go_command(go, table.location), "rewrite-manifests", "db.t"])
        bench.measure(pair(peer="iceberg-go", theirs=theirs, bar=1 / 3))
    if bench.spark:
        job = "CALL lake.system.rewrite_manifests('lake.db.t')"
        with Session(f"{bench.root}/wh") as session:
            bench.measure(
                pair(
                    peer="Spark, warm session",
                    theirs=partial(session.call, job),
                    warm_up=partial(session.warm_up, job),
                    bar=1 / 8,
                )
            )


def measure_metadata_verbs(bench: Bench, table: Kept) -> None:
    """upgrade-v3 and assign-row-ids against reading what their commits keep: all manifests, and those of the head."""

    def upgraded() -> None:
        table.fresh()
        run([*OURS, "upgrade-v3", table.location, "--yes", "-q"])

    for name, before, names in (
        ("upgrade-v3", table.fresh, manifests_of),
        ("assign-row-ids", upgraded, manifests_of_head),
    ):
        bench.measure(
            Pair(
                name=name,
                peer="floor: read, inflate",
                ours=ours(name, table.location, "--yes"),
                theirs=lambda names=names: run([PYTHON, "-c", floors.MANIFESTS, names(table.location)]),
                before=partial(unlearnt, before),
                bar=2.5,
            )
        )


def manifests_of_head(location: str) -> str:
    """A file that names the manifests of the current snapshot."""
    shown = run([*OURS, "inspect", location, "manifests", "--format", "json"])
    names = Path(f"{location}.manifests")
    names.write_text("\n".join(row["path"] for row in json.loads(shown.output)["rows"]))
    return str(names)


def measure_check(bench: Bench, table: Kept) -> None:
    """The whole check, files looked at included, against showing all files."""
    output = f"{table.location}.files.parquet"
    bench.measure(
        Pair(
            name="inspect --check",
            peer="inspect files",
            ours=partial(run_checked, [*OURS, "inspect", table.location, "--check", "--format", "json"]),
            theirs=partial(run, [*OURS, "inspect", table.location, "files", "-o", output, "-q"]),
            before=table.untouched,
            bar=2,
        )
    )


def run_checked(command: list[str]) -> Run:
    """Run a check that must find no error."""
    result = run(command)
    errors = [f for f in json.loads(result.output)["findings"] if f["severity"] == "error"]
    if errors:
        raise RuntimeError(f"the check finds {errors[:3]}")
    return result


def measure_puffins(bench: Bench) -> None:
    """Compaction of Puffin files with dead vectors, against reading, uniting and writing alone."""
    files, vectors = PUFFINS[bench.size_name]
    table = bench.kept("puffins", partial(make_puffin_table, puffins=files, vectors=vectors))
    names = f"{table.location}.puffins"
    bench.measure(
        Pair(
            name=f"merge-dvs, {files} Puffins of {vectors}",
            peer="floor: read, unite, write",
            ours=ours("merge-dvs", table.location, "--yes"),
            theirs=partial(run, [PYTHON, "-c", floors.PUFFINS, names]),
            before=partial(fresh_and_named, table, names, "*.puffin"),
            bar=3,
        )
    )


def fresh_and_named(table: Kept, names: str, pattern: str) -> None:
    """The table as it was made, and a file that names its delete files."""
    table.fresh()
    Path(names).write_text("\n".join(map(str, sorted(Path(table.location).rglob(pattern)))))


def measure_position_deletes(bench: Bench) -> None:
    """Position-delete files to deletion vectors on an upgraded table."""
    table, name = position_deletes(bench)
    merge = ours("merge-dvs", table.location, "--yes")
    names = f"{table.location}.files"
    bench.measure(
        Pair(
            name=name,
            peer="floor: read, unite, write",
            ours=merge,
            theirs=partial(run, [PYTHON, "-c", floors.POSITIONS, names]),
            before=partial(fresh_and_named, table, names, "*-deletes.parquet"),
            most_mb=512,
        )
    )
    if not bench.spark:
        return
    with Session(f"{bench.root}/wh") as session:
        bench.measure(
            Pair(
                name=name,
                peer="Spark, warm session",
                ours=merge,
                theirs=partial(session.call, REWRITE_POSITION_DELETES),
                before=table.fresh,
                warm_up=partial(session.warm_up, REWRITE_POSITION_DELETES),
                results=(deleted_rows(table.location),) * 2,
                bar=1 / 5,
                most_mb=512,
            )
        )


def measure_dangling(bench: Bench) -> None:
    """Dangling position-delete files of version 2 beside 1,000 data files, against reading their names alone."""
    files = DANGLING[bench.size_name]
    table = bench.kept("dangling", partial(make_dangling_table, files=files))
    names = f"{table.location}.files"
    bench.measure(
        Pair(
            name=f"merge-dvs, {files:,} dangling files of v2",
            peer="floor: read names",
            ours=ours("merge-dvs", table.location, "--yes"),
            theirs=partial(run, [PYTHON, "-c", floors.NAMES, names]),
            before=partial(fresh_and_named, table, names, "*-deletes.parquet"),
            bar=1,
            most_mb=512,
        )
    )


REWRITE_POSITION_DELETES = (
    "CALL lake.system.rewrite_position_delete_files(table => 'lake.db.positions', "
    "options => map('rewrite-all', 'true'))"
)


def position_deletes(bench: Bench) -> tuple[Kept, str]:
    """The table with position-delete files, and the name of the work on it."""
    files, positions = POSITION_DELETES[bench.size_name]
    make = partial(make_position_delete_table, files=files, positions=positions)
    return bench.kept("positions", make), f"merge-dvs, {files} x {positions:,} positions"
