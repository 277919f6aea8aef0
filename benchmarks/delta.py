"""`python -m benchmarks delta`: the verbs on Delta tables against delta-rs, Delta Spark and the floor.

delta-rs runs in a Python process, as most people have it; what that costs before any work is a row of its own.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import floors
from benchmarks.bench import HEADER, Bench, Cost, Kept, Pair
from benchmarks.delta_peer import DeltaSession
from benchmarks.delta_tables import SIZES, VECTORS, Size, make_delta_table, make_vector_table
from benchmarks.expire import unlearnt
from benchmarks.measure import OURS, PYTHON, Run, run
from benchmarks.peers import find_iceberg_go
from benchmarks.v3 import ours

COSTS = {
    "S": Cost(minutes=1, spark_minutes=5, disk_gb=0.1),
    "M": Cost(minutes=5, spark_minutes=20, disk_gb=1),
    "L": Cost(minutes=45, spark_minutes=180, disk_gb=8),
}
MOST_MB = 400  # for M
PEER = "delta-rs"
START_UP = "import deltalake"
_OPEN = "import sys; from deltalake import DeltaTable; t = DeltaTable(sys.argv[1]); "
LIST_FILES = _OPEN + "print(len(t.file_uris()))"
LIST_ROWS = _OPEN + "print(t.get_add_actions(flatten=True).num_rows)"
CHECKPOINT = _OPEN + "t.create_checkpoint()"
VACUUM = {
    "lite": _OPEN + "t.vacuum(dry_run=False)",
    "full": _OPEN + "t.vacuum(dry_run=False, full=True)",
}
SPARK_VACUUM = {"lite": "VACUUM delta.`{}` LITE", "full": "VACUUM delta.`{}`"}


def main(bench: Bench) -> None:
    """Run both sides of every row."""
    if find_spec("deltalake") is None:
        print("deltalake is not here: nothing to measure")
        return
    bench.announce(COSTS)
    compile_all(bench.root)
    print(HEADER)
    table = bench.kept("delta", partial(make_delta_table, size=SIZES[bench.size_name]))
    bench.measure(
        Pair(
            name="start-up (--version)",
            peer=START_UP,
            ours=partial(run, [*OURS, "--version"]),
            theirs=partial(run, [PYTHON, "-c", START_UP]),
        )
    )
    measure_inspect(bench, table)
    measure_vacuum(bench, table)
    measure_checkpoint(bench, table)
    measure_vectors(bench)


def compile_all(root: str) -> None:
    """Keep the bytecode of every Python program, see `expire.compile_all`."""
    find_iceberg_go()  # reports name its version, and it may be in the cache of the user
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = f"{root}/bytecode"
    os.environ["XDG_CACHE_HOME"] = f"{root}/cache"
    first = Kept(
        f"{root}/wh/db/first", f"{root}/pristine/first", partial(make_delta_table, size=Size(12, 4, 1))
    )
    vectors = Kept(f"{root}/wh/db/v", f"{root}/pristine/v", partial(make_vector_table, files=3, vectors=3))
    output = f"{first.location}.files.parquet"
    for table, command in (
        (first, [PYTHON, "-m", "compileall", "-q", "iceberg_cli"]),
        (first, [PYTHON, "-c", CHECKPOINT, first.location]),
        (first, [PYTHON, "-c", VACUUM["full"], first.location]),
        (first, [*OURS, "inspect", first.location]),
        (first, [*OURS, "inspect", first.location, "files", "-o", output]),
        (first, [*OURS, "rewrite-manifests", first.location, "--yes"]),
        (first, [*OURS, "expire-snapshots", first.location, "--yes"]),
        (vectors, [*OURS, "merge-dvs", vectors.location, "--yes"]),
    ):
        table.fresh()
        run(command)
    for table in (first, vectors):
        table.remove()


def measure_inspect(bench: Bench, table: Kept) -> None:
    """Summary and files, against loading the table and listing its files."""
    output = f"{table.location}.files.parquet"
    most_mb = MOST_MB if bench.size_name == "M" else None
    files = [*OURS, "inspect", table.location, "files", "-o", output, "-q"]
    pair = partial(Pair, before=table.untouched, bar=1, most_mb=most_mb)
    listing = partial(run, [PYTHON, "-c", LIST_FILES, table.location])
    bench.measure(
        pair(
            name="inspect (summary)",
            peer=f"{PEER}, load and list",
            ours=partial(run, [*OURS, "inspect", table.location, "--format", "json"]),
            theirs=listing,
        )
    )
    counted = (lambda _: int(pq.read_metadata(output).num_rows), lambda made: int(made.output))
    for peer, theirs in (
        (f"{PEER}, load and list", listing),
        (f"{PEER}, add actions", partial(run, [PYTHON, "-c", LIST_ROWS, table.location])),
    ):
        bench.measure(
            pair(name="inspect files", peer=peer, ours=partial(run, files), theirs=theirs, results=counted)
        )


def measure_vacuum(bench: Bench, table: Kept) -> None:
    """VACUUM with deletes: by the log alone, and by listing the folder."""
    most_mb = MOST_MB if bench.size_name == "M" else None
    before = partial(unlearnt, table.fresh)
    for mode, program in VACUUM.items():
        pair = partial(
            Pair,
            name=f"expire-snapshots --mode {mode}",
            ours=ours("expire-snapshots", table.location, "--mode", mode, "--yes"),
            before=before,
            results=(data_files_left(table.location),) * 2,
            most_mb=most_mb,
        )
        bench.measure(pair(peer=PEER, theirs=partial(run, [PYTHON, "-c", program, table.location]), bar=1))
        if bench.spark:
            statement = SPARK_VACUUM[mode].format(table.location)
            measure_spark(bench, partial(pair, bar=1 / 20), statement, before)


def measure_checkpoint(bench: Bench, table: Kept) -> None:
    """A checkpoint of the newest version."""
    pair = partial(
        Pair,
        name="rewrite-manifests (checkpoint)",
        ours=ours("rewrite-manifests", table.location, "--yes"),
        before=table.fresh,
        results=(checkpointed(table.location),) * 2,
        most_mb=MOST_MB if bench.size_name == "M" else None,
    )
    bench.measure(pair(peer=PEER, theirs=partial(run, [PYTHON, "-c", CHECKPOINT, table.location]), bar=1.5))
    if bench.spark:
        measure_spark(bench, partial(pair, bar=1 / 3), f"CHECKPOINT {table.location}", table.fresh)


def measure_spark(
    bench: Bench, pair: Callable[..., Pair], statement: str, before: Callable[[], None]
) -> None:
    """The second statement of a session of Delta Spark, once: it takes minutes."""
    with DeltaSession(f"{bench.root}/wh") as session:
        theirs = partial(session.second_call, statement, before)
        bench.measure(pair(peer="Delta Spark, warm session", theirs=theirs, pairs=1))


def measure_vectors(bench: Bench) -> None:
    """Many files of deletion vectors into few, against reading log and vectors and writing them alone."""
    files, vectors = VECTORS[bench.size_name]
    table = bench.kept("vectors", partial(make_vector_table, files=files, vectors=vectors))
    bench.measure(
        Pair(
            name=f"merge-dvs, {files} DV files of {vectors}",
            peer="floor: read, write",
            ours=ours("merge-dvs", table.location, "--yes"),
            theirs=partial(run, [PYTHON, "-c", floors.DELTA_VECTORS, table.location]),
            before=table.fresh,
            bar=3,
        )
    )


def data_files_left(location: str) -> Callable[[Run], Hashable]:
    """The data files that are there."""

    def look(_: Run) -> Hashable:
        names = Path(location).glob("day=*/*.parquet")
        return _digest(f"{path.parent.name}/{path.name}" for path in names)

    return look


def checkpointed(location: str) -> Callable[[Run], Hashable]:
    """The version of the newest checkpoint, its files and how many tombstones it has, by PyArrow."""

    def look(_: Run) -> Hashable:
        path = max(Path(f"{location}/_delta_log").glob("*.checkpoint.parquet"))
        table = pq.ParquetFile(path).read(columns=["add.path", "remove.path"])
        adds, removes = (pc.struct_field(table[kind], "path").drop_null() for kind in ("add", "remove"))
        return path.name, _digest(adds.to_pylist()), len(removes)

    return look


def _digest(names: Iterable[str]) -> Hashable:
    ordered = sorted(names)
    return len(ordered), hashlib.sha256("\n".join(ordered).encode()).hexdigest()
