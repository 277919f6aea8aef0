"""Keys of reachable files and rows of manifest lists that earlier runs read, in the user's cache folder.

A false entry could make a live file deletable, so an entry is used only if all of this holds:

- its part is whole and was written by this program for this table (`cache_format.py`: a SHA-256 over everything, so a
  part with one wrong bit, or half a part, is no part), and part and folder are the user's own and writable by nobody
  else: who can write there could as well run commands as this user;
- it is about the same file: the path, what metadata or the manifest list says of it (a list: snapshot id, sequence
  number, time and totals; a manifest: length, content, spec, sequence number, snapshot and all three counts), and the
  storage's version of it now is the one from before it was read (`Storage.stat_many`: device, inode, time of
  writing and size of a local file; endpoint, ETag and size of an object; 64 bits of a digest are kept). A list that is
  gone, or a manifest that is, stops the run as it ever did;
- it was read from a file that was read whole and passed every check: lists that are no shorter than their snapshot's
  totals, manifests with all counts of files and live rows, and as many entries, rows and bytes as their list says.
  Whatever lacks one of these numbers is never kept, and read again in each run;
- no link to a folder gives one of its files a second name, neither when it was read nor now.

Specification: such files never change under their name. Anything else is a miss, and the file is read. The content of
a file is not looked at again: who writes other bytes into the same local file, as many, and sets its time back, or
writes within one tick of the file system's clock, is believed to have left it alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.iceberg.reachability.cache_folder import CacheFolder
from iceberg_cli.iceberg.reachability.cache_format import decode, encode, identity
from iceberg_cli.iceberg.reachability.cache_index import CacheIndex, ManifestContent, keepable, list_facts
from iceberg_cli.iceberg.reachability.keys import Keys
from iceberg_cli.iceberg.reachability.question import SnapshotFiles
from iceberg_cli.storage import Storage

_MOST_PARTS = 8  # more are made one
_VERSION_BYTES = 8


class ReachabilityCache:
    """The cache of one table's immutable files, loaded when it is first used.

    Args:
        folder: of all tables' parts.
        storage: of the table.
        table_uuid: of the table.
        location: of the table.
        one_name: whether no link gives files in some folders a second name; None for a table on no local disk.
        limit_bytes: see `CacheFolder`.
    """

    def __init__(
        self,
        folder: Path,
        storage: Storage,
        *,
        table_uuid: str,
        location: str,
        one_name: Callable[[Iterable[str]], bool] | None,
        limit_bytes: int,
    ) -> None:
        self._storage = storage
        self._one_name = one_name
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._named = (table_uuid, location)
        self._loaded: CacheIndex | None = None
        self._parts: list[Path] = []
        self._damaged = False
        self._versions: dict[str, int] = {}  # by path, when it was looked at last; of those that have one
        self._seen: set[str] = set()  # manifests that were looked at

    @cached_property
    def _table(self) -> tuple[str, ...]:
        """Hashes probes: not for commands that ask nothing."""
        return identity(*self._named, links=self._one_name is not None)

    @cached_property
    def _files(self) -> CacheFolder:
        name = hashlib.sha256("\0".join(self._table).encode()).hexdigest()[:32]
        return CacheFolder(self._folder, name, limit_bytes=self._limit_bytes)

    def known_lists(self, snapshots: Sequence[SnapshotFiles], *, remember: bool) -> list[bool]:
        """For each of n snapshots, whether its manifest list is cached and unchanged in storage.

        Args:
            snapshots: any.
            remember: whether those that are not known will be read for `remember_lists`.
        """
        lists = self._index().lists
        known = [lists.get(snapshot.manifest_list or "") for snapshot in snapshots]
        is_known = [
            each is not None and each.facts[1:] == list_facts(snapshot)
            for each, snapshot in zip(known, snapshots, strict=True)
        ]
        self._look_at(
            [
                snapshot.manifest_list
                for snapshot, found in zip(snapshots, is_known, strict=True)
                if snapshot.manifest_list is not None and (found or remember)
            ]
        )
        return [
            found and each is not None and self._versions.get(snapshot.manifest_list or "") == each.version
            for snapshot, each, found in zip(snapshots, known, is_known, strict=True)
        ]

    def _look_at(self, paths: Sequence[str]) -> None:
        """Take the versions of files, before they are read."""
        for path, info in zip(paths, self._storage.stat_many(paths, versions=True), strict=True):
            self._versions.pop(path, None)
            if info is not None and info.version is not None:
                digest = hashlib.blake2b(info.version.encode(), digest_size=_VERSION_BYTES).digest()
                self._versions[path] = int.from_bytes(digest, "little", signed=True)

    def rows_of(self, snapshots: Iterable[SnapshotFiles]) -> pa.Table:
        """The manifests that known lists name, see `CacheIndex.rows_of`."""
        return self._index().rows_of([s.manifest_list for s in snapshots if s.manifest_list is not None])

    def first_rows_of(self, snapshots: Sequence[SnapshotFiles]) -> tuple[pa.Table, list[tuple[str, int]]]:
        """The manifests of snapshots whose lists are known.

        Returns:
            Each manifest once, with the columns of `KEPT_SCHEMA` and `snapshot_id` of the first that lists it, in that
            order; and the lists with their bytes.
        """
        index = self._index()
        paths = [snapshot.manifest_list or "" for snapshot in snapshots]
        rows, owners = index.first_rows_of(paths)
        ids = np.array([snapshot.snapshot_id for snapshot in snapshots], np.int64)[owners]
        sizes = [(path, index.lists[path].facts[0]) for path in paths]
        return rows.append_column("snapshot_id", array_of(ids)), sizes

    def contents(self, rows: pa.Table) -> list[ManifestContent]:
        """The live files of those manifests in `rows` that are known and the same.

        The others are to be read after this, for `remember_keys`.
        """
        index = self._index()
        unseen = [path for path in keepable(rows) if path not in self._seen]
        self._look_at(unseen)
        self._seen.update(unseen)
        if self._one_name is not None and not self._one_name(index.folders):
            return []
        return [
            index.content(path, at)
            for path, at in index.with_keys(rows)
            if self._versions.get(path) == index.version(at)
        ]

    def remember_lists(self, found: Sequence[tuple[SnapshotFiles, int]], rows: pa.Table) -> None:
        """Keep lists that were read whole and are no shorter than their snapshots say, see `CacheIndex.add_lists`."""
        self._index().add_lists(found, rows, self._versions)

    def remember_keys(self, rows: pa.Table, keys: Mapping[str, Keys], folders: Iterable[str]) -> None:
        """Keep the keys of live files of manifests that were read whole and checked against their rows.

        Args:
            rows: of manifest lists.
            keys: by path of some of these manifests, sorted, each once; no link gives one of their files a second name.
            folders: of the files, as path keys; need not be told where `one_name` is None.
        """
        self._index().add_keys(rows, keys, folders, self._versions)

    def _index(self) -> CacheIndex:
        if self._loaded is None:
            self._loaded = CacheIndex()
            for path, data in self._files.read().items():
                part = decode(data, self._table)
                self._parts.append(path)
                if part is None or not self._loaded.take(part):
                    self._damaged = True
        return self._loaded

    def save(self, snapshots: Sequence[SnapshotFiles]) -> str | None:
        """Write new entries; merge many entries into one, without manifests that the table does not list any more.

        Args:
            snapshots: of the table now.

        Returns:
            Why it could not be written, or None.
        """
        index = self._loaded
        if index is None:
            return None
        named = dict.fromkeys(snapshot.manifest_list or "" for snapshot in snapshots)
        listed = [path for path in named if path in index.lists]
        new = [path for path in listed if index.lists[path].new]
        if not new and not index.new_keys:
            return None
        whole = self._damaged or index.replaced or len(self._parts) >= _MOST_PARTS
        whole = whole or index.mostly_dead(listed)
        try:
            written = self._files.write(
                encode(index.part(listed if whole else new, whole=whole), self._table)
            )
            if written is not None:
                for path in self._parts if whole else ():
                    path.unlink(missing_ok=True)
                self._files.make_room(written)
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        return None
