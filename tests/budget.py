"""How many cases of a long enumeration are tried: a few always, more in the deep suite, all with FULL_SUITES=1.

A test with several parameters can be marked `pairs`: of its cases as many are tried always as have each two values of
different parameters together once (each value once, where there are two parameters), the others in the deep suite. Of
one that is marked `few(number)` so many are tried always, or that share of them where it is below 1.
"""

from __future__ import annotations

import itertools
import math
import os
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")
FULL = bool(os.environ.get("FULL_SUITES"))
ALWAYS = 7  # what samples are drawn by that are the same in each run
_DEEP_FACTOR = 4
_drawn_by = str(ALWAYS)
Combination = tuple[tuple[int, object], ...]  # places of parameters, and their values


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
    """A sample of `budget` cases, the same for the same test of the same suite; it says how many there are."""
    chosen = random.Random(_drawn_by).sample(cases, min(budget, len(cases)))
    print(f"{len(chosen)} of {len(cases)} cases, drawn by {_drawn_by!r}")
    return chosen


def crash_points(kinds: Sequence[Any], steps: int) -> list[Any]:
    """Parameters of a test: each kind with each step, and whether a process ends before it or after.

    By turns it is one of these, so that each step has both with some kind; with FULL_SUITES=1 both with each.
    """
    return [
        pytest.param(
            *kind, step, after, id=f"{'-'.join(map(str, kind))}-{step}-{'after' if after else 'before'}"
        )
        for place, kind in enumerate(kinds)
        for step in range(steps)
        for after in (False, True)
        if FULL or after == bool((step // 2 + place) % 2)
    ]


def draw_by(number: int, test: str) -> None:
    """What `some` draws depends on this from now on."""
    global _drawn_by  # noqa: PLW0603 - of the test that runs
    _drawn_by = f"{number} {test}"


def make_rest_deep(items: Iterable[pytest.Item]) -> None:
    """Make those cases of tests marked `pairs` or `few` deep that are not always tried."""
    tests: dict[str, dict[Combination, list[pytest.Item]]] = {}
    for item in items:
        marked = item.get_closest_marker("pairs") or item.get_closest_marker("few")
        if marked and not item.get_closest_marker("deep"):
            values = getattr(item, "callspec")._idlist  # noqa: B009 - pytest has no public name for it
            combination = tuple((place, value) for place, value in enumerate(values) if value != "few")
            cases = tests.setdefault(item.nodeid.partition("[")[0], {})
            cases.setdefault(combination, []).append(item)
    for name, cases in tests.items():
        few = next(iter(cases.values()))[0].get_closest_marker("few")
        always = {*_share([*cases], *few.args, by=name)} if few else covering([*cases])
        for combination, same in cases.items():
            for item in same if combination not in always else ():
                item.add_marker(pytest.mark.deep)


def _share(cases: Sequence[Combination], number: float, *, by: str) -> list[Combination]:
    """So many of the cases, or that share of them where it is below 1, drawn by a name."""
    size = math.ceil(number * len(cases)) if number < 1 else min(int(number), len(cases))
    return random.Random(f"{ALWAYS} {by}").sample(cases, size)


def covering(cases: Sequence[Combination]) -> set[Combination]:
    """As few of these as have together all pairs of values that the cases have; of two parameters, all values."""
    strength = 1 if len(cases[0]) <= 2 else 2
    missing = {pair for case in cases for pair in itertools.combinations(case, strength)}
    order = random.Random(ALWAYS).sample(cases, len(cases))
    chosen = set[Combination]()
    while missing:
        best = max(
            order, key=lambda case: sum(pair in missing for pair in itertools.combinations(case, strength))
        )
        chosen.add(best)
        missing.difference_update(itertools.combinations(best, strength))
    return chosen
