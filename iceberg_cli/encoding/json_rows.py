"""Rows of an Arrow table as JSON text, a column at a time: one string per row.

Output is ASCII, so that it prints in every locale and no control character reaches a terminal.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_NOT_FINITE: Final = ("nan", "NaN", "inf", "-inf")  # no number or boolean has an n


def json_rows(
    table: pa.Table,
    *,
    ids: Collection[str] = (),
    bare: Mapping[str, Collection[int | str]] | None = None,
    texts: Collection[str] = (),
    before: str = "",
    after: str = "",
) -> pa.Array:
    """One JSON object per row.

    Args:
        table: n rows of integers, booleans, strings, binary values (base64), lists of those, maps to those, and
            structs of those.
        ids: integer columns that are written as strings, because they are 64-bit ids.
        bare: for a column of maps to strings, the keys whose strings are numbers or booleans already.
        texts: columns of strings that are JSON already.
        before: goes before each object.
        after: goes behind each object.

    Returns:
        n strings.
    """
    parts: list[pa.Array | str] = [before]
    for index, name in enumerate(table.column_names):
        column = table[name].combine_chunks()
        parts.append(("{" if index == 0 else ", ") + json.dumps(name) + ": ")
        if name in texts:
            parts.append(pc.fill_null(column, "null"))
        elif pa.types.is_struct(column.type):
            parts.append(_structs(column))
        elif pa.types.is_map(column.type):
            parts.append(_maps(compact(column), (bare or {}).get(name, ())))
        elif pa.types.is_list(column.type):
            parts.append(_lists(compact(column)))
        else:
            parts.append(_scalars(column, as_text=name in ids))
    if len(parts) == 1:
        return pa.array([f"{before}{{}}{after}"] * table.num_rows, pa.string())
    return pc.binary_join_element_wise(*parts, f"}}{after}", "")


def quoted(values: pa.Array) -> pa.Array:
    """Strings as JSON strings; null stays null."""
    data = _characters(values)
    if ((data < 0x20) | (data > 0x7E) | (data == ord('"')) | (data == ord("\\"))).any():
        return _each(values, json.dumps)
    return pc.binary_join_element_wise('"', values, '"', "")


def _characters(values: pa.Array) -> npt.NDArray[np.uint8]:
    """The bytes of all strings, one after the other."""
    _, offsets, data = values.buffers()
    if not len(values) or data is None:
        return np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]


def _each(values: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    """`text` of each value, called once for each distinct one."""
    encoded = values.dictionary_encode()
    texts = [text(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _scalars(values: pa.Array, *, as_text: bool = False) -> pa.Array:
    """The JSON text of each value."""
    kind = values.type
    if pa.types.is_string(kind):
        shown = quoted(values)
    elif pa.types.is_binary(kind):
        plain = [None if v is None else f'"{base64.b64encode(v).decode()}"' for v in values.to_pylist()]
        shown = pa.array(plain, pa.string())
    elif as_text:
        shown = pc.binary_join_element_wise('"', values.cast(pa.string()), '"', "")
    else:
        shown = values.cast(pa.string())
    return pc.fill_null(shown, "null")


def _maps(column: pa.Array, bare: Collection[int | str]) -> pa.Array:
    keys, values = column.keys, column.items
    shown = _scalars(values)
    if len(bare) and pa.types.is_string(values.type):
        number = pc.is_in(keys, value_set=pa.array(sorted(bare), keys.type))
        data = _characters(values)
        if ((data == ord("n")) | (data == ord("N"))).any():
            number = pc.and_(number, pc.invert(pc.is_in(values, value_set=pa.array(_NOT_FINITE))))
        shown = pc.if_else(number, pc.fill_null(values, "null"), shown)
    names = _each(keys, lambda key: f"{json.dumps(str(key))}: ")
    return _joined(column, pc.binary_join_element_wise(names, shown, ""), "{", "}")


def _structs(column: pa.Array) -> pa.Array:
    parts: list[pa.Array | str] = []
    for member in column.type:
        parts.append(("{" if not parts else ", ") + json.dumps(member.name) + ": ")
        parts.append(_scalars(pc.struct_field(column, member.name)))
    shown = pc.binary_join_element_wise(*parts, "}", "")
    return pc.if_else(column.is_valid(), shown, "null")


def _lists(column: pa.Array) -> pa.Array:
    return _joined(column, _scalars(column.values), "[", "]")


def _joined(column: pa.Array, items: pa.Array, opening: str, closing: str) -> pa.Array:
    """`items` of each list or map, between brackets; null where there is none."""
    kind = pa.list_(pa.string())
    lists = pa.Array.from_buffers(
        kind, len(column), column.buffers()[:2], column.null_count, column.offset, children=[items]
    )
    shown = pc.binary_join_element_wise(opening, pc.binary_join(lists, ", "), closing, "")
    return pc.fill_null(shown, "null")


def compact(column: pa.Array) -> pa.Array:
    """The same maps or lists in buffers of their own: a slice would drag all items of its batch along."""
    return pa.concat_arrays([column, column.slice(0, 0)])
