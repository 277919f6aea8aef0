"""The local engine: threads over the storage port, parsing in the calling thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from iceberg_cli.engines import Event, Item, OnEvent, Parsed
from iceberg_cli.errors import CorruptFile
from iceberg_cli.storage import Storage

# Wide enough that the columnar decoder has many blocks to work on, small enough for 400 MB of memory.
_BATCH_BYTES = 16 << 20
_BATCH_FILES = 1_024


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Reads with `threads` threads, at most `threads` files ahead of the parser."""

    storage: Storage
    threads: int = 4
    name: str = "local"

    def scan(
        self,
        items: Sequence[Item],
        path_of: Callable[[Item], str],
        parse: Callable[[Sequence[tuple[Item, bytes | None]]], Parsed],
        *,
        phase: str,
        missing_ok: bool = False,
        on_event: OnEvent,
    ) -> Iterator[Parsed]:
        """See `Engine.scan`."""
        batch: list[tuple[Item, bytes | None]] = []
        size_bytes = done = 0
        for item, data in self._read_ahead(items, path_of, missing_ok=missing_ok):
            batch.append((item, data))
            size_bytes += len(data or b"")
            done += 1
            if size_bytes >= _BATCH_BYTES or len(batch) >= _BATCH_FILES:
                yield parse(batch)
                batch, size_bytes = [], 0
                on_event(Event(phase=phase, done=done, total=len(items)))
        if batch:
            yield parse(batch)
        on_event(Event(phase=phase, done=done, total=len(items)))

    def _read_ahead(
        self, items: Sequence[Item], path_of: Callable[[Item], str], *, missing_ok: bool
    ) -> Iterator[tuple[Item, bytes | None]]:
        def read(item: Item) -> bytes | None:
            try:
                return self.storage.read(path_of(item))
            except FileNotFoundError:
                if missing_ok:
                    return None
                raise CorruptFile(
                    path_of(item), None, "the table needs this file and it is not there"
                ) from None

        with ThreadPoolExecutor(self.threads) as pool:
            window: deque[tuple[Item, Future[bytes | None]]] = deque()
            try:
                for item in items:
                    window.append((item, pool.submit(read, item)))
                    if len(window) > 2 * self.threads:
                        first, future = window.popleft()
                        yield first, future.result()
                while window:
                    first, future = window.popleft()
                    yield first, future.result()
            finally:
                for _, future in window:
                    future.cancel()

    def build(self, jobs: Sequence[tuple[str, Callable[[], bytes]]]) -> None:
        """See `Engine.build`."""
        with ThreadPoolExecutor(self.threads) as pool:
            for future in [pool.submit(self._put, path, make) for path, make in jobs]:
                future.result()

    def _put(self, path: str, make: Callable[[], bytes]) -> None:
        self.storage.put_if_absent(path, make())
