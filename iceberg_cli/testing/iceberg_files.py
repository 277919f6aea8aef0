"""The files of an Iceberg table as bytes, written from the specification by fastavro, pyarrow and pyroaring.

Nothing here encodes by code of the package, so that what it reads wrongly it cannot have written wrongly as well.

Spec: Iceberg v1 to v3, "Manifests", "Manifest Lists", "Position Delete Files", Appendix A, "Avro"; Puffin,
"deletion-vector-v1 blob type".
"""

from __future__ import annotations

import bz2
import io
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from isal import isal_zlib
from pyroaring import BitMap64

EXISTING, ADDED, DELETED = 0, 1, 2  # status of an entry
DATA, DELETES = 0, 1  # content of a manifest
POSITION_DELETES, EQUALITY_DELETES = 1, 2  # content of a file, beside DATA

Json = dict[str, Any]
Entry = dict[str, Any]  # a manifest entry; the fields of its data file stand beside its own
Row = dict[str, Any]  # of a manifest list
Blob = tuple[
    str, int, int, int
]  # a deletion vector in a Puffin file: its data file, offset, size and cardinality

# -- Avro schemas: name, field id, type (`?` for optional), doc ------------------------------------------------------

_COUNTS = """
added_files_count|504|int|Added entry count
existing_files_count|505|int|Existing entry count
deleted_files_count|506|int|Deleted entry count
"""
_ROW_COUNTS = """
added_rows_count|512|long|Added rows count
existing_rows_count|513|long|Existing rows count
deleted_rows_count|514|long|Deleted rows count
"""
_LIST_START = """
manifest_path|500|string|Location URI with FS scheme
manifest_length|501|long|Total file size in bytes
partition_spec_id|502|int|Spec ID used to write
"""
_LIST_NUMBERS = """
content|517|int|Contents of the manifest: 0=data, 1=deletes
sequence_number|515|long|Sequence number when the manifest was added
min_sequence_number|516|long|Lowest sequence number in the manifest
"""
_ADDED_BY = """
added_snapshot_id|503|long|Snapshot ID that added the manifest
"""
_PARTITIONS = """
partitions|507|summaries?|Summary for each partition
"""
_LIST_KEY = """
key_metadata|519|bytes?|Encryption key metadata blob
"""
_LIST_ROW_ID = """
first_row_id|520|long?|Starting row ID to assign to new rows in ADDED data files
"""
_SUMMARY = """
contains_null|509|boolean|True if any file has a null partition value
contains_nan|518|boolean?|True if any file has a nan partition value
lower_bound|510|bytes?|Partition lower bound for all files
upper_bound|511|bytes?|Partition upper bound for all files
"""
_ENTRY = """
status|0|int|
snapshot_id|1|long?|
sequence_number|3|long?|
file_sequence_number|4|long?|
"""
_FILE = """
content|134|int|Contents of the file: 0=data, 1=position deletes, 2=equality deletes
file_path|100|string|Location URI with FS scheme
file_format|101|string|File format name: avro, orc, or parquet
partition|102|partition|Partition data tuple, schema based on the partition spec
record_count|103|long|Number of records in the file
file_size_in_bytes|104|long|Total file size in bytes
block_size_in_bytes|105|long|
column_sizes|108|map 117 long?|Map of column id to total size on disk
value_counts|109|map 119 long?|Map of column id to total count, including null and NaN
null_value_counts|110|map 121 long?|Map of column id to null value count
nan_value_counts|137|map 138 long?|Map of column id to number of NaN values in the column
lower_bounds|125|map 126 bytes?|Map of column id to lower bound
upper_bounds|128|map 129 bytes?|Map of column id to upper bound
key_metadata|131|bytes?|Encryption key metadata blob
split_offsets|132|list 133 long?|Splittable offsets
equality_ids|135|list 136 int?|Equality comparison field IDs
sort_order_id|140|int?|Sort order ID
first_row_id|142|long?|The first row ID assigned to the first row in the data file
referenced_data_file|143|string?|Fully qualified location (URI with FS scheme) of a data file that all deletes reference
content_offset|144|long?|The offset in the file where the content starts
content_size_in_bytes|145|long?|The length of referenced content stored in the file
"""
_ONLY_V1, _SINCE_V2, _SINCE_V3 = {105}, {3, 4, 134, 135, 143}, {142, 144, 145}
_MAPS = (
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
)
_ENTRY_NAMES = ("status", "snapshot_id", "sequence_number", "file_sequence_number")
_MICROS = {"type": "long", "logicalType": "timestamp-micros"}
_NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
_PARTITION_TYPES: Mapping[str, Any] = {
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "timestamp": {**_MICROS, "adjust-to-utc": False},
    "timestamptz": {**_MICROS, "adjust-to-utc": True},
    "timestamp_ns": {**_NANOS, "adjust-to-utc": False},
    "timestamptz_ns": {**_NANOS, "adjust-to-utc": True},
}


