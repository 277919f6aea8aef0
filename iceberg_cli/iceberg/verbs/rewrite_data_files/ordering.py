"""The order that rows of an Iceberg table come into.

Spec: "Sort Orders".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.branch.column_ranges import partition_codes, ranges_of
from iceberg_cli.iceberg.branch.file_filter import file_filter
from iceberg_cli.iceberg.branch.head import head_of
from iceberg_cli.iceberg.rows.leaf_columns import arrow_schema
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.types.schema import NestedField
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.rewrite_data_files.branch_files import branch_files
from iceberg_cli.iceberg.verbs.rewrite_data_files.key_order import ordered_columns
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.iceberg.verbs.rewrite_data_files.rewriting import fields_in_files
from iceberg_cli.iceberg.verbs.rewrite_data_files.settings import write_settings
from iceberg_cli.layout.files.ordering import RowOrder, Sortable, row_order
from iceberg_cli.layout.point_reads import column_reads
from iceberg_cli.plan.column_reads import ColumnReads
from iceberg_cli.plan.compaction_policy import DECLARED
from iceberg_cli.plan.sort_terms import SortTerm
from iceberg_cli.plan.where import parse_where

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
    flag = f"--strategy {policy.order_strategy}"
    if policy.strategy == DECLARED:  # which is its sort order
        policy = replace(policy, strategy="sort")
    modes = write_settings(metadata, fields, policy).modes
    spec = metadata.partition_spec(metadata.default_spec_id)
    identities = spec.identity_source_ids if spec else set()
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
                f"{flag}: the table has no sort order",
                next_step="Name columns by --sort-by, or give it one: ALTER TABLE ... WRITE ORDERED BY ... in Spark.",
            )
        raise UsageError(
            f"{flag}: rows are not sorted by the table's sort order {order.order_id}: it has a "
            "transform that does not keep the order of values, or a column in a struct or of a type that engines order "
            "in different ways",
            next_step="Name columns by --sort-by.",
        )

    order = row_order(policy, columns, {}, default)
    is_tables = order.curve is None and not policy.sort_by
    return replace(order, columns=ordered_columns(metadata, fields)) if is_tables else order


def is_tables_own(order: RowOrder, metadata: TableMetadata, fields: tuple[NestedField, ...]) -> bool:
    """Whether rows in an order are in the table's sort order, too."""
    own = ordered_columns(metadata, fields)
    return order.curve is None and bool(own) and order.columns[: len(own)] == own


def reads_now(table: IcebergTable, policy: RewriteDataFiles) -> tuple[ColumnReads, ...]:
    """What reads of one value of the order's columns open of the files that the policy is about, as they are.

    Raises:
        UsageError: the order is none any more. CorruptFile: a manifest cannot be read whole.
    """
    metadata = table.metadata
    fields, _ = fields_in_files(metadata.current_schema(), metadata.properties, path=table.metadata_location)
    order = order_of(metadata, policy, fields)
    if order is None:
        return ()
    columns = [fields[each.place] for each in order.columns]
    where = file_filter(() if policy.where is None else parse_where(policy.where), metadata)
    ids = [each.field_id for each in columns]
    data = branch_files(table, head_of(table, policy.branch), where, bounds_of=ids).data
    data = data.filter(data["chosen"]).combine_chunks()
    ranges = ranges_of(data, columns, write_settings(metadata, fields, policy).modes)
    return column_reads(order.names, ranges, data["record_count"].to_numpy(), partition_codes(data))
