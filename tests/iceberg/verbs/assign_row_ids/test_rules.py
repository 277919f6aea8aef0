"""First row ids: which manifests get them, which ranges. Expected values are the specification's."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.branch.row_id_ranges import RowIds, doubtful
from iceberg_cli.iceberg.commit.draft import assign_first_row_ids
from iceberg_cli.iceberg.spec.manifests.manifest import MANIFEST_LIST_SCHEMA
from iceberg_cli.iceberg.verbs.assign_row_ids import rules
from iceberg_cli.iceberg.verbs.assign_row_ids.policy import AssignRowIds

ENTRIES = pa.schema(
    [
        ("status", pa.int32()),
        ("file_path", pa.string()),
        ("record_count", pa.int64()),
        ("first_row_id", pa.int64()),
    ]
)
IDS = pa.table({"file_path": ["b", "c"], "first_row_id": pa.array([40, 70], pa.int64())})


def a_list(*rows: tuple[str, int, int, int, int | None]) -> pa.Table:
    """Rows of a manifest list: path, content, added rows, existing rows, first row id."""
    names = ("manifest_path", "content", "added_rows_count", "existing_rows_count", "first_row_id")
    return pa.Table.from_pylist(
        [dict(zip(names, row, strict=True)) for row in rows], schema=MANIFEST_LIST_SCHEMA
    )


def entries(*rows: tuple[int, str, int, int | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(ENTRIES.names, row, strict=True)) for row in rows], schema=ENTRIES)


def test_data_manifests_without_id_wait_and_delete_manifests_never_do() -> None:
    rows = a_list(
        ("data", 0, 5, 0, None), ("done", 0, 5, 0, 0), ("deletes", 1, 5, 0, None), ("dead", 0, 0, 0, None)
    )
    assert rules.waiting(rows).tolist() == [True, False, False, True]
    assert rules.with_ids(rows).tolist() == [False, True, False, False]
    assert rules.row_count(rows.filter(pa.array(rules.waiting(rows)))) == 5


def test_ranges_are_those_of_the_specifications_example() -> None:
    """Section "Row Lineage Example": next-row-id 1000, three new manifests, 1375 afterwards."""
    rows = a_list(
        ("existing", 0, 75, 0, 925), ("added1", 0, 100, 25, None), ("added2", 0, 0, 100, None),
        ("added3", 0, 125, 25, None),
    ).to_pylist()  # fmt: skip
    assert assign_first_row_ids(rows, 1000) == 1375
    assert [row["first_row_id"] for row in rows] == [925, 1000, 1125, 1225]


def test_a_draft_keeps_the_order_of_the_list_and_carries_the_totals() -> None:
    rows = a_list(("b", 0, 1, 0, None), ("a", 0, 2, 0, None), ("d", 1, 1, 0, None))
    summary = {"operation": "append", "total-records": "3", "total-data-files": "2", "added-records": "1"}
    draft = rules.assigning_draft(ref="main", snapshot_id=7, summary=summary, rows=rows)
    assert draft.kept["manifest_path"].to_pylist() == ["b", "a", "d"]
    assert (draft.operation, draft.parent_snapshot_id, draft.added) == ("replace", 7, ())
    assert dict(draft.summary) == {
        "manifests-created": "0",
        "manifests-kept": "3",
        "manifests-replaced": "0",
        "entries-processed": "0",
        "changed-partition-count": "0",
        "total-records": "3",
        "total-data-files": "2",
    }


def test_a_range_that_reaches_the_tables_counter_is_looked_at() -> None:
    rows = a_list(
        ("below", 0, 5, 5, 0), ("at", 0, 5, 5, 10), ("none", 0, 99, 0, None), ("deletes", 1, 99, 0, None)
    )
    assert doubtful(rows, 20).tolist() == [False, False, False, False]
    assert doubtful(rows, 19).tolist() == [False, True, False, False]


def test_ranges_that_overlap_are_looked_at_whatever_their_order() -> None:
    rows = a_list(
        ("over", 0, 5, 5, 95), ("apart", 0, 10, 0, 105), ("wide", 0, 100, 0, 0), ("inside", 0, 1, 0, 30),
        ("none", 0, 99, 0, None), ("empty", 0, 0, 0, 50), ("deletes", 1, 99, 0, None),
    )  # fmt: skip
    assert doubtful(rows, 1_000).tolist() == [True, False, True, True, False, False, False]


def test_a_range_that_no_number_can_end_is_looked_at() -> None:
    rows = a_list(("near", 0, 5, 0, 0), ("far", 0, 100, 0, (1 << 63) - 50))
    assert doubtful(rows, 1_000).tolist() == [False, True]
    assert doubtful(rows.slice(0, 0), 1_000).tolist() == []
    assert RowIds.of(entries((0, "far", 100, (1 << 63) - 50))).end == (1 << 63) - 1


def test_ids_end_above_the_last_row_of_the_live_files() -> None:
    found = RowIds.of(entries((0, "a", 10, 5), (1, "b", 3, 40), (2, "gone", 100, 60), (0, "none", 7, None)))
    assert (found.end, found.twice) == (43, None)
    assert (found.firsts.tolist(), found.stops.tolist()) == ([5, 40], [15, 43])
    assert RowIds.of(entries((2, "gone", 100, 60))).end == 0


def test_ranges_that_touch_become_one_and_ids_that_two_files_have_are_told() -> None:
    some = RowIds.of(entries((1, "b", 5, 15), (0, "a", 10, 5), (0, "empty", 0, 7)))
    assert (some.firsts.tolist(), some.stops.tolist(), some.twice) == ([5], [20], None)
    other = RowIds.of(entries((1, "c", 5, 18), (1, "d", 1, 90)))
    assert RowIds.together([some, other]).twice == (18, 19)
    assert RowIds.together([]).end == 0
    assert RowIds.of(entries((1, "a", 9, 0), (1, "b", 2, 3))).twice == (3, 4)


def test_shared_files_take_mains_ids_and_others_stay_without() -> None:
    taken = rules.take_over(
        entries((1, "a", 10, None), (0, "b", 3, None), (2, "c", 5, None), (1, "e", 2, 9)), IDS
    )
    assert taken.to_pylist() == [
        {"status": 0, "file_path": "a", "record_count": 10, "first_row_id": None},
        {"status": 0, "file_path": "b", "record_count": 3, "first_row_id": 40},
        {"status": 0, "file_path": "e", "record_count": 2, "first_row_id": 9},
    ]


def test_equal_tasks_write_equal_manifests() -> None:
    task = rules.sharing_task("m", IDS)
    assert task == rules.sharing_task("m", IDS)
    others = [
        rules.sharing_task("n", IDS),
        rules.sharing_task("m", IDS.slice(1)),
        rules.sharing_task("m", None),
    ]
    assert len({task, *others}) == 4


def test_reasons_have_numbers() -> None:
    rows = a_list(("a", 0, 5, 2, None), ("b", 0, 1, 0, 0), ("c", 1, 5, 0, None))
    assert rules.reason(rows, 12) == (
        "ids for 1 data manifest of 7 rows, from 12 on if nothing else commits; 1 data manifest of 1 row with ids"
    )
    assert rules.reason(rows.slice(1), None) == "kept: 1 data manifest of 1 row with ids"


def test_policy_comes_back_from_its_json_form() -> None:
    policy = AssignRowIds(refs=("main", "b"), share_ids=True)
    assert AssignRowIds.from_json(json.loads(json.dumps(policy.to_json()))) == policy


@pytest.mark.parametrize(
    "value",
    [{}, {"refs": []}, {"refs": "main", "share_ids": False}, {"refs": [1], "share_ids": False},
     {"refs": [], "share_ids": 1}, {"refs": [], "share_ids": False, "x": 1}],
    ids=str,
)  # fmt: skip
def test_a_policy_of_another_shape_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        AssignRowIds.from_json(value)
