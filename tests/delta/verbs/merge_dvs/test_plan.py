"""merge-dvs of Delta tables, planned and carried out on a disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.delta.spec.paths import dv_path
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.operation.ports import Build, Planned
from iceberg_cli.plan.documents import plan_from_json
from iceberg_cli.plan.plan import StagedFile, Step, Task, encode
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.delta_vectors import an_inline_vector, vector_file_name
from iceberg_cli.testing.delta_writer import (
    NOW_MS,
    TABLE_ID,
    a_remove,
    a_row_id_mark,
    an_add,
    commit_path,
    write_log,
    write_vectors,
)
from tests.delta_opened import Operator, actions_in, deleted, opened, the_log
from tests.delta_vector_tables import ON, a_table, evens, many_files

VERB = VERBS["merge-dvs"]


OPERATOR = Operator(VERB)
prepared, planned, merged = OPERATOR.prepare, OPERATOR.plan, OPERATOR.run


def bins(root: Path) -> set[str]:
    return {path.name for path in root.glob("*.bin")}


# What is committed


def test_small_files_become_one_and_every_data_file_lacks_the_same_rows(tmp_path: Path) -> None:
    a_table(tmp_path, *many_files(tmp_path))
    before = bins(tmp_path)
    report = merged(tmp_path)
    assert report.status == "done"
    assert report.counts == {
        "rewritten_deletion_vectors_count": 5,
        "rewritten_deletion_vector_files_count": 5,
        "added_deletion_vector_files_count": 1,
        # One version byte, 8 bytes around 32 of magic and empty bitmap, 2 for each position.
        "rewritten_bytes_count": sum(1 + 8 + 32 + 2 * (n + 1) for n in range(5)),
        "added_bytes_count": 1 + sum(8 + 32 + 2 * (n + 1) for n in range(5)),
    }
    assert deleted(tmp_path) == {f"{n}.parquet": evens(n) for n in range(5)}
    (new,) = bins(tmp_path) - before
    assert bins(tmp_path) > before, "old files are left to expire-snapshots"
    assert (tmp_path / new).stat().st_size == report.counts["added_bytes_count"]


def test_an_add_keeps_all_that_it_says_but_where_its_vector_is(tmp_path: Path) -> None:
    old = an_add(
        path="a%20b.parquet",
        partitionValues={"p": "x", "q": None},
        tags={"INSERTION_TIME": "1"},
        stats='{"numRecords":10,"minValues":{"n":0},"tightBounds":false}',
        dv={**write_vectors(tmp_path, 9, [3])[0], "maxRowIndex": 3},
        baseRowId=70,
        defaultRowCommitVersion=4,
        clusteringProvider="liquid",
        amtPassthrough={"a": [1, 2]},
    )
    mark = a_row_id_mark(99)
    features = ("deletionVectors", "rowTracking", "domainMetadata")
    configuration = {**ON, "delta.enableRowTracking": "true"}
    other = an_add(path="b", dv=write_vectors(tmp_path, 8, [1])[0], baseRowId=0, defaultRowCommitVersion=0)
    a_table(tmp_path, old, other, features=features, configuration=configuration, others=(mark,))
    merged(tmp_path, min_files=2)
    (add,) = (add for add in actions_in(tmp_path, 1, "add") if add["path"] == "a%20b.parquet")
    moved = {key: add["deletionVector"].pop(key) for key in ("pathOrInlineDv", "offset")}
    assert moved["offset"] != old["add"]["deletionVector"]["offset"]
    expected = json.loads(json.dumps(old["add"]))
    for key in ("pathOrInlineDv", "offset"):
        del expected["deletionVector"][key]
    assert add == {**expected, "dataChange": False}
    (info,) = actions_in(tmp_path, 1, "commitInfo")
    assert info["tags"] == {"delta.rowTracking.preserved": "true"}
    assert info["operationMetrics"]["numDeletionVectorsUpdated"] == "2"
    assert not actions_in(tmp_path, 1, "domainMetadata")


def test_each_data_file_is_removed_with_its_old_vector_in_the_same_commit(tmp_path: Path) -> None:
    vector = write_vectors(tmp_path, 9, [3])[0]
    values = {"p": "x"}
    add = an_add(path="a", dv=vector, partitionValues=values, size=77, tags={"k": "v"})
    a_table(tmp_path, add, *many_files(tmp_path, 2))
    merged(tmp_path, min_files=2)
    removes = {remove["path"]: remove for remove in actions_in(tmp_path, 1, "remove")}
    assert removes.keys() == {"a", "0.parquet", "1.parquet"}
    (info,) = actions_in(tmp_path, 1, "commitInfo")
    assert removes["a"] == {
        "path": "a",
        "deletionTimestamp": info["timestamp"],
        "dataChange": False,
        "extendedFileMetadata": True,
        "partitionValues": values,
        "size": 77,
        "stats": '{"numRecords":10}',
        "tags": {"k": "v"},
        "deletionVector": vector,
    }
    assert the_log(tmp_path).snapshot().adds.num_rows == 3


def test_vectors_in_the_log_move_into_files_and_count_as_small_ones(tmp_path: Path) -> None:
    inline = [an_add(path=f"i{n}", dv=an_inline_vector([n, 9])) for n in range(3)]
    a_table(tmp_path, *inline)
    assert not planned(tmp_path, min_files=4).due
    report = merged(tmp_path, min_files=3)
    assert report.counts["rewritten_deletion_vectors_count"] == 3
    assert report.counts["rewritten_deletion_vector_files_count"] == 0
    assert deleted(tmp_path) == {f"i{n}": [n, 9] for n in range(3)}


def test_a_table_that_gives_ids_to_what_is_added_gives_them_here_too(tmp_path: Path) -> None:
    """Fixture 33: where row tracking is supported, a file that is added again with another vector gets ids."""
    mark = a_row_id_mark(41)
    features = ("deletionVectors", "rowTracking", "domainMetadata")
    a_table(tmp_path, *many_files(tmp_path, 2), features=features, others=(mark,))
    merged(tmp_path, min_files=2)
    found = [(add["baseRowId"], add["defaultRowCommitVersion"]) for add in actions_in(tmp_path, 1, "add")]
    assert found == [(42, 1), (62, 1)]
    (domain,) = actions_in(tmp_path, 1, "domainMetadata")
    assert json.loads(domain["configuration"])["rowIdHighWaterMark"] == 81
    assert all("baseRowId" not in remove for remove in actions_in(tmp_path, 1, "remove"))
    (info,) = actions_in(tmp_path, 1, "commitInfo")
    assert "tags" not in info


def test_while_row_tracking_is_suspended_no_file_gets_ids_and_those_that_have_them_keep_them(
    tmp_path: Path,
) -> None:
    """Delta's property `delta.rowTrackingSuspended`: no new row ids are generated while it is true."""
    mark = a_row_id_mark(41)
    old = an_add(path="old", dv=write_vectors(tmp_path, 9, [1])[0], baseRowId=30, defaultRowCommitVersion=0)
    features = ("deletionVectors", "rowTracking", "domainMetadata")
    configuration = {**ON, "delta.rowTrackingSuspended": "true"}
    files = [old, *many_files(tmp_path, 2)]
    a_table(tmp_path, *files, features=features, configuration=configuration, others=(mark,))
    merged(tmp_path, min_files=2)
    found = {
        add["path"]: (add.get("baseRowId"), add.get("defaultRowCommitVersion"))
        for add in actions_in(tmp_path, 1, "add")
    }
    assert found == {"old": (30, 0), "0.parquet": (None, None), "1.parquet": (None, None)}
    assert not actions_in(tmp_path, 1, "domainMetadata")


