"""Another writer: `python -m tests.fleet.writing TABLE...` appends a row to each now and then, until its input closes.

TABLE is `catalog.namespace.table` in PyIceberg's configuration, or the folder of a Delta table. Prints a line with the
table and the row once the row is committed, and begins with an empty line when it is ready.
"""

from __future__ import annotations

import select
import sys

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException

FIRST = 1_000_000  # no table of a fleet has such a row
PAUSE_S = 0.2


def append(table: str, row: int) -> bool:
    """Append a row to a table; whether it was committed, and not beaten by another commit."""
    rows = pa.table({"n": pa.array([row], pa.int64())})
    try:
        if "/" in table:
            write_deltalake(DeltaTable(table), rows, mode="append")
        else:
            catalog, name = table.split(".", 1)
            load_catalog(catalog).load_table(name).append(rows)
    except (CommitFailedError, CommitFailedException):
        return False
    return True


def main(*tables: str) -> None:
    print(flush=True)
    row = FIRST
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        for table in tables:
            if append(table, row):
                print(table, row, flush=True)
        row += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
