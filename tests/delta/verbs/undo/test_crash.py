"""An undo on Delta is stopped around each of its effects, and others sweep or commit meanwhile.

Once the log says that the VACUUM failed no file of it goes any more, whoever goes on with what is open, and however
long after. Until then the VACUUM is as it was.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, ClassVar

import pytest

from iceberg_cli.errors import CommitConflict, CommitStateUnknown, IcebergCliError, Refused
from iceberg_cli.operation.apply import resume
from iceberg_cli.table.recovery import recover_all
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import Script, World, crash
from tests.budget import few_or_many, some
from tests.builders import DAY_MS
from tests.crash.delta import an_add, commit_to, newest, version_path
from tests.crash.suite import around
from tests.delta.verbs.expire_snapshots.test_crash import GOING, Vacuum
from tests.delta.verbs.expire_snapshots.test_grace import NOBODY, WaitingBoth, WaitingCleanup, WaitingVacuum


class Lite(Vacuum):
    """A VACUUM from the log alone, with a grace of a day."""

    policy: ClassVar = {"mode": "lite", "grace_ms": DAY_MS}


KINDS = [WaitingVacuum, Lite, WaitingCleanup, WaitingBoth]


@pytest.fixture(params=KINDS)
def scene(request: pytest.FixtureRequest) -> Any:
    """A table on which a verb has run and waits."""
    waits = request.param()
    assert waits.process().run().status == "waiting"
    return waits


def undo(world: World, **script: Any) -> DeltaProcess:
    return DeltaProcess(world=world, script=Script(**script), verb="undo")


def statuses(world: World) -> list[str]:
    """Those of each VACUUM END, oldest first."""
    infos = [
        json.loads(line).get("commitInfo", {})
        for version in range(newest(world) + 1)
        if version_path(version) in world.files
        for line in world.files[version_path(version)].splitlines()
    ]
    return [each["operationParameters"]["status"] for each in infos if each.get("operation") == "VACUUM END"]


def stored(world: World) -> set[str]:
    """All files but those of operations."""
    return {path for path in world.files if "/_iceberg_cli/" not in path}


def over(world: World) -> bool:
    return not [path for path in world.files if "/_iceberg_cli/ops/" in path]


def commits(scene: Any) -> bool:
    """Whether the verb has written a VACUUM START."""
    return type(scene) is not WaitingCleanup


def test_it_is_closed_and_no_file_goes_then_or_later(scene: Any) -> None:
    before = stored(scene.world)
    assert undo(scene.world).run().status == "done"
    assert statuses(scene.world) == ["FAILED"] * commits(scene)
    new = {version_path(newest(scene.world))} if commits(scene) else set()
    assert (stored(scene.world), over(scene.world)) == (before | new, True)
    scene.world.now_ms += 3 * DAY_MS
    assert undo(scene.world).resume() == []
    assert stored(scene.world) == before | new
    scene.check()


@around
@few_or_many(2)
def test_a_crash_around_any_effect_leaves_one_state_or_the_other(scene: Any, side: str, budget: int) -> None:
    process = undo(scene.copy().world)
    assert process.run().status == "done"
    for number, effect in some([*enumerate(process.effects)], budget):
        here = scene.copy()
        before = stored(here.world)
        dying = undo(here.world, **{side: {number: crash}})
        assert dying.dies(dying.run), effect
        here.check()
        assert before <= stored(here.world)
        failed = "FAILED" in statuses(here.world)
        # The grace is over for whoever comes next, and goes on with all that is open.
        here.world.now_ms += 3 * DAY_MS
        list(recover_all(undo(here.world).table, undo(here.world).runtime, verbs=undo(here.world).verbs))
        undo(here.world).resume()
        here.check()
        assert over(here.world), effect
        if failed:
            assert before <= stored(here.world), effect
            assert statuses(here.world) == ["FAILED"]
        else:
            # It was not taken back, and went on; or it was closed, having committed nothing.
            assert statuses(here.world) in ([], ["COMPLETED"], ["FAILED"])
            assert (before <= stored(here.world)) == ("COMPLETED" not in statuses(here.world)) or not commits(
                here
            )


@few_or_many(2)
def test_a_second_crash_while_the_first_is_made_good(scene: Any, budget: int) -> None:
    process = undo(scene.copy().world)
    process.run()
    moments = [(first, second) for first in range(len(process.effects)) for second in range(8)]
    for first, second in some(moments, budget):
        here = scene.copy()
        before = stored(here.world)
        dying = undo(here.world, after={first: crash})
        dying.dies(dying.run)
        resuming = undo(here.world, before={second: crash})
        resuming.dies(resuming.resume)
        failed = "FAILED" in statuses(here.world)
        here.world.now_ms += 3 * DAY_MS
        undo(here.world).resume()
        here.check()
        assert over(here.world)
        assert not failed or before <= stored(here.world)


@few_or_many(2)
def test_a_sweep_before_any_effect_takes_nothing_once_it_is_taken_back(scene: Any, budget: int) -> None:
    process = undo(scene.copy().world)
    process.run()
    for number in some(range(len(process.effects)), budget):
        here = scene.copy()
        before = stored(here.world)

        def sweep(here: Any = here) -> None:
            here.world.now_ms += 3 * DAY_MS
            for operation_id in here.process().table.workspace.open_operations():
                with suppress(IcebergCliError):
                    other = here.process()
                    operation = other.table.workspace.journal(operation_id).operation()
                    if operation is not None and operation.undoes is None:
                        other.resume()

        with suppress(IcebergCliError):
            undo(here.world, before={number: sweep}).run()
        if "FAILED" in statuses(here.world):
            assert before <= stored(here.world)
            assert statuses(here.world) == ["FAILED"]
        here.check()
        undo(here.world).resume()
        here.check()
        assert over(here.world)


@few_or_many(6)
def test_an_append_before_any_effect_is_kept_and_it_is_taken_back_all_the_same(budget: int) -> None:
    waits = WaitingVacuum()
    waits.process().run()
    process = undo(waits.copy().world)
    process.run()
    for number in some(range(len(process.effects)), budget):
        here = waits.copy()

        def append(here: Any = here) -> None:
            here.world.files[f"{NOBODY}.new"] = b"data"
            commit_to(here.world, an_add("nobody.parquet.new"))

        with suppress(CommitConflict, Refused):
            undo(here.world, before={number: append}).run()
        here.check()
        assert statuses(here.world) == ["FAILED"]
        assert set(here.world.files) >= GOING | {f"{NOBODY}.new"}
        assert over(here.world)


def test_a_version_without_an_answer_is_settled() -> None:
    waits = WaitingVacuum()
    waits.process().run()
    version = version_path(newest(waits.world) + 1)
    reasons = ["no answer"]

    def lose(path: str) -> str | None:
        return reasons.pop() if path == version and reasons else None

    with pytest.raises(CommitStateUnknown):
        undo(waits.world, fail_put=lose).run()
    waits.world.now_ms += 3 * DAY_MS
    undo(waits.world).resume()
    assert over(waits.world)
    assert statuses(waits.world)[-1] == ("FAILED" if set(waits.world.files) >= GOING else "COMPLETED")
    waits.check()


@pytest.mark.parametrize("kind", [WaitingVacuum, Lite, WaitingBoth])
def test_who_goes_on_with_it_alone_deletes_nothing_while_the_undo_is_open(kind: type[Any]) -> None:
    """The process of the undo died after its commit, the grace is over, and somebody resumes the VACUUM by its id."""
    waits = kind()
    waits.process().run()
    (operation_id,) = waits.process().table.workspace.open_operations()
    process = undo(waits.copy().world)
    process.run()
    number = process.effects.index(f"put {version_path(newest(waits.world) + 1)}")
    dying = undo(waits.world, after={number: crash})
    assert dying.dies(dying.run)
    before = stored(waits.world)
    waits.world.now_ms += 3 * DAY_MS
    other = waits.process()
    with pytest.raises(Refused, match="takes this one back"):
        resume(other.table, operation_id, other.runtime, verbs=other.verbs)
    assert stored(waits.world) == before
    undo(waits.world).resume()
    assert (stored(waits.world), statuses(waits.world), over(waits.world)) == (before, ["FAILED"], True)
