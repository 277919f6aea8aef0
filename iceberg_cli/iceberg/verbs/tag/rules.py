"""tag: what becomes of a tag. Nothing is read here.

Spec: "Snapshot References", "Snapshot Retention Policy".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.branch.ref_states import (
    check_unmoved,
    set_ref,
    snapshot_of_id,
    snapshot_of_ref,
    update_of,
)
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import BRANCH, MAIN, TAG, SnapshotRef
from iceberg_cli.iceberg.verbs.tag.policy import VERB_NAME, Tag
from iceberg_cli.plan.plan import REF_NAME, SNAPSHOT_ID, Base, Change, Plan, Step, Verdict
from iceberg_cli.plan.text import age, did_you_mean, old

CREATED, REPLACED, DROPPED = "created_tags_count", "replaced_tags_count", "dropped_tags_count"
COLUMNS: Final = (CREATED, REPLACED, DROPPED)
_STEP: Final = "tag"


def plan(
    metadata: TableMetadata,
    policy: Tag,
    *,
    base: Base,
    table: Mapping[str, Any],
    as_of_ms: int,
    within: Plan | None = None,
) -> Plan:
    """The plan of a tag.

    Args:
        metadata: the table as loaded for `base`.
        policy: the options.
        base: the version that the plan is made from.
        table: how the plan names the table.
        as_of_ms: the "now" of every age, in ms since the epoch.
        within: the plan that this one takes the place of: the tag is put where that one puts it.

    Returns:
        A plan of no step where the tag is there, or gone, already; else of one.

    Raises:
        UsageError: there is no such tag to drop, or no such snapshot or ref to put it on.
        CommitConflict: another one has made, moved or dropped the tag since `within`.
    """
    policy.check_given()
    name = policy.name or ""
    former = metadata.refs.get(name)
    tag = _TagChange(metadata, policy, name, former, as_of_ms)
    if policy.drop:
        update, verdict, column, warnings = tag.dropped(is_again=within is not None)
    else:
        update, verdict, column, warnings = tag.placed(_snapshot(metadata, policy, name, within))
    if update is not None:
        check_unmoved(metadata, within)
    change = Change(updates=(update,), counts={column: 1}) if update is not None else None
    return Plan(
        verb=VERB_NAME,
        table=table,
        base=base,
        as_of_ms=as_of_ms,
        options={item.json_name: policy.chosen(item.name) for item in policy.options()},
        policy=policy.to_json(),
        verdicts=(verdict,),
        warnings=warnings if update is not None else (),
        blocked_by=tag.obstacles(update),
        steps=() if change is None else (Step(name=_STEP, change=change),),
        reason=None if change is None else f"tag {name}: {verdict.reason}",
        not_applicable=f"tag {name} {verdict.reason.removeprefix('kept: ')}" if change is None else None,
    )


def _snapshot(metadata: TableMetadata, policy: Tag, name: str, within: Plan | None) -> Snapshot:
    """What the tag is put on; of a plan that is made again what it was put on before, wherever refs are by now."""
    before = update_of(within, name)
    if before is not None:
        return snapshot_of_id(metadata, before[SNAPSHOT_ID])
    if policy.snapshot_id is not None:
        return snapshot_of_id(metadata, policy.snapshot_id)
    if policy.ref is None and MAIN not in metadata.refs:
        raise UsageError(
            "Cannot put a tag on main: the table has no snapshot on it",
            next_step="Name another with --snapshot or --ref, or write to the table first.",
        )
    return snapshot_of_ref(metadata, MAIN if policy.ref is None else policy.ref)


_Outcome = tuple[Mapping[str, Any] | None, Verdict, str, tuple[str, ...]]


class _TagChange:
    """What becomes of one tag: the update, its verdict, the column that counts it, and warnings."""

    def __init__(
        self,
        metadata: TableMetadata,
        policy: Tag,
        name: str,
        former: SnapshotRef | None,
        as_of_ms: int,
    ) -> None:
        self._metadata = metadata
        self._policy = policy
        self._name = name
        self._former = former
        self._as_of_ms = as_of_ms

    def obstacles(self, update: Mapping[str, Any] | None) -> tuple[str, ...]:
        """Why the update is not carried out."""
        name, former = self._name, self._former
        if update is not None and name == MAIN and former is None:
            return (f"{MAIN} is the name of a branch, and of no tag: choose another name",)
        if update is None or former is None:
            return ()
        if former.type == BRANCH:
            return (f"{name} is a branch, and no branch is changed by a tag: choose another name",)
        if self._policy.drop or self._policy.replace:
            return ()
        return (f"tag {name} is there, on snapshot {former.snapshot_id}; --replace puts it elsewhere",)

    def dropped(self, *, is_again: bool) -> _Outcome:
        """The tag dropped.

        Args:
            is_again: it was there when this was planned first: that it is gone is what was to be.
        """
        name, former = self._name, self._former
        if former is None:
            if is_again:
                return None, self._verdict(None, keep=True, reason="kept: is gone already"), DROPPED, ()
            tags = [each for each, ref in self._metadata.refs.items() if ref.type == TAG]
            raise UsageError(
                f"Cannot drop tag {name}: the table has no such tag.{did_you_mean(name, tags)}",
                next_step="`inspect TABLE refs` lists those that it has.",
            )
        snapshot = self._metadata.snapshot(former.snapshot_id)
        verdict = self._verdict(
            snapshot, keep=False, reason=f"dropped: it holds snapshot {former.snapshot_id}"
        )
        return (
            {"action": "remove-snapshot-ref", REF_NAME: name},
            verdict,
            DROPPED,
            self._let_go(former.snapshot_id),
        )

    def placed(self, snapshot: Snapshot) -> _Outcome:
        """The tag on a snapshot."""
        former, snapshot_id = self._former, snapshot.snapshot_id
        max_age_ms = self._policy.max_age_ms
        if max_age_ms is None and former is not None and former.type == TAG:
            max_age_ms = former.max_ref_age_ms
        holds = (
            "for ever, unless the table's property says otherwise"
            if max_age_ms is None
            else (f"until that is {age(max_age_ms)} old")
        )
        if (
            former is not None
            and former.type == TAG
            and (former.snapshot_id, former.max_ref_age_ms) == (snapshot_id, max_age_ms)
        ):
            reason = f"kept: is on snapshot {snapshot_id} already, and holds it {holds}"
            return None, self._verdict(snapshot, keep=True, reason=reason), CREATED, ()
        warnings: tuple[str, ...] = ()
        if former is None:
            column, reason = CREATED, f"put on snapshot {snapshot_id}, and holds it {holds}"
        elif former.snapshot_id == snapshot_id:
            column, reason = REPLACED, f"stays on snapshot {snapshot_id}, and holds it {holds}"
        else:
            column = REPLACED
            reason = f"from snapshot {former.snapshot_id} to {snapshot_id}, and holds it {holds}"
            if former.type == TAG:
                warnings = self._let_go(former.snapshot_id)
        aged_ms = self._as_of_ms - snapshot.timestamp_ms
        if max_age_ms is not None and aged_ms > max_age_ms:
            short = f"the next expiry drops a tag that holds it until it is {age(max_age_ms)} old"
            warnings += (f"snapshot {snapshot_id} is {old(aged_ms)} already: {short}",)
        update = set_ref(self._name, TAG, snapshot_id, max_ref_age_ms=max_age_ms)
        return update, self._verdict(snapshot, keep=False, reason=reason), column, warnings

    def _let_go(self, snapshot_id: int) -> tuple[str, ...]:
        """A warning where nothing else holds the snapshot that the tag was on."""
        metadata = self._metadata
        for name, ref in metadata.refs.items():
            head = metadata.snapshot(ref.snapshot_id)
            if name == self._name or head is None:
                continue
            held = metadata.ancestors(head) if ref.type == BRANCH else (head,)
            if any(each.snapshot_id == snapshot_id for each in held):
                return ()
        goes = "the next expiry takes it once it is older than the cut-off"
        return (f"snapshot {snapshot_id} is on no other branch or tag: {goes}",)

    def _verdict(self, snapshot: Snapshot | None, *, keep: bool, reason: str) -> Verdict:
        return Verdict(
            subject=BRANCH if self._former is not None and self._former.type == BRANCH else TAG,
            id=self._name,
            keep=keep,
            reason=reason,
            timestamp_ms=None if snapshot is None else snapshot.timestamp_ms,
        )
