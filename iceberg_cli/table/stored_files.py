"""Looks at the stored files of a checked table: sizes, rows and content against what the table says of them.

Files whose storage does not answer are findings: a check goes on without them, and is complete for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from iceberg_cli.encoding.parquet import (
    PARQUET_TAIL_BYTES,
    UnknownRowCount,
    parquet_footer_bytes,
    parquet_rows,
)
from iceberg_cli.engines import Event, Scan, Source
from iceberg_cli.errors import BackendUnavailable, CorruptFile, UsageError
from iceberg_cli.plan.findings import UNANSWERED, Findings, Ints
from iceberg_cli.storage import FileInfo, Storage
from iceberg_cli.table.table import OpenTable

Item = TypeVar("Item")
Answer = TypeVar("Answer")

GONE: Final = -1
OUT_OF_REACH: Final = -2
_THREADS: Final = 16
_AT_ONCE: Final = 4_096


def stored_sizes(storage: Storage, paths: Sequence[str], findings: Findings, *, root: str) -> Ints:
    """Size in bytes of each of n files, in their order, or `GONE`.

    `OUT_OF_REACH` are those that have no storage here or whose storage does not answer; see `within_reach`.
    """
    sizes: Ints = np.full(len(paths), OUT_OF_REACH, np.int64)

    def ask(indices: Sequence[int]) -> tuple[Sequence[int], Ints]:
        return indices, _sizes(storage.stat_many([paths[index] for index in indices]))

    for indices, found in within_reach(range(len(paths)), paths.__getitem__, ask, findings, root=root):
        sizes[indices] = found
    return sizes


def within_reach(
    items: Sequence[Item],
    path_of: Callable[[Item], str],
    ask: Callable[[Sequence[Item]], Answer],
    findings: Findings,
    *,
    root: str,
) -> list[Answer]:
    """Answers for all items, or for parts of them without those that are out of reach, which are findings.

    Args:
        items: n of them, each of one file.
        path_of: the file of an item.
        ask: answers for some items, and changes nothing.
        findings: takes what is out of reach.
        root: the table's location. Files below it have calls of their own, as has each other disk, bucket or host.
    """
    if not items:
        return []
    try:
        return [ask(items)]
    except (BackendUnavailable, UsageError):
        pass
    by_store: dict[str, list[Item]] = {}
    for item in items:
        by_store.setdefault(_store_of(path_of(item), root), []).append(item)
    answers: list[Answer] = []
    for own in by_store.values():
        answers += _halved(own, path_of, ask, findings)
    return answers


def _halved(
    items: Sequence[Item],
    path_of: Callable[[Item], str],
    ask: Callable[[Sequence[Item]], Answer],
    findings: Findings,
) -> list[Answer]:
    """Answers for the items of one disk, bucket or host: a part that fails is halved, until a file is alone."""
    answers: list[Answer] = []
    failures_left = (
        2 * len(items).bit_length()
    )  # enough for two files alone, and an end where nothing answers
    parts = [items]
    while parts:
        part = parts.pop()
        try:
            answers.append(ask(part))
        except UsageError as error:
            findings.add("file-out-of-reach", path_of(part[0]), error.message, times=len(part))
        except BackendUnavailable as error:
            failures_left -= 1
            middle = len(part) // 2
            if middle and failures_left > 0:
                parts += [part[middle:], part[:middle]]
            else:
                others = f" nor were {len(part) - 1:,} others there" if middle else ""
                message = f"it was not looked at{others}: {error.message}"
                findings.add(UNANSWERED, path_of(part[0]), message, times=len(part))
    return answers


def _store_of(path: str, root: str) -> str:
    """Empty for paths below the table's location, else the disk, bucket or host of a path."""
    if path.startswith(f"{root}/"):
        return ""
    scheme, mark, rest = path.partition("://")
    return f"{scheme}{mark}{rest.partition('/')[0]}" if mark else "/"


def _sizes(infos: Sequence[FileInfo | None]) -> Ints:
    return np.array([GONE if info is None else info.size_bytes for info in infos], np.int64)


def true_sizes(table: OpenTable, paths: Sequence[str], stated: Sequence[int]) -> tuple[list[int], list[str]]:
    """The sizes in bytes that n files have, where that can be told, and a warning about those of another than stated.

    A reader that looks for the end of a file where the table says it is finds none in these.

    Args:
        table: whose files.
        paths: of the files.
        stated: by the table.
    """
    try:
        infos = table.storage.stat_many(paths)
    except (UsageError, BackendUnavailable):  # whoever reads the files tells
        return list(stated), []
    sizes = [size if info is None else info.size_bytes for info, size in zip(infos, stated, strict=True)]
    other = [place for place, size in enumerate(sizes) if size != stated[place]]
    if not other:
        return sizes, []
    first, more = other[0], f", and {len(other) - 1:,} more like it" if len(other) > 1 else ""
    words = (
        f"{paths[first]} has {sizes[first]:,} bytes, and the table says {stated[first]:,}{more}: it is read to its "
        "true end; other readers may fail"
    )
    return sizes, [words]


