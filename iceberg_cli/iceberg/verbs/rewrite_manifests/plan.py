"""rewrite-manifests: the plan for the head of main, and the building of its new manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.codecs import deflate
from iceberg_cli.iceberg.avro.container import SYNC_BYTES
from iceberg_cli.iceberg.branch.head import BranchHead, head_of, with_lengths
from iceberg_cli.iceberg.branch.manifest_headers import Losses, losses
from iceberg_cli.iceberg.branch.row_ids import given_again
from iceberg_cli.iceberg.commit.draft import SnapshotDraft
from iceberg_cli.iceberg.commit.summary import carried_totals
from iceberg_cli.iceberg.reachability.keys import sources_of
from iceberg_cli.iceberg.spec.manifests.manifest import ManifestSource, open_manifest
from iceberg_cli.iceberg.spec.manifests.writer import BLOCK_BYTES
from iceberg_cli.iceberg.spec.table_metadata.snapshot import MAIN
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.rewrite_manifests import rules
from iceberg_cli.iceberg.verbs.rewrite_manifests.build import ManifestBuild, rehearse
from iceberg_cli.iceberg.verbs.rewrite_manifests.due import regrouping, would_do
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import VERB_NAME, RewriteManifests
from iceberg_cli.iceberg.verbs.rewrite_manifests.rules import (
    EarlierRewrite,
    Group,
    Rewrite,
    RewriteSettings,
    groups,
    settings_of,
)
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.plan.plan import Change, Option, Plan, StagedFile, Step, Task, Verdict
from iceberg_cli.plan.text import count

_SUBJECT: Final = "manifest"
_LISTS_WITHOUT_COUNTS: Final = 1  # the last format version in which a manifest list may lack them
_REHEARSED_BYTES = 2 << 20  # stored
_THREADS = 16  # that read side by side what is rehearsed
_SAMPLE_BYTES = 4 << 20  # inflated, of one manifest, to learn how it compresses


class RewriteManifestsVerb(Verb):
    """Regroups the manifests of main."""

    name: Final = VERB_NAME
    policy: Final = RewriteManifests
    result_columns: Final = rules.COLUMNS

    def plan(
        self,
        table: IcebergTable,
        policy: RewriteManifests,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,  # noqa: ARG002 - nothing is remembered
    ) -> Planned:
        """One step, if the layout is not good already.

        Raises:
            UsageError: the policy makes no sense for this table.
            CorruptFile: the manifest list, or a manifest that must be read, cannot be read whole.
        """
        base = table.base()
        settings = settings_of(table.metadata, policy)
        plan = Plan(
            verb=self.name,
            table=table.describe(),
            base=base,
            as_of_ms=as_of_ms,
            options=settings.options,
            policy=policy.to_json(),
        )
        rewrites: Sequence[Rewrite] = ()
        snapshot = table.metadata.current_snapshot()
        if snapshot is not None and snapshot.manifest_list is None:
            reason = (
                f"snapshot {snapshot.snapshot_id} names its manifests itself, as format version 1 allows, and "
                "there is no manifest list; `upgrade-v3 --with repair-manifests` writes one"
            )
            plan = replace(plan, not_applicable=reason)
        elif snapshot is not None:
            plan, rewrites = _planned(table, plan, policy, settings, within)
        else:
            plan = replace(plan, not_applicable="main has no snapshot")
        return Planned(plan=table.resolve(plan), build=RewriteBuild(table=table, rewrites=rewrites))

    def options(
        self,
        table: IcebergTable,
        policy: RewriteManifests,
        *,
        as_of_ms: int,  # noqa: ARG002 - no age decides
    ) -> Mapping[str, Option]:
        """As `Verb`."""
        return settings_of(table.metadata, policy).options


VERB: Final = RewriteManifestsVerb()


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteBuild:
    """The build of rewrites of groups of manifests."""

    table: IcebergTable
    rewrites: Sequence[Rewrite]

    def __call__(self, _step: Step, paths: Mapping[Task, str]) -> Mapping[Task, StagedFile]:
        """Write new manifests, and read them back.

        Raises:
            CorruptFile: a manifest cannot be read whole, or what was written is not what was read.
        """
        staged: dict[Task, StagedFile] = {}
        for each in self.rewrites:
            own_paths = {index: paths[task] for index, task in enumerate(each.tasks) if task in paths}
            if own_paths:
                staged |= ManifestBuild(table=self.table, rewrite=each, paths=own_paths).run()
        return staged


def _planned(
    table: IcebergTable, plan: Plan, policy: RewriteManifests, settings: RewriteSettings, within: Plan | None
) -> tuple[Plan, Sequence[Rewrite]]:
    """The plan with its step, and what that builds."""
    head, stale = with_lengths(table, head_of(table, MAIN))
    if table.metadata.format_version > _LISTS_WITHOUT_COUNTS:
        stale = {**dict.fromkeys(head.uncounted, "the list has no counts of it"), **stale}
    paths = head.rows["manifest_path"].to_pylist()
    before = None if within is None else {v.id: v for v in within.verdicts if v.subject == _SUBJECT}
    allowed = None if before is None else _still(paths, before)
    rewrites, lost, reasons = [], [], {}
    for group in groups(head.rows, table.metadata, policy, settings):
        found = _rewrite(table, group, allowed, every=policy.all_manifests)
        if found is not None:
            rewrites.append(found[0])
            lost.append(found[1])
        for place in group.places:
            new = before is not None and paths[place] not in before
            reasons[place] = group.reason or ("it was not shown: the next run" if new else _why_kept(group))
    gone = {place: reason for each in rewrites for place, reason in each.reasons.items()}
    reasons |= {
        place: f"kept, and listed again: {stale[path]}" for place, path in enumerate(paths) if path in stale
    }
    verdicts = tuple(
        Verdict(subject=_SUBJECT, id=path, keep=place not in gone, reason=gone.get(place, reasons[place]))
        for place, path in enumerate(paths)
    )
    if not rewrites and not stale:
        return replace(plan, verdicts=verdicts), ()
    plan = replace(
        plan,
        verdicts=verdicts,
        steps=(_step(head, rewrites, gone),),
        reason=_reason(
            rewrites,
            going=len(gone),
            repaired=sum(path in stale and place not in gone for place, path in enumerate(paths)),
        ),
        early=None if stale else _early(table, policy, rewrites),
        warnings=tuple(reason for each in lost for reason in each.warnings),
        blocked_by=(
            *head.blocked_by,
            *given_again(table, table.metadata, head),
            *(reason for each in lost for reason in each.blocked_by),
        ),
    )
    return plan, rewrites


def _still(paths: Sequence[str], before: Mapping[str, Verdict]) -> EarlierRewrite:
    """What was shown to go and is still listed."""
    going = {path: verdict.reason for path, verdict in before.items() if not verdict.keep}
    reasons = {place: going[path] for place, path in enumerate(paths) if path in going}
    return EarlierRewrite(reasons=reasons, complete=len(reasons) == len(going))


def _why_kept(group: Group) -> str:
    assert group.layout is not None
    if len(group.places) < group.layout.min_manifests:
        kind = "delete" if group.content else "data"
        least = group.layout.min_manifests
        return f"there are fewer than {least} {kind} manifests of partition spec {group.spec_id}"
    return "its size and its partitions are fine"


def _rewrite(
    table: IcebergTable, group: Group, shown: EarlierRewrite | None, *, every: bool
) -> tuple[Rewrite, Losses] | None:
    """What is due of a group, and what the new manifests would not have."""
    reasons = rules.due(group, every=every, shown=shown)
    if not reasons:
        return None
    rewrite = rules.rewrite(group, reasons, growth=_growth(table, group, reasons))
    lost = losses(table, table.metadata, rewrite.rows)
    if rewrite.tasks and not lost.blocked_by and rules.stored_bytes(rewrite) <= _REHEARSED_BYTES:
        rewrite = _rehearsed(table, rewrite)
    return (rewrite, lost) if rules.rewrite_pays(rewrite) else None


def _rehearsed(table: IcebergTable, rewrite: Rewrite) -> Rewrite:
    """The rewrite, into so many manifests that no rule asks for another one.

    An estimate from one manifest is good for many entries. Of few it says little, but making them is quick.
    """
    sources = sources_of(rewrite.rows)
    with ThreadPoolExecutor(_THREADS) as pool:
        manifests = [*pool.map(partial(_opened, table), sources)]
    first = rehearse(rewrite, manifests)
    tried = [(len(rules.due_again(rewrite.group, first)), 0, rewrite)]
    for number in rules.counts_to_try(rewrite, first):
        if not tried[-1][0]:
            return tried[-1][-1]
        other = rules.into(rewrite, number)
        tried.append((len(rules.due_again(rewrite.group, rehearse(other, manifests))), len(tried), other))
    return min(tried)[-1]


def _growth(table: IcebergTable, group: Group, reasons: Mapping[int, str]) -> float:
    """What a stored byte of the largest of the manifests becomes."""
    assert group.target is not None
    chosen = group.rows.filter(pa.array([number in reasons for number in group.places]))
    source = max(sources_of(chosen), key=lambda each: each.length or 0)
    container = _opened(table, source).container
    assert container is not None
    starts = [block.offset for block in container.blocks] + [source.length or 0]
    payload = bytearray()
    stored = 0
    for index, block in enumerate(container.blocks):
        payload += block.payload
        stored = starts[index + 1] - starts[0]
        if len(payload) >= _SAMPLE_BYTES:
            break
    if not payload:
        return 1.0
    blocks = [bytes(payload[start : start + BLOCK_BYTES]) for start in range(0, len(payload), BLOCK_BYTES)]
    return sum(len(deflate(group.target.codec, block)) + SYNC_BYTES for block in blocks) / stored


def _opened(table: IcebergTable, source: ManifestSource) -> ManifestSource:
    try:
        return open_manifest(source, table.storage.read(source.path))
    except FileNotFoundError:
        raise CorruptFile(source.path, None, "the table needs this file and it is not there") from None


def _reason(rewrites: Sequence[Rewrite], *, going: int, repaired: int) -> str:
    """What there is to do, in counts: manifests that are written anew, and others that are only listed anew."""
    parts = [would_do(going, sum(len(each.tasks) for each in rewrites))] if rewrites else []
    if repaired:
        parts.append(f"{count(repaired, 'manifests')} of which the list says something wrong")
    return "; ".join(parts)


def _early(table: IcebergTable, policy: RewriteManifests, rewrites: Sequence[Rewrite]) -> str | None:
    """Why it does not count as due yet, or None: also where an option says from how many manifests on it is."""
    if policy.all_manifests or policy.min_manifests is not None:
        return None
    return regrouping((each.group, each.reasons) for each in rewrites).early(table.metadata)


def _step(head: BranchHead, rewrites: Sequence[Rewrite], gone: Mapping[int, str]) -> Step:
    kept = head.rows.filter(
        pa.array([number not in gone for number in range(head.rows.num_rows)], pa.bool_())
    )
    tasks = tuple(task for each in rewrites for task in each.tasks)
    summary = rules.summary(rewrites, listed=head.rows.num_rows)
    draft = SnapshotDraft(
        ref=head.ref,
        parent_snapshot_id=head.snapshot.snapshot_id,
        operation="replace",
        added=tasks,
        kept=kept,
        summary={**summary, **carried_totals(head.snapshot.summary)},
    )
    counts = dict(zip(rules.COLUMNS, (len(gone), len(tasks)), strict=True))
    return Step(name=VERB_NAME, tasks=tasks, change=Change(draft=draft, counts=counts))
