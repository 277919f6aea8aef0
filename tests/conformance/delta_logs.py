"""Delta tables without data for the committer: a first commit, and how to add versions; also many writers at once.

Run as `python -m tests.conformance.delta_logs` with a JSON object, processes commit to one table at the same time.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import sys
import time
import uuid
from multiprocessing.synchronize import Barrier
from typing import Any

from iceberg_cli.delta.commit import CommitSummary, LogCommit
from iceberg_cli.delta.log_commit import DeltaLogCommitter
from iceberg_cli.operation.outcomes import Attempt, Committed, Conflict, Outcome, Unknown
from iceberg_cli.storage import Storage, open_storage

FIELD = {"name": "i", "type": "integer", "nullable": True, "metadata": {}}
FIRST = [
    {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "CREATE TABLE"}},
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {
        "metaData": {
            "id": "5f0c3c2e-8b0e-4a55-9a2c-3d1f3c0f7b11",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": [FIELD]}),
            "partitionColumns": [],
            "configuration": {},
        }
    },
]


def make_log(root: str, storage: Storage, *, version: int = 0) -> None:
    """The first commit of a table."""
    data = "".join(f"{json.dumps(action)}\n" for action in FIRST).encode()
    storage.put_if_absent(path_of(root, version), data)


def path_of(root: str, version: int) -> str:
    return f"{root}/_delta_log/{version:020d}.json"


def an_attempt(committer: DeltaLogCommitter, name: str, *, fresh: bool = True) -> Attempt:
    """An attempt to commit a transaction of this name as the next version."""
    version = int(committer.current()) + 1
    transaction = str(uuid.uuid4())
    actions = [
        {"commitInfo": {"operation": "TEST", "txnId": transaction}},
        {"txn": {"appId": name, "version": 1}},
    ]
    commit = LogCommit(
        version=version,
        data="".join(f"{json.dumps(action)}\n" for action in actions).encode(),
        timestamp_ms=1_700_000_000_000,
        commit_uuid=transaction,
        updates=(CommitSummary(version=version, operation="TEST"),),
    )
    return dataclasses.replace(committer.prepare(commit), fresh=fresh)


def add_version(committer: DeltaLogCommitter, name: str) -> int:
    """Commit until it is in; a retry after an unknown outcome sends the same attempt. Returns the conflicts met."""
    conflicts = 0
    while True:
        attempt = an_attempt(committer, name)
        outcome: Outcome = committer.commit(attempt)
        while isinstance(outcome, Unknown):
            time.sleep(0.01)
            outcome = committer.commit(attempt)
        match outcome:
            case Committed():
                return conflicts
            case Conflict():
                conflicts += 1


def names_of(root: str, storage: Storage) -> list[str]:
    """The transactions of all versions from 0 on, in their order, until one is missing."""
    found, version = [], 0
    while True:
        try:
            data = storage.read(path_of(root, version))
        except FileNotFoundError:
            return found
        found += [action["txn"]["appId"] for action in map(json.loads, data.splitlines()) if "txn" in action]
        version += 1


def write(targets: dict[str, Any], writer: int, start: Barrier, results: Any) -> None:
    committer = DeltaLogCommitter(targets["root"], open_storage(targets["options"]))
    start.wait()
    conflicts = 0
    for number in range(targets["commits"]):
        name = f"w{writer}.{number}"
        conflicts += add_version(committer, name)
        results.put(name)
    results.put(conflicts)


def append_by_delta_rs(targets: dict[str, Any], start: Barrier, results: Any) -> None:
    """Append rows with the `deltalake` package, as often as every other writer commits."""
    import pyarrow as pa
    from deltalake import write_deltalake

    start.wait()
    for number in range(targets["commits"]):
        write_deltalake(targets["root"], pa.table({"i": pa.array([number], pa.int32())}), mode="append")
    results.put("delta-rs")


def main(targets: dict[str, Any]) -> None:
    context = multiprocessing.get_context("spawn" if targets["options"] or targets["delta_rs"] else "fork")
    start, results = context.Barrier(targets["writers"] + targets["delta_rs"]), context.Queue()
    processes = [
        context.Process(target=write, args=(targets, writer, start, results))
        for writer in range(targets["writers"])
    ]
    if targets["delta_rs"]:
        processes.append(context.Process(target=append_by_delta_rs, args=(targets, start, results)))
    for process in processes:
        process.start()
    number = targets["writers"] * (targets["commits"] + 1) + targets["delta_rs"]
    found = [results.get(timeout=120) for _ in range(number)]
    for process in processes:
        process.join()
    acknowledged = sorted(name for name in found if isinstance(name, str))
    print(
        json.dumps({"acknowledged": acknowledged, "conflicts": sum(n for n in found if isinstance(n, int))})
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
