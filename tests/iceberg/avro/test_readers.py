"""The strict Avro container and its two columnar executors, against fastavro and files of other writers."""

from __future__ import annotations

import bz2
import dataclasses
import datetime as dt
import io
import json
import lzma
import resource
import zlib
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from iceberg_cli.encoding.string_hash import hash_column, hash_strings
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.columns import Executor, decode_records
from iceberg_cli.iceberg.avro.container import Container, encode_long, read_container, write_container
from iceberg_cli.iceberg.avro.projection import Projection, compile_plan
from iceberg_cli.iceberg.avro.schema import parse_schema
from tests.paths import FIXTURES, needs_fixtures

EXECUTORS: tuple[Executor, ...] = ("narrow", "lockstep")
SYNC = bytes(range(16))
CODECS = ("null", "deflate", "snappy", "zstandard", "bzip2", "xz")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
LONGS = [
    0,
    -1,
    1,
    63,
    64,
    -64,
    -65,
    8191,
    8192,
    -(1 << 31),
    (1 << 31) - 1,
    1 << 48,
    1 << 55,
    1 << 56,
    1 << 62,
]
LONGS += [-(1 << 63), (1 << 63) - 1, -(1 << 56) - 1]

LONG_ARRAY = {"type": "array", "items": "long"}
EVERY_TYPE: dict[str, Any] = {
    "type": "record",
    "name": "every",
    "fields": [
        {"name": "number", "type": "long", "field-id": 1},
        {"name": "small", "type": ["null", "int"], "field-id": 2},
        {"name": "last_null", "type": ["long", "null"], "field-id": 3},
        {"name": "flag", "type": "boolean", "field-id": 4},
        {"name": "single", "type": "float", "field-id": 5},
        {"name": "double", "type": ["null", "double"], "field-id": 6},
        {"name": "text", "type": "string", "field-id": 7},
        {"name": "blob", "type": ["null", "bytes"], "field-id": 8},
        {"name": "fixed", "type": {"type": "fixed", "name": "f5", "size": 5}, "field-id": 9},
        {"name": "colour", "type": {"type": "enum", "name": "c", "symbols": ["red", "green"]}, "field-id": 10},
        {"name": "nothing", "type": "null", "field-id": 11},
        {"name": "numbers", "type": ["null", {"type": "array", "items": "long"}], "field-id": 12},
        {"name": "words", "type": {"type": "array", "items": ["null", "string"]}, "field-id": 13},
        {"name": "nested", "type": {"type": "array", "items": {"type": "array", "items": "int"}}, "field-id": 14},
        {"name": "named", "type": {"type": "map", "values": ["null", "long"]}, "field-id": 15},
        {
            "name": "bounds",
            "field-id": 16,
            "type": ["null", {
                "type": "array",
                "logicalType": "map",
                "items": {
                    "type": "record",
                    "name": "k_v",
                    "fields": [
                        {"name": "key", "type": "int", "field-id": 17},
                        {"name": "value", "type": "bytes", "field-id": 18},
                    ],
                },
            }],
        },
        {
            "name": "struct",
            "field-id": 19,
            "type": ["null", {
                "type": "record",
                "name": "inner",
                "fields": [
                    {"name": "a", "type": "string", "field-id": 20},
                    {"name": "b", "type": ["null", {"type": "array", "items": "f5"}], "field-id": 21},
                    {"name": "empty", "type": {"type": "record", "name": "e", "fields": []}, "field-id": 22},
                ],
            }],
        },
    ],
}  # fmt: skip


