"""Whether every file of a snapshot that a branch is to go back to is there: each of them is looked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from iceberg_cli.iceberg.reachability.keys import live
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.spec.manifests.manifest import waiting
from iceberg_cli.iceberg.spec.table_metadata.columns import WITH_ROW_IDS
from iceberg_cli.iceberg.table import IcebergTable

if TYPE_CHECKING:
    from iceberg_cli.iceberg.spec.manifests.manifest import EntryBatch, ManifestSource
    from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot

_AT_ONCE: Final = 100_000  # files that are looked for together


class TargetFiles(NamedTuple):
    """The files of a snapshot, as they were looked for.

    Args:
        missing: paths of those that are not there. A list or manifest that is not is all that is told: what it names is
            not known.
        without_ids: data manifests without a `first_row_id`, of a table whose rows have ids; else 0.
    """

    missing: Sequence[str]
    without_ids: int = 0


def look_for_files(table: IcebergTable, snapshot: Snapshot) -> TargetFiles:
    """Read the lists and manifests of a snapshot whole, and look for each file that they name.

    Raises:
        Refused: it is encrypted. CorruptFile: a list or manifest is there and cannot be read whole.
    """
    target = snapshot_files(snapshot)
    lists = [target.manifest_list] if target.manifest_list is not None else list(target.manifests)
    if gone := table.workspace.missing(lists):
        return TargetFiles(gone)
    listed = table.reachability.manifests([target], phase="reading manifest lists", required=True).rows
    if gone := missing_files(table, listed["manifest_path"]):
        return TargetFiles(gone)
    manifests = table.reachability.read_whole([target])
    gone = []
    for paths in table.reachability.from_entries(
        manifests, ("status", "file_path"), _live_paths, phase="looking for files"
    ):
        gone += missing_files(table, paths)
    has_ids = table.metadata.format_version >= WITH_ROW_IDS
    return TargetFiles(gone, int(waiting(listed).sum()) if has_ids else 0)


def _live_paths(_: Sequence[ManifestSource], batch: EntryBatch) -> pa.ChunkedArray:
    paths: pa.ChunkedArray = live(batch.table)["file_path"]
    return paths


def missing_files(table: IcebergTable, paths: pa.ChunkedArray) -> list[str]:
    """Those of n paths at which there is no file, each once."""
    found: list[str] = []
    every = paths.cast(pa.string()).unique()
    for first in range(0, len(every), _AT_ONCE):
        found += table.workspace.missing(every.slice(first, _AT_ONCE).to_pylist())
    return found
