"""Columns of a data file as those of its table: found by field id or name, widened, and filled in where absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.encoding.arrow import Bools, array_of, one_array, plain
from iceberg_cli.encoding.json_rows import compact

ID_KEYS: Final = (b"PARQUET:field_id", b"iceberg.id")


@dataclass(frozen=True, slots=True)
class StructOf:
    """A struct of these fields."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of these elements."""

    element: Field


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map from these keys to these values."""

    key: Field
    value: Field


FieldType: TypeAlias = "pa.DataType | StructOf | ListOf | MapOf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column of a table, or a field in one.

    Args:
        name: as the table calls it.
        type: its type now; files may have narrower ones.
        field_id: by which files that have ids are searched; None: by names, whatever a file has.
        names: by which a file without ids has it.
        default: the value of rows of files that do not have it, as `pa.scalar` makes it; None: null.
        is_readable: whether its values are shown; otherwise all are null.
    """

    name: str
    type: FieldType
    field_id: int | None = None
    names: tuple[str, ...] = ()
    default: pa.Scalar | None = None
    is_readable: bool = True

    def arrow(self) -> pa.Field:
        """As Arrow has it."""
        return pa.field(self.name, arrow_type(self.type))


def arrow_type(type_: FieldType) -> pa.DataType:
    """A type as Arrow has it."""
    match type_:
        case StructOf(fields=fields):
            return pa.struct([field.arrow() for field in fields])
        case ListOf(element=element):
            return pa.list_(pa.field("element", arrow_type(element.type)))
        case MapOf(key=key, value=value):
            return pa.map_(arrow_type(key.type), arrow_type(value.type))
    return type_


_MISMATCH: Final = b"mismatch"  # a field's metadata: why its values are null


class Mismatch(ValueError):
    """A column of a file does not have the type that the table gives it."""


def field_id_of(field: pa.Field) -> int | None:
    """The id that a file records for a column."""
    metadata = field.metadata or {}
    text = next((metadata[key] for key in ID_KEYS if key in metadata), b"")
    return int(text) if text.removeprefix(b"-").isdigit() else None


def has_ids(fields: Sequence[pa.Field]) -> bool:
    """Whether a file records ids of columns."""
    return any(
        field_id_of(field) is not None
        or has_ids([field.type.field(i) for i in range(getattr(field.type, "num_fields", 0))])
        for field in fields
    )


def places_of(fields: Sequence[Field], own: Sequence[pa.Field], *, by_ids: bool) -> list[int | None]:
    """The place of each column among those of a file, or None. Of several that could be it the first one is."""
    ids: dict[int | None, int] = {}
    names: dict[str, int] = {}
    for place, each in enumerate(own):
        ids.setdefault(field_id_of(each) if by_ids else None, place)
        names.setdefault(each.name, place)
    return [
        ids.get(field.field_id)
        if by_ids and field.field_id is not None
        else min((names[name] for name in field.names if name in names), default=None)
        for field in fields
    ]


def project(
    columns: Sequence[pa.Array],
    own: Sequence[pa.Field],
    fields: Sequence[Field],
    *,
    count: int,
    by_ids: bool,
    constants: Mapping[int, pa.Scalar],
    mismatch_is_null: bool = False,
) -> pa.Table:
    """Rows of a file as rows of its table.

    Args:
        columns: of the file, `count` rows each.
        own: what the file says of them.
        fields: of the table.
        count: rows.
        by_ids: whether the file records field ids.
        constants: by field id, values of columns that the file does not have.
        mismatch_is_null: show columns whose type cannot become the table's as null; `mismatches` tells of them.

    Returns:
        A column for each of `fields`.

    Raises:
        Mismatch: a column has a type that cannot become the table's.
    """
    made, arrow_fields = [], []
    for field, place in zip(fields, places_of(fields, own, by_ids=by_ids), strict=True):
        arrow_field = field.arrow()
        if place is None:
            made.append(_absent(field, count, constants))
        else:
            try:
                made.append(_shown(columns[place], field, by_ids=by_ids))
            except Mismatch as error:
                if not mismatch_is_null:
                    raise
                made.append(pa.nulls(count, arrow_field.type))
                arrow_field = arrow_field.with_metadata({_MISMATCH: str(error)})
        arrow_fields.append(arrow_field)
    if not made:
        return pa.table({"": pa.nulls(count)}).select([])
    return pa.Table.from_arrays(made, schema=pa.schema(arrow_fields))


def mismatches(table: pa.Table) -> dict[str, str]:
    """By column, why some of its values are shown as null."""
    return {
        field.name: field.metadata[_MISMATCH].decode()
        for field in table.schema
        if field.metadata and _MISMATCH in field.metadata
    }


