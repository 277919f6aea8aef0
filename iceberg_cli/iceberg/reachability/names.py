"""The names of all reachable files: what decides where files go that nothing names.

A name is the last segment of a path, folded (`paths.file_name_column`): coarser than every path, so that no spelling of
a scheme, host, slash, link, encoding or case can hide a live file. Writers put UUIDs into names, so next to nothing is
kept in vain by it. Names are held as 64-bit hashes; a collision keeps a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import array_of, one_array
from iceberg_cli.encoding.string_hash import among, hash_column
from iceberg_cli.iceberg.reachability.keys import (
    NO_KEYS,
    Keys,
    KnownKeys,
    check_counted,
    key_set,
    keys_of,
    live,
)
from iceberg_cli.iceberg.reachability.question import SnapshotFiles
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.spec.manifests.manifest import EntryBatch, ManifestSource
from iceberg_cli.iceberg.spec.table_metadata.encryption import check_plain_manifests
from iceberg_cli.paths import canonical_column, common_folders, file_name_column, folder_column

NO_PATHS = pa.array([], pa.string())


def name_keys(paths: pa.Array | pa.ChunkedArray) -> Keys:
    """The keys of the names of n paths, in their order."""
    return hash_column(file_name_column(one_array(paths))) if len(paths) else NO_KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFolders:
    """Folders that were looked through, and what was found there.

    Args:
        folders: canonical, without a slash at their end.
        names: keys of the names of all files in them, sorted.
    """

    folders: tuple[str, ...]
    names: Keys

    def compare(self, paths: pa.Array, names: Keys) -> ListedPaths:
        """Hold reachable files against what was found: n paths as they are written, and the keys of their names."""
        stored = canonical_column(paths)
        inside = pa.repeat(value=False, size=len(paths))
        for folder in self.folders:
            inside = pc.or_(inside, pc.starts_with(stored, f"{folder}/"))
        unlisted = pc.and_(inside, array_of(~among(names, self.names)))
        outside = stored.filter(pc.invert(inside))
        return ListedPaths(
            unlisted=one_array(paths.filter(unlisted)),
            outside=len(outside),
            outside_folders=common_folders(pc.unique(folder_column(outside)).to_pylist()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPaths:
    """Reachable files as a listing has them.

    Args:
        unlisted: paths, as they are written, of those in its folders whose names it does not have.
        outside: how many are in other folders.
        outside_folders: the deepest ones that contain these, one for each bucket or disk.
    """

    unlisted: pa.Array = field(default_factory=lambda: NO_PATHS)
    outside: int = 0
    outside_folders: tuple[str, ...] = ()

    def __add__(self, other: ListedPaths) -> ListedPaths:
        """Those of both."""
        return ListedPaths(
            unlisted=pa.concat_arrays([self.unlisted, other.unlisted.cast(pa.string())]),
            outside=self.outside + other.outside,
            outside_folders=common_folders([*self.outside_folders, *other.outside_folders]),
        )


@dataclass(frozen=True, slots=True)
class ManifestNames:
    """The live files of a manifest: keys of their names and of their paths, each sorted; and how many there are."""

    path: str
    names: Keys
    paths: Keys
    files: int


@dataclass(frozen=True, slots=True)
class BatchNames:
    """The live files of some manifests, held against a listing, and the folders that they are in."""

    manifests: list[ManifestNames]
    listed: ListedPaths
    folders: list[str]


@dataclass(frozen=True, slots=True)
class NameHasher:
    """Makes keys of the live files in a batch of entries; worker processes call it.

    Args:
        listed: what they are held against; None: nothing.
        with_folders: whether the folders of the files are told.
    """

    COLUMNS: ClassVar = ("status", "file_path")

    listed: ListedFolders | None
    with_folders: bool

    def __call__(self, sources: Sequence[ManifestSource], batch: EntryBatch) -> BatchNames:
        """Of n sources, those that the batch is of."""
        entries = live(batch.table)
        paths = one_array(entries["file_path"])
        names, keys = name_keys(paths), keys_of(paths)
        owners = entries["manifest"].to_numpy()  # ascending: entries come in the order of their manifests
        found = []
        for index in batch.sources:
            first, stop = np.searchsorted(owners, (index, index + 1))
            own = key_set([names[first:stop]]), key_set([keys[first:stop]])
            found.append(ManifestNames(sources[index].path, *own, int(stop - first)))
        folders = pc.unique(folder_column(canonical_column(paths))).to_pylist() if self.with_folders else []
        listed = ListedPaths() if self.listed is None else self.listed.compare(paths, names)
        return BatchNames(found, listed, folders)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Reachable files.

    Args:
        names: keys of their names.
        paths: keys of their paths.
        listed: as a listing has them.
        folders: that data and delete files are in, where that was to be told.
    """

    names: KnownKeys
    paths: KnownKeys
    listed: ListedPaths = field(default_factory=ListedPaths)
    folders: frozenset[str] = frozenset()


