"""Resolve what users install: the wheel, `all` extras together, and pairs of extras that have a library in common.

The wheel is built, and must have the completion scripts. Each set of extras is resolved by pip as on a machine that has
none of it; nothing is installed. Which libraries an extra brings is read off the environment that runs this, which has
all of them. A run has a third of the pairs, in turn as deep tests are; with FULL_SUITES=1 all. Exits 1 where one cannot
be resolved, or takes long: pip gives up on some only after a very long search.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, requires
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.budget import FULL  # noqa: E402
from tests.shards import SHARDS, suite_number  # noqa: E402

DEADLINE_SECONDS: Final = 120


def libraries(requirements: Iterable[str]) -> set[str]:
    """The names of all libraries that some requirements bring, with what these require in turn."""
    found: set[tuple[str, str]] = set()
    waiting = [(Requirement(each), "") for each in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for own in ("", *requirement.extras):
            if (name, own) in found:
                continue
            found.add((name, own))
            try:
                waiting += [(Requirement(each), own) for each in requires(name) or ()]
            except PackageNotFoundError:  # Python of this machine does not need it
                found.discard((name, own))
    return {name for name, _ in found}


def pairs() -> list[tuple[str, str]]:
    """The extras that have a library in common."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [together] = map(Requirement, project["optional-dependencies"]["all"])
    always = libraries(project["dependencies"])
    brought = {
        name: libraries(requirements) - always
        for name, requirements in project["optional-dependencies"].items()
        if name in together.extras
    }
    return [pair for pair in combinations(sorted(brought), 2) if brought[pair[0]] & brought[pair[1]]]


def resolve(extras: tuple[str, ...]) -> str:
    """Why pip cannot resolve some extras; empty where it can."""
    wanted = f".[{','.join(extras)}]"
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", wanted]
    try:
        ran = subprocess.run(  # noqa: S603 - pip
            command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{wanted}: not resolved after {DEADLINE_SECONDS} s"
    return f"{wanted}: {ran.stderr.strip()}" if ran.returncode else ""


def missing_of_the_wheel() -> list[str]:
    """What a wheel must have that stands outside of the package here, and has not."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, "."]
        subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603 - pip
        [built] = Path(folder).glob("*.whl")
        with ZipFile(built) as wheel:
            scripts = {f"iceberg_cli/completions/{path.name}" for path in (ROOT / "completions").iterdir()}
            return sorted(scripts - set(wheel.namelist()))


def main() -> int:
    """1 where users cannot install what they need together."""
    found = pairs()
    chosen = [("all",), *(found if FULL else found[suite_number() % SHARDS :: SHARDS])]
    with ThreadPoolExecutor(2) as pool:
        faults = [fault for fault in pool.map(resolve, chosen) if fault]
    missing = missing_of_the_wheel()
    for fault in (*faults, *(f"the wheel has no {name}" for name in missing)):
        print(fault)
    print(f"{len(chosen) - len(faults)} of {len(chosen)} sets of extras can be installed")
    return int(bool(faults or missing))


if __name__ == "__main__":
    sys.exit(main())