def concat_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of tables of the same columns, with the `mismatches` of all of them."""
    found = {name: reason for table in tables for name, reason in mismatches(table).items()}
    rows = pa.concat_tables(tables)
    fields = [
        field.with_metadata({_MISMATCH: found[field.name]}) if field.name in found else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields)) if found else rows


def joined_rows(some: Sequence[tuple[Any, pa.Table | None]]) -> pa.Table:
    """The rows of the files of a batch, as an engine has them: with each file what was read of it."""
    return concat_rows([table for _, table in some if table is not None])


def _shown(array: pa.Array | pa.ChunkedArray, field: Field, *, by_ids: bool) -> pa.Array:
    """A column of a file in the type of the table, null where its values are not shown."""
    if not field.is_readable:
        return _absent(field, len(array), {})
    return _converted(array, field, by_ids=by_ids)


def _absent(field: Field, count: int, constants: Mapping[int, pa.Scalar]) -> pa.Array:
    value = constants.get(field.field_id, field.default) if field.field_id is not None else field.default
    type_ = arrow_type(field.type)
    if value is None or not field.is_readable:
        return pa.nulls(count, type_)
    if isinstance(field.type, StructOf):
        children = [_absent(each, count, {}) for each in field.type.fields]
        return _struct(children, field.type, pa.array([False] * count))
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, pa.repeat(value, count))
    return pa.repeat(value, count)


def _struct(children: Sequence[pa.Array], type_: StructOf, nulls: pa.Array) -> pa.Array:
    fields = [field.arrow() for field in type_.fields]
    if not fields:
        return pa.array([None if null else {} for null in nulls.to_pylist()], pa.struct([]))
    return pa.StructArray.from_arrays(list(children), fields=fields, mask=nulls)


def _converted(array: pa.Array, field: Field, *, by_ids: bool) -> pa.Array:
    """A column of a file in the type of the table."""
    try:
        array = plain(one_array(array))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Mismatch(f"{field.name}: a column of type {array.type} is not read here: {error}") from error
    match field.type:
        case StructOf(fields=fields):
            if not pa.types.is_struct(array.type):
                raise Mismatch(f"{field.name}: a column of type {array.type} where a struct is expected")
            own = [array.type.field(i) for i in range(array.type.num_fields)]
            inner = array.flatten() if own else []
            children = []
            for each, place in zip(fields, places_of(fields, own, by_ids=by_ids), strict=True):
                if place is None:
                    children.append(_absent(each, len(array), {}))
                else:
                    children.append(_shown(inner[place], each, by_ids=by_ids))
            return _struct(children, field.type, array.is_null())
        case ListOf(element=element):
            return _list(array, field, element, by_ids=by_ids)
        case MapOf(key=key, value=value):
            if not pa.types.is_map(array.type):
                raise Mismatch(f"{field.name}: a column of type {array.type} where a map is expected")
            array = compact(array)
            keys, items = (
                _shown(inner, each, by_ids=by_ids)
                for inner, each in ((array.keys, key), (array.items, value))
            )
            kind = arrow_type(field.type)
            entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
            return _like(array, kind, entries)
    return _cast(array, field.type, field.name)


def _list(array: pa.Array, field: Field, element: Field, *, by_ids: bool) -> pa.Array:
    if not pa.types.is_list(array.type):
        raise Mismatch(f"{field.name}: a column of type {array.type} where a list is expected")
    array = compact(array)
    return _like(array, arrow_type(field.type), _shown(array.values, element, by_ids=by_ids))


def _like(array: pa.Array, kind: pa.DataType, child: pa.Array) -> pa.Array:
    """Lists or maps of the lengths of `array` with other contents."""
    return pa.Array.from_buffers(
        kind, len(array), array.buffers()[:2], array.null_count, array.offset, children=[child]
    )


def _cast(array: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if array.type != storage:
        is_text = _is_text(array.type) != _is_text(storage) and not pa.types.is_null(array.type)
        if is_text or _loses_digits(array.type, storage):
            raise Mismatch(f"{name}: a column of type {array.type} where {storage} is expected")
        try:
            array = array.cast(storage)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise Mismatch(
                f"{name}: a column of type {array.type} where {storage} is expected: {error}"
            ) from error
    return pa.ExtensionArray.from_storage(kind, array) if storage is not kind else array


def _loses_digits(kind: pa.DataType, storage: pa.DataType) -> bool:
    """Whether numbers are rounded, which Arrow's cast does without a word."""
    floating = pa.types.is_floating
    return bool(floating(kind) and floating(storage) and kind.bit_width > storage.bit_width)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return any(test(kind) for test in (types.is_string, types.is_binary, types.is_fixed_size_binary))


def positions_that_stay(first: int, count: int, gone: npt.NDArray[np.uint64]) -> Bools:
    """For each of `count` rows, which are those of a file from position `first` on, whether it is none of some.

    Args:
        first: position of the first row.
        count: of rows.
        gone: positions, ascending.
    """
    stays = np.ones(count, np.bool_)
    begin, end = np.searchsorted(gone, (np.uint64(first), np.uint64(first + count)))
    stays[(gone[begin:end] - np.uint64(first)).astype(np.int64)] = False
    return stays


def rows_that_stay(table: pa.Table, stays: Bools) -> pa.Table:
    """The rows of a table that are marked."""
    return table if stays.all() else table.filter(array_of(stays))
