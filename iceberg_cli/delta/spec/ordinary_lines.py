"""File actions as their lines -> columns, in one call of Arrow, where the lines are ordinary.

Ordinary is what writers of Delta tables write: an object of one key, without fields that the protocol does not name.
Arrow refuses a key that is there twice, a fraction where a whole number belongs, and every value of another type. What
it refuses, or takes and Delta does not, is left to a reader that goes line by line and knows what to say of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from iceberg_cli.delta.spec.columns import STRINGS, spread_over

_END: Final = b"}}"
_BLOCK_BYTES: Final = 1 << 20
_DOUBTFUL: Final = (b"\\u", b"\r")  # half of a surrogate pair, or a line that ends otherwise
_NO_NAMES: Final = pa.array([], pa.string())


def may_be_ordinary(data: bytes) -> bool:
    """Whether lines of a file may go to Arrow at all, which takes bytes that are no UTF-8."""
    if any(part in data for part in _DOUBTFUL):
        return False
    if data.isascii():
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def opening(kind: str) -> bytes:
    """How an ordinary line of a kind begins."""
    return f'{{"{kind}":{{'.encode()


def file_actions(
    kind: str, lines: Sequence[bytes], samples: Iterable[int], schema: pa.Schema
) -> pa.Table | None:
    """The actions of n lines in the columns of `schema`, or None where one of them is out of the ordinary.

    Args:
        kind: `add`, `remove` or `cdc`; every line begins with `opening(kind)`, and `may_be_ordinary` held of its file.
        lines: without newlines.
        samples: places of the lines that tell the names in maps; others have the same.
        schema: the columns; maps are of strings.
    """
    if not lines:
        return schema.empty_table()
    if not all(line.endswith(_END) for line in lines):
        return None
    names = _names(kind, [lines[place] for place in samples], schema)
    if names is None:
        return None
    read_type = pa.struct([_read_field(each, names) for each in schema])
    try:
        read = pa_json.read_json(
            pa.BufferReader(b"\n".join(lines)),
            read_options=pa_json.ReadOptions(
                use_threads=False, block_size=max(_BLOCK_BYTES, 2 * max(map(len, lines)) + 2)
            ),
            parse_options=pa_json.ParseOptions(
                explicit_schema=pa.schema([(kind, read_type)]), unexpected_field_behavior="error"
            ),
        )
        actions = pa.concat_arrays(read.column(0).chunks)
    except pa.ArrowInvalid:  # also of more text than 2 GiB in one column
        return None
    if len(actions) != len(lines) or actions.null_count:
        return None
    columns = dict(zip(schema.names, actions.flatten(), strict=True))
    for name, known in names.items():
        if not _whole(columns[name], known, kind, name, lines):
            return None
        columns[name] = _maps(columns[name], known)
    return pa.Table.from_arrays(list(columns.values()), schema=schema)


def _names(kind: str, samples: Sequence[bytes], schema: pa.Schema) -> dict[str, list[str]] | None:
    """The keys of each column of maps."""
    names: dict[str, dict[str, None]] = {each.name: {} for each in schema if each.type == STRINGS}
    for line in samples:
        try:
            action = json.loads(line)[kind]
        except (ValueError, RecursionError, KeyError):
            return None
        for name, known in names.items():
            values = action.get(name)
            known.update(dict.fromkeys(values if isinstance(values, dict) else ()))
    return {name: list(known) for name, known in names.items()}


def _read_field(column: pa.Field, names: Mapping[str, Sequence[str]]) -> pa.Field:
    """What Arrow is asked to read: maps as structs."""
    if column.name not in names:
        return column
    return pa.field(column.name, pa.struct([(key, pa.string()) for key in names[column.name]]))


def _whole(column: pa.StructArray, keys: Sequence[str], kind: str, name: str, lines: Sequence[bytes]) -> bool:
    """Whether every map has all of the keys: Arrow says null of a key that is absent, too."""
    doubtful = np.zeros(len(column), bool)
    for values in column.flatten():
        if values.null_count > column.null_count:
            doubtful |= pc.and_(values.is_null(), column.is_valid()).to_numpy(zero_copy_only=False)
    maps: list[dict[str, Any]] = [
        json.loads(lines[row])[kind][name] for row in np.flatnonzero(doubtful).tolist()
    ]
    return all(len(found) == len(keys) for found in maps)


def _maps(structs: pa.StructArray, names: Sequence[str]) -> pa.Array:
    """Structs of strings as maps, each with all names."""
    there = structs.drop_null() if structs.null_count else structs
    count, width = len(there), len(names)
    keys, items = _NO_NAMES, _NO_NAMES
    if count and width:
        keys = pa.array(names, pa.string()).take(pa.array(np.tile(np.arange(width), count)))
        # Arrow has the values of one name after those of another, a map has those of one row together.
        rows = np.arange(width * count).reshape(width, count).T.ravel()
        items = there.field(0) if width == 1 else pa.concat_arrays(there.flatten()).take(pa.array(rows))
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * width, pa.int32())
    return spread_over(pa.MapArray.from_arrays(offsets, keys, items), structs.is_valid())