def a_record(n: int) -> dict[str, Any]:
    some = n % 3 != 0
    return {
        "number": LONGS[n % len(LONGS)],
        "small": n - 50 if some else None,
        "last_null": LONGS[(n * 7) % len(LONGS)] if n % 2 else None,
        "flag": n % 2 == 0,
        "single": float(n),
        "double": n / 7 if some else None,
        "text": "é漢" * (n % 5) + "x" * (n * 13 % 200),
        "blob": bytes([n % 256]) * (n % 90) if n % 4 else None,
        "fixed": bytes([n % 256] * 5),
        "colour": ("red", "green")[n % 2],
        "nothing": None,
        "numbers": [LONGS[(n + i) % len(LONGS)] for i in range(n % 40)] if some else None,
        "words": [None if i % 3 == 0 else f"w{i}" * (n % 30) for i in range(n % 6)],
        "nested": [[i] * (i % 4) for i in range(n % 7)],
        "named": {f"k{i}": None if i % 2 else n for i in range(n % 5)},
        "bounds": [{"key": i * 100, "value": b"b" * (i * 9)} for i in range(n % 12)] if n % 5 else None,
        "struct": {"a": f"s{n}", "b": [bytes([i] * 5) for i in range(n % 4)] if some else None, "empty": {}}
        if n % 4 != 1
        else None,
    }


def of_fields(**types: Any) -> dict[str, Any]:
    """The schema of a record with these fields, whose ids count from 1."""
    fields = [{"name": name, "type": types[name], "field-id": number} for number, name in enumerate(types, 1)]
    return {"type": "record", "name": "r", "fields": fields}


def stored(schema: dict[str, Any], *blocks: tuple[int, bytes]) -> Container:
    """A file of blocks, each of so many records in these bytes, as it is read."""
    return read_container(write_container(json.dumps(schema), {}, blocks, codec="null", sync=SYNC), "f")


def written_by_fastavro(
    schema: dict[str, Any], records: Iterable[Any], *, per_block: int, codec: str = "null"
) -> bytes:
    out = io.BytesIO()
    writer = fastavro.write.Writer(out, schema, codec=codec, sync_marker=SYNC)
    for index, record in enumerate(records, 1):
        writer.write(record)
        if per_block and index % per_block == 0:
            writer.flush()
    writer.flush()
    return out.getvalue()


def columns_of(
    container: Container, executor: Executor, names: Iterable[str] | None = None, copies: int = 1
) -> pa.Table:
    targets = [
        Projection(field.name, (field.field_id,))
        for field in container.type.fields
        if field.field_id is not None and (names is None or field.name in names)
    ]
    plan = compile_plan(container.type, targets, path=container.path)
    table = decode_records(plan, [container] * copies, executor=executor).drop_columns(["file"])
    table.validate(full=True)
    assert table.num_rows == copies * container.count
    return table


def plain(value: Any) -> Any:
    """A value as Avro stores it: fastavro interprets logical types, and Arrow gives maps as pairs."""
    match value:
        case dt.datetime():
            value = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
            return (value - EPOCH) // dt.timedelta(microseconds=1)
        case dt.date():
            return (value - EPOCH.date()).days
        case dict():
            return sorted((key, plain(item)) for key, item in value.items())
        case list() if value and all(isinstance(item, tuple) for item in value):
            return sorted((key, plain(item)) for key, item in value)
        case list() if value and all(isinstance(i, dict) and i.keys() == {"key", "value"} for i in value):
            return sorted((item["key"], plain(item["value"])) for item in value)
        case list():
            return [plain(item) for item in value]
        case _:
            return value


def plain_rows(table: pa.Table) -> list[Any]:
    return [[(name, plain(value)) for name, value in row.items()] for row in table.to_pylist()]


def plain_records(records: Iterable[Any], names: Iterable[str]) -> list[Any]:
    return [[(name, plain(record[name])) for name in names] for record in records]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("per_block", [1, 3, 50, 0])
def test_every_avro_type_reads_as_fastavro_reads_it(executor: Executor, per_block: int) -> None:
    data = written_by_fastavro(EVERY_TYPE, map(a_record, range(300)), per_block=per_block)
    table = columns_of(read_container(data, "f"), executor)
    assert plain_rows(table) == plain_records(fastavro.reader(io.BytesIO(data)), table.column_names)


@pytest.mark.parametrize("name", [field["name"] for field in EVERY_TYPE["fields"]])
def test_one_column_alone_is_read_by_stepping_over_all_others(name: str) -> None:
    data = written_by_fastavro(EVERY_TYPE, map(a_record, range(400)), per_block=7)
    container = read_container(data, "f")
    expected = plain_records(fastavro.reader(io.BytesIO(data)), [name])
    for executor in EXECUTORS:
        assert plain_rows(columns_of(container, executor, [name])) == expected


