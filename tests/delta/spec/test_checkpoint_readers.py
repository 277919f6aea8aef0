"""Other readers after a checkpoint: Delta Kernel, in DuckDB, and delta-rs find what they found in the log alone."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from iceberg_cli.delta.spec.statistics_columns import primitive
from iceberg_cli.delta.spec.text_values import partition_values
from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.testing.delta_writer import (
    Action,
    a_commit_info,
    a_field,
    a_metadata,
    a_protocol,
    a_protocol_with,
    a_schema,
    an_add,
    commit_path,
    write_file,
)
from tests.cli.running import iceberg_cli
from tests.delta_opened import Operator, a_log
from tests.partition_texts import DELTA_RS, KERNEL, KINDS, Column

DAY_MS = 86_400_000
Answers = list[list[int] | str]


# -- readers ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kernel() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its Delta extension, which is Delta Kernel."""
    import duckdb_extension_delta

    (extension,) = Path(duckdb_extension_delta.__path__[0]).rglob("delta.duckdb_extension")
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def of_kernel(connection: duckdb.DuckDBPyConnection, root: Path, conditions: Sequence[str]) -> Answers:
    """For each condition the rows of the table that meet it, or the error."""
    try:
        connection.execute(f"ATTACH '{root}' AS t (TYPE delta, PIN_SNAPSHOT)")
        return [
            _answer(lambda where=where: connection.execute(f"SELECT v FROM t WHERE {where}").fetchall())
            for where in conditions
        ]
    finally:
        connection.execute("DETACH DATABASE IF EXISTS t")


def of_delta_rs(root: Path, conditions: Sequence[str]) -> Answers:
    """As `of_kernel`."""
    engine = deltalake.QueryBuilder()
    try:
        engine.register("t", deltalake.DeltaTable(root))
    except deltalake.exceptions.DeltaError as error:
        return [str(error)]

    def rows(where: str) -> list[tuple[int, ...]]:
        found = pa.table(engine.execute(f"SELECT v FROM t WHERE {where}").read_all())
        return [(value,) for value in found["v"].to_pylist()]

    return [_answer(lambda where=where: rows(where)) for where in conditions]


def _answer(rows: Callable[[], list[tuple[int, ...]]]) -> list[int] | str:
    try:
        return sorted(value for (value,) in rows())
    except Exception as error:  # noqa: BLE001 - whatever a reader raises, it is the answer
        return f"{type(error).__name__}: {error}"


# -- tables ----------------------------------------------------------------------------------------------------


@cache
def a_data_file(number: int) -> bytes:
    """One row with the number."""
    return parquet(pa.table({"v": pa.array([number], pa.int64())}))


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def the_protocol(kind: str) -> Action:
    return a_protocol_with("timestampNtz") if kind == "timestamp_ntz" else a_protocol()


def files_of(root: Path, partitions: Sequence[Mapping[str, str | None]]) -> list[Action]:
    """Adds of a file of one row for each partition, which are written."""
    adds = []
    for number, values in enumerate(partitions):
        data = a_data_file(number)
        path = write_file(root, f"{number}.parquet", data).name
        adds.append(an_add(path=path, rows=1, partitionValues=values, size=len(data)))
    return adds


def a_partitioned_table(
    root: Path, kind: str, texts: Sequence[str | None], *, age_ms: int = 0, **metadata: Any
) -> Path:
    """A file of one row for each text, which is its value of the partition column `p`."""
    adds = files_of(root, [{"p": text} for text in texts])
    table = a_metadata(a_field("p", kind), a_field("v", "long"), partitionColumns=["p"], **metadata)
    a_log(root, [the_protocol(kind), table, *adds], age_ms=age_ms)
    return root


OPERATOR = Operator(VERBS["rewrite-manifests"])
prepared, rewritten = OPERATOR.prepare, OPERATOR.run


def checkpoint_file(root: Path, pattern: str = "*.checkpoint.parquet") -> Path:
    (file,) = (root / "_delta_log").glob(pattern)
    return file


def fields_of_adds(root: Path, pattern: str = "*.checkpoint.parquet") -> list[str]:
    return [field.name for field in pq.read_schema(checkpoint_file(root, pattern)).field("add").type]


# -- partition values ------------------------------------------------------------------------------------------


