"""The files that are below a Delta table's folder: by a listing, by an inventory, or each by its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.text_values import times
from iceberg_cli.delta.spec.vacuum import STORED_FILES
from iceberg_cli.encoding.strict_json import loads_lines
from iceberg_cli.errors import CorruptFile, UsageError
from iceberg_cli.paths import path_key_column
from iceberg_cli.plan.events import Event, OnProgress
from iceberg_cli.storage import FileInfo, Storage

_LISTING: Final = "listing files"
_PAGE_FILES: Final = 1_000  # the page of a listing of S3
_SLICE_FILES: Final = 1 << 16  # as objects, before they are columns
_INVENTORY: Final = ("path", "length", "isDir", "modificationTime")
_PARQUET: Final = b"PAR1"
_PART_BYTES: Final = 4 << 20  # of JSON, which takes ten times as much memory as objects


def list_files(storage: Storage, root: str, on_event: OnProgress) -> pa.Table:
    """Every file below `root`, columns of `STORED_FILES`.

    Args:
        storage: of the files.
        root: the folder.
        on_event: progress.
    """
    return _columns(_counted(storage.list(root), on_event))


def _counted(files: Iterable[FileInfo], on_event: OnProgress) -> Iterator[FileInfo]:
    """The same files; how many there were so far is told."""
    done = 0
    on_event(Event(phase=_LISTING, done=0, total=None))
    for done, info in enumerate(files, 1):
        if done % _PAGE_FILES == 0:
            on_event(Event(phase=_LISTING, done=done, total=None))
        yield info
    on_event(Event(phase=_LISTING, done=done, total=done))


def _columns(files: Iterable[FileInfo]) -> pa.Table:
    batches = []
    paths: list[str] = []
    sizes: list[int] = []
    times: list[int] = []
    for info in files:
        paths.append(info.path)
        sizes.append(info.size_bytes)
        times.append(info.modified_ms)
        if len(paths) == _SLICE_FILES:
            batches.append(_batch(paths, sizes, times))
            paths, sizes, times = [], [], []
    batches.append(_batch(paths, sizes, times))
    return pa.Table.from_batches(batches)


def _batch(paths: list[str], sizes: list[int], times: list[int]) -> pa.RecordBatch:
    """Columns of n files, without those whose names are no text: the log cannot name them, so they are not ours."""
    try:
        names = pa.array(paths, pa.string())
    except UnicodeEncodeError:
        text = [not any("\ud800" <= character <= "\udfff" for character in path) for path in paths]
        sizes, times = list(compress(sizes, text)), list(compress(times, text))
        names = pa.array(list(compress(paths, text)), pa.string())
    return pa.RecordBatch.from_arrays(
        [names, pa.array(sizes, pa.int64()), pa.array(times, pa.int64())], schema=STORED_FILES
    )


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
    try:
        data = storage.read(path)
    except FileNotFoundError:
        raise UsageError(f"Cannot read the inventory {path}: no file is there") from None
    try:
        table = _read(data)
        missing = [name for name in _INVENTORY if name not in table.column_names]
        if missing:
            raise UsageError(
                f"Cannot use the inventory {path}: it has no {', '.join(missing)}",
                next_step=f"It needs the fields {', '.join(_INVENTORY)}.",
            )
        table = table.select(list(_INVENTORY))
        modified = table["modificationTime"]
        if pa.types.is_timestamp(modified.type):
            modified = modified.cast(pa.timestamp("ms", modified.type.tz), safe=False).cast(pa.int64())
        files = pa.table(
            {
                "path": table["path"],
                "size_bytes": table["length"],
                "modified_ms": modified,
                "is_dir": table["isDir"],
            }
        )
        folders = files["is_dir"].cast(pa.bool_())
        files = files.select(STORED_FILES.names).cast(STORED_FILES)
    except CorruptFile as corrupt:
        raise UsageError(f"Cannot use the inventory {path}: {corrupt.reason}") from corrupt
    except (pa.ArrowException, OSError, OverflowError) as error:
        raise UsageError(f"Cannot use the inventory {path}: {error}") from error
    if any(column.null_count for column in (*files.columns, folders)):
        raise UsageError(f"Cannot use the inventory {path}: a field of it is null")
    files = files.filter(pc.invert(folders))
    keys = pa.array([storage.canonical(name) for name in files["path"].to_pylist()], pa.string())
    return _each_once(files.set_column(0, "path", keys))


def _read(data: bytes) -> pa.Table:
    if data.startswith(_PARQUET):
        import pyarrow.parquet as pq

        return pq.read_table(pa.BufferReader(data))
    return pa.concat_tables([_rows(part) for part in _parts(data)])


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
    if any(isinstance(value, str) for value in values):
        moments = times(pa.array(values, pa.string()), pa.timestamp("us", "UTC"))
        return moments.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    return pa.array(values, pa.int64())


def _each_once(files: pa.Table) -> pa.Table:
    """Each path once, as it was written last."""
    if len(pc.unique(files["path"])) == files.num_rows:
        return files
    newest = files.group_by("path").aggregate([("size_bytes", "max"), ("modified_ms", "max")])
    return newest.rename_columns(["path", "size_bytes", "modified_ms"]).cast(STORED_FILES)
