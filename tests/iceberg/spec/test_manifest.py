"""Manifests and manifest lists: reading, checks, inheritance, writing.

Expected values come from the specification, fastavro, pyiceberg and the Java library.
"""

from __future__ import annotations

import io
import json
import urllib.parse
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntryStatus,
)
from pyiceberg.manifest import (
    read_manifest_list as pyiceberg_list,
)

from iceberg_cli.encoding.string_hash import hash_column
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.container import read_container, write_container
from iceberg_cli.iceberg.spec.manifests.manifest import (
    ENTRY_COLUMNS,
    MANIFEST_LIST_SCHEMA,
    ManifestSource,
    manifest_metadata,
    read_entries,
    read_manifest_list,
    read_manifest_lists,
)
from iceberg_cli.iceberg.spec.manifests.schemas import manifest_list_schema, manifest_schema, partition_struct
from iceberg_cli.iceberg.spec.manifests.writer import write_manifest, write_manifest_list
from tests.paths import FIXTURES, needs_fixtures

SYNC = bytes(range(16))
EXISTING, ADDED, DELETED = 0, 1, 2
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "schema-id": 4,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "price", "required": False, "type": "decimal(9, 2)"},
        {"id": 3, "name": "key", "required": False, "type": "uuid"},
        {"id": 4, "name": "at", "required": False, "type": "timestamptz"},
        {"id": 5, "name": "s", "required": False, "type": {"type": "struct", "fields": [
            {"id": 6, "name": "inner", "required": False, "type": "string"}]}},
    ],
}  # fmt: skip
SPEC: dict[str, Any] = {
    "spec-id": 3,
    "fields": [
        {"name": "id_bucket", "transform": "bucket[4]", "source-id": 1, "field-id": 1000},
        {"name": "price", "transform": "identity", "source-id": 2, "field-id": 1001},
        {"name": "key", "transform": "identity", "source-id": 3, "field-id": 1002},
        {"name": "at_day", "transform": "day", "source-id": 4, "field-id": 1003},
        {"name": "inner", "transform": "truncate[4]", "source-id": 6, "field-id": 1004},
    ],
}
UNPARTITIONED: dict[str, Any] = {"spec-id": 0, "fields": []}
SOURCE_FIELDS = (
    "content", "partition_spec_id", "sequence_number", "added_snapshot_id", "first_row_id",
    "added_files_count", "existing_files_count", "deleted_files_count",
)  # fmt: skip


def an_entry(name: str = "a", **others: Any) -> dict[str, Any]:
    return {
        "status": ADDED,
        "file_path": f"s3://bucket/t/data/{name}.parquet",
        "file_format": "PARQUET",
        "record_count": 10,
        "file_size_in_bytes": 1000,
        **others,
    }


def a_manifest(*entries: dict[str, Any], format_version: int = 3, content: int = 0, **others: Any) -> bytes:
    settings = {"schema": SCHEMA, "partition_spec": UNPARTITIONED, "sync": SYNC, **others}
    return write_manifest(entries, format_version=format_version, content=content, **settings)


def a_source(*entries: dict[str, Any], path: str = "m.avro", **others: Any) -> ManifestSource:
    written = {key: others.pop(key) for key in ("format_version",) if key in others}
    data = a_manifest(*entries, content=others.get("content", 0), **written)
    return ManifestSource(path=path, data=data, **{"sequence_number": 5, "added_snapshot_id": 77, **others})


def a_row(path: str = "s3://bucket/t/metadata/m0.avro", **others: Any) -> dict[str, Any]:
    return {
        "manifest_path": path,
        "manifest_length": 6000,
        "partition_spec_id": 0,
        "content": 0,
        "sequence_number": 5,
        "min_sequence_number": 4,
        "added_snapshot_id": 77,
        "added_files_count": 1,
        "existing_files_count": 2,
        "deleted_files_count": 3,
        "added_rows_count": 10,
        "existing_rows_count": 20,
        "deleted_rows_count": 30,
        "partitions": None,
        "key_metadata": None,
        "first_row_id": None,
        **others,
    }


