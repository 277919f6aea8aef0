"""Every verb that makes snapshots is stopped around each of its effects, and disturbed before each by another engine.

What must hold at any time: every snapshot that a ref names can be read whole; its rows are those that the other engine
left; a row that once had a row id keeps it along the branch; no two rows share one. When all is finished, no file of
ours is left over and a second run finds nothing to do.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from iceberg_cli.errors import (
    BackendUnavailable,
    CommitConflict,
    CorruptFile,
    IcebergCliError,
    StalePlan,
    TakenOver,
)
from iceberg_cli.iceberg.verbs import VERBS
from iceberg_cli.iceberg.verbs.assign_row_ids.policy import AssignRowIds
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
from iceberg_cli.iceberg.verbs.upgrade_v3.policy import UpgradeV3
from iceberg_cli.operation.apply import apply
from iceberg_cli.operation.ports import Planned
from iceberg_cli.operation.recovery import recover_all
from iceberg_cli.plan.report import Report
from tests.builders import NOW_MS
from tests.crash.budget import deep_unless, few_or_many, some
from tests.crash.checking import check_table
from tests.crash.engine import Engine, Lineage, Row, rows_of, snapshot_of
from tests.crash.simulation import Process, Script, World, crash

PROPERTIES = {"commit.retry.min-wait-ms": "1"}


def fragmented(engine: Engine) -> None:
    """Version 3 from the start: five appends, vectors in four Puffin files, some superseded, one branch and one tag."""
    engine.create(format_version=3, properties=PROPERTIES)
    for name in ("a", "b", "c", "d"):
        engine.append(name)
    engine.delete({"a": [1], "b": [2, 3]})
    engine.branch("eom", kind="tag")
    engine.delete({"a": [4]})
    engine.branch("audit")
    engine.append("e", ref="audit")
    engine.delete({"c": [5]})
    engine.replace("d", "d2")
    engine.delete({"d2": [0]})
    engine.append("f")


def upgraded(engine: Engine) -> None:
    """Version 2 with position deletes that cover several files each, upgraded; some files have vectors by now."""
    engine.create(format_version=2, properties=PROPERTIES)
    engine.append("a", "b")
    engine.append("c")
    engine.delete({"a": [1], "b": [2, 3], "c": [0]})
    engine.append("d")
    engine.branch("eom", kind="tag")
    engine.delete({"a": [4], "d": [9]})
    engine.branch("audit")
    engine.append("e", ref="audit")
    engine.upgrade()
    engine.delete({"b": [5]})
    engine.delete({"c": [1, 2]})
    engine.delete({"b": [6]})


def untouched(engine: Engine) -> None:
    """Version 2 with position deletes, upgraded, and no commit since: no row has an id."""
    engine.create(format_version=2, properties=PROPERTIES)
    engine.append("a", "b")
    engine.branch("eom", kind="tag")
    engine.append("c")
    engine.delete({"a": [1, 2], "c": [3]})
    engine.branch("audit")
    engine.append("d", ref="audit")
    engine.upgrade()


def second(engine: Engine) -> None:
    """Version 2."""
    engine.create(format_version=2, properties=PROPERTIES)
    engine.append("a", "b")
    engine.branch("eom", kind="tag")
    engine.append("c")
    engine.delete({"a": [1, 2], "c": [3]})
    engine.delete({"a": [5]})
    engine.append("d")


@dataclass(frozen=True)
class Case:
    """A verb as an operator would run it, on a table on which it has something to do."""

    verb: str
    policy: Mapping[str, Any]
    build: Callable[[Engine], None]

    def __str__(self) -> str:
        return f"{self.verb}-{self.build.__name__}"


CASES = [
    Case("rewrite-manifests", RewriteManifests(target_size=600_000).to_json(), fragmented),
    Case("rewrite-manifests", RewriteManifests().to_json(), upgraded),
    Case("merge-dvs", MergeDvs(min_files=2).to_json(), fragmented),
    Case("merge-dvs", MergeDvs(min_files=2).to_json(), upgraded),
    Case("upgrade-v3", UpgradeV3().to_json(), second),
    Case("upgrade-v3", UpgradeV3(recipe=("merge-dvs", "assign-row-ids")).to_json(), second),
    Case("assign-row-ids", AssignRowIds().to_json(), untouched),
    Case("assign-row-ids", AssignRowIds(share_ids=True).to_json(), untouched),
]


@dataclass(kw_only=True)
class Lake:
    """A world with a table, the engine that wrote it, and what its readers may rely on."""

    case: Case
    world: World
    engine: Engine
    rows: dict[str, set[Row]]  # by ref: what the engine left
    known: dict[str, dict[Row, Lineage]] = field(
        default_factory=dict
    )  # by manifest list, which never changes

    @classmethod
    def of(cls, case: Case) -> Lake:
        world = World()
        engine = Engine(world)
        case.build(engine)
        lake = cls(case=case, world=world, engine=engine, rows={})
        lake.note_rows()
        return lake

    def copy(self) -> Lake:
        world = self.world.copy()
        engine = Engine(world, commits=self.engine.commits)
        return Lake(case=self.case, world=world, engine=engine, rows=dict(self.rows), known=dict(self.known))

    def note_rows(self) -> None:
        """What the refs hold now is what the engine left there."""
        self.rows = {ref: {*rows} for ref, rows in self.read().items()}

    def read(self) -> dict[str, dict[Row, Lineage]]:
        """The rows of every ref."""
        document = self.engine.document
        return {
            name: self.rows_of(snapshot_of(document, ref["snapshot-id"]))
            for name, ref in document["refs"].items()
        }

    def rows_of(self, snapshot: Mapping[str, Any]) -> dict[Row, Lineage]:
        """The rows of one snapshot."""
        manifest_list = snapshot["manifest-list"]
        if manifest_list not in self.known:
            self.known[manifest_list] = rows_of(self.engine.storage, snapshot)
        return self.known[manifest_list]

    def disturb(self, act: Callable[[Engine], None]) -> Callable[[], None]:
        """Another engine's commit. What it does to rows is seen at once: our verbs change none."""

        def disturbing() -> None:
            self.check()
            act(self.engine)
            self.note_rows()

        return disturbing

    def process(self, **script: Any) -> Process:
        """A run of the program."""
        return Process(world=self.world, script=Script(**script))

    def run(self, process: Process) -> Report:
        """The verb with --yes."""
        list(recover_all(process.table, process.runtime, verbs=VERBS))
        return apply(self.plan(process), process.table, VERBS[self.case.verb], process.runtime)

    def plan(self, process: Process) -> Planned:
        """The verb's plan now."""
        verb = VERBS[self.case.verb]
        return verb.plan(process.table, verb.policy.from_json(self.case.policy), as_of_ms=NOW_MS)

    def check(self) -> set[str]:
        """What must hold at any time; returns what the table reaches."""
        found = self.read()
        assert {ref: {*rows} for ref, rows in found.items()} == self.rows
        for rows in found.values():
            ids = [row_id for row_id, _ in rows.values() if row_id is not None]
            assert len({*ids}) == len(ids)
        self.check_ids_stay()
        document = self.engine.document
        refs = {name: ref["snapshot-id"] for name, ref in document["refs"].items()}
        return check_table(self.engine.storage, self.engine.current, refs=refs)

    def check_ids_stay(self) -> None:
        """A row keeps its id and its last updated sequence number from parent to child."""
        document = self.engine.document
        snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in document["snapshots"]}
        for snapshot in snapshots.values():
            parent = snapshots.get(snapshot.get("parent-snapshot-id"))
            if parent is None:
                continue
            before, after = self.rows_of(parent), self.rows_of(snapshot)
            for row in before.keys() & after.keys():
                assert before[row][0] in (None, after[row][0]), row
                assert before[row][1] == after[row][1], row

    def finish(self) -> None:
        """Resume, run again; then nothing is due, and nothing of ours is left over."""
        process = self.process()
        process.resume()
        self.check()
        self.run(self.process())
        needed = self.check()
        assert set(self.world.files) == needed
        assert self.plan(self.process()).plan.steps == ()


