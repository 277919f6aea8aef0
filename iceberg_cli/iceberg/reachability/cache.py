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
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.iceberg.reachability.cache_folder import CacheFolder
from iceberg_cli.iceberg.reachability.cache_format import (
    LIST_FACTS,
    MANIFEST_FACTS,
    NOT_CACHED,
    CacheEntry,
    Numbers,
    decode,
    encode,
    identity,
)
from iceberg_cli.iceberg.reachability.keys import NO_KEYS, Keys
from iceberg_cli.iceberg.reachability.question import SnapshotFiles
from iceberg_cli.iceberg.spec.manifests.manifest import MANIFEST_LIST_SCHEMA
from iceberg_cli.storage import Storage

_MOST_PARTS = 8  # more are made one
_VERSION_BYTES = 8
KEPT_SCHEMA = pa.schema(
    [MANIFEST_LIST_SCHEMA.field(name) for name in ("manifest_path", "first_row_id", *MANIFEST_FACTS)]
)
_FILES = slice(MANIFEST_FACTS.index("added_files_count"), MANIFEST_FACTS.index("existing_files_count") + 1)
_ROWS = slice(MANIFEST_FACTS.index("added_rows_count"), MANIFEST_FACTS.index("existing_rows_count") + 1)


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

    def contents(self, rows: pa.Table) -> list[CachedManifest]:
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


@dataclass(frozen=True, slots=True)
class KnownList:
    """A manifest list that was read whole: `LIST_FACTS`, and which manifests it names, by id.

    `version`: see `CacheEntry`. `new`: it is in no part yet.
    """

    facts: tuple[int, ...]
    version: int
    ids: npt.NDArray[np.int32]
    new: bool


@dataclass(frozen=True, slots=True)
class KnownManifest:
    """The keys of a manifest that was read whole; `version`: see `CacheEntry`."""

    keys: Keys
    version: int


@dataclass(frozen=True, slots=True)
class CachedManifest:
    """The live files of a manifest that was read whole.

    Args:
        path: of the manifest, as its list spells it.
        keys: of the files, sorted.
        files: how many there are.
        rows: how many rows they have by `record_count`, deleted ones included.
    """

    path: str
    keys: Keys
    files: int
    rows: int


