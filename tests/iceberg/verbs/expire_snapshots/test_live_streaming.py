"""A streaming query of Spark that is begun again after an expiry: with its state it skips what it has committed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.spark_tables import Lake, Shape, insert, write

pytestmark = [pytest.mark.jvm, pytest.mark.deep]


def stream(lake: Lake, table: str, source: Path, checkpoint: Path) -> None:
    """Commit what is new in a folder of JSON files, and end."""
    rows = lake.spark.readStream.schema("id BIGINT, k STRING").json(str(source))
    query = (
        rows.writeStream.format("iceberg")
        .outputMode("append")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(checkpoint))
        .toTable(lake.name(table))
    )
    query.awaitTermination()


@pytest.mark.parametrize("lake", ["hadoop"], indirect=True)
@pytest.mark.parametrize("keep", [True, False])
def test_a_query_of_spark_finds_its_last_epoch_only_where_its_state_is_kept(
    lake: Lake, tmp_path: Path, keep: bool
) -> None:
    table, source, checkpoint = f"streamed_{keep}".lower(), tmp_path / "source", tmp_path / "checkpoint"
    write(lake, table, Shape(version=2).then(insert(0, 0)))
    source.mkdir()
    (source / "a.json").write_text("\n".join(json.dumps({"id": each, "k": "s"}) for each in (1, 2)))
    stream(lake, table, source, checkpoint)
    lake.sql(table, insert(3, 3))
    lake.sql(table, insert(4, 4))
    target, option = lake.argument(table), ["--keep-writer-state"] if keep else []
    old = ["--older-than", "0s", "--retain-last", 1]
    code, plan = lake.cli("expire-snapshots", target, *old, *option, "--dry-run")
    assert code == 0
    [state] = [each for each in plan["verdicts"] if each["subject"] == "writer-state"]
    assert state["id"].startswith("of Spark query ")
    assert state["reason"].startswith("spark.sql.streaming.epochId=0 in snapshot ")
    assert state["keep"] is keep
    code, report = lake.cli("expire-snapshots", target, *old, *option, "--yes")
    assert (code, report["status"]) == (0, "done")
    assert len(lake.snapshot_ids(table)) == (3 if keep else 1)
    # It ended after its commit to the table, and before it noted that.
    for commit in (checkpoint / "commits").glob("*0*"):
        commit.unlink()
    stream(lake, table, source, checkpoint)
    twice = [] if keep else [1, 2]
    assert sorted(row[0] for row in lake.rows(table)) == sorted([0, 1, 2, 3, 4, *twice])
