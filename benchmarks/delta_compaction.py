"""The rows of `python -m benchmarks compaction` on Delta tables: against delta-rs and Delta Spark."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow.parquet as pq

from benchmarks.bench import Bench, Row
from benchmarks.measure import Run
from benchmarks.peers import python
from benchmarks.row_files import FIELDS, PARTITIONS, partition_of, row_files
from benchmarks.rows import DELTA_RS, on_delta_spark, verb
from iceberg_cli.testing.delta_rows import deleted_positions, state_of
from iceberg_cli.testing.delta_writer import (
    Action,
    a_field,
    a_metadata,
    a_protocol_with,
    an_add,
    write_log,
    write_vectors,
)

_ZSTD: Final = DELTA_RS + (
    "from deltalake import WriterProperties; "
    "settings = WriterProperties(compression='ZSTD', compression_level=3); "
)
_COMPACT: Final = f"{_ZSTD}t.optimize.compact(target_size=1 << 30, writer_properties=settings)"
_Z_ORDER: Final = f"{_ZSTD}t.optimize.z_order(['n', 'a'], target_size=1 << 30, writer_properties=settings)"
_CURVED: Final = ("--curve-by", "n,a")
_KINDS: Final = {
    "n": "long", "k": "string", "a": "double", "b": "integer", "s": "string", "u": "string", "ts": "timestamp_ntz",
    "d": "decimal(12,2)", "l": {"type": "array", "elementType": "integer", "containsNull": True},
}  # fmt: skip


def delta_compaction_rows(bench: Bench, *, files: int, rows: int) -> Iterator[Row]:
    """All small files of a Delta table, as they are and along a curve, and all files with deleted rows."""
    table = bench.table("delta", partial(make_delta_rows_table, files=files, rows=rows, with_vectors=False))
    look = partial(rows_of_delta_table, table.location)
    unproved = "--no-verify-rows"
    z_order: tuple[str, ...] = ("--strategy", "z-order", *_CURVED)
    for label, peer, statement, options, bars in (
        ("", _COMPACT, "", (), (2.0, 1 / 4)),
        (", rows not proved", _COMPACT, "", (unproved,), (1.2, None)),
        (", z-order", _Z_ORDER, " ZORDER BY (n, a)", z_order, (1.4, 1 / 3)),
        (", Hilbert", _Z_ORDER, " ZORDER BY (n, a)", _CURVED, (1.4, 1 / 3)),
        (", Hilbert, rows not proved", _Z_ORDER, "", (*_CURVED, unproved), (1.0, None)),
    ):
        ours = verb("rewrite-data-files", table, *options)
        row = Row(
            f"Delta, {files} files x {rows:,} rows{label}",
            "delta-rs compact" if peer is _COMPACT else "delta-rs z_order",
            ours, python(peer, table.location), table.fresh, look=look, bar=bars[0], most_mb=800,
        )  # fmt: skip
        yield row
        if bars[1] is not None:
            job = {"sql": f"OPTIMIZE delta.`{table.location}`{statement}"}
            yield from on_delta_spark(bench, replace(row, bar=bars[1]), job)
    table = bench.table("purged", partial(make_delta_rows_table, files=files, rows=rows, with_vectors=True))
    work = f"Delta, {files} files x {rows:,} rows, a tenth deleted by DVs"
    purge = Row(
        work, "", verb("rewrite-data-files", table, "--purge"), None, table.fresh,
        look=partial(rows_of_delta_table, table.location), bar=1 / 5, most_mb=800,
    )  # fmt: skip
    job = {"sql": f"REORG TABLE delta.`{table.location}` APPLY (PURGE)"}
    yield from on_delta_spark(bench, purge, job)


def rows_of_delta_table(location: str, _: Run) -> Hashable:
    """The number of live rows, and the sum of their numbers."""
    root = Path(location)
    count = total = 0
    for add in state_of(root).adds.values():
        numbers = pq.read_table(root / unquote(add["path"]), columns=["n"], partitioning=None)["n"].to_numpy()
        gone = [*deleted_positions(root, add)]
        count += len(numbers) - len(gone)
        total += int(numbers.sum()) - int(numbers[gone].sum())
    return count, total


def make_delta_rows_table(location: str, *, files: int, rows: int, with_vectors: bool) -> None:
    """A table in files of zstd, in partitions; with vectors, a tenth of the rows of each file is deleted.

    Args:
        location: of the table.
        files: of data.
        rows: of each.
        with_vectors: whether rows are deleted.
    """
    root = Path(location)
    root.mkdir(parents=True)
    actions: list[Action] = []
    gone = range(0, rows, 10)
    for number, data in enumerate(row_files(files, rows, without=["k"])):
        name = f"f{partition_of(number)}-{number}.parquet"
        (root / name).write_bytes(data)
        vector = write_vectors(root, number + 1, [0], gone)[1] if with_vectors else None
        stats = {"numRecords": rows, **({"tightBounds": False} if with_vectors else {})}
        actions.append(
            an_add(
                path=name,
                size=len(data),
                partitionValues={"k": partition_of(number)},
                stats=json.dumps(stats),
                dv=vector,
            )
        )
    fields = [a_field(field.name, _KINDS[field.name]) for field in FIELDS]
    configuration = {"delta.parquet.compression.codec": "zstd"}
    if with_vectors:
        configuration["delta.enableDeletionVectors"] = "true"
    features = ["timestampNtz", *(["deletionVectors"] if with_vectors else [])]
    metadata = a_metadata(*fields, partitionColumns=["k"], configuration=configuration)
    write_log(root, [a_protocol_with(*features), metadata, *actions])
    assert len({partition_of(number) for number in range(files)}) == PARTITIONS
