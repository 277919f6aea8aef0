"""`inspect TABLE sample` of tables that Delta Spark writes: the rows that it reads, of every version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import iceberg_cli as ic
from tests.delta_live.lake import DeltaLake, commits, in_order
from tests.delta_live.shapes import VECTORS, Shape, delete, insert, odd
from tests.delta_spark import plain

pytestmark = [pytest.mark.jvm, pytest.mark.deep]

_NESTED = (
    ", b BOOLEAN, i INT, f FLOAT, c DECIMAL(9, 2), d DATE, ts TIMESTAMP, tn TIMESTAMP_NTZ, bin BINARY, a ARRAY<INT>,"
    " m MAP<STRING, STRUCT<x: INT, y: STRING>>, st STRUCT<p: INT, q: STRUCT<r: DOUBLE, w: ARRAY<STRING>>>"
)
_VALUES = (
    "INSERT INTO {t} SELECT id, concat('k', id % 2), id % 2 = 0, cast(id as int) - 5, cast(id / 7 as float),"
    " cast(id as decimal(9, 2)) / 4 - 1, date_add(DATE '1969-12-30', cast(id as int)),"
    " timestamp_micros(id * 1000003 - 5000000), cast(timestamp_micros(id * 7777777) as timestamp_ntz),"
    " cast(concat('x', id) as binary), array(cast(id as int), null),"
    " map(concat('k', id), named_struct('x', cast(id as int), 'y', null)),"
    " named_struct('p', cast(id as int), 'q', named_struct('r', id / 3, 'w', array('a', concat('b', id))))"
    " FROM range(0, 10, 1, 1)"
)
_NULLS = f"INSERT INTO {{t}} VALUES (100, {', '.join(['null'] * 12)})"


def mapped(mode: str) -> Shape:
    return Shape(
        name=f"sampled_mapped_by_{mode}",
        more=_NESTED,
        by="PARTITIONED BY (k)",
        properties={**VECTORS, "delta.columnMapping.mode": mode},
        history=(
            _VALUES,
            "ALTER TABLE {t} RENAME COLUMN i TO `i 2`",
            "ALTER TABLE {t} RENAME COLUMN k TO `k 2`",
            "ALTER TABLE {t} RENAME COLUMN st.p TO `p 2`",
            "ALTER TABLE {t} ADD COLUMN st.z STRING",
            "ALTER TABLE {t} DROP COLUMN f",
            "ALTER TABLE {t} ADD COLUMN f STRING",
            "INSERT INTO {t} (n, `k 2`, f) VALUES (200, 'late', 'text'), (201, NULL, NULL)",
            delete(2, 5, 200),
        ),
    )


TYPES = Shape(
    name="sampled_types", more=_NESTED, properties=VECTORS, history=(_VALUES, _NULLS, delete(1, 5), delete(7))
)
WIDENED = Shape(
    name="sampled_widened",
    more=", y BYTE, s SHORT, i INT, f FLOAT, c DECIMAL(5, 2), d DATE, st STRUCT<x: INT>",
    properties={"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"},
    history=(
        "INSERT INTO {t} VALUES (1, 'a', 1, 2, 3, 0.1, 4.56, DATE '2024-02-29', named_struct('x', 7))",
        "ALTER TABLE {t} ALTER COLUMN y TYPE INT",
        "ALTER TABLE {t} ALTER COLUMN s TYPE DOUBLE",
        "ALTER TABLE {t} ALTER COLUMN i TYPE DECIMAL(12, 1)",
        "ALTER TABLE {t} ALTER COLUMN f TYPE DOUBLE",
        "ALTER TABLE {t} ALTER COLUMN c TYPE DECIMAL(9, 4)",
        "ALTER TABLE {t} ALTER COLUMN d TYPE TIMESTAMP_NTZ",
        "ALTER TABLE {t} ALTER COLUMN st.x TYPE BIGINT",
        "INSERT INTO {t} SELECT 2, 'b', 100000, 2.5, 3.5, 0.1, 4.5678, TIMESTAMP_NTZ '2024-02-29 10:00', {x}".replace(
            "{x}", "named_struct('x', 5000000000)"
        ),
    ),
)
PARTITIONED = Shape(
    name="sampled_partitioned",
    more=", b BOOLEAN, i INT, c DECIMAL(9, 2), d DATE, ts TIMESTAMP, e DOUBLE",
    by="PARTITIONED BY (k, b, i, c, d, ts, e)",
    history=(
        "INSERT INTO {t} VALUES (1, 'a', true, -3, 4.50, DATE '1969-07-20', TIMESTAMP '2024-02-29 10:00:00.12', 0.1)",
        f"INSERT INTO {{t}} VALUES (2, {', '.join(['null'] * 7)})",
        odd(10),
    ),
)
SHAPES = (TYPES, mapped("name"), mapped("id"), WIDENED, PARTITIONED)


def ours(value: Any) -> Any:
    """A value of Arrow's as `plain` has Spark's: a struct is a list there."""
    if isinstance(value, dict):
        return [ours(each) for each in value.values()]
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) for each in value):
            return {key: ours(each) for key, each in value}
        return [ours(each) for each in value]
    return plain(value)


def sampled(table: Path, version: int) -> list[Any]:
    rows = ic.open_table(str(table)).sample(None, version=version).to_arrow().to_pylist()
    return in_order([ours(each) for each in row.values()] for row in rows)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_rows_of_every_version_are_those_that_delta_spark_reads(delta_lake: DeltaLake, shape: Shape) -> None:
    table = delta_lake.folder / shape.name
    delta_lake._write(shape, table)
    assert len(commits(table)) > 2
    for version in commits(table):
        found = delta_lake.versions(table, [version])[version]
        assert sampled(table, version) == in_order(list(row) for row in found), version


def test_deletion_vectors_of_a_live_table_hide_their_rows(delta_lake: DeltaLake) -> None:
    shape = Shape(
        name="sampled_vectors",
        properties=VECTORS,
        history=(insert(0, 49), delete(3, 4, 44), insert(50, 60), delete(50)),
    )
    table, versions = delta_lake.table(shape)
    for version, rows in versions.items():
        assert sampled(table, version) == in_order(list(row) for row in rows)
