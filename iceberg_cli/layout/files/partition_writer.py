"""The new files of a group: rows on their way to one partition, written to one file after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.layout.files.outputs import Sink, check_stored
from iceberg_cli.layout.files.parquet_writer import Measured_co, ParquetWriter
from iceberg_cli.layout.position_map import PositionMapBuilder
from iceberg_cli.layout.rolling import Rolling
from iceberg_cli.layout.row_order import OrderCheck, OrderedColumn, key_changes
from iceberg_cli.layout.row_origins import RowOriginsBuilder
from iceberg_cli.layout.row_proof import RowProof, row_proof
from iceberg_cli.operation.groups.creator import Creator, NewFile

Measured = TypeVar("Measured")
_LEAST_ROW_GROUP: Final = 0.75  # of the rows that one is to have, for it to end where keys change
# A file ends where another of its row groups, and the footer, might make it too large.
_LAST_ROW_GROUP: Final = 1.4


class FileWriters(Protocol[Measured_co]):
    """How a table's data files are written."""

    @property
    def row_group_bytes(self) -> int:
        """Of a row group, encoded, as the table asks for it."""
        ...

    def writer(
        self,
        sink: Any,
        path: str,
        *,
        row_group_bytes: int,
        bytes_per_row: float | None,
        most_held_bytes: int,
    ) -> ParquetWriter[Measured_co]:
        """A writer of one file; see `ParquetWriter`."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that are in no row group yet: n, each with the number of its input, and its position there."""

    inputs: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    rows: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedFile(Generic[Measured]):
    """A new file that is finished.

    Args:
        path: of the file.
        size_bytes: that were written.
        measured: what the table is to say of it.
        is_sorted: whether its rows were seen to be in the order that was asked for.
        partition: as `PartitionWriter` has it.
    """

    path: str
    size_bytes: int
    measured: Measured
    is_sorted: bool
    partition: Any


@dataclass(slots=True, kw_only=True)
class _Output(Generic[Measured]):
    """The output that is open."""

    number: int  # among those of the group, in the order in which they are opened
    writer: NewFile
    sink: Sink
    parquet: ParquetWriter[Measured]
    rows: int = 0  # of its row groups
    last: pa.Table | None = None  # of these rows, where their keys are compared
    is_due: bool = False  # it ends where the key of this row does
    proof: RowProof = field(default_factory=RowProof)  # likewise
    order: OrderCheck | None  # likewise; None: the rows are of none


@dataclass(slots=True, kw_only=True)
class RowsRead:
    """How many rows of a group's inputs were read so far.

    Args:
        left: are still to be read.
        read: with deleted ones.
        live: without.
    """

    left: int
    read: int = 0
    live: int = 0

    def share_left(self, rows: int) -> float:
        """About how many live rows are still to be read for a partition that has got so many until now."""
        return self.left * rows / self.read


def _any_number(_: int) -> None:
    """A group may become any number of files."""


@dataclass(slots=True, kw_only=True)
class NewFiles(Generic[Measured]):
    """The new files of a group, and what is known of their rows.

    Args:
        creator: of the files.
        writers: of their rows.
        place: where a file is, by the folder of its partition and its name.
        expected_bytes: of all files, about.
        rolling: where files end.
        order: by which rows may be sorted; None: it is not looked for.
        allow: raises GroupLeftOut where the file of some number, from 0 on, would be one too many.
        is_proved: whether rows are read back and compared, or counted alone.
        batch_bytes: of a file, for the rows that are decoded at once.
        most_held_bytes: of rows that are in no row group yet.
        read: of the inputs.
        finished: by their numbers, in the order in which they were opened.
        keys: columns by which rows come in order: those that are equal in them are in one file, if it may be so large.
        unchecked: looks at those that are finished and were not looked at.
        positions: where rows went.
        proof: of the rows in them.
    """

    creator: Creator
    writers: FileWriters[Measured]
    place: Callable[[str, str], str]
    expected_bytes: int
    rolling: Rolling
    order: tuple[OrderedColumn, ...] | None
    allow: Callable[[int], None] = _any_number
    is_proved: bool
    batch_bytes: int
    most_held_bytes: int
    read: RowsRead
    finished: dict[int, FinishedFile[Measured]] = field(default_factory=dict)
    unchecked: list[Callable[[], None]] = field(default_factory=list)
    keys: tuple[OrderedColumn, ...] = ()
    positions: PositionMapBuilder | RowOriginsBuilder = field(default_factory=PositionMapBuilder)
    proof: RowProof = field(default_factory=RowProof)
    _opened: int = 0

    def next_number(self) -> int:
        """Of the file that is opened now.

        Raises:
            GroupLeftOut: it would be one too many.
        """
        self.allow(self._opened)
        self._opened += 1
        return self._opened - 1

    def check(self) -> None:
        """Look at the files that are finished."""
        while self.unchecked:
            self.unchecked.pop(0)()


