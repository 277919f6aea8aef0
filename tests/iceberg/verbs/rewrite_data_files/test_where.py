"""`--where` on partition fields and columns: the files that PyIceberg reads for the same condition, and no error less.

PyIceberg writes the tables, and plans a scan with the same filter: its files are those that may have such rows.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.branch.file_filter import ColumnCondition, FileFilter, file_filter
from iceberg_cli.iceberg.spec.manifests.manifest import ManifestSource
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionField as FieldOfSpec
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec as Spec
from iceberg_cli.iceberg.verbs.rewrite_data_files.plan import VERB
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.plan.where import parse_where
from iceberg_cli.storage.local import LocalStorage
from tests.manifest_tables import opened

NAMES = ("n", "amount", "text", "ts", "tz", "day", "price", "flag", "raw", "key", "inner.code")
SCHEMA = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "amount", DoubleType()),
    NestedField(3, "text", StringType()),
    NestedField(4, "ts", TimestampType()),
    NestedField(5, "tz", TimestamptzType()),
    NestedField(6, "day", DateType()),
    NestedField(7, "price", DecimalType(9, 2)),
    NestedField(8, "flag", BooleanType()),
    NestedField(9, "raw", BinaryType()),
    NestedField(10, "key", UUIDType()),
    NestedField(11, "inner", StructType(NestedField(12, "code", LongType()))),
)
SPECS: dict[str, tuple[tuple[int, str, Transform[Any, Any]], ...]] = {
    "unpartitioned": (),
    "by time": ((4, "ts_day", DayTransform()), (5, "tz_month", MonthTransform())),
    "by hash": ((1, "n_bucket", BucketTransform(3)), (3, "text_bucket", BucketTransform(2))),
    "by cut": ((3, "text_cut", TruncateTransform(2)), (7, "price_cut", TruncateTransform(500))),
    "by value": ((6, "day", IdentityTransform()), (8, "is_flagged", IdentityTransform())),
}
WHERE = (
    "n = 3", "n = 30", "n != 3", "n < 11", "n <= 10", "n > 20", "n >= 21", "n IN (1, 22)", "n IN (5, 900)",
    "n IS NULL", "n IS NOT NULL", "n > 5 AND n < 12", "n = 3 AND amount < 0",
    "amount < 1.5", "amount >= 20", "amount IS NULL", "amount = 20.5",
    "text = 'bb'", "text < 'b'", "text > 'cc'", "text >= 'cc'", "text IN ('a1', 'zz')", "text IS NULL",
    "ts >= '2026-03-02T00:00:00'", "ts < '2026-03-02T00:00:00'", "ts < '2026-03-01T10:02:00'",
    "ts = '2026-03-01T10:00:00'", "ts IS NULL",
    "tz > '2026-04-01T00:00:00+00:00'", "tz <= '2026-03-31T23:00:00+00:00'",
    "day = '2026-03-02'", "day < '2026-03-02'", "day != '2026-03-02'", "day IN ('2026-03-01', '2026-03-03')",
    "price = 10", "price < 4.99", "price >= 20.01", "price IN (10.00, 22.00)",
    "flag = true", "flag = false", "flag IS NOT NULL",
    "inner.code > 15", "inner.code IS NULL",
)  # fmt: skip


def rows_of(numbers: list[int | None]) -> pa.Table:
    """Rows whose columns all rise with a number; of none all are null."""

    def each(make: Any) -> list[Any]:
        return [None if n is None else make(n) for n in numbers]

    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "amount": pa.array(each(lambda n: float("nan") if n == 22 else n + 0.5), pa.float64()),
            "text": pa.array(
                each(lambda n: f"{'abc'[n // 10]}{'abc'[n // 10] if n % 10 else n}"), pa.string()
            ),
            "ts": pa.array(
                each(lambda n: datetime(2026, 3, 1 + n // 10, 10, n % 10, tzinfo=UTC)), pa.timestamp("us")
            ),
            "tz": pa.array(
                each(lambda n: datetime(2026, 3 + n // 15, 5, tzinfo=UTC)), pa.timestamp("us", "UTC")
            ),
            "day": pa.array(each(lambda n: date(2026, 3, 1 + n // 10)), pa.date32()),
            "price": pa.array(each(Decimal), pa.decimal128(9, 2)),
            "flag": pa.array(each(lambda n: n >= 20), pa.bool_()),
            "raw": pa.array(each(lambda n: bytes([n // 10])), pa.large_binary()),
            "key": pa.array(each(lambda n: UUID(int=n << 120).bytes), pa.uuid()),
            "inner": pa.array(
                [{"code": n} for n in numbers], pa.struct([pa.field("code", pa.int64(), nullable=True)])
            ),
        }
    )


@dataclass(frozen=True)
class Tables:
    by_spec: dict[str, Table]


def over_columns(transform: Transform[Any, Any], source: IcebergType) -> Any:
    """PyIceberg's transform of one value over a column; its own for columns is in a package by itself."""
    one = transform.transform(source)

    def transformed(column: pa.Array) -> pa.Array:
        values = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        type_ = column.type if isinstance(transform, TruncateTransform) else pa.int32()
        return pa.array([one(value) for value in values.to_pylist()], type_)

    return transformed


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """A table for each spec; its files have rows of one ten, of two, with nulls among them, and nulls alone."""
    folder = tmp_path_factory.mktemp("where")
    catalog = SqlCatalog("c", uri="sqlite://", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    made = {}
    patched = pytest.MonkeyPatch()
    for transform in (BucketTransform, DayTransform, MonthTransform, TruncateTransform):
        patched.setattr(transform, "pyarrow_transform", over_columns)
    for name, fields in SPECS.items():
        spec = PartitionSpec(
            *(
                PartitionField(source, 1000 + place, transform, each)
                for place, (source, each, transform) in enumerate(fields)
            )
        )
        table = catalog.create_table(f"db.{name.replace(' ', '_')}", SCHEMA, partition_spec=spec)
        for numbers in ([0, 1, 3], [5, 10, 11], [12, 18, None], [20, 21], [22], [None, None]):
            table.append(rows_of(numbers))
        made[name] = table
    patched.undo()
    return Tables(made)


def chosen(table: Table, where: str) -> set[str]:
    """The files that a plan takes, where none is left for being large enough."""
    found = opened(LocalStorage(), table.metadata_location).table
    found.load()
    planned = VERB.plan(found, RewriteDataFiles(where=where, rewrite_all=True), as_of_ms=0).plan
    return set() if planned.groups is None else set(planned.groups.inputs["path"].to_pylist())


@pytest.mark.few(2)
@pytest.mark.parametrize("spec", SPECS)
def test_a_condition_chooses_the_files_that_pyiceberg_reads_for_it(tables: Tables, spec: str) -> None:
    table = tables.by_spec[spec]
    every = {task.file.file_path for task in table.scan().plan_files()}
    pruned = 0
    for where in WHERE:
        # There null is unequal to all; here, as in SQL, it fits no comparison.
        name, _, unequal = where.partition(" != ")
        read = table.scan(row_filter=f"{where} AND {name} IS NOT NULL" if unequal else where)
        expected = {task.file.file_path for task in read.plan_files()}
        assert chosen(table, where) == expected, where
        pruned += expected < every
    assert pruned > len(WHERE) // 2


@pytest.mark.parametrize(
    ("where", "same"),
    [
        ("ts >= '2026-03-02'", "ts >= '2026-03-02T00:00:00'"),
        ("ts < '2026-03-02 00:00'", "ts < '2026-03-02T00:00:00'"),
        ("tz > '2026-04-01'", "tz > '2026-04-01T00:00:00+00:00'"),
        ("price IN (10, 22)", "price IN (10.00, 22.00)"),
        ("price = 10.005", "price > 10.00 AND price < 10.01"),  # the column holds none
        ("raw = '0x02'", "n >= 20"),
        ("raw > '0x00'", "n >= 10"),
        ("n > 99999999999999999999", "n > 9999"),
    ],
)
@pytest.mark.parametrize("spec", ["unpartitioned", "by time"])
def test_other_ways_to_write_a_value_choose_the_same(
    tables: Tables, spec: str, where: str, same: str
) -> None:
    assert chosen(tables.by_spec[spec], where) == chosen(tables.by_spec[spec], same)


def test_bounds_of_uuids_choose_nothing_since_writers_order_them_differently(tables: Tables) -> None:
    table = tables.by_spec["unpartitioned"]
    assert len(chosen(table, f"key = '{UUID(int=3 << 120)}'")) == 5  # all but that of nulls alone


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("nn = 1", "Did you mean 'n'"),
        ("inner = 1", "no column of single values"),
        ("n = 'x'", "no value of n"),
        ("n = 1.5", "no value of n"),
        ("ts = 'now'", "no value of ts"),
    ],
)
def test_a_name_or_a_value_that_is_none_is_a_usage_error(tables: Tables, where: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        chosen(tables.by_spec["by time"], where)
    assert text in str(caught.value)


def renamed(table: Table, field: str, name: str) -> TableMetadata:
    """The table's metadata where a partition field has another name."""
    document = json.loads(table.metadata.model_dump_json())
    (mine,) = (each for each in document["partition-specs"][0]["fields"] if each["name"] == field)
    mine["name"] = name
    return TableMetadata.from_json(document, path=table.metadata_location)


def on_column(where: str, type_: str) -> FileFilter:
    """A condition on the column of id 1."""
    (condition,) = parse_where(where)
    return FileFilter(on_columns=(ColumnCondition(condition, 1, type_),))


def test_a_field_of_the_void_transform_tells_nothing_of_its_column() -> None:
    spec = Spec(spec_id=0, fields=(FieldOfSpec(source_ids=(1,), field_id=1000, name="v", transform="void"),))
    partitions = pa.StructArray.from_arrays([pa.array([None, None], pa.int64())], ["v"])
    assert on_column("n = 3", "long").of_partitions(spec, {1: "long"}, partitions).tolist() == [True, True]


def test_a_bound_that_is_no_number_bounds_nothing() -> None:
    bounds = [[(1, struct.pack("<d", bound))] for bound in (float("nan"), 1.0)]
    entries = pa.table(
        {
            "manifest": pa.array([0, 0], pa.int32()),
            "lower_bounds": pa.array(bounds, pa.map_(pa.int32(), pa.binary())),
            "upper_bounds": pa.array(bounds, pa.map_(pa.int32(), pa.binary())),
            "value_counts": pa.array([None, None], pa.map_(pa.int32(), pa.int64())),
            "null_value_counts": pa.array([None, None], pa.map_(pa.int32(), pa.int64())),
        }
    )
    assert on_column("x > 5", "double").of_files(entries, [ManifestSource(path="m.avro")]).tolist() == [
        True,
        False,
    ]


@pytest.mark.parametrize("column", ["n", "ts"])
def test_a_name_that_is_a_partition_field_and_another_column_is_refused(tables: Tables, column: str) -> None:
    metadata = renamed(tables.by_spec["by time"], "ts_day", column)
    where = parse_where(f"{column} IS NULL")
    with pytest.raises(UsageError, match=rf"'{column}' is a partition field \(day\), and not the column"):
        file_filter(where, metadata)
    assert file_filter(where, metadata, reads_bounds=False).on_partitions == where


def test_where_bounds_are_not_read_a_column_has_to_have_a_partition_field(tables: Tables) -> None:
    metadata = renamed(tables.by_spec["by time"], "ts_day", "d")
    (on_column,) = file_filter(parse_where("ts < '2026-03-02'"), metadata, reads_bounds=False).on_columns
    assert on_column.field_id == 4
    with pytest.raises(UsageError, match="'n' has no partition field") as caught:
        file_filter(parse_where("n = 1"), metadata, reads_bounds=False)
    assert "Partition fields: d, tz_month." in str(caught.value.next_step)
