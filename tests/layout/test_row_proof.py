"""Two sets of rows have one proof exactly where they are the same multiset."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.encoding.arrow import leaf_arrays
from iceberg_cli.layout.row_proof import RowProof, row_proof

MAP = pa.map_(pa.string(), pa.int32())


def proof(values: list[Any], type_: pa.DataType, field_id: int = 1) -> RowProof:
    return row_proof(table({"c": pa.array(values, type_)}, c=field_id))


def table(columns: dict[str, pa.Array], **field_ids: int) -> pa.Table:
    schema = pa.schema(
        [
            pa.field(
                name,
                array.type,
                metadata={"PARQUET:field_id": str(field_ids[name])} if name in field_ids else None,
            )
            for name, array in columns.items()
        ]
    )
    return pa.table(list(columns.values()), schema=schema)


@pytest.mark.parametrize(
    "type_",
    [
        pa.map_(pa.string(), pa.uuid()),
        pa.list_(pa.list_(pa.uuid())),
        pa.list_(pa.struct([("u", pa.uuid())])),
        pa.list_(pa.map_(pa.string(), pa.decimal128(30, 2))),
    ],
    ids=str,
)
def test_lists_and_maps_of_any_type_that_are_all_null_have_a_proof(type_: pa.DataType) -> None:
    """H31: Arrow makes no empty array of some types."""
    nulls = pa.nulls(2, type_)
    assert row_proof(table({"c": nulls}, c=1)) == proof([None, None], pa.int64())
    assert not any(len(leaf) for leaf in leaf_arrays(nulls))


@pytest.mark.parametrize(
    "type_",
    [
        pa.list_(pa.map_(pa.string(), pa.int64())),
        pa.list_(pa.map_(pa.string(), pa.decimal128(30, 2))),
        pa.list_(pa.struct([("l", pa.list_(pa.map_(pa.string(), pa.binary(16))))])),
    ],
    ids=str,
)
def test_a_null_list_is_no_empty_one_where_no_list_has_an_element(type_: pa.DataType) -> None:
    values: list[list[list[Any] | None]] = [[None, None], [[], None], [[], []], [None]]
    assert len({proof(each, type_) for each in values}) == len(values)


@pytest.mark.parametrize(
    ("type_", "one", "other"),
    [
        (pa.int64(), [1, 2], [1, 3]),
        (pa.int64(), [0], [None]),
        (pa.int64(), [1, 1, 2], [1, 2, 2]),
        (pa.int64(), [5, 5], [6, 6]),
        (pa.int64(), [5, 5], []),
        (pa.int64(), [1 << 40], [1 << 41]),
        (pa.float64(), [0.0], [-0.0]),
        (pa.float32(), [0.0], [None]),
        (pa.bool_(), [True], [False]),
        (pa.bool_(), [False], [None]),
        (pa.string(), ["a", "b"], ["ab", ""]),
        (pa.string(), [""], [None]),
        (pa.string(), ["a"], ["a\0"]),
        (pa.string(), ["x" * 9_000 + "a"], ["x" * 9_000 + "b"]),
        (pa.string(), ["a" * 4_096 + "b" * 4_096], ["b" * 4_096 + "a" * 4_096]),
        (pa.string(), ["x" * 4_097, ""], ["x" * 4_096, "x"]),
        (pa.string(), ["a" + "x" * 9_000], ["b" + "x" * 9_000]),
        (pa.binary(3), [b"abc"], [b"abd"]),
        (pa.decimal128(38, 2), [Decimal("1e30")], [Decimal("1" + "0" * 30 + ".01")]),
        (pa.decimal128(38, 2), [Decimal("-0.01")], [Decimal("0.01")]),
        (pa.date32(), [0], [1]),
        (pa.timestamp("us", "UTC"), [0], [1]),
        (pa.list_(pa.int32()), [[]], [None]),
        (pa.list_(pa.int32()), [[]], [[None]]),
        (pa.list_(pa.int32()), [[1], [2]], [[1, 2], []]),
        (pa.list_(pa.int32()), [[1, 2]], [[2, 1]]),
        (pa.list_(pa.int32()), [[0]], [[0, 0]]),
        (pa.list_(pa.list_(pa.int32())), [[[1], []]], [[[], [1]]]),
        (MAP, [[("a", 1), ("b", 2)]], [[("a", 2), ("b", 1)]]),
        (MAP, [[]], [None]),
        (pa.struct([("x", pa.int32())]), [None], [{"x": None}]),
        (pa.struct([("x", pa.int32()), ("y", pa.int32())]), [{"x": 1, "y": 2}], [{"x": 2, "y": 1}]),
    ],
    ids=str,
)
def test_what_differs_has_another_proof(type_: pa.DataType, one: list[Any], other: list[Any]) -> None:
    assert proof(one, type_) == proof(one, type_)
    found, another = proof(one, type_), proof(other, type_)
    assert found.sums[0] != another.sums[0]
    assert found.sums[1] != another.sums[1]
    assert found.count == len(one)


def test_nan_is_told_by_its_bits() -> None:
    one, other = (
        pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(struct.pack("<Q", bits))])
        for bits in (0x7FF8000000000000, 0x7FF8000000000001)
    )
    assert row_proof(table({"c": one}, c=1)) == row_proof(table({"c": one}, c=1))
    assert row_proof(table({"c": one}, c=1)) != row_proof(table({"c": other}, c=1))


def test_a_value_belongs_to_its_column_and_a_column_is_known_by_its_id() -> None:
    a, b = pa.array([1, 2]), pa.array([3, None])
    assert row_proof(table({"a": a, "b": b}, a=1, b=2)) == row_proof(
        table({"b": b, "other": a}, b=2, other=1)
    )
    assert row_proof(table({"a": a, "b": b}, a=1, b=2)) != row_proof(table({"a": b, "b": a}, a=1, b=2))
    assert row_proof(table({"a": a})) == row_proof(table({"a": a}))
    assert row_proof(table({"a": a})) != row_proof(table({"b": a}))
    assert row_proof(table({"a": a}, a=1)) != row_proof(table({"a": a}, a=2))


def test_values_that_changed_rows_with_each_other_have_another_proof() -> None:
    a = pa.array([1, 2])
    assert row_proof(table({"a": a, "b": pa.array([3, 4])})) != row_proof(
        table({"a": a, "b": pa.array([4, 3])})
    )


def test_how_values_lie_in_memory_makes_no_difference() -> None:
    values = ["x", None, "a longer text than eight bytes", "x"]
    expected = proof(values, pa.string())
    assert proof(values, pa.large_string()) == expected
    assert proof(values, pa.string_view()) == expected
    assert row_proof(table({"c": pa.array(values).dictionary_encode()}, c=1)) == expected
    assert row_proof(table({"c": pa.array(["w", *values, "z"]).slice(1, 4)}, c=1)) == expected
    parts = pa.chunked_array([["x"], [None, "a longer text than eight bytes", "x"]])
    assert row_proof(table({"c": parts}, c=1)) == expected
    lists = [[1], None, [], [2, 3]]
    sliced = pa.array([[9], *lists], pa.list_(pa.int64())).slice(1)
    assert row_proof(table({"c": sliced}, c=1)) == proof(lists, pa.list_(pa.int64()))
    number = pa.array([9, 1, None, 2], pa.int32()).slice(1)
    assert row_proof(table({"c": number}, c=1)) == proof(
        [1, None, 2], pa.int64()
    )  # a promoted value is the same


@pytest.mark.parametrize(
    "values", [["x", None, "y", "x", "x"], [None, None], ["", "x", "", None], ["x"] * 9, []]
)
@pytest.mark.parametrize("type_", [pa.string(), pa.binary()], ids=str)
def test_values_of_a_dictionary_are_hashed_as_others_are(values: list[Any], type_: pa.DataType) -> None:
    values = [each if each is None or type_ == pa.string() else each.encode() for each in values]
    expected = proof(values, type_, field_id=3)
    encoded = pa.array(values, type_).dictionary_encode()
    assert row_proof(table({"c": encoded}, c=3)) == expected
    with_more = pa.DictionaryArray.from_arrays(encoded.indices, pa.concat_arrays([encoded.dictionary] * 2))
    assert row_proof(table({"c": with_more}, c=3)) == expected
    nulls_in_it = pa.array(values, type_).dictionary_encode(null_encoding="encode")
    assert row_proof(table({"c": nulls_in_it}, c=3)) == expected
    twice = pa.array([*values, *values], type_).dictionary_encode()
    assert row_proof(table({"c": twice}, c=3).slice(len(values))) == expected


def test_rows_are_the_same_however_many_are_hashed_at_once() -> None:
    numbers = pa.array(range(150_000))
    rows = table({"a": numbers, "b": numbers.cast(pa.string())}, a=1, b=2)
    parts = [row_proof(rows.slice(first, 30_000)) for first in range(0, 150_000, 30_000)]
    assert row_proof(rows) == sum(parts, RowProof())


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([[("a", 1)], None, [], [("b", 2), ("c", None)], [("d", 4)]], MAP),
        ([{"x": 1}, None, {"x": None}, {"x": 4}, {"x": 5}], pa.struct([("x", pa.int32())])),
        ([[[1]], None, [], [[], None, [2, 3]], [[4]]], pa.list_(pa.list_(pa.int32()))),
        ([True, None, False, True, False], pa.bool_()),
        ([Decimal("1.5"), None, Decimal("-2.5"), Decimal(0), Decimal(4)], pa.decimal128(9, 2)),
        ([b"abc", None, b"abd", b"\0\0\0", b"abe"], pa.binary(3)),
        ([0.5, None, float("nan"), -0.0, 1.0], pa.float64()),
    ],
    ids=str,
)
def test_rows_of_a_slice_are_those_that_are_hashed(values: list[Any], type_: pa.DataType) -> None:
    column = pa.array(values, type_)
    assert row_proof(table({"c": column}, c=1).slice(1, 3)) == proof(values[1:4], type_)
    assert row_proof(table({"c": column.slice(1)}, c=1).slice(0, 3)) == proof(values[1:4], type_)


def test_no_rows_prove_nothing() -> None:
    assert proof([], MAP) == RowProof(0, (0, 0))
    assert row_proof(pa.table({})) == RowProof()


VALUES = st.tuples(
    st.integers(0, 2), st.sampled_from(["", "a", None]), st.lists(st.integers(0, 1), max_size=2)
)
ROWS = st.lists(VALUES, max_size=8)


def of_rows(rows: list[tuple[int, str | None, list[int]]]) -> RowProof:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    types = (pa.int64(), pa.string(), pa.list_(pa.int64()))
    arrays = [pa.array(values, type_) for values, type_ in zip(columns, types, strict=True)]
    return row_proof(table(dict(zip("abc", arrays, strict=True)), a=1, b=2, c=3))


@given(ROWS, ROWS, st.randoms(use_true_random=False))
def test_proofs_are_equal_where_the_multisets_are(one: Any, other: Any, random: Any) -> None:
    def counted(rows: Any) -> Counter[str]:
        return Counter(map(str, rows))

    assert (of_rows(one) == of_rows(other)) == (counted(one) == counted(other))
    shuffled = random.sample(one, len(one))
    assert of_rows(shuffled) == of_rows(one)
    assert of_rows(one) + of_rows(other) == of_rows(one + other)


def test_many_rows_have_as_many_hashes() -> None:
    """Sums of a million neighbours differ in all: a weak mix would repeat itself."""
    numbers = np.arange(200_000)
    proofs = {proof([int(number)], pa.int64()).sums for number in numbers[:2000]}
    assert len(proofs) == 2000
    whole = row_proof(table({"c": pa.array(numbers)}, c=1))
    halves = [row_proof(table({"c": pa.array(half)}, c=1)) for half in np.split(numbers, 2)]
    assert halves[0] + halves[1] == whole


# -- the same, a value at a time, in integers ------------------------------------------------------------------------

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def split_mix(x: int) -> int:
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def murmur_mix(x: int) -> int:
    x = ((x ^ x >> 33) * 0xFF51AFD7ED558CCD) & MASK
    x = ((x ^ x >> 33) * 0xC4CEB9FE1A85EC53) & MASK
    return x ^ x >> 33


def of_bytes(data: bytes) -> int:
    x = (len(data) * 0x94D049BB133111EB + GOLDEN) & MASK
    whole = len(data) // 8 * 8
    for place in range(0, whole, 8):
        x = ((x ^ int.from_bytes(data[place : place + 8], "little")) * 0xBF58476D1CE4E5B9) & MASK
        x ^= x >> 32
    x = ((x ^ int.from_bytes(data[whole:], "little")) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 29) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 32


def of_value(value: Any, kind: Any, key: int) -> int:
    """The hash of a value; a kind is a field's place in `of_fields`, `("list", id, kind)` or how its words are made."""
    salt = split_mix(key * GOLDEN & MASK)
    if value is None:
        return split_mix(salt ^ 0xD6E8FEB86659FD93)
    if isinstance(kind, dict):
        return of_fields(value, kind, salt)
    if isinstance(kind, tuple):
        total = 0
        for place, element in enumerate(value):
            total += split_mix((of_value(element, kind[1], kind[0]) + place * GOLDEN) & MASK)
        return split_mix((total & MASK) ^ (len(value) * GOLDEN + salt & MASK))
    first, *others = kind(value)
    found = split_mix(first + salt & MASK)
    for word in others:
        found = split_mix(found ^ word)
    return found


