"""Paths in files and texts: what stands for a place on record, and where that place is in this run.

Delta names files relative to their table, so places stand in the logs of clones alone.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def replaced(text: str, stand_ins: Mapping[str, str]) -> str:
    """A text with what stands for its places."""
    for stands, here in stand_ins.items():
        text = text.replace(here, stands)
    return text


def put_in(text: str, stand_ins: Mapping[str, str]) -> str:
    """A text with its places as they are here."""
    for stands, here in stand_ins.items():
        text = text.replace(stands, here)
    return text


def for_the_record(name: str, data: bytes, stand_ins: Mapping[str, str]) -> bytes:
    """A file with what stands for its places."""
    return _changed(name, data, lambda text: replaced(text, stand_ins)) if stand_ins else data


def as_here(name: str, data: bytes, stand_ins: Mapping[str, str]) -> bytes:
    """A file with its places as they are here."""
    return _changed(name, data, lambda text: put_in(text, stand_ins)) if stand_ins else data


def _changed(name: str, data: bytes, change: Callable[[str], str]) -> bytes:
    file = name.rpartition("/")[2]
    if "/_delta_log/" not in name or file.startswith("."):
        return data
    if file.endswith((".json", ".crc")):
        return change(data.decode()).encode()
    if not file.endswith(".parquet"):
        return data
    table = pq.read_table(io.BytesIO(data))
    rows = table.to_pylist()
    moved = _in_values(rows, change)
    if moved == rows:
        return data
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(moved, schema=table.schema), out)
    return out.getvalue()


def _in_values(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case dict():
            return {key: _in_values(each, change) for key, each in value.items()}
        case list() | tuple():
            return type(value)(_in_values(each, change) for each in value)
    return value
