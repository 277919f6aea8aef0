"""Rows of Avro data files as Arrow columns that carry their field ids.

Spec: Appendix A, "Avro".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, BinaryIO, Final

import pyarrow as pa

from iceberg_cli.encoding.projection import ID_KEYS
from iceberg_cli.encoding.row_batches import Choose, RowBatch, chosen_fields
from iceberg_cli.errors import CorruptFile

Convert = Callable[[Any], Any]
_PRIMITIVES: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
# The adjustment to UTC is the table's to know: here all are units since the epoch.
_TIMES: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms"),
    "timestamp-micros": pa.timestamp("us"),
    "timestamp-nanos": pa.timestamp("ns"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}


def _same(value: Any) -> Any:
    return value


def avro_batches(stream: BinaryIO, path: str, choose: Choose, *, batch_rows: int) -> Iterator[RowBatch]:
    """Rows of an Avro file, block by block; see `parquet_batches`.

    Raises:
        CorruptFile: it is damaged, or has a type that no table has.
    """
    import fastavro

    try:
        reader = fastavro.reader(stream)
        schema: Any = reader.writer_schema
        own = [_field(each) for each in schema["fields"]]
        converts = {field.name: convert for field, convert in own}
        fields = chosen_fields([field for field, _ in own], choose, path)
        first = 0
        records: Iterator[Any] = iter(reader)
        while rows := list(islice(records, batch_rows)):
            columns = [
                pa.array([converts[field.name](row[field.name]) for row in rows], field.type)
                for field in fields
            ]
            yield RowBatch(first=first, columns=columns, fields=fields, count=len(rows))
            first += len(rows)
    except (
        ValueError,
        TypeError,
        KeyError,
        EOFError,
        IndexError,
        pa.ArrowException,
        AttributeError,
    ) as error:
        raise CorruptFile(path, None, f"no readable Avro file: {error!r:.200}") from error


def _field(schema: Mapping[str, Any]) -> tuple[pa.Field, Convert]:
    kind, convert = _type(schema["type"])
    return _named(schema["name"], kind, schema.get("field-id")), convert


def _named(name: str, kind: pa.DataType, field_id: Any) -> pa.Field:
    metadata = {ID_KEYS[0]: str(field_id).encode()} if isinstance(field_id, int) else None
    return pa.field(name, kind, metadata=metadata)


def _type(schema: Any) -> tuple[pa.DataType, Convert]:
    """A type as Arrow has it, and what makes of fastavro's values those that `pa.array` takes."""
    return _union(schema) if isinstance(schema, list) else _single(schema)


def _union(schema: list[Any]) -> tuple[pa.DataType, Convert]:
    others = [each for each in schema if each != "null"]
    if len(others) > 1:
        raise ValueError(f"a union of {len(others)} types")
    if not others:
        return pa.null(), _same
    kind, convert = _type(others[0])
    return kind, (convert if convert is _same else lambda value: None if value is None else convert(value))


def _single(schema: Any) -> tuple[pa.DataType, Convert]:
    if isinstance(schema, str):
        return _PRIMITIVES[schema], _same
    logical = schema.get("logicalType")
    match schema["type"]:
        case "record":
            return _record(schema)
        case "array":
            return _array(schema, logical)
        case "map":
            value_kind, value = _type(schema["values"])
            kind = pa.map_(
                _named("key", pa.string(), schema.get("key-id")).with_nullable(nullable=False),
                _named("value", value_kind, schema.get("value-id")),
            )
            return kind, lambda entries: [(key, value(each)) for key, each in entries.items()]
        case "fixed" | "bytes" if logical == "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0)), _same
        case "fixed":
            return pa.binary(schema["size"]), lambda value: getattr(value, "bytes", value)  # of a UUID
        case str(name) if logical in _TIMES:
            return _TIMES[logical], _same
        case str(name) if name in _PRIMITIVES:
            return _PRIMITIVES[name], _same
    return _type(schema["type"])


def _record(schema: Mapping[str, Any]) -> tuple[pa.DataType, Convert]:
    inner = [_field(each) for each in schema["fields"]]
    kind = pa.struct([each for each, _ in inner])

    def convert(row: Mapping[str, Any]) -> dict[str, Any]:
        return {each.name: make(row[each.name]) for each, make in inner}

    return kind, convert


def _array(schema: Mapping[str, Any], logical: str | None) -> tuple[pa.DataType, Convert]:
    items = schema["items"]
    if logical == "map":
        (key_field, key), (value_field, value) = (_field(each) for each in items["fields"])
        kind = pa.map_(key_field.with_nullable(nullable=False), value_field)
        return kind, lambda entries: [(key(each["key"]), value(each["value"])) for each in entries]
    element_kind, element = _type(items)
    kind = pa.list_(_named("element", element_kind, schema.get("element-id")))
    return kind, lambda values: [element(each) for each in values]
