"""Files, partitions and properties when files are rewritten: whole files, typed partitions, and what readers tuned.

Numbers are those of hazards (H) and incidents (I) of other engines, which each of these tables would meet.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from iceberg_cli.errors import CorruptFile, TooLittleMemory
from iceberg_cli.layout.files.outputs import check_stored
from iceberg_cli.layout.row_proof import row_proof
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.iceberg_files import ADDED, DELETED, records
from iceberg_cli.testing.iceberg_reader import manifests_of, snapshot_of
from iceberg_cli.testing.memory_storage import MemoryStorage
from tests.duckdb_reading import duckdb_with_iceberg
from tests.iceberg.verbs.rewrite_data_files.tables import NK, K, N, RowsTable, column, of, parquet, schema
from tests.iceberg.verbs.rewrite_data_files.test_hazards import by_position, field
from tests.iceberg.verbs.rewrite_data_files.whole_runs import Run, in_spec, numbers, rewrite, rows_of

VERSIONS = pytest.mark.parametrize("version", [2, 3])


def failed_of(run: Run) -> list[str]:
    assert run.report is not None
    return [each["reason"] for each in run.report.failed_groups]


# -- which rows -------------------------------------------------------------------------------------------------------


def test_a_condition_on_partitions_chooses_files_and_all_of_their_rows_are_written() -> None:
    """H48, I4: buckets of n; the rows of a bucket are those of its files, whatever n they have."""
    table = RowsTable(format_version=2)
    table.document["partition-specs"] += [{"spec-id": 4, "fields": [field(1, "b", 1001, "bucket[4]")]}]
    for name, values, bucket in (("a", [1, 2], 0), ("b", [300, 4], 0), ("c", [5], 1), ("d", [6], 1)):
        in_spec(table, name, [(N, values), (K, ["t"] * len(values))], spec_id=4, partition={"b": bucket})
    table.commit(1)
    run = rewrite(table, where="b = 0")
    assert run.rows == [(1, "t"), (2, "t"), (300, "t"), (4, "t"), (5, "t"), (6, "t")]
    assert (run.left, [each["record_count"] for each in run.outputs]) == (["c", "d"], [4])


@pytest.mark.parametrize("spec", ["unpartitioned", "by k"])
def test_manifests_of_version_1_have_ids_of_snapshots_and_no_sequence_numbers(spec: str) -> None:
    """H15, C10: nothing is inherited there."""
    table = RowsTable(format_version=1)
    k = "x" if spec == "by k" else None
    numbers(table, "a", [1, 2], k=k)
    numbers(table, "b", [3], k=k)
    table.commit(1)
    numbers(table, "c", [4], k=k)
    table.commit(2)

    def add(table: RowsTable) -> None:
        numbers(table, "late", [5], k=k)
        table.commit(3)

    run = rewrite(table, meanwhile=add)
    text = "x" if k else "t"
    assert run.rows == [(n, text) for n in range(1, 6)]
    (own,) = (each["snapshot-id"] for each in run.own)
    found = [
        entry
        for manifest in manifests_of(table.storage, snapshot_of(table.document, own))
        for entry in records(table.storage.read(manifest["manifest_path"]))
    ]
    # As the files have them: the literal reader fills in what is inherited. The other writer here leaves out its own.
    assert {(each["status"], each["snapshot_id"]) for each in found} == {
        (ADDED, own), (DELETED, own), (ADDED, None),
    }  # fmt: skip
    again = rewrite(table)
    assert again.rows == run.rows


def test_a_commit_of_version_1_that_is_tried_again_names_its_new_snapshot_in_each_entry() -> None:
    """K7: entries that were written for a lost try have an id that no snapshot got."""
    table = RowsTable(format_version=1)
    numbers(table, "a", [1])
    numbers(table, "b", [2])
    table.commit(1)

    def race(table: RowsTable) -> None:
        number = len(table.document["snapshots"])
        numbers(table, f"late{number}", [10 + number])
        table.commit(number + 1)

    run = rewrite(table, meanwhile=race)
    assert run.rows == [(1, "t"), (11, "t"), (2, "t")]
    ids = {each["snapshot-id"] for each in table.document["snapshots"]}
    for each in run.own:
        for manifest in manifests_of(table.storage, each):
            entries = records(table.storage.read(manifest["manifest_path"]))
            assert {entry["snapshot_id"] for entry in entries} <= ids | {None}


def test_files_of_version_1_are_rewritten_with_the_number_0_once_the_table_is_upgraded() -> None:
    """H15: deletes that came after the upgrade apply to new files as they did to old ones."""
    table = RowsTable(format_version=1)
    numbers(table, "a", [1, 2])
    numbers(table, "b", [3])
    table.commit(1)
    table.document |= {"format-version": 2, "last-sequence-number": 0}
    for snapshot in table.document["snapshots"]:
        del snapshot["sequence-number"]
    table.format_version = 2

    def delete(table: RowsTable) -> None:
        table.equality_rows("e", [(N, [2])])
        table.commit(2)

    run = rewrite(table, meanwhile=delete)
    assert run.rows == [(1, "t"), (3, "t")]
    assert [each["sequence_number"] for each in run.outputs] == [0]
    assert run.delete_names == ["e-eq-deletes.parquet"]
    assert rewrite(table).rows == [(1, "t"), (3, "t")]


# -- files that are odd, or broken ------------------------------------------------------------------------------------


def test_files_elsewhere_are_read_and_new_ones_are_in_the_table() -> None:
    """H22"""
    table = RowsTable(format_version=2)
    numbers(table, "a", [1])
    for name, n in (("b", 2), ("c", 3)):
        data = parquet([(N, [n]), (K, ["t"])])
        path = f"mem://elsewhere/{name}.parquet"
        table.storage.put_if_absent(path, data)
        table.added.append({**table.added[0], "file_path": path, "file_size_in_bytes": len(data)})
    table.commit(1)
    run = rewrite(table)
    assert run.rows == [(1, "t"), (2, "t"), (3, "t")]
    (output,) = run.outputs
    assert output["file_path"].startswith(f"{table.location}/data/")
    assert table.storage.stat("mem://elsewhere/b.parquet").size_bytes


@pytest.mark.parametrize("what", ["gone", "cut", "no Parquet"])
def test_a_file_that_cannot_be_read_leaves_its_group_alone_and_is_named(what: str) -> None:
    """H22"""
    table = RowsTable(format_version=2)
    numbers(table, "a", [1], k="x")
    numbers(table, "b", [2], k="x")
    numbers(table, "c", [3], k="y")
    table.commit(1)
    data = table.storage.read(table.path("a"))
    table.storage.delete([table.path("a")])
    if what != "gone":
        broken = data[: len(data) // 2] if what == "cut" else b"x" * len(data)
        table.storage.put_if_absent(table.path("a"), broken)
    run = rewrite(table, check=False)
    assert run.left == ["a", "b"]
    assert [each["partition"] for each in run.outputs] == [{"k": "y"}]
    (reason,) = failed_of(run)
    assert table.path("a") in reason


@pytest.mark.parametrize("recorded", [0, 7, 1 << 40])
def test_a_file_is_as_large_as_its_storage_says(recorded: int) -> None:
    """H24"""
    table = RowsTable(format_version=2)
    numbers(table, "a", list(range(100)), file_size_in_bytes=recorded)
    numbers(table, "b", [200])
    table.commit(1)
    run = rewrite(table)
    assert len(run.rows) == 101
    assert all(
        each["file_size_in_bytes"] == table.storage.stat(each["file_path"]).size_bytes for each in run.outputs
    )


def test_a_file_with_other_rows_than_its_entry_says_leaves_its_group_alone() -> None:
    """H24, C32"""
    table = RowsTable(format_version=2)
    table.stored("a", parquet([(N, [1, 2]), (K, ["x", "x"])]), 3, k="x")
    numbers(table, "b", [3], k="y")
    table.commit(1)
    run = rewrite(table, check=False)
    assert run.left == ["a"]
    (reason,) = failed_of(run)
    assert "it has 2 rows, its entry says 3" in reason


def test_files_without_rows_go_and_one_of_no_bytes_that_should_have_some_stays() -> None:
    """H34"""
    table = RowsTable(format_version=2)
    table.stored("empty", parquet([(N, []), (K, [])]), 0, k="x")
    table.stored("no bytes", b"", 0, k="x")
    table.stored("broken", b"", 5, k="y")
    table.commit(1)
    run = rewrite(table, check=False)
    assert run.left == ["broken"]
    assert run.outputs == []
    assert len(failed_of(run)) == 1


def test_a_file_without_field_ids_is_read_by_the_name_mapping_or_not_at_all() -> None:
    """H27"""
    plain = [(pa.field("k", pa.string()), ["x"]), (pa.field("num", pa.int64()), [1])]
    mapping = '[{"field-id": 1, "names": ["n", "num"]}, {"field-id": 2, "names": ["k"]}]'
    table = RowsTable(format_version=2, properties={"schema.name-mapping.default": mapping})
    table.rows("a", plain)
    table.rows(
        "b", [(of(2, "num", pa.string()), ["y"]), (pa.field("n", pa.int64()), [9])]
    )  # ids of some: these alone
    table.commit(1)
    assert rewrite(table).rows == [(1, "x"), (None, "y")]

    table = RowsTable(format_version=2)
    table.rows("a", plain)
    numbers(table, "b", [2], k="y")
    numbers(table, "c", [3], k="y")
    table.commit(1)
    run = rewrite(table, check=False)
    assert run.left == ["a"]
    (reason,) = failed_of(run)
    assert f"{table.path('a')}: its columns have no field ids" in reason
    assert "schema.name-mapping.default" in reason


# -- partitions -------------------------------------------------------------------------------------------------------


VALUES = ["a/b", "a%2Fb", "%2F", "ü", "", None, "null", "__HIVE_DEFAULT_PARTITION__", " "]


@VERSIONS
@pytest.mark.parametrize("name", ["c", "a column"])
def test_partitions_are_told_apart_by_their_values_and_not_by_their_folders(version: int, name: str) -> None:
    """H23, I26"""
    table = RowsTable(format_version=version, schema=schema(*NK["fields"], column(3, name, "string")))
    table.document["partition-specs"] += [{"spec-id": 4, "fields": [field(3, name, 1002, "identity")]}]
    c = of(3, name, pa.string())
    for place, value in enumerate(VALUES):
        for half in (0, 1):
            columns = [(N, [2 * place + half]), (K, ["t"]), (c, [value])]
            in_spec(table, f"{place}-{half}", columns, spec_id=4, partition={name: value})
    table.commit(1)
    # The slow reader does not know how Avro spells a name with a space.
    run = rewrite(table, single_commit=True, check=name == "c")
    found = {next(iter(each["partition"].values())): each for each in run.outputs}
    assert found.keys() == set(VALUES)
    for place, value in enumerate(VALUES):
        stored = pq.read_table(pa.BufferReader(table.storage.read(found[value]["file_path"])))
        assert stored["n"].to_pylist() == [2 * place, 2 * place + 1]
        assert stored[name].to_pylist() == [value, value]
    folders = {value: each["file_path"].rsplit("/", 2)[-2] for value, each in found.items()}
    key = name.replace(" ", "+")
    assert folders["a/b"] == f"{key}=a%2Fb"
    assert folders["a%2Fb"] == f"{key}=a%252Fb"
    assert folders["ü"] == f"{key}=%C3%BC"
    assert folders[None] == folders["null"] == f"{key}=null"


# -- properties -------------------------------------------------------------------------------------------------------


def test_files_are_compressed_encoded_and_filtered_as_the_properties_of_the_table_say() -> None:
    """H49"""
    table = RowsTable(
        format_version=2,
        properties={
            "write.parquet.compression-codec": "gzip",
            "write.parquet.compression-level": "9",
            "write.parquet.dict-encoding-enabled.column.n": "false",
            "write.parquet.bloom-filter-enabled.column.k": "true",
            "write.parquet.row-group-size-bytes": "8192",
        },
    )
    table.rows("a", [(N, range(5000)), (K, [f"text {n}" for n in range(5000)])], group_rows=5000)
    table.commit(1)
    run = rewrite(table)
    (output,) = run.outputs
    footer = pq.read_metadata(pa.BufferReader(table.storage.read(output["file_path"])))
    n, k = (footer.row_group(0).column(at) for at in (0, 1))
    assert (n.compression, k.compression) == ("GZIP", "GZIP")
    assert (n.has_dictionary_page, k.has_dictionary_page) == (False, True)
    assert (n.bloom_filter_offset, k.bloom_filter_offset is not None) == (None, True)
    assert footer.num_row_groups > 1
    firsts = [footer.row_group(at).column(0).data_page_offset for at in range(footer.num_row_groups)]
    assert output["split_offsets"] == firsts


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.location-provider.impl", "com.example.Provider"),
        ("write.format.default", "orc"),
        ("encryption.key-id", "a key"),
    ],
)
def test_a_property_that_cannot_be_obeyed_is_an_obstacle_that_is_named(name: str, value: str) -> None:
    """C20, C22"""
    table = RowsTable(format_version=2, properties={name: value})
    numbers(table, "a", [1])
    numbers(table, "b", [2])
    table.commit(1)
    run = rewrite(table)
    assert run.own == []
    assert [reason for reason in run.plan.blocked_by if name in reason]


@VERSIONS
@pytest.mark.parametrize(
    "properties",
    [
        {"commit.manifest-merge.enabled": "false"},
        {"commit.manifest.min-count-to-merge": "2"},
        {"commit.manifest.target-size-bytes": "1024"},
    ],
    ids=lambda each: next(iter(each)),
)
def test_manifests_of_which_no_file_is_rewritten_are_listed_as_they_were(
    version: int, properties: dict[str, str]
) -> None:
    """H44: manifests of three specs."""
    table = RowsTable(format_version=version, properties=properties)
    table.document["partition-specs"] += [{"spec-id": 4, "fields": [field(1, "n", 1001, "identity")]}]
    for number in range(1, 4):
        numbers(table, f"a{number}", [number])
        numbers(table, f"b{number}", [10 + number], k="x")
        numbers(table, f"c{number}", [20 + number], k="y")
        in_spec(table, f"d{number}", [(N, [7]), (K, [str(number)])], spec_id=4, partition={"n": 7})
        table.commit(number)
    before = {
        row["manifest_path"]: row for row in manifests_of(table.storage, snapshot_of(table.document, 3))
    }
    run = rewrite(table, where="k = 'x'")
    assert run.left == ["a1", "a2", "a3", "c1", "c2", "c3", "d1", "d2", "d3"]
    after = manifests_of(table.storage, snapshot_of(run.document, run.head))
    kept = [row for row in after if row["manifest_path"] in before]
    assert len(kept) == 6
    assert all(row == before[row["manifest_path"]] for row in kept)
    assert {row["partition_spec_id"] for row in after} == {0, 1, 4}


def of_order(
    *columns: tuple[int, str], transform: str = "identity", null_order: str = "nulls-first", **values: Any
) -> RowsTable:
    """A table with a sort order by some columns; its files say what they like."""
    table = RowsTable(**{"format_version": 2, **values})
    fields = [
        {"transform": transform, "source-id": field_id, "direction": direction, "null-order": null_order}
        for field_id, direction in columns
    ]
    table.document["sort-orders"] += [{"order-id": 1, "fields": fields}]
    table.document["default-sort-order-id"] = 1
    return table


def ordered_rows(table: RowsTable, name: str, values: Sequence[int | None], **others: Any) -> None:
    """A data file of numbers that says between which they are, and that it is sorted."""
    known = [each for each in values if each is not None]
    lower, upper = ([{"key": 1, "value": struct.pack("<q", each)}] for each in (min(known), max(known)))
    others = {"sort_order_id": 1, "lower_bounds": lower, "upper_bounds": upper, **others}
    numbers(table, name, values, **others)


def in_order(run: Run, table: RowsTable) -> list[tuple[int, list[int | None]]]:
    """Of each new file the order that it says and its rows."""
    return [
        (
            each["sort_order_id"],
            pq.read_table(pa.BufferReader(table.storage.read(each["file_path"])))["n"].to_pylist(),
        )
        for each in run.outputs
    ]


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_files_that_follow_each_other_by_the_tables_order_are_read_in_it(
    direction: str, version: int
) -> None:
    """H38: eight files, each sorted, whose paths and sequence numbers are in another order."""
    table = of_order((1, direction), format_version=version)
    chunks = [[3 * number, 3 * number + 1, 3 * number + 1] for number in range(8)]
    for number, place in enumerate([5, 2, 7, 0, 1, 6, 3, 4], start=1):
        values = chunks[place] if direction == "asc" else chunks[place][::-1]
        ordered_rows(table, f"f{9 - number}", values)
        table.commit(number)
    run = rewrite(table)
    expected = sorted((each for chunk in chunks for each in chunk), reverse=direction == "desc")
    assert in_order(run, table) == [(1, expected)]
    assert not run.plan.warnings


def test_each_group_keeps_its_own_order() -> None:
    """H38: in partition x files follow each other, one ends where the next begins; in w they overlap; z has one."""
    table = of_order((1, "asc"))
    for name, k, values in (
        ("a", "w", [1, 9]), ("b", "w", [2, 3]), ("c", "x", [5, 6]), ("d", "x", [3, 5]), ("e", "z", [8, 9, 10]),
        ("f", "x", [1, 2]),
    ):  # fmt: skip
        ordered_rows(table, name, values, k=k)
    table.commit(1)
    run = rewrite(table)
    assert sorted(in_order(run, table)) == [(0, [1, 9, 2, 3]), (1, [1, 2, 3, 5, 5, 6]), (1, [8, 9, 10])]
    assert [each[:12] for each in run.plan.warnings if "sort order" in each] == ["2 data files"]


@pytest.mark.parametrize(("null_order", "order_id"), [("nulls-first", 0), ("nulls-last", 1)])
def test_nulls_stand_where_the_order_has_them(null_order: str, order_id: int) -> None:
    """H38"""
    table = of_order((1, "asc"), null_order=null_order)
    ordered_rows(table, "a", [1, 2])
    ordered_rows(table, "b", [3, None])
    table.commit(1)
    assert in_order(rewrite(table), table) == [(order_id, [1, 2, 3, None])]


@pytest.mark.parametrize("with_head", [False, True])
@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("statistics", "The statistics of snapshot {} are of the same rows"),
        ("partition-statistics", "The partition statistics of snapshot {} count files that are replaced"),
    ],
)
def test_statistics_stay_with_the_snapshot_that_they_are_of_and_the_plan_says_so(
    key: str, sentence: str, *, with_head: bool
) -> None:
    """C28, I32: those of older snapshots nobody looks for."""
    table = RowsTable(format_version=2)
    for number, name in enumerate(("a", "b"), start=1):
        numbers(table, name, [number])
        table.commit(number)
    older, head = (each["snapshot-id"] for each in table.document["snapshots"])
    own = {"file-size-in-bytes": 9, "file-footer-size-in-bytes": 4, "blob-metadata": []}
    statistics = [
        {"snapshot-id": each, "statistics-path": table.path(f"{each}.stats"), **own}
        for each in ([older, head] if with_head else [older])
    ]
    table.document[key] = statistics
    run = rewrite(table)
    assert [each.partition(",")[0].partition(":")[0] for each in run.plan.warnings] == (
        [sentence.format(head)] if with_head else []
    )
    assert run.document[key] == statistics


def test_a_table_of_no_order_has_none_to_lose() -> None:
    """H38"""
    table = RowsTable(format_version=2)
    numbers(table, "a", [3, 1], sort_order_id=0)
    numbers(table, "b", [2])
    table.commit(1)
    run = rewrite(table)
    assert in_order(run, table) == [(0, [3, 1, 2])]
    assert not run.plan.warnings


def test_only_rows_that_were_seen_to_be_in_order_are_said_to_be() -> None:
    """H38: one file says that it is sorted and is not; a null stands where it may not; another column decides then."""
    table = of_order((1, "asc"))
    ordered_rows(table, "a", [1, 3, 2])
    ordered_rows(table, "b", [4, 5])
    table.commit(1)
    assert in_order(rewrite(table), table) == [(0, [1, 3, 2, 4, 5])]
    table = of_order((1, "asc"))
    ordered_rows(table, "a", [1, 2])
    ordered_rows(table, "b", [None, 3])
    table.commit(1)
    assert in_order(rewrite(table), table) == [(0, [1, 2, None, 3])]
    for words, order_id in ((["x", "y", "b", "c"], 1), (["y", "x", "b", "c"], 0), (["x", "y", "a", "b"], 1)):
        table = of_order((1, "asc"), (2, "asc"))
        for name, numbered, of_file in (("a", [1, 1], words[:2]), ("b", [2, 2], words[2:])):
            bounds = [[{"key": 1, "value": struct.pack("<q", numbered[0])}]] * 2
            table.rows(
                name,
                [(N, numbered), (K, of_file)],
                sort_order_id=1,
                lower_bounds=bounds[0],
                upper_bounds=bounds[1],
            )
        table.commit(1)
        assert in_order(rewrite(table), table) == [(order_id, [1, 1, 2, 2])]


@pytest.mark.parametrize(
    ("second", "others"),
    [
        ([2, 9], {}),
        ([7, 8], {"sort_order_id": 0}),
        ([7, 8], {"sort_order_id": None}),
        ([7, 8], {"upper_bounds": None}),
        ([7, 8], {"transform": "bucket[4]"}),
    ],
    ids=["overlap", "another unsorted", "another of no order", "without bounds", "by a transform"],
)
def test_where_an_order_goes_the_plan_says_so(second: list[int], others: dict[str, Any]) -> None:
    """H38: merging is for a sort."""
    transform = others.pop("transform", "identity")
    table = of_order((1, "asc"), transform=transform)
    ordered_rows(table, "a", [1, 3])
    ordered_rows(table, "b", second, **others)
    table.commit(1)
    run = rewrite(table)
    assert in_order(run, table) == [(0, [1, 3, *second])]
    ends = (
        "are written to files that are of none: rows are not sorted by it, and these overlap or are rewritten with "
        "others."
    )
    files = "1 data file" if "sort_order_id" in others else "2 data files"
    assert [each for each in run.plan.warnings if "sort order" in each] == [
        f"{files} of the table's sort order 1 {ends}"
    ]


@pytest.mark.parametrize("change", ["another order", "the column is gone"])
def test_an_order_that_changed_since_the_plan_is_not_claimed(change: str) -> None:
    """H38: rows that are in the order of then, and not in that of now, or in none that can be seen."""
    table = of_order((1, "asc"))
    ordered_rows(table, "a", [1, 2])
    ordered_rows(table, "b", [3, 4])
    table.commit(1)

    def later(table: RowsTable) -> None:
        if change == "another order":
            fields = [
                {"transform": "identity", "source-id": 2, "direction": "asc", "null-order": "nulls-first"}
            ]
            table.document["sort-orders"] += [{"order-id": 2, "fields": fields}]
            table.document["default-sort-order-id"] = 2
        else:
            table.evolve(schema(NK["fields"][1], schema_id=1))

    run = rewrite(table, after_plan=later, loads_again=True, check=change == "another order")
    assert [(each["sort_order_id"], each["record_count"]) for each in run.outputs] == [(0, 4)]


def test_new_files_are_of_no_order_though_the_table_has_one() -> None:
    """H38, I27: files that say they are sorted, and are not; what is not verified is not claimed."""
    table = of_order((1, "asc"))
    numbers(table, "a", [3, 1, 2], sort_order_id=1)
    numbers(table, "b", [5, 4], sort_order_id=0)
    table.commit(1)
    run = rewrite(table)
    assert [each["sort_order_id"] for each in run.outputs] == [0]
    stored = pq.read_table(pa.BufferReader(table.storage.read(run.outputs[0]["file_path"])))
    assert stored["n"].to_pylist() == [3, 1, 2, 5, 4]


def test_columns_beyond_the_first_hundred_have_no_metrics() -> None:
    """H35"""
    fields = [column(i, f"c{i}", "int") for i in range(1, 301)]
    table = RowsTable(format_version=2, schema=schema(*fields))
    table.document["partition-specs"] = [{"spec-id": 0, "fields": []}]
    for name in ("a", "b"):
        table.rows(name, [(of(i, f"c{i}", pa.int32()), [i]) for i in range(1, 301)])
    table.commit(1)
    (output,) = rewrite(table).outputs
    assert [each["key"] for each in output["lower_bounds"]] == [*range(1, 101)]
    assert [each["key"] for each in output["value_counts"]] == [*range(1, 101)]


def many_columns() -> RowsTable:
    """300 columns, of which some are taken for others' fields by their names, in two files of three row groups each."""
    struct = {"type": "struct", "fields": [column(401, "a", "long"), column(402, "b", "string")]}
    longs = [column(i, f"c{i}", "long") for i in range(1, 150)]
    texts = [column(i, f"t{i}", "string") for i in range(150, 299)]
    fields = [*longs, column(299, "s", struct), *texts, column(300, "s.a", "long")]
    table = RowsTable(format_version=3, schema=schema(*fields))
    table.document["partition-specs"] = [{"spec-id": 0, "fields": []}]
    table.document["last-column-id"] = 402
    inner = pa.struct([of(401, "a", pa.int64()), of(402, "b", pa.string())])
    for name, first in (("a", 0), ("b", 100)):
        values = range(first, first + 8)
        table.rows(
            name,
            [
                *[(of(i, f"c{i}", pa.int64()), [i * n for n in values]) for i in range(1, 150)],
                (of(299, "s", inner), [{"a": -n, "b": str(n)} if n % 3 else None for n in values]),
                *[(of(i, f"t{i}", pa.string()), [f"{i} {n % 2}" for n in values]) for i in range(150, 299)],
                (of(300, "s.a", pa.int64()), [1000 + n if n % 2 else None for n in values]),
            ],
        )
    table.commit(1)
    return table


