"""Many processes commit to one table; run as `python -m tests.conformance.racing`, with a JSON object to say how.

Prints the acknowledged property names and the number of conflicts that were met on the way.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from typing import Any

from iceberg_cli.testing.conformance.commits import properties_of, set_property
from tests.budget import FULL
from tests.conformance.catalogs import Catalog
from tests.glue_front import KEYS
from tests.paths import ROOT

_OF_CATALOG = ("kind", "folder", "uri", "options", "database", "properties")

SetProperty = Callable[[str], int]
"""Commit until the property is acknowledged; returns the conflicts met."""


def race(
    catalog: Catalog,
    *,
    writers: int,
    commits: int,
    by: Sequence[str] = ("us",),
    rest_uri: str = "",
    beside: Callable[[], list[str]] = list,
) -> int:
    """Let processes commit; every acknowledged property must be there. Returns the conflicts they met.

    Args:
        catalog: that all commit to.
        writers: processes, by turns of each of `by`.
        commits: of each.
        by: `us`, `pyiceberg`, or `java` through its REST server.
        rest_uri: that server's.
        beside: commits at the same time, and gives the names of properties that it was told are there.
    """
    targets = {
        **dataclasses.asdict(catalog),
        "writers": writers,
        "commits": commits,
        "by": by,
        "rest_uri": rest_uri,
    }
    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(beside)
        result = result_of("tests.conformance.racing", targets)
    expected = sorted(f"w{writer}.{number}" for writer in range(writers) for number in range(commits))
    assert result["acknowledged"] == expected
    names = properties_of(catalog.storage, catalog.open())
    assert sorted(name for name in names if not name.startswith("engine.")) == sorted(
        [*expected, *others.result()]
    )
    return int(result["conflicts"])


def result_of(module: str, targets: dict[str, Any]) -> Any:
    """What a program of many writers prints, which is started with this JSON object."""
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps(targets)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=None if FULL else 900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def by_us(catalog: Catalog, _: str) -> SetProperty:
    storage = catalog.storage
    committer = catalog.open(storage)
    return lambda name: set_property(committer, storage, name)


def by_pyiceberg(catalog: Catalog, _: str) -> SetProperty:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import CommitFailedException
    from sqlalchemy.exc import OperationalError

    if catalog.kind == "glue":
        theirs = load_catalog("cat", **{"type": "glue", "glue.endpoint": catalog.uri, **KEYS})
    else:
        theirs = load_catalog("cat", type="sql", uri=catalog.uri)
    table = f"{catalog.namespace}.t"

    def commit(name: str) -> int:
        conflicts = 0
        while True:
            try:
                with theirs.load_table(table).transaction() as transaction:
                    transaction.set_properties({name: "yes"})
            except CommitFailedException:
                conflicts += 1
            except OperationalError:  # a locked database; the property may be there, and may be set again
                continue
            else:
                return conflicts

    return commit


def by_java(catalog: Catalog, rest_uri: str) -> SetProperty:
    # The server separates the levels of a namespace by dots.
    table = f"{rest_uri}/v1/namespaces/{catalog.database or 'a%2Eb'}/tables/t"
    with urllib.request.urlopen(table) as answer:
        uuid = json.load(answer)["metadata"]["table-uuid"]

    def commit(name: str) -> int:
        requirements = [{"type": "assert-table-uuid", "uuid": uuid}]
        updates = [{"action": "set-properties", "updates": {name: "yes"}}]
        body = json.dumps({"requirements": requirements, "updates": updates}).encode()
        request = urllib.request.Request(table, body, {"Content-Type": "application/json"})
        conflicts = 0
        while True:
            try:
                with urllib.request.urlopen(request):
                    return conflicts
            except urllib.error.HTTPError as error:
                with error:
                    conflicts += (
                        error.code == 409
                    )  # others, such as of a locked database, are tried again as well

    return commit


WRITERS = {"us": by_us, "pyiceberg": by_pyiceberg, "java": by_java}


def write(catalog: Catalog, targets: dict[str, Any], writer: int, start: Barrier, results: Any) -> None:
    by = targets["by"][writer % len(targets["by"])]
    commit = WRITERS[by](catalog, targets["rest_uri"])
    start.wait(60)
    conflicts = 0
    for number in range(targets["commits"]):
        name = f"w{writer}.{number}"
        conflicts += commit(name)
        results.put(name)
    results.put(conflicts)


def main(targets: dict[str, Any]) -> None:
    context = multiprocessing.get_context("fork")
    catalog = Catalog(**{name: targets[name] for name in _OF_CATALOG})
    start, results = context.Barrier(targets["writers"]), context.Queue()
    writers = [
        context.Process(target=write, args=(catalog, targets, writer, start, results), daemon=True)
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
