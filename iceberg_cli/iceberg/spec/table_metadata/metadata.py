"""Table metadata: one version of a table, to and from JSON.

Format versions 1 to 3. v1 files may predate schemas, partition specs, sort orders, refs and logs: the values
that those fields would have are derived on reading and left out again on writing.

Spec: "Table Metadata", Appendix C, Appendix E; deviations of writers as in Appendix F.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from iceberg_cli.errors import InvalidMetadata, Refused, TableNotFound
from iceberg_cli.iceberg.spec.json_fields import Fields, Json, Layout, all_to_json, laid_out, shown
from iceberg_cli.iceberg.spec.table_metadata.history import SnapshotHistory, derived_refs
from iceberg_cli.iceberg.spec.table_metadata.snapshot import (
    MAIN,
    EncryptedKey,
    MetadataLogEntry,
    Snapshot,
    SnapshotLogEntry,
    SnapshotRef,
)
from iceberg_cli.iceberg.spec.table_metadata.statistics_files import (
    PartitionStatisticsFile,
    StatisticsBlob,
    StatisticsFile,
)
from iceberg_cli.iceberg.spec.types.partition_spec import (
    FIRST_PARTITION_FIELD_ID,
    PartitionField,
    PartitionSpec,
    SortField,
    SortOrder,
    partition_fields,
)
from iceberg_cli.iceberg.spec.types.schema import NestedField, Schema
from iceberg_cli.paths import canonical

_EVERY_TABLE: Final = ("format-version", "table-uuid", "location", "schema", "schemas", "snapshots")
SUPPORTED_FORMAT_VERSION: Final = 3

T = TypeVar("T")


def read_format_version(obj: Fields) -> int:
    """1, 2 or 3.

    Raises:
        Refused: it is a newer one. InvalidMetadata: it is none.
    """
    version = obj.integer("format-version")
    if version > SUPPORTED_FORMAT_VERSION:
        raise Refused(
            f"Cannot read {obj.path}: format version {version} is newer than this iceberg-cli, which knows 1 to "
            f"{SUPPORTED_FORMAT_VERSION}",
            next_step="Use a newer iceberg-cli.",
        )
    if version < 1:
        raise obj.wrong("format-version", f"there is no format version {version}")
    return version


def read_location(obj: Fields) -> str:
    """The table's base location, which names some folder."""
    location = obj.string("location")
    if not canonical(location.strip()):
        raise obj.wrong("location", f"a folder is expected, not {shown(location)}")
    return location


def check_is_table(obj: Fields) -> None:
    """Refuse JSON that has nothing of a table's metadata: somebody else's file, not a damaged one of a table.

    Raises:
        InvalidMetadata: it has none of the fields that every version requires.
    """
    if any(name in obj for name in _EVERY_TABLE):
        return
    error = InvalidMetadata(
        obj.path, None, f"it is JSON, but no metadata of a table: it has none of {', '.join(_EVERY_TABLE)}"
    )
    error.next_step = "Name a table's folder, one of its own metadata files, or the table in a catalog."
    raise error


def check_no_view(obj: Fields) -> None:
    """Refuse the metadata of a view, which has files of the same names.

    Raises:
        TableNotFound: it is one.
    """
    if "view-uuid" in obj and "table-uuid" not in obj:
        raise TableNotFound(
            f"Cannot open {obj.path}: it is the metadata of a view (view-uuid {shown(obj.value['view-uuid'])}), and a "
            "view has no data of its own",
            next_step="Name one of the tables that the view reads.",
        )


def read_records(obj: Fields, key: str, read: Callable[..., T]) -> tuple[T, ...]:
    """The records of an array; none where it is absent or null."""
    return tuple(
        read(item, path=obj.path, where=f"{key}[{i}]") for i, item in enumerate(obj.optional_array(key))
    )


def read_schemas(obj: Fields, version: int) -> tuple[tuple[Schema, ...], int]:
    """The schemas and the current one's id; v1 may have only `schema`, or `schemas` without a current id."""
    if version > 1 or "schemas" in obj:
        known: dict[int, NestedField] = {}
        schemas = tuple(
            Schema.from_json(item, path=obj.path, where=f"schemas[{i}]", known=known)
            for i, item in enumerate(obj.array("schemas"))
        )
        if version == 1 and "current-schema-id" not in obj and "schema" in obj:
            current_id = Schema.from_json(obj.value["schema"], path=obj.path).schema_id
        else:
            current_id = obj.integer("current-schema-id")
    else:
        only = Schema.from_json(obj.value.get("schema"), path=obj.path)
        schemas, current_id = (only,), only.schema_id
    _check_ids(obj, "schemas", [schema.schema_id for schema in schemas])
    if all(schema.schema_id != current_id for schema in schemas):
        raise obj.wrong("current-schema-id", f"{current_id} is not the id of any of the schemas")
    return schemas, current_id


