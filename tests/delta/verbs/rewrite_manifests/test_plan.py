"""rewrite-manifests of Delta tables, planned and carried out on a disk."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet as pq
import pytest

from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.delta.verbs.expire_snapshots.log_cleanup import checkpoint_task
from iceberg_cli.delta.verbs.rewrite_manifests.policy import RewriteManifests
from iceberg_cli.errors import Refused, UsageError
from iceberg_cli.plan.documents import plan_from_json
from iceberg_cli.plan.plan import Change, Step, encode
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.delta_writer import (
    NOW_MS,
    Action,
    a_checkpoint,
    a_commit,
    a_commit_info,
    a_dv,
    a_metadata,
    a_protocol_with,
    a_remove,
    a_txn,
    an_add,
    commit_path,
    write_checkpoint,
    write_commit,
    write_log_file,
)
from tests.delta_opened import Operator, a_log, opened, the_log

VERB = VERBS["rewrite-manifests"]
UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"


OPERATOR = Operator(VERB)
prepared, planned, rewritten = OPERATOR.prepare, OPERATOR.plan, OPERATOR.run


def names(root: Path) -> list[str]:
    return sorted(name for name in os.listdir(root / "_delta_log") if name != "_sidecars")


def sidecars(root: Path) -> list[str]:
    folder = root / "_delta_log" / "_sidecars"
    return sorted(os.listdir(folder)) if folder.exists() else []


def hint(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "_delta_log" / "_last_checkpoint").read_text())
    return found


def a_v2_table(root: Path, *commits: list[Action], **configuration: str) -> None:
    first, *rest = commits or ([an_add()],)
    metadata = a_metadata(configuration={"delta.checkpointPolicy": "v2", **configuration})
    a_log(root, [a_protocol_with("v2Checkpoint"), metadata, *first], *rest)


def files(root: Path) -> list[str]:
    return sorted(the_log(root).snapshot().adds["path"].to_pylist())


def test_a_classic_checkpoint_of_the_newest_version_is_written_with_hint_and_checksum(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add(path="a")], [an_add(path="b"), a_remove(path="a")])
    report = rewritten(tmp_path)
    assert report.status == "done"
    assert report.counts == {
        "added_checkpoints_count": 1,
        "added_sidecars_count": 0,
        "added_checksums_count": 1,
        "added_compactions_count": 0,
    }
    version = f"{1:020}"
    assert names(tmp_path) == [
        f"{0:020}.json",
        f"{version}.checkpoint.parquet",
        f"{version}.crc",
        f"{version}.json",
        "_last_checkpoint",
    ]
    size = os.path.getsize(tmp_path / "_delta_log" / f"{version}.checkpoint.parquet")
    found = hint(tmp_path)
    assert [found[key] for key in ("version", "size", "sizeInBytes", "numOfAddFiles")] == [1, 4, size, 1]
    assert not os.path.exists(tmp_path / "_iceberg_cli" / "ops")
    commit_path(tmp_path, 0).unlink()
    assert files(tmp_path) == ["b"]
    assert deltalake.DeltaTable(str(tmp_path)).file_uris() == [str(tmp_path / "b")]


def test_a_v2_checkpoint_names_its_sidecars_as_they_are(tmp_path: Path) -> None:
    a_v2_table(tmp_path, [an_add(path=f"{number}") for number in range(5)])
    report = rewritten(tmp_path, part_size=2)
    assert (report.counts["added_checkpoints_count"], report.counts["added_sidecars_count"]) == (1, 3)
    (top,) = (name for name in names(tmp_path) if ".checkpoint." in name)
    assert top.startswith(f"{0:020}.checkpoint.")
    assert top.endswith(".json")
    actions = [json.loads(line) for line in (tmp_path / "_delta_log" / top).read_text().splitlines()]
    stated = [action["sidecar"] for action in actions if "sidecar" in action]
    folder = tmp_path / "_delta_log" / "_sidecars"
    assert [each["path"] for each in stated] == sidecars(tmp_path)
    assert [each["sizeInBytes"] for each in stated] == [
        os.path.getsize(folder / each["path"]) for each in stated
    ]
    assert [each["modificationTime"] for each in stated] == [
        os.stat(folder / each["path"]).st_mtime_ns // 1_000_000 for each in stated
    ]
    assert hint(tmp_path)["v2Checkpoint"]["path"] == top
    assert hint(tmp_path)["v2Checkpoint"]["sidecarFiles"] == stated
    assert files(tmp_path) == [str(number) for number in range(5)]
    assert len(deltalake.DeltaTable(str(tmp_path)).file_uris()) == 5


def test_the_operator_decides_before_the_tables_policy(tmp_path: Path) -> None:
    a_v2_table(tmp_path)
    plan = planned(tmp_path)
    assert (plan.options["checkpoint"].value, plan.options["checkpoint"].source) == (
        "v2",
        "delta.checkpointPolicy",
    )
    rewritten(tmp_path, checkpoint="classic")
    assert f"{0:020}.checkpoint.parquet" in names(tmp_path)
    assert sidecars(tmp_path) == []


def test_a_v2_checkpoint_is_refused_unless_the_table_supports_it(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add()])
    plan = planned(tmp_path, checkpoint="v2")
    assert "v2Checkpoint" in plan.blocked_by[0]
    before = names(tmp_path)
    with pytest.raises(Refused, match="v2Checkpoint"):
        rewritten(tmp_path, checkpoint="v2")
    assert names(tmp_path) == before


@pytest.mark.parametrize("value", ["third", ""])
def test_a_policy_of_the_table_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    a_v2_table(tmp_path, **{"delta.checkpointPolicy": value})
    assert "delta.checkpointPolicy" in planned(tmp_path).blocked_by[0]
    assert planned(tmp_path, checkpoint="classic").blocked_by == ()


def test_a_table_with_an_unknown_writer_feature_is_not_written_to(tmp_path: Path) -> None:
    a_log(tmp_path, [a_protocol_with("fromTheFuture"), a_metadata(), an_add()])
    assert "fromTheFuture" in planned(tmp_path).blocked_by[0]


@pytest.mark.parametrize(
    "novelties",
    [
        [{"novelty": {}}],
        [{"novelty": {"a": 1}}, {"novelty": {"a": "x"}}],
        [{"novelty": 7}],
        [{"novelty": ["a"]}],
    ],
)
def test_unknown_actions_that_parquet_cannot_hold_are_left_out_as_by_delta_spark_and_a_v2_checkpoint_keeps_them(
    tmp_path: Path, novelties: list[Action]
) -> None:
    a_v2_table(tmp_path, [an_add(), *novelties, {"other": {"a": 1}}])
    plan = planned(tmp_path)
    assert (plan.blocked_by, plan.warnings) == ((), ())
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "_delta_log", kept / "_delta_log")
    assert rewritten(kept).status == "done"
    assert the_log(kept).snapshot().unknown == (*novelties, {"other": {"a": 1}})
    plan = planned(tmp_path, checkpoint="classic")
    (warning,) = plan.warnings
    assert "leaves out the actions novelty, which" in warning
    assert rewritten(tmp_path, checkpoint="classic").status == "done"
    path = tmp_path / "_delta_log" / f"{0:020}.checkpoint.parquet"
    assert {"novelty", "other", "add"} & set(pq.read_schema(path).names) == {"other", "add"}
    assert len(deltalake.DeltaTable(str(tmp_path)).file_uris()) == 1


def test_a_field_of_a_known_action_that_parquet_cannot_hold_blocks_the_plan(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add()], [a_txn(novelty={})])
    assert "txn.novelty" in planned(tmp_path).blocked_by[0]


@pytest.mark.parametrize(("first", "second"), [("v2", "classic"), ("classic", "v2")])
def test_a_version_with_a_checkpoint_gets_none_of_another_kind(
    tmp_path: Path, first: str, second: str
) -> None:
    a_v2_table(tmp_path)
    table, made = prepared(tmp_path, checkpoint=second)
    rewritten(tmp_path, checkpoint=first)
    before = names(tmp_path)
    assert rewritten(tmp_path).status == "nothing_to_do"
    assert rewritten(tmp_path, checkpoint=first).status == "nothing_to_do"
    (verdict,) = planned(tmp_path, checkpoint=second).verdicts
    assert verdict.reason == (
        f"version 0 has one, and some readers fail where a version has a second one, of kind {second}"
    )
    assert rewritten(tmp_path, checkpoint=second).status == "nothing_to_do"
    # Planned before there was one.
    assert OPERATOR.apply(made, table).counts["added_checkpoints_count"] == 0
    assert names(tmp_path) == before
    assert not sidecars(tmp_path) or first == "v2"


def test_a_classic_checkpoint_is_not_written_beside_one_of_several_parts(tmp_path: Path) -> None:
    """DuckDB's reader takes files of both for one checkpoint, and fails in half of its reads."""
    actions = [a_protocol_with(), a_metadata(), an_add(path="a"), an_add(path="b")]
    a_log(tmp_path, actions)
    for part, some in enumerate((actions[:3], actions[3:]), 1):
        name = f"{0:020}.checkpoint.{part:010}.{2:010}.parquet"
        write_log_file(tmp_path, name, a_checkpoint(*some))
    before = names(tmp_path)
    (verdict,) = planned(tmp_path, checkpoint="classic").verdicts
    assert (verdict.id, verdict.keep) == ("multi-part", True)
    assert rewritten(tmp_path, checkpoint="classic").status == "nothing_to_do"
    assert names(tmp_path) == before


