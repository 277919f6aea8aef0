"""`python -m benchmarks report`: the page of the last results, from the lines that benchmarks wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from benchmarks import beside, order, slopes
from benchmarks.bench import HEADER, Line, cells_of
from benchmarks.growth import BY_ROWS
from benchmarks.spark import DRIVER, driver_cells

ROWS = "benchmarks/results.jsonl"
PAGE = "benchmarks/RESULTS.md"
PLOT = "growth.svg"

_ABOUT = """# Results of the benchmarks

The last result of every row, made by `python -m benchmarks report` from what `--report FILE` wrote. Times are wall
seconds, or processor seconds where the work says so, medians of pairs that ran back to back; ratios are ours to the
peer's, median (least to greatest). Memory is the peak of all processes of a side together. "Same": what both left was
read by other libraries and compared.
"""
_ABOUT_BESIDE = (
    "A literal writer in a process of its own deletes 20 rows by each commit, from before the compaction starts until "
    "it has ended. Bytes are those of the files that one compaction replaced, of all that there are; rows were counted "
    "and added up by DuckDB."
)
_ABOUT_ORDER = (
    "Files that reads of 1,000 drawn rows open, by the bounds in the footers: ours to the peer's, and likewise the "
    "shares of the files that there are."
)
_ABOUT_CROSSOVER = "The expiry plan; ratios of the Spark engine's time to the local engine's."
_ABOUT_DRIVER = (
    "Two workers in processes of their own; the driver's JVM has a heap of 512 MB and the serial collector. MB are "
    'the peaks of our process and of the JVM, added up. "Same": the plan of our local engine is equal.'
)
_ABOUT_GROWTH = (
    "Slopes are those of the logarithms: 1 is proportional, 0 flat. Entries are those that must be read; for the "
    "daily job, whose work is the same on each table, those that the table holds; for rewrite-data-files its rows."
)
_MISSED = "**missed**"
_CROSSOVER = "entries | MB of metadata | new process | warm session | `--engine auto`"
_LARGE_FILES = 100_000_000
_FURTHEST = 1_000  # how much smaller the largest table may be that this is said from
_MINUTES = 10
# What an operator would call too much for one run: a core hour, 16 GB, a million requests to an object store.
_BUDGETS = {
    "cpu_seconds": ("processor time", 3_600, "s"),
    "peak_mb": ("memory", 16 * 1024, "MB"),
    "requests": ("requests to the storage", 1_000_000, "requests"),
}


def main(rows: str, page: str) -> None:
    with open(rows, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    pairs = _last(lines, "pair", ("benchmark", "size", "name", "peer"))
    points = _last(lines, "point", ("size", "work", "entries"))
    largest = next((size for size in "LMS" if any(point["size"] == size for point in points)), "")
    points = [point for point in points if point["size"] == largest]
    text = [_ABOUT, *_machines(lines)]
    groups: dict[tuple[str, str], list[Line]] = {}
    for pair in pairs:
        groups.setdefault((pair["benchmark"], pair["size"]), []).append(pair)
    for (benchmark, size), mine in groups.items():
        text += _section(
            f"{benchmark}, size {size}", [_made_by(mine)], HEADER, (cells_of(line, _MISSED) for line in mine)
        )
    besides = _last(lines, "beside", ("size", "name"))
    text += _section(
        "Compaction beside a writer",
        [_made_by(besides), _ABOUT_BESIDE] if besides else [],
        f"size | {beside.HEADER}",
        ([line["size"], *beside.cells_of(line, _MISSED)] for line in besides),
    )
    orders = _last(lines, "order", ("size", "name", "order", "peer", "column"))
    text += _section(
        "Files that reads open once rows are in an order",
        [_made_by(orders), _ABOUT_ORDER] if orders else [],
        f"size | {order.HEADER}",
        ([line["size"], *order.cells_of(line, _MISSED)] for line in orders),
    )
    crossovers = sorted(_last(lines, "crossover", ("entries",)), key=lambda each: int(each["entries"]))
    text += _section(
        "Local engine or Spark engine", [_ABOUT_CROSSOVER], _CROSSOVER, map(_crossover, crossovers)
    )
    drivers = _last(lines, "driver", ("work", "removals"))
    about = [_made_by(drivers), _ABOUT_DRIVER] if drivers else []
    text += _section(
        "Memory of Spark's driver", about, DRIVER, map(partial(driver_cells, missed=_MISSED), drivers)
    )
    if points:
        about = [_made_by(points), _ABOUT_GROWTH]
        drawn = slopes.plot(points)
        if drawn is None:
            print(f"no {PLOT}: matplotlib is not installed, it is in the extra `bench`")
        else:
            Path(page).with_name(PLOT).write_bytes(drawn)
            about.insert(1, f"![time and memory against entries]({PLOT})")
        text += [
            *_section("Growth", about, slopes.HEADER, slopes.cells_of_fits(points)),
            *_large_table([point for point in points if point["work"] != BY_ROWS]),
        ]
    Path(page).write_text("\n".join(text).rstrip() + "\n", encoding="utf-8")
    print(f"{len(pairs)} rows and {len(points)} points: {page}")


def _last(lines: Iterable[Line], kind: str, key: tuple[str, ...]) -> list[Line]:
    """The last line for each key, in the order of the first."""
    return list({tuple(line[name] for name in key): line for line in lines if line["kind"] == kind}.values())


def _section(title: str, about: Iterable[str], header: str, rows: Iterable[Iterable[str]]) -> list[str]:
    """Paragraphs and a table under a heading; nothing without rows."""
    found = [f"| {' | '.join(row)} |" for row in rows]
    if not found:
        return []
    rule = "|".join("---" for _ in header.split(" | "))
    paragraphs = [line for text in about for line in (text, "")]
    return [f"## {title}", "", *paragraphs, f"| {header} |", f"|{rule}|", *found, ""]


def _machines(lines: list[Line]) -> list[str]:
    """Each machine with the versions that were measured there; versions of different days side by side."""
    machines: dict[str, dict[str, set[str]]] = {}
    for line in lines:
        at = line["machine"]
        name = f"{at['cores']} cores ({at['processor']}), {at['memory_gb']:g} GB, {at['system']}, Python {at['python']}"
        versions = machines.setdefault(name, {})
        for package, version in line["versions"].items():
            versions.setdefault(package, set()).add(version)
    text: list[str] = []
    for name, versions in machines.items():
        packages = ", ".join(
            f"{package} {' and '.join(sorted(found))}" for package, found in versions.items()
        )
        text += [f"Machine: {name}.", f"Versions: {packages}.", ""]
    return text


def _made_by(rows: list[Line]) -> str:
    commands = sorted({row["command"] for row in rows})
    times = sorted(row["measured_at"] for row in rows)
    load = max(row["load_before"] for row in rows)
    span = times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
    return f"`{'`, `'.join(commands)}`, {span}; load average before the start at most {load:g}."


def _crossover(line: Line) -> list[str]:
    numbers = (f"{line['metadata_bytes'] / 1e6:,.0f}", f"{line['cold']:.2f}", f"{line['warm']:.2f}")
    return [f"{line['entries']:,}", *numbers, line["auto"]]


def _large_table(points: list[Line]) -> list[str]:
    """What a table of 100 million files costs, and where the first bottleneck is.

    Empty where the largest table that was measured is too small to say anything of one so large.
    """
    largest = max(point["live_files"] for point in points)
    if largest < _LARGE_FILES / _FURTHEST:
        return []
    rows, bottlenecks = [], [(math.inf, "", "")]
    for work, mine in slopes.by_work(points).items():
        ratio = mine[-1]["entries"] / mine[-1]["live_files"]
        entries = _LARGE_FILES * ratio
        fits = {measure: fit for measure in _BUDGETS if (fit := slopes.fit(mine, measure))}
        if "cpu_seconds" not in fits or "peak_mb" not in fits:
            continue
        cost = {measure: fit.at(entries) for measure, fit in fits.items()}
        cores = max(1, round(cost["cpu_seconds"] / (60 * _MINUTES) + 0.5))
        rows.append(
            [
                work, f"{entries / 1e6:,.0f}", f"{cost['cpu_seconds'] / 3600:,.1f}", str(cores),
                f"{cost['peak_mb'] / 1024:,.1f}", f"{cost['requests']:,.0f}" if "requests" in cost else "-",
            ]
        )  # fmt: skip
        bottlenecks += [(fit.reaching(_BUDGETS[name][1]) / ratio, work, name) for name, fit in fits.items()]
    files, work, measure = min(bottlenecks)
    first = "Nothing measured here grows into its budget."
    if math.isfinite(files):
        name, budget, unit = _BUDGETS[measure]
        first = (
            f"The first bottleneck: {name} of {work}, which reaches {budget:,} {unit} at about "
            f"{files / 1e6:,.0f} million files."
        )
    about = (
        "From the fits above, each by the law that its larger points follow more closely: the straight line, or the "
        f"power law of the last three. This is an extrapolation from tables of up to {largest:,} live files; nothing "
        "of this size was run. Entries read are as many for each live file as in the largest table measured."
    )
    last_words = (
        f"{first} The budgets of one run: {', '.join(f'{budget:,} {unit}' for _, budget, unit in _BUDGETS.values())}. "
        f"Cores for {_MINUTES} minutes take the work as divisible, as the scans of the Spark engine are."
    )
    header = f"work | million entries | core hours | cores for {_MINUTES} minutes | GB | requests"
    section = _section(f"A table of {_LARGE_FILES // 1_000_000} million files", [about], header, rows)
    return [*section, last_words, ""] if rows else []
