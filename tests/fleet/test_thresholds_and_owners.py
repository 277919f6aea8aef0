"""Thresholds of a policy file, and what the owner of a table says in its properties."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from iceberg_cli.fleet.policy_file import TablePolicy, parse_policy
from iceberg_cli.fleet.table_properties import narrowed as narrowed_as_of
from iceberg_cli.fleet.windows import BothWindows, parse_window
from tests.cli.running import iceberg_cli
from tests.fleet.maintaining import policy_file
from tests.referee.iceberg import Table

NOW_MS = 1_790_000_000_000
HOUR_MS = 3_600_000
MONDAY_MS = 1_789_948_800_000  # 2026-09-21T00:00Z


def an_aged_table(folder: Path, **properties: str) -> None:
    """Five snapshots of which four are older than the default age."""
    table = Table(folder, version=2, seed=1, now_ms=NOW_MS)
    for _ in range(5):
        table.append()
    table.change({**table.document, "properties": properties})


def looked_at(folder: Path, verb: str, options: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The record of a verb in a dry run of `maintain`, and the table's row in `survey`, by one policy."""
    policy = policy_file(folder / "policy.toml", {verb: options}, [folder / "t"])
    words = ("--policy", policy, "--as-of", NOW_MS, "--format", "json")
    ran = iceberg_cli("maintain", *words, "--dry-run")
    assert ran.code == 0, ran.err
    (run,) = ran.json["runs"]
    (row,) = iceberg_cli("survey", *words).json["tables"]
    assert [each["operation"] for each in row["due"]] == ([verb] if run["status"] == "due" else [])
    (again,) = iceberg_cli("survey", *words).json["tables"]
    assert again["from_cache"]
    assert again["due"] == row["due"]
    return run, row


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("{ min-snapshots = 4 }", None),
        ("{ min-snapshots = 5 }", "4 snapshots, fewer than 5 (min-snapshots)"),
        ("{ min-files = 4 }", None),
        ("{ min-files = 5 }", "4 files, fewer than 5 (min-files)"),
        ('{ min-bytes = "4KiB" }', None),
        ('{ min-bytes = "8KiB" }', "less than 8.0 KiB (min-bytes)"),
        ("{ min-snapshots = 4, min-files = 5 }", "4 files, fewer than 5 (min-files)"),
        ('{ when = "always", min-snapshots = 5 }', None),
    ],
)
def test_a_verb_is_due_where_every_threshold_is_reached(
    options: str, reason: str | None, tmp_path: Path
) -> None:
    an_aged_table(tmp_path / "t")
    run, _ = looked_at(tmp_path, "expire-snapshots", options)
    assert run["status"] == ("due" if reason is None else "not_due")
    if reason is not None:
        assert run["reason"].endswith(reason)


def test_a_quick_survey_says_which_thresholds_it_did_not_look_at(tmp_path: Path) -> None:
    an_aged_table(tmp_path / "t")
    assert iceberg_cli("survey", tmp_path / "t", "--as-of", NOW_MS).code == 0
    for options, reason in (
        ('{ min-bytes = "1GiB", min-snapshots = 9 }', "4 snapshots; not looked at: min-snapshots, min-bytes"),
        ('{ when = "always", min-bytes = "1GiB" }', "4 snapshots"),
    ):
        policy = policy_file(tmp_path / "policy.toml", {"expire-snapshots": options}, [tmp_path / "t"])
        ran = iceberg_cli("survey", "--quick", "--policy", policy, "--as-of", NOW_MS, "--format", "json")
        ((due,),) = (each["due"] for each in ran.json["tables"])
        assert due["reason"].endswith(reason)


def past(folder: Path, *, began_ms: int, **values: Any) -> None:
    """A record of an expiry of a table, as the module of the history describes it."""
    record = {
        "version": 1,
        "operation_id": f"op-{began_ms}",
        "operation": "expire-snapshots",
        "table_uuid": "",
        "actor": None,
        "started_ms": began_ms,
        "finished_ms": began_ms,
        "status": "done",
        "committed": [],
        "deleted_files_count": 0,
        "reclaimed_bytes": 0,
        "counts": {},
        "resumed": False,
        **values,
    }
    path = folder / "_iceberg_cli" / "history" / f"{began_ms}-expire-snapshots-op-{began_ms}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))


