"""Rows in the schema of a new file: what it requires is there, and nothing else of them changes."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.encoding.schema_fit import MisfitError, fit


def of(name: str, type_: pa.DataType, *, required: bool = False) -> pa.Field:
    return pa.field(name, type_, nullable=not required, metadata={"PARQUET:field_id": "7"})


def fitted(field: pa.Field, values: pa.Array) -> list[Any]:
    """A column as a Parquet file has it once it fits."""
    rows = fit(pa.table([values], names=[field.name]), pa.schema([field]))
    rows.validate(full=True)
    assert rows.schema.equals(pa.schema([field]), check_metadata=True)
    sink = io.BytesIO()
    pq.write_table(rows, sink, store_schema=False)
    column: list[Any] = pq.read_table(sink).column(0).to_pylist()
    assert column == rows.column(0).to_pylist()
    return column


P = pa.field("p", pa.int64())
REQUIRED = of("p", pa.int64(), required=True)
LIST = pa.list_(pa.int64())


@pytest.mark.parametrize("nulls", ["own", "hidden"])
def test_a_null_struct_may_have_a_required_field(nulls: str) -> None:
    own = pa.array([{"p": 1}, None, {"p": 3}], pa.struct([P]))
    hidden = pa.StructArray.from_arrays(own.flatten(), fields=[P], mask=own.is_null())
    field = of("st", pa.struct([REQUIRED]))
    assert fitted(field, own if nulls == "own" else hidden) == [{"p": 1}, None, {"p": 3}]


def test_structs_in_a_null_struct_may_be_required_and_so_may_lists_maps_and_uuids() -> None:
    inner = pa.struct([P])
    kind = pa.struct(
        [("st", inner), ("l", LIST), ("m", pa.map_(pa.string(), pa.int64())), ("u", pa.binary(16))]
    )
    value = {"st": {"p": 1}, "l": [2], "m": [("k", 3)], "u": bytes(16)}
    made = pa.array([value, None, value], kind)
    hidden = pa.StructArray.from_arrays(made.flatten(), fields=list(kind), mask=made.is_null())
    children = [
        of("st", pa.struct([REQUIRED]), required=True),
        of("l", pa.list_(of("element", pa.int64(), required=True)), required=True),
        of(
            "m",
            pa.map_(of("key", pa.string(), required=True), of("value", pa.int64(), required=True)),
            required=True,
        ),
        of("u", pa.uuid(), required=True),
    ]
    found = fitted(of("outer", pa.struct(children)), hidden)
    assert found[1] is None
    assert [each["l"] for each in (found[0], found[2])] == [[2], [2]]


@pytest.mark.parametrize(
    ("field", "values", "name"),
    [
        (REQUIRED, pa.array([1, None]), "p"),
        (of("st", pa.struct([REQUIRED])), pa.array([{"p": None}, None], pa.struct([P])), "st.p"),
        (of("st", pa.struct([P]), required=True), pa.array([{"p": 1}, None], pa.struct([P])), "st"),
        (
            of("l", pa.list_(of("element", pa.int64(), required=True))),
            pa.array([[1], [2, None]]),
            "l.element",
        ),
        (of("l", LIST, required=True), pa.array([[1], None], LIST), "l"),
        (
            of("l", pa.list_(of("element", pa.struct([REQUIRED])))),
            pa.array([[None, {"p": None}]], pa.list_(pa.struct([P]))),
            "l.element.p",
        ),
        (
            of("m", pa.map_(of("key", pa.string(), required=True), of("value", pa.int64(), required=True))),
            pa.array([[("k", None)]], pa.map_(pa.string(), pa.int64())),
            "m.value",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_null_in_a_required_field_is_an_error_that_names_it(
    field: pa.Field, values: pa.Array, name: str
) -> None:
    with pytest.raises(MisfitError, match=rf"^{name} is required, and a value is null or absent$"):
        fit(pa.table([values], names=[field.name]), pa.schema([field]))


def test_only_the_rows_of_a_slice_are_looked_at() -> None:
    lists = pa.array([[None], [1, 2], None, [None]], LIST)
    rows = pa.table({"l": lists}).slice(1, 2)
    schema = pa.schema([of("l", pa.list_(of("element", pa.int64(), required=True)))])
    assert fit(rows, schema).column(0).to_pylist() == [[1, 2], None]


@pytest.mark.parametrize(
    ("field", "values", "reason"),
    [
        (of("p", pa.int32()), pa.array([1 << 40]), "p: "),
        (of("p", pa.int64()), pa.array(["a"]), "p: "),
        (of("st", pa.struct([P])), pa.array([1]), "st has the type int64 where struct"),
        (of("st", pa.struct([P])), pa.array([{"q": 1}]), "st has the type struct<q: int64> where struct<p"),
    ],
)
def test_values_of_another_type_are_an_error_that_names_the_field(
    field: pa.Field, values: pa.Array, reason: str
) -> None:
    with pytest.raises(MisfitError, match=rf"^{reason}"):
        fit(pa.table([values], names=[field.name]), pa.schema([field]))


def test_columns_are_those_of_the_schema() -> None:
    with pytest.raises(MisfitError, match="columns q where there are p"):
        fit(pa.table({"q": [1]}), pa.schema([of("p", pa.int64())]))


def test_values_of_the_right_type_are_not_copied() -> None:
    values = pa.array(["a", None, "c"])
    rows = fit(pa.table({"s": values}), pa.schema([of("s", pa.string())]))
    assert [each.address for each in rows.column(0).chunk(0).buffers()] == [
        each.address for each in values.buffers()
    ]
