"""Which lines of the package the tests run: by README's command, by each third of the deep suites, by none.

    python .ci/lines_run.py readme            run README's tests, and keep which lines they ran
    python .ci/lines_run.py 0                 likewise the deep suites of a number (0, 1 or 2), see tests/shards.py
    python .ci/lines_run.py report            the lines that no kept run reached, and how many only the deep suites did
    python .ci/lines_run.py lost CHECKOUT     of those, the lines that README's tests ran in another checkout

Programs that tests start and forks are measured, too, and those that end at once. Needs coverage 7.10. What is kept is
in .cache/lines_run, and about the sources as they were: where they changed, run it again.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

import coverage

ROOT: Final = Path(__file__).resolve().parents[1]
KEPT: Final = ROOT / ".cache" / "lines_run"
PACKAGE: Final = "iceberg_cli"
README: Final = "readme"
RUNS: Final = (README, "0", "1", "2")
_SETTINGS: Final = f"""
[run]
source_pkgs = {PACKAGE}
data_file = {{data}}
parallel = true
patch =
    subprocess
    fork
    _exit

[report]
exclude_also =
    if TYPE_CHECKING:
    raise NotImplementedError
    \\.\\.\\.$
"""


def measure(run: str) -> int:
    """Run tests and keep which lines they reach; their exit code."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.glob(f"{run}.*"):
        old.unlink()
    settings = KEPT / f"{run}.ini"
    settings.write_text(_SETTINGS.format(data=KEPT / f"{run}.data"), encoding="utf-8")
    deep = () if run == README else ("-m", "deep")
    number = {} if run == README else {"SUITE_NUMBER": run}
    # What is measured is slower than the tests' own clock allows.
    words = ["-n", "2", "--dist", "loadgroup", "-o", "timeout=3600", *deep]
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", *words]
    code = subprocess.run(command, cwd=ROOT, env={**os.environ, **number}, check=False).returncode  # noqa: S603 - pytest
    combine = [sys.executable, "-m", "coverage", "combine", f"--rcfile={settings}", "--quiet"]
    subprocess.run(combine, cwd=ROOT, check=True)  # noqa: S603 - coverage
    return code


def reached(run: str) -> dict[str, set[int]]:
    """By module the lines that a kept run reached."""
    data = coverage.CoverageData(str(KEPT / f"{run}.data"))
    data.read()
    return {
        str(Path(path).relative_to(ROOT)): set(data.lines(path) or ())
        for path in data.measured_files()
        if Path(path).is_relative_to(ROOT)
    }


def statements(module: Path) -> set[int]:
    """The lines of a module that could be reached."""
    settings = KEPT / f"{README}.ini"
    measured = coverage.Coverage(data_file=None, config_file=str(settings) if settings.exists() else False)
    _, lines, excluded, _, _ = measured.analysis2(str(module))
    return set(lines) - set(excluded)


def ranges(lines: Iterable[int]) -> str:
    """Line numbers as `3-5, 9`."""
    return ", ".join(f"{first}-{last}" if first < last else str(first) for first, last in _spans(lines))


def _spans(lines: Iterable[int]) -> Iterator[tuple[int, int]]:
    for _, group in groupby(enumerate(sorted(lines)), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in group]
        yield numbers[0], numbers[-1]


def unseen() -> dict[Path, set[int]]:
    """By module the lines that no kept run reached."""
    kept = [run for run in RUNS if (KEPT / f"{run}.data").exists()]
    print(f"Of the runs {', '.join(kept)}:")
    by_run = {run: reached(run) for run in kept}
    found: dict[Path, set[int]] = {}
    everything = by_readme = never = 0
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        lines = statements(path)
        found[path] = lines.difference(*(each.get(name, set()) for each in by_run.values()))
        everything += len(lines)
        by_readme += len(lines & by_run.get(README, {}).get(name, set()))
        never += len(found[path])
    print(
        f"{everything:,} lines: {by_readme:,} run by README's tests, "
        f"{everything - never - by_readme:,} by the deep suites alone, {never:,} by none"
    )
    return found


def report() -> None:
    """Print what no kept run reached."""
    for path, lines in unseen().items():
        if lines:
            print(f"{path.relative_to(ROOT)}: {ranges(lines)}")


Place = tuple[str, str, str]
"""A line that may have moved: the function that it is in, the line before it, and the line."""


def places_of(path: Path, lines: Iterable[int]) -> dict[int, Place]:
    """Where lines of a module are."""
    source = path.read_text(encoding="utf-8")
    texts = ["", *(text.strip() for text in source.splitlines())]
    functions = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.FunctionDef)]
    functions.sort(key=lambda each: each.lineno)

    def function_of(line: int) -> str:
        inside = [each.name for each in functions if each.lineno <= line <= (each.end_lineno or 0)]
        return inside[-1] if inside else ""

    return {line: (function_of(line), texts[line - 1], texts[line]) for line in lines if line < len(texts)}


def lost(checkout: Path) -> None:
    """Print what no kept run reaches, and README's tests of another checkout did; what is alike by chance is, too."""
    data = coverage.CoverageData(str(checkout / KEPT.relative_to(ROOT) / f"{README}.data"))
    data.read()
    before: set[Place] = set()
    for path in map(Path, data.measured_files()):
        if path.is_relative_to(checkout / PACKAGE):
            before |= {*places_of(path, data.lines(str(path)) or ()).values()}
    for path, lines in unseen().items():
        for line, place in sorted(places_of(path, lines).items()):
            if place in before:
                print(f"{path.relative_to(ROOT)}:{line}: {place[2]}")


def main() -> int:
    """Run what is named on the command line; its exit code."""
    match sys.argv[1:]:
        case ["report"]:
            report()
            return 0
        case ["lost", checkout]:
            lost(Path(checkout).resolve())
            return 0
        case [run] if run in RUNS:
            return measure(run)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