def read_specs(obj: Fields, version: int) -> tuple[tuple[PartitionSpec, ...], int]:
    """The partition specs and the default one's id; v1 may have only the fields of one, which gets id 0."""
    if version > 1 or "partition-specs" in obj:
        obj.array("partition-specs")
        specs = read_records(obj, "partition-specs", PartitionSpec.from_json)
        if version == 1 and "default-spec-id" not in obj:
            default_id = max((spec.spec_id for spec in specs), default=0)
        else:
            default_id = obj.integer("default-spec-id")
    else:
        items = obj.array("partition-spec")
        fields = partition_fields(items, path=obj.path, where="partition-spec")
        specs, default_id = (PartitionSpec(spec_id=0, fields=fields),), 0
    _check_ids(obj, "partition-specs", [spec.spec_id for spec in specs])
    if all(spec.spec_id != default_id for spec in specs):
        raise obj.wrong("default-spec-id", f"{default_id} is not the id of any of the partition specs")
    return specs, default_id


def read_last_partition_id(obj: Fields, version: int, specs: tuple[PartitionSpec, ...]) -> int:
    """The highest partition field id; v1 may not have it, then the highest in use, or 999."""
    if version > 1 or "last-partition-id" in obj:
        return obj.integer("last-partition-id")
    ids = (partition_field.field_id for spec in specs for partition_field in spec.fields)
    return max(ids, default=FIRST_PARTITION_FIELD_ID - 1)


def read_sort_orders(obj: Fields, version: int) -> tuple[tuple[SortOrder, ...], int]:
    """The sort orders and the default one's id; v1 may have none, then the unsorted one."""
    if version == 1 and "sort-orders" not in obj:
        return (SortOrder(order_id=0),), 0
    obj.array("sort-orders")
    orders = read_records(obj, "sort-orders", SortOrder.from_json)
    _check_ids(obj, "sort-orders", [order.order_id for order in orders])
    default_id = obj.integer("default-sort-order-id")
    # Order id 0 is reserved for the unsorted order, listed or not.
    if default_id != 0 and all(order.order_id != default_id for order in orders):
        raise obj.wrong("default-sort-order-id", f"{default_id} is not the id of any of the sort orders")
    return orders, default_id


def read_snapshots(obj: Fields) -> tuple[Snapshot, ...]:
    """The snapshots, each id once."""
    snapshots = read_records(obj, "snapshots", Snapshot.from_json)
    _check_ids(obj, "snapshots", [snapshot.snapshot_id for snapshot in snapshots])
    return snapshots


def _check_ids(obj: Fields, key: str, ids: list[int]) -> None:
    if len(set(ids)) == len(ids):
        return
    seen: set[int] = set()
    for i, identity in enumerate(ids):
        if identity in seen:
            raise obj.wrong(f"{key}[{i}]", f"the id {identity} is there already")
        seen.add(identity)


def read_current_snapshot_id(obj: Fields, snapshots: tuple[Snapshot, ...]) -> int | None:
    """The current snapshot's id; None for absent, null and (Appendix F) -1."""
    current_id = obj.optional_integer("current-snapshot-id")
    if current_id is None or current_id == -1:
        return None
    if all(snapshot.snapshot_id != current_id for snapshot in snapshots):
        raise obj.wrong("current-snapshot-id", f"{current_id} is not the id of any of the snapshots")
    return current_id


def read_refs(obj: Fields, current_snapshot_id: int | None) -> Mapping[str, SnapshotRef]:
    """The refs, with main wherever there is a current snapshot."""
    if "refs" not in obj:
        return derived_refs(current_snapshot_id)
    named = Fields(obj.value["refs"], obj.path, "refs")
    refs = {
        name: SnapshotRef.from_json(item, path=obj.path, where=f"refs.{name}")
        for name, item in named.value.items()
    }
    if MAIN not in refs:
        return {**derived_refs(current_snapshot_id), **refs}
    if refs[MAIN].snapshot_id != current_snapshot_id:
        found = refs[MAIN].snapshot_id
        raise obj.wrong(
            "refs.main.snapshot-id", f"{found} is not the current-snapshot-id {current_snapshot_id}"
        )
    return refs


