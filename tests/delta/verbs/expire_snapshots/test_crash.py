"""A VACUUM stopped around every effect, raced, its answers lost: no live file goes, and no version is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.errors import CommitConflict, CommitStateUnknown, Refused
from iceberg_cli.operation.apply import abandon, apply
from iceberg_cli.operation.ports import Build, Planned, nothing_to_build
from iceberg_cli.plan.plan import Change, Plan, Step
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import DELTA_TABLE, Script, World, crash
from tests.budget import few_or_many, some
from tests.builders import NOW_MS
from tests.crash.delta import (
    a_delta_world,
    a_remove,
    an_add,
    commit_to,
    live_files,
    newest,
    operations_of,
    version_path,
)

COMMIT = re.compile(r"/[0-9]{20}\.json$")
GOING = {f"{DELTA_TABLE}/{name}.parquet" for name in ("b", "c", "d", "nobody")}
KEPT = {f"{DELTA_TABLE}/{name}.parquet" for name in ("a", "e", "f", "_hidden")}


def check(world: World) -> None:
    """What must hold at every moment: live and protected files are there, and no version is missing or torn."""
    assert live_files(world) | KEPT <= set(world.files)
    versions = {name for name in world.files if COMMIT.search(name)}
    assert versions == {version_path(version) for version in range(newest(world) + 1)}
    for version in range(newest(world) + 1):
        for line in world.files[version_path(version)].splitlines():
            assert len(json.loads(line)) == 1


def finish(world: World) -> None:
    """Resume, run again, and nothing is left to do or to clean up."""
    DeltaProcess(world=world).resume()
    check(world)
    report = DeltaProcess(world=world).run()
    assert report.status in ("done", "nothing_to_do")
    assert DeltaProcess(world=world).run().status == "nothing_to_do"
    check(world)
    assert not GOING & set(world.files)
    assert not [name for name in world.files if "_iceberg_cli" in name]


def vacuums(world: World) -> list[str]:
    return [operation for operation in operations_of(world) if operation.startswith("VACUUM")]


def effects() -> list[str]:
    process = DeltaProcess(world=a_delta_world())
    assert process.run().status == "done"
    return process.effects


@few_or_many(12)
@pytest.mark.parametrize("side", ["before", "after"])
def test_crash_around_any_effect_of_a_vacuum(side: str, budget: int) -> None:
    for number, effect in some(list(enumerate(effects())), budget):
        world = a_delta_world()
        process = DeltaProcess(world=world, script=Script(**{side: {number: crash}}))
        assert process.dies(process.run), effect
        check(world)
        finish(world)
        # An end follows its start, and one that was sent twice is there once.
        assert vacuums(world) == ["VACUUM START", "VACUUM END"], effect


def test_a_second_crash_while_the_first_is_resumed() -> None:
    first = len(effects()) // 2
    for number in range(12):
        world = a_delta_world()
        process = DeltaProcess(world=world, script=Script(after={first: crash}))
        assert process.dies(process.run)
        resuming = DeltaProcess(world=world, script=Script(before={number: crash}))
        resuming.dies(resuming.resume)
        check(world)
        finish(world)
        assert vacuums(world) == ["VACUUM START", "VACUUM END"]


RACES: Mapping[str, Callable[[World], object]] = {
    "append": lambda world: commit_to(world, an_add("f.parquet")),
    "restore": lambda world: commit_to(world, an_add("c.parquet")),
    "remove": lambda world: commit_to(world, a_remove("f.parquet", age_days=0)),
}


@few_or_many(12)
@pytest.mark.parametrize("race", RACES)
def test_another_writer_commits_before_any_effect_of_a_vacuum(race: str, budget: int) -> None:
    """A file that is added again while its deletion is on its way stays; the vacuum's own versions come after."""
    for number, effect in some(list(enumerate(effects())), budget):
        world = a_delta_world()
        raced: list[int] = []

        def act(world: World = world, raced: list[int] = raced) -> None:
            # Delta's own RESTORE looks for the file first.
            if race != "restore" or f"{DELTA_TABLE}/c.parquet" in world.files:
                RACES[race](world)
                raced.append(newest(world))

        # Between the last look and the deletions of one batch nothing can help: that is what retention is for.
        if race == "restore" and effect in (
            f"delete {DELTA_TABLE}/b.parquet",
            f"delete {DELTA_TABLE}/c.parquet",
        ):
            continue
        process = DeltaProcess(world=world, script=Script(before={number: act}))
        try:
            process.run()
        except CommitConflict:
            pytest.fail(effect)
        assert live_files(world) <= set(world.files), effect
        DeltaProcess(world=world).run()
        assert vacuums(world)[:2] == ["VACUUM START", "VACUUM END"], effect


