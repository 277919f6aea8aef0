"""The run of an operation of many commits: when it commits, what it drops, and how it ends."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from iceberg_cli.errors import BackendUnavailable, Cancelled, CommitConflict, Interrupted, TakenOver
from iceberg_cli.operation.groups.ports import CommitPace
from iceberg_cli.testing.crash.world import Crash, Script, World, crash
from tests.operation.groups.numbers_table import (
    Process,
    RewriteVerb,
    add_file,
    make_table,
    numbers_of,
    state_of,
    take_file,
    unneeded,
    write_file,
)

FILES = {f"f{number}": range(number * 10, number * 10 + 3 + number) for number in range(8)}
NUMBERS = Counter(number for numbers in FILES.values() for number in numbers)
MINUTE_MS = 60_000


def a_world(files: dict[str, Any] | None = None) -> World:
    world = World(dated=True)
    make_table(world, FILES if files is None else files)
    return world


def at(process: Process, effect: str, act: Callable[[], object], *, times: int = 1) -> None:
    """Have something happen before effects of a name, the first `times` of them."""
    left = [act] * times
    storage, whole = process.storage, process.storage.effect

    def watched(name: str, do: Callable[[], object]) -> None:
        if left and effect in name:
            left.pop()()
        whole(name, do)

    storage.effect = watched  # type: ignore[method-assign]


def records(world: World, kind: str) -> list[dict[str, Any]]:
    """The bodies of the records of a kind, of the operations that are open."""
    found = [
        json.loads(data)
        for path, data in sorted(world.files.items())
        if "/ops/" in path and path.endswith(".json")
    ]
    return [each["body"] for each in found if each.get("kind") == kind]


# -- commits -----------------------------------------------------------------------------------------------------------


def test_groups_that_make_a_tenth_of_the_bytes_are_committed_and_the_last_commit_takes_the_rest() -> None:
    world = a_world()
    report = Process(world=world, verb=RewriteVerb(every_bytes=1, most_commits=2)).run()
    assert [each["groups"] for each in report.commits] == [1, 3]
    assert report.status == "done"
    assert numbers_of(world) == NUMBERS


@pytest.mark.parametrize(
    ("waiting", "elapsed_ms", "commits", "is_due"),
    [
        (99, 60_000, 0, False), (100, 60_000, 0, True), (100, 59_999, 0, False), (1, 600_000, 0, True),
        (1, 599_999, 0, False), (1_000, 60_000, 8, True), (1_000, 600_000, 9, False), (1_000, 600_000, 10, False),
    ],
)  # fmt: skip
def test_a_commit_is_due_by_bytes_or_time_and_the_last_one_is_kept_for_the_end(
    waiting: int, elapsed_ms: int, commits: int, is_due: bool
) -> None:
    pace = CommitPace(every_bytes=None, every_ms=600_000, most_commits=10)
    assert pace.is_due(waiting, elapsed_ms, commits=commits, of_bytes=1_000) is is_due


def test_what_others_add_meanwhile_is_kept_and_costs_a_retry() -> None:
    world = a_world()
    process = Process(world=world)
    process.table.before_swap = [lambda: add_file(world, "new", [777])]
    report = process.run()
    assert report.status == "done"
    assert numbers_of(world) == NUMBERS + Counter([777])
    assert len(state_of(world)["commits"]) == 4
    assert unneeded(world) == []


def test_a_group_whose_file_others_take_is_dropped_and_no_other_one() -> None:
    world = a_world()
    process = Process(world=world, verb=RewriteVerb(every_bytes=1_000_000))
    process.table.before_swap = [lambda: take_file(world, "f2")]
    report = process.run()
    assert report.status == "partial"
    assert report.counts["conflicted_groups_count"] == 1
    assert report.counts["rewritten_files_count"] == 6
    assert numbers_of(world) == NUMBERS - Counter(FILES["f2"])
    assert unneeded(world) == []
    assert process.table.workspace.open_operations() == []


def test_where_no_group_can_be_committed_that_is_a_conflict_and_nothing_is_left() -> None:
    world = a_world({"f0": [1, 2], "f1": [3]})
    process = Process(world=world)
    process.table.before_swap = [lambda: take_file(world, "f1")]
    with pytest.raises(CommitConflict, match=r"/lake/numbers/data/f1 is not in the table any more") as caught:
        process.run()
    assert caught.value.next_step == "The operation is over: `rewrite` plans on what others have committed."
    assert numbers_of(world) == Counter([1, 2])
    assert unneeded(world) == []


def test_where_others_commit_at_each_try_finished_groups_wait_for_a_resume() -> None:
    world = a_world()
    process = Process(world=world, verb=RewriteVerb(every_bytes=1_000_000))
    process.table.before_swap = [
        lambda number=number: add_file(world, f"new{number}", [900 + number]) for number in range(4)
    ]
    with pytest.raises(CommitConflict, match="4 times") as caught:
        process.run()
    (operation_id,) = process.table.workspace.open_operations()
    assert "`resume` commits" in caught.value.next_step
    world.now_ms += 60 * MINUTE_MS
    later = Process(world=world)
    (report,) = later.resume(rewrites=False)
    assert report.operation_id == operation_id
    assert report.status == "done"
    assert report.counts["rewritten_files_count"] == 8
    assert numbers_of(world) == NUMBERS + Counter(range(900, 904))
    assert unneeded(world) == []


def test_a_new_file_that_is_gone_drops_its_group_before_a_commit_names_it() -> None:
    world = a_world()
    process = Process(world=world, verb=RewriteVerb(every_bytes=1_000_000))

    def lose() -> None:
        path = next(path for path in sorted(world.files) if "/data/00000-" in path)
        del world.files[path]

    at(process, "put /lake/numbers/lists/", lose)
    process.table.before_swap = [lambda: add_file(world, "new", [777])]
    report = process.run()
    assert report.status == "partial"
    assert report.counts["conflicted_groups_count"] == 1
    assert numbers_of(world) == NUMBERS + Counter([777])
    assert unneeded(world) == []


# -- failures and stops ------------------------------------------------------------------------------------------------


def test_a_broken_file_fails_its_group_and_no_other_one() -> None:
    world = a_world()
    write_file(world, "f4", [])
    world.files["/lake/numbers/data/f4"] = b"broken\n"
    before = dict(world.files)
    report = Process(world=world).run()
    assert report.status == "partial"
    assert report.failed_groups == (
        {"group": "2", "partition": "", "reason": "Cannot read /lake/numbers/data/f4: it is broken"},
    )
    assert (report.counts["failed_groups_count"], report.counts["conflicted_groups_count"]) == (1, 0)
    assert report.counts["rewritten_files_count"] == 6
    live = state_of(world)["files"]
    assert {"/lake/numbers/data/f4", "/lake/numbers/data/f5"} <= {*live}
    assert [path for path in before if path not in world.files] == []
    assert unneeded(world) == []


def test_a_group_whose_file_is_gone_from_the_table_too_is_no_broken_one() -> None:
    world = a_world()
    process = Process(world=world, verb=RewriteVerb(every_bytes=1_000_000))

    def take() -> None:
        take_file(world, "f2")
        del world.files["/lake/numbers/data/f2"]

    at(process, "/alive", take)
    report = process.run()
    assert (report.status, report.failed_groups) == ("partial", ())
    assert report.counts["conflicted_groups_count"] == 1
    assert numbers_of(world) == NUMBERS - Counter(FILES["f2"])


def test_where_the_storage_fails_no_group_begins_and_what_is_finished_is_committed() -> None:
    world = a_world()
    failing = iter([None] * 6)

    def fail_put(path: str) -> str | None:
        return next(failing, "no space left") if "/data/" in path else None

    process = Process(world=world, script=Script(fail_put=fail_put))
    with pytest.raises(BackendUnavailable, match="no space left") as caught:
        process.run()
    committed = len(state_of(world)["files"])
    assert "of 4 groups" in caught.value.state
    assert committed != len(FILES)
    assert numbers_of(world) == NUMBERS
    assert unneeded(world) == []
    assert process.table.workspace.open_operations() == []


@pytest.mark.parametrize("groups", [0, 1, 3])
def test_a_signal_ends_it_after_the_groups_under_way_and_finished_ones_are_committed(groups: int) -> None:
    world = a_world()
    process = Process(world=world, verb=RewriteVerb(every_bytes=1_000_000))
    if groups:
        at(process, "put /lake/numbers/_iceberg_cli/groups/", lambda: None)
        done: list[str] = []
        whole = process.storage.effect

        def watched(name: str, do: Callable[[], object]) -> None:
            whole(name, do)
            if "/done/" in name and name.startswith("put"):
                done.append(name)
                if len(done) == groups:
                    process.stop.append(True)

        process.storage.effect = watched  # type: ignore[method-assign]
    else:
        at(process, "/alive", lambda: process.stop.append(True))
    with pytest.raises(Interrupted if groups else Cancelled) as caught:
        process.run()
    rewritten = len(FILES) - len(
        {*state_of(world)["files"]} & {f"/lake/numbers/data/{name}" for name in FILES}
    )
    assert rewritten == 2 * groups
    assert caught.value.state.startswith(
        f"Committed: {groups} of 4 groups" if groups else "The table was not"
    )
    assert numbers_of(world) == NUMBERS
    assert unneeded(world) == []
    assert process.table.workspace.open_operations() == []


def test_a_deadline_ends_it_likewise_and_that_is_partial() -> None:
    world = a_world()
    process = Process(world=world, deadline_ms=world.now_ms + 1)

    def later() -> None:
        world.now_ms += 10

    at(process, "/done/", later)
    report = process.run()
    assert report.status == "partial"
    assert report.counts["rewritten_files_count"] == 2
    assert numbers_of(world) == NUMBERS
    assert unneeded(world) == []


# -- signs of life -----------------------------------------------------------------------------------------------------


def test_the_sign_of_life_is_renewed_once_a_minute_and_says_whose_it_is() -> None:
    world = a_world()
    process = Process(world=world)

    def a_while() -> None:
        world.now_ms += 25_000

    at(process, "/data/", a_while, times=20)
    process.run()
    beats = [name for name in process.storage.trace if name.endswith("/alive") and name.startswith("replace")]
    taken_ms = world.now_ms - 1_800_000_000_000
    assert taken_ms >= 200_000
    assert taken_ms // 100_000 <= len(beats) <= taken_ms // MINUTE_MS + 1


def test_who_cannot_give_signs_of_life_begins_no_group_and_commits_nothing() -> None:
    world = a_world()
    silent: list[bool] = []

    def fail_put(path: str) -> str | None:
        return "no answer" if silent and path.endswith("/alive") else None

    process = Process(world=world, script=Script(fail_put=fail_put))

    def falls_silent() -> None:
        silent.append(True)
        world.now_ms += 6 * MINUTE_MS

    at(process, "/done/", falls_silent)
    with pytest.raises(BackendUnavailable, match="no sign of life"):
        process.run()
    assert state_of(world)["commits"] == []
    assert len(records(world, "commit-intent")) == 0
    assert len([name for name in process.storage.trace if "/done/" in name]) == 1


def test_a_clock_that_is_set_back_delays_no_sign_of_life() -> None:
    world = a_world()
    process = Process(world=world)

    def set_back() -> None:
        world.now_ms -= 60 * MINUTE_MS

    at(process, "/done/", set_back)
    process.run()
    beats = [name for name in process.storage.trace if name.endswith("/alive") and name.startswith("replace")]
    assert len(beats) == 2


def test_a_process_that_was_taken_over_does_not_hide_the_sign_of_life_of_who_goes_on() -> None:
    world = a_world()
    process = Process(world=world)
    others: list[str] = []

    def stand_still() -> None:
        world.now_ms += 11 * MINUTE_MS
        other = Process(world=world)
        others.append(other.runtime.host)
        at(other, "/data/", crash)
        with pytest.raises(Crash):
            other.resume(rewrites=True)

    at(process, "/data/", stand_still)
    with pytest.raises(TakenOver):
        process.run()
    (alive,) = (path for path in world.files if path.endswith("/alive"))
    assert [json.loads(world.files[alive])["host"]] == others


def undisturbed() -> list[str]:
    process = Process(world=a_world())
    process.run()
    return process.storage.trace


TRACE = undisturbed()


@pytest.mark.few(60)
@pytest.mark.parametrize("rewrites", [True, False], ids=["going on", "settling"])
@pytest.mark.parametrize("number", range(len(TRACE)))
def test_a_process_that_stood_still_while_another_took_over_appends_nothing(
    number: int, rewrites: bool
) -> None:
    world = a_world()
    taken: list[str] = []

    def take_over() -> None:
        world.now_ms += 11 * MINUTE_MS
        other = Process(world=world)
        other.resume(rewrites=rewrites)
        taken.extend(other.storage.trace)

    still = Process(world=world, script=Script(before={number: take_over}))
    with suppress(TakenOver, CommitConflict, BackendUnavailable):
        still.run()
    assert numbers_of(world) == NUMBERS
    files = state_of(world)["files"]
    assert len({*files}) == len(files)
    assert len(state_of(world)["commits"]) <= 4
    if any("/ops/" in name for name in taken):
        begun = still.storage.trace.index(TRACE[number]) if TRACE[number] in still.storage.trace else number
        puts = [
            name for name in still.storage.trace[begun + 1 :] if "/ops/" in name and name.startswith("put")
        ]
        assert all(path.removeprefix("put ") not in world.files for path in puts)
    left = [path for path in unneeded(world) if "/lists/" not in path]
    assert left == []


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_ten_thousand_groups_of_ten_hours_take_at_most_two_hundred_records() -> None:
    world = World(dated=True)
    make_table(world, {f"f{number:05}": [number] for number in range(4_000)})
    process = Process(world=world, verb=RewriteVerb(every_bytes=None, most_commits=10))  # type: ignore[arg-type]

    def later() -> None:
        world.now_ms += 18_000

    at(process, "/done/", later, times=2_000)
    process.run()
    records = [
        name
        for name in process.storage.trace
        if "/ops/" in name and name.startswith("put") and name[-11:-5].isdigit()
    ]
    assert len(state_of(world)["commits"]) == 10
    assert len(records) <= 200
