"""File actions as Arrow columns: their types, how JSON becomes rows and rows JSON, and what identifies a logical file.

A table of adds has the columns of `ADD` first, in this order and type, then one for each field that the protocol does
not name, so that it survives. Such a field that cannot be told in one plain type is kept as JSON text, and marked so.
Of such a field inside a deletion vector there is only the name, beside the column: see `lost_of_vectors`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from json.encoder import encode_basestring
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import one_array
from iceberg_cli.errors import CorruptFile, Refused

RowLocation = Callable[[int], tuple[str, str]]
"""The file of a row and where it is in it, for messages."""

STRINGS: Final = pa.map_(pa.string(), pa.string())
DELETION_VECTOR: Final = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
        ("maxRowIndex", pa.int64()),
    ]
)
ADD: Final = pa.schema(
    [
        ("path", pa.string()),
        ("partitionValues", STRINGS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", STRINGS),
        ("deletionVector", DELETION_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
        ("clusteringProvider", pa.string()),
    ]
)
REMOVE: Final = pa.schema(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", STRINGS),
        ("size", pa.int64()),
        ("stats", pa.string()),
        ("tags", STRINGS),
        ("deletionVector", DELETION_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
    ]
)
CDC: Final = pa.schema(
    [
        ("path", pa.string()),
        ("partitionValues", STRINGS),
        ("size", pa.int64()),
        ("dataChange", pa.bool_()),
        ("tags", STRINGS),
    ]
)
AS_JSON: Final = {b"iceberg_cli.json": b"text"}

_VECTOR: Final = "deletionVector"
_UNNAMED: Final = b"iceberg_cli.unknown"  # of the field `deletionVector`: JSON of names
_WRONG_TYPE: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)
_DV_KINDS: Final = pa.array(["u", "i", "p"])
_UUID_CHARACTERS: Final = 20
_EXACT: Final = 2**53  # up to it a double holds every integer


def table_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema, location: RowLocation) -> pa.Table:
    """A table of n JSON objects: the columns of `schema`, then the fields that it does not have.

    Raises:
        CorruptFile: a value has another type than its column.
    """
    if not rows:
        return schema.empty_table()
    present = set().union(*rows)
    columns = [
        _column([row.get(field.name) for row in rows], field, location)
        if field.name in present
        else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    fields = list(schema)
    for name in sorted(present.difference(schema.names)):
        field, column = _unknown(name, [row.get(name) for row in rows])
        fields.append(field)
        columns.append(column)
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    return noting_unknown(table, _unknown_in_vectors(rows)) if _VECTOR in schema.names else table


def noting_unknown(table: pa.Table, names: Collection[str]) -> pa.Table:
    """Adds or removes, noting fields of their deletion vectors that the protocol does not name."""
    return pa.Table.from_arrays(table.columns, schema=_noting(table.schema, names)) if names else table


def lost_of_vectors(*tables: pa.Table) -> str | None:
    """Why adds and removes cannot be written anew, in words, or None: a vector has what no column here has."""
    names = set().union(*(_noted(table.schema) for table in tables))
    if not names:
        return None
    return (
        f"deletion vectors have {', '.join(sorted(names))}, which Delta's protocol does not name and which would be "
        "lost: leave this to the writer that knows it"
    )


def whole_numbers(
    rows: Sequence[Mapping[str, Any]], schema: pa.Schema, location: RowLocation
) -> tuple[list[Mapping[str, Any]], list[tuple[int, str]]]:
    """The rows, with integers where a column of these was written as 7.0 or 7e2, and which rows and fields these are.

    Raises:
        CorruptFile: a number has a fraction indeed, which Arrow would cut off, or more digits than a double holds.
    """
    names = [field.name for field in schema if pa.types.is_integer(field.type)]
    inner = [field.name for field in DELETION_VECTOR if pa.types.is_integer(field.type)]
    whole, changed = [], []
    for index, row in enumerate(rows):
        vector = row.get(_VECTOR)
        made = _integers(row, names, index, location)
        if isinstance(vector, dict) and (made_inside := _integers(vector, inner, index, location)):
            made[_VECTOR] = {**vector, **made_inside}
        changed += [(index, name) for name in list(made)[:1]]
        whole.append({**row, **made} if made else row)
    return whole, changed


def _integers(
    values: Mapping[str, Any], names: Sequence[str], index: int, location: RowLocation
) -> dict[str, Any]:
    """The fields that are whole numbers in the form of fractions, as integers."""
    integers = {}
    for name in names:
        value = values.get(name)
        if isinstance(value, float):
            number = whole_number(value)
            if number is None:
                path, where = location(index)
                raise CorruptFile(path, f"{where}.{name}", f"{value} is not a whole number")
            integers[name] = number
    return integers


def whole_number(value: float) -> int | None:
    """A number of JSON that was written with a fraction or an exponent, where it is an integer for certain."""
    return int(value) if value.is_integer() and abs(value) <= _EXACT else None


def concat(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """The rows of all tables, in order; unknown columns that some lack are null there."""
    filled = [table for table in tables if table.num_rows]
    if not filled:
        return schema.empty_table()
    if len(filled) == 1:
        return filled[0]
    fields: dict[str, pa.Field] = {}
    as_json: set[str] = set()
    others = (field for table in filled for field in table.schema if field.name not in schema.names)
    for field in others:
        if not field.equals(fields.setdefault(field.name, field), check_metadata=True):
            as_json.add(field.name)
    fields |= {name: _json_field(name) for name in as_json}
    noted: set[str] = set().union(*(_noted(table.schema) for table in filled))
    known = _noting(schema, noted) if noted else schema
    whole = pa.schema([*known, *(fields[name] for name in sorted(fields))])
    return pa.concat_tables([_conformed(table, whole, as_json) for table in filled])


def spread_over(values: pa.Array, there: pa.BooleanArray) -> pa.Array:
    """An array as long as `there`, with the values where that is true, in their order, and null elsewhere."""
    if len(values) == len(there):
        return values
    marks = there.to_numpy(zero_copy_only=False)
    return values.take(pa.array(np.cumsum(marks) - 1, mask=~marks))


def dv_ids(table: pa.Table) -> pa.Array:
    """The ids of the deletion vectors of n adds or removes; null where there is none.

    Spec: "Derived Fields", `uniqueId`.
    """
    vectors = table.column("deletionVector")
    if vectors.null_count == len(vectors):
        return pa.nulls(len(vectors), pa.string())
    vectors = one_array(vectors)
    kind, where, offset = (
        pc.struct_field(vectors, name) for name in ("storageType", "pathOrInlineDv", "offset")
    )
    name = pc.binary_join_element_wise(kind, where, "")
    at_offset = pc.binary_join_element_wise(name, offset.cast(pa.string()), "@")
    return pc.coalesce(at_offset, name)


def check_files(table: pa.Table, location: RowLocation, *, sized: bool) -> None:
    """Refuse file actions that identify no file.

    Args:
        table: n adds or removes.
        location: of a row.
        sized: whether each must say its size, as adds must.

    Raises:
        CorruptFile: a path is missing or empty, a size missing or negative, a deletion vector incomplete.
    """
    if not table.num_rows:
        return
    path, size = table.column("path"), table.column("size")
    _refuse(pc.is_null(path), location, "path", "it is missing")
    _refuse(pc.equal(path, ""), location, "path", "it is empty")
    if sized:
        _refuse(pc.is_null(size), location, "size", "it is missing")
    _refuse(pc.less(size, 0), location, "size", "it is negative")
    if table.schema.get_field_index(_VECTOR) < 0 or table.schema.field(_VECTOR).type != DELETION_VECTOR:
        return  # change data files have no vectors: what is called so there is a field that the protocol does not name
    vectors = table.column(_VECTOR)
    if vectors.null_count == len(vectors):
        return
    there = pc.is_valid(vectors)
    parts = {field.name: pc.struct_field(vectors, field.name) for field in DELETION_VECTOR}
    kind = parts["storageType"]
    for name in ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality"):
        missing = pc.and_(there, pc.is_null(parts[name]))
        _refuse(missing, location, f"deletionVector.{name}", "it is missing")
    for name in ("offset", "sizeInBytes", "cardinality"):
        _refuse(pc.less(parts[name], 0), location, f"deletionVector.{name}", "it is negative")
    known = pc.is_in(kind, value_set=_DV_KINDS)
    _refuse(
        pc.and_(there, pc.invert(known)), location, "deletionVector.storageType", "it is none of u, i and p"
    )
    short = pc.less(pc.utf8_length(parts["pathOrInlineDv"]), _UUID_CHARACTERS)
    _refuse(
        pc.and_(pc.equal(kind, "u"), short),
        location,
        "deletionVector.pathOrInlineDv",
        "it is too short for a UUID",
    )


def _refuse(wrong: Any, location: RowLocation, field: str, reason: str) -> None:
    index = pc.index(wrong, pa.scalar(value=True)).as_py()
    if index >= 0:
        path, where = location(index)
        raise CorruptFile(path, f"{where}.{field}", reason)


def _column(values: Sequence[Any], field: pa.Field, location: RowLocation) -> pa.Array:
    try:
        return _array(values, field.type)
    except _WRONG_TYPE as error:
        for index, value in enumerate(values):
            try:
                _array([value], field.type)
            except _WRONG_TYPE:
                path, where = location(index)
                reason = f"{json.dumps(value)[:80]} is no {field.type}"
                raise CorruptFile(path, f"{where}.{field.name}", reason) from None
        raise AssertionError(field.name) from error


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind == STRINGS:
        return _strings(values)
    if pa.types.is_struct(kind) and any(not isinstance(value, dict) for value in values if value is not None):
        raise TypeError("an object is expected")  # Arrow takes a list of pairs as well
    return pa.array(values, kind)


def _strings(values: Sequence[Mapping[str, str | None] | None]) -> pa.Array:
    """A column of maps from strings to strings."""
    filled = [value for value in values if value is not None]
    ends = np.concatenate(
        [np.zeros(1, np.int32), np.cumsum([len(value.keys()) for value in filled], dtype=np.int32)]
    )
    keys = pa.array(chain.from_iterable(filled), pa.string())
    items = pa.array(chain.from_iterable(value.values() for value in filled), pa.string())
    maps = pa.MapArray.from_arrays(pa.array(ends), keys, items)
    return spread_over(maps, pa.array([value is not None for value in values], pa.bool_()))


def _unknown(name: str, values: Sequence[Any]) -> tuple[pa.Field, pa.Array]:
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) == 1 and kinds <= {str, bool, int, float}:
        try:
            column = pa.array(values)
        except (pa.ArrowException, OverflowError):
            pass
        else:
            return pa.field(name, column.type), column
    return _json_field(name), pa.array(json_texts(values, name), pa.string())


def _unknown_in_vectors(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    vectors = [vector for row in rows if isinstance(vector := row.get(_VECTOR), dict)]
    names = set().union(*vectors).difference(field.name for field in DELETION_VECTOR)
    return {name for name in names if any(vector.get(name) is not None for vector in vectors)}


def _noting(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    index = schema.get_field_index(_VECTOR)
    return schema.set(index, schema.field(index).with_metadata({_UNNAMED: json.dumps(sorted(names))}))


def _noted(schema: pa.Schema) -> set[str]:
    if _VECTOR not in schema.names:
        return set()
    return set(json.loads((schema.field(_VECTOR).metadata or {}).get(_UNNAMED, b"[]")))


def _json_field(name: str) -> pa.Field:
    return pa.field(name, pa.string(), metadata=AS_JSON)


def _conformed(table: pa.Table, schema: pa.Schema, as_json: set[str]) -> pa.Table:
    columns = []
    for field in schema:
        index = table.schema.get_field_index(field.name)
        if index < 0:
            columns.append(pa.nulls(table.num_rows, field.type))
        elif field.name in as_json and table.schema.field(index).metadata != AS_JSON:
            values = plain_values(table.column(index))
            columns.append(pa.array(json_texts(values, field.name), pa.string()))
        else:
            columns.append(table.column(index))
    return pa.Table.from_arrays(columns, schema=schema)


def json_texts(values: Sequence[Any], name: str) -> list[str | None]:
    """JSON of n values of a field; null stays None.

    Raises:
        Refused: one is nothing that JSON has, such as bytes or a time, which columns of a checkpoint can be.
    """
    encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
    try:
        return [None if value is None else encode(value) for value in values]
    except (TypeError, ValueError) as error:
        raise Refused(
            f"Cannot keep {name}, which Delta's protocol does not name, as JSON: {error}",
            next_step="Leave this to the writer that knows the field.",
        ) from None


def plain_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The values of a column as JSON has them: maps as objects, and no fields that are null in structs."""
    return [plain(value, column.type) for value in column.to_pylist()]


