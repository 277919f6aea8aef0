"""The run of an operation: each effect in its order, and what its journal records around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa
import pytest

from iceberg_cli.errors import (
    BackendUnavailable,
    Cancelled,
    CommitConflict,
    CommitStateUnknown,
    CorruptFile,
    DeletesFailed,
    Interrupted,
    Refused,
    StalePlan,
    TakenOver,
)
from iceberg_cli.operation.journal import Journal
from iceberg_cli.operation.operation_state import StepState
from iceberg_cli.operation.outcomes import Attempt, Committed, Conflict, Outcome, Unknown
from iceberg_cli.operation.ports import Build, Planned, Retries
from iceberg_cli.operation.records import CommitIntent, Line
from iceberg_cli.operation.runner import OperationRun
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.plan.plan import Base, Change, Plan, StagedFile, Step, Task, Voucher
from iceberg_cli.plan.removals import Removals
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.testing.memory_storage import MemoryStorage
from tests.journals import BEGIN, append, bodies, intent, outcome
from tests.plans import a_plan, a_removal, a_verdict, removals_of

NOW_MS = 1_700_000_000_000
SAFE_MS = 3_600_000  # files that are younger are not taken by any cleanup of orphans
A, B, C = (Task(name=name, kind="manifest") for name in "abc")
CHANGE = Change(updates=({"action": "set"},), counts={"rewritten": 3})
DONE, REFUSED, SILENCE = (
    Committed(metadata_location="new"),
    Conflict(reason="moved"),
    Unknown(cause="no answer"),
)


@dataclass(frozen=True, kw_only=True)
class Word:
    """An update of a commit."""

    word: str

    def to_json(self) -> dict[str, Any]:
        return {"action": self.word}


@dataclass(frozen=True, kw_only=True)
class SomeCommit:
    """What the journal records of a commit."""

    updates: tuple[Word, ...]
    timestamp_ms: int
    commit_uuid: str


class WatchedJournal(Journal):
    """A journal whose records are part of the trace, and that another process takes over at a record."""

    trace: list[str]
    taken_over_at = ""

    def _append(self, line: Line) -> None:
        if line.kind == self.taken_over_at:
            raise TakenOver("Cannot go on: another process has taken it over")
        super()._append(line)
        self.trace.append(f"[{line.kind}]")


@dataclass(kw_only=True)
class RunTable:
    """The table port in memory, and its workspace.

    `trace` has what was done, in order; `before` what happens around it.
    """

    trace: list[str]
    before: dict[str, Callable[[], object]] = field(default_factory=dict)
    send_again_ms: int | None = None
    workers_write: bool = False
    version: str = "v1"
    moves_to: str = ""  # the version that another writer has made when a commit arrives
    loaded: str = field(init=False)
    attempts: int = 4
    wait_ms: int = 100
    gone: set[str] = field(default_factory=set)
    own: tuple[str, ...] = ("list",)  # files that each attempt makes
    name_is_unique: bool = True
    sent: list[Attempt] = field(default_factory=list)
    bound: list[tuple[str, tuple[str, ...], str]] = field(default_factory=list)  # step, staged files, mark
    outcomes: list[Outcome | Exception] = field(default_factory=list)  # of the commits, first to last
    answer: Outcome = SILENCE  # when asked what came of a swap
    visible: bool = False
    takes_late_requests: bool = False
    served: bool = False  # whether the catalog writes the metadata itself
    asked_for: Step | None = None
    base_is_there: bool = True
    table_uuid: str = ""  # of another table that has its name by now
    discarded: list[tuple[list[str], list[str]]] = field(default_factory=list)  # paths, marks
    deleted: list[str] = field(default_factory=list)
    stuck: dict[str, str] = field(default_factory=dict)
    vouched: tuple[Voucher, ...] = ()

    def __post_init__(self) -> None:
        self.loaded = self.version

    @property
    def workspace(self) -> Self:
        return self

    def note(self, what: str) -> None:
        self.before.pop(what, lambda: None)()
        self.trace.append(what)

    def open_operations(self) -> list[str]:
        return ["op"]

    def load(self, seen: str | None = None) -> Base:
        self.note("load" if seen is None else f"load {seen}")
        self.loaded = self.version
        return self.base()

    def base(self) -> Base:
        base = replace(a_plan().base, version=self.loaded)
        return replace(base, table_uuid=self.table_uuid or base.table_uuid)

    def retries(self) -> Retries:
        assert self.loaded == self.version
        wait_ms = self.wait_ms
        return Retries(
            attempts=self.attempts, min_wait_ms=wait_ms, max_wait_ms=wait_ms, total_timeout_ms=10_000
        )

    def staging_path(self, prefix: str, task: Task) -> str:
        return f"{prefix}-{task.name}"

    def bind(
        self,
        step: Step,
        staged: Mapping[Task, StagedFile],
        *,
        timestamp_ms: int,
        commit_uuid: str,
        operation_id: str,
        mark: str,
    ) -> Attempt:
        assert operation_id == "op"
        self.note("bind")
        self.bound.append((step.name, tuple(file.path for file in staged.values()), mark))
        return Attempt(
            commit=SomeCommit(
                updates=(Word(word=step.name),), timestamp_ms=timestamp_ms, commit_uuid=commit_uuid
            ),
            base=self.version,
            target=None if self.served else f"{mark}.json",
            data=b"",
            digest="d",
            name_is_unique=self.name_is_unique,
            temporary_files=("scratch",),
            files={f"{mark}-{name}": b"" for name in self.own},
            counts={"bound": 1},
        )

    def put(self, files: Mapping[str, bytes]) -> None:
        self.note(f"put {_words(files)}")

    def missing(self, paths: Sequence[str]) -> list[str]:
        if paths:
            self.trace.append(f"look for {_words(paths)}")
        return [path for path in paths if path in self.gone]

    def read_only_reason(self) -> str | None:
        return None

    def vouchers(self) -> Sequence[Voucher]:
        return self.vouched

    def probe(self, path: str) -> None:
        raise AssertionError(f"{path}: this is done before there is a run")

    def kept_before(self, _attempt: Attempt) -> Mapping[str, bytes]:
        return {}

    def commit(self, attempt: Attempt) -> Outcome:
        self.note("commit")
        self.sent.append(attempt)
        self.version = self.moves_to or self.version
        outcome = self.outcomes.pop(0) if self.outcomes else DONE
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def settle(self, attempt: Attempt) -> Outcome:
        self.trace.append(f"settle {attempt.target}")
        return self.answer

    def effects_visible(self, step: Step) -> bool:
        self.asked_for = step
        return self.visible

    def rebind(self, step: Step, intent: CommitIntent) -> Attempt | None:
        if not self.base_is_there:
            return None
        made = self.bind(step, {}, timestamp_ms=0, commit_uuid="", operation_id="op", mark="again")
        return replace(made, target=intent.metadata_location)

    def unreachable(self, _removals: Removals, rows: Sequence[int], *, plan: Plan) -> list[int]:
        assert plan.verb == "expire-snapshots"
        return [row for row in rows if row]  # the first of all is reached again

    def tagged_in(self, _paths: pa.ChunkedArray) -> Sequence[str]:
        return ()

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        self.note(f"delete {_words(paths)}")
        self.deleted += [path for path in paths if path not in self.stuck]
        return {path: self.stuck[path] for path in paths if path in self.stuck}

    def discard(self, paths: Sequence[str], *, marks: Sequence[str]) -> None:
        self.note(f"discard {_words(paths)}")
        self.discarded.append((list(paths), list(marks)))


def _words(paths: Iterable[str]) -> str:
    return " ".join(paths)


class AnyPolicy:
    """A policy that is what the plan says."""

    place = VerbPlace(order=1)

    @staticmethod
    def of_plan(plan: Plan) -> Mapping[str, Any]:
        return plan.policy


class RunVerb:
    """The verb port: gives the plans it was told to, or the one that was shown."""

    name = "expire-snapshots"
    policy: type[AnyPolicy] = AnyPolicy
    result_columns = ("deleted_data_files_count",)

    def __init__(self, trace: list[str]) -> None:
        self.trace = trace
        self.plans: list[Plan | Exception] = []
        self.asked: list[tuple[object, int]] = []
        self.broken: Exception | None = None
        self.rows: Mapping[str, Any] = {}

    def plan(
        self,
        table: Any,
        policy: Mapping[str, Any],
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,
    ) -> Planned:
        assert isinstance(table, RunTable)
        self.trace.append("plan")
        assert within is not None
        assert earlier == self.build
        self.asked.append((policy, as_of_ms))
        found = self.plans.pop(0) if self.plans else within
        if isinstance(found, Exception):
            raise found
        return Planned(plan=found, build=self.build)

    def begin(self, table: Any, plan: Plan, runtime: Any) -> None:
        """Nothing comes first."""

    def end(self, table: Any, plan: Plan, runtime: Any) -> None:
        """Nothing comes last."""

    def build(self, step: Step, paths: Mapping[Task, str]) -> Mapping[Task, StagedFile]:
        self.trace.append(f"build {_words(paths.values())}")
        if self.broken is not None:
            raise self.broken
        assert {*paths} <= {*step.tasks}
        return {task: StagedFile(path=path, row=self.rows) for task, path in paths.items()}


class Run(OperationRun):
    """A run with its clock, its waits and its trace."""

    clock_ms: int
    waits: list[float]
    trace: list[str]
    stops: bool

    def go_on(self) -> Any:
        """Another process takes the operation up."""
        run = Run(
            shown=self.shown,
            shown_file=self.shown_file,
            build=self.build,
            table=self.table,
            verb=self.verb,
            runtime=self.runtime,
            journal=self.journal,
            resumed=True,
        )
        run.trace = self.trace
        self.trace.clear()
        return run


def a_step(name: str, *tasks: Task, **values: Any) -> Step:
    return Step(**{"name": name, "tasks": tasks, "change": CHANGE, **values})


ONE, TWO = a_step("one", A, B), a_step("two", C)


def some_removals(*files: tuple[str, str]) -> Removals:
    """Of steps and paths."""
    return removals_of(*(a_removal(path, step=step) for step, path in files))


REMOVALS = some_removals(("one", "/t/0"), ("one", "/t/1"), ("one", "/t/2"), ("two", "/t/3"))


def a_run(
    *steps: Step,
    resumed: bool = False,
    removals: Removals = REMOVALS,
    grace_ms: int = 0,
    deadline_ms: int | None = None,
    began_ms: int = 7,
    **of_table: Any,
) -> Any:
    """A run of some steps, just begun, on a `RunTable`. `Any`: the tests reach through to the doubles."""
    steps = steps or (ONE,)
    base = replace(a_plan().base, version="v1")
    shown = a_plan(steps=steps, removals=removals, base=base, grace_ms=grace_ms)
    trace: list[str] = []
    journal: Any = WatchedJournal.create(MemoryStorage(), "/t", "op")
    journal.trace = trace
    append(journal, "begin", {**BEGIN, "at_ms": began_ms, "steps": [step.name for step in steps]})
    trace.clear()
    table: Any = RunTable(trace=trace, **of_table)
    verb: Any = RunVerb(trace)
    drawn = iter(range(100))
    waits: list[float] = []
    runtime = Runtime(
        now_ms=lambda: run.clock_ms,
        new_uuid=lambda: f"uuid-{next(drawn)}",
        sleep_ms=waits.append,
        on_event=lambda _: None,
        host="h",
        process_id=1,
        quick_batch_ms=0,
        deadline_ms=deadline_ms,
        stop_requested=lambda: run.stops,
    )
    run = Run(
        shown=shown,
        shown_file="shown",
        build=verb.build,
        table=table,
        verb=verb,
        runtime=runtime,
        journal=journal,
        resumed=resumed,
    )
    run.clock_ms, run.waits, run.trace, run.stops = NOW_MS, waits, trace, False
    return run


def an_open_commit(*steps: Step, committed: int = 0, **values: Any) -> Any:
    """Sent, its outcome unknown: what the next run finds, with nothing in the trace yet.

    Args:
        steps: of the operation.
        committed: how many of them are done.
        values: as for `a_run`.
    """
    run = a_run(*steps, outcomes=[*[DONE] * committed, SILENCE], **values)
    error_of(run, CommitStateUnknown)
    return run.go_on()


def finish(run: Any) -> Any:
    return run.finish(NOW_MS)


def error_of(run: Any, kind: type[Exception] | tuple[type[Exception], ...], match: str | None = None) -> Any:
    """What ends the run."""
    with pytest.raises(kind, match=match) as caught:
        finish(run)
    return caught.value


def records(run: Any) -> list[str]:
    return [each[1:-1] for each in run.trace if each.startswith("[")]


def state_of(run: Any, step: str = "one") -> StepState:
    state: StepState = run.journal.operation().steps[step]
    return state


# -- one step --------------------------------------------------------------------------------------------------


def test_each_effect_comes_after_the_record_that_intends_it_and_before_the_one_that_tells_its_outcome() -> (
    None
):
    run = a_run()
    run.table.before["commit"] = lambda: setattr(run, "clock_ms", NOW_MS + 7)
    report = finish(run)
    assert run.trace == [
        *("[stage]", "build op-1-a op-1-b"),
        *("bind", "[stage]", "put op-2-list"),
        *("[commit-intent]", "commit", "[commit-outcome]", "discard scratch"),
        *("[sweep-intent]", "delete /t/1 /t/2", "[sweep-outcome]", "[step-done]", "[close]"),
    ]
    assert bodies(run.journal, "stage") == [
        {"step": "one", "paths": ["op-1-a", "op-1-b"], "by_workers": False},
        {"step": "one", "paths": ["op-2-list"]},
    ]
    assert bodies(run.journal, "commit-intent") == [
        {
            "step": "one",
            "base_location": "v1",
            "metadata_location": "op-2.json",
            "digest": "d",
            "timestamp_ms": NOW_MS,
            "commit_uuid": "uuid-0",
            "updates": [{"action": "one"}],
            "counts": {"bound": 1, "rewritten": 3},
            "removals_file": "shown",
            "grace_ms": 0,
            "scratch": ["scratch"],
            "own_files": ["op-2.json"],
        }
    ]
    assert bodies(run.journal, "commit-outcome") == [
        {"step": "one", "outcome": "committed", "metadata_location": "new", "sweep_after_ms": None}
    ]
    assert run.table.discarded == [(["scratch"], ["uuid-0"])]
    assert run.table.bound == [("one", ("op-1-a", "op-1-b"), "op-2")]
    assert run.journal.operation().closed == "done"
    assert (report.status, report.duration_ms, report.kept_again, report.notes) == ("done", 7, 1, ())
    assert (report.reclaimed_bytes, report.metadata_location) == (20, "new")


def test_an_attempt_of_ours_is_fresh_and_one_that_is_sent_again_is_not() -> None:
    run = an_open_commit()
    assert finish(run).status == "done"
    assert [attempt.fresh for attempt in run.table.sent] == [True, False]


def test_a_commit_without_files_of_its_own_puts_none() -> None:
    run = a_run(a_step("one"), own=(), name_is_unique=False)
    assert finish(run).status == "done"
    assert bodies(run.journal, "stage") == []
    assert [each for each in run.trace if each.startswith("put")] == []
    assert bodies(run.journal, "commit-intent")[0]["own_files"] == []


def test_a_step_that_changes_nothing_is_only_swept_and_tells_what_it_built() -> None:
    run = a_run(replace(ONE, change=None), grace_ms=5, workers_write=True)
    run.verb.rows = {"counts": {"written": 2}, "notes": ["a note"]}
    report = finish(run)
    assert records(run)[:2] == ["stage", "sweep-only"]
    assert bodies(run.journal, "stage")[0]["by_workers"] is True
    assert bodies(run.journal, "sweep-only") == [
        {
            "step": "one",
            "removals_file": "shown",
            "sweep_after_ms": None,
            "counts": [{"written": 2}, {"written": 2}],
            "notes": ["a note", "a note"],
        }
    ]
    assert "commit" not in run.trace
    assert run.table.deleted == ["/t/1", "/t/2"]
    assert (report.status, report.notes) == ("done", ("a note", "a note"))


# -- refusals and retries --------------------------------------------------------------------------------------


def test_a_refused_attempt_keeps_what_it_staged_and_discards_what_was_its_own() -> None:
    run = a_run(outcomes=[REFUSED])
    assert finish(run).status == "done"
    assert run.trace[5:14] == [
        *("[commit-intent]", "commit", "[commit-outcome]", "discard scratch op-2.json"),
        *("[discard]", "discard op-2-list"),
        *("load", "bind", "[stage]"),
    ]
    assert run.table.discarded[:2] == [(["scratch", "op-2.json"], ["uuid-0"]), (["op-2-list"], ["op"])]
    assert [bound[1] for bound in run.table.bound] == [("op-1-a", "op-1-b")] * 2
    (first, second) = bodies(run.journal, "commit-outcome")
    assert first == {
        "step": "one",
        "outcome": "conflict",
        "metadata_location": None,
        "sweep_after_ms": None,
    }
    assert second["outcome"] == "committed"
    (wait_ms,) = run.waits
    assert 100 <= wait_ms <= 110


@pytest.mark.parametrize(("wait_ms", "how"), [(100, "load v2"), (1_000, "load")])
def test_where_the_table_was_seen_just_now_it_is_not_looked_at_once_more(wait_ms: int, how: str) -> None:
    run = a_run(outcomes=[replace(REFUSED, seen="v2")], moves_to="v2", wait_ms=wait_ms)
    assert finish(run).status == "done"
    assert [line for line in run.trace if line.startswith("load")] == [how]


def test_a_new_plan_is_built_as_far_as_it_lacks_files_and_the_others_go() -> None:
    run = a_run(replace(ONE, tasks=(A, B)), outcomes=[REFUSED], moves_to="v2")
    now = replace(run.shown, steps=(replace(ONE, tasks=(B, C)),), removals=some_removals(("one", "/t/2")))
    run.verb.plans = [now]
    assert finish(run).status == "done"
    assert run.verb.asked == [(run.shown.policy, run.shown.as_of_ms)]
    assert run.table.discarded[2] == (["op-1-a"], ["op"])
    assert run.trace[12:18] == [
        *("plan", "[discard]", "discard op-1-a"),
        *("[stage]", "build op-7-c", "bind"),
    ]
    assert [bound[1] for bound in run.table.bound] == [("op-1-a", "op-1-b"), ("op-1-b", "op-7-c")]
    first, second = bodies(run.journal, "commit-intent")
    assert (first["removals_file"], first["base_location"]) == ("shown", "v1")
    assert second["removals_file"].startswith("removals-")
    assert second["base_location"] == "v2"
    assert run.table.deleted == []  # the first row of the new removals, which is reached again


def test_the_removals_of_a_new_plan_are_kept_for_whoever_goes_on() -> None:
    run = a_run(resumed=True, grace_ms=5)
    run.verb.plans = [replace(run.shown)]
    assert finish(run).status == "waiting"
    name = state_of(run).removals_file
    assert name is not None
    assert run.journal.get(name)
    assert run.trace.count("plan") == 1  # what a run before this one was shown may have been overtaken
    run.clock_ms += 5
    again = run.go_on()
    assert finish(again).status == "done"
    assert again.table.deleted == ["/t/1", "/t/2"]


def test_the_last_refusal_discards_what_was_staged_and_closes_the_operation() -> None:
    run = a_run(attempts=2, outcomes=[REFUSED, Conflict(reason="moved again")])
    assert error_of(run, CommitConflict, "moved again, 2 times").state == "The table was not changed."
    assert len(run.waits) == 1
    assert run.table.discarded[-1] == (["op-1-a", "op-1-b"], ["op"])
    assert records(run)[-2:] == ["discard", "close"]
    assert run.journal.operation().closed == "conflict"
    assert state_of(run).staged == ()


def test_staged_files_that_a_cleanup_took_are_built_again() -> None:
    for waited_ms, looks in [(SAFE_MS, False), (SAFE_MS + 1, True)]:
        run = a_run(outcomes=[REFUSED], gone={"op-1-b"})
        run.table.before["commit"] = lambda run=run, ms=waited_ms: setattr(run, "clock_ms", NOW_MS + ms)
        assert finish(run).status == "done"
        assert run.trace.count("look for op-1-a op-1-b") == looks
        assert ((["op-1-a", "op-1-b"], ["op"]) in run.table.discarded) is looks
        assert run.table.bound[1][1] == (("op-7-a", "op-7-b") if looks else ("op-1-a", "op-1-b"))


def test_staged_files_that_are_old_and_there_are_used() -> None:
    run = a_run(outcomes=[REFUSED])
    run.table.before["commit"] = lambda: setattr(run, "clock_ms", NOW_MS + 2 * SAFE_MS)
    assert finish(run).status == "done"
    assert run.trace.count("look for op-1-a op-1-b") == 1
    assert [bound[1] for bound in run.table.bound] == [("op-1-a", "op-1-b")] * 2


def test_the_age_of_staged_files_is_that_of_the_oldest() -> None:
    run = a_run(outcomes=[REFUSED])

    def an_hour_later() -> None:
        run.clock_ms, run.table.version = NOW_MS + SAFE_MS, "v2"

    run.table.before["commit"] = an_hour_later
    run.verb.plans = [replace(run.shown, steps=(replace(ONE, tasks=(B, C)),))]
    assert finish(run).status == "done"
    run.trace.clear()
    first, second = run.table.sent
    assert first.why_stale(["m"]) is None
    assert run.trace == []
    run.clock_ms += 1
    run.table.gone = {"op-1-b"}
    assert second.why_stale(["m"]) == "op-1-b, which it names, is not there any more"
    assert run.trace == ["look for op-1-b op-7-c op-8-list m"]


def test_a_swap_whose_files_were_taken_before_it_is_sent_is_not_sent() -> None:
    run = a_run(attempts=1)

    def stands_still() -> None:
        run.clock_ms, run.table.gone = NOW_MS + SAFE_MS + 1, {"op-2-list"}

    run.table.before["put op-2-list"] = stands_still
    error_of(run, CommitConflict, "op-2-list, which it names, is not there any more")
    assert run.table.sent == []
    assert bodies(run.journal, "commit-outcome")[0]["outcome"] == "conflict"


def test_who_is_taken_over_before_the_intent_discards_its_files_and_sends_nothing() -> None:
    run = a_run()
    run.journal.taken_over_at = "commit-intent"
    error_of(run, TakenOver)
    assert run.table.sent == []
    assert run.table.discarded == [(["op-1-a", "op-1-b", "op-2-list"], ["op"])]


def test_no_known_outcome_discards_nothing() -> None:
    run = a_run(outcomes=[SILENCE])
    error = error_of(run, CommitStateUnknown, r"Cannot tell whether .* happened: no answer")
    assert error.next_step == "`resume` settles operation op."
    assert run.table.discarded == []
    assert records(run)[-1] == "commit-outcome"
    assert state_of(run).outcome == "unknown"
    assert state_of(run).staged == ("op-1-a", "op-1-b", "op-2-list")


# -- planned again ---------------------------------------------------------------------------------------------


def test_nothing_is_planned_again_on_the_base_that_was_shown() -> None:
    run = a_run()
    assert finish(run).status == "done"
    assert run.trace.count("plan") == 0
    moved = a_run(version="v2")
    assert finish(moved).status == "done"
    assert moved.trace.count("plan") == 1


def test_an_operation_that_is_not_due_any_more_ends() -> None:
    run = a_run(outcomes=[REFUSED], moves_to="v2")
    run.verb.plans = [replace(run.shown, steps=())]
    report = finish(run)
    assert (report.status, report.notes) == ("nothing_to_do", ())
    assert run.table.discarded[-1] == (["op-1-a", "op-1-b"], ["op"])
    assert run.journal.operation().closed == "nothing to do any more"
    assert "sweep-only" not in records(run)


def test_what_is_not_due_any_more_counts_as_done_for_a_verb_whose_looks_count() -> None:
    class LooksPolicy(AnyPolicy):
        place = VerbPlace(order=1, looks_count=True)

    run = a_run(outcomes=[REFUSED], moves_to="v2")
    run.verb.policy = LooksPolicy
    run.verb.plans = [replace(run.shown, steps=())]
    assert finish(run).status == "nothing_to_do"
    assert run.journal.operation().closed == "done"


def test_a_step_that_is_not_due_any_more_is_left_out_where_another_is() -> None:
    run = a_run(ONE, TWO, version="v2")
    run.verb.plans = [replace(run.shown, steps=(TWO,))]
    assert finish(run).status == "done"
    assert bodies(run.journal, "sweep-only") == [
        {"step": "one", "removals_file": None, "sweep_after_ms": None}
    ]
    assert [bound[0] for bound in run.table.bound] == ["two"]
    assert run.table.deleted == ["/t/3"]


def test_a_later_step_that_is_not_due_any_more_does_not_end_the_operation_as_if_nothing_was_done() -> None:
    run = a_run(ONE, TWO)
    run.verb.plans = [replace(run.shown, steps=())]
    assert finish(run).status == "done"
    assert [bound[0] for bound in run.table.bound] == ["one"]
    assert run.journal.operation().closed == "done"


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"blocked_by": ("gc.enabled=false", "more")}, Refused, "any more: gc.enabled=false; more"),
        ({"verdicts": (a_verdict("3", keep=False),)}, StalePlan, "1 things .* such as snapshot 3: why"),
    ],
)
def test_what_is_refused_by_now_or_goes_beyond_what_was_shown_ends_it_with_its_files_discarded(
    changes: Mapping[str, Any], kind: type[Refused], message: str
) -> None:
    run = a_run(outcomes=[REFUSED], moves_to="v2")
    run.verb.plans = [replace(run.shown, **changes)]
    assert error_of(run, kind, message).state == "The table was not changed."
    assert len(run.table.sent) == 1
    assert run.table.discarded[-1] == (["op-1-a", "op-1-b"], ["op"])
    assert run.journal.operation().closed == "refused"


@pytest.mark.parametrize(
    ("plans", "outcomes"),
    [
        ([{"blocked_by": ("gc.enabled=false",)}], []),
        ([{"verdicts": (a_verdict("3", keep=False),)}], []),
        ([], [DONE, REFUSED]),
    ],
)
def test_a_refusal_after_a_step_that_committed_says_so_and_keeps_its_files(
    plans: Sequence[Mapping[str, Any]], outcomes: Sequence[Outcome]
) -> None:
    run = a_run(ONE, TWO, attempts=1, outcomes=[*outcomes])
    run.verb.plans = [replace(run.shown, **changes) for changes in plans]
    assert error_of(run, (Refused, CommitConflict)).state == "Committed: one."
    assert run.journal.operation().closed in ("refused", "conflict")
    assert not {"op-1-a", "op-1-b", "op-2-list"} & {
        path for paths, _ in run.table.discarded for path in paths
    }


# -- damage and silence ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers_write", [False, True])
def test_damage_found_while_planning_or_building_closes_what_no_worker_writes_for(
    *, workers_write: bool
) -> None:
    run = a_run(workers_write=workers_write)
    run.verb.broken = CorruptFile("m0", None, "cut")
    error = error_of(run, CorruptFile)
    assert error.state == "The table was not changed."
    resumes = error.next_step == "`resume` goes on with operation op."
    assert resumes is workers_write
    assert run.journal.operation().closed == (None if workers_write else "refused")
    assert run.table.discarded == ([] if workers_write else [(["op-1-a", "op-1-b"], ["op"])])


def test_damage_before_anything_was_recorded_closes_it_too() -> None:
    run = a_run(version="v2")
    run.verb.plans = [CorruptFile("m0", None, "cut")]
    error_of(run, CorruptFile)
    assert records(run) == ["close"]
    assert run.table.discarded == []


def test_damage_after_a_refused_attempt_closes_it_too() -> None:
    run = a_run(outcomes=[REFUSED], moves_to="v2")
    run.verb.plans = [CorruptFile("m0", None, "cut")]
    assert error_of(run, CorruptFile).state == "The table was not changed."
    assert run.journal.operation().closed == "refused"
    assert state_of(run).staged == ()


def test_a_catalog_that_is_down_when_the_swap_is_sent_leaves_its_outcome_open() -> None:
    run = a_run(outcomes=[BackendUnavailable("Cannot reach the catalog")])
    error = error_of(run, BackendUnavailable)
    assert error.state == "The commit may or may not have happened. Nothing was deleted."
    assert error.next_step == "`resume` goes on with operation op."
    own = BackendUnavailable("Cannot reach the catalog", state="As it was.", next_step="Pay the bill.")
    again = a_run(outcomes=[own])
    error_of(again, BackendUnavailable)
    assert (own.state, own.next_step) == ("As it was.", "Pay the bill.")


@pytest.mark.parametrize(
    ("after", "state"), [(None, "The table was not changed."), ("delete /t/1 /t/2", "Committed: one.")]
)
def test_a_storage_that_is_down_says_which_steps_are_committed(after: str | None, state: str) -> None:
    run = a_run(ONE, TWO)

    def down() -> None:
        raise BackendUnavailable("Cannot read")

    if after is None:
        run.table.before["bind"] = down
    else:
        run.table.before[after] = lambda: run.table.before.update(load=down)
    error = error_of(run, BackendUnavailable)
    assert error.state == state
    assert error.next_step == "`resume` goes on with operation op."


def test_one_open_outcome_among_committed_steps_makes_the_state_unknown() -> None:
    run = a_run(ONE, TWO, outcomes=[DONE, BackendUnavailable("Cannot reach the catalog")])
    assert error_of(run, BackendUnavailable).state == CommitStateUnknown.default_state


# -- several steps ---------------------------------------------------------------------------------------------


def test_each_step_is_done_before_the_next_one_is_planned_on_what_it_left() -> None:
    run = a_run(ONE, TWO)
    finish(run)
    assert records(run) == [
        *("stage", "stage", "commit-intent", "commit-outcome", "sweep-intent", "sweep-outcome", "step-done"),
        *("stage", "stage", "commit-intent", "commit-outcome", "sweep-intent", "sweep-outcome", "step-done"),
        "close",
    ]
    assert run.trace.index("plan") > run.trace.index("[step-done]")
    assert run.trace.count("plan") == 1
    assert run.table.deleted == ["/t/1", "/t/2", "/t/3"]
    assert [bound[0] for bound in run.table.bound] == ["one", "two"]


def test_a_step_that_is_done_is_not_touched_again() -> None:
    run = a_run(ONE, TWO, outcomes=[DONE, BackendUnavailable("Cannot reach the catalog")])
    error_of(run, BackendUnavailable)
    run.table.deleted.clear()
    assert finish(run.go_on()).status == "done"
    assert records(run) == ["commit-outcome", "sweep-intent", "sweep-outcome", "step-done", "close"]
    assert run.table.deleted == ["/t/3"]


def test_after_the_deadline_no_further_step_begins() -> None:
    run = a_run(ONE, TWO, removals=Removals.none(), deadline_ms=NOW_MS)
    report = finish(run)
    assert report.status == "partial"
    assert report.notes == ("Still to be committed: two. `resume` and the next run go on.",)
    assert [bound[0] for bound in run.table.bound] == ["one"]
    assert run.journal.operation().closed is None


def test_after_the_deadline_a_commit_that_was_sent_is_still_settled() -> None:
    run = an_open_commit(ONE, TWO, committed=1, removals=Removals.none())
    run.runtime.deadline_ms = NOW_MS
    assert finish(run).status == "done"
    assert "commit" in run.trace


def test_a_stop_before_the_first_commit_leaves_nothing_and_before_a_later_one_what_was_done() -> None:
    run = a_run(ONE, TWO)
    run.stops = True
    error_of(run, Cancelled)
    assert records(run) == ["close"]
    assert run.journal.operation().closed == "nothing was done"
    later = a_run(ONE, TWO, removals=Removals.none())
    later.table.before["commit"] = lambda: setattr(later, "stops", True)
    error = error_of(later, Interrupted)
    assert not isinstance(error, Cancelled)
    assert error.state == "Earlier steps are done."
    assert records(later)[-1] == "step-done"
    assert later.journal.operation().closed is None


END = a_step("two", C, unconditional=True)


def test_an_unconditional_step_is_carried_out_as_shown_after_a_commit() -> None:
    run = a_run(ONE, END, moves_to="v2")
    assert finish(run).status == "done"
    assert run.trace.count("plan") == 0
    assert [bound[0] for bound in run.table.bound] == ["one", "two"]
    assert bodies(run.journal, "commit-intent")[1]["removals_file"] == "shown"


def test_an_unconditional_step_is_left_out_where_the_one_before_it_committed_nothing() -> None:
    for name, steps in {
        "only swept": (replace(ONE, change=None), END),
        "earlier": (ONE, replace(TWO, name="between", change=None), END),
        "first": (replace(ONE, unconditional=True),),
        "last": (replace(ONE, unconditional=True), replace(TWO, change=CHANGE)),
    }.items():
        run = a_run(*steps, removals=Removals.none())
        assert finish(run).status == "done"
        left = next(step.name for step in steps if step.unconditional)
        assert left not in [bound[0] for bound in run.table.bound], name
        assert bodies(run.journal, "sweep-only")[-1] == {
            "step": left,
            "removals_file": None,
            "sweep_after_ms": None,
        }


# -- taken up again --------------------------------------------------------------------------------------------


def test_what_a_run_before_staged_is_discarded_and_built_anew() -> None:
    run = a_run(ONE, TWO, removals=Removals.none())
    append(run.journal, "stage", {"step": "one", "paths": ["old"]})
    run.trace.clear()
    assert finish(run.go_on()).status == "done"
    assert run.trace[:4] == ["load", "[discard]", "discard old", "plan"]
    assert run.table.discarded[0] == (["old"], ["op"])


def test_a_commit_that_had_happened_is_swept() -> None:
    run = an_open_commit(grace_ms=9)
    run.table.answer = Committed(metadata_location="op-2.json")
    run.runtime.now_ms = lambda: NOW_MS + 3
    report = finish(run)
    assert (report.status, report.notes) == ("waiting", ("Its commit had happened.",))
    assert run.trace == ["load", "bind", "settle op-2.json", "[commit-outcome]", "discard scratch"]
    assert state_of(run).sweep_after_ms == NOW_MS + 12
    assert state_of(run).metadata_location == "op-2.json"


def test_a_commit_that_is_settled_by_the_process_that_sent_it_is_told_as_its_own() -> None:
    run = an_open_commit()
    run.resumed = False
    run.table.answer = Committed(metadata_location="op-2.json")
    assert finish(run).notes == ("The commit happened.",)


def test_a_commit_that_was_refused_is_planned_again() -> None:
    run = an_open_commit()
    run.table.answer = REFUSED
    report = finish(run)
    assert report.notes == ("Its commit had been refused; it was planned again.",)
    assert run.table.discarded[0] == (["scratch", "op-2.json"], ["uuid-0"])
    assert run.table.discarded[1] == (["op-1-a", "op-1-b", "op-2-list"], ["op"])
    assert [attempt.commit.commit_uuid for attempt in run.table.sent] == ["uuid-0", "uuid-1"]
    assert bodies(run.journal, "leave") == []


def test_a_commit_whose_base_is_current_is_sent_again_as_it_was() -> None:
    run = an_open_commit()
    run.runtime.now_ms = lambda: NOW_MS + SAFE_MS
    report = finish(run)
    assert report.notes == ("Its commit was sent again, and happened.",)
    # Its files are looked for, however young it is: another process may have cleaned up after this one.
    assert run.trace[:6] == [
        *("load", "bind", "settle op-2.json", "look for op-1-a op-1-b op-2-list"),
        *("plan", "commit"),
    ]
    run.trace.clear()
    sent = run.table.sent[-1]
    assert (sent.target, sent.why_stale(["m"])) == ("op-2.json", None)
    assert run.trace == []
    run.runtime.now_ms = lambda: NOW_MS + SAFE_MS + 1
    assert sent.why_stale(["m"]) is None
    assert run.trace == ["look for op-1-a op-1-b op-2-list m"]


def test_a_commit_that_stays_without_an_answer_stays_open() -> None:
    run = an_open_commit()
    run.table.outcomes = [Unknown(cause="silence")]
    error = error_of(run, CommitStateUnknown, r"Cannot tell yet whether .*: silence")
    assert error.next_step == "`resume` asks again for operation op."
    assert run.table.discarded == []
    assert state_of(run).outcome == "unknown"


def test_a_commit_whose_files_are_gone_is_not_sent_again_and_leaves_what_may_be_named() -> None:
    run = an_open_commit()
    run.table.gone = {"op-1-b"}
    report = finish(run)
    assert report.notes == (
        "It cannot be proved that nothing references 4 files of its own, such as op-1-a; they stay.",
        "Its commit was not sent again, for op-1-b, which it names, is not there any more; it was planned again.",
    )
    assert bodies(run.journal, "leave") == [
        {"step": "one", "paths": ["op-1-a", "op-1-b", "op-2-list", "op-2.json"]}
    ]
    assert run.table.discarded[0] == ([], ["uuid-0"])
    assert state_of(run).outcome == "committed"
    assert len(run.table.sent) == 2


def test_a_commit_of_a_table_that_is_damaged_by_now_is_not_sent_again() -> None:
    run = an_open_commit(attempts=1)
    run.verb.plans = [CorruptFile("m0", None, "cut")]
    report = finish(run)
    assert "Its commit was not sent again, for the table is damaged: Cannot read m0: cut" in report.notes[1]


@pytest.mark.parametrize(
    ("send_again_ms", "unconditional", "planned"),
    [(None, False, 1), (9, False, 0), (None, True, 0), (9, True, 0)],
)
def test_what_a_commit_keeps_is_read_again_where_it_may_be_days_old(
    send_again_ms: int | None, *, unconditional: bool, planned: int
) -> None:
    steps = (ONE, replace(TWO, unconditional=unconditional))
    run = an_open_commit(*steps, committed=1, removals=Removals.none(), send_again_ms=send_again_ms)
    assert finish(run).status == "done"
    assert run.trace.count("plan") == planned
    assert len(run.table.sent) == 3


@pytest.mark.parametrize(("late_ms", "sent"), [(90_000, True), (90_001, False)])
def test_a_commit_that_says_when_it_removed_files_is_sent_again_for_a_while_only(
    late_ms: int, *, sent: bool
) -> None:
    run = an_open_commit(send_again_ms=90_000)
    run.runtime.now_ms = lambda: NOW_MS + late_ms
    notes = finish(run).notes
    stated = "Its commit was sent again, and happened."
    if not sent:
        stated = "Its commit was not sent again, for it was decided 1 min 30 s ago; it was planned again."
    assert notes[-1] == stated


def test_a_commit_whose_base_has_moved_happened_where_its_effects_show() -> None:
    run = an_open_commit()
    run.table.version, run.table.visible = "v2", True
    assert finish(run).notes == ("Its commit had happened.",)
    assert run.table.asked_for.change.updates == ({"action": "one"},)
    assert state_of(run).metadata_location == "op-2.json"
    assert "commit" not in run.trace
    assert bodies(run.journal, "leave") == []


@pytest.mark.parametrize("visible", [True, False])
def test_a_commit_that_another_writer_may_still_replace_is_unknown_though_its_effects_show(
    *, visible: bool
) -> None:
    run = an_open_commit()
    run.table.version, run.table.visible = "v2", visible
    run.table.answer = Unknown(cause="it was seen without a lock", may_be_replaced=True)
    error_of(run, CommitStateUnknown, "Cannot tell yet whether ")
    assert (state_of(run).outcome, run.table.deleted, len(run.table.sent)) == ("unknown", [], 1)
    run = run.go_on()
    run.table.answer = Committed(metadata_location="v2")
    assert finish(run).notes == ("Its commit had happened.",)


@pytest.mark.parametrize("base_is_there", [True, False])
@pytest.mark.parametrize("visible", [True, False])
def test_where_the_catalog_writes_the_metadata_a_base_that_moved_proves_nothing(
    *, visible: bool, base_is_there: bool
) -> None:
    """The request asserts refs and no location: only the committer knows whether it can still come in."""
    run = an_open_commit(served=True, name_is_unique=False)
    (intent,) = bodies(run.journal, "commit-intent")
    assert (intent["metadata_location"], intent["own_files"]) == (None, [])
    run.table.version, run.table.visible, run.table.base_is_there = "v2", visible, base_is_there
    for _ in range(2):
        error = error_of(run, CommitStateUnknown, "Cannot tell yet whether ")
        assert error.next_step == (
            "`resume` asks again for operation op. `resume --abandon` closes it, and its files stay."
        )
        assert (state_of(run).outcome, run.table.asked_for) == ("unknown", None)
        assert state_of(run).staged == ("op-1-a", "op-1-b", "op-2-list")
        assert (run.table.discarded, run.table.deleted, len(run.table.sent)) == ([], [], 1)
        assert bodies(run.journal, "leave") == bodies(run.journal, "discard") == []
        run = run.go_on()


def test_where_the_catalog_writes_the_metadata_the_committer_says_where_it_is() -> None:
    run = an_open_commit(served=True, name_is_unique=False)
    run.table.version, run.table.answer = "v3", Committed(metadata_location="v2")
    assert finish(run).notes == ("Its commit had happened.",)
    assert state_of(run).metadata_location == "v2"


def test_where_the_catalog_writes_the_metadata_a_refusal_of_the_committer_discards_what_was_staged() -> None:
    run = an_open_commit(served=True, name_is_unique=False)
    run.table.version, run.table.answer = "v2", REFUSED
    assert finish(run).notes == ("Its commit had been refused; it was planned again.",)
    assert run.table.discarded[1] == (["op-1-a", "op-1-b", "op-2-list"], ["op"])


def test_where_the_request_may_still_arrive_what_it_names_stays() -> None:
    late = replace(REFUSED, may_arrive=True)
    run = an_open_commit(served=True, name_is_unique=False)
    run.table.version, run.table.answer = "v2", late
    finish(run)
    (left,) = bodies(run.journal, "leave")
    assert left["paths"] == ["op-1-a", "op-1-b", "op-2-list"]
    run = a_run(served=True, name_is_unique=False, outcomes=[late, DONE])
    finish(run)
    (left,) = bodies(run.journal, "leave")
    assert left["paths"] == ["op-1-a", "op-1-b", "op-2-list"]
    # What the next attempt names is new, so that nothing that comes of the first one matters.
    assert run.table.bound[1][1] == ("op-6-a", "op-6-b")
    assert {path for paths, _ in run.table.discarded for path in paths} == {"scratch"}


def test_where_the_request_may_still_arrive_the_metadata_file_that_it_names_stays() -> None:
    run = a_run(outcomes=[replace(REFUSED, may_arrive=True), DONE])
    finish(run)
    (own,) = bodies(run.journal, "commit-intent")[0]["own_files"]
    (left,) = bodies(run.journal, "leave")
    assert own in left["paths"]
    assert own not in {path for paths, _ in run.table.discarded for path in paths}


def test_a_commit_that_is_refused_for_good_is_not_tried_again() -> None:
    run = a_run(outcomes=[replace(REFUSED, for_good=True)])
    with pytest.raises(Refused) as caught:
        finish(run)
    assert caught.value.message == f"Cannot commit to {run.shown.table['name']}: {REFUSED.reason}"
    assert caught.value.state == "The table was not changed."
    assert run.waits == []
    assert bodies(run.journal, "close") != []
    assert {path for paths, _ in run.table.discarded for path in paths} >= {"op-1-a", "op-1-b"}


def test_a_table_of_another_uuid_by_the_same_name_is_left_alone() -> None:
    run = a_run(outcomes=[REFUSED])
    run.table.before["commit"] = lambda: setattr(run.table, "table_uuid", "another")
    with pytest.raises(Refused, match="and is another now"):
        finish(run)
    assert len(run.table.sent) == 1
    assert bodies(run.journal, "close") != []


def test_where_the_catalog_writes_the_metadata_a_request_is_sent_again_while_its_base_is_current() -> None:
    run = an_open_commit(served=True, name_is_unique=False)
    assert finish(run).notes == ("Its commit was sent again, and happened.",)
    assert [attempt.commit.commit_uuid for attempt in run.table.sent] == ["uuid-0", ""]


def test_a_commit_whose_base_has_moved_and_whose_effects_do_not_show_is_planned_again() -> None:
    run = an_open_commit()
    run.table.version = "v2"
    notes = finish(run).notes
    assert notes[-1] == "Its commit had been refused; it was planned again."
    # It may be a version of the past, which names these.
    (left,) = bodies(run.journal, "leave")
    assert left["paths"] == ["op-1-a", "op-1-b", "op-2-list", "op-2.json"]
    assert run.table.discarded[0] == (["scratch"], ["uuid-0"])
    assert [bound[1] for bound in run.table.bound[-1:]] == [("op-7-a", "op-7-b")]


def test_a_commit_whose_effects_do_not_show_is_unknown_where_the_catalog_takes_late_requests() -> None:
    run = an_open_commit()
    run.table.version, run.table.takes_late_requests = "v2", True
    error_of(run, CommitStateUnknown, "Cannot tell yet whether ")
    assert (state_of(run).outcome, run.table.deleted, len(run.table.sent)) == ("unknown", [], 1)
    assert bodies(run.journal, "leave") == []
    run.table.visible = True
    assert finish(run.go_on()).notes == ("Its commit had happened.",)


def test_a_commit_that_left_no_file_leaves_no_record_of_files() -> None:
    run = an_open_commit(a_step("one"), own=(), name_is_unique=False)
    run.table.version = "v2"
    assert finish(run).notes == ("Its commit had been refused; it was planned again.",)
    assert bodies(run.journal, "leave") == []


def test_a_commit_whose_base_is_gone_stays_open_until_the_table_moves() -> None:
    run = an_open_commit(base_is_there=False)
    error_of(run, CommitStateUnknown, "its base is not there any more")
    assert len(run.table.sent) == 1
    run.table.version = "v2"
    assert finish(run.go_on()).status == "done"


def test_a_commit_that_happened_counts_where_the_base_has_moved_on() -> None:
    run = an_open_commit()
    run.table.version, run.table.answer = "v3", Committed(metadata_location="found")
    finish(run)
    assert run.table.asked_for is None
    assert state_of(run).metadata_location == "found"


# -- commits after which nothing may be deleted ----------------------------------------------------------------

WITHHELD = Committed(metadata_location="new", withheld="a tag went with it, see m9")


@pytest.mark.parametrize("grace_ms", [0, 50])
def test_after_a_commit_that_withholds_files_nothing_is_deleted_and_no_step_follows(grace_ms: int) -> None:
    run = a_run(ONE, TWO, grace_ms=grace_ms, outcomes=[WITHHELD])
    error = error_of(
        run, DeletesFailed, "Cannot delete files of cat.shop.events after this commit: a tag went"
    )
    assert error.exit_code == 14
    assert error.message.endswith(": a tag went with it, see m9")
    assert error.state == (
        "Committed: one. No file was deleted after that, nor will be by this operation. Not carried out: two."
    )
    assert error.next_step.endswith(
        "`resume TABLE op --abandon` closes the operation; all files of the table stay."
    )
    assert bodies(run.journal, "commit-outcome") == [
        {
            "step": "one",
            "outcome": "committed",
            "metadata_location": "new",
            "sweep_after_ms": None,
            "withheld": "a tag went with it, see m9",
        }
    ]
    assert records(run)[-1] == "commit-outcome"
    for _ in range(2):
        again = run.go_on()
        again.clock_ms = NOW_MS + 100
        for resume in (again.finish, again.unchanged):
            with pytest.raises(DeletesFailed) as caught:
                resume(NOW_MS)
            assert (caught.value.message, caught.value.state) == (error.message, error.state)
        assert again.trace == []
    assert run.table.deleted == []
    assert run.journal.operation().closed is None


def test_a_later_step_that_withholds_files_stops_after_what_was_done_before_it() -> None:
    run = a_run(ONE, TWO, outcomes=[DONE, WITHHELD])
    assert error_of(run, DeletesFailed).state == (
        "Committed: one, two. No file was deleted after that, nor will be by this operation."
    )
    assert run.table.deleted == ["/t/1", "/t/2"]
    assert error_of(run.go_on(), DeletesFailed)
    assert run.table.deleted == ["/t/1", "/t/2"]


@pytest.mark.parametrize("sent_again", [False, True])
def test_a_commit_that_is_settled_withholds_files_as_well(*, sent_again: bool) -> None:
    run = an_open_commit(served=True, name_is_unique=False)
    if sent_again:
        run.table.outcomes = [WITHHELD]
    else:
        run.table.version, run.table.answer = "v2", WITHHELD
    error_of(run, DeletesFailed, "a tag went with it")
    error_of(run.go_on(), DeletesFailed, "a tag went with it")
    assert state_of(run).withheld == WITHHELD.withheld
    assert run.table.deleted == []


# -- the sweep -------------------------------------------------------------------------------------------------


def test_files_go_when_their_grace_is_over_and_not_a_millisecond_earlier() -> None:
    run = a_run(ONE, TWO, grace_ms=50)
    report = finish(run)
    assert report.status == "waiting"
    assert report.notes == ("Still to be committed: two. `resume` and the next run go on.",)
    assert state_of(run).sweep_after_ms == NOW_MS + 50
    run.clock_ms += 49
    assert finish(run.go_on()).status == "waiting"
    assert run.table.deleted == []
    run.clock_ms += 1
    report = finish(run.go_on())  # the second step, by now
    assert (report.status, report.waiting_files, report.waiting_bytes) == ("waiting", 2, 20)
    assert run.table.deleted == ["/t/1", "/t/2"]


CLEANUP = replace(TWO, change=None)  # a step without a commit, after which /t/3 goes


def test_a_step_without_a_commit_waits_from_the_beginning_of_its_operation() -> None:
    run = a_run(CLEANUP, grace_ms=50, began_ms=NOW_MS - 20)
    report = finish(run)
    assert (report.status, report.waits_until_ms) == ("waiting", NOW_MS + 30)
    assert (report.waiting_files, report.waiting_bytes) == (4, 40)
    assert bodies(run.journal, "sweep-only")[0]["sweep_after_ms"] == NOW_MS + 30
    operation = run.journal.operation()
    assert (operation.next_action(), operation.grace_until_ms()) == ("wait", NOW_MS + 30)
    run.clock_ms += 29
    assert finish(run.go_on()).status == "waiting"
    assert run.table.deleted == []
    run.clock_ms += 1
    assert finish(run.go_on()).status == "done"
    assert run.table.deleted == ["/t/3"]
    assert "commit" not in run.trace


def test_an_operation_whose_commit_has_waited_waits_no_second_time_for_what_needs_no_commit() -> None:
    three = a_step("three")  # a commit after which no file goes: VACUUM END
    run = a_run(ONE, three, CLEANUP, grace_ms=50, began_ms=NOW_MS - 5)
    report = finish(run)
    assert (report.status, report.waits_until_ms) == ("waiting", NOW_MS + 50)
    assert (report.waiting_files, report.waiting_bytes) == (4, 40), "those of the last step wait as well"
    assert run.trace.count("commit") == 1, "no step goes before the one that waits"
    run.clock_ms += 50
    report = finish(run.go_on())
    assert (report.status, report.waits_until_ms, report.waiting_files) == ("done", None, 0)
    assert run.table.deleted == ["/t/1", "/t/2", "/t/3"]
    assert [body["grace_ms"] for body in bodies(run.journal, "commit-intent")] == [50, 0]


def test_without_a_file_that_goes_nothing_is_waited_for() -> None:
    run = a_run(a_step("three"), replace(a_step("four"), change=None), grace_ms=50, began_ms=NOW_MS)
    assert finish(run).status == "done"
    assert bodies(run.journal, "commit-outcome")[0]["sweep_after_ms"] is None
    assert bodies(run.journal, "sweep-only")[0]["sweep_after_ms"] is None


def test_what_a_step_without_a_commit_deletes_is_looked_at_again_after_its_grace() -> None:
    run = a_run(replace(ONE, change=None), grace_ms=50, began_ms=NOW_MS)
    assert finish(run).status == "waiting"
    run.clock_ms += 50
    report = finish(run.go_on())
    # Of /t/0, /t/1 and /t/2 the table reaches the first by now.
    assert (run.table.deleted, report.kept_again) == (["/t/1", "/t/2"], 1)


def test_a_step_without_a_commit_comes_after_operations_that_wait_already() -> None:
    run = a_run(replace(ONE, change=None), began_ms=NOW_MS)
    run.waiting = ("before",)
    other = WatchedJournal.create(run.journal._storage, "/t", "before")
    other.trace = []
    append(other, "begin", BEGIN)
    for record in (intent(grace_ms=5), outcome(until_ms=NOW_MS + 9)):
        append(other, *record)
    run.table.journal = {"before": other, "op": run.journal}.__getitem__
    report = finish(run)
    assert (report.status, report.waits_until_ms, run.table.deleted) == ("waiting", NOW_MS + 9, [])
    assert report.notes[0].startswith("Its files wait for operation before, whose grace ends at ")
    assert bodies(run.journal, "sweep-only")[0]["after"] == ["before"]
    run.clock_ms += 9
    assert finish(run.go_on()).status == "done"
    assert run.table.deleted == ["/t/1", "/t/2"]


def test_a_limit_makes_the_sweep_partial_and_says_so() -> None:
    run = a_run()
    run.runtime.deletes_left = 1
    report = finish(run)
    assert (report.status, report.kept_again) == ("partial", 1)
    assert report.notes == ("Stopped at the limit that was asked for; `resume` goes on.",)
    assert "step-done" not in records(run)
    assert run.journal.operation().closed is None


def failing(*steps: Step) -> Any:
    """A run that goes on after another could not delete a file."""
    run = a_run(*steps, stuck={"/t/2": "denied"})
    report = finish(run)
    assert report.status == "partial"
    assert [(each["path"], each["reason"]) for each in report.failed_deletes] == [("/t/2", "denied")]
    return run.go_on()


def test_what_fails_as_before_is_reported_without_a_record() -> None:
    run = failing(ONE, TWO)
    report = run.unchanged(NOW_MS - 2)
    assert (report.status, report.duration_ms) == ("partial", 2)
    assert [each["path"] for each in report.failed_deletes] == ["/t/2"]
    assert run.trace == ["delete /t/2"]


def test_what_fails_as_before_in_a_later_step_is_swept_by_that_steps_removals() -> None:
    run = a_run(ONE, TWO, stuck={"/t/3": "denied"})
    assert finish(run).status == "partial"
    assert run.go_on().unchanged(NOW_MS).status == "partial"
    assert run.trace == ["delete /t/3"]


def test_what_goes_by_now_is_for_the_record() -> None:
    run = failing()
    run.table.stuck = {}
    assert run.unchanged(NOW_MS) is None
    assert finish(run).status == "done"


def test_an_operation_that_does_not_sweep_is_never_unchanged() -> None:
    run = an_open_commit()
    assert run.unchanged(NOW_MS) is None
    assert run.trace == []
    waits = a_run(grace_ms=5)
    assert finish(waits).status == "waiting"
    assert waits.unchanged(NOW_MS) is None
    left_out = a_run()
    append(left_out.journal, "sweep-only", {"step": "one", "removals_file": None, "sweep_after_ms": None})
    assert left_out.unchanged(NOW_MS) is None
    assert finish(left_out).status == "done"
    assert records(left_out)[-2:] == ["step-done", "close"]
    assert left_out.table.deleted == []
