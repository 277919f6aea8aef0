"""Tables written manifest by manifest, as freely as hostile or unlucky writers do, and their expiry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.iceberg_files import ADDED, DELETED, EXISTING, manifest, manifest_list, manifest_row
from tests.builders import DAY_MS, SCHEMA, SPEC, a_snapshot, a_table_document
from tests.cli.lakes import AS_OF_MS, LONG_AGO_MS, listing
from tests.cli.running import Ran, iceberg_cli

SYNC = bytes(16)
OWN_GONE = {"metadata/m9.avro", "metadata/snap-9.avro"}  # of `two_snapshots`, beside its data files
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

    def file(self, name: str) -> Path:
        """Where the manifest or list of this name is."""
        return Path(self.location) / "metadata" / f"{name}.avro"

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
            entries, schema=SCHEMA, spec=SPEC, version=self.format_version, content=content, sync=SYNC,
            block_bytes=block_bytes, codec=codec,
        )  # fmt: skip
        self.storage.put_if_absent(path, data)
        self.rows[name] = manifest_row(
            path,
            data,
            entries,
            content=content,
            spec_id=0,
            snapshot_id=1,
            sequence_number=1,
            min_sequence_number=1,
        )
        return name

    def forget_counts(self) -> None:
        """As lists of version 1 may be, without the counts of the manifests so far."""
        for row in self.rows.values():
            row |= {name: None for name in row if name.endswith("_count")}

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
            rows, version=self.format_version, snapshot_id=snapshot_id, parent_snapshot_id=parent, sequence_number=1,
            sync=SYNC, block_bytes=block_bytes,
        )  # fmt: skip
        self.storage.put_if_absent(path, data)
        totals = dict.fromkeys(("total-data-files", "total-delete-files"), 0)
        for row in rows:
            live = (row["added_files_count"] or 0) + (row["existing_files_count"] or 0)
            totals["total-delete-files" if row["content"] else "total-data-files"] += live
        summary = {name: str(count) for name, count in totals.items()}
        values = {"summary": summary, "manifest_list": path} | others
        self.snapshots.append(
            a_snapshot(snapshot_id, age_ms=LONG_AGO_MS + snapshot_id * DAY_MS, parent=parent, **values)
        )

    def two_snapshots(self, *, expired: Iterable[str], kept: Iterable[str]) -> str:
        """Publish the old snapshot 9, which adds files of these paths, and main's 1, which has others."""
        self.snapshot(9, self.manifest("m9", *(entry(ADDED, path) for path in expired)))
        self.snapshot(1, self.manifest("m1", *(entry(EXISTING, path) for path in kept)), parent=9)
        return self.publish(main=1)

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


def stopped(table: Hazard, *arguments: object, code: int = 15) -> str:
    """Why an expiry leaves with this exit code, which changes nothing."""
    before = listing(Path(table.location))
    ran = expire(table, *arguments)
    assert ran.code == code, ran.out + ran.err
    assert listing(Path(table.location)) == before
    return str(ran.json["message"])


def obstruct_an_upgrade(table: Hazard) -> None:
    """Snapshots of version 1: that of main (7) has a list without counts, that of b (6) names its manifests itself.

    Rows: main has a (3) and b (4), b has a (3) and c (5); x (2) was removed by snapshot 8.
    """
    a, b, c, x = table.data("a", "b", "c", "x")
    table.manifest("m1", entry(ADDED, a, record_count=3), entry(ADDED, x, record_count=2))
    table.manifest("m2", entry(EXISTING, a, record_count=3), entry(DELETED, x, record_count=2, snapshot_id=8))
    table.manifest("m3", entry(ADDED, b, record_count=4, snapshot_id=7))
    table.manifest("m4", entry(ADDED, c, record_count=5, snapshot_id=6))
    table.forget_counts()
    table.snapshot(9, "m1", summary={})
    table.snapshot(8, "m2", parent=9, summary={})
    table.snapshot(7, "m3", "m2", parent=8, summary={})
    inline = [table.rows[name]["manifest_path"] for name in ("m4", "m2")]
    table.snapshot(6, "m4", "m2", parent=8, manifest_list=None, manifests=inline, summary={})
