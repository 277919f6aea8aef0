"""Commits to Delta tables: what is filled in when the version is known, and what the shell does around it."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from iceberg_cli.delta.commit import CommitDraft, LogCommit, bind
from iceberg_cli.delta.ownership import DELETION_VECTOR, is_marked, marked_uuid
from iceberg_cli.delta.spec.columns import ADD, REMOVE
from iceberg_cli.delta.spec.paths import dv_path, z85_encode
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.errors import Refused, UsageError
from iceberg_cli.formats.open import open_table
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.operation.outcomes import Committed, Conflict, Unknown
from iceberg_cli.operation.records import CommitIntent
from iceberg_cli.plan.plan import Base, Change, Option, Plan, StagedFile, Step, Task
from iceberg_cli.plan.removal_rows import SCHEMA
from iceberg_cli.plan.removals import Removals
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.conformance.commits import first_metadata
from iceberg_cli.testing.conformance.delta_logs import make_log
from iceberg_cli.testing.delta_writer import (
    NOW_MS,
    a_dv,
    a_metadata,
    a_protocol,
    a_protocol_with,
    a_remove,
    an_add,
)
from tests.delta_opened import a_log, opened
from tests.journals import append
from tests.servers import S3Server

TXN = "0e6c94a9-3fb9-4212-b606-a634b83221fc"
TEST: Mapping[str, Any] = {"commitInfo": {"operation": "TEST"}}
ICT = {"delta.enableInCommitTimestamps": "true"}


def a_root(root: Path, *commits: Any) -> str:
    """A table with these commits; its folder."""
    return a_log(root, *commits).root


def adds(*actions: Mapping[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([action["add"] for action in actions], schema=ADD)


def removes(*actions: Mapping[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([action["remove"] for action in actions], schema=REMOVE)


def bound(snapshot: Snapshot, change: Change, **others: Any) -> LogCommit:
    values: dict[str, Any] = {
        "staged": {},
        "timestamp_ms": NOW_MS,
        "commit_uuid": TXN,
        "engine_info": "iceberg-cli/1.2.3",
        **others,
    }
    return bind(change, snapshot, **values)


def lines_of(commit: LogCommit) -> list[dict[str, Any]]:
    assert commit.data.endswith(b"\n")
    return [json.loads(line) for line in commit.data.splitlines()]


# What bind fills in


def test_a_commit_is_the_next_version_and_says_who_made_it_and_on_what(tmp_path: Path) -> None:
    snapshot = a_log(tmp_path, [], [an_add()]).snapshot()
    commit = bound(snapshot, Change(updates=(TEST,)))
    assert (commit.version, commit.commit_uuid) == (2, TXN)
    assert lines_of(commit) == [
        {
            "commitInfo": {
                "timestamp": NOW_MS,
                "operation": "TEST",
                "operationParameters": {},
                "readVersion": 1,
                "isolationLevel": "SnapshotIsolation",
                "isBlindAppend": False,
                "engineInfo": "iceberg-cli/1.2.3",
                "txnId": TXN,
            }
        }
    ]
    assert [update.to_json() for update in commit.updates] == [
        {"action": "delta-commit", "version": 2, "operation": "TEST"}
    ]


def test_commit_info_comes_first_and_domains_last(tmp_path: Path) -> None:
    snapshot = a_log(tmp_path, []).snapshot()
    domain = {"domainMetadata": {"domain": "delta.rowTracking", "configuration": "{}", "removed": False}}
    draft = CommitDraft(adds=adds(an_add()), removes=removes(a_remove()))
    updates = (domain, a_protocol(1, 3), a_metadata(), TEST)
    kinds = [
        kind for line in lines_of(bound(snapshot, Change(updates=updates, draft=draft))) for kind in line
    ]
    assert kinds == ["commitInfo", "metaData", "protocol", "add", "remove", "domainMetadata"]


def test_metrics_are_text_and_the_one_without_a_value_counts_what_was_deleted(tmp_path: Path) -> None:
    snapshot = a_log(tmp_path, []).snapshot()
    info = {
        "operation": "VACUUM END",
        "operationMetrics": {"numDeletedFiles": None, "numVacuumedDirectories": 3},
    }
    commit = bound(snapshot, Change(updates=({"commitInfo": info},)), deleted_files=15)
    assert lines_of(commit)[0]["commitInfo"]["operationMetrics"] == {
        "numDeletedFiles": "15",
        "numVacuumedDirectories": "3",
    }


@pytest.mark.parametrize(("behind_ms", "expected_ms"), [(0, NOW_MS + 1), (-5_000, NOW_MS + 5_000)])
def test_in_commit_timestamps_grow_whatever_the_clock_says(
    tmp_path: Path, behind_ms: int, expected_ms: int
) -> None:
    """Spec: the larger of the clock and the timestamp before, plus 1 ms; it is the commit's first field."""
    info = {"commitInfo": {"inCommitTimestamp": NOW_MS, "operation": "CREATE TABLE"}}
    first = [info, a_protocol_with("inCommitTimestamp"), a_metadata(configuration=ICT)]
    snapshot = a_log(tmp_path, first).snapshot()
    commit = bound(snapshot, Change(updates=(TEST,)), timestamp_ms=NOW_MS - behind_ms)
    fields = lines_of(commit)[0]["commitInfo"]
    assert next(iter(fields.items())) == ("inCommitTimestamp", expected_ms)
    assert fields["timestamp"] == NOW_MS - behind_ms


