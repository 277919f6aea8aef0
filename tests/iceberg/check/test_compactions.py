"""Compactions that lost rows or row ids, or brought deleted rows back, are found, with the numbers worked out by hand.

The set-ups are those of other tools' incidents; a literal writer makes them.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from iceberg_cli.plan.findings import CheckResult
from iceberg_cli.testing.iceberg_files import manifest_list, position_deletes
from tests.delete_tables import puffin
from tests.iceberg.check.compaction_tables import CompactedTable, check, numbers_of, told
from tests.iceberg.verbs.rewrite_data_files.tables import K, N, column, of, schema
from tests.manifest_tables import opened

BOTH = pytest.mark.parametrize("version", [2, 3])
DEEP = pytest.mark.parametrize("deep", [False, True])


def delete(table: CompactedTable, name: str, positions: dict[str, set[int]], **others: Any) -> None:
    """Rows are deleted by position, in the way of the table's version."""
    if table.format_version > 2:
        table.vectors(name, positions, **others)
    else:
        table.positions(name, positions, **others)


def no_ids_where_there_are_none(table: CompactedTable, ids: list[int]) -> dict[str, Any]:
    """The column of row ids of a new file, where the table has row lineage."""
    return {"ids": ids, "updated": [1] * len(ids)} if table.format_version > 2 else {}


def compared(result: CheckResult) -> tuple[int, int, list[str], int]:
    found = result.fields["compactions"]
    reasons = [each["reason"] for each in found["not_compared"]]
    return found["found"], found["compared"], reasons, found["left_out"]


# -- rows that come back -----------------------------------------------------------------------------------------------


def a_delete_beside_a_compaction(version: int) -> CompactedTable:
    """Of 300 rows 100 are deleted while they are rewritten, and the rewrite retires the delete."""
    table = CompactedTable(format_version=version)
    table.numbers("a", range(300))
    table.numbers("b", range(300, 310))
    table.commit(1)
    delete(table, "d", {"a": set(range(100))})
    table.commit(2)
    table.remove("a", "b")
    table.drop("d-deletes")
    table.numbers("o", range(310), sequence_number=1, **no_ids_where_there_are_none(table, list(range(310))))
    table.compact(3)
    table.numbers("later", [1000])
    table.commit(4)
    return table


@BOTH
@DEEP
def test_rows_that_were_deleted_while_their_file_was_rewritten_come_back(version: int, deep: bool) -> None:
    result = a_delete_beside_a_compaction(version).check(deep=deep)
    (finding,) = result.findings()
    assert (finding.id, finding.severity, finding.where) == (
        "compaction-rows-came-back",
        "error",
        "snapshot 3",
    )
    assert finding.message == (
        "100 rows came back, or are there twice; committed at 2022-12-07T08:00:00Z by spark 4.1.4, Apache Iceberg "
        "1.11.0, app-id local-7. The files that it changed had 210 live rows and have 310. Its parent 2 is still "
        "there; branch main has 1 snapshot since: 1 overwrite."
    )
    assert compared(result) == (1, 1, [], 0)


@BOTH
def test_a_file_that_stays_shows_its_rows_again_where_only_its_deletes_go(version: int) -> None:
    """So did a tool whose merge of deletes left one out."""
    table = CompactedTable(format_version=version)
    table.numbers("a", range(10))
    table.commit(1)
    delete(table, "d", {"a": {0, 1, 2}})
    table.commit(2)
    table.drop("d-deletes")
    table.compact(3)
    assert numbers_of(table.check()) == {"compaction-rows-came-back": 3}


def test_deletes_of_a_partition_that_go_with_one_of_its_files_are_missed_by_the_others() -> None:
    table = CompactedTable(format_version=2)
    table.numbers("a", [1, 2, 3], k="x")
    table.numbers("b", [4, 5], k="x")
    table.commit(1)
    table.positions("d", {"a": {0}, "b": {1}}, k="x")
    table.commit(2)
    table.remove("a")
    table.drop("d-deletes")
    table.numbers("o", [2, 3], k="x", sequence_number=2)
    table.compact(3)
    (message,) = told(table.check()).values()
    assert message.startswith("1 row came back")
    assert "had 3 live rows and have 4" in message  # of a two, of b one


def test_deletes_of_several_commits_that_go_are_missed_by_files_of_each() -> None:
    table = CompactedTable(format_version=2)
    table.numbers("a", [1, 2], k="x")
    table.positions("d", {"a": {0}}, k="x")  # of the same commit
    table.commit(1)
    table.numbers("b", [3, 4], k="x")
    table.commit(2)
    table.positions("e", {"b": {1}}, k="x")
    table.commit(3)
    table.drop("-deletes")
    table.compact(4)
    (message,) = told(table.check()).values()
    assert "had 2 live rows and have 4" in message


