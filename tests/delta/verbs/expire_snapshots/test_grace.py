"""A grace on Delta tables: what is to go waits after VACUUM START, or without a commit, and is looked at again."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from deltalake import DeltaTable as PeerTable

from iceberg_cli.operation.apply import abandon
from iceberg_cli.plan.report import Report
from iceberg_cli.table.recovery import operations
from iceberg_cli.testing.crash.world import DELTA_TABLE, World, crash
from tests.budget import few_or_many, some
from tests.builders import DAY_MS
from tests.cli.lakes import AS_OF, delta_with_removed_files, old_files
from tests.cli.running import dry, expire, iceberg_cli
from tests.crash.delta import (
    CLEANUP_POLICY,
    DATA,
    a_world_of_v2_checkpoints,
    an_add,
    commit_to,
    newest,
    operations_of,
    version_path,
)
from tests.delta.verbs.expire_snapshots.test_crash import GOING, Vacuum
from tests.delta.verbs.expire_snapshots.test_crash_log_cleanup import COMMIT, LogCleanup, whole_run

NOBODY = f"{DELTA_TABLE}/nobody.parquet"


class WaitingVacuum(Vacuum):
    """A VACUUM with a grace of a day."""

    policy: ClassVar = {"grace_ms": DAY_MS}


@dataclass(kw_only=True)
class WaitingCleanup(LogCleanup):
    """A log cleanup with a grace of a day, which commits nothing."""

    policy: ClassVar = {**CLEANUP_POLICY, "grace_ms": DAY_MS}


def a_world_of_both() -> World:
    """A table of which versions expire, and a file that nobody names."""
    world = a_world_of_v2_checkpoints()
    world.files[NOBODY] = DATA
    return world


@dataclass(kw_only=True)
class WaitingBoth(WaitingCleanup):
    """A VACUUM and a log cleanup by one operation."""

    world: World = field(default_factory=a_world_of_both)


def waiting(reports: Sequence[Report]) -> list[tuple[str, int]]:
    """The statuses, and how many files wait."""
    return [(report.status, report.waiting_files) for report in reports]


def test_after_the_start_files_wait_and_the_end_comes_after_their_deletion() -> None:
    scene = WaitingVacuum()
    report = scene.process().run()
    assert (report.status, report.waits_until_ms) == ("waiting", scene.world.now_ms + DAY_MS)
    assert (report.waiting_files, report.waiting_bytes) == (4, 4 * len(DATA))
    assert scene.vacuums() == ["VACUUM START"]
    scene.world.now_ms += DAY_MS - 1
    assert waiting(scene.process().resume()) == [("waiting", 4)]
    assert set(scene.world.files) >= GOING
    scene.world.now_ms += 1
    assert waiting(scene.process().resume()) == [("done", 0)]
    assert not GOING & set(scene.world.files)
    scene.check_done()
    info = json.loads(scene.world.files[version_path(newest(scene.world))].splitlines()[0])["commitInfo"]
    assert info["operationMetrics"]["numDeletedFiles"] == "4"
    scene.check_finished()


def test_a_file_that_is_taken_up_again_meanwhile_stays() -> None:
    scene = WaitingVacuum()
    scene.process().run()
    commit_to(scene.world, an_add("c.parquet"))
    scene.world.now_ms += DAY_MS
    (report,) = scene.process().resume()
    assert (report.status, report.kept_again) == ("done", 1)
    assert f"{DELTA_TABLE}/c.parquet" in scene.world.files
    scene.check()


def test_versions_wait_without_a_commit_and_the_operation_is_listed_with_what_waits() -> None:
    scene = WaitingCleanup()
    versions = newest(scene.world)
    going = len(scene.log_files()) + 1 - len(whole_run()[1])  # the checkpoint for older readers comes first
    report = scene.process().run()
    assert waiting([report]) == [("waiting", going)]
    assert newest(scene.world) == versions, "nothing was committed"
    (listed,) = operations(scene.process().table, now_ms=scene.world.now_ms)
    assert (listed.state, listed.message) == (
        "waiting", "still to do: sidecar cleanup; its files wait for their grace",
    )  # fmt: skip
    assert listed.until_ms == report.waits_until_ms
    assert listed.to_json()["waiting_files_count"] == going
    assert listed.to_json()["waiting_bytes"] == report.waiting_bytes > 0
    scene.check()
    scene.world.now_ms += DAY_MS - 1
    assert scene.process().plan().plan.steps == (), "what waits is due no second time"
    scene.world.now_ms += 1
    assert waiting(scene.process().resume()) == [("done", 0)]
    scene.check_done()
    scene.check_finished()


def test_the_operation_waits_once_and_not_a_step_after_the_other() -> None:
    scene = WaitingBoth()
    before = scene.log_files()
    assert scene.process().run().status == "waiting"
    assert operations_of(scene.world)[-1] == "VACUUM START"
    assert scene.log_files() > before, "no version goes before the grace is over"
    scene.world.now_ms += DAY_MS
    assert waiting(scene.process().resume()) == [("done", 0)]
    assert NOBODY not in scene.world.files
    assert {name for name in scene.log_files() if COMMIT.search(name)} == {
        f"{version:020}.json" for version in (4, 5, 6, 7)
    }


def test_a_later_run_leaves_what_waits_to_the_operation_that_it_waits_for() -> None:
    scene = WaitingBoth()
    assert scene.process().run().status == "waiting"
    (operation_id,) = scene.process().table.workspace.open_operations()
    later = f"{DELTA_TABLE}/later.parquet"
    scene.world.files[later] = DATA
    scene.world.now_ms += DAY_MS // 2
    plan = scene.process().plan().plan
    assert plan.removals is not None
    assert plan.removals.rows["path"].to_pylist() == [later]
    reasons = {verdict.subject: verdict.reason for verdict in plan.verdicts if operation_id in verdict.reason}
    assert reasons["files"].startswith(
        f"kept: they wait for the grace of operation {operation_id}, which ends at "
    )
    assert reasons["versions"].startswith(
        f"kept: the log's files wait for the grace of operation {operation_id}"
    )
    assert scene.process().run().status == "waiting"
    scene.world.now_ms += DAY_MS // 2
    assert sorted(waiting(scene.process().resume())) == [("done", 0), ("waiting", 1)]
    assert (NOBODY in scene.world.files, later in scene.world.files) == (False, True)
    scene.world.now_ms += DAY_MS // 2
    assert waiting(scene.process().resume()) == [("done", 0)]
    assert later not in scene.world.files


def test_what_an_abandoned_operation_left_is_found_by_the_next_run() -> None:
    scene = WaitingVacuum()
    scene.process().run()
    process = scene.process()
    (operation_id,) = process.table.workspace.open_operations()
    orphans = abandon(process.table, operation_id, process.runtime)
    assert orphans is not None
    assert orphans.count == 4
    assert set(scene.world.files) >= GOING
    assert waiting([scene.process().run()]) == [("waiting", 4)]


@pytest.mark.few(1)
@few_or_many(8, many=1_000)
@pytest.mark.parametrize("kind", [WaitingVacuum, WaitingCleanup, WaitingBoth])
def test_a_crash_around_any_effect_of_a_run_with_a_grace(kind: type[Any], budget: int) -> None:
    trial = kind()
    first = trial.process()
    first.run()
    begun = len(first.effects)
    trial.world.now_ms += DAY_MS
    second = trial.process()
    second.resume()
    cases = [(0, number) for number in range(begun)] + [(1, number) for number in range(len(second.effects))]
    for run, number in some(cases, budget):
        scene = kind()
        if run:
            scene.process().run()
            scene.world.now_ms += DAY_MS
        process = scene.process(before={number: crash})
        assert process.dies(process.resume if run else process.run)
        scene.check()
        if not run:
            scene.process().resume()
            scene.check()
        scene.world.now_ms += 2 * DAY_MS
        scene.process().resume()
        scene.process().run()
        scene.check()
        scene.world.now_ms += 2 * DAY_MS
        scene.process().resume()
        scene.check_finished()
        assert scene.process().plan().plan.steps == ()


# -- on the command line ---------------------------------------------------------------------------------------


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """A table with the live file `a`, one that was removed, and one that nobody names."""
    table = tmp_path / "visits"
    delta_with_removed_files(table, "b")
    old_files(table, "nobody.parquet")
    return table


def names(table: Path) -> list[str]:
    return sorted(path.name for path in table.glob("*.parquet"))


def test_the_plan_the_report_and_the_list_have_the_bytes_that_wait_and_until_when(visits: Path) -> None:
    plan = dry(str(visits), *AS_OF, "--grace", "1h")
    assert (plan["grace_ms"], plan["options"]["grace_ms"]) == (
        3_600_000, {"value": 3_600_000, "source": "--grace"},
    )  # fmt: skip
    shown = iceberg_cli("expire-snapshots", visits, *AS_OF, "--grace", "1h", "--dry-run").out
    assert "2 files, 8 B freed; they wait for 1 h first" in shown
    report = expire(str(visits), *AS_OF, "--grace", "1h").json
    assert (report["status"], report["waiting_files_count"], report["waiting_bytes"]) == ("waiting", 2, 8)
    (listed,) = iceberg_cli("resume", visits, "--list", "--format", "json").json["operations"]
    assert (listed["state"], listed["waiting_files_count"], listed["waiting_bytes"]) == ("waiting", 2, 8)
    assert listed["grace_until_ms"] == report["waits_until_ms"]
    until = report["waits_until"][:19]
    text = " ".join(iceberg_cli("resume", visits, "--list").out.split())
    assert (
        f"still to do: vacuum end; committed; its files wait for their grace (2 files, 8 B, until {until}Z)"
        in text
    )
    assert "(2 files, 8 B, until " in " ".join(iceberg_cli("inspect", visits).out.split())
    assert names(visits) == ["a.parquet", "b.parquet", "nobody.parquet"]


def test_others_read_the_table_while_files_wait_and_it_is_swept_after_that(visits: Path) -> None:
    expire(str(visits), *AS_OF, "--grace", "300ms")
    peer = PeerTable(str(visits))
    assert [Path(path).name for path in peer.file_uris()] == ["a.parquet"]
    assert peer.history(1)[0]["operation"] == "VACUUM START"
    time.sleep(0.4)
    ran = iceberg_cli("resume", visits, "--format", "json")
    assert ran.code == 0
    (report,) = ran.json["reports"]
    assert (report["status"], report["waiting_files_count"], report["reclaimed_bytes"]) == ("done", 0, 8)
    assert names(visits) == ["a.parquet"]
    peer = PeerTable(str(visits))
    assert [each["operation"] for each in peer.history()][:2] == ["VACUUM END", "VACUUM START"]


def test_a_policy_file_gives_delta_tables_a_grace_too(visits: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(f'version = 1\n[[tables]]\nmatch = ["{visits}"]\nexpire-snapshots.grace = "1h"\n')
    ran = iceberg_cli("maintain", "--policy", policy, *AS_OF, "--yes", "--format", "json")
    assert ran.code == 0, ran.err
    assert [run["status"] for run in ran.json["runs"]] == ["waiting"]
    assert names(visits) == ["a.parquet", "b.parquet", "nobody.parquet"]


def test_a_plan_that_was_saved_before_leaves_what_waits_by_now_out(visits: Path, tmp_path: Path) -> None:
    assert iceberg_cli("plan", visits, "expire-snapshots", *AS_OF, "-o", tmp_path / "saved").code == 0
    expire(str(visits), *AS_OF, "--grace", "1h")
    ran = iceberg_cli("apply", tmp_path / "saved", "--yes", "--format", "json")
    assert (ran.code, ran.json["status"]) == (0, "nothing_to_do")
    assert names(visits) == ["a.parquet", "b.parquet", "nobody.parquet"]
