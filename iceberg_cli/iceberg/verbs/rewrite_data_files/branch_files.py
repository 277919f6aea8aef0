"""The live data files and delete files of a branch's head, as columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.branch.entry_columns import (
    BOUNDS,
    DELETE_COLUMNS,
    FILE_COLUMNS,
    FILES_SCHEMA,
    EntryReader,
    all_deletes,
)
from iceberg_cli.iceberg.branch.file_filter import FileFilter
from iceberg_cli.iceberg.branch.head import BranchHead
from iceberg_cli.iceberg.spec.manifests.manifest import DATA, DELETES
from iceberg_cli.iceberg.spec.table_metadata.columns import column_types
from iceberg_cli.iceberg.table import IcebergTable


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchFiles:
    """What a branch's head lists, live.

    Args:
        head: of the branch, whose rows the columns `manifest` count.
        data: f data files: `FILES_SCHEMA`.
        deletes: d delete files and deletion vectors, see `all_deletes`.
        tuples: the partition of each key, in Avro's representation.
    """

    head: BranchHead
    data: pa.Table
    deletes: pa.Table
    tuples: Mapping[bytes, tuple[Any, ...]]


def branch_files(
    table: IcebergTable, head: BranchHead, where: FileFilter | None = None, *, bounds_of: int | None = None
) -> BranchFiles:
    """Read the manifests of a head.

    Args:
        table: as loaded.
        head: of one of its branches.
        where: data files and deletes say whether they are chosen; None: all are.
        bounds_of: a column whose bounds data files say, by its id.

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
    bounds = () if bounds_of is None else BOUNDS
    tuples: dict[bytes, tuple[Any, ...]] = {}
    data: list[pa.Table] = [FILES_SCHEMA.empty_table()]
    deletes: list[pa.Table] = []
    for content, columns, make, found in (
        (DATA, tuple(dict.fromkeys((*FILE_COLUMNS, *where.entry_columns, *bounds))), reader.files, data),
        (DELETES, DELETE_COLUMNS, reader.deletes, deletes),
    ):
        rows = head.rows.filter(pc.equal(head.rows["content"], content))
        phase = "reading data manifests" if content == DATA else "reading delete manifests"
        for part, own in table.reachability.from_entries(rows, columns, make, phase=phase):
            found.append(part)
            tuples |= own
    return BranchFiles(
        head=head,
        data=pa.concat_tables(data).combine_chunks(),
        deletes=all_deletes(deletes),
        tuples=tuples,
    )
