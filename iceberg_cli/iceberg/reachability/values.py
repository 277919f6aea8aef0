"""Manifests of snapshots, and the keys of the files that they list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.iceberg.reachability.cache_index import ManifestContent
from iceberg_cli.iceberg.reachability.keys import (
    NO_KEYS,
    Keys,
    KnownKeys,
    first_listed,
    key_set,
    keys_of,
    live,
    live_count,
)
from iceberg_cli.iceberg.reachability.question import NamedFile, SnapshotFiles
from iceberg_cli.iceberg.spec.manifest import EntryBatch, ManifestSource
from iceberg_cli.paths import path_key_column
from iceberg_cli.storage.aliases import OtherNames


@dataclass(frozen=True, slots=True)
class ListedManifests:
    """The manifests of some snapshots, each once: rows of manifest lists plus `snapshot_id` of the first that lists it.

    `lists` are (path, bytes) of the lists that were read; `missing` lists that are gone. `uncounted` are snapshots
    whose manifests have no counts (v1), with these manifests: their totals are checked once the entries are read.
    """

    rows: pa.Table
    lists: tuple[tuple[str, int], ...]
    missing: tuple[str, ...]
    uncounted: tuple[tuple[SnapshotFiles, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class KeptManifests:
    """The manifests of snapshots that stay, each once: `rows` have the columns of `KEPT_SCHEMA`, in no order.

    `uncounted`: see `ListedManifests`.
    """

    rows: pa.Table
    uncounted: tuple[tuple[SnapshotFiles, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class ManifestKeys:
    """The live files of manifests.

    `folders` are those of all the files; None where links give some of them other names, whose keys are here too.
    """

    manifests: list[ManifestContent]
    folders: list[str] | None


@dataclass(frozen=True, slots=True)
class PathHasher:
    """Makes keys of the live files in a batch of entries, and counts their rows; worker processes call it."""

    COLUMNS: ClassVar = ("status", "file_path", "record_count")

    other_names: OtherNames | None

    def __call__(self, sources: Sequence[ManifestSource], batch: EntryBatch) -> ManifestKeys:
        """Of n sources, those that the batch is of."""
        entries = live(batch.table)
        keys = keys_of(entries["file_path"])
        other: list[Keys] = []
        folders: list[str] | None = []
        if self.other_names is not None:
            plain = path_key_column(entries["file_path"].combine_chunks())
            folders = self.other_names.folders(plain)
            if not self.other_names.only_one(folders):
                other, folders = [keys_of(names) for names in self.other_names.of(plain)], None
        owners = entries["manifest"].to_numpy()  # ascending: entries come in the order of their manifests
        records = entries["record_count"].to_numpy()
        found = []
        for index in batch.sources:
            first, stop = np.searchsorted(owners, (index, index + 1))
            mine = [keys[first:stop], *(more[first:stop] for more in other)]
            rows = int(records[first:stop].sum())
            found.append(ManifestContent(sources[index].path, key_set(mine), int(stop - first), rows))
        return ManifestKeys(found, folders)


@dataclass(frozen=True, slots=True)
class ManifestQuestion:
    """The input of a scan of manifests: what is known before they are read.

    Args:
        kept: rows of manifest lists, with counts, see `counted`.
        expired: the same of manifests that only expired snapshots list, in the order of preference, plus `snapshot_id`.
        named: what goes unless something kept holds it: manifests, lists, what metadata names.
        stays: sorted keys of files that stay by their names.
        other_names: of local tables.
    """

    kept: pa.Table
    expired: pa.Table
    named: Sequence[NamedFile]
    stays: Keys
    other_names: OtherNames | None


def counted(rows: pa.Table) -> bool:
    """Whether the manifest lists have the count of live files of every manifest, as all but old ones do."""
    return None not in (live_count(rows, 0), live_count(rows, 1))


def without(known: KnownKeys, found: Sequence[tuple[pa.Table, Keys]]) -> Iterator[tuple[pa.Table, Keys]]:
    """Files with their keys, without those whose keys are known; looked up all at once."""
    stays = known.contains(np.concatenate([NO_KEYS, *(keys for _, keys in found)]))
    first = 0
    for table, keys in found:
        goes = ~stays[first : first + len(keys)]
        first += len(keys)
        yield table.filter(array_of(goes)), keys[goes]


def equality_ids(_: Sequence[ManifestSource], batch: EntryBatch) -> set[int]:
    """The field ids that live equality delete files compare."""
    ids = live(batch.table)["equality_ids"].combine_chunks()
    return set(pc.unique(pc.list_flatten(ids)).to_pylist())


def add_new(parts: list[pa.Table], rows: pa.Table, snapshots: Sequence[SnapshotFiles]) -> None:
    """Append the rows whose manifest is in no part yet; `list` is an index into `snapshots`."""
    known = [chunk for part in parts for chunk in part["manifest_path"].chunks]
    rows = first_listed(rows, pa.chunked_array(known, pa.string()))
    if len(rows):
        ids = np.array([snapshot.snapshot_id for snapshot in snapshots], np.int64)[rows["list"].to_numpy()]
        parts.append(rows.drop_columns(["list"]).append_column("snapshot_id", array_of(ids)))
