"""assign-row-ids: which branch heads have manifests without row ids, and which ids branches share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.string_hash import among
from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.branch.head import BranchHead, branches, head_of
from iceberg_cli.iceberg.branch.manifest_headers import losses
from iceberg_cli.iceberg.branch.row_ids import given_again
from iceberg_cli.iceberg.reachability.keys import NO_KEYS, Keys, live
from iceberg_cli.iceberg.spec.manifests.manifest import EntryBatch, ManifestSource, waiting, with_ids
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import MAIN, TAG
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.assign_row_ids import rules
from iceberg_cli.iceberg.verbs.assign_row_ids.policy import VERB_NAME, AssignRowIds
from iceberg_cli.iceberg.verbs.assign_row_ids.share import PHASE, ManifestRewrite, file_keys, share
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.plan.plan import Change, Plan, StagedFile, Step, Task, Verdict

_SUBJECT: Final = "head"
_SHOWN: Final = 5
_SHARING: Final = "--share-ids gives them main's, and writes the manifests anew that hold them"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentParts:
    """What the heads of a table need, as parts of a plan."""

    verdicts: tuple[Verdict, ...] = ()
    warnings: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    rewrites: Mapping[str, Mapping[Task, ManifestRewrite]] = field(default_factory=dict)  # by step
    not_applicable: str | None = None


class AssignRowIdsVerb(Verb):
    """Gives row ids to the data files of branches that have none."""

    name: Final = VERB_NAME
    policy: Final = AssignRowIds
    result_columns: Final = rules.COLUMNS

    def plan(
        self,
        table: IcebergTable,
        policy: AssignRowIds,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,  # noqa: ARG002 - nothing is remembered
    ) -> Planned:
        """One step for each branch that lacks ids.

        Raises:
            UsageError: a branch that is named is none. CorruptFile: something that must be read cannot be read whole.
        """
        base = table.base()
        found = parts(table, policy, table.metadata, within=within)
        plan = Plan(
            verb=self.name,
            table=table.describe(),
            base=base,
            as_of_ms=as_of_ms,
            options={
                "refs": policy.chosen("refs"),
                "share_ids": policy.chosen("share_ids"),
            },
            policy=policy.to_json(),
            verdicts=found.verdicts,
            warnings=found.warnings,
            blocked_by=found.blocked_by,
            steps=found.steps,
            not_applicable=found.not_applicable,
        )
        return Planned(plan=table.resolve(plan), build=partial(_build, table, found.rewrites))


VERB: Final = AssignRowIdsVerb()


def _build(
    table: IcebergTable,
    rewrites: Mapping[str, Mapping[Task, ManifestRewrite]],
    step: Step,
    paths: Mapping[Task, str],
) -> Mapping[Task, StagedFile]:
    """Write the manifests into which ids are taken over."""
    return {task: share(table, rewrites[step.name][task], path) for task, path in paths.items()}


def parts(
    table: IcebergTable,
    policy: AssignRowIds,
    metadata: TableMetadata,
    *,
    within: Plan | None = None,
    sharing: str = _SHARING,
) -> AssignmentParts:
    """What is due on a table.

    Args:
        table: whose snapshots are read.
        policy: what the operator asked for.
        metadata: the table's, or what an upgrade that comes first makes of it.
        within: see `Verb.plan`.
        sharing: how rows of several branches get one id, in words.
    """
    names = _chosen(table, policy)
    if metadata.format_version < 3:
        reason = (
            f"the table has format version {metadata.format_version}, and rows have ids from version 3 on; "
            "`upgrade-v3 --with assign-row-ids` does both"
        )
        return AssignmentParts(not_applicable=reason)
    return _RowIdPlanner(
        table=table, metadata=metadata, policy=policy, names=names, within=within, sharing=sharing
    ).parts()


def _chosen(table: IcebergTable, policy: AssignRowIds) -> list[str]:
    """The branches that may get ids, in their order."""
    every = branches(table)
    for name in policy.refs:
        if name in every:
            continue
        if name in table.metadata.refs:
            raise UsageError(f"Cannot assign row ids to tag {name}: its snapshot cannot be changed")
        raise UsageError(
            f"Cannot assign row ids to branch {name}: the table has {', '.join(every) or 'none'}"
        )
    return [name for name in every if not policy.refs or name in policy.refs]


@dataclass(kw_only=True)
class _RowIdPlanner:
    table: IcebergTable
    metadata: TableMetadata
    policy: AssignRowIds
    names: list[str]
    within: Plan | None
    sharing: str
    heads: dict[str, BranchHead] = field(default_factory=dict)
    steps: dict[str, Step] = field(default_factory=dict)  # by branch, in their order
    rewrites: dict[str, Mapping[Task, ManifestRewrite]] = field(default_factory=dict)  # by step
    next_row_id: int = field(init=False)  # when the step at hand commits, if nothing else does
    warnings: list[str] = field(default_factory=list)
    blocked_by: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.next_row_id = self.metadata.next_row_id

    def parts(self) -> AssignmentParts:
        due = [name for name in self.names if waiting(self.head(name).rows).any()]
        if self.within is not None:
            due = [name for name in due if _goes(self.within, name)]
        for name in due:
            self.blocked_by += given_again(self.table, self.metadata, self.head(name))
            self.blocked_by += self.head(name).blocked_by
            self.steps[name] = self._step(self.head(name))
        verdicts = [self._verdict(self.head(name), due=name in due) for name in self.names]
        self._warn_of_the_past(due)
        return AssignmentParts(
            verdicts=tuple(verdicts),
            warnings=tuple(self.warnings),
            blocked_by=tuple(dict.fromkeys(self.blocked_by)),
            steps=tuple(self.steps.values()),
            rewrites=self.rewrites,
        )

    def head(self, name: str) -> BranchHead:
        if name not in self.heads:
            self.heads[name] = head_of(self.table, name)
        return self.heads[name]

    def _verdict(self, head: BranchHead, *, due: bool) -> Verdict:
        first = None
        if due:
            first = self.next_row_id
            change = self.steps[head.ref].change
            self.next_row_id += 0 if change is None else change.counts["assigned_rows_count"]
        return Verdict(
            subject=_SUBJECT,
            id=head.ref,
            keep=not due,
            reason=rules.reason(head.rows, first),
            timestamp_ms=head.snapshot.timestamp_ms,
        )

    def _warn_of_the_past(self, due: Sequence[str]) -> None:
        """Say what keeps rows without ids for good."""
        without = [s for s in self.metadata.snapshots if s.first_row_id is None]
        ids = {snapshot.snapshot_id for snapshot in without}
        tags = [
            name for name, ref in self.metadata.refs.items() if ref.type == TAG and ref.snapshot_id in ids
        ]
        if due and without:
            held = f", tags {_some(tags)} among them," if tags else ""
            self.warnings.append(
                f"{len(without)} snapshots from before{held} cannot be changed: their rows read without ids for good"
            )

    # -- steps -----------------------------------------------------------------------------------------------------

    def _step(self, head: BranchHead) -> Step:
        without_ids = head.rows.filter(pa.array(waiting(head.rows)))
        if self.policy.share_ids and head.ref != MAIN:
            return self._sharing_step(head, without_ids)
        twice = self._rows_given_elsewhere(head, without_ids)
        if twice:
            self.warnings.append(
                f"{twice:,} rows of branch {head.ref} are in files that another branch has too, and get an id of "
                f"their own here. {self.sharing}"
            )
        draft = rules.assigning_draft(
            ref=head.ref, snapshot_id=head.snapshot.snapshot_id, summary=head.snapshot.summary, rows=head.rows
        )
        counts = {
            "assigned_rows_count": rules.row_count(without_ids),
            "assigned_manifests_count": without_ids.num_rows,
            "rows_with_two_ids_count": twice,
        }
        return Step(name=_step_name(head.ref), change=Change(draft=draft, counts=counts))

    def _rows_given_elsewhere(self, head: BranchHead, without_ids: pa.Table) -> int:
        """Rows of `without_ids` whose files have, or get before, ids on another branch."""
        parts = []
        for name in branches(self.table):
            if name == head.ref:
                continue
            rows = self.head(name).rows
            chosen = with_ids(rows) | waiting(rows) if name in self.steps else with_ids(rows)
            parts.append(rows.filter(pa.array(chosen)))
        if not parts:
            return 0
        others = pa.concat_tables(parts)
        common = pc.is_in(without_ids["manifest_path"], value_set=others["manifest_path"].combine_chunks())
        rest = without_ids.filter(pc.invert(common))
        foreign = pc.invert(
            pc.is_in(others["manifest_path"], value_set=head.rows["manifest_path"].combine_chunks())
        )
        files = file_keys(self.table, others.filter(foreign)) if rest.num_rows else NO_KEYS
        shared = rules.row_count(without_ids.filter(common))
        if len(files):
            columns = ("status", "record_count", "file_path_hash")
            shared += sum(self.table.reachability.from_entries(rest, columns, _Rows(files), phase=PHASE))
        return shared

    def _sharing_step(self, head: BranchHead, without_ids: pa.Table) -> Step:
        """A step in which files that main has too get main's ids, written into their entries."""
        main = self.head(MAIN).rows if MAIN in self.metadata.refs else None
        main_has_ids = main is not None and not waiting(main).any()
        if main is None or not (main_has_ids or MAIN in self.steps):
            self.blocked_by.append(
                "--share-ids takes the ids that main gave, and main has none: assign them first"
            )
            return Step(name=_step_name(head.ref))
        sharing = ManifestRewrite.between(
            self.table, without_ids, main, known=main_has_ids, metadata=self.metadata
        )
        rows = pa.concat_tables([without_ids.slice(0, 0), *(part.row for part in sharing.values())])
        lost = losses(self.table, self.metadata, rows)
        self.warnings += lost.warnings
        self.blocked_by += lost.blocked_by
        draft = rules.assigning_draft(
            ref=head.ref,
            snapshot_id=head.snapshot.snapshot_id,
            summary=head.snapshot.summary,
            rows=head.rows,
            rewritten=[part.path for part in sharing.values()],
            tasks=[*sharing],
        )
        shared = sum(part.row_count for part in sharing.values())
        counts = {
            "assigned_rows_count": rules.row_count(without_ids) - shared,
            "assigned_manifests_count": without_ids.num_rows,
            "shared_rows_count": shared,
        }
        self.rewrites[_step_name(head.ref)] = sharing
        return Step(
            name=_step_name(head.ref),
            requires=None if main_has_ids else "main has its row ids",
            tasks=(*sharing,),
            change=Change(draft=draft, counts=counts),
        )


def _step_name(ref: str) -> str:
    return f"{VERB_NAME} {ref}"


def _goes(plan: Plan, ref: str) -> bool:
    """Whether a plan that was shown gives ids to a branch."""
    return any(v.subject == _SUBJECT and v.id == ref and not v.keep for v in plan.verdicts)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


# -- over batches of entries, maybe in another process -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rows:
    """Counts the rows of the live files whose hash is among `files`."""

    files: Keys

    def __call__(self, _: Sequence[ManifestSource], batch: EntryBatch) -> int:
        files = live(batch.table)
        return int(
            files["record_count"].to_numpy()[among(files["file_path_hash"].to_numpy(), self.files)].sum()
        )
