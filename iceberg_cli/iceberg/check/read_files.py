"""Looks at the files of a checked table: whether they are there, their sizes, and with --deep what is in them.

Spec: "Deletion Vectors"; Puffin "deletion-vector-v1 blob type"; "Data File Fields", `record_count`; "Position Delete
Files".
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.parquet import _PARQUET_TRAILER_BYTES, parquet_footer_bytes
from iceberg_cli.encoding.string_hash import hash_column
from iceberg_cli.engines import Event, Source
from iceberg_cli.errors import BackendUnavailable, CorruptFile
from iceberg_cli.iceberg.check.entries import POSITIONS, VECTOR
from iceberg_cli.iceberg.check.files import matches
from iceberg_cli.iceberg.check.metadata import check_blobs
from iceberg_cli.iceberg.spec.table_metadata.columns import column_types
from iceberg_cli.iceberg.spec.table_metadata.metadata import PartitionStatisticsFile, StatisticsFile
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.plan.findings import UNANSWERED, Findings, Ints, reason_of
from iceberg_cli.table.stored_files import (
    GONE,
    OUT_OF_REACH,
    check_content,
    check_row_counts,
    check_sizes,
    stored_sizes,
)

if TYPE_CHECKING:
    from iceberg_cli.iceberg.spec.deletes.puffin import BlobMetadata, Footer

_STAT_AT_ONCE: Final = 100_000
_BATCH_ROWS: Final = 1 << 18
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCheck:
    """Compares a table's storage with metadata and manifests."""

    table: IcebergTable
    findings: Findings

    def look_at_lists(self, *, read: Collection[int]) -> None:
        """Whether the manifest lists of all snapshots but those that were read are there."""
        others = [
            (snapshot.snapshot_id, snapshot.manifest_list)
            for snapshot in self.table.metadata.snapshots
            if snapshot.manifest_list is not None and snapshot.snapshot_id not in read
        ]
        sizes = self._stored([path for _, path in others])
        for (snapshot_id, path), size in zip(others, sizes.tolist(), strict=True):
            if size == GONE:
                message = f"the list of snapshot {snapshot_id} is not there"
                self.findings.add("manifest-list-missing", path, message)

    def look_at_statistics(self) -> frozenset[str]:
        """Whether the statistics files that metadata names are there, and their sizes; those that are out of reach."""
        metadata = self.table.metadata
        files: list[StatisticsFile | PartitionStatisticsFile] = [
            *metadata.statistics,
            *metadata.partition_statistics,
        ]
        sizes = self._stored([file.statistics_path for file in files])
        for file, size in zip(files, sizes.tolist(), strict=True):
            path, stated = file.statistics_path, file.file_size_in_bytes
            if size == GONE:
                self.findings.add("statistics-file-missing", path, f"of snapshot {file.snapshot_id}")
            elif size not in {stated, OUT_OF_REACH}:
                message = f"the file has {size} bytes, metadata says {stated}"
                self.findings.add("statistics-file-size-differs", path, message)
        return frozenset(
            file.statistics_path
            for file, size in zip(files, sizes.tolist(), strict=True)
            if size == OUT_OF_REACH
        )

    def look_at(self, files: pa.Table) -> Ints:
        """Check that files are there, and their sizes; the sizes, negative where there is none to see."""
        stored: Ints = np.empty(len(files), np.int64)
        sizes = files["size"].to_numpy()
        for start in range(0, len(files), _STAT_AT_ONCE):
            part = slice(start, start + _STAT_AT_ONCE)
            self._tell_progress(start, len(files))
            paths = files["path"].slice(start, _STAT_AT_ONCE).combine_chunks()
            stored[part] = found = self._stored(paths.to_pylist())
            check_sizes(
                paths,
                sizes[part],
                found,
                self.findings,
                gone="a live file, and the storage has none",
                source="its manifest says",
            )
        self._tell_progress(len(files), len(files))
        return stored

    def _stored(self, paths: Sequence[str]) -> Ints:
        return stored_sizes(self.table.storage, paths, self.findings, root=self.table.location)

    def _tell_progress(self, done: int, total: int) -> None:
        self.table.on_event(Event(phase="looking at files", done=done, total=total))


