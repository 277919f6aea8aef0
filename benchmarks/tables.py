"""Metadata-only Iceberg tables of any size, valid and quick to make.

Each commit appends a manifest of new files. Every `GROUP` commits their manifests are merged into one, and the
merged one is rewritten three more times with fewer files, as deletes and compactions do. The newest snapshots
keep the last version of each group. What a table holds from its first commit on, all of its snapshots share. Files
that the expiry will delete exist on disk, one byte each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.table_writer import START_MS, STEP_MS, Manifest, Writer

GROUP = 34
SHARED_FILES = 204  # for each of a group's commits: the manifests are as large as those of M
SHRINK = (1.0, 0.9, 0.8, 0.7)


@dataclass(frozen=True)
class Size:
    """How many snapshots a table gets and how many files each adds; how many files it holds before."""

    snapshots: int
    files_per_snapshot: int
    kept: int
    shared: int = 0

    @property
    def last_ms(self) -> int:
        """When the last snapshot is made."""
        return START_MS + self.snapshots * STEP_MS


SIZES = {"S": Size(100, 100, 10), "M": Size(1_000, 204, 10), "L": Size(5_000, 520, 50)}


@dataclass(frozen=True)
class Made:
    """A table on disk."""

    location: str
    snapshots: int
    files: int
    live_files: int
    entries: int  # of all manifests, each once
    metadata_bytes: int
    last_ms: int


def make_table(location: str, size: Size, *, whole: bool = False) -> Made:
    """A v2 table at `location`, a folder that does not exist yet, as a Hadoop catalog would have it."""
    writer = Writer(location)
    live, kept_files = 0, np.empty(0, np.int64)
    for number, manifests in enumerate(_history(writer, size), start=1):
        live = sum(len(m.files) for m in manifests)
        writer.snapshot(manifests, added=size.files_per_snapshot + (size.shared if number == 1 else 0))
        if number > size.snapshots - size.kept:
            kept_files = np.union1d(kept_files, np.concatenate([m.files for m in manifests]))
    every = np.arange(size.snapshots * size.files_per_snapshot)
    for file in every if whole else np.setdiff1d(every, kept_files):
        with open(writer.path_of(int(file)), "wb") as out:
            out.write(b"x")
    writer.publish()
    return Made(
        location, size.snapshots, len(every) + size.shared, live, writer.entries, writer.written, size.last_ms
    )


def _history(writer: Writer, size: Size) -> Iterator[list[Manifest]]:
    """The manifests of each snapshot, oldest first."""
    first = size.snapshots * size.files_per_snapshot
    whole = np.arange(first, first + size.shared)
    step = GROUP * SHARED_FILES
    shared = [
        writer.manifest(part, len(part), 1, 1)
        for part in (whole[at : at + step] for at in range(0, len(whole), step))
    ]
    merged: list[Manifest] = []
    shrinks: dict[int, int] = {}
    fresh: list[Manifest] = []
    for number in range(1, size.snapshots + 1):
        first = (number - 1) * size.files_per_snapshot
        files = np.arange(first, first + size.files_per_snapshot)
        for index, manifest in enumerate(merged):
            age = number - manifest.snapshot_id
            stage = shrinks[index]
            if age >= 5 and stage < len(SHRINK):
                left = manifest.files[: int(GROUP * size.files_per_snapshot * SHRINK[stage])]
                merged[index] = writer.manifest(left, 0, number, number)
                shrinks[index] = stage + 1
        if len(fresh) == GROUP - 1:
            everything = np.concatenate([*(m.files for m in fresh), files])
            shrinks[len(merged)] = 1
            merged.append(writer.manifest(everything, size.files_per_snapshot, number, number))
            fresh = []
        else:
            fresh.append(writer.manifest(files, len(files), number, number))
        yield [*shared, *merged, *fresh]
