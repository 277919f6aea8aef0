"""The rows of a checkpoint as Parquet columns, in the order and types in which Delta Spark writes them.

Adds with their statistics, tombstones, and all other actions.

Spec: Delta protocol, "Checkpoints" ("Requirements for Writers"), "Checkpoint Schema", "Sidecar File Information",
"Checkpoint Metadata".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.checkpoints.state import CheckpointState
from iceberg_cli.delta.spec.columns import ADD, AS_JSON, REMOVE, STRINGS, plain_values
from iceberg_cli.delta.spec.features import supports
from iceberg_cli.delta.spec.protocol import Metadata
from iceberg_cli.delta.spec.statistics_columns import (
    ambiguous_partition_value,
    partition_type,
    partition_values_parsed,
    statistics_type,
    stats_parsed,
    stats_parsed_whole,
)
from iceberg_cli.encoding.arrow import one_array
from iceberg_cli.errors import InvalidMetadata, Refused

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
    column = one_array(table[field.name])
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


STATS_AS_JSON: Final = "delta.checkpoint.writeStatsAsJson"
STATS_AS_STRUCT: Final = "delta.checkpoint.writeStatsAsStruct"
_PARTITIONS, _STATISTICS = "partitionValues_parsed", "stats_parsed"  # made here, whatever a commit says
ROWS_AT_ONCE: Final = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumns:
    """How the adds and the removes of one checkpoint become structs."""

    adds: pa.Table
    removes: pa.Table
    documents: pa.ChunkedArray  # the statistics of each add as it has them, whether these are written or not
    statistics: pa.StructType | None  # None: `stats_parsed` is not written
    partitions: pa.StructType | None
    warnings: tuple[str, ...]  # what the checkpoint lacks, in words
    add_type: pa.StructType
    remove_type: pa.StructType

    def rows(self, start: int, stop: int) -> Iterator[tuple[str, pa.StructArray]]:
        """Rows `start` to `stop` of the removes and, after them, the adds: a kind and its structs, few at a time."""
        removes = self.removes.num_rows
        for first in range(start, min(stop, removes), ROWS_AT_ONCE):
            part = self.removes.slice(first, min(stop, removes, first + ROWS_AT_ONCE) - first)
            yield "remove", _structs(part, self.remove_type, {})
        for first in range(max(start, removes), stop, ROWS_AT_ONCE):
            row, count = first - removes, min(stop, first + ROWS_AT_ONCE) - first
            part = self.adds.slice(row, count)
            yield "add", _structs(part, self.add_type, self._parsed(part, self.documents.slice(row, count)))

    def _parsed(self, adds: pa.Table, documents: pa.ChunkedArray) -> dict[str, pa.Array]:
        columns = {}
        if self.partitions is not None:
            columns[_PARTITIONS] = partition_values_parsed(
                one_array(adds["partitionValues"]), self.partitions
            )
        if self.statistics is not None:
            columns[_STATISTICS] = stats_parsed(one_array(documents), self.statistics)
        return columns


def file_columns(state: CheckpointState) -> FileColumns:
    """How the adds and removes of a state are written, by the table's schema and properties.

    Raises:
        InvalidMetadata: the schema cannot be read.
        Refused: a field that Delta does not name has no type that Parquet can hold.
    """
    metadata = state.metadata
    struct = metadata.property_bool(STATS_AS_STRUCT, default=True, unreadable=True)
    as_json = metadata.property_bool(STATS_AS_JSON, default=True, unreadable=True)
    schema = _schema(metadata) if struct else {}
    vectors = supports(state.protocol, "deletionVectors")
    statistics = (
        statistics_type(schema, metadata.partition_columns, metadata.configuration, deletion_vectors=vectors)
        if struct
        else None
    )
    partitions, warnings = _partitions(schema, state) if struct else (None, ())
    adds = state.adds
    fields = list(ADD_FIELDS)
    if not as_json:
        index = adds.schema.get_field_index("stats")
        adds = adds.set_column(index, "stats", _needed(adds, statistics))
    if as_json or adds["stats"].null_count < adds.num_rows:
        fields.append(ADD.field("stats"))
    if partitions is not None:
        fields.append(pa.field(_PARTITIONS, partitions))
    if statistics is not None:
        fields.append(pa.field(_STATISTICS, statistics))
    adds, others = _with_others(adds, ADD, "add")
    removes, removed_others = _with_others(state.removes, REMOVE, "remove")
    return FileColumns(
        adds=adds,
        removes=removes,
        documents=state.adds["stats"],
        statistics=statistics,
        partitions=partitions,
        warnings=warnings,
        add_type=pa.struct([*fields, *others]),
        remove_type=pa.struct([*REMOVE_FIELDS, *removed_others]),
    )


def partition_warnings(state: CheckpointState) -> tuple[str, ...]:
    """Warnings where a checkpoint of a state is written without `partitionValues_parsed`.

    Raises:
        InvalidMetadata: the schema cannot be read, or a property is wrong.
    """
    if not state.metadata.property_bool(STATS_AS_STRUCT, default=True):
        return ()
    return _partitions(_schema(state.metadata), state)[1]


def _partitions(
    schema: Mapping[str, Any], state: CheckpointState
) -> tuple[pa.StructType | None, tuple[str, ...]]:
    """The type of `partitionValues_parsed`, None where it is not written, and why, in words.

    Readers skip the files that a null in it rules out, and take a column that it lacks for nulls. So one value that
    is no null, and that they do not all take for the same, forbids the whole of it.
    """
    names = state.metadata.partition_columns
    kind = partition_type(schema, names)
    if kind is None:
        return None, ()
    found = ambiguous_partition_value(state.adds["partitionValues"], kind)
    if found is None:
        return kind, ()
    name = names[kind.get_field_index(found.column)]
    path = state.adds["path"][found.row].as_py()
    warning = (
        f"checkpoint {state.version} is written without partitionValues_parsed: readers do not agree on partition "
        f"values of {found.files:,} of {state.adds.num_rows:,} files, such as {name}={found.text!r} of {path}; they "
        "parse partitionValues instead, and miss no row"
    )
    return None, (warning,)


def _schema(metadata: Metadata) -> Mapping[str, Any]:
    try:
        schema = json.loads(metadata.schema_string)
    except (ValueError, RecursionError) as error:
        raise InvalidMetadata("metaData", "schemaString", f"it is not JSON: {error}") from error
    if not isinstance(schema, dict):
        raise InvalidMetadata("metaData", "schemaString", "it is no object")
    return schema


def _needed(adds: pa.Table, statistics: pa.StructType | None) -> pa.Array:
    """The statistics that stay as JSON though the table asks for none: those that would be lost otherwise.

    That is a document that the struct does not hold whole, or without a struct the count of records of a file that
    has a deletion vector, which the protocol demands.
    """
    stats = one_array(adds["stats"])
    if statistics is None:
        kept = pc.is_valid(one_array(adds["deletionVector"]))
    else:
        kept = stats_parsed_whole(stats, statistics)[1]
    return pc.if_else(kept, stats, pa.scalar(None, pa.string()))


def _with_others(table: pa.Table, known: pa.Schema, kind: str) -> tuple[pa.Table, list[pa.Field]]:
    """The table with its columns that Delta does not name in a type that Parquet holds, and their fields."""
    fields = []
    for field in table.schema:
        if field.name in (*known.names, _PARTITIONS, _STATISTICS):
            continue
        column = other_column(table, field, kind)
        if column is not None:
            table = table.set_column(table.schema.get_field_index(field.name), field.name, column)
            fields.append(pa.field(field.name, column.type))
    return table, fields


def _structs(table: pa.Table, kind: pa.StructType, made: Mapping[str, pa.Array]) -> pa.StructArray:
    columns = [made[field.name] if field.name in made else one_array(table[field.name]) for field in kind]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def other_rows(actions: Sequence[Mapping[str, Any]]) -> dict[str, pa.StructArray]:
    """Actions that are no file actions, as structs by kind, without those that `left_out_warnings` names.

    Raises:
        Refused: one that Delta names has a field that Parquet cannot hold.
    """
    return {kind: rows for kind, rows in _columns_of(actions) if rows is not None}


def left_out_warnings(actions: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The actions that Parquet cannot hold, for they are empty or of types that differ, in words; nothing without them.

    Readers pass over actions that they do not know, and checkpoints of Delta Spark and delta-kernel leave out all such.
    """
    left_out = sorted(kind for kind, rows in _columns_of(actions) if rows is None)
    if not left_out:
        return ()
    warning = (
        f"the checkpoint leaves out the actions {', '.join(left_out)}, which Delta's protocol does not name and "
        "Parquet cannot hold; checkpoints of other writers leave out all such"
    )
    return (warning,)


def _columns_of(actions: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, pa.StructArray | None]]:
    by_kind: dict[str, list[Any]] = {}
    for action in actions:
        for kind, value in action.items():
            by_kind.setdefault(kind, []).append(value)
    for kind, values in by_kind.items():
        try:
            yield kind, action_column(kind, values)
        except Refused:
            if kind in ACTIONS:
                raise
            yield kind, None
