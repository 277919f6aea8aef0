"""Where a restore leads, on drawn histories: against a literal reading of their documents, and PyIceberg's own commit.

The literal reading walks parents in the parsed JSON. What the commit leaves is what PyIceberg makes of its updates.
"""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata as PyIcebergMetadata
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import SetSnapshotRefUpdate, update_table_metadata

from iceberg_cli.errors import CommitConflict, Refused, UsageError
from iceberg_cli.iceberg.commit.update import (
    AssertRefSnapshotId,
    AssertTableUuid,
    requirements_for,
    updates_from_json,
    with_updates,
)
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.table import base_of
from iceberg_cli.iceberg.verbs.restore import rules
from iceberg_cli.iceberg.verbs.restore.policy import Restore
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.text import iso
from tests.budget import FULL
from tests.builders import (
    DAY_MS,
    HOUR_MS,
    LOCATION,
    NOW_MS,
    TABLE_UUID,
    a_branch,
    a_snapshot,
    a_table_document,
    a_tag,
)

PATH = f"{LOCATION}/metadata/v1.metadata.json"
FIVE_DAYS_MS = 432_000_000  # history.expire.max-snapshot-age-ms, as the specification has its default
AT = "20270115T080000Z"  # of NOW_MS


def parsed(document: dict[str, Any]) -> TableMetadata:
    return TableMetadata.from_json(document, path=PATH)


def planned(table: TableMetadata, to: str, *, within: Plan | None = None, **options: Any) -> Plan:
    policy = Restore(to=to, **options)
    move = rules.move_of(table, policy, as_of_ms=NOW_MS, within=within)
    return rules.plan(table, policy, move, base=base_of(table, PATH), table={"name": "t"}, as_of_ms=NOW_MS)


def after(table: TableMetadata, plan: Plan) -> TableMetadata:
    updates = updates_from_json(tuple(plan.updates))
    return with_updates(table, updates, base_location=PATH, timestamp_ms=NOW_MS)


def heads(table: TableMetadata) -> dict[str, int]:
    return {name: ref.snapshot_id for name, ref in table.refs.items()}


def leaving(plan: Plan) -> list[int]:
    return [int(each.id) for each in plan.verdicts if each.subject == "commit"]


def four(**values: Any) -> TableMetadata:
    """Snapshots 1 to 4 of four to one days ago, one upon the other."""
    snapshots = [a_snapshot(number, age_ms=(5 - number) * DAY_MS) for number in (1, 2, 3, 4)]
    return parsed(a_table_document(*snapshots, **values))


# -- drawn histories -----------------------------------------------------------------------------------------------


def drawn(draw: random.Random) -> tuple[dict[str, Any], str, int]:
    """A table of two to nine snapshots in a forest, the branch that is set back, and the snapshot it goes to."""
    count = draw.randint(2, 9)
    snapshots = []
    for number in range(1, count + 1):
        parent = draw.choice([None, *range(1, number), *([number - 1] * 6)]) if number > 1 else None
        snapshots.append(a_snapshot(number, age_ms=(count + 1 - number) * HOUR_MS, parent=parent or None))
    refs = {"audit": a_branch(draw.randint(1, count)), "eom": a_tag(draw.randint(1, count))}
    document = a_table_document(
        *snapshots, format_version=draw.choice([1, 2, 3]), main=draw.randint(1, count), refs=refs
    )
    # A log that ends with the current snapshot, as the specification wants it.
    head = document["refs"]["main"]["snapshot-id"]
    document["snapshot-log"] = [
        entry for entry in document["snapshot-log"] if entry["snapshot-id"] != head
    ] + [{"timestamp-ms": NOW_MS - 1, "snapshot-id": head}]
    document["last-updated-ms"] = NOW_MS - 1
    return document, draw.choice(["main", "audit"]), draw.randint(1, count)


