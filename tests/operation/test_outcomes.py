"""Lost answers, conflicts, refused deletions, full disks, stops and limits: what each leaves behind."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

import pytest

from iceberg_cli.errors import (
    BackendUnavailable,
    CommitConflict,
    CommitStateUnknown,
    DeletesFailed,
    Interrupted,
    Refused,
)
from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.operation.apply import abandon, apply
from iceberg_cli.operation.outcomes import Committed, Outcome
from iceberg_cli.table.recovery import operations
from iceberg_cli.testing.crash.world import Script, SimStorage, World, crash
from iceberg_cli.testing.iceberg_reader import entries_of, manifests_of, snapshot_of
from tests.budget import few_or_many, some
from tests.builders import DAY_MS, HOUR_MS, LOCATION, NOW_MS, TableWriter
from tests.crash.scenes import CANARIES, POLICY, Expiry, Scene, a_scene, journal_files


@pytest.fixture(params=["swapped", "served"])
def scene(request: pytest.FixtureRequest) -> Scene:
    return a_scene(served=request.param == "served")


@pytest.fixture
def swapped() -> Scene:
    """Where this tool writes the metadata file."""
    return a_scene()


@pytest.fixture
def served() -> Scene:
    """Where the catalog writes it."""
    return a_scene(served=True)


def foreign_files_deleted(scene: Scene) -> list[str]:
    """Files of the table, not of ours, that were deleted."""
    return [path for path in scene.world.deleted if "/_iceberg_cli/" not in path]


def lose_the_answer(scene: Scene) -> None:
    """An expiry whose swap was sent and not carried out, and nobody says so."""
    with pytest.raises(CommitStateUnknown):
        scene.process(swaps=["lost"]).run()


def abandon_all(process: Expiry) -> int:
    """Abandon every operation that is open; how many these were."""
    found = process.table.workspace.open_operations()
    for operation_id in found:
        abandon(process.table, operation_id, process.runtime)
    return len(found)


# -- the swap --------------------------------------------------------------------------------------------------


def test_lost_answer_of_a_swap_that_happened_is_found_by_reading_back(scene: Scene) -> None:
    process = scene.process(swaps=["lost after"])
    assert process.run().status == "done"
    scene.check_finished()


def test_swap_without_an_answer_deletes_nothing_and_resume_sends_it_again(swapped: Scene) -> None:
    process = swapped.process(swaps=["lost"])
    with pytest.raises(CommitStateUnknown) as caught:
        process.run()
    assert caught.value.exit_code == 13
    assert swapped.world.deleted == []
    assert len({path for path in swapped.world.files if path.endswith(".metadata.json")}) == 2
    reports = swapped.process().resume()
    assert [report.status for report in reports] == ["done"]
    swapped.check_finished()


def test_swap_that_stays_without_an_answer_stays_unknown_however_often_it_is_resumed(scene: Scene) -> None:
    lose_the_answer(scene)
    for _ in range(3):
        with pytest.raises(CommitStateUnknown):
            scene.process(swaps=["lost"]).resume()
        assert scene.world.deleted == []
        scene.check()
    scene.finish()


def test_swap_that_comes_in_after_everybody_has_given_up_is_not_undone(swapped: Scene) -> None:
    """The request waits in a queue and is carried out later."""
    lose_the_answer(swapped)
    late = next(p for p in swapped.world.files if p.endswith(".metadata.json") and p != swapped.world.pointer)
    swapped.world.pointer = late
    swapped.check()
    assert [report.status for report in swapped.process().resume()] == ["done"]
    swapped.check_finished()


def test_swap_that_never_came_in_and_now_cannot_is_planned_again(scene: Scene) -> None:
    lose_the_answer(scene)
    scene.foreign_append()
    scene.finish()


def test_swap_that_came_in_and_was_followed_by_others_is_swept(swapped: Scene) -> None:
    process = swapped.process(after={5: crash})
    assert process.dies(process.run)
    assert process.effects[5].startswith("swap ")
    for _ in range(3):
        swapped.foreign_append()
    swapped.finish()


def test_swap_that_no_log_shows_and_whose_effects_do_not_show_is_planned_again(swapped: Scene) -> None:
    """Other writers commit on, and their settings trim the log; the base has moved, so ours can never come in."""
    lose_the_answer(swapped)
    for _ in range(3):
        swapped.foreign_append(keep_log=1)
    (report,) = swapped.process().resume()
    assert report.status == "done"
    assert journal_files(swapped) == []
    swapped.check()


def test_request_that_no_log_shows_and_whose_effects_do_not_show_stays_unknown_until_it_is_abandoned(
    served: Scene,
) -> None:
    """Its mark may have been in what was cut off."""
    lose_the_answer(served)
    for _ in range(3):
        served.foreign_append(keep_log=1)
    for _ in range(2):
        with pytest.raises(CommitStateUnknown, match="does not reach back") as caught:
            served.process().resume()
        assert "`resume --abandon` closes it, and its files stay." in caught.value.next_step
        assert served.world.deleted == []
    assert abandon_all(served.process()) == 1
    assert foreign_files_deleted(served) == []
    served.check()


def test_request_that_arrives_late_on_a_version_that_leaves_the_refs_alone_is_not_undone(
    served: Scene,
) -> None:
    """A metadata location that moved is no proof where the catalog holds requests against refs."""
    before = set(served.world.files)
    with pytest.raises(CommitStateUnknown):
        served.process(swaps=["late"]).run()
    served.foreign_setting("owner", "somebody")
    for _ in range(2):
        with pytest.raises(CommitStateUnknown, match="it may still arrive") as caught:
            served.process().resume()
        assert caught.value.exit_code == 13
        assert served.world.deleted == []
        assert before <= set(served.world.files)
    served.world.arrive()
    served.check()
    (report,) = served.process().resume()
    assert (report.status, report.notes) == ("done", ("Its commit had happened.",))
    served.check_finished()


def test_request_that_arrives_late_and_is_followed_by_others_that_trim_nothing_is_found(
    served: Scene,
) -> None:
    with pytest.raises(CommitStateUnknown):
        served.process(swaps=["late"]).run()
    served.foreign_setting("owner", "somebody")
    served.world.arrive()
    served.foreign_append()
    (report,) = served.process().resume()
    assert report.notes == ("Its commit had happened.",)
    served.finish()


def test_request_that_is_late_and_whose_refs_have_moved_is_planned_again(served: Scene) -> None:
    with pytest.raises(CommitStateUnknown):
        served.process(swaps=["late"]).run()
    served.foreign_append()
    (report,) = served.process().resume()
    assert report.notes == ("Its commit had been refused; it was planned again.",)
    pointer = served.world.pointer
    served.world.arrive()
    assert served.world.pointer == pointer
    served.check_finished()


@pytest.mark.parametrize("between", [False, True])
def test_request_that_arrives_before_any_effect_of_resume(served: Scene, *, between: bool) -> None:
    """It may come in twice, late and as it was sent again: both do the same."""
    with pytest.raises(CommitStateUnknown):
        served.process(swaps=["late"]).run()
    if between:
        served.foreign_setting("owner", "somebody")
    trial = served.copy().process()
    with suppress(CommitStateUnknown):
        trial.resume()
    assert len(trial.effects) == (2 if between else 45)
    for number, _ in enumerate(trial.effects):
        here = served.copy()
        with suppress(CommitStateUnknown):
            here.process(before={number: here.world.arrive}).resume()
        assert here.world.late == []
        here.check()
        here.finish()


def test_swap_that_can_never_come_in_any_more_can_be_abandoned(scene: Scene) -> None:
    lose_the_answer(scene)
    for _ in range(3):
        scene.foreign_append(keep_log=1)
    assert abandon_all(scene.process()) == 1
    assert journal_files(scene) == []
    assert foreign_files_deleted(scene) == []
    assert scene.process().run().status == "done"
    scene.check()


def test_commit_whose_effects_show_is_taken_for_done_where_no_log_shows_it(scene: Scene) -> None:
    process = scene.process(after={5: crash})
    assert process.dies(process.run)
    for _ in range(3):
        scene.foreign_append(keep_log=1)
    (report,) = scene.process().resume()
    assert report.status == "done"
    assert all(path.endswith(".metadata.json") for path in scene.leftovers())


@pytest.mark.parametrize("number", [0, 1])
def test_attempt_that_two_processes_send_is_a_success_for_both(swapped: Scene, number: int) -> None:
    """One resumed the operation of the other, and its swap comes first, before either effect of the other."""
    one, other = swapped.process(), swapped.process()
    (step,) = one.plan().plan.steps
    attempt = one.table.bind(
        step,
        {},
        timestamp_ms=swapped.world.now_ms,
        commit_uuid=swapped.world.new_uuid(),
        operation_id="operation",
        mark="operation-1",
    )
    outcomes: list[Outcome] = []
    one.storage.script = Script(before={number: lambda: outcomes.append(other.committer.commit(attempt))})
    outcomes.append(one.committer.commit(replace(attempt, fresh=True)))
    assert outcomes == [Committed(metadata_location=attempt.target)] * 2


def test_outcome_that_can_still_be_success_cannot_be_abandoned(scene: Scene) -> None:
    lose_the_answer(scene)
    with pytest.raises(Refused, match="no known outcome"):
        abandon_all(scene.process())
    scene.finish()


@pytest.mark.parametrize("refusals", [1, 2, 4])
def test_refused_swaps_are_tried_again(scene: Scene, refusals: int) -> None:
    process = scene.process(swaps=["refused"] * refusals)
    assert process.run().status == "done"
    scene.check_finished()


def test_commit_retry_num_retries_bounds_the_attempts(swapped: Scene) -> None:
    """The default is 4 retries: the fifth refusal is the last."""
    process = swapped.process(swaps=["refused"] * 5)
    with pytest.raises(CommitConflict) as caught:
        process.run()
    assert caught.value.exit_code == 12
    assert sum(effect.startswith("put") and ".metadata.json" in effect for effect in process.effects) == 5
    assert journal_files(swapped) == []
    of_refused_swaps = [path for path in foreign_files_deleted(swapped) if path.endswith(".metadata.json")]
    assert foreign_files_deleted(swapped) == of_refused_swaps
    swapped.finish()


def test_no_retries_means_one_attempt() -> None:
    scene = a_scene(properties={"commit.retry.num-retries": "0"})
    process = scene.process(swaps=["refused"])
    with pytest.raises(CommitConflict, match="1 times"):
        process.run()
    assert journal_files(scene) == []


def test_waits_between_attempts_double_and_stay_within_the_total(scene: Scene) -> None:
    waits: list[float] = []
    process = scene.process(swaps=["refused"] * 4)
    process.runtime.sleep_ms = waits.append
    process.run()
    assert len(waits) == 4
    for number, wait_ms in enumerate(waits):
        assert 2**number <= wait_ms <= 1.1 * 2**number


def test_catalog_that_is_down_before_anything_was_sent_is_no_unknown_outcome(scene: Scene) -> None:
    process = scene.process(swaps=["down"])
    with pytest.raises(BackendUnavailable) as caught:
        process.run()
    assert caught.value.exit_code == 16
    assert scene.world.deleted == []
    scene.finish()


def test_a_storage_that_fails_after_the_commit_is_told_of_with_the_state_and_the_operation(
    scene: Scene,
) -> None:
    before = scene.world.pointer

    def full(path: str) -> str | None:
        return "no room" if scene.world.pointer != before and "/ops/" in path else None

    process = scene.process(fail_put=full)
    with pytest.raises(BackendUnavailable) as caught:
        process.run()
    after = scene.world.pointer
    assert caught.value.state == f"The commit is done, by {after}; nothing was deleted after it."
    assert caught.value.next_step.startswith("`resume` goes on with operation ")
    scene.finish()


def test_a_storage_that_fails_after_a_commit_without_an_answer_leaves_it_unknown(scene: Scene) -> None:
    def full(path: str) -> str | None:
        sent = any(effect.startswith("swap ") for effect in process.effects)
        return "no room" if sent and "/ops/" in path else None

    process = scene.process(swaps=["lost"], fail_put=full)
    with pytest.raises(CommitStateUnknown) as caught:
        process.run()
    assert caught.value.exit_code == 13
    assert "nor can that be recorded: Cannot write " in caught.value.message
    assert scene.world.deleted == []
    scene.finish()


# -- deletions -------------------------------------------------------------------------------------------------


def denied(path: str) -> str | None:
    return "AccessDenied" if path.endswith(("/e.parquet", "/snap-1.avro")) else None


def test_denied_deletions_are_reported_and_finished_by_resume(scene: Scene) -> None:
    process = scene.process(fail_delete=denied)
    report = process.run()
    assert report.status == "partial"
    assert {failure["path"].rpartition("/")[2] for failure in report.failed_deletes} == {
        "e.parquet",
        "snap-1.avro",
    }
    assert DeletesFailed.exit_code == 14
    assert {path.rpartition("/")[2] for path in scene.leftovers() - {*journal_files(scene)}} == {
        "e.parquet",
        "snap-1.avro",
    }
    again = scene.process(fail_delete=denied).resume()
    assert [each.status for each in again] == ["partial"]
    (report,) = scene.process().resume()
    assert report.status == "done"
    assert report.failed_deletes == ()
    scene.check_finished()


@few_or_many(6, many=1_000)
def test_crash_anywhere_while_denied_deletions_are_retried(scene: Scene, budget: int) -> None:
    scene.process(fail_delete=denied).run()
    trial = scene.copy().process()
    trial.resume()
    for number in some(range(len(trial.effects)), budget):
        here = scene.copy()
        process = here.process(before={number: crash})
        assert process.dies(process.resume)
        here.finish()


def test_file_that_is_gone_already_counts_as_deleted(scene: Scene) -> None:
    process = scene.process()
    planned = process.plan()
    del scene.world.files[scene.writer.data_path("e")]
    report = apply(planned, process.table, VERBS[planned.plan.verb], process.runtime)
    assert report.status == "done"
    assert report.counts["deleted_data_files_count"] == 3
    scene.check_finished()


def test_file_that_another_writer_takes_up_again_before_the_sweep_stays(scene: Scene) -> None:
    """Reached by nothing when it was planned; added again by a commit that lands after ours."""
    (swap,) = (number for number, effect in enumerate(scene.undisturbed()) if effect.startswith("swap "))
    for number in range(swap, swap + 3):
        here = scene.copy()
        here.process(before={number: partial(here.foreign_append, again="e")}).run()
        assert here.writer.data_path("e") in here.check()


# -- full disks and other refusals to write --------------------------------------------------------------------


@few_or_many(5, many=1_000)
@pytest.mark.parametrize("catalog", [True, False])
def test_full_disk_at_any_write_leaves_the_table_whole(*, catalog: bool, budget: int) -> None:
    scene = a_scene(catalog=catalog)
    puts = [effect.removeprefix("put ") for effect in scene.undisturbed() if effect.startswith("put ")]
    for path in some(puts, budget):
        here = scene.copy()

        def full(key: str, path: str = path) -> str | None:
            return "no space left on device" if key == path else None

        if "/history/" in path:  # all is done by then
            assert here.process(fail_put=full).run().status == "done"
            assert path not in here.world.files
            here.process().run()
            assert path in here.world.files
        else:
            with pytest.raises((BackendUnavailable, DeletesFailed)):
                here.process(fail_put=full).run()
        here.check()
        here.finish()


# -- stops and limits ------------------------------------------------------------------------------------------


def test_signal_at_any_moment_stops_at_a_point_from_which_resume_goes_on(scene: Scene) -> None:
    stopped = 0
    for number, _ in enumerate(scene.undisturbed()):
        here = scene.copy()
        process = here.process()
        process.storage.script = Script(before={number: partial(process.stop.append, True)})
        try:
            process.run()
        except Interrupted:
            stopped += 1
        here.check()
        here.finish()
    assert stopped > 10
    assert Interrupted.exit_code == 14


def test_limit_on_deletions_is_kept_exactly_until_nothing_is_left(scene: Scene) -> None:
    statuses = []
    process = Expiry(world=scene.world, limits={"limit_deletes": 3})
    statuses.append(process.run().status)
    while process.table.workspace.open_operations():
        before = len(foreign_files_deleted(scene))
        process = Expiry(world=scene.world, limits={"limit_deletes": 3})
        statuses += [report.status for report in process.resume()]
        assert len(foreign_files_deleted(scene)) - before <= 3
    assert statuses == ["partial"] * 4 + ["done"]
    scene.check_finished()


def test_deadline_in_the_sweep_leaves_the_rest_for_resume(scene: Scene) -> None:
    later = {8: lambda: setattr(scene.world, "now_ms", scene.world.now_ms + HOUR_MS)}
    limits = {"deadline_ms": scene.world.now_ms + 1}
    process = Expiry(world=scene.world, script=Script(before=later), limits=limits)
    assert process.run().status == "partial"
    assert len(foreign_files_deleted(scene)) == 4
    scene.finish()


def test_files_go_bottom_up_and_only_those_of_one_kind_at_once(scene: Scene) -> None:
    process = Expiry(world=scene.world, limits={"sweep_batch": 100})
    assert process.run().status == "done"
    assert process.shown is not None
    assert process.shown.removals is not None
    rows = process.shown.removals.rows.select(["path", "kind"]).to_pylist()
    kinds = {row["path"]: row["kind"] for row in rows}
    asked = [[kinds[path] for path in paths if path in kinds] for paths in process.storage.deletions]
    swept = [set(some) for some in asked if some]
    assert swept == [{"data_file"}, {"statistics_file"}, {"manifest_file"}, {"manifest_list"}]


@pytest.mark.parametrize(("quick_ms", "sizes"), [(0, [4, 4, 4, 2]), (1, [4, 8, 2])])
def test_batches_grow_while_they_are_quick(scene: Scene, quick_ms: int, sizes: list[int]) -> None:
    process = Expiry(world=scene.world, limits={"quick_batch_ms": quick_ms})
    assert process.run().status == "done"
    content = [effect for effect in process.effects if "/_iceberg_cli/" not in effect or "put " in effect]
    swept = [len([*some]) for deletes, some in groupby(content, lambda e: e.startswith("delete ")) if deletes]
    assert swept == sizes


# -- grace -----------------------------------------------------------------------------------------------------


def with_grace(scene: Scene, **values: object) -> Expiry:
    process = Expiry(world=scene.world, **values)  # type: ignore[arg-type]
    process.policy = replace(process.policy, grace=DAY_MS)
    return process


def test_files_wait_for_their_grace_and_go_after_it(scene: Scene) -> None:
    process = with_grace(scene)
    assert process.run().status == "waiting"
    assert foreign_files_deleted(scene) == []
    scene.world.now_ms += DAY_MS - 1
    assert [report.status for report in scene.process().resume()] == ["waiting"]
    assert scene.process().run().status == "nothing_to_do"
    assert foreign_files_deleted(scene) == []
    scene.world.now_ms += 1
    assert scene.process().run().status == "nothing_to_do"
    scene.check_finished()


def test_file_taken_up_again_in_the_grace_stays(scene: Scene) -> None:
    with_grace(scene).run()
    scene.foreign_append(again="e")
    scene.world.now_ms += DAY_MS
    (report,) = scene.process().resume()
    assert report.kept_again == 1
    scene.check_finished()


@few_or_many(6, many=1_000)
def test_crash_around_any_effect_of_an_expiry_with_grace(scene: Scene, budget: int) -> None:
    trial = scene.copy()
    process = with_grace(trial)
    process.run()
    for number in some(range(len(process.effects)), budget):
        here = scene.copy()
        first = with_grace(here, script=Script(before={number: crash}))
        assert first.dies(first.run)
        here.check()
        here.process().resume()
        here.check()
        here.world.now_ms += 2 * DAY_MS
        here.finish()


# -- sweeps in the order of commits ----------------------------------------------------------------------------

FIRST = replace(POLICY, older_than=NOW_MS - 100 * DAY_MS, snapshot_ids=(1,), grace=DAY_MS)


@pytest.fixture(params=["swapped", "served"])
def shared(request: pytest.FixtureRequest) -> Scene:
    """Snapshot 1 needs a manifest and files that go once 2 expires too; main is 3."""
    world = World(files=dict(CANARIES), served=request.param == "served")
    writer = TableWriter(storage=SimStorage(world, Script()), location=LOCATION)
    writer.commit(1, age_ms=10 * DAY_MS, add=["a", "b"])
    writer.commit(2, age_ms=9 * DAY_MS, add=["c"])
    writer.commit(3, age_ms=HOUR_MS, add=["d"], remove=["a", "b", "c"])
    world.pointer = writer.publish(None)
    return Scene(world=world, writer=writer, refs={"main": 3}, kept={3})


def files_of(scene: Scene, metadata_location: str, snapshot_id: int) -> set[str]:
    """The files that one snapshot of a metadata file needs."""
    storage = SimStorage(scene.world, Script())
    snapshot = snapshot_of(json.loads(scene.world.files[metadata_location]), snapshot_id)
    manifests = manifests_of(storage, snapshot)
    data = {
        entry["file_path"]
        for manifest in manifests
        for entry in entries_of(storage, manifest)
        if entry["status"] != 2
    }
    return {snapshot["manifest-list"], *(each["manifest_path"] for each in manifests), *data}


def expire_first(scene: Scene, **values: Any) -> tuple[str, set[str]]:
    """Expire snapshot 1 with a grace of a day; the operation's id, and what would be needed to take it back."""
    needed = files_of(scene, scene.current, 1)
    process = Expiry(world=scene.world, policy=FIRST, **values)
    assert process.run().status == "waiting"
    (operation_id,) = process.table.workspace.open_operations()
    return operation_id, needed


