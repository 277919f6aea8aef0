"""Entries of manifests as columns, by which a snapshot's files are compared with its parent's.

Spec: "Manifest Entry Fields", "Scan Planning", "Row Lineage".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.string_hash import among, hash_column
from iceberg_cli.iceberg.branch.entry_columns import EQUALITY, POSITIONS, VECTOR, only_data_file
from iceberg_cli.iceberg.reachability.keys import Keys, live
from iceberg_cli.iceberg.rows.live_entries import ENTRY_COLUMNS, LiveEntries, LiveEntryReader
from iceberg_cli.iceberg.rows.row_deletes import with_path_bounds
from iceberg_cli.iceberg.spec.manifests.manifest import DELETED, EntryBatch, ManifestSource
from iceberg_cli.iceberg.spec.table_metadata.columns import ROW_LINEAGE
from iceberg_cli.iceberg.verbs.rewrite_data_files.rules import applied_deletes, named_files

ROW_ID: Final = ROW_LINEAGE[0].field_id
MOST: Final = np.iinfo(np.int64).max
UNKNOWN: Final = -1
COUNTS: Final = ("value_counts", "null_value_counts")
_NUMBERS: Final = ("content_offset", "sequence_number", "first_row_id", "record_count")
KEY_COLUMNS: Final = ("status", "file_path_hash", *_NUMBERS)
DATA_COLUMNS: Final = (*ENTRY_COLUMNS, "first_row_id", "content_offset")
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER: Final = np.uint64(0xBF58476D1CE4E5B9)

FILES_SCHEMA: Final = pa.schema(
    {
        "path": pa.string(),
        "file_path": pa.string(),  # the same: what reads deletes and what decides on them call it differently
        "file_format": pa.string(),  # in lower case
        "spec_id": pa.int32(),
        "key": pa.binary(),  # of spec and partition
        "record_count": pa.int64(),
        "file_size_in_bytes": pa.int64(),
        "sequence_number": pa.int64(),
        "first_row_id": pa.int64(),
        "null_row_ids": pa.int64(),  # rows without one in the file's own column; null: not known
    }
)
"""Of data files."""
Constants = dict[bytes, dict[int, pa.Scalar]]
FilesRead = tuple[pa.Table, Constants]


def _spec_ids(sources: Sequence[ManifestSource], table: pa.Table) -> npt.NDArray[np.int32]:
    ids = np.array([source.partition_spec_id or 0 for source in sources], np.int32)
    return ids[table["manifest"].to_numpy()] if len(table) else np.empty(0, np.int32)


def mixed(hashes: Keys, values: npt.NDArray[np.int64]) -> Keys:
    """Hashes of these and those values."""
    hashes = (hashes ^ (values.view(np.uint64) + _GOLDEN)) * _MULTIPLIER
    return hashes ^ (hashes >> np.uint64(29))


def _identities(sources: Sequence[ManifestSource], table: pa.Table) -> Keys:
    """A hash of all that decides which rows of an entry's file are live, and which ids they have."""
    named = "file_path_hash" in table.column_names
    hashes = table["file_path_hash"].to_numpy() if named else hash_column(table["file_path"])
    hashes = mixed(hashes.copy(), _spec_ids(sources, table).astype(np.int64))
    for name in _NUMBERS:
        known = name in table.column_names
        values = pc.fill_null(table[name], UNKNOWN).to_numpy() if known else np.full(len(table), UNKNOWN)
        hashes = mixed(hashes, values.astype(np.int64))
    return hashes


