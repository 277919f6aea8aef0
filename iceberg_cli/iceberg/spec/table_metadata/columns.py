"""Names and types of a table's columns by field id, over all of its schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec
from iceberg_cli.iceberg.spec.types.schema import ListType, NestedField, Schema, StructType, Type

WITH_ROW_IDS: Final = 3  # the first format version whose rows have ids
ROW_LINEAGE: Final = (
    NestedField(field_id=2147483540, name="_row_id", required=False, type="long"),
    NestedField(field_id=2147483539, name="_last_updated_sequence_number", required=False, type="long"),
)
"""The columns by which rows keep their ids in files that are written anew. Spec: "Row Lineage"."""
# Columns that are in files and in no schema. Spec: "Reserved Field IDs".
_RESERVED: Final[Mapping[int, tuple[str, Type]]] = {
    2147483646: ("_file", "string"),
    2147483645: ("_pos", "long"),
    2147483546: ("file_path", "string"),
    2147483545: ("pos", "long"),
    **{each.field_id: (each.name, each.type) for each in ROW_LINEAGE},
}


def column_names(metadata: TableMetadata) -> dict[int, str]:
    """Dotted name of every column by field id; the current schema's word counts first, then the newest one's."""
    names: dict[int, str] = {}
    current = metadata.current_schema()
    for schema in (current, *reversed(metadata.schemas)):
        _add_names(schema.fields, "", names)
    return {field_id: name for field_id, (name, _) in _RESERVED.items()} | names


def column_types(metadata: TableMetadata) -> dict[int, Type]:
    """Type of every column by field id, found as in `column_names`."""
    types: dict[int, Type] = dict(metadata.current_schema().types_by_id())
    for schema in reversed(metadata.schemas):
        for field_id, type_ in schema.types_by_id().items():
            types.setdefault(field_id, type_)
    return {field_id: type_ for field_id, (_, type_) in _RESERVED.items()} | types


def schema_of(spec: PartitionSpec, metadata: TableMetadata) -> Schema | None:
    """The schema that goes into the headers of a spec's new manifests: with every source column of the spec.

    It is the current one, as the Java library writes, or else the newest that has them all; None where none has. What
    the headers of older manifests say is no source for it: they may be wrong.
    """
    sources = {source for field in spec.fields for source in field.source_ids}
    for schema in (metadata.current_schema(), *reversed(metadata.schemas)):
        if sources <= schema.types_by_id().keys():
            return schema
    return None


def _add_names(fields: Sequence[NestedField], prefix: str, names: dict[int, str]) -> None:
    for field in fields:
        name = prefix + field.name
        names.setdefault(field.field_id, name)
        _add_type_names(field.type, name, names)


def _add_type_names(type_: Type, name: str, names: dict[int, str]) -> None:
    if isinstance(type_, str):
        return
    if isinstance(type_, StructType):
        _add_names(type_.fields, f"{name}.", names)
        return
    parts: Mapping[str, tuple[int, Type]]
    if isinstance(type_, ListType):
        parts = {"element": (type_.element_id, type_.element)}
    else:
        parts = {"key": (type_.key_id, type_.key), "value": (type_.value_id, type_.value)}
    for part, (field_id, inner) in parts.items():
        names.setdefault(field_id, f"{name}.{part}")
        _add_type_names(inner, f"{name}.{part}", names)
