"""What becomes of a tag, on small histories; what its commits leave is what PyIceberg makes of the same updates."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate, update_table_metadata

from iceberg_cli.errors import CommitConflict, UsageError
from iceberg_cli.iceberg.commit.update import (
    AssertRefSnapshotId,
    AssertTableUuid,
    requirements_for,
    updates_from_json,
    with_updates,
)
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.table import base_of
from iceberg_cli.iceberg.verbs.tag import rules
from iceberg_cli.iceberg.verbs.tag.policy import Tag
from iceberg_cli.plan.plan import Plan
from tests.builders import (
    DAY_MS,
    LOCATION,
    NOW_MS,
    TABLE_UUID,
    a_branch,
    a_snapshot,
    a_table_document,
    a_tag,
)

PATH = f"{LOCATION}/metadata/v1.metadata.json"
UPDATES = {"set-snapshot-ref": SetSnapshotRefUpdate, "remove-snapshot-ref": RemoveSnapshotRefUpdate}


def parsed(document: dict[str, Any]) -> TableMetadata:
    return TableMetadata.from_json(document, path=PATH)


def three(version: int = 2, **refs: Any) -> dict[str, Any]:
    """Snapshots 1 to 3 of three to one days ago."""
    snapshots = [a_snapshot(number, age_ms=(4 - number) * DAY_MS) for number in (1, 2, 3)]
    return a_table_document(*snapshots, format_version=version, refs=refs)


def planned(document: dict[str, Any], name: str, *, within: Plan | None = None, **options: Any) -> Plan:
    table = parsed(document)
    return rules.plan(
        table,
        Tag(name=name, **options),
        base=base_of(table, PATH),
        table={"name": "t"},
        as_of_ms=NOW_MS,
        within=within,
    )


def refs_after(document: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """The refs of the document that the plan's commit leaves."""
    updates = updates_from_json(tuple(plan.updates))
    new = with_updates(parsed(document), updates, base_location=PATH, timestamp_ms=NOW_MS)
    found: dict[str, Any] = new.to_json()["refs"]
    return found


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    ("options", "snapshot_id"), [({}, 3), ({"snapshot_id": 1}, 1), ({"ref": "audit"}, 2), ({"ref": "eom"}, 1)]
)
def test_a_tag_is_made_on_the_snapshot_that_is_named(
    version: int, options: dict[str, Any], snapshot_id: int
) -> None:
    document = three(version, audit=a_branch(2), eom=a_tag(1))
    plan = planned(document, "new", max_age="7d", **options)
    expected = {"snapshot-id": snapshot_id, "type": "tag", "max-ref-age-ms": 604_800_000}
    assert refs_after(document, plan) == {**document["refs"], "new": expected}
    assert plan.blocked_by == ()


def test_a_tag_without_an_age_states_none() -> None:
    assert refs_after(three(), planned(three(), "new"))["new"] == {"snapshot-id": 3, "type": "tag"}


def test_a_version_1_table_without_refs_gets_them() -> None:
    document = three(1)
    del document["refs"]
    refs = refs_after(document, planned(document, "new", ref="main"))
    assert refs == {"main": {"snapshot-id": 3, "type": "branch"}, "new": {"snapshot-id": 3, "type": "tag"}}


def test_a_tag_that_is_there_already_is_nothing_to_do() -> None:
    document = three(eom=a_tag(1, max_ref_age_ms=5))
    for options in ({"snapshot_id": 1}, {"ref": "eom", "replace": True}, {"snapshot_id": 1, "max_age": 5}):
        plan = planned(document, "eom", **options)
        assert (plan.due, plan.blocked_by) == (False, ())
        assert plan.not_applicable is not None
        assert "tag eom is on snapshot 1 already" in plan.not_applicable


def test_a_tag_is_put_elsewhere_only_by_replace_and_keeps_its_age_unless_another_is_given() -> None:
    document = three(eom=a_tag(1, max_ref_age_ms=5))
    assert planned(document, "eom").blocked_by == (
        "tag eom is there, on snapshot 1; --replace puts it elsewhere",
    )
    assert planned(document, "eom", snapshot_id=1, max_age=6).blocked_by
    moved = planned(document, "eom", replace=True)
    assert refs_after(document, moved)["eom"] == a_tag(3, max_ref_age_ms=5)
    aged = planned(document, "eom", replace=True, max_age=6)
    assert refs_after(document, aged)["eom"] == a_tag(3, max_ref_age_ms=6)


