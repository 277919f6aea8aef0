"""expire-snapshots: which snapshots, refs, schemas, specs and files are removed.

`plan` decides what the commit removes, and `reach_of` between which snapshots a scan must tell apart for it. Neither
reads anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.reachability.question import (
    NamedFile,
    ReachQuestion,
    ReferencedIds,
    SnapshotFiles,
    snapshot_files,
)
from iceberg_cli.iceberg.spec.table_metadata.history import interlock_of
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import VERB_NAME, ExpireSnapshots
from iceberg_cli.iceberg.verbs.expire_snapshots.retention import (
    DAY_MS,
    Judgement,
    Reason,
    SnapshotRetention,
    judge,
    reason_of,
)
from iceberg_cli.iceberg.verbs.expire_snapshots.table_retention import (
    retention_of,
    within_properties,
)
from iceberg_cli.iceberg.verbs.expire_snapshots.writer_state import WriterState, writer_states
from iceberg_cli.plan.plan import Base, Change, Option, Plan, Step, Verdict
from iceberg_cli.plan.policy import DEFAULT
from iceberg_cli.plan.text import age, count, did_you_mean, iso
from iceberg_cli.plan.writer_loss import WRITER_STATE

_STEP: Final = "expire"
_YOUNG_MS = DAY_MS
_LONG_MS: Final = 30 * DAY_MS
FOR_WRITERS: Final = "for the state of a streaming writer"


def options_of(metadata: TableMetadata, policy: ExpireSnapshots, *, as_of_ms: int) -> dict[str, Option]:
    """What decides, and where it comes from, as a plan shows it; raises as `within_properties` and `retention_of`."""
    policy = within_properties(metadata, policy, as_of_ms=as_of_ms)
    return _options(retention_of(metadata, policy, as_of_ms=as_of_ms), policy)


def check_named(metadata: TableMetadata, policy: ExpireSnapshots) -> None:
    """Refuse a policy that names only snapshots that the table does not have.

    Raises:
        UsageError: it has none of them.
    """
    named = policy.snapshot_ids
    if not named or policy.older_than_ms is not None or policy.retain_last is not None:
        return
    if not any(metadata.snapshot(snapshot_id) for snapshot_id in named):
        ids = ", ".join(map(str, named))
        near = did_you_mean(str(named[0]), (str(each.snapshot_id) for each in metadata.snapshots))
        raise UsageError(
            f"Cannot expire by --snapshot-id {ids}: the table has no such snapshot.{near}",
            next_step="`inspect TABLE snapshots` lists those that it has.",
        )


def kept_snapshots(
    metadata: TableMetadata, policy: ExpireSnapshots, *, as_of_ms: int, within: Plan | None = None
) -> tuple[SnapshotFiles, ...]:
    """The snapshots whose manifests must be read before `plan` can be called with `clean_metadata`."""
    retention = _retention(metadata, policy, writer_states(metadata), as_of_ms=as_of_ms, within=within)
    judgement = judge(metadata, retention, as_of_ms=as_of_ms)
    return tuple(snapshot_files(s) for s in metadata.snapshots if s.snapshot_id in judgement.kept)


def plan(
    metadata: TableMetadata,
    policy: ExpireSnapshots,
    *,
    base: Base,
    table: Mapping[str, Any],
    as_of_ms: int,
    facts: ReferencedIds | None = None,
    within: Plan | None = None,
) -> Plan:
    """The plan of an expiry of snapshots.

    Args:
        metadata: the table as loaded for `base`.
        policy: the options.
        base: the version that the plan is made from.
        table: how the plan names the table.
        as_of_ms: the "now" of every age, in ms since the epoch.
        facts: needed when `policy.clean_metadata` is set.
        within: see `retention_of`.

    Returns:
        A plan of no step (nothing is due) or of one.

    Raises:
        UsageError: the policy makes no sense.
        InvalidMetadata: a retention property is no number.
    """
    states = writer_states(metadata)
    retention = _retention(metadata, policy, states, as_of_ms=as_of_ms, within=within)
    judgement = judge(metadata, retention, as_of_ms=as_of_ms)
    dropped = _dropped_metadata(metadata, judgement, facts) if facts is not None else ()
    updates: list[Mapping[str, Any]] = [
        {"action": "remove-snapshot-ref", "ref-name": name} for name in judgement.dropped_refs
    ]
    if judgement.expired:
        updates.append({"action": "remove-snapshots", "snapshot-ids": sorted(judgement.expired)})
    schema_ids = [int(verdict.id) for verdict in dropped if verdict.subject == "schema" and not verdict.keep]
    spec_ids = [
        int(verdict.id) for verdict in dropped if verdict.subject == "partition-spec" and not verdict.keep
    ]
    if schema_ids:
        updates.append({"action": "remove-schemas", "schema-ids": schema_ids})
    if spec_ids:
        updates.append({"action": "remove-partition-specs", "spec-ids": spec_ids})
    step = Step(name=_STEP, change=Change(updates=tuple(updates)))
    lasting = _lasting(policy, judgement)
    return Plan(
        verb=VERB_NAME,
        table=table,
        base=base,
        as_of_ms=as_of_ms,
        options=_options(retention, policy),
        policy=policy.to_json(),
        verdicts=(*judgement.verdicts, *dropped, *map(partial(_verdict_on, judgement), states)),
        warnings=(
            *judgement.warnings,
            *_of_writers(judgement, states, as_of_ms=as_of_ms),
            *_warnings(metadata, retention, policy, judgement, as_of_ms=as_of_ms),
            *lasting,
        ),
        lasting=lasting,
        # An interlock refuses an effect; a problem is that the policy cannot be carried out.
        blocked_by=(*(_interlocks(metadata, judgement) if updates else ()), *judgement.problems),
        steps=(step,) if updates else (),
        reason=reason_of(len(judgement.expired), len(judgement.dropped_refs)) if updates else None,
        early=None if judgement.expired else "no snapshot goes, so that no file is freed",
        grace_ms=policy.grace_ms,
    )


def reach_of(metadata: TableMetadata, policy: ExpireSnapshots, plan: Plan) -> Mapping[str, ReachQuestion]:
    """What must be scanned for a plan, by the name of its step; nothing where it deletes no file.

    Raises:
        Refused: the manifest list of a snapshot is encrypted.
    """
    if policy.cleanup == "none":
        return {}
    return {_STEP: reach(metadata, plan.removed_snapshot_ids, content=policy.cleanup == "all")}


def _lasting(policy: ExpireSnapshots, judgement: Judgement) -> tuple[str, ...]:
    """A warning that files stay for ever, where `cleanup` leaves them; see `Plan.lasting`."""
    if policy.cleanup == "all" or not judgement.expired:
        return ()
    kept = "files" if policy.cleanup == "none" else "data and delete files"
    why = f"--cleanup {policy.cleanup} deletes none of them, and no later run knows them"
    return (f"the {kept} that only these snapshots reach stay for ever: {why}",)


def _options(retention: SnapshotRetention, policy: ExpireSnapshots) -> dict[str, Option]:
    return {
        "older_than_ms": retention.cutoff_ms,
        "retain_last": retention.min_snapshots_to_keep,
        "max_ref_age_ms": retention.max_ref_age_ms,
        "snapshot_ids": policy.chosen("snapshot_ids"),
        "by_age": Option(
            value=retention.by_age,
            source=DEFAULT if retention.by_age else policy.source_of("snapshot_ids"),
        ),
        "clean_metadata": policy.chosen("clean_metadata"),
        "cleanup": policy.chosen("cleanup"),
        **policy.chosen_or_none("keep_writer_state"),
        **policy.chosen_of_all(),
    }


def _retention(
    metadata: TableMetadata,
    policy: ExpireSnapshots,
    states: Iterable[WriterState],
    *,
    as_of_ms: int,
    within: Plan | None,
) -> SnapshotRetention:
    """As `retention_of`, with the snapshots by which writers find their states, where these are to stay."""
    retention = retention_of(metadata, policy, as_of_ms=as_of_ms, within=within)
    if not policy.keep_writer_state:
        return retention
    needed: dict[str, dict[int, Reason]] = {}
    for each in states:
        by_id = needed.setdefault(each.branch, {})
        for snapshot_id in each.path:
            by_id.setdefault(snapshot_id, Reason(f"kept: {each.writer} finds its state by it", FOR_WRITERS))
        by_id[each.snapshot_id] = Reason(f"kept: {each.writer} has its state in it", FOR_WRITERS)
    return replace(retention, needed=needed)


def _verdict_on(judgement: Judgement, state: WriterState) -> Verdict:
    keep = state.is_found(judgement.kept)
    stays = "is still found" if keep else "is not found any more"
    return Verdict(
        subject=WRITER_STATE,
        id=f"of {state.writer} on branch {state.branch}",
        keep=keep,
        reason=f"{state.state:.80} in snapshot {state.snapshot_id} {stays}",
    )


def _of_writers(judgement: Judgement, states: Iterable[WriterState], *, as_of_ms: int) -> Iterator[str]:
    """Warnings of states that writers do not find any more, and of old snapshots that stay for states alone."""
    if not judgement.expired:
        states = ()
    for each in states:
        if not each.is_found(judgement.kept):
            yield (
                f"{each.writer} does not find its state on branch {each.branch} after this: {each.state:.80} is in "
                f"snapshot {each.snapshot_id}. Restored, it may commit files again; --keep-writer-state keeps it"
            )
    alone = [
        verdict
        for verdict in judgement.verdicts
        if verdict.gist == FOR_WRITERS and as_of_ms - (verdict.timestamp_ms or 0) > _LONG_MS
    ]
    if alone:
        yield (
            f"{count(len(alone), 'snapshots')} of more than {age(_LONG_MS)} stay for the state of streaming writers "
            "alone. Where such a writer is gone for good, leave out --keep-writer-state"
        )


def _interlocks(metadata: TableMetadata, judgement: Judgement) -> tuple[str, ...]:
    found = []
    if reason := interlock_of(metadata):
        found.append(reason)
    if metadata.snapshots and not judgement.kept:
        found.append("it would remove every snapshot of the table, which has no branch or tag that holds one")
    return tuple(found)


def _warnings(
    metadata: TableMetadata,
    retention: SnapshotRetention,
    policy: ExpireSnapshots,
    judgement: Judgement,
    *,
    as_of_ms: int,
) -> tuple[str, ...]:
    warnings = []
    young_ms = as_of_ms - int(retention.cutoff_ms.value)
    if judgement.expired and retention.by_age and young_ms < _YOUNG_MS and policy.grace_ms < _YOUNG_MS:
        warnings.append(
            f"the cut-off is only {age(young_ms)} old; readers and writers may still use what expires. "
            "With --grace 24h the files wait until the next run or `resume`"
        )
    ahead = [
        (v.timestamp_ms, f"snapshot {v.id}")
        for v in judgement.verdicts
        if v.subject == "snapshot" and v.timestamp_ms is not None and v.timestamp_ms > as_of_ms
    ]
    if not ahead and metadata.last_updated_ms > as_of_ms:
        ahead = [(metadata.last_updated_ms, "the table's last change")]
    if ahead:
        newest_ms, name = max(ahead)
        more = f" and {len(ahead) - 1:,} more" if len(ahead) > 1 else ""
        warnings.append(
            f"{name}{more} is dated {iso(newest_ms)}, and ages are counted from {iso(as_of_ms)}: one of the clocks is "
            "wrong, or --as-of names the past; what is dated ahead counts as new"
        )
    return tuple(warnings)


def _dropped_metadata(
    metadata: TableMetadata, judgement: Judgement, facts: ReferencedIds
) -> tuple[Verdict, ...]:
    """Schemas and specs, each with its verdict."""
    kept = [s for s in metadata.snapshots if s.snapshot_id in judgement.kept]
    named = {s.schema_id for s in kept}
    verdicts = []
    for schema in metadata.schemas:
        if schema.schema_id == metadata.current_schema_id:
            keep, reason = True, "kept: current schema"
        elif None in named:
            keep, reason = True, "kept: a kept snapshot does not say which schema it has"
        elif schema.schema_id in named:
            keep, reason = True, "kept: schema of a kept snapshot"
        elif facts.equality_field_ids & schema.types_by_id().keys():
            keep, reason = True, "kept: has a field that a live equality delete uses"
        else:
            keep, reason = False, "goes: no kept snapshot and no live equality delete needs it"
        verdicts.append(Verdict(subject="schema", id=str(schema.schema_id), keep=keep, reason=reason))
    for spec in metadata.partition_specs:
        if spec.spec_id == metadata.default_spec_id:
            keep, reason = True, "kept: default partition spec"
        elif facts.partition_spec_ids is None or spec.spec_id in facts.partition_spec_ids:
            keep, reason = True, "kept: spec of a kept manifest"
        else:
            keep, reason = False, "goes: no kept manifest has it"
        verdicts.append(Verdict(subject="partition-spec", id=str(spec.spec_id), keep=keep, reason=reason))
    return tuple(verdicts)


def reach(metadata: TableMetadata, removed_ids: Collection[int], *, content: bool) -> ReachQuestion:
    """A scan for the files that are reachable only from the snapshots that are removed.

    Raises:
        Refused: the manifest list of a snapshot is encrypted.
    """
    statistics = [(s.snapshot_id, s.statistics_path, s.file_size_in_bytes) for s in metadata.statistics]
    statistics += [
        (s.snapshot_id, s.statistics_path, s.file_size_in_bytes) for s in metadata.partition_statistics
    ]
    return ReachQuestion(
        expired=tuple(snapshot_files(s) for s in metadata.snapshots if s.snapshot_id in removed_ids),
        kept=tuple(snapshot_files(s) for s in metadata.snapshots if s.snapshot_id not in removed_ids),
        expired_files=tuple(
            NamedFile(
                path=path,
                kind="statistics_file",
                size_bytes=size_bytes,
                reason=f"statistics of expired snapshot {snapshot_id}",
            )
            for snapshot_id, path, size_bytes in statistics
            if snapshot_id in removed_ids
        ),
        kept_files=frozenset(path for snapshot_id, path, _ in statistics if snapshot_id not in removed_ids),
        content=content,
    )
