"""What can be taken back of an operation, by its journal's state, and what a plan says that comes back."""

from __future__ import annotations

from typing import Any

import pytest

from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.removed import RemovedMetadata
from iceberg_cli.iceberg.verbs.undo import rules
from iceberg_cli.operation.operation_state import Operation, StepState
from iceberg_cli.operation.records import CommitIntent, LookAgain
from iceberg_cli.operation.undoing import committed_steps, waiting_obstacle
from tests.builders import DAY_MS, LOCATION, NOW_MS, a_branch, a_snapshot, a_table_document, a_tag

SENT = CommitIntent(
    step="expire",
    base_location="v1",
    metadata_location="v2",
    digest="d",
    timestamp_ms=NOW_MS,
    commit_uuid="u",
    updates=(),
    counts={},
    removals_file=None,
    grace_ms=DAY_MS,
    scratch=(),
    own_files=(),
)
COMMITTED: dict[str, Any] = {"intent": SENT, "outcome": "committed", "metadata_location": "v2"}
WAITING = StepState(**COMMITTED, sweep_after_ms=NOW_MS)


def of_steps(*states: StepState, **values: Any) -> Operation:
    return Operation(
        operation_id="o",
        verb="expire-snapshots",
        table_uuid="t",
        started_ms=NOW_MS,
        plan_digest="p",
        host="h",
        process_id=1,
        process_started="",
        steps={f"step {number}": state for number, state in enumerate(states)},
        **values,
    )


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (of_steps(WAITING), None),
        # A step without a commit that waits, and one beside it that is done.
        (of_steps(StepState(sweep_after_ms=NOW_MS)), None),
        (of_steps(StepState(**COMMITTED, done=True), WAITING), None),
        (of_steps(WAITING, StepState(**COMMITTED, done=True)), None),
        # Without an intent nothing was sent: nothing has an unknown outcome.
        (of_steps(WAITING, StepState()), None),
        (of_steps(StepState(intent=SENT)), "its commit has no known outcome"),
        (of_steps(StepState(intent=SENT, outcome="unknown"), WAITING), "its commit has no known outcome"),
        (of_steps(WAITING, StepState(intent=SENT, outcome="unknown")), "its commit has no known outcome"),
        (of_steps(StepState(**COMMITTED, sweep_after_ms=NOW_MS, swept=((0, 1),))), "deleted already"),
        (of_steps(WAITING, StepState(**COMMITTED, swept=((0, 1),))), "deleted already"),
        (of_steps(StepState(**COMMITTED)), "none of its files waits"),
        (of_steps(StepState(**COMMITTED, sweep_after_ms=NOW_MS, done=True)), "none of its files waits"),
        (of_steps(), "none of its files waits"),
        (of_steps(WAITING, look_again=LookAgain(status="done", at_ms=NOW_MS)), "it is done"),
    ],
)
def test_an_operation_can_be_taken_back_while_its_files_wait_and_none_is_gone(
    operation: Operation, reason: str | None
) -> None:
    found = waiting_obstacle(operation)
    assert (found is None) == (reason is None)
    assert (reason or "") in (found or "")


def test_only_what_was_committed_comes_back() -> None:
    before = StepState(intent=SENT, outcome="conflict")
    assert committed_steps(of_steps(before, WAITING, StepState(sweep_after_ms=NOW_MS))) == [WAITING]


def test_each_snapshot_that_comes_back_is_a_verdict_and_so_is_each_ref() -> None:
    """Snapshot 2 and the tag `eom` are there again: somebody made them, and they stay as they are."""
    before = a_table_document(
        *(a_snapshot(number, age_ms=(5 - number) * DAY_MS) for number in (1, 2, 3)),
        refs={"eom": a_tag(1), "audit": a_branch(2), "eoy": a_tag(1)},
    )
    whole = TableMetadata.from_json(before, path=LOCATION)
    removed = RemovedMetadata(
        snapshots=whole.snapshots[:2], refs={name: whole.refs[name] for name in ("eom", "audit", "eoy")}
    )
    now = TableMetadata.from_json(
        {**before, "snapshots": before["snapshots"][1:], "refs": {"main": a_branch(3), "eom": a_tag(2)}},
        path=LOCATION,
    )
    found = [(each.subject, each.id, each.keep, each.reason) for each in rules.returning(now, removed)]
    assert found == [
        ("snapshot", "1", True, "comes back, of 2027-01-11T08:00:00.000Z"),
        ("tag", "eom", True, "stays as it is now: it was made again"),
        ("branch", "audit", True, "comes back"),
        ("tag", "eoy", True, "comes back"),
    ]
    assert rules.counts(now, removed) == {
        "restored_snapshots_count": 1,
        "restored_refs_count": 2,
        "kept_refs_count": 1,
    }
