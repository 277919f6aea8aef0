"""A snapshot to be committed: which manifests it lists and what its summary says, without numbers.

Spec: "Snapshots", "Manifest Lists", "Sequence Numbers", "Row Lineage".
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from iceberg_cli.encoding.row_ids import allocate
from iceberg_cli.errors import Refused
from iceberg_cli.iceberg.spec.manifests.writer import write_manifest_list
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.plan.plan import StagedFile, Task

OPERATION_ID = "iceberg-cli.operation-id"  # summary key: which operation of this tool made a snapshot

_COUNTS = (
    "added_files_count",
    "existing_files_count",
    "deleted_files_count",
    "added_rows_count",
    "existing_rows_count",
    "deleted_rows_count",
)
_DATA = 0
_MAX_ROW_ID = 1 << 62  # no table comes near it, and 64 bits hold sums below it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SnapshotDraft:
    """A snapshot on top of a branch.

    Args:
        ref: the branch.
        parent_snapshot_id: its head when the plan was made.
        operation: `append`, `replace`, `overwrite` or `delete`.
        added: tasks whose staged manifests the list begins with.
        kept: rows of the parent's manifest list that stay, in their order: columns of `MANIFEST_LIST_SCHEMA`.
        summary: own keys and totals, without `operation`.
        snapshot_id: that entries of its manifests have; None: they inherit it, and it comes from the attempt.
    """

    ref: str
    parent_snapshot_id: int
    operation: str
    added: tuple[Task, ...] = ()
    kept: pa.Table
    summary: Mapping[str, str] = field(default_factory=dict)
    snapshot_id: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields that are known before the commit."""
        return {
            "ref": self.ref,
            "parent_snapshot_id": str(self.parent_snapshot_id),
            "operation": self.operation,
            "added_manifests": len(self.added),
            "kept_manifests": self.kept.num_rows,
            "summary": dict(self.summary),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSnapshot:
    """A snapshot with all its numbers, and the bytes of its manifest list; `counts` are result columns."""

    snapshot: Snapshot
    manifest_list: bytes
    counts: Mapping[str, int]


def bind_snapshot(
    draft: SnapshotDraft,
    metadata: TableMetadata,
    *,
    staged: Mapping[Task, StagedFile],
    timestamp_ms: int,
    commit_uuid: str,
    operation_id: str,
    list_path: str,
) -> BoundSnapshot:
    """Give a draft its numbers on top of `metadata`.

    Args:
        draft: made from `metadata`.
        metadata: the base of this attempt.
        staged: the manifests of `draft.added`. A row has the names of `MANIFEST_LIST_SCHEMA`; `sequence_number`,
            `added_snapshot_id` and (of a manifest that has no live entry with a number of its own)
            `min_sequence_number` are this commit's where absent. `all_rows_have_ids` set: no entry of the manifest
            inherits a row id.
        timestamp_ms: now, in ms since the epoch.
        commit_uuid: drawn for this attempt; the snapshot id comes from it where the draft has none.
        operation_id: for the summary.
        list_path: where the manifest list goes.

    Raises:
        Refused: the branch has moved from the draft's parent, or a manifest lacks counts that the format version
            requires.
    """
    head = metadata.refs.get(draft.ref)
    if head is None or head.snapshot_id != draft.parent_snapshot_id:
        raise Refused(f"Cannot commit to branch {draft.ref}: it has moved from {draft.parent_snapshot_id}")
    version = metadata.format_version
    snapshot_id = draft.snapshot_id or snapshot_id_of(commit_uuid, metadata)
    sequence_number = metadata.last_sequence_number + 1 if version > 1 else 0
    new = {"sequence_number": sequence_number, "added_snapshot_id": snapshot_id}
    rows = [
        {
            "min_sequence_number": sequence_number,
            **new,
            **{k: v for k, v in staged[task].row.items() if v is not None},
        }
        for task in draft.added
    ]
    rows += draft.kept.to_pylist()
    if version > 1:
        _check_counts(rows)
    next_row_id = metadata.next_row_id
    waiting = sum(_waits(row) and not row.get("all_rows_have_ids") for row in rows) if version > 2 else 0
    if version > 2:
        next_row_id = assign_first_row_ids(rows, next_row_id)
    summary = {"operation": draft.operation, **draft.summary, OPERATION_ID: operation_id}
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=draft.parent_snapshot_id,
        sequence_number=sequence_number,
        timestamp_ms=max(timestamp_ms, metadata.last_updated_ms),
        manifest_list=list_path,
        summary=summary,
        schema_id=metadata.current_schema_id,
        first_row_id=metadata.next_row_id if version > 2 else None,
        added_rows=next_row_id - metadata.next_row_id if version > 2 else None,
    )
    data = write_manifest_list(
        rows,
        format_version=version,
        snapshot_id=snapshot_id,
        parent_snapshot_id=draft.parent_snapshot_id,
        sequence_number=sequence_number,
        first_row_id=snapshot.first_row_id,
        sync=hashlib.sha256(f"{commit_uuid} {list_path}".encode()).digest()[:16],
    )
    reserved = next_row_id - metadata.next_row_id
    counts = {"assigned_rows_count": reserved, "assigned_manifests_count": waiting} if waiting else {}
    return BoundSnapshot(snapshot=snapshot, manifest_list=data, counts=counts)