def test_rows_of_very_many_columns_are_read_and_proved_some_columns_at_a_time() -> None:
    """C33"""
    table = many_columns()
    table.vectors("dv", {"a": {0, 4}})
    table.commit(2)
    run = rewrite(table)
    (output,) = run.outputs
    assert (output["record_count"], len(run.rows)) == (14, 14)


@pytest.mark.pairs
@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
@pytest.mark.parametrize("field_id", [None, 1, 149, 150, 298, 299, 300])
def test_another_value_in_any_of_very_many_columns_is_noticed(field_id: int | None, batch_bytes: int) -> None:
    """C29, C33"""
    table = many_columns()
    rows = pq.read_table(pa.BufferReader(table.storage.read(table.path("a"))))
    proof = row_proof(rows)
    for place, own in enumerate(rows.schema):
        if own.metadata[b"PARQUET:field_id"] == str(field_id).encode():
            values = rows.column(place).to_pylist()
            values[-1] = {int: -7, str: "another"}.get(type(values[-1]))
            rows = rows.set_column(place, own, pa.array(values, own.type))
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=5, store_schema=False)
    storage = MemoryStorage()
    storage.put_if_absent("f", sink.getvalue())

    def check() -> None:
        size_bytes = len(sink.getvalue())
        check_stored(storage, "f", size_bytes=size_bytes, count=8, proof=proof, batch_bytes=batch_bytes)

    if field_id is None:
        check()
    else:
        with pytest.raises(CorruptFile, match="they are not the 8 rows that were written"):
            check()