def test_the_commit_that_turns_in_commit_timestamps_on_has_one_and_says_since_when(tmp_path: Path) -> None:
    snapshot = a_log(tmp_path, []).snapshot()
    change = Change(updates=(a_protocol_with("inCommitTimestamp"), a_metadata(configuration=ICT), TEST))
    info, metadata, _ = lines_of(bound(snapshot, change))
    at_ms = info["commitInfo"]["inCommitTimestamp"]
    assert at_ms == max(NOW_MS, snapshot.timestamp_ms + 1)
    assert metadata["metaData"]["configuration"] == {
        **ICT,
        "delta.inCommitTimestampEnablementVersion": "1",
        "delta.inCommitTimestampEnablementTimestamp": str(at_ms),
    }


def test_in_commit_timestamps_that_a_protocol_alone_turns_on_take_the_tables_own_metadata(
    tmp_path: Path,
) -> None:
    """Spec: "Writer Requirements for In-Commit Timestamps", 4: older commits have none, so it is told since when."""
    own = a_metadata(configuration=ICT | {"user.key": "x"}, future=[1])
    snapshot = a_log(tmp_path, [a_protocol(), own]).snapshot()
    change = Change(updates=(a_protocol_with("inCommitTimestamp"), TEST))
    info, metadata, _ = lines_of(bound(snapshot, change))
    since = {
        "delta.inCommitTimestampEnablementVersion": "1",
        "delta.inCommitTimestampEnablementTimestamp": str(info["commitInfo"]["inCommitTimestamp"]),
    }
    stated = own["metaData"]
    assert metadata["metaData"] == {**stated, "configuration": {**stated["configuration"], **since}}


def test_numbered_adds_get_the_version_that_is_written_and_those_that_have_one_keep_it(
    tmp_path: Path,
) -> None:
    snapshot = a_log(tmp_path, [], [an_add()]).snapshot()
    draft = CommitDraft(
        adds=adds(
            an_add(path="new", baseRowId=0),
            an_add(path="old", baseRowId=10, defaultRowCommitVersion=1),
            an_add(path="plain"),
        )
    )
    found = [line["add"] for line in lines_of(bound(snapshot, Change(updates=(TEST,), draft=draft)))[1:]]
    assert [(add.get("baseRowId"), add.get("defaultRowCommitVersion")) for add in found] == [
        (0, 2),
        (10, 1),
        (None, None),
    ]


