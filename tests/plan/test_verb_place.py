"""Where verbs stand among others: what they declare is what ran before they did, literally."""

from __future__ import annotations

import pytest

from iceberg_cli.formats import (
    BUILT_IN,
    VERB_NAMES,
    is_only_alone,
    is_only_by_name,
    is_only_by_policy,
    maintenance_verbs,
    place_of,
    usual_every_ms,
    verbs_in_order,
    verbs_of,
)
from iceberg_cli.plan.verb_place import long_after_its_checkpoint, with_many_deletes, with_many_manifests


def having(name: str) -> set[tuple[str, str]]:
    return {(of, verb) for of in BUILT_IN for verb in verbs_of(of) if getattr(place_of(of, verb), name)}


def test_verbs_leave_less_to_do_for_those_behind_them() -> None:
    assert verbs_in_order() == (
        "upgrade-v3", "assign-row-ids", "rewrite-data-files", "merge-dvs", "rewrite-manifests", "expire-snapshots",
        "remove-orphan-files",
    )  # fmt: skip


def test_what_cannot_be_undone_runs_by_name_alone_and_after_what_it_needs() -> None:
    assert {verb for verb in VERB_NAMES if is_only_by_name(verb)} == {
        "upgrade-v3", "assign-row-ids", "remove-orphan-files",
    }  # fmt: skip
    assert having("planned_by_name") == {("iceberg", "remove-orphan-files")}
    assert {verb for verb in VERB_NAMES if is_only_by_policy(verb)} == {"rewrite-data-files"}
    assert having("after") == {("iceberg", "assign-row-ids"), ("delta", "assign-row-ids")}
    assert place_of("delta", "assign-row-ids").after == "upgrade-v3"


def test_what_lists_all_files_rests_a_week_and_its_looks_count() -> None:
    assert {verb: usual_every_ms(verb) for verb in VERB_NAMES if usual_every_ms(verb) is not None} == {
        "remove-orphan-files": 604_800_000,
    }  # fmt: skip
    assert having("looks_count") == {("iceberg", "remove-orphan-files")}


def test_what_acts_on_what_an_operator_names_is_no_part_of_maintenance() -> None:
    named = {"restore", "tag", "undo"}
    assert {verb for verb in VERB_NAMES if is_only_alone(verb)} == named
    assert {*maintenance_verbs()} == {*VERB_NAMES} - named == {*verbs_in_order()}


def test_ages_decide_what_goes_in_expiries_and_in_checkpoints_of_delta() -> None:
    assert having("removes") == {
        ("iceberg", "expire-snapshots"), ("iceberg", "remove-orphan-files"), ("delta", "expire-snapshots"),
    }  # fmt: skip
    assert having("by_age") == having("removes") | {("delta", "rewrite-manifests")}


@pytest.mark.parametrize(("ratio", "is_overdue"), [(None, False), (0.3, False), (0.31, True)])
def test_deletes_are_overdue_above_three_of_ten_rows(ratio: float | None, is_overdue: bool) -> None:
    assert (with_many_deletes({"delete_ratio": ratio}) is not None) == is_overdue
    assert place_of("iceberg", "merge-dvs").overdue is place_of("delta", "merge-dvs").overdue


@pytest.mark.parametrize(
    ("ratio", "manifests", "is_overdue"),
    [(None, 500, False), (10, 500, False), (11, 99, False), (11, 100, True)],
)
def test_manifests_are_overdue_above_ten_times_as_many_as_would_do(
    ratio: float | None, manifests: int, is_overdue: bool
) -> None:
    row = {"manifest_target_ratio": ratio, "manifests": manifests}
    assert (with_many_manifests(row) is not None) == is_overdue


@pytest.mark.parametrize(("versions", "is_overdue"), [(None, False), (100, False), (101, True)])
def test_a_checkpoint_is_overdue_after_a_hundred_versions(versions: int | None, is_overdue: bool) -> None:
    assert (long_after_its_checkpoint({"log_versions_since_checkpoint": versions}) is not None) == is_overdue