def test_an_equality_delete_on_a_value_that_the_partition_alone_has_is_missed() -> None:
    """Files that were added from elsewhere lack the column that they are partitioned by."""
    table = CompactedTable(format_version=2)
    table.rows("a", [(N, [1, 2])], k="x")
    table.rows("b", [(N, [3])], k="y")
    table.commit(1)
    table.equality_rows("e", [(K, ["x"])])
    table.commit(2)
    table.drop("e-eq-deletes")
    table.compact(3)
    (message,) = told(table.check(deep=True)).values()
    assert "in 1 of 2 partitions, had 0 live rows and have 2" in message


def test_an_equality_delete_that_is_dropped_too_early_is_found_with_deep() -> None:
    """Hazard H2: 2 was deleted between the plan and an append, whose number was taken for the oldest."""
    table = CompactedTable(format_version=2)
    table.numbers("a", [1, 2, 3])
    table.commit(1)
    table.equality_rows("e", [(N, [2])])
    table.commit(2)
    table.numbers("b", [4])
    table.commit(3)
    table.remove("a")
    table.drop("e-eq-deletes")
    table.numbers("o", [1, 2, 3], sequence_number=1)
    table.compact(4)
    shallow = table.check()
    assert told(shallow) == {}
    assert compared(shallow) == (
        1, 0, ["equality deletes reach files that it changed, and only --deep reads these"], 0,
    )  # fmt: skip
    deep = table.check(deep=True)
    assert numbers_of(deep) == {"compaction-rows-came-back": 1}
    assert compared(deep) == (1, 1, [], 0)


def test_an_equality_delete_that_other_files_need_is_found_with_deep() -> None:
    """Incident 10: the delete files of the task were removed, and they applied to other files, too."""
    table = CompactedTable(format_version=2)
    table.numbers("a", [1, 2], k="x")
    table.numbers("b", [2, 3], k="x")
    table.numbers("c", [2], k="y")
    table.commit(1)
    table.equality_rows("e", [(N, [2])], k="x")
    table.commit(2)
    table.remove("a")
    table.drop("e-eq-deletes")
    table.numbers("o", [1], k="x", sequence_number=2)
    table.compact(3)
    (message,) = told(table.check(deep=True)).values()
    assert "had 2 live rows and have 3" in message  # 1 and 3; 1, 2 and 3


def test_an_output_with_the_number_of_its_commit_is_missed_by_deletes_that_came_meanwhile() -> None:
    table = CompactedTable(format_version=2)
    table.numbers("a", [1, 2, 3])
    table.commit(1)
    table.equality_rows("e", [(N, [1, 3])])
    table.commit(2)
    table.remove("a")
    table.numbers("o", [1, 2, 3])
    table.compact(3)
    assert numbers_of(table.check(deep=True)) == {"compaction-rows-came-back": 2}


def test_an_output_with_the_least_number_of_its_inputs_loses_upserted_rows() -> None:
    """Hazard H3."""
    table = CompactedTable(format_version=2)
    table.numbers("x", [1, 7])
    table.commit(1)
    table.equality_rows("e", [(N, [1])])
    table.numbers("y", [1])
    table.commit(2)
    table.remove("x", "y")
    table.numbers("o", [7, 1], sequence_number=1)
    table.compact(3)
    assert numbers_of(table.check(deep=True)) == {"compaction-rows-missing": 1}


def test_an_equality_delete_of_all_partitions_that_is_dropped_too_early_is_found_with_deep() -> None:
    """Hazard H12: of the spec without partitions, and the last file of that spec was compacted."""
    table = CompactedTable(format_version=2)
    table.numbers("a", [1])
    table.numbers("b", [1, 2], k="x")
    table.commit(1)
    table.equality_rows("e", [(N, [1])])
    table.commit(2)
    table.remove("a")
    table.drop("e-eq-deletes")
    table.compact(3)
    result = table.check()
    assert (told(result), compared(result)[1]) == ({}, 0)
    assert numbers_of(table.check(deep=True)) == {"compaction-rows-came-back": 1}


def test_an_equality_delete_of_all_partitions_that_goes_alone_is_missed_by_all_of_them() -> None:
    table = CompactedTable(format_version=2)
    table.numbers("a", [1, 2], k="x")
    table.numbers("b", [1], k="y")
    table.commit(1)
    table.equality_rows("e", [(N, [1])])
    table.commit(2)
    table.drop("e-eq-deletes")
    table.compact(3)
    (message,) = told(table.check(deep=True)).values()
    assert "in 2 of 2 partitions, had 1 live rows and have 3" in message


