"""Tables for merge-dvs: many Puffin files in part superseded, many position delete files, many that dangle.

Nothing reads the data files, so there are none. The same numbers make the same bytes.
"""

from __future__ import annotations

import io
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.table_writer import START_MS, STEP_MS
from iceberg_cli.encoding.deletion_vector import encode
from iceberg_cli.iceberg.spec.manifest_writer import write_manifest, write_manifest_list
from iceberg_cli.iceberg.spec.puffin import deletion_vector_blob, read_footer, write

SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
}
SPEC: dict[str, Any] = {"spec-id": 0, "fields": []}
RECORDS = 1_000_000  # of a data file
_SYNC = b"deletes of tables"[:16]


@dataclass
class _Table:
    location: str
    manifests: list[dict[str, Any]]
    version: int = 3
    sequence: int = 0
    live: dict[str, tuple[str, dict[str, Any]]] | None = None

    def data_path(self, number: int) -> str:
        return f"{self.location}/data/part-{number:06d}.parquet"

    def put(self, name: str, data: bytes) -> str:
        path = f"{self.location}/{name}"
        Path(path).write_bytes(data)
        return path

    def manifest(self, entries: list[dict[str, Any]], content: int) -> None:
        """A commit with one manifest."""
        self.sequence += 1
        data = write_manifest(
            entries,
            schema=SCHEMA,
            partition_spec=SPEC,
            format_version=self.version,
            content=content,
            sync=_SYNC,
        )
        path = self.put(f"metadata/m-{self.sequence}.avro", data)
        counts = {
            kind: [e for e in entries if e["status"] == status] for status, kind in enumerate(_STATUSES)
        }
        row = {
            "manifest_path": path, "manifest_length": len(data), "partition_spec_id": 0, "content": content,
            "sequence_number": self.sequence, "min_sequence_number": self.sequence, "added_snapshot_id": self.sequence,
            "partitions": [], "first_row_id": None if content else 0,
        }  # fmt: skip
        for kind, mine in counts.items():
            row |= {
                f"{kind}_files_count": len(mine),
                f"{kind}_rows_count": sum(e["record_count"] for e in mine),
            }
        self.manifests.append(row)

    def data_files(self, count: int) -> None:
        self.manifest(
            [_entry(self.data_path(n), RECORDS, 10 * RECORDS, "PARQUET", 0) for n in range(count)], 0
        )

    def publish(self, next_row_id: int) -> None:
        """One snapshot that lists all manifests."""
        live = [row["added_files_count"] + row["existing_files_count"] for row in self.manifests]
        deletes = sum(n for n, row in zip(live, self.manifests, strict=True) if row["content"])
        snapshot = {
            "snapshot-id": self.sequence, "sequence-number": self.sequence, "timestamp-ms": START_MS + STEP_MS,
            "manifest-list": self.put(
                "metadata/snap.avro",
                write_manifest_list(
                    list(reversed(self.manifests)), format_version=self.version, snapshot_id=self.sequence,
                    parent_snapshot_id=None, sequence_number=self.sequence, first_row_id=0, sync=_SYNC,
                ),
            ),
            "summary": {
                "operation": "overwrite", "total-delete-files": str(deletes),
                "total-data-files": str(sum(live) - deletes), "total-equality-deletes": "0",
            },
            "schema-id": 0, "first-row-id": 0, "added-rows": next_row_id,
        }  # fmt: skip
        document = {
            "format-version": self.version, "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c2",
            "location": self.location, "last-sequence-number": self.sequence, "last-updated-ms": START_MS + STEP_MS,
            "last-column-id": 1, "current-schema-id": 0, "schemas": [SCHEMA], "default-spec-id": 0,
            "partition-specs": [SPEC], "last-partition-id": 999, "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}], "properties": {}, "next-row-id": next_row_id,
            "current-snapshot-id": self.sequence, "snapshots": [snapshot],
            "refs": {"main": {"type": "branch", "snapshot-id": self.sequence}},
            "snapshot-log": [{"timestamp-ms": START_MS + STEP_MS, "snapshot-id": self.sequence}],
            "metadata-log": [],
        }  # fmt: skip
        self.put("metadata/v1.metadata.json", json.dumps(document).encode())
        self.put("metadata/version-hint.text", b"1")


_STATUSES = ("existing", "added", "deleted")


def _entry(path: str, records: int, size: int, kind: str, content: int, **others: Any) -> dict[str, Any]:
    return {
        "status": 1, "snapshot_id": None, "sequence_number": None, "file_sequence_number": None, "content": content,
        "file_path": path, "file_format": kind, "partition": {}, "record_count": records,
        "file_size_in_bytes": size, **others,
    }  # fmt: skip


def _new(location: str) -> _Table:
    for name in ("metadata", "data"):
        os.makedirs(f"{location}/{name}")
    return _Table(location, [])


