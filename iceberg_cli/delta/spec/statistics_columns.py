"""`stats_parsed` and `partitionValues_parsed`: statistics and partition values as typed columns of a checkpoint.

Their types are what Delta Spark derives from a table's schema and properties.

Spec: Delta protocol, "Per-file Statistics", "Checkpoints" (writeStatsAsStruct, writeStatsAsJson), "Schema Serialization
Format".
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from iceberg_cli.delta.spec.protocol import Metadata, schema_fields
from iceberg_cli.delta.spec.text_values import fitting, partition_values, times, value_of
from iceberg_cli.encoding.arrow import one_array
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
    always: Sequence[tuple[str, ...]] = (),
) -> pa.StructType:
    """The type of `stats_parsed`.

    Args:
        schema: the table's, decoded from `schemaString`.
        partition_columns: logical names; they have no statistics.
        configuration: `delta.dataSkippingStatsColumns` and `delta.dataSkippingNumIndexedCols` decide which columns.
        deletion_vectors: whether the protocol supports them, so that bounds may be wide.
        always: physical paths of columns that have statistics whatever the properties say.

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
    if always:
        fields = _with(fields, _fields(schema), frozenset(always), ())
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


def _with(
    kept: Fields, whole: Fields, paths: frozenset[tuple[str, ...]], above: tuple[str, ...]
) -> list[Mapping[str, Any]]:
    """The fields that are kept and those at physical paths, in the order of the whole."""
    by_name = {field["name"]: field for field in kept}
    found: list[Mapping[str, Any]] = []
    for field in whole:
        own, kind = (*above, physical_name(field)), field["type"]
        mine = by_name.get(field["name"])
        if _is_struct(kind):
            inner = _with(_fields(mine["type"]) if mine else (), _fields(kind), paths, own)
            if inner or mine:
                found.append({**field, "type": {**kind, "fields": inner}})
        elif mine or own in paths:
            found.append(field)
    return found


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


_FEW_ROWS = 16
_LF, _CR, _BRACE = b"\n\r{"
_BLOCK_BYTES = 1 << 20
_EMPTY, _NOTHING, _NEWLINE = (pa.scalar(each, pa.large_binary()) for each in (b"{}", b"", b"\n"))


@dataclass(frozen=True, slots=True, kw_only=True)
class AmbiguousPartitionValue:
    """The first partition value of which readers make different values, or none."""

    row: int
    column: str  # its physical name
    text: str
    files: int  # with such a value in any column


def partition_texts(adds: pa.Table, metadata: Metadata) -> dict[str, pa.Array]:
    """By the name of each partition column the texts that n files have in the log.

    Raises:
        CorruptFile: the schema is none.
    """
    names = {field["name"]: physical_name(field) for field in schema_fields(metadata)}
    values = one_array(adds["partitionValues"])
    return {
        name: pc.map_lookup(values, names.get(name, name), "first") for name in metadata.partition_columns
    }


def partition_values_parsed(values: pa.Array, kind: pa.StructType) -> pa.StructArray:
    """Partition values as a struct.

    Args:
        values: n maps of strings under physical names.
        kind: see `partition_type`.

    Returns:
        n structs; a value that is no value of its type, or an ambiguous one, is null.
    """
    columns = [
        partition_values(pc.map_lookup(values, member.name, "first"), member.type)[0] for member in kind
    ]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=values.is_null())


def ambiguous_partition_value(values: pa.ChunkedArray, kind: pa.StructType) -> AmbiguousPartitionValue | None:
    """A partition value that a struct would hold as null though readers do not agree that it is.

    Args:
        values: n maps of strings under physical names.
        kind: see `partition_type`.
    """
    first, files, before = None, 0, 0
    for chunk in values.chunks:
        marks = pa.repeat(pa.scalar(value=False), len(chunk))
        for member in kind:
            texts = pc.map_lookup(chunk, member.name, "first")
            ambiguous = partition_values(texts, member.type)[1]
            index = pc.index(ambiguous, pa.scalar(value=True)).as_py()
            if first is None and index >= 0:
                first = (before + index, member.name, texts[index].as_py())
            marks = pc.or_(marks, ambiguous)
        files += pc.sum(marks).as_py() or 0
        before += len(chunk)
    if first is None:
        return None
    row, column, text = first
    return AmbiguousPartitionValue(row=row, column=column, text=text, files=files)


def stats_parsed(stats: pa.Array, kind: pa.StructType) -> pa.StructArray:
    """Statistics as a struct.

    Args:
        stats: n JSON documents, or null.
        kind: see `statistics_type`.

    Returns:
        n structs, null where the document is null or no object. A value that is no value of its type is null.
    """
    return _parsed(stats, kind, strict=False)[0]


def stats_parsed_whole(stats: pa.Array, kind: pa.StructType) -> tuple[pa.StructArray, pa.Array]:
    """As `stats_parsed`, and which of the n rows the struct does not hold whole, as booleans."""
    return _parsed(stats, kind, strict=True)


def _parsed(stats: pa.Array, kind: pa.StructType, *, strict: bool) -> tuple[pa.StructArray, pa.Array]:
    if not len(stats):
        return pa.array([], kind), pa.array([], pa.bool_())
    found = _at_once(stats, kind, strict=strict)
    if found is not None:
        return found
    if len(stats) <= _FEW_ROWS:
        return _one_by_one(stats, kind)
    # One row that Arrow does not take spoils its whole call.
    middle = len(stats) // 2
    parts = [_parsed(part, kind, strict=strict) for part in (stats.slice(0, middle), stats.slice(middle))]
    return (pa.concat_arrays([part[0] for part in parts]), pa.concat_arrays([part[1] for part in parts]))


