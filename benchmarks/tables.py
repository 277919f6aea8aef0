"""Metadata-only Iceberg tables of any size, valid and quick to make.

Each commit appends a manifest of new files. Every `GROUP` commits their manifests are merged into one, and the
merged one is rewritten three more times with fewer files, as deletes and compactions do. The newest snapshots
keep the last version of each group. What a table holds from its first commit on, all of its snapshots share. Files
that the expiry will delete exist on disk, one byte each.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import fastavro
import numpy as np
import numpy.typing as npt

from iceberg_cli.iceberg.avro import write_container
from iceberg_cli.iceberg.manifest_schemas import manifest_schema, partition_struct
from iceberg_cli.iceberg.manifest_writer import write_manifest_list

COLUMNS = 20
GROUP = 34
SHARED_FILES = 204  # for each of a group's commits: the manifests are as large as those of M
SHRINK = (1.0, 0.9, 0.8, 0.7)
BLOCK_BYTES = 64_000
START_MS = 1_700_000_000_000
STEP_MS = 60_000
DIGITS = 12
PLACE = "0" * DIGITS
MARK = b"\xa5" * 8
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": i + 1, "name": f"c{i}", "required": False, "type": "long"} for i in range(COLUMNS)],
}
SPEC = {"spec-id": 0, "fields": []}


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


@dataclass
class _Manifest:
    path: str
    length: int
    files: npt.NDArray[np.int64]
    added: int
    existing: int
    sequence_number: int
    snapshot_id: int


@dataclass
class _Writer:
    location: str
    rng: np.random.Generator
    template: bytes = b""
    metadata: dict[str, bytes] = field(default_factory=dict)
    written: int = 0
    entries: int = 0

    def __post_init__(self) -> None:
        self.schema = manifest_schema(2, partition_struct(SCHEMA, []))
        self.metadata = {
            "schema": json.dumps(SCHEMA).encode(),
            "schema-id": b"0",
            "partition-spec": b"[]",
            "partition-spec-id": b"0",
            "format-version": b"2",
            "content": b"data",
        }
        self.parsed = fastavro.parse_schema(json.loads(self.schema))
        self.heads: dict[tuple[int, int, int], bytes] = {}
        full = self._encode(1, 7, 7)
        self.head_length = len(self._head_of(full))
        self.template = full[self.head_length :]
        self.place = self.template.index(PLACE.encode())
        self.marks = [i for i in range(len(self.template)) if self.template.startswith(MARK, i)][
            : 2 * COLUMNS
        ]

    def path_of(self, number: int) -> str:
        return f"{self.location}/data/part-{number:0{DIGITS}d}.parquet"

    def _encode(self, status: int, snapshot_id: int, sequence_number: int) -> bytes:
        pairs = [{"key": i + 1, "value": 5_000 + i} for i in range(COLUMNS)]
        record = {
            "status": status,
            "snapshot_id": snapshot_id,
            "sequence_number": sequence_number,
            "file_sequence_number": sequence_number,
            "data_file": {
                "content": 0,
                "file_path": f"{self.location}/data/part-{PLACE}.parquet",
                "file_format": "PARQUET",
                "partition": {},
                "record_count": 10_000,
                "file_size_in_bytes": 1,
                "column_sizes": pairs,
                "value_counts": pairs,
                "null_value_counts": pairs,
                "nan_value_counts": [],
                "lower_bounds": [{"key": i + 1, "value": MARK} for i in range(COLUMNS)],
                "upper_bounds": [{"key": i + 1, "value": MARK} for i in range(COLUMNS)],
                "split_offsets": [4],
                "sort_order_id": 0,
            },
        }
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self.parsed, record)
        return out.getvalue()

    def _head_of(self, entry: bytes) -> bytes:
        """Everything before data_file: its first field, content, is one byte, the path's length one or two."""
        length = len(self.path_of(0))
        at = entry.index(self.location.encode()) - (3 if length > 63 else 2)
        return entry[:at]

    def rows(self, files: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        rows = np.tile(np.frombuffer(self.template, np.uint8), (len(files), 1))
        for digit in range(DIGITS):
            rows[:, self.place + digit] = 48 + files // 10 ** (DIGITS - 1 - digit) % 10
        seeds = np.random.default_rng(int(files[0]))
        for mark in self.marks:
            rows[:, mark : mark + 3] = seeds.integers(0, 256, (len(files), 3), np.uint8)
        return rows

    def manifest(
        self, files: npt.NDArray[np.int64], new: int, snapshot_id: int, sequence_number: int
    ) -> _Manifest:
        """`files`, of which the last `new` are ADDED and the others EXISTING since the commit before."""
        parts = []
        for status, part in ((0, files[: len(files) - new]), (1, files[len(files) - new :])):
            if not len(part):
                continue
            head = np.frombuffer(self._head_of(self._encode(status, snapshot_id, sequence_number)), np.uint8)
            parts.append((np.tile(head, (len(part), 1)), self.rows(part)))
        blocks: list[tuple[int, bytes]] = []
        for head, rows in parts:
            whole = np.concatenate((head, rows), axis=1)
            step = max(1, BLOCK_BYTES // whole.shape[1])
            blocks += [
                (len(whole[i : i + step]), whole[i : i + step].tobytes()) for i in range(0, len(whole), step)
            ]
        data = write_container(self.schema, self.metadata, blocks, codec="deflate", sync=self.rng.bytes(16))
        path = f"{self.location}/metadata/m-{snapshot_id}-{self.written}.avro"
        self._put(path, data)
        self.entries += len(files)
        return _Manifest(path, len(data), files, new, len(files) - new, sequence_number, snapshot_id)

    def _put(self, path: str, data: bytes) -> None:
        Path(path).write_bytes(data)
        self.written += len(data)

    def manifest_list(self, manifests: list[_Manifest], snapshot_id: int, sequence_number: int) -> str:
        rows = [
            {
                "manifest_path": m.path,
                "manifest_length": m.length,
                "partition_spec_id": 0,
                "content": 0,
                "sequence_number": m.sequence_number,
                "min_sequence_number": m.sequence_number,
                "added_snapshot_id": m.snapshot_id,
                "added_files_count": m.added,
                "existing_files_count": m.existing,
                "deleted_files_count": 0,
                "added_rows_count": m.added * 10_000,
                "existing_rows_count": m.existing * 10_000,
                "deleted_rows_count": 0,
            }
            for m in manifests
        ]
        data = write_manifest_list(
            rows,
            format_version=2,
            snapshot_id=snapshot_id,
            parent_snapshot_id=snapshot_id - 1 or None,
            sequence_number=sequence_number,
            sync=self.rng.bytes(16),
        )
        path = f"{self.location}/metadata/snap-{snapshot_id}.avro"
        self._put(path, data)
        return path


def make_table(location: str, size: Size, *, whole: bool = False) -> Made:
    """A v2 table at `location`, a folder that does not exist yet, as a Hadoop catalog would have it."""
    for name in ("metadata", "data"):
        os.makedirs(f"{location}/{name}")
    writer = _Writer(location, np.random.default_rng(1))
    snapshots, live, kept_files = [], 0, np.empty(0, np.int64)
    for number, manifests in enumerate(_history(writer, size), start=1):
        live = sum(len(m.files) for m in manifests)
        files = number * size.files_per_snapshot
        snapshots.append(
            {
                "snapshot-id": number,
                **({"parent-snapshot-id": number - 1} if number > 1 else {}),
                "sequence-number": number,
                "timestamp-ms": START_MS + number * STEP_MS,
                "manifest-list": writer.manifest_list(manifests, number, number),
                "summary": {
                    "operation": "overwrite",
                    "added-data-files": str(size.files_per_snapshot + (size.shared if number == 1 else 0)),
                    "total-data-files": str(live),
                    "total-delete-files": "0",
                    "total-records": str(live * 10_000),
                    "total-files-size": str(live),
                    "total-position-deletes": "0",
                    "total-equality-deletes": "0",
                },
                "schema-id": 0,
            }
        )
        if number > size.snapshots - size.kept:
            kept_files = np.union1d(kept_files, np.concatenate([m.files for m in manifests]))
    every = np.arange(size.snapshots * size.files_per_snapshot)
    for file in every if whole else np.setdiff1d(every, kept_files):
        with open(writer.path_of(int(file)), "wb") as out:
            out.write(b"x")
    Path(f"{location}/metadata/v1.metadata.json").write_text(
        json.dumps(_metadata(location, snapshots, size.last_ms))
    )
    Path(f"{location}/metadata/version-hint.text").write_text("1")
    return Made(
        location, size.snapshots, files + size.shared, live, writer.entries, writer.written, size.last_ms
    )


def _history(writer: _Writer, size: Size) -> Iterator[list[_Manifest]]:
    """The manifests of each snapshot, oldest first."""
    first = size.snapshots * size.files_per_snapshot
    whole = np.arange(first, first + size.shared)
    step = GROUP * SHARED_FILES
    shared = [
        writer.manifest(part, len(part), 1, 1)
        for part in (whole[at : at + step] for at in range(0, len(whole), step))
    ]
    merged: list[_Manifest] = []
    shrinks: dict[int, int] = {}
    fresh: list[_Manifest] = []
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


def _metadata(location: str, snapshots: list[dict[str, object]], last_ms: int) -> dict[str, object]:
    current = len(snapshots)
    return {
        "format-version": 2,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": location,
        "last-sequence-number": current,
        "last-updated-ms": last_ms,
        "last-column-id": COLUMNS,
        "current-schema-id": 0,
        "schemas": [SCHEMA],
        "default-spec-id": 0,
        "partition-specs": [SPEC],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {},
        "current-snapshot-id": current,
        "refs": {"main": {"snapshot-id": current, "type": "branch"}},
        "snapshots": snapshots,
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [
            {"timestamp-ms": s["timestamp-ms"], "snapshot-id": s["snapshot-id"]} for s in snapshots
        ],
        "metadata-log": [],
    }
