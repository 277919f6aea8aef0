"""A process of an operation of many commits ends at every point: no number is lost, doubled, or left on the disk."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import pytest

from iceberg_cli.errors import CommitConflict, CommitStateUnknown
from iceberg_cli.testing.crash.world import Crash, Script, World, crash
from tests.operation.groups.numbers_table import (
    Process,
    add_file,
    make_table,
    numbers_of,
    state_of,
    take_file,
    unneeded,
)

FILES = {f"f{number}": range(number * 10, number * 10 + 3 + number) for number in range(7)}
NUMBERS = Counter(number for numbers in FILES.values() for number in numbers)
DAY_MS = 86_400_000


def a_world() -> World:
    world = World(dated=True)
    make_table(world, FILES)
    return world


def effects() -> int:
    process = Process(world=a_world())
    process.run()
    return len(process.storage.trace)


EFFECTS = effects()


def settled(world: World, *, rewrites: bool) -> None:
    """Another process finishes what was left, and nothing is left of it."""
    process = Process(world=world)
    process.resume(rewrites=rewrites)
    assert process.table.workspace.open_operations() == []
    assert not world.leaked_uploads


def test_undisturbed_it_rewrites_all_groups_and_leaves_nothing() -> None:
    world = a_world()
    report = Process(world=world).run()
    assert report.status == "done"
    assert numbers_of(world) == NUMBERS
    assert unneeded(world) == []
    assert report.counts["rewritten_files_count"] == 6
    assert len(report.commits) == 3
    assert sum(each["groups"] for each in report.commits) == 3


@pytest.mark.few(60)
@pytest.mark.parametrize("rewrites", [True, False], ids=["going on", "settling"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(EFFECTS))
def test_a_process_that_ends_anywhere_loses_and_leaves_nothing(
    number: int, after: bool, rewrites: bool
) -> None:
    world = a_world()
    script = Script(after={number: crash}) if after else Script(before={number: crash})
    with pytest.raises(Crash):
        Process(world=world, script=script).run()
    assert numbers_of(world) == NUMBERS
    world.now_ms += DAY_MS
    settled(world, rewrites=rewrites)
    assert numbers_of(world) == NUMBERS
    assert unneeded(world) == []
    if rewrites and number > EFFECTS // 2:
        assert len(state_of(world)["commits"]) == 3


@pytest.mark.parametrize("seed", range(60))
def test_processes_that_end_one_after_the_other_while_others_commit(seed: int) -> None:
    drawn = random.Random(seed)
    world = a_world()
    expected = Counter(NUMBERS)
    script = Script(before={drawn.randrange(EFFECTS): crash})
    with pytest.raises(Crash):
        Process(world=world, script=script).run()
    for turn in range(drawn.randrange(1, 4)):
        world.now_ms += DAY_MS
        if drawn.random() < 0.5:
            add_file(world, f"new{turn}", [1000 + turn])
            expected[1000 + turn] += 1
        if drawn.random() < 0.5:
            name = f"f{drawn.randrange(6)}"
            if any(path.endswith(f"/{name}") for path in state_of(world)["files"]):
                take_file(world, name)
                expected -= Counter(FILES[name])
        process = Process(world=world, script=Script(before={drawn.randrange(EFFECTS): crash}))
        with suppress(Crash, CommitConflict):
            process.resume(rewrites=drawn.random() < 0.7)
        assert numbers_of(world) == expected
    world.now_ms += DAY_MS
    try:
        settled(world, rewrites=True)
    except CommitConflict:
        settled(world, rewrites=True)
    assert numbers_of(world) == expected
    assert unneeded(world) == []


@pytest.mark.parametrize("fate", ["lost", "lost after"])
@pytest.mark.parametrize("at", range(3))
def test_a_commit_whose_answer_is_lost_is_settled_and_happens_once(fate: str, at: int) -> None:
    world = a_world()
    process = Process(world=world)
    process.table.swaps = [*[""] * at, fate]
    with pytest.raises(CommitStateUnknown):
        process.run()
    world.now_ms += DAY_MS
    settled(world, rewrites=True)
    assert numbers_of(world) == NUMBERS
    assert len(state_of(world)["commits"]) == 3
    assert unneeded(world) == []