def test_both_executors_give_identical_columns_over_many_files() -> None:
    data = written_by_fastavro(EVERY_TYPE, map(a_record, range(211)), per_block=10)
    container = read_container(data, "f")
    wide, slow = (columns_of(container, executor, copies=9) for executor in ("lockstep", "narrow"))
    assert wide.equals(slow)
    assert wide.num_rows == 9 * 211


def test_rows_say_which_file_they_are_from_in_file_order() -> None:
    files = [
        read_container(written_by_fastavro(EVERY_TYPE, map(a_record, range(n)), per_block=2), "f")
        for n in (5, 0, 3)
    ]
    plan = compile_plan(files[0].type, [Projection("number", (1,))], path="f")
    for executor in EXECUTORS:
        table = decode_records(plan, files, executor=executor)
        assert table["file"].to_pylist() == [0] * 5 + [2] * 3
        assert table["number"].to_pylist() == LONGS[:5] + LONGS[:3]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_array_blocks_with_a_byte_size_are_read_and_stepped_over(executor: Executor) -> None:
    sized = encode_long(-3) + encode_long(3) + encode_long(1) + encode_long(2) + encode_long(3)
    record = sized + encode_long(1) + encode_long(9) + sized + encode_long(0) + encode_long(77)
    container = stored(of_fields(n=LONG_ARRAY, after="long"), (2, record * 2), (1, record))
    assert columns_of(container, executor)["n"].to_pylist() == [[1, 2, 3, 9, 1, 2, 3]] * 3
    assert columns_of(container, executor, ["after"])["after"].to_pylist() == [77] * 3


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("names", [["a"], ["b"]])
@pytest.mark.parametrize(
    ("avro", "value", "reason"),
    [
        ("long", b"\x80" * 10 + b"\x00", "a number"),
        ("string", b"\x01", "length -1"),
        ("string", b"\x7e" + b"x" * 10, "length 63"),
        (LONG_ARRAY, encode_long(1 << 40), "array"),
        (LONG_ARRAY, encode_long(-(1 << 63)) + b"\x00", "array"),
        ({"type": "array", "items": "null"}, encode_long(5), "array"),
        (["null", "long"], b"\x04", "union index"),
        (["null", "long"], b"\x01", "union index"),
        ({"type": "map", "values": "long"}, encode_long(10**9), "array"),
    ],
)
def test_values_that_are_none_are_refused_whether_wanted_or_not(
    executor: Executor, names: list[str], avro: Any, value: bytes, reason: str
) -> None:
    good = {"long": b"\x02", "string": b"\x02x"}.get(str(avro), b"\x00")
    container = stored(of_fields(a=avro, b="long"), (1, good + b"\x02"), (1, value + b"\x02"))
    with pytest.raises(CorruptFile, match=reason) as caught:
        columns_of(container, executor, names)
    assert caught.value.path == "f"
    assert caught.value.offset == container.blocks[1].offset


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("avro", "value"), [("int", encode_long(1 << 31)), ("boolean", b"\x02"), ("string", b"\x04\xff\xfe")]
)
def test_wanted_values_outside_their_type_are_refused(executor: Executor, avro: str, value: bytes) -> None:
    with pytest.raises(CorruptFile):
        columns_of(stored(of_fields(a=avro), (1, value)), executor)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_union_of_three_types_can_be_stepped_over_but_not_wanted(executor: Executor) -> None:
    schema = of_fields(a=["null", "long", "string"], b="long")
    values = [None, 5, "text", 1 << 40, None, "more"]
    data = written_by_fastavro(schema, [{"a": v, "b": n} for n, v in enumerate(values)], per_block=1)
    assert columns_of(read_container(data, "f"), executor, ["b"])["b"].to_pylist() == list(range(6))
    with pytest.raises(CorruptFile, match="union"):
        columns_of(read_container(data, "f"), executor, ["a"])
    with pytest.raises(CorruptFile, match="union index"):
        columns_of(stored(schema, (1, encode_long(99) + b"\x02")), executor, ["b"])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_block_with_bytes_left_over_is_refused(executor: Executor) -> None:
    with pytest.raises(CorruptFile, match="after the last record"):
        columns_of(stored(of_fields(a="long"), (1, b"\x02"), (1, b"\x02\x02")), executor)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("names", [["a"], ["after"]])
