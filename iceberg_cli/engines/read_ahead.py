"""Files read in threads, a bounded number and size ahead of whoever takes them, in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Final, TypeVar

from iceberg_cli.engines import Item, Source
from iceberg_cli.paths import scheme_of

AHEAD_BYTES: Final = 16 << 20  # stored: about as much as a batch, so that the readers work while it is parsed
_HANDFUL_FILES: Final = 16  # local ones that a thread reads at once
_REMOTE_HANDFUL_FILES: Final = 8  # at most, and only of so many that every thread has several handfuls
_HANDFUL_BYTES: Final = 1 << 20
Read = TypeVar("Read")


def read_ahead(
    items: Sequence[Item],
    source: Callable[[Item], Source],
    read: Callable[[Item], Read],
    *,
    threads: int,
    most_bytes: int = AHEAD_BYTES,
) -> Generator[tuple[Item, Read], None, None]:
    """Items in their order, each with what was read of it.

    Args:
        items: n files.
        source: of an item.
        read: what is done in the threads; what it raises is raised where its item is next.
        threads: that read; one reads no sooner than an item is asked for.
        most_bytes: of files that are read ahead, unless one alone is larger.
    """
    remote_files = min(len(items) // (4 * threads), _REMOTE_HANDFUL_FILES)
    handfuls = _handfuls(items, source, remote_files=remote_files)
    begun = list(islice(handfuls, 2))
    if threads < 2 or len(begun) < 2:  # beginning threads would take longer than they save
        for item in items:
            yield item, read(item)
        return

    def read_all(some: Sequence[Item]) -> list[Read]:
        return [read(item) for item in some]

    with ThreadPoolExecutor(threads) as pool:
        window: deque[tuple[Sequence[Item], int, Future[list[Read]]]] = deque()
        ahead_bytes = 0
        try:
            for some, size_bytes in chain(begun, handfuls):
                while window and (len(window) > 2 * threads or ahead_bytes + size_bytes > most_bytes):
                    first, first_bytes, future = window.popleft()
                    yield from zip(first, future.result(), strict=True)
                    ahead_bytes -= first_bytes
                window.append((some, size_bytes, pool.submit(read_all, some)))
                ahead_bytes += size_bytes
            while window:
                first, _, future = window.popleft()
                yield from zip(first, future.result(), strict=True)
        finally:
            for _, _, future in window:
                future.cancel()


def _handfuls(
    items: Sequence[Item], source: Callable[[Item], Source], *, remote_files: int
) -> Iterator[tuple[Sequence[Item], int]]:
    """Groups of items in their order, as many as one thread reads one after the other, with their size in bytes.

    Passing a small local file to a thread takes longer than reading it, and a remote one a good part of that.

    Args:
        items: local or remote files.
        source: of an item.
        remote_files: in a group, at most.
    """
    start = size_bytes = 0
    for index, item in enumerate(items):
        file = source(item)
        size_bytes += file.size_bytes
        files = _HANDFUL_FILES if scheme_of(file.path or "") == "file" else remote_files
        if index + 1 - start >= files or size_bytes >= _HANDFUL_BYTES or index + 1 == len(items):
            yield items[start : index + 1], size_bytes
            start, size_bytes = index + 1, 0
