"""Values and row ids when files are rewritten: what each type and each history of the schema makes of a row stays it.

Numbers are those of hazards (H) and incidents (I) of other engines, which each of these tables would meet.
"""

from __future__ import annotations

import io
import struct
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.testing.iceberg_rows import LAST_UPDATED, ROW_ID
from tests.iceberg.verbs.rewrite_data_files.tables import (
    NK,
    Columns,
    K,
    N,
    RowsTable,
    column,
    of,
    parquet,
    schema,
)
from tests.iceberg.verbs.rewrite_data_files.test_hazards import field
from tests.iceberg.verbs.rewrite_data_files.whole_runs import Run, in_spec, numbers, rewrite, rows_of

VERSIONS = pytest.mark.parametrize("version", [2, 3])
ID = of(ROW_ID, "_row_id", pa.int64())


def footers(run: Run) -> list[pq.FileMetaData]:
    """Of the new files."""
    storage = run.table.storage
    return [pq.read_metadata(pa.BufferReader(storage.read(each["file_path"]))) for each in run.outputs]


def bounds(run: Run, field_id: int) -> tuple[bytes | None, bytes | None]:
    """The lower and the upper one of the one new file."""
    (output,) = run.outputs
    found = []
    for name in ("lower_bounds", "upper_bounds"):
        pairs = {each["key"]: each["value"] for each in output[name] or ()}
        found.append(pairs.get(field_id))
    return found[0], found[1]


# -- row ids ----------------------------------------------------------------------------------------------------------


def test_ids_in_a_file_come_before_those_of_its_place_and_each_row_keeps_its_last_update() -> None:
    """H16"""
    table = RowsTable(format_version=3)
    table.document["next-row-id"] = 100
    table.rows("a", [(N, [1, 2, 3]), (K, ["x", "x", "x"]), (ID, [10, None, 30])])
    table.commit(1)
    run = rewrite(table)
    assert run.rows_with_ids == [(1, "x", 10, 1), (2, "x", 101, 1), (3, "x", 30, 1)]
    numbers(table, "b", [4])
    table.commit(2)
    assert rewrite(table).rows_with_ids[:3] == run.rows_with_ids[:3]


def test_ids_count_rows_that_are_deleted() -> None:
    """H17"""
    table = RowsTable(format_version=3)
    table.document["next-row-id"] = 50
    numbers(table, "a", [1, 2, 3, 4])
    table.commit(1)
    table.vectors("v", {"a": [0, 2]})
    table.commit(2)
    assert rewrite(table).rows_with_ids == [(2, "t", 51, 1), (4, "t", 53, 1)]


def test_new_files_reserve_ids_that_no_row_needs_and_others_get_the_next_ones() -> None:
    """H19, I15: three partitions of 100 rows, and the table's next id is 1000."""
    table = RowsTable(format_version=3)
    table.document["next-row-id"] = 700
    for name, k in (("a", "x"), ("b", "y"), ("c", "z")):
        numbers(table, name, [*range(100)], k=k)
    table.commit(1)
    assert table.document["next-row-id"] == 1000
    run = rewrite(table, single_commit=True)
    assert run.document["next-row-id"] >= 1300
    assert (run.own[0]["first-row-id"], run.own[0]["added-rows"]) == (
        1000, run.document["next-row-id"] - 1000,
    )  # fmt: skip
    numbers(table, "new", [500])
    table.commit(2)
    ids = sorted(row[2] for row in rows_of(table, with_ids=True))
    assert ids[:-1] == [*range(700, 1000)]
    assert ids[-1] >= 1300


def test_ids_and_last_updates_stay_through_rewrites_of_rewrites_and_through_updates() -> None:
    """I15, C13"""
    table = RowsTable(format_version=3)
    numbers(table, "a", [1, 2])
    numbers(table, "b", [3, 4])
    table.commit(1)
    first = rewrite(table)
    table.vectors("v", {name_of(first): [1]})
    table.rows("c", [(N, [20]), (K, ["t"]), (ID, [1])])  # row 1 was updated by another engine
    table.commit(2)
    second = rewrite(table)
    assert second.rows_with_ids == [(1, "t", 0, 1), (20, "t", 1, 3), (3, "t", 2, 1), (4, "t", 3, 1)]
    numbers(table, "d", [5])
    table.commit(3)
    assert rewrite(table).rows_with_ids[:-1] == sorted(second.rows_with_ids, key=repr)


