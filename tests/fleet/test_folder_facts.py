"""What surveys keep of tables in folders: until the listing of a log or of metadata files is another one."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from iceberg_cli.fleet.facts import FactsStore
from iceberg_cli.fleet.listing import ListedTable
from iceberg_cli.fleet.opening import TableOpener
from iceberg_cli.fleet.survey import Survey
from tests.builders import DAY_MS
from tests.cli.lakes import AS_OF_MS
from tests.cli.running import JSON, iceberg_cli
from tests.fleet.builder import FIRST_MS, VERSIONS, Fleet, FleetTable, build_fleet
from tests.fleet.maintaining import policy_file
from tests.s3_front import s3_front
from tests.servers import Versitygw

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
OF_LOG = VERSIONS - 1  # commits that a checkpoint of the newest version stands for
WEEK_MS = 7 * DAY_MS  # for which a Delta table keeps removed files by default


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def delta(tmp_path: Path) -> Fleet:
    """One Delta table: two of its files were removed 56 days ago."""
    return build_fleet(tmp_path, {("folder", "delta"): 1})


@pytest.fixture
def iceberg(tmp_path: Path) -> Fleet:
    """One Iceberg table in a folder."""
    return build_fleet(tmp_path, {("folder", "iceberg"): 1})


def row_of(fleet: Fleet, as_of_ms: int = AS_OF_MS, *options: str) -> dict[str, Any]:
    """What a survey says of the only table."""
    ran = iceberg_cli("survey", *fleet.patterns, *fleet.options, "--as-of", as_of_ms, *options, *JSON)
    assert ran.code == 0, ran.err
    (row,) = ran.json["tables"]
    assert isinstance(row, dict)
    return row


def is_known(fleet: Fleet, as_of_ms: int = AS_OF_MS) -> bool:
    """Whether a survey tells it by what another one read."""
    return bool(row_of(fleet, as_of_ms)["from_cache"])


def freed_files(row: dict[str, Any]) -> int:
    """How many files an expiry takes."""
    (due,) = (each for each in row["due"] if each["operation"] == "expire-snapshots")
    return int(due["files"])


def put_old(path: Path, modified_ms: int, data: bytes = b"PAR1") -> None:
    """A file, last written at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, ns=(modified_ms * 1_000_000,) * 2)


def test_a_delta_table_whose_log_did_not_change_is_listed_once_and_nothing_of_it_is_read(
    tmp_path: Path, versitygw: Versitygw
) -> None:
    fleet = build_fleet(tmp_path, {("s3", "delta"): 3}, s3=versitygw)
    with s3_front(versitygw.endpoint, {}) as front:
        pattern = f"s3://{versitygw.bucket}/{fleet.namespace}/delta/*"
        through = ("--storage-option", f"endpoint_url={front.endpoint}")
        options = [pattern, *fleet.options, *through, "--as-of", AS_OF_MS, *JSON]
        first = iceberg_cli("survey", *options)
        front.requests.clear()
        again = iceberg_cli("survey", *options)
        urls = [urlsplit(request.path) for request in front.requests]
        vouched = iceberg_cli("survey", *options, "--unsafe-conditional-writes")
    assert (first.code, again.code, vouched.code) == (0, 0, 0), again.err
    blocked = [
        [bool(each["blocked_by"]) for table in ran.json["tables"] for each in table["due"]]
        for ran in (again, vouched)
    ]
    assert blocked == [[True] * len(blocked[0]), [False] * len(blocked[0])]
    assert [each["from_cache"] for each in again.json["tables"]] == [True] * 3
    assert [each["due"] for each in again.json["tables"]] == [each["due"] for each in first.json["tables"]]
    queries = [parse_qs(url.query, keep_blank_values=True) for url in urls]
    of_tables = Counter(query.get("prefix", [url.path])[0] for query, url in zip(queries, urls, strict=True))
    names = {f"{fleet.namespace}/delta/t{number:03d}/" for number in range(3)}
    # The first for whoever looks for tables below the prefix: it shows what kind of table there is.
    assert {name: n for name, n in of_tables.items() if "/t0" in name} == {
        **dict.fromkeys(names, 1),
        **{f"{name}_delta_log/": 1 for name in names},
        **{f"{name}_iceberg_cli/ops/": 1 for name in names},
    }


def test_a_file_that_came_after_the_listing_is_seen_once_it_may_be_due(delta: Fleet) -> None:
    (table,) = delta.tables
    first = table.folder / "_delta_log" / f"{0:020}.json"
    kept = b'"configuration":{"delta.deletedFileRetentionDuration":"interval 30 minutes"}'
    put_old(first, FIRST_MS, first.read_bytes().replace(b'"configuration":{}', kept))
    now_ms = time.time_ns() // 1_000_000  # noqa: TID251 - a listing is of now
    assert freed_files(row_of(delta, now_ms - 32 * MINUTE_MS)) == 2 + OF_LOG
    put_old(table.folder / "left-behind.parquet", now_ms - 45 * MINUTE_MS)
    # Files of the hour before a listing may have been on their way.
    assert is_known(delta, now_ms - 31 * MINUTE_MS)
    later = row_of(delta, now_ms)
    assert not later["from_cache"]
    assert freed_files(later) == 3 + OF_LOG


