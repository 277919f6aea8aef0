"""File actions in columns, written as JSON lines."""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.columns import AS_JSON, json_texts, plain_values


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