def a_list(*rows: dict[str, Any], format_version: int = 3, codec: str = "deflate") -> bytes:
    return write_manifest_list(
        rows, format_version=format_version, snapshot_id=77, parent_snapshot_id=None, sequence_number=5,
        first_row_id=100, codec=codec, sync=SYNC,
    )  # fmt: skip


def column(source: ManifestSource, name: str, **others: Any) -> list[Any]:
    [batch] = read_entries([source], columns=[name], **others)
    values: list[Any] = batch.table[name].to_pylist()
    return values


def refusal(*sources: ManifestSource, columns: tuple[str, ...] = ("file_path",)) -> str:
    with pytest.raises(CorruptFile) as caught:
        read_entries(sources, columns=columns)
    return str(caught.value)


# -- inheritance -----------------------------------------------------------------------------------------------


def test_an_added_entry_inherits_snapshot_and_both_sequence_numbers() -> None:
    source = a_source(an_entry())
    assert column(source, "snapshot_id") == [77]
    assert column(source, "sequence_number") == [5]
    assert column(source, "file_sequence_number") == [5]


def test_explicit_numbers_are_not_overwritten() -> None:
    source = a_source(an_entry(snapshot_id=3, sequence_number=2, file_sequence_number=4))
    assert column(source, "snapshot_id") == [3]
    assert column(source, "sequence_number") == [2]
    assert column(source, "file_sequence_number") == [4]


@pytest.mark.parametrize("status", [EXISTING, DELETED])
def test_an_entry_that_is_not_added_must_have_its_own_data_sequence_number(status: int) -> None:
    numbers = {"sequence_number": None, "file_sequence_number": 1}
    assert "sequence_number" in refusal(
        a_source(an_entry(status=status, **numbers)), columns=("sequence_number",)
    )


@pytest.mark.parametrize("status", [EXISTING, DELETED])
def test_a_file_sequence_number_that_an_early_writer_left_out_stays_unknown(status: int) -> None:
    source = a_source(an_entry(status=status, sequence_number=1, file_sequence_number=None))
    assert column(source, "file_sequence_number") == [None]


def test_sequence_numbers_of_a_v1_manifest_are_0_whatever_the_status() -> None:
    entries = [an_entry(status=status, snapshot_id=1) for status in (EXISTING, ADDED, DELETED)]
    source = a_source(*entries, format_version=1, sequence_number=0)
    assert column(source, "sequence_number") == [0, 0, 0]
    assert column(source, "file_sequence_number") == [0, 0, 0]
    assert column(source, "content") == [0, 0, 0]


def test_row_ids_follow_the_records_of_earlier_files_that_had_none() -> None:
    """Spec, "First Row ID Inheritance": manifest's first_row_id plus the record counts of files before, also null."""
    numbers = {"sequence_number": 1, "file_sequence_number": 1}
    entries = [
        an_entry(record_count=10),
        an_entry(record_count=5, first_row_id=3),  # explicit: keeps it, and takes no room
        an_entry(record_count=7, status=EXISTING, **numbers),  # unassigned though existing: gets one
        an_entry(record_count=99, status=DELETED, **numbers),  # neither gets nor takes
        an_entry(record_count=50, status=DELETED, first_row_id=8, **numbers),
        an_entry(record_count=1),
    ]
    assert column(a_source(*entries, first_row_id=1000), "first_row_id") == [1000, 3, 1010, None, 8, 1017]


def test_row_ids_start_anew_in_every_manifest_of_a_batch() -> None:
    sources = [
        a_source(an_entry(), an_entry(), first_row_id=0),
        a_source(path="none", first_row_id=500),
        a_source(an_entry(record_count=4), an_entry(), first_row_id=40),
        a_source(an_entry(first_row_id=9), an_entry()),
    ]
    [batch] = read_entries(sources, columns=["first_row_id"])
    assert batch.sources == (0, 1, 2, 3)
    assert batch.table["manifest"].to_pylist() == [0, 0, 2, 2, 3, 3]
    assert batch.table["first_row_id"].to_pylist() == [0, 10, 40, 44, None, None]


