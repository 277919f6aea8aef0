"""merge-dvs on tables that Spark writes: same rows, same row ids, before and after; then Spark goes on writing.

The hazards have the letters of the reports about Iceberg Java's `rewrite_position_delete_files` (1.11 and 1.12). For
b1 and b4 the same table shows that Java still falls into the trap.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.cli.context import now_ms
from iceberg_cli.formats.open import open_table
from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
from tests.budget import deep_unless
from tests.spark_tables import COMPACT, UPGRADE, Lake, Shape, Writing, insert, shapes, write

COLUMNS = "content, file_path, file_format, spec_id, record_count, file_size_in_bytes, referenced_data_file, content_offset, content_size_in_bytes"  # noqa: E501


def delete_files(lake: Lake, table: str) -> list[tuple[Any, ...]]:
    """Iceberg Java's own listing."""
    return sorted(tuple(row) for row in lake.sql(table, f"SELECT {COLUMNS} FROM {{t}}.delete_files"))


def listed(lake: Lake, table: str) -> list[tuple[Any, ...]]:
    """The same by `inspect`."""
    code, document = lake.cli("inspect", lake.argument(table), "deletes")
    assert code == 0, document
    names = COLUMNS.split(", ")
    return sorted(tuple(row[name] for name in names) for row in document["rows"])


@pytest.mark.parametrize("granularity", deep_unless(["partition"], ["partition", "file"]))
def test_rows_and_row_ids_stay_while_position_deletes_become_deletion_vectors(
    lake: Lake, written: Writing, granularity: str
) -> None:
    table = written(lake, shapes.upgraded_with_both_deletes(granularity))
    rows = lake.rows(table, row_ids=True)
    before = delete_files(lake, table)
    assert {row[2] for row in before} == {"PARQUET", "PUFFIN"}

    report = lake.verb("merge-dvs", table)

    assert report["status"] == "done"
    assert lake.rows(table, row_ids=True) == rows
    after = delete_files(lake, table)
    assert {row[2] for row in after} == {"PUFFIN"}
    assert listed(lake, table) == after
    summary = lake.metadata(table)["snapshots"][-1]["summary"]
    assert summary["operation"] == "replace"
    assert int(summary["total-delete-files"]) == len(after)
    assert int(summary["total-position-deletes"]) == sum(row[4] for row in after)
    assert report["added_delete_files_count"] == int(summary["added-dvs"])
    assert lake.verb("merge-dvs", table)["status"] == "nothing_to_do"


def test_spark_goes_on_and_each_merge_keeps_the_rows(lake: Lake, written: Writing) -> None:
    table = written(lake, shapes.upgraded_with_both_deletes("partition"))
    rng = random.Random(7)
    for round_number in range(4):
        ids = sorted(row[0] for row in lake.rows(table))
        some = ", ".join(str(each) for each in rng.sample(ids, 3))
        statements = [
            f"DELETE FROM {{t}} WHERE id IN ({some})",
            f"UPDATE {{t}} SET k = 'k1' WHERE id IN ({some})",
            f"INSERT INTO {{t}} VALUES ({1000 + round_number}, 'k0')",
            COMPACT,
        ]
        lake.sql(table, statements[round_number])
        rows = lake.rows(table, row_ids=True)
        lake.verb("merge-dvs", table, "--min-files", 2)
        assert lake.rows(table, row_ids=True) == rows
        assert lake.verb("merge-dvs", table, "--min-files", 2)["status"] == "nothing_to_do"


def test_small_puffin_files_become_one_and_java_reads_it(lake: Lake) -> None:
    table = "small_puffins"
    shape = Shape(version=3, by="k").then(
        insert(0, 199, "concat('k', id % 6)"),
        *(f"DELETE FROM {{t}} WHERE k = 'k{number}' AND id < {60 + number}" for number in range(6)),
    )
    write(lake, table, shape)
    rows = lake.rows(table, row_ids=True)
    assert len({row[1] for row in delete_files(lake, table)}) == 6

    lake.verb("merge-dvs", table)

    assert lake.rows(table, row_ids=True) == rows
    assert len({row[1] for row in delete_files(lake, table)}) == 1
    assert lake.rows_of_duckdb(table, lake.metadata(table)["current-snapshot-id"]) == lake.rows(table)


