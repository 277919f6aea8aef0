"""Rows in an order: Python's own sort says which, and each value is the one that it was."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Generator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from iceberg_cli.errors import CorruptFile, TooLittleMemory
from iceberg_cli.layout.curves import Curve
from iceberg_cli.layout.files.external_order import in_order
from iceberg_cli.layout.files.ordering import RowOrder
from iceberg_cli.layout.files.partition_writer import Piece, RowsRead
from iceberg_cli.layout.ranks import SampleBuilder
from iceberg_cli.layout.row_order import OrderCheck, OrderedColumn

NAN = float(np.array([0xFFF8000000000123], np.uint64).view(np.float64)[0])  # one of many
INNER = pa.struct([("a", pa.timestamp("us", "UTC")), ("A", pa.float64())])
SCHEMA = pa.schema(
    [
        ("long", pa.int64()),
        ("double", pa.float64()),
        ("float", pa.float32()),
        ("text", pa.string()),
        ("TEXT", pa.string()),
        ("bytes", pa.binary()),
        ("fixed", pa.binary(3)),
        ("yes", pa.bool_()),
        ("date", pa.date32()),
        ("time", pa.time64("us")),
        ("at", pa.timestamp("us", "UTC")),
        ("at_ns", pa.timestamp("ns")),
        ("small", pa.decimal128(9, 2)),
        ("large", pa.decimal128(38, 10)),
        ("inner", INNER),
        ("list", pa.list_(INNER)),
        ("map", pa.map_(pa.string(), pa.list_(pa.decimal128(20, 2)))),
    ]
)
DOUBLES = [-math.inf, -1.5, -0.0, 0.0, 5e-324, 1.5, math.inf, math.nan, NAN]


def drawn_row(drawn: random.Random) -> dict[str, Any]:
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=drawn.randrange(10**15))
    inner = {"a": at, "A": drawn.choice(DOUBLES)}
    values = {
        "long": drawn.choice([-(1 << 63), 0, 5, (1 << 63) - 1, drawn.randrange(100)]),
        "double": drawn.choice(DOUBLES),
        "float": drawn.choice([1.5, -2.5, math.nan, -0.0, 0.0]),
        "text": drawn.choice(["", "a", "A", "é", "\U0001f600", "\uffff", "zz"]),
        "TEXT": drawn.choice(["other", "\x00"]),
        "bytes": drawn.choice([b"", b"\xff", b"\x00\xfe"]),
        "fixed": drawn.choice([b"abc", b"\x00\x00\xff"]),
        "yes": drawn.random() < 0.5,
        "date": at.date(),
        "time": at.time(),
        "at": at,
        "at_ns": at.replace(tzinfo=None),
        "small": Decimal(drawn.randrange(-(10**9) + 1, 10**9)).scaleb(-2),
        "large": Decimal(drawn.randrange(-(10**35), 10**35)).scaleb(-10),
        "inner": inner,
        "list": [inner, None] * drawn.randrange(3),
        "map": [(name, [Decimal("1.50"), None]) for name in "xy"[: drawn.randrange(3)]],
    }
    return {name: None if drawn.random() < 0.15 else value for name, value in values.items()}


class Files:
    """What is told of the files that are written."""

    def __init__(self) -> None:
        self.read = RowsRead(left=0)


def pieces_of(rows: pa.Table, files: Files, each: int) -> Generator[Piece, None, None]:
    for begin in range(0, len(rows), each):
        part = rows.slice(begin, each)
        files.read.read += len(part)
        files.read.live += len(part)
        yield Piece(np.full(len(part), begin // 100, np.int64), np.arange(begin, begin + len(part)), part)


def ordered(rows: pa.Table, order: RowOrder, each: int = 37, memory_bytes: int = 1) -> list[Piece]:
    files, sample = Files(), SampleBuilder(columns=len(order.columns), rows=len(rows))
    if order.curve is not None:
        for piece in pieces_of(rows, Files(), each):
            own = piece.rows.select([column.place for column in order.columns])
            sample.add(piece.inputs, piece.positions, own)
    scale = None if order.curve is None else sample.scale(order.curve)
    found, left = [], []
    live = pieces_of(rows, files, each)
    for piece in in_order(live, rows.schema, order, scale, memory_bytes=memory_bytes, files=files):  # type: ignore[arg-type]
        found.append(piece)
        left.append(files.read.left)
    ends = np.cumsum([piece.rows.num_rows for piece in found])
    assert left == (len(rows) - ends).tolist()  # so files are as large as they would be if rows just passed
    return found


def by(*columns: OrderedColumn, curve: Curve | None = None) -> RowOrder:
    return RowOrder(columns=columns, names=(), curve=curve)


def column(name: str, *, descending: bool = False, nulls_first: bool = True) -> OrderedColumn:
    return OrderedColumn(place=SCHEMA.names.index(name), descending=descending, nulls_first=nulls_first)


def bits_of(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Rows as text, in which each NaN and each zero is itself."""

    def text(value: Any) -> Any:
        if isinstance(value, float):
            return np.float64(value).tobytes().hex()
        if isinstance(value, dict):
            return {name: text(each) for name, each in value.items()}
        if isinstance(value, list):
            return [text(each) for each in value]
        return value

    return [tuple(str(text(value)) for value in row.values()) for row in rows.to_pylist()]


