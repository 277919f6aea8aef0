"""New data files are where Iceberg Java would write them."""

from __future__ import annotations

import calendar
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from iceberg_cli.iceberg.rows.data_locations import DataLocations, data_locations
from iceberg_cli.iceberg.spec.types.partition_path import partition_path
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionField, PartitionSpec
from iceberg_cli.iceberg.spec.types.schema import Schema
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.iceberg_reader import entries_of, manifests_of, snapshot_of
from tests.spark_tables import Lake, Shape, Writing, write

HASHED = {"write.object-storage.enabled": "true"}
PLACE = "s3://bucket/warehouse/db/events"


@pytest.mark.parametrize(
    ("name", "folders"),
    [
        ("a", "0101/0110/1001/10110010"),
        ("b", "1110/0111/1110/00000011"),
        ("c", "0010/1101/0110/01011111"),
        ("d", "1001/0001/0100/01110011"),
    ],
)
def test_hashes_are_those_of_java(name: str, folders: str) -> None:
    assert data_locations(PLACE, HASHED).path("", name) == f"{PLACE}/data/{folders}/{name}"
    flat = HASHED | {"write.object-storage.partitioned-paths": "false"}
    assert data_locations(PLACE, flat).path("day=2026-11-29", name) == f"{PLACE}/data/{folders}-{name}"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, f"{PLACE}/data/k=1/a"),
        ({"write.data.path": "s3://other/x/"}, "s3://other/x/k=1/a"),
        ({"write.folder-storage.path": "s3://old"}, "s3://old/k=1/a"),
        ({"write.data.path": "s3://new", "write.folder-storage.path": "s3://old"}, "s3://new/k=1/a"),
        ({"write.object-storage.path": "s3://unused"}, f"{PLACE}/data/k=1/a"),
        ({"write.object-storage.enabled": "no"}, f"{PLACE}/data/k=1/a"),
    ],
)
def test_the_folder_is_the_first_that_is_named(properties: dict[str, str], expected: str) -> None:
    for location in (PLACE, f"{PLACE}/"):
        assert data_locations(location, properties).path("k=1", "a") == expected


def test_outside_of_the_table_the_table_is_named_after_the_hash() -> None:
    folders = "0101/0110/1001/10110010"
    for name in ("write.data.path", "write.object-storage.path", "write.folder-storage.path"):
        outside = HASHED | {name: "s3://other/root"}
        assert data_locations(PLACE, outside).path("", "a") == f"s3://other/root/{folders}/db/events/a"
        flat = outside | {"write.object-storage.partitioned-paths": "false"}
        assert data_locations(PLACE, flat).path("k=1", "a") == f"s3://other/root/{folders}/db/events/a"


def test_a_class_of_java_is_refused() -> None:
    found = data_locations(PLACE, {"write.location-provider.impl": "com.example.Places"})
    assert found == DataLocations(
        root=f"{PLACE}/data",
        refused={"write.location-provider.impl": "com.example.Places is a class of Java"},
    )


def spec_of(*fields: tuple[str, str]) -> PartitionSpec:
    """Of names and transforms, on columns 1, 2 and so on."""
    return PartitionSpec(
        spec_id=0,
        fields=tuple(
            PartitionField(source_ids=(number,), field_id=999 + number, name=name, transform=transform)
            for number, (name, transform) in enumerate(fields, 1)
        ),
    )


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("string", "a/b c~d*é%", "a%2Fb+c%7Ed*%C3%A9%25"),
        ("string", "", ""),
        ("string", None, "null"),
        ("boolean", False, "false"),
        ("int", -7, "-7"),
        ("time", 43_200_000_000, "12%3A00%3A00"),
        ("time", 43_205_000_000, "12%3A00%3A05"),
        ("time", 43_205_100_000, "12%3A00%3A05.1"),
        ("time", 43_205_100_020, "12%3A00%3A05.10002"),
        ("timestamp", 0, "1970-01-01T00%3A00%3A00"),
        ("timestamptz", 1_000_000, "1970-01-01T00%3A00%3A01%2B00%3A00"),
        ("timestamp_ns", 1, "1970-01-01T00%3A00%3A00.000000001"),
        ("binary", b"\xff\x00", "%2FwA%3D"),
        ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        ("float", 0.1, "0.1"),
        ("double", 100.0, "100.0"),
        ("double", 1e7, "1.0E7"),
        ("double", 0.001, "0.001"),
        ("double", float("inf"), "Infinity"),
        ("double", 0.000123, "1.23E-4"),
        ("double", -0.0, "-0.0"),
        ("double", float("nan"), "NaN"),
        ("float", float("-inf"), "-Infinity"),
    ],
)
def test_values_are_spelled_as_java_spells_them(type_: str, value: Any, expected: str) -> None:
    assert partition_path(spec_of(("k", "identity")), {1: type_}, [value]) == f"k={expected}"


