"""Rows of a group brought into an order, by DuckDB, which keeps on disk what memory does not hold.

DuckDB sees values as integers and bytes of the same memory, so none is changed on its way; columns have numbers for
names there, since it does not tell those apart that differ in case alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from threading import Lock
from typing import Any, Final

import numpy as np
import pyarrow as pa

from iceberg_cli.encoding.arrow import array_of, one_array
from iceberg_cli.encoding.schema_fit import fit
from iceberg_cli.errors import TooLittleMemory, unavailable
from iceberg_cli.layout.files.budget import SHARES, saying_what_would_do
from iceberg_cli.layout.files.ordering import RowOrder, sorter
from iceberg_cli.layout.files.partition_writer import NewFiles, Piece, RowsRead
from iceberg_cli.layout.files.spill import LEAST_BYTES, spill_folder
from iceberg_cli.layout.ranks import RankScale, SampleBuilder
from iceberg_cli.layout.row_order import as_integers
from iceberg_cli.layout.row_origins import RowOriginsBuilder
from iceberg_cli.plan.text import size

_BATCH_BYTES: Final = 16 << 20  # of rows that come out at once
_MOST_BATCH_ROWS: Final = 1 << 16


def brought_into(
    order: RowOrder | None,
    live: Generator[Piece, None, None],
    sampled: Callable[[RowOrder], SampleBuilder],
    *,
    schema: pa.Schema,
    input_rows: Sequence[int],
    memory_bytes: int,
    side_by_side: int,
    files: NewFiles[Any],
) -> Generator[Piece, None, None]:
    """The rows of a group as they are written.

    Args:
        order: that they are brought into; None: they stay in the one that they are in.
        live: the rows.
        sampled: some of them, with the columns of an order alone.
        schema: of the rows.
        input_rows: of each input that was read by now, with deleted ones.
        memory_bytes: of the group.
        side_by_side: groups that share what memory there is.
        files: which are written of the rows.

    Raises:
        BackendUnavailable, TooLittleMemory, UsageError: see `in_order`.
    """
    if order is None:
        yield from live
        return
    files.positions = RowOriginsBuilder(input_rows)
    files.keys = () if order.curve else order.columns
    scale = None if order.curve is None else sampled(order).scale(order.curve)
    with saying_what_would_do(side_by_side):
        yield from in_order(live, schema, order, scale, memory_bytes=memory_bytes // SHARES, files=files)


def in_order(
    pieces: Generator[Piece, None, None],
    schema: pa.Schema,
    order: RowOrder,
    scale: RankScale | None,
    *,
    memory_bytes: int,
    files: NewFiles[Any],
) -> Generator[Piece, None, None]:
    """Rows in an order. What files are written of them is told how many are to come, since all are read before.

    Args:
        pieces: the rows.
        schema: of them.
        order: what they are brought into.
        scale: of its curve, if it has one.
        memory_bytes: for the rows that are held.
        files: which are written of them.

    Raises:
        BackendUnavailable: the folder for temporary files is full. TooLittleMemory: rows are too wide for it.
        UsageError: DuckDB is not installed.
    """
    duckdb = sorter()
    source = _Source(pieces, order, scale)
    first = next(source, None)
    if first is None:
        return
    read, given_bytes = files.read, max(memory_bytes, LEAST_BYTES)
    row_bytes = max(1, first.nbytes // max(1, first.num_rows))
    with closing(source), spill_folder() as folder:
        settings = {
            "memory_limit": f"{given_bytes >> 20}MiB",
            "temp_directory": folder,
            "threads": 1,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        with duckdb.connect(config=settings) as connection:
            rows = pa.RecordBatchReader.from_batches(first.schema, source.after(first))
            batch_rows = max(1, min(_MOST_BATCH_ROWS, _BATCH_BYTES // row_bytes))
            with _errors_of(duckdb, source, given_bytes):
                batches = (
                    connection.from_arrow(rows).order(", ".join(source.terms)).to_arrow_reader(batch_rows)
                )
            with batches:  # which else goes on reading
                while True:
                    with _errors_of(duckdb, source, given_bytes):
                        batch = next(batches, None)
                    if batch is None:
                        return
                    if files.read is read:
                        files.read = RowsRead(left=read.live)
                    files.read.left -= batch.num_rows
                    files.read.read += batch.num_rows
                    yield _piece(batch, schema)


@contextmanager
def _errors_of(duckdb: Any, source: _Source, given_bytes: int) -> Iterator[None]:
    """Raise what the rows raised, or what helps where DuckDB cannot sort them by so many bytes."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException) as error:
        if source.error is not None:
            raise source.error from None
        first_line = str(error).splitlines()[0]
        if isinstance(error, duckdb.OutOfMemoryException) and "disk" not in first_line:
            too_little = TooLittleMemory(f"Rows so wide are not sorted by {size(given_bytes)}: {first_line}")
            too_little.needed_bytes = 2 * given_bytes
            raise too_little from error
        raise unavailable(
            f"Cannot go on: DuckDB could not sort the rows: {first_line}",
            error,
            next_step="Free space in the folder for temporary files, or name another one by TMPDIR.",
        ) from error


