"""`python -m benchmarks compaction`: data files rewritten, against a copy by pyarrow and against Spark's procedure.

No command has the verb yet: a program of ours calls it, and what it takes to start is counted.
"""

from __future__ import annotations

import io
from collections.abc import Hashable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench import Bench, Row
from benchmarks.measure import Run
from benchmarks.peers import Session, python
from benchmarks.rows import WARM, floor, matching
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.iceberg_files import DATA, Json
from tests.delete_tables import DeleteTable

SIZES: Final = {"S": (60, 3_000), "M": (600, 13_000), "L": (600, 130_000)}  # files, rows of each
PARTITIONS: Final = 12
_WORDS: Final = 20_000
_FEW_WORDS: Final = 200

OURS = """
import sys, time
from iceberg_cli.formats.open import open_table
from iceberg_cli.iceberg.verbs.rewrite_data_files.plan import VERB
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.operation.apply import apply
from iceberg_cli.operation.runtime import system_runtime
unheard = lambda _: None
table = open_table(sys.argv[1], storage_options={}, catalog_config=None, on_event=unheard)
policy = RewriteDataFiles(no_verify_rows="no-proof" in sys.argv, processes=int(sys.argv[2]))
planned = VERB.plan(table, policy, as_of_ms=time.time_ns() // 1_000_000)
report = apply(planned, table, VERB, system_runtime(on_event=unheard, host="here", process_id=1))
assert report.status == "done", report
"""

# Reads the files of each partition and writes one of them, two partitions at a time, with the same codec and level.
COPY = """
import os, sys
from multiprocessing import get_context
import pyarrow as pa, pyarrow.parquet as pq
names = open(sys.argv[1]).read().split()
by_folder = {}
for name in names:
    by_folder.setdefault(os.path.basename(name).split("-")[0], []).append(name)
def copy(item):
    label, names = item
    writer = None
    for table in [pa.concat_tables([pq.read_table(name) for name in names])]:
        writer = pq.ParquetWriter(
            f"{sys.argv[1]}.{label}", table.schema, compression="zstd", compression_level=3, version="2.6",
            store_schema=False, write_page_index=True, data_page_size=1 << 20,
        )
        writer.write_table(table, row_group_size=len(table))
    writer.close()
with get_context("fork").Pool(2) as pool:
    pool.map(copy, sorted(by_folder.items()), chunksize=1)
"""

SPARK = "CALL lake.system.rewrite_data_files(table => 'lake.db.t')"


def compaction_rows(bench: Bench) -> Iterator[Row]:
    """All small files of a table of nine columns, with the proof of rows and without, and deleted rows applied."""
    files, rows = SIZES[bench.size_name]
    for version, name in ((2, "t"), (3, "v3")):
        table = bench.table(name, partial(make_rows_table, files=files, rows=rows, version=version))
        work = f"v{version}, {files} files x {rows:,} rows"
        copy = floor(COPY, table, matching("f*.parquet"))
        for label, options, bar in (("", [], 2.0), (", rows not proved", ["no-proof"], 1.4)):
            command = python(OURS, table.location, "2", *options)
            yield Row(
                work + label, "floor: pyarrow copy, 2 processes", command, copy, table.fresh, bar=bar, most_mb=700,
            )  # fmt: skip
    if bench.spark:
        table = bench.table("t", partial(make_rows_table, files=files, rows=rows, version=2))
        with Session(bench.root) as session:
            yield Row(
                f"v2, {files} files x {rows:,} rows", WARM, python(OURS, table.location, "2"),
                partial(session.run, SPARK), table.fresh, look=partial(rows_of_head, table.location), bar=1 / 3,
            )  # fmt: skip


def rows_of_head(location: str, _: Run) -> Hashable:
    """The number of rows, and the sum of their numbers, by PyIceberg."""
    from pyiceberg.table import StaticTable

    newest = max(Path(f"{location}/metadata").glob("*.metadata.json"), key=lambda path: path.stat().st_mtime)
    found = StaticTable.from_metadata(str(newest)).scan(selected_fields=("n",)).to_arrow()
    return found.num_rows, int(np.sum(found["n"].to_numpy()))


def _column(field_id: int, name: str, type_: Any) -> Json:
    return {"id": field_id, "name": name, "required": False, "type": type_}


def _field(field_id: int, name: str, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, metadata={"PARQUET:field_id": str(field_id)})


_LIST: Final = {"type": "list", "element-id": 10, "element": "int", "element-required": False}
SCHEMA: Final[Json] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        _column(1, "n", "long"), _column(2, "k", "string"), _column(3, "a", "double"), _column(4, "b", "int"),
        _column(5, "s", "string"), _column(6, "u", "string"), _column(7, "ts", "timestamp"),
        _column(8, "d", "decimal(12, 2)"), _column(9, "l", _LIST),
    ],
}  # fmt: skip
FIELDS: Final = [
    _field(1, "n", pa.int64()), _field(2, "k", pa.string()), _field(3, "a", pa.float64()), _field(4, "b", pa.int32()),
    _field(5, "s", pa.string()), _field(6, "u", pa.string()), _field(7, "ts", pa.timestamp("us")),
    _field(8, "d", pa.decimal128(12, 2)), _field(9, "l", pa.list_(_field(10, "element", pa.int32()))),
]  # fmt: skip


def make_rows_table(location: str, *, files: int, rows: int, version: int) -> None:
    """A table of 12 partitions in files of zstd; of version 3, a tenth of the rows of each file is deleted."""
    table = DeleteTable(storage=LocalStorage(), location=location, format_version=version, schema=SCHEMA)
    table.document["properties"] = {"write.parquet.compression-codec": "zstd"}
    table.document["last-column-id"] = 10
    drawn = np.random.default_rng(7)
    words = np.array([f"word{number:05d}" for number in range(_WORDS)])
    for number in range(files):
        k = f"p{number % PARTITIONS:02d}"
        columns = [
            pa.array(np.arange(rows) + number * rows),
            pa.array([k] * rows),
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
        arrays = [column.cast(field.type) for column, field in zip(columns, FIELDS, strict=True)]
        sink = io.BytesIO()
        pq.write_table(
            pa.Table.from_arrays(arrays, schema=pa.schema(FIELDS)),
            sink,
            compression="zstd",
            store_schema=False,
        )
        table.add(table.file(f"f{k}-{number}.parquet", sink.getvalue(), DATA, rows), k=k)
    table.commit(1)
    if version >= 3:
        for first in range(PARTITIONS):
            k = f"p{first:02d}"
            names = [f"f{k}-{number}" for number in range(first, files, PARTITIONS)]
            table.vectors(f"v{k}", {name: set(range(first, rows, 10)) for name in names}, k=k)
        table.commit(2)
    table.publish()
