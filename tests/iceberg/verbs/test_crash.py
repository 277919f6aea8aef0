"""Every verb that makes snapshots is stopped around each of its effects, and disturbed before each by another engine.

What must hold at any time: every snapshot that a ref names can be read whole; its rows are those that the other engine
left; a row that once had a row id keeps it along the branch; no two rows share one. When all is finished, no file of
ours is left over and a second run finds nothing to do.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable

import pytest

from iceberg_cli.errors import (
    BackendUnavailable,
    CommitConflict,
    CorruptFile,
    IcebergCliError,
    StalePlan,
    TakenOver,
)
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import crash
from tests.budget import deep_unless, few_or_many, some
from tests.builders import NOW_MS
from tests.crash.lakes import ACTS, CASES, Case, Lake, fragmented, undisturbed


@pytest.fixture(scope="module", params=CASES, ids=str)
def lake(request: pytest.FixtureRequest) -> Lake:
    return Lake.of(request.param)


def test_an_undisturbed_run_changes_no_row_and_leaves_nothing_to_do(lake: Lake) -> None:
    here = lake.copy()
    assert here.process().plan().plan.due
    assert here.process().run().status == "done"
    here.finish()


@few_or_many(10)
def test_a_crash_around_any_effect_is_made_good_by_resume(lake: Lake, budget: int) -> None:
    effects = undisturbed(lake)
    for number, when in some(list(itertools.product(range(len(effects)), ("before", "after"))), budget):
        here = lake.copy()
        process = here.process(**{when: {number: crash}})
        # A put of what is there already has no "after".
        assert process.dies(process.run) or when == "after", effects[number]
        here.check()
        here.finish()


@few_or_many(2)
@pytest.mark.parametrize("act", ACTS)
def test_another_engines_commit_before_any_effect_is_kept(lake: Lake, act: str, budget: int) -> None:
    for number in some(range(len(undisturbed(lake))), budget):
        here = lake.copy()
        with contextlib.suppress(StalePlan, CommitConflict):
            here.process(before={number: here.disturb(ACTS[act])}).run()
        here.finish()


@pytest.mark.parametrize("act", deep_unless(["delete"], ["delete", "compaction"]))
def test_another_engines_commit_between_our_look_and_our_swap_is_kept(lake: Lake, act: str) -> None:
    swaps = [number for number, effect in enumerate(undisturbed(lake)) if effect.startswith("swap ")]
    assert swaps
    for number in swaps:
        here = lake.copy()
        with contextlib.suppress(StalePlan, CommitConflict):
            here.process(before={number: here.disturb(ACTS[act])}).run()
        here.finish()


@few_or_many(2)
@pytest.mark.parametrize("act", ACTS)
def test_another_engines_commit_while_the_process_is_dead_is_kept(lake: Lake, act: str, budget: int) -> None:
    for number in some(range(len(undisturbed(lake))), budget):
        here = lake.copy()
        process = here.process(before={number: crash})
        assert process.dies(process.run)
        here.disturb(ACTS[act])()
        with contextlib.suppress(StalePlan):
            here.process().resume()
        here.finish()


@few_or_many(4, all_of=1_000)  # of all moments there are up to 7,140, and the commits are drawn
def test_two_commits_of_others_and_a_crash_at_any_three_moments(lake: Lake, budget: int) -> None:
    draw = random.Random(11)
    moments = list(itertools.combinations(range(len(undisturbed(lake))), 3))
    for first, then, death in some(moments, budget):
        here = lake.copy()
        one, other = (ACTS[draw.choice([*ACTS])] for _ in range(2))
        before = {first: here.disturb(one), then: here.disturb(other), death: crash}
        process = here.process(before=before)
        with contextlib.suppress(StalePlan, CommitConflict):
            process.dies(process.run)
        here.check()
        here.finish()


@few_or_many(1)
def test_a_process_that_stands_still_for_days_while_orphans_are_cleaned_commits_a_whole_table(
    lake: Lake, budget: int
) -> None:
    effects = undisturbed(lake)
    before_a_swap = [number for number in range(len(effects) - 1) if effects[number + 1].startswith("swap ")]
    for number in {*before_a_swap[:budget], *some(range(len(effects)), budget)}:
        here = lake.copy()

        def days_later(here: Lake = here) -> None:
            here.world.remove_orphans(here.check())

        # A file may go between its being written and its being read back.
        with contextlib.suppress(BackendUnavailable, CorruptFile):
            assert here.process(after={number: days_later}).run().status == "done"
        here.check()
        here.finish()


@few_or_many(8)
def test_a_second_process_that_resumes_at_any_moment_loses_nothing(lake: Lake, budget: int) -> None:
    for number in some(range(len(undisturbed(lake))), budget):
        here = lake.copy()
        other = here.process()
        with contextlib.suppress(TakenOver):
            here.process(before={number: other.resume}).run()
        here.check()
        here.finish()


@pytest.mark.parametrize("fates", [["lost"], ["lost after"], ["refused"], ["refused", "lost after"]])
def test_a_lost_answer_or_a_refusal_of_the_swap_is_made_good(lake: Lake, fates: list[str]) -> None:
    here = lake.copy()
    with contextlib.suppress(Exception):
        here.process(swaps=fates).run()
    here.check()
    here.finish()


def other_verb(lake: Lake, case: Case, *, settles: bool) -> Callable[[], None]:
    """Another process of this tool; where it is not told to leave open operations alone it settles them first."""

    def run() -> None:
        process = Process(world=lake.world, verb=case.verb, policy=case.policy)
        with contextlib.suppress(IcebergCliError):
            process.run(settle=settles)
        lake.check()

    return run


OTHERS = [
    *CASES[:1],
    CASES[2],
    CASES[5],
    CASES[6],
    Case("expire-snapshots", ExpireSnapshots(retain_last=1, older_than=NOW_MS).to_json(), fragmented),
]


@few_or_many(2, all_of=500)
def test_a_crash_anywhere_and_a_resume_beside_two_other_verbs(lake: Lake, budget: int) -> None:
    draw = random.Random(13)
    for death in some(range(len(undisturbed(lake))), budget):
        here = lake.copy()
        dying = here.process(before={death: crash})
        assert dying.dies(dying.run)
        one, other = draw.sample(OTHERS, 2)
        first, second = draw.randrange(6), draw.randrange(12)
        print(f"dies before {death}; {one} before {first}, {other} before {second}")
        resuming = here.process(
            before={
                first: other_verb(here, one, settles=draw.random() < 0.5),
                first + second: other_verb(here, other, settles=draw.random() < 0.5),
            }
        )
        with contextlib.suppress(IcebergCliError):
            resuming.resume()
        here.check()
        here.finish()