# What is chosen


def test_fewer_small_files_than_asked_for_stay_and_say_so(tmp_path: Path) -> None:
    a_table(tmp_path, *many_files(tmp_path, 4))
    plan = planned(tmp_path)
    assert not plan.due
    assert {verdict.reason for verdict in plan.verdicts} == {
        f"nothing to gain: 1 vectors in {43 + 2 * n} bytes, 0 of them dead" for n in range(4)
    }
    assert merged(tmp_path).status == "nothing_to_do"


def test_a_second_run_has_nothing_to_do(tmp_path: Path) -> None:
    a_table(tmp_path, *many_files(tmp_path))
    merged(tmp_path)
    assert not planned(tmp_path, min_files=1).due


def test_a_mostly_dead_file_is_written_anew_by_itself(tmp_path: Path) -> None:
    dead = write_vectors(tmp_path, 1, [1, 2], dead=100)[0]
    a_table(tmp_path, an_add(path="a", dv=dead), an_add(path="b", dv=write_vectors(tmp_path, 2, [5])[0]))
    plan = planned(tmp_path)
    going = {verdict.id: verdict.reason for verdict in plan.verdicts if not verdict.keep}
    assert going == {str(tmp_path / vector_file_name(1)): "1 vectors in 145 bytes, 100 of them dead"}
    merged(tmp_path)
    assert deleted(tmp_path) == {"a": [1, 2], "b": [5]}
    assert not planned(tmp_path).due
    assert not planned(tmp_path, dead_ratio=1e-9).due


