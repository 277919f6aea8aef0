"""The rows of one group of data files, written anew: read with deletes applied, written to new files, and proved.

Rows keep their order: by the sequence number of their file, its path, and their position in it; of files that follow
each other by the table's sort order, by that. One output is open at a time. What is held of rows is bounded, and so is
what a finished file is read back by.

Spec: "Column Projection", "Scan Planning", "Row Lineage"; Appendix A, "Parquet".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.encoding.projection import Field
from iceberg_cli.encoding.row_batches import BATCH_BYTES
from iceberg_cli.errors import CorruptFile, TooLittleMemory
from iceberg_cli.iceberg.rows.data_files import DataFile, EqualityColumns, LiveRows, RowReader
from iceberg_cli.iceberg.rows.data_locations import DataLocations
from iceberg_cli.iceberg.rows.deleted_keys import NO_KEYS, DeletedKeys
from iceberg_cli.iceberg.rows.leaf_columns import arrow_schema, leaf_columns
from iceberg_cli.iceberg.rows.metrics_modes import MetricsMode
from iceberg_cli.iceberg.rows.parquet_properties import ParquetProperties
from iceberg_cli.iceberg.rows.parquet_writer import ParquetWriter
from iceberg_cli.iceberg.rows.schema_fit import MisfitError, fit
from iceberg_cli.iceberg.rows.table_columns import columns_of
from iceberg_cli.iceberg.spec.deletes.dv_blobs import positions_in
from iceberg_cli.iceberg.spec.table_metadata.columns import ROW_LINEAGE
from iceberg_cli.iceberg.spec.types.partition_path import partition_path
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec
from iceberg_cli.iceberg.spec.types.schema import (
    ListType,
    MapType,
    NestedField,
    Schema,
    StructType,
    Type,
)
from iceberg_cli.iceberg.verbs.rewrite_data_files.group import GroupTask, OutputFile, RewrittenGroup
from iceberg_cli.iceberg.verbs.rewrite_data_files.outputs import (
    Sink,
    check_stored,
    parts_of,
)
from iceberg_cli.layout.position_map import PositionMapBuilder
from iceberg_cli.layout.row_order import OrderCheck, OrderedColumn
from iceberg_cli.layout.row_proof import RowProof, row_proof
from iceberg_cli.operation.groups.creator import Creator, NewFile

_SHARES: Final = 3  # of memory: rows that are held, what they are encoded into, and what is read meanwhile
_BATCHES: Final = 16  # of memory: what is decoded at once, as it is in the file
_COLUMN_BYTES: Final = 8 << 10  # of a column that are worth being decoded at once
_MOST_HELD_BYTES: Final = 1 << 30  # a column of text has no more than 2 GiB in one piece


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRewriter:
    """Writes the rows of a group anew, where an engine runs it; all groups of an operation share one.

    Args:
        fields: of the table, see `fields_in_files`.
        columns: the same, for reading.
        keeps_row_ids: whether rows have ids, which stay theirs.
        properties: how Parquet files are written.
        modes: of metrics, by field id; of columns of row lineage too where rows have ids.
        locations: where new files are.
        specs: partition specs, by id.
        types: of the table's columns, by field id.
        order: by which rows of some groups may be sorted.
        equality: by their field ids, the columns that equality deletes compare.
        deleted: the keys of equality delete files.
        memory_bytes: for all that is held of one group at a time, about.
        side_by_side: groups that share what memory there is.
        is_proved: whether rows are read back and compared, or counted alone.
    """

    fields: tuple[NestedField, ...]
    columns: tuple[Field, ...]
    keeps_row_ids: bool
    properties: ParquetProperties
    modes: Mapping[int, MetricsMode]
    locations: DataLocations
    specs: Mapping[int, PartitionSpec]
    types: Mapping[int, Type]
    order: tuple[OrderedColumn, ...] = ()
    equality: Mapping[tuple[int, ...], EqualityColumns] = field(default_factory=dict)
    deleted: DeletedKeys = NO_KEYS
    memory_bytes: int
    side_by_side: int = 1
    is_proved: bool = True

    def __call__(self, creator: Creator, task: GroupTask) -> RewrittenGroup:
        """Write the rows of a group anew.

        On any error the output that is open is aborted. Outputs that were committed before stay, for whoever journals
        them to discard.

        Raises:
            CorruptFile: an input cannot be read, has another number of rows than its entry says, a value that is none
            of its column's type, or none where one is required; or an output is not what was written.
            Refused: an input is encrypted, nothing says which columns it has, or a column has a type that is not
            written here. TooLittleMemory: an input has too many columns.
            FileNotFoundError: an input is gone. BackendUnavailable.
        """
        return _Rewriting(self, creator, task).result()

    @property
    def batch_bytes(self) -> int:
        """Of a file, for the rows that are decoded at once: those of many columns are too few for their overhead."""
        of_columns = len(leaf_columns(self.file_fields)) * _COLUMN_BYTES
        return max(BATCH_BYTES, min(of_columns, self.memory_bytes // _BATCHES))

    @property
    def file_fields(self) -> tuple[NestedField, ...]:
        """The columns of new files."""
        return (*self.fields, *ROW_LINEAGE) if self.keeps_row_ids else self.fields


def fields_in_files(
    schema: Schema, properties: Mapping[str, str], *, path: str
) -> tuple[tuple[NestedField, ...], tuple[Field, ...]]:
    """The fields of a schema that files have, and the same for reading: a value of unknown type is null everywhere.

    Args:
        schema: of the table.
        properties: of the table, which may map names to ids.
        path: of the metadata, for messages.

    Raises:
        InvalidMetadata: a default is no value of its type, or the name mapping is none. Refused: see `columns_of`.
    """
    known = replace(schema, fields=_known(schema.fields))
    return known.fields, tuple(each for each, _, _ in columns_of(known, properties, path=path))


def _known(fields: Sequence[NestedField]) -> tuple[NestedField, ...]:
    return tuple(replace(each, type=_known_part(each.type)) for each in fields if each.type != "unknown")


def _known_part(type_: Type) -> Type:
    """A type without the fields of structs in it that are of unknown type."""
    match type_:
        case StructType(fields=fields):
            return replace(type_, fields=_known(fields))
        case ListType(element=element):
            return replace(type_, element=_known_part(element))
        case MapType(key=key, value=value):
            return replace(type_, key=_known_part(key), value=_known_part(value))
    return type_


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of an input that are in no row group yet."""

    input: int
    positions: npt.NDArray[np.int64]
    rows: pa.Table


