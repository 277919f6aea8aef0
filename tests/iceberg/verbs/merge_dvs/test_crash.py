"""merge-dvs is stopped around every effect that it has, and other writers commit before every one of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.catalogs.files.versions import find_current
from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
from iceberg_cli.operation.apply import apply
from iceberg_cli.plan.documents import plan_from_json
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import Script, SimStorage, World
from iceberg_cli.testing.iceberg_reader import reachable
from tests.budget import few_or_many, some
from tests.builders import LOCATION, NOW_MS
from tests.crash import suite
from tests.delete_tables import DeleteTable
from tests.paths import besides_history
from tests.scan_planning import entries_of, view

POLICY = MergeDvs(min_files=2, target_size=600)
ONE_BY_ONE = MergeDvs(target_size=1)  # a Puffin file for each deletion vector
Seen = dict[str, tuple[Any, ...]]
Change = Callable[[DeleteTable, Seen], None]


@dataclass(kw_only=True)
class Merger(Process):
    """One run of merge-dvs."""

    verb: str = "merge-dvs"
    policy: MergeDvs = POLICY

    def settle(self) -> None:
        self.resume()


@dataclass(kw_only=True)
class Merging(suite.Scene):
    """A run of merge-dvs on a table by file names, and the other writer, whose rows must stay."""

    process_type = Merger
    verb = "merge-dvs"

    policy: MergeDvs = POLICY
    commits: int = 0
    format_version: int = 3
    expected: Seen = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.expected = self.expected or self.seen()

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

    def commit(self, change: Change) -> None:
        """The other writer commits on top of whatever is current."""
        table = self.writer()
        change(table, {path.rpartition("/")[2].partition(".")[0]: seen for path, seen in self.seen().items()})
        self.commits += 1
        table.commit(1_000 + self.commits)
        table.publish()
        self.expected = self.seen()

    def check(self) -> None:
        """Readers see what they saw."""
        assert self.seen() == self.expected

    def check_tidy(self) -> None:
        """Nothing is there but what the table reaches."""
        location, _ = self.current()
        versions = {path for path in self.world.files if path.endswith(".metadata.json")}
        hint = {f"{LOCATION}/metadata/version-hint.text"}
        # What the writer of the table has left behind before: files of deletes that no snapshot had.
        assert besides_history(self.world.files) - versions - hint <= reachable(self.storage, location)

    def check_run(self, report: Report | None) -> None:
        super().check_run(report)
        self.check_tidy()

    def check_finished(self) -> None:
        """Nothing of ours is left over."""
        self.check()
        self.check_tidy()


@pytest.fixture(scope="module")
def table() -> Merging:
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
    return Merging(world=world)


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


class TestMerge(suite.Undisturbed, suite.Crashes, suite.Commits, suite.CommitsMeanwhile):
    """Readers see the rows and the deletes of whoever wrote them."""

    crashes = 4
    commits = 2
    commits_meanwhile = 2

    @pytest.fixture
    def scene(self, table: Merging) -> Merging:
        return table

    @pytest.fixture(params=OTHERS)
    def act(self, request: pytest.FixtureRequest) -> suite.Act:
        return lambda scene: scene.commit(request.param)


class TestMergeIntoManyFiles(suite.Commits):
    """Each deletion vector gets a file of its own."""

    commits = 2

    @pytest.fixture
    def scene(self, table: Merging) -> Merging:
        return replace(table, policy=ONE_BY_ONE)

    @pytest.fixture(params=OTHERS)
    def act(self, request: pytest.FixtureRequest) -> suite.Act:
        return lambda scene: scene.commit(request.param)


@few_or_many(4)
@pytest.mark.parametrize("other", [a_delete, a_compaction])
def test_another_writers_commit_while_a_saved_plan_is_carried_out_is_kept(
    table: Merging, other: Change, budget: int
) -> None:
    scene = replace(table, policy=ONE_BY_ONE)
    made = scene.copy().process().plan().plan
    saved = plan_from_json(made.to_json(), removals=made.removals, path="plan.json")
    for number in some(range(len(scene.undisturbed())), budget):
        here = scene.copy()
        process = here.process(before={number: partial(here.commit, other)})
        verb = VERBS["merge-dvs"]
        planned = verb.plan(process.table, ONE_BY_ONE, as_of_ms=NOW_MS, within=saved)
        apply(planned, process.table, verb, process.runtime)
        here.check()
        here.check_tidy()


def test_a_new_manifest_that_somebody_removed_before_it_was_read_back_is_named(table: Merging) -> None:
    number, manifest = next(
        (number, effect.removeprefix("put "))
        for number, effect in enumerate(table.undisturbed())
        if effect.startswith("put ") and effect.endswith("-m.avro")
    )
    here = table.copy()
    process = here.process(after={number: lambda: here.world.files.pop(manifest)})
    with pytest.raises(CorruptFile, match="was not there to be read back") as caught:
        process.run()
    assert manifest in caught.value.message
    here.check()
    here.finish()


# -- before version 3 --------------------------------------------------------------------------------------------------


NEEDED, E = "needed-deletes.parquet", "e-eq-deletes.parquet"


@dataclass(kw_only=True)
class Dangling(Merging):
    """Position deletes of version 2 some of which dangle."""

    format_version: int = 2

    def names(self) -> set[str]:
        """The names of the delete files in the table."""
        entries = entries_of(self.storage.read, self.current()[1])
        return {entry["file_path"].rpartition("/")[2] for entry in entries if entry["content"]}

    def check_done(self) -> None:
        """What is needed is left."""
        assert self.names() == {NEEDED, E}


@pytest.fixture(scope="module")
def version_2() -> Dangling:
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
    return Dangling(world=world)


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


@few_or_many(5, many=40)
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
    version_2: Dangling, other: Change, left: set[str], budget: int
) -> None:
    effects = version_2.undisturbed()
    swap = max(number for number, effect in enumerate(effects) if "metadata.json" in effect)
    for number, effect in some([*enumerate(effects)], budget):
        here = version_2.copy()
        here.check_run(here.run_disturbed(before={number: partial(here.commit, other)}))
        here.process().run()
        here.check()
        # After the swap the file is out of the table: what is added later with an old number has its own rows alone.
        assert here.names() == left - ({"gone-deletes.parquet"} if number > swap else set()), effect


class TestDangling(suite.Crashes):
    """What dangles goes, and readers see no difference."""

    crashes = 5

    @pytest.fixture
    def scene(self, version_2: Dangling) -> Dangling:
        return version_2
