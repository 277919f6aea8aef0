"""The head of a branch and the rows of its manifest list, with counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.container import read_header
from iceberg_cli.iceberg.avro.schema import record_of
from iceberg_cli.iceberg.reachability.keys import check_counted, check_lists
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.spec.manifests.manifest import (
    MANIFEST_LIST_SCHEMA,
    STATUSES,
    EntryBatch,
    ManifestSource,
    read_manifest_list,
)
from iceberg_cli.iceberg.spec.manifests.nameless_ids import identified_list
from iceberg_cli.iceberg.spec.manifests.unknown_fields import unknown_fields_reason, unknown_row_fields
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot
from iceberg_cli.iceberg.spec.table_metadata.snapshot import BRANCH, MAIN
from iceberg_cli.iceberg.table import IcebergTable

_COUNTS = tuple(f"{status}_{unit}_count" for status in STATUSES for unit in ("files", "rows"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchHead:
    """A branch, the snapshot it points to, and the rows of `MANIFEST_LIST_SCHEMA` that this lists.

    `unknown_fields` are those that its manifest list has besides, and that a new list would lose. `uncounted` are the
    paths of the manifests whose counts the list lacks; `rows` has them.
    """

    ref: str
    snapshot: Snapshot
    rows: pa.Table
    unknown_fields: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()

    @property
    def blocked_by(self) -> tuple[str, ...]:
        """Why no new list may replace this one; empty where one may."""
        if not self.unknown_fields:
            return ()
        return (unknown_fields_reason(self.snapshot.manifest_list or "", self.unknown_fields),)


def branches(table: IcebergTable) -> list[str]:
    """The branches of the table as loaded last: main first, then by name."""
    names = [name for name, ref in table.metadata.refs.items() if ref.type == BRANCH]
    return sorted(names, key=lambda name: (name != MAIN, name))


def head_of(table: IcebergTable, ref: str) -> BranchHead:
    """The head of a branch. Counts that its list lacks (v1) are counted from the manifests.

    Raises:
        KeyError: there is no such ref. CorruptFile: the list, or a manifest to be counted, cannot be read whole.
    """
    snapshot = table.metadata.snapshot(table.metadata.refs[ref].snapshot_id)
    assert snapshot is not None  # checked when the metadata was read
    listed, unknown_fields = _listed(table, snapshot)
    rows = with_counts(table, listed)
    uncounted = listed.filter(array_of(_without_counts(listed)))["manifest_path"].to_pylist()
    if not table.trust_lists:
        # Where the list had no counts it could not be checked when it was read.
        files = pc.add(rows["added_files_count"], rows["existing_files_count"])
        check_counted(snapshot_files(snapshot), int(pc.sum(files).as_py() or 0))
    return BranchHead(
        ref=ref, snapshot=snapshot, rows=rows, unknown_fields=unknown_fields, uncounted=tuple(uncounted)
    )


def _listed(table: IcebergTable, snapshot: Snapshot) -> tuple[pa.Table, tuple[str, ...]]:
    """The rows of a snapshot's list, unchanged for a commit that lists them again; and fields of it that are unknown.

    Raises:
        CorruptFile: the list cannot be read whole, or has a manifest twice.
    """
    path = snapshot.manifest_list
    files = snapshot_files(snapshot)
    if path is None:
        phase = "reading the manifests that the snapshot names"
        rows = table.reachability.manifests([files], phase=phase, required=True).rows
        return rows.select(MANIFEST_LIST_SCHEMA.names), ()
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
    return rows, unknown_row_fields(record_of(identified_list(read_header(data, path)).type, path))


def with_lengths(table: IcebergTable, head: BranchHead) -> tuple[BranchHead, Mapping[str, str]]:
    """A head whose rows have the manifests' true lengths.

    Args:
        table: whose files are measured.
        head: with counts, by which a manifest of another length is proved whole before a commit, see `open_manifest`.

    Returns:
        The head; and a text of both lengths, by path, for each manifest with another one.
    """
    paths, listed = head.rows["manifest_path"].to_pylist(), head.rows["manifest_length"].to_pylist()
    plain = head.rows["key_metadata"].is_null().to_pylist()
    infos = table.storage.stat_many(paths)
    true = [
        info.size_bytes if is_plain and info is not None and length is not None else length
        for info, length, is_plain in zip(infos, listed, plain, strict=True)
    ]
    stale = {
        path: f"it has {size:,} bytes, and the list says {length:,}"
        for path, size, length in zip(paths, true, listed, strict=True)
        if size != length
    }
    if not stale:
        return head, {}
    place = head.rows.column_names.index("manifest_length")
    return replace(
        head, rows=head.rows.set_column(place, "manifest_length", pa.array(true, pa.int64()))
    ), stale


def _without_counts(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Which rows of a manifest list lack a count."""
    unknown = np.zeros(rows.num_rows, np.bool_)
    for name in _COUNTS:
        unknown |= rows[name].is_null().to_numpy()
    return unknown


def with_counts(table: IcebergTable, rows: pa.Table) -> pa.Table:
    """Rows of a manifest list with every count, read from the manifests where it is null.

    Raises:
        CorruptFile: such a manifest cannot be read whole.
    """
    unknown = _without_counts(rows)
    if not unknown.any():
        return rows
    places = {path: place for place, path in enumerate(rows["manifest_path"].to_pylist())}
    counted = {name: rows[name].to_numpy(zero_copy_only=False).copy() for name in _COUNTS}
    uncounted = rows.filter(array_of(unknown))
    columns = ("status", "record_count")
    for paths, found in table.reachability.from_entries(
        uncounted, columns, _counts, phase="counting manifests"
    ):
        chosen = [places[path] for path in paths]
        for name in _COUNTS:
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
    for name, value in STATUSES.items():
        mine = status == value
        rows = np.zeros(len(sources), np.int64)
        np.add.at(rows, owners[mine], records[mine])  # exact, where `bincount` would round
        counts[f"{name}_files_count"] = np.bincount(owners[mine], minlength=len(sources))[chosen]
        counts[f"{name}_rows_count"] = rows[chosen]
    return [sources[index].path for index in chosen], counts