def test_a_commit_that_comes_first_is_a_conflict_and_the_next_version_is_taken() -> None:
    trace = effects()
    number = trace.index(f"put {version_path(3)}")
    world = a_delta_world()
    script = Script(before={number: lambda: commit_to(world, an_add("b.parquet"))})
    report = DeltaProcess(world=world, script=script).run()
    assert report.committed_version == 5
    assert operations_of(world)[3:] == ["WRITE", "VACUUM START", "VACUUM END"]
    assert f"{DELTA_TABLE}/b.parquet" in world.files
    assert report.counts["deleted_data_files_count"] == 2


def test_the_end_tells_how_many_files_went_also_after_a_crash_between() -> None:
    trace = effects()
    number = trace.index(f"delete {DELTA_TABLE}/d.parquet")
    world = a_delta_world()
    process = DeltaProcess(world=world, script=Script(before={number: crash}))
    assert process.dies(process.run)
    DeltaProcess(world=world).resume()
    info = json.loads(world.files[version_path(newest(world))].splitlines()[0])["commitInfo"]
    assert (info["operation"], info["operationMetrics"]["numDeletedFiles"]) == ("VACUUM END", "4")


def test_a_put_without_an_answer_is_found_when_it_happened() -> None:
    world = a_delta_world()
    lost: list[str] = []

    def lose(path: str) -> str | None:
        if path == version_path(3) and not lost:
            lost.append(path)
            return "no answer"
        return None

    process = DeltaProcess(world=world, script=Script(fail_put=lose))
    with pytest.raises(CommitStateUnknown):
        process.run()
    assert set(world.files) >= GOING  # nothing was deleted
    assert operations_of(world)[-1] == "WRITE"
    finish(world)
    assert vacuums(world) == ["VACUUM START", "VACUUM END"]


def test_an_operation_whose_commit_can_still_happen_cannot_be_abandoned() -> None:
    number = effects().index(f"put {version_path(3)}")
    world = a_delta_world()
    process = DeltaProcess(world=world, script=Script(before={number: crash}))
    assert process.dies(process.run)
    late = DeltaProcess(world=world)
    (operation_id,) = late.table.workspace.open_operations()
    with pytest.raises(Refused, match="no known outcome"):
        abandon(late.table, operation_id, late.runtime)
    commit_to(world, an_add("f.parquet"))  # the version is taken
    abandon(late.table, operation_id, late.runtime)
    assert not [name for name in world.files if "_iceberg_cli" in name]
    assert set(world.files) >= GOING
    check(world)


def test_an_interrupted_commit_whose_version_another_took_is_planned_again() -> None:
    trace = effects()
    number = trace.index(f"put {version_path(3)}")
    world = a_delta_world()
    process = DeltaProcess(world=world, script=Script(before={number: crash}))
    assert process.dies(process.run)
    commit_to(world, an_add("b.parquet"))
    (report,) = DeltaProcess(world=world).resume()
    assert report.committed_version == 5
    assert f"{DELTA_TABLE}/b.parquet" in world.files
    check(world)


def test_an_operation_whose_first_step_is_not_due_any_more_tells_of_no_end() -> None:
    trace = effects()
    number = trace.index(f"put {version_path(3)}")
    world = a_delta_world()
    process = DeltaProcess(world=world, script=Script(before={number: crash}))
    assert process.dies(process.run)
    commit_to(world, *(an_add(f"{name}.parquet") for name in "bcd"), an_add("nobody.parquet"))
    DeltaProcess(world=world).resume()
    assert vacuums(world) == []
    check(world)


@pytest.mark.parametrize("batch", ["the first", "the last"])
def test_a_file_that_was_put_back_after_the_plan_stays_though_no_version_names_it_yet(batch: str) -> None:
    """Its writer commits it later: what is as young as that is nobody's to delete."""
    trace = effects()
    going = [effect for effect in trace if effect.removeprefix("delete ") in GOING]
    number = trace.index(going[0 if batch == "the first" else -1])
    world = a_delta_world()
    process = DeltaProcess(world=world, script=Script(before={number: crash}))
    assert process.dies(process.run)
    for path in GOING:
        world.files[path] = b"anew"
        world.written_ms[path] = NOW_MS
    (report,) = DeltaProcess(world=world).resume()
    assert set(world.files) >= GOING
    assert all(world.files[path] == b"anew" for path in GOING)
    assert report.kept_again > 0
    assert DeltaProcess(world=world).run().status == "nothing_to_do"
    commit_to(world, *(an_add(path.removeprefix(f"{DELTA_TABLE}/")) for path in sorted(GOING)))
    check(world)


