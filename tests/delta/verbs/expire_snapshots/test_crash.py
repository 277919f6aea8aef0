"""A VACUUM stopped around every effect, raced, its answers lost: no live file goes, and no version is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.expire_snapshots.plan import VERB
from iceberg_cli.delta.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.errors import CommitStateUnknown, Refused
from iceberg_cli.operation.apply import abandon, apply
from iceberg_cli.operation.ports import Build, Planned, nothing_to_build
from iceberg_cli.plan.plan import Change, Plan, Step
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import DELTA_TABLE, Script, World, crash
from tests.builders import NOW_MS
from tests.crash import suite
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


@dataclass(kw_only=True)
class DeltaScene(suite.Scene):
    """The table, and a verb on it."""

    process_type = DeltaProcess

    world: World = field(default_factory=a_delta_world)

    def check(self) -> None:
        """What must hold at every moment: live and protected files are there, and no version is missing or torn."""
        files = self.world.files
        assert live_files(self.world) | KEPT <= set(files)
        versions = {name for name in files if COMMIT.search(name)}
        assert versions == {version_path(version) for version in range(newest(self.world) + 1)}
        for version in range(newest(self.world) + 1):
            for line in files[version_path(version)].splitlines():
                assert len(json.loads(line)) == 1

    def vacuums(self) -> list[str]:
        """What its versions are."""
        return [operation for operation in operations_of(self.world) if operation.startswith("VACUUM")]


class Vacuum(DeltaScene):
    """A VACUUM of the table."""

    def is_too_late(self, act: suite.Act, effect: str) -> bool:
        # Between the last look and the deletions of one batch nothing can help: that is what retention is for.
        return act is restore and effect in [f"delete {DELTA_TABLE}/{name}.parquet" for name in ("b", "c")]

    def check_finished(self) -> None:
        """What can go is gone."""
        super().check_finished()
        assert not GOING & set(self.world.files) - live_files(self.world)

    def check_done(self) -> None:
        """An end follows its start, and one that was sent twice is there once."""
        assert self.vacuums() == ["VACUUM START", "VACUUM END"]

    def check_run(self, report: Report | None) -> None:
        """The vacuum's own versions come after those of others."""
        super().check_run(report)
        self.process().run()
        assert self.vacuums()[:2] == ["VACUUM START", "VACUUM END"]


def append(scene: Vacuum) -> None:
    commit_to(scene.world, an_add("f.parquet"))


def restore(scene: Vacuum) -> None:
    """Delta's own RESTORE looks for the file first."""
    if f"{DELTA_TABLE}/c.parquet" in scene.world.files:
        commit_to(scene.world, an_add("c.parquet"))


def remove(scene: Vacuum) -> None:
    commit_to(scene.world, a_remove("f.parquet", age_days=0))


class TestVacuum(suite.Crashes, suite.SecondCrashes, suite.Commits):
    """A file that is added again while its deletion is on its way stays."""

    crashes = 6
    second_crashes = 4
    commits = 4

    @pytest.fixture
    def scene(self) -> Vacuum:
        return Vacuum()

    @pytest.fixture(params=[append, restore, remove])
    def act(self, request: pytest.FixtureRequest) -> suite.Act:
        return request.param


def interrupted(effect: str) -> Vacuum:
    """A vacuum whose process died before an effect."""
    scene = Vacuum()
    process = scene.process(before={scene.undisturbed().index(effect): crash})
    assert process.dies(process.run)
    return scene


FIRST_COMMIT = f"put {version_path(3)}"


def test_a_commit_that_comes_first_is_a_conflict_and_the_next_version_is_taken() -> None:
    scene = Vacuum()
    number = scene.undisturbed().index(FIRST_COMMIT)
    report = scene.process(before={number: lambda: commit_to(scene.world, an_add("b.parquet"))}).run()
    assert report.committed_version == 5
    assert operations_of(scene.world)[3:] == ["WRITE", "VACUUM START", "VACUUM END"]
    assert f"{DELTA_TABLE}/b.parquet" in scene.world.files
    assert report.counts["deleted_data_files_count"] == 2


def test_the_end_tells_how_many_files_went_also_after_a_crash_between() -> None:
    scene = interrupted(f"delete {DELTA_TABLE}/d.parquet")
    scene.process().resume()
    last = scene.world.files[version_path(newest(scene.world))]
    info = json.loads(last.splitlines()[0])["commitInfo"]
    assert (info["operation"], info["operationMetrics"]["numDeletedFiles"]) == ("VACUUM END", "4")


