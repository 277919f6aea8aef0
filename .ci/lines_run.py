"""Which lines of the package the tests run: by README's command, by each third of the deep suites, by none.

    python .ci/lines_run.py readme            run README's tests, and keep which lines they ran
    python .ci/lines_run.py 0                 likewise the deep suites of a number (0, 1 or 2), see tests/shards.py
    python .ci/lines_run.py report            the lines that no kept run reached, and how many only the deep suites did
    python .ci/lines_run.py report COMMIT     of those, the lines that stood in that commit, too

Programs that tests start and forks are measured, too, and those that end at once. Needs coverage 7.10. What is kept is
in .cache/lines_run, and about the sources as they were: where they changed, run it again.
"""

from __future__ import annotations

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


def report(commit: str | None) -> None:
    """Print what no kept run reached."""
    kept = [run for run in RUNS if (KEPT / f"{run}.data").exists()]
    print(f"Of the runs {', '.join(kept)}:")
    by_run = {run: reached(run) for run in kept}
    everything = by_readme = never = 0
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        lines = statements(path)
        seen = set().union(*(each.get(name, set()) for each in by_run.values()))
        everything += len(lines)
        by_readme += len(lines & by_run.get(README, {}).get(name, set()))
        unseen = lines - seen
        never += len(unseen)
        if unseen and (commit is None or (unseen := _stood_in(commit, name, unseen))):
            print(f"{name}: {ranges(unseen)}")
    print(
        f"{everything:,} lines: {by_readme:,} run by README's tests, "
        f"{everything - never - by_readme:,} by the deep suites alone, {never:,} by none"
    )


def _stood_in(commit: str, name: str, lines: set[int]) -> set[int]:
    """Those of some lines whose text some module of an earlier commit has."""
    words = ["git", "grep", "-h", "", commit, "--", PACKAGE]
    before = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S603 - git
    known = {line.strip() for line in before.splitlines()}
    text = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return {line for line in lines if text[line - 1].strip() in known}


def main() -> int:
    """Run what is named on the command line; its exit code."""
    match sys.argv[1:]:
        case ["report", *commit]:
            report(commit[0] if commit else None)
            return 0
        case [run] if run in RUNS:
            return measure(run)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
