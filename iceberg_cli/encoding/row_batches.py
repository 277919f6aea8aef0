"""Rows of Parquet and ORC files, a bounded number at a time, from no more of the file than these need."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, BinaryIO, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import leaf_arrays, one_array
from iceberg_cli.errors import CorruptFile, IcebergCliError, Refused, TooLittleMemory

_BUFFER_BYTES: Final = 1 << 20  # of a column that are read at once
_MIB: Final = 1 << 20
_PAGE_BYTES: Final = 2 << 20  # of a column, decoded, beside what is read of it at once
SMALL_BYTES: Final = 4 << 20  # of a file that is read in one go
COLUMNS_AT_ONCE: Final = 128  # of a file of very many
BATCH_BYTES: Final = 8 << 20  # of a file, for the rows that are decoded at once
_MOST_ROWS: Final = 1 << 16
_FEW_ROWS: Final = 1 << 12
_UNKNOWN_ROWS: Final = 1 << 12  # at once, of a file that does not say how many it has
_SPLIT_BYTES: Final = 32 << 20
_NANOSECONDS_WITHIN: Final = (1 << 63) // 1000  # of 1970, in microseconds
_ENCRYPTED_MAGIC: Final = b"PARE"


class RandomAccess(Protocol):
    """A file of which parts are read."""

    @property
    def size_bytes(self) -> int:
        """Of the file."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """A part of the file, shorter only at its end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatch:
    """Rows of a file that follow each other.

    Args:
        first: position of the first one in the file.
        columns: those that were chosen.
        fields: what the file says of them.
        count: of rows.
    """

    first: int
    columns: Sequence[pa.Array]
    fields: Sequence[pa.Field]
    count: int


@dataclass(frozen=True, slots=True)
class FileSplit:
    """Part `number` of `of` about equal parts of a file, by whole row groups; it may be empty."""

    number: int = 0
    of: int = 1


Choose = Callable[[Sequence[pa.Field]], Sequence[int]]
"""Picks the columns to read, by their places among those of a file."""


