"""Files that only expired snapshots reach, found on Spark's workers: `Reachability.answer` for very large tables.

Keys of kept files and rows of expired ones go to buckets by their keys, each bucket is filtered by one task, and what
is left goes through a file of this machine's disk, which puts it in delete order. So neither kept keys nor removals are
in this process's memory. What is left is what the local engine finds, by the same functions.

Marking fails closed here too: a kept manifest that is gone or cannot be read whole raises, and the kept files that all
buckets together saw must be as many as the manifest lists say.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.external_sort import SortedRuns
from iceberg_cli.encoding.transport import from_ipc, to_ipc
from iceberg_cli.engines import Engine, OnEvent, Scan, ShuffleStage, Source
from iceberg_cli.errors import BackendUnavailable, CorruptFile
from iceberg_cli.iceberg.reachability.keys import (
    NO_KEYS,
    Keys,
    KnownKeys,
    among,
    content_removals,
    key_set,
    keys_of,
    live,
    live_count,
    sources_of,
)
from iceberg_cli.iceberg.reachability.named_files import named_removals
from iceberg_cli.iceberg.reachability.values import ManifestQuestion
from iceberg_cli.iceberg.spec.manifest import ManifestSource, open_manifest, read_entries
from iceberg_cli.paths import path_key_column
from iceberg_cli.plan.removal_rows import SCHEMA
from iceberg_cli.plan.removals import PART_ROWS
from iceberg_cli.storage.aliases import OtherNames

_ROW_COLUMNS = ("status", "content", "file_path", "file_size_in_bytes")
_BUCKET_BYTES = 8 << 20
# About what of an entry is sent on. Manifests with metrics of columns have more bytes an entry.
_ENTRY_BYTES = 100
_KEY_BYTES, _ROW_BYTES = 8, 200
_MOST_BITS = 14
# What is left of expired manifests: `as_written` is null where it is `path`, `content` as the specification numbers
# it, `owner` the place of the manifest that listed it last.
_LEFT = pa.schema(
    [
        pa.field("path", pa.large_string()),
        pa.field("as_written", pa.large_string()),
        pa.field("content", pa.int32()),
        pa.field("size_bytes", pa.int64()),
        pa.field("owner", pa.int32()),
    ]
)
_ROWS = pa.schema(
    [
        *_LEFT,
        pa.field("key", pa.uint64()),
        pa.field("place", pa.int64()),
    ]
)
_KINDS = pa.array(["data_file", "position_delete_file", "equality_delete_file"])
_REMOVALS = pa.schema([field.with_nullable(True) for field in SCHEMA if field.name != "step"])  # noqa: FBT003

_KEPT = -1
Item = tuple[int, ManifestSource]  # place among the expired manifests, or `_KEPT`


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
        kept, files = self._kept([opened for (owner, _), opened in batch if owner < 0 and opened is not None])
        expired = [(owner, opened) for (owner, _), opened in batch if owner >= 0 and opened is not None]
        rows = _rows_of(expired)
        row_keys = rows["key"].to_numpy()
        order = np.argsort(row_keys, kind="stable")
        rows = rows.take(pa.array(order))
        edges = _edges(self.bits)
        kept_at = _places(kept, edges)
        files_at = _places(files, edges)
        rows_at = _places(row_keys[order], edges)
        return {
            bucket: pickle.dumps(
                (
                    kept[kept_at[bucket] : kept_at[bucket + 1]],
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
        found = [pickle.loads(part) for part in parts]  # noqa: S301 - our own workers wrote it
        content = key_set([keys for keys, _, _ in found])
        kept = key_set([content, self.stays])
        rows = [from_ipc(rows) for _, _, rows in found]
        table = pa.concat_tables([_ROWS.empty_table(), *rows]).combine_chunks()
        keys = table["key"].to_numpy()
        order = np.lexsort((table["place"].to_numpy(), keys))
        first = np.ones(len(keys), np.bool_)
        np.not_equal(keys[order][1:], keys[order][:-1], out=first[1:])
        chosen = order[first]
        chosen = chosen[~among(keys[chosen], kept)]
        left = table.select(_LEFT.names).take(pa.array(chosen))
        return FilteredBucket(
            kept_files=sum(files for _, files, _ in found),
            kept_named_keys=self.named_keys[among(self.named_keys, content)],
            rows=to_ipc(left),
        )


def reach_on_workers(
    engine: Engine, question: ManifestQuestion, *, bucket_bytes: int = _BUCKET_BYTES, on_event: OnEvent
) -> tuple[Iterator[pa.Table], pa.Table]:
    """The files that only expired snapshots reach.

    Args:
        engine: with workers.
        question: what to look for.
        bucket_bytes: about so much is filtered by one task.
        on_event: progress.

    Returns:
        Columns of `removal_rows.SCHEMA` but `step`, each path once: data and delete files in delete order, about as
        many at a time as a part has; and what was asked for by name.

    Raises:
        CorruptFile: a manifest cannot be read whole, or a kept one is gone. BackendUnavailable: not all was seen.
    """
    expected, going = (
        sum(live_count(rows, content) or 0 for content in (0, 1))
        for rows in (question.kept, question.expired)
    )
    bits = _bits((expected * _KEY_BYTES + going * _ROW_BYTES) // bucket_bytes)
    named_keys = key_set([keys_of(pa.array([file.path for file in question.named], pa.string()))])
    items: list[Item] = [(_KEPT, source) for source in sources_of(question.kept)]
    items += enumerate(sources_of(question.expired))
    found = engine.shuffle(
        Scan(
            _source,
            _opened,
            BucketWriter(bits, question.other_names),
            phase="reading kept and expired manifests",
            missing_ok=True,
        ),
        [ShuffleStage(BucketFilter(question.stays, named_keys), 1 << bits)],
        items,
        on_event=on_event,
    )
    seen = 0
    held = [question.stays]
    runs = SortedRuns(("content", "path"), rows=PART_ROWS)
    for filtered in found:
        seen += filtered.kept_files
        held.append(filtered.kept_named_keys)
        runs.add(from_ipc(filtered.rows))
    if seen != expected:
        raise BackendUnavailable(
            f"Cannot go on: workers saw {seen} live files in the kept manifests, whose lists say {expected}"
        )
    reasons = pa.array(
        [f"last reached by expired snapshot {each}" for each in question.expired["snapshot_id"].to_pylist()],
        pa.large_string(),
    )
    content = (_removals(rows, reasons) for rows in runs.merged())
    return content, named_removals(question.named, KnownKeys(held))


def _source(item: Item) -> Source:
    """The manifest, which weighs what its entries do once they are read where they compress very well."""
    _, manifest = item
    entries = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    return Source(manifest.path, max(manifest.length or 0, entries * _ENTRY_BYTES))


def _opened(item: Item, data: bytes) -> ManifestSource:
    return open_manifest(item[1], data)


def _rows_of(expired: Sequence[tuple[int, ManifestSource]]) -> pa.Table:
    """Live files of expired manifests, each once in a batch, with their keys and ranks in the order of preference."""
    parts = [_ROWS.empty_table()]
    owners = np.array([owner for owner, _ in expired], np.int32)
    first = 0
    if expired:
        for batch in read_entries([opened for _, opened in expired], columns=_ROW_COLUMNS):
            table, keys = content_removals(batch.table, NO_KEYS, [""] * len(expired))
            owner = owners[table["reason"].combine_chunks().indices.to_numpy()]
            same = "as_written" not in table.column_names
            columns = {
                "path": table["path"],
                "as_written": pa.nulls(len(table), pa.large_string()) if same else table["as_written"],
                "content": table["kind"].combine_chunks().indices.cast(pa.int32()),
                "size_bytes": table["size_bytes"],
                "owner": owner,
                "key": keys,
                # Batches come in the order of the manifests, and rows in that of the entries.
                "place": (owner.astype(np.int64) << 32) + np.arange(first, first + len(table)),
            }
            first += len(table)
            parts.append(pa.table(columns).cast(_ROWS))
    return pa.concat_tables(parts)


def _bits(buckets: int) -> int:
    """Two to the power of this are at least so many buckets."""
    return min(_MOST_BITS, max(1, buckets.bit_length()))


def _edges(bits: int) -> Keys:
    """The first key of each bucket but the first."""
    return np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64(64 - bits)


def _places(keys: Keys, edges: Keys) -> npt.NDArray[np.int64]:
    """Where each bucket begins in sorted keys, and the end."""
    return np.concatenate([[0], np.searchsorted(keys, edges), [len(keys)]])


def _removals(rows: pa.Table, reasons: pa.Array) -> pa.Table:
    """Rows of `removal_rows.SCHEMA` without `step`; columns that can be shared are not copied."""
    columns = {
        "path": rows["path"],
        # Where no path is written in another way than it is stored, one column is enough.
        "as_written": rows["path"]
        if rows["as_written"].null_count == len(rows)
        else pc.coalesce(rows["as_written"], rows["path"]),
        "kind": _encoded(rows["content"], _KINDS),
        "size_bytes": rows["size_bytes"],
        "reason": _encoded(rows["owner"], reasons),
    }
    return pa.table(columns, schema=_REMOVALS)


def _encoded(column: pa.ChunkedArray, values: pa.Array) -> pa.ChunkedArray:
    type_ = pa.dictionary(pa.int32(), values.type)
    chunks = [pa.DictionaryArray.from_arrays(chunk, values) for chunk in column.chunks]
    return pa.chunked_array(chunks, type_)
