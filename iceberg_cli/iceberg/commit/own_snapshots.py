"""The snapshots that an operation of this program made, and whether a branch can go back to the one before them.

Spec: "Snapshots", "Snapshot References", "Row Lineage".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from iceberg_cli.iceberg.commit.draft import OPERATION_ID
from iceberg_cli.iceberg.spec.table_metadata.columns import WITH_ROW_IDS
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import BRANCH
from iceberg_cli.operation.undoing import GAVE_IDS
from iceberg_cli.plan.way_back import AT_HEAD, UndoState


class OwnSnapshots(NamedTuple):
    """The newest snapshots of a branch, all of them of one operation, and the one before them.

    Args:
        branch: its name.
        snapshots: the head first.
        before: the parent of the last of them.
    """

    branch: str
    snapshots: tuple[Snapshot, ...]
    before: Snapshot


def own_snapshots(
    metadata: TableMetadata, operation_id: str, branches: Sequence[str] | None
) -> OwnSnapshots | str:
    """The snapshots of an operation at the head of the branch that it committed to; else why there is nothing like it.

    Args:
        metadata: of the table.
        operation_id: of the operation, which its snapshots have in their summaries.
        branches: that it committed to; None: that is not known.
    """
    own = {each.snapshot_id for each in metadata.snapshots if _made_by(each, operation_id)}
    if not own:
        return "its snapshots are not in the table any more, or it made none"
    names = (
        [name for name, ref in metadata.refs.items() if ref.type == BRANCH] if branches is None else branches
    )
    heads = [name for name in names if name in metadata.refs and metadata.refs[name].snapshot_id in own]
    if not heads:
        there = next((name for name in names if name in metadata.refs), "")
        return (
            f"branch {there} has other commits since" if branches and there else "its branch has moved since"
        )
    if len(heads) > 1:
        return f"which of the branches {', '.join(sorted(heads))} it committed to is not known"
    (branch,) = heads
    head = metadata.snapshot(metadata.refs[branch].snapshot_id)
    if head is None:
        return f"the head of branch {branch} is not in the table"
    at_head = tuple(takewhile(lambda each: each.snapshot_id in own, metadata.ancestors(head)))
    before_id = at_head[-1].parent_snapshot_id
    before = None if before_id is None else metadata.snapshot(before_id)
    if before is None:
        return f"the snapshot before it, {before_id}, has expired"
    if any(each.snapshot_id in own for each in metadata.ancestors(before)):
        return f"branch {branch} has other commits between its own"
    return OwnSnapshots(branch, at_head, before)


def ids_obstacle(metadata: TableMetadata, found: OwnSnapshots) -> str | None:
    """Why rows would not keep their ids were the branch set back, as far as snapshots tell, or None.

    A snapshot that was made before version 3 has no `first-row-id`, nor have its manifests; later ones give it to each.
    What the operation's own snapshots reserved says nothing: new data files get ids that their rows do not use.
    """
    has_ids = metadata.format_version >= WITH_ROW_IDS
    return GAVE_IDS if has_ids and found.before.first_row_id is None else None


def head_state(metadata: TableMetadata, operation_id: str, branches: Sequence[str] | None) -> UndoState:
    """Whether a branch can go back to the snapshot before those of an operation; see `own_snapshots`."""
    found = own_snapshots(metadata, operation_id, branches)
    reason = found if isinstance(found, str) else ids_obstacle(metadata, found)
    return UndoState(possible=reason is None, reason=AT_HEAD if reason is None else reason)


def _made_by(snapshot: Snapshot, operation_id: str) -> bool:
    return (snapshot.summary or {}).get(OPERATION_ID) == operation_id
