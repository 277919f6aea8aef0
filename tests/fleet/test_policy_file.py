"""Policy files: what they may say, and what that means for a table."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.policy_file import GivenOptions, TablePolicy, load_policy
from iceberg_cli.formats import maintenance_verbs, policies_of
from iceberg_cli.plan.policy import Policy
from tests.builders import DAY_MS, HOUR_MS, NOW_MS
from tests.fleet.policy_files import a_policy, of_table
from tests.paths import ROOT

# As `../shared/design/cli.md` has it.
EXAMPLE = """
[defaults]
expire-snapshots = { older-than = "7d", retain-last = 5, grace = "24h" }
window = { days = ["mon-fri"], from = "01:00", to = "05:00", zone = "Europe/Berlin" }
[[tables]]
match = ["prod.sales.*", "s3://lake/events/*"]
except = ["prod.sales.audit_*"]
merge-dvs = { when = "due", dead-ratio = 0.2 }
[[tables]]
match = ["prod.legal.*"]
maintain = false
reason = "litigation hold"
"""


# What holds in policy files where they do not say, and not on the command line.
BY_DEFAULT: dict[tuple[str, str], dict[str, Any]] = {
    ("expire-snapshots", "iceberg"): {"keep_writer_state": True},
    ("rewrite-data-files", "iceberg"): {"processes": 1, "no_assign_row_ids": True},
    ("rewrite-data-files", "delta"): {"processes": 1},
}


def options(
    table: TablePolicy, verb: str, format_name: str = "iceberg", **around: GivenOptions
) -> dict[str, Any]:
    """The fields of a verb's policy that are not as a policy file has them by default, in JSON form."""
    policy = table.verbs[verb].policy(format_name, now_ms=NOW_MS, **around)
    default = BY_DEFAULT.get((verb, format_name), {})
    return {
        item.json_name: item.kind.to_json(value)
        for item in policy.options()
        if (value := getattr(policy, item.name)) != default.get(item.name, item.default)
    }


def complaint(folder: Path, text: str, **values: str) -> str:
    """What is said about a policy file that cannot be used, without its folder."""
    with pytest.raises(UsageError) as caught:
        a_policy(folder, text, **values)
    error = caught.value
    assert error.exit_code == 2
    assert error.next_step != UsageError.default_next_step  # that is about the command
    return error.message.replace(f"{folder}/", "")


# -- what it means for a table -----------------------------------------------------------------------------------------


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    policy = a_policy(tmp_path, EXAMPLE)
    data = (tmp_path / "policy.toml").read_bytes()
    assert policy.path == str(tmp_path / "policy.toml")
    assert policy.digest == hashlib.sha256(data).hexdigest()
    assert [each.text for each in policy.patterns] == ["prod.sales.*", "s3://lake/events/*", "prod.legal.*"]

    orders = policy.of_table(["prod.sales.orders"])
    assert orders is not None
    assert orders.maintain
    assert list(orders.verbs) == ["expire-snapshots", "merge-dvs"]
    assert [each.when for each in orders.verbs.values()] == ["due", "due"]
    assert options(orders, "expire-snapshots") == {
        "older_than_ms": NOW_MS - 7 * DAY_MS, "retain_last": 5, "grace_ms": DAY_MS,
    }  # fmt: skip
    assert options(orders, "merge-dvs") == {"dead_ratio": 0.2}
    assert orders.window is not None
    assert orders.window.text == "mon-fri 01:00 to 05:00 Europe/Berlin"

    assert policy.of_table(["prod.sales.audit_2026"]) is None
    assert policy.of_table(["dev.sales.orders"]) is None
    assert policy.of_table(["s3a://lake/events/clicks"]) is not None
    case = policy.of_table(["prod.legal.case_7"])
    assert case is not None
    assert (case.maintain, case.reason) == (False, "litigation hold")
    assert case.maintain_source == f"{policy.path}: tables[1].maintain"


def test_each_value_tells_the_key_that_it_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    table = of_table(
        tmp_path,
        """
        [defaults]
        expire-snapshots = { older-than = "7d", retain-last = 5, when = "always" }
        [[tables]]
        match = ["prod"]
        [[tables]]
        match = ["prod.sales"]
        expire-snapshots.older-than = "9d"
        """,
        "prod.sales.orders",
    )
    verb = table.verbs["expire-snapshots"]
    assert (verb.when, verb.when_source) == ("always", f"{path}: defaults.expire-snapshots.when")
    policy = verb.policy("iceberg", now_ms=NOW_MS)
    assert policy.source_of("older_than") == f"{path}: tables[1].expire-snapshots.older-than"
    assert policy.source_of("retain_last") == f"{path}: defaults.expire-snapshots.retain-last"
    assert policy.source_of("grace") == "default"
    assert not policy.is_explicit("older_than")