def read_next_row_id(obj: Fields, version: int) -> int:
    """The first free row id; 0 before v3."""
    next_row_id = obj.integer("next-row-id") if version > 2 else obj.optional_integer("next-row-id") or 0
    if next_row_id < 0:
        raise obj.wrong("next-row-id", f"{next_row_id} is negative")
    return next_row_id


__all__ = [
    "MAIN",
    "SUPPORTED_FORMAT_VERSION",
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
    "StatisticsBlob",
    "StatisticsFile",
    "TableMetadata",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMetadata(SnapshotHistory[Snapshot]):
    """One version of a table. Maps and tuples are in the file's order."""

    format_version: int
    table_uuid: str | None  # optional in v1
    last_sequence_number: int = 0  # 0 in v1
    last_updated_ms: int
    last_column_id: int
    schemas: tuple[Schema, ...]
    current_schema_id: int
    partition_specs: tuple[PartitionSpec, ...]
    default_spec_id: int
    last_partition_id: int
    snapshot_log: tuple[SnapshotLogEntry, ...] = ()
    metadata_log: tuple[MetadataLogEntry, ...] = ()
    sort_orders: tuple[SortOrder, ...] = (SortOrder(order_id=0),)
    default_sort_order_id: int = 0
    statistics: tuple[StatisticsFile, ...] = ()
    partition_statistics: tuple[PartitionStatisticsFile, ...] = ()
    next_row_id: int = 0  # first row id that no row has; 0 before v3
    encryption_keys: tuple[EncryptedKey, ...] = ()
    extra: Json = field(default_factory=dict)  # also `schema` and `partition-spec` as v1 wrote them
    layout: Layout = field(default=(), compare=False, repr=False)

    def current_schema(self) -> Schema:
        """The schema with `current_schema_id`."""
        return next(schema for schema in self.schemas if schema.schema_id == self.current_schema_id)

    def default_spec(self) -> PartitionSpec:
        """The partition spec with `default_spec_id`."""
        return next(spec for spec in self.partition_specs if spec.spec_id == self.default_spec_id)

    def partition_spec(self, spec_id: int) -> PartitionSpec | None:
        """The partition spec with this id."""
        return next((spec for spec in self.partition_specs if spec.spec_id == spec_id), None)

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
        check_no_view(obj)
        check_is_table(obj)
        version = read_format_version(obj)
        schemas, current_schema_id = read_schemas(obj, version)
        specs, default_spec_id = read_specs(obj, version)
        orders, default_sort_order_id = read_sort_orders(obj, version)
        snapshots = read_snapshots(obj)
        current_snapshot_id = read_current_snapshot_id(obj, snapshots)
        metadata = cls(
            format_version=version,
            table_uuid=obj.optional_string("table-uuid") if version == 1 else obj.string("table-uuid"),
            location=read_location(obj),
            last_sequence_number=obj.integer("last-sequence-number") if version > 1 else 0,
            last_updated_ms=obj.integer("last-updated-ms"),
            last_column_id=obj.integer("last-column-id"),
            schemas=schemas,
            current_schema_id=current_schema_id,
            partition_specs=specs,
            default_spec_id=default_spec_id,
            last_partition_id=read_last_partition_id(obj, version, specs),
            properties=obj.optional_string_map("properties") or {},
            current_snapshot_id=current_snapshot_id,
            snapshots=snapshots,
            snapshot_log=read_records(obj, "snapshot-log", SnapshotLogEntry.from_json),
            metadata_log=read_records(obj, "metadata-log", MetadataLogEntry.from_json),
            sort_orders=orders,
            default_sort_order_id=default_sort_order_id,
            refs=read_refs(obj, current_snapshot_id),
            statistics=read_records(obj, "statistics", StatisticsFile.from_json),
            partition_statistics=read_records(obj, "partition-statistics", PartitionStatisticsFile.from_json),
            next_row_id=read_next_row_id(obj, version),
            encryption_keys=read_records(obj, "encryption-keys", EncryptedKey.from_json),
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
        derived = derived_refs(self.current_snapshot_id)
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