@pytest.mark.parametrize("options", [{}, {"replace": True}, {"drop": True}])
def test_a_branch_is_never_changed(options: dict[str, Any]) -> None:
    for name in ("main", "audit"):
        plan = planned(three(audit=a_branch(2)), name, **options)
        assert plan.blocked_by == (
            f"{name} is a branch, and no branch is changed by a tag: choose another name",
        )


def test_a_tag_is_dropped_and_one_that_is_not_there_is_a_usage_error() -> None:
    document = three(eom=a_tag(1), audit=a_tag(2))
    plan = planned(document, "eom", drop=True)
    assert refs_after(document, plan) == {
        name: ref for name, ref in document["refs"].items() if name != "eom"
    }
    with pytest.raises(
        UsageError, match=r"Cannot drop tag eon: the table has no such tag\. Did you mean 'eom'"
    ):
        planned(document, "eon", drop=True)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"snapshot_id": 9}, "9 is no snapshot of this table"),
        ({"ref": "eon"}, r"'eon' is no branch or tag of this table\. Did you mean 'eom'\?"),
    ],
)
def test_what_is_not_there_cannot_be_tagged(options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        planned(three(eom=a_tag(1)), "new", **options)


def test_main_is_no_name_of_a_tag_where_the_table_has_no_main() -> None:
    document = three()
    document |= {"current-snapshot-id": -1, "refs": {}, "snapshot-log": []}
    assert planned(document, "main", snapshot_id=1).blocked_by == (
        "main is the name of a branch, and of no tag: choose another name",
    )


def test_a_table_without_a_snapshot_has_nothing_to_tag() -> None:
    with pytest.raises(UsageError, match="Cannot put a tag on main: the table has no snapshot on it"):
        planned(a_table_document(), "new")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"max_age": 0}, "max_age must be above 0"),
        ({"max_age": 2**63}, "max_age is longer than any table can say"),
        ({"snapshot_id": 1, "ref": "main"}, "exclude each other"),
        ({"drop": True, "replace": True}, "exclude each other"),
        ({"drop": True, "ref": "main"}, "exclude each other"),
        ({"drop": True, "max_age": "7d"}, "exclude each other"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        Tag(name="t", **options)
    with pytest.raises(UsageError, match="Cannot tag without NAME"):
        Tag().check_given()


def test_a_tag_that_would_be_dropped_at_once_and_a_snapshot_that_is_let_go_are_told() -> None:
    (short,) = planned(three(), "new", snapshot_id=1, max_age="1d").warnings
    assert "snapshot 1 is 3 d old already: the next expiry drops a tag" in short
    snapshots = [a_snapshot(1, age_ms=2), a_snapshot(2, age_ms=1, parent=None)]
    alone = a_table_document(*snapshots, refs={"eom": a_tag(1)})
    (let_go,) = planned(alone, "eom", drop=True).warnings
    assert let_go.startswith("snapshot 1 is on no other branch or tag: ")
    assert planned(three(eom=a_tag(1)), "eom", drop=True).warnings == ()


def test_a_tag_that_leaves_a_snapshot_says_where_nothing_else_holds_it() -> None:
    """No branch goes through 1; the tag `too` is on it in the second table."""
    snapshots = [a_snapshot(1, age_ms=3), a_snapshot(2, age_ms=2, parent=None), a_snapshot(3, age_ms=1)]
    for refs, told in (({}, ["snapshot 1 is on no other branch or tag"]), ({"too": a_tag(1)}, [])):
        table = a_table_document(*snapshots, refs={"eom": a_tag(1), **refs})
        plan = planned(table, "eom", replace=True)
        assert [each.partition(":")[0] for each in plan.warnings] == told
    same = planned(
        a_table_document(*snapshots, refs={"eom": a_tag(1)}), "eom", snapshot_id=1, max_age="9d", replace=True
    )
    assert same.warnings == ()


def test_a_tag_is_too_old_only_beyond_its_age() -> None:
    """Spec, "Snapshot Retention Policy": "max age of the snapshot reference to keep"."""
    for age_ms, told in ((DAY_MS, 0), (DAY_MS - 1, 1)):
        assert len(planned(three(), "new", max_age=age_ms).warnings) == told


def test_what_becomes_of_a_tag_is_one_verdict() -> None:
    found = []
    for name, options in (
        ("new", {}),
        ("eom", {"snapshot_id": 1, "max_age": "9d", "replace": True}),
        ("eom", {"replace": True}),
        ("eom", {"snapshot_id": 1}),
        ("eom", {"drop": True}),
        ("main", {}),
    ):
        plan = planned(three(eom=a_tag(1)), name, **options)
        (verdict,) = plan.verdicts
        assert (plan.reason is None) == (not plan.due)
        assert plan.reason in (None, f"tag {name}: {verdict.reason}")
        found.append((verdict.subject, verdict.keep, verdict.reason))
    assert found == [
        (
            "tag",
            False,
            "put on snapshot 3, and holds it for ever, unless the table's property says otherwise",
        ),
        ("tag", False, "stays on snapshot 1, and holds it until that is 9 d old"),
        (
            "tag",
            False,
            "from snapshot 1 to 3, and holds it for ever, unless the table's property says otherwise",
        ),
        (
            "tag",
            True,
            "kept: is on snapshot 1 already, and holds it for ever, unless the table's property says otherwise",
        ),
        ("tag", False, "dropped: it holds snapshot 1"),
        (
            "branch",
            False,
            "stays on snapshot 3, and holds it for ever, unless the table's property says otherwise",
        ),
    ]


def test_a_tag_that_is_gone_when_its_drop_is_planned_again_is_kept_from_nothing() -> None:
    shown = planned(three(eom=a_tag(1)), "eom", drop=True)
    (verdict,) = planned(three(), "eom", drop=True, within=shown).verdicts
    assert (verdict.keep, verdict.reason) == (True, "kept: is gone already")


def test_a_plan_needs_a_name() -> None:
    table = parsed(three())
    with pytest.raises(UsageError, match="Cannot tag without NAME"):
        rules.plan(table, Tag(), base=base_of(table, PATH), table={"name": "t"}, as_of_ms=NOW_MS)


def test_the_commit_requires_that_the_tag_is_absent_or_where_it_was_seen() -> None:
    for document, options, seen in ((three(), {}, None), (three(new=a_tag(1)), {"replace": True}, 1)):
        updates = updates_from_json(tuple(planned(document, "new", **options).updates))
        assert requirements_for(updates, parsed(document)) == (
            AssertTableUuid(uuid=TABLE_UUID),
            AssertRefSnapshotId(ref="new", snapshot_id=seen),
        )


def test_a_plan_that_is_made_again_puts_the_tag_where_it_was_to_be_and_ends_where_another_has_put_it() -> (
    None
):
    shown = planned(three(audit=a_branch(2)), "new", ref="audit")
    moved = three(audit=a_branch(3))
    assert planned(moved, "new", ref="audit", within=shown).steps == shown.steps
    with pytest.raises(
        CommitConflict, match="ref new was absent when this was planned, and is at snapshot 1 now"
    ):
        planned(three(audit=a_branch(2), new=a_tag(1)), "new", ref="audit", within=shown)
    assert not planned(three(new=a_tag(2)), "new", ref="audit", within=shown).due
    dropped = planned(three(new=a_tag(1)), "new", drop=True)
    assert not planned(three(), "new", drop=True, within=dropped).due


@pytest.mark.parametrize("seed", range(200))
def test_a_drawn_tag_leaves_the_refs_that_pyiceberg_makes_of_its_updates(seed: int) -> None:
    draw = random.Random(seed)
    refs = {name: a_tag(draw.randint(1, 3)) for name in draw.sample(["a", "b", "c"], draw.randint(0, 3))}
    document = three(draw.choice([1, 2, 3]), **refs)
    name = draw.choice(["a", "b", "c"])
    if name in refs and draw.random() < 0.4:
        options: dict[str, Any] = {"drop": True}
    else:
        age = {"max_age": draw.randint(1, 9)} if draw.random() < 0.5 else {}
        options = {"snapshot_id": draw.randint(1, 3), "replace": True, **age}
    plan = planned(document, name, **options)
    theirs = update_table_metadata(
        TableMetadataUtil.parse_obj(document),
        tuple(UPDATES[update["action"]].model_validate(update) for update in plan.updates),
    )
    expected = {
        each: ref.model_dump(by_alias=True, exclude_none=True, mode="json")
        for each, ref in theirs.refs.items()
    }
    assert (refs_after(document, plan) if plan.due else document["refs"]) == expected
