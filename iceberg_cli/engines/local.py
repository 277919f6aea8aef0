"""The local engine: threads read and inflate, the calling thread parses; large scans do so in several processes."""

from __future__ import annotations

import math
import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass

from iceberg_cli.engines import BATCH_BYTES, Event, Item, Loaded, OnEvent, Parsed, Source
from iceberg_cli.errors import CorruptFile
from iceberg_cli.paths import scheme_of
from iceberg_cli.storage import Storage

_LOCAL_THREADS = 4
_REMOTE_THREADS = 32
_MOST_WORKERS = 2  # each takes some 100 MB while it decodes
_BATCH_FILES = 1_024
_AHEAD_BYTES = 16 << 20  # stored: about as much as a batch, so that the readers work while it is parsed
_HANDFUL_FILES = 16  # local ones that a thread reads at once
_HANDFUL_BYTES = 1 << 20
_WORKER_BATCH_BYTES = 6 << 20  # each worker has one in memory at the same time


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """The engine that reads and loads in `threads` threads, a bounded number of files and bytes ahead of the parser.

    Args:
        storage: of the files.
        threads: that read side by side.
        workers: processes that large scans are split among; more than one only for a storage that survives a fork.
        workers_from_bytes: the size of a scan below which forking costs more than it saves.
    """

    storage: Storage
    threads: int = 4
    workers: int = 1
    workers_from_bytes: int = 8 << 20
    name: str = "local"

    def scan(
        self,
        items: Sequence[Item],
        source: Callable[[Item], Source],
        load: Callable[[Item, bytes], Loaded],
        parse: Callable[[Sequence[tuple[Item, Loaded | None]]], Parsed],
        *,
        phase: str,
        missing_ok: bool = False,
        batch_bytes: int = BATCH_BYTES,
        on_event: OnEvent,
    ) -> Iterator[Parsed]:
        """See `Engine.scan`."""

        def read(item: Item) -> tuple[int, Loaded | None]:
            path = source(item).path
            try:
                data = self.storage.read(path)
            except FileNotFoundError:
                if missing_ok:
                    return 0, None
                raise CorruptFile(path, None, "the table needs this file and it is not there") from None
            return len(data), load(item, data)

        # Closes the display of the phase before, whose thread must be gone before workers are forked.
        on_event(Event(phase=phase, done=0, total=len(items)))
        if self.workers > 1 and self._pays([source(item) for item in items]):
            parts = self._in_processes(items, source, read, parse, batch_bytes)
        else:
            parts = self._here(items, source, read, parse, batch_bytes)
        done = 0
        with closing(parts):
            for files, parsed in parts:
                yield parsed
                done += files
                on_event(Event(phase=phase, done=done, total=len(items)))

    def _pays(self, sources: Sequence[Source]) -> bool:
        """Whether worker processes would be done sooner: only for local files of known sizes."""
        sizes = [source.size_bytes for source in sources]
        enough = len(sizes) > 1 and sum(sizes) >= self.workers_from_bytes
        return enough and all(sizes) and all(scheme_of(source.path) == "file" for source in sources)

    def _here(
        self,
        items: Sequence[Item],
        source: Callable[[Item], Source],
        read: Callable[[Item], tuple[int, Loaded | None]],
        parse: Callable[[Sequence[tuple[Item, Loaded | None]]], Parsed],
        batch_bytes: int,
    ) -> Generator[tuple[int, Parsed], None, None]:
        """The number of files and the parsed value of each batch, in this process."""
        batch: list[tuple[Item, Loaded | None]] = []
        bytes_read = 0
        for item, (size_bytes, loaded) in self._read_ahead(items, source, read):
            batch.append((item, loaded))
            bytes_read += size_bytes
            if bytes_read >= batch_bytes or len(batch) >= _BATCH_FILES:
                yield len(batch), parse(batch)
                batch, bytes_read = [], 0
        if batch:
            yield len(batch), parse(batch)

    def _in_processes(
        self,
        items: Sequence[Item],
        source: Callable[[Item], Source],
        read: Callable[[Item], tuple[int, Loaded | None]],
        parse: Callable[[Sequence[tuple[Item, Loaded | None]]], Parsed],
        batch_bytes: int,
    ) -> Generator[tuple[int, Parsed], None, None]:
        """The number of files and the parsed value of each batch, split among worker processes."""
        from iceberg_cli.engines.process_pool import started

        sizes = [source(item).size_bytes for item in items]
        batches = _cut(items, sizes, min(batch_bytes, _WORKER_BATCH_BYTES), self.workers)

        def split(worker: int) -> Iterator[tuple[int, Parsed]]:
            for batch in batches[worker :: self.workers]:
                yield len(batch), parse([(item, read(item)[1]) for item in batch])

        with ExitStack() as stack:
            try:
                results = stack.enter_context(started(self.workers, split))
            except OSError:  # no room for more processes
                yield from self._here(items, source, read, parse, batch_bytes)
                return
            yield from results(len(batches))

    def _read_ahead(
        self,
        items: Sequence[Item],
        source: Callable[[Item], Source],
        read: Callable[[Item], tuple[int, Loaded | None]],
    ) -> Iterator[tuple[Item, tuple[int, Loaded | None]]]:
        """Items in their order with their files, read a bounded number of files and bytes ahead."""

        def read_all(some: Sequence[Item]) -> list[tuple[int, Loaded | None]]:
            return [read(item) for item in some]

        with ThreadPoolExecutor(self.threads) as pool:
            window: deque[tuple[Sequence[Item], int, Future[list[tuple[int, Loaded | None]]]]] = deque()
            ahead_bytes = 0
            try:
                for some, size_bytes in _handfuls(items, source):
                    while window and (
                        len(window) > 2 * self.threads or ahead_bytes + size_bytes > _AHEAD_BYTES
                    ):
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
    items: Sequence[Item], source: Callable[[Item], Source]
) -> Iterator[tuple[Sequence[Item], int]]:
    """Groups of items in their order, as many as one thread reads at once, with their size in bytes.

    Passing a small local file to a thread takes longer than reading it.
    """
    start = size_bytes = 0
    for index, item in enumerate(items):
        file = source(item)
        size_bytes += file.size_bytes
        full = index + 1 - start >= _HANDFUL_FILES or size_bytes >= _HANDFUL_BYTES
        if full or index + 1 == len(items) or scheme_of(file.path) != "file":
            yield items[start : index + 1], size_bytes
            start, size_bytes = index + 1, 0


def _cut(items: Sequence[Item], sizes: Sequence[int], batch_bytes: int, workers: int) -> list[Sequence[Item]]:
    """Batches of items in their order, at most about `batch_bytes` each, and about as many for each worker."""
    rounds = max(1, math.ceil(sum(sizes) / (batch_bytes * workers)))
    split = sum(sizes) / (rounds * workers)
    batches: list[Sequence[Item]] = []
    start = size_bytes = 0
    for index, size in enumerate(sizes):
        size_bytes += size
        full = size_bytes + size / 2 >= split * (len(batches) + 1)
        if full or index + 1 - start >= _BATCH_FILES or index + 1 == len(sizes):
            batches.append(items[start : index + 1])
            start = index + 1
    return batches


def engine_of(storage: Storage, *, local: bool) -> LocalEngine:
    """The local engine of a storage. Only local disks get workers: other storages' threads do not survive a fork."""
    if not local:
        return LocalEngine(storage, threads=_REMOTE_THREADS)
    # On other systems their own libraries may not be used after a fork.
    workers = min(len(os.sched_getaffinity(0)), _MOST_WORKERS) if sys.platform == "linux" else 1
    return LocalEngine(storage, threads=_LOCAL_THREADS, workers=workers)
