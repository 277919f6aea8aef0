"""Where the fixtures written by other engines are."""

from __future__ import annotations

from pathlib import Path

import pytest

FIXTURES = (Path(__file__).resolve().parents[2] / "shared" / "fixtures").resolve()  # engines name what links lead to

needs_fixtures = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason="the folder ../shared/fixtures beside the repository is absent"
)
