"""A log cleanup stopped around every effect, and raced: what stays reads as before, nothing else looks readable."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial

import pytest

from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.errors import IcebergCliError
from iceberg_cli.operation.apply import apply
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import DELTA_TABLE, World
from iceberg_cli.testing.delta_writer import a_commit
from tests.budget import few_or_many, some
from tests.crash import suite
from tests.crash.delta import CLEANUP_POLICY, KEPT_VERSION, a_world_of_v2_checkpoints, an_add

LOG = f"{DELTA_TABLE}/_delta_log/"
TOP_LEVEL = re.compile(r"/0{19}4\.checkpoint\..*\.json$")
COMMIT = re.compile(r"([0-9]{20})\.json$")


def append_to(world: World) -> None:
    """Another writer's commit; the log may begin at any version."""
    version = max(int(match[1]) for name in world.files if (match := COMMIT.search(name)))
    world.files[f"{LOG}{version + 1:020}.json"] = a_commit(an_add("6.parquet"))


@dataclass(kw_only=True)
class LogCleanup(suite.Scene):
    """A log cleanup of a table whose checkpoints have sidecars."""

    process_type = DeltaProcess
    policy = CLEANUP_POLICY

    world: World = field(default_factory=a_world_of_v2_checkpoints)

    def files_at(self, version: int) -> list[str] | None:
        """The files of a version; None where it cannot be read."""
        try:
            paths: list[str] = self.process().table.log.snapshot(version).adds["path"].to_pylist()
        except IcebergCliError:
            return None
        return sorted(paths)

    def check(self) -> None:
        """What must hold at every moment."""
        files = self.world.files
        expected = [[f"{number}.parquet" for number in range(version + 1)] for version in range(6)]
        for version in range(KEPT_VERSION, 6):
            assert self.files_at(version) == expected[version]
        there = {int(match[1]) for name in files if (match := COMMIT.search(name)) and name.startswith(LOG)}
        for version in there & set(range(KEPT_VERSION)):
            assert self.files_at(version) == expected[version]
        assert {f"{DELTA_TABLE}/{number}.parquet" for number in range(6)} <= set(files)

    def log_files(self) -> set[str]:
        """The names of what is in the log."""
        return {name.removeprefix(LOG) for name in self.world.files if name.startswith(LOG)}

    def undisturbed(self) -> list[str]:
        """The effects until the journal is closed: every verb deletes its files in the same way."""
        return whole_run()[0]

    def check_done(self) -> None:
        """As many files are left as a run leaves that nothing disturbs."""
        assert len(self.log_files()) == len(whole_run()[1])

    def check_run(self, report: Report | None) -> None:
        """The other writer's commit is there."""
        assert report is not None
        assert report.status == "done"
        self.check()
        assert self.files_at(6) == [f"{number}.parquet" for number in range(7)]


@cache
def whole_run() -> tuple[list[str], set[str]]:
    """The effects of a run that nothing disturbs, until its journal is closed, and what it leaves of the log."""
    scene = LogCleanup()
    process = scene.process()
    assert process.run().status == "done"
    scene.check()
    effects = [
        effect
        for effect in process.effects
        if not (effect.startswith("delete ") and "/_iceberg_cli/" in effect)
    ]
    return effects, scene.log_files()


def test_a_run_that_nothing_disturbs_leaves_the_checkpoint_its_sidecars_and_one_for_older_readers() -> None:
    _, left = whole_run()
    assert {name for name in left if COMMIT.search(name)} == {f"{version:020}.json" for version in (4, 5)}
    assert f"{KEPT_VERSION:020}.checkpoint.parquet" in left
    sidecars = {name for name in left if name.startswith("_sidecars/")}
    assert len(sidecars) == 3
    assert all(name.startswith(f"_sidecars/{KEPT_VERSION:020}.") for name in sidecars)


class TestLogCleanup(suite.Crashes, suite.Commits):
    """What stays reads as before."""

    crashes = 4
    commits = 4

    @pytest.fixture
    def scene(self) -> LogCleanup:
        return LogCleanup()

    @pytest.fixture
    def act(self) -> suite.Act:
        return lambda scene: append_to(scene.world)


@few_or_many(5)
def test_a_checkpoint_that_is_damaged_before_any_effect_stops_what_stands_on_it(budget: int) -> None:
    effects, _ = whole_run()
    for number in some(range(len(effects)), budget):
        scene = LogCleanup()
        world = scene.world
        (damaged,) = (name for name in world.files if TOP_LEVEL.search(name))
        process = scene.process(before={number: partial(cut_short, world, damaged)})
        plan = process.plan()
        commits = {name for name in world.files if COMMIT.search(name)}
        with suppress(IcebergCliError):
            apply(plan, process.table, VERBS["expire-snapshots"], process.runtime)
        # Until the checkpoint of our own stands beside it, it is all that old commits could be replaced by.
        copied = f"{LOG}{KEPT_VERSION:020}.checkpoint.parquet" in world.files
        assert copied or commits <= set(world.files)


def cut_short(world: World, path: str) -> None:
    world.files[path] = world.files[path][:-40]
