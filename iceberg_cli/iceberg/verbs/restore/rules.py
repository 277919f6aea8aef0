"""restore: where a branch goes, what leaves it, and what holds its old head. Nothing is read here.

Spec: "Snapshot References", "Snapshot Retention Policy".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from iceberg_cli.errors import InvalidMetadata, Refused, UsageError
from iceberg_cli.iceberg.branch.ref_states import (
    check_unmoved,
    set_ref,
    snapshot_of_id,
    snapshot_of_ref,
    update_of,
)
from iceberg_cli.iceberg.commit.update import updates_from_json, with_updates
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import BRANCH, MAIN, TAG, SnapshotRef
from iceberg_cli.iceberg.verbs.expire_snapshots import rules as expire_snapshots
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.iceberg.verbs.expire_snapshots.retention import DEFAULT_MAX_SNAPSHOT_AGE_MS, MAX_LONG
from iceberg_cli.iceberg.verbs.expire_snapshots.table_retention import ref_defaults
from iceberg_cli.iceberg.verbs.expire_snapshots.writer_state import writer_states
from iceberg_cli.iceberg.verbs.restore.policy import VERB_NAME, Restore
from iceberg_cli.iceberg.verbs.restore.target import Target, target_of
from iceberg_cli.iceberg.verbs.upgrade_v3.preflight import writer_of
from iceberg_cli.plan.plan import REF_NAME, SNAPSHOT_ID, Base, Change, Plan, Step, Verdict
from iceberg_cli.plan.text import age, count, iso, listed

LEFT, TAGGED = "left_snapshots_count", "created_tags_count"
COLUMNS: Final = (LEFT, TAGGED)
COMMIT: Final = "commit"  # the subject of verdicts on snapshots that leave the branch
_STEP: Final = "restore"
_KEPT_AS: Final = "before-restore-"
_STAGED, _PUBLISHED = "wap.id", "published-wap-id"
_NAMED: Final = 5  # snapshots that a warning names


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A branch, where it is, and where it goes.

    Args:
        branch: its name.
        ref: it, as the table has it.
        chain: the snapshots that it comes from, its head first.
        target: where it goes.
        leaving: the snapshots of `chain` that `target` does not come from, the head first.
        coming: those that `target` comes from and that are not of `chain`, the target first.
        tag: the name of the tag on the old head; "" for none.
        tag_age_ms: its maximum age, in ms.
    """

    branch: str
    ref: SnapshotRef
    chain: Sequence[Snapshot]
    target: Target
    leaving: Sequence[Snapshot]
    coming: Sequence[Snapshot]
    tag: str
    tag_age_ms: int

    @property
    def head(self) -> Snapshot:
        """The snapshot that the branch is at."""
        return self.chain[0]

    @property
    def is_done(self) -> bool:
        """Whether the branch is there already."""
        return self.head.snapshot_id == self.target.snapshot.snapshot_id

    @property
    def is_back(self) -> bool:
        """Whether the branch comes from its target."""
        return any(each.snapshot_id == self.target.snapshot.snapshot_id for each in self.chain)

    def updates(self) -> tuple[Mapping[str, Any], ...]:
        """The updates of the one commit, in the REST specification's wire form; the retention of the branch stays."""
        ref = self.ref
        moved = set_ref(
            self.branch,
            BRANCH,
            self.target.snapshot.snapshot_id,
            min_snapshots_to_keep=ref.min_snapshots_to_keep,
            max_snapshot_age_ms=ref.max_snapshot_age_ms,
            max_ref_age_ms=ref.max_ref_age_ms,
        )
        if not self.tag:
            return (moved,)
        # The tag first: at no point of the commit is the old head on no ref.
        return set_ref(self.tag, TAG, self.head.snapshot_id, max_ref_age_ms=self.tag_age_ms), moved


