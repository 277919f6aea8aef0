"""A storage in memory, for tests: the shortest correct one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from iceberg_cli.storage import FileInfo, Storage


class _Object(NamedTuple):
    data: bytes
    modified_ms: int
    version: str


class MemoryStorage(Storage):
    """Objects in memory, of any scheme, each under its literal path; shared by threads, not by processes."""

    def __init__(self) -> None:
        self._objects: dict[str, _Object] = {}
        self._writes = 0
        self._lock = threading.Lock()

    def canonical(self, path: str) -> str:
        """The path as it is."""
        return path

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        """The whole object, or a part of it."""
        if (found := self._objects.get(path)) is None:
            raise FileNotFoundError(path)
        return found.data if span is None else found.data[span[0] : sum(span)]

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:
        """Sizes, times and the numbers of the writes as versions."""
        found = [(path, self._objects.get(path)) for path in paths]
        return [
            each and FileInfo(path, len(each.data), each.modified_ms, each.version if versions else None)
            for path, each in found
        ]

    def list(self, folder: str) -> Iterator[FileInfo]:
        """Every object under the folder by path."""
        prefix = f"{folder.rstrip('/')}/"
        inside = sorted(path for path in self._objects if path.startswith(prefix))
        return (info for info in self.stat_many(inside) if info is not None)

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Create the object, or raise `FileExistsError`."""
        with self._lock:
            if path in self._objects:
                raise FileExistsError(path)
            self._write(path, data)

    def replace(self, path: str, data: bytes) -> None:
        """Replace the object, or create it."""
        with self._lock:
            self._write(path, data)

    def _write(self, path: str, data: bytes) -> None:
        self._writes += 1
        now_ms = time.time_ns() // 1_000_000  # noqa: TID251 - a storage has a clock
        self._objects[path] = _Object(data, now_ms, str(self._writes))

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete objects."""
        with self._lock:
            for path in paths:
                self._objects.pop(path, None)
        return {}
