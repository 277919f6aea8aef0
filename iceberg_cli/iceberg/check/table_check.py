"""One check of an Iceberg table: reads metadata, manifest lists, manifests and storage, and applies the rules.

A file that cannot be read becomes a finding, and the check goes on with the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.engines import Scan, Source
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.check.compactions import COMPARED, AuditedHead, CompactionAudit, compactions_of
from iceberg_cli.iceberg.check.entries import DATA_COLUMNS, DELETE_COLUMNS, LIVE_SCHEMA, check_list
from iceberg_cli.iceberg.check.files import check_snapshot, check_totals
from iceberg_cli.iceberg.check.manifests import EntryRules, check_batch, open_checked, unchecked
from iceberg_cli.iceberg.check.metadata import check_metadata
from iceberg_cli.iceberg.check.read_files import StorageCheck, first_of_each, look_into
from iceberg_cli.iceberg.check.rules import RULES
from iceberg_cli.iceberg.reachability.keys import sources_of
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.spec.manifests.manifest import (
    MANIFEST_LIST_SCHEMA,
    ManifestSource,
    read_manifest_list,
)
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.paths import canonical
from iceberg_cli.plan.findings import CheckResult, Findings, Ints, reason_of
from iceberg_cli.table.stored_files import within_reach
from iceberg_cli.table.table import check_leftovers

_LoadedList: TypeAlias = pa.Table | CorruptFile | tuple[pa.Table, CorruptFile] | None
_Manifest = tuple[int, ManifestSource]  # its row and where it is
_FromManifests = tuple[
    Findings, pa.Table, list[int]
]  # of a batch: the live files, and rows that cannot be read


@dataclass(slots=True)
class CheckedSnapshot:
    """A snapshot that is checked: its name for people, and the rows of its manifests among all."""

    label: str
    snapshot: Snapshot
    rows: pa.Table | None = None  # None: its manifest list could not be read
    places: Ints = field(default_factory=lambda: np.empty(0, np.int64))


def heads_of(metadata: TableMetadata, chosen: Snapshot | None) -> list[CheckedSnapshot]:
    """The snapshots to check: the chosen one, or else the heads of all branches and tags, each once."""
    if chosen is not None:
        return [CheckedSnapshot(f"snapshot {chosen.snapshot_id}", chosen)]
    names: dict[int, list[str]] = {}
    for name, ref in metadata.refs.items():
        names.setdefault(ref.snapshot_id, []).append(f"{ref.type} {name}")
    heads = []
    for snapshot_id, labels in names.items():
        snapshot = metadata.snapshot(snapshot_id)
        if snapshot is not None:
            more = f" and {len(labels) - 1} more refs" if len(labels) > 1 else ""
            heads.append(CheckedSnapshot(f"{labels[0]}{more}", snapshot))
    return heads


@dataclass(kw_only=True)
class TableCheck:
    """One check of one table.

    Args:
        table: opened and loaded.
        heads: the snapshots whose files are looked at; metadata is checked whole.
        deep: look into Puffin and Parquet files too.
        now_ms: by which leftovers are old, since the epoch.
        compactions: so many snapshots that say they changed no row are compared with their parents, the newest first.
    """

    table: IcebergTable
    heads: list[CheckedSnapshot]
    deep: bool
    now_ms: int = 0
    compactions: int = COMPARED
    findings: Findings = field(default_factory=Findings)
    unread: set[int] = field(default_factory=set)  # rows of manifests

    def run(self) -> CheckResult:
        """Hold the table against every rule.

        Raises:
            BackendUnavailable: the storage did not answer.
        """
        metadata = self.table.metadata
        check_metadata(metadata, self.findings)
        self._read_lists()
        rows = self._manifests()
        files = self._read_manifests(rows)
        specs = rows["partition_spec_id"].to_numpy().astype(np.int64)
        audit, lost = self._audited(files)
        for head in self.heads:
            self._check_head(head, files, specs, lost)
        once = files.take(pa.array(first_of_each(files)))
        storing = StorageCheck(table=self.table, findings=self.findings)
        storing.look_at_lists(read={head.snapshot.snapshot_id for head in self.heads})
        unseen = storing.look_at_statistics()
        check_leftovers(self.table, self.findings, now_ms=self.now_ms)
        stored = storing.look_at(once)
        if self.deep:
            look_into(self.table, files, once, stored, self.findings, unseen_statistics=unseen)
        return CheckResult(
            rules=RULES,
            found=self.findings,
            deep=self.deep,
            checked={"snapshots": len(self.heads), "manifests": len(rows), "files": len(once)},
            fields={
                "snapshot_ids": [str(head.snapshot.snapshot_id) for head in self.heads],
                "compactions": audit.to_json(),
            },
        )

    # -- manifest lists --------------------------------------------------------------------------------------------

    def _read_lists(self) -> None:
        """Read the manifest list of every checked snapshot."""
        version = self.table.metadata.format_version

        def load(head: CheckedSnapshot, data: bytes) -> pa.Table | CorruptFile | tuple[pa.Table, CorruptFile]:
            path = head.snapshot.manifest_list or ""
            try:
                return read_manifest_list(data, path, format_version=version)
            except CorruptFile as strict:
                try:
                    # What every version requires is there: the check goes on with that.
                    return read_manifest_list(data, path, format_version=1), strict
                except CorruptFile as error:
                    return error

        def read(some: Sequence[CheckedSnapshot]) -> list[tuple[CheckedSnapshot, _LoadedList]]:
            scanned = self.table.engine.scan(
                Scan(
                    lambda head: Source(head.snapshot.manifest_list or ""),
                    load,
                    lambda batch: [found for _, found in batch],
                    phase="reading manifest lists",
                    missing_ok=True,
                ),
                some,
                on_event=self.table.on_event,
            )
            # The heads that come back from another process are copies.
            return list(zip(some, (found for batch in scanned for found in batch), strict=True))

        listed = [head for head in self.heads if head.snapshot.manifest_list is not None]
        root = self.table.location
        parts = within_reach(
            listed, lambda head: head.snapshot.manifest_list or "", read, self.findings, root=root
        )
        for head, found in chain.from_iterable(parts):
            where = head.snapshot.manifest_list or ""
            if found is None:
                self.findings.add("manifest-list-missing", where, f"the list of {head.label} is not there")
            elif isinstance(found, CorruptFile):
                self.findings.add("manifest-list-unreadable", where, reason_of(found))
            elif isinstance(found, tuple):
                head.rows, error = found
                self.findings.add("manifest-list-incomplete", where, reason_of(error))
            else:
                head.rows = found
        self._read_inline()
        for head in self.heads:
            if head.rows is not None:
                check_list(head.rows, head.snapshot, self.table.metadata, head.label, self.findings)

    def _read_inline(self) -> None:
        """Snapshots of version 1 may name their manifests themselves."""
        reachability = Reachability(engine=self.table.engine, on_event=self.table.on_event, trust_lists=True)
        for head in self.heads:
            if head.snapshot.manifest_list is None:
                found = reachability.manifests(
                    (snapshot_files(head.snapshot),), phase="reading manifest lists", required=False
                )
                head.rows = found.rows.select(MANIFEST_LIST_SCHEMA.names)

    def _manifests(self) -> pa.Table:
        """The manifests of all heads, each once where lists say the same of it; `places` of the heads count in it."""
        known: dict[tuple[Any, ...], int] = {}
        parts = [MANIFEST_LIST_SCHEMA.empty_table()]
        names = [name for name in MANIFEST_LIST_SCHEMA.names if name not in {"partitions", "key_metadata"}]
        for head in self.heads:
            if head.rows is None:
                continue
            own: dict[str, int] = {}
            new = []
            values = zip(*(head.rows[name].to_pylist() for name in names), strict=True)
            for row, listed in enumerate(values):
                if listed not in known:
                    known[listed] = len(known)
                    new.append(row)
                own.setdefault(canonical(listed[0]), known[listed])
            parts.append(head.rows.take(pa.array(new, pa.int64())))
            head.places = np.array(sorted(own.values()), np.int64)
        return pa.concat_tables(parts).combine_chunks()

    # -- manifests -------------------------------------------------------------------------------------------------

    def _read_manifests(self, rows: pa.Table) -> pa.Table:
        """The live files of all manifests, `LIVE_SCHEMA`."""
        inline = np.zeros(len(rows), np.bool_)
        for head in self.heads:
            if head.snapshot.manifest_list is None:
                inline[head.places] = True
        content = rows["content"].to_numpy()
        rules = EntryRules(
            metadata=self.table.metadata, rows=rows, inline=inline, with_partitions=bool((content == 1).any())
        )
        parts = [LIVE_SCHEMA.empty_table()]
        for content_kind, columns, what in ((1, DELETE_COLUMNS, "delete"), (0, DATA_COLUMNS, "data")):
            places = np.flatnonzero(content == content_kind)
            whole: set[int] = set()
            for some, scanned in self._scan(rows, places, rules, columns, what):
                whole.update(some)
                for findings, files, unread in scanned:
                    self.findings.merge(findings)
                    self.unread |= set(unread)
                    parts.append(files)
            self.unread |= set(places.tolist()) - whole
        return pa.concat_tables(parts)

    def _scan(
        self, rows: pa.Table, places: Ints, rules: EntryRules, columns: Sequence[str], what: str
    ) -> list[tuple[list[int], list[_FromManifests]]]:
        """The indices of manifests and their findings, without those that cannot be read."""
        lengths = pc.fill_null(rows["manifest_length"], 0).to_pylist()
        sources = sources_of(rows.take(pa.array(places)))
        items = list(zip(places.tolist(), map(unchecked, sources), strict=True))

        def read(some: Sequence[_Manifest]) -> tuple[list[int], list[_FromManifests]]:
            scanned = self.table.engine.scan(
                Scan(
                    lambda item: Source(item[1].path, lengths[item[0]]),
                    lambda item, data: open_checked(item[1], data),
                    lambda batch: check_batch(batch, rules, columns),
                    phase=f"checking {what} manifests",
                    missing_ok=True,
                ),
                some,
                on_event=self.table.on_event,
            )
            return [place for place, _ in some], list(scanned)

        return within_reach(items, lambda item: item[1].path, read, self.findings, root=self.table.location)

    # -- snapshots ------------------------------------------------------------------------------------------------

    def _audited(self, files: pa.Table) -> tuple[CompactionAudit, frozenset[tuple[str, int | None]]]:
        """Compare snapshots that say they changed no row; path and offset of deletes that were lost by them."""
        heads = sorted(
            self.heads, key=lambda head: head.snapshot.snapshot_id != self.table.metadata.current_snapshot_id
        )
        audit = CompactionAudit(
            table=self.table,
            found=compactions_of(self.table.metadata, [(head.label, head.snapshot) for head in heads]),
            limit=self.compactions,
            deep=self.deep,
            findings=self.findings,
        )
        audit.run()
        data = files.filter(pc.equal(files["kind"], 0))
        manifests = data["manifest"].to_numpy()
        return audit, audit.lost_deletes(
            AuditedHead(
                label=head.label,
                snapshot=head.snapshot,
                rows=head.rows,
                live=data["key"].to_numpy()[np.isin(manifests, head.places)],
            )
            for head in heads
            if head.rows is not None
        )

    def _check_head(
        self, head: CheckedSnapshot, files: pa.Table, specs: Ints, lost: frozenset[tuple[str, int | None]]
    ) -> None:
        if head.rows is None:
            return
        manifests = files["manifest"].to_numpy()
        mine = np.isin(manifests, head.places)
        own = files if mine.all() else files.filter(pa.array(mine))
        whole = not self.unread.intersection(head.places.tolist())
        check_snapshot(
            own,
            specs[manifests[mine]],
            self.table.metadata,
            head.label,
            self.findings,
            whole=whole,
            lost=lost,
        )
        if whole:
            check_totals(own, head.snapshot, head.label, self.findings)
