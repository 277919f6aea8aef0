"""The columns of a version of a Delta table for reading data files: types, names and ids in files.

Spec: "Column Mapping", "Schema Serialization Format".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from iceberg_cli.delta.spec.protocol import Metadata, schema_fields
from iceberg_cli.delta.spec.statistics_columns import primitive
from iceberg_cli.encoding.projection import Field, FieldType, ListOf, MapOf, StructOf
from iceberg_cli.errors import InvalidMetadata

MODE: Final = "delta.columnMapping.mode"
_ID: Final = "delta.columnMapping.id"
_NAME: Final = "delta.columnMapping.physicalName"
_NULL_NOTE: Final = "its values are shown as null, for they are not read here"


def columns_of(metadata: Metadata) -> list[tuple[Field, str, str]]:
    """The columns of a version, each with its type as text, and how its values are shown where not as they are.

    Raises:
        CorruptFile: the schema is no struct. InvalidMetadata: a type is none.
    """
    mapped = metadata.configuration.get(MODE, "none").lower() != "none"
    return [
        (_field(each, mapped=mapped), type_text(each.get("type")), _note(each.get("type")))
        for each in schema_fields(metadata)
    ]


def _field(field: Mapping[str, Any], *, mapped: bool) -> Field:
    stated = field.get("metadata") or {}
    field_id = stated.get(_ID) if mapped else None
    kind, is_readable = _type(field.get("type"), mapped=mapped)
    return Field(
        name=field["name"],
        type=kind,
        field_id=field_id if isinstance(field_id, int) else None,
        names=(stated.get(_NAME, field["name"]) if mapped else field["name"],),
        is_readable=is_readable,
    )


def _type(type_: Any, *, mapped: bool) -> tuple[FieldType, bool]:
    """A type for reading, and whether its values are read."""
    if not isinstance(type_, Mapping):
        found = primitive(type_)
        return (pa.null(), False) if found is None else (found, True)
    match type_.get("type"):
        case "struct":
            return StructOf(tuple(_field(each, mapped=mapped) for each in type_["fields"])), True
        case "array":
            return ListOf(_item("element", type_.get("elementType"), mapped=mapped)), True
        case "map":
            key, value = type_.get("keyType"), type_.get("valueType")
            return MapOf(_item("key", key, mapped=mapped), _item("value", value, mapped=mapped)), True
    raise InvalidMetadata("metaData.schemaString", "type", f"{type_.get('type')!r} is no type")


def _item(name: str, type_: Any, *, mapped: bool) -> Field:
    kind, is_readable = _type(type_, mapped=mapped)
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
