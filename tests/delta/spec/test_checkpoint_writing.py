"""What a checkpoint, its hint, a version checksum and a log compaction hold."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.delta.spec.actions import Actions
from iceberg_cli.delta.spec.checkpoints.checkpoint import read_part
from iceberg_cli.delta.spec.checkpoints.last_checkpoint import LastCheckpoint, json_checksum, may_replace
from iceberg_cli.delta.spec.checkpoints.state import checkpoint_state
from iceberg_cli.delta.spec.checkpoints.writing import (
    PARQUET,
    CheckpointFile,
    CheckpointWriter,
    checkpoint_writer,
    sidecar_count,
)
from iceberg_cli.delta.spec.checksum import differences, version_checksum
from iceberg_cli.delta.spec.columns import plain_values
from iceberg_cli.delta.verbs.rewrite_manifests.rules import check_range, compacted
from iceberg_cli.errors import InvalidMetadata, Refused, UsageError
from iceberg_cli.testing.delta_writer import (
    NOW_MS,
    Action,
    a_commit_info,
    a_domain,
    a_dv,
    a_field,
    a_metadata,
    a_protocol,
    a_protocol_with,
    a_remove,
    a_txn,
    an_add,
)
from tests.delta_opened import a_log

DAY_MS = 24 * 3_600_000
WEEK_MS = 7 * DAY_MS
STRUCT_ONLY = {"delta.checkpoint.writeStatsAsJson": "false"}
NEITHER = {**STRUCT_ONLY, "delta.checkpoint.writeStatsAsStruct": "false"}
JSON_ONLY = {"delta.checkpoint.writeStatsAsStruct": "false"}


def made(
    tmp_path: Path, *commits: list[Action], as_of_ms: int = NOW_MS, part_size: int = 50_000
) -> CheckpointWriter:
    """How a checkpoint of the newest version is written."""
    return checkpoint_writer(
        checkpoint_state(a_log(tmp_path, *commits).snapshot(), as_of_ms=as_of_ms), part_size=part_size
    )


def classic(tmp_path: Path, *commits: list[Action], as_of_ms: int = NOW_MS) -> pa.Table:
    """The file of a classic checkpoint of the newest version."""
    return pq.read_table(pa.BufferReader(made(tmp_path, *commits, as_of_ms=as_of_ms).classic()[0]))


def actions(table: pa.Table, kind: str) -> list[Any]:
    return plain_values(table[kind].drop_null())


def paths(table: pa.Table, kind: str) -> list[str]:
    return sorted(action["path"] for action in actions(table, kind))


def read_back(data: bytes) -> Actions:
    return read_part("x.parquet", 0, data).actions


# -- the state -------------------------------------------------------------------------------------------------


def test_a_tombstone_stays_until_its_retention_is_over(tmp_path: Path) -> None:
    removes = [
        a_remove(path="older", deletionTimestamp=NOW_MS - WEEK_MS - 1),
        a_remove(path="as old", deletionTimestamp=NOW_MS - WEEK_MS),
        a_remove(path="younger", deletionTimestamp=NOW_MS - WEEK_MS + 1),
        a_remove(path="of no age", deletionTimestamp=None),
    ]
    assert paths(classic(tmp_path, removes), "remove") == ["of no age", "younger"]


def test_the_tables_own_retention_counts(tmp_path: Path) -> None:
    metadata = a_metadata(configuration={"delta.deletedFileRetentionDuration": "interval 1 days"})
    removes = [a_remove(path=f"{age}", deletionTimestamp=NOW_MS - age * DAY_MS) for age in (0, 2)]
    assert paths(classic(tmp_path, [a_protocol(), metadata, *removes]), "remove") == ["0"]


def test_a_retention_that_is_no_interval_is_refused(tmp_path: Path) -> None:
    metadata = a_metadata(configuration={"delta.deletedFileRetentionDuration": "a while"})
    with pytest.raises(InvalidMetadata, match="deletedFileRetentionDuration"):
        made(tmp_path, [a_protocol(), metadata])


def test_no_file_action_says_that_it_changed_data(tmp_path: Path) -> None:
    table = classic(tmp_path, [an_add(path="a"), a_remove(path="b")])
    assert [action["dataChange"] for kind in ("add", "remove") for action in actions(table, kind)] == [
        False,
        False,
    ]


def test_what_only_commits_have_is_left_out(tmp_path: Path) -> None:
    remove = a_remove(path="b", stats='{"numRecords":1}', tags={"k": "v"}, size=7)
    table = classic(
        tmp_path, [a_commit_info(), remove, {"cdc": {"path": "c", "size": 1, "dataChange": False}}]
    )
    assert set(table.column_names) == {"txn", "add", "remove", "metaData", "protocol", "domainMetadata"}
    assert actions(table, "remove")[0].keys() == {"path", "deletionTimestamp", "dataChange", "size"}


def test_transactions_stay_and_of_domains_those_that_are_there(tmp_path: Path) -> None:
    table = classic(
        tmp_path,
        [a_txn(app_id="a", version=1), a_domain(domain="kept"), a_domain(domain="gone")],
        [a_txn(app_id="a", version=2, lastUpdated=5), a_txn(app_id="b", version=9)],
        [a_domain(domain="gone", removed=True)],
    )
    found = {each["appId"]: each for each in actions(table, "txn")}
    assert found == {"a": {"appId": "a", "version": 2, "lastUpdated": 5}, "b": {"appId": "b", "version": 9}}
    assert actions(table, "domainMetadata") == [{"domain": "kept", "configuration": "{}", "removed": False}]


def test_transactions_expire_only_where_the_table_says_so(tmp_path: Path) -> None:
    metadata = a_metadata(configuration={"delta.setTransactionRetentionDuration": "interval 30 days"})
    ages = {"old": 31, "young": 29}
    txns = [a_txn(app_id=name, lastUpdated=NOW_MS - age * DAY_MS) for name, age in ages.items()]
    found = classic(tmp_path, [a_protocol(), metadata, *txns, a_txn(app_id="of no age")])
    assert sorted(each["appId"] for each in actions(found, "txn")) == ["of no age", "young"]


# -- what the protocol does not name ---------------------------------------------------------------------------

ODD_FIELDS = {"text": "x", "number": 5, "ratio": 1.5, "flag": True, "deep": {"a": [{"b": 1}, {"b": 2}]}}


def test_fields_that_delta_does_not_name_survive(tmp_path: Path) -> None:
    commit = [
        a_protocol(extra="p"),
        a_metadata(extra={"m": [1, 2]}),
        an_add(path="a", **ODD_FIELDS),
        an_add(path="b"),
        a_remove(path="c", **ODD_FIELDS),
        a_txn(note="t"),
    ]
    snapshot = a_log(tmp_path, commit).snapshot()
    found = read_back(checkpoint_writer(checkpoint_state(snapshot, as_of_ms=0)).classic()[0])
    for table in (found.adds, found.removes):
        columns = {name: plain_values(table[name])[0] for name in ODD_FIELDS}
        assert columns == ODD_FIELDS
    assert [plain_values(found.adds[name])[1] for name in ODD_FIELDS] == [None] * len(ODD_FIELDS)
    assert (found.protocol, found.metadata) == (snapshot.protocol, snapshot.metadata)
    assert found.transactions["loader"]["note"] == "t"


def test_what_a_checkpoint_derives_is_derived_whatever_a_commit_says(tmp_path: Path) -> None:
    table = classic(tmp_path, [an_add(path="a", stats_parsed={"numRecords": 99}, partitionValues_parsed=5)])
    assert actions(table, "add")[0]["stats_parsed"] == {"numRecords": 10}
    assert "partitionValues_parsed" not in actions(table, "add")[0]


def test_actions_that_only_checkpoints_have_mean_nothing_in_a_commit(tmp_path: Path) -> None:
    stray = [{"sidecar": {"path": "x", "sizeInBytes": 1}}, {"checkpointMetadata": {"version": 7}}]
    log = a_log(tmp_path, [an_add()], [an_add(path="b"), *stray], [an_add(path="c")])
    writer = checkpoint_writer(checkpoint_state(log.snapshot(), as_of_ms=0))
    assert {"sidecar", "checkpointMetadata"}.isdisjoint(
        pq.read_schema(pa.BufferReader(writer.classic()[0])).names
    )
    assert writer.top_level([]).count(b"sidecar") == 3  # names of tags
    assert b"sidecar" not in compacted(log.commits(1, 2))


def test_actions_of_unknown_kind_survive(tmp_path: Path) -> None:
    unknown = [{"novelty": {"a": 1, "b": {"c": "x"}}}, {"novelty": {"a": 2}}, {"other": {"d": [1]}}]
    writer = made(tmp_path, [an_add(), *unknown])
    assert list(read_back(writer.classic()[0]).unknown) == unknown
    sidecars = [CheckpointFile(name="s", size_bytes=1, modified_ms=1)]
    top_level = writer.top_level(sidecars)
    assert list(read_part("x.json", 0, top_level).actions.unknown) == unknown
    hint = json.loads(writer.hint(CheckpointFile(name="t", size_bytes=1, modified_ms=1), sidecars).encode())
    assert "nonFileActions" not in hint["v2Checkpoint"]


@pytest.mark.parametrize(
    "value",
    [{"deep": {}}, {"deep": [1, "x"]}, {"deep": [None]}, {"deep": 2**70}, {"deep": {"a": {}}}],
    ids=json.dumps,
)
def test_a_field_that_parquet_cannot_hold_is_refused_and_named_and_an_unknown_action_left_out(
    tmp_path: Path, value: dict[str, Any]
) -> None:
    with pytest.raises(Refused, match=r"add\.deep"):
        made(tmp_path / "field", [an_add(**value)]).classic()
    with pytest.raises(Refused, match=r"txn\.deep"):
        made(tmp_path / "known", [a_txn(**value)]).classic()
    data, hint = made(tmp_path / "action", [{"novelty": value}, an_add()]).classic()
    assert read_back(data).unknown == ()
    assert hint.actions == pq.read_metadata(pa.BufferReader(data)).num_rows == 3


@pytest.mark.parametrize("value", [{}, 7, "x", [1, "x"]])
def test_an_action_without_fields_is_left_out_in_parquet_and_kept_in_json(tmp_path: Path, value: Any) -> None:
    writer = made(tmp_path, [{"novelty": value}, {"other": {"a": 1}}])
    assert read_back(writer.classic()[0]).unknown == ({"other": {"a": 1}},)
    assert json.dumps({"novelty": value}, separators=(",", ":")).encode() + b"\n" in writer.top_level([])


# -- statistics ------------------------------------------------------------------------------------------------


def written_stats(
    tmp_path: Path, configuration: dict[str, str], *adds: Action, dvs: bool = False
) -> list[Any]:
    """For each add its statistics as JSON, and `numRecords` of those as a struct; `...` where there is no column."""
    protocol = a_protocol_with("deletionVectors") if dvs else a_protocol()
    table = classic(tmp_path, [protocol, a_metadata(configuration=configuration), *adds])
    fields = [field.name for field in table.schema.field("add").type]
    rows = sorted((row for row in table["add"].to_pylist() if row), key=lambda row: row["path"])
    structs = [row.get("stats_parsed", ...) for row in rows]
    return [
        (row["stats"] if "stats" in fields else ..., struct if struct is ... else struct["numRecords"])
        for row, struct in zip(rows, structs, strict=True)
    ]


STATS = '{"numRecords":10}'


def test_statistics_are_written_in_the_forms_that_the_table_asks_for(tmp_path: Path) -> None:
    assert written_stats(tmp_path / "1", {}, an_add()) == [(STATS, 10)]
    assert written_stats(tmp_path / "2", JSON_ONLY, an_add()) == [(STATS, ...)]
    assert written_stats(tmp_path / "3", STRUCT_ONLY, an_add()) == [(..., 10)]
    assert written_stats(tmp_path / "4", NEITHER, an_add()) == [(..., ...)]


def test_no_footer_bounds_floating_point_numbers_for_parquet_leaves_nan_out_of_bounds(
    tmp_path: Path,
) -> None:
    columns = [a_field("f", "float"), a_field("d", "double"), a_field("n", "long"), a_field("p", "double")]
    bounds = {"n": 1, "f": "NaN", "d": "NaN"}
    stats = json.dumps({"numRecords": 1, "minValues": bounds, "maxValues": bounds})
    add = an_add(stats=stats, partitionValues={"p": "NaN"})
    writer = made(
        tmp_path,
        [a_protocol(), a_metadata(*columns, partitionColumns=["p"]), add, an_add(path="b")],
    )
    for data in (writer.classic()[0], writer.sidecar(0)):
        group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
        columns = [group.column(place) for place in range(group.num_columns)]
        unbounded = {
            column.path_in_schema.removeprefix("add.") for column in columns if column.statistics is None
        }
        inside = {f"stats_parsed.{kind}Values.{name}" for kind in ("min", "max") for name in "fd"}
        assert unbounded == {"partitionValues_parsed.p", *inside}


def test_statistics_that_a_struct_does_not_hold_stay_as_json(tmp_path: Path) -> None:
    odd = '{"numRecords":10,"minValues":{"n":"many"}}'
    found = written_stats(tmp_path, STRUCT_ONLY, an_add(path="a", stats=odd), an_add(path="b"))
    assert found == [(odd, 10), (None, 10)]


def test_the_count_of_records_of_a_file_with_deleted_rows_is_never_lost(tmp_path: Path) -> None:
    found = written_stats(tmp_path, NEITHER, an_add(path="a", dv=a_dv()), an_add(path="b"), dvs=True)
    assert found == [(STATS, ...), (None, ...)]


def test_a_schema_that_cannot_be_read_is_refused_where_statistics_need_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidMetadata, match="schemaString"):
        made(tmp_path / "1", [a_protocol(), a_metadata(schemaString="{"), an_add()])
    metadata = a_metadata(schemaString="{", configuration=JSON_ONLY)
    assert paths(classic(tmp_path / "2", [a_protocol(), metadata, an_add(path="a")]), "add") == ["a"]


# -- sidecars --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("part_size", "expected"), [(1, 5), (2, 3), (4, 2), (5, 1), (9, 1)])
def test_sidecars_hold_every_file_action_once(tmp_path: Path, part_size: int, expected: int) -> None:
    commit = [*(an_add(path=f"a{number}") for number in range(3)), a_remove(path="r0"), a_remove(path="r1")]
    writer = made(tmp_path, commit, part_size=part_size)
    count = sidecar_count(writer.state, part_size)
    tables = [pq.read_table(pa.BufferReader(writer.sidecar(part))) for part in range(count)]
    assert count == expected
    assert all(table.column_names == ["add", "remove"] and table.num_rows <= part_size for table in tables)
    assert sorted(path for table in tables for path in paths(table, "add")) == ["a0", "a1", "a2"]
    assert sorted(path for table in tables for path in paths(table, "remove")) == ["r0", "r1"]


def test_an_empty_table_has_one_sidecar_without_rows(tmp_path: Path) -> None:
    writer = made(tmp_path, [a_commit_info()])
    assert sidecar_count(writer.state, 50_000) == 1
    assert pq.read_table(pa.BufferReader(writer.sidecar(0))).num_rows == 0


def test_a_part_size_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="0 actions"):
        sidecar_count(made(tmp_path, [an_add()]).state, 0)


def test_a_top_level_in_parquet_has_a_row_for_each_action(tmp_path: Path) -> None:
    writer = made(tmp_path, [an_add(), a_txn(), a_domain()])
    files = [CheckpointFile(name=f"{number}.parquet", size_bytes=number, modified_ms=5) for number in (1, 2)]
    table = pq.read_table(pa.BufferReader(writer.top_level(files, form=PARQUET)))
    assert table.num_rows == 7
    assert actions(table, "sidecar") == [
        {"path": f"{number}.parquet", "sizeInBytes": number, "modificationTime": 5} for number in (1, 2)
    ]
    tags = actions(table, "checkpointMetadata")[0]["tags"]
    assert (tags["sidecarNumActions"], tags["sidecarSizeInBytes"], tags["numOfAddFiles"]) == ("1", "3", "1")


def test_many_files_make_row_groups_of_bounded_size(tmp_path: Path) -> None:
    data, hint = made(tmp_path, [an_add(path=f"{number}") for number in range(70_000)]).classic()
    metadata = pq.read_metadata(pa.BufferReader(data))
    groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert sum(groups) == hint.actions == 70_002
    assert max(groups) < 50_000


# -- the hint --------------------------------------------------------------------------------------------------


def test_the_checksum_is_that_of_the_protocols_example() -> None:
    document = json.loads(
        """{"k0":"'v 0'", "checksum": "adsaskfljadfkjadfkj",
        "k1":{"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}"""
    )
    assert json_checksum(document) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


def test_a_list_of_more_than_ten_is_sorted_as_delta_sorts_it() -> None:
    """`"a"+1="b"` comes after `"a"+10="k"`: `=` is a greater character than `0`. MD5 of that text, by hand."""
    values = [chr(ord("a") + number) for number in range(11)]
    order = [0, 10, *range(1, 10)]
    text = ",".join(f'"a"+{number}="{values[number]}"' for number in order)
    assert json_checksum({"a": values}) == hashlib.md5(text.encode()).hexdigest()


def test_a_hint_carries_its_checksum_and_ends_its_line() -> None:
    data = LastCheckpoint(version=3, actions=9, size_bytes=100, adds=7).encode()
    document = json.loads(data)
    assert document.pop("checksum") == json_checksum(document)
    assert document == {"version": 3, "size": 9, "sizeInBytes": 100, "numOfAddFiles": 7}
    assert data.endswith(b"}\n")


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        (None, True),
        (b"", True),
        (b"no JSON", True),
        (b"[]", True),
        (b'{"version":"6"}', True),
        (b'{"version":4}', True),
        (b'{"version":5}', True),
        (b'{"version":6}', False),
        (b'{"version":8}', False),
        (b'{"version":9}', True),
    ],
)
def test_a_hint_never_goes_back_unless_it_is_worth_nothing(current: bytes | None, *, expected: bool) -> None:
    assert may_replace(current, 5, newest_version=8) is expected


