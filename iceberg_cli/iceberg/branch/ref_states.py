"""Refs of a table by name, and whether those that a plan changes are still where it saw them.

Spec: "Snapshot References".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from iceberg_cli.errors import CommitConflict, UsageError
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.plan.plan import REF_NAME, SNAPSHOT_ID, Plan
from iceberg_cli.plan.text import did_you_mean

SNAPSHOT_ID_TEXT: Final = re.compile(r"-?[0-9]{1,19}")
_LISTED: Final = "`inspect TABLE refs` and `inspect TABLE snapshots` list what there is."


def snapshot_of_ref(metadata: TableMetadata, name: str) -> Snapshot:
    """The snapshot that a branch or tag points to.

    Raises:
        UsageError: the table has no such ref, or no snapshot for it.
    """
    ref = metadata.refs.get(name)
    if ref is None:
        near = did_you_mean(name, metadata.refs)
        raise UsageError(f"{name!r} is no branch or tag of this table.{near}", next_step=_LISTED)
    snapshot = metadata.snapshot(ref.snapshot_id)
    if snapshot is None:
        raise UsageError(
            f"{ref.type} {name} points to snapshot {ref.snapshot_id}, which is not in the table",
            next_step=_LISTED,
        )
    return snapshot


def snapshot_of_id(metadata: TableMetadata, snapshot_id: int) -> Snapshot:
    """The snapshot of an id.

    Raises:
        UsageError: the table has none.
    """
    snapshot = metadata.snapshot(snapshot_id)
    if snapshot is None:
        near = did_you_mean(str(snapshot_id), [str(each.snapshot_id) for each in metadata.snapshots])
        raise UsageError(f"{snapshot_id} is no snapshot of this table.{near}", next_step=_LISTED)
    return snapshot


def update_of(plan: Plan | None, name: str) -> Mapping[str, Any] | None:
    """The update of a plan that sets or drops a ref, in its wire form; None where it has none."""
    if plan is None:
        return None
    return next((update for update in plan.updates if update.get(REF_NAME) == name), None)


def check_unmoved(metadata: TableMetadata, within: Plan | None) -> None:
    """Refuse to go on with a plan of refs that others have moved, made or dropped since it was made.

    Args:
        metadata: of the table now.
        within: the plan; None: there is none, and nothing is refused.

    Raises:
        CommitConflict: a ref that the plan sets or drops does not point where the plan saw it.
    """
    if within is None:
        return
    for update in within.updates:
        name = update[REF_NAME]
        seen, ref = within.base.refs.get(name), metadata.refs.get(name)
        found = None if ref is None else ref.snapshot_id
        if found != seen:
            raise CommitConflict(
                f"Cannot {within.verb} {within.table['name']}: ref {name} was {_place(seen)} when this was planned, "
                f"and is {_place(found)} now",
                state="The table was not changed.",
                next_step="Look at what others have committed, and plan again.",
            )


def _place(snapshot_id: int | None) -> str:
    return "absent" if snapshot_id is None else f"at snapshot {snapshot_id}"


def set_ref(
    name: str,
    kind: str,
    snapshot_id: int,
    *,
    min_snapshots_to_keep: int | None = None,
    max_snapshot_age_ms: int | None = None,
    max_ref_age_ms: int | None = None,
) -> dict[str, Any]:
    """The update that makes a ref or points it elsewhere, as the REST specification's `set-snapshot-ref`.

    Args:
        name: of the ref.
        kind: branch or tag.
        snapshot_id: where it points.
        min_snapshots_to_keep: of a branch; None: not stated.
        max_snapshot_age_ms: of a branch, in ms; None: not stated.
        max_ref_age_ms: in ms; None: not stated.
    """
    retention = {
        "min-snapshots-to-keep": min_snapshots_to_keep,
        "max-snapshot-age-ms": max_snapshot_age_ms,
        "max-ref-age-ms": max_ref_age_ms,
    }
    return {
        "action": "set-snapshot-ref",
        REF_NAME: name,
        "type": kind,
        SNAPSHOT_ID: snapshot_id,
        **{key: value for key, value in retention.items() if value is not None},
    }
