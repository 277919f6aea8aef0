"""The files that are in folders: by a listing or an inventory, on disk where they are many; or each by its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import compress
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.external_sort import Span, SpillFile
from iceberg_cli.encoding.strict_json import loads_lines
from iceberg_cli.encoding.transport import from_ipc, to_ipc
from iceberg_cli.errors import CorruptFile, UsageError
from iceberg_cli.paths import path_key_column
from iceberg_cli.plan.events import Event, OnProgress
from iceberg_cli.plan.listed_files import STORED_FILES
from iceberg_cli.storage import FileInfo, Storage

_LISTING: Final = "listing files"
_PAGE_FILES: Final = 1_000  # the page of a listing of S3
_SLICE_FILES: Final = 1 << 16  # as objects, before they are columns
_HELD_FILES: Final = 1 << 18  # of a listing in memory
_INVENTORY: Final = ("path", "length", "isDir", "modificationTime")
_PARQUET: Final = b"PAR1"
_PART_BYTES: Final = 4 << 20  # of JSON, which takes ten times as much memory as objects
_INSTANT: Final = pa.timestamp("us", "UTC")


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


def read_inventory(storage: Storage, path: str) -> pa.Table:
    """The files of an inventory, columns of `STORED_FILES`, each once; folders are left out.

    Args:
        storage: where the inventory is, and the files.
        path: a Parquet file or one of JSON lines with the fields `path` (with scheme, or absolute), `length` (bytes),
            `isDir` and `modificationTime` (ms since the epoch, or a timestamp).

    Raises:
        UsageError: the file is not there, or not of this form.
    """
    return _each_once(pa.concat_tables([STORED_FILES.empty_table(), *inventory_of(storage, path)]))


def inventory_of(storage: Storage, path: str) -> Iterator[pa.Table]:
    """The same, some files at a time; one that is listed twice comes twice."""
    try:
        data = storage.read(path)
    except FileNotFoundError:
        raise UsageError(f"Cannot read the inventory {path}: no file is there") from None
    try:
        for rows in _inventory_rows(data):
            yield _inventory_files(storage, path, rows)
    except CorruptFile as corrupt:
        raise UsageError(f"Cannot use the inventory {path}: {corrupt.reason}") from corrupt
    except (pa.ArrowException, OSError, OverflowError) as error:
        raise UsageError(f"Cannot use the inventory {path}: {error}") from error


def _inventory_files(storage: Storage, path: str, rows: pa.Table) -> pa.Table:
    missing = [name for name in _INVENTORY if name not in rows.column_names]
    if missing:
        raise UsageError(
            f"Cannot use the inventory {path}: it has no {', '.join(missing)}",
            next_step=f"It needs the fields {', '.join(_INVENTORY)}.",
        )
    modified = rows["modificationTime"]
    if pa.types.is_timestamp(modified.type):
        modified = modified.cast(pa.timestamp("ms", modified.type.tz), safe=False).cast(pa.int64())
    columns = {"path": rows["path"], "size_bytes": rows["length"], "modified_ms": modified}
    files, folders = pa.table(columns).cast(STORED_FILES), rows["isDir"].cast(pa.bool_())
    if any(column.null_count for column in (*files.columns, folders)):
        raise UsageError(f"Cannot use the inventory {path}: a field of it is null")
    files = files.filter(pc.invert(folders))
    keys = pa.array([storage.canonical(name) for name in files["path"].to_pylist()], pa.string())
    return files.set_column(0, "path", keys)


def _inventory_rows(data: bytes) -> Iterator[pa.Table]:
    """Row groups of a Parquet file, or some lines of JSON at a time."""
    if not data.startswith(_PARQUET):
        yield from map(_rows, _parts(data))
        return
    import pyarrow.parquet as pq

    opened = pq.ParquetFile(pa.BufferReader(data))
    columns = [name for name in _INVENTORY if name in opened.schema_arrow.names]
    for batch in opened.iter_batches(_SLICE_FILES, columns=columns):
        yield pa.Table.from_batches([batch])
    if not opened.metadata.num_rows:
        yield opened.schema_arrow.empty_table()


def _parts(data: bytes) -> Iterable[bytes]:
    """Whole lines, a few MB at a time."""
    start = 0
    while True:
        end = data.find(b"\n", start + _PART_BYTES) + 1 or len(data)
        yield data[start:end]
        if end == len(data):
            return
        start = end


def _rows(lines: bytes) -> pa.Table:
    """The columns of an inventory, null where a line lacks one; not by Arrow, which dies of a line `null`."""
    rows = loads_lines(lines, "").values
    columns = [[row.get(name) for row in rows] for name in _INVENTORY]
    path, size, is_dir = (
        pa.array(column, kind)
        for column, kind in zip(columns, (pa.string(), pa.int64(), pa.bool_()), strict=False)
    )
    return pa.table([path, size, is_dir, _milliseconds(columns[-1])], names=list(_INVENTORY))


def _milliseconds(values: Sequence[Any]) -> pa.Array:
    """Times as numbers; those that are texts are in UTC where they say no zone."""
    if not any(isinstance(value, str) for value in values):
        return pa.array(values, pa.int64())
    texts = pa.array(values, pa.string())
    # Arrow wants a zone in all texts of a zoned type, or in none of a local one.
    for read_as in (_INSTANT, pa.timestamp("us")):
        try:
            return (
                texts.cast(read_as)
                .cast(_INSTANT)
                .cast(pa.timestamp("ms", "UTC"), safe=False)
                .cast(pa.int64())
            )
        except pa.ArrowInvalid:
            pass
    return pa.array([None if text is None else _instant_ms(text) for text in values], pa.int64())


def _instant_ms(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise pa.ArrowInvalid(f"{text!r} is no time") from error
    zoned = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return int(zoned.timestamp() * 1_000)


def _each_once(files: pa.Table) -> pa.Table:
    """Each path once, as it was written last."""
    if len(pc.unique(files["path"])) == files.num_rows:
        return files
    newest = files.group_by("path").aggregate([("size_bytes", "max"), ("modified_ms", "max")])
    return newest.rename_columns(["path", "size_bytes", "modified_ms"]).cast(STORED_FILES)