def test_what_an_operation_took_can_be_put_back_until_its_grace_is_over(shared: Scene) -> None:
    operation_id, needed = expire_first(shared)
    report = shared.process().run()
    assert report.status == "waiting"
    (note,) = (note for note in report.notes if "wait for operation" in note)
    assert operation_id in note
    assert "--abandon` frees them" in note
    assert needed <= set(shared.world.files)
    listed = operations(shared.process().table, now_ms=shared.world.now_ms)
    assert {(each.state, each.waits_for) for each in listed} == {("waiting", None), ("waiting", operation_id)}
    assert len({each.until_ms for each in listed}) == 1
    shared.world.now_ms += DAY_MS - 1
    records = journal_files(shared)
    assert shared.process().run().status == "nothing_to_do"
    assert journal_files(shared) == records
    assert needed <= set(shared.world.files)
    shared.world.now_ms += 1
    assert shared.process().run().status == "nothing_to_do"
    shared.check_finished()


def test_an_abandoned_operation_is_waited_for_no_more(shared: Scene) -> None:
    operation_id, needed = expire_first(shared)
    assert shared.process().run().status == "waiting"
    process = shared.process()
    abandon(process.table, operation_id, process.runtime)
    assert [report.status for report in shared.process().resume()] == ["done"]
    assert journal_files(shared) == []
    assert not needed <= set(shared.world.files)
    shared.check()


