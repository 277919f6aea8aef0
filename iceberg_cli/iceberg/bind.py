"""change + staged files + current base -> commit: what exists only once the base is known.

Called again on every attempt, with the staged files kept.
"""

from __future__ import annotations

from iceberg_cli.iceberg.metadata import TableMetadata
from iceberg_cli.iceberg.update import Commit, requirements_for, updates_from_json
from iceberg_cli.plan import Change


def bind(change: Change, metadata: TableMetadata, *, timestamp_ms: int, commit_uuid: str) -> Commit:
    """The commit of `change` on `metadata`.

    Args:
        change: updates in the REST specification's wire form.
        metadata: the base of this attempt.
        timestamp_ms: for `last-updated-ms`, in ms since the epoch.
        commit_uuid: drawn for this attempt; part of the new metadata file's name.

    Returns:
        Final updates and the requirements that make them safe on this base.
    """
    updates = updates_from_json(change.updates)
    return Commit(
        updates=updates,
        requirements=requirements_for(updates, metadata),
        base=metadata,
        timestamp_ms=timestamp_ms,
        commit_uuid=commit_uuid,
    )