@pytest.mark.parametrize("granularity", deep_unless(["partition"], ["partition", "file"]))
def test_position_deletes_that_a_compaction_left_dangling_leave_version_2_and_every_reader_sees_the_same(
    hadoop: Lake, granularity: str
) -> None:
    table = f"dangling_{granularity}"
    shape = Shape(version=2, by="k", properties={"write.delete.granularity": granularity}).then(
        insert(0, 19),
        insert(20, 39),
        *(f"DELETE FROM {{t}} WHERE id % 7 = {rest}" for rest in (1, 2)),
        "CALL {c}.system.rewrite_data_files(table => '{t}', where => 'k = \"k0\"',"
        " options => map('rewrite-all', 'true'))",
    )
    write(hadoop, table, shape)

    def rows_of_all() -> list[list[tuple[Any, ...]]]:
        head = hadoop.metadata(table)["current-snapshot-id"]
        return [
            hadoop.rows(table), hadoop.rows_of_pyiceberg(table, head), hadoop.rows_of_duckdb(table, head)
        ]  # fmt: skip

    def dangling() -> set[str]:
        """By Iceberg Java's own tables: delete files whose rows name no live data file."""
        named = hadoop.sql(table, "SELECT delete_file_path, file_path FROM {t}.position_deletes")
        live = {row[0] for row in hadoop.sql(table, "SELECT file_path FROM {t}.data_files")}
        return {row[0] for row in named} - {row[0] for row in named if row[1] in live}

    rows, before, due = rows_of_all(), delete_files(hadoop, table), dangling()
    assert rows[0] == rows[1] == rows[2]
    assert 0 < len(due) < len(before)

    report = hadoop.verb("merge-dvs", table)

    assert report["rewritten_delete_files_count"] == len(due)
    assert rows_of_all() == rows
    assert delete_files(hadoop, table) == [row for row in before if row[1] not in due]
    assert hadoop.metadata(table)["format-version"] == 2
    assert hadoop.verb("merge-dvs", table)["status"] == "nothing_to_do"
    hadoop.sql(table, "DELETE FROM {t} WHERE id IN (3, 21)")
    hadoop.sql(table, COMPACT)
    rows = rows_of_all()
    hadoop.verb("merge-dvs", table)
    assert delete_files(hadoop, table) == []
    assert rows_of_all() == rows


def test_a_data_file_without_rows_is_reported_with_a_command_that_drops_it(hadoop: Lake) -> None:
    table = "emptied"
    shape = Shape(version=2, properties={"write.delete.granularity": "file"}).then(
        insert(0, 9),
        insert(10, 19),
        "DELETE FROM {t} WHERE id < 6",
        UPGRADE,
        "DELETE FROM {t} WHERE id IN (6, 7, 8, 9) AND length(k) > 0",
    )
    write(hadoop, table, shape)
    code, plan = hadoop.cli("merge-dvs", hadoop.argument(table), "--dry-run")
    assert code == 0
    if len(hadoop.sql(table, "SELECT 1 FROM {t}.data_files")) == 1:
        pytest.skip("Spark drops the data file itself")
    assert any("delete-ratio-threshold" in warning for warning in plan["warnings"]), plan
    hadoop.sql(
        table,
        "CALL {c}.system.rewrite_data_files(table => '{t}',"
        " options => map('delete-ratio-threshold', '1.0', 'min-input-files', '1'))",
    )
    assert len(hadoop.sql(table, "SELECT 1 FROM {t}.data_files")) == 1


def rewrite(lake: Lake, table: str, options: dict[str, object]) -> None:
    """Iceberg Java's own procedure."""
    pairs = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
    lake.sql(
        table, f"CALL {{c}}.system.rewrite_position_delete_files(table => '{{t}}', options => map({pairs}))"
    )


