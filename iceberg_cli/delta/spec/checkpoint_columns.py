"""The rows of a checkpoint as columns: adds with their statistics, tombstones, all other actions.

Spec: Delta protocol, "Checkpoints" ("Requirements for Writers"), "Checkpoint Schema".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.checkpoint_state import CheckpointState
from iceberg_cli.delta.spec.checkpoint_types import (
    ACTIONS,
    ADD_FIELDS,
    REMOVE_FIELDS,
    action_column,
    other_column,
)
from iceberg_cli.delta.spec.columns import ADD, REMOVE
from iceberg_cli.delta.spec.features import supports
from iceberg_cli.delta.spec.protocol import Metadata
from iceberg_cli.delta.spec.statistics_columns import (
    ambiguous_partition_value,
    partition_values_parsed,
    stats_parsed,
    stats_parsed_whole,
)
from iceberg_cli.delta.spec.statistics_types import partition_type, statistics_type
from iceberg_cli.errors import InvalidMetadata, Refused

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
            place, count = first - removes, min(stop, first + ROWS_AT_ONCE) - first
            part = self.adds.slice(place, count)
            yield "add", _structs(part, self.add_type, self._parsed(part, self.documents.slice(place, count)))

    def _parsed(self, adds: pa.Table, documents: pa.ChunkedArray) -> dict[str, pa.Array]:
        columns = {}
        if self.partitions is not None:
            columns[_PARTITIONS] = partition_values_parsed(_whole(adds["partitionValues"]), self.partitions)
        if self.statistics is not None:
            columns[_STATISTICS] = stats_parsed(_whole(documents), self.statistics)
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
        place = adds.schema.get_field_index("stats")
        adds = adds.set_column(place, "stats", _needed(adds, statistics))
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
    stats = _whole(adds["stats"])
    if statistics is None:
        kept = pc.is_valid(_whole(adds["deletionVector"]))
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
    columns = [made[field.name] if field.name in made else _whole(table[field.name]) for field in kind]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """One array; of no rows, one too."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


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
