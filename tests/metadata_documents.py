"""Small metadata documents as parsed JSON, written out here so that tests can change one field."""

from __future__ import annotations

import json
from typing import Any

LOCATION = "s3://lake/shop/visits"
PATH = f"{LOCATION}/metadata/v1.metadata.json"


def a_snapshot(snapshot_id: int, **changes: Any) -> dict[str, Any]:
    """A snapshot as v2 writes it; `changes` spell keys with `_`."""
    snapshot: dict[str, Any] = {
        "sequence-number": snapshot_id,
        "snapshot-id": snapshot_id,
        "timestamp-ms": 1_000 + snapshot_id,
        "summary": {"operation": "append"},
        "manifest-list": f"{LOCATION}/metadata/snap-{snapshot_id}.avro",
        "schema-id": 0,
    }
    return _changed(snapshot, changes)


def a_document(version: int, *snapshot_ids: int, **changes: Any) -> dict[str, Any]:
    """A table of this format version; the last snapshot is the current one, the log has all of them."""
    schema = {
        "type": "struct",
        "schema-id": 0,
        "fields": [{"id": 1, "name": "n", "required": False, "type": "long"}],
    }
    document: dict[str, Any] = {
        "format-version": version,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": LOCATION,
        "last-sequence-number": max(snapshot_ids, default=0),
        "last-updated-ms": 1_000 + max(snapshot_ids, default=0),
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [schema],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {},
        "current-snapshot-id": snapshot_ids[-1] if snapshot_ids else -1,
        "refs": {"main": {"snapshot-id": snapshot_ids[-1], "type": "branch"}} if snapshot_ids else {},
        "snapshots": [a_snapshot(snapshot_id) for snapshot_id in snapshot_ids],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [{"timestamp-ms": 1_000 + each, "snapshot-id": each} for each in snapshot_ids],
        "metadata-log": [],
    }
    if version == 1:
        del document["last-sequence-number"]
        document["snapshots"] = [without(snapshot, "sequence-number") for snapshot in document["snapshots"]]
        document["schema"] = schema
        document["partition-spec"] = []
    if version == 3:
        document["next-row-id"] = 0
    return _changed(document, changes)


def without(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    """A copy that lacks some keys."""
    return {key: value for key, value in document.items() if key not in keys}


def encoded(document: dict[str, Any]) -> bytes:
    """The document as a file."""
    return json.dumps(document).encode()


def _changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    document |= {key.replace("_", "-"): value for key, value in changes.items()}
    return document
