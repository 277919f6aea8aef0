"""Sizes, times and versions of many local files, read in several threads."""

from __future__ import annotations

import math
import os
import stat as stat_module
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from iceberg_cli.errors import unavailable
from iceberg_cli.storage import FileInfo
from iceberg_cli.storage.local.delete import reason_of

Seen = TypeVar("Seen")

_FIRST_FILES = 64
_SLOW_LOOK_S = 0.0002  # as on a network file system
_SLOW_THREADS = 16
_THREADS = 2  # for quick calls: the system answers two as fast as one
_SLICE_FILES = 4_096


def side_by_side(
    paths: Sequence[str],
    look: Callable[[str], Seen],
    look_at_many: Callable[[Sequence[str]], Iterable[Seen]] | None = None,
) -> list[Seen]:
    """The result of `look` for n files, in as many threads as pay off by the time that the first files take.

    Args:
        paths: of the files.
        look: for one file.
        look_at_many: for files in their order, without blocking Python's other threads; None where there is none.
    """
    seen: list[Seen] = []
    times = []
    for path in paths[:_FIRST_FILES]:
        started = time.perf_counter()
        seen.append(look(path))
        times.append(time.perf_counter() - started)
    rest = paths[_FIRST_FILES:]
    if not rest:
        return seen
    # The median, because other programs may delay one call or another.
    slow = sorted(times)[len(times) // 2] >= _SLOW_LOOK_S
    threads = _SLOW_THREADS if slow else _THREADS if look_at_many is not None else 1
    if threads == 1:
        return [*seen, *map(look, rest)]
    from concurrent.futures import ThreadPoolExecutor

    def part(first: int) -> list[Seen]:
        some = rest[first : first + size]
        return [*map(look, some)] if look_at_many is None else [*look_at_many(some)]

    size = min(_SLICE_FILES, math.ceil(len(rest) / threads))
    with ThreadPoolExecutor(threads) as pool:
        for found in pool.map(part, range(0, len(rest), size)):
            seen += found
    return seen


def infos_of(
    paths: Sequence[str], canonical: Callable[[str], str], *, versions: bool
) -> list[FileInfo | None]:
    """Size, modification time and, if `versions`, version of n files; None where there is no file.

    Arrow reads many at once, but no versions. What it does not report as a file is read again by a system call, which
    distinguishes a cycle of links from no file.

    Raises:
        BackendUnavailable: the system call failed.
    """

    def look(path: str) -> FileInfo | None:
        key = canonical(path) if _some_odd([path]) else path
        status = _status(path, key)
        if status is None:
            return None
        version = _version(status) if versions else None
        return FileInfo(key, status.st_size, status.st_mtime_ns // 1_000_000, version)

    def look_at_many(some: Sequence[str]) -> list[FileInfo | None]:
        from pyarrow.fs import FileType, LocalFileSystem

        if _some_odd(some):
            return [look(path) for path in some]
        try:
            infos = LocalFileSystem().get_file_info([*some])
        except (OSError, UnicodeEncodeError):  # for one of them, it does not report which
            return [look(path) for path in some]
        a_file = FileType.File
        return [
            FileInfo(path, info.size, info.mtime_ns // 1_000_000) if info.type == a_file else look(path)
            for path, info in zip(some, infos, strict=True)
        ]

    return side_by_side(paths, look, None if versions else look_at_many)


def _version(status: os.stat_result) -> str:
    """A file's version, without the time of the last change of the inode, which a hard link to the file moves."""
    return f"{status.st_dev}-{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def _status(path: str, key: str) -> os.stat_result | None:
    """The status of a file, after links; None where there is no file.

    Raises:
        BackendUnavailable: the system call failed.
    """
    try:
        status = os.stat(key)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        raise unavailable(f"Cannot look at {path}: {reason_of(error)}.", error) from error
    return status if not stat_module.S_ISDIR(status.st_mode) else None


def _some_odd(paths: Sequence[str]) -> bool:
    """Whether one of n paths may have another spelling. Checks them as one text, for there are very many."""
    text = "\0".join(["", *paths, ""])
    whole = text.count("\0") == text.count("\0/") + 1 == len(paths) + 1
    return not whole or any(noise in text for noise in ("//", "/.", "/\0"))
