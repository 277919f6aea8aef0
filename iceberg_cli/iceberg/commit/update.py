"""What a commit does to table metadata, and what must be true for it.

The updates and requirements themselves are in `spec/table_metadata/updates.py`, `with_updates` in
`spec/table_metadata/builder.py`. Nothing here reads a clock or draws an id.

Spec: "Table Metadata", "Commit Conflict Resolution and Retry"; REST catalog specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from iceberg_cli.iceberg.spec.table_metadata.builder import ref_of, stale_numbers, with_updates
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import MAIN
from iceberg_cli.iceberg.spec.table_metadata.updates import (
    AddSnapshot,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUuid,
    AssignUuid,
    RemovePartitionSpecs,
    RemovePartitionStatistics,
    RemoveProperties,
    RemoveSchemas,
    RemoveSnapshotRef,
    RemoveSnapshots,
    RemoveStatistics,
    RestoreRemoved,
    SetPartitionStatistics,
    SetProperties,
    SetSnapshotRef,
    SetStatistics,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersion,
    requirements_from_json,
    updates_from_json,
)

__all__ = [
    "AddSnapshot",
    "AssertCurrentSchemaId",
    "AssertDefaultSortOrderId",
    "AssertDefaultSpecId",
    "AssertLastAssignedFieldId",
    "AssertLastAssignedPartitionId",
    "AssertRefSnapshotId",
    "AssertTableUuid",
    "AssignUuid",
    "Commit",
    "RemovePartitionSpecs",
    "RemovePartitionStatistics",
    "RemoveProperties",
    "RemoveSchemas",
    "RemoveSnapshotRef",
    "RemoveSnapshots",
    "RemoveStatistics",
    "RestoreRemoved",
    "SetPartitionStatistics",
    "SetProperties",
    "SetSnapshotRef",
    "SetStatistics",
    "TableRequirement",
    "TableUpdate",
    "UpgradeFormatVersion",
    "check",
    "dropped_metadata_files",
    "effects_visible",
    "requirements_for",
    "requirements_from_json",
    "updates_from_json",
    "why_outrun",
    "with_updates",
]

_DELETE_AFTER_COMMIT: Final = "write.metadata.delete-after-commit.enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One attempt to change a table, complete: what changes, on what, under which conditions.

    `recorded`: it is as a catalog takes it, or as a journal has it, and is made again as it is.
    """

    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    base: TableMetadata
    timestamp_ms: int  # since the epoch, for `last-updated-ms`
    commit_uuid: str  # drawn for this attempt
    recorded: bool = False


def check(requirements: Iterable[TableRequirement], metadata: TableMetadata) -> str | None:
    """Why the requirements do not hold for `metadata`, or None if they all do."""
    for requirement in requirements:
        if reason := _why_not(requirement, metadata):
            return reason
    return None


def dropped_metadata_files(base: TableMetadata, new: TableMetadata) -> tuple[str, ...]:
    """Metadata files that left the metadata log with the commit of `new` and are to be deleted, in log order.

    None unless `write.metadata.delete-after-commit.enabled`.
    """
    if not new.property_bool(_DELETE_AFTER_COMMIT, default=False):
        return ()
    kept = {entry.metadata_file for entry in new.metadata_log}
    return tuple(entry.metadata_file for entry in base.metadata_log if entry.metadata_file not in kept)


def requirements_for(
    updates: Iterable[TableUpdate], metadata: TableMetadata, *, every_ref: bool = False
) -> tuple[TableRequirement, ...]:
    """The requirements under which `updates` do the same as on `metadata`.

    What only adds a snapshot and moves one branch to it asserts that branch, as Java does: a commit on another branch
    makes its numbers stale at most, see `why_outrun`. What only sets refs asserts these, each where it was or absent:
    it takes nothing from others. Of all else more than Java asks: every ref must be where it was.
    `remove-snapshots` has no requirement of its own, and a catalog would silently drop a tag that was put on an expired
    snapshot in the meantime.

    Args:
        updates: of one commit.
        metadata: the base.
        every_ref: assert every ref in any case, for catalogs that hold no numbers against the table's.
    """
    updates = tuple(updates)
    required: list[TableRequirement] = []
    if metadata.table_uuid is not None:
        required.append(AssertTableUuid(uuid=metadata.table_uuid))
    match updates:
        case (AddSnapshot(), SetSnapshotRef(ref_name=name)) if not every_ref:
            former = metadata.refs.get(name)
            head = None if former is None else former.snapshot_id
            return (*required, AssertRefSnapshotId(ref=name, snapshot_id=head))
        case _ if updates and not every_ref and all(isinstance(update, SetSnapshotRef) for update in updates):
            return (*required, *_where_they_are(updates, metadata))
        case _:
            pass
    if MAIN not in metadata.refs:
        required.append(AssertRefSnapshotId(ref=MAIN, snapshot_id=None))
    required += [
        AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in metadata.refs.items()
    ]
    kinds = {type(update) for update in updates}
    if AddSnapshot not in kinds:
        required += [each for each in _where_they_are(updates, metadata) if each not in required]
    if RemoveSchemas in kinds:
        required.append(AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id))
        required.append(AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id))
    if RemovePartitionSpecs in kinds:
        required.append(AssertDefaultSpecId(default_spec_id=metadata.default_spec_id))
        last_id = metadata.last_partition_id
        required.append(AssertLastAssignedPartitionId(last_assigned_partition_id=last_id))
    return tuple(required)