def move_of(metadata: TableMetadata, policy: Restore, *, as_of_ms: int, within: Plan | None = None) -> Move:
    """The move that a policy asks for.

    Args:
        metadata: the table.
        policy: the options.
        as_of_ms: the "now" of every age, in ms since the epoch.
        within: the plan that is made again: its target and its tag stay what they were, whatever words mean by now.

    Raises:
        UsageError: there is no such branch or state.
        Refused: the branch is a tag.
        CommitConflict: the branch, or a ref of the tag's name, has moved since `within`.
    """
    policy.check_given()
    ref = metadata.refs.get(policy.branch)
    head = snapshot_of_ref(metadata, policy.branch)
    if ref is None or ref.type != BRANCH:
        raise Refused(
            f"Cannot restore {policy.branch}: it is a tag, and only a branch is set back",
            next_step=f"`tag TABLE {policy.branch} --replace` puts a tag elsewhere.",
        )
    chain = tuple(metadata.ancestors(head))
    before = update_of(within, policy.branch)
    if before is None:
        target = target_of(metadata, policy.to or "", chain, branch=policy.branch, now_ms=as_of_ms)
    else:
        snapshot = snapshot_of_id(metadata, before[SNAPSHOT_ID])
        target = Target(snapshot, f"snapshot {snapshot.snapshot_id}")
    own, theirs = {each.snapshot_id for each in chain}, tuple(metadata.ancestors(target.snapshot))
    stays = {each.snapshot_id for each in theirs}
    move = Move(
        branch=policy.branch,
        ref=ref,
        chain=chain,
        target=target,
        leaving=tuple(each for each in chain if each.snapshot_id not in stays),
        coming=tuple(each for each in theirs if each.snapshot_id not in own),
        tag="",
        tag_age_ms=_tag_age_ms(metadata, head, as_of_ms=as_of_ms),
    )
    if move.is_done:
        return move
    check_unmoved(metadata, within)
    return replace(move, tag=_tag_name(metadata, policy, move, as_of_ms=as_of_ms, within=within))


def _tag_age_ms(metadata: TableMetadata, head: Snapshot, *, as_of_ms: int) -> int:
    """The maximum age of the tag on the old head: the table's own of snapshots, from now on.

    The age of a tag is that of its snapshot, so a head that is old already would be let go at once.
    """
    defaults = ref_defaults(metadata)
    held_ms = DEFAULT_MAX_SNAPSHOT_AGE_MS if defaults is None else defaults.max_snapshot_age_ms
    return min(MAX_LONG, max(1, held_ms + max(0, as_of_ms - head.timestamp_ms)))


def _tag_name(
    metadata: TableMetadata, policy: Restore, move: Move, *, as_of_ms: int, within: Plan | None
) -> str:
    """The name of the tag on the old head; "" where nothing leaves the branch and nobody names a tag."""
    if within is not None and within.steps:
        others = (update[REF_NAME] for update in within.updates if update[REF_NAME] != move.branch)
        return next(others, "")
    if policy.keep_as is not None:
        return policy.keep_as
    if not move.leaving:
        return ""
    name = f"{_KEPT_AS}{datetime.fromtimestamp(as_of_ms // 1000, UTC):%Y%m%dT%H%M%SZ}"
    number, free = 1, name
    while free in metadata.refs:
        number += 1
        free = f"{name}-{number}"
    return free


