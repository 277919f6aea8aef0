"""The live data files and delete files of a branch's head, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.branch.entry_columns import (
    DELETE_COLUMNS,
    DELETES_SCHEMA,
    FILE_COLUMNS,
    FILES_SCHEMA,
    METRICS,
    EntryReader,
    Ints,
)
from iceberg_cli.iceberg.branch.file_filter import FileFilter
from iceberg_cli.iceberg.branch.head import BranchHead
from iceberg_cli.iceberg.reachability.keys import sources_of
from iceberg_cli.iceberg.spec.manifests.manifest import DATA, DELETES
from iceberg_cli.iceberg.spec.table_metadata.columns import column_types
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.table import IcebergTable


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchFiles:
    """What a branch's head lists, live.

    Args:
        metadata: of the table.
        head: of the branch, whose rows the columns `manifest` count.
        data: f data files: `FILES_SCHEMA`.
        deletes: d delete files and deletion vectors: `DELETES_SCHEMA`.
        tuples: the partition of each key, in Avro's representation.
    """

    metadata: TableMetadata
    head: BranchHead
    data: pa.Table
    deletes: pa.Table
    tuples: Mapping[bytes, tuple[Any, ...]]


def branch_files(
    table: IcebergTable,
    head: BranchHead,
    where: FileFilter | None = None,
    *,
    bounds_of: Sequence[int] = (),
    earlier: BranchFiles | None = None,
) -> BranchFiles:
    """Read the manifests of a head.

    Args:
        table: as loaded.
        head: of one of its branches.
        where: data files and deletes say whether they are chosen; None: all are.
        bounds_of: columns whose bounds and numbers of nulls data files say, by their ids.
        earlier: read before with neither of these; a manifest that both heads list alike is not read again.

    Raises:
        CorruptFile: one cannot be read whole.
    """
    metadata, where = table.metadata, where or FileFilter()
    paths = head.rows["manifest_path"].to_pylist()
    reader = EntryReader(
        specs={spec.spec_id: spec for spec in metadata.partition_specs},
        types=column_types(metadata),
        places={path: place for place, path in enumerate(paths)},
        where=where,
        bounds_of=bounds_of,
    )
    metrics = METRICS if bounds_of else ()
    tuples: dict[bytes, tuple[Any, ...]] = {}
    data: list[pa.Table] = [FILES_SCHEMA.empty_table()]
    deletes: list[pa.Table] = [DELETES_SCHEMA.empty_table()]
    unread = head.rows
    if earlier is not None and _has_equal_keys(earlier.metadata, metadata):
        places = _places_now(earlier.head, head)
        data.append(_listed_again(earlier.data, places))
        deletes.append(_listed_again(earlier.deletes, places))
        tuples |= earlier.tuples
        unread = head.rows.filter(pa.array(~np.isin(np.arange(len(head.rows)), places)))
    for content, columns, make, found in (
        (DATA, tuple(dict.fromkeys((*FILE_COLUMNS, *where.entry_columns, *metrics))), reader.files, data),
        (DELETES, DELETE_COLUMNS, reader.deletes, deletes),
    ):
        rows = unread.filter(pc.equal(unread["content"], content))
        phase = "reading data manifests" if content == DATA else "reading delete manifests"
        for part, own in table.reachability.from_entries(rows, columns, make, phase=phase):
            found.append(part)
            tuples |= own
    return BranchFiles(
        metadata=metadata,
        head=head,
        data=pa.concat_tables(data).combine_chunks(),
        deletes=pa.concat_tables(deletes).combine_chunks(),
        tuples=tuples,
    )


def _has_equal_keys(first: TableMetadata, second: TableMetadata) -> bool:
    """Whether partitions have the same keys: these are made by the types of columns."""
    return first.partition_specs == second.partition_specs and column_types(first) == column_types(second)


def _places_now(earlier: BranchHead, now: BranchHead) -> Ints:
    """Of each manifest that a head listed, its row in another one; -1 where that does not list it, or not alike."""
    # All that entries inherit is compared: one path may be listed with other numbers or row ids by another branch.
    places = {source: place for place, source in enumerate(sources_of(now.rows))}
    return np.array([places.get(source, -1) for source in sources_of(earlier.rows)], np.int64)


def _listed_again(entries: pa.Table, places: Ints) -> pa.Table:
    """The entries of manifests that are still listed."""
    now = places[entries["manifest"].to_numpy()] if len(entries) else np.empty(0, np.int64)
    column = pa.array(now[now >= 0], pa.int32())
    kept = entries.filter(pa.array(now >= 0))
    return kept.set_column(kept.column_names.index("manifest"), "manifest", column)
