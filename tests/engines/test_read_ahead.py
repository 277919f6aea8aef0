"""Files that are read ahead come in their order, and no more of them are held than a bound."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from iceberg_cli.engines import Source
from iceberg_cli.engines.read_ahead import read_ahead

MANY = range(200)


def remote(item: int) -> Source:
    return Source(f"s3://bucket/{item}", 10)


@pytest.mark.pairs
@pytest.mark.parametrize("threads", [1, 2, 64])
@pytest.mark.parametrize("scheme", ["s3://bucket/", "/disk/"])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 200])
def test_items_come_in_their_order_each_with_what_was_read_of_it(
    threads: int, scheme: str, count: int
) -> None:
    def source(item: int) -> Source:
        return Source(f"{scheme}{item}", 10)

    found = [*read_ahead(range(count), source, lambda item: item * 2, threads=threads)]
    assert found == [(item, item * 2) for item in range(count)]


def test_one_thread_reads_none_before_its_turn() -> None:
    begun: list[int] = []
    with closing(read_ahead(MANY, remote, begun.append, threads=1)) as items:
        for turn, (item, _) in enumerate(items):
            assert (item, begun) == (turn, [*range(turn + 1)])


def test_several_read_while_others_wait_and_no_more_bytes_ahead_than_may_be() -> None:
    begun: set[int] = set()
    lock, ahead = threading.Lock(), threading.Event()

    def read(item: int) -> int:
        with lock:
            begun.add(item)
        if item == 3:
            ahead.set()
        return item

    with closing(read_ahead(MANY, remote, read, threads=4, most_bytes=80)) as items:
        assert next(items) == (0, 0)
        assert ahead.wait(30)  # though nobody asked for it
        most = 0
        for item, _ in items:
            with lock:
                most = max(most, max(begun) - item)
    assert begun == {*MANY}
    assert 3 <= most <= 16  # eight files, and a handful at either end


def test_an_error_is_raised_where_its_item_is_next_and_what_waits_is_left() -> None:
    begun: list[int] = []

    def read(item: int) -> int:
        begun.append(item)
        if item == 100:
            raise FileNotFoundError(item)
        return item

    def taken() -> Iterator[int]:
        for item, _ in read_ahead(MANY, remote, read, threads=2, most_bytes=100):
            yield item

    items = taken()
    assert [next(items) for _ in range(96)] == [*range(96)]
    with pytest.raises(FileNotFoundError):
        list(items)
    assert len(begun) < 130
