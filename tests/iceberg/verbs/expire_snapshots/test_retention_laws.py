"""Laws of retention, and its equality with a literal reading of the specification, on random tables.

A table is a forest of snapshots, refs, and a policy, as far as retention sees it. Snapshots may have parents that are
gone, timestamps that go back along a branch, and refs of every kind.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_cli.iceberg.commit.update import updates_from_json, with_updates
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.iceberg.verbs.expire_snapshots.retention import Judgement, judge
from iceberg_cli.iceberg.verbs.expire_snapshots.rules import plan
from iceberg_cli.iceberg.verbs.expire_snapshots.table_retention import retention_of
from iceberg_cli.plan.plan import Base, Plan
from tests.budget import FULL
from tests.metadata_documents import PATH, a_document, a_snapshot

NOW_MS = 1_000_000
EXAMPLES = settings(max_examples=2_000 if FULL else 60)
DEFAULT_AGE_MS = 5 * 24 * 60 * 60 * 1_000
FOR_EVER_MS = 2**63 - 1
AGES_MS = st.integers(-50, 1_000)  # small, so that equal ages and equal limits are common
LIMITS_MS = st.integers(1, 1_000)
PROPERTIES = {
    "history.expire.max-snapshot-age-ms": LIMITS_MS,
    "history.expire.min-snapshots-to-keep": st.integers(1, 4),
    "history.expire.max-ref-age-ms": LIMITS_MS,
}


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A value or nothing."""
    return st.none() | strategy


@st.composite
def snapshot_forests(draw: st.DrawFn) -> list[dict[str, Any]]:
    """One to nine snapshots, each with an earlier one, one that is gone, or none as its parent."""
    snapshots = []
    for snapshot_id in range(1, draw(st.integers(1, 9)) + 1):
        earlier = st.sampled_from([*range(max(1, snapshot_id - 3), snapshot_id)] or [None])
        parent = draw(earlier | st.sampled_from([None, 99]))
        known = {} if parent is None else {"parent_snapshot_id": parent}
        snapshots.append(a_snapshot(snapshot_id, timestamp_ms=NOW_MS - draw(AGES_MS), **known))
    return snapshots


@st.composite
def refs_to(draw: st.DrawFn, snapshot_ids: list[int]) -> dict[str, dict[str, Any]]:
    """Up to three branches and tags, beside main where there is one."""
    refs: dict[str, dict[str, Any]] = {}
    for name in draw(st.sets(st.sampled_from(["main", "audit", "dev", "eod", "eoy"]))):
        type_ = "branch" if name == "main" else draw(st.sampled_from(["branch", "tag"]))
        fields = {"max-ref-age-ms": LIMITS_MS}
        if type_ == "branch":
            fields |= {"min-snapshots-to-keep": st.integers(1, 4), "max-snapshot-age-ms": LIMITS_MS}
        ref = {"snapshot-id": draw(st.sampled_from(snapshot_ids)), "type": type_}
        chosen = {key: draw(maybe(value)) for key, value in fields.items()}
        refs[name] = ref | {key: value for key, value in chosen.items() if value is not None}
    return refs


@st.composite
def tables(draw: st.DrawFn) -> TableMetadata:
    """A table of format version 2."""
    snapshots = draw(snapshot_forests())
    ids = [snapshot["snapshot-id"] for snapshot in snapshots]
    refs = draw(refs_to(ids))
    current = refs["main"]["snapshot-id"] if "main" in refs else -1
    properties = {name: draw(maybe(value)) for name, value in PROPERTIES.items()}
    document = a_document(
        2,
        *ids,
        snapshots=snapshots,
        refs=refs,
        current_snapshot_id=current,
        snapshot_log=[],
        last_updated_ms=NOW_MS,
        properties={name: str(value) for name, value in properties.items() if value is not None},
    )
    return TableMetadata.from_json(document, path=PATH)


