"""Reachable files as sets of 64-bit hashes of their paths. Pure: columns in, columns out.

Kept paths are held as sorted 64-bit hashes of their path keys: equal paths hash equally, so a live file is never
missed, and a collision only keeps a file that could have gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.encoding.string_hash import among, hash_column
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.reachability.question import SnapshotFiles
from iceberg_cli.iceberg.spec.manifests.manifest import MANIFEST_LIST_SCHEMA, ManifestSource
from iceberg_cli.iceberg.spec.table_metadata.encryption import check_plain_manifests
from iceberg_cli.paths import path_key_column

Keys = npt.NDArray[np.uint64]

NO_KEYS: Keys = np.empty(0, np.uint64)
_SOURCE_COLUMNS = (
    "content",
    "partition_spec_id",
    "sequence_number",
    "added_snapshot_id",
    "first_row_id",
    "added_files_count",
    "existing_files_count",
    "deleted_files_count",
)
_ALIVE = (0, 1)  # EXISTING, ADDED


def keys_of(paths: pa.Array | pa.ChunkedArray) -> Keys:
    """The keys of n paths, in their order."""
    array = paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths
    return hash_column(path_key_column(array)) if len(array) else NO_KEYS


def key_set(parts: Sequence[Keys]) -> Keys:
    """Sorted, each key once."""
    # np.unique would build a hash table of many times the size of the keys. A stable sort merges what is sorted.
    keys = np.sort(np.concatenate([NO_KEYS, *parts]), kind="stable")
    new = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    return keys[new]


def check_lists(snapshots: Sequence[SnapshotFiles], rows: pa.Table) -> None:
    """Refuse a manifest list that may be the beginning of a longer one.

    A list records no length, and cut at a block boundary it is a legal shorter file. So the live files counted
    from its rows may not be fewer than the snapshot summary's totals; a surplus is legal, other writers' totals drift.

    Args:
        snapshots: n snapshots.
        rows: of their lists, with `list`, an index into `snapshots`.

    Raises:
        CorruptFile: fewer files than the summary says; or, without totals, no row at all, or no row of the
            snapshot's own although it added files.
    """
    lists = rows["list"].to_numpy()
    listed = np.bincount(lists, minlength=len(snapshots))
    ids = np.array([snapshot.snapshot_id for snapshot in snapshots], np.int64)
    own_rows = pc.fill_null(rows["added_snapshot_id"], 0).to_numpy() == ids[lists]
    own = np.bincount(lists[own_rows], minlength=len(snapshots))
    counted = {content: _live_counts(rows, content, len(snapshots)) for content in (0, 1)}
    for index, snapshot in enumerate(snapshots):
        path = snapshot.manifest_list or f"snapshot {snapshot.snapshot_id}"
        if snapshot.total_data_files is None and snapshot.total_delete_files is None:
            if not listed[index]:
                raise CorruptFile(
                    path, None, "the list is empty, and no totals in its snapshot's summary confirm it"
                )
            if snapshot.added_data_files and not own[index]:
                reason = f"snapshot {snapshot.snapshot_id} added files, and no manifest of its own is listed"
                raise CorruptFile(path, None, reason)
        for content, total, what in (
            (0, snapshot.total_data_files, "data files"),
            (1, snapshot.total_delete_files, "delete files"),
        ):
            files = counted[content][index]
            if total is not None and 0 <= files < total:
                reason = f"its manifests hold {files} {what}, its snapshot's summary says {total}: it was cut short"
                raise CorruptFile(path, None, reason)


def without_counts(rows: pa.Table) -> list[tuple[int, tuple[str, ...]]]:
    """The lists of which a manifest has no counts (v1), each with all its manifests."""
    nulls = live_files(rows).is_null()
    lists = pc.unique(rows.filter(nulls)["list"]).to_pylist()
    return [
        (index, tuple(rows.filter(pc.equal(rows["list"], index))["manifest_path"].to_pylist()))
        for index in lists
    ]


def check_counted(snapshot: SnapshotFiles, live_files: int) -> None:
    """Refuse a snapshot whose manifests, read whole, hold fewer live files than its summary says.

    Raises:
        CorruptFile: see `check_lists`.
    """
    total = (snapshot.total_data_files or 0) + (snapshot.total_delete_files or 0)
    if live_files < total:
        path = snapshot.manifest_list or f"snapshot {snapshot.snapshot_id}"
        reason = (
            f"its manifests hold {live_files} files, its snapshot's summary says {total}: it was cut short"
        )
        raise CorruptFile(path, None, reason)


def live_count(rows: pa.Table, content: int) -> int | None:
    """Live files in the manifests of one content, or None where a manifest has no counts (v1)."""
    files = live_files(rows.filter(pc.equal(rows["content"], content)))
    return None if files.null_count else int(pc.sum(files).as_py() or 0)


def _live_counts(rows: pa.Table, content: int, lists: int) -> npt.NDArray[np.int64]:
    """Live files by list in the manifests of one content; -1 where a manifest has no counts (v1)."""
    of_content = rows.filter(pc.equal(rows["content"], content))
    files = live_files(of_content)
    index = of_content["list"].to_numpy()
    counts = np.bincount(index, pc.fill_null(files, 0).to_numpy(), minlength=lists).astype(np.int64)
    counts[index[files.is_null().to_numpy()]] = -1
    return counts


def live_rows(rows: pa.Table) -> pa.ChunkedArray:
    """How many rows the live files of n manifests have, as their lists say; null where one of the counts is."""
    return pc.add(rows["added_rows_count"], rows["existing_rows_count"])


def live_files(rows: pa.Table) -> pa.ChunkedArray:
    """How many live files n manifests have, as their lists say; null where one of the counts is."""
    return pc.add(rows["added_files_count"].cast("int64"), rows["existing_files_count"].cast("int64"))


def first_listed(rows: pa.Table, known: pa.ChunkedArray) -> pa.Table:
    """The rows whose manifest is not among the `known` paths, each manifest once, with its first row.

    By the paths themselves, not by keys: of two kept manifests that were taken for one, one would not be read.
    """
    places = rows["manifest_path"].combine_chunks().dictionary_encode().indices.to_numpy()
    _, first = np.unique(places, return_index=True)
    chosen = rows.take(array_of(np.sort(first)))
    return chosen.filter(pc.invert(pc.is_in(chosen["manifest_path"], value_set=known)))


def inline_rows(snapshot: SnapshotFiles) -> pa.Table:
    """The manifests that a v1 snapshot names itself, as rows of a list without counts."""
    empty = no_rows().drop_columns(["snapshot_id"])
    count = len(snapshot.manifests)
    columns = {name: pa.nulls(count, empty.schema.field(name).type) for name in empty.column_names}
    columns["manifest_path"] = pa.array(snapshot.manifests, pa.string())
    for name in ("content", "sequence_number", "min_sequence_number", "partition_spec_id"):
        columns[name] = pa.array([0] * count, empty.schema.field(name).type)
    table = pa.table(columns).cast(empty.schema)
    return table.add_column(0, "list", pa.array([0] * count, pa.int32()))


def no_rows() -> pa.Table:
    """No manifest."""
    return MANIFEST_LIST_SCHEMA.empty_table().append_column("snapshot_id", pa.array([], pa.int64()))


def sources_of(rows: pa.Table) -> list[ManifestSource]:
    """The sources of the entry reader for rows of manifest lists, without the bytes.

    Raises:
        Refused: one is encrypted.
    """
    check_plain_manifests(rows)
    columns = ("manifest_path", "manifest_length", *_SOURCE_COLUMNS)
    values = zip(*(rows[name].to_pylist() for name in columns), strict=True)
    return [
        ManifestSource(path=path, data=b"", length=length, **dict(zip(_SOURCE_COLUMNS, rest, strict=True)))
        for path, length, *rest in values
    ]


def live(entries: pa.Table) -> pa.Table:
    """The entries that a reader of the snapshot sees: ADDED and EXISTING."""
    alive = pc.is_in(entries["status"], value_set=pa.array(_ALIVE, entries["status"].type))
    return entries if pc.all(alive).as_py() else entries.filter(alive)


_FEW = 8  # so many times more keys are known than asked for: looking through them once is quicker than sorting them
_LOOKS = 4  # so many looks cost about as much as sorting
_AT_ONCE = 1 << 16  # keys that are looked at together: the processor's cache holds them
_BITS_FOR_EACH = 6  # of the table that rules keys out, as a power of two: one key in 64 passes it
_LEAST_BITS, _MOST_BITS = 16, 22


class KnownKeys:
    """Keys of everything that stays.

    Args:
        blocks: any number of arrays of keys, in any order; a key may be in several.
    """

    def __init__(self, blocks: Sequence[Keys]) -> None:
        self._blocks = [block for block in blocks if len(block)]
        self._whole: Keys | None = None
        self._looks = 0
        self.size = sum(map(len, self._blocks))  # of all blocks together

    def whole(self) -> Keys:
        """All of them, sorted, each once."""
        if self._whole is None:
            self._whole = key_set(self._blocks)
            self._blocks = [self._whole]
        return self._whole

    def few(self, count: int) -> bool:
        """Whether so many keys are few beside the known ones."""
        return count * _FEW < self.size

    def contains(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """For each of n keys, whether it is known."""
        if self._whole is None and self.few(len(keys)) and self._looks < _LOOKS:
            self._looks += 1
            return among(keys, self._those_of(keys))
        return among(keys, self.whole())

    def _those_of(self, keys: Keys) -> Keys:
        """The known keys that are in `keys`, and some others."""
        if not len(keys):
            return NO_KEYS
        bits = min(max(len(keys).bit_length() + _BITS_FOR_EACH, _LEAST_BITS), _MOST_BITS)
        shift = np.uint64(64 - bits)
        probed = np.zeros(1 << bits, np.bool_)
        probed[keys >> shift] = True
        # Signed places: numpy would copy others to such before it looks them up.
        return key_set([block[probed[(block >> shift).view(np.int64)]] for block in self._together()])

    def _together(self) -> Iterator[Keys]:
        """Blocks of many keys: numpy takes as long for an array of two hundred as for one of two thousand."""
        waiting: list[Keys] = []
        count = 0
        for block in self._blocks:
            waiting.append(block)
            count += len(block)
            if count >= _AT_ONCE:
                yield np.concatenate(waiting)
                waiting, count = [], 0
        if waiting:
            yield np.concatenate(waiting)
