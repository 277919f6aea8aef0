"""Table metadata: what is read from it, what is refused, and that it is written back as it was."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zlib
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from iceberg_cli.encoding.strict_json import dumps, loads
from iceberg_cli.errors import CorruptFile, InvalidMetadata, Refused
from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file, encode_metadata_file
from iceberg_cli.iceberg.spec.table_metadata.metadata import PartitionSpec, Schema, Snapshot, TableMetadata
from iceberg_cli.iceberg.spec.types.schema import ListType, MapType, StructType, is_known_primitive
from tests.metadata_documents import (
    JAVA_TABLES,
    PATH,
    a_document,
    a_snapshot,
    encoded,
    parsed,
    read,
    without,
    written,
)
from tests.paths import FIXTURES, ROOT, needs_fixtures

SPEC_FIXTURES = FIXTURES / "01-iceberg-spec-fixtures"
RUST_FIXTURES = FIXTURES / "02-iceberg-rust-metadata-json"
VALID = [
    SPEC_FIXTURES / f"TableMetadata{name}.json"
    for name in (
        "V1Valid",
        "V2Valid",
        "V2ValidMinimal",
        "V3ValidMinimal",
        "StatisticsFiles",
        "PartitionStatisticsFiles",
    )
]
VALID.append(RUST_FIXTURES / "example_table_metadata_v2_deep_history.json")


def files_of_tables() -> list[Path]:
    """Every metadata file of the fixture tables."""
    return sorted(path for path in FIXTURES.glob("*/**/metadata/*metadata.json*") if path.name[0] != ".")


@needs_fixtures
@pytest.mark.parametrize("path", [*VALID, *files_of_tables()], ids=lambda path: path.name)
def test_every_valid_file_of_other_writers_is_written_back_as_it_was(path: Path) -> None:
    data = path.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    compact = json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False).encode()
    assert dumps(read(path).to_json()) == compact


# PyIceberg refuses the blob type "ndv" of the specification's own fixture.
READ_BY_PYICEBERG = [
    path for path in [*VALID, *files_of_tables()] if path.name != "TableMetadataStatisticsFiles.json"
]


@needs_fixtures
@pytest.mark.parametrize("path", READ_BY_PYICEBERG, ids=lambda path: path.name)
def test_pyiceberg_reads_the_same_from_every_valid_file(path: Path) -> None:
    data = path.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    theirs = TableMetadataUtil.parse_raw(text.decode())
    ours = read(path)
    numbers = attrgetter(
        *("format_version", "location", "last_updated_ms", "last_column_id", "last_partition_id"),
        *("current_schema_id", "default_spec_id", "default_sort_order_id", "current_snapshot_id"),
    )
    assert numbers(ours) == numbers(theirs)
    assert ours.table_uuid == str(theirs.table_uuid)
    assert dict(ours.properties) == dict(theirs.properties)
    names = ("snapshot_id", "parent_snapshot_id", "timestamp_ms", "manifest_list", "schema_id")
    check_alike(ours.snapshots, theirs.snapshots, *names)
    assert [s.sequence_number for s in ours.snapshots] == [s.sequence_number or 0 for s in theirs.snapshots]
    assert ours.refs.keys() == theirs.refs.keys()
    retention = ("snapshot_id", "min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms")
    for name, ref in ours.refs.items():
        check_alike([ref], [theirs.refs[name]], *retention)
        assert ref.type == theirs.refs[name].snapshot_ref_type.value
    check_alike(ours.partition_specs, theirs.partition_specs, "spec_id")
    for spec, their_spec in zip(ours.partition_specs, theirs.partition_specs, strict=True):
        check_alike(spec.fields, their_spec.fields, "source_id", "field_id", "name")
        assert [f.transform for f in spec.fields] == [str(f.transform) for f in their_spec.fields]
    check_alike(ours.schemas, theirs.schemas, "schema_id")
    for schema, their_schema in zip(ours.schemas, theirs.schemas, strict=True):
        check_alike(schema.fields, their_schema.fields, "field_id", "name", "required")
    check_alike(ours.snapshot_log, theirs.snapshot_log, "timestamp_ms", "snapshot_id")
    check_alike(ours.metadata_log, theirs.metadata_log, "timestamp_ms", "metadata_file")


def check_alike(ours: Iterable[Any], theirs: Iterable[Any], *names: str) -> None:
    """The same values of these attributes, one after the other."""
    values = attrgetter(*names)
    assert [*map(values, ours)] == [*map(values, theirs)]


@needs_fixtures
@pytest.mark.parametrize("name", JAVA_TABLES)
def test_tables_of_the_java_library_read_as_that_library_says(name: str) -> None:
    expected = json.loads((FIXTURES / "EXPECTED.json").read_text())[name]
    folder = next((FIXTURES / name).iterdir())
    ours = read(folder / expected["metadata_file"])
    assert ours.format_version == expected["format_version"]
    assert ours.current_snapshot_id == expected["current_snapshot_id"]
    assert ours.last_sequence_number == (expected["last_sequence_number"] or 0)
    assert ours.next_row_id == expected.get("next_row_id", 0)
    assert len(ours.statistics) == expected["statistics"]
    assert len(ours.partition_statistics) == expected["partition_statistics"]
    names = (
        "sequence_number",
        "timestamp_ms",
        "operation",
        "parent_snapshot_id",
        "first_row_id",
        "added_rows",
    )
    assert {str(s.snapshot_id): attrgetter(*names)(s) for s in ours.snapshots} == {
        snapshot_id: (
            s["sequence_number"] or 0,
            s["timestamp_ms"],
            s["operation"],
            s["parent"],
            s.get("first_row_id"),
            s.get("added_rows"),
        )
        for snapshot_id, s in expected["snapshots"].items()
    }
    keys = ("snapshot-id", "type", "min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms")
    assert {name: ref.to_json() for name, ref in ours.refs.items()} == {
        name: {key: ref[key] for key in keys if key in ref} for name, ref in expected["refs"].items()
    }


@needs_fixtures
@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("TableMetadataV1MissingSchemaType", "schema.type"),
        ("TableMetadataV2CurrentSchemaNotFound", "current-schema-id"),
        ("TableMetadataV2MissingLastPartitionId", "last-partition-id"),
        ("TableMetadataV2MissingPartitionSpecs", "partition-specs"),
        ("TableMetadataV2MissingSchemas", "schemas"),
        ("TableMetadataV2MissingSortOrder", "sort-orders"),
    ],
)
def test_files_that_java_refuses_are_refused_by_the_field(name: str, field: str) -> None:
    path = SPEC_FIXTURES / f"{name}.json"
    with pytest.raises(InvalidMetadata) as caught:
        read(path)
    assert caught.value.offset == field
    assert str(path) in caught.value.message


@needs_fixtures
def test_v1_schemas_without_a_current_one_and_without_schema_are_refused() -> None:
    with pytest.raises(InvalidMetadata) as caught:
        read(RUST_FIXTURES / "TableMetadataV1NoValidSchema.json")
    assert caught.value.offset == "current-schema-id"


@needs_fixtures
def test_v1_schemas_without_a_current_id_take_the_id_of_schema() -> None:
    metadata = read(RUST_FIXTURES / "TableMetadataV1SchemasWithoutCurrentId.json")
    assert [field.name for field in metadata.current_schema().fields] == ["x", "y", "z"]


@needs_fixtures
def test_v1_partition_specs_without_a_default_id_take_the_highest() -> None:
    metadata = read(RUST_FIXTURES / "TableMetadataV1PartitionSpecsWithoutDefaultId.json")
    assert metadata.default_spec_id == 2
    assert metadata.default_spec().fields[0].name == "y"
    assert metadata.last_partition_id == 1001


@needs_fixtures
def test_v1_metadata_of_glue_without_schema_gets_it_back_on_writing() -> None:
    path = RUST_FIXTURES / "TableMetadataV1Compat.json"
    document = json.loads(path.read_text())
    metadata = read(path)
    assert (metadata.current_schema_id, metadata.last_updated_ms) == (0, 1727773114005)
    assert written(metadata) == document | {"schema": document["schemas"][0], "partition-spec": []}


@needs_fixtures
def test_default_values_are_kept_apart() -> None:
    folder = next((FIXTURES / "04-iceberg-v3-default-values").glob("**/metadata"))
    defaults = [
        (field.initial_default, field.write_default)
        for name in ("v3.metadata.json", "v4.metadata.json")
        for field in read(folder / name).current_schema().fields
        if field.name == "j"
    ]
    assert defaults == [(-1, -1), (-1, -999)]


@needs_fixtures
def test_a_file_of_a_version_that_java_does_not_know_is_newer_than_this_tool() -> None:
    with pytest.raises(Refused, match="is newer than this iceberg-cli, which knows 1 to 3"):
        read(SPEC_FIXTURES / "TableMetadataUnsupportedVersion.json")


@pytest.mark.parametrize("version", [4, 5, 42, 2**40])
def test_a_newer_format_version_is_refused_before_anything_else(version: int) -> None:
    with pytest.raises(Refused, match=f"format version {version} is newer"):
        TableMetadata.from_json({"format-version": version, "schemas": "nonsense"}, path=PATH)


@pytest.mark.parametrize("version", [0, -1, "2", 2.0, True, None, [2]])
def test_a_format_version_other_than_1_to_3_is_refused_before_anything_else(version: object) -> None:
    with pytest.raises(InvalidMetadata) as caught:
        TableMetadata.from_json({"format-version": version, "schemas": "nonsense"}, path=PATH)
    assert caught.value.offset == "format-version"


REQUIRED = {
    1: ["location", "last-updated-ms", "last-column-id"],
    2: [
        "table-uuid",
        "location",
        "last-sequence-number",
        "last-updated-ms",
        "last-column-id",
        "schemas",
        "current-schema-id",
        "partition-specs",
        "default-spec-id",
        "last-partition-id",
        "sort-orders",
        "default-sort-order-id",
    ],
}
REQUIRED[3] = [*REQUIRED[2], "next-row-id"]


@pytest.mark.parametrize(("version", "key"), [(v, key) for v, keys in REQUIRED.items() for key in keys])
@pytest.mark.parametrize("absent", [True, False], ids=["absent", "null"])
def test_a_field_that_the_version_requires_is_named_when_missing(
    version: int, key: str, *, absent: bool
) -> None:
    document = a_document(version, 1, 2)
    document = without(document, key) if absent else document | {key: None}
    with pytest.raises(InvalidMetadata) as caught:
        parsed(document)
    assert caught.value.offset == key


def test_v1_needs_neither_schemas_nor_specs_nor_anything_that_came_later() -> None:
    later = (
        "schemas current-schema-id partition-specs default-spec-id last-partition-id sort-orders refs "
        "default-sort-order-id snapshot-log metadata-log statistics partition-statistics properties table-uuid"
    )
    old = without(a_document(1, 7), *later.split())
    old["schema"] = without(old["schema"], "schema-id")
    old["partition-spec"] = [
        {"name": "a", "transform": "identity", "source-id": 1},
        {"name": "b", "transform": "bucket[4]", "source-id": 1},
    ]
    metadata = parsed(old)
    assert metadata.table_uuid is None
    assert (metadata.last_sequence_number, metadata.next_row_id) == (0, 0)
    assert [schema.schema_id for schema in metadata.schemas] == [0]
    assert [(field.field_id, field.name) for field in metadata.default_spec().fields] == [
        (1000, "a"),
        (1001, "b"),
    ]
    assert metadata.last_partition_id == 1001
    assert [(order.order_id, order.fields) for order in metadata.sort_orders] == [(0, ())]
    assert {name: (ref.snapshot_id, ref.type) for name, ref in metadata.refs.items()} == {
        "main": (7, "branch")
    }
    assert written(metadata) == old


def test_v1_without_partition_fields_has_999_as_last_partition_id() -> None:
    assert parsed(without(a_document(1), "last-partition-id")).last_partition_id == 999


def test_v1_snapshots_may_embed_their_manifests_and_have_no_sequence_number() -> None:
    old = without(
        a_snapshot(3, manifests=["a.avro", "b.avro"]), "manifest-list", "sequence-number", "summary"
    )
    metadata = parsed(a_document(1, 3, snapshots=[old]))
    assert metadata.snapshots[0].manifests == ("a.avro", "b.avro")
    assert metadata.snapshots[0].manifest_list is None
    assert metadata.snapshots[0].sequence_number == 0
    assert metadata.snapshots[0].operation is None
    assert written(metadata)["snapshots"] == [old]


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("spelling", ["absent", "null", "-1"])
def test_a_table_without_data_spells_its_current_snapshot_in_three_ways(version: int, spelling: str) -> None:
    document = a_document(version)
    if spelling == "absent":
        document = without(document, "current-snapshot-id")
    else:
        document["current-snapshot-id"] = json.loads(spelling)
    metadata = parsed(document)
    assert metadata.current_snapshot_id is None
    assert metadata.current_snapshot() is None
    assert "main" not in metadata.refs
    assert written(metadata).get("current-snapshot-id", -1) in {-1, None}
    assert ("current-snapshot-id" in written(metadata)) == (spelling != "absent")


@pytest.mark.parametrize("refs", [{}, None, "absent", {"old": {"snapshot-id": 1, "type": "tag"}}])
def test_main_is_there_whenever_a_snapshot_is_current(refs: object) -> None:
    document = a_document(2, 1, 2)
    document = without(document, "refs") if refs == "absent" else document | {"refs": refs}
    assert parsed(document).refs["main"].snapshot_id == 2


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"current_schema_id": 7}, "current-schema-id"),
        ({"default_spec_id": 7}, "default-spec-id"),
        ({"default_sort_order_id": 7}, "default-sort-order-id"),
        ({"current_snapshot_id": 7}, "current-snapshot-id"),
        ({"current_snapshot_id": None}, "refs.main.snapshot-id"),
        ({"snapshots": []}, "current-snapshot-id"),
        ({"snapshots": [a_snapshot(1), a_snapshot(2), a_snapshot(1)]}, "snapshots[2]"),
        ({"refs": {"main": {"snapshot-id": 1, "type": "branch"}}}, "refs.main.snapshot-id"),
        ({"refs": {"x": {"snapshot-id": 1, "type": "leaf"}}}, "refs.x.type"),
        ({"refs": {"x": {"snapshot-id": 1}}}, "refs.x.type"),
        ({"refs": {"x": {"type": "tag"}}}, "refs.x.snapshot-id"),
        ({"refs": {"x": {"snapshot-id": 1, "type": "tag", "max-ref-age-ms": 0}}}, "refs.x.max-ref-age-ms"),
        (
            {"refs": {"x": {"snapshot-id": 1, "type": "branch", "min-snapshots-to-keep": -1}}},
            "refs.x.min-snapshots-to-keep",
        ),
        ({"refs": []}, "refs"),
        ({"last_sequence_number": 1}, "snapshots[1].sequence-number"),
        (
            {"snapshots": [a_snapshot(1), without(a_snapshot(2), "manifest-list")]},
            "snapshots[1].manifest-list",
        ),
        ({"snapshots": [a_snapshot(1), a_snapshot(2) | {"snapshot-id": True}]}, "snapshots[1].snapshot-id"),
        ({"snapshots": [a_snapshot(1), a_snapshot(2, timestamp_ms="2")]}, "snapshots[1].timestamp-ms"),
        ({"snapshots": [a_snapshot(2), a_snapshot(1, summary={"n": 1})]}, "snapshots[1].summary.n"),
        ({"snapshots": {}}, "snapshots"),
        ({"snapshots": [5]}, "snapshots[0]"),
        ({"properties": {"a": 1}}, "properties.a"),
        ({"properties": []}, "properties"),
        ({"snapshot_log": [{"snapshot-id": 1}]}, "snapshot-log[0].timestamp-ms"),
        ({"metadata_log": [{"timestamp-ms": 1}]}, "metadata-log[0].metadata-file"),
        ({"statistics": [{"snapshot-id": 1}]}, "statistics[0].statistics-path"),
        ({"partition_statistics": [{}]}, "partition-statistics[0].snapshot-id"),
        ({"encryption_keys": [{}]}, "encryption-keys[0].key-id"),
        ({"schemas": []}, "current-schema-id"),
        ({"schemas": [{"schema-id": 0, "fields": []}]}, "schemas[0].type"),
        ({"schemas": [{"type": "list", "schema-id": 0, "fields": []}]}, "schemas[0].type"),
        ({"schemas": [{"type": "struct", "schema-id": 0}]}, "schemas[0].fields"),
        ({"partition_specs": [{"spec-id": 0}]}, "partition-specs[0].fields"),
        ({"partition_specs": [{"spec-id": 0, "fields": []}] * 2}, "partition-specs[1]"),
        ({"sort_orders": [{"order-id": 0, "fields": [{}]}]}, "sort-orders[0].fields[0].direction"),
        ({"location": 5}, "location"),
        ({"table_uuid": 5}, "table-uuid"),
        ({"last_updated_ms": 1.5}, "last-updated-ms"),
        ({"next_row_id": -1}, "next-row-id"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_contradiction_or_a_wrong_type_is_refused_by_the_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidMetadata) as caught:
        parsed(a_document(2, 1, 2, **changes))
    assert caught.value.offset == field
    assert PATH in caught.value.message


def test_some_partition_fields_with_ids_and_some_without_are_refused() -> None:
    fields = [
        {"name": "a", "transform": "identity", "source-id": 1, "field-id": 1000},
        {"name": "b", "transform": "identity", "source-id": 1},
    ]
    with pytest.raises(InvalidMetadata) as caught:
        PartitionSpec.from_json({"spec-id": 0, "fields": fields}, path=PATH)
    assert caught.value.offset == "partition-spec.fields[1].field-id"


def test_a_ref_to_a_missing_snapshot_is_kept_and_reported() -> None:
    refs = {"main": {"snapshot-id": 2, "type": "branch"}, "lost": {"snapshot-id": 99, "type": "tag"}}
    metadata = parsed(a_document(2, 1, 2, refs=refs))
    assert metadata.dangling_refs() == ("lost",)
    assert metadata.refs["lost"].snapshot_id == 99


def test_parent_cycles_and_missing_parents_are_read() -> None:
    snapshots = [a_snapshot(1, parent_snapshot_id=2), a_snapshot(2, parent_snapshot_id=1)]
    metadata = parsed(a_document(2, 1, 2, snapshots=snapshots))
    assert [snapshot.parent_snapshot_id for snapshot in metadata.snapshots] == [2, 1]
    lost = [a_snapshot(1, parent_snapshot_id=77), a_snapshot(2)]
    assert parsed(a_document(2, 1, 2, snapshots=lost)).snapshots[0].parent_snapshot_id == 77


def test_unknown_keys_survive_at_every_level() -> None:
    unknown = {"x-unknown": {"deep": [1, {"a": None}]}}
    field = {"id": 1, "name": "n", "required": False, "type": "long"} | unknown
    listed = {"type": "list", "element-id": 3, "element": "int", "element-required": True} | unknown
    mapped = {
        "type": "map",
        "key-id": 5,
        "key": "string",
        "value-id": 6,
        "value": {"type": "struct", "fields": [field | {"id": 7}]} | unknown,
        "value-required": False,
    } | unknown
    nested = [field | {"id": 2, "type": listed}, field | {"id": 4, "type": mapped}]
    schema = {"type": "struct", "schema-id": 0, "fields": [field, *nested]} | unknown
    partition = {"name": "p", "transform": "future[3]", "source-id": 1, "field-id": 1000} | unknown
    sort = {"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-last"} | unknown
    statistics = {
        "snapshot-id": 1,
        "statistics-path": "s",
        "file-size-in-bytes": 5,
        "file-footer-size-in-bytes": 4,
        "key-metadata": "a2V5",
        "blob-metadata": [
            {"type": "t", "snapshot-id": 1, "sequence-number": 1, "fields": [1], "properties": {"ndv": "3"}}
            | unknown
        ],
    }
    document = (
        a_document(
            3,
            1,
            schemas=[schema],
            partition_specs=[{"spec-id": 0, "fields": [partition]} | unknown],
            sort_orders=[{"order-id": 0, "fields": [sort]} | unknown],
            snapshots=[a_snapshot(1, first_row_id=0, added_rows=4, key_id="k") | unknown],
            refs={"main": {"snapshot-id": 1, "type": "branch"} | unknown},
            statistics=[statistics | unknown],
            partition_statistics=[
                {"snapshot-id": 1, "statistics-path": "p", "file-size-in-bytes": 5} | unknown
            ],
            snapshot_log=[{"timestamp-ms": 1, "snapshot-id": 1} | unknown],
            metadata_log=[{"timestamp-ms": 1, "metadata-file": "m"} | unknown],
            encryption_keys=[
                {"key-id": "k", "encrypted-key-metadata": "eA==", "encrypted-by-id": "kms", "properties": {}}
                | unknown
            ],
            next_row_id=4,
        )
        | unknown
    )
    metadata = parsed(document)
    assert metadata.extra == unknown
    assert metadata.snapshots[0].extra == unknown
    assert written(metadata) == document


def test_nested_types_and_their_ids_are_found() -> None:
    address = {"type": "struct", "fields": [{"id": 3, "name": "zip", "required": True, "type": "string"}]}
    tags = {"type": "list", "element-id": 5, "element": "decimal(9, 2)", "element-required": False}
    prices = {
        "type": "map",
        "key-id": 7,
        "key": "uuid",
        "value-id": 8,
        "value": address,
        "value-required": True,
    }
    columns = [
        {"id": i, "name": f"c{i}", "required": False, "type": t}
        for i, t in ((2, address), (4, tags), (6, prices))
    ]
    schema = Schema.from_json({"type": "struct", "schema-id": 1, "fields": columns}, path=PATH)
    types = schema.types_by_id()
    assert set(types) == {2, 3, 4, 5, 6, 7, 8}
    assert isinstance(types[2], StructType)
    assert isinstance(types[4], ListType)
    assert isinstance(types[6], MapType)
    assert (types[3], types[5], types[7]) == ("string", "decimal(9, 2)", "uuid")
    assert schema.to_json() == {"type": "struct", "schema-id": 1, "fields": columns}


@pytest.mark.parametrize(
    "text",
    [
        *["boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz"],
        *["timestamp_ns", "timestamptz_ns", "string", "uuid", "binary", "unknown", "variant"],
        *["decimal(9,2)", "decimal(38,0)", "fixed[16]", "geometry", "geometry(srid:4326)"],
        *["geography", "geography(OGC:CRS84,karney)"],
    ],
)
def test_every_primitive_type_of_versions_1_to_3_is_known(text: str) -> None:
    assert is_known_primitive(text)


def test_a_primitive_type_of_the_future_stays_readable_and_is_reported() -> None:
    columns = [
        {"id": 1, "name": "a", "required": False, "type": "vector(3)"},
        {"id": 2, "name": "b", "required": False, "type": "long"},
    ]
    schema = Schema.from_json({"type": "struct", "schema-id": 1, "fields": columns}, path=PATH)
    assert schema.unknown_types() == ("vector(3)",)
    assert schema.to_json()["fields"] == columns


@pytest.mark.parametrize(
    "type_",
    [
        "decimal(39,2)",
        "decimal(0,0)",
        "decimal(a,b)",
        "fixed[]",
        "fixed[x]",
        5,
        None,
        {"type": "set"},
        {},
        [],
    ],
)
def test_a_type_that_is_none_is_refused(type_: object) -> None:
    columns = [{"id": 1, "name": "a", "required": False, "type": type_}]
    with pytest.raises(InvalidMetadata) as caught:
        Schema.from_json({"type": "struct", "schema-id": 1, "fields": columns}, path=PATH)
    assert str(caught.value.offset).startswith("schema.fields[0].type")


@pytest.mark.parametrize("sources", [{"source-id": 4}, {"source-ids": [4]}, {"source-ids": [4, 5]}])
def test_one_source_or_several_are_written_as_they_were(sources: dict[str, Any]) -> None:
    field = {"name": "p", "transform": "bucket[4]", "field-id": 1000} | sources
    spec = PartitionSpec.from_json({"spec-id": 3, "fields": [field]}, path=PATH)
    assert spec.fields[0].source_id == 4
    assert spec.to_json() == {"spec-id": 3, "fields": [field]}


def test_equal_numbers_of_different_types_are_not_taken_for_each_other() -> None:
    value = loads(b'{"a":{"n":1},"b":{"n":true},"c":{"n":1.0},"d":{"n":1}}', PATH)
    assert [type(value[key]["n"]) for key in "abcd"] == [int, bool, float, int]
    assert value["a"] is value["d"]


def test_zero_keeps_its_sign_where_an_equal_object_came_before() -> None:
    text = b'{"a":{"n":0.0},"b":{"n":-0.0},"c":{"n":0.0}}'
    assert dumps(loads(text, PATH)) == text


def test_a_duplicate_key_is_refused_after_the_same_object_without_it() -> None:
    with pytest.raises(CorruptFile, match="twice") as caught:
        loads(b'{"a":{"n":1,"m":2},"b":{"n":1,"m":2,"n":1}}', PATH)
    assert caught.value.offset == "n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "not JSON"),
        (b"[]", "object"),
        (b"5", "object"),
        (b"null", "null"),
        (b'{"a":1', "not JSON"),
        (b'{"a":1}{"b":2}', "not JSON"),
        (b'{"a":1}\x00', "not JSON"),
        (b'\xef\xbb\xbf{"a":1}', "byte order mark"),
        (b'{"a":"\xff"}', "UTF-8"),
        (b'{"a":"\xed\xa0\x80"}', "UTF-8"),
        ('{"a":1}'.encode("utf-16"), "UTF-8"),
        (b'{"a":NaN}', "NaN"),
        (b'{"a":-Infinity}', "Infinity"),
        (b'{"a":1e400}', "double"),
        (b'{"a":9223372036854775808}', "64 bits"),
        (b'{"a":-9223372036854775809}', "64 bits"),
        (b'{"a":' + b"9" * 5_000 + b"}", "64 bits"),
        (b'{"a":01}', "not JSON"),
        (b'{"a":1,"a":1}', "twice"),
        (b'{"a":{"b":1,"c":2,"b":3}}', "twice"),
        (b'{"a":"\\ud800"}', "surrogate"),
        (b'{"a":"\\udc00\\ud800"}', "surrogate"),
        (b'{"a":"\t"}', "not JSON"),
        (b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", "deep"),
        (b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "deep"),
        (b'{"a":' * 100_000, "deep"),
    ],
)
def test_text_that_is_not_strictly_one_json_object_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(CorruptFile, match=reason) as caught:
        loads(text, PATH)
    assert PATH in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":9223372036854775807,"b":-9223372036854775808}',
        b'{"a":"\\ud83d\\ude00 \\" \\\\ \\\\ud800 [[[[ \\u00e9"}',
        '{"ключ":"値 🤯"}'.encode(),
        b'{"a":' + b"[" * 63 + b"]" * 63 + b"}",
        b'{"a":"' + b"[{" * 5_000 + b'"}',
        b' \n{"a" : [1.5, true, null, -0.0]}\n',
    ],
)
def test_strict_json_means_the_same_as_in_the_standard_library(text: bytes) -> None:
    assert loads(text, PATH) == json.loads(text)
    assert loads(dumps(loads(text, PATH)), PATH) == json.loads(text)


def test_a_duplicate_key_is_named_and_broken_text_has_its_byte_offset() -> None:
    with pytest.raises(CorruptFile) as twice:
        loads(b'{"refs":{"main":1,"main":2}}', PATH)
    assert twice.value.offset == "main"
    with pytest.raises(CorruptFile) as broken:
        loads('{"é":1,x}'.encode(), PATH)
    assert broken.value.offset == 8
    filler = b'{"\\"":[' + b'"{[",' * 300_000 + b'0],"b":'
    with pytest.raises(CorruptFile) as deep:
        loads(filler + b"[" * 70, PATH)
    assert deep.value.offset == len(filler) + 63


@pytest.mark.parametrize("name", ["00003-a.gz.metadata.json", "v3.metadata.json.gz", "v3.gz.metadata.json"])
def test_both_gzip_spellings_are_written_as_gzip_without_a_time(name: str) -> None:
    data = encoded(a_document(2, 1))
    compressed = encode_metadata_file(data, name)
    assert gzip.decompress(compressed) == data
    assert compressed[4:8] == bytes(4)
    assert decode_metadata_file(compressed, name) == json.loads(data)


def test_zstd_and_plain_metadata_are_read_by_their_first_bytes() -> None:
    data = encoded(a_document(2, 1))
    zstd = encode_metadata_file(data, "v1.zst.metadata.json")
    assert pa.decompress(zstd, len(data), codec="zstd", asbytes=True) == data
    assert encode_metadata_file(data, "v1.metadata.json") == data
    for stored in (data, zstd, gzip.compress(data)):
        assert decode_metadata_file(stored, "v1.metadata.json") == json.loads(data)


def test_bytes_after_the_end_of_compressed_metadata_are_refused() -> None:
    data = encoded(a_document(2, 1))
    for stored in (gzip.compress(data) + b"x", gzip.compress(data) + gzip.compress(b" ")):
        with pytest.raises(CorruptFile, match="follow"):
            decode_metadata_file(stored, PATH)
    with pytest.raises(CorruptFile, match="zstd"):
        decode_metadata_file(encode_metadata_file(data, "v1.zst.metadata.json") + b"garbage", PATH)


def test_integer_properties_are_read_strictly() -> None:
    metadata = parsed(
        a_document(2, properties={"a": "7", "b": "1_000", "c": "7.5", "d": "9" * 5_000, "e": ""})
    )
    assert metadata.property_int("a", 1) == 7
    assert metadata.property_int("absent", 1) == 1
    for name in "bcde":
        with pytest.raises(InvalidMetadata) as caught:
            metadata.property_int(name, 1)
        assert caught.value.offset == f"properties.{name}"


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("yes", False), ("", False)])
def test_boolean_properties_are_read_as_java_reads_them(text: str, *, value: bool) -> None:
    assert parsed(a_document(2, properties={"a": text})).property_bool("a", default=not value) is value
    assert parsed(a_document(2)).property_bool("a", default=value) is value


def test_a_table_made_in_memory_is_written_with_all_the_lists_that_java_writes() -> None:
    read_back = parsed(a_document(2, 1))
    made = TableMetadata(
        format_version=2,
        table_uuid=read_back.table_uuid,
        location=read_back.location,
        last_updated_ms=5,
        last_column_id=1,
        schemas=(Schema(schema_id=0, fields=()),),
        current_schema_id=0,
        partition_specs=(PartitionSpec(spec_id=0, fields=()),),
        default_spec_id=0,
        last_partition_id=999,
    )
    document = written(made)
    assert document["current-snapshot-id"] == -1
    assert document["schemas"] == [{"type": "struct", "schema-id": 0, "fields": []}]
    assert TableMetadataUtil.parse_obj(document).format_version == 2
    for key in ("snapshots", "snapshot-log", "metadata-log", "statistics", "partition-statistics"):
        assert document[key] == []


def test_snapshots_are_found_by_id() -> None:
    metadata = parsed(a_document(2, 1, 2, 3))
    found = metadata.snapshot(2)
    assert isinstance(found, Snapshot)
    assert found.snapshot_id == 2
    assert metadata.snapshot(4) is None


MEASURED = """
import sys, time
from iceberg_cli.iceberg.spec.table_metadata import file as metadata_file
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
with open(sys.argv[1], "rb") as file:
    data = file.read()