def values_of_kernel(connection: duckdb.DuckDBPyConnection, root: Path) -> list[Any]:
    """What Kernel takes the texts for, by their numbers."""
    try:
        connection.execute(f"ATTACH '{root}' AS t (TYPE delta, PIN_SNAPSHOT)")
        return comparable(connection.execute("SELECT p FROM t ORDER BY v").to_arrow_table()["p"])
    finally:
        connection.execute("DETACH DATABASE IF EXISTS t")


def values_of_checkpoint(root: Path) -> list[Any]:
    """What a checkpoint has for the texts, by their numbers."""
    adds = pq.read_table(checkpoint_file(root), columns=["add"])["add"].combine_chunks().drop_null()
    numbers = [int(path.removesuffix(".parquet")) for path in pc.struct_field(adds, "path").to_pylist()]
    values = comparable(pc.struct_field(adds, ["partitionValues_parsed", "p"]))
    return [value for _, value in sorted(zip(numbers, values, strict=True), key=lambda pair: pair[0])]


def comparable(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values that are equal where they are the same: floating ones as texts, dates and times as numbers."""
    if pa.types.is_temporal(values.type):
        return values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64()).to_pylist()
    return [repr(value) if isinstance(value, float) else value for value in values.to_pylist()]


def asked_of(column: Column, bounds: Sequence[str], signs: Sequence[str]) -> dict[str, list[str]]:
    """What each reader is asked of a partition column."""
    literals = {KERNEL: column.duckdb, DELTA_RS: column.datafusion or column.duckdb}
    return {
        reader: [f"p {sign} {literal.format(bound)}" for bound in bounds for sign in signs] + ["p IS NULL"]
        for reader, literal in literals.items()
    }


def answers(
    root: Path, kernel: duckdb.DuckDBPyConnection, asked: Mapping[str, Sequence[str]]
) -> dict[str, Answers]:
    """What each reader says."""
    return {
        KERNEL: of_kernel(kernel, root, asked[KERNEL]),
        DELTA_RS: of_delta_rs(root, asked[DELTA_RS]),
    }


def agreeing(
    root: Path,
    kernel: duckdb.DuckDBPyConnection,
    kind: str,
    column: Column,
    asked: Mapping[str, Sequence[str]],
) -> dict[str, Answers]:
    """Check both readers on a table of a column's texts, before and after a checkpoint that has the struct.

    Returns:
        What each of them says.
    """
    a_partitioned_table(root, kind, column.alike)
    before = answers(root, kernel, asked)
    table, plan = prepared(root)
    assert plan.plan.warnings == OPERATOR.apply(plan, table).notes == ()
    assert "partitionValues_parsed" in fields_of_adds(root)
    after = answers(root, kernel, asked)
    for reader in (KERNEL, DELTA_RS):
        if reader in column.failing:
            assert all(isinstance(answer, str) for answer in before[reader])
            assert "ailed to parse" in before[reader][-1]
            continue
        assert after[reader] == before[reader]
        assert before[reader][-1] == [number for number, text in enumerate(column.alike) if not text]
    return before


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in KINDS}))
def test_the_texts_are_many_and_those_that_readers_do_not_take_alike_are_known(kind: str) -> None:
    columns = [column for name, column in KINDS if name == kind]
    alike = [text for column in columns for text in column.alike]
    others = [text for column in columns for text in column.ambiguous]
    assert len({*alike, *others}) >= 60
    for texts, ambiguous in ((alike, False), (others, True)):
        marks = partition_values(pa.array(texts, pa.string()), primitive(kind))[1].to_pylist()
        assert [text for text, mark in zip(texts, marks, strict=True) if mark != ambiguous] == []


@pytest.mark.few(7)
@pytest.mark.parametrize(("kind", "column"), [each for each in KINDS if KERNEL not in each[1].failing])
def test_readers_find_after_a_checkpoint_what_they_found_in_the_log_alone(
    tmp_path: Path, kernel: duckdb.DuckDBPyConnection, kind: str, column: Column
) -> None:
    asked = asked_of(column, column.bounds, ("<", ">="))
    found = agreeing(tmp_path / "t", kernel, kind, column, asked)[KERNEL]
    assert {row for rows in found for row in rows} == set(range(len(column.alike)))
    values = values_of_checkpoint(tmp_path / "t")
    for name in (checkpoint_file(tmp_path / "t").name, "_last_checkpoint"):
        (tmp_path / "t" / "_delta_log" / name).unlink()
    assert values == values_of_kernel(kernel, tmp_path / "t")


@pytest.mark.deep
@pytest.mark.parametrize(("kind", "column"), KINDS)
def test_readers_find_after_a_checkpoint_what_they_found_before_by_every_value(
    tmp_path: Path, kernel: duckdb.DuckDBPyConnection, kind: str, column: Column
) -> None:
    texts = [text for text in column.alike if text and len(text) <= 100]
    spelled = [text.encode().hex() if kind == "binary" else text.replace("'", "''") for text in texts]
    agreeing(tmp_path / "t", kernel, kind, column, asked_of(column, spelled, ("=",)))


@pytest.mark.parametrize(("kind", "column"), [each for each in KINDS if each[1].taken])
def test_values_that_readers_do_not_take_alike_leave_the_whole_struct_out(
    tmp_path: Path, kernel: duckdb.DuckDBPyConnection, kind: str, column: Column
) -> None:
    texts = [*(text for text in column.alike[:3] if text), *column.taken]
    root, count = a_partitioned_table(tmp_path, kind, texts), len(texts) - 3
    asked = asked_of(column, column.bounds, ("=", "<"))
    before = answers(root, kernel, asked)
    table, plan = prepared(root)
    (warning,) = plan.plan.warnings
    assert f"values of {count} of {count + 3} files, such as p={texts[3]!r} of 3.parquet;" in warning
    assert OPERATOR.apply(plan, table).notes == (warning,)
    assert "stats_parsed" in fields_of_adds(root)
    assert "partitionValues_parsed" not in fields_of_adds(root)
    assert answers(root, kernel, asked) == before


def test_one_such_value_in_one_of_two_partition_columns_leaves_both_out(
    tmp_path: Path, kernel: duckdb.DuckDBPyConnection
) -> None:
    values = [{"p": "1", "q": "a"}, {"p": "7", "q": ""}, {"p": "9", "q": None}]
    adds = files_of(tmp_path / "t", values)
    columns = [a_field("p", "long"), a_field("q", "string"), a_field("v", "long")]
    a_log(tmp_path / "t", [a_protocol(), a_metadata(*columns, partitionColumns=["p", "q"]), *adds])
    asked = ["p > 5", "q = ''", "q IS NULL", "p > 5 AND q IS NOT NULL", "q < 'b'"]
    before = of_kernel(kernel, tmp_path / "t", asked), of_delta_rs(tmp_path / "t", asked)
    assert "values of 1 of 3 files, such as q='' of 1.parquet;" in rewritten(tmp_path / "t").notes[0]
    assert "partitionValues_parsed" not in fields_of_adds(tmp_path / "t")
    assert (of_kernel(kernel, tmp_path / "t", asked), of_delta_rs(tmp_path / "t", asked)) == before
    assert before[0][1] != before[1][1]  # the readers do not agree on an empty text


def a_table_of_delta_rs(root: Path) -> Path:
    values = pa.table({"p": [float("inf"), float("-inf"), float("nan"), 1.0, 7.0], "v": [1, 2, 3, 4, 5]})
    deltalake.write_deltalake(root, values, partition_by=["p"])
    return root


@pytest.mark.parametrize(
    ("policy", "file"),
    [
        ({}, "*.checkpoint.parquet"),
        ({"checkpoint": "v2", "part_size": 2}, "_sidecars/*.0000000001.0000000003.*"),
    ],
    ids=["classic", "sidecars"],
)
def test_rows_of_infinite_partition_values_that_delta_rs_wrote_are_found_after_a_checkpoint(
    tmp_path: Path, kernel: duckdb.DuckDBPyConnection, policy: dict[str, Any], file: str
) -> None:
    root = a_table_of_delta_rs(tmp_path / "t")
    if policy:
        properties = deltalake.DeltaTable(root).alter
        properties.add_feature(deltalake.TableFeatures.V2Checkpoint, allow_protocol_versions_increase=True)
    rewritten(root, **policy)
    assert "partitionValues_parsed" in fields_of_adds(root, file)
    assert of_kernel(kernel, root, ["p > 5", "p = 'inf'::DOUBLE", "p < 1"]) == [[1, 3, 5], [1], [2]]


def test_rows_are_found_after_the_checkpoint_that_log_cleanup_writes(
    tmp_path: Path, kernel: duckdb.DuckDBPyConnection
) -> None:
    texts = {"alike": ["inf", "-inf", "7"], "ambiguous": ["inf", "1d", "7"]}
    for name, values in texts.items():
        root = a_partitioned_table(
            tmp_path / name,
            "double",
            values,
            age_ms=50 * DAY_MS,
            configuration={"delta.checkpointInterval": "1"},
        )
        a_log(root, [a_commit_info()], [a_commit_info()], first=1, age_ms=40 * DAY_MS)
        vacuum = Operator(VERBS["expire-snapshots"])
        table, plan = vacuum.prepare(root)
        report = vacuum.apply(plan, table)
        assert not commit_path(root, 0).exists()
        assert ("partitionValues_parsed" in fields_of_adds(root)) == (name == "alike")
        assert len(report.notes) == (name == "ambiguous")
        assert plan.plan.warnings == report.notes
        if name == "alike":
            assert of_kernel(kernel, root, ["p > 5", "p < 0"]) == [[0, 2], [1]]


@pytest.mark.parametrize("lost", ["value", "column"])
def test_a_check_finds_the_checkpoint_by_which_kernel_misses_rows(
    tmp_path: Path, kernel: duckdb.DuckDBPyConnection, lost: str
) -> None:
    root = a_partitioned_table(tmp_path / "t", "double", ["inf", "1", "", None])
    rewritten(root)
    assert of_kernel(kernel, root, ["p > 5"]) == [[0]]
    assert iceberg_cli("inspect", root, "--check").code == 0
    file = checkpoint_file(root)
    name, known = ("p", [1.0]) if lost == "value" else ("other", [])
    rows, schema = pq.read_table(file).to_pylist(), pq.read_schema(file)
    for add in filter(None, (row["add"] for row in rows)):
        value = add["partitionValues_parsed"]["p"]
        add["partitionValues_parsed"] = {name: value if value in known else None}
    place = schema.get_field_index("add")
    typed = pa.field("partitionValues_parsed", pa.struct([(name, pa.float64())]))
    fields = [typed if each.name == typed.name else each for each in schema.field(place).type]
    schema = schema.set(place, pa.field("add", pa.struct(fields)))
    pq.write_table(pa.Table.from_pylist(rows, schema), file)
    assert of_kernel(kernel, root, ["p > 5"]) == [[]]
    ran = iceberg_cli("inspect", root, "--check", "--format", "json")
    (finding,) = ran.json["findings"]
    assert (ran.code, finding["id"]) == (15, "checkpoint-partition-value-lost")
    assert f"({2 - len(known)}), such as p='inf' of 0.parquet" in finding["message"]


# -- statistics ------------------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")
LONG, LAST = "x" * 32, "\U0010ffff"


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Files of a column, each with its values and what its statistics say is the smallest and the largest, as JSON."""

    kind: Any
    type: pa.DataType
    files: Sequence[tuple[list[Any], str, str]]
    conditions: Sequence[tuple[str, str] | str]  # the second of two is for delta-rs


def moments(*texts: str) -> list[datetime]:
    return [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in texts]


STATISTICS: Final[Mapping[str, Bounds]] = {
    "double": Bounds(
        kind="double",
        type=pa.float64(),
        files=[
            ([1.0, NAN], "1.0", '"NaN"'),
            ([NAN], '"NaN"', '"NaN"'),
            ([1.0, INF], "1.0", '"Infinity"'),
            ([-INF, 1.0], '"-inf"', "1"),
            ([0.0, -0.0], "-0.0", "0.0"),
            ([3.0, None], "null", "1e400"),
            ([7.0], '"x"', "7.0"),
            ([1.5, 4.5], "1.5", "4.5"),
        ],
        conditions=[
            *("c > 5", "c = 1.5", "c < 0", "c = 0", "c = 'inf'::DOUBLE", "c IS NULL", "c IS NOT NULL"),
            ("c = 'NaN'::DOUBLE", "isnan(c)"),
        ],
    ),
    "float": Bounds(
        kind="float",
        type=pa.float32(),
        files=[([1.0, NAN], "1.0", '"NaN"'), ([0.1], "0.1", "0.1"), ([3.5], "3.5", "3.5")],
        conditions=["c > 5", "c < 1", "c = 0.1::FLOAT"],
    ),
    "date": Bounds(
        kind="date",
        type=pa.date32(),
        files=[
            ([date(9999, 12, 31)], '"9999-12-31"', '"+10109-07-08"'),
            ([date(1, 1, 1)], '"-0221-09-04"', '"0001-01-01"'),
            ([date(2, 1, 1), date(2024, 1, 5)], '"0000-01-01"', '"2024-1-5"'),
            ([date(2024, 2, 29)], '"2024-02-29T00:00:00Z"', "19782"),
            ([date(2024, 1, 5), None], '"2024-01-05"', '"2024-01-05"'),
        ],
        conditions=[
            *(f"c {sign} DATE '{day}'" for sign in "=<>" for day in ("2024-01-05", "9999-12-30")),
            *("c IS NULL", "c < DATE '0001-06-01'"),
        ],
    ),
    "timestamp": Bounds(
        kind="timestamp",
        type=pa.timestamp("us", "UTC"),
        files=[
            (
                moments("2024-01-01T00:00:00.123999"),
                '"2024-01-01T00:00:00.123Z"',
                '"2024-01-01T00:00:00.123Z"',
            ),
            (
                moments("2024-01-01T00:00:00"),
                '"2024-01-01T02:00:00.000+02:00"',
                '"2024-01-01T02:00:00.000+02:00"',
            ),
            (moments("1600-01-01T00:00:00"), '"1600-01-01T00:00:00.000Z"', '"1600-01-01T00:00:00.000Z"'),
            (moments("2400-01-01T00:00:00"), '"2400-01-01T00:00:00.000Z"', '"2400-01-01T00:00:00.000Z"'),
            (
                moments("0001-01-01T00:00:00", "9999-12-31T23:59:59"),
                '"-0221-09-04T00:00:00.000Z"',
                '"+10109-07-08T00:00:00.000Z"',
            ),
            (moments("2024-06-01T00:00:00"), '"2024-06-01"', '"2024-06-01 00:00:00"'),
        ],
        conditions=[
            (
                f"c {sign} '{moment}+00'::TIMESTAMPTZ",
                f"c {sign} arrow_cast('{moment}', 'Timestamp(Microsecond, Some(\"UTC\"))')",
            )
            for sign in "=<>"
            for moment in ("2024-01-01 00:00:00", "2024-01-01 00:00:00.1235", "1700-01-01 00:00:00")
        ],
    ),
    "string": Bounds(
        kind="string",
        type=pa.string(),
        files=[
            (["a", LONG + "yz"], '"a"', f'"{LONG}{LAST}"'),
            ([LONG + "\x7f\x7f"], f'"{LONG}"', f'"{LONG}\x7f"'),
            ([LONG + LAST * 2, None], f'"{LONG}{LAST}"', f'"{LONG}{LAST}{LAST}"'),
            ([LAST * 40], f'"{LAST * 32}"', "null"),
            (["", "\\u"], '""', '"\\\\u"'),
        ],
        conditions=[
            *("c = 'a'", "c = ''", "c < 'b'", "c IS NULL"),
            *(f"c > '{LONG}'", f"c >= '{LONG}y'", f"c > '{LONG}zzz'", f"c > '{LAST}'"),
        ],
    ),
    "decimal(38,10)": Bounds(
        kind="decimal(38,10)",
        type=pa.decimal128(38, 10),
        files=[
            ([Decimal("1.5")], "1.5", "1.5"),
            ([Decimal("9" * 28 + ".1234567891")], "1E27", "9" * 28 + ".1234567891"),
            ([-Decimal("1e27"), Decimal(6)], "-1e27", "6.00"),
            ([Decimal(7)], "6.99999999999", "1e30"),
        ],
        conditions=["c > 5", "c < 0", "c = 1.5", "c = 7"],
    ),
    "struct": Bounds(
        kind=a_schema(a_field("x", "double")),
        type=pa.struct([("x", pa.float64())]),
        files=[
            ([{"x": 1.0}, {"x": NAN}], '{"x":1.0}', '{"x":"NaN"}'),
            ([{"x": 7.0}, {"x": None}], '{"x":7.0}', '{"x":7.0}'),
            ([{"x": 2.0}, None], "{}", "null"),
        ],
        conditions=["c.x > 5", "c.x < 5", "c.x IS NULL", "c.x = 7"],
    ),
}


def a_table_with_statistics(root: Path, bounds: Bounds, **metadata: Any) -> Path:
    """A table of the column `c` and, for each file of it, its number in `v`."""
    adds = []
    root.mkdir()
    for number, (values, smallest, largest) in enumerate(bounds.files):
        column = pa.array(values, bounds.type)
        data = parquet(pa.table({"c": column, "v": pa.array([number] * len(values), pa.int64())}))
        (root / f"{number}.parquet").write_bytes(data)
        nulls = (
            json.dumps({"x": 1 if number else 0}) if pa.types.is_struct(column.type) else column.null_count
        )
        stats = (
            f'{{"numRecords":{len(values)},"minValues":{{"c":{smallest}}},"maxValues":{{"c":{largest}}},'
            f'"nullCount":{{"c":{nulls}}}}}'
        )
        adds.append(an_add(path=f"{number}.parquet", size=len(data), stats=stats))
    columns = [a_field("c", bounds.kind), a_field("v", "long")]
    a_log(root, [a_protocol(), a_metadata(*columns, **metadata), *adds])
    return root


@pytest.mark.pairs
@pytest.mark.parametrize("stats_as_json", ["true", "false"])
@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_a_checkpoint_hide_no_row(
    tmp_path: Path, kernel: duckdb.DuckDBPyConnection, name: str, stats_as_json: str
) -> None:
    bounds = STATISTICS[name]
    asked = list(
        zip(*((each, each) if isinstance(each, str) else each for each in bounds.conditions), strict=True)
    )
    properties = {"delta.checkpoint.writeStatsAsJson": stats_as_json}
    root = a_table_with_statistics(tmp_path / "t", bounds, configuration=properties)
    files = f"read_parquet('{root}/*.parquet')"
    true = [
        sorted(v for (v,) in kernel.execute(f"SELECT v FROM {files} WHERE {each}").fetchall())
        for each in asked[0]
    ]
    before = of_delta_rs(root, asked[1])
    assert of_kernel(kernel, root, asked[0]) == true
    rewritten(root)
    assert of_kernel(kernel, root, asked[0]) == true
    assert of_delta_rs(root, asked[1]) == before


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.dataSkippingNumIndexedCols": "1"},
        {"delta.dataSkippingStatsColumns": "s.`x`"},
        {"delta.checkpoint.writeStatsAsStruct": "false"},
    ],
    ids=lambda each: next(iter(each)),
)
def test_mapped_nested_and_absent_columns_hide_no_row(
    tmp_path: Path, kernel: duckdb.DuckDBPyConnection, properties: dict[str, str]
) -> None:
    """Under physical names, with statistics of some columns of some files only, in two commits and a compaction."""
    ids = iter(range(1, 9))

    def mapped(name: str, kind: Any) -> dict[str, Any]:
        number = next(ids)
        metadata = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": f"col-{number}",
        }
        return a_field(name, kind, **metadata)

    inner = a_schema(mapped("x", "double"))  # col-1
    columns = [mapped("n", "long"), mapped("s", inner), mapped("v", "long")]  # col-2 to col-4
    stats = [
        {
            "minValues": {"col-2": 1, "col-3": {"col-1": 0.5}},
            "maxValues": {"col-2": 1, "col-3": {"col-1": "NaN"}},
        },
        {"minValues": {"col-2": 7}, "maxValues": {"col-2": 7}, "nullCount": {"col-2": 0}},
        {
            "minValues": {"col-3": {"col-1": 7.5}},
            "maxValues": {"col-3": {}},
            "nullCount": {"col-3": {"col-1": 0}},
        },
    ]
    adds = []
    for number, counts in enumerate(stats):
        inside = pa.array([{"col-1": [NAN, 1.0, 7.5][number]}])
        data = parquet(pa.table({"col-2": [[1, 7, 9][number]], "col-3": inside, "col-4": [number]}))
        (tmp_path / f"{number}.parquet").write_bytes(data)
        text = json.dumps({"numRecords": 1, **counts})
        adds.append(an_add(path=f"{number}.parquet", size=len(data), stats=text))
    properties = {**properties, "delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "4"}
    metadata = a_metadata(*columns, configuration=properties)
    a_log(tmp_path, [a_protocol(2, 5), metadata, adds[0]], [adds[1]], [adds[2]])
    asked = ["n > 5", "n < 5", "n IS NULL", "s.x > 5", "s.x < 5"]
    expected = [[1, 2], [0], [], [0, 2], [1]]
    assert of_kernel(kernel, tmp_path, asked) == expected
    rewritten(tmp_path, compact_log=[1, 2])
    assert of_kernel(kernel, tmp_path, asked) == expected
    checkpoint_file(tmp_path).unlink()
    (tmp_path / "_delta_log" / "_last_checkpoint").unlink()
    assert of_kernel(kernel, tmp_path, asked) == expected