def splits_for(size_bytes: int, records: int, limit: int | None) -> list[FileSplit]:
    """The parts in which a file is read: one where only some of its rows are needed.

    Args:
        size_bytes: of the file.
        records: in it; negative: not known.
        limit: so many are needed; None: all.
    """
    of = 1 if limit is not None and not 0 <= records <= limit else max(1, -(-size_bytes // _SPLIT_BYTES))
    return [FileSplit(number, of) for number in range(of)]


def rows_at_once(size_bytes: int, records: int, limit: int | None, *, batch_bytes: int = BATCH_BYTES) -> int:
    """How many rows of a file are decoded at once.

    Args:
        size_bytes: of the file.
        records: in it; negative: not known.
        limit: so many are needed; None: all.
        batch_bytes: of the file, for them.
    """
    fit = batch_bytes * records // max(size_bytes, 1) if records >= 0 else _UNKNOWN_ROWS
    most = _MOST_ROWS if limit is None else max(2 * limit, 64)
    return max(1, min(fit, most, _MOST_ROWS))


class _Stream(io.RawIOBase):
    """A file of which parts are read, as a stream."""

    def __init__(self, file: RandomAccess) -> None:
        super().__init__()
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size_bytes}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = len(buffer)
        data = self._file.read(self._at, length) if length else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _whole(file: RandomAccess) -> bytes | None:
    """The bytes of a small file, of which parts would take more requests."""
    return file.read(0, file.size_bytes) if file.size_bytes <= SMALL_BYTES else None


def stream_of(file: RandomAccess) -> BinaryIO:
    """The file as a stream that seeks."""
    data = _whole(file)
    return io.BufferedReader(_Stream(file), _BUFFER_BYTES) if data is None else io.BytesIO(data)


def columns_at_once(names: Sequence[str]) -> list[Sequence[str]]:
    """Those columns together, in their order, of which all values of some rows are held at once."""
    return [names[first : first + COLUMNS_AT_ONCE] for first in range(0, len(names), COLUMNS_AT_ONCE)]


def chosen_fields(own: Sequence[pa.Field], choose: Choose, path: str) -> list[pa.Field]:
    """What a file says of the columns that are chosen, which are read by their names.

    Raises:
        CorruptFile: it has another column of such a name.
    """
    fields = [own[place] for place in sorted(choose(own))]
    if len({field.name for field in own}) < len(own):
        names = Counter(field.name for field in own)
        for field in fields:
            if names[field.name] > 1:
                raise CorruptFile(path, f"column {field.name}", "the file has several columns of this name")
    return fields


def parquet_batches(
    file: RandomAccess,
    path: str,
    choose: Choose,
    *,
    split: FileSplit = FileSplit(),
    batch_rows: int,
    exact: bool = False,
    most_page_bytes: int | None = None,
) -> Iterator[RowBatch]:
    """Rows of a Parquet file, row group by row group; times in 96 bits have microseconds.

    Args:
        file: of which little more is read than the chosen columns of the rows that are taken.
        path: for messages.
        choose: see `Choose`.
        split: whose row groups are read.
        batch_rows: at most so many at once.
        exact: whether nanoseconds are an error, instead of being cut off.
        most_page_bytes: that may be held of a row group: of each column a page, and what is read of it at once; where
            half of what that leaves is enough for a row group as it is stored, that is read in one go.

    Raises:
        CorruptFile: it is damaged, or has nanoseconds. Refused: it is encrypted. TooLittleMemory: pages take more.
    """
    try:
        with readable(path, "Parquet"):
            opened = _opened(file, "us")
    except CorruptFile:
        if file.read(max(0, file.size_bytes - 4), 4) == _ENCRYPTED_MAGIC:
            raise encrypted(path) from None
        raise
    with readable(path, "Parquet"):
        fields = chosen_fields(list(opened.schema_arrow), choose, path)
        groups = [opened.metadata.row_group(index).num_rows for index in range(opened.num_row_groups)]
        batch_rows = min(batch_rows, rows_that_fit(opened.metadata, file.size_bytes))
        times = _with_int96(opened.metadata, fields) if exact else []
        fine = _opened(file, "ns") if times else None
    if most_page_bytes is not None:
        streamed = [
            index
            for index, count in enumerate(groups)
            if not _is_read_by_columns(len(fields), count, batch_rows)
        ]
        room = most_page_bytes - _page_bytes(opened.metadata, streamed, path, most_page_bytes)
        if fit_in(opened.metadata, file.size_bytes, room // 2):
            with readable(path, "Parquet"):
                opened = _opened(file, "us", whole_groups_of=opened.metadata)
    first = 0
    for index, count in enumerate(groups):
        if index * split.of // len(groups) == split.number:
            found = 0
            if times:
                _check_microseconds(opened, fine, times, index, path)
            for batch in _of_group(opened, path, index, fields, batch_rows, count):
                yield RowBatch(
                    first=first + found,
                    columns=[batch.column(batch.schema.get_field_index(field.name)) for field in fields],
                    fields=fields,
                    count=batch.num_rows,
                )
                found += batch.num_rows
            if found != count:
                raise CorruptFile(path, None, f"row group {index} has {found} rows, its footer says {count}")
        first += count


def rows_that_fit(footer: Any, size_bytes: int) -> int:
    """How many rows of a file are decoded at once at most: few where values take much more then than in the file."""
    return _FEW_ROWS if size_bytes < footer.num_rows * footer.num_columns else _MOST_ROWS


def _page_bytes(footer: Any, streamed: Sequence[int], path: str, most_bytes: int) -> int:
    """What a page of each column takes of the largest row group, of those that have more bytes than may be held.

    Args:
        footer: of the file.
        streamed: the row groups that are read page by page.
        path: for messages.
        most_bytes: that may be held.

    Raises:
        TooLittleMemory: it is more than that.
    """
    groups = [footer.row_group(index) for index in streamed]
    needed = max(
        (
            sum(
                min(group.column(place).total_uncompressed_size, _PAGE_BYTES)
                for place in range(group.num_columns)
            )
            for group in groups
            if group.total_byte_size > most_bytes
        ),
        default=0,
    )
    if needed > most_bytes:
        error = TooLittleMemory(
            f"Cannot read {path}: the pages of its {footer.num_columns:,} columns take about {needed / _MIB:.1f} MiB "
            f"at a time, and {most_bytes / _MIB:.1f} MiB are there for them"
        )
        error.needed_bytes = needed
        raise error
    return needed


def fit_in(footer: Any, size_bytes: int, most_bytes: int) -> bool:
    """Whether each row group of a Parquet file of some size has no more bytes than that, as it is stored."""
    groups = (footer.row_group(index) for index in range(footer.num_row_groups))
    return size_bytes <= most_bytes or all(
        sum(group.column(place).total_compressed_size for place in range(group.num_columns)) <= most_bytes
        for group in groups
    )


def _opened(file: RandomAccess, unit: str, *, whole_groups_of: Any = None) -> Any:
    """A Parquet file whose times in 96 bits are read in a unit; with its footer, of which row groups are read whole."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(
        _source(file),
        metadata=whole_groups_of,
        buffer_size=_BUFFER_BYTES,
        pre_buffer=whole_groups_of is not None,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit=unit,
    )


def _source(file: RandomAccess) -> pa.NativeFile:
    """The file as Arrow reads it."""
    data = _whole(file)
    return pa.PythonFile(_Stream(file), mode="r") if data is None else pa.BufferReader(data)


def _with_int96(footer: Any, fields: Sequence[pa.Field]) -> list[str]:
    """The names of those columns that are times in 96 bits, or have such in them.

    By its first row group: the footer and its schema would keep each other until garbage is collected.
    """
    if not footer.num_row_groups:
        return []
    chunks = [footer.row_group(0).column(place) for place in range(footer.num_columns)]
    paths = [chunk.path_in_schema for chunk in chunks if chunk.physical_type == "INT96"]
    return [
        field.name
        for field in fields
        if any(path == field.name or path.startswith(f"{field.name}.") for path in paths)
    ]


def _check_microseconds(opened: Any, fine: Any, names: Sequence[str], index: int, path: str) -> None:
    """Raise CorruptFile where times of a row group have nanoseconds, which a unit of microseconds cuts off.

    Arrow has nanoseconds of some three centuries around 1970, and wraps other times: those are not looked at.
    """
    with readable(path, "Parquet"):
        both = (
            each.iter_batches(_MOST_ROWS, row_groups=[index], columns=names, use_threads=False)
            for each in (opened, fine)
        )
        for tables, name in product(zip(*both, strict=True), names):
            columns = [leaf_arrays(table.column(table.schema.get_field_index(name))) for table in tables]
            for micros, nanos in zip(*columns, strict=True):
                if pa.types.is_timestamp(nanos.type) and nanos.type.unit == "ns":
                    known, exact = (
                        pc.fill_null(each.cast(pa.int64()), 0).to_numpy() for each in (micros, nanos)
                    )
                    within = np.abs(known) < _NANOSECONDS_WITHIN
                    if (known[within] * 1000 != exact[within]).any():
                        reason = (
                            "it has times with nanoseconds in 96 bits, of which microseconds would be kept"
                        )
                        raise CorruptFile(path, f"column {name}", reason)


def _of_group(
    opened: Any, path: str, index: int, fields: Sequence[pa.Field], batch_rows: int, count: int
) -> Iterator[pa.RecordBatch]:
    if not fields:  # of a file whose columns are all somewhere else the rows are there all the same
        for start in range(0, count, batch_rows):
            yield pa.RecordBatch.from_struct_array(
                pa.array([{}] * min(batch_rows, count - start), pa.struct([]))
            )
        return
    names = [field.name for field in fields]  # `a.b` may bring `a` along, if that is a struct
    if _is_read_by_columns(len(names), count, batch_rows):
        yield from _by_columns(opened, path, index, names, batch_rows, count)
        return
    with readable(path, "Parquet"):
        batches = opened.iter_batches(batch_rows, row_groups=[index], columns=names, use_threads=False)
    while True:
        with readable(path, "Parquet"):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _is_read_by_columns(columns: int, count: int, batch_rows: int) -> bool:
    """Whether a row group of so many rows is read whole, some columns at a time.

    What reads a column page by page takes a hundred KB, which is more than few rows of it.
    """
    return columns > COLUMNS_AT_ONCE and count <= 2 * batch_rows


def _by_columns(
    opened: Any, path: str, index: int, names: Sequence[str], batch_rows: int, count: int
) -> Iterator[pa.RecordBatch]:
    columns: list[pa.Array] = []
    for some in columns_at_once(names):
        with readable(path, "Parquet"):
            read = opened.read_row_group(index, columns=some, use_threads=False)
        if read.num_rows != count:
            reason = f"row group {index} has {read.num_rows} rows in some columns, its footer says {count}"
            raise CorruptFile(path, None, reason)
        columns += [one_array(read.column(name)) for name in some]
    rows = pa.RecordBatch.from_arrays(columns, names)
    for start in range(0, count, batch_rows):
        yield rows.slice(start, batch_rows)


def orc_batches(file: RandomAccess, path: str, choose: Choose, *, batch_rows: int) -> Iterator[RowBatch]:
    """Rows of an ORC file, stripe by stripe; see `parquet_batches`.

    Raises:
        CorruptFile: it is damaged.
    """
    from pyarrow import orc

    with readable(path, "ORC"):
        opened = orc.ORCFile(_source(file))
        own = list(opened.schema)
        names = [field.name for field in chosen_fields(own, choose, path)]
    first = 0
    for index in range(opened.nstripes):
        with readable(path, "ORC"):
            # Of no column there would be no rows either.
            stripe = opened.read_stripe(index, columns=names or [own[0].name])
        fields = [stripe.schema.field(name) for name in names]
        for start in range(0, stripe.num_rows, batch_rows):
            part = stripe.slice(start, batch_rows)
            columns = [part.column(part.schema.get_field_index(name)) for name in names]
            yield RowBatch(first=first + start, columns=columns, fields=fields, count=part.num_rows)
        first += stripe.num_rows


def encrypted(path: str) -> Refused:
    """The error that a data file is encrypted."""
    return Refused(
        f"Cannot read {path}: it is encrypted, and iceberg-cli has no keys",
        next_step="Read the table with an engine that has its keys.",
    )


class readable:  # noqa: N801 - a context manager
    """Turns what a reader of files says into `CorruptFile`."""

    def __init__(self, path: str, kind: str) -> None:
        self._path, self._kind = path, kind

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, (IcebergCliError, FileNotFoundError, GeneratorExit)):
            return
        if isinstance(error, (pa.ArrowException, OSError, ValueError, IndexError)):
            raise CorruptFile(
                self._path, None, f"no readable {self._kind} file: {str(error)[:200]}"
            ) from error
