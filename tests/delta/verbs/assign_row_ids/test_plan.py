"""assign-row-ids of Delta tables, planned and carried out on a disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.delta.verbs.assign_row_ids.policy import AssignRowIds
from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.operation.apply import apply, resume
from iceberg_cli.operation.ports import Build, Planned
from iceberg_cli.plan.documents import plan_from_json
from iceberg_cli.plan.plan import encode
from iceberg_cli.testing.delta_writer import (
    NOW_MS,
    Action,
    a_domain,
    a_dv,
    a_field,
    a_metadata,
    a_protocol,
    a_protocol_with,
    a_remove,
    a_row_id_mark,
    an_add,
    commit_path,
    write_log,
)
from tests.delta_opened import Operator, a_log, a_shell, actions_in, opened, the_log

VERB = VERBS["assign-row-ids"]
ENABLED = "delta.enableRowTracking"
COLUMNS = (
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
)


OPERATOR = Operator(VERB)
prepared, planned, assigned = OPERATOR.prepare, OPERATOR.plan, OPERATOR.run


def a_supporting_table(root: Path, *actions: Action, **configuration: str) -> Path:
    features = ("rowTracking", "domainMetadata", "deletionVectors")
    a_log(root, [a_protocol_with(*features), a_metadata(configuration=configuration), *actions])
    return root


def files(root: Path) -> dict[str, tuple[int, int]]:
    """First row id and commit version by path."""
    adds = the_log(root).snapshot().adds.to_pylist()
    return {add["path"]: (add["baseRowId"], add["defaultRowCommitVersion"]) for add in adds}


def operations(root: Path) -> list[str]:
    snapshot = the_log(root).snapshot()
    versions = range(1, snapshot.version + 1)
    return [info["operation"] for version in versions for info in actions_in(root, version, "commitInfo")]


def mark_of(root: Path) -> int:
    action = the_log(root).snapshot().domains["delta.rowTracking"]
    mark: int = json.loads(action["configuration"])["rowIdHighWaterMark"]
    return mark


def test_a_legacy_table_is_declared_filled_in_batches_and_enabled(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add(path=name, rows=rows) for name, rows in (("a", 3), ("b", 0), ("c", 5))])
    report = assigned(tmp_path, batch_size=2)
    assert operations(tmp_path) == [
        "UPGRADE PROTOCOL",
        "ROW TRACKING BACKFILL",
        "ROW TRACKING BACKFILL",
        "SET TBLPROPERTIES",
    ]
    assert files(tmp_path) == {"a": (0, 2), "b": (3, 2), "c": (3, 3)}
    assert mark_of(tmp_path) == 7
    assert report.counts == {"assigned_rows_count": 8, "assigned_files_count": 3}
    snapshot = the_log(tmp_path).snapshot()
    writers = {"rowTracking", "domainMetadata", "invariants", "appendOnly"}
    assert (snapshot.protocol.min_reader_version, snapshot.protocol.writer_features) == (1, writers)
    assert snapshot.metadata.configuration[ENABLED] == "true"
    names = [snapshot.metadata.configuration[key] for key in COLUMNS]
    assert names[0].startswith("_row-id-col-")
    assert names[1].startswith("_row-commit-version-col-")
    assert assigned(tmp_path).status == "nothing_to_do"


def test_a_file_is_added_again_as_it_was_and_not_removed(tmp_path: Path) -> None:
    old = an_add(
        path="a%20b",
        dv=a_dv(cardinality=2),
        partitionValues={"p": "x"},
        tags={"k": "v"},
        clusteringProvider="liquid",
        amtPassthrough={"a": [1]},
    )
    a_supporting_table(tmp_path, old)
    assigned(tmp_path)
    info, add, domain = actions_in(tmp_path, 1)
    assert add["add"] == {**old["add"], "dataChange": False, "baseRowId": 0, "defaultRowCommitVersion": 1}
    assert info["commitInfo"]["operationParameters"] == {"batchId": "0"}
    assert info["commitInfo"]["isolationLevel"] == "SnapshotIsolation"
    assert json.loads(domain["domainMetadata"]["configuration"]) == {
        "rowIdHighWaterMark": 9,
        "domainName": "delta.rowTracking",
    }
    snapshot = the_log(tmp_path).snapshot()
    assert (snapshot.adds.num_rows, snapshot.removes.num_rows) == (1, 0)


def test_ids_that_are_there_never_change(tmp_path: Path) -> None:
    there = an_add(path="a", baseRowId=40, defaultRowCommitVersion=0)
    half = an_add(path="b", baseRowId=20)
    a_supporting_table(tmp_path, there, half, an_add(path="c"), a_row_id_mark(49))
    report = assigned(tmp_path)
    assert files(tmp_path) == {"a": (40, 0), "b": (20, 1), "c": (50, 1)}
    assert mark_of(tmp_path) == 59
    assert report.counts == {"assigned_rows_count": 10, "assigned_files_count": 2}


def test_the_mark_is_found_under_the_key_of_the_protocols_text_too(tmp_path: Path) -> None:
    text = a_domain(domain="delta.rowTracking", configuration='{"highWaterMark":99}')
    a_supporting_table(tmp_path, an_add(path="a"), text)
    assigned(tmp_path)
    assert files(tmp_path) == {"a": (100, 1)}
    action = the_log(tmp_path).snapshot().domains["delta.rowTracking"]
    marks = json.loads(action["configuration"])
    assert (marks["rowIdHighWaterMark"], marks["highWaterMark"]) == (109, 109)


def test_of_two_marks_the_higher_one_counts(tmp_path: Path) -> None:
    text = '{"rowIdHighWaterMark":9,"highWaterMark":49}'
    a_supporting_table(tmp_path, an_add(path="a"), a_domain(domain="delta.rowTracking", configuration=text))
    assigned(tmp_path)
    assert files(tmp_path) == {"a": (50, 1)}


def test_the_commit_that_enables_says_that_it_does_nothing_else(tmp_path: Path) -> None:
    names = {COLUMNS[0]: "_row-id-col-x", COLUMNS[1]: "_row-commit-version-col-x"}
    a_supporting_table(
        tmp_path, an_add(path="a", baseRowId=0, defaultRowCommitVersion=0), a_row_id_mark(9), **names
    )
    assigned(tmp_path)
    info, metadata = actions_in(tmp_path, 1)
    assert info["commitInfo"]["tags"] == {"rowTrackingEnablementOnly": "true"}
    assert metadata["metaData"]["configuration"] == {**names, ENABLED: "true"}


def test_enabling_again_needs_no_new_ids(tmp_path: Path) -> None:
    """delta-observed 4: where row tracking was switched off, ids stay, and new files still get them."""
    off = {ENABLED: "false"}
    a_supporting_table(
        tmp_path, an_add(path="a", baseRowId=0, defaultRowCommitVersion=0), a_row_id_mark(9), **off
    )
    assigned(tmp_path)
    assert operations(tmp_path) == ["SET TBLPROPERTIES"]


def test_an_empty_table_is_enabled_without_a_row_id_mark(tmp_path: Path) -> None:
    """delta-observed 4: an empty table has no such domain."""
    a_supporting_table(tmp_path)
    assigned(tmp_path)
    assert "delta.rowTracking" not in the_log(tmp_path).snapshot().domains


# What is refused before anything is committed


def log_of(root: Path) -> list[str]:
    return sorted(os.listdir(root / "_delta_log"))


def test_files_without_a_number_of_rows_are_refused_before_the_protocol_changes(tmp_path: Path) -> None:
    """Delta Spark leaves such a table half upgraded."""
    a_log(tmp_path, [an_add(path="a"), an_add(path="dark", rows=None), an_add(path="dim", stats="{}")])
    before = log_of(tmp_path)
    with pytest.raises(Refused, match=r"dark, dim do not tell.*--count-rows"):
        assigned(tmp_path)
    assert log_of(tmp_path) == before


@pytest.mark.parametrize("stats", ['{"numRecords":-1}', '{"numRecords":"7"}', '{"numRecords":1.5}', "[1]"])
def test_statistics_that_make_no_sense_are_refused(tmp_path: Path, stats: str) -> None:
    a_supporting_table(tmp_path, an_add(path="a", stats=stats))
    with pytest.raises(CorruptFile):
        planned(tmp_path)


def test_a_column_named_like_the_number_of_rows_is_not_taken_for_it(tmp_path: Path) -> None:
    stats = '{"minValues":{"numRecords":77}, "numRecords": 4}'
    a_supporting_table(tmp_path, an_add(path="a", stats=stats), an_add(path="b", rows=1))
    assigned(tmp_path)
    assert files(tmp_path) == {"a": (0, 1), "b": (4, 1)}


def test_ids_above_the_mark_are_damage_that_is_not_made_worse(tmp_path: Path) -> None:
    a_supporting_table(
        tmp_path, an_add(path="a", baseRowId=5, defaultRowCommitVersion=0), an_add(path="b"), a_row_id_mark(9)
    )
    with pytest.raises(Refused, match="row ids up to 14, and the high-water mark is 9"):
        assigned(tmp_path)


def test_a_suspended_table_is_refused(tmp_path: Path) -> None:
    a_supporting_table(tmp_path, an_add(), **{"delta.rowTrackingSuspended": "true"})
    with pytest.raises(Refused, match="rowTrackingSuspended"):
        assigned(tmp_path)


@pytest.mark.parametrize("schema", ["{", "[]", '{"type":"struct"}', '{"type":"struct","fields":[1]}'])
def test_a_schema_that_is_no_struct_of_named_fields_is_refused_by_its_name(
    tmp_path: Path, schema: str
) -> None:
    a_log(tmp_path, [a_protocol(), a_metadata(schemaString=schema), an_add()])
    with pytest.raises(CorruptFile, match="schemaString"):
        planned(tmp_path)


def test_a_column_name_that_the_schema_has_is_not_used(tmp_path: Path) -> None:
    a_supporting_table(tmp_path)
    assigned(tmp_path)
    first = the_log(tmp_path).snapshot().metadata.configuration[COLUMNS[0]]
    mapped = a_field("x", "long", **{"delta.columnMapping.physicalName": first})
    other = tmp_path / "other"
    a_log(other, [a_protocol_with("rowTracking", "domainMetadata"), a_metadata(mapped)])
    assigned(other)
    assert the_log(other).snapshot().metadata.configuration[COLUMNS[0]] != first


# Footers


def a_parquet(root: Path, name: str, rows: int) -> int:
    """Its size in bytes."""
    pq.write_table(pa.table({"n": list(range(rows))}), root / name)
    return (root / name).stat().st_size


def test_rows_are_counted_from_footers_and_told_in_the_statistics(tmp_path: Path) -> None:
    size = a_parquet(tmp_path, "a b.parquet", 7)
    dark = an_add(path="a%20b.parquet", rows=None, size=size)
    stated = an_add(path="b", rows=2, stats='{"numRecords":2,"tightBounds":true}')
    part = an_add(path="c.parquet", size=a_parquet(tmp_path, "c.parquet", 3), stats='{"tightBounds":false}')
    a_log(tmp_path, [dark, stated, part])
    assigned(tmp_path, count_rows=True, batch_size=1)
    assert files(tmp_path) == {"a%20b.parquet": (0, 2), "b": (7, 3), "c.parquet": (9, 4)}
    stats = {add["path"]: add["stats"] for add in the_log(tmp_path).snapshot().adds.to_pylist()}
    assert stats == {
        "a%20b.parquet": '{"numRecords":7}',
        "b": '{"numRecords":2,"tightBounds":true}',
        "c.parquet": '{"numRecords":3,"tightBounds":false}',
    }


def test_a_footer_longer_than_the_first_read_is_read_whole(tmp_path: Path) -> None:
    names = [f"column_{number:05}" for number in range(1_000)]
    pq.write_table(pa.table({name: [1, 2] for name in names}), tmp_path / "wide.parquet")
    size = (tmp_path / "wide.parquet").stat().st_size
    footer = int.from_bytes((tmp_path / "wide.parquet").read_bytes()[-8:-4], "little")
    assert footer > 64 << 10
    a_supporting_table(tmp_path, an_add(path="wide.parquet", rows=None, size=size))
    assert assigned(tmp_path, count_rows=True).counts["assigned_rows_count"] == 2


@pytest.mark.parametrize("change", [-1, 1, -200])
def test_a_file_of_another_size_than_the_log_says_is_not_counted(tmp_path: Path, change: int) -> None:
    size = a_parquet(tmp_path, "a.parquet", 7)
    a_supporting_table(tmp_path, an_add(path="a.parquet", rows=None, size=size + change))
    with pytest.raises(CorruptFile, match=r"a\.parquet"):
        planned(tmp_path, count_rows=True)


def test_a_file_that_goes_on_behind_its_footer_is_not_counted(tmp_path: Path) -> None:
    size = a_parquet(tmp_path, "a.parquet", 7)
    with (tmp_path / "a.parquet").open("ab") as file:
        file.write(b"PAR1")
    a_supporting_table(tmp_path, an_add(path="a.parquet", rows=None, size=size))
    with pytest.raises(CorruptFile, match=r"a\.parquet"):
        planned(tmp_path, count_rows=True)


def test_a_footer_that_pyarrow_does_not_understand_is_no_damage(tmp_path: Path) -> None:
    size = a_parquet(tmp_path, "a.parquet", 7)
    data = (tmp_path / "a.parquet").read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    (tmp_path / "a.parquet").write_bytes(data[: -8 - length] + b"\x7f" * length + data[-8:])
    a_supporting_table(tmp_path, an_add(path="a.parquet", rows=None, size=size))
    with pytest.raises(Refused, match=r"a\.parquet: its footer cannot be read here, pyarrow says"):
        planned(tmp_path, count_rows=True)


def test_a_file_that_is_gone_is_not_counted(tmp_path: Path) -> None:
    a_supporting_table(tmp_path, an_add(path="a.parquet", rows=None))
    with pytest.raises(CorruptFile, match="not there"):
        planned(tmp_path, count_rows=True)


# Other writers


@dataclass
class Watched:
    """assign-row-ids, with another writer who commits right before a certain plan is made again."""

    before: dict[int, Callable[[], None]]
    after: dict[int, Callable[[], None]]
    calls: int = 0

    name = VERB.name
    begin, end = VERB.begin, VERB.end
    policy = VERB.policy
    result_columns = VERB.result_columns

    def plan(self, table: Any, policy: Any, **others: Any) -> Planned:
        self.calls += 1
        self.before.pop(self.calls, lambda: None)()
        plan = VERB.plan(table, policy, **others)
        self.after.pop(self.calls, lambda: None)()
        return plan

    def unconditional(self, table: Any) -> Build:
        return VERB.unconditional(table)


def write_next(root: Path, *others: Action) -> Callable[[], None]:
    def write() -> None:
        write_log(root, others, first=the_log(root).snapshot().version + 1)

    return write


@pytest.mark.parametrize("moment", ["before", "after"])
def test_files_that_others_take_away_or_number_meanwhile_are_left_to_them(
    tmp_path: Path, moment: str
) -> None:
    """After the plan is made again the commit is refused, and planned once more on what won."""
    a_log(tmp_path, [an_add(path=name) for name in "abcd"])
    table, made = prepared(tmp_path, batch_size=1)
    other = write_next(
        tmp_path,
        a_remove(path="b"),
        an_add(path="c", baseRowId=10, defaultRowCommitVersion=3),
        a_row_id_mark(19),
    )
    verb = Watched(before={}, after={})
    getattr(verb, moment)[2] = other  # the second batch
    Operator(verb).apply(made, table)
    assert files(tmp_path) == {"a": (0, 2), "c": (10, 3), "d": (20, 4)}
    assert mark_of(tmp_path) == 29
    assert operations(tmp_path)[-1] == "SET TBLPROPERTIES"


def test_a_file_without_ids_that_comes_back_last_gets_them_in_the_commit_that_enables(
    tmp_path: Path,
) -> None:
    """As a RESTORE does: there is no version in which row tracking is enabled and a file has no ids."""
    a_log(tmp_path, [an_add(path=name) for name in "ab"])
    table, made = prepared(tmp_path)
    verb = Watched(before={}, after={2: write_next(tmp_path, an_add(path="old"))})
    report = Operator(verb).apply(made, table)
    assert report.status == "done"
    assert files(tmp_path) == {"a": (0, 2), "b": (10, 2), "old": (20, 4)}
    info, metadata, add, _ = actions_in(tmp_path, 4)
    assert "tags" not in info["commitInfo"]
    assert metadata["metaData"]["configuration"][ENABLED] == "true"
    assert add["add"]["path"] == "old"
    for version in range(5):
        snapshot = the_log(tmp_path).snapshot(version)
        if snapshot.metadata.configuration.get(ENABLED) == "true":
            assert snapshot.adds["baseRowId"].null_count == 0


def test_files_that_came_before_the_declaration_get_ids_too(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add(path="a")])
    table, made = prepared(tmp_path, batch_size=1)
    write_next(tmp_path, an_add(path="b"), an_add(path="c"))()
    OPERATOR.apply(made, table)
    assert {path: first for path, (first, _) in files(tmp_path).items()} == {"a": 0, "b": 10, "c": 20}


def test_a_run_that_stops_between_batches_is_resumed(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add(path=name) for name in "abcde"])
    table, made = prepared(tmp_path, batch_size=2)
    runtime = a_shell(deadline_ms=NOW_MS + 1)
    first_batch = commit_path(tmp_path, 2)
    runtime.now_ms = lambda: NOW_MS + first_batch.exists()
    report = apply(made, table, VERB, runtime)
    assert report.status == "partial"
    done = the_log(tmp_path).snapshot()
    assert done.adds["baseRowId"].null_count == 3
    assert ENABLED not in done.metadata.configuration
    before = {path: ids for path, ids in files(tmp_path).items() if ids[0] is not None}
    assert report.operation_id is not None
    resume(opened(tmp_path), report.operation_id, a_shell(), verbs=VERBS)
    after = files(tmp_path)
    assert before.items() <= after.items()
    assert sorted(first for first, _ in after.values()) == [0, 10, 20, 30, 40]
    assert the_log(tmp_path).snapshot().metadata.configuration[ENABLED] == "true"


def test_where_the_feature_is_dropped_meanwhile_no_file_gets_ids(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add(path="a")])
    table, made = prepared(tmp_path)
    dropped = a_protocol(1, 7, writer_features=["appendOnly"])
    verb = Watched(before={1: write_next(tmp_path, dropped)}, after={})
    Operator(verb).apply(made, table)
    assert operations(tmp_path) == ["UPGRADE PROTOCOL"]
    assert files(tmp_path) == {"a": (None, None)}
    assert ENABLED not in the_log(tmp_path).snapshot().metadata.configuration


def test_a_saved_plan_has_nothing_left_to_do_where_the_feature_that_it_found_was_dropped(
    tmp_path: Path,
) -> None:
    features = ["rowTracking", "domainMetadata"]
    a_log(tmp_path, [a_protocol(1, 7, writer_features=features), a_metadata(), an_add(path="a")])
    table, made = prepared(tmp_path)
    plan = made.plan
    assert [step.name for step in plan.steps] == ["backfill 0", "enable"]
    write_next(tmp_path, a_protocol(1, 7, writer_features=["appendOnly"]))()
    table.load()
    assert VERB.plan(table, AssignRowIds(), as_of_ms=NOW_MS, within=plan).plan.steps == ()


def test_a_saved_plan_is_carried_out_whatever_came_in_between(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add(path=name) for name in "abc"])
    table, made = prepared(tmp_path, batch_size=2)
    plan = made.plan
    saved = plan_from_json(json.loads(encode(plan.to_json())), removals=plan.removals, path="plan.json")
    assert [step.name for step in saved.steps] == ["declare", "backfill 0", "backfill 1", "enable"]
    write_next(tmp_path, a_remove(path="a"), an_add(path="d"))()
    table.load()
    made = VERB.plan(table, AssignRowIds(batch_size=2), as_of_ms=NOW_MS, within=saved)
    OPERATOR.apply(made, table)
    assert files(tmp_path) == {"b": (0, 3), "c": (10, 3), "d": (20, 4)}
    assert the_log(tmp_path).snapshot().metadata.configuration[ENABLED] == "true"


def test_row_tracking_that_is_enabled_with_files_lacking_ids_is_repaired(tmp_path: Path) -> None:
    names = dict.fromkeys(COLUMNS, "_x")
    a_supporting_table(tmp_path, an_add(path="a"), a_row_id_mark(-1), **{ENABLED: "true"}, **names)
    assigned(tmp_path)
    assert operations(tmp_path) == ["ROW TRACKING BACKFILL"]
    assert files(tmp_path) == {"a": (0, 1)}


def test_row_tracking_that_is_enabled_without_column_names_gets_them(tmp_path: Path) -> None:
    """Spec, "Writer Requirements for Row Tracking": enabled only where both names are in the configuration."""
    there = an_add(path="a", baseRowId=0, defaultRowCommitVersion=0)
    a_supporting_table(tmp_path, there, a_row_id_mark(9), **{ENABLED: "true", COLUMNS[0]: "_row-id-col-x"})
    plan = planned(tmp_path)
    reasons = {verdict.id: verdict.reason for verdict in plan.verdicts}
    assert reasons[ENABLED] == "it is true, and the names of the columns that it needs are added"
    assigned(tmp_path)
    assert operations(tmp_path) == ["SET TBLPROPERTIES"]
    configuration = the_log(tmp_path).snapshot().metadata.configuration
    assert (configuration[ENABLED], configuration[COLUMNS[0]]) == ("true", "_row-id-col-x")
    assert configuration[COLUMNS[1]].startswith("_row-commit-version-col-")
    assert assigned(tmp_path).status == "nothing_to_do"


def test_a_property_without_the_feature_enables_row_tracking_only_once_files_have_ids(tmp_path: Path) -> None:
    """Spec, "Writer Requirements for Row Tracking": in no version is it enabled without ids or column names."""
    a_log(tmp_path, [a_protocol(), a_metadata(configuration={ENABLED: "true"}), an_add(path="a")])
    plan = planned(tmp_path)
    assert [step.name for step in plan.steps] == ["declare", "backfill 0", "enable"]
    assigned(tmp_path)
    snapshots = [the_log(tmp_path).snapshot(version) for version in (1, 2, 3)]
    assert [each.metadata.configuration[ENABLED] for each in snapshots] == ["false", "false", "true"]
    assert snapshots[2].adds["baseRowId"].to_pylist() == [0]
    assert snapshots[2].metadata.configuration.keys() == {ENABLED, *COLUMNS}
    assert assigned(tmp_path).status == "nothing_to_do"


def test_a_protocol_with_row_tracking_but_without_domains_is_declared(tmp_path: Path) -> None:
    a_log(tmp_path, [a_protocol(1, 7, writer_features=["rowTracking"]), a_metadata(), an_add(path="a")])
    assigned(tmp_path)
    assert the_log(tmp_path).snapshot().protocol.writer_features == {"rowTracking", "domainMetadata"}
