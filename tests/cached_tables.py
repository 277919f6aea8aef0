"""Tables opened with the cache of immutable files, whose reads are counted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.formats.open import open_table
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.storage import FileInfo, Storage
from iceberg_cli.testing.iceberg_files import ADDED
from tests.hazard_tables import Hazard, entry

ROOM = 1 << 30


class Counted:
    """The storage, and which files were read through it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.read_paths: list[str] = []
        self.on_read: dict[str, Callable[[], object]] = {}
        self.unversioned = ""

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        self.read_paths.append(path)
        self.on_read.get(path, lambda: None)()
        return self._storage.read(path, span)

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:
        """Those of the storage, but without versions for files whose names begin with `unversioned`."""
        hidden = f"/{self.unversioned or '/'}"
        return [
            info._replace(version=None) if info and hidden in info.path[info.path.rindex("/") :] else info
            for info in self._storage.stat_many(paths, versions=versions)
        ]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def names(self, beginning: str) -> list[str]:
        """Of the files that were read."""
        return [name for path in self.read_paths if (name := path.rsplit("/", 1)[1]).startswith(beginning)]


def opened(location: str, cache: Path | None, *, room: int = ROOM) -> tuple[IcebergTable, Counted]:
    table = open_table(location, storage_options={}, on_event=lambda _: None)
    storage = Counted(table.storage)
    counted = dataclasses.replace(table, storage=storage, engine=LocalEngine(storage, threads=1))
    counted.look_through_links()
    if cache is not None:
        counted.use_cache(cache, limit_bytes=room)
    return counted, storage


def a_history(location: str) -> Hazard:
    """Nine snapshots: each adds two files and a manifest, and drops the oldest of five manifests."""
    table = Hazard(location=location)
    names: list[str] = []
    for number in range(1, 10):
        paths = table.data(f"a{number}", f"b{number}")
        names = [*names, table.manifest(f"m{number}", *(entry(ADDED, path) for path in paths))][-5:]
        table.snapshot(number, *names, parent=number - 1 or None)
    table.publish(main=9)
    return table
