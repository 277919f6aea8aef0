"""Snapshots of logs on a disk: replay, checkpoints of every kind, time travel, and reading on from a snapshot."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as PeerTable
from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.delta.log_reader import DeltaLog
from iceberg_cli.delta.spec import snapshot as reconciliation
from iceberg_cli.delta.spec.actions import Actions
from iceberg_cli.delta.spec.checkpoints.checkpoint import read_part
from iceberg_cli.delta.spec.commit_parsing import CommitBytes, parse_commits
from iceberg_cli.delta.spec.protocol import Metadata
from iceberg_cli.delta.spec.snapshot import Snapshot, reconcile
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import CorruptFile, Refused, TableNotFound, UsageError
from iceberg_cli.storage import FileInfo
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.delta_writer import (
    NOW_MS,
    a_checkpoint,
    a_commit,
    a_commit_info,
    a_domain,
    a_dv,
    a_metadata,
    a_protocol,
    a_protocol_with,
    a_remove,
    a_txn,
    an_add,
    commit_path,
    write_checkpoint,
    write_commit,
    write_log_file,
)
from tests.cli.running import iceberg_cli
from tests.delta_opened import a_log, the_log

IN_COMMIT = {"delta.enableInCommitTimestamps": "true"}
ICT = "inCommitTimestamp"


def paths(snapshot: Snapshot) -> list[str]:
    return sorted(snapshot.adds["path"].to_pylist())


def tombstones(snapshot: Snapshot) -> list[str]:
    return sorted(snapshot.removes["path"].to_pylist())


# -- replay ----------------------------------------------------------------------------------------------------


def test_the_newest_action_on_a_file_counts(tmp_path: Path) -> None:
    log = a_log(
        tmp_path,
        [an_add(path="a"), an_add(path="b"), an_add(path="c", rows=1)],
        [a_remove(path="a"), a_remove(path="b")],
        [an_add(path="b"), an_add(path="c", rows=2), a_remove(path="never")],
    )
    snapshot = log.snapshot()
    assert (paths(snapshot), tombstones(snapshot)) == (["b", "c"], ["a", "never"])
    stats = dict(zip(snapshot.adds["path"].to_pylist(), snapshot.adds["stats"].to_pylist(), strict=True))
    assert stats["c"] == '{"numRecords":2}'
    assert snapshot.version == 2
    assert paths(log.snapshot(0)) == ["a", "b", "c"]
    assert (paths(log.snapshot(1)), tombstones(log.snapshot(1))) == (["c"], ["a", "b"])


def test_a_file_with_another_vector_is_another_logical_file(tmp_path: Path) -> None:
    first, second = a_dv(offset=1), a_dv(offset=43)
    snapshot = a_log(
        tmp_path,
        [an_add(path="a")],
        [a_remove(path="a"), an_add(path="a", dv=first)],
        [a_remove(path="a", dv=first), an_add(path="a", dv=second)],
    ).snapshot()
    assert snapshot.adds["deletionVector"].to_pylist() == [second | {"maxRowIndex": None}]
    assert snapshot.removes["deletionVector"].to_pylist() == [None, first | {"maxRowIndex": None}]


def test_a_file_added_again_without_a_remove_is_there_once(tmp_path: Path) -> None:
    snapshot = a_log(
        tmp_path, [an_add(path="a")], [an_add(path="a", baseRowId=0, dataChange=False)]
    ).snapshot()
    assert snapshot.adds["baseRowId"].to_pylist() == [0]


@pytest.mark.parametrize("other", ["p=%C3%A9/x", "p=%c3%a9/x", "p=\u00e9/%78"])
def test_two_spellings_of_one_path_are_two_files_as_they_are_for_delta_rs(tmp_path: Path, other: str) -> None:
    log = a_log(tmp_path, [a_protocol(), a_metadata(), an_add(path="p=\u00e9/x"), an_add(path="y")])
    write_commit(tmp_path, 1, a_commit(a_remove(path=other)))
    snapshot = log.snapshot()
    assert (paths(snapshot), tombstones(snapshot)) == (["p=\u00e9/x", "y"], [other])
    assert len(PeerTable(str(tmp_path)).file_uris()) == 2


@pytest.mark.parametrize("other", ["file:/a/x", "file:///a/x"])
def test_absolute_paths_are_compared_without_the_scheme_of_local_files(tmp_path: Path, other: str) -> None:
    one = a_log(tmp_path / "one", [an_add(path="/a/x")], [a_remove(path=other)]).snapshot()
    two = a_log(tmp_path / "two", [an_add(path=other)], [a_remove(path="/a/x")]).snapshot()
    assert (paths(one), tombstones(one)) == ([], [other])
    assert (paths(two), tombstones(two)) == ([], ["/a/x"])


def test_a_file_that_one_commit_adds_and_removes_stays(tmp_path: Path) -> None:
    log = a_log(tmp_path, [an_add(path="a"), a_remove(path="a")], [a_remove(path="b"), an_add(path="b")])
    assert (paths(log.snapshot()), tombstones(log.snapshot())) == (["a", "b"], [])


def test_a_removed_domain_is_gone_and_transactions_stay(tmp_path: Path) -> None:
    snapshot = a_log(
        tmp_path,
        [
            a_domain(domain="x"),
            a_domain(domain="y"),
            a_txn(app_id="a", version=1),
            a_txn(app_id="b", version=9),
        ],
        [a_domain(domain="x", removed=True), a_txn(app_id="a", version=2)],
    ).snapshot()
    assert set(snapshot.domains) == {"y"}
    assert {app: txn["version"] for app, txn in snapshot.transactions.items()} == {"a": 2, "b": 9}


def test_unknown_actions_are_kept_oldest_first(tmp_path: Path) -> None:
    snapshot = a_log(tmp_path, [{"later": {"n": 1}}, an_add()], [{"later": {"n": 2}}]).snapshot()
    assert snapshot.unknown == ({"later": {"n": 1}}, {"later": {"n": 2}})


_FILES = st.sampled_from(["a", "b", "c%20d", "e"])
_VECTORS = st.sampled_from([None, 1, 43])
_COMMITS = st.lists(
    st.dictionaries(_FILES, st.tuples(st.booleans(), _VECTORS), max_size=4), min_size=1, max_size=6
)


@given(_COMMITS, st.integers(0, 6))
def test_replay_is_what_a_dictionary_of_files_says_and_can_be_done_in_two_steps(
    commits: list[dict[str, tuple[bool, int | None]]], cut: int
) -> None:
    state: dict[tuple[str, int | None], bool] = {}
    parts = []
    for version, commit in enumerate(commits):
        lines = [a_commit_info()]
        for path, (added, offset) in commit.items():
            dv = None if offset is None else a_dv(offset=offset)
            lines.append(an_add(path=path, dv=dv) if added else a_remove(path=path, dv=dv))
            state[path, offset] = added
        parts.append(parse_commits([CommitBytes("x", version, a_commit(*lines))]))
    expected = (
        sorted((path, offset or 0) for (path, offset), added in state.items() if added),
        sorted((path, offset or 0) for (path, offset), added in state.items() if not added),
    )
    assert keys(reconcile(parts[::-1])) == expected
    first = reconcile(parts[:cut][::-1])
    assert keys(reconcile(parts[cut:][::-1], first)) == expected


def test_two_paths_with_one_hash_are_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciliation, "hash_column", lambda column: np.zeros(len(column), np.uint64))
    log = a_log(tmp_path, [an_add(path="a"), an_add(path="b")], [a_remove(path="a"), an_add(path="c")])
    assert (paths(log.snapshot()), tombstones(log.snapshot())) == (["b", "c"], ["a"])


def keys(state: Actions) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    def of(table: pa.Table) -> list[tuple[str, int]]:
        rows = table.select(["path", "deletionVector"]).to_pylist()
        return sorted((row["path"], (row["deletionVector"] or {"offset": 0})["offset"]) for row in rows)

    return of(state.adds), of(state.removes)


# -- checkpoints -----------------------------------------------------------------------------------------------


STATE: list[dict[str, Any]] = [
    a_protocol(),
    a_metadata(configuration={"k": "v"}, name="n"),
    an_add(path="a", partitionValues={"p": "1", "q": None}, tags={"t": "x"}, baseRowId=3),
    an_add(path="b", dv=a_dv(offset=1)),
    a_remove(path="gone", size=5),
    a_txn(lastUpdated=NOW_MS),
    a_domain(),
]


def checkpointed(root: Path, name: str, data: bytes) -> DeltaLog:
    """Version 4 is a checkpoint of that name; version 5 removes `a` and adds `c`."""
    write_commit(root, 4, b"the commit of a checkpoint's version is not read")
    write_log_file(root, f"{4:020}.{name}", data)
    write_commit(root, 5, a_commit(a_remove(path="a"), an_add(path="c")))
    return the_log(root)


def assert_state(log: DeltaLog) -> None:
    at_4, at_5 = log.snapshot(4), log.snapshot()
    assert (paths(at_4), tombstones(at_4)) == (["a", "b"], ["gone"])
    assert (paths(at_5), tombstones(at_5)) == (["b", "c"], ["a", "gone"])
    add = next(row for row in at_4.adds.to_pylist() if row["path"] == "a")
    assert (add["partitionValues"], add["tags"], add["baseRowId"]) == (
        [("p", "1"), ("q", None)],
        [("t", "x")],
        3,
    )
    assert add["stats"] == '{"numRecords":10}'
    assert at_5.metadata.to_json() == STATE[1]["metaData"]
    assert at_5.protocol.to_json() == STATE[0]["protocol"]
    assert at_5.transactions == {"loader": STATE[5]["txn"]}
    assert at_5.domains == {"user.notes": STATE[6]["domainMetadata"]}


def test_a_classic_checkpoint_stands_for_the_commits_up_to_it(tmp_path: Path) -> None:
    assert_state(checkpointed(tmp_path, "checkpoint.parquet", a_checkpoint(*STATE)))


def test_a_v2_checkpoint_in_json_is_read(tmp_path: Path) -> None:
    data = a_commit({"checkpointMetadata": {"version": 4}}, *STATE)
    assert_state(checkpointed(tmp_path, "checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", data))


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_v2_checkpoint_is_read_with_its_sidecars(tmp_path: Path, form: str) -> None:
    files = [action for action in STATE if {"add", "remove"} & action.keys()]
    others = [action for action in STATE if not {"add", "remove"} & action.keys()]
    sidecars = []
    for number, some in enumerate((files[:2], files[2:])):
        path = write_log_file(tmp_path, f"_sidecars/{number}.parquet", a_checkpoint(*some))
        size = path.stat().st_size
        name = path.name if number else f"file:{path}"
        sidecars.append({"sidecar": {"path": name, "sizeInBytes": size, "modificationTime": NOW_MS}})
    actions = [{"checkpointMetadata": {"version": 4}}, *others, *sidecars]
    data = a_commit(*actions) if form == "json" else a_checkpoint(*actions)
    log = checkpointed(tmp_path, f"checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.{form}", data)
    assert_state(log)
    (tmp_path / "_delta_log" / "_sidecars" / "0.parquet").unlink()
    with pytest.raises(CorruptFile, match=r"_sidecars/0\.parquet"):
        log.snapshot()


def test_a_multi_part_checkpoint_is_read_whole(tmp_path: Path) -> None:
    write_log_file(tmp_path, f"{4:020}.checkpoint.{2:010}.{2:010}.parquet", a_checkpoint(*STATE[3:]))
    assert_state(checkpointed(tmp_path, f"checkpoint.{1:010}.{2:010}.parquet", a_checkpoint(*STATE[:3])))


def test_a_compaction_is_read_in_the_place_of_its_commits(tmp_path: Path) -> None:
    log = a_log(
        tmp_path, [an_add(path="a")], [an_add(path="b")], [a_remove(path="a"), an_add(path="c")], [a_txn()]
    )
    plain = log.snapshot()
    write_log_file(
        tmp_path,
        f"{1:020}.{2:020}.compacted.json",
        a_commit(an_add(path="b"), a_remove(path="a"), an_add(path="c")),
    )
    write_commit(tmp_path, 1, b"not read", modified_ms=NOW_MS - 2_000)
    assert paths(log.snapshot()) == paths(plain) == ["b", "c"]
    assert tombstones(log.snapshot()) == ["a"]
    assert log.snapshot().timestamp_ms == plain.timestamp_ms


@pytest.mark.parametrize(
    "compacted",
    [
        b"{",
        b"",
        a_commit(an_add(path="b"), an_add(path="c", dv=a_dv()), an_add(path="c")),
        a_commit(an_add(path="b"), an_add(path="b")),
        a_commit(a_remove(path="a"), an_add(path="a"), an_add(path="c")),
    ],
    ids=["torn", "empty", "two vectors", "two adds", "add and remove"],
)
def test_a_compaction_that_does_not_reconcile_is_passed_over_for_its_commits_with_a_warning(
    tmp_path: Path, compacted: bytes
) -> None:
    log = a_log(tmp_path, [an_add(path="a")], [an_add(path="b")], [a_remove(path="a"), an_add(path="c")])
    plain = log.snapshot()
    assert plain.warnings == ()
    write_log_file(tmp_path, f"{1:020}.{2:020}.compacted.json", compacted)
    found = log.snapshot()
    assert (paths(found), tombstones(found)) == (paths(plain), tombstones(plain)) == (["b", "c"], ["a"])
    (warning,) = found.warnings
    assert f"{1:020}.{2:020}.compacted.json" in warning
    write_commit(tmp_path, 3, a_commit(an_add(path="d")))
    assert (paths(log.advance(found)), log.advance(found).warnings) == (["b", "c", "d"], (warning,))


def test_a_damaged_commit_beside_a_damaged_compaction_is_an_error(tmp_path: Path) -> None:
    log = a_log(tmp_path, [an_add(path="a")], [an_add(path="b")], b"{")
    write_log_file(tmp_path, f"{1:020}.{2:020}.compacted.json", b"{")
    with pytest.raises(CorruptFile, match=f"{2:020}.json"):
        log.snapshot()


def test_columns_of_other_types_and_unknown_ones_are_read_from_a_checkpoint(tmp_path: Path) -> None:
    table = pq.read_table(pa.BufferReader(a_checkpoint(*STATE)))
    adds = table["add"].combine_chunks()
    fields = dict(zip(adds.type.names, adds.flatten(), strict=True))
    fields["size"] = fields["size"].cast(pa.int32())
    fields["path"] = fields["path"].cast(pa.large_string())
    fields["backReference"] = pa.nulls(len(adds), pa.string())
    fields["seen"] = pa.array([{"by": "x"}] * len(adds))
    fields["deletionVector"] = fields["deletionVector"].cast(
        pa.struct(
            [(f.name, pa.int64() if f.name == "offset" else f.type) for f in fields["deletionVector"].type]
        )
    )
    whole = pa.StructArray.from_arrays(list(fields.values()), list(fields), mask=adds.is_null())
    table = table.set_column(table.schema.get_field_index("add"), "add", whole)
    table = table.append_column("later", pa.array([None] * (len(table) - 1) + [{"n": 1}]))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    log = checkpointed(tmp_path, "checkpoint.parquet", sink.getvalue().to_pybytes())
    assert_state(log)
    snapshot = log.snapshot()
    assert snapshot.adds.schema.names[-1] == "seen"
    by_path = dict(zip(snapshot.adds["path"].to_pylist(), snapshot.adds["seen"].to_pylist(), strict=True))
    assert by_path == {"b": {"by": "x"}, "c": None}
    assert snapshot.unknown == ({"later": {"n": 1}},)


def in_bytes(kind: pa.DataType) -> pa.DataType:
    """A type with bytes in place of strings."""
    if pa.types.is_map(kind):
        return pa.map_(in_bytes(kind.key_type), in_bytes(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, in_bytes(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(in_bytes(kind.value_type))
    return pa.binary() if pa.types.is_string(kind) else kind


def without_annotations(checkpoint: bytes) -> bytes:
    """A checkpoint whose footer does not say that strings are text, as some writers leave it."""
    table = pq.read_table(pa.BufferReader(checkpoint))
    sink = pa.BufferOutputStream()
    schema = pa.schema([(each.name, in_bytes(each.type)) for each in table.schema])
    pq.write_table(table.cast(schema), sink, store_schema=False)
    return sink.getvalue().to_pybytes()


def test_strings_of_a_checkpoint_that_are_not_said_to_be_text_are_read_as_text(tmp_path: Path) -> None:
    log = checkpointed(tmp_path, "checkpoint.parquet", without_annotations(a_checkpoint(*STATE)))
    assert_state(log)
    snapshot = log.snapshot()
    assert (snapshot.metadata.configuration, snapshot.metadata.name) == ({"k": "v"}, "n")


def test_bytes_of_a_checkpoint_that_are_no_text_are_refused(tmp_path: Path) -> None:
    data = without_annotations(a_checkpoint(a_protocol(), a_metadata(configuration={"owner": "marker"})))
    assert data.count(b"marker") > 1  # the value, and statistics of its column
    with pytest.raises(CorruptFile, match=r"checkpoint\.parquet: no readable Parquet: .*UTF"):
        checkpointed(tmp_path, "checkpoint.parquet", data.replace(b"marker", b"m\xff\xferk!")).snapshot()


def test_names_of_properties_that_are_no_text_are_refused() -> None:
    with pytest.raises(CorruptFile, match="an object of strings is expected"):
        Metadata.from_json({"id": "x", "configuration": {Decimal(7): "7"}})


def test_parsed_statistics_stand_in_where_there_is_no_text(tmp_path: Path) -> None:
    parsed = {"numRecords": 10, "minValues": {"n": 1, "s": "ü"}, "nullCount": {"n": 0}}
    adds = [an_add(path="a", stats=None, stats_parsed=parsed), an_add(path="b")]
    log = checkpointed(tmp_path, "checkpoint.parquet", a_checkpoint(a_protocol(), a_metadata(), *adds))
    stats = log.snapshot(4).adds["stats"].to_pylist()
    assert json.loads(stats[0]) == parsed
    assert stats[1] == '{"numRecords":10}'
    bare = [an_add(path="a", stats=None, stats_parsed=parsed), a_protocol(), a_metadata()]
    write_checkpoint(tmp_path, 4, *bare)
    snapshot = log.snapshot(4)
    assert [json.loads(text) for text in snapshot.adds["stats"].to_pylist()] == [parsed]
    assert "stats_parsed" not in snapshot.adds.schema.names


@pytest.mark.parametrize(
    ("actions", "place"),
    [
        ([an_add(path=None), an_add(path="b")], "row 2, add.path"),
        ([an_add(path="a"), an_add(size=None)], "row 3, add.size"),
        ([an_add(size=-5)], "row 2, add.size"),
        ([an_add(dv=a_dv(storageType="?"))], "row 2, add.deletionVector.storageType"),
        ([a_txn(app_id=None)], "txn.appId"),
        ([a_metadata(id=None)], "metaData.id"),
    ],
)
def test_wrong_actions_of_a_checkpoint_are_refused_with_their_row(
    tmp_path: Path, actions: list[dict[str, Any]], place: str
) -> None:
    data = a_checkpoint(a_protocol(), a_metadata(), *actions)
    with pytest.raises(CorruptFile) as error:
        checkpointed(tmp_path, "checkpoint.parquet", data).snapshot()
    assert error.value.offset == place


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + b"\0" * 40 + b"PAR1", b'{"add":{}}'])
def test_a_checkpoint_that_is_no_parquet_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(CorruptFile, match=r"checkpoint\.parquet: no readable Parquet"):
        checkpointed(tmp_path, "checkpoint.parquet", data).snapshot()


@pytest.mark.parametrize(
    ("sidecar", "reason"),
    [
        ({"path": "x.parquet"}, "path and sizeInBytes"),
        ({"path": 5, "sizeInBytes": 1}, "path and sizeInBytes"),
        ("x.parquet", "path and sizeInBytes"),
        ({"path": "x/..", "sizeInBytes": 1}, "names no file"),
        ({"path": "absent.parquet", "sizeInBytes": 1}, r"_sidecars/absent\.parquet"),
    ],
)
def test_sidecars_that_name_no_file_are_refused(tmp_path: Path, sidecar: Any, reason: str) -> None:
    data = a_commit({"checkpointMetadata": {"version": 4}}, *STATE[:2], {"sidecar": sidecar})
    with pytest.raises(CorruptFile, match=reason):
        checkpointed(tmp_path, "checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", data).snapshot()


# -- what a table must have ------------------------------------------------------------------------------------


def test_a_folder_without_a_log_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound, match="no Delta table"):
        the_log(tmp_path).snapshot()


@pytest.mark.parametrize("missing", ["protocol", "metaData"])
def test_a_log_without_protocol_or_metadata_is_refused(tmp_path: Path, missing: str) -> None:
    actions = [action for action in (a_protocol(), a_metadata()) if missing not in action]
    with pytest.raises(CorruptFile, match=f"no {missing} action up to version 0"):
        a_log(tmp_path, [*actions, an_add()]).snapshot()


def test_a_table_of_an_unknown_reader_feature_is_refused_and_one_of_an_unknown_writer_feature_read(
    tmp_path: Path,
) -> None:
    writer = a_protocol(1, 7, writer_features=["teleport"])
    assert paths(a_log(tmp_path / "a", [writer, a_metadata(), an_add(path="x")]).snapshot()) == ["x"]
    reader = a_protocol(3, 7, reader_features=["teleport"], writer_features=["teleport"])
    with pytest.raises(Refused, match="teleport"):
        a_log(tmp_path / "b", [reader, a_metadata()]).snapshot()


def test_staged_commits_are_not_part_of_the_table(tmp_path: Path) -> None:
    log = a_log(tmp_path, [a_protocol_with("catalogManaged"), a_metadata(), an_add(path="a")])
    name = f"_staged_commits/{1:020}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"
    write_log_file(tmp_path, name, a_commit(an_add(path="b")))
    assert paths(log.snapshot()) == ["a"]
    assert [file.version for file in log.listing().staged] == [1]


# -- time ------------------------------------------------------------------------------------------------------


def test_versions_are_found_by_the_times_of_their_commit_files(tmp_path: Path) -> None:
    log = a_log(tmp_path, [an_add(path="a")], [an_add(path="b")], [an_add(path="c")])
    assert [log.snapshot(version).timestamp_ms for version in range(3)] == [
        NOW_MS - 2_000,
        NOW_MS - 1_000,
        NOW_MS,
    ]
    assert log.snapshot(at_ms=NOW_MS - 1_000).version == 1
    assert log.snapshot(at_ms=NOW_MS - 1_001).version == 0
    assert log.snapshot(at_ms=NOW_MS + 10**9).version == 2
    with pytest.raises(UsageError, match="no version as old"):
        log.snapshot(at_ms=NOW_MS - 2_001)


def test_in_commit_timestamps_count_from_the_version_that_enabled_them(tmp_path: Path) -> None:
    enabled = IN_COMMIT | {
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.inCommitTimestampEnablementTimestamp": str(NOW_MS + 500),
    }
    protocol = a_protocol_with("inCommitTimestamp")
    log = a_log(
        tmp_path,
        [an_add(path="a")],
        [an_add(path="b")],
        [a_commit_info(inCommitTimestamp=NOW_MS + 500), protocol, a_metadata(configuration=enabled)],
        [a_commit_info(inCommitTimestamp=NOW_MS + 900), an_add(path="c")],
    )
    times = [NOW_MS - 3_000, NOW_MS - 2_000, NOW_MS + 500, NOW_MS + 900]
    assert [log.snapshot(version).timestamp_ms for version in range(4)] == times
    found = [log.snapshot(at_ms=NOW_MS + after).version for after in (-3_000, -1, 499, 500, 899, 900, 10**6)]
    assert found == [0, 1, 1, 2, 2, 3, 3]


def test_the_in_commit_timestamp_of_a_checkpointed_version_is_read_from_its_commit(tmp_path: Path) -> None:
    state = [a_protocol_with("inCommitTimestamp"), a_metadata(configuration=IN_COMMIT)]
    log = a_log(tmp_path, [a_commit_info(inCommitTimestamp=77), *state])
    write_checkpoint(tmp_path, 0, *state)
    assert log.snapshot().timestamp_ms == 77


# -- reading on ------------------------------------------------------------------------------------------------


class Watched:
    """A storage that remembers what was read."""

    def __init__(self) -> None:
        self.storage = open_storage()
        self.names: list[str] = []

    def canonical(self, path: str) -> str:
        return self.storage.canonical(path)

    def list(self, folder: str) -> Iterator[FileInfo]:
        return self.storage.list(folder)

    def paths(self, folder: str) -> Iterator[str]:
        return self.storage.paths(folder)

    def stat_many(self, paths: Sequence[str]) -> list[FileInfo | None]:
        return self.storage.stat_many(paths)

    def read(self, path: str) -> bytes:
        self.names.append(path.rsplit("/", 1)[-1].lstrip("0"))
        return self.storage.read(path)


def watched(root: Path) -> tuple[DeltaLog, Watched]:
    storage: Any = Watched()
    return DeltaLog(storage, LocalEngine(storage), str(root), lambda _: None), storage


def test_advancing_reads_the_newer_commits_only_and_gives_what_a_whole_read_gives(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add(path="a"), an_add(path="b", dv=a_dv())], [a_txn(), a_domain()])
    log, storage = watched(tmp_path)
    before = log.snapshot()
    assert log.advance(before) is before
    storage.names.clear()
    write_commit(tmp_path, 2, a_commit(a_remove(path="a"), an_add(path="c", odd="x")))
    write_commit(tmp_path, 3, a_commit(an_add(path="a"), a_domain(removed=True)), modified_ms=NOW_MS + 5)
    write_log_file(tmp_path, f"{2:020}.checkpoint.parquet", b"newer checkpoints are not needed")
    after = log.advance(before)
    assert storage.names == ["2.json", "3.json"]
    (tmp_path / "_delta_log" / f"{2:020}.checkpoint.parquet").unlink()
    whole = log.snapshot()
    assert after.version == whole.version == 3
    assert after.timestamp_ms == whole.timestamp_ms
    assert sorted(after.adds.to_pylist(), key=str) == sorted(whole.adds.to_pylist(), key=str)
    assert after.removes.to_pylist() == whole.removes.to_pylist()
    assert after.domains == whole.domains == {}
    assert after.transactions == whole.transactions
    assert paths(log.advance(after)) == ["a", "b", "c"]
    write_commit(tmp_path, 4, a_commit(a_commit_info(), a_txn(version=8)))
    last = log.advance(after)
    assert (last.version, paths(last), tombstones(last)) == (4, ["a", "b", "c"], tombstones(after))
    assert last.transactions == log.snapshot().transactions != after.transactions


@pytest.mark.parametrize("more", [[], [an_add(path="z")]], ids=["of the same version", "of a newer version"])
def test_advancing_from_another_table_at_the_same_place_reads_all(
    tmp_path: Path, more: list[dict[str, Any]]
) -> None:
    log = a_log(tmp_path, [an_add(path="a")], [an_add(path="b")])
    before = log.snapshot()
    for file in (tmp_path / "_delta_log").iterdir():
        file.unlink()
    a_log(tmp_path, [an_add(path="x")], [an_add(path="y")], *([more] if more else []), age_ms=5)
    assert paths(log.advance(before)) == ["x", "y", *(["z"] if more else [])]


def test_advancing_after_a_cleanup_that_left_a_checkpoint_reads_that(tmp_path: Path) -> None:
    log = a_log(tmp_path, [an_add(path="a")], [an_add(path="b")])
    before = log.snapshot()
    write_checkpoint(tmp_path, 3, *STATE)
    assert paths(log.advance(before)) == ["a", "b"]
    assert log.advance(before).version == 3


def test_advancing_in_a_log_that_has_not_changed_reads_nothing_though_it_begins_with_a_checkpoint(
    tmp_path: Path,
) -> None:
    a_log(tmp_path, [an_add(path="a")], [an_add(path="b")])
    write_checkpoint(tmp_path, 1, *STATE)
    log, storage = watched(tmp_path)
    before = log.snapshot()
    old = log.snapshot(0)
    storage.names.clear()
    assert log.advance(before) is before
    assert storage.names == []
    assert log.advance(old).version == 1


class Shrinking(Watched):
    """A storage from which a file goes between the first listing and the first read."""

    gone: Path

    def read(self, path: str) -> bytes:
        self.gone.unlink(missing_ok=True)
        return super().read(path)


def test_a_commit_that_a_cleanup_takes_after_the_listing_is_not_missed(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add(path="old")], [an_add(path="b")])
    storage: Any = Shrinking()
    storage.gone = commit_path(tmp_path, 0)
    log = DeltaLog(storage, LocalEngine(storage), str(tmp_path), lambda _: None)
    checkpoint = a_checkpoint(*STATE)

    def listed(folder: str) -> Iterator[FileInfo]:
        if not storage.gone.exists():
            write_log_file(tmp_path, f"{1:020}.checkpoint.parquet", checkpoint)
        return storage.storage.list(folder)

    storage.list = listed
    assert paths(log.snapshot()) == ["a", "b"]


def test_a_file_that_stays_listed_and_cannot_be_read_is_corrupt(tmp_path: Path) -> None:
    a_log(tmp_path, [an_add(path="a")])
    storage: Any = Watched()
    info = next(storage.list(str(tmp_path / "_delta_log")))
    storage.list = lambda _: iter([info, info._replace(path=info.path.replace("0.json", "1.json"))])
    log = DeltaLog(storage, LocalEngine(storage), str(tmp_path), lambda _: None)
    with pytest.raises(CorruptFile, match=r"1\.json: the table needs this file"):
        log.snapshot()


def test_what_engines_hand_to_other_processes_and_back_can_be_pickled(tmp_path: Path) -> None:
    log = a_log(
        tmp_path, [an_add(path="a", odd={"x": 1}, dv=a_dv()), a_domain()], [a_remove(path="a"), a_txn()]
    )
    file = log.listing().commits[0]
    assert pickle.loads(pickle.dumps(file)) == file
    actions = pickle.loads(pickle.dumps(log.commits(0, 1)))
    assert keys(reconcile([actions])) == ([("a", 1)], [("a", 0)])
    part = pickle.loads(pickle.dumps(read_part("x.parquet", 4, a_checkpoint(*STATE))))
    assert keys(part.actions) == ([("a", 0), ("b", 1)], [("gone", 0)])


def test_commits_are_read_by_their_numbers(tmp_path: Path) -> None:
    log = a_log(
        tmp_path, [an_add(path="a")], [an_add(path="b")], [an_add(path="c"), a_commit_info(operation="X")]
    )
    actions = log.commits(1, 2)
    assert actions.adds["path"].to_pylist() == ["b", "c"]
    assert actions.add_versions.tolist() == [1, 2]
    assert [(version, info["operation"]) for version, info in actions.commit_infos] == [(2, "X")]
    with pytest.raises(CorruptFile, match="not contiguous"):
        log.commits(1, 3)


def test_a_hint_whose_checksum_is_wrong_is_not_believed(tmp_path: Path) -> None:
    log = a_log(tmp_path, [an_add()])
    assert log.last_checkpoint() is None
    write_log_file(tmp_path, "_last_checkpoint", b'{"version":0,"size":1}')
    hint = log.last_checkpoint()
    assert hint is not None
    assert (hint.version, hint.problem) == (0, None)
    write_log_file(
        tmp_path, "_last_checkpoint", b'{"version":0,"size":1,"checksum":"6a92d155a59bf2eecbd4b4ec7fd1f875"}'
    )
    hint = log.last_checkpoint()
    assert hint is not None
    assert hint.version is None
    assert "not that of its content" in (hint.problem or "")


def test_a_hint_may_have_the_checksum_of_the_protocols_text_or_deltas_own(tmp_path: Path) -> None:
    """The text's own example, and an array of more than ten strings, which the two sort differently."""
    from iceberg_cli.delta.spec.checkpoints.last_checkpoint import read_hint, text_checksum

    example = json.loads(
        """{"k0":"'v 0'","checksum":"-","k1":{"k2":2,"k3":["v3",[1,2],{"k4":"v4","k5":["v5","v6","v7"]}]}}"""
    )
    assert text_checksum(example) == "6a92d155a59bf2eecbd4b4ec7fd1f875"
    many = {"version": 1, "features": [f"f{number}" for number in range(12)]}
    text = text_checksum(many)
    assert read_hint(json.dumps(many | {"checksum": text}).encode(), "x").version == 1
    assert read_hint(json.dumps(many | {"checksum": text[::-1]}).encode(), "x").version is None


