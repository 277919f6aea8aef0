"""How golden files are compared, or written anew."""

from __future__ import annotations

from functools import partial

import pytest

from tests.golden.comparing import Hold, hold_to


@pytest.fixture
def hold(request: pytest.FixtureRequest) -> Hold:
    """Compare a text with the golden file of this name."""
    return partial(hold_to, regenerate=bool(request.config.getoption("--regenerate")))
