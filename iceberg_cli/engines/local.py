"""The local engine: threads read and inflate, the calling thread parses; large scans do so in several processes."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from iceberg_cli.encoding.external_sort import Span, SpillFile
from iceberg_cli.engines import (
    BuiltFile,
    Event,
    FileParts,
    Item,
    Loaded,
    OnEvent,
    Parsed,
    Scan,
    ShuffleStage,
    Source,
    TaskEnd,
)
from iceberg_cli.engines.read_ahead import read_ahead
from iceberg_cli.errors import CorruptFile
from iceberg_cli.paths import scheme_of
from iceberg_cli.storage import Storage, put_checked

_LOCAL_THREADS = 4
_REMOTE_THREADS = 64
_MOST_WORKERS = 2  # each takes some 100 MB while it decodes
_BATCH_FILES = 1_024
_HELD_BYTES = 64 << 20  # of what a shuffle takes to its buckets
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

    @property
    def is_distributed(self) -> bool:
        """False: everything is on this machine."""
        return False

    def scan(
        self, scan: Scan[Item, Loaded, Parsed], items: Sequence[Item], *, on_event: OnEvent
    ) -> Iterator[Parsed]:
        """See `Engine.scan`."""
        # Closes the display of the phase before, whose thread must be gone before workers are forked.
        on_event(Event(phase=scan.phase, done=0, total=len(items)))
        if self.workers > 1 and self._pays([scan.source(item) for item in items]):
            batches = self._in_processes(scan, items)
        else:
            batches = self._in_threads(scan, items)
        done = 0
        with closing(batches):
            for files, parsed in batches:
                yield parsed
                done += files
                on_event(Event(phase=scan.phase, done=done, total=len(items)))

    def shuffle(
        self,
        scan: Scan[Item, Loaded, Mapping[int, bytes]],
        stages: Sequence[ShuffleStage],
        items: Sequence[Item],
        *,
        on_event: OnEvent,
    ) -> Iterator[Any]:
        """See `Engine.shuffle`. What is in the buckets is in memory while it is little, else in a temporary file."""
        buckets = BucketContents()
        for parsed in self.scan(scan, items, on_event=on_event):
            buckets.add(parsed)
        *before, last = stages
        for stage in before:
            combined = BucketContents()
            for index, contents in buckets.take():
                combined.add(stage.combine(index, contents))
            buckets = combined
        for index, contents in buckets.take():
            yield result_of(last.combine(index, contents), self.storage)

    def run(
        self,
        task: Callable[[Item], Parsed],
        items: Sequence[Item],
        *,
        may_begin: Callable[[], bool],
        processes: int,
    ) -> Generator[TaskEnd[Parsed] | None, None, None]:
        """See `Engine.run`."""
        from iceberg_cli.engines.task_pool import run_in_processes, run_in_threads

        workers = min(processes, len(items))
        if workers < 2:
            return run_in_threads(task, items, may_begin=may_begin, workers=1)
        side_by_side = run_in_processes if self.workers > 1 else run_in_threads
        return side_by_side(task, items, may_begin=may_begin, workers=workers)

    def _read(self, scan: Scan[Item, Loaded, Any], item: Item) -> tuple[int, Loaded | None]:
        """A file's size in bytes, and what is loaded of it; None where it is gone."""
        source = scan.source(item)
        path = source.path
        # Damaged metadata can hold an empty path: what is loaded of no bytes says which file that is.
        if not path:
            return source.size_bytes, scan.load(item, b"")
        try:
            if scan.in_parts:
                size_bytes = source.size_bytes or self.storage.stat(path).size_bytes
                parts = FileParts(
                    path, size_bytes, lambda offset, length: self.storage.read(path, (offset, length))
                )
                loaded = scan.load(item, parts)
                return parts.bytes_read, loaded
            data = self.storage.read(path)
        except FileNotFoundError:
            if scan.missing_ok:
                return 0, None
            raise CorruptFile(path, None, "the table needs this file and it is not there") from None
        return len(data), scan.load(item, data)

    def _pays(self, sources: Sequence[Source]) -> bool:
        """Whether worker processes would be done sooner: only for local files of known sizes."""
        sizes = [source.size_bytes for source in sources]
        enough = len(sizes) > 1 and sum(sizes) >= self.workers_from_bytes
        return (
            enough
            and all(sizes)
            and all(source.path and scheme_of(source.path) == "file" for source in sources)
        )

    def _in_threads(
        self, scan: Scan[Item, Loaded, Parsed], items: Sequence[Item]
    ) -> Generator[tuple[int, Parsed], None, None]:
        """The number of files and the parsed value of each batch, in this process."""
        batch: list[tuple[Item, Loaded | None]] = []
        bytes_read = 0
        read: Callable[[Item], tuple[int, Loaded | None]] = partial(self._read, scan)
        for item, (size_bytes, loaded) in read_ahead(items, scan.source, read, threads=self.threads):
            batch.append((item, loaded))
            bytes_read += size_bytes
            if bytes_read >= scan.batch_bytes or len(batch) >= _BATCH_FILES:
                yield len(batch), scan.parse(batch)
                batch, bytes_read = [], 0
        if batch:
            yield len(batch), scan.parse(batch)

    def _in_processes(
        self, scan: Scan[Item, Loaded, Parsed], items: Sequence[Item]
    ) -> Generator[tuple[int, Parsed], None, None]:
        """The number of files and the parsed value of each batch, split among worker processes."""
        from iceberg_cli.engines.process_pool import started

        sizes = [scan.source(item).size_bytes for item in items]
        batches = _cut(items, sizes, min(scan.batch_bytes, _WORKER_BATCH_BYTES), self.workers)

        def split(worker: int) -> Iterator[tuple[int, Parsed]]:
            for batch in batches[worker :: self.workers]:
                yield len(batch), scan.parse([(item, self._read(scan, item)[1]) for item in batch])

        with ExitStack() as stack:
            try:
                results = stack.enter_context(started(self.workers, split))
            except OSError:  # no room for more processes
                yield from self._in_threads(scan, items)
                return
            yield from results(len(batches))


