"""`inspect TABLE diff`: two snapshots, against what `files` shows of each and against the rows that Java counted."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.storage.router import open_storage
from tests.builders import HOUR_MS, TableWriter, a_tag
from tests.cli.running import iceberg_cli as run
from tests.delete_tables import a_table
from tests.fixtures.iceberg_tables import JAVA, OTHERS, expected, folder
from tests.paths import needs_fixtures

KINDS = ("data_files", "position_delete_files", "equality_delete_files", "deletion_vectors")


def shown(table: object, *arguments: object) -> dict[str, Any]:
    ran = run("inspect", table, "diff", *arguments, "--format", "json")
    assert ran.code == 0, ran.out + ran.err
    return ran.json


def lines(table: object, *arguments: object) -> list[dict[str, Any]]:
    ran = run("inspect", table, "diff", *arguments, "--by-partition", "--jsonl")
    assert ran.code == 0, ran.out + ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def live(table: object, snapshot_id: object) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The files of a snapshot as `files` shows them, by what tells one from another."""
    ran = run("inspect", table, "files", "--snapshot", snapshot_id, "--format", "json")
    rows = ran.json["rows"]
    return {(row["file_path"], row["content_offset"], row["referenced_data_file"]): row for row in rows}


def kind(row: dict[str, Any]) -> str:
    if row["content"] == 1 and row["file_format"].lower() == "puffin":
        return "deletion_vectors"
    return KINDS[row["content"]]


def partition(row: dict[str, Any]) -> tuple[int, str]:
    texts = {key: value if value is None else str(value) for key, value in row["partition"].items()}
    texts = {key: value.lower() if value in ("True", "False") else value for key, value in texts.items()}
    return row["spec_id"], json.dumps(texts)


def transcribed(before: dict[Any, Any], after: dict[Any, Any]) -> dict[str, Any]:
    """The counts of a difference, file by file."""
    sides = {
        "added": [row for key, row in after.items() if key not in before],
        "removed": [row for key, row in before.items() if key not in after],
    }
    found: dict[str, Any] = {"files": {}, "rows": {}, "bytes": {}, "deletes": {}}
    for side, rows in sides.items():
        data = [row for row in rows if row["content"] == 0]
        deletes = [row for row in rows if row["content"] != 0]
        counts = Counter(map(kind, deletes))
        found["files"][side] = len(data)
        found["rows"][side] = sum(row["record_count"] for row in data)
        found["bytes"][side] = sum(row["file_size_in_bytes"] for row in data)
        found["deletes"][side] = {name: counts[name] for name in KINDS[1:]} | {
            "deleted_rows": sum(row["record_count"] for row in deletes if row["content"] == 1),
            "bytes": sum(row["content_size_in_bytes"] or row["file_size_in_bytes"] for row in deletes),
        }
    held = [{partition(row) for row in each.values() if row["content"] == 0} for each in (before, after)]
    touched = {partition(row) for rows in sides.values() for row in rows if row["partition"]}
    found["partitions"] = {
        key: "gone" if key not in held[1] and key in held[0] else "added" if key in held[1] - held[0] else "changed"
        for key in touched
    }  # fmt: skip
    return found


def check_pair(table: Path, before: str, after: str, files: dict[str, Any], rows: dict[str, int]) -> None:
    document = shown(table, before, after, "--by-partition")
    known = transcribed(files[before], files[after])
    for name in ("files", "bytes", "deletes"):
        assert document[name] == known[name], (before, after)
    assert {side: document["rows"][side] for side in ("added", "removed")} == known["rows"]
    partitions = {
        (row["spec_id"], json.dumps(row["partition"])): row["change"]
        for row in document["partitions"]["rows"]
    }
    assert partitions == known["partitions"]
    assert document["partitions"]["rows"] == lines(table, before, after)
    if document["rows"]["net"] is not None and rows:
        assert document["rows"]["net"] == rows[after] - rows[before], (before, after)


