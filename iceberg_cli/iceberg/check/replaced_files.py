"""What a snapshot that says it changed no row has done to its parent's files, read from the manifests that differ.

A manifest that both lists have, with the same numbers, is read only where a delete that came or went may apply to its
files. Of the others first the hashes of their entries are compared, and then those entries are read that differ.

Spec: "Manifest Lists", "Scan Planning", "Sequence Number Inheritance", "First Row ID Inheritance".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.string_hash import among, hash_column
from iceberg_cli.iceberg.branch.entry_columns import EQUALITY, POSITIONS, VECTOR
from iceberg_cli.iceberg.reachability.keys import Keys, key_set, live
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.rows.live_entries import ENTRY_COLUMNS, LiveEntries, LiveEntryReader
from iceberg_cli.iceberg.rows.row_deletes import DELETE_COLUMNS as ROW_DELETE_COLUMNS
from iceberg_cli.iceberg.rows.row_deletes import refuse_unfit, with_path_bounds
from iceberg_cli.iceberg.spec.manifests.manifest import (
    DATA,
    DELETES,
    MANIFEST_LIST_SCHEMA,
    EntryBatch,
    ManifestSource,
)
from iceberg_cli.iceberg.spec.table_metadata.columns import ROW_LINEAGE, column_types
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.rewrite_data_files.partitions import unpartitioned
from iceberg_cli.iceberg.verbs.rewrite_data_files.rules import (
    Doubt,
    applied_deletes,
    floating_point_deletes,
    named_files,
)
from iceberg_cli.plan.findings import Bools

ROW_ID: Final = ROW_LINEAGE[0].field_id
MOST: Final = np.iinfo(np.int64).max
_UNKNOWN: Final = -1
_COUNTS: Final = ("value_counts", "null_value_counts")
_NUMBERS: Final = ("content_offset", "sequence_number", "first_row_id", "record_count")
_KEY_COLUMNS: Final = ("status", "file_path_hash", *_NUMBERS)
_DATA_COLUMNS: Final = (*ENTRY_COLUMNS, "first_row_id", "content_offset")
_LISTED: Final = tuple(
    name for name in MANIFEST_LIST_SCHEMA.names if name not in {"partitions", "key_metadata"}
)
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
_Read = tuple[pa.Table, Constants]


@dataclass(kw_only=True)
class Side:
    """One of the two states.

    Args:
        files: data files of which something differs, by their entries or by deletes that apply to them.
        entries: live deletes that may apply to them, as `RowDeletes` has them.
        deletes: the same, as `applied_deletes` takes them.
    """

    files: pa.Table
    entries: list[pa.Table] = field(default_factory=list)
    deletes: pa.Table


@dataclass(kw_only=True)
class Replacement:
    """What a snapshot has changed of its parent's files.

    Args:
        parent: the state before, whose first `removed` files are not there any more as they were.
        child: the state after, whose first `added` files are new, or were listed in another way.
        removed: how many.
        added: how many.
        gone_deletes: deletes that are not there any more.
        constants: values of identity partition fields by the key of a partition.
    """

    parent: Side
    child: Side
    removed: int
    added: int
    gone_deletes: pa.Table
    constants: Constants


# -- entries -----------------------------------------------------------------------------------------------------------


def _spec_ids(sources: Sequence[ManifestSource], table: pa.Table) -> npt.NDArray[np.int32]:
    ids = np.array([source.partition_spec_id or 0 for source in sources], np.int32)
    return ids[table["manifest"].to_numpy()] if len(table) else np.empty(0, np.int32)


def _mixed(hashes: Keys, values: npt.NDArray[np.int64]) -> Keys:
    hashes = (hashes ^ (values.view(np.uint64) + _GOLDEN)) * _MULTIPLIER
    return hashes ^ (hashes >> np.uint64(29))


def _identities(sources: Sequence[ManifestSource], table: pa.Table) -> Keys:
    """A hash of all that decides which rows of an entry's file are live, and which ids they have."""
    named = "file_path_hash" in table.column_names
    hashes = table["file_path_hash"].to_numpy() if named else hash_column(table["file_path"])
    hashes = _mixed(hashes.copy(), _spec_ids(sources, table).astype(np.int64))
    for name in _NUMBERS:
        known = name in table.column_names
        values = pc.fill_null(table[name], _UNKNOWN).to_numpy() if known else np.full(len(table), _UNKNOWN)
        hashes = _mixed(hashes, values.astype(np.int64))
    return hashes