def name_of(run: Run) -> str:
    (output,) = run.outputs
    return str(output["file_path"]).removeprefix(f"{run.table.location}/data/").removesuffix(".parquet")


def test_what_was_not_rewritten_keeps_its_ids_in_a_manifest_that_is_written_anew() -> None:
    """H44: its entry is told the id that it had inherited, behind one that is removed."""
    table = RowsTable(format_version=3)
    numbers(table, "a", [1, 2], k="x")
    numbers(table, "b", [3, 4], k="y")
    numbers(table, "c", [5, 6], k="x")
    numbers(table, "d", [7], k="y")
    table.commit(1)
    run = rewrite(table, where="k = 'x'")
    assert run.left == ["b", "d"]
    assert run.rows_with_ids == [
        (1, "x", 0, 1), (2, "x", 1, 1), (3, "y", 2, 1), (4, "y", 3, 1), (5, "x", 4, 1), (6, "x", 5, 1),
        (7, "y", 6, 1),
    ]  # fmt: skip


# -- the schema's past ------------------------------------------------------------------------------------------------


@VERSIONS
def test_columns_are_found_by_their_ids_whatever_they_are_called(version: int) -> None:
    """H28, I12: n and k were swapped, and a third one differs in case alone."""
    table = RowsTable(format_version=version, schema=schema(*NK["fields"], column(3, "N", "long")))
    table.rows("a", [(N, [1]), (K, ["x"]), (of(3, "N", pa.int64()), [100])])
    table.commit(1)
    table.evolve(
        schema(column(1, "k", "long"), column(2, "n", "string"), column(3, "N", "long"), schema_id=1)
    )
    swapped = of(2, "n", pa.string()), of(1, "k", pa.int64()), of(3, "N", pa.int64())
    table.rows("b", list(zip(swapped, [["y"], [2], [200]], strict=True)))
    table.commit(2)
    run = rewrite(table)
    assert run.rows == [(1, "x", 100), (2, "y", 200)]
    assert footers(run)[0].schema.to_arrow_schema().names[:3] == ["k", "n", "N"]


def test_a_column_that_was_dropped_and_added_again_has_its_default_in_old_files() -> None:
    """H29"""
    table = RowsTable(format_version=3, schema=schema(*NK["fields"], column(3, "x", "long")))
    table.rows("a", [(N, [1]), (K, ["p"]), (of(3, "x", pa.int64()), [99])])
    table.commit(1)
    added = column(9, "x", "long", **{"initial-default": 5, "write-default": 6})
    table.evolve(schema(*NK["fields"], added, schema_id=1))
    table.rows("b", [(N, [2, 3]), (K, ["p", "p"]), (of(9, "x", pa.int64()), [7, None])])
    table.commit(2)
    assert rewrite(table).rows == [(1, "p", 5), (2, "p", 7), (3, "p", None)]


def test_a_column_that_became_an_identity_partition_later_has_the_value_of_its_file() -> None:
    """I14: one that was filed by the old spec is not read by the new one."""
    table = RowsTable(format_version=2)
    table.rows("a", [(N, [1]), (K, ["own"])])
    table.rows("b", [(N, [2])], k="of the partition")
    table.rows("c", [(N, [3]), (K, ["own too"])], k="of another")
    table.commit(1)
    assert rewrite(table).rows == [(1, "own"), (2, "of the partition"), (3, "own too")]


