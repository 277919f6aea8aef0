"""Files that only expired snapshots reach: their manifests' live files without those that something kept holds.

They are filtered where their manifests are decoded, by the keys of all that stays, 8 bytes a file in this process: keys
that an earlier run read need no reading, and the look right before the sweep uses them again. With an engine on other
machines these keys and the rows of expired manifests go to buckets by their keys, and each bucket is filtered by one
task, so that neither kept keys nor removals are in this process's memory. Many rows are put in delete order by a file
of this machine's disk.

Marking fails closed: a kept manifest that is gone or cannot be read whole raises, and the kept files that all buckets
together saw must be as many as the manifest lists say.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.encoding.string_hash import among
from iceberg_cli.encoding.transport import from_ipc, to_ipc
from iceberg_cli.engines import Engine, OnEvent, Scan, ShuffleStage, Source
from iceberg_cli.errors import BackendUnavailable, CorruptFile
from iceberg_cli.iceberg.reachability.keys import (
    NO_KEYS,
    Keys,
    KnownKeys,
    key_set,
    keys_of,
    live,
    live_count,
    sources_of,
)
from iceberg_cli.iceberg.reachability.question import NamedFile, ReachQuestion
from iceberg_cli.iceberg.spec.manifests.manifest import ManifestSource, open_manifest, read_entries
from iceberg_cli.paths import canonical, canonical_column, path_key, path_key_column
from iceberg_cli.plan.removal_rows import ICEBERG_KINDS, SCHEMA
from iceberg_cli.plan.removals import MEMORY_ROWS, PART_ROWS
from iceberg_cli.storage.aliases import OtherNames

ROW_COLUMNS = ("status", "content", "file_path", "file_size_in_bytes")
# Live files of expired manifests: `as_written` is null where it is `path`, `content` as the specification numbers it,
# `owner` the index of the manifest that listed it last.
CONTENT_SCHEMA = pa.schema(
    [
        pa.field("path", pa.large_string()),
        pa.field("as_written", pa.large_string()),
        pa.field("content", pa.int32()),
        pa.field("size_bytes", pa.int64()),
        pa.field("owner", pa.int32()),
    ]
)
_BUCKET_SCHEMA = pa.schema([*CONTENT_SCHEMA, pa.field("key", pa.uint64()), pa.field("rank", pa.int64())])
_REMOVALS = pa.schema([field.with_nullable(True) for field in SCHEMA if field.name != "step"])  # noqa: FBT003
_CONTENT_KINDS = pa.array(ICEBERG_KINDS[:3], pa.string())

_BUCKET_BYTES = 8 << 20
# About what of an entry is sent on. Manifests with metrics of columns have more bytes an entry.
_ENTRY_BYTES = 100
_KEY_BYTES, _ROW_BYTES = 8, 200
_MOST_BITS = 14
_KEPT = -1
Item = tuple[int, ManifestSource]  # index among the expired manifests, or `_KEPT`


@dataclass(frozen=True, slots=True)
class ReachAnswer:
    """The files that go, as rows of `removal_rows.SCHEMA`, each path once.

    Args:
        content: the first of them in delete order, table by table, where they may be too many for memory.
        rows: all others, in any order.
        warnings: in words.
    """

    content: Iterator[pa.Table]
    rows: pa.Table
    warnings: Sequence[str]


# -- rows ----------------------------------------------------------------------------------------------------------


def content_rows(entries: pa.Table, kept: Keys, owners: npt.NDArray[np.int32]) -> tuple[pa.Table, Keys]:
    """The live files of expired manifests that nothing kept reaches.

    Args:
        entries: with `manifest` and `ROW_COLUMNS`.
        kept: sorted keys of what stays.
        owners: of each manifest that `manifest` counts in.

    Returns:
        Rows of `CONTENT_SCHEMA`, each path once; and their keys, in the same order.
    """
    rows = live(entries)
    keys = keys_of(rows["file_path"])
    going = np.flatnonzero(~among(keys, kept))  # before the sort that finds each once: most often most stay
    _, first = np.unique(keys[going], return_index=True)
    chosen = np.sort(going[first])
    rows = rows.take(array_of(chosen))
    as_written = rows["file_path"].combine_chunks().cast(pa.large_string())
    paths = canonical_column(as_written).cast(pa.large_string())
    columns = {
        "path": paths,
        # Where no path is written in another way than it is stored, one column is enough.
        "as_written": pa.nulls(len(rows), pa.large_string()) if paths.equals(as_written) else as_written,
        "content": rows["content"],
        "size_bytes": rows["file_size_in_bytes"],
        "owner": array_of(owners[rows["manifest"].to_numpy()]),
    }
    return pa.table(columns).cast(CONTENT_SCHEMA), keys[chosen]


def held_or_sorted(
    batches: Iterable[pa.Table], *, held_rows: int = MEMORY_ROWS
) -> tuple[list[pa.Table], Iterator[pa.Table]]:
    """Rows as they came where they are few, or all of them in delete order.

    Args:
        batches: rows of `CONTENT_SCHEMA`.
        held_rows: so many are few.

    Returns:
        The same batches, or none; and none, or rows in order, about as many at a time as a part has. No batch is
        taken after this.
    """
    waiting: list[pa.Table] = []
    coming, count = iter(batches), 0
    for batch in coming:
        waiting.append(batch)
        count += len(batch)
        if count > held_rows:
            return [], _in_order(waiting, coming)
    return waiting, iter(())


def _in_order(waiting: list[pa.Table], coming: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The batches taken already, then all others: read at once, yielded in order."""
    from iceberg_cli.encoding.external_sort import SortedRuns

    runs = SortedRuns(("content", "path"), rows=PART_ROWS)
    while waiting:
        runs.add(waiting.pop())
    for batch in coming:
        runs.add(batch)
    return runs.merged()


