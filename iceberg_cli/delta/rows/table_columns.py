"""The columns of a version of a Delta table for reading data files: types, names and ids in files.

Spec: "Column Mapping", "Schema Serialization Format".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from iceberg_cli.delta.spec.protocol import Metadata, schema_fields
from iceberg_cli.delta.spec.statistics_columns import primitive
from iceberg_cli.encoding.projection import ID_KEYS, Field, FieldType, ListOf, MapOf, StructOf
from iceberg_cli.errors import InvalidMetadata

MODE: Final = "delta.columnMapping.mode"
VOID: Final = "void"
_ID: Final = "delta.columnMapping.id"
_NAME: Final = "delta.columnMapping.physicalName"
_NULL_NOTE: Final = "its values are shown as null, for they are not read here"


def columns_of(metadata: Metadata) -> list[tuple[Field, str, str]]:
    """The columns of a version, each with its type as text, and how its values are shown where not as they are.

    Raises:
        CorruptFile: the schema is no struct. InvalidMetadata: a type is none.
    """
    mapped = is_mapped(metadata)
    return [
        (_field(each, mapped=mapped), type_text(each.get("type")), _note(each.get("type")))
        for each in schema_fields(metadata)
    ]


def stored_columns(metadata: Metadata) -> list[Field]:
    """The columns that data files of a version have, by the names that they have there.

    Partition columns are not among them, nor those of type `void`, which no file has.

    Raises:
        CorruptFile: the schema is no struct. InvalidMetadata: a type is none.
    """
    mapped = is_mapped(metadata)
    return [
        _field(each, mapped=mapped, stored=True)
        for each in schema_fields(metadata)
        if each["name"] not in metadata.partition_columns and each.get("type") != VOID
    ]


def file_schema(fields: Sequence[Field]) -> pa.Schema:
    """The schema of new data files: a value may be null in each column, and fields have their ids."""
    return pa.schema([_in_file(field) for field in fields])


def _in_file(field: Field) -> pa.Field:
    match field.type:
        case StructOf(fields=fields):
            kind: pa.DataType = pa.struct([_in_file(each) for each in fields])
        case ListOf(element=element):
            kind = pa.list_(_in_file(element))
        case MapOf(key=key, value=value):
            own = _in_file(key)
            kind = pa.map_(pa.field(own.name, own.type, nullable=False), _in_file(value))
        case _:
            kind = field.type
    metadata = None if field.field_id is None else {ID_KEYS[0]: str(field.field_id)}
    return pa.field(field.name, kind, metadata=metadata)


def is_mapped(metadata: Metadata) -> bool:
    """Whether columns have other names in files, or are found by ids."""
    return metadata.configuration.get(MODE, "none").lower() != "none"


def _field(field: Mapping[str, Any], *, mapped: bool, stored: bool = False) -> Field:
    stated = field.get("metadata") or {}
    field_id = stated.get(_ID) if mapped else None
    kind, is_readable = _type(field.get("type"), mapped=mapped, stored=stored)
    physical = stated.get(_NAME, field["name"]) if mapped else field["name"]
    return Field(
        name=physical if stored else field["name"],
        type=kind,
        field_id=field_id if isinstance(field_id, int) else None,
        names=(physical,),
        is_readable=is_readable,
    )


def _type(type_: Any, *, mapped: bool, stored: bool = False) -> tuple[FieldType, bool]:
    """A type for reading, and whether its values are read."""
    if not isinstance(type_, Mapping):
        found = primitive(type_)
        return (pa.null(), False) if found is None else (found, True)
    match type_.get("type"):
        case "struct":
            inner = (_field(each, mapped=mapped, stored=stored) for each in type_["fields"])
            return StructOf(tuple(inner)), True
        case "array":
            return ListOf(_item("element", type_.get("elementType"), mapped=mapped, stored=stored)), True
        case "map":
            key, value = type_.get("keyType"), type_.get("valueType")
            items = [
                _item(name, each, mapped=mapped, stored=stored)
                for name, each in (("key", key), ("value", value))
            ]
            return MapOf(*items), True
    raise InvalidMetadata("metaData.schemaString", "type", f"{type_.get('type')!r} is no type")


def _item(name: str, type_: Any, *, mapped: bool, stored: bool) -> Field:
    kind, is_readable = _type(type_, mapped=mapped, stored=stored)
    return Field(name=name, type=kind, is_readable=is_readable)


def type_text(type_: Any) -> str:
    """A type as text, such as `array<struct<a: long>>`."""
    if not isinstance(type_, Mapping):
        return str(type_)
    match type_.get("type"):
        case "struct":
            inner = ", ".join(f"{each['name']}: {type_text(each['type'])}" for each in type_["fields"])
            return f"struct<{inner}>"
        case "array":
            return f"array<{type_text(type_.get('elementType'))}>"
        case _:
            return f"map<{type_text(type_.get('keyType'))}, {type_text(type_.get('valueType'))}>"


def _note(type_: Any) -> str:
    if not isinstance(type_, Mapping):
        return _NULL_NOTE if primitive(type_) is None else ""
    inner = [each.get("type") for each in type_.get("fields", ())]
    inner += [type_[name] for name in ("elementType", "keyType", "valueType") if name in type_]
    return next((note for note in map(_note, inner) if note), "")