def test_an_operation_with_a_longer_grace_of_its_own_says_so(shared: Scene) -> None:
    expire_first(shared)
    shared.world.now_ms += HOUR_MS
    with_grace(shared).run()
    listed = operations(shared.process().table, now_ms=shared.world.now_ms)
    assert [each.waits_for for each in listed] == [None, None]
    assert len({each.until_ms for each in listed}) == 2
    shared.world.now_ms += DAY_MS
    shared.finish()


def test_each_day_s_operation_goes_after_the_one_before_it(shared: Scene) -> None:
    """A grace of two days, and a run on each: no operation waits for a later one."""
    policy = replace(FIRST, grace=2 * DAY_MS)
    assert Expiry(world=shared.world, policy=policy).run().status == "waiting"
    shared.world.now_ms += DAY_MS
    later = replace(POLICY, grace=2 * DAY_MS)
    assert Expiry(world=shared.world, policy=later).run().status == "waiting"
    shared.world.now_ms += DAY_MS
    assert sorted(report.status for report in shared.process().resume()) == ["done", "waiting"]
    shared.world.now_ms += DAY_MS
    shared.finish()


def test_an_operation_that_deletes_nothing_waits_for_none(shared: Scene) -> None:
    expire_first(shared)
    assert Expiry(world=shared.world, policy=replace(POLICY, cleanup="none")).run().status == "done"


