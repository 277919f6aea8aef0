"""How golden files are written anew."""

from __future__ import annotations

from functools import partial

import pytest

from tests.golden.comparing import Hold, hold_to


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate", action="store_true", help="Write the golden files of tests/golden anew.")


@pytest.fixture
def hold(request: pytest.FixtureRequest) -> Hold:
    """Compare a text with the golden file of this name."""
    return partial(hold_to, regenerate=bool(request.config.getoption("--regenerate", default=False)))