def reasons_of(expired: pa.Table) -> pa.Array:
    """Why the files of n manifests go, in words; each has the `snapshot_id` of the last snapshot that lists it."""
    words = [f"last reached by expired snapshot {each}" for each in expired["snapshot_id"].to_pylist()]
    return pa.array(words, pa.large_string())


def content_removals(rows: pa.Table, reasons: pa.Array) -> pa.Table:
    """Rows of `removal_rows.SCHEMA` without `step`; columns that can be shared are not copied.

    Args:
        rows: of `CONTENT_SCHEMA`.
        reasons: by `owner`, see `reasons_of`.
    """
    columns = {
        "path": rows["path"],
        "as_written": rows["path"]
        if rows["as_written"].null_count == len(rows)
        else pc.coalesce(rows["as_written"], rows["path"]),
        "kind": _encoded(rows["content"], _CONTENT_KINDS),
        "size_bytes": rows["size_bytes"],
        "reason": _encoded(rows["owner"], reasons),
    }
    return pa.table(columns, schema=_REMOVALS)


def _encoded(column: pa.ChunkedArray, values: pa.Array) -> pa.ChunkedArray:
    type_ = pa.dictionary(pa.int32(), values.type)
    chunks = [pa.DictionaryArray.from_arrays(chunk, values) for chunk in column.chunks]
    return pa.chunked_array(chunks, type_)


def of_step(rows: pa.Table, step: str) -> pa.Table:
    """Rows of `removal_rows.SCHEMA`, of those that lack the step."""
    steps = pa.DictionaryArray.from_arrays(array_of(np.zeros(rows.num_rows, np.int32)), pa.array([step]))
    return rows.add_column(0, "step", steps).select(SCHEMA.names).cast(SCHEMA)


# -- files that are known by name ----------------------------------------------------------------------------------


def manifest_files(rows: pa.Table) -> list[NamedFile]:
    """Manifests that only expired snapshots list."""
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


def list_files(lists: Sequence[tuple[str, int]], reach: ReachQuestion) -> list[NamedFile]:
    """Manifest lists of expired snapshots, given by path and bytes."""
    owner = {s.manifest_list: s.snapshot_id for s in reach.expired}
    return [
        NamedFile(
            path=path,
            kind="manifest_list",
            size_bytes=size_bytes,
            reason=f"manifest list of expired snapshot {owner[path]}",
        )
        for path, size_bytes in lists
    ]


