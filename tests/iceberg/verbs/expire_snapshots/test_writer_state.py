"""Which state of streaming writers an expiry takes away: each looks for it from the head along the parents left."""

from __future__ import annotations

from typing import Any

import pytest

from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.iceberg.verbs.expire_snapshots.rules import plan
from iceberg_cli.plan.plan import Base
from tests.builders import DAY_MS, LOCATION, NOW_MS, a_branch, a_snapshot, a_table

FLINK = {"flink.job-id": "j1", "flink.operator-id": "o1", "flink.max-committed-checkpoint-id": "12"}
LATER = {**FLINK, "flink.max-committed-checkpoint-id": "13"}
OTHER = {**FLINK, "flink.job-id": "j2"}
KAFKA = {"kafka.connect.offsets.control.sink": '{"0": 7}'}


def warnings(*summaries: dict[str, str], **policy: Any) -> list[str]:
    """Of an expiry of all but the newest of some old snapshots, each the parent of the next."""
    ages = range(10 + len(summaries), 10, -1)
    snapshots = [
        a_snapshot(number, age_ms=age * DAY_MS, summary=summary)
        for number, (age, summary) in enumerate(zip(ages, summaries, strict=True), 1)
    ]
    refs = policy.pop("refs", {})
    table = a_table(*snapshots, **({"refs": refs} if refs else {}))
    base = Base(table_uuid=table.table_uuid or "", version=f"{LOCATION}/metadata/v1.metadata.json")
    made = plan(table, ExpireSnapshots(**policy), base=base, table={"name": "t"}, as_of_ms=NOW_MS)
    return [each for each in made.warnings if "does not find its state" in each]


@pytest.mark.parametrize(
    ("summaries", "lost"),
    [
        pytest.param([FLINK, {}], ["Flink job j1, operator o1"], id="before a rewrite"),
        pytest.param([FLINK, LATER], [], id="a newer one stays"),
        pytest.param([FLINK, OTHER], ["Flink job j1, operator o1"], id="another job's stays"),
        pytest.param([KAFKA, {}], ["Kafka Connect sink control.sink"], id="Kafka Connect"),
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
