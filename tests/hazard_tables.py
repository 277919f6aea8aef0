"""Tables written manifest by manifest, as freely as hostile or unlucky writers do, and their expiry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iceberg_cli.storage import open_storage
from iceberg_cli.testing.iceberg_files import ADDED, DELETED, EXISTING, manifest, manifest_list
from tests.builders import DAY_MS, SCHEMA, SPEC, a_snapshot, a_table_document
from tests.cli.lakes import AS_OF_MS, LONG_AGO_MS, listing
from tests.cli.running import Ran, iceberg_cli

SYNC = bytes(16)
Entry = dict[str, Any]


def entry(status: int, path: str, *, content: int = 0, **others: Any) -> Entry:
    """A manifest entry with its numbers written out, so that any manifest can hold it."""
    return {
        "status": status,
        "snapshot_id": 1,
        "sequence_number": 1,
        "file_sequence_number": 1,
        "content": content,
        "file_path": path,
        "file_format": "PARQUET",
        "partition": {},
        "record_count": 1,
        "file_size_in_bytes": 10,
        **others,
    }


def a_dv(status: int, puffin: str, data_file: str, *, offset: int = 4) -> Entry:
    """A deletion vector of `data_file` at `offset` of `puffin`."""
    return entry(
        status,
        puffin,
        content=1,
        file_format="PUFFIN",
        referenced_data_file=data_file,
        content_offset=offset,
        content_size_in_bytes=40,
    )


@dataclass(kw_only=True)
class Hazard:
    """A table written manifest by manifest, as freely as hostile or unlucky writers do."""

    location: str
    storage: Any = field(default_factory=open_storage)
    format_version: int = 2
    properties: Mapping[str, str] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def data(self, *names: str) -> list[str]:
        """Write data files below the table's folder; their paths."""
        paths = [f"{self.location}/data/{name}" for name in names]
        for path in paths:
            self.storage.put_if_absent(path, b"ten bytes.")
        return paths

    def manifest(
        self, name: str, *entries: Entry, content: int = 0, block_bytes: int = 64_000, codec: str = "deflate"
    ) -> str:
        """Write a manifest; the name that snapshots list it by."""
        path = f"{self.location}/metadata/{name}.avro"
        data = manifest(
            entries,
            schema=SCHEMA,
            spec=SPEC,
            version=self.format_version,
            content=content,
            sync=SYNC,
            block_bytes=block_bytes,
            codec=codec,
        )
        self.storage.put_if_absent(path, data)
        counts = {
            f"{kind}_{what}_count": sum(each["status"] == status for each in entries)
            for status, kind in ((EXISTING, "existing"), (ADDED, "added"), (DELETED, "deleted"))
            for what in ("files", "rows")
        }
        self.rows[name] = {
            "manifest_path": path,
            "manifest_length": len(data),
            "partition_spec_id": 0,
            "content": content,
            "sequence_number": 1,
            "min_sequence_number": 1,
            "added_snapshot_id": 1,
            **counts,
        }
        return name

    def snapshot(
        self,
        snapshot_id: int,
        *manifests: str,
        parent: int | None = None,
        block_bytes: int = 64_000,
        **others: Any,
    ) -> None:
        """A snapshot with a list of these manifests and true totals; id 9 is nine days old, 8 eight, and so on."""
        rows = [self.rows[name] for name in manifests]
        path = f"{self.location}/metadata/snap-{snapshot_id}.avro"
        data = manifest_list(
            rows,
            version=self.format_version,
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent,
            sequence_number=1,
            sync=SYNC,
            block_bytes=block_bytes,
        )
        self.storage.put_if_absent(path, data)
        totals = {
            name: str(
                sum(
                    (row["added_files_count"] or 0) + (row["existing_files_count"] or 0)
                    for row in rows
                    if row["content"] == content
                )
            )
            for content, name in ((0, "total-data-files"), (1, "total-delete-files"))
        }
        values = {"summary": totals, "manifest_list": path} | others
        self.snapshots.append(
            a_snapshot(snapshot_id, age_ms=LONG_AGO_MS + snapshot_id * DAY_MS, parent=parent, **values)
        )

    def publish(self, *, main: int, name: str = "v1.metadata.json", **refs: Any) -> str:
        """Write the metadata; returns its location."""
        document = a_table_document(
            *self.snapshots,
            format_version=self.format_version,
            properties=self.properties,
            main=main,
            refs=refs,
        )
        document |= {"location": self.location, "snapshot-log": [], **self.fields}
        path = f"{self.location}/metadata/{name}"
        self.storage.put_if_absent(path, json.dumps(document).encode())
        return path


def expire(table: Hazard, *arguments: object) -> Ran:
    """Expire what is older than five days."""
    return iceberg_cli(
        "expire-snapshots", table.location, "--as-of", AS_OF_MS, "--yes", "--format", "json", *arguments
    )


def removed(table: Hazard, *arguments: object) -> set[str]:
    """What a successful expiry deletes, by path below the table's folder."""
    before = set(listing(Path(table.location)))
    ran = expire(table, *arguments)
    assert ran.code == 0, ran.out + ran.err
    return before - set(listing(Path(table.location)))


def obstruct_an_upgrade(table: Hazard) -> None:
    """Snapshots of version 1: that of main (7) has a list without counts, that of b (6) names its manifests itself.

    Rows: main has a (3) and b (4), b has a (3) and c (5); x (2) was removed by snapshot 8.
    """
    a, b, c, x = table.data("a", "b", "c", "x")
    table.manifest("m1", entry(ADDED, a, record_count=3), entry(ADDED, x, record_count=2))
    table.manifest("m2", entry(EXISTING, a, record_count=3), entry(DELETED, x, record_count=2, snapshot_id=8))
    table.manifest("m3", entry(ADDED, b, record_count=4, snapshot_id=7))
    table.manifest("m4", entry(ADDED, c, record_count=5, snapshot_id=6))
    for row in table.rows.values():
        row |= {name: None for name in row if name.endswith("_count")}
    table.snapshot(9, "m1", summary={})
    table.snapshot(8, "m2", parent=9, summary={})
    table.snapshot(7, "m3", "m2", parent=8, summary={})
    inline = [table.rows[name]["manifest_path"] for name in ("m4", "m2")]
    table.snapshot(6, "m4", "m2", parent=8, manifest_list=None, manifests=inline, summary={})
