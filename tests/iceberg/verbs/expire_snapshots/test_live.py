"""The same expiry of the same table, by us and by Spark: equal files go, equal metadata stays, all rows stay.

Differences between the two, all of which the comparison leaves out and nothing else:

- `OF_THE_COMMIT`: fields of the metadata that say when and on top of which file somebody committed;
- Hadoop's checksum files (`.name.crc`), which go with the file they belong to on both sides;
- `_iceberg_cli/`, our journal, which Spark does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.budget import FULL
from tests.spark_tables import Lake, Shape, Writing, later_ms, shapes

OF_THE_COMMIT = ("last-updated-ms", "metadata-log")


@dataclass(frozen=True)
class Scenario:
    """A table and the policy under which it is expired; every snapshot is older than the cut-off."""

    shape: Shape
    kinds_removed: frozenset[str]  # at least these go
    retain_last: int = 1
    clean_metadata: bool = False


_LISTS = frozenset({"manifest_list"})
_MANIFESTS = _LISTS | {"manifest_file"}
_DATA = _MANIFESTS | {"data_file"}
_DELETES = _MANIFESTS | {"position_delete_file"}
SCENARIOS = (
    Scenario(shapes.V1_EVOLVED_SPEC, _DATA, clean_metadata=True),
    Scenario(shapes.V2_EVOLVED_SPEC_AND_SCHEMA, _LISTS, retain_last=2, clean_metadata=True),
    Scenario(shapes.V2_POSITION_DELETES, _DELETES | _DATA, retain_last=2),
    Scenario(shapes.V2_OVERWRITTEN_PARTITIONS, _DATA),
    Scenario(shapes.V2_MERGED_MANIFESTS, _DATA),
    Scenario(shapes.REFS_WITH_RETENTION, _DATA),
    Scenario(shapes.ROLLED_BACK, _DATA, retain_last=2),
    Scenario(shapes.STAGED_WAP, _DATA, retain_last=2),
    Scenario(shapes.GZIP_METADATA, _DATA),
    Scenario(shapes.STATISTICS_FILES, _LISTS | {"statistics_file"}),
    Scenario(shapes.SPECIAL_PATHS, _DATA),
    Scenario(shapes.DATA_BESIDE_THE_TABLE, _DATA),
    Scenario(shapes.V3_DELETION_VECTORS, _DELETES, retain_last=2),
    Scenario(shapes.V3_SHARED_PUFFIN, _MANIFESTS),
    Scenario(shapes.V3_UPGRADED, _LISTS, retain_last=2),
)
ALWAYS = (
    shapes.V1_EVOLVED_SPEC, shapes.V2_POSITION_DELETES, shapes.REFS_WITH_RETENTION, shapes.STATISTICS_FILES,
    shapes.SPECIAL_PATHS, shapes.DATA_BESIDE_THE_TABLE, shapes.V3_DELETION_VECTORS, shapes.V3_UPGRADED,
)  # fmt: skip
# Each in one of the catalogs, in turn; in both with FULL_SUITES=1.
CASES = [
    pytest.param(
        catalog,
        scenario,
        id=f"{catalog}-{scenario.shape.name}",
        marks=() if scenario.shape in ALWAYS and place % 2 == turn else pytest.mark.deep,
    )
    for place, scenario in enumerate(SCENARIOS)
    for turn, catalog in enumerate(("hadoop", "jdbc"))
    if FULL or place % 2 == turn
]


def without_commit(metadata: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key not in OF_THE_COMMIT}


@pytest.mark.parametrize(("lake", "scenario"), CASES, indirect=["lake"])
def test_we_remove_the_files_that_spark_removes_and_every_kept_snapshot_has_its_rows(
    lake: Lake, written: Writing, scenario: Scenario, tmp_path: Path
) -> None:
    table, plan_file = written(lake, scenario.shape), tmp_path / "plan.json"
    row_ids = lake.metadata(table)["format-version"] >= 3
    cutoff_ms = later_ms()
    policy = ["--older-than", cutoff_ms, "--retain-last", scenario.retain_last]
    policy += ["--clean-metadata"] if scenario.clean_metadata else []
    before = lake.files(table)
    code, plan = lake.cli("plan", lake.argument(table), "expire-snapshots", "-o", plan_file, *policy)
    assert code == 0, plan
    assert lake.files(table) == before
    shown = set(pq.read_table(f"{plan_file}.removals.parquet")["path"].to_pylist())
    assert scenario.kinds_removed <= set(plan["removals"]["by_kind"])
    kept = [int(row["id"]) for row in plan["verdicts"] if row["subject"] == "snapshot" and row["keep"]]
    rows = {snapshot_id: lake.rows(table, snapshot_id, row_ids=row_ids) for snapshot_id in kept}
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
        assert lake.rows(table, snapshot_id, row_ids=row_ids) == expected
        plain = sorted((row[:-2] for row in expected), key=repr) if row_ids else expected
        assert lake.rows_of_pyiceberg(table, snapshot_id) == plain
        assert lake.rows_of_duckdb(table, snapshot_id) == plain

    lake.restore(table, saved)
    counts = lake.expire_with_spark(
        table, older_than_ms=cutoff_ms, retain_last=scenario.retain_last, clean=scenario.clean_metadata
    )

    assert before - lake.files(table) == ours
    assert {key: report.get(key, 0) for key in counts} == counts
    assert without_commit(lake.metadata(table)) == without_commit(metadata)