def test_equality_deletes_on_floating_point_numbers_are_not_taken_for_known() -> None:
    x = of(3, "x", pa.float64())
    table = CompactedTable(format_version=2, schema=schema(column(1, "n", "long"), column(3, "x", "double")))
    table.rows("a", [(N, [1, 2]), (x, [0.0, -0.0])])
    table.commit(1)
    table.equality_rows("e", [(x, [0.0])])
    table.commit(2)
    table.remove("a")
    table.rows("o", [(N, []), (x, [])], sequence_number=2)
    table.compact(3)
    result = table.check(deep=True)
    assert told(result) == {}
    assert "floating point" in compared(result)[2][0]


def test_equality_deletes_of_another_partition_hide_nothing_from_the_comparison() -> None:
    table = CompactedTable(format_version=2)
    table.numbers("a", [1, 2, 3], k="x")
    table.numbers("b", [1], k="y")
    table.commit(1)
    table.equality_rows("e", [(N, [1])], k="y")
    table.commit(2)
    table.remove("a")
    table.numbers("o", [1, 2], k="x", sequence_number=2)
    table.compact(3)
    result = table.check()
    assert numbers_of(result) == {"compaction-rows-missing": 1}
    assert compared(result) == (1, 1, [], 0)


# -- rows that go missing ----------------------------------------------------------------------------------------------


@BOTH
def test_partitions_that_a_compaction_of_one_of_them_removed_are_missing(version: int) -> None:
    """Incident 7: a plan for each partition, and each commit replaced all files."""
    table = CompactedTable(format_version=version)
    for name, k, numbers in (("a", "x", [1, 2]), ("b", "y", [3, 4, 5]), ("c", "z", [6])):
        table.numbers(name, numbers, k=k)
    table.commit(1)
    table.remove("a", "b", "c")
    table.numbers("o", [6], k="z", sequence_number=1, **no_ids_where_there_are_none(table, [5]))
    table.compact(2)
    (message,) = told(table.check()).values()
    assert message.startswith("5 rows went missing; ")
    assert "in 2 of 3 partitions, had 5 live rows and have 0" in message


def test_what_one_partition_loses_is_not_made_up_for_by_what_comes_back_in_another() -> None:
    table = CompactedTable(format_version=2)
    table.numbers("a", [1, 2], k="x")
    table.numbers("b", [3, 4], k="y")
    table.commit(1)
    table.positions("d", {"a": {0}}, k="x")
    table.commit(2)
    table.remove("a", "b")
    table.numbers("o", [1, 2], k="x", sequence_number=2)
    table.numbers("p", [3], k="y", sequence_number=2)
    table.compact(3)
    assert numbers_of(table.check()) == {"compaction-rows-came-back": 1, "compaction-rows-missing": 1}


def test_rows_that_went_to_another_partition_spec_are_compared_as_a_whole() -> None:
    table = CompactedTable(format_version=2)
    table.numbers("a", [1, 2], k="x")
    table.numbers("b", [3], k="y")
    table.commit(1)
    table.remove("a", "b")
    table.numbers("o", [1, 2, 3], sequence_number=1)  # unpartitioned
    table.compact(2)
    assert told(table.check()) == {}
    table.remove("o")
    table.numbers("p", [1], k="x", sequence_number=1)
    table.numbers("q", [3], k="y", sequence_number=1)
    table.compact(3)
    assert numbers_of(table.check()) == {"compaction-rows-missing": 1}


def test_a_part_of_a_file_that_was_dropped_is_missing_in_version_1_too() -> None:
    """Incident 2: the lonely tail of a file that was split."""
    table = CompactedTable(format_version=1)
    table.numbers("a", range(11))
    table.commit(1)
    table.remove("a")
    table.numbers("o", range(10))
    table.compact(2)
    assert numbers_of(table.check()) == {"compaction-rows-missing": 1}


def test_rows_that_were_written_twice_by_an_append_are_no_compaction() -> None:
    """Incident 8: the snapshot says so, and readers of changes see it."""
    table = CompactedTable(format_version=2)
    table.numbers("a", [1, 2])
    table.commit(1)
    table.numbers("o", [1, 2])
    table.commit_files("append", table.added, snapshot_id=2)
    assert compared(table.check()) == (0, 0, [], 0)


# -- deletes as readers apply them -------------------------------------------------------------------------------------


