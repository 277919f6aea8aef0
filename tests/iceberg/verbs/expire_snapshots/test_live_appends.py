"""Spark appends while we expire: what Spark was told is committed stays, and nothing that is reached goes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.spark_tables import Lake, Shape, insert, later_ms, write

APPENDS = 15
DONE, CONFLICT = 0, 12
PROPERTIES = {
    "commit.retry.num-retries": "30",
    "commit.retry.min-wait-ms": "5",
    "commit.retry.max-wait-ms": "100",
    # Expired manifests then name data files that live on in merged ones.
    "commit.manifest.min-count-to-merge": "3",
}


def ids(lake: Lake, table: str) -> list[int]:
    return sorted(row[0] for row in lake.rows(table))


@pytest.mark.jvm
@pytest.mark.deep
def test_every_append_that_spark_acknowledged_is_there_after_expiries_at_the_same_time(lake: Lake) -> None:
    table = "concurrent"
    shape = Shape(version=2, by="k", properties=PROPERTIES)
    write(lake, table, shape.then(insert(0, 1), insert(2, 3), insert(4, 5)))
    acknowledged: list[int] = []

    def append() -> None:
        for number in range(APPENDS):
            first = 100 + 2 * number
            lake.sql(table, insert(first, first + 1))
            acknowledged.extend((first, first + 1))

    writer = threading.Thread(target=append)
    writer.start()
    outcomes = []
    while writer.is_alive():
        target = lake.argument(table)
        code, report = lake.cli(
            "expire-snapshots", target, "--yes", "--older-than", "400ms", "--retain-last", 2
        )
        outcomes.append((code, report.get("status")))
    writer.join()

    assert len(acknowledged) == 2 * APPENDS
    assert {code for code, _ in outcomes} <= {DONE, CONFLICT}, outcomes
    assert outcomes.count((DONE, "done")) >= 2, outcomes
    assert ids(lake, table) == sorted([*range(6), *acknowledged])
    assert lake.reachable(table) <= lake.files(table)
    assert len(lake.snapshot_ids(table)) < 3 + APPENDS


def test_a_saved_plan_is_carried_out_on_top_of_an_append_that_came_after_it(
    lake: Lake, tmp_path: Path
) -> None:
    table, plan_file = "planned_before", tmp_path / "plan.json"
    write(lake, table, Shape(version=3).then(insert(0, 1), "INSERT OVERWRITE {t} VALUES (10, 'k')"))
    between_ms = later_ms()
    lake.sql(table, insert(20, 21))
    before = lake.files(table)
    code, plan = lake.cli(
        "plan", lake.argument(table), "expire-snapshots", "-o", plan_file, "--older-than", between_ms
    )
    assert code == 0
    lake.sql(table, insert(30, 31))

    code, report = lake.cli("apply", str(plan_file), "--yes")

    assert (code, report["status"]) == (DONE, "done"), report
    assert len(before - lake.files(table)) == plan["removals"]["count"] > 0
    assert ids(lake, table) == [10, 20, 21, 30, 31]
    assert len(lake.snapshot_ids(table)) == 2
    assert lake.reachable(table) <= lake.files(table)


def test_what_an_append_makes_due_is_kept_by_a_saved_plan_that_does_not_list_it(
    lake: Lake, tmp_path: Path
) -> None:
    table, plan_file = "planned_too_early", tmp_path / "plan.json"
    write(lake, table, Shape(version=2).then(insert(0, 1), insert(10, 11)))
    former_head = lake.snapshot_ids(table)[-1]
    policy = ("expire-snapshots", "-o", plan_file, "--older-than", "0s")
    code, _ = lake.cli("plan", lake.argument(table), *policy)
    assert code == 0
    lake.sql(table, insert(20, 21))

    code, report = lake.cli("apply", str(plan_file), "--yes")

    assert (code, report["status"]) == (DONE, "done"), report
    assert former_head in lake.snapshot_ids(table)
    assert len(lake.snapshot_ids(table)) == 2
    assert lake.reachable(table) <= lake.files(table)
    assert ids(lake, table) == [0, 1, 10, 11, 20, 21]