def test_a_vector_that_two_data_files_share_is_counted_once(tmp_path: Path) -> None:
    shared = write_vectors(tmp_path, 1, [1])[0]
    a_table(tmp_path, an_add(path="a", dv=shared), an_add(path="b", dv=shared))
    plan = planned(tmp_path)
    assert [verdict.reason for verdict in plan.verdicts] == [
        "nothing to gain: 2 vectors in 43 bytes, 0 of them dead"
    ]


def test_new_files_are_closed_once_they_have_reached_the_target(tmp_path: Path) -> None:
    vectors = [write_vectors(tmp_path, n, [1], [2])[:] for n in range(3)]
    adds = [an_add(path=f"{n}-{i}", dv=dv) for n, pair in enumerate(vectors) for i, dv in enumerate(pair)]
    a_table(tmp_path, *adds)
    before = bins(tmp_path)
    # 42 bytes for each vector: three reach 120, and files of 85 bytes are small up to half of 170.
    report = merged(tmp_path, min_files=2, target_size=170)
    sizes = sorted((tmp_path / name).stat().st_size for name in bins(tmp_path) - before)
    assert (report.counts["added_deletion_vector_files_count"], sizes) == (2, [1 + 42, 1 + 5 * 42])
    assert deleted(tmp_path) == {f"{n}-{i}": [i + 1] for n in range(3) for i in range(2)}


def test_files_of_another_table_stay(tmp_path: Path) -> None:
    root = tmp_path / "clone"
    source = tmp_path / "source"
    adds = []
    for number in range(3):
        vector = write_vectors(source, number, [number])[0]
        path = f"file:{source / vector_file_name(number)}"
        adds.append(an_add(path=f"{number}", dv={**vector, "storageType": "p", "pathOrInlineDv": path}))
    a_table(root, *adds)
    plan = planned(root, min_files=2)
    assert not plan.due
    assert all("outside the table's folder" in verdict.reason for verdict in plan.verdicts)


# What is refused


@pytest.mark.parametrize("value", [None, "false"])
def test_where_new_vectors_are_not_enabled_nothing_is_merged(tmp_path: Path, value: str | None) -> None:
    configuration = {} if value is None else {"delta.enableDeletionVectors": value}
    a_table(tmp_path, *many_files(tmp_path), configuration=configuration)
    with pytest.raises(Refused, match=r"delta\.enableDeletionVectors is not true"):
        merged(tmp_path)
    assert not commit_path(tmp_path, 1).exists()


def test_a_data_file_without_a_number_of_rows_is_refused_by_name(tmp_path: Path) -> None:
    unknown = an_add(path="dark.parquet", rows=None, dv=write_vectors(tmp_path, 90, [1])[0])
    a_table(tmp_path, unknown, *many_files(tmp_path))
    with pytest.raises(Refused, match=r"dark.parquet.*numRecords"):
        merged(tmp_path)


def test_fields_of_a_vector_that_the_protocol_does_not_name_block_and_are_not_lost(tmp_path: Path) -> None:
    """Its remove would have to carry the old vector whole."""
    new, *others = many_files(tmp_path)
    new["add"]["deletionVector"]["newField"] = {"a": 1}
    a_table(tmp_path, new, *others)
    with pytest.raises(Refused, match="newField, which Delta's protocol does not name"):
        merged(tmp_path)
    assert not commit_path(tmp_path, 1).exists()


