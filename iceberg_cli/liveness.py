"""Answers to reachability questions, read through an engine: what goes, and what is live now.

Marking fails closed: a kept manifest list or manifest that is missing or cannot be read whole raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.engines import BATCH_BYTES, Engine, OnEvent, Source
from iceberg_cli.iceberg.expire_snapshots import Facts
from iceberg_cli.iceberg.manifest import (
    MANIFEST_LIST_SCHEMA,
    EntryBatch,
    ManifestSource,
    open_manifest,
    read_entries,
    read_manifest_lists,
)
from iceberg_cli.iceberg.reachability import (
    NO_KEYS,
    Keys,
    among,
    check_counted,
    check_lists,
    content_removals,
    first_listed,
    key_set,
    keys_of,
    live,
    sources_of,
    without_counts,
)
from iceberg_cli.paths import canonical, liveness_key, liveness_key_column
from iceberg_cli.plan import NamedFile, Reach, SnapshotFiles
from iceberg_cli.removals import SCHEMA
from iceberg_cli.storage.links import OtherNames

Made = TypeVar("Made")

_REMOVAL_COLUMNS = ("status", "content", "file_path", "file_size_in_bytes")
_CONTENT_COLUMNS = [name for name in SCHEMA.names if name != "step"]


@dataclass(frozen=True, slots=True)
class Manifests:
    """The manifests of some snapshots, each once: rows of manifest lists plus `snapshot_id` of the first that lists it.

    `lists` are (path, bytes) of the lists that were read; `missing` lists that are gone. `uncounted` are snapshots
    whose manifests have no counts (v1), with these manifests: their totals are checked once the entries are read.
    """

    rows: pa.Table
    keys: Keys
    lists: tuple[tuple[str, int], ...]
    missing: tuple[str, ...]
    uncounted: tuple[tuple[SnapshotFiles, tuple[str, ...]], ...] = ()


@dataclass(slots=True)
class Liveness:
    """Reads of one run. A manifest that was read whole is not read again: manifests never change."""

    engine: Engine
    on_event: OnEvent
    trust_lists: bool = False
    other_names: OtherNames | None = None  # of local tables
    _live: dict[str, Keys] = field(default_factory=dict)
    _live_counts: dict[str, int] = field(default_factory=dict)

    def manifests(self, snapshots: Sequence[SnapshotFiles], *, phase: str, required: bool) -> Manifests:
        """The manifests of `snapshots`; a manifest belongs to the first snapshot that lists it.

        Args:
            snapshots: in the order of preference.
            phase: name for progress.
            required: stop at a list that is missing or may be cut short; otherwise note it.

        Raises:
            CorruptFile: a list cannot be read whole.
        """
        parts: list[pa.Table] = []
        keys = NO_KEYS
        lists: list[tuple[str, int]] = []
        missing: list[str] = []
        uncounted: list[tuple[SnapshotFiles, tuple[str, ...]]] = []

        def parse(
            batch: Sequence[tuple[SnapshotFiles, bytes | None]],
        ) -> tuple[list[tuple[SnapshotFiles, int]], list[str], pa.Table]:
            found = [(snapshot, data) for snapshot, data in batch if data is not None]
            gone = [snapshot.manifest_list or "" for snapshot, data in batch if data is None]
            rows = read_manifest_lists(
                [(snapshot.manifest_list or "", data) for snapshot, data in found], format_version=1
            )
            return [(snapshot, len(data)) for snapshot, data in found], gone, rows

        batches = self.engine.scan(
            [snapshot for snapshot in snapshots if snapshot.manifest_list is not None],
            lambda snapshot: Source(snapshot.manifest_list or ""),
            lambda _, data: data,
            parse,
            phase=phase,
            missing_ok=not required,
            on_event=self.on_event,
        )
        for found, gone, rows in batches:
            missing += gone
            lists += [(snapshot.manifest_list or "", size_bytes) for snapshot, size_bytes in found]
            if required and not self.trust_lists:
                check_lists([snapshot for snapshot, _ in found], rows)
                uncounted += [(found[index][0], paths) for index, paths in without_counts(rows)]
            keys = _add_new(parts, keys, rows, [snapshot for snapshot, _ in found])
        inline = [snapshot for snapshot in snapshots if snapshot.manifest_list is None]
        for snapshot in inline:
            uncounted.append((snapshot, snapshot.manifests))
            keys = _add_new(parts, keys, _inline_rows(snapshot), [snapshot])
        rows = pa.concat_tables(parts).combine_chunks() if parts else _no_rows()
        return Manifests(
            rows=rows, keys=keys, lists=tuple(lists), missing=tuple(missing), uncounted=tuple(uncounted)
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
        """What `make` makes of the entries of manifests, batch by batch.

        Args:
            rows: of manifest lists.
            columns: of the entries.
            make: gets entries, and the sources that their `manifest` column counts in; see `parse` of `Engine.scan`.
            phase: name for progress.
            missing_ok: leave out manifests that are gone.
            batch_bytes: see `Engine.scan`.
        """

        def parse(batch: Sequence[tuple[ManifestSource, ManifestSource | None]]) -> list[Made]:
            opened = [source for _, source in batch if source is not None]
            found = [source for source, loaded in batch if loaded is not None]
            return [make(found, entries) for entries in read_entries(opened, columns=columns)]

        scanned = self.engine.scan(
            sources_of(rows),
            lambda source: Source(source.path, source.length or 0),
            open_manifest,
            parse,
            phase=phase,
            missing_ok=missing_ok,
            batch_bytes=batch_bytes,
            on_event=self.on_event,
        )
        for made in scanned:
            yield from made

    def live_keys(self, manifests: Manifests, *, phase: str) -> Keys:
        """Keys of the live files in `manifests`, sorted."""

        def keyed(sources: Sequence[ManifestSource], batch: EntryBatch) -> list[tuple[str, Keys, int]]:
            entries = live(batch.table)
            keys = keys_of(entries["file_path"])
            other = self._other_keys(entries["file_path"])
            owners = entries["manifest"].to_numpy()  # ascending: entries come in the order of their manifests
            found = []
            for index in batch.sources:
                first, stop = np.searchsorted(owners, (index, index + 1))
                mine = [keys[first:stop], *(more[first:stop] for more in other)]
                found.append((sources[index].path, key_set(mine), int(stop - first)))
            return found

        paths = manifests.rows["manifest_path"].to_pylist()
        unread = manifests.rows.filter(pa.array([path not in self._live for path in paths], pa.bool_()))
        for found in self.from_entries(unread, ("status", "file_path"), keyed, phase=phase):
            for path, keys, files in found:
                self._live[path] = keys
                self._live_counts[path] = files
        if not self.trust_lists:
            for snapshot, named in manifests.uncounted:
                check_counted(snapshot, sum(self._live_counts[path] for path in named))
        return key_set([self._live[path] for path in paths])

    def _named_keys(self, manifests: Manifests, named: Sequence[str]) -> Keys:
        """Keys of manifests and of files that metadata names, by every name that links to local folders give them."""
        paths = pa.array([*manifests.rows["manifest_path"].to_pylist(), *named], pa.string())
        return key_set([manifests.keys, keys_of(paths), *self._other_keys(paths)])

    def _other_keys(self, paths: pa.Array | pa.ChunkedArray) -> list[Keys]:
        """Keys of the same files by the other names that links to local folders give them."""
        if self.other_names is None:
            return []
        array = paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths
        return [keys_of(names) for names in self.other_names.of(liveness_key_column(array))]

    def everything_live(self, snapshots: Sequence[SnapshotFiles], named: Sequence[str]) -> Keys:
        """Keys of all that these snapshots reach: files, manifests, lists, and what metadata names directly."""
        manifests = self.manifests(snapshots, phase="reading manifest lists", required=True)
        lists = [snapshot.manifest_list for snapshot in snapshots if snapshot.manifest_list is not None]
        content = self.live_keys(manifests, phase="reading manifests")
        return key_set([content, self._named_keys(manifests, [*lists, *named])])

    def facts(self, snapshots: Sequence[SnapshotFiles]) -> Facts:
        """Which partition specs and equality fields the kept snapshots use."""
        manifests = self.manifests(snapshots, phase="reading manifest lists", required=True)
        if manifests.uncounted:
            # A list that was cut short would hide a spec that is in use.
            self.live_keys(manifests, phase="reading manifests")
        field_ids: set[int] = set()
        deletes = manifests.rows.filter(pc.equal(manifests.rows["content"], 1))
        for found in self.from_entries(
            deletes, ("status", "equality_ids"), _equality_ids, phase="reading delete manifests"
        ):
            field_ids.update(found)
        spec_ids = frozenset(pc.unique(manifests.rows["partition_spec_id"]).to_pylist())
        inline = any(snapshot.manifest_list is None for snapshot in snapshots)
        return Facts(partition_spec_ids=None if inline else spec_ids, equality_field_ids=frozenset(field_ids))

    def answer(self, reach: Reach, *, step: str) -> tuple[pa.Table, list[str]]:
        """Which files do the expired snapshots reach that the kept ones do not?

        Returns:
            Rows of `removals.SCHEMA`, each path once; and warnings.

        Raises:
            CorruptFile: anything that must be read cannot be read whole.
        """
        kept = self.manifests(reach.kept, phase="reading kept manifest lists", required=True)
        newest_first = tuple(reversed(reach.expired))
        expired = self.manifests(newest_first, phase="reading expired manifest lists", required=False)
        only_expired = expired.rows.filter(
            pa.array(~among(keys_of(expired.rows["manifest_path"]), kept.keys))
        )
        warnings = [f"{path} of an expired snapshot is gone already" for path in expired.missing[:5]]
        kept_lists = [snapshot.manifest_list for snapshot in reach.kept if snapshot.manifest_list is not None]
        kept_keys = self._named_keys(kept, [*kept_lists, *reach.kept_files])
        parts: list[pa.Table] = []
        if kept.uncounted or (reach.content and only_expired.num_rows):
            kept_keys = key_set([kept_keys, self.live_keys(kept, phase="reading kept manifests")])
        if reach.content and only_expired.num_rows:
            parts.extend(self._content(only_expired, kept_keys))
        named = [*_manifest_files(only_expired), *_lists(expired, reach), *reach.expired_files]
        parts.append(_named_removals(named, kept_keys))
        table = pa.concat_tables(parts)
        steps = pa.DictionaryArray.from_arrays(np.zeros(table.num_rows, np.int32), pa.array([step]))
        return table.add_column(0, "step", steps).select(SCHEMA.names).cast(SCHEMA), warnings

    def _content(self, rows: pa.Table, kept_keys: Keys) -> Iterator[pa.Table]:
        last = dict(zip(rows["manifest_path"].to_pylist(), rows["snapshot_id"].to_pylist(), strict=True))

        def going(sources: Sequence[ManifestSource], batch: EntryBatch) -> tuple[pa.Table, Keys]:
            reasons = [f"last reached by expired snapshot {last[source.path]}" for source in sources]
            return content_removals(batch.table, kept_keys, reasons)

        seen = NO_KEYS
        for table, keys in self.from_entries(
            rows, _REMOVAL_COLUMNS, going, phase="reading expired manifests", missing_ok=True
        ):
            new = ~among(keys, seen)
            seen = key_set([seen, keys[new]])
            going_now = table.filter(pa.array(new))
            if "as_written" not in going_now.column_names:
                going_now = going_now.append_column("as_written", going_now["path"])
            yield going_now.select(_CONTENT_COLUMNS)


def _equality_ids(_: Sequence[ManifestSource], batch: EntryBatch) -> set[int]:
    ids = live(batch.table)["equality_ids"].combine_chunks()
    return set(pc.unique(pc.list_flatten(ids)).to_pylist())


def _add_new(parts: list[pa.Table], keys: Keys, rows: pa.Table, snapshots: Sequence[SnapshotFiles]) -> Keys:
    """Append the rows whose manifest is not known yet; `list` is an index into `snapshots`."""
    rows, new = first_listed(rows, keys)
    if len(new):
        ids = np.array([snapshot.snapshot_id for snapshot in snapshots], np.int64)[rows["list"].to_numpy()]
        parts.append(rows.drop_columns(["list"]).append_column("snapshot_id", pa.array(ids)))
    return key_set([keys, new])


def _inline_rows(snapshot: SnapshotFiles) -> pa.Table:
    """The manifests that a v1 snapshot names itself, as rows of a list without counts."""
    empty = _no_rows().drop_columns(["snapshot_id"])
    count = len(snapshot.manifests)
    columns = {name: pa.nulls(count, empty.schema.field(name).type) for name in empty.column_names}
    columns["manifest_path"] = pa.array(snapshot.manifests, pa.string())
    for name in ("content", "sequence_number", "min_sequence_number", "partition_spec_id"):
        columns[name] = pa.array([0] * count, empty.schema.field(name).type)
    table = pa.table(columns).cast(empty.schema)
    return table.add_column(0, "list", pa.array([0] * count, pa.int32()))


def _no_rows() -> pa.Table:
    return MANIFEST_LIST_SCHEMA.empty_table().append_column("snapshot_id", pa.array([], pa.int64()))


def _manifest_files(rows: pa.Table) -> list[NamedFile]:
    return [
        NamedFile(
            path=path,
            kind="manifest_file",
            size_bytes=length,
            reason=f"last listed by expired snapshot {snapshot_id}",
        )
        for path, length, snapshot_id in zip(
            rows["manifest_path"].to_pylist(),
            rows["manifest_length"].to_pylist(),
            rows["snapshot_id"].to_pylist(),
            strict=True,
        )
    ]


def _lists(expired: Manifests, reach: Reach) -> list[NamedFile]:
    owner = {s.manifest_list: s.snapshot_id for s in reach.expired}
    return [
        NamedFile(
            path=path,
            kind="manifest_list",
            size_bytes=size_bytes,
            reason=f"manifest list of expired snapshot {owner[path]}",
        )
        for path, size_bytes in expired.lists
    ]


def _named_removals(files: Sequence[NamedFile], kept: Keys) -> pa.Table:
    """Files named one by one, without those that something kept needs, each path once."""
    chosen: dict[str, NamedFile] = {}
    for file in files:
        chosen.setdefault(liveness_key(file.path), file)
    unique = list(chosen.values())
    columns = {
        "path": [canonical(file.path) for file in unique],
        "as_written": [file.path for file in unique],
        "kind": [file.kind for file in unique],
        "size_bytes": [file.size_bytes for file in unique],
        "reason": [file.reason for file in unique],
    }
    table = pa.table({name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()})
    return table.filter(pa.array(~among(keys_of(table["as_written"]), kept)))
