"""What tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.lakes import FolderTable, four_snapshots


@pytest.fixture
def table(tmp_path: Path) -> FolderTable:
    """Four snapshots, of which three are old."""
    made = four_snapshots(tmp_path / "shop" / "events")
    made.publish()
    return made
