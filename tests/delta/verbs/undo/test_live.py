"""After a VACUUM that waited was taken back Delta Spark reads the table, and finds the same files again."""

from __future__ import annotations

from tests.delta_live import shapes
from tests.delta_live.lake import DeltaLake, actions, commits, files, rows_of_delta_rs

NOW = ("--retention", "0s", "--unsafe-allow-short-retention")


def test_delta_spark_reads_the_table_and_finds_the_files_again(delta_lake: DeltaLake) -> None:
    table, history = delta_lake.table(shapes.DELETION_VECTORS)
    before, listed = files(table), delta_lake.dry_vacuum(table)
    assert listed
    waiting = delta_lake.verb("expire-snapshots", table, *NOW, "--grace", "1h")
    assert waiting["status"] == "waiting"
    assert delta_lake.verb("undo", table)["status"] == "done"
    assert before <= files(table)
    end = [action["commitInfo"] for action in actions(table, commits(table)[-1]) if "commitInfo" in action]
    assert [(each["operation"], each["operationParameters"]) for each in end] == [
        ("VACUUM END", {"status": "FAILED"})
    ]
    assert delta_lake.rows(table) == rows_of_delta_rs(table) == history[max(history)]
    assert delta_lake.dry_vacuum(table) == listed
