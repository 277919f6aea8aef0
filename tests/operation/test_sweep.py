"""A sweep: what is asked for, what is recorded, and where it stops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa
import pytest

from iceberg_cli.errors import (
    BackendUnavailable,
    CorruptFile,
    DeletesFailed,
    IcebergCliError,
    Interrupted,
    Refused,
)
from iceberg_cli.operation.journal import Journal
from iceberg_cli.operation.operation_state import StepState
from iceberg_cli.operation.runtime import DeletionAllowance, Runtime
from iceberg_cli.operation.sweep import Sweep
from iceberg_cli.paths import folder_column
from iceberg_cli.plan.events import AnyEvent, Event, FilesDeleted
from iceberg_cli.plan.plan import Plan, TaggedFiles
from iceberg_cli.plan.removals import Removals
from iceberg_cli.testing.memory_storage import MemoryStorage
from tests.journals import BEGIN, append, bodies, outcome
from tests.plans import a_plan, a_removal, removals_of

NOW_MS = 1_000_000
FIRST = 2  # row of the step `main`; those before are another step's


@dataclass
class SweptTable:
    """The table port and its workspace, as far as a sweep needs it."""

    stuck: dict[int, str] = field(default_factory=dict)  # rows that do not go, with the reason
    live: set[int] = field(default_factory=set)
    error: tuple[int, IcebergCliError] | None = None  # from a row on
    asked: list[list[int]] = field(default_factory=list)  # rows of each deletion
    tags: bool = False  # and deletes nothing
    other: bool = False  # whether another operation keeps all files

    @property
    def workspace(self) -> Self:
        return self

    def open_operations(self) -> list[str]:
        return ["op", "other"] if self.other else ["op"]

    def journal(self, operation_id: str) -> Journal:
        journal = Journal.create(MemoryStorage(), "/t", operation_id)
        append(journal, "begin", BEGIN)
        append(journal, *outcome(withheld="a tag went with it"))
        return journal

    def unreachable(self, _removals: Removals, rows: Sequence[int], *, plan: Plan) -> list[int]:
        assert plan.verb == "expire-snapshots"
        if self.error and rows[-1] >= self.error[0]:
            raise self.error[1]
        return [row for row in rows if row not in self.live]

    def tagged_in(self, paths: pa.ChunkedArray) -> Sequence[str]:
        assert set(folder_column(paths).to_pylist()) <= {"/t"}
        return ["/t"] if self.tags else []

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        rows = [int(path.removeprefix("/t/f")) for path in paths]
        self.asked.append(rows)
        return {path: self.stuck[row] for path, row in zip(paths, rows, strict=True) if row in self.stuck}


def some_removals(files: int) -> Removals:
    """`files` of the step `main` from row 2 on, and 2 of the step `a`; row n has n bytes."""
    steps = ["a"] * FIRST + ["main"] * files
    return removals_of(
        *(a_removal(f"/t/f{row:02}", step=step, size_bytes=row) for row, step in enumerate(steps))
    )


def a_sweep(files: int = 5, *, on: SweptTable | None = None, **limits: Any) -> Any:
    """A sweep of `some_removals`. `Any`: the tests reach through to the double behind its port."""
    journal = Journal.create(MemoryStorage(), "/t", "op")
    append(journal, "begin", BEGIN)
    append(journal, "sweep-only", {"step": "main", "removals_file": "r", "sweep_after_ms": None})
    table: Any = on or SweptTable()
    runtime = Runtime(
        now_ms=lambda: NOW_MS,
        new_uuid=lambda: "u",
        sleep_ms=lambda _: None,
        on_event=lambda _: None,
        host="h",
        process_id=1,
        **{"sweep_batch": 2, "quick_batch_ms": 0, **limits},
    )
    return Sweep(
        step="main",
        plan=a_plan(),
        removals=some_removals(files),
        table=table,
        runtime=runtime,
        journal=journal,
    )


def state_of(sweep: Any) -> Any:
    return sweep.journal.operation().steps["main"]


def test_files_go_in_batches_each_between_its_two_records() -> None:
    events: list[AnyEvent] = []
    sweep = a_sweep()
    sweep.runtime.on_event = events.append
    assert sweep.run(StepState())
    assert sweep.table.asked == [[2, 3], [4, 5], [6]]
    ranges = [{"step": "main", "start": 2, "stop": 4}, {"step": "main", "start": 4, "stop": 6}]
    ranges.append({"step": "main", "start": 6, "stop": 7})
    assert bodies(sweep.journal, "sweep-intent") == ranges
    assert bodies(sweep.journal, "sweep-outcome") == [
        {**asked, "by_kind": {"data_file": count}, "bytes": size, "failed": [], "reasons": []}
        for asked, count, size in zip(ranges, [2, 2, 1], [5, 9, 6], strict=True)
    ]
    progress = [(event.done, event.total) for event in events if isinstance(event, Event)]
    assert progress == [(0, 5), (2, 5), (4, 5), (5, 5)]
    assert [event.by_kind for event in events if isinstance(event, FilesDeleted)] == [
        {"data_file": (2, 5)},
        {"data_file": (2, 9)},
        {"data_file": (1, 6)},
    ]
    assert (sweep.kept_again, sweep.note, sweep.runtime.deletes_left) == (0, "", -1)


def test_quick_batches_are_followed_by_ones_of_twice_as_many() -> None:
    sweep = a_sweep(8, sweep_batch=1, quick_batch_ms=1)
    assert sweep.run(StepState())
    assert [len(rows) for rows in sweep.table.asked] == [1, 2, 4, 1]


@pytest.mark.parametrize(
    ("swept", "expected"),
    [
        ([(2, 5)], [[5, 6], [7]]),
        ([(7, 8)], [[2, 3], [4, 5], [6]]),
        ([(5, 6)], [[2, 3], [4], [6, 7]]),
        ([(6, 7), (3, 5), (3, 4)], [[2], [5], [7]]),
        ([(3, 6), (4, 5)], [[2], [6, 7]]),
        ([(2, 4), (4, 8)], []),
    ],
)
def test_rows_that_were_swept_are_not_again(swept: list[tuple[int, int]], expected: list[list[int]]) -> None:
    sweep = a_sweep(6)
    assert sweep.run(StepState(swept=tuple(swept)))
    assert sweep.table.asked == expected


def test_what_the_table_reaches_again_stays() -> None:
    sweep = a_sweep(on=SweptTable(live={3, 6}))
    assert sweep.run(StepState())
    assert [row for rows in sweep.table.asked for row in rows] == [2, 4, 5]
    assert sweep.kept_again == 2
    assert [body["bytes"] for body in bodies(sweep.journal, "sweep-outcome")] == [2, 9, 0]


def test_what_fails_is_recorded_and_tried_again_before_the_rest() -> None:
    sweep = a_sweep(limit_deletes=4, on=SweptTable(stuck={2: "denied", 5: "busy"}))
    assert not sweep.run(StepState())
    first, second = bodies(sweep.journal, "sweep-outcome")
    assert (first["failed"], first["reasons"], first["bytes"]) == ([2], ["denied"], 3)
    assert (second["failed"], second["by_kind"], second["bytes"]) == ([5], {"data_file": 1}, 4)
    sweep.table.stuck = {}
    sweep.runtime.deletes_left = -1
    sweep.table.asked = []
    assert sweep.run(state_of(sweep))
    assert sweep.table.asked == [[2, 5], [6]]
    assert bodies(sweep.journal, "sweep-intent")[-2:] == [
        {"step": "main", "rows": [2, 5]},
        {"step": "main", "start": 6, "stop": 7},
    ]


def test_a_failure_leaves_the_step_unfinished() -> None:
    sweep = a_sweep(on=SweptTable(stuck={6: "denied"}))
    assert not sweep.run(StepState())
    assert sweep.note == ""
    assert sweep.failed()


def test_a_record_keeps_five_reasons() -> None:
    sweep = a_sweep(7, sweep_batch=7, on=SweptTable(stuck=dict(zip(range(2, 9), "gfedcba", strict=True))))
    assert not sweep.run(StepState())
    assert bodies(sweep.journal, "sweep-outcome")[0]["reasons"] == list("abcde")


def test_an_event_counts_what_was_kept_with_its_bytes() -> None:
    events: list[AnyEvent] = []
    sweep = a_sweep(on=SweptTable(live={3, 6}))
    sweep.runtime.on_event = events.append
    assert sweep.run(StepState())
    kept = [(event.kept, event.kept_bytes) for event in events if isinstance(event, FilesDeleted)]
    assert kept == [(1, 3), (0, 0), (1, 6)]


# -- where it stops --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "expected", "all_done"),
    [(0, [], False), (1, [[2]], False), (3, [[2, 3], [4]], False), (5, [[2, 3], [4, 5], [6]], True)],
)
def test_a_limit_is_kept_exactly(limit: int, expected: list[list[int]], *, all_done: bool) -> None:
    sweep = a_sweep(limit_deletes=limit)
    assert sweep.run(StepState()) is all_done
    assert sweep.table.asked == expected
    assert sweep.runtime.deletes_left == 0
    assert bool(sweep.note) is not all_done


def test_nothing_goes_after_the_deadline_or_a_signal() -> None:
    late = a_sweep(deadline_ms=NOW_MS)
    assert not late.run(StepState())
    assert late.note
    stopped = a_sweep(stop_requested=lambda: True)
    with pytest.raises(Interrupted):
        stopped.run(StepState())
    assert late.table.asked == stopped.table.asked == []


@pytest.mark.parametrize(
    ("error", "way_out"),
    [(CorruptFile("m0", None, "cut"), True), (BackendUnavailable("Cannot read m0: no answer"), False)],
)
def test_a_table_that_cannot_be_read_any_more_ends_it(error: IcebergCliError, *, way_out: bool) -> None:
    sweep = a_sweep(on=SweptTable(error=(4, error)))
    with pytest.raises(DeletesFailed) as caught:
        sweep.run(StepState())
    assert sweep.table.asked == [[2, 3]]
    assert (caught.value.state or "").endswith("still there: 3.")
    assert ("--abandon" in (caught.value.next_step or "")) is way_out


# -- failing as before -----------------------------------------------------------------------------------------


def failed_before(**limits: Any) -> Any:
    """Rows 3 and 5 could not be deleted by a run without limits."""
    first = a_sweep(on=SweptTable(stuck={3: "denied", 5: "busy"}))
    assert not first.run(StepState())
    first.table.asked = []
    return replace(a_sweep(on=first.table, **limits), journal=first.journal)


@pytest.mark.parametrize("limits", [{}, {"limit_deletes": 2}])
def test_the_same_files_for_the_same_reasons_add_no_record(limits: dict[str, int]) -> None:
    sweep = failed_before(**limits)
    records = sweep.journal.next_number
    assert sweep.fails_as_before(state_of(sweep))
    assert sweep.table.asked == [[3, 5]]
    assert sweep.journal.next_number == records


@pytest.mark.parametrize("stuck", [{}, {5: "busy"}, {3: "denied", 5: "another"}, {3: "denied", 5: "of a"}])
def test_a_file_that_goes_now_or_stays_for_another_reason_is_for_the_record(stuck: dict[int, str]) -> None:
    sweep = failed_before()
    other_step = {"step": "a", "start": 0, "stop": 2, "by_kind": {}, "bytes": 0, "failed": [0]}
    append(sweep.journal, "sweep-outcome", {**other_step, "reasons": ["of a"]})
    sweep.table.stuck = stuck
    assert not sweep.fails_as_before(state_of(sweep))
    assert sweep.table.asked == [[3, 5]]


@pytest.mark.parametrize(
    "limits",
    [{"limit_deletes": 0}, {"limit_deletes": 1}, {"deadline_ms": NOW_MS}, {"stop_requested": lambda: True}],
)
def test_within_limits_that_do_not_suffice_nothing_is_tried(limits: dict[str, Any]) -> None:
    sweep = failed_before(**limits)
    assert not sweep.fails_as_before(state_of(sweep))
    assert sweep.table.asked == []


def test_a_step_with_rows_to_sweep_or_without_failures_does_not_fail_as_before() -> None:
    sweep = failed_before()
    assert not sweep.fails_as_before(StepState(swept=((2, 6),), failed=(3, 5)))
    assert not sweep.fails_as_before(StepState(swept=((2, 7),)))
    assert sweep.table.asked == []


# What other runs and other operations have a say in


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"files": 3}, [[2, 3], [4]]),
        ({"files": 9}, [[2, 3], [4, 5], [6]]),
        ({"size_bytes": 9}, [[2, 3], [4]]),
        ({"size_bytes": 13}, [[2, 3], [4]]),
        ({"size_bytes": 14}, [[2, 3], [4, 5]]),
    ],
)
def test_no_more_goes_than_is_left_for_all_runs(limits: dict[str, int], expected: list[list[int]]) -> None:
    sweep = a_sweep(allowance=DeletionAllowance(**limits))
    assert sweep.run(StepState()) is (expected[-1] == [6])
    assert sweep.table.asked == expected


def test_what_stays_is_given_back_to_all_runs() -> None:
    allowance = DeletionAllowance(files=5, size_bytes=20)  # all five, of 2 to 6 bytes
    sweep = a_sweep(allowance=allowance, on=SweptTable(live={3}, stuck={4: "denied"}))
    assert not sweep.run(StepState())
    assert sweep.table.asked == [[2], [4, 5], [6]]
    assert allowance.take([3, 4, 0]) == 2
    assert allowance.is_spent


def test_a_file_of_unknown_size_counts_as_a_file_and_for_no_byte() -> None:
    sweep = a_sweep(allowance=DeletionAllowance(files=1, size_bytes=0))
    sweep.removals = removals_of(a_removal("/t/f00", step="main", size_bytes=None))
    assert sweep.run(StepState())
    assert sweep.table.asked == [[0]]


def test_an_operation_that_keeps_all_files_ends_it_before_the_first() -> None:
    sweep = a_sweep(on=SweptTable(other=True))
    with pytest.raises(Refused, match="operation other keeps all of them: a tag went with it"):
        sweep.run(StepState())
    assert sweep.table.asked == []
    with pytest.raises(Refused, match="operation other keeps all of them"):
        sweep.fails_as_before(StepState(failed=(3,), swept=((2, 7),)))
    assert sweep.table.asked == []


# Files that are tagged in place of being deleted


def a_sweep_that_tags(**others: Any) -> Any:
    sweep = a_sweep(on=SweptTable(tags=True, **others))
    shown = TaggedFiles(count=7, size_bytes=21, tags={"a": "b"}, option="s3.delete-enabled=false")
    sweep.plan = replace(sweep.plan, tagged=shown)
    return sweep


def test_files_that_are_tagged_are_counted_apart_and_free_nothing() -> None:
    events: list[AnyEvent] = []
    sweep = a_sweep_that_tags(stuck={3: "denied"})
    sweep.runtime.on_event = events.append
    assert not sweep.run(StepState())
    assert [body.get("tagged") for body in bodies(sweep.journal, "sweep-outcome")] == [1, 2, 1]
    assert [body["by_kind"] for body in bodies(sweep.journal, "sweep-outcome")] == [{}, {}, {}]
    assert (state_of(sweep).deleted_bytes, state_of(sweep).failed) == (0, (3,))
    told = [(event.tagged, event.tagged_bytes) for event in events if isinstance(event, FilesDeleted)]
    assert told == [(1, 2), (2, 9), (1, 6)]


def test_files_that_were_shown_as_tagged_are_not_deleted_where_they_would_be_by_now() -> None:
    sweep = a_sweep_that_tags()
    sweep.table.tags = False
    with pytest.raises(Refused, match=r"7 files were shown to be tagged by s3\.delete-enabled=false"):
        sweep.run(StepState())
    assert sweep.table.asked == []
    with pytest.raises(Refused, match="would delete them for good"):
        sweep.fails_as_before(StepState(failed=(3,), swept=((2, 7),)))