def make_puffin_table(
    location: str, *, puffins: int = 500, vectors: int = 20, superseded: float = 0.3, deleted: int = 1_000
) -> None:
    """Puffin files of deletion vectors, in each of which a part has been replaced by a vector of a later file.

    Args:
        location: a folder that does not exist yet.
        puffins: how many files, each with a manifest of its own.
        vectors: in each.
        superseded: part of the vectors that have no entry any more.
        deleted: positions in each vector.
    """
    table = _new(location)
    rng = np.random.default_rng(3)
    slots = puffins * vectors
    # Each slot's data file; a slot that is superseded has that of a slot of a later Puffin file.
    dead = rng.choice(slots - vectors, int(slots * superseded), replace=False)
    live = np.setdiff1d(np.arange(slots), dead)
    files = np.full(slots, -1)
    files[live] = np.arange(len(live))
    for slot in dead:
        first = np.searchsorted(live, (slot // vectors + 1) * vectors)
        files[slot] = rng.integers(min(first, len(live) - 1), len(live))
    table.data_files(len(live))
    alive = np.isin(np.arange(slots), live)
    for number in range(puffins):
        mine = range(number * vectors, (number + 1) * vectors)
        blobs = []
        for slot in mine:
            positions = np.unique(rng.integers(0, RECORDS, deleted)).astype(np.uint64)
            path = table.data_path(int(files[slot]))
            blobs.append(
                deletion_vector_blob(encode(positions), referenced_data_file=path, cardinality=len(positions))
            )
        data = write(blobs, {"created-by": "a benchmark"})
        path = table.put(f"data/{number:05d}-deletes.puffin", data)
        entries = [
            _entry(
                path, int(blob.properties["cardinality"]), len(data), "PUFFIN", 1,
                referenced_data_file=blob.properties["referenced-data-file"], content_offset=blob.offset,
                content_size_in_bytes=blob.length,
            )
            for slot, blob in zip(mine, read_footer(data, len(data), path).blobs, strict=True)
            if alive[slot]
        ]  # fmt: skip
        if entries:
            table.manifest(entries, 1)
    table.publish(len(live) * RECORDS)


def make_position_delete_table(
    location: str, *, files: int = 1_000, positions: int = 100_000, data_files: int = 1_000
) -> None:
    """Position delete files, each of which deletes rows of ten data files, of a table that was upgraded.

    Args:
        location: a folder that does not exist yet.
        files: position delete files.
        positions: in each, about.
        data_files: of the table.
    """
    table = _new(location)
    rng = np.random.default_rng(4)
    table.data_files(data_files)
    entries = []
    for number in range(files):
        chosen = np.sort(rng.choice(data_files, min(10, data_files), replace=False))
        parts = [np.unique(rng.integers(0, RECORDS, positions // len(chosen))) for _ in chosen]
        names = [table.data_path(int(n)) for n in chosen]
        data = _position_deletes(names, parts)
        path = table.put(f"data/{number:05d}-deletes.parquet", data)
        entries.append(_entry(path, sum(map(len, parts)), len(data), "PARQUET", 1))
    table.manifest(entries, 1)
    table.publish(data_files * RECORDS)


def make_dangling_table(location: str, *, files: int = 90_000, data_files: int = 1_000) -> None:
    """Position delete files of version 2, each of one data file that a compaction has replaced.

    Args:
        location: a folder that does not exist yet.
        files: position delete files, in ten manifests.
        data_files: of the table, all newer.
    """
    table = _new(location)
    table.version = 2
    for first in range(0, files, max(1, files // 10)):
        entries = []
        for number in range(first, min(first + max(1, files // 10), files)):
            data = _position_deletes([f"{location}/data/replaced-{number:06d}.parquet"], [np.arange(10)])
            path = table.put(f"data/{number:06d}-deletes.parquet", data)
            entries.append(_entry(path, 10, len(data), "PARQUET", 1))
        table.manifest(entries, 1)
    table.data_files(data_files)
    table.publish(data_files * RECORDS)


def _position_deletes(names: list[str], parts: list[np.ndarray]) -> bytes:
    indices = np.repeat(np.arange(len(names), dtype=np.int32), [len(part) for part in parts])
    fields = [
        pa.field(
            "file_path", pa.dictionary(pa.int32(), pa.string()), nullable=False, metadata=_id(2147483546)
        ),
        pa.field("pos", pa.int64(), nullable=False, metadata=_id(2147483545)),
    ]
    paths = pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(names))
    table = pa.table([paths, pa.array(np.concatenate(parts))], schema=pa.schema(fields))
    out = io.BytesIO()
    # As Iceberg's own writers do: the footer has field ids, and no Arrow schema.
    pq.write_table(table, out, compression="zstd", use_dictionary=["file_path"], store_schema=False)
    return out.getvalue()


def _id(number: int) -> dict[str, str]:
    return {"PARQUET:field_id": str(number)}


def main() -> None:
    """`python -m benchmarks.delete_tables puffins|positions|dangling FOLDER`."""
    kind, location = sys.argv[1:3]
    makers = {
        "puffins": make_puffin_table, "positions": make_position_delete_table, "dangling": make_dangling_table,
    }  # fmt: skip
    makers[kind](location)


if __name__ == "__main__":
    main()