def plain(value: Any, kind: pa.DataType) -> Any:
    """One value as JSON has it, see `plain_values`."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: plain(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        found = ((field.name, plain(value[field.name], field.type)) for field in kind)
        return {name: item for name, item in found if item is not None}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [plain(item, kind.value_type) for item in value]
    return value


def file_lines(kind: str, table: pa.Table) -> list[str]:
    """One line without its end for each of n adds, removes or change data files.

    Args:
        kind: of the action, such as `add`.
        table: its columns are fields of the action; null ones are left out.

    Raises:
        Refused: a field that the protocol does not name has a value that JSON has not.
    """
    columns = [
        _named(field.name, _texts(table.column(index), field.name, as_json=field.metadata == AS_JSON))
        for index, field in enumerate(table.schema)
        if table.column(index).null_count < table.num_rows
    ]
    if not columns:
        return [f'{{"{kind}":{{}}}}' for _ in range(table.num_rows)]
    start, end = f'{{"{kind}":{{', "}}"
    return [f"{start}{','.join(filter(None, fields))}{end}" for fields in zip(*columns, strict=True)]


def _named(name: str, texts: list[str | None]) -> list[str | None]:
    start = f"{encode_basestring(name)}:"
    return [None if text is None else start + text for text in texts]


def _texts(column: Any, name: str, *, as_json: bool = False) -> list[str | None]:
    """JSON of n values; null stays None."""
    kind = column.type
    if pa.types.is_string(kind):
        encode = str if as_json else encode_basestring
        return [None if value is None else encode(value) for value in column.to_pylist()]
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_struct(kind):
        return _objects(column, name)
    return json_texts(plain_values(column), name)


def _objects(column: Any, name: str) -> list[str | None]:
    fields = [
        _named(field.name, _texts(pc.struct_field(column, field.name), f"{name}.{field.name}"))
        for field in column.type
    ]
    there = column.is_valid().to_pylist()
    return [
        f"{{{','.join(filter(None, values))}}}" if valid else None
        for valid, *values in zip(there, *fields, strict=True)
    ]


def removes_of(adds: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    """The removes of n adds, as Delta Lake writes them; the time is the commit's.

    Args:
        adds: as the table has them.
        rows: of each file.
    """
    count = adds.num_rows
    columns = {name: adds.column(name) for name in REMOVE.names if name in adds.schema.names}
    columns["deletionTimestamp"] = pa.nulls(count, pa.int64())
    columns["extendedFileMetadata"] = pa.array([True] * count)
    columns["stats"] = pa.array([f'{{"numRecords":{number}}}' for number in rows.tolist()], pa.string())
    return without_data_change(pa.table([columns[name] for name in REMOVE.names], schema=REMOVE), REMOVE)


def without_data_change(files: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same with `dataChange` false."""
    index = schema.get_field_index("dataChange")
    return files.set_column(index, "dataChange", pa.array([False] * files.num_rows, pa.bool_()))
