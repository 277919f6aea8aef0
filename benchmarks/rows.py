"""The rows of `python -m benchmarks expire|v3|delta`: work, peer, both commands, the table's place, looks, bars."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import delta_tables, floors, outcomes, tables
from benchmarks.bench import HEADER, Bench, BenchTable, Row, Work, show
from benchmarks.measure import OURS, PYTHON, Run, run
from benchmarks.peers import Session, find_iceberg_compaction, find_iceberg_go, iceberg_go, ours, python
from benchmarks.tables import SIZES
from tests.large_tables import Size, make_table

DAILY = 24
PUFFINS = {"S": (20, 20), "M": (500, 20), "L": (500, 20)}  # files, vectors in each
POSITIONS = {"S": (20, 10_000), "M": (1_000, 100_000), "L": (1_000, 100_000)}  # files, positions in each
DANGLING = {"S": 1_000, "M": 90_000, "L": 90_000}  # files

PYICEBERG = (
    "import sys; from pyiceberg.table import StaticTable; t = StaticTable.from_metadata(sys.argv[1]); "
)
PYICEBERG_FILES = PYICEBERG + "print(t.inspect.files().num_rows)"
DELTA_RS = "import sys; from deltalake import DeltaTable; t = DeltaTable(sys.argv[1]); "
DELTA_CHECKPOINT = DELTA_RS + "t.create_checkpoint()"
VACUUM = {"lite": "t.vacuum(dry_run=False)", "full": "t.vacuum(dry_run=False, full=True)"}
WARM = "Spark, warm session"
COLD = "Spark, new process"
REWRITE_MANIFESTS = "CALL lake.system.rewrite_manifests('lake.db.{}')"
REWRITE_POSITION_DELETES = (
    "CALL lake.system.rewrite_position_delete_files(table => 'lake.db.positions', "
    "options => map('rewrite-all', 'true'))"
)


def measure_rows(bench: Bench, rows: Callable[[Bench], Iterable[Row]]) -> None:
    show(HEADER.split(" | "))
    for row in rows(bench):
        bench.measure(row)


def compile_all(bench: Bench) -> None:
    """Keep the bytecode of every Python program, ours and the peers', as an installed one has it.

    Whether the packages of this environment came with theirs, and whether this source tree may hold any, is chance.
    What we cache of tables is this run's own.
    """
    find_iceberg_go()  # it may be in the cache of the user
    if bench.name == "compaction" and bench.spark:
        find_iceberg_compaction()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = f"{bench.root}/bytecode"
    os.environ["XDG_CACHE_HOME"] = f"{bench.root}/cache"
    run([PYTHON, "-m", "compileall", "-q", "iceberg_cli"])
    if bench.name == "delta":
        table = bench.table("first", partial(delta_tables.make_delta_table, size=delta_tables.Size(12, 4, 1)))
        vectors = bench.table("v", partial(delta_tables.make_vector_table, files=3, vectors=3))
        programs = [
            python(DELTA_CHECKPOINT, table.location),
            python(DELTA_RS + VACUUM["full"], table.location),
        ]
        verbs = [verb(name, table) for name in ("rewrite-manifests", "expire-snapshots")]
        verbs.append(verb("merge-dvs", vectors))
    else:
        table = vectors = bench.table("first", partial(make_table, size=Size(2, 10, 1)))
        programs = [
            python(PYICEBERG_FILES, f"{table.location}/metadata/v1.metadata.json"),
            floor(floors.MANIFESTS, table, matching("m-*.avro")),
        ]
        verbs = [ours(*expiry(table, Size(2, 10, 1), 1), "--yes")]
    for command in (*programs, *verbs, ours("inspect", table.location), files_shown(table)):
        table.fresh()
        vectors.fresh()
        command()
    table.remove()
    vectors.remove()


def expiry(table: BenchTable, size: Size, kept: int) -> list[str]:
    """Our expiry, keeping the newest `kept` snapshots."""
    return ["expire-snapshots", table.location, "-q", *retention(size, kept)]


def retention(size: Size, kept: int) -> list[str]:
    return ["--older-than", str(size.last_ms), "--retain-last", str(kept)]


def expiry_call(table: str, size: Size, kept: int) -> str:
    """Spark's own expiry, keeping the newest `kept` snapshots."""
    return (
        f"CALL lake.system.expire_snapshots(table => 'lake.db.{table}', older_than => "
        f"TIMESTAMP_MILLIS({size.last_ms}), retain_last => {kept})"
    )


