"""Plans and reports as documents: what they hold, that they come back, and what goes beyond what was shown."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from iceberg_cli.errors import CorruptFile, UsageError
from iceberg_cli.plan.documents import plan_from_json
from iceberg_cli.plan.plan import Change, Step, encode
from iceberg_cli.plan.removal_rows import from_parquet, to_parquet
from iceberg_cli.plan.removals import Removals
from iceberg_cli.plan.report import Report
from tests.first_release import first_plan
from tests.plans import BIG_ID, a_plan, a_removal, a_verdict, removals_of

A = a_removal("/t/data/a")


def test_a_plan_comes_back_from_its_document() -> None:
    made = a_plan()
    document = json.loads(encode(made.to_json(removals_file="p.parquet")))
    assert plan_from_json(document, removals=made.removals, path="p") == made


def test_the_same_plan_is_the_same_bytes() -> None:
    assert encode(a_plan().to_json()) == encode(a_plan().to_json())
    assert encode({"name": "é\x1b"}) == b'{\n  "name": "\\u00e9\\u001b"\n}\n'
    assert (
        encode({"name": "é\x1b", "ids": [1, 2]}, indent=None)
        == b'{"name": "\\u00e9\\u001b", "ids": [1, 2]}\n'
    )


def test_ids_of_64_bits_are_strings_and_counts_are_numbers() -> None:
    document = a_plan().to_json()
    assert document["base"]["refs"] == {"audit": "2", "main": str(BIG_ID)}
    assert document["base"]["next_row_id"] == str(BIG_ID)
    assert [verdict["id"] for verdict in document["verdicts"]] == ["1", "2"]
    assert (document["removals"]["count"], document["removals"]["bytes"]) == (1, 10)


def test_times_are_numbers_with_an_iso_8601_twin() -> None:
    document = a_plan().to_json()
    assert (document["as_of_ms"], document["as_of"]) == (1_700_000_000_123, "2023-11-14T22:13:20.123Z")
    assert document["verdicts"][0]["timestamp"] == "2023-11-14T22:13:20.123Z"


def test_a_time_that_no_calendar_has_is_still_a_number() -> None:
    verdict = replace(a_verdict("1", keep=True), timestamp_ms=BIG_ID)
    assert verdict.to_json()["timestamp_ms"] == BIG_ID
    assert verdict.to_json()["timestamp"] is None


LASTING = "2 files, 20 bytes, that would go stay for ever: they are outside"


def test_a_plan_says_which_warnings_are_of_files_that_stay_for_ever_and_keeps_that() -> None:
    made = a_plan().with_removals(removals_of(A), lasting=[LASTING])
    document = made.to_json()
    assert (document["warnings"], document["lasting"]) == (["a warning", LASTING], [LASTING])
    assert plan_from_json(document, removals=made.removals, path="p").lasting == (LASTING,)


def test_a_warning_of_something_else_that_only_reads_like_it_is_not_lasting() -> None:
    """A client's name is what somebody gave it."""
    assert a_plan(warnings=("what stays for ever: cannot read deletionVectors",)).lasting == ()


def test_a_plan_of_the_first_release_is_read_as_what_it_says() -> None:
    updates = ({"action": "remove-snapshots", "snapshot-ids": [BIG_ID, 2]},)
    made = a_plan(warnings=(LASTING, "another"), steps=(Step(name="expire", change=Change(updates=updates)),))
    document = first_plan(made.to_json())
    back = plan_from_json(document, removals=removals_of(A), path="p")
    # Where it is not said which warnings are lasting, none is kept quiet.
    assert back == replace(made, lasting=(LASTING, "another"))


def test_ids_of_a_plan_are_strings_and_come_back_as_numbers() -> None:
    updates = ({"action": "remove-snapshots", "snapshot-ids": [BIG_ID, 2]},)
    made = a_plan(steps=(Step(name="expire", change=Change(updates=updates)),))
    document = json.loads(json.dumps(made.to_json()))
    assert document["steps"][0]["change"]["updates"][0]["snapshot-ids"] == [str(BIG_ID), "2"]
    assert document["base"]["last_sequence_number"] == "7"
    assert plan_from_json(document, removals=removals_of(A), path="p") == made


@pytest.mark.parametrize("schema", ["iceberg-cli/plan/1", "iceberg-cli/plan/2"])
def test_a_sequence_number_of_the_other_version_is_an_error(schema: str) -> None:
    document = a_plan().to_json()
    first = first_plan(a_plan().to_json())
    other = {"iceberg-cli/plan/1": document, "iceberg-cli/plan/2": first}[schema]
    with pytest.raises(CorruptFile, match="last_sequence_number"):
        plan_from_json({**document, "base": other["base"], "schema": schema}, removals=None, path="p")


def test_a_plan_is_due_when_it_has_a_step() -> None:
    assert a_plan().to_json()["due"] is True
    assert a_plan(steps=()).to_json()["due"] is False


@pytest.mark.parametrize("schema", [None, "iceberg-cli/plan/3", "iceberg-cli/report/1"])
def test_a_document_of_another_kind_or_version_is_no_plan(schema: str | None) -> None:
    document = {**a_plan().to_json(), "schema": schema}
    with pytest.raises(UsageError, match="not a plan of this version"):
        plan_from_json(document, removals=Removals.none(), path="p")


