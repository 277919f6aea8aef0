"""Every Delta verb stopped around every effect, raced, its answers lost or late: the table is never a wrong one."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest

from iceberg_cli.errors import (
    BackendUnavailable,
    CommitConflict,
    CommitStateUnknown,
    IcebergCliError,
    Refused,
)
from iceberg_cli.testing.crash.delta_reader import LOG, commits, is_ours
from iceberg_cli.testing.crash.world import DELTA_TABLE
from tests.budget import deep_unless, few_or_many, some
from tests.crash import suite
from tests.crash.delta_scenes import RACES, VERBS_ASKED, Scene


@pytest.fixture(params=VERBS_ASKED)
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(request.param)


class TestVerbs(
    suite.Undisturbed,
    suite.Crashes,
    suite.SecondCrashes,
    suite.Commits,
    suite.CommitsMeanwhile,
    suite.CommitsAtTheSwap,
    suite.Rivals,
):
    """Every verb, on a table on which it has something to do."""

    crashes = 3
    second_crashes = 2
    commits = 1
    commits_meanwhile = 1
    resumes = 2

    @pytest.fixture(params=RACES)
    def act(self, request: pytest.FixtureRequest) -> suite.Act:
        return RACES[request.param]

    @pytest.fixture(
        params=deep_unless(["delete rows"], ["delete rows", "delete rows without vector", "remove"])
    )
    def act_at_the_swap(self, request: pytest.FixtureRequest) -> suite.Act:
        return RACES[request.param]


def test_a_compaction_whose_commits_a_log_cleanup_took_meanwhile_is_left_out() -> None:
    scene = Scene("classic")
    number = scene.undisturbed().index(f"put {LOG}{3:020}.crc")
    report = scene.process(before={number: partial(RACES["vacuum"], scene)}).run()
    assert commits(scene.world.files)[0] == 3
    assert (report.status, report.counts["added_compactions_count"]) == ("done", 0)
    scene.check()
    scene.finish()


def test_a_file_of_vectors_that_a_version_names_is_never_discarded_whoever_made_it() -> None:
    scene = Scene("merge")
    report = scene.process().run()
    assert report.operation_id is not None
    new = sorted(path for path in scene.world.files if path.endswith(".bin") and path not in scene.before)
    assert len(new) == 2
    scene.process().table.workspace.discard(new, marks=[report.operation_id])
    assert scene.world.files.keys() >= set(new)
    RACES["remove"](scene)  # the vectors of b are a tombstone's
    scene.process().table.workspace.discard(new, marks=[report.operation_id])
    scene.check()
    assert scene.world.files.keys() >= set(new)


@pytest.mark.few(3)
@few_or_many(2)
def test_a_feature_that_nobody_knows_stops_the_verb_at_any_effect(scene: Scene, budget: int) -> None:
    effects = scene.undisturbed()
    for number in some(range(len(effects)), budget):
        here = scene.copy()

        def act(here: Scene = here) -> None:
            protocol = here.state().protocol
            features = [*protocol["writerFeatures"], "from the future"]
            here.commit({"protocol": {**protocol, "writerFeatures": features}})

        with suppress(Refused, CommitConflict):
            here.process(before={number: act}).run()
        here.check()
        there = {path for path in here.world.files if path.rpartition("/")[0] == DELTA_TABLE}
        with suppress(Refused):
            here.process().resume()
        plan = here.process().plan().plan
        assert plan.blocked_by or not plan.due
        here.check()
        assert not is_ours(here.world.files, here.newest), effects[number]
        assert there <= set(here.world.files)


@pytest.mark.few(3)
def test_a_put_of_a_version_without_an_answer_is_settled(scene: Scene) -> None:
    versions = [effect.removeprefix("put ") for effect in scene.undisturbed() if scene.is_commit(effect)]
    assert bool(versions) == scene.makes_versions
    for version in versions:
        here, reasons = scene.copy(), ["no answer"]

        def lose(path: str, version: str = version, reasons: list[str] = reasons) -> str | None:
            return reasons.pop() if path == version and reasons else None

        with pytest.raises(CommitStateUnknown):
            here.process(fail_put=lose).run()
        here.check()
        here.finish()
        here.check_done()


def down() -> None:
    """An act: the storage does not answer."""
    raise BackendUnavailable("Cannot reach the storage: no answer")


@pytest.mark.pairs
@few_or_many(2)
@suite.around
def test_an_effect_without_an_answer_whether_it_happened_or_not(scene: Scene, side: str, budget: int) -> None:
    for number in some(range(len(scene.undisturbed())), budget):
        here = scene.copy()
        with suppress(IcebergCliError):
            here.process(**{side: {number: down}}).run()
        here.check()
        here.finish()
        here.check_done()


@pytest.mark.few(3)
@few_or_many(1, many=12)
def test_a_put_without_an_answer_that_happens_later(scene: Scene, budget: int) -> None:
    """Before the next process looks, or when everything is over: put-if-absent all the same."""
    # A journal's record that arrives after the journal is gone is told of as a journal that lacks records.
    puts = [
        number
        for number, effect in enumerate(scene.undisturbed())
        if effect.startswith("put ") and "/_iceberg_cli/" not in effect
    ]
    for when, number in some([(w, n) for w in ("soon", "late") for n in puts], budget):
        here = scene.copy()
        process = here.process()
        held = process.storage.hold(number)
        with suppress(IcebergCliError):
            process.run()
        here.check()
        if when == "late":
            with suppress(CommitStateUnknown):
                here.finish()
        for path, data in held.items():
            here.world.files.setdefault(path, data)
            here.raced |= {path} if path.startswith(f"{DELTA_TABLE}/deletion_vector_") else set()
        here.check()
        here.finish()
        here.check_done()