def test_a_new_version_is_due_again(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add(path="a")])
    rewritten(tmp_path)
    write_commit(tmp_path, 1, a_commit(an_add(path="b")))
    assert planned(tmp_path).due
    rewritten(tmp_path)
    assert hint(tmp_path)["version"] == 1


def test_a_plan_that_was_shown_is_carried_out_on_the_version_that_is_there_then(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add(path="a")])
    table, made = prepared(tmp_path)
    write_commit(tmp_path, 1, a_commit(an_add(path="b")))
    report = OPERATOR.apply(made, table)
    assert report.status == "done"
    assert [name for name in names(tmp_path) if "checkpoint.parquet" in name] == [
        f"{1:020}.checkpoint.parquet"
    ]


def test_a_saved_plan_is_carried_out(tmp_path: Path) -> None:
    a_v2_table(tmp_path, [an_add(path="a"), an_add(path="b")])
    table, made = prepared(tmp_path, part_size=1)
    plan = made.plan
    document = json.loads(encode(plan.to_json()))
    assert plan.removals is not None
    saved = plan_from_json(document, removals=plan.removals, path="saved")
    made = VERB.plan(table, RewriteManifests(part_size=1), as_of_ms=NOW_MS, within=saved)
    report = OPERATOR.apply(made, table)
    assert (report.status, len(sidecars(tmp_path))) == ("done", 2)
    assert files(tmp_path) == ["a", "b"]


