"""A log cleanup stopped around every effect, and raced: what stays reads as before, nothing else looks readable."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import cache, partial

import pytest

from iceberg_cli.delta.verbs import VERBS
from iceberg_cli.errors import IcebergCliError
from iceberg_cli.operation.apply import apply
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import DELTA_TABLE, Script, World, crash
from tests.budget import few_or_many, some
from tests.crash.delta import an_add
from tests.crash.delta_checkpoints import (
    KEPT_VERSION,
    POLICY,
    a_world_of_v2_checkpoints,
)

LOG = f"{DELTA_TABLE}/_delta_log/"
TOP_LEVEL = re.compile(r"/0{19}4\.checkpoint\..*\.json$")
COMMIT = re.compile(r"([0-9]{20})\.json$")


def a_process(world: World, script: Script | None = None) -> DeltaProcess:
    return DeltaProcess(world=world, script=Script() if script is None else script, policy=POLICY)


def append_to(world: World) -> None:
    """Another writer's commit; the log may begin at any version."""
    version = max(int(match[1]) for name in world.files if (match := COMMIT.search(name)))
    world.files[f"{LOG}{version + 1:020}.json"] = f"{json.dumps(an_add('6.parquet'))}\n".encode()


def files_at(world: World, version: int) -> list[str] | None:
    """The files of a version; None where it cannot be read."""
    try:
        paths: list[str] = a_process(world).table.log.snapshot(version).adds["path"].to_pylist()
    except IcebergCliError:
        return None
    return sorted(paths)


def check(world: World) -> None:
    """What must hold at every moment."""
    expected = [[f"{number}.parquet" for number in range(version + 1)] for version in range(6)]
    for version in range(KEPT_VERSION, 6):
        assert files_at(world, version) == expected[version]
    there = {int(match[1]) for name in world.files if (match := COMMIT.search(name)) and name.startswith(LOG)}
    for version in there & set(range(KEPT_VERSION)):
        assert files_at(world, version) == expected[version]
    assert {f"{DELTA_TABLE}/{number}.parquet" for number in range(6)} <= set(world.files)


def log_files(world: World) -> set[str]:
    return {name.removeprefix(LOG) for name in world.files if name.startswith(LOG)}


def finish(world: World) -> None:
    """Resume, run again, and nothing is left to do or to clean up."""
    a_process(world).resume()
    check(world)
    assert a_process(world).run().status in ("done", "nothing_to_do")
    assert a_process(world).run().status == "nothing_to_do"
    check(world)
    assert not [name for name in world.files if "_iceberg_cli" in name]


def is_clean_up(effect: str) -> bool:
    """Whether it deletes a file of a closed journal, which any verb's does in the same way."""
    return effect.startswith("delete ") and "/_iceberg_cli/" in effect


@cache
def whole_run() -> tuple[list[str], set[str]]:
    """The effects of a run that nothing disturbs, until its journal is closed, and what it leaves of the log."""
    world = a_world_of_v2_checkpoints()
    process = a_process(world)
    assert process.run().status == "done"
    check(world)
    return [effect for effect in process.effects if not is_clean_up(effect)], log_files(world)


def test_a_run_that_nothing_disturbs_leaves_the_checkpoint_its_sidecars_and_one_for_older_readers() -> None:
    _, left = whole_run()
    assert {name for name in left if COMMIT.search(name)} == {f"{version:020}.json" for version in (4, 5)}
    assert f"{KEPT_VERSION:020}.checkpoint.parquet" in left
    sidecars = {name for name in left if name.startswith("_sidecars/")}
    assert len(sidecars) == 3
    assert all(name.startswith(f"_sidecars/{KEPT_VERSION:020}.") for name in sidecars)


@pytest.mark.parametrize("side", ["before", "after"])
@few_or_many(8)
def test_crash_around_any_effect_of_a_log_cleanup(side: str, budget: int) -> None:
    effects, left = whole_run()
    for number in some(range(len(effects)), budget):
        world, effect = a_world_of_v2_checkpoints(), effects[number]
        process = a_process(world, Script(**{side: {number: crash}}))
        # Nothing follows an effect that finds its file there already.
        assert process.dies(process.run) or effects.count(effect) > 1, effect
        check(world)
        finish(world)
        assert len(log_files(world)) == len(left), effect


@few_or_many(8)
def test_another_writer_commits_before_any_effect_of_a_log_cleanup(budget: int) -> None:
    effects, _ = whole_run()
    for number in some(range(len(effects)), budget):
        world = a_world_of_v2_checkpoints()
        process = a_process(world, Script(before={number: partial(append_to, world)}))
        assert process.run().status == "done"
        check(world)
        assert files_at(world, 6) == [f"{number}.parquet" for number in range(7)]
        finish(world)


@few_or_many(10)
def test_a_checkpoint_that_is_damaged_before_any_effect_stops_what_stands_on_it(budget: int) -> None:
    effects, _ = whole_run()
    for number in some(range(len(effects)), budget):
        world = a_world_of_v2_checkpoints()
        (damaged,) = (name for name in world.files if TOP_LEVEL.search(name))
        process = a_process(world, Script(before={number: partial(cut_short, world, damaged)}))
        plan = process.plan()
        commits = {name for name in world.files if COMMIT.search(name)}
        with suppress(IcebergCliError):
            apply(plan, process.table, VERBS["expire-snapshots"], process.runtime)
        # Until the checkpoint of our own stands beside it, it is all that old commits could be replaced by.
        copied = f"{LOG}{KEPT_VERSION:020}.checkpoint.parquet" in world.files
        assert copied or commits <= set(world.files)


def cut_short(world: World, path: str) -> None:
    world.files[path] = world.files[path][:-40]
