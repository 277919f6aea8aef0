"""What our commits are to Delta Spark: its change feed, its own way to row ids, and its purge of deletion vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.delta_live import shapes
from tests.delta_live.lake import DeltaLake, actions, commits, rows_of_delta_rs


def high_water_mark(table: Path) -> int:
    """Of the newest commit that has one."""
    domains = (
        action["domainMetadata"]
        for version in reversed(commits(table))
        for action in actions(table, version)
        if "domainMetadata" in action
    )
    text = next(each["configuration"] for each in domains if each["domain"] == "delta.rowTracking")
    return int(text.partition('"rowIdHighWaterMark":')[2].split("}")[0].split(",")[0])


@pytest.mark.deep
def test_the_change_feed_shows_nothing_of_our_commits(delta_lake: DeltaLake) -> None:
    table, history = delta_lake.table(shapes.CHANGE_DATA)
    delta_lake.verb("upgrade-v3", table, "--feature", "deletionVectors")
    before = max(commits(table))
    delta_lake.sql(table, shapes.delete(4), shapes.delete(15))
    delta_lake.verb("assign-row-ids", table)
    delta_lake.verb("merge-dvs", table, "--min-files", 1)
    delta_lake.verb("rewrite-data-files", table, "--rewrite-all")
    newest = max(commits(table))
    assert newest >= before + 5
    query = (
        f"SELECT n, _change_type, _commit_version FROM table_changes_by_path('{table}', {before}, {newest})"
    )
    assert sorted(delta_lake.sql(table, query)) == [(4, "delete", before + 1), (15, "delete", before + 2)]
    assert rows_of_delta_rs(table) == [row for row in history[max(history)] if row[0] not in (4, 15)]
    # A stream over the same commits, but for the deletes, which it does not take.
    assert delta_lake.spark.streamed(table, before + 3) == []
    delta_lake.sql(table, shapes.insert(90, 91))
    assert sorted(row[0] for row in delta_lake.spark.streamed(table, before + 3)) == [90, 91]


def test_rows_get_ids_up_to_the_mark_that_delta_itself_would_reach(delta_lake: DeltaLake) -> None:
    ours, _ = delta_lake.table(shapes.TRACKED_LATER)
    theirs, _ = delta_lake.table(shapes.TRACKED_LATER)
    delta_lake.sql(theirs, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")

    delta_lake.verb("assign-row-ids", ours, "--batch-size", 1)

    assert high_water_mark(ours) == high_water_mark(theirs)
    mine, peer = (delta_lake.rows(table, ids=True) for table in (ours, theirs))
    assert {row[-2] for row in mine} == {row[-2] for row in peer}
    # Files that had ids keep them; which of the others comes first is each writer's own.
    given = {row[0]: row[-2] for row in peer if row[0] >= 20}
    assert {row[0]: row[-2] for row in mine if row[0] >= 20} == given
    delta_lake.sql(ours, "UPDATE {t} SET k = 'u' WHERE n = 3", "OPTIMIZE {t}")
    after = {row[0]: row[-2] for row in delta_lake.rows(ours, ids=True)}
    assert after == {row[0]: row[-2] for row in mine}
    properties: dict[str, Any] = dict(delta_lake.sql(ours, "SHOW TBLPROPERTIES {t}"))
    assert properties["delta.enableRowTracking"] == "true"


@pytest.mark.deep
def test_delta_purges_the_vectors_that_we_merged(delta_lake: DeltaLake) -> None:
    table, history = delta_lake.table(shapes.DELETION_VECTORS)
    delta_lake.verb("merge-dvs", table, "--min-files", 2)
    merged = [
        action["add"]["deletionVector"] for action in actions(table, max(commits(table))) if "add" in action
    ]
    assert len(merged) == 4
    assert len({each["pathOrInlineDv"] for each in merged}) == 1

    delta_lake.sql(table, shapes.delete(8), "REORG TABLE {t} APPLY (PURGE)", "VACUUM {t} RETAIN 0 HOURS")

    expected = [row for row in history[max(history)] if row[0] != 8]
    assert delta_lake.rows(table) == rows_of_delta_rs(table) == expected
    assert not list(table.rglob("*.bin"))
