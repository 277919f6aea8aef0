"""Iceberg tables of any size, valid and quick to make: their metadata is real, their data files are names or one byte.

The same numbers make the same bytes. Many entries are one that is copied and changed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from iceberg_cli.iceberg.avro.container import read_container, write_container
from iceberg_cli.testing import iceberg_files
from iceberg_cli.testing.iceberg_files import ADDED, DATA, DELETES, Entry

Numbers = npt.NDArray[np.int64]

COLUMNS = 20
START_MS = 1_700_000_000_000
STEP_MS = 60_000
GROUP = 34  # commits whose manifests are merged
SHARED_FILES = 204  # for each of a group's commits: the manifests are as large as those of M
SHRINK = (1.0, 0.9, 0.8, 0.7)
_BLOCK_BYTES = 64_000
_DIGITS = 12
_NUMBER = "0" * _DIGITS
_UNIQUE = "~" * 32
_BOUND = b"\xa5" * 8
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_SPEC: dict[str, Any] = {"spec-id": 0, "fields": []}
_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": i + 1, "name": f"c{i}", "required": False, "type": "long"} for i in range(COLUMNS)],
}


@dataclass(frozen=True)
class Size:
    """How many snapshots a table gets and how many files each adds; how many files it holds before."""

    snapshots: int
    files_per_snapshot: int
    kept: int
    shared: int = 0

    @property
    def last_ms(self) -> int:
        return START_MS + self.snapshots * STEP_MS


@dataclass(frozen=True)
class Made:
    location: str
    live_files: int
    entries: int  # of all manifests, each once
    metadata_bytes: int
    last_ms: int


@dataclass(frozen=True)
class Manifest:
    """A manifest on disk: its row of a manifest list, and the numbers of the data files that it names."""

    row: dict[str, Any]
    files: Numbers


@dataclass
class Writer:
    """Writes a table as a Hadoop catalog would have it; a commit's number is its snapshot id and sequence number."""

    location: str  # a folder that does not exist yet
    folder: str = ""  # the one on this disk in which the location's files are kept, where it is another
    version: int = 2
    # Entries hold no metrics of columns, and files have names that no two tables share, as most writers' do.
    small: bool = False
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    written: int = 0  # bytes
    entries: int = 0

    def __post_init__(self) -> None:
        self.folder = self.folder or self.location
        for name in ("metadata", "data"):
            os.makedirs(f"{self.folder}/{name}")

    def path_of(self, number: int) -> str:
        return f"{self.location}/data/part-{number:0{_DIGITS}d}.parquet"

    def put(self, name: str, data: bytes) -> str:
        Path(f"{self.folder}/{name}").write_bytes(data)
        self.written += len(data)
        return f"{self.location}/{name}"

    def manifest(self, files: Numbers, new: int, commit: int) -> Manifest:
        """`files`, of which the last `new` are ADDED and the others EXISTING since the commit before."""
        entries: list[Entry] = []
        blocks: list[tuple[int, bytes]] = []
        for status, part in enumerate(np.split(files, [len(files) - new])):
            if len(part):
                entry = self._template(status, commit)
                entries += [entry] * len(part)
                one = read_container(self._encoded([entry], DATA, bytes(16)), "one entry")
                rows = self._rows(part, bytes(one.blocks[0].payload))
                step = max(1, _BLOCK_BYTES // rows.shape[1])
                cut = (rows[i : i + step] for i in range(0, len(rows), step))
                blocks += [(len(block), block.tobytes()) for block in cut]
        schema, sync = one.schema_text.decode(), self.rng.bytes(16)
        data = write_container(schema, one.metadata, blocks, codec="deflate", sync=sync)
        return self._listed(data, commit, files, entries, DATA)

    def manifest_of(self, entries: Sequence[Entry], commit: int, *, content: int) -> Manifest:
        """Entries as they are, all ADDED."""
        data = self._encoded(entries, content, self.rng.bytes(16))
        found = self._listed(data, commit, np.arange(len(entries)), entries, content)
        found.row.update(partitions=[], first_row_id=None if content == DELETES else 0)
        return found

    def snapshot(self, manifests: Sequence[Manifest], *, added: int, commit: int = 0, rows: int = 0) -> None:
        """Add a snapshot of manifests, the next one or the only one, with a number; `rows` get ids in version 3."""
        parent = None if commit else len(self.snapshots) or None
        commit = commit or len(self.snapshots) + 1
        data, deletes = ([m for m in manifests if m.row["content"] == each] for each in (DATA, DELETES))
        row_ids = {"first-row-id": 0, "added-rows": rows} if self.version > 2 else {}
        listing = iceberg_files.manifest_list(
            [m.row for m in manifests], version=self.version, snapshot_id=commit, parent_snapshot_id=parent,
            sequence_number=commit, first_row_id=row_ids.get("first-row-id"), sync=self.rng.bytes(16),
        )  # fmt: skip
        self.snapshots.append(
            {
                "snapshot-id": commit, **({"parent-snapshot-id": parent} if parent else {}), "sequence-number": commit,
                "timestamp-ms": START_MS + commit * STEP_MS, "schema-id": 0, **row_ids,
                "manifest-list": self.put(f"metadata/snap-{commit}.avro", listing),
                "summary": {
                    "operation": "overwrite", "added-data-files": str(added), "total-data-files": _total(data),
                    "total-delete-files": _total(deletes), "total-records": _total(data, "rows"),
                    **({} if deletes else {"total-files-size": _total(data)}),
                    "total-position-deletes": _total(deletes, "rows"), "total-equality-deletes": "0",
                },
            }
        )  # fmt: skip

    def publish(self) -> None:
        last = self.snapshots[-1]
        log = [{name: each[name] for name in ("timestamp-ms", "snapshot-id")} for each in self.snapshots]
        document = {
            "format-version": self.version, "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": self.location, "last-sequence-number": last["sequence-number"],
            "last-updated-ms": last["timestamp-ms"], "last-column-id": COLUMNS, "current-schema-id": 0,
            "schemas": [_SCHEMA], "default-spec-id": 0, "partition-specs": [_SPEC], "last-partition-id": 999,
            "default-sort-order-id": 0, "sort-orders": [{"order-id": 0, "fields": []}], "properties": {},
            "current-snapshot-id": last["snapshot-id"],
            "refs": {"main": {"snapshot-id": last["snapshot-id"], "type": "branch"}}, "snapshots": self.snapshots,
            "statistics": [], "partition-statistics": [], "snapshot-log": log, "metadata-log": [],
            **({"next-row-id": last["added-rows"]} if self.version > 2 else {}),
        }  # fmt: skip
        Path(f"{self.folder}/metadata/v1.metadata.json").write_text(json.dumps(document))
        Path(f"{self.folder}/metadata/version-hint.text").write_text("1")

    def _listed(
        self, data: bytes, commit: int, files: Numbers, entries: Sequence[Entry], content: int
    ) -> Manifest:
        self.entries += len(files)
        path = self.put(f"metadata/m-{commit}-{self.written}.avro", data)
        row = iceberg_files.manifest_row(
            path, data, entries, content=content, spec_id=0, snapshot_id=commit, sequence_number=commit,
            min_sequence_number=commit,
        )  # fmt: skip
        return Manifest(row, files)

    def _encoded(self, entries: Sequence[Entry], content: int, sync: bytes) -> bytes:
        return iceberg_files.manifest(
            entries, schema=_SCHEMA, spec=_SPEC, version=self.version, content=content, sync=sync
        )

    def _template(self, status: int, commit: int) -> Entry:
        columns = () if self.small else range(1, COLUMNS + 1)
        counts, bounds = {i: 4_999 + i for i in columns}, dict.fromkeys(columns, _BOUND)
        metrics: dict[str, Any] = dict.fromkeys(("column_sizes", "value_counts", "null_value_counts"), counts)
        metrics |= {"nan_value_counts": {}, "lower_bounds": bounds, "upper_bounds": bounds}
        name = f"part-{_NUMBER}-{_UNIQUE}.parquet" if self.small else f"part-{_NUMBER}.parquet"
        entry = an_entry(f"{self.location}/data/{name}", 10_000, 1, split_offsets=[4], sort_order_id=0)
        numbers = dict.fromkeys(("snapshot_id", "sequence_number", "file_sequence_number"), commit)
        return entry | metrics | numbers | {"status": status}

    def _rows(self, files: Numbers, entry: bytes) -> npt.NDArray[np.uint8]:
        """An entry for each file, encoded: one that is copied, with a number, name and bounds of its own."""
        rows = np.tile(np.frombuffer(entry, np.uint8), (len(files), 1))
        at = entry.index(f"part-{_NUMBER}".encode()) + len("part-")
        rows[:, at : at + _DIGITS] = 48 + files[:, None] // 10 ** np.arange(_DIGITS - 1, -1, -1) % 10
        if self.small:
            at, names = entry.index(_UNIQUE.encode()), (len(files), len(_UNIQUE))
            rows[:, at : at + len(_UNIQUE)] = _HEX[self.rng.integers(0, 16, names, np.uint8)]
        seeds = np.random.default_rng(int(files[0]))
        for bound in re.finditer(_BOUND, entry):
            rows[:, bound.start() : bound.start() + 3] = seeds.integers(0, 256, (len(files), 3), np.uint8)
        return rows


def _total(manifests: Sequence[Manifest], unit: str = "files") -> str:
    return str(sum(m.row[f"added_{unit}_count"] + m.row[f"existing_{unit}_count"] for m in manifests))


def make_table(location: str, size: Size, *, whole: bool = False) -> Made:
    """A v2 table, each commit of which appends a manifest of new files.

    Every `GROUP` commits their manifests are merged into one, and the merged one is rewritten three more times with
    fewer files, as deletes and compactions do. The newest snapshots keep the last version of each group. What a table
    holds from its first commit on, all of its snapshots share. Files that the expiry will delete exist on disk, one
    byte each; where it is `whole`, all do.
    """
    writer = Writer(location)
    live, kept_files = 0, np.empty(0, np.int64)
    for commit, manifests in enumerate(_history(writer, size), start=1):
        live = sum(len(m.files) for m in manifests)
        writer.snapshot(manifests, added=size.files_per_snapshot + (size.shared if commit == 1 else 0))
        if commit > size.snapshots - size.kept:
            kept_files = np.union1d(kept_files, np.concatenate([m.files for m in manifests]))
    every = np.arange(size.snapshots * size.files_per_snapshot)
    for file in every if whole else np.setdiff1d(every, kept_files):
        with open(writer.path_of(int(file)), "wb") as out:
            out.write(b"x")
    writer.publish()
    return Made(location, live, writer.entries, writer.written, size.last_ms)


def _history(writer: Writer, size: Size) -> Iterator[list[Manifest]]:
    """The manifests of each snapshot, oldest first."""
    first = size.snapshots * size.files_per_snapshot
    whole, step = np.arange(first, first + size.shared), GROUP * SHARED_FILES
    parts = [whole[at : at + step] for at in range(0, len(whole), step)]
    shared = [writer.manifest(part, len(part), 1) for part in parts]
    merged: list[Manifest] = []
    shrinks: list[int] = []
    fresh: list[Manifest] = []
    for commit in range(1, size.snapshots + 1):
        files = np.arange((commit - 1) * size.files_per_snapshot, commit * size.files_per_snapshot)
        for index, each in enumerate(merged):
            if commit - each.row["added_snapshot_id"] >= 5 and shrinks[index] < len(SHRINK):
                left = each.files[: int(GROUP * size.files_per_snapshot * SHRINK[shrinks[index]])]
                merged[index] = writer.manifest(left, 0, commit)
                shrinks[index] += 1
        if len(fresh) == GROUP - 1:
            everything = np.concatenate([*(m.files for m in fresh), files])
            merged.append(writer.manifest(everything, size.files_per_snapshot, commit))
            shrinks.append(1)
            fresh = []
        else:
            fresh.append(writer.manifest(files, len(files), commit))
        yield [*shared, *merged, *fresh]


def an_entry(path: str, records: int, size: int, **others: Any) -> Entry:
    """An entry of a file that its commit adds; its numbers are left to inheritance."""
    return {
        "status": ADDED, "content": DATA, "file_path": path, "file_format": "PARQUET", "partition": {},
        "record_count": records, "file_size_in_bytes": size, **others,
    }  # fmt: skip
