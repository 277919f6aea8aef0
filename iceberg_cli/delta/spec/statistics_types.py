"""The types of `stats_parsed` and `partitionValues_parsed`: what Delta Spark derives from a table's schema.

Spec: Delta protocol, "Per-file Statistics", "Checkpoints", "Schema Serialization Format".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from iceberg_cli.errors import InvalidMetadata

_PRIMITIVES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\(\s*([0-9]+)\s*,\s*(-?[0-9]+)\s*\)")
_NO_BOUNDS = ("boolean", "binary")  # only their nulls are counted
_COLUMNS = re.compile(r"`((?:[^`]|``)+)`|([^`.,\s]+)|([.,])")
DEFAULT_INDEXED_COLUMNS: Final = 32
Fields = Sequence[Mapping[str, Any]]


def primitive(name: Any) -> pa.DataType | None:
    """The Arrow type of a primitive type's name; None for others, which no statistic has as a bound."""
    if not isinstance(name, str):
        return None
    if found := _DECIMAL.fullmatch(name):
        precision, scale = int(found[1]), int(found[2])
        return pa.decimal128(precision, scale) if 0 < precision <= 38 and 0 <= scale <= precision else None
    return _PRIMITIVES.get(name)


def statistics_type(
    schema: Mapping[str, Any],
    partition_columns: Sequence[str],
    configuration: Mapping[str, str],
    *,
    deletion_vectors: bool,
) -> pa.StructType:
    """The type of `stats_parsed`.

    Args:
        schema: the table's, decoded from `schemaString`.
        partition_columns: logical names; they have no statistics.
        configuration: `delta.dataSkippingStatsColumns` and `delta.dataSkippingNumIndexedCols` decide which columns.
        deletion_vectors: whether the protocol supports them, so that bounds may be wide.

    Returns:
        numRecords, then minValues, maxValues and nullCount where a column has them, under physical names.
    """
    fields: Fields = [field for field in _fields(schema) if field["name"] not in partition_columns]
    named = configuration.get("delta.dataSkippingStatsColumns")
    if named is not None:
        fields = _named(fields, _column_paths(named), ())
    else:
        limit = _integer(configuration.get("delta.dataSkippingNumIndexedCols"), DEFAULT_INDEXED_COLUMNS)
        fields = fields if limit < 0 else _first(fields, limit)[0]
    bounds, nulls = _bounds(fields), _null_counts(fields)
    members = [pa.field("numRecords", pa.int64())]
    if bounds:
        members += [pa.field("minValues", pa.struct(bounds)), pa.field("maxValues", pa.struct(bounds))]
    if nulls:
        members.append(pa.field("nullCount", pa.struct(nulls)))
    if deletion_vectors:
        members.append(pa.field("tightBounds", pa.bool_()))
    return pa.struct(members)


def partition_type(schema: Mapping[str, Any], partition_columns: Sequence[str]) -> pa.StructType | None:
    """The type of `partitionValues_parsed`, under physical names; None for a table without partitions.

    Raises:
        InvalidMetadata: a partition column is not in the schema, or has no primitive type.
    """
    if not partition_columns:
        return None
    by_name = {field["name"]: field for field in _fields(schema)}
    members = []
    for name in partition_columns:
        kind = primitive(by_name[name]["type"]) if name in by_name else None
        if kind is None:
            raise InvalidMetadata(
                "metaData", "partitionColumns", f"{name!r} is no primitive column of the schema"
            )
        members.append(pa.field(physical_name(by_name[name]), kind))
    return pa.struct(members)


def physical_name(field: Mapping[str, Any]) -> str:
    """The name that a column has in files and in the log."""
    name = field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"])
    return str(name)


def _fields(schema: Any) -> list[Mapping[str, Any]]:
    """The fields of a struct type.

    Raises:
        InvalidMetadata: it is none.
    """
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    if not isinstance(fields, list) or not all(
        isinstance(field, Mapping)
        and isinstance(field.get("name"), str)
        and "type" in field
        and isinstance(field.get("metadata", {}), Mapping)
        for field in fields
    ):
        raise InvalidMetadata("metaData", "schemaString", "it is not a struct of named, typed fields")
    return fields


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, Mapping) and kind.get("type") == "struct"


def _bounds(fields: Fields) -> list[pa.Field]:
    """The columns with a smallest and a largest value."""
    members = []
    for field in fields:
        kind = field["type"]
        if _is_struct(kind):
            inner = _bounds(_fields(kind))
            if inner:
                members.append(pa.field(physical_name(field), pa.struct(inner)))
            continue
        found = primitive(kind)
        # Strings of another collation are not compared by their bytes, so Delta keeps no bounds of them.
        collated = kind == "string" and "__COLLATIONS" in field.get("metadata", {})
        if found is not None and kind not in _NO_BOUNDS and not collated:
            members.append(pa.field(physical_name(field), found))
    return members


def _null_counts(fields: Fields) -> list[pa.Field]:
    """Every column with a count of its nulls."""
    members = []
    for field in fields:
        inner = _null_counts(_fields(field["type"])) if _is_struct(field["type"]) else None
        if inner is None:
            members.append(pa.field(physical_name(field), pa.int64()))
        elif inner:
            members.append(pa.field(physical_name(field), pa.struct(inner)))
    return members


def _first(fields: Fields, limit: int) -> tuple[list[Mapping[str, Any]], int]:
    """The fields that hold the first `limit` leaves, and how many leaves they hold."""
    kept: list[Mapping[str, Any]] = []
    leaves = 0
    for field in fields:
        if leaves >= limit:
            break
        if _is_struct(field["type"]):
            inner, count = _first(_fields(field["type"]), limit - leaves)
            kept.append({**field, "type": {**field["type"], "fields": inner}})
            leaves += count
        else:
            kept.append(field)
            leaves += 1
    return kept, leaves


def _named(
    fields: Fields, paths: Sequence[tuple[str, ...]], above: tuple[str, ...]
) -> list[Mapping[str, Any]]:
    """The fields on the named paths or below them; names are compared without case."""
    kept: list[Mapping[str, Any]] = []
    for field in fields:
        own = (*above, field["name"].lower())
        if own in paths:
            kept.append(field)
        elif _is_struct(field["type"]):
            inner = _named(_fields(field["type"]), paths, own)
            if inner:
                kept.append({**field, "type": {**field["type"], "fields": inner}})
    return kept


def _column_paths(text: str) -> list[tuple[str, ...]]:
    """`a, b.c, `d,e`.f` as paths of lower-case names."""
    paths: list[list[str]] = [[]]
    for quoted, plain, separator in _COLUMNS.findall(text):
        if separator == ",":
            paths.append([])
        elif not separator:
            paths[-1].append((quoted.replace("``", "`") or plain).lower())
    return [tuple(path) for path in paths if path]


def _integer(text: str | None, default: int) -> int:
    try:
        return default if text is None else int(text)
    except ValueError:
        return default
