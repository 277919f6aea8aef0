"""`python -m benchmarks v3`: the verbs of version 3 against iceberg-go, Spark's procedures and physical floors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.delete_tables import make_position_delete_table, make_puffin_table
from benchmarks.expire import build, compile_all, restore
from benchmarks.measure import HEADER, OURS, PYTHON, Run, compare, run
from benchmarks.peers import Session, find_iceberg_go, go_command
from benchmarks.tables import SIZES, Made

PAIRS = 3
PUFFINS = {"S": (20, 20), "M": (500, 20), "L": (500, 20)}  # files, vectors in each
POSITION_DELETES = {
    "S": (20, 10_000),
    "M": (1_000, 100_000),
    "L": (1_000, 100_000),
}  # files, positions in each

# Reads the deletion vectors of the Puffin files that a file names, unites them by data file, and writes one Puffin file
# as Java would: run-optimised bitmaps, each framed with its CRC, a footer that lists all blobs, flushed.
PUFFIN_FLOOR = r"""
import json, os, struct, sys, zlib
from pyroaring import BitMap64
united = {}
for path in open(sys.argv[1]).read().split():
    with open(path, "rb") as file:
        data = file.read()
    size = int.from_bytes(data[-12:-8], "little")
    for blob in json.loads(data[-12 - size : -12])["blobs"]:
        start, end = blob["offset"], blob["offset"] + blob["length"]
        bitmap = BitMap64.deserialize(data[start + 8 : end - 4])
        name = blob["properties"]["referenced-data-file"]
        if name in united:
            united[name] |= bitmap
        else:
            united[name] = bitmap
parts, blobs, at = [b"PFA1"], [], 4
for name, bitmap in united.items():
    bitmap.run_optimize()
    body = b"\xd1\xd39d" + bitmap.serialize()
    parts += [struct.pack(">I", len(body)), body, struct.pack(">I", zlib.crc32(body))]
    properties = {"referenced-data-file": name, "cardinality": str(len(bitmap))}
    blobs.append({"type": "deletion-vector-v1", "fields": [2147483645], "snapshot-id": -1, "sequence-number": -1,
                  "offset": at, "length": len(body) + 8, "properties": properties})
    at += len(body) + 8
footer = json.dumps({"blobs": blobs}).encode()
parts += [b"PFA1", footer, struct.pack("<I", len(footer)), bytes(4), b"PFA1"]
with open(sys.argv[1] + ".puffin", "wb") as file:
    file.write(b"".join(parts))
    file.flush()
    os.fsync(file.fileno())