@pytest.mark.few(1)
@needs_fixtures
@pytest.mark.parametrize("case", JAVA)
def test_differences_are_those_between_the_files_that_each_snapshot_has(case: str) -> None:
    table, known = folder(case), expected(case)["snapshots"]
    files = {snapshot_id: live(table, snapshot_id) for snapshot_id in known}
    rows = {snapshot_id: each["rows"] for snapshot_id, each in known.items()}
    ids = list(known)
    # Neighbours both ways, and the first and the last with all others.
    pairs = [*itertools.pairwise(ids), *((b, a) for a, b in itertools.pairwise(ids)), (ids[0], ids[-1])]
    for before, after in pairs:
        check_pair(table, before, after, files, rows)


@needs_fixtures
@pytest.mark.deep
@pytest.mark.parametrize("case", [*JAVA, *OTHERS])
def test_differences_of_all_pairs_of_snapshots(case: str) -> None:
    table = folder(case)
    found = run("inspect", table, "snapshots", "--format", "json").json["rows"]
    known = expected(case).get("snapshots")
    rows = {key: each["rows"] for key, each in known.items()} if isinstance(known, dict) else {}
    files = {row["snapshot_id"]: live(table, row["snapshot_id"]) for row in found}
    for before, after in itertools.permutations(files, 2):
        check_pair(table, before, after, files, rows)


@needs_fixtures
def test_deletion_vectors_tell_how_many_rows_are_seen_more_or_fewer() -> None:
    """Whatever was appended, deleted or rewritten: the table has had vectors from its first delete on."""
    case = "20-iceberg-v3-java-many-puffins"
    known = {key: each["rows"] for key, each in expected(case)["snapshots"].items()}
    ids = list(known)
    for before, after in itertools.pairwise(ids):
        assert shown(folder(case), before, after)["rows"]["net"] == known[after] - known[before]


def metadata_files(table: Path) -> list[dict[str, Any]]:
    """Every metadata file, the oldest first."""
    found = []
    for path in (table / "metadata").glob("*.metadata.json"):
        data = path.read_bytes()
        found.append(json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data))
    return sorted(found, key=lambda document: document["last-updated-ms"])


@pytest.mark.few(1)
@needs_fixtures
@pytest.mark.parametrize("case", JAVA)
def test_properties_and_columns_are_those_of_the_metadata_that_first_had_each_snapshot(case: str) -> None:
    files = metadata_files(folder(case))
    compared = 0
    for pair in itertools.pairwise(expected(case)["snapshots"]):
        then = [
            next(each for each in files if any(str(s["snapshot-id"]) == snapshot for s in each["snapshots"]))
            for snapshot in pair
        ]
        old, new = (each["properties"] for each in then)
        document = shown(folder(case), *pair)
        if document["properties"] is not None:
            compared += 1
            assert document["properties"] == {
                "added": {key: new[key] for key in new if key not in old},
                "removed": {key: old[key] for key in old if key not in new},
                "changed": {
                    key: {"from": old[key], "to": new[key]}
                    for key in old
                    if key in new and old[key] != new[key]
                },
            }
        names = []
        for snapshot, metadata in zip(pair, then, strict=True):
            (own,) = [s for s in metadata["snapshots"] if str(s["snapshot-id"]) == snapshot]
            (schema,) = [s for s in metadata["schemas"] if s["schema-id"] == own["schema-id"]]
            names.append({each["id"]: each["name"] for each in schema["fields"]})
        changes = document["schema_changes"]
        assert [each["name"] for each in changes["added"]] == [
            names[1][i] for i in names[1] if i not in names[0]
        ]
        assert [each["name"] for each in changes["removed"]] == [
            names[0][i] for i in names[0] if i not in names[1]
        ]
    assert compared