def _fields(text: str, version: int, partition: Json | None = None) -> list[Json]:
    """The Avro fields of a table of them, those of one format version."""
    found = []
    for line in text.strip().splitlines():
        name, number, kind, doc = line.split("|")
        field_id = int(number)
        left_out = (field_id in _ONLY_V1 and version > 1) or (field_id in _SINCE_V2 and version < 2)
        if left_out or (field_id in _SINCE_V3 and version < 3):
            continue
        avro = partition if kind == "partition" else _avro_type(kind.removesuffix("?"))
        field: Json = {"name": name, "type": ["null", avro] if kind.endswith("?") else avro}
        if doc and not (kind == "partition" and version == 1):
            field["doc"] = doc
        if kind.endswith("?"):
            field["default"] = None
        found.append({**field, "field-id": field_id})
    return found


def _avro_type(kind: str) -> Any:
    match kind.split():
        case ["map", key, value]:
            key_id, value_id = int(key), int(key) + 1
            items = {
                "type": "record", "name": f"k{key_id}_v{value_id}",
                "fields": [
                    {"name": "key", "type": "int", "field-id": key_id},
                    {"name": "value", "type": value, "field-id": value_id},
                ],
            }  # fmt: skip
            return {"type": "array", "items": items, "logicalType": "map"}
        case ["list", element, value]:
            return {"type": "array", "items": value, "element-id": int(element)}
        case ["summaries"]:
            items = {"type": "record", "name": "r508", "fields": _fields(_SUMMARY, 2)}
            return {"type": "array", "items": items, "element-id": 508}
        case _:
            return kind


def _partition_type(transform: str, source: str, field_id: int) -> Any:
    """The Avro type of a partition field. Spec: "Partition Transforms", Appendix A."""
    if transform == "day":
        return _PARTITION_TYPES["date"]
    if transform in ("year", "month", "hour") or transform.startswith("bucket"):
        return "int"
    if source == "uuid":
        return {"type": "fixed", "name": f"uuid_{field_id}", "size": 16, "logicalType": "uuid"}
    if found := re.fullmatch(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)", source):
        precision, scale = int(found[1]), int(found[2])
        return {
            "type": "fixed", "name": f"decimal_{precision}_{scale}_{field_id}",
            "size": ((10**precision).bit_length() + 8) // 8,
            "logicalType": "decimal", "precision": precision, "scale": scale,
        }  # fmt: skip
    if found := re.fullmatch(r"fixed\[(\d+)\]", source):
        return {"type": "fixed", "name": f"fixed_{found[1]}_{field_id}", "size": int(found[1])}
    return _PARTITION_TYPES.get(source, source)


def _partition_record(schema: Mapping[str, Any], spec: Mapping[str, Any]) -> Json:
    types = dict(_columns(schema))
    fields = []
    for each in spec["fields"]:
        source = each["source-id"] if "source-id" in each else each["source-ids"][0]
        avro = _partition_type(each["transform"], types[source], each["field-id"])
        name = _avro_name(each["name"])
        field = {"name": name, "type": ["null", avro], "default": None, "field-id": each["field-id"]}
        fields.append(field if name == each["name"] else {**field, "iceberg-field-name": each["name"]})
    return {"type": "record", "name": "r102", "fields": fields}


def _columns(kind: Any) -> Iterator[tuple[int, Any]]:
    """Id and type of every field of a type, at any depth."""
    if isinstance(kind, Mapping):
        for field in kind.get("fields", ()):
            yield field["id"], field["type"]
            yield from _columns(field["type"])
        for part in ("element", "key", "value"):
            if part in kind:
                yield kind[f"{part}-id"], kind[part]
                yield from _columns(kind[part])


def _avro_name(name: str) -> str:
    """Avro's spelling of a name: what it does not allow by its code, a digit at the start after `_`."""
    spelled = re.sub(r"[^A-Za-z0-9_]", lambda found: f"_x{ord(found[0]):X}", name)
    return f"_{spelled}" if spelled[:1].isdigit() else spelled


# -- Avro files ------------------------------------------------------------------------------------------------------


