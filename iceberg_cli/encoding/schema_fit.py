"""Rows in the schema of a new file: with its types and field ids, and null only where its fields are optional.

Arrow's cast does not do: it refuses a null struct around a required field, and lets nulls pass in lists of required
elements.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from iceberg_cli.encoding.arrow import Bools
from iceberg_cli.encoding.json_rows import compact


class MisfitError(ValueError):
    """A value that the schema of a file does not allow."""


def fit(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows in the schema of a file; values that have its types already are not copied.

    Args:
        rows: with the columns of the schema, by name and in its order.
        schema: of the file.

    Raises:
        MisfitError: a required field is null, or a value is none of its type.
    """
    if rows.schema.names != schema.names:
        raise MisfitError(f"columns {', '.join(rows.schema.names)} where there are {', '.join(schema.names)}")
    columns = []
    for field, column in zip(schema, rows.columns, strict=True):
        try:
            chunks = [_fit(chunk, field, None, field.name) for chunk in column.chunks]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise MisfitError(f"{field.name}: {error}") from error
        columns.append(pa.chunked_array(chunks, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _fit(array: pa.Array, field: pa.Field, inside: Bools | None, name: str) -> pa.Array:
    """An array in the type of a field.

    Args:
        array: n values.
        field: what they are of.
        inside: for each whether the struct that it is in is there; None: it is in none.
        name: of the field, for messages.
    """
    hides_nulls = not field.nullable and array.null_count > 0
    if hides_nulls:
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        if inside is None or (nulls & inside).any():
            raise MisfitError(f"{name} is required, and a value is null or absent")
    kind = field.type
    if pa.types.is_struct(kind):
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        return _struct(array, kind, valid, name)
    if pa.types.is_map(kind):
        array = compact(array)
        entries = pa.StructArray.from_arrays(
            [_fit(array.keys, kind.key_field, None, f"{name}.key"),
             _fit(array.items, kind.item_field, None, f"{name}.value")],
            fields=[kind.key_field, kind.item_field],
        )  # fmt: skip
        return _of_parts(array, kind, hides_nulls=hides_nulls, children=[entries])
    if pa.types.is_list(kind):
        array = compact(array)
        element = _fit(array.values, kind.value_field, None, f"{name}.element")
        return _of_parts(array, kind, hides_nulls=hides_nulls, children=[element])
    if array.type != kind:
        array = array.cast(kind)
    if not hides_nulls:
        return array
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    found = _of_parts(storage, storage.type, hides_nulls=True, children=None)
    return pa.ExtensionArray.from_storage(kind, found) if storage is not array else found


def _struct(array: pa.Array, kind: pa.DataType, valid: Bools, name: str) -> pa.Array:
    if not pa.types.is_struct(array.type) or array.type.names != kind.names:
        raise MisfitError(f"{name} has the type {array.type} where {kind} is expected")
    children = [
        _fit(child, part, valid, f"{name}.{part.name}")
        for child, part in zip(array.flatten(), kind, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array(np.invert(valid)))


def _of_parts(
    array: pa.Array, kind: pa.DataType, *, hides_nulls: bool, children: list[pa.Array] | None
) -> pa.Array:
    """An array with other children; `hides_nulls`: without its nulls, which no reader sees."""
    width = 2 if children is not None else len(array.buffers())
    own = array.buffers()[:width]
    buffers = [None, *own[1:]] if hides_nulls else own
    return pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset, children=children)