def test_another_writers_checkpoint_under_the_same_name_stays(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add(path="a")])
    table, made = prepared(tmp_path)
    deltalake.DeltaTable(str(tmp_path)).create_checkpoint()
    path = tmp_path / "_delta_log" / f"{0:020}.checkpoint.parquet"
    theirs, their_hint = path.read_bytes(), hint(tmp_path)
    report = OPERATOR.apply(made, table)
    assert (report.status, report.counts["added_checkpoints_count"]) == ("done", 0)
    assert (path.read_bytes(), hint(tmp_path)) == (theirs, their_hint)


# -- beside the checkpoint -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("named", "expected"), [(0, 1), (7, 1)], ids=["older", "beyond the table"])
def test_the_hint_is_moved_and_the_checksum_that_hadoop_kept_of_it_goes(
    tmp_path: Path, named: int, expected: int
) -> None:
    a_log(tmp_path, [an_add()], [an_add(path="b")])
    write_log_file(tmp_path, "_last_checkpoint", json.dumps({"version": named, "size": 1}).encode())
    write_log_file(tmp_path, "._last_checkpoint.crc", b"of the old content")
    rewritten(tmp_path)
    assert hint(tmp_path)["version"] == expected
    assert "._last_checkpoint.crc" not in names(tmp_path)


