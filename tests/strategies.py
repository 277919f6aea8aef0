"""Random tables, as far as retention sees them: a forest of snapshots, refs, and a policy.

Snapshots may have parents that are gone, timestamps that go back along a branch, and refs of every kind.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from iceberg_cli.iceberg.spec.metadata import TableMetadata
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from tests.metadata_documents import PATH, a_document, a_snapshot

NOW_MS = 1_000_000
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
        older_than=maybe(AGES_MS.map(lambda age_ms: NOW_MS - max(0, age_ms))),
        retain_last=maybe(st.integers(1, 4)),
        snapshot_ids=ids,
    )


BY_AGE = policies(ids=st.just(()))
ID_SETS = st.sets(st.integers(1, 10), min_size=1, max_size=4).map(lambda ids: tuple(sorted(ids)))
BY_ID = st.builds(ExpireSnapshots, snapshot_ids=ID_SETS)
ANY_POLICY = BY_AGE | BY_ID | policies(ids=ID_SETS)