def of_fields(values: dict[int, Any], kinds: dict[int, Any], start: int) -> int:
    found = start
    for key in sorted(kinds):
        found = split_mix(found ^ of_value(values[key], kinds[key], key))
    return found


def number(value: int) -> list[int]:
    return [value & MASK]


KINDS: dict[int, Any] = {
    1: number,
    2: lambda value: [of_bytes(value.encode())],
    3: (4, number),
    5: {6: lambda value: struct.unpack("<Q", struct.pack("<d", value)), 7: lambda value: [int(value)]},
    8: lambda value: struct.unpack("<2Q", int(value * 100).to_bytes(16, "little", signed=True)),
    9: lambda value: [of_bytes(value)],
    10: lambda value: struct.unpack("<2Q", value),
    (1 << 32) + zlib.crc32(b"by name"): number,
}
LITERAL: list[list[Any]] = [
    [1, "", [], {6: 0.5, 7: True}, Decimal("1.25"), b"abc", b"sixteen bytes id", 7],
    [
        -1,
        "a text of more than eight bytes",
        [1, None, -3],
        {6: -0.0, 7: None},
        Decimal("-0.01"),
        b"\xff\0\x01",
        b"\xff" * 16,
        -1,
    ],
    [None, None, None, None, None, None, None, None],
    [1 << 40, "eight by", [2], {6: None, 7: False}, Decimal("0.00"), b"\0\0\0", b"another id of 16", 0],
]


