"""Changes of table metadata and what must be true for them, as data with the REST specification's names.

Spec: REST catalog specification, `TableUpdate` and `TableRequirement`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from iceberg_cli.iceberg.spec.json_fields import Fields
from iceberg_cli.iceberg.spec.table_metadata.removed import RemovedMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import Snapshot, SnapshotRef
from iceberg_cli.iceberg.spec.table_metadata.statistics_files import PartitionStatisticsFile, StatisticsFile

_RECORDS: Final = (Snapshot, StatisticsFile, PartitionStatisticsFile, RemovedMetadata)


class _Wire:
    """A dataclass whose JSON object has its attributes, with `-` for `_`, after the class's own name."""

    __slots__ = ()
    discriminator: ClassVar[str]
    wire_name: ClassVar[str]
    written_as_null: ClassVar[frozenset[str]] = frozenset()  # attributes that are written although None

    def to_json(self) -> dict[str, Any]:
        """The REST specification's object; ids are numbers."""
        written: dict[str, Any] = {self.discriminator: self.wire_name}
        for attribute in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = getattr(self, attribute.name)
            if isinstance(value, _RECORDS):
                value = value.to_json()
            elif isinstance(value, tuple):
                value = list(value)
            elif isinstance(value, Mapping):
                value = dict(value)
            if value is not None or attribute.name in self.written_as_null:
                written[attribute.name.replace("_", "-")] = value
        return written


class _Update(_Wire):
    __slots__ = ()
    discriminator = "action"


class _Requirement(_Wire):
    __slots__ = ()
    discriminator = "type"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignUuid(_Update):
    """Give the table its UUID, which v1 tables may lack."""

    wire_name = "assign-uuid"
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeFormatVersion(_Update):
    """Raise the format version. There is no way back."""

    wire_name = "upgrade-format-version"
    format_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddSnapshot(_Update):
    """Add a snapshot; no ref points to it yet."""

    wire_name = "add-snapshot"
    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveSnapshots(_Update):
    """Forget snapshots, with their statistics and the refs that point to them."""

    wire_name = "remove-snapshots"
    snapshot_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSnapshotRef(_Update):
    """Create a branch or tag, or point it elsewhere."""

    wire_name = "set-snapshot-ref"
    ref_name: str
    type: str  # "branch" or "tag"
    snapshot_id: int
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None
    max_ref_age_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveSnapshotRef(_Update):
    """Forget a branch or tag, not its snapshots."""

    wire_name = "remove-snapshot-ref"
    ref_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStatistics(_Update):
    """Register a statistics file in place of the snapshot's former one."""

    wire_name = "set-statistics"
    statistics: StatisticsFile


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveStatistics(_Update):
    """Forget a snapshot's statistics files."""

    wire_name = "remove-statistics"
    snapshot_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPartitionStatistics(_Update):
    """Register a partition statistics file in place of the snapshot's former one."""

    wire_name = "set-partition-statistics"
    partition_statistics: PartitionStatisticsFile


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePartitionStatistics(_Update):
    """Forget a snapshot's partition statistics file."""

    wire_name = "remove-partition-statistics"
    snapshot_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveSchemas(_Update):
    """Forget schemas, never the current one."""

    wire_name = "remove-schemas"
    schema_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePartitionSpecs(_Update):
    """Forget partition specs, never the default one."""

    wire_name = "remove-partition-specs"
    spec_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRemoved(_Update):
    """Put back what an earlier commit took out. No REST catalog takes it: who writes the metadata does it."""

    wire_name = "restore-removed"
    removed: RemovedMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProperties(_Update):
    """Set table properties."""

    wire_name = "set-properties"
    updates: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveProperties(_Update):
    """Unset table properties."""

    wire_name = "remove-properties"
    removals: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertTableUuid(_Requirement):
    """The table is the same one."""

    wire_name = "assert-table-uuid"
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertRefSnapshotId(_Requirement):
    """A ref points to this snapshot or, where None, does not exist."""

    wire_name = "assert-ref-snapshot-id"
    written_as_null = frozenset({"snapshot_id"})
    ref: str
    snapshot_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertCurrentSchemaId(_Requirement):
    """The current schema has this id."""

    wire_name = "assert-current-schema-id"
    current_schema_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertDefaultSpecId(_Requirement):
    """The default partition spec has this id."""

    wire_name = "assert-default-spec-id"
    default_spec_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertDefaultSortOrderId(_Requirement):
    """The default sort order has this id."""

    wire_name = "assert-default-sort-order-id"
    default_sort_order_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertLastAssignedFieldId(_Requirement):
    """No column was added."""

    wire_name = "assert-last-assigned-field-id"
    last_assigned_field_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertLastAssignedPartitionId(_Requirement):
    """No partition field was added."""

    wire_name = "assert-last-assigned-partition-id"
    last_assigned_partition_id: int


TableUpdate = (
    AssignUuid
    | UpgradeFormatVersion
    | AddSnapshot
    | RemoveSnapshots
    | SetSnapshotRef
    | RemoveSnapshotRef
    | SetStatistics
    | RemoveStatistics
    | SetPartitionStatistics
    | RemovePartitionStatistics
    | RemoveSchemas
    | RemovePartitionSpecs
    | RestoreRemoved
    | SetProperties
    | RemoveProperties
)

TableRequirement = (
    AssertTableUuid
    | AssertRefSnapshotId
    | AssertCurrentSchemaId
    | AssertDefaultSpecId
    | AssertDefaultSortOrderId
    | AssertLastAssignedFieldId
    | AssertLastAssignedPartitionId
)


