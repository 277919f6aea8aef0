"""upgrade-v3: what is read before it, and the findings that follow from it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from iceberg_cli.engines import Source
from iceberg_cli.iceberg.commit.update import updates_from_json, with_updates
from iceberg_cli.iceberg.reachability.keys import live
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.spec.manifest import DELETES, EntryBatch, ManifestSource, read_manifest_lists
from iceberg_cli.iceberg.spec.metadata import Snapshot, TableMetadata
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.branch import branches
from iceberg_cli.iceberg.verbs.upgrade_v3 import rules
from iceberg_cli.iceberg.verbs.upgrade_v3.facts import ListFacts, Looked, snapshots_to_read
from iceberg_cli.iceberg.verbs.upgrade_v3.preflight import findings
from iceberg_cli.iceberg.verbs.upgrade_v3.repair import Repair, repair
from iceberg_cli.iceberg.verbs.upgrade_v3.rules import REPAIR, UpgradePolicy
from iceberg_cli.plan.preflight import BLOCKING, Finding, Preflight

_POSITION_DELETES: Final = 1  # content of a file


def preflight(table: IcebergTable, asked: UpgradePolicy, *, as_of_ms: int) -> Preflight:
    """All findings on the table as it is now, as they are once the recipe's repair is done.

    Raises:
        CorruptFile: something that must be read cannot be read whole.
    """
    base = table.load()
    looked = look(table)
    if table.metadata.format_version >= rules.TARGET:
        looked = _with_positions(table, looked)
    mending = Repair()
    if REPAIR in asked.recipe:
        mending = repair(table, looked, tags=asked.tags, shown=None)
    found = findings_on(table, looked, mending, as_of_ms=as_of_ms)
    remedy = f"iceberg-cli upgrade-v3 {shlex.quote(table.name)} --dry-run --with {','.join(asked.recipe)}"
    blocked = [
        Finding(
            id="repair-blocked", severity=BLOCKING, where="repair-manifests", message=reason, remedy=remedy
        )
        for reason in mending.blocked_by
    ]
    return Preflight(
        findings=(*blocked, *found),
        table=table.describe(),
        base=base.to_json(),
        target={"format_version": rules.TARGET},
        recipe=asked.recipe,
    )


def look(table: IcebergTable) -> Looked:
    """Read the manifest lists that decide.

    Raises:
        CorruptFile: one cannot be read whole. One that is gone is a finding.
    """
    lists: dict[int, ListFacts] = {}
    missing: set[int] = set()

    def parse(
        batch: Sequence[tuple[Snapshot, bytes | None]],
    ) -> tuple[list[tuple[int, ListFacts]], list[int]]:
        found = [(s.snapshot_id, s.manifest_list or "", data) for s, data in batch if data is not None]
        rows = read_manifest_lists([(path, data) for _, path, data in found], format_version=1)
        edges = np.searchsorted(rows["list"].to_numpy(), np.arange(len(found) + 1))
        facts = [
            (snapshot_id, ListFacts.of(rows.slice(edges[place], edges[place + 1] - edges[place])))
            for place, (snapshot_id, _, _) in enumerate(found)
        ]
        return facts, [s.snapshot_id for s, data in batch if data is None]

    # An encrypted list cannot be read; that it is one is a finding by itself.
    readable = [snapshot for snapshot in snapshots_to_read(table.metadata) if snapshot.key_id is None]
    for facts, gone in table.engine.scan(
        readable,
        lambda snapshot: Source(snapshot.manifest_list or ""),
        lambda _, data: data,
        parse,
        phase="reading manifest lists",
        missing_ok=True,
        on_event=table.on_event,
    ):
        lists |= dict(facts)
        missing.update(gone)
    return Looked(lists=lists, missing=frozenset(missing))


def findings_on(
    table: IcebergTable, looked: Looked, mending: Repair, *, as_of_ms: int
) -> tuple[Finding, ...]:
    """The findings on the table as a repair leaves it; `looked` is from before."""
    return findings(
        mended(table, mending),
        replace(looked, lists={**looked.lists, **mending.counted}),
        table=table.name,
        as_of_ms=as_of_ms,
        repaired=mending.cleared,
    )


def mended(table: IcebergTable, mending: Repair) -> TableMetadata:
    """The metadata once a repair is done. Heads that it replaces stand for the snapshots that will take their place."""
    heads = {table.metadata.refs[name].snapshot_id for name in branches(table)}
    expired = sorted(mending.expired - heads)
    updates: list[Mapping[str, Any]] = [
        {"action": "remove-snapshot-ref", "ref-name": name} for name in mending.dropped
    ]
    if expired:
        updates.append({"action": "remove-snapshots", "snapshot-ids": expired})
    return applied(table, table.metadata, updates) if updates else table.metadata


def applied(
    table: IcebergTable, metadata: TableMetadata, updates: Sequence[Mapping[str, Any]]
) -> TableMetadata:
    """Metadata as a commit of these updates leaves it."""
    return with_updates(
        metadata,
        updates_from_json(updates),
        base_location=table.metadata_location,
        timestamp_ms=metadata.last_updated_ms,
    )


def _with_positions(table: IcebergTable, looked: Looked) -> Looked:
    """What was read, and of each head which of its delete files are position delete files.

    Raises:
        CorruptFile: a delete manifest cannot be read whole. One that is gone counts nothing.
    """
    lists = dict(looked.lists)
    for name in branches(table):
        snapshot = table.metadata.snapshot(table.metadata.refs[name].snapshot_id)
        facts = None if snapshot is None else lists.get(snapshot.snapshot_id)
        if snapshot is None or facts is None or facts.encrypted or facts.position_files is not None:
            continue
        read = table.liveness.manifests(
            [snapshot_files(snapshot)], phase="reading manifest lists", required=False
        )
        rows = read.rows.filter(pc.equal(read.rows["content"], DELETES))
        columns = ("status", "content", "file_format", "record_count")
        counts = [
            *table.liveness.from_entries(
                rows, columns, _positions, phase="counting position deletes", missing_ok=True
            )
        ]
        lists[snapshot.snapshot_id] = replace(
            facts, position_files=sum(files for files, _ in counts), positions=sum(each for _, each in counts)
        )
    return replace(looked, lists=lists)


def _positions(_: Sequence[ManifestSource], batch: EntryBatch) -> tuple[int, int]:
    """The live position delete files of a batch, deletion vectors not among them, and their positions."""
    found = live(batch.table)
    vector = pc.equal(pc.utf8_lower(found["file_format"].combine_chunks()), "puffin")
    found = found.filter(pc.and_(pc.equal(found["content"], _POSITION_DELETES), pc.invert(vector)))
    return found.num_rows, int(pc.sum(found["record_count"]).as_py() or 0)
