"""The rows of an Iceberg table with their values: slow, literal, one Python object at a time, by pyarrow alone.

A value is told by its bits: of `float` and `double` those of a double, of times their nanoseconds, of UUIDs their
bytes. A struct is a dict by field id, a map a list of pairs.

Spec: Iceberg v3, "Scan Planning", "Column Projection", "Equality Delete Files", "Row Lineage".
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from iceberg_cli.storage import Storage
from iceberg_cli.testing.iceberg_files import DATA, DELETED, EQUALITY_DELETES, Json
from iceberg_cli.testing.iceberg_reader import (
    deleted_positions,
    entries_of,
    manifests_of,
    parquet_table,
    snapshot_of,
)

Values = dict[int, Any]  # of a row, by field id
ROW_ID, LAST_UPDATED = 2147483540, 2147483539  # field ids
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class LiteralRow(NamedTuple):
    """A row that a reader sees.

    Args:
        path: of its data file.
        sequence_number: of that file.
        position: in that file.
        values: by field id, of the fields of the schema.
        row_id: None where it has none yet.
        last_updated: sequence number; where the row has no id, that of the file.
    """

    path: str
    sequence_number: int
    position: int
    values: Values
    row_id: int | None
    last_updated: int


def read_rows(storage: Storage, document: Mapping[str, Any], snapshot_id: int) -> list[LiteralRow]:
    """The rows of a snapshot by the table's current schema, in the order of sequence number, path and position."""
    schema = _by_id(document["schemas"], "schema-id", document["current-schema-id"])
    data: list[Json] = []
    deletes: list[Json] = []
    for manifest in manifests_of(storage, snapshot_of(document, snapshot_id)):
        for entry in entries_of(storage, manifest):
            entry["spec_id"] = manifest["partition_spec_id"]
            if entry["status"] != DELETED:
                (data if entry["content"] == DATA else deletes).append(entry)
    rows = []
    for entry in sorted(data, key=lambda each: (each["sequence_number"], each["file_path"])):
        gone = deleted_positions(storage, entry, deletes)
        equality = [each for each in deletes if _compares(each, entry, document)]
        constants = _constants(document, entry)
        keys = [
            (ids, _values_of(storage, document, each, ids))
            for each in equality
            for ids in [each["equality_ids"]]
        ]
        stored = parquet_rows(storage.read(entry["file_path"]), _mapped(document))
        assert len(stored) == entry["record_count"]
        for position, own in enumerate(stored):
            hidden = any(_key(document, own, ids, constants) in values for ids, values in keys)
            if position not in gone and not hidden:
                values = {each["id"]: _value(each, own, constants) for each in schema["fields"]}
                rows.append(
                    LiteralRow(
                        entry["file_path"],
                        entry["sequence_number"],
                        position,
                        values,
                        *_lineage(entry, own, position),
                    )
                )
    return rows


def parquet_rows(data: bytes, names: Mapping[str, int] | None = None) -> list[Values]:
    """The rows of a Parquet file, each by field id.

    Args:
        data: the file.
        names: ids of columns by their names, for files without ids.
    """
    table = parquet_table(data)
    rows: list[Values] = [{} for _ in range(table.num_rows)]
    has_ids = any(_has_id(field) for field in table.schema)
    for field, column in zip(table.schema, table.columns, strict=True):
        field_id = (names or {}).get(field.name)
        if has_ids:
            field_id = _id(field) if _has_id(field) else None
        if field_id is not None:
            for row, value in zip(rows, column, strict=True):
                row[field_id] = _literal(value, field.type)
    return rows


