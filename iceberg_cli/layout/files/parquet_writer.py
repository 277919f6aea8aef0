"""Writes rows to a Parquet file as a table asks for it, and measures them for what the table says of the file."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Generic, Protocol, TypeVar

import pyarrow as pa

from iceberg_cli.encoding.schema_fit import MisfitError, fit
from iceberg_cli.errors import CorruptFile, command_for_extra

if TYPE_CHECKING:
    from iceberg_cli.storage import Writer

_AIMED_AT: Final = 0.95  # of a row group's size: what is not written yet may compress worse
_VALUES_AT_ONCE: Final = 1024  # that Arrow adds to a page before it looks whether the page is full
_BLOOM_BLOCK_BYTES: Final = 32
_TRIAL_BYTES: Final = 8 << 20  # of rows in memory that show how many bytes they take encoded
_LEAST_BYTES_PER_ROW: Final = 1e-3
_LEAST_PYARROW: Final = 26  # older ones have no Bloom filters and no bound of rows for a page


def obstacle_of(pyarrow_version: str, where: str) -> str | None:
    """Why Parquet files are not written by a version of pyarrow, or None.

    Args:
        pyarrow_version: as it says of itself.
        where: it is, for the sentence.
    """
    if int(pyarrow_version.partition(".")[0]) >= _LEAST_PYARROW:
        return None
    return (
        f"Parquet files are written by pyarrow {_LEAST_PYARROW} or later, and {where} is {pyarrow_version} "
        f"({command_for_extra('rewrite')})"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomFilter:
    """A Bloom filter of a column: its rate of false positives, and how many values it is made for; None: all rows."""

    fpp: float
    ndv: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetOptions:
    """How a Parquet file is written; columns are named by their paths in it, such as `st.p` and `a.list.element`.

    Args:
        codec: in lower case; `uncompressed` for none.
        level: of the codec; None: it has none, or its own default.
        row_group_bytes: of a row group, encoded.
        page_bytes: of a page before compression.
        page_rows: at most, of a page.
        page_version: Arrow's text for it.
        dictionary_bytes: at most, of a dictionary.
        bloom_bytes: at most, of a Bloom filter.
        with_dictionary: columns that are encoded by one; True: all.
        with_statistics: columns whose footers have minimum, maximum and count of nulls; True: all.
        bloom_filters: by column.
        metadata: of the footer, by its keys.
    """

    codec: str
    level: int | None
    row_group_bytes: int
    page_bytes: int
    page_rows: int
    page_version: str
    dictionary_bytes: int
    bloom_bytes: int
    with_dictionary: bool | list[str] = True
    with_statistics: bool | list[str] = True
    bloom_filters: Mapping[str, BloomFilter] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


Measured_co = TypeVar("Measured_co", covariant=True)


class Measure(Protocol[Measured_co]):
    """What a table is to say of a file, found while its rows are written."""

    def see(self, rows: pa.Table) -> None:
        """Take note of rows, which become one row group."""
        ...

    def measured(self, footer: Any, path: str) -> Measured_co:
        """What is said of the file.

        Args:
            footer: as `pyarrow.parquet` has it.
            path: of the file, for messages.

        Raises:
            CorruptFile: it has other columns than were written.
        """
        ...


class ParquetWriter(Generic[Measured_co]):
    """Writes one file, a row group at a time.

    Args:
        sink: gets the bytes, and stays open; the new object of a storage is not committed.
        path: of the file, for messages.
        schema: of the file.
        options: how it is written.
        measure: of the file.
        bytes_per_row: about, encoded, as a writer of such rows measured it; None: some rows are encoded twice to find
            out.
        most_held_bytes: of rows that are not written yet; a row group that would need more is closed early.
    """

    def __init__(
        self,
        sink: BinaryIO | Writer,
        path: str,
        *,
        schema: pa.Schema,
        options: ParquetOptions,
        measure: Measure[Measured_co],
        bytes_per_row: float | None = None,
        most_held_bytes: int,
    ) -> None:
        self._sink = sink
        self._path = path
        self._schema = schema
        self._options = options
        self._measure = measure
        self._bytes_per_row = bytes_per_row
        self._most_held_bytes = most_held_bytes
        self._held: list[pa.Table] = []
        self._held_rows = 0
        self._held_bytes = 0
        self._written_rows = 0
        self._writer: Any = None
        self._footers: list[Any] = []

    @property
    def written_bytes(self) -> int:
        """Of the row groups that are closed."""
        return 0 if self._writer is None else self._sink.tell()

    @property
    def bytes_per_row(self) -> float | None:
        """Encoded, in the last row group; None before there is one."""
        return self._bytes_per_row

    @property
    def written_rows(self) -> int:
        """In the row groups that are closed."""
        return self._written_rows

    def write(self, rows: pa.Table) -> None:
        """Add rows with the columns of the file, in its order, and write the row groups that they complete.

        Raises:
            CorruptFile: a value is null that must not be, or is no value of its column's type.
        """
        try:
            self.add(fit(rows, self._schema))
        except MisfitError as error:
            raise CorruptFile(self._path, "rows", f"they do not fit the schema: {error}") from error
        while self.write_group():
            pass

    def add(self, rows: pa.Table) -> None:
        """Add rows that are known to fit the schema of the file, and write nothing yet."""
        self._held.append(rows)
        self._held_rows += rows.num_rows
        self._held_bytes += rows.nbytes
        enough = min(_TRIAL_BYTES, self._options.row_group_bytes, self._most_held_bytes)
        if self._bytes_per_row is None and self._held_bytes >= enough:
            self._bytes_per_row = self._tried()

    @property
    def held_bytes(self) -> int:
        """Of rows that are in no row group yet."""
        return self._held_bytes

    def write_held(self) -> None:
        """Write a row group of all rows that are held, however few these are."""
        self._write_group(self._held_rows)

    def write_group(self, end: Callable[[pa.Table], int] | None = None) -> bool:
        """Write a row group if the rows that are held make one, and say whether they did.

        Args:
            end: of the rows of a group and the one after them, how many are to be in it; None: all but that one.
        """
        if not self._is_full():
            return False
        rows = self._group_rows()
        if end is not None and self._held_rows > rows:
            rows = end(pa.concat_tables(self._held).slice(0, rows + 1))
        self._write_group(rows)
        return True

    def _is_full(self) -> bool:
        """Whether the rows that are held make a row group, or are as many as may be held."""
        if self._bytes_per_row is None or not self._held_rows:
            return False
        return self._held_rows >= self._group_rows() or self._held_bytes >= self._most_held_bytes

    def _group_rows(self) -> int:
        assert self._bytes_per_row is not None
        return max(1, int(self._options.row_group_bytes * _AIMED_AT / self._bytes_per_row))

    def _tried(self) -> float:
        """Bytes per row that some of the rows take, encoded for nothing else."""
        rows = pa.concat_tables(self._held)
        some = rows.slice(0, max(1, rows.num_rows * _TRIAL_BYTES // max(self._held_bytes, _TRIAL_BYTES)))
        sink = io.BytesIO()
        with self._opened(sink, some, []) as writer:
            writer.write_table(some, row_group_size=some.num_rows)
            return max(float(sink.tell() / some.num_rows), _LEAST_BYTES_PER_ROW)

    def _write_group(self, most_rows: int) -> None:
        held = pa.concat_tables(self._held)
        rows, rest = held.slice(0, most_rows), held.slice(most_rows)
        self._held, self._held_rows, self._held_bytes = [rest], rest.num_rows, rest.nbytes
        if self._writer is None:
            self._writer = self._opened(self._sink, rows, self._footers)
        before = self._sink.tell()
        self._measure.see(rows)
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._bytes_per_row = max((self._sink.tell() - before) / rows.num_rows, _LEAST_BYTES_PER_ROW)
        self._written_rows += rows.num_rows

    def _opened(self, sink: BinaryIO | Writer, rows: pa.Table, footers: list[Any]) -> Any:
        """A writer of files such as these; where it is closed, its footer is in `footers`."""
        import pyarrow.parquet as pq

        options = self._options
        return pq.ParquetWriter(
            sink,
            self._schema,
            version="2.6",
            store_schema=False,
            compression="none" if options.codec == "uncompressed" else options.codec,
            compression_level=options.level,
            use_dictionary=options.with_dictionary,
            dictionary_pagesize_limit=options.dictionary_bytes,
            write_statistics=options.with_statistics,
            data_page_size=options.page_bytes,
            data_page_version=options.page_version,
            max_rows_per_page=options.page_rows,
            write_batch_size=self._values_at_once(rows),
            write_page_index=True,
            write_page_checksum=True,
            store_decimal_as_integer=True,
            bloom_filter_options=self._bloom_filters(rows.num_rows) or None,
            metadata_collector=footers,
        )

    def _values_at_once(self, rows: pa.Table) -> int:
        """So many that a page of large values does not become many times as large as it should be."""
        largest = max(column.nbytes for column in rows.columns) / rows.num_rows
        return max(1, min(_VALUES_AT_ONCE, int(self._options.page_bytes / max(largest, 1.0))))

    def _bloom_filters(self, rows: int) -> dict[str, dict[str, float | int]]:
        return {
            path: {"ndv": distinct_values_within(bloom, rows, self._options.bloom_bytes), "fpp": bloom.fpp}
            for path, bloom in self._options.bloom_filters.items()
        }

    def close(self) -> Measured_co | None:
        """Write what is left and the footer; None where there was no row, and so nothing is written.

        Raises:
            CorruptFile: the footer has other columns, or another number of rows, than were written.
        """
        if self._held_rows:
            self._write_group(self._held_rows)
        return self.close_at_group_end()

    def close_at_group_end(self) -> Measured_co | None:
        """Write the footer, and none of the rows that are in no row group yet: they are for another file.

        Raises:
            CorruptFile: see `close`.
        """
        if self._writer is None:
            return None
        self._writer.add_key_value_metadata(dict(self._options.metadata))
        self._writer.close()
        return self._measure.measured(self._footers[0], self._path)

    def abandon(self) -> None:
        """Write nothing more: Arrow would write a footer when the writer is no longer used."""
        if self._writer is not None:
            self._writer.is_open = False


def distinct_values_within(bloom: BloomFilter, rows: int, most_bytes: int) -> int:
    """For how many values a Bloom filter is made: for as many as there may be, but it has at most `most_bytes`.

    A filter of n values with k = 8 bits a block has -8n / ln(1 - fpp^(1/8)) bits, and Arrow makes that the next power
    of two.
    """
    bits_per_value = -8 / math.log(1 - bloom.fpp ** (1 / 8))
    largest = max(_BLOOM_BLOCK_BYTES, 1 << (most_bytes.bit_length() - 1))
    return max(1, min(bloom.ndv or rows, int(largest * 8 / bits_per_value)))
