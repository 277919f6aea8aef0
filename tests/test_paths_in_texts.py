"""Files of the repository that texts name are there: what is moved is named anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.paths import ROOT

# In the working tree of a developer or of CI, or in a wheel.
ELSEWHERE = (".ci/venv", ".ci/connect", ".ci/duckdb", "iceberg_cli/completions", "docs/request-preconditions")
FOLDERS = ("iceberg_cli", "tests", "benchmarks", "completions", "docs", "man", ".ci")
_WHOLE = re.compile(rf"(?<![\w./-])(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*\w")
_MODULE = re.compile(r"`((?:\w+/)*\w+\.py)`")


TEXTS = (
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "pyproject.toml", "Dockerfile", ".ci/run")),
    *sorted((ROOT / ".ci").glob("*.toml")),
    *sorted((ROOT / "docs" / "pages").glob("*.md")),
)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_path_that_a_text_names_is_there(path: Path) -> None:
    named = {found for found in _WHOLE.findall(path.read_text()) if not found.startswith(ELSEWHERE)}
    assert sorted(found for found in named if not any(ROOT.glob(found))) == []


def test_every_module_that_the_package_or_its_pages_name_is_there() -> None:
    names = {path.name for top in ("iceberg_cli", "docs") for path in (ROOT / top).rglob("*.py")}
    missing = []
    for path in (
        *sorted((ROOT / "iceberg_cli").rglob("*.py")),
        *sorted((ROOT / "docs" / "pages").glob("*.md")),
    ):
        for name in sorted(set(_MODULE.findall(path.read_text()))):
            beside = [folder / name for folder in path.parents if folder.is_relative_to(ROOT)]
            # A name alone is that of a module which several folders have.
            if name not in names and not any(
                place.exists() for place in (ROOT / "iceberg_cli" / name, *beside)
            ):
                missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert missing == []
