"""`remove-orphan-files` on many tables: by name, last, once a week, and a look that found nothing counts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import iceberg_cli
from tests.fleet.builder import build_fleet
from tests.fleet.maintaining import policy_file
from tests.referee.iceberg import Table

DAY_MS = 86_400_000
NOW_MS = 1_750_000_000_000
VERB = "remove-orphan-files"
LISTING = "how much goes only a listing of all files tells"
LEFT = "data/00000-7-0f8fad5b-d9cb-469f-a165-70867728950e-00001.parquet"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table of three snapshots."""
    table = Table(tmp_path / "t", version=2, seed=1, now_ms=NOW_MS)
    for _ in range(3):
        table.append()
    return tmp_path / "t"


def leave_a_file(folder: Path) -> Path:
    """A failed writer leaves a file, which is old by now."""
    path = folder / LEFT
    path.write_bytes(b"half a file")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def history(folder: Path) -> list[dict[str, Any]]:
    paths = sorted((folder / "_iceberg_cli" / "history").glob("*"))
    return [json.loads(path.read_bytes()) for path in paths]


def age_history(folder: Path, *, by_ms: int) -> None:
    """Have every run of the history begin so much earlier."""
    for path in (folder / "_iceberg_cli" / "history").glob("*"):
        record = json.loads(path.read_bytes())
        began_ms = record["started_ms"] - by_ms
        path.unlink()
        changed = json.dumps({**record, "started_ms": began_ms})
        path.with_name(f"{began_ms}-{record['operation']}-{record['operation_id']}.json").write_text(changed)


def maintained(folder: Path, verbs: Mapping[str, str], *options: str) -> list[tuple[str, str]]:
    """Each verb that was looked at, with what came of it."""
    policy = policy_file(folder.parent / "policy.toml", verbs, [folder])
    ran = iceberg_cli("maintain", "--policy", policy, "--format", "json", *(options or ("--yes",)))
    assert ran.code == 0, ran.err
    return [(run["operation"], run["status"]) for run in ran.json["runs"]]


def due(folder: Path, verbs: Mapping[str, str], *options: str) -> list[dict[str, Any]]:
    """What a survey says is due."""
    policy = policy_file(folder.parent / "policy.toml", verbs, [folder])
    ran = iceberg_cli("survey", "--policy", policy, "--format", "json", *options)
    assert ran.code == 0, ran.err
    (row,) = ran.json["tables"]
    found: list[dict[str, Any]] = row["due"]
    return found


def test_it_runs_last_and_rests_for_a_week(folder: Path) -> None:
    left = leave_a_file(folder)
    verbs = {VERB: "{}", "expire-snapshots": '{ older-than = "0s", retain-last = 1 }'}
    assert maintained(folder, verbs) == [("expire-snapshots", "done"), (VERB, "done")]
    assert not left.exists()
    left = leave_a_file(folder)
    assert maintained(folder, {VERB: '{ when = "always" }'}) == [(VERB, "not_due")]
    age_history(folder, by_ms=6 * DAY_MS)
    assert maintained(folder, {VERB: "{}"}) == [(VERB, "not_due")]
    assert left.exists()
    assert maintained(folder, {VERB: '{ every = "6d" }'}) == [(VERB, "done")]
    assert not left.exists()


def test_a_look_that_found_nothing_counts(folder: Path) -> None:
    assert maintained(folder, {VERB: "{}"}) == [(VERB, "not_due")]
    (record,) = history(folder)
    assert (record["operation"], record["status"], record["committed"]) == (VERB, "done", [])
    assert (record["deleted_files_count"], record["reclaimed_bytes"]) == (0, 0)
    left = leave_a_file(folder)
    assert maintained(folder, {VERB: "{}"}) == [(VERB, "not_due")]
    assert len(history(folder)) == 1  # it was not looked at
    age_history(folder, by_ms=7 * DAY_MS)
    assert maintained(folder, {VERB: "{}"}) == [(VERB, "done")]
    assert not left.exists()
    assert len(history(folder)) == 2


def test_a_look_that_found_less_than_its_thresholds_counts_too(folder: Path) -> None:
    left = leave_a_file(folder)
    assert maintained(folder, {VERB: "{ min-files = 2 }"}) == [(VERB, "not_due")]
    assert [(each["status"], each["deleted_files_count"]) for each in history(folder)] == [("done", 0)]
    assert left.exists()


def test_every_of_nothing_looks_each_time(folder: Path) -> None:
    for _ in range(2):
        assert maintained(folder, {VERB: '{ every = "0s" }'}) == [(VERB, "not_due")]
    assert len(history(folder)) == 2


def test_a_look_by_the_verb_itself_counts(folder: Path) -> None:
    ran = iceberg_cli(VERB, folder, "--yes", "--format", "json")
    assert (ran.code, ran.json["status"]) == (0, "nothing_to_do")
    (record,) = history(folder)
    shown = iceberg_cli("history", folder, "--format", "json").json["operations"]
    assert [(each["operation"], each["status"]) for each in shown] == [(VERB, "done")]
    assert record["actor"]
    leave_a_file(folder)
    assert maintained(folder, {VERB: "{}"}) == [(VERB, "not_due")]


def test_other_verbs_that_find_nothing_leave_no_record(folder: Path) -> None:
    assert iceberg_cli("expire-snapshots", folder, "--older-than", "9999d", "--yes").code == 0
    assert maintained(folder, {"merge-dvs": "{}"}) == [("merge-dvs", "not_due")]
    assert history(folder) == []


