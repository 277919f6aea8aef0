"""merge-dvs is stopped around every effect that it has, and other writers commit before every one of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from iceberg_cli.iceberg.catalogs.folder_versions import find_current
from iceberg_cli.iceberg.verbs import VERBS
from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
from iceberg_cli.operation.apply import apply
from iceberg_cli.plan.documents import plan_from_json
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import Script, SimStorage, World, crash
from iceberg_cli.testing.iceberg_reader import reachable
from tests.budget import few_or_many, some
from tests.builders import LOCATION, NOW_MS
from tests.delete_tables import DeleteTable
from tests.scan_planning import entries_of, view

POLICY = MergeDvs(min_files=2, target_size=600)
ONE_BY_ONE = MergeDvs(target_size=1)  # a Puffin file for each deletion vector
Seen = dict[str, tuple[Any, ...]]


@dataclass
class Here:
    """A world with a table in it, and the other writer."""

    world: World
    commits: int = 0
    format_version: int = 3

    def copy(self) -> Here:
        return Here(self.world.copy(), self.commits, self.format_version)

    @property
    def storage(self) -> SimStorage:
        return SimStorage(self.world, Script())

    def current(self) -> tuple[str, dict[str, Any]]:
        location = find_current(LOCATION, self.storage).location
        return location, json.loads(self.storage.read(location))

    def seen(self) -> Seen:
        return view(self.storage.read, self.current()[1])

    def writer(self) -> DeleteTable:
        """Another writer, who has just looked at the table."""
        location, document = self.current()
        table = DeleteTable(storage=self.storage, location=LOCATION, format_version=self.format_version)
        table.reload(document, int(location.rpartition("/v")[2].partition(".")[0]))
        return table

    def commit(self, change: Callable[[DeleteTable, Seen], None]) -> None:
        """The other writer commits on top of whatever is current."""
        table = self.writer()
        change(table, {path.rpartition("/")[2].partition(".")[0]: seen for path, seen in self.seen().items()})
        self.commits += 1
        table.commit(1_000 + self.commits)
        table.publish()

    def check_tidy(self) -> None:
        """Nothing is there but what the table reaches."""
        location, _ = self.current()
        versions = {path for path in self.world.files if path.endswith(".metadata.json")}
        hint = {f"{LOCATION}/metadata/version-hint.text"}
        # What the writer of the table has left behind before: files of deletes that no snapshot had.
        assert set(self.world.files) - versions - hint <= reachable(self.storage, location)


@dataclass(kw_only=True)
class Merger(Process):
    """One run of merge-dvs."""

    verb: str = "merge-dvs"
    policy: MergeDvs = POLICY

    def settle(self) -> None:
        self.resume()


@pytest.fixture(scope="module")
def here() -> Here:
    """Position delete files with and without deletion vectors beside them, small Puffin files, dangling deletes."""
    world = World()
    table = DeleteTable(
        storage=SimStorage(world, Script()), location=LOCATION, properties={"commit.retry.min-wait-ms": "1"}
    )
    for name in "abcd":
        table.data(name, 100, k="x")
    table.data("e", 50)
    table.data("f", 50)
    table.commit(1)
    table.positions("p1", {"a": [1, 2], "b": [5]}, k="x")
    table.positions("p2", {"e": [3], "g": [1]})
    table.commit(2)
    table.positions("p3", {"a": [7], "d": [8]}, k="x")
    table.commit(3)
    table.vectors("v1", {"b": [5, 6]}, k="x")
    table.vectors("v2", {"c": [0]}, k="x")
    table.commit(4)
    table.vectors("v3", {"f": [9]})
    table.commit(5)
    table.remove("c", vectors=False)
    table.commit(6)
    table.publish()
    return Here(world)


def test_undisturbed_it_changes_nothing_that_readers_see(here: Here) -> None:
    there = here.copy()
    process = Merger(world=there.world)
    assert process.run().status == "done"
    assert there.seen() == here.seen()
    there.check_tidy()
    assert Merger(world=there.world).run().status == "nothing_to_do"


def effects_of(here: Here, asked: MergeDvs = POLICY) -> list[str]:
    process = Merger(world=here.copy().world, policy=asked)
    process.run()
    return process.effects


@few_or_many(10)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_around_any_effect_is_made_good(here: Here, when: str, budget: int) -> None:
    for number, effect in some(list(enumerate(effects_of(here))), budget):
        there = here.copy()
        process = Merger(world=there.world, script=Script(**{when: {number: crash}}))  # type: ignore[arg-type]
        assert process.dies(process.run), effect
        assert there.seen() == here.seen(), effect
        Merger(world=there.world).resume()
        Merger(world=there.world).run()
        assert there.seen() == here.seen(), effect
        there.check_tidy()
        assert Merger(world=there.world).run().status == "nothing_to_do"


def a_delete(table: DeleteTable, seen: Seen) -> None:
    """A writer of version 3: the new vector holds all that was deleted before."""
    table.vectors("new1", {"a": seen["a"][1] | {30}}, k="x")


def deletes_everywhere(table: DeleteTable, seen: Seen) -> None:
    table.vectors("new2", {name: seen[name][1] | {31} for name in ("a", "b", "d")}, k="x")
    table.vectors("new3", {name: seen[name][1] | {31} for name in ("e", "f")})


def an_update(table: DeleteTable, seen: Seen) -> None:
    a_delete(table, seen)
    table.data("updated", 1, k="x")


def a_compaction(table: DeleteTable, seen: Seen) -> None:
    table.remove("a", "b")
    table.data("compacted", 200 - len(seen["a"][1] | seen["b"][1]), k="x")


def an_append(table: DeleteTable, seen: Seen) -> None:
    table.data("more", 10, k="x")
    table.data("most", 10)


OTHERS = (a_delete, deletes_everywhere, an_update, a_compaction, an_append)


@few_or_many(5)
@pytest.mark.parametrize("asked", [POLICY, ONE_BY_ONE], ids=["few files", "many files"])
@pytest.mark.parametrize("other", OTHERS)
def test_another_writers_commit_before_any_effect_keeps_its_deletes_and_its_rows(
    here: Here, other: Callable[[DeleteTable, Seen], None], asked: MergeDvs, budget: int
) -> None:
    for number, effect in some(list(enumerate(effects_of(here, asked))), budget):
        there = here.copy()
        expected: list[Seen] = []

        def disturb(there: Here = there, expected: list[Seen] = expected) -> None:
            there.commit(other)
            expected.append(there.seen())

        process = Merger(world=there.world, script=Script(before={number: disturb}), policy=asked)
        report = process.run()
        assert report.status in ("done", "nothing_to_do"), effect
        assert there.seen() == expected[0], effect
        there.check_tidy()
        Merger(world=there.world).run()
        assert there.seen() == expected[0], effect


@few_or_many(5)
@pytest.mark.parametrize("other", OTHERS)
def test_another_writers_commit_before_a_crash_is_kept_when_the_operation_is_resumed(
    here: Here, other: Callable[[DeleteTable, Seen], None], budget: int
) -> None:
    for number, effect in some(list(enumerate(effects_of(here))), budget):
        there = here.copy()
        process = Merger(world=there.world, script=Script(before={number: crash}))
        assert process.dies(process.run)
        there.commit(other)
        expected = there.seen()
        Merger(world=there.world).resume()
        assert there.seen() == expected, effect
        Merger(world=there.world).run()
        assert there.seen() == expected, effect
        there.check_tidy()


@few_or_many(8)
@pytest.mark.parametrize("other", [a_delete, a_compaction])
def test_another_writers_commit_while_a_saved_plan_is_carried_out_is_kept(
    here: Here, other: Callable[[DeleteTable, Seen], None], budget: int
) -> None:
    planning = Merger(world=here.copy().world)
    made = VERBS["merge-dvs"].plan(planning.table, ONE_BY_ONE, as_of_ms=NOW_MS).plan
    saved = plan_from_json(made.to_json(), removals=made.removals, path="plan.json")
    for number, effect in some(list(enumerate(effects_of(here, ONE_BY_ONE))), budget):
        there = here.copy()
        expected: list[Seen] = []

        def disturb(there: Here = there, expected: list[Seen] = expected) -> None:
            there.commit(other)
            expected.append(there.seen())

        process = Merger(world=there.world, script=Script(before={number: disturb}))
        verb = VERBS["merge-dvs"]
        planned = verb.plan(process.table, ONE_BY_ONE, as_of_ms=NOW_MS, within=saved)
        apply(planned, process.table, verb, process.runtime)
        assert there.seen() == expected[0], effect
        there.check_tidy()


# -- before version 3 --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def version_2() -> Here:
    """Two position delete files that dangle, one that is needed, in one manifest; equality deletes."""
    world = World()
    table = DeleteTable(
        storage=SimStorage(world, Script()), location=LOCATION, format_version=2,
        properties={"commit.retry.min-wait-ms": "1"},
    )  # fmt: skip
    for name in "abc":
        table.data(name, 100)
    table.commit(1)
    table.positions("needed", {"a": [1, 2], "g": [5]})
    table.positions("gone", {"b": [3], "g": [1]})
    table.positions("never", {"h": [4]})
    table.equality("e")
    table.commit(2)
    table.remove("b")
    table.commit(3)
    table.publish()
    return Here(world, format_version=2)


def delete_names(there: Here) -> set[str]:
    entries = entries_of(there.storage.read, there.current()[1])
    return {entry["file_path"].rpartition("/")[2] for entry in entries if entry["content"]}


def added_as_old(table: DeleteTable, _: Seen) -> None:
    """A compaction that keeps the sequence number of what it replaces: older deletes apply to what it adds."""
    table.remove("a", "c")
    table.data("g", 50, sequence_number=2)


def added_as_new(table: DeleteTable, _: Seen) -> None:
    table.data("g", 50)


def more_deletes(table: DeleteTable, _: Seen) -> None:
    table.positions("more", {"a": [7], "c": [8]})


def a_table_wiped(table: DeleteTable, _: Seen) -> None:
    table.remove("a", "c")


NEEDED, E = "needed-deletes.parquet", "e-eq-deletes.parquet"


@pytest.mark.parametrize(
    ("other", "left"),
    [
        (added_as_old, {NEEDED, "gone-deletes.parquet", E}),
        pytest.param(added_as_new, {NEEDED, E}, marks=pytest.mark.deep),
        (more_deletes, {NEEDED, "more-deletes.parquet", E}),
        pytest.param(a_table_wiped, {E}, marks=pytest.mark.deep),
    ],
)
def test_what_dangles_is_decided_again_on_what_another_writer_committed(
    version_2: Here, other: Callable[[DeleteTable, Seen], None], left: set[str]
) -> None:
    effects = effects_of(version_2)
    swap = max(number for number, effect in enumerate(effects) if "metadata.json" in effect)
    for number, effect in enumerate(effects):
        there = version_2.copy()
        expected: list[Seen] = []

        def disturb(there: Here = there, expected: list[Seen] = expected) -> None:
            there.commit(other)
            expected.append(there.seen())

        process = Merger(world=there.world, script=Script(before={number: disturb}))
        assert process.run().status in ("done", "nothing_to_do"), effect
        assert there.seen() == expected[0], effect
        there.check_tidy()
        Merger(world=there.world).run()
        assert there.seen() == expected[0], effect
        # After the swap the file is out of the table: what is added later with an old number has its own rows alone.
        assert delete_names(there) == left - ({"gone-deletes.parquet"} if number > swap else set()), effect


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.deep), "after"])
def test_a_crash_while_dangling_deletes_go_is_made_good(version_2: Here, when: str) -> None:
    for number, effect in enumerate(effects_of(version_2)):
        there = version_2.copy()
        process = Merger(world=there.world, script=Script(**{when: {number: crash}}))  # type: ignore[arg-type]
        assert process.dies(process.run), effect
        assert there.seen() == version_2.seen(), effect
        Merger(world=there.world).resume()
        Merger(world=there.world).run()
        assert there.seen() == version_2.seen(), effect
        assert delete_names(there) == {NEEDED, E}
        there.check_tidy()
