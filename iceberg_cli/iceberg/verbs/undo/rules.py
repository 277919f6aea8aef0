"""undo: what comes back of an expiry, and where a branch goes whose newest commits were a rewrite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from iceberg_cli.iceberg.commit.own_snapshots import OwnSnapshots
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.removed import RemovedMetadata
from iceberg_cli.iceberg.verbs.restore.rules import LEFT, Move
from iceberg_cli.iceberg.verbs.restore.target import Target
from iceberg_cli.plan.plan import Verdict
from iceberg_cli.plan.text import count, iso

_OF_EXPIRIES: Final = ("restored_snapshots_count", "restored_refs_count", "kept_refs_count")
COLUMNS: Final = (*_OF_EXPIRIES, LEFT)


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


def counts(metadata: TableMetadata, removed: RemovedMetadata) -> dict[str, int]:
    """The result columns of an expiry that comes back."""
    kept = sum(name in metadata.refs for name in removed.refs)
    back = sum(metadata.snapshot(each.snapshot_id) is None for each in removed.snapshots)
    return dict(zip(_OF_EXPIRIES, (back, len(removed.refs) - kept, kept), strict=True))


def expired_again(snapshots: int) -> Iterator[str]:
    """A warning that the next expiry takes snapshots again that come back."""
    if snapshots:
        yield (
            f"the next expiry by the same options takes these {count(snapshots, 'snapshots')} again; "
            "a tag on one keeps it"
        )


def move_back(metadata: TableMetadata, own: OwnSnapshots) -> Move:
    """The branch from the newest snapshots of an operation to the one before them; no tag is made."""
    (head, *_) = own.snapshots
    return Move(
        branch=own.branch,
        ref=metadata.refs[own.branch],
        chain=tuple(metadata.ancestors(head)),
        target=Target(own.before, f"snapshot {own.before.snapshot_id}"),
        leaving=own.snapshots,
        coming=(),
        tag="",
        tag_age_ms=0,
    )


def kept_by_a_tag(move: Move) -> str:
    """A warning that the next expiry may take what leaves a branch."""
    head = move.head.snapshot_id
    those, are, them = (
        (f"snapshot {head}", "is", "it")
        if len(move.leaving) == 1
        else (f"{count(len(move.leaving), 'snapshots')} up to {head}", "are", "them")
    )
    return (
        f"{those} {are} not on branch {move.branch} any more, so a later expiry may take {them}; a tag on {head} keeps "
        f"{them}"
    )