def test_an_unpartitioned_spec_has_no_folder() -> None:
    assert partition_path(spec_of(), {}, []) == ""


# -- paths that Spark wrote ------------------------------------------------------------------------------------------

IDENTITIES = Shape(
    name="paths_of_identities",
    version=2,
    columns="id bigint, s string, d date, ts timestamp, n timestamp_ntz, c decimal(9, 4), b boolean, bin binary,"
    " f float, g double, `a name~` int",
    by="s, d, ts, n, c, b, bin, f, g, `a name~`",
).then(
    "INSERT INTO {t} VALUES"
    " (1, 'a/b c~*é%', DATE '2026-11-29', TIMESTAMP '2026-11-29 10:00:00 UTC', TIMESTAMP_NTZ '2026-11-29 10:00:05',"
    " 1.5, true, X'FF00', 0.1, 1e10, 7),"
    " (2, 'null', DATE '1969-12-31', TIMESTAMP '1969-12-31 23:59:59.5 UTC', TIMESTAMP_NTZ '2026-11-29 10:00:05.000001',"
    " -0.0001, false, X'', 12345678, 0.00001, null),"
    " (3, null, null, null, null, null, null, null, null, null, null),"
    " (4, '', DATE '0999-01-02', TIMESTAMP '2026-01-01 00:00:00 UTC', TIMESTAMP_NTZ '1900-01-01 00:00:00', 0, true,"
    " X'00', 1e-10, 123456.789, -1)",
)
BELOW_HASHES = replace(IDENTITIES, name="paths_below_hashes", properties=HASHED)
TRANSFORMS = Shape(
    name="paths_of_transforms",
    version=2,
    columns="id bigint, s string, d date, n timestamp_ntz, ts timestamp, hour timestamp, c decimal(9, 2)",
    by="bucket(4, id), truncate(2, s), years(d), months(n), days(ts), hours(hour), truncate(10, c)",
).then(
    "INSERT INTO {t} VALUES (1, 'éab', DATE '2026-11-29', TIMESTAMP_NTZ '2026-11-29 10:00:05',"
    " TIMESTAMP '2026-11-29 10:00:00 UTC', TIMESTAMP '2026-11-29 10:00:00 UTC', 1.55),"
    " (2, 'x', DATE '1969-12-29', TIMESTAMP_NTZ '1969-11-29 10:00:05', TIMESTAMP '1969-11-29 10:00:00 UTC',"
    " TIMESTAMP '1969-11-29 10:00:00 UTC', -1.55), (3, null, null, null, null, null, null)"
)
FLAT = Shape(
    name="paths_of_hashes",
    version=2,
    by="k",
    properties=HASHED | {"write.object-storage.partitioned-paths": "false", "write.data.path": "{f}-data"},
).then("INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, null)")


@pytest.mark.parametrize("shape", [IDENTITIES, TRANSFORMS], ids=lambda shape: shape.name)
def test_files_of_spark_are_where_ours_would_be(hadoop: Lake, written: Writing, shape: Shape) -> None:
    assert_where_ours_would_be(hadoop, written(hadoop, shape))


@pytest.mark.deep
@pytest.mark.parametrize("shape", [BELOW_HASHES, FLAT], ids=lambda shape: shape.name)
def test_files_of_spark_are_below_the_hashes_that_ours_would_have(hadoop: Lake, shape: Shape) -> None:
    """Names are drawn, so their hashes are others in every run."""
    write(hadoop, shape.name, shape)
    assert_where_ours_would_be(hadoop, shape.name)


def assert_where_ours_would_be(lake: Lake, table: str) -> None:
    storage, document = LocalStorage(), lake.metadata(table)
    spec = PartitionSpec.from_json(document["partition-specs"][0], path=table)
    types = Schema.from_json(document["schemas"][0], path=table).types_by_id()
    locations = data_locations(document["location"], document["properties"])
    (manifest,) = manifests_of(storage, snapshot_of(document, document["current-snapshot-id"]))
    entries = entries_of(storage, manifest)
    assert len(entries) >= 3
    for entry in entries:
        folder = partition_path(spec, types, [single_value(each) for each in entry["partition"].values()])
        path = entry["file_path"]
        assert path == locations.path(
            folder, path.rpartition("/")[2].removeprefix(prefix_of(locations, path))
        )


def prefix_of(locations: DataLocations, path: str) -> str:
    """What a hash without folders of partitions adds to the name of a file."""
    return "" if locations.with_partitions else path.rpartition("/")[2].partition("-")[0] + "-"


def single_value(value: Any) -> Any:
    """What fastavro reads, as `single_value` has it."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return calendar.timegm(moment.utctimetuple()) * 1_000_000 + moment.microsecond
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value