@pytest.mark.parametrize(
    ("names", "older_than", "retain_last", "when"),
    [
        (["prod.a.t"], "1d", 5, "due"),
        (["prod.sales.t"], "2d", 5, "always"),
        (["prod.sales.eu_t"], "2d", 7, "always"),
        (["prod.sales.eu_x"], "2d", 5, "always"),  # excepted from the last entry
        (["prod.a.t", "/wh/sales/t"], "3d", 5, "due"),  # another name of the same table
        (["/wh/sales/t", "prod.a.t"], "3d", 5, "due"),
    ],
)
def test_a_later_entry_wins_key_by_key(
    names: list[str], older_than: str, retain_last: int, when: str, tmp_path: Path
) -> None:
    table = of_table(
        tmp_path,
        """
        [defaults]
        expire-snapshots = { retain-last = 5 }
        [[tables]]
        match = ["prod"]
        expire-snapshots = { older-than = "1d" }
        [[tables]]
        match = ["prod.sales.*"]
        expire-snapshots = { older-than = "2d", when = "always" }
        [[tables]]
        match = ["prod.sales.eu_*"]
        except = ["*.x"]
        expire-snapshots = { retain-last = 7 }
        [[tables]]
        match = ["/wh/**"]
        expire-snapshots = { older-than = "3d" }
        """.replace("*.x", "prod.sales.eu_x"),
        *names,
    )
    verb = table.verbs["expire-snapshots"]
    assert verb.given == {"--older-than": older_than, "--retain-last": retain_last}
    assert verb.when == when


def test_an_exception_for_one_name_is_one_for_the_table(tmp_path: Path) -> None:
    policy = a_policy(
        tmp_path,
        """
        [[tables]]
        match = ["prod.sales.*"]
        except = ["/wh/audit/**"]
        merge-dvs = {}
        """,
    )
    assert policy.of_table(["prod.sales.t"]) is not None
    assert policy.of_table(["prod.sales.t", "/wh/audit/t"]) is None


@pytest.mark.parametrize("verb", ["upgrade-v3", "assign-row-ids"])
def test_what_changes_the_table_for_its_readers_runs_only_where_an_entry_names_it(
    verb: str, tmp_path: Path
) -> None:
    policy = a_policy(
        tmp_path,
        f"""
        [defaults]
        {verb}.when = "always"
        expire-snapshots = {{}}
        [[tables]]
        match = ["prod"]
        [[tables]]
        match = ["prod.new"]
        {verb} = {{}}
        """,
    )
    old, new = policy.of_table(["prod.old.t"]), policy.of_table(["prod.new.t"])
    assert old is not None
    assert new is not None
    assert list(old.verbs) == ["expire-snapshots"]
    assert set(new.verbs) == {"expire-snapshots", verb}
    assert new.verbs[verb].when == "always"


def test_a_verb_that_nothing_names_never_runs(tmp_path: Path) -> None:
    assert of_table(tmp_path, '[[tables]]\nmatch = ["prod"]', "prod.a.t").verbs == {}


HOLDS = """
[[tables]]
match = ["prod", "/wh/**"]
expire-snapshots = {}
[[tables]]
match = ["prod.legal"]
maintain = false
reason = "hold"
[[tables]]
match = ["prod.legal.scratch_*"]
except = ["/wh/kept/**"]
maintain = true
[[tables]]
match = ["prod.sales"]
maintain = true
[[tables]]
match = ["/wh/archive/**"]
except = ["prod.sales.cold"]
maintain = false
"""


@pytest.mark.parametrize(
    ("names", "maintained"),
    [
        (["prod.sales.t"], True),
        (["prod.legal.t"], False),
        (["prod.legal.scratch_1"], True),  # a later entry for the same name lifts a hold
        (["prod.legal.t", "prod.sales.t"], False),  # one for another name does not
        (["prod.sales.t", "prod.legal.t"], False),
        (["prod.sales.t", "/wh/archive/t"], False),
        (["prod.sales.t", "/wh/db/t"], True),
        (["prod.legal.scratch_1", "/wh/kept/t"], False),  # what lifts it is not about this table
        (["prod.sales.cold"], True),
        (["prod.sales.cold", "/wh/archive/t"], False),  # the name in the archive is held by itself
        (["prod.legal.scratch_1", "prod.legal.t"], False),
    ],
)
def test_a_table_is_held_if_one_of_its_names_is(names: list[str], maintained: bool, tmp_path: Path) -> None:
    assert of_table(tmp_path, HOLDS, *names).maintain is maintained