def manifest(
    entries: Iterable[Mapping[str, Any]],
    *,
    schema: Mapping[str, Any],
    spec: Mapping[str, Any],
    version: int,
    content: int = DATA,
    sync: bytes = bytes(16),
    codec: str = "deflate",
    block_bytes: int = 64_000,
) -> bytes:
    """A manifest.

    Args:
        entries: what one does not have is null; `partition` has values as Avro stores them.
        schema: of the table, as JSON.
        spec: the partition spec, as JSON.
        version: of the format.
        content: `DATA` or `DELETES`.
        sync: 16 bytes.
        codec: null, deflate or bzip2.
        block_bytes: uncompressed size from which a block is closed.
    """
    file = {
        "type": "record",
        "name": "r2",
        "fields": _fields(_FILE, version, _partition_record(schema, spec)),
    }
    fields = [*_fields(_ENTRY, version), {"name": "data_file", "type": file, "field-id": 2}]
    header = {
        "schema": _json(schema),
        "schema-id": str(schema.get("schema-id", 0)),
        "partition-spec": _json(spec["fields"]),
        "partition-spec-id": str(spec["spec-id"]),
        "format-version": str(version),
    }
    if version > 1:
        header["content"] = ("data", "deletes")[content]
    avro = {"type": "record", "name": "manifest_entry", "fields": fields}
    return avro_file(avro, header, map(_record, entries), sync=sync, codec=codec, block_bytes=block_bytes)


def _record(entry: Mapping[str, Any]) -> Json:
    """An entry with its data file in it."""
    file: Json = {name: value for name, value in entry.items() if name not in _ENTRY_NAMES}
    for name in _MAPS:
        if isinstance(file.get(name), Mapping):
            file[name] = [{"key": key, "value": value} for key, value in file[name].items()]
    file["partition"] = {_avro_name(name): value for name, value in file.get("partition", {}).items()}
    file = {"content": DATA, "block_size_in_bytes": 64 << 20, **file}
    return {**{name: entry.get(name) for name in _ENTRY_NAMES}, "data_file": file}


def manifest_list(
    rows: Iterable[Mapping[str, Any]],
    *,
    version: int,
    snapshot_id: int,
    parent_snapshot_id: int | None = None,
    sequence_number: int = 0,
    first_row_id: int | None = None,
    sync: bytes = bytes(16),
    block_bytes: int = 64_000,
) -> bytes:
    """A manifest list.

    Args:
        rows: see `manifest_row`; what one does not have is null.
        version: of the format.
        snapshot_id: of the snapshot, for the header, as are the next three.
        parent_snapshot_id: None for a first snapshot.
        sequence_number: from version 2 on.
        first_row_id: from version 3 on.
        sync: 16 bytes.
        block_bytes: uncompressed size from which a block is closed.
    """
    if version == 1:
        counts, row_counts = (re.sub(r"(int|long)\|", r"\1?|", each) for each in (_COUNTS, _ROW_COUNTS))
        parts = [_LIST_START, _ADDED_BY, counts, _PARTITIONS, row_counts, _LIST_KEY]
    else:
        parts = [_LIST_START, _LIST_NUMBERS, _ADDED_BY, _COUNTS, _ROW_COUNTS, _PARTITIONS, _LIST_KEY]
        parts += [_LIST_ROW_ID] if version > 2 else []
    fields = [field for part in parts for field in _fields(part, version)]
    header = {"snapshot-id": str(snapshot_id)}
    header["parent-snapshot-id"] = "null" if parent_snapshot_id is None else str(parent_snapshot_id)
    if version > 1:
        header["sequence-number"] = str(sequence_number)
    if version > 2 and first_row_id is not None:
        header["first-row-id"] = str(first_row_id)
    header["format-version"] = str(version)
    avro = {"type": "record", "name": "manifest_file", "fields": fields}
    records_ = ({**row, "content": row.get("content") or DATA} for row in rows)
    return avro_file(avro, header, records_, sync=sync, block_bytes=block_bytes)


def manifest_row(
    path: str,
    data: bytes,
    entries: Sequence[Mapping[str, Any]],
    *,
    content: int,
    spec_id: int,
    snapshot_id: int,
    sequence_number: int,
    min_sequence_number: int | None = None,
) -> Row:
    """The row of a manifest list for a manifest.

    Args:
        path: of the manifest.
        data: the manifest.
        entries: of the manifest.
        content: `DATA` or `DELETES`.
        spec_id: of its partition spec.
        snapshot_id: of the snapshot that adds it.
        sequence_number: of that snapshot.
        min_sequence_number: None: the lowest of the entries that are not deleted.
    """
    if min_sequence_number is None:
        numbers = [each.get("sequence_number") for each in entries if each["status"] != DELETED]
        min_sequence_number = min(
            (sequence_number if number is None else number for number in numbers), default=sequence_number
        )
    row: Row = {
        "manifest_path": path, "manifest_length": len(data), "partition_spec_id": spec_id, "content": content,
        "sequence_number": sequence_number, "min_sequence_number": min_sequence_number,
        "added_snapshot_id": snapshot_id,
    }  # fmt: skip
    for status, kind in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
        counts = [each["record_count"] for each in entries if each["status"] == status]
        row |= {f"{kind}_files_count": len(counts), f"{kind}_rows_count": sum(counts)}
    return row


