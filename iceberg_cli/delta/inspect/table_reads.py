"""inspect: how many data files a read of one value opens, for each column of which files have bounds.

Spec: Delta protocol, "Per-file Statistics".
"""

from __future__ import annotations

import numpy as np

from iceberg_cli.delta.rows.column_ranges import bounded_columns, ranges_of
from iceberg_cli.delta.spec.clustering import clustering_columns
from iceberg_cli.delta.spec.row_ids import record_counts
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.verbs.rewrite_data_files.partitions import partitions_of
from iceberg_cli.errors import CorruptFile
from iceberg_cli.layout.point_reads import MOST_FILES, TOO_MANY_FILES, most_columns, table_reads
from iceberg_cli.plan.column_reads import TableReads


def reads_of(snapshot: Snapshot) -> TableReads:
    """What reads of one value open of the data files of a version."""
    adds = snapshot.adds
    if len(adds) > MOST_FILES:
        return TableReads(note=TOO_MANY_FILES)
    try:
        always = clustering_columns(snapshot)
        every = bounded_columns(snapshot.metadata, always)
        names = every[: most_columns(len(adds))]
        if not names or not len(adds):
            return TableReads()
        codes, _ = partitions_of(adds, snapshot.metadata)
        ranges = ranges_of(adds, names, snapshot.metadata)
        rows = np.maximum(record_counts(adds), 0)
    except CorruptFile as error:
        return TableReads(note=f"not told: {error.message}")
    columns = dict(zip(names, ranges, strict=True))
    return table_reads(columns, rows, codes, left_out=len(every) - len(names))
