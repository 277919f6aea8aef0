"""Tables in folders below a table's own, found by the logs and metadata around files that are about to go.

A folder holds a table where `_delta_log` is a folder in it, or its folder `metadata` has a metadata file or a version
hint. The folders of the files are listed, and those above them up to the table's own; the cost is one short listing
for each of these folders, whatever the number of files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.paths import METADATA_SUFFIXES, folder_column, is_suspicious
from iceberg_cli.plan.plan import Verdict
from iceberg_cli.plan.removal_rows import total_bytes
from iceberg_cli.storage import Storage

DELTA_LOG: Final = "_delta_log"
METADATA: Final = "metadata"
_HINT: Final = "version-hint.text"
_NAMED_TABLES: Final = 5
_FOLDERS_AT_ONCE: Final = 1 << 12
_SLICE_ROWS: Final = 1 << 16


def has_iceberg_metadata(storage: Storage, folder: str) -> bool:
    """Whether metadata files, or the hint that names one, are directly in a folder such as `<table>/metadata`."""
    names = (path[len(folder) + 1 :] for path in storage.paths(folder))
    return any(name == _HINT or (name.endswith(METADATA_SUFFIXES) and "/" not in name) for name in names)


@dataclass(kw_only=True)
class NestedTables:
    """The other tables in a table's folders, each folder listed once.

    Args:
        storage: of the table.
        roots: canonical folders in which the table deletes files, without a slash at their end.
        own: of these, the ones that are known to be the table's: they are not listed.
        own_metadata: canonical folders called `metadata` that contain the table's own metadata.
    """

    storage: Storage
    roots: Collection[str]
    own: Collection[str]
    own_metadata: Collection[str] = ()
    _table_of: dict[str, str | None] = field(default_factory=dict)  # of a folder the table that it belongs to

    def holding(self, paths: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
        """The folder of the nested table that each of n canonical paths belongs to.

        Returns:
            n strings, null where there is none.

        Raises:
            BackendUnavailable: a folder cannot be listed.
        """
        chunks = paths.chunks if isinstance(paths, pa.ChunkedArray) else [paths]
        slices = [
            chunk.slice(start, _SLICE_ROWS) for chunk in chunks for start in range(0, len(chunk), _SLICE_ROWS)
        ]
        return pa.chunked_array([self._holding(some) for some in slices], pa.string())

    def _holding(self, paths: pa.Array) -> pa.Array:
        folders = folder_column(paths).dictionary_encode()
        spelled = folders.dictionary.to_pylist()
        self._look(spelled)
        tables = pa.array([self._table_of.get(folder) for folder in spelled], pa.string())
        return tables.take(folders.indices)

    def _look(self, folders: Iterable[str]) -> None:
        """Remember the table of each folder, and of those above them up to the roots."""
        new: dict[str, None] = {}
        for deepest in folders:
            folder = deepest
            while folder not in self._table_of and folder not in new and self._inside(folder):
                new[folder] = None
                folder = folder.rpartition("/")[0]
        waiting = sorted(new, key=len)  # what is above a folder comes before it
        unknown = [folder for folder in waiting if folder not in self.own]
        tables = set[str]()
        for start in range(0, len(unknown), _FOLDERS_AT_ONCE):
            some = unknown[start : start + _FOLDERS_AT_ONCE]
            found = self.storage.subfolders_many(some, (DELTA_LOG, METADATA))
            tables.update(
                folder for folder, names in zip(some, found, strict=True) if self._is_table(folder, names)
            )
        for folder in waiting:
            above = None if folder in self.own else self._table_of.get(folder.rpartition("/")[0])
            self._table_of[folder] = folder if folder in tables else above

    def _inside(self, folder: str) -> bool:
        if is_suspicious(folder):  # none of its files is the table's to delete
            return False
        return any(folder == root or folder.startswith(f"{root}/") for root in self.roots)

    def _is_table(self, folder: str, names: frozenset[str]) -> bool:
        if DELTA_LOG in names:
            return True
        metadata = f"{folder}/{METADATA}"
        return (
            METADATA in names
            and metadata not in self.own_metadata
            and has_iceberg_metadata(self.storage, metadata)
        )


@dataclass
class NestedFiles:
    """The files of nested tables among planned removals, which stay.

    Args:
        nested: finds these tables.
    """

    nested: NestedTables
    _totals: dict[str, tuple[int, int]] = field(default_factory=dict)  # of each table, files and bytes

    def left_out(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Removals table by table, columns `path` and `size_bytes` and others, without these files."""
        for rows in tables:
            holders = self.nested.holding(rows["path"])
            if holders.null_count == len(holders):
                yield rows
                continue
            staying = pa.table({"table": holders, "size_bytes": rows["size_bytes"]}).filter(
                pc.is_valid(holders)
            )
            for folder in pc.unique(staying["table"]).to_pylist():
                sizes = staying["size_bytes"].filter(pc.equal(staying["table"], folder))
                count, size_bytes = self._totals.get(folder, (0, 0))
                self._totals[folder] = (count + len(sizes), total_bytes(sizes, size_bytes))
            yield rows.filter(pc.is_null(holders))

    def verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts with the number of files that stay for each table; of many tables the last ones in one."""
        found = sorted(self._totals.items())
        rest = [numbers for _, numbers in found[_NAMED_TABLES:]]
        rows = [(f"another table, {folder}", numbers) for folder, numbers in found[:_NAMED_TABLES]]
        if rest:
            total = (sum(count for count, _ in rest), sum(size_bytes for _, size_bytes in rest))
            rows.append((f"{len(rest)} more tables", total))
        return tuple(
            Verdict(
                subject="files",
                id=f"{count} of {size_bytes} bytes",
                keep=True,
                reason=f"kept: they are in the folder of {whose}",
            )
            for whose, (count, size_bytes) in rows
        )
