"""undo of a rewrite whose snapshot is the head of a branch still: the branch goes back to the parent.

The parent has the same rows, and a rewrite deletes no file that a snapshot names. Spec: "Snapshot References", "Row
Lineage".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from iceberg_cli.errors import Refused
from iceberg_cli.iceberg.branch.ref_states import check_unmoved, set_ref
from iceberg_cli.iceberg.commit.draft import OPERATION_ID
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import BRANCH, Snapshot, SnapshotRef
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.iceberg.verbs.restore.plan import looked_for
from iceberg_cli.iceberg.verbs.undo.rules import counts_of_refs
from iceberg_cli.operation.history import UNDONE, PastOperation
from iceberg_cli.plan.plan import REF_NAME, SNAPSHOT_ID, Change, Plan, Step, Verdict
from iceberg_cli.plan.text import count
from iceberg_cli.table.undoing import instead_of_undo, why_it_stays


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """A branch at a snapshot of an operation, which its name, its ref and the snapshot say."""

    branch: str
    ref: SnapshotRef
    snapshot: Snapshot

    def back(self) -> dict[str, Any]:
        """The update that has the branch go back; its retention stays."""
        return set_ref(
            self.branch,
            BRANCH,
            self.snapshot.parent_snapshot_id or 0,
            min_snapshots_to_keep=self.ref.min_snapshots_to_keep,
            max_snapshot_age_ms=self.ref.max_snapshot_age_ms,
            max_ref_age_ms=self.ref.max_ref_age_ms,
        )

    def verdict(self) -> Verdict:
        """What becomes of the branch."""
        own, parent = self.snapshot.snapshot_id, self.snapshot.parent_snapshot_id
        return Verdict(
            subject=BRANCH,
            id=self.branch,
            keep=False,
            reason=f"from snapshot {own} to its parent {parent}, which has the same rows",
            timestamp_ms=self.snapshot.timestamp_ms,
            gist=f"to the parent, snapshot {parent}",
        )


def taken_back(
    table: IcebergTable, past: PastOperation, plan: Plan, *, by: str | None, within: Plan | None
) -> Plan:
    """The plan that takes back an operation which is over.

    Args:
        table: as loaded last.
        past: the operation.
        plan: of one step, without a change.
        by: the id of the operation that has taken it back; None: none has.
        within: the plan that this one takes the place of.

    Returns:
        One of no step where the branches are there already; one that is blocked where it cannot be taken back.

    Raises:
        CommitConflict: a branch has moved since `within`.
        CorruptFile: a list or manifest of a parent cannot be read whole.
    """
    metadata = table.metadata
    if within is not None and within.steps:
        if _is_done(metadata, within):
            return replace(plan, steps=(), reason=None, not_applicable="the branches are back already")
        check_unmoved(metadata, within)
    heads = [*_heads(metadata, past.operation_id)]
    if (reason := _why_not(metadata, past, heads, by=by)) is None:
        reason = next(_obstacles(table, heads), None)
    if reason is not None:
        blocked = f"operation {past.operation_id}, {past.operation}, cannot be taken back: {reason}"
        return replace(plan, blocked_by=(blocked,))
    (step,) = plan.steps
    change = Change(updates=tuple(each.back() for each in heads), counts=counts_of_refs(len(heads)))
    return table.resolve(
        replace(
            plan,
            removals=None,
            steps=(Step(name=step.name, change=change),),
            verdicts=tuple(each.verdict() for each in heads),
            warnings=tuple(
                f"the next expiry takes snapshot {each.snapshot.snapshot_id} once it is older than the cut-off; "
                "a tag on it keeps it"
                for each in heads
            ),
        )
    )


def is_of_rewrite(plan: Plan) -> bool:
    """Whether a plan has branches go back, and takes nothing from a journal."""
    return any(REF_NAME in update for update in plan.updates)


def check_parents(table: IcebergTable, operation_id: str) -> None:
    """Look for every file of the parents again.

    Raises:
        Refused: one is gone. CorruptFile: as `taken_back`.
    """
    for reason in _obstacles(table, [*_heads(table.metadata, operation_id)]):
        raise Refused(f"Cannot undo: {reason}", state="The table was not changed.")


def _heads(metadata: TableMetadata, operation_id: str) -> Iterator[_Head]:
    for name, ref in sorted(metadata.refs.items()):
        head = metadata.snapshot(ref.snapshot_id)
        if ref.type == BRANCH and head is not None and _is_of(head, operation_id):
            yield _Head(branch=name, ref=ref, snapshot=head)


def _is_of(snapshot: Snapshot, operation_id: str) -> bool:
    return (snapshot.summary or {}).get(OPERATION_ID) == operation_id


def _is_done(metadata: TableMetadata, within: Plan) -> bool:
    """Whether every branch is where a plan has it go."""
    return all(
        update[REF_NAME] in metadata.refs
        and metadata.refs[update[REF_NAME]].snapshot_id == update[SNAPSHOT_ID]
        for update in within.updates
    )


def _why_not(
    metadata: TableMetadata, past: PastOperation, heads: Sequence[_Head], *, by: str | None
) -> str | None:
    """Why an operation that is over stays, as metadata and history say; None: it can be taken back."""
    place = VERBS.policy(past.operation).place if past.operation in VERBS else None
    if by is not None or past.status == UNDONE or place is None or not place.undone_by_parent:
        return why_it_stays(past, place, by=by)
    instead = instead_of_undo(place)
    if not heads:
        return f"no branch is at its snapshot any more{instead}"
    made = sum(_is_of(each, past.operation_id) for each in metadata.snapshots)
    if made > len({each.snapshot.snapshot_id for each in heads}):
        return f"it made {count(made, 'snapshots')}, and others came after some of them{instead}"
    return None


def _obstacles(table: IcebergTable, heads: Sequence[_Head]) -> Iterator[str]:
    """What of the parents is gone, or would be otherwise than it was."""
    for each in heads:
        parent = table.metadata.snapshot(each.snapshot.parent_snapshot_id or 0)
        if parent is None:
            yield f"the parent of snapshot {each.snapshot.snapshot_id} is not there any more"
            continue
        gone, ids = looked_for(table, parent)
        if gone:
            yield f"{count(len(gone), 'files')} of snapshot {parent.snapshot_id} are not there, such as {gone[0]}"
        yield from ids