def test_a_commit_with_a_grace_and_no_known_outcome_is_waited_for(shared: Scene) -> None:
    """Its process died between the swap and the record of its outcome."""
    needed = files_of(shared, shared.current, 1)
    trial = Expiry(world=shared.copy().world, policy=FIRST)
    trial.run()
    swap = next(number for number, effect in enumerate(trial.effects) if effect.startswith("swap "))
    first = Expiry(world=shared.world, policy=FIRST, script=Script(after={swap: crash}))
    assert first.dies(first.run)
    with suppress(Refused):
        assert shared.process().run().status == "waiting"
    assert needed <= set(shared.world.files)


def before_the_outcome(scene: Scene) -> Expiry:
    """An expiry without a grace whose process stops between its request and the record of what came of it."""
    policy = replace(FIRST, grace=0)
    trial = Expiry(world=scene.copy().world, policy=policy)
    trial.run()
    swap = next(number for number, effect in enumerate(trial.effects) if effect.startswith("swap "))
    return Expiry(world=scene.world, policy=policy, script=Script(after={swap: crash}))


def test_a_request_without_a_recorded_outcome_forbids_deletions_where_it_may_still_arrive(
    shared: Scene,
) -> None:
    first = before_the_outcome(shared)
    assert first.dies(first.run)
    (operation_id,) = first.table.workspace.open_operations()
    files, pointer = dict(shared.world.files), shared.world.pointer
    if shared.world.served:
        with pytest.raises(Refused, match=f"became of the commit of operation {operation_id} is not known"):
            shared.process().run(settle=False)
        assert (shared.world.files, shared.world.pointer) == (files, pointer)
    else:  # the file of the lost attempt is known, and its swap is dead once the table moves
        assert shared.process().run(settle=False).status == "done"
    shared.finish()