class BucketContents:
    """The contents of a shuffle's buckets: in memory while they are few bytes, else in a temporary file."""

    def __init__(self) -> None:
        self._size_bytes = 0
        self._contents: dict[int, list[bytes]] = {}
        self._spilled: dict[int, list[Span]] = {}
        self._file: SpillFile | None = None

    def add(self, contents: Mapping[int, bytes]) -> None:
        """Add contents of some buckets."""
        for index, data in contents.items():
            self._contents.setdefault(index, []).append(data)
            self._size_bytes += len(data)
        if self._size_bytes > _HELD_BYTES:
            self._spill()

    def take(self) -> Iterator[tuple[int, list[bytes]]]:
        """Each bucket that is not empty and its contents, by their index; they are dropped here."""
        for index in sorted(self._contents.keys() | self._spilled.keys()):
            spilled = self._spilled.pop(index, ())
            contents = self._contents.pop(index, [])
            yield index, [*(self._file.read(place) for place in spilled if self._file), *contents]

    def _spill(self) -> None:
        self._file = self._file or SpillFile()
        for index, contents in self._contents.items():
            self._spilled.setdefault(index, []).extend(map(self._file.add, contents))
        self._contents.clear()
        self._size_bytes = 0


def result_of(combined: Any, storage: Storage) -> Any:
    """What the caller of a shuffle gets for what its last stage returned: a `BuiltFile` is written first."""
    if not isinstance(combined, BuiltFile):
        return combined
    put_checked(storage, combined.path, combined.data)
    return combined.result


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


def engine_of(storage: Storage, *, local: bool, forks: bool = True) -> LocalEngine:
    """The local engine of a storage. Only local disks get workers: other storages' threads do not survive a fork.

    Args:
        storage: of the files.
        local: whether it is a local disk.
        forks: whether processes may be forked at all.
    """
    if not local:
        return LocalEngine(storage, threads=_REMOTE_THREADS)
    # On other systems their own libraries may not be used after a fork.
    workers = min(len(os.sched_getaffinity(0)), _MOST_WORKERS) if forks and sys.platform == "linux" else 1
    return LocalEngine(storage, threads=_LOCAL_THREADS, workers=workers)
