"""`survey --quick` of tables in a catalog of which nothing is kept: by their metadata files, with the same verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.builders import DAY_MS
from tests.cli.lakes import AS_OF_MS
from tests.cli.running import JSON, iceberg_cli
from tests.fleet.builder import Fleet, build_fleet
from tests.fleet.maintaining import policy_file

ONLY_READING_TELLS = frozenset(
    {
        "files",
        "small_files",
        "manifests",
        "manifest_target_ratio",
        "delete_ratio",
        "data_bytes",
        "due",
        "grade",
        "rule",
    }
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return build_fleet(tmp_path_factory.mktemp("fleet"), {("sqlite", "iceberg"): 3})


def rows(fleet: Fleet, policy: Path, as_of_ms: int, *options: str) -> dict[str, dict[str, Any]]:
    words = ("--policy", policy, "--as-of", as_of_ms, "--no-cache", *options, *JSON)
    ran = iceberg_cli("survey", *fleet.patterns, *fleet.options, *words)
    assert ran.code == 0, ran.err
    return {each["table"]["name"]: each for each in ran.json["tables"]}


def expiries(row: dict[str, Any]) -> list[str]:
    return [each["operation"] for each in row["due"] if each["operation"] == "expire-snapshots"]


@pytest.mark.parametrize(
    ("verbs", "age_days", "is_due"),
    [
        ({"expire-snapshots": '{ older-than = "5d", retain-last = 1 }'}, 0, True),
        ({"expire-snapshots": '{ older-than = "5d", retain-last = 1 }'}, 54.1, True),
        ({"expire-snapshots": '{ older-than = "5d", retain-last = 1 }'}, 59, False),
        ({"expire-snapshots": '{ older-than = "1d", retain-last = 3 }', "merge-dvs": "{}"}, 55.1, True),
        ({"expire-snapshots": '{ older-than = "1d", retain-last = 9 }'}, 0, False),
        ({"expire-snapshots": '{ older-than = "1d", retain-last = 1, when = "never" }'}, 0, False),
        ({"rewrite-manifests": "{ min-manifests = 2 }"}, 0, False),
    ],
)
def test_an_expiry_is_due_by_the_metadata_file_where_it_is_by_reading_all(
    fleet: Fleet, verbs: dict[str, str], age_days: float, *, is_due: bool, tmp_path: Path
) -> None:
    policy = policy_file(tmp_path / "policy.toml", verbs, fleet.patterns)
    as_of_ms = int(AS_OF_MS - age_days * DAY_MS)
    quick, whole = (rows(fleet, policy, as_of_ms, *options) for options in (("--quick",), ()))
    assert quick.keys() == whole.keys() == {each.name for each in fleet.tables}
    for name, row in quick.items():
        assert expiries(row) == expiries(whole[name]), name
        assert [each["operation"] for each in row["due"]] == expiries(row)
        assert {key for key, value in row.items() if value != whole[name][key]} <= ONLY_READING_TELLS
    assert any(map(expiries, quick.values())) == is_due
