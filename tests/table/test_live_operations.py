"""Operations in which a process gives signs of life: others leave them alone, and take over those that are silent."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from iceberg_cli.api import Table
from iceberg_cli.operation.groups.heartbeat import Heartbeat, at_work_here
from iceberg_cli.operation.journal import Journal
from iceberg_cli.operation.records import Begin, GroupsDone, Resume
from iceberg_cli.operation.runtime import process_started
from iceberg_cli.plan.report import RecoveredOperation
from iceberg_cli.storage import FileInfo
from iceberg_cli.table.recovery import OpenOperation, operations, recover_all
from iceberg_cli.testing.crash.catalogs import SimCommitter
from iceberg_cli.testing.crash.engine import OtherEngine
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import ICEBERG_TABLE, NOW_MS, Script, SimStorage, World

OPERATION = "0190a1b2-0000-7000-8000-000000000001"
FOLDER = f"{ICEBERG_TABLE}/_iceberg_cli/ops/{OPERATION}"
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
ELSEWHERE: Mapping[str, Any] = {
    "host": "a host elsewhere",
    "process_id": 7,
    "process_started": "boot/9",
}


def a_begin(process: Mapping[str, Any] = ELSEWHERE) -> Begin:
    return Begin(
        version=2,
        operation="rewrite-data-files",
        table_uuid="9c12d441-03fe-4693-9a96-a0705ddf69c1",
        at_ms=NOW_MS,
        plan_digest="d",
        steps=("rewrite",),
        **process,
    )


def beat(world: World, process: Mapping[str, Any] = ELSEWHERE) -> None:
    """A sign of life of a process."""
    Heartbeat(
        storage=SimStorage(world, Script()),
        folder=FOLDER,
        now_ms=lambda: world.now_ms,
        begin=a_begin(process),
    ).beat()


def a_world(process: Mapping[str, Any] = ELSEWHERE, *, records: int = 0) -> World:
    """A table, and an operation on it in which a process has just given a sign of life."""
    world = World(dated=True)
    OtherEngine(world).create(format_version=2)
    journal = Journal.create(SimStorage(world, Script()), ICEBERG_TABLE, OPERATION)
    journal.append(a_begin(process))
    for number in range(records):
        journal.append(GroupsDone(numbers=(number,), attempts=("1x0",), digests=("d",)))
    beat(world, process)
    return world


def recovered(process: Process, **runtime: Any) -> list[RecoveredOperation]:
    return [
        *recover_all(process.table, replace(process.runtime, **runtime), verbs=process.verbs),
    ]


def listed(world: World, *, now_ms: int | None = None, goes_on: bool = False) -> OpenOperation:
    (found,) = operations(Process(world=world).table, now_ms=now_ms or world.now_ms, goes_on=goes_on)
    return found


class CountingStorage(SimStorage):
    """Counts what it is asked, reads and listings too."""

    def __init__(self, world: World) -> None:
        super().__init__(world, Script())
        self.requests: list[str] = []

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        self.requests.append(f"read {path}")
        return super().read(path, span)

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:
        self.requests += [f"stat {path}" for path in paths]
        return super().stat_many(paths, versions=versions)

    def list(self, folder: str) -> Iterator[FileInfo]:
        self.requests.append(f"list {folder}")
        return SimStorage(self.world, Script()).list(folder)

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.requests.append(f"put {path}")
        super().put_if_absent(path, data)

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        self.requests += [f"delete {path}" for path in paths]
        return super().delete(paths)


@dataclass(kw_only=True)
class CountedProcess(Process):
    """A process whose requests are counted."""

    counted: CountingStorage = field(init=False)

    def open(self) -> Any:
        self.storage = self.counted = CountingStorage(self.world)
        return super().open()


@dataclass(kw_only=True)
class ReadOnlyProcess(Process):
    """A process whose catalog takes no commit."""

    def open_catalog(self) -> Any:
        return ReadOnlyCommitter(self.storage)


class ReadOnlyCommitter(SimCommitter):
    """A catalog that takes no commit."""

    def read_only_reason(self) -> str | None:
        return "it takes no commit"


# -- another host ------------------------------------------------------------------------------------------------------


def test_a_live_operation_is_left_alone_by_who_recovers_and_its_journal_is_not_read() -> None:
    world = a_world(records=150)
    files = dict(world.files)
    process = CountedProcess(world=world)
    assert recovered(process) == []
    assert world.files == files
    assert not [each for each in process.counted.requests if re.search(r"/ops/.*/\d{6}\.json", each)]


def test_a_live_operation_costs_at_most_five_requests_more() -> None:
    counts = []
    for world in (a_world(records=150), a_world()):
        process = CountedProcess(world=world)
        recovered(process)
        counts.append(len(process.counted.requests))
    alone = World(dated=True)
    OtherEngine(alone).create(format_version=2)
    process = CountedProcess(world=alone)
    recovered(process)
    assert counts[0] == counts[1] <= len(process.counted.requests) + 5


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, 0, HOUR_MS])
@pytest.mark.parametrize(
    ("quiet_ms", "is_alive"), [(10 * MINUTE_MS - 1, True), (10 * MINUTE_MS, False), (24 * HOUR_MS, False)]
)
def test_ten_minutes_by_the_clock_of_the_storage_decide_whatever_ours_shows(
    quiet_ms: int, is_alive: bool, ahead_ms: int
) -> None:
    world = a_world()
    world.now_ms += quiet_ms
    process = Process(world=world)
    found = recovered(process, now_ms=lambda: world.now_ms + ahead_ms)
    assert [each.report.operation_id for each in found] == ([] if is_alive else [OPERATION])
    assert process.table.workspace.open_operations() == ([OPERATION] if is_alive else [])


def test_a_resume_goes_by_the_clock_of_the_storage() -> None:
    """The clock of this machine is years behind that of the simulated storage."""
    world = a_world()
    world.now_ms += 9 * MINUTE_MS
    (left,) = Table(Process(world=world).table).resume(runtime=Process(world=world).runtime)
    assert (left.report.status, left.exit_code) == ("refused", 11)
    assert "Process 7 is still working on it" in left.report.notes[0]
    world.now_ms += MINUTE_MS
    (settled,) = Table(Process(world=world).table).resume(runtime=Process(world=world).runtime)
    assert (settled.report.status, settled.exit_code) == ("nothing_to_do", 0)


@pytest.mark.parametrize("abandons", [True, False])
def test_who_works_on_it_is_named_and_nobody_abandons_it(abandons: bool) -> None:
    world = a_world()
    world.now_ms += 90_000
    files = dict(world.files)
    (left,) = Table(Process(world=world).table).resume(abandon=abandons, runtime=Process(world=world).runtime)
    assert left.exit_code == 11
    assert world.files == files
    found = listed(world)
    assert (found.state, found.message) == (
        "running",
        "at work on a host elsewhere, process 7; its last sign of life is 90 s old",
    )


@pytest.mark.parametrize("quiet_ms", [0, 11 * MINUTE_MS])
def test_who_only_looks_creates_nothing(quiet_ms: int) -> None:
    world = a_world()
    world.now_ms += quiet_ms
    process = Process(world=world)
    (found,) = operations(process.table, now_ms=world.now_ms)
    assert found.state == ("interrupted" if quiet_ms else "running")
    assert Table(process.table).operations()[0].operation_id == OPERATION
    assert process.effects == []


@pytest.mark.parametrize("quiet_ms", [0, 11 * MINUTE_MS])
def test_nothing_is_created_in_a_table_that_takes_no_commit(quiet_ms: int) -> None:
    world = a_world()
    world.now_ms += quiet_ms
    process = ReadOnlyProcess(world=world)
    assert recovered(process) == []
    assert process.effects == []


def test_a_sign_of_life_that_cannot_be_read_leaves_the_journal_to_tell() -> None:
    world = a_world()
    world.files[f"{FOLDER}/alive"] = b"{"
    found = listed(world, goes_on=True)
    assert found.state == "interrupted"
    assert found.operation is not None
    assert found.operation.host == "a host elsewhere"


# -- this host ---------------------------------------------------------------------------------------------------------


def of_process(process_id: int) -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "process_id": process_id,
        "process_started": process_started(process_id),
    }


@pytest.fixture
def other_process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_process_of_this_machine_that_has_ended_is_not_waited_for(
    other_process: subprocess.Popen[bytes],
) -> None:
    world = a_world(of_process(other_process.pid))
    assert recovered(Process(world=world)) == []
    other_process.kill()
    other_process.wait()
    (found,) = recovered(Process(world=world))
    assert found.report.operation_id == OPERATION


def test_a_process_of_another_container_or_machine_of_this_name_is_waited_for() -> None:
    """What its id means is not known here: it is no process here, or this very one."""
    for process_id in (os.getpid(), 4_194_303):
        world = a_world(of_process(process_id))
        alive = world.files[f"{FOLDER}/alive"]
        space = re.search(rb'"process_space": "([^"]+)"', alive)
        assert space is not None
        world.files[f"{FOLDER}/alive"] = alive.replace(space[1], b"another")
        assert recovered(Process(world=world)) == []
        assert listed(world, goes_on=True).state == "running"


def test_another_thread_of_this_process_is_waited_for_until_it_has_ended() -> None:
    world = a_world(of_process(os.getpid()))
    with at_work_here(FOLDER):
        assert recovered(Process(world=world)) == []
    (found,) = recovered(Process(world=world))
    assert found.report.operation_id == OPERATION


def test_an_operation_that_another_host_took_over_is_that_ones() -> None:
    """The sign of life says who works on it by now, and not the first record."""
    world = a_world(of_process(4_194_303))
    journal = Journal.load(SimStorage(world, Script()), ICEBERG_TABLE, OPERATION)
    journal.append(Resume(at_ms=world.now_ms, **ELSEWHERE))
    beat(world)
    assert recovered(Process(world=world)) == []
    assert listed(world).state == "running"
