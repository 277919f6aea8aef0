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
from iceberg_cli.iceberg.rows.row_partitions import StoredPartition
from iceberg_cli.iceberg.spec.manifests.manifest import DATA, EntryBatch, ManifestSource
from iceberg_cli.iceberg.spec.table_metadata.columns import column_types
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.types.partition_keys import partition_keys
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec
from iceberg_cli.iceberg.spec.types.schema import Type
from iceberg_cli.iceberg.spec.types.single_value import decimal_parts, from_bytes, make_decimal
from iceberg_cli.iceberg.spec.types.transforms import result_types
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


def key_and_tuple(
    spec: PartitionSpec, types: Mapping[int, Type], partition: StoredPartition
) -> tuple[bytes, tuple[Any, ...]]:
    """The key of a partition that rows were told to be in, and its tuple in Avro's representation."""
    kinds = result_types(spec, types)
    values = [
        value
        if value is None or type_ == "uuid" or decimal_parts(type_) is not None
        else from_bytes(type_, value, path="partition", field=field.name)
        for value, type_, field in zip(partition, kinds, spec.fields, strict=True)
    ]
    columns = [pa.array([value]) for value in values]
    whole = (
        pa.StructArray.from_arrays(columns, names=[str(field.field_id) for field in spec.fields])
        if columns
        else pa.array([{}], pa.struct([]))
    )
    return partition_keys(spec.spec_id, whole, kinds)[0].as_py(), tuple(values)


def partition_values(spec: PartitionSpec, types: Mapping[int, Any], values: Sequence[Any]) -> tuple[Any, ...]:
    """A partition as `single_value` has values.

    Args:
        spec: of the partition.
        types: of the table's columns, by field id.
        values: in Avro's representation.
    """
    found = []
    for type_, value in zip(result_types(spec, types), values, strict=True):
        parts = decimal_parts(type_)
        if isinstance(value, bytes) and parts is not None:
            value = make_decimal(int.from_bytes(value, "big", signed=True), parts[1])  # noqa: PLW2901
        elif isinstance(value, bytes) and type_ == "uuid":
            value = UUID(bytes=value)  # noqa: PLW2901
        found.append(value)
    return tuple(found)