def line_of(document: dict[str, Any], snapshot_id: int) -> list[int]:
    """A snapshot and its ancestors, as the document's parent ids have them."""
    parents = {each["snapshot-id"]: each.get("parent-snapshot-id") for each in document["snapshots"]}
    found: list[int] = []
    at: int | None = snapshot_id
    while at is not None:
        found.append(at)
        at = parents.get(at)
    return found


@pytest.mark.parametrize("seed", range(2_000 if FULL else 200))
def test_a_drawn_history_is_set_back_as_its_document_read_literally_says(seed: int) -> None:
    document, branch, target = drawn(random.Random(seed))
    table = parsed(document)
    head = document["refs"][branch]["snapshot-id"]
    own, theirs = line_of(document, head), line_of(document, target)
    plan = planned(table, str(target), branch=branch)
    if head == target:
        assert (plan.due, plan.blocked_by) == (False, ())
        return
    assert leaving(plan) == [each for each in own if each not in theirs]
    assert bool(plan.blocked_by) == (target not in own)
    allowed = planned(table, str(target), branch=branch, not_an_ancestor=True)
    assert (allowed.blocked_by, allowed.steps) == ((), plan.steps)
    new = after(table, plan)
    expected = {**heads(table), branch: target}
    if leaving(plan):
        expected[f"before-restore-{AT}"] = head
    assert heads(new) == expected
    assert (new.last_sequence_number, new.next_row_id) == (table.last_sequence_number, table.next_row_id)
    assert (new.snapshots, new.schemas, new.properties) == (table.snapshots, table.schemas, table.properties)
    check_with_pyiceberg(document, plan, new)


def check_with_pyiceberg(document: dict[str, Any], plan: Plan, new: TableMetadata) -> None:
    """PyIceberg makes the same refs, current snapshot and log of the same updates, and reads what we write of them."""
    theirs: PyIcebergMetadata = update_table_metadata(
        TableMetadataUtil.parse_obj(document),
        tuple(SetSnapshotRefUpdate.model_validate(update) for update in plan.updates),
    )
    ours = TableMetadataUtil.parse_obj(new.to_json())
    assert ours.refs == theirs.refs
    assert ours.current_snapshot_id == theirs.current_snapshot_id
    assert [each.snapshot_id for each in ours.snapshot_log] == [
        each.snapshot_id for each in theirs.snapshot_log
    ]
    assert ours.snapshots == theirs.snapshots


# -- what names a state --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "target"),
    [
        ("2", 2),
        ("eom", 3),
        ("audit", 1),
        (iso(NOW_MS - 3 * DAY_MS), 2),  # the very moment of 2
        (iso(NOW_MS - 2 * DAY_MS - 1), 2),
        ("36h", 3),
        (str(NOW_MS - 2 * DAY_MS), 3),
    ],
)
def test_a_state_is_named_by_id_by_ref_or_by_time(word: str, target: int) -> None:
    plan = planned(four(refs={"eom": a_tag(3), "audit": a_branch(1)}), word)
    assert heads(after(four(), plan))["main"] == target


def test_a_word_of_digits_is_a_snapshot_id_before_it_is_a_ref() -> None:
    table = four(refs={"2": a_tag(3), "7": a_tag(3)})
    assert heads(after(table, planned(table, "2")))["main"] == 2
    assert heads(after(table, planned(table, "7")))["main"] == 3


