"""`python -m benchmarks report`: the page of the last results, from the lines that benchmarks wrote."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import slopes
from benchmarks.bench import SAME, Row

ROWS = "benchmarks/results.jsonl"
PAGE = "benchmarks/RESULTS.md"
PLOT = "growth.svg"

_ABOUT = """# Results of the benchmarks

The last result of every row, made by `python -m benchmarks report` from what `--report FILE` wrote. Times are wall
seconds, medians of pairs that ran back to back; ratios are ours to the peer's, median (least to greatest). Memory is
the peak of all processes of a side together. "Same": what both left was read by other libraries and compared.
"""


def main(rows: str, page: str) -> None:
    """Write the page, and the plot beside it."""
    with open(rows, encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    pairs = _last(found, "pair", ("benchmark", "size", "name", "peer"))
    points = _last(found, "point", ("size", "work", "entries"))
    largest = next((size for size in "LMS" if any(point["size"] == size for point in points)), "")
    points = [point for point in points if point["size"] == largest]
    crossovers = _last(found, "crossover", ("entries",))
    text = [_ABOUT, *_machines(found)]
    text += _tables(pairs)
    text += _crossover(crossovers)
    text += _driver(_last(found, "driver", ("work", "removals")))
    if points:
        drawn = slopes.plot(points)
        if drawn is None:
            print(f"no {PLOT}: matplotlib is not installed, it is in the extra `bench`")
        else:
            Path(page).with_name(PLOT).write_bytes(drawn)
        text += [*_growth(points, drawn=drawn is not None), *slopes.large_table(points)]
    Path(page).write_text("\n".join(text).rstrip() + "\n", encoding="utf-8")
    print(f"{len(pairs)} rows and {len(points)} points: {page}")


def _last(lines: Iterable[dict[str, Any]], kind: str, key: tuple[str, ...]) -> list[dict[str, Any]]:
    """The last line for each key, in the order of the first."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in lines:
        if line["kind"] == kind:
            found[tuple(line[name] for name in key)] = line
    return list(found.values())


def _machines(lines: list[dict[str, Any]]) -> list[str]:
    """Each machine with the versions that were measured there; versions of different days side by side."""
    machines: dict[str, dict[str, set[str]]] = {}
    for line in lines:
        at = line["machine"]
        name = f"{at['cores']} cores ({at['processor']}), {at['memory_gb']:g} GB, {at['system']}, Python {at['python']}"
        versions = machines.setdefault(name, {})
        for package, version in line["versions"].items():
            versions.setdefault(package, set()).add(version)
    return [
        line
        for name, versions in machines.items()
        for line in (
            f"Machine: {name}.",
            "Versions: " + ", ".join(f"{p} {' and '.join(sorted(v))}" for p, v in versions.items()) + ".",
            "",
        )
    ]


def _tables(pairs: list[dict[str, Any]]) -> list[str]:
    """One table for each benchmark and size."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for pair in pairs:
        groups.setdefault((pair["benchmark"], pair["size"]), []).append(pair)
    text: list[str] = []
    for (benchmark, size), rows in groups.items():
        text += [
            f"## {benchmark}, size {size}",
            "",
            *_made_by(rows),
            "",
            "| work | peer | pairs | ours s | peer s | ratio | bar | ours MB | peer MB | same |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *(_line(row) for row in rows),
            "",
        ]
    return text


def _made_by(rows: list[dict[str, Any]]) -> list[str]:
    commands = sorted({row["command"] for row in rows})
    times = sorted(row["measured_at"] for row in rows)
    load = max(row["load_before"] for row in rows)
    span = times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
    return [f"`{'`, `'.join(commands)}`, {span}; load average before the start at most {load:g}."]


def _line(line: dict[str, Any]) -> str:
    row = Row(**{name: line[name] for name in Row.__slots__})
    bars = ", ".join(f"{text} {'met' if met else '**missed**'}" for text, met in row.bars)
    ratios = row.ratios
    cells = (
        row.name,
        row.peer,
        str(len(ratios)),
        f"{statistics.median(row.ours_s):.2f}",
        f"{statistics.median(row.theirs_s):.2f}",
        f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        bars,
        f"{row.our_peak_mb:.0f}",
        f"{row.their_peak_mb:.0f}",
        SAME[row.same],
    )
    return f"| {' | '.join(cells)} |"


def _crossover(lines: list[dict[str, Any]]) -> list[str]:
    """Spark engine to local engine, table by table."""
    if not lines:
        return []
    return [
        "## Local engine or Spark engine",
        "",
        "The expiry plan; ratios of the Spark engine's time to the local engine's.",
        "",
        "| entries | MB of metadata | new process | warm session | `--engine auto` |",
        "|---|---|---|---|---|",
        *(
            f"| {line['entries']:,} | {line['metadata_bytes'] / 1e6:,.0f} | {line['cold']:.2f} | {line['warm']:.2f} "
            f"| {line['auto']} |"
            for line in sorted(lines, key=lambda each: int(each["entries"]))
        ),
        "",
    ]


def _driver(lines: list[dict[str, Any]]) -> list[str]:
    """Memory of the driver against the number of files that go."""
    if not lines:
        return []
    rows = []
    for line in lines:
        together, most = line["python_mb"] + line["jvm_mb"], line["most_mb"]
        rows.append(
            f"| {line['work']} | {line['removals']:,} | {line['seconds']:.0f} | {line['python_mb']:.0f} "
            f"| {line['jvm_mb']:.0f} | {together:.0f} | {most} MB {'met' if together <= most else '**missed**'} "
            f"| {SAME[line['same']]} |"
        )
    about = (
        "Two workers in processes of their own; the driver's JVM has a heap of 512 MB and the serial collector. MB are "
        'the peaks of our process and of the JVM, added up. "Same": the plan of our local engine is equal.'
    )
    return [
        "## Memory of Spark's driver",
        "",
        *_made_by(lines),
        "",
        about,
        "",
        "| work | files that go | s | Python MB | JVM MB | both | bar | same |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
    ]


def _growth(points: list[dict[str, Any]], *, drawn: bool) -> list[str]:
    """Points and slopes."""
    text = ["## Growth", "", *_made_by(points), ""]
    if drawn:
        text += [f"![time and memory against entries]({PLOT})", ""]
    about = (
        "Slopes are those of the logarithms: 1 is proportional, 0 flat. Entries are those that must be read; for the "
        "daily job, whose work is the same on each table, those that the table holds."
    )
    text += [
        about,
        "",
        "| work | measure | slope | last three points | straight line | law | least | greatest |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for work, mine in slopes.by_work(points).items():
        for measure in slopes.MEASURES:
            fit = slopes.fit(mine, measure)
            if fit is not None:
                line = f"{fit.base:,.3g} + {fit.per_million:,.3g} a million"
                values = [point[measure] for point in mine]
                text.append(
                    f"| {work} | {measure} | {fit.slope:.2f} | {fit.late_slope:.2f} "
                    f"| {line} | {fit.law} | {min(values):,g} | {max(values):,g} |"
                )
    return [*text, ""]
