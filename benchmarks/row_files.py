"""Data files of nine columns of drawn values, in zstd, for the tables of `python -m benchmarks compaction`."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PARTITIONS: Final = 12
_WORDS: Final = 20_000
_FEW_WORDS: Final = 200


def field_with_id(field_id: int, name: str, type_: pa.DataType) -> pa.Field:
    """A column of a file that records its id."""
    return pa.field(name, type_, metadata={"PARQUET:field_id": str(field_id)})


_ELEMENT: Final = field_with_id(10, "element", pa.int32())
FIELDS: Final = [
    field_with_id(place, name, kind)
    for place, (name, kind) in enumerate(
        {
            "n": pa.int64(), "k": pa.string(), "a": pa.float64(), "b": pa.int32(), "s": pa.string(), "u": pa.string(),
            "ts": pa.timestamp("us"), "d": pa.decimal128(12, 2), "l": pa.list_(_ELEMENT),
        }.items(),
        start=1,
    )
]  # fmt: skip


def partition_of(number: int, partitions: int = PARTITIONS) -> str:
    """The value of `k` in the file of a number."""
    return f"p{number % partitions:02d}"


def row_files(
    files: int, rows: int, *, partitions: int = PARTITIONS, without: Collection[str] = ()
) -> Iterator[bytes]:
    """Files whose rows are numbered through, without some columns.

    Args:
        files: how many.
        rows: of each.
        partitions: in which they are in turn.
        without: names of columns.
    """
    drawn = np.random.default_rng(7)
    words = np.array([f"word{number:05d}" for number in range(_WORDS)])
    kept = [place for place, field in enumerate(FIELDS) if field.name not in without]
    schema = pa.schema([FIELDS[place] for place in kept])
    for number in range(files):
        columns = [
            pa.array(np.arange(rows) + number * rows),
            pa.array([partition_of(number, partitions)] * rows),
            pa.array(drawn.random(rows)),
            pa.array(drawn.integers(0, 1_000, rows).astype(np.int32)),
            pa.array(words[drawn.integers(0, _WORDS, rows)]),
            pa.array(words[drawn.integers(0, _FEW_WORDS, rows)]),
            pa.array(drawn.integers(0, 10**15, rows).astype("M8[us]")),
            pa.array(drawn.integers(0, 10**6, rows)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2)),
            pa.ListArray.from_arrays(
                np.arange(rows + 1, dtype=np.int32) * 2, drawn.integers(0, 100, rows * 2).astype(np.int32)
            ),
        ]
        arrays = [columns[place].cast(FIELDS[place].type) for place in kept]
        sink = io.BytesIO()
        pq.write_table(
            pa.Table.from_arrays(arrays, schema=schema), sink, compression="zstd", store_schema=False
        )
        yield sink.getvalue()