def undisturbed(lake: Lake) -> list[str]:
    """The effects of a run that nothing disturbs."""
    here = lake.copy()
    process = here.process()
    here.run(process)
    return process.effects


@pytest.fixture(scope="module", params=CASES, ids=str)
def lake(request: pytest.FixtureRequest) -> Lake:
    return Lake.of(request.param)


ACTS: Mapping[str, Callable[[Engine], None]] = {
    "append": lambda engine: engine.append(f"x{engine.commits}"),
    "delete": lambda engine: engine.delete({"a": [7], "b": [7], "c": [7], "d2": [7]}),
    "compaction": lambda engine: engine.replace("a", f"y{engine.commits}"),
    "upgrade": lambda engine: engine.upgrade(),
}


def test_an_undisturbed_run_changes_no_row_and_leaves_nothing_to_do(lake: Lake) -> None:
    here = lake.copy()
    assert here.plan(here.process()).plan.due
    assert here.run(here.process()).status == "done"
    here.finish()


@few_or_many(10)
def test_a_crash_around_any_effect_is_made_good_by_resume(lake: Lake, budget: int) -> None:
    effects = undisturbed(lake)
    for number, when in some(list(itertools.product(range(len(effects)), ("before", "after"))), budget):
        here = lake.copy()
        process = here.process(**{when: {number: crash}})
        # A put of what is there already has no "after".
        assert process.dies(partial(here.run, process)) or when == "after", effects[number]
        here.check()
        here.finish()


@few_or_many(2)
@pytest.mark.parametrize("act", ACTS)
def test_another_engines_commit_before_any_effect_is_kept(lake: Lake, act: str, budget: int) -> None:
    for number in some(range(len(undisturbed(lake))), budget):
        here = lake.copy()
        with contextlib.suppress(StalePlan, CommitConflict):
            here.run(here.process(before={number: here.disturb(ACTS[act])}))
        here.finish()


