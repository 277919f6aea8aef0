"""An expiry of a table by file names in an object store, by the word that nobody else commits, stopped at any effect.

The version is one conditional create; the probe of the service, and the hint after the commit, are effects as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest

from iceberg_cli.errors import CommitStateUnknown
from iceberg_cli.iceberg.catalogs.object_store.committer import ObjectStoreCommitter
from iceberg_cli.storage.router import UnsafeOverrides
from iceberg_cli.testing.crash.world import World, crash
from tests.budget import few_or_many, some
from tests.crash import suite
from tests.crash.scenes import Expiry, Scene, a_scene_of

TABLE = "s3://lake/visits"
HINT = f"{TABLE}/metadata/version-hint.text"
VOUCHED = UnsafeOverrides(single_writer=True, conditional_writes=True)


@dataclass(kw_only=True)
class Alone(Expiry):
    """A run with both words."""

    def open_catalog(self) -> ObjectStoreCommitter:
        return ObjectStoreCommitter(TABLE, self.storage, VOUCHED)


@dataclass(kw_only=True)
class AloneScene(Scene):
    """The table by file names, in an object store."""

    process_type = Alone

    def is_commit(self, effect: str) -> bool:
        return effect.startswith("put ") and effect.endswith(".metadata.json")

    def check_finished(self) -> None:
        """The hint may be behind, and never ahead."""
        hint = self.world.files.pop(HINT, b"0")
        super().check_finished()
        assert int(hint) <= int(self.current.rpartition("/v")[2].partition(".")[0])
        self.world.files[HINT] = hint

    def the_commit(self) -> int:
        """The number of the effect that makes the version."""
        [number] = [number for number, effect in enumerate(self.undisturbed()) if self.is_commit(effect)]
        return number


@pytest.fixture(scope="module")
def scene() -> AloneScene:
    return a_scene_of(AloneScene, location=TABLE, catalog=False)


class TestSingleWriter(suite.Undisturbed, suite.Crashes, suite.SecondCrashes, suite.Days):
    """What can go is gone, what the table needs stays, and files of other tables are not touched."""

    crashes = 4
    second_crashes = 4


def test_the_service_is_probed_before_the_commit_and_the_hint_comes_after_it(scene: AloneScene) -> None:
    effects = scene.undisturbed()
    commit = scene.the_commit()
    probes = [number for number, effect in enumerate(effects) if "/probe-" in effect]
    assert len(probes) == 3
    assert max(probes) < commit
    assert effects[commit + 1 :].count(f"replace {HINT}") == 1


@pytest.mark.parametrize("when", ["before resume", "after resume", "never"])
def test_a_create_without_an_answer_is_unknown_and_does_no_harm_whenever_it_comes_in(
    scene: AloneScene, when: str
) -> None:
    here = scene.copy()
    process = here.process()
    held = process.storage.hold(here.the_commit())
    with pytest.raises(CommitStateUnknown):
        process.run()
    here.check()
    [(path, data)] = held.items()
    if when == "before resume":
        arrive(here.world, path, data)
    here.process().resume()
    if when == "after resume":
        arrive(here.world, path, data)
    here.check()
    here.finish()


@few_or_many(3)
def test_a_create_that_comes_in_while_another_process_resumes(scene: AloneScene, budget: int) -> None:
    """At any of its effects, and whether it dies there."""
    here = scene.copy()
    process = here.process()
    held = process.storage.hold(here.the_commit())
    with pytest.raises(CommitStateUnknown):
        process.run()
    [(path, data)] = held.items()
    trial = here.copy().process()
    trial.resume()
    for number, _ in some(list(enumerate(trial.effects)), budget):
        for dies in (False, True):
            there = here.copy()
            acts = {number: partial(arrive, there.world, path, data)}
            resuming = there.process(before=acts, after={number: crash} if dies else {})
            resuming.dies(resuming.resume)
            there.check()
            there.finish()


def arrive(world: World, path: str, data: bytes) -> None:
    """The conditional create is carried out."""
    if path not in world.files:
        world.write(path, data)
