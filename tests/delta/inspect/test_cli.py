"""`inspect` of Delta tables: what it shows, what it refuses, and that it never writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from iceberg_cli.testing.delta_writer import (
    a_checkpoint,
    a_commit_info,
    a_dv,
    a_field,
    a_metadata,
    a_protocol,
    a_protocol_with,
    a_remove,
    an_add,
    commit_path,
    write_log_file,
)
from tests.cli.running import iceberg_cli as run
from tests.delta_check_tables import T_MS, a_sound_table
from tests.delta_opened import a_log
from tests.paths import ROOT

DAY_MS = 86_400_000
WHAT = (
    "history",
    "schemas",
    "properties",
    "protocol",
    "features",
    "files",
    "deletes",
    "partitions",
    "row-ids",
)


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Version 1 adds a and b, version 2 gives a a deletion vector of two rows, version 3 adds c; 10 rows each."""
    made = a_sound_table(tmp_path / "visits")
    made.publish()
    return str(made.root)


def shown(*arguments: object) -> dict[str, Any]:
    ran = run("inspect", *arguments, "--format", "json")
    assert ran.code == 0, ran.out + ran.err
    return ran.json


def rows(*arguments: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shown(*arguments)["rows"]
    return found


def test_a_summary_counts_what_is_active_and_what_is_deleted(table: str) -> None:
    document = shown(table, "--as-of", T_MS + DAY_MS)
    assert (document["format"], document["version"], document["format_version"]) == ("delta", 3, 7)
    totals = document["totals"]
    names = (
        "data_files",
        "records",
        "tombstones",
        "deletion_vectors",
        "deleted_records",
        "deletion_vector_files",
    )
    assert [totals[name] for name in names] == [3, 30, 1, 1, 2, 1]
    assert totals["data_bytes"] == sum(path.stat().st_size for path in Path(table).glob("*.parquet"))
    assert totals["dead_deletion_vector_bytes"] == 0
    assert document["row_tracking"] == {
        "supported": True,
        "enabled": True,
        "high_water_mark": "29",
        "files_without_base_row_id": 0,
    }
    assert document["log"]["newest_checkpoint"] is None
    assert document["operation"] == "WRITE"
    assert document["age_ms"] == DAY_MS


def test_bytes_of_a_vector_file_that_no_active_file_uses_are_dead(table: str) -> None:
    (file,) = Path(table).glob("*.bin")
    file.write_bytes(file.read_bytes() + bytes(100))
    totals = shown(table)["totals"]
    assert totals["dead_deletion_vector_bytes"] == 100
    assert totals["deletion_vector_file_bytes"] == file.stat().st_size


@pytest.mark.parametrize(("age_days", "past"), [(6, 0), (8, 1)])
def test_tombstones_past_the_retention_are_due(table: str, age_days: int, past: int) -> None:
    document = shown(table, "--as-of", T_MS + age_days * DAY_MS)
    assert document["tombstones"]["past_retention"] == past
    assert ["expire-snapshots"] * past == [item["operation"] for item in document["suggestions"]]


def test_retention_says_where_it_comes_from_and_a_value_that_is_none_is_shown(tmp_path: Path) -> None:
    configuration = {
        "delta.deletedFileRetentionDuration": "interval 2 days",
        "delta.logRetentionDuration": "long",
    }
    a_log(tmp_path / "t", [a_protocol(), a_metadata(configuration=configuration)])
    kept = shown(tmp_path / "t")["retention"]
    files = kept["deleted_file_retention"]
    assert (files["value_ms"], files["problem"]) == (2 * DAY_MS, None)
    assert files["source"] == "table property delta.deletedFileRetentionDuration"
    assert kept["log_retention"]["value_ms"] is None
    assert "long" in kept["log_retention"]["problem"]


def test_records_are_unknown_where_one_file_does_not_say_them(tmp_path: Path) -> None:
    a_log(tmp_path / "t", [an_add(path="a.parquet"), an_add(path="b.parquet", rows=None)])
    totals = shown(tmp_path / "t")["totals"]
    assert (totals["records"], totals["files_without_record_count"]) == (None, 1)


def test_a_hint_that_names_no_checkpoint_is_told(table: str) -> None:
    write_log_file(Path(table), "_last_checkpoint", b'{"version":2,"size":1}')
    problem = shown(table)["log"]["last_checkpoint"]["problem"]
    assert "names version 2" in problem
    assert "_last_checkpoint: it names version 2" in run("inspect", table).out


def test_a_table_without_files_has_a_summary_of_zeros(tmp_path: Path) -> None:
    a_log(tmp_path / "t", [a_protocol(), a_metadata()])
    totals = shown(tmp_path / "t")["totals"]
    assert (totals["data_files"], totals["records"], totals["average_size_bytes"]) == (0, 0, None)
    for what in WHAT:
        assert run("inspect", tmp_path / "t", what).code == 0
        assert len(rows(tmp_path / "t", what)) == (
            1 if what in {"history", "schemas", "protocol"} else 2 * (what == "features")
        )


def test_an_unknown_writer_feature_is_shown_and_no_verb_writes(tmp_path: Path) -> None:
    a_log(tmp_path / "t", [a_protocol(1, 7, writer_features=["fromTheFuture"]), a_metadata()])
    assert "fromTheFuture" in shown(tmp_path / "t")["read_only"]
    out = run("inspect", tmp_path / "t").out
    assert "no verb writes or deletes: the writer feature fromTheFuture is not known here" in out
    (feature,) = rows(tmp_path / "t", "features")
    assert (feature["name"], feature["known"], feature["writer"]) == ("fromTheFuture", False, True)


def test_files_have_the_fields_of_the_action_and_keep_those_that_nobody_knows(tmp_path: Path) -> None:
    odd: dict[str, Any] = {"tags": {"k": "é"}, "newText": "ü", "newThing": {"deep": ["é", 1]}, "newNumber": 7}
    a_log(tmp_path / "t", [an_add(path="a.parquet", **odd), an_add(path="b.parquet", baseRowId=2**53 + 1)])
    first, second = rows(tmp_path / "t", "files")
    assert {key: first[key] for key in odd} == odd
    assert first["stats"] == '{"numRecords":10}'
    assert first["deletionVector"] is None
    assert second["baseRowId"] == str(2**53 + 1)
    assert second["newThing"] is None


def test_deletes_name_the_file_of_each_vector_by_the_protocols_example(tmp_path: Path) -> None:
    root = tmp_path / "t"
    vector = a_dv(name="ab^-aqEH.-t@S}K{vb[*k^", offset=4, sizeInBytes=40, cardinality=6)
    inline = a_dv(
        storageType="i", name="wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", offset=None, cardinality=6
    )
    a_log(
        root,
        [
            a_protocol_with("deletionVectors"),
            a_metadata(),
            an_add(path="a.parquet", dv=vector),
            an_add(path="b.parquet", dv=inline),
            an_add(path="c.parquet"),
        ],
    )
    first, second = rows(root, "deletes")
    assert first["absolutePath"] == f"{root}/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert first["uniqueId"] == "uab^-aqEH.-t@S}K{vb[*k^@4"
    assert first["deletionVector"]["cardinality"] == 6
    assert (second["absolutePath"], second["path"], second["numRecords"]) == (None, "b.parquet", 10)


def test_partitions_are_summed_by_the_names_that_people_know(tmp_path: Path) -> None:
    mapped = {"delta.columnMapping.mode": "name"}
    numbers = {"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 1}
    day = a_field("day", "string", **numbers)
    metadata = a_metadata(day, partitionColumns=["day"], configuration=mapped)
    files = [("a", "2"), ("b", None), ("c", "2"), ("d", "10")]
    adds = [an_add(path=f"{path}.parquet", partitionValues={"col-1": day}) for path, day in files]
    a_log(tmp_path / "t", [a_protocol(2, 5), metadata, *adds])
    found = [
        (row["partition"]["day"], row["file_count"], row["numRecords"], row["size"])
        for row in rows(tmp_path / "t", "partitions")
    ]
    assert found == [(None, 1, 10, 100), ("10", 1, 10, 100), ("2", 2, 20, 200)]


def test_history_has_the_fields_of_commit_info_the_newest_last(table: str) -> None:
    found = rows(table, "history")
    assert [row["version"] for row in found] == [0, 1, 2, 3]
    assert [(row["add_count"], row["remove_count"]) for row in found] == [(0, 0), (2, 0), (1, 1), (1, 0)]
    assert [row["timestamp_ms"] for row in found] == [T_MS - 3_000 + 1_000 * version for version in range(4)]
    assert {row["operation"] for row in found} == {"WRITE"}
    assert [row["version"] for row in rows(table, "history", "--limit", 2)] == [2, 3]


def test_history_goes_back_to_the_last_gap_in_the_log(tmp_path: Path) -> None:
    root = tmp_path / "t"
    a_log(root, [an_add(path="a.parquet")], *([a_commit_info(operation=f"of {v}")] for v in (1, 2, 3)))
    state = a_checkpoint(a_protocol(), a_metadata(), an_add(path="a.parquet"))
    write_log_file(root, f"{2:020}.checkpoint.parquet", state)
    commit_path(root, 1).unlink()
    assert [row["operation"] for row in rows(root, "history")] == ["of 2", "of 3"]


def test_features_say_who_must_know_them_and_what_switches_them_on(tmp_path: Path) -> None:
    a_log(tmp_path / "t", [a_protocol(2, 5), a_metadata(configuration={"delta.appendOnly": "true"})])
    found = {row["name"]: row for row in rows(tmp_path / "t", "features")}
    assert found.keys() == {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
        "columnMapping",
    }
    assert {row["source"] for row in found.values()} == {"version"}
    assert (found["appendOnly"]["reader"], found["appendOnly"]["enabled"]) == (False, True)
    assert (found["columnMapping"]["reader"], found["columnMapping"]["enabled"]) == (True, False)
    assert found["invariants"]["enabled"] is None


def test_an_earlier_version_is_shown_by_its_number_and_by_a_time(table: str) -> None:
    for option, value in (("--version", 1), ("--at", T_MS - 1_500)):
        document = shown(table, option, value)
        assert (document["version"], document["totals"]["deletion_vectors"]) == (1, 0)
        assert sorted(row["path"] for row in rows(table, "files", option, value)) == [
            "a.parquet",
            "b.parquet",
        ]
    assert shown(table, "row-ids", "--version", 1)["row_id_high_water_mark"] == "19"
    assert "Version 1, not the newest: " in run("inspect", table, "--version", 1).out


@pytest.mark.parametrize("what", ["files", "deletes", "partitions", "row-ids", "history", "features"])
@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_rows_written_to_a_file_are_those_of_the_document(
    table: str, tmp_path: Path, what: str, ending: str
) -> None:
    target = tmp_path / f"rows.{ending}"
    assert shown(table, what, "--output", target)["output"] == str(target)
    known = rows(table, what)
    if ending == "jsonl":
        assert [json.loads(line) for line in target.read_text().splitlines()] == known
    else:
        assert pq.read_table(target).num_rows == len(known)
        assert set(pq.read_table(target).column_names) == set(known[0])


@pytest.mark.parametrize("what", ["summary", *WHAT])
def test_every_document_obeys_its_json_schema_and_every_text_prints(table: str, what: str) -> None:
    assert shown(table, what)["what"] == what
    ran = run("inspect", table, what, "--verbose")
    assert ran.code == 0
    assert ran.out


REFUSED = [
    (("snapshots",), "history"),
    (("refs",), "no branches"),
    (("manifests",), "checkpoints and commits"),
    (("specs",), "partition columns"),
    (("everything",), "protocol, features"),
    (("files", "--snapshot", "1"), "--version N"),
    (("files", "--ref", "main"), "--version N"),
    (("files", "--version", "1", "--at", "2020-01-01T00:00:00Z"), "one of them"),
    (("history", "--version", "1"), "whole table"),
    (("summary", "--recount"), "always counted"),
    (("files", "--version", "99"), "newest version is 3"),
    (("files", "--at", "2001-01-01T00:00:00Z"), "no version as old"),
]


@pytest.mark.parametrize(("arguments", "stated"), REFUSED)
def test_what_has_no_meaning_is_refused_with_what_was_meant(
    table: str, arguments: tuple[str, ...], stated: str
) -> None:
    ran = run("inspect", table, *arguments)
    assert ran.code == 2, ran.out + ran.err
    assert stated in ran.err
    assert not ran.out


def test_nothing_in_the_tables_folder_changes(table: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path(table).rglob("*")}
    for what in ("summary", *WHAT):
        assert run("inspect", table, what).code == 0
    assert {path: path.stat().st_mtime_ns for path in Path(table).rglob("*")} == before


def test_control_characters_of_a_table_do_not_reach_the_terminal(tmp_path: Path) -> None:
    name = "a\x1b[2Jb\u202e"
    metadata = a_metadata(name=name, configuration={"owner": name})
    a_log(tmp_path / "t", [a_protocol(), metadata, an_add(path=f"{name}.parquet"), a_remove(path="b")])
    for what in ("summary", "files", "properties"):
        out = run("inspect", tmp_path / "t", what).out
        assert "\x1b" not in out
        assert "\u202e" not in out


def test_a_summary_imports_nothing_of_checks_verbs_and_engines_that_it_does_not_need(table: str) -> None:
    code = (
        "import sys; from iceberg_cli.cli.app import run; run(['inspect', sys.argv[1], '--format', 'json']); "
        "print(' '.join(sys.modules), file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, table],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ,
    )
    loaded = set(ran.stderr.split())
    assert "iceberg_cli.delta.inspect.inspector" in loaded
    unwanted = (
        "delta.check",
        "iceberg.check",
        "iceberg.inspect",
        "delta.verbs",
        "iceberg.verbs",
        "cli.render.iceberg",
    )
    assert not loaded & {f"iceberg_cli.{name}" for name in unwanted}
    assert not loaded & {
        "iceberg_cli.delta.check.rules",
        "iceberg_cli.encoding.json_rows",
        "pyspark",
        "pyiceberg",
    }
