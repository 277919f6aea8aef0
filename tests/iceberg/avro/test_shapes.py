"""Stepping over values by their shape: many blocks side by side, held against fastavro and the scalar executor."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.columns import Executor, decode_records
from iceberg_cli.iceberg.avro.container import encode_long, read_container, write_container
from iceberg_cli.iceberg.avro.projection import Projection, compile_plan

SYNC = bytes(range(16))
BLOCKS = 40  # more than are walked one by one
RECORDS = 9  # of each block
PAIRS = {
    "type": "array",
    "items": {
        "type": "record",
        "name": "pair",
        "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "bytes"}],
    },
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "entry",
    "fields": [
        {"name": "first", "type": "long", "field-id": 1},
        {"name": "id", "type": ["null", "long"], "field-id": 2},
        {"name": "counts", "type": ["null", {"type": "array", "items": "long"}], "field-id": 3},
        {"name": "bounds", "type": ["null", PAIRS], "field-id": 4},
        {"name": "flags", "type": {"type": "map", "values": "boolean"}, "field-id": 5},
        {"name": "name", "type": "string", "field-id": 6},
        {"name": "ratio", "type": ["null", "double"], "field-id": 7},
        {"name": "last", "type": "long", "field-id": 8},
    ],
}
WANTED = [Projection("first", (1,)), Projection("last", (8,))]


def alike(_: random.Random) -> dict[str, Any]:
    return {
        "id": 1_000_000,
        "counts": [5, 300, 70_000],
        "bounds": [{"key": n, "value": b"12345678"} for n in range(6)],
        "flags": {"a": True, "b": False},
        "name": "PARQUET",
        "ratio": 0.5,
    }


def of_two_kinds(rng: random.Random) -> dict[str, Any]:
    return alike(rng) if rng.random() < 0.6 else {**alike(rng), "id": None, "counts": None, "ratio": None}


def with_a_few_odd_ones(rng: random.Random) -> dict[str, Any]:
    return alike(rng) if rng.random() < 0.98 else of_any_shape(rng)


def of_any_shape(rng: random.Random) -> dict[str, Any]:
    numbers = [rng.getrandbits(rng.randint(1, 62)) for _ in range(rng.randint(0, 90))]
    bounds = [{"key": n, "value": rng.randbytes(rng.randint(0, 99))} for n in range(rng.randint(0, 9))]
    return {
        "id": rng.choice([None, 1, -(1 << 63), (1 << 63) - 1]),
        "counts": rng.choice([None, numbers]),
        "bounds": rng.choice([None, bounds]),
        "flags": {str(n): rng.random() < 0.5 for n in range(rng.randint(0, 3))},
        "name": "é" * rng.randint(0, 200),
        "ratio": rng.choice([None, 1.5]),
    }


KINDS: list[Callable[[random.Random], dict[str, Any]]] = [
    alike,
    of_two_kinds,
    with_a_few_odd_ones,
    of_any_shape,
]


def encoded(record: dict[str, Any], schema: Any = SCHEMA) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


def blocks_of(make: Callable[[random.Random], dict[str, Any]], seed: int) -> list[list[bytes]]:
    """Records by block; `first` and `last` number them."""
    rng = random.Random(seed)
    return [
        [encoded({**make(rng), "first": n, "last": -n}) for n in range(first, first + RECORDS)]
        for first in range(0, BLOCKS * RECORDS, RECORDS)
    ]


def decoded(blocks: Sequence[Sequence[bytes]], executor: Executor) -> pa.Table:
    pairs = [(len(block), b"".join(block)) for block in blocks]
    container = read_container(write_container(json.dumps(SCHEMA), {}, pairs, codec="null", sync=SYNC), "f")
    return decode_records(compile_plan(container.type, WANTED, path="f"), [container], executor=executor)


def outcome(blocks: Sequence[Sequence[bytes]], executor: Executor) -> pa.Table | None:
    try:
        return decoded(blocks, executor)
    except CorruptFile:
        return None


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_values_behind_what_is_stepped_over_are_those_that_were_written(
    make: Callable[[random.Random], dict[str, Any]], seed: int
) -> None:
    table = decoded(blocks_of(make, seed), "lockstep")
    assert table["first"].to_pylist() == list(range(len(table)))
    assert table["last"].to_pylist() == [-n for n in range(len(table))]


@pytest.mark.few(1)
@pytest.mark.parametrize("make", [alike, of_two_kinds])
def test_a_changed_bit_is_refused_or_read_as_the_scalar_executor_reads_it(
    make: Callable[[random.Random], dict[str, Any]],
) -> None:
    blocks = blocks_of(make, 1)
    rng = random.Random(2)
    refused = 0
    for _ in range(300):
        block, record = rng.randrange(BLOCKS), rng.randrange(RECORDS)
        whole = bytearray(blocks[block][record])
        whole[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        changed = [list(each) for each in blocks]
        changed[block][record] = bytes(whole)
        one, other = outcome(changed, "lockstep"), outcome(changed, "narrow")
        assert (one is None) == (other is None)
        refused += one is None
        if one is not None and other is not None:
            assert one.equals(other)
    assert 30 < refused < 300  # of both kinds: bits that say how a record goes on, and bits that do not


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_record_of_a_known_shape_that_reaches_beyond_its_block_is_refused(cut: int) -> None:
    blocks = blocks_of(alike, 1)
    for block in (0, 17, BLOCKS - 1):
        changed = [list(each) for each in blocks]
        changed[block][-1] = changed[block][-1][:-cut]
        with pytest.raises(CorruptFile):
            decoded(changed, "lockstep")


def sized(values: Sequence[bytes], *, count: int | None = None, more: int = 0) -> bytes:
    """An Avro array in one block that says how many bytes it takes."""
    body = b"".join(values)
    return (
        encode_long(-(len(values) if count is None else count))
        + encode_long(len(body) + more)
        + body
        + b"\x00"
    )


def an_entry_with_sized_counts(number: int, counts: bytes) -> bytes:
    rest = encoded({**alike(random.Random(0)), "counts": None, "first": number, "last": -number})
    head = encode_long(number) + b"\x02" + encode_long(1_000_000)
    assert rest.startswith(head + b"\x00")
    return head + b"\x02" + counts + rest[len(head) + 1 :]


def test_blocks_of_an_array_may_say_their_size() -> None:
    counts = sized([encode_long(300)] * 7)
    blocks = [
        [an_entry_with_sized_counts(n, counts) for n in range(first, first + RECORDS)]
        for first in range(0, BLOCKS * RECORDS, RECORDS)
    ]
    table = decoded(blocks, "lockstep")
    assert table["last"].to_pylist() == [-n for n in range(BLOCKS * RECORDS)]
    assert table.equals(decoded(blocks, "narrow"))


@pytest.mark.parametrize("executor", ["lockstep", "narrow"])
@pytest.mark.parametrize("more", [-3, -1, 1, 6])
def test_an_array_that_is_not_as_long_as_it_says_is_refused_though_nobody_wants_it(
    more: int, executor: Executor
) -> None:
    """Believed, it would let the fields behind it be read from other bytes."""
    right, wrong = (sized([encode_long(300)] * 7, more=each) for each in (0, more))
    blocks = [[an_entry_with_sized_counts(n, right)] for n in range(BLOCKS)]
    blocks[BLOCKS // 2] = [an_entry_with_sized_counts(0, wrong)]
    with pytest.raises(CorruptFile):
        decoded(blocks, executor)


def test_an_array_of_more_items_than_bytes_is_refused_in_every_record() -> None:
    counts = sized([encode_long(3)], count=1 << 19)
    blocks = [[an_entry_with_sized_counts(n, counts)] for n in range(BLOCKS)]
    assert outcome(blocks, "lockstep") is None
    assert outcome(blocks, "narrow") is None


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint64, np.float64, np.bool_])
def test_an_arrow_array_over_numpy_s_memory_holds_the_same_values(dtype: Any) -> None:
    values = np.arange(41).astype(dtype)
    valid = np.arange(41) % 3 != 1
    assert array_of(values).to_pylist() == values.tolist()
    assert array_of(values[::2]).to_pylist() == values[::2].tolist()
    assert array_of(values[:0]).to_pylist() == []
    expected = [value if is_valid else None for value, is_valid in zip(values.tolist(), valid, strict=True)]
    assert array_of(values, valid).to_pylist() == expected
    assert array_of(values, valid).null_count == int((~valid).sum())