@pytest.mark.pairs
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
@pytest.mark.parametrize(
    "name", ["long", "double", "float", "text", "bytes", "date", "time", "at", "at_ns", "small", "large"]
)
def test_rows_are_sorted_as_the_specification_orders_values(
    name: str, *, nulls_first: bool, descending: bool
) -> None:
    """Iceberg, "Sort Orders": numbers from -NaN to NaN, text by its bytes. Equal rows stay as they came."""
    drawn = random.Random(name)
    rows = pa.Table.from_pylist([drawn_row(drawn) for _ in range(300)], SCHEMA)
    own = column(name, descending=descending, nulls_first=nulls_first)
    found = ordered(rows, by(own))
    places = np.concatenate([piece.positions for piece in found]).tolist()
    values = rows[name].to_pylist()
    if name in ("double", "float"):
        values = [None if value is None else total_order(value) for value in values]
    elif name == "text":
        values = [None if value is None else value.encode() for value in values]
    valued = [place for place in range(300) if values[place] is not None]
    nulls = [place for place in range(300) if values[place] is None]
    valued.sort(key=lambda place: values[place], reverse=descending)
    assert places == (nulls + valued if nulls_first else valued + nulls)
    check = OrderCheck([own])
    for piece in found:
        check.see(piece.rows)
    assert check.holds


def total_order(value: float) -> int:
    bits = int(np.float64(value).view(np.int64))
    return bits if bits >= 0 else bits ^ ((1 << 63) - 1)


