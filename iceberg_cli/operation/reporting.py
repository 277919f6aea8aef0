"""The report of an operation, from its journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from iceberg_cli.operation.history import DeletionSums
from iceberg_cli.operation.journal import Journal
from iceberg_cli.operation.operation_state import StepState, committed_counts
from iceberg_cli.operation.records import CommitIntent, SweepOnly, SweepOutcome
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.removals import Removals
from iceberg_cli.plan.report import TAGGED_FILES, Report
from iceberg_cli.plan.writer_loss import loss_notes


def report_of(
    shown: Plan,
    journal: Journal,
    *,
    columns: Sequence[str],
    removals: Callable[[str], Removals],
    status: str,
    earlier: DeletionSums,
) -> Report:
    """The report of an operation as far as it has come.

    Args:
        shown: the plan it began with.
        journal: of the operation.
        columns: result columns that the report has even where they are 0.
        removals: by their file's name in the journal.
        status: see `Report`.
        earlier: what was deleted before this run.
    """
    operation = journal.operation()
    known = {} if operation is None else operation.steps
    states = [known.get(step.name, StepState()) for step in shown.steps]
    intents = [s.intent for s in states if s.intent is not None and s.outcome == "committed"]
    failed = [
        {"path": path, "reason": reason}
        for step, state in zip(shown.steps, states, strict=True)
        if state.removals_file is not None and state.failed
        for path, reason in zip(
            removals(state.removals_file).read_rows(state.failed)["path"].to_pylist(),
            _reasons(journal, step.name, state.failed),
            strict=True,
        )
    ]
    return Report(
        verb=shown.verb,
        operation_id=journal.operation_id,
        status=status,
        metadata_location=_last([state.metadata_location for state in states]),
        committed_snapshot_id=_last([added_snapshot(intent) for intent in intents]),
        committed_version=_last([added_version(intent) for intent in intents]),
        counts=_counts(columns, states, journal),
        reclaimed_bytes=sum(state.deleted_bytes for state in states),
        earlier_deleted_files=earlier.files,
        earlier_reclaimed_bytes=earlier.size_bytes,
        failed_deletes=tuple(failed),
        notes=(
            *loss_notes(shown),
            *(note for intent in intents for note in _reserved_row_ids(intent)),
            *(note for record in journal.records(SweepOnly) for note in record.notes or ()),
        ),
    )


def _reasons(journal: Journal, step: str, rows: Sequence[int]) -> list[str]:
    """Why the file of each row is still there; several reasons where files that were tried together had several."""
    reason_of_row: dict[int, str] = {}
    for record in journal.records(SweepOutcome):
        if record.step == step:
            reason_of_row |= dict.fromkeys(record.failed, "; or ".join(record.reasons))
    return [reason_of_row[row] for row in rows]


def _last(values: Sequence[Any]) -> Any:
    return next((value for value in reversed(values) if value is not None), None)


def _counts(columns: Sequence[str], states: Sequence[StepState], journal: Journal) -> dict[str, int]:
    """Counts of the commits, of files that steps without a commit wrote, and of those that sweeps deleted."""
    counts = dict.fromkeys(columns, 0)
    outcomes = journal.records(SweepOutcome)
    swept = [
        {f"deleted_{kind}s_count": count for kind, count in record.by_kind.items()} for record in outcomes
    ]
    swept += [{TAGGED_FILES: record.tagged} for record in outcomes if record.tagged]
    uncommitted = [part for record in journal.records(SweepOnly) for part in record.counts or ()]
    for part in [committed_counts(states), *uncommitted, *swept]:
        for column, count in part.items():
            counts[column] = counts.get(column, 0) + count
    return counts


def _added(intent: CommitIntent) -> Mapping[str, Any]:
    """The snapshot that a commit adds, in its wire form; empty if none."""
    added = [update["snapshot"] for update in intent.updates if update["action"] == "add-snapshot"]
    return added[-1] if added else {}


def added_snapshot(intent: CommitIntent) -> int | None:
    """The id of the snapshot that a commit adds, of an Iceberg table."""
    snapshot_id: int | None = _added(intent).get("snapshot-id")
    return snapshot_id


def added_version(intent: CommitIntent) -> int | None:
    """The version of a Delta table that a commit made."""
    versions = [update["version"] for update in intent.updates if update["action"] == "delta-commit"]
    return versions[-1] if versions else None


def _reserved_row_ids(intent: CommitIntent) -> list[str]:
    """A note on the row ids that a commit reserved; empty if none."""
    snapshot = _added(intent)
    rows = snapshot.get("added-rows") or 0
    if not rows:
        return []
    branches = [u["ref-name"] for u in intent.updates if u["action"] == "set-snapshot-ref"]
    first = snapshot["first-row-id"]
    free = first + rows
    where = f"Row ids {first} to {free - 1} were reserved on {', '.join(branches)}"
    return [f"{where}: next-row-id was {first} and is {free}."]