def test_a_request_without_a_recorded_outcome_forbids_deletions_where_catalogs_take_it_late(
    shared: Scene,
) -> None:
    """As a Hive Metastore does that expects nothing of the table."""
    first = before_the_outcome(shared)
    assert first.dies(first.run)
    files, pointer = dict(shared.world.files), shared.world.pointer
    process = shared.process()
    process.table.committer.takes_late_requests = lambda: True  # type: ignore[attr-defined]
    with pytest.raises(Refused, match="it may turn out that all of them are needed"):
        process.run(settle=False)
    assert (shared.world.files, shared.world.pointer) == (files, pointer)
    shared.finish()


def test_a_journal_that_cannot_be_read_forbids_deletions(shared: Scene) -> None:
    operation_id, _ = expire_first(shared)
    record = next(path for path in journal_files(shared) if path.endswith(".json"))
    shared.world.files[record] = b"{"
    files, pointer = dict(shared.world.files), shared.world.pointer
    with pytest.raises(Refused, match=f"whether operation {operation_id} keeps them is not known"):
        shared.process().run()
    assert (shared.world.files, shared.world.pointer) == (files, pointer)


@few_or_many(6, many=1_000)
def test_crash_around_any_effect_of_an_expiry_that_waits_for_another(shared: Scene, budget: int) -> None:
    _, needed = expire_first(shared)
    trial = shared.copy()
    process = trial.process()
    process.run()
    for number in some(range(len(process.effects)), budget):
        here = shared.copy()
        first = here.process(before={number: crash})
        assert first.dies(first.run)
        assert needed <= set(here.world.files)
        here.process().resume()
        here.process().run()
        assert needed <= set(here.world.files)
        here.world.now_ms += DAY_MS
        here.finish()


