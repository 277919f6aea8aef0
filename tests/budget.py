"""How many cases of a long enumeration are tried: a few always, more in the deep suite, all with FULL_SUITES=1."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")
FULL = bool(os.environ.get("FULL_SUITES"))
ALWAYS = 7  # what samples are drawn by that are the same in each run
_DEEP_FACTOR = 4
_drawn_by = ALWAYS


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
    """A sample of `budget` cases, the same for the same suite; it says how many there are."""
    chosen = random.Random(_drawn_by).sample(cases, min(budget, len(cases)))
    print(f"{len(chosen)} of {len(cases)} cases, drawn by {_drawn_by}")
    return chosen


def draw_by(number: int) -> None:
    """What `some` draws depends on this from now on."""
    global _drawn_by  # noqa: PLW0603 - of the test that runs
    _drawn_by = number