@VERSIONS
def test_promoted_values_are_written_in_the_types_of_today_and_so_are_their_bounds(version: int) -> None:
    """H30"""
    old = [column(3, "i", "int"), column(4, "f", "float"), column(5, "d", "decimal(9,2)")]
    table = RowsTable(format_version=version, schema=schema(*NK["fields"], *old))
    columns: Columns = [
        (N, [1]), (K, ["x"]), (of(3, "i", pa.int32()), [-5]), (of(4, "f", pa.float32()), [0.5]),
        (of(5, "d", pa.decimal128(9, 2)), [Decimal("-1.25")]),
    ]  # fmt: skip
    table.rows("a", columns)
    table.commit(1)
    new = [column(3, "i", "long"), column(4, "f", "double"), column(5, "d", "decimal(20,2)")]
    table.evolve(schema(*NK["fields"], *new, schema_id=1))
    run = rewrite(table)
    assert run.rows == [(1, "x", -5, ("bits", struct.pack(">d", 0.5).hex()), Decimal("-1.25"))]
    assert bounds(run, 3) == (struct.pack("<q", -5),) * 2
    assert bounds(run, 4) == (struct.pack("<d", 0.5),) * 2
    assert bounds(run, 5) == (b"\x83",) * 2
    types = [footers(run)[0].schema.column(at).physical_type for at in (2, 3, 4)]
    assert types == ["INT64", "DOUBLE", "FIXED_LEN_BYTE_ARRAY"]


def test_a_required_column_without_a_value_leaves_its_group_alone() -> None:
    """C17"""
    table = RowsTable(format_version=2, schema=schema(*NK["fields"], column(3, "r", "long", required=True)))
    r = of(3, "r", pa.int64())
    table.rows("a", [(N, [1]), (K, ["x"]), (r, [None])], k="x")
    table.rows("b", [(N, [2]), (K, ["y"]), (r, [5])], k="y")
    table.commit(1)
    run = rewrite(table)
    assert run.left == ["a"]
    assert run.report is not None
    (failed,) = run.report.failed_groups
    assert table.path("a") in failed["reason"]


# -- types ------------------------------------------------------------------------------------------------------------


NOT_NUMBERS = [0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000000, 0xFFF0000000000000, 1 << 63, 0]


@VERSIONS
def test_numbers_that_are_none_keep_their_bits_and_are_no_bounds(version: int) -> None:
    """H31"""
    table = RowsTable(
        format_version=version,
        schema=schema(*NK["fields"], column(3, "g", "double"), column(4, "h", "double")),
    )
    g = pa.array(np.array(NOT_NUMBERS, np.uint64).view(np.float64))
    nan = pa.array([float("nan")] * 6)
    table.rows(
        "a", [(N, range(6)), (K, ["x"] * 6), (of(3, "g", pa.float64()), g), (of(4, "h", pa.float64()), nan)]
    )
    table.commit(1)
    run = rewrite(table)
    assert [row[2] for row in run.rows] == [("bits", f"{bits:016x}") for bits in NOT_NUMBERS]
    (output,) = run.outputs
    counts = {each["key"]: each["value"] for each in output["nan_value_counts"]}
    assert {i: counts[i] for i in (3, 4)} == {3: 2, 4: 6}
    assert bounds(run, 3) == (struct.pack("<d", float("-inf")), struct.pack("<d", float("inf")))
    assert bounds(run, 4) == (None, None)


def test_zeros_of_both_signs_are_bounds_that_hold_both_and_partitions_of_their_own() -> None:
    """H31"""
    table = RowsTable(format_version=2, schema=schema(*NK["fields"], column(3, "g", "double")))
    table.document["partition-specs"] += [{"spec-id": 4, "fields": [field(3, "g", 1002, "identity")]}]
    g = of(3, "g", pa.float64())
    for name, value in (
        ("a", 0.0),
        ("b", -0.0),
        ("c", 0.0),
        ("d", -0.0),
        ("e", float("nan")),
        ("f", float("nan")),
    ):
        in_spec(table, name, [(N, [1]), (K, ["x"]), (g, [value])], spec_id=4, partition={"g": value})
    table.rows("z", [(N, [1, 2]), (K, ["x", "x"]), (g, [0.0, -0.0])])
    table.commit(1)
    run = rewrite(table)
    found = sorted(
        (struct.pack(">d", each["partition"].get("g", 1.0)).hex(), each["record_count"])
        for each in run.outputs
    )
    assert found == [
        ("0000000000000000", 2), ("3ff0000000000000", 2), ("7ff8000000000000", 2), ("8000000000000000", 2),
    ]  # fmt: skip
    (plain,) = (each for each in run.outputs if not each["partition"])
    ends = [
        {each["key"]: each["value"] for each in plain[name]}[3] for name in ("lower_bounds", "upper_bounds")
    ]
    assert ends == [struct.pack("<d", -0.0), struct.pack("<d", 0.0)]


