"""Where rows went is what a dictionary of rows says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.errors import CorruptFile
from iceberg_cli.layout.position_map import DROPPED, PositionMap, PositionMapBuilder


def built(*adds: tuple[int, list[int], int, int]) -> PositionMap:
    builder = PositionMapBuilder()
    for input_file, positions, output_file, first in adds:
        builder.add(input_file, np.array(positions, np.int64), output_file, first)
    return builder.build()


def runs(found: PositionMap) -> list[tuple[int, ...]]:
    return list(zip(*(column.to_pylist() for column in found.to_table().columns), strict=True))


def test_rows_that_follow_each_other_in_both_files_are_one_run() -> None:
    found = built((0, [0, 1, 2], 0, 0), (0, [3, 4], 0, 3), (1, [5], 0, 5), (1, [6], 1, 0), (1, [8], 1, 1))
    assert runs(found) == [(0, 0, 0, 0, 5), (1, 5, 0, 5, 1), (1, 6, 1, 0, 1), (1, 8, 1, 1, 1)]
    assert found.rows == 8


def test_runs_are_in_the_order_of_the_input_whatever_was_written_first() -> None:
    found = built((1, [0], 0, 0), (0, [7], 0, 1), (0, [2], 1, 0))
    assert runs(found) == [(0, 2, 1, 0, 1), (0, 7, 0, 1, 1), (1, 0, 0, 0, 1)]
    assert found.moved(0, np.array([2, 7]))[0].tolist() == [1, 0]


def test_h6_a_row_after_a_deleted_one_stands_one_place_further_up() -> None:
    """H6: of ten rows the fourth was deleted before; a delete of the eighth is one of the seventh of the output."""
    found = built((0, [0, 1, 2, 4, 5, 6, 7, 8, 9], 0, 0))
    assert [each.tolist() for each in found.moved(0, np.array([7, 3, 0, 10]))] == [
        [0, DROPPED, 0, DROPPED],
        [6, DROPPED, 0, DROPPED],
    ]
    assert found.moved(1, np.array([0]))[0].tolist() == [DROPPED]


def test_without_rows_all_are_dropped() -> None:
    found = built((0, [], 0, 0))
    assert (found.rows, runs(found)) == (0, [])
    assert found.moved(0, np.array([0, 1]))[0].tolist() == [DROPPED, DROPPED]
    assert runs(PositionMap.from_table(found.to_table(), "map")) == []


INPUTS = st.lists(st.sets(st.integers(0, 12), max_size=12), min_size=1, max_size=4)


@given(INPUTS, st.lists(st.integers(1, 7), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_every_row_is_found_where_it_was_written(live: list[set[int]], sizes: list[int], random: Any) -> None:
    """Inputs in any order, written in batches, into outputs of some sizes."""
    order = random.sample(range(len(live)), len(live))
    builder, expected, output, place = PositionMapBuilder(), {}, 0, 0
    for input_file in order:
        rest = sorted(live[input_file])
        while rest:
            if place >= sizes[output % len(sizes)]:
                output, place = output + 1, 0
            batch = rest[: min(random.randint(1, 5), sizes[output % len(sizes)] - place)]
            builder.add(input_file, np.array(batch, np.int64), output, place)
            expected |= {(input_file, row): (output, place + at) for at, row in enumerate(batch)}
            place, rest = place + len(batch), rest[len(batch) :]
    found = PositionMap.from_table(builder.build().to_table(), "map")
    assert found.rows == len(expected)
    for input_file in range(-1, len(live) + 1):
        rows = random.sample(range(15), 15)
        outputs, positions = found.moved(input_file, np.array(rows))
        assert list(zip(outputs.tolist(), positions.tolist(), strict=True)) == [
            expected.get((input_file, row), (DROPPED, DROPPED)) for row in rows
        ]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([(0, 0, 0, 0, 2), (0, 1, 0, 2, 1)], ", input: runs overlap"),
        ([(0, 0, 0, 0, 2), (1, 0, 0, 1, 1)], ", output: runs overlap"),
        ([(1, 0, 0, 0, 1), (0, 0, 0, 1, 1)], "the runs are not ascending"),
        ([(0, 5, 0, 0, 1), (0, 0, 0, 1, 1)], "the runs are not ascending"),
        ([(0, 0, 0, 0, 0)], "a run has no rows"),
        ([(0, 0, 0, 0, -1)], "a run has no rows"),
        ([(0, -1, 0, 0, 1)], "a number is negative"),
        ([(0, 0, -1, 0, 1)], "a number is negative"),
    ],
)
def test_what_is_no_map_is_refused(rows: list[Any], reason: str) -> None:
    schema = built().to_table().schema
    columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
    with pytest.raises(CorruptFile, match=f"group-7.*{reason}"):
        PositionMap.from_table(pa.table(columns, schema=schema), "group-7")


def test_other_columns_and_nulls_are_refused() -> None:
    table = built((0, [0], 0, 0)).to_table()
    with pytest.raises(CorruptFile, match="no map of positions"):
        PositionMap.from_table(table.drop_columns(["length"]), "map")
    nulls = table.set_column(4, table.schema.field(4), pa.array([None], pa.int64()))
    with pytest.raises(CorruptFile, match="no map of positions"):
        PositionMap.from_table(nulls, "map")
    assert [(each.name, each.nullable) for each in table.schema] == [
        ("input", False),
        ("position", False),
        ("output", False),
        ("output_position", False),
        ("length", False),
    ]
