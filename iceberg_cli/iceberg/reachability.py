"""What does a snapshot reach? Pure parts: columns in, columns out.

Kept paths are held as sorted 64-bit hashes of their liveness keys: equal paths hash equally, so a live file is never
missed, and a collision only keeps a file that could have gone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro_hash import hash_column
from iceberg_cli.iceberg.manifest import ManifestSource
from iceberg_cli.paths import canonical_column, liveness_key, liveness_key_column
from iceberg_cli.plan import SnapshotFiles

Keys = npt.NDArray[np.uint64]

NO_KEYS: Keys = np.empty(0, np.uint64)
_SOURCE_COLUMNS = (
    "content",
    "partition_spec_id",
    "sequence_number",
    "added_snapshot_id",
    "first_row_id",
    "added_files_count",
    "existing_files_count",
    "deleted_files_count",
)
_ALIVE = (0, 1)  # EXISTING, ADDED


def keys_of(paths: pa.Array | pa.ChunkedArray) -> Keys:
    """The keys of n paths, in their order."""
    array = paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths
    return hash_column(liveness_key_column(array)) if len(array) else NO_KEYS


def key_set(parts: Sequence[Keys]) -> Keys:
    """Sorted, each key once."""
    return np.unique(np.concatenate(parts)) if parts else NO_KEYS


def keys_of_strings(paths: Sequence[str]) -> Keys:
    """The sorted keys of paths that metadata names directly."""
    return (
        key_set([hash_column(pa.array([liveness_key(path) for path in paths], pa.string()))])
        if paths
        else NO_KEYS
    )


def among(keys: Keys, known: Keys) -> npt.NDArray[np.bool_]:
    """For each of n keys, whether it is in the sorted `known`."""
    if not len(known):
        return np.zeros(len(keys), np.bool_)
    places = np.searchsorted(known, keys)
    places[places == len(known)] = 0
    found: npt.NDArray[np.bool_] = known[places] == keys
    return found


def check_list(snapshot: SnapshotFiles, rows: pa.Table) -> None:
    """Refuse a manifest list that may be the beginning of a longer one.

    A list records no length, and cut at a block boundary it is a legal shorter file. So the live files counted from its
    rows may not be fewer than the snapshot summary's totals; a surplus is legal, other writers' totals drift.

    Raises:
        CorruptFile: fewer files than the summary says; or, without totals, no row at all, or no row of the snapshot's own
            although it added files.
    """
    path = snapshot.manifest_list or f"snapshot {snapshot.snapshot_id}"
    if snapshot.total_data_files is None and snapshot.total_delete_files is None:
        if rows.num_rows == 0:
            raise CorruptFile(
                path, None, "the list is empty, and the snapshot's summary has no totals to confirm it"
            )
        own = pc.any(pc.equal(rows["added_snapshot_id"], snapshot.snapshot_id)).as_py()
        if snapshot.added_data_files and not own:
            raise CorruptFile(
                path,
                None,
                f"snapshot {snapshot.snapshot_id} added files, and no manifest of its own is listed",
            )
        return
    for content, total, what in (
        (0, snapshot.total_data_files, "data files"),
        (1, snapshot.total_delete_files, "delete files"),
    ):
        counted = live_count(rows, content)
        if total is not None and counted is not None and counted < total:
            raise CorruptFile(
                path,
                None,
                f"its manifests hold {counted} {what}, and the snapshot's summary says {total}: it was cut short",
            )


def live_count(rows: pa.Table, content: int) -> int | None:
    """Live files in the manifests of one content, or None where a manifest has no counts (v1)."""
    of_content = rows.filter(pc.equal(rows["content"], content))
    added, existing = of_content["added_files_count"], of_content["existing_files_count"]
    if added.null_count or existing.null_count:
        return None
    return int((pc.sum(added).as_py() or 0) + (pc.sum(existing).as_py() or 0))


def sources_of(rows: pa.Table) -> list[ManifestSource]:
    """Rows of manifest lists as what the entry reader needs, without the bytes."""
    columns = ("manifest_path", "manifest_length", *_SOURCE_COLUMNS)
    values = zip(*(rows[name].to_pylist() for name in columns), strict=True)
    return [
        ManifestSource(path=path, data=b"", length=length, **dict(zip(_SOURCE_COLUMNS, rest, strict=True)))
        for path, length, *rest in values
    ]


def live(entries: pa.Table) -> pa.Table:
    """The entries that a reader of the snapshot sees: ADDED and EXISTING."""
    return entries.filter(pc.is_in(entries["status"], value_set=pa.array(_ALIVE, entries["status"].type)))


def content_removals(
    entries: pa.Table, kept: Keys, seen: Keys, reasons: Sequence[str]
) -> tuple[pa.Table, Keys]:
    """The live files of expired manifests that nothing kept reaches.

    Args:
        entries: with `manifest`, `status`, `content`, `file_path`, `file_format`, `file_size_in_bytes`.
        kept: keys of everything that stays.
        seen: keys of what was returned before.
        reasons: by `manifest`.

    Returns:
        Rows of `removals.SCHEMA` without `step`, each path once; and their keys, sorted.
    """
    rows = live(entries)
    keys = keys_of(rows["file_path"])
    fresh = ~(among(keys, kept) | among(keys, seen))
    _, first = np.unique(keys, return_index=True)
    only_first = np.zeros(len(keys), np.bool_)
    only_first[first] = True
    chosen = np.flatnonzero(fresh & only_first)
    rows = rows.take(pa.array(chosen))
    kinds = pa.array(["data_file", "position_delete_file", "equality_delete_file"])
    paths = rows["file_path"].combine_chunks()
    table = pa.table(
        {
            "path": canonical_column(paths),
            "as_written": paths,
            "kind": kinds.take(rows["content"].cast("int32").combine_chunks()),
            "size_bytes": rows["file_size_in_bytes"].combine_chunks(),
            "reason": pa.array([reasons[m] for m in rows["manifest"].to_pylist()], pa.string()),
        }
    )
    return table, np.sort(keys[chosen])