def test_a_table_that_is_known_by_its_hold_alone_is_held(tmp_path: Path) -> None:
    text = '[[tables]]\nmatch = ["prod.legal"]\nexcept = ["/wh/x/*"]\nmaintain = false\nreason = "why"'
    held = of_table(tmp_path, text, "prod.legal.t", "/wh/x/t")
    assert (held.maintain, held.reason) == (False, "why")


def test_local_names_are_known_in_every_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    policy = a_policy(tmp_path, '[[tables]]\nmatch = ["./wh/**"]\nmaintain = false')
    for name in (f"{tmp_path}/wh/db/t", "wh//db/t/", "./wh/./db/t", f"file://{tmp_path}/wh/db/t"):
        assert policy.of_table([name]) is not None, name
    assert policy.of_table([f"{tmp_path}/other/t"]) is None


def test_a_window_is_replaced_whole(tmp_path: Path) -> None:
    text = """
    [defaults]
    window = { days = ["sat"], from = "01:00", to = "05:00", zone = "Europe/Berlin" }
    [[tables]]
    match = ["prod"]
    [[tables]]
    match = ["prod.sales"]
    window = { from = "22:00", to = "24:00", zone = "UTC" }
    """
    usual, own = (of_table(tmp_path, text, name) for name in ("prod.a.t", "prod.sales.t"))
    assert usual.window is not None
    assert own.window is not None
    assert usual.window.text == "sat 01:00 to 05:00 Europe/Berlin"
    assert own.window.text == "mon-sun 22:00 to 24:00 UTC"
    assert usual.window_source.endswith("policy.toml: defaults.window")
    assert own.window_source.endswith("policy.toml: tables[1].window")


def test_times_of_a_window_may_be_written_as_toml_does(tmp_path: Path) -> None:
    text = '[[tables]]\nmatch = ["p"]\nwindow = { from = 01:00:00, to = 05:30:00, zone = "UTC" }'
    window = of_table(tmp_path, text, "p.a.t").window
    assert window is not None
    assert (window.from_s, window.to_s) == (3_600, 19_800)


def test_patterns_that_mean_no_table_are_told(tmp_path: Path) -> None:
    policy = a_policy(tmp_path, EXAMPLE)
    assert policy.unmatched([]) == ("prod.sales.*", "s3://lake/events/*", "prod.legal.*")
    assert policy.unmatched(["prod.sales.t", "s3a://lake/events/t/", "x.y.z"]) == ("prod.legal.*",)


# -- options -----------------------------------------------------------------------------------------------------------

