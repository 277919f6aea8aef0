"""Which snapshots and refs a table keeps: the specification's "Snapshot Retention Policy".

Corner cases follow Iceberg Java: equality keeps; the walk along a branch stops at the first snapshot that fails;
`main` is never removed; a tag holds one snapshot and not its ancestors; a snapshot outside every kept ref is kept
while it is younger than the global cut-off, so that staged and rolled-back work is not lost at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from iceberg_cli.iceberg.spec.table_metadata.history import AnyHistory, DatedSnapshot, S, SnapshotHistory
from iceberg_cli.iceberg.spec.table_metadata.snapshot import MAIN, SnapshotRef
from iceberg_cli.plan.plan import Option, Verdict
from iceberg_cli.plan.text import age, count, old

DAY_MS = 86_400_000
DEFAULT_MAX_SNAPSHOT_AGE_MS = 5 * DAY_MS
DEFAULT_MIN_SNAPSHOTS_TO_KEEP = 1
MAX_LONG = 2**63 - 1


class Reason(NamedTuple):
    """Why a snapshot or a ref stays or goes; `gist`: see `Verdict`."""

    text: str
    gist: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRetention:
    """The retention of refs that set none of their own, and the snapshots that are named.

    `cutoff_ms`: snapshots with a timestamp at or after it are young. `by_age` is False when the operator
    named snapshot ids and nothing else: then only those go. `may_expire`: no snapshot but these goes; None: all may.
    `needed`: by branch the snapshots that stay with it whatever their age is, each with why.
    """

    cutoff_ms: Option
    min_snapshots_to_keep: Option
    max_ref_age_ms: Option
    snapshot_ids: frozenset[int]
    by_age: bool
    may_expire: frozenset[int] | None = None
    needed: Mapping[str, Mapping[int, Reason]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Every ref and every snapshot with its verdict.

    `kept` and `expired` are snapshot ids, `dropped_refs` names; `problems` are interlocks in words.
    """

    verdicts: tuple[Verdict, ...]
    kept: frozenset[int]
    expired: tuple[int, ...]
    dropped_refs: tuple[str, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def reason_of(snapshots: int, refs: int) -> str:
    """What an expiry forgets, in counts."""
    parts = [count(snapshots, "snapshots")] if snapshots else []
    return " and ".join([*parts, count(refs, "refs")] if refs else parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSnapshots:
    """What a retention policy keeps, before it is put in words.

    `reasons` are by snapshot id, `refs` those that stay, `ref_verdicts` of all refs; `problems` and `warnings` see
    `Judgement`.
    """

    reasons: Mapping[int, Reason]
    refs: Mapping[str, SnapshotRef]
    ref_verdicts: tuple[Verdict, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    def expired(self, history: SnapshotHistory[S]) -> list[S]:
        """The snapshots that go, newest first."""
        going = (each for each in history.snapshots if each.snapshot_id not in self.reasons)
        return sorted(going, key=_newest_first)

    def dropped_refs(self, history: AnyHistory) -> tuple[str, ...]:
        """The names of the refs that go, in order."""
        return tuple(sorted(history.refs.keys() - self.refs.keys()))


def kept_by(history: AnyHistory, retention: SnapshotRetention, *, as_of_ms: int) -> KeptSnapshots:
    """What a retention policy keeps of a table.

    Args:
        history: of the table.
        retention: for refs that set none of their own.
        as_of_ms: the "now" of every age, in ms since the epoch.

    Spec: "Snapshot Retention Policy", steps 1 to 5.
    """
    refs = _refs(history)
    ref_verdicts, kept_refs = _judge_refs(history, refs, retention, as_of_ms=as_of_ms)
    if retention.by_age:
        reasons = _kept_by_age(history, kept_refs, retention, as_of_ms=as_of_ms)
    else:
        reasons = dict.fromkeys(
            (s.snapshot_id for s in history.snapshots), Reason("kept: not among the named snapshots")
        )
        for name, ref in kept_refs.items():
            reasons[ref.snapshot_id] = _head_reason(name, ref)
    needed = {
        snapshot_id: reason
        for name in reversed(kept_refs)
        for snapshot_id, reason in retention.needed.get(name, {}).items()
    }
    reasons = {**needed, **reasons}
    heads = {ref.snapshot_id: name for name, ref in kept_refs.items()}
    problems, warnings = [], []
    for snapshot_id in sorted(retention.snapshot_ids):
        if history.snapshot(snapshot_id) is None:
            warnings.append(
                f"snapshot {snapshot_id} is not in the table, so there is nothing to expire for it"
            )
        elif snapshot_id in heads:
            kind = kept_refs[heads[snapshot_id]].type
            problems.append(f"snapshot {snapshot_id} was named, but {kind} {heads[snapshot_id]} points to it")
        elif snapshot_id in needed:
            problems.append(f"snapshot {snapshot_id} was named, but {needed[snapshot_id].text}")
        else:
            reasons.pop(snapshot_id, None)
    if retention.may_expire is not None:
        for snapshot in history.snapshots:
            if snapshot.snapshot_id not in retention.may_expire:
                reasons.setdefault(
                    snapshot.snapshot_id, Reason("kept: the plan that is carried out keeps it")
                )
    return KeptSnapshots(
        reasons=reasons,
        refs=kept_refs,
        ref_verdicts=tuple(ref_verdicts),
        problems=tuple(problems),
        warnings=tuple(warnings),
    )


def judge(history: AnyHistory, retention: SnapshotRetention, *, as_of_ms: int) -> Judgement:
    """Apply a retention policy to a table.

    Args:
        history: see `kept_by`.
        retention: see `kept_by`.
        as_of_ms: see `kept_by`.

    Returns:
        One verdict for each ref, then one for each snapshot, newest first.
    """
    kept = kept_by(history, retention, as_of_ms=as_of_ms)
    verdicts = []
    for snapshot in sorted(history.snapshots, key=_newest_first):
        reason, gist = kept.reasons.get(snapshot.snapshot_id) or _why_expired(
            snapshot, retention, as_of_ms=as_of_ms
        )
        verdicts.append(
            Verdict(
                subject="snapshot",
                id=str(snapshot.snapshot_id),
                keep=snapshot.snapshot_id in kept.reasons,
                reason=reason,
                timestamp_ms=snapshot.timestamp_ms,
                gist=gist,
            )
        )
    return Judgement(
        verdicts=(*kept.ref_verdicts, *verdicts),
        kept=frozenset(kept.reasons),
        expired=tuple(snapshot.snapshot_id for snapshot in kept.expired(history)),
        dropped_refs=kept.dropped_refs(history),
        problems=kept.problems,
        warnings=kept.warnings,
    )


def _newest_first(snapshot: DatedSnapshot) -> tuple[int, int, int]:
    return -snapshot.timestamp_ms, -snapshot.sequence_number, snapshot.snapshot_id


def _refs(history: AnyHistory) -> dict[str, SnapshotRef]:
    return dict(sorted(history.refs.items(), key=lambda item: (item[0] != MAIN, item[0])))


def _judge_refs(
    history: AnyHistory,
    refs: Mapping[str, SnapshotRef],
    retention: SnapshotRetention,
    *,
    as_of_ms: int,
) -> tuple[list[Verdict], dict[str, SnapshotRef]]:
    """Step 2: the age of a ref is the age of the snapshot that it points to."""
    verdicts: list[Verdict] = []
    kept: dict[str, SnapshotRef] = {}
    for name, ref in refs.items():
        snapshot = history.snapshot(ref.snapshot_id)
        max_age_ms = (
            ref.max_ref_age_ms if ref.max_ref_age_ms is not None else int(retention.max_ref_age_ms.value)
        )
        keep, gist = True, ""
        if snapshot is None:
            keep, reason = False, f"dropped: points to snapshot {ref.snapshot_id}, which is not in the table"
        elif name == MAIN:
            reason = "kept: main is never removed"
        elif not retention.by_age:
            reason = "kept: only named snapshots expire"
        elif as_of_ms - snapshot.timestamp_ms <= max_age_ms:
            reason = (
                "kept: no maximum ref age"
                if max_age_ms == MAX_LONG
                else (
                    f"kept: its snapshot is {old(as_of_ms - snapshot.timestamp_ms)}, "
                    f"not older than its maximum ref age of {age(max_age_ms)}"
                )
            )
            gist = (
                "" if max_age_ms == MAX_LONG else f"not older than its maximum ref age of {age(max_age_ms)}"
            )
        else:
            keep, gist = False, f"older than its maximum ref age of {age(max_age_ms)}"
            reason = f"dropped: its snapshot is {old(as_of_ms - snapshot.timestamp_ms)}, {gist}"
        if keep:
            kept[name] = ref
        verdicts.append(
            Verdict(
                subject=ref.type,
                id=name,
                keep=keep,
                reason=reason,
                timestamp_ms=None if snapshot is None else snapshot.timestamp_ms,
                gist=gist,
            )
        )
    return verdicts, kept


def _kept_by_age(
    history: AnyHistory,
    refs: Mapping[str, SnapshotRef],
    retention: SnapshotRetention,
    *,
    as_of_ms: int,
) -> dict[int, Reason]:
    """Steps 3 to 5: snapshot id -> why it is kept."""
    reasons: dict[int, Reason] = {}
    referenced: set[int] = set()
    for name, ref in refs.items():
        head = history.snapshot(ref.snapshot_id)
        assert head is not None
        reasons[head.snapshot_id] = _head_reason(name, ref)
        referenced.add(head.snapshot_id)
        if ref.type == "branch":
            referenced.update(s.snapshot_id for s in history.ancestors(head))
    for name, ref in refs.items():
        if ref.type == "branch":
            for snapshot_id, reason in _walk(history, name, ref, retention, as_of_ms=as_of_ms):
                reasons.setdefault(snapshot_id, reason)
    cutoff_ms = int(retention.cutoff_ms.value)
    for snapshot in history.snapshots:
        if snapshot.snapshot_id not in referenced and snapshot.timestamp_ms >= cutoff_ms:
            young_ms = as_of_ms - snapshot.timestamp_ms
            only = "only " if young_ms >= 0 else ""
            reasons[snapshot.snapshot_id] = Reason(
                f"kept: on no branch or tag, but {only}{old(young_ms)}",
                "on no branch or tag, but younger than the cut-off",
            )
    return reasons


def _walk(
    history: AnyHistory, name: str, ref: SnapshotRef, retention: SnapshotRetention, *, as_of_ms: int
) -> Iterator[tuple[int, Reason]]:
    """Step 4: the snapshots that one branch keeps. It ends at the first that fails; it does not filter."""
    minimum = (
        ref.min_snapshots_to_keep
        if ref.min_snapshots_to_keep is not None
        else int(retention.min_snapshots_to_keep.value)
    )
    cutoff_ms = (
        as_of_ms - ref.max_snapshot_age_ms
        if ref.max_snapshot_age_ms is not None
        else int(retention.cutoff_ms.value)
    )
    head = history.snapshot(ref.snapshot_id)
    assert head is not None
    for position, snapshot in enumerate(history.ancestors(head)):
        if position < minimum:
            yield snapshot.snapshot_id, Reason(f"kept: one of the newest {minimum} of branch {name}")
        elif snapshot.timestamp_ms >= cutoff_ms:
            aged = old(as_of_ms - snapshot.timestamp_ms)
            yield snapshot.snapshot_id, Reason(f"kept: on branch {name}, {aged}", f"on branch {name}")
        else:
            return


def _head_reason(name: str, ref: SnapshotRef) -> Reason:
    return Reason(f"kept: head of branch {name}" if ref.type == "branch" else f"kept: tag {name}")


def _why_expired(snapshot: DatedSnapshot, retention: SnapshotRetention, *, as_of_ms: int) -> Reason:
    if snapshot.snapshot_id in retention.snapshot_ids:
        return Reason("expires: named by --snapshot-id")
    aged = old(as_of_ms - snapshot.timestamp_ms)
    if snapshot.timestamp_ms < int(retention.cutoff_ms.value):
        gist = "older than the cut-off"
        return Reason(f"expires: {aged}, {gist} ({retention.cutoff_ms.source})", gist)
    gist = "past the age that its branch allows"
    return Reason(f"expires: {aged}, {gist}", gist)
