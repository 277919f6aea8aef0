"""Every verb that makes snapshots is stopped around each of its effects, and disturbed before each by another engine.

What must hold at any time: every snapshot that a ref names can be read whole; its rows are those that the other engine
left; a row that once had a row id keeps it along the branch; no two rows share one. When all is finished, no file of
ours is left over and a second run finds nothing to do.
"""

from __future__ import annotations

import contextlib
import itertools
import random

import pytest

from iceberg_cli.errors import CommitConflict, CommitStateUnknown, StalePlan
from iceberg_cli.testing.crash.world import crash
from tests.budget import deep_unless, few_or_many, some
from tests.crash import suite
from tests.crash.lakes import ACTS, CASES, PROPERTIES, Lake


@pytest.fixture(scope="module", params=CASES, ids=str)
def lake(request: pytest.FixtureRequest) -> Lake:
    return Lake.of(request.param)


class TestVerbs(
    suite.Undisturbed,
    suite.Crashes,
    suite.Commits,
    suite.CommitsMeanwhile,
    suite.CommitsAtTheSwap,
    suite.Days,
    suite.Rivals,
):
    """Every verb, on tables on which it has something to do."""

    crashes = 2
    commits = 1
    commits_meanwhile = 1
    resumes = 2

    @pytest.fixture
    def scene(self, lake: Lake) -> Lake:
        return lake

    @pytest.fixture(params=ACTS)
    def act(self, request: pytest.FixtureRequest) -> suite.Act:
        return act_of(request.param)

    @pytest.fixture(params=deep_unless(["delete"], ["delete", "compaction"]))
    def act_at_the_swap(self, request: pytest.FixtureRequest) -> suite.Act:
        return act_of(request.param)


def act_of(name: str) -> suite.Act:
    """What another engine does to a table."""
    return lambda lake: lake.disturb(ACTS[name])()


@pytest.mark.few(4)
@few_or_many(2, many=12, all_of=1_000)  # of all moments there are up to 7,140, and the commits are drawn
def test_two_commits_of_others_and_a_crash_at_any_three_moments(lake: Lake, budget: int) -> None:
    draw = random.Random(11)
    moments = list(itertools.combinations(range(len(lake.undisturbed())), 3))
    for first, then, death in some(moments, budget):
        here = lake.copy()
        one, other = (ACTS[draw.choice([*ACTS])] for _ in range(2))
        before = {first: here.disturb(one), then: here.disturb(other), death: crash}
        process = here.process(before=before)
        with contextlib.suppress(StalePlan, CommitConflict):
            process.dies(process.run)
        here.check()
        here.finish()


def test_a_request_that_comes_in_after_its_outcome_was_asked_for_finds_all_its_files(lake: Lake) -> None:
    """The catalog writes the metadata, and what was committed between leaves the refs where the request saw them."""
    here = lake.copy()
    here.world.served = True
    with pytest.raises(CommitStateUnknown):
        here.process(swaps=["late"]).run()
    here.disturb(lambda engine: engine.change({"properties": {**PROPERTIES, "owner": "somebody"}}))()
    before = set(here.world.files)
    with pytest.raises(CommitStateUnknown):
        here.process().resume()
    assert before <= set(here.world.files)
    here.world.arrive()
    here.check()
    here.finish()


@pytest.mark.pairs
@pytest.mark.parametrize("fates", [["lost"], ["lost after"], ["refused"], ["refused", "lost after"]])
def test_a_lost_answer_or_a_refusal_of_the_swap_is_made_good(lake: Lake, fates: list[str]) -> None:
    here = lake.copy()
    with contextlib.suppress(Exception):
        here.process(swaps=fates).run()
    here.check()
    here.finish()
