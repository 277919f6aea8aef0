"""What surveys keep are facts: what is due is decided anew, by the time and the policy of each survey."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.fleet.listing import ListedTable
from iceberg_cli.fleet.survey import Survey, SurveyedTable
from tests.budget import few_or_many
from tests.builders import DAY_MS
from tests.cli.lakes import AS_OF_MS
from tests.cli.running import JSON, iceberg_cli
from tests.fleet.builder import Fleet, Format, Place, build_fleet
from tests.fleet.maintaining import policy_file

AGES_DAYS = (
    59,
    58.2,
    57.3,
    55,
    54.1,
    50,
    20,
    0,
)  # before `AS_OF_MS`: the tables' commits are 60 to 55 days old
POLICIES: tuple[dict[str, str], ...] = (
    {},
    {"expire-snapshots": '{ older-than = "5d", retain-last = 1 }'},
    {"expire-snapshots": '{ older-than = "1d", retain-last = 3 }', "merge-dvs": '{ when = "always" }'},
    {
        "expire-snapshots": '{ retain-last = 2, when = "always" }',
        "rewrite-manifests": "{ min-manifests = 50 }",
    },
    {"rewrite-manifests": "{ min-manifests = 2 }", "merge-dvs": "{ min-files = 2 }"},
    {"rewrite-manifests": '{ target-size = "8KiB" }', "merge-dvs": '{ min-files = 2, target-size = "1MiB" }'},
    {"upgrade-v3": "{}", "assign-row-ids": "{}"},
    {"upgrade-v3": '{ with = "merge-dvs,assign-row-ids" }'},
    {"expire-snapshots": '{ older-than = "3d", clean-metadata = true }'},
    {"expire-snapshots": '{ older-than = "3d", cleanup = "metadata", grace = "30d" }'},
    {"expire-snapshots": '{ older-than = "3d", cleanup = "none" }'},
)
DELTA_POLICIES: tuple[dict[str, str], ...] = (
    {},
    {"expire-snapshots": '{ retention = "8d", log-retention = "9d" }'},
    {"expire-snapshots": '{ retention = "7d", log-retention = "20d", when = "always" }', "merge-dvs": "{}"},
    {
        "expire-snapshots": '{ retention = "30d", mode = "lite" }',
        "rewrite-manifests": '{ checkpoint = "v2" }',
    },
    {"merge-dvs": '{ min-files = 2, target-size = "1MiB" }', "rewrite-manifests": "{}"},
    {"upgrade-v3": "{}", "assign-row-ids": "{}"},
)


def surveyed(fleet: Fleet, policy: Path | None, as_of_ms: int, *options: str) -> tuple[dict[str, Any], int]:
    """The rows by table, but for what only reading tells, and how many were known from before."""
    by = () if policy is None else ("--policy", policy)
    ran = iceberg_cli("survey", *fleet.patterns, *fleet.options, *by, "--as-of", as_of_ms, *options, *JSON)
    assert ran.code == 0, ran.err
    tables = ran.json["tables"]
    known = sum(each.pop("from_cache") for each in tables)
    for each in tables:
        each.pop("open_operations")
    return {each["table"]["name"]: each for each in tables}, known


FLEETS: tuple[tuple[Mapping[tuple[Place, Format], int], tuple[dict[str, str], ...]], ...] = (
    ({("sqlite", "iceberg"): 3}, POLICIES),
    ({("folder", "iceberg"): 2}, POLICIES),
    ({("folder", "delta"): 4}, DELTA_POLICIES),
)


@pytest.mark.few(1)
@pytest.mark.parametrize(("tables", "all_policies"), FLEETS, ids=lambda _: "")
@few_or_many(2, many=20)
def test_a_survey_is_that_of_tables_read_anew_whatever_was_looked_at_before(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    budget: int,
    tables: Mapping[tuple[Place, Format], int],
    all_policies: tuple[dict[str, str], ...],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fleet = build_fleet(tmp_path, tables)
    policies = [
        policy_file(tmp_path / f"{number}.toml", verbs, fleet.patterns) if verbs else None
        for number, verbs in enumerate(all_policies)
    ]
    rng = random.Random(2)
    known = 0
    for _ in range(budget):
        policy, age_days = rng.choice(policies), rng.choice(AGES_DAYS)
        for _ in range(2):
            arguments = (fleet, policy, int(AS_OF_MS - age_days * DAY_MS))
            found, kept = surveyed(*arguments)
            known += kept
            assert found == surveyed(*arguments, "--no-cache")[0], (policy, age_days)
    assert known


@pytest.mark.parametrize("of_format", ["iceberg", "delta"])
def test_a_copy_of_a_table_is_a_row_of_its_own_also_by_what_was_read_before(
    of_format: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fleet = build_fleet(tmp_path / "wh", {("folder", of_format): 1})
    (table,) = fleet.tables
    copy = f"{table.folder}-copy"
    shutil.copytree(table.folder, copy, copy_function=shutil.copy2)
    for path in Path(table.folder).rglob("*"):
        os.utime(copy + str(path).removeprefix(str(table.folder)), ns=(0, path.stat().st_mtime_ns))
    for quick in ((), ("--quick",)):
        for _ in range(2):
            rows, _ = surveyed(fleet, None, AS_OF_MS, *quick)
            assert sorted(rows) == sorted([str(table.folder), copy])
            assert all(row["table"]["also"] == [] for row in rows.values())


def a_found(name: str, version: str) -> SurveyedTable:
    row = {"table": {"name": name, "also": []}, "due": []}
    return SurveyedTable(listed=ListedTable(name=name), row=row, key=("uuid", "/t", version))


def also(found: SurveyedTable) -> list[str]:
    names: list[str] = found.row["table"]["also"]
    return names


@pytest.mark.parametrize("is_streamed", [False, True])
def test_another_name_of_a_table_is_said_and_never_left_out(is_streamed: bool) -> None:
    opener: Any = None
    survey = Survey(tables=[], opener=opener, as_of_ms=0, is_streamed=is_streamed)
    first, second = a_found("c.n.a", "v2"), a_found("c.n.b", "v2")
    assert survey._has_row(first)
    assert survey._has_row(second) == is_streamed
    assert (also(first), also(second)) == (([], ["c.n.a"]) if is_streamed else (["c.n.b"], []))


def test_a_name_that_points_to_another_version_has_a_row_of_its_own() -> None:
    opener: Any = None
    survey = Survey(tables=[], opener=opener, as_of_ms=0)
    first, clone = a_found("c.n.a", "v2"), a_found("c.n.clone", "v3")
    assert survey._has_row(first)
    assert survey._has_row(clone)
    assert also(first) == also(clone) == []
