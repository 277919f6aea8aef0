"""Manifests into which row ids are taken over: nothing else of an entry changes, whatever its partition's types."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from iceberg_cli.iceberg.spec.manifests.manifest import MANIFEST_LIST_SCHEMA
from iceberg_cli.iceberg.spec.manifests.writer import manifest_header, write_manifest
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.verbs.assign_row_ids.share import ManifestRewrite, share
from iceberg_cli.plan.plan import StagedFile
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import World
from tests.builders import LOCATION, a_snapshot, a_table_document

VALUES: dict[str, tuple[str, Any]] = {
    "when": ("date", date(2020, 1, 2)),
    "at": ("timestamp", datetime(2020, 1, 2, 3, 4, 5, 6)),  # noqa: DTZ001 - a timestamp without zone
    "zoned": ("timestamptz", datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
    "nanos": ("timestamp_ns", 1_577_934_245_000_000_007),
    "clock": ("time", time(1, 2, 3, 4)),
    "price": ("decimal(20,3)", Decimal("-12345678901234.567")),
    "small": ("decimal(5,2)", Decimal("1.25")),
    "key": ("uuid", bytes(range(16))),
    "raw": ("binary", b"\x00\xff"),
    "code": ("fixed[4]", b"abcd"),
    "flag": ("boolean", True),
    "float": ("float", 1.5),
    "double": ("double", 2.5),
    "a column": ("string", "x"),
    "number": ("long", 5),
}
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "schema-id": 3,
    "fields": [
        {"id": number, "name": name, "required": False, "type": type_}
        for number, (name, (type_, _)) in enumerate(VALUES.items(), start=1)
    ],
}
SPEC: dict[str, Any] = {
    "spec-id": 2,
    "fields": [
        {"name": name, "transform": "identity", "source-id": number, "field-id": 999 + number}
        for number, name in enumerate(VALUES, start=1)
    ],
}
OLD, NEW = f"{LOCATION}/metadata/old.avro", f"{LOCATION}/metadata/new.avro"


def an_entry(path: str, partition: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {
        "status": 1,
        "content": 0,
        "file_path": path,
        "file_format": "PARQUET",
        "partition": partition,
        "record_count": 4,
        "file_size_in_bytes": 9,
        "column_sizes": {1: 5, 2: 6},
        "lower_bounds": {1: b"a"},
        "split_offsets": [4, 8],
        "sort_order_id": 1,
        **others,
    }


def the_table(spec: dict[str, Any]) -> TableMetadata:
    """A table with the schema and the spec."""
    document = a_table_document(a_snapshot(1)) | {
        "schemas": [SCHEMA], "current-schema-id": 3, "last-column-id": 99, "partition-specs": [spec],
        "default-spec-id": 2, "last-partition-id": 1999,
    }  # fmt: skip
    return TableMetadata.from_json(document, path="v1.metadata.json")


def shared(data: bytes, *, files: int, spec: dict[str, Any] | None = None) -> tuple[Process, StagedFile]:
    """Take the row ids of the file `a` over into a manifest."""
    row = {
        "manifest_path": OLD, "manifest_length": len(data), "partition_spec_id": 2, "content": 0,
        "sequence_number": 5, "min_sequence_number": 5, "added_snapshot_id": 77, "added_files_count": files,
        "existing_files_count": 0, "deleted_files_count": 0, "added_rows_count": 4 * files, "existing_rows_count": 0,
        "deleted_rows_count": 0,
    }  # fmt: skip
    ids = pa.table(
        {
            "file_path": ["a"],
            "record_count": pa.array([4], pa.int64()),
            "first_row_id": pa.array([30], pa.int64()),
        }
    )
    process = Process(world=World(files={OLD: data}, pointer=OLD))
    sharing = ManifestRewrite(
        row=pa.Table.from_pylist([row], schema=MANIFEST_LIST_SCHEMA),
        ids=ids,
        metadata=the_table(spec or SPEC),
    )

    return process, share(process.table, sharing, NEW)


def test_only_status_numbers_and_row_ids_differ() -> None:
    data = write_manifest(
        [an_entry("a", {name: value for name, (_, value) in VALUES.items()}), an_entry("b", {})],
        schema=SCHEMA,
        partition_spec=SPEC,
        format_version=2,
        content=0,
        sync=bytes(16),
    )
    process, staged = shared(data, files=2)

    before: list[Any] = list(fastavro.reader(io.BytesIO(data)))
    reader = fastavro.reader(io.BytesIO(process.world.files[NEW]))
    after: list[Any] = list(reader)
    assert [record["data_file"].pop("first_row_id") for record in after] == [30, None]
    for old, new in zip(before, after, strict=True):
        assert {name: new["data_file"][name] for name in old["data_file"]} == old["data_file"]
        assert (new["status"], new["snapshot_id"], new["sequence_number"], new["file_sequence_number"]) == (
            0,
            77,
            5,
            5,
        )
    assert (reader.metadata["schema-id"], reader.metadata["partition-spec-id"]) == ("3", "2")
    assert staged.row["all_rows_have_ids"] is False
    assert (staged.row["existing_files_count"], staged.row["existing_rows_count"]) == (2, 8)
    assert (staged.row["min_sequence_number"], staged.row["manifest_length"]) == (
        5,
        len(process.world.files[NEW]),
    )


def test_partition_values_are_found_by_field_id_whatever_their_order_in_the_file() -> None:
    spec = {
        "spec-id": 2,
        "fields": [SPEC["fields"][list(VALUES).index(name)] for name in ("a column", "raw")],
    }
    others = {"schema": SCHEMA, "format_version": 2, "content": 0}
    _, metadata = manifest_header(partition_spec=spec, **others)
    text, _ = manifest_header(partition_spec={**spec, "fields": spec["fields"][::-1]}, **others)
    data = rewritten([an_entry("a", {"raw": b"r", "a_x20column": "c"})], text, metadata)

    process, _ = shared(data, files=1, spec=spec)

    (record,) = fastavro.reader(io.BytesIO(process.world.files[NEW]))
    assert record["data_file"]["partition"] == {"a_x20column": "c", "raw": b"r"}  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"schema": {**SCHEMA, "fields": SCHEMA["fields"][:1]}}, id="a schema of fewer columns"),
        pytest.param(
            {"schema": {**SCHEMA, "fields": [{**each, "type": "string"} for each in SCHEMA["fields"]]}},
            id="a schema of other types",
        ),
        pytest.param({"schema": "not a schema"}, id="no schema"),
        pytest.param({"schema-id": 8}, id="another schema's id"),
        pytest.param({"partition-spec": SPEC}, id="the whole spec"),
        pytest.param({"partition-spec": SPEC["fields"][:1]}, id="fewer partition fields"),
        pytest.param({"partition-spec": None}, id="no partition fields"),
    ],
)
def test_the_header_is_made_of_the_table_whatever_the_old_one_says(wrong: dict[str, Any]) -> None:
    parts = {"schema": SCHEMA, "partition_spec": SPEC, "format_version": 2, "content": 0}
    text, metadata = manifest_header(**parts)  # type: ignore[arg-type]
    metadata |= {key: json.dumps(value).encode() for key, value in wrong.items()}
    data = rewritten([an_entry("a", {avro_name(name): None for name in VALUES})], text, metadata)

    process, _ = shared(data, files=1)

    header = fastavro.reader(io.BytesIO(process.world.files[NEW])).metadata
    assert json.loads(header["schema"]) == SCHEMA
    assert json.loads(header["partition-spec"]) == SPEC["fields"]
    assert (header["schema-id"], header["partition-spec-id"]) == ("3", "2")
    assert (header["format-version"], header["content"]) == ("3", "data")


def avro_name(name: str) -> str:
    return name.replace(" ", "_x20")


def rewritten(entries: list[dict[str, Any]], text: str, metadata: dict[str, bytes]) -> bytes:
    """A manifest of these entries, with a header that does not go with its schema."""
    head = dict.fromkeys(("snapshot_id", "sequence_number", "file_sequence_number"))
    maps = {
        name: [{"key": key, "value": value} for key, value in entries[0][name].items()]
        for name in ("column_sizes", "lower_bounds")
    }
    out = io.BytesIO()
    records = [{"status": 1, **head, "data_file": {**entry, **maps}} for entry in entries]
    strings = {key: value.decode() for key, value in metadata.items()}
    fastavro.writer(out, fastavro.parse_schema(json.loads(text)), records, metadata=strings)
    return out.getvalue()
