"""The files of removals: parts in a temporary file where they are many, and what is saved beside a plan."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain

import pyarrow as pa

from iceberg_cli.encoding.external_sort import SpillFile
from iceberg_cli.plan.events import Event, OnProgress, unheard
from iceberg_cli.plan.removal_rows import KINDS, from_parquet, sort_for_deletion, to_parquet
from iceberg_cli.plan.removals import MEMORY_ROWS, PART_ROWS, RemovalPart, Removals

_INDEX = "_index.json"  # readers of Parquet datasets take no notice of such a name


def collect_removals(tables: Iterable[pa.Table]) -> Removals:
    """Removals whose rows come table by table, each path once.

    Args:
        tables: one, with rows in any order; or several that are in delete order one after the other, within each in
            any order. Of several, no more is in memory at once than a part has.
    """
    waiting = iter(tables)
    first: list[pa.Table] = []
    for table in waiting:
        first.append(table)
        if len(first) > 1 and sum(map(len, first)) > PART_ROWS:
            break
    else:
        return Removals.of(pa.concat_tables(first))
    return Removals(tuple(_parts_on_disk(chain(first, waiting))))


def in_files(removals: Removals) -> Removals:
    """The same removals, to be written: one Parquet file in memory where they are few, else parts on disk."""
    if all(part.file for part in removals.parts):
        return removals
    if len(removals.parts) == 1 and removals.count <= MEMORY_ROWS:
        (part,) = removals.parts
        data = to_parquet(part.read())
        return Removals((part.in_file(data, lambda: data, in_memory=True),))
    return Removals(tuple(_parts_on_disk(part.read() for part in removals.parts)))


def _parts_on_disk(tables: Iterable[pa.Table]) -> Iterator[RemovalPart]:
    """Tables that are in delete order one after the other, as parts."""
    spill = SpillFile()
    last = ("", -1, "")
    for table in tables:
        if not table.num_rows:
            continue
        rows = sort_for_deletion(table)
        if _sort_key(rows, 0) < last:
            raise AssertionError("removals come in another order than files are to be deleted in")
        last = _sort_key(rows, rows.num_rows - 1)
        for start in range(0, rows.num_rows, PART_ROWS):
            part = RemovalPart.of(rows.slice(start, PART_ROWS))
            data = to_parquet(part.read())
            yield part.in_file(data, partial(spill.read, spill.add(data)), in_memory=False)


def _sort_key(rows: pa.Table, row: int) -> tuple[str, int, str]:
    """Step, kind and path of a row."""
    step, kind, path = (rows[name][row].as_py() for name in ("step", "kind", "path"))
    return step, KINDS.index(kind), path


# -- beside a plan -----------------------------------------------------------------------------------------------------


def write_parts(removals: Removals, put: Callable[[str, bytes], None], on_event: OnProgress) -> None:
    """Write the files of removals, by their names, the main one last.

    Args:
        removals: see `in_files`.
        put: writes a file.
        on_event: progress, where there are several.
    """
    total, done, main = len(removals.parts), 0, removals.file

    def counted(name: str, data: bytes) -> None:
        nonlocal done
        put(name, data)
        if name != main:
            done += 1
            on_event(Event(phase="writing the list of files", done=done, total=total, unit="parts"))

    removals.write(counted)


def save_beside(removals: Removals, path: str, on_event: OnProgress = unheard) -> None:
    """Write removals; those of an earlier plan are replaced.

    One Parquet file, or a folder of them where they are many.

    Args:
        removals: of a plan.
        path: of the file or folder.
        on_event: progress.

    Raises:
        OSError: it cannot be written.
    """
    stored = in_files(removals)
    if os.path.isdir(path):
        _remove_parts(path)
    if len(stored.parts) == 1:
        stored.write(lambda _, data: write_file(path, data))
        return
    if os.path.isfile(path):
        os.remove(path)
    os.makedirs(path, exist_ok=True)
    main = stored.file
    write_parts(
        stored, lambda name, data: write_file(f"{path}/{_INDEX if name == main else name}", data), on_event
    )


def load_beside(path: str) -> Removals:
    """Removals that `save_beside` wrote.

    Raises:
        OSError: they are not there. CorruptFile: they are not as they were written.
    """

    def read(name: str) -> bytes:
        with open(f"{path}/{name}" if name else path, "rb") as file:
            return file.read()

    if os.path.isdir(path):
        return Removals.from_index(read(_INDEX), read, path, path=f"{path}/{_INDEX}")
    return Removals.in_memory(from_parquet(read(""), path))


def write_file(path: str, data: bytes) -> None:
    """Write a file, durably; an existing one is replaced.

    Raises:
        OSError: it cannot be written.
    """
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _remove_parts(folder: str) -> None:
    """Remove the files that `save_beside` wrote there for another plan, and nothing else."""
    for name in [_INDEX, *glob.glob("removals-*.parquet", root_dir=folder)]:
        if os.path.lexists(f"{folder}/{name}"):
            os.remove(f"{folder}/{name}")
    if not os.listdir(folder):
        os.rmdir(folder)
