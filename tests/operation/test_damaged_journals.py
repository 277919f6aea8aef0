"""Damaged, strange and contested journals: nothing is deleted on their word."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import socket
from collections.abc import Iterator
from functools import partial

import pytest

from iceberg_cli.errors import IcebergCliError, Refused, TakenOver
from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.operation.apply import apply, resume
from iceberg_cli.testing.crash.world import crash
from tests.budget import few_or_many, some
from tests.crash.scenes import Scene, a_scene, few_rows_in_a_part, journal_files
from tests.journals import append


@pytest.fixture(scope="module", params=["one file of removals", "removals in parts"])
def interrupted(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """An expiry that was stopped in its second batch of deletions."""
    with few_rows_in_a_part() if request.param.endswith("parts") else contextlib.nullcontext():
        scene = a_scene()
        deletions = [n for n, effect in enumerate(scene.undisturbed()) if effect.startswith("delete ")]
        process = scene.process(before={deletions[5]: crash})
        assert process.dies(process.run)
        scene.world.deleted.clear()
        yield scene


def records_of(scene: Scene) -> list[str]:
    """The records of the journal, first to last."""
    return [path for path in journal_files(scene) if path.rpartition("/")[2][:6].isdigit()]


def refuses_and_deletes_nothing(scene: Scene) -> None:
    with pytest.raises(IcebergCliError) as caught:
        scene.process().resume()
    assert caught.value.exit_code in (11, 15)
    assert scene.world.deleted == []
    scene.check()


def test_every_file_of_a_journal_cut_at_any_length_is_refused(interrupted: Scene) -> None:
    for path in journal_files(interrupted):
        data = interrupted.world.files[path]
        for length in {0, 1, len(data) // 2, len(data) - 2, len(data) - 1}:
            here = interrupted.copy()
            here.world.files[path] = data[:length]
            refuses_and_deletes_nothing(here)


def test_every_file_of_a_journal_with_one_bit_flipped_is_refused(interrupted: Scene) -> None:
    generator = random.Random(3)
    for path in journal_files(interrupted):
        data = interrupted.world.files[path]
        for place in generator.sample(range(len(data)), 8):
            here = interrupted.copy()
            flipped = data[place] ^ (1 << generator.randrange(8))
            here.world.files[path] = data[:place] + bytes([flipped]) + data[place + 1 :]
            with pytest.raises(IcebergCliError):
                here.process().resume()
            assert here.world.deleted == [], path
            here.check()


def test_record_missing_in_the_middle_is_refused(interrupted: Scene) -> None:
    for path in records_of(interrupted)[:-1]:
        here = interrupted.copy()
        del here.world.files[path]
        refuses_and_deletes_nothing(here)


def test_plan_or_removals_missing_is_refused(interrupted: Scene) -> None:
    for path in {*journal_files(interrupted)} - {*records_of(interrupted)}:
        here = interrupted.copy()
        del here.world.files[path]
        refuses_and_deletes_nothing(here)


def test_journal_without_its_last_records_tells_an_earlier_story_that_is_safe_too(interrupted: Scene) -> None:
    records = records_of(interrupted)
    for count in range(1, len(records)):
        here = interrupted.copy()
        for path in records[count:]:
            del here.world.files[path]
        # As when all is finished; what a lost journal knew of may be left.
        here.process().resume()
        here.process().run()
        here.check()
        assert journal_files(here) == []


def test_exchanged_records_are_refused(interrupted: Scene) -> None:
    records = records_of(interrupted)
    for one, other in itertools.pairwise(records):
        here = interrupted.copy()
        files = here.world.files
        files[one], files[other] = files[other], files[one]
        refuses_and_deletes_nothing(here)


def become_another_table(scene: Scene) -> None:
    document = json.loads(scene.world.files[scene.current])
    document["table-uuid"] = "11111111-1111-1111-1111-111111111111"
    scene.world.files[scene.current] = json.dumps(document).encode()


def test_journal_of_another_table_is_refused(interrupted: Scene) -> None:
    here = interrupted.copy()
    become_another_table(here)
    refuses_and_deletes_nothing(here)


def test_journal_of_a_newer_version_is_refused(interrupted: Scene) -> None:
    here = interrupted.copy()
    first = next(path for path in journal_files(here) if path.endswith("/000000.json"))
    del here.world.files[first]
    folder, _, _ = first.rpartition("/")
    for path in journal_files(here):
        del here.world.files[path]
    process = here.process()
    journal = process.table.workspace.journal(folder.rpartition("/")[2])
    append(journal, "begin", {"version": 2, "whatever": "a newer version has"})
    append(journal, "a kind that is not known here", {})
    refuses_and_deletes_nothing(here)


def test_record_of_an_unknown_kind_is_refused(interrupted: Scene) -> None:
    here = interrupted.copy()
    process = here.process()
    (operation_id,) = process.table.workspace.open_operations()
    append(process.table.workspace.journal(operation_id), "vacuum", {"step": "expire"})
    refuses_and_deletes_nothing(here)


def test_plan_of_another_operation_is_refused(interrupted: Scene) -> None:
    here = interrupted.copy()
    path = next(path for path in journal_files(here) if path.endswith("/plan.json"))
    plan = json.loads(here.world.files[path])
    plan["policy"]["older_than_ms"] += 1
    here.world.files[path] = json.dumps(plan, indent=2).encode()
    refuses_and_deletes_nothing(here)


# -- two processes ---------------------------------------------------------------------------------------------


@few_or_many(10)
@pytest.mark.parametrize("catalog", [True, False])
def test_second_process_that_resumes_at_any_moment_leaves_one_of_them_going_on(
    *, catalog: bool, budget: int
) -> None:
    """Another host resumes an operation that is still running here, before each of its effects."""
    scene = a_scene(catalog=catalog)
    stopped = 0
    for number, effect in some(list(enumerate(scene.undisturbed())), budget):
        here = scene.copy()
        other = here.process()
        first = here.process(before={number: other.resume})
        try:
            first.run()
        except TakenOver:
            stopped += 1
        except (IcebergCliError, FileNotFoundError) as error:
            pytest.fail(f"{effect}: {error!r}")
        here.check()
        here.finish()
    assert stopped > budget // 2 or stopped > 15


@pytest.mark.few(1)
@few_or_many(6)
@pytest.mark.parametrize("catalog", [True, False])
def test_second_process_that_resumes_at_any_moment_and_dies_at_any_moment(
    *, catalog: bool, budget: int
) -> None:
    """It stops in the middle, also of deleting the journal; the first one goes on as if nothing had been."""
    scene = a_scene(catalog=catalog)
    cases = []
    for number in some(range(len(scene.undisturbed())), budget):
        here = scene.copy()
        first = here.process(before={number: crash})
        first.dies(first.run)
        second = here.process()
        second.resume()
        cases += [(number, death) for death in range(len(second.effects))]
    for number, death in some(cases, budget):
        here = scene.copy()
        other = here.process(before={death: crash})
        act = {number: partial(other.dies, other.resume)}
        first = here.process(before=act)
        with contextlib.suppress(TakenOver):
            first.run()
        here.check()
        here.finish()


@pytest.mark.few(1)
def test_two_processes_that_resume_at_once_do_it_once(interrupted: Scene) -> None:
    trial = interrupted.copy().process()
    trial.resume()
    taken_over = 0
    for number, _ in enumerate(trial.effects):
        here = interrupted.copy()
        other = here.process()
        first = here.process(before={number: other.resume})
        try:
            first.resume()
        except TakenOver:
            taken_over += 1
        here.check()
        here.finish()
    assert taken_over > 5


@few_or_many(12)
def test_the_same_expiry_twice_at_once_ends_as_one(budget: int) -> None:
    """The second one starts, and ends, before each effect of the first; it leaves the first's operation alone."""
    scene = a_scene()
    for number in some(range(len(scene.undisturbed())), budget):
        here = scene.copy()
        other = here.process()
        act = {number: partial(other.run, settle=False)}
        first = here.process(before=act)
        assert first.run().status in ("done", "nothing_to_do")
        here.check_finished()


