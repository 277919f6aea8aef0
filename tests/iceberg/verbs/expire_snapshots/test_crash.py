"""An expiry is stopped before and after every effect that it has, and so is the run that resumes it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from functools import partial

import pytest

from iceberg_cli.errors import IcebergCliError
from iceberg_cli.testing.crash.world import crash
from tests.budget import few_or_many, some
from tests.crash import suite
from tests.crash.scenes import Expiry, Scene, a_scene, few_rows_in_a_part

PARTS = "catalog, removals in parts"


@pytest.fixture(
    scope="module", params=["catalog", "served", "folder", pytest.param(PARTS, marks=pytest.mark.deep)]
)
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    with few_rows_in_a_part() if request.param == PARTS else contextlib.nullcontext():
        yield a_scene(catalog=request.param != "folder", served=request.param == "served")


class TestExpiry(suite.Undisturbed, suite.Crashes, suite.Commits, suite.Days):
    """What can go is gone, what the table needs stays, and files of other tables are not touched."""

    crashes = 4
    commits = 3

    @pytest.fixture
    def act(self) -> suite.Act:
        return Scene.foreign_append

    def check_days(self, here: Scene, process: Expiry) -> None:
        assert process.run().status == "done"
        here.check_finished()


@few_or_many(5, many=40)
def test_crash_around_any_effect_is_made_good_by_the_next_run_alone(scene: Scene, budget: int) -> None:
    for number, effect in some(list(enumerate(scene.undisturbed())), budget):
        here = scene.copy()
        process = here.process(before={number: crash})
        assert process.dies(process.run), effect
        here.process().run()
        here.check_finished()


@few_or_many(3, many=20)
def test_crash_inside_resume_around_any_of_its_effects(scene: Scene, budget: int) -> None:
    cases = []
    for number in some(range(len(scene.undisturbed())), budget):
        here = scene.copy()
        first = here.process(before={number: crash})
        first.dies(first.run)
        second = here.copy().process()
        second.resume()
        cases += [(number, nested) for nested in range(len(second.effects))]
    for number, nested in some(cases, budget):
        here = scene.copy()
        first = here.process(before={number: crash})
        first.dies(first.run)
        second = here.process(before={nested: crash})
        assert second.dies(second.resume)
        here.check()
        here.finish()


@few_or_many(3, many=20)
def test_three_appends_before_any_effect_are_kept(scene: Scene, budget: int) -> None:
    for number in some(range(len(scene.undisturbed())), budget):
        here = scene.copy()
        acts = dict.fromkeys((number, number + 1, number + 3), here.foreign_append)
        here.process(before=acts).run()
        here.check_finished()


@few_or_many(5, many=40)
def test_append_before_any_effect_and_crash_before_any_later_one(scene: Scene, budget: int) -> None:
    count = len(scene.undisturbed())
    for race, death in some(list(itertools.combinations(range(count), 2)), budget):
        here = scene.copy()
        process = here.process(before={race: here.foreign_append, death: crash})
        assert process.dies(process.run)
        here.check()
        here.finish()


@few_or_many(3, many=20)
def test_append_while_the_process_is_dead_is_kept_and_only_what_was_shown_goes(
    scene: Scene, budget: int
) -> None:
    theirs = set(scene.world.files)
    for number in some(range(len(scene.undisturbed())), budget):
        here = scene.copy()
        process = here.process(before={number: crash})
        process.dies(process.run)
        here.foreign_append()
        here.foreign_append()
        here.finish()
        assert process.shown is not None
        assert process.shown.removals is not None
        assert set(here.world.deleted) & theirs <= set(process.shown.removals.rows["path"].to_pylist())


@few_or_many(4, many=32)
def test_what_comes_due_during_a_run_is_kept_and_goes_with_the_next_one(scene: Scene, budget: int) -> None:
    """An append to `audit` makes snapshot 6 due, which the operator never saw."""
    for number in some(range(len(scene.undisturbed())), budget):
        here = scene.copy()
        here.process(before={number: partial(here.foreign_append, of="audit")}).run()
        here.check_finished()
        here.kept.remove(6)
        here.process().run()
        here.check_finished()


@few_or_many(3, many=20)
def test_more_due_while_the_process_is_dead_is_never_deleted_unseen(scene: Scene, budget: int) -> None:
    for number in some(range(len(scene.undisturbed())), budget):
        here = scene.copy()
        here.kept.remove(6)
        process = here.process(before={number: crash})
        process.dies(process.run)
        here.foreign_append(of="audit")
        with contextlib.suppress(IcebergCliError):
            here.process().resume()
        assert f"{here.writer.location}/metadata/snap-6.avro" in here.world.files
        here.process().run()
        here.check_finished()
