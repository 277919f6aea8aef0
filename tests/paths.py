"""Where the repository is, and the fixtures written by other engines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Where links lead, for that is what engines name.
FIXTURES = (ROOT.parent / "shared" / "fixtures").resolve()

needs_fixtures = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason="the folder ../shared/fixtures beside the repository is absent"
)


def tables_below(folder: Path) -> list[Path]:
    """The folders of all tables in it, of both formats."""
    marks = {"metadata", "_delta_log"}
    return sorted(Path(root) for root, names, _ in os.walk(folder) if marks & {*names})
