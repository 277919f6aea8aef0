"""Files that a process creates piece by piece in a simulated world: whole or not at all, wherever the process ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

import pytest

from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.testing.conformance.storages import Sandbox, StorageConformance
from iceberg_cli.testing.crash.world import Act, Crash, Script, SimStorage, World, crash

PATH = "/lake/file"
DATA = bytes(range(256)) * 5  # three parts
EFFECTS = [f"begin {PATH}", *[f"part {PATH}"] * 3, f"complete {PATH}"]


class TestWorld(StorageConformance):
    """Every sentence of the port, on a world's files."""

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        return Sandbox(storage=SimStorage(World(dated=True, part_bytes=1 << 20), Script()), root="/lake")

    # A world has its own clock and no versions.
    test_what_was_put_is_read_back = None  # type: ignore[assignment]
    test_versions_stay_until_other_bytes_are_stored = None  # type: ignore[assignment]


def fail() -> NoReturn:
    raise BackendUnavailable("no answer")


def create(world: World, script: Script) -> tuple[type[BaseException] | None, list[str], list[str]]:
    """What ends a process that creates the file, the ids that it was told, and its effects."""
    storage, uploads, raised = SimStorage(world, script), list[str](), None
    try:
        with storage.create(PATH, uploads.append) as writer:
            for start in range(0, len(DATA), 100):
                writer.write(DATA[start : start + 100])
            writer.commit()
    except (Crash, BackendUnavailable, FileExistsError) as error:
        raised = type(error)
    return raised, uploads, storage.trace


def test_an_upload_is_an_effect_for_its_begin_each_part_and_its_end() -> None:
    world = World()
    assert create(world, Script()) == (None, ["upload-1"], EFFECTS)
    assert (world.files, world.uploads) == ({PATH: DATA}, {})


@pytest.mark.parametrize("act", [crash, fail])
@pytest.mark.parametrize("number", range(len(EFFECTS)))
@pytest.mark.parametrize("when", ["before", "after"])
def test_wherever_a_process_ends_the_file_is_whole_or_not_there_and_its_upload_can_be_removed(
    when: str, number: int, act: Callable[[], NoReturn]
) -> None:
    world = World()
    acts: Mapping[int, Act] = {number: act}
    script = Script(before=acts) if when == "before" else Script(after=acts)
    raised, uploads, trace = create(world, script)
    assert raised is (Crash if act is crash else BackendUnavailable)
    assert trace[: number + 1] == EFFECTS[: number + 1]
    is_done = (when, number) == ("after", len(EFFECTS) - 1)
    assert world.files == ({PATH: DATA} if is_done else {})
    survivor = world.copy()
    has_parts = number > 1 or (number == 1 and when == "after")
    assert set(survivor.leaked_uploads) == (
        {"upload-1"} if act is crash and has_parts and not is_done else set()
    )
    assert survivor.leaked_uploads.keys() <= {*uploads}
    for upload_id in uploads * 2:
        SimStorage(survivor, Script()).abort_upload(PATH, upload_id)
    assert survivor.leaked_uploads == {}
    assert survivor.files == world.files
    # Its begin was the last thing that happened, and nobody was told of it.
    assert survivor.uploads.keys() == ({"upload-1"} if (when, number) == ("after", 0) else set())


def test_another_writers_file_stays_and_the_upload_goes() -> None:
    world = World()
    script = Script(before={4: lambda: world.write(PATH, b"another's")})
    assert create(world, script) == (FileExistsError, ["upload-1"], [*EFFECTS, f"abort {PATH}"])
    assert (world.files, world.uploads) == ({PATH: b"another's"}, {})


def test_a_path_that_is_refused_gets_no_upload() -> None:
    world = World()
    assert create(world, Script(fail_put=lambda _: "full")) == (BackendUnavailable, [], EFFECTS[:1])
    assert (world.files, world.uploads) == ({}, {})


def test_a_completion_that_gets_lost_on_its_way_may_still_arrive() -> None:
    world = World()
    storage = SimStorage(world, Script())
    held = storage.hold(4)
    with storage.create(PATH) as writer:
        writer.write(DATA)
        with pytest.raises(BackendUnavailable):
            writer.commit()
    assert (world.files, world.uploads, held) == ({}, {}, {PATH: DATA})
