"""Snapshots that obstruct an upgrade: each branch gets a manifest list with counts, then the older ones expire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.engines import Scan, Source
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.branch.head import BranchHead, branches, head_of, with_lengths
from iceberg_cli.iceberg.branch.row_ids import given_again
from iceberg_cli.iceberg.commit.draft import SnapshotDraft
from iceberg_cli.iceberg.commit.summary import carried_totals
from iceberg_cli.iceberg.reachability.keys import sources_of
from iceberg_cli.iceberg.reachability.question import ReachQuestion, SnapshotFiles
from iceberg_cli.iceberg.spec.manifests.manifest import (
    EXISTING,
    MANIFEST_LIST_SCHEMA,
    ManifestMetadata,
    ManifestSource,
    manifest_metadata,
    open_manifest,
    read_entries,
)
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import TAG
from iceberg_cli.iceberg.spec.types.partition_spec import fields_in_header
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.expire_snapshots import rules as expire_snapshots
from iceberg_cli.iceberg.verbs.upgrade_v3.policy import DROP, KEEP, REFUSE, REPAIR
from iceberg_cli.iceberg.verbs.upgrade_v3.rules import ListFacts, PreflightReads, obstructing, some
from iceberg_cli.plan.plan import Change, Plan, Step, Verdict
from iceberg_cli.plan.text import count

_HEAD: Final = "manifest-list"
_EXPIRE: Final = "expire"  # the step's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """The parts of a plan that remove the snapshots which obstruct an upgrade.

    `cleared` are the ids of these snapshots: `expired` of them go, and a branch head is replaced by a snapshot with the
    counts of `counted`. The tags `dropped` go too.
    """

    verdicts: tuple[Verdict, ...] = ()
    warnings: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    reach: Mapping[str, ReachQuestion] = field(default_factory=dict)  # by step
    cleared: frozenset[int] = frozenset()
    expired: frozenset[int] = frozenset()
    dropped: tuple[str, ...] = ()
    counted: Mapping[int, ListFacts] = field(default_factory=dict)  # by the id of the head that is replaced


def repair(table: IcebergTable, looked: PreflightReads, *, tags: str, within: Plan | None) -> Repair:
    """What is due on the table as loaded last.

    Args:
        table: whose manifests are read.
        looked: the manifest lists in sum.
        tags: what becomes of tags on snapshots that obstruct: `REFUSE`, `DROP` or `KEEP`.
        within: see `Verb.plan`.

    Raises:
        CorruptFile: a manifest that must be counted cannot be read whole.
    """
    metadata = table.metadata
    reasons = obstructing(metadata, looked)
    if within is not None:
        listed = {(verdict.subject, verdict.id) for verdict in within.verdicts}
        reasons = {each: why for each, why in reasons.items() if ("snapshot", str(each)) in listed}
    heads, why = _heads(table, reasons)
    if within is not None:
        heads = [head for head in heads if (_HEAD, head.ref) in listed]
    if not reasons and not heads:
        return Repair()
    tagged = {name: ref.snapshot_id for name, ref in metadata.refs.items() if ref.type == TAG}
    tagged = {name: snapshot_id for name, snapshot_id in tagged.items() if snapshot_id in reasons}
    stay = set(tagged.values()) if tags == KEEP else set()
    gone = {snapshot_id for snapshot_id in reasons if snapshot_id not in stay}
    warnings, blocked_by = [], []
    if tagged and tags == REFUSE:
        blocked_by.append(
            f"tags {some([*tagged])} hold snapshots that have to go: --unsafe-drop-tags drops the tags, "
            "--unsafe-keep-tags leaves them and their snapshots as they are"
        )
    if stay:
        warnings.append(
            f"tags {some([*tagged])} keep {count(len(stay), 'snapshots')} without counts: Iceberg's Java library can "
            "read, and cannot expire, what is without them"
        )
    if gone and not metadata.property_bool("gc.enabled", default=True):
        blocked_by.append(
            f"table property gc.enabled={metadata.properties['gc.enabled']}: another table may use these files"
        )
    blocked_by += [
        reason for head in heads for reason in (*head.blocked_by, *given_again(table, metadata, head))
    ]
    steps = [_repair_step(table, head) for head in heads]
    dropped = tuple(tagged) if tags != KEEP else ()
    if gone:
        steps.append(_expire_step(gone, dropped, heads))
    return Repair(
        verdicts=(*_verdicts(metadata, heads, why, reasons, gone), *_tag_verdicts(metadata, tagged, tags)),
        warnings=tuple(warnings),
        blocked_by=tuple(blocked_by),
        steps=tuple(steps),
        reach={_EXPIRE: _reach(metadata, gone, heads)} if gone else {},
        cleared=frozenset(reasons),
        expired=frozenset(gone),
        dropped=dropped,
        counted={head.snapshot.snapshot_id: ListFacts.of(head.rows) for head in heads},
    )


def _heads(table: IcebergTable, reasons: Mapping[int, str]) -> tuple[list[BranchHead], Mapping[str, str]]:
    """The branch heads whose list is written again; and by branch why.

    One that only has wrong lengths obstructs nothing, and its snapshot stays.
    """
    heads, why = [], {}
    for name in branches(table):
        snapshot_id = table.metadata.refs[name].snapshot_id
        head, stale = with_lengths(table, head_of(table, name))
        if snapshot_id in reasons:
            why[name] = f"snapshot {snapshot_id} {reasons[snapshot_id]}"
        elif stale:
            path, both = next(iter(stale.items()))
            more = f", and {len(stale) - 1} more like it" if len(stale) > 1 else ""
            why[name] = f"of {path}: {both}{more}"
        else:
            continue
        heads.append(head)
    return heads, why


def _verdicts(
    metadata: TableMetadata,
    heads: Sequence[BranchHead],
    why: Mapping[str, str],
    reasons: Mapping[int, str],
    gone: set[int],
) -> list[Verdict]:
    verdicts = [
        Verdict(
            subject=_HEAD,
            id=head.ref,
            keep=False,
            reason=f"written again with counts of {count(head.rows.num_rows, 'manifests')}: {why[head.ref]}",
            timestamp_ms=head.snapshot.timestamp_ms,
        )
        for head in heads
    ]
    for snapshot in metadata.snapshots:
        if obstacle := reasons.get(snapshot.snapshot_id):
            keep = snapshot.snapshot_id not in gone
            reason = f"kept for its tag: {obstacle}" if keep else f"expires: {obstacle}"
            verdicts.append(
                Verdict(
                    subject="snapshot",
                    id=str(snapshot.snapshot_id),
                    keep=keep,
                    reason=reason,
                    timestamp_ms=snapshot.timestamp_ms,
                )
            )
    return verdicts


def _tag_verdicts(metadata: TableMetadata, tagged: Mapping[str, int], tags: str) -> list[Verdict]:
    verdicts = []
    for name, snapshot_id in tagged.items():
        snapshot = metadata.snapshot(snapshot_id)
        reason = {
            DROP: f"goes with snapshot {snapshot_id} (--unsafe-drop-tags)",
            KEEP: f"kept with snapshot {snapshot_id} (--unsafe-keep-tags)",
        }.get(tags, f"would go with snapshot {snapshot_id}")
        verdicts.append(
            Verdict(
                subject="tag",
                id=name,
                keep=tags == KEEP,
                reason=reason,
                timestamp_ms=None if snapshot is None else snapshot.timestamp_ms,
            )
        )
    return verdicts


def _repair_step(table: IcebergTable, head: BranchHead) -> Step:
    rows = head.rows if head.snapshot.manifest_list is not None else _completed(table, head)
    draft = SnapshotDraft(
        ref=head.ref,
        parent_snapshot_id=head.snapshot.snapshot_id,
        operation="replace",
        kept=rows,
        summary={
            "manifests-created": "0",
            "manifests-kept": str(rows.num_rows),
            "manifests-replaced": "0",
            "entries-processed": "0",
            "changed-partition-count": "0",
            **carried_totals(head.snapshot.summary),
        },
    )
    counts = {"repaired_heads_count": 1, "recounted_manifests_count": rows.num_rows}
    return Step(name=f"{REPAIR} {head.ref}", change=Change(draft=draft, counts=counts))


def _expire_step(gone: set[int], dropped: Sequence[str], heads: Sequence[BranchHead]) -> Step:
    updates: list[Mapping[str, Any]] = [
        {"action": "remove-snapshot-ref", "ref-name": name} for name in dropped
    ]
    updates.append({"action": "remove-snapshots", "snapshot-ids": sorted(gone)})
    return Step(
        name=_EXPIRE,
        requires="every branch has a manifest list with counts" if heads else None,
        change=Change(updates=tuple(updates), counts={"dropped_tags_count": len(dropped)}),
    )


def _reach(metadata: TableMetadata, gone: set[int], heads: Sequence[BranchHead]) -> ReachQuestion:
    """A scan for the files that are reachable only from snapshots that go."""
    question = expire_snapshots.reach(metadata, gone, content=True)
    # The snapshots that replace these heads do not exist yet, and will list the same manifests.
    again = tuple(
        SnapshotFiles(
            snapshot_id=head.snapshot.snapshot_id,
            manifest_list=None,
            manifests=tuple(head.rows["manifest_path"].to_pylist()),
        )
        for head in heads
    )
    return replace(question, kept=(*question.kept, *again))


# -- manifests that a snapshot names itself ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _ManifestHeader:
    """A manifest's header, with its length and the snapshot that added it."""

    path: str
    length: int
    header: ManifestMetadata
    added_snapshot_id: int | None