def day_one(table: BenchTable, size: Size) -> None:
    """The table after its first daily job, and what that cached."""
    table.uncached()
    run([*OURS, *expiry(table, size, size.snapshots - DAILY), "--yes"])


def verb(name: str, table: BenchTable, *options: str) -> Work:
    """A verb of ours that asks nothing and says nothing."""
    return ours(name, table.location, "-q", *options, "--yes")


def files_shown(table: BenchTable) -> Work:
    return ours("inspect", table.location, "files", "-o", shown_file(table), "-q")


def shown_file(table: BenchTable) -> str:
    return f"{table.location}.files.parquet"


def floor(program: str, table: BenchTable, paths: Callable[[BenchTable], list[str]]) -> Work:
    """A floor, which reads files of the table as it is then: it finds their paths in a file."""

    def work() -> Run:
        names = Path(f"{table.location}.names")
        names.write_text("\n".join(paths(table)))
        return run([PYTHON, "-c", program, str(names)])

    return work


def matching(pattern: str) -> Callable[[BenchTable], list[str]]:
    return lambda table: sorted(map(str, Path(table.location).rglob(pattern)))


def manifests_of_head(table: BenchTable) -> list[str]:
    shown = ours("inspect", table.location, "manifests", "--format", "json")()
    return [row["path"] for row in json.loads(shown.output)["rows"]]


def position_deletes(bench: Bench) -> tuple[BenchTable, str]:
    """The table with position-delete files, and the name of the work on it."""
    files, positions = POSITIONS[bench.size_name]
    make = partial(tables.make_position_delete_table, files=files, positions=positions)
    return bench.table("positions", make), f"merge-dvs, {files} x {positions:,} positions"


def expire_rows(bench: Bench) -> Iterator[Row]:
    """inspect and expire-snapshots against PyIceberg, iceberg-go, Spark and the floor."""
    size = SIZES[bench.size_name]
    table = bench.table("t", partial(make_table, size=size))
    place, metadata = table.location, f"{table.location}/metadata/v1.metadata.json"
    summary = ours("inspect", place, "--format", "json")
    most_mb = 600 if bench.size_name == "L" else 400
    help_, typer = ours("--help"), python("import typer")
    yield Row("--help", "import typer", help_, typer, bar=2.5, bar_sizes="SML", pairs=7)
    yield Row(
        "inspect (summary)", "PyIceberg, load", summary, python(PYICEBERG + "t.current_snapshot()", metadata),
        table.untouched, bar=1 / 5, bar_sizes="S",
    )  # fmt: skip
    yield Row(
        "inspect (summary)", "iceberg-go info", summary, iceberg_go(place, "info"), table.untouched, bar=5,
        bar_sizes="S",
    )  # fmt: skip
    if bench.size_name != "L":  # PyIceberg would need more memory than there is
        yield Row(
            "inspect files", "PyIceberg files()", files_shown(table), python(PYICEBERG_FILES, metadata),
            table.untouched, look=partial(outcomes.rows_shown, shown_file(table)), their_look=outcomes.rows_printed,
            bar=1 / 6, most_mb=400,
        )  # fmt: skip
    yield Row(
        "expiry plan", "floor: read, inflate", ours(*expiry(table, size, size.kept), "--dry-run"),
        floor(floors.MANIFESTS, table, matching("m-*.avro")), partial(table.uncached, changing=False),
        bar=3.5, most_mb=most_mb,
    )  # fmt: skip
    jobs = expiry_jobs(table, size)
    for row, kept, bar in jobs:
        options = ["--older-than", "1s", "--retain-last", str(kept), "--yes"]
        theirs = iceberg_go(place, "expire-snapshots", *options)
        yield replace(row, theirs=theirs, bar=bar or 1 / 4, most_mb=most_mb)
    for row, kept, bar in jobs if bench.spark else ():
        call, whole = expiry_call("t", size, kept), row.name.startswith("whole")
        with Session(f"{bench.root}/wh") as session:
            cold = partial(session.call, call, cold=True)
            warm = partial(session.second_call, {"sql": call}, row.before)
            yield replace(row, peer=COLD, theirs=cold, bar=1 / 15 if whole else None, pairs=1)
            yield replace(row, peer=WARM, theirs=warm, bar=bar or (1 / 6 if whole else 1 / 5))
    if bench.size_name != "L":
        wide = bench.table("wide", tables.make_wide_table)
        yield Row(
            "inspect (summary), wide", "iceberg-go info", ours("inspect", wide.location, "--format", "json"),
            iceberg_go(wide.location, "info"), wide.untouched, bar=1, most_mb=150, bar_sizes="SML",
        )  # fmt: skip


