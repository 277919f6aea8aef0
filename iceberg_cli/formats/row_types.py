"""The Arrow types of inspected rows, of the JSON Schema of their document: the same of no rows as of many.

Objects of free keys and one type are maps; what may have any shape, such as the columns of a schema, is JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import pyarrow as pa

from iceberg_cli.plan.inspection import Row

_NULL: Final = "null"
_IDS: Final = (
    "#/$defs/id",
    "#/$defs/nullable_id",
)  # texts in JSON, for not all of its readers have so long numbers
_SCALARS: Final[Mapping[str, pa.DataType]] = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}


def columns_of(rows: Iterable[Row], what: str, format_name: str) -> pa.Table:
    """Rows as columns.

    Args:
        rows: of an `inspection/2` document, findings among them.
        what: which rows they are.
        format_name: of the table; of one that a package brings types are those of the values.
    """
    types = row_types(what, format_name)
    if types is None:
        return pa.Table.from_pylist([dict(row) for row in rows])
    rows = list(rows)
    return pa.table(
        {name: pa.array([_value(row.get(name), kind) for row in rows], kind) for name, kind in types.items()},
        schema=pa.schema(list(types.items())),
    )


@cache
def row_types(what: str, format_name: str) -> Mapping[str, pa.DataType] | None:
    """The types of the fields of rows, in their order; None where no document has such rows."""
    schema = json.loads(files("iceberg_cli").joinpath("schemas", "inspection-2.json").read_text("utf-8"))
    for branch in schema["allOf"]:
        meant = branch["if"]["properties"]
        if meant.get("what", {}).get("const") != what:
            continue
        if meant.get("format", {}).get("const", format_name) != format_name:
            continue
        rows = _rows(branch["then"]["properties"])
        if rows is not None:
            item = _resolved(rows["items"], schema)
            return {name: _type(each, schema) for name, each in item.get("properties", {}).items()}
    return None


def _rows(fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema of a document's rows: its findings, or of a difference its partitions, where it has no others."""
    if "partitions" in fields:
        found: Mapping[str, Any] = next(
            each for each in fields["partitions"]["properties"]["rows"]["anyOf"] if "items" in each
        )
        return found
    return fields.get("findings") or fields.get("rows")


def _type(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> pa.DataType:
    if schema.get("$ref") in _IDS:
        return pa.int64()
    schema = _resolved(schema, whole)
    kinds = _kinds(schema)
    if kinds == ["array"]:
        return pa.list_(_type(schema["items"], whole))
    if kinds == ["object"] and "properties" in schema:
        return pa.struct([(name, _type(each, whole)) for name, each in schema["properties"].items()])
    if kinds == ["object"] and isinstance(schema.get("additionalProperties"), dict):
        return pa.map_(pa.string(), _type(schema["additionalProperties"], whole))
    return _SCALARS.get(kinds[0], pa.string()) if len(kinds) == 1 else pa.string()


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    """The JSON types of values, but for null."""
    if "enum" in schema:
        return ["integer" if all(isinstance(each, int) for each in schema["enum"]) else "string"]
    given = schema.get("type", [])
    return [each for each in ([given] if isinstance(given, str) else given) if each != _NULL]


def _resolved(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema in place of a reference to it, or of a choice between it and null."""
    if "$ref" in schema:
        found: Any = whole
        for key in schema["$ref"].removeprefix("#/").split("/"):
            found = found[key]
        return _resolved(found, whole)
    if "anyOf" in schema:
        (other,) = (each for each in schema["anyOf"] if each.get("type") != _NULL)
        return _resolved(other, whole)
    return schema


def _value(value: Any, kind: pa.DataType) -> Any:
    """A value of a document as Arrow takes it."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [_value(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {each.name: _value(value.get(each.name), each.type) for each in kind}
    if pa.types.is_map(kind):
        return [(key, _value(each, kind.item_type)) for key, each in value.items()]
    if pa.types.is_integer(kind):
        return int(value)
    if pa.types.is_string(kind) and not isinstance(value, str):
        return json.dumps(value)
    return value
