"""Opened manifests whose entries are written anew, by the schema that their writer used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from iceberg_cli.errors import Refused
from iceberg_cli.iceberg.avro.schema import AvroType, record_of
from iceberg_cli.iceberg.spec.manifests.manifest import ManifestSource
from iceberg_cli.iceberg.spec.manifests.unknown_fields import unknown_entry_fields, unknown_fields_reason

Opened = Sequence[tuple[int, ManifestSource | None]]  # manifests with their indices

_BATCH_BYTES: Final = 16 << 20  # of inflated blocks that are decoded at once
_PARTITION_ID: Final = 102
_DATA_FILE_ID: Final = 2


def by_schema(batch: Opened) -> Iterator[tuple[list[int], list[ManifestSource]]]:
    """Manifests of one writer schema, a bounded number of bytes at a time, in their order.

    Raises:
        Refused: a manifest has fields that a new one would lose.
    """
    groups: dict[bytes, tuple[list[int], list[ManifestSource]]] = {}
    sizes: dict[bytes, int] = {}
    for number, source in batch:
        assert source is not None
        assert source.container is not None
        schema = source.container.schema_text
        if schema not in groups:
            refuse_unknown_fields(source)
        numbers, sources = groups.setdefault(schema, ([], []))
        numbers.append(number)
        sources.append(source)
        sizes[schema] = sizes.get(schema, 0) + sum(len(block.payload) for block in source.container.blocks)
        if sizes[schema] >= _BATCH_BYTES:
            yield groups.pop(schema)
            del sizes[schema]
    yield from groups.values()


def record_type(source: ManifestSource) -> AvroType:
    """The writer's type of an entry."""
    assert source.container is not None
    return record_of(source.container.type, source.path)


def refuse_unknown_fields(source: ManifestSource) -> None:
    """Raises Refused where a manifest has fields that a new one would lose."""
    if unknown := unknown_entry_fields(record_type(source), None):
        raise Refused(f"Cannot write entries anew: {unknown_fields_reason(source.path, unknown)}")


def partition_type(record: AvroType) -> AvroType:
    """The partition struct's type; `read_entries` has found it to be a record, or the field to be missing."""
    data_file = next(field.type for field in record.fields if field.field_id == _DATA_FILE_ID)
    return next(field.type for field in data_file.fields if field.field_id == _PARTITION_ID)