def test_a_put_without_an_answer_is_found_when_it_happened() -> None:
    scene = Vacuum()
    with pytest.raises(CommitStateUnknown):
        scene.process(fail_put=suite.lost_once(version_path(3))).run()
    assert set(scene.world.files) >= GOING  # nothing was deleted
    assert operations_of(scene.world)[-1] == "WRITE"
    scene.finish()
    scene.check_done()


def test_an_operation_whose_commit_can_still_happen_cannot_be_abandoned() -> None:
    scene = interrupted(FIRST_COMMIT)
    late = scene.process()
    (operation_id,) = late.table.workspace.open_operations()
    with pytest.raises(Refused, match="no known outcome"):
        abandon(late.table, operation_id, late.runtime)
    commit_to(scene.world, an_add("f.parquet"))  # the version is taken
    abandon(late.table, operation_id, late.runtime)
    assert not [name for name in scene.world.files if "_iceberg_cli/ops" in name]
    assert set(scene.world.files) >= GOING
    scene.check()


def test_an_interrupted_commit_whose_version_another_took_is_planned_again() -> None:
    scene = interrupted(FIRST_COMMIT)
    commit_to(scene.world, an_add("b.parquet"))
    (report,) = scene.process().resume()
    assert report.committed_version == 5
    assert f"{DELTA_TABLE}/b.parquet" in scene.world.files
    scene.check()


def test_an_operation_whose_first_step_is_not_due_any_more_tells_of_no_end() -> None:
    scene = interrupted(FIRST_COMMIT)
    commit_to(scene.world, *(an_add(f"{name}.parquet") for name in "bcd"), an_add("nobody.parquet"))
    scene.process().resume()
    assert scene.vacuums() == []
    scene.check()


@pytest.mark.parametrize("batch", ["the first", "the last"])
def test_a_file_that_was_put_back_after_the_plan_stays_though_no_version_names_it_yet(batch: str) -> None:
    """Its writer commits it later: what is as young as that is nobody's to delete."""
    going = [effect for effect in Vacuum().undisturbed() if effect.removeprefix("delete ") in GOING]
    scene = interrupted(going[0 if batch == "the first" else -1])
    world = scene.world
    for path in GOING:
        world.files[path] = b"anew"
        world.written_ms[path] = NOW_MS
    (report,) = scene.process().resume()
    assert set(world.files) >= GOING
    assert all(world.files[path] == b"anew" for path in GOING)
    assert report.kept_again > 0
    assert scene.process().run().status == "nothing_to_do"
    commit_to(world, *(an_add(path.removeprefix(f"{DELTA_TABLE}/")) for path in sorted(GOING)))
    scene.check()


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
    begin, end = VERB.begin, VERB.end

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


@dataclass(kw_only=True)
class Checkpoint(DeltaScene):
    """A checkpoint of the table: whatever is there of it, the table reads as before."""

    verb = "rewrite-manifests"

    kind: str

    @property
    def policy(self) -> Mapping[str, Any]:
        return {"checkpoint": self.kind, "part_size": 1}

    def files(self) -> list[str]:
        """The files of the table, as we read it."""
        return sorted(self.process().table.snapshot.adds["path"].to_pylist())

    def check(self) -> None:
        super().check()
        assert {f"{DELTA_TABLE}/{name}" for name in self.files()} == live_files(self.world)

    def check_finished(self) -> None:
        """It is whole, no hint names another, and it stands alone."""
        super().check_finished()
        alone = self.copy()
        hint = alone.world.files.get(f"{DELTA_TABLE}/_delta_log/_last_checkpoint", b'{"version":2}')
        assert json.loads(hint)["version"] == 2
        for version in range(2):
            del alone.world.files[version_path(version)]
        assert alone.files() == ["a.parquet", "f.parquet"]

    def check_done(self) -> None:
        """No file went."""
        assert self.vacuums() == []


class TestCheckpoint(suite.Crashes):
    """Of a table that has old and young tombstones."""

    crashes = 4

    @pytest.fixture(params=["classic", "v2"])
    def scene(self, request: pytest.FixtureRequest) -> Checkpoint:
        return Checkpoint(kind=request.param)