def test_a_listing_with_files_that_only_their_age_keeps_is_not_kept(delta: Fleet) -> None:
    (table,) = delta.tables
    put_old(table.folder / "in-flight.parquet", AS_OF_MS - DAY_MS)
    assert freed_files(row_of(delta)) == 2 + OF_LOG
    assert not is_known(delta)
    later = row_of(delta, AS_OF_MS + WEEK_MS)
    assert not later["from_cache"]
    assert freed_files(later) == 3 + OF_LOG
    assert is_known(delta, AS_OF_MS + WEEK_MS)


def test_an_earlier_time_is_looked_at_anew(delta: Fleet) -> None:
    (table,) = delta.tables
    put_old(table.folder / "left-behind.parquet", AS_OF_MS - WEEK_MS - DAY_MS // 2)
    assert freed_files(row_of(delta)) == 3 + OF_LOG
    earlier = row_of(delta, AS_OF_MS - DAY_MS)
    assert not earlier["from_cache"]
    assert freed_files(earlier) == 2 + OF_LOG


def rewrite(table: FleetTable, change: Callable[[int, str, dict[str, Any]], None]) -> None:
    """Change the actions of a Delta table's commits, whose files keep their times: by version, kind and fields."""
    for version in range(VERSIONS):
        path = table.folder / "_delta_log" / f"{version:020}.json"
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            ((kind, fields),) = action.items()
            change(version, kind, fields)
        put_old(path, FIRST_MS + version * DAY_MS, "\n".join(map(json.dumps, actions)).encode())


def due_later(fleet: Fleet, before_ms: int, after_ms: int, *, more: int) -> None:
    """Between two times something comes of age: a survey at the second one sees it."""
    before = row_of(fleet, before_ms)
    assert is_known(fleet, before_ms)
    after = row_of(fleet, after_ms)
    assert not after["from_cache"]
    counts = [sum(each["files"] for each in row["due"]) for row in (before, after)]
    assert counts[1] - counts[0] == more
    assert after == row_of(fleet, after_ms, "--no-cache")


def test_a_tombstone_comes_of_age_by_its_own_time(delta: Fleet) -> None:
    def ahead(_: int, kind: str, fields: dict[str, Any]) -> None:
        if kind == "remove":
            fields["deletionTimestamp"] = AS_OF_MS - 20 * DAY_MS

    rewrite(delta.tables[0], ahead)
    due_later(delta, AS_OF_MS - 14 * DAY_MS, AS_OF_MS - 12 * DAY_MS, more=2)


def test_a_tombstone_that_is_dated_before_its_commit_comes_of_age_with_that(delta: Fleet) -> None:
    def behind(_: int, kind: str, fields: dict[str, Any]) -> None:
        if kind == "remove":
            fields["deletionTimestamp"] = FIRST_MS

    rewrite(delta.tables[0], behind)
    removed_ms = FIRST_MS + 4 * DAY_MS
    due_later(delta, removed_ms + WEEK_MS - HOUR_MS, removed_ms + WEEK_MS + HOUR_MS, more=2)


def test_commits_come_of_age_by_the_time_that_they_tell_themselves(delta: Fleet) -> None:
    def timed(version: int, kind: str, fields: dict[str, Any]) -> None:
        if kind == "commitInfo":
            fields["inCommitTimestamp"] = FIRST_MS + (version + 20) * DAY_MS
        elif kind == "metaData":
            fields["configuration"] = {"delta.enableInCommitTimestamps": "true"}
        elif kind == "protocol":
            fields |= {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}

    rewrite(delta.tables[0], timed)
    # After 30 days, and where that saves ten commits or more.
    newest_ms = FIRST_MS + (VERSIONS - 1 + 20) * DAY_MS
    due_later(delta, newest_ms + 27 * DAY_MS, newest_ms + 31 * DAY_MS, more=OF_LOG)


def test_a_sidecar_that_nothing_names_comes_of_age(delta: Fleet) -> None:
    sidecar = delta.tables[0].folder / "_delta_log" / "_sidecars" / "left-behind.parquet"
    put_old(sidecar, AS_OF_MS - HOUR_MS)
    due_later(delta, AS_OF_MS, AS_OF_MS + 3 * DAY_MS, more=1)


def test_iceberg_metadata_in_the_folder_has_a_say_each_time(delta: Fleet, iceberg: Fleet) -> None:
    (table,), (other,) = delta.tables, iceberg.tables
    shutil.copytree(other.folder / "metadata", table.folder / "metadata")
    fleet = replace(delta, tables=[table])
    for _ in range(2):
        assert not is_known(fleet)


def test_an_operators_listing_of_the_files_is_read_each_time(delta: Fleet, tmp_path: Path) -> None:
    listing, policy = tmp_path / "listing.jsonl", tmp_path / "policy.toml"
    policy_file(policy, {"expire-snapshots": f'{{ inventory = "{listing}" }}'}, delta.patterns)
    (table,) = delta.tables
    removed = [table.folder / f"{file:05d}.parquet" for file in range(2)]
    for known in (removed[:1], removed):
        rows = [
            {"path": str(path), "length": 1, "isDir": False, "modificationTime": FIRST_MS} for path in known
        ]
        listing.write_text("\n".join(map(json.dumps, rows)))
        row = row_of(delta, AS_OF_MS, "--policy", str(policy))
        assert not row["from_cache"]
        assert freed_files(row) == len(known) + OF_LOG


def test_another_tables_files_are_looked_at_each_time(delta: Fleet) -> None:
    (table,) = delta.tables
    put_old(table.folder / "nested" / "_delta_log" / f"{0:020}.json", AS_OF_MS - 30 * DAY_MS)
    put_old(table.folder / "nested" / "part.parquet", AS_OF_MS - 30 * DAY_MS)
    assert freed_files(row_of(delta)) == 2 + OF_LOG
    assert not is_known(delta)
    shutil.rmtree(table.folder / "nested" / "_delta_log")
    assert freed_files(row_of(delta)) == 3 + OF_LOG
    assert is_known(delta)


def test_what_touches_the_log_is_read(delta: Fleet) -> None:
    (table,) = delta.tables
    log = table.folder / "_delta_log"
    newest = max(log.glob("*.json"))

    def touch() -> None:
        os.utime(newest, ns=(newest.stat().st_mtime_ns + 1_000_000,) * 2)

    other = log / "other.txt"
    assert not is_known(delta)
    for change in (touch, other.touch):
        assert is_known(delta), change
        change()
        assert not is_known(delta), change


def test_maintenance_of_a_known_table_is_seen_by_the_next_survey(delta: Fleet) -> None:
    (table,) = delta.tables
    assert freed_files(row_of(delta)) == 2 + OF_LOG
    ran = iceberg_cli("expire-snapshots", table.name, "--as-of", AS_OF_MS, "--yes")
    assert ran.code == 0, ran.err
    after = row_of(delta)
    assert not after["from_cache"]
    assert not after["due"]


def newest_metadata(table: FleetTable) -> Path:
    return max((table.folder / "metadata").glob("v*.metadata.json"))


def test_an_iceberg_table_in_a_folder_is_known_until_a_metadata_file_or_the_hint_is_another(
    iceberg: Fleet,
) -> None:
    (table,) = iceberg.tables
    metadata, hint = newest_metadata(table), table.folder / "metadata" / "version-hint.text"

    def made_anew() -> None:
        stat = metadata.stat()
        metadata.write_bytes(metadata.read_bytes())
        os.utime(metadata, ns=(stat.st_mtime_ns + 1_000_000,) * 2)

    assert not is_known(iceberg)
    for change in (made_anew, hint.unlink, lambda: hint.write_text("6")):
        assert is_known(iceberg), change
        change()
        assert not is_known(iceberg), change


def test_a_catalogs_table_that_is_named_by_its_folder_is_known_and_still_blocked(tmp_path: Path) -> None:
    fleet = build_fleet(tmp_path, {("sqlite", "iceberg"): 1})
    (table,) = fleet.tables
    as_folder = replace(fleet, tables=[replace(table, name=table.location, place="folder")])
    first = row_of(as_folder)
    assert all("belongs to a catalog" in each["blocked_by"][0] for each in first["due"])
    assert row_of(as_folder) == first | {"from_cache": True}


def test_nothing_is_kept_of_a_table_that_another_writer_moves_while_it_is_read(
    delta: Fleet, tmp_path: Path
) -> None:
    (table,) = delta.tables
    listed = ListedTable(name=table.name, format="delta", location=table.location)
    seen: list[str | None] = []

    class Moving(TableOpener):
        def folder_version(self, listed: ListedTable) -> str | None:
            seen.append(super().folder_version(listed))
            (table.folder / "_delta_log" / f"other-{len(seen)}").touch()
            return seen[-1]

    facts = FactsStore(tmp_path / "facts")
    for opener in (Moving(), TableOpener()):
        (found,) = Survey(tables=[listed], opener=opener, as_of_ms=AS_OF_MS, now_ms=AS_OF_MS, facts=facts)
        assert found.is_due
    assert len(set(seen)) == len(seen) == 2
    assert [facts.get(str(version)) for version in seen] == [None, None]
    assert facts.get(str(TableOpener().folder_version(listed))) is not None


def test_a_copy_leaves_what_is_known_of_its_original(iceberg: Fleet, tmp_path: Path) -> None:
    (table,) = iceberg.tables
    shutil.copytree(table.folder, tmp_path / "copies" / "t000")
    copies = ["survey", f"{tmp_path}/copies/*", "--as-of", str(AS_OF_MS), *JSON]
    original = row_of(iceberg)
    for _ in range(2):
        ran = iceberg_cli(*copies)
        assert ran.code == 0, ran.err
        (copy,) = ran.json["tables"]
        assert copy["table"]["name"] == str(tmp_path / "copies" / "t000")
    assert row_of(iceberg) == original | {"from_cache": True}
