"""Position delete files as sets of positions by data file, read column by column.

Spec: "Position Delete Files".
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.encoding.deletion_vector import encode
from iceberg_cli.encoding.deletion_vector.roaring import MAX_BITMAPS
from iceberg_cli.errors import CorruptFile, Refused

FILE_PATH_ID: Final = 2147483546
POS_ID: Final = 2147483545
PARTS_SCHEMA: Final = pa.schema(
    [
        pa.field("source", pa.string()),  # the position delete file
        pa.field("path", pa.string()),  # the data file, as the rows spell it
        pa.field("cardinality", pa.int64()),
        pa.field("last", pa.int64()),  # the highest position
        pa.field("size", pa.int64()),  # of the blob, in bytes
        pa.field("blob", pa.large_binary()),  # see `deletion_vector`; null where it was not kept
    ]
)
_BATCH_ROWS: Final = 1 << 20
TOP: Final = MAX_BITMAPS << 32  # the lowest position that no deletion vector holds
_RUNS_PER_PATH: Final = 4  # more, and the rows are not sorted as they should be


@dataclass(frozen=True, slots=True)
class FileSplit:
    """Part `number` of `of` about equal parts of a file, by whole row groups; it may be empty."""

    number: int = 0
    of: int = 1


WHOLE: Final = FileSplit()


def read_position_deletes(
    data: bytes,
    path: str,
    *,
    record_count: int,
    only: Container[str] | None = None,
    split: FileSplit = WHOLE,
) -> pa.Table:
    """The positions that one Parquet file deletes.

    Args:
        data: the file, whole, of whatever split: its footer says where the row groups are.
        path: for messages, and `source` of the result.
        record_count: rows that its manifest entry says it has.
        only: data files that are asked for; None for all.
        split: what is decoded.

    Returns:
        Rows of `PARTS_SCHEMA`, one for each data file that is named and asked for. Positions from 2^49 on are only in
        `last`.

    Raises:
        CorruptFile: no Parquet file of the two columns, another number of rows, a null, a negative position.
        Refused: a Parquet file that pyarrow cannot open.
    """
    return read_split(data, path, record_count=record_count, only=only, split=split)[0]


def read_split(
    data: bytes, path: str, *, record_count: int, only: Container[str] | None, split: FileSplit
) -> tuple[pa.Table, int]:
    """See `read_position_deletes`; also the number of rows that were decoded.

    The row groups' counts make up `record_count`, and each row group has as many rows as it says.
    """
    parts: dict[str, list[npt.NDArray[np.int64]]] = {}
    rows, distinct, waiting = 0, 0, 0
    try:
        expected, batches = _batches(data, path, record_count, split, with_positions=True)
        for batch in batches:
            _split(batch, parts, path, only)
            rows += batch.num_rows
            waiting += batch.num_rows
            # Few positions, said again and again, are a small file and would be a great many rows.
            if waiting > max(distinct, _BATCH_ROWS):
                parts = {name: [positions_of(arrays)] for name, arrays in parts.items()}
                distinct, waiting = sum(len(arrays[0]) for arrays in parts.values()), 0
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(path, None, f"no readable Parquet file: {str(error)[:200]}") from error
    if rows != expected:
        raise CorruptFile(path, None, rows_differ(rows, expected))
    sets = {name: positions_of(arrays) for name, arrays in parts.items()}
    try:
        blobs = [encode(each[: np.searchsorted(each, TOP)].astype(np.uint64)) for each in sets.values()]
    except ValueError as error:
        raise CorruptFile(path, "field pos", str(error)) from error
    found = pa.table(
        {
            "source": pa.array([path] * len(sets), pa.string()),
            "path": pa.array(list(sets), pa.string()),
            "cardinality": pa.array([len(positions) for positions in sets.values()], pa.int64()),
            "last": pa.array([int(positions[-1]) for positions in sets.values()], pa.int64()),
            "size": pa.array(list(map(len, blobs)), pa.int64()),
            "blob": pa.array(blobs, pa.large_binary()),
        },
        schema=PARTS_SCHEMA,
    )
    return found, rows


def named_files(data: bytes, path: str, *, record_count: int) -> list[str]:
    """The data files that one Parquet file names, each once, from its whole `file_path` column.

    Args:
        data: the file, whole.
        path: for messages.
        record_count: rows that its manifest entry says it has.

    Raises:
        CorruptFile: no Parquet file with that column, another number of rows, a null.
        Refused: a Parquet file that pyarrow cannot open.
    """
    names: dict[str, None] = {}
    rows = 0
    try:
        expected, batches = _batches(data, path, record_count, WHOLE, with_positions=False)
        for batch in batches:
            column = batch.column(0)
            _check_names(column, path)
            names.update(dict.fromkeys(column.dictionary.to_pylist()))
            rows += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(path, None, f"no readable Parquet file: {str(error)[:200]}") from error
    if rows != expected:
        raise CorruptFile(path, None, rows_differ(rows, expected))
    return list(names)


def rows_differ(rows: int, expected: int) -> str:
    """Why a file is corrupt of which another number of rows was read."""
    return f"{rows} rows were read, its footer and manifest say {expected}"


def without_blobs(parts: pa.Table) -> pa.Table:
    """The same rows of `PARTS_SCHEMA` with null for each blob."""
    place = PARTS_SCHEMA.get_field_index("blob")
    return parts.set_column(place, PARTS_SCHEMA.field(place), pa.nulls(len(parts), pa.large_binary()))


def positions_of(parts: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Positions from several arrays, ascending, each once."""
    joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if len(joined) > 1 and not bool((joined[1:] > joined[:-1]).all()):
        joined = np.unique(joined)
    return joined