def test_removes_without_a_time_get_the_commits_and_staged_rows_join_the_drafts(tmp_path: Path) -> None:
    snapshot = a_log(tmp_path, []).snapshot()
    old = removes(a_remove(path="a", deletionTimestamp=None), a_remove(path="b", deletionTimestamp=7))
    staged = {
        Task(name="x", kind=DELETION_VECTOR): StagedFile(path="/x", row={"adds": adds(an_add(path="a"))})
    }
    change = Change(updates=(TEST,), draft=CommitDraft(adds=adds(an_add(path="c")), removes=old))
    lines = lines_of(bound(snapshot, change, staged=staged))[1:]
    assert [line["add"]["path"] for line in lines if "add" in line] == ["c", "a"]
    times = {
        line["remove"]["path"]: line["remove"]["deletionTimestamp"] for line in lines if "remove" in line
    }
    assert times == {"a": NOW_MS, "b": 7}


def test_fields_that_nobody_knows_survive_in_adds_that_are_written_again(tmp_path: Path) -> None:
    strange = an_add(path="a", backReference={"deep": [1, 2]}, future="x")
    snapshot = a_log(tmp_path, [strange, an_add(path="b")]).snapshot()
    commit = bound(snapshot, Change(updates=(TEST,), draft=CommitDraft(adds=snapshot.adds)))
    found = {line["add"]["path"]: line["add"] for line in lines_of(commit)[1:]}
    assert found == {"a": strange["add"], "b": an_add(path="b")["add"]}


@pytest.mark.parametrize("updates", [({"commitInfo": {}},), (), (TEST, {"sidecar": {"path": "x"}})])
def test_a_change_without_operation_or_with_an_action_that_no_commit_holds_is_refused(
    tmp_path: Path, updates: tuple[Mapping[str, Any], ...]
) -> None:
    with pytest.raises(Refused):
        bound(a_log(tmp_path, []).snapshot(), Change(updates=updates))


# Names of new files


def test_a_uuid_proves_whose_it_is_and_to_nobody_else() -> None:
    one, other = str(uuid.uuid4()), str(uuid.uuid4())
    made = [marked_uuid(one, f"{one}-{number}", "dv") for number in range(200)]
    assert len(set(made)) == 200
    assert {uuid.UUID(text).version for text in made} == {8}
    assert {uuid.UUID(text).variant for text in made} == {uuid.RFC_4122}
    assert all(is_marked(text, one) for text in made)
    assert not any(is_marked(text, other) for text in made)
    assert not any(is_marked(str(uuid.uuid4()), one) for _ in range(200))
    assert not is_marked("no uuid", one)


# The table


def step_of(*updates: Mapping[str, Any], draft: CommitDraft | None = None) -> Step:
    return Step(name="a step", change=Change(updates=(*updates, TEST), draft=draft))


def attempt_of(table: DeltaTable, step: Step, *, operation_id: str = "an-operation") -> Any:
    return table.bind(
        step,
        {},
        timestamp_ms=NOW_MS,
        commit_uuid=str(uuid.uuid4()),
        operation_id=operation_id,
        mark=f"{operation_id}-1",
    )


def test_a_folder_with_a_log_opens_as_a_delta_table_by_any_spelling(tmp_path: Path) -> None:
    root = a_root(tmp_path / "t", [], [an_add()])
    for name in (root, f"{root}/", f"file://{root}", f"{root}/_delta_log", f"{root}/_delta_log/"):
        table = opened(name)
        assert table.load() == Base(table_uuid=table.snapshot.metadata.id, version="1")
        assert table.location == str(root)
        assert table.describe()["format"] == "delta"
        assert opened(table.describe()["name"]).location == str(root)  # as a saved plan opens it


def test_a_folder_with_tables_of_both_formats_is_refused_and_each_can_be_named(tmp_path: Path) -> None:
    root = a_root(tmp_path / "t", [])
    metadata = Path(root) / "metadata" / "v1.metadata.json"
    metadata.parent.mkdir()
    metadata.write_text(first_metadata(root).decode())
    with pytest.raises(UsageError, match=r"_delta_log.*metadata/"):
        opened(root)
    assert opened(f"{root}/_delta_log").load().version == "0"
    table = open_table(str(metadata), storage_options={}, on_event=lambda _: None)
    assert isinstance(table, IcebergTable)


