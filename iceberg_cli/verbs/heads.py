"""The head of a branch and the rows of its manifest list, with counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.arrow_arrays import array_of
from iceberg_cli.iceberg.expire_snapshots import snapshot_files
from iceberg_cli.iceberg.manifest import (
    ADDED,
    DATA,
    DELETED,
    EXISTING,
    MANIFEST_LIST_SCHEMA,
    EntryBatch,
    ManifestSource,
    read_manifest_list,
)
from iceberg_cli.iceberg.metadata import Snapshot
from iceberg_cli.iceberg.reachability import check_counted, check_lists
from iceberg_cli.iceberg.snapshots import BRANCH, MAIN
from iceberg_cli.table import IcebergTable

_ROW_LINEAGE = 3  # format version from which on rows have ids
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
    rows = with_counts(table, _listed(table, snapshot))
    if not table.trust_lists:
        # Where the list had no counts it could not be checked when it was read.
        files = pc.add(rows["added_files_count"], rows["existing_files_count"])
        check_counted(snapshot_files(snapshot), int(pc.sum(files).as_py() or 0))
    _check_row_counts(table, snapshot, rows)
    return Head(ref=ref, snapshot=snapshot, rows=rows)


def _listed(table: IcebergTable, snapshot: Snapshot) -> pa.Table:
    """The rows of a snapshot's list as they are: what a commit lists again may lose none of them.

    Raises:
        CorruptFile: the list cannot be read whole, or has a manifest twice.
    """
    path = snapshot.manifest_list
    files = snapshot_files(snapshot)
    if path is None:
        phase = "reading the manifests that the snapshot names"
        rows = table.liveness.manifests([files], phase=phase, required=True).rows
        return rows.select(MANIFEST_LIST_SCHEMA.names)
    try:
        data = table.storage.read(path)
    except FileNotFoundError:
        raise CorruptFile(path, None, "the table needs this file and it is not there") from None
    rows = read_manifest_list(data, path, format_version=1)
    if not table.trust_lists:
        zeros = array_of(np.zeros(rows.num_rows, np.int32))
        check_lists([files], rows.add_column(0, "list", zeros))
    paths = rows["manifest_path"]
    if len(pc.unique(paths)) < len(paths):
        twice = next(found["values"] for found in pc.value_counts(paths).to_pylist() if found["counts"] > 1)
        raise CorruptFile(path, "field manifest_path", f"it lists {twice} twice")
    return rows


def _check_row_counts(table: IcebergTable, snapshot: Snapshot, rows: pa.Table) -> None:
    """Ids are reserved by the list's row counts: where the summary does not confirm them, the manifests must.

    Raises:
        CorruptFile: a manifest that waits for row ids has another number of rows than the list says.
    """
    waiting = pc.and_(pc.equal(rows["content"], DATA), rows["first_row_id"].is_null())
    if table.metadata.format_version < _ROW_LINEAGE or not pc.any(waiting).as_py():
        return
    listed = pc.add(rows["added_rows_count"], rows["existing_rows_count"])
    total = pc.sum(listed.filter(pc.equal(rows["content"], DATA))).as_py() or 0
    if (snapshot.summary or {}).get("total-records") == str(total):
        return
    said = dict(zip(rows["manifest_path"].to_pylist(), listed.to_pylist(), strict=True))
    wanted, columns = rows.filter(waiting), ("status", "record_count")
    for paths, found in table.liveness.from_entries(wanted, columns, _counts, phase="counting manifests"):
        counted = found["added_rows_count"] + found["existing_rows_count"]
        for path, count in zip(paths, counted.tolist(), strict=True):
            if count != said[path]:
                reason = f"it has {count} rows, and its manifest list says {said[path]}"
                raise CorruptFile(path, "record_count", reason)


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
    wanted = rows.filter(array_of(unknown))
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