def set_target(lake: Lake, table: str, size: int) -> None:
    """Ask for files of this size, also for one that the command line does not take."""
    lake.sql(table, f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.delete.target-file-size-bytes' = '{size}')")


# H-b1: only some of the delete files of a data file are chosen


def test_h_b1_rows_do_not_come_back_when_delete_files_of_one_size_would_be_enough(
    hadoop: Lake, written: Writing, tmp_path: Path
) -> None:
    table = written(hadoop, shapes.TWO_SIZES_OF_DELETES)
    rows = hadoop.rows(table)
    sizes = sorted(row[5] for row in delete_files(hadoop, table))
    saved = hadoop.save(table, tmp_path)
    for size in sizes:
        hadoop.restore(table, saved)
        set_target(hadoop, table, size)
        hadoop.verb("merge-dvs", table)
        assert hadoop.rows(table) == rows
        assert len(delete_files(hadoop, table)) == 1

    hadoop.restore(table, saved)
    largest = sizes[-1]
    limits = {"target": largest, "min": largest - 10, "max": largest + 10}
    options: dict[str, object] = {f"{name}-file-size-bytes": size for name, size in limits.items()}
    rewrite(hadoop, table, {**options, "min-input-files": 2})
    assert len(hadoop.rows(table)) > len(rows), (
        "Java no longer falls into this trap: this table proves nothing"
    )


# H-b4: the work is split, and each part makes its own deletion vector


def test_h_b4_no_data_file_gets_two_deletion_vectors(hadoop: Lake, written: Writing, tmp_path: Path) -> None:
    table = written(hadoop, shapes.TWO_SIZES_OF_DELETES)
    rows = hadoop.rows(table)
    saved = hadoop.save(table, tmp_path)
    set_target(hadoop, table, 1)
    hadoop.verb("merge-dvs", table, "--min-files", 1)
    assert hadoop.rows(table) == rows

    hadoop.restore(table, saved)
    split = {"rewrite-all": "true", "max-file-group-size-bytes": 2000, "partial-progress.enabled": "true"}
    rewrite(hadoop, table, split)
    with pytest.raises(Exception, match="multiple DVs"):
        hadoop.rows(table)
    # The table is broken now, and we leave it as it is.
    code, plan = hadoop.cli("merge-dvs", hadoop.argument(table), "--dry-run")
    assert code == 0
    assert any("more than one deletion vector" in warning for warning in plan["warnings"])


# H-d1: a concurrent DELETE


Disturbance = Callable[[Lake, str], None]


def a_delete(lake: Lake, table: str) -> None:
    lake.sql(table, "DELETE FROM {t} WHERE id IN (5, 85)")


def an_update(lake: Lake, table: str) -> None:
    lake.sql(table, "UPDATE {t} SET k = 'k1' WHERE id IN (5, 86)")


def a_compaction(lake: Lake, table: str) -> None:
    lake.sql(table, COMPACT)


def an_append(lake: Lake, table: str) -> None:
    lake.sql(table, "INSERT INTO {t} VALUES (900, 'k0')")


@pytest.mark.parametrize("disturb", [a_delete, an_update, a_compaction, an_append])
@pytest.mark.parametrize("phase", ["planned", "staged"])
def test_h_d1_a_concurrent_commit_never_leads_to_two_deletion_vectors_or_a_lost_delete(
    hadoop: Lake, written: Writing, disturb: Disturbance, phase: str
) -> None:
    from iceberg_cli.operation.apply import apply
    from iceberg_cli.operation.runtime import system_runtime

    table = written(hadoop, shapes.upgraded_with_both_deletes("partition"))
    verb = VERBS["merge-dvs"]
    opened = open_table(
        hadoop.argument(table), storage_options={}, catalog_config=None, on_event=lambda _: None
    )
    plan = verb.plan(opened, MergeDvs.from_json(POLICY), as_of_ms=now_ms())
    assert plan.plan.due
    runtime = system_runtime(
        on_event=lambda _: None, host="here", process_id=1, process_started="", limit_deletes=None,
        deadline_ms=None, stop_requested=lambda: False,
    )  # fmt: skip
    drawn: list[str] = []

    def new_uuid() -> str:
        """The first names the operation; the second one is drawn when everything is staged."""
        drawn.append(runtime.new_uuid())
        if len(drawn) == 2 and phase == "staged":
            disturb(hadoop, table)
        return drawn[-1]

    if phase == "planned":
        disturb(hadoop, table)

    report = apply(plan, opened, verb, replace(runtime, new_uuid=new_uuid))

    assert len(drawn) > (phase == "staged")
    assert report.status == "done"
    assert report.committed_snapshot_id is not None
    parent = next(
        s["parent-snapshot-id"]
        for s in hadoop.metadata(table)["snapshots"]
        if s["snapshot-id"] == report.committed_snapshot_id
    )
    assert hadoop.rows(table, row_ids=True) == hadoop.rows(table, parent, row_ids=True)


POLICY = {
    "target_size_bytes": None,
    "min_files": None,
    "dead_ratio": None,
    "where": None,
    "keep_dangling": False,
}