def named_removals(files: Sequence[NamedFile], kept: KnownKeys) -> pa.Table:
    """The removals among files that metadata names directly, without those that are reachable, each path once."""
    chosen: dict[str, NamedFile] = {}
    for file in files:
        chosen.setdefault(path_key(file.path), file)
    unique = list(chosen.values())
    columns = {
        "path": [canonical(file.path) for file in unique],
        "as_written": [file.path for file in unique],
        "kind": [file.kind for file in unique],
        "size_bytes": [file.size_bytes for file in unique],
        "reason": [file.reason for file in unique],
    }
    table = pa.table({name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()})
    return table.filter(array_of(~kept.contains(keys_of(table["as_written"]))))


# -- on workers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FilteredBucket:
    """The result of a bucket: its kept files, the named keys among them, and the rows that go."""

    kept_files: int
    kept_named_keys: Keys
    rows: bytes


@dataclass(frozen=True, slots=True)
class BucketWriter:
    """Assigns the files of a batch of manifests to 2^bits buckets."""

    bits: int
    other_names: OtherNames | None

    def __call__(self, batch: Sequence[tuple[Item, ManifestSource | None]]) -> dict[int, bytes]:
        """For each bucket: kept keys, the count of kept files, and rows of expired ones."""
        gone = [item for item, opened in batch if opened is None and item[0] < 0]
        if gone:
            raise CorruptFile(gone[0][1].path, None, "the table needs this file and it is not there")
        kept_keys, files = self._kept(
            [opened for (owner, _), opened in batch if owner < 0 and opened is not None]
        )
        expired = [(owner, opened) for (owner, _), opened in batch if owner >= 0 and opened is not None]
        rows = _bucket_rows(expired)
        row_keys = rows["key"].to_numpy()
        order = np.argsort(row_keys, kind="stable")
        rows = rows.take(pa.array(order))
        edges = _edges(self.bits)
        kept_at = _bucket_starts(kept_keys, edges)
        files_at = _bucket_starts(files, edges)
        rows_at = _bucket_starts(row_keys[order], edges)
        return {
            bucket: pickle.dumps(
                (
                    kept_keys[kept_at[bucket] : kept_at[bucket + 1]],
                    int(files_at[bucket + 1] - files_at[bucket]),
                    to_ipc(rows.slice(rows_at[bucket], rows_at[bucket + 1] - rows_at[bucket])),
                ),
                5,
            )
            for bucket in range(1 << self.bits)
            if kept_at[bucket] < kept_at[bucket + 1] or rows_at[bucket] < rows_at[bucket + 1]
        }

    def _kept(self, opened: Sequence[ManifestSource]) -> tuple[Keys, Keys]:
        """Sorted: the keys of kept files by all their names; and by the manifests' own, as often as they give it."""
        every: list[Keys] = []
        own = [NO_KEYS]
        for batch in read_entries(opened, columns=("status", "file_path")) if opened else ():
            paths = live(batch.table)["file_path"].combine_chunks()
            own.append(keys_of(paths))
            if self.other_names is not None:
                every += [keys_of(names) for names in self.other_names.of(path_key_column(paths))]
        return key_set([*own, *every]), np.sort(np.concatenate(own))


@dataclass(frozen=True, slots=True)
class BucketFilter:
    """Keeps the rows of a bucket whose files go.

    Args:
        stays: sorted keys of files that stay by their names: manifests, lists, what metadata names.
        named_keys: sorted keys of files that go by their names unless a kept manifest holds them.
    """

    stays: Keys
    named_keys: Keys

    def __call__(self, _: int, parts: Sequence[bytes]) -> FilteredBucket:
        """Filter a bucket."""
        loaded = [pickle.loads(part) for part in parts]  # noqa: S301 - our own workers wrote it
        content = key_set([keys for keys, _, _ in loaded])
        kept_keys = key_set([content, self.stays])
        rows = [from_ipc(rows) for _, _, rows in loaded]
        table = pa.concat_tables([_BUCKET_SCHEMA.empty_table(), *rows]).combine_chunks()
        keys = table["key"].to_numpy()
        order = np.lexsort((table["rank"].to_numpy(), keys))
        first = np.ones(len(keys), np.bool_)
        np.not_equal(keys[order][1:], keys[order][:-1], out=first[1:])
        chosen = order[first]
        chosen = chosen[~among(keys[chosen], kept_keys)]
        left = table.select(CONTENT_SCHEMA.names).take(pa.array(chosen))
        return FilteredBucket(
            kept_files=sum(files for _, files, _ in loaded),
            kept_named_keys=self.named_keys[among(self.named_keys, content)],
            rows=to_ipc(left),
        )