def test_a_file_that_an_inventory_takes_for_older_than_it_is_stays() -> None:
    world = a_delta_world()
    path = "s3://lake/inventory.json"
    files = [{"path": file, "length": 4, "isDir": False, "modificationTime": 0} for file in sorted(GOING)]
    world.files[path] = "\n".join(map(json.dumps, files)).encode()
    young = f"{DELTA_TABLE}/nobody.parquet"
    world.written_ms[young] = NOW_MS
    report = DeltaProcess(world=world, policy={"inventory": path}).run()
    assert GOING & set(world.files) == {young}
    assert (report.counts["deleted_data_files_count"], report.kept_again) == (3, 1)


@dataclass(frozen=True)
class ThreeSteps:
    """A verb of a beginning, an end that follows it unconditionally, and something else; the beginning can go."""

    beginning_goes: bool
    name: str = "three-steps"
    result_columns: tuple[str, ...] = ()
    policy: type[ExpireSnapshots] = ExpireSnapshots

    def plan(
        self,
        table: DeltaTable,
        policy: ExpireSnapshots,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,  # noqa: ARG002 - the port's signature
    ) -> Planned:
        steps = [
            Step(name="beginning", change=saying("BEGINNING")),
            Step(name="end", change=saying("END"), unconditional=True),
            Step(name="other", change=saying("OTHER")),
        ]
        plan = Plan(
            verb=self.name,
            base=table.load(),
            table=table.describe(),
            as_of_ms=as_of_ms,
            options={},
            policy=policy.to_json(),
            # Planned again there is no end, as a VACUUM that found nothing has none.
            steps=tuple(steps if within is None else steps[2 if self.beginning_goes else 0 :: 2]),
        )
        return Planned(plan=table.resolve(plan))

    def unconditional(self, _table: DeltaTable) -> Build:
        return nothing_to_build


def saying(operation: str) -> Change:
    return Change(updates=({"commitInfo": {"operation": operation}},))


@pytest.mark.parametrize(
    ("beginning_goes", "expected"), [(False, ["BEGINNING", "END", "OTHER"]), (True, ["OTHER"])]
)
def test_an_unconditional_step_follows_the_commit_before_it_or_is_left_out(
    *, beginning_goes: bool, expected: list[str]
) -> None:
    verb = ThreeSteps(beginning_goes=beginning_goes)
    trial = DeltaProcess(world=a_delta_world())
    apply(verb.plan(trial.table, ExpireSnapshots(), as_of_ms=NOW_MS), trial.table, verb, trial.runtime)
    assert operations_of(trial.world)[3:] == ["BEGINNING", "END", "OTHER"]
    number = trial.effects.index(f"put {version_path(3)}")
    # Another writer takes the version: the first attempt is refused, and the verb plans again.
    world = a_delta_world()
    raced = Script(before={number: lambda: commit_to(world, an_add("f.parquet"))})
    process = DeltaProcess(world=world, script=raced)
    apply(verb.plan(process.table, ExpireSnapshots(), as_of_ms=NOW_MS), process.table, verb, process.runtime)
    assert operations_of(world)[4:] == expected


@few_or_many(8)
@pytest.mark.parametrize("kind", ["classic", "v2"])
def test_crash_around_any_effect_of_a_checkpoint(kind: str, budget: int) -> None:
    """Whatever is there of it, the table reads as before; run again, it is whole, and no hint names another."""
    policy = {"checkpoint": kind, "part_size": 1}

    def process(world: World, script: Script | None = None) -> DeltaProcess:
        chosen = Script() if script is None else script
        return DeltaProcess(world=world, script=chosen, verb="rewrite-manifests", policy=policy)

    trial = process(a_delta_world())
    assert trial.run().status == "done"
    for number, effect in some(list(enumerate(trial.effects)), budget):
        world = a_delta_world()
        dying = process(world, Script(before={number: crash}))
        assert dying.dies(dying.run), effect
        for _ in range(2):
            check(world)
            files = process(world).table.snapshot.adds["path"].to_pylist()
            assert {f"{DELTA_TABLE}/{name}" for name in files} == live_files(world)
            process(world).run()
        assert process(world).run().status == "nothing_to_do", effect
        hint = world.files.get(f"{DELTA_TABLE}/_delta_log/_last_checkpoint", b'{"version":2}')
        assert json.loads(hint)["version"] == 2
        for version in range(2):  # the checkpoint stands alone
            del world.files[version_path(version)]
        assert sorted(process(world).table.snapshot.adds["path"].to_pylist()) == ["a.parquet", "f.parquet"]
        assert not [name for name in world.files if "_iceberg_cli" in name]
