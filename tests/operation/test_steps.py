"""Operations of several steps, stopped around every effect. No verb of the program has as many yet."""

from __future__ import annotations

import contextlib
import itertools
import json
from functools import partial

import pytest

from iceberg_cli.errors import CommitConflict, TakenOver
from iceberg_cli.testing.crash.world import Script, crash
from tests.budget import few_or_many, some
from tests.crash.scenes import Scene, a_scene
from tests.crash.verbs import NOTES, ORPHANS, SWEEP_FIRST, THREE, FakeProcess
from tests.paths import besides_history


def a_world(operation: str, *, catalog: bool = True) -> Scene:
    scene = a_scene(catalog=catalog)
    if operation == SWEEP_FIRST:
        for path in ORPHANS:
            scene.world.files[path] = b"nothing reaches it"
        scene.kept |= {1, 3, 4, 5}
    return scene


def properties_of(scene: Scene) -> dict[str, str]:
    return dict(json.loads(scene.world.files[scene.current])["properties"])


def check(scene: Scene) -> set[str]:
    """The table is whole, and so is what its properties name."""
    named = {path for name, path in properties_of(scene).items() if name in NOTES}
    assert named <= set(scene.world.files)
    return scene.check() | named


def finish(scene: Scene, operation: str) -> None:
    """Resume, run again, and nothing is left to do or to clean up."""
    FakeProcess(world=scene.world, verb=operation).resume()
    check(scene)
    FakeProcess(world=scene.world, verb=operation).run()
    assert properties_of(scene)["at"] == "end"
    ids = {snapshot["snapshot-id"] for snapshot in json.loads(scene.world.files[scene.current])["snapshots"]}
    assert ids == scene.kept | {*scene.foreign}
    canaries = {path for path in scene.world.files if not path.startswith(f"{scene.writer.location}/")}
    assert besides_history(scene.world.files) - canaries == check(scene)


def trial(scene: Scene, operation: str) -> FakeProcess:
    process = FakeProcess(world=scene.copy().world, verb=operation)
    assert process.run().status == "done"
    return process


@few_or_many(6, many=60)
@pytest.mark.parametrize(("operation", "catalog"), [(THREE, True), (THREE, False), (SWEEP_FIRST, True)])
def test_crash_around_any_effect_of_several_steps(operation: str, *, catalog: bool, budget: int) -> None:
    scene = a_world(operation, catalog=catalog)
    for number, effect in some(list(enumerate(trial(scene, operation).effects)), budget):
        here = scene.copy()
        process = FakeProcess(world=here.world, verb=operation, script=Script(before={number: crash}))
        assert process.dies(process.run), effect
        check(here)
        finish(here, operation)


def test_three_steps_are_three_commits_in_order() -> None:
    scene = a_world(THREE)
    process = trial(scene, THREE)
    assert sum(effect.startswith("swap") for effect in process.effects) == 3


def test_last_commit_follows_the_sweep() -> None:
    effects = trial(a_world(SWEEP_FIRST), SWEEP_FIRST).effects
    swap = next(number for number, effect in enumerate(effects) if effect.startswith("swap"))
    deleted = [number for number, effect in enumerate(effects) if effect.removeprefix("delete ") in ORPHANS]
    assert len(deleted) == 2
    assert max(deleted) < swap


@pytest.mark.deep
@few_or_many(1, many=24)
def test_crash_inside_the_resume_of_three_steps(budget: int) -> None:
    scene = a_world(THREE)
    cases = []
    for number, _ in enumerate(trial(scene, THREE).effects):
        here = scene.copy()
        first = FakeProcess(world=here.world, script=Script(before={number: crash}))
        first.dies(first.run)
        second = FakeProcess(world=here.world)
        second.resume()
        cases += [(number, nested) for nested in range(len(second.effects))]
    for number, nested in some(cases, budget):
        here = scene.copy()
        first = FakeProcess(world=here.world, script=Script(before={number: crash}))
        first.dies(first.run)
        second = FakeProcess(world=here.world, script=Script(before={nested: crash}))
        assert second.dies(second.resume)
        check(here)
        finish(here, THREE)


@few_or_many(4, many=24)
def test_append_before_any_effect_and_crash_before_any_later_one_of_three_steps(budget: int) -> None:
    scene = a_world(THREE)
    count = len(trial(scene, THREE).effects)
    for race, death in some(list(itertools.combinations(range(count), 2)), budget):
        here = scene.copy()
        script = Script(before={race: here.foreign_append, death: crash})
        process = FakeProcess(world=here.world, script=script)
        assert process.dies(process.run)
        check(here)
        finish(here, THREE)


def test_refused_attempts_build_only_what_the_new_plan_lacks() -> None:
    """One note is of the metadata file that moved and is built again; the other is kept."""
    scene = a_world(THREE)
    put = next(n for n, effect in enumerate(trial(scene, THREE).effects) if effect.startswith("swap"))
    process = FakeProcess(world=scene.world, script=Script(before={put: scene.foreign_append}))
    assert process.run().status == "done"
    staged = [
        effect
        for effect in process.effects
        if effect.startswith("put") and effect.endswith(("-note", "-other"))
    ]
    assert [effect.rpartition("-")[2] for effect in staged] == ["note", "other", "note"]
    finish(scene, THREE)


def test_every_refusal_leaves_no_staged_file() -> None:
    scene = a_world(THREE)
    before = set(scene.world.files)
    process = FakeProcess(world=scene.world, script=Script(swaps=["refused"] * 5))
    with pytest.raises(CommitConflict):
        process.run()
    assert besides_history(scene.world.files) == before


@few_or_many(8, many=80)
def test_second_process_that_resumes_three_steps_at_any_moment_never_loses_a_staged_file(budget: int) -> None:
    scene = a_world(THREE)
    stopped = 0
    for number in some(range(len(trial(scene, THREE).effects)), budget):
        here = scene.copy()
        other = FakeProcess(world=here.world)
        act = {number: other.resume}
        first = FakeProcess(world=here.world, script=Script(before=act))
        try:
            first.run()
        except TakenOver:
            stopped += 1
        check(here)
        finish(here, THREE)
    assert stopped > budget // 2 or stopped > 15


@few_or_many(4, many=32)
def test_second_process_that_resumes_three_steps_and_dies_too(budget: int) -> None:
    scene = a_world(THREE)
    count = len(trial(scene, THREE).effects)
    for number, death in some(list(itertools.product(range(count), range(count))), budget):
        here = scene.copy()
        other = FakeProcess(world=here.world, script=Script(before={death: crash}))
        act = {number: partial(other.dies, other.resume)}
        first = FakeProcess(world=here.world, script=Script(before=act))
        with contextlib.suppress(TakenOver):
            first.run()
        check(here)
        finish(here, THREE)
