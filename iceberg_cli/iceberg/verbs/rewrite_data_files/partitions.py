"""Partitions of data files: which values they have, and which specs have none.

Spec: "Partitioning"; Appendix A, "Avro".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.branch.entry_columns import EntryReader
from iceberg_cli.iceberg.spec.manifests.manifest import DATA, EntryBatch, ManifestSource
from iceberg_cli.iceberg.spec.table_metadata.columns import column_types
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec
from iceberg_cli.iceberg.spec.types.single_value import decimal_parts, make_decimal
from iceberg_cli.iceberg.spec.types.transforms import parse, result_type
from iceberg_cli.iceberg.table import IcebergTable


def unpartitioned(metadata: TableMetadata) -> list[int]:
    """Ids of partition specs without partitions: all of their fields are void, if there are any."""
    return [
        spec.spec_id
        for spec in metadata.partition_specs
        if all(field.transform == "void" for field in spec.fields)
    ]


def partition_tuples(
    table: IcebergTable, manifests: pa.Table, inputs: pa.Table
) -> dict[bytes, tuple[Any, ...]]:
    """The partition of each key of some data files, in Avro's representation.

    Args:
        table: as loaded.
        manifests: rows of a manifest list that has these files.
        inputs: the files, by their `key` and `path`.

    Raises:
        CorruptFile: a manifest cannot be read whole.
    """
    metadata = table.metadata
    reader = EntryReader(
        specs={spec.spec_id: spec for spec in metadata.partition_specs},
        types=column_types(metadata),
        places={},
    )
    paths = inputs["path"].combine_chunks()

    def make(sources: Sequence[ManifestSource], batch: EntryBatch) -> dict[bytes, tuple[Any, ...]]:
        rows = batch.table.filter(pc.is_in(batch.table["file_path"], value_set=paths)).combine_chunks()
        return reader.partitions(sources, batch, rows)[2]

    found: dict[bytes, tuple[Any, ...]] = {}
    columns = ("status", "file_path", "partition")
    data = manifests.filter(pc.equal(manifests["content"], DATA))
    for part in table.reachability.from_entries(data, columns, make, phase="reading data manifests"):
        found |= part
    return found


def partition_values(spec: PartitionSpec, types: Mapping[int, Any], values: Sequence[Any]) -> tuple[Any, ...]:
    """A partition as `single_value` has values.

    Args:
        spec: of the partition.
        types: of the table's columns, by field id.
        values: in Avro's representation.
    """
    found = []
    for field, value in zip(spec.fields, values, strict=True):
        source = types.get(field.source_id, "unknown")
        type_ = result_type(parse(field.transform), source) if isinstance(source, str) else "unknown"
        parts = decimal_parts(type_)
        if isinstance(value, bytes) and parts is not None:
            value = make_decimal(int.from_bytes(value, "big", signed=True), parts[1])  # noqa: PLW2901
        elif isinstance(value, bytes) and type_ == "uuid":
            value = UUID(bytes=value)  # noqa: PLW2901
        found.append(value)
    return tuple(found)
