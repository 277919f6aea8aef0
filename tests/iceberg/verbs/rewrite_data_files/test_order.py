"""Rows of an Iceberg table in an order: by the table's own, by columns, along a curve."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.errors import UsageError
from tests.iceberg.verbs.rewrite_data_files.tables import K, N, RowsTable, column, of, schema
from tests.iceberg.verbs.rewrite_data_files.test_hazards_files import in_order, of_order, ordered_rows
from tests.iceberg.verbs.rewrite_data_files.whole_runs import Act, Run, rewrite


def ordered(table: RowsTable, meanwhile: Act | None = None, **options: Any) -> Run:
    """A run that brings rows into an order, where that is worth it."""
    return rewrite(table, meanwhile=meanwhile, **{"rewrite_all": False, **options})


OVERLAPPING = ([1, 5, 9], [2, 6, 9], [0, 4, None], [3, 7, 8])


def a_table(*columns: tuple[int, str], **values: Any) -> RowsTable:
    """Four files that say that they are sorted, and lie upon each other."""
    table = of_order(*columns, **values)
    for number, own in enumerate(OVERLAPPING, start=1):
        ordered_rows(table, f"f{number}", own)
        table.commit(number)
    return table


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(("direction", "nulls"), [("asc", "nulls-first"), ("desc", "nulls-last")])
def test_rows_come_into_the_order_that_the_table_asks_for(direction: str, nulls: str, version: int) -> None:
    """C25, I#17489: files that lie upon each other are merged, and say their order; a second run plans nothing."""
    table = a_table((1, direction), null_order=nulls, format_version=version)
    run = ordered(table, strategy="sort")
    numbers = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9]
    assert in_order(run, table) == [(1, [None, *numbers] if direction == "asc" else [*numbers[::-1], None])]
    assert [each["reason"] for each in run.plan.to_json()["rewrite"]["groups"]] == ["order"]
    assert not [each for each in run.plan.warnings if "sort order" in each]
    again = ordered(run.table, strategy="sort")
    assert (again.report, len(again.data)) == (None, 1)


def test_columns_that_are_named_are_sorted_by_and_no_order_of_the_table_is_claimed() -> None:
    run = ordered(table := a_table((1, "asc")), strategy="sort", sort_by=["n:desc:nulls-first"])
    assert in_order(run, table) == [(0, [None, 9, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0])]
    assert [each[:12] for each in run.plan.warnings if "sort order" in each] == ["4 data files"]


def test_an_order_by_more_than_the_tables_columns_is_the_tables_too() -> None:
    run = ordered(table := a_table((1, "asc")), strategy="sort", sort_by=["n", "k:desc"])
    assert [order_id for order_id, _ in in_order(run, table)] == [1]


def test_a_file_that_does_not_say_that_it_is_sorted_is_written_anew_alone() -> None:
    """C5: a wrong order id is a reason; the others, which follow each other, stay."""
    table = of_order((1, "asc"))
    for number, (values, order_id) in enumerate((([1, 2], 1), ([3, 4], 0), ([5, 6], 1)), start=1):
        ordered_rows(table, f"f{number}", values, sort_order_id=order_id)
        table.commit(number)
    run = ordered(table, strategy="sort", min_size=1)
    assert in_order(run, table) == [(1, [3, 4])]
    assert run.left == ["f1", "f3"]


def test_each_partition_has_its_own_order() -> None:
    table = of_order((1, "asc"))
    for number, (k, values) in enumerate(
        (("x", [1, 9]), ("y", [5, 7]), ("x", [2, 8]), ("y", [4, 6])), start=1
    ):
        ordered_rows(table, f"f{number}", values, k=k)
        table.commit(number)
    run = ordered(table, strategy="sort")
    assert sorted(in_order(run, table)) == [(1, [1, 2, 8, 9]), (1, [4, 5, 6, 7])]


def test_a_partition_column_of_the_tables_order_is_sorted_by_though_it_decides_nothing() -> None:
    table = of_order((2, "asc"), (1, "desc"))
    table.document["default-spec-id"] = 1  # by k
    for number, own in enumerate(([1, 5], [2, 6], [3, 7]), start=1):
        ordered_rows(table, f"f{number}", own, k="x")
        table.commit(number)
    run = ordered(table, strategy="sort")
    assert in_order(run, table) == [(1, [7, 6, 5, 3, 2, 1])]
    assert ordered(run.table, strategy="sort").report is None