def test_resuming_a_running_operation_of_this_host_is_left_to_its_process() -> None:
    scene = a_scene()
    process = scene.process(before={15: crash})
    process.runtime.host, process.runtime.process_id = socket.gethostname(), os.getppid()
    assert process.dies(process.run)
    before = dict(scene.world.files)
    second = scene.process()
    assert second.run().status == "nothing_to_do"
    assert scene.world.files == before


def test_closed_journal_that_was_half_deleted_is_cleaned_up(interrupted: Scene) -> None:
    trial = interrupted.copy().process()
    trial.resume()
    closing = next(
        n
        for n, effect in enumerate(trial.effects)
        if effect.startswith("delete") and "_iceberg_cli" in effect
    )
    for number in range(closing, len(trial.effects)):
        once = interrupted.copy()
        process = once.process(before={number: crash})
        assert process.dies(process.resume)
        assert [report.status for report in once.process().resume()] == ["nothing_to_do"]
        once.check_finished()


def test_plan_that_was_made_for_another_table_is_refused() -> None:
    scene = a_scene()
    process = scene.process()
    planned = process.plan()
    become_another_table(scene)
    fresh = scene.process()
    with pytest.raises(Refused, match="made for table"):
        apply(planned, fresh.table, VERBS[planned.plan.verb], fresh.runtime)
    assert journal_files(scene) == []


def test_operation_that_does_not_exist_has_nothing_to_do() -> None:
    scene = a_scene()
    process = scene.process()
    report = resume(process.table, "no-such-operation", process.runtime, verbs=VERBS)
    assert report.status == "nothing_to_do"
    assert process.effects == [e for e in process.effects if "no-such-operation" in e]
    scene.check()
