"""An expiry is stopped before and after every effect that it has, and so is the run that resumes it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from functools import partial

import pytest

from iceberg_cli.errors import IcebergCliError, StalePlan
from iceberg_cli.testing.crash.world import Script, crash
from tests.budget import few_or_many, some
from tests.crash.scenes import CANARIES, Expiry, Scene, a_scene, few_rows_in_a_part, finish

PARTS = "catalog, removals in parts"


@pytest.fixture(
    scope="module", params=["catalog", "served", "folder", pytest.param(PARTS, marks=pytest.mark.deep)]
)
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    with few_rows_in_a_part() if request.param == PARTS else contextlib.nullcontext():
        yield a_scene(catalog=request.param != "folder", served=request.param == "served")


def effects_of(scene: Scene) -> list[str]:
    """The effects of an expiry that nothing disturbs."""
    process = Expiry(world=scene.copy().world)
    process.run()
    return process.effects


def test_undisturbed_expiry_leaves_only_what_the_table_needs(scene: Scene) -> None:
    here = scene.copy()
    report = Expiry(world=here.world).run()
    assert report.status == "done"
    here.check_finished()


@few_or_many(12)
@pytest.mark.parametrize("when", ["before", "after"])
def test_crash_around_any_effect_is_made_good_by_resume(scene: Scene, when: str, budget: int) -> None:
    for number, effect in some(list(enumerate(effects_of(scene))), budget):
        here = scene.copy()
        process = Expiry(world=here.world, script=Script(**{when: {number: crash}}))  # type: ignore[arg-type]
        assert process.dies(process.run), effect
        here.check()
        finish(here)


@few_or_many(10)
def test_crash_around_any_effect_is_made_good_by_the_next_run_alone(scene: Scene, budget: int) -> None:
    for number, effect in some(list(enumerate(effects_of(scene))), budget):
        here = scene.copy()
        process = Expiry(world=here.world, script=Script(before={number: crash}))
        assert process.dies(process.run), effect
        Expiry(world=here.world).run()
        here.check_finished()


@few_or_many(5)
def test_crash_inside_resume_around_any_of_its_effects(scene: Scene, budget: int) -> None:
    cases = []
    for number, _ in enumerate(effects_of(scene)):
        here = scene.copy()
        first = Expiry(world=here.world, script=Script(before={number: crash}))
        first.dies(first.run)
        second = Expiry(world=here.copy().world)
        second.resume()
        cases += [(number, nested) for nested in range(len(second.effects))]
    for number, nested in some(cases, budget):
        here = scene.copy()
        first = Expiry(world=here.world, script=Script(before={number: crash}))
        first.dies(first.run)
        second = Expiry(world=here.world, script=Script(before={nested: crash}))
        assert second.dies(second.resume)
        here.check()
        finish(here)


@few_or_many(1)
def test_process_that_stands_still_for_days_while_orphans_are_cleaned_leaves_a_whole_table(
    scene: Scene, budget: int
) -> None:
    effects = effects_of(scene)
    before_a_swap = [number for number in range(len(effects) - 1) if effects[number + 1].startswith("swap ")]
    for number in {*before_a_swap[:budget], *some(range(len(effects)), budget)}:
        here = scene.copy()

        def days_later(here: Scene = here) -> None:
            here.world.remove_orphans({*here.check(), *CANARIES})

        process = Expiry(world=here.world, script=Script(after={number: days_later}))
        assert process.run().status == "done", effects[number]
        here.check_finished()


@few_or_many(5)
def test_another_writers_append_before_any_effect_is_kept(scene: Scene, budget: int) -> None:
    for number in some(range(len(effects_of(scene))), budget):
        here = scene.copy()
        process = Expiry(world=here.world, script=Script(before={number: here.foreign_append}))
        process.run()
        assert here.foreign == [100]
        here.check_finished()


@few_or_many(5)
def test_three_appends_before_any_effect_are_kept(scene: Scene, budget: int) -> None:
    for number in some(range(len(effects_of(scene))), budget):
        here = scene.copy()
        acts = dict.fromkeys((number, number + 1, number + 3), here.foreign_append)
        process = Expiry(world=here.world, script=Script(before=acts))
        process.run()
        here.check_finished()


@few_or_many(10)
def test_append_before_any_effect_and_crash_before_any_later_one(scene: Scene, budget: int) -> None:
    count = len(effects_of(scene))
    for race, death in some(list(itertools.combinations(range(count), 2)), budget):
        here = scene.copy()
        script = Script(before={race: here.foreign_append, death: crash})
        process = Expiry(world=here.world, script=script)
        assert process.dies(process.run)
        here.check()
        finish(here)


@few_or_many(5)
def test_append_while_the_process_is_dead_is_kept_and_only_what_was_shown_goes(
    scene: Scene, budget: int
) -> None:
    theirs = set(scene.world.files)
    for number in some(range(len(effects_of(scene))), budget):
        here = scene.copy()
        process = Expiry(world=here.world, script=Script(before={number: crash}))
        process.dies(process.run)
        here.foreign_append()
        here.foreign_append()
        finish(here)
        assert process.shown is not None
        assert process.shown.removals is not None
        assert set(here.world.deleted) & theirs <= set(process.shown.removals.rows["path"].to_pylist())


def test_commit_that_would_let_more_expire_than_was_shown_stops_the_run(scene: Scene) -> None:
    """An append to `audit` makes snapshot 6 due, which the operator never saw."""
    refused, effects = 0, effects_of(scene)
    for number, _ in enumerate(effects):
        here = scene.copy()
        here.kept.remove(6)
        process = Expiry(
            world=here.world,
            script=Script(before={number: partial(here.foreign_append, of="audit")}),
        )
        with contextlib.suppress(StalePlan):
            process.run()
            refused -= 1
        refused += 1
        assert f"{here.writer.location}/metadata/snap-6.avro" in here.world.files
        Expiry(world=here.world).run()
        here.check_finished()
    assert 0 < refused < 9 + sum("/removals-" in effect for effect in effects if effect.startswith("put "))


@few_or_many(5)
def test_more_due_while_the_process_is_dead_is_never_deleted_unseen(scene: Scene, budget: int) -> None:
    for number in some(range(len(effects_of(scene))), budget):
        here = scene.copy()
        here.kept.remove(6)
        process = Expiry(world=here.world, script=Script(before={number: crash}))
        process.dies(process.run)
        here.foreign_append(of="audit")
        with contextlib.suppress(IcebergCliError):
            Expiry(world=here.world).resume()
        assert f"{here.writer.location}/metadata/snap-6.avro" in here.world.files
        Expiry(world=here.world).run()
        here.check_finished()
