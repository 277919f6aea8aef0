"""Statistics files that table metadata lists, to and from JSON.

Spec: "Table Statistics", "Partition Statistics".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from iceberg_cli.iceberg.spec.json_fields import Fields, Json, Layout, all_to_json, laid_out


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsBlob:
    """The blob metadata of a statistics file in table metadata."""

    type: str
    snapshot_id: int
    sequence_number: int
    fields: tuple[int, ...]
    properties: Mapping[str, str] | None = None
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    @classmethod
    def from_json(cls, value: object, *, path: str, where: str = "blob-metadata") -> StatisticsBlob:
        """Read one blob's metadata; raises InvalidMetadata naming the field."""
        obj = Fields(value, path, where)
        return cls(
            type=obj.string("type"),
            snapshot_id=obj.integer("snapshot-id"),
            sequence_number=obj.integer("sequence-number"),
            fields=obj.integers("fields"),
            properties=obj.optional_string_map("properties"),
            extra=obj.leftover(_BLOB_KEYS),
            layout=obj.layout(),
        )

    def to_json(self) -> dict[str, Any]:
        """Spec: "Table Statistics"."""
        values = {
            "type": self.type,
            "snapshot-id": self.snapshot_id,
            "sequence-number": self.sequence_number,
            "fields": list(self.fields),
            "properties": self.properties,
        }
        return laid_out(self.layout, values, self.extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsFile:
    """A Puffin file with statistics of one snapshot."""

    snapshot_id: int
    statistics_path: str
    file_size_in_bytes: int
    file_footer_size_in_bytes: int
    key_metadata: str | None = None
    blob_metadata: tuple[StatisticsBlob, ...]
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    @classmethod
    def from_json(cls, value: object, *, path: str, where: str = "statistics") -> StatisticsFile:
        """Read a statistics file's metadata; raises InvalidMetadata naming the field."""
        obj = Fields(value, path, where)
        return cls(
            snapshot_id=obj.integer("snapshot-id"),
            statistics_path=obj.string("statistics-path"),
            file_size_in_bytes=obj.integer("file-size-in-bytes"),
            file_footer_size_in_bytes=obj.integer("file-footer-size-in-bytes"),
            key_metadata=obj.optional_string("key-metadata"),
            blob_metadata=tuple(
                StatisticsBlob.from_json(blob, path=path, where=f"{where}.blob-metadata[{i}]")
                for i, blob in enumerate(obj.array("blob-metadata"))
            ),
            extra=obj.leftover(_STATISTICS_KEYS),
            layout=obj.layout(),
        )

    def to_json(self) -> dict[str, Any]:
        """Spec: "Table Statistics"."""
        values = {
            "snapshot-id": self.snapshot_id,
            "statistics-path": self.statistics_path,
            "file-size-in-bytes": self.file_size_in_bytes,
            "file-footer-size-in-bytes": self.file_footer_size_in_bytes,
            "key-metadata": self.key_metadata,
            "blob-metadata": all_to_json(self.blob_metadata),
        }
        return laid_out(self.layout, values, self.extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatisticsFile:
    """A data file with statistics of one snapshot, a row per partition."""

    snapshot_id: int
    statistics_path: str
    file_size_in_bytes: int
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    @classmethod
    def from_json(
        cls, value: object, *, path: str, where: str = "partition-statistics"
    ) -> PartitionStatisticsFile:
        """Read a partition statistics file's metadata; raises InvalidMetadata naming the field."""
        obj = Fields(value, path, where)
        return cls(
            snapshot_id=obj.integer("snapshot-id"),
            statistics_path=obj.string("statistics-path"),
            file_size_in_bytes=obj.integer("file-size-in-bytes"),
            extra=obj.leftover(_PARTITION_STATISTICS_KEYS),
            layout=obj.layout(),
        )

    def to_json(self) -> dict[str, Any]:
        """Spec: "Partition Statistics"."""
        values = {
            "snapshot-id": self.snapshot_id,
            "statistics-path": self.statistics_path,
            "file-size-in-bytes": self.file_size_in_bytes,
        }
        return laid_out(self.layout, values, self.extra)


_BLOB_KEYS: Final = frozenset({"type", "snapshot-id", "sequence-number", "fields", "properties"})
_STATISTICS_KEYS: Final = frozenset(
    {
        "snapshot-id",
        "statistics-path",
        "file-size-in-bytes",
        "file-footer-size-in-bytes",
        "key-metadata",
        "blob-metadata",
    }
)
_PARTITION_STATISTICS_KEYS: Final = frozenset({"snapshot-id", "statistics-path", "file-size-in-bytes"})
