"""Rows of data files for whoever writes them anew: the live ones, where they stand, and the ids that they keep.

Spec: Delta protocol, "Deletion Vectors", "Column Mapping", "Row Tracking", "Type Widening".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import array_of, one_array
from iceberg_cli.encoding.deletion_vector import decode
from iceberg_cli.encoding.projection import (
    Field,
    Mismatch,
    has_ids,
    places_of,
    positions_that_stay,
    project,
    rows_that_stay,
)
from iceberg_cli.encoding.row_batches import RandomAccess, RowBatch, parquet_batches, rows_at_once
from iceberg_cli.errors import CorruptFile

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A data file whose rows are written anew.

    Args:
        path: its storage path.
        size_bytes: as the log says.
        record_count: of its rows, deleted ones included; None: the log does not say.
        deleted: the frame of its deletion vector, checked; empty for none.
        cardinality: how many rows that deletes.
        base_row_id: the id of its first row; None: it has none.
        row_commit_version: of its rows that do not say so themselves; None: it has none.
    """

    path: str
    size_bytes: int
    record_count: int | None
    deleted: bytes = b""
    cardinality: int = 0
    base_row_id: int | None = None
    row_commit_version: int | None = None


class RowIdColumns(NamedTuple):
    """The names of the columns in files that have the ids of rows, and the versions of their last commits."""

    row_id: str
    commit_version: str

    def fields(self) -> tuple[pa.Field, pa.Field]:
        """As new files have them."""
        return pa.field(self.row_id, pa.int64()), pa.field(self.commit_version, pa.int64())


@dataclass(slots=True)
class LiveBatch:
    """Live rows of a file.

    Args:
        positions: of n rows.
        rows: n.
        count: of all that were read for them.
    """

    positions: Int64s
    rows: pa.Table
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRowReader:
    """Reads live rows of data files, by the names that columns have there.

    Args:
        fields: of the table, see `stored_columns`.
        by_ids: whether columns are found by their ids alone.
        row_ids: where rows keep their ids; None: they have none.
        batch_bytes: of a file, for the rows that are decoded at once.
        most_page_bytes: as in `parquet_batches`.
    """

    fields: tuple[Field, ...]
    by_ids: bool
    row_ids: RowIdColumns | None
    batch_bytes: int
    most_page_bytes: int | None = None
    own: tuple[Field, ...] = field(init=False)

    def __post_init__(self) -> None:
        """The columns of row ids that a file may have."""
        own = tuple(Field(name=name, type=pa.int64(), names=(name,)) for name in self.row_ids or ())
        object.__setattr__(self, "own", own)

    def __call__(self, file: InputFile, parts: RandomAccess) -> Iterator[LiveBatch]:
        """The live rows of a file, with the columns of the table, then those of row ids.

        Raises:
            CorruptFile: it cannot be read, has another number of rows than the log says, or a value that is none of its
            column's type; or its deletion vector deletes rows that it does not have. Refused: it is encrypted.
            TooLittleMemory: see `parquet_batches`.
        """
        gone: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        if file.deleted:
            gone = decode(file.deleted, file.path).positions()
        records = -1 if file.record_count is None else file.record_count
        batches = parquet_batches(
            parts,
            file.path,
            lambda own: self._chosen(own, file.path),
            batch_rows=rows_at_once(parts.size_bytes, records, None, batch_bytes=self.batch_bytes),
            exact=True,
            most_page_bytes=self.most_page_bytes,
        )
        count = 0
        for batch in batches:
            stays = positions_that_stay(batch.first, batch.count, gone)
            rows = rows_that_stay(self._rows(batch, file), stays)
            count += batch.count
            yield LiveBatch(np.flatnonzero(stays) + batch.first, rows, batch.count)
        if file.record_count is not None and count != file.record_count:
            raise CorruptFile(
                file.path, "numRecords", f"it has {count} rows, the log says {file.record_count}"
            )
        last = int(gone[-1]) if len(gone) else -1
        if len(gone) != file.cardinality or last >= count:
            reason = f"{len(gone)} of {count} rows are deleted, the last at {last}; the log says {file.cardinality}"
            raise CorruptFile(file.path, "deletionVector", reason)

    def _chosen(self, own: Sequence[pa.Field], path: str) -> list[int]:
        if self.by_ids and own and not has_ids(own):
            reason = "it has no field ids, and the table finds columns by these (mode id)"
            raise CorruptFile(path, None, reason)
        places = {*places_of(self.fields, own, by_ids=self.by_ids), *places_of(self.own, own, by_ids=False)}
        return sorted(place for place in places if place is not None)

    def _rows(self, batch: RowBatch, file: InputFile) -> pa.Table:
        none: Mapping[int, Any] = {}
        try:
            rows = project(
                batch.columns,
                batch.fields,
                self.fields,
                count=batch.count,
                by_ids=self.by_ids,
                constants=none,
            )
            kept = project(
                batch.columns, batch.fields, self.own, count=batch.count, by_ids=False, constants=none
            )
        except Mismatch as error:
            raise CorruptFile(file.path, "rows", str(error)) from error
        if self.row_ids is None:
            return rows if self.fields else pa.Table.from_arrays([], schema=pa.schema([]))
        assert file.base_row_id is not None
        places = array_of(np.arange(batch.count, dtype=np.int64) + (file.base_row_id + batch.first))
        versions = pa.scalar(file.row_commit_version, pa.int64())
        ids, commits = (one_array(kept.column(name)) for name in self.row_ids)
        rows = rows.append_column(self.row_ids.row_id, pc.coalesce(ids, places))
        return rows.append_column(self.row_ids.commit_version, pc.coalesce(commits, versions))
