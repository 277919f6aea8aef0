"""Updates and requirements: the next metadata of a table, compared with what Java wrote and PyIceberg does."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import TableRequirement as TheirRequirement
from pyiceberg.table.update import TableUpdate as TheirUpdate
from pyiceberg.table.update import update_table_metadata

from iceberg_cli.errors import InvalidMetadata, Refused
from iceberg_cli.iceberg.commit.update import (
    AddSnapshot,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUuid,
    AssignUuid,
    RemovePartitionSpecs,
    RemovePartitionStatistics,
    RemoveProperties,
    RemoveSchemas,
    RemoveSnapshotRef,
    RemoveSnapshots,
    RemoveStatistics,
    SetPartitionStatistics,
    SetProperties,
    SetSnapshotRef,
    SetStatistics,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersion,
    check,
    dropped_metadata_files,
    effects_visible,
    requirements_for,
    requirements_from_json,
    updates_from_json,
    why_outrun,
    with_updates,
)
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, SnapshotRef, TableMetadata
from tests.builders import a_branch, a_tag
from tests.metadata_documents import (
    JAVA_TABLES,
    LOCATION,
    PATH,
    a_document,
    a_snapshot,
    parsed,
    read,
    without,
    written,
)
from tests.paths import FIXTURES, needs_fixtures

NOW_MS = 50_000
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


def updated(document: dict[str, Any], *updates: TableUpdate) -> TableMetadata:
    return updated_from(parsed(document), *updates)


def updated_from(base: TableMetadata, *updates: TableUpdate) -> TableMetadata:
    return with_updates(base, updates, base_location=PATH, timestamp_ms=NOW_MS)


def log_of(metadata: TableMetadata) -> list[int]:
    return [entry.snapshot_id for entry in metadata.snapshot_log]


def statistics_of(snapshot_id: int) -> dict[str, Any]:
    return {
        "snapshot-id": snapshot_id,
        "statistics-path": f"s3://lake/{snapshot_id}.stats",
        "file-size-in-bytes": 10,
        "file-footer-size-in-bytes": 4,
        "blob-metadata": [],
    }


def partition_statistics_of(snapshot_id: int) -> dict[str, Any]:
    return {
        "snapshot-id": snapshot_id,
        "statistics-path": f"s3://lake/{snapshot_id}.parquet",
        "file-size-in-bytes": 10,
    }


def a_ref(name: str, snapshot_id: int, type_: str = "branch", **retention: int) -> SetSnapshotRef:
    return SetSnapshotRef(ref_name=name, type=type_, snapshot_id=snapshot_id, **retention)


def new_snapshot(snapshot_id: int, **changes: Any) -> Snapshot:
    return Snapshot.from_json(a_snapshot(snapshot_id, **changes), path=PATH)


def table_of(name: str) -> Path:
    return next((FIXTURES / name).iterdir())


def metadata_files(name: str) -> list[Path]:
    return sorted(
        path for path in (table_of(name) / "metadata").glob("*metadata.json") if path.name[0] != "."
    )


def changes_between(base: TableMetadata, new: TableMetadata) -> list[TableUpdate]:
    """The updates that lead from one Java metadata file to the next; schema and spec changes are none of ours."""
    updates: list[TableUpdate] = []
    if new.format_version != base.format_version:
        updates.append(UpgradeFormatVersion(format_version=new.format_version))
    changed = {k: v for k, v in new.properties.items() if base.properties.get(k) != v}
    if changed:
        updates.append(SetProperties(updates=changed))
    if gone := tuple(name for name in base.properties if name not in new.properties):
        updates.append(RemoveProperties(removals=gone))
    updates += [AddSnapshot(snapshot=s) for s in new.snapshots if base.snapshot(s.snapshot_id) is None]
    updates += [RemoveSnapshotRef(ref_name=name) for name in base.refs if name not in new.refs]
    updates += [
        SetSnapshotRef(
            ref_name=name,
            type=ref.type,
            snapshot_id=ref.snapshot_id,
            min_snapshots_to_keep=ref.min_snapshots_to_keep,
            max_snapshot_age_ms=ref.max_snapshot_age_ms,
            max_ref_age_ms=ref.max_ref_age_ms,
        )
        for name, ref in new.refs.items()
        if base.refs.get(name) != ref
    ]
    updates += [SetStatistics(statistics=file) for file in new.statistics if file not in base.statistics]
    updates += [
        SetPartitionStatistics(partition_statistics=file)
        for file in new.partition_statistics
        if file not in base.partition_statistics
    ]
    return updates


def java_commits() -> list[tuple[Path, Path]]:
    """Metadata files that follow each other and have the same schemas and specs."""
    pairs = [pair for name in JAVA_TABLES if FIXTURES.is_dir() for pair in pairwise(metadata_files(name))]
    return [(base, new) for base, new in pairs if _same_definitions(read(base), read(new))]


def _same_definitions(base: TableMetadata, new: TableMetadata) -> bool:
    return (base.schemas, base.partition_specs, base.sort_orders, base.default_spec_id) == (
        new.schemas,
        new.partition_specs,
        new.sort_orders,
        new.default_spec_id,
    )


def in_any_order(document: dict[str, Any]) -> dict[str, Any]:
    """Java groups statistics by snapshot in a hash map, so their order says nothing."""
    for key in ("statistics", "partition-statistics"):
        document[key] = sorted(document[key], key=lambda file: str(file["snapshot-id"]))
    return document


@needs_fixtures
@pytest.mark.parametrize(("base", "new"), java_commits(), ids=lambda path: path.name[:14])
def test_every_commit_of_the_java_library_gives_what_that_library_wrote(base: Path, new: Path) -> None:
    before, after = read(base), read(new)
    updates = changes_between(before, after)
    assert updates
    ours = with_updates(
        before,
        updates,
        base_location=after.metadata_log[-1].metadata_file,
        timestamp_ms=after.last_updated_ms,
    )
    assert in_any_order(written(ours)) == in_any_order(written(after))
    assert effects_visible(updates, after)


@needs_fixtures
def test_the_java_tables_hold_commits_of_every_format_version() -> None:
    assert {read(new).format_version for _, new in java_commits()} == {1, 2, 3}
    assert len(java_commits()) > 50


@needs_fixtures
@pytest.mark.parametrize("name", JAVA_TABLES)
def test_expiry_leaves_the_snapshots_refs_log_and_statistics_that_java_left(name: str) -> None:
    expected = json.loads((FIXTURES / "EXPECTED.json").read_text())[name]
    after = expected["java_expire"]
    base = read(table_of(name) / expected["metadata_file"])
    updates: list[TableUpdate] = [RemoveSnapshotRef(ref_name=ref) for ref in after["removed_refs"]]
    updates.append(RemoveSnapshots(snapshot_ids=tuple(after["removed_snapshots"])))
    new = with_updates(base, updates, base_location="b", timestamp_ms=base.last_updated_ms + 1)
    assert sorted(snapshot.snapshot_id for snapshot in new.snapshots) == sorted(after["kept_snapshots"])
    assert log_of(new) == after["snapshot_log_after"]
    assert len(new.statistics) == after["statistics_after"]
    assert len(new.partition_statistics) == after["partition_statistics_after"]
    assert set(new.refs) == set(base.refs) - set(after["removed_refs"])
    assert effects_visible(updates, new)
    assert not effects_visible(updates, base)
    parents = {s.snapshot_id: s.parent_snapshot_id for s in base.snapshots}
    assert all(s.parent_snapshot_id == parents[s.snapshot_id] for s in new.snapshots)


@needs_fixtures
def test_the_metadata_file_that_java_deleted_after_the_commit_is_the_one_that_left_the_log() -> None:
    name = "21-iceberg-java-statistics-and-gzip-metadata"
    expected = json.loads((FIXTURES / "EXPECTED.json").read_text())[name]
    base = read(table_of(name) / expected["metadata_file"])
    removal = RemoveSnapshots(snapshot_ids=tuple(expected["java_expire"]["removed_snapshots"]))
    location = f"{expected['prefix']}/{expected['metadata_file']}"
    new = with_updates(base, [removal], base_location=location, timestamp_ms=base.last_updated_ms + 1)
    removed = [file for file in expected["java_expire"]["removed_files"] if file.endswith("metadata.json")]
    assert list(dropped_metadata_files(base, new)) == [f"{expected['prefix']}/{file}" for file in removed]
    assert len(new.metadata_log) == 6


EVERY_UPDATE: list[TableUpdate] = [
    AssignUuid(uuid=UUID),
    UpgradeFormatVersion(format_version=3),
    AddSnapshot(snapshot=new_snapshot(4)),
    RemoveSnapshots(snapshot_ids=(9_000_000_000_000_000_001, 2)),
    a_ref("main", 3),
    a_ref("keep", 3, "tag", max_ref_age_ms=5),
    a_ref("b", 3, min_snapshots_to_keep=2, max_snapshot_age_ms=9, max_ref_age_ms=5),
    RemoveSnapshotRef(ref_name="b"),
    *updates_from_json(
        [
            {"action": "set-statistics", "statistics": statistics_of(3)},
            {"action": "set-partition-statistics", "partition-statistics": partition_statistics_of(3)},
        ]
    ),
    RemoveStatistics(snapshot_id=3),
    RemovePartitionStatistics(snapshot_id=3),
    RemoveSchemas(schema_ids=(1, 2)),
    RemovePartitionSpecs(spec_ids=(1, 2)),
    SetProperties(updates={"a": "1", "b": ""}),
    RemoveProperties(removals=("a",)),
]

EVERY_REQUIREMENT: list[TableRequirement] = [
    AssertTableUuid(uuid=UUID),
    AssertRefSnapshotId(ref="main", snapshot_id=3),
    AssertRefSnapshotId(ref="new", snapshot_id=None),
    AssertCurrentSchemaId(current_schema_id=0),
    AssertDefaultSpecId(default_spec_id=0),
    AssertDefaultSortOrderId(default_sort_order_id=0),
    AssertLastAssignedFieldId(last_assigned_field_id=1),
    AssertLastAssignedPartitionId(last_assigned_partition_id=999),
]


@pytest.mark.parametrize("update", EVERY_UPDATE, ids=lambda update: update.wire_name)
def test_every_update_has_the_wire_form_that_pyiceberg_reads_and_writes(update: TableUpdate) -> None:
    wire = json.loads(json.dumps(update.to_json()))
    theirs = TypeAdapter(TheirUpdate).validate_json(json.dumps(wire))
    back = json.loads(theirs.model_dump_json())
    assert {key: back[key] for key in wire if key != "snapshot"} == without(wire, "snapshot")
    assert updates_from_json([wire]) == (update,)


@pytest.mark.parametrize("requirement", EVERY_REQUIREMENT, ids=lambda requirement: requirement.wire_name)
def test_every_requirement_has_the_wire_form_of_pyiceberg_and_is_checked_alike(
    requirement: TableRequirement,
) -> None:
    wire = json.loads(json.dumps(requirement.to_json()))
    theirs = TypeAdapter(TheirRequirement).validate_python(wire)
    assert json.loads(theirs.model_dump_json()) == wire
    assert requirements_from_json([wire]) == (requirement,)
    good = a_document(2, 1, 2, 3)
    other = a_document(
        2,
        1,
        2,
        table_uuid="00000000-0000-0000-0000-000000000000",
        refs={"main": a_branch(2), "new": a_tag(1)},
        schemas=[{"type": "struct", "schema-id": 5, "fields": []}],
        current_schema_id=5,
        partition_specs=[{"spec-id": 5, "fields": []}],
        default_spec_id=5,
        sort_orders=[
            {
                "order-id": 5,
                "fields": [
                    {"transform": "void", "source-id": 1, "direction": "asc", "null-order": "nulls-last"}
                ],
            }
        ],
        default_sort_order_id=5,
        last_column_id=5,
        last_partition_id=1005,
    )
    theirs.validate(TableMetadataUtil.parse_obj(good))
    assert check([requirement], parsed(good)) is None
    with pytest.raises(CommitFailedException):
        theirs.validate(TableMetadataUtil.parse_obj(other))
    assert check([requirement], parsed(other)) is not None


@pytest.mark.parametrize(
    "wire",
    [
        {"action": "add-schema"},
        {"action": "remove-snapshots", "snapshot-ids": ["1"]},
        {"action": "remove-snapshots"},
        {"action": "set-snapshot-ref", "ref-name": "a", "snapshot-id": 1, "type": "leaf"},
        {"action": "add-snapshot"},
        {},
    ],
)
def test_an_update_that_is_none_is_refused(wire: dict[str, Any]) -> None:
    with pytest.raises(InvalidMetadata, match=r"updates\[0\]"):
        updates_from_json([wire])


@pytest.mark.parametrize(
    "updates",
    [
        [SetProperties(updates={"a": "2", "c": "3"}), RemoveProperties(removals=("b",))],
        [RemoveSnapshotRef(ref_name="keep")],
        [a_ref("new", 2, "tag", max_ref_age_ms=7)],
        [RemoveSnapshots(snapshot_ids=(1,))],
        [RemoveStatistics(snapshot_id=2), RemovePartitionStatistics(snapshot_id=3)],
        EVERY_UPDATE[8:10],
        [AddSnapshot(snapshot=new_snapshot(4, parent_snapshot_id=3)), a_ref("main", 4)],
        [AddSnapshot(snapshot=new_snapshot(4, parent_snapshot_id=3)), a_ref("side", 4)],
        [RemoveSchemas(schema_ids=(1,)), RemovePartitionSpecs(spec_ids=(1,))],
    ],
    ids=lambda updates: "+".join(update.wire_name for update in updates),
)
def test_updates_give_what_pyiceberg_makes_of_them(updates: list[TableUpdate]) -> None:
    document = a_document(
        2,
        1,
        2,
        3,
        properties={"a": "1", "b": "1"},
        refs={"main": a_branch(3), "keep": a_tag(2, max_ref_age_ms=9)},
        statistics=[statistics_of(2), statistics_of(3)],
        partition_statistics=[partition_statistics_of(2), partition_statistics_of(3)],
        schemas=[{"type": "struct", "schema-id": i, "fields": []} for i in (0, 1)],
        partition_specs=[{"spec-id": i, "fields": []} for i in (0, 1)],
        metadata_log=[{"timestamp-ms": 5, "metadata-file": "m0"}],
    )
    theirs = update_table_metadata(
        TableMetadataUtil.parse_obj(document),
        tuple(TypeAdapter(TheirUpdate).validate_python(update.to_json()) for update in updates),
        metadata_location=PATH,
    )
    ours = written(updated(document, *updates))
    expected = json.loads(theirs.model_dump_json())
    # PyIceberg reads the clock, and it writes identifier-field-ids where there are none.
    for schema in expected["schemas"]:
        assert schema.pop("identifier-field-ids") == []
    for key in ours.keys() - {"last-updated-ms"}:
        assert ours[key] == expected[key], key


LOGS = [
    ((1,), [2, 3, 4]),
    ((2,), [3, 4]),
    ((1, 3), [4]),
    ((3, 2), [4]),
    ((1, 2, 3), [4]),
    ((), [1, 2, 3, 4]),
    ((99,), [1, 2, 3, 4]),
]


@pytest.mark.parametrize(("removed", "left"), LOGS)
def test_each_removed_snapshot_takes_the_log_before_it_along(
    removed: tuple[int, ...], left: list[int]
) -> None:
    new = updated(a_document(2, 1, 2, 3, 4), RemoveSnapshots(snapshot_ids=removed))
    assert log_of(new) == left
    assert [s.snapshot_id for s in new.snapshots] == [i for i in (1, 2, 3, 4) if i not in removed]


def test_a_log_in_which_a_snapshot_returns_is_cut_at_the_last_removed_one() -> None:
    entries = [{"timestamp-ms": t, "snapshot-id": i} for t, i in enumerate((1, 2, 1, 3, 1))]
    document = a_document(2, 2, 3, 1, snapshot_log=entries)
    assert log_of(updated(document, RemoveSnapshots(snapshot_ids=(2,)))) == [1, 3, 1]
    assert log_of(updated(document, RemoveSnapshots(snapshot_ids=(3,)))) == [1]


def test_entries_of_snapshots_that_were_missing_before_are_gaps_only_once_something_is_removed() -> None:
    entries = [{"timestamp-ms": i, "snapshot-id": i} for i in (1, 99, 2, 3)]
    document = a_document(2, 1, 2, 3, snapshot_log=entries)
    assert log_of(updated(document, SetProperties(updates={"a": "b"}))) == [1, 99, 2, 3]
    assert log_of(updated(document, RemoveSnapshots(snapshot_ids=(1,)))) == [2, 3]


def test_a_log_that_would_not_end_with_the_current_snapshot_is_refused() -> None:
    document = a_document(2, 1, 2, 3, snapshot_log=[{"timestamp-ms": 1, "snapshot-id": 2}])
    with pytest.raises(InvalidMetadata) as caught:
        updated(document, RemoveSnapshots(snapshot_ids=(1,)))
    assert caught.value.offset == "snapshot-log"


def test_a_table_whose_writer_keeps_no_log_can_lose_snapshots() -> None:
    new = updated(a_document(2, 1, 2, snapshot_log=[]), RemoveSnapshots(snapshot_ids=(1,)))
    assert log_of(new) == []


def test_snapshots_that_main_only_passed_by_are_not_in_the_log() -> None:
    updates = [
        AddSnapshot(snapshot=new_snapshot(2)),
        a_ref("main", 2),
        AddSnapshot(snapshot=new_snapshot(3)),
        a_ref("main", 3),
    ]
    new = updated(a_document(2, 1), *updates)
    assert [(entry.timestamp_ms, entry.snapshot_id) for entry in new.snapshot_log] == [(1_001, 1), (1_003, 3)]
    assert new.last_sequence_number == 3


def test_rolling_back_is_logged_at_the_time_of_the_commit() -> None:
    new = updated(a_document(2, 1, 2), a_ref("main", 1))
    assert [(e.timestamp_ms, e.snapshot_id) for e in new.snapshot_log] == [
        (1_001, 1),
        (1_002, 2),
        (NOW_MS, 1),
    ]
    assert new.current_snapshot_id == 1


def test_a_removed_snapshot_takes_its_statistics_and_refs_along_and_nothing_else() -> None:
    others = {"other": a_tag(2) | {"x-unknown": 1}, "dangling": a_tag(77)}
    refs = {"main": a_branch(3), "tag": a_tag(1), "branch": a_branch(1), **others}
    document = a_document(
        2,
        1,
        2,
        3,
        refs=refs,
        snapshots=[a_snapshot(1), a_snapshot(2, parent_snapshot_id=1), a_snapshot(3, parent_snapshot_id=2)],
        statistics=[statistics_of(i) for i in (1, 2)],
        partition_statistics=[partition_statistics_of(i) for i in (3, 1)],
        x_unknown={"y": [1]},
    )
    new = written(updated(document, RemoveSnapshots(snapshot_ids=(1,))))
    assert new == document | {
        "snapshots": document["snapshots"][1:],
        "refs": {name: ref for name, ref in refs.items() if name not in {"tag", "branch"}},
        "statistics": [statistics_of(2)],
        "partition-statistics": [partition_statistics_of(3)],
        "snapshot-log": document["snapshot-log"][1:],
        "last-updated-ms": NOW_MS,
        "metadata-log": [{"timestamp-ms": 1_003, "metadata-file": PATH}],
    }


def test_removing_the_current_snapshot_removes_main() -> None:
    new = updated(a_document(2, 1, 2), RemoveSnapshots(snapshot_ids=(2,)))
    assert new.current_snapshot_id is None
    assert dict(new.refs) == {}
    assert log_of(new) == []


def test_setting_a_ref_again_changes_nothing_and_keeps_what_is_unknown_of_it() -> None:
    refs = {"main": {"snapshot-id": 2, "type": "branch", "x-unknown": 1}}
    document = a_document(2, 1, 2, refs=refs)
    assert log_of(updated(document, a_ref("main", 2))) == [1, 2]
    moved = updated(document, a_ref("main", 1, max_snapshot_age_ms=4))
    assert written(moved)["refs"]["main"] == {
        "snapshot-id": 1,
        "type": "branch",
        "max-snapshot-age-ms": 4,
        "x-unknown": 1,
    }


@pytest.mark.parametrize(
    ("limit", "left"),
    [(None, 4), ("2", 2), ("1", 1), ("0", 1), ("-5", 1), ("4", 4), ("100", 4)],
)
def test_the_metadata_log_is_trimmed_to_the_newest_files(limit: str | None, left: int) -> None:
    log = [{"timestamp-ms": i, "metadata-file": f"m{i}"} for i in range(3)]
    properties = {} if limit is None else {"write.metadata.previous-versions-max": limit}
    document = a_document(2, 1, metadata_log=log, properties=properties)
    new = updated(document, SetProperties(updates={"a": "b"}))
    everything = [*((e["timestamp-ms"], e["metadata-file"]) for e in log), (1_001, PATH)]
    assert [(e.timestamp_ms, e.metadata_file) for e in new.metadata_log] == everything[-left:]


def test_the_metadata_log_keeps_100_files_unless_told_otherwise() -> None:
    log = [{"timestamp-ms": i, "metadata-file": f"m{i}"} for i in range(150)]
    new = updated(a_document(2, 1, metadata_log=log), SetProperties(updates={"a": "b"}))
    assert [e.metadata_file for e in new.metadata_log] == [*(f"m{i}" for i in range(51, 150)), PATH]


@pytest.mark.parametrize(("enabled", "dropped"), [(None, ()), ("false", ()), ("true", ("m0", "m1"))])
def test_files_that_leave_the_log_are_deleted_only_where_the_table_says_so(
    enabled: str | None, dropped: tuple[str, ...]
) -> None:
    properties = {"write.metadata.previous-versions-max": "2"}
    if enabled is not None:
        properties["write.metadata.delete-after-commit.enabled"] = enabled
    log = [{"timestamp-ms": i, "metadata-file": f"m{i}"} for i in range(3)]
    base = parsed(a_document(2, 1, metadata_log=log, properties=properties))
    new = updated_from(base)
    assert dropped_metadata_files(base, new) == dropped


def test_last_updated_never_goes_back() -> None:
    base = parsed(a_document(2, 1, last_updated_ms=90_000))
    new = updated_from(base)
    assert new.last_updated_ms == 90_000
    late = AddSnapshot(snapshot=new_snapshot(2, timestamp_ms=95_000))
    assert updated_from(base, late).last_updated_ms == 95_000


@pytest.mark.parametrize(
    ("updates", "why"),
    [
        ([RemoveSchemas(schema_ids=(1, 0))], "current"),
        ([RemovePartitionSpecs(spec_ids=(0,))], "default"),
        ([a_ref("x", 99, "tag")], "99"),
        ([AddSnapshot(snapshot=new_snapshot(2))], "has one with this id"),
        ([AddSnapshot(snapshot=new_snapshot(9, sequence_number=3))], "sequence number 3"),
        ([UpgradeFormatVersion(format_version=1)], "lower"),
        ([UpgradeFormatVersion(format_version=4)], "version 4"),
    ],
    ids=str,
)
def test_what_cannot_be_applied_is_refused(updates: list[TableUpdate], why: str) -> None:
    with pytest.raises(Refused, match=why):
        updated(a_document(2, 1, 2, 3), *updates)


def test_schemas_and_specs_that_nothing_uses_go_and_the_counters_stay() -> None:
    document = a_document(
        2,
        1,
        schemas=[
            {
                "type": "struct",
                "schema-id": i,
                "fields": [{"id": 10 * i + 1, "name": "n", "required": False, "type": "int"}],
            }
            for i in (0, 1, 2)
        ],
        partition_specs=[{"spec-id": i, "fields": []} for i in (0, 1, 2)],
        last_column_id=21,
        last_partition_id=1007,
    )
    new = updated(document, RemoveSchemas(schema_ids=(1, 2, 9)), RemovePartitionSpecs(spec_ids=(2, 9)))
    assert [schema.schema_id for schema in new.schemas] == [0]
    assert [spec.spec_id for spec in new.partition_specs] == [0, 1]
    assert (new.last_column_id, new.last_partition_id) == (21, 1007)


def test_a_v3_snapshot_takes_its_row_ids_from_the_table() -> None:
    document = a_document(3, 1, next_row_id=100)
    snapshot = new_snapshot(2, first_row_id=100, added_rows=25)
    new = updated(document, AddSnapshot(snapshot=snapshot))
    assert (new.next_row_id, new.last_sequence_number) == (125, 2)
    gap = updated(document, AddSnapshot(snapshot=new_snapshot(2, first_row_id=110, added_rows=25)))
    assert gap.next_row_id == 135, "above every assigned id"


@pytest.mark.parametrize(
    "rows",
    [{}, {"first_row_id": 100}, {"added_rows": 5}, {"first_row_id": 99, "added_rows": 5}],
    ids=str,
)
def test_a_v3_snapshot_without_row_ids_or_behind_the_table_is_refused(rows: dict[str, int]) -> None:
    with pytest.raises(Refused, match="row"):
        updated(a_document(3, 1, next_row_id=100), AddSnapshot(snapshot=new_snapshot(2, **rows)))


def test_v1_tables_have_no_sequence_numbers() -> None:
    snapshot = Snapshot.from_json(without(a_snapshot(2), "sequence-number"), path=PATH)
    document = a_document(1, 1, snapshots=[without(a_snapshot(1), "sequence-number")])
    new = updated(document, AddSnapshot(snapshot=snapshot), a_ref("main", 2))
    assert new.last_sequence_number == 0
    assert "last-sequence-number" not in written(new)
    assert all("sequence-number" not in each for each in written(new)["snapshots"])


def test_upgrading_v1_drops_the_deprecated_fields_and_writes_the_required_ones() -> None:
    old = without(a_document(1, 1), "schemas", "current-schema-id", "partition-specs", "default-spec-id")
    old = without(old, "last-partition-id", "sort-orders", "default-sort-order-id")
    old["schema"] = without(old["schema"], "schema-id")
    new = written(updated(old, UpgradeFormatVersion(format_version=2)))
    assert "schema" not in new
    assert "partition-spec" not in new
    assert new["schemas"][0]["schema-id"] == new["current-schema-id"] == 0
    assert new["partition-specs"] == [{"spec-id": 0, "fields": []}]
    assert (new["default-spec-id"], new["last-partition-id"]) == (0, 999)
    assert (new["sort-orders"], new["default-sort-order-id"]) == ([{"order-id": 0, "fields": []}], 0)
    assert new["last-sequence-number"] == 0
    assert TableMetadataUtil.parse_obj(new).format_version == 2
    assert parsed(new).format_version == 2


def test_upgrading_to_v3_starts_row_ids_at_0() -> None:
    new = written(updated(a_document(2, 1), UpgradeFormatVersion(format_version=3)))
    assert (new["format-version"], new["next-row-id"]) == (3, 0)
    assert "first-row-id" not in new["snapshots"][0]


def test_a_v1_table_without_uuid_needs_one_before_it_is_upgraded() -> None:
    old = without(a_document(1, 1), "table-uuid")
    with pytest.raises(Refused, match="UUID"):
        updated(old, UpgradeFormatVersion(format_version=2))
    new = updated(old, AssignUuid(uuid=UUID), UpgradeFormatVersion(format_version=2))
    assert written(new)["table-uuid"] == UUID


def test_requirements_pin_every_ref_of_the_base() -> None:
    base = parsed(a_document(2, 1, 2, refs={"main": a_branch(2), "tag": a_tag(1)}))
    assert requirements_for([RemoveSnapshots(snapshot_ids=(1,))], base) == (
        AssertTableUuid(uuid=UUID),
        AssertRefSnapshotId(ref="main", snapshot_id=2),
        AssertRefSnapshotId(ref="tag", snapshot_id=1),
    )


def test_what_adds_a_snapshot_and_moves_a_branch_to_it_pins_that_branch_alone() -> None:
    base = parsed(a_document(2, 1, 2, refs={"main": a_branch(2), "audit": a_branch(1), "tag": a_tag(1)}))
    added = AddSnapshot(snapshot=replace(base.snapshots[0], snapshot_id=3, sequence_number=3))
    everything = requirements_for([], base)
    for name, head in (("main", 2), ("audit", 1), ("new", None)):
        updates = [added, a_ref(name, 3)]
        assert requirements_for(updates, base) == (
            AssertTableUuid(uuid=UUID),
            AssertRefSnapshotId(ref=name, snapshot_id=head),
        )
        assert requirements_for(updates, base, every_ref=True) == everything
    assert len(everything) == 4
    for more in (SetProperties(updates={}), RemoveSnapshots(snapshot_ids=(1,)), a_ref("audit", 3)):
        assert requirements_for([added, a_ref("main", 3), more], base) == everything
        assert requirements_for([more, added, a_ref("main", 3)], base) == everything


@pytest.mark.parametrize(
    ("version", "number", "first_row_id", "outrun"),
    [
        (1, 0, None, None),
        (2, 3, None, None),
        (2, 2, None, "its sequence number 2 is not above the table's 2"),
        (3, 3, 0, None),
        (3, 2, 0, "its sequence number 2 is not above the table's 2"),
        (3, 3, None, "format version 3 requires first-row-id (None) and added-rows (None)"),
    ],
)
def test_a_snapshot_is_outrun_where_its_numbers_are_those_of_another(
    version: int, number: int, first_row_id: int | None, outrun: str | None
) -> None:
    base = parsed(a_document(version, 1, 2))
    new = replace(
        base.snapshots[0],
        snapshot_id=3,
        sequence_number=number,
        first_row_id=first_row_id,
        added_rows=None if first_row_id is None else 0,
    )
    assert why_outrun([AddSnapshot(snapshot=new), a_ref("main", 3)], base) == outrun
    assert why_outrun([SetProperties(updates={})], base) is None
    if version == 3 and outrun is None:
        later = replace(base, next_row_id=1)
        assert why_outrun([AddSnapshot(snapshot=new)], later) == (
            "its first-row-id 0 is below the table's next-row-id 1"
        )


def test_requirements_on_an_empty_table_say_that_main_must_not_exist() -> None:
    base = parsed(a_document(2))
    assert requirements_for([SetProperties(updates={})], base)[1:] == (
        AssertRefSnapshotId(ref="main", snapshot_id=None),
    )


def test_requirements_of_removed_schemas_and_specs_pin_what_java_pins_and_the_counters() -> None:
    base = parsed(a_document(2, 1))
    updates = [RemoveSchemas(schema_ids=(3,)), RemovePartitionSpecs(spec_ids=(3,))]
    assert requirements_for(updates, base)[2:] == (
        AssertCurrentSchemaId(current_schema_id=0),
        AssertLastAssignedFieldId(last_assigned_field_id=1),
        AssertDefaultSpecId(default_spec_id=0),
        AssertLastAssignedPartitionId(last_assigned_partition_id=999),
    )


def test_a_v1_table_without_uuid_has_no_uuid_requirement() -> None:
    base = parsed(without(a_document(1, 1), "table-uuid"))
    assert requirements_for([], base) == (AssertRefSnapshotId(ref="main", snapshot_id=1),)


def test_requirements_hold_for_their_own_base_and_not_once_a_ref_moved() -> None:
    base = parsed(a_document(2, 1, 2))
    requirements = requirements_for([], base)
    assert check(requirements, base) is None
    moved = updated_from(base, a_ref("main", 1))
    assert check(requirements, moved) == "ref main's snapshot is 1, not 2"
    gone = updated_from(base, RemoveSnapshotRef(ref_name="main"))
    assert check(requirements, gone) == "ref main's snapshot is absent, not 2"


@pytest.mark.parametrize(
    "update", [u for u in EVERY_UPDATE if u.wire_name != "assign-uuid"], ids=lambda update: update.wire_name
)
def test_effects_are_visible_after_an_update_and_not_before(update: TableUpdate) -> None:
    document = a_document(
        2,
        1,
        2,
        3,
        current_snapshot_id=2,
        refs={"main": a_branch(2), "b": a_branch(1)},
        properties={"a": "0"},
        schemas=[{"type": "struct", "schema-id": i, "fields": []} for i in range(3)],
        partition_specs=[{"spec-id": i, "fields": []} for i in range(3)],
        statistics=[statistics_of(3) | {"file-size-in-bytes": 1}],
        partition_statistics=[partition_statistics_of(3) | {"file-size-in-bytes": 1}],
        snapshot_log=[],
    )
    assert not effects_visible([update], parsed(document))
    assert effects_visible([update], updated(document, update))


def test_updating_leaves_the_base_as_it_was() -> None:
    document = a_document(2, 1, 2, properties={"a": "1"})
    base = parsed(document)
    updates = [SetProperties(updates={"a": "2"}), RemoveSnapshots(snapshot_ids=(1,)), a_ref("x", 2, "tag")]
    updated_from(base, *updates)
    assert written(base) == document
    assert base.refs == {"main": SnapshotRef(snapshot_id=2, type="branch")}
    assert base.location == LOCATION
