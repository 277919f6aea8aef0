"""What a reader sees of a snapshot: the specification's "Scan Planning", word for word, one Python object at a time.

Reads with fastavro, pyarrow and pyroaring; nothing of `iceberg_cli` is used.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow.parquet as pq
from pyroaring import BitMap64

Read = Callable[[str], bytes]


def entries_of(read: Read, metadata: dict[str, Any], *, branch: str = "main") -> list[dict[str, Any]]:
    """Live entries of a branch's head, flat, with what they inherit, their `spec_id` and `manifest`."""
    head = metadata["refs"][branch]["snapshot-id"]
    (snapshot,) = [s for s in metadata["snapshots"] if s["snapshot-id"] == head]
    found = []
    for row in fastavro.reader(io.BytesIO(read(snapshot["manifest-list"]))):
        next_row_id = row.get("first_row_id")
        for entry in fastavro.reader(io.BytesIO(read(row["manifest_path"]))):
            flat = {**entry.pop("data_file"), **entry}
            if flat["status"] == 2:
                continue
            for name in ("sequence_number", "file_sequence_number"):
                if flat[name] is None:
                    assert flat["status"] == 1, "only added entries inherit sequence numbers"
                    flat[name] = row["sequence_number"]
            if flat["snapshot_id"] is None:
                flat["snapshot_id"] = row["added_snapshot_id"]
            if not row["content"] and flat.get("first_row_id") is None and next_row_id is not None:
                flat["first_row_id"] = next_row_id
                next_row_id += flat["record_count"]
            flat |= {"spec_id": row["partition_spec_id"], "manifest": row["manifest_path"]}
            found.append(flat)
    return found


def view(read: Read, metadata: dict[str, Any], *, branch: str = "main") -> dict[str, tuple[Any, ...]]:
    """For each live data file: records, deleted positions, equality delete files that apply, its row id.

    Raises:
        AssertionError: two deletion vectors apply to one data file.
    """
    entries = entries_of(read, metadata, branch=branch)
    specs = {spec["spec-id"]: spec for spec in metadata["partition-specs"]}
    deletes = [entry for entry in entries if entry["content"]]
    seen: dict[str, tuple[Any, ...]] = {}
    for data in entries:
        if data["content"]:
            continue
        assert data["file_path"] not in seen, "a data file may be listed once"
        vectors = [d for d in deletes if is_vector(d) and applies(d, data)]
        assert len(vectors) <= 1, f"{len(vectors)} deletion vectors for {data['file_path']}"
        positions: set[int] = set()
        if vectors:
            positions = vector(read, vectors[0])
        else:
            for delete in deletes:
                if delete["content"] == 1 and not is_vector(delete) and applies(delete, data):
                    positions |= positions_for(read, delete, data["file_path"])
        equality = sorted(
            d["file_path"]
            for d in deletes
            if d["content"] == 2
            and data["sequence_number"] < d["sequence_number"]
            and (not specs[d["spec_id"]]["fields"] or same_partition(d, data))
        )
        inside = frozenset(p for p in positions if p < data["record_count"])
        row_id = data.get("first_row_id")
        seen[data["file_path"]] = (
            data["record_count"],
            inside,
            tuple(equality),
            row_id,
            data["sequence_number"],
        )
    return seen


def is_vector(delete: dict[str, Any]) -> bool:
    return bool(delete["file_format"].upper() == "PUFFIN")


def same_partition(delete: dict[str, Any], data: dict[str, Any]) -> bool:
    return bool(delete["spec_id"] == data["spec_id"] and delete["partition"] == data["partition"])


def applies(delete: dict[str, Any], data: dict[str, Any]) -> bool:
    """A deletion vector or position delete file and a data file, but for the vector that hides the file."""
    ref = delete.get("referenced_data_file")
    return (
        (ref is None or ref == data["file_path"])
        and data["sequence_number"] <= delete["sequence_number"]
        and same_partition(delete, data)
    )


def vector(read: Read, delete: dict[str, Any]) -> set[int]:
    """The positions of a deletion vector, its framing checked."""
    data = read(delete["file_path"])
    offset, size = delete["content_offset"], delete["content_size_in_bytes"]
    (footer_size,) = struct.unpack("<i", data[-12:-8])
    blobs = json.loads(data[-12 - footer_size : -12])["blobs"]
    (blob,) = [b for b in blobs if b["offset"] == offset]
    assert data[:4] == data[-4:] == b"PFA1"
    assert blob["length"] == size
    assert blob["type"] == "deletion-vector-v1"
    assert blob["fields"] == [2147483645]
    assert (blob["snapshot-id"], blob["sequence-number"]) == (-1, -1)
    assert blob["properties"] == {
        "referenced-data-file": delete["referenced_data_file"],
        "cardinality": str(delete["record_count"]),
    }
    body = data[offset : offset + size]
    assert struct.unpack(">I", body[:4]) == (size - 8,)
    assert body[4:8] == b"\xd1\xd3\x39\x64"
    assert struct.unpack(">I", body[-4:]) == (zlib.crc32(body[4:-4]),)
    positions = set(BitMap64.deserialize(body[8:-4]))
    assert len(positions) == delete["record_count"]
    assert delete["file_size_in_bytes"] == len(data)
    return positions


def positions_for(read: Read, delete: dict[str, Any], data_file: str) -> set[int]:
    """The positions that a position delete file names of a data file."""
    rows = pq.read_table(io.BytesIO(read(delete["file_path"])))
    pairs = zip(rows["file_path"].to_pylist(), rows["pos"].to_pylist(), strict=True)
    return {position for path, position in pairs if path == data_file}