def first_of_each(files: pa.Table) -> Ints:
    """The indices of files, each path once for each size that manifests have for it."""
    names: npt.NDArray[np.uint64] = hash_column(files["path"])
    sizes = files["size"].to_numpy().astype(np.uint64) * _ODD
    _, first = np.unique(names ^ sizes, return_index=True)
    return np.sort(first)


# -- content -----------------------------------------------------------------------------------------------


def look_into(
    table: IcebergTable,
    files: pa.Table,
    once: pa.Table,
    stored: Ints,
    findings: Findings,
    *,
    unseen_statistics: Collection[str] = (),
) -> None:
    """Compare the content of files with manifests and metadata.

    Args:
        table: whose files.
        files: live entries, `LIVE_SCHEMA`.
        once: of them, each path once.
        stored: sizes of these by the storage, negative where there is none to see.
        findings: to add to.
        unseen_statistics: statistics files that are out of reach, which has been told.
    """
    columns = frozenset(column_types(table.metadata))
    there = once.filter(pa.array(stored >= 0))
    unseen = frozenset(once["path"].filter(pa.array(stored == OUT_OF_REACH)).to_pylist())
    _puffins(table, files, unseen, columns, findings)
    _parquet(table, there, stored[stored >= 0], findings)
    _position_deletes(table, there, findings)
    _statistics(table, unseen_statistics, columns, findings)


def _puffins(
    table: IcebergTable,
    files: pa.Table,
    unseen: Collection[str],
    columns: frozenset[int],
    findings: Findings,
) -> None:
    kinds = files["kind"].to_numpy()
    complete = pc.and_(
        files["ref"].is_valid(), pc.and_(files["offset"].is_valid(), files["blob_size"].is_valid())
    )
    vectors = files.filter(pc.and_(pa.array(kinds == VECTOR), complete))
    if not len(vectors):
        return
    data = files.filter(pa.array(kinds == 0))
    named = matches(vectors, data)
    rows = np.where(named >= 0, np.append(data["record_count"].to_numpy(), -1)[named], -1)
    vectors = vectors.append_column("rows", pa.array(rows))
    vectors = vectors.group_by(["path", "offset", "blob_size", "ref", "record_count"]).aggregate(
        [("rows", "max")]
    )
    vectors = vectors.sort_by([("path", "ascending"), ("offset", "ascending")]).combine_chunks()
    paths = vectors["path"]
    new = (
        np.append(True, pc.not_equal(paths[1:], paths[:-1]).to_numpy())
        if len(paths) > 1
        else np.array([True])
    )
    starts = np.flatnonzero(new)
    stops = np.append(starts[1:], len(vectors))

    def load(item: tuple[str, int, int], content: bytes) -> Findings:
        path, start, stop = item
        found = Findings()
        check_puffin(content, path, list(_live(vectors.slice(start, stop - start))), columns, found)
        return found

    places = zip(paths.take(pa.array(starts)).to_pylist(), starts.tolist(), stops.tolist(), strict=True)
    chosen = [item for item in places if item[0] not in unseen]
    check_content(table, chosen, lambda item: Source(item[0]), load, findings, phase="opening Puffin files")


def _live(vectors: pa.Table) -> Iterator[LiveVector]:
    columns = (
        vectors[name].to_pylist() for name in ("offset", "blob_size", "ref", "record_count", "rows_max")
    )
    for offset, size, ref, cardinality, rows in zip(*columns, strict=True):
        yield LiveVector(offset=offset, size=size, ref=ref, cardinality=cardinality, rows=rows)


