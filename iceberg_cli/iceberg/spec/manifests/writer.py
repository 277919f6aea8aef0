"""Manifests and manifest lists as bytes, with the specification's Avro schemas and field ids.

Spec: "Manifests", "Manifest Lists"; Appendix A, "Avro".
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.iceberg.avro.container import container_block, write_container
from iceberg_cli.iceberg.spec.manifests.schemas import (
    avro_name,
    manifest_list_schema,
    manifest_schema,
    partition_struct,
)

BLOCK_BYTES = 64_000  # what Avro's Java library cuts blocks at

_ENTRY_FIELDS = ("status", "snapshot_id", "sequence_number", "file_sequence_number")
_MAPS = (
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
)
_V1_BLOCK_SIZE_BYTES = 64 << 20  # "Always write a default in v1"


def write_manifest(
    entries: Sequence[Mapping[str, Any]],
    *,
    schema: Mapping[str, Any],
    partition_spec: Mapping[str, Any],
    format_version: int,
    content: int,
    snapshot_id: int | None = None,
    codec: str = "deflate",
    sync: bytes,
    block_bytes: int = BLOCK_BYTES,
) -> bytes:
    """A manifest.

    Args:
        entries: flat, by the names of `ENTRY_COLUMNS`; what is absent is null. `partition` maps partition field names
            to values as Avro stores them (days, microseconds, unscaled bytes). Maps may also be lists of pairs.
        schema: the table's schema as JSON, with `schema-id`.
        partition_spec: the spec as JSON: `spec-id` and `fields`.
        format_version: 1, 2 or 3.
        content: 0 data, 1 deletes.
        snapshot_id: written where an entry does not have the key; None leaves it to inheritance.
        codec: see `write_container`.
        sync: 16 random bytes.
        block_bytes: uncompressed size from which a block is closed.

    Raises:
        ValueError: a version or partition type that cannot be written, or a value that does not fit its field.
    """
    text, metadata = manifest_header(
        schema=schema, partition_spec=partition_spec, format_version=format_version, content=content
    )
    records = (_nested(entry, snapshot_id) for entry in entries)
    return write_container(text, metadata, _blocks(text, records, block_bytes), codec=codec, sync=sync)


def manifest_header(
    *, schema: Mapping[str, Any], partition_spec: Mapping[str, Any], format_version: int, content: int
) -> tuple[str, dict[str, bytes]]:
    """The Avro schema of a manifest, and the key-value metadata of its header. Arguments as for `write_manifest`."""
    _check_version(format_version)
    fields = list(partition_spec["fields"])
    text = manifest_schema(format_version, partition_struct(schema, fields))
    metadata = {
        "schema": _json(schema),
        "schema-id": str(schema.get("schema-id", 0)).encode(),
        "partition-spec": _json(fields),
        "partition-spec-id": str(partition_spec["spec-id"]).encode(),
        "format-version": str(format_version).encode(),
    }
    if format_version > 1:
        metadata["content"] = b"deletes" if content else b"data"
    return text, metadata


def entry_blocks(values: pa.Array, *, codec: str, sync: bytes) -> Iterator[bytes]:
    """The blocks of a manifest, of n entries' encodings. Arguments as for `write_container`."""
    offsets, view = encodings(values)
    start = 0
    while start < len(values):
        full = int(np.searchsorted(offsets, int(offsets[start]) + BLOCK_BYTES))
        stop = min(max(full, start + 1), len(values))
        payload = bytes(view[offsets[start] : offsets[stop]])
        yield container_block(stop - start, payload, codec=codec, sync=sync)
        start = stop


def encodings(values: pa.Array) -> tuple[npt.NDArray[np.int32], memoryview]:
    """The bytes that n binary values lie in, and where the n begin and the last one ends."""
    _, offsets, data = values.buffers()
    edges = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return edges, memoryview(data or b"").cast("B")


def encoded_partitions(tuples: Sequence[Sequence[Any]], schema_text: str) -> list[bytes]:
    """Partition tuples as the manifest's schema encodes them.

    Args:
        tuples: values as Avro stores them, in the order of the schema's partition fields.
        schema_text: of the manifest.

    Raises:
        ValueError: a value does not fit its field.
    """
    fields = _partition_fields(schema_text)
    if not fields:
        return [b""] * len(tuples)
    names = [field_id for field_id, _, _ in fields]
    records = (_partition(dict(zip(names, values, strict=True)), fields) for values in tuples)
    return [data for _, data in _blocks(_partition_schema(schema_text), records, 0)]


def encoded_entries(entries: Sequence[Mapping[str, Any]], schema_text: str) -> list[bytes]:
    """Each entry's encoding.

    Args:
        entries: as for `write_manifest`, but with `partition` by field ids.
        schema_text: of the manifest.

    Raises:
        ValueError: a value does not fit its field.
    """
    fields = _partition_fields(schema_text)
    records = (
        _nested({**entry, "partition": _partition(entry["partition"], fields)}, None) for entry in entries
    )
    return [data for _, data in _blocks(schema_text, records, 0)]


