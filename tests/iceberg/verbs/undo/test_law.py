"""Law: an expiry that was given a grace and is taken back leaves the table as it would be without the expiry.

Random tables of the referee, which shares no code with the package, reads the rows; others commit before, between
and after.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.budget import few_or_many
from tests.cli.lakes import AS_OF, four_snapshots, newest_metadata
from tests.cli.running import iceberg_cli
from tests.iceberg.verbs.test_random_tables import DAY_MS, NOW_MS, Game
from tests.referee.iceberg import rows_of

COUNTERS = ("last-sequence-number", "next-row-id", "last-column-id", "last-partition-id")
OF_THE_VERSION = ("last-updated-ms", "metadata-log")


def expire(game: Game) -> int:
    """Expire with a grace; the files wait."""
    age_ms = game.draw.randrange(20 * DAY_MS)
    options = ["--older-than", NOW_MS - age_ms, "--retain-last", game.draw.randint(1, 3)]
    options += game.draw.choice([[], ["--clean-metadata"]])
    ran = iceberg_cli(
        "expire-snapshots", game.table.folder, "--yes", "--grace", "24h", "--as-of", NOW_MS,
        *options, "--format", "json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    return len(game.table.document["snapshots"])


def by_id(document: Mapping[str, Any]) -> dict[int, Any]:
    return {each["snapshot-id"]: each for each in document["snapshots"]}


def without(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


@pytest.mark.few(3)
@few_or_many(3, many=12, all_of=100)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_expiry_that_is_taken_back_leaves_no_trace(tmp_path: Path, version: int, budget: int) -> None:
    expired = 0
    for seed in range(budget):
        game = Game(tmp_path / f"{seed}" / "table", version=version, seed=7_000 * version + seed)
        before, files = game.table.document, game.files()
        rows = {each: rows_of(snapshot) for each, snapshot in by_id(before).items()}
        if expire(game) == len(before["snapshots"]):
            continue
        expired += 1
        done = iceberg_cli("undo", game.table.folder, "--yes", "--format", "json")
        assert done.code == 0, done.err
        after = game.table.document
        assert without(after, *OF_THE_VERSION) == without(before, *OF_THE_VERSION)
        assert {each: rows_of(snapshot) for each, snapshot in by_id(after).items()} == rows
        assert files <= game.files()
        again = iceberg_cli("undo", game.table.folder, "--yes")
        assert (again.code, game.table.document) == (11, after)
    assert expired > budget // 2


@pytest.mark.few(3)
@few_or_many(4, many=16, all_of=200)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_came_since_stays(tmp_path: Path, version: int, budget: int) -> None:
    merged = 0
    for seed in range(budget):
        game = Game(tmp_path / f"{seed}" / "table", version=version, seed=9_000 * version + seed)
        before = game.table.document
        rows = {each: rows_of(snapshot) for each, snapshot in by_id(before).items()}
        if expire(game) == len(before["snapshots"]):
            continue
        for _ in range(game.draw.randint(1, 3)):
            game.write()
        since = game.table.document
        done = iceberg_cli("undo", game.table.folder, "--yes", "--format", "json")
        after = game.table.document
        if done.code == 11:  # an id has another meaning by now
            assert any(word in done.err for word in ("schema", "partition spec"))
            assert after == since
            continue
        assert done.code == 0, done.err
        merged += 1
        expected = {**by_id(before), **by_id(since)}
        assert by_id(after) == expected
        assert [each["snapshot-id"] for each in after["snapshots"]] == list(expected)
        assert after["refs"] == {**before["refs"], **since["refs"]}
        for name in ("current-snapshot-id", "current-schema-id", "default-spec-id", "properties", *COUNTERS):
            assert after.get(name) == since.get(name), name
        for name, key in (("schemas", "schema-id"), ("partition-specs", "spec-id")):
            every = {each[key]: each for each in (*before[name], *since[name])}
            assert {each[key]: each for each in after[name]} == every
        for each, snapshot in by_id(after).items():
            assert each not in rows or rows_of(snapshot) == rows[each]
        assert game.reached() <= game.files()
        restored = len(by_id(before).keys() - by_id(since).keys())
        assert done.json["restored_snapshots_count"] == restored
        log = [each["snapshot-id"] for each in after["snapshot-log"]]
        assert log[-1] == after["current-snapshot-id"]
        assert log == [each for each in log if each in by_id(after)]
        checked = iceberg_cli("inspect", game.table.folder, "--check", "--format", "json")
        assert [each for each in checked.json["findings"] if each["severity"] == "error"] == []
    assert merged


def test_a_file_that_is_gone_is_named_and_nothing_changes(tmp_path: Path) -> None:
    game = Game(tmp_path / "table", version=2, seed=3)
    before = by_id(game.table.document)
    seed_expired = expire(game)
    now = by_id(game.table.document)
    assert seed_expired < len(before)
    (gone, *_) = [each for key, each in before.items() if key not in now]
    Path(gone["manifest-list"]).unlink()
    document = game.table.document
    ran = iceberg_cli("undo", game.table.folder, "--yes")
    assert ran.code == 11
    assert gone["manifest-list"] in ran.err
    assert game.table.document == document
    # The operation is open, as it was.
    assert iceberg_cli("resume", game.table.folder, "--list", "--format", "json").json["operations"]


def test_an_operation_that_nobody_knows_is_refused_by_its_id(tmp_path: Path) -> None:
    game = Game(tmp_path / "table", version=2, seed=3)
    ran = iceberg_cli("undo", game.table.folder, "no-such-operation", "--yes")
    assert (ran.code, "has no operation no-such-operation" in ran.err) == (2, True)
    assert iceberg_cli("undo", game.table.folder, "--yes").code == 11


def test_what_is_deleted_already_does_not_come_back(tmp_path: Path) -> None:
    game = Game(tmp_path / "table", version=2, seed=3)
    expire(game)
    (waiting,) = iceberg_cli("resume", game.table.folder, "--list", "--format", "json").json["operations"]
    records = sorted(game.table.folder.glob(f"_iceberg_cli/ops/{waiting['operation_id']}/0*.json"))
    text = json.loads(records[-1].read_text())
    assert text["body"]["sweep_after_ms"] == waiting["grace_until_ms"]
    later = waiting["grace_until_ms"] + 1
    assert later > NOW_MS
    swept = iceberg_cli("resume", game.table.folder, waiting["operation_id"], "--abandon")
    assert swept.code == 0, swept.err
    ran = iceberg_cli("undo", game.table.folder, waiting["operation_id"], "--yes")
    assert (ran.code, "none of its files waits any more" in ran.err) == (11, True)


@pytest.mark.few(1)
@few_or_many(1, many=4, all_of=20)
def test_a_saved_plan_is_carried_out_as_it_was_shown(tmp_path: Path, budget: int) -> None:
    for seed in range(budget):
        game = Game(tmp_path / f"{seed}" / "table", version=2, seed=50 + seed)
        before = game.table.document
        expire(game)
        file = tmp_path / f"{seed}.json"
        planned = iceberg_cli("plan", game.table.folder, "undo", "--output", file)
        assert planned.code == 0, planned.err
        game.table.append()
        done = iceberg_cli("apply", file, "--yes")
        assert done.code == 0, done.err
        assert by_id(before).keys() <= by_id(game.table.document).keys()


def test_of_files_that_are_gone_the_number_and_the_first_are_told(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t")
    name = table.publish()
    report = iceberg_cli("expire-snapshots", name, *AS_OF, "--grace", "24h", "--yes", "--format", "json")
    assert report.json["status"] == "waiting"
    (tmp_path / "t" / "data" / "one.parquet").unlink()
    before = newest_metadata(table.folder)
    ran = iceberg_cli("undo", name, "--yes")
    assert ran.code == 11
    assert "1 file of what would come back are gone, such as" in ran.err
    assert "data/one.parquet" in ran.err
    assert newest_metadata(table.folder) == before