def test_sums_are_those_of_rows_one_by_one() -> None:
    """Sums stay in journals: what is written today is compared by a program of tomorrow."""
    hashes = [of_fields(dict(zip(KINDS, row, strict=True)), KINDS, 0) for row in LITERAL]
    expected = tuple(sum(map(mix, hashes)) & MASK for mix in (split_mix, murmur_mix))
    a, b, c, d, e, f, g, h = zip(*LITERAL, strict=True)
    inner = [("x", pa.float64(), 6), ("y", pa.bool_(), 7)]
    structs = pa.struct([pa.field(name, kind, metadata=id_of(key)) for name, kind, key in inner])
    fields = [
        pa.field("d", pa.decimal128(9, 2), metadata=id_of(8)),
        pa.field("a", pa.int64(), metadata=id_of(1)),
        pa.field("b", pa.string(), metadata=id_of(2)),
        pa.field("c", pa.list_(pa.field("element", pa.int32(), metadata=id_of(4))), metadata=id_of(3)),
        pa.field("e", structs, metadata=id_of(5)),
        pa.field("f", pa.binary(3), metadata=id_of(9)),
        pa.field("g", pa.binary(16), metadata=id_of(10)),
        pa.field("by name", pa.int32()),
    ]
    named = [None if each is None else {"x": each[6], "y": each[7]} for each in d]
    columns = [e, a, b, c, named, f, g, h]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)]
    rows = pa.table(arrays, schema=pa.schema(fields))
    assert row_proof(rows) == RowProof(4, (expected[0], expected[1]))


def test_entries_of_a_map_are_a_list_of_structs() -> None:
    key = pa.field("key", pa.int32(), nullable=False, metadata=id_of(11))
    value = pa.field("value", pa.int32(), metadata=id_of(12))
    maps = [[(1, 2), (3, None)], [], None]
    kinds = {10: ((1 << 32) + zlib.crc32(b"entries"), {11: number, 12: number})}
    rows = [None if each is None else [{11: k, 12: v} for k, v in each] for each in maps]
    hashes = [of_fields({10: row}, kinds, 0) for row in rows]
    expected = tuple(sum(map(mix, hashes)) & MASK for mix in (split_mix, murmur_mix))
    kind = pa.map_(key, value)
    table_of_maps = pa.table(
        [pa.array(maps, kind)], schema=pa.schema([pa.field("m", kind, metadata=id_of(10))])
    )
    assert row_proof(table_of_maps) == RowProof(3, (expected[0], expected[1]))


def id_of(field_id: int) -> dict[str, str]:
    return {"PARQUET:field_id": str(field_id)}