def test_large_rows_are_written_within_little_memory() -> None:
    """H36"""
    table = RowsTable(format_version=2, properties={"write.parquet.compression-codec": "uncompressed"})
    texts = [chr(ord("a") + n) * (1 << 17) for n in range(6)]
    table.rows("a", [(N, range(6)), (K, texts)], group_rows=1)
    table.commit(1)
    run = rewrite(table, memory="1MiB", target_size="16MiB")
    (output,) = run.outputs
    footer = pq.read_metadata(pa.BufferReader(table.storage.read(output["file_path"])))
    assert footer.num_row_groups >= 2
    assert [row[1] for row in run.rows] == texts


def test_memory_that_a_row_group_does_not_fit_into_is_refused_with_the_figure_that_will_do() -> None:
    """H35, C33: a page of each column is there at a time; of 40 columns of 400 KB that do not compress."""
    fields = [column(i, f"c{i}", "double") for i in range(1, 41)]
    table = RowsTable(format_version=2, schema=schema(*fields))
    table.document["partition-specs"] = [{"spec-id": 0, "fields": []}]
    drawn = np.random.default_rng(3)
    for name in ("a", "b"):
        columns = [(of(i, f"c{i}", pa.float64()), pa.array(drawn.random(50_000))) for i in range(1, 41)]
        table.stored(name, parquet(columns, group_rows=50_000, use_dictionary=False), 50_000)
    table.commit(1)
    before = {each.path for each in table.storage.list(table.location)}
    run = rewrite(table, memory="30MiB", check=False)
    assert isinstance(run.error, TooLittleMemory)
    assert run.error.exit_code == 11
    assert (
        "the pages of its 40 columns take about 15.3 MiB at a time, and 10.0 MiB are there"
        in run.error.message
    )
    assert run.error.next_step == "Run it with --memory 46MiB, or with fewer --processes."
    assert "The table was not changed" in run.error.state
    made = {each.path for each in table.storage.list(table.location)} - before
    assert [path for path in made if path.endswith(".parquet")] == []
    run = rewrite(table, memory="46MiB", check=False)
    assert [each["record_count"] for each in run.outputs] == [100_000]