def test_a_deletion_vector_counts_alone_and_no_position_twice_or_behind_the_end() -> None:
    """Hazard H10. Of a the vector deletes 1 of 4 rows, of b two files delete 2 of 3, of c nothing applies."""
    table = CompactedTable(format_version=2)
    table.numbers("a", [1, 2, 3, 4], k="x")
    table.numbers("b", [5, 6, 7], k="x")
    table.numbers("c", [8], k="y")
    table.commit(1)
    table.positions("p", {"a": {0, 1, 2}, "b": {0, 9}, "nowhere": {0}}, k="x")
    table.positions("q", {"b": {0, 2}, "c": {0}}, k="x")  # c is of another partition
    twice = sorted([(table.path("b"), 2)] * 2)
    table.position_bytes("r", position_deletes(twice), 2, k="x")
    table.commit(2)
    table.document["format-version"], table.format_version = 3, 3
    table.document["next-row-id"] = 0
    table.vectors("v", {"a": {3}}, k="x")
    table.commit(3)
    table.remove("a", "b", "c")
    table.numbers("o", [1, 2, 3, 6], k="x", sequence_number=3, ids=[4, 5, 6, 1], updated=[1] * 4)
    table.numbers("s", [8], k="y", sequence_number=3, ids=[7], updated=[1])
    table.compact(4)
    for deep in (False, True):
        assert numbers_of(table.check(deep=deep)).keys() <= {"compaction-row-ids-lost"}


def test_positions_that_were_merged_into_a_vector_hide_the_same_rows() -> None:
    table = CompactedTable(format_version=3)
    table.numbers("a", range(5))
    table.numbers("b", range(5))
    table.commit(1)
    table.vectors("v", {"a": {1, 2}, "b": {0}})
    table.commit(2)
    table.vectors("w", {"a": {1, 2}, "b": {0}})
    table.compact(3)
    assert told(table.check()) == {}
    table.vectors("z", {"a": {1}, "b": {0, 4, 3}})
    table.compact(4)
    assert numbers_of(table.check()) == {"compaction-rows-missing": 1}  # one is back, and two are gone


@DEEP
def test_positions_behind_the_end_are_not_subtracted_of_a_vector_either(deep: bool) -> None:
    table = CompactedTable(format_version=3)
    table.numbers("a", [1, 2, 3])
    table.numbers("b", [4])
    table.vectors("d", {"a": {0, 3, 9}})  # of the same commit
    table.commit(1)
    table.remove("a", "b")
    table.numbers("o", [2, 3, 4], sequence_number=1, ids=[1, 2, 3])
    table.compact(2)
    assert told(table.check(deep=deep)) == {}


def test_position_deletes_of_the_commit_that_added_their_file_apply() -> None:
    table = CompactedTable(format_version=2)
    table.numbers("a", [1, 2, 3])
    table.positions("d", {"a": {0}})
    table.commit(1)
    table.remove("a")
    table.numbers("o", [2, 3], sequence_number=1)
    table.compact(2)
    assert told(table.check()) == {}


def test_readers_that_disagree_about_a_delete_are_said_and_nothing_is_claimed() -> None:
    table = CompactedTable(format_version=2)
    table.numbers("a", [1, 2], k="x")
    table.commit(1)
    table.positions("d", {"a": {0}}, k="y", referenced_data_file=table.path("a"))
    table.commit(2)
    table.remove("a")
    table.numbers("o", [2], k="x", sequence_number=2)
    table.compact(3)
    result = table.check()
    assert told(result) == {}
    assert compared(result) == (
        1, 0, [("of a file that it changed: position deletes of another partition name it, which readers take"
               " differently")], 0,
    )  # fmt: skip


# -- row ids -----------------------------------------------------------------------------------------------------------


def renumbered(**columns: Any) -> CompactedTable:
    """Five rows, ids 0 to 4, of which 1 is deleted; rewritten with these columns of row lineage."""
    table = CompactedTable(format_version=3)
    table.numbers("a", [10, 11, 12])
    table.numbers("b", [13, 14])
    table.commit(1)
    table.vectors("d", {"a": {1}})
    table.commit(2)
    table.remove("a", "b")
    table.numbers("o", [10, 12, 13, 14], sequence_number=2, **columns)
    table.compact(3)
    return table