class PartitionWriter(Generic[Measured]):
    """The rows of a group that go to one partition, on their way to one new file after the other.

    Args:
        files: of the group.
        folder: of the partition, by which its files may be together.
        partition: what its files are told to be of; None where a group is of one.
    """

    def __init__(self, files: NewFiles[Measured], folder: str, partition: Any) -> None:
        self._files = files
        self._partition = partition
        self._folder = folder
        self._pending: deque[Piece] = deque()
        self._output: _Output[Measured] | None = None
        self._bytes_per_row: float | None = None
        self._rows = 0  # that it was given

    @property
    def is_open(self) -> bool:
        """Whether a file is begun and not finished."""
        return self._output is not None

    @property
    def held_bytes(self) -> int:
        """Of rows that are in no row group yet."""
        return 0 if self._output is None else self._output.parquet.held_bytes

    @property
    def written_bytes(self) -> int:
        """Of the file that is open."""
        return 0 if self._output is None else self._output.parquet.written_bytes

    def add(self, piece: Piece) -> None:
        """Take rows, and write the row groups that they complete."""
        self._pending.append(piece)
        self._rows += piece.rows.num_rows
        if self._output is None:
            self._open()
        else:
            self._output.parquet.add(piece.rows)
        end = self._group_end if self._files.keys else None
        while self._output is not None and self._output.parquet.write_group(end):
            self._after_group(self._output)

    def write_held(self) -> None:
        """Write a row group of all rows that are in none yet, for the room that they take."""
        assert self._output is not None
        self._output.parquet.write_held()
        self._after_group(self._output)

    def end(self) -> None:
        """Write what is left, and finish the file."""
        if self._output is not None:
            self._close(self._output, whole=True)

    def abort(self) -> None:
        """Write nothing more, and create nothing."""
        if self._output is not None:
            self._output.parquet.abandon()
            self._output.sink.abort()

    def _after_group(self, output: _Output[Measured]) -> None:
        """Take note of a row group that was written, and end the file where it should end."""
        self._settle(output)
        self._bytes_per_row = output.parquet.bytes_per_row
        if self._closes(output):
            self._close(output, whole=False)
            if self._pending:
                self._open()

    def _group_end(self, rows: pa.Table) -> int:
        """How many of a row group's rows are in it, where one follows them: those up to the last change of their keys.

        One that would become much smaller has all. Where a file waits for the next key, those up to the first change.
        """
        whole = rows.num_rows - 1
        is_due = self._output is not None and self._output.is_due
        least = 0 if is_due else int(whole * _LEAST_ROW_GROUP)
        changes = np.flatnonzero(key_changes(rows.slice(least), self._files.keys))
        return least + int(changes[0 if is_due else -1]) + 1 if len(changes) else whole

    def _closes(self, output: _Output[Measured]) -> bool:
        """Whether a file ends here: where it is large enough, between equal keys only where it may not be larger."""
        rolling, written_bytes = self._files.rolling, output.parquet.written_bytes
        if not rolling.closes(written_bytes, self._left_bytes()):
            return False
        if not self._pending or output.last is None:
            return True
        both = pa.concat_tables([output.last, self._pending[0].rows.slice(0, 1)])
        output.is_due = not key_changes(both, self._files.keys).any()
        return not output.is_due or written_bytes * _LAST_ROW_GROUP > rolling.max_bytes

    def _left_bytes(self) -> int:
        """About how many bytes the rows take that are in no row group yet, if as many are live as were until now."""
        if self._bytes_per_row is None:
            return self._files.expected_bytes
        held = sum(piece.rows.num_rows for piece in self._pending)
        return int((held + self._files.read.share_left(self._rows)) * self._bytes_per_row)

    def _open(self) -> None:
        """Begin an output with the rows that are in none yet."""
        files = self._files
        row_group_bytes = files.rolling.row_group_bytes(self._left_bytes(), files.writers.row_group_bytes)
        number = files.next_number()
        writer = files.creator.create(self._place)
        sink = Sink(writer)
        parquet = files.writers.writer(
            sink,
            writer.path,
            row_group_bytes=row_group_bytes,
            bytes_per_row=self._bytes_per_row,
            most_held_bytes=files.most_held_bytes,
        )
        order = None if files.order is None else OrderCheck(files.order)
        self._output = _Output(number=number, writer=writer, sink=sink, parquet=parquet, order=order)
        for piece in self._pending:
            parquet.add(piece.rows)

    def _place(self, name: str) -> str:
        return self._files.place(self._folder, name)

    def _settle(self, output: _Output[Measured]) -> None:
        """Take note of the rows that are in row groups by now: where they are, and of what they are proved by."""
        settled = []
        while output.rows < output.parquet.written_rows:
            piece = self._pending.popleft()
            count = min(piece.rows.num_rows, output.parquet.written_rows - output.rows)
            rows = piece.rows.slice(0, count)
            inputs, positions = piece.inputs[:count], piece.positions[:count]
            if count < piece.rows.num_rows:
                rest = Piece(piece.inputs[count:], piece.positions[count:], piece.rows.slice(count))
                self._pending.appendleft(rest)
            self._files.positions.add(inputs, positions, output.number, output.rows)
            if self._files.keys and count:
                output.last = rows.slice(count - 1)
            settled.append(rows)
            if output.order is not None:
                output.order.see(rows)
            output.rows += count
        if settled and self._files.is_proved:  # of small files many at once
            output.proof += row_proof(pa.concat_tables(settled))

    def _close(self, output: _Output[Measured], *, whole: bool) -> None:
        """Finish an output, with all rows that it was given or its row groups alone; it is looked at later."""
        files = self._files
        measured = output.parquet.close() if whole else output.parquet.close_at_group_end()
        assert measured is not None
        self._settle(output)
        size_bytes, path = output.writer.size_bytes, output.writer.path
        output.writer.commit()
        self._output = None
        files.unchecked.append(
            partial(
                check_stored,
                files.creator.storage,
                path,
                size_bytes=size_bytes,
                count=output.rows,
                proof=output.proof if files.is_proved else None,
                batch_bytes=files.batch_bytes,
                most_stored_bytes=files.most_held_bytes // 2,
            )
        )
        files.proof += output.proof
        files.finished[output.number] = FinishedFile(
            path=path,
            size_bytes=size_bytes,
            measured=measured,
            is_sorted=output.order is not None and output.order.holds,
            partition=self._partition,
        )
