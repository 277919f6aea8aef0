"""Rows of a group brought into an order, by DuckDB, which keeps on disk what memory does not hold.

DuckDB sees values as integers and bytes of the same memory, so none is changed on its way; columns have numbers for
names there, since it does not tell those apart that differ in case alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import numpy as np
import pyarrow as pa

from iceberg_cli.encoding.arrow import array_of, one_array
from iceberg_cli.errors import unavailable
from iceberg_cli.layout.files.ordering import RowOrder, sorter
from iceberg_cli.layout.files.partition_writer import NewFiles, Piece, RowsRead
from iceberg_cli.layout.ranks import RankScale
from iceberg_cli.layout.row_order import as_integers

_BATCH_ROWS: Final = 1 << 16
_LEAST_BYTES: Final = 128 << 20  # with half of it DuckDB finds no room to merge what it sorted


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
        BackendUnavailable: the folder for temporary files is full. UsageError: DuckDB is not installed.
    """
    duckdb = sorter()
    source = _Source(pieces, order, scale)
    first = next(source, None)
    if first is None:
        return
    read = files.read
    with closing(pieces), tempfile.TemporaryDirectory(prefix="iceberg-cli-") as folder:
        settings = {
            "memory_limit": f"{max(memory_bytes, _LEAST_BYTES) >> 20}MiB",
            "temp_directory": folder,
            "threads": 1,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        with duckdb.connect(config=settings) as connection:
            rows = pa.RecordBatchReader.from_batches(first.schema, source.after(first))
            try:
                found = connection.from_arrow(rows).order(", ".join(source.terms))
                for batch in found.to_arrow_reader(_BATCH_ROWS):
                    if files.read is read:
                        files.read = RowsRead(left=read.live)
                    files.read.left -= batch.num_rows
                    files.read.read += batch.num_rows
                    yield _piece(batch, schema)
            except (duckdb.Error, pa.ArrowException) as error:
                if source.error is not None:
                    raise source.error from None
                raise unavailable(
                    f"Cannot go on: DuckDB could not sort the rows: {str(error).splitlines()[0]}",
                    error,
                    next_step="Free space in the folder for temporary files (TMPDIR names one), or give more --memory.",
                ) from error


class _Source:
    """The rows as DuckDB gets them; an error of theirs is kept, for it makes another one of it."""

    def __init__(self, pieces: Iterator[Piece], order: RowOrder, scale: RankScale | None) -> None:
        self._pieces, self._order, self._scale = pieces, order, scale
        self.error: BaseException | None = None
        self.terms: list[str] = []

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return self._batch(next(self._pieces))
        except StopIteration:
            raise
        except BaseException as error:
            self.error = error
            raise

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
        for each in self._order.columns:
            name = f"c{each.place}"
            if pa.types.is_floating(columns[each.place].type):
                name = f"k{each.place}"
                arrays[name] = as_integers(columns[each.place])
            direction, nulls = "DESC" if each.descending else "ASC", "FIRST" if each.nulls_first else "LAST"
            terms.append(f"{name} {direction} NULLS {nulls}")
        self.terms = [*terms, "input", "position"]
        return pa.RecordBatch.from_pydict(arrays)


def _piece(batch: pa.RecordBatch, schema: pa.Schema) -> Piece:
    columns = [
        batch.column(place).cast(_plain(field.type)).view(field.type) for place, field in enumerate(schema)
    ]
    inputs, positions = (batch.column(name).to_numpy() for name in ("input", "position"))
    return Piece(inputs, positions, pa.Table.from_arrays(columns, schema=schema))


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
