"""Reachable and unreachable files of a table, read from manifest lists and manifests through an engine.

Marking fails closed: a kept manifest list or manifest that is missing or cannot be read whole raises. One that an
earlier run read whole is not read again while it is there; `cache.py` says why that is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.encoding.string_hash import among
from iceberg_cli.engines import BATCH_BYTES, Engine, OnEvent, Scan, Source
from iceberg_cli.iceberg.reachability.cache import KEPT_SCHEMA, CachedManifest, ReachabilityCache
from iceberg_cli.iceberg.reachability.keys import (
    NO_KEYS,
    Keys,
    KnownKeys,
    check_counted,
    check_lists,
    first_listed,
    inline_rows,
    key_set,
    keys_of,
    live,
    live_count,
    live_rows,
    no_rows,
    sources_of,
    without_counts,
)
from iceberg_cli.iceberg.reachability.question import ReachQuestion, ReferencedIds, SnapshotFiles
from iceberg_cli.iceberg.reachability.unreachable import (
    ROW_COLUMNS,
    ReachAnswer,
    content_removals,
    content_rows,
    counted,
    held_or_sorted,
    list_files,
    manifest_files,
    named_removals,
    of_step,
    reach_on_workers,
    reasons_of,
)
from iceberg_cli.iceberg.spec.manifests.manifest import (
    EntryBatch,
    ManifestSource,
    open_manifest,
    read_entries,
    read_manifest_lists,
    stale_lengths,
)
from iceberg_cli.iceberg.spec.table_metadata.encryption import check_plain_manifests
from iceberg_cli.paths import path_key_column
from iceberg_cli.storage.aliases import OtherNames

Made = TypeVar("Made")
_KEPT_PHASE = "reading kept manifests"


@dataclass(frozen=True, slots=True)
class ListedManifests:
    """The manifests of some snapshots, each once: rows of manifest lists plus `snapshot_id` of the first that lists it.

    Of snapshots that stay, `rows` have the columns of `KEPT_SCHEMA`, in no order. `lists` are (path, bytes) of the
    lists that were read; `missing` lists that are gone. `uncounted` are snapshots whose manifests have no counts (v1),
    with these manifests: their totals are checked once the entries are read.
    """

    rows: pa.Table
    lists: tuple[tuple[str, int], ...] = ()
    missing: tuple[str, ...] = ()
    uncounted: tuple[tuple[SnapshotFiles, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class ManifestKeys:
    """The live files of manifests.

    `folders` are those of all the files; None where links give some of them other names, whose keys are here too.
    """

    manifests: list[CachedManifest]
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
        contents = []
        for index in batch.sources:
            first, stop = np.searchsorted(owners, (index, index + 1))
            mine = [keys[first:stop], *(more[first:stop] for more in other)]
            rows = int(records[first:stop].sum())
            contents.append(CachedManifest(sources[index].path, key_set(mine), int(stop - first), rows))
        return ManifestKeys(contents, folders)


@dataclass(slots=True)
class Reachability:
    """Reads of one run. A manifest that was read whole is not read again: manifests never change.

    `cache` knows what earlier runs read. `stale_lengths` are the bytes that its list says of a manifest and those of
    its file, by path, where these differ and the list's counts prove the file whole.
    """

    engine: Engine
    on_event: OnEvent
    trust_lists: bool = False
    other_names: OtherNames | None = None  # of local tables
    cache: ReachabilityCache | None = None
    stale_lengths: dict[str, tuple[int, int]] = field(default_factory=dict)
    _contents: dict[str, CachedManifest] = field(default_factory=dict)
    _read_paths: set[str] = field(default_factory=set)  # of manifests that were read whole, for any purpose
    _whole: dict[frozenset[SnapshotFiles], pa.Table] = field(
        default_factory=dict
    )  # manifests of what was read whole

    def manifests(
        self,
        snapshots: Sequence[SnapshotFiles],
        *,
        phase: str,
        required: bool,
        remember: Callable[[Sequence[tuple[SnapshotFiles, int]], pa.Table], None] | None = None,
    ) -> ListedManifests:
        """The manifests of `snapshots`; a manifest belongs to the first snapshot that lists it.

        Args:
            snapshots: in the order of preference.
            phase: name for progress.
            required: stop at a list that is missing or may be cut short; otherwise note it.
            remember: gets lists that were read whole, with their bytes, and their rows; see
                `ReachabilityCache.remember_lists`.

        Raises:
            CorruptFile: a list cannot be read whole.
            Refused: a manifest is encrypted, and they are `required`.
        """
        parts: list[pa.Table] = []
        lists: list[tuple[str, int]] = []
        missing: list[str] = []
        uncounted: list[tuple[SnapshotFiles, tuple[str, ...]]] = []

        def parse(
            batch: Sequence[tuple[SnapshotFiles, bytes | None]],
        ) -> tuple[list[tuple[SnapshotFiles, int]], list[str], pa.Table]:
            lists_there = [(snapshot, data) for snapshot, data in batch if data is not None]
            gone = [snapshot.manifest_list or "" for snapshot, data in batch if data is None]
            rows = read_manifest_lists(
                [(snapshot.manifest_list or "", data) for snapshot, data in lists_there], format_version=1
            )
            return [(snapshot, len(data)) for snapshot, data in lists_there], gone, rows

        batches = self.engine.scan(
            Scan(
                lambda snapshot: Source(snapshot.manifest_list or ""),
                lambda _, data: data,
                parse,
                phase=phase,
                missing_ok=not required,
            ),
            [snapshot for snapshot in snapshots if snapshot.manifest_list is not None],
            on_event=self.on_event,
        )
        for lists_there, gone, rows in batches:
            missing += gone
            lists += [(snapshot.manifest_list or "", size_bytes) for snapshot, size_bytes in lists_there]
            if required:
                check_plain_manifests(rows)
            if required and not self.trust_lists:
                check_lists([snapshot for snapshot, _ in lists_there], rows)
                uncounted += [(lists_there[index][0], paths) for index, paths in without_counts(rows)]
            if remember is not None:
                remember(lists_there, rows)
            add_new(parts, rows, [snapshot for snapshot, _ in lists_there])
        inline = [snapshot for snapshot in snapshots if snapshot.manifest_list is None]
        for snapshot in inline:
            uncounted.append((snapshot, snapshot.manifests))
            add_new(parts, inline_rows(snapshot), [snapshot])
        rows = pa.concat_tables(parts).combine_chunks() if parts else no_rows()
        return ListedManifests(
            rows=rows, lists=tuple(lists), missing=tuple(missing), uncounted=tuple(uncounted)
        )

    def entries(
        self, rows: pa.Table, columns: Sequence[str], *, phase: str, missing_ok: bool = False
    ) -> Iterator[tuple[Sequence[ManifestSource], EntryBatch]]:
        """The entries of manifests, batch by batch, each with the sources that its `manifest` column counts in."""
        return self.from_entries(
            rows, columns, lambda sources, batch: (sources, batch), phase=phase, missing_ok=missing_ok
        )

    def from_entries(
        self,
        rows: pa.Table,
        columns: Sequence[str],
        make: Callable[[Sequence[ManifestSource], EntryBatch], Made],
        *,
        phase: str,
        missing_ok: bool = False,
        batch_bytes: int = BATCH_BYTES,
    ) -> Iterator[Made]:
        """The results of `make` for the entries of manifests, batch by batch.

        Args:
            rows: of manifest lists.
            columns: of the entries.
            make: gets entries, and the sources that their `manifest` column counts in; see `parse` of `Engine.scan`.
            phase: name for progress.
            missing_ok: leave out manifests that are gone.
            batch_bytes: see `Engine.scan`.
        """

        def parse(
            batch: Sequence[tuple[ManifestSource, ManifestSource | None]],
        ) -> tuple[dict[str, tuple[int, int]], list[Made]]:
            opened = [source for _, source in batch if source is not None]
            there = [source for source, loaded in batch if loaded is not None]
            results = [make(there, entries) for entries in read_entries(opened, columns=columns)]
            return stale_lengths(batch), results

        scanned = self.engine.scan(
            Scan(
                lambda source: Source(source.path, source.length or 0),
                open_manifest,
                parse,
                phase=phase,
                missing_ok=missing_ok,
                batch_bytes=batch_bytes,
            ),
            sources_of(rows),
            on_event=self.on_event,
        )
        for stale, results in scanned:
            self.stale_lengths |= stale
            yield from results
        if not missing_ok:
            self._read_paths.update(rows["manifest_path"].to_pylist())

    def kept_manifests(self, snapshots: Sequence[SnapshotFiles], *, phase: str) -> ListedManifests:
        """The manifests of snapshots that stay; lists that the cache knows are not read.

        Raises:
            CorruptFile: a list is missing, cannot be read whole, or may be cut short.
        """
        if self.cache is None or self.trust_lists:  # what was believed once is nothing to keep
            read = self.manifests(snapshots, phase=phase, required=True)
            return ListedManifests(read.rows.select(KEPT_SCHEMA.names), uncounted=read.uncounted)
        known = self.cache.known_lists(snapshots, remember=True)
        unread = [snapshot for snapshot, is_known in zip(snapshots, known, strict=True) if not is_known]
        remembered = self.cache.rows_of(
            [snapshot for snapshot, is_known in zip(snapshots, known, strict=True) if is_known]
        )
        read = self.manifests(unread, phase=phase, required=True, remember=self.cache.remember_lists)
        rows = read.rows.select(KEPT_SCHEMA.names)
        others = pc.invert(pc.is_in(remembered["manifest_path"], value_set=rows["manifest_path"]))
        return ListedManifests(pa.concat_tables([rows, remembered.filter(others)]), uncounted=read.uncounted)

    def _expired_manifests(self, snapshots: Sequence[SnapshotFiles]) -> ListedManifests:
        """The manifests of snapshots that go; no list is read where the cache knows all of them."""
        if (
            self.cache is None
            or self.trust_lists
            or not all(self.cache.known_lists(snapshots, remember=False))
        ):
            return self.manifests(snapshots, phase="reading expired manifest lists", required=False)
        rows, lists = self.cache.first_rows_of(snapshots)
        return ListedManifests(rows, tuple(lists))

    def live_keys(self, kept: ListedManifests, *, phase: str) -> list[Keys]:
        """Keys of the live files of each manifest, sorted.

        Raises:
            CorruptFile: a manifest is missing or cannot be read whole, or a list is shorter than its snapshot says.
        """
        self._read_contents(kept.rows, phase=phase)
        if not self.trust_lists:
            for snapshot, named in kept.uncounted:
                check_counted(snapshot, sum(self._contents[path].files for path in named))
        return [self._contents[path].keys for path in kept.rows["manifest_path"].to_pylist()]

    def _read_contents(self, rows: pa.Table, *, phase: str) -> None:
        """Know the live files of manifests from here on: from the cache where it has them, or else by reading."""
        unread = _others(rows, self._contents)
        if self.cache is not None and not self.trust_lists:
            cached = self.cache.contents(unread)
            self._contents |= {content.path: content for content in cached}
            unread = _others(unread, self._contents)
        listed = dict(zip(unread["manifest_path"].to_pylist(), live_rows(unread).to_pylist(), strict=True))
        new_keys: dict[str, Keys] = {}
        folders: set[str] = set()
        for manifest_keys in self.from_entries(
            unread, PathHasher.COLUMNS, PathHasher(self.other_names), phase=phase
        ):
            for content in manifest_keys.manifests:
                self._contents[content.path] = content
                true = content.rows == listed[content.path] and content.path not in self.stale_lengths
                if manifest_keys.folders is not None and true:
                    new_keys[content.path] = content.keys
            folders.update(manifest_keys.folders or ())
        if self.cache is not None and not self.trust_lists:
            self.cache.remember_keys(unread, new_keys, folders)

    def read_whole(self, snapshots: Sequence[SnapshotFiles]) -> pa.Table:
        """Read and count all that snapshots reach but data and delete files, as far as this run has not done it.

        Args:
            snapshots: in the order of preference, see `manifests`.

        Returns:
            The manifests of all the snapshots, see `kept_manifests`.

        Raises:
            CorruptFile: a list or manifest is missing, cannot be read whole, or has other entries than are listed.
        """
        known_set = frozenset(snapshots)
        if known_set not in self._whole:
            manifests = self.kept_manifests(snapshots, phase="reading kept manifest lists")
            if manifests.uncounted:
                self.live_keys(manifests, phase=_KEPT_PHASE)
            else:
                self._read_contents(_others(manifests.rows, self._read_paths), phase=_KEPT_PHASE)
            self._whole[known_set] = manifests.rows
        return self._whole[known_set]

    def contents(self, rows: pa.Table) -> list[CachedManifest]:
        """The live files of manifests, for each row of a manifest list.

        Raises:
            CorruptFile: a manifest is missing or cannot be read whole.
        """
        self._read_contents(rows, phase="counting manifests")
        return [self._contents[path] for path in rows["manifest_path"].to_pylist()]

    def _named_keys(self, paths: Sequence[str]) -> Keys:
        """Keys of files named one by one, by every name that links to local folders give them."""
        array = pa.array(paths, pa.string())
        return key_set([keys_of(array), *self.other_keys(array)])

    def other_keys(self, paths: pa.Array) -> list[Keys]:
        """Keys of the same files by the other names that links to local folders give them."""
        if self.other_names is None:
            return []
        return [keys_of(names) for names in self.other_names.of(path_key_column(paths))]

    def everything_live(self, snapshots: Sequence[SnapshotFiles], named: Sequence[str]) -> KnownKeys:
        """The keys of all reachable files of snapshots: content, manifests, lists, and what metadata names directly."""
        manifests = self.kept_manifests(snapshots, phase="reading manifest lists")
        lists = [snapshot.manifest_list for snapshot in snapshots if snapshot.manifest_list is not None]
        content = self.live_keys(manifests, phase="reading manifests")
        paths = [*manifests.rows["manifest_path"].to_pylist(), *lists, *named]
        return KnownKeys([*content, self._named_keys(paths)])

    def still_reached(self, snapshots: Sequence[SnapshotFiles], named: Sequence[str]) -> KnownKeys:
        """The same of snapshots of other metadata than the table's own, some of whose files may be gone.

        Raises:
            CorruptFile: a list or manifest that is there cannot be read whole.
            Refused: a manifest is encrypted.
        """
        listed = self.manifests(snapshots, phase="reading manifest lists beside the table's", required=False)
        check_plain_manifests(listed.rows)
        unread = _others(listed.rows, self._contents)
        if self.cache is not None and not self.trust_lists:
            self._contents |= {content.path: content for content in self.cache.contents(unread)}
            unread = _others(unread, self._contents)
        hasher, phase = PathHasher(self.other_names), "reading manifests beside the table's"
        for found in self.from_entries(unread, PathHasher.COLUMNS, hasher, phase=phase, missing_ok=True):
            self._contents |= {content.path: content for content in found.manifests}
        paths = listed.rows["manifest_path"].to_pylist()
        content = [self._contents[path].keys for path in paths if path in self._contents]
        lists = [path for path, _ in listed.lists]
        return KnownKeys([*content, self._named_keys([*paths, *lists, *named])])

    def facts(self, snapshots: Sequence[SnapshotFiles]) -> ReferencedIds:
        """Which partition specs and equality fields the kept snapshots use."""
        manifests = self.kept_manifests(snapshots, phase="reading manifest lists")
        if manifests.uncounted:
            # A list that was cut short would hide a spec that is in use.
            self.live_keys(manifests, phase="reading manifests")
        field_ids: set[int] = set()
        deletes = manifests.rows.filter(pc.equal(manifests.rows["content"], 1))
        for ids in self.from_entries(
            deletes, ("status", "equality_ids"), equality_ids, phase="reading delete manifests"
        ):
            field_ids.update(ids)
        spec_ids = frozenset(pc.unique(manifests.rows["partition_spec_id"]).to_pylist())
        inline = any(snapshot.manifest_list is None for snapshot in snapshots)
        return ReferencedIds(
            partition_spec_ids=None if inline else spec_ids, equality_field_ids=frozenset(field_ids)
        )

    def answer(self, reach: ReachQuestion, *, step: str) -> ReachAnswer:
        """Which files do the expired snapshots reach that the kept ones do not?

        Raises:
            CorruptFile: anything that must be read cannot be read whole.
        """
        manifests = self.kept_manifests(reach.kept, phase="reading kept manifest lists")
        newest_first = tuple(reversed(reach.expired))
        expired = self._expired_manifests(newest_first)
        kept_paths = manifests.rows["manifest_path"].to_pylist()
        kept_keys = key_set([keys_of(manifests.rows["manifest_path"])])
        only_expired = expired.rows.filter(
            array_of(~among(keys_of(expired.rows["manifest_path"]), kept_keys))
        )
        warnings = [f"{path} of an expired snapshot is gone already" for path in expired.missing[:5]]
        kept_lists = [snapshot.manifest_list for snapshot in reach.kept if snapshot.manifest_list is not None]
        stays = self._named_keys([*kept_paths, *kept_lists, *reach.kept_files])
        reads = reach.content and only_expired.num_rows
        named = [*manifest_files(only_expired), *list_files(expired.lists, reach), *reach.expired_files]
        # A list without counts is checked against its totals once its manifests are read, which is done here only.
        if reads and self.engine.is_distributed and counted(manifests.rows) and not manifests.uncounted:
            held, content, reachable = reach_on_workers(
                self.engine,
                manifests.rows,
                only_expired,
                named=named,
                stays=stays,
                other_names=self.other_names,
                on_event=self.on_event,
            )
            self._read_paths.update(kept_paths)
        else:
            reachable = KnownKeys([stays, *self.live_keys(manifests, phase=_KEPT_PHASE)])
            held, content = held_or_sorted(self._content(only_expired, reachable) if reads else ())
        reasons = reasons_of(only_expired)
        rows = [content_removals(pa.concat_tables(held), reasons)] if held else []
        table = pa.concat_tables([*rows, named_removals(named, reachable)])
        self._whole[frozenset(reach.kept)] = manifests.rows
        in_order = (content_removals(some, reasons) for some in content)
        return ReachAnswer((of_step(some, step) for some in in_order), of_step(table, step), warnings)

    def _content(self, expired: pa.Table, known: KnownKeys) -> Iterator[pa.Table]:
        """Rows of `CONTENT_SCHEMA` of manifests that only expired snapshots list, without files that stay."""
        indices = {path: index for index, path in enumerate(expired["manifest_path"].to_pylist())}
        counts = [live_count(expired, content) for content in (0, 1)]
        # Few files can be asked for once all are known; with many, each batch is filtered where it is decoded.
        few = None not in counts and known.few(sum(count or 0 for count in counts))
        kept = NO_KEYS if few else known.whole()

        def going(sources: Sequence[ManifestSource], batch: EntryBatch) -> tuple[pa.Table, Keys]:
            owners = np.array([indices[source.path] for source in sources], np.int32)
            return content_rows(batch.table, kept, owners)

        scanned = self.from_entries(
            expired, ROW_COLUMNS, going, phase="reading expired manifests", missing_ok=True
        )
        seen = NO_KEYS
        for rows, keys in without(known, [*scanned]) if few else scanned:
            new = ~among(keys, seen)
            seen = key_set([seen, keys[new]])
            yield rows.filter(array_of(new))


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


def _others(rows: pa.Table, known: Collection[str]) -> pa.Table:
    """The rows of manifest lists whose manifests are not among `known` paths."""
    return rows.filter(
        pa.array([path not in known for path in rows["manifest_path"].to_pylist()], pa.bool_())
    )
