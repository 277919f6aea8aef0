"""After a VACUUM that waited was taken back Delta Spark reads the table and its history, and vacuums again."""

from __future__ import annotations

from tests.delta_live import shapes
from tests.delta_live.lake import DeltaLake, delta_lake, delta_spark, files, rows_of_delta_rs

__all__ = ["delta_lake", "delta_spark"]
NOW = ("--retention", "0s", "--unsafe-allow-short-retention")


def test_delta_spark_sees_a_vacuum_that_failed_and_finds_the_files_again(delta_lake: DeltaLake) -> None:
    table, history = delta_lake.table(shapes.DELETION_VECTORS)
    before, listed = files(table), delta_lake.dry_vacuum(table)
    assert listed
    waiting = delta_lake.verb("expire-snapshots", table, *NOW, "--grace", "1h")
    assert waiting["status"] == "waiting"
    assert delta_lake.verb("undo", table)["status"] == "done"
    assert before <= files(table)
    rows = delta_lake.sql(table, "SELECT operation, operationParameters FROM (DESCRIBE HISTORY {t}) LIMIT 2")
    assert [row[0] for row in rows] == ["VACUUM END", "VACUUM START"]
    assert "FAILED" in str(rows[0][1])
    assert delta_lake.rows(table) == rows_of_delta_rs(table) == history[max(history)]
    assert delta_lake.dry_vacuum(table) == listed
