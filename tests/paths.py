"""Where the repository is, and the fixtures written by other engines."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from iceberg_cli.paths import HISTORY_FOLDER

ROOT = Path(__file__).resolve().parents[1]
# Where links lead, for that is what engines name.
FIXTURES = (ROOT.parent / "shared" / "fixtures").resolve()

needs_fixtures = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason="the folder ../shared/fixtures beside the repository is absent"
)


def besides_history(paths: Iterable[str]) -> set[str]:
    """Those of some files that are no records of operations which are over: these stay."""
    return {path for path in paths if f"{HISTORY_FOLDER}/" not in path}


def tables_below(folder: Path) -> list[Path]:
    """The folders of all tables in it, of both formats."""
    marks = {"metadata", "_delta_log"}
    return sorted(Path(root) for root, names, _ in os.walk(folder) if marks & {*names})
