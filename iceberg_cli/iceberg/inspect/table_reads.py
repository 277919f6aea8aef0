"""inspect: how many data files a read of one value opens, for each column of which files have bounds.

Spec: "Data File Fields" (bounds and counts).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.iceberg.branch.column_ranges import partition_codes, ranges_of
from iceberg_cli.iceberg.branch.entry_columns import FILE_COLUMNS, FILES_SCHEMA, METRICS, EntryReader
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.rows.leaf_columns import arrow_schema
from iceberg_cli.iceberg.rows.metrics_modes import metrics_modes
from iceberg_cli.iceberg.spec.manifests.manifest import DATA
from iceberg_cli.iceberg.spec.table_metadata.columns import column_types
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.types.schema import NestedField
from iceberg_cli.layout.point_reads import MOST_FILES, TOO_MANY_FILES, most_columns, table_reads
from iceberg_cli.layout.row_order import is_comparable
from iceberg_cli.plan.column_reads import TableReads

_READ_BYTES: Final = 1 << 20  # of manifests at once: with bounds entries take some hundred times as much


def reads_of(metadata: TableMetadata, reachability: Reachability, manifests: pa.Table) -> TableReads:
    """What reads of one value open of the data files of a snapshot.

    Args:
        metadata: of the table.
        reachability: reads manifests.
        manifests: rows of the snapshot's list.
    """
    rows = manifests.filter(pc.equal(manifests["content"], DATA))
    listed = (pc.sum(rows[f"{status}_files_count"]).as_py() or 0 for status in ("added", "existing"))
    every = _fields(metadata)
    fields = every[: most_columns(sum(listed))]
    if not fields:
        return TableReads()
    reader = EntryReader(
        specs={spec.spec_id: spec for spec in metadata.partition_specs},
        types=column_types(metadata),
        places={path: place for place, path in enumerate(rows["manifest_path"].to_pylist())},
        bounds_of=[field.field_id for field in fields],
    )
    parts, files = [FILES_SCHEMA.empty_table()], 0
    try:
        for part, _ in reachability.from_entries(
            rows, (*FILE_COLUMNS, *METRICS), reader.files, phase="reading bounds", batch_bytes=_READ_BYTES
        ):
            parts.append(part)
            files += len(part)
            if files > MOST_FILES:
                return TableReads(note=TOO_MANY_FILES)
        data = pa.concat_tables(parts).combine_chunks()
        modes, _ = metrics_modes(fields, metadata.properties)
        ranges = ranges_of(data, fields, modes)
    except CorruptFile as error:
        return TableReads(note=f"not told: {error.message}")
    names = [field.name for field in fields]
    return table_reads(
        dict(zip(names, ranges, strict=True)),
        data["record_count"].to_numpy(),
        partition_codes(data),
        left_out=len(every) - len(fields),
    )


def _fields(metadata: TableMetadata) -> list[NestedField]:
    """The columns that may tell the files of a partition apart, in their order."""
    spec = metadata.partition_spec(metadata.default_spec_id)
    in_partition = spec.identity_source_ids if spec else set()
    found = []
    for field in metadata.current_schema().fields:
        if field.field_id in in_partition:
            continue
        try:
            (kind,) = arrow_schema((field,)).types
        except (Refused, ValueError):  # a type that is not written here, or one that no file has
            continue
        if is_comparable(kind):
            found.append(field)
    return found
