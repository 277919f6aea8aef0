"""Files that arrive when their operation is over: those that a storage gave no answer for, and those of workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

import pytest

from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.testing.crash.world import DAY_MS, Crash, Script, World, crash
from tests.operation.groups import numbers_table
from tests.operation.groups.numbers_table import Process, make_table, numbers_of, unneeded

FILES = {f"f{number}": range(number * 10, number * 10 + 3 + number) for number in range(6)}
NUMBERS = Counter(number for numbers in FILES.values() for number in numbers)
OF_TRIES = ("/data/", "/begun/", "/kept/", "/done/")


@pytest.fixture(autouse=True)
def on_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers_table, "LOCATION", "s3://lake/numbers")


def a_world() -> World:
    world = World(dated=True)
    make_table(world, FILES)
    return world


def puts_of_tries() -> Mapping[int, str]:
    process = Process(world=a_world())
    process.run()
    named = enumerate(process.storage.trace)
    return {
        number: name for number, name in named if name.startswith("put") and any(map(name.count, OF_TRIES))
    }


def ended(world: World) -> bool:
    return Process(world=world).table.workspace.open_operations() == []


def test_a_file_that_arrives_after_its_run_has_ended_is_deleted_within_a_day() -> None:
    puts = puts_of_tries()
    assert len({next(part for part in OF_TRIES if part in name) for name in puts.values()}) == len(OF_TRIES)
    for number, name in puts.items():
        for arrives in ("before the run has ended", "before a resume", "before the last one", "never"):
            world = a_world()
            process = Process(world=world)
            held = process.storage.hold(number)
            with pytest.raises(BackendUnavailable, match="no answer") as caught:
                process.run()
            assert len(held) == 1, name
            assert "`resume`, or the first run after a day, deletes it" in caught.value.state
            if arrives == "before a resume":
                world.files.update(held)
            Process(world=world).resume(rewrites=True)
            assert not ended(world)
            if arrives == "before a resume":
                assert not held.keys() & world.files.keys(), name
            if arrives == "before the last one":
                world.files.update(held)
            world.now_ms += DAY_MS
            Process(world=world).resume(rewrites=True)
            assert ended(world)
            assert (numbers_of(world), unneeded(world)) == (NUMBERS, []), (name, arrives)


def test_on_a_local_disk_nothing_arrives_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers_table, "LOCATION", "/lake/numbers")
    world = a_world()
    process = Process(world=world, script=Script(fail_put=lambda path: "full" if "/data/" in path else None))
    with pytest.raises(BackendUnavailable) as caught:
        process.run()
    assert "may still arrive" not in caught.value.state
    assert (ended(world), unneeded(world)) == (True, [])


@pytest.mark.parametrize("by_workers", [True, False])
def test_what_workers_of_a_dead_process_write_is_looked_for_once_more(by_workers: bool) -> None:
    """The process that sent the groups is gone; a worker that stood still begins a file and ends before it has it."""
    world = a_world()
    process = Process(world=world)
    process.table.workers_write = by_workers
    (number,) = [each for each, name in puts_of_tries().items() if "/done/0-" in name]
    process.script = process.storage.script = Script(before={number + by_workers: crash})
    with suppress(Crash):
        process.run()
    begun = {path: data for path, data in world.files.items() if "/begun/" in path}
    assert begun
    world.now_ms += DAY_MS
    Process(world=world).resume(rewrites=True)
    assert ended(world) is not by_workers
    assert numbers_of(world) == NUMBERS
    if not by_workers:
        return
    late = {
        path.replace("/begun/", "/begun/9"): data.replace(b"/data/0", b"/data/9")
        for path, data in begun.items()
    }
    for path, data in late.items():
        world.write(path, data)
        world.write(data.decode().split('"')[3], b"1\n")
    world.now_ms += DAY_MS
    Process(world=world).resume(rewrites=True)
    assert (ended(world), numbers_of(world), unneeded(world)) == (True, NUMBERS, [])
