"""Tables of version 1 as old writers made them, out of those that Spark writes today."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fastavro

from tests.spark_tables.lake import Lake


def embed_manifests(lake: Lake, table: str, *, head_too: bool) -> set[str]:
    """Make snapshots name their manifests themselves; the manifest lists that nothing names then.

    Without `head_too` the current snapshot keeps its list, and that loses its counts.
    """
    location = Path(lake.metadata_location(table))
    metadata = json.loads(location.read_bytes())
    unnamed = set()
    for snapshot in metadata["snapshots"]:
        path = Path(snapshot["manifest-list"].removeprefix("file:"))
        if snapshot["snapshot-id"] == metadata["current-snapshot-id"] and not head_too:
            _drop_counts(path)
            continue
        snapshot["manifests"] = [row["manifest_path"] for row in rows_of(path)]
        del snapshot["manifest-list"]
        unnamed.add(str(path))
    remove(location)
    location.write_text(json.dumps(metadata))
    return unnamed


def _drop_counts(path: Path) -> None:
    """Write a manifest list again without numbers of files or rows."""
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        schema, header = reader.writer_schema, reader.metadata
    rows = rows_of(path)
    for row in rows:
        row |= {name: None for name in row if name.endswith("_count")}
    remove(path)
    own = {key: value for key, value in header.items() if not key.startswith("avro.")}
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, metadata=own)


def rows_of(manifest_list: Path) -> list[dict[str, Any]]:
    with manifest_list.open("rb") as file:
        rows: list[Any] = list(fastavro.reader(file))
    return rows


def remove(path: Path) -> None:
    """Remove a file and Hadoop's checksum of it, which would otherwise be noticed instead of the damage."""
    path.unlink()
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
