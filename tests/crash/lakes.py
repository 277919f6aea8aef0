"""Iceberg tables that another engine wrote, a verb for each, and what must hold of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from iceberg_cli.errors import CommitConflict, StalePlan
from iceberg_cli.iceberg.verbs.assign_row_ids.policy import AssignRowIds
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
from iceberg_cli.iceberg.verbs.upgrade_v3.policy import UpgradeV3
from iceberg_cli.testing.crash.engine import OtherEngine
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import Script, World
from iceberg_cli.testing.iceberg_reader import Lineage, Row, check_table, rows_of, snapshot_of
from tests.builders import NOW_MS
from tests.crash import suite
from tests.paths import besides_history

PROPERTIES = {"commit.retry.min-wait-ms": "1"}


def fragmented(engine: OtherEngine) -> None:
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


def upgraded(engine: OtherEngine) -> None:
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


def untouched(engine: OtherEngine) -> None:
    """Version 2 with position deletes, upgraded, and no commit since: no row has an id."""
    engine.create(format_version=2, properties=PROPERTIES)
    engine.append("a", "b")
    engine.branch("eom", kind="tag")
    engine.append("c")
    engine.delete({"a": [1, 2], "c": [3]})
    engine.branch("audit")
    engine.append("d", ref="audit")
    engine.upgrade()


def second(engine: OtherEngine) -> None:
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
    build: Callable[[OtherEngine], None]

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
OTHERS = (
    CASES[0],
    CASES[2],
    CASES[5],
    CASES[6],
    Case("expire-snapshots", ExpireSnapshots(retain_last=1, older_than=NOW_MS).to_json(), fragmented),
)


@dataclass(kw_only=True)
class Lake(suite.Scene):
    """A world with a table, the engine that wrote it, and what its readers may rely on."""

    refusals: ClassVar[tuple[type[Exception], ...]] = (StalePlan, CommitConflict)
    stale: ClassVar[tuple[type[Exception], ...]] = (StalePlan,)
    others: ClassVar[tuple[Case, ...]] = OTHERS

    case: Case
    engine: OtherEngine
    rows: dict[str, set[Row]]  # by ref: what the engine left
    known: dict[str, dict[Row, Lineage]] = field(
        default_factory=dict
    )  # by manifest list, which never changes

    @classmethod
    def of(cls, case: Case) -> Self:
        world = World()
        engine = OtherEngine(world)
        case.build(engine)
        lake = cls(case=case, world=world, engine=engine, rows={})
        lake.note_rows()
        return lake

    def copy(self) -> Self:
        """The same, to change it alone."""
        here = super().copy()
        engine = OtherEngine(here.world, commits=self.engine.commits)
        return replace(here, engine=engine, rows=dict(self.rows), known=dict(self.known))

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

    def disturb(self, act: Callable[[OtherEngine], None]) -> Callable[[], None]:
        """Another engine's commit. What it does to rows is seen at once: our verbs change none."""

        def disturbing() -> None:
            self.check()
            act(self.engine)
            self.note_rows()

        return disturbing

    def process(self, **script: Any) -> Process:
        """A run of the verb."""
        return self.process_of(self.case, **script)

    def process_of(self, other: Case, **script: Any) -> Process:
        """A run of one of `others`."""
        return Process(world=self.world, script=Script(**script), verb=other.verb, policy=other.policy)

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

    needed = check

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
        self.process().run()
        needed = self.check()
        assert besides_history(self.world.files) == needed
        assert self.process().plan().plan.steps == ()


ACTS: Mapping[str, Callable[[OtherEngine], None]] = {
    "append": lambda engine: engine.append(f"x{engine.commits}"),
    "delete": lambda engine: engine.delete({"a": [7], "b": [7], "c": [7], "d2": [7]}),
    "compaction": lambda engine: engine.replace("a", f"y{engine.commits}"),
    "upgrade": lambda engine: engine.upgrade(),
}
