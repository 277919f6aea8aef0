"""Parquet files of demo tables, with the statistics that their manifest entries carry.

Spec: Iceberg v3, "Data File Fields", "Position Delete Files", Appendix A "Parquet".
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iceberg_cli.iceberg.spec.single_value import to_bytes

_PATH_FIELD_ID = 2147483546  # reserved fields of position delete files
_POSITION_FIELD_ID = 2147483545
_ARROW_TYPES = {
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamptz": pa.timestamp("us", "UTC"),
    "decimal(9,2)": pa.decimal128(9, 2),
}
_POSITION_DELETES = {
    "fields": [
        {"id": _PATH_FIELD_ID, "name": "file_path", "required": True, "type": "string"},
        {"id": _POSITION_FIELD_ID, "name": "pos", "required": True, "type": "long"},
    ]
}


def arrow_schema(schema: Mapping[str, Any]) -> pa.Schema:
    """The Arrow schema of a table schema, with the field ids that Parquet files must have."""
    return pa.schema(
        [
            pa.field(
                field["name"],
                _ARROW_TYPES[field["type"]],
                nullable=not field["required"],
                metadata={"PARQUET:field_id": str(field["id"])},
            )
            for field in schema["fields"]
        ]
    )


def parquet_file(rows: pa.Table, types: Mapping[int, str]) -> tuple[bytes, dict[str, Any]]:
    """Encode rows.

    Args:
        rows: in a schema of `arrow_schema`.
        types: the specification's type of each field id.

    Returns:
        The file, and size, record count and statistics for its manifest entry.
    """
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, compression="zstd")
    data = buffer.getvalue()
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in rows.schema]
    bounds = {i: _bounds(types[i], column) for i, column in zip(ids, rows.columns, strict=True)}
    return data, {
        "record_count": len(rows),
        "file_size_in_bytes": len(data),
        "column_sizes": {i: group.column(at).total_compressed_size for at, i in enumerate(ids)},
        "value_counts": dict.fromkeys(ids, len(rows)),
        "null_value_counts": {i: column.null_count for i, column in zip(ids, rows.columns, strict=True)},
        "lower_bounds": {i: lower for i, (lower, _) in bounds.items()},
        "upper_bounds": {i: upper for i, (_, upper) in bounds.items()},
        "split_offsets": [4],
    }


def position_delete_file(positions: Mapping[str, Sequence[int]]) -> tuple[bytes, dict[str, Any]]:
    """Encode deleted positions by data file path, sorted by path and position."""
    pairs = sorted((path, at) for path, some in positions.items() for at in some)
    columns = [[path for path, _ in pairs], [at for _, at in pairs]]
    rows = pa.table(columns, schema=arrow_schema(_POSITION_DELETES))
    return parquet_file(rows, {_PATH_FIELD_ID: "string", _POSITION_FIELD_ID: "long"})


def _bounds(type_: str, column: pa.ChunkedArray) -> tuple[bytes, bytes]:
    both = pc.min_max(column)
    integer = {"date": pa.int32(), "timestamptz": pa.int64()}.get(type_)
    lower, upper = ((both[end].cast(integer) if integer else both[end]).as_py() for end in ("min", "max"))
    return to_bytes(type_, lower), to_bytes(type_, upper)
