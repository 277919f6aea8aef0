"""upgrade-v3: its preflight, and its steps in order, those of other verbs among them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from iceberg_cli.engines import Scan, Source
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.branch.head import branches
from iceberg_cli.iceberg.commit.update import updates_from_json, with_updates
from iceberg_cli.iceberg.reachability.keys import live
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.spec.manifests.manifest import (
    DELETES,
    EntryBatch,
    ManifestSource,
    read_manifest_lists,
)
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import MAIN
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.assign_row_ids import plan as assign_row_ids
from iceberg_cli.iceberg.verbs.assign_row_ids import rules as row_ids
from iceberg_cli.iceberg.verbs.assign_row_ids.plan import AssignmentParts
from iceberg_cli.iceberg.verbs.assign_row_ids.policy import AssignRowIds
from iceberg_cli.iceberg.verbs.merge_dvs import plan as merge_dvs
from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
from iceberg_cli.iceberg.verbs.upgrade_v3 import rules
from iceberg_cli.iceberg.verbs.upgrade_v3.policy import (
    ASSIGN,
    MERGE,
    REPAIR,
    VERB_NAME,
    UpgradeV3,
)
from iceberg_cli.iceberg.verbs.upgrade_v3.preflight import findings
from iceberg_cli.iceberg.verbs.upgrade_v3.repair import Repair, repair
from iceberg_cli.iceberg.verbs.upgrade_v3.rules import ListFacts, PreflightReads, snapshots_to_read
from iceberg_cli.operation.ports import Build, Planned, Verb, nothing_to_build
from iceberg_cli.plan.findings import WARNING, Finding
from iceberg_cli.plan.plan import Base, Change, Plan, Step, Verdict
from iceberg_cli.plan.preflight import BLOCKING, Preflight, blocking
from iceberg_cli.plan.removal_rows import ICEBERG_KINDS

_POSITION_DELETES: Final = 1  # content of a file


def look(table: IcebergTable) -> PreflightReads:
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
        Scan(
            lambda snapshot: Source(snapshot.manifest_list or ""),
            lambda _, data: data,
            parse,
            phase="reading manifest lists",
            missing_ok=True,
        ),
        readable,
        on_event=table.on_event,
    ):
        lists |= dict(facts)
        missing.update(gone)
    return PreflightReads(lists=lists, missing=frozenset(missing))


def findings_on(
    table: IcebergTable, looked: PreflightReads, mending: Repair, policy: UpgradeV3, *, as_of_ms: int
) -> tuple[Finding, ...]:
    """The findings on the table as a repair leaves it; `looked` is from before."""
    return findings(
        mended(table, mending),
        replace(looked, lists={**looked.lists, **mending.counted}),
        table=table.name,
        as_of_ms=as_of_ms,
        repaired=mending.cleared,
        policy=policy.to_json(),
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


def _with_positions(table: IcebergTable, looked: PreflightReads) -> PreflightReads:
    """The reads, and of each head which of its delete files are position delete files.

    Raises:
        CorruptFile: a delete manifest cannot be read whole. One that is gone counts nothing.
    """
    lists = dict(looked.lists)
    for name in branches(table):
        snapshot = table.metadata.snapshot(table.metadata.refs[name].snapshot_id)
        facts = None if snapshot is None else lists.get(snapshot.snapshot_id)
        if snapshot is None or facts is None or facts.encrypted or facts.position_files is not None:
            continue
        read = table.reachability.manifests(
            [snapshot_files(snapshot)], phase="reading manifest lists", required=False
        )
        rows = read.rows.filter(pc.equal(read.rows["content"], DELETES))
        columns = ("status", "content", "file_format", "record_count")
        counts = [
            *table.reachability.from_entries(
                rows, columns, _positions, phase="counting position deletes", missing_ok=True
            )
        ]
        lists[snapshot.snapshot_id] = replace(
            facts, position_files=sum(files for files, _ in counts), positions=sum(each for _, each in counts)
        )
    return replace(looked, lists=lists)


def _positions(_: Sequence[ManifestSource], batch: EntryBatch) -> tuple[int, int]:
    """The live position delete files of a batch, deletion vectors not among them, and their positions."""
    files = live(batch.table)
    vector = pc.equal(pc.utf8_lower(files["file_format"].combine_chunks()), "puffin")
    files = files.filter(pc.and_(pc.equal(files["content"], _POSITION_DELETES), pc.invert(vector)))
    return files.num_rows, int(pc.sum(files["record_count"]).as_py() or 0)


class UpgradeV3Verb(Verb):
    """Makes a table one of format version 3, with a preflight before it."""

    name: Final = VERB_NAME
    policy: Final = UpgradeV3
    # Its own, and those of the verbs that may be part of it.
    result_columns: Final = tuple(
        dict.fromkeys(
            (
                *rules.COLUMNS,
                *merge_dvs.VERB.result_columns,
                *row_ids.COLUMNS,
                *(f"deleted_{kind}s_count" for kind in ICEBERG_KINDS),
            )
        )
    )

    def plan(
        self,
        table: IcebergTable,
        policy: UpgradeV3,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,
    ) -> Planned:
        """The remaining steps of the recipe, blocked where the preflight finds an obstacle.

        Raises:
            UsageError: the policy makes no sense. CorruptFile: something that must be read cannot be read whole.
        """
        base = table.base()
        return _UpgradePlanner(
            table=table, base=base, policy=policy, as_of_ms=as_of_ms, within=within, earlier=earlier
        ).planned()

    def preflight(self, table: IcebergTable, policy: UpgradeV3, *, as_of_ms: int) -> Preflight:
        """What stands in the way of the upgrade, as it is once the recipe's repair is done.

        The upgrade is planned for that: a file that cannot be read whole stands in its way, too.

        Raises:
            UsageError: the policy makes no sense. CorruptFile: the metadata or a manifest list cannot be read whole.
        """
        base = table.base()
        version = table.metadata.format_version
        planner = _UpgradePlanner(table=table, base=base, policy=policy, as_of_ms=as_of_ms)
        looked = planner.looked if version < rules.TARGET else _with_positions(table, planner.looked)
        obstacles = [
            blocking("repair-blocked", "repair-manifests", reason, planner.command)
            for reason in planner.mending.blocked_by
        ]
        found = [*obstacles, *findings_on(table, looked, planner.mending, policy, as_of_ms=as_of_ms)]
        try:
            reasons = planner.planned().plan.blocked_by
        except CorruptFile as error:
            found.insert(0, blocking("file-unreadable", error.path, error.message, error.next_step))
        else:
            blocked = [finding for finding in found if finding.severity == BLOCKING]
            reported = {text for each in blocked for text in (each.message, _obstacle(each))}
            look_at = f"iceberg-cli inspect {shlex.quote(table.name)}"
            found[:0] = [
                blocking("upgrade-refused", "table", reason, look_at)
                for reason in reasons
                if reason not in reported
            ]
        return Preflight(
            findings=tuple(found),
            table=table.describe(),
            base=base.to_json(),
            target={"format_version": rules.TARGET},
            recipe=policy.recipe,
            nothing_due=(
                f"the table has format version {version}: nothing to upgrade"
                if version >= rules.TARGET
                else ""
            ),
        )


VERB: Final = UpgradeV3Verb()


def _obstacle(finding: Finding) -> str:
    return f"{finding.message}. Way out: `{finding.remedy}`"


@dataclass(kw_only=True)
class _UpgradePlanner:
    table: IcebergTable
    base: Base
    policy: UpgradeV3
    as_of_ms: int
    within: Plan | None = None
    earlier: Build | None = None
    verdicts: list[Verdict] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    blocked_by: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    build: Build = nothing_to_build  # of the only part that has tasks

    @cached_property
    def looked(self) -> PreflightReads:
        """The manifest lists that decide."""
        return look(self.table)

    @cached_property
    def mending(self) -> Repair:
        """The repair, if it is part of the recipe."""
        if REPAIR not in self.policy.recipe:
            return Repair()
        return repair(self.table, self.looked, tags=self.policy.tags, within=self.within)

    @property
    def command(self) -> str:
        """The command line that shows the plan."""
        return (
            f"iceberg-cli upgrade-v3 {shlex.quote(self.table.name)} --dry-run "
            f"--with {','.join(self.policy.recipe)}"
        )

    def planned(self) -> Planned:
        """The plan of every part of the recipe that is still due, in order."""
        self._take(self.mending)
        after = self._upgrade()
        if MERGE in self.policy.recipe:
            self._merge(after)
        if ASSIGN in self.policy.recipe:
            self._assign(after)
        plan = Plan(
            verb=VERB_NAME,
            table=self.table.describe(),
            base=self.base,
            as_of_ms=self.as_of_ms,
            options={
                "with": self.policy.chosen("recipe"),
                "tags": self.policy.chosen("tags"),
                **self.policy.chosen_or_none("allow_writer_loss"),
            },
            policy=self.policy.to_json(),
            verdicts=tuple(self.verdicts),
            warnings=tuple(self.warnings),
            blocked_by=tuple(dict.fromkeys(self.blocked_by)),
            steps=tuple(self.steps),
        )
        return Planned(plan=self.table.resolve(plan, self.mending.reach), build=self.build)

    def _take(self, parts: Repair | Plan | AssignmentParts) -> None:
        self.verdicts += parts.verdicts
        self.warnings += parts.warnings
        self.blocked_by += parts.blocked_by
        self.steps += parts.steps

    def _upgrade(self) -> TableMetadata:
        """The upgrade itself, if it is due; the metadata as it is then."""
        table, metadata = self.table, self.table.metadata
        version = metadata.format_version
        due = version < rules.TARGET
        reason = f"from version {version}, for good: no version goes back" if due else "kept: it is there"
        self.verdicts.append(
            Verdict(subject="format-version", id=str(rules.TARGET), keep=not due, reason=reason)
        )
        if not due:
            return metadata
        for finding in findings_on(table, self.looked, self.mending, self.policy, as_of_ms=self.as_of_ms):
            if finding.severity == BLOCKING:
                self.blocked_by.append(_obstacle(finding))
            elif finding.severity == WARNING and not self._is_in_hand(finding):
                where = "" if finding.message.startswith(finding.where) else f"{finding.where}: "
                self.warnings.append(f"{where}{finding.message} ({finding.remedy})")
        updates = rules.updates(metadata)
        requires = "no snapshot obstructs it" if self.steps else None
        change = Change(updates=updates, counts={"upgraded_tables_count": 1})
        self.steps.append(Step(name="upgrade", requires=requires, change=change))
        return applied(table, mended(table, self.mending), updates)

    def _is_in_hand(self, finding: Finding) -> bool:
        """Whether a later step is the way out of it, and warns of what remains."""
        part = {
            "rows-without-ids": ASSIGN,
            "snapshots-without-ids": ASSIGN,
            "v1-manifest-lists": ASSIGN,
            "position-deletes": MERGE,
        }
        if finding.id == "position-deletes" and finding.where != f"branch {MAIN}":
            return False
        return part.get(finding.id) in self.policy.recipe

    def _assign(self, after: TableMetadata) -> None:
        """The steps of assign-row-ids, for as much as the steps before leave without ids."""
        name = shlex.quote(self.table.name)
        parts = assign_row_ids.parts(
            self.table,
            AssignRowIds(),
            after,
            within=self.within,
            sharing="To give them main's ids, leave assign-row-ids out and run "
            f"`iceberg-cli assign-row-ids {name} --share-ids` afterwards",
        )
        merging = any(step.name == merge_dvs.STEP for step in self.steps)
        self._take(_after_merge(parts) if merging else parts)

    def _merge(self, after: TableMetadata) -> None:
        """The steps of merge-dvs. Before the upgrade they only show what it will do."""
        merge = merge_dvs.plan_on(
            self.table,
            MergeDvs(),
            base=self.base,
            as_of_ms=self.as_of_ms,
            metadata=after,
            within=self.within,
            earlier=self.earlier,
        )
        self.build = merge.build
        self._take(merge.plan)


def _after_merge(parts: AssignmentParts) -> AssignmentParts:
    """What assigns row ids after a merge: its commit lists main's manifests again, which reserves main's ids."""
    name, reason = f"{ASSIGN} {MAIN}", f"; {merge_dvs.STEP} commits before, and reserves them"
    requires = f"main still lacks ids after {merge_dvs.STEP}"
    return replace(
        parts,
        verdicts=tuple(
            replace(each, reason=each.reason + reason) if each.id == MAIN and not each.keep else each
            for each in parts.verdicts
        ),
        steps=tuple(replace(step, requires=requires) if step.name == name else step for step in parts.steps),
    )
