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
import pyarrow.parquet as pq
import pytest

from iceberg_cli.apply import apply
from iceberg_cli.delta_verbs import VERBS
from iceberg_cli.plan import Plan
from iceberg_cli.report import Report
from tests.cli.running import iceberg_cli
from tests.delta_builders import (
    NOW_MS,
    Action,
    a_commit_info,
    a_log,
    a_metadata,
    a_protocol,
    a_protocol_with,
    an_add,
)
from tests.delta_opened import a_shell, opened

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


def a_schema(**types: Any) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return json.dumps({"type": "struct", "fields": fields})


def the_protocol(kind: str) -> Action:
    return a_protocol_with("timestampNtz") if kind == "timestamp_ntz" else a_protocol()


def a_partitioned_table(
    root: Path, kind: str, texts: Sequence[str | None], *, age_ms: int = 0, **metadata: Any
) -> Path:
    """A file of one row for each text, which is its value of the partition column `p`."""
    adds = []
    root.mkdir(parents=True)
    for number, text in enumerate(texts):
        data = a_data_file(number)
        (root / f"{number}.parquet").write_bytes(data)
        adds.append(an_add(path=f"{number}.parquet", rows=1, partitionValues={"p": text}, size=len(data)))
    metadata = {"schemaString": a_schema(p=kind, v="long"), "partitionColumns": ["p"], **metadata}
    a_log(root, [the_protocol(kind), a_metadata(**metadata), *adds], age_ms=age_ms)
    return root


def planned(root: Path, **policy: Any) -> Plan:
    return VERBS["rewrite-manifests"].plan(opened(root), policy, as_of_ms=NOW_MS)


def rewritten(root: Path, **policy: Any) -> Report:
    return apply(planned(root, **policy), opened(root), VERBS["rewrite-manifests"], a_shell())


def checkpoint_file(root: Path, pattern: str = "*.checkpoint.parquet") -> Path:
    (file,) = (root / "_delta_log").glob(pattern)
    return file


def fields_of_adds(root: Path, pattern: str = "*.checkpoint.parquet") -> list[str]:
    return [field.name for field in pq.read_schema(checkpoint_file(root, pattern)).field("add").type]


# -- partition values ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Column:
    """Texts of a partition column, and values to compare it with."""

    alike: Sequence[str | None]  # every reader that takes one for a value takes it for the same
    ambiguous: Sequence[str] = ()
    bounds: Sequence[str]
    duckdb: str  # a value in its SQL, `{}` being the text
    datafusion: str = ""  # of delta-rs, where it is another
    errors: bool = False  # whether the readers make nothing of the texts in the log alone either


def words(text: str) -> list[str]:
    """The parts of a text between bars; an empty one is an empty text."""
    return text.split("|")


