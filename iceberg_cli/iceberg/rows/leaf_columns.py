"""The columns that a Parquet file of a schema has, one for each primitive field, and the Arrow schema of its rows.

Spec: "Schemas and Data Types", "Row Lineage", "Reserved Field IDs"; Appendix A, "Parquet".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from iceberg_cli.errors import Refused
from iceberg_cli.iceberg.rows.table_columns import primitive, type_text
from iceberg_cli.iceberg.spec.types.schema import ListType, MapType, NestedField, StructType, Type
from iceberg_cli.iceberg.spec.types.single_value import is_geo

_FIELD_ID: Final = "PARQUET:field_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafColumn:
    """A primitive field of a schema.

    Args:
        field_id: of the field.
        name: as table properties name it, such as `st.p`, `a.element` and `m.value`.
        path: as Parquet has it, such as `st.p`, `a.list.element` and `m.key_value.value`.
        type: in the specification's words.
        is_repeated: whether a row may have several values, inside of a list or map.
    """

    field_id: int
    name: str
    path: str
    type: str
    is_repeated: bool


def leaf_columns(fields: Sequence[NestedField]) -> tuple[LeafColumn, ...]:
    """The columns of a Parquet file with these fields, in its order."""
    return tuple(leaf for field in fields for leaf in _of_field(field, "", "", is_repeated=False))


def _of_field(field: NestedField, name: str, path: str, *, is_repeated: bool) -> Iterator[LeafColumn]:
    return _of_type(field.type, field.field_id, name + field.name, path + field.name, is_repeated=is_repeated)


def _of_type(type_: Type, field_id: int, name: str, path: str, *, is_repeated: bool) -> Iterator[LeafColumn]:
    match type_:
        case StructType(fields=fields):
            for each in fields:
                yield from _of_field(each, f"{name}.", f"{path}.", is_repeated=is_repeated)
        case ListType():
            yield from _of_type(
                type_.element, type_.element_id, f"{name}.element", f"{path}.list.element", is_repeated=True
            )
        case MapType():
            for part, part_id, inner in (
                ("key", type_.key_id, type_.key),
                ("value", type_.value_id, type_.value),
            ):
                yield from _of_type(
                    inner, part_id, f"{name}.{part}", f"{path}.key_value.{part}", is_repeated=True
                )
        case "unknown":  # always null, and in no file
            return
        case str():
            yield LeafColumn(field_id=field_id, name=name, path=path, type=type_, is_repeated=is_repeated)


def arrow_schema(fields: Sequence[NestedField]) -> pa.Schema:
    """Fields as the rows of a new Parquet file have them: with their ids, and null only where they are optional.

    Raises:
        Refused: a field has a type that is not written here.
    """
    return pa.schema(_fields(fields, ""))


def _fields(fields: Sequence[NestedField], prefix: str) -> list[pa.Field]:
    """Those that files have: a value of unknown type is null everywhere."""
    return [
        _field(each.name, each.type, each.field_id, required=each.required, where=prefix + each.name)
        for each in fields
        if each.type != "unknown"
    ]


def _field(name: str, type_: Type, field_id: int, *, required: bool, where: str) -> pa.Field:
    return pa.field(
        name, _arrow_type(type_, where), nullable=not required, metadata={_FIELD_ID: str(field_id)}
    )


def _arrow_type(type_: Type, where: str) -> pa.DataType:
    match type_:
        case StructType(fields=fields):
            inner = _fields(fields, f"{where}.")
            if not inner:
                raise _not_written(where, type_)
            return pa.struct(inner)
        case ListType():
            return pa.list_(
                _field(
                    "element",
                    type_.element,
                    type_.element_id,
                    required=type_.element_required,
                    where=f"{where}.element",
                )
            )
        case MapType():
            return pa.map_(
                _field("key", type_.key, type_.key_id, required=True, where=f"{where}.key"),
                _field(
                    "value",
                    type_.value,
                    type_.value_id,
                    required=type_.value_required,
                    where=f"{where}.value",
                ),
            )
    found = None if is_geo(type_) else primitive(type_)
    if found is None:
        raise _not_written(where, type_)
    return found


def _not_written(where: str, type_: Type) -> Refused:
    return Refused(f"Cannot write column {where}: values of type {type_text(type_)} are not written here")
