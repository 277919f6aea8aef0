"""The table on which processes crash, and another writer who commits to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar
from unittest.mock import patch

from iceberg_cli.iceberg.catalogs.files.versions import find_current
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.operation import removal_files
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import Script, SimStorage, World
from iceberg_cli.testing.iceberg_reader import check_table
from tests.builders import DAY_MS, HOUR_MS, LOCATION, NOW_MS, TableWriter, a_tag
from tests.crash import suite
from tests.paths import besides_history

CANARIES = {
    "/lake/shop/visits2/data/a.parquet": b"a sibling whose name starts alike",
    "/lake/shop/other/data/a.parquet": b"another table",
    "/lake/shop/data/a.parquet": b"the folder above",
}


POLICY = ExpireSnapshots(older_than=NOW_MS - DAY_MS, retain_last=1)


@dataclass(kw_only=True)
class Expiry(Process):
    """A run of `expire-snapshots` on the table."""

    policy: ExpireSnapshots = POLICY


@dataclass(kw_only=True)
class Scene(suite.Scene):
    """A world with a table of seven snapshots, three of which stay, and what must hold in it."""

    process_type: ClassVar[type[Process]] = Expiry
    policy: ClassVar[Any] = POLICY

    writer: TableWriter
    refs: dict[str, int] = field(default_factory=lambda: {"main": 7, "eom": 2, "audit": 6})
    kept: set[int] = field(default_factory=lambda: {2, 6, 7})
    foreign: list[int] = field(default_factory=list)

    def copy(self) -> Self:
        """The same, to change it alone."""
        world = self.world.copy()
        writer = TableWriter(
            storage=SimStorage(world, Script()),
            location=self.writer.location,
            document=json.loads(json.dumps(self.writer.document)),
            manifests=dict(self.writer.manifests),
            published=self.writer.published,
            version=self.writer.version,
        )
        return type(self)(
            world=world, writer=writer, refs=dict(self.refs), kept={*self.kept}, foreign=list(self.foreign)
        )

    @property
    def current(self) -> str:
        """The current metadata location."""
        return (
            self.world.pointer
            or find_current(self.writer.location, SimStorage(self.world, Script())).location
        )

    def foreign_append(self, *, of: str = "main", again: str = "", keep_log: int | None = None) -> None:
        """Another writer appends a file to a branch, on whatever is current, and is told that it happened.

        Args:
            of: the branch.
            again: a file that exists and is added once more.
            keep_log: as many entries of the metadata log stay.
        """
        snapshot_id = 100 + len(self.foreign)
        current = self.current
        document = json.loads(self.world.files[current])
        self.writer.document, self.writer.published = document, current
        self.writer.commit(
            snapshot_id, add=[f"foreign-{snapshot_id}"], again=[again] if again else [], ref=of
        )
        if keep_log is not None:
            document["metadata-log"] = document["metadata-log"][-keep_log:] if keep_log else []
        self._publish(f"foreign{snapshot_id}")
        self.refs[of] = snapshot_id
        self.foreign.append(snapshot_id)

    def foreign_setting(self, name: str, value: str) -> None:
        """Another writer sets a property of the table, on whatever is current; its refs stay as they are."""
        current = self.current
        self.writer.document, self.writer.published = json.loads(self.world.files[current]), current
        self.writer.document["properties"][name] = value
        self._publish(f"foreign-{name}")

    def foreign_tag(self, name: str, snapshot_id: int) -> None:
        """Another writer tags a snapshot."""
        current = self.current
        self.writer.document, self.writer.published = json.loads(self.world.files[current]), current
        self.writer.document["refs"][name] = a_tag(snapshot_id)
        self._publish(f"foreign-{name}")

    def _publish(self, name: str) -> None:
        """Write the next version, by a catalog's name of it or by its number."""
        current = self.current
        if self.world.pointer is None:
            version = int(current.rpartition("/v")[2].partition(".")[0])
            self.writer.publish(f"v{version + 1}.metadata.json")
        else:
            version = int(current.rpartition("/")[2].partition("-")[0])
            self.world.pointer = self.writer.publish(f"{version + 1:05d}-{name}.metadata.json")

    def check(self) -> set[str]:
        """What must hold at any time; returns what the table reaches."""
        storage = SimStorage(self.world, Script())
        for path, data in CANARIES.items():
            assert self.world.files[path] == data
        return check_table(storage, self.current, refs=self.refs, snapshots=[*self.kept, *self.foreign])

    def check_finished(self) -> None:
        """What must hold when nothing is left to do: what can go is gone, and nothing of ours is left."""
        needed = self.check()
        document = json.loads(self.world.files[self.current])
        assert {s["snapshot-id"] for s in document["snapshots"]} == self.kept | {*self.foreign}
        assert besides_history(self.world.files) - CANARIES.keys() == needed

    def check_run(self, report: Report | None) -> None:
        """The commit stands, and no other run is needed."""
        super().check_run(report)
        assert self.foreign == [100]
        self.check_finished()

    def needed(self) -> set[str]:
        """What the table reaches, and files of other tables."""
        return self.check() | CANARIES.keys()

    def finish(self) -> None:
        """What an operator does after a crash: resume, then the next regular run."""
        self.process().resume()
        self.check()
        self.process().run()
        self.check_finished()

    def leftovers(self) -> set[str]:
        """Files that the table does not need."""
        return besides_history(self.world.files) - CANARIES.keys() - self.check()