def test_row_ids_beyond_64_bits_are_refused() -> None:
    entries = [an_entry(record_count=1 << 62) for _ in range(3)]
    assert "first_row_id" in refusal(a_source(*entries, first_row_id=0), columns=("first_row_id",))


def test_delete_files_have_no_row_ids() -> None:
    entry = an_entry(content=1, file_format="PUFFIN", content_offset=4, content_size_in_bytes=42)
    assert column(a_source(entry, content=1, first_row_id=0), "first_row_id") == [None]


@needs_fixtures
@pytest.mark.parametrize(
    "case",
    [
        "16-iceberg-v3-java-row-lineage",
        "18-iceberg-v2-upgraded-v3-posdeletes",
        "20-iceberg-v3-java-many-puffins",
    ],
)
def test_row_ids_of_the_current_data_files_are_what_java_reads(case: str) -> None:
    expected = json.loads((FIXTURES / "EXPECTED.json").read_text())[case]
    table = next(p for p in (FIXTURES / case).iterdir() if p.is_dir())
    metadata = json.loads((table / expected["metadata_file"]).read_text())
    current = next(s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"])
    rows = read_manifest_list(
        _local(table, expected["prefix"], current["manifest-list"]).read_bytes(), "list", format_version=3
    )
    sources = [s for s in _sources(table, expected["prefix"], rows) if s.content == 0]
    found = {}
    for batch in read_entries(sources, columns=["file_path", "first_row_id", "record_count"], live_only=True):
        for row in batch.table.to_pylist():
            found[row["file_path"].removeprefix(expected["prefix"] + "/")] = (
                row["first_row_id"],
                row["record_count"],
            )
    assert found == {f["file"]: (f["first_row_id"], f["records"]) for f in expected["current_data_files"]}


# -- checks ----------------------------------------------------------------------------------------------------


def test_a_manifest_of_another_length_than_listed_is_refused() -> None:
    data = a_manifest(an_entry())
    source = ManifestSource(path="m.avro", data=data, length=len(data) + 1)
    assert f"{len(data)} bytes, its manifest list says {len(data) + 1}" in refusal(source)


@pytest.mark.parametrize("name", ["added", "existing", "deleted"])
def test_counts_that_differ_from_the_manifest_list_are_refused(name: str) -> None:
    assert f"{name} entries" in refusal(a_source(an_entry(), **{f"{name}_files_count": 7}))


def test_counts_that_agree_or_are_unknown_are_accepted() -> None:
    numbers = {"sequence_number": 1, "file_sequence_number": 1}
    entries = [an_entry(), an_entry(status=EXISTING, **numbers), an_entry(status=DELETED, **numbers)]
    source = a_source(*entries, added_files_count=1, existing_files_count=1, deleted_files_count=1)
    assert column(source, "status") == [ADDED, EXISTING, DELETED]
    assert column(source, "status", live_only=True) == [ADDED, EXISTING]


@pytest.mark.parametrize(
    "change", [{"status": 3}, {"status": -1}, {"content": 1}, {"content": 3}, {"record_count": -1}]
)
def test_entries_outside_their_range_are_refused(change: dict[str, int]) -> None:
    assert f"field {next(iter(change))}" in refusal(a_source(an_entry("good"), an_entry("bad", **change)))


def test_a_data_file_in_a_manifest_of_deletes_is_refused() -> None:
    assert "field content" in refusal(a_source(an_entry(content=0), content=1))


def test_a_manifest_that_says_other_content_than_its_list_is_refused() -> None:
    source = ManifestSource(path="m.avro", data=a_manifest(an_entry(content=1), content=1), content=0)
    assert "content" in refusal(source)


def test_the_manifest_that_is_wrong_is_named_among_many() -> None:
    good = [a_source(an_entry(), path=f"good-{n}") for n in range(50)]
    assert "bad.avro" in refusal(*good, a_source(an_entry(record_count=-5), path="bad.avro"), *good)


def test_a_schema_without_a_required_field_is_refused() -> None:
    schema = {
        "type": "record",
        "name": "manifest_entry",
        "fields": [{"name": "status", "type": "int", "field-id": 0}],
    }
    data = write_container(json.dumps(schema), {}, [(1, b"\x02")], codec="null", sync=SYNC)
    assert "required, but not in the schema" in refusal(ManifestSource(path="m", data=data))


def test_unknown_columns_are_a_callers_mistake() -> None:
    with pytest.raises(ValueError, match="nope"):
        read_entries([], columns=["nope"])


# -- columns ---------------------------------------------------------------------------------------------------


def test_hashes_of_paths_equal_the_hashes_of_the_path_column() -> None:
    source = a_source(*[an_entry("x" * n) for n in range(200)])
    [both] = read_entries([source], columns=["file_path", "file_path_hash"])
    assert both.table["file_path_hash"].to_pylist() == hash_column(both.table["file_path"]).tolist()
    [alone] = read_entries([source], columns=["file_path_hash"])
    assert alone.table["file_path_hash"].to_pylist() == hash_column(both.table["file_path"]).tolist()


@pytest.mark.pairs
@pytest.mark.parametrize("format_version", [1, 2, 3])
@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_entries_read_back_as_they_were_written(format_version: int, codec: str) -> None:
    entries = [
        an_entry(
            f"f{n}", snapshot_id=n, record_count=n, column_sizes={1: 5, 2: 300}, value_counts={1: n},
            null_value_counts=None, nan_value_counts={}, lower_bounds={1: b"", 6: b"abc"}, upper_bounds={1: b"\xff"},
            key_metadata=b"k" if n % 2 else None, split_offsets=[4, 1 << 40], sort_order_id=0,
            partition={"id_bucket": n % 4, "price": (-n).to_bytes(4, "big", signed=True), "key": bytes([n % 256] * 16),
                       "at_day": 19_000 + n, "inner": None if n % 3 else "abcd"},
        )
        for n in range(500)
    ]  # fmt: skip
    data = a_manifest(
        *entries, format_version=format_version, codec=codec, partition_spec=SPEC, block_bytes=4_000
    )
    source = ManifestSource(path="m", data=data, length=len(data), added_files_count=500)
    for executor in ("lockstep", "narrow"):
        [batch] = read_entries([source], columns=ENTRY_COLUMNS, executor=executor)
        batch.table.validate(full=True)
        for row, entry in zip(batch.table.to_pylist(), entries, strict=True):
            expected = {
                k: list(v.items()) if isinstance(v, dict) and k != "partition" else v
                for k, v in entry.items()
            }
            assert {name: row[name] for name in expected} == expected


def test_schemas_of_different_specs_come_in_separate_batches() -> None:
    plain, partitioned = (
        a_manifest(an_entry()),
        a_manifest(an_entry(partition={"at_day": 3}), partition_spec=SPEC),
    )
    sources = [ManifestSource(path=str(n), data=data) for n, data in enumerate((plain, partitioned, plain))]
    batches = read_entries(sources, columns=["partition"])
    assert [batch.sources for batch in batches] == [(0, 2), (1,)]
    assert batches[1].table["partition"].to_pylist()[0]["at_day"] == 3
    assert [f.name for f in batches[1].table.schema.field("partition").type] == [
        f["name"] for f in SPEC["fields"]
    ]


@needs_fixtures
def test_entries_of_every_fixture_table_pass_every_check_and_read_as_fastavro_reads_them() -> None:
    read = 0
    for file in _lists():
        table, prefix = file.parents[1], None
        rows = read_manifest_list(file.read_bytes(), str(file), format_version=3)
        for source in _sources(table, prefix, rows):
            expected = list(fastavro.reader(io.BytesIO(source.data)))
            [batch] = read_entries([source], columns=ENTRY_COLUMNS)
            found = batch.table.to_pylist()
            assert len(found) == len(expected)
            for row, record in zip(found, expected, strict=True):
                for name in ENTRY_COLUMNS:
                    written = record.get(name) if name in record else record["data_file"].get(name)
                    if written is None or name == "partition":
                        continue
                    if isinstance(written, list) and written and isinstance(written[0], dict):
                        written = [(pair["key"], pair["value"]) for pair in written]
                    assert row[name] == written, (file, name)
            read += 1
    assert read > 200


@needs_fixtures
def test_inherited_numbers_of_java_tables_are_what_pyiceberg_reads() -> None:
    """On v2: pyiceberg reads no v3 manifests. Its inheritance is its own code."""
    folder = FIXTURES / "17-iceberg-v2-java-branches-tags-retention" / "events"
    compared = 0
    for file in sorted((folder / "metadata").glob("snap-*.avro")):
        rows = read_manifest_list(file.read_bytes(), str(file), format_version=2)
        theirs = list(pyiceberg_list(PyArrowFileIO().new_input(str(file))))
        assert [m.manifest_path for m in theirs] == rows["manifest_path"].to_pylist()
        for manifest, source in zip(theirs, _sources(folder, None, rows), strict=True):
            manifest[0] = source.path
            [batch] = read_entries(
                [source], columns=["status", "snapshot_id", "sequence_number", "file_path"]
            )
            expected = [
                (int(e.status), e.snapshot_id, e.sequence_number, e.data_file.file_path)
                for e in manifest.fetch_manifest_entry(PyArrowFileIO(), discard_deleted=False)
            ]
            found = batch.table.drop_columns(["manifest"]).to_pylist()
            assert [tuple(row.values()) for row in found] == expected
            compared += len(expected)
    assert compared > 50


# -- manifest lists --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_version", [2, 3])
def test_a_manifest_list_reads_back_as_it_was_written(format_version: int) -> None:
    summary = {"contains_null": True, "contains_nan": None, "lower_bound": b"\x01", "upper_bound": None}
    rows = [
        a_row("s3://b/m0", partitions=[summary, {**summary, "contains_nan": False}], key_metadata=b"k"),
        a_row("s3://b/m1", content=1, partitions=[]),
        a_row("s3://b/m2", first_row_id=9 if format_version == 3 else None, added_snapshot_id=-3),
    ]
    table = read_manifest_list(a_list(*rows, format_version=format_version), "l", format_version=3)
    assert table.schema.equals(MANIFEST_LIST_SCHEMA)
    assert table.to_pylist() == rows


def test_a_v1_list_has_no_content_and_sequence_number_0_and_may_lack_counts() -> None:
    row = a_row(added_files_count=None, added_rows_count=None)
    [found] = read_manifest_list(a_list(row, format_version=1), "l", format_version=2).to_pylist()
    assert (found["content"], found["sequence_number"], found["min_sequence_number"]) == (0, 0, 0)
    assert (found["added_files_count"], found["existing_files_count"], found["added_rows_count"]) == (
        None,
        2,
        None,
    )


def test_many_lists_are_read_at_once_in_order_also_of_different_versions() -> None:
    lists = [
        a_list(
            *[a_row(f"{n}-{i}") for i in range(n % 4)],
            format_version=1 + n % 3,
            codec=("null", "deflate")[n % 2],
        )
        for n in range(40)
    ]
    table = read_manifest_lists([(str(n), data) for n, data in enumerate(lists)], format_version=3)
    expected = [(n, f"{n}-{i}") for n in range(40) for i in range(n % 4)]
    assert list(zip(table["list"].to_pylist(), table["manifest_path"].to_pylist(), strict=True)) == expected
    assert read_manifest_lists([], format_version=3).schema.equals(table.schema)


@pytest.mark.parametrize(
    "name",
    [
        "manifest_length",
        "partition_spec_id",
        "sequence_number",
        "added_files_count",
        "deleted_rows_count",
        "first_row_id",
    ],
)
def test_negative_lengths_counts_and_ids_are_refused(name: str) -> None:
    with pytest.raises(CorruptFile, match=f"field {name}"):
        read_manifest_list(a_list(a_row(), a_row(**{name: -1})), "l", format_version=3)


def test_content_other_than_data_or_deletes_is_refused() -> None:
    with pytest.raises(CorruptFile, match="field content"):
        read_manifest_list(a_list(a_row(content=2)), "l", format_version=3)


@pytest.mark.parametrize("field_id", [500, 501, 502, 503, 504, 505, 506, 512, 513, 514, 515, 516, 517])
def test_a_v2_list_without_a_required_field_is_refused_by_its_name(field_id: int) -> None:
    schema = json.loads(manifest_list_schema(2))
    gone = next(f for f in schema["fields"] if f["field-id"] == field_id)
    schema["fields"].remove(gone)
    block = io.BytesIO()
    fastavro.schemaless_writer(block, schema, a_row())
    data = write_container(
        json.dumps(schema), {"format-version": b"2"}, [(1, block.getvalue())], codec="null", sync=SYNC
    )
    with pytest.raises(CorruptFile, match=f"field {gone['name']}"):
        read_manifest_list(data, "l", format_version=2)


def test_fields_are_found_by_id_whatever_their_names_order_and_integer_width() -> None:
    schema = json.loads(manifest_list_schema(3))
    schema["fields"].reverse()
    row = a_row(
        partitions=[{"contains_null": True, "contains_nan": None, "lower_bound": b"l", "upper_bound": b"u"}]
    )
    renamed = {}
    for field in schema["fields"]:
        renamed[f"x_{field['name']}"] = row[field["name"]]
        field["name"] = f"x_{field['name']}"
        field["type"] = {"int": "long", "long": "long"}.get(str(field["type"]), field["type"])
        if field["field-id"] == 507:
            field["type"][1]["items"]["fields"].reverse()
    out = io.BytesIO()
    fastavro.writer(out, schema, [renamed])
    assert read_manifest_list(out.getvalue(), "l", format_version=3).to_pylist() == [row]


@needs_fixtures
def test_every_manifest_list_of_other_writers_reads_as_fastavro_reads_it() -> None:
    lists = [
        *_lists(),
        *sorted((FIXTURES / "02-iceberg-rust-metadata-json" / "manifests_lists").glob("*.avro")),
    ]
    assert len(lists) == 76
    for file in lists:
        data = file.read_bytes()
        reader = fastavro.reader(io.BytesIO(data))
        names = {f["field-id"]: f["name"] for f in json.loads(reader.metadata["avro.schema"])["fields"]}
        spec = {f["field-id"]: f["name"] for f in json.loads(manifest_list_schema(3))["fields"]}
        found = read_manifest_list(data, str(file), format_version=3).to_pylist()
        for row, record in zip(found, list(reader), strict=True):
            for field_id, name in spec.items():
                default = 0 if field_id in {515, 516, 517} else None
                assert row[name] == (record[names[field_id]] if field_id in names else default), (file, name)


# -- writing ---------------------------------------------------------------------------------------------------


@needs_fixtures
def test_schemas_are_byte_for_byte_those_of_the_java_library() -> None:
    compared = 0
    for file in sorted(FIXTURES.glob("*/**/metadata/*.avro")):
        container = read_container(file.read_bytes(), str(file))
        if not file.is_relative_to(FIXTURES / "03-iceberg-v3-deletion-vectors") and "java" not in str(file):
            continue
        version = int(container.metadata["format-version"])
        if container.schema["name"] == "manifest_file":
            ours = manifest_list_schema(version)
        else:
            header = manifest_metadata(container)
            assert header.schema is not None
            assert header.partition_spec is not None
            struct = partition_struct(json.loads(header.schema), json.loads(header.partition_spec))
            ours = manifest_schema(version, struct)
        assert ours.encode() == container.schema_text, file
        compared += 1
    assert compared > 100


@pytest.mark.parametrize("format_version", [1, 2])
def test_pyiceberg_reads_what_is_written(format_version: int, tmp_path: Path) -> None:
    entries = [an_entry("a", column_sizes={1: 5}, lower_bounds={1: b"abcd"}), an_entry("b", record_count=3)]
    data = a_manifest(*entries, format_version=format_version, snapshot_id=77)
    manifest = tmp_path / "m.avro"
    manifest.write_bytes(data)
    file = tmp_path / "snap.avro"
    file.write_bytes(
        a_list(
            a_row(str(manifest), manifest_length=len(data), added_files_count=2),
            format_version=format_version,
        )
    )
    [row] = list(pyiceberg_list(PyArrowFileIO().new_input(str(file))))
    assert (row.manifest_length, row.added_files_count, row.content) == (len(data), 2, ManifestContent.DATA)
    found = row.fetch_manifest_entry(PyArrowFileIO())
    assert [e.status for e in found] == [ManifestEntryStatus.ADDED] * 2
    assert [e.data_file.file_path for e in found] == [entry["file_path"] for entry in entries]
    assert found[0].data_file.lower_bounds == {1: b"abcd"}
    assert [e.data_file.record_count for e in found] == [10, 3]


def test_the_header_of_a_manifest_says_what_the_specification_requires() -> None:
    data = a_manifest(an_entry(content=1), format_version=2, content=1, partition_spec=SPEC)
    header = manifest_metadata(read_container(data, "m"))
    assert json.loads(header.schema or "") == SCHEMA
    assert json.loads(header.partition_spec or "") == SPEC["fields"]
    assert (header.schema_id, header.partition_spec_id, header.format_version, header.content) == (4, 3, 2, 1)
    listed = read_container(a_list(a_row()), "l").metadata
    assert listed == {
        "snapshot-id": b"77", "parent-snapshot-id": b"null", "sequence-number": b"5", "first-row-id": b"100",
        "format-version": b"3",
    }  # fmt: skip


def test_a_partition_source_that_is_not_in_the_schema_cannot_be_written() -> None:
    spec = {
        "spec-id": 1,
        "fields": [{"name": "x", "transform": "identity", "source-id": 99, "field-id": 1000}],
    }
    with pytest.raises(ValueError, match="99"):
        a_manifest(partition_spec=spec)


@pytest.mark.parametrize("wrong", [{"record_count": "many"}, {"record_count": None}, {"file_path": None}])
def test_a_value_that_does_not_fit_its_field_cannot_be_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        a_manifest(an_entry(**wrong))


def test_format_version_4_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="version 4"):
        a_manifest(format_version=4)


def _lists() -> list[Path]:
    return sorted(FIXTURES.glob("*/**/metadata/snap-*.avro"))


def _local(table: Path, prefix: str | None, path: str) -> Path:
    return table / path.removeprefix(f"{prefix}/") if prefix else table / "metadata" / Path(path).name


def _sources(table: Path, prefix: str | None, rows: pa.Table) -> list[ManifestSource]:
    return [
        ManifestSource(
            path=str(path := _local(table, prefix, urllib.parse.unquote(row["manifest_path"]))),
            data=path.read_bytes(), length=row["manifest_length"], **{name: row[name] for name in SOURCE_FIELDS},
        )
        for row in rows.to_pylist()
    ]  # fmt: skip


def test_integers_stay_integers() -> None:
    [batch] = read_entries([a_source(an_entry(), first_row_id=0)], columns=ENTRY_COLUMNS)
    assert batch.table.schema.field("first_row_id").type == pa.int64()
    assert batch.table["record_count"].to_numpy().dtype == np.int64
