"""The files that are in folders: by a listing, on disk where they are many; or each by its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.external_sort import Span, SpillFile
from iceberg_cli.encoding.transport import from_ipc, to_ipc
from iceberg_cli.paths import path_key_column
from iceberg_cli.plan.events import Event, OnProgress
from iceberg_cli.plan.listed_files import STORED_FILES
from iceberg_cli.storage import FileInfo, Storage

_LISTING: Final = "listing files"
_PAGE_FILES: Final = 1_000  # the page of a listing of S3
_SLICE_FILES: Final = 1 << 16  # as objects, before they are columns
_HELD_FILES: Final = 1 << 18  # of a listing in memory


@dataclass(kw_only=True)
class Listing:
    """Files that were found in folders; those of many are in a temporary file, and are read as often as is needed.

    Args:
        files: how many.
        size_bytes: of all.
    """

    files: int = 0
    size_bytes: int = 0
    _held: list[pa.Table] = field(default_factory=list)
    _spans: list[Span] = field(default_factory=list)
    _spill: SpillFile | None = None

    def add(self, files: pa.Table) -> None:
        """Add some, columns of `STORED_FILES`."""
        self._held.append(files)
        self.files += len(files)
        self.size_bytes += int(pc.sum(files["size_bytes"]).as_py() or 0)
        if sum(map(len, self._held)) > _HELD_FILES:
            self._spill = self._spill or SpillFile()
            self._spans += [self._spill.add(to_ipc(each)) for each in self._held]
            self._held.clear()

    def tables(self) -> Iterator[pa.Table]:
        """All of them, some at a time, in the order in which they were added."""
        for span in self._spans:
            assert self._spill is not None
            yield from_ipc(self._spill.read(span))
        yield from self._held


def list_files(storage: Storage, root: str, on_event: OnProgress) -> pa.Table:
    """Every file below `root`, columns of `STORED_FILES`.

    Args:
        storage: of the files.
        root: the folder.
        on_event: progress.
    """
    return pa.concat_tables([STORED_FILES.empty_table(), *listed_in(storage, [root], on_event)])


def listed_in(storage: Storage, folders: Sequence[str], on_event: OnProgress) -> Iterator[pa.Table]:
    """Every file below some folders, some at a time, columns of `STORED_FILES`.

    Args:
        storage: of the files.
        folders: of which none is inside another one.
        on_event: progress.

    Raises:
        BackendUnavailable: a folder cannot be listed to its end.
    """
    files = (info for folder in folders for info in storage.list(folder))
    paths: list[str] = []
    sizes: list[int] = []
    times: list[int] = []
    for info in _counted(files, on_event):
        paths.append(info.path)
        sizes.append(info.size_bytes)
        times.append(info.modified_ms)
        if len(paths) == _SLICE_FILES:
            yield _table(paths, sizes, times)
            paths, sizes, times = [], [], []
    if paths:
        yield _table(paths, sizes, times)


def _counted(files: Iterable[FileInfo], on_event: OnProgress) -> Iterator[FileInfo]:
    """The same files; how many there were so far is told."""
    done = 0
    on_event(Event(phase=_LISTING, done=0, total=None))
    for done, info in enumerate(files, 1):
        if done % _PAGE_FILES == 0:
            on_event(Event(phase=_LISTING, done=done, total=None))
        yield info
    on_event(Event(phase=_LISTING, done=done, total=done))


def _table(paths: list[str], sizes: list[int], times: list[int]) -> pa.Table:
    """Columns of n files, without those whose names are no text: no table can name them, so they are not ours."""
    try:
        names = pa.array(paths, pa.string())
    except UnicodeEncodeError:
        text = [not any("\ud800" <= character <= "\udfff" for character in path) for path in paths]
        sizes, times = list(compress(sizes, text)), list(compress(times, text))
        names = pa.array(list(compress(paths, text)), pa.string())
    return pa.table([names, pa.array(sizes, pa.int64()), pa.array(times, pa.int64())], schema=STORED_FILES)


def find_files(storage: Storage, paths: pa.Array) -> pa.Table:
    """Those of n files that are there, columns of `STORED_FILES`."""
    keys = paths.to_pylist()
    if not pc.all(pc.starts_with(paths, "/")).as_py() or not path_key_column(paths).equals(paths):
        keys = [storage.canonical(path) for path in keys]
    infos = zip(keys, storage.stat_many(keys), strict=True)
    there = [(key, info.size_bytes, info.modified_ms) for key, info in infos if info is not None]
    columns = zip(*there, strict=True) if there else ((), (), ())
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, STORED_FILES, strict=True)],
        schema=STORED_FILES,
    )
