"""What a snapshot that says it changed no row has done to its parent's files, read from the manifests that differ.

A manifest that both lists have, with the same numbers, is read only where a delete that came or went may apply to its
files. Of the others first the hashes of their entries are compared, and then those entries are read that differ.

Spec: "Manifest Lists", "Scan Planning", "Sequence Number Inheritance", "First Row ID Inheritance".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.string_hash import among, hash_column
from iceberg_cli.iceberg.branch.entry_columns import VECTOR
from iceberg_cli.iceberg.check.replaced_entries import (
    COUNTS,
    DATA_COLUMNS,
    FILES_SCHEMA,
    KEY_COLUMNS,
    MOST,
    UNKNOWN,
    ChosenDeletes,
    ChosenEntries,
    ChosenFiles,
    Constants,
    FilesRead,
    ReachedFiles,
    ReachingDeletes,
    TakenOut,
    decided_on,
    live_identities,
    mixed,
)
from iceberg_cli.iceberg.reachability.keys import Keys, key_set
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.rows.live_entries import LiveEntryReader
from iceberg_cli.iceberg.rows.row_deletes import DELETE_COLUMNS, refuse_unfit
from iceberg_cli.iceberg.spec.manifests.manifest import DATA, DELETES, MANIFEST_LIST_SCHEMA
from iceberg_cli.iceberg.spec.table_metadata.columns import column_types
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.rewrite_data_files.partitions import unpartitioned
from iceberg_cli.iceberg.verbs.rewrite_data_files.rules import (
    Doubt,
    applied_deletes,
    doubt_floating_point,
    named_files,
)
from iceberg_cli.plan.findings import Bools, Ints

_LISTED: Final = tuple(
    name for name in MANIFEST_LIST_SCHEMA.names if name not in {"partitions", "key_metadata"}
)


@dataclass(kw_only=True)
class Side:
    """One of the two states.

    Args:
        files: data files of which something differs, by their entries or by deletes that apply to them.
        entries: live deletes that may apply to them, as `RowDeletes` has them.
        deletes: the same, as `applied_deletes` takes them.
    """

    files: pa.Table
    entries: list[pa.Table]
    deletes: pa.Table


@dataclass(kw_only=True)
class Replacement:
    """What a snapshot has changed of its parent's files.

    Args:
        parent: the state before, whose first `removed` files are not there any more as they were.
        child: the state after, whose first `added` files are new, or were listed in another way.
        removed: how many.
        added: how many.
        constants: values of identity partition fields by the key of a partition.
    """

    parent: Side
    child: Side
    removed: int
    added: int
    constants: Constants

    @property
    def gone(self) -> pa.Table:
        """Files that are not there any more as they were."""
        return self.parent.files.slice(0, self.removed)

    @property
    def new(self) -> pa.Table:
        """Files that are new, or were listed in another way."""
        return self.child.files.slice(0, self.added)

    @cached_property
    def partitions(self) -> tuple[Ints, Ints, int]:
        """Numbers of the partitions of both states' files, and how many there are: one where a file changed its spec.

        A row stays in its partition as long as its file keeps its spec.
        """
        files = [side.files for side in (self.parent, self.child)]
        specs = {spec_id for each in files for spec_id in pc.unique(each["spec_id"]).to_pylist()}
        keys = pa.chunked_array([chunk for each in files for chunk in each["key"].chunks], pa.binary())
        codes = keys.combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
        if len(specs) > 1:
            codes = np.zeros(len(codes), np.int64)
        split = len(files[0])
        return codes[:split], codes[split:], int(codes.max(initial=-1)) + 1


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
            hashes = mixed(
                hashes, pc.fill_null(rows[name].cast(pa.int64()), UNKNOWN).to_numpy().astype(np.int64)
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
        counts = COUNTS if metadata.format_version > 2 else ()
        self._data_columns = (*DATA_COLUMNS, *counts)

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
        common = self._applicable_deletes(shared, pa.concat_tables(files))
        sides = [
            _side(some, [*common, *self._applicable_deletes(rows, some)])
            for some, rows in zip(files, own, strict=True)
        ]
        return Replacement(
            parent=sides[0], child=sides[1], removed=len(removed), added=len(added), constants=constants,
        )  # fmt: skip

    def _differing_entries(self, before: pa.Table, after: pa.Table) -> tuple[Keys, list[pa.Table]]:
        """The hashes of entries that differ, and of both lists the manifests that have some."""
        phase = "comparing manifests"
        found = [self._read(rows, KEY_COLUMNS, live_identities, phase=phase) for rows in (before, after)]
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
            files, own = self._data_files(rows, ChosenFiles(ChosenEntries(self._reader, keys)))
            constants |= own
            found.append(files)
        return found[0], found[1], constants

    def _changed_deletes(self, before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
        keys, holding = self._differing_entries(_of(before, DELETES), _of(after, DELETES))
        found = [self._deletes(rows, ChosenDeletes(ChosenEntries(self._reader, keys))) for rows in holding]
        return decided_on(found[0]), decided_on(found[1])

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
        make = ReachedFiles(reader=self._reader, deletes=deletes, everywhere=tuple(self.everywhere))
        found, constants = self._data_files(rows.filter(pa.array(near)), make)
        return found.filter(pc.invert(pc.is_in(found["path"].cast(pa.binary()), value_set=paths))), constants

    def _applicable_deletes(self, manifests: pa.Table, files: pa.Table) -> list[pa.Table]:
        """The deletes in some manifests that may apply to data files."""
        if not len(files):
            return []
        rows = _of(manifests, DELETES)
        newest = pc.fill_null(rows["sequence_number"], 0).to_numpy()
        make = ReachingDeletes(
            reader=self._reader,
            keys=pc.unique(files["key"]),
            paths=files["path"].cast(pa.binary()).combine_chunks(),
        )
        return self._deletes(rows.filter(pa.array(newest >= files["sequence_number"].to_numpy().min())), make)

    def taken_out(self, snapshot: Snapshot) -> pa.Array:
        """The paths of data files that a snapshot says it took out, as bytes: all that is known without its parent.

        Raises:
            CorruptFile: see `read`. Refused: likewise.
        """
        rows = _of(self.manifests(snapshot), DATA)
        own = rows.filter(pc.equal(rows["added_snapshot_id"], snapshot.snapshot_id))
        columns = ("status", "snapshot_id", "file_path")
        paths = self._read(own, columns, TakenOut(snapshot.snapshot_id), phase="reading data manifests")
        return pa.chunked_array(paths, pa.binary()).combine_chunks()

    def naming(self, rows: pa.Table, paths: pa.Array) -> pa.Table:
        """The live deletes that name one of some data files, and no other file, as `applied_deletes` takes them.

        Args:
            rows: of a manifest list.
            paths: as bytes.
        """
        make = ReachingDeletes(reader=self._reader, keys=pa.array([], pa.binary()), paths=paths)
        found = decided_on(self._deletes(_of(rows, DELETES), make))
        found = found.append_column("name", named_files(found))
        return found.filter(pc.is_in(found["name"], value_set=paths)).combine_chunks()

    def _data_files(self, rows: pa.Table, make: Any) -> FilesRead:
        constants: Constants = {}
        parts = [FILES_SCHEMA.empty_table()]
        for files, own in self._read(rows, self._data_columns, make, phase="reading data manifests"):
            parts.append(files)
            constants |= own if len(files) else {}
        return pa.concat_tables(parts), constants

    def _deletes(self, rows: pa.Table, make: Any) -> list[pa.Table]:
        read = self._read(rows, DELETE_COLUMNS, make, phase="reading delete manifests")
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


def _side(files: pa.Table, entries: list[pa.Table]) -> Side:
    return Side(files=files, entries=entries, deletes=decided_on(entries))


def _of(rows: pa.Table, content: int) -> pa.Table:
    return rows.filter(pc.equal(rows["content"], content))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Which deletes may apply to n data files.

    Args:
        by_value: whether equality deletes may.
        by_position: whether position deletes or a deletion vector may.
        by_vector: rows that its deletion vector says it deletes; -1 where it has none.
        doubts: of `Doubt`: rows that readers do not agree on.
    """

    by_value: Bools
    by_position: Bools
    by_vector: Ints
    doubts: npt.NDArray[np.int8]


def reach_of(side: Side, metadata: TableMetadata) -> Reach:
    """Which deletes of a state may apply to its files."""
    everywhere, deletes = unpartitioned(metadata), side.deletes
    applied = applied_deletes(side.files, deletes, everywhere=everywhere, until=MOST)
    doubts = applied.doubts
    # One that is listed twice has its rows twice, for all readers.
    doubts[doubts == Doubt.LISTED_TWICE] = Doubt.NONE
    doubt_floating_point(
        doubts, side.files, deletes, column_types(metadata), everywhere=everywhere, until=MOST
    )
    paths = side.files["path"]
    positions = paths.filter(pa.array(applied.position_digests != 0)).combine_chunks()
    vectors = deletes.filter(pc.equal(deletes["kind"], VECTOR))
    places = pc.index_in(paths, value_set=vectors["ref"].combine_chunks())
    return Reach(
        by_value=applied.equality_digests != 0,
        by_position=pc.is_in(paths, value_set=positions).to_numpy(),
        by_vector=pc.fill_null(
            vectors["record_count"].combine_chunks().take(places.combine_chunks()), -1
        ).to_numpy(),
        doubts=doubts,
    )
