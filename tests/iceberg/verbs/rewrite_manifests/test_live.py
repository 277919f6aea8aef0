"""rewrite-manifests on tables that Spark writes: Iceberg Java reads the same rows, row ids and files, and writes on.

Hazard H-e: the procedure of Java 1.11 gives every row of a version 3 table a new id. Ours keeps them, as 1.12 does.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.budget import deep_unless
from tests.files_without_ids import strip_folder
from tests.spark_tables import COMPACT, Lake, Shape, Writing, in_order, insert, shapes, write

CASES = (
    shapes.V1_EVOLVED_SPEC.then(insert(40, 43), insert(50, 53), insert(60, 63)),
    shapes.V2_MANIFESTS_OF_THREE_SPECS,
    shapes.V3_LINEAGE,
    shapes.V3_UPGRADED.then(insert(200, 203)),
)
ALWAYS = CASES[1::2]


def seen(lake: Lake, table: str, *, row_ids: bool) -> dict[str, Any]:
    """All that a reader of main sees, by Iceberg Java."""
    files = [row.asDict(recursive=True) for row in lake.sql(table, "SELECT * FROM {t}.files")]
    entries = lake.sql(
        table,
        "SELECT snapshot_id, sequence_number, file_sequence_number, data_file.file_path,"
        " data_file.referenced_data_file FROM {t}.entries WHERE status < 2",
    )
    return {
        "rows": lake.rows(table, row_ids=row_ids),
        "files": sorted(map(repr, files)),
        "entries": in_order(tuple(row) for row in entries),
    }


def manifests(lake: Lake, table: str) -> list[tuple[int, int]]:
    return sorted(
        tuple(row) for row in lake.sql(table, "SELECT content, partition_spec_id FROM {t}.manifests")
    )


@pytest.mark.parametrize("lake", deep_unless(["hadoop"], ["hadoop", "jdbc"]), indirect=True)
@pytest.mark.parametrize("shape", deep_unless(ALWAYS, CASES))
def test_rows_row_ids_and_files_are_the_same_and_spark_writes_on(
    lake: Lake, written: Writing, shape: Shape
) -> None:
    table = written(lake, shape)
    row_ids = lake.metadata(table)["format-version"] >= 3
    older = {snapshot_id: lake.rows(table, snapshot_id) for snapshot_id in lake.snapshot_ids(table)}
    before, kinds = seen(lake, table, row_ids=row_ids), manifests(lake, table)
    next_row_id = lake.metadata(table).get("next-row-id")

    report = lake.verb("rewrite-manifests", table)

    assert report["status"] == "done"
    assert seen(lake, table, row_ids=row_ids) == before
    assert lake.metadata(table).get("next-row-id") == next_row_id
    assert manifests(lake, table) == sorted(set(kinds))
    assert report["rewritten_manifests_count"] - report["added_manifests_count"] == len(kinds) - len(
        set(kinds)
    )
    assert lake.verb("rewrite-manifests", table)["status"] == "nothing_to_do"
    assert {snapshot_id: lake.rows(table, snapshot_id) for snapshot_id in older} == older
    schemas = {schema["schema-id"]: schema for schema in lake.metadata(table)["schemas"]}
    columns = len(schemas[lake.metadata(table)["current-schema-id"]]["fields"])
    more = ", null" * (columns - 2)
    lake.sql(table, f"INSERT INTO {{t}} SELECT id, 'k1'{more} FROM range(900, 903, 1, 1)")
    lake.sql(table, "DELETE FROM {t} WHERE id = 901")
    left = lake.rows(table, row_ids=row_ids)
    had = {tuple(row) for row in before["rows"]}
    assert had <= {tuple(row) for row in left}
    assert len(left) == len(had) + 2
    if row_ids:
        ids = [row[-2] for row in left]
        assert len(set(ids)) == len(ids)
        assert next_row_id is not None
        assert all(row[-2] >= next_row_id for row in left if row not in had)
    lake.sql(table, COMPACT)
    assert lake.rows(table, row_ids=row_ids) == left
    before = seen(lake, table, row_ids=row_ids)
    lake.verb("rewrite-manifests", table)
    assert seen(lake, table, row_ids=row_ids) == before
    assert lake.verb("rewrite-manifests", table)["status"] == "nothing_to_do"
    lake.sql(table, "UPDATE {t} SET k = 'k7' WHERE id = 902")
    after = lake.rows(table, row_ids=row_ids)
    assert len(after) == len(left)
    if row_ids:
        assert sorted(row[-2] for row in after) == sorted(row[-2] for row in left)


@pytest.mark.parametrize("shape", [CASES[0], CASES[1]])
def test_files_without_ids_are_read_by_names_as_java_does(
    hadoop: Lake, written: Writing, shape: Shape
) -> None:
    table = written(hadoop, shape)
    before = seen(hadoop, table, row_ids=False)
    strip_folder(hadoop.folder(table))
    assert seen(hadoop, table, row_ids=False) == before
    assert hadoop.verb("rewrite-manifests", table)["status"] == "done"
    assert seen(hadoop, table, row_ids=False) == before
    hadoop.sql(table, COMPACT)
    assert hadoop.rows(table, row_ids=False) == before["rows"]


def test_manifests_split_by_partition_let_spark_skip_those_that_do_not_match(hadoop: Lake) -> None:
    table = "manifests_split"
    appends = (insert(first, first + 39) for first in range(0, 400, 40))
    write(hadoop, table, Shape(version=3, by="bucket(16, id)").then(*appends))
    before = seen(hadoop, table, row_ids=True)
    report = hadoop.verb("rewrite-manifests", table, "--target-size", "8KiB")
    assert report["added_manifests_count"] > 1
    assert seen(hadoop, table, row_ids=True) == before
    for number in (0, 123, 399):
        (row,) = hadoop.sql(table, f"SELECT * FROM {{t}} WHERE id = {number}")
        assert row[0] == number
    assert hadoop.verb("rewrite-manifests", table, "--target-size", "8KiB")["status"] == "nothing_to_do"


def test_h_e_row_ids_survive_our_rewrite_and_javas_own_after_it(hadoop: Lake, written: Writing) -> None:
    table = written(hadoop, shapes.V3_LINEAGE)
    before = hadoop.rows(table, row_ids=True)
    hadoop.verb("rewrite-manifests", table)
    assert hadoop.rows(table, row_ids=True) == before
    hadoop.sql(table, insert(900, 903))
    before = hadoop.rows(table, row_ids=True)
    hadoop.sql(table, "CALL {c}.system.rewrite_manifests('{t}')")
    assert hadoop.rows(table, row_ids=True) == before
