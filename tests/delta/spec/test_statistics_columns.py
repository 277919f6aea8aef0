"""Statistics and partition values as typed columns of checkpoints."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from iceberg_cli.delta.spec.statistics_columns import (
    AmbiguousPartitionValue,
    ambiguous_partition_value,
    partition_type,
    partition_values_parsed,
    statistics_type,
    stats_parsed,
    stats_parsed_whole,
)
from iceberg_cli.delta.spec.text_values import times
from iceberg_cli.errors import InvalidMetadata
from iceberg_cli.testing.delta_writer import a_field, a_schema
from tests.budget import few_or_many
from tests.statistics_documents import EVERY, TYPE, smallest

INT64_MAX = 2**63 - 1
INF = float("inf")


def parsed(*documents: str | None, kind: pa.StructType = TYPE) -> list[Any]:
    return stats_parsed(pa.array(documents, pa.string()), kind).to_pylist()


def names(kind: pa.DataType) -> list[str]:
    return [field.name for field in kind]


# -- types -----------------------------------------------------------------------------------------------------


def test_bounds_are_of_ordered_columns_and_nulls_of_all() -> None:
    assert names(TYPE) == ["numRecords", "minValues", "maxValues", "nullCount", "tightBounds"]
    bounds, nulls = TYPE.field("minValues").type, TYPE.field("nullCount").type
    assert names(bounds) == ["n", "i", "b", "f", "d", "s", "day", "at", "local", "inside"]
    assert names(bounds.field("inside").type) == ["x"]
    assert names(nulls) == [field["name"] for field in EVERY["fields"]]
    assert nulls.field("list").type == pa.int64()
    assert names(nulls.field("inside").type) == ["x", "raw"]
    assert bounds.field("d").type == pa.decimal128(10, 2)
    assert bounds.field("at").type == pa.timestamp("us", "UTC")
    assert bounds.field("local").type == pa.timestamp("us")


def test_bounds_are_wide_only_where_there_can_be_deletion_vectors() -> None:
    assert "tightBounds" not in names(statistics_type(EVERY, (), {}, deletion_vectors=False))


def test_partition_columns_have_no_statistics_and_physical_names_count() -> None:
    schema = a_schema(
        a_field("p", "string"),
        a_field("n", "long", **{"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "col-1"}),
    )
    found = statistics_type(schema, ("p",), {}, deletion_vectors=False)
    assert names(found.field("nullCount").type) == ["col-1"]


def test_strings_of_another_collation_have_no_bounds() -> None:
    schema = a_schema(a_field("s", "string", __COLLATIONS={"s": "icu.UNICODE_CI"}))
    assert names(statistics_type(schema, (), {}, deletion_vectors=False)) == ["numRecords", "nullCount"]


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ({"delta.dataSkippingNumIndexedCols": "2"}, ["n", "i"]),
        ({"delta.dataSkippingNumIndexedCols": "0"}, []),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, [field["name"] for field in EVERY["fields"]]),
        ({"delta.dataSkippingNumIndexedCols": "12"}, [field["name"] for field in EVERY["fields"]]),
        ({"delta.dataSkippingStatsColumns": "S, `n`,INSIDE.x,none"}, ["n", "s", "inside"]),
        ({"delta.dataSkippingStatsColumns": "s", "delta.dataSkippingNumIndexedCols": "1"}, ["s"]),
    ],
)
def test_properties_say_which_columns_have_statistics(
    configuration: dict[str, str], expected: list[str]
) -> None:
    found = statistics_type(EVERY, (), configuration, deletion_vectors=False)
    assert (names(found.field("nullCount").type) if expected else names(found)[1:]) == expected


def test_a_limit_counts_the_leaves_inside_of_structs() -> None:
    schema = a_schema(
        a_field("a", a_schema(a_field("x", "long"), a_field("y", "long"))), a_field("b", "long")
    )
    found = statistics_type(
        schema, (), {"delta.dataSkippingNumIndexedCols": "1"}, deletion_vectors=False
    ).field("nullCount")
    assert found.type == pa.struct([("a", pa.struct([("x", pa.int64())]))])


@pytest.mark.parametrize("schema", [{}, {"fields": [{"name": "a"}]}, {"fields": ["a"]}, {"fields": None}])
def test_a_schema_that_is_none_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidMetadata, match="schemaString"):
        statistics_type(schema, (), {}, deletion_vectors=False)
    with pytest.raises(InvalidMetadata):
        partition_type(schema, ("p",))


# -- statistics ------------------------------------------------------------------------------------------------


def test_every_type_of_value_is_read() -> None:
    document = smallest(
        n=INT64_MAX,
        i=-5,
        b=-128,
        f=1.5,
        d=12345678.91,
        s='é\n"',
        day="2024-02-29",
        at="2024-02-29T12:30:00.123Z",
        local="2024-02-29T12:30:00.123",
        inside={"x": 7},
    )
    assert parsed(document)[0]["minValues"] == {
        "n": INT64_MAX,
        "i": -5,
        "b": -128,
        "f": 1.5,
        "d": Decimal("12345678.91"),
        "s": 'é\n"',
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 12, 30, 0, 123_000, tzinfo=UTC),
        "local": datetime(2024, 2, 29, 12, 30, 0, 123_000),  # noqa: DTZ001 - it has no zone
        "inside": {"x": 7},
    }


@pytest.mark.parametrize("beside", ["2024-02-29T00:00:00", "no time"])
def test_a_day_alone_is_its_midnight_whatever_stands_beside_it(beside: str) -> None:
    [bounds, _] = [row["minValues"] for row in parsed(smallest(local="2024-02-29"), smallest(local=beside))]
    assert bounds["local"] == datetime(2024, 2, 29)  # noqa: DTZ001 - it has no zone


def test_what_is_absent_is_null() -> None:
    assert parsed(None, "", "{}", '{"numRecords":3}', '{"minValues":{"inside":{}}}') == [
        None,
        None,
        dict.fromkeys(names(TYPE)),
        {**dict.fromkeys(names(TYPE)), "numRecords": 3},
        {
            **dict.fromkeys(names(TYPE)),
            "minValues": {**dict.fromkeys(names(TYPE.field("minValues").type)), "inside": {"x": None}},
        },
    ]


UNTYPED = [
    smallest(n=1.5),
    smallest(n="1"),
    smallest(n=2**63),
    smallest(b=128),
    smallest(d=1.234),
    smallest(d=123456789.0),
    smallest(s=5),
    smallest(day="2023-02-29"),
    smallest(day=19782),
    smallest(at="yesterday"),
    smallest(at="2024-02-29T12:30:00.1234567Z"),
    smallest(local="2024-02-29T12:30:00Z"),
    smallest(local="2024-02-29T12:30"),
    smallest(day="0000-13-01"),
    smallest(day="24-01-01"),
    smallest(at="+300000-01-01T00:00:00Z"),
    smallest(f="-nan"),
    smallest(f="many"),
    smallest(f=True),
    smallest(inside=5),
    smallest(inside={"x": [1]}),
]


@pytest.mark.parametrize("document", UNTYPED)
@pytest.mark.parametrize("others", [0, 100])
def test_what_is_no_value_of_its_type_is_null_and_all_else_stays(document: str, others: int) -> None:
    around = [smallest(n=number) for number in range(others)]
    texts = pa.array([*around, document, *around], pa.string())
    found = stats_parsed(texts, TYPE).to_pylist()
    assert found[others]["numRecords"] == 1
    assert not any(value not in (None, {"x": None}) for value in found[others]["minValues"].values())
    assert [each["minValues"]["n"] for each in found[:others]] == list(range(others))
    _, lost = stats_parsed_whole(texts, TYPE)
    assert lost.to_pylist() == [False] * others + [True] + [False] * others


@pytest.mark.parametrize(("text", "expected"), [("NaN", "nan"), ("Infinity", "inf"), ("-Infinity", "-inf")])
def test_numbers_that_are_not_finite_are_texts(text: str, expected: str) -> None:
    found = stats_parsed_whole(pa.array([smallest(f=text)]), TYPE)
    assert str(found[0].to_pylist()[0]["minValues"]["f"]) == expected
    assert found[1].to_pylist() == [False]


@pytest.mark.parametrize(
    "text", ["null", "[]", "7", "nonsense", '{"numRecords":', "{} {}", " ", "\n", '"{}"', '{"a":1}\n{"b":2}']
)
@pytest.mark.parametrize("others", [0, 100])
def test_what_is_no_one_object_is_null_and_shifts_nothing(text: str, others: int) -> None:
    around = ['{"numRecords":5}'] * others
    found = parsed(*around, text, *around)
    assert found[others] is None
    assert [each["numRecords"] for each in found[:others] + found[others + 1 :]] == [5] * 2 * others


def test_a_document_over_several_lines_is_read() -> None:
    assert parsed('{\r\n"numRecords":\n 7 }')[0]["numRecords"] == 7


def test_a_document_longer_than_arrows_blocks_is_read() -> None:
    assert parsed('{"numRecords":1}', smallest(s="x" * 3_000_000))[1]["minValues"]["s"] == "x" * 3_000_000


@pytest.mark.parametrize(
    "document",
    [
        '{"numRecords":1,"other":0}',
        smallest(unknown=1),
        smallest(inside={"x": 1, "y": 2}),
        smallest(flag=True),
    ],
)
def test_what_has_no_column_is_told_as_not_whole(document: str) -> None:
    assert stats_parsed_whole(pa.array([document, smallest(n=1)]), TYPE)[1].to_pylist() == [True, False]
    assert parsed(document)[0]["numRecords"] == 1


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        [
            "NaN",
            "x",
            "1",
            "2024-02-29",
            "2024-02-30",
            "0000-01-01",
            "2024-2-9",
            "-inf",
            "+10109-07-08 1:2:3",
            "2024-01-01T00:00:00.5Z",
            "0001-01-01T00:00:00Z",
            "2024-01-01 12",
            "2024-01-01T12:30",
            "2024-01-01T12:30:00",
            "2024-01-01T12:30:00.1234560",
        ]
    ),
    st.dates().map(str),
    st.datetimes().map(lambda moment: f"{moment.isoformat()}Z"),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["x", "raw"]), st.integers(), max_size=2),
)
BOUNDS = st.dictionaries(st.sampled_from([*names(TYPE.field("minValues").type), "other"]), VALUES, max_size=3)
DOCUMENTS = st.fixed_dictionaries(
    {}, optional={"numRecords": VALUES, "minValues": BOUNDS, "maxValues": BOUNDS}
)


def in_units(structs: pa.StructArray) -> list[Any]:
    """Days and microseconds for dates and times, of which Python has none before the year 1."""

    def of(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(kind):
            return pa.struct([(member.name, of(member.type)) for member in kind])
        if pa.types.is_date32(kind):
            return pa.int32()
        return pa.int64() if pa.types.is_timestamp(kind) else kind

    found: list[Any] = structs.cast(of(structs.type)).to_pylist()
    return found


@settings(max_examples=60)
@given(documents=st.lists(st.one_of(st.none(), DOCUMENTS.map(json.dumps)), min_size=1, max_size=40))
def test_a_row_is_read_the_same_whatever_stands_beside_it(documents: list[str | None]) -> None:
    together, lost = stats_parsed_whole(pa.array(documents, pa.string()), TYPE)
    alone = [stats_parsed_whole(pa.array([document], pa.string()), TYPE) for document in documents]
    assert repr(in_units(together)) == repr([in_units(struct)[0] for struct, _ in alone])
    assert lost.to_pylist() == [each.to_pylist()[0] for _, each in alone]


@few_or_many(800, all_of=10_000)
def test_no_damage_of_a_document_ends_the_process(budget: int) -> None:
    """Arrow dies of some lines that are no objects; in a process of its own, which would die."""
    program = """