def test_numbers_of_ten_bytes_are_read_and_longer_ones_refused_in_long_runs(
    executor: Executor, names: list[str]
) -> None:
    schema = of_fields(a=LONG_ARRAY, after="long")
    for filler in range(12):
        values = [0] * filler + [-(1 << 63), 5, (1 << 63) - 1] * 9
        good = encode_long(len(values)) + b"".join(map(encode_long, values)) + b"\x00" + encode_long(7)
        table = columns_of(stored(schema, (1, good)), executor, names)
        assert table[names[0]].to_pylist() == ([values] if names == ["a"] else [7])
        bad = good.replace(encode_long(-(1 << 63)), b"\xff" * 10 + b"\x01", 1)
        with pytest.raises(CorruptFile, match="a number"):
            columns_of(stored(schema, (1, bad)), executor, names)


@pytest.mark.parametrize("codec", CODECS)
def test_a_container_written_with_each_codec_reads_back_block_by_block(codec: str) -> None:
    schema = of_fields(a="string")
    blocks = [(2, b"\x02a\x02b"), (0, b""), (1, encode_long(4000) + b"z" * 4000)]
    data = write_container(json.dumps(schema), {"key": "é".encode()}, blocks, codec=codec, sync=SYNC)
    container = read_container(data, "f")
    assert [(b.records, bytes(b.payload)) for b in container.blocks] == [blocks[0], blocks[2]]
    assert (container.metadata, container.codec, container.count) == ({"key": "é".encode()}, codec, 3)
    assert container.schema == schema
    if codec not in {"snappy", "zstandard"}:
        assert [row["a"] for row in fastavro.reader(io.BytesIO(data))] == ["a", "b", "z" * 4000]


def a_file(codec: str = "null", *, header: dict[str, bytes] | None = None, body: bytes = b"") -> bytes:
    """A container put together by hand."""
    schema = b'{"type":"record","name":"r","fields":[{"name":"a","type":"long","field-id":1}]}'
    entries = {"avro.schema": schema, "avro.codec": codec.encode()} if header is None else header
    parts = [b"Obj\x01", encode_long(len(entries))]
    for key, value in entries.items():
        parts += [encode_long(len(key)), key.encode(), encode_long(len(value)), value]
    return b"".join([*parts, b"\x00", SYNC, body])


def a_block(count: int, stored: bytes, *, sync: bytes = SYNC, size: int | None = None) -> bytes:
    return encode_long(count) + encode_long(len(stored) if size is None else size) + stored + sync


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no Avro container"),
        (b"Obj\x02" + b"\x00" * 40, "no Avro container"),
        (a_file(header={"avro.codec": b"null"}), "no avro.schema"),
        (a_file("lzo"), "unknown codec"),
        (a_file(header={"avro.schema": b'{"type":"record","name":"r","fields":[], "name":"q"}'}), "twice"),
        (a_file(header={"avro.schema": b"[" * 10_000}), "64 deep"),
        (a_file(header={"avro.schema": b'{"type":"record","name":"r","fields":[{"name":"a","type":"r"}]}'}), "itself"),
        (a_file(body=a_block(1, b"\x02", sync=bytes(16))), "sync marker differs"),
        (a_file(body=a_block(-1, b"\x02")), "block of -1 records"),
        (a_file(body=a_block(1, b"\x02", size=-5)), "in -5 bytes"),
        (a_file(body=a_block(1, b"\x02", size=1 << 40)), "beyond the end"),
        (a_file(body=a_block(1 << 40, b"\x02")), "1099511627776 records in 1 bytes"),
        (a_file(body=a_block(0, b"\x02")), "0 records in 1 bytes"),
        (a_file(body=a_block(1, b"\x02") + b"\x00"), "a number does not end"),
        (a_file(body=a_block(1, b"\x02")[:-1]), "beyond the end"),
        (a_file("deflate", body=a_block(1, b"\x03\x00" + b"x")), "1 bytes after the compressed data"),
        (a_file("deflate", body=a_block(1, b"\x07")), "deflate"),
        (a_file("deflate", body=a_block(1, b"")), "ends too early"),
        (a_file("snappy", body=a_block(1, b"\x01\x00\x02" + bytes(4))), "checksum"),
        (a_file("bzip2", body=a_block(1, bz2.compress(b"\x02") + b"!")), "1 bytes after"),
        (a_file("xz", body=a_block(1, lzma.compress(b"\x02")[:-4])), "too early"),
        (a_file("zstandard", body=a_block(1, b"\x28\xb5\x2f\xfd")), "zstandard"),
    ],
)  # fmt: skip
def test_containers_that_break_a_rule_are_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptFile, match=reason):
        read_container(data, "f")


