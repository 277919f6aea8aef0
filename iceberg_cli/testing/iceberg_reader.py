"""What a reader sees of an Iceberg table: slow, literal, by `json`, fastavro, pyroaring and pyarrow alone.

Spec: Iceberg v3, "Scan Planning", "Deletion Vectors", "Row Lineage".
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from iceberg_cli.storage import Storage
from iceberg_cli.testing.iceberg_files import (
    ADDED,
    DATA,
    DELETED,
    DELETES,
    EQUALITY_DELETES,
    Json,
    records,
)

Row = tuple[str, int]  # data file, position
Lineage = tuple[int | None, int]  # row id, last updated sequence number


def entries_of(storage: Storage, manifest: Mapping[str, Any]) -> list[Json]:
    """The entries of a manifest with what they inherit, in file order. Spec: "Manifests", "Row Lineage"."""
    found = []
    next_row_id = manifest.get("first_row_id")
    # In version 1 there are no numbers, and they are read as 0.
    content, sequence_number = manifest.get("content") or DATA, manifest.get("sequence_number") or 0
    for record in records(storage.read(manifest["manifest_path"])):
        entry = {**record.pop("data_file"), **record}
        entry["content"] = entry.get("content") or 0
        if entry["status"] == ADDED or "sequence_number" not in entry:
            for name in ("sequence_number", "file_sequence_number"):
                if entry.get(name) is None:
                    entry[name] = sequence_number
        if entry["snapshot_id"] is None:
            entry["snapshot_id"] = manifest["added_snapshot_id"]
        row_id = entry.get("first_row_id")
        waits = content == DATA and entry["status"] != DELETED and row_id is None
        if waits and next_row_id is not None:
            row_id, next_row_id = next_row_id, next_row_id + entry["record_count"]
        entry["first_row_id"] = row_id if manifest.get("first_row_id") is not None else None
        found.append(entry)
    return found


def manifests_of(storage: Storage, snapshot: Mapping[str, Any]) -> list[Json]:
    """The rows of a snapshot's manifest list."""
    return records(storage.read(snapshot["manifest-list"]))


def snapshot_of(document: Mapping[str, Any], snapshot_id: int) -> Json:
    """One of a table's snapshots."""
    return next(dict(s) for s in document["snapshots"] if s["snapshot-id"] == snapshot_id)


def rows_of(storage: Storage, snapshot: Mapping[str, Any]) -> dict[Row, Lineage]:
    """The rows that a reader of a snapshot sees, each with its row id and last updated sequence number.

    Spec: "Scan Planning", "Deletion Vectors", "Row Lineage".
    """
    data: dict[str, Json] = {}
    deletes: list[Json] = []
    for manifest in manifests_of(storage, snapshot):
        live = [entry for entry in entries_of(storage, manifest) if entry["status"] != DELETED]
        for entry in live:
            if manifest["content"] == DELETES:
                deletes.append(entry)
            else:
                assert entry["file_path"] not in data, f"{entry['file_path']} is live twice"
                data[entry["file_path"]] = entry
    rows: dict[Row, Lineage] = {}
    for path, entry in data.items():
        gone = deleted_positions(storage, entry, deletes)
        for position in range(entry["record_count"]):
            if position not in gone:
                first = entry["first_row_id"]
                rows[path, position] = (
                    None if first is None else first + position,
                    entry["sequence_number"],
                )
    return rows


def deleted_positions(storage: Storage, data: Mapping[str, Any], deletes: Iterable[Json]) -> set[int]:
    """The positions of one data file that are deleted."""
    mine = [delete for delete in deletes if delete["sequence_number"] >= data["sequence_number"]]
    vectors = [
        d
        for d in mine
        if d["file_format"].upper() == "PUFFIN" and d["referenced_data_file"] == data["file_path"]
    ]
    assert len(vectors) < 2, f"two deletion vectors for {data['file_path']}"
    if vectors:
        return set(vector_of(storage, vectors[0]))
    found: set[int] = set()
    for delete in mine:
        if delete["file_format"].upper() == "PARQUET" and delete["content"] != EQUALITY_DELETES:
            named = parquet_table(storage.read(delete["file_path"])).to_pylist()
            found |= {row["pos"] for row in named if row["file_path"] == data["file_path"]}
    return found


@lru_cache(maxsize=256)
def parquet_table(data: bytes) -> pa.Table:
    """The content of a Parquet file; that of the last ones is known, since a history is read again after each step."""
    return pq.ParquetFile(io.BytesIO(data)).read(use_threads=False)


def vector_of(storage: Storage, entry: Mapping[str, Any]) -> BitMap64:
    """A deletion vector, out of its Puffin file. Spec: Puffin, "deletion-vector-v1" blob type."""
    return vector_in(storage.read(entry["file_path"]), entry)


def vector_in(puffin: bytes, entry: Mapping[str, Any]) -> BitMap64:
    """A deletion vector, out of the bytes of its Puffin file."""
    assert len(puffin) == entry["file_size_in_bytes"]
    offset, size = entry["content_offset"], entry["content_size_in_bytes"]
    blob = puffin[offset : offset + size]
    length, crc = struct.unpack(">i", blob[:4])[0], struct.unpack(">I", blob[-4:])[0]
    assert length == size - 8
    assert blob[4:8] == b"\xd1\xd3\x39\x64"
    assert zlib.crc32(blob[4:-4]) == crc
    vector = BitMap64.deserialize(blob[8:-4])
    assert len(vector) == entry["record_count"]
    return vector


def reachable(storage: Storage, metadata_location: str) -> set[str]:
    """Every file that the table needs: all are read or looked at.

    Raises:
        FileNotFoundError: one is not there.
    """
    document = json.loads(storage.read(metadata_location))
    found = {metadata_location} | {entry["metadata-file"] for entry in document.get("metadata-log", ())}
    for kind in ("statistics", "partition-statistics"):
        found |= {entry["statistics-path"] for entry in document.get(kind, ())}
    for snapshot in document["snapshots"]:
        manifest_list = snapshot["manifest-list"]
        found.add(manifest_list)
        for manifest in records(storage.read(manifest_list)):
            found.add(manifest["manifest_path"])
            entries = records(storage.read(manifest["manifest_path"]))
            found |= {e["data_file"]["file_path"] for e in entries if e["status"] != DELETED}
    for path in found:
        storage.stat(path)
    return {storage.canonical(path) for path in found}


def check_table(
    storage: Storage,
    metadata_location: str,
    *,
    refs: Mapping[str, int],
    snapshots: Iterable[int] = (),
) -> set[str]:
    """The table is whole, its refs are where they were, and these snapshots are in it.

    Args:
        storage: where the files are.
        metadata_location: of the current metadata.
        refs: branch or tag -> snapshot id, all of them.
        snapshots: ids that must be there, such as those of acknowledged commits.

    Returns:
        What is reachable.
    """
    document = json.loads(storage.read(metadata_location))
    assert {name: ref["snapshot-id"] for name, ref in document["refs"].items()} == dict(refs)
    assert document["current-snapshot-id"] == refs["main"]
    ids = {snapshot["snapshot-id"] for snapshot in document["snapshots"]}
    assert set(refs.values()) <= ids
    assert set(snapshots) <= ids
    return reachable(storage, metadata_location)
