"""A VACUUM that waits is taken back: its files stay, its end is one of a VACUUM that failed, whatever stops it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as PeerTable

from iceberg_cli.errors import IcebergCliError
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import Script, crash
from tests.builders import DAY_MS
from tests.cli.lakes import AS_OF, delta_with_removed_files, listing
from tests.cli.running import Ran, expire, iceberg_cli
from tests.crash.delta import an_add, commit_to, newest, operations_of, version_path
from tests.crash.suite import around
from tests.delta.verbs.expire_snapshots.test_crash import GOING
from tests.delta.verbs.expire_snapshots.test_grace import WaitingCleanup, WaitingVacuum

STARTED = ["VACUUM START"]
ENDED = ["VACUUM START", "VACUUM END"]


def waiting_vacuum() -> WaitingVacuum:
    scene = WaitingVacuum()
    assert scene.process().run().status == "waiting"
    return scene


def undo(scene: WaitingVacuum, **script: Any) -> DeltaProcess:
    return DeltaProcess(world=scene.world, script=Script(**script), verb="undo")


def end_of(scene: WaitingVacuum) -> dict[str, Any]:
    """The commitInfo of the newest version."""
    info: dict[str, Any] = json.loads(scene.world.files[version_path(newest(scene.world))].splitlines()[0])
    return info["commitInfo"]  # type: ignore[no-any-return]


def test_its_files_stay_and_its_end_is_one_of_a_vacuum_that_failed() -> None:
    scene = waiting_vacuum()
    files = set(scene.world.files)
    assert undo(scene).run().status == "done"
    assert scene.vacuums() == ENDED
    end = end_of(scene)
    assert end["operationParameters"] == {"status": "FAILED"}
    assert end["operationMetrics"] == {"numDeletedFiles": "0", "numVacuumedDirectories": "0"}
    data = {path for path in files if "/_iceberg_cli/" not in path}
    assert data <= set(scene.world.files)
    assert not [path for path in scene.world.files if "_last_vacuum_info" in path]
    scene.check()
    scene.world.now_ms += 2 * DAY_MS
    assert scene.process().resume() == []
    assert set(scene.world.files) >= GOING


def test_a_vacuum_after_it_takes_the_files() -> None:
    scene = waiting_vacuum()
    undo(scene).run()
    scene.process().run()
    scene.world.now_ms += 2 * DAY_MS
    scene.process().resume()
    assert not GOING & set(scene.world.files)
    assert scene.vacuums() == ENDED * 2


def test_a_log_cleanup_that_waits_is_closed_without_a_commit() -> None:
    scene = WaitingCleanup()
    report = scene.process().run()
    assert report.status == "waiting"
    log, version = set(scene.log_files()), newest(scene.world)
    policy = {"operation": report.operation_id}
    assert DeltaProcess(world=scene.world, verb="undo", policy=policy).run().status == "done"
    assert newest(scene.world) == version
    scene.world.now_ms += 2 * DAY_MS
    assert scene.process().resume() == []
    assert set(scene.log_files()) == log


@around
def test_a_crash_around_any_effect_leaves_a_vacuum_that_goes_on_or_one_that_failed(side: str) -> None:
    whole = undo(waiting_vacuum())
    whole.run()
    outcomes = set()
    for number, effect in enumerate(whole.effects):
        scene = waiting_vacuum()
        dying = undo(scene, **{side: {number: crash}})
        assert dying.dies(dying.run), effect
        scene.check()
        scene.world.now_ms += 2 * DAY_MS
        scene.process().resume()
        scene.check()
        assert scene.vacuums() == ENDED, effect
        # What is deleted is told, and what is told to have failed has deleted nothing.
        status = end_of(scene)["operationParameters"]["status"]
        assert (status == "FAILED") == (set(scene.world.files) >= GOING), effect
        outcomes.add(status)
        assert not [path for path in scene.world.files if "/_iceberg_cli/ops/" in path], effect
    assert outcomes == {"FAILED", "COMPLETED"}


def test_a_sweep_before_any_effect_is_told_as_what_it_was() -> None:
    """The grace is over for another process, which goes on with the VACUUM at any moment of the undo."""
    whole = undo(waiting_vacuum())
    whole.run()
    for number in range(len(whole.effects)):
        scene = waiting_vacuum()

        def sweep(scene: WaitingVacuum = scene) -> None:
            scene.world.now_ms += 2 * DAY_MS
            scene.process().resume()

        with suppress(IcebergCliError):
            undo(scene, before={number: sweep}).run()
        scene.process().resume()
        scene.check()
        statuses = [
            json.loads(scene.world.files[version_path(version)].splitlines()[0])["commitInfo"]
            for version in range(newest(scene.world) + 1)
        ]
        ends = [
            each["operationParameters"]["status"]
            for each in statuses
            if each.get("operation") == "VACUUM END"
        ]
        assert len(ends) == 1, number
        assert (ends == ["FAILED"]) == (set(scene.world.files) >= GOING), number


def test_a_writer_before_any_effect_keeps_its_commit() -> None:
    whole = undo(waiting_vacuum())
    whole.run()
    for number in range(len(whole.effects)):
        scene = waiting_vacuum()
        version = newest(scene.world)
        undo(scene, before={number: lambda scene=scene: commit_to(scene.world, an_add("f.parquet"))}).run()
        assert sorted(operations_of(scene.world)[version + 1 :]) == ["VACUUM END", "WRITE"], number
        scene.check()


def cli(verb: str, *words: object) -> Ran:
    return iceberg_cli(verb, *words, "--yes", "--format", "json")


def test_other_programs_read_the_log_and_vacuum_themselves(tmp_path: Path) -> None:
    name = delta_with_removed_files(tmp_path / "t", "gone")
    files = listing(tmp_path / "t").keys()
    waiting = expire(name, *AS_OF, "--grace", "1h").json
    assert waiting["status"] == "waiting"
    undone = cli("undo", name)
    assert (undone.code, undone.json["status"]) == (0, "done")
    assert files <= listing(tmp_path / "t").keys()
    peer = PeerTable(name)
    assert [each["operation"] for each in peer.history(2)] == ["VACUUM END", "VACUUM START"]
    assert len(peer.file_uris()) == 1
    shown = iceberg_cli("history", name, "--format", "json").json["operations"]
    assert [(each["operation"], each["status"], each["undone_by"]) for each in shown] == [
        ("undo", "done", None),
        ("expire-snapshots", "undone", undone.json["operation_id"]),
    ]


@pytest.mark.parametrize("grace", [(), ("--grace", "1h")])
def test_what_is_over_stays_as_it_is(tmp_path: Path, grace: tuple[str, ...]) -> None:
    name = delta_with_removed_files(tmp_path / "t", "gone")
    assert iceberg_cli("undo", name, "--yes").code == 11  # nothing was done yet
    expire(name, *AS_OF, *grace)
    if grace:
        assert cli("undo", name).code == 0
    ran = cli("undo", name)
    assert ran.code == 11
    said = "it was taken back already" if grace else "it is over. What does it instead: nothing: --grace has"
    assert said in ran.json["message"]
    assert cli("undo", name, "01a2-b3").code == 2


def test_a_checkpoint_is_not_taken_back_and_says_what_does_it_instead(tmp_path: Path) -> None:
    name = delta_with_removed_files(tmp_path / "t", "gone")
    assert cli("rewrite-manifests", name).json["status"] == "done"
    ran = cli("undo", name)
    assert ran.code == 11
    assert "it is over. What does it instead: nothing: no version reads otherwise" in ran.json["message"]
