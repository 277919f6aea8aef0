"""A Delta table in a simulated store, its other writers, and what a reader sees: slow, and from JSON alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from iceberg_cli.delta.log_commit import DeltaLogCommitter
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs import VERBS
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.formats.open import iceberg_files
from iceberg_cli.operation.apply import Runtime, apply, resume
from iceberg_cli.operation.ports import Planned
from iceberg_cli.plan.report import Report
from tests.builders import DAY_MS, NOW_MS
from tests.crash.simulation import Act, Crash, Script, SimStorage, World, unseen
from tests.policies import policy_with

ROOT = "s3://lake/visits"
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
    return f"{ROOT}/_delta_log/{version:020d}.json"


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
        world.files[f"{ROOT}/{name}"] = b"data"
    return world


def live_files(world: World) -> set[str]:
    """The files that the newest version names, replayed action by action. Spec: "Action Reconciliation"."""
    live: set[str] = set()
    for version in range(newest(world) + 1):
        for line in world.files[version_path(version)].splitlines():
            ((kind, action),) = json.loads(line).items()
            if kind == "add":
                live.add(f"{ROOT}/{action['path']}")
            elif kind == "remove":
                live.discard(f"{ROOT}/{action['path']}")
    return live


def operations_of(world: World) -> list[str]:
    """What each version is, oldest first."""
    found = []
    for version in range(newest(world) + 1):
        lines = map(json.loads, world.files[version_path(version)].splitlines())
        found += [line["commitInfo"]["operation"] for line in lines if "commitInfo" in line]
    return found


@dataclass(kw_only=True)
class DeltaProcess:
    """One run of the program on the table."""

    world: World
    script: Script = field(default_factory=Script)
    policy: Mapping[str, Any] = field(default_factory=dict)
    operation: str = "expire-snapshots"

    def __post_init__(self) -> None:
        self.storage = SimStorage(self.world, self.script)
        self.table = DeltaTable(
            name="visits",
            root=ROOT,
            storage=self.storage,  # type: ignore[arg-type]
            committer=DeltaLogCommitter(ROOT, self.storage),  # type: ignore[arg-type]
            iceberg_files=iceberg_files,
            engine=LocalEngine(self.storage, threads=1),  # type: ignore[arg-type]
            on_event=unseen,
        )
        self.runtime = Runtime(
            now_ms=lambda: self.world.now_ms,
            new_uuid=self.world.new_uuid,
            sleep_ms=lambda _: None,
            on_event=unseen,
            host="a host that is not this one",
            process_id=1,
            sweep_batch=2,
            quick_batch_ms=0,
        )

    @property
    def effects(self) -> list[str]:
        return self.storage.trace

    def plan(self) -> Planned:
        verb = VERBS[self.operation]
        return verb.plan(self.table, policy_with(verb.policy, self.policy), as_of_ms=NOW_MS)

    def run(self) -> Report:
        """Settle, plan and apply."""
        self.resume()
        return apply(self.plan(), self.table, VERBS[self.operation], self.runtime)

    def resume(self) -> list[Report]:
        return [
            resume(self.table, operation_id, self.runtime, verbs=VERBS)
            for operation_id in self.table.workspace.open_operations()
        ]

    def dies(self, run: Act) -> bool:
        try:
            run()
        except Crash:
            return True
        return False