def test_the_hint_is_not_moved_back_where_another_writer_is_ahead(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add()])
    table, made = prepared(tmp_path)
    table.load()
    step = made.plan.steps[0]
    paths = {task: table.workspace.staging_path("operation-1", task) for task in step.tasks}
    write_commit(tmp_path, 1, a_commit(an_add(path="b")))
    write_log_file(tmp_path, "_last_checkpoint", b'{"version":1,"size":4}')
    made.build(step, paths)
    assert hint(tmp_path) == {"version": 1, "size": 4}
    assert f"{0:020}.checkpoint.parquet" in names(tmp_path)


def test_a_checksum_that_is_there_is_never_overwritten(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add()])
    write_log_file(tmp_path, f"{0:020}.crc", b"whatever it says")
    assert rewritten(tmp_path).counts["added_checksums_count"] == 0
    assert (tmp_path / "_delta_log" / f"{0:020}.crc").read_bytes() == b"whatever it says"


def test_an_in_commit_timestamp_in_the_checksum_is_the_commits(tmp_path: Path) -> None:
    metadata = a_metadata(configuration={"delta.enableInCommitTimestamps": "true"})
    protocol = a_protocol_with("inCommitTimestamp")
    a_log(tmp_path, [a_commit_info(inCommitTimestamp=12_345), protocol, metadata, an_add()])
    rewritten(tmp_path)
    stated = json.loads((tmp_path / "_delta_log" / f"{0:020}.crc").read_text())
    assert stated["inCommitTimestampOpt"] == 12_345


def a_timed_table_whose_last_commit_is_gone(root: Path, *, checksum: bool) -> None:
    """Its commits are a millennium ahead of every clock."""
    metadata = a_metadata(configuration={"delta.enableInCommitTimestamps": "true"})
    times = [a_commit_info(inCommitTimestamp=30 * NOW_MS + number) for number in (0, 5)]
    a_log(root, [times[0], a_protocol_with("inCommitTimestamp"), metadata], [times[1], an_add()])
    rewritten(root)
    for name in [f"{0:020}.json", f"{1:020}.json", *([] if checksum else [f"{1:020}.crc"])]:
        (root / "_delta_log" / name).unlink()


def upgraded(root: Path) -> Report:
    return Operator(VERBS["upgrade-v3"]).run(root, features=["changeDataFeed"])


def test_where_a_commit_is_gone_its_checksum_tells_its_in_commit_timestamp(tmp_path: Path) -> None:
    """Spec: the larger of the clock and one millisecond later than the previous commit's."""
    a_timed_table_whose_last_commit_is_gone(tmp_path, checksum=True)
    assert the_log(tmp_path).snapshot().timestamp_ms == 30 * NOW_MS + 5
    upgraded(tmp_path)
    commit = commit_path(tmp_path, 2).read_text().splitlines()
    assert json.loads(commit[0])["commitInfo"]["inCommitTimestamp"] == 30 * NOW_MS + 6


