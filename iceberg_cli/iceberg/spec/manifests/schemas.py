"""The Avro schemas of manifests and manifest lists, as the Java library spells them, for format versions 1 to 3.

Spec: "Manifest Entry Fields", "Data File Fields", "Manifest Lists"; Appendix A, "Avro".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]

_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_FIXED = re.compile(r"fixed\[(\d+)\]")
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRIMITIVES: Mapping[str, Any] = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    "timestamp_ns": {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False},
    "timestamptz_ns": {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": True},
    "uuid": {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"},
}


def manifest_list_schema(format_version: int) -> str:
    """The schema of a manifest list, as JSON text."""
    optional = format_version == 1
    counts = [
        _field("added_files_count", 504, "int", "Added entry count", optional=optional),
        _field("existing_files_count", 505, "int", "Existing entry count", optional=optional),
        _field("deleted_files_count", 506, "int", "Deleted entry count", optional=optional),
    ]
    rows = [
        _field("added_rows_count", 512, "long", "Added rows count", optional=optional),
        _field("existing_rows_count", 513, "long", "Existing rows count", optional=optional),
        _field("deleted_rows_count", 514, "long", "Deleted rows count", optional=optional),
    ]
    partitions = _field("partitions", 507, _summaries(), "Summary for each partition", optional=True)
    key_metadata = _field("key_metadata", 519, "bytes", "Encryption key metadata blob", optional=True)
    fields = [
        _field("manifest_path", 500, "string", "Location URI with FS scheme"),
        _field("manifest_length", 501, "long", "Total file size in bytes"),
        _field("partition_spec_id", 502, "int", "Spec ID used to write"),
    ]
    added_snapshot_id = _field("added_snapshot_id", 503, "long", "Snapshot ID that added the manifest")
    if format_version == 1:
        fields += [added_snapshot_id, *counts, partitions, *rows, key_metadata]
        return _record("manifest_file", fields)
    fields += [
        _field("content", 517, "int", "Contents of the manifest: 0=data, 1=deletes"),
        _field("sequence_number", 515, "long", "Sequence number when the manifest was added"),
        _field("min_sequence_number", 516, "long", "Lowest sequence number in the manifest"),
        added_snapshot_id, *counts, *rows, partitions, key_metadata,
    ]  # fmt: skip
    if format_version >= 3:
        doc = "Starting row ID to assign to new rows in ADDED data files"
        fields.append(_field("first_row_id", 520, "long", doc, optional=True))
    return _record("manifest_file", fields)


def manifest_schema(format_version: int, partition: Json) -> str:
    """The schema of a manifest whose partition struct is `partition`, as JSON text."""
    data_file = {"type": "record", "name": "r2", "fields": _data_file(format_version, partition)}
    fields = [_field("status", 0, "int"), _field("snapshot_id", 1, "long", optional=True)]
    if format_version > 1:
        fields.append(_field("sequence_number", 3, "long", optional=True))
        fields.append(_field("file_sequence_number", 4, "long", optional=True))
    return _record("manifest_entry", [*fields, _field("data_file", 2, data_file)])


def partition_struct(schema: Mapping[str, Any], partition_fields: list[Mapping[str, Any]]) -> Json:
    """The Avro record of a partition tuple.

    Args:
        schema: an Iceberg schema as JSON; holds every source column.
        partition_fields: of the spec, as JSON.

    Raises:
        ValueError: a source column is not in the schema, or its type cannot be a partition value.
    """
    types = dict(_columns(schema))
    fields = []
    for field in partition_fields:
        source = field["source-id"] if "source-id" in field else field["source-ids"][0]
        if source not in types:
            msg = f"partition field {field['name']!r} has source column {source}, which is not in the schema"
            raise ValueError(msg)
        avro = _partition_type(field["transform"], types[source], field["field-id"])
        built = _field(avro_name(field["name"]), field["field-id"], avro, optional=True)
        if built["name"] != field["name"]:
            built["iceberg-field-name"] = field["name"]
        fields.append(built)
    return {"type": "record", "name": "r102", "fields": fields}


def avro_name(name: str) -> str:
    """A field's name as Avro allows it and the Java library spells it: a space is `_x20`, a leading 1 is `_1`."""
    first, rest = name[:1], name[1:]
    if _AVRO_NAME.fullmatch(name) or not name:
        return name
    start = first if _AVRO_NAME.fullmatch(first) else _escaped(first)
    if first in "0123456789":
        start = f"_{first}"
    return start + "".join(c if _AVRO_NAME.fullmatch(f"_{c}") else _escaped(c) for c in rest)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"_x{int.from_bytes(units[i : i + 2], 'big'):X}" for i in range(0, len(units), 2))


