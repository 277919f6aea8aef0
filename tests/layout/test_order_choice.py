"""Which files are brought into an order: real rows in files, before, after, and when others come."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from iceberg_cli.layout.curves import Curve
from iceberg_cli.layout.order_choice import OrderSettings, choose_for_order, expected_of
from iceberg_cli.layout.point_reads import ColumnRanges, column_ranges, files_opened
from iceberg_cli.layout.ranks import RankScale

Columns = list[npt.NDArray[np.int64]]
FILE_ROWS = 500


def drawn_rows(name: str, rows: int, seed: int = 0) -> Columns:
    drawn = np.random.default_rng(seed)
    first = drawn.integers(0, 10**9, rows)
    match name:
        case "skewed":
            return [
                np.minimum(drawn.zipf(1.3, rows), 10**9),
                (drawn.pareto(1.2, rows) * 1000).astype(np.int64),
            ]
        case "correlated":
            return [first, first + drawn.integers(0, 10**7, rows)]
        case "few values":
            return [drawn.integers(0, 3, rows), first]
    return [first, drawn.integers(0, 10**9, rows)]


def in_order(columns: Columns, curve: Curve | None) -> Columns:
    if curve is None:
        order = np.lexsort(columns[::-1])
    else:
        scale = RankScale(curve, tuple(np.sort(column) for column in columns))
        order = np.argsort(scale.places([pa.chunked_array([column]) for column in columns]), kind="stable")
    return [column[order] for column in columns]


def files_of(columns: Columns, starts: npt.NDArray[np.int64] | None = None) -> list[ColumnRanges]:
    """Of rows in files as they come, of `FILE_ROWS` unless it is said where each starts."""
    starts = np.arange(0, len(columns[0]), FILE_ROWS) if starts is None else starts
    none = np.zeros(len(starts), np.bool_)
    return [
        column_ranges(
            pa.array(np.minimum.reduceat(each, starts)), pa.array(np.maximum.reduceat(each, starts)), none
        )
        for each in columns
    ]


class Choice(NamedTuple):
    """What is chosen, and what is expected of it."""

    chosen: npt.NDArray[np.bool_]
    before: tuple[float, ...]
    after: tuple[float, ...]
    files_after: int


def choice_of(
    files: Sequence[ColumnRanges],
    rows: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    settings: OrderSettings,
) -> Choice:
    mask = choose_for_order(files, rows, sizes, settings)
    forecast = expected_of(files, rows, sizes, settings, mask)
    return Choice(mask, forecast.before, forecast.after, forecast.files_after)


def chosen(files: Sequence[ColumnRanges], curve: Curve | None, **settings: float | bool) -> Choice:
    number = len(files[0].lower)
    by = OrderSettings(
        curve=curve,
        min_gain=float(settings.get("min_gain", 0.1)),
        target_bytes=1000,
        max_bytes=1800,
        most_bytes=1 << 60,
        whole=bool(settings.get("whole", False)),
    )
    return choice_of(files, np.full(number, FILE_ROWS), np.full(number, 1000), by)


def opened(files: Sequence[ColumnRanges]) -> list[float]:
    return [files_opened(each, np.full(len(each.lower), FILE_ROWS)) for each in files]


KINDS = ["uniform", "skewed", "correlated", "few values"]
CURVES_AND_SORT: list[Curve | None] = [None, "z-order", "hilbert"]


@pytest.mark.pairs
@pytest.mark.parametrize("number", [8, 40, 200])
@pytest.mark.parametrize("curve", CURVES_AND_SORT)
@pytest.mark.parametrize("kind", KINDS)
def test_files_in_no_order_are_chosen_once(kind: str, curve: Curve | None, number: int) -> None:
    """Z6: nearly all of them, unless these are few; and of what they become none, whatever the rows are like."""
    rows = drawn_rows(kind, number * FILE_ROWS)
    first = chosen(files_of(rows), curve)
    assert np.count_nonzero(first.chosen) >= (0.95 if number > 8 else 0.5) * number
    again = chosen(files_of(in_order(rows, curve)), curve)
    assert not again.chosen.any()
    assert again.after == again.before


@pytest.mark.parametrize("curve", CURVES_AND_SORT)
def test_files_in_order_that_are_not_equal_stay(curve: Curve | None) -> None:
    """Others of the same number would be of equal sizes, and maybe somewhat better."""
    for seed, number in itertools.product(range(10), [2, 3, 4, 7]):
        drawn = np.random.default_rng(seed)
        rows = in_order(drawn_rows("uniform", 4000, seed), curve)
        starts = np.concatenate([[0], np.sort(drawn.choice(np.arange(400, 3600), number - 1, replace=False))])
        files, counts = files_of(rows, starts), np.diff(np.append(starts, 4000))
        by = OrderSettings(
            curve=curve, min_gain=0.1, target_bytes=1000, max_bytes=1 << 20, most_bytes=1 << 60, whole=False
        )
        assert not choice_of(files, counts, np.full(number, 1000), by).chosen.any(), (seed, number)


@pytest.mark.parametrize("curve", CURVES_AND_SORT)
def test_what_is_expected_comes_true(curve: Curve | None) -> None:
    """Of rows that lie evenly, by the bounds of files that were written of them; z-order jumps, so it is less sure."""
    rows = drawn_rows("uniform", 100 * FILE_ROWS)
    expected = chosen(files_of(rows), curve)
    assert expected.before == pytest.approx(opened(files_of(rows)), rel=0.05)
    assert expected.after == pytest.approx(opened(files_of(in_order(rows, curve))), rel=0.15)
    assert expected.files_after == 100


@pytest.mark.parametrize("curve", CURVES_AND_SORT)
def test_of_a_table_in_order_only_what_is_added_is_chosen(curve: Curve | None) -> None:
    """Z6: 8 files come to 320; reads then open hardly more than if all were written anew."""
    rows = in_order(drawn_rows("uniform", 320 * FILE_ROWS), curve)
    added = drawn_rows("uniform", 8 * FILE_ROWS, seed=1)
    files = files_of([np.concatenate(pair) for pair in zip(rows, added, strict=True)])
    found = chosen(files, curve)
    assert found.chosen[-8:].all()
    assert np.count_nonzero(found.chosen) <= 16
    whole = chosen(files, curve, whole=True)
    assert whole.chosen.all()
    # What is ruled out, of 328 files.
    assert 328 - found.after[0] >= 0.9 * (328 - whole.after[0])


def test_one_file_that_comes_to_a_sorted_table_stays_beside_it() -> None:
    """Half of what a read opens is more than it was, and still not worth writing 40 files for one."""
    rows = in_order(drawn_rows("uniform", 40 * FILE_ROWS), None)
    added = drawn_rows("uniform", FILE_ROWS, seed=1)
    files = files_of([np.concatenate(pair) for pair in zip(rows, added, strict=True)])
    assert not chosen(files, None).chosen.any()
    assert chosen(files, None, whole=True).chosen.all()


def test_files_that_reads_open_the_most_are_written_anew_once_there_are_many() -> None:
    """Where each run's files lie upon each other they are merged in the end."""
    runs = [in_order(drawn_rows("uniform", 10 * FILE_ROWS, seed=seed), None) for seed in range(6)]
    found = chosen(files_of([np.concatenate(parts) for parts in zip(*runs, strict=True)]), None)
    assert found.chosen.all()
    assert found.before[0] == pytest.approx(6, rel=0.05)
    assert found.after[0] == pytest.approx(1, rel=0.05)


