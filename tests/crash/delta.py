"""A Delta table in a simulated store, its other writers, and what a reader sees: slow, and from JSON alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from iceberg_cli.testing.crash.world import DELTA_TABLE, World
from tests.builders import DAY_MS, NOW_MS

FIELD = {"name": "i", "type": "integer", "nullable": True, "metadata": {}}
PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors", "v2Checkpoint"],
    "writerFeatures": ["deletionVectors", "v2Checkpoint"],
}
METADATA = {
    "id": "5f0c3c2e-8b0e-4a55-9a2c-3d1f3c0f7b11",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": json.dumps({"type": "struct", "fields": [FIELD]}),
    "partitionColumns": [],
    "configuration": {},
}


def version_path(version: int) -> str:
    return f"{DELTA_TABLE}/_delta_log/{version:020d}.json"


def an_add(path: str, **fields: Any) -> dict[str, Any]:
    return {
        "add": {
            "path": path,
            "partitionValues": {},
            "size": 4,
            "modificationTime": 1,
            "dataChange": True,
            "stats": '{"numRecords":9}',
            **fields,
        }
    }


def a_remove(path: str, *, age_days: int, **fields: Any) -> dict[str, Any]:
    deleted_ms = NOW_MS - age_days * DAY_MS
    return {"remove": {"path": path, "deletionTimestamp": deleted_ms, "dataChange": True, **fields}}


def commit_to(world: World, *actions: Mapping[str, Any]) -> int:
    """Another writer's commit on top of whatever is newest."""
    version = newest(world) + 1
    info = {"commitInfo": {"timestamp": NOW_MS, "operation": "WRITE", "txnId": f"foreign {version}"}}
    lines = "".join(f"{json.dumps(action)}\n" for action in (info, *actions))
    world.write(version_path(version), lines.encode())
    return version


def newest(world: World) -> int:
    version = -1
    while version_path(version + 1) in world.files:
        version += 1
    return version


def a_delta_world() -> World:
    """Two live files, one of them removed and added again; old and young tombstones; a file that nobody names."""
    world = World()
    commit_to(
        world, {"protocol": PROTOCOL}, {"metaData": METADATA}, *(an_add(f"{n}.parquet") for n in "abcdef")
    )
    commit_to(world, *(a_remove(f"{n}.parquet", age_days=30) for n in "abcd"))
    commit_to(world, an_add("a.parquet"), a_remove("e.parquet", age_days=1))
    for name in (*(f"{n}.parquet" for n in "abcdef"), "nobody.parquet", "_hidden.parquet"):
        world.files[f"{DELTA_TABLE}/{name}"] = b"data"
    return world


def live_files(world: World) -> set[str]:
    """The files that the newest version names, replayed action by action. Spec: "Action Reconciliation"."""
    live: set[str] = set()
    for version in range(newest(world) + 1):
        for line in world.files[version_path(version)].splitlines():
            ((kind, action),) = json.loads(line).items()
            if kind == "add":
                live.add(f"{DELTA_TABLE}/{action['path']}")
            elif kind == "remove":
                live.discard(f"{DELTA_TABLE}/{action['path']}")
    return live


def operations_of(world: World) -> list[str]:
    """What each version is, oldest first."""
    found = []
    for version in range(newest(world) + 1):
        lines = map(json.loads, world.files[version_path(version)].splitlines())
        found += [line["commitInfo"]["operation"] for line in lines if "commitInfo" in line]
    return found
