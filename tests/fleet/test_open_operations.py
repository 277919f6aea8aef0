"""`resume` and `resume --list` of many tables, and until when files wait for their grace."""

from __future__ import annotations

import shutil
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.cli.terminal import stopping
from iceberg_cli.fleet.listing import ListedTable
from iceberg_cli.fleet.opening import TableOpener
from tests.cli.running import iceberg_cli
from tests.referee.iceberg import Table

DAY_MS = 86_400_000
NOW_MS = 1_790_000_000_000
EXPIRY = ("--older-than", "1s", "--retain-last", "1", "--yes", "--format", "json")


def files_of(table: Path) -> set[Path]:
    """The table's own files."""
    return {path for path in table.rglob("*") if path.is_file() and "_iceberg_cli" not in path.parts}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A table whose expiry was stopped after one deletion, one whose files wait for a day, and one without either."""
    for name in ("stopped", "waiting", "quiet"):
        table = Table(tmp_path / "lake" / name, version=2, seed=len(name), now_ms=NOW_MS)
        for _ in range(4):
            table.append()
    assert iceberg_cli("expire-snapshots", tmp_path / "lake/stopped", *EXPIRY, "--limit-deletes", 1).code == 0
    return tmp_path / "lake"


@pytest.fixture
def waits(lake: Path) -> tuple[int, int]:
    """The bounds of the time until which the files of `waiting` wait, in ms since the epoch."""
    before_ms = time.time_ns() // 1_000_000  # noqa: TID251 - a grace is by the clock
    ran = iceberg_cli("expire-snapshots", lake / "waiting", *EXPIRY, "--grace", "1d")
    after_ms = time.time_ns() // 1_000_000  # noqa: TID251 - a grace is by the clock
    assert ran.json["status"] == "waiting"
    assert before_ms <= ran.json["waits_until_ms"] - DAY_MS <= after_ms
    return before_ms + DAY_MS, after_ms + DAY_MS


def test_operations_of_all_tables_of_a_pattern_are_listed(lake: Path, waits: tuple[int, int]) -> None:
    ran = iceberg_cli("resume", lake, "--list", "--format", "json")
    assert ran.code == 0
    assert [(each["table"]["name"], each["operation"], each["state"]) for each in ran.json["operations"]] == [
        (f"{lake}/stopped", "expire-snapshots", "sweeping"),
        (f"{lake}/waiting", "expire-snapshots", "waiting"),
    ]
    stopped, waiting = ran.json["operations"]
    assert stopped["grace_until_ms"] is None
    assert waits[0] <= waiting["grace_until_ms"] <= waits[1]
    until = datetime.fromtimestamp(waiting["grace_until_ms"] // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    listed = " ".join(iceberg_cli("resume", f"{lake}/*", "--list").out.split())
    assert f"its files wait for their grace (3 files, 3.4 KiB, until {until})" in listed
    looked = iceberg_cli("inspect", lake / "waiting").out.splitlines()
    line = next(each for each in looked if "open operation" in each and waiting["operation_id"] in each)
    assert line.strip().endswith(
        f"(expire-snapshots): committed; its files wait for their grace (3 files, 3.4 KiB, until {until})"
    )
    summary = iceberg_cli("inspect", lake / "waiting", "--format", "json").json
    assert summary["open_operations"] == [waiting["operation_id"]]
    assert summary["operations"][0]["grace_until_ms"] == waiting["grace_until_ms"]


def test_a_survey_and_a_list_count_them_whether_or_not_a_table_is_opened(lake: Path) -> None:
    counts = {f"{lake}/quiet": 0, f"{lake}/stopped": 1, f"{lake}/waiting": 0}
    for from_cache in (False, True):
        ran = iceberg_cli("survey", lake, "--format", "json")
        assert {each["table"]["name"]: each["open_operations"] for each in ran.json["tables"]} == counts
        assert [each["from_cache"] for each in ran.json["tables"]] == [from_cache] * 3
        assert ran.json["totals"]["open_operations"] == 1
    listed = iceberg_cli("list", lake, "--verbose", "--format", "json").json["tables"]
    assert {each["name"]: each["open_operations"] for each in listed} == counts
    assert iceberg_cli("list", lake, "--format", "json").json["tables"][0]["open_operations"] is None


def test_all_that_can_be_settled_is_and_what_a_run_deleted_is_counted_by_itself(
    lake: Path, waits: tuple[int, int]
) -> None:
    shutil.copytree(lake / "quiet", lake / "broken")
    newest = max((lake / "broken" / "metadata").glob("v*.metadata.json"))
    newest.write_bytes(newest.read_bytes()[:-20])
    before = {name: files_of(lake / name) for name in ("stopped", "waiting", "quiet")}

    ran = iceberg_cli("resume", f"{lake}/*", "--format", "json")
    assert ran.code == 15
    assert [(each["name"], each["exit_code"]) for each in ran.json["failed"]] == [(f"{lake}/broken", 15)]
    stopped, waiting = ran.json["reports"]
    assert (stopped["table"]["name"], stopped["status"]) == (f"{lake}/stopped", "done")
    assert (waiting["table"]["name"], waiting["status"]) == (f"{lake}/waiting", "waiting")
    assert waits[0] <= waiting["waits_until_ms"] <= waits[1]

    gone = before["stopped"] - files_of(lake / "stopped")
    deleted = sum(number for name, number in stopped.items() if name.startswith("deleted_"))
    assert stopped["earlier_deleted_files_count"] == 1
    assert deleted == len(gone) + 1
    assert 0 < stopped["earlier_reclaimed_bytes"] < stopped["reclaimed_bytes"]
    assert files_of(lake / "waiting") == before["waiting"]
    assert files_of(lake / "quiet") == before["quiet"]
    again = iceberg_cli("resume", lake / "stopped")
    assert (again.code, again.out.strip()) == (0, "No open operation.")


def test_a_report_says_what_was_deleted_now_and_in_all(lake: Path) -> None:
    before = files_of(lake / "stopped")
    first = iceberg_cli("resume", lake, "--limit-deletes", 1).out
    assert "1 file deleted now, 2 in all" in first
    last = iceberg_cli("resume", lake).out
    assert len(before - files_of(lake / "stopped")) == 2
    assert "1 file deleted now, 3 in all" in last


def test_a_signal_ends_it_also_among_tables_without_operations(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    open_table = TableOpener.open

    def hear(self: TableOpener, listed: ListedTable, **options: Any) -> Any:
        opened.append(listed.name)
        monkeypatch.setattr(stopping, "heard", lambda: signal.SIGTERM)
        return open_table(self, listed, **options)

    monkeypatch.setattr(TableOpener, "open", hear)
    ran = iceberg_cli("resume", f"{lake}/*")
    assert opened == [f"{lake}/quiet"]
    assert (ran.code, ran.err) == (
        143,
        "Stopped by SIGTERM. Nothing was changed. Run the same command again.\n",
    )


@pytest.mark.parametrize("words", [("--abandon",), ("01a226a1-dd0a-7c1c-9900-3c443f63dc5a",)])
def test_what_is_about_one_table_is_refused_of_many(lake: Path, words: tuple[str, ...]) -> None:
    before = files_of(lake)
    ran = iceberg_cli("resume", f"{lake}/*", *words)
    assert ran.code == 2
    assert "means many" in ran.err
    assert files_of(lake) == before


def test_a_name_that_is_no_table_and_has_none_below_it_is_not_found(lake: Path) -> None:
    (lake / "empty").mkdir()
    ran = iceberg_cli("resume", lake / "empty")
    assert ran.code == 10
    assert f"no table at {lake}/empty" in " ".join(ran.err.split()).replace("Cannot find a table", "no table")
