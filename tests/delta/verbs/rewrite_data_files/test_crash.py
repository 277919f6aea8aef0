"""A rewrite of data files of a Delta table is stopped around every effect that it has, and answers are lost."""

from __future__ import annotations

import random
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.errors import BackendUnavailable, CommitStateUnknown
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import DELTA_TABLE, Crash, Script, World, crash
from iceberg_cli.testing.delta_rows import rows_of, state_of
from iceberg_cli.testing.delta_vectors import vector_file
from tests.budget import crash_points
from tests.delta.verbs.rewrite_data_files.drawn import DrawnTable
from tests.paths import besides_history

LATER_MS = 1_800_000  # within the hour in which a commit without an answer is sent again
STEPS = 120  # at least as many as there are effects
POLICY = RewriteDataFiles(
    target_size="4KiB", max_group_size="4KiB", min_input_files=2, commit_every="1B", processes=1
)
TRACKING = ("none", "supported", "enabled")


@dataclass(kw_only=True)
class Rewriter(DeltaProcess):
    """One run of the verb, which commits each group by itself."""

    verb: str = "rewrite-data-files"
    policy: Any = POLICY


def table_files(tracking: str) -> dict[str, bytes]:
    """A table of three partitions, each of which becomes a group; some rows of each are deleted."""
    return states(tracking)[0]


def written_meanwhile(tracking: str) -> dict[str, bytes]:
    """What another writer adds to it: rows of two groups are deleted, a file of the third is replaced."""
    before, after = states(tracking)
    return {path: data for path, data in after.items() if path not in before}