@pytest.mark.parametrize("feature", ["fromTheFuture", "catalogManaged"])
def test_a_table_whose_writers_must_know_more_is_read_and_never_written_to(
    tmp_path: Path, feature: str
) -> None:
    protocol = a_protocol(1, 7, writer_features=[feature])
    table = opened(a_root(tmp_path, [protocol, a_metadata(), an_add()]))
    assert table.snapshot.adds.num_rows == 1
    assert feature in (table.read_only_reason() or "")
    with pytest.raises(Refused, match=feature):
        attempt_of(table, step_of())
    plan = a_plan(table, [])
    assert feature in table.blocked(plan).blocked_by[0]
    with pytest.raises(Refused, match=feature):
        table.unreachable(Removals.none(), [], plan=plan)


def test_a_writer_feature_that_comes_later_stops_the_commit_and_the_sweep(tmp_path: Path) -> None:
    root = a_root(tmp_path, [])
    table = opened(root)
    protocol = a_protocol(1, 7, writer_features=["fromTheFuture"])
    Path(f"{root}/_delta_log/{1:020d}.json").write_text(json.dumps(protocol) + "\n")
    with pytest.raises(Refused, match="fromTheFuture"):
        table.unreachable(Removals.none(), [], plan=a_plan(table, []))
    with pytest.raises(Refused, match="fromTheFuture"):
        attempt_of(table, step_of())


def test_a_reader_feature_that_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    protocol = a_protocol(3, 7, reader_features=["fromTheFuture"], writer_features=["fromTheFuture"])
    with pytest.raises(Refused, match="fromTheFuture"):
        opened(a_root(tmp_path, [protocol, a_metadata()]))


def test_the_bytes_of_a_commit_are_kept_until_its_outcome_is_known(tmp_path: Path) -> None:
    table = opened(a_root(tmp_path, []))
    step = step_of(draft=CommitDraft(adds=adds(an_add())))
    attempt = attempt_of(table, step)
    intent = CommitIntent(
        step=step.name,
        base_location=attempt.base,
        metadata_location=attempt.target,
        digest=attempt.digest,
        timestamp_ms=attempt.commit.timestamp_ms,
        commit_uuid=attempt.commit.commit_uuid,
        updates=tuple(update.to_json() for update in attempt.commit.updates),
        counts={},
        removals_file=None,
        grace_ms=0,
        scratch=attempt.temporary_files,
        own_files=(),
    )
    table.workspace.put(attempt.files)
    again = table.rebind(step, intent)
    assert again is not None
    assert replace(again, files=attempt.files) == attempt
    table.workspace.discard(attempt.temporary_files, marks=[attempt.commit.commit_uuid])
    bare = table.rebind(step, intent)
    assert bare is not None
    assert isinstance(table.commit(bare), Unknown)
    assert table.load().version == "0"
    assert table.commit(attempt) == Committed(metadata_location=attempt.target)
    assert table.settle(bare) == Committed(metadata_location=attempt.target)


def test_an_attempt_on_a_version_that_another_writer_has_passed_is_a_conflict(tmp_path: Path) -> None:
    root = a_root(tmp_path, [])
    ours, theirs = opened(root), opened(root)
    attempt = replace(attempt_of(ours, step_of()), fresh=True)
    assert isinstance(theirs.commit(attempt_of(theirs, step_of())), Committed)
    assert isinstance(ours.commit(attempt), Conflict)
    assert ours.load().version == "1"
    assert isinstance(ours.commit(attempt_of(ours, step_of())), Committed)


# Files