class _Source:
    """The rows as DuckDB gets them; an error of theirs is kept, for it makes another one of it.

    A thread of DuckDB reads them, and may still do when it has failed.
    """

    def __init__(
        self, pieces: Generator[Piece, None, None], order: RowOrder, scale: RankScale | None
    ) -> None:
        self._pieces, self._order, self._scale = pieces, order, scale
        self._reading = Lock()
        self._is_over = False
        self.error: BaseException | None = None
        self.terms: list[str] = []

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._reading:
            if self._is_over:
                raise StopIteration
            try:
                return self._batch(next(self._pieces))
            except StopIteration:
                raise
            except BaseException as error:
                self.error = error
                raise

    def close(self) -> None:
        """Read no more, once what is being read is there."""
        with self._reading:
            self._is_over = True
            self._pieces.close()

    def after(self, first: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield first
        yield from self

    def _batch(self, piece: Piece) -> pa.RecordBatch:
        """The columns of rows, where they are from, and by what they are sorted."""
        columns = [one_array(column) for column in piece.rows.columns]
        arrays = {f"c{place}": column.view(_plain(column.type)) for place, column in enumerate(columns)}
        arrays |= {"input": array_of(piece.inputs), "position": array_of(piece.positions)}
        terms = []
        if self._scale is not None:
            own = [piece.rows.column(each.place) for each in self._order.columns]
            arrays["place"] = array_of(self._scale.places(own).astype(np.int64))
            terms.append("place")
        for number, each in enumerate(self._order.columns):
            name = f"c{each.place}"
            if each.key is not None or pa.types.is_floating(columns[each.place].type):
                name, key = f"k{number}", each.of(piece.rows)
                arrays[name] = (
                    as_integers(key) if pa.types.is_floating(key.type) else key.view(_plain(key.type))
                )
            direction, nulls = "DESC" if each.descending else "ASC", "FIRST" if each.nulls_first else "LAST"
            terms.append(f"{name} {direction} NULLS {nulls}")
        self.terms = [*terms, "input", "position"]
        return pa.RecordBatch.from_pydict(arrays)


def _piece(batch: pa.RecordBatch, schema: pa.Schema) -> Piece:
    columns = [
        batch.column(place).cast(_plain(field.type)).view(_nullable(field.type))
        for place, field in enumerate(schema)
    ]
    inputs, positions = (batch.column(name).to_numpy() for name in ("input", "position"))
    rows = pa.Table.from_arrays(columns, names=schema.names)
    return Piece(inputs, positions, fit(rows, schema))  # which knows required fields of structs that are null


def _nullable(kind: pa.DataType) -> pa.DataType:
    """A type in which each value may be null, but the keys of maps."""
    types = pa.types
    if types.is_struct(kind):
        members = (kind.field(place) for place in range(kind.num_fields))
        return pa.struct([pa.field(each.name, _nullable(each.type)) for each in members])
    if types.is_map(kind):
        key = pa.field(kind.key_field.name, _nullable(kind.key_type), nullable=False)
        return pa.map_(key, pa.field(kind.item_field.name, _nullable(kind.item_type)))
    if types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _nullable(kind.value_type)))
    return kind


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type of the same memory whose values DuckDB keeps as they are."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct(_plain_members([kind.field(place) for place in range(kind.num_fields)]))
    if types.is_map(kind):
        return pa.list_(pa.field("element", pa.struct(_plain_members([kind.key_field, kind.item_field]))))
    if types.is_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if types.is_string(kind):
        return pa.binary()
    if types.is_temporal(kind) or types.is_floating(kind):
        return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
    return kind


def _plain_members(fields: Sequence[pa.Field]) -> list[pa.Field]:
    return [pa.field(f"f{place}", _plain(field.type)) for place, field in enumerate(fields)]
