"""What one run reads of a table's metadata: each version once, and always the one that the pointer names."""

from __future__ import annotations

from pathlib import Path

from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.iceberg.verbs.upgrade_v3.policy import ASSIGN, REPAIR, UpgradeV3
from iceberg_cli.operation.apply import apply
from iceberg_cli.operation.runtime import system_runtime
from tests.cached_tables import a_history, opened
from tests.cli.lakes import AS_OF_MS


def test_an_expiry_reads_the_version_that_it_committed_once(tmp_path: Path) -> None:
    made = a_history(str(tmp_path / "t"))
    table, storage = opened(made.location, None)
    verb = VERBS["expire-snapshots"]
    plan = verb.plan(table, ExpireSnapshots(older_than=AS_OF_MS, retain_last=2), as_of_ms=AS_OF_MS)
    runtime = system_runtime(on_event=lambda _: None, host="here", process_id=1)
    report = apply(plan, table, verb, runtime)
    assert report.status == "done"
    assert [name for name in storage.names("v") if name.endswith(".metadata.json")] == ["v2.metadata.json"]
    assert [snapshot.snapshot_id for snapshot in table.metadata.snapshots] == [8, 9]


def test_a_version_that_was_read_ahead_is_not_taken_for_the_one_after_it(tmp_path: Path) -> None:
    made = a_history(str(tmp_path / "t"))
    table, _ = opened(made.location, None)
    loaded = table.metadata_location
    made.snapshot(10, "m9", parent=9)
    made.publish(main=10, name="v2.metadata.json")
    table.workspace.discard([f"{made.location}/metadata/.iceberg-cli-mark.tmp"], marks=["mark"])
    assert table.metadata_location == loaded
    assert table.metadata.current_snapshot_id == 9
    made.snapshot(11, "m9", parent=10)
    newest = made.publish(main=11, name="v3.metadata.json")
    assert table.load().version == newest
    assert table.metadata.current_snapshot_id == 11


def test_a_file_that_only_a_newer_version_names_is_not_discarded(tmp_path: Path) -> None:
    made = a_history(str(tmp_path / "t"))
    table, _ = opened(made.location, None)
    newest = made.publish(main=9, name="v2.metadata.json")
    table.workspace.discard([newest], marks=["v2"])
    assert Path(newest).exists()


def test_a_check_of_an_upgrade_reads_what_its_plan_reads_and_nothing_twice_for_that(tmp_path: Path) -> None:
    made = a_history(str(tmp_path / "t"))
    policy = UpgradeV3(recipe=(REPAIR, ASSIGN))
    (checked, by_check), (planned, by_plan) = opened(made.location, None), opened(made.location, None)
    assert not VERBS["upgrade-v3"].preflight(checked, policy, as_of_ms=AS_OF_MS).blocking
    assert VERBS["upgrade-v3"].plan(planned, policy, as_of_ms=AS_OF_MS).plan.due
    assert sorted(by_check.names("")) == sorted(by_plan.names(""))
    assert by_check.names("m")