def policies(*, ids: st.SearchStrategy[tuple[int, ...]]) -> st.SearchStrategy[ExpireSnapshots]:
    """What an operator may ask for."""
    return st.builds(
        ExpireSnapshots,
        older_than=maybe(AGES_MS.map(lambda age_ms: f"{max(0, age_ms)}ms")),
        retain_last=maybe(st.integers(1, 4)),
        snapshot_ids=ids,
    ).map(lambda policy: policy.at(NOW_MS))


BY_AGE = policies(ids=st.just(()))
ID_SETS = st.sets(st.integers(1, 10), min_size=1, max_size=4).map(lambda ids: tuple(sorted(ids)))
BY_ID = st.builds(ExpireSnapshots, snapshot_ids=ID_SETS)
ANY_POLICY = BY_AGE | BY_ID | policies(ids=ID_SETS)


def judged(table: TableMetadata, policy: ExpireSnapshots) -> Judgement:
    return judge(table, retention_of(table, policy, as_of_ms=NOW_MS), as_of_ms=NOW_MS)


def planned(table: TableMetadata, policy: ExpireSnapshots) -> Plan:
    base = Base(table_uuid=table.table_uuid or "", version=PATH)
    return plan(table, policy, base=base, table={"name": "t"}, as_of_ms=NOW_MS)


def applied(table: TableMetadata, made: Plan) -> TableMetadata:
    updates = [update for step in made.steps if step.change for update in step.change.updates]
    return with_updates(table, updates_from_json(updates), base_location=PATH, timestamp_ms=NOW_MS)


def property_of(table: TableMetadata, name: str, default: int) -> int:
    return int(table.properties.get(f"history.expire.{name}", default))


def kept_by_the_specification(table: TableMetadata, policy: ExpireSnapshots) -> tuple[set[int], set[str]]:
    """ "Snapshot Retention Policy", step by step; step 5 as Java has it. Options stand before properties."""
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots}
    max_age_ms = property_of(table, "max-snapshot-age-ms", DEFAULT_AGE_MS)
    if policy.older_than_ms is not None:
        max_age_ms = NOW_MS - policy.older_than_ms
    minimum = policy.retain_last or property_of(table, "min-snapshots-to-keep", 1)
    max_ref_age_ms = property_of(table, "max-ref-age-ms", FOR_EVER_MS)

    def age_ms(snapshot_id: int) -> int:
        return NOW_MS - snapshots[snapshot_id].timestamp_ms

    def ancestry(snapshot_id: int | None) -> list[int]:
        line = []
        while snapshot_id in snapshots:
            line.append(snapshot_id)
            snapshot_id = snapshots[snapshot_id].parent_snapshot_id
        return line

    # 1. Start with an empty set of snapshots to retain.
    retained: set[int] = set()
    # 2. Remove any refs (other than main) where the referenced snapshot is older than max-ref-age-ms.
    refs = {
        name: ref
        for name, ref in table.refs.items()
        if name == "main" or age_ms(ref.snapshot_id) <= (ref.max_ref_age_ms or max_ref_age_ms)
    }
    # 3. For each branch and tag, add the referenced snapshot to the retained set.
    retained |= {ref.snapshot_id for ref in refs.values()}
    # 4. For each branch, add its ancestors to the retained set until
    branches = [ref for ref in refs.values() if ref.type == "branch"]
    for ref in branches:
        for position, snapshot_id in enumerate(ancestry(ref.snapshot_id)):
            # a. the snapshot is older than max-snapshot-age-ms, AND
            older = age_ms(snapshot_id) > (ref.max_snapshot_age_ms or max_age_ms)
            # b. the snapshot is not one of the first min-snapshots-to-keep in the branch.
            if older and position >= (ref.min_snapshots_to_keep or minimum):
                break
            retained.add(snapshot_id)
    # 5. Expire any snapshot not in the set. Java: but for those that no ref knows, while they are young.
    known = retained | {each for ref in branches for each in ancestry(ref.snapshot_id)}
    retained |= {each for each in snapshots if each not in known and age_ms(each) <= max_age_ms}
    return retained, set(table.refs) - set(refs)