def partition_ids(schema_text: str) -> list[int]:
    """Field ids of the partition struct of a manifest's schema, in their order."""
    return [field_id for field_id, _, _ in _partition_fields(schema_text)]


@lru_cache(maxsize=64)
def _partition_schema(schema_text: str) -> str:
    data_file = json.loads(schema_text)["fields"][-1]["type"]
    return json.dumps(next(field for field in data_file["fields"] if field["field-id"] == 102)["type"])


@lru_cache(maxsize=64)
def _partition_fields(schema_text: str) -> list[tuple[int, str, int | None]]:
    """Id, name and, of a decimal, length in bytes of the fields of the partition struct."""
    fields = []
    for field in json.loads(_partition_schema(schema_text))["fields"]:
        avro = field["type"][1]
        decimal = isinstance(avro, dict) and avro.get("logicalType") == "decimal"
        size = avro["size"] if decimal else None
        fields.append((field["field-id"], field["name"], size))
    return fields


def _partition(values: Mapping[int, Any], fields: list[tuple[int, str, int | None]]) -> dict[str, Any]:
    """Partition values by name. A decimal's precision may have grown, and its fixed with it.

    Raises:
        ValueError: a decimal does not fit.
    """
    named = {}
    for field_id, name, size in fields:
        value = values.get(field_id)
        if size is not None and isinstance(value, bytes) and len(value) != size:
            value = _resized(value, size)
        named[name] = value
    return named


def _resized(value: bytes, size: int) -> bytes:
    """A number in two's complement in another number of bytes."""
    try:
        return int.from_bytes(value, "big", signed=True).to_bytes(size, "big", signed=True)
    except OverflowError as error:
        raise ValueError(
            f"a value does not fit its field: {len(value)} bytes of a decimal of {size}"
        ) from error


def write_manifest_list(
    rows: Sequence[Mapping[str, Any]],
    *,
    format_version: int,
    snapshot_id: int,
    parent_snapshot_id: int | None,
    sequence_number: int | None = None,
    first_row_id: int | None = None,
    codec: str = "deflate",
    sync: bytes,
    block_bytes: int = BLOCK_BYTES,
) -> bytes:
    """A manifest list.

    Args:
        rows: by the names of `MANIFEST_LIST_SCHEMA`, every number final; what is absent is null (`content`: 0).
        format_version: 1, 2 or 3.
        snapshot_id: of the snapshot, for the header, as are the next three.
        parent_snapshot_id: None for a first snapshot.
        sequence_number: required from version 2 on.
        first_row_id: the snapshot's, from version 3 on.
        codec: see `write_container`.
        sync: 16 random bytes.
        block_bytes: uncompressed size from which a block is closed.

    Raises:
        ValueError: a version that cannot be written, or a value that does not fit its field.
    """
    _check_version(format_version)
    text = manifest_list_schema(format_version)
    metadata = {
        "snapshot-id": str(snapshot_id).encode(),
        "parent-snapshot-id": b"null" if parent_snapshot_id is None else str(parent_snapshot_id).encode(),
    }
    if format_version > 1:
        metadata["sequence-number"] = str(sequence_number or 0).encode()
    if format_version > 2 and first_row_id is not None:
        metadata["first-row-id"] = str(first_row_id).encode()
    metadata["format-version"] = str(format_version).encode()
    records = ({**row, "content": row.get("content") or 0} for row in rows)
    return write_container(text, metadata, _blocks(text, records, block_bytes), codec=codec, sync=sync)


def _check_version(format_version: int) -> None:
    if format_version not in {1, 2, 3}:
        msg = f"cannot write format version {format_version}"
        raise ValueError(msg)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(text))


def _blocks(text: str, records: Iterator[dict[str, Any]], block_bytes: int) -> Iterator[tuple[int, bytes]]:
    import fastavro

    parsed = _parsed(text)
    block, count = io.BytesIO(), 0
    for record in records:
        try:
            fastavro.schemaless_writer(block, parsed, record)
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            msg = f"a value does not fit its field: {error}"
            raise ValueError(msg) from error
        count += 1
        if block.tell() >= block_bytes:
            yield count, block.getvalue()
            block, count = io.BytesIO(), 0
    if count:
        yield count, block.getvalue()


def _nested(entry: Mapping[str, Any], snapshot_id: int | None) -> dict[str, Any]:
    """The record `manifest_entry` of a flat entry."""
    data_file: dict[str, Any] = {name: value for name, value in entry.items() if name not in _ENTRY_FIELDS}
    for name in _MAPS:
        value = data_file.get(name)
        if value is not None:
            pairs = value.items() if isinstance(value, Mapping) else value
            data_file[name] = [{"key": key, "value": item} for key, item in pairs]
    data_file.setdefault("content", 0)
    data_file["partition"] = {
        avro_name(name): value for name, value in (entry.get("partition") or {}).items()
    }
    data_file.setdefault("block_size_in_bytes", _V1_BLOCK_SIZE_BYTES)
    record: dict[str, Any] = {name: entry.get(name) for name in _ENTRY_FIELDS}
    if "snapshot_id" not in entry:
        record["snapshot_id"] = snapshot_id
    return {**record, "data_file": data_file}