def test_duplicate_header_keys_are_refused() -> None:
    key = encode_long(1) + b"k" + encode_long(0)
    with pytest.raises(CorruptFile, match="twice"):
        read_container(b"Obj\x01" + encode_long(2) + key + key + b"\x00" + SYNC, "f")


@pytest.mark.parametrize(
    "schema",
    [
        '{"type":"record","name":"r","fields":[{"name":"a","type":"nope"}]}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":[["int"]]}]}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":[]}]}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"fixed","name":"f","size":-1}}]}',
        '{"type":"record","name":"r","fields":7}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":"int","field-id":"1"}]}',
        '{"type":"array"}',
        '{"type":NaN}',
    ],
)  # fmt: skip
def test_schemas_that_are_none_are_refused(schema: str) -> None:
    with pytest.raises(CorruptFile, match="schema"):
        read_container(a_file(header={"avro.schema": schema.encode()}), "f")


def test_a_schema_that_expands_to_a_billion_nodes_is_refused() -> None:
    """Each record holds the one before it ten times, by name."""
    fields = [
        {"name": "f0", "type": {"type": "record", "name": "r0", "fields": [{"name": "x", "type": "int"}]}}
    ]
    for level in range(1, 10):
        inner = [{"name": f"g{i}", "type": f"r{level - 1}"} for i in range(10)]
        fields.append({"name": f"f{level}", "type": {"type": "record", "name": f"r{level}", "fields": inner}})
    schema = json.dumps({"type": "record", "name": "top", "fields": fields}).encode()
    with pytest.raises(CorruptFile, match="10000 nodes"):
        read_container(a_file(header={"avro.schema": schema}), "f")


