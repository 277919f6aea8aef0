"""`inspect TABLE sample` and `diff` on tables that Spark writes: the rows that Spark reads, the files that it lists."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import iceberg_cli as ic
from iceberg_cli.engines.spark.engine import SparkEngine
from iceberg_cli.engines.spark.session import Session
from iceberg_cli.formats.inspection import sample_of
from iceberg_cli.formats.open import open_table
from iceberg_cli.plan.inspection import StateSelector
from tests.budget import deep_unless, few_or_many
from tests.iceberg.inspect.test_sample_laws import a_random_table
from tests.recording.folder_state import TableFolder
from tests.spark_tables import Lake, Shape, Writing, insert, shapes
from tests.spark_tables.lake import in_order

_TYPES = (
    "id bigint, b boolean, i int, f float, c decimal(9, 2), d date, ts timestamp, n timestamp_ntz, s string,"
    " bin binary, a array<int>, m map<string, struct<x: int, y: string>>, st struct<p: int, q: struct<r: double,"
    " w: array<string>>>"
)
_ROW = (
    "id % 2 = 0, cast(id as int) - 5, cast(id / 7 as float), cast(id as decimal(9, 2)) / 4 - 1,"
    " date_add(DATE '1969-12-30', cast(id as int)), timestamp_micros(id * 1000003 - 5000000),"
    " cast(timestamp_micros(id * 7777777) as timestamp_ntz), concat('wörd ', id), cast(concat('x', id) as binary),"
    " array(cast(id as int), null), map(concat('k', id), named_struct('x', cast(id as int), 'y', null)),"
    " named_struct('p', cast(id as int), 'q', named_struct('r', id / 3, 'w', array('a', concat('b', id))))"
)
_NULLS = ", ".join(["null"] * 12)


def of_types(version: int, file_format: str) -> Shape:
    """Values of every type that Spark has, then promotions, renames, columns that come and go, also in structs."""
    return Shape(
        name=f"types_{file_format}_v{version}",
        version=version,
        columns=_TYPES,
        properties={"write.format.default": file_format, "write.delete.format.default": file_format},
    ).then(
        insert(0, 9, _ROW),
        f"INSERT INTO {{t}} VALUES (100, {_NULLS})",
        "ALTER TABLE {t} ALTER COLUMN i TYPE bigint",
        "ALTER TABLE {t} ALTER COLUMN f TYPE double",
        "ALTER TABLE {t} ALTER COLUMN c TYPE decimal(12, 2)",
        "ALTER TABLE {t} ADD COLUMN st.z string",
        "ALTER TABLE {t} ADD COLUMN m.value.v int",
        "ALTER TABLE {t} RENAME COLUMN s TO text",
        "ALTER TABLE {t} DROP COLUMN st.p",
        "ALTER TABLE {t} ADD COLUMN s double AFTER id",
        "ALTER TABLE {t} ADD PARTITION FIELD b",
        "INSERT INTO {t} SELECT id, 0.5, b, i, f, c, d, ts, n, text, bin, a, m, st FROM {t} WHERE id < 4",
        "DELETE FROM {t} WHERE id IN (1, 5)",
    )


def plain(value: Any) -> Any:
    """A value of Spark's or Arrow's as the other has it, too."""
    if hasattr(value, "asDict"):
        return {key: plain(each) for key, each in value.asDict().items()}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) for each in value):  # a map of Arrow's
            return {key: plain(each) for key, each in value}
        return [plain(each) for each in value]
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None) - (value.utcoffset() or timedelta())
    return value


def sampled(lake: Lake, table: str, **state: Any) -> list[tuple[Any, ...]]:
    opened = ic.open_table(lake.argument(table), catalog_config=str(lake.config))
    rows = opened.sample(None, **state).to_arrow().to_pylist()
    return in_order(tuple(plain(each) for each in row.values()) for row in rows)


def seen_by_spark(lake: Lake, table: str, snapshot_id: int) -> list[tuple[Any, ...]]:
    return in_order(tuple(plain(each) for each in row) for row in lake.rows(table, snapshot_id))


SHAPES = (
    shapes.V1_EVOLVED_SPEC,
    shapes.V2_EVOLVED_SPEC_AND_SCHEMA,
    shapes.V2_MANIFESTS_OF_THREE_SPECS,
    shapes.V2_POSITION_DELETES,
    shapes.V2_BRANCHES_AND_DELETES,
    shapes.V2_OVERWRITTEN_PARTITIONS,
    shapes.upgraded_with_both_deletes("file"),
    of_types(1, "parquet"),
    of_types(2, "avro"),
    of_types(2, "orc"),
    of_types(3, "parquet"),
)


@pytest.mark.parametrize("shape", deep_unless([SHAPES[10]], SHAPES))
def test_rows_of_every_snapshot_are_those_that_spark_reads(
    lake: Lake, written: Writing, shape: Shape
) -> None:
    table = written(lake, shape)
    for snapshot_id in lake.snapshot_ids(table):
        assert sampled(lake, table, snapshot_id=snapshot_id) == seen_by_spark(lake, table, snapshot_id)
    assert sampled(lake, table) == in_order(tuple(plain(each) for each in row) for row in lake.rows(table))


@pytest.mark.deep
def test_files_without_ids_are_read_by_the_name_mapping_and_partition_values(lake: Lake) -> None:
    """`add_files` takes files as Spark wrote them: they have no ids, and not the columns that their folders tell."""
    table = "added_files"
    lake.sql(table, "CREATE TABLE {t} (id bigint, k string, day date) USING iceberg PARTITIONED BY (k, day)")
    source, hive = f"{lake.warehouse}/hive style", f"spark_catalog.default.hive_{lake.catalog}"
    lake.sql(
        table,
        f"CREATE TABLE {hive} (id bigint, k string, day date) USING parquet"
        f" PARTITIONED BY (k, day) LOCATION '{source}'",
    )
    lake.sql(
        table,
        f"INSERT INTO {hive} SELECT id, concat('k é', id % 3),"
        " date_add(DATE '2024-02-28', cast(id % 2 as int)) FROM range(0, 30, 1, 1)",
    )
    lake.sql(
        table,
        f"CALL {{c}}.system.add_files(table => 'db.{table}', source_table => '{hive}')",
    )
    lake.sql(table, "ALTER TABLE {t} RENAME COLUMN id TO number")
    found = sampled(lake, table)
    assert found == in_order(lake.rows(table))
    assert len(found) == 30


def listed(lake: Lake, table: str, snapshot_id: int, columns: str) -> str:
    files = f"{{t}}.files VERSION AS OF {snapshot_id}"
    return f"SELECT {columns} FROM {files}"


@pytest.mark.parametrize("shape", deep_unless([], SHAPES[:7]))
def test_differences_are_those_of_the_files_table(lake: Lake, written: Writing, shape: Shape) -> None:
    table = written(lake, shape)
    opened = ic.open_table(lake.argument(table), catalog_config=str(lake.config))
    columns = (
        "content, file_path, coalesce(content_offset, -1) AS place, coalesce(referenced_data_file, '') AS target,"
        " record_count, file_size_in_bytes"
    ) if lake.metadata(table)["format-version"] == 3 else (
        "content, file_path, -1 AS place, '' AS target, record_count, file_size_in_bytes"
    )  # fmt: skip
    for before, after in itertools.pairwise(lake.snapshot_ids(table)):
        document = opened.diff(str(before), str(after)).to_json()
        for side, (one, other) in {"added": (after, before), "removed": (before, after)}.items():
            text = f"{listed(lake, table, one, columns)} EXCEPT {listed(lake, table, other, columns)}"
            rows = [tuple(row) for row in lake.sql(table, text)]
            data = [row for row in rows if row[0] == 0]
            assert document["files"][side] == len(data)
            assert document["rows"][side] == sum(row[4] for row in data)
            assert document["bytes"][side] == sum(row[5] for row in data)
            assert sum(
                count
                for name, count in document["deletes"][side].items()
                if name.endswith(("files", "vectors"))
            ) == len(rows) - len(data)
        if document["rows"]["net"] is not None:
            (old,), (new,) = (
                lake.sql(table, f"SELECT count(*) FROM {{t}} VERSION AS OF {each}")[0]
                for each in (before, after)
            )
            assert document["rows"]["net"] == new - old


def read_by_path(lake: Lake, folder: Path, metadata: str) -> list[Any]:
    """The rows of a table that no catalog knows."""

    def ask() -> list[Any]:
        return list(lake.spark.read.format("iceberg").load(metadata).collect())

    rows: list[Any] = lake.recorder.answer(
        TableFolder({"": folder}, stand_ins={"{table}": str(folder)}), "all rows", ask
    )
    return rows


@few_or_many(3, many=40)
def test_equality_deletes_hide_the_rows_that_they_hide_from_spark(
    hadoop: Lake, tmp_path: Path, budget: int
) -> None:
    for seed in range(1000, 1000 + budget):
        table = a_random_table(tmp_path / str(seed), seed)
        known = read_by_path(hadoop, tmp_path / str(seed), table.published)
        rows = ic.open_table(table.location).sample(None).to_arrow().to_pylist()
        assert in_order(tuple(row.values()) for row in rows) == in_order(tuple(row) for row in known), seed


@pytest.mark.deep
def test_workers_of_spark_read_the_same_rows(hadoop: Lake, spark_session: Session, written: Writing) -> None:
    for shape in (shapes.upgraded_with_both_deletes("partition"), of_types(2, "avro")):
        opened = open_table(
            hadoop.argument(written(hadoop, shape)), storage_options={}, on_event=lambda _: None
        )
        here, workers = (sample_of(opened, StateSelector(), (), limit=None, as_of_ms=0) for _ in range(2))
        known = here.to_arrow().to_pylist()
        opened.use(SparkEngine(spark_session, opened.storage))
        assert in_order(map(repr, workers.to_arrow().to_pylist())) == in_order(map(repr, known))
