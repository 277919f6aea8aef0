"""Table metadata with what a commit took out of it put back, merged into what the table is now.

Snapshots come back with their ids, sequence numbers, row ids and order. The current schema, partition spec and refs
stay as they are now, and no counter goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from iceberg_cli.errors import Refused
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.removed import RemovedMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import Snapshot, SnapshotLogEntry

T = TypeVar("T")


def removed_by(before: TableMetadata, after: TableMetadata) -> RemovedMetadata:
    """What one version of a table has and a later one does not."""
    return RemovedMetadata(
        snapshots=tuple(each for each in before.snapshots if after.snapshot(each.snapshot_id) is None),
        refs={name: ref for name, ref in before.refs.items() if name not in after.refs},
        schemas=_gone(before.schemas, after.schemas, lambda each: each.schema_id),
        partition_specs=_gone(before.partition_specs, after.partition_specs, lambda each: each.spec_id),
        statistics=_gone(before.statistics, after.statistics, lambda each: each.snapshot_id),
        partition_statistics=_gone(
            before.partition_statistics, after.partition_statistics, lambda each: each.snapshot_id
        ),
        snapshot_log=before.snapshot_log,
        snapshot_order=tuple(each.snapshot_id for each in before.snapshots),
    )


def with_restored(metadata: TableMetadata, removed: RemovedMetadata) -> TableMetadata:
    """A table with what was removed put back.

    Args:
        metadata: as it is now.
        removed: by an earlier commit. What is there again, or still, stays as it is now.

    Raises:
        Refused: a snapshot, schema or partition spec of the same id is there, and is another one.
    """
    _check_same(
        [each for each in metadata.snapshots if each.snapshot_id in {*_ids(removed)}],
        removed.snapshots,
        lambda each: each.snapshot_id,
        "snapshot",
    )
    _check_same(metadata.schemas, removed.schemas, lambda each: each.schema_id, "schema")
    _check_same(
        metadata.partition_specs, removed.partition_specs, lambda each: each.spec_id, "partition spec"
    )
    snapshots = _snapshots(metadata, removed)
    there = {each.snapshot_id for each in snapshots}
    refs = {
        name: ref
        for name, ref in removed.refs.items()
        if name not in metadata.refs and ref.snapshot_id in there
    }
    return replace(
        metadata,
        snapshots=snapshots,
        refs={**metadata.refs, **refs},
        schemas=_merged(metadata.schemas, removed.schemas, lambda each: each.schema_id),
        partition_specs=_merged(metadata.partition_specs, removed.partition_specs, lambda each: each.spec_id),
        statistics=_merged(metadata.statistics, removed.statistics, lambda each: each.snapshot_id),
        partition_statistics=_merged(
            metadata.partition_statistics, removed.partition_statistics, lambda each: each.snapshot_id
        ),
        snapshot_log=_log(metadata, removed, there),
    )


def _ids(removed: RemovedMetadata) -> list[int]:
    return [each.snapshot_id for each in removed.snapshots]


def _gone(before: Sequence[T], after: Sequence[T], key: Callable[[T], Hashable]) -> tuple[T, ...]:
    staying = {key(each) for each in after}
    return tuple(each for each in before if key(each) not in staying)


def _check_same(now: Sequence[Any], then: Sequence[Any], key: Callable[[Any], int], noun: str) -> None:
    known = {key(each): each for each in now}
    for each in then:
        found = known.get(key(each), each)
        if found != each:
            raise Refused(f"Cannot restore {noun} {key(each)}: the table has another one by now with this id")


def _merged(now: Sequence[T], then: Sequence[T], key: Callable[[T], int]) -> tuple[T, ...]:
    """Both, in the order of their ids where what is there now is in it; else what comes back last."""
    known = {key(each) for each in now}
    back = [each for each in then if key(each) not in known]
    ordered = [key(each) for each in now]
    if not back:
        return tuple(now)
    every = [*now, *back]
    return tuple(sorted(every, key=key) if ordered == sorted(ordered) else every)


def _snapshots(metadata: TableMetadata, removed: RemovedMetadata) -> tuple[Snapshot, ...]:
    """All, those of before in the order that they had, then those that came since."""
    every = {each.snapshot_id: each for each in (*removed.snapshots, *metadata.snapshots)}
    before = [snapshot_id for snapshot_id in removed.snapshot_order if snapshot_id in every]
    since = [each.snapshot_id for each in metadata.snapshots if each.snapshot_id not in {*before}]
    return tuple(every[snapshot_id] for snapshot_id in (*before, *since))


def _log(metadata: TableMetadata, removed: RemovedMetadata, there: set[int]) -> tuple[SnapshotLogEntry, ...]:
    """The log as it was, then what came since; without what is before a snapshot that is gone, as for time travel."""
    known = {(each.timestamp_ms, each.snapshot_id) for each in removed.snapshot_log}
    since = [each for each in metadata.snapshot_log if (each.timestamp_ms, each.snapshot_id) not in known]
    found: list[SnapshotLogEntry] = []
    for entry in (*removed.snapshot_log, *since):
        if entry.snapshot_id in there:
            found.append(entry)
        else:
            found.clear()
    return tuple(found)