# -- what stays, and other readers ------------------------------------------------------------------------------------


@VERSIONS
def test_no_file_is_deleted_whoever_needs_it(version: int) -> None:
    """H40, I13: for the snapshot before, a tag, and another branch."""
    table = RowsTable(format_version=version, properties={"gc.enabled": "false"})
    numbers(table, "a", [1, 2])
    numbers(table, "b", [3])
    table.commit(1)
    by_position(table, "p", {"a": [0]})
    table.commit(2)
    table.set_ref("tag", {"type": "tag", "snapshot-id": 1})
    before = {each.path: table.storage.read(each.path) for each in table.storage.list(table.location)}
    refs = dict(table.document["refs"])
    run = rewrite(table)
    assert run.left == []
    now = {each.path: table.storage.read(each.path) for each in table.storage.list(table.location)}
    assert {path: now.get(path) for path in before} == before
    assert rows_of(table, 1) == [(1, "t"), (2, "t"), (3, "t")]
    assert rows_of(table, 2) == run.rows == [(2, "t"), (3, "t")]
    assert run.document["refs"]["tag"] == refs["tag"]
    assert [each["schema-id"] for each in run.document["schemas"]] == [0]


@VERSIONS
def test_a_stream_reader_has_nothing_to_read_of_a_rewrite(version: int) -> None:
    """H42: the rows after it, without those before it, are none, and the other way round."""
    table = RowsTable(format_version=version)
    numbers(table, "a", [1, 2], k="x")
    numbers(table, "b", [3], k="x")
    table.commit(1)
    by_position(table, "p", {"a": [1]}, k="x")
    table.commit(2)
    run = rewrite(table)
    (own,) = run.own
    assert (own["summary"]["operation"], own["parent-snapshot-id"]) == ("replace", 2)
    with_ids = version > 2
    assert rows_of(table, own["snapshot-id"], with_ids=with_ids) == rows_of(table, 2, with_ids=with_ids)