FLOATING = words(
    "inf|-inf|+inf|INF|Infinity|-Infinity|infinity|-INFINITY|nan|NaN|NAN|1|+1|-1.0|1.|.5|1e3|1E3|1.5E-7|-0.0|0|007|"
    "1e400|1e-400|"
)
WHOLE = words("0|-0|1|+1|-1|007|5|+05|")
NO_NUMBERS = words(" 1|1 |\uff11|0x10|1_0|one|__HIVE_DEFAULT_PARTITION__")
TIMES = words(
    "2024-02-29 12:30:00|2024-02-29 12:30:00.5|2024-02-29 12:30:00.123456|2024-02-29 12:30:00.123456000|"
    "2024-2-9 1:2:3|1969-12-31 23:59:59.999999|1677-09-22 00:12:44|2262-04-10 23:47:16|"
)
FAR_TIMES = words(
    "1600-01-01 00:00:00|1677-09-21 00:12:43.145224|2262-04-11 23:47:17|2400-01-01 00:00:00|0001-01-01 00:00:00|"
    "0000-12-31 23:59:59.999999|9999-12-31 23:59:59.999999|+10109-07-08 00:00:00|-0221-09-04 00:00:00|"
)
IN_UTC = words(
    "2024-02-29T12:30:00Z|2024-02-29T12:30:00.123456Z|2024-02-29t12:30:00z|2024-02-29 12:30:00Z|"
    "2024-02-29T12:30:00+00:00|2024-02-29T12:30:00.000+0000"
)
NO_TIMES = words("2024-02-29 12:30|2024-02-30 00:00:00|2024-02-29 24:00:00|2024-02-29 23:59:60|12:30:00")
TIME_BOUNDS = words("2024-02-29 12:30:00|2024-02-29 12:30:00.1234")
FAR_BOUNDS = words("1650-01-01 00:00:00|2300-01-01 00:00:00|9999-12-31 23:59:59.999999")
ZONED = {
    "duckdb": "'{}+00'::TIMESTAMPTZ",
    "datafusion": "arrow_cast('{}', 'Timestamp(Microsecond, Some(\"UTC\"))')",
}
LOCAL = {"duckdb": "'{}'::TIMESTAMP", "datafusion": "arrow_cast('{}', 'Timestamp(Microsecond, None)')"}
KINDS: Final[Sequence[tuple[str, Column]]] = (
    (
        "double",
        Column(
            alike=[*FLOATING, None, "4.9E-324", "1.7976931348623157E308"],
            ambiguous=[*NO_NUMBERS, "-nan", "+NaN", "1d", "inf "],
            bounds=words("5|0|-0.0|nan|inf|-inf"),
            duckdb="'{}'::DOUBLE",
        ),
    ),
    (
        "float",
        Column(
            alike=[*FLOATING, None, "0.1", "3.4e39", "1e-50", "1.00000017881393432617187499"],
            ambiguous=[*NO_NUMBERS, "1f"],
            bounds=words("5|nan|1.0000001"),
            duckdb="'{}'::FLOAT",
        ),
    ),
    (
        "long",
        Column(
            alike=[*WHOLE, None, "9223372036854775807", "-9223372036854775808"],
            ambiguous=[*NO_NUMBERS, "1.0", "1e2", "9223372036854775808"],
            bounds=words("1|9223372036854775807"),
            duckdb="{}::BIGINT",
        ),
    ),
    (
        "integer",
        Column(
            alike=[*WHOLE, None, "2147483647", "-2147483648"],
            ambiguous=["2147483648"],
            bounds=["1"],
            duckdb="'{}'::INTEGER",
        ),
    ),
    (
        "short",
        Column(
            alike=[*WHOLE, None, "32767", "-32768"],
            ambiguous=["32768"],
            bounds=["1"],
            duckdb="'{}'::SMALLINT",
        ),
    ),
    (
        "byte",
        Column(
            alike=[*WHOLE, None, "127", "-128"],
            ambiguous=["128"],
            bounds=["1"],
            duckdb="'{}'::TINYINT",
        ),
    ),
    (
        "decimal(10,2)",
        Column(
            alike=[*words("1.00|100E-2|+2.00|-1.50|001.50|.50|0.00|-0.00|0E-2|1e-2|12345678.91|"), None],
            ambiguous=words("1.234|123456789.00|NaN|one"),
            bounds=words("1.00|-1.50"),
            duckdb="'{}'::DECIMAL(10,2)",
        ),
    ),
    (
        "decimal(9,3)",  # Kernel takes only texts of exactly the type's scale; Spark takes these
        Column(
            alike=words("1|1.0|1.5|1E+2|1e2|1.0000"),
            ambiguous=["1.2345"],
            bounds=["1"],
            duckdb="'{}'::DECIMAL(9,3)",
            errors=True,
        ),
    ),
    (
        "decimal(38,0)",
        Column(
            alike=["1" * 38, "-" + "9" * 38, "0", None],
            ambiguous=["1" * 39],
            bounds=["1" * 38],
            duckdb="'{}'::DECIMAL(38,0)",
        ),
    ),
    (
        "decimal(38,38)",
        Column(
            alike=["0." + "1" * 38, "-." + "9" * 38, "1E-38"],
            ambiguous=["1"],
            bounds=["0." + "1" * 38],
            duckdb="'{}'::DECIMAL(38,38)",
        ),
    ),
    (
        "boolean",
        Column(
            alike=[*words("true|TRUE|True|false|FALSE|False|"), None],
            ambiguous=words("t|yes|1|0| true"),
            bounds=words("true|false"),
            duckdb="{}",
        ),
    ),
    (
        "date",
        Column(
            alike=[
                *words(
                    "2024-02-29|2024-1-5|2024-01-05|2024-12-1|+2024-01-06|0001-01-01|0000-01-01|-0001-12-31|"
                ),
                *words("-0221-09-04|9999-12-31|+10000-01-01|+10109-07-08"),
                None,
            ],
            ambiguous=[
                *words(
                    "24-01-01| 2024-01-01|2024-01-01 |2024-02-30|20240101|2024-001-01|2024- 1-05|2024/01/01"
                ),
                *words("2024-01-01 00:00:00|19782"),
            ],
            bounds=words("2024-01-05|2025-01-01|0001-01-01|9999-12-31"),
            duckdb="'{}'::DATE",
        ),
    ),
    (
        "timestamp",
        Column(
            alike=[*TIMES, *IN_UTC, None],
            ambiguous=[
                *NO_TIMES,
                *words("2024-02-29T12:30:00+02:00|2024-02-29 12:30:00-0230|2024-02-29 12:30:00 UTC"),
            ],
            bounds=TIME_BOUNDS,
            **ZONED,
        ),
    ),
    # In delta-rs these end every query, with a checkpoint or without.
    ("timestamp", Column(alike=[*FAR_TIMES, "+10109-07-08T00:00:00Z", None], bounds=FAR_BOUNDS, **ZONED)),
    (
        "timestamp",
        Column(alike=words("2024-02-29|2024-02-29T12:30:00"), bounds=TIME_BOUNDS, errors=True, **ZONED),
    ),
    (
        "timestamp_ntz",
        Column(
            alike=[*TIMES, None],
            ambiguous=[*NO_TIMES, "2024-02-29T12:30:00Z", "2024-02-29 12:30:00+00:00"],
            bounds=TIME_BOUNDS,
            **LOCAL,
        ),
    ),
    ("timestamp_ntz", Column(alike=[*FAR_TIMES, None], bounds=FAR_BOUNDS, **LOCAL)),
    (
        "string",
        Column(
            alike=[*words("a|A| |é|null|1|__HIVE_DEFAULT_PARTITION__"), "x" * 5000, "\U0010ffff" * 40, None],
            ambiguous=[""],
            bounds=words("a|é|null"),
            duckdb="'{}'",
        ),
    ),
    (
        "binary",
        Column(
            alike=[*words("\x01\x02|\x01|é|abc"), None],
            ambiguous=[""],
            bounds=words("01|6162"),
            duckdb="unhex('{}')",
            datafusion="X'{}'",
        ),
    ),
)