DAY_MS = 24 * HOUR_MS


@pytest.mark.parametrize("when", ["due", "always"])
@pytest.mark.parametrize(
    ("runs", "due"),
    [
        ([], True),
        ([{"began_ms": NOW_MS - 6 * DAY_MS}], False),
        ([{"began_ms": NOW_MS - 7 * DAY_MS}], True),
        ([{"began_ms": NOW_MS - 7 * DAY_MS + 8 * HOUR_MS}], True),
        ([{"began_ms": NOW_MS - 7 * DAY_MS + 9 * HOUR_MS}], False),  # more than a twentieth sooner
        ([{"began_ms": NOW_MS + DAY_MS}], False),  # seen from the past
        ([{"began_ms": NOW_MS - DAY_MS, "status": "conflict"}], True),
        ([{"began_ms": NOW_MS - DAY_MS, "status": "partial"}], True),
        ([{"began_ms": NOW_MS - DAY_MS, "status": "partial", "committed": ["m"]}], False),
        ([{"began_ms": NOW_MS - DAY_MS, "status": "refused"}, {"began_ms": NOW_MS - 2 * DAY_MS}], False),
        ([{"began_ms": NOW_MS - DAY_MS, "started_ms": "damaged"}], True),
    ],
)
def test_a_verb_rests_until_so_long_after_its_last_run(
    runs: list[dict[str, Any]], due: bool, when: str, tmp_path: Path
) -> None:
    an_aged_table(tmp_path / "t")
    for values in runs:
        past(tmp_path / "t", **values)
    run, _ = looked_at(tmp_path, "expire-snapshots", f'{{ when = "{when}", every = "7d" }}')
    assert run["status"] == ("due" if due else "not_due")
    if not due:
        assert run["reason"].endswith(", and runs every 7 d (every)")
    policy = tmp_path / "policy.toml"
    quick = iceberg_cli("survey", "--quick", "--policy", policy, "--as-of", NOW_MS, "--format", "json")
    ((found,),) = ([each["due"]] for each in quick.json["tables"])
    assert [each["operation"] for each in found] == (["expire-snapshots"] if due else [])
    assert not any("every" in each["reason"] for each in found)


def test_every_is_for_each_verb_and_counts_the_runs_of_that_one(tmp_path: Path) -> None:
    an_aged_table(tmp_path / "t")
    verbs = {"expire-snapshots": '{ every = "1d" }', "rewrite-manifests": '{ when = "always", every = "1d" }'}
    policy = policy_file(tmp_path / "policy.toml", verbs, [tmp_path / "t"])
    words = ("maintain", "--policy", policy, "--yes", "--format", "json")
    assert {run["status"] for run in iceberg_cli(*words, "--only", "expire-snapshots").json["runs"]} == {
        "done"
    }
    found = {run["operation"]: run["status"] for run in iceberg_cli(*words).json["runs"]}
    assert found == {"expire-snapshots": "not_due", "rewrite-manifests": "done"}
    options = iceberg_cli("policy", "check", policy, tmp_path / "t").out
    assert options.count("every          1 d") + options.count("every              1 d") == 2


def test_over_rest_only_opening_a_table_tells_when_a_verb_ran_there(
    rest_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "rest")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", rest_server)
    namespace = f"n{uuid.uuid4().hex}"
    theirs = RestCatalog("theirs", uri=rest_server)
    theirs.create_namespace(namespace)
    rows = pa.table({"n": pa.array([1], pa.int64())})
    table = theirs.create_table(f"{namespace}.t", rows.schema, location=f"file://{tmp_path}/t")
    for _ in range(4):
        table.append(rows)
    options = '{ older-than = "0s", every = "7d" }'
    policy = policy_file(tmp_path / "policy.toml", {"expire-snapshots": options}, [f"prod.{namespace}.t"])
    words = ("--policy", policy, "--format", "json")

    def due(*more: str) -> list[dict[str, Any]]:
        ((found,),) = ([each["due"]] for each in iceberg_cli("survey", *words, *more).json["tables"])
        return list(found)

    assert [each["operation"] for each in due()] == ["expire-snapshots"]
    (run,) = iceberg_cli("maintain", *words, "--yes").json["runs"]
    assert run["status"] == "done"
    table.refresh()
    table.append(rows)
    assert (due(), due()) == ([], [])
    (quick,) = due("--quick")
    assert quick["reason"].endswith("not looked at: every")