def a_plan(table: DeltaTable, rows: Sequence[tuple[str, str]], **options: int) -> Plan:
    """A plan that removes files, each with its kind."""
    cut = {"older_than_ms": NOW_MS + 1, "oldest_checkpoint": None, **options}
    plan = Plan(
        verb="expire-snapshots",
        table=table.describe(),
        base=table.load(),
        as_of_ms=NOW_MS,
        options={name: Option(value=value, source="a test") for name, value in cut.items()},
        policy={},
        steps=(step_of(),),
    )
    columns = [("a step", path, path, kind, 1, "a test") for path, kind in rows]
    found = pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in columns], schema=SCHEMA
    )
    return table.with_removals(table.blocked(plan), found)


def test_removals_outside_the_tables_folder_stay_and_are_told_of(tmp_path: Path) -> None:
    table = opened(a_root(tmp_path / "t", []))
    root = table.location
    asked = [
        (f"{root}/own.parquet", "data_file"),
        (f"{tmp_path}/t2/other.parquet", "data_file"),
        (f"{root}/../t2/dots.parquet", "data_file"),
        (f"{root}/_delta_log/{0:020d}.json", "data_file"),
        (f"{root}/looks-like-one.json", "commit_file"),
        (f"{root}/_iceberg_cli/ops/x/000000.json", "untracked_file"),
    ]
    plan = a_plan(table, asked)
    assert plan.removals is not None
    assert plan.removals.rows["path"].to_pylist() == [f"{root}/own.parquet"]
    assert [warning.partition(",")[0] for warning in plan.warnings] == ["1 file", "4 files"]


def test_a_file_that_came_back_before_its_deletion_is_not_deleted(tmp_path: Path) -> None:
    root = a_root(tmp_path, [an_add(path="a"), an_add(path="b")], [a_remove(path="a"), a_remove(path="b")])
    table = opened(root)
    plan = a_plan(table, [(f"{root}/a", "data_file"), (f"{root}/b", "data_file")])
    assert plan.removals is not None
    assert table.unreachable(plan.removals, [0, 1], plan=plan) == [0, 1]
    add = json.dumps(an_add(path="a"))
    Path(f"{root}/_delta_log/{2:020d}.json").write_text(f"{add}\n")
    assert table.unreachable(plan.removals, [0, 1], plan=plan) == [1]


def test_a_deletion_vector_file_has_the_name_that_its_descriptor_gives(tmp_path: Path) -> None:
    table = opened(a_root(tmp_path, []))
    operation_id = str(uuid.uuid4())
    path = table.workspace.staging_path(f"{operation_id}-3", Task(name="vectors-0", kind=DELETION_VECTOR))
    found = uuid.UUID(Path(path).stem.removeprefix("deletion_vector_"))
    assert dv_path("u", z85_encode(found.bytes), table.location) == path
    other = table.workspace.staging_path(f"{operation_id}-4", Task(name="vectors-0", kind=DELETION_VECTOR))
    assert other != path  # a name is used once


def test_files_of_the_log_are_staged_under_their_own_names(tmp_path: Path) -> None:
    table = opened(a_root(tmp_path, []))
    classic = Task(name=f"{0:020d}.checkpoint.parquet", kind="checkpoint")
    sidecar = Task(name="_sidecars/{uuid}.parquet", kind="sidecar")
    assert (
        table.workspace.staging_path("op-1", classic)
        == f"{table.location}/_delta_log/{0:020d}.checkpoint.parquet"
    )
    name = Path(table.workspace.staging_path("op-1", sidecar))
    assert name.parent == Path(table.location, "_delta_log", "_sidecars")
    assert is_marked(name.stem, "op")