def agreeing(
    root: Path, kernel: duckdb.DuckDBPyConnection, kind: str, column: Column, bounds: Sequence[str]
) -> None:
    """Check both readers on a table of a column's texts, before and after a checkpoint that has the struct."""
    signs = ("=", "<", ">", "<=", ">=")
    asked = [
        [f"p {sign} {form.format(bound)}" for bound in bounds for sign in signs]
        + ["p IS NULL", "p IS NOT NULL"]
        for form in (column.duckdb, column.datafusion or column.duckdb)
    ]
    a_partitioned_table(root, kind, column.alike)
    before = of_kernel(kernel, root, asked[0]), of_delta_rs(root, asked[1])
    assert planned(root).warnings == rewritten(root).notes == ()
    assert "partitionValues_parsed" in fields_of_adds(root)
    after = of_kernel(kernel, root, asked[0]), of_delta_rs(root, asked[1])
    if column.errors:
        assert all("ailed to parse" in answer for answer in (*before[0], *before[1]))
        return
    assert after == before
    nulls, others = before[0][-2:]
    assert nulls == [number for number, text in enumerate(column.alike) if not text]
    assert others == [number for number, text in enumerate(column.alike) if text]


@pytest.mark.parametrize(("kind", "column"), KINDS)
def test_readers_find_after_a_checkpoint_what_they_found_in_the_log_alone(
    tmp_path: Path, kernel: duckdb.DuckDBPyConnection, kind: str, column: Column
) -> None:
    agreeing(tmp_path / "t", kernel, kind, column, column.bounds)


