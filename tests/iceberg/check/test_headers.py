"""What a manifest's header says of schema and spec, and what of it contradicts a table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iceberg_cli.iceberg.check.headers import schema_contradiction, spec_contradiction
from iceberg_cli.iceberg.spec.manifests.manifest import ManifestMetadata
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from tests.builders import a_snapshot, a_table_document
from tests.manifest_tables import columns, spec

OLD = columns("int", "timestamptz", "decimal(5,2)")
NEW = {**columns("long", "timestamptz", "decimal(9,2)", "double"), "schema-id": 1}
BY_ONE = spec(1)


def table() -> TableMetadata:
    """A table whose columns were promoted, and one added, in its second schema."""
    document = a_table_document(a_snapshot(1)) | {
        "schemas": [OLD, NEW], "current-schema-id": 1, "last-column-id": 4, "partition-specs": [BY_ONE],
    }  # fmt: skip
    return TableMetadata.from_json(document, path="v1.metadata.json")


def header(**values: Any) -> ManifestMetadata:
    keys = dict.fromkeys(("schema", "schema_id", "partition_spec", "partition_spec_id", "format_version"))
    return ManifestMetadata(**{**keys, "content": 0, **values})


def without_first(schema: dict[str, Any], schema_id: int) -> dict[str, Any]:
    return {**schema, "schema-id": schema_id, "fields": schema["fields"][1:]}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (None, ""),
        (OLD, ""),
        (NEW, ""),
        ({**OLD, "schema-id": 7}, ""),  # one that the table has forgotten
        ({**columns("int", "timestamptz", "decimal(4,2)"), "schema-id": 7}, ""),  # before a promotion
        ({**columns("int", "timestamptz", "decimal(5,2)", "float"), "schema-id": 7}, ""),
        (without_first(OLD, 7), ""),
        (without_first(OLD, 0), "lacks columns 1 of"),
        (columns("int", "timestamp", "decimal(5,2)"), "column 2 as timestamp, and the table has it as timestamptz"),
        ({**columns("string"), "schema-id": 7}, "column 1 as string"),
        ([], "is none"),
        ({"type": "struct"}, "is none"),
    ],
)  # fmt: skip
def test_schemas(schema: Any, reason: str) -> None:
    text = None if schema is None else json.dumps(schema)
    found = schema_contradiction(header(schema=text), table())
    assert reason in found
    assert bool(found) == bool(reason)


def test_a_schema_with_another_id_than_the_header_has() -> None:
    found = schema_contradiction(header(schema=json.dumps(OLD), schema_id=1), table())
    assert found == "its schema has id 0, and its schema-id is 1"


FIELDS = BY_ONE["fields"]


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (None, ""),
        (FIELDS, ""),
        ([{**FIELDS[0], "name": "renamed"}], ""),
        ([{key: FIELDS[0][key] for key in ("name", "transform", "source-id")}], ""),  # version 1 has no ids
        (BY_ONE, "a whole spec"),
        ([], "has 0 fields"),
        ([{**FIELDS[0], "transform": "bucket[8]"}], "transform 'bucket[8]'"),
        ([{**FIELDS[0], "source-id": 2}], "source-id 2"),
        ([{**FIELDS[0], "field-id": 1009}], "field-id 1009"),
        (5, "is no array"),
    ],
)
def test_specs(written: Any, reason: str) -> None:
    text = None if written is None else json.dumps(written)
    found = spec_contradiction(header(partition_spec=text), table().partition_spec(0))
    assert reason in found
    assert bool(found) == bool(reason)
