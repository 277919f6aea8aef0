"""Where rows that are sorted wait on disk: about how much it is, and a folder that no killed process leaves behind."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

PREFIX: Final = "iceberg-cli-sort-"
LEAST_BYTES: Final = 128 << 20  # with half of it DuckDB finds no room to merge what it sorted
_LOCK: Final = "in-use"
_PLAIN: Final = 4  # times the bytes that rows take in files, at most as a rule


def spilled_bytes(sizes: Sequence[int], *, side_by_side: int, held_bytes: int) -> int:
    """About how much of groups is on disk at a time while they are sorted.

    Args:
        sizes: of the files of each group, in bytes.
        side_by_side: groups that are sorted at a time.
        held_bytes: that each of these holds in memory.
    """
    plain = sorted((size * _PLAIN for size in sizes), reverse=True)[:side_by_side]
    return sum(each for each in plain if each > max(held_bytes, LEAST_BYTES))


@contextmanager
def spill_folder() -> Iterator[str]:
    """A folder for as long as rows are sorted; those that killed processes left are removed before."""
    import tempfile  # with what it imports it takes longer than most commands have for it

    _remove_abandoned(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        # The lock has its name once it is held: what has the name and is not held is nobody's.
        early = os.path.join(folder, f"{_LOCK}.new")
        with open(early, "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.rename(early, os.path.join(folder, _LOCK))
            yield folder


def _remove_abandoned(parent: str) -> None:
    """Remove the folders whose locks nobody holds, as far as this user may."""
    with os.scandir(parent) as entries:
        folders = [each.path for each in entries if each.name.startswith(PREFIX)]
    for folder in folders:
        with suppress(OSError), open(os.path.join(folder, _LOCK), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
