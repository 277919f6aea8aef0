"""`--files`: each file that goes or is rewritten, with size and reason; and the paths of deleted files in the log."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.lakes import AS_OF, GONE, delta_with_removed_files, four_snapshots
from tests.cli.running import iceberg_cli, validate
from tests.fleet.maintaining import policy_file

KIND_OF = {
    "data/one.parquet": "data_file",
    "data/three.parquet": "data_file",
    "metadata/3.stats": "statistics_file",
    "metadata/snap-1.avro": "manifest_list",
    "metadata/snap-2.avro": "manifest_list",
    "metadata/snap-3.avro": "manifest_list",
    "metadata/1-m0.avro": "manifest_file",
    "metadata/3-m0.avro": "manifest_file",
}
OPTIONS = (*AS_OF, "--older-than", "5d", "--retain-last", "1", "--files")
LINE = re.compile(r" *(\S+ [KM]?i?B|\?)  (/.*?)  (.+)")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return Path(four_snapshots(tmp_path / "t").publish())


def lines_of(text: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The lines of files and the document after them, each as its schema has it."""
    *rows, document = map(json.loads, text.splitlines())
    for each in (*rows, document):
        validate(each)
    assert {row["schema"] for row in rows} <= {"iceberg-cli/removal/1"}
    return rows, document


@pytest.mark.parametrize(
    ("words", "schema"),
    [
        (("plan", "TABLE", "expire-snapshots"), "iceberg-cli/plan/2"),
        (("expire-snapshots", "TABLE", "--dry-run"), "iceberg-cli/plan/2"),
        (("expire-snapshots", "TABLE", "--yes"), "iceberg-cli/report/1"),
    ],
)
def test_each_file_that_goes_is_a_line_before_the_document(
    table: Path, words: tuple[str, ...], schema: str
) -> None:
    sizes = {name: (table / name).stat().st_size for name in GONE}
    named = [table if word == "TABLE" else word for word in words]
    ran = iceberg_cli(*named, *OPTIONS, "--format", "json")
    assert ran.code == 0, ran.err
    rows, document = lines_of(ran.out)
    assert document["schema"] == schema
    assert {row["path"].removeprefix(f"{table}/"): row["kind"] for row in rows} == KIND_OF
    assert len(rows) == len(GONE)
    for row in rows:
        # The manifests record 100 for each data file, whatever is there.
        size = 100 if row["kind"] == "data_file" else sizes[row["path"].removeprefix(f"{table}/")]
        assert row["kind"] == "statistics_file" or row["size_bytes"] in (size, None)
        assert re.search(r"snapshot [123]\b", row["reason"])
        assert (row["table"], row["operation"]) == (str(table), "expire-snapshots")
    assert ("--yes" in words) == (not any((table / name).exists() for name in GONE))


def test_text_has_them_below_the_plan(table: Path) -> None:
    text = iceberg_cli("plan", table, "expire-snapshots", *OPTIONS).out
    assert text.startswith("3 of 4 snapshots go")
    found = [match.groups() for line in text.splitlines() if (match := LINE.fullmatch(line))]
    assert {path.removeprefix(f"{table}/") for _, path, _ in found} == GONE
    assert all(re.search(r"snapshot [123]\b", reason) for _, _, reason in found)
    for heading in ("data files:", "statistics files:", "manifests:", "manifest lists:"):
        assert heading in text.splitlines()
    assert (
        str(table / "data/one.parquet")
        not in iceberg_cli("plan", table, "expire-snapshots", *OPTIONS[:-1]).out
    )


def test_a_plan_of_every_verb_has_them_by_verb(tmp_path: Path) -> None:
    table = delta_with_removed_files(tmp_path / "t", "x", "y")
    ran = iceberg_cli("plan", table, *AS_OF, "--files", "--format", "json")
    rows, document = lines_of(ran.out)
    assert document["schema"] == "iceberg-cli/survey/1"
    removed = {Path(row["path"]).name for row in rows if row["kind"] == "data_file"}
    assert removed == {"x.parquet", "y.parquet"}
    assert {row["operation"] for row in rows if row["kind"] == "data_file"} == {"expire-snapshots"}
    text = iceberg_cli("plan", table, *AS_OF, "--files").out
    assert text.index("\nexpire-snapshots:\n") < text.index(f"{tmp_path}/t/x.parquet")


def test_the_log_has_the_path_of_each_deleted_file(table: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert iceberg_cli("expire-snapshots", table, *OPTIONS[:-1], "--yes", "--log-file", log).code == 0
    events = [json.loads(line) for line in log.read_text().splitlines()]
    named = [path for event in events if event["event"] == "deleted_paths" for path in event["paths"]]
    assert sorted(path.removeprefix(f"{table}/") for path in named) == sorted(GONE)
    assert all(event["operation_id"] for event in events if event["event"] == "deleted_paths")


def test_a_maintenance_has_the_files_of_each_verb_before_its_line(table: Path, tmp_path: Path) -> None:
    policy = policy_file(tmp_path / "policy.toml", {"expire-snapshots": '{ older-than = "5d" }'}, [table])
    words = ("maintain", "--policy", policy, *AS_OF, "--files")
    for more in (("--dry-run",), ("--yes",)):
        text = iceberg_cli(*words, *more).out if more == ("--dry-run",) else ""
        ran = iceberg_cli(*words, *more, "--jsonl")
        assert ran.code == 0, ran.err
        *rows, run, totals = map(json.loads, ran.out.splitlines())
        assert {row["path"].removeprefix(f"{table}/"): row["kind"] for row in rows} == KIND_OF
        assert (run["operation"], totals["schema"]) == ("expire-snapshots", "iceberg-cli/totals/1")
        assert not text or all(str(table / name) in text for name in GONE)
    assert iceberg_cli(*words, "--dry-run", "--format", "json").code == 2


def test_each_file_that_is_rewritten_is_a_line_too(tmp_path: Path) -> None:
    assert iceberg_cli("demo", tmp_path / "demo", "-q").code == 0
    table = tmp_path / "demo" / "db" / "orders"
    live = iceberg_cli("inspect", table, "files", "--limit", "1000", "--format", "json").json["rows"]
    expected = {row["file_path"]: row["file_size_in_bytes"] for row in live if row["content"] == 0}
    words = ("rewrite-data-files", table, "--rewrite-all", "--dry-run", "--files")
    *lines, document = map(json.loads, iceberg_cli(*words, "--format", "json").out.splitlines())
    for each in lines:
        validate(each)
    assert {row["path"]: row["size_bytes"] for row in lines} == expected
    assert {row["schema"] for row in lines} == {"iceberg-cli/rewritten-file/1"}
    groups = document["rewrite"]["groups"]
    of_group = [sum(row["group"] == each["number"] for row in lines) for each in groups]
    assert of_group == [each["files"] for each in groups]
    text = iceberg_cli(*words).out
    assert all(path in text for path in expected)
    assert "group 0, rewritten for --rewrite-all:" in text.splitlines()
    policy = policy_file(tmp_path / "policy.toml", {"rewrite-data-files": "{ rewrite-all = true }"}, [table])
    of_many = iceberg_cli("maintain", "--policy", policy, "--dry-run", "--files")
    assert all(path in of_many.out for path in expected), of_many.err
