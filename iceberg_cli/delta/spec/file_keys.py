"""Keys of the files that a Delta table's state names: data files, deletion vector files, change data.

Spec: Delta protocol, "Add File and Remove File", "Add CDC File", "Deletion Vector Descriptor Schema".
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.actions import Actions
from iceberg_cli.delta.spec.paths import dv_path_column, physical_column
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.paths import canonical, may_have, path_key_column

FILES: Final = pa.schema(
    [("path", pa.string()), ("kind", pa.string()), ("size_bytes", pa.int64()), ("reason", pa.string())]
)
_NAMES: Final = ["path", "deletionVector"]
SLICE_ROWS: Final = 1 << 15  # of what is derived of paths at once
_ABSOLUTE = re.compile(r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?/")


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
    plain = [canonical(path) if _ABSOLUTE.match(path) else f"{root}/{path}" for path in escaped]
    places = [physical_column(paths, root), pa.array(plain, pa.string())]
    if "deletionVector" in files.column_names:
        places.append(dv_path_column(files, root).drop_null())
    return [path_key_column(strings(column)) for column in places]


def strings(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column of texts in one piece, of plain strings."""
    flat = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return flat.cast(pa.string())