def test_others_read_the_same_rows_before_and_after(tmp_path: Path) -> None:
    """I18: what one engine counts by the metadata, the other one finds in the files."""
    table = RowsTable(storage=LocalStorage(), location=str(tmp_path / "t"), format_version=2)
    numbers(table, "a", list(range(10)), k="x")
    numbers(table, "b", [10, 11], k="x")
    numbers(table, "c", [20], k="null")
    numbers(table, "d", [21])
    table.commit(1)
    table.positions("p", {"a": [0, 9]}, k="x")
    table.commit(2)
    expected = sorted([*range(1, 9), 10, 11, 20, 21])
    for _ in range(2):
        location = table.publish()
        found = StaticTable.from_metadata(location).scan().to_arrow()
        assert sorted(found["n"].to_pylist()) == expected
        query = f"SELECT n FROM iceberg_scan('{location}') WHERE n >= 0 ORDER BY n"
        assert [row[0] for row in duckdb_with_iceberg().execute(query).fetchall()] == expected
        rewrite(table, single_commit=True)
    pruned = StaticTable.from_metadata(table.publish()).scan("k == 'x' and n > 9").to_arrow()
    assert sorted(pruned["n"].to_pylist()) == [10, 11]


def test_duckdb_reads_the_rows_of_version_3_with_their_ids_and_counts_them_alike(tmp_path: Path) -> None:
    """I18"""
    table = RowsTable(storage=LocalStorage(), location=str(tmp_path / "t"), format_version=3)
    numbers(table, "a", [1, 2, 3], k="x")
    numbers(table, "b", [4, 5], k="x")
    numbers(table, "c", [6], k="y")
    table.commit(1)
    table.vectors("v", {"a": [1]}, k="x")
    table.commit(2)
    expected = [(1, 0), (3, 2), (4, 3), (5, 4)]
    run = rewrite(table, where="k = 'x'")
    assert len(run.outputs) == 1
    scan = f"iceberg_scan('{table.publish()}')"
    duckdb = duckdb_with_iceberg()
    assert duckdb.execute(f"SELECT n, _row_id FROM {scan} WHERE k = 'x' ORDER BY n").fetchall() == expected
    assert duckdb.execute(f"SELECT count(*) FROM {scan}").fetchall() == [(5,)]
