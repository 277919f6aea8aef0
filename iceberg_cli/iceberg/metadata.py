"""Table metadata: one version of a table, to and from JSON.

Format versions 1 to 3. v1 files may predate schemas, partition specs, sort orders, refs and logs: the values
that those fields would have are derived on reading and left out again on writing.

Spec: "Table Metadata", Appendix C, Appendix E; deviations of writers as in Appendix F.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from iceberg_cli.errors import InvalidMetadata
from iceberg_cli.iceberg import metadata_parts as parts
from iceberg_cli.iceberg.json_fields import Fields, Json, Layout, all_to_json, laid_out, shown
from iceberg_cli.iceberg.metadata_parts import SUPPORTED_FORMAT_VERSION
from iceberg_cli.iceberg.schema import NestedField, Schema
from iceberg_cli.iceberg.snapshots import (
    MAIN,
    EncryptedKey,
    MetadataLogEntry,
    Snapshot,
    SnapshotLogEntry,
    SnapshotRef,
)
from iceberg_cli.iceberg.specs import PartitionField, PartitionSpec, SortField, SortOrder
from iceberg_cli.iceberg.statistics_files import BlobMetadata, PartitionStatisticsFile, StatisticsFile

__all__ = [
    "MAIN",
    "SUPPORTED_FORMAT_VERSION",
    "BlobMetadata",
    "EncryptedKey",
    "MetadataLogEntry",
    "NestedField",
    "PartitionField",
    "PartitionSpec",
    "PartitionStatisticsFile",
    "Schema",
    "Snapshot",
    "SnapshotLogEntry",
    "SnapshotRef",
    "SortField",
    "SortOrder",
    "StatisticsFile",
    "TableMetadata",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMetadata:
    """One version of a table. Maps and tuples are in the file's order."""

    format_version: int
    table_uuid: str | None  # optional in v1
    location: str
    last_sequence_number: int = 0  # 0 in v1
    last_updated_ms: int
    last_column_id: int
    schemas: tuple[Schema, ...]
    current_schema_id: int
    partition_specs: tuple[PartitionSpec, ...]
    default_spec_id: int
    last_partition_id: int
    properties: Mapping[str, str] = field(default_factory=dict)
    current_snapshot_id: int | None = None  # None where absent, null or -1
    snapshots: tuple[Snapshot, ...] = ()
    snapshot_log: tuple[SnapshotLogEntry, ...] = ()
    metadata_log: tuple[MetadataLogEntry, ...] = ()
    sort_orders: tuple[SortOrder, ...] = (SortOrder(order_id=0),)
    default_sort_order_id: int = 0
    refs: Mapping[str, SnapshotRef] = field(
        default_factory=dict
    )  # with main wherever there is a current snapshot
    statistics: tuple[StatisticsFile, ...] = ()
    partition_statistics: tuple[PartitionStatisticsFile, ...] = ()
    next_row_id: int = 0  # first row id that no row has; 0 before v3
    encryption_keys: tuple[EncryptedKey, ...] = ()
    extra: Json = field(default_factory=dict)  # also `schema` and `partition-spec` as v1 wrote them
    layout: Layout = field(default=(), compare=False, repr=False)
    _snapshots_by_id: Mapping[int, Snapshot] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        by_id = {snapshot.snapshot_id: snapshot for snapshot in self.snapshots}
        object.__setattr__(self, "_snapshots_by_id", by_id)

    def snapshot(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot with this id, found at once."""
        return self._snapshots_by_id.get(snapshot_id)

    def current_snapshot(self) -> Snapshot | None:
        """The head of main; None for a table without data."""
        return None if self.current_snapshot_id is None else self.snapshot(self.current_snapshot_id)

    def current_schema(self) -> Schema:
        """The schema with `current_schema_id`."""
        return next(schema for schema in self.schemas if schema.schema_id == self.current_schema_id)

    def default_spec(self) -> PartitionSpec:
        """The partition spec with `default_spec_id`."""
        return next(spec for spec in self.partition_specs if spec.spec_id == self.default_spec_id)

    def partition_spec(self, spec_id: int) -> PartitionSpec | None:
        """The partition spec with this id."""
        return next((spec for spec in self.partition_specs if spec.spec_id == spec_id), None)

    def dangling_refs(self) -> tuple[str, ...]:
        """Names of refs whose snapshot is missing. Java refuses such a table; here it is a finding."""
        return tuple(name for name, ref in self.refs.items() if ref.snapshot_id not in self._snapshots_by_id)

    def property_int(self, name: str, default: int) -> int:
        """An integer table property.

        Raises:
            InvalidMetadata: its text is no integer.
        """
        text = self.properties.get(name)
        if text is None:
            return default
        if not _INTEGER.fullmatch(text):
            reason = f"an integer is expected, not {shown(text)}"
            raise InvalidMetadata(self.location, f"properties.{name}", reason)
        return int(text)

    def property_bool(self, name: str, *, default: bool) -> bool:
        """A boolean table property; as in Java every text but "true" is false."""
        text = self.properties.get(name)
        return default if text is None else text.lower() == "true"

    @classmethod
    def from_json(cls, value: object, *, path: str) -> TableMetadata:
        """Read the object of a metadata file, see `metadata_file.decode_metadata_file`.

        Args:
            value: parsed object; parts of it are kept.
            path: file it came from, for messages.

        Raises:
            InvalidMetadata: naming the field that is absent, of another type, or contradicts others.
            Refused: the format version is above 3; nothing else is looked at then.
            TableNotFound: it is the metadata of a view.
        """
        obj = Fields(value, path)
        parts.check_no_view(obj)
        parts.check_is_table(obj)
        version = parts.read_format_version(obj)
        schemas, current_schema_id = parts.read_schemas(obj, version)
        specs, default_spec_id = parts.read_specs(obj, version)
        orders, default_sort_order_id = parts.read_sort_orders(obj, version)
        snapshots = parts.read_snapshots(obj)
        current_snapshot_id = parts.read_current_snapshot_id(obj, snapshots)
        metadata = cls(
            format_version=version,
            table_uuid=obj.optional_string("table-uuid") if version == 1 else obj.string("table-uuid"),
            location=parts.read_location(obj),
            last_sequence_number=obj.integer("last-sequence-number") if version > 1 else 0,
            last_updated_ms=obj.integer("last-updated-ms"),
            last_column_id=obj.integer("last-column-id"),
            schemas=schemas,
            current_schema_id=current_schema_id,
            partition_specs=specs,
            default_spec_id=default_spec_id,
            last_partition_id=parts.read_last_partition_id(obj, version, specs),
            properties=obj.optional_string_map("properties") or {},
            current_snapshot_id=current_snapshot_id,
            snapshots=snapshots,
            snapshot_log=parts.read_records(obj, "snapshot-log", SnapshotLogEntry.from_json),
            metadata_log=parts.read_records(obj, "metadata-log", MetadataLogEntry.from_json),
            sort_orders=orders,
            default_sort_order_id=default_sort_order_id,
            refs=parts.read_refs(obj, current_snapshot_id),
            statistics=parts.read_records(obj, "statistics", StatisticsFile.from_json),
            partition_statistics=parts.read_records(
                obj, "partition-statistics", PartitionStatisticsFile.from_json
            ),
            next_row_id=parts.read_next_row_id(obj, version),
            encryption_keys=parts.read_records(obj, "encryption-keys", EncryptedKey.from_json),
            extra=obj.leftover(_KEYS),
            layout=obj.layout(),
        )
        _check_sequence_numbers(obj, metadata)
        return metadata

    def to_json(self) -> dict[str, Any]:
        """The JSON object of a metadata file of this version.

        What was read and is unchanged is laid out as it was, absent fields included, unless the format
        version requires them. Spec: Appendix C; Appendix E, "Writing v1 metadata" and "Writing v2 metadata".
        """
        version = self.format_version
        current_id = self.current_snapshot_id
        if current_id is None and version < 3 and ("current-snapshot-id" in self.layout or not self.layout):
            current_id = -1  # Appendix F: Java writes -1 before v3 and null since
        values = {
            "format-version": version,
            "table-uuid": self.table_uuid,
            "location": self.location,
            "last-sequence-number": self.last_sequence_number,
            "last-updated-ms": self.last_updated_ms,
            "last-column-id": self.last_column_id,
            **self._schemas_to_json(),
            **self._specs_to_json(),
            **self._sort_orders_to_json(),
            "properties": self.properties,
            "current-snapshot-id": current_id,
            "next-row-id": self.next_row_id,
            "refs": self._refs_to_json(),
            "snapshots": all_to_json(self.snapshots),
            "statistics": all_to_json(self.statistics),
            "partition-statistics": all_to_json(self.partition_statistics),
            "encryption-keys": all_to_json(self.encryption_keys),
            "snapshot-log": all_to_json(self.snapshot_log),
            "metadata-log": all_to_json(self.metadata_log),
        }
        # A table that was not read from a file gets every list, empty or not, as Java writes them.
        optional = set(_OPTIONAL) if self.layout else set()
        if version == 1:
            optional.add("last-sequence-number")
        if version < 3:
            optional.add("next-row-id")
        return laid_out(self.layout, values, self.extra, optional=optional)

    def _predates(self, key: str) -> bool:
        """Whether this is a v1 table as read from a file that has no `key`."""
        return self.format_version == 1 and bool(self.layout) and key not in self.layout

    def _schemas_to_json(self) -> dict[str, Any]:
        written: dict[str, Any] = {}
        if self.format_version == 1 and "schema" not in self.extra:
            written["schema"] = self.current_schema().to_json()
        if not (self._predates("schemas") and "schema" in self.extra):
            written["current-schema-id"] = self.current_schema_id
            written["schemas"] = all_to_json(self.schemas)
        return written

    def _specs_to_json(self) -> dict[str, Any]:
        written: dict[str, Any] = {}
        if self.format_version == 1 and "partition-spec" not in self.extra:
            written["partition-spec"] = all_to_json(self.default_spec().fields)
        if not (self._predates("partition-specs") and "partition-spec" in self.extra):
            written["default-spec-id"] = self.default_spec_id
            written["partition-specs"] = all_to_json(self.partition_specs)
        if not self._predates("last-partition-id"):
            written["last-partition-id"] = self.last_partition_id
        return written

    def _sort_orders_to_json(self) -> dict[str, Any]:
        if self._predates("sort-orders"):
            return {}
        return {
            "default-sort-order-id": self.default_sort_order_id,
            "sort-orders": all_to_json(self.sort_orders),
        }

    def _refs_to_json(self) -> dict[str, Any] | None:
        derived = parts.derived_refs(self.current_snapshot_id)
        if self.layout and "refs" not in self.layout and self.refs == derived:
            return None
        return {name: ref.to_json() for name, ref in self.refs.items()}


def _check_sequence_numbers(obj: Fields, metadata: TableMetadata) -> None:
    if metadata.format_version == 1:
        return
    last = metadata.last_sequence_number
    for i, snapshot in enumerate(metadata.snapshots):
        if snapshot.sequence_number > last:
            reason = f"{snapshot.sequence_number} is above the table's last-sequence-number {last}"
            raise obj.wrong(f"snapshots[{i}].sequence-number", reason)


_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")

_OPTIONAL: Final = frozenset(
    {
        "properties",
        "snapshots",
        "refs",
        "statistics",
        "partition-statistics",
        "encryption-keys",
        "snapshot-log",
        "metadata-log",
    }
)

# `schema` and `partition-spec` are missing on purpose: what v1 repeats there is kept in `extra`.
_KEYS: Final = _OPTIONAL | frozenset(
    {
        "format-version",
        "table-uuid",
        "location",
        "last-sequence-number",
        "last-updated-ms",
        "last-column-id",
        "schemas",
        "current-schema-id",
        "partition-specs",
        "default-spec-id",
        "last-partition-id",
        "sort-orders",
        "default-sort-order-id",
        "current-snapshot-id",
        "next-row-id",
    }
)