@pytest.mark.parametrize(
    ("columns", "shallow", "deep"),
    [
        ({}, 4, 4),
        ({"ids": [0, 2, 3, 4]}, 0, 0),
        ({"ids": [0, 2, None, None]}, 0, 2),  # what is in a column is read with --deep alone
        ({"ids": [0, 1, 2, 3]}, 0, 1),  # counted after the delete
        ({"ids": [2, 0, 4, 3]}, 0, 0),
        ({"updated": [1, 1, 1, 1]}, 4, 4),  # the other column of row lineage alone
    ],
)
def test_row_ids_that_were_not_kept_are_counted(columns: dict[str, Any], shallow: int, deep: int) -> None:
    table = renumbered(**columns)
    for number, is_deep in ((shallow, False), (deep, True)):
        expected = {"compaction-row-ids-lost": number} if number else {}
        assert numbers_of(table.check(deep=is_deep)) == expected


@DEEP
def test_the_id_of_the_only_row_of_a_file_counts_too(deep: bool) -> None:
    table = CompactedTable(format_version=3)
    table.numbers("a", [1])
    table.commit(1)
    table.remove("a")
    table.numbers("o", [1], sequence_number=1)
    table.compact(2)
    assert numbers_of(table.check(deep=deep)) == {"compaction-row-ids-lost": 1}


def test_a_column_that_statistics_say_is_null_has_no_ids_and_nothing_is_opened_for_it() -> None:
    counts = {"value_counts": {2147483540: 4}, "null_value_counts": {2147483540: 3}}
    table = renumbered(ids=[0, None, None, None], **counts)
    assert numbers_of(table.check()) == {"compaction-row-ids-lost": 3}


def test_rows_that_had_no_ids_may_get_some() -> None:
    """The table was upgraded: files of before have no ids until a commit gives them some."""
    table = CompactedTable(format_version=2)
    table.numbers("a", [1, 2])
    table.numbers("b", [3])
    table.numbers("c", [4])
    table.commit(1)
    table.document["format-version"], table.format_version = 3, 3
    table.document["next-row-id"] = 0
    table.remove("a", "b")
    table.numbers("o", [1, 2, 3], sequence_number=1)
    table.compact(2)
    for deep in (False, True):
        assert told(table.check(deep=deep)) == {}
    table.remove("o", "c")
    table.numbers("p", [1, 2, 3, 4], sequence_number=1)
    table.compact(3)
    for deep in (False, True):
        assert numbers_of(table.check(deep=deep)) == {"compaction-row-ids-lost": 4}


def test_an_id_that_is_missing_with_its_row_is_told_once() -> None:
    table = CompactedTable(format_version=3)
    table.numbers("a", [1, 2, 3])
    table.commit(1)
    table.remove("a")
    table.numbers("o", [1, 3], sequence_number=1, ids=[0, 2])
    table.compact(2)
    assert numbers_of(table.check(deep=True)) == {"compaction-rows-missing": 1}


def test_a_file_that_is_listed_with_the_ids_of_its_rows_needs_no_column() -> None:
    table = CompactedTable(format_version=3)
    table.numbers("a", [1, 2, 3])
    table.commit(1)
    table.remove("a")
    table.numbers("o", [1, 2, 3], sequence_number=1, first_row_id=0)
    table.compact(2)
    for deep in (False, True):
        assert told(table.check(deep=deep)) == {}


def test_ids_of_rows_that_a_delete_hides_of_other_files_are_not_lost() -> None:
    """The snapshot adds an equality delete, which no compaction may: a row of b goes, and is told as missing alone."""
    table = CompactedTable(format_version=3)
    table.numbers("a", [1, 2])
    table.numbers("b", [3, 4])
    table.commit(1)
    table.equality_rows("d", [(N, [99])])  # so that b is read before and after
    table.commit(2)
    table.remove("a")
    table.numbers("o", [1, 2], sequence_number=2, ids=[0, 1])
    table.equality_rows("e", [(N, [3])])
    table.compact(3)
    assert numbers_of(table.check(deep=True)) == {"compaction-rows-missing": 1}


@DEEP
def test_nothing_is_said_of_a_file_with_two_deletion_vectors(deep: bool) -> None:
    table = CompactedTable(format_version=3)
    table.numbers("a", [1, 2, 3])
    table.commit(1)
    table.vectors("d", {"a": {0}})
    table.commit(2)
    table.puffin_bytes("e", *puffin({table.path("a"): {1}}))
    table.commit(3)
    table.numbers("b", [4])
    table.commit(4)
    table.remove("a", "b")
    table.numbers("o", [3, 4], sequence_number=4, ids=[2, 3])
    table.compact(5)
    result = table.check(deep=deep)
    assert told(result) == {}
    assert compared(result) == (1, 0, ["of a file that it changed: it has more than one deletion vector"], 0)