# -- abandon ---------------------------------------------------------------------------------------------------


def test_abandoned_operation_leaves_its_files_and_no_journal(scene: Scene) -> None:
    with_grace(scene).run()
    assert abandon_all(scene.process()) == 1
    assert foreign_files_deleted(scene) == []
    assert journal_files(scene) == []
    assert len(scene.leftovers()) == 14


@few_or_many(6, many=1_000)
def test_crash_around_any_effect_of_abandon(scene: Scene, budget: int) -> None:
    with_grace(scene).run()
    process = scene.copy().process()
    assert abandon_all(process) == 1
    for number in some(range(len(process.effects)), budget):
        here = scene.copy()
        first = here.process(before={number: crash})
        assert first.dies(partial(abandon_all, first))
        abandon_all(here.process())
        assert foreign_files_deleted(here) == []
        assert journal_files(here) == []


def test_hint_file_that_was_half_written_when_the_process_died_is_cleaned_up() -> None:
    """The commit is in; the file that was about to become `version-hint.text` is still under its other name."""
    scene = a_scene(catalog=False)
    link = next(
        number for number, effect in enumerate(scene.undisturbed()) if effect.endswith("/v2.metadata.json")
    )
    process = scene.process(after={link: crash})
    assert process.dies(process.run)
    (operation_id,) = process.table.workspace.open_operations()
    operation = scene.process().table.workspace.journal(operation_id).operation()
    assert operation is not None
    intent = operation.steps["expire"].intent
    assert intent is not None
    (temporary,) = intent.scratch
    scene.world.files[temporary] = b"2"
    scene.finish()
