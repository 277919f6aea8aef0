"""Data files of a Delta table: how rows are written, and what their adds say of them.

Spec: Delta protocol, "Column Mapping", "Per-file Statistics", "Writer Requirements for Column Mapping".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from iceberg_cli.delta.rows.file_statistics import FileStatistics, StatisticsOfRows
from iceberg_cli.layout.files.parquet_writer import ParquetOptions, ParquetWriter

CODECS: Final = ("uncompressed", "snappy", "gzip", "brotli", "zstd")
_LEVELS: Final = {"gzip": 6, "zstd": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetFiles:
    """How data files are written, as Parquet's Java writer does by default.

    Args:
        schema: of the files.
        codec: one of `CODECS`.
        statistics: which columns have which, see `statistics_type`.
        row_group_bytes: encoded.
    """

    schema: pa.Schema
    codec: str
    statistics: pa.StructType
    row_group_bytes: int = 128 << 20

    def writer(
        self,
        sink: Any,
        path: str,
        *,
        row_group_bytes: int,
        bytes_per_row: float | None,
        most_held_bytes: int,
    ) -> ParquetWriter[FileStatistics]:
        """A writer of one file; see `ParquetWriter`."""
        options = ParquetOptions(
            codec=self.codec,
            level=_LEVELS.get(self.codec),
            row_group_bytes=row_group_bytes,
            page_bytes=1 << 20,
            page_rows=20_000,
            page_version="1.0",
            dictionary_bytes=1 << 20,
            bloom_bytes=1 << 20,
        )
        return ParquetWriter(
            sink,
            path,
            schema=self.schema,
            options=options,
            measure=StatisticsOfRows(kind=self.statistics),
            bytes_per_row=bytes_per_row,
            most_held_bytes=most_held_bytes,
        )