def test_rows_of_files_that_a_careless_list_gave_no_ids_may_get_some() -> None:
    """The list of the parent has no first_row_id for the manifest of b."""
    for ids, lost in (({"ids": [0, 1]}, {}), ({}, {"compaction-row-ids-lost": 2})):
        table = CompactedTable(format_version=3)
        table.numbers("a", [1, 2])
        table.commit(1)
        table.numbers("b", [3, 4, 5])
        table.commit(2)
        path = table.document["snapshots"][-1]["manifest-list"]
        newest, *others = sorted(
            (each.row for each in table.manifests_of(2)), key=lambda row: -row["sequence_number"]
        )
        rows = [newest | {"first_row_id": None}, *others]
        numbers = {"snapshot_id": 2, "parent_snapshot_id": 1, "sequence_number": 2, "first_row_id": 2}
        table.storage.replace(path, manifest_list(rows, version=3, sync=bytes(16), **numbers))
        table.remove("a", "b")
        table.numbers("o", [1, 2], sequence_number=2, **ids)
        table.numbers("p", [3, 4, 5], sequence_number=2)
        table.compact(3)
        for deep in (False, True):
            assert numbers_of(table.check(deep=deep)) == lost


def test_nothing_is_said_of_ids_where_a_snapshot_says_that_it_gives_none() -> None:
    table = renumbered()
    for name in ("first-row-id", "added-rows"):
        del table.document["snapshots"][-1][name]  # which is a rule of its own
    for deep in (False, True):
        assert told(table.check(deep=deep)) == {}


def test_nothing_is_said_of_ids_where_readers_disagree_which_rows_are_live() -> None:
    table = CompactedTable(format_version=3)
    table.numbers("a", [1, 2], k="x")
    table.commit(1)
    table.positions("d", {"a": {0}}, k="y", referenced_data_file=table.path("a"))
    table.commit(2)
    table.remove("a")
    table.numbers("o", [2], k="x", sequence_number=2, ids=[1])
    table.compact(3)
    for deep in (False, True):
        assert told(table.check(deep=deep)) == {}


# -- manifests alone ---------------------------------------------------------------------------------------------------


class Regrouped(CompactedTable):
    """Its next snapshot lists the same files in new manifests, but for a change."""

    def regroup(self, snapshot_id: int, change: Any = lambda entries: entries) -> None:
        entries = change([{**each} for each in self.live()])
        self.manifests = {**self.manifests, self.document["refs"]["main"]["snapshot-id"]: ()}
        self.added = entries
        self.compact(snapshot_id, **dict.fromkeys(("added-data-files", "added-records"), "0"))


def regroupable() -> Regrouped:
    table = Regrouped(format_version=2)
    table.numbers("a", [1, 2, 3])
    table.commit(1)
    table.positions("d", {"a": {0}})
    table.commit(2)
    table.numbers("b", [1, 4])
    table.commit(3)
    return table


def test_manifests_that_were_written_anew_change_nothing() -> None:
    table = regroupable()
    table.regroup(4)
    result = table.check()
    assert told(result) == {}
    assert compared(result) == (1, 1, [], 0)


def without(name: str) -> Any:
    return lambda entries: [each for each in entries if name not in each["file_path"]]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (without("b.parquet"), {"compaction-rows-missing": 2}),  # a committed append is lost
        (without("d-deletes"), {"compaction-rows-came-back": 1}),
        (without("a.parquet"), {"compaction-rows-missing": 2}),
        # Files that are listed twice have their rows twice: "20 rows become 40".
        (lambda entries: entries * 2, {"compaction-rows-came-back": 4}),
        # A file with the number of the commit is newer than its deletes.
        (
            lambda entries: [
                each | ({} if each["content"] else {"sequence_number": None}) for each in entries
            ],
            {"compaction-rows-came-back": 1},
        ),
    ],
)
def test_manifests_that_were_written_anew_with_other_files_are_found(
    change: Any, expected: dict[str, int]
) -> None:
    table = regroupable()
    table.regroup(4, change)
    assert numbers_of(table.check()) == expected


# -- lost deletes ------------------------------------------------------------------------------------------------------


def path_bounds(path: str) -> dict[str, Any]:
    name, low = path.encode(), struct.pack("<q", 0)
    return {
        "lower_bounds": {2147483546: name, 2147483545: low},
        "upper_bounds": {2147483546: name, 2147483545: low},
    }


