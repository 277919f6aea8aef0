"""Which files are a table's own to delete.

Nothing outside the table's locations, and a metadata file only where the table's own properties drop it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.paths import Roots, canonical
from iceberg_cli.plan.plan import Change
from iceberg_cli.plan.removal_rows import SCHEMA

_METADATA_FILE = r"\.metadata\.json(\.gz)?$"
_LOCATIONS = ("write.data.path", "write.metadata.path")


def folders(metadata: TableMetadata) -> list[str]:
    """The table's location, and where its properties put data and metadata."""
    properties = metadata.properties
    return [metadata.location, *(properties[name] for name in _LOCATIONS if name in properties)]


def metadata_folders(metadata: TableMetadata, location: str) -> frozenset[str]:
    """The canonical folders that hold the table's metadata files, by its properties and by its log.

    Args:
        metadata: current.
        location: of `metadata`.
    """
    files = [location, *(entry.metadata_file for entry in metadata.metadata_log)]
    own = metadata.properties.get("write.metadata.path", f"{metadata.location.rstrip('/')}/metadata")
    return frozenset([*(canonical(file).rpartition("/")[0] for file in files), canonical(own).rstrip("/")])


def files_of_metadata(metadata: TableMetadata, location: str) -> list[str]:
    """The files that metadata names itself: its own, those of its log, statistics."""
    logged = [entry.metadata_file for entry in metadata.metadata_log]
    statistics = [entry.statistics_path for entry in metadata.statistics]
    by_partition = [entry.statistics_path for entry in metadata.partition_statistics]
    return [location, *logged, *statistics, *by_partition]


def earlier_folders(metadata: TableMetadata) -> dict[str, list[str]]:
    """The files of the metadata log by their folders, without those in `metadata` of the location of today."""
    now = f"{canonical(metadata.location).rstrip('/')}/metadata"
    files_by_folder: dict[str, list[str]] = {}
    for entry in metadata.metadata_log:
        files_by_folder.setdefault(canonical(entry.metadata_file).rpartition("/")[0], []).append(
            entry.metadata_file
        )
    files_by_folder.pop(now, None)
    return files_by_folder


def own_removals(rows: pa.Table, roots: Roots) -> pa.Array:
    """Which of n removals are the table's to delete."""
    parts = [pa.array([], pa.bool_())]
    for batch in rows.to_batches():
        metadata_file = pc.match_substring_regex(batch["path"], _METADATA_FILE)
        by_rule = pc.equal(metadata_file, pc.equal(batch["kind"], "metadata_file"))
        parts.append(pc.and_(roots.own_column(batch["path"]), by_rule))
    return pa.concat_arrays(parts)


def dropped_metadata(
    metadata: TableMetadata, location: str, change: Change, *, timestamp_ms: int
) -> Sequence[str]:
    """The metadata files that a table's own properties drop with a commit.

    Args:
        metadata: current.
        location: of `metadata`.
        change: that is committed.
        timestamp_ms: then.
    """
    from iceberg_cli.iceberg.commit.update import dropped_metadata_files, updates_from_json, with_updates

    updates = updates_from_json(change.updates)
    after = with_updates(metadata, updates, base_location=location, timestamp_ms=timestamp_ms)
    return dropped_metadata_files(metadata, after)


def metadata_removals(paths: Sequence[str], *, step: str, canonical: Callable[[str], str]) -> pa.Table:
    """Rows of `removal_rows.SCHEMA` for metadata files that the table's own properties drop."""
    return pa.table(
        {
            "step": pa.array([step] * len(paths), pa.string()),
            "path": pa.array([canonical(path) for path in paths], pa.string()),
            "as_written": pa.array(paths, pa.string()),
            "kind": pa.array(["metadata_file"] * len(paths), pa.string()),
            "size_bytes": pa.nulls(len(paths), pa.int64()),
            "reason": pa.array(["write.metadata.delete-after-commit.enabled"] * len(paths), pa.string()),
        },
        schema=SCHEMA,
    )


def discardable(
    paths: Sequence[str],
    *,
    metadata: TableMetadata,
    location: str,
    marks: Sequence[str],
    canonical: Callable[[str], str],
    earlier: Iterable[str] = (),
) -> list[str]:
    """Those of `paths` that this tool made and that cannot be another's or the table's.

    Args:
        paths: that nothing references.
        metadata: current.
        location: of `metadata`.
        marks: operation id or commit UUIDs; one of them is in each file's name.
        canonical: the storage's.
        earlier: locations of the table at which an open operation began.
    """
    named = {
        canonical(path) for path in (location, *(entry.metadata_file for entry in metadata.metadata_log))
    }
    own = Roots.of((), allowed=[*folders(metadata), *earlier])
    keys = {path: canonical(path) for path in paths}
    return [
        path
        for path, key in keys.items()
        if key not in named and own.own(key) and any(mark in key.rsplit("/", 1)[-1] for mark in marks)
    ]
