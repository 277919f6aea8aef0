"""`inspect --check` as it is typed: what it looks at, how it goes on, what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import iceberg_cli as ic
from iceberg_cli.plan.findings import EXAMPLES
from iceberg_cli.storage.router import open_storage
from tests.builders import HOUR_MS, TableWriter, a_tag
from tests.check_tables import Sound
from tests.cli.lakes import delta_with_removed_files, edited, listing
from tests.cli.running import Ran
from tests.cli.running import iceberg_cli as run
from tests.delete_tables import a_table, puffin
from tests.hazard_tables import Hazard, entry
from tests.iceberg.check.compaction_tables import CompactedTable
from tests.iceberg.verbs.rewrite_data_files.tables import N
from tests.servers import S3Server


def check(table: object, *arguments: object) -> Ran:
    return run("inspect", table, "--check", *arguments, "--format", "json")


def stated(ran: Ran) -> set[tuple[str, str]]:
    """Rule and file name of each finding."""
    return {(finding["id"], Path(finding["where"]).name) for finding in ran.json["findings"]}


def a_written_table(folder: Path) -> TableWriter:
    """Snapshot 1 with `a`, tagged; 2 with `b` too on main; 3 with `c` on branch audit. Sizes are true."""
    writer = TableWriter(storage=open_storage(), location=str(folder))
    writer.commit(1, age_ms=5 * HOUR_MS, add=["a"])
    writer.commit(2, age_ms=3 * HOUR_MS, add=["b"])
    writer.commit(3, age_ms=1 * HOUR_MS, add=["c"], ref="audit")
    writer.set_ref("eod", a_tag(1))
    for path in (folder / "data").iterdir():
        path.write_bytes(bytes(100))
    writer.publish("v1.metadata.json")
    return writer


def test_the_heads_of_all_branches_and_tags_are_checked(tmp_path: Path) -> None:
    location = a_written_table(tmp_path / "t").location
    ran = check(location)
    assert (ran.code, ran.json["findings"]) == (0, [])
    assert sorted(ran.json["snapshot_ids"]) == ["1", "2", "3"]
    assert ran.json["checked"] == {"snapshots": 3, "manifests": 3, "files": 3}


def test_what_is_broken_on_a_branch_is_seen_from_the_branch_alone(tmp_path: Path) -> None:
    location = a_written_table(tmp_path / "t").location
    (tmp_path / "t/data/c.parquet").unlink()
    lost = {("file-missing", "c.parquet")}
    assert stated(check(location)) == lost
    assert stated(check(location, "--ref", "audit")) == lost
    assert stated(check(location, "--snapshot", 3)) == lost
    ran = check(location, "--ref", "main")
    assert (ran.code, stated(ran), ran.json["snapshot_ids"]) == (0, set(), ["2"])


def test_an_empty_path_of_a_manifest_list_is_damage_and_not_another_storages_file(tmp_path: Path) -> None:
    location = a_written_table(tmp_path / "t").location
    with edited(tmp_path / "t/metadata/v1.metadata.json") as document:
        document["snapshots"][-1]["manifest-list"] = ""
    ran = check(location)
    assert (ran.code, [finding["id"] for finding in ran.json["findings"]]) == (
        15,
        ["manifest-list-unreadable"],
    )
    assert run("upgrade-v3", location, "--yes").code == 15


def test_a_file_that_cannot_be_read_is_a_finding_and_the_check_goes_on(tmp_path: Path) -> None:
    location = a_written_table(tmp_path / "t").location
    folder = tmp_path / "t"
    (folder / "metadata/1-m0.avro").write_bytes(b"no Avro")
    (folder / "metadata/snap-3.avro").unlink()
    (folder / "data/b.parquet").unlink()
    ran = check(location)
    assert ran.code == 15
    assert stated(ran) == {
        ("manifest-unreadable", "1-m0.avro"),
        ("manifest-list-missing", "snap-3.avro"),
        ("file-missing", "b.parquet"),
    }


def test_the_lists_of_snapshots_that_no_ref_names_must_be_there(tmp_path: Path) -> None:
    writer = TableWriter(storage=open_storage(), location=str(tmp_path / "t"))
    writer.commit(1)
    writer.commit(2)
    writer.publish("v1.metadata.json")
    (tmp_path / "t/metadata/snap-1.avro").unlink()
    assert stated(check(writer.location)) == {("manifest-list-missing", "snap-1.avro")}


def test_a_batch_of_manifests_with_a_bad_one_is_checked_to_the_last(tmp_path: Path) -> None:
    table = Hazard(location=str(tmp_path / "t"))
    paths = table.data("a", "b")
    good = table.manifest("good", entry(1, paths[0], file_size_in_bytes=11))
    bad = table.manifest("bad", entry(1, paths[1], content=1))
    table.snapshot(1, bad, good)
    table.publish(main=1)
    assert stated(check(table.location)) == {("manifest-unreadable", "bad.avro"), ("file-size-differs", "a")}


def test_of_each_rule_twenty_examples_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    table = Hazard(location=str(tmp_path / "t"))
    paths = [f"{table.location}/data/{number}" for number in range(EXAMPLES + 5)]
    table.snapshot(1, table.manifest("m", *(entry(1, path) for path in paths)))
    table.publish(main=1)
    ran = check(table.location)
    assert len(ran.json["findings"]) == EXAMPLES
    assert ran.json["left_out"] == {"file-missing": 5}
    assert ran.json["counts"] == {"error": EXAMPLES + 5, "warning": 0, "info": 0}


def test_findings_say_where_what_why_and_what_to_do(tmp_path: Path) -> None:
    location = a_written_table(tmp_path / "t").location
    (tmp_path / "t/data/c.parquet").unlink()
    ran = run("inspect", location, "--check")
    assert ran.code == 15
    for text in (
        "error: file-missing (1)",
        f"{location}/data/c.parquet: a live file, and the storage has none",
        "specification: File System Operations",
        "to do: Restore the file",
        "checked 3 snapshots, 3 manifests, 3 files",
        "1 error found",
    ):
        assert text in ran.out
    quiet = run("inspect", location, "--check", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (15, "", ran.out)


def test_warnings_and_information_leave_with_zero(tmp_path: Path) -> None:
    table = Sound(folder=tmp_path / "t")
    table.vectors("all", {"b": {0, 1}})
    table.documents.append(lambda d: d["snapshots"][0]["summary"].pop("operation"))
    location = table.write()
    ran = check(location, "--deep")
    assert ran.code == 0
    quiet = run("inspect", location, "--check", "--deep", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert [finding["severity"] for finding in ran.json["findings"]] == ["warning", "info"]


@pytest.mark.parametrize(
    ("arguments", "stated"),
    [
        (["--deep"], "--deep is about --check"),
        (["--snapshots", "0"], "--snapshots is about --check"),
        (["--check", "--snapshots", "-1"], "--snapshots must be at least 0, not -1"),
        (["--check", "--snapshots", "all"], "--snapshots"),
        (["files", "--check"], "--check is about the whole table, not files"),
        (["--check", "--recount"], "--recount does not go with --check"),
        (["--check", "--limit", "3"], "--limit does not go with --check"),
        (["--check", "--output", "x.parquet"], "--output does not go with --check"),
        (["--check", "--ref", "nobody"], "no ref 'nobody'"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(
    tmp_path: Path, arguments: list[str], stated: str
) -> None:
    ran = run("inspect", a_written_table(tmp_path / "t").location, *arguments)
    assert ran.code == 2
    assert stated in ran.err


def compacted(folder: Path, times: int) -> CompactedTable:
    """Each compaction loses a row; that of before the last one has equality deletes in the way."""
    table = CompactedTable(storage=open_storage(), location=str(folder), format_version=2)
    table.numbers("o0", range(10))
    table.commit(1)
    for number in range(1, times + 1):
        if number == times - 1:
            table.equality_rows("e", [(N, [99])])
        table.remove(f"o{number - 1}")
        table.numbers(f"o{number}", range(10 - number), sequence_number=1 if number < times else number)
        if number == times:
            table.drop("e-eq-deletes")
        table.compact(number + 1)
    table.publish()
    return table


def test_what_compactions_did_is_printed_with_how_many_were_compared(tmp_path: Path) -> None:
    location = compacted(tmp_path / "t", 4).location
    ran = run("inspect", location, "--check", "--snapshots", 3)
    assert ran.code == 15
    text = " ".join(ran.out.split())
    for part in (
        "error: compaction-rows-missing (1)",
        "snapshot 3: 1 row went missing; committed at 2022-12-07T08:00:00Z by spark 4.1.4, Apache Iceberg 1.11.0,",
        "had 9 live rows and have 8. Its parent 2 is still there; branch main has 2 snapshots since: 2 replace.",
        "specification: Snapshots",
        "compared with their parents: 1 of 4; 1 older one not looked at: --snapshots N.",
        "not compared: snapshot 5: equality deletes reach files that it changed, and only --deep reads these",
        "not compared: snapshot 4: equality deletes reach files that it changed, and only --deep reads these",
    ):
        assert part in text, ran.out
    deep = check(location, "--deep")
    assert [(each["id"], each["where"]) for each in deep.json["findings"]] == [
        ("compaction-rows-missing", f"snapshot {number}") for number in (5, 4, 3, 2)
    ]
    assert deep.json["compactions"] == {"found": 4, "compared": 4, "not_compared": [], "left_out": 0}
    none = check(location, "--snapshots", 0)
    assert none.code == 0
    assert none.json["compactions"] == {"found": 4, "compared": 0, "not_compared": [], "left_out": 4}
    one = check(location, "--snapshot", 2)
    assert one.json["compactions"]["found"] == 1
    assert ic.open_table(location).check(snapshots=0).errors == 0


def test_only_tables_of_snapshots_have_them_compared(tmp_path: Path) -> None:
    delta = delta_with_removed_files(tmp_path / "d", "b")
    ran = run("inspect", delta, "--check", "--snapshots", 3)
    assert ran.code == 2
    assert "--snapshots is about the snapshots of Iceberg tables" in ran.err


def test_nothing_is_written_to_the_table(tmp_path: Path) -> None:
    location = Sound(folder=tmp_path / "t").write()
    before = listing(tmp_path)
    assert check(location, "--deep").code == 0
    assert listing(tmp_path) == before


def test_control_characters_of_a_table_do_not_reach_the_terminal(tmp_path: Path) -> None:
    table = Hazard(location=str(tmp_path / "t"))
    table.snapshot(1, table.manifest("m", entry(1, f"{table.location}/data/\x1b[2J\u202ex")))
    table.publish(main=1)
    out = run("inspect", table.location, "--check").out
    assert "\\u001b[2J\\u202ex" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("spelled", ["file://{}", "file:{}", "/{}", "/.{}"])
def test_another_spelling_of_the_same_scheme_is_the_same_file(tmp_path: Path, spelled: str) -> None:
    table = Sound(folder=tmp_path / "t", version=2)
    table.data[1]["file_path"] = spelled.format(table.path("b"))
    assert check(table.write(), "--deep").json["findings"] == []
    twice = Sound(folder=tmp_path / "twice", version=2)
    twice.data.append({**twice.data[1], "file_path": spelled.format(twice.path("b"))})
    assert {rule for rule, _ in stated(check(twice.write()))} == {"file-listed-twice"}


def test_one_key_in_two_buckets_is_two_files(tmp_path: Path, versitygw: S3Server) -> None:
    del tmp_path
    table, options = an_s3_table(versitygw, "buckets", "a")
    other = entry(1, f"s3://other/{table.location.split('/', 3)[3]}/data/a")
    table.snapshot(1, table.manifest("m", entry(1, f"{table.location}/data/a"), other))
    ran = check(table.publish(main=1), *options)
    assert stated(ran) == {("file-missing", "a")}
    assert ran.json["findings"][0]["where"].startswith("s3://other/")


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_objects_are_found_by_any_of_their_schemes_one_by_one_and_by_listing(
    versitygw: S3Server, scheme: str
) -> None:
    names = [f"f{number}" for number in range(250)]  # more than are asked for one by one
    table, options = an_s3_table(versitygw, f"check-{scheme}", *names[1:])
    folder = f"{scheme}{table.location.removeprefix('s3')}/data"
    for snapshot_id, some in ((1, names[:3]), (2, names)):
        entries = [entry(1, f"{folder}/{name}") for name in some]
        table.snapshot(snapshot_id, table.manifest(f"m{snapshot_id}", *entries))
    location = table.publish(main=2)
    assert stated(check(location, "--snapshot", 1, *options)) == {("file-missing", "f0")}
    assert stated(check(location, "--snapshot", 2, *options)) == {("file-missing", "f0")}


def an_s3_table(versitygw: S3Server, name: str, *data: str) -> tuple[Hazard, list[Any]]:
    storage = open_storage(versitygw.options)
    table = Hazard(location=f"s3://{versitygw.bucket}/check/{name}", storage=storage)
    versitygw.fill({f"check/{name}/data/{file}": b"ten bytes." for file in data})
    return table, [
        part for item in versitygw.options.items() for part in ("--storage-option", "=".join(item))
    ]


def test_many_vectors_of_many_files_are_held_against_their_own_data_file(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t")
    for number in range(30):
        table.data(f"d{number}", 1 + number)
    table.vectors("all", {f"d{number}": {number} for number in range(30)})
    table.commit(1)
    table.vectors("again", {"d7": {0, 8}, "d9": {9, 1}})
    table.commit_and_publish(2)
    rules = {
        (f["id"], f["message"].split(".parquet")[0].rsplit("/", 1)[-1])
        for f in check(table.location, "--deep").json["findings"]
        if f["id"].startswith("deletion-vector")
    }
    assert rules == {("deletion-vector-position-too-high", "d7")}


def test_a_puffin_file_with_one_bad_vector_names_that_one(tmp_path: Path) -> None:
    table = Sound(folder=tmp_path / "t")
    data, places = puffin({table.path("a"): {0}, table.path("b"): {1}})
    flipped = bytearray(data)
    flipped[places[1][1] + 25] ^= 4
    table.puffin("two", bytes(flipped), places)
    [finding] = check(table.write(), "--deep").json["findings"]
    assert finding["id"] == "deletion-vector-unreadable"
    assert "b.parquet" in finding["message"]
    assert "CRC-32" in finding["message"]
