"""`python -m benchmarks orphans`: files that nothing names, looked for by us, by iceberg-go and by Spark's procedure.

A table of as many files on disk as its snapshots reach, and a twentieth more that nothing reaches: old ones, with names
of their own. Each side makes a dry run, and what each found is compared.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from uuid import UUID

import numpy as np

from benchmarks.bench import Bench, Row
from benchmarks.measure import Run
from benchmarks.peers import Session, iceberg_go, ours
from benchmarks.rows import WARM
from tests.large_tables import Made, Writer

_PLANTED: Final = 20  # files of the table for each that nothing names
_OLD_MS: Final = 1_700_000_000_000


@dataclass(frozen=True)
class Folder:
    """How many files a table has, in how many snapshots that all add as many."""

    files: int
    snapshots: int


SIZES = {"S": Folder(20_000, 20), "M": Folder(200_000, 200), "L": Folder(1_000_000, 100)}


def make_folder(location: str, size: Folder) -> Made:
    """A v2 table whose data files are there, without a byte, beside files that nothing names."""
    writer = Writer(location)
    each = size.files // size.snapshots
    manifests = []
    for commit in range(1, size.snapshots + 1):
        manifests.append(writer.manifest(np.arange((commit - 1) * each, commit * each), each, commit))
        writer.snapshot(manifests[::-1], added=each)
    writer.publish()
    for number in range(size.files):
        _touch(writer.path_of(number))
    for number in range(size.files // _PLANTED):
        _touch(f"{location}/data/00000-{number}-{UUID(int=number, version=4)}-00001.parquet")
    return Made(location, size.files, writer.entries, writer.written, _OLD_MS)


def _touch(path: str) -> None:
    with open(path, "wb"):
        pass
    os.utime(path, ns=(_OLD_MS * 1_000_000, _OLD_MS * 1_000_000))


def orphan_rows(bench: Bench) -> Iterator[Row]:
    """Dry runs of all three."""
    size = SIZES[bench.size_name]
    table = bench.table("t", partial(make_folder, size=size))
    row = Row(
        f"dry run, {size.files:,} files", "iceberg-go",
        ours("remove-orphan-files", table.location, "--older-than", "7d", "--dry-run", "--format", "json"),
        iceberg_go(table.location, "clean-orphan-files", "--older-than", "168h", "--dry-run"),
        table.untouched, look=_found_by_us, their_look=_found_by_go, bar=2 / 3, most_mb=500,
    )  # fmt: skip
    yield row
    if bench.spark:
        call = "CALL c.system.remove_orphan_files(table => 'db.t', dry_run => true)"
        with Session(f"{bench.root}/wh") as session:
            theirs, warm_up = partial(session.call, call), partial(session.warm_up, call)
            yield replace(
                row, peer=WARM, theirs=theirs, warm_up=warm_up, look=None, their_look=None, bar=1 / 6
            )


def _found_by_us(run: Run) -> Hashable:
    return int(json.loads(run.output)["removals"]["count"])


def _found_by_go(run: Run) -> Hashable:
    found = re.search(rb"(\d+) orphan files found", run.output)
    return 0 if found is None else int(found[1])