@pytest.mark.few(1)
@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "zstandard"])
def test_a_gigabyte_of_zeros_is_refused_in_small_memory(codec: str) -> None:
    data = a_file(codec, body=a_block(1, _zeros(codec)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorruptFile, match="inflate to more than"):
        read_container(data, "f")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10  # kilobytes


def _zeros(codec: str) -> bytes:
    megabyte = bytes(1 << 20)
    if codec == "zstandard":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            for _ in range(1 << 10):
                stream.write(megabyte)
        return sink.getvalue().to_pybytes()
    if codec == "bzip2":
        return bz2.compress(bytes(70 << 20))
    if codec == "xz":
        return lzma.compress(bytes(70 << 20), preset=0)
    engine = zlib.compressobj(9, wbits=-15)
    # What ends with a full flush refers to nothing before it.
    block = engine.compress(megabyte) + engine.flush(zlib.Z_FULL_FLUSH)
    return block * (1 << 10) + engine.flush()


@needs_fixtures
def test_every_manifest_and_list_of_other_writers_reads_as_fastavro_reads_it() -> None:
    files = [
        f
        for f in sorted(FIXTURES.glob("*/**/*.avro"))
        if not f.is_relative_to(FIXTURES / "10-avro-codec-files")
    ]
    assert len(files) == 178
    for file in files:
        container = read_container(file.read_bytes(), str(file))
        expected = list(fastavro.reader(io.BytesIO(file.read_bytes())))
        for executor in EXECUTORS:
            table = columns_of(container, executor)
            assert plain_rows(table) == plain_records(expected, table.column_names), file


@needs_fixtures
@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_codec_and_shape_of_fixture_10_reads_as_fastavro_reads_its_blocks(executor: Executor) -> None:
    files = sorted((FIXTURES / "10-avro-codec-files").glob("*.avro"))
    assert len(files) == 31
    for file in files:
        container = _with_field_ids(read_container(file.read_bytes(), str(file)))
        # fastavro has no snappy and zstandard here: it reads the blocks that were inflated (snappy by checksum).
        blocks = [(block.records, bytes(block.payload)) for block in container.blocks]
        schema = json.dumps(_physical(container.schema))
        inflated = write_container(schema, {}, blocks, codec="null", sync=SYNC)
        table = columns_of(container, executor)
        expected = plain_records(fastavro.reader(io.BytesIO(inflated)), table.column_names)
        assert repr(plain_rows(table)) == repr(expected), file


@needs_fixtures
def test_the_same_rows_in_four_codecs_are_the_same() -> None:
    folder = FIXTURES / "10-avro-codec-files"
    tables = [
        columns_of(_with_field_ids(read_container(file.read_bytes(), str(file))), "narrow")
        for file in sorted(folder.glob("alltypes_plain.*.avro"))
    ]
    assert len(tables) == 4
    assert all(table.equals(tables[0]) for table in tables)
    assert sorted(tables[0]["id"].to_pylist()) == list(range(8))


def _with_field_ids(container: Container) -> Container:
    fields = [{**f, "field-id": i} for i, f in enumerate(container.schema["fields"])]
    _, tree = parse_schema(json.dumps({**container.schema, "fields": fields}).encode())
    return dataclasses.replace(container, type=tree)


def _physical(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _physical(value) for key, value in schema.items() if key != "logicalType"}
    return [_physical(item) for item in schema] if isinstance(schema, list) else schema


def test_equal_strings_hash_equally_from_a_buffer_and_from_arrow() -> None:
    texts = [b"", *(b"x" * n for n in range(1, 40)), "s3://bücket/漢".encode(), b"a" * 1000]
    starts = np.cumsum([0, *map(len, texts)])[:-1]
    buffer = np.frombuffer(b"".join(texts) + b"\xff" * 8, np.uint8)
    expected = hash_strings(buffer, starts, np.array([len(t) for t in texts]))
    assert len(set(expected.tolist())) == len(texts)
    decoded = [t.decode() for t in texts]
    for array in (
        pa.array(decoded), pa.array(decoded, pa.large_string()), pa.array(["y" * 7, *decoded]).slice(1),
        pa.chunked_array([decoded[:3], [], decoded[3:]], pa.string()), pa.array(texts, pa.binary()),
    ):  # fmt: skip
        assert hash_column(array).tolist() == expected.tolist()
    assert (
        hash_column(pa.array([None, "a"], pa.string())).tolist() == hash_column(pa.array(["", "a"])).tolist()
    )


def test_a_million_similar_paths_have_different_hashes() -> None:
    paths = pa.array([f"s3://b/t/data/{n:07d}-{n % 7}.parquet" for n in range(1_000_000)])
    assert len(np.unique(hash_column(paths))) == 1_000_000


def test_logical_types_are_kept_as_stored() -> None:
    kinds: list[tuple[Any, Any, Any]] = [
        ({"type": "int", "logicalType": "date"}, dt.date(1970, 1, 11), 10),
        ({"type": "long", "logicalType": "timestamp-micros"}, EPOCH + dt.timedelta(seconds=1), 1_000_000),
        (
            {"type": "fixed", "name": "d", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 2},
            Decimal("-0.01"),
            b"\xff\xff",
        ),
        ({"type": "string", "logicalType": "uuid"}, UUID(int=1), str(UUID(int=1))),
    ]
    for avro, value, stored in kinds:
        data = written_by_fastavro(of_fields(a=avro), [{"a": value}], per_block=0)
        assert columns_of(read_container(data, "f"), "narrow")["a"].to_pylist() == [stored]


def test_container_reads_a_memoryview_as_it_reads_bytes(tmp_path: Path) -> None:
    data = written_by_fastavro(EVERY_TYPE, map(a_record, range(3)), per_block=0)
    (tmp_path / "f.avro").write_bytes(data)
    assert read_container(memoryview(data), "f").count == read_container(data, "f").count == 3