def _completed(table: IcebergTable, head: BranchHead) -> pa.Table:
    """Rows of a manifest list for manifests that a snapshot names itself, in their order."""

    def load(source: ManifestSource, data: bytes) -> tuple[ManifestSource, int]:
        return open_manifest(source, data), len(data)

    def parse(
        batch: Sequence[tuple[ManifestSource, tuple[ManifestSource, int] | None]],
    ) -> list[_ManifestHeader]:
        return [_found(*loaded) for _, loaded in batch if loaded is not None]

    found = {
        each.path: each
        for part in table.engine.scan(
            Scan(lambda source: Source(source.path), load, parse, phase="reading manifests"),
            sources_of(head.rows),
            on_event=table.on_event,
        )
        for each in part
    }
    rows = head.rows.to_pylist()
    for row in rows:
        own = found[row["manifest_path"]]
        row |= {
            "manifest_length": own.length,
            "partition_spec_id": _spec_id(own, table.metadata),
            "content": own.header.content or 0,
            "added_snapshot_id": own.added_snapshot_id or head.snapshot.snapshot_id,
        }
    return pa.Table.from_pylist(rows, schema=MANIFEST_LIST_SCHEMA)


def _found(source: ManifestSource, length: int) -> _ManifestHeader:
    assert source.container is not None
    (batch,) = read_entries([source], columns=("status", "snapshot_id"))
    own = batch.table.filter(pc.not_equal(batch.table["status"], EXISTING))["snapshot_id"]
    return _ManifestHeader(
        path=source.path,
        length=length,
        header=manifest_metadata(source.container),
        added_snapshot_id=own[0].as_py() if len(own) else None,
    )


def _spec_id(found: _ManifestHeader, metadata: TableMetadata) -> int:
    """The id of a manifest's partition spec; where the header lacks it, of the table's spec with the same fields."""
    header = found.header
    if header.partition_spec_id is not None:
        return header.partition_spec_id
    if header.partition_spec is not None:
        try:
            listed = fields_in_header(header.partition_spec)
            fields = [(each["name"], each["transform"]) for each in listed]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFile(
                found.path, "partition-spec", f"no list of partition fields: {error!r}"
            ) from error
        for spec in metadata.partition_specs:
            if [(each.name, each.transform) for each in spec.fields] == fields:
                return spec.spec_id
    raise CorruptFile(found.path, "partition-spec-id", "it does not say which partition spec it has")
