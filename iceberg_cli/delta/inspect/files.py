"""inspect: the active files of a snapshot as columns: all of them, those with deletion vectors, sums by partition.

Spec: "Add File and Remove File", "Derived Fields", "Per-file Statistics".
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.inspect.rows import logical_names
from iceberg_cli.delta.spec.columns import ADD, DELETION_VECTOR, STRINGS, dv_ids
from iceberg_cli.delta.spec.paths import dv_path_column
from iceberg_cli.delta.spec.protocol import Metadata
from iceberg_cli.delta.spec.row_ids import UNKNOWN, record_counts
from iceberg_cli.delta.spec.statistics_columns import stats_parsed
from iceberg_cli.encoding.arrow import one_array
from iceberg_cli.errors import CorruptFile

_RECORDS: Final = pa.struct([("numRecords", pa.int64())])
ID_COLUMNS: Final = ("baseRowId",)
"""64-bit ids, which are strings in JSON."""

DELETES_SCHEMA: Final = pa.schema(
    [
        ADD.field("path"),
        ADD.field("partitionValues"),
        pa.field("deletionVector", DELETION_VECTOR),
        pa.field("uniqueId", pa.string()),
        pa.field("absolutePath", pa.string()),
        pa.field("numRecords", pa.int64()),
    ]
)
ROW_IDS_SCHEMA: Final = pa.schema(
    [
        ADD.field("path"),
        ADD.field("baseRowId"),
        ADD.field("defaultRowCommitVersion"),
        pa.field("numRecords", pa.int64()),
    ]
)
PARTITIONS_SCHEMA: Final = pa.schema(
    [
        pa.field("partition", STRINGS),
        pa.field("file_count", pa.int64()),
        pa.field("size", pa.int64()),
        pa.field("numRecords", pa.int64()),
        pa.field("dv_count", pa.int64()),
        pa.field("deleted_record_count", pa.int64()),
        pa.field("modificationTime", pa.int64()),
    ]
)


def num_records(adds: pa.Table) -> pa.Array:
    """`numRecords` of the statistics of n files; null where these do not say it, or are damaged."""
    try:
        counts = record_counts(adds)
    except CorruptFile:
        return pc.struct_field(stats_parsed(one_array(adds.column("stats")), _RECORDS), "numRecords")
    return pa.array(counts, mask=counts == UNKNOWN)


def cardinalities(adds: pa.Table) -> pa.Array:
    """How many rows the deletion vector of each of n files deletes, 0 where it has none."""
    return pc.fill_null(pc.struct_field(one_array(adds.column("deletionVector")), "cardinality"), 0)


def with_vectors(adds: pa.Table) -> pa.Table:
    """Those files that have a deletion vector."""
    return adds.filter(pc.is_valid(adds.column("deletionVector")))


def deletes_table(adds: pa.Table, root: str) -> pa.Table:
    """`DELETES_SCHEMA` of files that have deletion vectors.

    Raises:
        CorruptFile: a descriptor names no file.
    """
    columns = [
        adds["path"],
        adds["partitionValues"],
        adds["deletionVector"],
        dv_ids(adds),
        dv_path_column(adds, root),
        num_records(adds),
    ]
    return pa.Table.from_arrays(columns, schema=DELETES_SCHEMA)


def row_ids_table(adds: pa.Table) -> pa.Table:
    """`ROW_IDS_SCHEMA` of n files."""
    columns = [adds["path"], adds["baseRowId"], adds["defaultRowCommitVersion"], num_records(adds)]
    return pa.Table.from_arrays(columns, schema=ROW_IDS_SCHEMA)


def sizes_table(adds: pa.Table) -> pa.Table:
    """`content`, 0 for data files and 1 for their deletion vectors, and `size_bytes` of each."""
    vectors = pc.struct_field(one_array(adds["deletionVector"]), "sizeInBytes").drop_null()
    sizes = pa.concat_arrays([one_array(adds["size"]).cast(pa.int64()), vectors.cast(pa.int64())])
    content = np.arange(len(sizes)) >= adds.num_rows
    return pa.table({"content": pa.array(content.astype(np.int32)), "size_bytes": sizes})


def partitions_table(adds: pa.Table, metadata: Metadata) -> pa.Table:
    """`PARTITIONS_SCHEMA`: a row for each distinct tuple of partition values, ordered by these, null first.

    `numRecords` is null where a file of the partition does not say its own.
    """
    names = logical_names(metadata)
    keys = [f"p{place}" for place in range(len(names))]
    values = one_array(adds.column("partitionValues"))
    columns: dict[str, pa.Array] = {
        key: pc.map_lookup(values, name, "first") for key, name in zip(keys, names, strict=True)
    }
    records = num_records(adds)
    columns |= {
        "size": one_array(adds["size"]),
        "records": records,
        "unknown": records.is_null().cast(pa.int64()),
        "vectors": one_array(adds["deletionVector"]).is_valid().cast(pa.int64()),
        "deleted": cardinalities(adds),
        "time": one_array(adds["modificationTime"]),
    }
    sums = [
        ("size", "count"),
        *((name, "sum") for name in ("size", "records", "unknown", "vectors", "deleted")),
    ]
    groups = pa.table(columns).group_by(keys).aggregate([*sums, ("time", "max")])
    if keys:
        order = [name for key in keys for name in (f"{key} given", key)]
        for key in keys:
            groups = groups.append_column(f"{key} given", pc.is_valid(groups[key]).cast(pa.int8()))
        groups = groups.sort_by([(name, "ascending") for name in order])
    elif not adds.num_rows:
        return PARTITIONS_SCHEMA.empty_table()
    total = pc.if_else(pc.greater(groups["unknown_sum"], 0), None, pc.fill_null(groups["records_sum"], 0))
    shown = [
        _partition(groups, keys, list(names.values())),
        groups["size_count"],
        groups["size_sum"],
        total,
        groups["vectors_sum"],
        groups["deleted_sum"],
        groups["time_max"],
    ]
    return pa.Table.from_arrays(shown, schema=PARTITIONS_SCHEMA)


def _partition(found: pa.Table, keys: list[str], names: list[str]) -> pa.Array:
    """The values of each row as one map."""
    columns = [found[key].to_pylist() for key in keys]
    rows = list(zip(*columns, strict=True)) if columns else [()] * found.num_rows
    return pa.array([list(zip(names, row, strict=True)) for row in rows], STRINGS)