def _where_they_are(updates: Iterable[TableUpdate], metadata: TableMetadata) -> Iterator[AssertRefSnapshotId]:
    """Of each ref that updates set, where it is in the base, or that it is not there."""
    for update in updates:
        if isinstance(update, SetSnapshotRef):
            former = metadata.refs.get(update.ref_name)
            yield AssertRefSnapshotId(
                ref=update.ref_name, snapshot_id=None if former is None else former.snapshot_id
            )


def why_outrun(updates: Iterable[TableUpdate], metadata: TableMetadata) -> str | None:
    """Why a table's numbers have passed those of a commit's snapshot, so that it can never be added, or None.

    Whoever takes a commit holds them against the table's, as `with_updates` does.
    """
    for update in updates:
        if isinstance(update, AddSnapshot) and (reason := stale_numbers(update.snapshot, metadata)):
            return reason
    return None


def effects_visible(updates: Iterable[TableUpdate], metadata: TableMetadata) -> bool:
    """Whether `metadata` is already as it would be after each of `updates`.

    The id of an added snapshot was drawn for that commit alone: where it is there, all of the commit happened, although
    others may have moved the branch since.
    """
    updates = tuple(updates)
    added = [update for update in updates if isinstance(update, AddSnapshot)]
    return all(_visible(update, metadata) for update in added or updates)


def _why_not(requirement: TableRequirement, metadata: TableMetadata) -> str | None:
    match requirement:
        case AssertTableUuid(uuid=uuid):
            found = metadata.table_uuid
            same = found is not None and found.lower() == uuid.lower()
            return None if same else f"the table's UUID is {found}, not {uuid}"
        case AssertRefSnapshotId(ref=name, snapshot_id=expected):
            ref = metadata.refs.get(name)
            return _differs(f"ref {name}'s snapshot", None if ref is None else ref.snapshot_id, expected)
        case AssertCurrentSchemaId(current_schema_id=expected):
            return _differs("the current schema id", metadata.current_schema_id, expected)
        case AssertDefaultSpecId(default_spec_id=expected):
            return _differs("the default spec id", metadata.default_spec_id, expected)
        case AssertDefaultSortOrderId(default_sort_order_id=expected):
            return _differs("the default sort order id", metadata.default_sort_order_id, expected)
        case AssertLastAssignedFieldId(last_assigned_field_id=expected):
            return _differs("the last assigned field id", metadata.last_column_id, expected)
        case AssertLastAssignedPartitionId(last_assigned_partition_id=expected):
            return _differs("the last assigned partition id", metadata.last_partition_id, expected)


def _differs(what: str, found: int | None, expected: int | None) -> str | None:
    if found == expected:
        return None
    shown = ["absent" if value is None else str(value) for value in (found, expected)]
    return f"{what} is {shown[0]}, not {shown[1]}"


def _visible(update: TableUpdate, metadata: TableMetadata) -> bool:  # noqa: C901, PLR0911, PLR0912 - one each
    match update:
        case AssignUuid(uuid=uuid):
            return metadata.table_uuid == uuid
        case UpgradeFormatVersion(format_version=version):
            return metadata.format_version >= version
        case AddSnapshot(snapshot=snapshot):
            return metadata.snapshot(snapshot.snapshot_id) is not None
        case RemoveSnapshots(snapshot_ids=ids):
            return all(metadata.snapshot(snapshot_id) is None for snapshot_id in ids)
        case SetSnapshotRef(ref_name=name):
            former = metadata.refs.get(name)
            return former is not None and former == ref_of(update, former)
        case RemoveSnapshotRef(ref_name=name):
            return name not in metadata.refs
        case RemoveSchemas(schema_ids=ids):
            return not {schema.schema_id for schema in metadata.schemas} & set(ids)
        case RemovePartitionSpecs(spec_ids=ids):
            return not {spec.spec_id for spec in metadata.partition_specs} & set(ids)
        case RestoreRemoved(removed=removed):
            back = all(metadata.snapshot(each.snapshot_id) is not None for each in removed.snapshots)
            return back and removed.refs.keys() <= metadata.refs.keys()
        case SetProperties(updates=properties):
            return properties.items() <= metadata.properties.items()
        case RemoveProperties(removals=names):
            return not set(names) & metadata.properties.keys()
        case SetStatistics(statistics=file):
            return file in metadata.statistics
        case SetPartitionStatistics(partition_statistics=partitions):
            return partitions in metadata.partition_statistics
        case RemoveStatistics(snapshot_id=gone):
            return all(file.snapshot_id != gone for file in metadata.statistics)
        case RemovePartitionStatistics(snapshot_id=gone):
            return all(file.snapshot_id != gone for file in metadata.partition_statistics)
