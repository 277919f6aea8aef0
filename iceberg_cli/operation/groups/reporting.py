"""The report of an operation of many commits, from its journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from iceberg_cli.operation.groups.states import folded, groups_of
from iceberg_cli.operation.operation_state import committed_counts
from iceberg_cli.operation.reporting import added_snapshot, added_version
from iceberg_cli.operation.undoing import undo_state
from iceberg_cli.plan.report import Report
from iceberg_cli.plan.text import count

if TYPE_CHECKING:
    from iceberg_cli.operation.groups.ports import GroupVerb
    from iceberg_cli.operation.journal import Journal
    from iceberg_cli.operation.records import CommitIntent
    from iceberg_cli.plan.column_reads import ReadsBeforeAndAfter
    from iceberg_cli.plan.plan import Plan

CONFLICTED: Final = "conflicted_groups_count"
FAILED: Final = "failed_groups_count"
_FAILED_FILES: Final = "failed_data_files_count"
_LOST_DELETES: Final = "lost_deletes_count"
GROUP_COLUMNS: Final = (CONFLICTED, FAILED, _FAILED_FILES, _LOST_DELETES)
_SHOWN_LOST: Final = 20  # deletes; the others are counted


def report_of_groups(
    shown: Plan,
    journal: Journal,
    verb: GroupVerb,
    *,
    status: str,
    notes: Sequence[str],
    vouchers: Sequence[str],
    lost_deletes: Sequence[str],
    reads: tuple[ReadsBeforeAndAfter, ...],
    duration_ms: int,
) -> Report:
    """The report of an operation as far as it has come.

    Args:
        shown: the plan it began with.
        journal: of the operation.
        verb: of the plan.
        status: see `Report`.
        notes: what was noticed.
        vouchers: what the operator vouched for, which comes last.
        lost_deletes: see `Batch`.
        reads: see `Report`.
        duration_ms: of this run.
    """
    groups = shown.groups
    assert groups is not None
    states = groups_of(journal)
    steps = [state for state in folded(journal).steps.values() if state.outcome == "committed"]
    intents = [state.intent for state in steps if state.intent is not None]
    committed = committed_counts(steps)
    counts = {column: committed[column] for column in verb.result_columns}
    counts[FAILED] = len(states.broken)
    counts[_FAILED_FILES] = len(groups.inputs_of([*states.broken]))
    counts[_LOST_DELETES] = len(lost_deletes)
    every_note = [*notes, *lost_deletes[:_SHOWN_LOST]]
    if len(lost_deletes) > _SHOWN_LOST:
        every_note.append(f"And {len(lost_deletes) - _SHOWN_LOST:,} more lost deletes.")
    counts[CONFLICTED] = len(states.dropped.keys() - states.broken - states.left_out - states.committed)
    if states.left_out:
        reason = states.dropped[min(states.left_out)]
        every_note.append(f"{count(len(states.left_out), 'groups')} left as they are: {reason}.")
    partitions = groups.rows["partition"]
    failed = (
        *groups.broken_files(),
        *(
            {
                "group": str(number),
                "partition": partitions[number].as_py(),
                "reason": states.dropped[number],
            }
            for number in sorted(states.broken)
        ),
    )
    return Report(
        verb=shown.verb,
        operation_id=journal.operation_id,
        status=status,
        metadata_location=next((each.metadata_location for each in reversed(steps)), None),
        committed_snapshot_id=next((added_snapshot(each) for each in reversed(intents)), None),
        counts=counts,
        committed_version=next((added_version(each) for each in reversed(intents)), None),
        commits=tuple({**_made_by(each), "groups": len(each.groups or ())} for each in intents),
        failed_groups=failed,
        verified=verb.compares_rows(shown),
        reads=reads,
        undo=undo_state(folded(journal), verb.policy.place.undo),
        notes=(*every_note, *vouchers),
        duration_ms=duration_ms,
    )


def _made_by(intent: CommitIntent) -> dict[str, int | None]:
    """What a commit made of the table: a version of a Delta table, else a snapshot."""
    version = added_version(intent)
    return {"snapshot_id": added_snapshot(intent)} if version is None else {"version": version}