def test_metadata_that_is_gone_leaves_properties_unknown_with_the_reason(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    table.data("a", 10)
    first = table.commit_and_publish(1)
    table.document["properties"] = {**table.document["properties"], "owner": "ada"}
    table.data("b", 10)
    table.commit_and_publish(2)
    Path(first.removeprefix("file:")).unlink()
    document = shown(tmp_path, 1)
    assert document["properties"] is None
    assert document["properties_reason"]
    assert "properties: not compared" in run("inspect", tmp_path, "diff", 1).out


# -- tables of our own ---------------------------------------------------------------------------------------------


def a_written_table(folder: Path) -> TableWriter:
    """Three snapshots: a and b, then c and d, then b is removed; a tag on the first."""
    writer = TableWriter(storage=open_storage(), location=str(folder))
    writer.commit(1, age_ms=5 * HOUR_MS, add=["a", "b"])
    writer.commit(2, age_ms=3 * HOUR_MS, add=["c", "d"])
    writer.commit(3, age_ms=1 * HOUR_MS, remove=["b"])
    writer.set_ref("eod", a_tag(1))
    writer.set_ref("2", a_tag(1))
    writer.publish("v1.metadata.json")
    return writer


@pytest.fixture
def table(tmp_path: Path) -> str:
    return a_written_table(tmp_path / "visits").location


def test_a_word_is_a_ref_before_it_is_a_snapshot_id(table: str) -> None:
    assert shown(table, "eod", "3")["from"] | {"timestamp": "", "timestamp_ms": 0} == {
        "snapshot_id": "1",
        "ref": "eod",
        "timestamp": "",
        "timestamp_ms": 0,
    }
    assert shown(table, "2", "3")["from"]["snapshot_id"] == "1"


def test_the_second_state_is_the_current_one_by_default(table: str) -> None:
    document = shown(table, "eod")
    assert document["to"]["snapshot_id"] == "3"
    assert document["relation"] == "ancestor"
    assert (document["files"], document["rows"]["net"]) == ({"added": 2, "removed": 1}, 1)


def test_the_other_way_round_is_the_same_with_added_and_removed_changed(table: str) -> None:
    one, other = shown(table, "eod", "main"), shown(table, "main", "eod")
    assert other["relation"] == "descendant"
    assert (one["files"]["added"], one["files"]["removed"]) == (
        other["files"]["removed"],
        other["files"]["added"],
    )
    assert one["rows"]["net"] == -other["rows"]["net"]


def test_a_state_with_itself_has_no_difference(table: str) -> None:
    document = shown(table, "main", "3")
    assert document["relation"] == "same"
    assert document["rows"] == {"added": 0, "removed": 0, "net": 0}
    assert run("inspect", table, "diff", "main", "3").out.startswith("No difference\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["diff"], "diff compares two states, and none is named"),
        (["diff", "edo"], "Did you mean 'eod'?"),
        (["diff", "99"], "'99' is no ref, snapshot id or time"),
        (["diff", "7d"], "The snapshot log does not say"),
        (["diff", "eod", "--ref", "main"], "not by an option"),
        (["diff", "eod", "--limit", "3"], "its partitions"),
        (["diff", "eod", "--jsonl"], "its partitions"),
        (["diff", "eod", "--check"], "--check is about the whole table"),
        (["files", "eod"], "files takes no 'eod'"),
        (["files", "--by-partition"], "--by-partition is about diff"),
        (["--jsonl"], "a summary has none"),
        (["files", "--jsonl", "--format", "json"], "give one of them"),
        (["files", "--jsonl", "-o", "x.jsonl"], "give one of them"),
        (["files", "-o", "-", "--format", "json"], "give one of them"),
    ],
)
def test_what_makes_no_sense_is_refused(table: str, arguments: list[str], says: str) -> None:
    ran = run("inspect", table, *arguments)
    assert ran.code == 2, ran.out + ran.err
    assert says in ran.out + ran.err


# -- how many rows are seen more or fewer ---------------------------------------------------------------------------


def net(folder: Path, before: int, after: int) -> int | None:
    found: int | None = shown(folder, before, after)["rows"]["net"]
    assert shown(folder, after, before)["rows"]["net"] == (None if found is None else -found)
    return found


