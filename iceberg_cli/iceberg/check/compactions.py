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

from iceberg_cli.errors import BackendUnavailable, CorruptFile, Refused, UsageError
from iceberg_cli.iceberg.branch.entry_columns import VECTOR
from iceberg_cli.iceberg.check.live_rows import LiveRowCounter, LiveRows, given_anew
from iceberg_cli.iceberg.check.replaced_files import Replacement, ReplacementReader
from iceberg_cli.iceberg.commit.draft import OPERATION_ID
from iceberg_cli.iceberg.reachability.keys import Keys, keys_of
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.plan.findings import UNANSWERED, Bools, Findings
from iceberg_cli.plan.text import count, moment

COMPARED: Final = 20
"""How many such snapshots are compared where nobody says how many; the newest ones."""
REPLACE: Final = "replace"


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
        yield f"{summary['engine-name']:.80} {summary.get('engine-version', ''):.80}".strip()
    if "iceberg-version" in summary:
        yield f"{summary['iceberg-version']:.80}"
    for key, name in (("app-id", "app-id"), (OPERATION_ID, "operation of iceberg-cli")):
        if key in summary:
            yield f"{name} {summary[key]:.80}"


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
            try:
                reason = self._look_at(each) if each.parent is None else self._compare(each, each.parent)
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

    def _look_at(self, compaction: Compaction) -> str:
        """Remember what one took out whose parent is gone."""
        self._remember(compaction, self._reader.taken_out(compaction.snapshot))
        return "its parent is not in the table any more"

    def _compare(self, compaction: Compaction, parent: Snapshot) -> str:
        """Add what is found of one; why its rows could not all be compared."""
        lists = {each.snapshot_id: self._list_of(each) for each in (parent, compaction.snapshot)}
        self._lists = lists
        change = self._reader.read(lists[parent.snapshot_id], lists[compaction.snapshot.snapshot_id])
        paths = change.gone["path"].combine_chunks()
        stays = pc.is_in(paths, value_set=change.child.files["path"].combine_chunks())
        self._remember(compaction, paths.filter(pc.invert(stays)).cast(pa.binary()))
        self._check_summary(compaction, change)
        by_ids = compaction.snapshot.first_row_id is not None and _has_ids(change)
        live, failure = self._counted(change, by_ids=by_ids)
        self._check_rows(compaction, change, live)
        if by_ids:
            self._check_ids(compaction, change, live)
        return failure or live.reason

    def _counted(self, change: Replacement, *, by_ids: bool) -> tuple[LiveRows, str]:
        """The live rows of both states; where a file that only --deep reads cannot be read, without it, and why."""
        failure = ""
        if self.deep:
            try:
                return LiveRowCounter(table=self.table, change=change, deep=True, with_ids=by_ids).run(), ""
            except (CorruptFile, Refused) as error:
                failure = error.message
        return LiveRowCounter(table=self.table, change=change, deep=False, with_ids=False).run(), failure

    def _list_of(self, snapshot: Snapshot) -> pa.Table:
        known = self._lists.get(snapshot.snapshot_id)
        return self._reader.manifests(snapshot) if known is None else known

    def _remember(self, compaction: Compaction, paths: pa.Array) -> None:
        if len(paths):
            number = pa.array(np.full(len(paths), compaction.snapshot.snapshot_id), pa.int64())
            self._replaced.append(pa.table({"path": paths, "snapshot_id": number}))

    def _check_summary(self, compaction: Compaction, change: Replacement) -> None:
        """What the summary says was added and deleted, as far as it says it."""
        gone, new = change.gone, change.new
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

    def _check_rows(self, compaction: Compaction, change: Replacement, live: LiveRows) -> None:
        """Compare live rows, partition by partition where no file went to another spec."""
        before, after = live.by_partition(change)
        _, _, total = change.partitions
        differences = live.differences(change)
        for rule, words, chosen in (
            ("compaction-rows-came-back", "came back, or are there twice", differences > 0),
            ("compaction-rows-missing", "went missing", differences < 0),
        ):
            if chosen.any():
                number = abs(int(differences[chosen].sum()))
                places = f", in {int(chosen.sum())} of {total} partitions," if total > 1 else ""
                message = (
                    f"{count(number, 'rows')} {words}; {compaction.origin}. The files that it changed{places} had"
                    f" {int(before[chosen].sum()):,} live rows and have {int(after[chosen].sum()):,}."
                    f" {compaction.way_out}"
                )
                self.findings.add(rule, _where(compaction), message)

    def _check_ids(self, compaction: Compaction, change: Replacement, live: LiveRows) -> None:
        """Whether rows that had ids have them still; rows that are missing altogether are told by another rule."""
        example = ""
        if live.lost_ids is not None:
            number = len(live.lost_ids) - live.missing_of(change)
            example = f", {live.lost_ids.min()} for example" if number > 0 else ""
        else:
            number = given_anew(self.table, compaction.snapshot, change)
            if not live.unknown[0].any():
                had = change.gone["first_row_id"].is_valid().to_numpy()
                number = min(number, int(live.counts[0][: change.removed][had].sum()))
        if number > 0:
            message = (
                f"{count(number, 'rows')} lost their row ids{example}: readers of changes take them for deleted and"
                f" inserted; {compaction.origin}. {compaction.way_out}"
            )
            self.findings.add("compaction-row-ids-lost", _where(compaction), message)

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


def _has_ids(change: Replacement) -> bool:
    gone = change.gone
    return bool(pc.any(pc.and_(gone["first_row_id"].is_valid(), pc.greater(gone["record_count"], 0))).as_py())
