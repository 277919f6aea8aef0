"""Every Delta verb stopped around every effect, raced, its answers lost or late: the table is never a wrong one."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial

import pytest

from iceberg_cli.errors import (
    BackendUnavailable,
    CommitConflict,
    CommitStateUnknown,
    IcebergCliError,
    Refused,
    StalePlan,
    TakenOver,
)
from iceberg_cli.testing.crash.delta_reader import COMMIT, LOG, commits, is_ours
from iceberg_cli.testing.crash.world import DELTA_TABLE, Script, crash
from tests.budget import deep_unless, few_or_many, some
from tests.crash.delta_scenes import RACES, VERBS_ASKED, Scene, ours

verbs = pytest.mark.parametrize("name", VERBS_ASKED)


@verbs
def test_a_run_that_nothing_disturbs_leaves_nothing_to_do(name: str) -> None:
    scene, verb = Scene(), VERBS_ASKED[name]
    assert verb.process(scene.world).run().status == "done"
    scene.check()
    scene.check_done(verb)
    scene.finish(verb)


@verbs
@few_or_many(4)
def test_a_crash_around_any_effect(name: str, budget: int) -> None:
    verb = VERBS_ASKED[name]
    trace = verb.effects()
    for side, number in some([(s, n) for s in ("before", "after") for n in range(len(trace))], budget):
        scene = Scene()
        process = verb.process(scene.world, Script(**{side: {number: crash}}))
        # Nothing follows an effect that finds its file there already.
        assert process.dies(process.run) or trace.count(trace[number]) > 1, trace[number]
        scene.check()
        scene.finish(verb)
        scene.check_done(verb)


@verbs
@few_or_many(3)
def test_a_second_crash_while_the_first_is_resumed(name: str, budget: int) -> None:
    verb = VERBS_ASKED[name]
    length = len(verb.effects())
    for first, second in some([(f, s) for f in range(length) for s in range(length)], budget):
        scene = Scene()
        process = verb.process(scene.world, Script(after={first: crash}))
        process.dies(process.run)
        resuming = verb.process(scene.world, Script(before={second: crash}))
        resuming.dies(resuming.run)
        scene.check()
        scene.finish(verb)
        scene.check_done(verb)


@verbs
@few_or_many(3)
def test_a_second_process_that_resumes_at_any_moment_and_the_first_that_goes_on(
    name: str, budget: int
) -> None:
    verb = VERBS_ASKED[name]
    for number in some(range(len(verb.effects())), budget):
        scene = Scene()
        other = verb.process(scene.world)
        process = verb.process(scene.world, Script(before={number: other.resume}))
        with suppress(TakenOver):
            process.run()
        scene.check()
        scene.finish(verb)
        scene.check_done(verb)


@verbs
@few_or_many(2, all_of=500)
def test_a_crash_anywhere_and_a_resume_beside_two_other_verbs(name: str, budget: int) -> None:
    verb, draw = VERBS_ASKED[name], random.Random(17)
    for death in some(range(len(verb.effects())), budget):
        scene = Scene()
        dying = verb.process(scene.world, Script(before={death: crash}))
        assert dying.dies(dying.run)
        one, other = draw.sample(sorted({*VERBS_ASKED} - {name}), 2)
        first, second = draw.randrange(6), draw.randrange(12)
        print(f"dies before {death}; {one} before {first}, {other} before {second}")

        def beside(another: str, scene: Scene = scene, *, settles: bool = draw.random() < 0.5) -> None:
            with suppress(IcebergCliError):
                if settles:
                    VERBS_ASKED[another].process(scene.world).run()
                else:
                    ours(another)(scene)
            scene.check()

        before = {first: partial(beside, one), first + second: partial(beside, other)}
        with suppress(IcebergCliError):
            verb.process(scene.world, Script(before=before)).resume()
        scene.check()
        scene.finish(verb)


@verbs
@few_or_many(4)
def test_another_writer_before_any_effect(name: str, budget: int) -> None:
    verb = VERBS_ASKED[name]
    trace = verb.effects()
    for race, number in some([(r, n) for r in RACES for n in range(len(trace))], budget):
        # Between the last look and the deletions of one batch nothing can help: that is what retention is for.
        if race == "restore" and trace[number].removeprefix("delete ") in verb.goes:
            continue
        scene = Scene()
        process = verb.process(scene.world, Script(before={number: partial(RACES[race], scene)}))
        print(f"{race} before {trace[number]}")
        with suppress(CommitConflict, Refused, StalePlan, TakenOver):
            process.run()
        scene.check()
        scene.finish(verb)


@verbs
@pytest.mark.parametrize(
    "race", deep_unless(["delete rows"], ["delete rows", "delete rows without vector", "remove"])
)
def test_a_delete_between_our_look_and_our_commit_is_kept(name: str, race: str) -> None:
    verb = VERBS_ASKED[name]
    trace = verb.effects()
    for number in [
        n for n, effect in enumerate(trace) if COMMIT.fullmatch(effect.removeprefix(f"put {LOG}"))
    ]:
        scene = Scene()
        process = verb.process(scene.world, Script(before={number: partial(RACES[race], scene)}))
        with suppress(CommitConflict, Refused, StalePlan):
            process.run()
        scene.check()
        scene.finish(verb)


@verbs
@few_or_many(3)
def test_another_writer_between_a_crash_and_what_goes_on(name: str, budget: int) -> None:
    verb = VERBS_ASKED[name]
    trace = verb.effects()
    for race, number in some([(r, n) for r in RACES for n in range(len(trace))], budget):
        scene = Scene()
        process = verb.process(scene.world, Script(after={number: crash}))
        process.dies(process.run)
        print(f"{race} after {trace[number]}")
        with suppress(Refused):
            RACES[race](scene)
        scene.check()
        scene.finish(verb)


def test_a_compaction_whose_commits_a_log_cleanup_took_meanwhile_is_left_out() -> None:
    verb = VERBS_ASKED["classic"]
    number = verb.effects().index(f"put {LOG}{3:020}.crc")
    scene = Scene()
    process = verb.process(scene.world, Script(before={number: partial(RACES["vacuum"], scene)}))
    report = process.run()
    assert commits(scene.world.files)[0] == 3
    assert (report.status, report.counts["added_compactions_count"]) == ("done", 0)
    scene.check()
    scene.finish(verb)


def test_a_file_of_vectors_that_a_version_names_is_never_discarded_whoever_made_it() -> None:
    scene, verb = Scene(), VERBS_ASKED["merge"]
    report = verb.process(scene.world).run()
    assert report.operation_id is not None
    new = sorted(path for path in scene.world.files if path.endswith(".bin") and path not in scene.before)
    assert len(new) == 2
    verb.process(scene.world).table.workspace.discard(new, marks=[report.operation_id])
    assert scene.world.files.keys() >= set(new)
    RACES["remove"](scene)  # the vectors of b are a tombstone's
    verb.process(scene.world).table.workspace.discard(new, marks=[report.operation_id])
    scene.check()
    assert scene.world.files.keys() >= set(new)


@verbs
@few_or_many(2)
def test_a_feature_that_nobody_knows_stops_the_verb_at_any_effect(name: str, budget: int) -> None:
    verb = VERBS_ASKED[name]
    trace = verb.effects()
    for number in some(range(len(trace)), budget):
        scene = Scene()

        def act(scene: Scene = scene) -> None:
            protocol = scene.state().protocol
            features = [*protocol["writerFeatures"], "from the future"]
            scene.commit({"protocol": {**protocol, "writerFeatures": features}})

        process = verb.process(scene.world, Script(before={number: act}))
        with suppress(Refused, CommitConflict):
            process.run()
        scene.check()
        there = {path for path in scene.world.files if path.rpartition("/")[0] == DELTA_TABLE}
        with suppress(Refused):
            verb.process(scene.world).resume()
        plan = verb.process(scene.world).plan().plan
        assert plan.blocked_by or not plan.due
        scene.check()
        assert not is_ours(scene.world.files, scene.newest), trace[number]
        assert there <= set(scene.world.files)


def down() -> None:
    """An act: the storage does not answer."""
    raise BackendUnavailable("Cannot reach the storage: no answer")


@verbs
@few_or_many(4)
def test_an_effect_without_an_answer_whether_it_happened_or_not(name: str, budget: int) -> None:
    verb = VERBS_ASKED[name]
    trace = verb.effects()
    for side, number in some([(s, n) for s in ("before", "after") for n in range(len(trace))], budget):
        scene = Scene()
        with suppress(IcebergCliError):
            verb.process(scene.world, Script(**{side: {number: down}})).run()
        scene.check()
        scene.finish(verb)
        scene.check_done(verb)


@verbs
@few_or_many(3)
def test_a_put_without_an_answer_that_happens_later(name: str, budget: int) -> None:
    """Before the next process looks, or when everything is over: put-if-absent all the same."""
    verb = VERBS_ASKED[name]
    # A journal's record that arrives after the journal is gone is told of as a journal that lacks records.
    puts = [
        number
        for number, effect in enumerate(verb.effects())
        if effect.startswith("put ") and "/_iceberg_cli/" not in effect
    ]
    for when, number in some([(w, n) for w in ("soon", "late") for n in puts], budget):
        scene = Scene()
        process = verb.process(scene.world)
        held = process.storage.hold(number)
        with suppress(IcebergCliError):
            process.run()
        scene.check()
        if when == "late":
            with suppress(CommitStateUnknown):
                scene.finish(verb)
        for path, data in held.items():
            scene.world.files.setdefault(path, data)
            scene.raced |= {path} if path.startswith(f"{DELTA_TABLE}/deletion_vector_") else set()
        scene.check()
        scene.finish(verb)
        scene.check_done(verb)
