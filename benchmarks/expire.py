"""`python -m benchmarks expire`: inspect and expire-snapshots against PyIceberg, iceberg-go and the physical floor."""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.measure import HEADER, OURS, PYTHON, Run, compare, run
from benchmarks.peers import Session, find_iceberg_go, go_command
from benchmarks.tables import SIZES, STEP_MS, Made, Size, make_table

PAIRS = {"S": 5, "M": 3, "L": 1}
DAILY = 24

FLOOR = """
import sys
from isal import isal_zlib
from iceberg_cli.iceberg.avro import read_container
for path in open(sys.argv[1]).read().split():
    with open(path, "rb") as file:
        read_container(file.read(), path)
"""
PYICEBERG_OPEN = (
    "import sys; from pyiceberg.table import StaticTable; t = StaticTable.from_metadata(sys.argv[1]); "
)
PYICEBERG_LOAD = PYICEBERG_OPEN + "t.current_snapshot()"
PYICEBERG_FILES = PYICEBERG_OPEN + "print(t.inspect.files().num_rows)"


def main(size_name: str, minutes: float, folder: str | None, *, spark: bool) -> None:
    """Build the tables, run both sides, print the ratios."""
    size = SIZES[size_name]
    until = time.monotonic() + minutes * 60
    root = folder or tempfile.mkdtemp(prefix="iceberg-cli-bench-")
    try:
        compile_all(root)
        print(f"table {size_name}: {size.snapshots} snapshots of {size.files_per_snapshot} files, in {root}")
        made, copy = build(root, size)
        print(
            f"  {made.files} files ever, {made.live_files} live, {made.metadata_bytes / 1e6:.0f} MB of metadata"
        )
        print(HEADER)
        go = find_iceberg_go()
        pairs = PAIRS[size_name]
        compare(
            "--help",
            "import typer",
            lambda: run([*OURS, "--help"]),
            lambda: run([PYTHON, "-c", "import typer"]),
            pairs=7,
            bar=2.5,
            until=until,
        )
        measure_inspect(made, size_name, go, pairs, until)
        measure_expiry(made, copy, size, go, pairs, until)
        if spark:
            measure_spark(made, copy, size, pairs, until)
        if size_name != "L":
            measure_big_metadata(root, go, pairs, until)
    finally:
        if folder is None:
            shutil.rmtree(root)


def compile_all(root: str) -> None:
    """Keep the bytecode of every Python program, ours and the peers', as an installed one has it.

    Whether the packages of this environment came with theirs, and whether this source tree may hold any, is chance.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = f"{root}/bytecode"
    made = make_table(f"{root}/wh/db/first", Size(2, 10, 1))
    metadata = f"{made.location}/metadata/v1.metadata.json"
    manifests = Path(f"{made.location}.manifests")
    manifests.write_text("\n".join(glob.glob(f"{made.location}/metadata/m-*.avro")))
    for command in (
        [PYTHON, "-m", "compileall", "-q", "iceberg_cli"],
        [PYTHON, "-c", FLOOR, str(manifests)],
        [PYTHON, "-c", PYICEBERG_FILES, metadata],
        [*OURS, "inspect", made.location],
        [*OURS, "inspect", made.location, "files", "-o", f"{made.location}.files.parquet"],
        [*expire_command(made, 1), "--yes"],
    ):
        run(command)
    shutil.rmtree(made.location)


def build(root: str, size: Size, *, whole: bool = False) -> tuple[Made, str]:
    """The table and a pristine copy of it made of hard links; `whole`: its live files exist too."""
    location = f"{root}/wh/db/t"
    if os.path.isdir(location):
        shutil.rmtree(location)
        shutil.rmtree(f"{root}/pristine", ignore_errors=True)
    made = make_table(location, size, whole=whole)
    copy = f"{root}/pristine"
    subprocess.run(["cp", "-al", location, copy], check=True)
    return made, copy


def measure_inspect(made: Made, size_name: str, go: str | None, pairs: int, until: float) -> None:
    """Summary and files, read only."""
    metadata = f"{made.location}/metadata/v1.metadata.json"
    summary = partial(run, [*OURS, "inspect", made.location, "--format", "json"])
    load = partial(run, [PYTHON, "-c", PYICEBERG_LOAD, metadata])
    compare("inspect (summary)", "PyIceberg, load", summary, load, pairs=pairs, bar=1 / 5, until=until)
    if go:
        info = partial(run, [*go_command(go, made.location), "info", "db.t"])
        compare("inspect (summary)", "iceberg-go info", summary, info, pairs=pairs, bar=5, until=until)
    if size_name != "L":
        output = f"{made.location}.files.parquet"
        files = partial(run, [*OURS, "inspect", made.location, "files", "-o", output, "-q"])
        theirs = partial(run, [PYTHON, "-c", PYICEBERG_FILES, metadata])
        compare("inspect files", "PyIceberg files()", files, theirs, pairs=pairs, bar=1 / 6, until=until)


def expire_command(made: Made, kept: int) -> list[str]:
    """Our expiry, keeping the newest `kept` snapshots."""
    options = ["--older-than", str(made.last_ms), "--retain-last", str(kept)]
    return [*OURS, "expire-snapshots", made.location, "-q", *options]


def measure_expiry(made: Made, copy: str, size: Size, go: str | None, pairs: int, until: float) -> None:
    """Plan against the floor; whole expiry and the daily job against iceberg-go."""
    manifests = Path(f"{made.location}.manifests")
    manifests.write_text("\n".join(glob.glob(f"{made.location}/metadata/m-*.avro")))
    plan = partial(run, [*expire_command(made, size.kept), "--dry-run"])
    floor = partial(run, [PYTHON, "-c", FLOOR, str(manifests)])
    compare("expiry plan", "floor: read, inflate", plan, floor, pairs=pairs, bar=3.5, until=until)
    if not go:
        return
    for name, kept in (("whole expiry with deletes", size.kept), ("the daily job", size.snapshots - DAILY)):
        left: list[set[str]] = []
        ours = partial(run, [*expire_command(made, kept), "--yes"])
        go_options = ["--older-than", "1s", "--retain-last", str(kept), "--yes"]
        theirs = partial(run, [*go_command(go, made.location), "expire-snapshots", *go_options, "db.t"])
        compare(
            name,
            "iceberg-go",
            watched(ours, made, left),
            watched(theirs, made, left),
            pairs=pairs,
            bar=1 / 4,
            prepare=partial(restore, made.location, copy),
            until=until,
        )
        different = sum(other != left[0] for other in left)
        print(
            f"  files left by both: {f'{different} runs differ' if different else 'the same'} ({len(left[0])})"
        )
    restore(made.location, copy)


def measure_spark(made: Made, copy: str, size: Size, pairs: int, until: float) -> None:
    """Whole expiry and the daily job against Spark's procedure: a new process, then the same session, warm."""
    warehouse = str(Path(made.location).parents[1])
    ready = partial(restore, made.location, copy)
    for name, kept, cold_bar, warm_bar in (
        ("whole expiry with deletes", size.kept, 1 / 15, 1 / 6),
        ("the daily job", size.snapshots - DAILY, None, 1 / 5),
    ):
        ours = partial(run, [*expire_command(made, kept), "--yes"])
        job = (
            "CALL lake.system.expire_snapshots(table => 'lake.db.t', older_than => "
            f"TIMESTAMP_MILLIS({made.last_ms}), retain_last => {kept})"
        )
        with Session(warehouse) as session:
            cold, warm = partial(session.call, job, cold=True), partial(session.call, job)
            compare(name, "Spark, new process", ours, cold, pairs=1, bar=cold_bar, prepare=ready, until=until)
            compare(
                name, "Spark, warm session", ours, warm, pairs=pairs, bar=warm_bar, prepare=ready, until=until
            )
    restore(made.location, copy)


