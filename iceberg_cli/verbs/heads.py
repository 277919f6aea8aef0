"""The head of a branch and the rows of its manifest list, with counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.expire_snapshots import snapshot_files
from iceberg_cli.iceberg.manifest import (
    ADDED,
    DELETED,
    EXISTING,
    MANIFEST_LIST_SCHEMA,
    EntryBatch,
    ManifestSource,
)
from iceberg_cli.iceberg.metadata import Snapshot
from iceberg_cli.iceberg.reachability import check_counted
from iceberg_cli.iceberg.snapshots import BRANCH, MAIN
from iceberg_cli.table import IcebergTable

_STATUSES = {"added": ADDED, "existing": EXISTING, "deleted": DELETED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A branch, the snapshot it points to, and the rows of `MANIFEST_LIST_SCHEMA` that this lists."""

    ref: str
    snapshot: Snapshot
    rows: pa.Table


def branches(table: IcebergTable) -> list[str]:
    """The branches of the table as loaded last: main first, then by name."""
    names = [name for name, ref in table.metadata.refs.items() if ref.type == BRANCH]
    return sorted(names, key=lambda name: (name != MAIN, name))


def head_of(table: IcebergTable, ref: str) -> Head:
    """What a branch's head lists. Counts that the list lacks (v1) are counted from the manifests.

    Raises:
        KeyError: there is no such ref. CorruptFile: the list, or a manifest to be counted, cannot be read whole.
    """
    snapshot = table.metadata.snapshot(table.metadata.refs[ref].snapshot_id)
    assert snapshot is not None  # checked when the metadata was read
    phase = "reading the manifest list"
    manifests = table.liveness.manifests([snapshot_files(snapshot)], phase=phase, required=True)
    rows = with_counts(table, manifests.rows.select(MANIFEST_LIST_SCHEMA.names))
    if manifests.uncounted and not table.trust_lists:
        # Without counts the list could not be checked when it was read.
        files = pc.add(rows["added_files_count"], rows["existing_files_count"])
        check_counted(snapshot_files(snapshot), int(pc.sum(files).as_py() or 0))
    return Head(ref=ref, snapshot=snapshot, rows=rows)


def with_counts(table: IcebergTable, rows: pa.Table) -> pa.Table:
    """Rows of a manifest list with every count, read from the manifests where it is null.

    Raises:
        CorruptFile: such a manifest cannot be read whole.
    """
    names = [f"{status}_{unit}_count" for status in _STATUSES for unit in ("files", "rows")]
    unknown = np.zeros(rows.num_rows, np.bool_)
    for name in names:
        unknown |= rows[name].is_null().to_numpy()
    if not unknown.any():
        return rows
    places = {path: place for place, path in enumerate(rows["manifest_path"].to_pylist())}
    counted = {name: rows[name].to_numpy(zero_copy_only=False).copy() for name in names}
    wanted = rows.filter(pa.array(unknown))
    columns = ("status", "record_count")
    for paths, found in table.liveness.from_entries(wanted, columns, _counts, phase="counting manifests"):
        chosen = [places[path] for path in paths]
        for name in names:
            counted[name][chosen] = found[name]
    for name, values in counted.items():
        column = pa.array(values, rows.schema.field(name).type, from_pandas=True)
        rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows


def _counts(
    sources: Sequence[ManifestSource], batch: EntryBatch
) -> tuple[list[str], dict[str, npt.NDArray[np.int64]]]:
    """The paths of a batch's manifests, and files and rows by status of each."""
    owners, status = batch.table["manifest"].to_numpy(), batch.table["status"].to_numpy()
    records = pc.fill_null(batch.table["record_count"], 0).to_numpy()
    chosen = list(batch.sources)
    counts = {}
    for name, value in _STATUSES.items():
        mine = status == value
        rows = np.zeros(len(sources), np.int64)
        np.add.at(rows, owners[mine], records[mine])  # exact, where `bincount` would round
        counts[f"{name}_files_count"] = np.bincount(owners[mine], minlength=len(sources))[chosen]
        counts[f"{name}_rows_count"] = rows[chosen]
    return [sources[index].path for index in chosen], counts