def a_scene(
    *, catalog: bool = True, served: bool = False, properties: Mapping[str, str] | None = None
) -> Scene:
    """See `a_scene_of`."""
    return a_scene_of(Scene, catalog=catalog, served=served, properties=properties)


SomeScene = TypeVar("SomeScene", bound=Scene)


def a_scene_of(
    scene: type[SomeScene],
    *,
    location: str = LOCATION,
    catalog: bool = True,
    served: bool = False,
    properties: Mapping[str, str] | None = None,
) -> SomeScene:
    """Snapshots 1 to 7; main is 7, the tag `eom` 2, the branch `audit` 6; 1, 3, 4 and 5 are due.

    Args:
        scene: its type.
        location: of the table.
        catalog: the pointer is a catalog's; otherwise the table is one of the file system.
        served: the catalog writes the metadata itself.
        properties: of the table.
    """
    world = World(files=dict(CANARIES), served=served)
    properties = {"commit.retry.min-wait-ms": "1", **(properties or {})}
    writer = TableWriter(storage=SimStorage(world, Script()), location=location, properties=properties)
    writer.commit(1, age_ms=10 * DAY_MS, add=["a", "b"])
    writer.commit(2, age_ms=9 * DAY_MS, add=["c"], remove=["a"])
    writer.set_ref("eom", a_tag(2))
    writer.commit(3, age_ms=8 * DAY_MS, add=["d"], remove=["b"], statistics=True)
    writer.commit(4, age_ms=7 * DAY_MS, add=["e", "f"], remove=["c", "d"])
    writer.commit(5, age_ms=6 * DAY_MS, add=["g"], ref="audit", parent=3)
    writer.commit(6, age_ms=5 * DAY_MS, add=["h"], remove=["g"], ref="audit")
    writer.commit(7, age_ms=HOUR_MS, add=["i"], remove=["e"])
    location = writer.publish(None if catalog else "v1.metadata.json")
    world.pointer = location if catalog else None
    return scene(world=world, writer=writer)


def journal_files(scene: Scene) -> list[str]:
    """The files of the journals that are there."""
    return sorted(path for path in besides_history(scene.world.files) if "/_iceberg_cli/" in path)


def few_rows_in_a_part() -> AbstractContextManager[object]:
    """As if a few files that go were too many for one file of removals."""
    return patch.multiple(removal_files, PART_ROWS=3, MEMORY_ROWS=3)
