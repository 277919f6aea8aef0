"""An undo of a rewrite is stopped around each of its effects, and disturbed before each: main is never a third state.

Main is at the snapshot of the rewrite, at the one before it, or at what another writer committed on top of either. No
snapshot goes, and every file of all of them stays.
"""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from iceberg_cli.errors import CommitConflict, CommitStateUnknown, IcebergCliError, Refused
from iceberg_cli.iceberg.verbs.undo.policy import Undo
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import Script, SimStorage, crash
from iceberg_cli.testing.iceberg_reader import check_table
from tests.budget import few_or_many, some
from tests.crash.scenes import Scene, a_scene
from tests.crash.suite import around
from tests.paths import besides_history

BEFORE = 7  # the head of main before the rewrite; see `a_scene_of`


@pytest.fixture(scope="module", params=["catalog", "served", "folder"])
def rewritten(request: pytest.FixtureRequest) -> Scene:
    """The scene after its manifests were rewritten."""
    scene = a_scene(catalog=request.param != "folder", served=request.param == "served")
    policy = {"all_manifests": True}
    process = Process(world=scene.world, script=Script(), verb="rewrite-manifests", policy=policy)
    report = process.run()
    assert report.status == "done"
    assert report.committed_snapshot_id is not None
    scene.kept = {1, 2, 3, 4, 5, 6, 7, report.committed_snapshot_id}
    scene.refs["main"] = report.committed_snapshot_id
    # Another writer goes on from it: the same files are live in other manifests.
    scene.writer.manifests[report.committed_snapshot_id] = scene.writer.manifests[BEFORE]
    return scene


def undo(here: Scene, **script: object) -> Process:
    return Process(world=here.world, script=Script(**script), verb="undo", policy=Undo())  # type: ignore[arg-type]


def main(here: Scene) -> int:
    head: int = json.loads(here.world.files[here.current])["refs"]["main"]["snapshot-id"]
    return head


def check(here: Scene) -> int:
    """Every snapshot is there and whole; returns main's."""
    head = main(here)
    refs = {**here.refs, "main": head}
    needed = check_table(
        SimStorage(here.world, Script()), here.current, refs=refs, snapshots=[*here.kept, *here.foreign]
    )
    assert needed <= besides_history(here.world.files)
    return head


def check_over(here: Scene) -> None:
    """Nothing of an operation is left."""
    assert not [path for path in here.world.files if "/_iceberg_cli/ops/" in path]


def test_main_goes_back_and_nothing_else_changes(rewritten: Scene) -> None:
    here = rewritten.copy()
    before = json.loads(here.world.files[here.current])
    assert undo(here).run().status == "done"
    assert check(here) == BEFORE
    check_over(here)
    after = json.loads(here.world.files[here.current])
    assert (after["snapshots"], after["last-sequence-number"]) == (
        before["snapshots"],
        before["last-sequence-number"],
    )
    with pytest.raises(Refused):
        undo(here).run()


@around
@few_or_many(4)
def test_a_crash_around_any_effect_leaves_one_state_or_the_other(
    rewritten: Scene, side: str, budget: int
) -> None:
    process = undo(rewritten.copy())
    assert process.run().status == "done"
    ours = rewritten.refs["main"]
    for number, effect in some([*enumerate(process.effects)], budget):
        here = rewritten.copy()
        dying = undo(here, **{side: {number: crash}})
        assert dying.dies(dying.run), effect
        assert check(here) in {ours, BEFORE}
        undo(here).resume()
        check(here)
        check_over(here)
        if main(here) == ours:
            assert undo(here).run().status == "done"
        assert check(here) == BEFORE


@few_or_many(6)
def test_an_append_before_any_effect_is_kept(rewritten: Scene, budget: int) -> None:
    process = undo(rewritten.copy())
    process.run()
    for number, _ in some([*enumerate(process.effects)], budget):
        here = rewritten.copy()
        with suppress(CommitConflict, Refused):
            undo(here, before={number: here.foreign_append}).run()
        assert check(here) == 100
        undo(here).resume()
        assert check(here) == 100
        check_over(here)


def test_an_append_right_before_the_swap_is_a_conflict(rewritten: Scene) -> None:
    process = undo(rewritten.copy())
    process.run()
    (number,) = (
        number
        for number, effect in enumerate(process.effects)
        if effect.startswith("swap ") or effect.endswith("/v3.metadata.json")
    )
    here = rewritten.copy()
    with pytest.raises(CommitConflict):
        undo(here, before={number: here.foreign_append}).run()
    assert check(here) == 100
    check_over(here)


@few_or_many(5)
def test_an_expiry_before_any_effect_takes_nothing_that_main_needs(rewritten: Scene, budget: int) -> None:
    """Where the snapshot before the rewrite is gone, main stays; else it is main's."""
    process = undo(rewritten.copy())
    process.run()
    for number in some(range(len(process.effects)), budget):
        here = rewritten.copy()

        def expire(here: Scene = here) -> None:
            policy = {"snapshot_ids": [BEFORE]}
            with suppress(IcebergCliError):
                Process(world=here.world, script=Script(), policy=policy).run(settle=False)

        with suppress(IcebergCliError):
            undo(here, before={number: expire}).run()
        with suppress(IcebergCliError):
            undo(here).resume()
        document = json.loads(here.world.files[here.current])
        here.kept = {each["snapshot-id"] for each in document["snapshots"]}
        assert check(here) in here.kept
        assert BEFORE in here.kept or main(here) == rewritten.refs["main"]


def test_a_swap_without_an_answer_is_settled(rewritten: Scene) -> None:
    process = undo(rewritten.copy())
    process.run()
    swaps = [effect for effect in process.effects if effect.startswith("swap ")]
    here = rewritten.copy()

    def down() -> None:
        raise CommitStateUnknown("no answer")

    for number, effect in enumerate(process.effects):
        if effect not in swaps:
            continue
        with suppress(IcebergCliError):
            undo(here, after={number: down}).run()
        undo(here).resume()
        assert check(here) == BEFORE
        check_over(here)