"""


def main(size_name: str, minutes: float, folder: str | None, *, spark: bool) -> None:
    """Build the tables, run both sides, print the ratios."""
    until = time.monotonic() + minutes * 60
    root = folder or tempfile.mkdtemp(prefix="iceberg-cli-bench-")
    try:
        compile_all(root)
        made, copy = build(root, SIZES[size_name], whole=True)
        print(f"table {size_name}: {made.live_files} live files, in {root}")
        print(HEADER)
        measure_rewrite_manifests(made, copy, size_name, until, spark=spark)
        measure_metadata_verbs(made, copy, until)
        measure_check(made, until)
        measure_puffins(root, size_name, until)
        measure_position_deletes(root, size_name, until, spark=spark)
    finally:
        if folder is None:
            shutil.rmtree(root)


def bar_of(bar: float, size_name: str) -> float | None:
    """The bars are for M; on S start-up is most of the time."""
    return None if size_name == "S" else bar


def measure_rewrite_manifests(made: Made, copy: str, size_name: str, until: float, *, spark: bool) -> None:
    """The manifests of the current snapshot."""
    ready = partial(restore, made.location, copy)
    ours = partial(run, [*OURS, "rewrite-manifests", made.location, "-q", "--yes"])
    go = find_iceberg_go()
    if go:
        theirs = partial(run, [*go_command(go, made.location), "rewrite-manifests", "db.t"])
        compare(
            "rewrite-manifests",
            "iceberg-go",
            ours,
            theirs,
            pairs=PAIRS,
            bar=bar_of(1 / 3, size_name),
            prepare=ready,
            until=until,
        )
    if spark:
        with Session(str(Path(made.location).parents[1])) as session:
            theirs = partial(session.call, "CALL lake.system.rewrite_manifests('lake.db.t')")
            theirs()
            compare(
                "rewrite-manifests",
                "Spark, warm session",
                ours,
                theirs,
                pairs=PAIRS,
                bar=bar_of(1 / 8, size_name),
                prepare=ready,
                until=until,
            )
    ready()


def measure_metadata_verbs(made: Made, copy: str, until: float) -> None:
    """upgrade-v3 and assign-row-ids beyond start-up, of which `inspect properties` is the measure."""
    start = partial(run, [*OURS, "inspect", made.location, "properties", "-q"])
    upgrade = partial(run, [*OURS, "upgrade-v3", made.location, "-q", "--yes"])
    assign = partial(run, [*OURS, "assign-row-ids", made.location, "-q", "--yes"])

    def upgraded() -> None:
        restore(made.location, copy)
        upgrade()

    for name, work, prepare in (
        ("upgrade-v3", upgrade, partial(restore, made.location, copy)),
        ("assign-row-ids", assign, upgraded),
    ):
        result = compare(name, "start-up", work, start, pairs=PAIRS, bar=None, prepare=prepare, until=until)
        beyond = min(result.ours) - min(result.theirs)
        print(f"  {beyond:.2f} s beyond start-up: {'met' if beyond < 1 else 'MISSED'}, the bar is 1 s")
    restore(made.location, copy)


def measure_check(made: Made, until: float) -> None:
    """The whole check, files looked at included, against showing all files."""
    output = f"{made.location}.files.parquet"
    files = partial(run, [*OURS, "inspect", made.location, "files", "-o", output, "-q"])
    check = partial(run_checked, [*OURS, "inspect", made.location, "--check", "--format", "json"])
    compare("inspect --check", "inspect files", check, files, pairs=PAIRS, bar=2, until=until)


def run_checked(command: list[str]) -> Run:
    """Run a check that must find no error."""
    result = run(command)
    errors = [f for f in json.loads(result.output)["findings"] if f["severity"] == "error"]
    if errors:
        raise RuntimeError(f"the check finds {errors[:3]}")
    return result


def measure_puffins(root: str, size_name: str, until: float) -> None:
    """Compaction of Puffin files with dead vectors, against reading, uniting and writing alone."""
    location = f"{root}/wh/db/puffins"
    files, vectors = PUFFINS[size_name]
    prepare = _kept(location, partial(make_puffin_table, location, puffins=files, vectors=vectors))
    prepare()
    names = Path(f"{location}.puffins")
    names.write_text("\n".join(str(path) for path in sorted(Path(location).rglob("*.puffin"))))
    ours = partial(run, [*OURS, "merge-dvs", location, "-q", "--yes"])
    floor = partial(run, [PYTHON, "-c", PUFFIN_FLOOR, str(names)])
    what = f"merge-dvs, {files} Puffins of {vectors}"
    compare(
        what,
        "floor: read, unite, write",
        ours,
        floor,
        pairs=PAIRS,
        bar=bar_of(3, size_name),
        prepare=prepare,
        until=until,
    )


def measure_position_deletes(root: str, size_name: str, until: float, *, spark: bool) -> None:
    """Position-delete files to deletion vectors on an upgraded table."""
    location = f"{root}/wh/db/positions"
    files, positions = POSITION_DELETES[size_name]
    prepare = _kept(location, partial(make_position_delete_table, location, files=files, positions=positions))
    ours = partial(run, [*OURS, "merge-dvs", location, "-q", "--yes"])
    what = f"merge-dvs, {files} x {positions:,} positions"
    if not spark:
        prepare()
        result = ours()
        print(f"{what:<57} {result.seconds:>8.2f} s, {result.peak_mb:.0f} MB")
        return
    with Session(str(Path(location).parents[1])) as session:
        statement = (
            "CALL lake.system.rewrite_position_delete_files(table => 'lake.db.positions', "
            "options => map('rewrite-all', 'true'))"
        )
        prepare()
        session.call(statement)
        theirs = partial(session.call, statement)
        compare(
            what,
            "Spark, warm session",
            ours,
            theirs,
            pairs=PAIRS,
            bar=bar_of(1 / 5, size_name),
            prepare=prepare,
            until=until,
        )


def _kept(location: str, make: Callable[[], object]) -> Callable[[], None]:
    """Make a table once; what is returned puts it back as it was."""
    shutil.rmtree(location, ignore_errors=True)
    copy = f"{location}.pristine"
    shutil.rmtree(copy, ignore_errors=True)
    os.makedirs(os.path.dirname(location), exist_ok=True)
    make()
    subprocess.run(["cp", "-al", location, copy], check=True)
    return partial(restore, location, copy)