def test_less_is_gained_than_is_asked_for() -> None:
    files = files_of(drawn_rows("uniform", 4 * FILE_ROWS))
    gain = 1 - sum(chosen(files, "hilbert").after) / sum(chosen(files, "hilbert").before)
    assert 0.3 < gain < 0.7
    assert chosen(files, "hilbert", min_gain=gain - 0.02).chosen.all()
    assert not chosen(files, "hilbert", min_gain=gain + 0.02).chosen.any()


def test_large_files_are_cut_and_reads_then_open_a_smaller_part_of_them() -> None:
    """As many are opened as before, or more, and each has a fourth of the rows."""
    files = files_of(drawn_rows("uniform", 6 * FILE_ROWS))
    by = OrderSettings(
        curve="hilbert", min_gain=0.1, target_bytes=250, max_bytes=450, most_bytes=1 << 60, whole=False
    )
    found = choice_of(files, np.full(6, FILE_ROWS), np.full(6, 1000), by)
    assert (found.chosen.all(), found.files_after) == (True, 24)
    assert found.after[0] / 24 < 0.4 * found.before[0] / 6


def test_files_of_a_good_size_are_not_cut_for_an_order() -> None:
    """They would be of the target if they were written now, which is no gain by itself."""
    files = files_of(in_order(drawn_rows("uniform", 2 * FILE_ROWS), None))
    for size, cut in ((1700, False), (1900, True)):
        by = OrderSettings(
            curve=None, min_gain=0.1, target_bytes=1000, max_bytes=1800, most_bytes=1 << 60, whole=False
        )
        assert choice_of(files, np.full(2, FILE_ROWS), np.full(2, size), by).chosen.any() == cut


