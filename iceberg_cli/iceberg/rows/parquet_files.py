"""Data files of an Iceberg table: rows are written as the table's properties say, and measured for their entries.

Spec: Appendix A, "Parquet"; "Data File Fields".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.iceberg.rows.file_metrics import FileMetrics, SeenValues
from iceberg_cli.iceberg.rows.leaf_columns import LeafColumn, arrow_schema, leaf_columns
from iceberg_cli.iceberg.spec.types.schema import StructType
from iceberg_cli.layout.files.parquet_writer import ParquetOptions, ParquetWriter

if TYPE_CHECKING:
    from iceberg_cli.iceberg.rows.metrics_modes import MetricsMode
    from iceberg_cli.iceberg.rows.parquet_properties import ParquetProperties
    from iceberg_cli.iceberg.spec.types.schema import NestedField

_SCHEMA_KEY: Final = "iceberg.schema"  # in footers of Iceberg Java, too


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetFiles:
    """How data files are written.

    Args:
        fields: the columns, those of row lineage among them where rows keep their ids.
        properties: of the table.
        modes: of metrics, by field id.
    """

    fields: tuple[NestedField, ...]
    properties: ParquetProperties
    modes: Mapping[int, MetricsMode]

    @property
    def row_group_bytes(self) -> int:
        """Of a row group, encoded, as the table asks for it."""
        return self.properties.row_group_bytes

    def writer(
        self,
        sink: Any,
        path: str,
        *,
        row_group_bytes: int | None = None,
        bytes_per_row: float | None = None,
        most_held_bytes: int,
    ) -> ParquetWriter[FileMetrics]:
        """A writer of one file.

        Args:
            sink: see `ParquetWriter`.
            path: likewise.
            row_group_bytes: None: as the table asks for it.
            bytes_per_row: see `ParquetWriter`.
            most_held_bytes: likewise.

        Raises:
            Refused: a field has a type that is not written here.
        """
        leaves = leaf_columns(self.fields)
        return ParquetWriter(
            sink,
            path,
            schema=arrow_schema(self.fields),
            options=self._options(leaves, row_group_bytes or self.row_group_bytes),
            measure=SeenValues(leaves=leaves, modes=self.modes),
            bytes_per_row=bytes_per_row,
            most_held_bytes=most_held_bytes,
        )

    def _options(self, leaves: tuple[LeafColumn, ...], row_group_bytes: int) -> ParquetOptions:
        own = self.properties
        return ParquetOptions(
            codec=own.codec,
            level=own.level,
            row_group_bytes=row_group_bytes,
            page_bytes=own.page_bytes,
            page_rows=own.page_rows,
            page_version=own.page_version,
            dictionary_bytes=own.dictionary_bytes,
            bloom_bytes=own.bloom_bytes,
            with_dictionary=_all_but(leaves, own.without_dictionary),
            with_statistics=_all_but(leaves, own.without_statistics),
            bloom_filters={
                leaf.path: own.bloom_filters[leaf.field_id]
                for leaf in leaves
                if leaf.field_id in own.bloom_filters
            },
            metadata={_SCHEMA_KEY: json.dumps(StructType(fields=self.fields).to_json())},
        )


def _all_but(leaves: tuple[LeafColumn, ...], field_ids: frozenset[int]) -> bool | list[str]:
    """All columns but some, as Arrow takes it."""
    return not field_ids or [leaf.path for leaf in leaves if leaf.field_id not in field_ids]