@dataclass(slots=True)
class NamesReader:
    """Reads the names of reachable files; a manifest that was read is not read again, for manifests never change.

    Args:
        reachability: of the table.
        with_folders: see `NameHasher`.
    """

    reachability: Reachability
    with_folders: bool = False
    _of: dict[str, ManifestNames] = field(default_factory=dict)  # by the path of a manifest
    _folders: set[str] = field(default_factory=set)  # of all that was read

    def forget(self) -> None:
        """Read every manifest again when it is asked for next."""
        self._of.clear()

    def look_again_for_links(self) -> None:
        """Look through local folders anew for links: what is reached by now may be by the name of one."""
        if self.reachability.other_names is not None:
            self.reachability.other_names.look_again()

    def everything_live(
        self,
        snapshots: Sequence[SnapshotFiles],
        named: Sequence[str],
        *,
        logged: Sequence[str] = (),
        listed: ListedFolders | None = None,
    ) -> Names:
        """All reachable files of snapshots: content, manifests, lists, and what metadata names directly.

        Args:
            snapshots: of a table.
            named: what metadata names directly and readers need.
            logged: what it names besides, which may be gone.
            listed: what they are held against, as far as they are read now; None: nothing.

        Raises:
            CorruptFile: a list or manifest is missing, cannot be read whole, or a list is shorter than its snapshot
                says.
            Refused: one is encrypted.
        """
        kept = self.reachability.kept_manifests(snapshots, phase="reading manifest lists")
        found = self._read(kept.rows, listed, phase="reading manifests")
        for snapshot, manifests in kept.uncounted:
            check_counted(snapshot, sum(self._of[path].files for path in manifests))
        lists = [each.manifest_list for each in snapshots if each.manifest_list is not None]
        return self._names(found, kept.rows, [*lists, *named], logged, listed)

    def still_reached(self, snapshots: Sequence[SnapshotFiles], named: Sequence[str]) -> Names:
        """The same of snapshots of other metadata than the table's own, some of whose files may be gone.

        Raises:
            CorruptFile: a list or manifest that is there cannot be read whole. Refused: a manifest is encrypted.
        """
        read = self.reachability.manifests(
            snapshots, phase="reading manifest lists beside the table's", required=False
        )
        check_plain_manifests(read.rows)
        found = self._read(read.rows, None, phase="reading manifests beside the table's", missing_ok=True)
        return self._names(found, read.rows, [*(path for path, _ in read.lists), *named], (), None)

    def _read(
        self, rows: pa.Table, listed: ListedFolders | None, *, phase: str, missing_ok: bool = False
    ) -> ListedPaths:
        """Know the live files of manifests from here on; those that are read now, held against a listing."""
        unread = rows.filter(
            pa.array([path not in self._of for path in rows["manifest_path"].to_pylist()], pa.bool_())
        )
        compared = ListedPaths()
        hasher = NameHasher(listed, self.with_folders)
        for batch in self.reachability.from_entries(
            unread, NameHasher.COLUMNS, hasher, phase=phase, missing_ok=missing_ok
        ):
            self._of |= {each.path: each for each in batch.manifests}
            compared += batch.listed
            self._folders.update(batch.folders)
        return compared

    def _names(
        self,
        compared: ListedPaths,
        rows: pa.Table,
        named: Sequence[str],
        logged: Sequence[str],
        listed: ListedFolders | None,
    ) -> Names:
        manifests = rows["manifest_path"].to_pylist()
        needed, others = pa.array([*manifests, *named], pa.string()), pa.array(logged, pa.string())
        own = name_keys(needed)
        contents = [self._of[path] for path in manifests if path in self._of]
        return Names(
            names=KnownKeys([own, name_keys(others), *(each.names for each in contents)]),
            paths=KnownKeys([keys_of(needed), keys_of(others), *(each.paths for each in contents)]),
            listed=compared if listed is None else compared + listed.compare(needed, own),
            folders=frozenset(self._folders),
        )
