"""The distribution is not called `iceberg-cli`: on the public index that is another tool with a package of our name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

import iceberg_cli as package
import iceberg_table_maintenance
from tests.paths import ROOT

BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NAME = "iceberg-table-maintenance"
ENTRY = ("-c", "from iceberg_table_maintenance import main; main()")
MODULE = ("-m", "iceberg_cli")
TEXTS = ["README.md", "CHANGELOG.md", *(f"man/{page.name}" for page in (ROOT / "man").glob("*.1"))]
SOURCES = [str(path.relative_to(ROOT)) for path in (ROOT / "iceberg_cli").rglob("*.py")]


def test_distribution_command_and_package_have_their_names() -> None:
    assert BUILD["project"]["name"] == package.DISTRIBUTION == iceberg_table_maintenance.DISTRIBUTION == NAME
    assert BUILD["project"]["scripts"] == {"iceberg-cli": "iceberg_table_maintenance:main"}


def test_nothing_says_to_install_a_name_of_an_index() -> None:
    for file in (*TEXTS, *SOURCES):
        text = (ROOT / file).read_text(encoding="utf-8")
        stated = re.findall(rf"pip install [^\n&]*(?<![\w/-])(?:iceberg-cli|{NAME})\b", text)
        assert (stated, "pypi" in text.lower()) == ([], False), file


def installed(folder: Path, init: str | None) -> Path:
    """A folder with this distribution in it, whose package has another `__init__.py`, or none."""
    (folder / "iceberg_cli").mkdir(parents=True)
    for path in (ROOT / "iceberg_cli").iterdir():
        if path.name not in {"__init__.py", "__pycache__"}:
            (folder / "iceberg_cli" / path.name).symlink_to(path)
    if init is not None:
        (folder / "iceberg_cli" / "__init__.py").write_text(init)
    (folder / "iceberg_table_maintenance.py").symlink_to(ROOT / "iceberg_table_maintenance.py")
    return folder


@pytest.mark.parametrize("init", [None, "", '__version__ = "0.2.0"\n', "import a_module_that_is_not_there\n"])
@pytest.mark.parametrize("start", [ENTRY, MODULE])
def test_the_package_of_others_in_the_place_of_ours_is_one_clear_error(
    start: Sequence[str], init: str | None, tmp_path: Path
) -> None:
    place = installed(tmp_path / "site", init)
    done = started(start, [place])
    if start == MODULE and init and init.startswith("import"):
        assert done.returncode != 0  # Python itself ends, before anything of ours is asked
        return
    assert is_one_clear_error(done, place if "import" not in (init or "") else None)


def test_the_package_of_others_earlier_on_the_path_is_one_clear_error(tmp_path: Path) -> None:
    hidden = installed(tmp_path / "site", "DISTRIBUTION = 'iceberg-table-maintenance'\n")
    other = tmp_path / "other"
    (other / "iceberg_cli").mkdir(parents=True)
    for name in ("__init__.py", "main.py"):
        (other / "iceberg_cli" / name).touch()
    assert is_one_clear_error(started(ENTRY, [other, hidden]), other)


def started(start: Sequence[str], path: Sequence[Path]) -> subprocess.CompletedProcess[str]:
    """The program, with nothing else installed."""
    environment = {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-S", *start, "--version"]
    return subprocess.run(
        command, env=environment, cwd=path[0].parent, capture_output=True, text=True, check=False
    )


def is_one_clear_error(done: subprocess.CompletedProcess[str], place: Path | None) -> bool:
    message, state, remedy = done.stderr.splitlines()
    where = "" if place is None else f" in {place}/iceberg_cli"
    assert message.startswith(f"error: Cannot start: the package iceberg_cli{where} is not that of {NAME}")
    assert state == "Nothing was changed."
    assert "pip uninstall iceberg-cli" in remedy
    return (done.returncode, done.stdout) == (2, "")


def test_the_wheel_has_the_manual_pages_where_man_looks_for_them() -> None:
    wheel = BUILD["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["shared-data"] == {"man": "share/man/man1"}
    assert wheel["only-include"] == ["iceberg_cli", "iceberg_table_maintenance.py"]