def drawn_table(version: int, *, files: int = 6, rows: int = 40) -> RowsTable:
    """Files whose rows are anywhere; the words of `k` have no partitions."""
    drawn = random.Random(version)
    table = RowsTable(format_version=version)
    for number in range(files):
        numbers = [drawn.randrange(1000) for _ in range(rows)]
        table.rows(f"f{number}", [(N, numbers), (K, [f"w{drawn.randrange(100):02}" for _ in numbers])])
        table.commit(number + 1)
    return table


@pytest.mark.few(2)
@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("strategy", ["z-order", "hilbert"])
def test_along_a_curve_reads_of_each_column_open_fewer_files(strategy: str, version: int) -> None:
    """Z1: what the plan says of reads; new files lie beside each other in both columns, and say no order (Z8)."""
    options = {"strategy": strategy, "curve_by": ["n", "k"], "target_size": 4096, "max_size": 12288}
    run = ordered(drawn_table(version, rows=600), **options)
    reads = run.plan.to_json()["rewrite"]["reads"]
    assert [each["column"] for each in reads] == ["n", "k"]
    assert all(each["opened_before"] == each["files_before"] == 6 for each in reads)  # none says its bounds
    assert all(each["opened_after"] < 0.5 * each["files_after"] for each in reads)
    assert {each["sort_order_id"] for each in run.outputs} == {0}
    assert run.report is not None
    (after, _) = run.report.reads
    assert (after.column, after.opened_before, after.files_before) == ("n", 6, 6)
    assert (after.opened_after, after.files_after) == (
        pytest.approx(opened_by_reads_of_n(run), rel=0.03),
        len(run.outputs),
    )
    if len(run.outputs) > 3:
        spans = [bounds_of(run, 1, "<q"), bounds_of(run, 2, "")]
        opened = [sum(low <= value <= high for low, high in own) for own in spans for value in own[0]]
        assert min(opened) < len(run.outputs)
    assert ordered(run.table, **options).report is None


def opened_by_reads_of_n(run: Run) -> float:
    """Files that a read of a value of `n` opens, of 200 values between the bounds of each file, by its rows."""
    spans, sums, rows = [], 0, 0
    for each in run.outputs:
        ends = [
            {pair["key"]: pair["value"] for pair in each[f"{end}_bounds"]}[1] for end in ("lower", "upper")
        ]
        spans.append(tuple(struct.unpack("<q", end)[0] for end in ends))
    for each, (low, high) in zip(run.outputs, spans, strict=True):
        for step in range(200):
            point = low + (high - low) * (step + 0.5) / 200
            sums += each["record_count"] * sum(first <= point <= last for first, last in spans)
            rows += each["record_count"]
    return sums / rows


def bounds_of(run: Run, field_id: int, _: str) -> list[tuple[bytes, bytes]]:
    """Bounds of new files, as text that has the order of the values."""
    found = []
    for each in run.outputs:
        ends = []
        for name in ("lower_bounds", "upper_bounds"):
            value = next(pair["value"] for pair in each[name] if pair["key"] == field_id)
            ends.append(value[::-1] if field_id == 1 else value)
        found.append((ends[0], ends[1]))
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize(("values", "most_files"), [(100, 1), (12, 1), (2, 4)])
def test_rows_of_one_key_are_in_one_file_unless_they_are_more_than_it_may_have(
    values: int, most_files: int
) -> None:
    """Z3: 18,000 rows in files of about 3,000; of two keys each has 9,000."""
    drawn = random.Random(values)
    table = RowsTable(format_version=2)
    for number in range(6):
        numbers = [drawn.randrange(10**9) for _ in range(3_000)]
        table.rows(f"f{number}", [(N, numbers), (K, [f"w{drawn.randrange(values):02}" for _ in numbers])])
        table.commit(number + 1)
    run = ordered(table, strategy="sort", sort_by=["k"], target_size=30_000, rewrite_all=True)
    assert len(run.outputs) >= 3
    spans = [
        tuple(
            next(pair["value"] for pair in each[name] if pair["key"] == 2)
            for name in ("lower_bounds", "upper_bounds")
        )
        for each in run.outputs
    ]
    keys = [f"w{value:02}".encode() for value in range(values)]
    opened = [sum(low <= key <= high for low, high in spans) for key in keys]
    assert max(opened) <= most_files
    assert max(each["file_size_in_bytes"] for each in run.outputs) <= 1.8 * 30_000


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("strategy", ["sort", "hilbert"])
def test_rows_that_are_deleted_meanwhile_are_found_where_they_went(strategy: str, version: int) -> None:
    """Z7, K4: rows of all files are mixed, and each delete is moved to the one place where its row is now."""
    named = {"sort_by": ["k", "n:desc"]} if strategy == "sort" else {"curve_by": ["n", "k"]}

    def meanwhile(table: RowsTable) -> None:
        gone = {f"f{number}": [number, 7 + number, 39 - number] for number in range(6)}
        if version == 3:
            table.vectors("later", {name: {*places} for name, places in gone.items()})
        else:
            table.positions("later", gone)
        table.commit(50)

    run = ordered(drawn_table(version), meanwhile, strategy=strategy, **named)
    assert run.report is not None
    assert (run.report.status, run.report.counts["conflicted_groups_count"]) == ("done", 0)
    assert run.report.counts["remapped_deletes_count"] == 18
    assert len(run.rows) == 6 * 40 - 18


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strategy": "sort"}, "the table has no sort order"),
        ({"strategy": "sort", "sort_by": ["nn"]}, "it is no column. Did you mean 'n'"),
        ({"strategy": "sort", "sort_by": ["k"]}, "all rows of a partition have one value of it"),
        ({"curve_by": ["n", "k"]}, "all rows of a partition have one value of it"),
        ({"min_gain": 0.2}, "--min-gain is for rows that come into an order"),
        ({"full": True, "strategy": "bin-pack"}, "--full is for rows that come into an order"),
    ],
)
def test_what_rows_cannot_be_ordered_by_is_refused(options: dict[str, Any], words: str) -> None:
    table = RowsTable(format_version=2)
    table.document["default-spec-id"] = 1  # by k
    table.rows("f", [(N, [1])], k="x")
    table.commit(1)
    with pytest.raises(UsageError, match=words):
        ordered(table, **options)


