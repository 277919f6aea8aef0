"""Delta tables whose log has checkpoints of version 2, and the policy that cleans it up."""

from __future__ import annotations

from functools import cache

from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import DELTA_TABLE, World
from tests.crash.delta import METADATA, PROTOCOL, an_add, commit_to

KEPT_VERSION = 4


POLICY = {"log_retention_ms": 0, "retention_ms": 0, "unsafe_short_retention": True}


FEATURES = {"readerFeatures": ["deletionVectors", "v2Checkpoint"]}


def a_world_of_v2_checkpoints() -> World:
    """See `_made_once`."""
    return _made_once().copy()


@cache
def _made_once() -> World:
    """Versions 0 to 5, each with one file more, and V2 checkpoints of 2 and 4, each of several sidecars."""
    world = World()
    protocol = {**PROTOCOL, **FEATURES, "writerFeatures": FEATURES["readerFeatures"]}
    # So many commits that no checkpoint of our own is worth it.
    metadata = {**METADATA, "configuration": {"delta.checkpointInterval": "100"}}
    commit_to(world, {"protocol": protocol}, {"metaData": metadata}, an_add("0.parquet"))
    for number in range(1, 6):
        commit_to(world, an_add(f"{number}.parquet"))
        if number in (2, KEPT_VERSION):
            policy = {"checkpoint": "v2", "part_size": 2}
            process = DeltaProcess(world=world, verb="rewrite-manifests", policy=policy)
            assert process.run().status == "done"
    for number in range(6):
        world.files[f"{DELTA_TABLE}/{number}.parquet"] = b"data"
    world.deleted.clear()
    return world
