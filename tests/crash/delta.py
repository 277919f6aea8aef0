"""Delta tables in a simulated store, their other writers, and what a reader sees: slow, and from JSON alone."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from iceberg_cli.testing import delta_writer
from iceberg_cli.testing.crash.delta_reader import State, commit_actions, commits, state_at
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import DELTA_TABLE, World
from iceberg_cli.testing.delta_vectors import a_vector_file
from iceberg_cli.testing.delta_writer import (
    Action,
    a_commit_info,
    a_field,
    a_protocol_with,
    a_row_id_mark,
    a_schema,
)
from tests.builders import DAY_MS, NOW_MS

TABLE_ID = "5f0c3c2e-8b0e-4a55-9a2c-3d1f3c0f7b11"
PROTOCOL = a_protocol_with("deletionVectors", "v2Checkpoint")
DATA = b"data"  # of each data file
ROWS = 9  # likewise


def version_path(version: int) -> str:
    return f"{DELTA_TABLE}/_delta_log/{version:020d}.json"


def a_metadata(**configuration: str) -> Action:
    """Of a table with the column `i`."""
    schema = json.dumps(a_schema(a_field("i", "integer")))
    return delta_writer.a_metadata(
        id=TABLE_ID, schemaString=schema, configuration=configuration, createdTime=None
    )


def an_add(path: str, **fields: Any) -> Action:
    return delta_writer.an_add(path=path, rows=ROWS, size=len(DATA), modificationTime=1, **fields)


def a_remove(path: str, *, age_days: int, **fields: Any) -> Action:
    return delta_writer.a_remove(path=path, deletionTimestamp=NOW_MS - age_days * DAY_MS, **fields)


def a_vector(world: World, number: int, *positions: int) -> dict[str, Any]:
    """The descriptor of a vector in a file of its own."""
    name, data, (descriptor,) = a_vector_file(number, positions)
    world.write(f"{DELTA_TABLE}/{name}", data)
    return descriptor


def numbered(state: State, action: Action) -> tuple[Action, ...]:
    """A new file, with row ids where writers must give them. Spec: "Writer Requirements for Row Tracking"."""
    if "rowTracking" not in state.protocol["writerFeatures"]:
        return (action,)
    domain = state.domains.get("delta.rowTracking", {"configuration": '{"rowIdHighWaterMark":-1}'})
    mark = json.loads(domain["configuration"])["rowIdHighWaterMark"]
    action["add"] |= {"baseRowId": mark + 1, "defaultRowCommitVersion": state.version + 1}
    return action, a_row_id_mark(mark + ROWS)


def commit_to(world: World, *actions: Action) -> int:
    """Another writer's commit on top of whatever is newest."""
    version = newest(world) + 1
    info = a_commit_info(operationParameters=None, txnId=f"foreign {version}")
    # With spaces between, as no engine writes them: all lines of these logs take the way of those that are rare.
    lines = "".join(f"{json.dumps(action)}\n" for action in (info, *actions))
    world.write(version_path(version), lines.encode())
    return version


def newest(world: World) -> int:
    return max(commits(world.files), default=-1)


def a_delta_world() -> World:
    """Two live files, one of them removed and added again; old and young tombstones; a file that nobody names."""
    world = World()
    commit_to(world, PROTOCOL, a_metadata(), *(an_add(f"{n}.parquet") for n in "abcdef"))
    commit_to(world, *(a_remove(f"{n}.parquet", age_days=30) for n in "abcd"))
    commit_to(world, an_add("a.parquet"), a_remove("e.parquet", age_days=1))
    for name in (*(f"{n}.parquet" for n in "abcdef"), "nobody.parquet", "_hidden.parquet"):
        world.files[f"{DELTA_TABLE}/{name}"] = DATA
    return world


def live_files(world: World) -> set[str]:
    """The files that the newest version names."""
    state = state_at(world.files, newest(world))
    assert state is not None
    return state.needed()


def operations_of(world: World) -> list[str]:
    """What each version is, oldest first."""
    actions = [action for version in commits(world.files) for action in commit_actions(world.files, version)]
    return [action["commitInfo"]["operation"] for action in actions if "commitInfo" in action]


# -- checkpoints of version 2 ----------------------------------------------------------------------------------

KEPT_VERSION = 4
CLEANUP_POLICY = {"log_retention_ms": 0, "retention_ms": 0, "unsafe_short_retention": True}


def a_world_of_v2_checkpoints() -> World:
    """See `_made_once`."""
    return _made_once().copy()


@cache
def _made_once() -> World:
    """Versions 0 to 5, each with one file more, and V2 checkpoints of 2 and 4, each of several sidecars."""
    world = World()
    # So many commits that no checkpoint of our own is worth it.
    metadata = a_metadata(**{"delta.checkpointInterval": "100"})
    commit_to(world, PROTOCOL, metadata, an_add("0.parquet"))
    for number in range(1, 6):
        commit_to(world, an_add(f"{number}.parquet"))
        if number in (2, KEPT_VERSION):
            policy = {"checkpoint": "v2", "part_size": 2}
            process = DeltaProcess(world=world, verb="rewrite-manifests", policy=policy)
            assert process.run().status == "done"
    for number in range(6):
        world.files[f"{DELTA_TABLE}/{number}.parquet"] = DATA
    world.deleted.clear()
    return world