def updates_from_json(
    values: Iterable[Mapping[str, Any]], *, path: str = "updates"
) -> tuple[TableUpdate, ...]:
    """Updates in the REST specification's wire form.

    Args:
        values: parsed objects.
        path: where they came from, for messages.

    Raises:
        InvalidMetadata: naming the field; also for an action that this package never asks for.
    """
    return tuple(_read(value, path, f"updates[{i}]", "action", _UPDATES) for i, value in enumerate(values))


def requirements_from_json(
    values: Iterable[Mapping[str, Any]], *, path: str = "requirements"
) -> tuple[TableRequirement, ...]:
    """Requirements in the REST specification's wire form; raises as `updates_from_json` does."""
    return tuple(
        _read(value, path, f"requirements[{i}]", "type", _REQUIREMENTS) for i, value in enumerate(values)
    )


def _read(value: object, path: str, where: str, discriminator: str, readers: Mapping[str, Any]) -> Any:
    obj = Fields(value, path, where)
    name = obj.string(discriminator)
    if name not in readers:
        raise obj.wrong(discriminator, f"{name!r} is not supported")
    return readers[name](obj)


def _set_snapshot_ref(obj: Fields) -> SetSnapshotRef:
    ref = SnapshotRef.from_json(obj.value, path=obj.path, where=obj.where)
    return SetSnapshotRef(
        ref_name=obj.string("ref-name"),
        type=ref.type,
        snapshot_id=ref.snapshot_id,
        min_snapshots_to_keep=ref.min_snapshots_to_keep,
        max_snapshot_age_ms=ref.max_snapshot_age_ms,
        max_ref_age_ms=ref.max_ref_age_ms,
    )


def _snapshot(obj: Fields) -> Snapshot:
    return Snapshot.from_json(obj.value.get("snapshot"), path=obj.path, where=obj.name("snapshot"))


def _statistics(obj: Fields) -> StatisticsFile:
    return StatisticsFile.from_json(obj.value.get("statistics"), path=obj.path, where=obj.name("statistics"))


def _partition_statistics(obj: Fields) -> PartitionStatisticsFile:
    key = "partition-statistics"
    return PartitionStatisticsFile.from_json(obj.value.get(key), path=obj.path, where=obj.name(key))


_UPDATES: Final[Mapping[str, Callable[[Fields], TableUpdate]]] = {
    AssignUuid.wire_name: lambda obj: AssignUuid(uuid=obj.string("uuid")),
    UpgradeFormatVersion.wire_name: lambda obj: UpgradeFormatVersion(
        format_version=obj.integer("format-version")
    ),
    AddSnapshot.wire_name: lambda obj: AddSnapshot(snapshot=_snapshot(obj)),
    RemoveSnapshots.wire_name: lambda obj: RemoveSnapshots(snapshot_ids=obj.integers("snapshot-ids")),
    SetSnapshotRef.wire_name: _set_snapshot_ref,
    RemoveSnapshotRef.wire_name: lambda obj: RemoveSnapshotRef(ref_name=obj.string("ref-name")),
    SetStatistics.wire_name: lambda obj: SetStatistics(statistics=_statistics(obj)),
    RemoveStatistics.wire_name: lambda obj: RemoveStatistics(snapshot_id=obj.integer("snapshot-id")),
    SetPartitionStatistics.wire_name: lambda obj: SetPartitionStatistics(
        partition_statistics=_partition_statistics(obj)
    ),
    RemovePartitionStatistics.wire_name: lambda obj: RemovePartitionStatistics(
        snapshot_id=obj.integer("snapshot-id")
    ),
    RemoveSchemas.wire_name: lambda obj: RemoveSchemas(schema_ids=obj.integers("schema-ids")),
    RemovePartitionSpecs.wire_name: lambda obj: RemovePartitionSpecs(spec_ids=obj.integers("spec-ids")),
    RestoreRemoved.wire_name: lambda obj: RestoreRemoved(
        removed=RemovedMetadata.from_json(obj.value.get("removed"), path=obj.path, where=obj.name("removed"))
    ),
    SetProperties.wire_name: lambda obj: SetProperties(updates=obj.optional_string_map("updates") or {}),
    RemoveProperties.wire_name: lambda obj: RemoveProperties(removals=obj.strings("removals")),
}

_REQUIREMENTS: Final[Mapping[str, Callable[[Fields], TableRequirement]]] = {
    AssertTableUuid.wire_name: lambda obj: AssertTableUuid(uuid=obj.string("uuid")),
    AssertRefSnapshotId.wire_name: lambda obj: AssertRefSnapshotId(
        ref=obj.string("ref"), snapshot_id=obj.optional_integer("snapshot-id")
    ),
    AssertCurrentSchemaId.wire_name: lambda obj: AssertCurrentSchemaId(
        current_schema_id=obj.integer("current-schema-id")
    ),
    AssertDefaultSpecId.wire_name: lambda obj: AssertDefaultSpecId(
        default_spec_id=obj.integer("default-spec-id")
    ),
    AssertDefaultSortOrderId.wire_name: lambda obj: AssertDefaultSortOrderId(
        default_sort_order_id=obj.integer("default-sort-order-id")
    ),
    AssertLastAssignedFieldId.wire_name: lambda obj: AssertLastAssignedFieldId(
        last_assigned_field_id=obj.integer("last-assigned-field-id")
    ),
    AssertLastAssignedPartitionId.wire_name: lambda obj: AssertLastAssignedPartitionId(
        last_assigned_partition_id=obj.integer("last-assigned-partition-id")
    ),
}
