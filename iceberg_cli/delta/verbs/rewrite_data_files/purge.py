"""Which data files have what the table has no more: rows that are deleted, and columns that were dropped.

A file has these until it is written anew, and old versions of the table until that file is deleted.

Spec: Delta protocol, "Deletion Vectors", "Column Mapping"; `compaction-delta.md` D4, D26.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from iceberg_cli.delta.rows.table_columns import MODE, stored_columns
from iceberg_cli.delta.spec.paths import physical_column
from iceberg_cli.delta.spec.protocol import Metadata, schema_fields
from iceberg_cli.delta.spec.row_ids import MATERIALIZED
from iceberg_cli.delta.spec.statistics_columns import physical_name
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.encoding.projection import Field, FieldType, ListOf, MapOf, StructOf, field_id_of
from iceberg_cli.encoding.row_batches import readable, stream_of
from iceberg_cli.engines import FileParts, Scan, Source, chained
from iceberg_cli.layout.rolling import Bools


def files_to_purge(table: DeltaTable, adds: pa.Table) -> Bools:
    """Which of n files have deleted rows, or columns that the schema lacks, which their footers say.

    Args:
        table: opened.
        adds: n, of its snapshot.

    Raises:
        CorruptFile: a footer cannot be read. BackendUnavailable.
    """
    found = np.asarray(adds["deletionVector"].is_valid().to_numpy(), np.bool_).copy()
    rest = np.flatnonzero(~found)
    paths = physical_column(adds["path"].take(pa.array(rest)), table.root).to_pylist()
    sizes = adds["size"].take(pa.array(rest)).to_pylist()
    known = KnownColumns.of(table.snapshot.metadata)
    scan: Scan[tuple[int, str, int], list[int], list[int]] = Scan(
        lambda item: Source(item[1], item[2]),
        partial(_with_other_columns, known),
        chained,
        phase="opening Parquet files",
        in_parts=True,
    )
    items = [*zip(rest.tolist(), paths, sizes, strict=True)]
    for places in table.engine.scan(scan, items, on_event=table.on_event):
        found[places] = True
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownColumns:
    """The columns that files of a table may have.

    Args:
        fields: of its schema.
        others: the physical names of partition columns, and of the columns of row ids.
        by_ids: whether columns are found by their ids alone.
    """

    fields: tuple[Field, ...]
    others: frozenset[str]
    by_ids: bool

    @classmethod
    def of(cls, metadata: Metadata) -> KnownColumns:
        """Of a version.

        Raises:
            CorruptFile: the schema is none. InvalidMetadata: a type is none.
        """
        partitions = [
            physical_name(each)
            for each in schema_fields(metadata)
            if each["name"] in metadata.partition_columns
        ]
        row_ids = [metadata.configuration[name] for name, _ in MATERIALIZED if name in metadata.configuration]
        return cls(
            fields=tuple(stored_columns(metadata)),
            others=frozenset([*partitions, *row_ids]),
            by_ids=metadata.configuration.get(MODE, "none").lower() == "id",
        )

    def has_others(self, own: Sequence[pa.Field]) -> bool:
        """Whether a file with these columns has one that is not among them, or in one of them."""
        return self._any_is_other([each for each in own if each.name not in self.others], self.fields)

    def _any_is_other(self, own: Collection[pa.Field], fields: Sequence[Field]) -> bool:
        by_id: dict[int | None, Field] = {
            each.field_id: each for each in fields if self.by_ids and each.field_id is not None
        }
        by_name = {name: each for each in fields if each.field_id not in by_id for name in each.names}
        for each in own:
            known = by_id.get(field_id_of(each)) or by_name.get(each.name)
            if known is None or self._part_has_others(each.type, known.type):
                return True
        return False

    def _part_has_others(self, own: pa.DataType, kind: FieldType) -> bool:
        match kind:
            case StructOf(fields=fields) if pa.types.is_struct(own):
                return self._any_is_other([own.field(place) for place in range(own.num_fields)], fields)
            case ListOf(element=element) if pa.types.is_list(own):
                return self._part_has_others(own.value_type, element.type)
            case MapOf(key=key, value=value) if pa.types.is_map(own):
                return self._part_has_others(own.key_type, key.type) or self._part_has_others(
                    own.item_type, value.type
                )
        return False


def _with_other_columns(known: KnownColumns, item: tuple[int, str, int], parts: FileParts) -> list[int]:
    """The place of a file, if it has columns that are not known."""
    import pyarrow.parquet as pq

    place, path, _ = item
    with readable(path, "Parquet"):
        own = pq.read_schema(stream_of(parts))
    return [place] if known.has_others([*own]) else []
