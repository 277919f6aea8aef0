"""Operations of many commits whose files are gone, whose table is another one, or whose commits are always refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from iceberg_cli.errors import BackendUnavailable, CommitConflict, CorruptFile, Refused, RequestTooLarge
from iceberg_cli.operation.groups.creator import Creator, Written, remove_leftovers
from iceberg_cli.operation.groups.results import groups_folder_of
from iceberg_cli.operation.operation_state import GroupStates
from iceberg_cli.operation.outcomes import Conflict
from iceberg_cli.testing.crash.world import DAY_MS, Crash, Script, SimStorage, World, crash
from tests.operation.groups.numbers_table import (
    LOCATION,
    NumbersWorkspace,
    Process,
    RewriteVerb,
    make_table,
    numbers_of,
    publish,
    rewrite,
    state_of,
    unneeded,
)
from tests.operation.groups.test_run import FILES, NUMBERS, a_world, at, records

AT_THE_END = 1_000_000_000  # bytes that no table here has: all is committed at once
LISTS, SWAP = "put /lake/numbers/lists/", "put /lake/numbers/versions/"


def paths(world: World, part: str) -> list[str]:
    return [path for path in sorted(world.files) if part in path]


def stopped(world: World, effect: str, *, every_bytes: int = AT_THE_END) -> None:
    """A process that ends before an effect, a day ago."""
    process = Process(world=world, verb=RewriteVerb(every_bytes=every_bytes))
    at(process, effect, crash)
    with pytest.raises(Crash):
        process.run()
    world.now_ms += DAY_MS


def journal_puts(process: Process) -> int:
    names = [name for name in process.storage.trace if name.startswith("put") and "/ops/" in name]
    return sum(name[-11:-5].isdigit() for name in names)


# -- new files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rewrites", [True, False])
def test_a_commit_that_was_never_answered_is_not_sent_again_where_a_new_file_is_gone(rewrites: bool) -> None:
    """Another tool has removed what nothing referenced: the data file, and not the younger manifest."""
    world = a_world()
    stopped(world, SWAP)
    del world.files[paths(world, "/data/00000-")[0]]
    with suppress(CommitConflict):
        Process(world=world).resume(rewrites=rewrites)
    assert numbers_of(world) == NUMBERS


@pytest.mark.parametrize("minutes", [2, 120])
def test_a_process_that_stood_still_before_its_commit_names_no_file_that_went_meanwhile(minutes: int) -> None:
    world = a_world()
    process = Process(world=world, verb=RewriteVerb(every_bytes=AT_THE_END))

    def stand_still() -> None:
        world.now_ms += minutes * 60_000
        del world.files[paths(world, "/data/00000-")[0]]

    at(process, SWAP, stand_still)
    report = process.run()
    assert (report.status, report.counts["rewritten_files_count"]) == ("partial", 6)
    assert report.counts["conflicted_groups_count"] == 1
    assert numbers_of(world) == NUMBERS


def test_a_process_that_stood_still_before_its_commit_finds_out_that_others_went_on() -> None:
    """Who went on could not tell yet what came of the commit, or else would have sent it."""
    world = a_world()
    process = Process(world=world, verb=RewriteVerb(every_bytes=AT_THE_END))

    def stand_still() -> None:
        world.now_ms += 11 * 60_000
        other = Process(world=world)
        at(other, SWAP, crash)
        with pytest.raises(Crash):
            other.resume(rewrites=False)

    at(process, SWAP, stand_still)
    with pytest.raises(Refused, match="another process has taken it over"):
        process.run()
    assert state_of(world)["commits"] == []
    assert numbers_of(world) == NUMBERS


def test_a_commit_is_not_sent_once_others_may_take_the_process_for_dead() -> None:
    world = a_world()
    silent: list[bool] = []

    def fail_put(path: str) -> str | None:
        return "no answer" if silent and path.endswith("/alive") else None

    process = Process(world=world, script=Script(fail_put=fail_put), verb=RewriteVerb(every_bytes=AT_THE_END))

    def fall_silent() -> None:
        silent.append(True)
        world.now_ms += 6 * 60_000

    at(process, SWAP, fall_silent)
    with pytest.raises(BackendUnavailable, match="no sign of life"):
        process.run()
    assert state_of(world)["commits"] == []
    world.now_ms += DAY_MS
    (report,) = Process(world=world).resume(rewrites=False)
    assert (report.status, report.counts["rewritten_files_count"]) == ("done", 8)
    assert numbers_of(world) == NUMBERS


# -- what is beside the journal --------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["gone", "changed", "another"])
def test_a_result_that_cannot_be_read_drops_its_group_and_no_other_one(damage: str) -> None:
    world = a_world()
    stopped(world, LISTS)
    first, second, *_ = paths(world, "/done/")
    if damage == "gone":
        del world.files[first]
    else:
        world.files[first] = b"{}" if damage == "changed" else world.files[second]
    process = Process(world=world)
    (report,) = process.resume(rewrites=False)
    assert (report.status, report.counts["rewritten_files_count"]) == ("partial", 6)
    assert report.counts["conflicted_groups_count"] == 1
    assert process.table.workspace.open_operations() == []
    assert numbers_of(world) == NUMBERS
    assert (unneeded(world), world.leaked_uploads) == ([], {})


def test_results_are_read_once_a_commit_however_often_it_is_tried() -> None:
    world = a_world()
    read: list[str] = []
    process = Process(world=world, verb=RewriteVerb(every_bytes=AT_THE_END))
    whole = process.storage.read

    def watched(path: str, span: tuple[int, int] | None = None) -> bytes:
        read.append(path)
        return whole(path, span)

    process.storage.read = watched  # type: ignore[method-assign]
    process.table.refused = Conflict(reason="the table has moved")
    with pytest.raises(CommitConflict, match="4 times"):
        process.run()
    assert len([path for path in read if "/done/" in path]) == 4


@pytest.mark.parametrize(
    "name", [".iceberg-cli-3f2b8c1e-0000-4000-8000-000000000000.tmp", "README", "3-note.txt"]
)
def test_a_file_of_no_try_beside_the_journal_stops_nothing_and_goes_with_the_others(name: str) -> None:
    world = a_world()
    stopped(world, LISTS)
    world.write(f"{paths(world, '/done/')[0].rpartition('/')[0]}/{name}", b"")
    Process(world=world).resume(rewrites=True)
    assert numbers_of(world) == NUMBERS
    assert (unneeded(world), world.leaked_uploads) == ([], {})


def test_two_processes_clean_up_at_once() -> None:
    """One that finds out that it was taken over removes what is its own while the other one closes."""
    world = a_world()
    stopped(world, "/done/")
    (folder,) = {path.rpartition("/begun/")[0] for path in paths(world, "/begun/")}
    storage = SimStorage(world, Script())
    whole = storage.read
    other: list[Callable[[], object]] = [lambda: Process(world=world).resume(rewrites=False)]

    def watched(path: str, span: tuple[int, int] | None = None) -> bytes:
        if other:
            other.pop()()
        return whole(path, span)

    storage.read = watched  # type: ignore[method-assign]
    workspace = NumbersWorkspace(storage=storage)
    journal = workspace.journal(folder.rpartition("/")[2])
    assert folder == groups_folder_of(journal)
    remove_leftovers(workspace, journal, GroupStates())
    assert (unneeded(world), world.leaked_uploads) == ([], {})


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_plan_whose_groups_cannot_be_read_is_named_and_only_abandoned(damage: str) -> None:
    world = a_world()
    stopped(world, LISTS)
    (inputs,) = paths(world, "/inputs-")
    if damage == "gone":
        del world.files[inputs]
    else:
        world.files[inputs] = b"?"
    with pytest.raises(CorruptFile, match="inputs-"):
        Process(world=world).resume(rewrites=True)
    process = Process(world=world)
    process.abandon()
    assert process.table.workspace.open_operations() == []
    assert numbers_of(world) == NUMBERS
    assert (unneeded(world), world.leaked_uploads) == ([], {})


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every_bytes", [1, AT_THE_END])
@pytest.mark.parametrize("too_large", [False, True])
def test_commits_that_are_refused_for_good_end_the_operation(too_large: bool, every_bytes: int) -> None:
    world = a_world()
    process = Process(world=world, verb=RewriteVerb(every_bytes=every_bytes))
    process.table.refused = Conflict(reason="413", for_good=True, too_large=too_large)
    with pytest.raises(RequestTooLarge if too_large else Refused, match=r"Cannot commit to numbers: 413$"):
        process.run()
    assert process.table.workspace.open_operations() == []
    assert numbers_of(world) == NUMBERS
    assert (unneeded(world), world.leaked_uploads) == ([], {})


def test_where_others_commit_always_the_tries_become_rare() -> None:
    world = World(dated=True)
    make_table(world, {f"f{number:03}": [number] for number in range(400)})
    process = Process(world=world)
    process.table.refused = Conflict(reason="the table has moved")

    def later() -> None:
        world.now_ms += 60_000

    at(process, "/done/", later, times=200)
    with pytest.raises(CommitConflict):
        process.run()
    # After 0, 1, 3, 7, 15, 31, 63 and 127 of 200 minutes, and at the end: each of four attempts, of six records.
    assert len(records(world, "commit-intent")) == 4 * 9
    assert journal_puts(process) <= 300


def test_a_thousand_groups_whose_files_others_took_make_one_record() -> None:
    world = World(dated=True)
    make_table(world, {f"f{number:04}": [number] for number in range(2_000)})
    process = Process(world=world, verb=RewriteVerb(every_bytes=AT_THE_END))
    process.table.before_swap = [lambda: publish(world, [])]
    with pytest.raises(CommitConflict):
        process.run()
    assert journal_puts(process) <= 20
    assert (unneeded(world), world.leaked_uploads) == ([], {})


def test_a_thousand_groups_whose_files_are_broken_make_one_record() -> None:
    world = World(dated=True)
    make_table(world, {f"f{number:04}": [number] for number in range(2_000)})
    for number in range(0, 2_000, 2):
        world.files[f"{LOCATION}/data/f{number:04}"] = b"broken\n"
    process = Process(world=world)
    report = process.run()
    assert len(report.failed_groups) == 1_000
    assert journal_puts(process) <= 20


def test_another_table_in_the_place_of_this_one_ends_it_and_what_it_wrote_goes() -> None:
    world = a_world()
    process = Process(world=world)

    def replaced() -> None:
        process.table.uuid = "another"

    at(process, SWAP, replaced)
    with pytest.raises(Refused, match="and is another now"):
        process.run()
    assert process.table.workspace.open_operations() == []
    assert len(state_of(world)["commits"]) == 1
    assert numbers_of(world) == NUMBERS
    assert (unneeded(world), world.leaked_uploads) == ([], {})


def test_groups_whose_late_commit_turns_out_to_have_happened_are_no_conflicts() -> None:
    world = a_world()
    process = Process(world=world, verb=RewriteVerb(every_bytes=AT_THE_END))
    process.table.refused = Conflict(reason="the table has moved", may_arrive=True)
    append = process.storage.put_if_absent

    def stop_before_the_outcome(path: str, data: bytes) -> None:
        if b'"commit-outcome"' in data:
            raise Crash
        append(path, data)

    process.storage.put_if_absent = stop_before_the_outcome  # type: ignore[method-assign]
    with pytest.raises(Crash):
        process.run()
    assert len(records(world, "groups-dropped")) == 1
    (world.pointer,) = (path for path in paths(world, "/versions/") if "other" not in path)
    world.now_ms += DAY_MS
    (report,) = Process(world=world).resume(rewrites=False)
    assert (report.status, report.counts["rewritten_files_count"]) == ("done", 8)
    assert report.counts["conflicted_groups_count"] == 0
    assert numbers_of(world) == NUMBERS


# -- failures --------------------------------------------------------------------------------------------------------


def test_a_broken_file_that_an_earlier_run_met_is_told_by_the_one_that_goes_on() -> None:
    world = a_world()
    world.files["/lake/numbers/data/f4"] = b"broken\n"
    stopped(world, LISTS)
    (report,) = Process(world=world).resume(rewrites=True)
    reason = "Cannot read /lake/numbers/data/f4: it is broken"
    assert report.failed_groups == ({"group": "2", "partition": "", "reason": reason},)
    assert (report.counts["failed_groups_count"], report.counts["conflicted_groups_count"]) == (1, 0)
    assert (report.status, report.exit_code) == ("partial", 15)


def test_a_bug_of_one_task_loses_nothing_that_others_have_done() -> None:
    world = a_world()
    begun: list[Any] = []

    def broken(creator: Creator, inputs: Sequence[str]) -> Written:
        begun.append(inputs)
        if len(begun) == 3:
            raise MemoryError
        return rewrite(creator, inputs)

    process = Process(world=world, verb=RewriteVerb(every_bytes=AT_THE_END, rewrite=broken))
    with pytest.raises(MemoryError):
        process.run()
    assert [len(each["numbers"]) for each in records(world, "groups-done")] == [2]
    world.now_ms += DAY_MS
    (report,) = Process(world=world).resume(rewrites=False)
    assert report.counts["rewritten_files_count"] == 4
    assert numbers_of(world) == Counter(number for numbers in FILES.values() for number in numbers)
    assert (unneeded(world), world.leaked_uploads) == ([], {})