def assign_first_row_ids(rows: Sequence[dict[str, Any]], next_row_id: int) -> int:
    """Give each data manifest without a `first_row_id` one, in place and in the order of the list.

    A manifest whose entries all have ids of their own (`all_rows_have_ids`, which is removed) reserves none. Delete
    manifests get no id. DELETED entries consume none.

    Args:
        rows: of a manifest list, with counts.
        next_row_id: the table's.

    Returns:
        The table's next row id afterwards.

    Raises:
        Refused: the counts add up beyond 2^62.

    Spec: "First Row ID Assignment", "First Row ID Inheritance".
    """
    explicit = [bool(row.pop("all_rows_have_ids", False)) for row in rows]
    waiting = [index for index, row in enumerate(rows) if _waits(row)]
    first = next_row_id
    counts = [
        0 if explicit[index] else rows[index]["added_rows_count"] + rows[index]["existing_rows_count"]
        for index in waiting
    ]
    firsts, next_row_id = allocate(next_row_id, counts)
    if next_row_id > _MAX_ROW_ID:
        raise Refused(
            f"Cannot reserve row ids: the counts of {len(waiting)} manifests add up to {next_row_id - first} rows",
            next_step="`inspect --check` finds the manifests with wrong counts.",
        )
    for index, own in zip(waiting, firsts, strict=True):
        rows[index]["first_row_id"] = first if explicit[index] else own
    return next_row_id


def _waits(row: Mapping[str, Any]) -> bool:
    """Whether a row is a data manifest without a `first_row_id`."""
    return (row.get("content") or _DATA) == _DATA and row.get("first_row_id") is None


def snapshot_id_of(commit_uuid: str, metadata: TableMetadata) -> int:
    """A snapshot id that the table does not have: 63 bits of a UUID, or of its hash where these are taken."""
    number = uuid.UUID(commit_uuid).int
    while True:
        snapshot_id = (number ^ number >> 64) & (1 << 63) - 1
        if snapshot_id and metadata.snapshot(snapshot_id) is None:
            return snapshot_id
        number = int.from_bytes(hashlib.sha256(number.to_bytes(16, "big")).digest()[:16], "big")


def _check_counts(rows: Sequence[Mapping[str, Any]]) -> None:
    """Spec: "Manifest Lists": counts are required from version 2 on."""
    for row in rows:
        missing = [name for name in _COUNTS if row.get(name) is None]
        if missing:
            raise Refused(
                f"Cannot list manifest {row['manifest_path']}: its {', '.join(missing)} are not known",
                next_step="`upgrade-v3 --with repair-manifests` counts them.",
            )
