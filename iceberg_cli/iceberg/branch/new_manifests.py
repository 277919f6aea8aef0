"""What a new manifest of a table needs besides its entries: schema, codec, its row of the manifest list; and its file.

Spec: "Manifests", "Manifest Lists".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.iceberg.avro.container import SYNC_BYTES, container_header
from iceberg_cli.iceberg.spec.manifests.field_summaries import sort_key, summary_of
from iceberg_cli.iceberg.spec.manifests.manifest import DELETED, STATUSES, ManifestSource
from iceberg_cli.iceberg.spec.manifests.writer import entry_blocks
from iceberg_cli.iceberg.spec.table_metadata.columns import column_types, schema_of
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec
from iceberg_cli.iceberg.spec.types.schema import Schema
from iceberg_cli.iceberg.spec.types.transforms import result_types
from iceberg_cli.storage import Storage

_CODECS: Final = {
    "gzip": "deflate", "zstd": "zstandard", "snappy": "snappy", "none": "null", "uncompressed": "null",
}  # fmt: skip


UNBOUND: Final = (1 << 62) + 7
"""Stands for what the commit gives: sequence number and snapshot id."""


def list_row(
    content: int,
    entries: pa.Table,
    tuples: Iterable[tuple[Any, ...]],
    spec: PartitionSpec,
    metadata: TableMetadata,
) -> dict[str, Any]:
    """The manifest list row of a manifest, without path, length and what the commit assigns.

    Args:
        content: of the manifest: data or deletes.
        entries: `status`, `record_count` and `sequence_number` of all entries.
        tuples: the partitions of all entries, in Avro's representation.
        spec: of the manifest.
        metadata: the table's.
    """
    row: dict[str, Any] = {"content": content, "partition_spec_id": spec.spec_id, "key_metadata": None}
    for name, status in STATUSES.items():
        mine = entries.filter(pc.equal(entries["status"], status))
        row |= {
            f"{name}_files_count": len(mine),
            f"{name}_rows_count": pc.sum(mine["record_count"]).as_py() or 0,
        }
    live = entries.filter(pc.not_equal(entries["status"], DELETED))
    row["min_sequence_number"] = pc.min(live["sequence_number"]).as_py()
    row["partitions"] = _summaries(set(tuples), spec, metadata)
    return row


def _summaries(
    tuples: set[tuple[Any, ...]], spec: PartitionSpec, metadata: TableMetadata
) -> list[dict[str, Any]]:
    summaries = []
    for index, type_ in enumerate(result_types(spec, column_types(metadata))):
        # A decimal's values may be of several lengths, as its precision grew.
        column = pa.array([values[index] for values in tuples])
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


def schema_for(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """As `schema_of`.

    Raises:
        Refused: no schema has every source column.
    """
    schema = schema_of(spec, metadata)
    if schema is not None:
        return schema
    raise Refused(
        f"Cannot write a manifest of partition spec {spec.spec_id}: no schema of the table has all its source columns"
    )


def manifest_data(
    path: str, text: str, header: Mapping[str, bytes], values: pa.Array, *, codec: str
) -> bytes:
    """The file of a manifest: the same bytes each time.

    Args:
        path: of the file.
        text: the schema, see `manifest_header`.
        header: likewise.
        values: the encodings of its entries.
        codec: see `manifest_codec`.
    """
    sync = hashlib.sha256(path.encode()).digest()[:SYNC_BYTES]
    start = container_header(text, header, codec=codec, sync=sync)
    return b"".join([start, *entry_blocks(values, codec=codec, sync=sync)])


def stored(storage: Storage, path: str, data: bytes) -> bytes:
    """Create a file, and read it back.

    Raises:
        CorruptFile: it is not there.
    """
    storage.put_if_absent(path, data)
    try:
        return storage.read(path)
    except FileNotFoundError:
        raise CorruptFile(path, None, "it was written, and was not there to be read back") from None


def source_of(path: str, data: bytes, row: Mapping[str, Any]) -> ManifestSource:
    """A new manifest, to be decoded as the next reader will: what the commit gives is `UNBOUND`.

    Args:
        path: of the file.
        data: the file.
        row: of the manifest list.
    """
    counts = {f"{kind}_files_count": row[f"{kind}_files_count"] for kind in STATUSES}
    return ManifestSource(
        path=path,
        length=len(data),
        content=row["content"],
        sequence_number=UNBOUND,
        added_snapshot_id=UNBOUND,
        **counts,
    )


def manifest_codec(metadata: TableMetadata) -> str:
    """Avro's name of `write.manifest.compression-codec`, which is gzip where it is not set."""
    return _CODECS.get(metadata.properties.get("write.manifest.compression-codec", "gzip").lower(), "deflate")
