"""`iceberg-cli.grace`: a table asks that its files wait, whichever verb deletes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iceberg_cli.testing.delta_writer import NOW_MS, a_metadata, a_protocol, a_remove, an_add, write_log
from tests.builders import DAY_MS, HOUR_MS
from tests.cli.lakes import AS_OF, AS_OF_MS, GONE, delta_with_removed_files, four_snapshots, old_files
from tests.cli.running import dry, expire, iceberg_cli

ASKED = {"iceberg-cli.grace": "2h"}


def grace_of(table: str) -> tuple[int, str]:
    """The grace of a plan, and where it comes from."""
    plan = dry(table, *AS_OF)
    option = plan["options"]["grace_ms"]
    assert plan["grace_ms"] == option["value"]
    return option["value"], option["source"]


@pytest.mark.parametrize("of_all_tables", [None, "1h"])
def test_files_wait_as_long_as_their_table_asks(
    of_all_tables: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a variable, which says it for all tables, asks for less."""
    if of_all_tables is not None:
        monkeypatch.setenv("ICEBERG_CLI_GRACE", of_all_tables)
    table = four_snapshots(tmp_path / "t", properties=ASKED)
    name = table.publish()
    assert grace_of(name) == (2 * HOUR_MS, "table property iceberg-cli.grace")
    with table.loses(set()):
        report = expire(name, *AS_OF).json
    assert report["status"] == "waiting"
    (waiting,) = iceberg_cli("resume", name, "--list", "--format", "json").json["operations"]
    assert 0 <= waiting["grace_until_ms"] - waiting["started_ms"] - 2 * HOUR_MS < 60_000


def test_the_command_line_says_otherwise(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t", properties=ASKED)
    name = table.publish()
    with table.loses(GONE):
        assert expire(name, *AS_OF, "--grace", "0s").json["status"] == "done"


def test_who_asks_for_more_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICEBERG_CLI_GRACE", "3h")
    name = four_snapshots(tmp_path / "t", properties=ASKED).publish()
    assert grace_of(name) == (3 * HOUR_MS, "variable ICEBERG_CLI_GRACE")


def test_orphans_wait_too(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t", properties=ASKED)
    name = table.publish()
    orphan = tmp_path / "t" / "data" / "orphan.parquet"
    orphan.write_bytes(b"PAR1")
    os.utime(orphan, (1_700_000_000, 1_700_000_000))
    ran = iceberg_cli("remove-orphan-files", name, "--yes", "--format", "json")
    assert (ran.code, ran.json["status"]) == (0, "waiting"), ran
    assert orphan.exists()


def test_files_of_a_delta_table_wait_likewise(tmp_path: Path) -> None:
    name = delta_with_removed_files(tmp_path / "t", "gone")
    write_log(
        tmp_path / "t",
        [
            a_protocol(),
            a_metadata(configuration=ASKED),
            an_add(path="a.parquet"),
            an_add(path="gone.parquet"),
        ],
        [a_remove(path="gone.parquet", deletionTimestamp=AS_OF_MS - 20 * DAY_MS)],
        age_ms=NOW_MS - AS_OF_MS + 20 * DAY_MS,
    )
    old_files(tmp_path / "t", "a.parquet", "gone.parquet")
    report = expire(name, *AS_OF).json
    assert (report["status"], report["waiting_files_count"]) == ("waiting", 1)
    assert (tmp_path / "t" / "gone.parquet").exists()


def test_what_is_no_duration_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t", properties={"iceberg-cli.grace": "a day"})
    name = table.publish()
    with table.loses(set()):
        ran = iceberg_cli("expire-snapshots", name, *AS_OF, "--yes")
    assert ran.code == 2
    assert "table property iceberg-cli.grace: 'a day' is no duration" in ran.err
