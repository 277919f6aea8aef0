"""Where rows of new files are from, and where rows of old ones went."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from iceberg_cli.encoding.transport import from_ipc, to_ipc
from iceberg_cli.errors import CorruptFile
from iceberg_cli.layout.position_map import DROPPED
from iceberg_cli.layout.row_origins import RowOrigins, RowOriginsBuilder


def origins(inputs: list[int], outputs: list[int], numbers: list[int]) -> RowOrigins:
    return RowOrigins(np.array(inputs, np.int64), np.array(outputs, np.int64), np.array(numbers, np.uint32))


@pytest.mark.parametrize("seed", range(20))
def test_each_row_is_found_where_it_was_written(seed: int) -> None:
    drawn = random.Random(seed)
    counts = [drawn.choice([0, 1, 5, 40]) for _ in range(drawn.randint(1, 6))]
    rows = [(number, place) for number, count in enumerate(counts) for place in range(count)]
    live = [row for row in rows if drawn.random() < 0.8]
    drawn.shuffle(live)
    builder = RowOriginsBuilder(counts)
    expected: dict[tuple[int, int], tuple[int, int]] = {}
    written = [0, 0, 0]
    while live:
        output, taken = drawn.randrange(3), [live.pop() for _ in range(min(len(live), drawn.randint(1, 7)))]
        builder.add(*np.array(taken, np.int64).T, output, written[output])
        for row in taken:
            expected[row] = (output, written[output])
            written[output] += 1
    found = builder.build()
    found = RowOrigins.from_table(from_ipc(to_ipc(found.to_table())), "kept")
    assert found.rows == len(expected)
    for number, count in enumerate(counts):
        places = np.array(drawn.sample(range(count), count), np.int64)
        got = zip(*(each.tolist() for each in found.moved(number, places)), strict=True)
        assert [*got] == [expected.get((number, place), (DROPPED, DROPPED)) for place in places.tolist()]


def test_a_position_that_an_input_does_not_have_is_none_of_the_next_one() -> None:
    found = origins([2, 2], [4], [0, 1, 2, 3])
    assert [each.tolist() for each in found.moved(0, np.array([1, 2]))] == [[0, DROPPED], [1, DROPPED]]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (origins([2], [2], [0, 0]), "two rows are from one place"),
        (origins([2], [2], [0, 2]), "from no input"),
        (origins([2], [1], [0, 1]), "not the 2 rows that have origins"),
        (origins([2], [3, -1], [0, 1]), "negative"),
    ],
)
def test_what_is_damaged_is_no_map(broken: RowOrigins, words: str) -> None:
    with pytest.raises(CorruptFile, match=words):
        RowOrigins.from_table(broken.to_table(), "kept")


def test_more_than_four_billion_rows_are_counted() -> None:
    builder = RowOriginsBuilder([1 << 33, 5])
    builder.add(np.array([1]), np.array([4]), 0, 0)
    found = RowOrigins.from_table(builder.build().to_table(), "kept")
    assert found.origins.tolist() == [(1 << 33) + 4]
    assert [each.tolist() for each in found.moved(1, np.array([4, 3]))] == [[0, DROPPED], [0, DROPPED]]


def test_a_file_of_origins_is_known_by_its_columns_and_has_one_row() -> None:
    table = origins([2], [2], [0, 1]).to_table()
    assert RowOrigins.is_in(table)
    assert not RowOrigins.is_in(table.rename_columns(["input_rows", "output_rows", "other"]))
    for wrong in (table.slice(0, 0), pa.concat_tables([table, table])):
        with pytest.raises(CorruptFile, match="rows of origins, not 1"):
            RowOrigins.from_table(wrong, "kept")


def test_of_no_rows_there_are_no_outputs() -> None:
    found = RowOriginsBuilder([3]).build()
    assert (found.rows, found.output_rows.tolist()) == (0, [])
    assert [each.tolist() for each in found.moved(0, np.array([0, 2]))] == [[DROPPED] * 2] * 2


def test_numbers_have_four_bytes_as_long_as_that_is_enough() -> None:
    for rows, kind in (((1 << 32) - 6, np.uint32), ((1 << 32) - 5, np.uint64)):
        builder = RowOriginsBuilder([rows, 5])
        builder.add(np.array([1]), np.array([4]), 0, 0)
        assert builder.build().origins.dtype == kind
