"""Snapshots, refs, the two logs and encryption keys of table metadata, to and from JSON.

Spec: "Snapshots", "Snapshot References", "Table Metadata Fields", "Encryption Keys", Appendix C.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from iceberg_cli.iceberg.spec.json_fields import Fields, Json, Layout, laid_out

MAIN: Final = "main"
BRANCH: Final = "branch"
TAG: Final = "tag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The table's content after one commit."""

    snapshot_id: int
    parent_snapshot_id: int | None = None
    sequence_number: int = 0  # 0 in v1
    timestamp_ms: int
    manifest_list: str | None = None
    manifests: tuple[str, ...] | None = None  # v1, where there is no manifest list
    summary: Mapping[str, str] | None = None  # with "operation"
    schema_id: int | None = None
    first_row_id: int | None = None  # v3
    added_rows: int | None = None  # v3; upper bound of the rows that were given ids
    key_id: str | None = None
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    @property
    def operation(self) -> str | None:
        """append, replace, overwrite or delete, where the summary says."""
        return None if self.summary is None else self.summary.get("operation")

    def summary_count(self, key: str) -> int | None:
        """A count that the summary has under a key, None where it is no number below 10^18."""
        text = (self.summary or {}).get(key, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None

    @classmethod
    def from_json(cls, value: object, *, path: str, where: str = "snapshot") -> Snapshot:
        """Read a snapshot.

        Raises:
            InvalidMetadata: naming the field. A snapshot that names neither a manifest list nor manifests is
                refused: it would seem to reach no file.
        """
        obj = Fields(value, path, where)
        if "manifest-list" not in obj and "manifests" not in obj:
            raise obj.wrong("manifest-list", "the field is required (a string)")
        return cls(
            snapshot_id=obj.integer("snapshot-id"),
            parent_snapshot_id=obj.optional_integer("parent-snapshot-id"),
            sequence_number=obj.optional_integer("sequence-number") or 0,
            timestamp_ms=obj.integer("timestamp-ms"),
            manifest_list=obj.optional_string("manifest-list"),
            manifests=obj.strings("manifests") if "manifests" in obj else None,
            summary=obj.optional_string_map("summary"),
            schema_id=obj.optional_integer("schema-id"),
            first_row_id=obj.optional_integer("first-row-id"),
            added_rows=obj.optional_integer("added-rows"),
            key_id=obj.optional_string("key-id"),
            extra=obj.leftover(_SNAPSHOT_KEYS),
            layout=obj.layout(),
        )

    def to_json(self) -> dict[str, Any]:
        """Spec: Appendix C, Table Metadata and Snapshots."""
        values = {
            "sequence-number": self.sequence_number,
            "snapshot-id": self.snapshot_id,
            "parent-snapshot-id": self.parent_snapshot_id,
            "timestamp-ms": self.timestamp_ms,
            "summary": self.summary,
            "manifest-list": self.manifest_list,
            "manifests": None if self.manifests is None else list(self.manifests),
            "schema-id": self.schema_id,
            "first-row-id": self.first_row_id,
            "added-rows": self.added_rows,
            "key-id": self.key_id,
        }
        return laid_out(self.layout, values, self.extra, optional=("sequence-number",))


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRef:
    """A branch or a tag."""

    snapshot_id: int
    type: str  # "branch" or "tag"
    min_snapshots_to_keep: int | None = None  # of a branch
    max_snapshot_age_ms: int | None = None  # of a branch
    max_ref_age_ms: int | None = None  # not of main
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    @classmethod
    def from_json(cls, value: object, *, path: str, where: str = "ref") -> SnapshotRef:
        """Read a snapshot reference.

        Raises:
            InvalidMetadata: naming the field; also when a retention value is not positive.
        """
        obj = Fields(value, path, where)
        type_ = obj.string("type").lower()
        if type_ not in {BRANCH, TAG}:
            raise obj.wrong("type", f'"branch" or "tag" is expected, not {obj.value["type"]!r}')
        for key in ("min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"):
            retention = obj.optional_integer(key)
            if retention is not None and retention <= 0:
                raise obj.wrong(key, f"a positive number is expected, not {retention}")
        return cls(
            snapshot_id=obj.integer("snapshot-id"),
            type=type_,
            min_snapshots_to_keep=obj.optional_integer("min-snapshots-to-keep"),
            max_snapshot_age_ms=obj.optional_integer("max-snapshot-age-ms"),
            max_ref_age_ms=obj.optional_integer("max-ref-age-ms"),
            extra=obj.leftover(_REF_KEYS),
            layout=obj.layout(),
        )

    def to_json(self) -> dict[str, Any]:
        """Spec: "Snapshot References"."""
        values = {
            "snapshot-id": self.snapshot_id,
            "type": self.type,
            "min-snapshots-to-keep": self.min_snapshots_to_keep,
            "max-snapshot-age-ms": self.max_snapshot_age_ms,
            "max-ref-age-ms": self.max_ref_age_ms,
        }
        return laid_out(self.layout, values, self.extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLogEntry:
    """When a snapshot became the current one."""

    timestamp_ms: int
    snapshot_id: int
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    @classmethod
    def from_json(cls, value: object, *, path: str, where: str = "snapshot-log") -> SnapshotLogEntry:
        """Read an entry; raises InvalidMetadata naming the field."""
        obj = Fields(value, path, where)
        return cls(
            timestamp_ms=obj.integer("timestamp-ms"),
            snapshot_id=obj.integer("snapshot-id"),
            extra=obj.leftover(_SNAPSHOT_LOG_KEYS),
            layout=obj.layout(),
        )

    def to_json(self) -> dict[str, Any]:
        """Spec: Appendix C."""
        values = {"timestamp-ms": self.timestamp_ms, "snapshot-id": self.snapshot_id}
        return laid_out(self.layout, values, self.extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogEntry:
    """A metadata file that was current before, with the `last-updated-ms` that it had."""

    timestamp_ms: int
    metadata_file: str
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    @classmethod
    def from_json(cls, value: object, *, path: str, where: str = "metadata-log") -> MetadataLogEntry:
        """Read an entry; raises InvalidMetadata naming the field."""
        obj = Fields(value, path, where)
        return cls(
            timestamp_ms=obj.integer("timestamp-ms"),
            metadata_file=obj.string("metadata-file"),
            extra=obj.leftover(_METADATA_LOG_KEYS),
            layout=obj.layout(),
        )

    def to_json(self) -> dict[str, Any]:
        """Spec: Appendix C."""
        values = {"timestamp-ms": self.timestamp_ms, "metadata-file": self.metadata_file}
        return laid_out(self.layout, values, self.extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedKey:
    """A key that encrypts manifest lists or other keys."""

    key_id: str
    encrypted_key_metadata: str | None = (
        None  # base64; Appendix C's example has `key-metadata`, kept in `extra`
    )
    encrypted_by_id: str | None = None
    properties: Mapping[str, str] | None = None
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    @classmethod
    def from_json(cls, value: object, *, path: str, where: str = "encryption-keys") -> EncryptedKey:
        """Read a key; raises InvalidMetadata naming the field."""
        obj = Fields(value, path, where)
        return cls(
            key_id=obj.string("key-id"),
            encrypted_key_metadata=obj.optional_string("encrypted-key-metadata"),
            encrypted_by_id=obj.optional_string("encrypted-by-id"),
            properties=obj.optional_string_map("properties"),
            extra=obj.leftover(_KEY_KEYS),
            layout=obj.layout(),
        )

    def to_json(self) -> dict[str, Any]:
        """Spec: "Encryption Keys"."""
        values = {
            "key-id": self.key_id,
            "encrypted-key-metadata": self.encrypted_key_metadata,
            "encrypted-by-id": self.encrypted_by_id,
            "properties": self.properties,
        }
        return laid_out(self.layout, values, self.extra)


_SNAPSHOT_KEYS: Final = frozenset(
    {
        "sequence-number",
        "snapshot-id",
        "parent-snapshot-id",
        "timestamp-ms",
        "summary",
        "manifest-list",
        "manifests",
        "schema-id",
        "first-row-id",
        "added-rows",
        "key-id",
    }
)
_REF_KEYS: Final = frozenset(
    {"snapshot-id", "type", "min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"}
)
_SNAPSHOT_LOG_KEYS: Final = frozenset({"timestamp-ms", "snapshot-id"})
_METADATA_LOG_KEYS: Final = frozenset({"timestamp-ms", "metadata-file"})
_KEY_KEYS: Final = frozenset({"key-id", "encrypted-key-metadata", "encrypted-by-id", "properties"})
