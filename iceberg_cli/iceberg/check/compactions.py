"""Whether snapshots that say they changed no row (`replace`) kept the rows of their parents, and the ids of these.

Compactions, and whatever else regroups files or deletes, say so, and readers of changes pass them by: nobody sees rows
that were lost, came back or have other ids. As long as the parent is there the two are compared, without any belief in
what the writer says of itself.

Spec: "Snapshots", "Scan Planning", "Row Lineage"; Appendix F, "Metrics".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from iceberg_cli.encoding.row_batches import RandomAccess, splits_for
from iceberg_cli.engines import Scan, Source
from iceberg_cli.errors import BackendUnavailable, CorruptFile, Refused, UsageError
from iceberg_cli.iceberg.branch.entry_columns import VECTOR
from iceberg_cli.iceberg.check.replaced_files import MOST, Replacement, ReplacementReader, Side, reach_of
from iceberg_cli.iceberg.reachability.keys import Keys, keys_of
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.rows.data_files import LINEAGE_FIELDS, DataFile, RowReader, batches
from iceberg_cli.iceberg.rows.row_deletes import HiddenRows, RowDeletes, deletes_of
from iceberg_cli.iceberg.spec.deletes.dv_blobs import positions_in
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.rewrite_data_files.rules import DOUBTS, Doubt
from iceberg_cli.plan.findings import UNANSWERED, Bools, Findings, Ints
from iceberg_cli.plan.text import count, moment
from iceberg_cli.table.stored_files import true_sizes

COMPARED: Final = 20
"""How many such snapshots are compared where nobody says how many; the newest ones."""
REPLACE: Final = "replace"
_OPERATION_ID: Final = "iceberg-cli.operation-id"
_BY_VALUE: Final = "equality deletes reach files that it changed, and only --deep reads these"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """A snapshot that says it changed no row.

    Args:
        snapshot: itself.
        parent: None where it is not in the table any more.
        label: of a ref that it is an ancestor of.
        since: by operation, how many snapshots that ref has after it.
    """

    snapshot: Snapshot
    parent: Snapshot | None
    label: str
    since: Mapping[str, int]

    @property
    def origin(self) -> str:
        """When it was committed, and by whom."""
        by = ", ".join(_writer(self.snapshot.summary or {}))
        return f"committed at {moment(self.snapshot.timestamp_ms)} by {by or 'a writer without a name'}"

    @property
    def way_out(self) -> str:
        """Where the rows are, and what would have to be done again."""
        assert self.parent is not None
        after = [f"{number} {operation}" for operation, number in sorted(self.since.items())]
        total = sum(self.since.values())
        later = (
            f"{self.label} has {count(total, 'snapshots')} since: {', '.join(after)}"
            if total
            else (f"nothing was committed to {self.label} since")
        )
        return f"Its parent {self.parent.snapshot_id} is still there; {later}."


def _writer(summary: Mapping[str, str]) -> Iterator[str]:
    """What a summary says of the program that wrote it."""
    if "engine-name" in summary:
        yield f"{summary['engine-name']} {summary.get('engine-version', '')}".strip()
    if "iceberg-version" in summary:
        yield summary["iceberg-version"]
    for key, name in (("app-id", "app-id"), (_OPERATION_ID, "operation of iceberg-cli")):
        if key in summary:
            yield f"{name} {summary[key]}"


def compactions_of(metadata: TableMetadata, heads: Sequence[tuple[str, Snapshot]]) -> list[Compaction]:
    """The snapshots that say they changed no row among the ancestors of some, the newest first, each once.

    Args:
        metadata: of the table.
        heads: with labels.
    """
    found: dict[int, Compaction] = {}
    for label, head in heads:
        since: Counter[str] = Counter()
        for each in metadata.ancestors(head):
            if each.operation == REPLACE and each.snapshot_id not in found:
                parent = (
                    None if each.parent_snapshot_id is None else metadata.snapshot(each.parent_snapshot_id)
                )
                found[each.snapshot_id] = Compaction(
                    snapshot=each, parent=parent, label=label, since=dict(since)
                )
            since[each.operation or "unnamed"] += 1
    return sorted(found.values(), key=lambda each: _age(each.snapshot), reverse=True)


def _age(snapshot: Snapshot) -> tuple[int, int]:
    return snapshot.sequence_number, snapshot.timestamp_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedHead:
    """A snapshot that is checked, by its label: rows of its manifest list, and the keys of its live data files."""

    label: str
    snapshot: Snapshot
    rows: pa.Table
    live: Keys


@dataclass(slots=True, kw_only=True)
class _LiveRows:
    """Live rows of n files.

    Args:
        counts: of each.
        unknown: of which they are not known.
        reason: why not, of one of these.
        ids: of the first of the files, all ids that their rows have; only with --deep.
    """

    counts: Ints
    unknown: Bools
    reason: str = ""
    ids: BitMap64 | None = None


@dataclass(kw_only=True)
class CompactionAudit:
    """Compares snapshots that say they changed no row with their parents.

    Args:
        table: opened and loaded.
        found: of the snapshots that are checked.
        limit: how many are compared, the newest first.
        deep: read data files where nothing else tells.
        findings: to add to.
    """

    table: IcebergTable
    found: Sequence[Compaction]
    limit: int
    deep: bool
    findings: Findings
    compared: int = 0
    reasons: dict[int, str] = field(default_factory=dict)  # by snapshot, why its rows were not all compared
    _replaced: list[pa.Table] = field(default_factory=list)  # paths of files that a snapshot took out
    _lists: dict[int, pa.Table] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read by itself: what was cached may be of lists that were found whole, and here none needs to be."""
        reachability = Reachability(engine=self.table.engine, on_event=self.table.on_event, trust_lists=True)
        self._reader = ReplacementReader(table=self.table, reachability=reachability)

    def run(self) -> None:
        """Compare them, and add the findings."""
        for each in self.found[: self.limit]:
            snapshot = each.snapshot.snapshot_id
            if each.parent is None:
                self.reasons[snapshot] = "its parent is not in the table any more"
                continue
            try:
                reason = self._compare(each, each.parent)
            except (CorruptFile, Refused, UsageError) as error:
                reason = error.message
            except BackendUnavailable as error:
                reason = error.message
                self.findings.add(UNANSWERED, f"snapshot {snapshot}", f"it was not compared: {error.message}")
            if reason:
                self.reasons[snapshot] = reason
            else:
                self.compared += 1

    def to_json(self) -> dict[str, Any]:
        """What was looked at, and what was not."""
        return {
            "found": len(self.found),
            "compared": self.compared,
            "not_compared": [{"snapshot_id": str(i), "reason": reason} for i, reason in self.reasons.items()],
            "left_out": max(0, len(self.found) - self.limit),
        }

    # -- one of them -----------------------------------------------------------------------------------------------

    def _compare(self, compaction: Compaction, parent: Snapshot) -> str:
        """Add what is found of one; why its rows could not all be compared."""
        lists = {each.snapshot_id: self._list_of(each) for each in (parent, compaction.snapshot)}
        self._lists = lists
        change = self._reader.read(lists[parent.snapshot_id], lists[compaction.snapshot.snapshot_id])
        self._remember(compaction, change)
        self._check_summary(compaction, change)
        by_ids = compaction.snapshot.first_row_id is not None and _has_ids(change)
        sides = change.parent, change.child
        firsts = (change.removed, change.added) if by_ids else (0, 0)
        before, after = (
            self._live_rows(side, change, first) for side, first in zip(sides, firsts, strict=True)
        )
        missing = self._check_rows(compaction, change, before, after)
        if by_ids:
            self._check_ids(compaction, change, before, after, missing)
        return before.reason or after.reason

    def _list_of(self, snapshot: Snapshot) -> pa.Table:
        known = self._lists.get(snapshot.snapshot_id)
        return self._reader.manifests(snapshot) if known is None else known

    def _remember(self, compaction: Compaction, change: Replacement) -> None:
        paths = _first(change.parent, change.removed)["path"].combine_chunks()
        gone = paths.filter(pc.invert(pc.is_in(paths, value_set=change.child.files["path"].combine_chunks())))
        if len(gone):
            number = pa.array(np.full(len(gone), compaction.snapshot.snapshot_id), pa.int64())
            self._replaced.append(pa.table({"path": gone.cast(pa.binary()), "snapshot_id": number}))

    def _check_summary(self, compaction: Compaction, change: Replacement) -> None:
        """What the summary says was added and deleted, as far as it says it."""
        gone, new = _first(change.parent, change.removed), _first(change.child, change.added)
        paths = [each["path"].combine_chunks() for each in (gone, new)]
        gone = gone.filter(pc.invert(pc.is_in(gone["path"], value_set=paths[1])))
        new = new.filter(pc.invert(pc.is_in(new["path"], value_set=paths[0])))
        counted = {
            "added-data-files": len(new),
            "deleted-data-files": len(gone),
            "added-records": pc.sum(new["record_count"]).as_py() or 0,
            "deleted-records": pc.sum(gone["record_count"]).as_py() or 0,
        }
        wrong = [
            f"{name} is {stated}, and its manifests against its parent's have {number}"
            for name, number in counted.items()
            if (stated := compaction.snapshot.summary_count(name)) not in (None, number)
        ]
        if wrong:
            self.findings.add(
                "compaction-summary-differs", _where(compaction), f"{'; '.join(wrong)}; {compaction.origin}"
            )

    def _check_rows(
        self, compaction: Compaction, change: Replacement, before: _LiveRows, after: _LiveRows
    ) -> int:
        """Compare live rows, partition by partition where no file went to another spec; how many are missing."""
        states = (change.parent, before), (change.child, after)
        specs = {spec for side, _ in states for spec in pc.unique(side.files["spec_id"]).to_pylist()}
        keys = pa.chunked_array(
            [chunk for side, _ in states for chunk in side.files["key"].chunks], pa.binary()
        ).combine_chunks()
        codes = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
        if len(specs) > 1:
            codes = np.zeros(len(keys), np.int64)
        split = len(before.counts)
        total = int(codes.max(initial=-1)) + 1
        sums: list[Ints] = []
        unknown = np.zeros(total, np.bool_)
        for own, live in ((codes[:split], before), (codes[split:], after)):
            rows: Ints = np.zeros(total, np.int64)
            np.add.at(rows, own, live.counts)
            sums.append(rows)
            unknown[own[live.unknown]] = True
        differences = np.where(unknown, 0, sums[1] - sums[0])
        more, fewer = int(differences[differences > 0].sum()), -int(differences[differences < 0].sum())
        for rule, number, words, chosen in (
            ("compaction-rows-came-back", more, "came back, or are there twice", differences > 0),
            ("compaction-rows-missing", fewer, "went missing", differences < 0),
        ):
            if number:
                places = (
                    f", in {int(chosen.sum())} of {total} partitions,"
                    if len(specs) == 1 and total > 1
                    else ""
                )
                message = (
                    f"{count(number, 'rows')} {words}; {compaction.origin}. The files that it changed{places} had"
                    f" {int(sums[0][chosen].sum()):,} live rows and have {int(sums[1][chosen].sum()):,}."
                    f" {compaction.way_out}"
                )
                self.findings.add(rule, _where(compaction), message)
        return fewer

    # -- row ids ---------------------------------------------------------------------------------------------------

    def _check_ids(
        self, compaction: Compaction, change: Replacement, before: _LiveRows, after: _LiveRows, missing: int
    ) -> None:
        """Whether rows that had ids have them still; rows that are missing altogether are told by another rule."""
        if before.ids is not None and after.ids is not None:
            lost = before.ids - after.ids
            number = len(lost) - missing
            example = f", {lost.min()} for example" if number > 0 else ""
        else:
            number, example = self._without_ids(compaction.snapshot, change), ""
            had = change.parent.files["first_row_id"].is_valid().to_numpy()[: change.removed]
            if not before.unknown.any():
                number = min(number, int(before.counts[: change.removed][had].sum()))
        if number > 0:
            message = (
                f"{count(number, 'rows')} lost their row ids{example}: readers of changes take them for deleted and"
                f" inserted; {compaction.origin}. {compaction.way_out}"
            )
            self.findings.add("compaction-row-ids-lost", _where(compaction), message)

    def _without_ids(self, snapshot: Snapshot, change: Replacement) -> int:
        """How many rows had ids and were given new ones, at least, by what files have a column of row ids."""
        gone, new = _first(change.parent, change.removed), _first(change.child, change.added)
        first = snapshot.first_row_id or 0
        # What is listed with ids of before keeps these without a column.
        new = new.filter(pc.greater_equal(pc.fill_null(new["first_row_id"], MOST), first))
        records = new["record_count"].to_numpy()
        stated = new["null_row_ids"]
        unread = np.flatnonzero(stated.is_null().to_numpy() & (records > 0))
        nulls = np.minimum(pc.fill_null(stated, 0).to_numpy(), records)
        absent = self._have_no_column(new.take(pa.array(unread)))
        nulls[unread] = np.where(absent, records[unread], 0)
        had_none = pc.sum(gone.filter(gone["first_row_id"].is_null())["record_count"]).as_py() or 0
        return int(nulls.sum()) - had_none

    def _have_no_column(self, files: pa.Table) -> Bools:
        """Which files have no column of row ids, by their own schema."""
        scan: Scan[DataFile, bool, list[bool]] = Scan(
            lambda file: Source(file.path, file.size_bytes),
            _has_no_column,
            lambda some: [bool(found) for _, found in some],
            phase="opening data files",
            in_parts=True,
        )
        items = [file for file, _ in self._data_files(files, {})]
        scanned = self.table.engine.scan(scan, items, on_event=self.table.on_event)
        return np.array([each for some in scanned for each in some], np.bool_)

    # -- live rows -------------------------------------------------------------------------------------------------

    def _live_rows(self, side: Side, change: Replacement, with_ids: int) -> _LiveRows:
        """Count the live rows of a state's files; with --deep, collect the ids of the first ones."""
        files, reach = side.files, reach_of(side, self.table.metadata)
        counts = files["record_count"].to_numpy().copy()
        doubtful = reach.doubts != Doubt.NONE
        found = _LiveRows(counts=counts, unknown=doubtful | (reach.by_value & (not self.deep)))
        if found.unknown.any():
            code = next(iter(reach.doubts[doubtful].tolist()), None)
            found.reason = _BY_VALUE if code is None else f"of a file that it changed: {DOUBTS[Doubt(code)]}"
        deletes = deletes_of(self.table, side.entries, [])
        is_read = np.zeros(len(files), np.bool_)
        if self.deep:
            is_read[:with_ids] = True
            is_read = (is_read | reach.by_value) & ~found.unknown
            if with_ids:
                found.ids = BitMap64()
        blobs = deletes.positions_of(files.filter(pa.array(reach.by_position & ~doubtful & ~is_read)))
        paths = files["path"]
        places = np.flatnonzero(pc.is_in(paths, value_set=pa.array(list(blobs), pa.string())).to_numpy())
        for place in places.tolist():
            counts[place] -= _deleted(blobs[paths[place].as_py()], int(counts[place]))
        if is_read.any():
            self._read(found, np.flatnonzero(is_read), files, change, with_ids, deletes=deletes)
        return found

    def _read(
        self,
        found: _LiveRows,
        chosen: Ints,
        files: pa.Table,
        change: Replacement,
        with_ids: int,
        *,
        deletes: RowDeletes,
    ) -> None:
        """Count the rows of chosen files by reading them, and collect the ids of those that are among the first."""
        rows = files.take(pa.array(chosen)).combine_chunks()
        hidden = deletes.of(rows)
        reader = _RowIdReader(
            RowReader(
                fields=(),
                equality=hidden.columns,
                deleted=hidden.keys,
                keeps_row_ids=bool(with_ids),
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
        items = list(self._data_files(rows, change.constants, hidden))
        found.counts[chosen] = 0
        scanned = self.table.engine.scan(scan, [file for file, _ in items], on_event=self.table.on_event)
        results = (each for some in scanned for each in some)
        for (number, ids), (_, place) in zip(results, items, strict=True):
            found.counts[chosen[place]] += number
            if found.ids is not None and chosen[place] < with_ids:
                found.ids |= BitMap64.deserialize(ids)

    def _data_files(
        self,
        files: pa.Table,
        constants: Mapping[bytes, Mapping[int, pa.Scalar]],
        hidden: HiddenRows | None = None,
    ) -> Iterable[tuple[DataFile, int]]:
        """What is read of some files, with deletes or without: each a part, and the row of its file."""
        names = (
            "path",
            "file_format",
            "file_size_in_bytes",
            "record_count",
            "sequence_number",
            "first_row_id",
            "key",
        )
        columns = {name: files[name].to_pylist() for name in names}
        sizes, _ = true_sizes(self.table, columns["path"], columns["file_size_in_bytes"])
        columns["file_size_in_bytes"] = sizes
        for place, values in enumerate(zip(*columns.values(), strict=True)):
            path, file_format, size, records, number, first_row_id, key = values
            parts = (
                splits_for(size, records, None) if hidden is not None and file_format == "parquet" else None
            )
            for split in parts or splits_for(0, 0, None):
                yield (
                    DataFile(
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
                    ),
                    place,
                )

    # -- lost deletes ----------------------------------------------------------------------------------------------

    def lost_deletes(self, heads: Iterable[AuditedHead]) -> frozenset[tuple[str, int | None]]:
        """Add the deletes that were committed for files which had been replaced before; their paths and offsets.

        Args:
            heads: whose live deletes are looked at.
        """
        if not self._replaced:
            return frozenset()
        replaced = pa.concat_tables(self._replaced).combine_chunks()
        by_id = {each.snapshot.snapshot_id: each for each in self.found}
        lost: set[tuple[str, int | None]] = set()
        for head in heads:
            line = {each.snapshot_id for each in self.table.metadata.ancestors(head.snapshot)}
            own = replaced.filter(
                pc.is_in(replaced["snapshot_id"], value_set=pa.array(sorted(line), pa.int64()))
            )
            if not len(own):
                continue
            try:
                found = self._reader.naming(head.rows, own["path"].combine_chunks())
            except (CorruptFile, Refused, UsageError, BackendUnavailable):
                continue  # the check of the head tells that its manifests cannot be read
            live: Bools = np.isin(keys_of(found["name"].cast(pa.string())), head.live)
            owners = own["snapshot_id"].take(
                pc.index_in(found["name"], value_set=own["path"].combine_chunks())
            )
            for delete, owner, is_live in zip(found.to_pylist(), owners.to_pylist(), live, strict=True):
                compaction = by_id[owner]
                key = delete["path"], delete["offset"]
                is_newer = delete["sequence_number"] > compaction.snapshot.sequence_number
                if is_newer and not is_live and key not in lost:
                    lost.add(key)
                    self.findings.add("delete-lost", delete["path"], _lost(delete, compaction, head.label))
        return frozenset(lost)


def _lost(delete: Mapping[str, Any], compaction: Compaction, label: str) -> str:
    what = f"the deletion vector at byte {delete['offset']}" if delete["kind"] == VECTOR else "the file"
    return (
        f"{what} (sequence number {delete['sequence_number']}) in {label} deletes"
        f" {count(delete['record_count'], 'rows')} of {delete['name'].decode()}, which snapshot"
        f" {compaction.snapshot.snapshot_id} (sequence number {compaction.snapshot.sequence_number}) had replaced: what"
        f" was live of these rows is still there. That snapshot was {compaction.origin}"
    )


def _where(compaction: Compaction) -> str:
    return f"snapshot {compaction.snapshot.snapshot_id}"


def _first(side: Side, number: int) -> pa.Table:
    """The files of a state that are listed in another way than in the other state."""
    return side.files.slice(0, number)


def _has_ids(change: Replacement) -> bool:
    gone = _first(change.parent, change.removed)
    return bool(pc.any(pc.and_(gone["first_row_id"].is_valid(), pc.greater(gone["record_count"], 0))).as_py())


def _deleted(blobs: Sequence[bytes], records: int) -> int:
    """How many rows of a file some positions delete, each once and none behind its end."""
    if len(blobs) == 1:
        return int(np.searchsorted(positions_in(blobs[0]), records))
    positions = np.unique(np.concatenate([positions_in(blob) for blob in blobs]))
    return int(np.searchsorted(positions, records))


def _has_no_column(file: DataFile, parts: RandomAccess) -> bool:
    first = next(iter(batches(file, parts, LINEAGE_FIELDS[:1], limit=1)), None)
    return first is None or not first.fields


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
