"""Delta tables with files of deletion vectors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from iceberg_cli.testing.delta_writer import (
    Action,
    a_metadata,
    a_protocol_with,
    an_add,
    write_log,
    write_vectors,
)

ON = {"delta.enableDeletionVectors": "true"}


def a_table(
    root: Path,
    *adds: Action,
    features: tuple[str, ...] = ("deletionVectors",),
    configuration: Mapping[str, str] = ON,
    others: tuple[Action, ...] = (),
) -> Path:
    write_log(root, [a_protocol_with(*features), a_metadata(configuration=configuration), *adds, *others])
    return root


def evens(number: int) -> list[int]:
    """Positions that no writer would write as a run."""
    return list(range(0, 2 * number + 1, 2))


def many_files(root: Path, count: int = 5) -> list[Action]:
    """One data file of 20 rows for each file of one vector; file `n` lacks the rows 0, 2, ... 2 n."""
    return [
        an_add(path=f"{number}.parquet", rows=20, dv=write_vectors(root, number, evens(number))[0])
        for number in range(count)
    ]
