"""Tables for tests, valid unless a test says otherwise.

In memory: `a_table(a_snapshot(1, age_ms=9 * DAY_MS), a_snapshot(2), tag=a_tag(1))` is a `TableMetadata`, its document
`a_table_document(...)`. Made of real bytes in any storage: `TableWriter`.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from iceberg_cli.iceberg.spec.manifest_writer import write_manifest, write_manifest_list
from iceberg_cli.iceberg.spec.metadata import TableMetadata
from iceberg_cli.storage import Storage

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
EXISTING, ADDED, DELETED = 0, 1, 2

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


@dataclass(frozen=True, kw_only=True)
class WrittenManifest:
    """A row of a manifest list and the files in the manifest: path -> status."""

    row: Mapping[str, Any]
    files: Mapping[str, int]


@dataclass(kw_only=True)
class TableWriter:
    """Writes a table's files into a storage, commit by commit, as another engine would.

    The same calls write the same bytes under the same names. `commit` only collects; `publish` writes a metadata file
    and returns its location, and whoever owns the pointer moves it there.
    """

    storage: Storage
    location: str = LOCATION
    format_version: int = 2
    properties: Mapping[str, str] = field(default_factory=dict)
    document: Document = field(default_factory=dict)
    manifests: dict[int, tuple[WrittenManifest, ...]] = field(default_factory=dict)
    published: str | None = None
    version: int = 0

    def __post_init__(self) -> None:
        if not self.document:
            self.document = a_table_document(format_version=self.format_version, properties=self.properties)
            self.document |= {"location": self.location, "last-updated-ms": 0}

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
        refs = self.document["refs"]
        head = refs.get(ref) or refs.get("main")
        parent = parent if parent is not None else head["snapshot-id"] if head else None
        sequence_number = self.document["last-sequence-number"] + 1
        manifests = self._manifests(snapshot_id, sequence_number, parent, [*add], [*again], [*remove])
        self.manifests[snapshot_id] = manifests
        statuses = [status for manifest in manifests for status in manifest.files.values()]
        live = len(statuses) - statuses.count(DELETED)
        snapshot = a_snapshot(
            snapshot_id,
            age_ms=age_ms,
            parent=parent,
            operation="overwrite" if remove else "append",
            summary={"total-data-files": str(live), "total-delete-files": "0"},
            sequence_number=sequence_number,
            manifest_list=self._list(snapshot_id, sequence_number, parent, manifests),
        )
        if self.format_version == 3:
            snapshot |= {"first-row-id": 0, "added-rows": 0}
        self.document["snapshots"] = [*self.document["snapshots"], snapshot]
        self.document["last-sequence-number"] = sequence_number
        self.set_ref(
            ref, a_branch(snapshot_id) if ref not in refs else {**refs[ref], "snapshot-id": snapshot_id}
        )
        if statistics:
            self._statistics(snapshot_id)
        return snapshot_id

    def set_ref(self, name: str, ref: Document) -> None:
        """Point a branch or tag."""
        self.document["refs"] = {**self.document["refs"], name: ref}
        snapshot = next(s for s in self.document["snapshots"] if s["snapshot-id"] == ref["snapshot-id"])
        if name == "main":
            self.document["current-snapshot-id"] = ref["snapshot-id"]
            entry = {"timestamp-ms": snapshot["timestamp-ms"], "snapshot-id": ref["snapshot-id"]}
            self.document["snapshot-log"] = [*self.document["snapshot-log"], entry]
        self.document["last-updated-ms"] = max(self.document["last-updated-ms"], snapshot["timestamp-ms"])

    def publish(self, name: str | None = None) -> str:
        """Write the metadata file of what was committed so far; the one before goes into its log.

        Args:
            name: of the file; None: a catalog's kind of name.

        Returns:
            Its location.
        """
        if self.published is not None:
            entry = {"timestamp-ms": self.document["last-updated-ms"], "metadata-file": self.published}
            self.document["metadata-log"] = [*self.document["metadata-log"], entry]
        name = name or f"{self.version:05d}-{_uuid(self.location, str(self.version))}.metadata.json"
        self.published = self._put(f"metadata/{name}", json.dumps(self.document).encode())
        self.version += 1
        return self.published

    def data_path(self, name: str) -> str:
        """Where the data file of this name is."""
        return f"{self.location}/data/{name}.parquet"

    def _put(self, name: str, data: bytes) -> str:
        path = f"{self.location}/{name}"
        self.storage.put_if_absent(path, data)
        return path

    def _manifests(
        self,
        snapshot_id: int,
        sequence_number: int,
        parent: int | None,
        add: list[str],
        again: list[str],
        remove: list[str],
    ) -> tuple[WrittenManifest, ...]:
        gone = {self.data_path(name) for name in remove}
        kept: list[WrittenManifest] = []
        for manifest in self.manifests.get(parent or 0, ()):
            live = {path for path, status in manifest.files.items() if status != DELETED}
            if live & gone:
                files = {path: DELETED if path in gone else EXISTING for path in sorted(live)}
                kept.append(self._manifest(snapshot_id, sequence_number, f"m{len(kept) + 1}", files))
            elif live:
                kept.append(manifest)
        for name in add:
            self._put(f"data/{name}.parquet", f"the rows of {name}".encode())
        added = {self.data_path(name): ADDED for name in [*add, *again]}
        return (*([self._manifest(snapshot_id, sequence_number, "m0", added)] if added else []), *kept)

    def _manifest(
        self, snapshot_id: int, sequence_number: int, name: str, files: Mapping[str, int]
    ) -> WrittenManifest:
        entries: list[Document] = [
            {
                "status": status,
                "snapshot_id": snapshot_id,
                "sequence_number": sequence_number if status != ADDED else None,
                "file_sequence_number": sequence_number if status != ADDED else None,
                "content": 0,
                "file_path": path,
                "file_format": "PARQUET",
                "partition": {},
                "record_count": 1,
                "file_size_in_bytes": 100,
            }
            for path, status in files.items()
        ]
        path = f"metadata/{snapshot_id}-{name}.avro"
        data = write_manifest(
            entries,
            schema=SCHEMA,
            partition_spec=SPEC,
            format_version=self.format_version,
            content=0,
            sync=_sync(path),
        )
        row: dict[str, Any] = {
            "manifest_path": self._put(path, data),
            "manifest_length": len(data),
            "partition_spec_id": 0,
            "content": 0,
            "sequence_number": sequence_number,
            "min_sequence_number": 1,
            "added_snapshot_id": snapshot_id,
        }
        for status, kind in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
            count = list(files.values()).count(status)
            row |= {f"{kind}_files_count": count, f"{kind}_rows_count": count}
        if self.format_version == 3:
            row["first_row_id"] = 0
        return WrittenManifest(row=row, files=files)

    def _list(
        self,
        snapshot_id: int,
        sequence_number: int,
        parent: int | None,
        manifests: tuple[WrittenManifest, ...],
    ) -> str:
        path = f"metadata/snap-{snapshot_id}.avro"
        data = write_manifest_list(
            [manifest.row for manifest in manifests],
            format_version=self.format_version,
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent,
            sequence_number=sequence_number,
            first_row_id=0 if self.format_version == 3 else None,
            sync=_sync(path),
        )
        return self._put(path, data)

    def _statistics(self, snapshot_id: int) -> None:
        data = b"PFA1 statistics"
        entry = {
            "snapshot-id": snapshot_id,
            "statistics-path": self._put(f"metadata/{snapshot_id}.stats", data),
            "file-size-in-bytes": len(data),
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [],
        }
        self.document["statistics"] = [*self.document.get("statistics", []), entry]


def _sync(path: str) -> bytes:
    return hashlib.sha256(path.encode()).digest()[:16]


def _uuid(*parts: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(parts)))
