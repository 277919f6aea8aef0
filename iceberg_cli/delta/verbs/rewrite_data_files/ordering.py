"""The order that rows of a Delta table come into.

Spec: Delta protocol, "Per-file Statistics", "Column Mapping".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from iceberg_cli.delta.rows.column_ranges import bounded_columns, ranges_of
from iceberg_cli.delta.rows.table_columns import VOID
from iceberg_cli.delta.spec.clustering import clustering_columns
from iceberg_cli.delta.spec.protocol import schema_fields
from iceberg_cli.delta.spec.row_ids import record_counts
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.spec.statistics_columns import primitive
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.rewrite_data_files.chosen_files import chosen_files
from iceberg_cli.delta.verbs.rewrite_data_files.clustering import (
    as_declared,
    declared_names,
    others_clustered,
)
from iceberg_cli.delta.verbs.rewrite_data_files.partitions import partitions_of
from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.errors import UsageError
from iceberg_cli.layout.files.ordering import RowOrder, Sortable, row_order
from iceberg_cli.layout.point_reads import column_reads
from iceberg_cli.plan.column_reads import ColumnReads
from iceberg_cli.plan.compaction_policy import DECLARED
from iceberg_cli.plan.sort_terms import SortTerm
from iceberg_cli.plan.where import parse_where

_NO_STATISTICS: Final = "Delta's statistics have no bounds of it"
_IN_PARTITION: Final = "it is a partition column"


def order_of(snapshot: Snapshot, policy: RewriteDataFiles) -> RowOrder | None:
    """The order that rows are to come into; None where they stay in the one that they are in.

    Raises:
        UsageError: it is by a column by which rows cannot be ordered, or none is named.
    """
    metadata, policy = snapshot.metadata, as_declared(policy, snapshot)
    if policy.order_strategy is None:
        return None
    known = bounded_columns(metadata, clustering_columns(snapshot))
    columns: dict[str, Sortable] = {}
    elsewhere: dict[str, str] = {}
    for field in schema_fields(metadata):
        if field["name"] in metadata.partition_columns:
            elsewhere[field["name"]] = _IN_PARTITION
        elif field.get("type") != VOID:
            obstacle = "" if field["name"] in known else _NO_STATISTICS
            columns[field["name"]] = Sortable(len(columns), primitive(field["type"]) or pa.null(), obstacle)

    def default() -> Sequence[SortTerm]:
        if policy.order_strategy != DECLARED:
            raise UsageError(
                "--strategy sort: a Delta table has no sort order of its own",
                next_step="Name columns by --sort-by.",
            )
        paths, names = clustering_columns(snapshot), declared_names(snapshot)
        if not names:
            raise UsageError(
                "--strategy declared: the table declares no clustering",
                next_step="Name columns by --curve-by, or declare it: ALTER TABLE ... CLUSTER BY (...) in Spark.",
            )
        if inner := next((name for path, name in zip(paths, names, strict=True) if len(path) > 1), None):
            raise UsageError(
                f"--strategy declared: rows are not ordered by {inner}, which is a field of a struct",
                next_step="--strategy bin-pack packs files, which are not clustered then.",
            )
        return [SortTerm(name, descending=False, nulls_first=True) for name in names]

    return row_order(policy, columns, elsewhere, default)


def reads_now(table: DeltaTable, policy: RewriteDataFiles) -> tuple[ColumnReads, ...]:
    """What reads of one value of the order's columns open of the files that the policy is about, as they are.

    Raises:
        UsageError: the order is none any more.
    """
    snapshot = table.snapshot
    order = order_of(snapshot, policy)
    if order is None:
        return ()
    if policy.older_than is not None:
        return ()  # new files are young, as those are that stay
    adds = snapshot.adds.filter(pa.array(~others_clustered(policy, snapshot)))
    if policy.where is not None:
        adds = adds.filter(pa.array(chosen_files(parse_where(policy.where), adds, snapshot.metadata)))
    codes, _ = partitions_of(adds, snapshot.metadata)
    ranges = ranges_of(adds, order.names, snapshot.metadata)
    return column_reads(order.names, ranges, np.maximum(record_counts(adds), 0), codes)