def plan(
    metadata: TableMetadata,
    policy: Restore,
    move: Move,
    *,
    base: Base,
    table: Mapping[str, Any],
    as_of_ms: int,
    missing: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> Plan:
    """The plan of a restore.

    Args:
        metadata: the table as loaded for `base`.
        policy: the options.
        move: what they ask for.
        base: the version that the plan is made from.
        table: how the plan names the table.
        as_of_ms: the "now" of every age, in ms since the epoch.
        missing: files of the target that are not there.
        warnings: of what was read of the target.

    Returns:
        A plan of no step where the branch is at the target already, else of one.
    """
    options = {item.json_name: policy.chosen(item.name) for item in policy.options()}
    if move.is_done:
        reason = f"is at snapshot {move.head.snapshot_id} already"
        verdict = Verdict(
            subject=BRANCH,
            id=move.branch,
            keep=True,
            reason=f"kept: {reason}",
            timestamp_ms=move.head.timestamp_ms,
        )
        return Plan(
            verb=VERB_NAME,
            table=table,
            base=base,
            as_of_ms=as_of_ms,
            options=options,
            policy=policy.to_json(),
            verdicts=(verdict,),
            not_applicable=f"branch {move.branch} {reason}",
        )
    change = Change(updates=move.updates(), counts={LEFT: len(move.leaving), TAGGED: int(bool(move.tag))})
    return Plan(
        verb=VERB_NAME,
        table=table,
        base=base,
        as_of_ms=as_of_ms,
        options=options,
        policy=policy.to_json(),
        verdicts=tuple(verdicts(move)),
        warnings=(*consequences(metadata, move, table, as_of_ms=as_of_ms), *warnings),
        blocked_by=tuple(_obstacles(metadata, policy, move, missing)),
        steps=(Step(name=_STEP, change=change),),
        reason=f"branch {move.branch} goes from snapshot {move.head.snapshot_id} to {move.target.named}",
        states=(move.branch, str(move.target.snapshot.snapshot_id)),
    )


def verdicts(move: Move) -> Iterator[Verdict]:
    """Where the branch goes, the tag on its old head, and each commit that leaves it."""
    yield Verdict(
        subject=BRANCH,
        id=move.branch,
        keep=False,
        reason=f"from snapshot {move.head.snapshot_id} to {move.target.named}",
        timestamp_ms=move.target.snapshot.timestamp_ms,
        gist=f"to snapshot {move.target.snapshot.snapshot_id}",
    )
    if move.tag:
        yield Verdict(
            subject=TAG,
            id=move.tag,
            keep=False,
            reason=f"holds the old head, snapshot {move.head.snapshot_id}, until that is {age(move.tag_age_ms)} old; "
            f"`restore TABLE{_of_branch(move)} --to {move.tag} --not-an-ancestor` takes this back",
            timestamp_ms=move.head.timestamp_ms,
            gist=f"holds the old head until it is {age(move.tag_age_ms)} old; a restore to it takes this back",
        )
    for each in move.leaving:
        yield Verdict(
            subject=COMMIT,
            id=str(each.snapshot_id),
            keep=False,
            reason=f"leaves branch {move.branch}: {_commit_text(each)}",
            timestamp_ms=each.timestamp_ms,
            gist=_commit_text(each),
        )


def _of_branch(move: Move) -> str:
    return "" if move.branch == MAIN else f" --branch {move.branch}"


def _commit_text(snapshot: Snapshot) -> str:
    """What a snapshot did and who made it, as its summary says."""
    return f"{snapshot.operation or 'a commit that does not say what it did'} by {writer_of(snapshot.summary).name}"


def _obstacles(metadata: TableMetadata, policy: Restore, move: Move, missing: Sequence[str]) -> Iterator[str]:
    """Why the move is not carried out."""
    target_id = move.target.snapshot.snapshot_id
    if not move.is_back and not policy.not_an_ancestor:
        yield (
            f"snapshot {target_id} is no ancestor of branch {move.branch}, as far as its snapshots are still there; "
            "--not-an-ancestor allows it"
        )
    if missing:
        are = "is" if len(missing) == 1 else "are"
        files = count(len(missing), "files")
        yield f"{files} of snapshot {target_id} {are} not there, the first is {missing[0]}"
    if move.tag == MAIN and MAIN not in metadata.refs:
        yield f"{MAIN} is the name of a branch, and of no tag: --keep-as names another"
    if move.tag and move.tag in metadata.refs:
        other = metadata.refs[move.tag]
        yield f"{move.tag} is a {other.type} already, at snapshot {other.snapshot_id}: --keep-as names another tag"


# -- what it means for others --------------------------------------------------------------------------------------


def consequences(
    metadata: TableMetadata, move: Move, table: Mapping[str, Any], *, as_of_ms: int
) -> Iterator[str]:
    """What a move means for readers, writers, other branches and the next expiry, as warnings.

    Args:
        metadata: the table.
        move: of one of its branches.
        table: how plans name the table.
        as_of_ms: the "now" of every age, in ms since the epoch.
    """
    if move.target.warning:
        yield move.target.warning
    schema_id = move.target.snapshot.schema_id
    if schema_id is not None and schema_id != metadata.current_schema_id:
        yield (
            f"the table's schema stays schema {metadata.current_schema_id}, and the target is of schema {schema_id}: "
            "columns that came since have null or their defaults in its rows, and columns that are gone are not seen"
        )
    if not move.is_back and move.coming:
        joined = count(len(move.coming), "snapshots")
        yield f"{joined} come to branch {move.branch} that are none of it now: {_ids(move.coming)}"
    left = {each.snapshot_id for each in move.leaving}
    yield from _of_writers(metadata, move, left)
    yield from _stranded(metadata, move, left)
    yield from _next_expiry(metadata, move, table, as_of_ms=as_of_ms)


def _of_writers(metadata: TableMetadata, move: Move, left: Collection[int]) -> Iterator[str]:
    """That a streaming writer finds an older state of its own, or none, after this."""
    for state in writer_states(metadata):
        if state.branch == move.branch and state.snapshot_id in left:
            yield (
                f"{state.writer} has its state in snapshot {state.snapshot_id}, which leaves the branch: "
                f"{state.state:.80}. Restored, it finds an older one or none, and may commit again what leaves now"
            )


def _stranded(metadata: TableMetadata, move: Move, left: Collection[int]) -> Iterator[str]:
    """Audit branches and staged snapshots that come from what leaves, which could not be published as they are."""
    reached: set[int] = set()
    for name, ref in sorted(metadata.refs.items()):
        head = metadata.snapshot(ref.snapshot_id)
        if head is None:
            continue
        ids = {each.snapshot_id for each in metadata.ancestors(head)}
        reached |= ids
        if name != move.branch and ref.type == BRANCH and not ids.isdisjoint(left):
            yield (
                f"branch {name} comes from commits that leave: {move.branch} could be fast-forwarded to it only "
                "together with them"
            )
    published = {(each.summary or {}).get(_PUBLISHED) for each in metadata.snapshots}
    for each in metadata.snapshots:
        staged = (each.summary or {}).get(_STAGED)
        if staged is None or staged in published or each.snapshot_id in reached:
            continue
        if each.parent_snapshot_id in left:
            yield (
                f"snapshot {each.snapshot_id} is staged (wap.id {staged}) on a commit that leaves: it could not be "
                f"published to {move.branch} as it is any more"
            )


def _next_expiry(
    metadata: TableMetadata, move: Move, table: Mapping[str, Any], *, as_of_ms: int
) -> Iterator[str]:
    """Which of the commits that leave the next expiry takes, by the table's own retention."""
    after = with_updates(metadata, updates_from_json(move.updates()), base_location="", timestamp_ms=as_of_ms)
    try:
        expiry = expire_snapshots.plan(
            after,
            ExpireSnapshots(),
            base=Base(table_uuid="", version=""),
            table=table,
            as_of_ms=as_of_ms,
        )
    except (UsageError, InvalidMetadata) as error:
        yield f"what the next expiry takes is not known: {error.message}"
        return
    taken = [each for each in move.leaving if each.snapshot_id in expiry.removed_snapshot_ids]
    if taken:
        yield (
            f"the next expiry, by the table's own retention, takes {count(len(taken), 'commits')} that leave: "
            f"{_ids(taken)}"
        )


def _ids(snapshots: Sequence[Snapshot]) -> str:
    more = len(snapshots) - _NAMED
    shown = [f"{each.snapshot_id} of {iso(each.timestamp_ms)}" for each in snapshots[:_NAMED]]
    return listed([*shown, f"{more:,} more"] if more > 0 else shown)
