"""A checkpoint stopped around every effect, raced, refused: every version stays readable and says the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from iceberg_cli.delta.log_reader import DeltaLog
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import BackendUnavailable, TakenOver
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import DELTA_TABLE, Script, SimStorage, World, unseen
from tests.crash import suite
from tests.crash.delta import PROTOCOL, a_metadata, a_remove, an_add, commit_to, newest, version_path

LOG = f"{DELTA_TABLE}/_delta_log"
HINT = f"{LOG}/_last_checkpoint"
POLICIES: Mapping[str, Mapping[str, object]] = {
    "classic": {"checkpoint": "classic", "compact_log": [0, 2]},
    "v2": {"checkpoint": "v2", "part_size": 2, "compact_log": [0, 2]},
}


def a_world() -> World:
    world = World()
    commit_to(world, PROTOCOL, a_metadata(), *(an_add(f"{n}.parquet") for n in "abcde"))
    commit_to(world, a_remove("a.parquet", age_days=1))
    commit_to(world, an_add("f.parquet"), a_remove("b.parquet", age_days=30))
    return world


@dataclass(kw_only=True)
class Checkpoint(suite.Scene):
    """A checkpoint of one kind, with a log compaction."""

    process_type = DeltaProcess
    verb = "rewrite-manifests"

    kind: str
    world: World = field(default_factory=a_world)
    files: tuple[set[str], ...] = ({*"abcde"}, {*"bcde"}, {*"cdef"})  # of each version

    @property
    def policy(self) -> Mapping[str, object]:
        return POLICIES[self.kind]

    def append(self) -> None:
        """Another writer's commit."""
        commit_to(self.world, an_add("g.parquet"))
        self.files += ({*"cdefg"},)

    def check(self) -> None:
        """Every version says what it said, also to a reader that has nothing but the newest checkpoint."""
        assert newest(self.world) == len(self.files) - 1
        for version, files in enumerate(self.files):
            assert files_at(self.world, version) == files
        checkpoints = {name for name in self.world.files if name.startswith(f"{LOG}/{2:020}.checkpoint.")}
        for checkpoint in checkpoints:
            alone = self.world.copy()
            for name in checkpoints - {checkpoint}:
                del alone.files[name]
            for version in range(3):
                del alone.files[version_path(version)]
            for name in [name for name in alone.files if "compacted" in name]:
                del alone.files[name]
            assert files_at(alone, 2) == self.files[2]
        if HINT in self.world.files:  # it comes after what it hints at
            version = json.loads(self.world.files[HINT])["version"]
            assert any(name.startswith(f"{LOG}/{version:020}.checkpoint.") for name in self.world.files)


def files_at(world: World, version: int) -> set[str]:
    storage = SimStorage(world, Script())
    log = DeltaLog(storage, LocalEngine(storage, threads=1), DELTA_TABLE, unseen)  # type: ignore[arg-type]
    return {path.removesuffix(".parquet") for path in log.snapshot(version).adds["path"].to_pylist()}


@pytest.fixture(params=POLICIES)
def scene(request: pytest.FixtureRequest) -> Checkpoint:
    return Checkpoint(kind=request.param)


class TestCheckpoints(suite.Crashes, suite.Commits):
    """Every version stays readable and says the same."""

    crashes = 4
    commits = 4

    @pytest.fixture
    def act(self) -> suite.Act:
        return Checkpoint.append


def test_only_a_checkpoint_of_version_2_has_sidecars(scene: Checkpoint) -> None:
    assert any("_sidecars" in effect for effect in scene.undisturbed()) == (scene.kind == "v2")


@pytest.mark.few(1)
def test_a_file_that_cannot_be_written_stops_the_run_and_harms_nothing(scene: Checkpoint) -> None:
    written = [effect.split(" ", 1)[1] for effect in scene.undisturbed() if LOG in effect]
    # Sidecars and the top level have other names in every run, so they are told by what is the same in them.
    stated = {path.rpartition("/")[2][:45] for path in written}
    for name in stated:
        here = scene.copy()

        def full(path: str, name: str = name) -> str | None:
            return "no space left" if path.rpartition("/")[2].startswith(name) else None

        with pytest.raises(BackendUnavailable, match="no space left"):
            here.process(fail_put=full).run()
        here.check()
        here.finish()


def test_a_process_that_hung_while_another_one_went_on_writes_its_top_level_and_harms_nothing() -> None:
    scene = Checkpoint(kind="v2")
    (top_level,) = (
        number
        for number, effect in enumerate(scene.undisturbed())
        if ".checkpoint." in effect and effect.endswith(".json")
    )

    def act() -> None:
        scene.process().resume()
        scene.process().run()

    with pytest.raises(TakenOver):
        scene.process(before={top_level: act}).run()
    names = scene.world.files
    assert len([name for name in names if ".checkpoint." in name and name.endswith(".json")]) == 2
    scene.check()
    scene.finish()
