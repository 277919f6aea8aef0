"""Metadata with what a commit took out put back: the documents are written out, as before and after by hand."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from iceberg_cli.errors import Refused
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.removed import RemovedMetadata
from iceberg_cli.iceberg.spec.table_metadata.restoring import removed_by, with_restored
from tests.builders import LOCATION, a_branch, a_snapshot, a_table_document, a_tag

Json = dict[str, Any]


def parsed(document: Json) -> TableMetadata:
    return TableMetadata.from_json(document, path=LOCATION)


@pytest.fixture
def before() -> Json:
    """Snapshots 1 to 4, a tag on 1 and a branch at 2, two schemas and two specs, statistics of 1 and 4."""
    document = a_table_document(
        *(a_snapshot(number, age_ms=10 - number) for number in (1, 2, 3, 4)),
        refs={"eom": a_tag(1), "audit": a_branch(2)},
    )
    (schema,), (spec,) = document["schemas"], document["partition-specs"]
    document |= {
        "schemas": [schema, {**schema, "schema-id": 1}],
        "partition-specs": [spec, {"spec-id": 7, "fields": []}],
        "statistics": [statistics(1), statistics(4)],
    }
    return document


def statistics(snapshot_id: int) -> Json:
    return {
        "snapshot-id": snapshot_id,
        "statistics-path": f"{LOCATION}/metadata/{snapshot_id}.stats",
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }


@pytest.fixture
def after(before: Json) -> Json:
    """Without 1 and 2 and all that is theirs."""
    document = copy.deepcopy(before)
    for key, gone in (("snapshots", (0, 2)), ("statistics", (0, 1)), ("snapshot-log", (0, 2))):
        del document[key][slice(*gone)]
    del document["schemas"][1], document["partition-specs"][1]
    document["refs"] = {"main": before["refs"]["main"]}
    return document


@pytest.fixture
def removed(before: Json, after: Json) -> RemovedMetadata:
    return removed_by(parsed(before), parsed(after))


def test_what_a_commit_took_is_what_the_later_version_lacks(removed: RemovedMetadata) -> None:
    assert [each.snapshot_id for each in removed.snapshots] == [1, 2]
    assert {name: ref.snapshot_id for name, ref in removed.refs.items()} == {"eom": 1, "audit": 2}
    assert [each.schema_id for each in removed.schemas] == [1]
    assert [each.spec_id for each in removed.partition_specs] == [7]
    assert [each.snapshot_id for each in removed.statistics] == [1]
    assert removed.snapshot_order == (1, 2, 3, 4)


def test_put_back_it_is_the_table_as_it_was(before: Json, after: Json, removed: RemovedMetadata) -> None:
    assert with_restored(parsed(after), removed) == parsed(before)


def test_put_back_into_what_has_it_nothing_changes(before: Json, removed: RemovedMetadata) -> None:
    assert with_restored(parsed(before), removed) == parsed(before)


def test_what_came_since_stays_behind_what_was(before: Json, after: Json, removed: RemovedMetadata) -> None:
    """Snapshot 5, its schema 3 and a spec 9, and the tag `eom` anew on 3."""
    later = copy.deepcopy(after)
    later["snapshots"].append(a_snapshot(5, parent=4))
    later["snapshot-log"].append({"timestamp-ms": later["snapshots"][-1]["timestamp-ms"], "snapshot-id": 5})
    later["refs"] |= {"main": a_branch(5), "eom": a_tag(3)}
    later |= {"current-snapshot-id": 5, "last-sequence-number": 5}
    later["schemas"].append({**later["schemas"][0], "schema-id": 3})
    later["partition-specs"].append({"spec-id": 9, "fields": []})
    found = with_restored(parsed(later), removed).to_json()
    assert [each["snapshot-id"] for each in found["snapshots"]] == [1, 2, 3, 4, 5]
    assert [each["snapshot-id"] for each in found["snapshot-log"]] == [1, 2, 3, 4, 5]
    assert {name: ref["snapshot-id"] for name, ref in found["refs"].items()} == {
        "main": 5,
        "eom": 3,
        "audit": 2,
    }
    assert [each["schema-id"] for each in found["schemas"]] == [0, 1, 3]
    assert [each["spec-id"] for each in found["partition-specs"]] == [0, 7, 9]
    assert found["last-sequence-number"] == 5


def test_ids_in_no_order_stay_so_and_what_comes_back_is_last(
    before: Json, after: Json, removed: RemovedMetadata
) -> None:
    after["schemas"].insert(0, {**after["schemas"][0], "schema-id": 3})
    found = with_restored(parsed(after), removed)
    assert [each.schema_id for each in found.schemas] == [3, 0, 1]


def test_a_ref_whose_snapshot_is_nowhere_does_not_come_back(after: Json, before: Json) -> None:
    """An earlier expiry took 1 and 2; this one took a branch that had lost its snapshot."""
    lost = copy.deepcopy(before)
    lost["refs"]["lost"] = a_branch(9)
    removed = removed_by(parsed(lost), parsed(after))
    assert "lost" not in with_restored(parsed(after), removed).refs


def test_the_log_begins_anew_behind_a_snapshot_that_is_gone(
    before: Json, after: Json, removed: RemovedMetadata
) -> None:
    """Spec, "Table Metadata Fields": what is before an entry whose snapshot is not there any more cannot be told."""
    del before["snapshots"][1]
    removed = removed_by(parsed(before), parsed(after))
    found = with_restored(parsed(after), removed)
    assert [each.snapshot_id for each in found.snapshots] == [1, 3, 4]
    assert [each.snapshot_id for each in found.snapshot_log] == [3, 4]


@pytest.mark.parametrize(
    ("key", "place", "field", "value", "noun"),
    [
        ("snapshots", 0, "manifest-list", f"{LOCATION}/metadata/other.avro", "snapshot 1"),
        ("schemas", 1, "identifier-field-ids", [1], "schema 1"),
        (
            "partition-specs",
            1,
            "fields",
            [{"source-id": 1, "field-id": 1000, "name": "p", "transform": "void"}],
            "partition spec 7",
        ),
    ],
)
def test_another_one_of_the_same_id_is_refused(
    before: Json,
    removed: RemovedMetadata,
    key: str,
    place: int,
    field: str,
    value: object,
    noun: str,
) -> None:
    before[key][place][field] = value
    with pytest.raises(
        Refused, match=f"Cannot restore {noun}: the table has another one by now with this id"
    ):
        with_restored(parsed(before), removed)
