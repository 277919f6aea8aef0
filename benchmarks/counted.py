"""`python -m benchmarks.counted LOCATION VERB POLICY CACHE`: what a verb asks of the storage, counted.

In a process of its own, with one thread and no lanes, so that every request passes through here. The policy is that
of a plan, as JSON; CACHE is the cache's folder or empty. Prints the requests by kind and the bytes read, as JSON.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.iceberg.catalogs.filesystem import open_folder
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs import VERBS
from iceberg_cli.operation.apply import apply, system_runtime
from iceberg_cli.operation.journal import FOLDER
from iceberg_cli.storage import open_storage

_ONE = ("read", "stat", "put_if_absent", "list")
_MANY = {
    "stat_many": 1,
    "delete": 1_000,
}  # objects in one request to an object store
_CACHE_BYTES = 1 << 30


class Counted:
    """A storage whose requests are counted."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self.requests: Counter[str] = Counter()
        self.bytes_read = 0
        self.journal_bytes = 0

    def __getattr__(self, name: str) -> Any:
        """The storage's own attribute, counted where it is a request."""
        found = getattr(self._storage, name)
        if name not in _ONE and name not in _MANY:
            return found

        def counted(first: Any, *others: Any, **named: Any) -> Any:
            self.requests[name] += 1 if name in _ONE else math.ceil(len(first) / _MANY[name])
            answer = found(first, *others, **named)
            if name == "read":
                self.bytes_read += len(answer)
            elif name == "put_if_absent" and f"/{FOLDER}/" in first:
                self.journal_bytes += len(others[0])
            return answer

        return counted


def main(location: str, verb_name: str, policy: str, cache: str) -> None:
    """Plan and carry out, and print the counts of both."""
    storage = Counted(open_storage(trusted_folders=(location,)))
    table = IcebergTable(
        name=location,
        storage=storage,
        committer=open_folder(location, storage),
        engine=LocalEngine(storage, threads=1),
        on_event=lambda _: None,
    )
    table.load()
    table.look_through_links()
    if cache:
        table.use_cache(Path(cache), limit_bytes=_CACHE_BYTES)
    verb = VERBS[verb_name]
    runtime = system_runtime(on_event=lambda _: None, host="a benchmark", process_id=os.getpid())
    plan = verb.plan(table, verb.policy.from_json(json.loads(policy)), as_of_ms=runtime.now_ms())
    planned = Counter(storage.requests)
    apply(plan, table, verb, runtime)
    print(
        json.dumps(
            {
                "plan_requests": planned.total(),
                "requests": storage.requests.total(),
                "reads": storage.requests["read"],
                "by_kind": storage.requests,
                "bytes_read": storage.bytes_read,
                "journal_bytes": storage.journal_bytes,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
