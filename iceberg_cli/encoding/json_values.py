"""Rows of any Arrow types as JSON: what Iceberg calls JSON single-value serialization, with the names of fields.

Numbers and booleans are JSON's, long integers too; a decimal is a string, as are NaN and infinities; dates, times and
timestamps are ISO 8601, in UTC where they are instants; binary values are hexadecimal, a UUID has its dashes; a list is
an array, a struct an object by field name, a map an object of two arrays, `keys` and `values`.

Spec: Iceberg v3, Appendix D "JSON single-value serialization".
"""

from __future__ import annotations

import json
import math
import uuid
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def json_lines(table: pa.Table, *, before: str = "", after: str = "") -> pa.Array:
    """One JSON object for each of n rows, between `before` and `after`, in ASCII."""
    names = table.column_names
    columns = [json_values(column.combine_chunks()) for column in table.columns]
    rows = zip(*columns, strict=True) if columns else [()] * table.num_rows
    texts = [f"{before}{json.dumps(dict(zip(names, row, strict=True)))}{after}" for row in rows]
    return pa.array(texts, pa.string())


def json_values(array: pa.Array) -> list[Any]:
    """Values as `json.dumps` takes them; null as None."""
    kind, types = array.type, pa.types
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(kind, pa.BaseExtensionType):
        values = array.storage.to_pylist()
        return [None if value is None else str(uuid.UUID(bytes=value)) for value in values]
    if types.is_floating(kind):
        return [_floating(value, single=types.is_float32(kind)) for value in array.to_pylist()]
    if types.is_decimal(kind):
        return [None if value is None else f"{value:f}" for value in array.to_pylist()]
    if types.is_temporal(kind):
        return _temporal(array)
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return [None if value is None else value.hex() for value in array.to_pylist()]
    if types.is_struct(kind):
        return _structs(array)
    if types.is_map(kind):
        spans, valid = _spans(array)
        keys, values = json_values(array.keys), json_values(array.items)
        return [
            {"keys": keys[first:last], "values": values[first:last]} if there else None
            for (first, last), there in zip(spans, valid, strict=True)
        ]
    if types.is_list(kind):
        spans, valid = _spans(array)
        items = json_values(array.values)
        return [
            items[first:last] if there else None for (first, last), there in zip(spans, valid, strict=True)
        ]
    found: list[Any] = array.to_pylist()
    return found


def _floating(value: float | None, *, single: bool) -> float | str | None:
    if value is None:
        return None
    if math.isfinite(value):
        return float(str(np.float32(value))) if single else value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _temporal(array: pa.Array) -> list[str | None]:
    kind = array.type
    if not pa.types.is_timestamp(kind):
        found: list[str | None] = array.cast(pa.string()).to_pylist()
        return found
    local = array.cast(pa.int64()).cast(pa.timestamp(kind.unit))
    texts = pc.replace_substring(local.cast(pa.string()), " ", "T", max_replacements=1)
    zone = "" if kind.tz is None else "+00:00"
    return [None if text is None else f"{text}{zone}" for text in texts.to_pylist()]


def _structs(array: pa.Array) -> list[Any]:
    names = [array.type.field(i).name for i in range(array.type.num_fields)]
    children = [json_values(child) for child in array.flatten()]
    rows = zip(*children, strict=True) if children else [()] * len(array)
    valid = array.is_valid().to_pylist()
    return [
        dict(zip(names, row, strict=True)) if there else None for row, there in zip(rows, valid, strict=True)
    ]


def _spans(array: pa.Array) -> tuple[list[tuple[int, int]], list[bool]]:
    """Where the items of each list begin and end among all of them, and whether there is a list."""
    ends = array.offsets.to_pylist()
    return list(pairwise(ends)), array.is_valid().to_pylist()
