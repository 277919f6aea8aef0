"""What a restore of a Delta table commits, on tables of few actions; expected values are those of the protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.testing.delta_rows import LiteralState, state_of
from iceberg_cli.testing.delta_writer import (
    NOW_MS,
    Action,
    a_commit_info,
    a_domain,
    a_field,
    a_metadata,
    a_protocol,
    a_protocol_with,
    a_remove,
    a_row_id_mark,
    a_txn,
    an_add,
    write_checkpoint,
    write_file,
    write_log,
    write_vectors,
)
from tests.delta_opened import Operator, actions_in

OPERATOR = Operator(VERBS["restore"])
TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
}
TIMED = "delta.enableInCommitTimestamps"
SINCE = ("delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp")
CLUSTERING = "delta.clustering"


def a_table(root: Path, *commits: list[Action], age_ms: Any = 0) -> int:
    """A table whose files are there with the sizes that the log says; its newest version."""
    write_log(root, *commits, age_ms=age_ms)
    for action in (each for commit in commits for each in commit):
        if (add := action.get("add")) is not None:
            write_file(root, add["path"], bytes(add["size"]))
    return len(commits) - 1


def restored(root: Path, to: int) -> LiteralState:
    """The table after a restore."""
    assert OPERATOR.run(root, to=str(to)).status == "done"
    return state_of(root)


def clustered_by(*columns: str) -> Action:
    text = {"clusteringColumns": [[each] for each in columns], "domainName": CLUSTERING}
    return a_domain(domain=CLUSTERING, configuration=json.dumps(text, separators=(",", ":")))


def test_the_actions_are_those_of_delta_spark(tmp_path: Path) -> None:
    vector, other = write_vectors(tmp_path, 1, [0], [0, 1])
    tags = {"INSERTION_TIME": "1"}
    old = an_add(
        path="a.parquet", dv=vector, tags=tags, partitionValues={"p": "1"}, clusteringProvider="liquid"
    )
    new = an_add(path="a.parquet", dv=other, tags=tags, partitionValues={"p": "1"})
    a_table(
        tmp_path,
        [a_protocol_with("deletionVectors"), a_metadata(a_field("p", "string"), partitionColumns=["p"])],
        [old, an_add(path="stays.parquet", size=7)],
        [a_remove(path="a.parquet", dv=vector), new, an_add(path="b.parquet", size=30)],
    )
    report = OPERATOR.run(tmp_path, to="1")
    assert report.counts == {
        "taken_back_versions_count": 1,
        "restored_files_count": 1,
        "restored_bytes_count": 100,
        "removed_files_count": 2,
        "removed_bytes_count": 130,
    }
    info, metadata, *files = actions_in(tmp_path, 3)
    assert info["commitInfo"]["operation"] == "RESTORE"
    assert info["commitInfo"]["operationParameters"] == {"version": 1, "timestamp": None}
    assert info["commitInfo"]["operationMetrics"] == {
        "numRestoredFiles": "1",
        "restoredFilesSize": "100",
        "numRemovedFiles": "2",
        "removedFilesSize": "130",
        "numOfFilesAfterRestore": "2",
        "tableSizeAfterRestore": "107",
    }
    assert (info["commitInfo"]["isolationLevel"], info["commitInfo"]["readVersion"]) == ("Serializable", 2)
    assert metadata == actions_in(tmp_path, 0)[1]
    added, *removes = files
    assert added == old
    assert {
        each["remove"].pop("deletionTimestamp") == info["commitInfo"]["timestamp"] for each in removes
    } == {True}
    common = {"dataChange": True, "extendedFileMetadata": True, "stats": '{"numRecords":10}'}
    by_path = {each["remove"]["path"]: each["remove"] for each in removes}
    assert by_path == {
        "a.parquet": {
            "path": "a.parquet", **common, "partitionValues": {"p": "1"}, "size": 100, "tags": tags,
            "deletionVector": other,
        },
        "b.parquet": {"path": "b.parquet", **common, "partitionValues": {}, "size": 30},
    }  # fmt: skip


def test_what_a_checkpoint_says_changed_no_data_changes_it_now(tmp_path: Path) -> None:
    """In a checkpoint `dataChange` is false of every file; commits before it are gone."""
    a_table(tmp_path, [an_add()], [an_add(path="b.parquet")], [a_remove()])
    write_checkpoint(
        tmp_path,
        1,
        a_protocol(),
        a_metadata(),
        an_add(dataChange=False),
        an_add(path="b.parquet", dataChange=False),
    )
    for version in (0, 1):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    assert OPERATOR.run(tmp_path, to="1").status == "done"
    (back,) = actions_in(tmp_path, 3, "add")
    assert (back["path"], back["dataChange"]) == ("part-0.parquet", True)


def test_where_the_table_is_as_it_was_nothing_is_to_do(tmp_path: Path) -> None:
    a_table(tmp_path, [an_add()], [a_txn()], [a_commit_info(operation="VACUUM START")])
    for version in ("2", "1", "0"):
        assert OPERATOR.run(tmp_path, to=version).status == "nothing_to_do"


# -- protocol and metadata -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "then", "after"),
    [
        (a_protocol(1, 4), a_protocol(1, 2), None),
        (a_protocol(1, 2), a_protocol(1, 4), a_protocol(1, 4)),
        (a_protocol(1, 4), a_protocol(2, 5), a_protocol(2, 5)),
        (a_protocol_with("appendOnly", "deletionVectors"), a_protocol(1, 1), None),
        (
            a_protocol_with("deletionVectors"),
            a_protocol(1, 3),
            a_protocol_with("appendOnly", "checkConstraints", "deletionVectors", "invariants"),
        ),
        (
            a_protocol(1, 2),
            a_protocol_with("domainMetadata", "rowTracking"),
            a_protocol_with("appendOnly", "domainMetadata", "invariants", "rowTracking"),
        ),
    ],
)
def test_the_protocol_has_the_features_of_both(
    now: Action, then: Action, after: Action | None, tmp_path: Path
) -> None:
    a_table(tmp_path, [then, a_metadata(), an_add()], [now, a_remove()])
    restored(tmp_path, 0)
    assert actions_in(tmp_path, 2, "protocol") == ([] if after is None else [after["protocol"]])


def test_metadata_is_that_of_the_target_but_for_what_must_not_be_lowered(tmp_path: Path) -> None:
    mapped = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    protected = "delta.requireCheckpointProtectionBeforeVersion"
    old = a_metadata(
        a_field("old", "long"), configuration={**mapped, "owner": "us", protected: "4"}, name="t"
    )
    new = a_metadata(
        a_field("new", "long"),
        configuration={**mapped, "delta.columnMapping.maxColumnId": "9", "theirs": "1", protected: "12"},
        id="the id after REPLACE TABLE",
    )
    a_table(tmp_path, [a_protocol_with("columnMapping", "checkpointProtection"), old], [new])
    after = restored(tmp_path, 0)
    configuration = {**mapped, "owner": "us", "delta.columnMapping.maxColumnId": "9", protected: "12"}
    assert after.metadata == {
        **old["metaData"], "id": "the id after REPLACE TABLE", "configuration": configuration,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("start", "step", "then", "now", "mark"),
    [
        (100, 5, 110, 160, 160),
        (100, 5, 160, 110, 160),
        (100, 5, None, 160, 160),
        (100, 5, 110, None, 110),
        (100, 5, 110, 161, 165),
        (100, 5, 110, 90, 110),
        (0, -2, -4, -10, -10),
        (0, -2, -10, -4, -10),
        (0, -2, -4, -9, -10),
        (0, -2, None, 3, None),
    ],
)
def test_no_identity_column_gives_a_value_again(
    start: int, step: int, then: int | None, now: int | None, mark: int | None, tmp_path: Path
) -> None:
    def a_version(high: int | None) -> Action:
        about = {"delta.identity.start": start, "delta.identity.step": step}
        own = {} if high is None else {"delta.identity.highWaterMark": high}
        return a_metadata(a_field("id", "long", **about, **own), a_field("n", "long"))

    a_table(tmp_path, [a_protocol(1, 6), a_version(then), an_add()], [a_version(now), a_remove()])
    first, second = restored(tmp_path, 0).fields
    assert first["metadata"].get("delta.identity.highWaterMark") == mark
    assert second == a_field("n", "long")


def test_a_column_that_takes_the_place_of_an_identity_column_has_no_mark(tmp_path: Path) -> None:
    identity = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.highWaterMark": 7}
    plain = a_metadata(a_field("id", "long"))
    a_table(
        tmp_path,
        [a_protocol(1, 6), plain, an_add()],
        [a_metadata(a_field("id", "long", **identity)), a_remove()],
    )
    assert restored(tmp_path, 0).fields == [a_field("id", "long")]


# -- in-commit timestamps ------------------------------------------------------------------------------------------


def timed(*actions: Action, at: int, **configuration: str) -> list[Action]:
    info = a_commit_info(inCommitTimestamp=NOW_MS + at)
    return [info, a_metadata(configuration={TIMED: "true", **configuration}), *actions]


def test_times_count_since_when_the_table_says_now(tmp_path: Path) -> None:
    since = [{SINCE[0]: version, SINCE[1]: str(NOW_MS + int(version))} for version in ("1", "3")]
    a_table(
        tmp_path,
        [a_protocol_with("inCommitTimestamp"), a_metadata(), an_add()],
        timed(at=1, **since[0]),
        [a_metadata(), a_remove()],
        timed(at=3, **since[1]),
    )
    after = restored(tmp_path, 1)
    assert after.configuration == {TIMED: "true", **since[1]}
    (info,) = actions_in(tmp_path, 4, "commitInfo")
    assert info["inCommitTimestamp"] > NOW_MS + 3


def test_times_that_are_turned_on_again_count_from_the_restore(tmp_path: Path) -> None:
    a_table(
        tmp_path,
        [a_protocol_with("inCommitTimestamp"), *timed(an_add(), at=0)],
        [a_metadata(), a_remove()],
    )
    after = restored(tmp_path, 0)
    (info,) = actions_in(tmp_path, 2, "commitInfo")
    assert next(iter(info)) == "inCommitTimestamp"
    assert after.configuration == {TIMED: "true", SINCE[0]: "2", SINCE[1]: str(info["inCommitTimestamp"])}


def test_times_that_came_later_are_off_again_and_the_plan_says_so(tmp_path: Path) -> None:
    since = {SINCE[0]: "1", SINCE[1]: str(NOW_MS + 1)}
    a_table(
        tmp_path,
        [a_protocol_with("inCommitTimestamp"), a_metadata(), an_add()],
        timed(a_remove(), at=1, **since),
    )
    assert any(
        "from now on versions have the times of files" in each
        for each in OPERATOR.plan(tmp_path, to="0").warnings
    )
    assert restored(tmp_path, 0).configuration == {}
    (info,) = actions_in(tmp_path, 2, "commitInfo")
    assert "inCommitTimestamp" not in info


# -- domains -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("then", "now", "after"),
    [
        (clustered_by("a"), clustered_by("b"), [["a"]]),
        (clustered_by("a"), clustered_by("a"), [["a"]]),
        (clustered_by("a"), a_domain(domain=CLUSTERING, removed=True), [["a"]]),
        (a_txn(), clustered_by("b"), []),
    ],
)
def test_the_table_is_clustered_as_it_was(
    then: Action, now: Action, after: list[Any], tmp_path: Path
) -> None:
    first = [a_protocol_with("clustering", "domainMetadata"), a_metadata(), an_add(), then]
    a_table(tmp_path, first, [a_remove(), now])
    domain = restored(tmp_path, 0).domains[CLUSTERING]
    assert domain["removed"] is False
    assert json.loads(domain["configuration"])["clusteringColumns"] == after
    assert len(actions_in(tmp_path, 2, "domainMetadata")) == (then != now)


def test_other_domains_stay_as_they_are_and_the_plan_names_those_that_were_other(tmp_path: Path) -> None:
    a_table(
        tmp_path,
        [
            a_protocol_with("domainMetadata"),
            a_metadata(),
            an_add(),
            a_domain(domain="same"),
            a_domain(domain="mine"),
        ],
        [a_remove(), a_domain(domain="mine", configuration='{"a":1}')],
    )
    (warning,) = OPERATOR.plan(tmp_path, to="0").warnings
    assert warning == "domain metadata stays as it is now, also where it was other: mine"
    assert restored(tmp_path, 0).domains["mine"]["configuration"] == '{"a":1}'


# -- row ids -------------------------------------------------------------------------------------------------------


def tracking(*actions: Action, mark: int) -> list[Action]:
    return [*actions, a_row_id_mark(mark)]


FIRST = [a_protocol_with("rowTracking", "domainMetadata"), a_metadata(configuration=TRACKED)]


def test_rows_have_the_ids_again_that_they_had_and_the_mark_stays(tmp_path: Path) -> None:
    numbered = an_add(baseRowId=0, defaultRowCommitVersion=0)
    a_table(
        tmp_path,
        [*FIRST, *tracking(numbered, mark=9)],
        tracking(a_remove(), an_add(path="b.parquet", baseRowId=10, defaultRowCommitVersion=1), mark=19),
    )
    restored(tmp_path, 0)
    assert actions_in(tmp_path, 2, "add") == [numbered["add"]]
    (remove,) = actions_in(tmp_path, 2, "remove")
    assert (remove["baseRowId"], remove["defaultRowCommitVersion"]) == (10, 1)
    assert actions_in(tmp_path, 2, "domainMetadata") == []


def test_files_of_before_row_tracking_get_fresh_ids_where_the_table_supports_it_now(tmp_path: Path) -> None:
    a_table(
        tmp_path,
        [a_protocol(), a_metadata(), an_add(), an_add(path="stays.parquet")],
        [
            *FIRST,
            an_add(path="stays.parquet", baseRowId=0, defaultRowCommitVersion=1),
            a_remove(),
            a_row_id_mark(9),
        ],
    )
    after = restored(tmp_path, 0)
    (back,) = actions_in(tmp_path, 2, "add")
    assert (back["baseRowId"], back["defaultRowCommitVersion"]) == (10, 2)
    (mark,) = actions_in(tmp_path, 2, "domainMetadata")
    assert json.loads(mark["configuration"])["rowIdHighWaterMark"] == 19
    names = {key: TRACKED[key] for key in TRACKED if "Name" in key}
    assert after.configuration == names  # not enabled, as it was; the names of the columns are kept
    assert after.adds["stays.parquet", ""]["baseRowId"] == 0


def test_ids_that_were_given_anew_after_tracking_was_dropped_are_those_of_the_target_again(
    tmp_path: Path,
) -> None:
    """Else the file that comes back and the one that stayed would both have row 10."""
    a_table(
        tmp_path,
        [
            *FIRST,
            *tracking(
                an_add(path="a.parquet", baseRowId=0, defaultRowCommitVersion=0),
                an_add(path="b.parquet", baseRowId=10, defaultRowCommitVersion=0),
                mark=19,
            ),
        ],
        [
            a_protocol(),
            a_metadata(),
            a_domain(domain="delta.rowTracking", removed=True),
            an_add(path="a.parquet"),
        ],
        [a_remove(path="b.parquet"), an_add(path="c.parquet")],
        [
            *FIRST,
            *tracking(
                an_add(path="c.parquet", baseRowId=0, defaultRowCommitVersion=3),
                an_add(path="a.parquet", baseRowId=10, defaultRowCommitVersion=3),
                mark=19,
            ),
        ],
        tracking(an_add(path="d.parquet", baseRowId=20, defaultRowCommitVersion=4), mark=29),
    )
    (warning,) = OPERATOR.plan(tmp_path, to="0").warnings
    assert warning == "row ids are again those of version 0 in 1 file that the table has kept"
    after = restored(tmp_path, 0)
    assert {path: (add["baseRowId"], add["defaultRowCommitVersion"]) for (path, _), add in after.adds.items()} == {
        "a.parquet": (0, 0), "b.parquet": (10, 0),
    }  # fmt: skip
    changed = {add["path"]: add["dataChange"] for add in actions_in(tmp_path, 5, "add")}
    assert changed == {"a.parquet": False, "b.parquet": True}  # the rows of a are there all the time
    assert json.loads(after.domains["delta.rowTracking"]["configuration"])["rowIdHighWaterMark"] == 29


def test_the_mark_comes_back_where_it_is_gone_with_row_tracking(tmp_path: Path) -> None:
    a_table(
        tmp_path,
        [*FIRST, *tracking(an_add(baseRowId=5, defaultRowCommitVersion=0), mark=40)],
        [a_protocol(), a_metadata(), a_domain(domain="delta.rowTracking", removed=True), a_remove()],
    )
    after = restored(tmp_path, 0)
    assert json.loads(after.domains["delta.rowTracking"]["configuration"])["rowIdHighWaterMark"] == 40
    assert set(after.protocol["writerFeatures"]) == {
        "appendOnly",
        "domainMetadata",
        "invariants",
        "rowTracking",
    }


def test_a_mark_that_is_too_low_is_raised_above_what_comes_back(tmp_path: Path) -> None:
    a_table(
        tmp_path, [*FIRST, an_add(baseRowId=5, defaultRowCommitVersion=0)], [a_remove(), a_row_id_mark(3)]
    )
    domain = restored(tmp_path, 0).domains["delta.rowTracking"]
    assert json.loads(domain["configuration"])["rowIdHighWaterMark"] == 14


# -- a table with a fault ------------------------------------------------------------------------------------------


def test_a_file_that_the_table_has_twice_is_in_it_once_again(tmp_path: Path) -> None:
    """The way out that other verbs name where they refuse such a table."""
    first, second = write_vectors(tmp_path, 1, [0], [1])
    a_table(
        tmp_path,
        [a_protocol_with("deletionVectors"), a_metadata(), an_add(dv=first)],
        [an_add(dv=second)],
    )
    after = restored(tmp_path, 0)
    assert [add["deletionVector"] for add in after.adds.values()] == [first]