@EXAMPLES
@given(tables(), BY_AGE)
def test_the_verdict_is_that_of_the_specification_read_literally(
    table: TableMetadata, policy: ExpireSnapshots
) -> None:
    found = judged(table, policy)
    retained, dropped = kept_by_the_specification(table, policy)
    assert found.kept == retained
    assert set(found.dropped_refs) == dropped


@EXAMPLES
@given(tables(), ANY_POLICY)
def test_what_is_kept_and_what_goes_are_all_there_is_and_every_one_has_a_reason(
    table: TableMetadata, policy: ExpireSnapshots
) -> None:
    found = judged(table, policy)
    snapshots = [verdict for verdict in found.verdicts if verdict.subject == "snapshot"]
    kept = {int(verdict.id) for verdict in snapshots if verdict.keep}
    going = {int(verdict.id) for verdict in snapshots if not verdict.keep}
    assert sorted(int(v.id) for v in snapshots) == sorted(s.snapshot_id for s in table.snapshots)
    assert (kept, going) == (found.kept, set(found.expired))
    refs = [verdict for verdict in found.verdicts if verdict.subject != "snapshot"]
    assert sorted(verdict.id for verdict in refs) == sorted(table.refs)
    words = ("kept: ", "expires: ", "dropped: ")
    assert all(verdict.reason.startswith(words) for verdict in found.verdicts)
    assert all(verdict.reason.startswith("kept: ") == verdict.keep for verdict in found.verdicts)


@EXAMPLES
@given(tables(), ANY_POLICY)
def test_main_and_the_head_of_every_kept_ref_stay(table: TableMetadata, policy: ExpireSnapshots) -> None:
    found = judged(table, policy)
    kept_refs = {name: ref for name, ref in table.refs.items() if name not in found.dropped_refs}
    assert "main" not in found.dropped_refs
    assert {ref.snapshot_id for ref in kept_refs.values()} <= found.kept


@EXAMPLES
@given(tables(), BY_ID)
def test_snapshot_ids_alone_expire_only_those_and_never_a_ref_s(
    table: TableMetadata, policy: ExpireSnapshots
) -> None:
    found = judged(table, policy)
    heads = {ref.snapshot_id for ref in table.refs.values()}
    present = {snapshot.snapshot_id for snapshot in table.snapshots}
    named = set(policy.snapshot_ids)
    assert set(found.expired) == (named & present) - heads
    assert len(found.problems) == len(named & heads)
    assert len(found.warnings) == len(named - present)
    assert found.dropped_refs == ()


@EXAMPLES
@given(tables(), BY_AGE | BY_ID)
def test_planning_again_after_the_commit_finds_nothing(table: TableMetadata, policy: ExpireSnapshots) -> None:
    after = applied(table, planned(table, policy))
    assert not planned(after, policy).due


@EXAMPLES
@given(tables(), ANY_POLICY)
def test_the_commit_leaves_exactly_what_the_verdicts_keep(
    table: TableMetadata, policy: ExpireSnapshots
) -> None:
    made = planned(table, policy)
    after = applied(table, made)
    kept = {(v.subject, v.id) for v in made.verdicts if v.keep}
    left = {("snapshot", str(s.snapshot_id)) for s in after.snapshots}
    assert left | {(ref.type, name) for name, ref in after.refs.items()} == kept
    assert after.current_snapshot_id == table.current_snapshot_id


@EXAMPLES
@given(tables(), BY_AGE, BY_AGE)
def test_the_plan_is_the_same_each_time_and_contains_itself(
    table: TableMetadata, policy: ExpireSnapshots, other: ExpireSnapshots
) -> None:
    made = planned(table, policy)
    assert made.to_json() == planned(table, policy).to_json()
    assert made.additions_over(made) == ()
    more = {v.id for v in planned(table, other).verdicts if not v.keep} - {
        v.id for v in made.verdicts if not v.keep
    }
    assert bool(planned(table, other).additions_over(made)) == bool(more)
