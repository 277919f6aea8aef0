"""What entries of data files say of columns: the least and the greatest value in each file.

Spec: "Data File Fields" (bounds and counts), Appendix D, "Binary single-value serialization".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.branch.entry_columns import BOUNDS, Ints
from iceberg_cli.iceberg.rows.leaf_columns import arrow_schema
from iceberg_cli.iceberg.rows.metrics_modes import MetricsMode
from iceberg_cli.iceberg.spec.types.fixed_width import numbers_of
from iceberg_cli.iceberg.spec.types.schema import NestedField
from iceberg_cli.iceberg.spec.types.single_value import from_bytes
from iceberg_cli.layout.point_reads import ColumnRanges, column_ranges, cut_alike, has_length


def ranges_of(
    data: pa.Table, fields: Sequence[NestedField], modes: Mapping[int, MetricsMode]
) -> list[ColumnRanges]:
    """What entries say of columns.

    Args:
        data: n files: `FILES_SCHEMA`, with the metrics of these columns.
        fields: the columns.
        modes: of the metrics of new files, by field id.

    Raises:
        CorruptFile: a bound is no value of its column's type.
    """
    rows = data["record_count"].to_numpy()
    found = []
    for number, field in enumerate(fields):
        kind = arrow_schema((field,)).types[0]
        lower, upper = (
            _values(pc.list_element(data[name].combine_chunks(), number), data["path"], field, kind)
            for name in BOUNDS
        )
        mode, is_cut = modes.get(field.field_id), False
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            # Without bounds in new files those that there are were cut to a length that is not known.
            length = sys.maxsize if mode is None or not mode.bound_length else mode.bound_length
            lower, upper = cut_alike(lower, upper, length, is_raised=True)
            is_cut = has_length(lower, length)
        nulls, nans = (
            pc.fill_null(pc.list_element(data[name].combine_chunks(), number), 0).to_numpy()
            for name in ("null_counts", "nan_counts")
        )
        found.append(column_ranges(lower, upper, (nulls + nans == rows) & (rows > 0), is_cut=is_cut))
    return found


def partition_codes(data: pa.Table) -> Ints:
    """Of n files, `FILES_SCHEMA`, a number for each partition."""
    codes = data["key"].combine_chunks().dictionary_encode().indices
    return np.asarray(codes.to_numpy(), np.int64)


def _values(bounds: pa.Array, paths: pa.ChunkedArray, field: NestedField, kind: pa.DataType) -> pa.Array:
    """Bounds of files as values of their column; null where they are none.

    Raises:
        CorruptFile: one is no value of the column's type.
    """
    if pa.types.is_binary(kind):
        return bounds
    if (numbers := numbers_of(str(field.type), bounds)) is not None:
        return numbers
    values = [
        None if each is None else from_bytes(str(field.type), each, path=path, field=field.name)
        for each, path in zip(bounds.to_pylist(), paths.to_pylist(), strict=True)
    ]
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int64())
    return pa.array(values, kind)
