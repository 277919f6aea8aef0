"""The new data files of a group: how they are created, and how what is in them is read back.

They are read by the plain library and by field ids, and not by what reads the inputs: so what is proved of them
holds for the writer and for the storage alike.
"""

from __future__ import annotations

import io
from typing import Any, Final

import pyarrow as pa

from iceberg_cli.encoding.row_batches import (
    columns_at_once,
    fit_in,
    readable,
    rows_at_once,
    rows_that_fit,
    stream_of,
)
from iceberg_cli.errors import CorruptFile
from iceberg_cli.layout.files.inputs import parts_of
from iceberg_cli.layout.row_proof import RowHashes, RowProof, hash_order, row_proof
from iceberg_cli.operation.groups.creator import NewFile
from iceberg_cli.storage import Storage

# What a column chunk takes whose values are all in its dictionary: as large as one may be, and so much for each value.
_DICTIONARY_BYTES: Final = 1 << 20
_INDEX_BYTES: Final = 3


class Sink(io.RawIOBase):
    """A new file as a stream that is written to; closing it does nothing to the file."""

    def __init__(self, writer: NewFile) -> None:
        super().__init__()
        self._writer = writer
        self._is_aborted = False

    def writable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """How many bytes were written."""
        return self._writer.size_bytes

    def write(self, data: Any) -> int:
        """Add bytes; how many these are."""
        # What Arrow opened writes its last bytes when it goes, whatever happened before.
        return len(data) if self._is_aborted else self._writer.write(bytes(data))

    def abort(self) -> None:
        """Abort the file; what is written from now on goes nowhere."""
        self._is_aborted = True
        self._writer.abort()


def _of_few_values(footer: Any) -> list[str]:
    """The columns of text or bytes that seem to be in dictionaries throughout, which are decoded and hashed so."""
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    if not groups:
        return []
    found = []
    for place in range(footer.num_columns):
        chunks = [group.column(place) for group in groups]
        if (
            chunks[0].physical_type == "BYTE_ARRAY"
            and "." not in chunks[0].path_in_schema
            and all(
                each.has_dictionary_page
                and each.total_uncompressed_size <= _DICTIONARY_BYTES + _INDEX_BYTES * each.num_values
                for each in chunks
            )
        ):
            found.append(chunks[0].path_in_schema)
    return found


def _stored_proof(opened: Any, batch_rows: int) -> RowProof:
    """The proof of the rows of a Parquet file, of which some columns are read at a time where it has very many."""
    found = RowProof()
    schema = opened.schema_arrow
    some_columns = columns_at_once([schema.field(place).name for place in hash_order(schema)])
    for index in range(opened.num_row_groups):
        if len(some_columns) < 2:
            for batch in opened.iter_batches(batch_rows, row_groups=[index], use_threads=False):
                found += row_proof(pa.Table.from_batches([batch]))
            continue
        hashes = RowHashes(opened.metadata.row_group(index).num_rows)
        more_rows = batch_rows * len(some_columns)
        for names in some_columns:
            first = 0
            batches = opened.iter_batches(more_rows, row_groups=[index], columns=names, use_threads=False)
            for batch in batches:
                hashes.add(first, pa.Table.from_batches([batch]).select(names))
                first += batch.num_rows
        found += hashes.proof()
    return found


def check_stored(
    storage: Storage,
    path: str,
    *,
    size_bytes: int,
    count: int,
    proof: RowProof | None,
    batch_bytes: int,
    most_stored_bytes: int = 0,
) -> None:
    """Hold a finished Parquet file against what was put into it: its size, its footer, and the rows in its bytes.

    Args:
        storage: where it is.
        path: of the file.
        size_bytes: that were written.
        count: of rows.
        proof: of these rows; None where they are counted alone.
        batch_bytes: of the file, for the rows that are decoded at once.
        most_stored_bytes: of a row group, as it is stored, that may be read in one go.

    Raises:
        CorruptFile: they differ, or it cannot be read. FileNotFoundError: it is gone. BackendUnavailable.
    """
    import pyarrow.parquet as pq

    parts = parts_of(storage, path)
    if parts.size_bytes != size_bytes:
        reason = f"{size_bytes} bytes were written, and the storage has {parts.size_bytes}"
        raise CorruptFile(path, None, reason)
    stream = stream_of(parts)
    with readable(path, "Parquet"):
        footer = pq.read_metadata(stream)
    stored = footer.num_rows
    if stored != count:
        raise CorruptFile(path, "num_rows", f"{count} rows were written, and the footer says {stored}")
    if proof is None:
        return
    with readable(path, "Parquet"):
        opened = pq.ParquetFile(
            stream,
            metadata=footer,
            read_dictionary=_of_few_values(footer),
            pre_buffer=fit_in(footer, size_bytes, most_stored_bytes),
        )
        rows = rows_at_once(size_bytes, count, None, batch_bytes=batch_bytes)
        rows = min(rows, rows_that_fit(footer, size_bytes))
        found = _stored_proof(opened, rows)
    if found != proof:
        reason = f"read back they are not the {count} rows that were written: their hashes are others"
        raise CorruptFile(path, "rows", reason)
