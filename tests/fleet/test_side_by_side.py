"""Work on many tables at once, the memory and the deletions that they share."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from iceberg_cli.fleet.memory import MemoryBudget
from iceberg_cli.fleet.side_by_side import side_by_side
from iceberg_cli.operation.runtime import DeletionAllowance


@pytest.mark.parametrize("jobs", [1, 2, 7])
def test_every_result_of_every_item_comes_once_and_in_the_order_of_its_item(jobs: int) -> None:
    def work(item: int) -> Iterator[tuple[int, int]]:
        for part in range(item % 4):
            yield item, part

    found = list(side_by_side(work, range(50), jobs=jobs))
    assert sorted(found) == [(item, part) for item in range(50) for part in range(item % 4)]
    for item in range(50):
        assert [part for each, part in found if each == item] == list(range(item % 4))


def test_no_more_items_are_taken_than_are_worked_on() -> None:
    taken: list[int] = []
    may_end = threading.Event()

    def items() -> Iterator[int]:
        for number in range(10):
            taken.append(number)
            yield number

    def work(item: int) -> Iterator[int]:
        assert may_end.wait(20)
        yield item

    results = side_by_side(work, items(), jobs=3)
    threading.Timer(0.2, lambda: (taken.append(-1), may_end.set())).start()
    assert len(list(results)) == 10
    assert taken[:4] == [0, 1, 2, -1]


@pytest.mark.parametrize("jobs", [1, 3])
def test_an_error_of_the_work_is_raised_where_its_results_are_awaited(jobs: int) -> None:
    def work(item: int) -> Iterator[int]:
        yield item
        if item == 5:
            raise ValueError("five")

    with pytest.raises(ValueError, match="five"):
        list(side_by_side(work, range(100), jobs=jobs))


def test_tables_wait_for_room_and_one_that_needs_more_than_all_is_alone() -> None:
    budget = MemoryBudget(100)
    inside: set[str] = set()
    seen: list[frozenset[str]] = []
    lock = threading.Lock()

    def work(table: tuple[str, int]) -> Iterator[None]:
        with budget.room(table[1]):
            with lock:
                inside.add(table[0])
                seen.append(frozenset(inside))
            threading.Event().wait(0.02)
            with lock:
                inside.remove(table[0])
        yield None

    tables = {"a": 60, "b": 60, "c": 40, "huge": 500, "d": 10}
    list(side_by_side(work, tables.items(), jobs=5))
    for together in seen:
        assert together == {"huge"} or sum(tables[name] for name in together) <= 100


def test_an_allowance_gives_the_first_files_that_it_has_room_for() -> None:
    allowance = DeletionAllowance(files=5, size_bytes=100)
    assert allowance.take([30, 30, 30, 30]) == 3
    assert allowance.take([20, 1]) == 0  # ten bytes are left, and the first does not fit
    assert allowance.take([10, 1]) == 1
    assert allowance.is_spent
    allowance.give_back(2, 40)
    assert not allowance.is_spent
    assert allowance.take([1] * 9) == 3  # two given back, and one that was left


def test_threads_take_no_more_than_an_allowance_has() -> None:
    allowance = DeletionAllowance(files=1_000, size_bytes=5_000)

    def work(_: int) -> Iterator[int]:
        for _ in range(50):
            yield allowance.take([7] * 9)

    assert sum(side_by_side(work, range(8), jobs=8)) == 5_000 // 7
