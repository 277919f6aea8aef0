"""VACUUM: the keys of the files that a table's state names, and the names that it does not look at.

A name is hidden that starts with `.` or `_`, and so is everything below it: the log, this tool's own folder, Hadoop's
checksums, the temporary files of writers. Not hidden are names that start with `_delta_index` or `_change_data`, and
folders of partition values, `<column>=`, whatever the column is called. `metadata` is hidden where UniForm keeps
Iceberg metadata there. This is Delta Spark's rule; column names compare exactly.

Spec: Delta protocol, "Add File and Remove File", "Add CDC File", "Deletion Vector Descriptor Schema".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.actions import Actions
from iceberg_cli.delta.spec.iceberg_compat import uniform_formats
from iceberg_cli.delta.spec.paths import dv_path_column, located, physical_column
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.encoding.arrow import one_array
from iceberg_cli.encoding.string_hash import among, hash_column
from iceberg_cli.paths import may_have, path_key_column
from iceberg_cli.plan.listed_files import hidden_names, partition_folders

FILES: Final = pa.schema(
    [("path", pa.string()), ("kind", pa.string()), ("size_bytes", pa.int64()), ("reason", pa.string())]
)
SLICE_ROWS: Final = 1 << 15  # of what is derived of paths at once
CHANGE_DATA: Final = "_change_data"
_NAMES: Final = ["path", "deletionVector"]
_SEEN: Final = ("_delta_index", CHANGE_DATA)


def hides_metadata(configuration: Mapping[str, str]) -> bool:
    """Whether the folder `metadata` holds a table's Iceberg metadata."""
    return "iceberg" in uniform_formats(configuration)


def hidden(paths: pa.Array, *, partition_columns: Sequence[str], metadata: bool) -> pa.Array:
    """Which of n paths a VACUUM does not look at.

    Args:
        paths: n strings relative to the table's folder, without nulls; a plain slash parts their names.
        partition_columns: by their logical names.
        metadata: whether the name `metadata` is hidden too.

    Returns:
        n booleans.
    """
    found = hidden_names(paths, shown=[*_SEEN, *partition_folders(partition_columns)])
    if metadata:
        found = pc.or_(found, pc.match_substring_regex(paths, r"(^|/)metadata(/|$)"))
    return found


def live_keys(
    snapshot: Snapshot, *, root: str, cut_ms: int, commit_ms: pa.Array | None = None
) -> pa.ChunkedArray:
    """The path keys of every file that is active, or was removed at or after the cut-off.

    Args:
        snapshot: the newest.
        root: the table's folder.
        cut_ms: tombstones of this time and later keep their files.
        commit_ms: for each row of `snapshot.removes` the time of its commit, null where it is not known; it stands in
            for a missing `deletionTimestamp`.

    Returns:
        Strings, some more than once.
    """
    removes = snapshot.removes
    deleted_ms = deletion_times(removes, commit_ms)
    young = removes.filter(pc.fill_null(pc.greater_equal(deleted_ms, cut_ms), fill_value=True))
    return _sliced_keys(root, snapshot.adds.select(_NAMES), young.select(_NAMES))


def active_keys(snapshot: Snapshot, *, root: str) -> pa.ChunkedArray:
    """The path keys of the active files and their DV files, some more than once."""
    return _sliced_keys(root, snapshot.adds.select(_NAMES))


def unlisted(snapshot: Snapshot, listing: pa.Table, *, root: str) -> tuple[pa.Array, bool]:
    """The active files below the table's folder that a listing of it does not have, and their DV files, each once.

    Args:
        snapshot: not younger than the listing.
        listing: `STORED_FILES`.
        root: the table's folder.

    Returns:
        Paths, as strings; and whether the listing has any other active file.
    """
    hashes = [hash_column(path_key_column(strings(chunk))) for chunk in listing["path"].chunks]
    listed = np.sort(np.concatenate([np.empty(0, np.uint64), *hashes]))

    def unlisted_of(paths: pa.Array) -> pa.Array:
        return pa.array(~among(hash_column(path_key_column(paths)), listed))

    absent, any_listed = [pa.array([], pa.string())], False
    for batch in snapshot.adds.select(_NAMES).to_batches(max_chunksize=SLICE_ROWS):
        files = pa.Table.from_batches([batch])
        decoded = strings(physical_column(files["path"], root))
        mask = unlisted_of(decoded)
        any_listed = any_listed or mask.false_count > 0
        decoded, logged = decoded.filter(mask), files["path"].filter(mask).to_pylist()
        as_written = pa.array([located(path, path, root) for path in logged], pa.string())
        vectors = strings(dv_path_column(files, root).drop_null())
        absent += [decoded.filter(unlisted_of(as_written)), vectors.filter(unlisted_of(vectors))]
    paths = pc.unique(pa.chunked_array(absent))
    return paths.filter(pc.starts_with(paths, f"{root}/")), any_listed


def removed_keys(actions: Actions, *, root: str) -> pa.ChunkedArray:
    """The path keys of the data files that commits removed, of their DV files, and of the change data they name."""
    return _sliced_keys(root, actions.removes.select(_NAMES), actions.cdc.select(_NAMES[:1]))


def _sliced_keys(root: str, *tables: pa.Table) -> pa.ChunkedArray:
    chunks = [
        keys
        for files in tables
        for batch in files.to_batches(max_chunksize=SLICE_ROWS)
        for keys in _keys(pa.Table.from_batches([batch]), root)
    ]
    return pa.chunked_array(chunks, pa.string())


def deletion_times(removes: pa.Table, commit_ms: pa.Array | None = None) -> pa.ChunkedArray:
    """The deletion times of n tombstones in ms; null where neither they nor their commits have one."""
    times = removes["deletionTimestamp"]
    return times if commit_ms is None else pc.coalesce(times, pa.chunked_array([commit_ms]))


def _keys(files: pa.Table, root: str) -> list[pa.Array]:
    """The paths that rows of file actions may name: their files, decoded and as written, and their DV files."""
    paths = files["path"]
    escaped = paths.filter(pc.match_substring(paths, "%")).to_pylist() if may_have(paths, b"%") else []
    as_written = [located(path, path, root) for path in escaped]
    columns = [physical_column(paths, root), pa.array(as_written, pa.string())]
    if "deletionVector" in files.column_names:
        columns.append(dv_path_column(files, root).drop_null())
    return [path_key_column(strings(column)) for column in columns]


def strings(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column of texts in one piece, of plain strings."""
    return one_array(column).cast(pa.string())