# -- version checksums -----------------------------------------------------------------------------------------

IN_COMMIT = {"delta.enableInCommitTimestamps": "true"}


def checksum(
    tmp_path: Path, *commits: list[Action], in_commit_ms: int | None = None
) -> dict[str, Any] | None:
    data = version_checksum(a_log(tmp_path, *commits).snapshot(), in_commit_ms=in_commit_ms)
    return None if data is None else json.loads(data)


def test_sizes_are_counted_in_the_bins_that_they_fall_in(tmp_path: Path) -> None:
    sizes = [0, 8191, 8192, 2**40]
    found = checksum(tmp_path, [an_add(path=f"{size}", size=size) for size in sizes])
    assert found is not None
    assert (found["numFiles"], found["tableSizeBytes"]) == (4, sum(sizes))
    histogram = found["fileSizeHistogram"]
    assert (histogram["fileCounts"][:3], histogram["fileCounts"][-1]) == ([2, 1, 0], 1)
    assert (histogram["totalBytes"][:3], histogram["totalBytes"][-1]) == ([8191, 8192, 0], 2**40)


def test_a_histogram_of_another_writer_is_compared_by_its_own_bins(tmp_path: Path) -> None:
    snapshot = a_log(tmp_path, [an_add(path=f"{size}", size=size) for size in (3, 10, 11)]).snapshot()
    own = {"sortedBinBoundaries": [0, 10], "fileCounts": [1, 2], "totalBytes": [3, 21]}
    assert differences({"fileSizeHistogram": own}, snapshot, "c") == ()
    for wrong in (
        {"fileCounts": [2, 1]},
        {"sortedBinBoundaries": [0, 2**63]},
        {"sortedBinBoundaries": [10, 0]},
    ):
        (found,) = differences({"fileSizeHistogram": {**own, **wrong}}, snapshot, "c")
        assert found.field == "fileSizeHistogram"


