"""Which state of streaming writers an expiry takes away: each looks for it from the head along the parents left."""

from __future__ import annotations

from typing import Any

import pytest

from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.iceberg.verbs.expire_snapshots.rules import plan
from iceberg_cli.plan.plan import Base, Plan
from iceberg_cli.plan.writer_loss import loss_notes
from tests.builders import DAY_MS, LOCATION, NOW_MS, a_branch, a_snapshot, a_table

FLINK = {"flink.job-id": "j1", "flink.operator-id": "o1", "flink.max-committed-checkpoint-id": "12"}
LATER = {**FLINK, "flink.max-committed-checkpoint-id": "13"}
OTHER = {**FLINK, "flink.job-id": "j2"}
SPARK = {"spark.sql.streaming.queryId": "q1", "spark.sql.streaming.epochId": "41"}
KAFKA = {"kafka.connect.offsets.control.sink": '{"0": 7}'}


def expiry(*summaries: dict[str, str], **policy: Any) -> Plan:
    """An expiry of all but the newest of some old snapshots, each the parent of the next."""
    ages = range(10 + len(summaries), 10, -1)
    snapshots = [
        a_snapshot(number, age_ms=age * DAY_MS, summary=summary)
        for number, (age, summary) in enumerate(zip(ages, summaries, strict=True), 1)
    ]
    refs = policy.pop("refs", {})
    table = a_table(*snapshots, **({"refs": refs} if refs else {}))
    base = Base(table_uuid=table.table_uuid or "", version=f"{LOCATION}/metadata/v1.metadata.json")
    return plan(table, ExpireSnapshots(**policy), base=base, table={"name": "t"}, as_of_ms=NOW_MS)


def warnings(*summaries: dict[str, str], **policy: Any) -> list[str]:
    """Of states that are lost."""
    made = expiry(*summaries, **policy)
    return [each for each in made.warnings if "does not find its state" in each]


def gone(*summaries: dict[str, str], **policy: Any) -> set[int]:
    """The snapshots that an expiry removes which keeps the states of writers."""
    return {*expiry(*summaries, keep_writer_state=True, **policy).removed_snapshot_ids}


@pytest.mark.parametrize(
    ("summaries", "lost"),
    [
        pytest.param([FLINK, {}], ["Flink job j1, operator o1"], id="before a rewrite"),
        pytest.param([FLINK, LATER], [], id="a newer one stays"),
        pytest.param([FLINK, OTHER], ["Flink job j1, operator o1"], id="another job's stays"),
        pytest.param([KAFKA, {}], ["Kafka Connect sink control.sink"], id="Kafka Connect"),
        pytest.param([SPARK, {}], ["Spark query q1"], id="Spark"),
        pytest.param([{**FLINK, **KAFKA}, {}], ["Flink job j1", "Kafka Connect"], id="two writers"),
        pytest.param([{}, {}], [], id="none"),
    ],
)
def test_a_writer_whose_newest_state_goes_is_named(summaries: list[dict[str, str]], lost: list[str]) -> None:
    found = warnings(*summaries)
    assert len(found) == len(lost)
    assert all(text.startswith(writer) for text, writer in zip(found, lost, strict=True))
    assert all("snapshot 1." in text for text in found)


def test_the_newest_of_two_states_is_named() -> None:
    (found,) = warnings(FLINK, LATER, {})
    assert "flink.max-committed-checkpoint-id=13 is in snapshot 2." in found


def test_what_is_kept_by_count_is_found() -> None:
    assert warnings(FLINK, {}, retain_last=2) == []


def test_a_kept_snapshot_behind_one_that_goes_is_not_found() -> None:
    found = warnings(FLINK, {}, {}, refs={"main": a_branch(3), "t": {"snapshot-id": 1, "type": "tag"}})
    assert len(found) == 1
    assert "on branch main" in found[0]