def test_a_time_takes_the_newest_snapshot_that_the_branch_comes_from_and_tells_of_another_in_the_log() -> (
    None
):
    # Main was at 3, then set back to 2, from which 4 comes.
    snapshots = [
        a_snapshot(1, age_ms=4 * DAY_MS),
        a_snapshot(2, age_ms=3 * DAY_MS),
        a_snapshot(3, age_ms=2 * DAY_MS),
        a_snapshot(4, age_ms=HOUR_MS, parent=2),
    ]
    plan = planned(parsed(a_table_document(*snapshots)), "1d")
    (warning,) = [each for each in plan.warnings if "snapshot log" in each]
    assert "main was at snapshot 3" in warning
    assert "2 is the newest snapshot that main still comes from" in warning
    assert "`--to 3 --not-an-ancestor` goes to that one" in warning
    assert leaving(plan) == [4]


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("5", "'5' is no snapshot id, branch, tag or time of this table"),
        ("eon", r"'eon' is no snapshot id, branch, tag or time of this table\. Did you mean 'eom'\?"),
        ("2999-01-01T00:00:00Z", "is in the future"),
        ("30d", "branch main has no snapshot of .* or before; its oldest one that is still there, 1,"),
    ],
)
def test_a_word_that_names_nothing_is_a_usage_error_that_names_what_is_near(word: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        planned(four(refs={"eom": a_tag(3)}), word)


def test_a_branch_that_is_not_there_is_a_usage_error_and_a_tag_is_refused() -> None:
    table = four(refs={"audit": a_branch(3), "eom": a_tag(3)})
    with pytest.raises(
        UsageError, match=r"'audit2' is no branch or tag of this table\. Did you mean 'audit'\?"
    ):
        planned(table, "1", branch="audit2")
    with pytest.raises(Refused, match="Cannot restore eom: it is a tag"):
        planned(table, "1", branch="eom")
    with pytest.raises(UsageError, match="Cannot restore without --to"):
        rules.move_of(table, Restore(), as_of_ms=NOW_MS)


# -- the tag on the old head -----------------------------------------------------------------------------------------


def test_the_old_head_is_held_for_the_tables_maximum_age_from_now_on() -> None:
    for properties, held_ms in (
        ({}, FIVE_DAYS_MS),
        ({"history.expire.max-snapshot-age-ms": "3600000"}, HOUR_MS),
    ):
        table = four(properties=properties)
        ref = after(table, planned(table, "3")).refs[f"before-restore-{AT}"]
        # The age of a tag is its snapshot's, which is one day old.
        assert (ref.snapshot_id, ref.type, ref.max_ref_age_ms) == (4, "tag", held_ms + DAY_MS)


def test_the_tag_has_the_name_that_is_given_and_else_one_that_is_free() -> None:
    table = four(refs={f"before-restore-{AT}": a_tag(1)})
    assert heads(after(table, planned(table, "3", keep_as="bad"))) == {**heads(table), "main": 3, "bad": 4}
    assert heads(after(table, planned(table, "3")))[f"before-restore-{AT}-2"] == 4
    taken = planned(table, "3", keep_as="main")
    assert taken.blocked_by == ("main is a branch already, at snapshot 4: --keep-as names another tag",)


def test_a_table_that_keeps_snapshots_for_ever_holds_the_old_head_as_long_as_a_table_can_say() -> None:
    table = four(properties={"history.expire.max-snapshot-age-ms": str(2**63 - 1)})
    assert after(table, planned(table, "3")).refs[f"before-restore-{AT}"].max_ref_age_ms == 2**63 - 1


def test_main_is_no_name_of_the_tag_where_the_table_has_no_main() -> None:
    snapshots = [a_snapshot(1, age_ms=2), a_snapshot(2, age_ms=1)]
    document = a_table_document(*snapshots, refs={"audit": a_branch(2)})
    document |= {"current-snapshot-id": -1, "refs": {"audit": a_branch(2)}, "snapshot-log": []}
    plan = planned(parsed(document), "1", branch="audit", keep_as="main")
    assert plan.blocked_by == ("main is the name of a branch, and of no tag: --keep-as names another",)


def test_where_no_commit_leaves_there_is_a_tag_only_by_its_name() -> None:
    table = four(main=2)
    forward = planned(table, "4", not_an_ancestor=True)
    assert heads(after(table, forward)) == {"main": 4}
    named = planned(table, "4", not_an_ancestor=True, keep_as="old")
    assert heads(after(table, named)) == {"main": 4, "old": 2}


def test_a_restore_is_undone_by_a_restore_to_its_tag() -> None:
    table = four()
    back = after(table, planned(table, "2"))
    undone = after(back, planned(back, f"before-restore-{AT}", not_an_ancestor=True))
    assert heads(undone)["main"] == heads(table)["main"] == 4


def test_the_retention_of_a_branch_stays_as_it_is() -> None:
    audit = a_branch(4, min_snapshots_to_keep=3, max_snapshot_age_ms=7, max_ref_age_ms=9)
    table = four(refs={"audit": audit})
    new = after(table, planned(table, "2", branch="audit"))
    assert new.to_json()["refs"]["audit"] == {**audit, "snapshot-id": 2}


# -- requirements ----------------------------------------------------------------------------------------------------


def test_the_commit_requires_the_head_that_was_seen_and_that_the_tag_is_absent() -> None:
    table = four(refs={"eom": a_tag(1)})
    updates = updates_from_json(tuple(planned(table, "2", keep_as="old").updates))
    assert set(requirements_for(updates, table)) == {
        AssertTableUuid(uuid=TABLE_UUID),
        AssertRefSnapshotId(ref="main", snapshot_id=4),
        AssertRefSnapshotId(ref="old", snapshot_id=None),
    }


def test_a_plan_that_is_made_again_ends_where_its_branch_has_moved_and_not_where_another_has() -> None:
    table = four(refs={"audit": a_branch(3)})
    shown = planned(table, "2", keep_as="old")
    elsewhere = four(refs={"audit": a_branch(4)})
    assert planned(elsewhere, "2", within=shown, keep_as="old").steps == shown.steps
    for moved in (four(main=3), four(refs={"old": a_tag(1)})):
        with pytest.raises(CommitConflict, match="when this was planned"):
            planned(moved, "2", within=shown, keep_as="old")
    assert not planned(four(main=2), "2", within=shown, keep_as="old").due


def test_a_plan_that_is_made_again_goes_to_the_snapshot_that_was_shown_whatever_its_name_means_by_now() -> (
    None
):
    table = four(refs={"eom": a_tag(2)})
    shown = planned(table, "eom")
    moved = four(refs={"eom": a_tag(3)})
    assert planned(moved, "eom", within=shown).steps == shown.steps


# -- what it means for others ------------------------------------------------------------------------------------------


def test_the_state_of_a_streaming_writer_that_leaves_is_told() -> None:
    flink = {"flink.job-id": "j", "flink.max-committed-checkpoint-id": "9"}
    snapshots = [a_snapshot(1, age_ms=3), a_snapshot(2, age_ms=2, summary=flink), a_snapshot(3, age_ms=1)]
    table = parsed(a_table_document(*snapshots))
    (warning,) = [each for each in planned(table, "1").warnings if "Flink" in each]
    assert warning.startswith("Flink job j has its state in snapshot 2, which leaves the branch: ")
    assert not [each for each in planned(table, "2").warnings if "Flink" in each]


def test_audit_branches_and_staged_snapshots_on_what_leaves_are_told() -> None:
    snapshots = [
        a_snapshot(1, age_ms=4),
        a_snapshot(2, age_ms=3),
        a_snapshot(3, age_ms=2),
        a_snapshot(4, age_ms=1, parent=2, summary={"wap.id": "w1"}),
        a_snapshot(5, age_ms=1, parent=1, summary={"wap.id": "w2"}),
        a_snapshot(6, age_ms=1, parent=2, summary={"wap.id": "w3"}),  # a tag has it
        a_snapshot(7, age_ms=1, parent=2, summary={"wap.id": "w4"}),
        a_snapshot(8, age_ms=1, parent=1, summary={"published-wap-id": "w4"}),
    ]
    refs = {"audit": a_branch(3), "held": a_tag(6)}
    table = parsed(a_table_document(*snapshots, main=2, refs=refs))
    told = planned(table, "1").warnings
    assert [each for each in told if "audit" in each] == [
        "branch audit comes from commits that leave: main could be fast-forwarded to it only together with them"
    ]
    assert [each for each in told if "staged" in each] == [
        "snapshot 4 is staged (wap.id w1) on a commit that leaves: it could not be published to main as it is any more"
    ]


def test_that_the_schema_stays_is_told_where_the_target_has_another_one() -> None:
    snapshots = [a_snapshot(1, age_ms=2, schema_id=0), a_snapshot(2, age_ms=1, schema_id=1)]
    document = a_table_document(*snapshots)
    (schema,) = document["schemas"]
    document |= {"schemas": [schema, {**schema, "schema-id": 1}], "current-schema-id": 1}
    (told,) = planned(parsed(document), "1").warnings
    assert told.startswith("the table's schema stays schema 1, and the target is of schema 0: ")
    assert after(parsed(document), planned(parsed(document), "1")).current_schema_id == 1


def test_nothing_is_told_of_schemas_where_the_target_states_none() -> None:
    """As snapshots of version 1 do. Spec, "Snapshots": `schema-id` is optional."""
    document = a_table_document(a_snapshot(1, age_ms=2), a_snapshot(2, age_ms=1))
    document["snapshots"][0].pop("schema-id", None)
    assert not [each for each in planned(parsed(document), "1").warnings if "schema" in each]


@pytest.mark.parametrize(
    ("to", "joined", "named"),
    [
        ("7", "5 snapshots", ["7", "6", "5", "4 and 3"]),
        ("8", "6 snapshots", ["8", "7", "6", "5", "4 and 1 more"]),
        ("9", "7 snapshots", ["9", "8", "7", "6", "5 and 2 more"]),
    ],
)
def test_snapshots_that_come_to_a_branch_are_named_the_newest_five_of_many(
    to: str, joined: str, named: list[str]
) -> None:
    """3 to 9 stand on 2, beside main."""
    snapshots = [a_snapshot(number, age_ms=20 - number) for number in range(1, 10)]
    table = parsed(a_table_document(*snapshots, main=2))
    (warning,) = [
        each for each in planned(table, to, not_an_ancestor=True).warnings if "come to branch main" in each
    ]
    head, _, ids = warning.partition(": ")
    assert head == f"{joined} come to branch main that are none of it now"
    assert re.sub(r" of [0-9TZ:.-]+", "", ids).split(", ") == named
    assert not [each for each in planned(table, "1").warnings if "come to" in each]


def test_that_the_tables_retention_cannot_be_read_is_told() -> None:
    table = four(properties={"history.expire.min-snapshots-to-keep": "few"})
    assert [each.partition(": ")[0] for each in planned(table, "3").warnings] == [
        "what the next expiry takes is not known"
    ]


def test_what_the_next_expiry_takes_is_told_and_what_the_tag_holds_is_not_among_it() -> None:
    ages = {1: 9, 2: 8, 3: 7, 4: 6}
    snapshots = [a_snapshot(number, age_ms=days * DAY_MS) for number, days in ages.items()]
    told = planned(parsed(a_table_document(*snapshots)), "1").warnings
    # 4 is the old head; 2 and 3 are older than five days and on no branch any more.
    assert [each.partition(": ")[2].split(" of ")[0] for each in told if "next expiry" in each] == ["3"]
    assert sum("takes 2 commits that leave" in each for each in told) == 1


def test_each_commit_that_leaves_is_listed_with_its_engine_and_time() -> None:
    spark = {"engine-name": "spark", "engine-version": "3.5.6"}
    snapshots = [
        a_snapshot(1, age_ms=DAY_MS),
        a_snapshot(2, age_ms=HOUR_MS, operation="overwrite", summary=spark),
    ]
    (commit,) = [
        each
        for each in planned(parsed(a_table_document(*snapshots)), "1").verdicts
        if each.subject == "commit"
    ]
    assert (commit.id, commit.timestamp_ms) == ("2", NOW_MS - HOUR_MS)
    assert commit.reason == "leaves branch main: overwrite by spark 3.5.6"
