"""rewrite-manifests on tables that Spark writes: Iceberg Java reads the same rows, row ids and files, and writes on.

Hazard H-e: the procedure of Java 1.11 gives every row of a version 3 table a new id. Ours keeps them, as 1.12 does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.live import tables
from tests.live.lake import Lake, in_order

pytestmark = pytest.mark.jvm


def v1(lake: Lake, table: str) -> None:
    tables.v1_evolved_spec(lake, table)
    for first in (40, 50, 60):
        tables.insert(lake, table, first, first + 3)


def v2_evolved(lake: Lake, table: str) -> None:
    """Position deletes and files of three specs, several manifests of each."""
    tables.create(lake, table, "id bigint, k string", version=2, by="k")
    for first in (0, 20, 40):
        tables.insert(lake, table, first, first + 9)
    lake.sql(table, "DELETE FROM {t} WHERE id % 7 = 1")
    lake.sql(table, "ALTER TABLE {t} ADD PARTITION FIELD truncate(2, id)")
    for first in (100, 120):
        tables.insert(lake, table, first, first + 3)
    lake.sql(table, "ALTER TABLE {t} ADD COLUMN d decimal(9, 2)")
    lake.sql(table, "ALTER TABLE {t} ADD PARTITION FIELD d")
    for first in (200, 220, 240):
        tables.insert(lake, table, first, first + 3, "'k1', cast(id - 210 as decimal(9, 2)) / 4")
    lake.sql(table, "DELETE FROM {t} WHERE id % 7 = 2")
    lake.sql(table, "DELETE FROM {t} WHERE id IN (100, 201)")


def v3(lake: Lake, table: str) -> None:
    """Row lineage: appends, an update, deletion vectors, a compaction."""
    tables.create(lake, table, "id bigint, k string", version=3, by="k")
    for first in (0, 20, 40, 60):
        tables.insert(lake, table, first, first + 9)
    lake.sql(table, "DELETE FROM {t} WHERE id % 7 = 1")
    lake.sql(table, "UPDATE {t} SET k = 'k1' WHERE id IN (0, 20)")
    lake.sql(table, "DELETE FROM {t} WHERE id = 44")


def v3_upgraded(lake: Lake, table: str) -> None:
    tables.v3_upgraded(lake, table)
    tables.insert(lake, table, 200, 203)


CASES: list[tuple[Callable[[Lake, str], None], bool]] = [
    (v1, False),
    (v2_evolved, False),
    (v3, True),
    (v3_upgraded, True),
]


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


def rewrite(lake: Lake, table: str, *options: object) -> dict[str, Any]:
    code, report = lake.cli("rewrite-manifests", lake.argument(table), "--yes", *options)
    assert code == 0, report
    return report


def manifests(lake: Lake, table: str) -> list[tuple[int, int]]:
    return sorted(
        tuple(row) for row in lake.sql(table, "SELECT content, partition_spec_id FROM {t}.manifests")
    )


@pytest.mark.parametrize(("make", "row_ids"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_rows_row_ids_and_files_are_the_same_and_spark_writes_on(
    lake: Lake, make: Callable[[Lake, str], None], row_ids: bool
) -> None:
    table = f"manifests_{make.__name__}"
    make(lake, table)
    older = {snapshot_id: lake.rows(table, snapshot_id) for snapshot_id in lake.snapshot_ids(table)}
    before, kinds = seen(lake, table, row_ids=row_ids), manifests(lake, table)
    next_row_id = lake.metadata(table).get("next-row-id")

    report = rewrite(lake, table)

    assert report["status"] == "done"
    assert seen(lake, table, row_ids=row_ids) == before
    assert lake.metadata(table).get("next-row-id") == next_row_id
    assert manifests(lake, table) == sorted(set(kinds))
    assert report["rewritten_manifests_count"] - report["added_manifests_count"] == len(kinds) - len(
        set(kinds)
    )
    assert rewrite(lake, table)["status"] == "nothing_to_do"
    assert {snapshot_id: lake.rows(table, snapshot_id) for snapshot_id in older} == older
    columns = len(lake.java(table).schema().columns())
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
    lake.sql(
        table, "CALL {c}.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))"
    )
    assert lake.rows(table, row_ids=row_ids) == left
    before = seen(lake, table, row_ids=row_ids)
    rewrite(lake, table)
    assert seen(lake, table, row_ids=row_ids) == before
    assert rewrite(lake, table)["status"] == "nothing_to_do"
    lake.sql(table, "UPDATE {t} SET k = 'k7' WHERE id = 902")
    after = lake.rows(table, row_ids=row_ids)
    assert len(after) == len(left)
    if row_ids:
        assert sorted(row[-2] for row in after) == sorted(row[-2] for row in left)


def test_manifests_split_by_partition_let_spark_skip_those_that_do_not_match(hadoop: Lake) -> None:
    table = "manifests_split"
    tables.create(hadoop, table, "id bigint, k string", version=3, by="bucket(16, id)")
    for first in range(0, 400, 40):
        tables.insert(hadoop, table, first, first + 39)
    before = seen(hadoop, table, row_ids=True)
    report = rewrite(hadoop, table, "--target-size", "8KiB")
    assert report["added_manifests_count"] > 1
    assert seen(hadoop, table, row_ids=True) == before
    for number in (0, 123, 399):
        (row,) = hadoop.sql(table, f"SELECT * FROM {{t}} WHERE id = {number}")
        assert row[0] == number
    assert rewrite(hadoop, table, "--target-size", "8KiB")["status"] == "nothing_to_do"


def test_h_e_row_ids_survive_our_rewrite_and_javas_own_after_it(hadoop: Lake) -> None:
    table = "manifests_he"
    v3(hadoop, table)
    before = hadoop.rows(table, row_ids=True)
    rewrite(hadoop, table)
    assert hadoop.rows(table, row_ids=True) == before
    tables.insert(hadoop, table, 900, 903)
    before = hadoop.rows(table, row_ids=True)
    hadoop.sql(table, "CALL {c}.system.rewrite_manifests('{t}')")
    assert hadoop.rows(table, row_ids=True) == before