@dataclass(slots=True, kw_only=True)
class _Output:
    """The output that is open."""

    writer: NewFile
    sink: Sink
    parquet: ParquetWriter
    rows: int = 0  # of its row groups
    proof: RowProof = field(default_factory=RowProof)  # likewise
    order: OrderCheck | None  # likewise; None: the rows are of none


class _Rewriting:
    """One group while it is written."""

    def __init__(self, rewriter: GroupRewriter, creator: Creator, task: GroupTask) -> None:
        self._rewriter, self._creator, self._task = rewriter, creator, task
        self._schema = arrow_schema(rewriter.file_fields)
        self._reader = RowReader(
            fields=rewriter.columns,
            equality=rewriter.equality,
            deleted=rewriter.deleted,
            keeps_row_ids=rewriter.keeps_row_ids,
            batch_bytes=rewriter.batch_bytes,
            most_page_bytes=max(BATCH_BYTES, rewriter.memory_bytes // _SHARES),
        )
        self._folders = partition_path(rewriter.specs[task.spec_id], rewriter.types, task.partition)
        self._pending: deque[_Piece] = deque()
        self._output: _Output | None = None
        self._bytes_per_row: float | None = None
        self._outputs: list[OutputFile] = []
        self._unchecked: list[Callable[[], None]] = []
        self._positions = PositionMapBuilder()
        self._proof = RowProof()
        self._rows_left = sum(each.record_count for each in task.inputs)  # of the inputs
        self._rows_read = self._rows_live = self._input_bytes = 0

    def result(self) -> RewrittenGroup:
        """Do all of it; see `GroupRewriter`."""
        try:
            for number, file in enumerate(self._task.inputs):
                self._read(number, file)
                self._check_stored()
            if self._output is not None:
                self._close(self._output, whole=True)
            self._check_stored()
        except BaseException:
            if self._output is not None:
                self._output.parquet.abandon()
                self._output.sink.abort()
            raise
        positions = self._positions.build()
        written = sum(each.metrics.record_count for each in self._outputs)
        if not self._rows_live == written == positions.rows:
            raise CorruptFile(
                self._task.inputs[0].path,
                "rows",
                f"{self._rows_live} rows of the group are live, {written} were written, {positions.rows} have places",
            )
        return RewrittenGroup(
            number=self._task.number,
            outputs=tuple(self._outputs),
            positions=positions,
            rows_read=self._rows_read,
            rows_deleted=self._rows_read - self._rows_live,
            rows_written=written,
            input_bytes=self._input_bytes,
            output_bytes=sum(each.size_bytes for each in self._outputs),
            proof=self._proof if self._rewriter.is_proved else None,
        )

    # -- inputs ------------------------------------------------------------------------------------------------------

    def _read(self, number: int, file: DataFile) -> None:
        """Write the live rows of an input."""
        parts = parts_of(self._creator.storage, file.path)
        self._input_bytes += parts.size_bytes
        _check_vectors(file)
        count = 0
        # Of a file that is empty in every way there is nothing to read, not even a footer.
        if parts.size_bytes or file.record_count:
            try:
                for live in self._reader.stream(replace(file, size_bytes=parts.size_bytes), parts):
                    count += live.count
                    self._rows_left -= live.count
                    self._rows_read += live.count
                    if live.rows.num_rows:
                        self._add(number, file, live)
            except TooLittleMemory as error:
                mebibytes = -(-error.needed_bytes * _SHARES * self._rewriter.side_by_side // (1 << 20))
                error.next_step = f"Run it with --memory {mebibytes}MiB, or with fewer --processes."
                raise
        if count != file.record_count:
            raise CorruptFile(
                file.path, "record_count", f"it has {count} rows, its entry says {file.record_count}"
            )

    def _add(self, number: int, file: DataFile, live: LiveRows) -> None:
        """Take rows, and write the row groups that they complete."""
        try:
            rows = fit(live.rows, self._schema)
        except MisfitError as error:
            raise CorruptFile(file.path, "rows", str(error)) from error
        self._rows_live += rows.num_rows
        self._pending.append(_Piece(number, live.positions, rows))
        if self._output is None:
            self._open()
        else:
            self._output.parquet.add(rows)
        while self._output is not None and self._output.parquet.write_group():
            self._settle(self._output)
            self._bytes_per_row = self._output.parquet.bytes_per_row
            if self._task.rolling.closes(self._output.parquet.written_bytes, self._left_bytes()):
                self._close(self._output, whole=False)
                if self._pending:
                    self._open()

    def _left_bytes(self) -> int:
        """About how many bytes the rows take that are in no row group yet, if as many are live as were until now."""
        if self._bytes_per_row is None:
            return self._task.expected_bytes
        live = self._rows_left * self._rows_live / self._rows_read
        held = sum(piece.rows.num_rows for piece in self._pending)
        return int((held + live) * self._bytes_per_row)

    # -- outputs -----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Begin an output with the rows that are in none yet."""
        rewriter = self._rewriter
        row_group_bytes = self._task.rolling.row_group_bytes(
            self._left_bytes(), rewriter.properties.row_group_bytes
        )
        writer = self._creator.create(self._place)
        sink = Sink(writer)
        parquet = ParquetWriter(
            cast("Any", sink),
            writer.path,
            fields=rewriter.file_fields,
            properties=replace(rewriter.properties, row_group_bytes=row_group_bytes),
            modes=rewriter.modes,
            bytes_per_row=self._bytes_per_row,
            most_held_bytes=min(rewriter.memory_bytes // _SHARES, _MOST_HELD_BYTES),
        )
        order = OrderCheck(rewriter.order) if self._task.sort_order_id else None
        self._output = _Output(writer=writer, sink=sink, parquet=parquet, order=order)
        for piece in self._pending:
            parquet.add(piece.rows)

    def _place(self, name: str) -> str:
        return self._rewriter.locations.path(self._folders, name)

    def _settle(self, output: _Output) -> None:
        """Take note of the rows that are in row groups by now: where they are, and of what they are proved by."""
        while output.rows < output.parquet.written_rows:
            piece = self._pending.popleft()
            count = min(piece.rows.num_rows, output.parquet.written_rows - output.rows)
            rows, positions = piece.rows.slice(0, count), piece.positions[:count]
            if count < piece.rows.num_rows:
                rest = _Piece(piece.input, piece.positions[count:], piece.rows.slice(count))
                self._pending.appendleft(rest)
            self._positions.add(piece.input, positions, len(self._outputs), output.rows)
            if self._rewriter.is_proved:
                output.proof += row_proof(rows)
            if output.order is not None:
                output.order.see(rows)
            output.rows += count

    def _close(self, output: _Output, *, whole: bool) -> None:
        """Finish an output, with all rows that it was given or its row groups alone, and look at what is stored."""
        metrics = output.parquet.close() if whole else output.parquet.close_at_group_end()
        assert metrics is not None
        self._settle(output)
        size_bytes, path = output.writer.size_bytes, output.writer.path
        output.writer.commit()
        self._output = None
        self._unchecked.append(
            partial(
                check_stored,
                self._creator.storage,
                path,
                size_bytes=size_bytes,
                count=output.rows,
                proof=output.proof if self._rewriter.is_proved else None,
                batch_bytes=self._rewriter.batch_bytes,
            )
        )
        self._proof += output.proof
        is_sorted = output.order is not None and output.order.holds
        self._outputs.append(
            OutputFile(
                path=path,
                size_bytes=size_bytes,
                metrics=metrics,
                sort_order_id=self._task.sort_order_id if is_sorted else 0,
            )
        )

    def _check_stored(self) -> None:
        """Look at the outputs that are finished, while no input is open: pages of all columns of both take memory."""
        while self._unchecked:
            self._unchecked.pop(0)()


def _check_vectors(file: DataFile) -> None:
    """Raise CorruptFile where positions are deleted that the file does not have."""
    for blob in file.vectors:
        positions = positions_in(blob)
        if len(positions) and positions[-1] >= file.record_count:
            reason = f"of its {file.record_count} rows the one at position {positions[-1]} is deleted"
            raise CorruptFile(file.path, "record_count", reason)
