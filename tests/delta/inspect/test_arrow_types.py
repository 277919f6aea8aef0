"""Rows of data files whose writers recorded Arrow types of their own beside those of Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.testing.delta_writer import (
    Action,
    a_checkpoint,
    a_domain,
    a_dv,
    a_field,
    a_metadata,
    a_protocol_with,
    a_remove,
    an_add,
    write_log,
    write_log_file,
)
from tests.cli.running import Ran, iceberg_cli
from tests.delta_opened import the_log

VARIANT = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
A_VARIANT = {"metadata": b"\x01\x00\x00", "value": b"\x00"}


def an_array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def a_map(value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": True}


def a_table(root: Path, kind: Any, column: pa.Array, *features: str) -> None:
    root.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"c": column}), root / "f.parquet")
    add = an_add(path="f.parquet", rows=len(column), size=(root / "f.parquet").stat().st_size)
    write_log(root, [a_protocol_with(*(features or ("appendOnly",))), a_metadata(a_field("c", kind)), add])


def sampled(root: Path) -> tuple[Ran, list[Any]]:
    ran = iceberg_cli("inspect", root, "sample", "--jsonl")
    assert ran.code == 0, ran.err
    return ran, [json.loads(line)["c"] for line in ran.out.splitlines()]


LISTS = [[1], None, [2, 3]]
SPELLED: dict[str, tuple[Any, pa.Array, list[Any]]] = {
    "string_view": ("string", pa.array(["a", None], pa.string_view()), ["a", None]),
    "binary_view": ("binary", pa.array([b"a", None], pa.binary_view()), ["61", None]),
    "large_string": ("string", pa.array(["a", None], pa.large_string()), ["a", None]),
    "list_view": (an_array("long"), pa.array(LISTS, pa.list_view(pa.int64())), LISTS),
    "large_list_view": (an_array("long"), pa.array(LISTS, pa.large_list_view(pa.int64())), LISTS),
    "views in a list": (
        an_array("string"),
        pa.array([["x"], None], pa.list_(pa.string_view())),
        [["x"], None],
    ),
    "views in a map": (
        a_map("binary"),
        pa.array([[("k", b"v")], None], pa.map_(pa.string_view(), pa.binary_view())),
        [{"keys": ["k"], "values": ["76"]}, None],
    ),
    "uuid": (
        "binary",
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16), None], pa.binary(16))),
        ["00" * 16, None],
    ),
}


@pytest.mark.parametrize("name", SPELLED)
def test_arrow_types_that_mean_one_logical_type_are_one(tmp_path: Path, name: str) -> None:
    kind, column, expected = SPELLED[name]
    a_table(tmp_path, kind, column)
    ran, found = sampled(tmp_path)
    assert (found, ran.err) == (expected, "")


NESTED_VARIANTS = {
    "list": (an_array("variant"), pa.array([[A_VARIANT], None, []], pa.list_(VARIANT)), [[None], None, []]),
    "map": (
        a_map("variant"),
        pa.array([[("k", A_VARIANT)], None], pa.map_(pa.string(), VARIANT)),
        [{"keys": ["k"], "values": [None]}, None],
    ),
    "struct": (
        {"type": "struct", "fields": [a_field("v", "variant"), a_field("n", "long")]},
        pa.array([{"v": A_VARIANT, "n": 1}, None], pa.struct([("v", VARIANT), ("n", pa.int64())])),
        [{"v": None, "n": 1}, None],
    ),
}


@pytest.mark.parametrize("name", NESTED_VARIANTS)
def test_a_variant_inside_of_another_value_is_null_with_a_warning(tmp_path: Path, name: str) -> None:
    kind, column, expected = NESTED_VARIANTS[name]
    a_table(tmp_path, kind, column, "variantType")
    ran, found = sampled(tmp_path)
    assert found == expected
    assert "its values are shown as null" in ran.err


def test_a_column_that_cannot_become_the_tables_is_null_with_a_warning(tmp_path: Path) -> None:
    a_table(tmp_path, "long", pa.array(["one", "two"]))
    ran, found = sampled(tmp_path)
    assert found == [None, None]
    assert "some values are shown as null: c: a column of type string where int64 is expected" in ran.err


def test_rows_that_polars_wrote_and_delta_rs_deleted_from(tmp_path: Path) -> None:
    frame = pl.DataFrame({"n": [1, 2, 3], "c": ["a", "b", "c"], "l": [["x"], [], None]})
    frame.write_delta(str(tmp_path))
    deltalake.DeltaTable(str(tmp_path)).delete("n = 2")
    ran = iceberg_cli("inspect", tmp_path, "sample", "--jsonl")
    assert (ran.code, ran.err) == (0, "")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert sorted(rows, key=lambda row: row["n"]) == [
        {"n": 1, "c": "a", "l": ["x"]},
        {"n": 3, "c": "c", "l": None},
    ]
    assert iceberg_cli("inspect", tmp_path, "--check", "--deep").code == 0


def respelled(kind: pa.DataType, string: pa.DataType, *, views: bool) -> pa.DataType:
    """A type with other strings and lists."""
    if pa.types.is_string(kind):
        return string
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, respelled(each.type, string, views=views)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            respelled(kind.key_type, string, views=views), respelled(kind.item_type, string, views=views)
        )
    if pa.types.is_list(kind):
        item = respelled(kind.value_type, string, views=views)
        return pa.list_view(item) if views else pa.large_list(item)
    return kind


ACTIONS: list[Action] = [
    a_protocol_with("deletionVectors"),
    a_metadata(configuration={"k": "v"}, partitionColumns=["p"]),
    a_domain(),
    an_add(path="a", partitionValues={"p": "1"}, tags={"t": "u"}, dv=a_dv()),
    a_remove(path="b", partitionValues={"p": "x"}),
]


@pytest.mark.parametrize(("string", "views"), [(pa.string_view(), True), (pa.large_string(), False)])
def test_a_checkpoint_of_other_arrow_types_is_the_same(
    tmp_path: Path, string: pa.DataType, *, views: bool
) -> None:
    name = f"{1:020}.checkpoint.parquet"
    plain = pq.read_table(write_log_file(tmp_path / "plain", name, a_checkpoint(*ACTIONS)))
    schema = pa.schema([(each.name, respelled(each.type, string, views=views)) for each in plain.schema])
    assert schema != plain.schema
    path = write_log_file(tmp_path / "other", name, b"")
    pq.write_table(pa.Table.from_pylist(plain.to_pylist(), schema=schema), path)
    one, other = (the_log(tmp_path / folder).snapshot() for folder in ("plain", "other"))
    assert other.adds.to_pylist() == one.adds.to_pylist()
    assert other.removes.to_pylist() == one.removes.to_pylist()
    assert (other.metadata, other.protocol, other.domains) == (one.metadata, one.protocol, one.domains)
    assert other.adds["partitionValues"].to_pylist() == [[("p", "1")]]
