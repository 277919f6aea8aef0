"""merge-dvs, upgrade-v3 and assign-row-ids of Delta tables stopped around every effect, raced, their answers lost.

A reader that replays JSON alone finds at every version the rows that were there, each once; row ids never change, are
never given twice, and where row tracking is enabled no file lacks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from iceberg_cli.errors import CommitStateUnknown
from iceberg_cli.testing.crash.delta_reader import State, commits, state_at, vector_file
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import World
from tests.crash import suite
from tests.crash.delta import (
    PROTOCOL,
    a_metadata,
    a_remove,
    a_vector,
    an_add,
    commit_to,
    newest,
    numbered,
    version_path,
)

MERGE, UPGRADE, ASSIGN = "merge-dvs", "upgrade-v3", "assign-row-ids"
POLICIES: Mapping[str, Mapping[str, Any]] = {
    # Two new files: each is closed after two vectors.
    MERGE: {"min_files": 2, "target_size": 90},
    UPGRADE: {"features": ["v2Checkpoint", "inCommitTimestamp"]},
    ASSIGN: {"batch_size": 2},
}
DELETED = {f"{name}.parquet": (number, 8) for number, name in enumerate("abcd")}
ENABLED = "delta.enableRowTracking"


def a_world() -> World:
    """Four files with a vector each, and one without."""
    world = World()
    adds = [
        an_add(name, deletionVector=a_vector(world, number, *positions))
        for number, (name, positions) in enumerate(DELETED.items())
    ]
    commit_to(world, PROTOCOL, a_metadata(**{"delta.enableDeletionVectors": "true"}), *adds)
    commit_to(world, an_add("e.parquet"))
    return world


def states(world: World) -> list[State]:
    """Every version, replayed line by line."""
    found = [state_at(world.files, version) for version in commits(world.files)]
    return [state for state in found if state is not None]


@dataclass(kw_only=True)
class Rewriting(suite.Scene):
    """A verb on the table."""

    process_type = DeltaProcess

    verb: str
    world: World = field(default_factory=a_world)
    gone: frozenset[str] = frozenset()  # files that others have removed

    @property
    def policy(self) -> Mapping[str, Any]:
        return POLICIES[self.verb]

    def check(self) -> None:
        """What must hold at every moment, for every version."""
        ids: dict[str, int] = {}
        assert len(states(self.world)) == newest(self.world) + 1
        for state in states(self.world):
            content = state.content(self.world.files)
            assert content == {path: DELETED.get(path, ()) for path in content}
            assert {*DELETED} - {*content} <= self.gone
            for (path, _), add in state.adds.items():
                if "baseRowId" not in add:
                    assert path not in ids, "an id was lost"
                else:
                    assert ids.setdefault(path, add["baseRowId"]) == add["baseRowId"], "an id changed"
            state.check_row_ids()

    def check_finished(self) -> None:
        """All is done, once, and nothing is left over."""
        super().check_finished()
        found = states(self.world)
        vectors = [{vector_file(add) for add in state.adds.values()} - {None} for state in found]
        named = set().union(*vectors)
        there = {name for name in self.world.files if name.endswith(".bin")}
        assert there == named, "no version names a file"
        match self.verb:
            case "merge-dvs":
                assert len(vectors[-1]) <= 2
            case "upgrade-v3":
                assert {"v2Checkpoint", "inCommitTimestamp"} <= {*found[-1].protocol["writerFeatures"]}
            case "assign-row-ids":
                assert found[-1].metadata["configuration"][ENABLED] == "true"


def replace_a_file(scene: Rewriting) -> None:
    """Another writer takes one file away and appends another, with ids where the table wants them."""
    state = states(scene.world)[-1]
    (old,) = (add for (path, _), add in state.adds.items() if path == "b.parquet")
    fields = {key: old[key] for key in ("deletionVector", "baseRowId") if key in old}
    remove = a_remove("b.parquet", age_days=30, **fields)
    commit_to(scene.world, remove, *numbered(state, an_add("new.parquet")))
    scene.gone |= {"b.parquet"}


@pytest.fixture(params=POLICIES)
def scene(request: pytest.FixtureRequest) -> Rewriting:
    return Rewriting(verb=request.param)


class TestRewriting(suite.Crashes, suite.SecondCrashes, suite.Commits):
    """Its rows are those that were there, and ids stay."""

    crashes = 8
    second_crashes = 8
    commits = 8

    @pytest.fixture
    def act(self) -> suite.Act:
        return replace_a_file


def test_a_put_of_a_version_without_an_answer_is_settled(scene: Rewriting) -> None:
    effects = scene.undisturbed()
    versions = [effect.removeprefix("put ") for effect in effects if version_path(0)[:-8] in effect]
    assert versions
    for version in versions:
        here = scene.copy()
        with pytest.raises(CommitStateUnknown):
            here.process(fail_put=suite.lost_once(version)).run()
        here.check()
        here.finish()