@dataclass(slots=True)
class CacheIndex:
    """Manifest lists by path, and manifests by ids that count from 0. A manifest's facts, once known, stay."""

    lists: dict[str, KnownList] = field(default_factory=dict)
    new_keys: set[int] = field(default_factory=set)  # ids of manifests whose keys are in no part yet
    folders: set[str] = field(default_factory=set)  # of all files behind the keys
    replaced: bool = False  # something of a part is known better now
    _ids: dict[str, int] = field(default_factory=dict)
    _facts: Numbers = field(
        default_factory=lambda: np.empty((0, len(MANIFEST_FACTS)), np.int64)
    )  # with room to grow
    _read: list[KnownManifest | None] = field(default_factory=list)

    # -- asking ------------------------------------------------------------------------------------------------

    def rows_of(self, lists: Iterable[str]) -> pa.Table:
        """The manifests that known lists name, each once, with the columns of `KEPT_SCHEMA`."""
        return self._rows(np.flatnonzero(self._used(self.lists[path] for path in lists)))

    def first_rows_of(self, lists: Sequence[str]) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """The manifests that known lists name, each once, in the order in which they are named.

        Returns:
            The rows, with the columns of `KEPT_SCHEMA`; and for each, which of the lists names it first.
        """
        ids = np.concatenate([np.empty(0, np.int32), *(self.lists[path].ids for path in lists)])
        _, first = np.unique(ids, return_index=True)
        first.sort()
        ends = np.cumsum([len(self.lists[path].ids) for path in lists])
        return self._rows(ids[first]), np.searchsorted(ends, first, side="right")

    def _rows(self, ids: npt.NDArray[Any]) -> pa.Table:
        paths = pa.array(list(self._ids), pa.string()).take(array_of(ids))
        facts = self._facts[ids]
        columns = {name: array_of(facts[:, place]) for place, name in enumerate(MANIFEST_FACTS)}
        columns |= {"manifest_path": paths, "first_row_id": pa.nulls(len(ids), pa.int64())}
        return pa.table(columns).select(KEPT_SCHEMA.names).cast(KEPT_SCHEMA)

    def with_keys(self, rows: pa.Table) -> list[tuple[str, int]]:
        """Path and id of those manifests whose keys are known and of which `rows` of manifest lists say the same."""
        paths = rows["manifest_path"].to_pylist()
        ids = np.array([self._ids.get(path, -1) for path in paths], np.int64)
        facts, whole = _facts_of(rows)
        same = (ids >= 0) & whole
        same[same] = (facts[same] == self._facts[ids[same]]).all(axis=1)
        found = [(paths[place], int(ids[place])) for place in np.flatnonzero(same)]
        return [(path, at) for path, at in found if self._read[at] is not None]

    def version(self, at: int) -> int:
        """The version of a manifest whose keys are known, when they were read."""
        return self._known(at).version

    def content(self, path: str, at: int) -> CachedManifest:
        """The cached content of a manifest's live files."""
        facts = self._facts[at]
        return CachedManifest(path, self._known(at).keys, int(facts[_FILES].sum()), int(facts[_ROWS].sum()))

    def _known(self, at: int) -> KnownManifest:
        known = self._read[at]
        assert known is not None
        return known

    def _used(self, lists: Iterable[KnownList]) -> npt.NDArray[np.bool_]:
        """Which manifests, by id, some list names."""
        used = np.zeros(len(self._ids), np.bool_)
        for each in lists:
            used[each.ids] = True
        return used

    # -- learning ----------------------------------------------------------------------------------------------

    def add_lists(
        self, found: Sequence[tuple[SnapshotFiles, int]], rows: pa.Table, versions: Mapping[str, int]
    ) -> None:
        """Add manifest lists; none with a row that has no number, or contradicts another list's row of a manifest.

        Args:
            found: n snapshots with the bytes of their lists.
            rows: of these lists, in their order, with `list`, an index into `found`.
            versions: by path, from before they were read; a list without one is not taken in.
        """
        encoded = rows["manifest_path"].combine_chunks().dictionary_encode()
        places = encoded.indices.to_numpy()
        facts, whole = _facts_of(rows)
        _, first = np.unique(places, return_index=True)
        known = [
            self._add(path, facts[at]) if whole[at] else self._ids.get(path, -1)
            for path, at in zip(encoded.dictionary.to_pylist(), first, strict=True)
        ]
        ids = np.array(known, np.int64)[places] if len(places) else places.astype(np.int64)
        good = whole & (ids >= 0)
        good[good] = (facts[good] == self._facts[ids[good]]).all(axis=1)
        starts = np.searchsorted(rows["list"].to_numpy(), np.arange(len(found) + 1))
        for place, (snapshot, size_bytes) in enumerate(found):
            mine = slice(starts[place], starts[place + 1])
            path = snapshot.manifest_list
            if path is not None and path in versions and good[mine].all():
                stated = (size_bytes, *list_facts(snapshot))
                self.replaced |= path in self.lists
                self.lists[path] = KnownList(stated, versions[path], ids[mine].astype(np.int32), new=True)

    def add_keys(
        self, rows: pa.Table, keys: Mapping[str, Keys], folders: Iterable[str], versions: Mapping[str, int]
    ) -> None:
        """Take in keys of manifests.

        Args:
            rows: of manifest lists.
            keys: by path, of some of these manifests; sorted, each once.
            folders: of the files, as path keys.
            versions: by path, from before they were read; a manifest without one is not taken in.
        """
        self.folders.update(folders)
        facts, whole = _facts_of(rows)
        for place, path in enumerate(rows["manifest_path"].to_pylist()):
            if not whole[place] or path not in keys or path not in versions:
                continue
            at = self._add(path, facts[place])
            known, read = self._read[at], KnownManifest(keys[path], versions[path])
            if (known is None or known.version != read.version) and (self._facts[at] == facts[place]).all():
                self.replaced |= known is not None
                self._read[at] = read
                self.new_keys.add(at)

    def _add(self, path: str, facts: Numbers) -> int:
        """The id of a manifest."""
        at = self._ids.setdefault(path, len(self._ids))
        if at == len(self._read):
            self._read.append(None)
            if at == len(self._facts):  # room for as many again
                self._facts = np.concatenate((self._facts, np.zeros_like(self._facts), facts[None]))
            self._facts[at] = facts
        return at

    # -- parts -------------------------------------------------------------------------------------------------

    def take(self, part: CacheEntry) -> bool:
        """Add a cache entry; nothing of it, and False, where it contradicts another entry on a manifest."""
        known_ids = np.array([self._ids.get(path, -1) for path in part.manifest_paths], np.int64)
        old = known_ids >= 0
        if not (part.manifest_facts[old] == self._facts[known_ids[old]]).all():
            return False
        added = zip(part.manifest_paths, part.manifest_facts, strict=True)
        ids = np.array([self._add(path, facts) for path, facts in added], np.int64)
        ends = np.cumsum(np.maximum(part.key_counts, 0))
        for at, version, count, end in zip(
            ids.tolist(),
            part.manifest_versions.tolist(),
            part.key_counts.tolist(),
            ends.tolist(),
            strict=True,
        ):
            if count != NOT_CACHED:
                self._read[at] = KnownManifest(part.keys[end - count : end], version)
        ends = np.cumsum(part.list_counts)
        rows = ids[part.list_rows].astype(np.int32)
        for path, stated, version, count, end in zip(
            part.list_paths,
            part.list_facts.tolist(),
            part.list_versions.tolist(),
            part.list_counts.tolist(),
            ends.tolist(),
            strict=True,
        ):
            self.lists[path] = KnownList(tuple(stated), version, rows[end - count : end], new=False)
        self.folders.update(part.folders)
        return True

    def mostly_dead(self, lists: Iterable[str]) -> bool:
        """Whether most keys are of manifests that none of these known lists names."""
        counts = np.array([0 if known is None else len(known.keys) for known in self._read], np.int64)
        used = self._used(self.lists[path] for path in lists)
        return 2 * int(counts[used].sum()) < int(counts.sum())

    def part(self, lists: Sequence[str], *, whole: bool) -> CacheEntry:
        """Known lists with the manifests they name, and keys.

        Args:
            lists: paths.
            whole: with the keys of all the manifests they name; otherwise with those that are in no part yet.
        """
        entries = [self.lists[path] for path in lists]
        named = np.concatenate([np.empty(0, np.int32), *(each.ids for each in entries)])
        targets = np.flatnonzero(self._used(entries)).tolist() if whole else sorted(self.new_keys)
        manifests = {at: read for at in targets if (read := self._read[at]) is not None}
        ids = np.union1d(named, np.array(list(manifests), np.int32))
        counts = np.full(len(ids), NOT_CACHED, np.int64)
        versions = np.zeros(len(ids), np.int64)
        places = np.searchsorted(ids, list(manifests))
        counts[places] = [len(read.keys) for read in manifests.values()]
        versions[places] = [read.version for read in manifests.values()]
        every = list(self._ids)
        return CacheEntry(
            manifest_paths=[every[at] for at in ids],
            manifest_facts=self._facts[ids],
            manifest_versions=versions,
            key_counts=counts,
            keys=np.concatenate([NO_KEYS, *(read.keys for read in manifests.values())]),
            folders=sorted(self.folders),
            list_paths=lists,
            list_facts=np.array([each.facts for each in entries], np.int64).reshape(-1, len(LIST_FACTS)),
            list_versions=np.array([each.version for each in entries], np.int64),
            list_counts=np.array([len(each.ids) for each in entries], np.int64),
            list_rows=np.searchsorted(ids, named).astype(np.int32),
        )


def list_facts(snapshot: SnapshotFiles) -> tuple[int, ...]:
    """`LIST_FACTS` but for the size: a manifest list by table metadata."""
    totals = (snapshot.total_data_files, snapshot.total_delete_files, snapshot.added_data_files)
    return (
        snapshot.snapshot_id,
        snapshot.sequence_number,
        snapshot.timestamp_ms,
        *(-1 if total is None else total for total in totals),
    )


def keepable(rows: pa.Table) -> list[str]:
    """Paths of the manifests of which `rows` of manifest lists have all of `MANIFEST_FACTS`."""
    paths: list[str] = rows["manifest_path"].filter(array_of(_facts_of(rows)[1])).to_pylist()
    return paths


def _facts_of(rows: pa.Table) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """`MANIFEST_FACTS` of n rows of manifest lists, and whether each row has all of them."""
    columns = [rows[name].combine_chunks() for name in MANIFEST_FACTS]
    facts = np.stack([column.fill_null(0).cast(pa.int64()).to_numpy() for column in columns], axis=1)
    whole = np.ones(len(rows), np.bool_)
    for column in columns:
        if column.null_count:
            whole &= column.is_valid().to_numpy(zero_copy_only=False)
    return facts, whole
