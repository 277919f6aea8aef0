"""A catalog drops a tag that was made between our look and our commit: from then on nothing is deleted.

It holds requests against the refs that we had seen, and what it was not told of does not stop it. The files of the tag
are needed to get it back, until an operator gives them up.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from iceberg_cli.errors import CommitStateUnknown, DeletesFailed
from iceberg_cli.operation.apply import abandon
from iceberg_cli.plan.report import RecoveredOperation
from iceberg_cli.table.recovery import close, operations, recover_all
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import Script, SimStorage, crash
from iceberg_cli.testing.iceberg_reader import check_table
from tests.builders import DAY_MS
from tests.crash.scenes import POLICY, Expiry, Scene, a_scene, journal_files
from tests.crash.verbs import THREE, FakeProcess

SWAP = "swap by the catalog"


@pytest.fixture
def scene() -> Scene:
    return a_scene(served=True)


def swaps_of(process: Process) -> list[int]:
    return [number for number, effect in enumerate(process.effects) if effect == SWAP]


def the_swap(scene: Scene) -> int:
    process = scene.copy().process()
    process.run()
    (number,) = swaps_of(process)
    return number


def stops(run: Callable[[], object]) -> DeletesFailed:
    """The error that a run ends with."""
    with pytest.raises(DeletesFailed) as caught:
        run()
    return caught.value


def run_into_a_tag(scene: Scene, **values: object) -> DeletesFailed:
    """An expiry, right before whose commit another writer tags snapshot 4, which expires with it."""
    script = Script(before={the_swap(scene): partial(scene.foreign_tag, "late", 4)})
    process = Expiry(world=scene.world, script=script, **values)  # type: ignore[arg-type]
    return stops(process.run)


def check_nothing_went(scene: Scene) -> None:
    """The table is whole, and the version before the commit can be read with every snapshot and the tag."""
    scene.check()
    assert [path for path in scene.world.deleted if "/_iceberg_cli/" not in path] == []
    before = json.loads(scene.world.files[scene.current])["metadata-log"][-1]["metadata-file"]
    document = json.loads(scene.world.files[before])
    refs = {name: ref["snapshot-id"] for name, ref in document["refs"].items()}
    assert refs == {"main": 7, "eom": 2, "audit": 6, "late": 4}
    check_table(SimStorage(scene.world, Script()), before, refs=refs, snapshots=[1, 2, 3, 4, 5, 6, 7])


def recover(process: Process) -> RecoveredOperation:
    (recovered,) = recover_all(process.table, process.runtime, verbs=process.verbs)
    return recovered


def test_a_tag_that_went_with_the_commit_stops_the_run_before_its_deletions(scene: Scene) -> None:
    error = run_into_a_tag(scene)
    assert error.exit_code == 14
    before = json.loads(scene.world.files[scene.current])["metadata-log"][-1]["metadata-file"]
    [copy] = [path for path in scene.world.files if path.rpartition("/")[2].startswith("version-before-")]
    assert scene.world.files[copy] == scene.world.files[before]
    assert error.message.endswith(
        f"after this commit: late went with it, see the version before, {before}; a copy of {before} is at {copy}"
    )
    assert error.state.startswith("Committed: expire. No file was deleted after that")
    (operation_id,) = scene.process().table.workspace.open_operations()
    assert f"`resume TABLE {operation_id} --abandon` closes" in error.next_step
    check_nothing_went(scene)


def test_a_tag_on_a_snapshot_that_stays_withholds_nothing(scene: Scene) -> None:
    tag = partial(scene.foreign_tag, "late", 7)
    assert scene.process(before={the_swap(scene): tag}).run().status == "done"
    scene.refs["late"] = 7
    scene.finish()


def test_every_resume_says_the_same_and_writes_and_deletes_nothing(scene: Scene) -> None:
    error = run_into_a_tag(scene)
    files = dict(scene.world.files)
    for days in range(3):
        scene.world.now_ms += days * DAY_MS
        again = stops(scene.process().resume)
        assert (again.message, again.state, again.next_step) == (error.message, error.state, error.next_step)
        assert scene.world.files == files
    check_nothing_went(scene)


def test_a_run_of_another_day_tells_of_it_and_counts_no_deletion(scene: Scene) -> None:
    error = run_into_a_tag(scene)
    recovered = recover(scene.process())
    assert recovered.exit_code == 14
    report = recovered.report
    assert (report.status, report.counts, report.reclaimed_bytes) == ("refused", {}, 0)
    assert report.notes[0].endswith(error.message)
    assert report.notes[1:] == (error.state, error.next_step)
    assert scene.process().run().status == "nothing_to_do"
    (listed,) = operations(scene.process().table, now_ms=scene.world.now_ms)
    assert listed.state == "sweeping"
    assert listed.message.startswith("committed, but no file may be deleted: late went with it")
    check_nothing_went(scene)


def test_a_grace_does_not_end_it(scene: Scene) -> None:
    run_into_a_tag(scene, policy=replace(POLICY, grace=DAY_MS))
    for days in (0, 1, 2):
        scene.world.now_ms += days * DAY_MS
        assert recover(scene.process()).exit_code == 14
        check_nothing_went(scene)


def test_abandon_closes_the_operation_and_leaves_all_files(scene: Scene) -> None:
    error = run_into_a_tag(scene)
    process = scene.process()
    (listed,) = operations(process.table, now_ms=scene.world.now_ms)
    report = close(process.table, listed, process.runtime).report
    assert journal_files(scene) == []
    assert report.abandoned is not None
    orphans = report.abandoned.orphans
    assert orphans is not None
    assert (orphans.count, orphans.checked) == (14, False)
    assert error.message.endswith(orphans.note)
    check_nothing_went(scene)
    assert scene.process().run().status == "nothing_to_do"
    check_nothing_went(scene)


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_kill_around_any_effect_from_the_commit_on_is_followed_by_the_same(scene: Scene, side: str) -> None:
    swap, deaths = the_swap(scene), 0
    for number in range(swap, swap + 10):
        here = scene.copy()

        def tag(here: Scene = here, *, dies: bool = (side, number) == ("before", swap)) -> None:
            here.foreign_tag("late", 4)
            if dies:
                crash()

        script = {"before": {swap: tag}}
        if (side, number) != ("before", swap):
            script.setdefault(side, {})[number] = crash
        process = here.process(**script)
        try:
            died = process.dies(process.run)
        except DeletesFailed:
            break
        assert died
        deaths += 1
        if (side, number) == ("before", swap):
            # Never sent, and nobody can know that: it may still arrive.
            with pytest.raises(CommitStateUnknown):
                here.process().resume()
        else:
            for _ in range(2):
                stops(here.process().resume)
            check_nothing_went(here)
        for operation_id in here.process().table.workspace.open_operations():
            abandon(here.process().table, operation_id, here.process().runtime)
        assert journal_files(here) == []
        assert [path for path in here.world.deleted if "/_iceberg_cli/" not in path] == []
    assert deaths >= 2


def test_a_kill_around_any_effect_of_abandon_leaves_all_files(scene: Scene) -> None:
    run_into_a_tag(scene)

    def abandon_all(process: Process) -> None:
        for operation_id in process.table.workspace.open_operations():
            abandon(process.table, operation_id, process.runtime)

    trial = scene.copy().process()
    abandon_all(trial)
    for number, _ in enumerate(trial.effects):
        here = scene.copy()
        process = here.process(before={number: crash})
        assert process.dies(partial(abandon_all, process))
        abandon_all(here.process())
        assert journal_files(here) == []
        check_nothing_went(here)


def test_a_request_that_arrives_late_withholds_as_well(scene: Scene) -> None:
    with pytest.raises(CommitStateUnknown):
        scene.process(swaps=["late"]).run()
    scene.foreign_tag("late", 4)
    scene.world.arrive()
    scene.foreign_append()
    for _ in range(2):
        assert "late went with it" in stops(scene.process().resume).message
    assert [path for path in scene.world.deleted if "/_iceberg_cli/" not in path] == []
    scene.check()


def test_a_request_that_comes_in_twice_withholds_what_went_with_the_first(scene: Scene) -> None:
    """It is sent again while its base is current; before that arrives, a tag is made and the late one drops it."""
    with pytest.raises(CommitStateUnknown):
        scene.process(swaps=["late"]).run()
    trial = scene.copy().process()
    trial.resume()
    (swap,) = swaps_of(trial)

    def come_between() -> None:
        scene.foreign_tag("late", 4)
        scene.world.arrive()

    process = scene.process(before={swap: come_between})
    assert "late went with it" in stops(process.resume).message
    stops(scene.process().resume)
    assert [path for path in scene.world.deleted if "/_iceberg_cli/" not in path] == []
    scene.check()


def test_no_later_step_is_carried_out(scene: Scene) -> None:
    trial = FakeProcess(world=scene.copy().world, verb=THREE)
    assert trial.run().status == "done"
    expiry = swaps_of(trial)[1]
    script = Script(before={expiry: partial(scene.foreign_tag, "late", 4)})
    error = stops(FakeProcess(world=scene.world, verb=THREE, script=script).run)
    assert error.state.startswith("Committed: begin, expire. ")
    assert error.state.endswith(" Not carried out: end.")
    files = dict(scene.world.files)
    assert stops(FakeProcess(world=scene.world, verb=THREE).resume).state == error.state
    assert scene.world.files == files
    assert json.loads(files[scene.current])["properties"]["at"] == "begin"
    check_nothing_went(scene)


def test_what_a_late_request_names_stays_although_the_refs_moved(scene: Scene) -> None:
    """They go back to what the request is held against, and the catalog takes it after all."""
    with pytest.raises(CommitStateUnknown):
        FakeProcess(world=scene.world, verb=THREE, script=Script(swaps=["late"])).run()
    refs = json.loads(scene.world.files[scene.current])["refs"]
    scene.foreign_append()
    (report,) = FakeProcess(world=scene.world, verb=THREE).resume()
    assert "cannot be proved that nothing references 2 files of its own" in " ".join(report.notes)
    current = scene.current
    document = json.loads(scene.world.files[current])
    before = document["properties"]["property-note"]
    scene.writer.document, scene.writer.published = document, current
    document["refs"] = refs
    document["current-snapshot-id"] = refs["main"]["snapshot-id"]
    scene._publish("rolled-back")
    scene.world.arrive()
    named = json.loads(scene.world.files[scene.current])["properties"]["property-note"]
    assert named != before
    assert named in scene.world.files
