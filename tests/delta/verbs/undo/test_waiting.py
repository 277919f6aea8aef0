"""A VACUUM that waits is taken back: its files stay, and the log says that it failed, as Delta Spark has it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as PeerTable
from deltalake import write_deltalake

from tests.cli.lakes import AS_OF, delta_with_removed_files, listing, old_files
from tests.cli.running import Ran, expire, iceberg_cli

FILES = ["a.parquet", "b.parquet", "nobody.parquet"]


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """A table with the live file `a`, one that was removed, and one that nobody names."""
    table = tmp_path / "visits"
    delta_with_removed_files(table, "b")
    old_files(table, "nobody.parquet")
    return table


def names(table: Path) -> list[str]:
    return sorted(path.name for path in table.glob("*.parquet"))


def undo(table: Path, *words: object) -> Ran:
    return iceberg_cli("undo", table, *words, "--yes", "--format", "json")


def commit_infos(table: Path) -> list[dict[str, Any]]:
    """Those of the log, oldest first."""
    logged = sorted((table / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for path in logged for line in path.read_text().splitlines()]
    return [line["commitInfo"] for line in lines if "commitInfo" in line]


def history(table: Path) -> list[dict[str, Any]]:
    ran = iceberg_cli("history", table, "--format", "json")
    assert ran.code == 0, ran.err
    rows: list[dict[str, Any]] = ran.json["operations"]
    return rows


def test_the_log_says_that_it_failed_and_the_files_stay(visits: Path) -> None:
    waiting = expire(str(visits), *AS_OF, "--grace", "1h").json
    assert waiting["undo"] == {
        "possible": True, "until_ms": waiting["waits_until_ms"], "until": waiting["waits_until"],
        "reason": "its files wait for their grace",
    }  # fmt: skip
    (listed,) = iceberg_cli("resume", visits, "--list", "--format", "json").json["operations"]
    assert listed["undo"] == waiting["undo"]
    ran = undo(visits)
    assert (ran.code, ran.json["status"]) == (0, "done"), ran.out
    assert ran.json["undone"] == {
        "operation_id": waiting["operation_id"], "operation": "expire-snapshots",
    }  # fmt: skip
    assert names(visits) == FILES
    start, end = commit_infos(visits)[-2:]
    assert start["operation"] == "VACUUM START"
    # As `logVacuumEnd` of Delta Spark's VacuumCommand, and Trino's, where files could not be deleted.
    assert (end["operation"], end["operationParameters"]) == ("VACUUM END", {"status": "FAILED"})
    assert end["operationMetrics"] == {"numDeletedFiles": "0", "numVacuumedDirectories": "0"}
    assert not (visits / "_delta_log" / "_last_vacuum_info").exists()
    peer = PeerTable(str(visits))
    assert [Path(path).name for path in peer.file_uris()] == ["a.parquet"]
    assert [each["operation"] for each in peer.history()][:2] == ["VACUUM END", "VACUUM START"]
    own, theirs = history(visits)
    assert (own["operation"], own["undo"]["possible"]) == ("undo", False)
    assert (theirs["status"], theirs["undone_by"]) == ("undone", ran.json["operation_id"])
    removals = theirs["removals"]
    assert (removals["count"], removals["bytes"]) == (2, 8)
    plan = iceberg_cli("expire-snapshots", visits, *AS_OF, "--dry-run", "--format", "json").json
    assert removals == {name: plan["removals"][name] for name in ("count", "bytes", "digest")}
    assert own["removals"] is None


def test_nothing_of_it_goes_later_and_the_next_run_finds_the_files_again(visits: Path) -> None:
    expire(str(visits), *AS_OF, "--grace", "300ms")
    plan = iceberg_cli("undo", visits, "--dry-run", "--format", "json").json
    assert any("deletes these 2 files again" in each for each in plan["warnings"])
    assert undo(visits).code == 0
    time.sleep(0.4)
    before = listing(visits)
    assert iceberg_cli("resume", visits).code == 0
    assert listing(visits) == before
    assert (
        names(visits),
        iceberg_cli("resume", visits, "--list", "--format", "json").json["operations"],
    ) == (
        FILES,
        [],
    )
    report = expire(str(visits), *AS_OF).json
    assert (report["status"], names(visits)) == ("done", ["a.parquet"])
    assert [each["operation"] for each in commit_infos(visits)][-4:] == [
        "VACUUM START", "VACUUM END", "VACUUM START", "VACUUM END",
    ]  # fmt: skip


def test_what_a_lite_vacuum_goes_on_from_stays_as_it_is(visits: Path) -> None:
    record = visits / "_delta_log" / "_last_vacuum_info"
    record.write_text('{"latestCommitVersionOutsideOfRetentionWindow":0}')
    expire(str(visits), *AS_OF, "--mode", "lite", "--grace", "1h")
    assert undo(visits).code == 0
    assert record.read_text() == '{"latestCommitVersionOutsideOfRetentionWindow":0}'
    assert names(visits) == FILES


def test_rows_that_come_after_it_are_kept_and_read_by_delta_rs(tmp_path: Path) -> None:
    table = tmp_path / "clicks"
    write_deltalake(table, pa.table({"i": [1, 2]}))
    write_deltalake(table, pa.table({"i": [3]}), mode="overwrite")
    expire(str(table), "--retention", "0s", "--unsafe-allow-short-retention", "--grace", "1h")
    write_deltalake(table, pa.table({"i": [4]}), mode="append")
    assert undo(table).code == 0
    peer = PeerTable(str(table))
    assert sorted(peer.to_pyarrow_table()["i"].to_pylist()) == [3, 4]
    operations = [each["operation"] for each in peer.history()]
    assert (operations[0], operations[2]) == ("VACUUM END", "VACUUM START")
    # Whoever goes back finds the old files, which is what taking it back is for.
    assert sorted(PeerTable(str(table), version=0).to_pyarrow_table()["i"].to_pylist()) == [1, 2]
    peer.restore(0)
    assert sorted(PeerTable(str(table)).to_pyarrow_table()["i"].to_pylist()) == [1, 2]


def test_what_is_deleted_does_not_come_back(visits: Path) -> None:
    report = expire(str(visits), *AS_OF).json
    assert report["undo"]["possible"] is False
    before = listing(visits)
    for named in ((), (report["operation_id"],)):
        ran = undo(visits, *named)
        assert (ran.code, "its files are deleted: --grace has them wait" in ran.out) == (11, True)
    assert listing(visits) == before


def test_an_operation_is_taken_back_once(visits: Path) -> None:
    waiting = expire(str(visits), *AS_OF, "--grace", "1h").json
    assert undo(visits, waiting["operation_id"]).code == 0
    before = listing(visits)
    again = undo(visits, waiting["operation_id"])
    assert (again.code, "it is taken back already by operation" in again.out) == (11, True)
    assert (undo(visits).code, listing(visits)) == (11, before)
    assert undo(visits, "no-such-operation").code == 2


@pytest.mark.parametrize(
    ("verb", "words", "reason"),
    [
        ("rewrite-manifests", ("--checkpoint", "classic"), "change nothing that readers see"),
        ("upgrade-v3", ("--feature", "deletionVectors"), "clients have seen the features"),
        ("rewrite-data-files", ("--rewrite-all", "--processes", "1"), "`restore --to N`"),
    ],
)
def test_what_has_no_way_back_says_what_does_it_instead(
    tmp_path: Path, verb: str, words: tuple[str, ...], reason: str
) -> None:
    table = tmp_path / "clicks"
    for number in range(3):
        write_deltalake(table, pa.table({"i": [number]}), mode="append")
    done = iceberg_cli(verb, table, *words, "--yes", "--format", "json")
    assert (done.code, done.json["status"], done.json["undo"]["possible"]) == (0, "done", False), done.out
    before = listing(table)
    ran = undo(table, done.json["operation_id"])
    assert (ran.code, reason in ran.out) == (11, True), ran.out
    assert listing(table) == before
