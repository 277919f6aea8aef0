"""Airflow and Dagster, each in an environment of its own: `python -m tests.schedulers.environments` makes them.

They are kept by version in the user's cache folder, outside the checkout: half a gigabyte each, and a minute or two.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

from tests.go_servers import CACHE
from tests.paths import ROOT
from tests.spark_settings import Missing

AIRFLOW: Final = "apache-airflow==3.3.2"
DAGSTER: Final = "dagster==1.13.29"
_EXTRAS: Final = ("sql",)  # what the tables of the tests need
_MADE: Final = "requirements.txt"  # in an environment: what it was made with, written last


def _requirements(scheduler: str) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [each for name in _EXTRAS for each in project["optional-dependencies"][name]]
    return [scheduler, *project["dependencies"], *extras]


def _folder(scheduler: str) -> Path:
    return CACHE.parent / "schedulers" / scheduler.replace("==", "-")


def _is_made(scheduler: str) -> bool:
    made = _folder(scheduler) / _MADE
    return made.is_file() and made.read_text().splitlines() == _requirements(scheduler)


def python_of(scheduler: str) -> Path:
    """The interpreter of a scheduler's environment, which has what this package needs, but not the package.

    Raises:
        Missing: it was not made, or with other requirements.
    """
    if not _is_made(scheduler):
        raise Missing(f"{scheduler} is not here: `python -m tests.schedulers.environments` installs it")
    return _folder(scheduler) / "bin" / "python"


def main() -> None:
    """Make the environments that are missing."""
    for scheduler in (AIRFLOW, DAGSTER):
        if _is_made(scheduler):
            continue
        print(f"installing {scheduler}", flush=True)
        folder, requirements = _folder(scheduler), _requirements(scheduler)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(folder / "bin" / "pip"), "install", "-q", *requirements], check=True)
        (folder / _MADE).write_text("".join(f"{each}\n" for each in requirements))


if __name__ == "__main__":
    main()
