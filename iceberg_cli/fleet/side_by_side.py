"""Work on many tables, several at a time, whose results come as they are ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from queue import SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class _End:
    """The end of the work on one item, and the error that it ended by."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def side_by_side(
    work: Callable[[Item], Iterable[Result]], items: Iterable[Item], *, jobs: int
) -> Iterator[Result]:
    """The results of some work on n items, each as soon as it is ready.

    No more items are taken than are worked on: they may be as many as a catalog has tables.

    Args:
        work: on one item, in whatever thread; an error that it raises is raised here.
        items: taken in this thread.
        jobs: how many threads; 1: this one.
    """
    if jobs == 1:
        for item in items:
            yield from work(item)
        return
    ready: SimpleQueue[Result | _End] = SimpleQueue()

    def run(item: Item) -> None:
        try:
            for result in work(item):
                ready.put(result)
        except BaseException as error:  # noqa: BLE001 - every one of them reaches the caller
            ready.put(_End(error))
        else:
            ready.put(_End())

    pool = ThreadPoolExecutor(jobs, thread_name_prefix="table")
    waiting, running = iter(items), 0
    try:
        for item in islice(waiting, jobs):
            pool.submit(run, item)
            running += 1
        while running:
            result = ready.get()
            if not isinstance(result, _End):
                yield result
                continue
            running -= 1
            _raise(result.error)
            for item in islice(waiting, 1):
                pool.submit(run, item)
                running += 1
    except BaseException:
        # Whoever ends the program now does not wait for what is under way: its journals tell of it.
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error