import random, sys
import pyarrow as pa
from tests.statistics_documents import TYPE, smallest
from iceberg_cli.delta.spec.statistics_columns import stats_parsed, stats_parsed_whole
draw = random.Random(7)
damage = ["", "null", "{", "}", '"', ",", "[", "0", "\\\\", "\\x00"]
good = smallest(n=1, d=1.25, at="2024-02-29T12:30:00.123Z", inside={"x": 7}, s="x")
for _ in range(int(sys.argv[1])):
    text = list(good)
    for _ in range(draw.randrange(1, 6)):
        place = draw.randrange(len(text))
        text[place : place + draw.randrange(4)] = draw.choice(damage)
    texts = pa.array(draw.sample(["".join(text), good, "null", None], draw.randrange(1, 5)), pa.string())
    assert len(stats_parsed(texts, TYPE)) == len(stats_parsed_whole(texts, TYPE)[1]) == len(texts)
print("alive")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(budget)], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("alive", 0), done.stderr


# -- partition values ------------------------------------------------------------------------------------------


def partitioned(kind: str, *texts: str | None) -> list[Any]:
    schema = a_schema(
        a_field("p", kind, **{"delta.columnMapping.physicalName": "col-p"}), a_field("n", "long")
    )
    target = partition_type(schema, ("p",))
    assert target is not None
    maps = pa.array([[("col-p", text)] for text in texts], pa.map_(pa.string(), pa.string()))
    return [each["col-p"] for each in partition_values_parsed(maps, target).to_pylist()]