def _batches(
    data: bytes, path: str, record_count: int, split: FileSplit, *, with_positions: bool
) -> tuple[int, Iterator[pa.RecordBatch]]:
    """The row count of a split, and batches of its columns: `file_path`, dictionary-encoded, and maybe `pos`."""
    import pyarrow.parquet as pq

    try:
        # The paths are the first column of nearly all files, and opening a small one again takes as long as reading it.
        file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=[0])
    except (pa.ArrowException, OSError) as error:
        raise _unopened(data, path, error) from error
    rows = file.metadata.num_rows
    if rows != record_count:
        raise CorruptFile(path, None, f"the file has {rows} rows, its manifest says {record_count}")
    schema = file.schema_arrow
    names = delete_column_names(schema, path)[: 2 if with_positions else 1]
    if names[0] != schema.names[0]:
        file = pq.ParquetFile(pa.BufferReader(data), metadata=file.metadata, read_dictionary=names[:1])
    counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    if sum(counts) != record_count:
        raise CorruptFile(path, None, rows_differ(sum(counts), record_count))
    mine = [group for group in range(len(counts)) if group * split.of // len(counts) == split.number]
    batches = file.iter_batches(_BATCH_ROWS, row_groups=mine, columns=names, use_threads=False)
    return sum(counts[group] for group in mine), batches if mine else iter(())


def _unopened(data: bytes, path: str, error: Exception) -> CorruptFile | Refused:
    """Why a file cannot be opened: where its frame is whole, another reader may know what this one does not."""
    length = int.from_bytes(data[-8:-4], "little")
    whole = data[:4] == _MAGIC and data[-4:] in (_MAGIC, _ENCRYPTED_MAGIC) and length <= len(data) - 12
    if not whole:
        return CorruptFile(path, None, f"no readable Parquet file: {str(error)[:200]}")
    return Refused(
        f"Cannot read position deletes {path} here: pyarrow says: {str(error)[:200]}",
        next_step="Have an engine that reads the file rewrite these deletes.",
    )


_MAGIC: Final = b"PAR1"
_ENCRYPTED_MAGIC: Final = b"PARE"  # with an encrypted footer
_COLUMNS: Final = ((FILE_PATH_ID, "file_path"), (POS_ID, "pos"))


def delete_column_names(schema: pa.Schema, path: str) -> list[str]:
    """The names that a position delete file has for the columns `file_path` and `pos`.

    Raises:
        CorruptFile: one of them is not there.
    """
    return [_column(schema, field_id, name, path) for field_id, name in _COLUMNS]


def _column(schema: pa.Schema, field_id: int, name: str, path: str) -> str:
    ids = {(field.metadata or {}).get(b"PARQUET:field_id"): field.name for field in schema}
    found = ids.get(str(field_id).encode())
    if found is None and set(ids) == {None} and name in schema.names:
        found = name  # a writer that records no ids at all
    if found is None:
        raise CorruptFile(path, f"field {name}", f"no column has field id {field_id}")
    return str(found)


def _check_names(names: pa.Array, path: str) -> None:
    if names.null_count:
        raise CorruptFile(path, "field file_path", "required, but null")
    if not pa.types.is_dictionary(names.type):
        raise CorruptFile(path, "field file_path", f"a column of type {names.type}")


def _split(
    batch: pa.RecordBatch,
    parts: dict[str, list[npt.NDArray[np.int64]]],
    path: str,
    only: Container[str] | None,
) -> None:
    """Add a batch's positions to those of their data files."""
    names, positions = batch.column(0), batch.column(1)
    _check_names(names, path)
    if positions.null_count:
        raise CorruptFile(path, "field pos", "required, but null")
    if not pa.types.is_int64(positions.type):
        raise CorruptFile(path, "field pos", f"a column of type {positions.type}")
    indices = names.indices.to_numpy()
    values = positions.to_numpy()
    if len(values) and int(values.min()) < 0:
        raise CorruptFile(path, "field pos", f"position {values.min()}")
    texts = names.dictionary
    if np.count_nonzero(indices[1:] != indices[:-1]) > _RUNS_PER_PATH * len(texts):
        order = np.argsort(indices, kind="stable")
        indices, values = indices[order], values[order]
    starts = np.flatnonzero(np.concatenate([[len(indices) > 0], indices[1:] != indices[:-1]]))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(indices)], strict=True):
        name = texts[int(indices[start])].as_py()
        if only is None or name in only:
            # A copy: a view would keep the whole batch.
            parts.setdefault(name, []).append(values[start:stop].copy())
