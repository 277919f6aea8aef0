"""The order that rows of an Iceberg table come into, and what entries say of its columns.

Spec: "Sort Orders", "Data File Fields" (bounds and counts).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.branch.entry_columns import BOUNDS
from iceberg_cli.iceberg.rows.leaf_columns import arrow_schema
from iceberg_cli.iceberg.rows.metrics_modes import MetricsMode
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.types.schema import NestedField
from iceberg_cli.iceberg.spec.types.single_value import from_bytes
from iceberg_cli.iceberg.verbs.rewrite_data_files.key_order import ordered_columns
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.iceberg.verbs.rewrite_data_files.settings import write_settings
from iceberg_cli.layout.files.ordering import RowOrder, Sortable, row_order
from iceberg_cli.layout.point_reads import ColumnRanges, column_ranges, cut_alike
from iceberg_cli.plan.sort_terms import SortTerm

_NO_BOUNDS: Final = "new files have no bounds of it, by the table's write.metadata.metrics properties"
_IN_PARTITION: Final = "all rows of a partition have one value of it"


def order_of(
    metadata: TableMetadata, policy: RewriteDataFiles, fields: tuple[NestedField, ...]
) -> RowOrder | None:
    """The order that rows are to come into; None where they stay in the one that they are in.

    Args:
        metadata: of the table.
        policy: what the operator asked for.
        fields: that files have.

    Raises:
        UsageError: it is by a column by which rows cannot be ordered, or the table has no order.
    """
    if policy.order_strategy is None:
        return None
    modes = write_settings(metadata, fields, policy).modes
    spec = metadata.partition_spec(metadata.default_spec_id)
    identities = {each.source_id for each in spec.fields if each.transform == "identity"} if spec else set()
    columns = {}
    for place, (field, kind) in enumerate(zip(fields, arrow_schema(fields).types, strict=True)):
        mode = modes.get(field.field_id)
        has_bounds = mode is None or mode.bound_length != 0
        obstacle = _IN_PARTITION if field.field_id in identities else "" if has_bounds else _NO_BOUNDS
        columns[field.name] = Sortable(place, kind, obstacle)

    def default() -> Sequence[SortTerm]:
        own = ordered_columns(metadata, fields)
        if own:
            return [SortTerm(fields[each.place].name, each.descending, each.nulls_first) for each in own]
        order = next(each for each in metadata.sort_orders if each.order_id == metadata.default_sort_order_id)
        if not order.fields:
            raise UsageError(
                "--strategy sort: the table has no sort order",
                next_step="Name columns by --sort-by, or give it one: ALTER TABLE ... WRITE ORDERED BY ... in Spark.",
            )
        raise UsageError(
            f"--strategy sort: rows are not sorted by the table's sort order {order.order_id}: it has a transform, "
            "or a column in a struct or of a type that engines order in different ways",
            next_step="Name columns by --sort-by.",
        )

    return row_order(policy, columns, {}, default)


def is_tables_own(order: RowOrder, metadata: TableMetadata, fields: tuple[NestedField, ...]) -> bool:
    """Whether rows in an order are in the table's sort order, too."""
    own = ordered_columns(metadata, fields)
    return order.curve is None and bool(own) and order.columns[: len(own)] == own


def ranges_of(
    data: pa.Table, order: RowOrder, fields: tuple[NestedField, ...], modes: Mapping[int, MetricsMode]
) -> list[ColumnRanges]:
    """What entries say of the columns of an order.

    Args:
        data: n files: `FILES_SCHEMA`, with the metrics of these columns.
        order: that rows are to come into.
        fields: that files have.
        modes: of the metrics of new files, by field id.
    """
    rows = data["record_count"].to_numpy()
    found = []
    for number, column in enumerate(order.columns):
        field = fields[column.place]
        kind = arrow_schema((field,)).types[0]
        lower, upper = (
            _values(pc.list_element(data[name].combine_chunks(), number), data["path"], field, kind)
            for name in BOUNDS
        )
        mode = modes.get(field.field_id)
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            length = sys.maxsize if mode is None or mode.bound_length is None else mode.bound_length
            lower, upper = cut_alike(lower, upper, length, is_raised=True)
        nulls, nans = (
            pc.fill_null(pc.list_element(data[name].combine_chunks(), number), 0).to_numpy()
            for name in ("null_counts", "nan_counts")
        )
        found.append(column_ranges(lower, upper, (nulls + nans == rows) & (rows > 0)))
    return found


def _values(bounds: pa.Array, paths: pa.ChunkedArray, field: NestedField, kind: pa.DataType) -> pa.Array:
    """Bounds of files as values of their column; null where they are none.

    Raises:
        CorruptFile: one is no value of the column's type.
    """
    if pa.types.is_binary(kind):
        return bounds
    values = [
        None if each is None else from_bytes(str(field.type), each, path=path, field=field.name)
        for each, path in zip(bounds.to_pylist(), paths.to_pylist(), strict=True)
    ]
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int64())
    return pa.array(values, kind)
