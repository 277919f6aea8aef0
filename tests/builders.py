"""Tables for tests, valid unless a test says otherwise.

In memory: `a_table(a_snapshot(1, age_ms=9 * DAY_MS), a_snapshot(2), tag=a_tag(1))` is a `TableMetadata`, its document
`a_table_document(...)`. Made of real bytes in any storage: `TableWriter`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.testing.iceberg_writer import IcebergWriter, Manifest, ManifestDraft

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000
LOCATION = "/lake/shop/visits"
TABLE_UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
LINKED = -1  # as a parent: the snapshot before this one
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "n", "required": False, "type": "long"}],
}
SPEC: dict[str, Any] = {"spec-id": 0, "fields": []}

Document = dict[str, Any]


# -- metadata in memory ----------------------------------------------------------------------------------------


def a_snapshot(
    snapshot_id: int,
    *,
    age_ms: int = 0,
    parent: int | None = LINKED,
    operation: str = "append",
    summary: Mapping[str, str] | None = None,
    **others: Any,
) -> Document:
    """A snapshot's document.

    Args:
        snapshot_id: also its sequence number.
        age_ms: before `NOW_MS`.
        parent: its parent's id; None for none; `LINKED`: the snapshot before it in `a_table`.
        operation: in the summary.
        summary: more of the summary.
        others: further fields, spelled with `_`; None leaves a field out.
    """
    snapshot: Document = {
        "sequence-number": snapshot_id,
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": parent,
        "timestamp-ms": NOW_MS - age_ms,
        "summary": {"operation": operation, **(summary or {})},
        "manifest-list": f"{LOCATION}/metadata/snap-{snapshot_id}.avro",
        "schema-id": 0,
    }
    return _changed(snapshot, others)


def a_branch(
    snapshot_id: int,
    *,
    min_snapshots_to_keep: int | None = None,
    max_snapshot_age_ms: int | None = None,
    max_ref_age_ms: int | None = None,
) -> Document:
    """A branch's document."""
    retention = {
        "min_snapshots_to_keep": min_snapshots_to_keep,
        "max_snapshot_age_ms": max_snapshot_age_ms,
        "max_ref_age_ms": max_ref_age_ms,
    }
    return _changed({"snapshot-id": snapshot_id, "type": "branch"}, retention)


def a_tag(snapshot_id: int, *, max_ref_age_ms: int | None = None) -> Document:
    """A tag's document."""
    return _changed({"snapshot-id": snapshot_id, "type": "tag"}, {"max_ref_age_ms": max_ref_age_ms})


def a_statistics_file(snapshot_id: int, path: str, *, size_bytes: int = 10) -> Document:
    """What metadata says of a statistics file without blobs."""
    return {
        "snapshot-id": snapshot_id, "statistics-path": path, "file-size-in-bytes": size_bytes,
        "file-footer-size-in-bytes": 1, "blob-metadata": [],
    }  # fmt: skip


def a_table_document(
    *snapshots: Document,
    format_version: int = 2,
    properties: Mapping[str, str] | None = None,
    main: int | Document | None = None,
    refs: Mapping[str, Document] | None = None,
    fields: Mapping[str, Any] | None = None,
    **named_refs: Document,
) -> Document:
    """Table metadata as JSON.

    Args:
        snapshots: oldest first; the last one is current.
        format_version: 1, 2 or 3.
        properties: of the table.
        main: another head of main than the last snapshot, by id, or main's ref with its retention.
        refs: branches and tags whose names are no identifiers.
        fields: further fields under their own names; None leaves a field out.
        named_refs: branches and tags by name.
    """
    linked = []
    for index, snapshot in enumerate(snapshots):
        parent = snapshot["parent-snapshot-id"]
        if parent == LINKED:
            parent = snapshots[index - 1]["snapshot-id"] if index else None
        linked.append(
            {
                key: parent if key == "parent-snapshot-id" else value
                for key, value in snapshot.items()
                if key != "parent-snapshot-id" or parent is not None
            }
        )
    newest_ms = max((snapshot["timestamp-ms"] for snapshot in linked), default=NOW_MS)
    head = main if main is not None else linked[-1]["snapshot-id"] if linked else None
    main_ref = a_branch(head) if isinstance(head, int) else head
    document: Document = {
        "format-version": format_version,
        "table-uuid": TABLE_UUID,
        "location": LOCATION,
        "last-sequence-number": max((snapshot["sequence-number"] for snapshot in linked), default=0),
        "last-updated-ms": newest_ms,
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [SCHEMA],
        "default-spec-id": 0,
        "partition-specs": [SPEC],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": dict(properties or {}),
        "current-snapshot-id": -1 if main_ref is None else main_ref["snapshot-id"],
        "refs": {**({} if main_ref is None else {"main": main_ref}), **(refs or {}), **named_refs},
        "snapshots": linked,
        "snapshot-log": [
            {"timestamp-ms": snapshot["timestamp-ms"], "snapshot-id": snapshot["snapshot-id"]}
            for snapshot in linked
        ],
        "metadata-log": [],
    }
    if format_version == 1:
        del document["last-sequence-number"]
        document |= {"schema": SCHEMA, "partition-spec": []}
        document["snapshots"] = [
            {key: value for key, value in snapshot.items() if key != "sequence-number"} for snapshot in linked
        ]
    if format_version == 3:
        document["next-row-id"] = 0
        for snapshot in document["snapshots"]:
            snapshot |= {"first-row-id": 0, "added-rows": 0}
    for key, value in (fields or {}).items():
        document[key] = value
        if value is None:
            del document[key]
    return document