@pytest.mark.parametrize(
    ("cardinality", "bin_number"),
    [(1, 1), (9, 1), (10, 2), (9_999_999, 7), (10_000_000, 8), (2**31 - 2, 8), (2**31 - 1, 9)],
)
def test_deleted_rows_are_counted_in_the_bins_of_the_protocol(
    tmp_path: Path, cardinality: int, bin_number: int
) -> None:
    metadata = a_metadata(configuration={"delta.enableDeletionVectors": "true"})
    adds = [an_add(path="a", dv=a_dv(cardinality=cardinality)), an_add(path="b")]
    found = checksum(tmp_path, [a_protocol_with("deletionVectors"), metadata, *adds])
    assert found is not None
    expected = [1] + [int(number == bin_number) for number in range(1, 10)]
    assert found["deletedRecordCountsHistogramOpt"] == {"deletedRecordCounts": expected}
    assert (found["numDeletedRecordsOpt"], found["numDeletionVectorsOpt"]) == (cardinality, 1)


def test_what_is_not_known_for_certain_is_left_out(tmp_path: Path) -> None:
    plain = checksum(tmp_path / "1", [an_add()])
    assert plain is not None
    unsaid = {
        "txnId",
        "allFiles",
        "inCommitTimestampOpt",
        "numDeletedRecordsOpt",
        "deletedRecordCountsHistogramOpt",
    }
    assert not plain.keys() & unsaid
    metadata = a_metadata(configuration={"delta.setTransactionRetentionDuration": "interval 1 days"})
    expiring = checksum(tmp_path / "2", [a_protocol(), metadata, a_txn()])
    assert expiring is not None
    assert "setTransactions" not in expiring


