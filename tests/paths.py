"""Where the repository is, and the fixtures written by other engines."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Where links lead, for that is what engines name.
FIXTURES = (ROOT.parent / "shared" / "fixtures").resolve()

needs_fixtures = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason="the folder ../shared/fixtures beside the repository is absent"
)
