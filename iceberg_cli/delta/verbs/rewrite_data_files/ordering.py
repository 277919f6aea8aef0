"""The order that rows of a Delta table come into, and what statistics say of its columns.

Spec: Delta protocol, "Per-file Statistics", "Column Mapping".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.rows.file_statistics import PREFIX
from iceberg_cli.delta.rows.table_columns import VOID
from iceberg_cli.delta.spec.protocol import Metadata, schema_fields
from iceberg_cli.delta.spec.statistics_columns import physical_name, primitive, statistics_type, stats_parsed
from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.encoding.arrow import one_array
from iceberg_cli.errors import UsageError
from iceberg_cli.layout.files.ordering import RowOrder, Sortable, row_order
from iceberg_cli.layout.point_reads import ColumnRanges, column_ranges, cut_alike
from iceberg_cli.plan.sort_terms import SortTerm

_NO_STATISTICS: Final = "Delta's statistics have no bounds of it"
_IN_PARTITION: Final = "it is a partition column"


def order_of(metadata: Metadata, policy: RewriteDataFiles) -> RowOrder | None:
    """The order that rows are to come into; None where they stay in the one that they are in.

    Raises:
        UsageError: it is by a column by which rows cannot be ordered, or none is named.
    """
    if policy.order_strategy is None:
        return None
    kind = statistics_type(
        json.loads(metadata.schema_string),
        metadata.partition_columns,
        metadata.configuration,
        deletion_vectors=False,
    )
    bounds = kind.get_field_index("minValues")
    known = set() if bounds < 0 else {member.name for member in kind.field(bounds).type}
    columns: dict[str, Sortable] = {}
    elsewhere: dict[str, str] = {}
    for field in schema_fields(metadata):
        if field["name"] in metadata.partition_columns:
            elsewhere[field["name"]] = _IN_PARTITION
        elif field.get("type") != VOID:
            obstacle = "" if physical_name(field) in known else _NO_STATISTICS
            columns[field["name"]] = Sortable(len(columns), primitive(field["type"]) or pa.null(), obstacle)

    def default() -> Sequence[SortTerm]:
        raise UsageError(
            "--strategy sort: a Delta table has no sort order of its own",
            next_step="Name columns by --sort-by.",
        )

    return row_order(policy, columns, elsewhere, default)


def ranges_of(adds: pa.Table, order: RowOrder, metadata: Metadata) -> list[ColumnRanges]:
    """What statistics say of the columns of an order, of n files."""
    fields = {field["name"]: field for field in schema_fields(metadata)}
    names = [physical_name(fields[name]) for name in order.names]
    kinds = [primitive(fields[name]["type"]) for name in order.names]
    bounds = pa.struct([pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)])
    counts = pa.struct([pa.field(name, pa.int64()) for name in names])
    members = [
        ("numRecords", pa.int64()),
        ("minValues", bounds),
        ("maxValues", bounds),
        ("nullCount", counts),
    ]
    found = stats_parsed(one_array(adds["stats"]), pa.struct(members))
    records = pc.struct_field(found, "numRecords")
    ranges = []
    for name in names:
        lower, upper, nulls = (
            pc.struct_field(found, [member, name]) for member in ("minValues", "maxValues", "nullCount")
        )
        if pa.types.is_string(lower.type):
            lower, upper = cut_alike(lower, upper, PREFIX, is_raised=False)
        is_null = pc.fill_null(pc.equal(nulls, records), False)  # noqa: FBT003 - Arrow's way
        has_rows = pc.fill_null(pc.greater(records, 0), False)  # noqa: FBT003
        ranges.append(
            column_ranges(lower, upper, np.asarray(pc.and_(is_null, has_rows).to_numpy(zero_copy_only=False)))
        )
    return ranges
