"""A restore is stopped around each of its effects, and disturbed before each by another writer's commit.

What must hold at any time: main is at its old head, at the target, or at what another writer committed; no commit that
was on main is lost: main comes from it, or the tag on the old head does; and the tag is there exactly if main moved.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import pytest

from iceberg_cli.errors import CommitConflict
from iceberg_cli.iceberg.verbs.restore.policy import Restore
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import Script, SimStorage
from iceberg_cli.testing.iceberg_reader import check_table
from tests.crash import suite
from tests.crash.scenes import CANARIES, Scene, a_scene_of

HEAD, TARGET = 7, 4  # snapshots of main; see `a_scene_of`
TAG = "before-restore-"


@dataclass(kw_only=True)
class Restoration(Scene):
    """A table on whose main 7 follows 4, 3, 2 and 1, and a restore of it to 4."""

    process_type: ClassVar = Process
    verb: ClassVar = "restore"
    policy: ClassVar = Restore(to=str(TARGET))  # type: ignore[assignment]
    refusals: ClassVar = (CommitConflict,)
    stale: ClassVar = (CommitConflict,)

    def line(self, snapshot_id: int) -> set[int]:
        """A snapshot and those before it."""
        document = json.loads(self.world.files[self.current])
        parents = {each["snapshot-id"]: each.get("parent-snapshot-id") for each in document["snapshots"]}
        found: set[int] = set()
        at: int | None = snapshot_id
        while at is not None:
            found.add(at)
            at = parents[at]
        return found

    def check(self) -> set[str]:
        """What must hold at any time; returns what the table reaches."""
        document = json.loads(self.world.files[self.current])
        refs = {name: ref["snapshot-id"] for name, ref in document["refs"].items()}
        tags = {name: head for name, head in refs.items() if name.startswith(TAG)}
        held = self.line(refs["main"]).union(*map(self.line, tags.values()))
        assert {1, 2, 3, 4, HEAD, *self.foreign} <= held
        assert bool(tags) == (HEAD not in self.line(refs["main"]))
        assert {name: head for name, head in refs.items() if name not in {"main", *tags}} == {
            "eom": 2,
            "audit": 6,
        }
        assert document["current-snapshot-id"] == refs["main"]
        assert document["last-sequence-number"] == 7 + len(self.foreign)
        storage = SimStorage(self.world, Script())
        return check_table(storage, self.current, refs=refs, snapshots=[1, 2, 3, 4, 5, 6, 7, *self.foreign])

    def is_commit(self, effect: str) -> bool:
        """By the catalog, or the name of the next version."""
        return effect.startswith("swap ") or effect.endswith("/v2.metadata.json")

    def check_done(self) -> None:
        """Main is back."""
        document = json.loads(self.world.files[self.current])
        assert document["refs"]["main"]["snapshot-id"] == TARGET

    def check_finished(self) -> None:
        """Nothing of ours is left over."""
        needed = self.check()
        assert suite.besides_history(self.world.files) - CANARIES.keys() == needed

    def check_run(self, report: Report | None) -> None:
        """The other commit stands: behind the restore, or in its place."""
        assert self.foreign == [100]
        document = json.loads(self.world.files[self.current])
        main = document["refs"]["main"]["snapshot-id"]
        if report is None:
            assert main == 100
        self.check()

    def finish(self) -> None:
        """Resume, then the same command again: main is at the target at last."""
        suite.Scene.finish(self)


@pytest.fixture(scope="module", params=["catalog", "served", "folder"])
def scene(request: pytest.FixtureRequest) -> Restoration:
    return a_scene_of(Restoration, catalog=request.param != "folder", served=request.param == "served")


class TestRestore(
    suite.Undisturbed,
    suite.Crashes,
    suite.SecondCrashes,
    suite.Commits,
    suite.CommitsMeanwhile,
    suite.CommitsAtTheSwap,
):
    """What was on main is never lost."""

    crashes = 6
    second_crashes = 6
    commits = 6
    commits_meanwhile = 4
    resumes = 2

    @pytest.fixture
    def act(self) -> suite.Act:
        return Scene.foreign_append

    @pytest.fixture
    def act_at_the_swap(self) -> suite.Act:
        return Scene.foreign_append
