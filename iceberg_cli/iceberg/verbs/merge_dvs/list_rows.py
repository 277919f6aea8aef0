"""What the manifest list says of the delete manifests that a merge writes, and what these are written with.

Spec: "Manifest Lists", "Manifests".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import Refused
from iceberg_cli.iceberg.spec.columns import column_types
from iceberg_cli.iceberg.spec.field_summaries import sort_key, summary_of
from iceberg_cli.iceberg.spec.manifest import ADDED, DELETED, EXISTING
from iceberg_cli.iceberg.spec.metadata import TableMetadata
from iceberg_cli.iceberg.spec.partition_spec import PartitionSpec
from iceberg_cli.iceberg.spec.schema import Schema
from iceberg_cli.iceberg.spec.transforms import parse, result_type

_STATUSES: Final = {"added": ADDED, "existing": EXISTING, "deleted": DELETED}
_CODECS: Final = {
    "gzip": "deflate", "zstd": "zstandard", "snappy": "snappy", "none": "null", "uncompressed": "null",
}  # fmt: skip


def list_row(
    entries: pa.Table, tuples: Iterable[tuple[Any, ...]], spec: PartitionSpec, metadata: TableMetadata
) -> dict[str, Any]:
    """What the manifest list says of a delete manifest, without path, length and what the commit gives it.

    Args:
        entries: `status`, `record_count` and `sequence_number` of all entries.
        tuples: the partitions of all entries, in Avro's representation.
        spec: of the manifest.
        metadata: the table's.
    """
    row: dict[str, Any] = {"content": 1, "partition_spec_id": spec.spec_id, "key_metadata": None}
    for name, status in _STATUSES.items():
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
    types = column_types(metadata)
    summaries = []
    for place, field in enumerate(spec.fields):
        source = types.get(field.source_id, "unknown")
        type_ = result_type(parse(field.transform), source) if isinstance(source, str) else "unknown"
        # A decimal's values may be of several lengths, as its precision grew.
        column = pa.array([values[place] for values in tuples])
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
