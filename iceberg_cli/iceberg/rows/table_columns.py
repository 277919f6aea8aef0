"""The columns of an Iceberg schema for reading data files: types, names in files without ids, defaults.

Spec: "Schemas and Data Types", "Column Projection", "Default values"; Appendix A, "Parquet"; Appendix D.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from iceberg_cli.encoding.projection import Field, FieldType, ListOf, MapOf, StructOf
from iceberg_cli.errors import InvalidMetadata, Refused
from iceberg_cli.iceberg.spec.types.schema import ListType, MapType, NestedField, Schema, StructType, Type
from iceberg_cli.iceberg.spec.types.single_value import decimal_parts, fixed_length, is_geo, make_decimal
from iceberg_cli.iceberg.spec.types.single_value_json import from_json

NAME_MAPPING: Final = "schema.name-mapping.default"
_ARROW: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.string(),
    "uuid": pa.uuid(),
    "binary": pa.binary(),
}
NULL_NOTE: Final = "its values are shown as null, for they are not read here"
WKB_NOTE: Final = "its values are shown as WKB"


def primitive(type_: str) -> pa.DataType | None:
    """A primitive type as Arrow has it; None for one whose values are not read here."""
    if (found := _ARROW.get(type_)) is not None:
        return found
    if (parts := decimal_parts(type_)) is not None:
        return pa.decimal128(*parts)
    if (length := fixed_length(type_)) is not None:
        return pa.binary(length)
    return pa.binary() if is_geo(type_) else None


def columns_of(schema: Schema, properties: Mapping[str, str], *, path: str) -> list[tuple[Field, str, str]]:
    """The columns of a schema, each with its type as text, and how its values are shown where not as they are.

    Args:
        schema: of the state.
        properties: of the table, which may map names to ids.
        path: of the metadata, for messages.

    Raises:
        InvalidMetadata: a default is no value of its type, or the name mapping is none.
    """
    names = name_mapping(properties.get(NAME_MAPPING), path=path)
    return [(_field(each, names, path), type_text(each.type), _note(each.type)) for each in schema.fields]


def type_text(type_: Type) -> str:
    """A type in the specification's words, such as `list<struct<a: long>>`."""
    match type_:
        case StructType(fields=fields):
            return f"struct<{', '.join(f'{each.name}: {type_text(each.type)}' for each in fields)}>"
        case ListType(element=element):
            return f"list<{type_text(element)}>"
        case MapType(key=key, value=value):
            return f"map<{type_text(key)}, {type_text(value)}>"
    return type_


def _note(type_: Type) -> str:
    match type_:
        case StructType(fields=fields):
            notes = [_note(each.type) for each in fields]
        case ListType(element=element):
            notes = [_note(element)]
        case MapType(key=key, value=value):
            notes = [_note(key), _note(value)]
        case "unknown":  # always null
            notes = []
        case str(text) if is_geo(text):
            notes = [WKB_NOTE]
        case str(text):
            notes = [] if primitive(text) is not None else [NULL_NOTE]
    return next((note for note in notes if note), "")


def _field(field: NestedField, names: Mapping[int, tuple[str, ...]], path: str) -> Field:
    return _made(field.name, field.field_id, field.type, names, path, field.initial_default)


def _made(
    name: str,
    field_id: int,
    type_: Type,
    names: Mapping[int, tuple[str, ...]],
    path: str,
    initial_default: Any = None,
) -> Field:
    kind: FieldType
    match type_:
        case StructType(fields=fields):
            kind = StructOf(tuple(_field(each, names, path) for each in fields))
        case ListType():
            kind = ListOf(_made("element", type_.element_id, type_.element, names, path))
        case MapType():
            kind = MapOf(
                _made("key", type_.key_id, type_.key, names, path),
                _made("value", type_.value_id, type_.value, names, path),
            )
        case _:
            found = primitive(type_)
            kind = pa.null() if found is None else found
    return Field(
        name=name,
        type=kind,
        field_id=field_id,
        names=names.get(field_id, ()),
        default=None if initial_default is None else _default(type_, initial_default, path, name),
        is_readable=not isinstance(type_, str) or primitive(type_) is not None,
    )


def _default(type_: Type, value: Any, path: str, name: str) -> pa.Scalar:
    if isinstance(type_, StructType):
        return pa.scalar(value=True)  # of its fields each has a default of its own
    if not isinstance(type_, str):
        raise Refused(
            f"Cannot read {path}: {name} has an initial-default, and defaults of {type_text(type_)} are not read"
        )
    return scalar_of(type_, from_json(type_, value, path=path, field=f"initial-default of {name}"))


def scalar_of(type_: str, value: Any) -> pa.Scalar:
    """A value as `single_value` has it, or as a manifest has it in a partition, as Arrow has it; of a UUID 16 bytes."""
    kind = primitive(type_)
    if kind is None:
        return pa.scalar(None, pa.null())
    if type_ == "uuid":
        return pa.scalar(value.bytes if isinstance(value, UUID) else value, pa.binary(16))
    parts = decimal_parts(type_)
    if parts is not None and isinstance(value, bytes):
        value = make_decimal(int.from_bytes(value, "big", signed=True), parts[1])
    if isinstance(value, Decimal) or not pa.types.is_temporal(kind) or not isinstance(value, int):
        return pa.scalar(value, kind)
    width = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    return pa.array([value], width).cast(kind)[0]


def name_mapping(text: str | None, *, path: str) -> dict[int, tuple[str, ...]]:
    """By field id, the names of a column in files without ids.

    Raises:
        InvalidMetadata: the text is no name mapping.

    Spec: "Name Mapping Serialization".
    """
    found: dict[int, tuple[str, ...]] = {}

    def add(entries: Sequence[Any]) -> None:
        for entry in entries:
            if isinstance(entry.get("field-id"), int):
                found[entry["field-id"]] = tuple(entry["names"])
            add(entry.get("fields") or ())

    if text is not None:
        try:
            add(json.loads(text))
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise InvalidMetadata(
                path, f"properties.{NAME_MAPPING}", f"no name mapping: {error!r}"
            ) from error
    return found