def watched(work: Callable[[], Run], made: Made, left: list[set[str]]) -> Callable[[], Run]:
    """`work`, and note which data files, manifests and lists are there afterwards."""

    def call() -> Run:
        result = work()
        names = set(os.listdir(f"{made.location}/data")) | set(os.listdir(f"{made.location}/metadata"))
        left.append({name for name in names if name.endswith((".avro", ".parquet"))})
        return result

    return call


def measure_big_metadata(root: str, go: str | None, pairs: int, until: float) -> None:
    """A metadata.json of 23 MB: 10,000 snapshots and 2,000 schemas."""
    location = f"{root}/wh/db/wide"
    shutil.rmtree(location, ignore_errors=True)
    made = make_table(location, Size(2, 10, 1))
    path = Path(f"{location}/metadata/v1.metadata.json")
    metadata = json.loads(path.read_text())
    last = metadata["snapshots"][-1]
    old = [
        {
            **last,
            "snapshot-id": 10 + i,
            "parent-snapshot-id": 9 + i,
            "timestamp-ms": made.last_ms - (10_000 - i) * STEP_MS,
            "sequence-number": 1,
            "schema-id": i // 5,
        }
        for i in range(9_998)
    ]
    old[0].pop("parent-snapshot-id")
    metadata["snapshots"] = [*old, *metadata["snapshots"]]
    fields = metadata["schemas"][0]["fields"]
    metadata["schemas"] = [
        {
            "type": "struct",
            "schema-id": n,
            "fields": [
                *fields,
                *(
                    {
                        "id": 100 + k,
                        "name": f"column_{k}",
                        "required": False,
                        "type": "string",
                        "doc": "added",
                    }
                    for k in range(n % 130)
                ),
            ],
        }
        for n in range(2_000)
    ]
    metadata["last-column-id"] = 1_000
    path.write_text(json.dumps(metadata, separators=(",", ":")))
    print(f"  metadata.json of {path.stat().st_size / 1e6:.0f} MB")
    if go:
        ours = partial(run, [*OURS, "inspect", location, "--format", "json"])
        theirs = partial(run, [*go_command(go, location), "info", "db.wide"])
        compare("inspect (summary), wide", "iceberg-go info", ours, theirs, pairs=pairs, bar=1, until=until)


def restore(location: str, copy: str) -> None:
    """Put the pristine table back in its place."""
    shutil.rmtree(location)
    subprocess.run(["cp", "-al", copy, location], check=True)