started = time.perf_counter()
metadata = TableMetadata.from_json(metadata_file.decode_metadata_file(data, "m"), path="m")
seconds = time.perf_counter() - started
with open("/proc/self/status") as status:
    peak_kb = next(line.split()[1] for line in status if line.startswith("VmHWM"))
print(seconds, int(peak_kb) / 1024)
assert len(metadata.snapshots) == 10_000 and len(metadata.schemas) == 2_000
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_ten_thousand_snapshots_and_two_thousand_schemas_load_within_150_mb(tmp_path: Path) -> None:
    fields = [{"id": i, "name": f"column_{i}", "required": False, "type": "string"} for i in range(160)]
    counts = ["added-data-files", "added-records", "total-records", "total-files-size", "total-data-files"]
    snapshots = [
        a_snapshot(
            1 + i,
            summary={"operation": "append", "spark.app.id": "local-1700000000000"}
            | {name: str(i * (k + 1)) for k, name in enumerate(counts)}
            | {f"extra-{k}": "0" for k in range(6)},
            manifest_list=f"s3://lake/shop/visits/metadata/snap-{zlib.crc32(bytes(i)) ** 2}-1-{'0' * 36}.avro",
        )
        for i in range(10_000)
    ]
    schemas = [{"type": "struct", "schema-id": i, "fields": fields[: 130 + i % 31]} for i in range(2_000)]
    document = a_document(2, 10_000, schemas=schemas, snapshots=snapshots)
    path = tmp_path / "v1.metadata.json"
    path.write_bytes(dumps(document))
    assert path.stat().st_size > 20_000_000
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    seconds, megabytes = map(float, done.stdout.split())
    assert megabytes < 150
    assert seconds < 5, "1.5 s on an idle machine"
