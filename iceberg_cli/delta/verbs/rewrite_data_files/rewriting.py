"""The rows of one group of data files, written anew: read without deleted ones, written to new files, and proved.

Rows keep their order: by their file, and their position in it. One output is open at a time. What is held of rows is
bounded, and so is what a finished file is read back by.

Spec: Delta protocol, "Deletion Vectors", "Row Tracking", "Column Mapping".
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from iceberg_cli.delta.rows.data_files import partition_value
from iceberg_cli.delta.rows.file_statistics import FileStatistics
from iceberg_cli.delta.rows.parquet_files import ParquetFiles
from iceberg_cli.delta.rows.stored_rows import InputFile, RowIdColumns, StoredRowReader
from iceberg_cli.delta.rows.table_columns import file_schema
from iceberg_cli.delta.spec import paths
from iceberg_cli.delta.verbs.rewrite_data_files.group import GroupTask, OutputFile, RewrittenGroup
from iceberg_cli.delta.verbs.rewrite_data_files.written_for import WRITTEN_FOR_FILE
from iceberg_cli.encoding.deletion_vector import decode
from iceberg_cli.encoding.projection import Field
from iceberg_cli.encoding.row_batches import BATCH_BYTES
from iceberg_cli.encoding.schema_fit import MisfitError, fit
from iceberg_cli.engines import FileParts
from iceberg_cli.engines.read_ahead import AHEAD_BYTES
from iceberg_cli.errors import CorruptFile
from iceberg_cli.layout.files.budget import SHARES, WAITING, held_bytes_of, saying_what_would_do
from iceberg_cli.layout.files.external_order import brought_into
from iceberg_cli.layout.files.inputs import breaking_the_group, inputs_ahead
from iceberg_cli.layout.files.kept_positions import keep_positions
from iceberg_cli.layout.files.ordering import RowOrder
from iceberg_cli.layout.files.partition_writer import FinishedFile, NewFiles, PartitionWriter, Piece, RowsRead
from iceberg_cli.layout.ranks import SampleBuilder
from iceberg_cli.operation.groups.creator import Creator, Written
from iceberg_cli.operation.groups.results import digest_of


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFilePlace:
    """Where new files are: in a folder below the table's root."""

    root: str

    def __call__(self, folder: str, name: str) -> str:
        """The path of a file, by the folder as the log spells it."""
        return f"{self.root}/{paths.decode(folder)}part-{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRewriter:
    """Writes the rows of a group anew, where an engine runs it; all groups of an operation share one.

    Args:
        root: of the table.
        fields: of the table, see `stored_columns`.
        by_ids: whether columns are found by their ids alone.
        row_ids: where rows keep their ids; None: they have none.
        partition_columns: that new files have after the others.
        codec: of new files.
        statistics: of new files, see `statistics_type`.
        written_for: see there.
        memory_bytes: for all that is held of one group at a time, about.
        side_by_side: groups that share what memory there is.
        is_proved: whether rows are read back and compared, or counted alone.
        threads: that read small inputs before their turn.
        order: that rows are brought into; None: they stay in the one that they are in.
    """

    root: str
    fields: tuple[Field, ...]
    by_ids: bool
    row_ids: RowIdColumns | None
    codec: str
    statistics: pa.StructType
    written_for: bytes
    memory_bytes: int
    side_by_side: int
    is_proved: bool
    threads: int
    order: RowOrder | None = None
    partition_columns: tuple[Field, ...] = ()

    def __call__(self, creator: Creator, task: GroupTask) -> Written:
        """Write the rows of a group anew, keep where they went, and say what was written.

        Raises:
            CorruptFile: an input cannot be read, is gone, or is not what the log says; or an output is not what was
            written. TooLittleMemory: an input has too many columns. BackendUnavailable.
        """
        with breaking_the_group(task.inputs):
            result = self.rewritten(creator, task)
        assert result.positions is not None
        deleted = {
            place: decode(each.deleted, each.path).positions().astype(np.int64)
            for place, each in enumerate(task.inputs)
            if each.deleted
        }
        keep_positions(creator, result.positions, deleted)
        creator.keep(WRITTEN_FOR_FILE, self.written_for)
        return Written(paths=tuple(each.path for each in result.outputs), content=result.to_json())

    def rewritten(self, creator: Creator, task: GroupTask) -> RewrittenGroup:
        """Write the rows of a group anew; see `__call__`.

        On any error the output that is open is aborted. Outputs that were committed before stay, for whoever journals
        them to discard.

        Raises:
            FileNotFoundError: an input is gone. Refused: one is encrypted.
        """
        return _Rewriting(self, creator, task).result()

    @property
    def read_schema(self) -> pa.Schema:
        """Of the rows of inputs."""
        own = [*file_schema(self.fields)]
        return pa.schema([*own, *self.row_ids.fields()] if self.row_ids is not None else own)

    @property
    def schema(self) -> pa.Schema:
        """Of new files."""
        return pa.schema([*self.read_schema, *file_schema(self.partition_columns)])


