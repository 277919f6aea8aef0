"""A storage whose writes on Spark's workers wait at a gate, so that a test can act while one is in flight.

A plug-in for the scheme `gate`: `gate:/a/b` is the local file `/a/b`. The first new file that a task of Spark brings is
held, in each attempt to write it; others pass. It runs by itself on workers, where the tests are not.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from iceberg_cli.storage import FileInfo, Storage
from iceberg_cli.storage.local import LocalStorage

SCHEME = "gate:"
LIMIT_S = 120
OPTION = "gate.folder"  # what happens at the gate is told by files there


class GatedStorage(Storage):
    """Local files; `gate` holds `held`, whose content is a file's name, `NAME@PROCESS` for each attempt to write it,
    `NAME@PROCESS=created` or `=exists` for what came of it, and `open` once the test lets them go on.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._local = LocalStorage()
        self._gate = Path(options[OPTION]) if OPTION in options else None

    def canonical(self, path: str) -> str:
        return SCHEME + self._local.canonical(_below(path))

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        return self._local.read(_below(path), span)

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:
        infos = self._local.stat_many([_below(path) for path in paths], versions=versions)
        return [None if info is None else _above(info) for info in infos]

    def put_if_absent(self, path: str, data: bytes) -> None:
        if self._gate is None or not _in_a_task():
            self._local.put_if_absent(_below(path), data)
            return
        name = path.rpartition("/")[2]
        attempt = self._gate / f"{name}@{os.getpid()}"
        self._wait(name, attempt)
        outcome = "exists"
        try:
            self._local.put_if_absent(_below(path), data)
            outcome = "created"
        finally:
            attempt.with_name(f"{attempt.name}={outcome}").touch()

    def _wait(self, name: str, attempt: Path) -> None:
        assert self._gate is not None
        with contextlib.suppress(FileExistsError):
            self._local.put_if_absent(str(self._gate / "held"), name.encode())
        if (self._gate / "held").read_text() == name:
            attempt.touch()
            until = time.monotonic() + LIMIT_S
            while not (self._gate / "open").exists() and time.monotonic() < until:
                time.sleep(0.02)

    def replace(self, path: str, data: bytes) -> None:
        self._local.replace(_below(path), data)

    def list(self, folder: str) -> Iterator[FileInfo]:
        return map(_above, self._local.list(_below(folder)))

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        kept = self._local.delete([_below(path) for path in paths])
        return {SCHEME + path: reason for path, reason in kept.items()}

    def prune(self, folder: str) -> None:
        self._local.prune(_below(folder))


def _below(path: str) -> str:
    return path.removeprefix(SCHEME)


def _above(info: FileInfo) -> FileInfo:
    return info._replace(path=SCHEME + info.path)


def _in_a_task() -> bool:
    from pyspark import TaskContext

    return TaskContext.get() is not None
