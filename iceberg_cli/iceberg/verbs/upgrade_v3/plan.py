"""upgrade-v3: what it reads beforehand, and its steps in order, those of other verbs among them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.spec.metadata import TableMetadata
from iceberg_cli.iceberg.spec.snapshot import MAIN
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.assign_row_ids import plan as assign_row_ids
from iceberg_cli.iceberg.verbs.assign_row_ids import rules as row_ids
from iceberg_cli.iceberg.verbs.assign_row_ids.plan import Parts
from iceberg_cli.iceberg.verbs.assign_row_ids.rules import AssignPolicy
from iceberg_cli.iceberg.verbs.merge_dvs import plan as merge_dvs
from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergePolicy
from iceberg_cli.iceberg.verbs.upgrade_v3 import rules
from iceberg_cli.iceberg.verbs.upgrade_v3.facts import Looked
from iceberg_cli.iceberg.verbs.upgrade_v3.read import applied, findings_on, look, mended, preflight
from iceberg_cli.iceberg.verbs.upgrade_v3.repair import Repair, repair
from iceberg_cli.iceberg.verbs.upgrade_v3.rules import ASSIGN, MERGE, REPAIR, UpgradePolicy
from iceberg_cli.operation.apply import Verb
from iceberg_cli.plan.plan import Base, Change, Option, Plan, Staged, Step, Task, Verdict
from iceberg_cli.plan.preflight import BLOCKING, WARNING, Finding, Preflight, blocking
from iceberg_cli.plan.removal_rows import ICEBERG_KINDS


class UpgradeV3:
    """Makes a table one of format version 3, with a preflight before it."""

    operation: Final = rules.OPERATION

    # Its own, and those of the verbs that may be part of it.
    columns: Final = tuple(
        dict.fromkeys(
            (
                *rules.COLUMNS,
                *merge_dvs.VERB.columns,
                *row_ids.COLUMNS,
                *(f"deleted_{kind}s_count" for kind in ICEBERG_KINDS),
            )
        )
    )

    def plan(
        self, table: IcebergTable, policy: Mapping[str, Any], *, as_of_ms: int, shown: Plan | None = None
    ) -> Plan:
        """The remaining steps of the recipe, blocked where the preflight finds an obstacle.

        Raises:
            UsageError: the policy makes no sense. CorruptFile: something that must be read cannot be read whole.
        """
        asked = UpgradePolicy.from_json(policy)
        base = table.load()
        planning = _Planning(table=table, base=base, asked=asked, as_of_ms=as_of_ms, shown=shown)
        planning.run()
        plan = Plan(
            operation=self.operation,
            table=table.describe(),
            base=base,
            as_of_ms=as_of_ms,
            options={
                "with": Option(value=list(asked.recipe), source="--with" if asked.recipe else "default"),
                "tags": Option(
                    value=asked.tags,
                    source="default" if asked.tags == rules.REFUSE else f"--unsafe-{asked.tags}-tags",
                ),
            },
            policy=asked.to_json(),
            verdicts=tuple(planning.verdicts),
            warnings=tuple(planning.warnings),
            blocked_by=tuple(dict.fromkeys(planning.blocked_by)),
            steps=tuple(planning.steps),
        )
        return table.resolve(table.blocked(plan))

    def build(self, table: IcebergTable, step: Step, paths: Mapping[Task, str]) -> Mapping[Task, Staged]:
        """Let the verb that a step comes from write its files."""
        verb: Verb = merge_dvs.VERB if step.name == merge_dvs.STEP else assign_row_ids.VERB
        return verb.build(table, step, paths)


VERB: Final = UpgradeV3()


def check(table: IcebergTable, policy: UpgradePolicy, *, as_of_ms: int) -> Preflight:
    """What stands in the way of the upgrade, which is planned for that: a file that cannot be read whole does, too.

    Raises:
        UsageError: the policy makes no sense. CorruptFile: the metadata or a manifest list cannot be read whole.
    """
    found = preflight(table, policy, as_of_ms=as_of_ms)
    try:
        reasons = VERB.plan(table, policy.to_json(), as_of_ms=as_of_ms).blocked_by
    except CorruptFile as error:
        unread = blocking("file-unreadable", error.path, error.message, error.next_step)
        return replace(found, findings=(unread, *found.findings))
    reported = {f"{each.message}. Way out: `{each.remedy}`" for each in found.blocking}
    reported |= {each.message for each in found.blocking}
    look_at = f"iceberg-cli inspect {shlex.quote(table.name)}"
    refused = [
        blocking("upgrade-refused", "table", reason, look_at) for reason in reasons if reason not in reported
    ]
    return replace(found, findings=(*refused, *found.findings))


@dataclass(kw_only=True)
class _Planning:
    table: IcebergTable
    base: Base
    asked: UpgradePolicy
    as_of_ms: int
    shown: Plan | None
    verdicts: list[Verdict] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    blocked_by: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def run(self) -> None:
        """Every part of the recipe that is still due, in order."""
        table, metadata = self.table, self.table.metadata
        looked = (
            look(table) if metadata.format_version < rules.TARGET or REPAIR in self.asked.recipe else Looked()
        )
        mending = Repair()
        if REPAIR in self.asked.recipe:
            mending = repair(table, looked, tags=self.asked.tags, shown=self.shown)
            self._take(mending)
        after = self._upgrade(looked, mending)
        if MERGE in self.asked.recipe:
            self._merge(after)
        if ASSIGN in self.asked.recipe:
            self._assign(after)

    def _take(self, parts: Repair | Parts) -> None:
        self.verdicts += parts.verdicts
        self.warnings += parts.warnings
        self.blocked_by += parts.blocked_by
        self.steps += parts.steps

    def _upgrade(self, looked: Looked, mending: Repair) -> TableMetadata:
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
        for finding in findings_on(table, looked, mending, as_of_ms=self.as_of_ms):
            if finding.severity == BLOCKING:
                self.blocked_by.append(f"{finding.message}. Way out: `{finding.remedy}`")
            elif finding.severity == WARNING and not self._is_in_hand(finding):
                where = "" if finding.message.startswith(finding.where) else f"{finding.where}: "
                self.warnings.append(f"{where}{finding.message} ({finding.remedy})")
        updates = rules.updates(metadata)
        requires = "no snapshot obstructs it" if self.steps else None
        change = Change(updates=updates, counts={"upgraded_tables_count": 1})
        self.steps.append(Step(name="upgrade", requires=requires, change=change))
        return applied(table, mended(table, mending), updates)

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
        return part.get(finding.id) in self.asked.recipe

    def _assign(self, after: TableMetadata) -> None:
        """The steps of assign-row-ids, for as much as the steps before leave without ids."""
        name = shlex.quote(self.table.name)
        parts = assign_row_ids.parts(
            self.table,
            AssignPolicy(),
            after,
            shown=self.shown,
            sharing="To give them main's ids, leave assign-row-ids out and run "
            f"`iceberg-cli assign-row-ids {name} --share-ids` afterwards",
        )
        merging = any(step.name == merge_dvs.STEP for step in self.steps)
        self._take(_after_merge(parts) if merging else parts)

    def _merge(self, after: TableMetadata) -> None:
        """The steps of merge-dvs. Before the upgrade they only show what it will do."""
        made = merge_dvs.plan_on(
            self.table,
            MergePolicy().to_json(),
            base=self.base,
            as_of_ms=self.as_of_ms,
            metadata=after,
            shown=self.shown,
        )
        self._take(
            Parts(
                verdicts=made.verdicts, warnings=made.warnings, blocked_by=made.blocked_by, steps=made.steps
            )
        )


def _after_merge(parts: Parts) -> Parts:
    """What assigns row ids after a merge: its commit lists main's manifests again, which reserves main's ids."""
    name, reason = f"{row_ids.OPERATION} {MAIN}", f"; {merge_dvs.STEP} commits before, and reserves them"
    requires = f"main still lacks ids after {merge_dvs.STEP}"
    return replace(
        parts,
        verdicts=tuple(
            replace(each, reason=each.reason + reason) if each.id == MAIN and not each.keep else each
            for each in parts.verdicts
        ),
        steps=tuple(replace(step, requires=requires) if step.name == name else step for step in parts.steps),
    )