@pytest.mark.parametrize("act", deep_unless(["delete"], ["delete", "compaction"]))
def test_another_engines_commit_between_our_look_and_our_swap_is_kept(lake: Lake, act: str) -> None:
    swaps = [number for number, effect in enumerate(undisturbed(lake)) if effect.startswith("swap ")]
    assert swaps
    for number in swaps:
        here = lake.copy()
        with contextlib.suppress(StalePlan, CommitConflict):
            here.run(here.process(before={number: here.disturb(ACTS[act])}))
        here.finish()


@few_or_many(2)
@pytest.mark.parametrize("act", ACTS)
def test_another_engines_commit_while_the_process_is_dead_is_kept(lake: Lake, act: str, budget: int) -> None:
    for number in some(range(len(undisturbed(lake))), budget):
        here = lake.copy()
        process = here.process(before={number: crash})
        assert process.dies(partial(here.run, process))
        here.disturb(ACTS[act])()
        with contextlib.suppress(StalePlan):
            here.process().resume()
        here.finish()


@few_or_many(4, all_of=1_000)  # of all moments there are up to 7,140, and the commits are drawn
def test_two_commits_of_others_and_a_crash_at_any_three_moments(lake: Lake, budget: int) -> None:
    draw = random.Random(11)
    moments = list(itertools.combinations(range(len(undisturbed(lake))), 3))
    for first, then, death in some(moments, budget):
        here = lake.copy()
        one, other = (ACTS[draw.choice([*ACTS])] for _ in range(2))
        before = {first: here.disturb(one), then: here.disturb(other), death: crash}
        process = here.process(before=before)
        with contextlib.suppress(StalePlan, CommitConflict):
            process.dies(partial(here.run, process))
        here.check()
        here.finish()


@few_or_many(1)
def test_a_process_that_stands_still_for_days_while_orphans_are_cleaned_commits_a_whole_table(
    lake: Lake, budget: int
) -> None:
    effects = undisturbed(lake)
    before_a_swap = [number for number in range(len(effects) - 1) if effects[number + 1].startswith("swap ")]
    for number in {*before_a_swap[:budget], *some(range(len(effects)), budget)}:
        here = lake.copy()

        def days_later(here: Lake = here) -> None:
            here.world.remove_orphans(here.check())

        # A file may go between its being written and its being read back.
        with contextlib.suppress(BackendUnavailable, CorruptFile):
            assert here.run(here.process(after={number: days_later})).status == "done"
        here.check()
        here.finish()


@few_or_many(8)
def test_a_second_process_that_resumes_at_any_moment_loses_nothing(lake: Lake, budget: int) -> None:
    for number in some(range(len(undisturbed(lake))), budget):
        here = lake.copy()
        other = here.process()
        with contextlib.suppress(TakenOver):
            here.run(here.process(before={number: other.resume}))
        here.check()
        here.finish()


@pytest.mark.parametrize("fates", [["lost"], ["lost after"], ["refused"], ["refused", "lost after"]])
def test_a_lost_answer_or_a_refusal_of_the_swap_is_made_good(lake: Lake, fates: list[str]) -> None:
    here = lake.copy()
    with contextlib.suppress(Exception):
        here.run(here.process(swaps=fates))
    here.check()
    here.finish()


def other_verb(lake: Lake, case: Case, *, settles: bool) -> Callable[[], None]:
    """Another process of this tool; where it is not told to leave open operations alone it settles them first."""

    def run() -> None:
        process = lake.process()
        with contextlib.suppress(IcebergCliError):
            if settles:
                list(recover_all(process.table, process.runtime, verbs=VERBS))
            verb = VERBS[case.verb]
            plan = verb.plan(process.table, verb.policy.from_json(case.policy), as_of_ms=NOW_MS)
            apply(plan, process.table, VERBS[case.verb], process.runtime)
        lake.check()

    return run


OTHERS = [
    *CASES[:1],
    CASES[2],
    CASES[5],
    CASES[6],
    Case("expire-snapshots", ExpireSnapshots(retain_last=1, older_than=NOW_MS).to_json(), fragmented),
]


@few_or_many(2, all_of=500)
def test_a_crash_anywhere_and_a_resume_beside_two_other_verbs(lake: Lake, budget: int) -> None:
    draw = random.Random(13)
    for death in some(range(len(undisturbed(lake))), budget):
        here = lake.copy()
        dying = here.process(before={death: crash})
        assert dying.dies(partial(here.run, dying))
        one, other = draw.sample(OTHERS, 2)
        first, second = draw.randrange(6), draw.randrange(12)
        print(f"dies before {death}; {one} before {first}, {other} before {second}")
        resuming = here.process(
            before={
                first: other_verb(here, one, settles=draw.random() < 0.5),
                first + second: other_verb(here, other, settles=draw.random() < 0.5),
            }
        )
        with contextlib.suppress(IcebergCliError):
            resuming.resume()
        here.check()
        here.finish()
