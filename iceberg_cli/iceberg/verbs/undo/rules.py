"""undo: whether an operation can be taken back, and what comes back of an expiry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.removed import RemovedMetadata
from iceberg_cli.operation.operation_state import Operation, StepState
from iceberg_cli.plan.plan import Verdict
from iceberg_cli.plan.text import iso

COLUMNS: Final = ("restored_snapshots_count", "restored_refs_count", "kept_refs_count")


def committed(operation: Operation) -> list[StepState]:
    """The steps of an operation that have committed something."""
    return [state for state in operation.steps.values() if state.metadata_location is not None]


def returning(metadata: TableMetadata, removed: RemovedMetadata) -> Iterator[Verdict]:
    """What comes back to a table, and the refs that stay as they are now."""
    for snapshot in removed.snapshots:
        if metadata.snapshot(snapshot.snapshot_id) is None:
            yield Verdict(
                subject="snapshot",
                id=str(snapshot.snapshot_id),
                keep=True,
                reason=f"comes back, of {iso(snapshot.timestamp_ms)}",
                timestamp_ms=snapshot.timestamp_ms,
                gist="comes back",
            )
    for name, ref in removed.refs.items():
        is_there = name in metadata.refs
        reason = "stays as it is now: it was made again" if is_there else "comes back"
        yield Verdict(subject=ref.type, id=name, keep=True, reason=reason)


def counts_of_refs(number: int) -> dict[str, int]:
    """The result columns where so many branches go back, and nothing else."""
    return dict(zip(COLUMNS, (0, number, 0), strict=True))


def counts(metadata: TableMetadata, removed: RemovedMetadata) -> dict[str, int]:
    """The result columns."""
    kept = sum(name in metadata.refs for name in removed.refs)
    back = sum(metadata.snapshot(each.snapshot_id) is None for each in removed.snapshots)
    return dict(zip(COLUMNS, (back, len(removed.refs) - kept, kept), strict=True))
