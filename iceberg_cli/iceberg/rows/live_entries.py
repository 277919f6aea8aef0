"""Live entries of manifests by partition: their columns, keys of partitions, and the values of identity fields.

Spec: "Manifests", "Scan Planning", "Column Projection".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.container import encrypted_file
from iceberg_cli.iceberg.reachability.keys import live
from iceberg_cli.iceberg.rows.table_columns import scalar_of
from iceberg_cli.iceberg.spec.types.partition_keys import in_spec_order, partition_keys
from iceberg_cli.iceberg.spec.types.transforms import result_types

if TYPE_CHECKING:
    from iceberg_cli.iceberg.spec.manifests.manifest import EntryBatch, ManifestSource
    from iceberg_cli.iceberg.spec.table_metadata.metadata import PartitionSpec

ENTRY_COLUMNS: Final = (
    "status", "content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes",
    "sequence_number", "key_metadata",
)  # fmt: skip
"""What is read of each entry at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEntries:
    """Live entries of one partition spec.

    Args:
        table: their columns, `key` (of spec and partition) and `everywhere` (whether the spec has no partitions).
        spec_id: of the spec.
        keys: each once.
        partitions: those of the keys.
    """

    table: pa.Table
    spec_id: int
    keys: pa.Array
    partitions: pa.StructArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEntryReader:
    """Reads entries where an engine decodes them: adds the key of each entry's partition.

    Args:
        specs: of the table, by id.
        types: of its columns, by field id.
    """

    specs: Mapping[int, PartitionSpec]
    types: Mapping[int, Any]

    def __call__(self, sources: Sequence[ManifestSource], batch: EntryBatch) -> list[LiveEntries]:
        """Live entries, by partition spec.

        Raises:
            CorruptFile: a partition does not fit its spec. Refused: a file is encrypted.
        """
        entries = live(batch.table).combine_chunks()
        encrypted = entries.filter(pc.is_valid(entries["key_metadata"]))
        if encrypted.num_rows:
            raise encrypted_file(encrypted["file_path"][0].as_py(), "its manifest has key_metadata for it")
        owners = entries["manifest"].to_numpy()
        spec_ids = np.array([source.partition_spec_id or 0 for source in sources], np.int32)[owners]
        return [
            self._of_spec(
                spec_id,
                entries.filter(pa.array(spec_ids == spec_id)).combine_chunks(),
                batch.partition_ids,
                sources[owners[0]].path,
            )
            for spec_id in np.unique(spec_ids).tolist()
        ]

    def _of_spec(self, spec_id: int, entries: pa.Table, ids: Sequence[int | None], path: str) -> LiveEntries:
        spec = self.specs.get(spec_id)
        if spec is None:
            reason = f"its manifest list says partition spec {spec_id}, which is not there"
            raise CorruptFile(path, None, reason)
        try:
            partitions = in_spec_order(entries["partition"].combine_chunks(), ids, spec)
        except ValueError as error:
            raise CorruptFile(path, "field partition", str(error)) from error
        keys = partition_keys(spec_id, partitions, result_types(spec, self.types))
        _, first = np.unique(keys.dictionary_encode().indices.to_numpy(), return_index=True)
        everywhere = all(each.transform == "void" for each in spec.fields)
        table = entries.drop_columns(["partition", "manifest"]).append_column("key", keys)
        return LiveEntries(
            table=table.append_column("everywhere", pa.array([everywhere] * len(entries), pa.bool_())),
            spec_id=spec_id,
            keys=keys.take(pa.array(first)),
            partitions=partitions.take(pa.array(first)),
        )

    def constants(self, entries: Sequence[LiveEntries], keys: pa.Array) -> dict[bytes, dict[int, pa.Scalar]]:
        """Of partitions by their keys, the values of identity fields, by the id of the column.

        Args:
            entries: that have these partitions.
            keys: of those that are needed.
        """
        found: dict[bytes, dict[int, pa.Scalar]] = {}
        for each in entries:
            chosen = pc.is_in(each.keys, value_set=keys)
            pairs = zip(
                each.keys.filter(chosen).to_pylist(), each.partitions.filter(chosen).to_pylist(), strict=True
            )
            spec = self.specs[each.spec_id]
            found |= {key: self._identities(spec, values) for key, values in pairs}
        return found

    def _identities(self, spec: PartitionSpec, values: Mapping[str, Any]) -> dict[int, pa.Scalar]:
        return {
            each.source_id: scalar_of(self.types[each.source_id], values[str(each.field_id)])
            for each in spec.fields
            if each.transform == "identity"
            and isinstance(self.types.get(each.source_id), str)
            and values[str(each.field_id)] is not None
        }