def _at_once(stats: pa.Array, kind: pa.StructType, *, strict: bool) -> tuple[pa.StructArray, pa.Array] | None:
    """All rows in one call of Arrow; None where one of them is out of the ordinary."""
    lines, longest = _lines(stats)
    if lines is None:
        return None
    try:
        rows = pa_json.read_json(
            io.BytesIO(lines),
            read_options=pa_json.ReadOptions(block_size=max(_BLOCK_BYTES, 2 * longest + 2)),
            parse_options=pa_json.ParseOptions(
                explicit_schema=pa.schema(list(_read_type(kind))),
                unexpected_field_behavior="error" if strict else "ignore",
            ),
        )
    except pa.ArrowInvalid:
        return None
    if rows.num_rows != len(stats):
        return None
    read = pa.concat_arrays(rows.to_struct_array().chunks)
    lost = np.zeros(len(stats), bool)
    columns = [
        _converted(column, member.type, lost) for column, member in zip(read.flatten(), kind, strict=True)
    ]
    absent = pc.fill_null(pc.equal(stats, ""), fill_value=True)
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=absent), pa.array(lost)


def _lines(stats: pa.Array) -> tuple[memoryview | None, int]:
    """The documents with a newline after each, and the length of the longest; None where they are not so simple.

    Arrow skips a line of blanks, which would shift the rows after it, and dies of a line that is `null`.
    """
    text = stats.cast(pa.large_binary())
    if text.null_count or not pc.min(pc.binary_length(text)).as_py():
        text = pc.if_else(pc.fill_null(pc.equal(pc.binary_length(text), 0), fill_value=True), _EMPTY, text)
    joined = pc.binary_join_element_wise(text, _NOTHING, _NEWLINE)
    offsets = np.frombuffer(joined.buffers()[1], np.int64, len(joined) + 1, joined.offset * 8)
    data = memoryview(joined.buffers()[2])[offsets[0] : offsets[-1]]
    characters = np.frombuffer(data, np.uint8)
    begin = characters[offsets[:-1] - offsets[0]]
    newlines = np.count_nonzero(characters == _LF)
    if newlines > len(joined) or (characters == _CR).any() or (begin != _BRACE).any():
        return None, 0
    return data, int(np.diff(offsets).max())


def _read_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type for reading: dates and times as texts."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(member.name, _read_type(member.type)) for member in kind])
    return pa.string() if pa.types.is_temporal(kind) else kind


def _converted(column: pa.Array, kind: pa.DataType, lost: np.ndarray) -> pa.Array:
    """A column as read, in its final type; `lost` is set where a value is no value of the type."""
    if pa.types.is_struct(kind):
        members = [
            _converted(child, member.type, lost) for child, member in zip(column.flatten(), kind, strict=True)
        ]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=column.is_null())
    if pa.types.is_temporal(kind):
        values = times(column, kind)
    elif pa.types.is_decimal(kind):
        values = _within_precision(column, kind)
    else:
        return column
    if values.null_count != column.null_count:
        lost |= np.asarray(pc.and_(values.is_null(), column.is_valid()).to_numpy(zero_copy_only=False))
    return values


def _within_precision(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decimals without those of more digits than their type has, which Arrow reads as well."""
    largest = pa.scalar(Decimal((0, (9,) * kind.precision, -kind.scale)), kind)
    fits = pc.less_equal(pc.abs(column), largest)
    return pc.if_else(fits, column, pa.scalar(None, kind))


def _one_by_one(stats: pa.Array, kind: pa.StructType) -> tuple[pa.StructArray, pa.Array]:
    rows, lost = [], []
    for text in stats.to_pylist():
        losses: list[bool] = []
        document = _document(text) if text else None
        rows.append(_struct(document, kind, losses) if isinstance(document, Mapping) else None)
        lost.append(bool(losses) or (bool(text) and not isinstance(document, Mapping)))
    return pa.array(rows, kind), pa.array(lost, pa.bool_())


def _document(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return None


def _struct(document: Mapping[str, Any], kind: pa.StructType, losses: list[bool]) -> dict[str, Any]:
    values = {}
    for member in kind:
        found = document.get(member.name)
        if found is None:
            continue
        if pa.types.is_struct(member.type):
            value = _struct(found, member.type, losses) if isinstance(found, Mapping) else None
        else:
            value = _leaf(found, member.type)
        if value is None:
            losses.append(True)
        values[member.name] = value
    known = {member.name for member in kind}
    if any(value is not None for name, value in document.items() if name not in known):
        losses.append(True)
    return values


def _leaf(found: Any, kind: pa.DataType) -> Any:
    """A value of a JSON document in a column's type, or None."""
    match found:
        case bool():
            return found if pa.types.is_boolean(kind) else None
        case str():
            if pa.types.is_string(kind):
                return found
            return None if pa.types.is_integer(kind) else value_of(found, kind)
        case int():
            if pa.types.is_integer(kind):
                return value_of(str(found), kind)
            return _number(Decimal(found), kind)
        case Decimal():
            return _number(found, kind)
        case _:
            return None


def _number(value: Decimal, kind: pa.DataType) -> Any:
    if pa.types.is_floating(kind):
        number = float(value)
        return number if math.isfinite(number) else None
    return fitting(value, kind) if pa.types.is_decimal(kind) else None
