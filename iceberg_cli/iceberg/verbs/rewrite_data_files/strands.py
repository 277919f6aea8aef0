"""What could not be published any more once a branch has another head: audit branches and staged snapshots.

An audit branch is ahead of the branch that it is to become; a staged snapshot (`wap.id`) is no ref's yet. Both are
published by fast-forwarding, or by picking what they add; a rewrite in between leaves only the latter, for appends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import BRANCH

_STAGED: Final = "wap.id"
_PUBLISHED: Final = "published-wap-id"
_PICKED: Final = ("append",)  # operations of snapshots that can be picked onto another head


def stranded(metadata: TableMetadata, ref: str) -> tuple[str, ...]:
    """What a new snapshot on a branch would leave unpublished, in words."""
    head = metadata.refs[ref].snapshot_id
    published = {_summary(each).get(_PUBLISHED) for each in metadata.snapshots}
    reached = {
        snapshot_id
        for each in metadata.refs.values()
        for snapshot_id in _ancestors(metadata, each.snapshot_id)
    }
    found = [
        f"branch {name} is ahead of {ref}, which could not be fast-forwarded to it any more"
        for name, other in sorted(metadata.refs.items())
        if name != ref
        and other.type == BRANCH
        and other.snapshot_id != head
        and head in _ancestors(metadata, other.snapshot_id)
    ]
    for each in metadata.snapshots:
        staged = _summary(each).get(_STAGED)
        is_picked = _summary(each).get("operation") in _PICKED
        is_open = staged is not None and staged not in published and each.snapshot_id not in reached
        if is_open and not is_picked and each.parent_snapshot_id == head:
            found.append(
                f"snapshot {each.snapshot_id} is staged on {ref} (wap.id {staged}), and could not be published any more"
            )
    return tuple(found)


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary or {}


def _ancestors(metadata: TableMetadata, snapshot_id: int) -> Iterator[int]:
    """A snapshot and those before it, as far as they are there."""
    seen: set[int] = set()
    found = metadata.snapshot(snapshot_id)
    while found is not None and found.snapshot_id not in seen:
        seen.add(found.snapshot_id)
        yield found.snapshot_id
        found = None if found.parent_snapshot_id is None else metadata.snapshot(found.parent_snapshot_id)