def live_identities(sources: Sequence[ManifestSource], batch: EntryBatch) -> list[tuple[str, Keys]]:
    """Of the live entries of each manifest in a batch, by its path."""
    rows = live(batch.table)
    hashes, owners = _identities(sources, rows), rows["manifest"].to_numpy()
    bounds = np.searchsorted(owners, [[index, index + 1] for index in batch.sources]).reshape(-1, 2)
    return [
        (sources[index].path, hashes[first:stop])
        for index, (first, stop) in zip(batch.sources, bounds.tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class TakenOut:
    """Reads the paths of files that a snapshot took out."""

    snapshot_id: int

    def __call__(self, _: Sequence[ManifestSource], batch: EntryBatch) -> list[pa.Array]:
        """Of one batch."""
        rows = batch.table
        mask = pc.and_(pc.equal(rows["status"], DELETED), pc.equal(rows["snapshot_id"], self.snapshot_id))
        return [rows.filter(pc.fill_null(mask, False))["file_path"].combine_chunks().cast(pa.binary())]  # noqa: FBT003


@dataclass(frozen=True, slots=True)
class ChosenEntries:
    """Reads the live entries whose hash is among some."""

    reader: LiveEntryReader
    keys: Keys

    def __call__(self, sources: Sequence[ManifestSource], batch: EntryBatch) -> list[LiveEntries]:
        """Of one batch."""
        chosen = among(_identities(sources, batch.table), self.keys)
        return self.reader(sources, replace(batch, table=batch.table.filter(pa.array(chosen))))


@dataclass(frozen=True, slots=True)
class ChosenFiles:
    """Reads data files that are chosen."""

    chosen: ChosenEntries

    def __call__(self, sources: Sequence[ManifestSource], batch: EntryBatch) -> list[FilesRead]:
        """Of one batch."""
        return [_as_files(self.chosen.reader, each) for each in self.chosen(sources, batch)]


@dataclass(frozen=True, slots=True)
class ChosenDeletes:
    """Reads deletes that are chosen."""

    chosen: ChosenEntries

    def __call__(self, sources: Sequence[ManifestSource], batch: EntryBatch) -> list[pa.Table]:
        """Of one batch."""
        return [_as_deletes(each) for each in self.chosen(sources, batch)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedFiles:
    """Reads data files to which one of some deletes may apply."""

    reader: LiveEntryReader
    deletes: pa.Table  # columns as `applied_deletes` takes them
    everywhere: tuple[int, ...]

    def __call__(self, sources: Sequence[ManifestSource], batch: EntryBatch) -> list[FilesRead]:
        """Of one batch."""
        found = []
        for each in self.reader(sources, batch):
            files, constants = _as_files(self.reader, each)
            reached = (
                applied_deletes(files, self.deletes, everywhere=self.everywhere, until=MOST).delete_files > 0
            )
            found.append((files.filter(pa.array(reached)), constants))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachingDeletes:
    """Reads deletes that may apply to some data files: those of their partitions, and those that name one."""

    reader: LiveEntryReader
    keys: pa.Array
    paths: pa.Array  # as bytes

    def __call__(self, sources: Sequence[ManifestSource], batch: EntryBatch) -> list[pa.Table]:
        """Of one batch."""
        found = []
        for each in self.reader(sources, batch):
            entries = _as_deletes(each)
            named = named_files(deletes_to_decide_on(entries))
            mask = pc.or_(
                pc.is_in(named, value_set=self.paths), pc.is_in(entries["key"], value_set=self.keys)
            )
            is_global = pc.and_(entries["everywhere"], pc.equal(entries["content"], 2))
            found.append(entries.filter(pc.or_(mask, is_global)))
        return found


def _as_files(reader: LiveEntryReader, entries: LiveEntries) -> FilesRead:
    """Data files as `FILES_SCHEMA`, and the constants of their partitions."""
    rows = entries.table.combine_chunks()
    nulls = pa.nulls(len(rows), pa.int64())
    if set(COUNTS) <= set(rows.column_names):
        own, none = (
            pc.map_lookup(rows[name].combine_chunks(), pa.scalar(ROW_ID, pa.int32()), "first")
            for name in COUNTS
        )
        nulls = pc.if_else(pc.is_valid(own), none, nulls)
    columns = {
        "path": rows["file_path"],
        "file_path": rows["file_path"],
        "file_format": pc.utf8_lower(rows["file_format"]),
        "spec_id": pa.array(np.full(len(rows), entries.spec_id, np.int32)),
        "key": rows["key"],
        "record_count": rows["record_count"],
        "file_size_in_bytes": rows["file_size_in_bytes"],
        "sequence_number": rows["sequence_number"],
        "first_row_id": rows["first_row_id"],
        "null_row_ids": nulls,
    }
    return pa.table(columns, schema=FILES_SCHEMA), reader.constants([entries], entries.keys)


def _as_deletes(entries: LiveEntries) -> pa.Table:
    """Deletes as `RowDeletes` takes them, with the id of their partition spec."""
    rows = with_path_bounds(entries.table)
    return rows.append_column("spec_id", pa.array(np.full(len(rows), entries.spec_id, np.int32)))


def deletes_to_decide_on(entries: pa.Table) -> pa.Table:
    """Deletes as `applied_deletes` takes them."""
    puffin = pc.equal(pc.utf8_lower(entries["file_format"]), "puffin").to_numpy()
    kinds = np.where(entries["content"].to_numpy() == 2, EQUALITY, np.where(puffin, VECTOR, POSITIONS))
    kinds = kinds.astype(np.int8)
    bounds = entries["lower_bounds"], entries["upper_bounds"]
    return pa.table(
        {
            "kind": pa.array(kinds),
            "path": entries["file_path"],
            "key": entries["key"],
            "spec_id": entries["spec_id"],
            "record_count": entries["record_count"],
            "sequence_number": entries["sequence_number"],
            "ref": entries["referenced_data_file"],
            "only": only_data_file(kinds, entries["referenced_data_file"], bounds),
            "offset": entries["content_offset"],
            "equality_ids": entries["equality_ids"],
        }
    )


_NO_DELETES: Final = pa.schema(
    {
        "kind": pa.int8(), "path": pa.string(), "key": pa.binary(), "spec_id": pa.int32(), "record_count": pa.int64(),
        "sequence_number": pa.int64(), "ref": pa.string(), "only": pa.binary(), "offset": pa.int64(),
        "equality_ids": pa.list_(pa.int32()),
    }
).empty_table()  # fmt: skip


def decided_on(entries: Sequence[pa.Table]) -> pa.Table:
    """The same of several tables, as one."""
    return pa.concat_tables([_NO_DELETES, *map(deletes_to_decide_on, entries)]).combine_chunks()