def test_a_checksum_that_cannot_be_whole_is_not_written(tmp_path: Path) -> None:
    commit = [a_protocol_with("inCommitTimestamp"), a_metadata(configuration=IN_COMMIT), an_add()]
    assert checksum(tmp_path / "1", commit) is None
    stated = checksum(tmp_path / "2", commit, in_commit_ms=77)
    assert stated is not None
    assert stated["inCommitTimestampOpt"] == 77
    assert checksum(tmp_path / "3", [{"novelty": {"a": 1}}]) is None


# -- log compaction --------------------------------------------------------------------------------------------


def lines(tmp_path: Path, *commits: list[Action], first: int = 1) -> list[Action]:
    """The actions of the compaction of all versions from `first` on."""
    log = a_log(tmp_path, *commits)
    return [json.loads(line) for line in compacted(log.commits(first, len(commits) - 1)).splitlines()]


def test_a_compaction_is_that_of_the_protocols_example(tmp_path: Path) -> None:
    found = lines(
        tmp_path,
        [an_add(path="f1")],
        [a_commit_info(), an_add(path="f2"), a_remove(path="f1")],
        [a_commit_info(), an_add(path="f3"), an_add(path="f4"), a_txn(app_id="3ae4", version=4389)],
        [a_commit_info(), a_remove(path="f3"), a_txn(app_id="3ae4", version=4390)],
    )
    expected = [
        an_add(path="f2"),
        an_add(path="f4"),
        a_remove(path="f1"),
        a_remove(path="f3"),
        a_txn(app_id="3ae4", version=4390),
    ]
    assert sorted(map(json.dumps, found)) == sorted(map(json.dumps, expected))