def expiry_jobs(table: BenchTable, size: Size) -> list[tuple[Row, int, float | None]]:
    """Rows that have no peer yet, the snapshots that they keep, and the bar where it is one for all peers.

    What is cached on a day is used on the next: on the second day, the first one's work was done untimed.
    """
    first = size.snapshots - DAILY
    jobs = (
        ("whole expiry with deletes", size.kept, table.uncached, None),
        ("the daily job", first, table.uncached, None),
        ("the daily job, second day", first - DAILY, partial(day_one, table, size), 1 / 20),
    )
    left = partial(outcomes.files_left, table.location)
    return [
        (
            Row(name, "iceberg-go", ours(*expiry(table, size, kept), "--yes"), None, before, look=left),
            kept,
            bar,
        )
        for name, kept, before, bar in jobs
    ]


def v3_rows(bench: Bench) -> Iterator[Row]:
    """The verbs of version 3 against iceberg-go, Spark's procedures and physical floors."""
    table = bench.table("t", partial(make_table, size=SIZES[bench.size_name], whole=True))
    rewritten = Row(
        "rewrite-manifests", "iceberg-go", verb("rewrite-manifests", table),
        iceberg_go(table.location, "rewrite-manifests"), table.fresh, bar=1 / 3,
        look=partial(outcomes.live_entries, table.location),
    )  # fmt: skip
    yield rewritten
    if bench.spark:
        call = REWRITE_MANIFESTS.format("t")
        with Session(f"{bench.root}/wh") as session:
            warm_up = partial(session.warm_up, call)
            yield replace(
                rewritten, peer=WARM, theirs=partial(session.call, call), warm_up=warm_up, bar=1 / 8
            )

    def upgraded() -> None:
        table.uncached()
        verb("upgrade-v3", table)()

    for name, before, paths in (
        ("upgrade-v3", table.uncached, matching("m-*.avro")),
        ("assign-row-ids", upgraded, manifests_of_head),
    ):
        least = floor(floors.MANIFESTS, table, paths)
        yield Row(name, "floor: read, inflate", verb(name, table), least, before, bar=2.5)
    yield Row(
        "inspect --check", "inspect files", partial(checked, table), files_shown(table), table.untouched, bar=2
    )  # fmt: skip
    files, vectors = PUFFINS[bench.size_name]
    table = bench.table("puffins", partial(tables.make_puffin_table, puffins=files, vectors=vectors))
    yield Row(
        f"merge-dvs, {files} Puffins of {vectors}", "floor: read, unite, write", verb("merge-dvs", table),
        floor(floors.PUFFINS, table, matching("*.puffin")), table.fresh, bar=3,
    )  # fmt: skip
    table, name = position_deletes(bench)
    merged = Row(
        name, "floor: read, unite, write", verb("merge-dvs", table),
        floor(floors.POSITIONS, table, matching("*-deletes.parquet")), table.fresh, most_mb=512,
    )  # fmt: skip
    yield merged
    if bench.spark:
        with Session(f"{bench.root}/wh") as session:
            yield replace(
                merged, peer=WARM, theirs=partial(session.call, REWRITE_POSITION_DELETES), bar=1 / 5,
                warm_up=partial(session.warm_up, REWRITE_POSITION_DELETES),
                look=partial(outcomes.deleted_rows, table.location),
            )  # fmt: skip
    files = DANGLING[bench.size_name]
    table = bench.table("dangling", partial(tables.make_dangling_table, files=files))
    yield Row(
        f"merge-dvs, {files:,} dangling files of v2", "floor: read names", verb("merge-dvs", table),
        floor(floors.NAMES, table, matching("*-deletes.parquet")), table.fresh, bar=1, most_mb=512,
    )  # fmt: skip


