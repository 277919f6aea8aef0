"""Tables from Python: what a program gets is what the command line shows and does, and nothing is printed."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import iceberg_cli as ic
from iceberg_cli.errors import CorruptFile, Refused, UsageError
from iceberg_cli.plan.events import AnyEvent, Event, FilesDeleted, PhaseEnded
from iceberg_cli.plan.removals import Removals
from tests.cli.lakes import AS_OF_MS, GONE, delta_with_removed_files, edited, four_snapshots, listing_of_table
from tests.cli.running import iceberg_cli

DAY_MS = 86_400_000
EXPIRE = {"older_than": "1d", "retain_last": 1}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """`four_snapshots` in a folder."""
    four_snapshots(tmp_path / "t").publish()
    return tmp_path / "t"


def planned(folder: Path, **options: Any) -> tuple[ic.Table, ic.Plan]:
    opened = ic.open_table(str(folder))
    return opened, opened.plan(ic.iceberg.ExpireSnapshots(**{**EXPIRE, **options}), as_of=AS_OF_MS)


def files(folder: Path) -> set[str]:
    return set(listing_of_table(folder))


def test_a_plan_is_the_one_of_the_command_line_and_is_carried_out_without_a_word(
    table: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shown = iceberg_cli(
        "expire-snapshots", table, "--older-than", "1d", "--retain-last", 1, "--as-of", AS_OF_MS,
        "--dry-run", "--format", "json",
    ).json  # fmt: skip
    capfd.readouterr()
    before = files(table)
    opened, plan = planned(table)
    assert plan.to_json() == shown
    assert (plan.verb, plan.due, plan.blocked_by, plan.removals.count) == (
        "expire-snapshots", True, (), len(GONE),
    )  # fmt: skip
    events: list[AnyEvent] = []
    report = opened.apply(plan, on_event=events.append)
    assert report.status == "done"
    assert "deleting files" in [event.phase for event in events if isinstance(event, Event)]
    phases = [event.phase for event in events if isinstance(event, PhaseEnded)]
    assert phases == ["record", "commit", "sweep"]
    (deleted,) = [event for event in events if isinstance(event, FilesDeleted)]
    assert sum(count for count, _ in deleted.by_kind.values()) == len(GONE)
    assert before - files(table) == GONE
    assert opened.operations() == []
    again = opened.plan(ic.iceberg.ExpireSnapshots(**EXPIRE), as_of=AS_OF_MS)
    assert not again.due
    assert capfd.readouterr() == ("", "")


def test_a_saved_plan_is_that_of_the_command_line_both_ways(table: Path, tmp_path: Path) -> None:
    _, plan = planned(table)
    plan.save(str(tmp_path / "ours.plan"))
    words = "--older-than 1d --retain-last 1 -o"
    ran = iceberg_cli(
        "plan", table, "expire-snapshots", *shlex.split(words), tmp_path / "theirs.plan", "--as-of", AS_OF_MS
    )
    assert ran.code == 0
    ours, theirs = ((tmp_path / f"{name}.plan").read_text() for name in ("ours", "theirs"))
    assert ours.replace("ours.plan", "theirs.plan") == theirs
    loaded = ic.Plan.load(str(tmp_path / "theirs.plan"))
    assert loaded.to_json() == plan.to_json()
    assert loaded.removals.rows.to_pylist() == plan.removals.rows.to_pylist()
    before = files(table)
    assert ic.open_table(str(table)).apply(loaded).status == "done"
    assert before - files(table) == GONE


def test_a_loaded_plan_does_no_more_than_it_lists(table: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.plan"
    planned(table, older_than=AS_OF_MS - 8 * DAY_MS)[1].save(str(path))
    listed = ic.Plan.load(str(path))
    assert 0 < listed.removals.count < len(GONE)
    wider = planned(table)[1]
    more = {path.rpartition("/")[2] for path in wider.removals.rows["path"].to_pylist()}
    assert wider.additions_over(listed)
    with edited(path) as document:
        document["policy"] = wider.to_json()["policy"]
    before = files(table)
    assert ic.open_table(str(table)).apply(ic.Plan.load(str(path))).status == "done"
    gone = {path.rpartition("/")[2] for path in listed.removals.rows["path"].to_pylist()}
    assert {name.rpartition("/")[2] for name in before - files(table)} == gone
    assert gone < more


def test_limits_stop_at_a_safe_point_and_resume_goes_on(table: Path) -> None:
    opened, plan = planned(table)
    before = files(table)
    report = opened.apply(plan, runtime=ic.new_runtime(limit_deletes=3))
    assert report.status == "partial"
    assert len(before - files(table)) == 3
    [listed] = opened.operations()
    assert listed.state == "sweeping"
    with pytest.raises(UsageError, match="no open operation other"):
        opened.resume("other")
    seen: list[str | None] = []
    [done] = opened.resume(listed.operation_id, on_settled=lambda each: seen.append(each.report.operation_id))
    assert (done.exit_code, seen) == (0, [listed.operation_id])
    assert before - files(table) == GONE
    assert opened.recover() == []


def test_what_is_interlocked_is_shown_and_not_carried_out(tmp_path: Path) -> None:
    four_snapshots(tmp_path / "t", properties={"gc.enabled": "false"}).publish()
    opened, plan = planned(tmp_path / "t")
    assert plan.removals.count
    assert "gc.enabled" in plan.blocked_by[0]
    with pytest.raises(Refused, match=r"gc\.enabled"):
        opened.apply(plan)


def test_rows_are_columns_or_a_document(table: Path) -> None:
    opened = ic.open_table(str(table))
    for what in ("snapshots", "files", "refs", "manifests"):
        shown = iceberg_cli("inspect", table, what, "--format", "json", "--as-of", AS_OF_MS).json
        found = opened.inspect(what, as_of=AS_OF_MS)
        assert found.to_json() == shown
        assert found.to_arrow().num_rows == shown["row_count"]
    paths = opened.inspect("files").to_arrow()["file_path"].to_pylist()
    assert {path.rpartition("/")[2] for path in paths} == {"keep.parquet", "two.parquet", "four.parquet"}
    assert opened.inspect("files", limit=1).to_arrow().num_rows == 1
    assert opened.inspect("files", snapshot_id=1).to_arrow().num_rows == 2
    summary = iceberg_cli("inspect", table, "--format", "json", "--as-of", AS_OF_MS).json
    assert opened.inspect(as_of=AS_OF_MS).to_json() == summary
    with pytest.raises(UsageError, match="no rows"):
        opened.inspect().to_arrow()
    with pytest.raises(UsageError, match="'file' cannot be inspected"):
        opened.inspect("file")
    with pytest.raises(UsageError, match="about Delta tables"):
        opened.inspect("protocol")


def test_a_check_has_the_document_of_the_command_line_and_counts(table: Path) -> None:
    shown = iceberg_cli("inspect", table, "--check", "--format", "json", "--as-of", AS_OF_MS).json
    found = ic.open_table(str(table)).check(as_of=AS_OF_MS)
    assert found.document == shown
    assert (found.errors, found.unanswered, found.warnings) == (shown["counts"]["error"], 0, ())
    next((table / "metadata").glob("4-m*.avro")).write_bytes(b"")
    assert ic.open_table(str(table)).check().errors
    with pytest.raises(CorruptFile):
        planned(table)


def test_a_policy_of_the_other_format_is_refused_by_name(tmp_path: Path, table: Path) -> None:
    delta = ic.open_table(delta_with_removed_files(tmp_path / "d", "b"))
    with pytest.raises(UsageError, match=r"iceberg\.ExpireSnapshots is no policy") as caught:
        delta.plan(ic.iceberg.ExpireSnapshots())
    assert caught.value.next_step == "Use iceberg_cli.delta.ExpireSnapshots."
    with pytest.raises(UsageError, match=r"delta\.MergeDvs is no policy"):
        ic.open_table(str(table)).plan(ic.delta.MergeDvs())
    _, plan = planned(table)
    with pytest.raises(Refused, match="for a table of format iceberg"):
        delta.replan(plan)
    plan = delta.plan(ic.delta.ExpireSnapshots(retention="0s", unsafe_short_retention=True))
    assert delta.apply(plan).status == "done"
    assert [(tmp_path / "d" / f"{name}.parquet").exists() for name in "ab"] == [True, False]
    assert not delta.preflight(ic.delta.UpgradeV3()).blocking


def test_times_and_sizes_are_texts_of_the_command_line_or_numbers(table: Path) -> None:
    for options in (
        {"older_than": "1d"},
        {"older_than": AS_OF_MS - DAY_MS},
        {"older_than": f"{AS_OF_MS - DAY_MS}"},
    ):
        policy = planned(table, **options, grace="1h")[1].content.policy
        assert (policy["older_than_ms"], policy["grace_ms"]) == (AS_OF_MS - DAY_MS, 3_600_000)
    assert ic.iceberg.MergeDvs(target_size="64MiB") == ic.iceberg.MergeDvs(target_size=64 << 20)
    assert ic.delta.MergeDvs(target_size="2MiB").to_json()["target_size"] == 2 << 20
    assert ic.iceberg.ExpireSnapshots(snapshot_ids=[3, 1, 3]).snapshot_ids == (1, 3)
    recipe = ("merge-dvs", "assign-row-ids")
    for given in (["assign-row-ids", "merge-dvs"], "assign-row-ids,merge-dvs", recipe):
        assert ic.iceberg.UpgradeV3(recipe=given).recipe == recipe
    with pytest.raises(UsageError, match=r"^recipe takes"):
        ic.iceberg.UpgradeV3(recipe=["rewrite"])
    for wrong in ({"older_than": "soon"}, {"older_than": "2999-01-01T00:00:00Z"}):
        with pytest.raises(UsageError, match=r"^older_than: "):
            planned(table, **wrong)
    with pytest.raises(UsageError, match=r"^target_size must be between 4KiB and 1TiB"):
        ic.iceberg.RewriteManifests(target_size="8")


def test_threads_with_a_table_each_do_what_one_after_the_other_does(tmp_path: Path) -> None:
    folders = [tmp_path / f"t{number}" for number in range(8)]
    for folder in folders:
        four_snapshots(folder).publish()

    def maintain(folder: Path) -> tuple[str, set[str], Removals]:
        before = files(folder)
        opened, plan = planned(folder)
        report = opened.apply(plan)
        return report.status, before - files(folder), plan.removals

    with ThreadPoolExecutor(len(folders)) as threads:
        done = list(threads.map(maintain, folders))
    for folder, (status, gone, removals) in zip(folders, done, strict=True):
        assert (status, gone) == ("done", GONE)
        assert all(path.startswith(f"{folder}/") for path in removals.rows["path"].to_pylist())


def test_public_names_are_what_they_say() -> None:
    assert ic.open_table.__module__ == "iceberg_cli.api"
    for name in ic.__all__:
        assert getattr(ic, name) is not None
    for package in (ic.iceberg, ic.delta):
        for name in package.__all__:
            assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing"):
        _ = ic.nothing