@pytest.mark.parametrize(
    ("kind", "texts", "expected"),
    [
        ("string", ["a b", "", None, "é"], ["a b", None, None, "é"]),
        ("integer", ["7", "-7", "2147483648", "x", ""], [7, -7, None, None, None]),
        ("long", ["9223372036854775807", "1.0"], [INT64_MAX, None]),
        ("double", ["1e3", "-0.5", "1_0", "Infinity"], [1000.0, -0.5, None, float("inf")]),
        ("double", ["inf", "-INF", "+infinity", "1e400"], [INF, -INF, INF, INF]),
        ("float", ["1.00000017881393432617187499", "3.4e39"], [1 + 2**-23, INF]),
        ("decimal(38,2)", ["1" * 36 + ".25", "1.234", "0"], [Decimal("1" * 36 + ".25"), None, Decimal(0)]),
        ("decimal(2,2)", ["0", "0.25", "1"], [Decimal(0), Decimal("0.25"), None]),
        ("boolean", ["true", "FALSE", "1"], [True, False, None]),
        ("binary", ["\x01\x02", ""], [b"\x01\x02", None]),
        ("date", ["2024-02-29", "2024-2-9", "24-2-9"], [date(2024, 2, 29), date(2024, 2, 9), None]),
        (
            "timestamp",
            ["2024-02-29 12:30:00.123456", "2024-02-29T12:30:00Z", "2024-02-29T12:30:00+02:00", "12:30"],
            [
                datetime(2024, 2, 29, 12, 30, 0, 123_456, tzinfo=UTC),
                datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
                None,
                None,
            ],
        ),
    ],
)
def test_partition_values_are_typed_and_what_is_none_is_null(
    kind: str, texts: list[str | None], expected: list[Any]
) -> None:
    assert partitioned(kind, *texts) == expected


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("0000-01-01", -719_528),
        ("-0001-12-31", -719_529),
        ("-0400-01-01", -719_528 - 146_097),
        ("10000-01-01", 2_932_897),
        ("+10400-03-01", 11_017 + 21 * 146_097),
        ("+2000-3-1", 11_017),
    ],
)
def test_days_outside_of_four_digit_years_are_counted_in_the_same_calendar(text: str, days: int) -> None:
    """By hand: 400 years have 146,097 days, and 2000-03-01 is day 11,017."""
    for kind, in_units in ((pa.date32(), days), (pa.timestamp("us"), days * 86_400_000_000)):
        values = times(pa.array([text]), kind)
        assert values.cast(pa.int32() if kind == pa.date32() else pa.int64()).to_pylist() == [in_units]


def test_the_first_ambiguous_value_is_named_and_each_file_with_one_counts_once() -> None:
    kind = pa.struct([("p", pa.int64()), ("q", pa.string())])
    maps = pa.map_(pa.string(), pa.string())
    alike = [[("p", "1"), ("q", "a")], [("p", ""), ("q", None)], [("p", "+07")], None]
    odd = [[("p", "x"), ("q", "")], [("p", "1.0"), ("q", "a")], [("p", "2"), ("q", "")]]
    assert ambiguous_partition_value(pa.chunked_array([pa.array(alike, maps)]), kind) is None
    assert ambiguous_partition_value(pa.chunked_array([], maps), kind) is None
    found = ambiguous_partition_value(pa.chunked_array([pa.array(alike, maps), pa.array(odd, maps)]), kind)
    assert found == AmbiguousPartitionValue(row=4, column="p", text="x", files=3)


def test_a_table_without_partitions_has_no_such_type() -> None:
    assert partition_type(EVERY, ()) is None


@pytest.mark.parametrize("column", ["gone", "list", "inside"])
def test_a_partition_column_that_is_no_primitive_column_is_refused(column: str) -> None:
    with pytest.raises(InvalidMetadata, match=column):
        partition_type(EVERY, (column,))
