"""The local engine: threads read and inflate over the storage port, the calling thread parses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from iceberg_cli.engines import Event, Item, Loaded, OnEvent, Parsed, Source
from iceberg_cli.errors import CorruptFile
from iceberg_cli.storage import Storage

# Wide enough that the columnar decoder has many blocks to work on, small enough for 400 MB of memory.
_BATCH_BYTES = 16 << 20
_BATCH_FILES = 1_024
_AHEAD_BYTES = 16 << 20  # stored: about as much as a batch, so that the readers work while it is parsed


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Reads and loads in `threads` threads, a bounded number of files and bytes ahead of the parser."""

    storage: Storage
    threads: int = 4
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

        batch: list[tuple[Item, Loaded | None]] = []
        batch_bytes = done = 0
        for item, (size_bytes, loaded) in self._read_ahead(items, source, read):
            batch.append((item, loaded))
            batch_bytes += size_bytes
            done += 1
            if batch_bytes >= _BATCH_BYTES or len(batch) >= _BATCH_FILES:
                yield parse(batch)
                batch, batch_bytes = [], 0
                on_event(Event(phase=phase, done=done, total=len(items)))
        if batch:
            yield parse(batch)
        on_event(Event(phase=phase, done=done, total=len(items)))

    def _read_ahead(
        self,
        items: Sequence[Item],
        source: Callable[[Item], Source],
        read: Callable[[Item], tuple[int, Loaded | None]],
    ) -> Iterator[tuple[Item, tuple[int, Loaded | None]]]:
        """Items in their order with what was read, a bounded number of files and bytes ahead."""
        with ThreadPoolExecutor(self.threads) as pool:
            window: deque[tuple[Item, int, Future[tuple[int, Loaded | None]]]] = deque()
            ahead_bytes = 0
            try:
                for item in items:
                    size_bytes = source(item).size_bytes
                    while window and (
                        len(window) > 2 * self.threads or ahead_bytes + size_bytes > _AHEAD_BYTES
                    ):
                        first, first_bytes, future = window.popleft()
                        yield first, future.result()
                        ahead_bytes -= first_bytes
                    window.append((item, size_bytes, pool.submit(read, item)))
                    ahead_bytes += size_bytes
                while window:
                    first, _, future = window.popleft()
                    yield first, future.result()
            finally:
                for _, _, future in window:
                    future.cancel()

    def build(self, jobs: Sequence[tuple[str, Callable[[], bytes]]]) -> None:
        """See `Engine.build`."""
        with ThreadPoolExecutor(self.threads) as pool:
            for future in [pool.submit(self._put, path, make) for path, make in jobs]:
                future.result()

    def _put(self, path: str, make: Callable[[], bytes]) -> None:
        self.storage.put_if_absent(path, make())
