"""Commits: JSON lines -> columns and values, and back; what is no commit is refused, naming the line."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from iceberg_cli.delta.spec.actions import Actions, combine
from iceberg_cli.delta.spec.columns import ADD, AS_JSON, REMOVE, concat, dv_ids, file_lines, lost_of_vectors
from iceberg_cli.delta.spec.commit_parsing import CommitBytes, parse_commits
from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.testing.delta_writer import (
    NOW_MS,
    a_cdc,
    a_commit,
    a_commit_info,
    a_domain,
    a_dv,
    a_metadata,
    a_protocol,
    a_remove,
    a_txn,
    an_add,
)


def parsed(*actions: dict[str, Any], version: int = 3) -> Actions:
    return read(a_commit(*actions), version=version)


def read(data: bytes, *, version: int = 3) -> Actions:
    return parse_commits([CommitBytes("/t/_delta_log/3.json", version, data)])


def refused(data: bytes) -> CorruptFile:
    with pytest.raises(CorruptFile) as error:
        read(data)
    assert error.value.path == "/t/_delta_log/3.json"
    return error.value


def test_adds_and_removes_are_columns_with_their_version_and_line() -> None:
    vector = a_dv(offset=1, cardinality=2, maxRowIndex=9)
    actions = parsed(
        a_commit_info(),
        an_add(path="a", partitionValues={"p": "1", "q": None}, tags={"k": "v"}, baseRowId=5, dv=vector),
        a_remove(path="b", size=7, extendedFileMetadata=True, partitionValues={"p": "2"}),
        an_add(path="c", rows=None, clusteringProvider="liquid", defaultRowCommitVersion=2),
    )
    assert actions.adds.schema == ADD
    assert actions.removes.schema == REMOVE
    assert actions.adds.to_pylist()[0] == {
        "path": "a",
        "partitionValues": [("p", "1"), ("q", None)],
        "size": 100,
        "modificationTime": NOW_MS,
        "dataChange": True,
        "stats": '{"numRecords":10}',
        "tags": [("k", "v")],
        "deletionVector": vector,
        "baseRowId": 5,
        "defaultRowCommitVersion": None,
        "clusteringProvider": None,
    }
    assert actions.adds["clusteringProvider"].to_pylist() == [None, "liquid"]
    assert actions.removes["deletionTimestamp"].to_pylist() == [NOW_MS]
    assert actions.removes["partitionValues"].to_pylist() == [[("p", "2")]]
    assert actions.add_versions.tolist() == [3, 3]
    assert actions.add_lines.tolist() == [2, 4]
    assert actions.remove_lines.tolist() == [3]


def test_the_newest_protocol_metadata_transaction_and_domain_count() -> None:
    actions = parse_commits(
        [
            CommitBytes(
                "1", 1, a_commit(a_protocol(1, 2), a_metadata(name="old"), a_txn(version=1), a_domain())
            ),
            CommitBytes("2", 2, a_commit(a_metadata(name="new"), a_txn(version=2), a_domain(removed=True))),
        ]
    )
    assert actions.protocol is not None
    assert actions.protocol.min_writer_version == 2
    assert actions.metadata is not None
    assert actions.metadata.name == "new"
    assert actions.transactions["loader"]["version"] == 2
    assert actions.domains["user.notes"]["removed"] is True


def test_combining_parsed_commits_is_parsing_them_together() -> None:
    first = CommitBytes("1", 1, a_commit(an_add(path="a", odd=1), a_cdc(), a_commit_info(), a_txn()))
    second = CommitBytes(
        "2", 2, a_commit(a_remove(path="a"), an_add(path="b"), {"later": {}}, a_commit_info())
    )
    together, apart = (
        parse_commits([first, second]),
        combine([parse_commits([first]), parse_commits([second])]),
    )
    assert apart.adds.to_pylist() == together.adds.to_pylist()
    assert apart.removes.to_pylist() == together.removes.to_pylist()
    assert apart.cdc.to_pylist() == together.cdc.to_pylist()
    assert apart.add_versions.tolist() == together.add_versions.tolist() == [1, 2]
    assert apart.commit_infos == together.commit_infos
    assert apart.unknown == together.unknown == ({"later": {}},)
    assert apart.transactions == together.transactions


def test_unknown_fields_and_actions_survive_reading_and_writing() -> None:
    plain = an_add(path="a", backReference="x", count=3, flag=True)
    nested = an_add(path="b", backReference={"deep": [1, {"er": None}]}, ratio=0.5)
    actions = parsed(plain, nested, {"checkpointHint": {"a": [1.5]}}, a_remove(path="c", why=[1, "2"]))
    assert actions.unknown == ({"checkpointHint": {"a": [1.5]}},)
    assert actions.adds.schema.names[: len(ADD)] == ADD.names
    assert actions.adds.schema.field("backReference").metadata == AS_JSON
    assert actions.adds.schema.field("count").type == pa.int64()
    assert [json.loads(line) for line in file_lines("add", actions.adds)] == [plain, nested]
    assert [json.loads(line) for line in file_lines("remove", actions.removes)] == [
        a_remove(path="c", why=[1, "2"])
    ]


@pytest.mark.parametrize(
    "value",
    [
        b"\x00\xff",
        datetime(2026, 1, 2, tzinfo=UTC),
        date(2026, 1, 2),
        Decimal("1.50"),
        math.nan,
        {"deep": [b"x"]},
    ],
    ids=["bytes", "time", "date", "decimal", "no number", "bytes inside"],
)
def test_what_a_checkpoint_has_and_json_has_not_is_never_made_into_text(value: Any) -> None:
    seal = pa.array([value])
    adds = parsed(an_add(path="a")).adds.append_column("seal", seal)
    with pytest.raises(
        Refused, match=r"Cannot keep seal(\.deep)?, which Delta's protocol does not name, as JSON"
    ):
        file_lines("add", adds)
    with pytest.raises(Refused, match="Cannot keep seal"):
        concat([adds, parsed(an_add(path="b", seal={"text": 1})).adds], ADD)
    both = concat([adds, parsed(an_add(path="b")).adds], ADD)
    assert both["seal"].type == seal.type
    assert both["seal"].null_count == 1


def test_fields_of_deletion_vectors_that_have_no_column_are_known_by_name_whatever_is_joined() -> None:
    plain = parsed(an_add(path="a", dv=a_dv()), a_remove(path="b", dv=a_dv()))
    parts = [
        plain,
        parsed(an_add(path="c", dv=a_dv(newField=1, empty=None), odd=1)),
        parsed(an_add(path="d", dv={**a_dv(), "other": {"x": []}, "empty": None}, odd="text")),
        parsed(a_remove(path="e", dv=a_dv(third=False))),
    ]
    both = combine(parts)
    assert lost_of_vectors(plain.adds, plain.removes) is None
    assert "have newField, other, which" in (lost_of_vectors(both.adds) or "")
    assert "have newField, other, third, which" in (lost_of_vectors(both.adds, both.removes) or "")
    assert both.adds.schema.field("deletionVector").type == ADD.field("deletionVector").type
    assert both.adds["deletionVector"].to_pylist() == [{**a_dv(), "maxRowIndex": None}] * 3


def test_what_only_checkpoints_have_says_nothing_in_a_commit() -> None:
    sidecar = {"sidecar": {"path": "x.parquet", "sizeInBytes": 1, "modificationTime": 1}}
    actions = parsed(an_add(), sidecar, {"checkpointMetadata": {"version": 0}})
    assert (actions.adds.num_rows, actions.unknown) == (1, ())


def test_an_unknown_field_of_two_types_in_two_commits_survives() -> None:
    first, second = parsed(an_add(path="a", odd="text")), parsed(an_add(path="b", odd=7))
    lines = file_lines("add", combine([first, second]).adds)
    assert [json.loads(line)["add"]["odd"] for line in lines] == ["text", 7]


def test_what_is_written_is_what_was_read() -> None:
    adds = [
        an_add(path='ü "quoted" \\ and \u2028', partitionValues={"p\n": 'x"', "q": None}, tags={}),
        an_add(path="v", dv=a_dv(name="x" * 20, offset=None, storageType="p", maxRowIndex=2**40)),
        an_add(path="big", size=2**62, stats="", dataChange=False),
    ]
    assert [json.loads(line) for line in file_lines("add", parsed(*adds).adds)] == adds


def test_the_id_of_a_deletion_vector_is_the_protocols() -> None:
    actions = parsed(
        an_add(path="a", dv=a_dv(name="ab^-aqEH.-t@S}K{vb[*k^", offset=4)),
        an_add(
            path="b",
            dv=a_dv(storageType="i", name="wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", offset=None),
        ),
        an_add(path="c"),
    )
    assert dv_ids(actions.adds).to_pylist() == [
        "uab^-aqEH.-t@S}K{vb[*k^@4",
        "iwi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        None,
    ]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"", b"\n\n", b" \r\n"])
def test_line_ends_of_any_kind_and_none_after_the_last_line_are_read(end: bytes) -> None:
    data = a_commit(an_add(path="a"), an_add(path="b")).rstrip(b"\n").replace(b"\n", b"\r\n") + end
    assert read(data).adds["path"].to_pylist() == ["a", "b"]


def test_line_separators_inside_of_strings_do_not_part_lines() -> None:
    assert read(a_commit(an_add(path="a\u2028b\u0085c"))).adds["path"].to_pylist() == ["a\u2028b\u0085c"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (a_commit(an_add())[:-9], "line 1: the line is not one whole JSON object"),
        (a_commit(an_add()) + b'{"add":{"pa', "line 2: the line is not one whole JSON object"),
        (json.dumps(an_add(), indent=2).encode(), "line 1: the line is not one whole JSON object"),
        (b"[" + a_commit(an_add()).strip() + b"]", "not an array"),
        (a_commit(an_add()).strip() + b",\n", "an object and more"),
        (a_commit(an_add()).strip() * 2, "an object and more"),
        (b'{"add":{},"remove":{}}', "one action is expected, not 2"),
        (b"{}", "one action is expected, not 0"),
        (b'{"add":null}', "an object is expected"),
        (b'{"add":[]}', "an object is expected"),
        (b'{"txn":"x"}', "an object is expected"),
        (b"\xef\xbb\xbf" + a_commit(an_add()), "byte order mark"),
        (b'{"add":{"path":"\xff"}}', "not UTF-8"),
        (b'{"add":{"path":"\\ud800"}}', "half of a surrogate pair"),
        (b'{"add":{"path":"a","path":"b","size":1}}', "line 1, path: the key appears twice"),
        (b'{"commitInfo":{"a":NaN}}', "NaN is not JSON"),
        (b'{"commitInfo":{"a":1e999}}', "beyond a double"),
        (b"[" * 100_000, "cannot be parsed|not an array"),
        (b'{"commitInfo":{"a":' + b"9" * 10_000 + b"}}", "cannot be parsed"),
    ],
)
def test_what_is_no_line_of_one_action_is_refused(data: bytes, reason: str) -> None:
    error = refused(data)
    with pytest.raises(CorruptFile, match=reason):
        raise error


@pytest.mark.parametrize(
    ("action", "place"),
    [
        (an_add(path=None), "line 1, add.path"),
        (an_add(path=""), "line 1, add.path"),
        (an_add(size=None), "line 1, add.size"),
        (an_add(size=-1), "line 1, add.size"),
        (an_add(size="100"), "line 1, add.size"),
        (an_add(size=1.5), "line 1, add.size"),
        (an_add(size=True), "line 1, add.size"),
        (an_add(size=2**63), "line 1, add.size"),
        (an_add(path=7), "line 1, add.path"),
        (an_add(dataChange="true"), "line 1, add.dataChange"),
        (an_add(stats={"numRecords": 1}), "line 1, add.stats"),
        (an_add(partitionValues={"p": 1}), "line 1, add.partitionValues"),
        (an_add(partitionValues=["p"]), "line 1, add.partitionValues"),
        (an_add(baseRowId="x"), "line 1, add.baseRowId"),
        (an_add(dv=a_dv(storageType="x")), "line 1, add.deletionVector.storageType"),
        (an_add(dv=a_dv(storageType=None)), "line 1, add.deletionVector.storageType"),
        (an_add(dv=a_dv(name="short")), "line 1, add.deletionVector.pathOrInlineDv"),
        (an_add(dv=a_dv(offset=-1)), "line 1, add.deletionVector.offset"),
        (an_add(dv=a_dv(offset=2**31)), "line 1, add.deletionVector"),
        (an_add(dv=a_dv(offset=1.5)), "line 1, add.offset|line 1, add.deletionVector"),
        (an_add(dv=a_dv(sizeInBytes=None)), "line 1, add.deletionVector.sizeInBytes"),
        (an_add(dv=a_dv(cardinality=-1)), "line 1, add.deletionVector.cardinality"),
        (an_add(deletionVector="x"), "line 1, add.deletionVector"),
        (a_remove(path=None), "line 1, remove.path"),
        (a_remove(deletionTimestamp="now"), "line 1, remove.deletionTimestamp"),
        (a_cdc(path=None), "line 1, cdc.path"),
        (a_txn(version="1"), "line 1, txn.version"),
        (a_txn(version=None), "line 1, txn.version"),
        (a_txn(app_id=None), "line 1, txn.appId"),
        (a_domain(domain=None), "line 1, domainMetadata.domain"),
        (a_domain(removed="yes"), "line 1, domainMetadata.removed"),
        (a_protocol(reader=None), "line 1, protocol.minReaderVersion"),
        (a_protocol(reader="1"), "line 1, protocol.minReaderVersion"),
        (a_protocol(3, 7, writer_features=["x"]), "line 1, protocol.readerFeatures"),
        (a_protocol(1, 7), "line 1, protocol.writerFeatures"),
        (a_metadata(id=None), "line 1, metaData.id"),
        (a_metadata(schemaString={}), "line 1, metaData.schemaString"),
        (a_metadata(partitionColumns="p"), "line 1, metaData.partitionColumns"),
        (
            {"metaData": {"id": "x", "schemaString": "", "configuration": {"a": 1}}},
            "line 1, metaData.configuration",
        ),
    ],
)
def test_actions_that_are_not_as_the_protocol_has_them_are_refused_with_line_and_field(
    action: dict[str, Any], place: str
) -> None:
    assert str(refused(a_commit(action)).offset) in place.split("|")


def test_the_line_of_a_wrong_action_is_told_among_right_ones() -> None:
    data = a_commit(a_commit_info(), an_add(path="a"), an_add(path="b"), an_add(path="c", size=None))
    assert refused(data).offset == "line 4, add.size"


def test_one_commit_may_remove_and_add_a_path_with_different_vectors() -> None:
    actions = parsed(a_remove(path="a"), an_add(path="a", dv=a_dv()))
    assert (actions.adds.num_rows, actions.removes.num_rows) == (1, 1)


def test_one_commit_that_adds_a_path_with_two_vectors_is_refused() -> None:
    data = a_commit(
        an_add(path="b"), an_add(path="a", dv=a_dv(offset=1)), an_add(path="a", dv=a_dv(offset=43))
    )
    assert "adds this path twice" in refused(data).reason
    data = a_commit(an_add(path="a"), an_add(path="a", dv=a_dv(offset=43)))
    assert "adds this path twice" in refused(data).reason


def test_two_commits_may_add_a_path_with_two_vectors() -> None:
    first = CommitBytes("1", 1, a_commit(an_add(path="a", dv=a_dv(offset=1))))
    second = CommitBytes(
        "2", 2, a_commit(a_remove(path="a", dv=a_dv(offset=1)), an_add(path="a", dv=a_dv(offset=9)))
    )
    assert parse_commits([first, second]).adds.num_rows == 2


def test_a_remove_of_a_vector_file_without_a_size_is_read() -> None:
    actions = parsed(a_remove(path="deletion_vector_7ef4fe10-5c6c-4268-a021-f4b88a4c2ae7.bin"))
    assert actions.removes["size"].to_pylist() == [None]