def test_a_plan_with_the_removals_of_another_is_refused() -> None:
    document = a_plan().to_json()
    for other in (
        Removals.none(),
        removals_of(a_removal("/t/data/b")),
        removals_of(A, a_removal("/t/data/b")),
    ):
        with pytest.raises(CorruptFile, match="digest differs"):
            plan_from_json(document, removals=other, path="p")


def test_a_plan_goes_beyond_another_by_a_snapshot_a_ref_or_a_file_that_was_not_shown() -> None:
    shown = a_plan()
    assert shown.additions_over(shown) == ()
    more = a_plan(verdicts=(a_verdict("1", keep=False), a_verdict("2", keep=False)))
    assert more.additions_over(shown) == ("snapshot 2: why",)
    ref = a_plan(verdicts=(a_verdict("1", keep=False), a_verdict("1", keep=False, subject="tag")))
    assert ref.additions_over(shown) == ("tag 1: why",)
    file = a_plan(removals=removals_of(A, a_removal("/t/data/new")))
    assert file.additions_over(shown) == ("file /t/data/new",)


def test_a_plan_goes_beyond_another_where_a_ref_that_goes_points_to_another_snapshot_by_now() -> None:
    shown = a_plan(verdicts=(a_verdict("audit", keep=False, subject="branch"),))
    moved = replace(shown, base=replace(shown.base, refs={**shown.base.refs, "audit": 3}))
    assert moved.additions_over(shown) == ("branch audit, which points to another snapshot now",)
    gone = replace(shown, verdicts=(), base=replace(shown.base, refs={"main": BIG_ID}))
    assert gone.additions_over(shown) == ()
    kept = replace(moved, verdicts=(a_verdict("audit", keep=True, subject="branch"),))
    assert kept.additions_over(shown) == ()


def test_a_metadata_file_that_drops_out_of_the_log_is_not_beyond_what_was_shown() -> None:
    # Every commit in between drops another one, by the table's own properties.
    more = removals_of(A, a_removal("/t/metadata/v1.metadata.json", kind="metadata_file"))
    assert a_plan(removals=more).additions_over(a_plan()) == ()


@pytest.mark.parametrize("column", ["path", "as_written", "reason"])
def test_columns_of_paths_may_hold_more_than_two_gibibytes(column: str) -> None:
    # Offsets of 32 bits end at 2 GiB, which ten million paths of 216 characters reach.
    made = removals_of(A)
    again = Removals.in_memory(from_parquet(to_parquet(made.rows), "p"))
    types = [removals.rows.schema.field(column).type for removals in (made, again)]
    held = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in types]
    assert held == [pa.large_string()] * 2


# Told again from other fields, or the storage's; and objects whose content is the verb's, the format's or free.
UNREAD = {
    "schema",
    "as_of",
    "due",
    "offer",
    "not_applicable",
    "timestamp",
    "next_row_id",
    "file",
    "bytes",
    "by_kind",
    "draft",
}
CLOSED = {"options", "policy", "refs", "updates", "counts"}


def places(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every value inside a document whose type matters."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = []
    for key, each in inside:
        if key not in UNREAD:
            found += [(*above, key), *(() if key in CLOSED else places(each, (*above, key)))]
    return found


def test_a_plan_is_refused_where_one_value_of_any_field_has_another_type() -> None:
    document = a_plan().to_json(removals_file="p.parquet")
    edited_places = places(document)
    assert {("table", "format"), ("verdicts", 1, "keep"), ("steps", 0, "change")} <= {*edited_places}
    for place in edited_places:
        for value in (1.5, [[]], {"x": []}):
            edited = json.loads(json.dumps(document))
            target = edited
            for key in place[:-1]:
                target = target[key]
            if type(target[place[-1]]) is type(value) and place[-1] in CLOSED:
                continue
            target[place[-1]] = value
            with pytest.raises(CorruptFile):
                plan_from_json(edited, removals=removals_of(A), path="p")


def test_two_steps_of_one_name_are_refused() -> None:
    made = a_plan()
    document = replace(made, steps=made.steps * 2).to_json()
    with pytest.raises(CorruptFile, match="one name"):
        plan_from_json(document, removals=made.removals, path="p")


def test_a_plan_that_removes_less_is_covered_by_what_was_shown() -> None:
    less = a_plan(verdicts=(a_verdict("1", keep=True),), removals=Removals.none(), steps=())
    assert less.additions_over(a_plan()) == ()


def test_a_report_has_its_result_columns_at_the_top_level() -> None:
    report = Report(
        verb="expire-snapshots",
        operation_id="op",
        status="done",
        committed_snapshot_id=BIG_ID,
        counts={"deleted_data_files_count": 3},
        failed_deletes=({"path": "/t/x", "reason": "Permission denied"},),
    )
    table = {"name": "t", "location": "/t", "format": "iceberg"}
    document = report.to_json(table)
    assert document["schema"] == "iceberg-cli/report/1"
    assert document["deleted_data_files_count"] == 3
    assert document["committed_snapshot_id"] == str(BIG_ID)
    assert document["failed_deletes"] == [{"path": "/t/x", "reason": "Permission denied"}]
    assert document["table"] == table