@pytest.mark.parametrize("transform", ["bucket[4]", "year", "void", "squared"])
def test_a_transform_that_does_not_keep_the_order_of_values_is_none_to_sort_by(transform: str) -> None:
    with pytest.raises(UsageError, match="the table's sort order 1: it has a transform") as refused:
        ordered(a_table((1, "asc"), transform=transform), strategy="sort")
    assert refused.value.next_step == "Name columns by --sort-by."


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# By type and transform what decides of a value, and values of the type by a drawn number.
TRANSFORMED: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("timestamptz", "year"): lambda at: at.year,
    ("timestamptz", "month"): lambda at: (at.year, at.month),
    ("timestamptz", "day"): lambda at: at.date(),
    ("timestamptz", "hour"): lambda at: at.replace(minute=0, second=0, microsecond=0),
    ("timestamp", "day"): lambda at: at.date(),
    ("date", "month"): lambda day: (day.year, day.month),
    ("int", "truncate[10]"): lambda number: number - number % 10,
    ("long", "truncate[1000]"): lambda number: number - number % 1000,
}
KINDS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "timestamptz": (pa.timestamp("us", "UTC"), lambda drawn: EPOCH + timedelta(minutes=drawn)),
    "timestamp": (pa.timestamp("us"), lambda drawn: (EPOCH + timedelta(minutes=drawn)).replace(tzinfo=None)),
    "date": (pa.date32(), lambda drawn: (EPOCH + timedelta(hours=drawn)).date()),
    "int": (pa.int32(), lambda drawn: drawn),
    "long": (pa.int64(), lambda drawn: drawn),
}


