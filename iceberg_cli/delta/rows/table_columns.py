"""The columns of a version of a Delta table for reading data files: types, names and ids in files.

Spec: "Column Mapping", "Schema Serialization Format".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from iceberg_cli.delta.spec.protocol import Metadata, schema_fields
from iceberg_cli.delta.spec.statistics_columns import primitive
from iceberg_cli.encoding.projection import ID_KEYS, Field, FieldType, ListOf, MapOf, StructOf
from iceberg_cli.errors import InvalidMetadata

MODE: Final = "delta.columnMapping.mode"
VOID: Final = "void"
_ID: Final = "delta.columnMapping.id"
_NESTED_IDS: Final = (
    "delta.columnMapping.nested.ids",  # of Delta Spark
    "parquet.field.nested.ids",  # of the protocol
)
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


def partition_columns(metadata: Metadata) -> list[Field]:
    """The partition columns, as data files have them that have these too.

    Raises: see `stored_columns`.
    """
    mapped = is_mapped(metadata)
    return [
        _field(each, mapped=mapped, stored=True)
        for each in schema_fields(metadata)
        if each["name"] in metadata.partition_columns
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
            kind = pa.map_(_in_file(key).with_nullable(False), _in_file(value))  # noqa: FBT003
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
    physical = stated.get(_NAME, field["name"]) if mapped else field["name"]
    nested: Any = next((stated[name] for name in _NESTED_IDS if mapped and name in stated), {})
    items = _Items(nested, physical, mapped=mapped, stored=stored)
    kind, is_readable = items.type_of(field.get("type"))
    return Field(
        name=physical if stored else field["name"],
        type=kind,
        field_id=field_id if isinstance(field_id, int) else None,
        names=(physical,),
        is_readable=is_readable,
    )


@dataclass(frozen=True, slots=True)
class _Items:
    """The types in a column: of structs their fields, of lists and maps their items.

    Args:
        ids: of items, by where they are.
        place: of what these are in: the column's name, with a dot and `element`, `key` or `value` for each list or map.
    """

    ids: Mapping[str, int]
    place: str
    mapped: bool
    stored: bool

    def type_of(self, type_: Any) -> tuple[FieldType, bool]:
        """A type for reading, and whether its values are read."""
        if not isinstance(type_, Mapping):
            found = primitive(type_)
            return (pa.null(), False) if found is None else (found, True)
        match type_.get("type"):
            case "struct":
                inner = (_field(each, mapped=self.mapped, stored=self.stored) for each in type_["fields"])
                return StructOf(tuple(inner)), True
            case "array":
                return ListOf(self._item("element", type_.get("elementType"))), True
            case "map":
                key, value = type_.get("keyType"), type_.get("valueType")
                return MapOf(self._item("key", key), self._item("value", value)), True
        raise InvalidMetadata("metaData.schemaString", "type", f"{type_.get('type')!r} is no type")

    def _item(self, name: str, type_: Any) -> Field:
        place = f"{self.place}.{name}"
        kind, is_readable = replace(self, place=place).type_of(type_)
        item_id = self.ids.get(place) if isinstance(self.ids, Mapping) else None
        return Field(
            name=name,
            type=kind,
            field_id=item_id if isinstance(item_id, int) else None,
            is_readable=is_readable,
        )


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