def _live_identities(sources: Sequence[ManifestSource], batch: EntryBatch) -> list[tuple[str, Keys]]:
    """Of the live entries of each manifest in a batch, by its path."""
    rows = live(batch.table)
    hashes, owners = _identities(sources, rows), rows["manifest"].to_numpy()
    bounds = np.searchsorted(owners, [[index, index + 1] for index in batch.sources]).reshape(-1, 2)
    return [
        (sources[index].path, hashes[first:stop])
        for index, (first, stop) in zip(batch.sources, bounds.tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Reads the live entries whose hash is among some."""

    reader: LiveEntryReader
    keys: Keys

    def __call__(self, sources: Sequence[ManifestSource], batch: EntryBatch) -> list[LiveEntries]:
        chosen = among(_identities(sources, batch.table), self.keys)
        return self.reader(sources, replace(batch, table=batch.table.filter(pa.array(chosen))))


@dataclass(frozen=True, slots=True)
class _DataFiles:
    """Reads data files that are chosen."""

    chosen: _Chosen

    def __call__(self, sources: Sequence[ManifestSource], batch: EntryBatch) -> list[_Read]:
        return [_as_files(self.chosen.reader, each) for each in self.chosen(sources, batch)]


@dataclass(frozen=True, slots=True)
class _Deletes:
    """Reads deletes that are chosen."""

    chosen: _Chosen

    def __call__(self, sources: Sequence[ManifestSource], batch: EntryBatch) -> list[pa.Table]:
        return [_as_deletes(each) for each in self.chosen(sources, batch)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReachedFiles:
    """Reads data files to which one of some deletes may apply."""

    reader: LiveEntryReader
    deletes: pa.Table  # columns as `applied_deletes` takes them
    everywhere: tuple[int, ...]

    def __call__(self, sources: Sequence[ManifestSource], batch: EntryBatch) -> list[_Read]:
        found = []
        for each in self.reader(sources, batch):
            files, constants = _as_files(self.reader, each)
            reached = (
                applied_deletes(files, self.deletes, everywhere=self.everywhere, until=MOST).delete_files > 0
            )
            found.append((files.filter(pa.array(reached)), constants))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReachingDeletes:
    """Reads deletes that may apply to some data files: those of their partitions, and those that name one."""

    reader: LiveEntryReader
    keys: pa.Array
    paths: pa.Array  # as bytes

    def __call__(self, sources: Sequence[ManifestSource], batch: EntryBatch) -> list[pa.Table]:
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


def _as_files(reader: LiveEntryReader, entries: LiveEntries) -> _Read:
    """Data files as `FILES_SCHEMA`, and the constants of their partitions."""
    rows = entries.table.combine_chunks()
    nulls = pa.nulls(len(rows), pa.int64())
    if set(_COUNTS) <= set(rows.column_names):
        own, none = (
            pc.map_lookup(rows[name].combine_chunks(), pa.scalar(ROW_ID, pa.int32()), "first")
            for name in _COUNTS
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
    lower, upper = entries["lower_bounds"], entries["upper_bounds"]
    none = pa.scalar(None, pa.binary())
    only = pc.coalesce(
        entries["referenced_data_file"].cast(pa.binary()), pc.if_else(pc.equal(lower, upper), lower, none)
    )
    return pa.table(
        {
            "kind": pa.array(kinds.astype(np.int8)),
            "path": entries["file_path"],
            "key": entries["key"],
            "spec_id": entries["spec_id"],
            "record_count": entries["record_count"],
            "sequence_number": entries["sequence_number"],
            "ref": entries["referenced_data_file"],
            "only": pc.if_else(pa.array(kinds == POSITIONS), only, none),
            "offset": entries["content_offset"],
            "equality_ids": entries["equality_ids"],
        }
    )


# -- what differs ------------------------------------------------------------------------------------------------------


def _differing(before: Sequence[Keys], after: Sequence[Keys]) -> Keys:
    """The keys that one side has more often than the other, each once."""
    first, second = (np.sort(np.concatenate([np.empty(0, np.uint64), *some])) for some in (before, after))
    if np.array_equal(first, second):
        return np.empty(0, np.uint64)
    keys = key_set([first, second])
    counts = [
        np.searchsorted(some, keys, side="right") - np.searchsorted(some, keys, side="left")
        for some in (first, second)
    ]
    found: Keys = keys[counts[0] != counts[1]]
    return found


def list_keys(rows: pa.Table) -> Keys:
    """A hash of each row of a manifest list: of the path and all numbers."""
    hashes = hash_column(rows["manifest_path"]) if len(rows) else np.empty(0, np.uint64)
    for name in _LISTED:
        if name != "manifest_path":
            hashes = _mixed(
                hashes, pc.fill_null(rows[name].cast(pa.int64()), _UNKNOWN).to_numpy().astype(np.int64)
            )
    return hashes


@dataclass(kw_only=True)
class ReplacementReader:
    """Reads what snapshots have changed of their parents' files.

    Args:
        table: as loaded.
        reachability: reads manifests.
    """

    table: IcebergTable
    reachability: Reachability

    def __post_init__(self) -> None:
        """Derive what every snapshot uses."""
        metadata = self.table.metadata
        self._reader = LiveEntryReader(
            specs={spec.spec_id: spec for spec in metadata.partition_specs}, types=column_types(metadata)
        )
        self.everywhere = unpartitioned(metadata)
        counts = _COUNTS if metadata.format_version > 2 else ()
        self._data_columns = (*_DATA_COLUMNS, *counts)

    def manifests(self, snapshot: Snapshot) -> pa.Table:
        """The rows of a snapshot's manifest list.

        Raises:
            CorruptFile: it cannot be read. Refused: it is encrypted.
        """
        files = snapshot_files(snapshot)
        return self.reachability.manifests(
            (files,), phase="reading manifest lists", required=True
        ).rows.select(MANIFEST_LIST_SCHEMA.names)

    def read(self, before: pa.Table, after: pa.Table) -> Replacement:
        """What differs between two states.

        Args:
            before: rows of the parent's manifest list.
            after: of the snapshot's own.

        Raises:
            CorruptFile: a manifest cannot be read whole. Refused: something is encrypted.
        """
        keys = list_keys(before), list_keys(after)
        kept = np.isin(keys[0], keys[1])
        shared = before.filter(pa.array(kept))
        own = before.filter(pa.array(~kept)), after.filter(pa.array(~np.isin(keys[1], keys[0])))
        removed, added, constants = self._changed_files(*own)
        gone, new = self._changed_deletes(*own)
        touched, more = self._reached(before, pa.concat_tables([gone, new]), [removed, added])
        constants |= more
        files = [pa.concat_tables([some, touched]).combine_chunks() for some in (removed, added)]
        # What both have is read once, by the files of both: what applies to none of a side's files does no harm there.
        common = self._reaching(shared, pa.concat_tables(files))
        sides = [
            _side(some, [*common, *self._reaching(rows, some)]) for some, rows in zip(files, own, strict=True)
        ]
        return Replacement(
            parent=sides[0], child=sides[1], removed=len(removed), added=len(added), gone_deletes=gone,
            constants=constants,
        )  # fmt: skip

    def _differing_entries(self, before: pa.Table, after: pa.Table) -> tuple[Keys, list[pa.Table]]:
        """The hashes of entries that differ, and of both lists the manifests that have some."""
        phase = "comparing manifests"
        found = [self._read(rows, _KEY_COLUMNS, _live_identities, phase=phase) for rows in (before, after)]
        keys = _differing(*([hashes for _, hashes in pairs] for pairs in found))
        holding = []
        for rows, pairs in zip((before, after), found, strict=True):
            paths = [path for path, hashes in pairs if among(hashes, keys).any()]
            holding.append(
                rows.filter(pc.is_in(rows["manifest_path"], value_set=pa.array(paths, pa.string())))
            )
        return keys, holding

    def _changed_files(self, before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table, Constants]:
        keys, holding = self._differing_entries(_of(before, DATA), _of(after, DATA))
        constants: Constants = {}
        found = []
        for rows in holding:
            files, own = self._data_files(rows, _DataFiles(_Chosen(self._reader, keys)))
            constants |= own
            found.append(files)
        return found[0], found[1], constants

    def _changed_deletes(self, before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
        keys, holding = self._differing_entries(_of(before, DELETES), _of(after, DELETES))
        found = [self._deletes(rows, _Deletes(_Chosen(self._reader, keys))) for rows in holding]
        return _decided_on(found[0]), _decided_on(found[1])

    def _reached(
        self, manifests: pa.Table, deletes: pa.Table, changed: Sequence[pa.Table]
    ) -> tuple[pa.Table, Constants]:
        """Files that are listed as before, and to which deletes apply that came or went."""
        paths = pa.concat_tables(changed)["path"].cast(pa.binary()).combine_chunks()
        deletes = deletes.filter(pc.invert(pc.is_in(named_files(deletes), value_set=paths))).combine_chunks()
        if not len(deletes):
            return FILES_SCHEMA.empty_table(), {}
        rows = _of(manifests, DATA)
        near = (
            pc.fill_null(rows["min_sequence_number"], 0).to_numpy()
            <= deletes["sequence_number"].to_numpy().max()
        )
        by_partition = named_files(deletes).null_count == len(deletes)
        if by_partition and not np.isin(deletes["spec_id"].to_numpy(), self.everywhere).any():
            near &= np.isin(rows["partition_spec_id"].to_numpy(), deletes["spec_id"].to_numpy())
        make = _ReachedFiles(reader=self._reader, deletes=deletes, everywhere=tuple(self.everywhere))
        found, constants = self._data_files(rows.filter(pa.array(near)), make)
        return found.filter(pc.invert(pc.is_in(found["path"].cast(pa.binary()), value_set=paths))), constants

    def _reaching(self, manifests: pa.Table, files: pa.Table) -> list[pa.Table]:
        """The deletes in some manifests that may apply to data files."""
        if not len(files):
            return []
        rows = _of(manifests, DELETES)
        newest = pc.fill_null(rows["sequence_number"], 0).to_numpy()
        make = _ReachingDeletes(
            reader=self._reader,
            keys=pc.unique(files["key"]),
            paths=files["path"].cast(pa.binary()).combine_chunks(),
        )
        return self._deletes(rows.filter(pa.array(newest >= files["sequence_number"].to_numpy().min())), make)

    def naming(self, rows: pa.Table, paths: pa.Array) -> pa.Table:
        """The live deletes that name one of some data files, and no other file, as `applied_deletes` takes them.

        Args:
            rows: of a manifest list.
            paths: as bytes.
        """
        make = _ReachingDeletes(reader=self._reader, keys=pa.array([], pa.binary()), paths=paths)
        found = _decided_on(self._deletes(_of(rows, DELETES), make))
        found = found.append_column("name", named_files(found))
        return found.filter(pc.is_in(found["name"], value_set=paths)).combine_chunks()

    def _data_files(self, rows: pa.Table, make: Any) -> _Read:
        constants: Constants = {}
        parts = [FILES_SCHEMA.empty_table()]
        for files, own in self._read(rows, self._data_columns, make, phase="reading data manifests"):
            parts.append(files)
            constants |= own if len(files) else {}
        return pa.concat_tables(parts), constants

    def _deletes(self, rows: pa.Table, make: Any) -> list[pa.Table]:
        read = self._read(rows, ROW_DELETE_COLUMNS, make, phase="reading delete manifests")
        found = [each for each in read if len(each)]
        for each in found:
            refuse_unfit(each, self.table.metadata)
        return found

    def _read(self, rows: pa.Table, columns: Sequence[str], make: Any, *, phase: str) -> list[Any]:
        """What `make` has made of the entries of manifests, one after the other."""
        if not len(rows):
            return []
        return [
            each for some in self.reachability.from_entries(rows, columns, make, phase=phase) for each in some
        ]


_NO_DELETES: Final = pa.schema(
    {
        "kind": pa.int8(), "path": pa.string(), "key": pa.binary(), "spec_id": pa.int32(), "record_count": pa.int64(),
        "sequence_number": pa.int64(), "ref": pa.string(), "only": pa.binary(), "offset": pa.int64(),
        "equality_ids": pa.list_(pa.int32()),
    }
).empty_table()  # fmt: skip


def _decided_on(entries: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables([_NO_DELETES, *map(deletes_to_decide_on, entries)]).combine_chunks()


def _side(files: pa.Table, entries: list[pa.Table]) -> Side:
    return Side(files=files, entries=entries, deletes=_decided_on(entries))


def _of(rows: pa.Table, content: int) -> pa.Table:
    return rows.filter(pc.equal(rows["content"], content))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Which deletes may apply to n data files.

    Args:
        by_value: whether equality deletes may.
        by_position: whether position deletes or a deletion vector may.
        doubts: of `Doubt`: rows that readers do not agree on.
    """

    by_value: Bools
    by_position: Bools
    doubts: npt.NDArray[np.int8]


def reach_of(side: Side, metadata: TableMetadata) -> Reach:
    """Which deletes of a state may apply to its files."""
    everywhere, deletes = unpartitioned(metadata), side.deletes
    applied = applied_deletes(side.files, deletes, everywhere=everywhere, until=MOST)
    doubts = applied.doubts
    # One that is listed twice has its rows twice, for all readers.
    doubts[doubts == Doubt.LISTED_TWICE] = Doubt.NONE
    floating = floating_point_deletes(deletes, column_types(metadata))
    if len(floating):
        by_floats = applied_deletes(side.files, floating, everywhere=everywhere, until=MOST).delete_files > 0
        doubts[by_floats & (doubts == Doubt.NONE)] = Doubt.FLOATING_POINT
    paths = side.files["path"]
    positions = paths.filter(pa.array(applied.position_digests != 0)).combine_chunks()
    return Reach(
        by_value=applied.equality_digests != 0,
        by_position=pc.is_in(paths, value_set=positions).to_numpy(),
        doubts=doubts,
    )
