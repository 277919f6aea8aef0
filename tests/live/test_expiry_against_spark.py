"""The same expiry of the same table, by us and by Spark: equal files go, equal metadata stays, all rows stay.

Differences between the two, all of which the comparison leaves out and nothing else:

- `OF_THE_COMMIT`: fields of the metadata that say when and on top of which file somebody committed;
- Hadoop's checksum files (`.name.crc`), which go with the file they belong to on both sides;
- `_iceberg_cli/`, our journal, which Spark does not have.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.live.lake import Lake
from tests.live.tables import SCENARIOS, Scenario

pytestmark = pytest.mark.jvm

OF_THE_COMMIT = ("last-updated-ms", "metadata-log")


def now_ms() -> int:
    return time.time_ns() // 1_000_000  # noqa: TID251 - this is no pure code


def without_commit(metadata: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key not in OF_THE_COMMIT}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_we_remove_the_files_that_spark_removes_and_every_kept_snapshot_has_its_rows(
    lake: Lake, scenario: Scenario, plan_file: Path, tmp_path: Path
) -> None:
    table = scenario.name
    scenario.make(lake, table)
    time.sleep(0.005)
    cutoff_ms = now_ms()
    policy = ["--older-than", cutoff_ms, "--retain-last", scenario.retain_last]
    policy += ["--clean-metadata"] if scenario.clean_metadata else []
    before = lake.files(table)
    code, plan = lake.cli("plan", lake.argument(table), "expire-snapshots", "-o", plan_file, *policy)
    assert code == 0, plan
    assert lake.files(table) == before
    shown = set(pq.read_table(f"{plan_file}.removals.parquet")["path"].to_pylist())
    assert scenario.kinds_removed <= set(plan["removals"]["by_kind"])
    kept = [int(row["id"]) for row in plan["verdicts"] if row["subject"] == "snapshot" and row["keep"]]
    rows = {snapshot_id: lake.rows(table, snapshot_id, row_ids=scenario.row_ids) for snapshot_id in kept}
    saved = lake.save(table, tmp_path)

    code, report = lake.cli("expire-snapshots", lake.argument(table), "--yes", *policy)

    assert (code, report["status"]) == (0, "done"), report
    ours = before - lake.files(table)
    assert ours == shown
    assert lake.widowed_checksums(table) == []
    assert sorted(lake.snapshot_ids(table)) == sorted(kept)
    metadata = lake.metadata(table)
    assert lake.reachable(table) <= lake.files(table)
    for snapshot_id, expected in rows.items():
        assert lake.rows(table, snapshot_id, row_ids=scenario.row_ids) == expected
        plain = sorted((row[:-2] for row in expected), key=repr) if scenario.row_ids else expected
        assert lake.rows_of_pyiceberg(table, snapshot_id) == plain
        assert lake.rows_of_duckdb(table, snapshot_id) == plain

    lake.restore(table, saved)
    counts = lake.expire_with_spark(
        table, older_than_ms=cutoff_ms, retain_last=scenario.retain_last, clean=scenario.clean_metadata
    )

    assert before - lake.files(table) == ours
    assert {key: report.get(key, 0) for key in counts} == counts
    assert without_commit(lake.metadata(table)) == without_commit(metadata)
