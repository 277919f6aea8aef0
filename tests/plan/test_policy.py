"""The policies of all verbs: what an option's text means, what is allowed, and their JSON form and its schema."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest

from iceberg_cli.errors import UsageError
from iceberg_cli.formats import VERB_NAMES, policies_of
from iceberg_cli.plan.plan import Option
from iceberg_cli.plan.policy import Policy
from tests.plans import a_plan

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
POLICIES = {f"{verb}-{name}": policy for verb in VERB_NAMES for name, policy in policies_of(verb).items()}

# Per policy: options as a command line gives them, and the JSON form that plans of the first release have.
GIVEN: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "expire-snapshots-iceberg": (
        {
            "--older-than": "7d",
            "--retain-last": 3,
            "--snapshot-id": [7, 5, 7],
            "--clean-metadata": True,
            "--cleanup": "metadata",
            "--grace": "1h",
        },
        {
            "older_than_ms": NOW_MS - 7 * DAY_MS,
            "retain_last": 3,
            "snapshot_ids": ["5", "7"],
            "clean_metadata": True,
            "cleanup": "metadata",
            "grace_ms": 3_600_000,
        },
    ),
    "expire-snapshots-delta": (
        {
            "--retention": "P8D",
            "--mode": "full",
            "--log-retention": "30d",
            "--inventory": "files.parquet",
            "--unsafe-allow-short-retention": True,
        },
        {
            "retention_ms": 8 * DAY_MS,
            "mode": "full",
            "log_retention_ms": 30 * DAY_MS,
            "inventory": "files.parquet",
            "unsafe_short_retention": True,
        },
    ),
    "rewrite-manifests-iceberg": (
        {
            "--target-size": "8MiB",
            "--spec-id": [1, 0],
            "--content": "data",
            "--sort-by": ["b", "a"],
            "--min-manifests": 4,
            "--all-manifests": True,
        },
        {
            "target_size_bytes": 8 << 20,
            "spec_ids": [0, 1],
            "content": "data",
            "sort_by": ["b", "a"],
            "min_manifests": 4,
            "all_manifests": True,
        },
    ),
    "rewrite-manifests-delta": (
        {"--checkpoint": "v2", "--part-size": 9, "--compact-log": "3..12"},
        {"checkpoint": "v2", "part_size": 9, "compact_log": [3, 12]},
    ),
    "merge-dvs-iceberg": (
        {
            "--target-size": "512MB",
            "--min-files": 2,
            "--dead-ratio": "0.25",
            "--where": "day = '2026-11-01'",
            "--keep-dangling": True,
        },
        {
            "target_size_bytes": 512_000_000,
            "min_files": 2,
            "dead_ratio": 0.25,
            "where": "day = '2026-11-01'",
            "keep_dangling": True,
        },
    ),
    "merge-dvs-delta": (
        {"--target-size": "2MiB", "--min-files": 1, "--dead-ratio": "1"},
        {"target_size": 2 << 20, "min_files": 1, "dead_ratio": 1.0},
    ),
    "upgrade-v3-iceberg": (
        {"--with": "assign-row-ids, repair-manifests", "--unsafe-keep-tags": True},
        {"with": ["repair-manifests", "assign-row-ids"], "tags": "keep"},
    ),
    "upgrade-v3-delta": (
        {"--feature": ["v2Checkpoint", "rowTracking", "v2Checkpoint"]},
        {"features": ["v2Checkpoint", "rowTracking"]},
    ),
    "restore-iceberg": (
        {"--to": "7", "--branch": "audit", "--keep-as": "held", "--not-an-ancestor": True},
        {"to": "7", "branch": "audit", "keep_as": "held", "not_an_ancestor": True},
    ),
    "tag-iceberg": (
        {"NAME": "audit-2026", "--snapshot": 5, "--max-age": "365d", "--replace": True},
        {
            "name": "audit-2026", "snapshot_id": "5", "ref": None, "max_age_ms": 365 * DAY_MS, "replace": True,
            "drop": False,
        },
    ),
    "assign-row-ids-iceberg": (
        {"--ref": ["main", "audit"], "--share-ids": True},
        {"refs": ["main", "audit"], "share_ids": True},
    ),
    "assign-row-ids-delta": ({"--batch-size": 5, "--count-rows": True}, {"batch_size": 5, "count_rows": True}),
    "remove-orphan-files-iceberg": (
        {
            "--older-than": "7d", "--location": ["s3://lake/t/a,b"], "--inventory": "s3://lake/manifest.json",
            "--metadata-files": True, "--unsafe-allow-young": True,
        },
        {
            "older_than_ms": NOW_MS - 7 * DAY_MS, "location": ["s3://lake/t/a,b"],
            "inventory": "s3://lake/manifest.json", "metadata_files": True, "unsafe_young": True,
        },
    ),
    "undo-iceberg": ({"OP_ID": "01a2-b3"}, {"operation": "01a2-b3"}),
    "undo-delta": ({"OP_ID": "01a2-b3"}, {"operation": "01a2-b3"}),
    "rewrite-data-files-delta": (
        {
            "--strategy": "bin-pack", "--where": "day = '2026-11-01'", "--older-than": "7d",
            "--target-size": "64MiB", "--min-size": "48MB", "--max-size": "100MiB",
            "--min-input-files": 3, "--delete-ratio": "0.25", "--rewrite-all": True, "--max-group-size": "1GiB",
            "--max-files": 500, "--max-rewrite-bytes": "2GiB", "--group-order": "bytes-desc", "--commit-every": "15m",
            "--max-commits": 4, "--processes": 2, "--memory": "512MiB", "--no-verify-rows": True,
            "--unsafe-accept-space": True,
        },
        {
            "strategy": "bin-pack", "where": "day = '2026-11-01'", "older_than_ms": NOW_MS - 7 * DAY_MS,
            "target_size_bytes": 64 << 20, "min_size_bytes": 48_000_000,
            "max_size_bytes": 100 << 20, "min_input_files": 3, "delete_ratio": 0.25, "rewrite_all": True,
            "max_group_size_bytes": 1 << 30, "max_files": 500, "max_rewrite_bytes": 2 << 30,
            "group_order": "bytes-desc", "commit_every": "15m", "max_commits": 4, "single_commit": False,
            "processes": 2, "memory_bytes": 512 << 20, "no_verify_rows": True, "unsafe_accept_space": True,
        },
    ),
    "rewrite-data-files-iceberg": (
        {
            "--strategy": "bin-pack", "--branch": "audit", "--where": "day = '2026-11-01'", "--target-size": "64MiB",
            "--min-size": "48MB", "--max-size": "100MiB", "--min-input-files": 3, "--delete-files": 4,
            "--delete-ratio": "0.25", "--rewrite-all": True, "--max-group-size": "1GiB", "--max-files": 500,
            "--max-rewrite-bytes": "2GiB", "--output-format": "parquet", "--group-order": "bytes-desc",
            "--commit-every": "15m", "--max-commits": 4, "--processes": 2, "--memory": "512MiB",
            "--no-verify-rows": True, "--unsafe-strand-branches": True, "--unsafe-accept-space": True,
            "--unsafe-ignore-property": ["write.a", "write.b"],
        },
        {
            "strategy": "bin-pack", "branch": "audit", "where": "day = '2026-11-01'", "target_size_bytes": 64 << 20,
            "min_size_bytes": 48_000_000, "max_size_bytes": 100 << 20, "min_input_files": 3, "delete_files": 4,
            "delete_ratio": 0.25, "rewrite_all": True, "max_group_size_bytes": 1 << 30, "max_files": 500,
            "max_rewrite_bytes": 2 << 30, "output_format": "parquet", "group_order": "bytes-desc",
            "commit_every": "15m", "max_commits": 4, "single_commit": False, "processes": 2,
            "memory_bytes": 512 << 20, "no_verify_rows": True, "unsafe_strand_branches": True,
            "unsafe_accept_space": True, "unsafe_ignore_properties": ["write.a", "write.b"],
        },
    ),
}  # fmt: skip
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "expire-snapshots-iceberg": {
        "older_than_ms": None, "retain_last": None, "snapshot_ids": [], "clean_metadata": False, "cleanup": "all",
        "grace_ms": 0,
    },
    "expire-snapshots-delta": {
        "retention_ms": None, "mode": "full", "log_retention_ms": None, "inventory": None,
        "unsafe_short_retention": False,
    },
    "rewrite-manifests-iceberg": {
        "target_size_bytes": None, "spec_ids": [], "content": "all", "sort_by": [], "min_manifests": None,
    },
    "rewrite-manifests-delta": {"checkpoint": None, "part_size": None, "compact_log": None},
    "merge-dvs-iceberg": {
        "target_size_bytes": None, "min_files": None, "dead_ratio": None, "where": None, "keep_dangling": False,
    },
    "merge-dvs-delta": {"target_size": None, "min_files": None, "dead_ratio": None},
    "upgrade-v3-iceberg": {"with": [], "tags": "refuse"},
    "upgrade-v3-delta": {"features": []},
    "restore-iceberg": {"to": None, "branch": "main", "keep_as": None, "not_an_ancestor": False},
    "tag-iceberg": {
        "name": None, "snapshot_id": None, "ref": None, "max_age_ms": None, "replace": False, "drop": False,
    },
    "assign-row-ids-iceberg": {"refs": [], "share_ids": False},
    "assign-row-ids-delta": {"batch_size": None, "count_rows": False},
    "remove-orphan-files-iceberg": {
        "older_than_ms": None, "location": [], "inventory": None, "metadata_files": False, "unsafe_young": False,
    },
    "undo-iceberg": {"operation": None},
    "undo-delta": {"operation": None},
    "rewrite-data-files-delta": {
        "strategy": None, "where": None, "older_than_ms": None, "target_size_bytes": None, "min_size_bytes": None,
        "max_size_bytes": None,
        "min_input_files": None, "delete_ratio": None, "rewrite_all": False, "max_group_size_bytes": None,
        "max_files": None, "max_rewrite_bytes": None, "group_order": None, "commit_every": None, "max_commits": None,
        "single_commit": False, "processes": None, "memory_bytes": None, "no_verify_rows": False,
        "unsafe_accept_space": False,
    },
    "rewrite-data-files-iceberg": {
        "strategy": None, "branch": "main", "where": None, "target_size_bytes": None, "min_size_bytes": None,
        "max_size_bytes": None, "min_input_files": None, "delete_files": None, "delete_ratio": None,
        "rewrite_all": False, "max_group_size_bytes": None, "max_files": None, "max_rewrite_bytes": None,
        "output_format": None, "group_order": None, "commit_every": None, "max_commits": None, "single_commit": False,
        "processes": None, "memory_bytes": None, "no_verify_rows": False, "unsafe_strand_branches": False,
        "unsafe_accept_space": False, "unsafe_ignore_properties": [],
    },
}  # fmt: skip

# Per policy: a field in JSON form that no command line gives, by type or by range.
WRONG = [
    ("expire-snapshots-iceberg", "retain_last", 0),
    ("expire-snapshots-iceberg", "retain_last", True),
    ("expire-snapshots-iceberg", "older_than_ms", "7d"),
    ("expire-snapshots-iceberg", "grace_ms", -1),
    ("expire-snapshots-iceberg", "snapshot_ids", [5]),
    ("expire-snapshots-iceberg", "cleanup", "some"),
    ("expire-snapshots-delta", "retention_ms", "7d"),
    ("expire-snapshots-delta", "retention_ms", -1),
    ("expire-snapshots-delta", "mode", "fast"),
    ("expire-snapshots-delta", "mode", None),
    ("expire-snapshots-delta", "inventory", 7),
    ("expire-snapshots-delta", "unsafe_short_retention", 1),
    ("expire-snapshots-delta", "alarm", 0),
    ("expire-snapshots-delta", "alarm", "on"),
    ("expire-snapshots-iceberg", "alarm", True),
    ("expire-snapshots-iceberg", "unsafe_accept_alarm", 1),
    ("rewrite-manifests-iceberg", "target_size_bytes", 0),
    ("rewrite-manifests-iceberg", "spec_ids", ["0"]),
    ("rewrite-manifests-delta", "part_size", 0),
    ("rewrite-manifests-delta", "checkpoint", "v3"),
    ("rewrite-manifests-delta", "compact_log", [12, 3]),
    ("rewrite-manifests-delta", "compact_log", [3]),
    ("merge-dvs-iceberg", "dead_ratio", 0),
    ("merge-dvs-iceberg", "dead_ratio", 1.5),
    ("merge-dvs-delta", "dead_ratio", -0.1),
    ("merge-dvs-delta", "dead_ratio", 1.5),
    ("merge-dvs-delta", "min_files", 0),
    ("merge-dvs-delta", "target_size", "2MiB"),
    ("upgrade-v3-iceberg", "with", ["rewrite"]),
    ("upgrade-v3-iceberg", "tags", "forget"),
    ("upgrade-v3-delta", "features", "v2Checkpoint"),
    ("assign-row-ids-delta", "batch_size", 0),
    ("rewrite-data-files-iceberg", "target_size_bytes", 0),
    ("rewrite-data-files-iceberg", "delete_ratio", 0),
    ("rewrite-data-files-iceberg", "delete_ratio", 1.5),
    ("rewrite-data-files-iceberg", "group_order", "bytes"),
    ("rewrite-data-files-iceberg", "strategy", "sideways"),
    ("rewrite-data-files-iceberg", "max_commits", 0),
    ("assign-row-ids-delta", "batch_size", 2.5),
    ("restore-iceberg", "to", 7),
    ("tag-iceberg", "snapshot_id", 5),
    ("tag-iceberg", "max_age_ms", "7d"),
]


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_read_from_options_and_has_the_json_form_of_the_first_release(name: str) -> None:
    given, document = GIVEN[name]
    policy = POLICIES[name].from_options(given, now_ms=NOW_MS)
    assert policy.to_json() == document
    assert POLICIES[name].from_json(json.loads(json.dumps(document))) == policy
    assert POLICIES[name]().to_json() == DEFAULTS[name]
    assert POLICIES[name].from_options({}, now_ms=NOW_MS) == POLICIES[name]()


@pytest.mark.parametrize("name", ["expire-snapshots-delta", "expire-snapshots-iceberg"])
def test_what_verbs_that_delete_share_is_in_the_json_form_where_it_is_given(name: str) -> None:
    policy = POLICIES[name]
    schema = jsonschema.Draft202012Validator(policy.schema())
    for given, more in (
        ({"--alarm": "8"}, {"alarm": 8.0}),
        ({"--alarm": "off", "--unsafe-accept-alarm": True}, {"alarm": "off", "unsafe_accept_alarm": True}),
        ({"--alarm": "6"}, {}),
    ):
        made = policy.from_options(given, now_ms=NOW_MS)
        assert made.to_json() == {**DEFAULTS[name], **more}
        assert policy.from_json(json.loads(json.dumps(made.to_json()))) == made
        schema.validate(made.to_json())


@pytest.mark.parametrize("name", POLICIES)
def test_the_schema_of_a_policy_holds_for_its_json_form_and_for_no_other_field(name: str) -> None:
    schema = POLICIES[name].schema()
    valid = jsonschema.Draft202012Validator(schema)
    for document in (GIVEN[name][1], DEFAULTS[name]):
        valid.validate(document)
        assert not valid.is_valid({**document, "more": 1})
    for field in DEFAULTS[name]:
        assert not valid.is_valid({key: value for key, value in DEFAULTS[name].items() if key != field})


@pytest.mark.parametrize(("name", "field", "value"), WRONG)
def test_a_value_that_no_option_gives_is_refused_in_the_json_form_and_by_its_schema(
    name: str, field: str, value: object
) -> None:
    document = {**DEFAULTS[name], field: value}
    with pytest.raises(UsageError, match="Cannot plan again from this policy"):
        POLICIES[name].from_json(document)
    # A schema cannot say that the first of two numbers is the lesser one.
    by_schema = jsonschema.Draft202012Validator(POLICIES[name].schema()).is_valid(document)
    assert by_schema is (value == [12, 3])


def test_a_plan_of_the_first_release_that_rewrites_from_any_dead_byte_on_is_planned_again_alike() -> None:
    policy = policies_of("merge-dvs")["delta"].from_json({**DEFAULTS["merge-dvs-delta"], "dead_ratio": 0.0})
    (ratio,) = [value for name, value in policy.to_json().items() if name == "dead_ratio"]
    assert 0 < ratio * 2**63 < 1  # of no file's bytes a whole one


@pytest.mark.parametrize("name", POLICIES)
def test_a_field_that_is_missing_or_not_known_is_refused(name: str) -> None:
    document = DEFAULTS[name]
    for field in document:
        with pytest.raises(UsageError, match=f"it has no {field}"):
            POLICIES[name].from_json({key: value for key, value in document.items() if key != field})
    with pytest.raises(UsageError, match="it has more, which"):
        POLICIES[name].from_json({**document, "more": 1})


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("expire-snapshots-iceberg", {"--retain-last": 0}, "--retain-last must be at least 1, not 0"),
        ("expire-snapshots-iceberg", {"--older-than": "2999-01-01T00:00:00Z"}, "is in the future"),
        ("expire-snapshots-delta", {"--mode": "fast"}, "--mode must be full or lite, not 'fast'"),
        ("expire-snapshots-delta", {"--mode": "lite", "--inventory": "f"}, "--mode lite makes none"),
        ("rewrite-manifests-delta", {"--compact-log": "12..3"}, "'12..3' is no range of versions"),
        ("merge-dvs-iceberg", {"--dead-ratio": "0"}, "--dead-ratio must be above 0 and at most 1"),
        ("merge-dvs-delta", {"--dead-ratio": "0"}, "--dead-ratio must be above 0 and at most 1"),
        ("merge-dvs-delta", {"--dead-ratio": "nan"}, "--dead-ratio must be above 0 and at most 1"),
        ("merge-dvs-iceberg", {"--where": "day ="}, "--where"),
        ("upgrade-v3-iceberg", {"--with": ","}, "it names none"),
        ("upgrade-v3-iceberg", {"--with": "all"}, "not all"),
        ("upgrade-v3-iceberg", {"--unsafe-keep-tags": True}, "needs --with repair-manifests"),
        (
            "upgrade-v3-iceberg",
            {"--with": "repair-manifests", "--unsafe-keep-tags": True, "--unsafe-drop-tags": True},
            "exclude each other",
        ),
        ("assign-row-ids-delta", {"--batch-size": 0}, "--batch-size must be at least 1, not 0"),
    ],
)
def test_an_option_without_a_meaning_is_refused_by_its_name(
    name: str, given: Mapping[str, Any], why: str
) -> None:
    with pytest.raises(UsageError) as caught:
        POLICIES[name].from_options(given, now_ms=NOW_MS)
    assert why in caught.value.message


@pytest.mark.parametrize("name", POLICIES)
def test_every_option_has_a_help_where_its_verb_shows_it_and_no_flag_twice(name: str) -> None:
    policy: type[Policy] = POLICIES[name]
    flags = [flag for each in policy.options() for flag in each.help_of]
    assert len(flags) == len(set(flags))
    shown = {
        flag: text
        for other in policies_of(policy.verb).values()
        for each in other.options()
        for flag, text in each.help_of.items()
        if text
    }
    assert shown.keys() >= set(flags)
    assert any(other.about for other in policies_of(policy.verb).values())


def test_a_policy_that_a_program_makes_is_held_to_the_same_limits() -> None:
    for name, field, value in (
        ("expire-snapshots-iceberg", "retain_last", 0),
        ("merge-dvs-delta", "dead_ratio", 0.0),
        ("expire-snapshots-delta", "mode", "fast"),
    ):
        with pytest.raises(UsageError, match=rf"^{field} must be"):
            POLICIES[name](**{field: value})


def test_a_policy_is_equal_to_one_that_asks_the_same_of_the_same_verb_and_format() -> None:
    merges = [
        POLICIES["merge-dvs-iceberg"](min_files=3, target_size=size) for size in ("8MiB", 8 << 20, None)
    ]
    assert [each == merges[0] for each in merges] == [True, True, False]
    assert len({*merges, POLICIES["merge-dvs-delta"](min_files=3, target_size="8MiB")}) == 3
    assert repr(merges[2]) == (
        "MergeDvs(target_size=None, min_files=3, dead_ratio=None, where=None, keep_dangling=False)"
    )


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_not_changed(name: str) -> None:
    policy = POLICIES[name]()
    for option in policy.options():
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(policy, option.name, None)


# -- where values come from ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_sources_are_no_part_of_what_a_policy_asks(name: str) -> None:
    given, document = GIVEN[name]
    sources = {flag: f"iceberg-cli.toml: {flag[2:]}" for flag in given}
    typed, general = (
        POLICIES[name].from_options(given, now_ms=NOW_MS, sources=each) for each in (None, sources)
    )
    assert typed == general
    assert hash(typed) == hash(general)
    assert repr(typed) == repr(general)
    assert general.to_json() == document
    for item in POLICIES[name].options():
        flag = next((flag for flag in item.help_of if flag in given), None)
        if flag is None:
            continue
        assert (typed.source_of(item.name), typed.is_explicit(item.name)) == (flag, True)
        assert (general.source_of(item.name), general.is_explicit(item.name)) == (sources[flag], False)
        assert general.chosen(item.name).value == document[item.json_name]


@pytest.mark.parametrize("name", POLICIES)
def test_what_nobody_gave_has_its_default_as_source(name: str) -> None:
    policy = POLICIES[name]()
    for item in policy.options():
        assert policy.source_of(item.name) == "default"
        otherwise = policy.chosen(item.name, "as the table has it")
        if item.default is None:
            assert (otherwise.value, otherwise.source) == ("as the table has it", "default")


def test_a_program_gives_values_as_the_command_line_does() -> None:
    policy = POLICIES["upgrade-v3-iceberg"](recipe=["repair-manifests"], tags="drop")
    assert [policy.source_of(name) for name in ("recipe", "tags")] == ["--with", "--unsafe-drop-tags"]
    assert policy.is_explicit("tags")


def test_a_policy_of_a_plan_has_the_sources_that_the_plan_names() -> None:
    policy = POLICIES["expire-snapshots-iceberg"]
    document = policy(older_than=NOW_MS, retain_last=None).to_json()
    options = {
        "older_than_ms": Option(value=NOW_MS, source="iceberg-cli.toml: older-than"),
        "retain_last": Option(value=5, source="table property history.expire.min-snapshots-to-keep"),
        "grace_ms": Option(value=0, source="default"),
    }
    again = policy.of_plan(a_plan(policy=document, options=options))
    assert again.sources == {"older_than": "iceberg-cli.toml: older-than"}
    assert again == policy(older_than=NOW_MS)
    changed = again.but(retain_last=2).at(NOW_MS)
    assert changed.sources == again.sources
    left = again.without(["older_than"], {"older_than": "a table property"})
    assert (left, left.sources) == (policy(), {"older_than": "a table property"})