@pytest.mark.parametrize("checksum", [None, b"{", b'{"inCommitTimestampOpt":5}', "null"])
def test_where_nothing_tells_it_the_table_is_read_and_not_committed_to(
    tmp_path: Path, checksum: bytes | str | None
) -> None:
    a_timed_table_whose_last_commit_is_gone(tmp_path, checksum=checksum == "null")
    path = tmp_path / "_delta_log" / f"{1:020}.crc"
    if checksum == "null":
        path.write_text(json.dumps(json.loads(path.read_text()) | {"inCommitTimestampOpt": None}))
    elif isinstance(checksum, bytes):
        path.write_bytes(checksum)
    snapshot = the_log(tmp_path).snapshot()
    assert (snapshot.adds.num_rows, snapshot.in_commit_timestamp_ms) == (1, None)
    reason = "neither a commit nor a version checksum tells the in-commit timestamp of version 1"
    with pytest.raises(Refused, match=reason):
        upgraded(tmp_path)
    table = opened(tmp_path)
    change = Change(updates=({"commitInfo": {"operation": "TEST"}},))
    with pytest.raises(Refused, match=reason):
        table.bind(
            Step(name="x", change=change), {}, timestamp_ms=1, commit_uuid="u", operation_id="o", mark="m"
        )
    assert not commit_path(tmp_path, 2).exists()
    assert not planned(tmp_path).blocked_by


def test_no_checksum_is_written_where_the_commit_is_gone_or_holds_what_is_unknown(tmp_path: Path) -> None:
    a_log(tmp_path / "1", [an_add(), {"novelty": {"a": 1}}])
    assert rewritten(tmp_path / "1").counts["added_checksums_count"] == 0
    a_log(tmp_path / "2", [an_add()], [an_add(path="b")])
    rewritten(tmp_path / "2")
    for version in (0, 1):
        commit_path(tmp_path / "2", version).unlink()
    (tmp_path / "2" / "_delta_log" / f"{1:020}.crc").unlink()
    assert rewritten(tmp_path / "2").counts["added_checksums_count"] == 0


def test_our_checksum_lets_delta_rs_and_our_own_reader_agree(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add(path="a", size=5)], [an_add(path="b", size=7), a_remove(path="a")])
    rewritten(tmp_path)
    stated = json.loads((tmp_path / "_delta_log" / f"{1:020}.crc").read_text())
    table = deltalake.DeltaTable(str(tmp_path))
    assert (stated["numFiles"], stated["tableSizeBytes"]) == (len(table.file_uris()), 7)
    assert stated["metadata"]["id"] == str(table.metadata().id)


# -- log compaction --------------------------------------------------------------------------------------------


def test_a_range_of_the_log_is_compacted_beside_the_checkpoint(tmp_path: Path) -> None:
    commits = [[an_add(path=f"{number}")] for number in range(6)]
    a_log(tmp_path, *commits)
    report = rewritten(tmp_path, compact_log=[1, 3])
    assert (report.counts["added_compactions_count"], report.counts["added_checkpoints_count"]) == (1, 1)
    name = f"{1:020}.{3:020}.compacted.json"
    assert (tmp_path / "_delta_log" / name).read_text().count("\n") == 3
    for version in (1, 2, 3):
        commit_path(tmp_path, version).write_text("no reader may look here\n")
    (tmp_path / "_delta_log" / f"{5:020}.checkpoint.parquet").unlink()
    assert files(tmp_path) == [str(number) for number in range(6)]


def test_a_compaction_that_is_there_is_left_alone(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add(path="a")], [an_add(path="b")])
    rewritten(tmp_path, compact_log=[0, 1])
    plan = planned(tmp_path, compact_log=[0, 1])
    assert not plan.due
    assert [(verdict.subject, verdict.keep) for verdict in plan.verdicts] == [
        ("checkpoint", True),
        ("log-compaction", True),
    ]