@cache
def states(tracking: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files of the table, before and after another writer."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        table = DrawnTable(root, random.Random(4), mode="name", tracking=tracking, partitioned=True)
        table.found()
        physical = next(each.physical for each in table.columns if each.name == "part")
        for part in ("x", None, "a/b"):
            actions = [table.new_file(4) for _ in range(3)]
            for action in actions:
                action["add"]["partitionValues"] = {physical: part}
            table.write(actions)
        for _ in range(4):
            table.delete_rows()
        before = files_in(root)
        for _ in range(3):
            table.delete_rows()
        table.update_file()
        return before, files_in(root)


def files_in(root: Path) -> dict[str, bytes]:
    return {
        f"{DELTA_TABLE}/{path.relative_to(root)}": path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


def a_world(tracking: str, *, after: bool = False) -> World:
    return World(files=dict(states(tracking)[after]), dated=True)


def on_disk(world: World, folder: Path) -> Path:
    for path, data in world.files.items():
        file = folder / path.removeprefix(f"{DELTA_TABLE}/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return folder


def check_rows(world: World, tracking: str, *, after: bool = False) -> set[str]:
    """The rows and their ids are what they were, or another writer left; the paths of the files that have them."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        root = on_disk(world, Path(other))
        assert rows_of(root) == rows_of(on_disk(a_world(tracking, after=after), Path(one)))
        adds = state_of(root).adds.values()
        vectors = {vector_file(each, str(root)) for add in adds if (each := add.get("deletionVector"))}
        return {unquote(add["path"]) for add in adds} | {
            str(Path(path).relative_to(root)) for path in vectors if path is not None
        }


def check(world: World, tracking: str, *, after: bool = False) -> None:
    """As `check_rows`, nothing is left over, and what the newest version names is there."""
    named = check_rows(world, tracking, after=after)
    first = {path.removeprefix(f"{DELTA_TABLE}/") for path in states(tracking)[after]}
    now = {path.removeprefix(f"{DELTA_TABLE}/") for path in besides_history(world.files)}
    assert {path for path in now - first if not path.startswith("_delta_log/")} <= named
    assert first | named <= now
    assert not world.leaked_uploads


def commits(world: World) -> int:
    return sum(
        path.startswith(f"{DELTA_TABLE}/_delta_log/0") and path.endswith(".json") for path in world.files
    )


@cache
def effects(tracking: str) -> int:
    process = Rewriter(world=a_world(tracking))
    report = process.run()
    assert (report.status, len(report.commits)) == ("done", 3)
    assert len(process.effects) <= STEPS
    return len(process.effects)


@pytest.mark.parametrize("tracking", TRACKING)
def test_undisturbed_it_commits_each_group_and_leaves_nothing(tracking: str) -> None:
    world = a_world(tracking)
    Rewriter(world=world).run()
    check(world, tracking)
    assert commits(world) == commits(a_world(tracking)) + 3


def come_after(world: World, *, resumes: bool) -> None:
    """A later process goes on with what was left, or settles it; then nothing is open."""
    world.now_ms += LATER_MS
    later = Rewriter(world=world)
    if resumes:
        later.resume()
    else:
        later.settle()
        later.settle()
    assert later.table.workspace.open_operations() == []


@pytest.mark.few(12)
@pytest.mark.parametrize(("tracking", "step", "after"), crash_points([(each,) for each in TRACKING], STEPS))
def test_whoever_comes_after_a_process_that_ended_anywhere_goes_on_or_settles(
    tracking: str, step: int, after: bool
) -> None:
    number = step * effects(tracking) // STEPS
    world = a_world(tracking)
    script = Script(after={number: crash}) if after else Script(before={number: crash})
    with pytest.raises(Crash):
        Rewriter(world=world, script=script).run()
    come_after(world, resumes=bool(number % 2))
    check(world, tracking)


@cache
def first_commit(tracking: str) -> int:
    """The effect that is the first commit."""
    process = Rewriter(world=a_world(tracking))
    process.run()
    return next(place for place, each in enumerate(process.effects) if "_delta_log/0" in each)


def beside_another_writer(world: World, tracking: str, ends: int | None = None) -> Script:
    """Another writer commits right before the first commit, and the process ends before an effect."""
    first = first_commit(tracking)

    def commits_meanwhile() -> None:
        world.files.update(written_meanwhile(tracking))
        if ends == first:
            crash()

    return Script(before={**({} if ends is None else {ends: crash}), first: commits_meanwhile})


@cache
def effects_beside_another_writer(tracking: str) -> int:
    world = a_world(tracking)
    process = Rewriter(world=world, script=beside_another_writer(world, tracking))
    report = process.run()
    assert (report.status, len(report.commits), report.counts["conflicted_groups_count"]) == ("partial", 2, 1)
    assert report.counts["remapped_deletes_count"] > 0
    check(world, tracking, after=True)
    return len(process.effects)


@pytest.mark.few(8)
@pytest.mark.parametrize("step", range(STEPS))
@pytest.mark.parametrize("tracking", TRACKING)
def test_deletes_that_arrived_are_moved_wherever_a_process_ends(tracking: str, step: int) -> None:
    first = first_commit(tracking)
    number = first + step * (effects_beside_another_writer(tracking) - first) // STEPS
    world = a_world(tracking)
    with pytest.raises(Crash):
        Rewriter(world=world, script=beside_another_writer(world, tracking, number)).run()
    come_after(world, resumes=bool(step % 2))
    check(world, tracking, after=True)


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", range(60))
def test_processes_that_end_one_after_the_other_lose_and_leave_nothing(seed: int) -> None:
    drawn = random.Random(seed)
    tracking = drawn.choice(TRACKING)
    world = a_world(tracking)
    most = effects(tracking)
    with pytest.raises(Crash):
        Rewriter(world=world, script=Script(before={drawn.randrange(most): crash})).run()
    for _ in range(drawn.randint(1, 3)):
        world.now_ms += LATER_MS
        process = Rewriter(world=world, script=Script(before={drawn.randrange(most): crash}))
        process.dies(process.resume if drawn.random() < 0.6 else process.settle)
    world.now_ms += LATER_MS
    Rewriter(world=world).resume()
    check(world, tracking)


@pytest.mark.few(6)
@pytest.mark.parametrize("has_arrived", [False, True], ids=["lost", "lost after"])
@pytest.mark.parametrize("step", range(STEPS))
def test_what_is_put_without_an_answer_happens_once(step: int, *, has_arrived: bool) -> None:
    number = step * effects("enabled") // STEPS
    world = a_world("enabled")

    def no_answer() -> None:
        raise BackendUnavailable("no answer")

    script = Script(after={number: no_answer}) if has_arrived else Script(before={number: no_answer})
    with suppress(CommitStateUnknown, BackendUnavailable):
        Rewriter(world=world, script=script).run()
    for wait_ms in (
        LATER_MS,
        48 * LATER_MS,
    ):  # after a day what may have been put without an answer is looked for
        world.now_ms += wait_ms
        later = Rewriter(world=world)
        later.resume()
        check_rows(world, "enabled")
    assert later.table.workspace.open_operations() == []


@pytest.mark.parametrize("arrives", [False, True])
def test_a_commit_that_may_still_arrive_after_a_day_is_not_made_again_and_its_files_stay(
    *, arrives: bool
) -> None:
    undisturbed = Rewriter(world=a_world("enabled"))
    undisturbed.run()
    number = [place for place, each in enumerate(undisturbed.effects) if "_delta_log/0" in each][1]
    world = a_world("enabled")
    script = Script(after={number: crash}) if arrives else Script(before={number: crash})
    with pytest.raises(Crash):
        Rewriter(world=world, script=script).run()
    world.now_ms += 48 * LATER_MS
    Rewriter(world=world).resume()
    check_rows(world, "enabled")
    assert commits(world) == commits(a_world("enabled")) + (3 if arrives else 2)