def test_a_field_that_says_nothing_blocks_nothing(tmp_path: Path) -> None:
    new, *others = many_files(tmp_path)
    new["add"]["deletionVector"]["newField"] = None
    a_table(tmp_path, new, *others)
    assert merged(tmp_path).committed_version == 1


def test_row_ids_are_not_given_to_files_whose_vectors_would_lose_a_field(tmp_path: Path) -> None:
    dv = {**write_vectors(tmp_path, 1, [1])[0], "newField": 7}
    a_table(tmp_path, an_add(dv=dv), features=("deletionVectors", "rowTracking", "domainMetadata"))
    assign = VERBS["assign-row-ids"]
    blocked = assign.plan(opened(tmp_path), assign.policy(), as_of_ms=NOW_MS).plan.blocked_by
    assert [reason for reason in blocked if "newField" in reason] == list(blocked) != []


def test_a_writer_feature_that_is_not_known_blocks(tmp_path: Path) -> None:
    a_table(tmp_path, *many_files(tmp_path), features=("deletionVectors", "quantumRows"))
    with pytest.raises(Refused, match="quantumRows"):
        merged(tmp_path)


def test_a_damaged_vector_stops_the_run_before_anything_is_committed(tmp_path: Path) -> None:
    a_table(tmp_path, *many_files(tmp_path))
    path = tmp_path / vector_file_name(3)
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match=path.name):
        merged(tmp_path)
    assert not commit_path(tmp_path, 1).exists()


@pytest.mark.parametrize(
    ("harm", "reason"),
    [(Path.unlink, "not there"), (lambda path: path.write_bytes(path.read_bytes()[:-2]), "ends there")],
)
def test_a_file_that_is_gone_or_short_is_noticed_by_the_plan(
    tmp_path: Path, harm: Callable[[Path], Any], reason: str
) -> None:
    a_table(tmp_path, *many_files(tmp_path))
    harm(tmp_path / vector_file_name(2))
    with pytest.raises(CorruptFile, match=reason):
        planned(tmp_path)


def test_more_deleted_rows_than_rows_are_refused(tmp_path: Path) -> None:
    a_table(tmp_path, an_add(rows=2, dv=write_vectors(tmp_path, 1, [0, 1, 2])[0]))
    with pytest.raises(CorruptFile, match="3 rows are deleted of 2"):
        planned(tmp_path)


# Other writers


@dataclass
class Interrupted:
    """merge-dvs, with another writer who commits right before the first file is staged and right after."""

    others: list[Callable[[], None]]
    built: list[str] = field(default_factory=list)

    name = VERB.name
    begin, end = VERB.begin, VERB.end
    policy = VERB.policy
    result_columns = VERB.result_columns

    def plan(self, table: Any, policy: Any, **others: Any) -> Planned:
        return self.interrupted(VERB.plan(table, policy, **others))

    def carry_out(self, table: DeltaTable, made: Planned) -> Report:
        return Operator(self).apply(self.interrupted(made), table)

    def interrupted(self, planned: Planned) -> Planned:
        """The plan, whose build is followed by the next other writer."""

        def build(step: Step, paths: Mapping[Task, str]) -> Mapping[Task, StagedFile]:
            built = planned.build(step, paths)
            self.built += paths.values()
            if self.others:
                self.others.pop(0)()
            return built

        return replace(planned, build=build)

    def unconditional(self, table: Any) -> Build:
        return VERB.unconditional(table)


