"""A table that is written anew again and again: almost all files that it ever held go when its snapshots expire."""

from __future__ import annotations

import numpy as np

from benchmarks.table_writer import Writer
from benchmarks.tables import Made, Size

MANIFEST_FILES = 50_000


def make_replaced_table(location: str, size: Size) -> Made:
    """A v2 table whose snapshots have no file in common. Its data files are in its metadata alone.

    Entries hold no metrics of columns, so that many of them are made and read in little time.
    """
    writer = Writer(location, small=True)
    files = size.files_per_snapshot
    for number in range(1, size.snapshots + 1):
        new = np.arange((number - 1) * files, number * files)
        parts = np.array_split(new, -(-files // MANIFEST_FILES))
        writer.snapshot([writer.manifest(part, len(part), number, number) for part in parts], added=files)
    writer.publish()
    return Made(
        location, size.snapshots, size.snapshots * files, files, writer.entries, writer.written, size.last_ms
    )
