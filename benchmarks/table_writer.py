"""Writes metadata-only Iceberg tables, valid and quickly: many entries are one that is copied and changed."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import numpy.typing as npt

from iceberg_cli.iceberg.avro.container import write_container
from iceberg_cli.iceberg.spec.manifest_schemas import manifest_schema, partition_struct
from iceberg_cli.iceberg.spec.manifest_writer import write_manifest_list

COLUMNS = 20
START_MS = 1_700_000_000_000
STEP_MS = 60_000
_BLOCK_BYTES = 64_000
_DIGITS = 12
_PLACE = "0" * _DIGITS
_MARK = b"\xa5" * 8
_UNIQUE = "~" * 32
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": i + 1, "name": f"c{i}", "required": False, "type": "long"} for i in range(COLUMNS)],
}
SPEC = {"spec-id": 0, "fields": []}


@dataclass
class Manifest:
    """A manifest as the lists of snapshots name it."""

    path: str
    length: int
    files: npt.NDArray[np.int64]
    added: int
    existing: int
    sequence_number: int
    snapshot_id: int


@dataclass
class Writer:
    """Writes a v2 table to `location`, a folder that does not exist yet, as a Hadoop catalog would have it.

    Args:
        location: where to.
        small: entries hold no metrics of columns, and files have names that no two tables share, as most writers' do,
            so `path_of` does not give them.
    """

    location: str
    small: bool = False
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))
    template: bytes = b""
    metadata: dict[str, bytes] = field(default_factory=dict)
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    written: int = 0  # bytes
    entries: int = 0

    def __post_init__(self) -> None:
        for name in ("metadata", "data"):
            os.makedirs(f"{self.location}/{name}")
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
        full = self._encode(1, 7, 7)
        self.template = full[len(self._head_of(full)) :]
        self.place = self.template.index(_PLACE.encode())
        self.marks = [i for i in range(len(self.template)) if self.template.startswith(_MARK, i)][
            : 2 * COLUMNS
        ]

    def path_of(self, number: int) -> str:
        """Where a data file is."""
        return f"{self.location}/data/part-{number:0{_DIGITS}d}.parquet"

    def _encode(self, status: int, snapshot_id: int, sequence_number: int) -> bytes:
        columns = () if self.small else range(COLUMNS)
        name = f"part-{_PLACE}-{_UNIQUE}.parquet" if self.small else f"part-{_PLACE}.parquet"
        pairs = [{"key": i + 1, "value": 5_000 + i} for i in columns]
        record = {
            "status": status,
            "snapshot_id": snapshot_id,
            "sequence_number": sequence_number,
            "file_sequence_number": sequence_number,
            "data_file": {
                "content": 0,
                "file_path": f"{self.location}/data/{name}",
                "file_format": "PARQUET",
                "partition": {},
                "record_count": 10_000,
                "file_size_in_bytes": 1,
                "column_sizes": pairs,
                "value_counts": pairs,
                "null_value_counts": pairs,
                "nan_value_counts": [],
                "lower_bounds": [{"key": i + 1, "value": _MARK} for i in columns],
                "upper_bounds": [{"key": i + 1, "value": _MARK} for i in columns],
                "split_offsets": [4],
                "sort_order_id": 0,
            },
        }
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self.parsed, record)
        return out.getvalue()

    def _head_of(self, entry: bytes) -> bytes:
        """Everything before data_file: its first field, content, is one byte, the path's length one or two."""
        length = len(self.path_of(0)) + (len(_UNIQUE) + 1) * self.small
        at = entry.index(self.location.encode()) - (3 if length > 63 else 2)
        return entry[:at]

    def _rows(self, files: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        rows = np.tile(np.frombuffer(self.template, np.uint8), (len(files), 1))
        for digit in range(_DIGITS):
            rows[:, self.place + digit] = 48 + files // 10 ** (_DIGITS - 1 - digit) % 10
        seeds = np.random.default_rng(int(files[0]))
        if self.small:
            first = self.template.index(_UNIQUE.encode())
            rows[:, first : first + len(_UNIQUE)] = _HEX[
                self.rng.integers(0, 16, (len(files), len(_UNIQUE)), np.uint8)
            ]
        for mark in self.marks:
            rows[:, mark : mark + 3] = seeds.integers(0, 256, (len(files), 3), np.uint8)
        return rows

    def manifest(
        self, files: npt.NDArray[np.int64], new: int, snapshot_id: int, sequence_number: int
    ) -> Manifest:
        """`files`, of which the last `new` are ADDED and the others EXISTING since the commit before."""
        parts = []
        for status, part in ((0, files[: len(files) - new]), (1, files[len(files) - new :])):
            if not len(part):
                continue
            head = np.frombuffer(self._head_of(self._encode(status, snapshot_id, sequence_number)), np.uint8)
            parts.append((np.tile(head, (len(part), 1)), self._rows(part)))
        blocks: list[tuple[int, bytes]] = []
        for head, rows in parts:
            whole = np.concatenate((head, rows), axis=1)
            step = max(1, _BLOCK_BYTES // whole.shape[1])
            blocks += [
                (len(whole[i : i + step]), whole[i : i + step].tobytes()) for i in range(0, len(whole), step)
            ]
        data = write_container(self.schema, self.metadata, blocks, codec="deflate", sync=self.rng.bytes(16))
        path = f"{self.location}/metadata/m-{snapshot_id}-{self.written}.avro"
        self._put(path, data)
        self.entries += len(files)
        return Manifest(path, len(data), files, new, len(files) - new, sequence_number, snapshot_id)

    def _put(self, path: str, data: bytes) -> None:
        Path(path).write_bytes(data)
        self.written += len(data)

    def _manifest_list(self, manifests: Sequence[Manifest], snapshot_id: int, sequence_number: int) -> str:
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

    def snapshot(self, manifests: Sequence[Manifest], *, added: int) -> None:
        """Add the next snapshot, of these manifests; `added` of their files are new."""
        number = len(self.snapshots) + 1
        live = sum(len(m.files) for m in manifests)
        self.snapshots.append(
            {
                "snapshot-id": number,
                **({"parent-snapshot-id": number - 1} if number > 1 else {}),
                "sequence-number": number,
                "timestamp-ms": START_MS + number * STEP_MS,
                "manifest-list": self._manifest_list(manifests, number, number),
                "summary": {
                    "operation": "overwrite",
                    "added-data-files": str(added),
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

    def publish(self) -> None:
        """Write the metadata file, and the hint at it."""
        Path(f"{self.location}/metadata/v1.metadata.json").write_text(
            json.dumps(_metadata(self.location, self.snapshots))
        )
        Path(f"{self.location}/metadata/version-hint.text").write_text("1")


def _metadata(location: str, snapshots: Sequence[dict[str, Any]]) -> dict[str, object]:
    current = len(snapshots)
    return {
        "format-version": 2,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": location,
        "last-sequence-number": current,
        "last-updated-ms": snapshots[-1]["timestamp-ms"],
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