@VERSIONS
def test_decimals_and_uuids_keep_their_values_and_have_bounds_that_every_reader_reads_alike(
    version: int,
) -> None:
    """H32"""
    own = [column(3, "d", "decimal(9,2)"), column(4, "e", "decimal(38,10)"), column(5, "u", "uuid")]
    table = RowsTable(format_version=version, schema=schema(*NK["fields"], *own))
    small, large = (
        [Decimal("-9999999.99"), Decimal("0.01")],
        [Decimal(-1), Decimal("9" * 28 + "." + "9" * 10)],
    )
    ids = [uuid.UUID(int=number).bytes for number in (0x7F << 120, 0x80 << 120)]
    columns: Columns = [
        (N, [1, 2]), (K, ["x", "y"]), (of(3, "d", pa.decimal128(9, 2)), small),
        (of(4, "e", pa.decimal128(38, 10)), large), (of(5, "u", pa.binary(16)), ids),
    ]  # fmt: skip
    table.stored("a", parquet(columns, store_decimal_as_integer=True), 2)
    table.commit(1)
    run = rewrite(table)
    assert run.rows == [(1, "x", small[0], large[0], ids[0]), (2, "y", small[1], large[1], ids[1])]
    assert bounds(run, 3) == ((-999999999).to_bytes(4, "big", signed=True), b"\x01")
    assert bounds(run, 4)[0] == (-(10**10)).to_bytes(5, "big", signed=True)
    assert bounds(run, 5) == (None, None)  # Java compares halves as signed numbers, the specification bytes


def test_instants_of_96_bits_stay_what_they_are_and_those_below_a_microsecond_are_not_cut() -> None:
    """H26"""
    table = RowsTable(
        format_version=2,
        schema=schema(*NK["fields"], column(3, "t", "timestamp"), column(4, "z", "timestamptz")),
    )
    zoned = [
        datetime(1883, 11, 18, 12, 0, 0, 5, tzinfo=UTC),
        datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
    ]
    moments = [each.replace(tzinfo=None) for each in zoned]
    t, z = of(3, "t", pa.timestamp("us")), of(4, "z", pa.timestamp("us", "UTC"))
    columns: Columns = [(N, [1, 2]), (K, ["x", "x"]), (t, moments), (z, zoned)]
    data = parquet(columns, use_deprecated_int96_timestamps=True)
    assert pq.read_metadata(io.BytesIO(data)).schema.column(2).physical_type == "INT96"
    table.stored("a", data, 2, k="x")
    finer = pa.array([1_000_000_001], pa.timestamp("ns"))
    columns = [(N, [3]), (K, ["y"]), (of(3, "t", pa.timestamp("ns")), finer), (z, zoned[:1])]
    table.stored("b", parquet(columns, use_deprecated_int96_timestamps=True), 1, k="y")
    table.commit(1)
    run = rewrite(table, check=False)
    assert run.left == ["b"]
    assert run.report is not None
    assert len(run.report.failed_groups) == 1
    stored = pq.read_table(pa.BufferReader(table.storage.read(run.outputs[0]["file_path"])))
    assert stored["t"].to_pylist() == moments
    assert stored["z"].to_pylist() == zoned
    assert [footers(run)[0].schema.column(at).physical_type for at in (2, 3)] == ["INT64", "INT64"]


TOP = chr(0x10FFFF)
TEXTS = [
    (["a" * 15 + "\ud7ffb", "a"], ("a", "a" * 15 + "\ue000")),
    ([TOP * 17, "a"], ("a", None)),
    (["b" + TOP * 16, "a" * 17], ("a" * 16, "c")),
    (["short"], ("short", "short")),
]


