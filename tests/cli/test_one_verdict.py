"""`inspect`, `plan`, `survey` and `maintain` agree on what is due in a table, and say it in the same counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import iceberg_cli as ic
from tests.budget import few_or_many, some
from tests.cli.running import iceberg_cli
from tests.fleet.maintaining import policy_file
from tests.prometheus import Samples
from tests.referee.iceberg import Table

DAY_MS = 86_400_000
NOW_MS = 1_790_000_000_000
LEAST = "commit.manifest.min-count-to-merge"
VERBS = ("expire-snapshots", "rewrite-manifests", "merge-dvs")


def drawn(folder: Path, *, version: int, seed: int) -> None:
    """A table with so many commits that each rule is met in some draws and not in others."""
    table = Table(folder, version=version, seed=seed, now_ms=NOW_MS)
    for _ in range(table.draw.choice([1, 4, 18, 24, 40])):
        table.append()
        if version > 1 and table.draw.random() < 0.5:
            table.delete()
    properties = {LEAST: table.draw.choice(["5", "30", "100"]), "history.expire.max-snapshot-age-ms": "0"}
    keep = table.draw.choice(["1", "20", "1000"])
    table.change(
        {**table.document, "properties": {**properties, "history.expire.min-snapshots-to-keep": keep}}
    )


def due_by_plan(folder: Path) -> dict[str, dict[str, Any]]:
    ran = iceberg_cli("plan", folder, "--as-of", NOW_MS, "--format", "json")
    found = {each["operation"]: each for each in ran.json["plans"]}
    due = {verb: each for verb, each in found.items() if each["due"] and each["offer"] is None}
    assert ran.json["due"] is bool(due)
    assert iceberg_cli("plan", folder, "--as-of", NOW_MS, "--exit-code").code == (3 if due else 0)
    return due


@few_or_many(3, many=20)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_command_finds_the_same_verbs_due(version: int, budget: int, tmp_path: Path) -> None:
    for seed in some(range(1_000), budget):
        folder = tmp_path / f"{seed}"
        drawn(folder, version=version, seed=seed)
        due = due_by_plan(folder)

        ran = iceberg_cli("inspect", folder, "--as-of", NOW_MS, "--format", "json")
        certain = {each["operation"]: each for each in ran.json["suggestions"] if each["certain"]}
        perhaps = {each["operation"] for each in ran.json["suggestions"]} - certain.keys()
        assert certain.keys() <= due.keys() <= certain.keys() | perhaps, seed
        assert perhaps <= {"merge-dvs", *(["rewrite-manifests"] if version == 1 else [])}

        samples = tmp_path / "survey.prom"
        ran = iceberg_cli("survey", folder, "--as-of", NOW_MS, "--format", "json", "--metrics", samples)
        (row,) = ran.json["tables"]
        assert {each["operation"]: each["reason"] for each in row["due"]} == {
            verb: plan["reason"] for verb, plan in due.items()
        }, seed
        assert (row["grade"] == "ok") is (not row["due"])
        bytes_of = {each["operation"]: each["bytes"] for each in row["due"]}
        for verb in VERBS:
            sampled = Samples.of(samples).of_tables("due_bytes", verb).get(str(folder), 0)
            assert sampled == bytes_of.get(verb, 0), seed

        policy = policy_file(tmp_path / "policy.toml", dict.fromkeys(VERBS, "{}"), [folder])
        ran = iceberg_cli("maintain", "--policy", policy, "--as-of", NOW_MS, "--dry-run", "--format", "json")
        would = {run["operation"] for run in ran.json["runs"] if run["status"] == "due"}
        assert would == {each["operation"] for each in row["due"]}, seed

        (from_python,) = ic.survey(folder, as_of=NOW_MS)
        assert list(from_python.row["due"]) == row["due"], seed
        runs = ic.maintain(policy=ic.Policy.load(policy), dry_run=True, as_of=NOW_MS)
        assert {run.verb for run in runs if run.status == "due"} == would, seed


def appended_to(folder: Path, times: int, **properties: str) -> None:
    """A table whose snapshots all stay."""
    table = Table(folder, version=2, seed=1, now_ms=NOW_MS)
    for _ in range(times):
        table.append()
    properties["history.expire.min-snapshots-to-keep"] = "1000"
    table.change({**table.document, "properties": properties})


@pytest.mark.parametrize(
    ("commits", "least", "is_due"), [(5, 6, False), (6, 6, True), (19, 100, False), (20, 100, True)]
)
def test_manifests_are_due_where_writers_would_merge_them_or_twenty_are_crumbs(
    commits: int, least: int, is_due: bool, tmp_path: Path
) -> None:
    appended_to(tmp_path / "t", commits, **{LEAST: str(least)})
    reason = f"{commits} manifests where 1 would do"
    (plan,) = [
        each
        for each in iceberg_cli("plan", tmp_path / "t", "--as-of", NOW_MS, "--format", "json").json["plans"]
        if each["operation"] == "rewrite-manifests"
    ]
    assert plan["due"]
    assert plan["reason"] == reason
    assert plan["offer"] == (None if is_due else f"{reason}, fewer than {least} are small")
    shown = iceberg_cli("inspect", tmp_path / "t", "--as-of", NOW_MS).out.splitlines()[0]
    assert shown == (
        f"rewrite-manifests is due: {reason}; not checked"
        if is_due
        else "Nothing is due by metadata alone; not checked"
    )


def test_a_verb_that_is_not_due_does_what_it_can_where_it_is_named(tmp_path: Path) -> None:
    appended_to(tmp_path / "t", 3)
    assert due_by_plan(tmp_path / "t") == {}
    assert iceberg_cli("plan", tmp_path / "t", "rewrite-manifests", "--exit-code").code == 3
    ran = iceberg_cli("rewrite-manifests", tmp_path / "t", "--yes", "--format", "json")
    assert (ran.json["rewritten_manifests_count"], ran.json["added_manifests_count"]) == (3, 1)


def test_an_option_says_from_how_many_manifests_on_it_is_due(tmp_path: Path) -> None:
    appended_to(tmp_path / "t", 3)
    for least, code in (("3", 3), ("4", 0)):
        assert iceberg_cli("plan", tmp_path / "t", "--min-manifests", least, "--exit-code").code == code
