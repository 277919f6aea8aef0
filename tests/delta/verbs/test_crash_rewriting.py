"""merge-dvs, upgrade-v3 and assign-row-ids of Delta tables stopped around every effect, raced, their answers lost.

A reader that replays JSON alone finds at every version the rows that were there, each once; row ids never change, are
never given twice, and where row tracking is enabled no file lacks them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from iceberg_cli.delta.spec.paths import dv_path, z85_encode
from iceberg_cli.errors import CommitStateUnknown
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import DELTA_TABLE, Script, World, crash
from iceberg_cli.testing.delta_vectors import frame_of, positions_in
from tests.budget import few_or_many, some
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


def process(world: World, operation: str, script: Script | None = None) -> DeltaProcess:
    chosen = Script() if script is None else script
    return DeltaProcess(world=world, script=chosen, verb=operation, policy=POLICIES[operation])


def effects(operation: str) -> list[str]:
    whole = process(a_world(), operation)
    assert whole.run().status == "done"
    return whole.effects


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


def check(world: World, *, gone: str = "") -> None:
    """What must hold at every moment, for every version."""
    ids: dict[str, int] = {}
    for version, (adds, others) in enumerate(states(world)):
        expected = {path: rows for path, rows in DELETED.items() if path in adds}
        assert deleted(world, adds) == expected
        assert {*DELETED} - {*adds} <= {gone}
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


def finish(world: World, operation: str, *, gone: str = "") -> None:
    """Resume, run again: all is done, once, and nothing is left over."""
    process(world, operation).resume()
    check(world, gone=gone)
    assert process(world, operation).run().status in ("done", "nothing_to_do")
    assert process(world, operation).run().status == "nothing_to_do"
    check(world, gone=gone)
    assert not [name for name in world.files if "_iceberg_cli" in name]
    named = {
        dv_path("u", add["deletionVector"]["pathOrInlineDv"], DELTA_TABLE)
        for adds, _ in states(world)
        for add in adds.values()
        if "deletionVector" in add
    }
    assert {name for name in world.files if name.endswith(".bin")} == named, "files that no version names"
    *_, (adds, others) = states(world)
    match operation:
        case "merge-dvs":
            files = {
                add["deletionVector"]["pathOrInlineDv"] for add in adds.values() if "deletionVector" in add
            }
            assert len(files) <= 2
        case "upgrade-v3":
            assert {"v2Checkpoint", "inCommitTimestamp"} <= {*others["protocol"]["writerFeatures"]}
        case "assign-row-ids":
            assert others["metaData"]["configuration"][ENABLED] == "true"


@few_or_many(8)
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("operation", POLICIES)
def test_crash_around_any_effect(operation: str, side: str, budget: int) -> None:
    trace = effects(operation)
    for number, effect in some(list(enumerate(trace)), budget):
        world = a_world()
        dying = process(world, operation, Script(**{side: {number: crash}}))
        # A put of what is there already ends in an error that is handled: there is nothing after it.
        assert dying.dies(dying.run) or (side == "after" and effect in trace[:number])
        check(world)
        finish(world, operation)


@few_or_many(8)
@pytest.mark.parametrize("operation", POLICIES)
def test_another_writer_commits_before_any_effect(operation: str, budget: int) -> None:
    """It takes one file away and appends another, with ids where the table wants them."""
    for number in some(range(len(effects(operation))), budget):
        world = a_world()

        def act(world: World = world) -> None:
            *_, (adds, others) = states(world)
            old = adds["b.parquet"]
            fields = {key: old[key] for key in ("deletionVector", "baseRowId") if key in old}
            remove = {"remove": {"path": "b.parquet", "deletionTimestamp": 1, "dataChange": True, **fields}}
            new, more = an_add("new.parquet"), []
            if "rowTracking" in others["protocol"]["writerFeatures"]:
                domain = others.get("domainMetadata", {"configuration": '{"rowIdHighWaterMark":-1}'})
                mark = json.loads(domain["configuration"])["rowIdHighWaterMark"]
                new["add"] |= {"baseRowId": mark + 1, "defaultRowCommitVersion": newest(world) + 1}
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
            commit_to(world, remove, new, *more)

        process(world, operation, Script(before={number: act})).run()
        check(world, gone="b.parquet")
        finish(world, operation, gone="b.parquet")


@pytest.mark.parametrize("operation", POLICIES)
def test_a_put_of_a_version_without_an_answer_is_settled(operation: str) -> None:
    versions = [
        effect.removeprefix("put ") for effect in effects(operation) if version_path(0)[:-8] in effect
    ]
    assert versions
    for version in versions:
        world = a_world()
        lost: list[str] = []

        def lose(path: str, version: str = version, lost: list[str] = lost) -> str | None:
            if path == version and not lost:
                lost.append(path)
                return "no answer"
            return None

        with pytest.raises(CommitStateUnknown):
            process(world, operation, Script(fail_put=lose)).run()
        check(world)
        finish(world, operation)


def test_a_second_crash_while_the_first_is_resumed() -> None:
    trace = effects(ASSIGN)
    for first in (len(trace) // 3, len(trace) // 2):
        for number in range(8):
            world = a_world()
            dying = process(world, ASSIGN, Script(after={first: crash}))
            assert dying.dies(dying.run)
            resuming = process(world, ASSIGN, Script(before={number: crash}))
            resuming.dies(resuming.resume)
            check(world)
            finish(world, ASSIGN)