class _Rewriting:
    """One group while it is written."""

    def __init__(self, rewriter: GroupRewriter, creator: Creator, task: GroupTask) -> None:
        self._rewriter, self._creator, self._task = rewriter, creator, task
        self._schema, self._read_schema = rewriter.schema, rewriter.read_schema
        self._partition = [
            (stored, partition_value(column, task.partition, task.inputs[0].path))
            for column, stored in zip(
                rewriter.partition_columns, file_schema(rewriter.partition_columns), strict=True
            )
        ]
        self._reader = StoredRowReader(
            fields=rewriter.fields,
            by_ids=rewriter.by_ids,
            row_ids=rewriter.row_ids,
            batch_bytes=BATCH_BYTES,
            most_page_bytes=max(BATCH_BYTES, rewriter.memory_bytes // SHARES),
        )
        self._files: NewFiles[FileStatistics] = NewFiles(
            creator=creator,
            writers=ParquetFiles(schema=self._schema, codec=rewriter.codec, statistics=rewriter.statistics),
            place=NewFilePlace(root=rewriter.root),
            expected_bytes=task.expected_bytes,
            rolling=task.rolling,
            order=None,
            is_proved=rewriter.is_proved,
            batch_bytes=BATCH_BYTES,
            most_held_bytes=held_bytes_of(rewriter.memory_bytes),
            read=RowsRead(left=sum(each.record_count or 0 for each in task.inputs)),
        )
        self._writer = PartitionWriter(self._files, task.folder, None)
        self._input_rows: list[int] = []
        self._read = self._files.read

    def result(self) -> RewrittenGroup:
        """Do all of it; see `GroupRewriter`."""
        rewriter, task = self._rewriter, self._task
        try:
            with closing(self._pieces()) as pieces:
                for piece in pieces:
                    self._writer.add(piece)
            self._writer.end()
            self._files.check()
        except BaseException:
            self._writer.abort()
            raise
        finished = [self._files.finished[number] for number in sorted(self._files.finished)]
        outputs = [_output(each, task.folder) for each in finished]
        read, written = self._read, sum(each.record_count for each in outputs)
        positions = self._files.positions.build()
        if not read.live == written == positions.rows:
            reason = f"{read.live} rows of the group are live, {written} were written, {positions.rows} have places"
            raise CorruptFile(task.inputs[0].path, "rows", reason)
        return RewrittenGroup(
            outputs=tuple(outputs),
            input_rows=tuple(self._input_rows),
            rows_deleted=read.read - read.live,
            rows_written=written,
            written_for=digest_of(rewriter.written_for),
            positions=positions,
            proof=self._files.proof if rewriter.is_proved else None,
        )

    def _pieces(self) -> Generator[Piece, None, None]:
        """The live rows of all inputs, in the order in which they are written."""
        return brought_into(
            self._rewriter.order,
            self._live(),
            self._sampled,
            schema=self._schema,
            input_rows=self._input_rows,
            memory_bytes=self._rewriter.memory_bytes,
            side_by_side=self._rewriter.side_by_side,
            files=self._files,
        )

    def _sampled(self, order: RowOrder) -> SampleBuilder:
        """Some rows of all inputs, with the columns of an order alone."""
        rewriter = self._rewriter
        fields = tuple(rewriter.fields[each.place] for each in order.columns)
        schema = pa.schema([self._schema.field(each.place) for each in order.columns])
        reader = StoredRowReader(
            fields=fields,
            by_ids=rewriter.by_ids,
            row_ids=None,
            batch_bytes=BATCH_BYTES,
            most_page_bytes=self._reader.most_page_bytes,
        )
        live = sum((each.record_count or 0) - each.cardinality for each in self._task.inputs)
        sample = SampleBuilder(columns=len(fields), rows=max(0, live))
        with closing(self._inputs()) as inputs, saying_what_would_do(rewriter.side_by_side):
            for number, (file, parts) in enumerate(inputs):
                for batch in reader(file, parts):
                    rows = self._fitted(batch.rows, file.path, schema)
                    sample.add(np.full(len(batch.positions), number, np.int64), batch.positions, rows)
        return sample

    def _inputs(self) -> Generator[tuple[InputFile, FileParts], None, None]:
        return inputs_ahead(
            self._creator.storage,
            self._task.inputs,
            threads=self._rewriter.threads,
            most_bytes=min(AHEAD_BYTES, self._rewriter.memory_bytes // SHARES // WAITING),
        )

    def _live(self) -> Generator[Piece, None, None]:
        """The live rows of all inputs, as new files have them."""
        with closing(self._inputs()) as inputs:
            for number, (file, parts) in enumerate(inputs):
                yield from self._live_in(number, file, parts)
                # While no input is open: pages of all columns of both take memory.
                self._files.check()

    def _live_in(self, number: int, file: InputFile, parts: FileParts) -> Iterator[Piece]:
        """The live rows of an input."""
        read = self._read
        before = read.read
        with saying_what_would_do(self._rewriter.side_by_side):
            for batch in self._reader(file, parts):
                read.left = max(0, read.left - batch.count)
                read.read += batch.count
                read.live += len(batch.positions)
                if len(batch.positions):
                    inputs = np.full(len(batch.positions), number, np.int64)
                    rows = self._fitted(batch.rows, file.path, self._read_schema)
                    yield Piece(inputs, batch.positions, self._with_partition(rows))
        self._input_rows.append(read.read - before)

    def _with_partition(self, rows: pa.Table) -> pa.Table:
        """Rows with the partition columns that new files have."""
        for column, value in self._partition:
            rows = rows.append_column(column, pa.repeat(value, rows.num_rows))
        return rows

    def _fitted(self, rows: pa.Table, path: str, schema: pa.Schema) -> pa.Table:
        try:
            return fit(rows, schema)
        except MisfitError as error:
            raise CorruptFile(path, "rows", str(error)) from error


def _output(file: FinishedFile[FileStatistics], folder: str) -> OutputFile:
    return OutputFile(
        path=file.path,
        log_path=folder + file.path.rpartition("/")[2],
        size_bytes=file.size_bytes,
        record_count=file.measured.record_count,
        stats=file.measured.json,
    )
