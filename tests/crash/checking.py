"""Is a table whole? Judged by `json` and fastavro, not by our own readers."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

import fastavro

from iceberg_cli.storage import Storage
from iceberg_cli.testing.iceberg_files import DELETED


def records(data: bytes) -> list[dict[str, Any]]:
    """The records of an Avro file."""
    return [dict(record) for record in fastavro.reader(io.BytesIO(data))]  # type: ignore[arg-type]


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
