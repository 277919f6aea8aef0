"""Rows of data and delete files that go, found batch by batch in this process: held, or on disk where they are many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.removal_rows import FILE_SCHEMA, ICEBERG_KINDS
from iceberg_cli.removals import HELD_ROWS, PART_ROWS

_PLAIN = pa.schema([field for field in FILE_SCHEMA if field.name != "step"])


def held_or_sorted(
    batches: Iterable[pa.Table], *, held_rows: int = HELD_ROWS
) -> tuple[list[pa.Table], Iterator[pa.Table]]:
    """Rows as they came where they are few, or all of them in delete order.

    Args:
        batches: columns of `removal_rows.SCHEMA` but `step`, of kinds of `ICEBERG_KINDS`.
        held_rows: so many are few.

    Returns:
        The same batches, or none; and none, or rows of plain columns, about as many at a time as a part has.
    """
    waiting: list[pa.Table] = []
    coming, count = iter(batches), 0
    for batch in coming:
        waiting.append(batch)
        count += len(batch)
        if count > held_rows:
            return [], _in_order(waiting, coming)
    return waiting, iter(())


def _in_order(waiting: list[pa.Table], coming: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Batches that were taken already, and all others: read at once, put in order while they are asked for."""
    from iceberg_cli.sorted_runs import SortedRuns

    runs = SortedRuns(("rank", "path"), rows=PART_ROWS)
    while waiting:
        runs.add(_ranked(waiting.pop()))
    for batch in coming:
        runs.add(_ranked(batch))
    return (rows.drop_columns(["rank"]) for rows in runs.merged())


def _ranked(batch: pa.Table) -> pa.Table:
    """Plain columns, and the place of the kind in the delete order."""
    rows = batch.select(_PLAIN.names).cast(_PLAIN)
    rank = pc.index_in(rows["kind"], value_set=pa.array(ICEBERG_KINDS))
    return rows.append_column("rank", rank)