@pytest.mark.deep
@pytest.mark.parametrize(("kind", "column"), KINDS)
def test_readers_find_after_a_checkpoint_what_they_found_before_by_every_value(
    tmp_path: Path, kernel: duckdb.DuckDBPyConnection, kind: str, column: Column
) -> None:
    agreeing(tmp_path / "t", kernel, kind, column, [text for text in column.alike if text])


@pytest.mark.parametrize(("kind", "column"), [(kind, column) for kind, column in KINDS if column.ambiguous])
def test_one_value_that_readers_do_not_take_alike_leaves_the_whole_struct_out(
    tmp_path: Path, kind: str, column: Column
) -> None:
    for number, text in enumerate(column.ambiguous):
        root = a_partitioned_table(tmp_path / f"{number}", kind, [column.alike[0], text])
        (warning,) = planned(root).warnings
        assert f"values of 1 of 2 files, such as p={text!r} of 1.parquet;" in warning
    assert rewritten(root).notes == (warning,)
    assert "stats_parsed" in fields_of_adds(root)
    assert "partitionValues_parsed" not in fields_of_adds(root)


def test_one_such_value_in_one_of_two_partition_columns_leaves_both_out(
    tmp_path: Path, kernel: duckdb.DuckDBPyConnection
) -> None:
    values = [{"p": "1", "q": "a"}, {"p": "7", "q": ""}, {"p": "9", "q": None}]
    (tmp_path / "t").mkdir()
    for number in range(3):
        (tmp_path / "t" / f"{number}.parquet").write_bytes(a_data_file(number))
    adds = [
        an_add(path=f"{number}.parquet", rows=1, partitionValues=each, size=len(a_data_file(number)))
        for number, each in enumerate(values)
    ]
    schema = a_schema(p="long", q="string", v="long")
    a_log(tmp_path / "t", [a_protocol(), a_metadata(schemaString=schema, partitionColumns=["p", "q"]), *adds])
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
        verb = VERBS["expire-snapshots"]
        plan = verb.plan(opened(root), {}, as_of_ms=NOW_MS)
        report = apply(plan, opened(root), verb, a_shell())
        assert not (root / "_delta_log" / f"{0:020}.json").exists()
        assert ("partitionValues_parsed" in fields_of_adds(root)) == (name == "alike")
        assert len(report.notes) == (name == "ambiguous")
        assert plan.warnings == report.notes
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
        kind={
            "type": "struct",
            "fields": [{"name": "x", "type": "double", "nullable": True, "metadata": {}}],
        },
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
    schema = a_schema(c=bounds.kind, v="long")
    a_log(root, [a_protocol(), a_metadata(schemaString=schema, **metadata), *adds])
    return root


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
        return {"name": name, "type": kind, "nullable": True, "metadata": metadata}

    inner = {"type": "struct", "fields": [mapped("x", "double")]}  # col-1
    fields = [mapped("n", "long"), mapped("s", inner), mapped("v", "long")]  # col-2 to col-4
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
    schema = json.dumps({"type": "struct", "fields": fields})
    properties = {**properties, "delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "4"}
    metadata = a_metadata(schemaString=schema, configuration=properties)
    a_log(tmp_path, [a_protocol(2, 5), metadata, adds[0]], [adds[1]], [adds[2]])
    asked = ["n > 5", "n < 5", "n IS NULL", "s.x > 5", "s.x < 5"]
    expected = [[1, 2], [0], [], [0, 2], [1]]
    assert of_kernel(kernel, tmp_path, asked) == expected
    rewritten(tmp_path, compact_log=(1, 2))
    assert of_kernel(kernel, tmp_path, asked) == expected
    checkpoint_file(tmp_path).unlink()
    (tmp_path / "_delta_log" / "_last_checkpoint").unlink()
    assert of_kernel(kernel, tmp_path, asked) == expected
