"""Temporary files of this tool that a killed run left in local folders, known by their names and their age."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable

from iceberg_cli.errors import unavailable

# Longer than any write takes; a file of a process that lives is never taken for a leftover.
AGE_MS = 86_400_000
_NAME = re.compile(r"\.iceberg-cli-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp")


def leftovers_in(folders: Iterable[str], *, now_ms: int) -> list[str]:
    """The temporary files in local folders, not below them, that are more than a day old.

    Args:
        folders: canonical, such as `/a/b`; those that are not there have none.
        now_ms: by the clock that the files' times are of, since the epoch.

    Returns:
        Their paths, in order.

    Raises:
        BackendUnavailable: a folder cannot be listed.
    """
    found: list[str] = []
    for folder in dict.fromkeys(folders):
        try:
            with os.scandir(folder) as entries:
                found += [
                    f"{folder.rstrip('/')}/{entry.name}"
                    for entry in entries
                    if _NAME.fullmatch(entry.name) is not None and _is_old(entry, now_ms)
                ]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise unavailable(f"Cannot list {folder}: {error.strerror}.", error) from error
    return sorted(found)


def _is_old(entry: os.DirEntry[str], now_ms: int) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_mtime_ns // 1_000_000 < now_ms - AGE_MS
