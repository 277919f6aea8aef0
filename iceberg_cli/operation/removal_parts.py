"""Removals that are too many for memory, as parts in a local file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

import pyarrow as pa

from iceberg_cli.encoding.external_sort import SpillFile
from iceberg_cli.plan.removal_rows import KINDS, in_delete_order, to_parquet
from iceberg_cli.plan.removals import (
    HELD_ROWS,
    PART_ROWS,
    MemoryPart,
    ParquetPart,
    RemovalPart,
    Removals,
    stored_part,
)


def collected(tables: Iterable[pa.Table]) -> Removals:
    """Removals whose rows come table by table, each path once.

    Args:
        tables: one, with rows in any order; or several that are in delete order one after the other, within each in
            any order. Of several, no more is in memory at once than a part has.
    """
    waiting = iter(tables)
    first: list[pa.Table] = []
    for table in waiting:
        first.append(table)
        if len(first) > 1 and sum(map(len, first)) > PART_ROWS:
            break
    else:
        return Removals.of(pa.concat_tables(first))
    return Removals(tuple(_on_disk(chain(first, waiting))))


def in_parts(removals: Removals) -> Removals:
    """The same removals, in parts on disk where they are many."""
    few = len(removals.parts) == 1 and removals.count <= HELD_ROWS
    if few or all(isinstance(part, ParquetPart) for part in removals.parts):
        return removals
    return Removals(tuple(_on_disk(part.read() for part in removals.parts)))


def _on_disk(tables: Iterable[pa.Table]) -> Iterator[RemovalPart]:
    """Tables that are in delete order one after the other, as parts."""
    spill = SpillFile()
    last = ("", -1, "")
    for table in tables:
        if not table.num_rows:
            continue
        rows = in_delete_order(table)
        if _place(rows, 0) < last:
            raise AssertionError("removals come in another order than files are to be deleted in")
        last = _place(rows, rows.num_rows - 1)
        for start in range(0, rows.num_rows, PART_ROWS):
            held = MemoryPart(rows.slice(start, PART_ROWS))
            data = to_parquet(held.table)
            yield stored_part(held, data, partial(spill.read, spill.add(data)))


def _place(rows: pa.Table, number: int) -> tuple[str, int, str]:
    """The sort key of a row: step, kind, path."""
    step, kind, path = (rows[name][number].as_py() for name in ("step", "kind", "path"))
    return step, KINDS.index(kind), path
