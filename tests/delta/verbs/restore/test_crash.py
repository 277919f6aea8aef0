"""A restore of a Delta table is stopped around each of its effects, and disturbed before each by another writer.

What must hold at any time: each version of ours has the files, vectors and so the rows of the target, and nothing that
another writer committed is taken back: ours comes right after the version that it was planned on, or not at all.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from iceberg_cli.errors import CommitConflict
from iceberg_cli.testing.crash.delta_reader import commit_actions, commits, is_ours
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import Script
from tests.crash import suite
from tests.crash.delta_scenes import RACES, Scene, Verb

TARGET = 1  # files that are gone since come back, and vectors that were replaced
PLANNED_ON = 3
RESTORE = Verb(operation="restore", policy={"to": str(TARGET)})
FOREIGN = ("append", "delete rows", "replace", "set property", "checkpoint")


class Restoration(Scene):
    """The table of all verbs, and a restore of its version 1."""

    stale: ClassVar = (CommitConflict,)
    others: ClassVar = ()  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.name, self.case = "restore", RESTORE

    def process_of(self, other: str) -> DeltaProcess:
        return RESTORE.process(self.world, Script()) if other == self.name else super().process_of(other)

    def check_ours(self) -> None:
        """A version of ours has the rows of the target."""
        for version in commits(self.world.files):
            if version not in self.stated:
                assert is_ours(self.world.files, version)
                info = next(
                    each["commitInfo"]
                    for each in commit_actions(self.world.files, version)
                    if "commitInfo" in each
                )
                assert (info["operation"], info["operationParameters"]["version"]) == ("RESTORE", TARGET)
                assert info["readVersion"] == version - 1
                now = self.state(version).content(self.world.files)
                assert now == self.stated[TARGET]
                self.stated[version] = now

    def check_done(self) -> None:
        assert self.state().adds.keys() == self.state(TARGET).adds.keys()
        assert sum(is_ours(self.world.files, version) for version in commits(self.world.files)) == 1

    def check_run(self, report: Any) -> None:
        """Where others came first, what they committed is the newest version still."""
        super().check_run(report)
        ours = [version for version in commits(self.world.files) if is_ours(self.world.files, version)]
        assert ours in ([], [PLANNED_ON + 1])
        assert bool(ours) == (report is not None and report.status == "done")


@pytest.fixture
def scene() -> Restoration:
    return Restoration()


class TestRestore(
    suite.Undisturbed,
    suite.Crashes,
    suite.SecondCrashes,
    suite.Commits,
    suite.CommitsMeanwhile,
    suite.CommitsAtTheSwap,
):
    """It happens once and whole, or not at all."""

    crashes = 6
    second_crashes = 4
    commits = 3
    commits_meanwhile = 2
    resumes = 2

    @pytest.fixture(params=FOREIGN)
    def act(self, request: pytest.FixtureRequest) -> suite.Act:
        return RACES[request.param]

    @pytest.fixture(params=("append", "delete rows"))
    def act_at_the_swap(self, request: pytest.FixtureRequest) -> suite.Act:
        return RACES[request.param]
