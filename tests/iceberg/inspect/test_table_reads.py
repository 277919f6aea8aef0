"""How many files a read of one value opens, as `inspect TABLE files` says it of an Iceberg table."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.branch.column_ranges import ranges_of
from iceberg_cli.iceberg.branch.entry_columns import FILES_SCHEMA
from iceberg_cli.iceberg.rows.metrics_modes import COUNTS, NONE, MetricsMode
from iceberg_cli.iceberg.spec.types.schema import NestedField
from iceberg_cli.layout.point_reads import files_opened
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.iceberg_writer import IcebergWriter
from tests.cli.running import iceberg_cli as run


def packed(form: str, *values: Any) -> list[bytes | None]:
    return [None if each is None else struct.pack(form, each) for each in values]


def files(lower: list[bytes | None], upper: list[bytes | None]) -> pa.Table:
    """Files of 5 rows with bounds of one column."""
    columns: dict[str, Any] = {name: [None] * len(lower) for name in FILES_SCHEMA.names}
    columns |= {
        "path": [f"{place}.parquet" for place in range(len(lower))],
        "record_count": [5] * len(lower),
        "lower_bounds": [[each] for each in lower],
        "upper_bounds": [[each] for each in upper],
        "null_counts": [[0]] * len(lower),
        "nan_counts": [[None]] * len(lower),
    }
    return pa.table(columns, schema=FILES_SCHEMA).slice(1)


def field(kind: str) -> NestedField:
    return NestedField(field_id=1, name="n", required=False, type=kind)


@pytest.mark.parametrize(
    ("kind", "form", "lower", "upper"),
    [
        ("int", "<i", [-5, None, 7], [-1, None, 2**31 - 1]),
        ("long", "<q", [-(2**62), 3, 0], [0, 4, 1]),
        ("float", "<f", [-1.5, None, 0.25], [-1.0, 2.0, 0.5]),
        ("double", "<d", [-1e300, 1.5, 0.0], [0.0, 2.5, 1e300]),
        ("date", "<i", [0, 10, -10], [1, 20_000, -9]),
        ("timestamptz", "<q", [0, 10, -(2**50)], [1, 2**50, -9]),
    ],
)
def test_bounds_are_the_numbers_that_the_specification_says(
    kind: str, form: str, lower: list[Any], upper: list[Any]
) -> None:
    """Appendix D, "Binary single-value serialization"; a file before them is left out, as slices leave out rows."""
    first = packed(form, 1)
    data = files(first + packed(form, *lower), first + packed(form, *upper))
    (found,) = ranges_of(data, [field(kind)], {})
    known = [low is not None and high is not None for low, high in zip(lower, upper, strict=True)]
    assert found.is_known.tolist() == known
    for place in range(3):
        if known[place]:
            assert (found.lower[place], found.upper[place]) == (lower[place], upper[place])


def test_bounds_from_before_a_promotion_are_shorter() -> None:
    """Schema evolution: an `int` that became a `long`, a `float` that became a `double`."""
    data = files([None, *packed("<i", -7), *packed("<q", 8)], [None, *packed("<i", -6), *packed("<q", 2**40)])
    (found,) = ranges_of(data, [field("long")], {})
    assert (found.lower.tolist(), found.upper.tolist()) == ([-7, 8], [-6, 2**40])
    data = files([None, *packed("<f", 0.5)], [None, *packed("<f", 1.5)])
    (found,) = ranges_of(data, [field("double")], {})
    assert (found.lower.tolist(), found.upper.tolist()) == ([0.5], [1.5])


def test_a_bound_that_is_no_value_is_named_by_its_file() -> None:
    with pytest.raises(CorruptFile, match=r"1\.parquet.*3 bytes are no value of type long"):
        ranges_of(files([None, b"abc"], [None, *packed("<q", 1)]), [field("long")], {})


@pytest.mark.parametrize("mode", [NONE, COUNTS], ids=["none", "counts"])
def test_bounds_of_before_a_column_lost_them_are_used(mode: MetricsMode) -> None:
    (found,) = ranges_of(files([None, b"a", b"c"], [None, b"b", b"d"]), [field("string")], {1: mode})
    assert found.is_known.all()
    assert files_opened(found, np.array([5, 5])) == 1


SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "n", "required": False, "type": "long"},
        {"id": 2, "name": "s", "required": False, "type": "string"},
        {"id": 3, "name": "day", "required": False, "type": "date"},
    ],
}
BY_DAY = {
    "spec-id": 0,
    "fields": [{"source-id": 3, "field-id": 1000, "name": "day", "transform": "identity"}],
}


def test_each_column_but_that_of_the_partition_has_its_reads(tmp_path: Path) -> None:
    """Day 1: three files of 10 rows, of `n` one after another, of `s` alike; day 2: one file of 30 rows."""
    writer = IcebergWriter(
        storage=open_storage(),
        location=str(tmp_path / "t"),
        schema=SCHEMA,
        spec=BY_DAY,
        time_ms=1_790_000_000_000,
    )

    def a_file(day: int, first: int, rows: int) -> dict[str, Any]:
        values = {
            "n": range(first, first + rows),
            "s": ["a", *["m"] * (rows - 1)],
            "day": pa.array([day] * rows, pa.int32()),
        }
        return writer.data_file(pa.table(values), {"day": day})

    writer.commit_files("append", [a_file(1, 0, 10), a_file(1, 10, 10), a_file(1, 20, 10), a_file(2, 5, 30)])
    writer.publish()
    document = run("inspect", writer.location, "files", "--format", "json").json
    assert document["reads"] == [
        {"column": "n", "opened": 1.0, "files": 2.0},
        {"column": "s", "opened": 2.0, "files": 2.0},
    ]
    limited = run("inspect", writer.location, "files", "--limit", 1)
    assert limited.out.splitlines()[-2].split() == ["n", "1.0", "2.0", f"{'#' * 10}{'.' * 10}"]
