"""Many writers of one Delta log at once: `python -m tests.conformance.delta_writers` with a JSON object."""

from __future__ import annotations

import json
import multiprocessing
import sys
from multiprocessing.synchronize import Barrier
from typing import Any

from iceberg_cli.delta.log_commit import DeltaLogCommitter
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.conformance.delta_logs import add_version


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
        write_deltalake(targets["root"], pa.table({"n": pa.array([number], pa.int64())}), mode="append")
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