@pytest.mark.parametrize("way", ["vector", "reference", "bounds"])
def test_a_delete_of_a_file_that_had_been_replaced_is_lost(way: str) -> None:
    """Incident 17: its writer did not look whether the file was live."""
    table = CompactedTable(format_version=3 if way == "vector" else 2)
    table.numbers("a", [1, 2, 3])
    table.commit(1)
    table.remove("a")
    table.numbers("o", [1, 2, 3], sequence_number=1, **no_ids_where_there_are_none(table, [0, 1, 2]))
    table.compact(2)
    path = table.path("a")
    if way == "vector":
        table.vectors("d", {"a": {0, 2}})
    else:
        table.positions(
            "d", {"a": {0, 2}}, **(path_bounds(path) if way == "bounds" else {"referenced_data_file": path})
        )
    table.commit(3)
    (finding,) = table.check().findings()  # that it is dangling is told by this
    assert (finding.id, finding.severity) == ("delete-lost", "error")
    name = "puffin" if way == "vector" else "parquet"
    assert finding.where == f"{table.location}/data/d-deletes.{name}"
    what = "the deletion vector at byte 4" if way == "vector" else "the file"
    assert finding.message == (
        f"{what} (sequence number 3) in branch main deletes 2 rows of {path}, which snapshot 2 (sequence number 2) had "
        "replaced: what was live of these rows is still there. That snapshot was committed at 2022-12-07T08:00:00Z by "
        "spark 4.1.4, Apache Iceberg 1.11.0, app-id local-7"
    )


def test_a_delete_is_lost_whether_the_parent_of_the_compaction_is_still_there_or_not() -> None:
    table = CompactedTable(format_version=3)
    table.numbers("a", [1, 2, 3])
    table.numbers("b", [4])
    table.commit(1)
    table.remove("a")
    table.numbers("o", [1, 2, 3], sequence_number=1, ids=[0, 1, 2])
    table.compact(2)
    table.vectors("d", {"a": {0}})
    table.commit(3)
    table.document["snapshots"] = table.document["snapshots"][1:]
    result = table.check()
    assert compared(result) == (1, 0, ["its parent is not in the table any more"], 0)
    assert {each.id for each in result.findings()} >= {"delete-lost"}
    assert "deletion-vector-dangling" not in {each.id for each in result.findings()}


def test_deletes_of_before_a_compaction_or_on_another_branch_are_not_lost() -> None:
    table = CompactedTable(format_version=3)
    table.numbers("a", [1, 2, 3])
    table.commit(1)
    table.vectors("d", {"a": {0}})
    table.commit(2)
    table.set_ref("audit", {"type": "branch", "snapshot-id": 2})
    table.remove("a", vectors=False)  # the vector stays behind
    table.numbers("o", [2, 3], sequence_number=2, ids=[1, 2])
    table.compact(3)
    table.vectors("e", {"a": {0, 1}})
    added, table.added, table.gone = table.added, [], set()
    table.commit_files("delete", added, ref="audit", snapshot_id=4)
    ids = {each.id for each in table.check().findings()}
    assert ids <= {"deletion-vector-dangling", "deletion-vectors-of-one-file"}


def test_a_vector_that_is_left_on_a_branch_where_nothing_was_compacted_is_not_lost() -> None:
    table = CompactedTable(format_version=3)
    table.numbers("a", [1, 2, 3])
    table.commit(1)
    table.set_ref("audit", {"type": "branch", "snapshot-id": 1})
    table.remove("a")
    table.numbers("o", [1, 2, 3], sequence_number=1, ids=[0, 1, 2])
    table.compact(2)
    data, places = puffin({table.path("a"): {0}})
    table.commit_files("delete", table.puffin_file("d.puffin", data, places), ref="audit", snapshot_id=3)
    table.commit_files("delete", (), {(table.path("a"), None)}, ref="audit", snapshot_id=4)
    result = table.check()
    assert told(result) == {}
    assert {each.id for each in result.findings()} == {"deletion-vector-dangling"}


def test_a_delete_of_a_file_that_came_back_is_not_lost() -> None:
    table = CompactedTable(format_version=3)
    table.numbers("a", [1, 2, 3])
    table.commit(1)
    before = table.live()
    table.remove("a")
    table.numbers("o", [1, 2, 3], sequence_number=1, ids=[0, 1, 2])
    table.compact(2)
    table.remove("o")
    table.added = [{**each, "snapshot_id": None} for each in before]
    table.commit(3)
    table.vectors("d", {"a": {0}})
    table.commit(4)
    assert told(table.check()) == {}


# -- summaries ---------------------------------------------------------------------------------------------------------