def test_every_remove_stays_whatever_its_age_and_also_of_files_added_inside(tmp_path: Path) -> None:
    found = lines(
        tmp_path,
        [an_add(path="before")],
        [an_add(path="inside"), a_remove(path="before", deletionTimestamp=0)],
        [a_remove(path="inside", deletionTimestamp=1), an_add(path="again")],
        [a_remove(path="again"), a_remove(path="never added", deletionTimestamp=None)],
        [an_add(path="again")],
    )
    assert sorted(line["remove"]["path"] for line in found if "remove" in line) == [
        "before",
        "inside",
        "never added",
    ]
    assert [line["add"]["path"] for line in found if "add" in line] == ["again"]


def test_a_removed_domain_stays_removed_and_the_newest_of_all_else_counts(tmp_path: Path) -> None:
    found = lines(
        tmp_path,
        [an_add()],
        [a_domain(domain="a"), a_domain(domain="b", configuration="1"), a_metadata(name="old")],
        [a_domain(domain="a", removed=True), a_domain(domain="b", configuration="2"), a_protocol(1, 3)],
        [a_metadata(name="new"), {"novelty": {"x": 1}}],
    )
    by_kind = {kind: [line[kind] for line in found if kind in line] for line in found for kind in line}
    assert {each["domain"]: each for each in by_kind["domainMetadata"]} == {
        "a": a_domain(domain="a", removed=True)["domainMetadata"],
        "b": a_domain(domain="b", configuration="2")["domainMetadata"],
    }
    assert by_kind["metaData"] == [a_metadata(name="new")["metaData"]]
    assert by_kind["protocol"] == [a_protocol(1, 3)["protocol"]]
    assert by_kind["novelty"] == [{"x": 1}]


def test_data_changes_are_told_as_the_commits_tell_them(tmp_path: Path) -> None:
    found = lines(tmp_path, [an_add()], [an_add(path="a", dataChange=False)], [an_add(path="b")])
    assert {line["add"]["path"]: line["add"]["dataChange"] for line in found} == {"a": False, "b": True}


@pytest.mark.parametrize(("first", "last"), [(2, 2), (3, 2), (-1, 2), (0, 4), (1, 3), (0, 9)])
def test_a_range_without_all_its_commits_is_refused(tmp_path: Path, first: int, last: int) -> None:
    log = a_log(tmp_path, [an_add(path="1")], [an_add(path="2")], first=1)
    log = a_log(tmp_path, [an_add(path="4")], first=4)
    with pytest.raises(UsageError, match=f"versions {first} to {last}"):
        check_range(log.listing(), first, last)