def test_a_range_that_says_nothing_makes_no_file(tmp_path: Path) -> None:
    info = [a_commit_info(operation="VACUUM START")]
    a_log(tmp_path, [an_add()], info, info)
    report = rewritten(tmp_path, compact_log=[1, 2])
    assert (report.status, report.counts["added_compactions_count"]) == ("done", 0)
    assert not [name for name in names(tmp_path) if "compacted" in name]


def test_a_range_that_is_none_is_an_error_of_the_command_line(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add()], [an_add(path="b")])
    with pytest.raises(UsageError, match="no commit 2"):
        planned(tmp_path, compact_log=[0, 2])


# -- what vectors have and no column holds ---------------------------------------------------------------------

NEW_DV = {**a_dv(name="1" * 20), "newField": {"a": 1}}
UNNAMED = "newField, which Delta's protocol does not name"


@pytest.mark.parametrize("action", [an_add(dv=NEW_DV), a_remove(dv=NEW_DV)], ids=["add", "remove"])
@pytest.mark.parametrize("policy", [{}, {"checkpoint": "v2"}, {"compact_log": [0, 1]}], ids=str)
def test_a_field_of_a_vector_that_would_be_lost_blocks_checkpoint_and_compaction(
    tmp_path: Path, action: Action, policy: dict[str, Any]
) -> None:
    a_v2_table(tmp_path, [an_add(path="a", dv=a_dv())], [action])
    before = names(tmp_path)
    assert len(planned(tmp_path, **policy).blocked_by) == 1
    with pytest.raises(Refused, match=UNNAMED):
        rewritten(tmp_path, **policy)
    assert names(tmp_path) == before


@pytest.mark.parametrize(("value", "blocked"), [({"a": 1}, True), (None, False)])
def test_a_field_of_vectors_in_a_parquet_checkpoint_is_noticed_where_it_has_a_value(
    tmp_path: Path, value: Any, *, blocked: bool
) -> None:
    a_log(tmp_path, [an_add()], [an_add(path="b")])
    add = an_add(path="a", dv=NEW_DV | {"maxRowIndex": 4, "newField": value})
    state = [a_protocol_with("deletionVectors"), a_metadata(), add, a_remove(path="c", dv=a_dv())]
    write_checkpoint(tmp_path, 0, *state)
    assert any(UNNAMED in reason for reason in planned(tmp_path).blocked_by) is blocked


def test_a_checkpoint_of_a_log_cleanup_is_blocked_too(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add(dv=NEW_DV)])
    table, made = prepared(tmp_path)
    plan = made.plan
    cleanup = replace(plan, blocked_by=(), steps=(Step(name="versions", tasks=(checkpoint_task(0),)),))
    assert UNNAMED in table.blocked(cleanup).blocked_by[0]
    files = replace(cleanup, steps=(Step(name="files"),))
    assert table.blocked(files).blocked_by == ()


def test_a_compaction_of_commits_that_have_such_a_field_is_refused_whatever_the_table_has_now(
    tmp_path: Path,
) -> None:
    a_log(tmp_path, [an_add(path="a")], [an_add(dv=NEW_DV)], [a_remove(dv=NEW_DV)], [an_add(path="b")])
    state = [a_protocol_with("deletionVectors"), a_metadata(), an_add(path="a"), an_add(path="b")]
    write_checkpoint(tmp_path, 3, *state)
    with pytest.raises(Refused, match=UNNAMED):
        rewritten(tmp_path, compact_log=[0, 1])
    assert not [name for name in names(tmp_path) if "compacted" in name]


# -- nothing else is touched -----------------------------------------------------------------------------------


def test_files_that_were_there_stay_as_they_were(tmp_path: Path) -> None:
    a_v2_table(tmp_path, [an_add(path="a")], [an_add(path="b")])
    (tmp_path / "a").write_bytes(b"data")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    copy = tmp_path / "copy of the log"
    shutil.copytree(tmp_path / "_delta_log", copy)
    rewritten(tmp_path, compact_log=[0, 1])
    assert {path: path.read_bytes() for path in before} == before
