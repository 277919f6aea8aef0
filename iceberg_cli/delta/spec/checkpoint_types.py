"""The Parquet columns of checkpoints, in the order and types in which Delta Spark writes them.

Spec: Delta protocol, "Checkpoint Schema", "Sidecar File Information", "Checkpoint Metadata".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from iceberg_cli.delta.spec.columns import ADD, AS_JSON, REMOVE, STRINGS, plain_values
from iceberg_cli.errors import Refused

_FEATURES: Final = pa.list_(pa.field("element", pa.string()))
_ADD_ORDER: Final = (
    "path",
    "partitionValues",
    "size",
    "modificationTime",
    "dataChange",
    "tags",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
    "clusteringProvider",
)
_REMOVE_ORDER: Final = tuple(name for name in REMOVE.names if name not in ("stats", "tags"))
ADD_FIELDS: Final = tuple(ADD.field(name) for name in _ADD_ORDER)
REMOVE_FIELDS: Final = tuple(REMOVE.field(name) for name in _REMOVE_ORDER)
ACTIONS: Final[Mapping[str, pa.StructType]] = {
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", STRINGS)])),
            ("schemaString", pa.string()),
            ("partitionColumns", _FEATURES),
            ("configuration", STRINGS),
            ("createdTime", pa.int64()),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", _FEATURES),
            ("writerFeatures", _FEATURES),
        ]
    ),
    "domainMetadata": pa.struct(
        [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]
    ),
    "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", STRINGS)]),
    "sidecar": pa.struct(
        [
            ("path", pa.string()),
            ("sizeInBytes", pa.int64()),
            ("modificationTime", pa.int64()),
            ("tags", STRINGS),
        ]
    ),
}
CLASSIC: Final = ("txn", "add", "remove", "metaData", "protocol", "domainMetadata")
TOP_LEVEL: Final = (*CLASSIC, "checkpointMetadata", "sidecar")

_SPARK_STRINGS: Final = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
_SPARK_NAMES: Final[Sequence[tuple[pa.DataType, str]]] = (
    (pa.string(), "string"),
    (pa.int64(), "long"),
    (pa.int32(), "integer"),
    (pa.int16(), "short"),
    (pa.int8(), "byte"),
    (pa.bool_(), "boolean"),
    (pa.float64(), "double"),
    (pa.float32(), "float"),
    (pa.binary(), "binary"),
    (pa.date32(), "date"),
    (pa.timestamp("us", "UTC"), "timestamp"),
    (pa.timestamp("us"), "timestamp_ntz"),
)


def action_column(kind: str, values: Sequence[Any]) -> pa.Array:
    """Actions of one kind as structs: the fields that Delta names, then the others.

    Args:
        kind: of the n actions; unknown ones have only other fields.
        values: their objects.

    Raises:
        Refused: a field that is not Delta's has no type that Parquet can hold, or an action is no object.
    """
    if not all(isinstance(value, Mapping) for value in values):
        raise Refused(f"Cannot write a Parquet checkpoint: an action {kind!r} is no object")
    known = list(ACTIONS.get(kind, pa.struct([])))
    columns = [
        pa.array([_plain(value.get(field.name), field.type) for value in values], field.type)
        for field in known
    ]
    names = {field.name for field in known}
    others = sorted({name for value in values for name, item in value.items() if item is not None} - names)
    for name in others:
        column = inferred([value.get(name) for value in values], f"{kind}.{name}")
        known.append(pa.field(name, column.type))
        columns.append(column)
    if not known:
        raise Refused(
            f"Cannot write a Parquet checkpoint: an action {kind!r} has no fields, and Parquet holds no such struct"
        )
    return pa.StructArray.from_arrays(columns, fields=known)


def other_column(table: pa.Table, field: pa.Field, kind: str) -> pa.Array | None:
    """A column of a table of adds or removes that Delta does not name; None where no row has a value.

    Raises:
        Refused: it has no type that Parquet can hold.
    """
    column = table[field.name].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    if column.null_count == len(column):
        return None
    if field.metadata == AS_JSON:
        texts = column.to_pylist()
        return inferred(
            [None if text is None else json.loads(text) for text in texts], f"{kind}.{field.name}"
        )
    _storable(column.type, f"{kind}.{field.name}")
    return column


def inferred(values: Sequence[Any], name: str) -> pa.Array:
    """JSON values in an Arrow type that represents all of them.

    Raises:
        Refused: none does.
    """
    try:
        column = pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise Refused(
            f"Cannot write a Parquet checkpoint: the values of {name}, which Delta's protocol does not name, "
            f"have no type in common: {error}"
        ) from error
    _storable(column.type, name)
    if _texts(plain_values(column)) != _texts([_without_nulls(value) for value in values]):
        raise Refused(
            f"Cannot write a Parquet checkpoint: the values of {name}, which Delta's protocol does not name, "
            "would be other ones there"
        )
    return column


def _texts(values: Sequence[Any]) -> list[str]:
    """Values as texts, which differ where numbers, booleans and their kinds do."""
    return [json.dumps(value, sort_keys=True, default=str) for value in values]


def _without_nulls(value: Any) -> Any:
    match value:
        case dict():
            return {name: _without_nulls(item) for name, item in value.items() if item is not None}
        case list():
            return [_without_nulls(item) for item in value]
        case _:
            return value


def _storable(kind: pa.DataType, name: str) -> None:
    inner = [kind.field(index) for index in range(kind.num_fields)]
    if pa.types.is_null(kind) or (pa.types.is_struct(kind) and not inner):
        raise Refused(
            f"Cannot write a Parquet checkpoint: {name}, which Delta's protocol does not name, has values of "
            f"type {kind}, which Parquet cannot hold"
        )
    for field in inner:
        _storable(field.type, f"{name}.{field.name}")


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A JSON value as `pa.array` takes it."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return list(value.items())
    if pa.types.is_struct(kind):
        return {field.name: _plain(value.get(field.name), field.type) for field in kind}
    return value


def spark_schema(schema: pa.Schema | pa.StructType) -> dict[str, Any] | None:
    """An Arrow schema in the form of `schemaString`; None where Spark has no such type."""
    fields = []
    for field in schema:
        kind = _spark_type(field.type)
        if kind is None:
            return None
        fields.append({"name": field.name, "type": kind, "nullable": True, "metadata": {}})
    return {"type": "struct", "fields": fields}


def _spark_type(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return spark_schema(kind)
    if pa.types.is_map(kind):
        return _SPARK_STRINGS if kind == STRINGS else None
    if pa.types.is_list(kind):
        element = _spark_type(kind.value_type)
        return None if element is None else {"type": "array", "elementType": element, "containsNull": True}
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return next((name for each, name in _SPARK_NAMES if each == kind), None)