def test_what_another_writer_deletes_meanwhile_stays_deleted(tmp_path: Path) -> None:
    """Its delete gave one data file another vector: the merge keeps that one."""
    adds = many_files(tmp_path)
    a_table(tmp_path, *adds)

    def delete() -> None:
        old = adds[2]["add"]["deletionVector"]
        new = write_vectors(tmp_path, 50, [0, 2, 4, 9])[0]
        write_log(tmp_path, [a_remove(path="2.parquet", dv=old), an_add(path="2.parquet", dv=new)], first=1)

    table, made = prepared(tmp_path)
    verb = Interrupted(others=[delete])
    report = verb.carry_out(table, made)
    assert (report.committed_version, report.counts["rewritten_deletion_vectors_count"]) == (2, 4)
    assert deleted(tmp_path) == {f"{n}.parquet": [0, 2, 4, 9] if n == 2 else evens(n) for n in range(5)}
    named = {
        dv_path("u", add["deletionVector"]["pathOrInlineDv"], "")
        for add in the_log(tmp_path).snapshot().adds.to_pylist()
    }
    known = {vector_file_name(n) for n in (0, 1, 2, 3, 4, 50)}
    left = {Path(path).name for path in named if path}
    assert bins(tmp_path) == known | left, "files that were staged for nothing are gone"


def test_a_data_file_that_goes_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    adds = many_files(tmp_path, 6)
    a_table(tmp_path, *adds)
    gone = a_remove(path="5.parquet", dv=adds[5]["add"]["deletionVector"])
    table, made = prepared(tmp_path)
    verb = Interrupted(others=[partial(write_log, tmp_path, [gone], first=1)])
    assert verb.carry_out(table, made).committed_version == 2
    assert deleted(tmp_path) == {f"{n}.parquet": evens(n) for n in range(5)}


def test_ids_that_another_writer_takes_meanwhile_are_not_given_twice(tmp_path: Path) -> None:
    mark = a_row_id_mark(41)
    features = ("deletionVectors", "rowTracking", "domainMetadata")
    a_table(tmp_path, *many_files(tmp_path, 5), features=features, others=(mark,))
    then = a_row_id_mark(51)
    other = an_add(path="new", baseRowId=42, defaultRowCommitVersion=1)
    table, made = prepared(tmp_path)
    verb = Interrupted(others=[partial(write_log, tmp_path, [other, then], first=1)])
    verb.carry_out(table, made)
    adds = the_log(tmp_path).snapshot().adds.to_pylist()
    firsts = {add["path"]: add["baseRowId"] for add in adds}
    assert firsts == {"new": 42, **{f"{n}.parquet": 52 + 20 * n for n in range(5)}}
    assert {add["defaultRowCommitVersion"] for add in adds} == {1, 2}


def test_a_vector_with_an_unknown_field_that_comes_meanwhile_stops_the_run(tmp_path: Path) -> None:
    a_table(tmp_path, *many_files(tmp_path))
    new = {**write_vectors(tmp_path, 50, [3])[0], "newField": 1}
    table, made = prepared(tmp_path)
    verb = Interrupted(others=[partial(write_log, tmp_path, [an_add(path="n", dv=new)], first=1)])
    with pytest.raises(Refused, match="newField"):
        verb.carry_out(table, made)
    assert not commit_path(tmp_path, 2).exists()


def test_a_saved_plan_is_carried_out_as_it_was_shown(tmp_path: Path) -> None:
    a_table(tmp_path, *many_files(tmp_path))
    table, made = prepared(tmp_path)
    plan = made.plan
    assert plan.removals is not None
    saved = plan_from_json(json.loads(encode(plan.to_json())), removals=plan.removals, path="plan.json")
    assert saved.base.table_uuid == TABLE_ID
    # A file that the plan does not list is left alone.
    new = write_vectors(tmp_path, 60, [7])[0]
    write_log(tmp_path, [an_add(path="new", dv=new)], first=1)
    table.load()
    made = VERB.plan(table, VERB.policy(), as_of_ms=NOW_MS, within=saved)
    assert OPERATOR.apply(made, table).committed_version == 2
    assert "new" not in {add["path"] for add in actions_in(tmp_path, 2, "add")}
    assert deleted(tmp_path) == {"new": [7], **{f"{n}.parquet": evens(n) for n in range(5)}}


def test_files_that_are_written_stay_of_use_when_an_append_comes_first(tmp_path: Path) -> None:
    a_table(tmp_path, *many_files(tmp_path))
    table, made = prepared(tmp_path)
    verb = Interrupted(others=[partial(write_log, tmp_path, [an_add(path="new")], first=1)])
    assert verb.carry_out(table, made).committed_version == 2
    assert len(verb.built) == 1
    assert Path(verb.built[0]).exists()
