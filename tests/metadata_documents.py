"""Small metadata documents as parsed JSON, of which tests change one field; and what is read of them and of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from iceberg_cli.encoding.strict_json import dumps, loads
from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from tests.builders import a_table_document

LOCATION = "s3://lake/shop/visits"
PATH = f"{LOCATION}/metadata/v1.metadata.json"
# Tables of the fixtures that Iceberg's Java library wrote.
JAVA_TABLES = [
    "16-iceberg-v3-java-row-lineage",
    "17-iceberg-v2-java-branches-tags-retention",
    "18-iceberg-v2-upgraded-v3-posdeletes",
    "19-iceberg-v1-java-spec-evolution",
    "20-iceberg-v3-java-many-puffins",
    "21-iceberg-java-statistics-and-gzip-metadata",
]


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
    newest, current = max(snapshot_ids, default=0), snapshot_ids[-1] if snapshot_ids else None
    document = a_table_document(format_version=version) | {
        "location": LOCATION,
        "last-sequence-number": newest,
        "last-updated-ms": 1_000 + newest,
        "current-snapshot-id": -1 if current is None else current,
        "refs": {} if current is None else {"main": {"snapshot-id": current, "type": "branch"}},
        "snapshots": [a_snapshot(snapshot_id) for snapshot_id in snapshot_ids],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [{"timestamp-ms": 1_000 + each, "snapshot-id": each} for each in snapshot_ids],
    }
    if version == 1:
        document = without(document, "last-sequence-number")
        document["snapshots"] = [without(snapshot, "sequence-number") for snapshot in document["snapshots"]]
    return _changed(document, changes)


def without(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    """A copy that lacks some keys."""
    return {key: value for key, value in document.items() if key not in keys}


def encoded(document: dict[str, Any]) -> bytes:
    """The document as a file."""
    return json.dumps(document).encode()


def parsed(document: dict[str, Any]) -> TableMetadata:
    """What is read from the document as a file."""
    return TableMetadata.from_json(loads(encoded(document), PATH), path=PATH)


def written(metadata: TableMetadata) -> dict[str, Any]:
    """The document as which metadata is written."""
    result: dict[str, Any] = json.loads(dumps(metadata.to_json()))
    return result


def read(path: Path) -> TableMetadata:
    """A metadata file."""
    return TableMetadata.from_json(decode_metadata_file(path.read_bytes(), str(path)), path=str(path))


def _changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    document |= {key.replace("_", "-"): value for key, value in changes.items()}
    return document