def test_more_than_a_group_holds_is_sorted_in_two_runs() -> None:
    """Each group by itself, and then what was first in each: as an external sort does it, and no more often."""
    rows = drawn_rows("uniform", 60 * FILE_ROWS)
    opened_by_run = []
    for _ in range(4):
        files = files_of(rows)
        by = OrderSettings(
            curve=None, min_gain=0.1, target_bytes=1000, max_bytes=1800, most_bytes=6000, whole=False
        )
        found = choice_of(files, np.full(60, FILE_ROWS), np.full(60, 1000), by)
        opened_by_run.append(round(found.before[0]))
        if not found.chosen.any():
            break
        assert found.chosen.all()
        # Files are named by their number in their group first, and then by the group.
        groups = [
            in_order([column[part] for column in rows], None)
            for part in np.split(np.arange(60 * FILE_ROWS), 10)
        ]
        numbers = [
            [column[number * FILE_ROWS : (number + 1) * FILE_ROWS] for column in group]
            for number in range(6)
            for group in groups
        ]
        rows = [np.concatenate(parts) for parts in zip(*numbers, strict=True)]
    assert opened_by_run == [59, 10, 2]


def test_a_column_of_one_value_decides_nothing() -> None:
    """As the column has in a partition by which this is one; then the next one decides first."""
    first, second = drawn_rows("uniform", 40 * FILE_ROWS)
    same = np.zeros(len(first), np.int64)
    alone, beside = chosen(files_of([first, second]), None), chosen(files_of([same, first, second]), None)
    assert beside.chosen.all()
    assert beside.after == pytest.approx((40, *alone.after), rel=0.02)
    assert not chosen(files_of([same, same]), None).chosen.any()


def test_one_file_is_in_order_and_nulls_are_nowhere() -> None:
    assert not chosen(files_of(drawn_rows("uniform", FILE_ROWS)), None).chosen.any()
    none = pa.nulls(3, pa.int64())
    assert not chosen([column_ranges(none, none, np.ones(3, np.bool_))], None).chosen.any()


def test_files_without_bounds_are_worth_it() -> None:
    """As their readers open all of them, whatever they ask for."""
    none = pa.nulls(6, pa.int64())
    found = chosen([column_ranges(none, none, np.zeros(6, np.bool_))], None)
    assert (found.chosen.all(), found.before) == (True, (6.0,))
    assert found.after[0] == pytest.approx(1, abs=0.05)


GB = 1 << 30


@pytest.mark.parametrize("target", [GB, GB // 8], ids=["1GiB", "128MiB"])
@pytest.mark.parametrize("files", [8, 100])
@pytest.mark.parametrize("new", ["spread", "later"])
def test_a_gigabyte_that_comes_to_forty_is_brought_into_order_alone(
    new: str, files: int, target: int
) -> None:
    """Z6: Delta Spark writes 41 GB anew. What reads open then is within a sixth of what they open after that."""
    number = 40 * GB // target
    rows = 200_000
    old, others = drawn_rows("even", rows), drawn_rows("even", rows // 40, seed=1)
    if new == "later":
        others = [10**9 + others[0] // 40, others[1]]
    clustered = in_order(old, "hilbert")
    whole = [np.concatenate(pair) for pair in zip(clustered, others, strict=True)]
    starts = np.concatenate([cuts(rows, number), rows + cuts(rows // 40, files)])
    counts = np.diff(np.append(starts, len(whole[0])))
    sizes = np.concatenate([np.full(number, target), np.full(files, GB // files)])
    settings = OrderSettings(
        curve="hilbert",
        min_gain=0.1,
        target_bytes=target,
        max_bytes=target * 9 // 5,
        most_bytes=100 * GB,
        whole=False,
    )
    found = choice_of(files_of(whole, starts), counts, sizes, settings)
    pays = new == "spread" or target == GB or files > 8  # else it gains less than a tenth
    assert not found.chosen[:number].any()
    assert found.chosen[number:].all() == pays
    if not pays:
        return
    moved = in_order(others, "hilbert")
    after = [np.concatenate(pair) for pair in zip(clustered, moved, strict=True)]
    starts = np.concatenate([cuts(rows, number), rows + cuts(rows // 40, GB // target)])
    full = in_order(whole, "hilbert")
    ends = cuts(len(full[0]), number + GB // target)
    for place in range(2):
        own = files_of(after, starts)[place], np.diff(np.append(starts, len(full[0])))
        best = files_of(full, ends)[place], np.diff(np.append(ends, len(full[0])))
        assert files_opened(*own) < 7 / 6 * files_opened(*best)


def cuts(rows: int, files: int) -> npt.NDArray[np.int64]:
    """Where each of so many files of equal sizes starts."""
    return np.arange(files) * rows // files
