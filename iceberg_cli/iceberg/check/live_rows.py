"""The live rows of files that a snapshot changed, before and after it, and whether they kept their row ids.

Rows are counted by manifests and by the deletes that apply; data files are read where nothing else tells, with --deep.

Spec: "Scan Planning", "Deletion Vectors", "Position Delete Files", "Equality Delete Files", "Row Lineage".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from iceberg_cli.encoding.row_batches import RandomAccess, splits_for
from iceberg_cli.engines import Scan, Source
from iceberg_cli.iceberg.check.replaced_entries import MOST
from iceberg_cli.iceberg.check.replaced_files import Reach, Replacement, Side, reach_of
from iceberg_cli.iceberg.rows.data_files import LINEAGE_FIELDS, DataFile, RowReader, batches
from iceberg_cli.iceberg.rows.deleted_keys import DeletedKeys
from iceberg_cli.iceberg.rows.row_deletes import HiddenRows, RowDeletes, deletes_of
from iceberg_cli.iceberg.spec.deletes.dv_blobs import positions_in
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.rewrite_data_files.rules import DOUBTS, Doubt
from iceberg_cli.plan.findings import Bools, Ints
from iceberg_cli.table.stored_files import true_sizes

_BY_VALUE: Final = "equality deletes reach files that it changed, and only --deep reads these"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRows:
    """Live rows of the files of both states.

    Args:
        counts: of each file, of the parent's state and of the child's.
        unknown: of which files they are not known, likewise.
        reason: why not, of one of these.
        lost_ids: ids that live rows of files had which were taken out, and that no live row of new files has; None
            where they were not read.
    """

    counts: tuple[Ints, Ints]
    unknown: tuple[Bools, Bools]
    reason: str = ""
    lost_ids: BitMap64 | None = None

    def by_partition(self, change: Replacement) -> tuple[Ints, Ints]:
        """The sums for each partition."""
        return _sums(change, self.counts)

    def differences(self, change: Replacement) -> Ints:
        """How many more each partition has after than before; 0 where it is not known."""
        first, second, total = change.partitions
        unknown = np.zeros(total, np.bool_)
        for codes, mask in zip((first, second), self.unknown, strict=True):
            unknown[codes[mask]] = True
        before, after = self.by_partition(change)
        return np.where(unknown, 0, after - before)

    def missing_of(self, change: Replacement) -> int:
        """How many fewer live rows new files have than those which were taken out, over the partitions."""
        before, after = _sums(change, self.counts, (change.removed, change.added))
        return int(np.maximum(before - after, 0).sum())


def _sums(
    change: Replacement, counts: tuple[Ints, Ints], firsts: tuple[int, int] | None = None
) -> tuple[Ints, Ints]:
    """Of each partition the live rows before and after, of all files or of the first ones."""
    first, second, total = change.partitions
    sums: list[Ints] = []
    for place, (codes, rows) in enumerate(zip((first, second), counts, strict=True)):
        found: Ints = np.zeros(total, np.int64)
        stop = len(rows) if firsts is None else firsts[place]
        np.add.at(found, codes[:stop], rows[:stop])
        sums.append(found)
    return sums[0], sums[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """A state while its rows are counted."""

    files: pa.Table
    deletes: RowDeletes
    reach: Reach
    counts: Ints
    unknown: Bools
    first: int  # so many of the files are there in this state alone


@dataclass(kw_only=True)
class LiveRowCounter:
    """Counts live rows.

    Args:
        table: whose files.
        change: of one snapshot.
        deep: read data files where equality deletes reach them.
        with_ids: with `deep`, read the ids of rows, too.
    """

    table: IcebergTable
    change: Replacement
    deep: bool
    with_ids: bool

    def run(self) -> LiveRows:
        """Count them.

        Raises:
            CorruptFile: a file cannot be read, or a data file has two deletion vectors. Refused: one is encrypted.
        """
        change = self.change
        states = [self._state(change.parent, change.removed), self._state(change.child, change.added)]
        by_ids = self.deep and self.with_ids and not any(each.unknown.any() for each in states)
        ids = []
        for each in states:
            is_read = np.zeros(len(each.files), np.bool_)
            if self.deep:
                is_read[: each.first if by_ids else 0] = True
                is_read |= each.reach.by_value & ~each.unknown
            is_stated = each.reach.by_vector >= 0
            by_file = each.reach.by_position & ~each.unknown & ~is_read
            _subtract_positions(each, by_file & (~is_stated | self.deep))
            if not self.deep:
                each.counts[by_file & is_stated] -= each.reach.by_vector[by_file & is_stated]
            ids.append(self._read(each, np.flatnonzero(is_read), by_ids=by_ids))
        found = LiveRows(
            counts=(states[0].counts, states[1].counts),
            unknown=(states[0].unknown, states[1].unknown),
            reason=next(filter(None, map(_reason, states)), ""),
            lost_ids=ids[0] - ids[1] if by_ids else None,
        )
        if not self.deep:
            self._look_again(found, states)
        return found

    def _state(self, side: Side, first: int) -> _State:
        reach = reach_of(side, self.table.metadata)
        return _State(
            files=side.files,
            deletes=deletes_of(self.table, side.entries, []),
            reach=reach,
            counts=side.files["record_count"].to_numpy().copy(),
            unknown=(reach.doubts != Doubt.NONE) | (reach.by_value & (not self.deep)),
            first=first,
        )

    def _look_again(self, found: LiveRows, states: Sequence[_State]) -> None:
        """Read the deletion vectors of partitions that differ by what entries say of vectors, which may be wrong."""
        odd = np.flatnonzero(found.differences(self.change))
        for codes, each in zip(self.change.partitions[:2], states, strict=True):
            again = np.isin(codes, odd) & (each.reach.by_vector >= 0) & each.reach.by_position & ~each.unknown
            each.counts[again] = each.files["record_count"].to_numpy()[again]
            _subtract_positions(each, again)

    def _read(self, state: _State, chosen: Ints, *, by_ids: bool) -> BitMap64:
        """Count the live rows of files by reading them; the ids of those that are in this state alone."""
        ids = BitMap64()
        if not len(chosen):
            return ids
        rows = state.files.take(pa.array(chosen)).combine_chunks()
        hidden = state.deletes.of(rows)
        reader = _RowIdReader(
            RowReader(
                fields=(),
                equality=hidden.columns,
                deleted=DeletedKeys.of(hidden.keys),
                keeps_row_ids=by_ids,
                mismatch_is_null=True,
            )
        )
        scan: Scan[DataFile, tuple[int, bytes], list[tuple[int, bytes]]] = Scan(
            lambda file: Source(file.path, file.size_bytes),
            reader,
            lambda some: [found for _, found in some if found is not None],
            phase="reading data files",
            in_parts=True,
        )
        items = list(_data_files(self.table, rows, self.change.constants, hidden))
        state.counts[chosen] = 0
        scanned = self.table.engine.scan(scan, [file for file, _ in items], on_event=self.table.on_event)
        results = (each for some in scanned for each in some)
        for (number, own), (_, place) in zip(results, items, strict=True):
            state.counts[chosen[place]] += number
            if by_ids and chosen[place] < state.first:
                ids |= BitMap64.deserialize(own)
        return ids


def _reason(state: _State) -> str:
    """Why the live rows of a file are not known; empty where all are."""
    if not state.unknown.any():
        return ""
    code = next((code for code in state.reach.doubts.tolist() if code != Doubt.NONE), None)
    return _BY_VALUE if code is None else f"of a file that it changed: {DOUBTS[Doubt(code)]}"


def _subtract_positions(state: _State, chosen: Bools) -> None:
    """Take off what position deletes and deletion vectors delete of files, each row once and none behind the end."""
    blobs = state.deletes.positions_of(state.files.filter(pa.array(chosen)))
    paths = state.files["path"]
    named = pc.is_in(paths, value_set=pa.array(list(blobs), pa.string())).to_numpy()
    for place in np.flatnonzero(named & chosen).tolist():
        state.counts[place] -= _deleted(blobs[paths[place].as_py()], int(state.counts[place]))


def _deleted(blobs: Sequence[bytes], records: int) -> int:
    if len(blobs) == 1:
        return int(np.searchsorted(positions_in(blobs[0]), records))
    positions = np.unique(np.concatenate([positions_in(blob) for blob in blobs]))
    return int(np.searchsorted(positions, records))


@dataclass(frozen=True, slots=True)
class _RowIdReader:
    """Reads how many rows of a file are live, and a set of the ids that they have."""

    rows: RowReader

    def __call__(self, file: DataFile, parts: RandomAccess) -> tuple[int, bytes]:
        """Of one part."""
        total, ids = 0, BitMap64()
        for live in self.rows.stream(file, parts):
            total += len(live.positions)
            if self.rows.keeps_row_ids:
                own = live.rows.column(0).drop_null().to_numpy()
                ids |= BitMap64(own.astype(np.int64).view(np.uint64))
        ids.run_optimize()
        return total, ids.serialize()


def _data_files(
    table: IcebergTable,
    files: pa.Table,
    constants: Mapping[bytes, Mapping[int, pa.Scalar]],
    hidden: HiddenRows | None = None,
) -> Iterable[tuple[DataFile, int]]:
    """What is read of some files, with deletes or without: each a part, and the row of its file."""
    names = (
        "path", "file_format", "file_size_in_bytes", "record_count", "sequence_number", "first_row_id", "key",
    )  # fmt: skip
    columns = {name: files[name].to_pylist() for name in names}
    columns["file_size_in_bytes"], _ = true_sizes(table, columns["path"], columns["file_size_in_bytes"])
    for place, values in enumerate(zip(*columns.values(), strict=True)):
        path, file_format, size, records, number, first_row_id, key = values
        is_split = hidden is not None and file_format == "parquet"
        for split in splits_for(size if is_split else 0, records, None):
            file = DataFile(
                path=path,
                file_format=file_format,
                size_bytes=size,
                record_count=records,
                split=split,
                constants=constants.get(key, {}),
                vectors=() if hidden is None else hidden.vectors.get(path, ()),
                equality_deletes=() if hidden is None else hidden.equality[place],
                sequence_number=number,
                first_row_id=first_row_id,
            )
            yield file, place


# -- row ids without reading rows --------------------------------------------------------------------------------------


def given_anew(table: IcebergTable, snapshot: Snapshot, change: Replacement) -> int:
    """How many rows had ids and were given new ones, at least, by what files have a column of row ids.

    Args:
        table: whose files.
        snapshot: the child, with row ids.
        change: of it.
    """
    first = snapshot.first_row_id or 0
    # What is listed with ids of before keeps these without a column.
    new = change.new.filter(pc.greater_equal(pc.fill_null(change.new["first_row_id"], MOST), first))
    records, stated = new["record_count"].to_numpy(), new["null_row_ids"]
    unread = np.flatnonzero(stated.is_null().to_numpy() & (records > 0))
    nulls = np.minimum(pc.fill_null(stated, 0).to_numpy(), records)
    nulls[unread] = np.where(_lack_column(table, new.take(pa.array(unread))), records[unread], 0)
    without_ids = change.gone.filter(change.gone["first_row_id"].is_null())
    return int(nulls.sum()) - (pc.sum(without_ids["record_count"]).as_py() or 0)


def _lack_column(table: IcebergTable, files: pa.Table) -> Bools:
    """Which files have no column of row ids, by their own schema."""
    scan: Scan[DataFile, bool, list[bool]] = Scan(
        lambda file: Source(file.path, file.size_bytes),
        _lacks_column,
        lambda some: [bool(found) for _, found in some],
        phase="opening data files",
        in_parts=True,
    )
    items = [file for file, _ in _data_files(table, files, {})]
    return np.array(
        [each for some in table.engine.scan(scan, items, on_event=table.on_event) for each in some], np.bool_
    )


def _lacks_column(file: DataFile, parts: RandomAccess) -> bool:
    first = next(iter(batches(file, parts, LINEAGE_FIELDS[:1], limit=1)), None)
    return first is None or not first.fields
