"""Where the fixtures written by other engines are."""

from __future__ import annotations

from pathlib import Path

import pytest

# Where links lead, for that is what engines name.
FIXTURES = (Path(__file__).resolve().parents[2] / "shared" / "fixtures").resolve()

needs_fixtures = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason="the folder ../shared/fixtures beside the repository is absent"
)