def check_sizes(
    paths: pa.Array, stated: Ints, stored: Ints, findings: Findings, *, gone: str, source: str
) -> None:
    """Compare sizes in bytes of n files with what the table says.

    Args:
        paths: of the files.
        stated: by the table.
        stored: see `stored_sizes`.
        findings: to add to.
        gone: the message where a file is not there.
        source: what says the size, and the verb.
    """
    findings.add_rows("file-missing", stored == GONE, lambda row: (paths[row].as_py(), gone))
    findings.add_rows(
        "file-size-differs",
        (stored >= 0) & (stored != stated),
        lambda row: (paths[row].as_py(), f"the file has {stored[row]} bytes, {source} {stated[row]}"),
    )


def check_row_counts(
    table: OpenTable,
    paths: pa.Array,
    sizes: Ints,
    stated: Ints,
    findings: Findings,
    *,
    source: str,
    unstated: int | None = None,
) -> Ints:
    """Compare the row counts of n Parquet files by their footers with what the table says, but for encrypted ones.

    Args:
        table: whose files.
        paths: of files that are there.
        sizes: of these, in bytes.
        stated: the rows by the table.
        findings: to add to.
        source: what says the number of rows, and the verb.
        unstated: the number that stands where the table does not say; None where it always does.

    Returns:
        The rows by the footers, or else as stated.
    """
    counts: Ints = stated.copy()
    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(paths), _AT_ONCE):
            table.on_event(Event(phase="opening Parquet files", done=start, total=len(paths)))
            part = paths.slice(start, _AT_ONCE).to_pylist()
            own_sizes = sizes[start : start + _AT_ONCE].tolist()
            counted = pool.map(partial(_footer_rows, table.storage), part, own_sizes)
            for row, (path, rows) in enumerate(zip(part, counted, strict=True), start):
                if isinstance(rows, UnknownRowCount):
                    findings.add(rows.rule, path, rows.reason)
                elif rows is not None:
                    if stated[row] not in (rows, unstated):
                        message = f"the file has {rows} rows, {source} {stated[row]}"
                        findings.add("record-count-differs", path, message)
                    counts[row] = rows
    return counts


def check_content(
    table: OpenTable,
    items: Sequence[Item],
    source: Callable[[Item], Source],
    check: Callable[[Item, bytes], Findings],
    findings: Findings,
    *,
    phase: str,
    gone: Callable[[Item], Findings] = lambda _: Findings(),
) -> None:
    """Read files whole by the table's engine, and add the findings.

    Args:
        table: whose files.
        items: n of them, each of one file.
        source: the file of an item.
        check: pure; the findings of a file. May run in other processes, as `gone` may.
        findings: to add to.
        phase: for progress.
        gone: the findings of an item whose file is not there.
    """

    def read(some: Sequence[Item]) -> list[Findings]:
        scan = Scan(
            source,
            check,
            lambda batch: [gone(item) if found is None else found for item, found in batch],
            phase=phase,
            missing_ok=True,
        )
        return [found for batch in table.engine.scan(scan, some, on_event=table.on_event) for found in batch]

    for answers in within_reach(
        items, lambda item: source(item).path or "", read, findings, root=table.location
    ):
        for found in answers:
            findings.merge(found)


def _footer_rows(storage: Storage, path: str, size: int) -> int | UnknownRowCount | None:
    """The number of rows of a Parquet file; or why it is not known; None where the file is gone or encrypted."""
    tail_bytes = min(size, PARQUET_TAIL_BYTES)
    try:
        tail = storage.read(path, (size - tail_bytes, tail_bytes))
        needed = parquet_footer_bytes(tail, size, path)
        if needed is None:
            return None
        if needed > len(tail):
            tail = storage.read(path, (size - needed, needed))
        return parquet_rows(tail)
    except FileNotFoundError:
        return None  # it went after its size was read
    except BackendUnavailable as error:
        return UnknownRowCount(UNANSWERED, f"it was not looked at: {error.message}")
    except CorruptFile as error:
        return UnknownRowCount("parquet-unreadable", error.reason)