def _literal(value: Any, kind: pa.DataType) -> Any:
    """An Arrow scalar by its bits."""
    if not value.is_valid:
        return None
    if isinstance(kind, pa.BaseExtensionType):
        return _literal(value.value, kind.storage_type)
    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return {_id(each): _literal(value[each.name], each.type) for each in fields}
    if pa.types.is_map(kind):
        return [
            (_literal(each["key"], kind.key_type), _literal(each["value"], kind.item_type))
            for each in value.values
        ]
    if pa.types.is_list(kind):
        return [_literal(each, kind.value_type) for each in value.values]
    if pa.types.is_floating(kind):
        return ("bits", struct.pack(">d", value.as_py()).hex())
    if pa.types.is_timestamp(kind):
        return ("ns", value.value * (1_000_000_000 // _PER_SECOND[kind.unit]))
    if pa.types.is_date(kind):
        return ("ns", value.value * 86_400 * 1_000_000_000)
    return value.as_py()


def _has_id(field: pa.Field) -> bool:
    return b"PARQUET:field_id" in (field.metadata or {})


def _id(field: pa.Field) -> int:
    return int(field.metadata[b"PARQUET:field_id"])


def _by_id(some: Sequence[Json], name: str, value: int) -> Json:
    return next(each for each in some if each[name] == value)


def _value(field: Mapping[str, Any], own: Mapping[int, Any], constants: Mapping[int, Any]) -> Any:
    """A field's value. Spec: "Column Projection"."""
    field_id, kind = field["id"], field["type"]
    if field_id not in own:
        return constants.get(field_id, field.get("initial-default"))
    return _in_type(kind, own[field_id])


def _in_type(kind: Any, value: Any) -> Any:
    """A value of a file with the fields that its type has now."""
    if value is None or isinstance(kind, str):
        return value
    match kind["type"]:
        case "struct":
            return {each["id"]: _value(each, value, {}) for each in kind["fields"]}
        case "list":
            return [_in_type(kind["element"], each) for each in value]
        case _:
            return [(_in_type(kind["key"], key), _in_type(kind["value"], each)) for key, each in value]


def _lineage(entry: Mapping[str, Any], own: Mapping[int, Any], position: int) -> tuple[int | None, int]:
    """Spec: "Row Lineage"."""
    if entry["first_row_id"] is None:
        return None, entry["sequence_number"]
    row_id, updated = own.get(ROW_ID), own.get(LAST_UPDATED)
    return (
        entry["first_row_id"] + position if row_id is None else row_id,
        entry["sequence_number"] if updated is None else updated,
    )


def _constants(document: Mapping[str, Any], entry: Mapping[str, Any]) -> Values:
    """Values of identity partition fields, by the id of the column."""
    spec = _by_id(document["partition-specs"], "spec-id", entry["spec_id"])
    values = {each["source-id"]: entry["partition"][each["name"]] for each in _identities(spec)}
    return {field_id: value for field_id, value in values.items() if value is not None}


def _identities(spec: Mapping[str, Any]) -> Iterator[Json]:
    return (each for each in spec["fields"] if each["transform"] == "identity")


def _mapped(document: Mapping[str, Any]) -> dict[str, int]:
    mapping = json.loads(document["properties"].get("schema.name-mapping.default", "[]"))
    return {name: each["field-id"] for each in mapping for name in each["names"]}


# -- equality deletes ------------------------------------------------------------------------------------------------


def _compares(delete: Mapping[str, Any], data: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    """Whether an equality delete applies to a data file. Spec: "Scan Planning"."""
    if delete["content"] != EQUALITY_DELETES or delete["sequence_number"] <= data["sequence_number"]:
        return False
    spec = _by_id(document["partition-specs"], "spec-id", delete["spec_id"])
    is_global = all(each["transform"] == "void" for each in spec["fields"])
    return is_global or (delete["spec_id"], delete["partition"]) == (data["spec_id"], data["partition"])


def _values_of(
    storage: Storage, document: Mapping[str, Any], delete: Mapping[str, Any], ids: Sequence[int]
) -> list[tuple[Any, ...]]:
    rows = parquet_rows(storage.read(delete["file_path"]), {})
    return [_key(document, row, ids, {}) for row in rows]


def _key(
    document: Mapping[str, Any], own: Mapping[int, Any], ids: Sequence[int], constants: Mapping[int, Any]
) -> tuple[Any, ...]:
    """What is compared of a row; null is equal to null."""
    return tuple(_at(document, own, field_id, constants) for field_id in ids)


def _at(
    document: Mapping[str, Any], own: Mapping[int, Any], field_id: int, constants: Mapping[int, Any]
) -> Any:
    """A field's value wherever it is in structs, also of a column that the table no longer has."""
    if field_id in own:
        return own[field_id]
    for value in own.values():
        if isinstance(value, dict) and field_id in value:
            return value[field_id]
    fields = [
        each
        for schema in reversed(document["schemas"])
        for each in schema["fields"]
        if each["id"] == field_id
    ]
    return constants.get(field_id, fields[0].get("initial-default") if fields else None)
