"""Rows of an Iceberg data file, of any file format, with its deletes applied.

Spec: "Column Projection", "Position Delete Files", "Equality Delete Files", "Deletion Vectors"; Appendix A.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import Bools, array_of, one_array
from iceberg_cli.encoding.projection import (
    Field,
    Mismatch,
    StructOf,
    concat_rows,
    has_ids,
    places_of,
    positions_that_stay,
    project,
    rows_that_stay,
)
from iceberg_cli.encoding.row_batches import (
    BATCH_BYTES,
    FileSplit,
    RandomAccess,
    RowBatch,
    orc_batches,
    parquet_batches,
    rows_at_once,
    stream_of,
)
from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.iceberg.rows.deleted_keys import NO_KEYS, DeletedKeys
from iceberg_cli.iceberg.rows.table_columns import NAME_MAPPING
from iceberg_cli.iceberg.spec.deletes.dv_blobs import positions_in
from iceberg_cli.iceberg.spec.table_metadata.columns import ROW_LINEAGE
from iceberg_cli.iceberg.spec.types.partition_keys import spelled

FORMATS: Final = ("parquet", "avro", "orc")
LINEAGE_FIELDS: Final = tuple(
    Field(name=each.name, type=pa.int64(), field_id=each.field_id) for each in ROW_LINEAGE
)
"""The columns of row lineage as files have them."""
_TOGETHER_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualityColumns:
    """The columns that equality deletes compare.

    Args:
        fields: top-level columns with no more in them than what is compared.
        paths: for each column that is compared, its places from the top down.
    """

    fields: tuple[Field, ...]
    paths: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A data file, or a part of one, to be read.

    Args:
        path: as the manifest has it.
        file_format: of `FORMATS`.
        size_bytes: of the file.
        record_count: of the file.
        split: the part.
        constants: by field id, the values of identity partition fields.
        vectors: deletion vectors and position deletes of it, as blobs.
        equality_deletes: the columns, and for these the paths of the delete files.
        sequence_number: of its data.
        first_row_id: of its entry, its own or inherited; None: its rows have no ids yet.
    """

    path: str
    file_format: str
    size_bytes: int
    record_count: int
    split: FileSplit = field(default_factory=FileSplit)
    constants: Mapping[int, pa.Scalar] = field(default_factory=dict)
    vectors: tuple[bytes, ...] = ()
    equality_deletes: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...] = ()
    sequence_number: int = 0
    first_row_id: int | None = None


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of a data file as they are stored, those that deletes hide among them.

    Args:
        number: of the file among those that are read with it.
        file: the file.
        batch: the rows.
        gone: positions that are deleted in the file, ascending.
    """

    number: int
    file: DataFile
    batch: RowBatch
    gone: npt.NDArray[np.uint64]

    @property
    def decoded_bytes(self) -> int:
        """What its columns take."""
        return sum(column.nbytes for column in self.batch.columns)

    def has_columns_of(self, other: StoredRows) -> bool:
        """Whether the rows of both can be read as those of one file: the same columns, and the same constants."""
        own, others = (pa.schema(each.batch.fields) for each in (self, other))
        constants, other_constants = self.file.constants, other.file.constants
        same = constants is other_constants or constants == other_constants
        return same and bool(own.equals(others, check_metadata=True))


def together(
    stored: Iterable[StoredRows], *, most_rows: int = _TOGETHER_ROWS, most_bytes: int
) -> Iterator[list[StoredRows]]:
    """Batches that follow each other and have the same columns, each time as many as come to a bound.

    Args:
        stored: rows of files.
        most_rows: with which a batch is the last one.
        most_bytes: likewise, decoded.
    """
    some: list[StoredRows] = []
    rows = decoded_bytes = 0
    for each in stored:
        if some and not each.has_columns_of(some[0]):
            yield some
            some, rows, decoded_bytes = [], 0, 0
        some.append(each)
        rows, decoded_bytes = rows + each.batch.count, decoded_bytes + each.decoded_bytes
        if rows >= most_rows or decoded_bytes >= most_bytes:
            yield some
            some, rows, decoded_bytes = [], 0, 0
    if some:
        yield some


@dataclass(frozen=True, slots=True)
class LiveRows:
    """Rows of data files that no delete hides.

    Args:
        rows: n, with the columns of the reader.
        files: the number of the file of each, ascending.
        positions: of each in its file, ascending in each.
        count: of all rows that these are left of.
    """

    rows: pa.Table
    files: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReader:
    """Reads rows of data files, where an engine runs it.

    Args:
        fields: of the table.
        equality: by their field ids, the columns that deletes compare.
        deleted: the keys of equality delete files, see `keys_of`.
        limit: of each part at most so many rows; None: all.
        batch_bytes: of a file, for the rows that are decoded at once.
        most_page_bytes: as in `parquet_batches`.
        keeps_row_ids: whether `LINEAGE_FIELDS` follow the fields, see `row_lineage`.
        mismatch_is_null: show columns whose type cannot become the table's as null, and cut off nanoseconds; otherwise
            these are errors.
    """

    fields: tuple[Field, ...]
    equality: Mapping[tuple[int, ...], EqualityColumns] = field(default_factory=dict)
    deleted: DeletedKeys = NO_KEYS
    limit: int | None = None
    batch_bytes: int = BATCH_BYTES
    most_page_bytes: int | None = None
    keeps_row_ids: bool = False
    mismatch_is_null: bool = False

    def __call__(self, file: DataFile, parts: RandomAccess) -> pa.Table:
        """The rows of a part that are not deleted.

        Raises:
            CorruptFile: see `stream`. Refused: likewise.
        """
        found: list[pa.Table] = []
        total = 0
        for live in self.stream(file, parts):
            found.append(live.rows)
            total += live.rows.num_rows
            if self.limit is not None and total >= self.limit:
                break
        schema = pa.schema([each.arrow() for each in self.fields])
        return concat_rows([schema.empty_table(), *found]).slice(0, self.limit)

    def stream(self, file: DataFile, parts: RandomAccess) -> Iterator[LiveRows]:
        """The rows of a part that are not deleted, a bounded number at a time, in the order of the file.

        Raises:
            CorruptFile: the file cannot be read, or a column has another type. Refused: it is encrypted, or nothing
            says which columns it has.
        """
        for stored in self.stored(0, file, parts):
            yield self.live([stored])

    def stored(self, number: int, file: DataFile, parts: RandomAccess) -> Iterator[StoredRows]:
        """The rows of a part as they are stored, a bounded number at a time, in the order of the file.

        Args:
            number: of the file among those that are read with it.
            file: the file.
            parts: of it.

        Raises:
            CorruptFile: the file cannot be read. Refused: it is encrypted, or nothing says which columns it has.
        """
        others = [each for ids, _ in file.equality_deletes for each in self.equality[ids].fields]
        lineage = LINEAGE_FIELDS if self.keeps_row_ids else ()
        gone = _positions(file.vectors)
        for batch in batches(
            file,
            parts,
            [*self.fields, *lineage, *others],
            limit=self.limit,
            exact=not self.mismatch_is_null,
            batch_bytes=self.batch_bytes,
            most_page_bytes=self.most_page_bytes,
        ):
            yield StoredRows(number, file, batch, gone)

    def live(self, some: Sequence[StoredRows]) -> LiveRows:
        """Those of some rows that are not deleted, in their order.

        Args:
            some: at least one batch; all have the same columns.

        Raises:
            CorruptFile: a column has another type. Of several files the first is named.
        """
        file, batch = some[0].file, _joined([each.batch for each in some])
        rows = rows_of(batch, self.fields, file, mismatch_is_null=self.mismatch_is_null)
        if self.keeps_row_ids:
            own = rows_of(batch, LINEAGE_FIELDS, file)
            for field, column in zip(own.schema, _lineage(own, some), strict=True):
                rows = rows.append_column(field, column)
        stays = np.concatenate(
            [positions_that_stay(each.batch.first, each.batch.count, each.gone) for each in some]
        )
        first = 0
        for each in some:
            if each.file.equality_deletes:
                stays[first : first + each.batch.count] &= ~self._marks(each)
            first += each.batch.count
        positions = np.concatenate(
            [np.arange(each.batch.first, each.batch.first + each.batch.count) for each in some]
        )
        kept = slice(None) if stays.all() else stays
        return LiveRows(rows_that_stay(rows, stays), _files_of(some)[kept], positions[kept], batch.count)

    def _marks(self, stored: StoredRows) -> Bools:
        """For each row whether an equality delete hides it."""
        batch, file = stored.batch, stored.file
        marks = np.zeros(batch.count, np.bool_)
        for ids, paths in file.equality_deletes:
            columns = self.equality[ids]
            keys = keys_of(rows_of(batch, columns.fields, file), columns)
            marks |= self.deleted.marks(keys, paths)
        return marks


def _files_of(some: Sequence[StoredRows]) -> npt.NDArray[np.int64]:
    """The number of the file of each row; of a single batch it takes no room."""
    if len(some) == 1:
        return np.broadcast_to(np.int64(some[0].number), some[0].batch.count)
    return np.repeat([each.number for each in some], [each.batch.count for each in some])


def _joined(some: Sequence[RowBatch]) -> RowBatch:
    """Batches of the same columns as one; positions in it mean nothing."""
    if len(some) == 1:
        return some[0]
    columns = [pa.chunked_array(column) for column in zip(*(each.columns for each in some), strict=True)]
    return replace(some[0], columns=columns, count=sum(each.count for each in some))


def _lineage(own: pa.Table, some: Sequence[StoredRows]) -> tuple[pa.ChunkedArray, ...]:
    """What `row_lineage` gives of each batch, in their order."""
    found = []
    first = 0
    for each in some:
        count = each.batch.count
        found.append(row_lineage(own.slice(first, count), each.file, each.batch.first))
        first += count
    return tuple(pa.chunked_array(columns) for columns in zip(*found, strict=True))


def row_lineage(own: pa.Table, file: DataFile, first: int) -> tuple[pa.Array, pa.Array]:
    """The ids of rows that follow each other in a data file, and the sequence numbers of their last updates.

    A row whose file has no ids yet has none; a writer leaves it null then, so that the commit gives it one. Its last
    update is what it would have been had its file stayed.

    Args:
        own: what the file itself has in `LINEAGE_FIELDS`, null where it has nothing.
        file: the data file.
        first: position of the first row.

    Spec: "Row Lineage".
    """
    count = own.num_rows
    if file.first_row_id is None:
        return pa.nulls(count, pa.int64()), pa.repeat(pa.scalar(file.sequence_number, pa.int64()), count)
    inherited = array_of(np.arange(count, dtype=np.int64) + (file.first_row_id + first))
    return (
        pc.coalesce(one_array(own.column(0)), inherited),
        pc.fill_null(one_array(own.column(1)), file.sequence_number),
    )


def batches(
    file: DataFile,
    parts: RandomAccess,
    fields: Sequence[Field],
    *,
    limit: int | None,
    exact: bool = False,
    batch_bytes: int = BATCH_BYTES,
    most_page_bytes: int | None = None,
) -> Iterator[RowBatch]:
    """Rows of a file with the columns that are asked for, a bounded number at a time.

    Args:
        file: the file.
        parts: of it.
        fields: columns of the table.
        limit: see `rows_at_once`.
        batch_bytes: likewise.
        most_page_bytes: as in `parquet_batches`.
        exact: as in `parquet_batches`; nor is a file read whose columns have neither ids nor names that are mapped.

    Raises:
        CorruptFile: it cannot be read. Refused: its format is not known here, it is encrypted, or see `exact`.
        TooLittleMemory: see `parquet_batches`.
    """

    def choose(own: Sequence[pa.Field]) -> list[int]:
        by_ids = has_ids(own)
        if exact and own and not by_ids and not any(each.names for each in fields):
            raise Refused(
                f"Cannot read {file.path}: its columns have no field ids, and no names are mapped to columns of the"
                " table",
                next_step=f"Map them by the table's property {NAME_MAPPING}, or rewrite the file by the engine that"
                " reads it.",
            )
        places = {*places_of([each for each in fields if each.is_readable], own, by_ids=by_ids)}
        return sorted(place for place in places if place is not None)

    batch_rows = rows_at_once(file.size_bytes, file.record_count, limit, batch_bytes=batch_bytes)
    match file.file_format:
        case "parquet":
            return parquet_batches(
                parts,
                file.path,
                choose,
                split=file.split,
                batch_rows=batch_rows,
                exact=exact,
                most_page_bytes=most_page_bytes,
            )
        case "orc":
            return orc_batches(parts, file.path, choose, batch_rows=batch_rows)
        case "avro":
            from iceberg_cli.iceberg.rows.avro_rows import avro_batches

            return avro_batches(stream_of(parts), file.path, choose, batch_rows=batch_rows)
    raise Refused(f"Cannot read {file.path}: files of the format {file.file_format!r} are not read here")


def rows_of(
    batch: RowBatch, fields: Sequence[Field], file: DataFile, *, mismatch_is_null: bool = False
) -> pa.Table:
    """The rows of a batch with the table's columns; see `project`.

    Raises:
        CorruptFile: a column has a type that cannot become the table's.
    """
    try:
        return project(
            batch.columns,
            batch.fields,
            fields,
            count=batch.count,
            by_ids=has_ids(batch.fields) or not batch.fields,
            constants=file.constants,
            mismatch_is_null=mismatch_is_null,
        )
    except Mismatch as error:
        raise CorruptFile(file.path, "field " + str(error).partition(":")[0], str(error)) from error


def keys_of(rows: pa.Table, columns: EqualityColumns) -> pa.Array:
    """The key of each of n rows: equal where all compared values are, null being equal to null.

    Spec: "Equality Delete Files".
    """
    keys = pa.repeat(pa.scalar(b""), rows.num_rows)
    for path in columns.paths:
        values = rows.column(path[0]).combine_chunks()
        for place in path[1:]:
            values = pc.struct_field(values, [place])
        if isinstance(values.type, pa.BaseExtensionType):
            values = values.storage
        keys = pc.binary_join_element_wise(keys, spelled(_comparable(values)), b"/")
    return keys


def _comparable(values: pa.Array) -> pa.Array:
    types, kind = pa.types, values.type
    if types.is_decimal(kind):
        return values.cast(pa.string())
    if types.is_date32(kind) or types.is_time32(kind):
        return values.cast(pa.int32())
    if types.is_temporal(kind):
        return values.cast(pa.int64())
    return values


def columns_for(field_ids: Sequence[int], schemas: Sequence[Sequence[Field]]) -> EqualityColumns | None:
    """The columns that equality deletes compare, from the first schema that has each; None where none has one."""
    fields: list[Field] = []
    paths: list[tuple[int, ...]] = []
    for field_id in field_ids:
        found = next((each for schema in schemas if (each := _only(schema, field_id)) is not None), None)
        if found is None:
            return None
        column, depth = found
        paths.append((len(fields), *([0] * depth)))
        fields.append(column)
    return EqualityColumns(fields=tuple(fields), paths=tuple(paths))


def _only(fields: Sequence[Field], field_id: int) -> tuple[Field, int] | None:
    """A column with nothing in its structs but the field of an id, and how deep that is."""
    for each in fields:
        if each.field_id == field_id:
            return each, 0
        if isinstance(each.type, StructOf) and (inner := _only(each.type.fields, field_id)):
            column = Field(
                name=each.name,
                type=StructOf((inner[0],)),
                field_id=each.field_id,
                names=each.names,
                default=each.default,
            )
            return column, inner[1] + 1
    return None


def _positions(blobs: Sequence[bytes]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The positions of all blobs, ascending."""
    if not blobs:
        return np.empty(0, np.uint64)
    return np.unique(np.concatenate([positions_in(blob) for blob in blobs]))