def reach_on_workers(
    engine: Engine,
    kept: pa.Table,
    expired: pa.Table,
    *,
    named: Sequence[NamedFile],
    stays: Keys,
    other_names: OtherNames | None,
    on_event: OnEvent,
    bucket_bytes: int = _BUCKET_BYTES,
) -> tuple[list[pa.Table], Iterator[pa.Table], KnownKeys]:
    """The data and delete files that only expired snapshots reach.

    Args:
        engine: with workers.
        kept: rows of manifest lists, with counts, see `counted`.
        expired: the same of manifests that only expired snapshots list, in the order of preference.
        named: what goes by its name unless something kept holds it.
        stays: sorted keys of files that stay by their names: manifests, lists, what metadata names.
        other_names: of local tables.
        on_event: progress.
        bucket_bytes: about so much is filtered by one task.

    Returns:
        Rows of `CONTENT_SCHEMA`, each path once, see `held_or_sorted`; and the keys of what stays, as far as `named`
        may have them.

    Raises:
        CorruptFile: a manifest cannot be read whole, or a kept one is gone. BackendUnavailable: not all was seen.
    """
    expected, going = (sum(live_count(rows, content) or 0 for content in (0, 1)) for rows in (kept, expired))
    bits = _bits((expected * _KEY_BYTES + going * _ROW_BYTES) // bucket_bytes)
    named_keys = key_set([keys_of(pa.array([file.path for file in named], pa.string()))])
    items: list[Item] = [(_KEPT, source) for source in sources_of(kept)]
    items += enumerate(sources_of(expired))
    found = engine.shuffle(
        Scan(
            _source,
            lambda item, data: open_manifest(item[1], data),
            BucketWriter(bits, other_names),
            phase="reading kept and expired manifests",
            missing_ok=True,
        ),
        [ShuffleStage(BucketFilter(stays, named_keys), 1 << bits)],
        items,
        on_event=on_event,
    )
    staying = [stays]

    def filtered() -> Iterator[pa.Table]:
        seen = 0
        for bucket in found:
            seen += bucket.kept_files
            staying.append(bucket.kept_named_keys)
            yield from_ipc(bucket.rows)
        if seen != expected:
            raise BackendUnavailable(
                f"Cannot go on: workers saw {seen} live files in the kept manifests, whose lists say {expected}"
            )

    held, content = held_or_sorted(filtered())
    return held, content, KnownKeys(staying)


def counted(rows: pa.Table) -> bool:
    """Whether the manifest lists have the count of live files of every manifest, as all but old ones do."""
    return None not in (live_count(rows, 0), live_count(rows, 1))


def _source(item: Item) -> Source:
    """The manifest, which weighs what its entries do once they are read where they compress very well."""
    _, manifest = item
    entries = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    return Source(manifest.path, max(manifest.length or 0, entries * _ENTRY_BYTES))


def _bucket_rows(expired: Sequence[tuple[int, ManifestSource]]) -> pa.Table:
    """Live files of expired manifests, each once in a batch, with their keys and ranks in the order of preference."""
    parts = [_BUCKET_SCHEMA.empty_table()]
    owners = np.array([owner for owner, _ in expired], np.int32)
    first = 0
    for batch in read_entries([opened for _, opened in expired], columns=ROW_COLUMNS) if expired else ():
        rows, keys = content_rows(batch.table, NO_KEYS, owners)
        # Batches come in the order of the manifests, and rows in that of the entries.
        ranks = (rows["owner"].to_numpy().astype(np.int64) << 32) + np.arange(first, first + len(rows))
        first += len(rows)
        parts.append(rows.append_column("key", array_of(keys)).append_column("rank", array_of(ranks)))
    return pa.concat_tables(parts)


def _bits(buckets: int) -> int:
    """Two to the power of this are at least so many buckets."""
    return min(_MOST_BITS, max(1, buckets.bit_length()))


def _edges(bits: int) -> Keys:
    """The first key of each bucket but the first."""
    return np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64(64 - bits)


def _bucket_starts(keys: Keys, edges: Keys) -> npt.NDArray[np.int64]:
    """Where each bucket begins in sorted keys, and the end."""
    return np.concatenate([[0], np.searchsorted(keys, edges), [len(keys)]])
