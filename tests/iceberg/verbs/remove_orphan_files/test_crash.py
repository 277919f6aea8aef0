"""A run is stopped around each of its effects, and runs beside what other verbs have left when they were stopped."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import pytest

from iceberg_cli.errors import CommitStateUnknown, IcebergCliError
from iceberg_cli.iceberg.verbs.remove_orphan_files.policy import RemoveOrphanFiles
from iceberg_cli.paths import HISTORY_FOLDER
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import Script, World, crash
from tests.budget import few_or_many, some
from tests.builders import DAY_MS, LOCATION, NOW_MS
from tests.crash import scenes, suite
from tests.crash.lakes import CASES, Lake
from tests.iceberg.verbs.remove_orphan_files.tables import LIVE, OLD_MS, ORPHAN, VERB, name_of
from tests.iceberg.verbs.rewrite_data_files import test_crash as rewriting
from tests.iceberg.verbs.rewrite_data_files.writers import comparable
from tests.paths import besides_history

POLICY = RemoveOrphanFiles()
ADOPTED = "adopted"
GOES = {f"{LOCATION}/data/{name_of(number)}" for number in range(5)} | {
    f"{LOCATION}/data/{ADOPTED}.parquet",
    f"{LOCATION}/metadata/{name_of('m', ending='-m0.avro')}",
    f"{LOCATION}/metadata/{name_of('s', ending='.stats')}",
}
STAYS = {
    f"{LOCATION}/data/{LIVE}": NOW_MS - DAY_MS,
    f"{LOCATION}/data/_temporary/{name_of('hidden')}": NOW_MS - OLD_MS,
    f"{LOCATION}/data/_SUCCESS": NOW_MS - OLD_MS,
    f"{LOCATION}/elsewhere/{name_of('elsewhere')}": NOW_MS - OLD_MS,
}


@dataclass(kw_only=True)
class Run(Process):
    """A run of the verb."""

    verb: str = VERB
    policy: Any = POLICY


@dataclass(kw_only=True)
class Scene(scenes.Scene):
    """The table of expiries, with files that nobody names, and others that stay."""

    process_type = Run
    verb = VERB
    policy = POLICY
    makes_versions: ClassVar[bool] = False

    kept: set[int] = field(default_factory=lambda: {*range(1, 8)})
    adopted: bool = False

    def copy(self) -> Self:
        here = super().copy()
        here.adopted = self.adopted
        return here

    def adopt(self) -> None:
        """Another writer commits one of the files, while it is there."""
        self.adopted = f"{LOCATION}/data/{ADOPTED}.parquet" in self.world.files
        self.foreign_append(again=ADOPTED if self.adopted else "")

    def is_too_late(self, act: suite.Act, effect: str) -> bool:
        """Between the last look and the deletion nothing helps."""
        return act is Scene.adopt and effect.startswith("delete ")

    def check(self) -> set[str]:
        needed = super().check()
        assert self.world.files.keys() >= STAYS.keys()
        return needed

    def check_finished(self) -> None:
        needed = self.check()
        assert besides_history(self.world.files) - scenes.CANARIES.keys() == needed | STAYS.keys()
        self.check_history()

    def check_history(self) -> None:
        """One record of each operation that has ended."""
        records = [path for path in self.world.files if f"{HISTORY_FOLDER}/" in path]
        ids = Counter(path.rpartition("/")[2].partition(".")[0][-36:] for path in records)
        assert ids
        assert set(ids.values()) == {1}

    def check_done(self) -> None:
        assert not GOES & self.world.files.keys()
        deleted = [path for path in self.world.deleted if "/_iceberg_cli/" not in path]
        assert sorted(deleted) == sorted(GOES)


@pytest.fixture(scope="module", params=[True, False], ids=["catalog", "folder"])
def scene(request: pytest.FixtureRequest) -> Scene:
    found = scenes.a_scene_of(Scene, catalog=request.param)
    for path in (*GOES, *STAYS):
        found.world.files[path] = b"ten bytes."
    found.world.written_ms = dict.fromkeys(found.world.files, NOW_MS - OLD_MS) | STAYS
    return found


class TestRemoval(
    suite.Undisturbed, suite.Crashes, suite.SecondCrashes, suite.Commits, suite.CommitsMeanwhile
):
    """What nobody names is gone once, what the table needs and what is kept stays."""

    crashes = 4
    second_crashes = 4
    commits = 4
    commits_meanwhile = 3

    @pytest.fixture(params=["append", "adopt"])
    def act(self, request: pytest.FixtureRequest) -> suite.Act:
        return {"append": Scene.foreign_append, "adopt": Scene.adopt}[request.param]


@few_or_many(6)
def test_two_runs_side_by_side_take_the_same_files_and_no_others(scene: Scene, budget: int) -> None:
    for number, effect in some([*enumerate(scene.undisturbed())], budget):
        here = scene.copy()
        print(f"before {effect}")
        other = here.process()
        with suppress(IcebergCliError):
            here.process(before={number: lambda other=other: other.run(settle=False)}).run()
        here.check()
        here.finish()
        assert not GOES & here.world.files.keys()


@few_or_many(6)
def test_a_second_run_that_resumes_the_first_one_takes_it_over(scene: Scene, budget: int) -> None:
    for number in some(range(len(scene.undisturbed())), budget):
        here = scene.copy()
        other = here.process()
        with suppress(IcebergCliError):
            here.process(before={number: other.run}).run()
        here.finish()
        assert not GOES & here.world.files.keys()


# -- beside what others have left ------------------------------------------------------------------------------------


def remove_beside(world: World) -> bool:
    """A run that leaves open operations alone, when all is old and one file is nobody's; whether that went."""
    orphan = f"{LOCATION}/data/{ORPHAN}"
    world.files[orphan] = b"ten bytes."
    world.written_ms = dict.fromkeys(world.files, NOW_MS - OLD_MS)
    before = set(world.files)
    with suppress(IcebergCliError):
        Run(world=world).run(settle=False)
    lost = {path for path in before - set(world.files) if "/_iceberg_cli/" not in path}
    assert lost <= {orphan}
    world.files.pop(orphan, None)
    return bool(lost)


