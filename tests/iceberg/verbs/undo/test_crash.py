"""An undo is stopped before and after every effect that it has, and others sweep meanwhile: nothing is lost."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest

from iceberg_cli.errors import IcebergCliError
from iceberg_cli.iceberg.verbs.undo.policy import Undo
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import Script, SimStorage, crash
from iceberg_cli.testing.iceberg_reader import check_table
from tests.builders import DAY_MS
from tests.crash.scenes import POLICY, Expiry, Scene, a_scene
from tests.crash.suite import around

EVERY = {1, 2, 3, 4, 5, 6, 7}
KEPT = {2, 6, 7}


@dataclass(kw_only=True)
class Undoing(Process):
    """A run of `undo` on the table."""

    verb: str = "undo"
    policy: Undo = Undo()  # noqa: RUF009 - frozen


@pytest.fixture(scope="module", params=["catalog", "folder"])
def waiting(request: pytest.FixtureRequest) -> Scene:
    """The scene after an expiry whose files wait for two days."""
    scene = a_scene(catalog=request.param == "catalog")
    policy = replace(POLICY, grace=2 * DAY_MS)
    assert Expiry(world=scene.world, script=Script(), policy=policy).run().status == "waiting"
    return scene


def snapshots(here: Scene) -> set[int]:
    document = json.loads(here.world.files[here.current])
    return {each["snapshot-id"] for each in document["snapshots"]}


def check(here: Scene) -> None:
    """The table is as before the undo, or as after it, and every file that it reaches is there."""
    there = snapshots(here)
    assert there in (KEPT, EVERY, KEPT | {100}, EVERY | {100})
    check_table(SimStorage(here.world, Script()), here.current, refs=here.refs, snapshots=[*there])


def undo(here: Scene, **script: object) -> Undoing:
    return Undoing(world=here.world, script=Script(**script))  # type: ignore[arg-type]


def test_it_puts_the_snapshots_back(waiting: Scene) -> None:
    here = waiting.copy()
    assert snapshots(here) == KEPT
    assert undo(here).run().status == "done"
    assert snapshots(here) == EVERY
    check(here)
    here.world.now_ms += 3 * DAY_MS
    undo(here).resume()
    check(here)
    assert not [path for path in here.world.files if "/_iceberg_cli/ops/" in path]


@around
def test_a_crash_around_any_effect_leaves_one_state_or_the_other(waiting: Scene, side: str) -> None:
    first = waiting.copy()
    process = undo(first)
    assert process.run().status == "done"
    outcomes = set()
    for number, effect in enumerate(process.effects):
        here = waiting.copy()
        dying = undo(here, **{side: {number: crash}})
        assert dying.dies(dying.run), effect
        check(here)
        # Whoever comes after the grace goes on with what is open: files of what came back stay.
        here.world.now_ms += 3 * DAY_MS
        undo(here).resume()
        check(here)
        outcomes.add(frozenset(snapshots(here)))
        assert not [path for path in here.world.files if "/_iceberg_cli/ops/" in path], effect
    assert outcomes == {frozenset(KEPT), frozenset(EVERY)}


def test_an_append_before_any_effect_is_kept(waiting: Scene) -> None:
    first = waiting.copy()
    process = undo(first)
    process.run()
    for number in range(len(process.effects)):
        here = waiting.copy()
        with suppress(IcebergCliError):
            undo(here, before={number: here.foreign_append}).run()
        check(here)
        assert 100 in snapshots(here)
        if snapshots(here) == KEPT | {100}:
            assert undo(here).run().status == "done"
        assert snapshots(here) == EVERY | {100}
        check(here)


def test_a_sweep_before_any_effect_loses_nothing(waiting: Scene) -> None:
    """The grace is over for another process, which sweeps at any moment of the undo."""
    first = waiting.copy()
    process = undo(first)
    process.run()
    for number in range(len(process.effects)):
        here = waiting.copy()

        def sweep(here: Scene = here) -> None:
            here.world.now_ms += 3 * DAY_MS
            undo(here).resume()

        with suppress(IcebergCliError):
            undo(here, before={number: sweep}).run()
        check(here)
        undo(here).resume()
        check(here)