@pytest.mark.parametrize("curve", [None, "z-order", "hilbert"])
def test_each_value_is_the_one_that_it_was(curve: Curve | None) -> None:
    """Of all types, in structs, lists and maps: NaN of any bits, zeros of both signs, names that differ in case."""
    drawn = random.Random(1)
    rows = pa.Table.from_pylist([drawn_row(drawn) for _ in range(500)], SCHEMA)
    found = ordered(rows, by(column("double"), column("text"), curve=curve))
    after = pa.concat_tables([piece.rows for piece in found])
    assert after.schema == SCHEMA
    places = np.concatenate([piece.positions for piece in found])
    assert sorted(places.tolist()) == list(range(500))
    assert bits_of(after) == bits_of(rows.take(pa.array(places)))
    assert np.concatenate([piece.inputs for piece in found]).tolist() == (places // 37 * 37 // 100).tolist()


@pytest.mark.parametrize("curve", ["z-order", "hilbert"])
def test_a_curve_is_the_same_however_rows_come(curve: Curve) -> None:
    drawn = random.Random(2)
    rows = pa.Table.from_pylist([drawn_row(drawn) for _ in range(400)], SCHEMA)
    order = by(column("long"), column("text"), curve=curve)
    first, second = (
        np.concatenate([piece.positions for piece in ordered(rows, order, each)]).tolist()
        for each in (400, 11)
    )
    assert first == second != list(range(400))


def test_rows_that_memory_does_not_hold_are_sorted_all_the_same() -> None:
    """Some 240 MB of rows by 128 MB."""
    count = 600_000
    drawn = np.random.default_rng(1)
    texts = pa.array([f"{n:0400d}" for n in range(1000)]).take(pa.array(drawn.integers(0, 1000, count)))
    rows = pa.table({"n": pa.array(drawn.permutation(count)), "text": texts})
    expected = 0
    order = RowOrder(columns=(OrderedColumn(place=0, descending=False, nulls_first=True),), names=("n",))
    for piece in ordered(rows, order, each=20_000):
        numbers = piece.rows["n"].to_numpy()
        assert numbers.tolist() == list(range(expected, expected + len(numbers)))
        assert piece.rows["text"].equals(rows["text"].take(pa.array(piece.positions)))
        expected += len(numbers)
    assert expected == count


def test_rows_that_are_too_wide_are_refused_with_the_size_to_try() -> None:
    text = pa.array(["x" * 10_000])

    def wide() -> Generator[Piece, None, None]:
        for begin in range(0, 60_000, 1000):
            numbers = np.arange(begin, begin + 1000)
            rows = pa.table({"n": (numbers * 7919) % 60_013, "text": text.take(pa.array([0] * 1000))})
            yield Piece(np.zeros(1000, np.int64), numbers, rows)

    order = RowOrder(columns=(OrderedColumn(place=0, descending=False, nulls_first=True),), names=("n",))
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    with pytest.raises(TooLittleMemory, match=r"Rows so wide are not sorted by 128\.0 MiB") as refused:
        list(in_order(wide(), schema, order, None, memory_bytes=1, files=Files()))  # type: ignore[arg-type]
    assert refused.value.needed_bytes == 256 << 20


def test_a_struct_that_is_null_may_have_required_fields() -> None:
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.list_(pa.float64()))])
    schema = pa.schema([("n", pa.int64()), ("s", inner), ("m", pa.map_(pa.string(), inner))])
    whole = [{"a": 1, "b": [0.5]}, None, {"a": 2, "b": None}, None]
    maps = [None, [("x", {"a": 3, "b": []}), ("y", None)], [], [("z", {"a": 4, "b": [None]})]]
    columns = [pa.array([4, 3, 2, 1]), pa.array(whole, inner), pa.array(maps, schema.field("m").type)]
    (piece,) = ordered(
        rows := pa.Table.from_arrays(columns, schema=schema),
        RowOrder(columns=(OrderedColumn(place=0, descending=False, nulls_first=True),), names=("n",)),
    )
    assert piece.rows.schema == schema
    assert piece.rows.to_pylist() == rows.to_pylist()[::-1]


def test_an_error_of_the_rows_is_the_one_that_is_raised() -> None:
    def broken() -> Generator[Piece, None, None]:
        yield Piece(np.zeros(1, np.int64), np.zeros(1, np.int64), pa.table({"n": [1]}))
        raise CorruptFile("a/file", None, "it is broken")

    order = RowOrder(columns=(OrderedColumn(place=0, descending=False, nulls_first=True),), names=("n",))
    found = in_order(broken(), pa.schema([("n", pa.int64())]), order, None, memory_bytes=1, files=Files())  # type: ignore[arg-type]
    with pytest.raises(CorruptFile, match="it is broken"):
        list(found)


def test_no_rows_are_in_order() -> None:
    order = RowOrder(columns=(OrderedColumn(place=0, descending=False, nulls_first=True),), names=("n",))
    nothing = pieces_of(pa.table({"n": pa.array([], pa.int64())}), Files(), 1)
    assert not [*in_order(nothing, SCHEMA, order, None, memory_bytes=1, files=Files())]  # type: ignore[arg-type]