def compacted(**says: str) -> CompactedTable:
    table = CompactedTable(format_version=2)
    table.numbers("a", [1, 2, 3])
    table.numbers("b", [4])
    table.numbers("c", [5])
    table.commit(1)
    table.remove("a", "b")
    table.numbers("o", [1, 2, 3, 4], sequence_number=1)
    table.compact(2, **says)
    return table


def test_a_summary_that_counts_wrongly_is_a_warning() -> None:
    table = compacted(**{"added-records": "5", "deleted-data-files": "3"})
    (finding,) = table.check().findings()
    assert (finding.id, finding.severity, finding.where) == (
        "compaction-summary-differs",
        "warning",
        "snapshot 2",
    )
    assert finding.message.startswith(
        "deleted-data-files is 3, and its manifests against its parent's have 2; added-records is 5, and its manifests "
        "against its parent's have 4; committed at "
    )


@pytest.mark.parametrize(
    "says", [{}, {"added-records": "none", "added-files-size": "1", "changed-partition-count": "9"}]
)
def test_what_a_summary_does_not_say_or_may_count_in_its_own_way_is_no_finding(says: dict[str, str]) -> None:
    assert told(compacted(**says).check()) == {}


# -- how many ----------------------------------------------------------------------------------------------------------


def test_the_newest_are_compared_and_the_others_are_counted() -> None:
    table = CompactedTable(format_version=2)
    table.numbers("o0", range(6))
    table.commit(1)
    for number in range(1, 6):  # each loses a row
        table.remove(f"o{number - 1}")
        table.numbers(f"o{number}", range(6 - number), sequence_number=1)
        table.compact(number + 1)
    found = opened(table.storage, table.publish()).table
    found.load()
    for limit, number in ((0, 0), (2, 2), (5, 5), (20, 5)):
        result = check(found, compactions=limit)
        assert [each.where for each in result.findings()] == [
            f"snapshot {6 - place}" for place in range(number)
        ]
        assert compared(result) == (5, number, [], 5 - number)


def test_a_parent_that_was_expired_cannot_be_compared() -> None:
    table = compacted()
    table.document["snapshots"] = [each for each in table.document["snapshots"] if each["snapshot-id"] != 1]
    result = table.check()
    assert told(result) == {}
    assert compared(result) == (1, 0, ["its parent is not in the table any more"], 0)


def test_what_cannot_be_read_is_said_and_the_others_are_compared() -> None:
    table = a_delete_beside_a_compaction(2)
    table.remove("o")
    table.numbers("p", range(310), sequence_number=1)
    table.compact(5)
    table.storage.delete([f"{table.location}/metadata/snap-4.avro"])  # the parent of 5
    result = table.check()
    assert numbers_of(result) == {"compaction-rows-came-back": 100}
    total, number, reasons, _ = compared(result)
    assert (total, number, len(reasons)) == (2, 1, 1)
    assert "it is not there" in reasons[0]


@pytest.mark.parametrize("name", ["a.parquet", "d-deletes.puffin"])
def test_what_manifests_tell_is_told_where_deep_cannot_read_a_file(name: str) -> None:
    table = renumbered()
    table.storage.delete([f"{table.location}/data/{name}"])  # of the parent
    result = table.check(deep=True)
    assert numbers_of(result) == {"compaction-row-ids-lost": 4}
    total, number, reasons, _ = compared(result)
    assert (total, number, len(reasons)) == (1, 0, 1)
    assert f"{name}: the table needs this file and it is not there" in reasons[0]


def test_a_manifest_that_both_lists_have_is_not_read_for_a_comparison() -> None:
    """What a comparison costs is what changed: the manifests of before are gone here, and nobody asks for them."""
    table = CompactedTable(format_version=2)
    table.numbers("other", range(100))
    table.commit(1)
    table.numbers("a", [1])
    table.commit(2)
    table.remove("a")
    table.numbers("o", [1], sequence_number=2)
    table.compact(3)
    table.storage.delete([each.row["manifest_path"] for each in table.manifests_of(1)])
    result = table.check()
    assert compared(result) == (1, 1, [], 0)
    assert {each.id for each in result.findings()} == {"manifest-missing"}


def test_names_of_columns_that_hold_ids_do_not_matter() -> None:
    table = CompactedTable(
        format_version=3, schema=schema({"id": 1, "name": "n", "required": False, "type": "long"})
    )
    table.rows("a", [(N, [1, 2])])
    table.commit(1)
    table.remove("a")
    table.rows("o", [(N.with_name("_row_id"), [1, 2])], sequence_number=1)  # of id 1, whatever its name
    table.compact(2)
    assert numbers_of(table.check()) == {"compaction-row-ids-lost": 2}
