"""A commit of an Iceberg table, made of a change, its staged files and the current metadata.

Called again on every attempt, with the staged files kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from iceberg_cli.iceberg.commit.draft import SnapshotDraft, bind_snapshot
from iceberg_cli.iceberg.commit.update import (
    AddSnapshot,
    Commit,
    SetSnapshotRef,
    TableUpdate,
    requirements_for,
    updates_from_json,
)
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import BRANCH
from iceberg_cli.plan.plan import Change, StagedFile, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCommit:
    """A commit, and the files (path to bytes) that must be durable before it is sent; `counts` are result columns."""

    commit: Commit
    files: Mapping[str, bytes] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


def bind(
    change: Change,
    metadata: TableMetadata,
    *,
    staged: Mapping[Task, StagedFile],
    timestamp_ms: int,
    commit_uuid: str,
    operation_id: str,
    list_path: str,
) -> BoundCommit:
    """The commit of `change` on `metadata`.

    Args:
        change: updates in the REST specification's wire form, and a draft made from `metadata` or none.
        metadata: the base of this attempt.
        staged: the files of the step's tasks.
        timestamp_ms: for `last-updated-ms` and the snapshot, in ms since the epoch.
        commit_uuid: drawn for this attempt; part of the new metadata file's name.
        operation_id: for the snapshot's summary.
        list_path: where this attempt's manifest list goes, if it makes one.

    Returns:
        Final updates and the requirements that make them safe on this base.

    Raises:
        Refused: see `bind_snapshot`.
    """
    updates: tuple[TableUpdate, ...] = updates_from_json(change.updates)
    files: dict[str, bytes] = {}
    counts: Mapping[str, int] = {}
    if change.draft is not None:
        assert isinstance(change.draft, SnapshotDraft)
        bound = bind_snapshot(
            change.draft,
            metadata,
            staged=staged,
            timestamp_ms=timestamp_ms,
            commit_uuid=commit_uuid,
            operation_id=operation_id,
            list_path=list_path,
        )
        files[list_path] = bound.manifest_list
        counts = bound.counts
        updates += (
            AddSnapshot(snapshot=bound.snapshot),
            _moved(change.draft.ref, bound.snapshot.snapshot_id, metadata),
        )
    commit = Commit(
        updates=updates,
        requirements=requirements_for(updates, metadata),
        base=metadata,
        timestamp_ms=timestamp_ms,
        commit_uuid=commit_uuid,
    )
    return BoundCommit(commit=commit, files=files, counts=counts)


def _moved(branch: str, snapshot_id: int, metadata: TableMetadata) -> SetSnapshotRef:
    """The branch at another snapshot, with its retention."""
    former = metadata.refs[branch]
    return SetSnapshotRef(
        ref_name=branch,
        type=BRANCH,
        snapshot_id=snapshot_id,
        min_snapshots_to_keep=former.min_snapshots_to_keep,
        max_snapshot_age_ms=former.max_snapshot_age_ms,
        max_ref_age_ms=former.max_ref_age_ms,
    )
