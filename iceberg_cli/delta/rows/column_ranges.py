"""What statistics of data files say of columns: the least and the greatest value in each file.

Spec: Delta protocol, "Per-file Statistics", "Column Mapping".
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.rows.file_statistics import PREFIX
from iceberg_cli.delta.spec.protocol import Metadata, schema_fields
from iceberg_cli.delta.spec.statistics_columns import physical_name, primitive, statistics_type, stats_parsed
from iceberg_cli.encoding.arrow import one_array
from iceberg_cli.layout.point_reads import ColumnRanges, column_ranges, cut_alike, has_length


def bounded_columns(metadata: Metadata, always: Sequence[tuple[str, ...]]) -> list[str]:
    """The columns of a table, by their names and in their order, of which statistics have bounds.

    Args:
        metadata: of the table.
        always: physical paths of those that have them whatever properties say: by which it is clustered.
    """
    kind = statistics_type(
        json.loads(metadata.schema_string),
        metadata.partition_columns,
        metadata.configuration,
        deletion_vectors=False,
        always=always,
    )
    bounds = kind.get_field_index("minValues")
    known = set() if bounds < 0 else {member.name for member in kind.field(bounds).type}
    fields = (each for each in schema_fields(metadata) if primitive(each.get("type")) is not None)
    return [each["name"] for each in fields if physical_name(each) in known]


def ranges_of(adds: pa.Table, columns: Sequence[str], metadata: Metadata) -> list[ColumnRanges]:
    """What statistics say of some columns of a table, which have bounds, in n files."""
    fields = {field["name"]: field for field in schema_fields(metadata)}
    names = [physical_name(fields[name]) for name in columns]
    kinds = [primitive(fields[name]["type"]) for name in columns]
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
        is_cut = False
        if pa.types.is_string(lower.type):
            lower, upper = cut_alike(lower, upper, PREFIX, is_raised=False)
            is_cut = has_length(lower, PREFIX)
        is_null = pc.fill_null(pc.equal(nulls, records), False)  # noqa: FBT003 - Arrow's way
        has_rows = pc.fill_null(pc.greater(records, 0), False)  # noqa: FBT003
        # Whoever counted nulls and has no bounds keeps none: of NaN, and of text that is not compared by its bytes.
        is_boundless = pc.and_(pc.and_(nulls.is_valid(), lower.is_null()), pc.invert(is_null))
        ranges.append(
            column_ranges(
                lower,
                upper,
                np.asarray(pc.and_(is_null, has_rows).to_numpy(zero_copy_only=False)),
                is_boundless=np.asarray(is_boundless.to_numpy(zero_copy_only=False)),
                is_cut=is_cut,
            )
        )
    return ranges