# By verb and option: what a file has, and that in the JSON form of the policy, of Iceberg or else of Delta.
THRESHOLDS = ("min-snapshots", "min-files", "min-bytes")
WRITTEN: dict[str, dict[str, tuple[str, Any]]] = {
    "expire-snapshots": {
        "older-than": ('"P7D"', NOW_MS - 7 * DAY_MS),
        "retain-last": ("3", 3),
        "snapshot-id": ('[5, "4", 9223372036854775807]', ["4", "5", "9223372036854775807"]),
        "clean-metadata": ("true", True),
        "cleanup": ('"metadata"', "metadata"),
        "keep-writer-state": ("false", False),
        "grace": ('"1w"', 7 * DAY_MS),
        "retention": ('"8d"', 8 * DAY_MS),
        "mode": ('"lite"', "lite"),
        "log-retention": ('"40d"', 40 * DAY_MS),
        "inventory": ('"list.parquet"', "list.parquet"),
        "alarm": ('"off"', "off"),
    },
    "rewrite-manifests": {
        "target-size": ('"16MiB"', 16 << 20),
        "spec-id": ("[0, 2]", [0, 2]),
        "content": ('"data"', "data"),
        "sort-by": ('["day", "id"]', ["day", "id"]),
        "min-manifests": ("10", 10),
        "all-manifests": ("true", True),
        "checkpoint": ('"v2"', "v2"),
        "part-size": ("1000", 1000),
        "compact-log": ('"10..19"', [10, 19]),
    },
    "merge-dvs": {
        "target-size": ("8388608", 8 << 20),
        "min-files": ("7", 7),
        "dead-ratio": ("0.25", 0.25),
        "where": ("\"day = '2026-11-01'\"", "day = '2026-11-01'"),
        "keep-dangling": ("true", True),
        "allow-writer-loss": ('["delta-rs:py-1.6.6"]', ["delta-rs:py-1.6.6"]),
    },
    "upgrade-v3": {
        "with": ('["merge-dvs", "repair-manifests"]', ["repair-manifests", "merge-dvs"]),
        "feature": ('["deletionVectors"]', ["deletionVectors"]),
        "allow-writer-loss": ('"spark 3.4.1"', ["spark 3.4.1"]),
    },
    "assign-row-ids": {
        "ref": ('"audit"', ["audit"]),
        "share-ids": ("true", True),
        "batch-size": ("500", 500),
        "count-rows": ("true", True),
        "allow-writer-loss": ('"delta-rs:py-1.6.6"', ["delta-rs:py-1.6.6"]),
    },
    "remove-orphan-files": {
        "older-than": ('"7d"', NOW_MS - 7 * DAY_MS),
        "location": ('["s3://lake/t/old"]', ["s3://lake/t/old"]),
        "inventory": ('"s3://lake/i/manifest.json"', "s3://lake/i/manifest.json"),
        "metadata-files": ("true", True),
        "grace": ('"1w"', 7 * DAY_MS),
        "alarm": ('"off"', "off"),
    },
    "rewrite-data-files": {
        "older-than": ('"P7D"', NOW_MS - 7 * DAY_MS),
        "purge": ("true", True),
        "strategy": ('"sort"', "sort"),
        "sort-by": ('["a:desc", "b"]', ["a:desc", "b"]),
        "curve-by": ('["a", "b"]', ["a", "b"]),
        "min-gain": ("0.2", 0.2),
        "full": ("true", True),
        "leave-iceberg-behind": ("true", True),
        "branch": ('"audit"', "audit"),
        "where": ("\"day = '2026-11-01'\"", "day = '2026-11-01'"),
        "target-size": ('"64MiB"', 64 << 20),
        "min-size": ("8388608", 8 << 20),
        "max-size": ('"1GB"', 1_000_000_000),
        "min-input-files": ("2", 2),
        "delete-files": ("3", 3),
        "delete-ratio": ("0.25", 0.25),
        "rewrite-all": ("true", True),
        "max-group-size": ('"8GiB"', 8 << 30),
        "max-files": ("1000", 1000),
        "max-rewrite-bytes": ('"1GiB"', 1 << 30),
        "output-spec": ('"current"', "current"),
        "output-format": ('"parquet"', "parquet"),
        "group-order": ('"files-asc"', "files-asc"),
        "commit-every": ('"15m"', "15m"),
        "max-commits": ("3", 3),
        "single-commit": ("true", True),
        "no-verify-rows": ("true", True),
    },
}


def test_every_option_of_every_verb_is_written_here() -> None:
    for verb in maintenance_verbs():
        flags = {
            flag
            for each in policies_of(verb).values()
            for item in each.options()
            if not item.not_in_policy_files
            for flag in item.help_of
        }
        assert {f"--{key}" for key in WRITTEN[verb]} == {
            flag for flag in flags if not flag.startswith("--unsafe-")
        }


def of_flag(verb: str, flag: str) -> list[tuple[str, Policy, Any]]:
    return [
        (name, policy, item)
        for name, policy in policies_of(verb).items()
        for item in policy.options()
        if flag in item.help_of
    ]


