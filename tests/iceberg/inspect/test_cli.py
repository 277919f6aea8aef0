"""`inspect`: what it shows, what it refuses, and that it never writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from iceberg_cli.storage.router import open_storage
from tests.builders import HOUR_MS, TableWriter, a_tag
from tests.cli.running import SCHEMAS, Ran, validate
from tests.cli.running import iceberg_cli as run


def a_written_table(folder: Path) -> TableWriter:
    """Three snapshots: a and b, then c and d, then b is removed; a tag on the first."""
    writer = TableWriter(storage=open_storage(), location=str(folder))
    writer.commit(1, age_ms=5 * HOUR_MS, add=["a", "b"])
    writer.commit(2, age_ms=3 * HOUR_MS, add=["c", "d"], statistics=True)
    writer.commit(3, age_ms=1 * HOUR_MS, remove=["b"])
    writer.set_ref("eod", a_tag(1))
    writer.publish("v1.metadata.json")
    return writer


@pytest.fixture
def table(tmp_path: Path) -> str:
    return a_written_table(tmp_path / "visits").location


def shown(*arguments: object) -> dict[str, Any]:
    ran = run("inspect", *arguments, "--format", "json")
    assert ran.code == 0, ran.out + ran.err
    return ran.json


def rows(*arguments: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shown(*arguments)["rows"]
    return found


def files_below(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(f): (f.stat().st_mtime_ns, f.stat().st_size) for f in folder.rglob("*") if f.is_file()}


def test_a_summary_counts_what_the_current_snapshot_reaches(table: str) -> None:
    document = shown(table)
    assert document["schema"] == "iceberg-cli/inspection/2"
    assert document["current_snapshot_id"] == "3"
    assert document["snapshot_count"] == 3
    assert document["totals"]["data_files"] == 3
    assert document["totals"]["records"] == 3
    assert document["totals"]["data_bytes"] == 300
    assert document["recounted"]
    assert document["row_lineage"] is None
    assert {ref["name"]: ref["type"] for ref in document["refs"]} == {"main": "BRANCH", "eod": "TAG"}


@pytest.mark.parametrize(
    ("option", "value", "found"), [("--snapshot", 2, ("2", 4)), ("--ref", "eod", ("1", 2))]
)
def test_an_earlier_snapshot_is_shown_by_its_id_and_by_a_ref(
    table: str, option: str, value: object, found: tuple[str, int]
) -> None:
    document = shown(table, option, value)
    assert (document["snapshot_id"], document["totals"]["data_files"]) == found


def test_files_show_only_live_entries_and_their_partition_spec(table: str) -> None:
    found = rows(table, "files")
    assert sorted(Path(row["file_path"]).stem for row in found) == ["a", "c", "d"]
    assert {row["spec_id"] for row in found} == {0}
    assert {row["record_count"] for row in found} == {1}


def test_a_limit_keeps_the_first_files_and_the_newest_snapshots(table: str) -> None:
    assert len(rows(table, "files", "--limit", 2)) == 2
    assert [row["snapshot_id"] for row in rows(table, "snapshots", "--limit", 2)] == ["2", "3"]


def test_totals_that_differ_from_the_snapshots_summary_are_shown_side_by_side(tmp_path: Path) -> None:
    writer = TableWriter(storage=open_storage(), location=str(tmp_path / "drifted"))
    writer.commit(1, add=["a", "b"])
    writer.document["snapshots"][0]["summary"] |= {"total-data-files": "7", "total-records": "70"}
    writer.publish("v1.metadata.json")
    found = {
        item["name"]: (item["counted"], item["summary"]) for item in shown(writer.location)["disagreements"]
    }
    assert found == {"data_files": (2, 7), "records": (2, 70)}
    assert "the snapshot's summary says 70" in run("inspect", writer.location).out


def test_a_table_without_a_snapshot_has_a_summary_of_zeros(tmp_path: Path) -> None:
    writer = TableWriter(storage=open_storage(), location=str(tmp_path / "empty"))
    writer.publish("v1.metadata.json")
    document = shown(writer.location)
    assert document["snapshot"] is None
    assert document["totals"]["data_files"] == 0
    assert rows(writer.location, "files") == []
    assert "the table has no data" in run("inspect", writer.location).out


def test_history_says_which_snapshots_lead_to_the_current_one(table: str) -> None:
    assert [(row["snapshot_id"], row["is_current_ancestor"]) for row in rows(table, "history")] == [
        ("1", True),
        ("2", True),
        ("3", True),
    ]


@pytest.mark.parametrize("what", ["files", "partitions", "manifests", "snapshots"])
@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_rows_written_to_a_file_are_those_of_the_document(
    table: str, tmp_path: Path, what: str, ending: str
) -> None:
    target = tmp_path / f"rows.{ending}"
    document = shown(table, what, "--output", target)
    assert document["output"] == str(target)
    known = rows(table, what)
    assert document["row_count"] == len(known)
    if ending == "jsonl":
        assert [json.loads(line) for line in target.read_text().splitlines()] == known
    else:
        assert pq.read_table(target).num_rows == len(known)
        assert set(pq.read_table(target).column_names) == set(known[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([target.name, "visits"])


def test_a_manifest_that_is_cut_short_gives_an_error_and_no_half_document(table: str, tmp_path: Path) -> None:
    manifest = Path(rows(table, "manifests")[-1]["path"])
    manifest.write_bytes(manifest.read_bytes()[:-20])
    for extra in ((), ("--output", tmp_path / "rows.jsonl")):
        ran = run("inspect", table, "files", "--format", "json", *extra)
        assert ran.code == 15
        assert ran.json["error"] == "CorruptFile"
        assert manifest.name in ran.json["message"]
    assert not (tmp_path / "rows.jsonl").exists()


def test_nothing_in_the_tables_folder_changes(table: str, tmp_path: Path) -> None:
    before = files_below(tmp_path)
    for what in ("summary", "files", "partitions", "row-ids", "metadata-log"):
        assert run("inspect", table, what).code == 0
    assert files_below(tmp_path) == before


def test_control_characters_of_a_table_do_not_reach_the_terminal(tmp_path: Path) -> None:
    name = "a\x1b[2Jb\u202eé"
    writer = TableWriter(
        storage=open_storage(), location=str(tmp_path / "odd"), properties={"owner": f"{name}\n"}
    )
    writer.commit(1, add=["plain"])
    writer.publish("v1.metadata.json")
    ran = run("inspect", writer.location, "properties")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "\u202e" not in ran.out
    assert rows(writer.location, "properties")[0]["value"] == f"{name}\n"


REFUSED = [
    (("protocol",), "format_version"),
    (("features",), "format_version"),
    (("everything",), "summary, snapshots"),
    (("summary", "--version", "3"), "--snapshot ID"),
    (("files", "--snapshot", "1", "--ref", "main"), "one of them"),
    (("refs", "--snapshot", "1"), "whole table"),
    (("files", "--recount"), "summary"),
    (("summary", "--limit", "3"), "a summary has none"),
    (("files", "--limit", "0"), "at least 1"),
    (("files", "--output", "rows.csv"), ".parquet or .jsonl"),
    (("files", "--snapshot", "99"), "no snapshot 99"),
    (("files", "--ref", "nowhere"), "eod"),
    (("files", "--at", "2001-01-01T00:00:00Z"), "history"),
]


@pytest.mark.parametrize(("arguments", "stated"), REFUSED)
def test_what_has_no_meaning_is_refused_with_what_was_meant(
    table: str, arguments: tuple[str, ...], stated: str
) -> None:
    ran: Ran = run("inspect", table, *arguments)
    assert ran.code == 2
    assert stated in ran.err
    assert not ran.out


def _first_event(table: str) -> dict[str, Any]:
    """The first of the documents that are written of progress."""
    err = run("inspect", table, "files", "--progress", "json", "--no-cache").err
    document: dict[str, Any] = json.loads(err.splitlines()[0])
    validate(document)
    return document


def _first_file(table: str, *words: str) -> dict[str, Any]:
    """The first line about a file of a plan."""
    out = run("plan", table, *words, "--files", "--format", "json").out
    document: dict[str, Any] = json.loads(out.splitlines()[0])
    validate(document)
    return document


def _of_many_tables(table: str, folder: Path) -> dict[str, dict[str, Any]]:
    """A document of each command about many tables, and a line of each kind."""
    policy, iceops = folder / "policy.toml", folder / "iceops.yaml"
    policy.write_text(f'version = 1\n[[tables]]\nmatch = ["{table}"]\nexpire-snapshots = {{}}\n')
    iceops.write_text("catalog: prod\ndefaults: {expire-snapshots: {older-than: 14d}}\n")
    commands = (
        ("list", table),
        ("survey", table),
        ("maintain", table, "--policy", policy, "--dry-run"),
    )
    documents = [
        *(run(*words, "--format", "json").json for words in commands),
        run("policy", "check", policy, table, "--format", "json").json,
        run("policy", "import", iceops, "--from", "iceops", "--format", "json").json,
    ]
    for words in commands:
        lines = [json.loads(line) for line in run(*words, "--jsonl").out.splitlines()]
        for line in lines:
            validate(line)
        documents += lines
    return {document["schema"].removeprefix("iceberg-cli/"): document for document in documents}


def test_every_document_obeys_its_json_schema(table: str, tmp_path: Path) -> None:
    saved = str(tmp_path / "plan.json")
    run("plan", table, "expire-snapshots", "--snapshot-id", "2", "-o", saved)
    documents = {
        "removal/1": _first_file(table, "expire-snapshots", "--snapshot-id", "2"),
        "rewritten-file/1": _first_file(table, "rewrite-data-files", "--rewrite-all"),
        "error/2": run("inspect", table, "protocol", "--format", "json").json,
        "plan/2": run("plan", table, "expire-snapshots", "--snapshot-id", "2", "--format", "json").json,
        "survey/1": run("plan", table, "--snapshot-id", "2", "--format", "json").json,
        "replan/1": run("apply", saved, "--replan", "--format", "json").json,
        "report/1": run(
            "expire-snapshots", table, "--snapshot-id", "2", "--grace", "1h", "--yes", "--format", "json"
        ).json,
        "operations/2": run("resume", table, "--list", "--format", "json").json,
        "fleet-operations/1": run("resume", f"{table}*", "--list", "--format", "json").json,
        "fleet-reports/1": run("resume", f"{table}*", "--format", "json").json,
        "history/1": run("history", table, "--format", "json").json,
        "reports/1": run("resume", table, "--format", "json").json,
        "demo/1": run("demo", str(tmp_path / "demo"), "--format", "json").json,
        "preflight/2": run("upgrade-v3", table, "--check", "--format", "json").json,
        "inspection/2": run("inspect", table, "--format", "json").json,
        "config/1": run("config", "show", "--format", "json").json,
        "event/1": _first_event(table),
        **_of_many_tables(table, tmp_path),
    }
    of_files = {"iceberg-cli/policy/1"}
    assert {f"iceberg-cli/{name}" for name in documents} == SCHEMAS.keys() - of_files
    for name, document in documents.items():
        assert document["schema"] == f"iceberg-cli/{name}"
    assert documents["plan/2"]["due"]
    assert documents["report/1"]["status"] == "waiting"
    assert [operation["operation"] for operation in documents["operations/2"]["operations"]] == [
        "expire-snapshots"
    ]
    assert [report["status"] for report in documents["reports/1"]["reports"]] == ["waiting"]
