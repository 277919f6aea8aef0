"""Sizes of a checked table's files from its storage, and findings for files whose storage does not answer.

A check goes on without these files, and is complete for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import numpy as np

from iceberg_cli.encoding.parquet import PARQUET_TAIL_BYTES, Uncounted, parquet_footer_bytes, parquet_rows
from iceberg_cli.errors import BackendUnavailable, CorruptFile, UsageError
from iceberg_cli.plan.findings import UNANSWERED, Findings, Ints
from iceberg_cli.storage import FileInfo, Storage

Item = TypeVar("Item")
Answer = TypeVar("Answer")

GONE: Final = -1
OUT_OF_REACH: Final = -2


def stored_sizes(storage: Storage, paths: Sequence[str], findings: Findings, *, root: str) -> Ints:
    """Size in bytes of each of n files, in their order, or `GONE`.

    `OUT_OF_REACH` are those that have no storage here or whose storage does not answer; see `within_reach`.
    """
    sizes: Ints = np.full(len(paths), OUT_OF_REACH, np.int64)

    def ask(places: Sequence[int]) -> tuple[Sequence[int], Ints]:
        return places, _sizes(storage.stat_many([paths[place] for place in places]))

    for places, found in within_reach(range(len(paths)), paths.__getitem__, ask, findings, root=root):
        sizes[places] = found
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
    by_place: dict[str, list[Item]] = {}
    for item in items:
        by_place.setdefault(_place(path_of(item), root), []).append(item)
    answers: list[Answer] = []
    for own in by_place.values():
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


def _place(path: str, root: str) -> str:
    """Empty for paths below the table's location, else the disk, bucket or host of a path."""
    if path.startswith(f"{root}/"):
        return ""
    scheme, mark, rest = path.partition("://")
    return f"{scheme}{mark}{rest.partition('/')[0]}" if mark else "/"


def _sizes(infos: Sequence[FileInfo | None]) -> Ints:
    return np.array([GONE if info is None else info.size_bytes for info in infos], np.int64)


def footer_rows(storage: Storage, path: str, size: int) -> int | Uncounted | None:
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
        return Uncounted(UNANSWERED, f"it was not looked at: {error.message}")
    except CorruptFile as error:
        return Uncounted("parquet-unreadable", error.reason)
