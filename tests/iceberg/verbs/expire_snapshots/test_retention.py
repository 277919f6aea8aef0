"""Which snapshots and refs stay: the corner cases in which retention rules of other tools differ.

Expected values are the specification's "Snapshot Retention Policy" and what Iceberg Java does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iceberg_cli.errors import InvalidMetadata, UsageError
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.iceberg.verbs.expire_snapshots.retention import Judgement, judge
from iceberg_cli.iceberg.verbs.expire_snapshots.table_retention import retention_of
from iceberg_cli.plan.text import age
from tests.builders import DAY_MS, HOUR_MS, NOW_MS, a_branch, a_snapshot, a_table, a_tag

YEAR_MS = 365 * DAY_MS
PROPERTIES = [
    f"history.expire.{name}" for name in ("max-snapshot-age-ms", "min-snapshots-to-keep", "max-ref-age-ms")
]


def judged(table: TableMetadata, **policy: Any) -> Judgement:
    retention = retention_of(table, ExpireSnapshots(**policy), as_of_ms=NOW_MS)
    return judge(table, retention, as_of_ms=NOW_MS)


def kept(table: TableMetadata, **policy: Any) -> set[int]:
    return set(judged(table, **policy).kept)


def older_than(age_ms: int) -> int:
    return NOW_MS - age_ms


def reason(judgement: Judgement, name: str) -> str:
    return next(verdict.reason for verdict in judgement.verdicts if verdict.id == name)


# -- refs ------------------------------------------------------------------------------------------------------


def test_a_ref_is_as_old_as_the_snapshot_it_points_to_however_new_the_ref_is() -> None:
    table = a_table(
        a_snapshot(1, age_ms=9 * DAY_MS), a_snapshot(2), yesterdays=a_tag(1, max_ref_age_ms=7 * DAY_MS)
    )
    found = judged(table)
    assert found.dropped_refs == ("yesterdays",)
    assert found.kept == {2}
    assert "9 d old, older than its maximum ref age of 7 d" in reason(found, "yesterdays")


def test_a_ref_whose_snapshot_has_exactly_the_maximum_age_stays() -> None:
    table = a_table(
        a_snapshot(1, age_ms=7 * DAY_MS), a_snapshot(2), weekly=a_tag(1, max_ref_age_ms=7 * DAY_MS)
    )
    assert kept(table) == {1, 2}


def test_main_is_never_dropped_however_old_and_whatever_its_maximum_ref_age() -> None:
    table = a_table(
        a_snapshot(1, age_ms=YEAR_MS),
        main=a_branch(1, max_ref_age_ms=1),
        properties={"history.expire.max-ref-age-ms": "1"},
    )
    assert judged(table).dropped_refs == ()
    assert kept(table) == {1}


def test_the_maximum_ref_age_of_the_table_applies_to_refs_that_have_none() -> None:
    table = a_table(
        a_snapshot(1, age_ms=3 * DAY_MS),
        a_snapshot(2),
        properties={"history.expire.max-ref-age-ms": str(2 * DAY_MS)},
        a=a_tag(1),
        b=a_tag(1, max_ref_age_ms=9 * DAY_MS),
    )
    assert judged(table).dropped_refs == ("a",)


def test_a_ref_without_any_maximum_age_stays_for_ever() -> None:
    table = a_table(a_snapshot(1, age_ms=50 * YEAR_MS), a_snapshot(2), legal_hold=a_tag(1))
    assert kept(table) == {1, 2}


def test_a_maximum_ref_age_of_the_largest_long_is_told_as_none() -> None:
    table = a_table(
        a_snapshot(1, age_ms=50 * YEAR_MS),
        a_snapshot(2),
        forever=a_tag(1, max_ref_age_ms=9_223_372_036_854_775_807),
        long=a_tag(1, max_ref_age_ms=9_223_372_036_854_775_806),
        default=a_tag(1),
    )
    found = judged(table)
    assert reason(found, "forever") == reason(found, "default") == "kept: no maximum ref age"
    assert "not older than its maximum ref age of" in reason(found, "long")
    gists = {verdict.id: verdict.gist for verdict in found.verdicts}
    assert gists["forever"] == gists["default"] == ""
    assert gists["long"] == "not older than its maximum ref age of for ever"


def test_a_young_snapshot_that_a_tag_holds_is_kept_for_the_tag() -> None:
    table = a_table(a_snapshot(1, age_ms=DAY_MS), a_snapshot(2, parent=None), eom=a_tag(1))
    found = judged(table)
    assert reason(found, "1") == "kept: tag eom"
    assert reason(found, "2") == "kept: head of branch main"


def test_a_ref_to_a_snapshot_that_is_not_in_the_table_is_dropped_and_says_so() -> None:
    table = a_table(a_snapshot(1), broken=a_tag(7))
    found = judged(table)
    assert found.dropped_refs == ("broken",)
    assert reason(found, "broken") == "dropped: points to snapshot 7, which is not in the table"


def test_a_tag_keeps_its_snapshot_and_not_the_ancestors() -> None:
    table = a_table(
        a_snapshot(1, age_ms=9 * DAY_MS),
        a_snapshot(2, age_ms=8 * DAY_MS),
        a_snapshot(3),
        main=3,
        monthly=a_tag(2),
    )
    assert kept(table) == {2, 3}


def test_ancestors_of_a_tag_alone_are_on_no_branch_and_stay_while_they_are_young() -> None:
    table = a_table(
        a_snapshot(1, age_ms=3 * DAY_MS),
        a_snapshot(2, age_ms=2 * DAY_MS),
        a_snapshot(3, parent=None),
        staged=a_tag(2),
    )
    assert kept(table) == {1, 2, 3}
    assert kept(table, older_than=older_than(DAY_MS)) == {2, 3}


def test_the_snapshot_of_a_dropped_ref_stays_where_another_kept_branch_needs_it() -> None:
    table = a_table(
        a_snapshot(1, age_ms=9 * DAY_MS),
        a_snapshot(2, age_ms=8 * DAY_MS),
        a_snapshot(3, parent=None),
        short_lived=a_tag(1, max_ref_age_ms=1),
        keeps_all=a_branch(2, max_snapshot_age_ms=YEAR_MS),
    )
    found = judged(table)
    assert found.dropped_refs == ("short_lived",)
    assert found.kept == {1, 2, 3}


def test_snapshots_of_a_dropped_branch_are_judged_as_on_no_branch() -> None:
    table = a_table(
        a_snapshot(1, age_ms=9 * DAY_MS),
        a_snapshot(2, age_ms=2 * DAY_MS),
        a_snapshot(3, parent=None),
        dead=a_branch(2, min_snapshots_to_keep=5, max_ref_age_ms=DAY_MS),
    )
    assert kept(table) == {2, 3}
    assert "on no branch or tag" in reason(judged(table), "2")


# -- the walk along a branch -----------------------------------------------------------------------------------


def test_by_default_five_days_and_one_snapshot_are_kept() -> None:
    table = a_table(
        a_snapshot(1, age_ms=5 * DAY_MS + 1), a_snapshot(2, age_ms=5 * DAY_MS), a_snapshot(3, age_ms=DAY_MS)
    )
    assert kept(table) == {2, 3}
    assert kept(a_table(a_snapshot(1, age_ms=YEAR_MS), a_snapshot(2, age_ms=YEAR_MS - 1))) == {2}


def test_a_snapshot_with_exactly_the_time_of_the_cut_off_stays() -> None:
    table = a_table(a_snapshot(1, age_ms=HOUR_MS + 1), a_snapshot(2, age_ms=HOUR_MS), a_snapshot(3))
    assert kept(table, older_than=older_than(HOUR_MS)) == {2, 3}


def test_a_snapshot_of_the_time_of_the_cut_off_that_goes_is_not_told_to_be_older_than_it() -> None:
    snapshots = (a_snapshot(1, age_ms=HOUR_MS + 1), a_snapshot(2, age_ms=HOUR_MS), a_snapshot(3))
    strict = a_branch(3, min_snapshots_to_keep=1, max_snapshot_age_ms=1)
    found = judged(a_table(*snapshots, main=strict), older_than=older_than(HOUR_MS))
    assert reason(found, "1") == "expires: 1 h old, older than the cut-off (--older-than)"
    assert reason(found, "2") == "expires: 1 h old, past the age that its branch allows"


def test_the_walk_ends_at_the_first_snapshot_that_fails_and_does_not_filter() -> None:
    # Clocks differ: the oldest snapshot claims to be young.
    table = a_table(a_snapshot(1), a_snapshot(2, age_ms=9 * DAY_MS), a_snapshot(3))
    assert kept(table) == {3}


def test_a_branch_keeps_its_newest_n_however_old_they_are() -> None:
    table = a_table(*(a_snapshot(n, age_ms=(20 - n) * DAY_MS) for n in range(1, 6)))
    assert kept(table, retain_last=3) == {3, 4, 5}


def test_the_minimum_counts_for_each_branch_on_its_own() -> None:
    table = a_table(
        a_snapshot(1, age_ms=9 * DAY_MS),
        a_snapshot(2, age_ms=9 * DAY_MS),
        a_snapshot(3, age_ms=9 * DAY_MS, parent=1),
        a_snapshot(4, age_ms=9 * DAY_MS, parent=3),
        main=2,
        audit=a_branch(4),
    )
    assert kept(table, retain_last=2) == {1, 2, 3, 4}
    assert kept(table, retain_last=1) == {2, 4}


def test_a_branch_s_own_retention_overrides_options_in_both_directions() -> None:
    snapshots = [a_snapshot(n, age_ms=(10 - n) * DAY_MS) for n in range(1, 6)]
    strict = a_table(*snapshots, main=a_branch(5, min_snapshots_to_keep=1, max_snapshot_age_ms=1))
    assert kept(strict, older_than=older_than(YEAR_MS), retain_last=4) == {5}
    mild = a_table(*snapshots, main=a_branch(5, min_snapshots_to_keep=2, max_snapshot_age_ms=7 * DAY_MS))
    assert kept(mild, older_than=older_than(1), retain_last=1) == {3, 4, 5}


def test_options_override_table_properties_and_these_the_defaults() -> None:
    properties = {
        "history.expire.max-snapshot-age-ms": str(2 * DAY_MS),
        "history.expire.min-snapshots-to-keep": "2",
    }
    table = a_table(*(a_snapshot(n, age_ms=(10 - n) * DAY_MS) for n in range(1, 6)), properties=properties)
    assert kept(table) == {4, 5}
    assert kept(table, retain_last=3) == {3, 4, 5}
    assert kept(table, older_than=older_than(8 * DAY_MS)) == {2, 3, 4, 5}
    retention = retention_of(table, ExpireSnapshots(retain_last=3), as_of_ms=NOW_MS)
    assert retention.cutoff_ms.source == "table property history.expire.max-snapshot-age-ms"
    assert retention.min_snapshots_to_keep.source == "--retain-last"
    assert retention.max_ref_age_ms.source == "default"


def test_a_branch_whose_ancestry_has_a_gap_ends_there() -> None:
    table = a_table(
        a_snapshot(1, age_ms=9 * DAY_MS, parent=None), a_snapshot(3, parent=2), a_snapshot(4), main=4
    )
    assert kept(table, retain_last=9) == {3, 4}


def test_parents_that_form_a_circle_do_not_hang_the_walk() -> None:
    table = a_table(a_snapshot(1, parent=2), a_snapshot(2, parent=1))
    head = table.current_snapshot()
    assert head is not None
    assert [snapshot.snapshot_id for snapshot in table.ancestors(head)] == [2, 1]


# -- on no branch ----------------------------------------------------------------------------------------------


def test_rolled_back_and_staged_snapshots_stay_while_younger_than_the_cut_off() -> None:
    table = a_table(
        a_snapshot(1, age_ms=3 * DAY_MS),
        a_snapshot(2, age_ms=2 * DAY_MS),
        a_snapshot(3, age_ms=DAY_MS, parent=1),
        main=3,
    )
    assert kept(table) == {1, 2, 3}
    assert "on no branch or tag, but only 2 d old" in reason(judged(table), "2")


def test_the_minimum_of_branches_does_not_hold_what_is_on_no_branch() -> None:
    table = a_table(
        a_snapshot(1, age_ms=9 * DAY_MS),
        a_snapshot(2, age_ms=8 * DAY_MS),
        a_snapshot(3, age_ms=7 * DAY_MS, parent=1),
        main=3,
    )
    assert kept(table, retain_last=9) == {1, 3}


def test_the_age_that_a_branch_allows_does_not_hold_what_is_on_no_branch() -> None:
    table = a_table(
        a_snapshot(1, age_ms=9 * DAY_MS),
        a_snapshot(2, age_ms=8 * DAY_MS),
        a_snapshot(3, parent=1),
        main=a_branch(3, max_snapshot_age_ms=YEAR_MS),
    )
    assert kept(table) == {1, 3}


def test_an_old_ancestor_of_main_is_not_saved_by_being_young_by_the_cut_off_of_others() -> None:
    # Main allows one day; the table five. What main gave up is not "on no branch".
    table = a_table(
        a_snapshot(1, age_ms=3 * DAY_MS), a_snapshot(2), main=a_branch(2, max_snapshot_age_ms=DAY_MS)
    )
    found = judged(table)
    assert found.kept == {2}
    assert reason(found, "1") == "expires: 3 d old, past the age that its branch allows"


def test_a_table_without_main_keeps_only_young_snapshots() -> None:
    table = a_table(
        a_snapshot(1, age_ms=9 * DAY_MS),
        a_snapshot(2),
        fields={"refs": {}, "current-snapshot-id": -1, "snapshot-log": []},
    )
    assert kept(table) == {2}


def test_a_snapshot_of_the_future_is_young() -> None:
    table = a_table(a_snapshot(1, age_ms=-DAY_MS), a_snapshot(2))
    assert kept(table, older_than=NOW_MS) == {1, 2}


@pytest.mark.parametrize(
    ("age_ms", "words"), [(-DAY_MS, "dated 1 d ahead"), (0, "only 0 ms old"), (DAY_MS, "only 1 d old")]
)
def test_a_young_snapshot_on_no_branch_is_kept_for_its_age(age_ms: int, words: str) -> None:
    found = judged(a_table(a_snapshot(1, age_ms=age_ms), a_snapshot(2, parent=None)))
    assert reason(found, "1") == f"kept: on no branch or tag, but {words}"


def test_a_young_ancestor_is_kept_with_its_age() -> None:
    found = judged(a_table(a_snapshot(1, age_ms=DAY_MS), a_snapshot(2)))
    assert reason(found, "1") == "kept: on branch main, 1 d old"


def test_nothing_goes_that_the_plan_which_is_carried_out_kept() -> None:
    table = a_table(*(a_snapshot(n, age_ms=(20 - n) * DAY_MS) for n in range(1, 5)))
    retention = retention_of(table, ExpireSnapshots(older_than=NOW_MS), as_of_ms=NOW_MS)
    found = judge(table, replace(retention, may_expire=frozenset({1, 4})), as_of_ms=NOW_MS)
    assert (found.expired, found.kept) == ((1,), {2, 3, 4})
    assert reason(found, "2") == reason(found, "3") == "kept: the plan that is carried out keeps it"


# -- snapshots by id -------------------------------------------------------------------------------------------


def test_ids_alone_expire_just_those_whatever_the_age_of_others() -> None:
    table = a_table(
        *(a_snapshot(n, age_ms=(90 - n) * DAY_MS) for n in range(1, 5)), t=a_tag(1, max_ref_age_ms=1)
    )
    found = judged(table, snapshot_ids=(2,))
    assert found.expired == (2,)
    assert found.dropped_refs == ()
    assert reason(found, "2") == "expires: named by --snapshot-id"


def test_ids_beside_an_age_or_a_count_are_added_to_what_these_expire() -> None:
    table = a_table(*(a_snapshot(n, age_ms=(20 - n) * DAY_MS) for n in range(1, 5)))
    assert kept(table, snapshot_ids=(3,), older_than=older_than(18 * DAY_MS)) == {2, 4}
    assert kept(table, snapshot_ids=(3,), retain_last=3) == {2, 4}


@pytest.mark.parametrize(("snapshot_id", "ref"), [(3, "branch main"), (1, "tag eod"), (2, "branch audit")])
def test_a_named_snapshot_that_a_ref_points_to_blocks(snapshot_id: int, ref: str) -> None:
    table = a_table(*(a_snapshot(n) for n in range(1, 4)), eod=a_tag(1), audit=a_branch(2))
    found = judged(table, snapshot_ids=(snapshot_id,))
    assert found.problems == (f"snapshot {snapshot_id} was named, but {ref} points to it",)
    assert found.expired == ()


def test_a_named_snapshot_whose_only_ref_is_too_old_expires_with_the_ref() -> None:
    table = a_table(a_snapshot(1, age_ms=2 * DAY_MS), a_snapshot(2), brief=a_tag(1, max_ref_age_ms=DAY_MS))
    found = judged(table, snapshot_ids=(1,), older_than=older_than(5 * DAY_MS))
    assert (found.expired, found.dropped_refs, found.problems) == ((1,), ("brief",), ())


def test_an_unknown_id_is_a_warning_because_it_may_have_expired_already() -> None:
    found = judged(a_table(a_snapshot(1)), snapshot_ids=(404,))
    assert found.warnings == ("snapshot 404 is not in the table, so there is nothing to expire for it",)
    assert found.expired == ()


# -- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retain_last", [0, -1])
def test_at_least_one_snapshot_is_retained(retain_last: int) -> None:
    with pytest.raises(UsageError, match=f"at least 1, not {retain_last}"):
        judged(a_table(a_snapshot(1)), retain_last=retain_last)


def test_a_cut_off_in_the_future_is_refused() -> None:
    with pytest.raises(UsageError, match="future"):
        judged(a_table(a_snapshot(1)), older_than=NOW_MS + 1)


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_retention_property_that_is_no_number_stops_the_run(name: str) -> None:
    with pytest.raises(InvalidMetadata, match=name):
        judged(a_table(a_snapshot(1), properties={name: "5d"}))


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_negative_retention_property_stops_the_run_and_does_not_mean_older_than_the_future(
    name: str,
) -> None:
    table = a_table(a_snapshot(1, age_ms=1), a_snapshot(2), release=a_tag(1), properties={name: "-1"})
    with pytest.raises(UsageError, match=f"{name}=-1 is negative") as caught:
        judged(table)
    assert caught.value.exit_code == 2


# -- verdicts --------------------------------------------------------------------------------------------------


def test_verdicts_name_refs_first_with_main_at_the_top_then_snapshots_newest_first() -> None:
    table = a_table(
        a_snapshot(1, age_ms=2 * DAY_MS), a_snapshot(2, age_ms=DAY_MS), a_snapshot(3), alpha=a_tag(1)
    )
    assert [verdict.id for verdict in judged(table).verdicts] == ["main", "alpha", "3", "2", "1"]


@pytest.mark.parametrize(
    ("duration_ms", "words"),
    [
        (0, "0 ms"),
        (35_000, "35 s"),
        (90_000, "1 min 30 s"),
        (9 * DAY_MS + 4 * HOUR_MS + 59_000, "9 d 4 h"),
        (DAY_MS + 1, "1 d"),
        (YEAR_MS, "1 y"),
        (-HOUR_MS, "1 h"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(duration_ms: int, words: str) -> None:
    assert age(duration_ms) == words
