"""Where older texts of the table specification differ from version 3 about table metadata, and what is done.

Texts: "v0.11" (the specification of release 0.11) and "early v2" (the draft with tentative v2 requirements).
Files written by either must stay readable, unless they contradict what is now required of their format
version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from iceberg_cli.errors import InvalidMetadata
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from tests.metadata_documents import a_document, a_snapshot, parsed, without, written

BOTH = "v0.11 and early v2"
FIELDS = "Table Metadata Fields"


class Difference(NamedTuple):
    """One row: what an older text says and what reading a file of it must give."""

    text: str
    section: str
    field: str
    done: str  # what this package does
    document: dict[str, Any]
    found: Callable[[TableMetadata], Any]
    expected: Any


class Contradiction(NamedTuple):
    """One row: what an older text allows and the later one forbids; the file is refused by this field."""

    text: str
    section: str
    field: str
    document: dict[str, Any]


COLUMN = {"id": 1, "name": "n", "required": False, "type": "long"}
PARTITION = {"name": "n", "transform": "identity", "source-id": 1}

DIFFERENCES = [
    Difference(
        "v0.11",
        FIELDS,
        "schemas, current-schema-id",
        "unknown to the text: `schema` is the only schema, id 0",
        without(a_document(1, schema={"type": "struct", "fields": [COLUMN]}), "schemas", "current-schema-id"),
        lambda table: (table.current_schema_id, [schema.schema_id for schema in table.schemas]),
        (0, [0]),
    ),
    Difference(
        "v0.11",
        FIELDS,
        "last-partition-id",
        "unknown to the text: the highest partition field id in use",
        without(
            a_document(1, partition_specs=[{"spec-id": 0, "fields": [PARTITION | {"field-id": 1003}]}]),
            "last-partition-id",
        ),
        lambda table: table.last_partition_id,
        1003,
    ),
    Difference(
        "v0.11",
        FIELDS,
        "metadata-log",
        "unknown to the text: empty",
        without(a_document(1, 1), "metadata-log"),
        lambda table: table.metadata_log,
        (),
    ),
    Difference(
        "v0.11",
        "Snapshots",
        "schema-id",
        "unknown to the text: none",
        a_document(1, 1, snapshots=[without(a_snapshot(1), "schema-id", "sequence-number")]),
        lambda table: table.snapshots[0].schema_id,
        None,
    ),
    Difference(
        "v0.11",
        "Schemas and Data Types",
        "identifier-field-ids",
        "unknown to the text: empty",
        a_document(1),
        lambda table: table.current_schema().identifier_field_ids,
        (),
    ),
    Difference(
        BOTH,
        FIELDS,
        "refs",
        "unknown to the texts: main is the current snapshot",
        without(a_document(2, 1, 2), "refs"),
        lambda table: {name: (ref.type, ref.snapshot_id) for name, ref in table.refs.items()},
        {"main": ("branch", 2)},
    ),
    Difference(
        BOTH,
        FIELDS,
        "statistics, partition-statistics, encryption-keys",
        "unknown to the texts: empty",
        without(a_document(2, 1), "statistics", "partition-statistics"),
        lambda table: (table.statistics, table.partition_statistics, table.encryption_keys),
        ((), (), ()),
    ),
    Difference(
        BOTH,
        FIELDS,
        "next-row-id; snapshots' first-row-id, added-rows, key-id",
        "unknown to the texts and no part of v1 and v2: no row has an id",
        a_document(2, 1),
        lambda table: (table.next_row_id, table.snapshots[0].first_row_id, table.snapshots[0].added_rows),
        (0, None, None),
    ),
    Difference(
        BOTH,
        FIELDS,
        "format-version",
        '"Currently, this is always 1": 2 and 3 are read as well, 4 is refused',
        a_document(2),
        lambda table: table.format_version,
        2,
    ),
    Difference(
        BOTH,
        FIELDS,
        "current-snapshot-id",
        "the texts say `long` and do not say what an empty table has: absent, null and -1 are the same",
        a_document(2, current_snapshot_id=-1),
        lambda table: table.current_snapshot_id,
        None,
    ),
    Difference(
        BOTH,
        "Snapshots",
        "summary.operation",
        "not required by the texts (version 3: required field): a summary without it is read",
        a_document(2, 1, snapshots=[a_snapshot(1, summary={"added-records": "4"})]),
        lambda table: (table.snapshots[0].operation, table.snapshots[0].summary),
        (None, {"added-records": "4"}),
    ),
    Difference(
        BOTH,
        "Snapshots",
        "summary, manifest-list (v1)",
        "optional in v1: a snapshot may have `manifests` alone",
        a_document(
            1,
            1,
            snapshots=[
                without(a_snapshot(1, manifests=["m.avro"]), "manifest-list", "summary", "sequence-number")
            ],
        ),
        lambda table: (table.snapshots[0].manifest_list, table.snapshots[0].manifests),
        (None, ("m.avro",)),
    ),
    Difference(
        BOTH,
        "Snapshots",
        "manifests",
        '"Must be omitted if manifest-list is present": kept where a writer wrote both, the list counts',
        a_document(1, 1, snapshots=[without(a_snapshot(1, manifests=["m.avro"]), "sequence-number")]),
        lambda table: (table.snapshots[0].manifest_list, table.snapshots[0].manifests),
        (a_snapshot(1)["manifest-list"], ("m.avro",)),
    ),
    Difference(
        BOTH,
        "Appendix C, Partition Specs",
        "field-id",
        "v1 writers did not track it: sequential from 1000 in each spec",
        a_document(1, partition_specs=[{"spec-id": 0, "fields": [PARTITION, PARTITION | {"name": "m"}]}]),
        lambda table: [field.field_id for field in table.default_spec().fields],
        [1000, 1001],
    ),
    Difference(
        BOTH,
        "Appendix C, Partition Specs and Sort Orders",
        "source-ids",
        "unknown to the texts: one `source-id`",
        a_document(
            2,
            partition_specs=[{"spec-id": 0, "fields": [PARTITION | {"field-id": 1000}]}],
            sort_orders=[
                {
                    "order-id": 0,
                    "fields": [
                        {
                            "transform": "identity",
                            "source-id": 1,
                            "direction": "asc",
                            "null-order": "nulls-first",
                        }
                    ],
                }
            ],
        ),
        lambda table: (table.default_spec().fields[0].source_ids, table.sort_orders[0].fields[0].source_ids),
        ((1,), (1,)),
    ),
    Difference(
        BOTH,
        "Partition Transforms",
        "void",
        "not in the texts' tables: kept as every transform, known or not",
        a_document(
            2,
            partition_specs=[{"spec-id": 0, "fields": [PARTITION | {"field-id": 1000, "transform": "void"}]}],
        ),
        lambda table: table.default_spec().fields[0].transform,
        "void",
    ),
    Difference(
        BOTH,
        "Primitive Types; Default values",
        "timestamp_ns, timestamptz_ns, unknown, variant, geometry, geography; initial-default, write-default",
        "not in the texts: a file of theirs has no defaults and only the older types",
        a_document(2),
        lambda table: (
            table.current_schema().unknown_types(),
            table.current_schema().fields[0].initial_default,
            table.current_schema().fields[0].write_default,
        ),
        ((), None, None),
    ),
    Difference(
        "version 3",
        "Encryption Keys, Appendix C",
        "encrypted-key-metadata",
        "the example of Appendix C says `key-metadata`: such a key is read and kept",
        a_document(3, 1, encryption_keys=[{"key-id": "5f819b", "key-metadata": "aWNlYmVyZwo="}]),
        lambda table: (table.encryption_keys[0].encrypted_key_metadata, table.encryption_keys[0].extra),
        (None, {"key-metadata": "aWNlYmVyZwo="}),
    ),
]

CONTRADICTIONS = [
    Contradiction(
        "v0.11",
        FIELDS,
        "schemas",
        without(a_document(2, schema={"type": "struct", "fields": [COLUMN]}), "schemas", "current-schema-id"),
    ),
    Contradiction("v0.11", FIELDS, "last-partition-id", without(a_document(2), "last-partition-id")),
    Contradiction(BOTH, FIELDS, "next-row-id", without(a_document(3), "next-row-id")),
]


@pytest.mark.parametrize("row", DIFFERENCES, ids=lambda row: f"{row.text}: {row.field}")
def test_a_file_of_an_older_text_is_read_and_written_back(row: Difference) -> None:
    table = parsed(row.document)
    assert row.found(table) == row.expected, row.done
    # The only key that v1 may gain: the tentative texts left the field ids of partition fields to be counted.
    for spec in row.document["partition-specs"]:
        for field_id, field in enumerate(spec["fields"], start=1000):
            field.setdefault("field-id", field_id)
    assert written(table) == row.document


@pytest.mark.parametrize("row", CONTRADICTIONS, ids=lambda row: f"{row.text}: {row.field}")
def test_a_file_that_lacks_what_its_format_version_now_requires_is_refused(row: Contradiction) -> None:
    with pytest.raises(InvalidMetadata) as caught:
        parsed(row.document)
    assert caught.value.offset == row.field