@pytest.mark.parametrize(("texts", "ends"), TEXTS, ids=["surrogates", "all at the top", "the rest", "whole"])
def test_upper_bounds_of_text_are_cut_and_raised_and_left_out_where_nothing_is_above(
    texts: list[str], ends: tuple[str, str | None]
) -> None:
    """H37"""
    table = RowsTable(format_version=2)
    table.rows("a", [(N, range(len(texts))), (K, texts)])
    table.commit(1)
    run = rewrite(table)
    lower, upper = ends
    assert bounds(run, 2) == (lower.encode(), None if upper is None else upper.encode())


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ([b"\xff" * 17, b"a"], (b"a", None)),
        ([b"abcdefghi" + b"\xff" * 9, b"a"], (b"a", b"abcdefghj")),
    ],
    ids=["all", "from the tenth on"],
)
def test_upper_bounds_of_bytes_likewise(values: list[bytes], ends: tuple[bytes, bytes | None]) -> None:
    """H37"""
    table = RowsTable(format_version=2, schema=schema(*NK["fields"], column(3, "b", "binary")))
    table.rows("a", [(N, [1, 2]), (K, ["x", "x"]), (of(3, "b", pa.binary()), values)])
    table.commit(1)
    assert bounds(rewrite(table), 3) == ends


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str
)
def test_text_is_plain_text_whatever_arrow_type_its_writer_had(kind: pa.DataType) -> None:
    """H25"""
    table = RowsTable(format_version=2)
    columns: Columns = [(N, [1, 2]), (of(2, "k", kind), pa.array(["x", None]).cast(kind))]
    table.stored("a", parquet(columns, store_schema=True), 2)
    table.commit(1)
    run = rewrite(table)
    assert run.rows == [(1, "x"), (2, None)]
    assert footers(run)[0].schema.to_arrow_schema().field("k").type == pa.string()


@VERSIONS
def test_nulls_and_empties_at_every_level_stay_what_they_are(version: int) -> None:
    """H33"""
    from tests.iceberg.verbs.rewrite_data_files.test_rewriting import DEEP_TYPE, STRUCT_TYPE, deep_types

    deep, inner = deep_types()
    values = [
        None,
        [],
        [None],
        [{"p": 2, "m": []}, None, {"p": 3, "m": [("k", None)]}],
        [{"p": 4, "m": [("k", []), ("l", [None, 7])]}],
    ]
    structs = [None, {"q": 1}, None, {"q": 2}, {"q": 3}]
    fields = (*NK["fields"], column(10, "deep", DEEP_TYPE), column(20, "st", STRUCT_TYPE))
    table = RowsTable(format_version=version, schema=schema(*fields))
    table.rows("a", [(N, range(5)), (K, ["x"] * 5), (deep, values), (inner, structs)], group_rows=2)
    table.commit(1)
    run = rewrite(table)
    read = pq.read_table(pa.BufferReader(table.storage.read(run.outputs[0]["file_path"])))
    assert (read["deep"].to_pylist(), read["st"].to_pylist()) == (values, structs)
    known = {each["key"] for each in run.outputs[0]["lower_bounds"]}
    assert not known & {12, 14, 16}


def test_bounds_of_the_columns_of_row_lineage_hold_their_values() -> None:
    """C24: a reader that looks for a row id by them finds it."""
    table = RowsTable(format_version=3)
    numbers(table, "a", [1, 2])
    table.commit(1)
    numbers(table, "b", [3])
    table.commit(2)
    run = rewrite(table)
    assert bounds(run, ROW_ID) == (struct.pack("<q", 0), struct.pack("<q", 2))
    assert bounds(run, LAST_UPDATED) == (struct.pack("<q", 1), struct.pack("<q", 2))


def test_dates_before_the_epoch_that_became_timestamps_stay_the_same_days() -> None:
    """H30"""
    table = RowsTable(format_version=3, schema=schema(*NK["fields"], column(3, "d", "date")))
    table.rows("a", [(N, [1]), (K, ["x"]), (of(3, "d", pa.date32()), [date(1969, 12, 31)])])
    table.commit(1)
    table.evolve(schema(*NK["fields"], column(3, "d", "timestamp"), schema_id=1))
    run = rewrite(table)
    assert run.rows == [(1, "x", ("ns", -86_400 * 10**9))]
    assert bounds(run, 3) == (struct.pack("<q", -86_400 * 10**6),) * 2
