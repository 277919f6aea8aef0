"""Looks at what a checked table's storage has: whether files are there, and their sizes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.encoding.string_hash import hash_column
from iceberg_cli.engines import Event
from iceberg_cli.iceberg.check.files import check_stored
from iceberg_cli.iceberg.spec.metadata import PartitionStatisticsFile, StatisticsFile
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.operation.sizes import GONE, OUT_OF_REACH, stored_sizes
from iceberg_cli.plan.findings import Findings, Ints

_STAT_AT_ONCE: Final = 100_000
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCheck:
    """Compares a table's storage with metadata and manifests."""

    table: IcebergTable
    findings: Findings

    def look_at_lists(self, *, read: Collection[int]) -> None:
        """Whether the manifest lists of all snapshots but those that were read are there."""
        others = [
            (snapshot.snapshot_id, snapshot.manifest_list)
            for snapshot in self.table.metadata.snapshots
            if snapshot.manifest_list is not None and snapshot.snapshot_id not in read
        ]
        sizes = self._stored([path for _, path in others])
        for (snapshot_id, path), size in zip(others, sizes.tolist(), strict=True):
            if size == GONE:
                message = f"the list of snapshot {snapshot_id} is not there"
                self.findings.add("manifest-list-missing", path, message)

    def look_at_statistics(self) -> frozenset[str]:
        """Whether the statistics files that metadata names are there, and their sizes; those that are out of reach."""
        metadata = self.table.metadata
        files: list[StatisticsFile | PartitionStatisticsFile] = [
            *metadata.statistics,
            *metadata.partition_statistics,
        ]
        sizes = self._stored([file.statistics_path for file in files])
        for file, size in zip(files, sizes.tolist(), strict=True):
            path, stated = file.statistics_path, file.file_size_in_bytes
            if size == GONE:
                self.findings.add("statistics-file-missing", path, f"of snapshot {file.snapshot_id}")
            elif size not in {stated, OUT_OF_REACH}:
                message = f"the file has {size} bytes, metadata says {stated}"
                self.findings.add("statistics-file-size-differs", path, message)
        return frozenset(
            file.statistics_path
            for file, size in zip(files, sizes.tolist(), strict=True)
            if size == OUT_OF_REACH
        )

    def look_at(self, files: pa.Table) -> Ints:
        """Check that files are there, and their sizes; the sizes, negative where there is none to see."""
        stored: Ints = np.empty(len(files), np.int64)
        sizes = files["size"].to_numpy()
        for start in range(0, len(files), _STAT_AT_ONCE):
            part = slice(start, start + _STAT_AT_ONCE)
            self._tell_progress(start, len(files))
            paths = files["path"].slice(start, _STAT_AT_ONCE).combine_chunks()
            stored[part] = found = self._stored(paths.to_pylist())
            check_stored(
                paths, sizes[part], np.where(found == OUT_OF_REACH, sizes[part], found), self.findings
            )
        self._tell_progress(len(files), len(files))
        return stored

    def _stored(self, paths: Sequence[str]) -> Ints:
        return stored_sizes(self.table.storage, paths, self.findings, root=self.table.location)

    def _tell_progress(self, done: int, total: int) -> None:
        self.table.on_event(Event(phase="looking at files", done=done, total=total))


def first_of_each(files: pa.Table) -> Ints:
    """The indices of files, each path once for each size that manifests have for it."""
    names: npt.NDArray[np.uint64] = hash_column(files["path"])
    sizes = files["size"].to_numpy().astype(np.uint64) * _ODD
    _, first = np.unique(names ^ sizes, return_index=True)
    return np.sort(first)
