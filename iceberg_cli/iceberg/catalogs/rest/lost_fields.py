"""Fields of a table that its catalog would lose: it writes the metadata anew, and only what its own model has.

A server that parses metadata and writes it again shows a table without what it does not know. Such fields are those of
later versions of the specification, and of this one those that implementations still lack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata

_OF_V1: Final = ("schema", "partition-spec")  # the current ones once more, which writers may leave out
_EMPTY: Final[tuple[object, ...]] = (None, [], {})


def fields_of(document: Mapping[str, Any]) -> frozenset[str]:
    """Names of the fields in a table's metadata, and of those in its records as "snapshots.key-id".

    Args:
        document: parsed JSON of the table's metadata.
    """
    names = set(document)
    for name, value in document.items():
        records = value.values() if name == "refs" and isinstance(value, Mapping) else value
        if isinstance(records, Iterable) and not isinstance(records, str):
            within = set().union(*(record for record in records if isinstance(record, Mapping)))
            names.update(f"{name}.{each}" for each in within)
    return frozenset(names)


def lost_fields(metadata: TableMetadata, shown: frozenset[str]) -> list[str]:
    """The fields of a table that are not shown, in order.

    Args:
        metadata: as its file has it.
        shown: see `fields_of`.
    """
    return sorted(set(_fields_to_keep(metadata)) - shown)


def _fields_to_keep(metadata: TableMetadata) -> Iterator[str]:
    """Names, as `fields_of` has them, of the fields that hold something and that an implementation may not know."""
    yield from (name for name in _filled(metadata.extra) if name not in _OF_V1)
    records: Mapping[str, Iterable[Any]] = {
        "schemas": metadata.schemas,
        "partition-specs": metadata.partition_specs,
        "sort-orders": metadata.sort_orders,
        "snapshots": metadata.snapshots,
        "refs": metadata.refs.values(),
        "statistics": metadata.statistics,
        "partition-statistics": metadata.partition_statistics,
        "encryption-keys": metadata.encryption_keys,
        "snapshot-log": metadata.snapshot_log,
        "metadata-log": metadata.metadata_log,
    }
    for name, each in records.items():
        for record in each:
            if record.extra:
                yield from (f"{name}.{field}" for field in _filled(record.extra))
    yield from (name for name in ("statistics", "partition-statistics", "encryption-keys") if records[name])
    for snapshot in metadata.snapshots:
        if snapshot.key_id is not None:
            yield "snapshots.key-id"
        if snapshot.first_row_id is not None:
            yield "snapshots.first-row-id"
    for ref in metadata.refs.values():
        if ref.max_ref_age_ms is not None:
            yield "refs.max-ref-age-ms"
        if ref.max_snapshot_age_ms is not None:
            yield "refs.max-snapshot-age-ms"
        if ref.min_snapshots_to_keep is not None:
            yield "refs.min-snapshots-to-keep"


def _filled(extra: Mapping[str, Any]) -> Iterator[str]:
    return (name for name, value in extra.items() if value not in _EMPTY)
