"""Rows of data files of a Delta table, without those that deletion vectors delete.

Spec: "Add File and Remove File", "Deletion Vectors", "Column Mapping", "Partition Value Serialization", "Type
Widening".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.delta.spec.paths import dv_path
from iceberg_cli.delta.spec.text_values import value_of
from iceberg_cli.delta.spec.vectors import FRAME_BYTES, UNKNOWN, Vector, frame_of, read_inline
from iceberg_cli.encoding.deletion_vector import decode
from iceberg_cli.encoding.projection import (
    Field,
    arrow_type,
    concat_rows,
    has_ids,
    places_of,
    positions_that_stay,
    project,
    rows_that_stay,
)
from iceberg_cli.encoding.row_batches import FileSplit, parquet_batches, rows_at_once
from iceberg_cli.engines import FileParts, Scan, Source, chained
from iceberg_cli.errors import CorruptFile

if TYPE_CHECKING:
    from iceberg_cli.delta.table import DeltaTable

Positions = npt.NDArray[np.uint64]


class DataFile(NamedTuple):
    """A data file, or a part of one, to be read.

    Args:
        path: its storage path.
        size_bytes: of the file.
        records: in it, as far as the log says.
        split: the part.
        constants: values of partition columns, by the physical name.
        deleted: the frame of its deletion vector, checked; empty for none.
    """

    path: str
    size_bytes: int
    records: int
    split: FileSplit
    constants: Mapping[str, str | None]
    deleted: bytes


class _VectorOfFile(NamedTuple):
    """A deletion vector in a file, and the data file whose it is by its place among those that are read."""

    path: str
    vector: Vector
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReader:
    """Reads rows of data files, where an engine runs it.

    Args:
        fields: of the rows.
        partitioned: those of the table whose values the log has.
        needs_ids: whether columns are found by their ids alone.
        limit: of each part at most so many rows; None: all.
    """

    fields: tuple[Field, ...]
    partitioned: tuple[Field, ...]
    needs_ids: bool
    limit: int | None

    def __call__(self, file: DataFile, parts: FileParts) -> pa.Table:
        """The rows of a part that are not deleted.

        Raises:
            CorruptFile: the file cannot be read. Refused: it is encrypted.
        """
        in_log = {field.name: partition_value(field, file.constants, file.path) for field in self.partitioned}
        stored = [field for field in self.fields if field.name not in in_log]

        def choose(own: Sequence[pa.Field]) -> list[int]:
            by_ids = self.needs_ids and self._with_ids(own, file.path)
            places = {*places_of([field for field in stored if field.is_readable], own, by_ids=by_ids)}
            return sorted(place for place in places if place is not None)

        gone: Positions = np.empty(0, np.uint64)
        if file.deleted:
            gone = decode(file.deleted, file.path).positions()
        found: list[pa.Table] = []
        total = 0
        batch_rows = rows_at_once(file.size_bytes, file.records, self.limit)
        for batch in parquet_batches(parts, file.path, choose, split=file.split, batch_rows=batch_rows):
            rows = project(
                batch.columns,
                batch.fields,
                stored,
                count=batch.count,
                by_ids=self.needs_ids,
                constants={},
                mismatch_is_null=True,
            )
            columns = {name: (rows.schema.field(name), rows[name]) for name in rows.column_names} | {
                field.name: (field.arrow(), pa.repeat(in_log[field.name], batch.count))
                for field in self.partitioned
            }
            chosen = [columns[field.name] for field in self.fields]
            schema = pa.schema([field for field, _ in chosen])
            rows = pa.table([values for _, values in chosen], schema=schema)
            rows = rows_that_stay(rows, positions_that_stay(batch.first, rows.num_rows, gone))
            found.append(rows)
            total += rows.num_rows
            if self.limit is not None and total >= self.limit:
                break
        schema = pa.schema([field.arrow() for field in self.fields])
        return concat_rows([schema.empty_table(), *found]).slice(0, self.limit)

    def _with_ids(self, own: Sequence[pa.Field], path: str) -> bool:
        if not has_ids(own):
            raise CorruptFile(
                path, None, "it has no field ids, and the table finds columns by these (mode id)"
            )
        return True


def partition_value(field: Field, texts: Mapping[str, str | None], path: str) -> pa.Scalar:
    """The value of a partition column of a file.

    Args:
        field: the column.
        texts: as the log has them, by physical names.
        path: of the file, for messages.

    Raises:
        CorruptFile: the log has a text that is no value of the column's type.
    """
    kind = arrow_type(field.type)
    text = next((texts[name] for name in field.names if name in texts), None)
    value = value_of(text, kind)
    if value is None and text:
        raise CorruptFile(path, f"partitionValues.{field.name}", f"{text!r} is no value of type {kind}")
    return pa.scalar(value, kind) if not isinstance(value, int) else pa.array([value], kind)[0]


def vector_frames(
    table: DeltaTable, paths: Sequence[str], descriptors: Sequence[Mapping[str, Any] | None]
) -> list[bytes]:
    """The frames of the deletion vectors of n data files, empty where there is none.

    Args:
        table: opened.
        paths: of the data files, as the log has them.
        descriptors: of their vectors, as the log has them.

    Raises:
        CorruptFile: one is damaged, or not there.
    """
    frames = [b""] * len(paths)
    by_file: dict[str, list[_VectorOfFile]] = {}
    for place, descriptor in enumerate(descriptors):
        if descriptor is None:
            continue
        vector = Vector(
            descriptor["offset"] or 0, descriptor["sizeInBytes"], descriptor["cardinality"], UNKNOWN
        )
        text = descriptor["pathOrInlineDv"]
        path = dv_path(descriptor["storageType"], text, table.root)
        if path is None:
            frames[place] = read_inline(text, vector, paths[place])
        else:
            by_file.setdefault(path, []).append(_VectorOfFile(path, vector, place))
    scan: Scan[list[_VectorOfFile], list[tuple[int, bytes]], list[tuple[int, bytes]]] = Scan(
        lambda vectors: Source(vectors[0].path),
        _read_vectors,
        chained,
        phase="reading deletion vectors",
        in_parts=True,
    )
    for pairs in table.engine.scan(scan, list(by_file.values()), on_event=table.on_event):
        for place, frame in pairs:
            frames[place] = frame
    return frames


def _read_vectors(vectors: Sequence[_VectorOfFile], parts: FileParts) -> list[tuple[int, bytes]]:
    """The frames of deletion vectors in one file, checked, by the places of their data files."""
    version = parts.read(0, 1)
    return [
        (
            each.place,
            frame_of(
                each.path,
                version,
                parts.read(each.vector.offset, each.vector.size_bytes + FRAME_BYTES),
                each.vector,
            ),
        )
        for each in vectors
    ]
