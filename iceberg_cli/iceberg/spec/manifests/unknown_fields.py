"""Fields of manifests and manifest lists that this tool does not know, and would not write again.

Whoever adds a field relies on it, so a file that has one is not replaced by a file without it. Fields are told by
their ids, at every depth. Those that the specification tells writers to leave out are known.

Spec: "Manifest Entry Fields", "Data File Fields", "Manifest Lists"; Appendix A, "Avro".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from iceberg_cli.iceberg.avro.schema import AvroType, parse_schema
from iceberg_cli.iceberg.spec.manifests.schemas import manifest_list_schema, manifest_schema

_NEWEST: Final = 3
_DEPRECATED: Final = (105, 106, 107, 111)  # "Do not write"
_PARTITION: Final = 102
_HEADER_KEYS: Final = frozenset(
    (
        "schema", "schema-id", "partition-spec", "partition-spec-id", "format-version", "content",
        "iceberg.schema",  # the Java library's copy of the Avro schema
    )
)  # fmt: skip
_WITHIN: Final = ("type", "fields", "items", "values")
_ATTRIBUTES: Final = frozenset(
    (
        *_WITHIN, "name", "namespace", "doc", "aliases", "default", "order", "symbols", "size", "precision", "scale",
        "logicalType", "field-id", "element-id", "key-id", "value-id", "adjust-to-utc", "iceberg-field-name",
    )
)  # fmt: skip


def unknown_entry_fields(entry: AvroType, partition_ids: frozenset[int] | None) -> tuple[str, ...]:
    """Fields of a manifest's entries that are none of the specification's, as "data_file.owner (id 9001)".

    Args:
        entry: the writer's record `manifest_entry`.
        partition_ids: of the fields of its partition spec; None: whatever the partition struct has is known.
    """
    return tuple(_strangers(entry, _entry(), "", partition_ids))


def unknown_row_fields(row: AvroType) -> tuple[str, ...]:
    """Fields of a manifest list's rows that are none of the specification's. Argument: the record `manifest_file`."""
    return tuple(_strangers(row, _row(), "", None))


def unknown_header_keys(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys of a manifest's Avro header that are neither the specification's nor Avro's."""
    return tuple(key for key in metadata if key not in _HEADER_KEYS and not key.startswith("avro."))


def unknown_attributes(schema: Any) -> tuple[str, ...]:
    """Attributes in an Avro schema that are neither the specification's nor Avro's, as "attribute owner", each once.

    Args:
        schema: parsed JSON.
    """
    return tuple(f"attribute {name}" for name in dict.fromkeys(_attributes(schema)))


def _attributes(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for child in node:
            yield from _attributes(child)
    elif isinstance(node, dict):
        for name, value in node.items():
            if name not in _ATTRIBUTES:
                yield name
            elif name in _WITHIN:
                yield from _attributes(value)


def unknown_fields_reason(path: str, fields: Sequence[str], others: int = 0) -> str:
    """Why a file with unknown fields is not replaced.

    Args:
        path: of the file.
        fields: see `unknown_entry_fields`.
        others: how many more files have the same.
    """
    more = f" and {others:,} more have" if others else " has"
    return f"{path}{more} fields that this tool does not know, and a new file would lose: {', '.join(fields)}"


@lru_cache(maxsize=1)
def _entry() -> AvroType:
    partition = {"type": "record", "name": "r102", "fields": []}
    return parse_schema(manifest_schema(_NEWEST, partition).encode())[1]


@lru_cache(maxsize=1)
def _row() -> AvroType:
    return parse_schema(manifest_list_schema(_NEWEST).encode())[1]


def _strangers(
    source: AvroType, known: AvroType, within: str, partition_ids: frozenset[int] | None
) -> Iterator[str]:
    source, known = _plain(source), _plain(known)
    if source.kind != "record" or known.kind != "record":
        if source.kind == known.kind == "array":
            yield from _strangers(source.children[0], known.children[0], within, partition_ids)
        return
    types = {field.field_id: field.type for field in known.fields}
    nameless = all(field.field_id is None for field in source.fields)  # writers of v1 left ids out
    for place, field in enumerate(source.fields):
        name = f"{within}{field.name}"
        field_id = known.fields[place].field_id if nameless and place < len(known.fields) else field.field_id
        if field_id == _PARTITION:
            yield from _partition(_plain(field.type), name, partition_ids)
        elif field_id in types:
            yield from _strangers(field.type, types[field_id], f"{name}.", partition_ids)
        elif field_id not in _DEPRECATED:
            yield f"{name} ({'without an id' if field_id is None else f'id {field_id}'})"


def _partition(struct: AvroType, within: str, ids: frozenset[int] | None) -> Iterator[str]:
    """Fields of a partition struct that its spec has not; writers of v1 left all ids out."""
    if ids is None or (all(f.field_id is None for f in struct.fields) and len(struct.fields) == len(ids)):
        return
    for field in struct.fields:
        if field.field_id not in ids:
            label = "without an id" if field.field_id is None else f"id {field.field_id}"
            yield f"{within}.{field.name} ({label})"


def _plain(avro: AvroType) -> AvroType:
    """Without the union that makes it optional."""
    if avro.kind != "union":
        return avro
    return next((child for child in avro.children if child.kind != "null"), avro)
