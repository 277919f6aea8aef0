"""The longest recipe, on a version 1 table without UUID that obstructs its upgrade, stopped around every effect."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import fastavro
import pytest

from iceberg_cli.errors import CommitStateUnknown
from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.iceberg.verbs.upgrade_v3.policy import UpgradeV3
from iceberg_cli.testing.crash.world import Script, SimStorage, World
from iceberg_cli.testing.iceberg_files import DELETED
from tests.builders import LOCATION, a_branch
from tests.crash import suite
from tests.hazard_tables import Hazard, obstruct_an_upgrade
from tests.paths import besides_history

VERB = VERBS["upgrade-v3"]
POLICY = UpgradeV3(recipe=("repair-manifests", "assign-row-ids")).to_json()
GONE = ("data/x", "metadata/m1.avro", "metadata/snap-7.avro", "metadata/snap-8.avro", "metadata/snap-9.avro")


def a_world() -> World:
    """main's list has no counts, b names its manifests itself; main has 7 rows, b 8, and 3 are in both."""
    world = World()
    table = Hazard(location=LOCATION, storage=SimStorage(world, Script()), format_version=1)
    obstruct_an_upgrade(table)
    location = table.publish(main=7, name="00000-a.metadata.json", b=a_branch(6))
    document = json.loads(world.files[location])
    del document["table-uuid"]
    document["properties"] = {"commit.retry.min-wait-ms": "1"}
    world.files[location] = json.dumps(document).encode()
    del world.files[f"{LOCATION}/metadata/snap-6.avro"]
    world.pointer = location
    return world


def rows(world: World, ref: str) -> dict[str, int]:
    """Live files of a branch with their rows; every file is there."""
    assert world.pointer is not None
    document = json.loads(world.files[world.pointer])
    head = next(s for s in document["snapshots"] if s["snapshot-id"] == document["refs"][ref]["snapshot-id"])
    paths = head.get("manifests") or [row["manifest_path"] for row in records(world, head["manifest-list"])]
    found = {}
    for path in paths:
        for record in records(world, path):
            if record["status"] != DELETED:
                found[record["data_file"]["file_path"]] = record["data_file"]["record_count"]
    assert found.keys() <= world.files.keys()
    return found


def records(world: World, path: str) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(world.files[path])))


@dataclass(kw_only=True)
class Upgrade(suite.Scene):
    """The recipe on the table, whose rows stay."""

    verb = VERB.name
    policy = POLICY

    world: World = field(default_factory=a_world)
    expected: list[dict[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.expected = self.expected or self.rows()

    def rows(self) -> list[dict[str, int]]:
        """Live files of each branch with their rows."""
        return [rows(self.world, ref) for ref in ("main", "b")]

    def check(self) -> None:
        """Each branch has its rows."""
        assert self.rows() == self.expected

    def check_finished(self) -> None:
        """All is done, and nothing is left over."""
        self.check()
        world = self.world
        assert world.pointer is not None
        document = json.loads(world.files[world.pointer])
        assert (document["format-version"], document["next-row-id"]) == (3, 15)
        assert not any(f"{LOCATION}/{name}" in world.files for name in GONE)
        named = {world.pointer, *(each["metadata-file"] for each in document["metadata-log"])}
        for snapshot in document["snapshots"]:
            named.add(snapshot["manifest-list"])
            for row in records(world, snapshot["manifest-list"]):
                named.add(row["manifest_path"])
                named |= {record["data_file"]["file_path"] for record in records(world, row["manifest_path"])}
        assert besides_history(world.files) == named - {f"{LOCATION}/data/x"}


def test_recipe_is_six_commits() -> None:
    scene = Upgrade()
    process = scene.process()
    assert process.run().status == "done"
    assert sum(effect.startswith("swap") for effect in process.effects) == 6
    scene.check_finished()
    assert scene.process().run().status == "nothing_to_do"


class TestUpgrade(suite.Crashes):
    """Each branch has its rows at every moment."""

    crashes = 3

    @pytest.fixture
    def scene(self) -> Upgrade:
        return Upgrade()


@pytest.mark.few(1)
@pytest.mark.parametrize("fate", ["lost", "lost after", "refused"])
def test_a_lost_answer_to_any_swap_is_made_good(fate: str) -> None:
    for place in range(6):
        scene = Upgrade()
        with suppress(CommitStateUnknown):
            scene.process(swaps=[""] * place + [fate]).run()
        scene.finish()
