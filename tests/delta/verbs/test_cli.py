"""The commands on Delta tables: options of either format, plans that are saved, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iceberg_cli.testing.delta_writer import a_metadata, a_protocol, an_add
from tests.cli.lakes import AS_OF_MS, delta_with_removed_files, four_snapshots, old_files
from tests.cli.running import iceberg_cli
from tests.delta_opened import a_log


@pytest.fixture
def visits(tmp_path: Path) -> str:
    """A table with a live file, one removed 20 days before `AS_OF_MS`, and one that nobody names."""
    root = delta_with_removed_files(tmp_path / "visits", "b")
    old_files(tmp_path / "visits", "nobody.parquet")
    return root


def names(root: str) -> list[str]:
    return sorted(path.name for path in Path(root).glob("*.parquet"))


def expire(root: str, *arguments: object) -> tuple[str, ...]:
    return ("expire-snapshots", root, "--as-of", str(AS_OF_MS), *map(str, arguments))


FOREIGN_TO_DELTA = [
    ("expire-snapshots", "--older-than", "5d", "--retention"),
    ("expire-snapshots", "--retain-last", "3", "--retention"),
    ("expire-snapshots", "--snapshot-id", "3", "--log-retention"),
    ("expire-snapshots", "--cleanup", "none", "--mode"),
    ("rewrite-manifests", "--target-size", "8MiB", "--part-size"),
    ("merge-dvs", "--where", "p = 1", "Leave it out"),
    ("upgrade-v3", "--with", "merge-dvs", "--feature"),
    ("assign-row-ids", "--ref", "main", "Leave it out"),
]


@pytest.mark.parametrize(("verb", "option", "value", "meant"), FOREIGN_TO_DELTA)
def test_an_option_of_iceberg_is_refused_on_a_delta_table_and_names_the_one_that_is_meant(
    visits: str, verb: str, option: str, value: str, meant: str
) -> None:
    ran = iceberg_cli(verb, visits, option, value, "--dry-run")
    assert ran.code == 2
    assert f"{option} is an option of Iceberg tables, and {visits} is a Delta table" in ran.err
    assert meant in ran.err
    assert iceberg_cli("plan", visits, verb, option, value).code == 2


FOREIGN_TO_ICEBERG = [
    ("expire-snapshots", ("--retention", "7d"), "--older-than"),
    ("expire-snapshots", ("--mode", "lite"), "--cleanup"),
    ("expire-snapshots", ("--unsafe-allow-short-retention",), "--older-than"),
    ("rewrite-manifests", ("--part-size", "5"), "--target-size"),
    ("upgrade-v3", ("--feature", "deletionVectors"), "--with"),
    ("assign-row-ids", ("--count-rows",), "Leave it out"),
]


@pytest.mark.parametrize(("verb", "option", "meant"), FOREIGN_TO_ICEBERG)
def test_an_option_of_delta_is_refused_on_an_iceberg_table(
    tmp_path: Path, verb: str, option: tuple[str, ...], meant: str
) -> None:
    table = four_snapshots(tmp_path / "t").publish()
    ran = iceberg_cli(verb, table, *option, "--dry-run")
    assert ran.code == 2
    assert f"{option[0]} is an option of Delta tables" in ran.err
    assert meant in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("expire-snapshots", "--mode", "quick"),
        ("expire-snapshots", "--retention", "seven days"),
        ("expire-snapshots", "--mode", "lite", "--inventory", "files.parquet"),
        ("rewrite-manifests", "--checkpoint", "v3"),
        ("rewrite-manifests", "--compact-log", "9..3"),
        ("rewrite-manifests", "--compact-log", "9"),
        ("rewrite-manifests", "--part-size", "0"),
        ("merge-dvs", "--dead-ratio", "1.5"),
        ("assign-row-ids", "--batch-size", "0"),
    ],
)
def test_an_option_without_meaning_is_refused(visits: str, arguments: tuple[str, ...]) -> None:
    verb, *options = arguments
    ran = iceberg_cli(verb, visits, *options, "--dry-run")
    assert ran.code == 2
    assert options[0] in ran.err or options[-2] in ran.err


@pytest.mark.parametrize("option", [("--unsafe-trust-lists",), ("--unsafe-allow-root", "/elsewhere/t")])
def test_overrides_that_mean_nothing_for_a_delta_table_are_refused(
    visits: str, option: tuple[str, ...]
) -> None:
    ran = iceberg_cli("expire-snapshots", visits, *option, "--dry-run")
    assert ran.code == 2
    assert option[0] in ran.err


def test_a_dry_run_shows_what_an_expiry_does(visits: str) -> None:
    ran = iceberg_cli(*expire(visits, "--dry-run", "--exit-code"))
    assert ran.code == 3, ran.err
    assert "VACUUM START" in ran.out
    assert "planned on  version 1\n" in ran.out
    plan = iceberg_cli(*expire(visits, "--dry-run", "--format", "json")).json
    assert plan["table"]["format"] == "delta"
    assert plan["base"]["version"] == "1"
    assert [step["unconditional"] for step in plan["steps"]] == [False, True]
    assert plan["removals"]["count"] == 2
    assert names(visits) == ["a.parquet", "b.parquet", "nobody.parquet"]


def test_an_expiry_reports_the_version_that_it_committed(visits: str) -> None:
    report = iceberg_cli(*expire(visits, "--yes", "--format", "json")).json
    assert report["status"] == "done"
    assert report["committed_version"] == 3
    assert report["committed_snapshot_id"] is None
    assert report["metadata_location"] == f"{visits}/_delta_log/{3:020d}.json"
    assert (report["deleted_data_files_count"], report["deleted_untracked_files_count"]) == (1, 1)
    assert names(visits) == ["a.parquet"]
    assert iceberg_cli("resume", visits, "--list").out.strip() == "No open operation."
    again = iceberg_cli(*expire(visits, "--yes", "--format", "json")).json
    assert (again["status"], again["committed_version"]) == ("nothing_to_do", None)


def test_deleting_asks_and_without_a_terminal_refuses(visits: str) -> None:
    assert iceberg_cli(*expire(visits)).code == 2
    assert names(visits) == ["a.parquet", "b.parquet", "nobody.parquet"]


def test_a_saved_plan_is_carried_out_though_the_table_moved_and_keeps_what_came_back(
    visits: str, tmp_path: Path
) -> None:
    file = tmp_path / "expire.json"
    ran = iceberg_cli("plan", visits, "expire-snapshots", "--as-of", AS_OF_MS, "--output", file)
    assert ran.code == 0, ran.err
    back = json.dumps(an_add(path="b.parquet"))
    Path(f"{visits}/_delta_log/{2:020d}.json").write_text(f"{back}\n")
    report = iceberg_cli("apply", file, "--yes", "--format", "json").json
    assert report["committed_version"] == 4
    assert names(visits) == ["a.parquet", "b.parquet"]


def test_a_saved_plan_is_not_carried_out_on_another_table(visits: str, tmp_path: Path) -> None:
    file = tmp_path / "expire.json"
    assert iceberg_cli("plan", visits, "expire-snapshots", "--as-of", AS_OF_MS, "--output", file).code == 0
    for path in Path(visits, "_delta_log").iterdir():
        path.unlink()
    a_log(Path(visits), [a_protocol(), a_metadata(id="another"), an_add(path="a.parquet")])
    ran = iceberg_cli("apply", file, "--yes")
    assert ran.code == 11
    assert names(visits) == ["a.parquet", "b.parquet", "nobody.parquet"]


def test_plan_without_a_verb_surveys_what_the_format_has(visits: str) -> None:
    ran = iceberg_cli("plan", visits, "--as-of", AS_OF_MS, "--format", "json")
    assert ran.code == 0, ran.err
    operations = {plan["operation"] for plan in ran.json["plans"]}
    assert operations == {
        "expire-snapshots",
        "rewrite-manifests",
        "rewrite-data-files",
        "merge-dvs",
        "upgrade-v3",
        "assign-row-ids",
    }


def test_new_table_features_are_a_decision_and_never_due_in_a_survey(tmp_path: Path) -> None:
    root = tmp_path / "t"
    a_log(root, [an_add(path="a.parquet")])
    assert iceberg_cli("rewrite-manifests", root, "--yes").code == 0
    survey = iceberg_cli("plan", root, "--format", "json").json
    due = {plan["operation"] for plan in survey["plans"] if plan["due"]}
    assert due == {"upgrade-v3", "assign-row-ids"}
    assert not survey["due"]
    assert iceberg_cli("plan", root, "--exit-code").code == 0


@pytest.mark.parametrize(
    ("interval", "commits", "due"),
    [
        (None, 11, False),
        (None, 12, True),
        ("2", 3, False),
        ("2", 4, True),
        ("often", 2, True),
        ("0", 2, True),
        ("-1", 2, True),
    ],
)
def test_a_checkpoint_is_due_in_a_survey_once_the_table_asks_for_it(
    interval: str | None, commits: int, due: bool, tmp_path: Path
) -> None:
    root = tmp_path / "t"
    properties = {} if interval is None else {"delta.checkpointInterval": interval}
    first = [a_protocol(), a_metadata(configuration=properties)]
    a_log(root, first, *([an_add(path=f"{number}.parquet")] for number in range(1, commits)))
    ran = iceberg_cli("plan", root, "--exit-code", "--format", "json")
    assert (ran.code, ran.json["due"]) == (3 if due else 0, due)
    suggestions = iceberg_cli("inspect", root, "--format", "json").json["suggestions"]
    assert [each["operation"] for each in suggestions] == (["rewrite-manifests"] if due else [])
    assert iceberg_cli("plan", root, "rewrite-manifests", "--exit-code").code == 3
    shown = iceberg_cli("plan", root).out
    assert f"iceberg-cli rewrite-manifests {root}" in shown
    early = f"not due: commits since the last checkpoint: {commits - 1}, and delta.checkpointInterval"
    assert (early in " ".join(shown.split())) is not due


def test_the_survey_prints_commands_that_work(visits: str) -> None:
    ran = iceberg_cli("plan", visits, "--as-of", AS_OF_MS)
    assert ran.code == 0, ran.err
    assert f"iceberg-cli expire-snapshots {visits} --as-of {AS_OF_MS}" in ran.out


def test_a_table_that_cannot_be_written_to_shows_its_plan_and_refuses_to_carry_it_out(tmp_path: Path) -> None:
    root = tmp_path / "t"
    protocol = a_protocol(1, 7, writer_features=["fromTheFuture"])
    a_log(root, [protocol, a_metadata(), an_add(path="a.parquet")])
    old_files(root, "a.parquet", "nobody.parquet")
    ran = iceberg_cli(*expire(str(root), "--dry-run"))
    assert ran.code == 0, ran.err
    assert "blocked by" in ran.out
    assert "fromTheFuture" in ran.out
    ran = iceberg_cli(*expire(str(root), "--yes"))
    assert ran.code == 11
    assert "fromTheFuture" in ran.err
    assert (root / "nobody.parquet").exists()


def test_a_table_that_needs_another_reader_is_refused_by_the_features_name(tmp_path: Path) -> None:
    features = ["fromTheFuture"]
    protocol = a_protocol(3, 7, reader_features=features, writer_features=features)
    a_log(tmp_path / "t", [protocol, a_metadata()])
    ran = iceberg_cli("plan", tmp_path / "t")
    assert ran.code == 11
    assert "fromTheFuture" in ran.err


def test_a_folder_without_any_table_is_not_found(tmp_path: Path) -> None:
    assert iceberg_cli("plan", tmp_path).code == 10


def test_a_log_without_versions_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text("{}")
    ran = iceberg_cli("plan", tmp_path)
    assert ran.code == 10
