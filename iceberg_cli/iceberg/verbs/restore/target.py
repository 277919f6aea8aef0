"""The snapshot that a word of the command line names, as the state that a branch is set back to. Nothing is read here.

Spec: "Snapshots", "Snapshot References"; of a time Iceberg's own `rollback_to_timestamp` takes the newest ancestor that
is older.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.branch.ref_states import SNAPSHOT_ID_TEXT, snapshot_of_ref
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import MAIN
from iceberg_cli.plan.text import did_you_mean, iso, time_ms

_TO = "--to"


class Target(NamedTuple):
    """A snapshot as it was named.

    Args:
        snapshot: the state.
        named: how the word names it: "snapshot 31", "tag audit, snapshot 31".
        warning: what the operator should know of that, or "".
    """

    snapshot: Snapshot
    named: str
    warning: str = ""


def target_of(
    metadata: TableMetadata, text: str, chain: Sequence[Snapshot], *, branch: str, now_ms: int
) -> Target:
    """The snapshot that a word names: by its id, by a branch or tag, or by a time, in this order.

    Args:
        metadata: of the table.
        text: the word.
        chain: the snapshots of the branch, its head first.
        branch: its name.
        now_ms: the time from which durations count back, in ms since the epoch.

    Raises:
        UsageError: it names none.
    """
    if SNAPSHOT_ID_TEXT.fullmatch(text) and (found := metadata.snapshot(int(text))) is not None:
        return Target(found, f"snapshot {found.snapshot_id}")
    if text in metadata.refs:
        found = snapshot_of_ref(metadata, text)
        return Target(found, f"{metadata.refs[text].type} {text}, snapshot {found.snapshot_id}")
    try:
        at_ms = time_ms(text, _TO, now_ms=now_ms)
    except UsageError as error:
        if "future" in error.message and not SNAPSHOT_ID_TEXT.fullmatch(text):
            raise
        ids = [str(each.snapshot_id) for each in metadata.snapshots]
        near = did_you_mean(text, [*metadata.refs, *ids])
        raise UsageError(
            f"{_TO}: {text!r} is no snapshot id, branch, tag or time of this table.{near}",
            next_step="`inspect TABLE snapshots` and `inspect TABLE refs` list what there is; a time is ISO 8601 with "
            "a zone, epoch milliseconds, or a duration ago such as 2h.",
        ) from None
    return _at(metadata, at_ms, chain, branch)


def _at(metadata: TableMetadata, at_ms: int, chain: Sequence[Snapshot], branch: str) -> Target:
    """The newest snapshot of a branch that was made at a time or before it."""
    found = next((each for each in chain if each.timestamp_ms <= at_ms), None)
    if found is None:
        oldest = chain[-1]
        raise UsageError(
            f"{_TO}: branch {branch} has no snapshot of {iso(at_ms)} or before; its oldest one that is still there, "
            f"{oldest.snapshot_id}, is of {iso(oldest.timestamp_ms)}",
            next_step="`inspect TABLE snapshots` lists what there is.",
        )
    return Target(
        found,
        f"snapshot {found.snapshot_id} of {iso(found.timestamp_ms)}, the newest of branch {branch} at {iso(at_ms)}",
        _other_then(metadata, at_ms, found) if branch == MAIN else "",
    )


def _other_then(metadata: TableMetadata, at_ms: int, found: Snapshot) -> str:
    """That main was at another snapshot at a time, as its log has it, or "": it was set back since."""
    entries = [entry for entry in metadata.snapshot_log if entry.timestamp_ms <= at_ms]
    if not entries or entries[-1].snapshot_id == found.snapshot_id:
        return ""
    logged = entries[-1].snapshot_id
    if metadata.snapshot(logged) is None:
        return ""
    return (
        f"at {iso(at_ms)} main was at snapshot {logged}, as the snapshot log has it; main has left it since, and "
        f"{found.snapshot_id} is the newest snapshot that main still comes from. `--to {logged} --not-an-ancestor` "
        "goes to that one"
    )
