"""How many cases of a long enumeration are tried: a few always, more in the deep suite, all with FULL_SUITES=1."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")
FULL = bool(os.environ.get("FULL_SUITES"))
_DEEP_FACTOR = 4


def few_or_many(few: int, *, many: int | None = None, all_of: int | None = None) -> Callable[[Any], Any]:
    """Run a test twice: with `budget` cases always, with more as a deep test.

    Args:
        few: cases that are always tried.
        many: those of the deep test; None: so many times as many.
        all_of: with FULL_SUITES=1; None: every case there is.
    """
    more = (all_of or 1 << 62) if FULL else many or few * _DEEP_FACTOR
    deep = pytest.param(more, marks=pytest.mark.deep, id="many")
    return pytest.mark.parametrize("budget", [pytest.param(few, id="few"), deep])


def deep_unless(always: Sequence[Any], cases: Sequence[Any]) -> list[Any]:
    """Parameters of a test: `cases`, by their names, as deep tests but for those in `always`."""
    return [
        pytest.param(
            case, id=str(getattr(case, "name", case)), marks=() if case in always else pytest.mark.deep
        )
        for case in cases
    ]


def some(cases: Sequence[Case], budget: int) -> list[Case]:
    """A sample of `budget` cases, the same each time; it says how many there are."""
    chosen = random.Random(7).sample(cases, min(budget, len(cases)))
    print(f"{len(chosen)} of {len(cases)} cases")
    return chosen
