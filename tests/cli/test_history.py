"""`history`: what this program did to a table, as text and as a document, and what of it cannot be read."""

from __future__ import annotations

import getpass
import json
import socket
from pathlib import Path

import pytest

import iceberg_cli as ic
from iceberg_cli.operation.journal import Journal
from iceberg_cli.operation.records import Close
from iceberg_cli.storage.local import LocalStorage
from tests.cli.running import iceberg_cli, validate
from tests.journals import bodies


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    assert iceberg_cli("demo", tmp_path / "demo", "-q").code == 0
    return tmp_path / "demo" / "db"


def run(verb: str, table: Path, *options: str) -> None:
    ran = iceberg_cli(verb, table, *options, "--yes", "-q")
    assert ran.code == 0, ran.err


def past(table: Path, *options: str) -> list[tuple[str, str]]:
    """Verb and status of each operation that is shown."""
    document = iceberg_cli("history", table, *options, "--format", "json").json
    validate(document)
    return [(each["operation"], each["status"]) for each in document["operations"]]


@pytest.mark.parametrize(
    ("name", "expire"), [("events", ("--older-than", "1d")), ("visits", ())], ids=["iceberg", "delta"]
)
def test_newest_first_with_who_and_when_and_where_the_commits_are(
    name: str, expire: tuple[str, ...], demo: Path
) -> None:
    table = demo / name
    assert past(table) == []
    assert iceberg_cli("history", table).out == "No operation of this program.\n"
    run("rewrite-manifests", table)
    before = {str(path) for path in table.rglob("*") if path.is_file()}
    run("expire-snapshots", table, *expire)
    gone = before - {str(path) for path in table.rglob("*")}
    assert past(table) == [("expire-snapshots", "done"), ("rewrite-manifests", "done")]
    newest, _ = iceberg_cli("history", table, "--format", "json").json["operations"]
    assert newest["actor"] == f"{getpass.getuser()}@{socket.gethostname()}"
    assert newest["started_ms"] <= newest["finished_ms"]
    assert newest["deleted_files_count"] == len(gone) > 0
    assert all(Path(path).is_file() for path in newest["committed"])
    assert len(newest["committed"]) == (2 if name == "visits" else 1)  # VACUUM START and END
    assert past(table, "--limit", "1") == [("expire-snapshots", "done")]
    assert past(table, "--operation", "rewrite-manifests") == [("rewrite-manifests", "done")]
    assert past(table, "--operation", "merge-dvs") == []


def test_what_is_open_stands_first_and_what_found_nothing_to_do_nowhere(demo: Path) -> None:
    table = demo / "events"
    run("rewrite-manifests", table)
    run("rewrite-manifests", table)
    run("expire-snapshots", table, "--older-than", "1d", "--limit-deletes", "1")
    assert past(table) == [("expire-snapshots", "sweeping"), ("rewrite-manifests", "done")]
    (open_one, _) = iceberg_cli("history", table, "--format", "json").json["operations"]
    assert (open_one["finished_ms"], open_one["deleted_files_count"]) == (None, 1)
    ran = iceberg_cli("resume", table, "--abandon")
    assert ran.code == 0, ran.err
    assert past(table) == [("expire-snapshots", "abandoned"), ("rewrite-manifests", "done")]


def test_one_whose_journal_is_closed_and_not_deleted_yet_is_over(demo: Path) -> None:
    table = demo / "events"
    run("rewrite-manifests", table)
    run("expire-snapshots", table, "--older-than", "1d", "--limit-deletes", "1")
    (folder,) = (table / "_iceberg_cli" / "ops").iterdir()
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert iceberg_cli("resume", table, "-q").code == 0
    assert past(table)[0] == ("expire-snapshots", "done")
    folder.mkdir(parents=True)
    for name, data in kept.items():
        (folder / name).write_bytes(data)
    journal = Journal.load(LocalStorage(), str(table), folder.name)
    closing = Close(status="done", begin=bodies(journal, "begin")[0], at_ms=1)
    journal.append(closing)
    found = past(table)
    assert (found[0], len(found)) == (("expire-snapshots", "done"), 2)


def test_looking_writes_nothing(demo: Path) -> None:
    table = demo / "events"
    run("rewrite-manifests", table)
    before = sorted(table.rglob("*"))
    assert past(table) == [("rewrite-manifests", "done")]
    assert sorted(table.rglob("*")) == before


def test_a_record_that_cannot_be_read_is_named_and_the_others_are_shown(demo: Path) -> None:
    table = demo / "events"
    run("rewrite-manifests", table)
    damaged = table / "_iceberg_cli" / "history" / "9-merge-dvs-x.json"
    damaged.write_text("{")
    ran = iceberg_cli("history", table)
    assert ran.code == 15
    assert "rewrite-manifests" in ran.out
    assert str(damaged) in ran.err
    ran = iceberg_cli("history", table, "--format", "json")
    assert ran.code == 15
    validate(ran.json)
    assert [str(damaged) in each for each in ran.json["unreadable"]] == [True]
    run("expire-snapshots", table, "--older-than", "1d")  # nothing else minds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--operation", "expire"), "--operation must be one of"),
        (("--limit", "0"), "--limit must be at least 1, and is 0"),
        (("--limit", "few"), "few"),
    ],
)
def test_what_has_no_meaning_is_refused(options: tuple[str, ...], message: str, demo: Path) -> None:
    ran = iceberg_cli("history", demo / "events", *options)
    assert ran.code == 2
    assert message in ran.err


def test_a_program_says_who_it_is(demo: Path) -> None:
    table = ic.open_table(str(demo / "events"))
    table.apply(table.plan(ic.iceberg.RewriteManifests()), runtime=ic.new_runtime(actor="airflow: nightly"))
    history = table.history()
    assert [each.actor for each in history.operations] == ["airflow: nightly"]
    assert history.unreadable == ()
    assert table.history(operation="merge-dvs", limit=3).operations == ()


def test_a_journal_of_a_newer_program_is_told_beside_the_others(demo: Path) -> None:
    table = demo / "events"
    run("rewrite-manifests", table)
    run("expire-snapshots", table, "--older-than", "1d", "--limit-deletes", "1")
    (first,) = (table / "_iceberg_cli" / "ops").glob("*/000000.json")
    first.write_text(json.dumps({"kind": "begin", "previous": "", "body": {}}))
    ran = iceberg_cli("history", table)
    assert ran.code == 15
    assert "rewrite-manifests" in ran.out
    assert "expire-snapshots" not in ran.out
