"""Each record of a journal is a value of its own kind, on disk as it always was; and what the records say of an
operation: what is safe next, what is litter, what stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.operation.operation_state import FinishedGroup, GroupStates, Operation, StepState, fold
from iceberg_cli.operation.records import (
    Begin,
    Close,
    CommitIntent,
    CommitOutcome,
    Discard,
    GroupsDone,
    GroupsDropped,
    LeaveFiles,
    Line,
    LookAgain,
    Record,
    Resume,
    Stage,
    StepDone,
    SweepIntent,
    SweepOnly,
    SweepOutcome,
    records_of,
)
from tests.golden.comparing import golden
from tests.golden.journal_cases import JOURNALLED, records_in
from tests.journals import BEGIN, RESUME, intent, outcome

BEGUN = Line(kind="begin", body=BEGIN)
KINDS: tuple[type[Record], ...] = (
    *(Begin, Resume, Stage, Discard, LeaveFiles, CommitIntent, CommitOutcome),
    *(SweepOnly, SweepIntent, SweepOutcome, StepDone, LookAgain, Close),
)


@cache
def written() -> list[Line]:
    """The records of the golden journals."""
    texts = (golden(f"journals/{name}.txt") for name in JOURNALLED)
    documents = [json.loads(data) for text in texts for _, data in records_in(text)]
    return [Line(kind=document["kind"], body=document["body"]) for document in documents]


def test_every_record_that_was_ever_written_reads_and_is_written_the_same() -> None:
    """The golden journals have records of every kind, of both formats and every verb."""
    for line in written():
        before = [] if line.kind == "begin" else [BEGUN]
        record = records_of("op", [*before, line])[-1]
        assert json.dumps(record.to_json()) == json.dumps(line.body)
        assert record.kind == line.kind
    assert {line.kind for line in written()} == {kind.kind for kind in KINDS}


@cache
def bodies() -> dict[str, dict[str, Any]]:
    """One body of each kind, from the golden journals: the one with the most fields."""
    return {line.kind: dict(line.body) for line in sorted(written(), key=lambda line: len(line.body))}


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_record_that_lacks_a_field_is_refused_by_the_field(kind: type[Record]) -> None:
    body = bodies()[kind.kind]
    # An outcome of a sweep has a range, and so both its ends.
    optional = frozenset() if kind is SweepOutcome else kind.optional
    for name in body:
        rest = {key: value for key, value in body.items() if key != name}
        lines = [BEGUN, Line(kind=kind.kind, body=rest)]
        if name in optional:
            assert len(records_of("op", lines)) == 2
            continue
        with pytest.raises(CorruptFile, match=f"a record of the journal lacks a field: '{name}'"):
            records_of("op", lines)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_field_of_another_type_is_refused_and_an_unknown_field_is_not(kind: type[Record]) -> None:
    body = bodies()[kind.kind]
    known = records_of("op", [BEGUN, Line(kind=kind.kind, body=body)])
    assert records_of("op", [BEGUN, Line(kind=kind.kind, body={**body, "new": 1})]) == known
    for name in body:
        with pytest.raises(CorruptFile, match=rf"lacks a field: {name} is 1\.5"):
            records_of("op", [BEGUN, Line(kind=kind.kind, body={**body, name: 1.5})])
        if isinstance(body[name], list):
            with pytest.raises(CorruptFile, match=rf"lacks a field: {name} is \[\]"):
                records_of("op", [BEGUN, Line(kind=kind.kind, body={**body, name: [*body[name], []]})])


def test_an_outcome_that_withholds_files_is_kept_and_one_that_does_not_has_no_such_field() -> None:
    for withheld in (None, "why"):
        body = {**COMMITTED, **({} if withheld is None else {"withheld": withheld})}
        (_, record) = records_of("op", [BEGUN, Line(kind="commit-outcome", body=body)])
        assert isinstance(record, CommitOutcome)
        assert record.withheld == withheld
        assert json.dumps(record.to_json()) == json.dumps(body)
    with pytest.raises(CorruptFile, match="lacks a field: withheld is 1"):
        records_of("op", [BEGUN, Line(kind="commit-outcome", body={**COMMITTED, "withheld": 1})])


def test_an_operation_begins_once() -> None:
    with pytest.raises(CorruptFile, match="two begin records"):
        records_of("op", [BEGUN, BEGUN])


# -- what they say of an operation ----------------------------------------------------------------------------

INTENT = {
    "step": "a",
    "base_location": "v1",
    "metadata_location": "m",
    "digest": "d",
    "timestamp_ms": 8,
    "commit_uuid": "c",
    "updates": [],
    "counts": {},
    "removals_file": "r",
    "grace_ms": 0,
    "scratch": ["s1", "s2"],
    "own_files": ["o1", "o2"],
}
COMMITTED = {"step": "a", "outcome": "committed", "metadata_location": "m", "sweep_after_ms": None}
TRIED: dict[str, Any] = {"by_kind": {}, "reasons": []}
CONFLICT = {**COMMITTED, "outcome": "conflict", "metadata_location": None}
SENT, DONE, REFUSED = ("commit-intent", INTENT), ("commit-outcome", COMMITTED), ("commit-outcome", CONFLICT)
UNANSWERED = ("commit-outcome", {**CONFLICT, "outcome": "unknown"})
WITHHELD = ("commit-outcome", {**COMMITTED, "withheld": "why"})


def of_records(*records: tuple[str, dict[str, Any]]) -> Operation:
    begin = {**BEGIN, "steps": ["a", "b"]}
    return folded(Line(kind="begin", body=begin), *(Line(kind=k, body=body) for k, body in records))


def folded(*lines: Line) -> Operation:
    return fold("op", records_of("op", lines))


def step(*records: tuple[str, dict[str, Any]]) -> StepState:
    """The state of step `a`; each record is of that step."""
    return of_records(*((kind, {"step": "a", **body}) for kind, body in records)).steps["a"]


def test_an_operation_is_what_its_first_record_says_and_belongs_to_who_took_it_over_last() -> None:
    begun = of_records()
    assert (begun.operation_id, begun.verb, begun.table_uuid) == ("op", "expire-snapshots", "u")
    assert (begun.started_ms, begun.plan_digest, begun.step_names) == (7, "d", ("a", "b"))
    assert (begun.host, begun.process_id, begun.process_started) == ("h", 3, "s")
    assert (begun.steps, begun.late, begun.look_again, begun.closed) == ({}, (), None, None)
    taken = of_records(("resume", RESUME))
    assert (taken.started_ms, taken.host, taken.process_id, taken.process_started) == (7, "other", 4, "t")


@pytest.mark.parametrize("lines", [[], [Line(kind="resume", body=BEGIN)]])
def test_a_journal_that_does_not_start_with_its_begin_is_refused(lines: list[Line]) -> None:
    with pytest.raises(CorruptFile, match="does not start with a begin record"):
        folded(*lines)


@pytest.mark.parametrize("version", [0, 3, None])
def test_the_journal_of_another_version_is_left_to_it(version: int | None) -> None:
    with pytest.raises(Refused, match=f"it has version {version}, and 2 is known here"):
        folded(Line(kind="begin", body={**BEGIN, "version": version}))


def test_a_record_of_no_known_kind_is_refused() -> None:
    with pytest.raises(CorruptFile, match=r"Cannot read op.*a record of unknown kind 'dance'"):
        step(("dance", {}))


@pytest.mark.parametrize(("rows", "missing"), [({}, "start"), ({"start": 0}, "stop"), ({"stop": 1}, "start")])
def test_an_outcome_of_a_sweep_has_its_rows(rows: dict[str, int], missing: str) -> None:
    with pytest.raises(
        CorruptFile, match=f"^Cannot read op: a record of the journal lacks a field: '{missing}'$"
    ):
        step(("sweep-outcome", {**TRIED, **rows, "failed": [], "bytes": 0}))


class CountedPaths(tuple[str, ...]):
    """Paths that count how often they are gone through."""

    __slots__ = ()
    times = 0

    def __iter__(self) -> Iterator[str]:
        CountedPaths.times += 1
        return super().__iter__()


def test_files_that_are_discarded_are_gone_through_a_few_times_and_not_once_for_each_staged_file() -> None:
    paths = tuple(f"f{number}" for number in range(100))
    begin, stage = Begin.from_json({**BEGIN, "steps": ["a"]}), Stage(step="a", paths=paths)
    CountedPaths.times = 0
    state = fold("op", [begin, stage, Discard(step="a", paths=CountedPaths(paths[1:]))]).steps["a"]
    assert (state.staged, state.leftovers) == (("f0",), paths[1:])
    assert CountedPaths.times < 5


@pytest.mark.parametrize(
    ("records", "action"),
    [
        ([], "discard"),
        ([("stage", {"step": "a", "paths": ["f"]})], "discard"),
        ([SENT], "ask-the-catalog"),
        ([SENT, UNANSWERED], "ask-the-catalog"),
        ([SENT, REFUSED], "discard"),
        ([SENT, DONE], "sweep"),
        ([SENT, ("commit-outcome", {**COMMITTED, "sweep_after_ms": 9})], "wait"),
        ([SENT, WITHHELD], "abandon"),
        ([SENT, WITHHELD, ("step-done", {"step": "a"}), ("stage", {"step": "b", "paths": ["f"]})], "abandon"),
        ([SENT, WITHHELD, ("close", {"status": "abandoned", "begin": BEGIN})], "clean-up"),
        ([("sweep-only", {"step": "a", "removals_file": "r", "sweep_after_ms": None})], "sweep"),
        ([SENT, DONE, ("step-done", {"step": "a"})], "go-on"),
        ([("step-done", {"step": "a"}), ("stage", {"step": "b", "paths": ["f"]})], "go-on"),
        ([("step-done", {"step": "a"}), ("commit-intent", {**INTENT, "step": "b"})], "ask-the-catalog"),
        ([("look-again", {"at_ms": 9, "status": "done"})], "look-again"),
        (
            [("look-again", {"at_ms": 9, "status": "done"}), ("close", {"status": "done", "begin": BEGIN})],
            "clean-up",
        ),
    ],
)
def test_what_to_do_first_follows_from_the_last_record(records: Any, action: str) -> None:
    assert of_records(*records).next_action() == action


def test_a_grace_counts_until_the_first_file_is_about_to_go() -> None:
    waiting = [SENT, ("commit-outcome", {**COMMITTED, "sweep_after_ms": 9})]
    swept = {"step": "a", "start": 0, "stop": 2, "by_kind": {}, "bytes": 1, "failed": [], "reasons": []}
    assert of_records(*waiting).steps["a"].sweep_after_ms == 9
    assert of_records(*waiting, ("sweep-intent", {"step": "a"})).next_action() == "sweep"
    assert of_records(*waiting, ("sweep-outcome", swept)).next_action() == "sweep"


def test_what_one_step_withholds_is_withheld_from_the_whole_operation() -> None:
    assert (of_records(SENT, DONE).withheld, step(SENT, DONE).withheld) == (None, None)
    operation = of_records(SENT, WITHHELD, ("stage", {"step": "b", "paths": ["f"]}))
    assert (operation.withheld, operation.steps["a"].withheld, operation.steps["b"].withheld) == (
        *("why", "why"),
        None,
    )


def test_the_steps_whose_commit_is_to_come_are_those_that_are_not_committed() -> None:
    assert of_records().uncommitted() == ("a", "b")
    assert of_records(SENT, DONE).uncommitted() == ("b",)
    assert of_records(SENT, REFUSED).uncommitted() == ("a", "b")


def test_staged_files_are_those_that_were_neither_discarded_nor_left() -> None:
    state = step(
        ("stage", {"paths": ["f", "g"]}),
        ("stage", {"paths": ["h", "i"], "by_workers": True}),
        ("discard", {"paths": ["g"]}),
        ("leave", {"paths": ["i"]}),
    )
    assert (state.staged, state.by_workers) == (("f", "h"), ("h", "i"))
    assert (state.leftovers, state.left) == (("g",), ("i",))


def test_a_swap_leaves_its_scratch_and_its_own_files_only_once_it_is_refused() -> None:
    assert step(SENT).leftovers == ()
    committed = step(SENT, DONE)
    assert (committed.leftovers, committed.metadata_location) == (("s1", "s2"), "m")
    assert (committed.outcome, committed.removals_file) == ("committed", "r")
    assert step(SENT, REFUSED).leftovers == ("s1", "s2", "o1", "o2")
    left = step(SENT, ("leave", {"paths": ["o1"]}), REFUSED)
    assert left.leftovers == ("s1", "s2", "o2")
    assert step(SENT, ("commit-outcome", {**COMMITTED, "outcome": "unknown"})).leftovers == ()
    assert step(REFUSED).leftovers == ()
    assert step(DONE).leftovers == ()


def test_an_attempt_begins_anew_after_a_refusal() -> None:
    state = step(SENT, REFUSED, SENT)
    assert (state.outcome, state.intent) == (None, CommitIntent.from_json(INTENT))


def test_what_only_is_swept_counts_as_committed() -> None:
    state = step(("sweep-only", {"removals_file": "r", "sweep_after_ms": 5}))
    assert (state.outcome, state.removals_file, state.sweep_after_ms) == ("committed", "r", 5)
    assert (state.intent, state.metadata_location) == (None, None)


def test_rows_that_fail_stay_failed_until_they_are_tried_again() -> None:
    first = ("sweep-outcome", {"start": 0, "stop": 4, "failed": [1, 3], "bytes": 20, **TRIED})
    again = ("sweep-outcome", {"rows": [1, 3], "failed": [3], "bytes": 5, **TRIED})
    state = step(first, ("sweep-outcome", {"start": 4, "stop": 6, "failed": [5], "bytes": 1, **TRIED}), again)
    assert (state.swept, state.failed, state.deleted_bytes) == (((0, 4), (4, 6)), (5, 3), 26)
    assert (StepState().deleted_bytes, StepState().done) == (0, False)
    assert step(first, first).failed == (1, 3)
    assert not step(first).done
    assert step(first, ("step-done", {})).done


@pytest.mark.parametrize(
    ("after", "late"),
    [
        ([], ("v", "w")),
        ([("discard", {"step": "a", "paths": ["v"]})], ("w",)),
        ([SENT], ()),
        ([SENT, DONE], ()),
        ([SENT, UNANSWERED], ()),
        ([SENT, REFUSED], ("v", "w")),
        ([SENT, ("leave", {"step": "a", "paths": ["v", "w"]}), REFUSED], ()),
        ([SENT, REFUSED, SENT], ()),
        ([("sweep-only", {"step": "a", "removals_file": None, "sweep_after_ms": None})], ()),
    ],
)
def test_workers_files_are_late_where_another_process_takes_over_and_no_commit_names_them(
    after: Any, late: tuple[str, ...]
) -> None:
    of_workers = ("stage", {"step": "a", "paths": ["v", "w"], "by_workers": True})
    records = [of_workers, ("stage", {"step": "a", "paths": ["f"]}), *after]
    assert of_records(*records).late == ()
    for times in (1, 2):
        assert of_records(*records, *[("resume", RESUME)] * times).late == late


# -- what waits for a grace


def two_steps(*records: tuple[str, dict[str, Any]]) -> Operation:
    """The state after records of the steps `main` and `other`."""
    begin = Line(kind="begin", body={**BEGIN, "steps": ["main", "other"]})
    return folded(begin, *(Line(kind=kind, body=body) for kind, body in records))


def test_the_grace_of_an_operation_ends_with_its_last_step_that_is_not_done() -> None:
    both = [intent(), outcome(until_ms=9), intent("other"), outcome("other", until_ms=5)]
    assert two_steps(*both).grace_until_ms() == 9
    assert two_steps(*both, ("step-done", {"step": "main"})).grace_until_ms() == 5
    assert two_steps(*both[:2], intent("other"), outcome("other")).grace_until_ms() == 9
    assert two_steps(intent(), outcome()).grace_until_ms() is None


@pytest.mark.parametrize(("grace_ms", "waits"), [(0, False), (1, True)])
def test_a_commit_with_a_grace_may_come_to_wait_until_its_outcome_is_known(
    grace_ms: int, *, waits: bool
) -> None:
    asked = intent("other", grace_ms=grace_ms)
    done = [intent(grace_ms=5), outcome(until_ms=9)]
    assert not two_steps(*done).may_come_to_wait()
    assert two_steps(*done, asked).may_come_to_wait() is waits
    assert two_steps(*done, asked, outcome("other", word="unknown")).may_come_to_wait() is waits
    assert not two_steps(*done, asked, outcome("other", word="conflict")).may_come_to_wait()
    assert not two_steps(("stage", {"step": "main", "paths": ["f"], "by_workers": False})).may_come_to_wait()


def test_a_step_remembers_which_operations_waited_when_it_was_committed() -> None:
    kind, body = intent()
    assert two_steps((kind, {**body, "after": ["op1", "op2"]})).steps["main"].after == ("op1", "op2")
    assert two_steps((kind, body)).steps["main"].after == ()
    swept = {"step": "main", "removals_file": "r", "sweep_after_ms": 9}
    assert two_steps(("sweep-only", {**swept, "after": ["op1"]})).steps["main"].after == ("op1",)
    assert two_steps(("sweep-only", swept)).steps["main"].after == (), "journals of before have none"


# -- operations of many commits


WITH_GROUPS = Line(kind="begin", body={**BEGIN, "version": 2})
FINISHED = ("groups-done", {"numbers": [4, 2], "attempts": ["1x0", "1x1"], "digests": ["d4", "d2"]})
DROPPED = (
    "groups-dropped",
    {"numbers": [2, 3], "reasons": ["two", "three"], "broken": True, "files_stay": True},
)
OF_GROUPS: tuple[tuple[type[Record], dict[str, Any]], ...] = (
    (GroupsDone, FINISHED[1]),
    (GroupsDropped, DROPPED[1]),
)
SENT_GROUPS = ("commit-intent", {**INTENT, "groups": [4, 2]})


def of_groups(*records: tuple[str, dict[str, Any]]) -> GroupStates:
    """The state of groups after some records."""
    operation = folded(WITH_GROUPS, *(Line(kind=kind, body=body) for kind, body in records))
    assert operation.groups is not None
    return operation.groups


@pytest.mark.parametrize(("kind", "body"), OF_GROUPS)
def test_a_record_of_groups_reads_and_is_written_the_same(kind: type[Record], body: dict[str, Any]) -> None:
    (_, record) = records_of("op", [WITH_GROUPS, Line(kind=kind.kind, body={**body, "new": 1})])
    assert isinstance(record, kind)
    assert json.dumps(record.to_json()) == json.dumps(body)
    least = {name: value for name, value in body.items() if name not in kind.optional}
    (_, record) = records_of("op", [WITH_GROUPS, Line(kind=kind.kind, body=least)])
    assert json.dumps(record.to_json()) == json.dumps(least)


@pytest.mark.parametrize(("kind", "body"), OF_GROUPS)
def test_a_record_of_groups_that_lacks_a_field_or_has_another_type_there_is_refused(
    kind: type[Record], body: dict[str, Any]
) -> None:
    for name in body:
        rest = {key: value for key, value in body.items() if key != name}
        lines = [WITH_GROUPS, Line(kind=kind.kind, body=rest)]
        if name in kind.optional:
            assert len(records_of("op", lines)) == 2
        else:
            with pytest.raises(CorruptFile, match=f"a record of the journal lacks a field: '{name}'"):
                records_of("op", lines)
        for wrong in (1.5, [None], [[]], {}):
            with pytest.raises(CorruptFile, match=f"lacks a field: {name} is "):
                records_of("op", [WITH_GROUPS, Line(kind=kind.kind, body={**body, name: wrong})])
    for wrong in ([True, False], ["4", "2"], "42", None):
        with pytest.raises(CorruptFile, match="lacks a field: numbers is "):
            records_of("op", [WITH_GROUPS, Line(kind=kind.kind, body={**body, "numbers": wrong})])


@pytest.mark.parametrize(("kind", "body"), OF_GROUPS)
def test_a_record_of_groups_has_as_many_of_each(kind: type[Record], body: dict[str, Any]) -> None:
    for name, value in body.items():
        for other in (value[:1], [*value, value[0]]) if isinstance(value, list) else ():
            with pytest.raises(CorruptFile, match="are not as many"):
                records_of("op", [WITH_GROUPS, Line(kind=kind.kind, body={**body, name: other})])


def test_the_intent_of_a_commit_of_groups_names_them_and_that_of_another_one_has_no_such_field() -> None:
    for body in (INTENT, SENT_GROUPS[1], {**INTENT, "groups": []}):
        (_, record) = records_of("op", [WITH_GROUPS, Line(kind="commit-intent", body=body)])
        assert isinstance(record, CommitIntent)
        assert json.dumps(record.to_json()) == json.dumps(body)
    for wrong in (4, ["4"], [True], [4.0], {}):
        body = {**INTENT, "groups": wrong}
        with pytest.raises(CorruptFile, match="lacks a field: groups is "):
            records_of("op", [WITH_GROUPS, Line(kind="commit-intent", body=body)])


@pytest.mark.parametrize(("kind", "body"), OF_GROUPS)
def test_a_journal_of_the_first_version_has_no_records_of_groups(
    kind: type[Record], body: dict[str, Any]
) -> None:
    with pytest.raises(CorruptFile, match=f"the journal has a record of unknown kind '{kind.kind}'"):
        records_of("op", [BEGUN, Line(kind=kind.kind, body=body)])
    assert of_records(SENT_GROUPS, DONE).groups is None
    assert of_records().groups is None


def test_groups_are_uncommitted_from_the_record_that_says_they_are_finished_to_their_commit() -> None:
    two, four = FinishedGroup(2, "1x1", "d2"), FinishedGroup(4, "1x0", "d4")
    assert of_groups() == GroupStates()
    assert of_groups(FINISHED).uncommitted() == [two, four]
    assert of_groups(FINISHED, SENT_GROUPS).uncommitted() == [two, four]
    for answer in (UNANSWERED, REFUSED):
        assert of_groups(FINISHED, SENT_GROUPS, answer).uncommitted() == [two, four]
    committed = of_groups(FINISHED, ("commit-intent", {**INTENT, "groups": [4]}), DONE)
    assert (committed.uncommitted(), committed.committed) == ([two], {4})
    assert committed.needed() == {(2, "1x1"), (4, "1x0")}


def test_a_group_that_is_tried_again_has_the_files_of_the_try_that_was_recorded_last() -> None:
    again = ("groups-done", {"numbers": [4], "attempts": ["3x9"], "digests": ["new"]})
    assert of_groups(FINISHED, again).uncommitted() == [
        FinishedGroup(2, "1x1", "d2"),
        FinishedGroup(4, "3x9", "new"),
    ]


def test_dropped_groups_are_not_committed_and_their_files_go_unless_a_request_may_still_name_them() -> None:
    goes = ("groups-dropped", {"numbers": [2], "reasons": ["two"]})
    dropped = of_groups(FINISHED, goes)
    assert (dropped.dropped, dropped.broken, dropped.files_stay) == ({2: "two"}, frozenset(), frozenset())
    assert [each.number for each in dropped.uncommitted()] == [4]
    assert dropped.needed() == {(4, "1x0")}
    stays = of_groups(FINISHED, DROPPED)
    assert (stays.dropped, stays.broken, stays.files_stay) == ({2: "two", 3: "three"}, {2, 3}, {2, 3})
    assert [each.number for each in stays.uncommitted()] == [4]
    assert stays.needed() == {(2, "1x1"), (4, "1x0")}


def test_files_that_a_request_may_still_name_stay_though_their_groups_are_dropped_later() -> None:
    left = ("leave", {"step": "a", "paths": ["f"]})
    later = ("groups-dropped", {"numbers": [2], "reasons": ["two"]})
    assert of_groups(FINISHED, SENT_GROUPS, left).files_stay == {2, 4}
    assert of_groups(FINISHED, SENT_GROUPS, left, later).needed() == {(2, "1x1"), (4, "1x0")}
    assert of_groups(FINISHED, left, later).needed() == {(4, "1x0")}


def test_a_commit_that_turns_out_to_have_happened_counts_though_its_groups_were_dropped() -> None:
    states = of_groups(FINISHED, SENT_GROUPS, DROPPED, DONE)
    assert (states.committed, states.uncommitted()) == ({2, 4}, [])
    assert states.needed() == {(2, "1x1"), (4, "1x0")}
