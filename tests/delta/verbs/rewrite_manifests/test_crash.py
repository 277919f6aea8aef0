"""A checkpoint stopped around every effect, raced, refused: every version stays readable and says the same."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from iceberg_cli.delta.log_reader import DeltaLog
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import BackendUnavailable, TakenOver
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import DELTA_TABLE, Script, SimStorage, World, crash, unseen
from tests.budget import few_or_many, some
from tests.crash.delta import METADATA, a_remove, an_add, commit_to, newest, version_path

LOG = f"{DELTA_TABLE}/_delta_log"
HINT = f"{LOG}/_last_checkpoint"
FEATURES = ["v2Checkpoint", "deletionVectors"]
PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": FEATURES,
    "writerFeatures": FEATURES,
}
POLICIES: Mapping[str, Mapping[str, object]] = {
    "classic": {"checkpoint": "classic", "compact_log": [0, 2]},
    "v2": {"checkpoint": "v2", "part_size": 2, "compact_log": [0, 2]},
}


def a_world() -> World:
    world = World()
    commit_to(
        world, {"protocol": PROTOCOL}, {"metaData": METADATA}, *(an_add(f"{n}.parquet") for n in "abcde")
    )
    commit_to(world, a_remove("a.parquet", age_days=1))
    commit_to(world, an_add("f.parquet"), a_remove("b.parquet", age_days=30))
    return world


FILES = [{*"abcde"}, {*"bcde"}, {*"cdef"}]


def process(world: World, kind: str, script: Script | None = None) -> DeltaProcess:
    return DeltaProcess(
        world=world, script=script or Script(), policy=POLICIES[kind], verb="rewrite-manifests"
    )


def files_at(world: World, version: int) -> set[str]:
    storage = SimStorage(world, Script())
    log = DeltaLog(storage, LocalEngine(storage, threads=1), DELTA_TABLE, unseen)  # type: ignore[arg-type]
    return {path.removesuffix(".parquet") for path in log.snapshot(version).adds["path"].to_pylist()}


def check(world: World) -> None:
    """Every version says what it said, also to a reader that has nothing but the newest checkpoint."""
    for version, files in enumerate(FILES):
        assert files_at(world, version) == files
    checkpoints = {name for name in world.files if name.startswith(f"{LOG}/{2:020}.checkpoint.")}
    for checkpoint in checkpoints:
        alone = world.copy()
        for name in checkpoints - {checkpoint}:
            del alone.files[name]
        for version in range(3):
            del alone.files[version_path(version)]
        for name in [name for name in alone.files if "compacted" in name]:
            del alone.files[name]
        assert files_at(alone, 2) == FILES[2]
    if HINT in world.files:  # it comes after what it hints at
        assert checkpoints


def effects(kind: str) -> list[str]:
    whole = process(a_world(), kind)
    assert whole.run().status == "done"
    return whole.effects


def finish(world: World, kind: str) -> None:
    """Resume, run again, and nothing is left to do but by a log cleanup."""
    process(world, kind).resume()
    check(world)
    process(world, kind).run()
    assert process(world, kind).run().status == "nothing_to_do"
    check(world)
    assert not [name for name in world.files if "_iceberg_cli" in name]


@few_or_many(8)
@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.parametrize("side", ["before", "after"])
def test_crash_around_any_effect(kind: str, side: str, budget: int) -> None:
    trace = effects(kind)
    assert any("_sidecars" in effect for effect in trace) == (kind == "v2")
    for number, effect in some(list(enumerate(trace)), budget):
        world = a_world()
        stopped = process(world, kind, Script(**{side: {number: crash}}))
        assert stopped.dies(stopped.run), effect
        check(world)
        finish(world, kind)


@pytest.mark.parametrize("kind", POLICIES)
def test_a_file_that_cannot_be_written_stops_the_run_and_harms_nothing(kind: str) -> None:
    written = [effect.split(" ", 1)[1] for effect in effects(kind) if LOG in effect]
    # Sidecars and the top level have other names in every run, so they are told by what is the same in them.
    stated = {path.rpartition("/")[2][:45] for path in written}
    for name in stated:
        world = a_world()

        def full(path: str, name: str = name) -> str | None:
            return "no space left" if path.rpartition("/")[2].startswith(name) else None

        with pytest.raises(BackendUnavailable, match="no space left"):
            process(world, kind, Script(fail_put=full)).run()
        check(world)
        finish(world, kind)


@pytest.mark.parametrize("kind", POLICIES)
def test_another_writer_commits_before_any_effect(kind: str) -> None:
    for number, effect in enumerate(effects(kind)):
        world = a_world()

        def act(world: World = world) -> None:
            commit_to(world, an_add("g.parquet"))

        process(world, kind, Script(before={number: act})).run()
        check_with_more(world, effect)


def check_with_more(world: World, effect: str) -> None:
    assert newest(world) == 3
    for version, files in enumerate([*FILES, {*"cdefg"}]):
        assert files_at(world, version) == files, effect


def test_a_process_that_hung_while_another_one_went_on_writes_its_top_level_and_harms_nothing() -> None:
    trace = effects("v2")
    (top_level,) = (
        number for number, effect in enumerate(trace) if ".checkpoint." in effect and effect.endswith(".json")
    )
    world = a_world()

    def act() -> None:
        process(world, "v2").resume()
        process(world, "v2").run()

    with pytest.raises(TakenOver):
        process(world, "v2", Script(before={top_level: act})).run()
    assert len([name for name in world.files if ".checkpoint." in name and name.endswith(".json")]) == 2
    check(world)
    finish(world, "v2")
