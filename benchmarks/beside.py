"""`python -m benchmarks beside`: how much of a compaction is committed while another writer deletes rows all the time.

`python -m benchmarks.beside LOCATION KIND` is that writer, in a process of its own: it deletes a few rows by
each commit until it is told to end, reads nothing of what compaction knows, and then prints how many commits it made,
how many it had to make again, and which rows it deleted.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq

from benchmarks.bench import Bench, BenchTable, Line, show
from benchmarks.compaction import SCHEMA, SIZES, add_equality_deletes, make_rows_table
from benchmarks.measure import PYTHON
from benchmarks.peers import ours
from benchmarks.row_files import PARTITIONS
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.iceberg_files import DATA
from tests.delete_tables import DeleteTable
from tests.duckdb_reading import duckdb_with_iceberg

# Of each kind of delete the format's version.
KINDS: Final = {"position deletes": 2, "deletion vectors": 3, "equality deletes": 2}
EVERY_S: Final = 1.0  # passes between two commits; of L a group takes about ten times as long
RUNS: Final = 3
LEAST: Final = 0.99  # of the bytes of all files, which are committed as rewritten
ROWS: Final = 20  # that a commit deletes
HEADER = "writer beside | runs | bytes committed | bar | commits of both | their commits made again | rows"
WIDTHS = (40, 4, 22, 12, 16, 25, 6)


def main(bench: Bench) -> None:
    """Three runs beside each kind of writer, with the median of what was committed, and the rows counted by DuckDB."""
    files, rows = SIZES[bench.size_name]
    show(HEADER.split(" | "), WIDTHS)
    for kind, version in KINDS.items():
        name = f"{kind}, every {EVERY_S:g} s"
        if not bench.selects(name, ""):
            continue
        table = bench.table(
            f"beside{version}", partial(make_rows_table, files=files, rows=rows, version=version)
        )
        runs = [_run(table, kind) for _ in range(RUNS)]
        line = {"name": name, "runs": runs, "bar": LEAST}
        show(cells_of(line, "MISSED"), WIDTHS)
        bench.write("beside", line)
        bench.check_same(name, all(run["same"] for run in runs))


def cells_of(line: Line, missed: str) -> list[str]:
    """A measured row in the columns of `HEADER`."""
    runs = sorted(line["runs"], key=lambda run: run["share"])
    least, *_, most = (f"{run['share']:.1%}" for run in runs)
    share = median(run["share"] for run in runs)
    return [
        line["name"], str(len(runs)), f"{share:.1%} ({least} to {most})",
        f"{line['bar']:.0%} {'met' if share >= line['bar'] else missed}",
        ", ".join(f"{run['own']}/{run['theirs']}" for run in runs), ", ".join(str(run["again"]) for run in runs),
        "yes" if all(run["same"] for run in runs) else "NO",
    ]  # fmt: skip


def _run(table: BenchTable, kind: str) -> dict[str, Any]:
    table.fresh()
    whole = sum(path.stat().st_size for path in Path(table.location).rglob("f*.parquet"))
    arguments = [PYTHON, "-m", "benchmarks.beside", table.location, kind]
    before = _newest(table.location)
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as writer:
        try:
            while _newest(table.location) == before:
                assert writer.poll() is None, "the writer has ended"
                time.sleep(0.01)
            done = json.loads(
                ours("rewrite-data-files", table.location, "-q", "--yes", "--format", "json")().output
            )
        finally:
            writer.send_signal(signal.SIGTERM)
        said = json.loads(writer.communicate()[0])
    gone = np.array(said["deleted"], np.int64)
    files, rows = _first_rows(table)
    numbers = np.arange(files * rows)
    if KINDS[kind] >= 3:  # a tenth is deleted from the first
        positions, first = numbers % rows, numbers // rows % PARTITIONS
        numbers = numbers[(positions < first) | ((positions - first) % 10 != 0)]
    left = np.setdiff1d(numbers, gone, assume_unique=True)
    metadata = f"{table.location}/metadata/v{_newest(table.location)}.metadata.json"
    found = duckdb_with_iceberg().sql(f"SELECT count(*), sum(n) FROM iceberg_scan('{metadata}')").fetchone()
    return {
        "share": done["rewritten_bytes_count"] / whole,
        "own": len(done["commits"]),
        "theirs": said["commits"],
        "again": said["again"],
        "same": found == (len(left), int(left.sum())),
    }


def _first_rows(table: BenchTable) -> tuple[int, int]:
    paths = list(Path(table.copy).rglob("f*.parquet"))
    return len(paths), pq.read_metadata(paths[0]).num_rows


def _newest(location: str) -> int:
    names = (path.name for path in Path(f"{location}/metadata").glob("v*.metadata.json"))
    return max(int(name[1:].partition(".")[0]) for name in names)


def _write(location: str, kind: str) -> None:
    stopped: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    drawn, deleted = random.Random(5), set[int]()
    commits = again = 0
    due = time.monotonic()
    while not stopped:
        version = _newest(location)
        document = json.loads(Path(f"{location}/metadata/v{version}.metadata.json").read_text())
        table = DeleteTable(
            storage=LocalStorage(), location=location, format_version=KINDS[kind], schema=SCHEMA
        )
        table.reload(document, version)
        entry = drawn.choice([each for each in table.live() if each["content"] == DATA])
        numbers = pq.read_table(entry["file_path"], columns=["n"])["n"].to_numpy()
        own = {*drawn.sample(numbers.tolist(), ROWS)}
        k, label = entry["partition"]["k"], f"w{commits}-{again}-{version}"
        name = entry["file_path"].removeprefix(f"{location}/data/").removesuffix(".parquet")
        match kind:
            case "position deletes":
                table.positions(label, {name: {*np.flatnonzero(np.isin(numbers, [*own])).tolist()}}, k=k)
            case "deletion vectors":
                before = {*_positions(table, entry["file_path"])}
                new = np.flatnonzero(np.isin(numbers, [*own])).tolist()
                own = {int(numbers[place]) for place in new if place not in before}
                table.vectors(label, {name: before | {*new}}, k=k)
            case _:
                add_equality_deletes(table, f"{label}-eq", sorted(own), k=k)
        table.commit(drawn.getrandbits(62))
        try:
            table.publish()
        except FileExistsError:
            again += 1
            continue
        commits += 1
        deleted |= own
        due += EVERY_S
        while not stopped and (rest := due - time.monotonic()) > 0:
            time.sleep(min(rest, 0.05))
    print(json.dumps({"commits": commits, "again": again, "deleted": sorted(deleted)}))


def _positions(table: DeleteTable, path: str) -> set[int]:
    """Those that the deletion vector of a data file has."""
    from iceberg_cli.testing.iceberg_reader import deleted_positions

    (entry,) = (each for each in table.live() if each["file_path"] == path)
    vectors = [each for each in table.live() if each.get("referenced_data_file") == path]
    return deleted_positions(table.storage, entry, vectors)


if __name__ == "__main__":
    _write(sys.argv[1], sys.argv[2])