@pytest.mark.few(5)
@pytest.mark.parametrize("direction", ["asc", "desc"])
@pytest.mark.parametrize(("kind", "transform"), TRANSFORMED)
def test_rows_come_into_an_order_by_a_transform_and_then_by_the_next_column(
    kind: str, transform: str, direction: str
) -> None:
    """Also of times before 1970; a second run finds nothing, though values are not in their own order."""
    arrow, value_of = KINDS[kind]
    decides = TRANSFORMED[kind, transform]
    drawn = random.Random(f"{kind} {transform} {direction}")
    table = RowsTable(format_version=2, schema=schema(column(1, "v", kind), column(2, "id", "long")))
    fields = [
        {"transform": transform, "source-id": 1, "direction": direction, "null-order": "nulls-last"},
        {"transform": "identity", "source-id": 2, "direction": "desc", "null-order": "nulls-first"},
    ]
    table.document["sort-orders"] += [{"order-id": 1, "fields": fields}]
    table.document["default-sort-order-id"] = 1
    rows = []
    for number in range(4):
        values = [value_of(drawn.randrange(-90_000, 90_000)) for _ in range(300)] + [None] * 3
        ids = [drawn.randrange(10**6) for _ in values]
        table.rows(f"f{number}", [(of(1, "v", arrow), values), (of(2, "id", pa.int64()), ids)])
        table.commit(number + 1)
        rows += zip(values, ids, strict=True)
    options = {"strategy": "sort", "target_size": 5_000, "max_size": 20_000}
    run = ordered(table, **options)
    found = []
    for each in run.outputs:
        assert each["sort_order_id"] == 1
        stored = pq.read_table(pa.BufferReader(run.table.storage.read(each["file_path"])))
        found += zip(stored["v"].to_pylist(), stored["id"].to_pylist(), strict=True)
    by_id = sorted(rows, key=lambda row: -row[1])
    valued = [row for row in by_id if row[0] is not None]
    nulls = [row for row in by_id if row[0] is None]
    expected = sorted(valued, key=lambda row: decides(row[0]), reverse=direction == "desc")
    if direction == "desc":  # which turns equal ones round too
        expected = []
        for key in sorted({decides(value) for value, _ in valued}, reverse=True):
            expected += [row for row in valued if decides(row[0]) == key]
    assert [(None if value is None else decides(value), own) for value, own in found] == [
        (None if value is None else decides(value), own) for value, own in expected + nulls
    ]
    assert len(run.outputs) > 1
    assert ordered(run.table, **options).report is None


def test_a_column_without_bounds_in_new_files_is_none_to_choose_by() -> None:
    table = a_table((1, "asc"))
    table.document["properties"]["write.metadata.metrics.column.n"] = "counts"
    with pytest.raises(UsageError, match="new files have no bounds of it") as refused:
        ordered(table, strategy="sort", sort_by=["n"])
    assert refused.value.next_step == "Columns that can be named: k."


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strategy": "hilbert"}, "needs 2 to 9 columns of curve_by, and has none"),
        ({"strategy": "z-order", "curve_by": ["a"]}, "and has 1; one column is for strategy sort"),
        ({"curve_by": list("abcdefghij")}, "and has 10"),
        ({"strategy": "bin-pack", "sort_by": ["n"]}, "sort_by is for strategy sort"),
        ({"strategy": "sort", "curve_by": ["a", "b"]}, "curve_by is for strategy z-order or hilbert"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ordered(a_table((1, "asc")), **options)


def test_a_table_of_no_rows_is_in_order() -> None:
    table = RowsTable(format_version=2)
    table.rows("f", [(N, []), (K, pa.array([], pa.string()))])
    table.commit(1)
    assert ordered(table, strategy="sort", sort_by=["n"]).report is None


@pytest.mark.parametrize("loads_again", [False, True])
def test_a_column_that_has_another_name_by_now_leaves_rows_to_the_next_run(*, loads_again: bool) -> None:
    """A resumed operation knows the columns by the names of its policy, and another one may have such a name."""

    def rename(table: RowsTable) -> None:
        now = table.document["schemas"][-1]
        fields = [{**now["fields"][0], "name": "number"}, *now["fields"][1:]]
        table.evolve({**now, "fields": fields, "schema-id": 7})

    run = ordered(a_table((2, "asc")), sort_by=["n"], after_plan=rename, loads_again=loads_again)
    if loads_again:
        assert run.error is not None
        assert "--sort-by: rows are not ordered by n: it is no column" in run.error.message
        assert run.left == ["f1", "f2", "f3", "f4"]
    else:
        assert run.left == []


@pytest.mark.parametrize("kind", ["text that begins alike", "NaN"])
def test_what_no_bound_tells_apart_is_written_anew_once(kind: str) -> None:
    """Else each run would find that reads open all files, and write them all again."""
    drawn = random.Random(1)
    table = RowsTable(format_version=2, schema=schema(column(1, "n", "double"), column(2, "k", "string")))
    for number in range(1, 7):
        numbers = [float("nan") if drawn.random() < 0.5 else drawn.random() for _ in range(600)]
        words = [f"https://www.example.com/{drawn.random()}" for _ in numbers]
        table.rows(f"f{number}", [(of(1, "n", pa.float64()), numbers), (K, words)])
        table.commit(number)
    by = ["k"] if kind != "NaN" else ["n"]
    run = ordered(table, sort_by=by, target_size=8192, max_size=16384)
    assert len(run.outputs) > 3
    assert ordered(run.table, sort_by=by, target_size=8192, max_size=16384).report is None