def avro_file(
    schema: Mapping[str, Any],
    header: Mapping[str, str],
    values: Iterable[Mapping[str, Any]],
    *,
    sync: bytes,
    codec: str = "deflate",
    block_bytes: int = 64_000,
) -> bytes:
    """An Avro file. Spec: Avro, "Object Container Files"."""
    parsed = fastavro.parse_schema(dict(schema))
    text = {"avro.schema": json.dumps(schema, separators=(",", ":")), "avro.codec": codec, **header}
    out = io.BytesIO()
    out.write(b"Obj\x01")
    fastavro.schemaless_writer(out, fastavro.parse_schema({"type": "map", "values": "string"}), text)
    out.write(sync)
    block, count = io.BytesIO(), 0

    def close() -> None:
        stored = _CODECS[codec](block.getvalue())
        for number in (count, len(stored)):
            fastavro.schemaless_writer(out, fastavro.parse_schema("long"), number)
        out.write(stored + sync)

    for value in values:
        fastavro.schemaless_writer(block, parsed, value)
        count += 1
        if block.tell() >= block_bytes:
            close()
            block, count = io.BytesIO(), 0
    if count:
        close()
    return out.getvalue()


def _deflate(data: bytes) -> bytes:
    engine = isal_zlib.compressobj(level=2, wbits=-15)
    packed: bytes = engine.compress(data) + engine.flush()
    return packed


_CODECS: Mapping[str, Callable[[bytes], bytes]] = {"null": bytes, "deflate": _deflate, "bzip2": bz2.compress}


def single_value(kind: str, value: Any) -> bytes:
    """A bound as bytes. Spec: Appendix D, "Binary Single-Value Serialization"."""
    match kind:
        case "int" | "date":
            return struct.pack("<i", value)
        case "long" | "timestamptz":
            return struct.pack("<q", value)
        case "string":
            return str(value).encode()
        case _ if kind.startswith("decimal"):
            unscaled = int(value.scaleb(int(kind[:-1].rpartition(",")[2])))
            return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
        case _:
            raise ValueError(f"Cannot write a bound of type {kind}.")


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def records(data: bytes) -> list[Json]:
    """The records of an Avro file; what is in them is not to be changed.

    Whoever checks a table reads the same few files again and again, and fastavro reads a schema slowly.
    """
    return [dict(record) for record in _records(data)]


@lru_cache(maxsize=1024)
def _records(data: bytes) -> tuple[Json, ...]:
    return tuple(fastavro.reader(io.BytesIO(data)))  # type: ignore[arg-type]


# -- deletes ---------------------------------------------------------------------------------------------------------


def position_deletes(rows: Iterable[tuple[str, int]], **options: Any) -> bytes:
    """A position delete file of data file paths and positions; options are those of pyarrow's writer."""
    paths, positions = zip(*rows, strict=True)
    return position_delete_columns(pa.array(paths), pa.array(positions, pa.int64()), **options)


def position_delete_columns(paths: pa.Array, positions: pa.Array, **options: Any) -> bytes:
    """A position delete file of any length, see `position_deletes`; the paths may be a dictionary array."""
    fields = [
        pa.field("file_path", paths.type, nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
    out = io.BytesIO()
    pq.write_table(pa.table([paths, positions], schema=pa.schema(fields)), out, **options)
    return out.getvalue()


def vector_blob(positions: Iterable[int]) -> bytes:
    """A deletion vector, framed."""
    body = b"\xd1\xd3\x39\x64" + BitMap64(positions).serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def puffin(
    vectors: Mapping[str, Iterable[int]] | Iterable[tuple[str, Iterable[int]]],
    properties: Mapping[str, str] | None = None,
    *,
    separators: tuple[str, str] = (",", ":"),
) -> tuple[bytes, list[Blob]]:
    """A Puffin file of deletion vectors by data file, and where each of them is.

    Args:
        vectors: positions by data file; pairs where a data file has several vectors, of which no more than one is live.
        properties: of the file.
        separators: of its JSON.
    """
    parts, blobs, found = [b"PFA1"], [], []
    at = 4
    for path, positions in vectors.items() if isinstance(vectors, Mapping) else vectors:
        members = set(positions)
        blob = vector_blob(members)
        blobs.append(
            {
                "type": "deletion-vector-v1", "fields": [2147483645], "snapshot-id": -1, "sequence-number": -1,
                "offset": at, "length": len(blob),
                "properties": {"referenced-data-file": path, "cardinality": str(len(members))},
            }
        )  # fmt: skip
        found.append((path, at, len(blob), len(members)))
        parts.append(blob)
        at += len(blob)
    document: Json = {"blobs": blobs} | ({"properties": dict(properties)} if properties else {})
    footer = json.dumps(document, separators=separators, ensure_ascii=False).encode()
    parts += [b"PFA1", footer, struct.pack("<i", len(footer)), bytes(4), b"PFA1"]
    return b"".join(parts), found