def _parquet(table: IcebergTable, files: pa.Table, stored: Ints, findings: Findings) -> None:
    """The row counts of Parquet footers, but for encrypted ones."""
    chosen = files["parquet"].to_numpy()
    files, stored = files.filter(pa.array(chosen)), stored[chosen]
    check_row_counts(
        table,
        files["path"],
        stored,
        files["record_count"].to_numpy(),
        findings,
        source="its manifest says",
    )


def _position_deletes(table: IcebergTable, files: pa.Table, findings: Findings) -> None:
    """The rows of position delete files in Parquet."""
    chosen = (files["kind"].to_numpy() == POSITIONS) & files["parquet"].to_numpy()
    named = files.filter(pa.array(chosen)).select(["path", "size"]).to_pylist()

    def load(item: dict[str, Any], content: bytes) -> Findings:
        found = Findings()
        check_position_deletes(content, item["path"], found)
        return found

    def source(item: dict[str, Any]) -> Source:
        return Source(item["path"], item["size"])

    check_content(table, named, source, load, findings, phase="reading position delete files")


def _statistics(
    table: IcebergTable, unseen: Collection[str], columns: frozenset[int], findings: Findings
) -> None:
    for file in table.metadata.statistics:
        if file.key_metadata is not None or file.statistics_path in unseen:
            continue  # encrypted, or told of already
        try:
            data = table.storage.read(file.statistics_path)
        except FileNotFoundError:
            continue
        except BackendUnavailable as error:
            findings.add(UNANSWERED, file.statistics_path, f"it was not looked at: {error.message}")
            continue
        check_statistics(data, file, columns, findings)


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
    footer = _checked_footer(data, path, columns, findings, unreadable="puffin-unreadable")
    if footer is None:
        return
    blobs = {blob.offset: blob for blob in footer.blobs}
    for vector in vectors:
        reason = _other_place(blobs.get(vector.offset), vector)
        if reason:
            findings.add("deletion-vector-place-differs", path, f"the vector of {vector.ref}: {reason}")
        _check_vector(data[vector.offset : vector.offset + vector.size], path, vector, findings)


def _checked_footer(
    data: bytes, path: str, columns: Container[int], findings: Findings, *, unreadable: str
) -> Footer | None:
    """The footer of a Puffin file whose blobs were checked; None where it cannot be read, which is that finding."""
    from iceberg_cli.iceberg.spec.deletes.puffin import read_footer

    try:
        footer = read_footer(data, len(data), path)
    except CorruptFile as error:
        findings.add(unreadable, path, reason_of(error))
        return None
    check_blobs(footer.blobs, path, columns, findings)
    return footer


def _other_place(blob: BlobMetadata | None, vector: LiveVector) -> str:
    """The difference of a manifest entry from the footer's blob metadata at its offset."""
    from iceberg_cli.iceberg.spec.deletes.puffin import DELETION_VECTOR

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
    from iceberg_cli.encoding.deletion_vector import decode  # only --deep looks into files

    try:
        stored = decode(blob, path)
    except CorruptFile as error:
        findings.add("deletion-vector-unreadable", path, f"the vector of {vector.ref}: {reason_of(error)}")
        return
    if stored.cardinality != vector.cardinality:
        message = f"the vector of {vector.ref} has {stored.cardinality} positions, a manifest says {vector.cardinality}"
        findings.add("deletion-vector-cardinality-differs", path, message)
    if stored.cardinality and 0 <= vector.rows <= stored.bitmap.max():
        message = (
            f"the vector of {vector.ref} has position {stored.bitmap.max()}, the file has {vector.rows} rows"
        )
        findings.add("deletion-vector-position-too-high", path, message)


def check_statistics(data: bytes, file: StatisticsFile, columns: Container[int], findings: Findings) -> None:
    """Compare a statistics file with table metadata, and its blobs with the ids of columns."""
    path = file.statistics_path
    footer = _checked_footer(data, path, columns, findings, unreadable="statistics-file-unreadable")
    if footer is None:
        return
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

    from iceberg_cli.iceberg.spec.deletes.position_deletes import delete_column_names

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