def test_who_only_looks_leaves_no_record(folder: Path) -> None:
    assert iceberg_cli(VERB, folder, "--dry-run").code == 0
    assert iceberg_cli("plan", folder, VERB).code == 0
    assert maintained(folder, {VERB: "{}"}, "--dry-run") == [(VERB, "not_due")]
    assert [each["operation"] for each in due(folder, {VERB: "{}"})] == [VERB]
    assert history(folder) == []
    assert not (folder / "_iceberg_cli").exists()


def test_of_a_table_that_is_shown_by_a_metadata_file_nothing_is_kept(folder: Path) -> None:
    (newest,) = sorted((folder / "metadata").glob("v*.metadata.json"))[-1:]
    ran = iceberg_cli(VERB, newest, "--yes")
    assert ran.code in (0, 11), ran.err
    assert not (folder / "_iceberg_cli").exists()


def test_a_history_that_takes_no_record_fails_no_run(folder: Path) -> None:
    (folder / "_iceberg_cli").mkdir()
    (folder / "_iceberg_cli" / "history").write_text("somebody's")
    assert maintained(folder, {VERB: "{}"}) == [(VERB, "not_due")]
    assert iceberg_cli(VERB, folder, "--yes").code == 0
    assert (folder / "_iceberg_cli" / "history").read_text() == "somebody's"


EXPECTED = {
    "operation": VERB, "reason": LISTING, "bytes": None, "files": None, "exact": False, "blocked_by": [],
}  # fmt: skip


def test_a_survey_says_that_it_is_due_and_lists_nothing(folder: Path) -> None:
    # Whoever lists the table's files meets this one, which is not there.
    live = next((folder / "data").rglob("*.parquet"))
    live.rename(folder.parent / "away")
    assert iceberg_cli(VERB, folder, "--dry-run").code == 15
    assert due(folder, {VERB: "{}"}) == [EXPECTED]
    assert due(folder, {VERB: "{}"}) == [EXPECTED]  # by what the first one kept
    (folder.parent / "away").rename(live)


def test_a_survey_goes_by_the_history(folder: Path) -> None:
    leave_a_file(folder)
    assert due(folder, {VERB: "{ min-files = 2 }"}) == [
        {**EXPECTED, "reason": f"{LISTING}; not looked at: min-files"}
    ]
    assert due(folder, {VERB: '{ when = "never" }'}) == []
    assert maintained(folder, {VERB: "{}"}) == [(VERB, "done")]
    assert due(folder, {VERB: "{}"}) == []
    assert due(folder, {VERB: "{}"}, "--quick") == []
    age_history(folder, by_ms=7 * DAY_MS)
    assert due(folder, {VERB: "{}"}) == [EXPECTED]


def test_in_a_catalog_a_quick_survey_says_so_too_and_rests_with_the_verb(tmp_path: Path) -> None:
    fleet = build_fleet(tmp_path, {("sqlite", "iceberg"): 1})
    policy = policy_file(tmp_path / "policy.toml", {VERB: "{}"}, fleet.patterns)
    words = ("--policy", policy, *fleet.options, "--format", "json")

    def found(*more: str) -> list[dict[str, Any]]:
        (row,) = iceberg_cli("survey", *words, *more).json["tables"]
        due: list[dict[str, Any]] = row["due"]
        return due

    assert found("--quick") == [EXPECTED]
    assert (found(), found()) == ([EXPECTED], [EXPECTED])
    assert iceberg_cli("maintain", *words, "--yes").code == 0
    assert (found(), found("--quick")) == ([], [])


def test_a_survey_grades_it_as_due_with_its_reason(folder: Path) -> None:
    policy = policy_file(folder.parent / "policy.toml", {VERB: "{}"}, [folder])
    ran = iceberg_cli("survey", "--policy", policy, "--format", "json", "--exit-code")
    assert ran.code == 3
    (row,) = ran.json["tables"]
    assert (row["grade"], row["rule"]) == ("due", f"{VERB}: {LISTING}")
    assert (ran.json["totals"]["freed_bytes"], ran.json["totals"]["freed_files"]) == (0, 0)


def test_defaults_alone_name_it_for_no_table(folder: Path) -> None:
    policy = folder.parent / "policy.toml"
    policy.write_text(
        f'version = 1\n[defaults]\n{VERB} = {{}}\n[[tables]]\nmatch = ["{folder}"]\nmerge-dvs = {{}}\n'
    )
    ran = iceberg_cli("maintain", "--policy", policy, "--yes", "--format", "json")
    assert [run["operation"] for run in ran.json["runs"]] == ["merge-dvs"]


def test_a_check_of_the_policy_shows_how_often(folder: Path) -> None:
    def every(options: str) -> dict[str, Any]:
        policy = policy_file(folder.parent / "policy.toml", {VERB: options}, [folder])
        (row,) = iceberg_cli("policy", "check", policy, folder, "--format", "json").json["tables"]
        found: dict[str, Any] = row["options"][f"{VERB}.every_ms"]
        return found

    assert every("{}") == {"value": 7 * DAY_MS, "source": "default"}
    assert every('{ every = "1d" }') == {
        "value": DAY_MS, "source": f"{folder.parent}/policy.toml: tables[0].{VERB}.every",
    }  # fmt: skip
