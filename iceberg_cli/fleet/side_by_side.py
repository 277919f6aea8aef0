"""Work on many tables, several at a time, whose results come as they are ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Item], Result], items: Iterable[Item], *, jobs: int) -> Iterator[Result]:
    """The results of some work, in the order in which they are ready.

    No more items are taken than are worked on: they may be as many as a catalog has tables. Where the caller goes away
    before the end, what is under way is waited for, and nothing more is begun.

    Args:
        work: in whatever thread; an error that it raises is raised here.
        items: taken in this thread.
        jobs: how many threads; 1: this one.
    """
    if jobs == 1:
        yield from map(work, items)
        return
    waiting = iter(items)
    with ThreadPoolExecutor(jobs, thread_name_prefix="table") as pool:
        running: set[Future[Result]] = set()

        def fill() -> None:
            while len(running) < jobs:
                try:
                    item = next(waiting)
                except StopIteration:
                    return
                running.add(pool.submit(work, item))

        fill()
        while running:
            ready, running_still = wait(running, return_when=FIRST_COMPLETED)
            running.clear()
            running.update(running_still)
            fill()
            for each in ready:
                yield each.result()