def test_only_files_with_a_proof_are_discarded_and_none_that_the_table_names(tmp_path: Path) -> None:
    operation_id = str(uuid.uuid4())
    root = a_root(tmp_path, [a_protocol_with("deletionVectors"), a_metadata()])
    table = opened(root)
    unused, named = (
        table.workspace.staging_path(f"{operation_id}-{number}", Task(name="v", kind=DELETION_VECTOR))
        for number in (1, 2)
    )
    foreign = f"{root}/deletion_vector_{uuid.uuid4()}.bin"
    below = f"{root}/sub/{Path(unused).name}"
    checkpoint = f"{root}/_delta_log/{0:020d}.checkpoint.{Path(unused).stem[-36:]}.parquet"
    data = f"{root}/{operation_id}.parquet"
    table.workspace.put(dict.fromkeys((unused, named, foreign, below, checkpoint, data), b"x"))
    vector = z85_encode(uuid.UUID(Path(named).stem[-36:]).bytes)
    add = json.dumps(an_add(dv=a_dv(name=vector)))
    Path(f"{root}/_delta_log/{1:020d}.json").write_text(f"{add}\n")
    table.workspace.discard([unused, named, foreign, below, checkpoint, data], marks=[operation_id])
    left = {str(path) for path in Path(root).rglob("*") if path.is_file()}
    assert {named, foreign, below, checkpoint, data} <= left
    assert unused not in left
    assert table.snapshot.version == 0  # a plan was made of it


def test_folders_that_a_deletion_empties_go_and_no_others(tmp_path: Path) -> None:
    table = opened(a_root(tmp_path / "t", []))
    root = Path(table.location)
    for name in ("p=1/q=1/a", "p=1/q=2/b", "p=2/c", "p=2/kept", "p=3/q=1/d", "p=3/kept", "plain"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    (root / "empty").mkdir()
    going = [str(root / name) for name in ("p=1/q=1/a", "p=1/q=2/b", "p=2/c", "p=3/q=1/d", "plain")]
    assert table.workspace.delete(going) == {}
    assert sorted(
        str(path.relative_to(root)) for path in root.rglob("*") if "_delta_log" not in str(path)
    ) == [
        "empty",
        "p=2",
        "p=2/kept",
        "p=3",
        "p=3/kept",
    ]


def test_a_copy_of_a_table_is_a_table_of_its_own(tmp_path: Path) -> None:
    root = a_root(tmp_path / "t", [], [an_add()])
    shutil.copytree(root, tmp_path / "copy")
    copy = opened(tmp_path / "copy")
    assert isinstance(copy.commit(attempt_of(copy, step_of())), Committed)
    assert (copy.load().version, opened(root).load().version) == ("2", "1")


def test_another_table_at_the_same_place_stops_the_run(tmp_path: Path) -> None:
    root = a_root(tmp_path, [], [an_add()])
    table = opened(root)
    for path in Path(root, "_delta_log").iterdir():
        path.unlink()
    a_root(tmp_path, [a_protocol(), a_metadata(id="another")])
    with pytest.raises(Refused, match="another"):
        table.load()


def test_a_table_in_an_object_store_is_committed_to_and_keeps_its_journals_there(versitygw: S3Server) -> None:
    root = f"s3://{versitygw.bucket}/{uuid.uuid4().hex}"
    storage = open_storage(versitygw.options)
    make_log(root, storage)
    for name in (root, root.replace("s3://", "s3a://"), f"{root}/_delta_log"):
        table = open_table(
            name, storage_options=versitygw.options, conditional_writes=True, on_event=lambda _: None
        )
        assert isinstance(table, DeltaTable)
        assert table.location == root
    attempt = attempt_of(table, step_of(draft=CommitDraft(adds=adds(an_add()))))
    table.workspace.put(attempt.files)
    assert isinstance(table.commit(attempt), Committed)
    assert table.load().version == "1"
    assert table.snapshot.adds["path"].to_pylist() == ["part-0.parquet"]
    assert table.workspace.open_operations() == ["an-operation"]
    table.workspace.discard(attempt.temporary_files, marks=[attempt.commit.commit_uuid])
    assert table.workspace.open_operations() == []


def test_journals_are_kept_in_the_tables_folder(tmp_path: Path) -> None:
    table = opened(a_root(tmp_path, []))
    journal = table.workspace.journal("an-operation")
    append(journal, "begin", {"version": 1})
    assert table.workspace.open_operations() == ["an-operation"]
    assert Path(table.location, "_iceberg_cli/ops/an-operation/000000.json").is_file()
    table.workspace.forget("an-operation")
    assert table.workspace.open_operations() == []