@pytest.mark.parametrize(("verb", "key"), [(verb, key) for verb, keys in WRITTEN.items() for key in keys])
def test_an_option_is_read_as_the_command_line_reads_it(verb: str, key: str, tmp_path: Path) -> None:
    text, value = WRITTEN[verb][key]
    table = of_table(tmp_path, f'[[tables]]\nmatch = ["prod"]\n{verb}.{key} = {text}', "prod.a.t")
    having = of_flag(verb, f"--{key}")
    for format_name in policies_of(verb):
        found = table.verbs[verb].policy(format_name, now_ms=NOW_MS)
        own = [item for name, _, item in having if name == format_name]
        # What the other format alone has does nothing here.
        assert options(table, verb, format_name) == {item.json_name: value for item in own}
        by_default = dict.fromkeys(BY_DEFAULT.get((verb, format_name), ()), "default of policy files")
        given = {item.name: f"{tmp_path}/policy.toml: tables[0].{verb}.{key}" for item in own}
        assert found.sources == {**by_default, **given}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"2026-05-01T00:00:00Z"', 1_777_593_600_000),
        ("2026-05-01T00:00:00Z", 1_777_593_600_000),
        ("1777593600000", 1_777_593_600_000),
        ('"12h"', NOW_MS - 12 * HOUR_MS),
    ],
)
def test_times_may_be_written_as_toml_does(text: str, value: int, tmp_path: Path) -> None:
    table = of_table(tmp_path, f'[[tables]]\nmatch = ["p"]\nexpire-snapshots.older-than = {text}', "p.a.t")
    assert options(table, "expire-snapshots") == {"older_than_ms": value}


def test_a_switch_can_be_taken_back(tmp_path: Path) -> None:
    text = '[defaults]\nmerge-dvs.keep-dangling = true\n[[tables]]\nmatch = ["p"]\nmerge-dvs.keep-dangling = false'
    assert options(of_table(tmp_path, text, "p.a.t"), "merge-dvs") == {}


def given(text: str, **values: Any) -> GivenOptions:
    named = {f"--{name.replace('_', '-')}": value for name, value in values.items()}
    return GivenOptions(given=named, sources=dict.fromkeys(named, text))