@pytest.mark.parametrize(("every", "reason"), [('"soon"', "soon"), ("-1", "every")])
def test_a_time_that_has_no_meaning_is_refused(every: str, reason: str, tmp_path: Path) -> None:
    policy = policy_file(tmp_path / "policy.toml", {"merge-dvs": f"{{ every = {every} }}"}, ["/x"])
    ran = iceberg_cli("policy", "check", policy)
    assert ran.code == 2
    assert "merge-dvs.every" in ran.err
    assert reason in ran.err


@pytest.mark.parametrize("verb", ["rewrite-manifests", "upgrade-v3"])
def test_a_verb_that_removes_nothing_has_no_threshold_of_removals(verb: str, tmp_path: Path) -> None:
    policy = policy_file(tmp_path / "policy.toml", {verb: "{ min-bytes = 1 }"}, ["/x"])
    ran = iceberg_cli("policy", "check", policy)
    assert ran.code == 2
    assert f"{verb}.min-bytes is not known" in ran.err


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"iceberg-cli.maintain": "false"}, "table property iceberg-cli.maintain = false"),
        (
            {"iceberg-cli.maintain": "no"},
            "table property iceberg-cli.maintain must be true or false, not 'no'",
        ),
        ({"iceberg-cli.expire-snapshot.when": "never"}, "Did you mean 'expire-snapshots'?"),
        ({"iceberg-cli.expire-snapshots.older": "1d"}, "expire-snapshots has when, older-than, retain-last"),
        ({"iceberg-cli.expire-snapshots.retain-last": "few"}, "'few' is no whole number"),
        ({"iceberg-cli.expire-snapshots.retain-last": "0"}, "retain-last must be at least 1, not 0"),
        ({"iceberg-cli.expire-snapshots.mode": "lite"}, "expire-snapshots.mode is not known"),
        ({"iceberg-cli.rewrite-manifests.retain-last": "2"}, "rewrite-manifests.retain-last is not known"),
        ({"iceberg-cli.expire-snapshots.older-than": "soon"}, "iceberg-cli.expire-snapshots.older-than"),
        ({"iceberg-cli.window": "at night"}, "write mon-fri 01:00-05:00 Europe/Berlin"),
        ({"iceberg-cli.grace": "a day"}, "table property iceberg-cli.grace: 'a day' is no duration"),
    ],
)
def test_an_owner_forbids_it_and_so_does_what_is_not_understood(
    properties: dict[str, str], reason: str, tmp_path: Path
) -> None:
    an_aged_table(tmp_path / "t", **properties)
    run, row = looked_at(tmp_path, "expire-snapshots", "{}")
    assert run["status"] == "skipped"
    assert reason in run["reason"]
    assert (row["grade"], reason in row["rule"]) == ("ok", True)


def narrowed(own: TablePolicy, properties: dict[str, str]) -> TablePolicy:
    return narrowed_as_of(own, properties, as_of_ms=NOW_MS)


def by_file(text: str) -> TablePolicy:
    found = parse_policy("p", f'version = 1\n[[tables]]\nmatch = ["/t"]\n{text}\n'.encode()).of_table(["/t"])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("in_file", "of_table", "kept"),
    [
        ('{ older-than = "7d" }', ("older-than", "30d"), "30d"),
        ('{ older-than = "7d" }', ("older-than", "1d"), "7d"),
        ('{ older-than = "2026-01-01" }', ("older-than", "2025-01-01T00:00:00Z"), "2025-01-01T00:00:00Z"),
        ('{ older-than = "2026-09-20" }', ("older-than", "30d"), "30d"),  # a day before now
        ('{ older-than = "30d" }', ("older-than", "2026-09-20"), "30d"),
        ("{}", ("older-than", "30d"), "30d"),
        ("{ retain-last = 3 }", ("retain-last", "10"), 10),
        ("{ retain-last = 3 }", ("retain-last", "2"), 3),
        ('{ retention = "7d" }', ("retention", "8d"), "8d"),
        ('{ retention = "7d" }', ("retention", "24h"), "7d"),
        ('{ retention = "7d" }', ("retention", "168h"), "7d"),
    ],
)
def test_of_two_retentions_the_one_stays_that_keeps_more(
    in_file: str, of_table: tuple[str, str], kept: object
) -> None:
    option, value = of_table
    found = narrowed(
        by_file(f"expire-snapshots = {in_file}"),
        {f"iceberg-cli.expire-snapshots.{option}": value, "owner": "x"},
    )
    assert found.maintain
    verb = found.verbs["expire-snapshots"]
    assert verb.given[f"--{option}"] == kept
    assert verb.sources[f"--{option}"].startswith("table property" if kept in (value, 10) else "p: tables[0]")