def test_a_position_delete_that_stays_when_its_data_file_goes_leaves_the_rows_unknown(tmp_path: Path) -> None:
    """`a` shows 8 of its 10 rows, and so does `b` that takes its place: nothing in the difference tells that."""
    table = a_table(tmp_path, format_version=2)
    table.data("a", 10)
    table.commit(1)
    table.positions("p", {"a": [1, 2]})
    table.commit(2)
    table.remove("a")
    table.data("b", 8)
    table.commit_and_publish(3)
    assert net(tmp_path, 2, 3) is None
    assert net(tmp_path, 1, 2) is None


def test_older_deletes_do_not_hide_appended_rows(tmp_path: Path) -> None:
    table = a_table(tmp_path, format_version=2)
    table.data("a", 10)
    table.commit(1)
    table.positions("p", {"a": [1, 2]})
    table.equality("e")
    table.commit(2)
    table.data("b", 8)
    table.commit_and_publish(3)
    assert net(tmp_path, 2, 3) == 8


def test_a_deletion_vector_that_both_have_hides_rows_of_the_file_that_one_has(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    table.data("a", 10)
    table.data("c", 5)
    table.commit(1)
    table.vectors("v", {"a": [1, 2], "c": [0]})
    table.commit(2)
    table.remove("a", vectors=False)
    table.data("b", 9)
    table.commit_and_publish(3)
    assert net(tmp_path, 1, 2) == -3
    assert net(tmp_path, 2, 3) == 9 - (10 - 2)
    assert net(tmp_path, 1, 3) == (9 + 4) - 15


def test_a_deletion_vector_that_goes_alone_leaves_the_rows_unknown(tmp_path: Path) -> None:
    """It hid rows that are seen again, or was of a data file that had gone before."""
    table = a_table(tmp_path)
    table.data("a", 10)
    table.data("b", 10)
    table.commit(1)
    table.vectors("v", {"a": [1, 2]})
    table.commit(2)
    table._drop_vectors({table.path("a")})
    table.commit_and_publish(3)
    assert net(tmp_path, 2, 3) is None
    assert net(tmp_path, 1, 3) == 0


def test_text_begins_with_the_verdict(table: str) -> None:
    out = run("inspect", table, "diff", "eod").out.splitlines()
    assert out[0] == "2 files added, 1 removed: +1 row, +100 B"
    assert "The first is an ancestor of the second." in out


@pytest.mark.parametrize("what", ["snapshots", "refs", "files", "manifests", "partitions", "row-ids"])
def test_rows_as_lines_are_those_of_the_document(table: str, what: str) -> None:
    known = run("inspect", table, what, "--format", "json").json["rows"]
    for option in (["--jsonl"], ["-o", "-"]):
        ran = run("inspect", table, what, *option)
        assert (ran.code, ran.err) == (0, "")
        assert [json.loads(line) for line in ran.out.splitlines()] == known


def test_findings_are_lines_too(table: str) -> None:
    ran = run("inspect", table, "--check", "--jsonl")
    document = run("inspect", table, "--check", "--format", "json")
    assert (ran.code, document.code) == (15, 15)
    assert [json.loads(line) for line in ran.out.splitlines()] == document.json["findings"]


@pytest.mark.parametrize("offset", [None, 4], ids=["a vector at no place", "a vector"])
def test_a_delete_that_cannot_be_applied_leaves_the_rows_unknown(tmp_path: Path, offset: int | None) -> None:
    made = a_table(tmp_path, {"a": 10}, format_version=3)
    made.vectors("p", {"a": {1, 2}})
    made.added[-1] |= {"content_offset": offset}
    made.commit_and_publish(2)
    first, second = (each["snapshot-id"] for each in made.document["snapshots"])
    ran = run("inspect", made.location, "diff", first, second, "--format", "json")
    assert ran.json["rows"]["net"] == (-2 if offset else None)
    assert ("1 delete cannot be applied" in ran.err) is (offset is None), ran.err
