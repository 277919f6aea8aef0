"""Rules about what is inside Puffin and Parquet files: `inspect --check --deep`.

Spec: "Deletion Vectors"; Puffin "deletion-vector-v1 blob type"; "Data File Fields", `record_count`; "Position Delete
Files".
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from iceberg_cli.encoding.deletion_vector import decode
from iceberg_cli.encoding.parquet import _PARQUET_TRAILER_BYTES, parquet_footer_bytes
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.check.metadata import check_blobs
from iceberg_cli.iceberg.spec.metadata import StatisticsFile
from iceberg_cli.iceberg.spec.position_deletes import delete_column_names
from iceberg_cli.iceberg.spec.puffin import DELETION_VECTOR, BlobMetadata, read_footer
from iceberg_cli.plan.findings import Findings, reason_of

_BATCH_ROWS: Final = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveVector:
    """The manifest entry of a deletion vector; `rows` of its data file, -1 where that is not known."""

    offset: int
    size: int
    ref: str
    cardinality: int
    rows: int


def check_puffin(
    data: bytes, path: str, vectors: Sequence[LiveVector], columns: Container[int], findings: Findings
) -> None:
    """Compare a Puffin file with the manifest entries of its live deletion vectors.

    Args:
        data: the file, whole.
        path: for findings.
        vectors: the live ones.
        columns: ids of all columns that the table ever had.
        findings: to add to.
    """
    try:
        footer = read_footer(data, len(data), path)
    except CorruptFile as error:
        findings.add("puffin-unreadable", path, reason_of(error))
        return
    check_blobs(footer.blobs, path, columns, findings)
    blobs = {blob.offset: blob for blob in footer.blobs}
    for vector in vectors:
        reason = _other_place(blobs.get(vector.offset), vector)
        if reason:
            findings.add("deletion-vector-place-differs", path, f"the vector of {vector.ref}: {reason}")
        _check_vector(data[vector.offset : vector.offset + vector.size], path, vector, findings)


def _other_place(blob: BlobMetadata | None, vector: LiveVector) -> str:
    """The difference of a manifest entry from the footer's blob metadata at its offset."""
    if blob is None:
        return f"a manifest says it is at {vector.offset}, where no blob begins"
    if blob.type != DELETION_VECTOR:
        return f"a manifest says it is at {vector.offset}, where a blob of type {blob.type!r:.40} is"
    if blob.length != vector.size:
        return f"a manifest says {vector.size} bytes at {vector.offset}, the footer {blob.length}"
    if blob.compression_codec is not None:
        return f"it is compressed with {blob.compression_codec!r:.40}, which is not allowed"
    ref = blob.properties.get("referenced-data-file")
    if ref != vector.ref:
        return f"the footer says it is of {ref!r:.200}"
    cardinality = blob.properties.get("cardinality")
    if cardinality != str(vector.cardinality):
        return f"the footer says {cardinality} positions, a manifest {vector.cardinality}"
    return ""


def _check_vector(blob: bytes, path: str, vector: LiveVector, findings: Findings) -> None:
    try:
        found = decode(blob, path)
    except CorruptFile as error:
        findings.add("deletion-vector-unreadable", path, f"the vector of {vector.ref}: {reason_of(error)}")
        return
    if found.cardinality != vector.cardinality:
        message = f"the vector of {vector.ref} has {found.cardinality} positions, a manifest says {vector.cardinality}"
        findings.add("deletion-vector-cardinality-differs", path, message)
    if found.cardinality and 0 <= vector.rows <= found.bitmap.max():
        message = (
            f"the vector of {vector.ref} has position {found.bitmap.max()}, the file has {vector.rows} rows"
        )
        findings.add("deletion-vector-position-too-high", path, message)


def check_statistics(data: bytes, file: StatisticsFile, columns: Container[int], findings: Findings) -> None:
    """Compare a statistics file with table metadata, and its blobs with the ids of columns."""
    path = file.statistics_path
    try:
        footer = read_footer(data, len(data), path)
    except CorruptFile as error:
        findings.add("statistics-file-unreadable", path, reason_of(error))
        return
    check_blobs(footer.blobs, path, columns, findings)
    size = len(data) - footer.offset
    if size != file.file_footer_size_in_bytes:
        message = f"its footer has {size} bytes, metadata says {file.file_footer_size_in_bytes}"
        findings.add("statistics-file-unreadable", path, message)


def check_position_deletes(data: bytes, path: str, findings: Findings) -> None:
    """Check the rows of a position delete file.

    Args:
        data: the file, whole. What cannot be opened is not looked at: its footer is checked by itself.
        path: for findings.
        findings: to add to.
    """
    import pyarrow.parquet as pq

    try:
        if parquet_footer_bytes(data[-_PARQUET_TRAILER_BYTES:], len(data), path) is None:
            return
        file = pq.ParquetFile(pa.BufferReader(data))
    except (CorruptFile, pa.ArrowException, OSError):
        return
    try:
        names = delete_column_names(file.schema_arrow, path)
        nulls = dict.fromkeys(names, 0)
        for batch in file.iter_batches(_BATCH_ROWS, columns=names, use_threads=False):
            for name in names:
                nulls[name] += batch.column(name).null_count
    except CorruptFile as error:
        findings.add("position-deletes-unfit", path, reason_of(error))
        return
    except (pa.ArrowException, OSError) as error:
        message = f"its rows cannot be read here, pyarrow says: {error}"
        findings.add("parquet-cannot-be-read-here", path, message)
        return
    for name, count in nulls.items():
        if count:
            message = f"{count} of {file.metadata.num_rows} rows have no {name}"
            findings.add("position-deletes-unfit", path, message)