def test_the_mark_of_a_commit_is_no_word_of_the_owners() -> None:
    """A commit over REST that adds no snapshot leaves it, and the table would be maintained never again."""
    own = by_file("expire-snapshots = {}")
    assert narrowed(own, {"iceberg-cli.operation-id": "01a2"}) == own


def test_an_owner_can_take_a_verb_out_and_none_in() -> None:
    own = by_file("expire-snapshots = {}\nmerge-dvs = {}")
    found = narrowed(
        own, {"iceberg-cli.merge-dvs.when": "never", "iceberg-cli.rewrite-manifests.when": "never"}
    )
    assert {name: verb.when for name, verb in found.verbs.items()} == {
        "expire-snapshots": "due",
        "merge-dvs": "never",
    }
    assert not narrowed(own, {"iceberg-cli.merge-dvs.when": "always"}).maintain


def test_in_two_windows_is_what_is_in_both() -> None:
    own = by_file('window = { from = "01:00", to = "05:00", zone = "UTC" }\nexpire-snapshots = {}')
    both = narrowed(own, {"iceberg-cli.window": "tue-wed 04:00-08:00 UTC"}).window
    assert isinstance(both, BothWindows)
    assert both.text == "mon-sun 01:00 to 05:00 UTC, and tue-wed 04:00 to 08:00 UTC"
    tuesday_ms = MONDAY_MS + 24 * HOUR_MS
    assert [both.contains(tuesday_ms + hour * HOUR_MS) for hour in (3, 4, 5)] == [False, True, False]
    assert not both.contains(MONDAY_MS + 4 * HOUR_MS)
    assert both.next_start_ms(MONDAY_MS) == tuesday_ms + 4 * HOUR_MS
    assert both.end_ms(tuesday_ms + 4 * HOUR_MS) == tuesday_ms + 5 * HOUR_MS
    late = parse_window({"from": "06:00", "to": "07:00", "zone": "UTC"}, "w")
    early = parse_window({"from": "01:00", "to": "02:00", "zone": "UTC"}, "w")
    assert BothWindows(late, early).next_start_ms(MONDAY_MS) is None


def test_a_check_of_the_policy_says_which_property_forbids_it(tmp_path: Path) -> None:
    an_aged_table(tmp_path / "t", **{"iceberg-cli.maintain": "false"})
    policy = policy_file(tmp_path / "policy.toml", {"expire-snapshots": "{}"}, [tmp_path / "t"])
    ran = iceberg_cli("policy", "check", policy, tmp_path / "t")
    assert "Nothing runs on it: table property iceberg-cli.maintain = false." in " ".join(ran.out.split())


def test_a_check_of_the_policy_names_the_property(tmp_path: Path) -> None:
    an_aged_table(tmp_path / "t", **{"iceberg-cli.expire-snapshots.older-than": "30d"})
    policy = policy_file(
        tmp_path / "policy.toml",
        {"expire-snapshots": '{ older-than = "7d", min-files = 3 }'},
        [tmp_path / "t"],
    )
    ran = iceberg_cli("policy", "check", policy, tmp_path / "t", "--as-of", NOW_MS, "--format", "json")
    (row,) = ran.json["tables"]
    options = row["options"]
    source = "table property iceberg-cli.expire-snapshots.older-than"
    assert options["expire-snapshots.older_than_ms"] == {
        "value": NOW_MS - 30 * 24 * HOUR_MS,
        "source": source,
    }
    assert options["expire-snapshots.min-files"] == {
        "value": 3,
        "source": f"{policy}: tables[0].expire-snapshots.min-files",
    }