def test_each_branch_has_its_own_state() -> None:
    found = warnings(FLINK, LATER, {}, refs={"main": a_branch(3), "audit": a_branch(1)})
    assert [text.partition(" on branch ")[2].partition(" ")[0] for text in found] == ["main"]


@pytest.mark.parametrize(
    ("summaries", "going"),
    [
        pytest.param([{}, FLINK, {}, {}], {1}, id="what it walks along stays with it"),
        pytest.param([FLINK, LATER, {}], {1}, id="the older of two states goes"),
        pytest.param([{}, OTHER, FLINK, {}], {1}, id="that of each job stays"),
        pytest.param([SPARK, KAFKA, {}], set(), id="whatever writes"),
        pytest.param([{}, {}, {}], {1, 2}, id="without any it is as ever"),
    ],
)
def test_the_newest_state_of_each_writer_is_still_found(
    summaries: list[dict[str, str]], going: set[int]
) -> None:
    assert gone(*summaries) == going
    made = expiry(*summaries, keep_writer_state=True)
    assert [text for text in made.warnings if "does not find its state" in text] == []
    assert all(each.keep for each in made.verdicts if each.subject == "writer-state")


def test_a_branch_that_goes_keeps_no_state() -> None:
    audit = {**a_branch(2), "max-ref-age-ms": DAY_MS}
    assert gone(FLINK, {}, {}, refs={"main": a_branch(3), "audit": audit}) == set()
    summaries = ({}, FLINK, {})
    snapshots = [
        a_snapshot(1, age_ms=13 * DAY_MS, summary=summaries[0]),
        a_snapshot(2, age_ms=12 * DAY_MS, parent=1, summary=summaries[1]),
        a_snapshot(3, age_ms=11 * DAY_MS, parent=1, summary=summaries[2]),
    ]
    table = a_table(*snapshots, refs={"main": a_branch(3), "audit": audit})
    base = Base(table_uuid=table.table_uuid or "", version=f"{LOCATION}/metadata/v1.metadata.json")
    policy = ExpireSnapshots(keep_writer_state=True)
    made = plan(table, policy, base=base, table={"name": "t"}, as_of_ms=NOW_MS)
    assert {*made.removed_snapshot_ids} == {1, 2}


def test_a_named_snapshot_that_holds_a_state_blocks_what_keeps_it() -> None:
    made = expiry(FLINK, {}, {}, keep_writer_state=True, snapshot_ids=[1])
    assert made.blocked_by == (
        "snapshot 1 was named, but kept: Flink job j1, operator o1 has its state in it",
    )
    assert expiry(FLINK, {}, {}, snapshot_ids=[1]).blocked_by == ()


def test_each_writer_is_named_with_the_snapshot_that_has_its_state() -> None:
    made = expiry(FLINK, LATER, OTHER, {}, retain_last=2)
    assert [
        (each.id, each.keep, each.reason) for each in made.verdicts if each.subject == "writer-state"
    ] == [
        (
            "of Flink job j2, operator o1 on branch main",
            True,
            "flink.max-committed-checkpoint-id=12 in snapshot 3 is still found",
        ),
        (
            "of Flink job j1, operator o1 on branch main",
            False,
            "flink.max-committed-checkpoint-id=13 in snapshot 2 is not found any more",
        ),
    ]
    flink = "writer state of Flink job {}, operator o1 on branch main: flink.max-committed-checkpoint-id={}"
    assert loss_notes(made) == (
        f"{flink.format('j2', 12)} in snapshot 3 is still found",
        f"{flink.format('j1', 13)} in snapshot 2 is not found any more",
    )


def test_old_snapshots_that_stay_for_states_alone_are_told() -> None:
    summaries = [FLINK, *[{}] * 30]
    (warning,) = [text for text in expiry(*summaries, keep_writer_state=True).warnings if "alone" in text]
    assert warning.startswith("11 snapshots of more than 30 d stay for the state of streaming writers alone.")
    assert [
        text for text in expiry(*summaries[:20], keep_writer_state=True).warnings if "alone" in text
    ] == []
