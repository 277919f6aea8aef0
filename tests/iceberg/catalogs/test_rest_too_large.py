"""A catalog that takes no request as large as an expiry: several commits, the oldest snapshots first."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import iceberg_cli as ic
from iceberg_cli.api import new_runtime
from iceberg_cli.operation.outcomes import Conflict, Unknown
from iceberg_cli.plan.events import AnyEvent, FilesDeleted
from tests.cli.running import Ran, iceberg_cli
from tests.iceberg.catalogs.test_rest import Lake, files_of, lake
from tests.rest_servers import configuration_of

__all__ = ["lake"]

SNAPSHOTS = 8
OLD = ("--older-than", "0s", "--retain-last", "1")


def removed_by(body: bytes) -> list[int]:
    """The snapshots that a request removes."""
    updates = json.loads(body)["updates"]
    return [each for update in updates for each in update.get("snapshot-ids", ())]


def at_most(count: int) -> Callable[[str, str, Mapping[str, str], bytes], tuple[int, str] | None]:
    """A limit of what the front lets through."""

    def refusal(method: str, _path: str, _headers: Mapping[str, str], body: bytes) -> tuple[int, str] | None:
        tried = len(removed_by(body)) if method == "POST" else 0
        return (413, f"no {tried} snapshots") if tried > count else None

    return refusal


class Limited:
    """The table of eight snapshots behind a front with a limit, and the command line."""

    def __init__(self, lake: Lake, folder: Path) -> None:
        self.lake, self.config = lake, folder / "pyiceberg.yaml"
        self.config.write_text(configuration_of("prod", {"uri": lake.front.uri}))
        for _ in range(SNAPSHOTS - 3):
            lake.append()
        self.snapshot_ids = [each.snapshot_id for each in lake.table.metadata.snapshots]
        lake.front.bodies.clear()
        lake.front.refusal = at_most(3)

    def run(self, verb: str, *arguments: str) -> Ran:
        table = f"prod.{self.lake.namespace}.inner.t"
        return iceberg_cli(verb, table, *arguments, "--format", "json", "--catalog-config", self.config)

    def expire(self) -> Ran:
        return self.run("expire-snapshots", *OLD, "--yes")

    @property
    def left(self) -> list[int]:
        return [each.snapshot_id for each in self.lake.table.metadata.snapshots]

    @property
    def taken(self) -> list[list[int]]:
        """The snapshots of each request that the server had."""
        return [sorted(removed_by(body), key=self.snapshot_ids.index) for body in self.lake.front.bodies]

    @property
    def rows(self) -> list[int]:
        rows: list[dict[str, Any]] = self.lake.table.scan().to_arrow().to_pylist()
        return sorted(row["i"] for row in rows)


@pytest.fixture
def limited(lake: Lake, tmp_path: Path) -> Limited:
    return Limited(lake, tmp_path)


def test_the_oldest_go_first_and_refs_with_them(limited: Limited) -> None:
    ids, lists = limited.snapshot_ids, {name for name in files_of(limited.lake) if name.startswith("snap-")}
    limited.lake.table.manage_snapshots().create_tag(ids[4], "old", max_ref_age_ms=1).commit()
    ran = limited.expire()
    assert (ran.code, ran.json["status"]) == (0, "done"), ran.out + ran.err
    assert limited.taken == [ids[:3], ids[3:6], ids[6:7]]
    dropped = [
        [each["ref-name"] for each in json.loads(body)["updates"] if each["action"] == "remove-snapshot-ref"]
        for body in limited.lake.front.bodies
    ]
    assert dropped == [["old"], [], []]
    assert limited.left == ids[-1:]
    assert len(lists) == SNAPSHOTS
    assert ran.json["deleted_manifest_lists_count"] == SNAPSHOTS - 1
    assert len({name for name in files_of(limited.lake) if name.startswith("snap-")}) == 1
    assert ran.json["notes"][0].startswith("Done by 3 operations, as one commit was too large: ")
    assert "413: no 7 snapshots" in ran.json["notes"][0]
    assert limited.rows == [0, 1, 1, 1, 1, 1, 1, 2]
    assert limited.run("resume", "--list").json["operations"] == []


@pytest.mark.parametrize(
    ("waiting", "most", "parts"), [(2, 1, [1, 1]), (4, 1, [1, 1, 1, 1]), (8, 2, [2, 2, 2, 2])]
)
def test_parts_are_halved_until_the_catalog_takes_them(
    lake: Lake, tmp_path: Path, waiting: int, most: int, parts: list[int]
) -> None:
    limited = Limited(lake, tmp_path)
    for _ in range(waiting + 1 - SNAPSHOTS):
        lake.append()
    ids = [each.snapshot_id for each in lake.table.metadata.snapshots]
    named = [word for each in ids[:waiting] for word in ("--snapshot-id", str(each))]
    lake.front.bodies.clear()
    lake.front.refusal = at_most(most)
    ran = limited.run("expire-snapshots", *named, "--yes")
    assert (ran.code, ran.json["status"]) == (0, "done"), ran.out
    assert [len(each) for each in limited.taken] == parts
    assert limited.left == ids[waiting:]


def test_one_snapshot_that_is_too_large_by_itself_has_no_parts(limited: Limited) -> None:
    limited.lake.front.refusal = at_most(0)
    ran = limited.run("expire-snapshots", "--snapshot-id", str(limited.snapshot_ids[0]), "--yes")
    assert (ran.code, ran.json["error"]) == (11, "RequestTooLarge")
    assert (limited.taken, limited.left) == ([], limited.snapshot_ids)


def test_where_one_snapshot_is_too_large_nothing_is_changed(limited: Limited) -> None:
    limited.lake.front.refusal = at_most(0)
    before = files_of(limited.lake)
    ran = limited.expire()
    assert (ran.code, ran.json["error"]) == (11, "RequestTooLarge")
    assert "413: no 1 snapshots" in ran.json["message"]
    assert ran.json["state"] == "The table was not changed."
    assert (limited.taken, limited.left) == ([], limited.snapshot_ids)
    assert files_of(limited.lake) == before
    assert limited.run("resume", "--list").json["operations"] == []


def test_where_a_part_fails_the_error_says_what_was_done_before_and_the_next_run_goes_on(
    limited: Limited,
) -> None:
    ids, limit = limited.snapshot_ids, at_most(3)

    def refusal(method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str] | None:
        if method == "POST" and limited.lake.front.bodies:
            return 403, "not today"
        return limit(method, path, headers, body)

    limited.lake.front.refusal = refusal
    ran = limited.expire()
    assert (ran.code, ran.json["error"]) == (16, "AccessDenied"), ran.out
    assert ran.json["state"].startswith("Commits before it: 1, by operations ")
    assert limited.left == ids[3:]
    limited.lake.front.refusal = limit
    ran = limited.expire()
    assert (ran.code, ran.json["status"]) == (0, "done"), ran.out
    assert limited.left == ids[-1:]


def test_what_others_append_between_two_parts_stays(limited: Limited) -> None:
    ids = limited.snapshot_ids
    limited.lake.front.meanwhile += [lambda: None, limited.lake.append]
    ran = limited.expire()
    assert (ran.code, ran.json["status"]) == (0, "done"), ran.out
    assert limited.left[:-1] == ids[-1:]
    assert limited.rows == [0, 1, 1, 1, 1, 1, 1, 1, 2]


def test_a_conflict_of_a_later_part_does_not_say_that_nothing_was_changed(limited: Limited) -> None:
    ids = limited.snapshot_ids
    with limited.lake.table.transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "0"})
    # The first request is too large, and never gets that far.
    limited.lake.front.meanwhile += [lambda: None, limited.lake.append]
    ran = limited.expire()
    assert (ran.code, ran.json["error"]) == (14, "Interrupted"), ran.out
    assert "ref main" in ran.json["message"]
    assert ran.json["state"].startswith("Commits before it: 1, by operations ")
    assert limited.left[:-1] == ids[3:]
    assert (limited.expire().code, limited.left[-1:]) == (0, limited.left)


def test_a_part_whose_answer_was_lost_is_settled_and_the_next_run_does_the_rest(limited: Limited) -> None:
    ids = limited.snapshot_ids
    limited.lake.front.fates += ["", "", "lost before"]  # the first one is too large
    ran = limited.expire()
    assert ran.code == 13, ran.out
    assert limited.left == ids[3:]
    assert ran.json["state"].startswith("Commits before it: 1, by operations ")
    ran = limited.run("resume")
    assert ran.code == 0, ran.out
    assert limited.left == ids[6:]
    assert (limited.expire().code, limited.left) == (0, ids[-1:])


def test_it_is_a_refusal_for_good_once_the_table_was_read_back(lake: Lake) -> None:
    attempt, committer = lake.attempt(), lake.open()
    lake.front.answers.append(413)
    lake.front.requests.clear()
    assert committer.commit(attempt) == Conflict(
        reason="the catalog refuses it, 413: as the test wants it", for_good=True, too_large=True
    )
    assert [method for method, _ in lake.front.requests] == ["GET", "POST", "GET"]
    again = lake.attempt(fresh=False)
    lake.front.answers.append(413)
    assert isinstance(lake.open().commit(again), Unknown)


def watched(
    limited: Limited, act: Callable[[], object], *, when: Callable[[str, bytes], bool]
) -> Callable[[str, str, Mapping[str, str], bytes], tuple[int, str] | None]:
    """The limit, and an act before the first request of a method and body that is meant."""
    limit, pending = at_most(3), [act]

    def refusal(method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str] | None:
        if pending and when(method, body):
            pending.pop()()
        return limit(method, path, headers, body)

    return refusal


def test_a_tag_that_moved_before_the_first_part_is_not_dropped(limited: Limited) -> None:
    """The whole plan showed that the tag goes which pointed to another snapshot."""
    ids, before = limited.snapshot_ids, files_of(limited.lake)
    limited.lake.table.manage_snapshots().create_tag(ids[4], "old", max_ref_age_ms=1).commit()
    before = files_of(limited.lake)

    def move() -> None:
        limited.lake.table.manage_snapshots().create_tag(ids[5], "old", max_ref_age_ms=1).commit()

    def when(_: str, __: bytes) -> bool:
        """Once the request that is too large was refused, and the table was read back after it."""
        return [method for method, _ in limited.lake.front.requests][-3:] == ["POST", "GET", "GET"]

    limited.lake.front.refusal = watched(limited, move, when=when)
    ran = limited.expire()
    assert (ran.code, ran.json["error"]) == (11, "StalePlan"), ran.out
    assert "tag old, which points to another snapshot now" in ran.json["message"]
    assert (limited.taken, limited.left) == ([], ids)
    assert {name for name in before if not name.endswith(".json")} <= files_of(limited.lake)


def test_a_table_that_took_the_place_between_two_parts_is_left_alone(limited: Limited) -> None:
    lake, name = limited.lake, (limited.lake.namespace, "inner", "t")
    location, schema = f"{lake.table.location()}_again", lake.table.schema()

    def replace() -> None:
        lake.theirs.drop_table(name)
        again = lake.theirs.create_table(name, schema, location=location)
        for number in range(4):
            again.overwrite(pa.table({"i": [number]}))

    gone = len([each for each in files_of(lake) if each.startswith("snap-")]) - 3

    def when(method: str, _: bytes) -> bool:
        first_is_swept = len([each for each in files_of(lake) if each.startswith("snap-")]) == gone
        return method == "GET" and first_is_swept

    lake.front.refusal = watched(limited, replace, when=when)
    ran = limited.expire()
    assert (ran.code, ran.json["error"]) == (11, "Refused"), ran.out
    assert ran.json["state"].startswith("Commits before it: 1, by operations "), ran.out
    assert len(limited.taken) == 1
    assert len(limited.left) == 7
    assert limited.rows == [3]


def test_where_the_time_is_over_after_a_part_the_report_says_what_waits(limited: Limited) -> None:
    ids, over = limited.snapshot_ids, False

    def hear(event: AnyEvent) -> None:
        nonlocal over
        over = over or isinstance(event, FilesDeleted)

    table = ic.open_table(f"prod.{limited.lake.namespace}.inner.t", catalog_config=str(limited.config))
    plan = table.plan(ic.iceberg.ExpireSnapshots(older_than="0s", retain_last=1))
    runtime = new_runtime(on_event=hear, deadline=1 << 62)
    clock = runtime.now_ms
    report = table.apply(plan, runtime=replace(runtime, now_ms=lambda: 1 << 62 if over else clock()))
    assert (report.status, limited.left) == ("partial", ids[3:])
    assert "4 snapshots are still to expire; the next run goes on." in report.notes
