"""The delete manifests that a merge writes: added deletion vectors, entries that stay, entries that go.

Spec: "Manifest Entry Fields", "Sequence Number Inheritance", "Manifest Lists".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.errors import Refused
from iceberg_cli.iceberg.field_summaries import sort_key, summary_of
from iceberg_cli.iceberg.inspect_columns import column_types
from iceberg_cli.iceberg.manifest import ADDED, DELETED, ENTRY_COLUMNS, EXISTING
from iceberg_cli.iceberg.metadata import TableMetadata
from iceberg_cli.iceberg.schema import Schema
from iceberg_cli.iceberg.single_value import decimal_parts
from iceberg_cli.iceberg.specs import PartitionSpec
from iceberg_cli.iceberg.transforms import parse, result_type

Entry = dict[str, Any]

_STATUSES: Final = {"added": ADDED, "existing": EXISTING, "deleted": DELETED}
_CODECS: Final = {
    "gzip": "deflate", "zstd": "zstandard", "snappy": "snappy", "none": "null", "uncompressed": "null",
}  # fmt: skip


def added_entries(
    vectors: Mapping[str, Sequence[Any]], tuples: Mapping[bytes, tuple[Any, ...]], spec: PartitionSpec
) -> Iterator[Entry]:
    """Entries of new deletion vectors: data sequence number explicit, snapshot and file sequence number inherited.

    Args:
        vectors: columns `path` and `file_size` (of the Puffin file), `offset`, `size`, `ref`, `cardinality`,
            `sequence_number`, `key`.
        tuples: the partition of each key, in Avro's representation.
        spec: of the data files.
    """
    names = [field.name for field in spec.fields]
    for row in range(len(vectors["path"])):
        yield {
            "status": ADDED,
            "snapshot_id": None,
            "sequence_number": vectors["sequence_number"][row],
            "file_sequence_number": None,
            "content": 1,
            "file_path": vectors["path"][row],
            "file_format": "PUFFIN",
            "partition": dict(zip(names, tuples[vectors["key"][row]], strict=True)),
            "record_count": vectors["cardinality"][row],
            "file_size_in_bytes": vectors["file_size"][row],
            "referenced_data_file": vectors["ref"][row],
            "content_offset": vectors["offset"][row],
            "content_size_in_bytes": vectors["size"][row],
        }


def carried_entries(
    entries: pa.Table, removed: npt.NDArray[np.bool_], spec: PartitionSpec
) -> Iterator[Entry]:
    """Entries of a manifest that is written anew: those that were live, as EXISTING or DELETED.

    Args:
        entries: all of them, `ENTRY_COLUMNS` with what they inherit.
        removed: for each entry whether it goes.
        spec: of the manifest.
    """
    names = [field.name for field in spec.fields]
    alive = np.flatnonzero(entries["status"].to_numpy() != DELETED)
    rows = entries.select(list(ENTRY_COLUMNS)).take(pa.array(alive))
    for gone, entry in zip(removed[alive].tolist(), rows.to_pylist(), strict=True):
        entry["status"] = DELETED if gone else EXISTING
        # Null inherits the id of the snapshot that deletes it.
        entry["snapshot_id"] = None if gone else entry["snapshot_id"]
        entry["partition"] = dict(zip(names, entry["partition"].values(), strict=True))
        yield entry


def list_row(entries: Sequence[Entry], spec: PartitionSpec, metadata: TableMetadata) -> dict[str, Any]:
    """What the manifest list says of a delete manifest, without path, length and what the commit gives it."""
    row: dict[str, Any] = {"content": 1, "partition_spec_id": spec.spec_id, "key_metadata": None}
    for name, status in _STATUSES.items():
        mine = [entry["record_count"] for entry in entries if entry["status"] == status]
        row |= {f"{name}_files_count": len(mine), f"{name}_rows_count": sum(mine)}
    live = [entry["sequence_number"] for entry in entries if entry["status"] != DELETED]
    row["min_sequence_number"] = min(live, default=None)
    row["partitions"] = _summaries(entries, spec, metadata)
    return row


def _summaries(
    entries: Sequence[Entry], spec: PartitionSpec, metadata: TableMetadata
) -> list[dict[str, Any]]:
    types = column_types(metadata)
    summaries = []
    for field in spec.fields:
        source = types.get(field.source_id, "unknown")
        type_ = result_type(parse(field.transform), source) if isinstance(source, str) else "unknown"
        values = {entry["partition"][field.name] for entry in entries}
        column = _column(list(values), type_)
        if type_ == "unknown":
            summaries.append(
                {
                    "contains_null": bool(column.null_count),
                    "contains_nan": None,
                    "lower_bound": None,
                    "upper_bound": None,
                }
            )
        else:
            summaries.append(summary_of(sort_key(column, type_), type_).to_row(type_))
    return summaries


def _column(values: list[Any], type_: str) -> pa.Array:
    known = [value for value in values if value is not None]
    if known and isinstance(known[0], bytes) and decimal_parts(type_) is not None:
        return pa.array(values, pa.binary(len(known[0])))
    return pa.array(values)


def schema_for(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """The newest schema that has every source column of a spec, the current one first.

    Raises:
        Refused: none has.
    """
    sources = {source for field in spec.fields for source in field.source_ids}
    for schema in (metadata.current_schema(), *reversed(metadata.schemas)):
        if sources <= schema.types_by_id().keys():
            return schema
    raise Refused(
        f"Cannot write a manifest of partition spec {spec.spec_id}: no schema of the table has all its source columns"
    )


def manifest_codec(metadata: TableMetadata) -> str:
    """Avro's name of `write.manifest.compression-codec`, which is gzip where nothing is said."""
    return _CODECS.get(metadata.properties.get("write.manifest.compression-codec", "gzip").lower(), "deflate")