def _partition_type(transform: str, source: Any, field_id: int) -> Any:
    """The result type of a transform. Spec: "Partition Transforms"."""
    if transform == "day":
        return _PRIMITIVES["date"]
    if transform in {"year", "month", "hour"} or transform.startswith("bucket["):
        return "int"
    if not isinstance(source, str):
        msg = f"a column of type {source!r:.60} cannot be a partition value"
        raise ValueError(msg)  # noqa: TRY004 - the value is wrong, not the caller's types
    if source in _PRIMITIVES:
        avro = _PRIMITIVES[source]
        return (
            avro
            if isinstance(avro, str)
            else {**avro, **({"name": f"uuid_{field_id}"} if source == "uuid" else {})}
        )
    if found := _DECIMAL.fullmatch(source):
        precision, scale = int(found[1]), int(found[2])
        size = ((10**precision).bit_length() + 8) // 8
        return {
            "type": "fixed", "name": f"decimal_{precision}_{scale}_{field_id}", "size": size,
            "logicalType": "decimal", "precision": precision, "scale": scale,
        }  # fmt: skip
    if found := _FIXED.fullmatch(source):
        return {"type": "fixed", "name": f"fixed_{found[1]}_{field_id}", "size": int(found[1])}
    msg = f"a column of type {source!r:.60} cannot be a partition value"
    raise ValueError(msg)


def _columns(node: Any) -> Iterator[tuple[int, Any]]:
    """(id, type) of every field of an Iceberg type, at any depth."""
    if not isinstance(node, dict):
        return
    for field in node.get("fields", ()):
        yield field["id"], field["type"]
        yield from _columns(field["type"])
    for key in ("element", "key", "value"):
        if key in node:
            yield node[f"{key}-id"], node[key]
            yield from _columns(node[key])


def _data_file(format_version: int, partition: Json) -> list[Json]:
    doc = "Contents of the file: 0=data, 1=position deletes, 2=equality deletes"
    content = [_field("content", 134, "int", doc)]
    partition_doc = "Partition data tuple, schema based on the partition spec"
    fields = [
        _field("file_path", 100, "string", "Location URI with FS scheme"),
        _field("file_format", 101, "string", "File format name: avro, orc, or parquet"),
        _field("partition", 102, partition, partition_doc if format_version > 1 else None),
        _field("record_count", 103, "long", "Number of records in the file"),
        _field("file_size_in_bytes", 104, "long", "Total file size in bytes"),
    ]
    if format_version == 1:
        fields.append(_field("block_size_in_bytes", 105, "long"))
    fields += [
        _map("column_sizes", 108, 117, "long", "Map of column id to total size on disk"),
        _map("value_counts", 109, 119, "long", "Map of column id to total count, including null and NaN"),
        _map("null_value_counts", 110, 121, "long", "Map of column id to null value count"),
        _map("nan_value_counts", 137, 138, "long", "Map of column id to number of NaN values in the column"),
        _map("lower_bounds", 125, 126, "bytes", "Map of column id to lower bound"),
        _map("upper_bounds", 128, 129, "bytes", "Map of column id to upper bound"),
        _field("key_metadata", 131, "bytes", "Encryption key metadata blob", optional=True),
        _list("split_offsets", 132, 133, "long", "Splittable offsets"),
    ]
    sort_order_id = _field("sort_order_id", 140, "int", "Sort order ID", optional=True)
    if format_version == 1:
        return [*fields, sort_order_id]
    fields += [_list("equality_ids", 135, 136, "int", "Equality comparison field IDs"), sort_order_id]
    if format_version >= 3:
        doc = "The first row ID assigned to the first row in the data file"
        fields.append(_field("first_row_id", 142, "long", doc, optional=True))
    doc = "Fully qualified location (URI with FS scheme) of a data file that all deletes reference"
    fields.append(_field("referenced_data_file", 143, "string", doc, optional=True))
    if format_version >= 3:
        doc = "The offset in the file where the content starts"
        fields.append(_field("content_offset", 144, "long", doc, optional=True))
        doc = "The length of referenced content stored in the file"
        fields.append(_field("content_size_in_bytes", 145, "long", doc, optional=True))
    return [*content, *fields]


def _record(name: str, fields: list[Json]) -> str:
    return json.dumps({"type": "record", "name": name, "fields": fields}, separators=(",", ":"))


def _field(name: str, field_id: int, avro: Any, doc: str | None = None, *, optional: bool = False) -> Json:
    built: Json = {"name": name, "type": ["null", avro] if optional else avro}
    if doc is not None:
        built["doc"] = doc
    if optional:
        built["default"] = None
    return {**built, "field-id": field_id}


def _map(name: str, field_id: int, key_id: int, value: str, doc: str) -> Json:
    """A map from column id, whose value id follows its key id."""
    pair = [_field("key", key_id, "int"), _field("value", key_id + 1, value)]
    items = {"type": "record", "name": f"k{key_id}_v{key_id + 1}", "fields": pair}
    return _field(name, field_id, {"type": "array", "items": items, "logicalType": "map"}, doc, optional=True)


def _list(name: str, field_id: int, element_id: int, element: str, doc: str) -> Json:
    avro = {"type": "array", "items": element, "element-id": element_id}
    return _field(name, field_id, avro, doc, optional=True)


def _summaries() -> Json:
    fields = [
        _field("contains_null", 509, "boolean", "True if any file has a null partition value"),
        _field("contains_nan", 518, "boolean", "True if any file has a nan partition value", optional=True),
        _field("lower_bound", 510, "bytes", "Partition lower bound for all files", optional=True),
        _field("upper_bound", 511, "bytes", "Partition upper bound for all files", optional=True),
    ]
    return {"type": "array", "items": {"type": "record", "name": "r508", "fields": fields}, "element-id": 508}
