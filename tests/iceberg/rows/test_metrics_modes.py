"""Which columns have counts and bounds, by the properties of a table."""

from __future__ import annotations

import pytest

from iceberg_cli.iceberg.rows.metrics_modes import COUNTS, FULL, NONE, TRUNCATE_16, MetricsMode, metrics_modes
from iceberg_cli.iceberg.spec.types.schema import ListType, MapType, NestedField, StructType, Type

PREFIX = "write.metadata.metrics."


def field(field_id: int, name: str, type_: Type = "int") -> NestedField:
    return NestedField(field_id=field_id, name=name, required=False, type=type_)


NESTED = (
    field(1, "st", StructType(fields=(field(2, "p"), field(3, "q", StructType(fields=(field(4, "r"),)))))),
    field(5, "k", "string"),
    field(6, "l", ListType(element_id=7, element_required=False, element="int")),
    field(8, "m", MapType(key_id=9, key="string", value_id=10, value_required=False, value="int")),
    field(11, "z", "long"),
)


def test_modes_are_what_their_names_say() -> None:
    assert [(mode.counts, mode.bound_length) for mode in (NONE, COUNTS, TRUNCATE_16, FULL)] == [
        (False, 0),
        (True, 0),
        (True, 16),
        (True, None),
    ]


def test_all_columns_of_a_narrow_table_are_cut_to_sixteen() -> None:
    modes, refused = metrics_modes(NESTED, {})
    assert modes == dict.fromkeys((2, 4, 5, 7, 9, 10, 11), TRUNCATE_16)
    assert refused == {}


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (0, set()),
        (1, {5}),
        (2, {5, 11}),
        (3, {5, 11, 2}),
        (4, {5, 11, 2, 4}),
        (6, {5, 11, 2, 4, 7, 9}),
        (7, {2, 4, 5, 7, 9, 10, 11}),
    ],
)
def test_of_a_wide_table_the_first_columns_have_metrics_and_of_each_struct_its_own_come_first(
    limit: int, expected: set[int]
) -> None:
    modes, _ = metrics_modes(NESTED, {f"{PREFIX}max-inferred-column-defaults": str(limit)})
    assert {field_id for field_id, mode in modes.items() if mode == TRUNCATE_16} == expected
    assert {mode for field_id, mode in modes.items() if field_id not in expected} <= {NONE}


def test_a_default_that_is_set_holds_for_all_columns_and_a_hundred_is_the_limit_of_what_is_not() -> None:
    wide = [field(number, f"c{number}") for number in range(1, 131)]
    assert sum(mode == TRUNCATE_16 for mode in metrics_modes(wide, {})[0].values()) == 100
    modes, _ = metrics_modes(wide, {f"{PREFIX}default": "counts"})
    assert set(modes.values()) == {COUNTS}
    assert len(modes) == 130


def test_columns_have_modes_of_their_own_by_their_names_with_dots() -> None:
    given = {"st.q.r": "none", "m.value": "FULL", "l.element": " truncate( 3 ) ", "gone": "full"}
    modes, refused = metrics_modes(NESTED, {f"{PREFIX}column.{name}": mode for name, mode in given.items()})
    assert (modes[4], modes[10], modes[7]) == (NONE, FULL, MetricsMode(counts=True, bound_length=3))
    assert modes[2] == TRUNCATE_16
    assert refused == {}


def test_sorted_columns_have_bounds_unless_their_own_property_says_otherwise() -> None:
    properties = {f"{PREFIX}default": "none", f"{PREFIX}column.k": "counts"}
    modes, _ = metrics_modes(NESTED, properties, sorted_ids=(5, 11))
    assert (modes[5], modes[11], modes[2]) == (COUNTS, TRUNCATE_16, NONE)
    modes, _ = metrics_modes(NESTED, {f"{PREFIX}default": "full"}, sorted_ids=(11,))
    assert modes[11] == FULL


@pytest.mark.parametrize("text", ["truncate(0)", "truncate(-1)", "truncate", "some", "", "truncate(1)(2)"])
def test_a_mode_that_is_none_is_refused_by_its_name(text: str) -> None:
    modes, refused = metrics_modes(NESTED, {f"{PREFIX}column.k": text})
    assert refused == {f"{PREFIX}column.k": f"{text!r} is none of none, counts, truncate(N) and full"}
    assert modes[5] == TRUNCATE_16


def test_a_limit_that_is_no_number_is_refused() -> None:
    name = f"{PREFIX}max-inferred-column-defaults"
    assert metrics_modes(NESTED, {name: "many"})[1] == {name: "'many' is no number of columns"}
