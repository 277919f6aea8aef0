"""Tables that Spark writes, rewritten: Spark, PyIceberg and DuckDB see the same rows, and Spark goes on writing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from iceberg_cli.cli.context import now_ms
from iceberg_cli.formats.open import open_table
from iceberg_cli.iceberg.verbs.rewrite_data_files.plan import VERB
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.operation.parts import apply
from iceberg_cli.operation.runtime import system_runtime
from iceberg_cli.plan.report import Report
from tests.spark_tables import UPGRADE, Lake, Shape, insert, shapes, write

pytestmark = pytest.mark.deep

SHAPES = {
    "v2 deletes": Shape(version=2, by="k").then(
        *(insert(first, first + 9) for first in (0, 20, 40, 60)),
        "DELETE FROM {t} WHERE id % 7 = 1",
        insert(80, 89),
        "DELETE FROM {t} WHERE id IN (3, 85)",
        "UPDATE {t} SET k = 'k9' WHERE id = 45",
    ),
    "v3 vectors": Shape(version=3, by="k").then(
        *(insert(first, first + 9) for first in (0, 20, 40, 60)),
        "DELETE FROM {t} WHERE id % 7 = 1",
        insert(80, 89),
        "UPDATE {t} SET k = 'k1' WHERE id % 5 = 2",
    ),
    "v1": Shape(version=1, by="k").then(
        *(insert(first, first + 9) for first in (0, 20, 40, 60)),
        "DELETE FROM {t} WHERE id % 7 = 1",
        insert(80, 89),
    ),
    "v2 specs": shapes.V2_EVOLVED_SPEC_AND_SCHEMA,
    "v2 manifests": shapes.V2_MANIFESTS_OF_THREE_SPECS,
    "v2 overwritten": shapes.V2_OVERWRITTEN_PARTITIONS,
}


def rewritten(lake: Lake, table: str, meanwhile: Callable[[], None] | None = None, **values: Any) -> Report:
    opened = open_table(
        lake.argument(table), storage_options={}, catalog_config=None, on_event=lambda _: None
    )
    planned = VERB.plan(opened, RewriteDataFiles(**values), as_of_ms=now_ms())
    assert planned.plan.blocked_by == ()
    assert planned.plan.due
    if meanwhile is not None:
        meanwhile()
    runtime = system_runtime(on_event=lambda _: None, host="here", process_id=1)
    return apply(planned, opened, VERB, runtime)


def check_rows(lake: Lake, table: str, *, row_ids: bool) -> None:
    """Of our snapshot and of its parent, by three readers."""
    document = lake.metadata(table)
    head = document["current-snapshot-id"]
    parent = next(each["parent-snapshot-id"] for each in document["snapshots"] if each["snapshot-id"] == head)
    rows = lake.rows(table, parent, row_ids=row_ids)
    assert lake.rows(table, head, row_ids=row_ids) == rows
    plain = lake.rows(table, head)
    assert lake.rows_of_duckdb(table, head) == plain
    if not row_ids:
        assert lake.rows_of_pyiceberg(table, head) == plain


@pytest.mark.parametrize("name", SHAPES)
def test_three_readers_see_the_rows_of_the_parent(hadoop: Lake, name: str) -> None:
    table = f"rewritten_{name.replace(' ', '_')}"
    write(hadoop, table, SHAPES[name])
    row_ids = name.startswith("v3")
    report = rewritten(hadoop, table, min_input_files=2, rewrite_all=True)
    assert report.status == "done"
    check_rows(hadoop, table, row_ids=row_ids)


@pytest.mark.parametrize("name", ["v2 deletes", "v3 vectors"])
def test_bounds_of_new_files_prune_no_row(hadoop: Lake, name: str) -> None:
    table = f"pruned_{name.replace(' ', '_')}"
    write(hadoop, table, SHAPES[name])
    rows = hadoop.rows(table)
    rewritten(hadoop, table, min_input_files=2)
    ids = sorted(row[0] for row in rows)
    for number in (ids[0], ids[len(ids) // 2], ids[-1]):
        for sign in ("=", "<", "<=", ">", ">="):
            found = hadoop.sql(table, f"SELECT count(*) FROM {{t}} WHERE id {sign} {number}")[0][0]
            compare: Any = {
                "=": int.__eq__,
                "<": int.__lt__,
                "<=": int.__le__,
                ">": int.__gt__,
                ">=": int.__ge__,
            }
            assert found == sum(compare[sign](each, number) for each in ids)
    for k in {row[1] for row in rows}:
        found = hadoop.sql(table, f"SELECT count(*) FROM {{t}} WHERE k = '{k}'")[0][0]
        assert found == sum(row[1] == k for row in rows)


@pytest.mark.parametrize("name", ["v2 deletes", "v3 vectors"])
def test_deletes_of_spark_that_arrive_are_moved_and_spark_goes_on(hadoop: Lake, name: str) -> None:
    table = f"beside_{name.replace(' ', '_')}"
    write(hadoop, table, SHAPES[name])
    row_ids = name.startswith("v3")

    def meanwhile() -> None:
        hadoop.sql(table, "DELETE FROM {t} WHERE id IN (2, 25, 62)")
        hadoop.sql(table, "UPDATE {t} SET k = 'k0' WHERE id = 41")

    report = rewritten(hadoop, table, meanwhile, min_input_files=2)
    assert report.status == "done"
    assert report.counts["remapped_deletes_count"] == 4
    check_rows(hadoop, table, row_ids=row_ids)
    rows = hadoop.rows(table)
    hadoop.sql(table, "DELETE FROM {t} WHERE id IN (4, 26)")
    hadoop.sql(table, "MERGE INTO {t} USING (SELECT 5 AS id) s ON {t}.id = s.id WHEN MATCHED THEN DELETE")
    rows = [row for row in rows if row[0] not in (4, 26, 5)]
    assert hadoop.rows(table) == rows
    hadoop.sql(
        table, "CALL {c}.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))"
    )
    assert hadoop.rows(table) == rows
    if not row_ids:
        hadoop.sql(table, "CALL {c}.system.rewrite_position_delete_files('{t}')")
        assert hadoop.rows(table) == rows


MOVING = {
    "v2 specs": SHAPES["v2 specs"],
    "v2 manifests": SHAPES["v2 manifests"],
    "v3 to a bucket": Shape(version=3, columns="id bigint, k string, at timestamp_ntz", by="k").then(
        *(
            insert(
                first, first + 9, "concat('k', id % 3), cast(timestamp_seconds(id * 40000) as timestamp_ntz)"
            )
            for first in (0, 20, 40)
        ),
        "DELETE FROM {t} WHERE id % 7 = 1",
        "ALTER TABLE {t} DROP PARTITION FIELD k",
        "ALTER TABLE {t} ADD PARTITION FIELD days(at)",
        "ALTER TABLE {t} ADD PARTITION FIELD bucket(3, k)",
        insert(60, 63, "concat('k', id % 3), cast(timestamp_seconds(id * 40000) as timestamp_ntz)"),
    ),
}


@pytest.mark.parametrize("name", MOVING)
def test_spark_finds_rows_in_the_partitions_to_which_they_are_moved(hadoop: Lake, name: str) -> None:
    table = f"moved_{name.replace(' ', '_')}"
    write(hadoop, table, MOVING[name])
    before = hadoop.rows(table)
    row_ids = name.startswith("v3")

    def meanwhile() -> None:
        hadoop.sql(table, "DELETE FROM {t} WHERE id IN (2, 25, 41, 120)")

    report = rewritten(hadoop, table, meanwhile, output_spec="current", rewrite_all=True)
    assert report.status == "done"
    check_rows(hadoop, table, row_ids=row_ids)
    rows = [row for row in before if row[0] not in (2, 25, 41, 120)]
    assert hadoop.rows(table) == rows
    document = hadoop.metadata(table)
    specs = hadoop.sql(table, "SELECT DISTINCT spec_id FROM {t}.files WHERE content = 0")
    assert [each[0] for each in specs] == [document["default-spec-id"]]
    # Spark skips files by their partitions: rows in wrong ones would not be found.
    for column in range(1, len(rows[0])):
        names = [each["name"] for each in document["schemas"][-1]["fields"]]
        for row in rows[:: max(1, len(rows) // 12)]:
            value = row[column]
            if value is None:
                continue
            literal = f"cast('{value}' as {'timestamp_ntz' if names[column] == 'at' else 'string'})"
            found = hadoop.sql(table, f"SELECT count(*) FROM {{t}} WHERE {names[column]} = {literal}")[0][0]
            assert found == sum(each[column] == value for each in rows)
    for row in rows:
        assert hadoop.sql(table, f"SELECT count(*) FROM {{t}} WHERE id = {row[0]}")[0][0] == 1
    hadoop.sql(table, "MERGE INTO {t} USING (SELECT 5 AS id) s ON {t}.id = s.id WHEN MATCHED THEN DELETE")
    hadoop.sql(table, "UPDATE {t} SET k = 'k9' WHERE id = 6")
    assert len(hadoop.rows(table)) == len(rows) - sum(row[0] == 5 for row in rows)


def test_rows_of_an_upgraded_table_get_ids_first_and_keep_them(hadoop: Lake) -> None:
    table = "upgraded_and_rewritten"
    shape = Shape(version=2, by="k").then(
        *(insert(first, first + 9) for first in (0, 20, 40)), "DELETE FROM {t} WHERE id % 7 = 1", UPGRADE
    )
    write(hadoop, table, shape)
    values = [row[:-2] for row in hadoop.rows(table, row_ids=True)]
    report = rewritten(hadoop, table, min_input_files=2)
    assert [each["groups"] > 0 for each in report.commits] == [False, True]
    check_rows(hadoop, table, row_ids=True)
    assert [row[:-2] for row in hadoop.rows(table, row_ids=True)] == values
