"""`python -m benchmarks versions --before DIR`: our program here against the one in another checkout, verb by verb.

Both run in a folder that holds neither, so that only `PYTHONPATH` decides which one is imported. The one that goes
first alternates. Ratios are those of this version to the one before, medians over the pairs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import delta_tables, rows, tables
from benchmarks.bench import Bench, BenchTable, Row, show
from benchmarks.measure import OURS, PYTHON, Run, run
from tests.large_tables import Size, make_table

PAIRS = 7
HEADER = "verb | pairs | seconds | before | wall | cpu | memory | bar"
WIDTHS = (38, 5, 7, 7, 5, 5, 6, 6)
ROOT = Path(__file__).parents[1]
MEASURES: dict[str, Callable[[Run], float]] = {
    "seconds": lambda run: run.seconds, "cpu_seconds": lambda run: run.cpu_seconds, "peak_mb": lambda run: run.peak_mb,
}  # fmt: skip


@dataclass(frozen=True)
class Version:
    """A checkout of our program, and the neutral folder in which it is run."""

    root: Path
    folder: str

    def run(self, command: list[str]) -> Run:
        return run(command, env={**os.environ, "PYTHONPATH": str(self.root)}, folder=self.folder)

    def compile(self) -> None:
        """Keep its bytecode.

        Raises:
            SystemExit: another package is imported.
        """
        shown = (
            self.run([PYTHON, "-c", "import iceberg_cli; print(iceberg_cli.__file__)"])
            .output.decode()
            .strip()
        )
        if not Path(shown).is_relative_to(self.root):
            raise SystemExit(f"Cannot compare with {self.root}: iceberg_cli is imported from {shown}")
        self.run([PYTHON, "-m", "compileall", "-q", f"{self.root}/iceberg_cli"])


def main(bench: Bench) -> None:
    """Measure every verb of both formats; a median above the bar is a failure."""
    folder = f"{bench.root}/neutral"
    os.makedirs(folder, exist_ok=True)
    after, before = Version(ROOT, folder), Version(Path(bench.before).resolve(), folder)
    for version in (after, before):
        version.compile()
    show(HEADER.split(" | "), WIDTHS)
    for name, place, arguments in commands(bench):
        if bench.selects(name):
            ours, theirs = (partial(each.run, [*OURS, *arguments]) for each in (after, before))
            row = Row(name, "before", ours, theirs, place, ours, pairs=PAIRS)
            compare(bench, row)


def compare(bench: Bench, row: Row) -> None:
    """Run both versions, print and write the ratios, and note those that are above the bar."""
    ours, theirs, _ = bench.run_pairs(row, alternating=True)
    pairs = list(zip(ours, theirs, strict=True))
    ratios = {name: median(of(a) / of(b) for a, b in pairs) for name, of in MEASURES.items()}
    seconds = [median(run.seconds for run in runs) for runs in (ours, theirs)]
    missed = [f"{name} {ratio:.2f}" for name, ratio in ratios.items() if ratio > bench.bar]
    numbers = [f"{number:.2f}" for number in (*seconds, *ratios.values())]
    show([row.name, str(len(ours)), *numbers, "MISSED" if missed else ""], WIDTHS)
    bench.write("versions", {"name": row.name, "pairs": len(ours), "bar": bench.bar, **ratios})
    if missed:
        bench.failures.append(
            f"{row.name}: {', '.join(missed)} times the version before, above {bench.bar:g}"
        )


def commands(bench: Bench) -> Iterator[tuple[str, Callable[[], None], list[str]]]:
    """Name, what puts the table in its place, and arguments: of every verb and look, on both formats."""
    size, delta_size = tables.SIZES[bench.size_name], delta_tables.SIZES[bench.size_name]
    table = bench.table("t", partial(make_table, size=size, whole=True))
    upgraded = bench.table("upgraded", partial(make_upgraded, size))
    puffins, vectors = rows.PUFFINS[bench.size_name]
    puffin = bench.table("puffins", partial(tables.make_puffin_table, puffins=puffins, vectors=vectors))
    positions, _ = rows.position_deletes(bench)
    make = partial(tables.make_dangling_table, files=rows.DANGLING[bench.size_name])
    dangling = bench.table("dangling", make)
    yield "--version", lambda: None, ["--version"]
    yield from looks("Iceberg", table)
    yield "Iceberg expire-snapshots", table.uncached, [*rows.expiry(table, size, size.kept), "--yes"]
    for name, each, detail in (
        ("rewrite-manifests", table, ""), ("upgrade-v3", table, ""), ("assign-row-ids", upgraded, ""),
        ("merge-dvs", puffin, ", Puffins"), ("merge-dvs", positions, ", positions"),
        ("merge-dvs", dangling, ", dangling"),
    ):  # fmt: skip
        yield f"Iceberg {name}{detail}", each.uncached, [name, each.location, "-q", "--yes"]
    for each in (table, upgraded, puffin, positions, dangling):
        each.remove()
    files, vectors = delta_tables.VECTORS[bench.size_name]
    table = bench.table("delta", partial(delta_tables.make_delta_table, size=delta_size))
    vector = bench.table("vectors", partial(delta_tables.make_vector_table, files=files, vectors=vectors))
    yield from looks("Delta", table)
    for name, each, options in (
        ("expire-snapshots", table, ["--mode", "lite"]), ("expire-snapshots", table, ["--mode", "full"]),
        ("rewrite-manifests", table, []), ("merge-dvs", vector, []), ("upgrade-v3", table, []),
        ("assign-row-ids", table, []),
    ):  # fmt: skip
        title = " ".join(["Delta", name, *options])
        yield title, each.uncached, [name, each.location, "-q", *options, "--yes"]


def looks(table_format: str, table: BenchTable) -> Iterator[tuple[str, Callable[[], None], list[str]]]:
    place, inspect = partial(table.uncached, changing=False), ["inspect", table.location]
    yield f"{table_format} inspect", place, [*inspect, "--format", "json"]
    yield f"{table_format} inspect files", place, [*inspect, "files", "-o", rows.shown_file(table), "-q"]
    yield f"{table_format} inspect --check", place, [*inspect, "--check", "--format", "json"]


def make_upgraded(size: Size, location: str) -> None:
    make_table(location, size, whole=True)
    run([*OURS, "upgrade-v3", location, "-q", "--yes"])
