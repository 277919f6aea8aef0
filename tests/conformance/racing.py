"""Many processes commit to one table; run as `python -m tests.conformance.racing`, with a JSON object to say how.

Prints the acknowledged property names and the number of conflicts that were met on the way.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from multiprocessing.synchronize import Barrier
from typing import Any

from iceberg_cli.testing.conformance.commits import set_property
from tests.conformance.catalogs import Catalog


def write(catalog: Catalog, writer: int, commits: int, start: Barrier, results: Any) -> None:
    storage = catalog.storage
    committer = catalog.open(storage)
    start.wait()
    conflicts = 0
    for number in range(commits):
        name = f"w{writer}.{number}"
        conflicts += set_property(committer, storage, name)
        results.put(name)
    results.put(conflicts)


def main(targets: dict[str, Any]) -> None:
    context = multiprocessing.get_context("fork")
    catalog = Catalog(**{name: targets[name] for name in ("kind", "folder", "uri", "options")})
    start, results = context.Barrier(targets["writers"]), context.Queue()
    writers = [
        context.Process(target=write, args=(catalog, writer, targets["commits"], start, results))
        for writer in range(targets["writers"])
    ]
    for process in writers:
        process.start()
    found = [results.get(timeout=120) for _ in range(targets["writers"] * (targets["commits"] + 1))]
    for process in writers:
        process.join()
    acknowledged = sorted(name for name in found if isinstance(name, str))
    conflicts = sum(count for count in found if isinstance(count, int))
    print(json.dumps({"acknowledged": acknowledged, "conflicts": conflicts}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
