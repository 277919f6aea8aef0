"""Fields and header keys of manifests that a rewrite would lose, from their Avro headers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import pyarrow as pa

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.container import Header, read_header
from iceberg_cli.iceberg.avro.schema import record_of
from iceberg_cli.iceberg.spec.manifests.nameless_ids import identified_manifest
from iceberg_cli.iceberg.spec.manifests.unknown_fields import (
    unknown_attributes,
    unknown_entry_fields,
    unknown_fields_reason,
    unknown_header_keys,
)
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.storage import Storage

_THREADS: Final = 16
_FIRST_BYTES: Final = 64 << 10  # holds most headers: two schemas as JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """What new manifests would lose of those that they replace: as a plan's `blocked_by` and `warnings`."""

    blocked_by: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def losses(table: IcebergTable, metadata: TableMetadata, rows: pa.Table) -> Losses:
    """Find what would be lost, reading the headers of manifests and nothing else.

    Args:
        table: whose files.
        metadata: has the partition specs.
        rows: of a manifest list, `MANIFEST_LIST_SCHEMA`: the manifests that would be replaced.

    Raises:
        CorruptFile: a manifest is gone, or begins with no header.
    """
    paths, spec_ids = rows["manifest_path"].to_pylist(), rows["partition_spec_id"].to_pylist()
    known = {spec.spec_id: frozenset(f.field_id for f in spec.fields) for spec in metadata.partition_specs}
    with ThreadPoolExecutor(_THREADS) as pool:
        headers = list(pool.map(_header, repeat(table.storage), paths))
    # Manifests of one writer have one schema, which is parsed once: see `parse_schema`.
    seen: dict[tuple[int, int], tuple[tuple[str, ...], tuple[str, ...]]] = {}
    fields: dict[tuple[str, ...], list[str]] = {}
    keys: dict[tuple[str, ...], list[str]] = {}
    for path, spec_id, header in zip(paths, spec_ids, headers, strict=True):
        schema = (id(header.type), spec_id)
        if schema not in seen:
            seen[schema] = (
                unknown_entry_fields(record_of(header.type, path), known.get(spec_id)),
                unknown_attributes(header.schema),
            )
        unknown_fields, attributes = seen[schema]
        if unknown_fields:
            fields.setdefault(unknown_fields, []).append(path)
        if unknown_keys := (*unknown_header_keys(header.metadata), *attributes):
            keys.setdefault(unknown_keys, []).append(path)
    return Losses(
        blocked_by=tuple(
            unknown_fields_reason(own[0], names, len(own) - 1) for names, own in sorted(fields.items())
        ),
        warnings=tuple(
            f"{own[0]}{f' and {len(own) - 1:,} more have' if len(own) > 1 else ' has'} in the Avro header what is "
            f"of that file alone, and new manifests do not get: {', '.join(names)}"
            for names, own in sorted(keys.items())
        ),
    )


def _header(storage: Storage, path: str) -> Header:
    head_bytes = _FIRST_BYTES
    while True:
        try:
            start = storage.read(path, (0, head_bytes))
        except FileNotFoundError:
            raise CorruptFile(path, None, "the table needs this file and it is not there") from None
        try:
            return identified_manifest(read_header(start, path))
        except CorruptFile:
            if len(start) < head_bytes:
                raise
            head_bytes *= 8  # the header may go on
