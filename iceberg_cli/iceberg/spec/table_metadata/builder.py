"""The metadata that a commit makes of its base, as Java's `TableMetadata.Builder` makes it.

Spec: "Table Metadata Fields" (snapshot-log, metadata-log), "Sequence Numbers", "Snapshot Row IDs".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar, assert_never

from iceberg_cli.errors import InvalidMetadata, Refused
from iceberg_cli.iceberg.spec.table_metadata.metadata import SUPPORTED_FORMAT_VERSION, TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.restoring import with_restored
from iceberg_cli.iceberg.spec.table_metadata.snapshot import (
    MAIN,
    MetadataLogEntry,
    Snapshot,
    SnapshotLogEntry,
    SnapshotRef,
)
from iceberg_cli.iceberg.spec.table_metadata.updates import (
    AddSnapshot,
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
    TableUpdate,
    UpgradeFormatVersion,
)
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionField, SortField

_V1_ONLY: Final = frozenset({"schema", "partition-spec"})
# What a snapshot did that does not say it: of the operations the one that promises nothing.
_OPERATION_UNSAID: Final = "overwrite"

Sourced = TypeVar("Sourced", PartitionField, SortField)


def upgraded(metadata: TableMetadata, version: int) -> TableMetadata:
    """The table in format version `version`, or as it is where it has it already.

    Raises:
        Refused: the version is lower, or not known; or the table has no UUID.
    """
    before = metadata.format_version
    if version == before:
        return metadata
    if version < before:
        raise Refused(f"Cannot lower the format version from {before} to {version}.")
    if version > SUPPORTED_FORMAT_VERSION:
        raise Refused(
            f"Cannot upgrade to format version {version}: only versions up to {SUPPORTED_FORMAT_VERSION}."
        )
    if metadata.table_uuid is None:
        raise Refused(
            f"Cannot upgrade to format version {version}: the table has no UUID, which version 2 requires."
        )
    if before == 1:
        extra = {key: value for key, value in metadata.extra.items() if key not in _V1_ONLY}
        layout = metadata.layout
        if layout and "refs" not in layout:
            layout = (*layout, "refs")
        # Version 1 has no numbers, but some writers' snapshots do, and none may be above the table's.
        last = max((snapshot.sequence_number for snapshot in metadata.snapshots), default=0)
        metadata = replace(metadata, extra=extra, layout=layout, last_sequence_number=last)
    # Also in version 2: an upgrade by another writer leaves the snapshots of version 1 as they were.
    snapshots = tuple(_completed(snapshot) for snapshot in metadata.snapshots)
    metadata = replace(metadata, snapshots=snapshots)
    if version > 2:
        metadata = _with_source_ids(metadata)
    return replace(metadata, format_version=version, next_row_id=0)


def _completed(snapshot: Snapshot) -> Snapshot:
    """A snapshot with the fields that version 2 requires, and without `manifests` where it has a manifest list.

    Spec: Appendix E, "Writing v2 metadata"; "Snapshots".
    """
    if snapshot.sequence_number:
        return snapshot
    layout = snapshot.layout
    if "sequence-number" not in layout:
        layout = ("sequence-number", *layout)
    summary = snapshot.summary
    if snapshot.operation is None:
        summary = {"operation": _OPERATION_UNSAID, **(summary or {})}
    manifests = snapshot.manifests
    if snapshot.manifest_list is not None:
        manifests = None
        layout = tuple(key for key in layout if key != "manifests")
    return replace(snapshot, summary=summary, manifests=manifests, layout=layout)


def _with_source_ids(metadata: TableMetadata) -> TableMetadata:
    """A transform of one argument is written with `source-id`. Spec: Appendix E, "Writing v3 metadata"."""
    return replace(
        metadata,
        partition_specs=tuple(
            replace(spec, fields=tuple(_with_source_id(field) for field in spec.fields))
            for spec in metadata.partition_specs
        ),
        sort_orders=tuple(
            replace(order, fields=tuple(_with_source_id(field) for field in order.fields))
            for order in metadata.sort_orders
        ),
    )


def _with_source_id(field: Sourced) -> Sourced:
    if len(field.source_ids) > 1 or "source-id" in field.layout:
        return field
    return replace(field, layout=tuple(key for key in field.layout if key != "source-ids"))


_PREVIOUS_VERSIONS_MAX: Final = "write.metadata.previous-versions-max"
_PREVIOUS_VERSIONS_MAX_DEFAULT: Final = 100


def with_updates(
    metadata: TableMetadata, updates: Iterable[TableUpdate], *, base_location: str, timestamp_ms: int
) -> TableMetadata:
    """The table's next version.

    Args:
        metadata: its current version.
        updates: applied in order.
        base_location: metadata file of the current version; it joins the metadata log, which is trimmed to
            `write.metadata.previous-versions-max` entries.
        timestamp_ms: now, since the epoch; `last-updated-ms` becomes this, or the newest added snapshot's
            timestamp if that is later, and never goes back.

    Returns:
        The next version. What no update names stays as it is, unknown fields and parent snapshot ids
        included.

    Raises:
        Refused: an update cannot be applied to this version.
        InvalidMetadata: the snapshot log would not end with the current snapshot.
    """
    draft = _Draft(metadata=metadata, timestamp_ms=timestamp_ms)
    for update in updates:
        draft.apply(update)
    draft.rewrite_snapshot_log(base_location)
    changed = draft.metadata
    previous = MetadataLogEntry(timestamp_ms=metadata.last_updated_ms, metadata_file=base_location)
    kept = max(1, changed.property_int(_PREVIOUS_VERSIONS_MAX, _PREVIOUS_VERSIONS_MAX_DEFAULT))
    newest_ms = max((snapshot.timestamp_ms for snapshot in draft.added.values()), default=timestamp_ms)
    return replace(
        changed,
        last_updated_ms=max(timestamp_ms, newest_ms, metadata.last_updated_ms),
        metadata_log=(*changed.metadata_log, previous)[-kept:],
    )


@dataclass(slots=True, kw_only=True)
class _Draft:
    """Metadata while updates are applied to it."""

    metadata: TableMetadata
    timestamp_ms: int
    added: dict[int, Snapshot] = field(default_factory=dict)
    passed_by_main: set[int] = field(default_factory=set)  # added snapshots that main pointed to at some time
    removed_any: bool = False

    def apply(self, update: TableUpdate) -> None:
        """Apply one update."""
        metadata = self.metadata
        match update:
            case AssignUuid():
                self.metadata = replace(metadata, table_uuid=update.uuid)
            case UpgradeFormatVersion():
                self.metadata = upgraded(metadata, update.format_version)
            case AddSnapshot():
                self.metadata = _with_snapshot(metadata, update.snapshot)
                self.added[update.snapshot.snapshot_id] = update.snapshot
            case RemoveSnapshots():
                self._remove_snapshots(frozenset(update.snapshot_ids))
            case SetSnapshotRef():
                self._set_ref(update)
            case RemoveSnapshotRef():
                self.metadata = _without_refs(metadata, {update.ref_name})
            case RemoveSchemas() | RemovePartitionSpecs():
                self.metadata = _without_definitions(metadata, update)
            case RestoreRemoved():
                restored = with_restored(metadata, update.removed)
                if metadata.format_version > 1:  # since they went
                    snapshots = tuple(_completed(snapshot) for snapshot in restored.snapshots)
                    restored = replace(restored, snapshots=snapshots)
                self.metadata = restored
            case SetProperties():
                self.metadata = replace(metadata, properties={**metadata.properties, **update.updates})
            case RemoveProperties():
                kept = {k: v for k, v in metadata.properties.items() if k not in update.removals}
                self.metadata = replace(metadata, properties=kept)
            case (
                SetStatistics() | SetPartitionStatistics() | RemoveStatistics() | RemovePartitionStatistics()
            ):
                self.metadata = _with_statistics(metadata, update)
            case _:
                assert_never(update)

    def _remove_snapshots(self, ids: frozenset[int]) -> None:
        metadata = self.metadata
        kept = tuple(snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in ids)
        self.removed_any = self.removed_any or len(kept) < len(metadata.snapshots)
        metadata = _without_refs(
            metadata, {name for name, ref in metadata.refs.items() if ref.snapshot_id in ids}
        )
        self.metadata = replace(
            metadata,
            snapshots=kept,
            statistics=tuple(file for file in metadata.statistics if file.snapshot_id not in ids),
            partition_statistics=tuple(
                file for file in metadata.partition_statistics if file.snapshot_id not in ids
            ),
        )

    def _set_ref(self, update: SetSnapshotRef) -> None:
        metadata = self.metadata
        snapshot_id = update.snapshot_id
        if metadata.snapshot(snapshot_id) is None:
            raise Refused(
                f"Cannot set ref {update.ref_name} to snapshot {snapshot_id}: the table does not have it."
            )
        former = metadata.refs.get(update.ref_name)
        ref = ref_of(update, former)
        if ref == former:
            return
        self.metadata = replace(metadata, refs={**metadata.refs, update.ref_name: ref})
        if update.ref_name != MAIN:
            return
        added = self.added.get(snapshot_id)
        if added is not None:
            self.passed_by_main.add(snapshot_id)
        entry = SnapshotLogEntry(
            timestamp_ms=self.timestamp_ms if added is None else added.timestamp_ms, snapshot_id=snapshot_id
        )
        self.metadata = replace(
            self.metadata, current_snapshot_id=snapshot_id, snapshot_log=(*metadata.snapshot_log, entry)
        )

    def rewrite_snapshot_log(self, path: str) -> None:
        """Keep the log free of gaps.

        With history [s1, s2, s3], once s2 is removed s3 must not seem to follow s1: time travel would answer
        wrongly. So each removed snapshot takes everything before it along. Snapshots that main only passed by
        within this commit were never current.
        """
        metadata = self.metadata
        current_id = metadata.current_snapshot_id
        passed_by = self.passed_by_main - {current_id}
        if not self.removed_any and not passed_by:
            return
        log: list[SnapshotLogEntry] = []
        for entry in metadata.snapshot_log:
            if metadata.snapshot(entry.snapshot_id) is None:
                if self.removed_any:
                    log.clear()
            elif entry.snapshot_id not in passed_by:
                log.append(entry)
        # The log is optional: where a writer kept none there is nothing to contradict.
        if (
            current_id is not None
            and metadata.snapshot_log
            and (not log or log[-1].snapshot_id != current_id)
        ):
            reason = f"the last entry would not be the current snapshot {current_id}"
            raise InvalidMetadata(path, "snapshot-log", reason)
        self.metadata = replace(metadata, snapshot_log=tuple(log))


def stale_numbers(snapshot: Snapshot, metadata: TableMetadata) -> str | None:
    """Why a snapshot's numbers forbid that it is added to `metadata`, or None. They only grow, so it stays so.

    Spec: "Sequence Numbers", "Snapshot Row IDs".
    """
    number, last = snapshot.sequence_number, metadata.last_sequence_number
    if metadata.format_version > 1 and number <= last:
        return f"its sequence number {number} is not above the table's {last}"
    first, added = snapshot.first_row_id, snapshot.added_rows
    if metadata.format_version < 3:
        return None
    if first is None or added is None or added < 0:
        return f"format version 3 requires first-row-id ({first}) and added-rows ({added})"
    if first < metadata.next_row_id:
        return f"its first-row-id {first} is below the table's next-row-id {metadata.next_row_id}"
    return None


def _with_snapshot(metadata: TableMetadata, snapshot: Snapshot) -> TableMetadata:
    """Spec: "Sequence Numbers", "Snapshot Row IDs"."""
    identity = f"Cannot add snapshot {snapshot.snapshot_id}"
    if metadata.snapshot(snapshot.snapshot_id) is not None:
        raise Refused(f"{identity}: the table has one with this id.")
    if reason := stale_numbers(snapshot, metadata):
        raise Refused(f"{identity}: {reason}.")
    changed = replace(
        metadata,
        snapshots=(*metadata.snapshots, snapshot),
        last_sequence_number=snapshot.sequence_number if metadata.format_version > 1 else 0,
    )
    if metadata.format_version < 3:
        return changed
    first, added = snapshot.first_row_id, snapshot.added_rows
    assert first is not None  # see `stale_numbers`
    assert added is not None
    # From the snapshot's own first id: with a gap before it, the sum that Java takes could be an assigned id.
    return replace(changed, next_row_id=first + added)


def _without_refs(metadata: TableMetadata, names: set[str]) -> TableMetadata:
    if names.isdisjoint(metadata.refs):
        return metadata
    return replace(
        metadata,
        refs={name: ref for name, ref in metadata.refs.items() if name not in names},
        current_snapshot_id=None if MAIN in names else metadata.current_snapshot_id,
    )


def _without_definitions(
    metadata: TableMetadata, update: RemoveSchemas | RemovePartitionSpecs
) -> TableMetadata:
    match update:
        case RemoveSchemas():
            if metadata.current_schema_id in update.schema_ids:
                raise Refused(f"Cannot remove schema {metadata.current_schema_id}: it is the current one.")
            gone = frozenset(update.schema_ids)
            return replace(metadata, schemas=tuple(s for s in metadata.schemas if s.schema_id not in gone))
        case RemovePartitionSpecs():
            if metadata.default_spec_id in update.spec_ids:
                raise Refused(
                    f"Cannot remove partition spec {metadata.default_spec_id}: it is the default one."
                )
            gone = frozenset(update.spec_ids)
            specs = tuple(s for s in metadata.partition_specs if s.spec_id not in gone)
            return replace(metadata, partition_specs=specs)


def _with_statistics(
    metadata: TableMetadata,
    update: SetStatistics | SetPartitionStatistics | RemoveStatistics | RemovePartitionStatistics,
) -> TableMetadata:
    match update:
        case SetStatistics(statistics=file):
            others = tuple(f for f in metadata.statistics if f.snapshot_id != file.snapshot_id)
            return replace(metadata, statistics=(*others, file))
        case SetPartitionStatistics(partition_statistics=partitions):
            rest = tuple(f for f in metadata.partition_statistics if f.snapshot_id != partitions.snapshot_id)
            return replace(metadata, partition_statistics=(*rest, partitions))
        case RemoveStatistics(snapshot_id=gone):
            return replace(
                metadata, statistics=tuple(f for f in metadata.statistics if f.snapshot_id != gone)
            )
        case RemovePartitionStatistics(snapshot_id=gone):
            left = tuple(f for f in metadata.partition_statistics if f.snapshot_id != gone)
            return replace(metadata, partition_statistics=left)


def ref_of(update: SetSnapshotRef, former: SnapshotRef | None) -> SnapshotRef:
    """The ref of an update, with unknown fields of the former one."""
    return SnapshotRef(
        snapshot_id=update.snapshot_id,
        type=update.type,
        min_snapshots_to_keep=update.min_snapshots_to_keep,
        max_snapshot_age_ms=update.max_snapshot_age_ms,
        max_ref_age_ms=update.max_ref_age_ms,
        extra={} if former is None else former.extra,
    )