@pytest.mark.few(3)
@pytest.mark.parametrize("case", CASES, ids=str)
@few_or_many(5)
def test_files_that_a_stopped_operation_has_made_stay_until_it_goes_on(case: Any, budget: int) -> None:
    lake, went = Lake.of(case), 0
    for number, effect in some([*enumerate(lake.undisturbed())], budget):
        here = lake.copy()
        dying = here.process(before={number: crash})
        assert dying.dies(dying.run), effect
        went += remove_beside(here.world)
        here.check()
        here.finish()
    assert went, "no file goes: this proves nothing"


@few_or_many(8)
def test_files_of_an_expiry_that_was_stopped_stay_for_it(budget: int) -> None:
    scene, went = scenes.a_scene(), 0
    for number, effect in some([*enumerate(scene.undisturbed())], budget):
        here = scene.copy()
        dying = here.process(before={number: crash})
        assert dying.dies(dying.run), effect
        went += remove_beside(here.world)
        here.check()
        here.finish()
    assert went, "no file goes: this proves nothing"


@few_or_many(8)
def test_files_of_a_rewrite_that_was_stopped_stay_until_it_goes_on(budget: int) -> None:
    went = 0
    for number in some(range(rewriting.effects(2, "pointer")), budget):
        world = rewriting.a_world(2)
        before = rewriting.rows(world)
        dying = rewriting.Rewriter(world=world, script=Script(before={number: crash}))
        assert dying.dies(dying.run)
        went += remove_beside(world)
        rewriting.Rewriter(world=world).resume()
        same = [comparable(rows, with_ids=False) for rows in (rewriting.rows(world), before)]
        assert same[0] == same[1]
    assert went, "no file goes: this proves nothing"


@pytest.mark.parametrize("fate", ["lost", "lost after", "down"])
@pytest.mark.parametrize("case", CASES[::2], ids=str)
def test_files_of_a_commit_without_an_answer_stay(case: Any, fate: str) -> None:
    here = Lake.of(case)
    with suppress(IcebergCliError):
        here.process(swaps=[fate]).run()
    remove_beside(here.world)
    here.check()
    here.finish()


@pytest.mark.parametrize("case", CASES[::2], ids=str)
def test_files_of_a_request_that_comes_in_late_stay(case: Any) -> None:
    """What becomes of it is not known, and it may replace what is committed meanwhile: no file goes."""
    here = Lake.of(case)
    here.world.served = True
    with pytest.raises(CommitStateUnknown):
        here.process(swaps=["late"]).run()
    assert not remove_beside(here.world)
    here.world.arrive()
    here.check()
    here.finish()