def checked(table: BenchTable) -> Run:
    """Run the whole check, files looked at included, which must find no error."""
    result = ours("inspect", table.location, "--check", "--format", "json")()
    errors = [f for f in json.loads(result.output)["findings"] if f["severity"] == "error"]
    if errors:
        raise RuntimeError(f"the check finds {errors[:3]}")
    return result


def delta_rows(bench: Bench) -> Iterator[Row]:
    """The verbs on Delta tables against delta-rs, Delta Spark and the floor.

    delta-rs runs in a Python process, as most people have it; what that costs before any work is a row of its own.
    """
    table = bench.table(
        "delta", partial(delta_tables.make_delta_table, size=delta_tables.SIZES[bench.size_name])
    )
    place, most_mb = table.location, 400 if bench.size_name == "M" else None
    yield Row("start-up (--version)", "import deltalake", ours("--version"), python("import deltalake"))
    listing = python(DELTA_RS + "print(len(t.file_uris()))", place)
    actions = python(DELTA_RS + "print(t.get_add_actions(flatten=True).num_rows)", place)
    load, shown = "delta-rs, load and list", partial(outcomes.rows_shown, shown_file(table))
    summary = ours("inspect", place, "--format", "json")
    yield Row("inspect (summary)", load, summary, listing, table.untouched, bar=1, most_mb=most_mb)
    for peer, theirs in ((load, listing), ("delta-rs, add actions", actions)):
        row = Row("inspect files", peer, files_shown(table), theirs, table.untouched, bar=1, most_mb=most_mb)
        yield replace(row, look=shown, their_look=outcomes.rows_printed)
    left = partial(outcomes.delta_files_left, place)
    for mode, program in VACUUM.items():
        row = Row(
            f"expire-snapshots --mode {mode}", "delta-rs", verb("expire-snapshots", table, "--mode", mode),
            python(DELTA_RS + program, place), table.uncached, look=left, bar=1, most_mb=most_mb,
        )  # fmt: skip
        yield row
        statement = f"VACUUM delta.`{place}`{' LITE' if mode == 'lite' else ''}"
        yield from on_delta_spark(bench, replace(row, bar=1 / 20), {"sql": statement})
    row = Row(
        "rewrite-manifests (checkpoint)", "delta-rs", verb("rewrite-manifests", table), python(DELTA_CHECKPOINT, place),
        table.fresh, look=partial(outcomes.checkpoint, place), bar=1.5, most_mb=most_mb,
    )  # fmt: skip
    yield row
    yield from on_delta_spark(bench, replace(row, bar=1 / 3), {"checkpoint": place})
    files, vectors = delta_tables.VECTORS[bench.size_name]
    table = bench.table("vectors", partial(delta_tables.make_vector_table, files=files, vectors=vectors))
    yield Row(
        f"merge-dvs, {files} DV files of {vectors}", "floor: read, write", verb("merge-dvs", table),
        python(floors.DELTA_VECTORS, table.location), table.fresh, bar=3,
    )  # fmt: skip


def on_delta_spark(bench: Bench, row: Row, job: dict[str, str]) -> Iterator[Row]:
    """The second job of a session of Delta Spark, once: it takes minutes."""
    if bench.spark:
        with Session(f"{bench.root}/wh", "delta") as session:
            theirs = partial(session.second_call, job, row.before)
            yield replace(row, peer="Delta Spark, warm session", theirs=theirs, pairs=1)