@pytest.mark.parametrize(
    ("name", "other"), [("add", "aed"), ("remove", "remote"), ("deletionVector", "deletionVectoz")]
)
def test_file_actions_and_vectors_of_a_checkpoint_under_another_name_are_refused(
    name: str, other: str
) -> None:
    vector = pa.struct(
        [("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("sizeInBytes", pa.int32())]
    )
    file = [("path", pa.string()), ("partitionValues", pa.map_(pa.string(), pa.string()))]
    names = {each: other if each == name else each for each in ("add", "remove", "deletionVector")}
    columns = {
        names["add"]: pa.struct([*file, ("size", pa.int64()), (names["deletionVector"], vector)]),
        names["remove"]: pa.struct(file),
        "later": pa.struct([("kind", pa.string())]),
    }
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({each: pa.nulls(1, kind) for each, kind in columns.items()}), out)
    with pytest.raises(CorruptFile, match=other):
        read_part("t/_delta_log/7.checkpoint.parquet", 7, out.getvalue().to_pybytes())


def with_staged_commits(root: Path, *versions: int, feature: str = "catalogManaged") -> Path:
    """A table of versions 0 and 1, and staged commits of later ones."""
    timed = {"delta.enableInCommitTimestamps": "true"}
    info = {"inCommitTimestamp": NOW_MS}
    protocol = a_protocol_with(feature, "inCommitTimestamp")
    first = [a_commit_info(**info), protocol, a_metadata(configuration=timed), an_add(path="a")]
    a_log(root, first, [a_commit_info(inCommitTimestamp=NOW_MS + 1), an_add(path="b")])
    for version in versions:
        name = f"_staged_commits/{version:020}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"
        write_log_file(root, name, a_commit(an_add(path="later")))
    return root


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ((2,), "staged commits of version 2 are left out"),
        ((2, 3, 3), "staged commits of versions 2 to 3 are left out"),
    ],
)
def test_whatever_shows_a_table_says_which_staged_commits_are_left_out(
    tmp_path: Path, versions: tuple[int, ...], words: str
) -> None:
    table = with_staged_commits(tmp_path / "t", *versions)
    for command in (
        ("inspect", table),
        ("inspect", table, "files"),
        ("inspect", table, "diff", "0", "1"),
        ("inspect", table, "sample"),
        ("expire-snapshots", table, "--dry-run"),
    ):
        ran = iceberg_cli(*command)
        assert words in ran.out + ran.err, command
    surveyed = iceberg_cli("survey", table, "--format", "json")
    assert any(words in each["message"] for each in surveyed.json["tables"][0]["findings"])


def test_commits_that_were_published_meanwhile_and_those_without_a_catalog_are_not_left_out(
    tmp_path: Path,
) -> None:
    published = with_staged_commits(tmp_path / "a", 1)
    without = with_staged_commits(tmp_path / "b", 2, feature="deletionVectors")
    for table in (published, without):
        assert the_log(table).snapshot().left_out == ()
