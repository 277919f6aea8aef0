"""merge-dvs, upgrade-v3 and assign-row-ids of Delta tables stopped around every effect, raced, their answers lost.

A reader that replays JSON alone finds at every version the rows that were there, each once; row ids never change, are
never given twice, and where row tracking is enabled no file lacks them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from iceberg_cli.delta.spec.paths import dv_path, z85_encode
from iceberg_cli.errors import CommitStateUnknown
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import DELTA_TABLE, Script, World
from iceberg_cli.testing.delta_vectors import frame_of, positions_in
from tests.crash import suite
from tests.crash.delta import METADATA, PROTOCOL, an_add, commit_to, newest, version_path

MERGE, UPGRADE, ASSIGN = "merge-dvs", "upgrade-v3", "assign-row-ids"
POLICIES: Mapping[str, Mapping[str, Any]] = {
    # Two new files: each is closed after two vectors.
    MERGE: {"min_files": 2, "target_size": 90},
    UPGRADE: {"features": ["v2Checkpoint", "inCommitTimestamp"]},
    ASSIGN: {"batch_size": 2},
}
DELETED = {f"{name}.parquet": [number, 8] for number, name in enumerate("abcd")}
ENABLED = "delta.enableRowTracking"


def a_vector(world: World, number: int, positions: list[int]) -> dict[str, Any]:
    """A file of one vector, and its descriptor."""
    uuid = number.to_bytes(16, "big")
    frame = frame_of(positions)
    path = dv_path("u", z85_encode(uuid), DELTA_TABLE)
    assert path is not None
    world.files[path] = b"\x01" + frame
    return {
        "storageType": "u",
        "pathOrInlineDv": z85_encode(uuid),
        "offset": 1,
        "sizeInBytes": len(frame) - 8,
        "cardinality": len(positions),
    }


def a_world() -> World:
    """Four files with a vector each, and one without."""
    world = World()
    metadata = {**METADATA, "configuration": {"delta.enableDeletionVectors": "true"}}
    adds = [
        an_add(name, deletionVector=a_vector(world, number, positions))
        for number, (name, positions) in enumerate(DELETED.items())
    ]
    commit_to(world, {"protocol": PROTOCOL}, {"metaData": metadata}, *adds)
    commit_to(world, an_add("e.parquet"))
    return world


def states(world: World) -> Iterator[tuple[dict[str, dict[str, Any]], dict[str, Any]]]:
    """Of each version the adds by path, and what else counts, replayed line by line. Spec: "Action Reconciliation"."""
    adds: dict[tuple[str, str], dict[str, Any]] = {}
    others: dict[str, Any] = {}
    for version in range(newest(world) + 1):
        for line in world.files[version_path(version)].splitlines():
            ((kind, action),) = json.loads(line).items()
            if kind in ("add", "remove"):
                vector = action.get("deletionVector") or {"pathOrInlineDv": "", "offset": 0}
                key = (action["path"], f"{vector['pathOrInlineDv']}@{vector['offset']}")
                adds.pop(key, None)
                if kind == "add":
                    adds[key] = action
            elif kind != "commitInfo":
                others[kind] = action
        by_path = {path: add for (path, _), add in adds.items()}
        assert len(by_path) == len(adds), "a file is in the table once"
        yield by_path, dict(others)


def deleted(world: World, adds: Mapping[str, dict[str, Any]]) -> dict[str, list[int]]:
    found = {}
    for path, add in adds.items():
        if (vector := add.get("deletionVector")) is not None:
            place = dv_path(vector["storageType"], vector["pathOrInlineDv"], DELTA_TABLE)
            assert place is not None
            found[path] = positions_in(world.files[place], vector)
    return found


@dataclass
class Rewriting(suite.Scene):
    """A verb on the table."""

    operation: str
    world: World = field(default_factory=a_world)
    gone: frozenset[str] = frozenset()  # files that others have removed

    def copy(self) -> Rewriting:
        return Rewriting(self.operation, self.world.copy(), self.gone)

    def process(self, **script: Any) -> DeltaProcess:
        return DeltaProcess(
            world=self.world, script=Script(**script), verb=self.operation, policy=POLICIES[self.operation]
        )

    def check(self) -> None:
        """What must hold at every moment, for every version."""
        ids: dict[str, int] = {}
        for version, (adds, others) in enumerate(states(self.world)):
            expected = {path: rows for path, rows in DELETED.items() if path in adds}
            assert deleted(self.world, adds) == expected
            assert {*DELETED} - {*adds} <= self.gone
            taken: list[int] = []
            for path, add in adds.items():
                first = add.get("baseRowId")
                if first is None:
                    assert path not in ids, "an id was lost"
                    continue
                assert ids.setdefault(path, first) == first, "an id changed"
                assert add["defaultRowCommitVersion"] <= version
                taken += range(first, first + 9)
            assert len(set(taken)) == len(taken), "an id was given twice"
            if taken:
                mark = json.loads(others["domainMetadata"]["configuration"])["rowIdHighWaterMark"]
                assert max(taken) <= mark
            if others["metaData"]["configuration"].get(ENABLED) == "true":
                assert len(taken) == 9 * len(adds)

    def finish(self) -> None:
        """Resume, run again: all is done, once, and nothing is left over."""
        self.process().resume()
        self.check()
        assert self.process().run().status in ("done", "nothing_to_do")
        assert self.process().run().status == "nothing_to_do"
        self.check()
        assert not [name for name in self.world.files if "_iceberg_cli" in name]
        named = {
            dv_path("u", add["deletionVector"]["pathOrInlineDv"], DELTA_TABLE)
            for adds, _ in states(self.world)
            for add in adds.values()
            if "deletionVector" in add
        }
        assert {name for name in self.world.files if name.endswith(".bin")} == named, (
            "no version names a file"
        )
        *_, (adds, others) = states(self.world)
        match self.operation:
            case "merge-dvs":
                files = {
                    add["deletionVector"]["pathOrInlineDv"]
                    for add in adds.values()
                    if "deletionVector" in add
                }
                assert len(files) <= 2
            case "upgrade-v3":
                assert {"v2Checkpoint", "inCommitTimestamp"} <= {*others["protocol"]["writerFeatures"]}
            case "assign-row-ids":
                assert others["metaData"]["configuration"][ENABLED] == "true"


def replace_a_file(scene: Rewriting) -> None:
    """Another writer takes one file away and appends another, with ids where the table wants them."""
    *_, (adds, others) = states(scene.world)
    old = adds["b.parquet"]
    fields = {key: old[key] for key in ("deletionVector", "baseRowId") if key in old}
    remove = {"remove": {"path": "b.parquet", "deletionTimestamp": 1, "dataChange": True, **fields}}
    new, more = an_add("new.parquet"), []
    if "rowTracking" in others["protocol"]["writerFeatures"]:
        domain = others.get("domainMetadata", {"configuration": '{"rowIdHighWaterMark":-1}'})
        mark = json.loads(domain["configuration"])["rowIdHighWaterMark"]
        new["add"] |= {"baseRowId": mark + 1, "defaultRowCommitVersion": newest(scene.world) + 1}
        stated = json.dumps({"rowIdHighWaterMark": mark + 9})
        more = [
            {
                "domainMetadata": {
                    "domain": "delta.rowTracking",
                    "configuration": stated,
                    "removed": False,
                }
            }
        ]
    commit_to(scene.world, remove, new, *more)
    scene.gone |= {"b.parquet"}


@pytest.fixture(params=POLICIES)
def scene(request: pytest.FixtureRequest) -> Rewriting:
    return Rewriting(request.param)


class TestRewriting(suite.Crashes, suite.SecondCrashes, suite.Commits):
    """Its rows are those that were there, and ids stay."""

    crashes = 8
    second_crashes = 8
    commits = 8

    @pytest.fixture
    def act(self) -> suite.Act:
        return replace_a_file


def test_a_put_of_a_version_without_an_answer_is_settled(scene: Rewriting) -> None:
    effects = scene.undisturbed()
    versions = [effect.removeprefix("put ") for effect in effects if version_path(0)[:-8] in effect]
    assert versions
    for version in versions:
        here = scene.copy()
        lost: list[str] = []

        def lose(path: str, version: str = version, lost: list[str] = lost) -> str | None:
            if path == version and not lost:
                lost.append(path)
                return "no answer"
            return None

        with pytest.raises(CommitStateUnknown):
            here.process(fail_put=lose).run()
        here.check()
        here.finish()
