"""The rows of one group of data files, written anew: read with deletes applied, written to new files, and proved.

Rows keep their order: by the sequence number of their file, its path, and their position in it; of files that follow
each other by the table's sort order, by that. One output is open at a time, or one of each partition where files move
to another spec. What is held of rows is bounded, and so is what a finished file is read back by.

Spec: "Column Projection", "Scan Planning", "Row Lineage"; Appendix A, "Parquet".
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from iceberg_cli.encoding.projection import Field
from iceberg_cli.encoding.row_batches import BATCH_BYTES
from iceberg_cli.encoding.schema_fit import MisfitError, fit
from iceberg_cli.engines import FileParts
from iceberg_cli.engines.read_ahead import AHEAD_BYTES
from iceberg_cli.errors import CorruptFile, GroupLeftOut
from iceberg_cli.iceberg.rows.data_files import (
    DataFile,
    EqualityColumns,
    LiveRows,
    RowReader,
    StoredRows,
    together,
)
from iceberg_cli.iceberg.rows.data_locations import DataLocations
from iceberg_cli.iceberg.rows.deleted_keys import NO_KEYS, DeletedKeys
from iceberg_cli.iceberg.rows.file_metrics import FileMetrics
from iceberg_cli.iceberg.rows.leaf_columns import arrow_schema, leaf_columns
from iceberg_cli.iceberg.rows.metrics_modes import MetricsMode
from iceberg_cli.iceberg.rows.parquet_files import ParquetFiles
from iceberg_cli.iceberg.rows.parquet_properties import ParquetProperties
from iceberg_cli.iceberg.rows.row_partitions import StoredPartition
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
from iceberg_cli.iceberg.verbs.rewrite_data_files.repartition import check_identities, values_of
from iceberg_cli.layout.files.budget import SHARES, WAITING, held_bytes_of, saying_what_would_do
from iceberg_cli.layout.files.external_order import brought_into
from iceberg_cli.layout.files.inputs import inputs_ahead
from iceberg_cli.layout.files.ordering import RowOrder
from iceberg_cli.layout.files.partition_writer import (
    FinishedFile,
    NewFiles,
    PartitionWriter,
    Piece,
    RowsRead,
)
from iceberg_cli.layout.ranks import SampleBuilder
from iceberg_cli.layout.row_order import OrderedColumn
from iceberg_cli.operation.groups.creator import Creator
from iceberg_cli.plan.text import count

_BATCHES: Final = 16  # of memory: what is decoded at once, as it is in the file
_COLUMN_BYTES: Final = 8 << 10  # of a column that are worth being decoded at once
_OPEN_BYTES: Final = 16 << 20  # that are held of a file which is written, beside its rows
_LEAST_OPEN: Final = 8


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
        row_order: that rows are brought into; None: they stay in the one that they are in.
        equality: by their field ids, the columns that equality deletes compare.
        deleted: the keys of equality delete files.
        memory_bytes: for all that is held of one group at a time, about.
        side_by_side: groups that share what memory there is.
        is_proved: whether rows are read back and compared, or counted alone.
        threads: that read small inputs before their turn.
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
    row_order: RowOrder | None = None
    equality: Mapping[tuple[int, ...], EqualityColumns] = field(default_factory=dict)
    deleted: DeletedKeys = NO_KEYS
    memory_bytes: int
    side_by_side: int = 1
    is_proved: bool = True
    threads: int = 1

    def __call__(self, creator: Creator, task: GroupTask) -> RewrittenGroup:
        """Write the rows of a group anew.

        On any error the output that is open is aborted. Outputs that were committed before stay, for whoever journals
        them to discard.

        Raises:
            CorruptFile: an input cannot be read, has another number of rows than its entry says, a value that is none
            of its column's type, or none where one is required; or an output is not what was written.
            Refused: an input is encrypted, nothing says which columns it has, or a column has a type that is not
            written here. TooLittleMemory: an input has too many columns. GroupLeftOut: see `Move`.
            FileNotFoundError: an input is gone. BackendUnavailable.
        """
        return _Rewriting(self, creator, task).result()

    @property
    def batch_bytes(self) -> int:
        """Of a file, for the rows that are decoded at once: those of many columns are too few for their overhead."""
        of_columns = len(leaf_columns(self.file_fields)) * _COLUMN_BYTES
        return max(BATCH_BYTES, min(of_columns, self.memory_bytes // _BATCHES))

    @property
    def waiting_bytes(self) -> int:
        """That are held of files before their turn, and as much again of rows until others are with them."""
        return self.memory_bytes // SHARES // WAITING

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
            most_page_bytes=max(BATCH_BYTES, rewriter.memory_bytes // SHARES),
        )
        self._writers: dict[StoredPartition | None, PartitionWriter[FileMetrics]] = {}
        self._files: NewFiles[FileMetrics] = NewFiles(
            creator=creator,
            writers=ParquetFiles(
                fields=rewriter.file_fields, properties=rewriter.properties, modes=rewriter.modes
            ),
            place=rewriter.locations.path,
            expected_bytes=task.expected_bytes,
            rolling=task.rolling,
            order=rewriter.order if task.sort_order_id else None,
            allow=partial(_allow, task),
            is_proved=rewriter.is_proved,
            batch_bytes=rewriter.batch_bytes,
            most_held_bytes=held_bytes_of(rewriter.memory_bytes),
            read=RowsRead(left=sum(each.record_count for each in task.inputs)),
        )
        self._input_bytes = 0
        self._input_rows: list[int] = []
        self._read = self._files.read

    def result(self) -> RewrittenGroup:
        """Do all of it; see `GroupRewriter`."""
        try:
            with closing(self._pieces()) as pieces:
                for piece in pieces:
                    self._add(piece)
            for writer in self._writers.values():
                writer.end()
                self._files.check()
        except BaseException:
            for writer in self._writers.values():
                writer.abort()
            raise
        positions = self._files.positions.build()
        outputs = [
            _output(self._files.finished[number], self._task) for number in sorted(self._files.finished)
        ]
        written = sum(each.metrics.record_count for each in outputs)
        read = self._read
        if not read.live == written == positions.rows:
            raise CorruptFile(
                self._task.inputs[0].path,
                "rows",
                f"{read.live} rows of the group are live, {written} were written, {positions.rows} have places",
            )
        return RewrittenGroup(
            number=self._task.number,
            outputs=tuple(outputs),
            positions=positions,
            rows_read=read.read,
            rows_deleted=read.read - read.live,
            rows_written=written,
            input_bytes=self._input_bytes,
            output_bytes=sum(each.size_bytes for each in outputs),
            proof=self._files.proof if self._rewriter.is_proved else None,
        )

    # -- inputs ------------------------------------------------------------------------------------------------------

    def _pieces(self) -> Generator[Piece, None, None]:
        """The live rows of all inputs, in the order in which they are written."""
        return brought_into(
            self._rewriter.row_order,
            self._live(),
            self._sampled,
            schema=self._schema,
            input_rows=self._input_rows,
            memory_bytes=self._rewriter.memory_bytes,
            side_by_side=self._rewriter.side_by_side,
            files=self._files,
        )

    def _sampled(self, order: RowOrder) -> SampleBuilder:
        """Some rows of all inputs, deleted ones among them, with the columns of an order alone."""
        rewriter = self._rewriter
        columns = tuple(rewriter.columns[each.place] for each in order.columns)
        schema = pa.schema([self._schema.field(each.place) for each in order.columns])
        reader = replace(self._reader, fields=columns, equality={}, deleted=NO_KEYS, keeps_row_ids=False)
        rows = sum(each.record_count for each in self._task.inputs)
        sample = SampleBuilder(columns=len(columns), rows=rows)
        with closing(self._inputs()) as inputs:
            for number, (file, parts) in enumerate(inputs):
                if not file.record_count:
                    continue
                plain = replace(file, size_bytes=parts.size_bytes, vectors=(), equality_deletes=())
                with saying_what_would_do(rewriter.side_by_side):
                    for each in reader.stored(number, plain, parts):
                        live = reader.live([each])
                        sample.add(live.files, live.positions, _fit(live.rows, schema, file.path))
        return sample

    def _live(self) -> Generator[Piece, None, None]:
        """The live rows of all inputs, as new files have them."""
        move = self._task.move
        with closing(self._stored()) as stored:
            for some in together(stored, most_bytes=min(BATCH_BYTES, self._rewriter.waiting_bytes)):
                live, rows = self._fitted(some)
                self._read.left -= live.count
                self._read.read += live.count
                self._read.live += rows.num_rows
                if not rows.num_rows:
                    continue
                for each in some if move is not None else ():
                    assert move is not None
                    begin, end = np.searchsorted(live.files, (each.number, each.number + 1))
                    own_rows = rows.slice(begin, end - begin)
                    check_identities(each.file.path, own_rows, move.identities[each.number])
                yield Piece(live.files, live.positions, rows)

    def _inputs(self) -> Generator[tuple[DataFile, FileParts], None, None]:
        return inputs_ahead(
            self._creator.storage,
            self._task.inputs,
            threads=self._rewriter.threads,
            most_bytes=min(AHEAD_BYTES, self._rewriter.waiting_bytes),
        )

    def _stored(self) -> Generator[StoredRows, None, None]:
        """The rows of all inputs."""
        with closing(self._inputs()) as inputs:
            for number, (file, parts) in enumerate(inputs):
                yield from self._stored_in(number, file, parts)
                # While no input is open: pages of all columns of both take memory.
                self._files.check()

    def _stored_in(self, number: int, file: DataFile, parts: FileParts) -> Iterator[StoredRows]:
        """The rows of an input."""
        self._input_bytes += parts.size_bytes
        _check_vectors(file)
        count = 0
        # Of a file that is empty in every way there is nothing to read, not even a footer.
        if parts.size_bytes or file.record_count:
            with saying_what_would_do(self._rewriter.side_by_side):
                for each in self._reader.stored(number, replace(file, size_bytes=parts.size_bytes), parts):
                    count += each.batch.count
                    yield each
        if count != file.record_count:
            raise CorruptFile(
                file.path, "record_count", f"it has {count} rows, its entry says {file.record_count}"
            )
        self._input_rows.append(count)

    def _add(self, piece: Piece) -> None:
        """Take rows, each for its partition, and write the row groups that they complete."""
        move = self._task.move
        if move is None:
            self._writer_of(None).add(piece)
            return
        for partition, places in move.partitioner(piece.rows):
            own = Piece(piece.inputs[places], piece.positions[places], piece.rows.take(pa.array(places)))
            self._writer_of(partition).add(own)
        self._bound_writers()

    def _fitted(self, some: Sequence[StoredRows]) -> tuple[LiveRows, pa.Table]:
        """The live ones of some rows, and these as new files have them."""
        try:
            live = self._reader.live(some)
            return live, fit(live.rows, self._schema)
        except (CorruptFile, MisfitError) as error:
            if len(some) > 1:
                for each in some:  # to name the one that it is
                    self._fitted([each])
            if isinstance(error, CorruptFile):
                raise
            raise CorruptFile(some[0].file.path, "rows", str(error)) from error

    def _bound_writers(self) -> None:
        """Hold no more rows than may be held, and no more files open: of each the part is held that is sent next."""
        writers = [writer for writer in self._writers.values() if writer.is_open]
        while sum(writer.held_bytes for writer in writers) > self._files.most_held_bytes:
            max(writers, key=lambda writer: writer.held_bytes).write_held()
        most = max(_LEAST_OPEN, self._rewriter.memory_bytes // SHARES // _OPEN_BYTES)
        for writer in sorted(writers, key=lambda writer: -writer.written_bytes)[
            : max(0, len(writers) - most)
        ]:
            writer.end()

    def _writer_of(self, partition: StoredPartition | None) -> PartitionWriter[FileMetrics]:
        if partition not in self._writers:
            task, rewriter = self._task, self._rewriter
            values = task.partition
            if partition is not None:
                assert task.move is not None
                values = values_of(partition, task.move.partitioner)
            folder = partition_path(rewriter.specs[task.spec_id], rewriter.types, values)
            self._writers[partition] = PartitionWriter(self._files, folder, partition)
        return self._writers[partition]


def _allow(task: GroupTask, number: int) -> None:
    """Raise GroupLeftOut where a file of some number would be one too many."""
    move = task.move
    if move is not None and move.most_files is not None and number >= move.most_files:
        raise GroupLeftOut(
            f"its {count(len(task.inputs), 'files')} would become more: their rows are in too many partitions "
            f"of spec {task.spec_id} (--rewrite-all moves them all the same)"
        )


def _fit(rows: pa.Table, schema: pa.Schema, path: str) -> pa.Table:
    try:
        return fit(rows, schema)
    except MisfitError as error:
        raise CorruptFile(path, "rows", str(error)) from error


def _output(file: FinishedFile[FileMetrics], task: GroupTask) -> OutputFile:
    return OutputFile(
        path=file.path,
        size_bytes=file.size_bytes,
        metrics=file.measured,
        sort_order_id=task.sort_order_id if file.is_sorted else 0,
        partition=file.partition,
    )


def _check_vectors(file: DataFile) -> None:
    """Raise CorruptFile where positions are deleted that the file does not have."""
    for blob in file.vectors:
        positions = positions_in(blob)
        if len(positions) and positions[-1] >= file.record_count:
            reason = f"of its {file.record_count} rows the one at position {positions[-1]} is deleted"
            raise CorruptFile(file.path, "record_count", reason)