def test_variables_are_stronger_and_the_configuration_file_is_weaker(tmp_path: Path) -> None:
    text = '[[tables]]\nmatch = ["p"]\nexpire-snapshots = { older-than = "7d", retain-last = 5 }'
    table = of_table(tmp_path, text, "p.a.t")
    policy = table.verbs["expire-snapshots"].policy(
        "iceberg",
        now_ms=NOW_MS,
        weaker=given("iceberg-cli.toml", older_than="1d", retain_last=1, grace="12h", retention="9d"),
        stronger=given("variable", retain_last=8, log_retention="9d"),
    )
    names = ("older_than", "retain_last", "grace")
    assert {name: (getattr(policy, name), policy.source_of(name)) for name in names} == {
        "older_than": (NOW_MS - 7 * DAY_MS, f"{tmp_path}/policy.toml: tables[0].expire-snapshots.older-than"),
        "retain_last": (8, "variable"),
        "grace": (12 * HOUR_MS, "iceberg-cli.toml"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("weaker", "own", "stronger", "found"),
    [
        ({}, 'mode = "lite"', {"inventory": "f"}, {"inventory": "f"}),
        ({"inventory": "f"}, 'mode = "lite"', {}, {"mode": "lite"}),
        ({"mode": "lite"}, 'inventory = "f"', {}, {"inventory": "f"}),
        ({"inventory": "f"}, 'mode = "full"', {}, {"inventory": "f"}),
        ({"inventory": "f"}, "", {"mode": "lite"}, {"mode": "lite"}),
    ],
)
def test_of_options_that_exclude_each_other_the_stronger_holds(
    weaker: dict[str, Any], own: str, stronger: dict[str, Any], found: dict[str, Any], tmp_path: Path
) -> None:
    table = of_table(tmp_path, f'[[tables]]\nmatch = ["p"]\nexpire-snapshots = {{ {own} }}', "p.a.t")
    around = {"weaker": given("weak", **weaker), "stronger": given("strong", **stronger)}
    assert options(table, "expire-snapshots", "delta", **around) == found


def test_a_later_entry_takes_what_it_excludes_from_an_earlier_one(tmp_path: Path) -> None:
    text = """
    [defaults]
    expire-snapshots.inventory = "f"
    [[tables]]
    match = ["p"]
    expire-snapshots.mode = "lite"
    """
    table = of_table(tmp_path, text, "p.a.t")
    assert options(table, "expire-snapshots", "delta") == {"mode": "lite"}


def test_a_time_in_the_future_is_refused_with_its_key(tmp_path: Path) -> None:
    text = '[[tables]]\nmatch = ["p"]\nexpire-snapshots.older-than = "2100-01-01T00:00:00Z"'
    table = of_table(tmp_path, text, "p.a.t")
    with pytest.raises(UsageError) as caught:
        options(table, "expire-snapshots")
    source = f"{tmp_path}/policy.toml: tables[0].expire-snapshots.older-than"
    assert caught.value.message.endswith(f"is in the future (--older-than comes from {source})")


# -- what is refused ---------------------------------------------------------------------------------------------------

ENTRY = '[[tables]]\nmatch = ["prod"]\n'
REFUSED = [
    ("[default]\n" + ENTRY, "policy.toml: default is not known. Did you mean 'defaults'?"),
    ("[[table]]\nmatch = []", "policy.toml: tables is missing"),
    ("", "policy.toml: tables is missing"),
    ("tables = []", "policy.toml: tables is empty"),
    ("tables = 3", "policy.toml: tables: 3 is no array"),
    ("expire-snapshots.retain-last = 3\n" + ENTRY,
     "policy.toml: expire-snapshots is not known. Write it below [defaults] or [[tables]]."),
    ("[[tables]]\nmerge-dvs = {}", "policy.toml: tables[0]: match is missing"),
    ("[[tables]]\nmatch = []", "policy.toml: tables[0].match is empty"),
    ('[[tables]]\nmatch = "prod"', "policy.toml: tables[0].match: 'prod' is no array"),
    ("[[tables]]\nmatch = [3]", "policy.toml: tables[0].match[0]: 3 is no text"),
    ('[[tables]]\nmatch = ["prod", "*.x"]',
     "policy.toml: tables[0].match[1]: *.x: the first part of a pattern names a catalog and takes no *"),
    (ENTRY + 'except = [""]', "policy.toml: tables[0].except[0]: A pattern of tables is empty"),
    (ENTRY + 'exept = ["a"]', "policy.toml: tables[0].exept is not known. Did you mean 'except'?"),
    (ENTRY + 'maintain = "no"', "policy.toml: tables[0].maintain: 'no' is no true or false"),
    (ENTRY + "reason = 1", "policy.toml: tables[0].reason: 1 is no text"),
    (ENTRY + 'unsafe = ["short-retentions"]',
     ("policy.toml: tables[0].unsafe[0] must be short-retention, not 'short-retentions'. "
      "Did you mean 'short-retention'?")),
    ('[defaults]\nunsafe = ["short-retention"]\n' + ENTRY, "policy.toml: defaults.unsafe is not known."),
    ("[defaults]\nmaintain = false\n" + ENTRY, "policy.toml: defaults.maintain is not known."),
    (ENTRY + "merge-dv = {}", "policy.toml: tables[0].merge-dv is not known. Did you mean 'merge-dvs'?"),
    (ENTRY + ENTRY + ENTRY + 'merge-dvs.when = "dew"',
     "policy.toml: tables[2].merge-dvs.when must be due, always or never, not 'dew'. Did you mean 'due'?"),
    (ENTRY + "merge-dvs = true", "policy.toml: tables[0].merge-dvs: true is no table"),
    (ENTRY + "merge-dvs.dead-ration = 0.2",
     "policy.toml: tables[0].merge-dvs.dead-ration is not known. Did you mean 'dead-ratio'?"),
    (ENTRY + "merge-dvs.retain-last = 2",
     "policy.toml: tables[0].merge-dvs.retain-last is not known. It is one of expire-snapshots."),
    (ENTRY + "merge-dvs.dead-ratio = 0", "policy.toml: tables[0].merge-dvs.dead-ratio must be above 0, not 0"),
    (ENTRY + "merge-dvs.dead-ratio = 1.5", "policy.toml: tables[0].merge-dvs.dead-ratio must be at most 1, not 1.5"),
    (ENTRY + "merge-dvs.dead-ratio = nan",
     "policy.toml: tables[0].merge-dvs.dead-ratio must be above 0 and at most 1, not nan"),
    (ENTRY + "expire-snapshots.alarm = 0",
     "policy.toml: tables[0].expire-snapshots.alarm must be a number above 0 or off, not 0"),
    (ENTRY + "expire-snapshots.alarm = nan",
     "policy.toml: tables[0].expire-snapshots.alarm must be a number above 0 or off, not nan"),
    (ENTRY + 'expire-snapshots.alarm = "on"',
     "policy.toml: tables[0].expire-snapshots.alarm: 'on' is no number; write 6 or off"),
    (ENTRY + "expire-snapshots.unsafe-accept-alarm = true",
     ("policy.toml: tables[0].expire-snapshots.unsafe-accept-alarm: "
      "--unsafe-accept-alarm is taken from the command line alone")),
    (ENTRY + 'merge-dvs.dead-ratio = "0.2"', "policy.toml: tables[0].merge-dvs.dead-ratio: '0.2' is no number"),
    (ENTRY + "merge-dvs.min-files = 0", "policy.toml: tables[0].merge-dvs.min-files must be at least 1, not 0"),
    (ENTRY + "merge-dvs.min-files = true", "policy.toml: tables[0].merge-dvs.min-files: true is no whole number"),
    (ENTRY + "merge-dvs.min-files = 2.5", "policy.toml: tables[0].merge-dvs.min-files: 2.5 is no whole number"),
    (ENTRY + "merge-dvs.min-files = 2.0", "policy.toml: tables[0].merge-dvs.min-files: 2.0 is no whole number"),
    (ENTRY + "merge-dvs.min-files = 100000000000000000000",
     "policy.toml: tables[0].merge-dvs.min-files: 100000000000000000000 is no whole number"),
    (ENTRY + 'merge-dvs.target-size = "8"',
     "policy.toml: tables[0].merge-dvs.target-size must be between 4KiB and 1TiB, not '8', which is 8 bytes"),
    (ENTRY + "merge-dvs.target-size = 8",
     "policy.toml: tables[0].merge-dvs.target-size must be between 4KiB and 1TiB, not '8', which is 8 bytes"),
    (ENTRY + 'merge-dvs.where = "day <"', "policy.toml: tables[0].merge-dvs.where: cannot read 'day <': "),
    (ENTRY + 'expire-snapshots.older-than = "7 days"',
     ("policy.toml: tables[0].expire-snapshots.older-than: '7 days' is no time; write 2026-05-01T00:00:00Z, "
      "2026-05-01, epoch milliseconds, or a duration such as 7d")),
    (ENTRY + "expire-snapshots.older-than = 7",
     ("policy.toml: tables[0].expire-snapshots.older-than: '7' is no time; write 2026-05-01T00:00:00Z, "
      "2026-05-01, epoch milliseconds, or a duration such as 7d")),
    (ENTRY + "expire-snapshots.older-than = 2026-05-01T00:00:00",
     ("policy.toml: tables[0].expire-snapshots.older-than: '2026-05-01T00:00:00' has no zone; "
      "write 2026-05-01T00:00:00Z for UTC")),
    (ENTRY + 'expire-snapshots.grace = "-1d"',
     "policy.toml: tables[0].expire-snapshots.grace: '-1d' is no duration; write 7d, 12h, 30m, 1w or P7D"),
    (ENTRY + "expire-snapshots.grace = 7", "policy.toml: tables[0].expire-snapshots.grace: 7 is no text"),
    (ENTRY + 'expire-snapshots.cleanup = "al"',
     "policy.toml: tables[0].expire-snapshots.cleanup must be all, metadata or none, not 'al'. Did you mean 'all'?"),
    (ENTRY + 'expire-snapshots.snapshot-id = [1, "x"]',
     "policy.toml: tables[0].expire-snapshots.snapshot-id: 'x' is no whole number"),
    (ENTRY + "expire-snapshots.snapshot-id = [true]",
     "policy.toml: tables[0].expire-snapshots.snapshot-id[0]: true is no whole number or text"),
    (ENTRY + 'expire-snapshots = { mode = "lite", inventory = "f" }',
     "policy.toml: tables[0].expire-snapshots: --inventory takes the place of a listing, and --mode lite makes none"),
    (ENTRY + "expire-snapshots.yes = true",
     "policy.toml: tables[0].expire-snapshots.yes: --yes is taken from the command line alone"),
    (ENTRY + "expire-snapshots.unsafe-allow-short-retention = true",
     ("policy.toml: tables[0].expire-snapshots.unsafe-allow-short-retention: --unsafe-allow-short-retention is taken "
      "from the command line alone")),
    (ENTRY + "upgrade-v3.unsafe-drop-tags = true",
     "policy.toml: tables[0].upgrade-v3.unsafe-drop-tags: --unsafe-drop-tags is taken from the command line alone"),
    ("[defaults]\nexpire-snapshots.yes = true\n" + ENTRY,
     "policy.toml: defaults.expire-snapshots.yes: --yes is taken from the command line alone"),
    (ENTRY + 'upgrade-v3.with = ["merge"]',
     ("policy.toml: tables[0].upgrade-v3.with[0] must be repair-manifests, merge-dvs or assign-row-ids, not 'merge'. "
      "Did you mean 'merge-dvs'?")),
    (ENTRY + 'rewrite-manifests.compact-log = "19..10"',
     "policy.toml: tables[0].rewrite-manifests.compact-log: '19..10' is no range of versions; write 10..19"),
    (ENTRY + 'window = { from = "01:00", to = "02:00" }', "policy.toml: tables[0].window: zone is missing"),
    (ENTRY + 'window = { from = "1:00", to = "02:00", zone = "UTC" }',
     "policy.toml: tables[0].window.from: '1:00' is no time of a day; write \"01:00\""),
    (ENTRY + 'window = { from = "24:00", to = "02:00", zone = "UTC" }',
     "policy.toml: tables[0].window.from: '24:00' is no time of a day; write \"01:00\""),
    (ENTRY + 'window = { from = "01:00", to = "01:00", zone = "UTC" }',
     "policy.toml: tables[0].window: it ends when it begins, at 01:00"),
    (ENTRY + 'window = { days = ["mon", "fry"], from = "01:00", to = "02:00", zone = "UTC" }',
     "policy.toml: tables[0].window.days[1]: 'fry' is no day; write mon or mon-fri. Did you mean 'fri'?"),
    (ENTRY + 'window = { days = [], from = "01:00", to = "02:00", zone = "UTC" }',
     "policy.toml: tables[0].window.days is empty"),
    ('[defaults]\nwindow = { from = "01:00", to = "02:00", zone = "Europe/Berlim" }\n' + ENTRY,
     "policy.toml: defaults.window.zone: 'Europe/Berlim' is no zone. Did you mean 'Europe/Berlin'"),
    (ENTRY + "a = 1\na = 2\nb = 3\n", "Cannot read policy.toml: Cannot overwrite a value (at line 5, column 6)"),
    (ENTRY + "maintain = ", "Cannot read policy.toml: Invalid value (at line 4, the last)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_no_table_could_use_is_refused_with_its_path(text: str, message: str, tmp_path: Path) -> None:
    found = complaint(tmp_path, text)
    assert found.startswith(message)
    assert message[-1] in " '" or found == message


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("", "policy.toml: version is missing"),
        ("version = 2", "policy.toml: version must be 1, not 2"),
        ("version = true", "policy.toml: version must be 1, not true"),
        ('version = "1"', "policy.toml: version must be 1, not '1'"),
    ],
)
def test_the_version_is_named(version: str, message: str, tmp_path: Path) -> None:
    assert complaint(tmp_path, ENTRY, version=version) == message


def test_the_first_fault_of_a_file_is_told(tmp_path: Path) -> None:
    text = ENTRY + "merge-dvs.min-files = 0\nexpire-snapshots.retain-last = 0\n[[tables]]\nmatches = []"
    assert "tables[0].merge-dvs.min-files" in complaint(tmp_path, text)


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    with pytest.raises(UsageError, match=f"Cannot read the policy file {missing}: No such file"):
        load_policy(str(missing))
    (tmp_path / "latin.toml").write_bytes(b"version = 1\n# caf\xe9\n")
    with pytest.raises(UsageError, match=r"latin\.toml: line 2 is no UTF-8"):
        load_policy(str(tmp_path / "latin.toml"))


# -- the schema --------------------------------------------------------------------------------------------------------


def test_the_package_carries_a_valid_schema_of_policy_files() -> None:
    schema = json.loads((ROOT / "iceberg_cli" / "schemas" / "policy-1.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    entry = schema["properties"]["tables"]["items"]["properties"]
    assert set(entry) == {"match", "except", "maintain", "reason", "window", "unsafe", *maintenance_verbs()}
    for verb in maintenance_verbs():
        thresholds = THRESHOLDS if verb in ("expire-snapshots", "remove-orphan-files") else ()
        assert set(entry[verb]["properties"]) == {"when", "every", *thresholds, *WRITTEN[verb]}
        assert schema["properties"]["defaults"]["properties"][verb] == entry[verb]


def test_a_location_on_another_host_ends_no_run_over_many_tables(tmp_path: Path) -> None:
    entry = '[[tables]]\nmatch = ["prod.sales"]\nexpire-snapshots = { older-than = "5d" }\n'
    found = of_table(tmp_path, entry, "prod.sales.t", "file://host/warehouse/sales/t")
    assert found.maintain
    assert "expire-snapshots" in found.verbs
