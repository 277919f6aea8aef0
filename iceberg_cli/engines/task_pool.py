"""Tasks that run side by side, in forked processes or in threads, as many at a time as there are workers.

A forked process is a copy of this one as it is at the fork, so that tasks need not be pickled; it ends when its parent
does, however that ends, since what it creates after that would be nobody's.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Final

from iceberg_cli.engines import TICK_S, Item, Parsed, TaskEnd, ended
from iceberg_cli.engines.machine import keep_freed_memory
from iceberg_cli.errors import BackendUnavailable

_SIGNAL_WHEN_PARENT_ENDS: Final = 1  # of prctl(2)
_work: tuple[Callable[[Any], Any], Sequence[Any]]


def run_in_processes(
    task: Callable[[Item], Parsed], items: Sequence[Item], *, may_begin: Callable[[], bool], workers: int
) -> Generator[TaskEnd[Parsed] | None, None, None]:
    """As `Engine.run`, in forked processes. No other thread that runs Python code may be alive."""
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("fork"),
        initializer=_begin,
        initargs=(os.getpid(), task, items),
    )
    try:
        yield from _results(pool, _run, len(items), may_begin=may_begin, workers=workers)
    finally:
        for process in list((pool._processes or {}).values()):  # noqa: SLF001 - nothing else ends those at work
            process.kill()
        pool.shutdown(wait=True, cancel_futures=True)


def run_in_threads(
    task: Callable[[Item], Parsed], items: Sequence[Item], *, may_begin: Callable[[], bool], workers: int
) -> Generator[TaskEnd[Parsed] | None, None, None]:
    """As `Engine.run`, in threads of this process, which cannot be ended: those at work are waited for."""
    keep_freed_memory()
    with ThreadPoolExecutor(workers) as pool:
        yield from _results(
            pool,
            lambda index: ended(index, task, items[index]),
            len(items),
            may_begin=may_begin,
            workers=workers,
        )


def _results(
    pool: Executor,
    run: Callable[[int], TaskEnd[Any]],
    tasks: int,
    *,
    may_begin: Callable[[], bool],
    workers: int,
) -> Generator[TaskEnd[Any] | None, None, None]:
    """The ends of tasks as they come; a task begins when a worker is free for it."""
    running: dict[Future[TaskEnd[Any]], int] = {}
    following = 0
    killed: int | None = None  # the task of a worker that was ended, or that none could begin
    while killed is None:
        while following < tasks and len(running) < workers and may_begin():
            try:
                future = pool.submit(run, following)
            except BrokenProcessPool:  # since its last task, while the caller was busy
                killed = following
                break
            running[future] = following
            following += 1
        if not running and killed is None:
            return
        done, _ = wait(running, timeout=TICK_S, return_when=FIRST_COMPLETED)
        if not done and killed is None:
            yield None
        for future in done:
            index = running.pop(future)
            try:
                end = future.result()
            except BrokenProcessPool:
                killed = index  # and all that are not done; those that are come first
                continue
            yield end
    yield TaskEnd(index=killed, error=_killed())


def _begin(parent: int, task: Callable[[Any], Any], items: Sequence[Any]) -> None:
    """Prepare a worker. Its parent decides when to stop: it ignores Ctrl-C and SIGTERM."""
    global _work  # noqa: PLW0603 - of this process alone
    _work = task, items
    keep_freed_memory()
    gc.freeze()  # looking for garbage among the parent's objects would copy the memory they are in
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SIGNAL_WHEN_PARENT_ENDS, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that
        os._exit(1)


def _run(index: int) -> TaskEnd[Any]:
    task, items = _work
    return ended(index, task, items[index])


def _killed() -> BackendUnavailable:
    return BackendUnavailable(
        "Cannot go on: a process that rewrote files was ended",
        next_step="Where memory is short the system ends processes: look at its log, and run again with less --memory "
        "or fewer --processes.",
    )
