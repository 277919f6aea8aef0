"""Statistics that a checkpoint holds as structs -> the JSON text that commits have, with the same bounds.

A value that JSON cannot say as Delta writes it is left out: a file without a bound is read, never skipped.

Spec: "Per-file Statistics".
"""

from __future__ import annotations

import json
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

_PLAIN_TEXT = r'^[^"\\\x00-\x1f]*$'  # JSON needs no escapes for it
_WHOLE = r"^-?[0-9]+$"
_FOUR_DIGIT_YEAR = r"^[0-9]{4}-"
_MILLISECONDS = 23  # characters of a time, up to them
_NOT_FINITE = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def stats_texts(structs: pa.Array | pa.ChunkedArray, *, instants: Collection[str] = ()) -> pa.Array:
    """JSON of n structs of statistics; null stays null, and fields that are null are left out.

    Args:
        structs: as read from `stats_parsed`.
        instants: dotted paths below the structs, of times that are in UTC though their type does not say so, as those
            are that Parquet has as INT96.
    """
    if isinstance(structs, pa.ChunkedArray):
        chunks = [_objects(chunk, "", instants) for chunk in structs.chunks]
        return pa.chunked_array(chunks, pa.string()).combine_chunks()
    return _objects(structs, "", instants)


def _objects(structs: pa.StructArray, path: str, instants: Collection[str]) -> pa.Array:
    members = []
    for field, column in zip(structs.type, structs.flatten(), strict=True):
        text = _texts(column, f"{path}{field.name}", instants)
        name = pa.scalar(f",{json.dumps(field.name, ensure_ascii=False)}:")
        members.append(pc.fill_null(pc.binary_join_element_wise(name, text, ""), ""))
    if not members:
        return pc.if_else(structs.is_valid(), "{}", pa.scalar(None, pa.string()))
    joined = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*members, ""), 1)
    whole = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(structs.is_valid(), whole, pa.scalar(None, pa.string()))


def _texts(column: pa.Array, path: str, instants: Collection[str]) -> pa.Array:
    """JSON of n values, null for those that have none."""
    kind = column.type
    types = pa.types
    if types.is_struct(kind):
        return _objects(column, f"{path}.", instants)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind):
        return pc.cast(column, pa.string())
    if types.is_floating(kind):
        return _numbers(column)
    if types.is_string(kind) or types.is_large_string(kind):
        return _quoted(column.cast(pa.string()))
    if types.is_date(kind):
        return _strings(_of_four_digit_years(pc.cast(column, pa.string())))
    if types.is_timestamp(kind):
        return _times(column, zoned=kind.tz is not None or path in instants)
    return pa.nulls(len(column), pa.string())


def _numbers(column: pa.Array) -> pa.Array:
    """Each in the fewest digits that only it has, with a fraction or an exponent."""
    text = pc.cast(column, pa.string())
    text = pc.if_else(
        pc.match_substring_regex(text, _WHOLE), pc.binary_join_element_wise(text, ".0", ""), text
    )
    for arrow, delta in _NOT_FINITE.items():
        text = pc.if_else(pc.equal(text, arrow), delta, text)
    return text


def _times(column: pa.Array, *, zoned: bool) -> pa.Array:
    """To the millisecond, or to the microsecond where there is more than milliseconds."""
    micros = column.cast(pa.timestamp("us"))
    text = _of_four_digit_years(pc.strftime(micros, format="%Y-%m-%dT%H:%M:%S"))
    text = pc.if_else(pc.ends_with(text, "000"), pc.utf8_slice_codeunits(text, 0, _MILLISECONDS), text)
    return _strings(pc.binary_join_element_wise(text, "Z", "") if zoned else text)


def _of_four_digit_years(text: pa.Array) -> pa.Array:
    return pc.if_else(pc.match_substring_regex(text, _FOUR_DIGIT_YEAR), text, pa.scalar(None, pa.string()))


def _quoted(column: pa.Array) -> pa.Array:
    if pc.all(pc.match_substring_regex(column, _PLAIN_TEXT)).as_py() is not False:
        return _strings(column)
    encode = json.JSONEncoder(ensure_ascii=False).encode
    return pa.array([None if text is None else encode(text) for text in column.to_pylist()], pa.string())


def _strings(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")