def a_table(*snapshots: Document, **values: Any) -> TableMetadata:
    """Table metadata; arguments as for `a_table_document`."""
    return TableMetadata.from_json(
        a_table_document(*snapshots, **values), path=f"{LOCATION}/metadata/v1.metadata.json"
    )


def _changed(document: Document, changes: Mapping[str, Any]) -> Document:
    for name, value in changes.items():
        key = name.replace("_", "-")
        document[key] = value
        if value is None:
            del document[key]
    return document


# -- tables made of bytes --------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class TableWriter(IcebergWriter):
    """Writes a table's files into a storage, commit by commit, as another engine would: data files of one row.

    It is a careless engine: whoever writes a manifest anew gives all its entries the numbers of the commit.
    """

    location: str = LOCATION
    schema: Document = field(default_factory=lambda: SCHEMA)

    partition_summaries = False
    java_order = False
    json_separators = (", ", ": ")

    def first_document(self) -> Document:
        document = a_table_document(format_version=self.format_version, properties=self.properties)
        return document | {"location": self.location, "last-updated-ms": 0}

    def manifest_name(self, draft: ManifestDraft) -> str:
        return f"{self.snapshot_id}-m{draft.listed}.avro"

    def list_name(self, snapshot_id: int) -> str:
        return f"snap-{snapshot_id}.avro"

    def write_manifest(self, draft: ManifestDraft, sequence_number: int) -> Manifest:
        numbers = {"sequence_number": sequence_number, "file_sequence_number": sequence_number}
        entries = [entry | numbers | {"snapshot_id": self.snapshot_id} for entry in draft.entries]
        manifest = super().write_manifest(draft._replace(entries=entries), sequence_number)
        manifest.row["min_sequence_number"] = 1
        return manifest

    def set_ref(self, name: str, ref: Mapping[str, Any]) -> None:
        super().set_ref(name, {"snapshot-id": ref["snapshot-id"], **ref})

    def summary(self, manifests: Sequence[Manifest]) -> dict[str, str]:
        live = sum(len(manifest.live) for manifest in manifests)
        return {"total-data-files": str(live), "total-delete-files": "0"}

    def commit(
        self,
        snapshot_id: int,
        *,
        age_ms: int = 0,
        add: Iterable[str] = (),
        again: Iterable[str] = (),
        remove: Iterable[str] = (),
        ref: str = "main",
        parent: int | None = None,
        statistics: bool = False,
    ) -> int:
        """Add a snapshot and move the branch `ref` to it.

        Args:
            snapshot_id: of the new snapshot.
            age_ms: before `NOW_MS`.
            add: names of new data files; each is written with one row.
            again: names of data files that are there and are added once more.
            remove: names of live data files.
            ref: a branch; made if it is not there.
            parent: None: the branch's head, or for a new branch main's.
            statistics: write a statistics file for the snapshot too.
        """
        self.time_ms = NOW_MS - age_ms
        for name in add:
            self.put(f"data/{name}.parquet", f"the rows of {name}".encode())
        added = [a_data_file(self.data_path(name)) for name in [*add, *again]]
        removed = [(self.data_path(name), None) for name in remove]
        self.commit_files(
            "overwrite" if removed else "append",
            added,
            removed,
            ref=ref,
            parent=parent,
            snapshot_id=snapshot_id,
        )
        self.document["snapshots"][-1] = {
            **dict.fromkeys(("sequence-number", "snapshot-id", "parent-snapshot-id")),
            **self.document["snapshots"][-1],
        }
        if statistics:
            self._statistics(snapshot_id)
        return snapshot_id

    def publish(self, name: str | None = None) -> str:
        """As `IcebergWriter.publish`; without a name, one as catalogs give."""
        unique = uuid.uuid5(uuid.NAMESPACE_URL, f"{self.location}/{self.version}")
        return super().publish(name or f"{self.version:05d}-{unique}.metadata.json")

    def data_path(self, name: str) -> str:
        """Where the data file of this name is."""
        return f"{self.location}/data/{name}.parquet"

    def _statistics(self, snapshot_id: int) -> None:
        data = b"PFA1 statistics"
        path = self.put(f"metadata/{snapshot_id}.stats", data)
        entry = a_statistics_file(snapshot_id, path, size_bytes=len(data))
        self.document["statistics"] = [*self.document.get("statistics", []), entry]


def a_data_file(path: str) -> Document:
    """The entry of a data file of one row."""
    return {
        "content": 0, "file_path": path, "file_format": "PARQUET", "partition": {}, "record_count": 1,
        "file_size_in_bytes": 100,
    }  # fmt: skip
